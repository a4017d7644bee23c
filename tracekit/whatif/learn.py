"""Parameters of the scheduler, learned from a trace.

Which of the known values explains best what was recorded.

Each candidate replays the trace. Its likelihood is that of the recorded slices and wakeup latencies
under the distribution that the replay has, by group of tasks and in half-octave bins. How much a
likelihood varies without cause is measured: the best candidate is replayed again with small
perturbations. Candidates within what that explains form the 90 % set.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from tracekit.analysis import _common as c
from tracekit.units import format_ns
from tracekit.whatif.identity import by_kernel, names_kernel
from tracekit.whatif.run import Programs
from tracekit.whatif.settings import scale_of

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["Finding", "Inference", "infer_parameters"]

#: Bins an octave, and how many pseudo-counts a bin has that a replay never fills (Jeffreys' prior).
BINS, PRIOR = 2, 0.5
#: What is shorter, ns, is the cost of a switch and no decision of the scheduler.
SHORT = 32_768
#: Quantile of the normal distribution for a one-sided 90 % set, and repetitions behind its spread.
Z90, REPEATS = 1.2816, 5
#: Slices that must have ended by preemption before anything is said.
LEAST = 50
#: Share of what was recorded that no stock policy may leave unexplained.
UNEXPLAINED = 0.3

_FAMILIES = {
    "cfs 6.1": "cfs:form=6.1",
    "eevdf 6.6": "eevdf:version=6.6",
    "eevdf 6.12": "eevdf:version=6.12",
    "eevdf 6.18": "eevdf:version=6.18",
    "eevdf 7.3": "eevdf:version=7.3",
}
#: Factors on a parameter's default: third-octaves from a sixteenth to sixteen times.
_FACTORS = tuple(2 ** (k / 3) for k in range(-12, 13))
#: Half a third-octave: how far from the likely values others are tried, where these are few.
_FINE, FEW = 2 ** (1 / 6), 4
#: What a kernel takes at least, ns (`kernel/sched/debug.c`), and parameters that may be 0.
_BOUND = {"base_slice": 100_000}
_ZERO = ("wakeup_granularity",)
#: Parameters by policy: their default on one CPU in ns, which the kernel scales by 1 + log2 of at
#: most 8 CPUs.
_SCALED = {
    "cfs": {"min_granularity": 750_000, "wakeup_granularity": 1_000_000},
    "eevdf": {"base_slice": 700_000},
}
_SWITCHES = {
    "cfs": ("wakeup_preemption", "gentle_fair_sleepers", "start_debit"),
    "eevdf": ("wakeup_preemption", "run_to_parity", "place_lag"),
}


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
class Inference:
    """What a trace says of its scheduler.

    Attributes
    ----------
    policy
        The policy with the parameters that were found, for ``--policy``.
    findings
        One per parameter.
    unexplained
        Share of the recorded slices and latencies that the best candidate does not have.
    worst_group
        The tasks of which most is unexplained.
    refused
        Why nothing is said; empty otherwise.
    """

    policy: str
    findings: tuple[Finding, ...]
    unexplained: float | None
    worst_group: str
    refused: str = ""

    @property
    def stock(self) -> bool:
        """Whether a stock policy explains the trace."""
        return self.unexplained is not None and self.unexplained <= UNEXPLAINED


def _histograms(trace: Trace) -> dict[tuple[str, str], dict[int, int]]:
    """Counts by kind and group of tasks, and bin: preempted slices and waits after wakeups."""
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


def _likelihood(
    recorded: Mapping[tuple[str, str], Mapping[int, int]], model: Mapping[tuple[str, str], Mapping[int, int]]
) -> float:
    """Log-likelihood of what was recorded under the distributions of a replay."""
    total = 0.0
    for key, counts in recorded.items():
        have = model.get(key, {})
        bins = set(counts) | set(have)
        whole = sum(have.values()) + PRIOR * len(bins)
        total += sum(n * math.log((have.get(b, 0) + PRIOR) / whole) for b, n in counts.items())
    return total


def _unexplained(
    recorded: Mapping[tuple[str, str], Mapping[int, int]], model: Mapping[tuple[str, str], Mapping[int, int]]
) -> tuple[float, str]:
    """Share of what was recorded that would have to be elsewhere, and the group that has most of it."""
    all_, moved, worst = 0, 0.0, ("", 0.0)
    for key, counts in recorded.items():
        n, have = sum(counts.values()), model.get(key, {})
        total = sum(have.values())
        same = sum(min(k / n, have.get(b, 0) / total if total else 0.0) for b, k in counts.items())
        all_, moved = all_ + n, moved + n * (1 - same)
        if n * (1 - same) > worst[1]:
            worst = key[1], n * (1 - same)
    return (moved / all_ if all_ else 1.0), worst[0]


class _Search:
    """Replays candidates and remembers how likely each is."""

    def __init__(self, trace: Trace, programs: Programs, progress: Callable[[float], object] | None) -> None:
        self.programs = programs
        self.recorded = _histograms(trace)
        self.models: dict[str, Mapping[tuple[str, str], Mapping[int, int]]] = {}
        self.progress = progress

    def score(self, policy: str) -> float:
        if policy not in self.models:
            self.models[policy] = _histograms(self.programs.run(policy))
            if self.progress is not None:
                self.progress(min(len(self.models) / 40, 0.99))
        return _likelihood(self.recorded, self.models[policy])

    def spread(self, policy: str) -> float:
        """How much the likelihood of a policy varies with small perturbations."""
        scores = [
            _likelihood(self.recorded, _histograms(self.programs.run(policy, perturbation=perturbation)))
            for perturbation in self.programs.perturbations(REPEATS)
        ]
        return statistics.stdev(scores)

    def finding(self, name: str, candidates: Mapping[str, str], sigma: float) -> Finding:
        scores = {label: self.score(policy) for label, policy in candidates.items()}
        best = max(scores, key=lambda label: scores[label])
        # Both the best and the other vary.
        within = Z90 * math.sqrt(2) * sigma
        likely = tuple(label for label, s in scores.items() if scores[best] - s <= within)
        relative = {label: s - scores[best] for label, s in scores.items()}
        return Finding(name, best, likely, len(likely) == len(scores), relative)


def _with(policy: str, setting: str) -> str:
    return policy + ("," if ":" in policy else ":") + setting


def infer_parameters(
    trace: Trace, *, family: str | None = None, progress: Callable[[float], object] | None = None
) -> Inference:
    """Learn the scheduler's parameters from a trace.

    Parameters
    ----------
    trace
        A recorded trace with switches and wakeups.
    family
        A policy such as ``eevdf:version=6.12`` when it is known; by default what the kernel's
        version says, and all families where the trace does not name its kernel.
    progress
        Called with the share that is done.

    Returns
    -------
    Inference
        What was found, or why nothing is said.

    Raises
    ------
    ReplayError
        When the trace cannot be replayed.
    """
    stated, _ = by_kernel(trace, ["cfs", "eevdf"])
    preempted = trace.slices.filter(pl.col("involuntary")).height
    if preempted < LEAST:
        why = f"{preempted} slices ended by preemption, expected at least {LEAST}: record for longer, or under load"
        return Inference(family or stated, (), None, "", why)
    programs = Programs(trace)
    search = _Search(trace, programs, progress)
    families = dict(_FAMILIES)
    if family is not None or names_kernel(trace):
        chosen = family or stated
        families = {chosen: chosen}
    first = max(families.values(), key=search.score)
    sigma = search.spread(first)
    findings = [search.finding("family", families, sigma)] if len(families) > 1 else []
    policy = first
    name = policy.partition(":")[0]
    cpus = trace.slices["cpu"].n_unique()
    scale = scale_of(cpus)
    for parameter, unscaled in _SCALED.get(name, {}).items():
        # cfs scales what it is given, eevdf takes it as it is.
        default = unscaled * (scale if name == "eevdf" else 1)
        least = _BOUND.get(parameter, 1)
        values = [max(round(default * f), least) for f in _FACTORS] + [0] * (parameter in _ZERO)
        candidates = {f"{ns}ns": _with(policy, f"{parameter}={ns}ns") for ns in values}
        found = search.finding(parameter, candidates, sigma)
        if len(found.likely) <= FEW:
            likely = [int(label.removesuffix("ns")) for label in found.likely]
            fine = {max(round(ns * f), least) for ns in likely if ns for f in (1 / _FINE, _FINE)}
            candidates |= {f"{ns}ns": _with(policy, f"{parameter}={ns}ns") for ns in sorted(fine)}
            found = search.finding(parameter, candidates, sigma)
        findings.append(found)
        policy = _keep(policy, found, parameter, f"{default}ns")
    for parameter in _SWITCHES.get(name, ()):
        candidates = {v: _with(policy, f"{parameter}={v}") for v in ("on", "off")}
        found = search.finding(parameter, candidates, sigma)
        findings.append(found)
        policy = _keep(policy, found, parameter, "on")
    search.score(policy)
    share, group = _unexplained(search.recorded, search.models[policy])
    if progress is not None:
        progress(1.0)
    return Inference(policy, tuple(findings), share, group)


def _keep(policy: str, found: Finding, parameter: str, default: str) -> str:
    """The policy with what was found, where the default is not in the set."""
    return policy if default in found.likely else _with(policy, f"{parameter}={found.best}")


def _short(value: str | None) -> str:
    """A value as a person writes it; a policy takes it so."""
    ns = (value or "").removesuffix("ns")
    return format_ns(int(ns)).replace(" ", "") if ns.isdigit() and ns != value else str(value)


def lines(found: Inference) -> Sequence[str]:
    """What was found, in sentences.

    Parameters
    ----------
    found
        What `infer_parameters` gave.

    Returns
    -------
    sequence of str
        One sentence per parameter, and what is left unexplained.
    """
    if found.refused:
        return [found.refused]
    said = []
    for f in found.findings:
        if f.flat:
            said.append(f"{f.name}: the trace does not say")
        else:
            best, *likely = (_short(value) for value in (f.best, *f.likely))
            said.append(f"{f.name}: {best} (90 % set: {', '.join(likely)})")
    share = 100 * (found.unexplained or 0.0)
    if found.stock:
        said.append(f"{share:.0f} % of slices and latencies are not as {found.policy} makes them")
    else:
        said.append(
            f"no stock policy explains this: {share:.0f} % contradict the best, most in {found.worst_group}"
        )
    return said
