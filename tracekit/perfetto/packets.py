"""Writes Perfetto trace packets: scheduling bundles, process trees, counter tracks.

Field numbers are those of Perfetto's `protos/perfetto/trace/*.proto`.  What the trace processor
needs beyond the schema, found by trying:

* the kernel release in `SystemInfo`, or task states are read with an old kernel's table;
* the first switch of a CPU in full, because the compact form does not say who leaves;
* compact wakings only after that switch (earlier ones are dropped);
* at equal times it takes a bundle's compact switches before its compact wakings, and bundles in
  the order of the file;
* one packet with `sequence_flags` = 1 before the first track event of a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from tracekit.perfetto.wire import (
    Cells,
    Ints,
    bytes_field,
    constant,
    int_field,
    ints,
    message,
    only,
    packed,
    rows,
    texts,
)

# TracePacket
PROCESS_TREE, TIMESTAMP, SEQUENCE, TRACK_EVENT, SEQUENCE_FLAGS = 2, 8, 10, 11, 13
FTRACE_EVENTS, SYSTEM_INFO, TRACK_DESCRIPTOR, MACHINE = 1, 45, 60, 98
# FtraceEvent
SWITCH, WAKING = 4, 20
# TrackEvent.type
SLICE_BEGIN, SLICE_END, INSTANT, COUNTER = 1, 2, 3, 4


@dataclass
class Switches:
    """Switches of one CPU in time order; names are indexes into a dictionary."""

    ts: Ints
    prev_state: Ints
    next_tid: Ints
    next_prio: Ints
    next_name: Ints


@dataclass
class Wakings:
    """Wakeups made on one CPU in time order; `waker` is used only by the full form."""

    ts: Ints
    tid: Ints
    target_cpu: Ints
    prio: Ints
    name: Ints
    flags: Ints
    waker: Ints


class PacketWriter:
    """Writes packets of one machine to a binary file.

    Parameters
    ----------
    file
        Where the bytes go.
    sequence
        Packet sequence; each writer of one file needs its own.
    machine
        None for the machine that the trace belongs to, else a number that stands for another
        machine, with its own CPUs and threads.
    """

    def __init__(self, file: BinaryIO, sequence: int = 1, machine: int | None = None) -> None:
        self._file = file
        self._tail = int_field(SEQUENCE, sequence)
        if machine is not None:
            self._tail += int_field(MACHINE, machine)
        self._uuid = sequence << 32
        self._cleared = False
        self.bytes_written = 0

    def packet(self, body: bytes) -> None:
        """Write one packet with this encoded content."""
        data = bytes_field(1, body + self._tail)
        self._file.write(data)
        self.bytes_written += len(data)

    def packets(self, cells: list[Cells]) -> None:
        """Write one packet per row."""
        if not len(cells[0].length):
            return
        data = rows(message(1, [*cells, constant(self._tail, len(cells[0].length))]))
        self._file.write(data)
        self.bytes_written += len(data)

    def system_info(
        self, release: str, version: str = "", arch: str = "", cpus: int = 0, name: str = ""
    ) -> None:
        """Say which kernel's state numbers the switches use, and what recorded the trace."""
        uts = bytes_field(1, "Linux") + bytes_field(3, release)
        if version:
            uts += bytes_field(2, version)
        if arch:
            uts += bytes_field(4, arch)
        info = bytes_field(1, uts)
        if cpus:
            info += int_field(8, cpus)
        if name:
            info += bytes_field(17, name)
        self.packet(bytes_field(SYSTEM_INFO, info))

    def process_tree(
        self,
        processes: tuple[Ints, Sequence[bytes]],
        threads: tuple[Ints, Ints, Sequence[bytes]],
    ) -> None:
        """Write names: processes as (pid, name), threads as (tid, pid, name)."""
        body = b""
        if len(processes[0]):
            pids, names = processes
            codes = np.arange(len(pids))
            body += rows(message(1, [*ints(1, pids), *ints(2, pids * 0), *texts(3, names, codes)]))
        if len(threads[0]):
            tids, tgids, names = threads
            codes = np.arange(len(tids))
            body += rows(message(2, [*ints(1, tids), *texts(2, names, codes), *ints(3, tgids)]))
        self.packet(bytes_field(PROCESS_TREE, body))

    def names(self, ts: Ints, pids: Ints, parents: Ints, words: Sequence[bytes], codes: Ints) -> None:
        """Write the name that each process has from some time on."""
        process = message(1, [*ints(1, pids), *ints(2, parents), *texts(3, words, codes)])
        self.packets([*ints(TIMESTAMP, ts), *message(PROCESS_TREE, process)])

    # ---- scheduling

    def first_switch(
        self, cpu: int, ts: int, prev: tuple[int, int, int, bytes], following: tuple[int, int, bytes]
    ) -> None:
        """Write a CPU's first switch in full: (tid, prio, state, name) leaves, (tid, prio, name) enters."""
        tid, prio, state, name = prev
        event = bytes_field(1, name) + int_field(2, tid) + int_field(3, prio) + int_field(4, state)
        tid2, prio2, name2 = following
        event += bytes_field(5, name2) + int_field(6, tid2) + int_field(7, prio2)
        record = int_field(1, ts) + int_field(2, tid) + bytes_field(SWITCH, event)
        self.bundle(cpu, bytes_field(2, record))

    def bundle(self, cpu: int, body: bytes, lost: bool = False) -> None:
        """Write one CPU's bundle; `lost` says that records before it were lost."""
        lost_field = int_field(3, 1) if lost else b""
        self.packet(bytes_field(FTRACE_EVENTS, int_field(1, cpu) + lost_field + body))

    def schedule(
        self, cpu: int, switches: Switches, wakings: Wakings, names: Sequence[bytes], lost: bool = False
    ) -> None:
        """Write switches and wakings of one CPU in the compact form."""
        used, local = np.unique(np.concatenate([switches.next_name, wakings.name]), return_inverse=True)
        cut = len(switches.ts)
        body = packed(1, np.diff(switches.ts, prepend=0))
        body += packed(2, switches.prev_state) + packed(3, switches.next_tid)
        body += packed(4, switches.next_prio)
        body += b"".join(bytes_field(5, names[k]) for k in used)
        body += packed(6, local[:cut]) + packed(7, np.diff(wakings.ts, prepend=0))
        body += packed(8, wakings.tid) + packed(9, wakings.target_cpu) + packed(10, wakings.prio)
        body += packed(11, local[cut:]) + packed(12, wakings.flags)
        self.bundle(cpu, bytes_field(4, body), lost)

    def full_wakings(self, cpu: int, wakings: Wakings, names: Sequence[bytes]) -> None:
        """Write wakings in full, which name their waker."""
        count = len(wakings.ts)
        event = [
            *texts(1, names, wakings.name),
            *ints(2, wakings.tid),
            *ints(3, wakings.prio),
            constant(int_field(4, 1), count),
            *ints(5, wakings.target_cpu),
        ]
        self.records(cpu, wakings.ts, wakings.waker, WAKING, event, wakings.flags)

    def records(
        self, cpu: int, ts: Ints, tid: Ints, number: int, event: list[Cells], flags: Ints | None = None
    ) -> None:
        """Write one ftrace record per row: `tid` ran when `event` (field `number`) happened."""
        head = [*ints(1, ts), *ints(2, tid)]
        if flags is not None:
            # Some trace processors take the field for an event of its own: only where it says something.
            head += only(flags != 0, ints(5, flags))
        self.bundle(cpu, rows(message(2, [*head, *message(number, event)])))

    # ---- tracks

    def _track(self, body: bytes) -> int:
        self._uuid += 1
        flags = b"" if self._cleared else int_field(SEQUENCE_FLAGS, 1)
        self._cleared = True
        self.packet(flags + bytes_field(TRACK_DESCRIPTOR, int_field(1, self._uuid) + body))
        return self._uuid

    def group(self, name: str, rank: int = 0) -> int:
        """Begin a group of tracks that keep their order; gives its key."""
        return self._track(bytes_field(2, name) + int_field(11, 3) + int_field(12, rank))

    def thread(self, pid: int, tid: int, name: str) -> int:
        """Begin the tracks of a thread; gives their key."""
        body = int_field(1, pid) + int_field(2, tid) + bytes_field(5, name)
        return self._track(bytes_field(4, body))

    def counter(self, name: str, unit: str, parent: int = 0, rank: int = 0) -> int:
        """Begin a counter; gives its key."""
        body = bytes_field(2, name) + int_field(12, rank) + bytes_field(8, bytes_field(6, unit))
        return self._track(body + (int_field(5, parent) if parent else b""))

    def slice_track(self, name: str, parent: int = 0, rank: int = 0) -> int:
        """Begin a track of named intervals; gives its key."""
        body = bytes_field(2, name) + int_field(12, rank)
        return self._track(body + (int_field(5, parent) if parent else b""))

    def samples(self, tracks: Ints, ts: Ints, values: Ints) -> None:
        """Write counter values: one row is a track key, a time, a value."""
        event = [constant(int_field(9, COUNTER), len(ts)), *ints(11, tracks), *ints(30, values)]
        self.packets([*ints(TIMESTAMP, ts), *message(TRACK_EVENT, event)])

    def intervals(self, tracks: Ints, ts: Ints, dur: Ints, names: Sequence[bytes], codes: Ints) -> None:
        """Write named intervals, which must not overlap on one track."""
        begin = [
            constant(int_field(9, SLICE_BEGIN), len(ts)),
            *ints(11, tracks),
            *texts(23, names, codes),
        ]
        self.packets([*ints(TIMESTAMP, ts), *message(TRACK_EVENT, begin)])
        end = [constant(int_field(9, SLICE_END), len(ts)), *ints(11, tracks)]
        self.packets([*ints(TIMESTAMP, ts + dur), *message(TRACK_EVENT, end)])

    def instants(self, tracks: Ints, ts: Ints, names: Sequence[bytes], codes: Ints) -> None:
        """Write named moments."""
        event = [constant(int_field(9, INSTANT), len(ts)), *ints(11, tracks), *texts(23, names, codes)]
        self.packets([*ints(TIMESTAMP, ts), *message(TRACK_EVENT, event)])
