"""Replays in which tasks wait for ever.

A recording ends, so whatever its tasks waited for came, but for what they wait for at its end. Where the
tasks of a replay wait in a circle, or for tasks that have nothing more to give, what ended their recorded
waits was taken for something that it was not. The core finds them (``replay/src/engine/stuck.rs``): those
that no task that goes on can help, nor one that such a task can help, and so on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from tracekit.analysis import group_of
from tracekit.trace import Trace
from tracekit.units import format_ns
from tracekit.whatif.pace import MATTERS

__all__ = ["Stuck", "stuck"]

#: Groups that a sentence names.
NAMED = 3


@dataclass(frozen=True)
class Stuck:
    """The tasks of a replay that wait for ever, where those recorded went on.

    Attributes
    ----------
    groups
        Their groups, most recorded CPU time first.
    tasks
        How many they are.
    since_ns
        When the first of them begins to, from the start; None where that is not known.
    share
        Their share of the recorded CPU time.
    """

    groups: tuple[str | None, ...]
    tasks: int
    since_ns: int | None
    share: float

    @property
    def why(self) -> str:
        """What it means for a row of theirs."""
        since = "" if self.since_ns is None else f" from {format_ns(self.since_ns)} on"
        return (
            f"its tasks wait for ever in the replay{since}: what they wait for was taken for something else"
        )

    @property
    def others(self) -> str | None:
        """What it means for the rows of other groups; None where those that wait used next to no CPU time."""
        if self.share < MATTERS:
            return None
        return f"other tasks ({self._names}) wait for ever in the replay, and leave it CPU time that was not free"

    @property
    def sentence(self) -> str:
        """What it means."""
        one = self.tasks == 1
        which = "" if one else "the first "
        since = "" if self.since_ns is None else f", {which}from {format_ns(self.since_ns)} on"
        who = f"1 task ({self._names}) waits" if one else f"{self.tasks} tasks ({self._names}) wait"
        rest = "; the others have CPU time that was not free" if self.others else ""
        return (
            f"{who} for ever in the replay{since}, where {'the one' if one else 'those'} recorded went on: what was waited "
            f"for was taken for something else, so that {'its' if one else 'their'} rows are not to be used{rest}"
        )

    @property
    def _names(self) -> str:
        names = ["(no name)" if g is None else g for g in self.groups]
        more = len(names) - NAMED
        return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def stuck(trace: Trace, by: str, runs: Mapping[str, Trace], identity: Trace) -> dict[str, Stuck]:
    """Find the tasks that wait for ever in replays, or in the identity replay that each is held against.

    Parameters
    ----------
    trace
        The recording.
    by
        Grouping of tasks, see `tracekit.analysis.GROUPINGS`.
    runs
        Label to replay.
    identity
        The identity replay.

    Returns
    -------
    dict
        Label to what waits; without those in which nothing does.
    """
    same = _tids(identity)
    all_of = {label: {**same, **_tids(run)} for label, run in runs.items()}
    return {label: _of(trace, by, tids) for label, tids in all_of.items() if tids}


def _tids(run: Trace) -> dict[int, int | None]:
    """Thread to when it begins to wait, on the clock of the trace."""
    return dict(json.loads(run.metadata.get("replay.stuck", "[]")))


def _of(trace: Trace, by: str, tids: Mapping[int, int | None]) -> Stuck:
    used = (
        trace.slices.select("tid", group_of(by), pl.col("dur_ns"))
        .group_by("tid", "group")
        .agg(pl.col("dur_ns").sum())
    )
    theirs = used.filter(pl.col("tid").is_in(list(tids)))
    groups = (
        theirs.group_by("group").agg(pl.col("dur_ns").sum()).sort("dur_ns", "group", descending=[True, False])
    )
    since = [at - (trace.start_ns or 0) for at in tids.values() if at is not None]
    share = int(theirs["dur_ns"].sum()) / max(int(used["dur_ns"].sum()), 1)
    return Stuck(tuple(groups["group"].to_list()), len(tids), min(since, default=None), share)
