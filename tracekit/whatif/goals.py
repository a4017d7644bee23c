"""Statistics by name, and what is wanted of them: ``response.p95(db) < 5ms``, ``cpu(batch) > -5%``.

A *statistic* is ``METRIC.STATISTIC(GROUP)``: a metric and statistic of
`tracekit.analysis.compare.metrics`, and a glob for groups of tasks (``(system)`` for the run queue,
nothing for all tasks together). A *goal* compares one with a value (``< 5ms``), or its change from
the identity replay with a percentage (``> -5%``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracekit.analysis.compare import METRICS
from tracekit.errors import ReplayError
from tracekit.filters import fits
from tracekit.near import did_you_mean
from tracekit.units import parse_duration

__all__ = ["Goal", "Statistic", "parse_goal", "parse_statistic"]

#: Short names of metrics, and the statistic that is meant where none is named.
_SHORT = {"cpu": "cpu_time", "latency": "wakeup_latency", "preemptions": "involuntary_switches"}
_USUAL = {"cpu_time": "total", "switches": "total", "involuntary_switches": "total"}
_STATISTICS = ("mean", "p50", "p95", "p99", "max", "total")
_STATISTIC = re.compile(r"\s*(\w+)(?:\.(\w+))?\s*(?:\((.*)\))?\s*")
_GOAL = re.compile(r"(?P<what>[^<>]+?)(?P<sign><=|>=|<|>)\s*(?P<value>[^<>=]+)")


@dataclass(frozen=True)
class Statistic:
    """A statistic of the groups that a glob names; group None is all tasks together."""

    metric: str
    statistic: str
    group: str | None

    def __str__(self) -> str:
        """As it is written."""
        return f"{self.metric}.{self.statistic}({self.group or ''})"

    def rows(self, table: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The rows of a comparison (`tracekit.Comparison.table`, as dicts) that this names."""
        return [row for row in table if self.names(row)]

    def names(self, row: Mapping[str, Any]) -> bool:
        """Whether a row is of this statistic."""
        if (row["metric"], row["statistic"]) != (self.metric, self.statistic):
            return False
        if self.metric == "runqueue":
            return bool(row["scope"] == "system")
        if self.group is None:
            return bool(row["scope"] == "all")
        return row["scope"] == "group" and fits(row["group"] or "", self.group)


@dataclass(frozen=True)
class Goal:
    """What is wanted of a statistic.

    Attributes
    ----------
    statistic
        Of what.
    below
        It must be below the bound; above it otherwise.
    bound
        In ns or 1; in % of the identity replay where `relative`.
    relative
        The bound is on the change.
    text
        As it was written.
    """

    statistic: Statistic
    below: bool
    bound: float
    relative: bool
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        """As it is written, times in ns."""
        unit = "%" if self.relative else ""
        return f"{self.statistic} {'<' if self.below else '>'} {self.bound:g}{unit}"

    def slack(self, row: Mapping[str, Any]) -> float | None:
        """How far a row is on the right side, relative to the identity replay.

        Negative where it misses the goal.

        None where the row has no value.
        """
        value, base = row["predicted"], row["identity"]
        if self.relative:
            if not base or value is None:
                return None
            distance = self.bound - 100 * (value - base) / base
            return float(distance if self.below else -distance) / 100
        if value is None:
            return None
        distance = self.bound - value if self.below else value - self.bound
        return float(distance / (abs(self.bound) or abs(base or 1) or 1))


def parse_statistic(text: str) -> Statistic:
    """Read ``METRIC.STATISTIC(GROUP)``.

    Parameters
    ----------
    text
        Such as ``response.p95(db)``, ``cpu(batch*)``, ``runqueue.mean``. ``cpu``, ``latency`` and
        ``preemptions`` stand for ``cpu_time``, ``wakeup_latency`` and ``involuntary_switches``.

    Returns
    -------
    Statistic
        What it names.

    Raises
    ------
    ReplayError
        When there is no such metric or statistic.

    Examples
    --------
    >>> print(parse_statistic("response.p95(db)"), parse_statistic("cpu(batch)"))
    response.p95(db) cpu_time.total(batch)
    """
    match = _STATISTIC.fullmatch(text)
    if match is None:
        raise ReplayError(
            f"{text!r}: expected METRIC.STATISTIC(GROUP), such as response.p95(db) or cpu(batch)"
        )
    metric = _SHORT.get(match[1], match[1])
    if metric not in METRICS:
        raise ReplayError(f"{text!r}: unknown metric {match[1]!r}{_close(match[1], [*METRICS, *_SHORT])}")
    statistic = match[2] or _USUAL.get(metric, "mean")
    if statistic not in _STATISTICS:
        raise ReplayError(f"{text!r}: unknown statistic {statistic!r}{_close(statistic, _STATISTICS)}")
    group = (match[3] or "").strip() or None
    return Statistic(metric, statistic, None if group == "system" and metric == "runqueue" else group)


def _close(word: str, known: Sequence[str]) -> str:
    return did_you_mean(word, known, f"; choose from {', '.join(known)}")


def _finite(text: str) -> float:
    """A number, not one of Python's words for what is none, such as nan or infinity."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def parse_goal(text: str) -> Goal:
    """Read a goal.

    Parameters
    ----------
    text
        ``STATISTIC < VALUE`` or ``STATISTIC > VALUE``. The value is a time with a unit, a number,
        or a percentage: a bound on the change from the identity replay.

    Returns
    -------
    Goal
        What is wanted.

    Raises
    ------
    ReplayError
        When it is not understood, or a time has no unit.

    Examples
    --------
    >>> print(parse_goal("response.p95(db) < 5ms"), parse_goal("cpu(batch) > -5%"), sep="; ")
    response.p95(db) < 5e+06; cpu_time.total(batch) > -5%
    """
    match = _GOAL.fullmatch(text.strip())
    if match is None:
        raise ReplayError(
            f"{text!r}: expected STATISTIC < VALUE, such as 'response.p95(db) < 5ms' or 'cpu(batch) > -5%'"
        )
    statistic, value = parse_statistic(match["what"]), match["value"].strip()
    below = match["sign"].startswith("<")
    if value.endswith("%"):
        try:
            return Goal(statistic, below, _finite(value[:-1]), True, text.strip())
        except ValueError:
            raise ReplayError(f"{text!r}: expected a number before %, found {value!r}") from None
    counts = statistic.metric in ("switches", "involuntary_switches", "runqueue")
    try:
        bound = _finite(value) if counts else float(parse_duration(value))
    except ValueError:
        expected = "a number" if counts else "a time with a unit, such as 5ms,"
        raise ReplayError(f"{text!r}: expected {expected} or a percentage, found {value!r}") from None
    return Goal(statistic, below, bound, False, text.strip())
