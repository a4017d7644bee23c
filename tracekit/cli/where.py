"""`tracekit where`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from tracekit.cli._choice import Choice
from tracekit.cli._options import Input, group_option, input_options, output_options

if TYPE_CHECKING:
    import polars as pl

    from tracekit.trace import Trace

SHOWS = {
    "cpus": "how each CPU's time was used, and how uneven that is",
    "time": "time on CPUs and waiting by group",
    "migrations": "changes of CPU by group, reason and distance",
    "idle": "windows in which a CPU was idle while a task waited",
    "waits": "the longest waits for a CPU, and behind whom",
    "handlers": "time of interrupts and softirqs by CPU and by the task that they hit",
    "inversions": "candidates of priority inversion",
    "periods": "tasks with a steady period: jitter, misses, longest gap",
    "lives": "processes made in the trace: fork to first run, exec, exit, reaped",
    "cost": "first run of a new process against the number of live processes, with 95 % intervals",
}


@click.command(
    "where",
    epilog="""\b
Examples:
  tracekit where boot.dat
  tracekit where boot.dat --show migrations --by comm
  tracekit where boot.dat --show time --by cgroup
  tracekit where boot.dat --show idle --top 10
  tracekit where boot.dat --show periods --json
""",
)
@input_options(filters=False)
@group_option()
@click.option(
    "--show",
    type=Choice(list(SHOWS)),
    default="cpus",
    show_default=True,
    help="Which table. " + "; ".join(f"{k}: {v}" for k, v in SHOWS.items()) + ".",
)
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the first N rows.")
@output_options()
def command(source: Input, by: str, show: str, top: int | None, as_json: bool, as_csv: bool) -> None:
    """Show where tasks ran and whose the CPUs' time was.

    Distances of migrations need the topology of the machine: the file that the script of
    `tracekit recipes machine` writes.
    """
    from tracekit.cli._output import emit

    trace = dataclasses.replace(source, comm=(), pid=(), tid=(), cpu=(), start=None, end=None).read()
    emit(_table(trace, show, by), trace, show=show, as_json=as_json, as_csv=as_csv, top=top)


def _table(trace: Trace, show: str, by: str) -> pl.DataFrame:
    from tracekit.explain import where

    try:
        return where(trace, show, by)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
