"""`tracekit latency`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

import click

from tracekit.cli._choice import Choice
from tracekit.cli._gate import ended, extra_of, gate, gate_option
from tracekit.cli._options import Input, analysis_options, group_option, input_options

if TYPE_CHECKING:
    from tracekit.explain import Condition

SHOWS = {
    "summary": "counts, means and quantiles of each group",
    "cdf": "distribution function, waits cut by the end of the trace as censored",
    "rows": "every wait",
}
#: Columns of the text, most important first.
COLUMNS = {
    "summary": [
        *("group", "n", "n_censored", "n_unreliable", "mean_ns", "mean_is_bound"),
        *("p50_ns", "p95_ns", "p99_ns", "max_ns", "max_at_ns"),
    ],
    "rows": ["ts_ns", "comm", "tid", "cause", "run_delay_ns", "censored", "unreliable"],
}
CAUSES = ("any", "wakeup", "preemption", "yield", "first")


@click.command(
    "latency",
    epilog="""\b
Examples:
  tracekit latency boot.dat
  tracekit latency boot.dat --cause wakeup --by comm --top 10
  tracekit latency boot.dat --comm 'wake*' --plot delay.png
""",
)
@input_options()
@group_option()
@click.option(
    "--cause",
    type=Choice(CAUSES),
    default="any",
    show_default=True,
    help="What made the task wait: a wakeup (wakeup latency), a preemption, a yield, or its first run.",
)
@gate_option()
@analysis_options(SHOWS)
def command(
    source: Input,
    by: str,
    cause: str,
    fail_if: list[Condition],
    show: str,
    top: int | None,
    as_json: bool,
    as_csv: bool,
    plot: str | None,
) -> int:
    """Show run delays: waits of runnable tasks for a CPU.

    The wait begins with the wakeup, or with the preemption or yield after which the task stayed
    runnable. Without records of wakeups in the trace, only waits after preemptions are known.
    """
    from tracekit.analysis import latency
    from tracekit.cli._grouping import grouped, labelled
    from tracekit.cli._loss import LATENCY, WAKEUP, bounds_of, print_bounds
    from tracekit.cli._output import emit, save_plot, survey_facts, wakeup_facts

    of = cast(Literal["any", "wakeup", "preemption", "yield", "first"], cause)
    if (
        known := source.survey(show == "summary" and plot is None and not fail_if and by != "cpu")
    ) is not None:
        grouping, labels = labelled(known, by)
        frame = known.latency_summary(grouping, cause, labels)
        emit(
            frame,
            known,
            show=show,
            as_json=as_json,
            as_csv=as_csv,
            top=top,
            columns=COLUMNS.get(show),
            extra={**survey_facts(known), **(wakeup_facts(known) if cause in ("any", "wakeup") else {})},
        )
        return 0
    part, among = source.read_among()
    trace, by = grouped(part, by, among)
    if plot is not None:
        from tracekit.plot import cdf, how_to_read

        curves = latency.cdf(trace.slices, trace.states, by, of)
        save_plot(cdf(curves, what="run delay", name=trace.name), plot, how_to_read(cdf))
    match show:
        case "summary":
            frame = latency.summary(trace.slices, trace.states, by, of)
        case "cdf":
            frame = latency.cdf(trace.slices, trace.states, by, of)
        case _:
            frame = latency.samples(trace.slices, trace.states)
            frame = frame if cause == "any" else frame.filter(frame["cause"] == cause)
    judged = gate(fail_if, trace, by)
    picks = {"any": LATENCY, "wakeup": WAKEUP}.get(cause, ())
    limits = bounds_of(trace, by, picks) if show == "summary" and picks else []
    emit(
        frame,
        trace,
        show=show,
        as_json=as_json,
        as_csv=as_csv,
        top=top,
        columns=COLUMNS.get(show),
        extra={
            **extra_of(judged),
            **({"bounds": limits} if limits else {}),
            **(wakeup_facts(part) if cause in ("any", "wakeup") else {}),
        },
    )
    print_bounds(trace, limits, picks, frame["group"].to_list()[:top] if limits else ())
    return ended(judged)
