"""Blame that is tested: the trace replayed without each cause, and what the response gains."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from tracekit.analysis import _common as c
from tracekit.analysis import blame, response, uncertainty
from tracekit.errors import FilterError, ReplayError
from tracekit.explain.changes import PART, VARIANTS, Culprit, lock_time, replays, untestable, without
from tracekit.explain.delays import Why, why
from tracekit.trace import Trace
from tracekit.whatif.identity import stated
from tracekit.whatif.intervals import FLOOR, KINDS, Z90, model_error
from tracekit.whatif.run import Programs

__all__ = ["VARIANTS", "counterfactuals", "without"]

_SCHEMA = {
    "culprit": pl.String,
    "variant": pl.String,
    "attributed_ns": pl.Float64,
    "recorded_ns": pl.Float64,
    "base_ns": pl.Float64,
    "gain_ns": pl.Float64,
    "lo_ns": pl.Float64,
    "hi_ns": pl.Float64,
    "verdict": pl.String,
    "reason": pl.String,
}


def _responses(run: Trace, tids: pl.Series) -> pl.DataFrame:
    """The complete responses of some threads, in time order."""
    found = response.samples(run.slices, run.states, run.end_ns)
    return found.filter(pl.col("tid").is_in(tids.implode()) & (pl.col("status") == "complete")).sort(
        "wake_ts_ns"
    )


def _metric(run: Trace, tids: pl.Series, q: float | None) -> float | None:
    """Mean or quantile of the complete responses of some threads."""
    values = _responses(run, tids)["response_ns"]
    if not len(values):
        return None
    if q is None:
        return float(np.mean(values.to_numpy()))
    return float(values.sort()[c.rank_of(q, len(values))]) if c.enough_for(q, len(values)) else None


#: Parts of a window in which a task waited for others.
_WAITED = ("awaited", "waiting", "preempted", "yielded", "interrupt", "softirq", "dispatch")


def _waited(run: Trace, tids: pl.Series) -> float:
    """Time that some threads waited for others, in a whole run; per thread."""
    pieces = why(run, tid=tids.to_list(), what="window").pieces
    return float(pieces.filter(pl.col("cause").is_in(list(_WAITED)))["dur_ns"].sum()) / max(len(tids), 1)


def _sampling(run: Trace, tids: pl.Series, q: float | None) -> float:
    """Half-width of the 90 % interval of the metric: what a sample of this size leaves open, ns."""
    rows = _responses(run, tids)
    row = uncertainty.interval(
        rows["response_ns"].cast(pl.Float64), "mean" if q is None else q, 0.9, tasks=rows["tid"]
    ).row(0, named=True)
    return 0.0 if row["lo"] is None else (row["hi"] - row["lo"]) / 2


def _interval(
    gains: Sequence[float], identity: float, sampling: float, model: float, floor: float
) -> tuple[float, float]:
    """90 % interval of a gain; all in ns."""
    mean = float(np.mean(gains))
    spread = Z90 * statistics.stdev(gains) if len(gains) > 1 else 0.0
    half = max(math.hypot(spread, identity, sampling, model), floor)
    return mean - half, mean + half


def _verdict(attributed: float, lo: float, hi: float) -> str:
    if lo <= attributed <= hi:
        # An interval that holds no gain at all, too, says nothing of the cause.
        return "cannot tell" if lo <= 0 else "agrees"
    if attributed > hi:
        return "gains less than attributed" if hi > 0 else "gains nothing: others take its place"
    return "gains more than attributed"


def counterfactuals(
    trace: Trace,
    found: Why,
    top: int = 3,
    runs: int = 5,
    variants: Sequence[str] = tuple(VARIANTS),
    progress: Callable[[float], object] | None = None,
) -> pl.DataFrame:
    """Replay a trace without each of the top causes, and say what the response gains.

    Definition: gain = metric of the identity replay - metric of the replay with the change, run by
    run with the same perturbation of the machine; metric = mean response, or the quantile of
    `found`; of a window (which is the whole trace) the time that each task waited for others, awake
    or asleep. Attributed = time of the culprit's parts per response (per slow response for a
    quantile); half of it where the change halves it; of the parts behind a lock alone where the
    lock is held half as long. Interval = gain -+ sqrt((1.645 s)^2 + e^2 + b^2 + (c m)^2): s the
    standard deviation of the gain over the perturbations; e = |median of the identity replays -
    recorded|; b the half-width of the 90 % interval of the metric with the change, for the size of
    the sample; m that metric, c the `base` of the model error for a change within the same
    scheduler (`tracekit.whatif.intervals`); at least 0.5 % of the metric.

    Parameters
    ----------
    trace
        The whole trace.
    found
        From `tracekit.explain.delays.why`, of responses, or of the whole trace as one window: a sleep for
        a lock ends a response, so that only a window shows what the lock cost.
    top
        How many culprits.
    runs
        Perturbed replays of each.
    variants
        Keys of `VARIANTS`.
    progress
        Called with the share that is done.

    Returns
    -------
    pl.DataFrame
        By culprit and variant: `culprit`, `variant` (String), `attributed_ns`, `recorded_ns`,
        `base_ns` (Float64, the metric as recorded and the metric in the identity replay),
        `gain_ns`, `lo_ns`, `hi_ns` (Float64, 90 % interval; null with `reason`), `verdict` (String:
        `agrees`, `gains less than attributed`, `gains nothing: others take its place`,
        `gains more than attributed`, `cannot tell` where the interval holds 0 as well,
        `not tested`), `reason` (String, why it could not be tested; else null).

    Raises
    ------
    FilterError
        When `found` is of waits, or of a part of the trace.
    ReplayError
        When the trace cannot be replayed.
    ValueError
        For a variant that does not exist.

    Notes
    -----
    How it can mislead: a task or handler that is absent also sends nothing: whom it woke is still
    woken when it was. The gain of two causes together is not the sum of their gains. What tasks
    take on a CPU is as recorded: caches that a culprit kept cold stay cold.
    """
    unknown = [v for v in variants if v not in VARIANTS]
    if unknown:
        raise ValueError(f"unknown variant {unknown[0]!r}: expected one of {', '.join(VARIANTS)}")
    if found.what == "waits":
        raise FilterError(
            f"expected the causes of responses, found those of {found.what}: only responses can be replayed"
        )
    if found.what == "window" and (found.start_ns, found.end_ns) != (trace.start_ns, trace.end_ns):
        raise FilterError(
            "expected the whole trace as the window: a part of it has no counterpart in a replay; leave out --from and --to"
        )
    test = _Test(trace, found, runs)
    culprits = found.causes.filter(pl.col("tail_share") > 0).head(top)
    rows: list[dict[str, object]] = []
    for number, name in enumerate(culprits["culprit"].to_list()):
        rows += [test.row(name, variant) for variant in variants]
        if progress is not None:
            progress((number + 1) / culprits.height)
    return pl.DataFrame(rows, schema=_SCHEMA)


class _Test:
    """A trace, what was found in it, and its identity replays."""

    def __init__(self, trace: Trace, found: Why, runs: int) -> None:
        self.trace, self.found = trace, found
        self.policy, _ = stated(trace)
        self.programs = Programs(trace)
        self.perturbations = self.programs.perturbations(runs)
        utids = found.spans["utid"].unique()
        self.victims = trace.tasks.filter(pl.col("utid").is_in(utids.implode()))["tid"]
        recorded = self.metric(trace)
        base = [self.metric(self.programs.run(self.policy, perturbation=s)) for s in self.perturbations]
        known = [float(b) for b in base if b is not None]
        if recorded is None or len(known) < len(base):
            raise ReplayError("the replay has no complete responses of these tasks: nothing can be compared")
        self.recorded, self.base = recorded, known

    def metric(self, run: Trace) -> float | None:
        """What is to be gained on."""
        if self.found.what == "window":
            return _waited(run, self.victims)
        return _metric(run, self.victims, self.found.quantile)

    def attributed(self, name: str, variant: str) -> float:
        """Time of a culprit's parts per span, or per slow span, as far as the variant takes it away."""
        found = self.found
        slow = blame.tail_of(found.spans, found.quantile)
        own = found.pieces.filter((pl.col("culprit") == name) & pl.col("span").is_in(slow.implode()))
        if variant == "lock half as long":
            at = pl.DataFrame(lock_time(self.trace, found, name), schema=["tid", "ts_ns", "ns"], orient="row")
            own = own.filter(pl.col("ts_ns").is_in(at["ts_ns"].cast(pl.Int64).implode()))
        return PART.get(variant, 1.0) * float(own["dur_ns"].sum()) / max(len(slow), 1)

    def row(self, name: str, variant: str) -> dict[str, object]:
        """One row of the result."""
        found, base = self.found, self.base
        members = found.names.filter(pl.col("group") == name)["utid"]
        tasks = self.trace.tasks.filter(pl.col("utid").is_in(members.implode()) & ~pl.col("is_idle"))
        culprit = Culprit(name, tasks["tid"].to_list(), self.victims)
        attributed = self.attributed(name, variant)
        row: dict[str, object] = dict.fromkeys(_SCHEMA)
        row |= {
            "culprit": name,
            "variant": variant,
            "attributed_ns": attributed,
            "recorded_ns": self.recorded,
            "base_ns": float(np.mean(base)),
        }
        reason = untestable(self.trace, self.programs, found, culprit, variant)
        if reason is None:
            runs = replays(
                self.trace, self.programs, found, culprit, variant, self.policy, self.perturbations
            )
            values = [self.metric(run) for run in runs]
            gains = [b - v for b, v in zip(base, values, strict=True) if v is not None]
            if gains:
                identity = abs(statistics.median(base) - self.recorded)
                sampling = 0.0 if found.what == "window" else _sampling(runs[0], self.victims, found.quantile)
                after = statistics.median(v for v in values if v is not None)
                model = model_error()[KINDS[0]].base * after
                lo, hi = _interval(gains, identity, sampling, model, FLOOR * self.recorded)
                row |= {"gain_ns": float(np.mean(gains)), "lo_ns": lo, "hi_ns": hi}
                row["verdict"] = _verdict(attributed, lo, hi)
            else:
                reason = "the replay has no complete responses"
        if reason is not None:
            row |= {"verdict": "not tested", "reason": reason}
        return row
