"""Histograms of times in logarithmic bins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tracekit.plot import _style as s


def _edges(lo: int, first_hi: int) -> float:
    """Return where a bin that begins at 0 is drawn to begin: half a decade below its end."""
    return float(lo) if lo > 0 else first_hi / np.sqrt(10)


def _outline(table: pl.DataFrame, column: str) -> tuple[list[float], list[float]]:
    rows = table.sort("lo_ns")
    his = rows["hi_ns"].to_list()
    los = rows["lo_ns"].to_list()
    edges = [_edges(los[0], his[0]), *map(float, his)]
    return rows[column].to_list(), edges


def _draw(ax: Axes, data: Mapping[str, pl.DataFrame], column: str) -> tuple[float, float]:
    looks = s.looks(list(data))
    left, right = np.inf, 0.0
    for i, (label, table) in enumerate(data.items()):
        values, edges = _outline(table, column)
        look = looks[label]
        if i == 0:
            ax.stairs(values, edges, fill=True, color=look["color"], alpha=0.25 if len(data) > 1 else 0.55)
        ax.stairs(values, edges, linewidth=1.6, **look)
        left, right = min(left, edges[0]), max(right, edges[-1])
    return left, right


def histogram(
    bins: pl.DataFrame | Mapping[str, pl.DataFrame],
    what: str = "length of slice",
    name: str = "",
    weight: Literal["n", "time"] = "n",
) -> Figure:
    """Plot a histogram of times in logarithmic bins, of one trace or of several on the same bins.

    Parameters
    ----------
    bins
        Result of `tracekit.analysis.slices.histogram` for one group (`by="all"`), or several by label.
    what
        What the times are, for axis and title.
    name
        Name of the trace, for the title.
    weight
        `n` for the share of samples in each bin, `time` for the share of their total time.

    Returns
    -------
    matplotlib.figure.Figure
        Not shown, not saved.

    How to read it
    --------------
    Each bar spans a range of times that grows by the same factor; its height is the share of all samples (or of their
    total time) in that range, and all bars of one outline add up to 100 %. Two humps are two kinds of behaviour, such as
    tasks that block early and tasks that use up their slice. A few long slices can hold most of the time: compare the
    histogram by number with the one by time.
    """
    data = {label: table for label, table in s.as_mapping(bins).items() if table.height}
    column = "share" if weight == "n" else "time_share"
    with s.style():
        fig, (ax,) = s.new_figure(7.4, 3.2)
        if data:
            left, right = _draw(ax, data, column)
            s.time_axis(ax, left, right, what)
            s.percent_axis(ax, "share of samples" if weight == "n" else "share of their time")
            ax.set_ylim(bottom=0)
            notes = {label: f"n = {int(t['n'].sum()):,}" for label, t in data.items()}
            s.legend(fig, s.looks(list(data)), notes)
            if list(data) == [""]:
                ax.set_title(notes[""], loc="right", fontweight="normal", fontsize=8)
        else:
            s.nothing(ax, "no samples of known length")
        by = "by number" if weight == "n" else "by time"
        ax.set_title(f"{what[:1].upper() + what[1:]}, {by}" + (f", {s.plain(name)}" if name else ""))
        return s.finish(fig)
