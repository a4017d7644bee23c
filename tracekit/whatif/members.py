"""Who is in which group of those that share CPU time as one, as far as the machine beside a trace says it.

The machine's description is made before the recording, or while it runs. On a machine on which
processes come and go it lacks those that began since: they are in the group of whoever made them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.analysis import _common as c
from tracekit.units import format_names, format_ns
from tracekit.whatif.scenario import same_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tracekit.machine import Machine
    from tracekit.trace import Trace

__all__ = ["Ancestry", "Membership", "apart", "grouped", "membership", "models_groups", "unlisted"]

#: Share of the CPU time from which on tasks in an unknown group are worth a sentence: a hundredth,
#: half of what `replay/tolerances.toml` allows a CPU share to be off.
WORTH = 0.01
#: Names that a sentence gives.
NAMED = 3
#: Clocks of Linux that count from the boot (Documentation/trace/ftrace.rst, trace_clock; perf's own is
#: the scheduler's, which is ftrace's ``local``).
BOOT_CLOCKS = ("local", "global", "perf", "mono", "mono_raw", "boot", "uptime")
#: A file that was written so long before or after a recording, in ns, is not of the same minute's work:
#: what it says of tasks that come and go may be of others.
APART_NS = 60_000_000_000


#: Policies that schedule by groups.
_WITH_GROUPS = ("cfs", "eevdf")
#: Forms of cfs that do not.
_WITHOUT = ("2.6.27", "2.6.29", "2.6.32")


def models_groups(policy: object) -> bool:
    """Whether `policy`, as a replay takes it, schedules by groups."""
    if not isinstance(policy, str):
        return False
    name, _, parameters = policy.partition(":")
    form = dict(p.partition("=")[::2] for p in parameters.split(",")).get("form")
    return name in _WITH_GROUPS and form not in _WITHOUT


@dataclass(frozen=True)
class Membership:
    """The group of each thread.

    Attributes
    ----------
    group : dict of int to str
        Thread and the path of its group, without slashes around it; empty for the root group.
    alike : set of int
        Threads of which nothing says it: they are taken to be where most tasks of their name are.
    nowhere : set of int
        Threads of which not even a name says it: they are in the root group.
    """

    group: dict[int, str]
    alike: set[int]
    nowhere: set[int]


def membership(trace: Trace, machine: Machine, groups: Collection[str]) -> Membership:
    """Say in which group each thread of a trace is.

    In this order: as the machine lists it under the same name; as its process; as its parent, which
    a fork in the trace shows, or perf's list of the tasks that were there when it began; as the
    machine lists it under another name, which it had before an exec; as most listed tasks of its
    name.

    Parameters
    ----------
    trace
        The trace.
    machine
        What lies beside it.
    groups
        Paths of the groups with the CPU controller; a task in another one counts in the nearest
        above it.

    Returns
    -------
    Membership
        Of each thread. One that called setsid since, or that was moved, is in the wrong group: no
        record says so.
    """
    names: dict[int, set[str]] = {}
    for tid, comm in trace.tasks.select("tid", pl.col("comm").cast(pl.String)).iter_rows():
        names.setdefault(tid, set()).add(comm or "")
    stated: dict[int, str] = {}
    before: dict[int, str] = {}
    called: dict[str, Counter[str]] = {}
    for tid, comm, path, session in machine.tasks.select("tid", "comm", "cgroup", "autogroup").iter_rows():
        found = path or "/"
        while found not in groups and found not in ("/", ""):
            found = found.rpartition("/")[0]
        group = found.strip("/") or (session or "").strip("/")
        if comm is not None:
            called.setdefault(_stem(comm), Counter())[group] += 1
        same = tid not in names or comm is None or any(same_name(comm, n) for n in names[tid])
        (stated if same else before)[tid] = group
    ancestry = Ancestry.of(trace)
    made = Membership({}, set(), set())
    for tid, own in names.items():
        at = ancestry.nearest(tid, stated)
        if at is None:
            at = ancestry.nearest(tid, before | stated)
        if at is None:
            likely = sum((called.get(_stem(n), Counter()) for n in own if n), Counter())
            at = next(iter(likely.most_common(1)), ("", 0))[0]
            (made.alike if likely else made.nowhere).add(tid)
        made.group[tid] = at
    return made


def _stem(comm: str) -> str:
    """A name without the number at its end, as short as a trace keeps it."""
    return comm[:15].rstrip("0123456789").rstrip("-_/:.#") or comm[:15]


@dataclass(frozen=True)
class Ancestry:
    """Which process each thread is of, and who forked whom.

    Attributes
    ----------
    process : dict of int to int or None
        Thread and its process; None where nothing says it.
    parents : dict of int to int
        Thread, and who forked it: as a fork in the trace shows, or perf's list of the tasks that were
        there when it began.
    """

    process: dict[int, int | None]
    parents: dict[int, int]

    @classmethod
    def of(cls, trace: Trace) -> Ancestry:
        """What a trace shows."""
        events = trace.columns("events", "kind", "tid", "ctx_tid", "value")
        kind = pl.col("kind").cast(pl.String)
        forks = events.filter(kind == "fork").select("tid", "ctx_tid").drop_nulls()
        there = events.filter(kind == "comm").select("tid", "value").drop_nulls()
        process = dict(trace.tasks.select("tid", "pid").iter_rows())
        return cls(process, {**dict(there.iter_rows()), **dict(forks.iter_rows())})

    def process_of(self, tid: int) -> int:
        """The process of a thread; itself where nothing says it."""
        return self.process.get(tid) or tid

    def parent_of(self, process: int) -> int | None:
        """The process that forked another; None where nothing says it."""
        at = self.parents.get(process)
        above = self.process_of(at) if at else None
        return None if above == process else above

    def nearest(self, tid: int, stated: Mapping[int, str]) -> str | None:
        """The group of a thread, of its process, or of the nearest parent that has one."""
        seen: set[int] = set()
        at: int | None = tid
        while at is not None and at not in seen:
            seen.add(at)
            leader = self.process.get(at)
            for who in (at, leader):
                if who is not None and who in stated:
                    return stated[who]
            # Of a thread that was there before, the process; of a process, who forked it.
            at = self.parents.get(at) if at in self.parents or leader in seen else leader
        return None


def apart(trace: Trace) -> str | None:
    """Say that machine.toml was written at another time than the trace was recorded.

    Parameters
    ----------
    trace
        The recorded trace.

    Returns
    -------
    str or None
        None where no machine lies beside the trace, its time of writing is within a minute of the
        recording, or the two clocks cannot be compared.
    """
    machine = trace.machine
    clock = trace.metadata.get("clock.name")
    if machine is None or machine.uptime_s is None or clock not in BOOT_CLOCKS:
        return None
    start, end = trace.start_ns, trace.end_ns
    if start is None or end is None or trace.metadata.get("clock.unit", "ns") != "ns":
        return None
    written = round(machine.uptime_s * 1e9)
    gap, when = (start - written, "before") if written < start else (written - end, "after")
    if gap <= APART_NS:
        return None
    return (
        f"not known: whether machine.toml is of this recording: it was written {format_ns(gap)} {when} it, by the time "
        "since boot. Groups, affinities and scheduling policies are those of that moment. Write it again with the "
        "recording (`tracekit recipes machine`)"
    )


def unlisted(trace: Trace) -> str | None:
    """Say which tasks' groups are guessed, where that matters.

    Parameters
    ----------
    trace
        The recorded trace.

    Returns
    -------
    str or None
        None where no machine lies beside the trace, it names no groups, or what is not known of
        has less than a hundredth of the CPU time (idle left out).
    """
    machine = trace.machine
    if machine is None or (
        machine.tasks["autogroup"].null_count() == machine.tasks.height and not grouped(machine)
    ):
        return None
    found = membership(trace, machine, grouped(machine))
    time = (
        trace.slices.select("tid", c.group_of("comm"), "dur_ns")
        .group_by("tid")
        .agg(pl.col("group").last().alias("name"), pl.col("dur_ns").sum())
    )
    total = int(time["dur_ns"].sum()) or 1
    said = []
    for tids, where in (
        (found.alike, "taken to be in the group of most tasks of their name"),
        (found.nowhere, "left in the root group"),
    ):
        of = time.filter(pl.col("tid").is_in(list(tids)))
        share = int(of["dur_ns"].sum()) / total
        if share < WORTH:
            continue
        by = of.group_by("name").agg(pl.col("dur_ns").sum()).sort("dur_ns", "name", descending=[True, False])
        most = [n for n in by["name"].to_list() if n]
        names = format_names(most, NAMED)
        tasks = "1 task" if of.height == 1 else f"{of.height} tasks"
        said.append(f"{tasks} with {max(1, round(100 * share))} % of the CPU time ({names}), {where}")
    if not said:
        return None
    return (
        "not known: with whom tasks share CPU time that machine.toml does not list, as they began after it was "
        "written: " + "; ".join(said)
    )


def grouped(machine: Machine) -> set[str]:
    """Paths of the groups that have a weight of their own.

    Parameters
    ----------
    machine
        The machine beside a trace.

    Returns
    -------
    set of str
        Not the root.
    """
    rows = machine.cgroups.select("path", "shares").drop_nulls().iter_rows()
    return {path for path, _ in rows if path.strip("/")}
