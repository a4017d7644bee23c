"""`tracekit sql`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tracekit.cli._choice import Choice
from tracekit.cli._options import Input, engine_options, input_options, output_options
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    import polars as pl


@click.command(
    "sql",
    epilog="""\b
Examples:
  tracekit sql boot.dat "select ts, dur, cpu, name from sched \\
      join thread using (utid) limit 5"
  tracekit sql phone.pftrace \\
      "select name, value from stats where severity = 'data_loss'"
  tracekit sql boot.dat - --csv < query.sql
  tracekit sql boot.dat --engine duckdb \\
      "select comm, sum(dur_ns) from slices group by comm"
""",
)
@input_options(filters=False)
@click.argument("query")
@click.option(
    "--engine",
    type=Choice(["perfetto", "duckdb"]),
    default="perfetto",
    show_default=True,
    help="PerfettoSQL, or DuckDB on tracekit's own tables (slices, states, runqueue, tasks, events, ...).",
)
@engine_options
@output_options()
def command(
    source: Input,
    query: str,
    engine: str,
    perfetto_addr: str | None,
    perfetto_bin: str | None,
    offline: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Run SQL on any trace that tracekit reads.

    QUERY is one or more statements, or - to take them from standard input. By default the trace is
    loaded into Perfetto's trace processor; sched, thread_state, thread, process, cpu, counter,
    ftrace_event and stats are filled. Times are ns.
    """
    from tracekit.cli._output import emit_csv, emit_json, paragraph, table

    if query == "-":
        query = sys.stdin.read()
    if engine == "duckdb":
        from tracekit.io.query import query as query_tables

        frame = query_tables(source.read(), query)
    else:
        frame = _perfetto(source, query, perfetto_addr, perfetto_bin, offline)
    if as_json:
        emit_json(frame.to_dicts())
    elif as_csv:
        emit_csv(frame)
    elif frame.height == 0:
        paragraph("no rows")
    else:
        table(
            [{c: None if v is None else str(v) for c, v in row.items()} for row in frame.to_dicts()],
            frame.columns,
        )


def _perfetto(
    source: Input, query: str, perfetto_addr: str | None, perfetto_bin: str | None, offline: bool
) -> pl.DataFrame:
    from tracekit.perfetto import load
    from tracekit.perfetto.sniffing import recognises

    # A Perfetto file is loaded as it is, with the tables that have nothing to do with scheduling.
    whole = source.path != "-" and source.format in (None, "perfetto") and recognises(source.path)
    trace = source.path if whole else source.read()
    with load(trace, perfetto_addr=perfetto_addr, perfetto_bin=perfetto_bin, offline=offline) as session:
        if whole:
            # What other traces lost, reading them reported.
            source.say(session.diagnostics)
        try:
            return session.query(query)
        except TracekitError as error:
            if "no such column" not in str(error) and "no such table" not in str(error):
                raise
            own = "tables of Perfetto are asked; those of tracekit (slices, states, ...) with --engine duckdb"
            raise TracekitError(f"{error}. Here {own}") from None
