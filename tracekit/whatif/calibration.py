"""How far a replay under the policy of the recording is from the recording itself.

A replay that cannot repeat what was recorded has nothing to say about another policy. `calibrate`
sets the two side by side, metric by metric, and judges by the tolerances of
``replay/tolerances.toml``, which were fixed before anything was measured. Pure functions of the
tables of both.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit import _core
from tracekit._lazy import later
from tracekit.analysis import _common as c
from tracekit.analysis import latency, runqueue
from tracekit.analysis.uncertainty import ks_distance
from tracekit.units import format_names, format_ns
from tracekit.whatif.intervals import MIN_JITTER_NS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracekit.trace import Trace
else:
    np = later("numpy")

__all__ = ["METRICS", "calibrate", "tolerances"]

#: What each metric is.
METRICS: dict[str, str] = {
    "main": "run time per involuntary switch, of all tasks together",
    "switches": "how often a task left a CPU",
    "preemptions": "involuntary switches (yields included where the source does not distinguish them)",
    "yields": "switches of tasks that gave the CPU up and stayed ready",
    "blocks": "switches of tasks that went to sleep or ended",
    "cpu_share": "largest difference of a task's share of the CPU time",
    "cpu_share_window": "the same in each second, of groups of tasks",
    "run_delay_p50": "run delay (runnable until running), median",
    "run_delay_p95": "run delay, 95th percentile",
    "run_delay_ks": "distance of the distributions of run delays (Kolmogorov-Smirnov, at the resolution of clock and jitter)",
    "slice_p50": "slices that an involuntary switch ended, median",
    "slice_ks": "distance of the distributions of these slices",
    "runqueue_mean": "run-queue length weighted by time",
    "runqueue_histogram": "share of time that is spent at other run-queue lengths",
    "idle_share": "share of the time in which CPUs were idle",
    "placement": "share of time in which each CPU runs a task of the same group in both",
    "placement_task": "the same for the very same task (shown, not judged)",
    "drift": "when the last task ended that ends in both, since the start",
}

#: How a terminal names them; `compare` uses the same words.
TITLES: dict[str, str] = {
    "main": "slice per invol. switch",
    "switches": "switches",
    "preemptions": "involuntary switches",
    "yields": "yields",
    "blocks": "sleeps and exits",
    "cpu_share": "CPU share of tasks",
    "cpu_share_window": "CPU share by second",
    "run_delay_p50": "run delay, p50",
    "run_delay_p95": "run delay, p95",
    "run_delay_ks": "run delay, dist.",
    "slice_p50": "preempted slice, p50",
    "slice_ks": "preempted slice, dist.",
    "runqueue_mean": "run-queue length, mean",
    "runqueue_histogram": "run-queue length, dist.",
    "idle_share": "idle share",
    "placement": "same group on the CPU",
    "placement_task": "same task on the CPU",
    "drift": "end of the last task",
}


def titles(names: Sequence[str], most: int = 4) -> str:
    """Metrics by their titles, the first few of them.

    Examples
    --------
    >>> titles(["main", "switches", "yields"], most=2)
    'slice per invol. switch, switches and 1 more'
    """
    return format_names([TITLES[name] for name in names], most)


def passed(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many metrics of a calibration pass, and how many of these by a fixed allowance alone.

    Parameters
    ----------
    rows
        Rows of `calibrate`.

    Examples
    --------
    >>> passed([{"result": "pass", "only_by": "400 us"}, {"result": "fail", "only_by": None}])
    '1 of 2 metrics pass, 1 only by a fixed allowance'
    """
    judged = [row for row in rows if row["result"] != "not measured"]
    found = [row for row in judged if row["result"] == "pass"]
    fixed = sum(row["only_by"] is not None for row in found)
    only = f", {fixed} only by a fixed allowance" if fixed else ""
    return f"{len(found)} of {len(judged)} metrics pass{only}"


#: Metrics that take records of wakeups: without them a task counts as runnable, after a sleep, only
#: once it has a CPU.
_OF_WAKEUPS = ("run_delay_p50", "run_delay_p95", "run_delay_ks", "runqueue_mean", "runqueue_histogram")
#: Records that say when a task became runnable.
_WAKES = ("waking", "wakeup", "wakeup_new", "enqueue", "stat_wait")

_SCHEMA = {
    "metric": pl.String,
    "unit": pl.String,
    "recorded": pl.Float64,
    "replayed": pl.Float64,
    "error": pl.Float64,
    "error_pct": pl.Float64,
    "allowed": pl.String,
    "n_recorded": pl.UInt32,
    "n_replayed": pl.UInt32,
    "result": pl.String,
    "only_by": pl.String,
}


@dataclass(frozen=True)
class _Pair:
    """A metric of both; of a metric that is a distance by itself, only `distance`."""

    unit: str
    recorded: float | None
    replayed: float | None
    n: tuple[int, int]
    distance: float | None = None


def tolerances() -> dict[str, dict[str, float]]:
    """Give the tolerances of every metric, as in ``replay/tolerances.toml``."""
    return tomllib.loads(_core.TOLERANCES)


#: The task stayed ready: it was preempted, or yielded.
_STAYED_READY = (pl.col("end_state").cast(pl.String).is_in(list(c.READY)) | pl.col("involuntary")).fill_null(
    False
)


def _ready(slices: pl.DataFrame) -> tuple[int, int, int]:
    """How often tasks left a CPU ready to run, by a yield, and neither."""
    left = slices.filter(pl.col("end_state").is_not_null())
    yielded = left.filter(pl.col("end_state").cast(pl.String) == "yielding").height
    ready = left.filter(_STAYED_READY).height
    return ready, yielded, left.height - ready


def _counts(a: pl.DataFrame, b: pl.DataFrame) -> dict[str, _Pair]:
    (ready_a, yields_a, blocks_a), (ready_b, yields_b, blocks_b) = _ready(a), _ready(b)
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
    found = {name: _Pair("1", x, y, (x, y)) for name, (x, y) in rows.items()}
    run_a, run_b = int(a["dur_ns"].sum()), int(b["dur_ns"].sum())
    per = [run / n if n else None for run, n in ((run_a, ready_a), (run_b, ready_b))]
    found["main"] = _Pair("ns", per[0], per[1], (ready_a, ready_b))
    return found


def _shares(slices: pl.DataFrame, key: str, of: Sequence[str]) -> pl.DataFrame:
    """Share of each `key` in the time on CPUs, of everything that is alike in `of`."""
    time = slices.group_by(*of, key).agg(pl.col("dur_ns").sum().alias("share"))
    total = pl.col("share").sum()
    return time.with_columns(pl.col("share") / (total.over(of) if of else total).clip(1))


def _largest(a: pl.DataFrame, b: pl.DataFrame, key: str, of: Sequence[str] = ()) -> float:
    """Largest gap between two shares, in percentage points."""
    both = _shares(a, key, of).join(
        _shares(b, key, of), on=[*of, key], how="full", coalesce=True, suffix="_b", nulls_equal=True
    )
    gap = (both["share"].fill_null(0.0) - both["share_b"].fill_null(0.0)).abs().max()
    return 100 * float(gap) if isinstance(gap, float) else 0.0


def _windows(slices: pl.DataFrame, start: int) -> pl.DataFrame:
    """Slices cut at full seconds since `start`."""
    second = 1_000_000_000
    begin = pl.col("ts_ns") - start
    cut = slices.select(
        c.group_of("group"), begin.alias("from"), (begin + pl.col("dur_ns")).alias("to")
    ).with_columns(
        pl.int_ranges(pl.col("from") // second, (pl.col("to") - 1).clip(pl.col("from")) // second + 1).alias(
            "second"
        )
    )
    low, high = pl.col("second") * second, (pl.col("second") + 1) * second
    return cut.explode("second").select(
        "group", "second", (pl.col("to").clip(None, high) - pl.col("from").clip(low, None)).alias("dur_ns")
    )


def _cpu_shares(a: pl.DataFrame, b: pl.DataFrame, start: int, stop: int) -> dict[str, _Pair]:
    n = (a.height, b.height)
    found = {"cpu_share": _Pair("points", None, None, n, _largest(a, b, "tid"))}
    if full := (stop - start) // 1_000_000_000:
        x, y = (_windows(t, start).filter(pl.col("second").is_between(0, full - 1)) for t in (a, b))
        found["cpu_share_window"] = _Pair("points", None, None, n, _largest(x, y, "group", ["second"]))
    return found


def _quantile(values: pl.Series, q: float) -> float | None:
    if values.len() == 0:
        return None
    return float(values.sort()[c.rank_of(q, values.len())])


def _distributions(a: pl.DataFrame, b: pl.DataFrame, resolution_ns: float) -> dict[str, _Pair]:
    delays = [latency.samples(t).filter(~pl.col("censored"))["run_delay_ns"].drop_nulls() for t in (a, b)]
    lengths = [
        t.filter(_STAYED_READY & ~c.has(c.OPEN_START) & ~c.has(c.OPEN_END))["dur_ns"].drop_nulls()
        for t in (a, b)
    ]
    found = {}
    for name, (x, y), qs in (("run_delay", delays, (0.5, 0.95)), ("slice", lengths, (0.5,))):
        n = (x.len(), y.len())
        for q in qs:
            found[f"{name}_p{100 * q:.0f}"] = _Pair("ns", _quantile(x, q), _quantile(y, q), n)
        found[f"{name}_ks"] = _Pair("1", None, None, n, ks_distance(x, y, resolution_ns))
    return found


def _queues(a: Trace, b: Trace) -> dict[str, _Pair]:
    n = (a.runqueue.height, b.runqueue.height)
    if min(n) == 0:
        return {}
    means: list[float | None] = []
    shares: list[dict[int, float]] = []
    for t in (a, b):
        rows = runqueue.steps(t.runqueue, t.end_ns).filter(scope="system")
        time = dict(rows.group_by("length").agg(pl.col("dur_ns").sum()).sort("length").iter_rows())
        span = sum(time.values())
        means.append(sum(length * ns for length, ns in time.items()) / span if span else None)
        shares.append({length: ns / span for length, ns in time.items()})
    seen = set(shares[0]) | set(shares[1])
    moved = sum(abs(shares[0].get(k, 0.0) - shares[1].get(k, 0.0)) for k in seen) / 2
    return {
        "runqueue_mean": _Pair("1", means[0], means[1], n),
        "runqueue_histogram": _Pair("1", None, None, n, moved),
    }


def _covering(rows: pl.DataFrame, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """The slice that covers each moment, of rows in time order; -1 when idle."""
    if rows.height == 0:
        return np.full(len(at), -1)
    begin = rows["ts_ns"].to_numpy()
    end = begin + rows["dur_ns"].to_numpy()
    found = np.searchsorted(begin, at, side="right") - 1
    return np.where((found >= 0) & (at < end[found]), found, -1)


def _who(
    rows: Sequence[pl.DataFrame], covering: Sequence[NDArray[np.int64]], key: str
) -> list[NDArray[np.int64]]:
    """Who runs at each moment, as a number that is the same in both; -1 when idle."""
    values = pl.concat([r.select(key) for r in rows]).unique(maintain_order=True).with_row_index("code")
    found = []
    for r, at in zip(rows, covering, strict=True):
        codes = r.select(key).join(values, on=key, how="left", nulls_equal=True, maintain_order="left")
        # A last one for those that are idle.
        code = np.append(codes["code"].to_numpy().astype(np.int64), -1)
        found.append(code[at])
    return found


def _placement(a: pl.DataFrame, b: pl.DataFrame, start: int, stop: int) -> dict[str, _Pair]:
    names = ("cpu", "ts_ns", "dur_ns", "tid", "group")
    both = [t.with_columns(c.group_of("group")).select(names).sort("ts_ns") for t in (a, b)]
    n = (a.height, b.height)
    cpus = sorted({*a["cpu"].unique().to_list(), *b["cpu"].unique().to_list()} - {None})
    same = {"group": 0, "tid": 0}
    idle = [0, 0]
    for cpu in cpus:
        rows = [t.filter(cpu=cpu) for t in both]
        edges = [np.array([start, stop])]
        for r in rows:
            edges += [r["ts_ns"].to_numpy(), (r["ts_ns"] + r["dur_ns"]).to_numpy()]
        # Runs that are in order already, as a stable sort finds them.
        edge = np.sort(np.concatenate(edges).clip(start, stop), kind="stable")
        at, length = edge[:-1], np.diff(edge)
        covering = [_covering(r, at) for r in rows]
        for key in same:
            who = _who(rows, covering, key)
            same[key] += int(length[who[0] == who[1]].sum())
        for i in (0, 1):
            idle[i] += int(length[covering[i] == -1].sum())
    total = max((stop - start) * len(cpus), 1)
    return {
        "placement": _Pair("1", None, None, n, same["group"] / total),
        "placement_task": _Pair("1", None, None, n, same["tid"] / total),
        "idle_share": _Pair("points", 100 * idle[0] / total, 100 * idle[1] / total, n),
    }


def _drift(a: Trace, b: Trace, start: int) -> dict[str, _Pair]:
    ends = []
    for t in (a, b):
        gone = t.slices.filter(pl.col("end_state").cast(pl.String).is_in(["dead", "zombie"]))
        ends.append(gone.group_by("tid").agg((pl.col("ts_ns") + pl.col("dur_ns")).max().alias("end")))
    both = ends[0].join(ends[1], on="tid", suffix="_b")
    if both.height == 0:
        return {}
    last = both.sort("end").tail(1)
    n = (ends[0].height, both.height)
    return {"drift": _Pair("ns", float(last["end"][0] - start), float(last["end_b"][0] - start), n)}


def _judge(metric: str, pair: _Pair, rule: Mapping[str, float], tick_ns: float) -> dict[str, Any]:
    """A row of the result."""
    row: dict[str, Any] = {
        "metric": metric,
        "unit": pair.unit,
        "recorded": pair.recorded,
        "replayed": pair.replayed,
        "n_recorded": pair.n[0],
        "n_replayed": pair.n[1],
        "error": None,
        "error_pct": None,
        "allowed": "",
        "only_by": None,
    }
    value = pair.distance
    if value is None and pair.recorded is not None and pair.replayed is not None:
        value = pair.replayed - pair.recorded
        if pair.recorded:
            row["error_pct"] = 100 * value / pair.recorded
    row["error"] = value
    limits: list[tuple[float, str]] = []
    for key, allowed in rule.items():
        match key:
            case "relative":
                limits.append((allowed * abs(pair.recorded or 0), f"{100 * allowed:g} %"))
            case "ticks":
                limits.append((allowed * tick_ns, f"{allowed:g} tick"))
            case "absolute":
                limits.append((allowed, f"{allowed:g}"))
            case "points":
                limits.append((allowed, f"{allowed:g} percentage points"))
            case "most":
                limits.append((allowed, f"at most {allowed:g}"))
    # Few samples on one side against many on the other are a difference, not a lack of samples.
    if value is None or max(pair.n) < rule.get("min_n", 1):
        row["result"] = "not measured"
        row["allowed"] = f"needs n >= {rule.get('min_n', 1):g}" if max(pair.n) < rule.get("min_n", 1) else ""
        return row
    if "least" in rule:
        row["allowed"] = f"at least {rule['least']:g}"
        row["result"] = "pass" if value >= rule["least"] else "fail"
        return row
    row["allowed"] = " or ".join(text for _, text in limits)
    row["result"] = "pass" if abs(value) <= max(limit for limit, _ in limits) else "fail"
    if (
        row["result"] == "pass"
        and "relative" in rule
        and abs(value) > rule["relative"] * abs(pair.recorded or 0)
    ):
        fixed = max(((limit, text) for limit, text in limits if abs(value) <= limit), default=(0.0, ""))
        row["only_by"] = format_ns(fixed[0]) if pair.unit == "ns" else fixed[1]
    return row


def _resolution(recorded: Trace, replayed: Trace) -> float:
    """Smallest difference of two times that means something, ns.

    It is that of the clock, and of what the machine's costs vary by.
    """
    text = recorded.metadata.get("clock.resolution_ns", "1")
    inferred = getattr(replayed, "inferred", None)
    found = [] if inferred is None else inferred.filter(name="jitter")["value"].drop_nulls().to_list()
    clock = float(text) if text.isdigit() else 1.0
    return float(max(clock, *found, MIN_JITTER_NS))


def _until_stopped(recorded: Trace, replayed: Trace) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Slices of both, up to the moment at which the recorded run was stopped.

    Endless tasks end in the recording because somebody ended them; that, and what followed (their
    exits, and a parent that waits for each), is no part of their programs, so that no replay can
    repeat it.
    """
    inferred = getattr(replayed, "inferred", None)
    stop = None if inferred is None else inferred.filter(name="recorded run stopped")["value"]
    ends = None if inferred is None else inferred.filter(name="endless tasks")["value"]
    if stop is None or ends is None or not stop.len() or not ends.len() or not ends[0]:
        return recorded.slices, replayed.slices
    edge = (recorded.start_ns or 0) + int(stop[0])
    left = pl.col("ts_ns") + pl.col("dur_ns") <= edge
    return recorded.slices.filter(left), replayed.slices.filter(left)


def _without_wakeups(trace: Trace) -> bool:
    """Switches are recorded, and no wakeup."""
    kinds = set(trace.columns("events", "kind")["kind"].unique().cast(pl.String).to_list())
    return bool(kinds & {"switch", "resume"}) and not kinds & set(_WAKES)


def calibrate(
    recorded: Trace, replayed: Trace, rules: Mapping[str, Mapping[str, float]] | None = None
) -> pl.DataFrame:
    """Judge a replay against the recording that it was made from.

    Definitions: see `METRICS`. Where tasks are taken for endless, slices count that ended before the
    recorded run was stopped. A metric passes when its error is within any allowance of its rule; it
    is not measured when there are fewer samples than the rule wants, or when the trace does not
    hold what it takes: without records of wakeups, run delays and run queues.

    Parameters
    ----------
    recorded
        The recording.
    replayed
        Its replay under the policy that it was captured under.
    rules
        Tolerances by metric; by default those of ``replay/tolerances.toml``.

    Returns
    -------
    pl.DataFrame
        One row per metric, in the order of `METRICS`: `metric`, `unit` (String: `ns`, `1`,
        `points`), `recorded`, `replayed` (Float64; null for a metric that compares the two by
        itself), `error` (Float64, replayed - recorded, or the distance), `error_pct` (Float64, of
        recorded), `allowed` (String), `n_recorded`, `n_replayed` (UInt32), `result` (String:
        `pass`, `fail`, `not measured`), `only_by` (String: the fixed allowance, such as ``400 us``,
        by which alone a metric passes whose error in % is too large; null for others).

    Notes
    -----
    How it can mislead: a fixed allowance (a tenth of a tick, 5 switches) lets any value pass that is
    small beside it, however wrong: see `only_by`. Schedules that drift apart by a moment place other tasks at the same time
    and are still as good a prediction of slices and delays; look at the distributions before the
    placement.
    """
    rules = tolerances() if rules is None else rules
    start = recorded.start_ns or 0
    stop = max(min(recorded.end_ns or 0, replayed.end_ns or 0), start + 1)
    a, b = _until_stopped(recorded, replayed)
    pairs = {
        **_counts(a, b),
        **_cpu_shares(a, b, start, stop),
        **_distributions(a, b, _resolution(recorded, replayed)),
        **_queues(recorded, replayed),
        **_placement(a, b, start, stop),
        **_drift(recorded, replayed, start),
    }
    hz = int(replayed.metadata.get("hz", "250"))
    missing = _Pair("", None, None, (0, 0))
    unrecorded = _OF_WAKEUPS if _without_wakeups(recorded) else ()
    rows = [
        _judge(
            name, missing if name in unrecorded else pairs.get(name, missing), rules.get(name, {}), 1e9 / hz
        )
        | ({"allowed": "needs records of wakeups"} if name in unrecorded else {})
        for name in METRICS
    ]
    return pl.DataFrame(rows, schema=_SCHEMA)
