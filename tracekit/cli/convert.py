"""`tracekit convert`."""

from __future__ import annotations

import sys

import click

from tracekit.cli._choice import Choice
from tracekit.cli._options import Input, input_options, output_place
from tracekit.errors import OutputError

TABLES = [
    "events",
    "slices",
    "states",
    "runqueue",
    "tasks",
    "cpus",
    "losses",
    "diagnostics",
    "histograms",
    "summaries",
    "program",
]


@click.command(
    "convert",
    epilog="""\b
Examples:
  tracekit convert boot.dat -o boot.parquet
  tracekit convert trace.txt.gz -o slices.arrow --table slices
  zcat huge.txt.gz | tracekit convert - -o huge.parquet
  tracekit convert boot.dat -o - --table slices | head
  tracekit convert boot.dat -o program.csv --table program   what tasks do
""",
)
@input_options()
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    callback=output_place,
    help="Where to: .parquet, .arrow or .csv; - for CSV on standard output.",
)
@click.option(
    "--table", type=Choice(TABLES), default="events", show_default=True, help="Which table to write."
)
@click.option(
    "--as",
    "kind",
    type=Choice(["parquet", "arrow", "csv"]),
    help="Kind of file, when its name does not say.",
)
def command(source: Input, output: str, table: str, kind: str | None) -> None:
    """Write a table of a trace to Parquet, Arrow or CSV.

    Works in batches, so that memory does not depend on the length of the trace (unless filters are
    given). The file appears when it is complete. Parquet and Arrow files keep metadata, losses and
    diagnostics, and every command of tracekit reads such a file of events as it reads the trace; of events
    of some tasks, there are no run queues. Rows of slices and states are written when they end: sort them
    by ts_ns where their order matters.
    """
    from tracekit.cli._output import printable
    from tracekit.io import convert, read
    from tracekit.trace import damages
    from tracekit.units import format_count, format_size

    if source.comm or source.exclude or source.pid or source.tid or source.cpu or source.start or source.end:
        trace = source.narrow(
            read(source.path, source.format, progress=not source.quiet, cache=None, **source.options)
        )
        written = trace.write(output, table=table, to=kind)
    elif "table" in source.options or "to" in source.options:
        raise OutputError("`table` and `to` are options of their own: --table, --as")
    else:
        written = convert(
            source.path,
            output,
            table=table,
            format=source.format,
            to=kind,
            progress=not source.quiet,
            **source.options,
        )
    # Loading polars to find nothing takes as long as converting a short trace.
    if not source.quiet and any(note["severity"] != "info" for note in written.notes):
        for line in damages(written.diagnostics):
            click.echo(f"warning: {printable(line)}", err=True)
    if sys.stderr.isatty():
        size = f", {format_size(written.size)}" if written.size else ""
        click.echo(f"wrote {written.path}: {format_count(written.rows)} rows of {table}{size}", err=True)
