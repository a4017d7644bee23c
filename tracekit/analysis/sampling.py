"""The sampling error of every row of `tracekit.analysis.compare.metrics`.

It is an interval, or the reason why there is none.

Each row is resampled as what it is: means and quantiles by their samples, totals and time-weighted
figures by equal intervals of time, ratios by both of their parts. See `tracekit.analysis.blocks`
for how.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit import _core
from tracekit.analysis import _common as c
from tracekit.analysis import blocks, latency, response, runqueue, slices, uncertainty
from tracekit.analysis._time import edges_of, integral

__all__ = ["KEYS", "sampling"]

#: Columns that name a row, as in `tracekit.analysis.compare.metrics`.
KEYS = ("scope", "group", "metric", "statistic")
#: Quantiles that `metrics` gives.
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
#: A maximum has no bootstrap: it is the value of one sample (Efron and Tibshirani 1993, section 7.4).
_NO_MAXIMUM = "a maximum is one sample; nothing says how it would vary"

_SCHEMA = {
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

Row = dict[str, Any]
Ints = NDArray[np.int64]


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
    rows: list[Row] = []
    # Of a long trace the other columns take more room than these, and are copied with them.
    waits = latency.samples(slice_table, states).select(
        *("utid", "tid", pl.col("comm").cast(pl.Categorical())),
        *((pl.col("cause") == "wakeup").alias("woken"), "run_delay_ns", "censored"),
    )
    responses = response.samples(slice_table, states, end_ns).select(
        *("utid", "tid", pl.col("comm").cast(pl.Categorical()), "wake_ts_ns", "response_ns", "censored"),
    )
    slice_table = slice_table.select("ts_ns", "dur_ns", "utid", "tid", "comm", "involuntary", "flags")
    for scope, key in (("group", by), ("all", "all")):
        for sample in _samples(slice_table, waits, responses, key):
            rows += _of_samples(scope, *sample, confidence)
        rows += _of_slices(scope, slice_table.with_columns(c.group_of(key)), end_ns, confidence)
    del waits, responses, slice_table
    rows += _of_queue(runqueue_table, end_ns, confidence)
    return pl.DataFrame(rows, schema=_SCHEMA)


Sample = tuple[str, str, pl.DataFrame]


def _samples(
    slice_table: pl.DataFrame, waits: pl.DataFrame, responses: pl.DataFrame, key: str
) -> Iterator[Sample]:
    """Metric, column and samples in time order."""
    waits, responses = (table.with_columns(c.group_of(key)) for table in (waits, responses))
    lengths = slices.closed(slice_table.with_columns(c.group_of(key))).sort("ts_ns")
    yield "slice", "dur_ns", lengths.with_columns(pl.lit(False).alias("censored"))
    yield "run_delay", "run_delay_ns", waits
    yield "wakeup_latency", "run_delay_ns", waits.filter("woken")
    yield "response", "response_ns", responses.sort("wake_ts_ns", nulls_last=True)


def _parts(table: pl.DataFrame) -> Iterator[tuple[str | None, pl.DataFrame]]:
    for part in table.partition_by("group", maintain_order=True):
        name = part["group"][0]
        yield None if name is None else str(name), part


def _row(scope: str, group: str | None, metric: str, found: dict[str, Any]) -> Row:
    return {
        **{"scope": scope, "group": None if scope != "group" else group, "metric": metric},
        **{k: found[k] for k in ("statistic", "value", "n", "n_effective", "resampled", "units", "reason")},
        **{"low": found["lo"], "high": found["hi"]},
    }


def _of_samples(scope: str, metric: str, column: str, table: pl.DataFrame, confidence: float) -> list[Row]:
    known = table.filter(pl.col(column).is_not_null()).select(
        pl.col(column).cast(pl.Float64).alias("x"),
        pl.col("censored").fill_null(False),
        pl.col("utid").cast(pl.Int64),
        pl.col("group"),
        pl.col("group").cast(pl.Categorical()).to_physical().cast(pl.Int64).fill_null(-1).alias("_number"),
    )
    found = uncertainty.of_groups(
        known["x"].to_numpy(),
        [None, *_QUANTILES.values()],
        confidence,
        censored=known["censored"].to_numpy(),
        tasks=known["utid"].to_numpy(),
        groups=known["_number"].to_numpy(),
    )
    out = []
    for first, n, largest, rows in found:
        group = known["group"][first]
        rows.append(uncertainty.refused("max", n, largest, _NO_MAXIMUM))
        out += [_row(scope, group, metric, row) for row in rows]
    return out


def _of_slices(scope: str, table: pl.DataFrame, end_ns: int | None, confidence: float) -> list[Row]:
    """Rows of the totals over slices, and of run time per involuntary switch."""
    rows = table.sort("ts_ns").with_columns(
        (pl.col("ts_ns") + pl.col("dur_ns")).alias("_end"),
        pl.col("involuntary").fill_null(False).alias("_forced"),
        pl.col("involuntary").is_not_null().alias("_left"),
    )
    if rows.is_empty():
        return []
    start = int(rows["ts_ns"].to_numpy()[0])
    stop = max(int(rows["_end"].to_numpy().max()), end_ns or 0)
    edges = edges_of(start, stop, rows.height)
    out: list[Row] = []
    for group, part in _parts(rows):
        begin, end = part["ts_ns"].to_numpy(), part["_end"].to_numpy()
        dur = part["dur_ns"].to_numpy().astype(np.float64)
        forced, left = (part[k].to_numpy().astype(np.float64) for k in ("_forced", "_left"))
        for metric, at, value in (
            ("cpu_time", None, float(dur.sum())),
            ("switches", end[left > 0], float(left.sum())),
            ("involuntary_switches", end[forced > 0], float(forced.sum())),
        ):
            series = _busy(begin, end, edges) if at is None else np.histogram(at, edges)[0].astype(np.float64)
            n = part.height if at is None else len(at)
            out.append(_row(scope, group, metric, _total(n, value, series, confidence)))
        out.append(_row(scope, group, "slice_per_involuntary", _ratio(part, dur, forced, confidence)))
    return out


def _busy(begin: Ints, end: Ints, edges: Ints) -> NDArray[np.float64]:
    """Time on CPUs in each interval: differences of its integral, which is linear between starts and ends."""
    ends, starts = np.sort(end), np.sort(begin)

    def until(t: Ints, marks: Ints) -> NDArray[np.float64]:
        before = np.searchsorted(marks, t, side="right")
        sums = np.concatenate([[0], np.cumsum(marks)])
        return np.asarray(before * t - sums[before], dtype=np.float64)

    return np.diff(until(edges, starts) - until(edges, ends))


def _total(n: int, value: float, series: NDArray[np.float64], confidence: float) -> dict[str, Any]:
    if n < blocks.MIN_N:
        return uncertainty.refused("total", n, value, f"n = {n} is below {blocks.MIN_N}")
    error = blocks.standard_error(series - series.mean())
    return uncertainty.around("total", n, value, error, confidence)


def _ratio(
    part: pl.DataFrame, dur: NDArray[np.float64], forced: NDArray[np.float64], confidence: float
) -> dict[str, Any]:
    count = int(forced.sum())
    value = float(dur.sum()) / count if count else None
    if value is None or count < blocks.MIN_N:
        return uncertainty.refused("mean", count, value, f"n = {count} is below {blocks.MIN_N}")
    error = blocks.standard_error(blocks.of_ratio(dur, forced), part["utid"].to_numpy().astype(np.int64))
    return uncertainty.around("mean", count, value, error, confidence)


def _of_queue(table: pl.DataFrame, end_ns: int | None, confidence: float) -> list[Row]:
    """Rows of the system's run queue, weighted by time."""
    rows = runqueue.steps(table, end_ns).filter(pl.col("scope") == "system").sort("ts_ns")
    if rows.is_empty():
        return []
    begin = rows["ts_ns"].to_numpy()
    dur, length = (rows[k].to_numpy().astype(np.float64) for k in ("dur_ns", "length"))
    edges = edges_of(int(begin[0]), int(begin[-1] + dur[-1]), rows.height)
    known = integral(begin, dur, np.ones_like(length), edges)
    found = [_of_time("mean", rows.height, length, begin, dur, edges, known, confidence)]
    at, places = np.unique(length, return_inverse=True)
    cdf = np.cumsum(np.bincount(places, weights=dur)) / dur.sum()
    for name, q in _QUANTILES.items():
        found.append(_queue_quantile(name, q, at, cdf, (begin, dur, length), edges, known, confidence))
    if rows.height < blocks.MIN_N:
        few = f"n = {rows.height} is below {blocks.MIN_N}"
        found = [uncertainty.refused(f["statistic"], rows.height, f["value"], few) for f in found]
    found.append(uncertainty.refused("max", rows.height, float(length.max()), _NO_MAXIMUM))
    return [_row("system", None, "runqueue", f) for f in found]


def _of_time(
    name: str,
    n: int,
    height: NDArray[np.float64],
    begin: Ints,
    dur: NDArray[np.float64],
    edges: Ints,
    known: NDArray[np.float64],
    confidence: float,
) -> dict[str, Any]:
    """A time-weighted mean: a ratio of two integrals."""
    value = float(height @ dur / dur.sum())
    error = blocks.standard_error(blocks.of_ratio(integral(begin, dur, height, edges), known))
    return uncertainty.around(name, n, value, error, confidence)


def _queue_quantile(
    name: str,
    q: float,
    at: NDArray[np.float64],
    cdf: NDArray[np.float64],
    steps: tuple[Ints, NDArray[np.float64], NDArray[np.float64]],
    edges: Ints,
    known: NDArray[np.float64],
    confidence: float,
) -> dict[str, Any]:
    """A time-weighted quantile, from the share of time at or below it (Woodruff's inversion)."""
    begin, dur, length = steps
    value = float(at[np.searchsorted(cdf, q - 1e-12)])
    reach = 0.0
    for inside in (length < value, length <= value):
        share = integral(begin, dur, inside.astype(np.float64), edges)
        error = blocks.standard_error(blocks.of_ratio(share, known))
        half = error.half_width(confidence)
        if half is None:
            return uncertainty.refused(name, len(dur), value, error.reason or "")
        reach = max(reach, half)
    low, high = _core.shares_around(q, reach)
    if np.isclose(high, 1.0) or high > cdf[-1]:
        return uncertainty.refused(name, len(dur), value, "the interval reaches beyond the sample")
    lower, upper = (float(at[np.searchsorted(cdf, p - 1e-12)]) for p in (low, high))
    return uncertainty.given(name, len(dur), value, lower, upper, error)
