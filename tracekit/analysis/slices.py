"""Slices: how long tasks stayed on a CPU, and why they left it.

A slice is one uninterrupted on-CPU interval of a task. All functions take the `slices` table of a
trace and return a new DataFrame. Slices that began before the trace or end after it have no known
length, and neither have those within which records were lost: they are left out of lengths and
counted, never stretched or cut. `survival` uses those that are only open at the end by the method
of Kaplan and Meier.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.analysis import _common as c
from tracekit.analysis._inputs import tables
from tracekit.analysis.uncertainty import kaplan_meier

__all__ = ["cdf", "closed", "endings", "histogram", "log_edges", "quantum", "summary"]

_NEEDS = ("ts_ns", "dur_ns", "utid", "tid", "comm", "end_state", "involuntary", "flags")


def _prepared(slices: pl.DataFrame, by: str) -> pl.DataFrame:
    c.check_columns(slices, "slices", _NEEDS)
    return slices.with_columns(
        c.group_of(by),
        c.has(c.OPEN_START | c.OPEN_END).alias("_open"),
        (c.has(c.CROSSES_LOSS | c.INFERRED_END) & ~c.has(c.OPEN_START | c.OPEN_END)).alias("_unreliable"),
    )


@tables("slices")
def closed(slices: pl.DataFrame) -> pl.DataFrame:
    """Select the slices whose length is known.

    Parameters
    ----------
    slices
        The `slices` table.

    Returns
    -------
    pl.DataFrame
        The same columns, without slices that are open at either end of the trace, cross a loss of
        records, or have an inferred end.
    """
    c.check_columns(slices, "slices", ("flags",))
    return slices.filter(~c.has(c.OPEN_START | c.OPEN_END | c.CROSSES_LOSS | c.INFERRED_END))


def log_edges(lo_ns: int, hi_ns: int, bins_per_decade: int = 5) -> list[int]:
    """Return the edges of logarithmic bins that cover `lo_ns` to `hi_ns`.

    Parameters
    ----------
    lo_ns, hi_ns
        Smallest and largest value to cover, ns.
    bins_per_decade
        Bins a factor of ten; edges are 10**(k / bins_per_decade) rounded to whole ns, so edges of different
        histograms coincide. Below 1 ns there is one bin, from 0 to 1.

    Returns
    -------
    list[int]
        Ascending edges; the first is at most `lo_ns`, the last greater than `hi_ns`.
    """
    if bins_per_decade < 1:
        raise ValueError(f"bins_per_decade must be at least 1, not {bins_per_decade}")
    decades = int(np.ceil(np.log10(max(hi_ns, 1)))) + 1
    powers = 10.0 ** (np.arange(decades * bins_per_decade + 1) / bins_per_decade)
    edges = np.unique(np.concatenate([[0], np.rint(powers).astype(np.int64)]))
    first = int(np.searchsorted(edges, lo_ns, side="right")) - 1
    last = int(np.searchsorted(edges, hi_ns, side="right"))
    return [int(e) for e in edges[max(first, 0) : last + 1]]


def _bins(values: NDArray[np.int64], bins_per_decade: int) -> tuple[list[int], list[int]]:
    """Lower and upper edges: those of `log_edges` for all values above 0, behind a bin for those of 0.

    No time is near 0 on a logarithmic axis: what is shorter than the clock's step would put as many
    empty bins before all others as these have.
    """
    above = values[values > 0]
    edges = log_edges(int(above.min()), int(above.max()), bins_per_decade) if above.size else []
    zero = above.size < values.size
    return [0] * zero + edges[:-1], [1] * zero + edges[1:]


@tables("slices")
def histogram(
    slices: pl.DataFrame,
    by: str = "all",
    bins_per_decade: int = 5,
    value: str = "dur_ns",
    all_rows: bool = False,
) -> pl.DataFrame:
    """Count slices by length in logarithmic bins.

    Definition: n(k) = |{s : lo_k <= d(s) < hi_k}| over slices of known length; time(k) = the sum of
    their d(s). Source: each `dur_ns`, between two switches of one CPU.

    Parameters
    ----------
    slices
        The `slices` table, or any table with `utid`, `tid`, `comm` and the column `value`.
    by
        Grouping, see `tracekit.analysis.GROUPINGS`.
    bins_per_decade
        Bins a factor of ten.
    value
        Column to count by; another ns column (`run_delay_ns`, `response_ns`) works as well.
    all_rows
        Count every row with a value, also of open slices. For tables other than `slices`.

    Returns
    -------
    pl.DataFrame
        One row per group and bin, empty bins between the smallest value above 0 and the largest one
        included; values of 0 have a bin of their own, from 0 to 1, and none is between it and the next:
        `group` (String, null for tasks without a name), `lo_ns` (Int64, included), `hi_ns` (Int64,
        excluded), `n` (UInt32), `share` (Float64, of the group's n), `time_ns` (Int64, sum of
        values in the bin), `time_share` (Float64, of the group's time; null when that is 0).

    Notes
    -----
    How it can mislead: one long slice counts as much as one short slice although it holds the CPU a
    thousand times longer; compare `share` with `time_share`. In a short trace the longest slices
    are the ones most likely to be open at its end, and so to be missing here.

    Examples
    --------
    >>> import tracekit as tk
    >>> trace = tk.read("fixtures/demo/slice-default.dat")
    >>> tk.analysis.slices.histogram(trace)["n"].sum()
    8611
    """
    named = slices.with_columns(c.group_of(by))
    keep = named if all_rows else closed(named)
    df = keep.filter(pl.col(value).is_not_null()).select("group", pl.col(value).cast(pl.Int64).alias("v"))
    schema = {
        "group": pl.String,
        "lo_ns": pl.Int64,
        "hi_ns": pl.Int64,
        "n": pl.UInt32,
        "share": pl.Float64,
        "time_ns": pl.Int64,
        "time_share": pl.Float64,
    }
    if df.is_empty():
        return pl.DataFrame(schema=schema)
    values = df["v"].to_numpy()
    los, his = _bins(values, bins_per_decade)
    index = np.searchsorted(np.asarray(los), values, side="right") - 1
    counted = (
        df.with_columns(pl.Series("_bin", index, dtype=pl.Int64))
        .group_by("group", "_bin")
        .agg(pl.len().cast(pl.UInt32).alias("n"), pl.col("v").sum().alias("time_ns"))
    )
    bins = pl.DataFrame(
        {"_bin": range(len(los)), "lo_ns": los, "hi_ns": his},
        schema={"_bin": pl.Int64, "lo_ns": pl.Int64, "hi_ns": pl.Int64},
    )
    full = counted.select("group").unique().join(bins, how="cross")
    out = full.join(counted, on=["group", "_bin"], how="left", nulls_equal=True).with_columns(
        pl.col("n").fill_null(0), pl.col("time_ns").fill_null(0)
    )
    time = pl.col("time_ns").sum().over("group")
    return (
        out.with_columns(
            (pl.col("n") / pl.col("n").sum().over("group")).alias("share"),
            pl.when(time > 0).then(pl.col("time_ns") / time).alias("time_share"),
        )
        .sort("group", "lo_ns", nulls_last=True)
        .select(list(schema))
        .cast(pl.Schema(schema))
    )


@tables("slices")
def summary(slices: pl.DataFrame, by: str = "group", qs: Sequence[float] = c.QUANTILES) -> pl.DataFrame:
    """Summarise slices by group of tasks: counts, how they ended, mean, quantiles.

    Definitions: plain mean = sum of d(s) / n over slices of known length. Mean slice per
    involuntary switch = run time / involuntary switches, over all slices of the group (time of open
    slices included, because it was spent): what a program finds out about itself from `getrusage`,
    CPU time / `ru_nivcsw`. Quantile q = the smallest d with F(d) >= q. Source: `dur_ns`,
    `involuntary` and `flags` of `slices`.

    Parameters
    ----------
    slices
        The `slices` table.
    by
        Grouping, see `tracekit.analysis.GROUPINGS`.
    qs
        Quantiles between 0 and 1.

    Returns
    -------
    pl.DataFrame
        One row per group, by descending run time: `group` (String, null for tasks without a name),
        `nr_tasks` (UInt32), `n` (UInt32, slices of known length), `n_open` (UInt32, slices cut by
        an end of the trace), `n_unreliable` (UInt32, slices across a loss or with an inferred end),
        `run_ns` (Int64, time on CPUs, open slices included), `nr_involuntary` (UInt32),
        `nr_voluntary` (UInt32), `involuntary_share` (Float64, of all switches out; null when none
        is known), `mean_per_involuntary_ns` (Float64, run time / involuntary switches; null when
        there was none), `mean_ns` (Float64, plain mean; null when n = 0), `min_ns`, the quantiles
        `pNN_ns` and `max_ns` (Int64; null when n = 0, a quantile also when n (1 - q) < 1).

    Notes
    -----
    How it can mislead: the two means answer different questions. A task that is often preempted for
    20 us by a waker has many short slices and no less CPU time. On sources that do not distinguish yields
    from preemptions, yields count as involuntary.

    Examples
    --------
    >>> import tracekit as tk
    >>> trace = tk.read("fixtures/demo/slice-default.dat")
    >>> tk.analysis.slices.summary(trace, by="all").select("n", "nr_involuntary", "p50_ns").row(0)
    (8611, 3176, 31908)
    """
    df = _prepared(slices, by)
    known = pl.col("involuntary").count()
    invol = pl.col("involuntary").sum().cast(pl.UInt32)
    counts = df.group_by("group").agg(
        pl.col("utid").n_unique().cast(pl.UInt32).alias("nr_tasks"),
        pl.col("_open").sum().cast(pl.UInt32).alias("n_open"),
        pl.col("_unreliable").sum().cast(pl.UInt32).alias("n_unreliable"),
        pl.col("dur_ns").sum().alias("run_ns"),
        invol.alias("nr_involuntary"),
        (known - invol).cast(pl.UInt32).alias("nr_voluntary"),
    )
    nr = pl.col("nr_involuntary")
    switches = nr + pl.col("nr_voluntary")
    counts = counts.with_columns(
        pl.when(switches > 0).then(nr / switches).alias("involuntary_share"),
        pl.when(nr > 0).then(pl.col("run_ns") / nr).alias("mean_per_involuntary_ns"),
    )
    lengths = c.describe(df.filter(~pl.col("_open") & ~pl.col("_unreliable")), "dur_ns", ["group"], qs)
    names = [c.quantile_name(q) for q in qs]
    return (
        counts.join(lengths, on="group", how="left", nulls_equal=True)
        .with_columns(pl.col("n").fill_null(0))
        .select(
            *("group", "nr_tasks", "n", "n_open", "n_unreliable", "run_ns", "nr_involuntary", "nr_voluntary"),
            *("involuntary_share", "mean_per_involuntary_ns", "mean_ns", "min_ns", *names, "max_ns"),
        )
        .sort("run_ns", "group", descending=[True, False])
    )


@tables("slices")
def endings(slices: pl.DataFrame, by: str = "group") -> pl.DataFrame:
    """Split slices by how they ended: the state in which the task left its CPU.

    Definition: n(g, e) = slices of group g that ended in state e. Source: `end_state` and
    `involuntary`, from the previous task's state in a switch record.

    Parameters
    ----------
    slices, by
        As in `summary`.

    Returns
    -------
    pl.DataFrame
        One row per group and ending, most frequent first: `group` (String), `involuntary` (Boolean;
        null when the source does not say or the slice is open), `end_state` (String; null
        likewise), `n` (UInt32), `share` (Float64, of the group's slices), `run_ns` (Int64, time in
        these slices), `mean_ns` (Float64, their mean).

    Notes
    -----
    How it can mislead: a task that was preempted on its way to sleep counts as involuntary. Mean
    lengths of rows with `involuntary` null include slices cut by the ends of the trace.
    """
    df = _prepared(slices, by).with_columns(pl.col("end_state").cast(pl.String))
    out = df.group_by("group", "involuntary", "end_state").agg(
        pl.len().cast(pl.UInt32).alias("n"),
        pl.col("dur_ns").sum().alias("run_ns"),
        pl.col("dur_ns").mean().alias("mean_ns"),
    )
    share = (pl.col("n") / pl.col("n").sum().over("group")).alias("share")
    return (
        out.with_columns(share)
        .select("group", "involuntary", "end_state", "n", "share", "run_ns", "mean_ns")
        .sort("group", "n", "end_state", descending=[False, True, False], nulls_last=True)
    )


@tables("slices")
def cdf(slices: pl.DataFrame, by: str = "group") -> pl.DataFrame:
    """Give the distribution function of slice lengths, slices open at the end included as censored.

    Definition: Kaplan-Meier, F(t) = 1 - prod over lengths t_i <= t of (1 - d_i / r_i), with d_i
    slices that ended at length t_i and r_i slices at least that long. Slices open at the start are
    left out: how long they had already run is not known. Source: `dur_ns` and `flags`.

    Parameters
    ----------
    slices, by
        As in `summary`.

    Returns
    -------
    pl.DataFrame
        As `tracekit.analysis.uncertainty.kaplan_meier`, with `group`.

    Notes
    -----
    How it can mislead: it counts slices, not time; most CPU time may lie in the few longest.
    """
    return kaplan_meier(_at_risk(slices, by), "dur_ns", ["group"])


@tables("slices")
def quantum(slices: pl.DataFrame, by: str = "group") -> pl.DataFrame:
    """Give the distribution function of the time until a task is preempted.

    Definition: Kaplan-Meier as in `cdf`, where only an involuntary switch is an event; a task that
    blocks, yields or exits of its own will leaves the risk set (it would have run on for a time
    that is not known). So this is the length that the scheduler would let a slice have, not the
    length that the task used. Source: `dur_ns`, `involuntary` and `flags`.

    Parameters
    ----------
    slices, by
        As in `summary`.

    Returns
    -------
    pl.DataFrame
        As `tracekit.analysis.uncertainty.kaplan_meier`, with `group`. It ends below 1 when the
        longest slices were voluntary.

    Notes
    -----
    How it can mislead: it takes blocking as independent of the scheduler's decision; where tasks block just
    before their quantum ends, it does not hold.
    """
    df = _at_risk(slices, by)
    return kaplan_meier(
        df.with_columns(~pl.col("involuntary").fill_null(False).alias("censored")), "dur_ns", ["group"]
    )


def _at_risk(slices: pl.DataFrame, by: str) -> pl.DataFrame:
    df = _prepared(slices, by).filter(~c.has(c.OPEN_START) & ~pl.col("_unreliable"))
    return df.with_columns(c.has(c.OPEN_END).alias("censored"))


def __dir__() -> list[str]:
    """Only what is public."""
    return list(__all__)
