"""Words for metrics, groups, values and changes: the same in the terminal, on the page and in pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit.units import format_bound, format_count

__all__ = ["NAMES", "group_name", "metric_name", "no_span", "percent", "span", "value"]

NAMES = {
    "slice_per_involuntary": "slice per invol. switch",
    "slice": "slice",
    "run_delay": "run delay",
    "wakeup_latency": "wakeup latency",
    "response": "response time",
    "cpu_time": "CPU time",
    "switches": "switches",
    "involuntary_switches": "involuntary switches",
    "runqueue": "run-queue length",
}
#: From this change on, in %, the factor is easier to read.
_FACTOR = 900
#: An interval over so many times its lower end says nothing.
UNBOUNDED = 1e4


def metric_name(metric: str, statistic: str) -> str:
    """Metric and statistic in words: ``run delay, p95``."""
    name = NAMES.get(metric, metric.replace("_", " "))
    plain = statistic == "total" or metric == "slice_per_involuntary"
    return name if plain else f"{name}, {statistic}"


#: Part of a reason for which there is no interval (`tracekit.analysis.uncertainty`), and short words for it.
_NO_SPAN = {
    "drift": "none: drifts",
    "sample": "none: too few",
    "n = ": "none: too few",
    "zero": "none: zero",
    "no prediction of this kind": "none: not validated",
    "hardly used": "none: unknown CPU",
}


def group_name(row: Mapping[str, Any]) -> str:
    """What a row of `Comparison.table` is about."""
    if row["scope"] == "system":
        return "system"
    if row["scope"] == "all":
        return "all tasks"
    return "(no name)" if row["group"] is None else str(row["group"])


def value(number: float | None, unit: str) -> str:
    """A value with its unit, or a dash."""
    if number is None:
        return "-"
    whole = unit != "ns" and number == int(number)
    return format_count(int(number)) if whole else format_bound(number, unit)


def no_span(reason: str | None) -> str:
    """Why there is no interval, in a word or two for a narrow column; empty where nothing says why."""
    return next((short for part, short in _NO_SPAN.items() if part in (reason or "")), "")


def percent(change: float | None) -> str:
    """A change in per cent; from `_FACTOR` on as a factor."""
    if change is None:
        return "-"
    if change >= _FACTOR:
        times = 1 + change / 100
        return f"x {format_count(round(times))}" if times >= 100 else f"x {times:.3g}"
    if abs(change) < 0.05:
        return "0.0 %"
    return f"{change:+.0f} %" if abs(change) >= 100 else f"{change:+.1f} %"


def span(low: float | None, high: float | None, unit: str) -> str:
    """An interval; its unit once where both ends have it."""
    if low is None or high is None:
        return ""
    if low <= 0 or high / low > UNBOUNDED:
        return "unbounded"
    ends = [format_bound(end, unit) for end in (low, high)]
    first, _, one = ends[0].partition(" ")
    _, _, other = ends[1].partition(" ")
    return f"{first} to {ends[1]}" if one == other else " to ".join(ends)
