"""`tracekit study`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from tracekit.cli._choice import Choice
from tracekit.cli._options import output_options

if TYPE_CHECKING:
    from tracekit.studies import Table

#: Names of the studies; `tracekit.studies.NAMES`, which is not imported here to keep help quick.
NAMES = ("solaris-fork", "aix-directory", "cfs-sleepers", "freebsd-fork", "linux-runqueue")


@click.command(
    "study",
    epilog="""\b
Examples:
  tracekit study                          all five
  tracekit study solaris-fork
  tracekit study cfs-sleepers --scale 0.3 --repeats 2 --json
""",
)
@click.argument("names", nargs=-1, type=Choice(NAMES), metavar="[NAME]...")
@click.option(
    "--scale",
    type=click.FloatRange(0.01, 10),
    default=1.0,
    show_default=True,
    help="Share of the full size of the experiments.",
)
@click.option(
    "--repeats",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="Repetitions with other random numbers, for the 95 % error bars.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@output_options(csv=False)
def command(names: tuple[str, ...], scale: float, repeats: int, quiet: bool, as_json: bool) -> None:
    """Run the experiments of five published studies and set their results beside the published ones.

    solaris-fork, aix-directory, cfs-sleepers, freebsd-fork and linux-runqueue. A metric that the
    workload was fitted to shows nothing and is marked so; one that is not reached says why.
    """
    from tracekit.cli._output import emit_json, paragraph
    from tracekit.studies import load

    tables = []
    for name in names or NAMES:
        study = load(name)
        with _bar(quiet, name) as progress:
            tables.append(study.run(scale, repeats, progress))
        if not as_json:
            paragraph(study.title)
            paragraph(study.question)
            print()
            _print(tables[-1])
    if as_json:
        emit_json(
            [{"study": t.name, "metrics": t.frame().to_dicts(), "notes": list(t.notes)} for t in tables]
        )


@contextlib.contextmanager
def _bar(quiet: bool, title: str) -> Iterator[Callable[[float], object]]:
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(title, total=1.0)
        yield lambda done: bars.update(task, completed=done)


def _print(result: Table) -> None:
    from tracekit.cli._output import paragraph, table

    rows = []
    for m in result.metrics:
        published, ours, ratio = m.texts()
        rows.append(
            {"metric": m.name, "unit": m.unit or "-", "published": published, "ours": ours, "ratio": ratio}
        )
    table(rows, ["metric", "unit", "published", "ours", "ratio"])
    for m in result.metrics:
        if m.note:
            paragraph(f"  {m.name}: {m.note}")
    for note in result.notes:
        paragraph(f"  {note}")
    print()
