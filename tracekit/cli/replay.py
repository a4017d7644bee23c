"""`tracekit replay`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tracekit.cli._options import (
    Input,
    columns_option,
    group_option,
    input_options,
    output_options,
    output_place,
)
from tracekit.cli._replaying import (
    asked,
    caution,
    costs_together,
    print_basis,
    progress_bar,
    replay_options,
    together,
)

if TYPE_CHECKING:
    import polars as pl

    from tracekit.trace import Trace
    from tracekit.whatif.scenario import Override, Scenario

#: Columns of the text, most important first.
COLUMNS = [
    *("group", "trace", "nr_involuntary", "mean_per_involuntary_ns", "run_delay_mean_ns"),
    *("run_delay_p95_ns", "response_p95_ns", "run_ns"),
]


@click.command(
    "replay",
    epilog="""\b
Examples:
  tracekit replay boot.dat --policy cfs:wakeup_preemption=off
  tracekit replay boot.dat --policy rr:quantum=10ms --cpus 2 -o replay.parquet
  tracekit replay boot.dat --policy cfs --set 'make*:nice=10'
  tracekit replay boot.dat --policy 4bsd --cost fork=list:20us/100ns
  tracekit replay boot.dat --policy cfs --program steps.csv    what tasks do
  tracekit slices replay.parquet            a replay is a trace like any other
""",
)
@input_options()
@click.option(
    "--policy",
    metavar="POLICY",
    help="NAME:PARAM=VALUE,..., or linux-VERSION for what that kernel schedules with; by default the policy of "
    "the recording, where something else is changed. See `tracekit policies`.",
)
@replay_options
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    callback=output_place,
    help="Write the replay's events: .parquet, .arrow or .csv.",
)
@click.option(
    "--program",
    metavar="FILE",
    callback=output_place,
    help="Write what each task does, one row per step: .parquet, .arrow or .csv.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print what was inferred about the recorded run, too.")
@group_option()
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the first N rows.")
@columns_option
@output_options()
def command(
    source: Input,
    policy: str | None,
    loop: str | None,
    cpus: int | None,
    hz: int | None,
    endless: tuple[str, ...],
    placement: str,
    rt: str | None,
    overrides: list[Override],
    scenario: Scenario | None,
    overheads: bool,
    switch_costs: bool,
    costs: dict[str, str],
    output: str | None,
    program: str | None,
    verbose: bool,
    by: str,
    top: int | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Run a trace under another policy.

    What each task did (its bursts, and why each sleep ended) is reconstructed from the trace and
    run under the policy. Shows each group of tasks as recorded and as replayed; `tracekit compare`
    adds how far to trust it. --comm, --exclude, --pid, --tid and --cpu choose what is shown; everything
    is replayed, and written.
    """
    import tracekit as tk
    from tracekit.cli._grouping import grouped_alike
    from tracekit.cli._output import emit, on_standard_output, paragraph
    from tracekit.io.writers import output_kind
    from tracekit.registry import check_policy
    from tracekit.whatif.basis import uneven

    changes = bool(overrides or scenario or costs) or cpus is not None or rt is not None
    policies, loop = asked([policy] if policy else [], loop, scenario, changes)
    policy = policies[0] if policies else None
    if policy is not None:
        check_policy(policy)
    for file in filter(None, (output, program)):
        output_kind(file)
    trace, among = source.whole.read_among()
    caution(trace, source.quiet)
    with progress_bar(f"replaying {trace.name}", trace, source.quiet) as progress:
        run = tk.replay(
            trace,
            policy,
            loop=loop,
            rt=rt,
            cpus=cpus,
            hz=hz,
            endless=endless,
            placement=placement,
            overheads=overheads,
            switch_costs=switch_costs,
            costs=costs_together(scenario, costs),
            scenario=together(scenario, overrides),
            progress=progress,
        )
    source.warn(run)
    if output is not None:
        run.write(output)
        print(f"wrote {output}", file=sys.stderr)
    if program is not None:
        run.write(program, table="program")
        print(f"wrote {program}", file=sys.stderr)
    basis = {"wakeups": run.wakeups, "inferred": run.inferred.to_dicts()}
    part, shown = source.of_replays(trace, run)
    frame = figures(*grouped_alike(part, shown, by, among))
    emit(frame, run, show="replay", as_json=as_json, as_csv=as_csv, top=top, extra=basis, columns=COLUMNS)
    if not on_standard_output():
        print()
        paragraph(
            f"{trace.name} under {run.policy.partition(',')[0]}, wakeup model {loop}{'' if verbose else '; -v: what it rests on'}"
        )
        if (text := uneven(run)) is not None:
            paragraph(text)
        if verbose:
            print_basis(run)


def figures(trace: Trace, run: Trace, by: str) -> pl.DataFrame:
    """The main metrics of each group, recorded and replayed, in the order of recorded run time."""
    import polars as pl

    from tracekit.analysis import latency, response, slices

    rows = []
    for what, t in (("recorded", trace), ("replayed", run)):
        cut = slices.summary(t.slices, by)
        delay = latency.summary(t.slices, t.states, by)
        answer = response.summary(t.slices, t.states, t.end_ns, by)
        columns = [
            pl.col("mean_ns").alias("run_delay_mean_ns"),
            pl.col("p95_ns").alias("run_delay_p95_ns"),
        ]
        both = (
            cut.select(
                "group",
                pl.lit(what).alias("trace"),
                "run_ns",
                "nr_involuntary",
                "mean_per_involuntary_ns",
                pl.col("p50_ns").alias("slice_p50_ns"),
            )
            .join(delay.select("group", *columns), on="group", how="left", nulls_equal=True)
            .join(
                answer.select("group", pl.col("p95_ns").alias("response_p95_ns")),
                on="group",
                how="left",
                nulls_equal=True,
            )
        )
        rows.append(both)
    order = rows[0].select("group", pl.int_range(pl.len()).alias("place"))
    joined = pl.concat(rows).join(order, on="group", how="left", nulls_equal=True)
    return joined.sort("place", "trace", nulls_last=True, maintain_order=True).drop("place")
