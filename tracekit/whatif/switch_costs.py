"""What switches take, by kernel and scheduling class.

For replays under another kernel or class.

A trace shows what its own switches take. What they take in another kernel, or between tasks of
another class, it does not show. `switch_costs.toml` holds what was measured elsewhere; a replay
takes the *difference* of two entries of it, scaled to the machine of the trace.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

import polars as pl

from tracekit._irq import HARDIRQ

__all__ = ["SWITCH_KINDS", "Change", "KernelCosts", "change", "entry_of", "measure", "read", "shipped"]

#: Kinds of switches: class of the task that leaves, of the one that comes, and why the
#: first leaves: it stays ready, it sleeps or ends, or an interrupt has woken the one that comes.
SWITCH_KINDS = tuple(
    f"{leaves} {comes} {why}"
    for leaves in ("fair", "rt")
    for comes in ("fair", "rt")
    for why in ("ready", "sleeps", "woken")
)
#: Longest time from a wakeup to the switch that it causes at once, ns.
_AT_ONCE = 200_000
#: First kernel of each scheduler that was measured, and the entry that stands for it; oldest first.
#: None: was not measured.
_ENTRIES: tuple[tuple[tuple[int, int], str | None], ...] = (
    ((5, 0), "5.10"),
    ((5, 15), "6.1"),
    ((6, 6), None),
    ((6, 12), "6.12"),
)
#: Entries of policies that stand for a kernel, where the trace is of another: the newest kernel
#: with that scheduler.
_OF_POLICY = {("cfs", "form=6.1"): "6.1", ("eevdf", "version=6.12"): "6.12"}

#: Times of `SWITCH_KINDS` in the recorded and in the replayed kernel, ns.
Change = tuple[list[int | None], list[int | None]]


@dataclass(frozen=True)
class KernelCosts:
    """What switches take in one kernel, on the machine on which they were measured.

    Attributes
    ----------
    clock_offset
        The run-queue clock to tracepoint offset that replays infer there, ns: the measure of how fast the machine is.
    switch
        Entries of `SWITCH_KINDS`, as far as they were seen, ns: from the record of the account of
        the task that leaves to the record of the switch; of ``woken``, from the record that the
        interrupt wakes the task.
    """

    clock_offset: int
    switch: Mapping[str, int]


def read(text: str) -> dict[str, KernelCosts]:
    """Read a table of switch costs.

    Parameters
    ----------
    text
        TOML: ``[kernel."6.12"]`` with ``clock_offset``, and ``[kernel."6.12".switch]`` with entries of
        `SWITCH_KINDS`.

    Returns
    -------
    dict
        By kernel.
    """
    kernels = tomllib.loads(text)["kernel"]
    return {name: KernelCosts(entry["clock_offset"], entry["switch"]) for name, entry in kernels.items()}


@cache
def shipped() -> dict[str, KernelCosts]:
    """Give the switch costs that ship with the package."""
    return read(resources.files("tracekit.whatif").joinpath("switch_costs.toml").read_text())


def measure(events: pl.DataFrame) -> dict[str, list[int]]:
    """Measure what switches take: see `KernelCosts.switch`.

    Parameters
    ----------
    events
        Events of a trace with `sched_stat_runtime` and `sched_stat_wait`: only switches that have
        both right before them, or behind a wakeup in an interrupt, say so.

    Returns
    -------
    dict
        Entries of `SWITCH_KINDS` to their times in ns.
    """
    kinds = pl.col("kind").cast(pl.String)
    rows = (
        events.lazy()
        .with_columns(
            kinds.shift(1).over("cpu").alias("_wait"),
            kinds.shift(2).over("cpu").alias("_run"),
            pl.col("tid").shift(1).over("cpu").alias("_waiter"),
            pl.col("tid").shift(2).over("cpu").alias("_runner"),
            pl.col("ts_ns").shift(2).over("cpu").alias("_from"),
        )
        .filter(kinds == "switch", pl.col("_wait") == "stat_wait", pl.col("_run") == "stat_runtime")
        .filter(pl.col("_waiter") == pl.col("next_tid"), pl.col("_runner") == pl.col("tid"))
        .filter(pl.col("tid") != 0, pl.col("next_tid") != 0)
        .with_columns(_why=pl.when(_READY).then(pl.lit("ready")).otherwise(pl.lit("sleeps")))
    )
    return _by_kind(rows) | _by_kind(_woken(events))


#: The task that leaves stays ready to run.
_READY = pl.col("state").cast(pl.String).is_in(["runnable", "preempted"])


def _by_kind(switches: pl.LazyFrame) -> dict[str, list[int]]:
    """Group the times from ``_from`` to each switch by kind; ``_why`` is its reason."""
    rows = switches.drop_nulls(["prio", "next_prio", "_from"]).select(
        *(
            pl.when(pl.col(prio) < 100).then(pl.lit("rt")).otherwise(pl.lit("fair")).alias(task)
            for task, prio in (("leaves", "prio"), ("comes", "next_prio"))
        ),
        "_why",
        ns=pl.col("ts_ns") - pl.col("_from"),
    )
    groups = rows.collect().group_by("leaves", "comes", "_why", maintain_order=True)
    return {" ".join(map(str, kind)): part["ns"].to_list() for kind, part in groups}


def _woken(events: pl.DataFrame) -> pl.LazyFrame:
    """Measure the time from a wakeup in an interrupt to the switch to the woken task.

    Only where that comes at once.
    """
    kinds = pl.col("kind").cast(pl.String)
    # The kernel's own records in between do not count: the last of the others before the switch are
    # the wakeup's.
    return (
        events.lazy()
        .filter(~kinds.str.starts_with("stat_"))
        .with_columns(
            kinds.shift(1).over("cpu").alias("_wakeup"),
            kinds.shift(2).over("cpu").alias("_waking"),
            pl.col("tid").shift(1).over("cpu").alias("_woken"),
            pl.col("tid").shift(2).over("cpu").alias("_wakee"),
            pl.col("ts_ns").shift(2).over("cpu").alias("_from"),
            pl.col("irq_flags").shift(2).over("cpu").alias("_flags"),
        )
        .filter(kinds == "switch", pl.col("_wakeup") == "wakeup", pl.col("_waking") == "waking")
        .filter(pl.col("_woken") == pl.col("next_tid"), pl.col("_wakee") == pl.col("next_tid"))
        .filter(pl.col("tid") != 0, _READY, (pl.col("_flags") & HARDIRQ) != 0)
        .filter(pl.col("ts_ns") - pl.col("_from") < _AT_ONCE)
        .with_columns(_why=pl.lit("woken"))
    )


def entry_of(kernel: str) -> str | None:
    """Name the entry that stands for a kernel, `None` where none does.

    Parameters
    ----------
    kernel
        Its version, as a trace states it.
    """
    match = re.match(r"(\d+)\.(\d+)", kernel)
    if match is None:
        return None
    version = int(match[1]), int(match[2])
    return next((entry for first, entry in reversed(_ENTRIES) if version >= first), None)


def _scheduler(policy: str) -> tuple[str, str]:
    """Name of a policy, and which form of it."""
    name, _, parameters = policy.partition(":")
    form = next((p for p in parameters.split(",") if p.startswith(("form=", "version="))), "")
    return name, form


def change(
    identity: str, kernel: str, policy: str, clock_offset: float | None, known: Mapping[str, KernelCosts]
) -> Change | None:
    """Give what switches take in the recorded and in the replayed kernel, on the machine of the trace.

    Parameters
    ----------
    identity, policy
        The policy of the recording, and the one that is replayed, with all their parameters.
    kernel
        Version of the recorded kernel.
    clock_offset
        The run-queue clock to tracepoint offset that was inferred from the trace, ns; without it nothing says how fast
        the machine is.
    known
        What was measured, by kernel.

    Returns
    -------
    tuple of list, or None
        Two lists in the order of `SWITCH_KINDS`, ns, `None` where nothing is known. `None` where
        one of the two kernels was not measured, or the policy is not Linux's.
    """
    recorded = known.get(entry_of(kernel) or "")
    same = _scheduler(identity) == _scheduler(policy)
    replayed = recorded if same else known.get(_OF_POLICY.get(_scheduler(policy), ""))
    if recorded is None or replayed is None or not clock_offset or recorded.clock_offset <= 0:
        return None
    scale = clock_offset / recorded.clock_offset

    def scaled(entry: KernelCosts) -> list[int | None]:
        return [round(entry.switch[kind] * scale) if kind in entry.switch else None for kind in SWITCH_KINDS]

    return scaled(recorded), scaled(replayed)
