"""Which waits stood in the queue of a CPU, as far as the records show it."""

from __future__ import annotations

import numpy as np
import polars as pl

from tracekit.analysis import _common as c

#: Records that say on which CPU a task is to run.
_PLACES = ("waking", "wakeup", "wakeup_new", "migrate")


def _sorted(frame: pl.DataFrame, *by: str) -> pl.DataFrame:
    return frame.sort(*by, maintain_order=True)


def _asof(
    rows: pl.DataFrame, other: pl.DataFrame, on: tuple[str, str], by: str, forward: bool
) -> pl.DataFrame:
    """Each row with the nearest row of `other` before or behind it; the order of rows changes."""
    return _sorted(rows, on[0]).join_asof(
        _sorted(other, on[1]),
        left_on=on[0],
        right_on=on[1],
        by=by,
        strategy="forward" if forward else "backward",
        check_sortedness=False,
    )


def _acts(events: pl.DataFrame) -> pl.DataFrame:
    """Per task: where it is to run (`place`), whether that is still on its way, its priority."""
    kind = pl.col("kind").cast(pl.String)
    rows = _sorted(events.filter(kind.is_in(["switch", *_PLACES])), "ts_ns", "seq")
    switch = rows.filter(kind == "switch")
    placed = rows.filter(kind.is_in(list(_PLACES))).select(
        *("ts_ns", "seq", "tid", pl.col("target_cpu").alias("place"), kind.alias("act"), "prio")
    )
    left = switch.select(
        "ts_ns", "seq", "tid", pl.col("cpu").alias("place"), pl.lit("out").alias("act"), "prio"
    )
    entered = switch.select(
        *("ts_ns", "seq", pl.col("next_tid").alias("tid"), pl.col("cpu").alias("place")),
        pl.lit("in").alias("act"),
        pl.col("next_prio").alias("prio"),
    )
    return _sorted(pl.concat([placed, left, entered]).filter(pl.col("tid") > 0), "ts_ns", "seq")


def in_queue(waits: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Keep of waits what the records place in the queue of their CPU.

    Definition: a task is in the queue of the CPU that its last placement record names (`waking`,
    `wakeup`, `migrate`, else the switch with which it left). Behind a `waking` it is on its way
    until the CPU itself records the `wakeup`, where that is recorded. A task that runs on another
    CPU next, without a record of its migration, counts as gone.

    Parameters
    ----------
    waits
        `tid`, `cpu`, `ts_ns`, `end_ns`: parts of waits in which one task or nobody had the CPU.
    events
        The `events` table.

    Returns
    -------
    pl.DataFrame
        The rows that are left, `ts_ns` later where the wakeup was on its way; `_waits_prio` (Int32,
        the priority that it last had when the wait began; null when not recorded).
    """
    acts = _acts(events)
    act = pl.col("act")
    last = acts.filter(act != "in").select("tid", pl.col("ts_ns").alias("_at"), "place")
    rows = _asof(waits, last, ("ts_ns", "_at"), "tid", forward=False)
    rows = rows.filter(pl.col("place").is_null() | (pl.col("place") == pl.col("cpu"))).drop("place", "_at")
    # On its way: the last thing that happened to it is a `waking`.
    state = acts.filter(act != "migrate").select("tid", pl.col("ts_ns").alias("_woken"), act.alias("_last"))
    rows = _asof(rows, state, ("ts_ns", "_woken"), "tid", forward=False)
    done = acts.filter(act == "wakeup").select("tid", pl.col("ts_ns").alias("_done"))
    rows = _asof(
        rows.with_columns(pl.col("_woken").fill_null(pl.col("ts_ns"))), done, ("_woken", "_done"), "tid", True
    )
    runs = acts.filter(act == "in").select(
        "tid", pl.col("ts_ns").alias("_runs"), pl.col("place").alias("_where")
    )
    rows = _asof(rows, runs, ("end_ns", "_runs"), "tid", forward=True)
    pending = (pl.col("_last") == "waking") & (pl.col("_done") <= pl.col("_runs"))
    rows = rows.with_columns(
        pl.when(pending.fill_null(False))
        .then(pl.max_horizontal("ts_ns", "_done"))
        .otherwise("ts_ns")
        .alias("ts_ns")
    )
    # It runs elsewhere next, and nothing says when it went there: it may have been gone already.
    moved = acts.filter(act == "migrate").select("tid", pl.col("ts_ns").alias("_moved"))
    rows = _asof(
        rows.with_columns(pl.col("_runs").fill_null(pl.col("end_ns"))),
        moved,
        ("_runs", "_moved"),
        "tid",
        False,
    )
    gone = (pl.col("_where") != pl.col("cpu")) & ~(pl.col("_moved") > pl.col("ts_ns")).fill_null(False)
    rows = rows.filter(~gone.fill_null(False)).drop("_moved")
    known = acts.filter(pl.col("prio").is_not_null()).select(
        "tid", pl.col("ts_ns").alias("_at"), pl.col("prio").alias("_waits_prio")
    )
    rows = _asof(
        rows.filter(pl.col("end_ns") > pl.col("ts_ns")), known, ("ts_ns", "_at"), "tid", forward=False
    )
    return rows.drop("_at", "_woken", "_last", "_done", "_runs", "_where")


def idle_windows(waits: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Say of windows in which a CPU is idle how that began, and how long the CPU recorded nothing.

    Definition: a CPU that goes idle while the task that leaves it could go on has no task that may
    run: those of its queue are held back by a quota or by the limit of real-time tasks.

    Parameters
    ----------
    waits
        `cpu`, `ts_ns`, `end_ns`.
    events
        The `events` table.

    Returns
    -------
    pl.DataFrame
        With `_quota` (Boolean: the CPU was left by a task that could go on) and `_silent_ns`
        (Int64, the longest time in the window for which the CPU recorded nothing).
    """
    on_cpu = events.filter(pl.col("cpu").is_not_null())
    switches = on_cpu.filter(pl.col("kind").cast(pl.String) == "switch").select(
        *("cpu", "seq", pl.col("ts_ns").alias("_at")),
        (
            (pl.col("next_tid") == 0)
            & (pl.col("tid") > 0)
            & pl.col("state").cast(pl.String).is_in(list(c.READY)).fill_null(False)
        )
        .fill_null(False)
        .alias("_quota"),
    )
    rows = _asof(waits, _sorted(switches, "_at", "seq").drop("seq"), ("ts_ns", "_at"), "cpu", forward=False)
    return rows.drop("_at").with_columns(
        pl.col("_quota").fill_null(False),
        pl.Series("_silent_ns", _silences(rows, on_cpu), dtype=pl.Int64),
    )


def _silences(windows: pl.DataFrame, on_cpu: pl.DataFrame) -> list[int]:
    """The longest time in each window for which its CPU recorded nothing."""
    times = {
        cpu: np.sort(own["ts_ns"].to_numpy())
        for (cpu,), own in on_cpu.join(windows.select("cpu").unique(), on="cpu").group_by("cpu")
    }
    found = []
    for cpu, start, end in windows.select("cpu", "ts_ns", "end_ns").rows():
        own = times.get(cpu, np.zeros(0, dtype=np.int64))
        within = own[np.searchsorted(own, start) : np.searchsorted(own, end, side="right")]
        found.append(int(np.diff(np.concatenate([[start], within, [end]])).max()))
    return found
