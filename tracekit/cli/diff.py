"""`tracekit diff`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli._gate import ended, extra_of, gate_option, kept
from tracekit.cli._options import by_option, output_options, output_place, source_place
from tracekit.errors import OutputError

if TYPE_CHECKING:
    from tracekit.explain import Condition, Difference
    from tracekit.trace import Trace

#: Columns of the table.
_COLUMNS = ["group", "metric", "A", "B", "change", "interval", "n", "verdict"]


def _share(context: click.Context, param: click.Parameter, given: str) -> float:
    try:
        share = float(given.removesuffix("%")) / (100 if given.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise click.BadParameter(f"expected a share such as 5% or 0.05, found {given!r}", context, param)
    return share


def _fitting(pattern: str) -> list[str]:
    """Files that a pattern fits; a name without wildcards as it is."""
    if not any(ch in pattern for ch in "*?["):
        return [pattern]
    path = Path(pattern)
    return sorted(map(str, path.parent.glob(path.name)))


def _fitting_all(context: click.Context, param: click.Parameter, patterns: tuple[str, ...]) -> list[str]:
    """The files of a side, each of which is read and must not be written over."""
    files: list[str] = []
    for pattern in patterns:
        fits = _fitting(pattern)
        if not fits:
            raise click.UsageError(f"{param.opts[0]} {pattern}: no file fits")
        files += fits
    source_place(context, param, tuple(files))
    return files


def _files(before: list[str], after: list[str], traces: Sequence[str]) -> tuple[list[str], list[str]]:
    """Files of A and B, as arguments or as fit patterns."""
    if traces and (before or after):
        raise click.UsageError("expected either two traces or --a and --b, found both")
    if traces:
        if len(traces) != 2:
            raise click.UsageError(f"expected two traces, found {len(traces)}; for sets give --a and --b")
        return [traces[0]], [traces[1]]
    if not before or not after:
        raise click.UsageError(
            "expected two traces, or --a and --b, such as --a 'before*.dat' --b 'after*.dat'"
        )
    return before, after


@click.command(
    "diff",
    epilog="""\b
Examples:
  tracekit diff boot.dat boot.dat
  tracekit diff --a 'before*.dat' --b 'after*.dat' --markdown change.md
  tracekit diff a.dat b.dat --fail-if 'db: response p99 > 1.10 * baseline'
""",
)
@click.argument("traces", nargs=-1, metavar="[TRACE_A TRACE_B]", type=click.Path(), callback=source_place)
@click.option(
    "--a",
    "a",
    multiple=True,
    metavar="FILES",
    type=click.Path(),
    callback=_fitting_all,
    help="Captures before; a glob, or given several times.",
)
@click.option(
    "--b",
    "b",
    multiple=True,
    metavar="FILES",
    type=click.Path(),
    callback=_fitting_all,
    help="Captures after.",
)
@by_option
@click.option(
    "--min-effect",
    default="5%",
    show_default=True,
    metavar="SHARE",
    callback=_share,
    help="Smallest change that counts.",
)
@click.option(
    "--repeat-spread",
    default="5%",
    show_default=True,
    metavar="SHARE",
    callback=_share,
    help="How much captures of the same thing differ, where there is one a side.",
)
@gate_option(baseline=True)
@click.option("--all", "everything", is_flag=True, help="Every metric, not only those that changed.")
@click.option(
    "--top", type=click.IntRange(min=1), default=20, show_default=True, metavar="N", help="Rows shown."
)
@click.option(
    "--markdown",
    metavar="FILE",
    callback=output_place,
    help="Write Markdown for a pull request; - for standard output.",
)
@click.option("-o", "--output", metavar="FILE", callback=output_place, help="Write an HTML page.")
@click.option("-q", "--quiet", is_flag=True, help="No warnings, no progress.")
@output_options(plot=True)
def command(
    traces: tuple[str, ...],
    a: list[str],
    b: list[str],
    by: str,
    min_effect: float,
    repeat_spread: float,
    fail_if: list[Condition],
    everything: bool,
    top: int,
    markdown: str | None,
    output: str | None,
    quiet: bool,
    as_json: bool,
    as_csv: bool,
    plot: str | None,
) -> int:
    """Say what changed between two captures, or two sets of captures.

    One row a group of tasks, metric and statistic, with a 90 % interval of the change. Of the rows
    that are called changed, at most 5 % are so by chance. Several captures a side say more than
    one: what differs from capture to capture is then known.
    """
    from tracekit.explain import diff, judge_pair

    if output is not None and not output.lower().endswith((".html", ".htm")):
        raise OutputError(f"{output}: expected a name that ends in .html")
    before, after = (_read(files, quiet) for files in _files(a, b, traces))
    found = diff(before, after, by=by, min_effect=min_effect, repeat_spread=repeat_spread)
    judged = kept([judge_pair(c, before, after, by, repeat_spread) for c in fail_if])
    if output is not None:
        _write(output, found.to_html())
    if plot is not None:
        from tracekit.cli._output import save_plot
        from tracekit.plot import changes, how_to_read

        names = [side[0].name if len(side) == 1 else f"{len(side)} captures" for side in (before, after)]
        # Both have room in the title.
        sides = [name if len(name) <= 25 else f"{name[:22]}..." for name in names]
        save_plot(changes(found.table, " to ".join(sides)), plot, how_to_read(changes))
    if markdown == "-":
        click.echo(found.to_markdown(top), nl=False)
    else:
        if markdown is not None:
            _write(markdown, found.to_markdown(top))
        _emit(found, everything, top, as_json, as_csv, extra_of(judged))
    return ended(judged)


def _read(files: Sequence[str], quiet: bool) -> list[Trace]:
    from tracekit.io import read

    return [read(file, progress=not quiet, cache=None) for file in files]


def _write(file: str, text: str) -> None:
    from tracekit.export.files import replacing

    with replacing(Path(file)) as partial:
        partial.write(text.encode())
    click.echo(f"wrote {file}", err=True)


def _emit(
    found: Difference, everything: bool, top: int, as_json: bool, as_csv: bool, extra: dict[str, Any]
) -> None:
    from tracekit.cli._output import about, emit_csv, emit_json, paragraph, table

    if as_json and emit_json(
        {
            "a": [about(t) for t in found.a],
            "b": [about(t) for t in found.b],
            "show": "diff",
            "sentence": found.sentence,
            "warnings": found.warnings,
            **extra,
            "findings": _together(extra.get("findings", []), found.findings),
            "rows": found.table.to_dicts(),
        }
    ):
        return
    if as_csv and emit_csv(found.table):
        return
    paragraph(found.sentence)
    for warning in found.warnings:
        paragraph(f"not alike: {warning}")
    rows = found.table if everything else found.changed
    if not rows.height:
        return
    print()
    table(
        [_readable(r) for r in rows.head(top).iter_rows(named=True)],
        _COLUMNS,
        right=_COLUMNS[2:-1],
        first_out=["verdict", "n"],
    )
    if rows.height > top:
        paragraph(f"{rows.height - top} more: --top {rows.height}")


def _together(verdicts: list[dict[str, Any]], changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Verdicts of the gate before changes, at most 20, ranked anew."""
    return [{**one, "rank": i} for i, one in enumerate([*verdicts, *changes][:20], 1)]


def _readable(row: dict[str, Any]) -> dict[str, str]:
    from tracekit.explain.two_captures import figures

    return dict(zip(_COLUMNS, [row["group"], *figures(row), row["verdict"]], strict=True))
