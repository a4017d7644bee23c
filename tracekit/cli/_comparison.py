"""A comparison in the terminal: what changes first, why to trust it behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracekit.cli._output import paragraph, table
from tracekit.cli._table import terminal_width

if TYPE_CHECKING:
    import polars as pl

    from tracekit.whatif import Comparison

_KEYS = ("scope", "group", "metric", "statistic")
#: Columns of a terminal from which on trust has a column of its own, and its marks in a narrower one.
_WITH_TRUST = 92
_MARKS = {"with care": "?", "do not use": "!", "bimodal": "*"}
#: Groups that are named which do their work sooner.
SOONER = 2
VALUES = ("recorded", "predicted", "real", "change", "identity")
#: Columns of its table that hold a value in the row's unit.
_VALUED = ("recorded", "identity", "predicted", "low", "high", "real")


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
    from tracekit.explain import what_holds
    from tracekit.whatif.headline import findings
    from tracekit.whatif.left_out import left_out

    failed = comparison.fidelity.filter(result="fail")["metric"].to_list()
    if poor := comparison.poor:
        whole = left_out(comparison.trace) is None
        doctor = "; `tracekit doctor` says what the capture lacks" if whole else ""
        paragraph(f"{poor[0].upper()}{poor[1:]}. Take what follows as a rough guess{doctor}.")
    for sentence in what_holds(comparison.trace.missing(), comparison.bounds)[:1]:
        others = comparison.bounds["lower"].count() > 0
        paragraph(f"{sentence} `tracekit info` lists the bounds of the others." if others else sentence)
    for number, finding in enumerate(findings(comparison)):
        if number:
            print()
        paragraph(finding.sentence)
        if finding.also:
            paragraph(f"{finding.also} (--show all).")
        print()
        _table(rows.filter(rows["policy"] == finding.policy).to_dicts(), _bounds(comparison))
        for early in comparison.sooner.get(finding.policy, [])[:SOONER]:
            paragraph(early.sentence)
        if late := comparison.longer.get(finding.policy):
            paragraph(late.sentence)
        if idler := comparison.idler.get(finding.policy):
            paragraph(idler.sentence)
        if waits := comparison.stuck.get(finding.policy):
            paragraph(waits.sentence)
    print()
    _basis(comparison, failed)
    if verbose:
        from tracekit.cli._replaying import print_basis
        from tracekit.whatif import Replay

        if isinstance(comparison.identity, Replay):
            print()
            print_basis(comparison.identity)


def print_rows(rows: pl.DataFrame, names: Sequence[str]) -> None:
    """Print the columns of a comparison's table that `--columns` names, values with their units."""
    from tracekit.words import value

    made = [
        {k: value(v, row["unit"]) if k in _VALUED else v for k, v in row.items()}
        for row in rows.iter_rows(named=True)
    ]
    table(made, names, right=_VALUED)


def _bounds(comparison: Comparison) -> dict[tuple[Any, ...], str]:
    """Bounds of the recorded metrics, whatever was lost."""
    from tracekit.explain import bound

    return {tuple(r[k] for k in _KEYS): bound(r) for r in comparison.bounds.iter_rows(named=True)}


def _table(rows: list[dict[str, Any]], bounds: dict[tuple[Any, ...], str]) -> None:
    from tracekit.whatif.headline import effect_of

    width = terminal_width()
    narrow = width is not None and width < _WITH_TRUST
    shown = []
    seen: set[str] = set()
    for row in rows:
        effect = effect_of(row)
        two = row["bimodal_low"] is not None
        if narrow:
            said = [row.get("trust") or "", "bimodal" if two else ""]
            marks = ["".join(_MARKS.get(word, "") for word in said)] if any(w in _MARKS for w in said) else []
            seen.update(w for w in said if w in _MARKS)
        else:
            marks = ["(bimodal)"] if two else []
        shown.append(
            {
                "group": effect.group,
                "metric": effect.metric,
                "recorded": effect.recorded,
                "whatever was lost": bounds.get(tuple(row[k] for k in _KEYS)),
                "predicted": effect.predicted,
                "90 % interval": effect.span or effect.no_span or None,
                "real": " ".join([effect.real, *marks]),
                "change": effect.change if "real" in row else " ".join([effect.change, *marks]),
                "trust": None if narrow else row.get("trust"),
                "identity": effect.identity,
                "calibration": row["calibration"],
            }
        )
    # What was held against a recording is no longer only a change.
    held = any("real" in row for row in rows)
    columns = ["metric", "recorded", "predicted", "90 % interval", "real" if held else "change", "trust"]
    more = [*(["change"] if held else []), "whatever was lost", "identity", "calibration"]
    table(shown, columns, more=more, section="group", right=VALUES, first_out=["90 % interval"])
    if seen:
        print(", ".join(f"{mark} {word}" for word, mark in _MARKS.items() if word in seen))


def _basis(comparison: Comparison, failed: list[str]) -> None:
    from tracekit.whatif.basis import inferred, unknown_machine
    from tracekit.whatif.calibration import passed, titles
    from tracekit.whatif.headline import to_record

    identity = comparison.identity_policy.partition(":")[0]
    if comparison.focus.sentence:
        paragraph(comparison.focus.sentence)
    for sentence in comparison.held.sentences if comparison.held else ():
        paragraph(sentence)
    paragraph(
        f"changes are against the identity replay (--wide shows it), {comparison.trace.name} under {identity}: "
        f"{comparison.why}"
    )
    for sentence in comparison.left_to_default:
        paragraph(sentence)
    named = f"; {len(failed)} fail: {titles(failed)}" if failed else ""
    paragraph(f"calibration: {passed(comparison.fidelity.to_dicts())}{named}")
    for missing in comparison.not_recorded:
        if missing != comparison.poor:
            paragraph(missing)
    if failed and (unknown := unknown_machine(comparison.trace)):
        paragraph(unknown)
    for row in inferred(comparison.identity):
        if row["name"] == "unexplained messages":
            paragraph(f"with care: {row['how']}")
    if record := to_record(comparison):
        paragraph(record)
    if comparison.repetitions == 1:
        paragraph("each replay ran once: no intervals, and a small change may be chance")
