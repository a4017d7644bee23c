"""Answers about one trace or two: who delayed whom, what changed, and whether it is good enough.

Parts are loaded when they are first used: a table needs none of them.

Modules
-------
delays
    Where the time of some tasks went, and who had it: `why`.
tested
    Blame that is tested: the trace replayed without each cause.
two_captures
    What changed between two captures, or two sets of captures: `diff`.
gate
    Conditions on metrics for scripts, judged with their intervals.
whereabouts
    Where tasks ran, and whose the CPUs' time was: `where`.
promises
    Whether the schedule keeps its promises: `check`.
loss
    What still holds of a trace that lost records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit._lazy import lazy

if TYPE_CHECKING:
    from tracekit.explain.delays import SPANS, Why, matrix, why
    from tracekit.explain.gate import (
        Condition,
        GateError,
        Judged,
        gate_status,
        judge,
        judge_pair,
        judge_rows,
        parse_condition,
    )
    from tracekit.explain.loss import bound, lost, what_holds
    from tracekit.explain.promises import Checked, check
    from tracekit.explain.tested import VARIANTS, counterfactuals
    from tracekit.explain.two_captures import Difference, diff
    from tracekit.explain.whereabouts import WHERE, where

__all__ = [
    "SPANS",
    "VARIANTS",
    "WHERE",
    "Checked",
    "Condition",
    "Difference",
    "GateError",
    "Judged",
    "Why",
    "bound",
    "check",
    "counterfactuals",
    "diff",
    "gate_status",
    "judge",
    "judge_pair",
    "judge_rows",
    "lost",
    "matrix",
    "parse_condition",
    "what_holds",
    "where",
    "why",
]

_HOMES = {
    "SPANS": "delays",
    "VARIANTS": "tested",
    "WHERE": "whereabouts",
    "Checked": "promises",
    "Condition": "gate",
    "Difference": "two_captures",
    "GateError": "gate",
    "Judged": "gate",
    "Why": "delays",
    "bound": "loss",
    "check": "promises",
    "counterfactuals": "tested",
    "diff": "two_captures",
    "gate_status": "gate",
    "judge": "gate",
    "judge_pair": "gate",
    "judge_rows": "gate",
    "matrix": "delays",
    "parse_condition": "gate",
    "lost": "loss",
    "what_holds": "loss",
    "where": "whereabouts",
    "why": "delays",
}

__getattr__ = lazy(__name__, _HOMES)
