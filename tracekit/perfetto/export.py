"""Writes a trace, and replays of it, as one Perfetto trace file.

The recorded schedule is the file's own machine; each replay is another machine, so that the UI draws
recorded and predicted schedules one above the other and their threads stay apart.  Run-queue lengths
and changing priorities are counters.

Memory: tables are taken in batches of `BATCH` rows, so that the writer adds some ten megabytes to
what the tables occupy, whatever their length.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import polars as pl

from tracekit.export.files import replacing
from tracekit.export.tables import Tables
from tracekit.perfetto.columns import by_cpu, dictionary, integers
from tracekit.perfetto.packets import PacketWriter, Wakings
from tracekit.perfetto.records import record_kinds, write_records
from tracekit.perfetto.schedule import (
    DEFAULT_PRIO,
    HARDIRQ,
    IRQ_WAKEUP,
    LINUX_HARDIRQ,
    LINUX_SOFTIRQ,
    NOBODY_KNOWN,
    SOFTIRQ,
    STILL_RUNNING,
    Scheduler,
    slices_batch,
)
from tracekit.perfetto.threads import Threads, number_threads
from tracekit.perfetto.wire import Ints

BATCH = 200_000
FIRST_MACHINE = 1001
NO_CPU = "CPU unknown"


@dataclass
class Exported:
    """What was written.

    Attributes
    ----------
    bytes : int
        Size of the file.
    slices, wakings, records, counters : int
        Slices, wakeups, other records and counter values, all machines together.
    """

    bytes: int = 0
    slices: int = 0
    wakings: int = 0
    records: int = 0
    counters: int = 0


def write_perfetto(
    trace: Tables,
    path: str | os.PathLike[str],
    replays: Sequence[tuple[str, Tables]] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Exported:
    """Write a trace, and replays of it, as one Perfetto trace file.

    Parameters
    ----------
    trace
        The trace.
    path
        The file. It appears, or is replaced, only when all of it is written.
    replays
        Replays with their labels. Each becomes a machine of its own.
    progress
        Called with slices written and slices in all.

    Returns
    -------
    Exported
        What was written.
    """
    with replacing(path) as file:
        return write_perfetto_to(file, trace, replays, progress)


def write_perfetto_to(
    file: BinaryIO,
    trace: Tables,
    replays: Sequence[tuple[str, Tables]] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Exported:
    """Write a trace, and replays of it, to an open binary file; see `write_perfetto`."""
    done = Exported()
    total = sum(len(t.slices) for t in (trace, *(replay for _, replay in replays)))
    machines: list[tuple[str, Tables, int | None]] = [("recorded", trace, None)]
    machines += [(label, replay, FIRST_MACHINE + k) for k, (label, replay) in enumerate(replays)]
    for k, (label, tables, machine) in enumerate(machines):
        writer = PacketWriter(file, sequence=1 + k, machine=machine)
        _Machine(tables, label, writer, done, lambda: progress and progress(done.slices, total)).write()
        done.bytes += writer.bytes_written
    # Counters of all machines stand together, so that recorded and predicted queues can be compared.
    writer = PacketWriter(file, sequence=1 + len(machines))
    shown = [
        (label if machine is None else f"machine {k}: {label}", tables)
        for k, (label, tables, machine) in enumerate(machines)
    ]
    done.counters += _run_queues(writer, [(label, tables.runqueue) for label, tables in shown])
    done.counters += _priorities(writer, shown)
    done.records += _markers(writer, trace.events)
    done.bytes += writer.bytes_written
    return done


def kernel_release(metadata: Mapping[str, str]) -> str:
    """Give a release whose task states have the numbers that tracekit writes: Linux 4.14 or later."""
    kernel = metadata.get("kernel", "")
    found = re.match(r"(\d+)\.(\d+)", kernel)
    if found and metadata.get("os", "linux") == "linux" and (int(found[1]), int(found[2])) >= (4, 14):
        return kernel
    return "4.14.0-tracekit"


class _Machine:
    """Writes one schedule: names, switches, wakings and other records."""

    def __init__(
        self,
        tables: Tables,
        label: str,
        writer: PacketWriter,
        done: Exported,
        tick: Callable[[], object],
    ) -> None:
        self._writer, self._done, self._tick, self._label = writer, done, tick, label
        self._metadata = tables.metadata
        self._slices = tables.slices
        self._events = tables.events
        self._losses = tables.losses
        self._threads = number_threads(tables.tasks)
        linux = self._metadata.get("os", "linux") == "linux"
        self._kinds = record_kinds(linux, self._threads.renumbered)
        self._wake_kinds = [] if self._threads.renumbered else _wake_kinds(self._events)

    def write(self) -> None:
        """Write the packets of this machine."""
        about = self._metadata.get("os", ""), self._metadata.get("kernel", "")
        version = f"tracekit: {self._label}; {' '.join(w for w in about if w)}".strip("; ")
        cpus = int(self._metadata.get("nr_cpus", "0") or 0)
        release = kernel_release(self._metadata)
        self._writer.system_info(release, version, self._metadata.get("arch", ""), cpus, self._label)
        self._names(self._threads)
        if not self._threads.renumbered:
            self._renamed(self._threads)
        scheduler = Scheduler(self._writer)
        slices = self._slices
        if slices.get_column("cpu").null_count():
            slices = slices.filter(pl.col("cpu").is_not_null())
        edges = list(range(0, max(1, len(slices)), BATCH))
        times = slices.get_column("ts_ns")
        event_times = self._events.get_column("ts_ns")
        at = 0
        for k, start in enumerate(edges):
            rows = slices.slice(start, BATCH)
            until = int(times[edges[k + 1]]) if k + 1 < len(edges) else STILL_RUNNING
            end = int(event_times.search_sorted(until, side="left")) if until != STILL_RUNNING else None
            events = self._events[at:end]
            at = len(self._events) if end is None else end
            self._batch(scheduler, rows, events, until)
        self._uncounted()

    def _batch(self, scheduler: Scheduler, rows: pl.DataFrame, events: pl.DataFrame, until: int) -> None:
        batch, names = slices_batch(rows, self._threads.tid)
        if not self._wake_kinds:
            self._done.wakings += self._wakings_of_slices(rows)
        wakings: dict[int, Wakings] = {}
        for first in range(0, len(events), BATCH):
            part = events.slice(first, BATCH)
            self._done.records += write_records(self._writer, part, self._kinds)
        if self._wake_kinds:
            wakings = self._wakings(events, names)
        lost = self._lost(int(batch.ts[0]) if len(batch.ts) else 0, until)
        scheduler.batch(batch, names, wakings, until, lost)
        self._done.slices += len(rows)
        self._tick()

    def _lost(self, since: int, until: int) -> set[int]:
        at = pl.coalesce("ts_to_ns", "ts_from_ns", pl.lit(since))
        cpus = self._losses.filter((at >= since) & (at < until)).get_column("cpu")
        if cpus.null_count():
            return set(self._slices.get_column("cpu").drop_nulls().unique().to_list())
        return set(cpus.unique().to_list())

    def _names(self, threads: Threads) -> None:
        """Write the names of the tasks that are there when the trace begins."""
        known = threads.table.filter(pl.col("pid").is_not_null())
        old = known.filter(pl.col("start_ts_ns").is_null()).unique("tid", keep="first", maintain_order=True)
        if not len(old):
            return
        leaders = old.sort((pl.col("tid") != pl.col("pid")), maintain_order=True)
        processes = leaders.unique("pid", keep="first", maintain_order=True)

        def names(frame: pl.DataFrame) -> list[bytes]:
            return [name.encode() for name in frame.get_column("comm").fill_null("").to_list()]

        for part in processes.iter_slices(BATCH):
            empty = np.empty(0, np.int64)
            self._writer.process_tree((integers(part, "pid"), names(part)), (empty, empty, []))
        for part in old.iter_slices(BATCH):
            ids = integers(part, "tid"), integers(part, "pid")
            self._writer.process_tree((np.empty(0, np.int64), []), (*ids, names(part)))

    def _renamed(self, threads: Threads) -> None:
        """Write the last names of tasks that begin in the trace, where it is not the name of their fork."""
        # A moment after the fork, which makes the thread. With another parent Perfetto would take it for a
        # new process of the same number.
        young = threads.table.filter(
            pl.col("start_ts_ns").is_not_null() & (pl.col("comm") != pl.col("comm_first"))
        ).with_columns(pl.col("start_ts_ns") + 1, pl.coalesce("pid", "tid"))
        for part in young.iter_slices(BATCH):
            words, codes = dictionary(part.get_column("comm"))
            ids = integers(part, "pid"), integers(part, "ppid")
            self._writer.names(integers(part, "start_ts_ns"), *ids, words, codes)

    def _wakings(self, events: pl.DataFrame, names: list[bytes]) -> dict[int, Wakings]:
        """Give the wakeups among the events, by the CPU that made them."""
        kind = pl.col("kind").cast(pl.String)
        made = events.filter(kind.is_in(self._wake_kinds) & pl.col("tid").is_not_null())
        # Linux prints success=0 for wakeups that found the task awake.
        made = made.filter((pl.col("value").fill_null(1) != 0) | (kind != "wakeup"))
        self._done.wakings += len(made)
        if not len(made):
            return {}
        first = len(names)
        words, codes = dictionary(made.get_column("comm"))
        names.extend(words)
        cpu = integers(made.with_columns(pl.coalesce("cpu", "target_cpu")), "cpu")
        bits = integers(made, "irq_flags")
        flags = np.where(bits & HARDIRQ, LINUX_HARDIRQ, 0) | np.where(bits & SOFTIRQ, LINUX_SOFTIRQ, 0)
        columns = Wakings(
            ts=integers(made, "ts_ns"),
            tid=integers(made, "tid"),
            target_cpu=integers(made.with_columns(pl.coalesce("target_cpu", "cpu")), "target_cpu"),
            prio=integers(made, "prio", DEFAULT_PRIO),
            name=codes + first,
            flags=flags,
            waker=integers(made, "ctx_tid", NOBODY_KNOWN),
        )
        return {key: Wakings(*(column[at] for column in vars(columns).values())) for key, at in by_cpu(cpu)}

    def _wakings_of_slices(self, rows: pl.DataFrame) -> int:
        """Write the wakeups that slices record; for traces without wakeup records of their own."""
        woken = rows.filter(pl.col("wake_ts_ns").is_not_null())
        names, codes = dictionary(woken.get_column("comm"))
        waker = integers(woken, "waker_utid", 0)
        known = woken.get_column("waker_utid").is_not_null().to_numpy()
        irq = (integers(woken, "flags") & IRQ_WAKEUP) != 0
        columns = Wakings(
            ts=integers(woken, "wake_ts_ns"),
            tid=self._threads.tid[integers(woken, "utid")],
            target_cpu=integers(woken, "cpu"),
            prio=integers(woken, "prio", DEFAULT_PRIO),
            name=codes,
            flags=np.where(irq, LINUX_HARDIRQ, 0),
            waker=np.where(known, self._threads.tid[waker], 0) if len(woken) else waker,
        )
        cpu = integers(woken.with_columns(pl.coalesce("waker_cpu", "cpu")), "waker_cpu")
        for key, at in by_cpu(cpu):
            part = Wakings(*(column[at] for column in vars(columns).values()))
            self._writer.full_wakings(key, part, names)
        return len(woken)

    def _uncounted(self) -> None:
        """Write slices whose CPU nobody knows as intervals, one track a thread."""
        rows = self._slices.filter(pl.col("cpu").is_null())
        if not len(rows):
            return
        group = self._writer.group(f"Running, {NO_CPU}: {self._label}")
        first = rows.unique("utid", keep="first", maintain_order=True)
        tracks: Ints = np.zeros(len(self._threads.tid), np.int64)
        for utid, tid, comm in first.select("utid", "tid", "comm").iter_rows():
            tracks[utid] = self._writer.slice_track(f"{comm or ''} {tid}".strip(), group)
        for part in rows.iter_slices(BATCH):
            words, codes = dictionary(part.get_column("comm"))
            times = integers(part, "ts_ns"), integers(part, "dur_ns")
            self._writer.intervals(tracks[integers(part, "utid")], *times, words, codes)
        self._done.slices += len(rows)


def _wake_kinds(events: pl.DataFrame) -> list[str]:
    """Which kinds to write as wakings: the earliest sign of a wakeup that the trace holds."""
    present = set(events.get_column("kind").unique().cast(pl.String).to_list())
    kinds = ["waking"] if "waking" in present else ["wakeup"] if "wakeup" in present else []
    # A fork makes its child runnable in Perfetto; without one the first wakeup has to.
    if kinds and "wakeup_new" in present and "fork" not in present:
        kinds.append("wakeup_new")
    return kinds


def _run_queues(writer: PacketWriter, machines: Sequence[tuple[str, pl.DataFrame]]) -> int:
    """Write the length of each CPU's run queue, the running task included; a CPU's queues stand together."""
    cpus = sorted({cpu for _, queues in machines for cpu in _queue_cpus(queues)})
    if not cpus:
        return 0
    group = writer.group("Run queues")
    tracks: Ints = np.zeros((len(machines), len(cpus)), np.int64)
    for column, cpu in enumerate(cpus):
        name = f"{NO_CPU if cpu < 0 else f'CPU {cpu}'} run queue"
        for row, (label, queues) in enumerate(machines):
            if cpu in _queue_cpus(queues):
                title = name if len(machines) == 1 else f"{name}, {label}"
                rank = column * len(machines) + row
                tracks[row, column] = writer.counter(title, "tasks", group, rank)
    for row, (_, queues) in enumerate(machines):
        for part in queues.iter_slices(BATCH):
            track = tracks[row, np.searchsorted(cpus, integers(part, "cpu", -1))]
            length = integers(part, "nr_running") + integers(part, "nr_waiting")
            writer.samples(track, integers(part, "ts_ns"), length)
    return sum(len(queues) for _, queues in machines)


def _queue_cpus(queues: pl.DataFrame) -> set[int]:
    """Give the CPUs that have a queue; -1 for tasks that are runnable on an unknown one."""
    return set(queues.get_column("cpu").unique().fill_null(-1).to_list())


def _priorities(writer: PacketWriter, machines: Sequence[tuple[str, Tables]]) -> int:
    """Write the priority of each task whose priority changes, at the slices where it does."""
    changing = pl.concat(
        tables.tasks.filter((pl.col("prio_min") != pl.col("prio_max")) & ~pl.col("is_idle")).select(
            "utid", "tid", pl.col("comm").cast(pl.String).fill_null(""), machine=pl.lit(row)
        )
        for row, (_, tables) in enumerate(machines)
    ).sort("comm", "tid", "machine")
    if not len(changing):
        return 0
    group = writer.group("Priorities")
    tracks: list[dict[int, int]] = [{} for _ in machines]
    for rank, (utid, tid, comm, row) in enumerate(changing.iter_rows()):
        label, tables = machines[row]
        title = f"{comm} {tid} priority".strip() + (f", {label}" if len(machines) > 1 else "")
        scale = tables.metadata.get("prio.scale", "")
        tracks[row][utid] = writer.counter(title, scale, group, rank)
    return sum(_priority_steps(writer, tables, tracks[row]) for row, (_, tables) in enumerate(machines))


def _priority_steps(writer: PacketWriter, tables: Tables, tracks: dict[int, int]) -> int:
    wanted = tables.slices.select("ts_ns", "utid", "prio").drop_nulls()
    wanted = wanted.filter(pl.col("utid").is_in(list(tracks)))
    changed = wanted.filter((pl.col("prio") != pl.col("prio").shift(1).over("utid")).fill_null(True))
    for part in changed.iter_slices(BATCH):
        track = part.get_column("utid").cast(pl.Int64).replace_strict(tracks, return_dtype=pl.Int64)
        writer.samples(track.to_numpy(), integers(part, "ts_ns"), integers(part, "prio"))
    return len(changed)


def _markers(writer: PacketWriter, events: pl.DataFrame) -> int:
    """Write texts that programs wrote into the trace."""
    marks = events.filter(pl.col("kind").cast(pl.String) == "marker").select("ts_ns", "name")
    if not len(marks):
        return 0
    track = writer.slice_track("Markers")
    for part in marks.iter_slices(BATCH):
        words, codes = dictionary(part.get_column("name"))
        ts = integers(part, "ts_ns")
        writer.instants(np.full(len(ts), track, np.int64), ts, words, codes)
    return len(marks)
