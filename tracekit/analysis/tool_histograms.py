"""Histograms that a tool printed (DTrace aggregations), as the plots take them.

The table `histograms` of a trace holds the buckets as they were printed, of whatever the script
counted. These functions give them the columns of `slices.histogram` and `runqueue.distribution`.
"""

from __future__ import annotations

import polars as pl

from tracekit.analysis import _common as c

#: Units of the bounds that scripts print, in ns.
UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}

_COLUMNS = ("title", "key", "lo", "hi", "count")


def _chosen(histograms: pl.DataFrame, title: str | None) -> pl.DataFrame:
    c.check_columns(histograms, "histograms", _COLUMNS)
    df = histograms.with_columns(pl.col("title", "key").cast(pl.String))
    return df if title is None else df.filter(pl.col("title") == title)


def times(histograms: pl.DataFrame, unit: str = "ns", title: str | None = None) -> pl.DataFrame:
    """Give tool histograms of times the columns of `slices.histogram`.

    Definition: n(k) = the count printed for bucket k; share(k) = n(k) / sum of n over the group.
    Source: the table `histograms`; nobody but the script knows what was counted.

    Parameters
    ----------
    histograms
        The `histograms` table.
    unit
        Unit of the tool's bounds: `ns`, `us`, `ms` or `s`. DTrace does not print it.
    title
        Only histograms of this title.

    Returns
    -------
    pl.DataFrame
        One row per group and bucket, by lower bound, without empty buckets at either end: `group`
        (String, the key; null for a single histogram), `lo_ns` (Int64, included; 0 where the bucket
        has no lower bound), `hi_ns` (Int64, excluded; as wide as the bucket before where it has no
        upper bound), `n` (UInt32), `share` (Float64, of the group's n), `time_ns` (Int64) and
        `time_share` (Float64), both null: counts do not give sums.

    Notes
    -----
    How it can mislead: buckets of `quantize` double from one to the next, so half of their width is
    uncertainty. The width of an open bucket is a guess for drawing. Negative values, which no time
    has, are left out.
    """
    if unit not in UNITS:
        raise ValueError(f"unit must be one of {', '.join(UNITS)}, not {unit!r}")
    scale = UNITS[unit]
    df = _chosen(histograms, title).filter(pl.col("hi").is_null() | (pl.col("hi") > 0))
    df = df.with_columns(pl.max_horizontal(pl.col("lo").fill_null(0), 0).alias("lo")).sort("key", "lo")
    width = (pl.col("hi") - pl.col("lo")).shift(1).over("key")
    df = df.with_columns(pl.coalesce("hi", pl.col("lo") + width, pl.col("lo") + 1).alias("hi"))
    some = pl.col("count") > 0
    inner = some.cum_max().over("key") & some.cum_max(reverse=True).over("key")
    df = df.filter(inner)
    return df.select(
        pl.col("key").alias("group"),
        (pl.col("lo") * scale).alias("lo_ns"),
        (pl.col("hi") * scale).alias("hi_ns"),
        pl.col("count").cast(pl.UInt32).alias("n"),
        (pl.col("count") / pl.col("count").sum().over("key")).alias("share"),
        pl.lit(None, pl.Int64).alias("time_ns"),
        pl.lit(None, pl.Float64).alias("time_share"),
    )


def lengths(histograms: pl.DataFrame, title: str | None = None) -> pl.DataFrame:
    """Give tool histograms of queue lengths the columns of `runqueue.distribution`.

    Definition: share(L) = count(L) / sum of counts; exceedance(L) = the sum of share(l) over l > L.
    The rows of scope `system` add up the samples of all CPUs: the length of the queue of one CPU,
    drawn at random. Source: the table `histograms`, with a number in the key for the CPU (`CPU 5`,
    `5`).

    Parameters
    ----------
    histograms
        The `histograms` table of a script that samples queue lengths in steps of one
        (DTraceToolkit's `dispqlen.d`).
    title
        Only histograms of this title.

    Returns
    -------
    pl.DataFrame
        One row per scope, CPU and length that occurs: `scope` (String: `cpu`, `system`), `cpu`
        (Int32; null for `system`), `length` (Int32), `n` (UInt32, samples), `share` (Float64),
        `exceedance` (Float64). Buckets without a lower bound are left out; those without an upper
        one count with their lower bound.

    Notes
    -----
    How it can mislead: these are samples, at the script's rate, not time. Unlike in
    `runqueue.distribution`, `system` is not the length of all queues together, which a script that
    looks at one CPU at a time cannot know.
    """
    df = _chosen(histograms, title).filter(pl.col("lo").is_not_null() & (pl.col("count") > 0))
    wide = df.filter(pl.col("hi") - pl.col("lo") != 1)
    if wide.height:
        raise ValueError(f"lengths need buckets of width 1, found [{wide['lo'][0]}, {wide['hi'][0]})")
    df = df.select(
        pl.col("key").str.extract(r"(\d+)\s*$").cast(pl.Int32).alias("cpu"),
        pl.col("lo").cast(pl.Int32).alias("length"),
        pl.col("count").alias("n"),
    )
    per_cpu = df.filter(pl.col("cpu").is_not_null()).group_by("cpu", "length").agg(pl.col("n").sum())
    system = df.group_by("length").agg(pl.col("n").sum()).with_columns(pl.lit(None, pl.Int32).alias("cpu"))
    both = pl.concat(
        [
            per_cpu.select(pl.lit("cpu").alias("scope"), "cpu", "length", "n"),
            system.select(pl.lit("system").alias("scope"), "cpu", "length", "n"),
        ]
    ).sort("scope", "cpu", "length")
    share = pl.col("n") / pl.col("n").sum().over("scope", "cpu")
    return both.with_columns(share.alias("share")).with_columns(
        pl.col("n").cast(pl.UInt32),
        (1 - pl.col("share").cum_sum().over("scope", "cpu")).clip(lower_bound=0).alias("exceedance"),
    )
