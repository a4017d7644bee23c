"""How figures look: colours, time axes, text that is never taken for a formula."""

from __future__ import annotations

import inspect
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from tracekit.analysis.compare import IDENTITY, RECORDED
from tracekit.units import format_ns

#: Text, axes and the recorded curve.
INK = "#1b1f24"
#: Secondary text and the identity replay.
MUTED = "#6b7280"
GRID = "#d9dde3"
PAPER = "#fefefe"
#: Distinct to colour-blind readers (Okabe and Ito), darkest first.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))

#: Points of a curve beyond this number are thinned; no eye can see them.
MAX_POINTS = 1500

_RC: dict[Any, Any] = {
    "text.parse_math": False,
    "text.usetex": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
}


class Drawing(Figure):
    """A figure that notebooks show by themselves, whatever backend they use."""

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        with style():
            self.savefig(out, format="png", dpi=110)
        return out.getvalue()


@contextmanager
def style() -> Iterator[None]:
    """Apply the look of the project; every plot function draws inside of it."""
    with mpl.rc_context(_RC):
        yield


#: How many signs of a title have room in an inch: those of DejaVu Sans Bold, of 11 points, are two
#: thirds as wide as high.
SIGNS_AN_INCH = 9.5


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """Make a figure that belongs to no window system, and its axes, row by row."""
    fig = Drawing(figsize=(width, height), layout="constrained")
    axes = fig.subplots(rows, columns, squeeze=False)
    return fig, [ax for row in axes for ax in row]


def finish(fig: Figure) -> Figure:
    """Make sure that no text of the figure is read as a formula: names of tasks may hold dollar signs."""
    for text in fig.findobj(Text):
        if isinstance(text, Text):
            text.set_parse_math(False)
    return fig


def head(fig: Figure, what: str, name: str = "", behind: str = "") -> None:
    """Write the title of a figure: what it shows, the trace, and what stands behind it.

    A long name of a trace is cut to what has room, so that nothing else is.
    """
    room = int(fig.get_figwidth() * SIGNS_AN_INCH) - len(what) - len(behind) - len(", ")
    named = f", {plain(name, min(max(room, 12), 60))}" if name else ""
    fig.suptitle(what + named + behind, x=0.01, ha="left", fontweight="bold", fontsize=11)


def plain(text: str | None, limit: int = 60) -> str:
    """Return a name as it can be drawn: control characters and surrogates replaced, cut when very long."""
    if text is None:
        return "(no name)"
    shown = "".join(ch if ch.isprintable() else "\ufffd" for ch in text)
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def left_out(data: Mapping[str, pl.DataFrame], groups: Sequence[str | None] | None, shown: int) -> str:
    """What a title adds where groups have no panel: of those that were asked for, or of all."""
    of_all = next((table["group"].n_unique() for table in data.values()), 0)
    more = (of_all if groups is None else len(groups)) - shown
    return f" ({more} more groups not shown)" if more > 0 else ""


def looks(labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Give every label a colour and a dash pattern: recorded dark, the identity replay grey and dashed."""
    out: dict[str, dict[str, Any]] = {}
    others = [label for label in labels if label not in (RECORDED, IDENTITY)]
    for i, label in enumerate(others):
        dash = DASHES[(i // len(COLOURS)) % len(DASHES)]
        out[label] = {"color": COLOURS[i % len(COLOURS)], "linestyle": dash}
    if len(labels) == 1 and others:
        return out
    out[RECORDED] = {"color": INK, "linestyle": "-"}
    out[IDENTITY] = {"color": MUTED, "linestyle": DASHES[1]}
    return {label: out[label] for label in labels}


def as_mapping(data: pl.DataFrame | Mapping[str, pl.DataFrame]) -> Mapping[str, pl.DataFrame]:
    """Take one table or several with labels; one table gets an empty label."""
    return {"": data} if isinstance(data, pl.DataFrame) else data


def time_label(ns: float) -> str:
    """Return a tick label in the unit that suits it."""
    return format_ns(ns) if ns > 0 else "0"


def time_axis(
    ax: Axes, lo_ns: float, hi_ns: float, label: str, zero: tuple[float, float] | None = None
) -> None:
    """Make the x axis logarithmic in time, with labels in us, ms and s.

    Parameters
    ----------
    ax
        Axes.
    lo_ns, hi_ns
        Range to show; `lo_ns` must be positive.
    label
        What the axis shows.
    zero
        Where 0 stands, left of `lo_ns`; by default nowhere.
    """
    ax.set_xscale("log")
    ax.set_xlim(lo_ns if zero is None else zero[0], hi_ns)
    decades = math.log10(hi_ns / lo_ns)
    steps: tuple[int, ...] = (1,) if decades > 3 else (1, 3) if decades > 1.6 else (1, 2, 5)
    first, last = math.floor(math.log10(lo_ns)), math.ceil(math.log10(hi_ns))
    ticks = [s * 10.0**k for k in range(first, last + 1) for s in steps]
    ticks = [t for t in ticks if lo_ns * 0.999 <= t <= hi_ns * 1.001]
    if len(ticks) < 2:  # So short a range is nearly linear.
        found = MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]).tick_values(lo_ns, hi_ns)
        ticks = [t for t in map(float, found) if lo_ns * 0.999 <= t <= hi_ns * 1.001]
    while len(ticks) > 8:
        ticks = ticks[::2]
    if zero is not None:
        ticks = [math.sqrt(zero[0] * zero[1]), *ticks]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: time_label(v if v >= lo_ns * 0.999 else 0)))
    # Minor ticks of a logarithmic axis would cost more time to lay out than all else.
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel(label)


def linear_time_axis(ax: Axes, unit_ns: float, label: str) -> None:
    """Label a linear x axis whose values are ns in one unit."""
    name = {1.0: "ns", 1e3: "us", 1e6: "ms", 1e9: "s"}[unit_ns]
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v / unit_ns:g}"))
    ax.set_xlabel(f"{label} ({name})")


def unit_of(span_ns: float) -> float:
    """Return the unit (in ns) in which a span of time reads best."""
    for unit in (1e9, 1e6, 1e3):
        if span_ns >= 2 * unit:
            return unit
    return 1.0


class _Shares(MaxNLocator):
    """Marks of shares: none above the whole, even where the axis leaves room for a note."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        found = np.asarray(super().tick_values(vmin, vmax))
        return found[found <= 1 + 1e-9]


def percent_axis(ax: Axes, label: str) -> None:
    """Label the y axis, whose values are shares, in per cent: decades where it is logarithmic."""
    if ax.get_yscale() == "log":
        lowest = ax.get_ylim()[0]
        decades = math.ceil(-math.log10(lowest))
        steps = (1,) if decades > 2 else (1, 2, 5)
        ticks = [k * 10.0**-d for d in range(decades, -1, -1) for k in steps]
        ax.yaxis.set_major_locator(FixedLocator([t for t in ticks if lowest <= t <= 1]))
        ax.yaxis.set_minor_locator(NullLocator())
    else:
        ax.yaxis.set_major_locator(_Shares(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:g} %"))
    ax.set_ylabel(label)


def legend(
    fig: Figure, looks: Mapping[str, dict[str, Any]], notes: Mapping[str, str], filled: bool = False
) -> None:
    """Put one legend for all axes below them, where it hides nothing.

    Parameters
    ----------
    fig
        Figure.
    looks
        Label to look, see `looks`; an empty label (a single table) has no entry.
    notes
        Label to what stands behind it, such as the number of samples.
    filled
        Entries are boxes instead of lines.
    """
    entries = [label for label in looks if label]
    if not entries:
        return
    names = [plain(label) + (f" ({notes[label]})" if notes.get(label) else "") for label in entries]
    handles = [
        Patch(color=looks[label]["color"]) if filled else Line2D([], [], **looks[label]) for label in entries
    ]
    room = 96 if fig.get_figwidth() < 9 else 126
    columns = max(1, min(len(entries), room // (max(map(len, names)) + 8)))
    fig.legend(handles, names, loc="outside lower left", ncols=columns)


def note(ax: Axes, text: str, top: bool = True) -> None:
    """Write a small text into the right corner of the axes."""
    y, va = (0.96, "top") if top else (0.04, "bottom")
    ax.text(0.985, y, text, ha="right", va=va, transform=ax.transAxes, color=MUTED, fontsize=7.5)


def nothing(ax: Axes, why: str) -> None:
    """Say in the axes why there is nothing to show."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, why, ha="center", va="center", transform=ax.transAxes, color=MUTED)


def how_to_read(function: Callable[..., Any]) -> str:
    """Return the "How to read it" section of a plot function as one paragraph.

    Parameters
    ----------
    function
        One of the functions of `tracekit.plot`.

    Returns
    -------
    str
        The text; empty where docstrings were stripped (`python -OO`).
    """
    lines = (inspect.getdoc(function) or "").splitlines()
    if "How to read it" not in lines:
        return ""
    body = lines[lines.index("How to read it") + 2 :]
    text: list[str] = []
    for line, after in zip(body, [*body[1:], ""], strict=True):
        if after and set(after) == {"-"}:
            break
        text.append(line.strip())
    return " ".join(part for part in text if part)
