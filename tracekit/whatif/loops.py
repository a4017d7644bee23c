"""Tasks that answer each other through sockets without a pause, and so do as much as they get CPU time for.

A client that asks again as soon as it is answered, and its server, are a closed loop: how much they do in
a second follows from how fast they get CPUs (B. Schroeder, A. Wierman and M. Harchol-Balter, Open versus
closed: a cautionary tale, NSDI 2006). A replay follows such a loop where tasks wake each other. Messages
through sockets of the same machine are delivered in softirqs (`tracekit.whatif.contexts`), and a replay
takes the sleeps that they end for a device's, as long as recorded under any policy. Where a timer, a
device or the network sets the pace, that is not far from what happens; where only the answer does, it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from tracekit._irq import HARDIRQ, SOFTIRQ
from tracekit.analysis import group_of
from tracekit.trace import Trace
from tracekit.units import format_names
from tracekit.whatif.contexts import KERNEL, LEAST, Messages, messages, softly

__all__ = ["Loops", "loops"]

#: Share of a task's wakeups by timers, devices, or tasks that these pace, from which it has a pace. Of 30
#: fresh recordings (two such loops, a database, two servers whose clients pause) the loops of 29 are the
#: same for 0.02 to 0.2, of all for 0.02 to 0.1.
PACED = 0.1
#: Least share of all CPU time of loops that are named.
MATTERS = 0.01
#: Priorities of real-time policies end below this on the scale of Linux (MAX_RT_PRIO).
REALTIME = 100


@dataclass(frozen=True)
class Loops:
    """The groups whose tasks are in such loops.

    Attributes
    ----------
    groups
        Their names.
    foremost
        Labels of replays in which they run before all others, under a real-time policy, and did not
        when they were recorded.
    """

    groups: tuple[str | None, ...]
    foremost: frozenset[str] = frozenset()

    @property
    def named(self) -> str:
        """Their names, as text."""
        return format_names([g or "(no name)" for g in self.groups])

    @property
    def why(self) -> str:
        """What is not modelled, for their own rows."""
        return f"answers through sockets, for which alone {self.named} wait"

    @property
    def others(self) -> str:
        """What it means for other rows."""
        return f"{self.named} do more or less than a replay says: answers through sockets are not modelled"

    @property
    def before(self) -> str:
        """What is not modelled, for other rows of a replay in which they come before all others."""
        return f"what {self.named} leave to others, before whom they run for as long as answers come"

    @property
    def sentence(self) -> str:
        """What it means."""
        return (
            f"{self.named} answer each other so without a pause (a closed loop), and do as much as they get CPU time "
            "for: where a replay does otherwise than the identity replay, their rows are not to be used, and others are "
            "taken with care, or not used either where these run before them under a real-time policy"
        )


def loops(trace: Trace, by: str, runs: Mapping[str, Trace] | None = None) -> Loops | None:
    """Find the groups that answer each other through sockets without a pause.

    Parameters
    ----------
    trace
        The recorded trace.
    by
        How tasks are grouped, one of `tracekit.analysis.GROUPINGS`.
    runs
        Label to replay, for `Loops.foremost`.

    Returns
    -------
    Loops or None
        None where there are none, or they use less than 1 % of the CPU time.
    """
    found = trace.once(("loops", by), lambda: _loops(trace, by))
    if found is None or not runs or _realtime(trace, found, by):
        return found
    return replace(found, foremost=frozenset(label for label, t in runs.items() if _realtime(t, found, by)))


def _realtime(trace: Trace, found: Loops, by: str) -> bool:
    """Whether most of the CPU time of one of these groups is used under a real-time policy."""
    if trace.metadata.get("prio.scale") != "linux":
        return False
    slices = trace.slices.select("prio", "dur_ns", group_of(by).alias("group"))
    own = slices.filter(pl.col("group").is_in(found.groups, nulls_equal=True))
    first = pl.col("dur_ns").filter(pl.col("prio") < REALTIME).sum()
    return bool(own.group_by("group").agg(first * 2 > pl.col("dur_ns").sum())["dur_ns"].any())


def _loops(trace: Trace, by: str) -> Loops | None:
    found = messages(trace)
    if found is None:
        return None
    closed = _closed(trace, found)
    slices = trace.slices.select("utid", "tid", "comm", "dur_ns").with_columns(group_of(by).alias("group"))
    own = slices.filter(pl.col("tid").is_in(closed))
    if int(own["dur_ns"].sum()) < MATTERS * max(int(slices["dur_ns"].sum()), 1):
        return None
    groups = own["group"].unique().sort(nulls_last=True)
    return Loops(tuple(groups)) if groups.len() else None


def _closed(trace: Trace, found: Messages) -> list[int]:
    """The threads of loops: who is woken by messages and has no pace of its own, and who sends these."""
    events = trace.columns("events", "kind", "irq_flags", "tid", "ctx_tid")
    kernel = [t for t, name in found.names.items() if KERNEL.match(name or "")]
    waker = pl.col("ctx_tid").fill_null(0)
    calls = pl.col("irq_flags").fill_null(0) & (SOFTIRQ | HARDIRQ) == 0
    sent = (waker > 0) & (calls | softly() & pl.col("tid").is_in(found.tids))
    # What the kernel's own threads deliver comes from whoever: it says nothing of the pace.
    made = events.filter(pl.col("kind") == found.kind, ~waker.is_in(kernel))
    wakes = made.group_by("tid", pl.when(sent).then(waker).otherwise(0).alias("by")).len()
    of: dict[int, dict[int, int]] = {}
    for tid, by, n in wakes.iter_rows():
        of.setdefault(tid, {})[by] = n
    paced: set[int] = set()
    while more := {
        t
        for t, wakers in of.items()
        if t not in paced
        and (n := sum(n for w, n in wakers.items() if w == 0 or w in paced)) >= LEAST
        and n > PACED * sum(wakers.values())
    }:
        paced |= more
    woken = [t for t in found.tids if t in of and t not in paced]
    senders = {w for t in woken for w, n in of[t].items() if w > 0 and n >= LEAST and w not in paced}
    return sorted({*woken, *senders})
