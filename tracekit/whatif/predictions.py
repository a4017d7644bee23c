"""Repetitions of replays, and what they and the calibration say of each figure of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from tracekit.whatif import intervals
from tracekit.whatif.intervals import ModelError, Shake

__all__ = ["RELATED", "Repeated", "with_calibration", "with_intervals"]

#: Metric of `tracekit.whatif.calibration` that tells most of each figure; a dict where it goes by statistic.
RELATED: dict[str, str | dict[str, str]] = {
    "slice_per_involuntary": "main",
    "slice": {"p50": "slice_p50", "": "slice_ks"},
    "run_delay": {"p50": "run_delay_p50", "p95": "run_delay_p95", "": "run_delay_ks"},
    "wakeup_latency": {"p50": "run_delay_p50", "p95": "run_delay_p95", "": "run_delay_ks"},
    "response": {"p50": "run_delay_p50", "p95": "run_delay_p95", "": "run_delay_ks"},
    "cpu_time": "cpu_share",
    "switches": "switches",
    "involuntary_switches": "preemptions",
    "runqueue": {"mean": "runqueue_mean", "": "runqueue_histogram"},
}

Key = tuple[str, str | None, str, str]


@dataclass(frozen=True)
class Repeated:
    """Replays that were repeated with small changes of the machine.

    Attributes
    ----------
    figures
        Label to the repetitions that came to an end, the plain replay first: how it was shaken, and the result of
        `tracekit.analysis.compare.metrics`.
    kinds
        Label to the kind of change, see `tracekit.whatif.intervals.kind_of_change`.
    shares
        Share of kernel work by group of tasks; for all tasks together under the key ``all``.
    """

    figures: Mapping[str, Sequence[tuple[Shake, pl.DataFrame]]]
    kinds: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[tuple[str, str | None], float] = field(default_factory=dict)


#: Columns that `with_intervals` adds.
ADDED = {
    "low": pl.Float64,
    "high": pl.Float64,
    "bistable_low": pl.Float64,
    "bistable_high": pl.Float64,
}


def _key(row: Mapping[str, Any]) -> Key:
    return row["scope"], row["group"], row["metric"], row["statistic"]


def _values(repetitions: Sequence[tuple[Shake, pl.DataFrame]]) -> dict[Key, list[tuple[Shake, float]]]:
    found: dict[Key, list[tuple[Shake, float]]] = {}
    for shake, frame in repetitions:
        for row in frame.iter_rows(named=True):
            if row["value"] is not None:
                found.setdefault(_key(row), []).append((shake, row["value"]))
    return found


def _middle(found: Sequence[tuple[Shake, float]], plain: float | None) -> float | None:
    if not found:
        return plain
    return intervals.centre([v for _, v in found], [s for s, _ in found])


def with_intervals(
    table: pl.DataFrame,
    repeated: Repeated | None,
    identity: str,
    sampling: Mapping[Key, float],
    resolution_ns: int = 1,
) -> pl.DataFrame:
    """Put intervals beside predictions, and judge changes by the repetitions.

    Definitions: `tracekit.whatif.intervals`. The prediction and the identity become the medians of their repetitions with the
    tick in its place.

    Parameters
    ----------
    table
        Result of `tracekit.analysis.compare.compare`.
    repeated
        The repetitions; without them the columns are null and nothing else changes.
    identity
        Label of the identity replay.
    sampling
        Relative half-width of the 90 % bootstrap interval, by scope, group, metric and statistic.
    resolution_ns
        Smallest step of the trace's clock.

    Returns
    -------
    pl.DataFrame
        `table` with `low`, `high` (Float64, the 90 % interval; null without repetitions, or for a figure that is not
        positive), `bistable_low` and `bistable_high` (Float64, the two values of a schedule with two outcomes, else null).
    """
    if repeated is None:
        return table.with_columns(pl.lit(None, dtype=t).alias(n) for n, t in ADDED.items())
    same = _values(repeated.figures[identity])
    of_policy = {label: _values(runs) for label, runs in repeated.figures.items() if label != identity}
    models = {k: intervals.model_error().get(kind, intervals.NONE) for k, kind in repeated.kinds.items()}
    rows = []
    for row in table.iter_rows(named=True):
        key = _key(row)
        found = of_policy.get(row["policy"], {}).get(key, [])
        own = same.get(key, [])
        share = repeated.shares.get((row["scope"], row["group"]), 0.0)
        model = models.get(row["policy"], intervals.NONE)
        rows.append(_judged(row, found, own, model, share, sampling.get(key, 0.0), resolution_ns))
    return pl.DataFrame(rows, schema={**table.schema, **ADDED})


def _judged(
    row: dict[str, Any],
    found: Sequence[tuple[Shake, float]],
    own: Sequence[tuple[Shake, float]],
    model: ModelError,
    share: float,
    sampling: float,
    resolution_ns: int,
) -> dict[str, Any]:
    """A row of the table with what the repetitions say."""
    out = {**row, **dict.fromkeys(ADDED)}
    predicted, identity = _middle(found, row["predicted"]), _middle(own, row["identity"])
    recorded = row["recorded"]
    out |= {"predicted": predicted, "identity": identity}
    if recorded and identity is not None:
        out["identity_error_pct"] = 100 * (identity - recorded) / recorded
    if predicted is None:
        return out
    values = [v for _, v in found]
    two = intervals.modes(values)
    if two is not None:
        out |= {"bistable_low": two[0], "bistable_high": two[1]}
    if identity is None:
        return out
    if identity:
        out["change_pct"] = 100 * (predicted - identity) / identity
    if recorded is None:
        return out
    clear = intervals.resolved(predicted, identity, recorded, values, [v for _, v in own])
    step = resolution_ns if row["unit"] == "ns" else 0
    out["resolved"] = clear and abs(predicted - identity) > step
    out["verdict"] = "resolved" if out["resolved"] else "not resolved"
    made = intervals.interval(predicted, values, recorded, identity, sampling, model, share)
    if made is not None and len(values) > 1:
        out |= {"low": made.low, "high": made.high}
    return out


def with_calibration(table: pl.DataFrame, fidelity: pl.DataFrame) -> pl.DataFrame:
    """Put the result of the calibration beside each figure.

    Parameters
    ----------
    table
        With the columns `metric` and `statistic`.
    fidelity
        Result of `tracekit.whatif.calibration.calibrate`.

    Returns
    -------
    pl.DataFrame
        `table` with `calibration` (String: `pass`, `fail`, `not measured`): the result of the metric that tells most of the
        figure, see `RELATED`.
    """
    results = dict(fidelity.select("metric", "result").iter_rows())

    def result(metric: str, statistic: str) -> str:
        related = RELATED.get(metric, "")
        if isinstance(related, dict):
            related = related.get(statistic, related[""])
        return str(results.get(related, "not measured"))

    told = [result(m, s) for m, s in table.select("metric", "statistic").iter_rows()]
    return table.with_columns(pl.Series("calibration", told, dtype=pl.String))
