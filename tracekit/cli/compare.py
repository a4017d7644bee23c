"""`tracekit compare`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tracekit.cli._options import Input, by_option, input_options, output_place
from tracekit.cli._replaying import asked, costs_together, progress_bar, replay_options, together
from tracekit.errors import OutputError

if TYPE_CHECKING:
    from tracekit.whatif import Comparison
    from tracekit.whatif.scenario import Override, Scenario


@click.command(
    "compare",
    epilog="""\b
Examples:
  tracekit compare boot.dat --policy cfs --policy rr:quantum=10ms -o report.html
  tracekit compare boot.dat --policy cfs:wakeup_preemption=off --json - | jq .summary
  tracekit compare boot.dat --policy cfs --identity eevdf --by comm
""",
)
@input_options()
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="POLICY",
    help="NAME:PARAM=VALUE,...; can be given several times. See `tracekit policies`.",
)
@click.option(
    "--identity", metavar="POLICY", help="Policy the trace was captured under; by default inferred."
)
@replay_options
@click.option(
    "--runs",
    type=click.IntRange(1, 1000),
    default=9,
    show_default=True,
    help="How often each replay is repeated with small changes of the machine, for the interval; 1: no interval.",
)
@click.option(
    "--quick", is_flag=True, help="A first look: each replay once, so without intervals (--runs 1)."
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    metavar="N",
    help="How many replays run at the same time; by default one for each CPU. The result is the same for any number.",
)
@click.option(
    "-o", "--output", metavar="FILE", callback=output_place, help="Write the report: one page of HTML."
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    callback=output_place,
    help="Write all figures as JSON; - for standard output.",
)
@by_option
def command(
    source: Input,
    policies: tuple[str, ...],
    identity: str | None,
    loop: str | None,
    cpus: int | None,
    hz: int | None,
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
    json_file: str | None,
    by: str,
) -> None:
    """Compare policies on a trace, with an error bar.

    The trace is replayed under each policy, and under the one that it was captured under (the identity replay). A
    change that is not larger than what the identity replay gets wrong, or than what small changes of the machine do,
    is "not resolved". Beside each prediction stand its 90 % interval and the result of the calibration
    (`tracekit calibrate`).
    """
    import tracekit as tk
    from tracekit.registry import check_policy

    named, loop = asked(policies, loop, scenario)
    for policy in (*named, *filter(None, [identity])):
        check_policy(policy)
    if output is not None and not output.lower().endswith((".html", ".htm")):
        raise OutputError(f"{output}: expected a name that ends in .html")
    trace = source.read()
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
            overheads=overheads,
            switch_costs=switch_costs,
            costs=costs_together(scenario, costs),
            scenario=together(scenario, overrides),
            runs=1 if quick else runs,
            jobs=jobs,
            progress=progress,
        )
    if output is not None:
        comparison.to_html(output)
        print(f"wrote {output}", file=sys.stderr)
    if json_file == "-":
        sys.stdout.write(comparison.to_json())
        return
    if json_file is not None:
        comparison.to_json(json_file)
        print(f"wrote {json_file}", file=sys.stderr)
    _print(comparison)


def _print(comparison: Comparison) -> None:
    from tracekit.cli._output import cell, paragraph, table
    from tracekit.units import format_bound
    from tracekit.whatif.comparison import inferred

    identity = comparison.identity_policy.partition(":")[0]
    paragraph(f"{comparison.trace.name}; identity replay under {identity}: {comparison.why}")
    fidelity = comparison.fidelity
    failed = fidelity.filter(result="fail")["metric"].to_list()
    judged = fidelity.filter(result="pass").height + len(failed)
    told = f", {len(failed)} fail: {', '.join(failed)}" if failed else ""
    paragraph(f"calibration: {judged - len(failed)} of {judged} metrics pass{told}")
    for row in inferred(comparison.identity):
        if row["name"] == "unexplained messages":
            paragraph(f"with care: {row['how']}")
    print()
    rows = []
    for row in comparison.summary.iter_rows(named=True):
        unit = "value_ns" if row["unit"] == "ns" else "value"
        shown = {key: cell(unit, row[key]) for key in ("recorded", "identity", "predicted")}
        change = "-" if row["change_pct"] is None else f"{row['change_pct']:+.1f} %"
        span, two = (
            None if row[a] is None else tuple(format_bound(row[c], row["unit"]) for c in (a, b))
            for a, b in (("low", "high"), ("bistable_low", "bistable_high"))
        )
        rows.append(
            {
                "group": row["group"] or "(system)",
                "figure": f"{row['metric'].replace('_', ' ')} {row['statistic']}",
                **shown,
                "90 % interval": "-" if span is None else " to ".join(span),
                "change": change,
                "verdict": row["verdict"] + ("" if two is None else f"; bistable: {' or '.join(two)}"),
                "calibration": row["calibration"],
                "policy": row["policy"],
            }
        )
    columns = ["group", "figure", "recorded", "identity", "predicted", "90 % interval", "change", "verdict"]
    table(rows, [*columns, "calibration", "policy"])
