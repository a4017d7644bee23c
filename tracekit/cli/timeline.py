"""`tracekit timeline`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tracekit.cli._options import Input, input_options, output_options

if TYPE_CHECKING:
    import polars as pl

#: Signs of groups, most run time first; further groups share one.
SIGNS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
OTHERS, IDLE = "+", "."


@click.command(
    "timeline",
    epilog="""\b
Examples:
  tracekit timeline boot.dat --from 1s --to 1.05s
  tracekit timeline boot.dat --from @4.016s --to @4.1s --cpu 0-3
""",
)
@input_options()
@click.option(
    "--by",
    type=click.Choice(["comm", "group", "tid"]),
    default="comm",
    show_default=True,
    help="What a letter stands for: a name, a name without the number at its end, or a thread.",
)
@output_options()
def command(source: Input, by: str, as_json: bool, as_csv: bool) -> None:
    """Show who ran on each CPU, as text.

    Each line is a CPU, each sign a stretch of time: the letter of the task that ran longest in it,
    a dot where the CPU was idle for most of it. Without --from and --to, the whole trace.
    """
    from tracekit.cli._output import emit_csv, emit_json, paragraph
    from tracekit.cli._table import terminal_width
    from tracekit.filters import resolve_time
    from tracekit.units import format_moment, format_ns

    # Slices that began before the window belong to it, too: it is cut here, not by the filter.
    whole = source.read(window=False)
    first, last = whole.start_ns or 0, whole.end_ns or 0
    begin = first if source.start is None else resolve_time(source.start, first)
    end = last if source.end is None else resolve_time(source.end, first)
    width = (terminal_width() or 100) - 8
    if end <= begin or not whole.slices.height:
        paragraph("nothing to show: no slice lies in the window; `tracekit info` says what the trace has")
        return
    step = max((end - begin) / width, 1.0)
    bins, groups = lanes(whole.slices, begin, end, step, by)
    signs = {group: SIGNS[i] if i < len(SIGNS) else OTHERS for i, group in enumerate(groups)}
    if as_json and emit_json({"start_ns": begin, "end_ns": end, "step_ns": step, "rows": bins.to_dicts()}):
        return
    if as_csv and emit_csv(bins):
        return
    paragraph(f"{format_moment(begin)} to {format_moment(end)}, {format_ns(step)} a sign")
    drawn: dict[Any, list[str]] = {}
    for cpu, place, group in bins.select("cpu", "bin", "group").iter_rows():
        line = drawn.setdefault(cpu, [IDLE] * width)
        if place < width:
            line[place] = IDLE if group is None else signs[group]
    for cpu in sorted(drawn, key=lambda c: (c is None, c)):
        print(f"CPU {'?' if cpu is None else cpu:<3} {''.join(drawn[cpu])}")
    named = ", ".join(f"{sign} {group}" for group, sign in signs.items() if sign != OTHERS)
    paragraph(f"{named}{f', {OTHERS} others' if len(groups) > len(SIGNS) else ''}, {IDLE} idle")


def lanes(
    slices: pl.DataFrame, begin: int, end: int, step: float, by: str = "comm"
) -> tuple[pl.DataFrame, list[str]]:
    """Which group ran longest in each stretch of time of each CPU.

    Parameters
    ----------
    slices
        The `slices` table.
    begin, end
        The window, ns.
    step
        Length of a stretch, ns.
    by
        Grouping, see `tracekit.analysis.GROUPINGS`.

    Returns
    -------
    tuple
        Table `cpu`, `bin` (Int64), `group` (String, null for idle), `run_ns` (Int64) by CPU and
        time; and the groups, most run time first.
    """
    import math

    import polars as pl

    from tracekit.analysis import group_of

    count = math.ceil((end - begin) / step)
    cut = slices.with_columns(
        group_of(by).fill_null("(no name)"),
        pl.max_horizontal("ts_ns", pl.lit(begin)).alias("from"),
        pl.min_horizontal(pl.col("ts_ns") + pl.col("dur_ns"), pl.lit(end)).alias("to"),
    ).filter(pl.col("from") < pl.col("to"))
    # A slice fills the stretches between its first and its last one, and parts of these two.
    cut = cut.with_columns(
        ((pl.col("from") - begin) / step).floor().cast(pl.Int64).alias("_a"),
        ((pl.col("to") - begin - 1) / step).floor().cast(pl.Int64).clip(0, count - 1).alias("_b"),
    )
    parts = cut.with_columns(pl.int_ranges("_a", pl.col("_b") + 1).alias("bin")).explode("bin")
    left, right = begin + pl.col("bin") * step, begin + (pl.col("bin") + 1) * step
    run = pl.min_horizontal(pl.col("to"), right) - pl.max_horizontal(pl.col("from"), left)
    summed = parts.group_by("cpu", "bin", "group").agg(run.sum().round().cast(pl.Int64).alias("run_ns"))
    busy = pl.col("run_ns").sum().over("cpu", "bin")
    most = (
        summed.with_columns(busy.alias("_busy"))
        .sort("cpu", "bin", "run_ns", "group", descending=[False, False, True, False])
        .group_by("cpu", "bin", maintain_order=True)
        .first()
    )
    idle = pl.col("_busy") < step / 2
    order = (
        summed.group_by("group").agg(pl.col("run_ns").sum()).sort("run_ns", "group", descending=[True, False])
    )
    table = most.with_columns(pl.when(idle).then(None).otherwise("group").alias("group"))
    return table.select("cpu", "bin", "group", "run_ns"), order["group"].to_list()
