"""Histograms of times in logarithmic bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tracekit.plot import _style as s

_MAX_PANELS = 6
#: A group with fewer samples has no shape worth the name, unless it is asked for.
MIN_SAMPLES = 20


#: Share of a panel's width that the bar of samples of 0 ns takes, and the gap behind it as well.
_ZERO_WIDTH = 0.05


def _edges(lo: int, first_hi: int) -> float:
    """Return where a bin that begins at 0 is drawn to begin: half a decade below its end."""
    return float(lo) if lo > 0 else first_hi / np.sqrt(10)


def _of_zero(table: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The bin that holds 0 ns and nothing else, and the others."""
    zero = (pl.col("lo_ns") == 0) & (pl.col("hi_ns") == 1)
    return table.filter(zero), table.filter(~zero)


def _outline(table: pl.DataFrame, column: str) -> tuple[list[float], list[float]]:
    rows = table.sort("lo_ns")
    his = rows["hi_ns"].to_list()
    los = rows["lo_ns"].to_list()
    edges = [_edges(los[0], his[0]), *map(float, his)]
    return rows[column].to_list(), edges


def _draw(
    ax: Axes,
    data: Mapping[str, pl.DataFrame],
    column: str,
    looks: Mapping[str, dict[str, Any]],
    place: tuple[float, float] | None,
) -> None:
    """Draw outlines; `place` is where samples of 0 ns stand."""
    for i, (label, table) in enumerate(data.items()):
        zero, others = _of_zero(table)
        drawn = [_outline(others, column)] if others.height else []
        if place is not None and zero["n"].sum():
            drawn.append((zero[column].to_list(), list(place)))
        look = looks[label]
        for values, edges in drawn:
            if i == 0:
                alpha = 0.25 if len(looks) > 1 else 0.55
                ax.stairs(values, edges, fill=True, color=look["color"], alpha=alpha)
            ax.stairs(values, edges, linewidth=1.6, **look)


def histogram(
    bins: pl.DataFrame | Mapping[str, pl.DataFrame],
    what: str = "length of slice",
    name: str = "",
    weight: Literal["n", "time"] = "n",
    groups: Sequence[str | None] | None = None,
) -> Figure:
    """Plot histograms of times in logarithmic bins, a panel per group, of one trace or several.

    Parameters
    ----------
    bins
        Result of `tracekit.analysis.slices.histogram`, or several by label.
    what
        What the times are, for axis and title.
    name
        Name of the trace, for the title.
    weight
        `n` for the share of samples in each bin, `time` for the share of their total time.
    groups
        Groups to show, at most six; by default those with most samples, and at least 20.

    Returns
    -------
    matplotlib.figure.Figure
        Not shown, not saved.

    How to read it
    --------------
    Each bar spans a range of times that grows by the same factor; its height is the share of all
    samples (or of their total time) in that range, and all bars of one outline add up to 100 %. All
    panels have the same time axis. Samples of 0 ns, which end within one step of the clock, have a bar of
    their own at the left, marked 0: it has no place on a logarithmic axis. Two humps are two kinds of behaviour, such as tasks that block
    early and tasks that use up their slice. A few long slices can hold most of the time: compare
    the histogram by number with the one by time.
    """
    data = {label: table for label, table in s.as_mapping(bins).items() if table.height}
    column = "share" if weight == "n" else "time_share"
    chosen = list(groups) if groups is not None else _largest(data)
    shown = chosen[:_MAX_PANELS]
    with s.style():
        across = 1 if len(shown) <= 1 else 2
        down = max(1, -(-len(shown) // across))
        fig, axes = s.new_figure(7.4 if across == 1 else 9.6, 3.2 if down == 1 else 2.6 * down, down, across)
        looks = s.looks(list(data))
        notes: dict[str, str] = {}
        ends, zero = _ends(data, shown)
        for ax, group in zip(axes, shown, strict=False):
            part = {label: t.filter(pl.col("group").eq_missing(pl.lit(group))) for label, t in data.items()}
            part = {label: t for label, t in part.items() if t.height}
            _panel(ax, part, looks, column, what, ends, zero)
            counts = {label: f"{int(t['n'].sum()):,}" for label, t in part.items()}
            if len(shown) == 1:
                notes = {label: f"n = {n}" for label, n in counts.items()}
            ax.set_title(s.plain(group))
            if len(shown) > 1 or list(data) == [""]:
                ax.set_ylim(top=(1.1 + 0.09 * len(counts)) * ax.get_ylim()[1])  # Room for the note.
                s.note(ax, "n = " + "\n".join(counts.values()))
        if data:
            s.legend(fig, looks, notes)
        else:
            s.nothing(axes[0], "no samples of known length")
        for ax in axes[max(len(shown), 1) :]:
            ax.set_axis_off()
        by = "by number" if weight == "n" else "by time"
        s.head(fig, f"{what[:1].upper() + what[1:]}, {by}", name, s.left_out(data, groups, len(shown)))
        return s.finish(fig)


def _panel(
    ax: Axes,
    part: Mapping[str, pl.DataFrame],
    looks: Mapping[str, dict[str, Any]],
    column: str,
    what: str,
    ends: tuple[float, float],
    zero: tuple[float, float] | None,
) -> None:
    if not part:
        s.nothing(ax, "no samples of known length")
        return
    _draw(ax, part, column, looks, zero)
    s.time_axis(ax, *ends, what, zero)
    s.percent_axis(ax, "share of samples" if column == "share" else "share of their time")
    ax.set_ylim(bottom=0)


def _largest(data: Mapping[str, pl.DataFrame]) -> list[str | None]:
    """The groups of the first table, most samples first; those with few samples are left out."""
    if not data:
        return []
    counted = next(iter(data.values())).group_by("group").agg(pl.col("n").sum())
    enough = counted.filter(pl.col("n") >= MIN_SAMPLES)
    counted = enough if enough.height else counted
    return counted.sort("n", "group", descending=[True, False])["group"].to_list()


def _ends(
    data: Mapping[str, pl.DataFrame], shown: Sequence[str | None]
) -> tuple[tuple[float, float], tuple[float, float] | None]:
    """Where the time axis begins and ends, and where samples of 0 ns stand, if there are any.

    The same for all panels.
    """
    left, right = np.inf, 0.0
    zero = False
    for table in data.values():
        rows = table.filter(pl.col("group").is_in(shown, nulls_equal=True) & (pl.col("n") > 0))
        of_zero, others = _of_zero(rows)
        zero |= of_zero.height > 0
        if others.height:
            _, edges = _outline(others, "n")
            left, right = min(left, edges[0]), max(right, edges[-1])
    left, right = (left, right) if right else (100.0, 10_000.0)
    step = (right / left) ** (_ZERO_WIDTH / (1 - 2 * _ZERO_WIDTH))
    return (left, right), (left / step**2, left / step) if zero else None
