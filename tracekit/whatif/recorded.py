"""What a recording is of, where it is not of the whole machine: some CPUs, or some tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit import _core
from tracekit.analysis._common import READY
from tracekit.units import format_cpus
from tracekit.whatif.not_modelled import NotModelledError

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["Part", "part", "refuse_part", "unreplayed", "wakes_late", "without_wakeups"]

#: Fewest wakeups and migrations that name a CPU without a record before it counts as not recorded:
#: of one that was, the last ones may have no record behind them.
NAMED = 5
#: Least share of them. Below it the recorded CPUs have little to do with others. Two recordings of one of two
#: CPUs have 66 and 77 %.
MATTERS = 0.05
_NAMING = ("waking", "wakeup", "wakeup_new", "migrate")
_WAKES = ("waking", "wakeup", "enqueue")
_ADVICE = "record all CPUs and tasks: perf sched record, perf record -a, trace-cmd record without -M and -P"


@dataclass(frozen=True)
class Part:
    """What was recorded, where it was not everything.

    Attributes
    ----------
    cpus : tuple of int or None
        The CPUs that were; None where not only some were.
    of : int or None
        How many CPUs the machine has, where that is known.
    tasks : str or None
        The option that chose tasks, or what stands for it; None where all were recorded.
    derived : bool
        The tables were made with this in mind: the file states it. False where only the records show it.
    alone : bool
        No record shows that anything goes on between the recorded CPUs and others.
    """

    cpus: tuple[int, ...] | None = None
    of: int | None = None
    tasks: str | None = None
    derived: bool = True
    alone: bool = False

    @property
    def what(self) -> str:
        """What was recorded, shortly."""
        said = []
        if self.cpus is not None:
            plural = "s" * (len(self.cpus) != 1)
            of = f" of {self.of}" if self.of is not None else ""
            said.append(f"CPU{plural} {format_cpus(list(self.cpus))}{of}")
        if self.tasks is not None:
            said.append(f"some tasks ({self.tasks})")
        return "only " + " and ".join(said)

    @property
    def means(self) -> str:
        """What it means for figures."""
        if self.tasks is not None:
            said = (
                "when they come to run, who else ran, when CPUs idled and run-queue lengths are not known, and CPU "
                "time is that of slices behind another recorded task alone"
            )
        elif self.alone:
            return "no record shows that tasks come from other CPUs or go there: metrics are of these CPUs"
        else:
            said = (
                "what tasks do on other CPUs is not known, so that run-queue lengths and long waits are not to be "
                "trusted, and CPU time is that on these CPUs"
            )
        return said if self.derived else f"{said}; the tables here take it for the whole machine"

    @property
    def advice(self) -> str:
        """What to record next time."""
        return _ADVICE

    @property
    def sentence(self) -> str:
        """All in one line."""
        return f"{self.what} {'was' if self.single else 'were'} recorded: {self.means}"

    @property
    def single(self) -> bool:
        """Whether it is one CPU, of which one speaks in the singular."""
        return self.tasks is None and self.cpus is not None and len(self.cpus) == 1

    @property
    def why_not(self) -> str | None:
        """Why no replay can be made of it; None where one can."""
        return (
            None if self.alone else f"what was not recorded ({self.what} {'was' if self.single else 'were'})"
        )


def part(trace: Trace) -> Part | None:
    """Say what a trace is a recording of; None where nothing shows that it is not of everything.

    Parameters
    ----------
    trace
        The trace. What its file states comes first (metadata ``cpus.recorded`` and ``tasks.recorded``).
        Else the records show it: wakeups and migrations that name CPUs without any record, or idle
        tasks that are switched to and never from.
    """
    return trace.once("recorded part", lambda: _part(trace))


def _part(trace: Trace) -> Part | None:
    from tracekit.io.one_pass import Survey

    meta = trace.metadata
    if "replay.policy" in meta or "workload" in meta:
        return None
    cpus, tasks = _listed(meta.get("cpus.recorded")), meta.get("tasks.recorded")
    of = int(meta["nr_cpus"]) if meta.get("nr_cpus", "").isdigit() else None
    looked = trace.head if isinstance(trace, Survey) else trace
    if cpus is not None or tasks is not None:
        return Part(cpus, of, tasks, True, tasks is None and _alone(looked, cpus or ()))
    if "filter" in meta.get("options", ""):
        return None
    return _shown(looked)


def _listed(text: str | None) -> tuple[int, ...] | None:
    """The numbers of a list as Linux prints it."""
    if not text:
        return None
    ends = [[int(n) for n in run.split("-")] for run in text.split(",")]
    return tuple(cpu for run in ends for cpu in range(run[0], run[-1] + 1))


def _named(trace: Trace) -> pl.DataFrame:
    """CPUs that wakeups and migrations name, and how often."""
    events = trace.columns("events", "kind", "target_cpu")
    naming = events.filter(pl.col("kind").is_in(_NAMING), pl.col("target_cpu").is_not_null())
    return naming.group_by("target_cpu").len()


def _alone(trace: Trace, cpus: tuple[int, ...]) -> bool:
    """Whether no record sends a task to another CPU, and none comes unwoken from a sleep."""
    if _named(trace).filter(~pl.col("target_cpu").is_in(cpus)).height:
        return False
    again = trace.columns("slices", "utid", "ts_ns", "run_delay_ns").filter(
        pl.col("ts_ns") > pl.col("ts_ns").min().over("utid")
    )
    return again["run_delay_ns"].null_count() == 0


def _shown(trace: Trace) -> Part | None:
    """What records show that no metadata say."""
    needed = ("seq", "ts_ns", "kind", "quality")
    events = trace.columns("events", *needed, "cpu", "tid", "next_tid")
    seen = set(events["cpu"].drop_nulls().unique().to_list())
    lost = trace.losses.height and trace.losses["cpu"].null_count()
    if not seen or events["cpu"].null_count() or lost:
        return None
    named = _named(trace)
    others = named.filter(~pl.col("target_cpu").is_in(list(seen)))
    if int(others["len"].sum()) >= max(NAMED, MATTERS * int(named["len"].sum())):
        every = seen | set(others["target_cpu"].to_list())
        return Part(tuple(sorted(seen)), len(every), None, False)
    if trace.metadata.get("os") != "linux":
        return None
    shown = _core.some_tasks(events.filter(pl.col("kind") == "switch"))
    return None if shown is None else Part(None, None, shown, False)


def without_wakeups(trace: Trace) -> str | None:
    """Say that no record says who woke whom, where tasks slept.

    Parameters
    ----------
    trace
        The trace.

    Returns
    -------
    str or None
        None where wakeups are recorded, or nobody slept.
    """
    kinds = trace.columns("events", "kind")["kind"].unique().cast(pl.String)
    if kinds.is_in(_WAKES).any():
        return None
    ends = trace.columns("slices", "end_state")["end_state"].drop_nulls().unique().cast(pl.String)
    if ends.is_in([*READY, "dead", "zombie"]).all():
        return None
    return "no record says who woke whom (sched_waking, sched_wakeup), so that every sleep ends as recorded"


def wakes_late(trace: Trace) -> str | None:
    """Say that waits after a sleep begin with `sched_wakeup`, where `sched_waking` is not recorded.

    The waker decides (`sched_waking`), and some time later the task is on a queue (`sched_wakeup`):
    of the same machine, the recording without the first has the shorter wakeup latencies.

    Parameters
    ----------
    trace
        The trace, or its statistics.

    Returns
    -------
    str or None
        None where `sched_waking` or no wakeup is recorded, of systems other than Linux, and of
        replays, in which both are one moment.
    """
    if trace.metadata.get("os") != "linux" or {"replay.policy", "workload"} & set(trace.metadata):
        return None
    kinds = set(trace.kinds["kind"])
    if "waking" in kinds or "wakeup" not in kinds:
        return None
    return (
        "no sched_waking is recorded: waits after a sleep count from sched_wakeup on, when the task is on a "
        "queue, and are shorter than those of recordings with sched_waking, which count from when the waker "
        "decided"
    )


def unreplayed(trace: Trace) -> tuple[str, ...]:
    """What a trace lacks, by name, because only a part was recorded; empty where it can be replayed."""
    found = part(trace)
    return () if found is None or found.why_not is None else (found.why_not,)


def refuse_part(trace: Trace) -> None:
    """Refuse to replay what was recorded in part.

    Parameters
    ----------
    trace
        The trace.

    Raises
    ------
    NotModelledError
        Where tasks come from what was not recorded, or go there.
    """
    found = part(trace)
    if found is not None and found.why_not is not None:
        raise NotModelledError(
            f"nothing models {found.why_not}: {found.means}. To replay, {found.advice}", (found.why_not,)
        )
