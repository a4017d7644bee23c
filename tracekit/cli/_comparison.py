"""A comparison in the terminal: what changes first, why to trust it behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.cli._output import paragraph, table

if TYPE_CHECKING:
    import polars as pl

    from tracekit.whatif import Comparison

#: Share of failing metrics from which a trace counts as one that cannot be replayed well.
MANY_FAIL = 1 / 3
VALUES = ("recorded", "predicted", "change", "identity")


def print_comparison(comparison: Comparison, rows: pl.DataFrame, verbose: bool) -> None:
    """Print what the policies change.

    Parameters
    ----------
    comparison
        The comparison.
    rows
        Rows of its table that are wanted.
    verbose
        Print what was inferred about the recorded run, too.
    """
    from tracekit.whatif.headline import findings

    failed, judged = _calibrated(comparison)
    if judged and len(failed) > MANY_FAIL * judged:
        paragraph(
            f"This trace cannot be replayed well: {len(failed)} of {judged} metrics of the identity replay fail. "
            "Take what follows as a rough guess; `tracekit doctor` says what the capture lacks."
        )
    for number, finding in enumerate(findings(comparison)):
        if number:
            print()
        paragraph(finding.sentence)
        print()
        _table(rows.filter(rows["policy"] == finding.policy).to_dicts())
    print()
    _basis(comparison, failed, judged)
    if verbose:
        from tracekit.cli._replaying import print_basis
        from tracekit.whatif import Replay

        if isinstance(comparison.identity, Replay):
            print()
            print_basis(comparison.identity)


def _table(rows: list[dict[str, Any]]) -> None:
    from tracekit.whatif.headline import effect_of

    shown = []
    for row in rows:
        effect = effect_of(row)
        two = row["bistable_low"] is not None
        shown.append(
            {
                "group": effect.group,
                "metric": effect.metric,
                "recorded": effect.recorded,
                "predicted": effect.predicted,
                "90 % interval": effect.span or None,
                "change": effect.change + (" (bimodal)" if two else ""),
                "identity": effect.identity,
                "calibration": row["calibration"],
            }
        )
    columns = ["metric", "recorded", "predicted", "90 % interval", "change"]
    table(shown, columns, more=["identity", "calibration"], section="group", right=VALUES)


def _calibrated(comparison: Comparison) -> tuple[list[str], int]:
    """Metrics of the identity replay that fail, and how many were judged."""
    fidelity = comparison.fidelity
    failed = fidelity.filter(result="fail")["metric"].to_list()
    return failed, fidelity.filter(result="pass").height + len(failed)


def _basis(comparison: Comparison, failed: list[str], judged: int) -> None:
    from tracekit.whatif.comparison import inferred

    identity = comparison.identity_policy.partition(":")[0]
    paragraph(f"identity replay of {comparison.trace.name} under {identity}: {comparison.why}")
    named = f"; {len(failed)} fail: {', '.join(failed)}" if failed else ""
    paragraph(f"calibration: {judged - len(failed)} of {judged} metrics pass{named}")
    for row in inferred(comparison.identity):
        if row["name"] == "unexplained messages":
            paragraph(f"with care: {row['how']}")
    if comparison.repeated is None:
        paragraph("each replay ran once: no intervals, and a small change may be chance")
