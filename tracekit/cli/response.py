"""`tracekit response`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tracekit.cli._gate import ended, extra_of, gate, gate_option
from tracekit.cli._options import Input, analysis_options, group_option, input_options

if TYPE_CHECKING:
    from tracekit.explain import Condition

SHOWS = {
    "summary": "counts, means and quantiles of each group",
    "cdf": "distribution function, responses cut by the end of the trace as censored",
    "rows": "every response",
}

#: Columns of the text, most important first.
COLUMNS = {
    "summary": [
        *("group", "n", "n_censored", "n_excluded", "mean_ns", "mean_is_bound"),
        *("p50_ns", "p95_ns", "p99_ns", "max_ns"),
    ],
    "rows": [
        *("wake_ts_ns", "comm", "tid", "response_ns", "run_ns", "wait_ns", "nr_slices", "end_state"),
        *("status", "censored"),
    ],
}


@click.command(
    "response",
    epilog="""\b
Examples:
  tracekit response boot.dat
  tracekit response boot.dat --comm 'gen*' --show rows --csv > responses.csv
  tracekit response boot.dat --by comm --plot response.png
""",
)
@input_options()
@group_option()
@gate_option()
@analysis_options(SHOWS)
def command(
    source: Input,
    by: str,
    fail_if: list[Condition],
    show: str,
    top: int | None,
    as_json: bool,
    as_csv: bool,
    plot: str | None,
) -> int:
    """Show response times: wakeup until the next block.

    A response lasts from a wakeup until the task next blocks or exits. All slices of the task in
    between, and all its waits before and between them, are part of the response.
    """
    from tracekit.analysis import response
    from tracekit.cli._grouping import grouped, labelled
    from tracekit.cli._loss import RESPONSE, bounds_of, print_bounds
    from tracekit.cli._output import emit, save_plot, survey_facts, wakeup_facts

    if (
        known := source.survey(show == "summary" and plot is None and not fail_if and by != "cpu")
    ) is not None:
        frame = known.response_summary(*labelled(known, by))
        emit(
            frame,
            known,
            show=show,
            as_json=as_json,
            as_csv=as_csv,
            top=top,
            columns=COLUMNS.get(show),
            extra={**survey_facts(known), **wakeup_facts(known)},
        )
        return 0
    part, among = source.read_among()
    trace, by = grouped(part, by, among)
    tables = trace.slices, trace.states, trace.end_ns
    if plot is not None:
        from tracekit.plot import cdf, how_to_read

        curves = response.cdf(*tables, by)
        save_plot(cdf(curves, what="response time", name=trace.name), plot, how_to_read(cdf))
    match show:
        case "summary":
            frame = response.summary(*tables, by)
        case "cdf":
            frame = response.cdf(*tables, by)
        case _:
            frame = response.samples(*tables)
    judged = gate(fail_if, trace, by)
    limits = bounds_of(trace, by, RESPONSE) if show == "summary" else []
    emit(
        frame,
        trace,
        show=show,
        as_json=as_json,
        as_csv=as_csv,
        top=top,
        columns=COLUMNS.get(show),
        extra={**extra_of(judged), **({"bounds": limits} if limits else {}), **wakeup_facts(part)},
    )
    print_bounds(trace, limits, RESPONSE, frame["group"].to_list()[:top] if limits else ())
    return ended(judged)
