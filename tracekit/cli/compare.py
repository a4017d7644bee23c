"""`tracekit compare`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tracekit.cli._gate import ended, extra_of, gate_option, kept
from tracekit.cli._options import (
    Input,
    analysis_options,
    by_option,
    input_options,
    output_place,
    source_place,
)
from tracekit.cli._replaying import (
    asked,
    caution,
    costs_together,
    importing,
    progress_bar,
    replay_options,
    runs_options,
    together,
)
from tracekit.errors import OutputError

if TYPE_CHECKING:
    from tracekit.explain import Condition
    from tracekit.whatif.scenario import Override, Scenario

SHOWS = {
    "summary": "the main metrics of the tasks that are changed, then of those with most CPU time",
    "all": "every metric of every group",
    "calibration": "what the identity replay gets wrong, metric by metric",
    "distances": "how far distributions are from the recorded ones",
}
#: Attribute of a comparison that holds the table.
SHOWN = {"summary": "summary", "all": "table", "calibration": "fidelity", "distances": "distances"}


@click.command(
    "compare",
    epilog="""\b
Examples:
  tracekit compare boot.dat --policy cfs --policy rr:quantum=10ms -o page.html
  tracekit compare boot.dat --policy cfs:latency=9ms --json | jq .summary
  tracekit compare boot.dat --policy eevdf --quick        a first look
  tracekit compare boot.dat --policy linux-6.12.111       an upgrade
  tracekit compare boot.dat --policy cfs --identity eevdf --by comm
  tracekit compare day.dat --set 'backup*: nice=19'       other tasks
  tracekit compare day.dat --set 'backup*: nice=19' --real niced.dat
                                         was the prediction right?
""",
)
@input_options()
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="POLICY",
    help="NAME:PARAM=VALUE,..., or linux-VERSION for what that kernel schedules with; can be given several "
    "times. By default the policy of the recording, where something else is changed. See `tracekit policies`.",
)
@click.option(
    "--identity", metavar="POLICY", help="Policy the trace was captured under; by default inferred."
)
@replay_options
@click.option(
    "--real",
    metavar="FILE",
    callback=source_place,
    help="A recording under what is asked for: each prediction is held against it. Names and groups of tasks are "
    "to be the same.",
)
@runs_options("the prediction and its interval; 1: no interval.")
@click.option(
    "--quick", is_flag=True, help="A first look: each replay once, so without intervals (--runs 1)."
)
@click.option(
    "-o", "--output", metavar="FILE", callback=output_place, help="Write the report: one page of HTML."
)
@click.option(
    "--force",
    is_flag=True,
    help="Compare also where nothing models what is asked for; every row is then marked `do not use`.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print what was inferred about the recorded run, too.")
@gate_option(baseline=True)
@by_option
@analysis_options(SHOWS)
def command(
    source: Input,
    policies: tuple[str, ...],
    identity: str | None,
    real: str | None,
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
    runs: int,
    quick: bool,
    jobs: int | None,
    output: str | None,
    force: bool,
    verbose: bool,
    fail_if: list[Condition],
    by: str,
    show: str,
    top: int | None,
    as_json: bool,
    as_csv: bool,
    plot: str | None,
) -> int:
    """Compare policies on a trace, with an error bar.

    The trace is replayed under each policy, and under the one that it was captured under (the
    identity replay). A change that is not larger than what the identity replay gets wrong, or than
    its sensitivity to small perturbations, is "not resolved". Beside each prediction stand its 90 %
    interval and how far it can be trusted. Tasks that --set or a scenario changes are shown first; a
    large change of tasks that are not shown is named. --comm, --exclude, --pid and --tid choose the
    tasks that are shown and judged; all are replayed. A change that nothing models is refused with
    exit status 4.
    """
    import dataclasses

    import tracekit as tk
    from tracekit.cli._comparison import print_comparison, print_rows
    from tracekit.cli._output import about, chosen, emit, emit_csv, emit_json, save_plot
    from tracekit.registry import check_policy
    from tracekit.whatif.not_modelled import split

    changes = bool(overrides or scenario or costs or real) or cpus is not None or rt is not None
    if hz is not None and not changes and not policies:
        raise click.UsageError(
            "--hz says how often the clock of the recorded machine ticks, in every replay: alone it asks for nothing. "
            "What another clock tick changes is not compared"
        )
    named, loop = asked(policies, loop, scenario, changes)
    if real is not None and len(set(named)) > 1:
        raise click.UsageError(f"--real {real} is a recording under one policy; {len(set(named))} were given")
    for policy in (*named, *filter(None, [identity])):
        check_policy(split(policy)[0])
    if source.cpu:
        raise click.UsageError(
            "--cpu: a replay may put tasks on other CPUs, so that no row is of some CPUs; choose tasks (--comm, --tid), "
            "or ask for a machine with fewer CPUs (--cpus)"
        )
    if output is not None and not output.lower().endswith((".html", ".htm")):
        raise OutputError(f"{output}: expected a name that ends in .html")
    with importing("tracekit.whatif.comparing", "tracekit.cli._comparison"):
        trace = source.whole.read()
        held = None
        if real is not None:
            # Numbers of tasks and times are others in another recording.
            own = {k: v for k, v in source.options.items() if k != "machine"}
            held = dataclasses.replace(source.whole, path=real, options=own, start=None, end=None).read()
    caution(trace, source.quiet)
    with progress_bar(f"replaying {trace.name}", trace, source.quiet) as progress:
        comparison = tk.compare(
            trace,
            list(dict.fromkeys(named)),
            identity=identity,
            by=by,
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
            runs=1 if quick else runs,
            jobs=jobs,
            force=force,
            progress=progress,
            real=held,
            comm=source.comm or None,
            pid=source.pid or None,
            tid=source.tid or None,
            exclude=source.exclude or None,
        )
        # Computed when first asked for, which shall be while the line is there.
        judged = []
        if fail_if:
            from tracekit.explain import judge_rows

            rows = list(comparison.table.iter_rows(named=True))
            judged = kept([one for condition in fail_if for one in judge_rows(condition, rows)])
        described = {"trace": about(trace) | comparison.describe()} if as_json else {}
        extra = {**comparison.to_dict(), **described, **extra_of(judged)} if as_json else {}
        comparison.fidelity.height, comparison.table.height  # noqa: B018
    if output is not None:
        comparison.to_html(output)
        print(f"wrote {output}", file=sys.stderr)
    if plot is not None:
        from tracekit import plot as pictures

        picture = pictures.predictions(comparison.summary, name=trace.name)
        save_plot(picture, plot, pictures.how_to_read(pictures.predictions))
    if not (as_json and emit_json(extra)):
        frame = getattr(comparison, SHOWN[show])
        frame = frame if top is None else frame.head(top)
        if not (as_csv and emit_csv(frame)):
            if show not in ("summary", "all"):
                emit(frame, trace, show=show, as_json=False, as_csv=False)
            elif names := chosen(frame.columns):
                print_rows(frame, names)
            else:
                print_comparison(comparison, frame, verbose)
    return ended(judged)
