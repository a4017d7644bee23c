"""`tracekit timeline`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tracekit.cli._choice import Choice
from tracekit.cli._options import Input, input_options, output_options

if TYPE_CHECKING:
    import polars as pl

    from tracekit.trace import Trace

#: Signs of groups, most run time first; further groups share one.
SIGNS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
OTHERS, IDLE, UNKNOWN = "+", ".", "?"


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
    type=Choice(["comm", "group", "tid"]),
    default="comm",
    show_default=True,
    help="What a letter stands for: a name, a name without the number at its end, or a thread.",
)
@output_options()
def command(source: Input, by: str, as_json: bool, as_csv: bool) -> None:
    """Show who ran on each CPU, as text.

    Each line is a CPU, each sign a stretch of time: the letter of the task that ran longest in it,
    a dot where the CPU was idle for most of it, a question mark where its records are missing:
    before its first one, in a loss, behind a missing switch, outside the trace. Without --from and
    --to, the whole trace.
    """
    import math

    from tracekit.cli._output import emit_csv, emit_json, paragraph
    from tracekit.cli._table import terminal_width
    from tracekit.errors import FilterError
    from tracekit.filters import resolve_time
    from tracekit.units import format_moment, format_ns
    from tracekit.whatif.recorded import part

    # Slices that began before the window belong to it, too: it is cut here, not by the filter.
    whole = source.read(window=False)
    first, last = whole.start_ns or 0, whole.end_ns or 0
    begin = first if source.start is None else resolve_time(source.start, first)
    end = last if source.end is None else resolve_time(source.end, first)
    if source.start is not None and source.end is not None and end <= begin:
        raise FilterError(f"the window is empty: it ends ({source.end}) before it starts ({source.start})")
    width = (terminal_width() or 100) - 8
    if end <= begin or not whole.slices.height or end <= first or begin >= last:
        paragraph("nothing to show: no slice lies in the window; `tracekit info` says what the trace has")
        return
    step = max((end - begin) / width, 1.0)
    some = (of := part(whole)) is not None and of.tasks is not None
    # Of a recording of some tasks nobody knows whether the rest was idle.
    bins, groups = lanes(whole.slices, begin, end, step, by, 0.0 if some else 0.5)
    signs = {group: SIGNS[i] if i < len(SIGNS) else OTHERS for i, group in enumerate(groups)}
    unknown = unseen(whole, begin, end)
    of_cpus = [{"cpu": cpu, "from_ns": lo, "to_ns": hi} for cpu, spans in unknown.items() for lo, hi in spans]
    found = {"start_ns": begin, "end_ns": end, "step_ns": step, "rows": bins.to_dicts(), "unknown": of_cpus}
    if as_json and emit_json(found):
        return
    if as_csv and emit_csv(bins):
        return
    paragraph(f"{format_moment(begin)} to {format_moment(end)}, {format_ns(step)} a sign")
    drawn: dict[Any, list[str]] = {cpu: [IDLE] * width for cpu in unknown}
    for cpu, spans in unknown.items():
        for lo, hi in spans:
            # Stretches whose middle lies in it.
            since, until = (math.ceil((t - begin) / step - 0.5) for t in (lo, hi))
            drawn[cpu][since:until] = UNKNOWN * len(drawn[cpu][since:until])
    for cpu, place, group in bins.select("cpu", "bin", "group").iter_rows():
        line = drawn.setdefault(cpu, [IDLE] * width)
        if place < width and group is not None:
            line[place] = signs[group]
    for cpu in sorted(drawn, key=lambda c: (c is None, c)):
        print(f"CPU {'?' if cpu is None else cpu:<3} {''.join(drawn[cpu])}")
    met = {sign for line in drawn.values() for sign in line}
    named = [f"{sign} {group}" for group, sign in signs.items() if sign != OTHERS and sign in met]
    named += [f"{OTHERS} others"] * (OTHERS in met)
    chosen = source.comm or source.pid or source.tid or source.exclude
    named += [f"{IDLE} idle or a task left out" if chosen else f"{IDLE} idle"]
    named += [f"{UNKNOWN} not recorded"] * (UNKNOWN in met)
    paragraph(", ".join(named))


def unseen(trace: Trace, begin: int, end: int) -> dict[int, list[tuple[int, int]]]:
    """Stretches of a window of which nothing is recorded, by CPU.

    Parameters
    ----------
    trace
        The trace, whole.
    begin, end
        The window, ns.

    Returns
    -------
    dict
        For each CPU of the trace, intervals by time: before its first record, losses
        (`Trace.missing`), where switches contradict each other, and what lies outside the trace; all,
        where only some tasks were recorded.
    """
    from tracekit.analysis.completion import union
    from tracekit.analysis.occupancy import occupancy
    from tracekit.whatif.recorded import part

    of = part(trace)
    some = of is not None and of.tasks is not None

    windows = trace.missing().windows
    nobody: dict[int, list[tuple[int, int]]] = {}
    if not some and trace.runqueue.height:
        span = (trace.start_ns or 0, trace.end_ns or 0)
        who = occupancy(trace.slices, trace.runqueue, trace.events.clear(), *span)
        for cpu, lo, hi in who.filter(who="unknown").select("cpu", "start_ns", "end_ns").iter_rows():
            nobody.setdefault(cpu, []).append((lo, hi))
    rows = trace.cpus.sort("cpu").select("cpu", "first_ts_ns").drop_nulls().iter_rows()
    found = {}
    for cpu, first in rows:
        lost = [(w.lo, w.hi) for w in windows.get(cpu, ())]
        spans = [(begin, end if some else first), (trace.end_ns or end, end), *lost, *nobody.get(cpu, ())]
        cut = [(max(lo, begin), min(hi, end)) for lo, hi in spans]
        found[cpu] = list(zip(*(t.tolist() for t in union([c for c in cut if c[0] < c[1]])), strict=True))
    return found


def lanes(
    slices: pl.DataFrame, begin: int, end: int, step: float, by: str = "comm", least: float = 0.5
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
    least
        Share of a stretch below which it counts as idle.

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
    idle = pl.col("_busy") < step * least
    order = (
        summed.group_by("group").agg(pl.col("run_ns").sum()).sort("run_ns", "group", descending=[True, False])
    )
    table = most.with_columns(pl.when(idle).then(None).otherwise("group").alias("group"))
    return table.select("cpu", "bin", "group", "run_ns"), order["group"].to_list()
