"""Which scheduler of Linux's fair class made a trace that does not name its kernel.

Text that was copied from a terminal or printed by another tool names none. Two things tell: what only
kernels before some version record or print, and which scheduler explains the recorded slices and waits
best (`tracekit.whatif.likelihood`). docs/validation-infer.md says how often that is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from tracekit.errors import ReplayError
from tracekit.trace import Trace
from tracekit.whatif.intervals import PLAIN, Perturbation
from tracekit.whatif.likelihood import LEAST, REPEATS, UNEXPLAINED, Finding, Search, preempted
from tracekit.whatif.listed import classes
from tracekit.whatif.reconstructed import perturbations_of, reconstructed
from tracekit.whatif.source import first_part

__all__ = ["FAMILIES", "Family", "allowed_by_records", "family_of", "likely_families"]

#: Name of each, and how a policy is spelled. cfs 6.1 is that of 2.6.33 to 6.5.
FAMILIES = {
    "cfs 6.1": "cfs:form=6.1",
    "eevdf 6.6": "eevdf:version=6.6",
    "eevdf 6.12": "eevdf:version=6.12",
    "eevdf 6.18": "eevdf:version=6.18",
    "eevdf 7.3": "eevdf:version=7.3",
}
#: `sched_stat_runtime` has the task's vruntime up to Linux 6.7 ("sched: Remove vruntime from
#: trace_sched_stat_runtime()", 6.8): what schedules with it, and without it. The first is taken where
#: nothing more tells: what most kernels with it, and the oldest long-term kernel without it, have.
_WITH, _WITHOUT = ("cfs 6.1", "eevdf 6.6"), ("eevdf 6.12", "eevdf 6.18", "eevdf 6.6", "eevdf 7.3")
#: What schedules in kernels before 6.6.
_OLD = ("cfs 6.1",)
#: So many kernel workers that fall asleep otherwise than those of Linux 4.14 and later: work that one
#: of these does may itself sleep so, rarely.
_WORKERS = 10
#: Records from the start of a trace that are looked at. With twice as many the same 281 of 298 captures
#: of the lab, printed as text, are put down to the right scheduler.
RECORDS = 25_000


@dataclass(frozen=True)
class Family:
    """What a trace shows of its scheduler.

    Attributes
    ----------
    policy
        The policy that explains it best.
    why
        What that rests on, a clause.
    sure
        Whether all that is likely is of one scheduler (CFS or EEVDF).
    """

    policy: str
    why: str
    sure: bool


def _signs(part: Trace) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """What records show: name of each sign, the families that it leaves, and a clause that says it."""
    # "tracing: Add migrate-disabled counter to tracing output", 5.15.
    legend = part.metadata.get("ftrace.legend", "").split(",")
    if "preempt-depth" in legend and "migrate-disable" not in legend:
        yield "legend", _OLD, "its header explains no migrate-disable, as up to Linux 5.14"
    rows = part.columns("events", "state", "value", "value2", "kind", "comm").select(
        "state", "value", "value2", kind=pl.col("kind").cast(pl.String), name=pl.col("comm").cast(pl.String)
    )
    woken = rows.filter(pl.col("kind").is_in(["wakeup", "wakeup_new", "waking"]))["value"]
    if woken.len() > woken.null_count():
        # 5.10 records it, 6.1 does not (captures of both); it is printed up to 4.2.
        yield "success", _OLD, "its wakeups have the field success, as in Linux 5.10 and not in 6.1"
    # "workqueue: Use TASK_IDLE", 4.14: a worker without work does not count as asleep since then.
    workers = rows.filter(pl.col("kind") == "switch", pl.col("name").str.starts_with("kworker/"))
    slept = Counter(workers["state"].cast(pl.String).to_list())
    if slept["sleeping"] >= _WORKERS and not slept["idle_kthread"]:
        yield "workers", _OLD, "its kernel workers sleep in state S, as up to Linux 4.13"
    ran = rows.filter(pl.col("kind") == "stat_runtime")["value2"]
    if ran.len() and ran.null_count() < ran.len():
        yield "runtime", _WITH, "sched_stat_runtime prints vruntime, as up to Linux 6.7"
    elif ran.len():
        yield "runtime", _WITHOUT, "sched_stat_runtime prints no vruntime, as from Linux 6.8 on"


def allowed_by_records(trace: Trace, but: Collection[str] = ()) -> tuple[dict[str, str], str]:
    """Find the families that the records of a trace allow.

    Parameters
    ----------
    trace
        A trace of Linux.
    but
        Signs that do not count: `legend`, `success`, `workers`, `runtime`.

    Returns
    -------
    tuple of dict and str
        Policies by the name of their family, and what shows it. All, and an empty text, where no sign
        was found, or where signs contradict each other, as in a text that was put together of two.
    """
    found = [(by, said) for name, by, said in _signs(first_part(trace, RECORDS)) if name not in but]
    allowed = [name for name in (found[-1][0] if found else ()) if all(name in by for by, _ in found)]
    if not allowed:
        return FAMILIES, ""
    return {name: FAMILIES[name] for name in allowed}, "; ".join(said for _, said in found)


def family_of(trace: Trace) -> Family | None:
    """Find the scheduler that made a trace of Linux.

    Parameters
    ----------
    trace
        A recorded trace with switches and wakeups. Its first `RECORDS` records are looked at, each
        task where it was recorded, so that placement does not matter.

    Returns
    -------
    Family or None
        None where neither records nor slices and waits tell: fewer than 50 slices ended by
        preemption, or the best candidate leaves more than 30 % unexplained.
    """
    part = first_part(trace, RECORDS)
    allowed, shown = allowed_by_records(part)
    found = likely_families(part, allowed) if len(allowed) > 1 else None
    if found is None and not shown:
        return None
    if found is None:
        schedulers = {name.partition(" ")[0] for name in allowed}
        return Family(next(iter(allowed.values())), shown, len(schedulers) == 1)
    sure = len({name.partition(" ")[0] for name in found.likely}) == 1
    set_ = ", ".join(found.likely)
    fits = f"its slices and waits are most like those of {found.best} (90 % set: {set_})"
    return Family(allowed[found.best], f"{shown}; {fits}" if shown else fits, sure)


def likely_families(trace: Trace, allowed: Mapping[str, str]) -> Finding | None:
    """Find which families explain the slices and waits of a trace.

    Parameters
    ----------
    trace
        As in `family_of`.
    allowed
        Name and policy of each.

    Returns
    -------
    Finding or None
        None where none explains them, or too few slices ended by preemption.
    """
    part = first_part(trace, RECORDS)
    if preempted(part) < LEAST:
        return None
    try:
        _, core = reconstructed(part, placement="trace" if part.cpus.height > 1 else "model")
        sets = classes(part)

        def run(policy: str, moved: Perturbation | None) -> Trace:
            moved = moved or PLAIN
            metadata, tables, _ = core.run(
                policy, stated=sets, phase_ns=moved.phase_ns, jitter_ns=moved.jitter_ns, seed=moved.seed
            )
            return Trace(tables, metadata, part.name)

        search = Search(part, run, perturbations_of(core, REPEATS))
        first = max(allowed.values(), key=search.score)
        if search.unexplained(first)[0] > UNEXPLAINED:
            return None
        return search.finding("family", allowed, search.spread(first))
    except ReplayError:
        # What cannot be replayed is said where a replay was asked for.
        return None
