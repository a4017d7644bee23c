"""The sampling error of a statistic of dependent samples: block and cluster bootstrap, in closed form.

A statistic is given by its *influence values*: one number a sample, in time order, whose sum is to
first order the error of the statistic (for a mean of n samples, (x - mean) / n). Resampling whole
blocks of consecutive samples, or whole tasks, then changes the statistic by the sum of the drawn
blocks' influence, so that the variance over all possible resamples is known without drawing any: B
/ (B - 1) times the sum of the squared block sums. Drawing would only add noise.

References
----------
D. N. Politis and H. White, Automatic block-length selection for the dependent bootstrap,
Econometric Reviews 23 (2004) 53-70; A. Patton, D. N. Politis, H. White, correction, Econometric
Reviews 28 (2009) 372-375. B. Efron and R. J. Tibshirani, An introduction to the bootstrap, Chapman
and Hall 1993, chapters 8 and 21 (blocks, infinitesimal jackknife). P. Hall, On the removal of
skewness by transformation, JRSS B 54 (1992) 221-228. E. Lazarus, D. J. Lewis, J. H. Stock, M. W.
Watson, HAR inference: recommendations for practice, JBES 36 (2018) 541-559 (cosine weights, the
check for slow drift).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tracekit import _core

__all__ = [
    "MIN_BLOCKS",
    "MIN_N",
    "MIN_TASKS",
    "StandardError",
    "block_length",
    "quantile_of_t",
    "standard_error",
]

Floats = NDArray[np.float64]

#: Fewest samples for any interval.
MIN_N = 20
#: Fewest blocks. With 4 the 90 % quantile of t is 2.35: their small number is paid for in width.
#: With 3 it is 2.92, and the skewness can no longer be distinguished from chance.
MIN_BLOCKS = 4
#: Most blocks: more change the t quantile by less than 2 %.
MAX_BLOCKS = 50
#: Fewest tasks that are alike, for resampling whole tasks.
MIN_TASKS = 8
#: Correlated samples: a block is at least so many lengths of Politis and White, and with more than
#: `MIN_BLOCKS` of them `SPARE` lengths, up to `ENOUGH` blocks. Theirs minimises the error of the
#: variance; the coverage of an interval wants longer blocks. With 4 and 7 in place of 5 and 9 the
#: coverage in tests/analysis/test_coverage.py is up to 3 points lower.
LENGTHS = 5
SPARE = 9
ENOUGH = 8
#: Where fewer than `FULL` such blocks fit, they are made shorter, and the variance grows with the
#: square of what they lack; where fewer than `LEAST` fit, there is no interval. With 4 or 6 in
#: place of 5 the coverage of short series changes by up to 4 points.
FULL = 5.0
LEAST = 1.5
#: Samples a series is averaged to before its autocorrelation is looked at, to bound the time.
MOST = 8192
#: Cosines and level of the check for slow drift.
SLOW = 4
SLOW_LEVEL = 0.01


@dataclass(frozen=True)
class StandardError:
    """The sampling error of a statistic.

    Attributes
    ----------
    value
        Standard error in the unit of the statistic; None when `reason` says why.
    df
        Degrees of freedom of the t distribution that goes with it.
    unit
        What was resampled: ``blocks`` (of consecutive samples) or ``tasks``.
    units
        How many of these there are.
    n_effective
        Independent samples that would leave the same error.
    reason
        Why there is no value; None when there is one.
    skew
        Skewness of the sums of the units.
    """

    value: float | None
    df: int = 0
    unit: str = "blocks"
    units: int = 0
    n_effective: float = 0.0
    reason: str | None = None
    skew: float = 0.0

    def half_width(self, confidence: float) -> float | None:
        """Half-width of the symmetric interval of a level, from the t distribution."""
        return None if self.value is None else self.value * quantile_of_t(confidence, self.df)

    def reach(self, confidence: float) -> tuple[float, float] | None:
        """How far the interval of a level reaches below and above the statistic.

        Skewness is corrected (Hall 1992).
        """
        if self.value is None:
            return None
        t = quantile_of_t(confidence, self.df)
        return self.value * self._hall(t), -self.value * self._hall(-t)

    def _hall(self, y: float) -> float:
        if abs(self.skew) < 1e-6 or not self.units:
            return y
        root, g = math.sqrt(self.units), self.skew
        return 3 * root / g * (float(np.cbrt(1 + g * (y / root - g / (6 * self.units)))) - 1)


def quantile_of_t(confidence: float, df: int) -> float:
    """Two-sided quantile of the t distribution."""
    return _core.t_quantile(df, confidence)


def _autocovariance(x: Floats, lags: int) -> Floats:
    """Autocovariance at lags 0 to `lags` of a series of mean zero, by FFT."""
    n = len(x)
    # Zeros behind the series keep its ends apart; a power of two is quick whatever the length.
    padded = 1 << (n + lags).bit_length()
    power = np.abs(np.fft.rfft(x, padded)) ** 2
    return np.asarray(np.fft.irfft(power)[: lags + 1] / n, dtype=np.float64)


def _politis_white(covariance: Floats, correlation: Floats, n: int) -> tuple[float, bool]:
    """Block length of the circular bootstrap, and whether any lag from 1 on is correlated."""
    window = max(5, int(math.log10(n)))
    critical = 2 * math.sqrt(math.log10(n) / n)
    most = len(covariance) - 1
    below = np.abs(correlation) < critical
    first = next((i for i in range(most - window + 1) if below[i : i + window].all()), None)
    bandwidth = most if first is None else min(2 * max(first, 1), most)
    k = np.arange(1, bandwidth + 1)
    taper = np.where(2 * k <= bandwidth, 1.0, 2 * (1 - k / bandwidth))
    g = 2 * float((taper * k * covariance[1 : bandwidth + 1]).sum())
    long_run = float(covariance[0] + 2 * (taper * covariance[1 : bandwidth + 1]).sum())
    most_length = math.ceil(min(3 * math.sqrt(n), n / 3))
    if long_run <= 0:  # negatively correlated throughout: short blocks only overstate the variance
        return 1.0, first != 1
    length = (2 * g * g / (4 / 3 * long_run * long_run)) ** (1 / 3) * n ** (1 / 3)
    return min(length, most_length), first is None or first > 1


def _lags(n: int) -> int:
    return min(math.ceil(math.sqrt(n)) + max(5, int(math.log10(n))), n - 2)


def _length(x: Floats) -> tuple[float, bool]:
    n = len(x)
    x = x - x.mean()
    power = float(x @ x)
    # A series that does not vary, but for rounding, has no correlation.
    if n < 8 or power <= 1e-24 * n * max(1.0, float(np.abs(x).max())) ** 2:
        return 1.0, False
    lags = _lags(n)
    covariance = _autocovariance(x, lags)
    squares = np.concatenate([[0.0], np.cumsum(x * x)])
    i = np.arange(lags + 1)
    scale = np.sqrt(np.maximum((squares[n] - squares[i + 1]) * squares[n - i - 1], 1e-300))
    return _politis_white(covariance, covariance * n / scale, n)


def block_length(values: Floats) -> float:
    """Choose the block length of a circular block bootstrap from the autocorrelation up to its decay.

    Definition: b = (2 G^2 / D)^(1/3) n^(1/3), G and D from a flat-top lag window that ends at twice
    the first lag after which the correlations are within 2 sqrt(log10(n) / n) of zero (Politis and
    White 2004, corrected 2009). At least 0, at most min(3 sqrt(n), n / 3).

    Parameters
    ----------
    values
        Samples in time order.

    Returns
    -------
    float
        Samples a block. 1 for fewer than 8 samples, for those that do not vary, and where the
        estimate D of the long-run variance is not positive.
    """
    return _length(np.asarray(values, dtype=np.float64))[0]


def _within_tasks(x: Floats, codes: NDArray[np.int64], tasks: int) -> tuple[float, bool]:
    """Block length by the correlation within each task's own samples, in samples of the whole series."""
    order = np.argsort(codes, kind="stable")
    parts = np.split(x[order], np.cumsum(np.bincount(codes, minlength=tasks))[:-1])
    n = len(x) // tasks
    if n < 8:
        return 1.0, False
    lags = _lags(n)
    total, power = np.zeros(lags + 1), 0.0
    for part in parts:
        if len(part) > lags + 1:
            y = part - part.mean()
            total += _autocovariance(y, lags) * len(part)
            power += float(y @ y)
    if power <= 0:
        return 1.0, False
    total /= len(x)
    length, correlated = _politis_white(total, total / total[0], n)
    return length * tasks, correlated


def _averaged(x: Floats, codes: NDArray[np.int64] | None) -> tuple[Floats, NDArray[np.int64] | None]:
    """Sums of runs of samples, so that the series has at most `MOST`; tasks are not distinguished then."""
    step = math.ceil(len(x) / MOST)
    if step == 1:
        return x, codes
    return np.add.reduceat(x, np.arange(0, len(x), step)), None


def _sums(x: Floats, blocks: int) -> Floats:
    return np.add.reduceat(x, np.linspace(0, len(x), blocks, endpoint=False).astype(np.int64))


def _skewness(sums: Floats) -> float:
    """Skewness of a few sums, without bias for a third moment of independent ones."""
    n = len(sums)
    power = float(((sums - sums.mean()) ** 2).sum()) / (n - 1)
    if power <= 0:
        return 0.0
    third = float(((sums - sums.mean()) ** 3).sum()) * n / ((n - 1) * (n - 2))
    return float(third / power**1.5)


# A row of a table has the length of many others.
@lru_cache(maxsize=16)
def _cosines(n: int) -> Floats:
    """The slowest cosines over `n` samples, of mean square 1."""
    at = (np.arange(n) + 0.5) / n
    return math.sqrt(2) * np.cos(np.pi * np.outer(np.arange(1, SLOW + 1), at))


def _most_by_chance(blocks: int) -> float:
    """What the ratio of two variances, of the slowest parts and of blocks, seldom exceeds."""
    return _core.f_quantile(SLOW, blocks - 1, 1 - SLOW_LEVEL)


def _drifts(x: Floats, blocks: int, se: float) -> bool:
    """Whether the slowest parts of the series vary by more than its blocks do."""
    slow = _cosines(len(x)) @ x
    return float((slow**2).mean()) / (se * se) > _most_by_chance(blocks)


def _alike(codes: NDArray[np.int64], tasks: int) -> bool:
    """Whether there are enough tasks with about as many samples each to resample whole tasks."""
    counts = np.bincount(codes, minlength=tasks)
    middle = np.median(counts)
    near = (counts >= middle / 2) & (counts <= 2 * middle)
    return bool(near.sum() >= MIN_TASKS and counts[near].sum() >= 0.9 * len(codes) and middle >= 2)


def _together(x: Floats, codes: NDArray[np.int64], tasks: int) -> bool:
    """Whether the tasks rise and fall together, so that they are no independent samples."""
    bins = min(32, len(x) // (2 * tasks))
    if bins < 8:
        return False
    at = (np.arange(len(x)) * bins) // len(x)
    table = np.zeros((bins, tasks))
    np.add.at(table, (at, codes), x)
    table -= table.mean(axis=0)
    apart = float((table**2).sum())
    return apart > 0 and float((table.sum(axis=1) ** 2).sum()) > 2 * apart


def _of_tasks(x: Floats, codes: NDArray[np.int64], tasks: int) -> StandardError:
    sums = np.bincount(codes, weights=x, minlength=tasks).astype(np.float64)
    variance = tasks / (tasks - 1) * float((sums**2).sum())
    plain = float((x**2).sum())
    effective = len(x) * min(1.0, plain / variance) if variance > 0 else float(len(x))
    return StandardError(math.sqrt(variance), tasks - 1, "tasks", tasks, effective, skew=_skewness(sums))


def _codes(tasks: NDArray[np.int64]) -> tuple[int, NDArray[np.int64]]:
    """How many different numbers there are, and the rank of each."""
    if len(tasks) and tasks.min() >= 0 and tasks.max() < 4 * len(tasks):
        # Small numbers are counted, which is quicker than to sort them.
        ranks = np.cumsum(np.bincount(tasks) > 0)
        return int(ranks[-1]), ranks[tasks] - 1
    found, codes = np.unique(tasks, return_inverse=True)
    return len(found), codes


def standard_error(influence: Floats, tasks: NDArray[np.int64] | None = None) -> StandardError:
    """Give the sampling error of a statistic from its influence values.

    Whole tasks are resampled where eight or more have about as many samples each (within a factor
    of two of the median, 90 % of all samples) and do not rise and fall together; otherwise blocks
    of consecutive samples. A block is at least as long as the correlation of the whole series, and
    as that within single tasks, asks for. Where these are correlated, there are four to eight
    blocks, each five to nine times as long as Politis and White ask for; where fewer than five fit,
    the variance grows with the square of what is lacking.

    Parameters
    ----------
    influence
        One number a sample, in time order; the sum is near zero.
    tasks
        Task of each sample, as any integers; without it only blocks are looked at.

    Returns
    -------
    StandardError
        Refused (a reason in place of a value) below 20 samples, where fewer than 1.5 blocks fit,
        and where the slowest movement of the series is larger than its blocks show (F test of four
        cosines, 1 %).
    """
    x = np.asarray(influence, dtype=np.float64)
    n = len(x)
    if n < MIN_N:
        return StandardError(None, n_effective=float(n), reason=f"n = {n} is below {MIN_N}")
    codes, count = None, 1
    if tasks is not None:
        count, codes = _codes(tasks)
    x = x - x.mean()
    if count >= MIN_TASKS and codes is not None and _alike(codes, count) and not _together(x, codes, count):
        return _of_tasks(x, codes, count)
    return _of_blocks(x, codes, count)


def _of_blocks(x: Floats, codes: NDArray[np.int64] | None, tasks: int) -> StandardError:
    n = len(x)
    plain = float((x**2).sum())
    if plain <= 0:
        return StandardError(0.0, MAX_BLOCKS - 1, "blocks", MAX_BLOCKS, float(n))
    series, codes = _averaged(x, codes)
    m = len(series)
    length, correlated = _length(series)
    if codes is not None and 1 < tasks <= m // 8:
        own, tied = _within_tasks(series, codes, tasks)
        if tied and own > length:
            length, correlated = own, True
    size = max(1.0, length) * (LENGTHS if correlated else 1)
    fit = m / size
    if fit < (LEAST if correlated else MIN_BLOCKS):
        reason = f"samples depend on one another over {round(size * n / m)} others, and there are {n}"
        return StandardError(None, 0, "blocks", int(fit), fit, reason)
    blocks = min(int(fit), MAX_BLOCKS)
    short = 1.0
    if correlated:  # few blocks, as long as the trace allows: the t distribution pays for their number
        blocks = int(np.clip(fit * LENGTHS / SPARE, MIN_BLOCKS, ENOUGH))
        short = max(1.0, FULL / fit) ** 2
    sums = _sums(series, blocks)
    sums -= sums.mean()
    variance = short * blocks / (blocks - 1) * float((sums**2).sum())
    effective = n * min(1.0, plain / variance) if variance > 0 else float(n)
    if variance > 0 and _drifts(series, blocks, math.sqrt(variance)):
        return StandardError(None, 0, "blocks", blocks, effective, "the samples drift over the whole trace")
    return StandardError(math.sqrt(variance), blocks - 1, "blocks", blocks, effective, skew=_skewness(sums))
