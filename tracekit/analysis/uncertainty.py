"""How far a metric can be trusted: censored samples, confidence intervals, distance between distributions.

Scheduler samples follow one another: the delay of one wakeup depends on the last. So intervals come
from a bootstrap of whole tasks or of blocks of time (`tracekit.analysis.blocks`), and there is none
where the samples are too few, or depend on one another too far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit import _core
from tracekit._lazy import later
from tracekit.analysis import _common as c
from tracekit.analysis.blocks import MIN_N, block_length

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = later("numpy")

__all__ = [
    "LEVEL",
    "MIN_N",
    "MIN_TAIL",
    "block_length",
    "check_confidence",
    "describe_censored",
    "interval",
    "intervals",
    "kaplan_meier",
    "ks_by",
    "ks_distance",
]

#: Level of intervals where none is asked for: the one of predictions, so that both can stand in one table.
LEVEL = 0.9
#: Fewest effective samples expected on each side of a quantile for its interval.
MIN_TAIL = int(_core.MIN_TAIL)


def check_confidence(confidence: float) -> None:
    """Raise a `ValueError` unless the level lies between 0 and 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence = {confidence!r}: expected a level between 0 and 1, such as {LEVEL}")


def kaplan_meier(
    df: pl.DataFrame,
    value: str,
    keys: Sequence[str] = (),
    censored: str = "censored",
    confidence: float = LEVEL,
) -> pl.DataFrame:
    """Estimate distribution functions from samples of which some are only known to be larger.

    Definition: F(t) = 1 - prod over t_i <= t of (1 - d_i / r_i), where d_i samples ended at t_i and
    r_i had lasted at least t_i; a sample censored at t_i still counts in r_i. Without censored
    samples this is the empirical distribution function (`scipy.stats.ecdf`).

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
    confidence
        Level of the band `cdf_low` to `cdf_high`.

    Returns
    -------
    pl.DataFrame
        One row per group and distinct value, ascending: the keys, `value_ns` (Int64), `n_at_risk`
        (UInt32, samples that lasted at least this long), `n_events` (UInt32, samples that ended
        here), `n_censored` (UInt32), `cdf` (Float64, F at this value; below 1 at the last row when
        the largest sample is censored), `cdf_low` and `cdf_high` (Float64, pointwise band after
        Greenwood on the log-log scale; null where F is 0 or 1).

    Raises
    ------
    ValueError
        When the level does not lie between 0 and 1.

    Notes
    -----
    How it can mislead: the band takes samples for independent. Where the delay of one wakeup
    depends on the last, it is too narrow; `interval` gives a quantile of the curve an interval that
    does not assume so.

    References
    ----------
    E. L. Kaplan and P. Meier, Nonparametric estimation from incomplete observations, JASA 53 (1958) 457-481.
    """
    check_confidence(confidence)
    keys = list(keys)
    flag = pl.col(censored).fill_null(False) if censored in df.columns else pl.lit(False)
    rows = df.filter(pl.col(value).is_not_null()).select(
        *keys, pl.col(value).cast(pl.Int64).alias("value_ns"), flag.alias("_c")
    )
    schema = {**{k: rows.schema[k] for k in keys}, **_CURVE}
    rows = rows.sort(*keys, nulls_last=True, maintain_order=True) if keys else rows
    parts = rows.partition_by(keys, maintain_order=True, include_key=True) if keys else [rows]
    frames = []
    for part in parts:
        if part.is_empty():
            continue
        frame = _curve_table(part["value_ns"].to_numpy(), part["_c"].to_numpy(), confidence)
        frames.append(frame.select(*(pl.lit(part[k][0], dtype=schema[k]).alias(k) for k in keys), pl.all()))
    return pl.concat(frames) if frames else pl.DataFrame(schema=schema)


_CURVE: dict[str, Any] = {
    "value_ns": pl.Int64,
    "n_at_risk": pl.UInt32,
    "n_events": pl.UInt32,
    "n_censored": pl.UInt32,
    "cdf": pl.Float64,
    "cdf_low": pl.Float64,
    "cdf_high": pl.Float64,
}


def _curve_table(values: NDArray[np.int64], censored: NDArray[np.bool_], confidence: float) -> pl.DataFrame:
    found = pl.DataFrame(_core.kaplan_meier(values.astype(np.float64), censored.view(np.uint8)))
    risk, events, cdf = (found[k].to_numpy() for k in ("n_at_risk", "n_events", "cdf"))
    low, high = _greenwood(risk.astype(np.float64), events, cdf, confidence)
    return (
        pl.DataFrame(
            {
                "value_ns": np.unique(values),
                "n_at_risk": risk,
                "n_events": events,
                "n_censored": risk - np.append(risk[1:], 0) - events,
                "cdf": cdf,
                "cdf_low": low,
                "cdf_high": high,
            }
        )
        .with_columns(pl.col("cdf_low", "cdf_high").fill_nan(None))
        .cast(pl.Schema(_CURVE))
    )


def _greenwood(
    risk: NDArray[np.float64], events: NDArray[np.uint32], cdf: NDArray[np.float64], confidence: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Pointwise band of F, from Greenwood's variance of log(-log(1 - F)).

    It is that of `scipy.stats.ecdf` for complete samples.
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    left = 1.0 - cdf
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.cumsum(events / (risk * (risk - events)))
        reach = z * np.sqrt(variance) / np.log(left)
        low, high = 1.0 - left ** np.exp(reach), 1.0 - left ** np.exp(-reach)
    known = (left > 1e-12) & (cdf > 1e-12)
    return np.where(known, low, np.nan), np.where(known, high, np.nan)


def describe_censored(
    df: pl.DataFrame,
    value: str,
    keys: Sequence[str],
    qs: Sequence[float] = c.QUANTILES,
    censored: str = "censored",
) -> pl.DataFrame:
    """Describe samples of which some are censored, by group.

    Definition: quantile q = the smallest t with F(t) >= q, F after Kaplan and Meier. Mean = sum / n
    of the complete samples when none is censored, else the restricted mean, the integral of 1 - F
    up to the largest sample: a lower bound when that sample is censored.

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
        One row per group, by descending sum: the keys, `n` (UInt32, samples, censored ones
        included), `n_censored` (UInt32), `sum_ns` (Int64, of all samples as far as seen), `mean_ns`
        (Float64), `mean_is_bound` (Boolean, true when the mean is a lower bound), `min_ns` (Int64),
        one `pNN_ns` a quantile (Int64; null when n (1 - q) < 1 or when so many samples are censored
        that F does not reach q), `max_ns` (Int64, largest complete sample; null when all are
        censored).
    """
    c.check_quantiles(qs)
    if not keys:
        whole = describe_censored(df.with_columns(pl.lit(0).alias("_all")), value, ["_all"], qs, censored)
        return whole.drop("_all")
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


def _name(q: float | None) -> str:
    return "mean" if q is None else c.quantile_name(q, "").rstrip("_")


def _checked(statistic: str | float) -> float | None:
    """The quantile, or None for the mean."""
    if statistic == "mean":
        return None
    try:
        q = float(statistic)
    except (TypeError, ValueError):
        raise ValueError(
            f"statistic = {statistic!r}: expected 'mean' or a quantile between 0 and 1"
        ) from None
    if not 0 < q < 1:
        raise ValueError(f"a quantile lies between 0 and 1, not {q}")
    return q


def false_discovery(p: Sequence[float]) -> list[float]:
    """Adjust p-values for their number, after Benjamini and Hochberg.

    The same as `scipy.stats.false_discovery_control`.
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values)[::-1]
    # The largest first: no value may be adjusted to more than a larger one.
    scaled = values[order] * len(values) / np.arange(len(values), 0, -1)
    adjusted = np.empty(len(values))
    adjusted[order] = np.minimum.accumulate(np.minimum(scaled, 1.0))
    return [float(v) for v in adjusted]


_ROW: dict[str, Any] = {
    "statistic": pl.String,
    "n": pl.UInt32,
    "value": pl.Float64,
    "lo": pl.Float64,
    "hi": pl.Float64,
    "n_effective": pl.Float64,
    "resampled": pl.String,
    "units": pl.UInt32,
    "reason": pl.String,
}


def interval(
    values: pl.Series | NDArray[np.float64],
    statistic: str | float = "mean",
    confidence: float = LEVEL,
    *,
    tasks: pl.Series | NDArray[np.int64] | None = None,
    censored: pl.Series | NDArray[np.bool_] | None = None,
) -> pl.DataFrame:
    """Give a confidence interval of a mean or a quantile by a bootstrap of blocks or of tasks.

    Definition: for a mean m with standard error s (`tracekit.analysis.blocks.standard_error`), m -+
    t s with t the quantile of Student's distribution with (blocks - 1) or (tasks - 1) degrees of
    freedom, corrected for the skewness of their sums (Hall 1992). For quantile q the same for the
    share of samples at or below the estimate, on the logit scale, and from there to values
    (Woodruff's inversion). With censored samples: the restricted mean, and the curve of Kaplan and
    Meier.

    Parameters
    ----------
    values
        Samples **in time order**; nulls are left out.
    statistic
        `"mean"`, or a quantile between 0 and 1.
    confidence
        Level of the interval, between 0 and 1.
    tasks
        Task of each sample, as integers. Samples of several tasks follow one another in turns, so
        that their dependence cannot be seen without it.
    censored
        True for samples that last longer than seen.

    Returns
    -------
    pl.DataFrame
        One row: `statistic` (String, `mean` or `p95`), `n` (UInt32), `value` (Float64; null when n
        = 0, for a quantile when n (1 - q) < 1), `lo` and `hi` (Float64; null when `reason` says
        why), `n_effective` (Float64, independent samples that would leave the same error; null when
        not known), `resampled` (String: `blocks` or `tasks`), `units` (UInt32, how many of these),
        `reason` (String; null when there is an interval).

    Raises
    ------
    ValueError
        For a level or a quantile that does not lie between 0 and 1, samples that are not finite, or
        columns of different lengths.

    Notes
    -----
    How it can mislead: it says how the metric would vary if the same workload ran on for as long
    again. It knows nothing of a workload that changes, of a second boot, or of records that were
    lost. A drift that is slower than the trace and smaller than the noise of single samples cannot
    be seen.
    """
    q = _checked(statistic)
    check_confidence(confidence)
    x, codes, flags = _arrays(values, tasks, censored)
    found = _core.interval(x, q, confidence, censored=flags.view(np.uint8), tasks=codes)
    return pl.DataFrame([(_name(q), len(x), *found)], schema=_ROW, orient="row")


def _arrays(
    values: Any, tasks: Any, censored: Any
) -> tuple[NDArray[np.float64], NDArray[np.int64] | None, NDArray[np.bool_]]:
    """Samples without nulls, with their tasks and flags."""
    for what, other in (("tasks", tasks), ("censored", censored)):
        if other is not None and len(other) != len(values):
            raise ValueError(f"expected one of `{what}` a sample: {len(values)} samples, {len(other)} {what}")
    known = (
        values.is_not_null().to_numpy() if isinstance(values, pl.Series) else np.ones(len(values), dtype=bool)
    )
    raw = values.to_numpy() if isinstance(values, pl.Series) else np.asarray(values)
    x = np.asarray(raw[known], dtype=np.float64)
    if not np.isfinite(x).all():
        raise ValueError("expected finite samples; found NaN or infinity")
    codes = None if tasks is None else np.asarray(tasks)[known].astype(np.int64)
    flags = np.zeros(len(x), dtype=bool) if censored is None else np.asarray(censored)[known].astype(bool)
    return x, codes, flags


def intervals(
    df: pl.DataFrame,
    value: str,
    keys: Sequence[str] = ("group",),
    statistics: Sequence[str | float] = ("mean", 0.5, 0.95, 0.99),
    confidence: float = LEVEL,
    *,
    task: str = "utid",
    censored: str = "censored",
) -> pl.DataFrame:
    """Give confidence intervals by group; see `interval`.

    Parameters
    ----------
    df
        Samples, sorted by time within each group; nulls in `value` are left out.
    value
        Name of a numeric column.
    keys
        Columns to group by; none for one group of all.
    statistics, confidence
        As in `interval`.
    task, censored
        Names of the columns that hold the task, and the flag of censored samples; used where `df` has them.

    Returns
    -------
    pl.DataFrame
        One row per group and statistic: the keys and the columns of `interval`.

    Raises
    ------
    ValueError
        As `interval`.
    """
    keys = list(keys)
    rows = df.filter(pl.col(value).is_not_null())
    frames = []
    for part in rows.partition_by(keys, maintain_order=True) if keys else [rows]:
        if part.is_empty():
            continue
        head = part.head(1).select(keys)
        for statistic in statistics:
            row = interval(
                part[value],
                statistic,
                confidence,
                tasks=part[task] if task in part.columns else None,
                censored=part[censored].fill_null(False) if censored in part.columns else None,
            )
            frames.append(head.hstack(row) if keys else row)
    if not frames:
        return df.select(keys).clear().hstack(pl.DataFrame(schema=_ROW))
    return pl.concat(frames)


def ks_distance(
    a: pl.Series | NDArray[np.float64], b: pl.Series | NDArray[np.float64], resolution: float = 0.0
) -> float | None:
    """Give the distance of Kolmogorov and Smirnov between two samples (`scipy.stats.ks_2samp`).

    Definition: D = max over t of |F_a(t) - F_b(t)|; with a resolution r only what is left after
    either sample was moved by up to r: D = max over t of F_a(t) - F_b(t + r), or of F_b(t) - F_a(t +
    r). No p-value is given: it would take samples for independent.

    Parameters
    ----------
    a, b
        Samples in any order; nulls are left out.
    resolution
        Difference of two values that means nothing: that of the clock, or of what is compared. 0
        for exact values.

    Returns
    -------
    float or None
        Between 0 (same distribution function) and 1 (no overlap); None when either sample is empty.

    Raises
    ------
    ValueError
        When the resolution is negative or not finite.
    """
    if not (resolution >= 0 and math.isfinite(resolution)):
        raise ValueError(f"resolution = {resolution!r}: expected a difference of at least 0")
    given = (s.drop_nulls() if isinstance(s, pl.Series) and s.null_count() else s for s in (a, b))
    x, y = (np.ascontiguousarray(s, dtype=np.float64) for s in given)
    return _core.ks_distance(x, y, resolution)


def ks_by(
    a: pl.DataFrame,
    b: pl.DataFrame,
    value: str,
    keys: Sequence[str] = ("group",),
    resolution: float = 0.0,
) -> pl.DataFrame:
    """Give the distance of Kolmogorov and Smirnov between two tables of samples, by group.

    Parameters
    ----------
    a, b
        Samples; nulls in `value` are left out.
    value
        Name of a numeric column of both.
    keys
        Columns to group by.
    resolution
        As in `ks_distance`.

    Returns
    -------
    pl.DataFrame
        One row per group found in either: the keys, `n_a` and `n_b` (UInt32), `ks` (Float64, 0 to
        1; null when the group is missing from one of them).
    """
    keys = list(keys)
    left, right = (
        dict(zip(found.select(keys).iter_rows(), found["_x"], strict=True))
        for found in (
            t.group_by(keys, maintain_order=True).agg(pl.col(value).drop_nulls().alias("_x")) for t in (a, b)
        )
    )
    none = pl.Series(dtype=pl.Float64)
    rows = []
    for key in [*left, *(k for k in right if k not in left)]:
        x, y = left.get(key, none), right.get(key, none)
        rows.append((*key, len(x), len(y), ks_distance(x, y, resolution)))
    figures: dict[str, pl.DataType] = {"n_a": pl.UInt32(), "n_b": pl.UInt32(), "ks": pl.Float64()}
    schema = pl.Schema({**{k: a.schema[k] for k in keys}, **figures})
    return pl.DataFrame(rows, schema=schema, orient="row")
