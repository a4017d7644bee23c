"""Answers about one trace or two: who delayed whom, what changed, and whether it is good enough.

Modules
-------
why
    Where the time of some tasks went, and who had it.
"""

from tracekit.explain.why import SPANS, Why, matrix, why

__all__ = ["SPANS", "Why", "matrix", "why"]
