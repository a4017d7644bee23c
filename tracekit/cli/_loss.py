"""Bounds under losses, below the table whose metrics they bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracekit.cli._output import on_standard_output, paragraph, table

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["LATENCY", "QUEUE", "RESPONSE", "SLICES", "WAKEUP", "bounds_of", "print_bounds"]

#: Heading, metric and statistic of the columns, most important first.
Picks = Sequence[tuple[str, str, str]]
SLICES: Picks = (
    ("mean/invol.", "slice_per_involuntary", "mean"),
    *((s, "slice", s) for s in ("p50", "p95", "max")),
    ("invol.", "involuntary_switches", "total"),
    ("run", "cpu_time", "total"),
    *((s, "slice", s) for s in ("mean", "p99")),
)
_SPREAD = ("mean", "p50", "p95", "p99", "max")
LATENCY: Picks = tuple((s, "run_delay", s) for s in _SPREAD)
WAKEUP: Picks = tuple((s, "wakeup_latency", s) for s in _SPREAD)
RESPONSE: Picks = tuple((s, "response", s) for s in _SPREAD)
QUEUE: Picks = tuple((s, "runqueue", s) for s in _SPREAD)


def bounds_of(trace: Trace, by: str, picks: Picks) -> list[dict[str, Any]]:
    """The bounds of some metrics, for JSON; empty when nothing is missing."""
    wanted = {metric for _, metric, _ in picks}
    scope = "system" if picks is QUEUE else "group"
    return [r for r in trace.bounds(by).filter(scope=scope).iter_rows(named=True) if r["metric"] in wanted]


def print_bounds(
    trace: Trace, rows: Sequence[Mapping[str, Any]], picks: Picks, order: Sequence[str | None] = ()
) -> None:
    """Print between which bounds the metrics of the groups in `order` lie, whatever was lost."""
    from tracekit.explain import bound, lost

    if on_standard_output() or not rows:
        return
    missing = trace.missing()
    if missing.refused is not None:
        print()
        paragraph(f"No bounds can be given: {missing.refused}.")
        return
    if picks is SLICES and not missing.windows:
        # Wakeups are missing alone, and nothing here depends on them.
        return
    cells = {(row["group"], row["metric"], row["statistic"]): bound(row) for row in rows}
    shown = [
        {"group": group, **{head: cells.get((group, metric, statistic)) for head, metric, statistic in picks}}
        for group in order or [None]
    ]
    if not any(row[head] for row in shown for head, _, _ in picks):
        return
    print()
    what = "is missing" if missing.silent else "was in them"
    paragraph(f"{lost(missing)} Whatever {what}, the metrics lie within:")
    heads = [head for head, _, _ in picks]
    table(shown, ["group", *heads] if order else heads, right=heads)
