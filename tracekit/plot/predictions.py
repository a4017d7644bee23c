"""Recorded, identity and predicted values of several metrics in one picture."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from tracekit import words
from tracekit.analysis.compare import IDENTITY, RECORDED
from tracekit.plot import _style as s

MAX_PREDICTIONS = 16
#: How far rows are trusted that are drawn as such: nobody is to read a value off them.
REFUSED = "do not use"
#: What a hollow dot says.
UNRESOLVED = "not resolved"
#: Least range of the axis, as a factor to both sides: small changes stay small.
_LEAST = 1.5
#: Decades of the axis above which tenths of the recorded value have no room.
_WIDE = 0.6
#: So far within an end of the axis an arrow stands, as a factor.
_ARROW = 1.02


def predictions(summary: pl.DataFrame, name: str = "", narrow: bool = False) -> Figure:
    """Plot what policies are predicted to change, with 90 % intervals.

    Parameters
    ----------
    summary
        Rows of `tracekit.whatif.Comparison.table`, such as `Comparison.summary`.
    name
        Name of the trace, for the title.
    narrow
        For the width of a phone: names stand above their lines, not beside them.

    Returns
    -------
    matplotlib.figure.Figure
        Not shown, not saved. At most 16 metrics are drawn, in the order of the table: of more, those
        whose change is resolved, the largest first, before others. The title then says how many.

    How to read it
    --------------
    Each line is one metric of one group. The axis is the factor to the recorded value, which is the
    black line at 1. The grey cross is the identity replay: its distance from 1 is what the replay
    gets wrong. A dot is the prediction for a policy and the bar its 90 % interval; a dot without a
    bar has none, and is no surer for it. A hollow dot is a change that is not resolved. A small grey
    dot with a dotted bar is marked `do not use`; the axis makes no room for it, and an arrow at its
    end says that such a dot, or the cross of its line, is further away. A dot right
    of the line is more than recorded, which for times is worse. A black triangle, where predictions
    are held against a recording, is the real value.
    """
    keys = ("scope", "group", "metric", "statistic")
    rows: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in summary.iter_rows(named=True):
        if row["recorded"] and row["predicted"]:
            rows.setdefault(tuple(row[k] for k in keys), []).append(row)
    shown = _drawn(list(rows.values()))
    labels = list(dict.fromkeys(summary["policy"].to_list()))
    with s.style():
        height = (0.45 if narrow else 0.3) * max(len(shown), 2) + (0.2 if narrow else 0.1) * len(labels)
        fig, (ax,) = s.new_figure(3.6 if narrow else 7.4, 1.2 + height)
        if not shown:
            s.nothing(ax, "no metric has both a recorded and a predicted value")
            return s.finish(fig)
        looks = s.looks([RECORDED, IDENTITY, *labels])
        low, high = _range(shown)
        ax.axvline(1, color=s.INK, linewidth=1.4, zorder=1)
        for y, found in enumerate(shown):
            _line(ax, y, found, labels, looks, (low, high))
        names = [_label(found[0]) for found in shown]
        if narrow:
            _names_above(ax, names)
        else:
            ax.set_ylim(len(shown) - 0.4, -0.6)
            ax.set_yticks(range(len(shown)), names)
        ax.grid(visible=False, axis="y")
        _factor_axis(ax, low, high)
        spans = any(row["low"] is not None for found in shown for row in found)
        held = any(row.get("real") for found in shown for row in found)
        refused = any(_refused(row) for found in shown for row in found)
        vague = [
            row for found in shown for row in found if row["verdict"] != "resolved" and not _refused(row)
        ]
        extra = [("real", "v", s.INK)] * held
        if vague:
            colours = {looks[row["policy"]]["color"] for row in vague}
            extra.append((UNRESOLVED, "o", colours.pop() if len(labels) == 1 else s.INK))
        extra += [(REFUSED, "o", s.MUTED)] * refused
        _legend(fig, labels, looks, ", 90 % interval" if spans else "", 45 if narrow else 100, extra)
        left = f" ({len(shown)} of {len(rows)})" if len(shown) < len(rows) else ""
        s.head(fig, "Predicted against recorded", "" if narrow else name, left)
        return s.finish(fig)


def _drawn(rows: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """The metrics for which there is room, in their order."""

    def rank(place: int) -> tuple[bool, bool, float]:
        clear = [math.log(r["predicted"] / r["recorded"]) for r in rows[place] if r["verdict"] == "resolved"]
        refused = all(map(_refused, rows[place]))
        return refused, not clear, -max(map(abs, clear)) if clear else place

    return [rows[place] for place in sorted(sorted(range(len(rows)), key=rank)[:MAX_PREDICTIONS])]


def _refused(row: dict[str, Any]) -> bool:
    """Whether the row is marked as not to be used."""
    return row.get("trust") == REFUSED


def _names_above(ax: Axes, names: list[str]) -> None:
    """Write the name of each line above it."""
    ax.set_ylim(len(names) - 0.5, -0.85)
    ax.set_yticks([])
    for y, name in enumerate(names):
        ax.text(
            *(0.01, y - 0.45, name),
            transform=ax.get_yaxis_transform(),
            va="center",
            fontsize=8.5,
            bbox={"facecolor": s.PAPER, "edgecolor": "none", "pad": 0.5},
            zorder=1.5,
        )


def _label(row: dict[str, Any]) -> str:
    recorded = words.value(row["recorded"], row["unit"])
    return f"{s.plain(words.group_name(row), 18)}: {words.metric_name(row['metric'], row['statistic'])} ({recorded})"


def _range(shown: list[list[dict[str, Any]]]) -> tuple[float, float]:
    factors = [1 / _LEAST, _LEAST]
    every = [row for found in shown for row in found]
    for row in [row for row in every if not _refused(row)] or every:
        known = [row[k] for k in ("identity", "predicted", "low", "high", "real") if row.get(k)]
        factors += [v / row["recorded"] for v in known]
    return min(factors) / 1.15, max(factors) * 1.15


def _line(
    ax: Axes,
    y: int,
    found: list[dict[str, Any]],
    labels: list[str],
    looks: dict[str, Any],
    axis: tuple[float, float],
) -> None:
    identity = found[0]["identity"]
    if identity:
        at, marker = _within(identity / found[0]["recorded"], axis, "x")
        if all(marker != _within(row["predicted"] / row["recorded"], axis, "o")[1] for row in found):
            ax.plot(at, y, marker=marker, color=s.MUTED, markersize=6, zorder=2)
    step = min(0.22, 0.7 / max(len(labels), 1))
    for row in found:
        place = y + (labels.index(row["policy"]) - (len(labels) - 1) / 2) * step
        colour, width, line, size = looks[row["policy"]]["color"], 2.2, "-", 5.0
        if refused := _refused(row):
            colour, width, line, size = s.MUTED, 1.0, ":", 3.5
        if row["low"] and row["high"]:
            ends = [row["low"] / row["recorded"], row["high"] / row["recorded"]]
            look: dict[str, Any] = {"linewidth": width, "linestyle": line, "solid_capstyle": "butt"}
            ax.plot(ends, [place, place], color=colour, zorder=3, **look)
        face = colour if row["verdict"] == "resolved" and not refused else s.PAPER
        at, marker = _within(row["predicted"] / row["recorded"], axis, "o")
        ax.plot(
            at, place, marker=marker, markersize=size, markerfacecolor=face, markeredgecolor=colour, zorder=4
        )
        if row.get("real"):
            ax.plot(
                row["real"] / row["recorded"], place - 0.16, marker="v", color=s.INK, markersize=5, zorder=5
            )


def _within(factor: float, ends: tuple[float, float], marker: str) -> tuple[float, str]:
    """Where a factor is marked, and how: beyond an end of the axis by an arrow at that end."""
    low, high = ends
    if low <= factor <= high:
        return factor, marker
    return (low * _ARROW, "<") if factor < low else (high / _ARROW, ">")


def _factor_axis(ax: Axes, low: float, high: float) -> None:
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    decades = math.log10(high / low)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    # As few as do: three, and more steps a decade where that gives less.
    for most, steps in ((math.inf, (1,)), (2.5, (1, 3)), (1.3, (1, 2, 5))):
        if decades <= most or len(ticks) < 3:
            ticks = [m * 10.0**k for k in powers for m in steps if low <= m * 10.0**k <= high]
    if len(ticks) < 3:
        wide, close = (0.2, 0.3, 0.5, 0.7, 1, 2, 3, 5), (0.5, 0.67, 0.8, 1, 1.25, 1.5, 2)
        ticks = [t for t in (wide if decades > _WIDE else close) if low <= t <= high]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"x {v:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("factor to the recorded value")


def _legend(
    fig: Figure,
    labels: list[str],
    looks: dict[str, Any],
    what: str,
    width: int,
    extra: list[tuple[str, str, str]],
) -> None:
    handles = [
        Line2D([], [], color=s.INK, linewidth=1.4),
        Line2D([], [], color=s.MUTED, marker="x", linestyle=""),
        *(Line2D([], [], color=looks[label]["color"], marker="o", linewidth=2.2) for label in labels),
    ]
    names = ["recorded", "identity replay", *(f"{s.plain(label)}{what}" for label in labels)]
    for name, marker, colour in extra:
        look: dict[str, Any] = {"markerfacecolor": colour if name == "real" else s.PAPER}
        if name == REFUSED:
            look["markersize"] = 3.5
        handles.append(Line2D([], [], color=colour, marker=marker, linestyle="", **look))
        names.append(name)
    columns = max(1, min(len(names), width // (max(map(len, names)) + 8)))
    fig.legend(handles, names, loc="outside lower left", ncols=columns)
