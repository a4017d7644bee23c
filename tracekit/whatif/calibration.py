"""How far a replay under the policy of the recording is from the recording itself.

A replay that cannot repeat what was recorded has nothing to say about another policy. `calibrate`
sets the two side by side, metric by metric, and judges by the tolerances of
``replay/tolerances.toml``, which were fixed before anything was measured. Pure functions of the
tables of both.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit import _core
from tracekit.units import format_names, format_ns
from tracekit.whatif.fidelity import Fidelity, Pair, fidelity, medians

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["METRICS", "calibrate", "judge", "keeps_phase", "tolerances"]

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


def tolerances() -> dict[str, dict[str, float]]:
    """Give the tolerances of every metric, as in ``replay/tolerances.toml``."""
    return tomllib.loads(_core.TOLERANCES)


def _judge(metric: str, pair: Pair, rule: Mapping[str, float], tick_ns: float) -> dict[str, Any]:
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


def calibrate(
    recorded: Trace,
    replayed: Trace | Sequence[Trace],
    rules: Mapping[str, Mapping[str, float]] | None = None,
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
        Its replay under the policy that it was captured under, or several repetitions of it: the
        median of each metric is judged then.
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
    repetitions = replayed if isinstance(replayed, Sequence) else [replayed]
    return judge([fidelity(recorded, one) for one in repetitions], rules)


def judge(found: Sequence[Fidelity], rules: Mapping[str, Mapping[str, float]] | None = None) -> pl.DataFrame:
    """Judge the medians over the repetitions of a replay; see `calibrate`.

    Or the plain replay, where `keeps_phase` says that tasks keep a phase.

    Parameters
    ----------
    found
        The recording beside each repetition, the plain replay first.
    rules
        As in `calibrate`.
    """
    rules = tolerances() if rules is None else rules
    rows = _rows(medians(found[:1] if keeps_phase(found, rules) else found), rules)
    return pl.DataFrame(rows, schema=_SCHEMA)


def keeps_phase(found: Sequence[Fidelity], rules: Mapping[str, Mapping[str, float]] | None = None) -> bool:
    """Say whether the plain replay repeats what no perturbed one does: tasks keep a phase among one another.

    Definition: it fails at least two metrics less than the best of the others, and less than half as
    many. By chance it is not that much better than each of eight; of a schedule without any
    disturbance, as simulators make it, it is.

    Parameters
    ----------
    found, rules
        As in `judge`; with fewer than two perturbed repetitions it is False.
    """
    if len(found) < 3:
        return False
    rules = tolerances() if rules is None else rules
    plain, *others = ([row["result"] for row in _rows(one, rules)].count("fail") for one in found)
    best = min(others)
    return plain + 2 <= best and 2 * plain < best


def _rows(of: Fidelity, rules: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    missing = Pair("", None, None, (0, 0))
    return [
        _judge(
            name,
            missing if name in of.unrecorded else of.pairs.get(name, missing),
            rules.get(name, {}),
            of.tick_ns,
        )
        | ({"allowed": "needs records of wakeups"} if name in of.unrecorded else {})
        for name in METRICS
    ]
