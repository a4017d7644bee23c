"""Blame that is tested: the trace replayed without each cause, and what the response gains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import polars as pl
from scipy import stats

from tracekit.analysis import _common as c
from tracekit.analysis import blame, response
from tracekit.errors import FilterError, ReplayError
from tracekit.explain.why import Why
from tracekit.trace import Trace
from tracekit.whatif.identity import infer
from tracekit.whatif.run import Programs

__all__ = ["VARIANTS", "counterfactuals", "without"]

#: What is done to a culprit.
VARIANTS = {
    "absent": "its tasks do not run at all; whom they woke is woken when it was",
    "idle class": "its tasks run when nobody else wants to (SCHED_IDLE)",
    "other CPUs": "its tasks may not use the CPU where the victim waits most",
}
_IN_HARDIRQ = 1 << 4
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


def without(events: pl.DataFrame, tids: Sequence[int]) -> pl.DataFrame:
    """The records of a trace as if some threads had never run.

    Definition: where they had a CPU, it is idle; records about them are left out; wakeups that they made stay where they were, as made by an
    interrupt.

    Parameters
    ----------
    events
        The `events` table.
    tids
        The threads.

    Returns
    -------
    pl.DataFrame
        Events, to be replayed: who could have run earlier does so in the replay.
    """
    gone = pl.Series(sorted(tids), dtype=pl.Int64).implode()
    types = events.schema
    kind = pl.col("kind").cast(pl.String)
    switch = kind == "switch"
    prev, entered, acting = (pl.col(n).is_in(gone).fill_null(False) for n in ("tid", "next_tid", "ctx_tid"))
    idle = pl.concat_str(pl.lit("swapper/"), pl.col("cpu").cast(pl.String))
    leaving, entering = switch & prev, switch & entered
    own = kind.is_in(["sys_enter", "sys_exit", "fork", "exit", "exec", "wait"])
    runnable = pl.lit("runnable").cast(types["state"])
    kept = events.filter((switch | ~prev) & ~(acting & own)).with_columns(
        *(
            pl.when(which).then(0).otherwise(pl.col(n)).cast(pl.Int64).alias(n)
            for which, n in ((leaving, "tid"), (entering, "next_tid"), (acting, "ctx_tid"))
        ),
        *(
            pl.when(which).then(idle).otherwise(pl.col(n).cast(pl.String)).cast(types[n]).alias(n)
            for which, n in ((leaving, "comm"), (entering, "next_comm"), (acting, "ctx_comm"))
        ),
        pl.when(leaving).then(runnable).otherwise(pl.col("state")).alias("state"),
        pl.when(acting & ~switch)
        .then(pl.col("irq_flags").fill_null(0).cast(pl.UInt32) | _IN_HARDIRQ)
        .otherwise(pl.col("irq_flags"))
        .cast(types["irq_flags"])
        .alias("irq_flags"),
    )
    nobody = (kind == "switch") & (pl.col("tid") == 0) & (pl.col("next_tid") == 0)
    return kept.filter(~nobody)


def _metric(run: Trace, tids: pl.Series, q: float | None) -> float | None:
    """Mean or quantile of the complete responses of some threads."""
    found = response.samples(run.slices, run.states, run.end_ns)
    values = found.filter(pl.col("tid").is_in(tids.implode()) & (pl.col("status") == "complete"))[
        "response_ns"
    ]
    if not len(values):
        return None
    if q is None:
        return float(np.mean(values.to_numpy()))
    return float(values.sort()[c.rank_of(q, len(values))]) if c.enough_for(q, len(values)) else None


def _interval(gains: Sequence[float], model: float) -> tuple[float, float]:
    """90 % interval of a mean gain over perturbed runs, widened by what the identity replay gets wrong."""
    mean = float(np.mean(gains))
    half = abs(mean) * model
    if len(gains) > 1:
        se = float(np.std(gains, ddof=1)) / np.sqrt(len(gains))
        half = float(np.hypot(half, stats.t.ppf(0.95, len(gains) - 1) * se))
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

    Definition: gain = metric of the identity replay - metric of the replay with the change, run by run with the same perturbation
    of the machine; metric = mean response, or the quantile of `found`. Attributed = time of the culprit's parts per response (per slow
    response for a quantile).

    Parameters
    ----------
    trace
        The whole trace.
    found
        From `tracekit.explain.why`, of responses.
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
        By culprit and variant: `culprit`, `variant` (String), `attributed_ns`, `recorded_ns`, `base_ns` (Float64, the metric as recorded and the metric in the identity replay), `gain_ns`, `lo_ns`, `hi_ns` (Float64, 90 % interval:
        over perturbations, and the relative error of the identity replay; null with `reason`), `verdict` (String: `agrees`, `gains less than
        attributed`, `gains nothing: others take its place`, `gains more than attributed`, `cannot tell` where the interval holds 0 as well, `not tested`), `reason` (String, why it could not be tested; else null).

    Raises
    ------
    FilterError
        When `found` is not of responses.
    ReplayError
        When the trace cannot be replayed.

    Notes
    -----
    How it can mislead: a task that is absent also sends nothing: whom it woke is still woken when it was. The gain of two causes together is not the sum of
    their gains.
    """
    if found.what != "responses":
        raise FilterError(
            f"expected the causes of responses, found those of {found.what}: only responses can be replayed"
        )
    from tracekit import registry

    policy, _ = infer(trace.metadata, [p["name"] for p in registry.policies()])
    programs = Programs(trace)
    shakes = programs.shakes(runs)
    utids = found.spans["utid"].unique()
    tids = trace.tasks.filter(pl.col("utid").is_in(utids.implode()))["tid"]
    recorded = _metric(trace, tids, found.quantile)
    base = [_metric(programs.run(policy, shake=s), tids, found.quantile) for s in shakes]
    if recorded is None or any(b is None for b in base):
        raise ReplayError("the replay has no complete responses of these tasks: nothing can be compared")
    known = [float(b) for b in base if b is not None]
    culprits = found.causes.filter(pl.col("tail_share") > 0).head(top)
    rows: list[dict[str, object]] = []
    for number, cause in enumerate(culprits.iter_rows(named=True)):
        rows += _of_culprit(trace, programs, found, cause, tids, variants, policy, known, recorded)
        if progress is not None:
            progress((number + 1) / culprits.height)
    return pl.DataFrame(rows, schema=_SCHEMA)


def _attributed(found: Why, culprit: str) -> float:
    """Time of a culprit's parts per span, or per slow span."""
    slow = blame.tail_of(found.spans, found.quantile)
    own = found.pieces.filter((pl.col("culprit") == culprit) & pl.col("span").is_in(slow.implode()))
    return float(own["dur_ns"].sum()) / max(len(slow), 1)


def _of_culprit(
    trace: Trace,
    programs: Programs,
    found: Why,
    cause: Mapping[str, object],
    victims: pl.Series,
    variants: Sequence[str],
    policy: str,
    base: Sequence[float],
    recorded: float,
) -> list[dict[str, object]]:
    """One row a variant of one culprit."""
    culprit = str(cause["culprit"])
    members = found.names.filter(pl.col("group") == culprit)["utid"]
    tids = trace.tasks.filter(pl.col("utid").is_in(members.implode()) & ~pl.col("is_idle"))["tid"]
    attributed = _attributed(found, culprit)
    model = abs(float(np.median(base)) - recorded) / recorded
    rows = []
    for variant in variants:
        row: dict[str, object] = dict.fromkeys(_SCHEMA)
        row |= {
            "culprit": culprit,
            "variant": variant,
            "attributed_ns": attributed,
            "recorded_ns": recorded,
            "base_ns": float(np.mean(base)),
        }
        reason = _untestable(trace, tids, victims, variant)
        if reason is None:
            runs = _replays(trace, programs, found, culprit, tids, variant, policy, len(base))
            values = [_metric(run, victims, found.quantile) for run in runs]
            gains = [b - v for b, v in zip(base, values, strict=True) if v is not None]
            if gains:
                lo, hi = _interval(gains, model)
                row |= {"gain_ns": float(np.mean(gains)), "lo_ns": lo, "hi_ns": hi}
                row["verdict"] = _verdict(attributed, lo, hi)
            else:
                reason = "the replay has no complete responses"
        if reason is not None:
            row |= {"verdict": "not tested", "reason": reason}
        rows.append(row)
    return rows


def _untestable(trace: Trace, tids: pl.Series, victims: pl.Series, variant: str) -> str | None:
    if not len(tids):
        return "no task: an interrupt or a timer cannot be left out of a replay by itself"
    if tids.is_in(victims.implode()).any():
        return "these are the delayed tasks themselves"
    if variant == "other CPUs" and trace.cpus.height < 2:
        return "the machine has one CPU"
    if variant == "idle class" and trace.metadata.get("os", "linux") != "linux":
        return "the system has no idle class"
    return None


def _replays(
    trace: Trace,
    programs: Programs,
    found: Why,
    culprit: str,
    tids: pl.Series,
    variant: str,
    policy: str,
    runs: int,
) -> list[Trace]:
    """The perturbed replays of one variant."""
    shakes = programs.shakes(runs)
    if variant == "absent":
        name = f"{trace.name} without {culprit}"
        alone = Programs(Trace({"events": without(trace.events, tids.to_list())}, trace.metadata, name))
        return [alone.run(policy, shake=s) for s in shakes]
    setting: dict[str, object] = {"policy": "idle"}
    if variant == "other CPUs":
        waits = found.pieces.filter((pl.col("culprit") == culprit) & pl.col("cpu").is_not_null())
        most = waits.group_by("cpu").agg(pl.col("dur_ns").sum()).sort("dur_ns", descending=True)["cpu"][0]
        rest = [n for n in trace.cpus["cpu"].to_list() if n != most]
        setting = {"cpus": "+".join(map(str, rest))}
    scenario = {f"tid={tid}": setting for tid in tids.to_list()}
    return [programs.run(policy, shake=s, scenario=scenario) for s in shakes]
