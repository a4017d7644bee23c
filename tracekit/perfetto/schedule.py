"""Turns slices and wakeups into switches and wakings of each CPU, batch by batch.

The switches are made from the slices table, not copied from the events: so they say the same for every
source, also where a source writes half a switch (AIX, FreeBSD, perf's context-switch records) or was
repaired.  Between two slices of a CPU that do not touch, the CPU is idle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.perfetto.columns import by_cpu, dictionary, integers
from tracekit.perfetto.packets import PacketWriter, Switches, Wakings
from tracekit.perfetto.states import NOT_STATED, STATE_BITS
from tracekit.perfetto.wire import Ints

# Bits of `flags` in slices.
OPEN_END, IRQ_WAKEUP = 1 << 1, 1 << 5
# Bits of `irq_flags` in events, and of a trace record's common_flags in Linux.
HARDIRQ, SOFTIRQ = 1 << 4, 1 << 5
LINUX_HARDIRQ, LINUX_SOFTIRQ = 0x08, 0x10
# The priority that Linux prints for idle and for tasks of nice 0.
DEFAULT_PRIO = 120
NOBODY_KNOWN = -1
STILL_RUNNING = np.iinfo(np.int64).max


@dataclass
class _Cpu:
    """What a CPU did last in the batches before."""

    end: int
    state: int
    tid: int
    prio: int
    name: bytes


@dataclass
class Batch:
    """Slices of a stretch of time, as columns in time order."""

    ts: Ints
    end: Ints
    cpu: Ints
    tid: Ints
    prio: Ints
    state: Ints
    name: Ints


def slices_batch(frame: pl.DataFrame, tid_of: Ints) -> tuple[Batch, list[bytes]]:
    """Take the columns that switches need from rows of the slices table that have a CPU."""
    names, codes = dictionary(frame.get_column("comm"))
    ts = integers(frame, "ts_ns")
    bits = frame.get_column("end_state").cast(pl.String)
    state = bits.replace_strict(STATE_BITS, default=NOT_STATED, return_dtype=pl.Int64).fill_null(NOT_STATED)
    is_open = (integers(frame, "flags") & OPEN_END) != 0
    return Batch(
        ts=ts,
        end=np.where(is_open, STILL_RUNNING, ts + integers(frame, "dur_ns")),
        cpu=integers(frame, "cpu"),
        tid=tid_of[integers(frame, "utid")],
        prio=integers(frame, "prio", DEFAULT_PRIO),
        state=state.to_numpy(),
        name=codes,
    ), names


class Scheduler:
    """Writes the schedule of one machine; feed it batches in time order.

    Parameters
    ----------
    writer
        Where the packets go.
    """

    def __init__(self, writer: PacketWriter) -> None:
        self._writer = writer
        self._cpus: dict[int, _Cpu] = {}

    def batch(
        self, slices: Batch, names: list[bytes], wakings: dict[int, Wakings], until: int, lost: set[int]
    ) -> None:
        """Write the slices that begin before `until` and the wakings of the same time.

        Parameters
        ----------
        slices
            Slices in time order.
        names
            The dictionary of their names and of the names of the wakings.
        wakings
            Wakings by CPU.
        until
            Beginning of the next batch; `STILL_RUNNING` for the last one.
        lost
            CPUs that lost records in this time.
        """
        rows_of = dict(by_cpu(slices.cpu))
        for cpu in sorted(rows_of.keys() | wakings.keys() | self._cpus.keys()):
            table = [*names, b"swapper/%d" % cpu]
            before = self._cpus.get(cpu)
            switches, started = self._switches(cpu, slices, rows_of.get(cpu), table, until)
            woken = wakings.get(cpu)
            if woken is not None:
                woken = self._full_first(cpu, woken, switches, started, before, table)
            if started:
                self._begin(cpu, switches, table)
                switches = _tail(switches)
            if woken is None:
                woken = _no_wakings()
            if len(switches.ts) or len(woken.ts) or cpu in lost:
                self._writer.schedule(cpu, switches, woken, table, cpu in lost)

    def _switches(
        self, cpu: int, slices: Batch, rows: Ints | None, names: list[bytes], until: int
    ) -> tuple[Switches, bool]:
        """Give the switches of one CPU, and whether its very first is among them."""
        idle = len(names) - 1
        before = self._cpus.get(cpu)
        if rows is None:
            rows = np.empty(0, np.int64)
        ts, end = slices.ts[rows], slices.end[rows]
        left_at = np.concatenate([[before.end if before else STILL_RUNNING], end[:-1]])[: len(ts)]
        left_as = np.concatenate([[before.state if before else 0], slices.state[rows][:-1]])[: len(ts)]
        gap = left_at < ts
        at = np.arange(len(ts)) + np.cumsum(gap)
        size = len(ts) + int(gap.sum())
        flush = self._end_of(before, slices, rows)
        trailing = flush is not None and flush < until
        out = Switches(*(np.zeros(size + trailing, np.int64) for _ in range(5)))
        out.ts[at], out.ts[at[gap] - 1] = ts, left_at[gap]
        out.prev_state[at], out.prev_state[at[gap] - 1] = np.where(gap, 0, left_as), left_as[gap]
        out.next_tid[at] = slices.tid[rows]
        out.next_prio[:] = DEFAULT_PRIO
        out.next_prio[at] = slices.prio[rows]
        out.next_name[:] = idle
        out.next_name[at] = slices.name[rows]
        state = int(slices.state[rows[-1]]) if len(rows) else before.state if before else 0
        if trailing and flush is not None:
            out.ts[-1], out.prev_state[-1] = flush, state
        self._remember(cpu, before, slices, rows, names, trailing)
        return out, before is None and size > 0

    @staticmethod
    def _end_of(before: _Cpu | None, slices: Batch, rows: Ints) -> int | None:
        """When the last slice of the CPU ends; None when there is none or the CPU is idle already."""
        if len(rows):
            return int(slices.end[rows[-1]])
        return before.end if before and before.tid else None

    def _remember(
        self, cpu: int, before: _Cpu | None, slices: Batch, rows: Ints, names: list[bytes], idle: bool
    ) -> None:
        if len(rows):
            k = rows[-1]
            last = _Cpu(
                int(slices.end[k]), int(slices.state[k]), int(slices.tid[k]), int(slices.prio[k]),
                names[slices.name[k]],
            )  # fmt: skip
        elif before:
            last = before
        else:
            return
        if idle:
            # Idle ends when the next slice begins, so that no gap is seen before it.
            last = _Cpu(STILL_RUNNING, 0, 0, DEFAULT_PRIO, b"")
        self._cpus[cpu] = last

    def _begin(self, cpu: int, switches: Switches, names: list[bytes]) -> None:
        """Write the first switch of a CPU; nobody knows what ran before it, so idle leaves."""
        name = names[int(switches.next_name[0])]
        following = (int(switches.next_tid[0]), int(switches.next_prio[0]), name)
        self._writer.first_switch(cpu, int(switches.ts[0]), (0, DEFAULT_PRIO, 0, names[-1]), following)

    def _full_first(
        self,
        cpu: int,
        wakings: Wakings,
        switches: Switches,
        started: bool,
        before: _Cpu | None,
        names: list[bytes],
    ) -> Wakings:
        """Write in full the wakings whose waker the compact form would get wrong; give the others.

        A compact waking's waker is the task that the trace processor believes to run on that CPU, after
        all switches of the same time.  That fails before the first switch, and for a waking that stands
        before a switch of the same time.
        """
        last = np.searchsorted(switches.ts, wakings.ts, side="right") - 1
        running = np.where(
            last >= 0,
            switches.next_tid[np.maximum(last, 0)] if len(switches.ts) else 0,
            NOBODY_KNOWN if before is None else before.tid,
        )
        wrong = running != np.where(wakings.waker == NOBODY_KNOWN, running, wakings.waker)
        wrong |= running == NOBODY_KNOWN
        if started:
            # The first switch is written in full and goes before compact records of the same time.
            wrong |= wakings.ts <= switches.ts[0]
        if len(switches.ts):
            tie = (last >= 0) & (switches.ts[np.maximum(last, 0)] == wakings.ts)
            wrong |= tie & (switches.next_tid[np.maximum(last, 0)] == wakings.tid)
        if wrong.any():
            full = _pick(wakings, wrong)
            full.waker = np.maximum(full.waker, 0)
            self._writer.full_wakings(cpu, full, names)
            return _pick(wakings, ~wrong)
        return wakings


def _pick(wakings: Wakings, rows: Ints) -> Wakings:
    return Wakings(
        wakings.ts[rows], wakings.tid[rows], wakings.target_cpu[rows], wakings.prio[rows],
        wakings.name[rows], wakings.flags[rows], wakings.waker[rows],
    )  # fmt: skip


def _tail(switches: Switches) -> Switches:
    return Switches(
        switches.ts[1:], switches.prev_state[1:], switches.next_tid[1:], switches.next_prio[1:],
        switches.next_name[1:],
    )  # fmt: skip


def _no_wakings() -> Wakings:
    return Wakings(*(np.empty(0, np.int64) for _ in range(7)))
