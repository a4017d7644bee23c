"""`tracekit formats`."""

from __future__ import annotations

import click

from tracekit import registry
from tracekit.cli import _complete
from tracekit.cli._options import output_options
from tracekit.near import did_you_mean

FIELDS = {
    "produced_by": "produced by",
    "kinds": "records",
    "provides": "provides",
    "resolution": "resolution",
    "clock": "clock",
    "confidence": "verified on",
    "notes": "notes",
}


@click.command(
    "formats",
    epilog="""\b
Examples:
  tracekit formats
  tracekit formats -v trace-dat
  tracekit formats --json
""",
)
@click.argument("names", nargs=-1, metavar="[NAME]...", type=_complete.FORMAT)
@click.option("-v", "--verbose", is_flag=True, help="All that is known of each format.")
@output_options(csv=False)
def command(names: tuple[str, ...], verbose: bool, as_json: bool) -> None:
    """List the formats that can be read.

    The first bytes give the format, never the file name. Compression by gzip, zstd and xz is seen through.
    """
    import textwrap

    from tracekit.cli._output import emit_json, paragraph, table

    formats = list(registry.formats())
    known = [f["name"] for f in formats]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, ".")
            raise click.BadParameter(f"no format is called {name!r}{hint} There are {', '.join(known)}")
    formats = [f for f in formats if not names or f["name"] in names]
    if as_json and emit_json(formats):
        return
    if verbose:
        marks = {True: "yes", False: "-"}
        fills = [{"name": f["name"], **{k: marks[v] for k, v in registry.fills(f).items()}} for f in formats]
        table(fills, ["name", *registry.FILLS])
        print()
        for i, f in enumerate(formats):
            paragraph(f"{chr(10) * (i > 0)}{f['name']}: {f['title']}")
            rows = [(title, str(f[key])) for key, title in FIELDS.items()]  # type: ignore[literal-required]
            rows.append(
                ("streams", "yes, also from a pipe" if f["streams"] else "no, is held in memory or mapped")
            )
            for title, text in rows:
                if text:
                    indent = " " * 15
                    print(textwrap.fill(f"  {title:<11}  {text}", 100, subsequent_indent=indent))
    else:
        table(
            [{**f, "verified_on": f["confidence"]} for f in formats],
            ["name", "title", "verified_on", "resolution"],
        )
