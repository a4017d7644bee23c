"""What the analyses share: flag bits, grouping, exact quantiles."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

#: Bits of `flags` in `slices`, `states` and `runqueue`, as in the schema.
OPEN_START = 1
OPEN_END = 2
CROSSES_LOSS = 4
INFERRED_END = 8
CLAMPED = 16
IRQ_WAKEUP = 32
ESTIMATED = 64
INFERRED_START = 128

#: Quantiles that tables give by default.
QUANTILES: tuple[float, ...] = (0.5, 0.9, 0.95, 0.99)

#: Ways to group tasks: `group` strips the number at the end of a name (`spin07` -> `spin`), `all`
#: makes one group.
GROUPINGS = ("group", "comm", "tid", "all")

#: States of a task that left its CPU and is ready to run.
READY = ("running", "runnable", "preempted", "yielding")


def check_columns(df: pl.DataFrame, table: str, columns: Sequence[str]) -> None:
    """Raise a `ValueError` that names the columns of `table` which `df` lacks.

    Parameters
    ----------
    df
        The table that was passed.
    table
        Its name in the schema.
    columns
        Columns that the analysis needs.
    """
    missing = [c for c in columns if c not in df.columns]
    if missing:
        raise ValueError(f"expected the `{table}` table, but it has no column {', '.join(missing)}")


def has(flag: int, column: str = "flags") -> pl.Expr:
    """Return an expression that is true where any bit of `flag` is set."""
    return (pl.col(column).cast(pl.UInt32) & flag) != 0


def group_of(by: str) -> pl.Expr:
    """Return the expression that gives the group of a row.

    Parameters
    ----------
    by
        One of `GROUPINGS`.

    Returns
    -------
    pl.Expr
        Column `group` (String), of a table with `utid`, `tid` and `comm` in time order. A task that
        changes its name, as most do when they start another program, has its last name throughout.
        For `comm` that name; for `group` the name without the number at its end and the separators
        before that number (`spin07` -> `spin`, `kworker/0:1` -> `kworker`), the whole name when
        nothing would be left; for `tid` `name:tid`, and `name:tid#2` for the second task of the table with
        this number, which was free again (see `with_group`); for `all` the word `all`. Null when the
        name is not known.
    """
    # Within `over`: once a task, not once a row.
    comm = pl.col("comm").drop_nulls().last().cast(pl.String)
    if by == "comm":
        out = comm.over("utid")
    elif by == "group":
        short = comm.str.replace(r"(?:[-_/:.#]*[0-9]+)+$", "")
        out = pl.when(short == "").then(comm).otherwise(short).over("utid")
    elif by == "tid":
        out = _thread(pl.col("utid").rank("dense").over("tid"))
    elif by == "all":
        out = pl.lit("all")
    else:
        raise ValueError(f"unknown grouping {by!r}: expected one of {', '.join(GROUPINGS)}")
    return out.alias("group")


def _thread(nth: pl.Expr) -> pl.Expr:
    """`name:tid` of a task, with which of the tasks of that number it is, where it is not the first."""
    name = pl.col("comm").drop_nulls().last().cast(pl.String).over("utid").fill_null("?")
    later = pl.when(nth > 1).then(pl.concat_str(pl.lit("#"), nth.cast(pl.String))).otherwise(pl.lit(""))
    return pl.concat_str(name, pl.lit(":"), pl.col("tid").cast(pl.String), later)


def with_group(rows: pl.DataFrame, by: str, tasks: pl.DataFrame) -> pl.DataFrame:
    """Add the group of each row, as `group_of`, of rows that not every task has.

    Parameters
    ----------
    rows
        A table with `utid`, `tid` and `comm` in time order, such as waits.
    by
        One of `GROUPINGS`.
    tasks
        A table with `utid` and `tid` of the tasks that come first, such as slices: which of several tasks
        with one number is the second does not depend on what `rows` has of them.

    Returns
    -------
    pl.DataFrame
        `rows` with `group` (String).
    """
    if by != "tid":
        return rows.with_columns(group_of(by))
    ran, all = (t.select("utid", "tid").unique().sort("utid") for t in (tasks, rows))
    nth = pl.int_range(1, pl.len() + 1).over("tid").alias("_nth")
    known = pl.concat([ran.cast(all.schema), all.join(ran, on=["utid", "tid"], how="anti")])
    joined = rows.join(known.with_columns(nth), on=["utid", "tid"], how="left", maintain_order="left")
    return joined.with_columns(_thread(pl.col("_nth")).alias("group")).drop("_nth")


def with_left_out(slices: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Sort slices by task, and say where slices of the task are missing before one.

    Parameters
    ----------
    slices
        The `slices` table, perhaps filtered.
    columns
        Columns that are wanted.

    Returns
    -------
    pl.DataFrame
        These columns, by `utid` and `ts_ns`, and `_left_out` (Boolean). A slice says on which CPU its task
        ran last (`prev_cpu`); where the row before is of another, or there is none, `Trace.filter` took
        slices away. False for tables without `cpu` and `prev_cpu`.
    """
    out = slices.sort("utid", "ts_ns", maintain_order=True)
    if {"cpu", "prev_cpu"} <= set(slices.columns):
        gap = pl.col("prev_cpu").ne_missing(pl.col("cpu").shift(1).over("utid"))
        gap &= pl.col("prev_cpu").is_not_null()
    else:
        gap = pl.lit(False)
    return out.select(*columns, gap.alias("_left_out"))


def quantile_name(q: float, unit: str = "ns") -> str:
    """Return the column name of quantile `q`: 0.5 -> `p50_ns`, 0.999 -> `p99_9_ns`."""
    return f"p{100 * q:g}_{unit}".replace(".", "_")


def check_quantiles(qs: Sequence[float]) -> None:
    """Raise a `ValueError` unless every quantile lies between 0 and 1."""
    for q in qs:
        if not 0 < q < 1:
            raise ValueError(f"qs = {tuple(qs)}: expected quantiles between 0 and 1, such as 0.95; found {q}")


def enough_for(q: float, n: int) -> bool:
    """Tell whether a sample of `n` has at least one value beyond its quantile `q`.

    Otherwise the quantile is just the maximum.
    """
    return n * (1 - q) >= 1 - 1e-9


def rank_of(q: float, n: int) -> int:
    """Return the 0-based rank of quantile `q` in a sorted sample of `n`.

    It is the rank of the smallest value x with F(x) >= q.
    """
    return max(0, math.ceil(n * q - 1e-9) - 1)


def describe(
    df: pl.DataFrame, value: str, keys: Sequence[str], qs: Sequence[float] = QUANTILES
) -> pl.DataFrame:
    """Describe a column exactly, by group.

    Parameters
    ----------
    df
        Samples; nulls in `value` are left out.
    value
        Name of an integer column, ns.
    keys
        Columns to group by.
    qs
        Quantiles between 0 and 1.

    Returns
    -------
    pl.DataFrame
        One row per group, by descending sum: the keys, `n` (UInt32, samples), `sum_ns` (Int64),
        `mean_ns` (Float64), `min_ns` (Int64), one `pNN_ns` (Int64) a quantile, `max_ns` (Int64). A
        quantile is an observed value: the smallest x with F(x) >= q. It is null when n (1 - q) < 1,
        where it would only repeat the maximum.
    """
    check_quantiles(qs)
    sorted_values = pl.col(value).drop_nulls().sort()
    out = (
        df.filter(pl.col(value).is_not_null())
        .group_by(list(keys))
        .agg(
            pl.col(value).count().cast(pl.UInt32).alias("n"),
            pl.col(value).cast(pl.Int64).sum().alias("sum_ns"),
            pl.col(value).mean().alias("mean_ns"),
            pl.col(value).min().alias("min_ns"),
            pl.col(value).max().alias("max_ns"),
            sorted_values.alias("_sorted"),
        )
    )
    n = pl.col("n").cast(pl.Float64)
    for q in qs:
        rank = (n * q - 1e-9).ceil().clip(lower_bound=1).cast(pl.Int64) - 1
        exact = pl.col("_sorted").list.get(rank, null_on_oob=True)
        out = out.with_columns(pl.when(n * (1 - q) >= 1 - 1e-9).then(exact).alias(quantile_name(q)))
    names = [*keys, "n", "sum_ns", "mean_ns", "min_ns", *[quantile_name(q) for q in qs], "max_ns"]
    return out.select(names).sort(["sum_ns", *keys], descending=[True] + [False] * len(keys))


def open_waits(states: pl.DataFrame) -> pl.DataFrame:
    """List the waits for a CPU that were still going on when the trace ended.

    Parameters
    ----------
    states
        The `states` table.

    Returns
    -------
    pl.DataFrame
        One row per task that was ready to run and not running at the end, and of which it is known
        since when: `utid`, `tid`, `comm` (String), `since_ns` and `until_ns` (Int64), `before`
        (String, state of the task before it became ready; null when nothing was known of it),
        `state` (String, how it became ready), `unreliable` (Boolean, records were lost within it). A
        wait during which the task moved to another queue is one wait.
    """
    check_columns(states, "states", ("ts_ns", "dur_ns", "utid", "tid", "comm", "state", "flags"))
    ready = pl.col("state").cast(pl.String).is_in(["runnable", "preempted", "yielding"])
    waiting = states.lazy().filter(has(OPEN_END)).filter(ready).select("utid").unique().collect()
    # The rows of few tasks are looked at, and words become strings when few rows are left.
    rows = (
        states.lazy()
        .filter(pl.col("utid").is_in(waiting["utid"].implode()))
        .select("utid", "tid", "ts_ns", "dur_ns", "flags", "comm", "state")
        .collect()
        .sort("utid", "ts_ns", maintain_order=True)
    )
    rows = rows.with_columns(ready.alias("_ready"), pl.col("state").shift(1).over("utid").alias("before"))
    begins = pl.col("_ready").ne_missing(pl.col("_ready").shift(1).over("utid"))
    return (
        rows.with_columns(begins.cum_sum().alias("_wait"))
        .filter("_ready")
        .group_by("_wait", maintain_order=True)
        .agg(
            *(pl.col(k).first() for k in ("utid", "tid")),
            *(pl.col(k).first().cast(pl.String) for k in ("comm", "before", "state")),
            pl.col("ts_ns").first().alias("since_ns"),
            (pl.col("ts_ns") + pl.col("dur_ns")).last().alias("until_ns"),
            has(OPEN_START).first().alias("_from_start"),
            has(OPEN_END).last().alias("_to_end"),
            has(CROSSES_LOSS).any().alias("unreliable"),
        )
        .filter(pl.col("_to_end") & ~pl.col("_from_start"))
        .select("utid", "tid", "comm", "since_ns", "until_ns", "before", "state", "unreliable")
    )
