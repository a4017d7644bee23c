"""Run delay: how long a task was ready to run before it ran.

Run delay = from runnable until running. By what made the task runnable it is a *wakeup latency* (a
wakeup ended its sleep), a *preemption wait* (another task took its CPU), a *yield wait* (it gave up
its CPU and stayed runnable), or the wait before the *first* slice seen of a task, which is new or
slept since before the trace.

What "runnable" means depends on the source: on Linux the `sched_waking` record when it was captured
(the moment the waker decided), else `sched_wakeup` (the task is on a queue); on systems with
enqueue records, the enqueue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import polars as pl

from tracekit.analysis import _common as c
from tracekit.analysis._inputs import tables
from tracekit.analysis.uncertainty import describe_censored, kaplan_meier

#: What made a task runnable.
Cause = Literal["any", "wakeup", "preemption", "yield", "first"]
CAUSES = ("any", "wakeup", "preemption", "yield", "first")

__all__ = ["cdf", "samples", "summary"]

_NEEDS = (
    "ts_ns",
    "dur_ns",
    "utid",
    "tid",
    "comm",
    "end_state",
    "involuntary",
    "wake_ts_ns",
    "run_delay_ns",
    "flags",
)


def _waiting_at_end(states: pl.DataFrame) -> pl.DataFrame:
    """Return the waits that were still going on when the trace ended, as censored samples."""
    ran = pl.col("before") == "running"
    cause = (
        pl.when(pl.col("before").is_null())
        .then(pl.lit("first"))
        .when(ran & (pl.col("state") == "yielding"))
        .then(pl.lit("yield"))
        .when(ran)
        .then(pl.lit("preemption"))
        .when(pl.col("before") != "unknown")
        .then(pl.lit("wakeup"))
    )
    return c.open_waits(states).select(
        pl.col("until_ns").alias("ts_ns"),
        *("utid", "tid", "comm"),
        cause.alias("cause"),
        (pl.col("until_ns") - pl.col("since_ns")).alias("run_delay_ns"),
        pl.lit(True).alias("censored"),
        "unreliable",
    )


def _ready(states: pl.DataFrame | None) -> pl.DataFrame:
    """Return why a task that left its CPU ready waited (`_waited`), by the time when it came to run again."""
    if states is None:
        return pl.DataFrame(schema={"utid": pl.UInt32, "ts_ns": pl.Int64, "_waited": pl.String})
    state = pl.col("state").cast(pl.String)
    why = pl.when(state == "yielding").then(pl.lit("yield")).otherwise(pl.lit("preemption"))
    return (
        states.filter(state.is_in(["runnable", "preempted", "yielding"]) & (pl.col("dur_ns") > 0))
        .select(
            pl.col("utid").cast(pl.UInt32),
            (pl.col("ts_ns") + pl.col("dur_ns")).alias("ts_ns"),
            why.alias("_waited"),
        )
        .unique(["utid", "ts_ns"], keep="last", maintain_order=True)
    )


@tables("slices", "states")
def samples(slices: pl.DataFrame, states: pl.DataFrame | None = None) -> pl.DataFrame:
    """List every wait for a CPU.

    Definition: delay(s) = start of slice s - the time its task became runnable. Source:
    `run_delay_ns` of `slices`; with `states`, also the waits that had not ended when the trace did.

    Parameters
    ----------
    slices
        The `slices` table.
    states
        The `states` table. Without it, tasks that waited in vain until the end of the trace are not
        seen at all: the ones that were worst off.

    Returns
    -------
    pl.DataFrame
        One row per wait, by `ts_ns`: `ts_ns` (Int64, when the task ran; end of the trace for a
        censored wait), `utid` (UInt32), `tid` (Int64), `comm` (String; null when not known),
        `cause` (String: `wakeup`, `preemption`, `yield`, `first`: before the first slice seen of
        the task; null when the source does not say, or when the trace was filtered so that neither
        the slice before nor the wait is in the tables), `run_delay_ns` (Int64), `censored` (Boolean,
        true when the wait had not ended), `unreliable` (Boolean, true when records were lost within
        it or a clock had to be corrected). Slices of which the delay is not known have no row.
    """
    c.check_columns(slices, "slices", _NEEDS)
    end = pl.col("end_state").cast(pl.String)
    before = c.with_left_out(slices, _NEEDS).with_columns(
        pl.col("involuntary").shift(1).over("utid").alias("_made_to"),
        end.shift(1).over("utid").alias("_left_in"),
        # A slice that says where its task ran last is not the first one.
        ((pl.int_range(pl.len()).over("utid") == 0) & ~pl.col("_left_out")).alias("_first"),
    )
    before = before.join(_ready(states), on=["utid", "ts_ns"], how="left", maintain_order="left")
    woken = pl.col("wake_ts_ns").is_not_null()
    cause = (
        pl.when(pl.col("_left_out") & ~woken)
        .then("_waited")
        .when(~pl.col("_first") & (pl.col("_left_in") == "yielding") & ~woken)
        .then(pl.lit("yield"))
        .when(~pl.col("_first") & pl.col("_made_to") & ~woken)
        .then(pl.lit("preemption"))
        .when(pl.col("_first"))
        .then(pl.lit("first"))
        .when(woken)
        .then(pl.lit("wakeup"))
    )
    seen = before.filter(pl.col("run_delay_ns").is_not_null()).select(
        "ts_ns",
        "utid",
        "tid",
        pl.col("comm").cast(pl.String),
        cause.alias("cause"),
        "run_delay_ns",
        pl.lit(False).alias("censored"),
        c.has(c.CLAMPED).alias("unreliable"),
    )
    if states is not None:
        seen = pl.concat([seen, _waiting_at_end(states).cast({"utid": seen.schema["utid"]})])
    return seen.sort("ts_ns", "utid", maintain_order=True)


def _selected(slices: pl.DataFrame, states: pl.DataFrame | None, cause: str, by: str) -> pl.DataFrame:
    if cause not in CAUSES:
        raise ValueError(f"unknown cause {cause!r}: expected one of {', '.join(CAUSES)}")
    named = c.with_group(samples(slices, states), by, slices)
    return named if cause == "any" else named.filter(pl.col("cause") == cause)


@tables("slices", "states")
def summary(
    slices: pl.DataFrame,
    states: pl.DataFrame | None = None,
    by: str = "group",
    cause: Cause = "any",
    qs: Sequence[float] = c.QUANTILES,
) -> pl.DataFrame:
    """Summarise run delays by group of tasks.

    Definition: quantile q = the smallest t with F(t) >= q; F is the empirical distribution
    function, or Kaplan and Meier's when waits were still going on at the end of the trace. Source:
    `samples`.

    Parameters
    ----------
    slices
        The `slices` table.
    states
        The `states` table, for waits that had not ended; see `samples`.
    by
        Grouping, see `tracekit.analysis.GROUPINGS`.
    cause
        `any` (run delay), `wakeup` (wakeup latency), `preemption` (preemption wait), `yield` or `first`.
    qs
        Quantiles between 0 and 1.

    Returns
    -------
    pl.DataFrame
        One row per group, by descending total: `group` (String), `cause` (String, as asked for),
        the columns of `tracekit.analysis.uncertainty.describe_censored`, `max_at_ns` (Int64, when
        the longest complete wait ended; null when there is none), `n_unreliable` (UInt32, of the
        samples).

    Notes
    -----
    How it can mislead: sums and means over all causes mix a waker that must be quick with a spinner
    that can wait. A delay of 0 is rare on real systems: the switch itself takes time, which is part
    of the delay.

    Examples
    --------
    >>> import tracekit as tk
    >>> trace = tk.read("fixtures/demo/slice-default.dat")
    >>> tk.analysis.latency.summary(trace, cause="wakeup").filter(group="waker")["p95_ns"].item()
    45572
    """
    waits = _selected(slices, states, cause, by)
    table = describe_censored(waits, "run_delay_ns", ["group"], qs)
    longest = (
        waits.sort("run_delay_ns", "ts_ns", descending=[True, False])
        .group_by("group", maintain_order=True)
        .agg(
            pl.col("ts_ns").filter(~pl.col("censored")).first().alias("max_at_ns"),
            pl.col("unreliable").sum().cast(pl.UInt32).alias("n_unreliable"),
        )
    )
    out = table.join(longest, on="group", how="left", nulls_equal=True)
    return out.select("group", pl.lit(cause).alias("cause"), pl.exclude("group"))


@tables("slices", "states")
def cdf(
    slices: pl.DataFrame, states: pl.DataFrame | None = None, by: str = "group", cause: Cause = "any"
) -> pl.DataFrame:
    """Give the distribution function of run delays by group of tasks.

    Definition: F(t) = share of waits of at most t, after Kaplan and Meier. Source: `samples`.

    Parameters
    ----------
    slices, states, by, cause
        As in `summary`.

    Returns
    -------
    pl.DataFrame
        As `tracekit.analysis.uncertainty.kaplan_meier`, with `group`.

    Notes
    -----
    How it can mislead: every wait counts the same; a task that waits once for a second and then
    never again is one point of the curve.
    """
    return kaplan_meier(_selected(slices, states, cause, by), "run_delay_ns", ["group"])


def __dir__() -> list[str]:
    """Only what is public."""
    return list(__all__)
