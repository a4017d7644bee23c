"""What differs between two captures, or two sets of captures, and whether it is more than chance.

One row a group of tasks, metric and statistic: the values, the relative change with its interval,
and a verdict that accounts for how many rows were looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit import _core
from tracekit.analysis.uncertainty import false_discovery
from tracekit.analysis.windows import METRICS, RATES, Sample, quantile_of, spread, weights

Floats = NDArray[np.float64]
#: Group to sample, of one capture and one metric.
Samples = Mapping[str, Sample]

#: Level of the intervals.
CONFIDENCE = 0.90
#: Share of rows called changed that may be so by chance (Benjamini and Hochberg).
FALSE_DISCOVERIES = 0.05
#: Changes smaller than this are not worth a word.
MIN_EFFECT = 0.05
STATISTICS = ("mean", "p50", "p95", "p99")
#: How much captures of the same thing differ, as a relative standard deviation, where there is one
#: capture a side: middle of a distribution, and its tail. One capture cannot tell. Repeats of 24
#: workloads on 1, 2 and 4 CPUs spread by a median of 5 % in means and 12 % in p95; without this
#: term 8 % of the rows of repeats on several CPUs are called changed, with it 4 %; on one CPU none
#: either way.
REPEAT_SPREAD = 0.05
TAIL_FACTOR = 2.0
VERDICTS = ("changed", "unchanged", "cannot tell")

SCHEMA = pl.Schema(
    {
        "group": pl.String,
        "metric": pl.String,
        "statistic": pl.String,
        "unit": pl.String,
        "a": pl.Float64,
        "b": pl.Float64,
        "change": pl.Float64,
        "lo": pl.Float64,
        "hi": pl.Float64,
        "n_a": pl.Int64,
        "n_b": pl.Int64,
        "n_captures_a": pl.Int64,
        "n_captures_b": pl.Int64,
        "ks": pl.Float64,
        "ks_p": pl.Float64,
        "p": pl.Float64,
        "q": pl.Float64,
        "verdict": pl.String,
        "reason": pl.String,
    }
)


def adjusted(p: Sequence[float | None]) -> list[float | None]:
    """P-values corrected for their number.

    Definition: q_(i) = min over j >= i of p_(j) m / j, p sorted ascending, m the number of tests:
    calling rows with q <= 0.05 changed makes at most 5 % of such calls false, on average.

    Parameters
    ----------
    p
        P-values; None where there was no test.

    Returns
    -------
    list of float or None
        In the same order.

    References
    ----------
    Y. Benjamini and Y. Hochberg, Controlling the false discovery rate, JRSS B 57 (1995) 289-300.
    """
    known = [i for i, x in enumerate(p) if x is not None]
    out: list[float | None] = [None] * len(p)
    if known:
        corrected = false_discovery([float(p[i] or 0.0) for i in known])
        for i, q in zip(known, corrected, strict=True):
            out[i] = float(q)
    return out


def compare(
    a: Sequence[Mapping[str, Samples]],
    b: Sequence[Mapping[str, Samples]],
    min_effect: float = MIN_EFFECT,
    confidence: float = CONFIDENCE,
    statistics: Sequence[str] = STATISTICS,
    repeat_spread: float = REPEAT_SPREAD,
) -> pl.DataFrame:
    """Compare two captures or two sets of captures, metric by metric.

    Definition: change = b / a - 1, a and b the statistic (of a set: the geometric mean of its
    captures). One capture a side: the variance of log b / a is that of windows of time drawn anew
    in each (`tracekit.analysis.windows`) plus 2 `repeat_spread`^2. Several: from capture to
    capture, pooled over both sides. Interval and p-value from Student's t. A row is `changed` when
    q <= 0.05 and |change| >= `min_effect`, `unchanged` when the whole interval lies within
    `min_effect` of 0, else it `cannot tell`.

    Parameters
    ----------
    a, b
        Captures: of each, metric to group to sample, from `tracekit.analysis.windows.samples`. Of a
        set, those count in a row that have its statistic; where that is one on each side, it is
        compared as one capture a side.
    min_effect
        Smallest relative change that counts.
    confidence
        Level of the intervals.
    statistics
        ``mean`` and quantiles; rates have their mean only.
    repeat_spread
        Relative standard deviation between captures of the same thing, used with one capture a
        side; doubled for quantiles above 0.9.

    Returns
    -------
    pl.DataFrame
        Changed rows first, by size of the change: `group`, `metric`, `statistic`, `unit` (String:
        ns, share or 1/s), `a`, `b` (Float64, in that unit; null where a side has no such
        statistic), `change`, `lo`, `hi` (Float64, relative; null with `reason`), `n_a`, `n_b`
        (Int64, samples), `n_captures_a`, `n_captures_b` (Int64), `ks` (Float64, largest distance of
        the distribution functions), `ks_p` (Float64, share of random exchanges of windows that give
        a distance as large; given once a metric, beside the mean; null for sets and rates), `p`,
        `q` (Float64, q corrected for the number of rows), `verdict` (String, one of `VERDICTS`),
        `reason` (String, why it cannot tell; else null).

    Notes
    -----
    How it can mislead: one capture a side knows nothing of how captures of the same thing differ
    (boot, tick phase, placement): a change that it finds is one of these two captures. Give several
    captures a side to know more.
    """
    rows = []
    for metric, (unit, _) in METRICS.items():
        groups = sorted({g for side in (a, b) for one in side for g in one.get(metric, {})})
        for group in groups:
            left = [one[metric][group] for one in a if group in one.get(metric, {})]
            right = [one[metric][group] for one in b if group in one.get(metric, {})]
            for stat in ("mean",) if metric in RATES else statistics:
                row = _row(left, right, stat, confidence, repeat_spread)
                if row is not None:
                    rows.append({"group": group, "metric": metric, "statistic": stat, "unit": unit, **row})
    q = adjusted([p if isinstance(p := r["p"], float) else None for r in rows])
    for row, corrected in zip(rows, q, strict=True):
        row["q"] = corrected
        row["verdict"] = _verdict(row, corrected, min_effect)
    frame = pl.DataFrame(rows, schema=SCHEMA)
    order = pl.col("verdict").replace_strict({v: i for i, v in enumerate(VERDICTS)}, return_dtype=pl.Int8)
    size = (1 + pl.col("change")).log().abs()
    return frame.sort(
        [order, pl.when(size.is_finite()).then(size), "group", "metric", "statistic"],
        descending=[False, True, False, False, False],
        nulls_last=True,
    )


def _verdict(row: Mapping[str, float | str | None], q: float | None, least: float) -> str:
    change, lo, hi = row["change"], row["lo"], row["hi"]
    if not isinstance(change, float) or not isinstance(lo, float) or not isinstance(hi, float) or q is None:
        return "cannot tell"
    if q <= FALSE_DISCOVERIES and abs(change) >= least:
        return "changed"
    return "unchanged" if lo >= -least and hi <= least else "cannot tell"


def _row(
    left: Sequence[Sample], right: Sequence[Sample], stat: str, confidence: float, repeat: float
) -> dict[str, float | int | str | None] | None:
    """Values and change of one row; None when neither side has the statistic."""
    known = [[(s, v) for s in side if (v := s.statistic(stat)) is not None] for side in (left, right)]
    values = [[v for _, v in side] for side in known]
    if not values[0] and not values[1]:
        return None
    # Captures of a set that have too few samples for this statistic say nothing of it.
    left, right = ([s for s, _ in has] or side for has, side in zip(known, (left, right), strict=True))
    row: dict[str, float | int | str | None] = dict.fromkeys(
        ("change", "lo", "hi", "ks", "ks_p", "p", "reason")
    )
    row |= {"a": _middle(values[0]), "b": _middle(values[1])}
    row |= {"n_a": sum(s.n for s in left), "n_b": sum(s.n for s in right)}
    row |= {"n_captures_a": len(left), "n_captures_b": len(right)}
    if not values[0] or not values[1]:
        side = "a" if not values[0] else "b"
        row["reason"] = (
            f"{side} has too few samples for {stat}" if (left if side == "a" else right) else f"not in {side}"
        )
        return row
    if min(min(values[0]), min(values[1])) <= 0:
        row["reason"] = "a value of 0 has no relative change"
        return row
    if max(len(v) for v in values) > 1:
        row |= _between(values[0], values[1], confidence)
    else:
        row |= _within(left[0], right[0], stat, confidence, repeat)
    return row


def _middle(values: Sequence[float]) -> float | None:
    if not values:
        return None
    if min(values) <= 0:
        return float(np.mean(values))
    return float(np.exp(np.mean(np.log(values))))


def _result(effect: float, se: float, df: float, confidence: float) -> dict[str, float | None]:
    t = _core.t_quantile(df, confidence)
    p = _core.t_tails(df, effect / se) if se > 0 else (1.0 if effect == 0 else 0.0)
    low, middle, high = np.expm1([effect - t * se, effect, effect + t * se])
    return {"change": float(middle), "lo": float(low), "hi": float(high), "p": p}


def _between(a: Sequence[float], b: Sequence[float], confidence: float) -> dict[str, float | str | None]:
    """Change between sets: the spread from capture to capture."""
    x, y = np.log(a), np.log(b)
    df = len(x) + len(y) - 2
    pooled = float(((x - x.mean()) ** 2).sum() + ((y - y.mean()) ** 2).sum()) / df
    se = float(np.sqrt(pooled * (1 / len(x) + 1 / len(y))))
    return {**_result(float(y.mean() - x.mean()), se, df, confidence)}


def _within(
    a: Sample, b: Sample, stat: str, confidence: float, repeat: float
) -> dict[str, float | str | None]:
    """Change between two captures: the spread between stretches of time in each."""
    one, other = a.statistic(stat), b.statistic(stat)
    assert one is not None
    assert other is not None
    effect = float(np.log(other / one))
    distance = _distance(a, b) if stat == "mean" and not a.rate else {}
    reasons = [f"{side}: {why}" for side, s in (("a", a), ("b", b)) if (why := s.why_no_interval(stat))]
    if reasons:
        return {"change": float(np.expm1(effect)), "reason": "; ".join(reasons), **distance}
    # Of each side alone: which side a capture is on changes nothing.
    drawn = [spread(s, stat) for s in (a, b)]
    logs = [np.log(d[d > 0]) for d in drawn if d is not None]
    variance = [float(x.var(ddof=1)) for x in logs]
    freedom = [len(np.unique(s.window)) - 1 for s in (a, b)]
    total = sum(variance)
    spread_of = repeat * (TAIL_FACTOR if stat != "mean" and quantile_of(stat) > 0.9 else 1.0)
    df = (
        total**2 / sum(v**2 / f for v, f in zip(variance, freedom, strict=True))
        if total > 0
        else min(freedom)
    )
    return {**_result(effect, float(np.sqrt(total + 2 * spread_of**2)), df, confidence), **distance}


def _distance(a: Sample, b: Sample, draws: int = 400) -> dict[str, float | str | None]:
    """Distance of Kolmogorov and Smirnov, with its p-value.

    It says how often windows that change sides at random give a distance as large.
    """
    grid = np.union1d(a.grid, b.grid)
    a, b = _in_order(a, b)
    counts = np.concatenate([a.counts(grid), b.counts(grid)])
    counts = counts[counts[:, -1] > 0]
    first = int((np.bincount(a.window, minlength=a.windows) > 0).sum())
    rng = np.random.Generator(np.random.PCG64(0))
    side = np.zeros((draws + 1, len(counts)))
    side[0, :first] = 1
    for row in side[1:]:
        row[rng.permutation(len(counts))[:first]] = 1
    one, other = side @ counts, (1 - side) @ counts
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.abs(one / one[:, -1:] - other / other[:, -1:]).max(axis=1)
    return {"ks": float(apart[0]), "ks_p": float((apart[1:] >= apart[0] - 1e-12).sum() + 1) / (draws + 1)}


def _in_order(a: Sample, b: Sample) -> tuple[Sample, Sample]:
    """Both in an order that does not depend on which is given first, so that draws do not either."""
    one, other = ((len(s.grid), np.asarray(s.grid).tobytes(), np.asarray(s.window).tobytes()) for s in (a, b))
    return (a, b) if one <= other else (b, a)


def shift(a: Sample, b: Sample, confidence: float = CONFIDENCE, draws: int = 400) -> pl.DataFrame:
    """The change of every quantile, with a band.

    Definition: shift(q) = Q_b(q) - Q_a(q) (Doksum), and the band from windows of time drawn anew in
    both. The band holds for each quantile by itself, not for all at once.

    Parameters
    ----------
    a, b
        Samples of one metric of two captures.
    confidence
        Level of the band.
    draws
        Of the bootstrap.

    Returns
    -------
    pl.DataFrame
        One row per quantile from 0.05 to 0.95, and 0.99 where both have enough samples: `quantile`,
        `a`, `b`, `shift`, `lo`, `hi` (Float64, in the unit of the metric; bounds are null where a
        sample is too small).

    References
    ----------
    K. Doksum, Empirical probability plots and statistical inference for nonlinear models, Annals of
    Statistics 2 (1974) 267-277.
    """
    rows = []
    seeds = (0, 1) if _in_order(a, b)[0] is a else (1, 0)
    w = [weights(s.windows, draws, seed) for seed, s in zip(seeds, (a, b), strict=True)]
    for q in [*np.arange(0.05, 0.951, 0.05).round(2), 0.99]:
        stat = f"p{100 * q:g}"
        one, other = a.statistic(stat), b.statistic(stat)
        if one is None or other is None:
            continue
        lo = hi = None
        if a.why_no_interval(stat) is None and b.why_no_interval(stat) is None:
            apart = b.draws(stat, w[1]) - a.draws(stat, w[0])
            ends = np.nanquantile(apart, [(1 - confidence) / 2, (1 + confidence) / 2])
            lo, hi = float(ends[0]), float(ends[1])
        rows.append({"quantile": float(q), "a": one, "b": other, "shift": other - one, "lo": lo, "hi": hi})
    names = ("quantile", "a", "b", "shift", "lo", "hi")
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Float64))
