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

from typing import TYPE_CHECKING, Any

from tracekit import _core
from tracekit._core import StandardError
from tracekit._lazy import later

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
else:
    np = later("numpy")

__all__ = ["MIN_N", "StandardError", "block_length", "standard_error"]

#: Fewest samples for any interval.
MIN_N = _core.MIN_N


def _numbers(values: Any) -> Floats:
    return np.ascontiguousarray(values, dtype=np.float64)


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
    return _core.block_length(_numbers(values))


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
        `value` (in the unit of the statistic; None when `reason` says why), `df` (degrees of freedom
        of the t distribution that goes with it), `unit` (what was resampled: `blocks` or `tasks`),
        `units` (how many of these), `n_effective` (independent samples that would leave the same
        error); `half_width(level)` and `around(value, level)` give intervals. Refused (a reason in place of a value) below 20 samples, where fewer than 1.5 blocks fit,
        and where the slowest movement of the series is larger than its blocks show (F test of four
        cosines, 1 %).
    """
    codes = None if tasks is None else np.ascontiguousarray(tasks, dtype=np.int64)
    return _core.standard_error(_numbers(influence), codes)
