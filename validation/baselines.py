"""Predictors to beat: what one gets without a model of the scheduler.

Each takes a question (see `validation.score`) and gives a number, or `None` where it has nothing to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

import tracekit as tk
from tracekit import registry
from tracekit.analysis import response
from tracekit.errors import TracekitError
from tracekit.whatif.intervals import PLAIN
from validation import lab, predict
from validation.metrics import ANSWERING, Refused, measure

__all__ = ["BASELINES", "Asked", "closed", "formula", "no_change", "open_", "own"]

#: A question as `validation.score` asks it, capture A and capture B.
Asked = tuple[Mapping[str, Any], lab.Capture, lab.Capture]


def no_change(asked: Asked) -> float | None:
    """B will be as A."""
    return float(asked[0]["recorded"])


def _replayed(asked: Asked, loop: str) -> float | None:
    """One replay under B's policy, every wakeup treated alike.

    Nothing is learned of what switches take elsewhere.
    """
    question, a, b = asked
    trace = tk.read(a.file)
    known = [p["name"] for p in registry.policies()]
    try:
        replay = predict.run(tk.Programs(trace, loop=loop), lab.question(b, trace, known), PLAIN)
        return measure(question["metric"], replay, a.arguments).value
    except (Refused, TracekitError):
        return None


def open_(asked: Asked) -> float | None:
    """Every task wakes when it was recorded to wake, however late it was before: an open queue."""
    return _replayed(asked, "open")


def closed(asked: Asked) -> float | None:
    """Every task sleeps as long as recorded after it was done, whoever woke it: a closed queue."""
    return _replayed(asked, "closed")


def formula(asked: Asked) -> float | None:
    """Response of a shared processor: S (1 + h) / (1 - rho).

    Or S / (1 - rho) where B puts the answering tasks first.

    S is the mean CPU time of a response in A, rho the part of the CPU that the answering tasks
    take, h the weight of the tasks that never sleep, 1.25 to the power of -nice each (Kleinrock,
    Queueing Systems II, 4.4: processor sharing, with permanent customers). It knows no slices,
    forks or yields and says nothing of them.
    """
    question, a, b = asked
    if question["metric"] != "mean_response_us":
        return None
    trace = tk.read(a.file)
    rows = response.samples(trace.slices, trace.states, trace.end_ns)
    rows = rows.filter(pl.col("comm").cast(pl.String).str.contains(ANSWERING), status="complete")
    if rows.height == 0:
        return None
    served = trace.slices.filter(pl.col("comm").cast(pl.String).str.contains(ANSWERING))["dur_ns"].sum()
    span = (trace.end_ns - trace.start_ns) * b.cpus
    rho = served / span
    others = b.arguments.get("hogs", "0,5,10,19")
    hogs = 0.0 if others == "none" else sum(1.25 ** -int(n) for n in others.split(","))
    first = b.arguments.get("ipol", "other").startswith(("fifo", "rr"))
    share = 1.0 if first else 1.0 + hogs / b.cpus
    return served / rows.height * share / (1.0 - rho) / 1e3


def own(asked: Asked) -> float | None:
    """What `tracekit` predicts: the median of its repetitions."""
    question, a, b = asked
    outcome = predict.job(a, [b])["targets"][b.key]
    return outcome["value"] if question["metric"] == a.metric else None


BASELINES: dict[str, Callable[[Asked], float | None]] = {
    "no-change": no_change,
    "open": open_,
    "closed": closed,
    "formula": formula,
    "tracekit": own,
}
