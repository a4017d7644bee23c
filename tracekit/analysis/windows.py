"""Metrics of a capture with the spread between stretches of its time.

Neighbouring scheduler samples are alike, so samples are not drawn one by one: the capture is cut
into windows of equal length, and whole windows are drawn (a cluster bootstrap over time). What
happens within a window stays together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.analysis import _common as c
from tracekit.analysis import latency, response
from tracekit.analysis._overlay import ints, overlay

Floats = NDArray[np.float64]

#: Windows that a capture is cut into. Few enough that a window is longer than what correlates,
#: enough for a spread.
WINDOWS = 20
#: Fewest windows with samples, fewest samples, and fewest samples beyond a quantile, for an interval.
MIN_WINDOWS = 8
MIN_N = 20
MIN_TAIL = 5
#: Points of a distribution function that quantiles of drawn windows are read from.
GRID = 1000

#: What can be measured of a group of tasks, its unit, and what it is.
METRICS = {
    "slice": ("ns", "an uninterrupted on-CPU interval"),
    "run delay": ("ns", "from runnable until running"),
    "wakeup latency": ("ns", "run delay after a wakeup"),
    "preemption wait": ("ns", "run delay after an involuntary switch"),
    "response": ("ns", "from a wakeup until the task next blocks or exits"),
    "cpu share": ("share", "time on CPUs over the time of the capture, all CPUs"),
    "switches": ("1/s", "slices that began, a second"),
    "wakeups": ("1/s", "slices that began with a wakeup, a second"),
}
#: Metrics that are one number a window, so that only their mean means something.
RATES = ("cpu share", "switches", "wakeups")


@dataclass(frozen=True)
class Sample:
    """Values of one metric of one group, each in its window.

    Attributes
    ----------
    values
        ns; for rates one number a window, in the order of windows.
    window
        Window of each value, from 0.
    windows
        Number of windows.
    n_censored
        Samples left out because they had not ended.
    rate
        Whether there is one value a window.
    """

    values: Floats
    window: NDArray[np.int64]
    windows: int
    n_censored: int = 0
    rate: bool = False

    @property
    def n(self) -> int:
        """Samples."""
        return len(self.values)

    def statistic(self, stat: str) -> float | None:
        """A statistic of the sample; None where the sample has none.

        Parameters
        ----------
        stat
            ``mean``, ``max`` or a quantile such as ``p95``.
        """
        if not self.n:
            return None
        if stat == "mean":
            return float(self.values.mean())
        if stat == "max":
            return float(self.values.max())
        q = quantile_of(stat)
        return float(self._ordered[c.rank_of(q, self.n)]) if c.enough_for(q, self.n) else None

    def why_no_interval(self, stat: str) -> str | None:
        """Why there is no interval of `stat`; None when there is one."""
        if stat == "max":
            return "a maximum has no interval"
        filled = self._filled
        if self.n < (MIN_WINDOWS if self.rate else MIN_N):
            return f"n = {self.n} is below {MIN_N}"
        if filled < MIN_WINDOWS:
            return f"samples in {filled} of {self.windows} stretches of time; {MIN_WINDOWS} are needed"
        if stat != "mean":
            q = quantile_of(stat)
            if self.n * min(q, 1 - q) < MIN_TAIL:
                return f"n = {self.n} leaves fewer than {MIN_TAIL} samples beyond {stat}"
        return None

    def draws(self, stat: str, weights: Floats) -> Floats:
        """The statistic of drawn windows.

        Parameters
        ----------
        stat
            ``mean`` or a quantile.
        weights
            One row a draw: how often each window was drawn.

        Returns
        -------
        numpy.ndarray
            One value a draw; NaN where the drawn windows hold no sample.
        """
        if stat == "mean":
            count = np.bincount(self.window, minlength=self.windows).astype(float)
            total = np.bincount(self.window, self.values, minlength=self.windows)
            with np.errstate(invalid="ignore", divide="ignore"):
                mean: Floats = (weights @ total) / (weights @ count)
            return mean
        grid, below = self.grid, weights @ self._below
        size = below[:, -1:]
        at = (below < quantile_of(stat) * size - 1e-9).sum(axis=1)
        drawn: Floats = np.where(size[:, 0] > 0, grid[np.minimum(at, len(grid) - 1)], np.nan)
        return drawn

    @cached_property
    def _below(self) -> Floats:
        return self.counts(self.grid)

    @cached_property
    def _filled(self) -> int:
        return len(np.unique(self.window))

    @cached_property
    def _ordered(self) -> Floats:
        return np.sort(self.values)

    @cached_property
    def grid(self) -> Floats:
        """Values at which the distribution function is kept: all, or evenly spaced ranks."""
        ordered = np.unique(self._ordered)
        if len(ordered) <= GRID:
            return ordered
        return np.unique(ordered[np.linspace(0, len(ordered) - 1, GRID).astype(int)])

    def counts(self, grid: Floats) -> Floats:
        """How many values of each window are at most each point of `grid`: windows by points."""
        table = np.zeros((self.windows, len(grid) + 1))
        np.add.at(table, (self.window, np.searchsorted(grid, self.values, side="left")), 1.0)
        return np.cumsum(table, axis=1)[:, : len(grid)]


def quantile_of(stat: str) -> float:
    """The quantile that a name such as ``p95`` or ``p99.9`` says.

    Raises
    ------
    ValueError
        When it is no such name.
    """
    try:
        q = float(stat.removeprefix("p")) / 100
    except ValueError:
        q = 0.0
    if not stat.startswith("p") or not 0 < q < 1:
        raise ValueError(f"expected mean, max or a quantile such as p95, found {stat!r}")
    return q


@lru_cache(maxsize=16)
def weights(windows: int, draws: int, seed: int) -> Floats:
    """How often each window is drawn: `draws` rows, each summing to `windows`."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return rng.multinomial(windows, np.full(windows, 1 / windows), size=draws).astype(float)


def spread(sample: Sample, stat: str, draws: int = 400, seed: int = 0) -> Floats | None:
    """Values that a statistic takes when whole windows are drawn anew.

    Parameters
    ----------
    sample
        The sample.
    stat
        ``mean`` or a quantile.
    draws, seed
        Of the bootstrap; the same seed gives the same values.

    Returns
    -------
    numpy.ndarray or None
        Sorted; None when `Sample.why_no_interval` says why there are none.
    """
    if sample.why_no_interval(stat) is not None:
        return None
    found = sample.draws(stat, weights(sample.windows, draws, seed))
    return np.sort(found[np.isfinite(found)])


def samples(
    metric: str,
    slices: pl.DataFrame,
    states: pl.DataFrame,
    names: pl.DataFrame,
    start_ns: int,
    end_ns: int,
    windows: int = WINDOWS,
    cpus: int = 1,
) -> dict[str, Sample]:
    """The samples of a metric, by group of tasks.

    Definition: as in `tracekit.analysis.slices`, `latency` and `response`; intervals that had not
    ended or are unreliable are left out and counted. Rates: time on CPUs, slices or wakeups of each
    window over its length (and CPUs).

    Parameters
    ----------
    metric
        A key of `METRICS`.
    slices, states
        Tables of the trace.
    names
        `utid` and `group`, see `tracekit.analysis.blame.named`.
    start_ns, end_ns
        Of the trace.
    windows
        How many windows.
    cpus
        How many CPUs the trace has, idle ones included; at least as many as have slices. For `cpu share`.

    Returns
    -------
    dict of str to Sample
        By group.
    """
    if metric not in METRICS:
        raise ValueError(f"unknown metric {metric!r}: expected one of {', '.join(METRICS)}")
    if metric in RATES:
        return _rates(metric, slices, names, start_ns, end_ns, windows, cpus)
    rows = _values(metric, slices, states, end_ns).join(
        names.select(pl.col("utid").cast(pl.UInt32), "group"), on="utid", how="left"
    )
    width = max(end_ns - start_ns, 1)
    place = ((pl.col("at_ns") - start_ns) * windows // width).clip(0, windows - 1)
    out = {}
    for (group,), part in rows.with_columns(place.alias("_window")).group_by("group", maintain_order=True):
        done = part.filter(~pl.col("censored"))
        if group is not None and done.height:
            out[str(group)] = Sample(
                done["value"].cast(pl.Float64).to_numpy(),
                done["_window"].cast(pl.Int64).to_numpy(),
                windows,
                part.height - done.height,
            )
    return out


def _values(metric: str, slices: pl.DataFrame, states: pl.DataFrame, end_ns: int) -> pl.DataFrame:
    """`utid`, `at_ns`, `value`, `censored` of a metric that has a value a sample."""
    if metric == "slice":
        return slices.select(
            pl.col("utid").cast(pl.UInt32),
            pl.col("ts_ns").alias("at_ns"),
            pl.col("dur_ns").alias("value"),
            c.has(c.OPEN_START | c.OPEN_END | c.CROSSES_LOSS | c.INFERRED_END).alias("censored"),
        )
    if metric == "response":
        found = response.samples(slices, states, end_ns).filter(pl.col("response_ns").is_not_null())
        return found.select(
            pl.col("utid").cast(pl.UInt32),
            pl.col("wake_ts_ns").alias("at_ns"),
            pl.col("response_ns").alias("value"),
            (pl.col("status") != "complete").alias("censored"),
        )
    cause = {"wakeup latency": "wakeup", "preemption wait": "preemption"}.get(metric)
    waits = latency.samples(slices, states)
    if cause is not None:
        waits = waits.filter(pl.col("cause") == cause)
    return waits.select(
        pl.col("utid").cast(pl.UInt32),
        pl.col("ts_ns").alias("at_ns"),
        pl.col("run_delay_ns").alias("value"),
        (pl.col("censored") | pl.col("unreliable")).alias("censored"),
    )


def _rates(
    metric: str,
    slices: pl.DataFrame,
    names: pl.DataFrame,
    start_ns: int,
    end_ns: int,
    windows: int,
    cpus: int,
) -> dict[str, Sample]:
    """A rate of each window, by group; windows in which a group did nothing count as 0."""
    # Times since 1970 in ns are beyond what a float tells apart.
    edges = start_ns + np.linspace(0, end_ns - start_ns, windows + 1).astype(np.int64)
    width = np.maximum(np.diff(edges), 1)
    rows = slices.select("utid", "ts_ns", "dur_ns", "cpu", "wake_ts_ns").join(names, on="utid", how="left")
    if metric == "wakeups":
        rows = rows.filter(pl.col("wake_ts_ns").is_not_null())
    # A source without a table of CPUs names those that have slices.
    cpus = max(slices["cpu"].n_unique(), cpus, 1)
    out = {}
    zero = np.zeros(windows, np.int64)
    for (group,), part in rows.group_by("group", maintain_order=True):
        start, length = ints(part, "ts_ns", "dur_ns")
        if metric == "cpu share":
            key = np.zeros(len(start), np.int64)
            cut = overlay(key, start, start + length, zero, edges[:-1], edges[1:])
            known = cut.cover >= 0
            time = np.bincount(
                cut.cover[known], (cut.end - cut.start)[known].astype(float), minlength=windows
            )
            value = time / width / cpus
        else:
            at = np.clip(np.searchsorted(edges, start, side="right") - 1, 0, windows - 1)
            value = np.bincount(at, minlength=windows) / (width / 1e9)
        if group is not None:
            out[str(group)] = Sample(value.astype(float), np.arange(windows), windows, rate=True)
    return out
