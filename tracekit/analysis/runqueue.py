"""Run-queue length: how many tasks are runnable, weighted by time or seen at each switch.

The length of a CPU's queue counts the task that runs on it (0 or 1; idle does not count) and the
tasks that are runnable and wait for it. `count="waiting"` leaves the running task out.

The `runqueue` table is a step function: each row holds until the next row of the same CPU. Rows
without a CPU count tasks that are runnable on a CPU that the source does not name: they belong to
some queue, so a per-CPU figure is a lower bound as long as `unplaced` is not zero. The system's
length includes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import polars as pl

from tracekit import _core
from tracekit._lazy import later
from tracekit.analysis import _common as c
from tracekit.analysis._inputs import tables
from tracekit.analysis.uncertainty import LEVEL

if TYPE_CHECKING:
    import numpy as np
else:
    np = later("numpy")

Count = Literal["all", "waiting"]

__all__ = ["at_switch", "distribution", "over_time", "steps", "summary"]

_NEEDS = ("ts_ns", "cpu", "nr_running", "nr_waiting", "flags")


def _length(count: Count) -> pl.Expr:
    if count == "all":
        return (pl.col("nr_running") + pl.col("nr_waiting")).cast(pl.Int32)
    if count == "waiting":
        return pl.col("nr_waiting").cast(pl.Int32)
    raise ValueError(f"unknown count {count!r}: expected 'all' or 'waiting'")


def _stop(runqueue: pl.DataFrame, end_ns: int | None) -> int:
    last = runqueue["ts_ns"].max()
    last = last if isinstance(last, int) else 0
    return last if end_ns is None else max(end_ns, last)


@tables("runqueue", "end_ns")
def steps(runqueue: pl.DataFrame, end_ns: int | None = None, count: Count = "all") -> pl.DataFrame:
    """Give the length of every CPU's queue, of the unplaced tasks and of the whole system as intervals.

    Definition: L_cpu(t) = tasks running on the CPU or runnable on its queue at t; L_system(t) = the
    sum of all L_cpu(t) and of the unplaced tasks. Source: rows of `runqueue`.

    Parameters
    ----------
    runqueue
        The `runqueue` table.
    end_ns
        End of the trace, where the last rows stop to hold; by default the time of the last row.
    count
        `all`, or `waiting` to leave the running tasks out.

    Returns
    -------
    pl.DataFrame
        By scope, CPU and time, without intervals of length 0 and without those in which nobody
        knows what ran on the CPU (for the system: on one of its CPUs), as after a loss: `scope`
        (String: `cpu`, `unplaced`, `system`), `cpu` (Int32; null unless scope is `cpu`), `ts_ns`
        (Int64), `dur_ns` (Int64), `length` (Int32), `estimated` (Boolean, true where the CPU of a
        counted task is a guess).

    Notes
    -----
    How it can mislead: a CPU counts from its first row on; before that nothing is known of it. On
    Linux a task is put on a queue by the target CPU of its wakeup, and moves between queues that no
    record states are not seen.
    """
    return _steps(runqueue, end_ns, count).filter(~pl.col("unknown")).drop("unknown")


def _steps(runqueue: pl.DataFrame, end_ns: int | None, count: Count) -> pl.DataFrame:
    """Return the intervals of `steps`, and those in which nobody knows what ran (`unknown`)."""
    c.check_columns(runqueue, "runqueue", _NEEDS)
    stop = _stop(runqueue, end_ns)
    rows = runqueue.select(
        "ts_ns",
        pl.col("cpu").cast(pl.Int32),
        _length(count).alias("length"),
        c.has(c.ESTIMATED).alias("estimated"),
        c.has(c.CROSSES_LOSS).alias("unknown"),
    ).sort("cpu", "ts_ns", maintain_order=True, nulls_last=True)
    scope = pl.when(pl.col("cpu").is_null()).then(pl.lit("unplaced")).otherwise(pl.lit("cpu"))
    none = pl.lit(None, dtype=pl.Int32)
    parts = [
        _lasting(rows, stop).with_columns(scope.alias("scope")),
        _lasting(_sum(rows), stop).with_columns(pl.lit("system").alias("scope"), none.alias("cpu")),
    ]
    names = ["scope", "cpu", "ts_ns", "dur_ns", "length", "estimated", "unknown"]
    return pl.concat([part.select(names) for part in parts])


def _same_cpu(by: int) -> pl.Expr:
    """Whether the row `by` rows before (after, when negative) is of the same CPU; rows are sorted by CPU."""
    return (
        pl.col("cpu").eq_missing(pl.col("cpu").shift(by))
        & (pl.int_range(pl.len()) >= by)
        & (pl.int_range(pl.len()) < pl.len() + min(by, 0))
    )


def _sum(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the step function of the sum over CPUs from rows sorted by CPU and time."""

    def change(column: str) -> pl.Expr:
        value = pl.col(column).cast(pl.Int32)
        return value - pl.when(_same_cpu(1)).then(value.shift(1)).otherwise(0)

    if rows["cpu"].n_unique() == 1:
        return rows.with_columns(pl.lit(0, dtype=pl.Int32).alias("cpu"))
    return (
        rows.select("ts_ns", *(change(column) for column in ("length", "estimated", "unknown")))
        .sort("ts_ns")
        .with_columns(pl.col("length").cum_sum().cast(pl.Int32), pl.col("estimated", "unknown").cum_sum() > 0)
        .filter(pl.col("ts_ns").ne_missing(pl.col("ts_ns").shift(-1)))
        .with_columns(pl.lit(0, dtype=pl.Int32).alias("cpu"))
    )


def _lasting(rows: pl.DataFrame, stop: int) -> pl.DataFrame:
    """Add `dur_ns` to rows sorted by CPU and time, and drop those that are replaced at once."""
    until = pl.when(_same_cpu(-1)).then(pl.col("ts_ns").shift(-1)).otherwise(stop)
    return rows.with_columns((until - pl.col("ts_ns")).alias("dur_ns")).filter(pl.col("dur_ns") > 0)


@tables("runqueue", "end_ns")
def distribution(runqueue: pl.DataFrame, end_ns: int | None = None, count: Count = "all") -> pl.DataFrame:
    """Give the time-weighted distribution of run-queue lengths.

    Definition: P(L = n) = time with L(t) = n / time observed; exceedance P(L > n) = 1 - P(L <= n).
    Source: `steps`.

    Parameters
    ----------
    runqueue
        The `runqueue` table.
    end_ns
        End of the trace; by default the time of the last row.
    count
        `all`, or `waiting` to leave the running tasks out.

    Returns
    -------
    pl.DataFrame
        One row per scope, CPU and length that occurs: `scope` (String: `cpu`, `unplaced`,
        `system`), `cpu` (Int32; null unless scope is `cpu`), `length` (Int32), `time_ns` (Int64),
        `share` (Float64), `exceedance` (Float64, P(L > length)), `share_low`, `share_high`
        (Float64, 90 % interval of the share, resampled by blocks of time
        (`tracekit.analysis.blocks`), on the logit scale; null where the trace is too short for
        one).

    Notes
    -----
    How it can mislead: the share of *time* that a queue is long is not the share of wakeups that
    meet a long queue; `at_switch` counts by event. As long as `unplaced` has lengths above 0, those
    of single CPUs are lower bounds.

    Examples
    --------
    >>> import tracekit as tk
    >>> trace = tk.read("fixtures/demo/slice-default.dat")
    >>> tk.analysis.runqueue.distribution(trace).filter(scope="system")["length"].max()
    20
    """
    intervals = steps(runqueue, end_ns, count)
    found = _shares(intervals)
    parts = intervals.partition_by("scope", "cpu", as_dict=True, maintain_order=True)
    ends: list[tuple[float | None, float | None]] = []
    for key, rows in found.group_by("scope", "cpu", maintain_order=True):
        ends += _around(parts[key], rows)
    low, high = (
        pl.Series(n, [e[i] for e in ends], pl.Float64) for i, n in ((0, "share_low"), (1, "share_high"))
    )
    return found.with_columns(low, high)


def _around(intervals: pl.DataFrame, shares: pl.DataFrame) -> list[tuple[float | None, float | None]]:
    """Intervals of the shares of time of one queue; none where it has fewer steps than a sample must have."""
    rows = intervals.sort("ts_ns").select(pl.col("ts_ns", "dur_ns", "length").cast(pl.Int64))
    begin, dur, length = (column.to_numpy() for column in rows)
    found = _core.share_intervals(begin, dur, length, shares["length"].to_list(), LEVEL)
    return [bounds or (None, None) for bounds in found]


def _shares(intervals: pl.DataFrame) -> pl.DataFrame:
    """Return the result of `distribution` from that of `steps`."""
    time = (
        intervals.group_by("scope", "cpu", "length")
        .agg(pl.col("dur_ns").sum().alias("time_ns"))
        .sort("scope", "cpu", "length", nulls_last=True)
    )
    total = pl.col("time_ns").sum().over("scope", "cpu")
    return time.with_columns(
        (pl.col("time_ns") / total).alias("share"),
        ((total - pl.col("time_ns").cum_sum().over("scope", "cpu")) / total).alias("exceedance"),
    )


@tables("runqueue", "end_ns")
def summary(runqueue: pl.DataFrame, end_ns: int | None = None, count: Count = "all") -> pl.DataFrame:
    """Summarise run-queue lengths: mean, quantiles and maximum over time.

    Definition: mean = integral of L(t) / time observed; quantile q = the smallest n with P(L <= n) >=
    q; the row `unplaced` is the number of runnable tasks whose CPU is not known. Source: `steps`.

    Parameters
    ----------
    runqueue, end_ns, count
        As in `distribution`.

    Returns
    -------
    pl.DataFrame
        One row for the system, one per CPU, one for unplaced tasks when there are any: `scope`,
        `cpu` as in `distribution`; `span_ns` (Int64, time observed), `mean` (Float64), `p50`,
        `p95`, `p99`, `max` (Int32), `empty_share` (Float64, share of time with length 0),
        `estimated_share` (Float64, share of time in which the CPU of a waiting task is a guess, since
        no migration was recorded so far),
        `mean_is_bound` (Boolean, true for CPUs when unplaced tasks exist).

    Notes
    -----
    How it can mislead: a mean of 1 may be one task that always runs or ten that come together for a
    tenth of the time; look at the distribution.

    Examples
    --------
    >>> import tracekit as tk
    >>> trace = tk.read("fixtures/demo/slice-default.dat")
    >>> tk.analysis.runqueue.summary(trace).select("scope", "p50", "max").row(0)
    ('system', 16, 20)
    """
    rows = steps(runqueue, end_ns, count)
    keys = ["scope", "cpu"]
    weights = rows.group_by(*keys).agg(
        pl.col("dur_ns").sum().alias("span_ns"),
        (pl.col("length").cast(pl.Int64) * pl.col("dur_ns")).sum().alias("_area"),
        pl.col("length").max().alias("max"),
        pl.col("dur_ns").filter(pl.col("length") == 0).sum().alias("_empty"),
        pl.col("dur_ns").filter(pl.col("estimated")).sum().alias("_est"),
    )
    at = [
        pl.col("length").filter(1 - pl.col("exceedance") >= q - 1e-12).min().alias(name)
        for q, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
    ]
    out = weights.join(_shares(rows).group_by(*keys).agg(at), on=keys, how="left", nulls_equal=True)
    span = pl.col("span_ns")
    unplaced = bool(rows.filter((pl.col("scope") == "unplaced") & (pl.col("length") > 0)).height)
    order = pl.col("scope").replace_strict({"system": 0, "cpu": 1, "unplaced": 2}, return_dtype=pl.Int8)
    return (
        out.with_columns(
            (pl.col("_area") / span).alias("mean"),
            (pl.col("_empty") / span).alias("empty_share"),
            (pl.col("_est") / span).alias("estimated_share"),
            ((pl.col("scope") == "cpu") & unplaced).alias("mean_is_bound"),
        )
        .sort(order, "cpu")
        .select(
            *("scope", "cpu", "span_ns", "mean", "p50", "p95", "p99", "max"),
            *("empty_share", "estimated_share", "mean_is_bound"),
        )
    )


@tables("runqueue", "end_ns")
def over_time(
    runqueue: pl.DataFrame, end_ns: int | None = None, bins: int = 600, count: Count = "all"
) -> pl.DataFrame:
    """Give the length of the system's queue over time, in equal intervals.

    Definition: mean = integral of L_system(t) over the time of the interval that was observed / that
    time; max = the largest L_system(t) in it. Source: `steps`.

    Parameters
    ----------
    runqueue
        The `runqueue` table.
    end_ns
        End of the trace; by default the time of the last row.
    bins
        Intervals from the first row to the end.
    count
        `all`, or `waiting` to leave the running tasks out.

    Returns
    -------
    pl.DataFrame
        One row per interval: `ts_ns` (Int64, its start), `dur_ns` (Int64), `mean` (Float64), `min`
        and `max` (Int32); these are null where nobody knows in all of the interval what ran on some
        CPU. Fewer than `bins` rows when the trace lasts fewer ns.

    Notes
    -----
    How it can mislead: the mean of an interval hides peaks shorter than it; look at `max`. Where
    records were lost, an interval stands for the part of it of which every CPU is known.
    """
    rows = _steps(runqueue, end_ns, count).filter(pl.col("scope") == "system")
    schema = {"ts_ns": pl.Int64, "dur_ns": pl.Int64, "mean": pl.Float64, "min": pl.Int32, "max": pl.Int32}
    if rows.is_empty():
        return pl.DataFrame(schema=schema)
    start = rows["ts_ns"].to_numpy()
    length = rows["length"].to_numpy().astype(np.int64)
    stop = int(start[-1]) + int(rows["dur_ns"][-1])
    # Times since 1970 in ns are beyond what a float tells apart.
    edges = start[0] + np.unique(np.linspace(0, stop - start[0], max(1, bins) + 1).astype(np.int64))
    known = ~rows["unknown"].to_numpy()
    dur = rows["dur_ns"].to_numpy() * known
    # The integral of a step function is piecewise linear, so interpolating it between steps is exact.
    places = np.append(start, stop) - start[0]
    area, observed = (
        np.diff(np.interp(edges - start[0], places, np.concatenate([[0], np.cumsum(part)])))
        for part in (length * dur, dur)
    )
    # Steps that begin in an interval, and the one in force at its start.
    first = np.searchsorted(start, edges[:-1], side="right") - 1
    after = np.searchsorted(start, edges[1:], side="left")
    pairs = np.stack([first, after], axis=1).ravel()

    def extreme(of: np.ufunc, beyond: int) -> np.ndarray:
        """Of the known lengths; `beyond` is none."""
        return of.reduceat(np.append(np.where(known, length, beyond), beyond), pairs)[::2]

    seen = observed > 0
    return pl.DataFrame(
        {
            "ts_ns": edges[:-1],
            "dur_ns": np.diff(edges),
            "mean": area / np.where(seen, observed, 1),
            "min": extreme(np.minimum, np.iinfo(np.int32).max),
            "max": extreme(np.maximum, -1),
        },
        schema=schema,
    ).with_columns(pl.when(pl.Series(seen)).then(pl.col(n)).alias(n) for n in ("mean", "min", "max"))


@tables("runqueue", "events")
def at_switch(runqueue: pl.DataFrame, events: pl.DataFrame, count: Count = "all") -> pl.DataFrame:
    """Give the distribution of the queue length that the scheduler sees when it switches.

    Definition: P(L = n) = switches with L = n / switches, where L is the length right after the
    switch: a task that went to sleep has left, the chosen one counts. This is the number of tasks
    that a scheduler with a single list, as Linux 2.0, looks at to make that choice. `system` counts
    the queues of all CPUs and the unplaced tasks. Source: records of kind `switch` in `events`, and
    `runqueue`.

    Parameters
    ----------
    runqueue
        The `runqueue` table.
    events
        The `events` table, or any table with `ts_ns`, `cpu` and `kind`.
    count
        `all`, or `waiting` to leave the running tasks out.

    Returns
    -------
    pl.DataFrame
        One row per scope, CPU and length that occurs: `scope` (String: `cpu`, `system`), `cpu`
        (Int32; null for `system`), `length` (Int32), `n` (UInt32, switches), `share` (Float64),
        `exceedance` (Float64, P(L > length)). Switches before the first row of a queue are left
        out.

    Notes
    -----
    How it can mislead: busy moments have more switches, so these lengths are larger than the
    time-weighted ones. A switch to idle counts with length 0.
    """
    c.check_columns(events, "events", ("ts_ns", "cpu", "kind"))
    switches = events.filter(pl.col("kind").cast(pl.String) == "switch").select(
        "ts_ns", pl.col("cpu").cast(pl.Int32)
    )
    # The whole step function, also where a row holds for no time: the row in force is the last one
    # at that instant.
    rows = runqueue.select(
        "ts_ns",
        pl.col("cpu").cast(pl.Int32),
        _length(count).alias("length"),
        pl.lit(False).alias("estimated"),
        pl.lit(False).alias("unknown"),
    ).sort("cpu", "ts_ns", maintain_order=True, nulls_last=True)
    system = _sum(rows).select("ts_ns", "length")
    switches = switches.sort("ts_ns")
    placed = (
        rows.filter(pl.col("cpu").is_not_null())
        .select("ts_ns", "cpu", "length")
        .sort("ts_ns", maintain_order=True)
    )
    per_cpu = switches.filter(pl.col("cpu").is_not_null()).join_asof(
        placed, on="ts_ns", by="cpu", strategy="backward", check_sortedness=False
    )
    whole = switches.join_asof(system, on="ts_ns", strategy="backward")
    names = ["scope", "cpu", "length"]
    seen = pl.concat(
        [
            per_cpu.with_columns(pl.lit("cpu").alias("scope")).select(names),
            whole.with_columns(
                pl.lit("system").alias("scope"), pl.lit(None, dtype=pl.Int32).alias("cpu")
            ).select(names),
        ]
    ).filter(pl.col("length").is_not_null())
    out = (
        seen.group_by(names)
        .agg(pl.len().cast(pl.UInt32).alias("n"))
        .sort("scope", "cpu", "length", nulls_last=True)
    )
    total = pl.col("n").sum().over("scope", "cpu")
    return out.with_columns(
        (pl.col("n") / total).alias("share"),
        ((total - pl.col("n").cum_sum().over("scope", "cpu")) / total).alias("exceedance"),
    )


def __dir__() -> list[str]:
    """Only what is public."""
    return list(__all__)
