"""Replays of one capture: itself, and every capture that it is to predict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

import tracekit as tk
from tracekit import _core, registry
from tracekit.analysis import uncertainty
from tracekit.errors import TracekitError
from tracekit.trace import Trace
from tracekit.whatif.calibration import judge
from tracekit.whatif.fidelity import Fidelity, fidelity
from tracekit.whatif.intervals import Perturbation, centre, kernel_share
from tracekit.whatif.switch_costs import Change, change
from validation.lab import Capture, Question, question
from validation.metrics import Refused, measure, subject
from validation.switch_costs import left_out

__all__ = ["Outcome", "figure", "job", "run", "switch_costs", "together"]


@dataclass(frozen=True)
class Outcome:
    """A figure or the reason why there is none.

    Attributes
    ----------
    value
        The figure, `None` when there is none: the median of the repetitions that leave the tick in its place.
    values
        The figure in each repetition.
    sampling
        Relative half-width of the 90 % bootstrap interval of the figure.
    n
        Samples.
    why
        Why there is no figure; else what was assumed.
    refused
        The trace does not hold what is needed; otherwise a missing figure is a failure.
    """

    value: float | None
    values: tuple[float, ...] = ()
    sampling: float = 0.0
    n: int = 0
    why: str = ""
    refused: bool = False


def _sampling(samples: Sequence[float]) -> float:
    """Relative half-width of the 90 % interval of a mean."""
    row = uncertainty.interval(np.asarray(samples, dtype=float), confidence=0.9).row(0, named=True)
    return 0.0 if row["lo"] is None else float((row["hi"] - row["lo"]) / 2 / row["value"])


def figure(metric: str, trace: Trace, capture: Capture) -> Outcome:
    """The main metric of a trace or a replay."""
    try:
        got = measure(metric, trace, capture.arguments)
    except Refused as reason:
        return Outcome(None, why=str(reason), refused=True)
    return Outcome(got.value, (got.value,), _sampling(got.samples), got.n, got.note)


def _short(error: TracekitError) -> str:
    """The message without the policy's long list of parameters."""
    return (
        str(error).rpartition(": ")[2]
        if "no progress" not in str(error)
        else "no progress: " + str(error).rpartition(": ")[2]
    )


def switch_costs(programs: tk.Programs, capture: Capture, itself: Question, asked: Question) -> Change | None:
    """What switches take in A's kernel and in B's, as far as other workloads show."""
    found = programs.inferred.filter(
        pl.col("name") == "run-queue clock to tracepoint offset", pl.col("n") > 0
    )["value"].to_list()
    return change(
        _core.parse_policy(itself.policy),
        capture.env.get("kernel", ""),
        _core.parse_policy(asked.policy),
        found[0] if found else None,
        left_out(capture.workload),
    )


def run(
    programs: tk.Programs, asked: Question, perturbation: Perturbation, costs: Change | None = None
) -> Trace:
    """Replay once as `asked`, with `perturbation`; a `TracekitError` where the replay comes to no end."""
    sets = [(list(tids), list(settings)) for tids, settings in asked.sets]
    metadata, tables, _ = programs._core.run(
        asked.policy,
        rt=asked.rt,
        sets=sets,
        groups=[(name, list(settings)) for name, settings in asked.groups],
        cpus=asked.cpus,
        switch_costs=costs,
        phase_ns=perturbation.phase_ns,
        jitter_ns=perturbation.jitter_ns,
        seed=perturbation.seed,
    )
    return tk.Replay(tables, metadata, "replay", programs)


def _predict(
    programs: tk.Programs,
    asked: Question,
    metric: str,
    capture: Capture,
    costs: Change | None = None,
    look: Callable[[Trace], object] | None = None,
) -> Outcome:
    """The figure in all repetitions, each of which `look` is called with."""
    found: list[tuple[Perturbation, Outcome]] = []
    perturbations = programs.perturbations()
    for perturbation in perturbations:
        try:
            replay = run(programs, asked, perturbation, costs)
        except TracekitError as error:
            if not found:
                return Outcome(None, why=_short(error))
            continue
        if look is not None:
            look(replay)
        found.append((perturbation, figure(metric, replay, capture)))
        if found[0][1].value is None and look is None:
            return found[0][1]
    return together(found)


def together(found: Sequence[tuple[Perturbation, Outcome]]) -> Outcome:
    """The figure over its repetitions: their median."""
    if found[0][1].value is None:
        return found[0][1]
    known = [(s, o.value) for s, o in found if o.value is not None]
    values = [v for _, v in known]
    first = found[0][1]
    value = centre(values)
    return Outcome(value, tuple(values), first.sampling, first.n, first.why)


def job(capture: Capture, targets: Sequence[Capture]) -> dict[str, Any]:
    """Measure a capture, replay it as itself and as each target.

    Parameters
    ----------
    capture
        The capture to replay.
    targets
        Captures to predict.

    Returns
    -------
    dict
        ``key``; ``real``, ``identity`` and ``targets`` (key to outcome) as dicts of `Outcome`;
        ``asked`` (key to question); ``kernel_share`` of the tasks that the figure is about;
        ``calibration`` (rows of `tracekit.whatif.calibration.calibrate`).
    """
    known = [p["name"] for p in registry.policies()]
    metric = capture.metric
    result: dict[str, Any] = {
        "key": capture.key,
        "asked": {},
        "targets": {},
        "calibration": [],
        "kernel_share": 0.0,
    }
    try:
        trace = tk.read(capture.file)
    except TracekitError as error:
        none = asdict(Outcome(None, why=str(error)))
        return result | {"real": none, "identity": none, "targets": {t.key: none for t in targets}}
    programs = tk.Programs(trace)
    itself = question(capture, trace, known)
    result["real"] = asdict(figure(metric, trace, capture))
    result["asked"][capture.key] = asdict(itself)
    faithful: list[Fidelity] = []
    result["identity"] = asdict(
        _predict(programs, itself, metric, capture, look=lambda run: faithful.append(fidelity(trace, run)))
    )
    if not faithful:
        result["targets"] = {t.key: result["identity"] for t in targets}
        return result
    result["kernel_share"] = kernel_share(subject(metric, programs.demands))
    result["calibration"] = judge(faithful).to_dicts()
    for target in targets:
        asked = question(target, trace, known)
        result["asked"][target.key] = asdict(asked)
        if asked == itself:
            result["targets"][target.key] = result["identity"]
        else:
            costs = switch_costs(programs, capture, itself, asked)
            result["targets"][target.key] = asdict(_predict(programs, asked, metric, capture, costs))
    return result
