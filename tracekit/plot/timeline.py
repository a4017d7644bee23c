"""Who ran when: a small chart of the first milliseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tracekit.analysis import group_of
from tracekit.plot import _style as s

_MAX_LANES = 24
_MAX_BOXES = 4000
#: A box narrower than this share of the window has no room for a name.
_ROOM = 0.045
#: A box narrower than this share of the window would vanish between white edges.
_SEEN = 0.004


def _lanes(data: Mapping[str, pl.DataFrame]) -> list[tuple[str, int | None]]:
    lanes = []
    cpus = sorted(
        {cpu for t in data.values() for cpu in t["cpu"].unique().to_list()}, key=lambda c: (c is None, c or 0)
    )
    for cpu in cpus:
        lanes += [(label, cpu) for label in data]
    return lanes


def _colours(data: Mapping[str, pl.DataFrame]) -> dict[str | None, str]:
    every = pl.concat([t.select("group", "dur_ns") for t in data.values()])
    groups = (
        every.group_by("group").agg(pl.col("dur_ns").sum()).sort("dur_ns", "group", descending=[True, False])
    )
    palette = [*s.COLOURS, s.MUTED]
    return {g: palette[min(i, len(palette) - 1)] for i, g in enumerate(groups["group"].to_list())}


def _draw_lane(
    ax: Axes, y: int, rows: pl.DataFrame, colours: Mapping[str | None, str], window_ns: int
) -> None:
    # White edges separate neighbours of one colour, and would hide short slices: those get edges
    # of their own colour.
    narrow = pl.col("dur_ns") < _SEEN * window_ns
    for part, edge in ((rows.filter(~narrow), s.PAPER), (rows.filter(narrow), "face")):
        spans = list(zip(part["at"].to_list(), part["dur_ns"].to_list(), strict=True))
        faces = [colours[g] for g in part["group"].to_list()]
        ax.broken_barh(spans, (y - 0.4, 0.8), facecolors=faces, edgecolors=edge, linewidth=0.5)
    wide = rows.filter(pl.col("dur_ns") >= _ROOM * window_ns)
    for at, dur, comm in wide.select("at", "dur_ns", pl.col("comm").cast(pl.String)).iter_rows():
        fits = int(dur / window_ns / 0.0095)
        text = s.plain(comm, 16)
        if len(text) <= fits:
            ax.text(
                at + dur / 2, y, text, ha="center", va="center", fontsize=6.5, color="white", clip_on=True
            )


def timeline(
    slices: pl.DataFrame | Mapping[str, pl.DataFrame],
    start_ns: int | None = None,
    dur_ns: int = 50_000_000,
    groups: Sequence[str | None] | None = None,
    name: str = "",
) -> Figure:
    """Plot who ran on each CPU during a short window, of one trace or of several, one below the other.

    Parameters
    ----------
    slices
        The `slices` table, or several by label.
    start_ns
        Begin of the window, trace clock; by default the first slice of the first table.
    dur_ns
        Length of the window.
    groups
        Groups of tasks that get colours of their own, in this order; by default those that ran longest.
    name
        Name of the trace, for the title.

    Returns
    -------
    matplotlib.figure.Figure
        Not shown, not saved. At most 24 lanes and 4000 slices are drawn; the title says when
        something is left out.

    How to read it
    --------------
    Each lane is one CPU, each box one slice: a task that ran without interruption. Colours are
    groups of tasks whose names differ only in a number. White gaps are idle time, or time of
    which nothing is recorded (`Trace.cpus` has both). Lanes of the same CPU below one another are
    the same moment in the recording and in its replays: look for boxes that got longer, shorter or
    changed places.
    """
    data = {}
    for label, table in s.as_mapping(slices).items():
        data[label] = table.sort("ts_ns").with_columns(group_of("group"))
    first = next(iter(data.values()))
    begin = start_ns if start_ns is not None else (int(first["ts_ns"][0]) if first.height else 0)
    inside = (pl.col("ts_ns") < begin + dur_ns) & (pl.col("ts_ns") + pl.col("dur_ns") > begin)
    lo, hi = (
        pl.max_horizontal("ts_ns", pl.lit(begin)),
        pl.min_horizontal(pl.col("ts_ns") + pl.col("dur_ns"), pl.lit(begin + dur_ns)),
    )
    data = {
        label: t.filter(inside).with_columns((lo - begin).alias("at"), (hi - lo).alias("dur_ns"))
        for label, t in data.items()
    }
    with s.style():
        lanes = _lanes(data)
        shown = lanes[:_MAX_LANES]
        cut = len(lanes) > len(shown) or any(t.height > _MAX_BOXES for t in data.values())
        fig, (ax,) = s.new_figure(9.6, 1.15 + 0.42 * max(len(shown), 1))
        s.head(fig, "Who ran when", name, " (not all is shown)" if cut else "")
        if not shown:
            s.nothing(ax, "no slices in this window")
            return s.finish(fig)
        colours = _colours(data)
        if groups is not None:
            chosen = {g: s.COLOURS[i % len(s.COLOURS)] for i, g in enumerate(groups)}
            colours = {g: chosen.get(g, s.MUTED) for g in colours}
        for y, (label, cpu) in enumerate(shown):
            rows = data[label].filter(pl.col("cpu").eq_missing(pl.lit(cpu, dtype=pl.Int32))).head(_MAX_BOXES)
            _draw_lane(ax, y, rows, colours, dur_ns)
        ax.set_ylim(len(shown) - 0.45, -0.55)
        ax.set_xlim(0, dur_ns)
        ax.set_yticks(range(len(shown)), [_lane_name(label, cpu) for label, cpu in shown])
        ax.grid(visible=False, axis="y")
        s.linear_time_axis(ax, s.unit_of(dur_ns), "time since the window's start")
        _legend(ax, colours)
        return s.finish(fig)


def _lane_name(label: str, cpu: int | None) -> str:
    where = "CPU ?" if cpu is None else f"CPU {cpu}"
    return f"{s.plain(label, 40)}, {where}" if label else where


def _legend(ax: Axes, colours: Mapping[str | None, str]) -> None:
    own = [(g, colour) for g, colour in colours.items() if colour != s.MUTED]
    handles = [Patch(color=colour, label=s.plain(g, 24)) for g, colour in own]
    if len(own) < len(colours):
        handles.append(Patch(color=s.MUTED, label="others"))
    # A handle whose label begins with an underscore would be left out of an automatic legend.
    ax.legend(
        handles=handles,
        labels=[str(h.get_label()) for h in handles],
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
    )
