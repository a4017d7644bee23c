"""Recorded, identity replay and other policies side by side.

The *identity replay* is the same trace replayed under the policy it was captured under. What it gets wrong, the
prediction for another policy may get wrong as well: an effect that is not larger is *not resolved*.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from tracekit.analysis import _common as c
from tracekit.analysis import latency, response, runqueue, slices
from tracekit.analysis.uncertainty import ks_by

#: Labels of the recorded trace and of its identity replay, in tables, plots and reports.
RECORDED = "recorded"
IDENTITY = "identity replay"

#: What each metric is, for tables and reports.
METRICS: dict[str, str] = {
    "slice": "slice: one uninterrupted stay on a CPU",
    "slice_per_involuntary": "run time / involuntary switches",
    "run_delay": "run delay: runnable until running",
    "wakeup_latency": "wakeup latency: wakeup until running",
    "response": "response time: wakeup until the task next blocks or exits",
    "cpu_time": "time on CPUs",
    "switches": "switches out of a CPU",
    "involuntary_switches": "switches out of a CPU while the task could have gone on",
    "runqueue": "run-queue length of the system, running tasks included, weighted by time",
}

_SCHEMA = {
    "scope": pl.String,
    "group": pl.String,
    "metric": pl.String,
    "statistic": pl.String,
    "unit": pl.String,
    "value": pl.Float64,
    "n": pl.UInt32,
    "n_censored": pl.UInt32,
}


def _long(
    table: pl.DataFrame, scope: str, metric: str, unit: str, statistics: Mapping[str, str]
) -> pl.DataFrame:
    """Turn columns of a summary into rows; `statistics` maps the name of a statistic to its column."""
    whole = scope != "group"
    return pl.concat(
        [
            table.select(
                pl.lit(scope).alias("scope"),
                (pl.lit(None, dtype=pl.String) if whole else pl.col("group")).alias("group"),
                pl.lit(metric).alias("metric"),
                pl.lit(statistic).alias("statistic"),
                pl.lit(unit).alias("unit"),
                pl.col(column).cast(pl.Float64).alias("value"),
                (pl.col("n") if "n" in table.columns else pl.lit(None)).cast(pl.UInt32).alias("n"),
                (pl.col("n_censored") if "n_censored" in table.columns else pl.lit(0))
                .cast(pl.UInt32)
                .alias("n_censored"),
            )
            for statistic, column in statistics.items()
        ]
    )


def metrics(
    slice_table: pl.DataFrame,
    runqueue_table: pl.DataFrame,
    states: pl.DataFrame | None = None,
    end_ns: int | None = None,
    by: str = "group",
) -> pl.DataFrame:
    """Give every figure that `compare` compares, as rows.

    Definitions: those of `slices.summary`, `latency.summary`, `response.summary` and `runqueue.summary`.

    Parameters
    ----------
    slice_table, runqueue_table, states
        The `slices`, `runqueue` and `states` tables of one trace or replay.
    end_ns
        End of the trace.
    by
        Grouping, see `tracekit.analysis.GROUPINGS`.

    Returns
    -------
    pl.DataFrame
        One row per scope, group, metric and statistic: `scope` (String: `group`, `all` for all tasks together,
        `system`), `group` (String; null unless scope is `group`, or for tasks without a name), `metric` (String, a key
        of `METRICS`), `statistic` (String: `mean`, `p50`, `p95`, `p99`, `max`, `total`), `unit` (String: `ns`, `1`),
        `value` (Float64; null when there are too few samples for it), `n` (UInt32, samples; null for the run queue),
        `n_censored` (UInt32).

    Notes
    -----
    How it can mislead: figures of a group with few samples vary a lot between two runs of the same thing; look at
    `n`.
    """
    spread = {"mean": "mean_ns", "p50": "p50_ns", "p95": "p95_ns", "p99": "p99_ns", "max": "max_ns"}
    rows = []
    for scope, key in (("group", by), ("all", "all")):
        cut = slices.summary(slice_table, key)
        rows.append(_long(cut, scope, "slice", "ns", spread))
        rows.append(_long(cut, scope, "cpu_time", "ns", {"total": "run_ns"}))
        per = cut.with_columns(pl.col("nr_involuntary").alias("n"))
        rows.append(_long(per, scope, "slice_per_involuntary", "ns", {"mean": "mean_per_involuntary_ns"}))
        outs = cut.with_columns((pl.col("nr_involuntary") + pl.col("nr_voluntary")).alias("n"))
        rows.append(_long(outs, scope, "switches", "1", {"total": "n"}))
        rows.append(_long(outs, scope, "involuntary_switches", "1", {"total": "nr_involuntary"}))
        rows.append(_long(latency.summary(slice_table, states, key), scope, "run_delay", "ns", spread))
        woken = latency.summary(slice_table, states, key, "wakeup")
        rows.append(_long(woken, scope, "wakeup_latency", "ns", spread))
        rows.append(
            _long(response.summary(slice_table, states, end_ns, key), scope, "response", "ns", spread)
        )
    queue = runqueue.summary(runqueue_table, end_ns).filter(pl.col("scope") == "system")
    lengths = {"mean": "mean", "p50": "p50", "p95": "p95", "p99": "p99", "max": "max"}
    rows.append(_long(queue.drop("scope"), "system", "runqueue", "1", lengths))
    return pl.concat(rows).cast(pl.Schema(_SCHEMA))


def compare(
    figures: Mapping[str, pl.DataFrame],
    recorded: str = "recorded",
    identity: str = "identity",
    resolution_ns: int = 1,
    floor: float = 0.005,
) -> pl.DataFrame:
    """Set the figures of each policy beside the recorded ones and those of the identity replay.

    Definitions: change = policy - identity, in % of identity: both come from the same model, so that its errors cancel
    as far as they can. Identity error = identity - recorded, in % of recorded. A change is resolved when
    |policy - identity| > max(|identity - recorded|, floor * |identity|, resolution of the clock for times).

    Parameters
    ----------
    figures
        Label to result of `metrics`; must contain `recorded` and `identity`, every other entry is a policy.
    recorded, identity
        Labels of the recorded trace and of the identity replay.
    resolution_ns
        Smallest step of the trace's clock; no smaller difference between times is resolved.
    floor
        Smallest relative change that counts, however small the identity error: a model of a scheduler is not better
        than that, and an identity replay can be right by luck.

    Returns
    -------
    pl.DataFrame
        One row per policy, scope, group, metric and statistic: `policy` (String), `scope`, `group`, `metric`,
        `statistic`, `unit` as in `metrics`; `recorded`, `identity`, `predicted` (Float64; null when not measured),
        `n_recorded`, `n_predicted` (UInt32), `n_censored` (UInt32, of the prediction), `identity_error_pct` (Float64;
        null when either is null or recorded is 0), `change_pct` (Float64; null when either is null or identity is
        0), `resolved` (Boolean; null when one of the three figures is null), `verdict` (String: `resolved`, `not
        resolved`, `not measured`).

    Notes
    -----
    How it can mislead: an identity replay that is right by luck in one figure makes almost every change of that figure
    look resolved; look at the identity errors of the other statistics of the metric. `not resolved` does not mean that
    there is no effect.
    """
    keys = ["scope", "group", "metric", "statistic", "unit"]
    for label in (recorded, identity):
        if label not in figures:
            raise ValueError(f"no figures for {label!r}: expected them beside {', '.join(figures)}")
    base = figures[recorded].select(*keys, pl.col("value").alias("recorded"), pl.col("n").alias("n_recorded"))
    ident = figures[identity].select(*keys, pl.col("value").alias("identity"))
    step = pl.when(pl.col("unit") == "ns").then(float(resolution_ns)).otherwise(0.0)
    least = pl.max_horizontal(step, floor * pl.col("identity").abs())
    miss = (pl.col("identity") - pl.col("recorded")).abs()
    bar = pl.when(miss > least).then(miss).when(miss.is_not_null()).then(least)
    out = []
    for label, table in figures.items():
        if label in (recorded, identity):
            continue
        policy = table.select(
            *keys, pl.col("value").alias("predicted"), pl.col("n").alias("n_predicted"), "n_censored"
        )
        joined = base.join(
            ident, on=keys, how="full", coalesce=True, nulls_equal=True, maintain_order="left_right"
        ).join(policy, on=keys, how="full", coalesce=True, nulls_equal=True, maintain_order="left_right")
        effect = pl.col("predicted") - pl.col("identity")
        error = pl.col("identity") - pl.col("recorded")
        out.append(
            joined.with_columns(
                pl.lit(label).alias("policy"),
                pl.when(pl.col("recorded") != 0)
                .then(100 * error / pl.col("recorded"))
                .alias("identity_error_pct"),
                pl.when(pl.col("identity") != 0).then(100 * effect / pl.col("identity")).alias("change_pct"),
                (effect.abs() > bar).alias("resolved"),
            )
        )
    names = ["policy", *keys, "recorded", "identity", "predicted", "n_recorded", "n_predicted", "n_censored"]
    names += ["identity_error_pct", "change_pct", "resolved", "verdict"]
    if not out:
        return _empty(names)
    verdict = (
        pl.when(pl.col("resolved"))
        .then(pl.lit("resolved"))
        .when(~pl.col("resolved"))
        .then(pl.lit("not resolved"))
        .otherwise(pl.lit("not measured"))
    )
    return pl.concat(out).with_columns(verdict.alias("verdict")).select(names)


def _empty(names: list[str]) -> pl.DataFrame:
    text = {"policy", "scope", "group", "metric", "statistic", "unit", "verdict"}
    counts = {"n_recorded", "n_predicted", "n_censored"}

    def dtype(name: str) -> type[pl.DataType]:
        if name in text:
            return pl.String
        if name in counts:
            return pl.UInt32
        return pl.Boolean if name == "resolved" else pl.Float64

    return pl.DataFrame(schema={name: dtype(name) for name in names})


def distances(
    recorded: pl.DataFrame, replays: Mapping[str, pl.DataFrame], value: str, by: str = "group"
) -> pl.DataFrame:
    """Give the distance between the recorded distribution of a column and that of each replay, by group.

    Definition: Kolmogorov-Smirnov, D = max over t of |F_recorded(t) - F_replay(t)|; rows with a null are left out.

    Parameters
    ----------
    recorded
        A table with `utid`, `tid`, `comm` and the column `value`.
    replays
        Label to the same table of a replay.
    value
        Name of a numeric column.
    by
        Grouping, see `tracekit.analysis.GROUPINGS`.

    Returns
    -------
    pl.DataFrame
        One row per label and group: `label` (String), `group` (String), `n_a` (UInt32, recorded), `n_b` (UInt32,
        replay), `ks` (Float64; null when the group is missing from one of them).

    Notes
    -----
    How it can mislead: D sees the largest gap of the curves, wherever it is; it says nothing of the tail.
    """
    a = recorded.with_columns(c.group_of(by))
    frames = [
        ks_by(a, table.with_columns(c.group_of(by)), value).select(pl.lit(label).alias("label"), pl.all())
        for label, table in replays.items()
    ]
    schema = {"label": pl.String, "group": pl.String, "n_a": pl.UInt32, "n_b": pl.UInt32, "ks": pl.Float64}
    return pl.concat(frames) if frames else pl.DataFrame(schema=schema)
