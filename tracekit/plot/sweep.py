"""A statistic over the axes of a sweep, and two statistics against each other."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tracekit.plot import _style as s
from tracekit.units import format_ns

_UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
#: Cells of an axis that get a tick each.
_MAX_TICKS = 12
_VALUE = re.compile(r"([+-]?[\d.]+(?:e[+-]?\d+)?)(ns|us|ms|s)?")


def _numbers(texts: list[str]) -> tuple[np.ndarray, bool] | None:
    """Numbers of an axis and whether they are times; None where one is a word."""
    found = [_VALUE.fullmatch(text) for text in texts]
    if not all(found):
        return None
    pairs = [(float(m[1]), m[2]) for m in found if m]
    return np.array([v * _UNITS[u or "ns"] for v, u in pairs]), any(u for _, u in pairs)


def _place(ax: Axes, texts: list[str]) -> np.ndarray:
    """Where the values of an axis lie; names get a tick each."""
    found = _numbers(texts)
    if found is not None:
        places, times = found
        # A scale sets its own ticks, so it comes before them.
        if places.min() > 0 and places.max() / places.min() >= 20:
            ax.set_xscale("log")
        if len(set(places)) <= _MAX_TICKS:
            ax.set_xticks(sorted(set(places)))
            ax.set_xticks([], minor=True)
        if times:
            ax.xaxis.set_major_formatter(lambda x, _: format_ns(x) if x else "0")
        return places
    names = list(dict.fromkeys(texts))
    ax.set_xticks(range(len(names)), names)
    return np.array([names.index(t) for t in texts], dtype=float)


def response_curve(values: pl.DataFrame, statistic: str = "", name: str = "") -> Figure:
    """Plot a statistic over the first axis of a sweep, a line for each combination of the others.

    Parameters
    ----------
    values
        Result of `tracekit.whatif.sweep.Sweep.values`.
    statistic
        What it is, for the axis.
    name
        Title.

    Returns
    -------
    matplotlib.figure.Figure
        Not shown, not saved.

    How to read it
    --------------
    Each point is one cell of the grid: the predicted value, with its 90 % interval as a bar where
    one is known. The dashed line is the identity replay. A slope that is smaller than the bars is
    not resolved.
    """
    fixed = {"cell", "trace", "group", "unit", "recorded", "identity", "value", "is_bound", "low", "high"}
    fixed |= {"verdict", "trust"}
    first, *others = [c for c in values.columns if c not in fixed] or ["cell"]
    others += [c for c in ("trace", "group") if values[c].n_unique() > 1]
    with s.style():
        figure = Figure(figsize=(7, 4.2), layout="constrained")
        ax = figure.add_subplot()
        places = dict(zip(values["cell"], _place(ax, values[first].cast(pl.String).to_list()), strict=True))
        parts = values.group_by(others, maintain_order=True) if others else [((), values)]
        for number, (key, part) in enumerate(parts):
            _curve(ax, part, places, ", ".join(f"{o}={k}" for o, k in zip(others, key, strict=True)), number)
        base = values["identity"].drop_nulls()
        if base.len() and base.n_unique() == 1:
            ax.axhline(
                float(base[0]), color=s.MUTED, linestyle=s.DASHES[1], linewidth=1, label="identity replay"
            )
        if values["unit"][0] == "ns":
            ax.yaxis.set_major_formatter(lambda y, _: format_ns(y) if y else "0")
        ax.set_xlabel(first)
        ax.set_ylabel(statistic)
        ax.set_ylim(bottom=0)
        if others or base.len():
            ax.legend(fontsize=8)
        figure.suptitle(name or statistic)
    return figure


def _curve(ax: Axes, part: pl.DataFrame, places: dict[int, float], label: str, number: int) -> None:
    part = part.with_columns(at=pl.col("cell").replace_strict(places, return_dtype=pl.Float64)).sort("at")
    x, y = part["at"].to_numpy(), part["value"].to_numpy()
    colour = s.COLOURS[number % len(s.COLOURS)]
    known = part.filter(pl.col("low").is_not_null(), pl.col("high").is_not_null())
    if known.height:
        ax.vlines(known["at"], known["low"], known["high"], color=colour, alpha=0.45, linewidth=3)
    ax.plot(x, y, marker="o", markersize=4, color=colour, linewidth=1.4, label=label or None)


def tradeoff(front: pl.DataFrame, all_cells: pl.DataFrame, name: str = "") -> Figure:
    """Plot two statistics of all cells of a sweep, and the cells that no other beats in both.

    Parameters
    ----------
    front
        Result of `tracekit.whatif.sweep.Sweep.front` for two statistics, its last two columns.
    all_cells
        The same two columns for every cell.
    name
        Title.

    Returns
    -------
    matplotlib.figure.Figure
        Not shown, not saved.

    How to read it
    --------------
    Each grey point is a cell. The coloured ones are those for which no other cell is better in both
    statistics: a choice between the two has to be made along their line.
    """
    a, b = front.columns[-2:]
    with s.style():
        figure = Figure(figsize=(6, 4.6), layout="constrained")
        ax = figure.add_subplot()
        ax.scatter(
            all_cells[a], all_cells[b], color=s.GRID, edgecolors=s.MUTED, linewidths=0.5, s=26, label="cells"
        )
        best = front.sort(a)
        ax.plot(
            best[a],
            best[b],
            marker="o",
            color=s.COLOURS[0],
            linewidth=1.2,
            label="no other is better in both",
        )
        ax.set_xlabel(a)
        ax.set_ylabel(b)
        for axis, column in ((ax.xaxis, a), (ax.yaxis, b)):
            if not column.startswith(("switches", "involuntary", "runqueue")):
                axis.set_major_formatter(lambda v, _: format_ns(v) if v else "0")
        ax.legend(fontsize=8)
        figure.suptitle(name or f"{b} against {a}")
    return figure
