"""Plots: DataFrame in, matplotlib Figure out.

The tables come from `tracekit.analysis`; a plot computes nothing but where its marks lie. Figures
belong to no window: show them in a notebook, or save them with `figure.savefig("x.png")`. Every
function has a section "How to read it", which `how_to_read` gives as text.
"""

from tracekit.plot._style import how_to_read, style
from tracekit.plot.causes import causes
from tracekit.plot.cdf import cdf
from tracekit.plot.changes import changes
from tracekit.plot.cpu_time import cpu_time
from tracekit.plot.histogram import histogram
from tracekit.plot.predictions import MAX_PREDICTIONS, predictions
from tracekit.plot.queues import queue_distribution, queue_over_time
from tracekit.plot.timeline import timeline

__all__ = [
    "MAX_PREDICTIONS",
    "causes",
    "cdf",
    "changes",
    "cpu_time",
    "histogram",
    "how_to_read",
    "predictions",
    "queue_distribution",
    "queue_over_time",
    "style",
    "timeline",
]
