"""Response time: from a wakeup until the task next blocks or exits.

A response is everything the task did about one wakeup: all its slices, and all its waits before and
between them. For a task that sleeps until there is work, it is the time from the work's arrival
until it is done.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tracekit.analysis import _common as c
from tracekit.analysis._inputs import tables
from tracekit.analysis.uncertainty import describe_censored, kaplan_meier

#: What is known of a response.
STATUSES = ("complete", "censored", "start_unknown", "end_unknown", "unreliable")

__all__ = ["cdf", "samples", "summary"]

_NEEDS = (
    *("ts_ns", "dur_ns", "utid", "tid", "comm", "end_state", "involuntary"),
    *("wake_ts_ns", "run_delay_ns", "flags"),
)


def _goes_on() -> pl.Expr:
    """Whether the task stayed ready to run when it left its CPU; null when the source does not say."""
    end = pl.col("end_state").cast(pl.String)
    stated = ~end.is_in(["unknown", "unknown_off"])
    return (
        pl.when(stated & end.is_in(list(c.READY)))
        .then(True)
        .when(stated)
        .then(False)
        .otherwise(pl.col("involuntary"))
    )


def _waiting(states: pl.DataFrame, end_ns: int) -> pl.DataFrame:
    """Return tasks that were woken and had not run when the trace ended.

    They are censored responses without a slice.
    """
    # Nothing is known of a wait once records were lost in it.
    so_far = pl.when("unreliable").then(0).otherwise(end_ns - pl.col("since_ns")).alias("response_ns")
    # A wait that began when the task left a CPU belongs to the response of that slice.
    return (
        c.open_waits(states)
        .filter(pl.col("since_ns") <= end_ns)
        .filter(~pl.col("before").is_in(["running", "unknown"]).fill_null(False))
        .select(
            *("utid", "tid", "comm", pl.col("since_ns").alias("wake_ts_ns")),
            pl.lit(None, dtype=pl.Int64).alias("end_ts_ns"),
            so_far,
            pl.lit(0, dtype=pl.Int64).alias("run_ns"),
            so_far.alias("wait_ns"),
            pl.lit(0, dtype=pl.UInt32).alias("nr_slices"),
            pl.lit(0, dtype=pl.UInt32).alias("nr_involuntary"),
            pl.lit(None, dtype=pl.String).alias("end_state"),
            pl.when("unreliable").then(pl.lit("unreliable")).otherwise(pl.lit("censored")).alias("status"),
            pl.lit(True).alias("censored"),
        )
    )


def _gone(states: pl.DataFrame | None, end_ns: int) -> pl.Series:
    """Return the tasks whose states stop before the end.

    They went where a filter by CPU does not look.
    """
    if states is None:
        return pl.Series("utid", [], pl.UInt32)
    until = pl.col("ts_ns") + pl.col("dur_ns")
    last = states.lazy().group_by("utid").agg(until.max().alias("_until")).collect()
    return last.filter(pl.col("_until") < end_ns)["utid"]


def _ran(rows: pl.DataFrame, chains: pl.DataFrame) -> pl.DataFrame:
    """Return `run_ns` of each chain: time on CPUs until the end of its response, where that is known."""
    cut = pl.min_horizontal(pl.col("ts_ns") + pl.col("dur_ns"), "_until") - pl.col("ts_ns")
    return (
        rows.select("_chain", "ts_ns", "dur_ns")
        .join(chains.select("_chain", "_until"), on="_chain", how="left", maintain_order="left")
        .group_by("_chain")
        .agg(pl.max_horizontal(cut, 0).sum().alias("run_ns"))
    )


@tables("slices", "states", "end_ns")
def samples(
    slices: pl.DataFrame, states: pl.DataFrame | None = None, end_ns: int | None = None
) -> pl.DataFrame:
    """List every response.

    Definition: response = end of the last slice - wakeup, over the slices of a task from a wakeup
    to the first one after which the task is not ready to run (it blocked, stopped or exited). An
    involuntary switch or a yield does not end a response. Source: `wake_ts_ns`, `end_state` and
    `involuntary` of `slices`.

    Parameters
    ----------
    slices
        The `slices` table.
    states
        The `states` table; adds tasks that were woken and had not run when the trace ended.
    end_ns
        End of the trace or of the window; by default the end of the last slice.

    Returns
    -------
    pl.DataFrame
        One row per response, by task and time: `utid` (UInt32), `tid` (Int64), `comm` (String; null
        when not known), `wake_ts_ns` (Int64; null when not known), `end_ts_ns` (Int64; null when
        not known), `response_ns` (Int64, so far for a censored one; null when start or end is not
        known), `run_ns` (Int64, time on CPUs within it; in all slices when `response_ns` is null),
        `wait_ns` (Int64, response - run; null with `response_ns`), `nr_slices` (UInt32),
        `nr_involuntary` (UInt32), `end_state` (String; null when open or not stated), `status`
        (String), `censored` (Boolean, status is `censored` or `unreliable`).

        `status` is `complete`; `censored` (was going on when the trace, or the window that it was
        filtered to, ended); `start_unknown` (no wakeup seen: it began before the trace or wakeups
        were not recorded); `end_unknown` (the source does not say why the task left, or contradicts
        itself; or the task went on where a filter by CPU does not look); `unreliable` (records were
        lost within it: it lasted at least until then, and counts as censored there. Leaving it out
        would favour short responses, which a loss hits less often).

    Notes
    -----
    How it can mislead: a response is what one *task* does about one wakeup, not what a user waits
    for: a request that passes through five tasks is five responses. A task that finds its next work
    waiting when it is done does not block, and two pieces of work become one response. Of a trace
    that was filtered by CPU, only responses that began and ended there are complete, and what ran
    elsewhere in between counts as waiting.
    """
    c.check_columns(slices, "slices", _NEEDS)
    ends = slices.select((pl.col("ts_ns") + pl.col("dur_ns")).max()).item()
    stop = end_ns if end_ns is not None else (ends or 0)
    damaged = c.has(c.CROSSES_LOSS | c.INFERRED_END)
    # A slice with an inferred end is known to its start; so is one that a loss cuts.
    seen = pl.when(damaged).then(pl.col("ts_ns")).otherwise(pl.col("ts_ns") + pl.col("dur_ns"))
    rows = c.with_left_out(slices, _NEEDS).with_columns(
        pl.when(~c.has(c.OPEN_END)).then(_goes_on()).alias("_on")
    )
    first = pl.int_range(pl.len()).over("utid") == 0
    was_on = pl.col("_on").shift(1).over("utid").fill_null(False)
    begins = first | pl.col("wake_ts_ns").is_not_null() | ~was_on | pl.col("_left_out")
    rows = rows.with_columns(begins.cum_sum().alias("_chain"))
    chains = rows.group_by("_chain", maintain_order=True).agg(
        *(pl.col(k).first() for k in ("utid", "tid", "wake_ts_ns")),
        pl.col("comm").last().cast(pl.String),
        (pl.col("ts_ns") + pl.col("dur_ns")).last().alias("_end"),
        pl.len().cast(pl.UInt32).alias("nr_slices"),
        pl.col("involuntary").sum().cast(pl.UInt32).alias("nr_involuntary"),
        pl.col("end_state").last().cast(pl.String),
        pl.col("_on").last(),
        c.has(c.OPEN_END).last().alias("_open"),
        damaged.any().alias("_damaged"),
        seen.filter(damaged.cast(pl.Int8).cum_max() == 0).max().alias("_before"),
        pl.col("ts_ns").filter(damaged).min().alias("_loss"),
    )
    last_of_task = pl.int_range(pl.len()).over("utid") == pl.len().over("utid") - 1
    lasts = last_of_task & ~pl.col("utid").is_in(_gone(states, stop).implode())
    status = (
        pl.when(pl.col("wake_ts_ns").is_null())
        .then(pl.lit("start_unknown"))
        .when(pl.col("_damaged"))
        .then(pl.lit("unreliable"))
        .when(pl.col("_open") | (pl.col("_on") & lasts) | (pl.col("_end") > stop))
        .then(pl.lit("censored"))
        .when(~pl.col("_on"))
        .then(pl.lit("complete"))
        .otherwise(pl.lit("end_unknown"))
    )
    chains = chains.with_columns(status.alias("status")).with_columns(
        pl.col("status").is_in(["censored", "unreliable"]).alias("censored"),
        pl.when(pl.col("status") == "complete").then(pl.col("_end")).alias("end_ts_ns"),
    )
    until = (
        pl.when(pl.col("status") == "unreliable")
        .then(pl.min_horizontal(pl.max_horizontal("_before", "_loss", "wake_ts_ns"), stop))
        .when("censored")
        .then(stop)
        .otherwise(pl.col("end_ts_ns"))
    )
    chains = chains.with_columns(until.alias("_until"), (until - pl.col("wake_ts_ns")).alias("response_ns"))
    chains = chains.join(_ran(rows, chains), on="_chain", how="left", maintain_order="left")
    out = chains.select(
        *("utid", "tid", "comm", "wake_ts_ns", "end_ts_ns", "response_ns", "run_ns"),
        (pl.col("response_ns") - pl.col("run_ns")).alias("wait_ns"),
        *("nr_slices", "nr_involuntary", "end_state", "status", "censored"),
    )
    if states is not None:
        out = pl.concat([out, _waiting(states, stop).cast({"utid": out.schema["utid"]})])
    return out.sort("utid", pl.coalesce("wake_ts_ns", "end_ts_ns"), nulls_last=False, maintain_order=True)


def _measured(slices: pl.DataFrame, states: pl.DataFrame | None, end_ns: int | None, by: str) -> pl.DataFrame:
    return c.with_group(samples(slices, states, end_ns), by, slices)


@tables("slices", "states", "end_ns")
def summary(
    slices: pl.DataFrame,
    states: pl.DataFrame | None = None,
    end_ns: int | None = None,
    by: str = "group",
    qs: Sequence[float] = c.QUANTILES,
) -> pl.DataFrame:
    """Summarise response times by group of tasks.

    Definition: quantile q = the smallest t with F(t) >= q, F after Kaplan and Meier over complete
    and censored responses. Source: `samples`.

    Parameters
    ----------
    slices, states, end_ns
        As in `samples`.
    by
        Grouping, see `tracekit.analysis.GROUPINGS`.
    qs
        Quantiles between 0 and 1.

    Returns
    -------
    pl.DataFrame
        One row per group, by descending total: `group` (String), the columns of
        `tracekit.analysis.uncertainty.describe_censored`, `n_excluded` (UInt32, responses without
        known start or end). A group of which nothing is known has no row.

    Notes
    -----
    How it can mislead: tasks that never block (a spinner) have one response, their whole life. The
    mean of a group with censored responses is a lower bound where `mean_is_bound` says so.

    Examples
    --------
    >>> import tracekit as tk
    >>> trace = tk.read("fixtures/demo/slice-default.dat")
    >>> tk.analysis.response.summary(trace).select("group", "n", "p50_ns").row(1)
    ('waker', 5358, 54652)
    """
    responses = _measured(slices, states, end_ns, by)
    known = responses.filter(pl.col("response_ns").is_not_null())
    table = describe_censored(known, "response_ns", ["group"], qs)
    rest = responses.group_by("group").agg(
        pl.col("response_ns").null_count().cast(pl.UInt32).alias("n_excluded")
    )
    return table.join(rest, on="group", how="left", nulls_equal=True, maintain_order="left")


@tables("slices", "states", "end_ns")
def cdf(
    slices: pl.DataFrame, states: pl.DataFrame | None = None, end_ns: int | None = None, by: str = "group"
) -> pl.DataFrame:
    """Give the distribution function of response times by group of tasks.

    Definition: F(t) = share of responses of at most t, after Kaplan and Meier. Source: `samples`.

    Parameters
    ----------
    slices, states, end_ns, by
        As in `summary`.

    Returns
    -------
    pl.DataFrame
        As `tracekit.analysis.uncertainty.kaplan_meier`, with `group`.

    Notes
    -----
    How it can mislead: where the curve stops below 1, the longest responses had not ended with the trace.
    """
    return kaplan_meier(_measured(slices, states, end_ns, by), "response_ns", ["group"])


def __dir__() -> list[str]:
    """Only what is public."""
    return list(__all__)
