"""`tracekit sweep`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli._choice import Choice
from tracekit.cli._options import output_options, output_place, source_place
from tracekit.errors import OutputError
from tracekit.units import MOST_CPUS, MOST_HZ

if TYPE_CHECKING:
    import polars as pl

    from tracekit.whatif.sweep import Sweep

#: What stands behind a value, as in a narrow table of `compare`: what it says of that row.
MARKS = {"not resolved": "=", "with care": "?", "do not use": "!"}


def sweep_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """How cells are replayed and where; `solve` has the same."""
    for decorate in reversed(
        [
            click.option(
                "--identity",
                metavar="POLICY",
                help="Policy the trace was captured under; by default inferred.",
            ),
            click.option(
                "--by",
                type=Choice(["group", "comm", "tid", "all"]),
                default="group",
                show_default=True,
                help="How to group tasks.",
            ),
            click.option(
                "--loop",
                type=Choice(["dependency", "open", "closed"]),
                default="dependency",
                show_default="dependency",
                help="How wakeups respond to the new schedule.",
            ),
            click.option("--rt", metavar="POLICY", help="The real-time class above, such as rt:slice=20ms."),
            click.option(
                "--cpus", type=click.IntRange(1, MOST_CPUS), help="Number of CPUs; by default as recorded."
            ),
            click.option(
                "--hz",
                type=click.IntRange(1, MOST_HZ),
                help="Clock ticks a second, of the recording and of its replays; by default as found.",
            ),
            click.option(
                "--jobs", type=click.IntRange(1, 1024), help="Processes; by default one for each CPU."
            ),
            click.option(
                "--dask",
                metavar="ADDRESS",
                help="Run on the workers of this Dask scheduler, such as tcp://host:8786. They must see the output's folder.",
            ),
            click.option("-q", "--quiet", is_flag=True, help="No progress."),
        ]
    ):
        function = decorate(function)
    return function


@contextlib.contextmanager
def executor_of(dask: str | None, jobs: int | None) -> Iterator[Any]:
    """The executor of a Dask scheduler, or processes of this machine, which are starting already."""
    if dask is None:
        from tracekit.whatif.workers import Workers

        with Workers(jobs) as workers:
            workers.start()
            yield workers
        return
    try:
        from distributed import Client
    except ImportError:
        raise OutputError("--dask needs the extra: pip install 'tracekit[dask]'") from None
    try:
        client: Any = Client(dask, timeout="10s")  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise OutputError(f"--dask {dask}: no scheduler answers there: {error}") from None
    with client:
        yield client.get_executor()


@contextlib.contextmanager
def cells_bar(quiet: bool, title: str) -> Iterator[Callable[[int, int], object] | None]:
    """A bar on standard error that counts cells; None when that is no terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(title, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


@click.command(
    "sweep",
    epilog="""\b
Examples:
  tracekit sweep boot.dat --policy 'rr:quantum=1ms..64ms/7log' \\
      --metric 'response.p95(db)'
  tracekit sweep boot.dat --set 'bg*: nice=0..19/5' -o bg.parquet
  tracekit sweep *.dat --policy 'cfs:wakeup_granularity=0..4ms/9' \\
      --policy fifo -o sweep.parquet
  tracekit sweep boot.dat --policy 'eevdf:base_slice=0.5ms..20ms/40log' \\
      --search 'halving:response.p95(db)'
""",
)
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...", callback=source_place)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="POLICY",
    help="NAME:PARAM=VALUE,...; a value can be a range (0..4ms/9, 1ms..64ms/7log) or a list ({on,off}). "
    "By default the policy of the recording, where --set says what else varies.",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="SELECTOR:KEY=VALUE",
    help="Change tasks, with ranges and lists likewise: 'batch*: nice=0..19/5'.",
)
@click.option(
    "--search",
    default="grid",
    show_default=True,
    metavar="HOW",
    help="grid; random:N; or halving:STATISTIC, the best third of the cells again and again with more repetitions.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="For random:N.")
@click.option(
    "--runs",
    type=click.IntRange(1, 1000),
    default=3,
    show_default=True,
    help="Repetitions of each cell, for its interval; 1: none.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    callback=output_place,
    help="Write all rows as Parquet. A sweep that was stopped goes on from the cells that are kept beside it.",
)
@click.option(
    "--metric",
    "statistics",
    multiple=True,
    metavar="STATISTIC",
    help="Print this statistic over the axes, such as 'response.p95(db)' or 'cpu(batch*)'.",
)
@output_options(csv=False, plot=True)
@sweep_options
def command(
    traces: tuple[str, ...],
    policies: tuple[str, ...],
    sets: tuple[str, ...],
    search: str,
    seed: int,
    runs: int,
    output: str | None,
    statistics: tuple[str, ...],
    plot: str | None,
    as_json: bool,
    jobs: int | None,
    dask: str | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Replay traces under a grid of policies and attributes.

    Every combination of the values is a cell. Cells run on all CPUs, or on the workers of a Dask
    scheduler; the result is the same for any number of them. Marks behind a value say what `compare`
    says of that row: whether it differs from the identity replay, and whether it can be trusted.
    """
    if not policies and not sets:
        raise click.UsageError(
            "nothing to sweep: give a --policy, or a --set for the policy of the recording"
        )
    if not statistics and output is None:
        raise click.UsageError("nothing to give: name a --metric to print, or an --output to write")
    if plot and not statistics:
        raise click.UsageError("--plot draws a --metric: name one or two")
    with executor_of(dask, jobs) as executor, cells_bar(quiet, "cells") as progress:
        from tracekit.whatif.goals import parse_statistic
        from tracekit.whatif.sweep import Options, sweep

        for statistic in statistics:
            parse_statistic(statistic)
        result = sweep(
            traces,
            policies,
            sets,
            output=output,
            search=search,
            seed=seed,
            runs=runs,
            executor=executor,
            options=Options(**options),
            progress=progress,
        )
    if output is not None:
        print(f"wrote {output}", file=sys.stderr)
    _print(result, statistics, as_json)
    if plot:
        _draw(result, statistics, plot)


def _by_reason(failed: pl.DataFrame) -> Iterator[tuple[str, list[int]]]:
    """Why cells have no result, and which these are."""
    yield from failed.group_by("error", maintain_order=True).agg("cell").iter_rows()


def _print(result: Sweep, statistics: tuple[str, ...], as_json: bool) -> None:
    from tracekit.cli._output import emit_json, paragraph

    for error, cells in _by_reason(result.failed):
        first = f"cell {cells[0]}"
        which = first if len(cells) == 1 else f"{len(cells)} cells, {first} the first"
        paragraph(f"warning: {which}: {error}", file=sys.stderr)
    if as_json:
        emit_json({s: result.values(s).to_dicts() for s in statistics})
        return
    for said in result.left_to_default:
        paragraph(f"warning: {said}", file=sys.stderr)
    for statistic in statistics:
        _pivot(result, statistic)


def _pivot(result: Sweep, statistic: str) -> None:
    """One statistic over the axes: each value with its marks, and what it is held against."""
    from tracekit.cli._output import paragraph, table
    from tracekit.words import value

    found = result.values(statistic)
    unit = found["unit"][0]
    wide = result.pivot(statistic)
    lead = [c for c in ("trace", "group") if c in wide.columns]
    axis, *columns = wide.columns[len(lead) :]
    rows = [{**row, axis: shown(str(row[axis]))} for row in wide.to_dicts()]
    said = [result.pivot(statistic, c).to_dicts() for c in ("is_bound", "verdict", "trust")]
    seen: set[str] = set()
    for place, row in enumerate(rows):
        for column in columns:
            bound, verdict, trust = (other[place][column] for other in said)
            marks = "".join(MARKS[word] for word in (verdict, trust) if word in MARKS)
            seen.update(word for word in (verdict, trust) if word in MARKS)
            text = ("\u2265 " if bound else "") + value(row[column], unit)
            row[column] = f"{text} {marks}".rstrip() if row[column] is not None else None
    held = [
        f"{name} {value(found[c][0], unit)}"
        for c, name in (("recorded", "recorded"), ("identity", "identity replay"))
        if found[c].n_unique() == 1
    ]
    paragraph(f"{statistic} by {axis}{'; ' if held else ''}{', '.join(held)}")
    table(rows, wide.columns, right=columns)
    if seen:
        print(", ".join(f"{mark} {word}" for word, mark in MARKS.items() if word in seen))
    # The table names traces where there are several, and not those that are not in it.
    for name in result.table["trace"].unique(maintain_order=True).to_list():
        if name not in found["trace"]:
            paragraph(f"{name} has no {statistic}")
    if found["low"].null_count() == found.height and result.table["runs"].max() == 1:
        paragraph("each cell ran once: no intervals, and a small change may be chance")


def shown(value: str) -> str:
    """A value of an axis as people read it: times in the unit that suits them."""
    from tracekit.units import format_ns, parse_duration

    try:
        return format_ns(parse_duration(value))
    except ValueError:
        return value


def _draw(result: Sweep, statistics: tuple[str, ...], plot: str) -> None:
    from tracekit.cli._output import save_plot
    from tracekit.plot import how_to_read
    from tracekit.plot.sweep import response_curve, tradeoff

    if len(statistics) == 1:
        save_plot(
            response_curve(result.values(statistics[0]), statistics[0]), plot, how_to_read(response_curve)
        )
        return
    front = result.front([(s, True) for s in statistics[:2]])
    parts = [
        result.values(s).select("cell", "value").group_by("cell").first().rename({"value": c})
        for s, c in zip(statistics[:2], front.columns[-2:], strict=True)
    ]
    save_plot(tradeoff(front, parts[0].join(parts[1], on="cell")), plot, how_to_read(tradeoff))
