"""Distribution functions of times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tracekit.plot import _style as s

_MAX_PANELS = 6
#: Quantiles with a line of their own.
MARKS = (0.5, 0.95, 0.99)
#: A group with fewer samples has no curve worth the name, unless it is asked for.
MIN_SAMPLES = 20


def _points(
    curve: pl.DataFrame, left: float, right: float, column: str = "cdf"
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the corners of a step curve between `left` and `right`, thinned to what can be seen."""
    x = curve["value_ns"].to_numpy().astype(np.float64)
    # The band has no width where the curve is at 0 or 1.
    y = curve[column].fill_null(curve["cdf"]).to_numpy()
    if len(x) > s.MAX_POINTS:
        place = np.floor(np.log10(np.maximum(x, left) / left) / max(np.log10(right / left), 1e-9) * 600)
        row = np.floor(y * 600)
        keep = np.append((np.diff(place) != 0) | (np.diff(row) != 0), True)
        keep[0] = True
        x, y = x[keep], y[keep]
    # What lies left of the axis (waits of 0 ns) shows as the level at which the curve starts.
    start = y[x <= left][-1] if (x <= left).any() else 0.0
    inside = x > left
    return np.concatenate([[left], x[inside], [right]]), np.concatenate([[start], y[inside], [y[-1]]])


def _range(curves: Sequence[pl.DataFrame]) -> tuple[float, float]:
    values = pl.concat([c["value_ns"] for c in curves])
    positive = values.filter(values > 0)
    lo, hi = positive.min(), positive.max()
    if not isinstance(lo, int) or not isinstance(hi, int):
        return 100.0, 10_000.0
    left, right = lo / 1.3, hi * 1.15
    if right / left < 4:
        middle = float(np.sqrt(left * right))
        left, right = middle / 2, middle * 2
    return left, right


def _samples(curve: pl.DataFrame) -> tuple[int, int]:
    """Return the number of samples, and how many of them had not ended."""
    events, censored = curve.select(pl.col("n_events").sum(), pl.col("n_censored").sum()).row(0)
    return events + censored, censored


def _count(curve: pl.DataFrame, cut: str) -> str:
    n, censored = _samples(curve)
    return f"{n:,}" + (f" ({censored:,} {cut})" if censored else "")


def _band(ax: Axes, curve: pl.DataFrame, colour: str, tail: bool, ends: tuple[float, float]) -> None:
    """Shade the 90 % band of a curve."""
    x, low = _points(curve, *ends, "cdf_low")
    other, high = _points(curve, *ends, "cdf_high")
    # Each end was thinned by itself.
    at = np.union1d(x, other)
    low, high = (y[np.searchsorted(p, at, side="right") - 1] for p, y in ((x, low), (other, high)))
    if tail:
        low, high = np.maximum(1 - high, 1e-12), np.maximum(1 - low, 1e-12)
    ax.fill_between(at, low, high, step="post", color=colour, alpha=0.18, linewidth=0)


def _panel(
    ax: Axes,
    curves: Mapping[str, pl.DataFrame],
    looks: Mapping[str, dict[str, Any]],
    xlabel: str,
    tail: bool,
    ends: tuple[float, float],
) -> None:
    present = {label: c for label, c in curves.items() if c.height}
    if not present:
        s.nothing(ax, "no samples")
        return
    left, right = ends
    lowest = 1.0
    for label, curve in present.items():
        x, y = _points(curve, left, right)
        if tail:
            lowest = min(lowest, 0.7 / _samples(curve)[0])
            y = np.where(1 - y > 1e-12, 1 - y, np.nan)
        ax.step(x, y, where="post", **looks[label])
        if {"cdf_low", "cdf_high"} <= set(curve.columns):
            _band(ax, curve, looks[label]["color"], tail, ends)
    for share in MARKS:
        ax.axhline(1 - share if tail else share, color=s.GRID, linewidth=1.1, linestyle=s.DASHES[2], zorder=1)
    s.time_axis(ax, left, right, xlabel)
    if tail:
        ax.set_yscale("log")
        ax.set_ylim(lowest, 1.05)
        s.percent_axis(ax, "takes longer")
    else:
        ax.set_ylim(0, 1.02)
        ax.set_yticks([0, 0.25, *MARKS], ["0", "25 %", *(f"p{100 * m:g}" for m in MARKS[:-1]), ""])
        ax.set_ylabel("takes at most this long")


def cdf(
    curves: pl.DataFrame | Mapping[str, pl.DataFrame],
    groups: Sequence[str | None] | None = None,
    what: str = "response time",
    name: str = "",
    tail: bool = False,
    cut: str = "not ended",
) -> Figure:
    """Plot distribution functions of times, one panel per group of tasks, one curve per trace.

    Parameters
    ----------
    curves
        Result of `tracekit.analysis.response.cdf`, `latency.cdf` or `slices.cdf`, or several by
        label (`recorded`, `identity replay` and names of policies have fixed looks).
    groups
        Groups to show, at most six; by default those with most samples, and at least 20.
    what
        What the times are, for axis and title.
    name
        Name of the trace, for the title.
    tail
        Show the share that takes *longer*, on a logarithmic axis, which spreads out the rare long times.
    cut
        What is said of samples that are known to last at least so long and no more (censored ones).

    Returns
    -------
    matplotlib.figure.Figure
        Not shown, not saved.

    How to read it
    --------------
    Go up from a time to the curve: that share of all samples took at most this long. A curve
    further left and higher is faster. The shade around a curve is its 90 % band (Greenwood),
    which takes samples for independent: where one wait depends on the last it is too narrow.
    Dotted lines mark p50 (the median), p95 and p99. All panels have the same time axis. The
    number of samples stands in each panel, in the order of the legend. A step is a time that
    occurs often. Where a curve starts above 0 % at the left edge, that share took no measurable
    time. A curve that ends below 100 % has samples that were cut short: they had not ended when
    the trace did, or ended for another reason than the one that is asked about.
    """
    data = s.as_mapping(curves)
    chosen = list(groups) if groups is not None else _largest(data)
    with s.style():
        shown = chosen[:_MAX_PANELS] or [None]
        columns = 1 if len(shown) == 1 else 2
        rows = -(-len(shown) // columns)
        fig, axes = s.new_figure(
            7.4 if columns == 1 else 9.6, 3.3 if rows == 1 else 2.9 * rows, rows, columns
        )
        looks = s.looks(list(data))
        notes = {}
        every = [c for c in data.values() if c.height]
        every = [c.filter(pl.col("group").is_in(shown, nulls_equal=True)) for c in every] or every
        ends = _range(every) if every else (100.0, 10_000.0)
        for ax, group in zip(axes, shown, strict=False):
            part = {label: c.filter(pl.col("group").eq_missing(pl.lit(group))) for label, c in data.items()}
            _panel(ax, part, looks, what, tail, ends)
            # Without any sample there is no task that lacks a name either.
            ax.set_title(s.plain(group) if every or groups is not None else "")
            notes = {label: f"n = {_count(c, cut)}" for label, c in part.items()}
            if len(shown) > 1 or list(data) == [""]:
                counts = "\n".join(_count(c, cut) for c in part.values() if c.height)
                s.note(ax, f"n = {counts}" if counts else "", top=False)
        s.legend(fig, looks, notes if len(shown) == 1 else {})
        for ax in axes[len(shown) :]:
            ax.set_axis_off()
        s.head(fig, what[:1].upper() + what[1:], name, s.left_out(data, groups, len(shown)))
        return s.finish(fig)


def _largest(data: Mapping[str, pl.DataFrame]) -> list[str | None]:
    """Return the groups of the first table, most samples first."""
    first = next(iter(data.values()))
    counted = first.group_by("group").agg((pl.col("n_events") + pl.col("n_censored")).sum().alias("n"))
    enough = counted.filter(pl.col("n") >= MIN_SAMPLES)
    counted = enough if enough.height else counted
    return counted.sort("n", "group", descending=[True, False])["group"].to_list()
