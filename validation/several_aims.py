"""What several CPUs are held against: errors of replays, bounds, pairs that really change."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracekit.whatif.intervals import RUNS
from validation import lab, repeats

__all__ = ["Aim", "Case", "Result", "aims", "cases", "identity_aims", "main_bounds"]

#: Replays of each question, as many as `tracekit compare` makes: the plain one and others with other jitter,
#: tick phases and random numbers of the kernel.
REPLAYS = RUNS
#: Error of a case for which there is no figure: beyond every bound.
NO_FIGURE = 9.0
#: A real change below which a pair asks for nothing.
CHANGE = 0.10


@dataclass(frozen=True)
class Result:
    """A capture replayed as itself and as its targets.

    Attributes
    ----------
    key, workload, kernel, cpus
        What was captured.
    real, identity
        Main metric, recorded and replayed.
    errors
        Of the identity: switches, CPU share (points), migrations, run delay p95: replayed against recorded.
    targets
        Main metric of each target.
    why
        Why there is no figure.
    replays
        Main metric of each replay as itself.
    """

    key: str
    workload: str
    kernel: str
    cpus: int
    real: float | None
    identity: float | None
    errors: Mapping[str, tuple[float | None, float | None]]
    targets: Mapping[str, float | None]
    why: str = ""
    replays: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Aim:
    """A share of cases that is to be within a bound, and the share that is."""

    text: str
    wanted: float
    found: float
    n: int

    @property
    def holds(self) -> bool:
        """Whether it is reached."""
        return self.n > 0 and self.found >= self.wanted


def _aim(text: str, wanted: float, cases: Sequence[bool]) -> Aim:
    return Aim(text, wanted, sum(cases) / len(cases) if cases else 0.0, len(cases))


def off(pair: tuple[float | None, float | None]) -> float:
    a, b = pair
    return abs(b / a - 1) if a and b is not None else NO_FIGURE


def _spreads(results: Sequence[Result]) -> dict[str, float]:
    return repeats.spreads({r.key: r.real for r in results}, {r.key: r.workload for r in results})


def main_bounds(results: Sequence[Result]) -> list[tuple[float, float]]:
    """Tell the relative error of each main metric, and how large it may be.

    Parameters
    ----------
    results
        As for `identity_aims`.

    Returns
    -------
    list of tuple
        Error and bound, in the order of the results.
    """
    spread = _spreads(results)
    return [(off((r.real, r.identity)), max(0.10, 1.5 * spread[r.key])) for r in results]


def identity_aims(results: Sequence[Result]) -> list[Aim]:
    """Hold replays against their own recordings.

    Parameters
    ----------
    results
        Of `several.job`, or of `several.repeated`.

    Returns
    -------
    list of Aim
        The main metric first.
    """
    done = [r for r in results if r.errors]

    def delay(r: Result) -> bool:
        a, b = r.errors["run_delay_p95"]
        # A tenth of a tick at 250 HZ.
        return a is not None and b is not None and abs(b - a) <= max(0.15 * a, 400_000)

    main = [error <= bound for error, bound in main_bounds(results)]
    return [
        _aim("identity: main metric within 10 % or 1.5 times the spread", 0.85, main),
        _aim("identity: switches within 10 %", 0.85, [off(r.errors["switches"]) <= 0.10 for r in done]),
        _aim("identity: run delay p95 within 15 % or 0.1 tick", 0.80, [delay(r) for r in done]),
        _aim(
            "identity: migrations within 20 %",
            0.75,
            [off(r.errors["migrations"]) <= 0.20 for r in done if r.cpus > 1],
        ),
        _aim(
            "identity: CPU shares within 3 points",
            0.90,
            [(r.errors["cpu_share"][1] or 0.0) <= 3 for r in done],
        ),
    ]


@dataclass(frozen=True)
class Case:
    """A pair whose main metric really changes: recorded as A and as B, and the replays of A as A and as B.

    Attributes
    ----------
    a, b, kind, workload
        The pair.
    real_a, real_b, identity
        Main metric.
    predicted
        Main metric of the prediction; `None` where it was refused.
    spread
        Of repeats of B, a share.
    """

    a: str
    b: str
    kind: str
    workload: str
    real_a: float
    real_b: float
    identity: float | None
    predicted: float | None
    spread: float

    @property
    def error(self) -> float:
        """Of the prediction, relative; a refusal counts as a miss."""
        return off((self.real_b, self.predicted))

    @property
    def right(self) -> bool:
        """Whether it changes in the direction in which it really does."""
        if self.predicted is None or not self.identity:
            return False
        return (self.predicted / self.identity - 1) * (self.real_b / self.real_a - 1) > 0

    @property
    def bound(self) -> float:
        """Relative error that is allowed."""
        return max(0.15 if self.kind == "policy" else 0.20, 1.5 * self.spread)


def cases(results: Sequence[Result], pairs: Sequence[lab.Pair]) -> list[Case]:
    """Pick the pairs that really change.

    Parameters
    ----------
    results
        Of `job`.
    pairs
        The table of pairs; the first row of each pair is its main metric.

    Returns
    -------
    list of Case
        In the order of the table: where the recorded values differ by more than a tenth and by more
        than repeats of either capture do.
    """
    by_key, spreads = {r.key: r for r in results}, _spreads(results)
    found, seen = [], set()
    for pair in pairs:
        a = by_key.get(pair.a)
        if a is None or (pair.a, pair.b) in seen or pair.kind == "repeat" or pair.b not in a.targets:
            continue
        seen.add((pair.a, pair.b))
        b = by_key.get(pair.b)
        real = b.real if b is not None and b.real else pair.b_value
        spread = spreads.get(pair.b, spreads[pair.a])
        if a.real and abs(real / a.real - 1) > max(CHANGE, spreads[pair.a], spread):
            predicted = a.targets[pair.b]
            found.append(
                Case(pair.a, pair.b, pair.kind, a.workload, a.real, real, a.identity, predicted, spread)
            )
    return found


def aims(results: Sequence[Result], pairs: Sequence[lab.Pair]) -> tuple[list[Aim], dict[str, float]]:
    """Hold the results against the aims.

    Parameters
    ----------
    results
        Of `job`.
    pairs
        The table of pairs.

    Returns
    -------
    tuple
        The aims, and the median error by kind of pair.
    """
    found = identity_aims(results)
    kinds: dict[str, list[Case]] = {}
    for case in cases(results, pairs):
        kinds.setdefault(case.kind, []).append(case)
    medians = {}
    for kind, of in sorted(kinds.items()):
        medians[kind] = statistics.median(c.error for c in of)
        bound, wanted = (0.15, 0.80) if kind == "policy" else (0.20, 0.75)
        text = f"{kind} pairs: within {100 * bound:.0f} % or 1.5 times the spread"
        found.append(_aim(text, wanted, [c.error <= c.bound for c in of]))
        found.append(_aim(f"{kind} pairs: direction", 0.95, [c.right for c in of]))
    return found, medians
