"""`tracekit recipes`."""

from __future__ import annotations

from pathlib import Path

import click

from tracekit.cli import _complete
from tracekit.cli._options import output_options


@click.command(
    "recipes",
    epilog="""\b
Examples:
  tracekit recipes
  tracekit recipes perf
  tracekit recipes dtrace --os freebsd -o tkd-freebsd.d
""",
)
@click.argument("name", required=False, type=_complete.RECIPE)
@click.option(
    "--os", "system", metavar="OS", type=_complete.SYSTEM, help="Operating system, where recipes differ."
)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write it to a file.")
@output_options(csv=False)
def command(name: str | None, system: str | None, output: Path | None, as_json: bool) -> None:
    """Print how to capture a trace: commands and scripts for each operating system.

    Without NAME, list the recipes. Each says which metrics need which events.
    """
    from tracekit import recipes
    from tracekit.cli._output import emit_json, table

    if name is None:
        rows = [
            {"name": r.name, "os": ", ".join(r.systems), "gives": r.format, "title": r.title}
            for r in recipes.list()
        ]
        if as_json:
            emit_json(rows)
        else:
            table(rows, ["name", "os", "gives", "title"])
        return
    try:
        text = recipes.show(name, system)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if output is not None:
        output.write_text(text, encoding="utf-8")
    elif as_json:
        emit_json({"name": name, "os": system, "text": text})
    else:
        click.echo(text, nl=False)
