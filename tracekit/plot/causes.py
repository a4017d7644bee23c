"""Where time went: one bar a cause."""

from __future__ import annotations

import polars as pl
from matplotlib.figure import Figure

from tracekit.plot import _style as s

#: Causes that have a bar of their own; the rest are one.
_MOST = 14


def causes(table: pl.DataFrame, name: str = "", quantile: float | None = None) -> Figure:
    """Plot where the time of responses, waits or a window went.

    Parameters
    ----------
    table
        Result of `tracekit.analysis.blame.table`.
    name
        Name of the trace, for the title.
    quantile
        Quantile of the slow spans, for the legend; None when all count.

    Returns
    -------
    matplotlib.figure.Figure
        Not shown, not saved.

    How to read it
    --------------
    Each bar is the share of the time that has this cause; dark bars are the slow spans, light bars
    all of them. All bars of one colour sum to 100 %. A cause whose dark bar is much longer than its
    light one is what makes slow spans slow.
    """
    text = pl.concat_str(
        "cause",
        pl.when(pl.col("culprit").is_not_null())
        .then(pl.concat_str(pl.lit(": "), "culprit"))
        .otherwise(pl.lit("")),
        pl.when(pl.col("on").is_not_null())
        .then(pl.concat_str(pl.lit(" (on "), "on", pl.lit(")")))
        .otherwise(pl.lit("")),
    )
    rows = (
        table.group_by(text.alias("label"), maintain_order=True)
        .agg(pl.col("share").sum(), pl.col("tail_share").sum())
        .sort(["tail_share", "share"], descending=True)
    )
    if rows.height > _MOST:
        rest = rows[_MOST - 1 :].select(
            pl.lit("all others").alias("label"), pl.sum("share"), pl.sum("tail_share")
        )
        rows = pl.concat([rows[: _MOST - 1], rest])
    with s.style():
        fig, (ax,) = s.new_figure(7.4, 1.3 + 0.3 * max(rows.height, 2))
        if not rows.height:
            s.nothing(ax, "no time to explain")
            return s.finish(fig)
        at = list(range(rows.height))
        ax.barh([y - 0.2 for y in at], rows["tail_share"].to_list(), height=0.4, color=s.COLOURS[0])
        ax.barh([y + 0.2 for y in at], rows["share"].to_list(), height=0.4, color=s.COLOURS[5])
        ax.set_yticks(at, [s.plain(x, 44) for x in rows["label"].to_list()])
        ax.invert_yaxis()
        ax.grid(visible=False, axis="y")
        ax.xaxis.set_major_formatter(lambda v, _: f"{100 * v:g} %")
        ax.set_xlabel("share of the time")
        slow = "slow spans" if quantile is None else f"from p{100 * quantile:g} on"
        looks = {slow: {"color": s.COLOURS[0]}, "all": {"color": s.COLOURS[5]}}
        s.legend(fig, looks, {}, filled=True)
        s.head(fig, "Where the time went", name)
        return s.finish(fig)
