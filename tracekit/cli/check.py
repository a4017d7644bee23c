"""`tracekit check`."""

from __future__ import annotations

import dataclasses

import click

from tracekit.cli._choice import Choice
from tracekit.cli._gate import decided
from tracekit.cli._options import Input, input_options, output_options

SHOWS = {
    "summary": "a row a rule",
    "violations": "every violation, with its window",
    "open": "those that nothing explains",
}


def _limit(context: click.Context, param: click.Parameter, given: str) -> int:
    from tracekit.units import parse_duration

    try:
        return parse_duration(given)
    except ValueError as error:
        raise click.BadParameter(str(error), context, param) from None


@click.command(
    "check",
    epilog="""\b
Examples:
  tracekit check boot.dat
  tracekit check boot.dat --show violations --top 20
  tracekit check boot.dat --limit 4ms --json
""",
)
@input_options(filters=False)
@click.option(
    "--limit",
    "limit_ns",
    default="1ms",
    show_default=True,
    metavar="TIME",
    callback=_limit,
    help="Shortest window in which a CPU is idle beside a waiting task, or a real-time task waits behind a lesser one.",
)
@click.option(
    "--show",
    type=Choice(list(SHOWS)),
    default="summary",
    show_default=True,
    help="Which table. " + "; ".join(f"{k}: {v}" for k, v in SHOWS.items()) + ".",
)
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the first N rows.")
@output_options()
def command(source: Input, limit_ns: int, show: str, top: int | None, as_json: bool, as_csv: bool) -> int:
    """Check whether the schedule keeps its promises.

    Rules over records (a task has one CPU, runs only when woken, ...) and over time (no CPU idle
    beside a waiting task, no real-time task behind a lesser one). Ends with status 3 when one is
    broken and nothing in the capture explains it: losses, clocks, a quota, what is left to others
    beside real-time tasks, a recorder that leaves a kind of record out.
    """
    from tracekit.cli._output import emit, paragraph
    from tracekit.explain import check
    from tracekit.explain.gate import FAILED

    whole = dataclasses.replace(source, comm=(), pid=(), tid=(), cpu=(), start=None, end=None)
    trace = whole.read()
    found = check(trace, limit_ns)
    status = decided(0 if found.ok else FAILED)
    if not as_json and not as_csv:
        paragraph(found.sentence)
        print()
    frame = {"summary": found.summary, "violations": found.violations, "open": found.open}[show]
    if frame.height or as_json or as_csv:
        extra = {"sentence": found.sentence, "ok": found.ok, "findings": found.findings}
        columns = (
            [
                "rule",
                "result",
                "n",
                "n_loss",
                "n_clock",
                "n_quota",
                "n_throttling",
                "n_recorder",
                "first_ts_ns",
                "says",
            ]
            if show == "summary"
            else None
        )
        emit(frame, trace, show=show, as_json=as_json, as_csv=as_csv, top=top, columns=columns, extra=extra)
    return status
