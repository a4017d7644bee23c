"""Step functions over time, cut into equal intervals.

Totals and time-weighted statistics are resampled by these.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["BINS", "edges_of", "integral"]

Ints = NDArray[np.int64]

#: Equal intervals of time that totals and time-weighted statistics are resampled by: enough to see
#: a correlation of a hundredth of the trace, few enough to be quick. Half or twice as many change
#: the intervals of the demo by less than 20 %.
BINS = 512


def edges_of(start: int, stop: int, n: int) -> Ints:
    """Edges of equal intervals from `start` to `stop`, fewer where there are few samples."""
    bins = int(np.clip(n // 4, 64, BINS))
    return np.unique(np.linspace(start, max(stop, start + bins), bins + 1).astype(np.int64))


def integral(
    begin: Ints, dur: NDArray[np.float64], height: NDArray[np.float64], edges: Ints
) -> NDArray[np.float64]:
    """Integral of a step function with gaps over each interval of time."""
    points = np.stack([begin, begin + dur], axis=1).ravel()
    areas = np.cumsum(np.stack([np.zeros_like(dur), height * dur], axis=1).ravel())
    return np.diff(np.interp(edges, points, areas))
