"""Replays of one capture: itself, and every capture that it is to predict."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import tracekit as tk
from tracekit import _core, registry
from tracekit.calibration import calibrate
from tracekit.errors import TracekitError
from tracekit.trace import Trace
from validation.lab import METRIC_OF, Capture, Question, question
from validation.metrics import Refused, measure

__all__ = ["Outcome", "job"]

#: Shifts of the tick phase at which each prediction is repeated, as shares of a tick; the first is the prediction.
PHASES = (0.0, 0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Outcome:
    """A figure or the reason why there is none.

    Attributes
    ----------
    value
        The figure, `None` when there is none.
    spread
        Standard deviation over the tick phases.
    n
        Samples.
    why
        Why there is no figure; else what was assumed.
    refused
        The trace does not hold what is needed; otherwise a missing figure is a failure.
    """

    value: float | None
    spread: float = 0.0
    n: int = 0
    why: str = ""
    refused: bool = False


def _figure(metric: str, trace: Trace, capture: Capture) -> Outcome:
    try:
        figure = measure(metric, trace, capture.arguments)
    except Refused as reason:
        return Outcome(None, why=str(reason), refused=True)
    return Outcome(figure.value, n=figure.n, why=figure.note)


def _short(error: TracekitError) -> str:
    """The message without the policy's long list of parameters."""
    return (
        str(error).rpartition(": ")[2]
        if "no progress" not in str(error)
        else "no progress: " + str(error).rpartition(": ")[2]
    )


def _run(programs: _core.Programs, asked: Question, phase_ns: int) -> Trace:
    sets = [(list(tids), list(settings)) for tids, settings in asked.sets]
    metadata, tables = programs.run(asked.policy, rt=asked.rt, phase_ns=phase_ns, sets=sets)
    return Trace(tables, metadata)


def _predict(programs: _core.Programs, asked: Question, metric: str, capture: Capture, tick: int) -> Outcome:
    """The figure at the recorded tick phase, and how much it varies with the phase."""
    found = []
    for share in PHASES:
        try:
            replay = _run(programs, asked, round(share * tick))
        except TracekitError as error:
            return Outcome(None, why=_short(error))
        found.append(_figure(metric, replay, capture))
        if found[0].value is None:
            return found[0]
    values = [o.value for o in found if o.value is not None]
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return Outcome(found[0].value, spread, found[0].n, found[0].why)


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
        ``key``; ``real``, ``identity`` and ``targets`` (key to outcome) as dicts of `Outcome`; ``asked`` (key to
        question); ``calibration`` (rows of `tracekit.calibration.calibrate`).
    """
    known = [p["name"] for p in registry.policies()]
    metric = METRIC_OF[capture.workload]
    result: dict[str, Any] = {"key": capture.key, "asked": {}, "targets": {}, "calibration": []}
    try:
        trace = tk.read(capture.file)
    except TracekitError as error:
        none = asdict(Outcome(None, why=str(error)))
        return result | {"real": none, "identity": none, "targets": {t.key: none for t in targets}}
    programs = _core.Programs(trace.events)
    itself = question(capture, trace, known)
    result["real"] = asdict(_figure(metric, trace, capture))
    result["asked"][capture.key] = asdict(itself)
    try:
        identity = _run(programs, itself, 0)
    except TracekitError as error:
        result["identity"] = asdict(Outcome(None, why=_short(error)))
        result["targets"] = {t.key: asdict(Outcome(None, why=_short(error))) for t in targets}
        return result
    tick = math.floor(1e9 / int(identity.metadata.get("hz", "250")))
    result["identity"] = asdict(_predict(programs, itself, metric, capture, tick))
    result["calibration"] = calibrate(trace, identity).to_dicts()
    for target in targets:
        asked = question(target, trace, known)
        result["asked"][target.key] = asdict(asked)
        if asked == itself:
            result["targets"][target.key] = result["identity"]
        else:
            result["targets"][target.key] = asdict(_predict(programs, asked, metric, capture, tick))
    return result
