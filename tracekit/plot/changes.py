"""What changed between two captures: one line a figure, with its interval."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from tracekit.plot import _style as s

#: Rows that a figure shows.
_MOST = 24


def changes(table: pl.DataFrame, name: str = "") -> Figure:
    """Plot the changes between two captures, or two sets of captures, with their intervals.

    Parameters
    ----------
    table
        Result of `tracekit.analysis.difference.compare`.
    name
        For the title.

    Returns
    -------
    matplotlib.figure.Figure
        Not shown, not saved.

    How to read it
    --------------
    Each dot is the change of one figure, B over A, on a logarithmic axis; the line is its 90 %
    interval. Dark dots changed by more than chance explains; grey ones cannot be distinguished from no
    change. A line that crosses 0 % may be no change at all.
    """
    rows = table.filter(pl.col("lo").is_not_null()).head(_MOST)
    with s.style():
        fig, (ax,) = s.new_figure(7.4, 1.2 + 0.24 * max(rows.height, 3))
        if not rows.height:
            s.nothing(ax, "no figure has enough samples on both sides")
            return s.finish(fig)
        at = np.arange(rows.height)
        ratio, lo, hi = (1 + rows[c].to_numpy() for c in ("change", "lo", "hi"))
        sure = (rows["verdict"] == "changed").to_numpy()
        colours = [s.COLOURS[0] if yes else s.MUTED for yes in sure]
        ax.hlines(at, np.maximum(lo, 1e-3), hi, color=colours, linewidth=1.4)
        ax.scatter(ratio, at, color=colours, s=16, zorder=3)
        ax.axvline(1, color=s.INK, linewidth=0.8)
        ax.set_xscale("log")
        labels = [
            s.plain(f"{g}: {m} {q}", 48) for g, m, q in rows.select("group", "metric", "statistic").rows()
        ]
        ax.set_yticks(at, labels)
        ax.invert_yaxis()
        ax.grid(visible=False, axis="y")
        ends = float(np.min(np.maximum(lo, 1e-3))), float(np.max(hi))
        ticks = _ticks(*ends)
        ax.set_xticks(ticks, [f"{t:,.0f} times" if t >= 100 else f"{100 * (t - 1):+.0f} %" for t in ticks])
        ax.minorticks_off()
        ax.set_xlabel("change, B over A")
        s.head(fig, "What changed", name)
        return s.finish(fig)


def _ticks(lo: float, hi: float) -> list[float]:
    """Ratios between `lo` and `hi` whose labels have room beside each other; 1 is one of them."""
    known = [10.0**n for n in range(-2, 9)] + [0.5, 2, 3, 5, 0.75, 1.5, 0.25, 0.9, 1.1, 1.25, 0.95, 1.05]
    room = math.log(max(hi, 1) / min(lo, 1)) / 8
    ticks: list[float] = [1.0]
    for tick in known:
        if lo <= tick <= hi and all(abs(math.log(tick / other)) > room for other in ticks):
            ticks.append(tick)
    return sorted(ticks)
