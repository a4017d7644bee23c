"""What a recording and a replay of it have of each metric by which a replay is judged.

`tracekit.whatif.calibration` judges it. Pure functions of the tables of both.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from tracekit import _core
from tracekit._lazy import later
from tracekit.analysis import _common as c
from tracekit.analysis import runqueue
from tracekit.analysis.uncertainty import ks_distance
from tracekit.whatif.intervals import MIN_JITTER_NS

if TYPE_CHECKING:
    import numpy as np

    from tracekit.trace import Trace
else:
    np = later("numpy")

__all__ = ["Fidelity", "Pair", "fidelity", "medians"]

#: Metrics that take records of wakeups: without them a task counts as runnable, after a sleep, only
#: once it has a CPU.
OF_WAKEUPS = ("run_delay_p50", "run_delay_p95", "run_delay_ks", "runqueue_mean", "runqueue_histogram")
#: Records that say when a task became runnable.
_WAKES = ("waking", "wakeup", "wakeup_new", "enqueue", "stat_wait")
#: Clock ticks a second where the replay does not say: Linux's default (kernel/Kconfig.hz).
_HZ = "250"
_SECOND = 1_000_000_000


@dataclass(frozen=True)
class Pair:
    """A metric of both; of a metric that is a distance by itself, only `distance`."""

    unit: str
    recorded: float | None
    replayed: float | None
    n: tuple[int, int]
    distance: float | None = None


@dataclass(frozen=True)
class Fidelity:
    """A recording beside a replay of it.

    Attributes
    ----------
    pairs
        Metric, as `tracekit.whatif.calibration.METRICS` names it, to what both have of it; without
        what neither can have.
    unrecorded
        Metrics that the trace does not hold the records for.
    tick_ns
        Length of a clock tick.
    """

    pairs: Mapping[str, Pair]
    unrecorded: tuple[str, ...]
    tick_ns: float


def fidelity(recorded: Trace, replayed: Trace) -> Fidelity:
    """Set a replay beside its recording.

    Parameters
    ----------
    recorded
        The recording. What is computed of it alone is kept with it.
    replayed
        Its replay.
    """
    start = recorded.start_ns or 0
    stop = max(min(recorded.end_ns or 0, replayed.end_ns or 0), start + 1)
    edge = _stopped(recorded, replayed)
    a = recorded.once(("fidelity of it", edge), lambda: _Side(recorded, edge))
    b = _Side(replayed, edge)
    pairs = {
        **_counts(a, b),
        **_cpu_shares(a, b, start, stop),
        **_distributions(a, b, _resolution(recorded, replayed)),
        **_queues(a, b),
        **_placement(a, b, start, stop),
        **_drift(a, b, start),
    }
    hz = int(replayed.metadata.get("hz", _HZ))
    return Fidelity(pairs, OF_WAKEUPS if _without_wakeups(recorded) else (), 1e9 / hz)


def medians(found: Sequence[Fidelity]) -> Fidelity:
    """The medians over the repetitions of a replay, metric by metric.

    Parameters
    ----------
    found
        At least one. A metric that fewer than half of them have is left out.
    """
    names = dict.fromkeys(name for one in found for name in one.pairs)
    of = {name: [one.pairs[name] for one in found if name in one.pairs] for name in names}
    pairs = {name: _median_of(seen) for name, seen in of.items() if 2 * len(seen) >= len(found)}
    return Fidelity(pairs, found[0].unrecorded, found[0].tick_ns)


def _median_of(pairs: Sequence[Pair]) -> Pair:
    n = statistics.median_low(p.n[0] for p in pairs), statistics.median_low(p.n[1] for p in pairs)
    values = ([p.recorded for p in pairs], [p.replayed for p in pairs], [p.distance for p in pairs])
    recorded, replayed, distance = (_known(v) for v in values)
    return Pair(pairs[0].unit, recorded, replayed, n, distance)


def _known(values: Sequence[float | None]) -> float | None:
    """The median of the values that are known; None where fewer than half are."""
    known = [v for v in values if v is not None]
    return statistics.median_low(known) if known and 2 * len(known) >= len(values) else None


#: The task stayed ready: it was preempted, or yielded.
_STAYED_READY = (pl.col("end_state").cast(pl.String).is_in(list(c.READY)) | pl.col("involuntary")).fill_null(
    False
)


@dataclass(frozen=True)
class _Side:
    """What one of the two has of each metric, computed when it is first asked for."""

    trace: Trace
    edge: int | None

    @cached_property
    def slices(self) -> pl.DataFrame:
        """Slices, up to the moment at which the recorded run was stopped.

        Endless tasks end in the recording because somebody ended them; that, and what followed
        (their exits, and a parent that waits for each), is no part of their programs, so that no
        replay can repeat it.
        """
        slices = self.trace.slices
        return slices if self.edge is None else slices.filter(pl.col("ts_ns") + pl.col("dur_ns") <= self.edge)

    @cached_property
    def left(self) -> tuple[int, int, int]:
        """How often tasks left a CPU ready to run, by a yield, and neither."""
        left = pl.col("end_state").is_not_null()
        yielded = pl.col("end_state").cast(pl.String) == "yielding"
        counts = self.slices.select(
            ready=(left & _STAYED_READY).sum(), yielded=yielded.sum(), left=left.sum()
        )
        ready, yields, every = counts.row(0)
        return ready, yields, every - ready

    @cached_property
    def delays(self) -> pl.Series:
        """Run delays that ended (`tracekit.analysis.latency.samples`), in order."""
        return self.slices["run_delay_ns"].drop_nulls().sort()

    @cached_property
    def lengths(self) -> pl.Series:
        """Slices that an involuntary switch ended, in order of their length."""
        whole = ~c.has(c.OPEN_START) & ~c.has(c.OPEN_END)
        return self.slices.filter(_STAYED_READY & whole)["dur_ns"].drop_nulls().sort()

    @cached_property
    def queue(self) -> tuple[float | None, dict[int, float]]:
        """Mean run-queue length, and the share of the time at each length."""
        rows = runqueue.steps(self.trace.runqueue, self.trace.end_ns).filter(scope="system")
        time = dict(rows.group_by("length").agg(pl.col("dur_ns").sum()).sort("length").iter_rows())
        span = sum(time.values())
        mean = sum(length * ns for length, ns in time.items()) / span if span else None
        return mean, {length: ns / span for length, ns in time.items()}

    @cached_property
    def shares(self) -> pl.DataFrame:
        """Share of each task in the time on CPUs."""
        return _shares(self.slices, "tid", [])

    def shares_by_second(self, start: int, full: int) -> pl.DataFrame:
        """Share of each group of tasks in the time on CPUs, in each of so many full seconds since `start`."""
        of = {
            "group": c.group_of("group"),
            "from": pl.col("ts_ns") - start,
            "to": pl.col("ts_ns") - start + pl.col("dur_ns"),
        }
        first, last = pl.col("from") // _SECOND, (pl.col("to") - 1).clip(pl.col("from")) // _SECOND
        cut = self.slices.select(**of).with_columns(second=pl.int_ranges(first, last + 1)).explode("second")
        low, high = pl.col("second") * _SECOND, (pl.col("second") + 1) * _SECOND
        ran = pl.col("to").clip(None, high) - pl.col("from").clip(low, None)
        rows = cut.filter(pl.col("second").is_between(0, full - 1)).select("group", "second", dur_ns=ran)
        return _shares(rows, "group", ["second"])

    @cached_property
    def placed(self) -> pl.DataFrame:
        """Who ran where, from when until when."""
        rows = self.slices.with_columns(c.group_of("group")).drop_nulls("cpu")
        end = (pl.col("ts_ns") + pl.col("dur_ns")).alias("end_ns")
        return rows.select(pl.col("cpu").cast(pl.Int64), "ts_ns", end, "tid", "group")

    @cached_property
    def ends(self) -> pl.DataFrame:
        """When each task ended that did."""
        gone = self.trace.slices.filter(pl.col("end_state").cast(pl.String).is_in(["dead", "zombie"]))
        return gone.group_by("tid").agg((pl.col("ts_ns") + pl.col("dur_ns")).max().alias("end"))


def _counts(a: _Side, b: _Side) -> dict[str, Pair]:
    (ready_a, yields_a, blocks_a), (ready_b, yields_b, blocks_b) = a.left, b.left
    if yields_a:  # the source distinguishes yields from preemptions
        ready_a, ready_b = ready_a - yields_a, ready_b - yields_b
    all_a, all_b = ready_a + yields_a + blocks_a, ready_b + (yields_b if yields_a else 0) + blocks_b
    rows = {
        "switches": (all_a, all_b),
        "preemptions": (ready_a, ready_b),
        "blocks": (blocks_a, blocks_b),
    }
    if yields_a:
        rows["yields"] = (yields_a, yields_b)
    found = {name: Pair("1", x, y, (x, y)) for name, (x, y) in rows.items()}
    run_a, run_b = int(a.slices["dur_ns"].sum()), int(b.slices["dur_ns"].sum())
    per = [run / n if n else None for run, n in ((run_a, ready_a), (run_b, ready_b))]
    found["main"] = Pair("ns", per[0], per[1], (ready_a, ready_b))
    return found


def _shares(slices: pl.DataFrame, key: str, of: Sequence[str]) -> pl.DataFrame:
    """Share of each `key` in the time on CPUs, of everything that is alike in `of`."""
    time = slices.group_by(*of, key).agg(pl.col("dur_ns").sum().alias("share"))
    total = pl.col("share").sum()
    return time.with_columns(pl.col("share") / (total.over(of) if of else total).clip(1))


def _largest(a: pl.DataFrame, b: pl.DataFrame, keys: Sequence[str]) -> float:
    """Largest gap between two shares, in percentage points."""
    both = a.join(b, on=keys, how="full", coalesce=True, suffix="_b", nulls_equal=True)
    gap = (both["share"].fill_null(0.0) - both["share_b"].fill_null(0.0)).abs().max()
    return 100 * float(gap) if isinstance(gap, float) else 0.0


def _cpu_shares(a: _Side, b: _Side, start: int, stop: int) -> dict[str, Pair]:
    n = (a.slices.height, b.slices.height)
    found = {"cpu_share": Pair("points", None, None, n, _largest(a.shares, b.shares, ["tid"]))}
    if full := (stop - start) // _SECOND:
        recorded = a.trace.once(("shares by second", a.edge, full), lambda: a.shares_by_second(start, full))
        far = _largest(recorded, b.shares_by_second(start, full), ["second", "group"])
        found["cpu_share_window"] = Pair("points", None, None, n, far)
    return found


def _quantile(ordered: pl.Series, q: float) -> float | None:
    return float(ordered[c.rank_of(q, ordered.len())]) if ordered.len() else None


def _distributions(a: _Side, b: _Side, resolution_ns: float) -> dict[str, Pair]:
    found = {}
    for name, (x, y), qs in (
        ("run_delay", (a.delays, b.delays), (0.5, 0.95)),
        ("slice", (a.lengths, b.lengths), (0.5,)),
    ):
        n = (x.len(), y.len())
        for q in qs:
            found[f"{name}_p{100 * q:.0f}"] = Pair("ns", _quantile(x, q), _quantile(y, q), n)
        found[f"{name}_ks"] = Pair("1", None, None, n, ks_distance(x, y, resolution_ns))
    return found


def _queues(a: _Side, b: _Side) -> dict[str, Pair]:
    n = (a.trace.runqueue.height, b.trace.runqueue.height)
    if min(n) == 0:
        return {}
    (mean_a, shares_a), (mean_b, shares_b) = a.queue, b.queue
    lengths = set(shares_a) | set(shares_b)
    moved = sum(abs(shares_a.get(k, 0.0) - shares_b.get(k, 0.0)) for k in lengths) / 2
    return {
        "runqueue_mean": Pair("1", mean_a, mean_b, n),
        "runqueue_histogram": Pair("1", None, None, n, moved),
    }


def _placement(a: _Side, b: _Side, start: int, stop: int) -> dict[str, Pair]:
    n = (a.placed.height, b.placed.height)
    # Groups, and tasks without a number, get one that is the same in both.
    numbered = pl.concat([a.placed, b.placed]).with_columns(
        pl.col("group").cast(pl.Categorical).to_physical().cast(pl.Int64).fill_null(-1),
        pl.col("tid").fill_null(-1),
    )
    runs = numbered.head(n[0]), numbered.tail(n[1])
    one, other = ([np.ascontiguousarray(column.to_numpy()) for column in run] for run in runs)
    task, group, idle, cpus = _core.agreement(one, other, start, stop)
    total = max((stop - start) * cpus, 1)
    return {
        "placement": Pair("1", None, None, n, group / total),
        "placement_task": Pair("1", None, None, n, task / total),
        "idle_share": Pair("points", 100 * idle[0] / total, 100 * idle[1] / total, n),
    }


def _drift(a: _Side, b: _Side, start: int) -> dict[str, Pair]:
    both = a.ends.join(b.ends, on="tid", suffix="_b")
    if both.height == 0:
        return {}
    last = both.sort("end").tail(1)
    n = (a.ends.height, both.height)
    return {"drift": Pair("ns", float(last["end"][0] - start), float(last["end_b"][0] - start), n)}


def _resolution(recorded: Trace, replayed: Trace) -> float:
    """Smallest difference of two times that means something, ns.

    It is that of the clock, and of what the machine's costs vary by.
    """
    text = recorded.metadata.get("clock.resolution_ns", "1")
    inferred = getattr(replayed, "inferred", None)
    found = [] if inferred is None else inferred.filter(name="jitter")["value"].drop_nulls().to_list()
    clock = float(text) if text.isdigit() else 1.0
    return float(max(clock, *found, MIN_JITTER_NS))


def _stopped(recorded: Trace, replayed: Trace) -> int | None:
    """When the recorded run was stopped, where tasks are taken for endless."""
    inferred = getattr(replayed, "inferred", None)
    stop = None if inferred is None else inferred.filter(name="recorded run stopped")["value"]
    ends = None if inferred is None else inferred.filter(name="endless tasks")["value"]
    if stop is None or ends is None or not stop.len() or not ends.len() or not ends[0]:
        return None
    return (recorded.start_ns or 0) + int(stop[0])


def _without_wakeups(trace: Trace) -> bool:
    """Switches are recorded, and no wakeup."""
    kinds = set(trace.columns("events", "kind")["kind"].unique().cast(pl.String).to_list())
    return bool(kinds & {"switch", "resume"}) and not kinds & set(_WAKES)
