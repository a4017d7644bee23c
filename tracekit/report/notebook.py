"""A comparison as a notebook shows it: the finding, the picture and the main table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader

from tracekit import plot
from tracekit.report.figures import inline_svg
from tracekit.report.sentences import worded
from tracekit.whatif.headline import effect_of, findings

if TYPE_CHECKING:
    from tracekit.whatif import Comparison

__all__ = ["render_short"]


def render_short(comparison: Comparison) -> str:
    """Render what a notebook shows.

    Parameters
    ----------
    comparison
        The comparison.

    Returns
    -------
    str
        HTML without scripts; every text that comes from the trace is escaped.
    """
    environment = Environment(
        loader=PackageLoader("tracekit.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["worded"] = worded
    rows = [(row["policy"], effect_of(row)) for row in comparison.summary.iter_rows(named=True)]
    picture = inline_svg(
        plot.predictions(comparison.summary, comparison.trace.name), "nb", "Predicted against recorded"
    )
    return environment.get_template("notebook.html").render(
        findings=[sentence for f in findings(comparison) for sentence in f.sentences],
        rows=rows,
        picture=picture,
    )
