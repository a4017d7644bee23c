"""`--by`: tasks under the names of their groups."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

import click
import polars as pl

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["grouped", "grouped_alike", "labelled"]


def grouped(trace: Trace, by: str, among: pl.DataFrame | None = None) -> tuple[Trace, str]:
    """The trace with tasks named after their groups, and the grouping that analyses are to use.

    Parameters
    ----------
    trace
        The trace.
    by
        What `--by` says: one of `tracekit.analysis.grouping.BY`, or ``cpu`` (slices only).
    among
        The `tasks` of the whole trace, where `trace` is a part of it: who forked the tasks of the
        part. So a task is in the same group in every part.

    Returns
    -------
    tuple
        The trace itself and `by` where analyses know the grouping; else a trace whose names are
        groups, and ``comm``.
    """
    if by in ("tid", "all"):
        return trace, by
    if by == "cpu":
        cpu = pl.concat_str(pl.lit("CPU "), pl.col("cpu").cast(pl.String))
        slices = trace.slices.with_columns(cpu.alias("comm"), pl.col("cpu").cast(pl.UInt32).alias("utid"))
        return _with(trace, {"slices": slices}), "comm"
    found = _labels(trace, by, among)
    return (trace, by) if found is None else (_renamed(trace, found), "comm")


def grouped_alike(
    trace: Trace, run: Trace, by: str, among: pl.DataFrame | None = None
) -> tuple[Trace, Trace, str]:
    """A trace and its replay with tasks named after their groups in the trace, and the grouping to use.

    Parameters
    ----------
    trace, run
        What was recorded, and a replay of it: threads have the same numbers.
    by, among
        As in `grouped`, without ``cpu``.
    """
    named, how = grouped(trace, by, among)
    if named is trace:
        return trace, run, how
    label = pl.col("comm").cast(pl.String).alias("label")
    found = named.tasks.select("tid", label).drop_nulls().unique("tid", keep="last")
    tables = {}
    for name in ("slices", "states", "tasks"):
        joined = run.table(name).join(found, on="tid", how="left", maintain_order="left")
        comm = pl.coalesce("label", pl.col("comm").cast(pl.String)).alias("comm")
        tables[name] = joined.with_columns(comm).drop("label")
    return named, _with(run, tables), how


def labelled(trace: Trace, by: str) -> tuple[str, list[str | None] | None]:
    """The grouping that a survey is to use, and names for the groups of its tasks.

    The names are given by `utid`, where there are any.

    Parameters
    ----------
    trace, by
        As in `grouped`, without ``cpu``.
    """
    found = None if by in ("tid", "all") else _labels(trace, by)
    if found is None or not found.height:
        return by, None
    names: dict[int, str | None] = dict(found.select("utid", "label").iter_rows())
    return "comm", [names.get(utid) for utid in range(max(names) + 1)]


def _labels(trace: Trace, by: str, among: pl.DataFrame | None = None) -> pl.DataFrame | None:
    """Group of each task (`utid`, `label`); None where analyses find the groups themselves."""
    from tracekit.analysis import group_of, grouping

    if by in ("group", "comm"):
        if not trace.counts["events"]:
            return None  # Slices that a tool printed: no fork shows, so that nothing says who is related.
        among = trace.tasks if among is None else among
        found = grouping.unrelated(among).join(trace.tasks.select("utid"), on="utid", how="semi")
        if not found.height:
            return None
        _say_numbers(trace, found, among)
        named = trace.tasks.select("utid", group_of(by).alias("name")).join(found, on="utid", how="left")
        return named.select("utid", pl.coalesce("label", "name").alias("label"))
    machine = trace.machine
    try:
        found = grouping.labels(
            trace.tasks, cast(grouping.By, by), None if machine is None else machine.tasks
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return found.with_columns(pl.col("label").fill_null("(not recorded)"))


def _say_numbers(trace: Trace, found: pl.DataFrame, among: pl.DataFrame) -> None:
    """Say what the numbers behind names are, with the group of most CPU time for an example."""
    from tracekit.cli._output import on_standard_output, printable

    context = click.get_current_context(silent=True)
    if context is None or context.params.get("quiet") or on_standard_output():
        return
    label = found.join(trace.tasks, on="utid").sort("run_ns", descending=True)["label"][0]
    root = int(label.rpartition(":")[2])
    names = among.filter(pl.col("pid") == root, pl.col("tid") == root)["comm"].drop_nulls()
    called = f" ({names[0]})" if names.len() and names[0] else ""
    said = (
        "note: several processes have one name and, as far as forks are recorded, nothing else in common: "
        f"{label} is those that descend from process {root}{called}"
    )
    print(printable(said), file=sys.stderr)


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
