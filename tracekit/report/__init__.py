"""Reports: a trace beside its replays, as tables, JSON, and one page of HTML that needs no network."""

from tracekit.report.comparison import Comparison
from tracekit.report.identity import infer

__all__ = ["Comparison", "infer"]
