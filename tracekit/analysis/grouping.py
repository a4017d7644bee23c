"""Groups of tasks beyond their names.

Processes, control groups, priorities, policies, and names that are not related.
"""

from __future__ import annotations

from typing import Literal

import polars as pl

__all__ = ["BY", "By", "labels", "unrelated"]

By = Literal["group", "comm", "tid", "all", "process", "cgroup", "prio", "policy"]
#: Ways to group the tasks of a trace.
BY: tuple[By, ...] = ("group", "comm", "tid", "all", "process", "cgroup", "prio", "policy")

#: First priority of the fair classes on Linux's scale, and of the real-time classes (deadline tasks have -1).
_FAIR, _REAL_TIME = 100, 0


def labels(tasks: pl.DataFrame, by: By, machine: pl.DataFrame | None = None) -> pl.DataFrame:
    """Name the group of each task.

    Parameters
    ----------
    tasks
        The `tasks` table.
    by
        ``process``: name of the process's first thread and its number; ``prio``: the priority, or
        its range where it changed; ``cgroup``, ``policy``: what the machine beside the trace says.
        Without one, ``policy`` is the scheduling class, which the priority gives on Linux.
    machine
        Table of tasks with `tid`, `cgroup` and `policy` (`Machine.tasks`).

    Returns
    -------
    pl.DataFrame
        `utid` (UInt32), `label` (String; null where the trace does not say).

    Raises
    ------
    ValueError
        When the trace lacks what it takes.
    """
    if by == "process":
        if tasks["pid"].null_count() == tasks.height:
            raise ValueError(
                "cannot group by process: this source records no process numbers; --by tid works"
            )
        leads = tasks.filter(pl.col("tid") == pl.col("pid")).select(
            "pid", pl.col("comm").cast(pl.String).alias("_lead")
        )
        led = tasks.join(leads.unique("pid"), on="pid", how="left")
        name = pl.coalesce("_lead", pl.col("comm").cast(pl.String), pl.lit("?"))
        label = pl.when(pl.col("pid").is_not_null()).then(
            pl.concat_str(name, pl.lit(":"), pl.col("pid").cast(pl.String))
        )
        return led.select("utid", label.alias("label"))
    if by == "prio":
        low, high = pl.col("prio_min").cast(pl.String), pl.col("prio_max").cast(pl.String)
        one = pl.concat_str(pl.lit("prio "), low)
        both = pl.concat_str(pl.lit("prio "), low, pl.lit(" to "), high)
        return tasks.select("utid", pl.when(low == high).then(one).otherwise(both).alias("label"))
    if machine is not None and by in machine.columns and machine[by].null_count() < machine.height:
        known = machine.select("tid", pl.col(by).cast(pl.String).alias("label")).unique("tid", keep="last")
        return tasks.join(known, on="tid", how="left").select("utid", "label")
    if by == "policy":
        prio = pl.col("prio_min")
        named = (
            pl.when(prio < _REAL_TIME)
            .then(pl.lit("deadline"))
            .when(prio < _FAIR)
            .then(pl.lit("real time (fifo or rr)"))
            .when(prio.is_not_null())
            .then(pl.lit("fair (other, batch or idle)"))
        )
        return tasks.select("utid", named.alias("label"))
    raise ValueError(
        f"cannot group by {by}: no trace records it; capture with a script of `tracekit recipes`, which writes it to a "
        "machine file beside the trace"
    )


def unrelated(tasks: pl.DataFrame) -> pl.DataFrame:
    """Find processes that have one name and nothing to do with each other.

    Definition: processes are related when one forked the other, or both descend from one process,
    as far as the trace records forks. Tasks of the same full name in unrelated processes belong to
    groups of their own.

    Parameters
    ----------
    tasks
        The `tasks` table of the whole trace: in a part of it those who forked are missing.

    Returns
    -------
    pl.DataFrame
        `utid` (UInt32) and `label` (String, ``python:24666``: the name and the process) of the
        tasks concerned; empty when all processes of one name are related, or the source records no
        process numbers.

    Notes
    -----
    How it can mislead: processes that a common parent forked before the trace began count as unrelated.
    """
    own = tasks.filter(pl.col("pid").is_not_null() & ~pl.col("is_idle"))
    parents = dict(tasks.select("utid", "parent_utid").iter_rows())
    process = dict(own.select("utid", "pid").iter_rows())

    def root(utid: int) -> int:
        seen = set()
        while (parent := parents.get(utid)) is not None and parent in process and utid not in seen:
            seen.add(utid)
            utid = parent
        return utid

    # Threads belong to their process, and a process to the one that its chain of parents begins in.
    roots = {utid: process[root(utid)] for utid in process}
    frame = own.select("utid", "pid", pl.col("comm").cast(pl.String).alias("name"))
    frame = frame.with_columns(
        pl.col("utid").replace_strict(roots, default=None, return_dtype=pl.Int64).alias("root")
    )
    several = pl.col("root").n_unique().over("name") > 1
    label = pl.concat_str("name", pl.lit(":"), pl.col("root").cast(pl.String))
    return frame.filter(several & pl.col("name").is_not_null()).select("utid", label.alias("label"))
