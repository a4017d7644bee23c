"""What can be done to a culprit in a replay, and why it cannot be where it cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tracekit.explain.delays import Why
from tracekit.trace import Trace
from tracekit.whatif.intervals import Perturbation
from tracekit.whatif.recorded import part
from tracekit.whatif.run import Programs, Replay

__all__ = ["VARIANTS", "Culprit", "handler_time", "lock_time", "replays", "untestable", "without"]

#: What is done to a culprit.
VARIANTS = {
    "absent": "its tasks, or the interrupt's handlers, do not run at all; whom they woke is woken when it was",
    "twice as fast": "its work takes half the time",
    "lock half as long": "its work while others slept for a lock that it gave them takes half the time",
    "idle class": "its tasks run when nobody else wants to (SCHED_IDLE)",
    "other CPUs": "its tasks may not use the CPU where the victim waits most",
}
#: Part of the attributed time that each variant would gain if nothing else moved.
PART = {"twice as fast": 0.5, "lock half as long": 0.5}
_IN_HARDIRQ = 1 << 4
#: System calls and wait channels that are locks.
_LOCK = r"(?i)futex|mutex|lock|rwsem|umtx"
#: Number of the futex call where only numbers are recorded: syscall_64.tbl of x86,
#: asm-generic/unistd.h of the others.
_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
#: Handlers of the clock tick: a replay has ticks of its own, whose cost is measured.
_TICK = r"(?i)^irq .*(timer|tick|hrtimer)"


@dataclass(frozen=True)
class Culprit:
    """A cause of `Why.causes`: its name, its threads, and the threads that it delayed."""

    name: str
    tids: list[int]
    victims: pl.Series

    @property
    def handler(self) -> bool:
        """It is an interrupt or a softirq."""
        return not self.tids and self.name.startswith(("irq ", "softirq "))


def without(events: pl.DataFrame, tids: Sequence[int]) -> pl.DataFrame:
    """The records of a trace as if some threads had never run.

    Definition: where they had a CPU, it is idle; records about them are left out; wakeups that they
    made stay where they were, as made by an interrupt.

    Parameters
    ----------
    events
        The `events` table.
    tids
        The threads.

    Returns
    -------
    pl.DataFrame
        Events, to be replayed: who could have run earlier does so in the replay.
    """
    gone = pl.Series(sorted(tids), dtype=pl.Int64).implode()
    types = events.schema
    kind = pl.col("kind").cast(pl.String)
    switch = kind == "switch"
    prev, entered, acting = (pl.col(n).is_in(gone).fill_null(False) for n in ("tid", "next_tid", "ctx_tid"))
    idle = pl.concat_str(pl.lit("swapper/"), pl.col("cpu").cast(pl.String))
    leaving, entering = switch & prev, switch & entered
    own = kind.is_in(["sys_enter", "sys_exit", "fork", "exit", "exec", "wait"])
    runnable = pl.lit("runnable").cast(types["state"])
    kept = events.filter((switch | ~prev) & ~(acting & own)).with_columns(
        *(
            pl.when(which).then(0).otherwise(pl.col(n)).cast(pl.Int64).alias(n)
            for which, n in ((leaving, "tid"), (entering, "next_tid"), (acting, "ctx_tid"))
        ),
        *(
            pl.when(which).then(idle).otherwise(pl.col(n).cast(pl.String)).cast(types[n]).alias(n)
            for which, n in ((leaving, "comm"), (entering, "next_comm"), (acting, "ctx_comm"))
        ),
        pl.when(leaving).then(runnable).otherwise(pl.col("state")).alias("state"),
        pl.when(acting & ~switch)
        .then(pl.col("irq_flags").fill_null(0).cast(pl.UInt32) | _IN_HARDIRQ)
        .otherwise(pl.col("irq_flags"))
        .cast(types["irq_flags"])
        .alias("irq_flags"),
    )
    nobody = (kind == "switch") & (pl.col("tid") == 0) & (pl.col("next_tid") == 0)
    return kept.filter(~nobody)


def _thread_of(trace: Trace) -> pl.DataFrame:
    """Thread of each task that is not idle."""
    return trace.tasks.filter(~pl.col("is_idle")).select(pl.col("utid").cast(pl.UInt32), "tid")


def handler_time(trace: Trace, found: Why, name: str) -> list[tuple[int, int, int]]:
    """Say where the handlers of an interrupt took time from tasks.

    Definition: each interval of `found.scene.occupancy` in which the handler had a CPU that a task
    was running on, up to the first wakeup that was made in it: what an interrupt takes behind a
    wakeup is a cost of the replay already.

    Parameters
    ----------
    trace
        The whole trace.
    found
        From `tracekit.explain.delays.why`.
    name
        The culprit: ``irq NAME`` or ``softirq NAME``.

    Returns
    -------
    list of (int, int, int)
        Thread, trace time, ns.
    """
    who, _, handler = name.partition(" ")
    rows = (
        found.scene.occupancy.filter(
            (pl.col("who") == {"irq": "hardirq", "softirq": "softirq"}[who])
            & (pl.col("name").fill_null("?") == handler)
            & pl.col("utid").is_not_null()
        )
        .join(_thread_of(trace), on="utid")
        .sort("start_ns")
    )
    wakes = (
        trace.events.filter(pl.col("kind").cast(pl.String).is_in(["waking", "wakeup"]))
        .select("cpu", pl.col("ts_ns").alias("_wake"))
        .drop_nulls()
        .sort("_wake")
    )
    cut = rows.join_asof(
        wakes, left_on="start_ns", right_on="_wake", by="cpu", strategy="forward", check_sortedness=False
    ).with_columns((pl.min_horizontal("end_ns", "_wake") - pl.col("start_ns")).alias("ns"))
    return cut.filter(pl.col("ns") > 0).select("tid", "start_ns", "ns").rows()


def lock_time(trace: Trace, found: Why, name: str) -> list[tuple[int, int, int]]:
    """Say when a culprit ran while the explained tasks slept for a lock that it then gave them.

    Definition: the parts of `found.pieces` with cause `awaited`, this culprit, and a system call or
    wait channel in `via` that is a lock.

    Parameters
    ----------
    trace
        The whole trace.
    found
        From `tracekit.explain.delays.why`.
    name
        The culprit.

    Returns
    -------
    list of (int, int, int)
        Thread, trace time, ns; each moment once, however many waited.
    """
    awaited = (pl.col("cause") == "awaited") & (pl.col("culprit") == name)
    number = _FUTEX.get(trace.metadata.get("arch", ""), -1)
    lock = pl.col("via").str.contains(_LOCK) | (pl.col("via") == f"call {number}")
    rows = (
        found.pieces.filter(awaited & lock.fill_null(False))
        .join(_thread_of(trace), left_on="culprit_utid", right_on="utid")
        .select("tid", "ts_ns", (pl.col("ts_ns") + pl.col("dur_ns")).alias("end_ns"))
        .sort("tid", "ts_ns")
    )
    before = pl.col("end_ns").cum_max().shift(1).over("tid").fill_null(0)
    rows = rows.with_columns(pl.max_horizontal("ts_ns", before).alias("from_ns"))
    rows = rows.with_columns((pl.col("end_ns") - pl.col("from_ns")).alias("ns"))
    return rows.filter(pl.col("ns") > 0).select("tid", "from_ns", "ns").rows()


def untestable(trace: Trace, programs: Programs, found: Why, culprit: Culprit, variant: str) -> str | None:
    """Why a change cannot be made, None where it can.

    Parameters
    ----------
    trace, programs
        The whole trace, and its programs.
    found
        From `tracekit.explain.delays.why`.
    culprit
        Whose change.
    variant
        A key of `VARIANTS`.
    """
    if culprit.handler:
        return _untestable_handler(trace, found, culprit.name, variant)
    if not culprit.tids:
        return "no task and no handler with a recorded beginning and end: what a replay would leave out is not recorded"
    if pl.Series(culprit.tids).is_in(culprit.victims.implode()).any():
        return "these are the delayed tasks themselves"
    if variant == "other CPUs" and trace.cpus.height < 2:
        return "the machine has one CPU"
    if variant == "idle class" and trace.metadata.get("os", "linux") != "linux":
        return "the system has no idle class"
    if variant == "twice as fast":
        ends = programs.tasks.filter(pl.col("tid").is_in(culprit.tids))
        if ends.filter(pl.col("end") == "endless").height:
            return "its work has no end: twice as fast it would run as long"
    if variant == "lock half as long" and not lock_time(trace, found, culprit.name):
        return "no lock: of no sleep that it ended is it recorded that it was for a lock"
    return None


def _untestable_handler(trace: Trace, found: Why, name: str, variant: str) -> str | None:
    if variant != "absent":
        return "an interrupt: it can only be absent"
    if pl.Series([name]).str.contains(_TICK).item():
        return "the clock's interrupt: a replay has ticks and timers of its own"
    if not handler_time(trace, found, name):
        return "its handlers took no time from tasks: they ran on idle CPUs"
    return None


def _records(trace: Trace, events: pl.DataFrame, name: str) -> Programs:
    """Programs from records; of a workload text, too, what the others did is read from them."""
    known = {k: v for k, v in trace.metadata.items() if k != "workload"}
    less = Trace({"events": events}, known, name)
    # What was recorded does not depend on what is left out here.
    less.once("recorded part", lambda: part(trace))
    return Programs(less)


def replays(
    trace: Trace,
    programs: Programs,
    found: Why,
    culprit: Culprit,
    variant: str,
    policy: str,
    perturbations: Sequence[Perturbation],
) -> list[Replay]:
    """Replay with one change, once for each perturbation of the machine.

    Parameters
    ----------
    trace, programs
        The whole trace, and its programs.
    found
        From `tracekit.explain.delays.why`.
    culprit
        Whose change; `untestable` has no objection.
    variant
        A key of `VARIANTS`.
    policy
        The policy of the recording.
    perturbations
        From `Programs.perturbations`.
    """
    tids = culprit.tids
    if variant == "absent" and tids:
        alone = _records(trace, without(trace.events, tids), f"{trace.name} without {culprit.name}")
        # Where the culprit ran the CPU looks idle in these records, and what leaving idle takes is
        # not seen in them.
        found_costs = dict(programs.inferred.select("name", "value").drop_nulls().iter_rows())
        idle_exit = found_costs.get("wakeup of an idle CPU")
        costs = None if idle_exit is None else {"idle_exit": f"{round(idle_exit)}ns"}
        return [alone.run(policy, perturbation=s, costs=costs) for s in perturbations]
    if variant in ("absent", "twice as fast", "lock half as long"):
        whole = _records(trace, trace.events, trace.name) if programs.stated else programs
        if variant == "absent":
            less = whole.shortened(shorter=handler_time(trace, found, culprit.name))
        elif variant == "twice as fast":
            less = whole.shortened(faster=[(tid, 500) for tid in tids])
        else:
            held = lock_time(trace, found, culprit.name)
            less = whole.shortened(shorter=[(tid, at, ns // 2) for tid, at, ns in held])
        return [less.run(policy, perturbation=s) for s in perturbations]
    setting: dict[str, object] = {"policy": "idle"}
    if variant == "other CPUs":
        waits = found.pieces.filter((pl.col("culprit") == culprit.name) & pl.col("cpu").is_not_null())
        most = waits.group_by("cpu").agg(pl.col("dur_ns").sum()).sort("dur_ns", descending=True)["cpu"][0]
        rest = [n for n in trace.cpus["cpu"].to_list() if n != most]
        setting = {"cpus": "+".join(map(str, rest))}
    scenario = {f"tid={tid}": setting for tid in tids}
    return [programs.run(policy, perturbation=s, scenario=scenario) for s in perturbations]
