"""What a trace is good for.

Can it be replayed, how well, what is missing, what to give, what to record next time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from tracekit.errors import ReplayError
from tracekit.explain.loss import what_holds
from tracekit.units import format_count, format_ns
from tracekit.whatif.calibration import titles
from tracekit.whatif.check import as_captured
from tracekit.whatif.contexts import Contexts, recognise
from tracekit.whatif.identity import stated
from tracekit.whatif.intervals import RUNS
from tracekit.whatif.kernels import names_kernel
from tracekit.whatif.loops import loops
from tracekit.whatif.reconstructed import KEPT_READINGS
from tracekit.whatif.recorded import part, wakes_late, without_wakeups
from tracekit.whatif.run import Programs
from tracekit.whatif.sharing import learned
from tracekit.whatif.source import first_part
from tracekit.whatif.trust import replayed

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["Check", "Fitness", "fitness"]

#: Records of the trial: its first part stands for a longer trace, so that the answer takes seconds.
TRIAL_RECORDS = KEPT_READINGS
#: Seconds that the identity replay of the trial may take before it is given up.
TRIAL_SECONDS = 6.0
#: Share of the recorded preemptions by which the other description of caches must come nearer: the
#: tolerance that the calibration has for their number.
NEARER = 0.1

#: What each kind of record is for, and how Linux calls it. The last part says whether replays need it.
_EVENTS = (
    (("switch", "resume"), "sched_switch", "slices, and who runs where", True),
    (("waking", "wakeup", "enqueue"), "sched_waking", "run delays, wakers, response times", True),
    (
        ("wakeup_new", "fork"),
        "sched_wakeup_new, sched_process_fork",
        "tasks that are made in the trace",
        False,
    ),
    (("migrate",), "sched_migrate_task", "run-queue length of each CPU", False),
    (("exit",), "sched_process_exit", "ends of tasks", False),
    (("exec",), "sched_process_exec", "programs", False),
)
#: What it adds to `sched_wakeup`.
_WAKING = "when the waker decided; waits after a sleep are shorter without it"
#: Formats that state results of a tool, not events.
_NO_EVENTS = "holds results of a tool and no events; give the trace that the tool read"


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes
    ----------
    what : str
        What was looked at.
    ok : bool
        Is it as it should be?
    found : str
        What was found.
    advice : str
        What to do when it is not.
    """

    what: str
    ok: bool
    found: str
    advice: str = ""


@dataclass(frozen=True)
class Fitness:
    """What a trace is good for.

    Attributes
    ----------
    replay : str
        ``well``, ``with care``, ``badly``, ``unknown`` (it was not tried to the end) or ``no``.
    because : str
        On what that rests.
    checks : list of Check
        What is there, and what is missing.
    give : list of tuple of str
        What to give that the trace does not say: option or file, and why.
    record : list of tuple of str
        What to record next time: events or settings, and what for.
    metrics : polars.DataFrame or None
        The calibration of the trial, see `tracekit.whatif.calibration.calibrate`; None when there was none.
    """

    replay: str
    because: str
    checks: list[Check]
    give: list[tuple[str, str]] = field(default_factory=list)
    record: list[tuple[str, str]] = field(default_factory=list)
    metrics: pl.DataFrame | None = None

    @property
    def sound(self) -> bool:
        """Whether no check found fault, and the verdict is neither ``badly`` nor ``no``.

        What `tracekit doctor` gives as its exit status. ``unknown`` is no fault that was found.
        """
        return self.replay not in ("badly", "no") and all(check.ok for check in self.checks)


class _Enough(Exception):
    """The time for the trial is over."""


def fitness(trace: Trace, identity: str | None = None, seconds: float = TRIAL_SECONDS) -> Fitness:
    """Say what a trace is good for, by a trial: a replay under the policy that it was captured under.

    Parameters
    ----------
    trace
        The trace.
    identity
        Policy that it was captured under; by default inferred from its kernel.
    seconds
        How long the trial may take. Of a long trace the first part is tried.

    Returns
    -------
    Fitness
        The verdict, by `tracekit.whatif.trust.replayed`; ``badly``, too, where no record says who woke
        whom, and ``unknown`` where the trial took too long.
    """
    kinds = _kinds(trace)
    contexts = recognise(trace)
    checks = _checks(trace, kinds)
    give, record = _give(trace, kinds, identity), _record(trace, kinds, contexts)
    verdict, because, metrics = _trial(trace, kinds, identity, seconds)
    return Fitness(verdict, because, checks, give, record, metrics)


def _kinds(trace: Trace) -> set[str]:
    kinds = trace.columns("events", "kind")["kind"]
    return set(kinds.unique().cast(pl.String).to_list())


def _without_events(trace: Trace) -> str:
    """Why a trace has no events, and what to do about it."""
    said = trace.diagnostics.filter(pl.col("code").cast(pl.String) == "missing-events")
    return "; ".join(said.select("message", "advice").row(0)) if said.height else _NO_EVENTS


def _trial(
    trace: Trace, kinds: set[str], identity: str | None, seconds: float
) -> tuple[str, str, pl.DataFrame | None]:
    """Replay the trace, or its first part, as it was captured."""
    if not kinds & {"switch", "resume"}:
        return (
            "no",
            _without_events(trace)
            if not kinds
            else "no record says who left a CPU and who entered it (sched_switch)",
            None,
        )
    policy = identity or stated(trace)[0]
    part, which = _first_part(trace)
    done = _tried(lambda: Programs(part, identity=policy), policy, seconds)
    if done is None:
        return (
            "unknown",
            f"the trial replay{which} takes over {seconds:g} s; `tracekit calibrate` waits for its end",
            None,
        )
    if isinstance(done, ReplayError):
        return "no", str(done), None
    verdict, said = _verdict(done, policy.partition(",")[0], which)
    if why := without_wakeups(trace):
        # The order in which tasks woke is repeated, whatever the policy: that passes without
        # meaning anything.
        return "badly", f"{why}; {said}", done.metrics
    if verdict != "well" and trace.cpus.height > 1:
        said += "" if done.placed else _where_recorded(part, policy, seconds, done.passing)
        said += _own_caches(part, policy, seconds, done)
    return verdict, said, done.metrics


@dataclass(frozen=True)
class _Tried:
    """A trace that was replayed as it was captured; `placed` where each task is where it was recorded."""

    programs: Programs
    metrics: pl.DataFrame
    placed: bool

    @property
    def passing(self) -> int:
        """Metrics that pass."""
        return self.metrics.filter(result="pass").height

    @property
    def preemptions(self) -> tuple[float, float]:
        """Preemptions, recorded and replayed."""
        row = self.metrics.filter(metric="preemptions").row(0, named=True)
        return row["recorded"] or 0.0, row["replayed"] or 0.0


def _where_recorded(part: Trace, policy: str, seconds: float, passing: int) -> str:
    """What the recorded arrangement of tasks over the CPUs makes better, where it does."""
    placed = _tried(lambda: Programs(part, placement="trace", identity=policy), policy, seconds)
    if not isinstance(placed, _Tried) or placed.passing <= passing:
        return ""
    judged = placed.metrics.filter(pl.col("result") != "not measured").height
    return (
        f"; with each task where it was recorded (--placement trace) {placed.passing} of {judged} pass, which "
        "makes a prediction no better: the arrangement of tasks over the CPUs is what is missed"
    )


def _own_caches(part: Trace, policy: str, seconds: float, done: _Tried) -> str:
    """What it makes better that no CPU shares a cache, where it does.

    Linux looks for an idle CPU among those that share a cache, as the machine's description says.
    A small board may describe none; on a phone, placement that saves energy, which is not modelled, keeps
    woken tasks where they were, too.
    """
    name, _, rest = policy.partition(":")
    if name not in ("cfs", "eevdf") or "shared_cache" in rest:
        return ""
    other = f"{policy}{',' if rest else ':'}shared_cache=off"
    model: _Tried | ReplayError | None = done
    if done.placed:
        model = _tried(lambda: Programs(part, placement="model", identity=policy), policy, seconds)
    if not isinstance(model, _Tried):
        return ""
    programs = model.programs
    tried = _tried(lambda: programs, other, seconds)
    if not isinstance(tried, _Tried) or tried.passing < model.passing:
        return ""
    (recorded, before), (_, after) = model.preemptions, tried.preemptions
    if abs(recorded - before) - abs(recorded - after) <= NEARER * recorded:
        return ""
    return (
        f"; as if no CPUs shared a cache (--policy {other}) {after:.0f} of {recorded:.0f} preemptions come back, "
        f"{before:.0f} otherwise: something keeps woken tasks off idle CPUs, be it caches or placement that saves energy"
    )


def _tried(make: Callable[[], Programs], policy: str, seconds: float) -> _Tried | ReplayError | None:
    """Replay programs under a policy; None when that takes longer than `seconds`, and it is given up then.

    By one replay where the repetitions would take as long.
    """
    result: list[_Tried | ReplayError] = []
    deadline = time.monotonic() + seconds

    def watch(done: float) -> None:
        if time.monotonic() > deadline:
            raise _Enough

    def work() -> None:
        with contextlib.suppress(_Enough):
            try:
                programs = make()
                begun = time.monotonic()
                run, found = as_captured(programs, policy, runs=1, progress=watch)
                if RUNS * (time.monotonic() - begun) < seconds:
                    run, found = as_captured(programs, policy, progress=watch)
                placed = run.metadata.get("replay.placement") == "trace"
                result.append(_Tried(programs, found, placed))
            except ReplayError as error:
                result.append(error)

    # A thread of its own, since reconstruction does not report progress; it ends with the process
    # at the latest.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    return result[0] if result else None


def _first_part(trace: Trace) -> tuple[Trace, str]:
    part = first_part(trace, TRIAL_RECORDS)
    if part is trace:
        return trace, ""
    return part, f" of the first {format_ns((part.end_ns or 0) - (part.start_ns or 0))}"


def _verdict(done: _Tried, policy: str, which: str) -> tuple[str, str]:
    """What the calibration means."""
    metrics = done.metrics
    main = metrics.filter(metric="main").row(0, named=True)
    failed = metrics.filter(result="fail")["metric"].to_list()
    judged = metrics.filter(pl.col("result") != "not measured").height
    verdict = replayed(metrics["result"].to_list())
    where = ", each task where it was recorded" if done.placed else ""
    said = f"replayed as captured ({policy}{where}){which}"
    if verdict == "unknown":
        return verdict, f"{said}; there are too few records to judge it"
    said += f", {judged - len(failed)} of {judged} metrics pass"
    if main["result"] == "not measured":
        said += "; the run time per involuntary switch could not be measured"
    else:
        said += f"; run time per involuntary switch is off by {main['error_pct'] or 0.0:+.1f} %"
    if failed:
        said += f"; these fail: {titles(failed)}"
    return verdict, said


def _checks(trace: Trace, kinds: set[str]) -> list[Check]:
    """What is there, and what is missing."""
    slices = trace.slices
    damage = [d for d in trace.causes().to_dicts() if d["severity"] != "info"]
    known = slices.filter(pl.col("run_delay_ns").is_not_null()).height
    placed = slices["cpu"].null_count() < slices.height
    ends = slices["end_state"].null_count() < slices.height
    checks = [
        Check(
            "records",
            not damage,
            _damage(damage),
            ("larger buffers lose less; " if any(d["severity"] == "loss" for d in damage) else "")
            + "`tracekit info` lists the causes, and what to do",
        ),
        Check("slices", slices.height > 0, format_count(slices.height), "record sched_switch"),
    ]
    if not slices.height:
        return checks
    found_part = part(trace)
    if found_part is not None:
        advice = found_part.advice
        checks.append(Check("recorded", found_part.alone, found_part.sentence, advice))
    missing = trace.missing()
    if not missing.whole:
        held = missing.refused is None and trace.bounds("all")["lower"].count() > 0
        found = "; ".join(what_holds(missing, trace.bounds("all"))[:1])
        advice = (
            "`tracekit info` lists the bounds of every metric"
            if missing.refused is None
            else "metrics are of what was recorded; `tracekit info` says what is missing"
        )
        checks.append(Check("what holds", held, found, advice))
    checks += [
        Check("CPUs", placed, f"{trace.cpus.height}", "print the CPU column: perf script -F +cpu"),
        Check(
            "end states",
            ends,
            "recorded" if ends else "not recorded",
            "why tasks leave their CPU is not known",
        ),
        Check(
            "run delays",
            known > 0,
            f"of {format_count(known)} of {format_count(slices.height)} slices"
            + (", after a sleep from sched_wakeup on" if wakes_late(trace) else ""),
            "record sched_waking or sched_wakeup",
        ),
        Check(
            "forks and exits",
            bool(kinds & {"fork", "exit"}),
            "recorded" if kinds & {"fork", "exit"} else "not recorded",
            "record sched_process_fork and sched_process_exit: thread numbers may be used again",
        ),
        _clock(trace),
        *_not_modelled(trace),
    ]
    return checks


def _not_modelled(trace: Trace) -> list[Check]:
    """What of the trace, or of its machine, no event says or no replay models; nothing where nothing is."""
    found = []
    if (shown := learned(trace)) is not None:
        found.append(Check("groups", True, shown.sentence(), ""))
    if (closed := loops(trace, "group")) is not None:
        advice = f"where a replay does otherwise than recorded, rows of {closed.named} are not to be used"
        found.append(Check("model", False, "none of answers through sockets without a pause", advice))
    machine = trace.machine
    if machine is not None and (arguments := machine.unmodelled_arguments()):
        advice = "the kernel may choose tasks or CPUs otherwise by it"
        found.append(Check("model", False, f"none of the kernel's argument {' '.join(arguments)}", advice))
    return found


def _damage(rows: list[dict[str, object]]) -> str:
    counts: dict[str, tuple[int, float]] = {}
    for row in rows:
        count, share = counts.get(str(row["code"]), (0, 0.0))
        more, time_share = row["count"], row["time_share"]
        assert isinstance(more, int)
        counts[str(row["code"])] = (
            count + more,
            max(share, time_share if isinstance(time_share, float) else 0.0),
        )
    said = [
        f"{code} x {format_count(n)}" + (f" ({100 * share:.2g} % of the CPUs' time)" if share else "")
        for code, (n, share) in counts.items()
    ]
    return ", ".join(said) or "none lost, none damaged"


def _clock(trace: Trace) -> Check:
    meta = trace.metadata
    step = meta.get("clock.resolution_ns")
    found = f"{meta.get('clock.name', 'not named')}, resolution {f'{step} ns' if step else 'not stated'}"
    return Check("clock", meta.get("clock.unit", "ns") != "ticks", found, "give its rate: -O clock_hz=N")


def _give(trace: Trace, kinds: set[str], identity: str | None) -> list[tuple[str, str]]:
    """What the trace does not say, and a user may know."""
    meta, machine = trace.metadata, trace.machine
    give = []
    if meta.get("clock.unit") == "ticks":
        give.append(("-O clock_hz=N", "times are in ticks of a clock whose rate the trace does not state"))
    if not kinds & {"switch", "resume"}:
        return give
    if identity is None and not names_kernel(trace) and meta.get("os", "linux") == "linux":
        policy, why = stated(trace)
        give.append(("--identity POLICY", f"{why}; without it {policy} is taken"))
    if meta.get("os", "linux") == "linux":
        if machine is None:
            why = (
                "HZ, topology, cgroups, sessions that share CPU time (autogroup) and affinities: run the script of "
                "`tracekit recipes machine` on the machine"
            )
            give.append((f"{trace.name}.machine.toml", why))
        elif machine.unread:
            give.append(("machine.toml with all of it", "; ".join(machine.unread)))
    return give


def _record(trace: Trace, kinds: set[str], contexts: Contexts) -> list[tuple[str, str]]:
    """What the next recording should hold."""
    said = contexts.sentence()
    record = [] if said is None or not kinds & {"switch", "resume"} else [("the context of wakeups", said)]
    missing = [e for e in _EVENTS if not kinds & set(e[0])]
    if trace.metadata.get("os", "linux") != "linux":
        return [(f"what Linux calls {name}", why) for _, name, why, needed in missing if needed] + record
    recorded = trace.metadata.get("events.recorded", "")
    asked = [(name, why) for _, name, why, needed in missing if needed or name.split(",")[0] not in recorded]
    if wakes_late(trace) is not None:
        asked.insert(0, ("sched_waking", _WAKING))
    return asked + record
