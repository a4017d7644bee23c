"""What would have to change to meet a goal.

A search over tunables, classes, nice values, slices and affinities.

The search is greedy with a beam: from the best sets of changes found so far, every further single
change is tried with one replay each, until the goals hold or `DEPTH` changes were made. The
candidates that remain are replayed again with repetitions, and only these are proposed, each with
its interval and with what it costs others. So is each of them with one of several changes taken
back: what makes no difference is left out.
"""

from __future__ import annotations

import math
import operator
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from tracekit import _core
from tracekit.analysis import group_of
from tracekit.errors import ReplayError
from tracekit.io.reading import read
from tracekit.near import did_you_mean
from tracekit.trace import Trace
from tracekit.units import exact_duration, parse_duration
from tracekit.whatif.goals import Goal, parse_goal
from tracekit.whatif.grid import Cell
from tracekit.whatif.identity import stated
from tracekit.whatif.recorded import refuse_part
from tracekit.whatif.scenario import parse_set, resolve
from tracekit.whatif.sweep import Options, Runner
from tracekit.whatif.workers import given_or_own

__all__ = ["Proposal", "Solution", "extended", "moves", "score", "solve"]

#: Proposals that are shown where so many meet the goals.
SHOWN = 3
#: Changes of one proposal, sets of changes that are followed side by side, proposals that are
#: replayed with repetitions.
DEPTH, BEAM, CONFIRMED = 4, 3, 8
#: Groups that a change is tried on: those with most time on CPUs, and those that the goals name.
MAX_GROUPS = 8
#: Factors by which a tunable time is changed.
FACTORS = (0.25, 0.5, 2.0, 4.0)
#: Nice values and real-time priorities that are tried: the ends, the middle, and one step of each side.
NICE, PRIORITIES = (-20, -10, 5, 10, 19), (10, 30, 50, 70, 90)
#: Slices that are tried (EEVDF), ms: the ends of what the kernel takes (0.1 and 100) and between.
SLICES_MS = (0.1, 1, 10, 100)
#: A group is the next of a chain when it is woken at least once in so many wakeups of the one
#: before it: a parent that is notified of an exit is no part of it.
PASSED_ON = 20
#: Threads that are named one by one, where no name names them all.
MAX_TIDS = 16
#: Least share of the recorded samples that a time needs: a task that hardly ran has few waits, not
#: short ones. In the shipped capture wakers starved by FIFO spinners have 5 %, and those that only
#: wait longer 27 %.
LEAST_SAMPLES = 0.1
#: Parameters that are the kernel's version rather than a setting of it.
NO_TUNABLES = ("form", "version", "arithmetic", "exit_requeue", "scaling", "kernel")
#: What can be said of a goal, the weakest first; the last two are proposed.
ANSWERS = ("no", "unknown", "perhaps", "yes")


@dataclass(frozen=True)
class Proposal:
    """A set of changes, and what it is predicted to do.

    Attributes
    ----------
    cell
        The policy and the changes of tasks.
    goals
        For each goal: `goal` (times in ns), `text` (as it was asked), and by group `value`, `low`,
        `high` (the 90 % interval), `identity`, `trust` and `trust_why` (as in
        `tracekit.Comparison.table`), `holds` (``yes`` where the whole interval meets it, ``perhaps``
        where the value does, ``unknown`` where the value does and is not to be used, else ``no``).
    others
        What changes by more than the replay gets wrong elsewhere: `group`, `metric`, `statistic`,
        `identity`, `value`, `change_pct`, the largest first.
    """

    cell: Cell
    goals: tuple[Mapping[str, Any], ...]
    others: tuple[Mapping[str, Any], ...]

    @property
    def holds(self) -> str:
        """The weakest answer of all goals."""
        return min((g["holds"] for g in self.goals), key=ANSWERS.index, default="no")

    @property
    def cost(self) -> float:
        """The largest loss of any other group, %: longer times or less time on CPUs."""
        return max((_loss(row) for row in self.others), default=0.0)


@dataclass(frozen=True)
class Solution:
    """What `solve` found.

    Attributes
    ----------
    proposals
        Those that meet the goals and that no other beats in goal, interval and cost at once; the
        best first. Empty where none does.
    further
        Where there are fewer than `SHOWN` proposals, the next that meet the goals: those that no
        other beats but the proposals, and so on. For whoever cannot make the changes of a proposal.
    best
        The one that comes nearest where none meets them; else the first proposal.
    tried
        Sets of changes that were replayed.
    already
        The identity replay meets the goals: nothing has to change.
    """

    proposals: tuple[Proposal, ...]
    further: tuple[Proposal, ...]
    best: Proposal | None
    tried: int
    already: bool = False

    def __repr__(self) -> str:
        """Say how many were found."""
        found = f"{len(self.proposals)} proposals" if self.proposals else "none found"
        found += ", goals met as recorded" if self.already else ""
        return f"<Solution: {found}, {self.tried} sets of changes tried>"


def _loss(row: Mapping[str, Any]) -> float:
    change = row["change_pct"] or 0.0
    return -change if row["metric"] == "cpu_time" else change


def moves(trace: Trace, identity: str, goals: Sequence[Goal], by: str = "group") -> list[tuple[str, str]]:
    """Single changes that can be made to the machine of a trace.

    Parameters
    ----------
    trace
        The recorded trace.
    identity
        The policy it was captured under; its tunables are changed, not its version.
    goals
        Their groups are changed as well, whatever time they have.
    by
        Grouping, ``group`` or ``comm``.

    Returns
    -------
    list of tuple
        Kind and text: ``tunable`` with ``key=value`` of the policy, ``set`` with a text as
        ``--set`` takes it; of several texts, joined by newlines, each is part of the change
        (staggered priorities).
    """
    found = [("tunable", text) for text in _tunables(identity)]
    groups = _groups(trace, goals, by)
    classes = [f"policy=fifo,prio={p}" for p in PRIORITIES] + ["policy=batch", "policy=idle"]
    attributes = [f"nice={n}" for n in NICE] + classes
    if identity.startswith("eevdf"):
        attributes += [f"slice={ms}ms" for ms in SLICES_MS]
    cpus = sorted(trace.cpus["cpu"].drop_nulls().to_list()) if trace.cpus.height else []
    if len(cpus) > 1:
        attributes += [f"cpus={cpu}" for cpu in cpus[:MAX_GROUPS]]
    for selectors in groups.values():
        found += [("set", "\n".join(f"{s}: {a}" for s in selectors)) for a in attributes]
    for names in _chains(trace, goals, by):
        chain = [groups[g] for g in names if g in groups]
        for order in (chain, chain[::-1]) if len(chain) > 1 else ():
            step = 80 // len(order)
            texts = [f"{s}: policy=fifo,prio={10 + step * i}" for i, group in enumerate(order) for s in group]
            found.append(("set", "\n".join(texts)))
    return found


def _tunables(identity: str) -> Iterator[str]:
    name, _, settings = _core.parse_policy(identity).partition(":")
    current = dict(part.partition("=")[::2] for part in settings.split(","))
    infos = {p["name"]: p for p in _core.policies()}
    for parameter in infos[name]["params"]:
        key, value = parameter["name"], current.get(parameter["name"], "")
        if key in NO_TUNABLES or not value:
            continue
        if parameter["unit"] == "on or off":
            yield f"{key}={'off' if value == 'on' else 'on'}"
        elif parameter["unit"] == "time" and (ns := parse_duration(value)):
            yield from (f"{key}={exact_duration(round(ns * factor))}" for factor in FACTORS)


def _groups(trace: Trace, goals: Sequence[Goal], by: str) -> dict[str, list[str]]:
    """Main groups, each with the selectors that name its tasks."""
    rows = trace.slices.filter(pl.col("tid") != 0).with_columns(group_of(by))
    order = (
        rows.group_by("group").agg(pl.col("dur_ns").sum()).sort("dur_ns", "group", descending=[True, False])
    )
    names = [g for g in order["group"].to_list() if g is not None]
    meant = [g for g in names if any(_names(goal, g) for goal in goals)]
    chosen = list(dict.fromkeys(meant + names))[:MAX_GROUPS]
    found = {g: _selectors(trace, rows, g, by) for g in chosen}
    return {g: selectors for g, selectors in found.items() if selectors}


def _selectors(trace: Trace, rows: pl.DataFrame, group: str, by: str) -> list[str]:
    """Selectors that name the tasks of a group and no others; none where there are too many."""
    tids = sorted(rows.filter(group=group)["tid"].unique().to_list())
    # What `group_of` takes off a name.
    ending = "[-_/:.#0-9]*$" if by == "group" else "$"
    selector = f"comm~^{re.escape(group)}{ending}"
    try:
        ((named, _),) = resolve([parse_set(f"{selector}: nice=0")], trace)
    except ReplayError:
        named = []
    if named == tids:
        return [selector]
    return [f"tid={tid}" for tid in tids] if len(tids) <= MAX_TIDS else []


def _names(goal: Goal, group: str) -> bool:
    statistic = goal.statistic
    row = {"metric": statistic.metric, "statistic": statistic.statistic, "scope": "group", "group": group}
    return statistic.metric != "runqueue" and statistic.names(row)


def _chains(trace: Trace, goals: Sequence[Goal], by: str) -> list[list[str]]:
    """Groups in the order in which they wake each other, from each that the first goal names."""
    rows = trace.slices.drop_nulls("wake_ts_ns").with_columns(group_of(by))
    of_task = rows.select(pl.col("utid").alias("waker_utid"), pl.col("group").alias("waker")).unique(
        "waker_utid"
    )
    pairs = rows.drop_nulls("waker_utid").join(of_task, on="waker_utid").group_by("waker", "group").len()
    pairs = pairs.drop_nulls().filter(pl.col("waker") != pl.col("group"))
    pairs = pairs.join(rows.group_by(waker="group").len("woken"), on="waker", how="left")
    pairs = pairs.filter(PASSED_ON * pl.col("len") >= pl.col("woken").fill_null(0))
    after = dict(pairs.sort("len", "group", descending=[True, False]).group_by("waker").agg("group").rows())
    found = [[g] for g in sorted(after) if goals and _names(goals[0], g)]
    for chain in found:
        for group in chain:
            chain += [g for g in after.get(group, ()) if g not in chain]
    return found


def extended(cell: Cell, move: tuple[str, str]) -> Cell | None:
    """Make one change more.

    Parameters
    ----------
    cell
        A policy and changes.
    move
        One of `moves`.

    Returns
    -------
    Cell or None
        Each change is one of its `axes`. None where it would change the same thing twice.
    """
    kind, text = move
    if kind == "tunable":
        name, _, settings = cell.policy.partition(":")
        key = text.partition("=")[0]
        parts = [p for p in settings.split(",") if p]
        if any(a == "tunable" and b.partition("=")[0] == key for a, b in cell.axes):
            return None
        parts = [p for p in parts if p.partition("=")[0] != key] + [text]
        return Cell(f"{name}:{','.join(parts)}", cell.sets, (*cell.axes, move))
    texts = text.split("\n")
    taken = {_about(s) for s in cell.sets}
    if taken & {_about(s) for s in texts}:
        return None
    return Cell(cell.policy, (*cell.sets, *texts), (*cell.axes, move))


def _about(text: str) -> tuple[str, str]:
    """Whose what a change is: class and nice value exclude each other."""
    selector, _, settings = text.rpartition(": ")
    key = settings.partition("=")[0]
    return selector, "class" if key in ("policy", "nice") else key


def _slacks(rows: Sequence[Mapping[str, Any]], goals: Sequence[Goal]) -> list[float]:
    """How far each goal is met, by its worst group; -inf where it is not known."""
    found = []
    for goal in goals:
        own = [None if _hardly_ran(row) else goal.slack(row) for row in goal.statistic.rows(rows)]
        found.append(min((-math.inf if s is None else s for s in own), default=-math.inf))
    return found


def _hardly_ran(row: Mapping[str, Any]) -> bool:
    """Whether a time rests on far fewer samples than were recorded."""
    counted = row["unit"] == "ns" and row["metric"] in ("wakeup_latency", "response", "run_delay")
    return counted and (row["n_predicted"] or 0) < LEAST_SAMPLES * (row["n_recorded"] or 0)


def _score(slacks: Sequence[float]) -> tuple[float, float]:
    return sum(min(s, 0.0) for s in slacks), slacks[0]


def score(
    rows: Sequence[Mapping[str, Any]], goals: Sequence[Goal], judged: bool = True
) -> tuple[float, float]:
    """How well goals are met; more is better.

    Parameters
    ----------
    rows
        `tracekit.Comparison.table` of one policy, as dicts.
    goals
        What is wanted, and what must be kept.
    judged
        Take what is marked ``do not use`` for unknown. False for rows of replays that ran once, of
        which an interval may still show that they are to be used.

    Returns
    -------
    tuple of float
        What is missing of all goals, each relative to its bound (0 where all are met, -inf where
        one has no value), and how far the first is met.
    """
    return _score(_slacks(_usable(rows) if judged else rows, goals))


def _usable(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [row for row in rows if row.get("trust") != "do not use"]


def _ranked(seen: Mapping[Cell, Sequence[float]]) -> list[Cell]:
    """The cells, the best first; of those that come to the same only the one with fewest changes."""
    kept: dict[tuple[float, ...], Cell] = {}
    for cell in sorted(seen, key=lambda c: len(c.axes)):
        kept.setdefault(tuple(seen[cell]), cell)
    return sorted(kept.values(), key=lambda c: _score(seen[c]), reverse=True)


def solve(
    trace: str | Path,
    goal: str | Sequence[str],
    keep: str | Sequence[str] = (),
    *,
    depth: int = DEPTH,
    runs: int = 9,
    jobs: int | None = None,
    executor: Executor | None = None,
    options: Options | Mapping[str, Any] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Solution:
    """Search for changes that meet a goal.

    Parameters
    ----------
    trace
        File of a trace.
    goal
        What is wanted, such as ``response.p95(db) < 5ms``; see `tracekit.whatif.goals.parse_goal`.
        Of several all are.
    keep
        What must not be lost, such as ``cpu(batch) > -5%``.
    depth
        Changes of one proposal, at most.
    runs
        Repetitions of what is proposed, for its intervals.
    jobs, executor
        As in `tracekit.whatif.sweep.sweep`.
    options
        How it is replayed, as in `tracekit.whatif.sweep.sweep`.
    progress
        Called with the replays that are done and of all in this round.

    Returns
    -------
    Solution
        Proposals that hold; where there are none, the best that was found. A row that the
        comparison marks ``do not use``, or a change that is not modelled, is never proposed.

    Raises
    ------
    ReplayError
        When a goal is not understood, or names no group of the trace, or when nothing can be replayed.
    NotModelledError
        When only some CPUs or tasks were recorded.
    TypeError
        When `options` names what is no option.
    """
    options = Options.of(options)
    goals = [parse_goal(text) for text in ([goal] if isinstance(goal, str) else goal)]
    goals += [parse_goal(text) for text in ([keep] if isinstance(keep, str) else keep)]
    with (
        tempfile.TemporaryDirectory(prefix="tracekit-solve-") as folder,
        given_or_own(jobs, executor) as workers,
    ):
        runner = Runner([trace], Path(folder), options, workers)
        recorded = read(runner.paths[0])
        refuse_part(recorded)
        identity = _core.expand_policy(options.identity or stated(recorded)[0])
        start = Cell(identity)
        seen = _tried(runner, [start], goals, 1, progress)
        if start not in seen:
            (rows,) = runner.run([start], 1, None).values()
            raise ReplayError(f"the identity replay has no result: {rows['error'][0]}")
        if -math.inf in seen[start][0]:
            raise ReplayError(_no_such(recorded, goals, options.by))
        steps = moves(recorded, identity, goals, options.by)
        beam = [start]
        for _ in range(depth):
            longer = [c for one in beam for m in steps if (c := extended(one, m)) is not None]
            seen |= _tried(runner, [c for c in dict.fromkeys(longer) if c not in seen], goals, 1, progress)
            ranked = _ranked({c: slacks for c, (slacks, _) in seen.items()})
            if set(ranked[:BEAM]) == set(beam):
                break
            beam = ranked[:BEAM]
            if min(seen[beam[-1]][0]) >= 0:
                break
        # Among those that hold, those with fewest changes first, and of these those that cost others least.
        holding = [_proposal(c, seen[c][1], goals) for c in ranked if min(seen[c][0]) >= 0 and c != start]
        holding.sort(key=lambda p: (len(p.cell.axes), p.cost))
        ranked = [*(p.cell for p in holding), *(c for c in ranked if min(seen[c][0]) < 0)]
        final = _tried(
            runner, [c for c in ranked if c != start][:CONFIRMED], goals, runs, progress, last=True
        )
        good = _good(final, goals)
        # A change may have been taken since its one replay happened to come out on the right side.
        asked = set(final)
        while fewer := [c for p in good for c in _fewer(start, p.cell) if c not in asked]:
            asked |= set(fewer)
            lesser = _tried(runner, list(dict.fromkeys(fewer)), goals, runs, progress, last=True)
            good += _good(lesser, goals)
    proposals, further = _chosen(good)
    nearest = max(final, key=lambda c: _score(final[c][0]), default=None)
    fallback = None if nearest is None else _proposal(nearest, final[nearest][1], goals)
    best = proposals[0] if proposals else fallback
    return Solution(tuple(proposals), tuple(further), best, len(seen), min(seen[start][0]) >= 0)


def _tried(
    runner: Runner,
    asked: Sequence[Cell],
    goals: Sequence[Goal],
    runs: int,
    progress: Callable[[int, int], object] | None,
    last: bool = False,
) -> dict[Cell, tuple[list[float], list[dict[str, Any]]]]:
    """How far each cell meets the goals, and its rows; cells without a replay are left out.

    What is not to be used counts as unknown in the `last` round; before, each cell runs once, see `score`.
    """
    found = {}
    for (_, cell), table in runner.run(asked, runs, progress).items():
        if "metric" in table.columns:
            rows = table.to_dicts()
            found[cell] = (_slacks(_usable(rows) if last else rows, goals), rows)
    return found


def _good(
    found: Mapping[Cell, tuple[list[float], list[dict[str, Any]]]], goals: Sequence[Goal]
) -> list[Proposal]:
    """Those that meet the goals."""
    made = [_proposal(cell, rows, goals) for cell, (_, rows) in found.items()]
    return [p for p in made if p.holds in ("perhaps", "yes")]


def _fewer(start: Cell, cell: Cell) -> list[Cell]:
    """The sets of changes that are left when one of several is taken back."""
    found = []
    for left_out in cell.axes if len(cell.axes) > 1 else ():
        less: Cell | None = start
        for move in cell.axes:
            less = extended(less, move) if less is not None and move != left_out else less
        found += [less] if less is not None else []
    return found


def _needless(proposal: Proposal, others: Sequence[Proposal]) -> bool:
    """Whether some of its changes alone are as sure to meet the goals, and no worse than its interval."""
    own = proposal.goals[0]

    def as_good(other: Proposal) -> bool:
        if not set(other.cell.axes) < set(proposal.cell.axes):
            return False
        value = other.goals[0]["value"]
        within = None not in (own["low"], own["high"]) and own["low"] <= value <= own["high"]
        return (within or value == own["value"]) and ANSWERS.index(other.holds) >= ANSWERS.index(
            proposal.holds
        )

    return any(map(as_good, others))


def _no_such(trace: Trace, goals: Sequence[Goal], by: str) -> str:
    groups = trace.slices.with_columns(group_of(by))["group"].drop_nulls().unique().sort().to_list()
    asked = ", ".join(str(g.statistic) for g in goals)
    hints = (did_you_mean(g.statistic.group or "", groups) for g in goals if g.statistic.group not in groups)
    said = f"{asked}: the identity replay has no such statistic{next(filter(None, hints), '.')}"
    return f"{said} The groups of the trace are {', '.join(groups)}"


def _proposal(cell: Cell, rows: Sequence[dict[str, Any]], goals: Sequence[Goal]) -> Proposal:
    answers, meant = [], set()
    for goal in goals:
        for row in goal.statistic.rows(rows):
            meant.add(row["group"])
            ends = [{**row, "predicted": row[k]} for k in ("low", "high") if row.get(k) is not None]
            at = None if _hardly_ran(row) else goal.slack(row)
            sure = [s for s in map(goal.slack, ends) if s is not None]
            holds = "no" if at is None or at < 0 else "yes" if sure and min(sure) >= 0 else "perhaps"
            if holds != "no" and not _usable([row]):
                holds = "unknown"
            answers.append(
                {
                    "goal": str(goal),
                    "text": goal.text,
                    "group": row["group"],
                    **{k: row[k] for k in ("unit", "identity", "low", "high", "trust", "trust_why")},
                    "value": row["predicted"],
                    "holds": holds,
                }
            )
    shown = {("response", "p95"), ("wakeup_latency", "p95"), ("cpu_time", "total"), ("response", "mean")}
    others = [
        {k: row[k] for k in ("group", "metric", "statistic", "unit", "identity", "change_pct")}
        | {"value": row["predicted"]}
        for row in rows
        if row["scope"] == "group"
        and row["group"] not in meant
        and (row["metric"], row["statistic"]) in shown
        and row["verdict"] == "resolved"
        and row["change_pct"] is not None
    ]
    others.sort(key=_loss, reverse=True)
    return Proposal(cell, tuple(answers), tuple(others))


def _chosen(good: Sequence[Proposal]) -> tuple[list[Proposal], list[Proposal]]:
    """The proposals, and those behind them that fill up to `SHOWN`."""
    proposals, *fronts = _fronts([p for p in good if not _needless(p, good)]) or [[]]
    behind = [p for front in fronts for p in front]
    return proposals, behind[: max(0, SHOWN - len(proposals))]


def _place(proposal: Proposal) -> tuple[int, float, float]:
    """Certainty, distance to the goal and cost; less is better in each."""
    first = proposal.goals[0]
    value, base = first["value"], first["identity"] or 1
    below = "<" in first["goal"]
    return (
        0 if proposal.holds == "yes" else 1,
        (value if below else -value) / abs(base),
        proposal.cost,
    )


def _fronts(found: Sequence[Proposal]) -> list[list[Proposal]]:
    """Proposals that no other beats in all of `_place`, then those that only these beat, and so on.

    Each the best first. Of changes that come to the same only the first is there.
    """
    rest = {_place(p): p for p in reversed(found)}
    fronts = []
    while rest:
        front = sorted(a for a in rest if not any(b != a and all(map(operator.le, b, a)) for b in rest))
        fronts.append([rest.pop(place) for place in front])
    return fronts
