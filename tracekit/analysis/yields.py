"""Yields that a switch record does not distinguish from preemptions."""

from __future__ import annotations

import polars as pl

from tracekit.analysis import _common as c
from tracekit.analysis._inputs import tables

__all__ = ["likely"]

#: Least time for which a tick of Linux lets a task of the fair class run: the smallest of the
#: defaults that kernels had (sysctl_sched_min_granularity 0.75 ms, sched_base_slice 0.70 ms).
LEAST_NS = 700_000
#: Ends of slices after which the task stayed ready.
_STAYED = ("preempted", "runnable")


@tables("slices", "events")
def likely(slices: pl.DataFrame, events: pl.DataFrame, by: str = "group") -> pl.DataFrame:
    """Count involuntary switches that look like yields.

    Definition: a task left its CPU and stayed ready, nobody woke on that CPU during its slice, and it
    has run for less than 0.7 ms since it last left a CPU so. The tick does not preempt so early, and no
    wakeup did: the task most likely called `sched_yield`, which `sched_switch` records like a preemption.
    Slices that a wakeup or a sleep ended count towards the 0.7 ms: EEVDF goes on with what was left of
    a request (kernel/sched/fair.c, `update_deadline`).

    Parameters
    ----------
    slices, events
        Tables of a trace.
    by
        Grouping, see `tracekit.analysis.GROUPINGS`.

    Returns
    -------
    pl.DataFrame
        One row per group, by descending `n_likely`: `group` (String), `n_likely`, `nr_involuntary`
        (UInt32). Empty when the trace has no wakeups with their CPU: then nothing can be said.

    Notes
    -----
    How it can mislead: a task that arrives from another CPU preempts without a wakeup there.
    """
    kinds = pl.col("kind").cast(pl.String).is_in(["wakeup", "wakeup_new", "waking"])
    woken = events.filter(kinds & pl.col("target_cpu").is_not_null())
    woken = woken.select(pl.col("target_cpu").cast(pl.Int32).alias("cpu"), pl.col("ts_ns").alias("woke"))
    schema = {"group": pl.String, "n_likely": pl.UInt32, "nr_involuntary": pl.UInt32}
    if woken.is_empty():
        return pl.DataFrame(schema=schema)
    ends = (pl.col("ts_ns") + pl.col("dur_ns")).alias("end")
    rows = slices.with_columns(c.group_of(by), ends, pl.col("cpu").cast(pl.Int32)).sort("end")
    rows = rows.join_asof(
        woken.sort("woke"), left_on="end", right_on="woke", by="cpu", check_sortedness=False
    )
    alone = pl.col("woke").is_null() | (pl.col("woke") < pl.col("ts_ns"))
    stayed = pl.col("end_state").cast(pl.String).is_in(_STAYED) & pl.col("involuntary")
    known = ~c.has(c.OPEN_START | c.OPEN_END | c.CROSSES_LOSS)
    rows = rows.sort("utid", "ts_ns", maintain_order=True).with_columns((stayed & alone).alias("alone"))
    request = pl.col("alone").cast(pl.UInt32).cum_sum().shift(1, fill_value=0).over("utid").alias("request")
    rows = rows.with_columns(request)
    ran = pl.col("dur_ns").cum_sum().over("utid", "request")
    looks = pl.col("alone") & known & (ran < LEAST_NS)
    counted = (
        rows.with_columns(looks.alias("looks"))
        .group_by("group")
        .agg(
            pl.col("looks").sum().cast(pl.UInt32).alias("n_likely"),
            pl.col("involuntary").sum().cast(pl.UInt32).alias("nr_involuntary"),
        )
    )
    return counted.filter(pl.col("n_likely") > 0).sort("n_likely", "group", descending=[True, False])


def __dir__() -> list[str]:
    """Only what is public."""
    return list(__all__)
