"""`tracekit slices`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tracekit.cli._gate import ended, extra_of, gate, gate_option
from tracekit.cli._options import Input, analysis_options, group_option, input_options

if TYPE_CHECKING:
    from tracekit.explain import Condition

if TYPE_CHECKING:
    import polars as pl

    from tracekit.trace import Trace

SHOWS = {
    "summary": "counts, means and quantiles of each group",
    "histogram": "counts in logarithmic bins",
    "endings": "the states in which tasks left their CPU",
    "cdf": "distribution function, open slices as censored",
    "quantum": "distribution of the time until a task is preempted",
    "rows": "every slice",
}

#: Columns of the text, most important first.
COLUMNS = {
    "summary": [
        *("group", "n", "n_open", "n_unreliable", "nr_involuntary", "mean_per_involuntary_ns"),
        *("p50_ns", "p95_ns", "max_ns", "run_ns"),
    ],
    "histogram": ["group", "lo_ns", "hi_ns", "n", "share", "bar"],
    "rows": ["ts_ns", "cpu", "comm", "tid", "dur_ns", "end_state", "involuntary", "run_delay_ns"],
}


@click.command(
    "slices",
    epilog="""\b
Examples:
  tracekit slices boot.dat
  tracekit slices boot.dat --by comm --comm 'make*' --from 2s --to 5s
  tracekit slices boot.dat --show histogram --csv > bins.csv
  tracekit slices boot.dat --plot slices.png
""",
)
@input_options()
@group_option("cpu")
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
    """Show how long tasks stay on a CPU, and why they leave it.

    A slice is one uninterrupted on-CPU interval of a task. An involuntary switch takes the CPU from a
    task that was ready to go on. "mean per involuntary" is run time / involuntary switches.
    """
    from tracekit.analysis import slices
    from tracekit.cli._grouping import grouped, labelled
    from tracekit.cli._loss import SLICES, bounds_of, print_bounds
    from tracekit.cli._output import emit, on_standard_output, save_plot, survey_facts

    if (
        known := source.survey(show == "summary" and plot is None and not fail_if and by != "cpu")
    ) is not None:
        frame = known.slice_summary(*labelled(known, by))
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
        return 0
    part, among = source.read_among()
    trace, by = grouped(part, by, among)
    if plot is not None:
        import polars as pl

        from tracekit.plot import cdf, histogram, how_to_read

        if show == "cdf":
            figure = cdf(slices.cdf(trace.slices, by), what="slice", name=trace.name)
        elif show == "quantum":
            # A task that was never preempted has no curve.
            curve = slices.quantum(trace.slices, by)
            made = curve.filter(pl.col("n_events").sum().over("group") > 0)
            figure = cdf(made, what="time until a task is preempted", name=trace.name, cut="not preempted")
        else:
            figure = histogram(slices.histogram(trace.slices, by, bins_per_decade=10), name=trace.name)
        save_plot(figure, plot, how_to_read(cdf if show in ("cdf", "quantum") else histogram))
    match show:
        case "summary":
            frame = slices.summary(trace.slices, by)
        case "histogram":
            frame = slices.histogram(trace.slices, by)
        case "endings":
            frame = slices.endings(trace.slices, by)
        case "cdf":
            frame = slices.cdf(trace.slices, by)
        case "quantum":
            frame = slices.quantum(trace.slices, by)
        case _:
            frame = trace.slices
    judged = gate(fail_if, trace, by)
    limits = bounds_of(trace, by, SLICES) if show == "summary" else []
    if show == "histogram":
        frame = with_bars(frame)
    emit(
        frame,
        trace,
        show=show,
        as_json=as_json,
        as_csv=as_csv,
        top=top,
        columns=COLUMNS.get(show),
        extra={**extra_of(judged), **({"bounds": limits} if limits else {})},
    )
    print_bounds(trace, limits, SLICES, frame["group"].to_list()[:top] if limits else ())
    if show == "summary" and not on_standard_output():
        _say_yields(trace, by)
    return ended(judged)


def with_bars(frame: pl.DataFrame) -> pl.DataFrame:
    """A histogram with a column of bars; the longest of each group has 24 signs."""
    import polars as pl

    eighths = (8 * 24 * pl.col("n") / pl.col("n").max().over("group")).round().cast(pl.Int64)
    parts = "\u258f\u258e\u258d\u258c\u258b\u258a\u2589"
    return frame.with_columns(
        eighths.map_elements(
            lambda e: "\u2588" * (e // 8) + (parts[e % 8 - 1] if e % 8 else ""), return_dtype=pl.String
        ).alias("bar")
    )


def _say_yields(trace: Trace, by: str) -> None:
    """Say where involuntary switches look like yields."""
    from tracekit.analysis import yields
    from tracekit.cli._output import paragraph
    from tracekit.whatif.recorded import part

    recorded = part(trace)
    if not trace.slices.height or (recorded is not None and not recorded.alone):
        # Who woke on that CPU is not known: others wake, too, and were not recorded.
        return
    for row in yields.likely(trace.slices, trace.events, by).iter_rows(named=True):
        if 2 * row["n_likely"] > row["nr_involuntary"]:
            paragraph(
                f"note: {row['n_likely']:,} of {row['nr_involuntary']:,} involuntary switches of {row['group']} look like "
                "yields: after running for less than 0.7 ms, while nobody woke on that CPU"
            )
