"""Who shares CPU time with whom, learned from the CPU time that tasks got.

For traces beside which no machine is described. Linux gives each session a group of its own
(autogroup, on by default), and each container; within a group its tasks share. No event says who is
in which, but the CPU time of tasks that were queued together does: three jobs of one session get a
third each of what the one job of another gets.

Processes of a hundredth of the CPU time are looked at, smaller ones with their parents. The core
finds the groups under which fair sharing comes nearest to what each got
(`statistics/src/partition.rs`): on each CPU, else on all of them together, as balancing may give
each session CPUs of its own. Replays then judge them: they are kept if replays under the recorded
policy give much less of the CPU time to others with them than without.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit import _core
from tracekit.errors import ReplayError
from tracekit.trace import Trace
from tracekit.units import format_names
from tracekit.whatif.identity import stated
from tracekit.whatif.members import WORTH, Ancestry, models_groups
from tracekit.whatif.reconstructed import KEPT_RECORDS, perturbations_of, reconstructed
from tracekit.whatif.source import first_part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tracekit.whatif.intervals import Perturbation
    from tracekit.whatif.threads import Beside

__all__ = ["Sharing", "learned"]

#: Records that are looked at: a few seconds of a busy machine of some CPUs.
RECORDS = KEPT_RECORDS
#: Windows in which CPU time is compared, ns: many slices of a few ms, and short against a recording.
WINDOW_NS = 250_000_000
#: Bound on what the windows hold, in weights of a unit on a CPU, which each step of the search reads.
#: Windows are longer then.
MOST_CELLS = 100_000
#: Bound on the search, in weights of queued units: a quarter of a second. With three times of it each of 16
#: recordings is given the same groups.
MOST = 30_000_000
#: A replay judges groups under which fair sharing misplaces at most this share of what it does without.
WORTH_A_REPLAY = 2 / 3
#: Replays with groups misplace at most the first share of what replays without do, and these at least
#: the second share of the CPU time; so does fluid sharing over all CPUs together.
HALF, LEAST = 0.5, 0.1
#: Replays of each, with other random numbers of the kernel. With one, a capture of lab2 without groups
#: is given some (`6.12-4cpu/w1-mixed-default`), whose tasks happen to come to stand otherwise in it.
REPLAYS = 3
#: Priorities of the kernel's fair classes.
_FAIR = (100, 139)
#: The kernel's threads are forked by this one (kernel/kthread.c); they are in the root group.
KTHREADD = 2


@dataclass(frozen=True)
class Sharing:
    """Groups that a trace shows.

    Attributes
    ----------
    group : dict of int to str
        Thread and its group. Threads that are left out are in the root group.
    tasks : dict of str to tuple of str
        Names of the tasks of each group, those with most CPU time first.
    without, within : float
        Share of the CPU time that a replay under the recorded policy gives to others than got it,
        without groups and with these, in windows of a quarter of a second.
    """

    group: dict[int, str]
    tasks: dict[str, tuple[str, ...]]
    without: float
    within: float

    def sentence(self) -> str:
        """What was learned, and by what."""
        named = "; ".join(f"{name}: {format_names(tasks, 3)}" for name, tasks in self.tasks.items())
        return (
            f"learned from the CPU time that tasks got: {len(self.tasks)} groups share it ({named}). A replay as recorded "
            f"gives {100 * self.within:.0f} % of the CPU time to others than got it with these groups, "
            f"{100 * self.without:.0f} % without"
        )


@dataclass(frozen=True)
class _Units:
    """Processes that are looked at: the unit of each thread, and the tree above them, children first.

    Two more units follow the last one of the tree: small processes below none of these, and the kernel.
    """

    of: dict[int, int]
    tree: list[tuple[int | None, int | None]]
    count: int


def learned(trace: Trace, threads: Beside | None = None) -> Sharing | None:
    """Find who shares CPU time with whom.

    Parameters
    ----------
    trace
        A recording of Linux. Its first `RECORDS` records are looked at; threads that come later are in
        the group of whoever forked them.
    threads
        Threads that replay side by side; without them one replay follows the other. The result is the same.

    Returns
    -------
    Sharing or None
        None where a machine is described beside the trace, where the recorded policy models no
        groups, or where replays are not clearly nearer to the recording with groups.
    """

    def look() -> Sharing | None:
        try:
            return _learned(trace, threads)
        except (ReplayError, ValueError):
            # What cannot be replayed, or is no table of events, is said where a replay was asked for.
            return None

    return trace.once("sharing", look)


def _learned(trace: Trace, threads: Beside | None) -> Sharing | None:
    meta = trace.metadata
    recorded = "workload" not in meta and "replay.policy" not in meta and meta.get("os", "linux") == "linux"
    if trace.machine is not None or not recorded or not models_groups(stated(trace)[0]):
        return None
    part = first_part(trace, RECORDS)
    slices = _slices(part)
    units = _units(part, slices)
    if units.count < 4:
        return None
    cpus = {cpu: number for number, cpu in enumerate(slices["cpu"].unique().sort())}
    duration = (part.end_ns or 0) - (part.start_ns or 0)
    windows = max(1, min(duration // WINDOW_NS, MOST_CELLS // (len(cpus) * units.count)))
    index = {tid: number for number, tid in enumerate(sorted(units.of))}
    task = slices["tid"].replace_strict(index, return_dtype=pl.Int64)
    unit = slices["tid"].replace_strict(units.of, return_dtype=pl.Int64)
    columns = [
        slices["cpu"].replace_strict(cpus, return_dtype=pl.Int64),
        unit,
        task,
        # Each step of nice is a quarter (`replay/src/policies/weights.rs`).
        (1024 / 1.25 ** (slices["prio"] - 120)).round().clip(1),
        slices["ts_ns"] - slices["run_delay_ns"].cast(pl.Int64).fill_null(0),
        slices["ts_ns"],
        slices["ts_ns"] + slices["dur_ns"],
    ]
    bursts = [np.ascontiguousarray(c.cast(pl.Int64).to_numpy()) for c in columns]
    # Each CPU may be shared fairly by those that balancing put there: then all CPUs together show it.
    together = [np.zeros_like(bursts[0]), *bursts[1:]]
    tried: list[list[int | None]] = []
    for shared, least in ((bursts, 0.0), (together, LEAST))[: len(cpus)]:
        found, without, within = _core.partition(shared, units.count, windows, units.tree, MOST)
        if len(set(found) - {None}) < 2 or without < least or within > WORTH_A_REPLAY * without:
            continue
        if found not in tried and (judged := _judged(trace, part, slices, units, found, windows, threads)):
            return judged
        tried.append(found)
    return None


def _slices(part: Trace) -> pl.DataFrame:
    """Slices of fair tasks in order of start."""
    wanted = part.columns("slices", "ts_ns", "dur_ns", "cpu", "tid", "prio", "run_delay_ns", "comm")
    wanted = wanted.with_columns(pl.col("comm").cast(pl.String)).drop_nulls(["tid", "cpu", "prio"])
    fair = pl.col("prio").is_between(*_FAIR) & (pl.col("tid") > 0)
    return (
        wanted.filter(fair)
        .with_columns(pl.col("prio", "ts_ns", "dur_ns").cast(pl.Int64))
        .sort("ts_ns", "cpu")
    )


def _units(part: Trace, slices: pl.DataFrame) -> _Units:
    known = Ancestry.of(part)
    time = dict(slices.group_by("tid").agg(pl.col("dur_ns").sum()).sort("tid").iter_rows())
    total = sum(time.values())
    own: Counter[int] = Counter()
    for tid, ns in time.items():
        own[known.process_of(tid)] += ns
    up: dict[int, int | None] = {}
    todo = list(own)
    while todo:
        process = todo.pop()
        if process not in up:
            up[process] = known.parent_of(process)
            todo += [p for p in (up[process],) if p is not None]
    lines = {process: _line(process, up) for process in up}
    order = sorted(up, key=lambda process: -len(lines[process]))
    units: dict[int, int] = {}
    rest = own.copy()
    for process in order:
        above = up[process]
        if KTHREADD in lines[process]:
            continue
        if rest[process] >= WORTH * total and (above is not None or own[process]):
            units[process] = len(units)
        elif above is not None:
            rest[above] += rest[process]
    small, kernel = len(units), len(units) + 1
    of = {}
    for tid in time:
        line = lines[known.process_of(tid)]
        nearest = next((units[process] for process in line if process in units), small)
        of[tid] = kernel if KTHREADD in line else nearest
    among = {process for unit in units for process in lines[unit]}
    nodes = [process for process in order if process in among]
    place = {process: number for number, process in enumerate(nodes)}
    tree = [(place[above] if (above := up[p]) in place else None, units.get(p)) for p in nodes]
    return _Units(of, tree, len(units) + 2)


def _line(process: int, up: Mapping[int, int | None]) -> list[int]:
    """A process and those above it."""
    line: list[int] = []
    at: int | None = process
    while at is not None and at not in line:
        line.append(at)
        at = up[at]
    return line


def _judged(
    trace: Trace,
    part: Trace,
    slices: pl.DataFrame,
    units: _Units,
    found: list[int | None],
    windows: int,
    threads: Beside | None,
) -> Sharing | None:
    """Groups that a replay is nearer to the recording with."""
    time = slices.group_by("tid").agg(pl.col("dur_ns").sum(), pl.col("comm").last())
    time = time.with_columns(unit=pl.col("tid").replace_strict(units.of, return_dtype=pl.Int64))
    time = time.with_columns(
        number=pl.col("unit").replace_strict(dict(enumerate(found)), return_dtype=pl.Int64)
    ).drop_nulls("number")
    sizes = (
        time.group_by("number").agg(pl.col("dur_ns").sum()).sort("dur_ns", "number", descending=[True, False])
    )
    names = {number: f"learned-{place}" for place, number in enumerate(sizes["number"].to_list(), 1)}
    tasks = {}
    for number, name in names.items():
        by = time.filter(pl.col("number") == number).group_by("comm").agg(pl.col("dur_ns").sum())
        tasks[name] = tuple(n for n in by.sort("dur_ns", "comm", descending=[True, False])["comm"] if n)
    group = {tid: names[number] for tid, number in time.select("tid", "number").sort("tid").iter_rows()}
    recorded = _got(part, part, units, windows)
    policy, _ = stated(trace)
    _, core = reconstructed(part, identity=policy)

    moved = perturbations_of(core, REPLAYS)

    def misplaced(shared: Mapping[int, str]) -> list[float]:
        """By replays whose tasks come to stand on the CPUs otherwise by chance."""
        members = [([tid], [("group", name)]) for tid, name in shared.items()]

        def off(one: Perturbation) -> float:
            metadata, tables, _ = core.run(
                policy, stated=members, jitter_ns=one.jitter_ns, seed=one.seed, tables=["slices"]
            )
            return _misplaced(recorded, _got(Trace(tables, metadata, part.name), part, units, windows))

        return list(map(off, moved)) if threads is None else threads.each(off, moved)

    # By chance one without groups may come near, and one with wrong ones.
    without = min(misplaced({}))
    if without < LEAST or (within := median(misplaced(group))) > HALF * without:
        return None
    # Those that come later.
    known = Ancestry.of(trace)
    of = {tid: known.nearest(tid, group) for tid in known.process.keys() | group.keys()}
    return Sharing({tid: at for tid, at in sorted(of.items()) if at is not None}, tasks, without, within)


def _got(run: Trace, recorded: Trace, units: _Units, windows: int) -> NDArray[np.float64]:
    """CPU time by window of the recording and unit; a replay may go on for longer."""
    begin, end = recorded.start_ns or 0, recorded.end_ns or 0
    got = np.zeros((windows, units.count))
    slices = run.columns("slices", "ts_ns", "dur_ns", "tid").filter(pl.col("tid").is_in(list(units.of)))
    window = ((slices["ts_ns"] - begin) * windows // max(end - begin, 1)).clip(0, windows - 1).to_numpy()
    unit = slices["tid"].replace_strict(units.of, return_dtype=pl.Int64).to_numpy()
    np.add.at(got, (window, unit), slices["dur_ns"].to_numpy())
    return got


def _misplaced(recorded: NDArray[np.float64], replayed: NDArray[np.float64]) -> float:
    return float(np.abs(recorded - replayed).sum() / max(recorded.sum(), 1.0) / 2)
