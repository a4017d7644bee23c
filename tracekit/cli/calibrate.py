"""`tracekit calibrate`."""

from __future__ import annotations

import click

from tracekit.cli._gate import decided
from tracekit.cli._options import Input, input_options, output_options
from tracekit.cli._replaying import placement_option, runs_options


@click.command(
    "calibrate",
    epilog="""\b
Examples:
  tracekit calibrate boot.dat
  tracekit calibrate boot.dat --policy cfs:latency=24ms
  tracekit calibrate boot.dat --json > calibration.json
""",
)
@input_options(filters=False)
@click.option(
    "--policy",
    metavar="POLICY",
    help="The policy that TRACE was captured under, with parameters; by default what its kernel uses.",
)
@placement_option
@click.option("--rt", metavar="POLICY", help="Parameters of the real-time class above it: rt:slice=20ms.")
@runs_options("the median that is judged.")
@click.option("-v", "--verbose", is_flag=True, help="Print what was inferred about the recorded run, too.")
@output_options()
def command(
    source: Input,
    policy: str | None,
    placement: str,
    rt: str | None,
    runs: int,
    jobs: int | None,
    verbose: bool,
    as_json: bool,
    as_csv: bool,
) -> int:
    """Check that a replay repeats what was recorded.

    Replays TRACE under the policy that it was captured under, nine times with small perturbations
    (--runs), and judges the median of each metric by fixed tolerances: pass, fail, or not measured. Exit status 1 when one fails, or when fewer than half
    can be measured: such a trace does not show whether it can be replayed.
    """
    import tracekit as tk
    from tracekit.cli._output import about, emit_csv, emit_json, paragraph, table
    from tracekit.cli._replaying import caution, print_basis, progress_bar
    from tracekit.whatif.basis import unknown_machine, unrecorded
    from tracekit.whatif.calibration import METRICS, passed
    from tracekit.whatif.check import as_captured
    from tracekit.whatif.identity import stated
    from tracekit.whatif.worst import worst

    trace = source.read()
    caution(trace, source.quiet)
    why = "as given"
    if policy is None:
        policy, why = stated(trace)
    with progress_bar(f"replaying {trace.name}", trace, source.quiet) as progress:
        programs = tk.Programs(trace, placement=placement, identity=policy)
        replay, found = as_captured(programs, policy, rt=rt, runs=runs, jobs=jobs, progress=progress)
    rows = found.to_dicts()
    failed = [r["metric"] for r in rows if r["result"] == "fail"]
    far = worst(trace, replay).to_dicts() if failed else []
    unknown = unknown_machine(trace) if failed else None
    facts = {
        "trace": about(trace),
        "policy": replay.policy,
        "why": why,
        "wakeups": replay.wakeups,
        "inferred": replay.inferred.to_dicts(),
        "rows": rows,
        "failed": failed,
        "worst": far,
        "not_recorded": unrecorded(replay),
        "not_known": unknown,
    }
    judged = sum(r["result"] != "not measured" for r in rows)
    status = decided(1 if failed or 2 * judged < len(rows) else 0)
    if (as_json and emit_json(facts)) or (as_csv and emit_csv(found)):
        return status
    named = f"; {len(failed)} fail" if failed else ""
    absent = len(rows) - judged
    paragraph(
        f"{passed(rows)}{named}"
        + (f"; {absent} {'is' if absent == 1 else 'are'} not measured" if absent else "")
    )
    print()
    shown = [{**_readable(r), "what": METRICS[r["metric"]]} for r in rows]
    columns = ["metric", "result", "recorded", "replayed", "error", "allowed", "n"]
    notes = [
        "p.p.: percentage points",
        "dist.: between the two distributions, 0 (equal) to 1; --wide says what each metric is",
    ]
    if any(row["only_by"] for row in rows):
        notes.append(
            "pass (< ...): the error is over the % that are allowed, and passes only as the difference is below a fixed "
            "allowance, which says little of values as small as that"
        )
    table(shown, columns, more=["what"], right=("recorded", "replayed", "error", "n"), notes=notes)
    print()
    if far:
        print("Tasks whose switches differ most, and what ends their sleeps in the replay:")
        table(
            [_task(r) for r in far],
            ["task", "switches", "CPU share", "waits for"],
            right=("switches", "CPU share"),
            first_out=["CPU share"],
        )
        print()
    where = ", each task where it was recorded" if replay.metadata.get("replay.placement") == "trace" else ""
    paragraph(f"replayed under {policy} ({why}){where}")
    for missing in unrecorded(replay):
        paragraph(missing)
    if unknown:
        paragraph(unknown)
    if verbose:
        print_basis(replay)
    return status


def _task(row: dict[str, object]) -> dict[str, str]:
    """A task that the replay gets wrong: recorded -> replayed."""
    return {
        "task": f"{row['comm'] or 'thread'}:{row['tid']}",
        "switches": f"{row['switches_recorded']} -> {row['switches_replayed']}",
        "CPU share": f"{row['share_recorded']:.1f} -> {row['share_replayed']:.1f} %",
        "waits for": str(row["waits"]),
    }


def _readable(row: dict[str, object]) -> dict[str, str]:
    """A row as people read it: values with their unit."""
    from tracekit.units import format_ns
    from tracekit.whatif.calibration import TITLES

    def text(value: object) -> str:
        if not isinstance(value, int | float):
            return "-"
        if row["unit"] == "ns":
            return format_ns(value)
        return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"

    points = row["unit"] == "points"
    error = text(row["error"]) + (" p.p." if points and row["error"] is not None else "")
    if isinstance(row["error_pct"], float) and not points:
        error = f"{row['error_pct']:+.2f} %"
    return {
        "metric": TITLES[str(row["metric"])],
        "recorded": text(row["recorded"]) + (" %" if points and row["recorded"] is not None else ""),
        "replayed": text(row["replayed"]) + (" %" if points and row["replayed"] is not None else ""),
        "error": error,
        "allowed": str(row["allowed"]),
        "n": f"{row['n_recorded']}/{row['n_replayed']}",
        "result": f"pass (< {row['only_by']})" if row["only_by"] else str(row["result"]),
    }
