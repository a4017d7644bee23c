"""What a sleeping task waited for: its wakers, backwards.

A task that sleeps until another one wakes it waited for what the other did meanwhile. That one may
have waited, too: for a CPU, or asleep for a third. Followed back, every sleep becomes the time of
the tasks it waited for, down to an interrupt, a timer, or a wakeup that the trace does not explain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from tracekit.analysis import _common as c
from tracekit.analysis._overlay import ints, overlay

#: States in which a task waits for something other than a CPU.
ASLEEP = (
    *("sleeping", "blocked", "stopped", "traced", "parked", "idle_kthread"),
    *("waiting_lock", "unknown_off"),
)
#: States in which a task waits for a CPU.
READY = ("runnable", "preempted", "yielding")
#: Wakers of wakers that are followed; each one ends earlier than the one before.
MAX_DEPTH = 64

_PARTS = pl.Schema(
    {
        "span": pl.UInt32,
        "depth": pl.UInt32,
        "on_utid": pl.UInt32,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "row": pl.Int64,
        "slept": pl.Int64,
    }
)


class Timelines(NamedTuple):
    """The states of all tasks, ready to be laid over spans; made by `timelines`.

    Attributes
    ----------
    states
        One row per state, by task and time: `utid`, `start_ns`, `end_ns`, `cpu`, `placed`, `what`
        (`running`, `ready`, `asleep`, `throttled`, `ended` or `unknown`), `role` (of a wait:
        `waiting`, `preempted` or `yielded`), `waker_utid`, `waker`, `via`.
    """

    states: pl.DataFrame


def _marks(events: pl.DataFrame) -> pl.DataFrame:
    """What interrupt each CPU is in, from one record to the next; null outside of any."""
    kind, name = pl.col("kind").cast(pl.String), pl.col("name").cast(pl.String)
    entry = (kind == "other") & name.str.ends_with("_entry").fill_null(False)
    leave = (kind == "other") & name.str.ends_with("_exit").fill_null(False)
    timer = name.str.contains("(?i)timer").fill_null(False)
    called = (
        pl.when(timer & (entry | kind.is_in(["irq_entry", "softirq_entry"])))
        .then(pl.lit("timer"))
        .when(kind == "irq_entry")
        .then(pl.concat_str(pl.lit("irq "), name.fill_null("?")))
        .when(kind == "softirq_entry")
        .then(pl.concat_str(pl.lit("softirq "), name.fill_null("?")))
        .when(entry)
        .then(name.str.replace("_entry$", ""))
        .when(kind == "interrupt")
        .then(pl.concat_str(pl.lit("irq "), name.fill_null("?")))
    )
    shown = kind.is_in(["irq_entry", "irq_exit", "softirq_entry", "softirq_exit", "interrupt", "switch"])
    return (
        events.filter((shown | entry | leave) & pl.col("cpu").is_not_null())
        .select("ts_ns", pl.col("cpu").alias("waker_cpu"), called.alias("called"))
        .sort("ts_ns", maintain_order=True)
    )


def _calls(events: pl.DataFrame) -> pl.DataFrame:
    """In which system call each thread is, from one record to the next; null outside of any."""
    kind = pl.col("kind").cast(pl.String)
    name = pl.coalesce(
        pl.col("name").cast(pl.String), pl.concat_str(pl.lit("call "), pl.col("value").cast(pl.String))
    )
    return (
        events.filter(kind.is_in(["sys_enter", "sys_exit"]))
        .select(
            "ts_ns",
            pl.coalesce("tid", "ctx_tid").alias("tid"),
            pl.when(kind == "sys_enter").then(name).alias("call"),
        )
        .filter(pl.col("tid").is_not_null())
        .sort("ts_ns", maintain_order=True)
    )


def endings(states: pl.DataFrame, slices: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Say of every sleep what ended it.

    Definition: the wakeup recorded at the sleep's end (`wake_ts_ns` of the next slice). In an
    interrupt the task that was interrupted is not the waker: the interrupt is, by the last entry
    record of that CPU. Source: `states`, `waker_utid` and flag `IRQ_WAKEUP` of `slices`, interrupt
    and system call records.

    Parameters
    ----------
    states, slices, events
        Tables of one trace, of all its tasks.

    Returns
    -------
    pl.DataFrame
        One row per sleep, by task and time: `utid` (UInt32), `start_ns`, `end_ns` (Int64, trace
        clock), `state` (String), `waker_utid` (UInt32; null when no task woke it), `waker` (String:
        `task`; `timer`; `irq NAME`; `softirq NAME`; `interrupt` where the source does not record
        which; `not ended` at the end of the trace; `not recorded`), `via` (String, what it slept
        in: the system call, lock or wait channel; null when not recorded).

    Notes
    -----
    How it can mislead: where a source does not record that a wakeup came from an interrupt, the
    interrupted task is taken for the waker. `tracekit info` says whether interrupt flags were
    recorded.
    """
    c.check_columns(states, "states", ("ts_ns", "dur_ns", "utid", "tid", "state", "flags"))
    state = pl.col("state").cast(pl.String)
    sleeps = states.filter(state.is_in(list(ASLEEP))).select(
        *("utid", "tid", pl.col("ts_ns").alias("start_ns")),
        (pl.col("ts_ns") + pl.col("dur_ns")).alias("end_ns"),
        state.alias("state"),
        pl.col("reason").cast(pl.String)
        if "reason" in states.columns
        else pl.lit(None, pl.String).alias("reason"),
        c.has(c.OPEN_END).alias("_open"),
    )
    woken = slices.filter(pl.col("wake_ts_ns").is_not_null()).select(
        "utid",
        pl.col("wake_ts_ns").alias("end_ns"),
        *("waker_utid", "waker_cpu"),
        c.has(c.IRQ_WAKEUP).alias("_irq"),
        pl.lit(True).alias("_woken"),
    )
    rows = sleeps.join(
        woken.unique(["utid", "end_ns"], keep="first"), on=["utid", "end_ns"], how="left"
    ).sort("end_ns", maintain_order=True)
    marks = _marks(events)
    rows = rows.join_asof(marks, left_on="end_ns", right_on="ts_ns", by="waker_cpu", check_sortedness=False)
    calls = _calls(events)
    if calls.height:
        rows = rows.sort("start_ns", maintain_order=True).join_asof(
            calls, left_on="start_ns", right_on="ts_ns", by="tid", check_sortedness=False
        )
    else:
        rows = rows.with_columns(pl.lit(None, dtype=pl.String).alias("call"))
    by_task = pl.col("_woken").fill_null(False) & pl.col("waker_utid").is_not_null() & ~pl.col("_irq")
    waker = (
        pl.when(by_task)
        .then(pl.lit("task"))
        .when(pl.col("_woken").fill_null(False) & pl.col("_irq"))
        .then(pl.col("called").fill_null("interrupt"))
        .when(pl.col("_open"))
        .then(pl.lit("not ended"))
        .otherwise(pl.lit("not recorded"))
    )
    return rows.select(
        *("utid", "start_ns", "end_ns", "state"),
        pl.when(by_task).then(pl.col("waker_utid")).alias("waker_utid"),
        waker.alias("waker"),
        pl.coalesce("call", "reason").alias("via"),
    ).sort("utid", "start_ns", maintain_order=True)


def timelines(states: pl.DataFrame, slices: pl.DataFrame, events: pl.DataFrame) -> Timelines:
    """Prepare the states of all tasks for `follow`.

    Parameters
    ----------
    states, slices, events
        Tables of one trace, of all its tasks.

    Returns
    -------
    Timelines
        Rows by task and time.
    """
    state = pl.col("state").cast(pl.String)
    what = (
        pl.when(state == "running")
        .then(pl.lit("running"))
        .when(state.is_in(list(READY)))
        .then(pl.lit("ready"))
        .when(state.is_in(list(ASLEEP)))
        .then(pl.lit("asleep"))
        .when(state == "capped")
        .then(pl.lit("throttled"))
        .when(state.is_in(["zombie", "dead"]))
        .then(pl.lit("ended"))
        .otherwise(pl.lit("unknown"))
    )
    rows = states.select(
        *("utid", "tid", pl.col("ts_ns").alias("start_ns")),
        (pl.col("ts_ns") + pl.col("dur_ns")).alias("end_ns"),
        "cpu",
        state.alias("state"),
        what.alias("what"),
    ).sort("utid", "start_ns", maintain_order=True)
    # A wait goes on while the task moves from queue to queue: its first row says how it began.
    begins = (pl.col("what") != "ready") | (pl.col("what").shift(1).over("utid") != "ready").fill_null(True)
    rows = rows.with_columns(
        begins.cum_sum().alias("_wait"), pl.col("what").shift(1).over("utid").alias("_before")
    )
    first_state, before = pl.col("state").first().over("_wait"), pl.col("_before").first().over("_wait")
    role = (
        pl.when(pl.col("what") != "ready")
        .then(pl.lit(None, dtype=pl.String))
        .when(first_state == "yielding")
        .then(pl.lit("yielded"))
        .when((first_state == "preempted") | (before == "running"))
        .then(pl.lit("preempted"))
        .otherwise(pl.lit("waiting"))
    )
    ran_next = pl.when(pl.col("what") == "running").then(pl.col("cpu")).backward_fill().over("utid")
    where = (
        pl.when((pl.col("what") == "ready") & pl.col("cpu").is_null()).then(ran_next).otherwise(pl.col("cpu"))
    )
    rows = rows.with_columns(
        role.alias("role"), pl.col("cpu").is_not_null().alias("placed"), where.alias("cpu")
    )
    ended = endings(states, slices, events).select("utid", "start_ns", "waker_utid", "waker", "via")
    rows = rows.join(
        ended.unique(["utid", "start_ns"], keep="first"),
        on=["utid", "start_ns"],
        how="left",
        maintain_order="left",
    )
    asleep = pl.col("what") == "asleep"
    return Timelines(
        _moved(rows, events).select(
            *("utid", "start_ns", "end_ns", "cpu", "placed", "what", "role"),
            *(pl.when(asleep).then(pl.col(n)).alias(n) for n in ("waker_utid", "waker", "via")),
        )
    )


def _moved(rows: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Waits cut where the task was moved to the queue of another CPU."""
    kind = pl.col("kind").cast(pl.String)
    moves = (
        events.filter(
            kind.is_in(["migrate", "wakeup", "wakeup_new", "enqueue"])
            & pl.col("target_cpu").is_not_null()
            & pl.col("tid").is_not_null()
        )
        .select("tid", pl.col("ts_ns").alias("at_ns"), pl.col("target_cpu").alias("to"), kind.alias("kind"))
        .sort("at_ns", maintain_order=True)
    )
    rows = rows.with_row_index("_row").with_columns(pl.col("_row").cast(pl.Int64))
    waits = (
        rows.filter(pl.col("what") == "ready").select("_row", "tid", "start_ns", "end_ns").sort("start_ns")
    )
    inside = moves.join_asof(
        waits, left_on="at_ns", right_on="start_ns", by="tid", check_sortedness=False
    ).filter((pl.col("at_ns") >= pl.col("start_ns")) & (pl.col("at_ns") < pl.col("end_ns")))
    # What the wakeup itself chooses counts from the moment that the task was runnable.
    chosen = (pl.col("kind") != "migrate").any().over("_row")
    woken = (pl.col("kind") != "migrate").cum_sum().over("_row") > 0
    inside = inside.filter(woken | ~chosen)
    if not inside.height:
        return rows.drop("_row")
    first = inside.group_by("_row").agg(
        pl.col("to").first().alias("_first"), (pl.col("kind").first() != "migrate").alias("_chosen")
    )
    before = pl.when(pl.col("what") == "running").then(pl.col("cpu")).forward_fill().shift(1).over("utid")
    rows = rows.with_columns(before.alias("_was")).join(first, on="_row", how="left", maintain_order="left")
    start = (
        pl.when(pl.col("_chosen"))
        .then(pl.col("_first"))
        .when(pl.col("_first").is_not_null() & pl.col("_was").is_not_null())
        .then(pl.col("_was"))
        .otherwise(pl.col("cpu"))
    )
    rows = rows.with_columns(start.alias("cpu")).drop("_was", "_first", "_chosen")
    later = inside.select(
        "_row", pl.col("at_ns").alias("start_ns"), pl.col("to").alias("cpu"), placed=pl.lit(True)
    )
    cut = later.join(rows.drop("start_ns", "cpu", "placed"), on="_row").select(rows.columns)
    whole = pl.concat([rows, cut]).sort("_row", "start_ns", maintain_order=True)
    # A record that names the queue on which the task already waits moves nothing.
    whole = whole.filter(
        pl.col("cpu").ne_missing(pl.col("cpu").shift(1).over("_row")) | pl.col("_row").is_first_distinct()
    )
    nearest = pl.col("start_ns").shift(-1).over("_row").fill_null(pl.col("end_ns"))
    return (
        whole.with_columns(nearest.alias("end_ns"))
        .filter((pl.col("end_ns") > pl.col("start_ns")) | (pl.len().over("_row") == 1))
        .drop("_row")
    )


def follow(spans: pl.DataFrame, lines: Timelines, depth: int = MAX_DEPTH) -> pl.DataFrame:
    """Cut spans into the states of their task, and sleeps into what the waker did meanwhile.

    Definition: path(task, [a, b)) = its states in [a, b), where a sleep that a task W ended is
    replaced by path(W, the same interval). Every nanosecond of a span is in exactly one part.

    Parameters
    ----------
    spans
        `span` (UInt32), `utid` (UInt32), `start_ns`, `end_ns` (Int64, trace clock).
    lines
        From `timelines`.
    depth
        How many wakers to follow; 0 leaves sleeps as they are.

    Returns
    -------
    pl.DataFrame
        By span and time: `span`, `depth` (UInt32, 0 for the task itself, 1 for its waker, ...),
        `on_utid` (UInt32, whose state it is), `start_ns`, `end_ns` (Int64), `row` (Int64, row of
        `lines.states`; -1 where nothing is known of the task), `slept` (Int64, row of the sleep of
        the span's own task in which this part lies; -1 outside of any).

    Notes
    -----
    How it can mislead: the waker may have done other things first, for which nobody waited; they
    count all the same. The path is one explanation of the time, not the only one:
    `tracekit why --what-if` tests it.
    """
    states = lines.states
    keys = ints(states, "utid", "start_ns", "end_ns")
    asleep = (states["what"] == "asleep").to_numpy()
    (waker,) = ints(states, "waker_utid")
    span, utid, start, end = ints(spans, "span", "utid", "start_ns", "end_ns")
    slept = np.full(len(span), -1, dtype=np.int64)
    found: list[pl.DataFrame] = []
    for level in range(depth + 1):
        if not len(span):
            break
        cut = overlay(utid, start, end, *keys)
        row, on = cut.cover, utid[cut.piece]
        if level < depth:
            # A task that wakes itself explains nothing.
            on_waker = (row >= 0) & asleep[row] & (waker[row] >= 0) & (waker[row] != on)
        else:
            on_waker = np.zeros(len(row), dtype=bool)
        here = ~on_waker
        # In what the span's own task slept: its first sleep on the way to this part.
        since = np.where((row >= 0) & asleep[row] & (level == 0), row, slept[cut.piece])
        parts = {
            "span": span[cut.piece][here],
            "depth": np.full(int(here.sum()), level),
            "on_utid": on[here],
            "start_ns": cut.start[here],
            "end_ns": cut.end[here],
            "row": row[here],
            "slept": since[here],
        }
        found.append(pl.DataFrame(parts).cast(_PARTS))
        span, utid = span[cut.piece][on_waker], waker[row[on_waker]]
        start, end, slept = cut.start[on_waker], cut.end[on_waker], since[on_waker]
    if not found:
        return pl.DataFrame(schema=_PARTS)
    return pl.concat(found).sort("span", "start_ns", maintain_order=True)


def chains(responses: pl.DataFrame, lines: Timelines, names: pl.DataFrame, hops: int = 16) -> pl.DataFrame:
    """Say through which tasks the work of each response came.

    Definition: the waker of the response, the waker of the response in which that one was when it
    made the wakeup, and so on, to an interrupt or to what the trace does not explain.

    Parameters
    ----------
    responses
        `span`, `utid`, `start_ns` (the wakeup, trace clock).
    lines
        From `timelines`.
    names
        `utid` and `group`: what to call each task.
    hops
        Wakers followed at most.

    Returns
    -------
    pl.DataFrame
        One row per response: `span` (UInt32), `chain` (String, latest first:
        `work <- disp <- gen <- timer`), `hops` (UInt32).
    """
    sleeps = (
        lines.states.filter(pl.col("what") == "asleep")
        .select("utid", pl.col("end_ns").alias("woken_ns"), "waker_utid", "waker")
        .sort("woken_ns")
    )
    called = dict(names.select("utid", "group").iter_rows())
    rows = responses.select("span", "utid", pl.col("start_ns").alias("at_ns")).with_columns(
        pl.col("utid").replace_strict(called, default="?", return_dtype=pl.String).alias("chain"),
        pl.lit(0, dtype=pl.UInt32).alias("hops"),
    )
    done: list[pl.DataFrame] = []
    for _ in range(hops):
        if not rows.height:
            break
        step = rows.sort("at_ns").join_asof(
            sleeps, left_on="at_ns", right_on="woken_ns", by="utid", check_sortedness=False
        )
        end = (
            pl.when(pl.col("waker_utid").is_null())
            .then(pl.col("waker").fill_null("not recorded"))
            .otherwise(pl.col("waker_utid").replace_strict(called, default="?", return_dtype=pl.String))
        )
        step = step.with_columns(
            pl.concat_str("chain", pl.lit(" <- "), end).alias("chain"), (pl.col("hops") + 1).alias("hops")
        )
        done.append(step.filter(pl.col("waker_utid").is_null()).select("span", "chain", "hops"))
        rows = step.filter(pl.col("waker_utid").is_not_null()).select(
            "span", pl.col("waker_utid").alias("utid"), pl.col("woken_ns").alias("at_ns"), "chain", "hops"
        )
    done.append(rows.select("span", pl.concat_str("chain", pl.lit(" <- ...")).alias("chain"), "hops"))
    return pl.concat(done).sort("span")
