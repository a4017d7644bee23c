"""Recorded, identity replay and other policies side by side.

The *identity replay* is the same trace replayed under the policy it was captured under. What it
gets wrong, the prediction for another policy may get wrong as well: an effect that is not larger is
*not resolved*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from tracekit import _core
from tracekit.analysis import _common as c
from tracekit.analysis.uncertainty import ks_by

#: Labels of the recorded trace and of its identity replay, in tables, plots and reports.
RECORDED = "recorded"
IDENTITY = "identity replay"

#: What each metric is, for tables and reports.
METRICS: dict[str, str] = {
    "slice": "slice: one uninterrupted on-CPU interval",
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
    "is_bound": pl.Boolean,
}


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
        One row per scope, group, metric and statistic: `scope` (String: `group`, `all` for all
        tasks together, `system`), `group` (String; null unless scope is `group`, or for tasks
        without a name), `metric` (String, a key of `METRICS`), `statistic` (String: `mean`, `p50`,
        `p95`, `p99`, `max`, `total`), `unit` (String: `ns`, `1`), `value` (Float64; null when there
        are too few samples for it), `n` (UInt32, samples; null for the run queue), `n_censored`
        (UInt32), `is_bound` (Boolean, true for a mean that is a lower bound, since the largest
        sample is censored).

    Notes
    -----
    How it can mislead: figures of a group with few samples vary a lot between two runs of the same
    thing; look at `n`.
    """
    return as_metrics(_core.metrics(slice_table, runqueue_table, states, end_ns, by))


def as_metrics(rows: Sequence[tuple[object, ...]]) -> pl.DataFrame:
    """Rows of the core as the result of `metrics`."""
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def medians(repetitions: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Give the median of every figure over the repetitions of a replay.

    Parameters
    ----------
    repetitions
        Results of `metrics`, at least one.

    Returns
    -------
    pl.DataFrame
        As `metrics`: `value`, `n` and `n_censored` are medians (of an even number the lower of the
        middle two), `is_bound` what at least half have. Null where fewer than half of the repetitions have a value.
    """
    if len(repetitions) == 1:
        return repetitions[0]
    keys = [name for name in _SCHEMA if name not in ("value", "n", "n_censored", "is_bound")]
    known = 2 * pl.col("value").count() >= len(repetitions)
    half = [pl.col(name).quantile(0.5, "lower").cast(_SCHEMA[name]) for name in ("n", "n_censored")]
    rows = pl.concat(repetitions).group_by(keys, maintain_order=True)
    return rows.agg(
        pl.when(known).then(pl.col("value").quantile(0.5, "lower")),
        *half,
        (pl.col("is_bound").mean() >= 0.5).alias("is_bound"),
    ).select(list(_SCHEMA))


def compare(
    figures: Mapping[str, pl.DataFrame],
    recorded: str = "recorded",
    identity: str = "identity",
    resolution_ns: int = 1,
    floor: float = 0.005,
) -> pl.DataFrame:
    """Set the figures of each policy beside the recorded ones and those of the identity replay.

    Definitions: change = policy - identity, in % of identity: both come from the same model, so
    that its errors cancel as far as they can. Identity error = identity - recorded, in % of
    recorded. A change is resolved when
    |policy - identity| > max(|identity - recorded|, floor * |identity|, resolution of the clock for times),
    and it is no fall to a lower bound, which may be none.

    Parameters
    ----------
    figures
        Label to result of `metrics`; must contain `recorded` and `identity`, every other entry is a policy.
    recorded, identity
        Labels of the recorded trace and of the identity replay.
    resolution_ns
        Smallest step of the trace's clock; no smaller difference between times is resolved.
    floor
        Smallest relative change that counts, however small the identity error: a model of a
        scheduler is not better than that, and an identity replay can be right by luck.

    Returns
    -------
    pl.DataFrame
        One row per policy, scope, group, metric and statistic: `policy` (String), `scope`, `group`,
        `metric`, `statistic`, `unit` as in `metrics`; `recorded`, `identity`, `predicted` (Float64;
        null when not measured), `n_recorded`, `n_predicted` (UInt32), `n_censored` (UInt32, of the
        prediction), `recorded_is_bound`, `predicted_is_bound` (Boolean, a mean that is a lower
        bound; null when not measured), `identity_error_pct` (Float64; null when either is null or
        recorded is 0), `change_pct` (Float64; null when either is null or identity is 0),
        `resolved` (Boolean; null when one of the three figures is null), `verdict` (String:
        `resolved`, `not resolved`, `not measured`).

    Notes
    -----
    How it can mislead: an identity replay that is right by luck in one figure makes almost every
    change of that figure look resolved; look at the identity errors of the other statistics of the
    metric. `not resolved` does not mean that there is no effect.
    """
    keys = ["scope", "group", "metric", "statistic", "unit"]
    for label in (recorded, identity):
        if label not in figures:
            raise ValueError(f"no figures for {label!r}: expected them beside {', '.join(figures)}")
    base = figures[recorded].select(
        *keys,
        recorded=pl.col("value"),
        n_recorded=pl.col("n"),
        recorded_is_bound=_is_bound(figures[recorded]),
    )
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
            *keys, pl.col("value").alias("predicted"), pl.col("n").alias("n_predicted"), "n_censored",
            predicted_is_bound=_is_bound(table),
        )  # fmt: skip
        joined = base.join(
            ident, on=keys, how="full", coalesce=True, nulls_equal=True, maintain_order="left_right"
        ).join(policy, on=keys, how="full", coalesce=True, nulls_equal=True, maintain_order="left_right")
        effect = pl.col("predicted") - pl.col("identity")
        error = pl.col("identity") - pl.col("recorded")
        fall = pl.col("predicted_is_bound").fill_null(False) & (effect < 0)
        out.append(
            joined.with_columns(
                pl.lit(label).alias("policy"),
                pl.when(pl.col("recorded") != 0)
                .then(100 * error / pl.col("recorded"))
                .alias("identity_error_pct"),
                pl.when(pl.col("identity") != 0).then(100 * effect / pl.col("identity")).alias("change_pct"),
                pl.when(fall & bar.is_not_null())
                .then(pl.lit(False))
                .otherwise(effect.abs() > bar)
                .alias("resolved"),
            )
        )
    names = ["policy", *keys, "recorded", "identity", "predicted", "n_recorded", "n_predicted", "n_censored"]
    names += [
        "recorded_is_bound",
        "predicted_is_bound",
        "identity_error_pct",
        "change_pct",
        "resolved",
        "verdict",
    ]
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


def _is_bound(table: pl.DataFrame) -> pl.Expr:
    return pl.col("is_bound") if "is_bound" in table.columns else pl.lit(None, dtype=pl.Boolean)


def _empty(names: list[str]) -> pl.DataFrame:
    text = {"policy", "scope", "group", "metric", "statistic", "unit", "verdict"}
    counts = {"n_recorded", "n_predicted", "n_censored"}

    def dtype(name: str) -> type[pl.DataType]:
        if name in text:
            return pl.String
        if name in counts:
            return pl.UInt32
        return pl.Boolean if name == "resolved" or name.endswith("is_bound") else pl.Float64

    return pl.DataFrame(schema={name: dtype(name) for name in names})


def distances(
    recorded: pl.DataFrame, replays: Mapping[str, pl.DataFrame], value: str, by: str = "group"
) -> pl.DataFrame:
    """Give the distance between the recorded distribution of a column and that of each replay, by group.

    Definition: Kolmogorov-Smirnov, D = max over t of |F_recorded(t) - F_replay(t)|; rows with a
    null are left out.

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
        One row per label and group: `label` (String), `group` (String), `n_a` (UInt32, recorded),
        `n_b` (UInt32, replay), `ks` (Float64; null when the group is missing from one of them).

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
