"""Gives every task of a trace a thread number that Perfetto can distinguish from all others.

Perfetto knows a thread by its number alone, 1 to 2^31-1, and takes a number for a new thread only after
it saw the old one end.  Linux numbers fit.  Where two tasks have one number at the same time (the
LWPs 1 of two illumos processes), or a number does not fit (a thread address), they get numbers from
`FIRST_SYNTHETIC` on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.perfetto.wire import Ints

FIRST_SYNTHETIC = 1_000_000_000
LARGEST = 2**31 - 1


@dataclass
class Threads:
    """Thread numbers of a trace.

    Attributes
    ----------
    tid
        Number to export, by utid.
    renumbered
        True when some task got a number that is not its own.
    table
        utid, tid (exported), pid, ppid (the process of its parent, as Perfetto knows it), comm (last),
        comm_first, start_ts_ns of every task that is not idle.
    """

    tid: Ints
    renumbered: bool
    table: pl.DataFrame


def _ambiguous(tasks: pl.DataFrame) -> pl.Series:
    """Which tasks share their number with another task that is alive at the same time."""
    order = tasks.sort("tid", "first_ts_ns", "utid")
    latest = pl.col("last_ts_ns").cum_max().over("tid").shift(1).over("tid")
    overlap = order.filter(pl.col("first_ts_ns") < latest).get_column("tid").unique()
    return tasks.get_column("tid").is_in(overlap.implode())


def number_threads(tasks: pl.DataFrame) -> Threads:
    """Choose the number that each task of the `tasks` table has in the exported file."""
    size = int(tasks.get_column("utid").max() or 0) + 1 if len(tasks) else 0  # type: ignore[arg-type]
    numbers: NDArray[np.int64] = np.zeros(size, np.int64)
    work = tasks.filter(~pl.col("is_idle"))
    columns = ("utid", "tid", "pid", "ppid", "comm", "comm_first", "start_ts_ns")
    if not len(work):
        return Threads(numbers, False, work.with_columns(ppid=pl.col("pid")).select(columns))
    fits = work.get_column("tid").is_between(1, FIRST_SYNTHETIC - 1)
    synthetic = _ambiguous(work) | ~fits
    tid = pl.when(synthetic).then(pl.col("utid").cast(pl.Int64) + FIRST_SYNTHETIC).otherwise(pl.col("tid"))
    pid = pl.when(pl.col("pid").is_between(1, LARGEST)).then(pl.col("pid"))
    table = work.with_columns(
        tid.alias("tid"), pid.alias("pid"), pl.col("comm", "comm_first").cast(pl.String)
    )
    # Perfetto makes a process of every task whose fork it sees.
    process = pl.coalesce("pid", pl.when(pl.col("start_ts_ns").is_not_null()).then("tid"))
    parents = table.select(parent_utid="utid", ppid=process)
    table = table.join(parents, on="parent_utid", how="left", maintain_order="left").select(columns)
    numbers[table.get_column("utid").to_numpy()] = table.get_column("tid").to_numpy()
    return Threads(numbers, bool(synthetic.any()), table)
