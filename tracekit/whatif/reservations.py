"""What tasks reserved that were recorded under SCHED_DEADLINE.

No event says it. That the kernel throttles them does.

A task that leaves its CPU ready to run, and to none with a reservation, has used up its budget: nothing
else but the kernel's own stoppers stands above it. It comes back when its next period begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["Reserved", "reservations"]

#: Times that a task must have come back, and the share of the times between that must be whole periods.
LEAST, WHOLE = 10, 0.8
#: How far from a whole number of periods a time may be: other reservations may come first.
NEAR = 0.1

#: Threads, and attributes as pairs of key and value.
Reserved = list[tuple[list[int], list[tuple[str, str]]]]


def reservations(trace: Trace) -> Reserved:
    """Find what tasks reserved, from when the kernel throttled them.

    Parameters
    ----------
    trace
        A recorded trace with priorities.

    Returns
    -------
    list of (list of int, list of (str, str))
        As `tracekit.whatif.scenario.resolve` gives attributes: ``deadline`` of the threads that were
        throttled at regular times. The period is what lies between the times at which they came back;
        the run time is their share of it, since what they overdraw is taken off later ones. The
        relative deadline shows nowhere and is taken to be the period.
    """
    found: Reserved = trace.once("reservations", lambda: _reservations(trace))
    return found


def _reservations(trace: Trace) -> Reserved:
    slices = trace.slices.sort("cpu", "ts_ns").with_columns(
        pl.col("prio").shift(-1).over("cpu").alias("next_prio"),
        (pl.col("ts_ns").shift(-1).over("cpu") > pl.col("ts_ns") + pl.col("dur_ns")).alias("idles"),
    )
    own = slices.filter(pl.col("prio") < 0).with_columns(
        throttled=pl.col("involuntary") & (pl.col("idles") | (pl.col("next_prio") >= 0))
    )
    found: Reserved = []
    for (tid,), rows in own.sort("ts_ns").group_by("tid", maintain_order=True):
        part = rows.with_columns(back=pl.col("throttled").shift(1, fill_value=False))
        backs = part.filter("back")["ts_ns"].to_numpy()
        if len(backs) <= LEAST:
            continue
        times = np.diff(backs).astype(float)
        shortest = np.quantile(times, 0.1)
        periods = np.maximum(np.round(times / shortest), 1)
        period = float(np.median(times / periods))
        if np.mean(np.abs(times / period - np.round(times / period)) < NEAR) < WHOLE:
            continue
        between = part.filter(pl.col("ts_ns").is_between(backs[0], backs[-1], closed="left"))
        runtime = round(between["dur_ns"].sum() / (backs[-1] - backs[0]) * period)
        assert isinstance(tid, int)
        found.append(([tid], [("deadline", f"{runtime}ns/{round(period)}ns/{round(period)}ns")]))
    return found
