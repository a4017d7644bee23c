"""Run-queue lengths: distribution, and course over time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tracekit.plot import _style as s

#: Longest distribution that is drawn as bars; beyond, as outlines.
_MAX_BARS = 40


def _bars(ax: Axes, data: Mapping[str, pl.DataFrame]) -> None:
    looks = s.looks(list(data))
    width = 0.84 / len(data)
    for i, (label, table) in enumerate(data.items()):
        at = table["length"].to_numpy() + (i - (len(data) - 1) / 2) * width
        ax.bar(
            at,
            table["share"].to_numpy(),
            width=width * 0.94,
            color=looks[label]["color"],
        )
        if "share_low" in table.columns:
            known = table.filter(pl.col("share_low").is_not_null())
            middle = known["length"].to_numpy() + (i - (len(data) - 1) / 2) * width
            share = known["share"].to_numpy()
            reach = [share - known["share_low"].to_numpy(), known["share_high"].to_numpy() - share]
            ax.errorbar(middle, share, np.maximum(reach, 0), fmt="none", ecolor=s.INK, elinewidth=0.9)


def _outlines(ax: Axes, data: Mapping[str, pl.DataFrame], longest: int) -> None:
    looks = s.looks(list(data))
    for label, table in data.items():
        shares = np.zeros(longest + 1)
        shares[table["length"].to_numpy()] = table["share"].to_numpy()
        ax.stairs(shares, np.arange(longest + 2) - 0.5, linewidth=1.5, **looks[label])


def _note(table: pl.DataFrame) -> str:
    if "n" in table.columns:
        return f"n = {int(table['n'].sum()):,} switches"
    return f"mean {float((table['length'] * table['share']).sum()):.3g}"


def queue_distribution(
    shares: pl.DataFrame | Mapping[str, pl.DataFrame],
    cpu: int | None = None,
    name: str = "",
    at_switch: bool = False,
    waiting_only: bool = False,
) -> Figure:
    """Plot the distribution of run-queue lengths, of one trace or of several side by side.

    Parameters
    ----------
    shares
        Result of `tracekit.analysis.runqueue.distribution` or `at_switch`, or several by label.
    cpu
        CPU whose queue is shown; by default all CPUs together.
    name
        Name of the trace, for the title.
    at_switch
        The table is that of `at_switch`: shares are of switches, not of time.
    waiting_only
        The table counts waiting tasks only (``count="waiting"``).

    Returns
    -------
    matplotlib.figure.Figure
        Not shown, not saved.

    How to read it
    --------------
    Each bar is the share of time (or of switches) during which that many tasks were running or
    waiting to run; the line over a bar is its 90 % interval, as another stretch of time as long
    would show it. The axis says where only those that wait are counted. With running tasks
    counted, 0 is idle; on one CPU, every task beyond the first was waiting. On n CPUs tasks wait
    for certain where the length of the whole system is greater than n, and may wait below that when
    they stand in the wrong queue.
    """
    scope = (
        pl.col("scope") == "system" if cpu is None else (pl.col("scope") == "cpu") & (pl.col("cpu") == cpu)
    )
    data = {label: t.filter(scope).sort("length") for label, t in s.as_mapping(shares).items()}
    data = {label: t for label, t in data.items() if t.height}
    with s.style():
        fig, (ax,) = s.new_figure(7.4, 3.2)
        if data:
            longest = max(int(t["length"][-1]) for t in data.values())
            if longest <= _MAX_BARS:
                _bars(ax, data)
            else:
                _outlines(ax, data, longest)
            ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=14))
            ax.set_xlim(-0.6, longest + 0.6)
            ax.grid(visible=False, axis="x")
            ax.set_xlabel("tasks waiting to run" if waiting_only else "tasks running or waiting to run")
            s.percent_axis(ax, "share of switches" if at_switch else "share of time")
            notes = {label: _note(t) for label, t in data.items()}
            s.legend(fig, s.looks(list(data)), notes, filled=longest <= _MAX_BARS)
            if list(data) == [""]:
                ax.set_title(notes[""], loc="right", fontweight="normal", fontsize=8)
        else:
            s.nothing(ax, "no run-queue lengths")
        where = "all CPUs" if cpu is None else f"CPU {cpu}"
        seen = "at each switch" if at_switch else "by share of time"
        s.head(fig, f"Run-queue length {seen}, {where}", name)
        return s.finish(fig)


def queue_over_time(lengths: pl.DataFrame | Mapping[str, pl.DataFrame], name: str = "") -> Figure:
    """Plot the run-queue length of the whole system over time.

    Parameters
    ----------
    lengths
        Result of `tracekit.analysis.runqueue.over_time`, or several by label, each with its own panel.
    name
        Name of the trace, for the title.

    Returns
    -------
    matplotlib.figure.Figure
        Not shown, not saved.

    How to read it
    --------------
    The line is the mean number of tasks running or waiting in each short interval, the band reaches
    from the smallest to the largest number in it. A line that stays above the number of CPUs is a
    machine that never catches up; bursts show as peaks of the band. A gap is time of which records
    were lost.
    """
    data = s.as_mapping(lengths)
    with s.style():
        fig, axes = s.new_figure(7.4, 1.1 + 1.7 * len(data), len(data))
        looks = s.looks(list(data))
        highest = max([int(str(t["max"].max())) for t in data.values() if t["max"].count()] or [1])
        # One scale for all: a replay that takes longer shows as longer.
        longest = max(
            [t["ts_ns"][-1] + t["dur_ns"][-1] - t["ts_ns"][0] for t in data.values() if t.height] or [1]
        )
        for ax, (label, table) in zip(axes, data.items(), strict=True):
            if not table["mean"].count():
                s.nothing(ax, "no run-queue lengths")
                continue
            start = table["ts_ns"][0]
            at = (table["ts_ns"] - start).to_numpy().astype(float)
            edges = np.append(at, at[-1] + table["dur_ns"][-1])
            colour = looks[label]["color"]
            low, mean, high = (table[c].cast(pl.Float64).to_numpy() for c in ("min", "mean", "max"))
            ax.stairs(high, edges, baseline=low, fill=True, color=colour, alpha=0.25)
            ax.stairs(mean, edges, baseline=None, color=colour)
            ax.set_xlim(0, longest)
            ax.set_ylim(0, highest * 1.08)
            ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
            s.linear_time_axis(ax, s.unit_of(longest), "time since the first record")
            if ax is not axes[-1]:
                ax.set_xlabel("")
            ax.set_ylabel("tasks")
            if label:
                ax.set_title(s.plain(label), fontweight="normal")
        s.head(fig, "Run-queue length over time, all CPUs", name)
        return s.finish(fig)
