"""Rows of the events table as writers of text layouts take them.

With who runs, and without nulls where a layout has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from tracekit.trace import Trace

__all__ = ["HARDIRQ", "IDLE", "SOFTIRQ", "Record", "Thread", "records"]

#: Flags of `irq_flags`.
HARDIRQ, SOFTIRQ = 16, 32


@dataclass(frozen=True)
class Thread:
    """A thread as a record names it; thread 0 is idle."""

    tid: int
    pid: int
    comm: str
    prio: int | None = None

    @property
    def idle(self) -> bool:
        """It is the idle thread of a CPU."""
        return self.tid == 0


IDLE = Thread(0, 0, "swapper", 120)


@dataclass(frozen=True)
class Record:
    """A row of `events`.

    Attributes
    ----------
    ts_ns, cpu, kind
        As in the row.
    current
        Who ran on the CPU.
    subject, entering
        Whom the record is about, and who comes next; idle where the row names nobody.
    state, target_cpu, orig_cpu, value, name, irq
        As in the row; `irq` is 0 where it is not known.
    """

    ts_ns: int
    cpu: int
    kind: str
    current: Thread
    subject: Thread
    entering: Thread
    state: str | None
    target_cpu: int | None
    orig_cpu: int | None
    value: int | None
    name: str | None
    irq: int


_TEXTS = ("kind", "ctx_comm", "comm", "next_comm", "state", "name")
_NUMBERS = (
    *("ts_ns", "cpu", "ctx_tid", "ctx_pid", "tid", "pid", "prio", "next_tid", "next_pid", "next_prio"),
    *("target_cpu", "orig_cpu", "value", "irq_flags"),
)


def records(trace: Trace, kinds: frozenset[str], left_out: Counter[str]) -> Iterator[Record]:
    """Give the records that a layout can hold.

    Parameters
    ----------
    trace
        Whose events.
    kinds
        Kinds that the layout has.
    left_out
        Counts, by kind, the others and those without CPU.
    """
    rows = trace.events.select(*(pl.col(c).cast(pl.String) for c in _TEXTS), *_NUMBERS)
    running: dict[int, Thread] = {}
    known: dict[int, Thread] = {}
    for row in rows.iter_rows(named=True):
        kind, cpu = row["kind"], row["cpu"]
        if kind not in kinds or cpu is None:
            left_out[kind] += 1
            continue
        subject = _thread(row["tid"], row["pid"], row["comm"], row["prio"], known)
        entering = _thread(row["next_tid"], row["next_pid"], row["next_comm"], row["next_prio"], known)
        current = _thread(row["ctx_tid"], row["ctx_pid"], row["ctx_comm"], None, known)
        if row["ctx_tid"] is None:
            current = subject if kind == "switch" else running.get(cpu, IDLE)
        yield Record(
            row["ts_ns"], cpu, kind, current, subject, entering, row["state"], row["target_cpu"],
            row["orig_cpu"], row["value"], row["name"], row["irq_flags"] or 0,
        )  # fmt: skip
        if kind == "switch":
            running[cpu] = entering


def _thread(
    tid: int | None, pid: int | None, comm: str | None, prio: int | None, known: dict[int, Thread]
) -> Thread:
    """A thread; what a row leaves open is as it was last."""
    if not tid:
        return IDLE if prio is None else Thread(0, 0, "swapper", prio)
    before = known.get(tid)
    found = Thread(
        tid,
        pid if pid is not None else before.pid if before else tid,
        comm if comm is not None else before.comm if before else f"task{tid}",
        prio if prio is not None else before.prio if before else None,
    )
    known[tid] = found
    return found
