"""`tracekit solve`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tracekit.cli._gate import decided
from tracekit.cli._options import output_options, source_place
from tracekit.cli.sweep import cells_bar, executor_of, sweep_options

if TYPE_CHECKING:
    from tracekit.whatif.solve import Proposal, Solution


@click.command(
    "solve",
    epilog="""\b
Examples:
  tracekit solve boot.dat --goal 'response.p95(db) < 5ms' \\
      --keep 'cpu(batch) > -5%'
  tracekit solve boot.dat --goal 'latency.p95(waker) < 100us' --depth 1 --json

Exit status: 0 when something was found that meets the goals, 1 when not.
""",
)
@click.argument("trace", metavar="TRACE", callback=source_place)
@click.option(
    "--goal",
    "goals",
    multiple=True,
    required=True,
    metavar="GOAL",
    help="STATISTIC < VALUE, such as 'response.p95(db) < 5ms'; a value in % is a change. Can be given several times.",
)
@click.option("--keep", multiple=True, metavar="GOAL", help="What must not be lost: 'cpu(batch) > -5%'.")
@click.option(
    "--depth", type=click.IntRange(1, 8), default=4, show_default=True, help="Most changes of one proposal."
)
@click.option(
    "--runs",
    type=click.IntRange(2, 1000),
    default=9,
    show_default=True,
    help="Repetitions of what is proposed, for its intervals.",
)
@output_options(csv=False)
@sweep_options
def command(
    trace: str,
    goals: tuple[str, ...],
    keep: tuple[str, ...],
    depth: int,
    runs: int,
    as_json: bool,
    jobs: int | None,
    dask: str | None,
    quiet: bool,
    **options: Any,
) -> int:
    """Search for changes that meet a goal.

    Tries tunables of the recorded scheduler, nice values, scheduling classes, slices and
    affinities, alone and together, and proposes what meets the goals, with intervals and with what
    it costs others.
    """
    with executor_of(dask, jobs) as executor, cells_bar(quiet, "replays") as progress:
        from tracekit.whatif.solve import solve
        from tracekit.whatif.sweep import Options

        found = solve(
            trace,
            goals,
            keep,
            depth=depth,
            runs=runs,
            executor=executor,
            options=Options(**options),
            progress=progress,
        )
    status = decided(0 if found.proposals else 1)
    _print(found, as_json)
    return status


def _print(found: Solution, as_json: bool) -> None:
    from tracekit.cli._output import emit_json, paragraph

    if as_json:
        shown = [_plain(p) for p in found.proposals]
        nearest = None if found.proposals or found.best is None else _plain(found.best)
        further = [_plain(p) for p in found.further]
        emit_json(
            {
                "tracekit.solve": 1,
                "tried": found.tried,
                "already": found.already,
                "proposals": shown,
                "further": further,
                "nearest": nearest,
            }
        )
        return
    count = len(found.proposals)
    if count:
        paragraph(
            f"{count} {'proposal' if count == 1 else 'proposals'}; {found.tried} sets of changes were replayed"
        )
    else:
        paragraph(f"none found; {found.tried} sets of changes were replayed")
    if found.already:
        paragraph("as recorded, every goal is met already: nothing has to change for them")
    for number, proposal in enumerate(found.proposals, 1):
        print()
        _proposal(f"{number}.", proposal)
    for number, proposal in enumerate(found.further, count + 1):
        print()
        _proposal(f"{number}. (meets the goals, but one above is as good in everything)", proposal)
    if not count and found.best is not None:
        print()
        _proposal("best is", found.best)


def _plain(proposal: Proposal) -> dict[str, Any]:
    return {
        "policy": proposal.cell.policy,
        "sets": list(proposal.cell.sets),
        "holds": proposal.holds,
        "cost_pct": proposal.cost,
        "goals": [dict(g) for g in proposal.goals],
        "others": [dict(o) for o in proposal.others],
    }


def _proposal(title: str, proposal: Proposal) -> None:
    from tracekit.cli._output import paragraph, table
    from tracekit.units import format_bound

    changes = [text.replace("\n", "; ") for _, text in proposal.cell.axes]
    paragraph(f"{title} {'; '.join(changes) or 'no change'}")
    rows = []
    for row in proposal.goals:
        span = [row["low"], row["high"]]
        rows.append(
            {
                "goal": row["text"],
                "group": row["group"] or "(all)",
                "identity": format_bound(row["identity"], row["unit"]),
                "predicted": format_bound(row["value"], row["unit"]),
                "90 % interval": "-"
                if None in span
                else " to ".join(format_bound(v, row["unit"]) for v in span),
                "holds": row["holds"],
                "trust": row["trust"],
            }
        )
    columns = ["goal", "group", "identity", "predicted", "90 % interval", "holds", "trust"]
    table(rows, columns, first_out=["identity"])
    for row in proposal.goals:
        if row["holds"] == "unknown":
            paragraph(f"   {row['text']}: not to be used: {row['trust_why']}")
    for row in proposal.others[:3]:
        what = f"{row['metric'].replace('_', ' ')} {row['statistic']}"
        change = row["change_pct"]
        size = f"{change:+.0f} %" if change < 1000 else f"x {1 + change / 100:,.0f}"
        paragraph(f"   {row['group']}: {what} {size}")
