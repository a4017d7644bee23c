"""`tracekit cache`."""

from __future__ import annotations

import click

from tracekit.cli._options import output_options

EXAMPLES = """\b
Examples:
  tracekit cache list
  TRACEKIT_CACHE=1 tracekit slices boot.dat       the next command is quicker
  TRACEKIT_CACHE_SIZE=500MB tracekit cache size
"""


@click.group("cache", epilog=EXAMPLES, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """See or clear the cache of traces that were read before.

    `tracekit.read(path, cache=True)`, or any command with TRACEKIT_CACHE=1, keeps the tables of a
    trace under a digest of its content, in $XDG_CACHE_HOME/tracekit or ~/.cache/tracekit, up to
    TRACEKIT_CACHE_SIZE (4GB).
    """
    if context.invoked_subcommand is None:
        context.invoke(list_entries, as_json=False)


@command.command("list", epilog=EXAMPLES)
@output_options(csv=False)
def list_entries(as_json: bool) -> None:
    """List the traces, those used last first."""
    from datetime import UTC, datetime

    from tracekit.cli._output import emit_json, paragraph, table
    from tracekit.io.cache import Cache
    from tracekit.units import format_size

    entries = Cache().entries()
    rows = [
        {
            "name": e.name,
            "count": e.events,
            "size": e.size if as_json else format_size(e.size),
            "used": datetime.fromtimestamp(e.used, UTC).isoformat(sep=" ", timespec="seconds"),
            "key": e.key if as_json else e.key[:12],
        }
        for e in entries
    ]
    if as_json:
        emit_json(rows)
    elif rows:
        table(rows, ["name", "count", "size", "used", "key"])
    else:
        paragraph("the cache is empty")


@command.command("size", epilog=EXAMPLES)
@output_options(csv=False)
def show_size(as_json: bool) -> None:
    """Print how much the cache holds, how much it may hold, and where it is."""
    from tracekit.cli._output import emit_json, paragraph
    from tracekit.io.cache import Cache
    from tracekit.units import format_size

    cache = Cache()
    size, entries = cache.size(), len(cache.entries())
    if as_json:
        emit_json({"folder": str(cache.folder), "entries": entries, "size": size, "limit": cache.limit})
    else:
        paragraph(f"{entries} traces, {format_size(size)} of {format_size(cache.limit)}, in {cache.folder}")


@command.command("clear", epilog=EXAMPLES)
def clear() -> None:
    """Remove all traces from the cache."""
    from tracekit.cli._output import paragraph
    from tracekit.io.cache import Cache

    paragraph(f"removed {Cache().clear()} traces")
