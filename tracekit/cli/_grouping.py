"""`--by`: tasks under the names of their groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click
import polars as pl

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["grouped"]


def grouped(trace: Trace, by: str) -> tuple[Trace, str]:
    """The trace with tasks named after their groups, and the grouping that analyses are to use.

    Parameters
    ----------
    trace
        The trace.
    by
        What `--by` says: one of `tracekit.analysis.grouping.BY`, or ``cpu`` (slices only).

    Returns
    -------
    tuple
        The trace itself and `by` where analyses know the grouping; else a trace whose names are
        groups, and ``comm``.
    """
    from tracekit.analysis import group_of, grouping

    if by in ("tid", "all"):
        return trace, by
    if by == "cpu":
        cpu = pl.concat_str(pl.lit("CPU "), pl.col("cpu").cast(pl.String))
        slices = trace.slices.with_columns(cpu.alias("comm"), pl.col("cpu").cast(pl.UInt32).alias("utid"))
        return _with(trace, {"slices": slices}), "comm"
    if by in ("group", "comm"):
        found = grouping.unrelated(trace.tasks)
        if not found.height:
            return trace, by
        named = trace.tasks.select("utid", group_of(by).alias("name")).join(found, on="utid", how="left")
        return _renamed(trace, named.select("utid", pl.coalesce("label", "name").alias("label"))), "comm"
    machine = trace.machine
    try:
        found = grouping.labels(
            trace.tasks, cast(grouping.By, by), None if machine is None else machine.tasks
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return _renamed(trace, found.with_columns(pl.col("label").fill_null("(not recorded)"))), "comm"


def _renamed(trace: Trace, found: pl.DataFrame) -> Trace:
    tables = {}
    for name in ("slices", "states", "tasks"):
        frame = trace.table(name)
        joined = frame.join(found, on="utid", how="left", maintain_order="left")
        comm = pl.coalesce("label", pl.col("comm").cast(pl.String)).alias("comm")
        tables[name] = joined.with_columns(comm).drop("label")
    return _with(trace, tables)


def _with(trace: Trace, changed: dict[str, pl.DataFrame]) -> Trace:
    from tracekit.trace import Trace

    tables = {name: changed.get(name, trace.table(name)) for name in trace.tables}
    return Trace(tables, trace.metadata, trace.name)
