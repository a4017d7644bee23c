"""The slices that the page's timeline draws, in few bytes."""

from __future__ import annotations

from typing import Any

import polars as pl

from tracekit.analysis import group_of
from tracekit.trace import Trace
from tracekit.whatif import Comparison

__all__ = ["timeline_data", "window"]

#: Slices that the page holds, of all traces together.
_MAX_SLICES = 24_000


def window(slices: pl.DataFrame, span_ns: int, cpus: int) -> int:
    """Return the length of a window with about 60 slices a CPU: 1, 2 or 5 times a power of ten."""
    wanted = span_ns * 60 * max(cpus, 1) / max(slices.height, 1)
    sizes = (int(step * 10**power) for power in range(3, 12) for step in (1, 2, 5))
    return next((size for size in sizes if size >= min(wanted, span_ns)), span_ns)


def timeline_data(comparison: Comparison) -> dict[str, Any]:
    """The slices of every trace around the middle of the recording, as lists.

    Parameters
    ----------
    comparison
        The comparison.

    Returns
    -------
    dict
        `name`; `groups` (names, most run time first); `tasks` (name and number of the group);
        `traces` (`name`, `start`: its first record on its clock, ns; `ts`: starts since the start
        of what is shown, ns, each but the first as the difference to the one before; `dur`, ns;
        `cpu`; `task`: number in `tasks`); `span`: how much is shown, ns; `view`: the part that is
        shown first.
    """
    traces = comparison.traces
    first = comparison.trace
    span = max((first.end_ns or 0) - (first.start_ns or 0), 1)
    total = sum(t.slices.height for t in traces.values())
    kept = span if total <= _MAX_SLICES else int(span * _MAX_SLICES / total)
    begin = (span - kept) // 2
    rows = {label: _inside(t, begin, kept) for label, t in traces.items()}
    every = pl.concat([r.select("group", "comm", "dur_ns") for r in rows.values()])
    order = (
        every.group_by("group").agg(pl.col("dur_ns").sum()).sort("dur_ns", "group", descending=[True, False])
    )
    groups = order["group"].to_list()
    numbers = {group: i for i, group in enumerate(groups)}
    names = every.select("comm", "group").unique().sort("group", "comm").rows()
    tasks = {name: i for i, name in enumerate(names)}
    size = min(window(first.slices, span, first.cpus.height), kept)
    return {
        "name": first.name,
        "groups": ["(no name)" if g is None else g for g in groups],
        "tasks": [["(no name)" if comm is None else comm, numbers[group]] for comm, group in names],
        "traces": [
            {
                "name": label,
                "start": (traces[label].start_ns or 0) + begin,
                "ts": r["at"].diff().fill_null(r["at"]).to_list(),
                "dur": r["dur_ns"].to_list(),
                "cpu": r["cpu"].fill_null(-1).to_list(),
                "task": [tasks[key] for key in r.select("comm", "group").iter_rows()],
            }
            for label, r in rows.items()
        ],
        "span": kept,
        "view": [max(0, (kept - size) // 2), max(0, (kept - size) // 2) + size],
    }


def _inside(trace: Trace, begin: int, span: int) -> pl.DataFrame:
    at = pl.col("ts_ns") - (trace.start_ns or 0) - begin
    return (
        trace.slices.with_columns(group_of("group"), at.alias("at"), pl.col("comm").cast(pl.String))
        .filter((pl.col("at") >= 0) & (pl.col("at") < span))
        .sort("at")
        .select("at", "dur_ns", "cpu", "comm", "group")
    )
