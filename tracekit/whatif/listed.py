"""What the machine beside a trace states of its tasks and CPUs, as replays take it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.units import format_names
from tracekit.whatif.scenario import names_of, same_name

if TYPE_CHECKING:
    from tracekit.machine import Machine
    from tracekit.trace import Trace

__all__ = ["affinities", "classes", "stated_cpus", "unbound"]

#: Tasks that a sentence names.
NAMED = 3

#: Scheduling policies that a priority does not tell from others: below 100 it may be ``fifo`` or ``rr``,
#: from 100 on ``other``, ``batch`` or ``idle`` (Linux: sched(7); include/linux/sched/prio.h).
REAL_TIME, FAIR = ("fifo", "rr"), ("other", "batch", "idle")
#: First priority of fair tasks.
FIRST_FAIR = 100


def affinities(trace: Trace) -> list[tuple[list[int], list[tuple[str, str]]]]:
    """CPUs that threads may use, as the machine beside the trace says.

    Parameters
    ----------
    trace
        The trace, with or without a machine.

    Returns
    -------
    list of (list of int, list of (str, str))
        As `tracekit.whatif.scenario.resolve` gives attributes. Threads that may use every CPU are
        left out; so is a thread that has another name in the trace than in the machine's file,
        since a thread number is used again.
    """
    machine = trace.machine
    if machine is None:
        return []
    same = _same(trace, machine)
    # A CPU without records takes no part in a replay.
    here = set(trace.cpus["cpu"].drop_nulls().to_list())
    found = []
    for tid, cpus in machine.affinities().items():
        allowed = [cpu for cpu in cpus if cpu in here]
        if tid in same and allowed and len(allowed) < len(here):
            found.append(([tid], [("cpus", "+".join(map(str, allowed)))]))
    return found


def unbound(trace: Trace, cpus: int) -> str | None:
    """Say which tasks a replay on another number of CPUs does not bind, which the machine did.

    Parameters
    ----------
    trace
        The trace, with or without a machine.
    cpus
        How many CPUs the replay has.

    Returns
    -------
    str or None
        None where no task that ran, but threads of the kernel, was bound to some CPUs.
    """
    machine = trace.machine
    if machine is None:
        return None
    bound = {tid: settings[0][1] for tids, settings in affinities(trace) for tid in tids}
    own = machine.tasks.filter(~pl.col("kernel").fill_null(False) & pl.col("tid").is_in(list(bound)))
    ran = set(trace.tasks.filter(pl.col("run_ns") > 0)["tid"].to_list())
    tasks = own.filter(pl.col("tid").is_in(list(ran))).sort("comm", "tid").select("comm", "tid").rows()
    if not tasks:
        return None
    names = format_names(list(dict.fromkeys(comm for comm, _ in tasks)), NAMED)
    first, tid = tasks[0]
    return (
        f"{names}: bound to some of the recorded CPUs, which a replay on {cpus} CPU{'s' * (cpus != 1)} leaves out, "
        f"unless --set says so: '{first}: cpus={bound[tid]}'"
    )


def classes(trace: Trace) -> list[tuple[list[int], list[tuple[str, str]]]]:
    """Scheduling policies of threads, as the machine beside the trace says.

    Events show a priority, which SCHED_OTHER, SCHED_BATCH and SCHED_IDLE share, and so do SCHED_FIFO
    and SCHED_RR.

    Parameters
    ----------
    trace
        The trace, with or without a machine.

    Returns
    -------
    list of (list of int, list of (str, str))
        As `tracekit.whatif.scenario.resolve` gives attributes: ``policy`` of the threads that have
        the same name in both, and priorities in the trace that fit what the file says. Those of
        SCHED_OTHER are left out: it is what a priority is taken for. What such a thread forks has
        its policy as well.
    """
    machine = trace.machine
    if machine is None:
        return []
    same = _same(trace, machine)
    shown = {
        tid: (low, high)
        for tid, low, high in trace.tasks.group_by("tid")
        .agg(pl.col("prio_min").min(), pl.col("prio_max").max())
        .drop_nulls()
        .iter_rows()
    }
    found: dict[str, list[int]] = {}
    for tid, policy in machine.tasks.select("tid", "policy").iter_rows():
        low, high = shown.get(tid, (None, None))
        if tid not in same or low is None or high is None:
            continue
        fits = (policy in REAL_TIME and high < FIRST_FAIR) or (policy in FAIR[1:] and low >= FIRST_FAIR)
        if fits:
            found.setdefault(policy, []).append(tid)
    return [(sorted(tids), [("policy", policy)]) for policy, tids in sorted(found.items())]


def _same(trace: Trace, machine: Machine) -> set[int]:
    """Threads that the trace and the file call alike; a file may leave out names."""

    def find() -> set[int]:
        names, _ = names_of(trace)
        rows = [(t, comm) for t, comm in machine.tasks.select("tid", "comm").iter_rows() if t in names]
        return {t for t, comm in rows if comm is None or any(same_name(comm, n) for n in names[t])}

    return trace.once("named as listed", find)


#: Governors that do not look at the load (Linux: Documentation/admin-guide/pm/cpufreq.rst; ``powersave``
#: does under intel_pstate).
FIXED_GOVERNORS = ("performance", "userspace")


def stated_cpus(trace: Trace) -> list[tuple[int, int | None, int | None, bool, bool]]:
    """CPUs as the machine beside the trace says.

    Parameters
    ----------
    trace
        The trace, with or without a machine.

    Returns
    -------
    list of (int, int or None, int or None, bool, bool)
        Number, capacity (1024 for the fastest), highest frequency in kHz, whether its frequency does
        not follow its load (`FIXED_GOVERNORS`), and whether it has no scheduling domain
        (`tracekit.machine.Machine.isolated`).
    """
    machine = trace.machine
    if machine is None:
        return []
    isolated = set(machine.isolated())
    rows = machine.cpus.select("cpu", "capacity", "max_khz", "governor").rows()
    known = {cpu for cpu, *_ in rows}
    stated = [
        (cpu, capacity, khz, governor in FIXED_GOVERNORS, cpu in isolated)
        for cpu, capacity, khz, governor in rows
    ]
    return stated + [(cpu, None, None, False, True) for cpu in sorted(isolated - known)]
