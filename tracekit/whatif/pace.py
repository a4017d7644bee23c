"""Who does the recorded work sooner than it was recorded, and replays that last longer or idle more.

A replay has the work that was recorded, no more. A loop that the end of the recording cut off does it in
less time where a policy gives it more of the CPUs, and has nothing to do from then on; the real one goes on.
How much sooner says by how much it gets faster. Its totals, how long the run queue is and what others wait
for it are those of less work.

Work that ended in the recording takes longer where it gets less, and the replay lasts until it is done. So
does the real work, unless the clock ended it, as `timeout` does, which no record shows. Either way totals
are of another time than the recorded ones.

CPUs that idle in a replay and did not when it was recorded: how long they take to wake, where a kernel
wakes tasks then, and how fast they run with cold caches does not show in such a recording.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import polars as pl

from tracekit.analysis import group_of
from tracekit.trace import Trace
from tracekit.units import format_ns

__all__ = ["Idler", "Longer", "Sooner", "idle_share", "idler", "longer", "of_all", "sooner"]

_Found = TypeVar("_Found")

#: Share of a group's CPU time that counts as its work: a straggler that waits for the end is none.
WORK = 0.95
#: Share of the recording until which a group runs that its end cut off.
LASTS = 0.95
#: Share of the recorded time below which work counts as done sooner, and of the replayed time
#: below which the recorded one is another: beside what identity replays are off by. In 108 pairs of
#: fresh recordings the intervals of trusted totals held 97 % of the real values up to a replay of 1.1
#: times the length, beyond that 76 % (133 rows); in 1,341 later ones 97 to 98 and 88 to 92 %
#: (docs/validation-fresh.md has the last 140).
SOONER = 0.9
#: By how much the share of idle time may grow. In four sets of fresh pairs (177, 180, 240, 240) the
#: intervals of trusted rows held 95, 93, 95 and 95 % of the real values where it grew by less, 85, 77,
#: 80 and 83 % where by more (292, 250, 219, 310 rows); 87, 80, 80, 83 % for half as much, 84, 77, 78,
#: 82 % for twice. In 140 later ones 92 and 87 % (89 rows; docs/validation-fresh.md).
IDLER = 0.2
#: Least share of all CPU time of a group that is named, or that counts for others.
MATTERS = 0.01


@dataclass(frozen=True)
class Sooner:
    """A group that does its recorded work sooner.

    Attributes
    ----------
    group
        Its name.
    recorded_ns, replayed_ns
        When 95 % of its CPU time was used, from the start, in the recording and in a replay.
    identity_ns
        The same in the identity replay; None where that is not known.
    """

    group: str | None
    recorded_ns: int
    replayed_ns: int
    identity_ns: int | None = None

    @property
    def sentence(self) -> str:
        """What it means."""
        name = "(no name)" if self.group is None else self.group
        also = ""
        if self.identity_ns is not None and self.identity_ns < SOONER * self.recorded_ns:
            also = f"; x {self.recorded_ns / self.identity_ns:.2g} in the identity replay, where nothing is changed"
        return (
            f"{name} has done its recorded work after {format_ns(self.replayed_ns)} instead of "
            f"{format_ns(self.recorded_ns)} (x {self.recorded_ns / self.replayed_ns:.2g} as fast{also}): a real run goes "
            "on, so that totals, the run queue and what others wait are of less work"
        )


@dataclass(frozen=True)
class Longer:
    """A replay that lasts longer than its recording.

    Attributes
    ----------
    recorded_ns, replayed_ns
        How long the recording lasts, and the replay.
    """

    recorded_ns: int
    replayed_ns: int

    @property
    def sentence(self) -> str:
        """What it means."""
        return (
            f"{self.why}, since work that ended in the recording takes longer: totals are of that time, and what "
            "the clock ends, as `timeout` does, would have ended as early as recorded"
        )

    @property
    def why(self) -> str:
        """What it means for a total."""
        return f"the replay lasts {format_ns(self.replayed_ns)}, the recording {format_ns(self.recorded_ns)}"


@dataclass(frozen=True)
class Idler:
    """A replay whose CPUs idle more than when they were recorded.

    Attributes
    ----------
    recorded, replayed
        Share of the CPUs' time in which they were idle, of what is known of it.
    """

    recorded: float
    replayed: float

    @property
    def sentence(self) -> str:
        """What it means."""
        return (
            f"{self.why}: how idle CPUs wake, whom a kernel wakes on them and how fast they are shows too little there, "
            "so that all rows are taken with care"
        )

    @property
    def why(self) -> str:
        """What it means for a row."""
        return f"CPUs idle for {100 * self.replayed:.0f} % of the replay, {100 * self.recorded:.0f} % of the recording"


def _ends(trace: Trace, by: str) -> pl.DataFrame:
    """For each group when its last slice ends, when most of its work is done, and its CPU time.

    Without CPU time there is no work: null.
    """
    return trace.once(("ends", by), lambda: _ends_of(trace, by))


def _ends_of(trace: Trace, by: str) -> pl.DataFrame:
    start = trace.start_ns or 0
    rows = trace.slices.select(group_of(by), "dur_ns", end=pl.col("ts_ns") + pl.col("dur_ns") - start).sort(
        "end"
    )
    work = pl.col("dur_ns").sum()
    done = (work > 0) & (pl.col("dur_ns").cum_sum() >= WORK * work)
    return rows.group_by("group").agg(
        last=pl.col("end").max(), work=pl.col("end").filter(done).min(), cpu=pl.col("dur_ns").sum()
    )


def sooner(trace: Trace, run: Trace, by: str, identity: Trace | None = None) -> list[Sooner]:
    """Find the groups that run until the end of a recording and do the same work sooner in a replay.

    Parameters
    ----------
    trace, run
        The recording and the replay.
    by
        Grouping of tasks, see `tracekit.analysis.GROUPINGS`.
    identity
        The identity replay: what is as much sooner there is no effect of a change.

    Returns
    -------
    list of Sooner
        Those with most CPU time first; none with less than 1 % of it.
    """
    span = _length(trace)
    both = _ends(trace, by).join(_ends(run, by), on="group", suffix="_run", nulls_equal=True)
    if identity is not None:
        same = _ends(identity, by).select("group", work_identity="work")
        both = both.join(same, on="group", how="left", nulls_equal=True)
    else:
        both = both.with_columns(work_identity=pl.lit(None, dtype=pl.Int64))
    found = both.filter(
        pl.col("last") >= LASTS * span,
        pl.col("work_run") < SOONER * pl.col("work"),
        pl.col("cpu") >= MATTERS * pl.col("cpu").sum(),
    ).sort("cpu", descending=True)
    return [Sooner(*row) for row in found.select("group", "work", "work_run", "work_identity").iter_rows()]


def _length(trace: Trace) -> int:
    return (trace.end_ns or 0) - (trace.start_ns or 0)


def longer(trace: Trace, run: Trace) -> Longer | None:
    """Say that a replay lasts longer than the recording, by more than `sooner` lets pass.

    Parameters
    ----------
    trace, run
        The recording and the replay.

    Returns
    -------
    Longer or None
        None where both last about as long.
    """
    recorded, replayed = _length(trace), _length(run)
    return Longer(recorded, replayed) if recorded < SOONER * replayed else None


def idle_share(trace: Trace) -> float | None:
    """Share of the CPUs' time in which they were idle, of what is known of it; None where nothing is."""
    cpus = trace.cpus.select(pl.col("idle_ns", "busy_ns").sum())
    idle, busy = cpus.row(0)
    return idle / (idle + busy) if idle + busy else None


def idler(trace: Trace, run: Trace) -> Idler | None:
    """Say that the CPUs of a replay idle more than when they were recorded, by over `IDLER`.

    Parameters
    ----------
    trace, run
        The recording and the replay.

    Returns
    -------
    Idler or None
        None where they do not, or nothing is known of one.
    """
    recorded, replayed = idle_share(trace), idle_share(run)
    if recorded is None or replayed is None or replayed - recorded <= IDLER:
        return None
    return Idler(recorded, replayed)


def of_all(
    ask: Callable[[Trace, Trace], _Found | None], trace: Trace, runs: Mapping[str, Trace]
) -> dict[str, _Found]:
    """What `longer` or `idler` says of several replays, by label; without those of which it says nothing."""
    found = {label: ask(trace, run) for label, run in runs.items()}
    return {label: one for label, one in found.items() if one is not None}
