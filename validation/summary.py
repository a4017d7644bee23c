"""From outcomes to figures: errors, shares, directions, targets."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tracekit.whatif import intervals
from tracekit.whatif.calibration import tolerances
from validation.lab import Capture, Pair

__all__ = ["Group", "Row", "group", "model_errors", "rows", "targets"]


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
        The 90 % interval of the intervals.
    bimodal
        The two values that the repetitions of the prediction have, where they have two and none between.
    change_kind, kernel_share, measured
        What the model error goes by: kind of the change, share of kernel work, and measured terms
        of the interval; see `tracekit.whatif.intervals`.
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
    bimodal: tuple[float, float] | None = None
    change_kind: str = ""
    kernel_share: float = 0.0
    measured: float | None = None

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


@dataclass(frozen=True)
class _Parts:
    """What the interval of a pair is made of."""

    predicted: float
    identity: float
    values: tuple[float, ...]
    real_a: float
    sampling: float
    share: float

    def interval(self, model: intervals.ModelError = intervals.NONE) -> intervals.Interval | None:
        return intervals.interval(
            self.predicted, self.values, self.real_a, self.identity, self.sampling, model, self.share
        )


def rows(
    pairs: Sequence[Pair], captures: Mapping[str, Capture], done: Mapping[str, Mapping[str, Any]]
) -> list[Row]:
    """Join pairs with the results of `validation.predict.job`.

    The interval is that of `tracekit.whatif.intervals.interval`. Its model error is fitted to the
    pairs of the *other* workloads, so that the share of pairs that lie within is out of sample.
    """
    logged = {p.a: p.a_value for p in pairs} | {p.b: p.b_value for p in pairs}
    real = {k: d["real"]["value"] for k, d in done.items() if d["real"]["value"] is not None}
    found = []
    for pair in pairs:
        a, b = captures[pair.a], captures[pair.b]
        # The workload's own figure stands in where the tables do not hold it; the list says so.
        real_a, real_b = real.get(pair.a, logged[pair.a]), real.get(pair.b, logged[pair.b])
        notes = [f"real {x} from the workload's log" for x in (pair.a, pair.b) if x not in real]
        own, outcome = done[pair.a]["identity"], done[pair.a]["targets"][pair.b]
        asked = done[pair.a]["asked"]
        identity, predicted = own["value"], outcome["value"]
        notes += [n for n in (outcome["why"],) if n]
        notes += [f"not modelled: {m}" for m in asked.get(pair.b, {}).get("unmodelled", ())]
        case = None
        if predicted is None:
            verdict = "refused" if outcome["refused"] else "failed"
        elif identity is None:
            verdict = "refused" if own["refused"] else "failed"
            notes.append(f"no identity: {own['why']}")
            predicted = None
        else:
            values, same = tuple(outcome["values"]), tuple(own["values"])
            share = done[pair.a]["kernel_share"]
            case = _Parts(predicted, identity, values, real_a, outcome["sampling"], share)
            clear = intervals.resolved(predicted, identity, real_a, values, same)
            verdict = "resolved" if clear else "not resolved"
        kernels = a.kernel if a.kernel == b.kernel else f"{a.kernel} -> {b.kernel}"
        row = Row(
            pair, a.workload, kernels, a.exact and b.exact, real_a, real_b,
            identity, predicted, None, None, verdict, "; ".join(notes),
        )  # fmt: skip
        if case is not None:
            bare = case.interval()
            row = replace(
                row,
                bimodal=intervals.modes(case.values),
                change_kind=intervals.kind_of_change(asked[pair.a]["policy"], asked[pair.b]["policy"]),
                kernel_share=case.share,
                measured=None if bare is None else bare.measured,
            )
        found.append((row, case))
    terms = {w: model_errors([r for r, _ in found], without=w) for w in {r.workload for r, _ in found}}
    return [_with_interval(row, case, terms[row.workload]) for row, case in found]


def _with_interval(row: Row, parts: _Parts | None, terms: Mapping[str, intervals.ModelError]) -> Row:
    made = None if parts is None else parts.interval(terms[row.change_kind])
    return row if made is None else replace(row, low=made.low, high=made.high)


def model_errors(rows: Iterable[Row], without: str | None = None) -> dict[str, intervals.ModelError]:
    """Fit the model errors to pairs of one-CPU guests.

    Parameters
    ----------
    rows
        Pairs with their measured terms; captures of the same thing (`repeat`) are left out.
    without
        Workload to leave out.
    """
    cases: dict[str, list[intervals.Case]] = {kind: [] for kind in intervals.KINDS}
    for row in rows:
        if row.measured is None or row.predicted is None:
            continue
        if row.exact and row.pair.kind != "repeat" and row.workload != without:
            error = abs(math.log(row.real_b / row.predicted))
            cases[row.change_kind].append(intervals.Case(row.workload, error, row.measured, row.kernel_share))
    # A run of few pairs has nothing to fit to: what ships stands in, which is not out of sample.
    few = {k for k, found in cases.items() if len(found) < intervals.MIN_PAIRS}
    shipped = intervals.model_error()
    return {k: shipped[k] if k in few else intervals.fit(k, found) for k, found in cases.items()}


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


@dataclass(frozen=True)
class Aim:
    """An aim of the project.

    What was wanted and found, of how many, and what predicting no change would reach.
    """

    aim: str
    wanted: float
    found: float
    n: int
    most: bool = False
    below: float | None = None
    no_change: float | None = None

    @property
    def holds(self) -> bool:
        """Whether it was reached."""
        if self.n == 0 or math.isnan(self.found):
            return False
        if self.below is not None and self.found > self.below:
            return False
        return self.found <= self.wanted if self.most else self.found >= self.wanted


def _identity_aims(identities: Sequence[Mapping[str, Any]], close: float) -> Iterable[Aim]:
    errors = [i["main_error"] for i in identities if i["main_error"] is not None]
    own = [e is not None and abs(e) <= close for e in (i["main_error"] for i in identities)]
    yield Aim("identity: main metric within 5 %", 0.90, *_all(own))
    middle = statistics.median(map(abs, errors)) if errors else math.nan
    yield Aim("identity: median error of the main metric", 0.02, middle, len(errors), most=True)
    for metric, text in (
        ("switches", "switches within 5 %"),
        ("cpu_share", "CPU share within 2 points"),
        ("run_delay_p50", "run delay p50 within 10 % or 0.1 tick"),
        ("run_delay_p95", "run delay p95 within 10 % or 0.1 tick"),
    ):
        judged = [i["results"].get(metric) for i in identities]
        passed = [j == "pass" for j in judged if j not in (None, "not measured")]
        yield Aim(f"identity: {text}", 0.90, *_all(passed))


def _pair_aims(found: Sequence[Row], limits: Mapping[str, float]) -> Iterable[Aim]:
    exact = [r for r in found if r.exact]

    def share(text: str, wanted: float, rows: Sequence[Row], limit: float) -> Aim:
        hits, n = _all([r.error is not None and abs(r.error) <= limit for r in rows])
        still, _ = _all([abs(r.no_change_error) <= limit for r in rows])
        return Aim(text, wanted, hits, n, no_change=still)

    def direction(text: str, wanted: float, rows: Sequence[Row]) -> Aim:
        return Aim(text, wanted, *_all([bool(r.direction) for r in rows]), no_change=0.0)

    policy = [r for r in exact if r.pair.kind == "policy"]
    moving = [r for r in policy if abs(r.change) > limits["change"]]
    known = [abs(r.error) for r in moving if r.error is not None]
    still = [abs(r.no_change_error) for r in moving if r.error is not None]
    yield Aim(
        "policy pairs that change over 10 %: median error", 0.05, statistics.median(known or [math.nan]), len(known),
        most=True, no_change=statistics.median(still or [math.nan]),
    )  # fmt: skip
    yield share("policy pairs that change over 10 %: within 10 %", 0.80, moving, limits["near"])
    yield direction("policy pairs that change over 10 %: direction", 0.95, moving)
    hardly = [r for r in policy if abs(r.change) < limits["hardly"]]
    near = [
        (r.error is not None and abs(r.error) <= limits["close"]) or r.verdict == "not resolved"
        for r in hardly
    ]
    text = "policy pairs that change less than 5 %: within 5 %, or not resolved"
    calm, _ = _all([abs(r.no_change_error) <= limits["close"] for r in hardly])
    yield Aim(text, 0.90, *_all(near), no_change=calm)
    kernel = [r for r in exact if r.pair.kind == "kernel" and abs(r.change) > limits["change"]]
    yield share("kernel pairs that change over 10 %: within 10 %", 0.75, kernel, limits["near"])
    yield direction("kernel pairs that change over 10 %: direction", 0.90, kernel)
    pipes = [r for r in policy if r.workload == "callpipe"]
    yield share("callpipe policy pairs within 15 %", 0.70, pipes, limits["near_pipes"])
    yield Aim("pairs refused", 0.15, *_all([r.verdict == "refused" for r in found]), most=True)
    inside = [bool(r.covered) for r in exact if r.predicted is not None and r.pair.kind != "repeat"]
    yield Aim("real B inside the 90 % interval (wanted: 80 to 97 %)", 0.80, *_all(inside), below=0.97)


def targets(found: Sequence[Row], identities: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Hold the results against the aims of the project: rows with the fields of `Aim`, and `holds`."""
    limits = tolerances()["pair"]
    aims = [*_identity_aims(identities, limits["close"]), *_pair_aims(found, limits)]
    return [{**asdict(a), "holds": a.holds} for a in aims]
