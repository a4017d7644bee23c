"""Answers about one trace or two: who delayed whom, what changed, and whether it is good enough.

Modules
-------
why
    Where the time of some tasks went, and who had it.
tested
    Blame that is tested: the trace replayed without each cause.
diff
    What changed between two captures, or two sets of captures.
gate
    Conditions on metrics for scripts, judged with their intervals.
where
    Where tasks ran, and whose the CPUs' time was.
check
    Whether the schedule keeps its promises.
loss
    What still holds of a trace that lost records.
"""

from tracekit.explain.check import Checked, check
from tracekit.explain.diff import Difference, diff
from tracekit.explain.gate import Condition, GateError, Judged, judge, judge_pair, judge_rows
from tracekit.explain.gate import parse as parse_condition
from tracekit.explain.gate import status as gate_status
from tracekit.explain.loss import bound, what_holds
from tracekit.explain.tested import VARIANTS, counterfactuals
from tracekit.explain.where import WHERE, where
from tracekit.explain.why import SPANS, Why, matrix, why

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
    "matrix",
    "parse_condition",
    "what_holds",
    "where",
    "why",
]
