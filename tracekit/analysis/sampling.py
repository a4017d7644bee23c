"""The sampling error of every row of `tracekit.analysis.compare.metrics`.

It is an interval, or the reason why there is none.

Each row is resampled as what it is: means and quantiles by their samples, totals and time-weighted
figures by equal intervals of time, ratios by both of their parts. See `tracekit.analysis.blocks`
for how.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from tracekit import _core
from tracekit.analysis import uncertainty

__all__ = ["KEYS", "sampling"]

#: Columns that name a row, as in `tracekit.analysis.compare.metrics`.
KEYS = ("scope", "group", "metric", "statistic")

_SCHEMA: dict[str, Any] = {
    "scope": pl.String,
    "group": pl.String,
    "metric": pl.String,
    "statistic": pl.String,
    "value": pl.Float64,
    "n": pl.UInt32,
    "low": pl.Float64,
    "high": pl.Float64,
    "n_effective": pl.Float64,
    "resampled": pl.String,
    "units": pl.UInt32,
    "reason": pl.String,
}


def sampling(
    slice_table: pl.DataFrame,
    runqueue_table: pl.DataFrame,
    states: pl.DataFrame | None = None,
    end_ns: int | None = None,
    by: str = "group",
    confidence: float = uncertainty.LEVEL,
) -> pl.DataFrame:
    """Give the sampling interval of every row of `tracekit.analysis.compare.metrics`.

    Definitions: means and quantiles as `tracekit.analysis.uncertainty.interval`, over all samples
    of the row in time order and with their tasks. Run time per involuntary switch: the ratio of two
    sums over slices. Totals (time on CPUs, switches) and the run queue: sums over 512 equal
    intervals of the trace.

    Parameters
    ----------
    slice_table, runqueue_table, states, end_ns, by
        As in `tracekit.analysis.compare.metrics`.
    confidence
        Level of the intervals.

    Returns
    -------
    pl.DataFrame
        One row per scope, group, metric and statistic: these four (String), `value` (Float64, the
        statistic, as in `metrics`), `n` (UInt32, samples; intervals of time for totals and the run
        queue), `low` and `high` (Float64; null where `reason` says why), `n_effective` (Float64),
        `resampled` (String: `tasks`, `blocks`), `units` (UInt32) as in `uncertainty.interval`,
        `reason` (String; null where there is an interval).

    Raises
    ------
    ValueError
        When the level does not lie between 0 and 1, or a table lacks columns.

    Notes
    -----
    How it can mislead: an interval says how the row would vary if the same workload ran on for as
    long again, not how far a prediction is off.
    """
    uncertainty.check_confidence(confidence)
    rows = _core.sampling(slice_table, runqueue_table, states, end_ns, by, confidence)
    return pl.DataFrame(
        [(*row[:4], *row[5][:1], row[4], *row[5][1:]) for row in rows], schema=_SCHEMA, orient="row"
    )
