"""Events from the trace processor's `sched` and `thread_state` tables.

For traces and servers without the records themselves. A switch is made of two rows of `sched` that
follow each other on a CPU, a wakeup of a `Runnable` interval and the thread that ended the sleep
before it.
"""

from __future__ import annotations

import polars as pl

from tracekit.perfetto.engine import Session
from tracekit.perfetto.states import state_of

HARDIRQ = 1 << 4


def read_tables(session: Session, cpus: str) -> pl.DataFrame:
    """Read switches and wakeups, as rows of `events` without processes.

    Parameters
    ----------
    session
        A trace processor with a trace in it.
    cpus
        SQL list of the CPUs (`ucpu`) that are wanted.

    Returns
    -------
    polars.DataFrame
        In time order; `seq` counts the rows.
    """
    events = pl.concat([_switches(session, cpus), _wakings(session, cpus)], how="diagonal_relaxed")
    # A wakeup and the switch that it brings about can have one time; the wakeup comes first.
    order = (pl.col("kind") == "switch").cast(pl.Int8)
    return events.sort("ts_ns", order, maintain_order=True).with_columns(
        seq=pl.int_range(pl.len(), dtype=pl.Int64)
    )


def _switches(session: Session, cpus: str) -> pl.DataFrame:
    rows = session.query(
        f"""
        select s.ts, s.dur, s.ucpu, s.utid, s.priority prio, s.end_state letters, t.tid, t.name comm
        from sched s join thread t using (utid) where s.ucpu in ({cpus}) order by s.ucpu, s.ts, s.id
        """
    ).with_columns(
        pl.col("letters").cast(pl.String),
        pl.col("comm").cast(pl.String).replace("", None),
        pl.col("prio").cast(pl.Int64),
        end=pl.when(pl.col("dur") >= 0).then(pl.col("ts") + pl.col("dur")),
    )
    before = rows.select(pl.col("end", "utid", "tid", "comm", "prio", "letters").shift(1).over("ucpu"))
    joined = before["end"] == rows["ts"]
    entering = rows.select(
        "ucpu",
        ts_ns="ts",
        next_tid="tid",
        next_comm="comm",
        next_prio="prio",
        tid=pl.when(joined).then(before["tid"]),
        utid=pl.when(joined).then(before["utid"]),
        comm=pl.when(joined).then(before["comm"]),
        prio=pl.when(joined).then(before["prio"]),
        state_raw=pl.when(joined).then(before["letters"]),
    )
    # The last of a CPU, and the last before a gap, leave without a successor.
    following = rows["ts"].shift(-1).alias("following")
    same_cpu = (rows["ucpu"] == rows["ucpu"].shift(-1)).fill_null(False)
    alone = rows["end"].is_not_null() & ~((rows["end"] == following).fill_null(False) & same_cpu)
    leaving = rows.filter(alone).select(
        "ucpu", "tid", "utid", "comm", "prio", ts_ns="end", state_raw="letters"
    )
    both = pl.concat([entering, leaving], how="diagonal_relaxed")
    words = {text: state_of(text) for text in both["state_raw"].unique().drop_nulls().to_list()}
    state = pl.col("state_raw").replace_strict(words, default=None, return_dtype=pl.String)
    return both.with_columns(kind=pl.lit("switch"), state=state)


def _wakings(session: Session, cpus: str) -> pl.DataFrame:
    rows = session.query(
        """
        select r.ts ts_ns, t.tid, t.name comm, r.waker_utid utid, w.ucpu, w.tid ctx_tid, r.irq_context,
               lag(r.state) over (partition by r.utid order by r.ts, r.id) earlier, r.state
        from thread_state r join thread t using (utid)
        left join (
            select s.id, s.ucpu, k.tid from thread_state s join thread k using (utid)
        ) w on w.id = r.waker_id
        """
    ).with_columns(pl.col("earlier", "state", "comm").cast(pl.String))
    # A runnable interval after a running one is a preemption; R+ always is.
    woken = rows.filter((pl.col("state") == "R") & (pl.col("earlier").fill_null("") != "Running"))
    wanted = [int(cpu) for cpu in cpus.split(",") if cpu.strip()]
    woken = woken.filter(pl.col("ucpu").is_null() | pl.col("ucpu").is_in(wanted))
    irq = pl.col("irq_context").cast(pl.Int64).fill_null(0) != 0
    return woken.select(
        "ts_ns",
        "tid",
        "comm",
        pl.col("utid", "ucpu", "ctx_tid").cast(pl.Int64),
        kind=pl.lit("waking"),
        irq_flags=pl.when(irq).then(HARDIRQ).cast(pl.Int64),
    )
