"""Who does the recorded work sooner than it was recorded.

A replay has the work that was recorded, no more. A loop that the end of the recording cut off does it in
less time where a policy gives it more of the CPUs, and has nothing to do from then on; the real one goes on.
How much sooner says by how much it gets faster. Its totals, how long the run queue is and what others wait
for it are those of less work.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracekit.analysis import group_of
from tracekit.trace import Trace
from tracekit.units import format_ns

__all__ = ["Sooner", "sooner"]

#: Share of a group's CPU time that counts as its work: a straggler that waits for the end is none.
WORK = 0.95
#: Share of the recording until which a group runs that its end cut off.
LASTS = 0.95
#: Share of the recorded time below which work counts as done sooner: beside what identity replays are off by.
SOONER = 0.9
#: Least share of all CPU time of a group that is named.
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
    """

    group: str | None
    recorded_ns: int
    replayed_ns: int

    @property
    def sentence(self) -> str:
        """What it means."""
        name = "(no name)" if self.group is None else self.group
        return (
            f"{name} has done its recorded work after {format_ns(self.replayed_ns)} instead of "
            f"{format_ns(self.recorded_ns)} (x {self.recorded_ns / self.replayed_ns:.2g} as fast): a real run goes "
            "on, so that totals, the run queue and what others wait are of less work"
        )


def _ends(trace: Trace, by: str) -> pl.DataFrame:
    """For each group when its last slice ends, when most of its work is done, and its CPU time."""
    start = trace.start_ns or 0
    rows = trace.slices.select(group_of(by), "dur_ns", end=pl.col("ts_ns") + pl.col("dur_ns") - start).sort(
        "end"
    )
    done = pl.col("dur_ns").cum_sum() >= WORK * pl.col("dur_ns").sum()
    return rows.group_by("group").agg(
        last=pl.col("end").max(), work=pl.col("end").filter(done).min(), cpu=pl.col("dur_ns").sum()
    )


def sooner(trace: Trace, run: Trace, by: str) -> list[Sooner]:
    """Find the groups that run until the end of a recording and do the same work sooner in a replay.

    Parameters
    ----------
    trace, run
        The recording and the replay.
    by
        Grouping of tasks, see `tracekit.analysis.GROUPINGS`.

    Returns
    -------
    list of Sooner
        Those with most CPU time first; none with less than 1 % of it.
    """
    span = (trace.end_ns or 0) - (trace.start_ns or 0)
    both = _ends(trace, by).join(_ends(run, by), on="group", suffix="_run", nulls_equal=True)
    found = both.filter(
        pl.col("last") >= LASTS * span,
        pl.col("work_run") < SOONER * pl.col("work"),
        pl.col("cpu") >= MATTERS * pl.col("cpu").sum(),
    ).sort("cpu", descending=True)
    return [Sooner(*row) for row in found.select("group", "work", "work_run").iter_rows()]
