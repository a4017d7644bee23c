"""How likely a recording is under a policy: its slices and waits beside those of a replay.

The likelihood is that of the recorded slices that preemption ended, and of the recorded waits after
wakeups, under the distribution that a replay has, by group of tasks and in half-octave bins. How much
it varies without cause is measured: a replay is repeated with small perturbations, and with values so
near to each other that none can be told from the next. Candidates within what that explains form the
90 % set; of many, one is best by chance, and the set allows for that (Hsu, Constrained simultaneous
confidence intervals for multiple comparisons with the best, 1984).
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.analysis import _common as c

if TYPE_CHECKING:
    from tracekit.trace import Trace
    from tracekit.whatif.intervals import Perturbation

__all__ = ["LEAST", "REPEATS", "UNEXPLAINED", "Finding", "Search", "Spread", "preempted", "quantile90"]

#: Bins an octave, and how many pseudo-counts a bin has that a replay never fills (Jeffreys' prior).
BINS, PRIOR = 2, 0.5
#: What is shorter, ns, is the cost of a switch and no decision of the scheduler.
SHORT = 32_768
#: Repetitions behind a spread of a likelihood.
REPEATS = 5
#: Slices that must have ended by preemption before anything is said.
LEAST = 50
#: Share of what was recorded that no stock policy may leave unexplained.
UNEXPLAINED = 0.3

#: Counts by kind and group of tasks, and bin.
Histograms = Mapping[tuple[str, str], Mapping[int, int]]


@dataclass(frozen=True)
class Finding:
    """What was learned of one parameter.

    Attributes
    ----------
    name
        The parameter: ``family``, ``base_slice``, ``run_to_parity``, ...
    best
        The value that explains the trace best.
    likely
        All values in the 90 % set, the best among them.
    flat
        True when the trace does not say: every candidate is in the set.
    scores
        Log-likelihood of each candidate, relative to the best.
    """

    name: str
    best: str
    likely: tuple[str, ...]
    flat: bool
    scores: Mapping[str, float] = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class Spread:
    """How much a likelihood varies without cause.

    Attributes
    ----------
    variance
        Of repetitions.
    freedom
        Degrees of freedom behind it.
    """

    variance: float
    freedom: int

    def pooled(self, other: Spread) -> Spread:
        """Both together, each with its weight."""
        freedom = self.freedom + other.freedom
        both = self.variance * self.freedom + other.variance * other.freedom
        return Spread(both / freedom, freedom)


@functools.cache
def quantile90(candidates: int, freedom: int) -> float:
    """The factor of a set that holds the true one of so many candidates in 90 % of cases.

    Parameters
    ----------
    candidates
        How many are compared, each with the best of the others.
    freedom
        Degrees of freedom of the spread, in units of which (times the root of 2) they differ.

    Returns
    -------
    float
        Of two candidates the quantile of Student's distribution; more with each that may be best by
        chance (Dunnett 1955, one-sided, of equal variances).
    """
    # Here, as they take longer to load than a short trace to compare.
    from scipy import optimize, stats

    z = np.linspace(-8, 8, 801)
    spread = np.sqrt(stats.chi2.ppf((np.arange(400) + 0.5) / 400, freedom) / freedom)
    density = stats.norm.pdf(z) * (z[1] - z[0])

    def missed(factor: float) -> float:
        least = z[None, :] + factor * math.sqrt(2) * spread[:, None]
        return float((stats.norm.cdf(least) ** (candidates - 1) @ density).mean()) - 0.9

    return float(optimize.brentq(missed, 0.0, 20.0))


def preempted(trace: Trace) -> int:
    """How many slices of a trace ended by preemption."""
    return trace.slices.filter(pl.col("involuntary")).height


def _histograms(trace: Trace) -> Histograms:
    """Preempted slices and waits after wakeups."""
    rows = trace.slices.with_columns(c.group_of("group"))
    wait = (pl.col("ts_ns") - pl.col("wake_ts_ns")).alias("value")
    kinds = {
        "slice": rows.filter(pl.col("involuntary")).select("group", value=pl.col("dur_ns")),
        "latency": rows.filter(pl.col("wake_ts_ns").is_not_null()).select("group", wait),
    }
    found: dict[tuple[str, str], dict[int, int]] = {}
    for kind, table in kinds.items():
        binned = table.with_columns(
            (pl.col("value").clip(SHORT).log(2.0) * BINS).floor().cast(pl.Int64).alias("bin")
        )
        for group, bin_, n in binned.group_by("group", "bin").len().sort("group", "bin").iter_rows():
            found.setdefault((kind, str(group)), {})[bin_] = n
    return found


def _likelihood(recorded: Histograms, model: Histograms) -> float:
    """Log-likelihood of what was recorded under the distributions of a replay."""
    total = 0.0
    for key, counts in recorded.items():
        have = model.get(key, {})
        bins = set(counts) | set(have)
        whole = sum(have.values()) + PRIOR * len(bins)
        total += sum(n * math.log((have.get(b, 0) + PRIOR) / whole) for b, n in counts.items())
    return total


class Search:
    """Replays candidates and remembers how likely each is.

    Parameters
    ----------
    trace
        The recording.
    run
        Replays it under a policy, with a perturbation or without.
    perturbations
        Those by which the spread of a likelihood is found.
    progress
        Called with the share that is done.
    """

    def __init__(
        self,
        trace: Trace,
        run: Callable[[str, Perturbation | None], Trace],
        perturbations: Sequence[Perturbation],
        progress: Callable[[float], object] | None = None,
    ) -> None:
        self.recorded = _histograms(trace)
        self.models: dict[str, Histograms] = {}
        self._run, self._perturbations, self._progress = run, perturbations, progress

    def score(self, policy: str) -> float:
        """Log-likelihood of the recording under a policy."""
        if policy not in self.models:
            self.models[policy] = _histograms(self._run(policy, None))
            if self._progress is not None:
                self._progress(min(len(self.models) / 40, 0.99))
        return _likelihood(self.recorded, self.models[policy])

    def spread(self, *policies: str) -> Spread:
        """How much the likelihood varies with small perturbations.

        Parameters
        ----------
        policies
            One policy for all repetitions, or as many as there are perturbations, between which nothing that is
            looked for differs.
        """
        pairs = zip(itertools.cycle(policies), self._perturbations, strict=False)
        found = [_likelihood(self.recorded, _histograms(self._run(policy, moved))) for policy, moved in pairs]
        return Spread(statistics.variance(found), len(found) - 1)

    def finding(self, name: str, candidates: Mapping[str, str], spread: Spread) -> Finding:
        """The best of some candidates, and those that are as likely within `spread`; label to policy."""
        scores = {label: self.score(policy) for label, policy in candidates.items()}
        best = max(scores, key=lambda label: scores[label])
        # Both the best and the other vary.
        within = quantile90(len(scores), spread.freedom) * math.sqrt(2 * spread.variance)
        likely = tuple(label for label, s in scores.items() if scores[best] - s <= within)
        relative = {label: s - scores[best] for label, s in scores.items()}
        return Finding(name, best, likely, len(likely) == len(scores), relative)

    def unexplained(self, policy: str) -> tuple[float, str]:
        """Share of what was recorded that would have to be elsewhere, and the group that has most of it."""
        self.score(policy)
        all_, moved, worst = 0, 0.0, ("", 0.0)
        for key, counts in self.recorded.items():
            n, have = sum(counts.values()), self.models[policy].get(key, {})
            total = sum(have.values())
            same = sum(min(k / n, have.get(b, 0) / total if total else 0.0) for b, k in counts.items())
            all_, moved = all_ + n, moved + n * (1 - same)
            if n * (1 - same) > worst[1]:
                worst = key[1], n * (1 - same)
        return (moved / all_ if all_ else 1.0), worst[0]
