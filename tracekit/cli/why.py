"""`tracekit why`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli._choice import Choice
from tracekit.cli._options import Input, by_option, input_options, output_options

if TYPE_CHECKING:
    import polars as pl

    from tracekit.explain import Why
    from tracekit.trace import Trace

SHOWS = {
    "summary": "a sentence, the causes, and the ten longest",
    "causes": "every cause and culprit",
    "worst": "the longest, with times for --from and --to",
    "chains": "through which tasks the work came",
    "matrix": "who delays whom, over all tasks",
    "wakers": "who wakes whom, and whose slices that cuts",
    "pieces": "every part of every span",
}


_HOW = {
    "preempted": "preempted by",
    "waiting": "waiting behind",
    "yielded": "yielded to",
    "awaited": "asleep until",
    "dispatch": "on its way to an idle CPU",
}


def _quantile(context: click.Context, param: click.Parameter, given: str | None) -> float | None:
    if given is None:
        return None
    match = re.fullmatch(r"p(\d{1,2}(?:\.\d+)?)", given)
    if match is None or not 0 < float(match[1]) < 100:
        raise click.BadParameter(f"expected a quantile such as p95 or p99.9, found {given!r}", context, param)
    return float(match[1]) / 100


@click.command(
    "why",
    epilog="""\b
Examples:
  tracekit why boot.dat --comm 'waker*'
  tracekit why boot.dat --comm 'waker*' --of waits --quantile p99 --show worst
  tracekit why boot.dat --comm 'spin*' --of window --from 1s --to 1.5s
  tracekit why boot.dat --show matrix
""",
)
@input_options()
@by_option
@click.option(
    "--of",
    "what",
    type=Choice(["responses", "waits", "window"]),
    default="responses",
    show_default=True,
    help="What to explain: responses (wakeup until the next block), waits for a CPU, or all of the time.",
)
@click.option(
    "--quantile",
    metavar="pNN",
    callback=_quantile,
    help="Which are the slow ones; by default the highest of p99, p95, p90 that five exceed.",
)
@click.option(
    "--show",
    type=Choice(list(SHOWS)),
    default="summary",
    show_default=True,
    help="Which table. " + "; ".join(f"{k}: {v}" for k, v in SHOWS.items()) + ".",
)
@click.option(
    "--what-if",
    "what_if",
    type=click.IntRange(min=1),
    metavar="N",
    help="Replay with each of the N largest causes absent, faster or moved, and say what is gained.",
)
@click.option(
    "--runs",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="Perturbed replays of each change.",
)
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the first N rows.")
@output_options(plot=True)
def command(
    source: Input,
    by: str,
    what: str,
    quantile: float | None,
    show: str,
    what_if: int | None,
    runs: int,
    top: int | None,
    as_json: bool,
    as_csv: bool,
    plot: str | None,
) -> None:
    """Say who delayed a task: who ran while it waited, and what it slept for.

    --comm, --pid and --tid choose whose time is explained; culprits are found among all tasks. The
    parts sum to the time exactly. The tables matrix and wakers are of all tasks.
    """
    from tracekit.cli._output import emit

    if what_if is not None and source.exclude:
        raise click.UsageError(
            "--exclude: what is left out has no part in the replays of --what-if; leave it out"
        )
    if source.cpu:
        raise click.UsageError(
            "--cpu: a task may wait for one CPU and run on another; choose tasks (--comm, --pid, --tid) or a time "
            "(--from, --to)"
        )
    chosen = source.comm or source.pid or source.tid or source.start is not None or source.end is not None
    if show in ("matrix", "wakers") and chosen:
        raise click.UsageError(
            f"--show {show} is of all tasks over the whole time; leave out --comm, --pid, --tid, --from and --to"
        )
    whole = dataclasses.replace(source, comm=(), pid=(), tid=(), cpu=(), start=None, end=None)
    trace = whole.read()
    if show in ("matrix", "wakers"):
        emit(_overall(trace, show, by), trace, show=show, as_json=as_json, as_csv=as_csv, top=top)
        return
    found = trace.why(
        comm=source.comm or None,
        pid=source.pid or None,
        tid=source.tid or None,
        start=source.start,
        end=source.end,
        what=what,
        quantile=quantile,
        by=by,
    )
    if plot is not None:
        _plot(found, trace, plot)
    tested = None
    if what_if is not None:
        from tracekit.explain import counterfactuals

        tested = counterfactuals(trace, found, what_if, runs)
    if show == "summary" and not as_json and not as_csv:
        _summary(found, top)
        if tested is not None:
            _tested(tested)
        return
    frame = {
        "summary": found.table,
        "causes": found.table,
        "worst": found.worst,
        "chains": found.chains if show == "chains" else found.table,
        "pieces": found.pieces,
    }[show]
    emit(frame, trace, show=show, as_json=as_json, as_csv=as_csv, top=top, extra=_extra(found, tested))


def _overall(trace: Trace, show: str, by: str) -> pl.DataFrame:
    from tracekit.analysis import antagonists, blame
    from tracekit.explain import matrix

    if show == "matrix":
        return matrix(trace, by)
    span = (trace.end_ns or 0) - (trace.start_ns or 0)
    return antagonists.wakers(trace.slices, blame.named(trace.tasks, by), span)


def _extra(found: Why, tested: pl.DataFrame | None) -> dict[str, Any]:
    return {
        **({} if tested is None else {"what_if": tested.to_dicts()}),
        "findings": found.findings,
        "sentence": found.sentence,
        "quotas": found.quotas,
        "of": found.what,
        "victims": found.victims,
        "quantile": found.quantile,
        "n_spans": found.spans.height,
        "worst": found.worst.to_dicts(),
    }


def _at(ns: int) -> str:
    return f"@{ns // 10**9}.{ns % 10**9:09d}s"


def _summary(found: Why, top: int | None) -> None:
    """The sentence, the causes, the worst: what a person reads first."""
    from tracekit.cli._output import paragraph, table

    paragraph(found.sentence)
    if found.quotas:
        paragraph(found.quotas)
    print()
    rows = found.table.head(top or 12)
    shown = [
        c for c in ("cause", "culprit", "on", "via", "cpu", "prio") if rows[c].null_count() < rows.height
    ]
    shares = ["share"] if found.quantile is None else ["tail_share", "share"]
    table(rows.to_dicts(), [*shown, *shares, "mean_ns", "n"])
    rest = found.table.height - rows.height
    if rest > 0:
        paragraph(f"{rest} more: --show causes")
    print()
    worst = [
        {
            **{k: row[k] for k in ("task", "span_ns")},
            "when": f"--from {_at(row['start_ts_ns'])} --to {_at(row['end_ts_ns'])}",
            "largest part": _largest(row),
        }
        for row in found.worst.head(top or 10).iter_rows(named=True)
    ]
    paragraph("The longest, each with the largest part that is not its own running:")
    table(worst, ["task", "span_ns", "when", "largest part"])


def _largest(row: Mapping[str, Any]) -> str:
    """What took most of a span beside the task's own running."""
    if row["share"] is None:
        return "none: it ran all the time"
    return (
        f"{100 * row['share']:.0f} % {_HOW.get(row['cause'], row['cause'])} {row['culprit'] or ''}".rstrip()
    )


def _tested(rows: pl.DataFrame) -> None:
    """What the replays without each cause gain."""
    from tracekit.cli._output import paragraph, table
    from tracekit.units import format_ns

    print()
    paragraph("replayed with each cause changed:")
    shown = [
        {
            **{k: row[k] for k in ("culprit", "variant", "attributed_ns", "gain_ns", "verdict")},
            "90 % interval": "-"
            if row["lo_ns"] is None
            else f"{format_ns(row['lo_ns'])} to {format_ns(row['hi_ns'])}",
            "reason": row["reason"],
        }
        for row in rows.iter_rows(named=True)
    ]
    columns = ["culprit", "variant", "attributed_ns", "gain_ns", "90 % interval", "verdict"]
    table(shown, [*columns, *(["reason"] if any(r["reason"] for r in shown) else [])])


def _plot(found: Why, trace: Trace, file: str) -> None:
    from tracekit.cli._output import save_plot
    from tracekit.plot import causes, how_to_read

    save_plot(causes(found.table, name=trace.name, quantile=found.quantile), file, how_to_read(causes))
