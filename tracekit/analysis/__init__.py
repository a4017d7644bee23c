"""Analyses: pure functions from the tables of a trace to DataFrames.

Each module states its definitions as formulas, what it leaves out, and how its figures can mislead.
Nothing here reads files or draws. Modules are loaded when they are first used.

Modules
-------
slices
    How long tasks stayed on a CPU, and why they left it.
runqueue
    How many tasks were runnable, weighted by time or seen at each switch.
latency
    Run delay: wakeup latency, preemption wait.
response
    From a wakeup until the task next blocks or exits.
losses
    How much of the trace is missing.
damage
    What was lost, damaged or inferred, by cause, and how much it touches.
uncertainty
    Censored samples, confidence intervals, distance between distributions.
tool_histograms
    Histograms that a tool printed, as the plots take them.
sampling
    The sampling error of every row of `compare`.
compare
    Recorded, identity replay and policies side by side.
occupancy
    Who had each CPU, and when: tasks, interrupts, softirqs, idle.
critical_path
    What a sleeping task waited for: its wakers, backwards.
blame
    Who delayed whom: the exact decomposition of responses, waits and windows.
placement
    Where tasks run: migrations, idle CPUs beside waiting tasks, interrupts, periods, lives of processes.
conformance
    Does the schedule keep its promises?
automata
    Finite automata over the records of a trace.
difference
    What differs between two captures, or two sets of captures.
windows
    Metrics of a capture with the spread between stretches of its time.
antagonists
    Who delays whom, over all tasks: waits, preemptions, and what they cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit._lazy import lazy

if TYPE_CHECKING:
    from tracekit.analysis import (
        antagonists,
        automata,
        blame,
        compare,
        conformance,
        critical_path,
        damage,
        difference,
        latency,
        losses,
        occupancy,
        placement,
        response,
        runqueue,
        sampling,
        slices,
        tool_histograms,
        uncertainty,
        windows,
    )
    from tracekit.analysis._common import GROUPINGS, QUANTILES, group_of

__all__ = [
    "GROUPINGS",
    "QUANTILES",
    "antagonists",
    "automata",
    "blame",
    "compare",
    "conformance",
    "critical_path",
    "damage",
    "difference",
    "group_of",
    "latency",
    "losses",
    "occupancy",
    "placement",
    "response",
    "runqueue",
    "sampling",
    "slices",
    "tool_histograms",
    "uncertainty",
    "windows",
]

_HOMES = {name: name for name in __all__} | dict.fromkeys(("GROUPINGS", "QUANTILES", "group_of"), "_common")

__getattr__ = lazy(__name__, _HOMES)
