"""How far a predicted metric can be off.

One interval, used by `tracekit.compare` and by the validation alike.

A prediction is repeated with perturbations: every run and timer sleep is changed by what the
machine's own costs vary by, the kernel's random numbers are drawn anew, and some repetitions move
the phase of the clock tick. What then differs, what the identity replay gets wrong, what a sample
of this size leaves open, and what predictions of this kind were found to miss beyond that together
make the interval. See docs/definitions.md.
"""

from __future__ import annotations

import math
import statistics
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import polars as pl

__all__ = [
    "KINDS",
    "NONE",
    "PLAIN",
    "Case",
    "Interval",
    "ModelError",
    "Perturbation",
    "apart",
    "centre",
    "fit",
    "interval",
    "kernel_share",
    "kernel_shares",
    "kind_of_change",
    "measured",
    "model_error",
    "modes",
    "perturbations",
    "quantile",
    "resolved",
    "scheduler",
]

#: Half-width of a 90 % interval of a normal distribution, in standard deviations.
Z90 = statistics.NormalDist().inv_cdf(0.95)
#: Repetitions of a prediction, the plain one included.
RUNS = 9
#: Least jitter, ns: no model of a machine is exact to less.
MIN_JITTER_NS = 200
#: A change that is smaller, relative to the figure, never counts as resolved.
FLOOR = 0.005
#: Kinds of change: another set-up of the same scheduler, or another scheduler.
KINDS = ("same scheduler", "other scheduler")


@dataclass(frozen=True)
class Perturbation:
    """How one repetition differs from the plain replay.

    Changes of runs and timers, the phase of the tick, and the kernel's random numbers by the seed.
    """

    seed: int
    jitter_ns: int
    phase_ns: int

    @property
    def in_place(self) -> bool:
        """The tick is where it was recorded."""
        return self.phase_ns == 0


#: The replay without a change.
PLAIN = Perturbation(0, 0, 0)


def perturbations(
    tick_ns: int, jitter_ns: float, phase_known: bool = True, runs: int = RUNS
) -> list[Perturbation]:
    """Give the repetitions of a prediction; the first is the plain replay.

    Parameters
    ----------
    tick_ns
        Length of a clock tick.
    jitter_ns
        How much the machine's costs vary, as measured; at least `MIN_JITTER_NS` is used.
    phase_known
        The phase of the tick is known: a third of the repetitions move it, otherwise all do.
    runs
        How many, the plain one included.
    """
    jitter = max(MIN_JITTER_NS, round(jitter_ns))
    found = [PLAIN]
    moved = 0
    total = max(1, (runs - 1) // 3 + 1) if phase_known else max(runs, 1)
    for seed in range(1, runs):
        phase = 0
        if not phase_known or seed % 3 == 0:
            moved += 1
            phase = round(tick_ns * moved / total) % max(tick_ns, 1)
        found.append(Perturbation(seed, jitter, phase))
    return found


def centre(values: Sequence[float]) -> float:
    """Give the prediction: the median of the repetitions, of an even number the lower of the middle two.

    Parameters
    ----------
    values
        The figure in each repetition.
    """
    return statistics.median_low(values)


def modes(values: Sequence[float]) -> tuple[float, float] | None:
    """Tell whether a figure has two values and none between.

    Definition: the values are cut at their largest gap. The schedule is bimodal when each side has
    a quarter of them and at least two, the gap is one and a half times as wide as the wider side,
    and 5 % of the median.

    Parameters
    ----------
    values
        The figure in each repetition; fewer than six say nothing.

    Returns
    -------
    tuple of float or None
        The medians of the two sides, or None.
    """
    ordered = sorted(values)
    n = len(ordered)
    least = max(2, math.ceil(n / 4))
    if n < 6:
        return None
    gap, at = max((ordered[i] - ordered[i - 1], i) for i in range(1, n))
    low, high = ordered[:at], ordered[at:]
    if min(len(low), len(high)) < least:
        return None
    width = max(low[-1] - low[0], high[-1] - high[0])
    if gap < 1.5 * width or gap < 0.05 * abs(statistics.median(ordered)):
        return None
    return statistics.median(low), statistics.median(high)


def kernel_share(demands: pl.DataFrame) -> float:
    """Give the share of tasks' demand that is next to steps which the kernel does for them.

    What a fork, an exec, an exit or a yield costs differs between kernels and policies, and no
    schedule says by how much. The work between two sleeps or such steps counts, up to 2 ms of it,
    when one of them is at its end or its start; an endless task has none. What a task does before
    its first sleep is its start-up and left out, where more follows.

    Parameters
    ----------
    demands
        Rows of `tracekit.Programs.demands` of the tasks in question.
    """
    kernel, work = int(demands["kernel_ns"].sum()), int(demands["work_ns"].sum())
    return kernel / work if work and not demands["endless"].any() else 0.0


def kernel_shares(demands: pl.DataFrame) -> dict[str | None, float]:
    """Give the `kernel_share` of each group of tasks.

    Parameters
    ----------
    demands
        Rows of `tracekit.Programs.demands`, with the column `group`.
    """
    return {part["group"][0]: kernel_share(part) for part in demands.partition_by("group")}


@dataclass(frozen=True)
class ModelError:
    """What predictions of a kind miss beyond what their own terms say, as found on real pairs.

    Attributes
    ----------
    kind
        One of `KINDS`.
    base
        Relative error in any case.
    kernel
        What is added per share of kernel work, see `kernel_share`.
    n
        Pairs behind it.
    """

    kind: str
    base: float
    kernel: float
    n: int

    def width(self, measured: float, share: float) -> float:
        """Relative half-width of the interval of a metric.

        From its measured terms and its share of kernel work.
        """
        return math.hypot(measured, self.base, self.kernel * share)


#: No model error: the interval of the measured terms alone.
NONE = ModelError("", 0.0, 0.0, 0)


@cache
def model_error() -> dict[str, ModelError]:
    """Give the model errors that ship with the package, by kind; they come from `make validate`."""
    text = resources.files("tracekit.whatif").joinpath("model_error.toml").read_text()
    table = tomllib.loads(text)
    return {k: ModelError(k, t["base"], t["kernel"], t["pairs"]) for k, t in table["kind"].items()}


def kind_of_change(identity: str, policy: str) -> str:
    """Tell the kind of a change from the policies' spelling.

    Another name, or another ``form`` or ``version``, is another scheduler; other parameters or
    attributes of tasks are not.

    Parameters
    ----------
    identity, policy
        The policy of the recording, and the one that is predicted; with all their parameters or without.
    """
    return KINDS[scheduler(identity) != scheduler(policy)]


def scheduler(policy: str) -> tuple[str, ...]:
    """Give the name of a policy, and its ``form`` or ``version`` where it is stated, as it is spelled."""
    name, _, parameters = policy.partition(":")
    return (name, *(p for p in parameters.split(",") if p.startswith(("form=", "version="))))


@dataclass(frozen=True)
class Interval:
    """A prediction with its 90 % interval.

    Attributes
    ----------
    low, high
        The interval.
    spread, sampling, identity
        Relative half-widths that were measured: repetitions, sample size, error of the identity replay.
    measured
        The three together.
    """

    low: float
    high: float
    spread: float
    sampling: float
    identity: float
    measured: float


def _stdev(values: Sequence[float]) -> float:
    """Standard deviation of a sample; 0 for fewer than two values.

    `statistics.stdev` is exact beyond what a float holds, and takes twenty times as long.
    """
    n = len(values)
    if n < 2:
        return 0.0
    mean = math.fsum(values) / n
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))


def _spread(values: Sequence[float]) -> float:
    """Standard deviation of the logarithms."""
    return _stdev([math.log(v) for v in values if v > 0])


def _reach(predicted: float, values: Sequence[float]) -> float:
    """Relative half-width of what the repetitions hold; of a bimodal schedule it reaches both values."""
    two = modes(values) or ()
    far = [abs(math.log(m / predicted)) for m in two if m > 0]
    return max([Z90 * _spread(values), *far])


def interval(
    predicted: float,
    values: Sequence[float],
    recorded: float,
    identity: float,
    sampling: float = 0.0,
    model: ModelError = NONE,
    share: float = 0.0,
) -> Interval | None:
    """Give the 90 % interval of a prediction.

    Definition: predicted * exp(-+ w), w^2 = (1.645 s)^2 + b^2 + e^2 + c^2 + (d q)^2, all relative:
    s the standard deviation of the logarithm over the repetitions (where they have two values,
    1.645 s reaches both); b the half-width of the 90 % bootstrap interval;
    e = |log(identity / recorded)|; c and d the `base` and `kernel` of the model error for this kind
    of change; q the share of kernel work.

    Parameters
    ----------
    predicted
        The prediction, see `centre`.
    values
        The figure in each repetition.
    recorded, identity
        The figure in the recording and in its identity replay.
    sampling
        b.
    model
        c and d.
    share
        q, see `kernel_share`.

    Returns
    -------
    Interval or None
        None for a figure that is not positive.
    """
    if predicted <= 0 or not math.isfinite(predicted):
        return None
    spread = _reach(predicted, values)
    miss = abs(math.log(identity / recorded)) if identity > 0 and recorded > 0 else 0.0
    measured = math.hypot(spread, sampling, miss)
    width = model.width(measured, share)
    return Interval(
        predicted * math.exp(-width), predicted * math.exp(width), spread, sampling, miss, measured
    )


def apart(plain: float | None, perturbed: Sequence[float]) -> tuple[float, ...]:
    """Give what a metric is with and without a phase of its tasks that perturbations break.

    Definition: |median - plain| > max(1.645 s, 0.005 |plain|), s the standard deviation of the
    perturbed repetitions, median that of these.

    Parameters
    ----------
    plain
        The metric in the plain replay.
    perturbed
        The metric in the repetitions whose tick is where it was recorded, without the plain replay;
        fewer than two say nothing.

    Returns
    -------
    tuple of float
        `plain` and the median; empty where they are not apart.
    """
    if plain is None or len(perturbed) < 2:
        return ()
    middle = statistics.median_low(perturbed)
    far = abs(middle - plain) > max(Z90 * _stdev(perturbed), FLOOR * abs(plain))
    return (plain, middle) if far else ()


def measured(
    predicted: float, values: Sequence[float], outcomes: Sequence[float], recorded: float, identity: float
) -> float | None:
    """Give what the trace itself says of the error of a prediction, as a relative half-width.

    Definition: w^2 = s'^2 + e^2, with s' the largest of 1.645 standard deviations of the logarithm
    over the repetitions, of the way to either of two outcomes, and of that to the plain and to the
    perturbed replays where it is phase-sensitive; e = |log(identity / recorded)|.

    Parameters
    ----------
    predicted
        The prediction, see `centre`.
    values
        The metric in each repetition.
    outcomes
        What it is with and without a phase, see `apart`.
    recorded, identity
        The metric in the recording and in the identity replay.

    Returns
    -------
    float or None
        None where one of them is not positive.
    """
    if min(predicted, recorded, identity) <= 0:
        return None
    far = (abs(math.log(value / predicted)) for value in outcomes if value > 0)
    return math.hypot(max(_reach(predicted, values), *far, 0.0), math.log(identity / recorded))


def quantile(scores: Iterable[tuple[float, str]], level: float = 0.9) -> float:
    """Give the quantile that split-conformal prediction takes.

    It is taken over families of pairs that all count the same.

    Definition: the smallest score up to which the weights of the scores reach `level` of all
    weights, one more pair of mean weight counted; a pair weighs 1 / pairs of its family. With one
    family this is the ceil((n + 1) level)-th smallest.

    Parameters
    ----------
    scores
        Score and family (workload) of each real pair; where they do not reach the level, the
        largest is taken.
    level
        Share that is to be covered.

    References
    ----------
    V. Vovk, A. Gammerman, G. Shafer, Algorithmic learning in a random world, Springer 2005, chapter 4.
    R. J. Tibshirani et al., Conformal prediction under covariate shift, NeurIPS 2019 (weights).
    """
    ordered = sorted(scores)
    if not ordered:
        return 0.0
    sizes = Counter(family for _, family in ordered)
    wanted = level * len(sizes) * (1 + 1 / len(ordered))
    reached = 0.0
    for score, family in ordered:
        reached += 1 / sizes[family]
        if reached >= wanted - 1e-9:
            return score
    return ordered[-1][0]


#: Fewest pairs that a term is fitted to.
MIN_PAIRS = 10


@dataclass(frozen=True)
class Case:
    """A real pair, for the fit.

    Its family, |log(real / predicted)|, `Interval.measured`, share of kernel work.
    """

    family: str
    error: float
    measured: float
    share: float


def fit(kind: str, cases: Sequence[Case]) -> ModelError:
    """Fit the model error of a kind of change to real pairs.

    Each term is the conformal quantile (90 %) of what the terms before it leave of the errors:
    `base` over pairs with less than half kernel work, `kernel`, per share, over the others. A term
    with fewer than `MIN_PAIRS` pairs is 0.

    Parameters
    ----------
    kind
        One of `KINDS`.
    cases
        The pairs.
    """

    def left(c: Case, base: float) -> float:
        return math.sqrt(max(0.0, c.error**2 - c.measured**2 - base**2))

    def term(scores: Sequence[tuple[float, str]]) -> float:
        return quantile(scores) if len(scores) >= MIN_PAIRS else 0.0

    base = term([(left(c, 0.0), c.family) for c in cases if c.share < 0.5])
    kernel = term([(left(c, base) / c.share, c.family) for c in cases if c.share >= 0.5])
    return ModelError(kind, base, kernel, len(cases))


def resolved(
    predicted: float, identity: float, recorded: float, values: Sequence[float], same: Sequence[float]
) -> bool:
    """Tell whether an effect is larger than what is known of its error.

    Definition: |predicted - identity| > max(|identity - recorded|, 0.005 |identity|, 1.645
    sqrt(s_p^2 + s_i^2)), the last in units of the figure: s_p and s_i the standard deviations over
    the repetitions of the prediction and of the identity replay.

    Parameters
    ----------
    predicted, identity, recorded
        The figure.
    values, same
        Repetitions of the prediction and of the identity replay; fewer than two say nothing.
    """
    noise = math.hypot(_stdev(values), _stdev(same))
    bar = max(abs(identity - recorded), FLOOR * abs(identity), Z90 * noise)
    return abs(predicted - identity) > bar
