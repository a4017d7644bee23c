"""Extremes of a statistic over every completion of a sample of which some values are missing.

A *completion* fills in what is not known: values that are known to an interval, values that may be
absent, and values of which nothing is seen. Each function gives the smallest and the largest value
that any completion gives a statistic. No assumption on distributions is made, so these are no
confidence intervals: they cannot be missed, and they may be wide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bounds", "Partial", "largest", "mean", "quantile"]

Floats = NDArray[np.float64]
#: Lower and upper bound; infinite where there is none.
Bounds = tuple[float, float]
_NONE: Floats = np.empty(0)


def _none() -> Floats:
    return _NONE


@dataclass(frozen=True)
class Partial:
    """A sample of which some values are missing; no value is negative.

    Attributes
    ----------
    exact
        Values that are in every completion.
    must_low, must_high
        Intervals of values that are in every completion; an infinite `must_high` has no upper bound.
    may_low, may_high
        Intervals of values that may be absent.
    unobserved
        Most values of which nothing is seen; infinite where nobody knows.
    each, total
        Largest value, and largest sum, of the unobserved ones.
    """

    exact: Floats
    must_low: Floats = field(default_factory=_none)
    must_high: Floats = field(default_factory=_none)
    may_low: Floats = field(default_factory=_none)
    may_high: Floats = field(default_factory=_none)
    unobserved: float = 0.0
    each: float = 0.0
    total: float = math.inf

    @property
    def whole(self) -> bool:
        """Nothing is missing."""
        return not (len(self.must_low) or len(self.may_low) or self.unobserved)

    @property
    def ceiling(self) -> float:
        """Largest value of any completion."""
        parts = [x.max() for x in (self.exact, self.must_high, self.may_high) if len(x)]
        return float(max([*parts, min(self.each, self.total) if self.unobserved else 0.0], default=0.0))


def mean(sample: Partial) -> Bounds:
    """Bounds of the mean.

    Worst case from below: every value at its lower end, and values that may be absent, or are
    unobserved (0), are added from the smallest as long as they pull the mean down. From above: every
    value at its upper end, and the largest possible ones are added as long as they pull it up;
    unobserved values come as `total` / `each` values of `each`, since for a given sum fewer values make
    the larger mean.
    """
    low = _lowest_mean(np.concatenate([sample.exact, sample.must_low]), sample.may_low, sample.unobserved)
    high = _highest_mean(sample)
    return low, high


def _lowest_mean(must: Floats, may: Floats, unobserved: float) -> float:
    if math.isinf(unobserved):
        return 0.0
    if not len(must):
        return 0.0 if unobserved else float(may.min()) if len(may) else 0.0
    added = np.sort(may)
    sums = must.sum() + np.concatenate([[0.0], np.cumsum(added)])
    counts = len(must) + unobserved + np.arange(len(added) + 1)
    return float((sums / counts).min())


def _highest_mean(sample: Partial) -> float:
    must = np.concatenate([sample.exact, sample.must_high])
    if not np.isfinite(must).all() or not np.isfinite(sample.may_high).all():
        return math.inf
    if sample.unobserved and min(sample.unobserved, sample.total // max(sample.each, 1.0)) > _MOST:
        return sample.ceiling
    top = _unobserved_at_most(sample)
    if top is None:
        return math.inf
    added = np.sort(np.concatenate([sample.may_high, top]))[::-1]
    if not len(must):
        return float(added[0]) if len(added) else 0.0
    sums = must.sum() + np.concatenate([[0.0], np.cumsum(added)])
    return float((sums / (len(must) + np.arange(len(added) + 1))).max())


#: Most unobserved values that are set out one by one; with more, the largest value of any completion
#: bounds the mean.
_MOST = 1 << 20


def _unobserved_at_most(sample: Partial) -> Floats | None:
    """Hidden values that make the largest mean; None where there is no bound."""
    if not sample.unobserved or sample.each <= 0 or sample.total <= 0:
        return _NONE
    if math.isinf(sample.each):
        if math.isinf(sample.total):
            return None
        return np.array([sample.total])
    full = min(sample.unobserved, sample.total // sample.each)
    rest = (
        [sample.total - full * sample.each]
        if full < sample.unobserved and math.isfinite(sample.total)
        else []
    )
    return np.concatenate([np.full(int(full), sample.each), rest])


def quantile(sample: Partial, q: float) -> Bounds:
    """Bounds of quantile `q`, the smallest x with F(x) >= q.

    A completion has its quantile at x or above when fewer than ceil(q n) of its n values lie below
    x. Worst case from above: every value that may reach x does, values that cannot are absent, and
    as many unobserved values as fit (`total` / x of them) reach it. Below: every value that may be at
    most x is, and all unobserved ones are. Both conditions are monotone in x, so the bound is found by
    bisection, to the unit.
    """
    must_low = np.sort(np.concatenate([sample.exact, sample.must_low]))
    must_high = np.sort(np.concatenate([sample.exact, sample.must_high]))
    may_low, may_high = np.sort(sample.may_low), np.sort(sample.may_high)
    n = len(must_low)

    def rank(size: float) -> float:
        return max(1.0, math.ceil(q * size - 1e-9))

    def at_most(x: float) -> bool:
        if math.isinf(sample.unobserved):
            return True
        extra = float(np.searchsorted(may_low, x, side="right")) + sample.unobserved
        inside = float(np.searchsorted(must_low, x, side="right")) + extra
        return inside >= 1 and inside >= rank(n + extra)

    def at_least(x: float) -> bool:
        fits = sample.unobserved if x <= sample.each else 0.0
        if fits and x > 0:
            fits = min(fits, sample.total // x)
        extra = float(len(may_high) - np.searchsorted(may_high, x, side="left")) + fits
        if math.isinf(extra):
            return True
        below = float(np.searchsorted(must_high, x, side="left"))
        return n + extra >= 1 and below <= rank(n + extra) - 1

    ceiling = sample.ceiling
    if math.isinf(ceiling):
        finite = [x[np.isfinite(x)] for x in (must_high, may_high)]
        known = max([float(x.max()) for x in finite if len(x)], default=0.0)
        limit = max(known, sample.each if math.isfinite(sample.each) else 0.0)
        high = math.inf if at_least(limit + 1) else _last(at_least, limit)
    else:
        high = _last(at_least, ceiling)
    reach = max([float(x.max()) for x in (must_low, may_low) if len(x)], default=0.0)
    return _first(at_most, high if math.isfinite(high) else reach), high


def _first(holds: Callable[[float], bool], most: float) -> float:
    """The smallest whole number up to `most` for which a monotone condition holds."""
    low, high = 0, math.ceil(most)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return float(low)


def _last(holds: Callable[[float], bool], most: float) -> float:
    """The largest whole number up to `most` for which a monotone condition holds."""
    low, high = 0, math.ceil(most)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return float(low)


def largest(sample: Partial) -> Bounds:
    """Bounds of the largest value: the largest that is certain, and the largest that is possible."""
    certain = [float(x.max()) for x in (sample.exact, sample.must_low) if len(x)]
    return max(certain, default=0.0), sample.ceiling
