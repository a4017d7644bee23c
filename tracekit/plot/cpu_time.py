"""How each CPU's time was used: one bar a CPU."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from tracekit.plot import _style as s

_PARTS = {
    "busy": s.COLOURS[0],
    "softirq": s.COLOURS[4],
    "hardirq": s.COLOURS[1],
    "stolen": s.COLOURS[3],
    "idle": s.GRID,
    "unknown": s.MUTED,
}


def cpu_time(table: pl.DataFrame, name: str = "") -> Figure:
    """Plot how each CPU's time was used.

    Parameters
    ----------
    table
        Result of `tracekit.analysis.placement.imbalance`.
    name
        Name of the trace, for the title.

    Returns
    -------
    matplotlib.figure.Figure
        Not shown, not saved.

    How to read it
    --------------
    Each bar is the time of one CPU: with a task, in interrupts, idle. Bars whose busy parts differ
    are an imbalance; idle time beside waiting tasks is in the table of `tracekit where --show
    idle`.
    """
    with s.style():
        fig, (ax,) = s.new_figure(7.4, 1.2 + 0.34 * max(table.height, 2))
        if not table.height:
            s.nothing(ax, "no CPU has a record")
            return s.finish(fig)
        at = np.arange(table.height)
        left = np.zeros(table.height)
        shown = {k: v for k, v in _PARTS.items() if float(table[f"{k}_share"].max() or 0) > 0}  # type: ignore[arg-type]
        for part, colour in shown.items():
            share = table[f"{part}_share"].to_numpy()
            ax.barh(at, share, left=left, height=0.66, color=colour)
            left = left + share
        ax.set_yticks(at, [f"CPU {n}" for n in table["cpu"].to_list()])
        ax.invert_yaxis()
        ax.set_xlim(0, 1)
        ax.grid(visible=False, axis="y")
        ax.xaxis.set_major_formatter(lambda v, _: f"{100 * v:g} %")
        ax.set_xlabel("share of the time")
        s.legend(fig, {k: {"color": v} for k, v in shown.items()}, {}, filled=True)
        s.head(fig, "How the CPUs' time was used", name)
        return s.finish(fig)
