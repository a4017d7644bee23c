"""Which groups of tasks a comparison shows: those that a change is made to, then those with most CPU time.

A change is asked for because of some tasks, which are often small: a service that waits beside a
batch job has little CPU time. So its groups come first, whatever their CPU time. Groups that are not
shown and change much are named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.analysis import group_of
from tracekit.whatif.basis import MIN_SAMPLES
from tracekit.whatif.groups import from_machine
from tracekit.whatif.scenario import Override, resolve
from tracekit.whatif.trust import DO_NOT_USE
from tracekit.words import group_name

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["HEADLINES", "Focus", "focus_of", "main_groups", "main_rows", "unshown"]

#: What the short table shows: metric and statistic, in this order.
HEADLINES = (
    ("slice_per_involuntary", "mean"),
    ("run_delay", "mean"),
    ("wakeup_latency", "p95"),
    ("response", "p50"),
    ("response", "p95"),
    ("involuntary_switches", "total"),
)
#: Groups of tasks that the short table and the figures show.
MAX_GROUPS = 4
#: The same of groups that a change is made to, and of others beside them.
MAX_CHANGED, LEAST_OTHERS = 8, 2
#: From this factor on, up or down, a change in a group that is not shown is named.
LARGE = 1.5


@dataclass(frozen=True)
class Focus:
    """The groups of tasks that a comparison is about.

    Attributes
    ----------
    changed
        Groups with tasks whose attributes, or whose control group, the change sets, by CPU time; empty
        where it sets none, or those of all tasks.
    """

    changed: tuple[str | None, ...] = ()


def focus_of(trace: Trace, by: str, overrides: Sequence[Override]) -> Focus:
    """Find the groups that a comparison is about.

    Parameters
    ----------
    trace
        The recorded trace.
    by
        Grouping of tasks, see `tracekit.analysis.GROUPINGS`.
    overrides
        What is set of tasks and of control groups.

    Returns
    -------
    Focus
        Nothing in it where there is one group for all tasks.
    """
    if by == "all" or not overrides:
        return Focus()
    everyone = set(trace.tasks.filter(~pl.col("is_idle"))["tid"].to_list())
    tids: set[int] = set()
    for own in _set_threads(trace, overrides):
        # What is set of everyone says nothing about what to look at.
        tids |= own if not own >= everyone else set()
    return Focus(tuple(_groups(trace, by, tids)))


def _set_threads(trace: Trace, overrides: Sequence[Override]) -> Iterable[set[int]]:
    """The threads that each override sets something of; those of a control group are in it or within it."""
    members = from_machine(trace)[0] if any(o.key == "group" for o in overrides) else []
    sets = resolve(overrides, trace)
    yield from (set(tids) for tids, _ in sets)
    inside: dict[int, str] = {}
    for tids, settings in [*members, *sets]:
        for key, value in settings:
            if key == "group":
                inside.update(dict.fromkeys(tids, value.strip("/")))
    for override in overrides:
        if override.key == "group":
            name = override.value.strip("/")
            yield {tid for tid, group in inside.items() if group == name or group.startswith(f"{name}/")}


def _groups(trace: Trace, by: str, tids: set[int]) -> list[str | None]:
    """The groups that these threads are in, by CPU time."""
    rows = trace.slices.select("tid", "dur_ns", group_of(by))
    own = rows.filter(pl.col("tid").is_in(list(tids)))["group"].unique()
    time = rows.filter(pl.col("group").is_in(own.implode(), nulls_equal=True)).group_by("group")
    found = time.agg(pl.col("dur_ns").sum()).sort("dur_ns", "group", descending=[True, False])
    return found["group"].to_list()


def main_groups(cut: pl.DataFrame, focus: Focus) -> list[str | None]:
    """Choose the groups that are shown.

    Parameters
    ----------
    cut
        Result of `tracekit.analysis.slices.summary` of the recorded trace.
    focus
        What the comparison is about.

    Returns
    -------
    list of str or None
        Up to eight of those that the change is made to, and of the others those with most time on
        CPUs among those with at least 20 slices: as many as make four, and at least two.
    """
    first = list(focus.changed[:MAX_CHANGED])
    enough = cut.filter(pl.col("n") >= MIN_SAMPLES)
    others = (enough if enough.height else cut)["group"].to_list()
    room = max(MAX_GROUPS - len(first), LEAST_OTHERS if first else 0)
    return first + [group for group in others if group not in focus.changed][:room]


def main_rows(table: pl.DataFrame, main: Sequence[str | None], focus: Focus) -> pl.DataFrame:
    """Choose the rows that are shown; see `tracekit.whatif.Comparison.summary`.

    Parameters
    ----------
    table
        `tracekit.whatif.Comparison.table`.
    main
        The groups that are shown, in their order.
    focus
        What the comparison is about.

    Returns
    -------
    pl.DataFrame
        Rows of `table`.
    """
    order = {key: i for i, key in enumerate([("runqueue", "mean"), *HEADLINES])}
    groups = {group: i for i, group in enumerate(main)}
    rows = []
    for row in table.iter_rows(named=True):
        place = order.get((row["metric"], row["statistic"]))
        if place is None or _nothing(row):
            continue
        if row["scope"] == "system":
            rows.append((-1, place, row))
        elif row["scope"] == "group" and row["group"] in groups and (_enough(row) or _asked(row, focus)):
            rows.append((groups[row["group"]], place, row))
    rows.sort(key=lambda r: r[:2])
    return pl.DataFrame([row for _, _, row in rows], schema=table.schema)


def _nothing(row: Mapping[str, Any]) -> bool:
    """Whether the row is 0 or unknown everywhere, or counts too few."""
    values = [row[k] or 0 for k in ("recorded", "identity", "predicted")]
    return max(values) < (MIN_SAMPLES if row["statistic"] == "total" else 1e-9)


def _enough(row: Mapping[str, Any]) -> bool:
    return max(row["n_recorded"] or 0, row["n_predicted"] or 0) >= MIN_SAMPLES


def _asked(row: Mapping[str, Any], focus: Focus) -> bool:
    """Whether the row is of tasks that the change is made to: few samples of these are shown, too."""
    return row["group"] in focus.changed


def unshown(table: pl.DataFrame, policy: str, main: Sequence[str | None]) -> list[Mapping[str, Any]]:
    """Find what changes much in groups that are not shown.

    Parameters
    ----------
    table
        `tracekit.whatif.Comparison.table`.
    policy
        Label of the replay.
    main
        The groups that are shown.

    Returns
    -------
    list of dict
        The largest change of each such group, largest first: rows of `table` with a metric that the
        short table shows, an interval, at least 20 samples, and a resolved change that is not marked
        ``do not use``, of x 1.5 or more, or as much less. Without repetitions none has an interval.
    """
    found: dict[str, tuple[float, Mapping[str, Any]]] = {}
    sure = pl.col("low").is_not_null() & (pl.col("trust") != DO_NOT_USE)
    for row in table.filter(sure, policy=policy, scope="group", verdict="resolved").iter_rows(named=True):
        usable = (row["metric"], row["statistic"]) in HEADLINES and _enough(row) and not _nothing(row)
        if row["group"] in main or not usable or not (row["identity"] and row["predicted"]):
            continue
        size = abs(math.log(abs(row["predicted"] / row["identity"])))
        if size >= math.log(LARGE) and size > found.get(group_name(row), (0.0, {}))[0]:
            found[group_name(row)] = size, row
    return [row for _, row in sorted(found.values(), key=lambda one: -one[0])]
