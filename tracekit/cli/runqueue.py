"""`tracekit runqueue`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from tracekit.cli._options import Input, analysis_options, input_options

if TYPE_CHECKING:
    import polars as pl

SHOWS = {
    "summary": "mean, quantiles and maximum over time",
    "distribution": "share of time at each length, and exceedance P(> length)",
    "at-switch": "share of switches at each length",
    "rows": "each interval of constant length",
}

#: Columns of the text, most important first.
COLUMNS = {
    "summary": [
        *("scope", "cpu", "mean", "mean_is_bound", "p50", "p95", "p99", "max"),
        *("empty_share", "estimated_share"),
    ],
    "rows": ["ts_ns", "scope", "cpu", "dur_ns", "length", "estimated"],
}


@click.command(
    "runqueue",
    epilog="""\b
Examples:
  tracekit runqueue boot.dat
  tracekit runqueue boot.dat --show distribution --cpu 0-3
  tracekit runqueue boot.dat --show at-switch --json
  tracekit runqueue boot.dat --waiting --plot queue.svg
""",
)
@input_options()
@click.option("--waiting", is_flag=True, help="Count waiting tasks only; by default the running one, too.")
@analysis_options(SHOWS)
def command(
    source: Input, waiting: bool, show: str, top: int | None, as_json: bool, as_csv: bool, plot: str | None
) -> None:
    """Show how many tasks are runnable at a time.

    Per CPU and in all, weighted by time, or as each switch finds it.

    Filters on tasks do not change run queues: a queue belongs to its CPU. Where the source does not
    record each queue operation, a waiting task counts on the CPU that its wakeup named ("estimated
    share").
    """
    from tracekit.analysis import runqueue
    from tracekit.cli._loss import QUEUE, bounds_of, print_bounds
    from tracekit.cli._output import emit, save_plot, survey_facts

    count: Literal["all", "waiting"] = "waiting" if waiting else "all"
    if (known := source.survey(show == "summary" and plot is None)) is not None and known.queues_known:
        frame = known.runqueue_summary(count)
        emit(
            frame,
            known,
            show=show,
            as_json=as_json,
            as_csv=as_csv,
            top=top,
            columns=COLUMNS.get(show),
            extra=survey_facts(known),
        )
        return
    trace = source.read()
    end = trace.end_ns
    if plot is not None:
        from tracekit.plot import how_to_read, queue_distribution

        at_switch = show == "at-switch"
        shares = (
            runqueue.at_switch(trace.runqueue, trace.events, count)
            if at_switch
            else runqueue.distribution(trace.runqueue, end, count)
        )
        figure = queue_distribution(
            _system(shares), name=trace.name, at_switch=at_switch, waiting_only=waiting
        )
        save_plot(figure, plot, how_to_read(queue_distribution))
    match show:
        case "summary":
            frame = runqueue.summary(trace.runqueue, end, count)
        case "distribution":
            frame = runqueue.distribution(trace.runqueue, end, count)
        case "at-switch":
            frame = runqueue.at_switch(trace.runqueue, trace.events, count)
        case _:
            frame = runqueue.steps(trace.runqueue, end, count)
    limits = bounds_of(trace, "group", QUEUE) if show == "summary" and not waiting else []
    emit(
        frame,
        trace,
        show=show,
        as_json=as_json,
        as_csv=as_csv,
        top=top,
        columns=COLUMNS.get(show),
        extra={"bounds": limits} if limits else None,
    )
    print_bounds(trace, limits, QUEUE)


def _system(shares: pl.DataFrame) -> pl.DataFrame:
    return shares.filter(shares["scope"] == "system")
