"""From outcomes to figures: errors, shares, directions, targets."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracekit.calibration import tolerances
from validation.lab import Capture, Pair

__all__ = ["Group", "Row", "group", "rows", "targets"]

#: Half-width of a 90 % interval of a normal distribution, in standard deviations.
Z90 = 1.645


@dataclass(frozen=True)
class Row:
    """A pair with everything that is known of it.

    Attributes
    ----------
    pair, workload, kernels, exact
        What it is; `exact` when both are guests on one CPU.
    real_a, real_b
        Measured from the captures.
    identity, predicted
        Replays of A as itself and as B; `None` when there is no figure.
    low, high
        The 90 % interval of the prediction.
    verdict
        ``resolved``, ``not resolved``, ``refused`` or ``failed``.
    note
        Why, or what was assumed or is not modelled.
    """

    pair: Pair
    workload: str
    kernels: str
    exact: bool
    real_a: float
    real_b: float
    identity: float | None
    predicted: float | None
    low: float | None
    high: float | None
    verdict: str
    note: str

    @property
    def change(self) -> float:
        """Real change from A to B, a share."""
        return self.real_b / self.real_a - 1

    @property
    def error(self) -> float | None:
        """Error of the prediction, a share of real B."""
        return None if self.predicted is None else self.predicted / self.real_b - 1

    @property
    def no_change_error(self) -> float:
        """Error of predicting that B is as A."""
        return self.real_a / self.real_b - 1

    @property
    def predicted_change(self) -> float | None:
        """Change from the identity replay to the prediction: both come from the same model."""
        if self.predicted is None or not self.identity:
            return None
        return self.predicted / self.identity - 1

    @property
    def direction(self) -> bool | None:
        """Whether the predicted change has the sign of the real one."""
        change = self.predicted_change
        return None if change is None else change * self.change > 0

    @property
    def covered(self) -> bool | None:
        """Whether real B lies in the interval."""
        return None if self.low is None or self.high is None else self.low <= self.real_b <= self.high


def _floors(pairs: Iterable[Pair], real: Mapping[str, float]) -> dict[str, float]:
    """Largest relative difference of two captures of the same thing, by metric."""
    found: dict[str, float] = {}
    for pair in pairs:
        if pair.kind == "repeat" and pair.a in real and pair.b in real:
            gap = abs(real[pair.b] / real[pair.a] - 1)
            found[pair.metric] = max(found.get(pair.metric, 0.0), gap)
    return found


def rows(
    pairs: Sequence[Pair], captures: Mapping[str, Capture], done: Mapping[str, Mapping[str, Any]]
) -> list[Row]:
    """Join pairs with the results of `validation.predict.job`.

    The interval of a prediction is prediction -+ sqrt((1.645 s)^2 + e^2 + f^2): s the standard deviation over tick
    phases, e the error of the identity replay of A, f the largest difference of two captures of the same thing.
    """
    logged = {p.a: p.a_value for p in pairs} | {p.b: p.b_value for p in pairs}
    real = {k: d["real"]["value"] for k, d in done.items() if d["real"]["value"] is not None}
    floors = _floors(pairs, real)
    found = []
    for pair in pairs:
        a, b = captures[pair.a], captures[pair.b]
        # The workload's own figure stands in where the tables do not hold it; the list says so.
        real_a, real_b = real.get(pair.a, logged[pair.a]), real.get(pair.b, logged[pair.b])
        notes = [f"real {x} from the workload's log" for x in (pair.a, pair.b) if x not in real]
        own, outcome = done[pair.a]["identity"], done[pair.a]["targets"][pair.b]
        identity, predicted = own["value"], outcome["value"]
        notes += [n for n in (outcome["why"],) if n]
        missing = done[pair.a]["asked"].get(pair.b, {}).get("unmodelled", ())
        notes += [f"not modelled: {m}" for m in missing]
        low = high = None
        if predicted is None:
            verdict = "refused" if outcome["refused"] else "failed"
        elif identity is None:
            verdict = "refused" if own["refused"] else "failed"
            notes.append(f"no identity: {own['why']}")
        else:
            miss = abs(identity / real_a - 1)
            width = math.hypot(Z90 * outcome["spread"] / predicted, miss, floors.get(pair.metric, 0.0))
            low, high = predicted * (1 - width), predicted * (1 + width)
            resolved = abs(predicted - identity) > max(miss * real_a, 0.005 * identity)
            verdict = "resolved" if resolved else "not resolved"
        if verdict in ("refused", "failed"):
            predicted = None
        kernels = a.kernel if a.kernel == b.kernel else f"{a.kernel} -> {b.kernel}"
        found.append(
            Row(
                pair, a.workload, kernels, a.exact and b.exact, real_a, real_b,
                identity, predicted, low, high, verdict, "; ".join(notes),
            )
        )  # fmt: skip
    return found


@dataclass(frozen=True)
class Group:
    """Figures of some pairs; shares are of the pairs that were predicted."""

    n: int
    predicted: int
    refused: int
    failed: int
    median: float | None
    within_5: float | None
    within_10: float | None
    direction: float | None
    covered: float | None
    no_change_median: float | None
    no_change_10: float | None


def _share(values: Iterable[bool | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def group(chosen: Sequence[Row]) -> Group:
    """Sum up some pairs."""
    limits = tolerances()["pair"]
    errors = [abs(r.error) for r in chosen if r.error is not None]
    still = [abs(r.no_change_error) for r in chosen]
    # The direction of a change that is hardly there is noise.
    changing = [r for r in chosen if abs(r.change) > limits["change"]]
    return Group(
        len(chosen),
        len(errors),
        sum(r.verdict == "refused" for r in chosen),
        sum(r.verdict == "failed" for r in chosen),
        statistics.median(errors) if errors else None,
        _share(e <= limits["close"] for e in errors),
        _share(e <= limits["near"] for e in errors),
        _share(r.direction for r in changing),
        _share(r.covered for r in chosen if r.predicted is not None),
        statistics.median(still) if still else None,
        _share(e <= limits["near"] for e in still),
    )


def _all(values: Sequence[bool]) -> tuple[float, int]:
    """Share that holds, of all: what was refused or failed counts against."""
    return (sum(values) / len(values) if values else math.nan), len(values)


def targets(found: Sequence[Row], identities: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Hold the results against the aims of the project: rows of `aim`, `wanted`, `found`, `n`, `holds`."""
    limits = tolerances()["pair"]
    exact = [r for r in found if r.exact]
    out: list[dict[str, Any]] = []

    def aim(text: str, wanted: float, value: float, n: int, most: bool = False) -> None:
        holds = n > 0 and (value <= wanted if most else value >= wanted)
        out.append({"aim": text, "wanted": wanted, "most": most, "found": value, "n": n, "holds": holds})

    def within(r: Row, limit: float) -> bool:
        return r.error is not None and abs(r.error) <= limit

    def moving(some: Sequence[Row]) -> list[Row]:
        return [r for r in some if abs(r.change) > limits["change"]]

    errors = [i["main_error"] for i in identities if i["main_error"] is not None]
    own = [e is not None and abs(e) <= limits["close"] for e in (i["main_error"] for i in identities)]
    aim("identity: main figure within 5 %", 0.90, *_all(own))
    aim(
        "identity: median error of the main figure",
        0.02,
        statistics.median(map(abs, errors)),
        len(errors),
        True,
    )
    for metric, text in (
        ("switches", "switches within 5 %"),
        ("cpu_share", "CPU share within 2 points"),
        ("run_delay_p50", "run delay p50 within 10 % or 0.1 tick"),
        ("run_delay_p95", "run delay p95 within 10 % or 0.1 tick"),
    ):
        judged = [i["results"].get(metric) for i in identities]
        aim(
            f"identity: {text}", 0.90, *_all([j == "pass" for j in judged if j not in (None, "not measured")])
        )
    policy = [r for r in exact if r.pair.kind == "policy"]
    p = moving(policy)
    known = [abs(r.error) for r in p if r.error is not None]
    aim(
        "policy pairs that change over 10 %: median error",
        0.05,
        statistics.median(known or [math.nan]),
        len(known),
        True,
    )
    aim(
        "policy pairs that change over 10 %: within 10 %", 0.80, *_all([within(r, limits["near"]) for r in p])
    )
    aim("policy pairs that change over 10 %: direction", 0.95, *_all([bool(r.direction) for r in p]))
    hardly = [r for r in policy if abs(r.change) < limits["hardly"]]
    aim(
        "policy pairs that change less than 5 %: within 5 %, or not resolved",
        0.90,
        *_all([within(r, limits["close"]) or r.verdict == "not resolved" for r in hardly]),
    )
    k = moving([r for r in exact if r.pair.kind == "kernel"])
    aim(
        "kernel pairs that change over 10 %: within 10 %", 0.75, *_all([within(r, limits["near"]) for r in k])
    )
    aim("kernel pairs that change over 10 %: direction", 0.90, *_all([bool(r.direction) for r in k]))
    pipes = [r for r in policy if r.workload == "callpipe"]
    aim("callpipe policy pairs within 15 %", 0.70, *_all([within(r, limits["near_pipes"]) for r in pipes]))
    aim("pairs refused", 0.15, *_all([r.verdict == "refused" for r in found]), most=True)
    inside = [bool(r.covered) for r in exact if r.predicted is not None and r.pair.kind != "repeat"]
    aim("real B inside the 90 % interval (wanted: 80 to 97 %)", 0.80, *_all(inside))
    return out
