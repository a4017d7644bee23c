"""Influence values: what each sample contributes to the error of a statistic. See `tracekit.analysis.blocks`.

Censored samples count as Kaplan and Meier let them. All functions take samples in time order and
return one number a sample, in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Curve:
    """The distribution function of samples of which some last longer than seen.

    Attributes
    ----------
    at
        Distinct values, ascending.
    cdf
        F at these.
    events, at_risk
        Samples that ended at each, and that had lasted at least so long.
    """

    at: Floats
    cdf: Floats
    events: NDArray[np.int64]
    at_risk: NDArray[np.int64]

    def quantile(self, q: float) -> float | None:
        """The smallest value with F(value) >= q; None where F does not reach q."""
        i = int(np.searchsorted(self.cdf, q - 1e-9))
        return float(self.at[i]) if i < len(self.at) else None

    def restricted_mean(self) -> float:
        """The integral of 1 - F up to the largest value."""
        before = np.concatenate([[1.0], 1.0 - self.cdf[:-1]])
        return float((np.diff(self.at, prepend=0.0) * before).sum())


def curve(values: Floats, censored: Flags) -> Curve:
    """Estimate the distribution function after Kaplan and Meier, as `scipy.stats.ecdf` does."""
    at, places = np.unique(values, return_inverse=True)
    events = np.bincount(places, weights=~censored, minlength=len(at)).astype(np.int64)
    everyone = np.bincount(places, minlength=len(at))
    at_risk = len(values) - np.cumsum(everyone) + everyone
    if not len(values):
        cdf = np.empty(0)
    elif not censored.any():
        cdf = np.cumsum(events) / len(values)
    elif censored.all():
        cdf = np.zeros(len(at))
    else:
        cdf = np.asarray(1.0 - np.cumprod((at_risk - events) / at_risk), dtype=np.float64)
    return Curve(at, cdf, events, at_risk)


def of_mean(values: Floats, censored: Flags, found: Curve) -> Floats:
    """Influence on the mean, or on the restricted mean where samples are censored.

    Definition: (x - mean) / n; with censored samples the integral of that of F from 0 to the largest sample.
    """
    if not censored.any():
        return np.asarray((values - values.mean()) / len(values), dtype=np.float64)
    gaps = np.diff(found.at, append=found.at[-1:])
    area = (1.0 - found.cdf) * gaps
    after = np.cumsum(area[::-1])[::-1]
    return -_martingale(values, censored, found, after)


def of_cdf(values: Floats, censored: Flags, found: Curve, at: float, below: bool = False) -> Floats:
    """Influence on F(at), or on F just below.

    Definition: (I(x <= at) - F) / n; with censored samples (1 - F) times the sum of dM / Y up to
    `at`, which gives Greenwood's variance when samples are independent.
    """
    up_to = found.at < at if below else found.at <= at
    if not censored.any():
        inside = values < at if below else values <= at
        return np.asarray((inside - inside.mean()) / len(values), dtype=np.float64)
    share = float(found.cdf[up_to][-1]) if up_to.any() else 0.0
    return (1.0 - share) * _martingale(values, censored, found, up_to.astype(np.float64))


def _martingale(values: Floats, censored: Flags, found: Curve, weight: Floats) -> Floats:
    """For each sample the integral of weight / Y over its counting process less its compensator."""
    risk = found.at_risk.astype(np.float64)
    hazard = np.cumsum(weight * found.events / risk**2)
    place = np.searchsorted(found.at, values)
    jump = np.where(censored, 0.0, weight[place] / risk[place])
    return np.asarray(jump - hazard[place], dtype=np.float64)


def of_ratio(above: Floats, below: Floats) -> Floats:
    """Influence on sum(above) / sum(below)."""
    total = below.sum()
    return np.asarray((above - above.sum() / total * below) / total, dtype=np.float64)
