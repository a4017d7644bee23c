"""A gate for scripts: conditions on metrics, judged with their intervals.

::

    condition = [ group ":" ] metric [ statistic ] comparison limit
    metric    = "slice" | "run delay" | "wakeup latency" | "preemption wait" | "response" [ "time" ]
              | "cpu share" | "switches" | "wakeups"
    statistic = "mean" | "max" | "p" number          (mean when none is given)
    comparison= ">" | ">=" | "<" | "<="
    limit     = time | number [ "%" ] | number "*" "baseline" | "baseline"
    time      = number ( "ns" | "us" | "ms" | "s" )

``waker: wakeup latency p95 > 1ms`` fails when the whole interval of the p95 lies above 1 ms, passes
when all of it lies at or below, and else cannot tell. ``db: response p99 > 1.10 * baseline`` does
the same with the ratio to the baseline. Without a group, all tasks together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis import difference, windows
from tracekit.analysis.blame import named
from tracekit.errors import TracekitError
from tracekit.near import did_you_mean
from tracekit.units import format_ns, parse_duration

if TYPE_CHECKING:
    import polars as pl

    from tracekit.trace import Trace

__all__ = [
    "CANNOT_TELL",
    "FAILED",
    "Condition",
    "GateError",
    "Judged",
    "gate_status",
    "judge",
    "judge_pair",
    "judge_rows",
    "parse_condition",
]

#: Exit status of a command whose gate failed, or could not tell.
FAILED = 3
CANNOT_TELL = 5

_ALIASES = {"response time": "response", "latency": "wakeup latency", "share": "cpu share"}
_LIMIT = re.compile(
    r"\s*(?:(?P<factor>[0-9]{1,300}(?:\.[0-9]*)?|\.[0-9]+)\s*\*\s*)?(?P<base>baseline)\s*$|\s*(?P<plain>.*?)\s*$"
)
_NUMBER = re.compile(r"([0-9]{1,300}(?:\.[0-9]*)?|\.[0-9]+)\s*(%?)")


class GateError(TracekitError, ValueError):
    """A condition that cannot be understood. Its text points at the column.

    Attributes
    ----------
    column : int
        From 1, where it went wrong.
    """

    def __init__(self, text: str, column: int, message: str) -> None:
        super().__init__(f"condition {text!r}, column {column}: {message}")
        self.text = text
        self.column = column


@dataclass(frozen=True)
class Condition:
    """One condition.

    Attributes
    ----------
    text
        As it was written.
    group
        Of tasks; None for all together.
    metric, statistic
        What is judged.
    op
        ``>``, ``>=``, ``<`` or ``<=``: when it holds, the gate fails.
    limit
        In the metric's unit; a factor where `relative`.
    relative
        Whether the limit is a multiple of the baseline.
    """

    text: str
    group: str | None
    metric: str
    statistic: str
    op: str
    limit: float
    relative: bool


@dataclass(frozen=True)
class Judged:
    """What became of a condition.

    Attributes
    ----------
    condition
        The condition.
    verdict
        ``fail``, ``pass`` or ``cannot tell``.
    value, lo, hi
        What was measured, in the metric's unit or as a ratio to the baseline; None where there is none.
    reason
        Why it cannot tell; else None.
    subject
        Of what, where there are several (a policy); else None.
    """

    condition: Condition
    verdict: str
    value: float | None
    lo: float | None
    hi: float | None
    reason: str | None = None
    subject: str | None = None

    @property
    def sentence(self) -> str:
        """The verdict in one line."""
        unit = windows.METRICS[self.condition.metric][0]

        def shown(value: float) -> str:
            if self.condition.relative:
                return f"{value:.3f} * baseline"
            return format_ns(value) if unit == "ns" else f"{value:.4g}"

        measured = "not measured" if self.value is None else shown(self.value)
        if self.lo is not None and self.hi is not None:
            measured += f" (90 % interval {shown(self.lo)} to {shown(self.hi)})"
        of = f" [{self.subject}]" if self.subject else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{self.verdict}{of}: {self.condition.text}; found {measured}{why}"

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        held = ("verdict", "value", "lo", "hi", "reason", "subject")
        return {"condition": self.condition.text, **{k: getattr(self, k) for k in held}}


def parse_condition(text: str, baseline: bool = True) -> Condition:
    """Read a condition.

    Parameters
    ----------
    text
        As the grammar at the top of this module says.
    baseline
        Whether there is a baseline to relate to.

    Returns
    -------
    Condition
        What it says.

    Raises
    ------
    GateError
        With the column at which it cannot be understood.

    Examples
    --------
    >>> parse_condition("db: response p99 > 1.10 * baseline").limit
    1.1
    """
    found = re.search(r"[<>]=?", text)
    if found is None:
        raise GateError(text, len(text) + 1, "expected >, >=, < or <= and a limit, such as `> 1ms`")
    left, op, right = text[: found.start()], found[0], text[found.end() :]
    group, at = _group(left)
    metric, statistic = _metric(text, left[at:], at)
    limit, relative = _limit(text, right, found.end(), metric)
    if relative and not baseline:
        column = text.index("baseline", found.end()) + 1
        raise GateError(text, column, "there is no baseline here; `tracekit diff` and `compare` have one")
    return Condition(text, group, metric, statistic, op, limit, relative)


def _group(left: str) -> tuple[str | None, int]:
    colon = left.find(": ")
    if colon < 0:
        return None, 0
    return left[:colon].strip(), colon + 1


def _metric(text: str, words: str, at: int) -> tuple[str, str]:
    name = " ".join(words.split())
    column = at + len(words) - len(words.lstrip()) + 1
    statistic = "mean"
    last = re.search(r"(?:^|\s)(mean|max|p\S*)$", name)
    if last is not None and last[1] != name:
        statistic, name = last[1], name[: last.start()]
        if statistic.startswith("p"):
            try:
                windows.quantile_of(statistic)
            except ValueError as error:
                raise GateError(text, at + words.index(statistic) + 1, str(error)) from None
    name = _ALIASES.get(name, name)
    if name not in windows.METRICS:
        hint = did_you_mean(name, [*windows.METRICS, *_ALIASES], f"; there are {', '.join(windows.METRICS)}")
        found = repr(name) if name else "nothing"
        raise GateError(text, column, f"expected a metric, found {found}{hint}")
    if name in windows.RATES and statistic != "mean":
        raise GateError(
            text, at + words.rindex(statistic) + 1, f"{name} is one number: it has no {statistic}"
        )
    return name, statistic


def _limit(text: str, right: str, at: int, metric: str) -> tuple[float, bool]:
    found = _LIMIT.match(right)
    column = at + len(right) - len(right.lstrip()) + 1
    if found is not None and found["base"]:
        return float(found["factor"] or 1), True
    plain = right.strip()
    if windows.METRICS[metric][0] == "ns":
        try:
            return float(parse_duration(plain)), False
        except ValueError as error:
            raise GateError(text, column, f"{error}, or a multiple of baseline") from None
    number = _NUMBER.fullmatch(plain)
    if number is None:
        raise GateError(text, column, f"expected a number, found {plain!r}; {metric} has no unit but %")
    return float(number[1]) / (100 if number[2] else 1), False


def _verdict(op: str, limit: float, lo: float, hi: float) -> str:
    """Whether the whole interval holds the condition, none of it, or some."""
    ends = {">": (lo > limit, hi > limit), ">=": (lo >= limit, hi >= limit)}
    ends |= {"<": (hi < limit, lo < limit), "<=": (hi <= limit, lo <= limit)}
    all_of_it, some_of_it = ends[op]
    return "fail" if all_of_it else "cannot tell" if some_of_it else "pass"


def _samples(
    trace: Trace, metric: str, group: str | None, by: str
) -> tuple[windows.Sample | None, list[str]]:
    """Sample of a group, and the groups there are."""
    names = named(trace.tasks.filter(~_idle()), "all" if group is None else by)
    first, last = trace.start_ns or 0, trace.end_ns or 0
    found = windows.samples(metric, trace.slices, trace.states, names, first, last, cpus=trace.cpus.height)
    return found.get("all" if group is None else group), list(found)


def _idle() -> pl.Expr:
    import polars as pl

    return pl.col("is_idle")


def _level(
    samples: Sequence[windows.Sample], stat: str
) -> tuple[float | None, float | None, float | None, str | None]:
    """Value of a statistic over captures, its 90 % interval, and why there is none."""
    known = [(s, v) for s in samples if (v := s.statistic(stat)) is not None]
    values = [v for _, v in known]
    if not values:
        return None, None, None, f"too few samples for {stat}"
    if len(values) > 1:
        from scipy import stats

        mean, se = float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))
        t = float(stats.t.ppf(0.95, len(values) - 1))
        return mean, mean - t * se, mean + t * se, None
    if stat == "max":
        # What was seen is a fact: no interval is needed to say that it was too much.
        return values[0], values[0], values[0], None
    sample = known[0][0]
    drawn = windows.spread(sample, stat)
    if drawn is None or not len(drawn):
        return values[0], None, None, sample.why_no_interval(stat) or "no draw holds a sample"
    lo, hi = np.quantile(drawn, [0.05, 0.95])
    return values[0], float(lo), float(hi), None


def _missing(condition: Condition, groups: Iterable[str]) -> str:
    known = list(groups)
    hint = did_you_mean(condition.group or "", known, f"; there are {', '.join(known[:8]) or 'none'}")
    return f"no group {condition.group!r} has a {condition.metric}{hint}"


def judge(condition: Condition, traces: Sequence[Trace], by: str = "group") -> Judged:
    """Judge an absolute condition on one capture, or on several of the same thing.

    Parameters
    ----------
    condition
        From `parse`.
    traces
        The captures.
    by
        Grouping of tasks.

    Returns
    -------
    Judged
        ``fail`` when the whole interval holds the condition.
    """
    found = [_samples(t, condition.metric, condition.group, by) for t in traces]
    samples = [s for s, _ in found if s is not None]
    if not samples:
        return Judged(condition, "cannot tell", None, None, None, _missing(condition, found[0][1]))
    value, lo, hi, reason = _level(samples, condition.statistic)
    if lo is None or hi is None:
        return Judged(condition, "cannot tell", value, None, None, reason)
    return Judged(condition, _verdict(condition.op, condition.limit, lo, hi), value, lo, hi)


def judge_pair(
    condition: Condition,
    a: Sequence[Trace],
    b: Sequence[Trace],
    by: str = "group",
    repeat_spread: float = difference.REPEAT_SPREAD,
) -> Judged:
    """Judge a condition on captures `b`, with captures `a` as the baseline.

    Parameters
    ----------
    condition
        From `parse`.
    a, b
        Captures before and after.
    by
        Grouping of tasks.
    repeat_spread
        As in `tracekit.analysis.difference.compare`.

    Returns
    -------
    Judged
        Of the ratio b / a where the condition is relative.
    """
    if not condition.relative:
        return judge(condition, b, by)
    sides = []
    for side in (a, b):
        found = [_samples(t, condition.metric, condition.group, by) for t in side]
        samples = [s for s, _ in found if s is not None]
        if not samples:
            return Judged(condition, "cannot tell", None, None, None, _missing(condition, found[0][1]))
        sides.append([{condition.metric: {"x": s}} for s in samples])
    table = difference.compare(
        sides[0], sides[1], statistics=(condition.statistic,), repeat_spread=repeat_spread
    )
    if table.is_empty():
        why = f"too few samples for {condition.statistic} on one side, or on both"
        return Judged(condition, "cannot tell", None, None, None, why)
    row = table.row(0, named=True)
    ratio = None if row["change"] is None else 1 + row["change"]
    if row["lo"] is None:
        return Judged(condition, "cannot tell", ratio, None, None, row["reason"])
    lo, hi = 1 + row["lo"], 1 + row["hi"]
    return Judged(condition, _verdict(condition.op, condition.limit, lo, hi), ratio, lo, hi)


def judge_rows(condition: Condition, rows: Iterable[Mapping[str, object]]) -> list[Judged]:
    """Judge a condition on the rows of a comparison of policies; the recorded capture is the baseline.

    Parameters
    ----------
    condition
        From `parse`.
    rows
        Of `tracekit.Comparison.table`.

    Returns
    -------
    list of Judged
        One a policy.
    """
    metric = condition.metric.replace(" ", "_")
    found = []
    for row in rows:
        if (row["metric"], row["statistic"], row["group"]) != (metric, condition.statistic, condition.group):
            continue
        scale = float(str(row["recorded"])) if condition.relative and row["recorded"] else 1.0
        ends = [None if row[k] is None else float(str(row[k])) / scale for k in ("predicted", "low", "high")]
        value, lo, hi = ends
        policy = str(row["policy"])
        unusable = row["trust"] == "do not use"
        if lo is None or hi is None or unusable:
            why = f"not to be used: {row['trust_why']}" if unusable else "the prediction has no interval"
            found.append(Judged(condition, "cannot tell", value, None, None, why, policy))
            continue
        verdict = _verdict(condition.op, condition.limit, lo, hi)
        found.append(Judged(condition, verdict, value, lo, hi, None, policy))
    return found or [
        Judged(condition, "cannot tell", None, None, None, "the comparison has no such row: see its table")
    ]


def gate_status(judged: Iterable[Judged]) -> int:
    """Exit status: 3 when a condition failed, else 5 when one cannot tell, else 0."""
    verdicts = {j.verdict for j in judged}
    return FAILED if "fail" in verdicts else CANNOT_TELL if "cannot tell" in verdicts else 0
