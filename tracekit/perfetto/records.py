"""Writes records other than switches and wakings as Linux ftrace events.

What the Perfetto UI draws (interrupts, softirqs, idle states, frequencies, new threads) and what tells a
task's life on the way back (fork, exec, exit, migration).  System calls only for Linux: Perfetto
names them by Linux's numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from tracekit.perfetto.columns import by_cpu, dictionary, integers
from tracekit.perfetto.packets import PacketWriter
from tracekit.perfetto.wire import Cells, Ints, ints, only, texts

CLONE_THREAD = 0x10000
LEFT_IDLE = 0xFFFFFFFF

Fields = Callable[[pl.DataFrame], list[Cells]]


def _text(frame: pl.DataFrame, number: int, column: str) -> list[Cells]:
    return texts(number, *dictionary(frame.get_column(column)))


def _stated(frame: pl.DataFrame, number: int, column: str) -> list[Cells]:
    """Give an integer field that is left out where the column is null."""
    return only(frame.get_column(column).is_not_null().to_numpy(), ints(number, integers(frame, column)))


def _woken(frame: pl.DataFrame) -> list[Cells]:
    one = np.ones(len(frame), np.int64)
    return [*_task(frame), *_stated(frame, 3, "prio"), *ints(4, one), *_stated(frame, 5, "target_cpu")]


def _task(frame: pl.DataFrame) -> list[Cells]:
    return [*_text(frame, 1, "comm"), *ints(2, integers(frame, "tid"))]


def _fork(frame: pl.DataFrame) -> list[Cells]:
    parent = [*_text(frame, 1, "ctx_comm"), *ints(2, integers(frame, "ctx_tid"))]
    return [*parent, *_text(frame, 3, "comm"), *ints(4, integers(frame, "tid"))]


def _newtask(frame: pl.DataFrame) -> list[Cells]:
    # Without a thread flag Perfetto makes the child a process of its own.
    thread = (frame.get_column("pid") != frame.get_column("tid")).fill_null(False).to_numpy()
    flags = np.where(thread, CLONE_THREAD, 0)
    return [*ints(1, integers(frame, "tid")), *_text(frame, 2, "comm"), *ints(3, flags)]


def _exit(frame: pl.DataFrame) -> list[Cells]:
    return [*_task(frame), *_stated(frame, 3, "pid"), *_stated(frame, 4, "prio")]


def _ended(frame: pl.DataFrame) -> list[Cells]:
    return [*_task(frame), *_stated(frame, 3, "prio")]


def _exec(frame: pl.DataFrame) -> list[Cells]:
    # The number before, which is another one when a thread that is not the leader executes.
    before = integers(frame.with_columns(pl.coalesce("value", "tid")), "value")
    return [*_text(frame, 1, "name"), *ints(2, integers(frame, "tid")), *ints(3, before)]


def _rename(frame: pl.DataFrame) -> list[Cells]:
    return [
        *ints(1, integers(frame, "tid")),
        *_text(frame, 2, "ctx_comm"),
        *_text(frame, 3, "comm"),
    ]


def _migrate(frame: pl.DataFrame) -> list[Cells]:
    cpus = [*_stated(frame, 4, "orig_cpu"), *_stated(frame, 5, "target_cpu")]
    return [*_task(frame), *_stated(frame, 3, "prio"), *cpus]


def _prio(frame: pl.DataFrame) -> list[Cells]:
    return [
        *_text(frame, 1, "comm"),
        *_stated(frame, 2, "value"),
        *_stated(frame, 3, "prio"),
        *ints(4, integers(frame, "tid")),
    ]


def _irq_entry(frame: pl.DataFrame) -> list[Cells]:
    return [*_stated(frame, 1, "value"), *_text(frame, 2, "name")]


def _number(frame: pl.DataFrame) -> list[Cells]:
    return _stated(frame, 1, "value")


def _result(frame: pl.DataFrame) -> list[Cells]:
    return [*_stated(frame, 1, "value"), *_stated(frame, 2, "value2")]


def _of_cpu(frame: pl.DataFrame) -> Ints:
    own = integers(frame, "cpu")
    return integers(frame, "target_cpu", -1) if frame["target_cpu"].null_count() == 0 else own


def _idle(frame: pl.DataFrame) -> list[Cells]:
    return [*ints(1, integers(frame, "value", LEFT_IDLE)), *ints(2, _of_cpu(frame))]


def _frequency(frame: pl.DataFrame) -> list[Cells]:
    return [*_stated(frame, 1, "value"), *ints(2, _of_cpu(frame))]


def _limits(frame: pl.DataFrame) -> list[Cells]:
    return [*_stated(frame, 1, "value2"), *_stated(frame, 2, "value"), *ints(3, _of_cpu(frame))]


# kind -> (field of FtraceEvent, its fields); a kind may become two records.
ABOUT_TASKS: list[tuple[str, int, Fields]] = [
    ("fork", 239, _fork),
    ("fork", 235, _newtask),
    ("exec", 237, _exec),
    ("exit", 238, _exit),
    ("free", 240, _ended),
    ("wait", 242, _ended),
    ("comm", 236, _rename),
    ("migrate", 491, _migrate),
    ("prio", 353, _prio),
    ("wakeup_new", 114, _woken),
]
ABOUT_CPUS: list[tuple[str, int, Fields]] = [
    ("irq_entry", 36, _irq_entry),
    ("irq_exit", 37, _result),
    ("softirq_entry", 24, _number),
    ("softirq_exit", 25, _number),
    ("softirq_raise", 26, _number),
    ("cpu_idle", 13, _idle),
    ("cpu_freq", 11, _frequency),
    ("cpu_freq_limits", 12, _limits),
]
SYSTEM_CALLS: list[tuple[str, int, Fields]] = [("sys_enter", 329, _number), ("sys_exit", 330, _result)]


def record_kinds(linux: bool, renumbered: bool) -> list[tuple[str, int, Fields]]:
    """Give the kinds to write.

    None about tasks where tasks got other numbers, system calls for Linux only.
    """
    tasks = [] if renumbered else ABOUT_TASKS
    return [*tasks, *ABOUT_CPUS, *(SYSTEM_CALLS if linux else [])]


def write_records(writer: PacketWriter, events: pl.DataFrame, kinds: list[tuple[str, int, Fields]]) -> int:
    """Write those rows of the `events` table that are of one of `kinds`; give their number."""
    wanted = {kind for kind, _, _ in kinds}
    events = events.filter(pl.col("kind").cast(pl.String).is_in(wanted))
    parts = events.partition_by("kind", as_dict=True) if len(events) else {}
    for kind, number, fields in kinds:
        rows = parts.get((kind,))
        if rows is None:
            continue
        cpus = integers(rows.with_columns(pl.coalesce("cpu", "target_cpu")), "cpu")
        for cpu, at in by_cpu(cpus):
            group = rows[at]
            ts, tid = integers(group, "ts_ns"), integers(group, "ctx_tid")
            writer.records(cpu, ts, tid, number, fields(group))
    return len(events)
