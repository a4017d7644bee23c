"""How likely a recording is under a policy: its slices and waits beside those of a replay.

The likelihood is that of the recorded slices that preemption ended, and of the recorded waits after
wakeups, under the distribution that a replay has, by group of tasks and in half-octave bins. How much
it varies without cause is measured: a replay is repeated with small perturbations. Candidates within
what that explains form the 90 % set.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from tracekit.analysis import _common as c

if TYPE_CHECKING:
    from tracekit.trace import Trace
    from tracekit.whatif.intervals import Perturbation

__all__ = ["LEAST", "REPEATS", "UNEXPLAINED", "Finding", "Search", "preempted"]

#: Bins an octave, and how many pseudo-counts a bin has that a replay never fills (Jeffreys' prior).
BINS, PRIOR = 2, 0.5
#: What is shorter, ns, is the cost of a switch and no decision of the scheduler.
SHORT = 32_768
#: Repetitions behind the spread of a likelihood, and the quantile for a one-sided 90 % set: that of
#: Student's distribution with one degree of freedom less, since the spread is estimated from so few.
REPEATS, T90 = 5, 1.5332
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

    def spread(self, policy: str) -> float:
        """How much the likelihood of a policy varies with small perturbations."""
        return statistics.stdev(
            _likelihood(self.recorded, _histograms(self._run(policy, moved))) for moved in self._perturbations
        )

    def finding(self, name: str, candidates: Mapping[str, str], sigma: float) -> Finding:
        """The best of some candidates, and those that are as likely within `sigma`; label to policy."""
        scores = {label: self.score(policy) for label, policy in candidates.items()}
        best = max(scores, key=lambda label: scores[label])
        # Both the best and the other vary.
        within = T90 * math.sqrt(2) * sigma
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
