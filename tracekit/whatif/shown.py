"""Which groups of tasks a comparison shows: those that a change is made to, then those with most CPU time.

A change is asked for because of some tasks, which are often small: a service that waits beside a
batch job has little CPU time. So its groups come first, whatever their CPU time. Groups that are not
shown and change much are named.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.analysis import group_of
from tracekit.units import format_names
from tracekit.whatif.basis import MIN_SAMPLES
from tracekit.whatif.groups import known_groups
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
    chosen
        Groups with tasks that were chosen to be looked at, by CPU time; None where all are.
    mixed
        Those of them that hold other tasks, too: how many are chosen, and of how many.
    """

    changed: tuple[str | None, ...] = ()
    chosen: tuple[str | None, ...] | None = None
    mixed: Mapping[str | None, tuple[int, int]] = field(default_factory=dict)

    def rows(self, table: pl.DataFrame, *scopes: str) -> pl.DataFrame:
        """The rows that are looked at, of a table with `scope` and `group`.

        Parameters
        ----------
        table
            Any such table.
        *scopes
            Scopes that are kept as well, beside the system and the chosen groups.
        """
        if self.chosen is None:
            return table
        own = pl.col("group").is_in(list(self.chosen), nulls_equal=True)
        return table.filter(pl.col("scope").is_in(["system", *scopes]) | ((pl.col("scope") == "group") & own))

    @property
    def sentence(self) -> str:
        """What was chosen; empty where nothing was."""
        if self.chosen is None:
            return ""
        said = f"chosen: {format_names(list(map(_name, self.chosen)))}; all other tasks are replayed, too"
        for group, (some, of) in list(self.mixed.items())[:1]:
            said += f"; {_name(group)} is of {of} tasks, {some} of them chosen: --by tid tells them apart"
        return said


def _name(group: str | None) -> str:
    return "(no name)" if group is None else group


def focus_of(
    trace: Trace, by: str, overrides: Sequence[Override], chosen: Collection[int] | None = None
) -> Focus:
    """Find the groups that a comparison is about.

    Parameters
    ----------
    trace
        The recorded trace.
    by
        Grouping of tasks, see `tracekit.analysis.GROUPINGS`.
    overrides
        What is set of tasks and of control groups.
    chosen
        Keys (`utid`) of the tasks that are to be looked at; None for all.

    Returns
    -------
    Focus
        Nothing is changed in it where there is one group for all tasks.
    """
    changed = _changed(trace, by, overrides) if by != "all" and overrides else []
    if chosen is None:
        return Focus(tuple(changed))
    tasks = trace.slices.select("utid", "tid", "comm", group_of(by)).unique("utid")
    own = pl.col("utid").is_in(list(chosen))
    counts = tasks.group_by("group").agg(own.sum().alias("some"), pl.len().alias("of"))
    groups = {group: (some, of) for group, some, of in counts.iter_rows() if some}
    first = _by_time(trace, by, pl.col("group").is_in(list(groups), nulls_equal=True))
    mixed = {group: groups[group] for group in first if groups[group][0] < groups[group][1]}
    return Focus(tuple(g for g in changed if g in groups), tuple(first), mixed)


def _changed(trace: Trace, by: str, overrides: Sequence[Override]) -> list[str | None]:
    """The groups with tasks of which something is set."""
    everyone = set(trace.tasks.filter(~pl.col("is_idle"))["tid"].to_list())
    tids: set[int] = set()
    for own in _set_threads(trace, overrides):
        # What is set of everyone says nothing about what to look at.
        tids |= own if not own >= everyone else set()
    return _groups(trace, by, tids)


def _set_threads(trace: Trace, overrides: Sequence[Override]) -> Iterable[set[int]]:
    """The threads that each override sets something of; those of a control group are in it or within it."""
    members = known_groups(trace)[0] if any(o.key == "group" for o in overrides) else []
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
    own = rows.filter(pl.col("tid").is_in(list(tids)))["group"].unique().to_list()
    return _by_time(trace, by, pl.col("group").is_in(own, nulls_equal=True))


def _by_time(trace: Trace, by: str, which: pl.Expr) -> list[str | None]:
    """Those groups, most CPU time first."""
    time = trace.slices.select("dur_ns", group_of(by)).filter(which).group_by("group")
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
        CPUs among those with at least 20 slices: as many as make four, and at least two. Where up to
        eight were chosen to be looked at, all of these, and no others.
    """
    if focus.chosen is not None:
        if len(focus.chosen) <= MAX_CHANGED:
            return [*focus.changed, *(group for group in focus.chosen if group not in focus.changed)]
        cut = cut.filter(pl.col("group").is_in(list(focus.chosen), nulls_equal=True))
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
    """Whether the row is of tasks that are named: few samples of these are shown, too."""
    named = focus.chosen if focus.chosen is not None and len(focus.chosen) <= MAX_CHANGED else focus.changed
    return row["group"] in named


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
