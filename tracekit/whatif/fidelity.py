"""What a recording and a replay of it have of each metric by which a replay is judged.

`tracekit.whatif.calibration` judges it. Pure functions of the tables of both.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit import _core
from tracekit.analysis import _common as c
from tracekit.whatif.intervals import MIN_JITTER_NS

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["NEEDS", "Fidelity", "Pair", "fidelity", "medians"]

#: Tables of a replay that it is judged by.
NEEDS = ("slices", "runqueue")
#: Columns of `slices` that it is judged by; the others are not copied.
_OF_SLICES = [
    "ts_ns",
    "dur_ns",
    "cpu",
    "utid",
    "tid",
    "comm",
    "end_state",
    "involuntary",
    "run_delay_ns",
    "flags",
]

#: Metrics that take records of wakeups: without them a task counts as runnable, after a sleep, only
#: once it has a CPU.
OF_WAKEUPS = ("run_delay_p50", "run_delay_p95", "run_delay_ks", "runqueue_mean", "runqueue_histogram")
#: Records that say when a task became runnable.
_WAKES = ("waking", "wakeup", "wakeup_new", "enqueue", "stat_wait")
#: Clock ticks a second where the replay does not say: Linux's default (kernel/Kconfig.hz).
_HZ = "250"


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
        Its replay, with the tables `NEEDS` at least.
    """
    start = recorded.start_ns or 0
    stop = max(min(recorded.end_ns or 0, replayed.end_ns or 0), start + 1)
    # Endless tasks end in the recording because somebody ended them; that, and what followed (their exits,
    # and a parent that waits for each), is no part of their programs, so that no replay can repeat it.
    edge = _stopped(recorded, replayed)
    a = recorded.once(("fidelity of it", edge), lambda: _side(recorded, edge))
    b = _side(replayed, edge)
    apart = a.apart(b, start, stop, _resolution(recorded, replayed))
    share, share_window, delays, lengths, both, placed, last_end = apart
    n = (a.slices, b.slices)
    pairs = {**_counts(a, b), "cpu_share": Pair("points", None, None, n, 100 * share)}
    if share_window is not None:
        pairs["cpu_share_window"] = Pair("points", None, None, n, 100 * share_window)
    pairs |= _distribution("run_delay", (a.delays, b.delays), (a.delay, b.delay), (0.5, 0.95), delays)
    pairs |= _distribution("slice", (a.lengths, b.lengths), (a.length, b.length), (0.5,), lengths)
    pairs |= {**_queues(a, b), **_placement(both, placed, stop - start)}
    if last_end is not None:
        (end_a, end_b), ended = last_end
        pairs["drift"] = Pair("ns", float(end_a - start), float(end_b - start), ended)
    hz = int(replayed.metadata.get("hz", _HZ))
    return Fidelity(pairs, OF_WAKEUPS if _without_wakeups(recorded) else (), 1e9 / hz)


def _side(trace: Trace, edge: int | None) -> _core.Side:
    """What one of the two has; of its slices those that end by `edge`."""
    return _core.Side(
        trace.at_hand("slices").select(_OF_SLICES), trace.at_hand("runqueue"), edge, trace.end_ns
    )


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


def _counts(a: _core.Side, b: _core.Side) -> dict[str, Pair]:
    (ready_a, yields_a, all_a), (ready_b, yields_b, all_b) = a.left, b.left
    blocks_a, blocks_b = all_a - ready_a, all_b - ready_b
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
    per = [run / n if n else None for run, n in ((a.ran_ns, ready_a), (b.ran_ns, ready_b))]
    found["main"] = Pair("ns", per[0], per[1], (ready_a, ready_b))
    return found


def _distribution(
    name: str,
    n: tuple[int, int],
    at: tuple[Callable[[int], int | None], Callable[[int], int | None]],
    quantiles: Sequence[float],
    distance: float | None,
) -> dict[str, Pair]:
    """Quantiles of times of which `at` gives the one of a rank, and how far their distributions are apart."""
    found = {}
    for q in quantiles:
        one, other = (
            float(v) if count and (v := of(c.rank_of(q, count))) is not None else None
            for count, of in zip(n, at, strict=True)
        )
        found[f"{name}_p{100 * q:.0f}"] = Pair("ns", one, other, n)
    return found | {f"{name}_ks": Pair("1", None, None, n, distance)}


def _queues(a: _core.Side, b: _core.Side) -> dict[str, Pair]:
    n = (a.queue_rows, b.queue_rows)
    if min(n) == 0:
        return {}
    (mean_a, shares_a), (mean_b, shares_b) = _queue(a), _queue(b)
    lengths = set(shares_a) | set(shares_b)
    moved = sum(abs(shares_a.get(k, 0.0) - shares_b.get(k, 0.0)) for k in lengths) / 2
    return {
        "runqueue_mean": Pair("1", mean_a, mean_b, n),
        "runqueue_histogram": Pair("1", None, None, n, moved),
    }


def _queue(side: _core.Side) -> tuple[float | None, dict[int, float]]:
    """Mean run-queue length, and the share of the time at each length."""
    time = dict(side.queue)
    span = sum(time.values())
    mean = sum(length * ns for length, ns in time.items()) / span if span else None
    return mean, {length: ns / span for length, ns in time.items()}


def _placement(both: tuple[int, int, tuple[int, int], int], n: tuple[int, int], span: int) -> dict[str, Pair]:
    task, group, idle, cpus = both
    total = max(span * cpus, 1)
    return {
        "placement": Pair("1", None, None, n, group / total),
        "placement_task": Pair("1", None, None, n, task / total),
        "idle_share": Pair("points", 100 * idle[0] / total, 100 * idle[1] / total, n),
    }


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
