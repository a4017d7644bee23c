"""What a replay rests on, for those who print it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.whatif.contexts import delivered
from tracekit.whatif.groups import rt_limits
from tracekit.whatif.left_out import left_out
from tracekit.whatif.listed import unbound
from tracekit.whatif.loops import loops
from tracekit.whatif.members import apart, unlisted
from tracekit.whatif.recorded import wakes_late
from tracekit.whatif.sharing import learned

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = [
    "MIN_SAMPLES",
    "inferred",
    "uneven",
    "unheld_machine",
    "unknown_machine",
    "unmeasured_cpus",
    "unrecorded",
    "wakeup_classes",
]

#: Rows of `tracekit.Replay.inferred` that say how far a replay models the speed and the isolation of
#: CPUs, and who shares them.
MACHINE = ("capacities of CPUs", "frequency governor", "isolated CPUs", "groups that share CPU time")
#: Fewest samples for a curve or a headline of a group.
MIN_SAMPLES = 20
#: A CPU that was busy for less than the first share of a recording shows nothing of its speed; a prediction
#: rests on that speed when it keeps the CPU busy for more than the second share of its time.
UNUSED, USED = 0.01, 0.05
#: Policies that leave out how their kernel evens out the queues of busy CPUs, and how it does.
EVENED = {
    # kernel/sched.c of 2.6.20, rebalance_tick and find_busiest_group.
    "o1": "Linux 2.6 moves tasks between busy CPUs, too",
    # usr/src/uts/common/disp/disp.c of illumos, setbackdq.
    "solaris-ts": "Solaris queues a thread on the next CPU where the queue there is shorter",
}
#: Of more CPUs it must be known that they share one last-level cache (AMD's Zen 2 has one for every
#: four cores): replays know none, and of a machine with two they hold less (docs/validation-several.md,
#: "Eight CPUs").
ONE_CACHE = 4
#: Share of a replay from which on it is said that the queues of its CPUs are uneven.
UNEVEN = 0.05


def inferred(replay: Trace) -> list[dict[str, Any]]:
    """Return what a replay inferred of the recorded run, as `tracekit.Replay.inferred`.

    Empty for a trace that is no replay.
    """
    found = getattr(replay, "inferred", None)
    return [] if found is None else list(found.to_dicts())


def unknown_machine(trace: Trace) -> str | None:
    """Say what a replay of a Linux trace does not know for lack of a machine.toml, or of tasks in it.

    Kernels share CPU time among groups before tasks, so that CPU shares depend on who is in which.

    Parameters
    ----------
    trace
        The recorded trace.

    Returns
    -------
    str or None
        None where the machine is known with the tasks that matter (`tracekit.whatif.members.unlisted`) and at
        the time of the recording (`tracekit.whatif.members.apart`), the trace is of another system, or
        nothing was recorded: a workload text says all.
    """
    meta = trace.metadata
    if meta.get("os", "linux") != "linux" or "workload" in meta:
        return None
    if trace.machine is not None:
        return apart(trace) or unlisted(trace)
    groups = "who shares CPU time with whom (cgroups, sessions), " if learned(trace) is None else ""
    return (
        f"not known: {groups}affinities, and which tasks are SCHED_BATCH or SCHED_IDLE, which no event says; no "
        "machine.toml lies beside the trace. With the next recording run the script of `tracekit recipes machine`"
    )


def unrecorded(replay: Trace, *changed: Trace) -> list[str]:
    """Say what a replay does not know of the recorded run, or does not model of its machine.

    Parameters
    ----------
    replay
        A replay.
    changed
        Replays of the same recording with other attributes of tasks.

    Returns
    -------
    list of str
        What is missing, and what to record: its diagnostics with the code ``missing-events``, or, of a
        trace that was filtered, what was left out; that waits begin late (`wakes_late`); what it
        shows of messages that a replay takes for a device's; capacities, frequencies and isolated
        CPUs, and how far they are modelled; groups that were learned; arguments of the kernel that are not; queues that the
        policy's kernel would even out (`uneven`).
    """
    rows = replay.diagnostics.filter(pl.col("code").cast(pl.String) == "missing-events")
    said = [f"{what}. For more, {advice}" for what, advice in rows.select("message", "advice").iter_rows()]
    programs = getattr(replay, "_programs", None)
    if programs is not None and (lacks := left_out(programs.trace)) is not None:
        # What a filter took away was recorded, as far as anybody knows.
        said = [lacks]
    if programs is not None and (late := wakes_late(programs.trace)) is not None:
        said.append(late)
    if programs is not None and (messages := delivered(programs.trace)):
        said.append(messages)
        if (closed := loops(programs.trace, "group")) is not None:
            said.append(closed.sentence)
    found = {row["name"]: row["how"] for row in inferred(replay) if row["name"] in MACHINE}
    said += [f"{name}: {found[name]}" for name in MACHINE if name in found]
    machine = None if programs is None else programs.trace.machine
    if machine is not None and (arguments := machine.unmodelled_arguments()):
        said.append(
            f"{' '.join(arguments)}: not modelled: the kernel may choose tasks or CPUs otherwise by it"
        )
    if programs is not None:
        said += rt_limits(programs.trace, replay, *changed)
    said += [text for run in (replay, *changed) if (text := uneven(run)) is not None]
    if programs is not None:
        others = {run.cpus.height for run in changed} - {programs.trace.cpus.height}
        said += [text for cpus in sorted(others) if (text := unbound(programs.trace, cpus)) is not None]
    if machine is not None and (cpus := machine.tickless()):
        listed = ", ".join(map(str, cpus))
        said.append(
            f"nohz_full: not modelled: CPU {listed} does not tick while it has one task; a replay ticks"
        )
    return said


def unmeasured_cpus(trace: Trace, replay: Trace) -> str | None:
    """Say which CPUs a prediction uses whose speed the recording does not show.

    CPUs of one machine differ, in guests by what runs beside them, on phones by design. CPUs that the
    recorded machine does not have are not meant: what a replay on another number of CPUs misses has
    been measured.

    Parameters
    ----------
    trace, replay
        The recording, and a replay of it.

    Returns
    -------
    str or None
        None where the recording used all of them, or says their capacities.
    """
    if any(row["name"] == "capacities of CPUs" for row in inferred(replay)):
        return None
    busy = pl.col("busy_ns") / (pl.col("busy_ns") + pl.col("idle_ns") + pl.col("unknown_ns")).clip(1)
    unused = trace.cpus.filter(busy < UNUSED, pl.col("unknown_ns") < pl.col("idle_ns"))["cpu"].to_list()
    used = replay.cpus.filter(busy > USED, pl.col("cpu").is_in(unused))["cpu"].sort().to_list()
    if not used:
        return None
    which, whose = ("CPU", "its speed is") if len(used) == 1 else ("CPUs", "their speeds are")
    return f"the recording hardly used {which} {', '.join(map(str, used))}, so that {whose} not known"


def unheld_machine(trace: Trace, replay: Trace) -> list[str]:
    """Name what the recorded machine has and that of no capture had that predictions were held against.

    Parameters
    ----------
    trace, replay
        The recording, and a replay of it.

    Returns
    -------
    list of str
        Capacities that differ, where the recording or the machine beside it says so; several last-level
        caches or NUMA nodes, as the machine beside the trace lists them; and that it lists none, of more CPUs
        than mostly share one.
    """
    found = []
    if any(row["name"] == "capacities of CPUs" for row in inferred(replay)):
        found.append("CPUs of different capacity")
    cpus = None if trace.machine is None else trace.machine.cpus
    if cpus is not None:
        caches = cpus["llc"].drop_nulls().list.sort().unique().len()
        if max(caches, cpus["node"].drop_nulls().n_unique()) > 1:
            return [*found, "several last-level caches"]
    if trace.cpus.height > ONE_CACHE and (cpus is None or not cpus["llc"].count()):
        found.append(f"more than {ONE_CACHE} CPUs whose caches no machine.toml lists")
    return found


def uneven(replay: Trace) -> str | None:
    """Say that the queues of a replay's CPUs differ as the policy's kernel would not let them.

    Definition: the share of the time in which the runnable and running tasks of two CPUs differ by two
    or more, so that one of them could go over.

    Parameters
    ----------
    replay
        A replay.

    Returns
    -------
    str or None
        None below `UNEVEN`, on one CPU, and under policies that model it or have it so (`EVENED`).
    """
    policy = replay.metadata.get("replay.policy", "").partition(":")[0]
    if policy not in EVENED or replay.cpus.height < 2:
        return None
    length = pl.col("nr_running") + pl.col("nr_waiting")
    queues = (
        replay.runqueue.filter(pl.col("cpu").is_not_null())
        .select("ts_ns", pl.col("cpu").cast(pl.String), length.alias("length"))
        .pivot("cpu", index="ts_ns", values="length", aggregate_function="last")
        .sort("ts_ns")
        .with_columns(pl.exclude("ts_ns").forward_fill().fill_null(0))
    )
    lengths = pl.exclude("ts_ns")
    apart = pl.max_horizontal(lengths) - pl.min_horizontal(lengths) >= 2
    until = pl.col("ts_ns").shift(-1).fill_null(replay.end_ns)
    lasts = (until - pl.col("ts_ns")).filter(apart).sum()
    share = (queues.select(lasts).item() or 0) / max((replay.end_ns or 0) - (replay.start_ns or 0), 1)
    if share < UNEVEN:
        return None
    return (
        f"{policy}: the queues of two CPUs differ by two tasks or more for {100 * share:.0f} % of the time: "
        f"{EVENED[policy]}, which is not modelled"
    )


def wakeup_classes(replay: Trace) -> list[dict[str, Any]]:
    """Return how a replay explains the wakeups of its trace.

    Parameters
    ----------
    replay
        A replay, or any trace.

    Returns
    -------
    list of dict
        `class`, `n` and `share`, as `tracekit.Replay.wakeups`; empty for a trace that is no replay.
    """
    return [dict(row) for row in getattr(replay, "wakeups", ())]
