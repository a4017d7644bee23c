"""Events from the trace processor's `ftrace_event` table: each record as the kernel wrote it.

Of the records, those below get a kind; the names of the others are given in a diagnostic.  Text and numbers
come from the record's arguments; the process of a thread comes from the trace processor, which read it
from `/proc` while tracing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from tracekit.perfetto.engine import Session
from tracekit.perfetto.states import state_of

# Rows asked for at a time: a bound on what one reply holds.
PIECE = 1_000_000

# Bits of common_flags in a record of Linux -> bits of irq_flags.
FLAG_BITS: dict[int, int] = {0x01: 1 << 0, 0x04: 1 << 1, 0x20: 1 << 2, 0x08: 1 << 4, 0x10: 1 << 5, 0x40: 1 << 6, 0x80: 1 << 7}  # fmt: skip


@dataclass(frozen=True)
class Record:
    """How a record of Linux becomes an event.

    Attributes
    ----------
    kind
        Kind of the event.
    columns
        Column of `events` -> argument of the record.
    """

    kind: str
    columns: dict[str, str]


_TASK = {"tid": "pid", "comm": "comm", "prio": "prio"}
_WOKEN = {**_TASK, "value": "success", "target_cpu": "target_cpu"}

RECORDS: dict[str, Record] = {
    "sched_switch": Record(
        "switch",
        {
            "tid": "prev_pid",
            "comm": "prev_comm",
            "prio": "prev_prio",
            "bits": "prev_state",
            "next_tid": "next_pid",
            "next_comm": "next_comm",
            "next_prio": "next_prio",
        },
    ),
    "sched_waking": Record("waking", _WOKEN),
    "sched_wakeup": Record("wakeup", _WOKEN),
    "sched_wakeup_new": Record("wakeup_new", _WOKEN),
    "sched_migrate_task": Record("migrate", {**_TASK, "orig_cpu": "orig_cpu", "target_cpu": "dest_cpu"}),
    "sched_process_fork": Record(
        "fork",
        {"tid": "child_pid", "comm": "child_comm", "ctx_tid": "parent_pid", "ctx_comm": "parent_comm"},
    ),
    "task_newtask": Record("fork", {"tid": "pid", "comm": "comm"}),
    "sched_process_exec": Record("exec", {"tid": "pid", "value": "old_pid", "name": "filename"}),
    "sched_process_exit": Record("exit", _TASK),
    "sched_process_free": Record("free", _TASK),
    "sched_process_wait": Record("wait", _TASK),
    "task_rename": Record("comm", {"tid": "pid", "comm": "newcomm"}),
    "sched_pi_setprio": Record("prio", {"tid": "pid", "comm": "comm", "value": "newprio", "prio": "oldprio"}),
    "sched_blocked_reason": Record(
        "blocked_reason", {"tid": "pid", "value": "io_wait", "reason": "function"}
    ),
    "irq_handler_entry": Record("irq_entry", {"value": "irq", "name": "name"}),
    "irq_handler_exit": Record("irq_exit", {"value": "irq", "value2": "ret"}),
    "softirq_entry": Record("softirq_entry", {"value": "vec"}),
    "softirq_exit": Record("softirq_exit", {"value": "vec"}),
    "softirq_raise": Record("softirq_raise", {"value": "vec"}),
    "cpu_idle": Record("cpu_idle", {"value": "state", "target_cpu": "cpu_id"}),
    "cpu_frequency": Record("cpu_freq", {"value": "state", "target_cpu": "cpu_id"}),
    "cpu_frequency_limits": Record(
        "cpu_freq_limits", {"value": "max_freq", "value2": "min_freq", "target_cpu": "cpu_id"}
    ),
    "sys_enter": Record("sys_enter", {"value": "id"}),
    "sys_exit": Record("sys_exit", {"value": "id", "value2": "ret"}),
}
TEXTS = frozenset({"comm", "next_comm", "ctx_comm", "name", "reason"})


def counts(session: Session, cpus: str) -> dict[str, int]:
    """Count the records by name.

    Parameters
    ----------
    session
        A trace processor that fills `ftrace_event`.
    cpus
        SQL list of the CPUs (`ucpu`) that are wanted.
    """
    sql = f"select name, count(*) n from ftrace_event where name is not null and ucpu in ({cpus}) group by 1"
    return dict(session.query(sql).rows())


def read_records(
    session: Session, found: dict[str, int], cpus: str, report: Callable[[int], None]
) -> pl.DataFrame:
    """Read the records that have a kind, as rows of `events` without processes.

    Parameters
    ----------
    session
        A trace processor that fills `ftrace_event`.
    found
        What `counts` gave.
    cpus
        SQL list of the CPUs (`ucpu`) that are wanted.
    report
        Called with the number of rows read so far.

    Returns
    -------
    polars.DataFrame
        In time order, with `seq` the record's number in the trace processor.
    """
    wanted = [name for name in found if name in RECORDS]
    if "sched_process_fork" in found and "task_newtask" in wanted:
        # Both record the same forks; the former also names the parent.
        wanted.remove("task_newtask")
    parts: list[pl.DataFrame] = []
    done = 0
    for name in wanted:
        for piece in _pieces(session, name, found[name], cpus):
            parts.append(_as_events(RECORDS[name], piece))
            done += len(piece)
            report(done)
    events = pl.concat(parts, how="diagonal_relaxed").sort("seq") if parts else pl.DataFrame()
    if "sched_switch" in wanted:
        events = _name_states(events, session, cpus)
    return events


def _pieces(session: Session, name: str, count: int, cpus: str) -> list[pl.DataFrame]:
    arguments = [
        f"extract_arg(arg_set_id, '{argument}') {column}"
        for column, argument in RECORDS[name].columns.items()
    ]
    columns = ", ".join(["id seq", "ts ts_ns", "ucpu", "utid", "common_flags", *arguments])
    head = f"select {columns} from ftrace_event where name = '{name}' and ucpu in ({cpus})"
    if count <= PIECE:
        return [session.query(head)]
    out: list[pl.DataFrame] = []
    last = -1
    while True:
        piece = session.query(f"{head} and id > {last} order by id limit {PIECE}")
        if not len(piece):
            return out
        last = int(piece["seq"][-1])
        out.append(piece)


def _as_events(record: Record, rows: pl.DataFrame) -> pl.DataFrame:
    typed = {
        column: pl.String if column in TEXTS else pl.Int64
        for column in record.columns
        if column in rows.columns
    }
    rows = rows.with_columns(pl.col(column).cast(dtype) for column, dtype in typed.items())
    for column in typed:
        if column in TEXTS:
            # Perfetto writes an empty name where it has none.
            rows = rows.with_columns(pl.col(column).replace("", None))
    if record.kind == "cpu_idle":
        left = pl.col("value").is_in([0xFFFFFFFF, -1])
        rows = rows.with_columns(pl.when(~left).then(pl.col("value")).alias("value"))
    flags = sum(
        ((pl.col("common_flags") & linux) != 0).cast(pl.Int64) * ours for linux, ours in FLAG_BITS.items()
    )
    # Older recorders leave the flags out, so that 0 may also mean unknown.
    rows = rows.with_columns(irq_flags=pl.when(pl.col("common_flags") != 0).then(flags))
    return rows.with_columns(kind=pl.lit(record.kind)).drop("common_flags")


def _name_states(events: pl.DataFrame, session: Session, cpus: str) -> pl.DataFrame:
    """Put names to the state bits of switches.

    Which bit means what depends on the kernel, and the trace processor knows that: where a row of its
    `sched` table ends at a switch, that row has the letters for the switch's bits.
    """
    ends = session.query(
        f"select ucpu, ts + dur ts_ns, end_state letters from sched where dur > 0 and ucpu in ({cpus})"
    )
    # A result without rows has no types.
    ends = ends.cast({"ucpu": pl.Int64, "ts_ns": pl.Int64, "letters": pl.String})
    switches = events.filter(pl.col("kind") == "switch").select("ucpu", "ts_ns", "bits")
    pairs = switches.join(ends, on=["ucpu", "ts_ns"]).drop_nulls()
    votes = pairs.group_by("bits", "letters").len().sort("len", descending=True)
    letters = dict(votes.unique("bits", keep="first", maintain_order=True).select("bits", "letters").rows())
    raw = pl.col("bits").replace_strict(letters, default=None, return_dtype=pl.String)
    events = events.with_columns(state_raw=raw)
    words = {text: state_of(text) for text in set(letters.values())}
    state = pl.col("state_raw").replace_strict(words, default=None, return_dtype=pl.String)
    return events.with_columns(state=state).drop("bits")
