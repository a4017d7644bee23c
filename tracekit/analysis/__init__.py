"""Analyses: pure functions from the tables of a trace to DataFrames.

Each module states its definitions as formulas, what it leaves out, and how its figures can mislead. Nothing here
reads files or draws.

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
uncertainty
    Censored samples, confidence intervals, distance between distributions.
printed
    Histograms that a tool printed, as the plots take them.
compare
    Recorded, identity replay and policies side by side.
"""

from tracekit.analysis import (
    compare,
    latency,
    losses,
    printed,
    response,
    runqueue,
    slices,
    uncertainty,
)
from tracekit.analysis._common import GROUPINGS, QUANTILES, group_of

__all__ = [
    "GROUPINGS",
    "QUANTILES",
    "compare",
    "group_of",
    "latency",
    "losses",
    "printed",
    "response",
    "runqueue",
    "slices",
    "uncertainty",
]
