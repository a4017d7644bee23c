"""How far a figure can be trusted: censored samples, confidence intervals, distance between distributions.

Scheduler samples follow one another: the delay of one wakeup tells of the next. So intervals come from a block
bootstrap, which draws whole runs of consecutive samples, and there is none below a stated number of samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracekit.analysis import _common as c

#: Fewest samples for an interval of a mean.
MIN_N = 20
#: Fewest independent blocks for any interval.
MIN_BLOCKS = 8
#: Fewest samples expected on each side of a quantile for its interval.
MIN_TAIL = 5


def kaplan_meier(
    df: pl.DataFrame, value: str, keys: Sequence[str] = (), censored: str = "censored"
) -> pl.DataFrame:
    """Estimate distribution functions from samples of which some are only known to be larger.

    Definition: F(t) = 1 - prod over t_i <= t of (1 - d_i / r_i), where d_i samples ended at t_i and r_i had lasted at
    least t_i; a sample censored at t_i still counts in r_i. Without censored samples this is the empirical
    distribution function, and is computed as such.

    Parameters
    ----------
    df
        Samples, in any order; nulls in `value` are left out.
    value
        Name of an integer column.
    keys
        Columns to group by.
    censored
        Name of a Boolean column, true for samples that last longer than `value`; without it all are complete.

    Returns
    -------
    pl.DataFrame
        One row per group and distinct value, ascending: the keys, `value_ns` (Int64), `n_at_risk` (UInt32, samples that
        lasted at least this long), `n_events` (UInt32, samples that ended here), `n_censored` (UInt32), `cdf`
        (Float64, F at this value; below 1 at the last row when the largest sample is censored).

    References
    ----------
    E. L. Kaplan and P. Meier, Nonparametric estimation from incomplete observations, JASA 53 (1958) 457-481.
    """
    keys = list(keys)
    flag = pl.col(censored).fill_null(False) if censored in df.columns else pl.lit(False)
    rows = df.filter(pl.col(value).is_not_null()).select(
        *keys, pl.col(value).cast(pl.Int64).alias("value_ns"), flag.alias("_c")
    )
    out = (
        rows.group_by(*keys, "value_ns")
        .agg(
            (~pl.col("_c")).sum().cast(pl.UInt32).alias("n_events"),
            pl.col("_c").sum().cast(pl.UInt32).alias("n_censored"),
        )
        .sort(*keys, "value_ns", nulls_last=True)
    )

    def over(expr: pl.Expr) -> pl.Expr:
        return expr.over(keys) if keys else expr

    both = pl.col("n_events") + pl.col("n_censored")
    total = over(both.sum())
    out = out.with_columns(
        (total - over(both.cum_sum()) + both).cast(pl.UInt32).alias("n_at_risk"),
        over(pl.col("n_events").cum_sum()).alias("_done"),
        total.alias("_n"),
        over(pl.col("n_censored").sum()).alias("_nc"),
    )
    survival = over((1.0 - pl.col("n_events") / pl.col("n_at_risk")).cum_prod())
    plain = pl.col("_done") / pl.col("_n")
    return out.with_columns(
        pl.when(pl.col("_nc") == 0).then(plain).otherwise(1.0 - survival).alias("cdf")
    ).select(*keys, "value_ns", "n_at_risk", "n_events", "n_censored", "cdf")


def describe_censored(
    df: pl.DataFrame,
    value: str,
    keys: Sequence[str],
    qs: Sequence[float] = c.QUANTILES,
    censored: str = "censored",
) -> pl.DataFrame:
    """Describe samples of which some are censored, by group.

    Definition: quantile q = the smallest t with F(t) >= q, F after Kaplan and Meier. Mean = sum / n of the complete
    samples when none is censored, else the restricted mean, the integral of 1 - F up to the largest sample: a
    lower bound when that sample is censored.

    Parameters
    ----------
    df
        Samples.
    value
        Name of an integer column, ns.
    keys
        Columns to group by.
    qs
        Quantiles between 0 and 1.
    censored
        Name of a Boolean column, true for samples that last longer than `value`.

    Returns
    -------
    pl.DataFrame
        One row per group, by descending sum: the keys, `n` (UInt32, samples, censored ones included), `n_censored`
        (UInt32), `sum_ns` (Int64, of all samples as far as seen), `mean_ns` (Float64), `mean_is_bound` (Boolean,
        true when the mean is a lower bound), `min_ns` (Int64), one `pNN_ns` a quantile (Int64; null when n (1 - q) < 1
        or when so many samples are censored that F does not reach q), `max_ns` (Int64, largest complete sample;
        null when all are censored).
    """
    keys = list(keys)
    km = kaplan_meier(df, value, keys, censored)
    step = pl.col("value_ns") - pl.col("value_ns").shift(1, fill_value=0).over(keys)
    before = 1.0 - pl.col("cdf").shift(1, fill_value=0.0).over(keys)
    km = km.with_columns((step * before).alias("_area"))
    complete = pl.col("n_events") > 0
    agg = [
        (pl.col("n_events").sum() + pl.col("n_censored").sum()).cast(pl.UInt32).alias("n"),
        pl.col("n_censored").sum().cast(pl.UInt32).alias("n_censored"),
        (pl.col("value_ns") * (pl.col("n_events") + pl.col("n_censored")).cast(pl.Int64))
        .sum()
        .alias("sum_ns"),
        pl.col("_area").sum().alias("_restricted"),
        (pl.col("cdf").last() < 1 - 1e-9).alias("mean_is_bound"),
        pl.col("value_ns").min().alias("min_ns"),
        pl.col("value_ns").filter(complete).max().alias("max_ns"),
    ]
    agg += [pl.col("value_ns").filter(pl.col("cdf") >= q - 1e-9).min().alias(c.quantile_name(q)) for q in qs]
    out = km.group_by(keys).agg(agg)
    n = pl.col("n").cast(pl.Float64)
    out = out.with_columns(
        pl.when(pl.col("n_censored") == 0)
        .then(pl.col("sum_ns") / n)
        .otherwise(pl.col("_restricted"))
        .alias("mean_ns"),
        *(
            pl.when(n * (1 - q) >= 1 - 1e-9).then(pl.col(c.quantile_name(q))).alias(c.quantile_name(q))
            for q in qs
        ),
    )
    names = [c.quantile_name(q) for q in qs]
    return out.select(
        *(*keys, "n", "n_censored", "sum_ns", "mean_ns", "mean_is_bound", "min_ns", *names, "max_ns")
    ).sort(["sum_ns", *keys], descending=[True] + [False] * len(keys))


def block_length(values: NDArray[np.float64]) -> int:
    """Choose the block length of a bootstrap from the correlation of neighbouring samples.

    Definition: l = ceil((sqrt(6) r / (1 - r^2))^(2/3) n^(1/3)), with r the correlation of each sample with the next:
    the length that is best for the variance of a mean when samples follow a first-order autoregression
    (Carlstein 1986). At least 1; at most n.

    Parameters
    ----------
    values
        Samples in time order.

    Returns
    -------
    int
        Samples a block.

    References
    ----------
    E. Carlstein, The use of subseries values for estimating the variance of a general statistic from a stationary
    sequence, Annals of Statistics 14 (1986) 1171-1179.
    """
    n = len(values)
    if n < 3:
        return 1
    x = values - values.mean()
    power = float(x @ x)
    if power <= 0:
        return 1
    r = min(abs(float(x[:-1] @ x[1:]) / power), 0.99)
    return int(min(n, max(1, math.ceil((math.sqrt(6) * r / (1 - r * r)) ** (2 / 3) * n ** (1 / 3)))))


def _bootstrap_means(values: NDArray[np.float64], block: int, draws: int, seed: int) -> NDArray[np.float64]:
    """Return `draws` means of circular-block resamples, sorted."""
    n = len(values)
    blocks = math.ceil(n / block)
    wrapped = np.concatenate([values, values[: block - 1]])
    sums = np.concatenate([[0.0], np.cumsum(wrapped)])
    of_block = sums[block:] - sums[:-block]
    rng = np.random.Generator(np.random.PCG64(seed))
    out = np.empty(draws)
    # Drawn in portions: all at once would need draws * blocks numbers in memory.
    portion = max(1, 4_000_000 // blocks)
    for at in range(0, draws, portion):
        m = min(portion, draws - at)
        out[at : at + m] = of_block[rng.integers(0, n, size=(m, blocks))].sum(axis=1) / (blocks * block)
    return np.sort(out)


def _why_not(n: int, block: int, q: float | None) -> str | None:
    if n < MIN_N:
        return f"n = {n} is below {MIN_N}"
    if n / block < MIN_BLOCKS:
        return f"only {n // block} independent blocks of {block}; {MIN_BLOCKS} are needed"
    if q is not None and n * min(q, 1 - q) < MIN_TAIL:
        return f"n = {n} leaves fewer than {MIN_TAIL} samples beyond the quantile"
    return None


def interval(
    values: pl.Series | NDArray[np.float64],
    statistic: str | float = "mean",
    confidence: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
    block: int | None = None,
) -> pl.DataFrame:
    """Give a confidence interval of a mean or a quantile by a circular block bootstrap.

    Definition: for a mean, the percentiles (1 -+ confidence) / 2 of the means of resamples made of blocks of
    consecutive samples. For quantile q, the same for the share p of samples at or below the estimate; the interval
    is [Q(q + lo - p), Q(q + hi - p)], Q the sample's quantile function (Woodruff's inversion), so it costs no more
    than a mean.

    Parameters
    ----------
    values
        Samples **in time order**; nulls are left out.
    statistic
        `"mean"`, or a quantile between 0 and 1.
    confidence
        Level of the interval.
    draws
        Resamples.
    seed
        Of the random generator; the same seed gives the same interval.
    block
        Samples a block; by default `block_length`.

    Returns
    -------
    pl.DataFrame
        One row: `statistic` (String, `mean` or `p95`), `n` (UInt32), `value` (Float64; null when n = 0, for a quantile
        when n (1 - q) < 1), `lo` and `hi` (Float64; null when `reason` says why), `block` (UInt32; null when n = 0),
        `reason` (String; null when there is an interval).

    Notes
    -----
    How it can mislead: it tells how the figure would vary if the same workload ran on for as long again. It knows
    nothing of a workload that changes, of a second boot, or of records that were lost.
    """
    x = values.drop_nulls().to_numpy() if isinstance(values, pl.Series) else values
    x = np.asarray(x, dtype=np.float64)
    q = None if statistic == "mean" else float(statistic)
    if q is not None and not 0 < q < 1:
        raise ValueError(f"a quantile lies between 0 and 1, not {q}")
    n = len(x)
    lo: float | None = None
    hi: float | None = None
    value: float | None = None
    ordered = np.sort(x)
    if n and q is None:
        value = float(x.mean())
    elif n and q is not None and c.enough_for(q, n):
        value = float(ordered[c.rank_of(q, n)])
    tested = x if q is None or value is None else (x <= value).astype(np.float64)
    size = block or (block_length(tested) if n else 1)
    reason = _why_not(n, size, q) or ("the quantile is not known" if value is None else None)
    if reason is None:
        means = _bootstrap_means(tested, size, draws, seed)
        tail = (1 - confidence) / 2
        lo, hi = float(means[int(tail * (draws - 1))]), float(means[math.ceil((1 - tail) * (draws - 1))])
        if q is not None:
            share = float(tested.mean())
            at_lo, at_hi = q + lo - share, q + hi - share
            if at_lo <= 0 or at_hi >= 1:
                lo, hi, reason = None, None, "the interval reaches beyond the sample"
            else:
                lo, hi = float(ordered[c.rank_of(at_lo, n)]), float(ordered[c.rank_of(at_hi, n)])
    name = "mean" if q is None else c.quantile_name(q, "").rstrip("_")
    return pl.DataFrame(
        {
            "statistic": [name],
            "n": [n],
            "value": [value],
            "lo": [lo],
            "hi": [hi],
            "block": [size if n else None],
            "reason": [reason],
        },
        schema={
            "statistic": pl.String,
            "n": pl.UInt32,
            "value": pl.Float64,
            "lo": pl.Float64,
            "hi": pl.Float64,
            "block": pl.UInt32,
            "reason": pl.String,
        },
    )


def intervals(
    df: pl.DataFrame,
    value: str,
    keys: Sequence[str] = ("group",),
    statistics: Sequence[str | float] = ("mean", 0.5, 0.95, 0.99),
    confidence: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> pl.DataFrame:
    """Give confidence intervals by group; see `interval`.

    Parameters
    ----------
    df
        Samples, sorted by time within each group.
    value
        Name of a numeric column.
    keys
        Columns to group by.
    statistics, confidence, draws, seed
        As in `interval`.

    Returns
    -------
    pl.DataFrame
        One row per group and statistic: the keys and the columns of `interval`.
    """
    frames = []
    keys = list(keys)
    for key, part in df.group_by(keys, maintain_order=True):
        head = pl.DataFrame(
            {k: [v] for k, v in zip(keys, key, strict=True)}, schema={k: df.schema[k] for k in keys}
        )
        for statistic in statistics:
            row = interval(part[value], statistic, confidence, draws, seed)
            frames.append(head.hstack(row))
    if not frames:
        empty = interval(np.empty(0)).clear()
        return df.select(keys).clear().hstack(empty)
    return pl.concat(frames)


def ks_distance(a: pl.Series | NDArray[np.float64], b: pl.Series | NDArray[np.float64]) -> float | None:
    """Give the distance of Kolmogorov and Smirnov between two samples.

    Definition: D = max over t of |F_a(t) - F_b(t)|. No p-value is given: it would take samples for independent.

    Parameters
    ----------
    a, b
        Samples in any order; nulls are left out.

    Returns
    -------
    float or None
        Between 0 (same distribution function) and 1 (no overlap); None when either sample is empty.
    """
    x, y = (
        np.sort(np.asarray(s.drop_nulls() if isinstance(s, pl.Series) else s, dtype=np.float64))
        for s in (a, b)
    )
    if not len(x) or not len(y):
        return None
    at = np.concatenate([x, y])
    fx = np.searchsorted(x, at, side="right") / len(x)
    fy = np.searchsorted(y, at, side="right") / len(y)
    return float(np.abs(fx - fy).max())


def ks_by(a: pl.DataFrame, b: pl.DataFrame, value: str, keys: Sequence[str] = ("group",)) -> pl.DataFrame:
    """Give the distance of Kolmogorov and Smirnov between two tables of samples, by group.

    Parameters
    ----------
    a, b
        Samples; nulls in `value` are left out.
    value
        Name of a numeric column of both.
    keys
        Columns to group by.

    Returns
    -------
    pl.DataFrame
        One row per group found in either: the keys, `n_a` and `n_b` (UInt32), `ks` (Float64, 0 to 1; null when the
        group is missing from one of them).
    """
    keys = list(keys)
    left = {k: part[value].drop_nulls() for k, part in a.group_by(keys, maintain_order=True)}
    right = {k: part[value].drop_nulls() for k, part in b.group_by(keys, maintain_order=True)}
    none = pl.Series(dtype=pl.Float64)
    rows = []
    for key in [*left, *(k for k in right if k not in left)]:
        x, y = left.get(key, none), right.get(key, none)
        rows.append((*key, len(x), len(y), ks_distance(x, y)))
    figures: dict[str, pl.DataType] = {"n_a": pl.UInt32(), "n_b": pl.UInt32(), "ks": pl.Float64()}
    schema = pl.Schema({**{k: a.schema[k] for k in keys}, **figures})
    return pl.DataFrame(rows, schema=schema, orient="row")
