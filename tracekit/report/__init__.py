"""Reports: a comparison as one page of HTML that needs no network."""

from tracekit.report.page import render

__all__ = ["render"]
