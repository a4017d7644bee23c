from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from arch.bootstrap import optimal_block_length
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import signal, stats

from tracekit.analysis import uncertainty as u


def frame(values: list[int], censored: list[bool] | None = None) -> pl.DataFrame:
    return pl.DataFrame(
        {"v": values, "censored": censored or [False] * len(values)}, schema_overrides={"v": pl.Int64}
    )


def test_kaplan_meier_of_the_textbook() -> None:
    # Remission times in weeks of 21 patients under 6-MP (Freireich 1963), as printed in
    # survival-analysis textbooks.
    times = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
    ended = [1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
    got = u.kaplan_meier(frame(times, [not e for e in ended]), "v")
    survival = {t: 1 - f for t, f, n in got.select("value_ns", "cdf", "n_events").iter_rows() if n}
    assert survival == {
        t: pytest.approx(s, abs=5e-5)
        for t, s in {6: 0.8571, 7: 0.8067, 10: 0.7529, 13: 0.6902, 16: 0.6275, 22: 0.5378, 23: 0.4482}.items()
    }
    described = frame(times, [not e for e in ended]).with_columns(pl.lit("6-MP").alias("g"))
    assert u.describe_censored(described, "v", ["g"])["p50_ns"].item() == 23


samples = st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=1, max_size=80)


@given(rows=samples)
def test_kaplan_meier_equals_scipy(rows: list[tuple[int, bool]]) -> None:
    values, censored = [r[0] for r in rows], [r[1] for r in rows]
    got = u.kaplan_meier(frame(values, censored), "v")
    data = stats.CensoredData(
        uncensored=[v for v, c in rows if not c],
        right=[v for v, c in rows if c],
    )
    theirs = stats.ecdf(data).cdf
    assert got["cdf"].to_list() == pytest.approx(theirs.evaluate(got["value_ns"].to_numpy()).tolist())
    assert got["cdf"].is_sorted()
    assert got["n_events"].sum() + got["n_censored"].sum() == len(rows)
    assert got["n_at_risk"].first() == len(rows)


def test_groups_do_not_mix() -> None:
    df = pl.DataFrame({"g": ["a", "b", "a", None], "v": [1, 2, 3, 4], "censored": [False] * 4})
    got = u.kaplan_meier(df, "v", ["g"])
    assert got.select("g", "value_ns", "n_at_risk", "cdf").rows() == [
        ("a", 1, 2, 0.5),
        ("a", 3, 1, 1.0),
        ("b", 2, 1, 1.0),
        (None, 4, 1, 1.0),
    ]


def test_description_without_censoring_is_exact() -> None:
    df = frame(list(range(1, 101))).with_columns(pl.lit("x").alias("g"))
    row = u.describe_censored(df, "v", ["g"]).row(0, named=True)
    assert (row["n"], row["n_censored"], row["sum_ns"], row["mean_ns"]) == (100, 0, 5050, 50.5)
    assert (row["p50_ns"], row["p90_ns"], row["p95_ns"], row["p99_ns"], row["max_ns"]) == (
        50,
        90,
        95,
        99,
        100,
    )
    assert not row["mean_is_bound"]


def test_interval_refuses_below_its_n_and_says_why() -> None:
    few = u.interval(np.arange(19.0)).row(0, named=True)
    assert (few["value"], few["lo"], few["hi"]) == (9.0, None, None)
    assert few["reason"] == "n = 19 is below 20"
    tail = u.interval(np.arange(100.0), 0.99).row(0, named=True)
    assert tail["value"] == 98.0
    assert tail["lo"] is None
    assert "beyond the quantile" in tail["reason"]
    slow = u.interval(np.arange(100.0)).row(0, named=True)
    assert slow["lo"] is None
    assert "depend on one another" in slow["reason"], "a trend is one long block"
    assert u.interval(np.empty(0)).row(0, named=True)["value"] is None
    with pytest.raises(ValueError, match="between 0 and 1"):
        u.interval(np.arange(5.0), 95)


def test_interval_of_independent_samples_is_the_classical_one() -> None:
    x = np.random.default_rng(2).normal(10, 2, size=4000)
    row = u.interval(x, confidence=0.95).row(0, named=True)
    half = 1.96 * 2 / np.sqrt(4000)
    assert row["hi"] - row["lo"] == pytest.approx(2 * half, rel=0.2)
    assert row["n_effective"] == pytest.approx(4000, rel=0.4)
    mid = u.interval(x, 0.5, confidence=0.95).row(0, named=True)
    # Standard error of a normal median: sqrt(pi / 2) times that of the mean.
    assert mid["hi"] - mid["lo"] == pytest.approx(2 * half * np.sqrt(np.pi / 2), rel=0.3)


def test_a_level_is_checked_and_its_range_is_in_the_message() -> None:
    for wrong in (95, 0, 1, -0.9, float("nan")):
        with pytest.raises(ValueError, match="expected a level between 0 and 1"):
            u.interval(np.arange(100.0), confidence=wrong)
    with pytest.raises(ValueError, match="expected 'mean' or a quantile"):
        u.interval(np.arange(100.0), "median")
    with pytest.raises(ValueError, match="finite samples"):
        u.interval(np.array([1.0, np.nan] * 50))
    with pytest.raises(ValueError, match="one of `tasks` a sample"):
        u.interval(np.arange(100.0), tasks=np.arange(99))
    with pytest.raises(ValueError, match=r"quantiles between 0 and 1.*found 1\.5"):
        u.describe_censored(frame([1, 2]), "v", [], qs=(1.5,))
    with pytest.raises(ValueError, match="at least 0"):
        u.ks_distance(np.arange(5.0), np.arange(5.0), resolution=-1)


def test_describe_without_keys_is_one_group() -> None:
    assert u.describe_censored(frame(list(range(100))), "v", [])["p50_ns"].to_list() == [49]


def test_a_censored_sample_widens_the_interval_as_greenwood_does() -> None:
    rng = np.random.default_rng(7)
    ends, cuts = rng.exponential(1, 4000), rng.exponential(2, 4000)
    x, censored = np.minimum(ends, cuts), cuts < ends
    row = u.interval(x, 0.5, 0.95, censored=censored).row(0, named=True)
    theirs = stats.ecdf(stats.CensoredData(uncensored=x[~censored], right=x[censored]))
    band = theirs.cdf.confidence_interval(0.95, method="linear")
    # The curve rises as the exponential does: by half of what its argument moves at the median.
    half = float(band.high.evaluate(row["value"]) - band.low.evaluate(row["value"])) / 2
    assert row["value"] == pytest.approx(math.log(2), abs=3 * half)
    assert row["hi"] - row["lo"] == pytest.approx(4 * half, rel=0.25)
    # Without what was cut off, the interval would be that of more samples, and about another value.
    complete = u.interval(x[~censored], 0.5, 0.95).row(0, named=True)
    assert complete["hi"] < row["lo"]
    # The restricted mean of an exponential is 1.
    mean = u.interval(x, censored=censored).row(0, named=True)
    assert mean["lo"] < 1 < mean["hi"]
    assert mean["value"] == pytest.approx(1, abs=0.06)


@pytest.mark.filterwarnings("ignore:The confidence interval is undefined")
def test_the_band_of_a_curve_is_scipys() -> None:
    values = [3, 5, 5, 8, 9, 12, 14, 20]
    got = u.kaplan_meier(frame(values), "v", confidence=0.9)
    band = stats.ecdf(values).cdf.confidence_interval(0.9, method="log-log")
    inner = got.filter(pl.col("cdf") < 1)
    at = inner["value_ns"].to_numpy()
    assert inner["cdf_low"].to_list() == pytest.approx(band.low.evaluate(at).tolist())
    assert inner["cdf_high"].to_list() == pytest.approx(band.high.evaluate(at).tolist())
    assert got["cdf_low"].to_list()[-1] is None


def least_sum_of_covariances(x: np.ndarray) -> float:
    """Least sum of the autocovariances under flat-top windows of any even width."""
    y, n = x - x.mean(), len(x)
    covariance = np.correlate(y, y, "full")[n - 1 :] / n

    def total(width: int) -> float:
        k = np.arange(1, width + 1)
        taper = np.minimum(1, 2 * (1 - k / width))
        return float(covariance[0] + 2 * (taper * covariance[1 : width + 1]).sum())

    return min(total(width) for width in range(2, math.ceil(math.sqrt(n)) + 6, 2))


@given(seed=st.integers(0, 200), phi=st.floats(0, 0.97), n=st.integers(40, 2000))
@example(seed=6, phi=0.0, n=40)
@settings(max_examples=40, deadline=None)
def test_the_block_length_is_that_of_arch(seed: int, phi: float, n: int) -> None:
    x = signal.lfilter([1], [1, -phi], np.random.default_rng(seed).normal(size=n))
    got, arch = u.block_length(x), optimal_block_length(x)["circular"].item()
    # A sum of covariances that is not positive is no variance. arch divides by its square.
    if got != pytest.approx(arch, rel=1e-6):
        assert got == 1
        assert least_sum_of_covariances(x) <= 0


def test_intervals_by_group() -> None:
    df = pl.DataFrame({"group": ["a"] * 50 + ["b"] * 3, "v": [*range(25), *range(25), 1, 2, 3]})
    got = u.intervals(df, "v", statistics=("mean",))
    assert got["group"].to_list() == ["a", "b"]
    assert got["value"].to_list() == [12.0, 2.0]
    assert got["reason"].to_list()[1] == "n = 3 is below 20"
    assert u.intervals(df.clear(), "v").columns == got.columns


numbers = st.lists(st.integers(-20, 20), min_size=1, max_size=50)


@pytest.mark.filterwarnings("ignore:ks_2samp")
@given(a=numbers, b=numbers)
def test_ks_distance_equals_scipy(a: list[int], b: list[int]) -> None:
    assert u.ks_distance(np.asarray(a, float), np.asarray(b, float)) == pytest.approx(
        stats.ks_2samp(a, b).statistic
    )


@pytest.mark.filterwarnings("ignore:ks_2samp")
@given(a=numbers, b=numbers, resolution=st.integers(0, 5))
def test_ks_distance_with_a_resolution_equals_two_one_sided_distances(
    a: list[int], b: list[int], resolution: int
) -> None:
    sides = [
        stats.ks_2samp(np.add(x, resolution), y, alternative="greater", method="asymp").statistic
        for x, y in ((a, b), (b, a))
    ]
    assert u.ks_distance(np.asarray(a, float), np.asarray(b, float), resolution) == max(0.0, *sides)


def test_ks_by_names_groups_found_in_one_only() -> None:
    a = pl.DataFrame({"group": ["x", "x", "y"], "v": [1, 2, 3]})
    b = pl.DataFrame({"group": ["x", "x", "z"], "v": [3, 4, 3]})
    assert sorted(u.ks_by(a, b, "v").rows()) == [("x", 2, 2, 1.0), ("y", 1, 0, None), ("z", 0, 1, None)]


def test_a_shift_below_the_resolution_is_no_distance() -> None:
    a = np.repeat([1000.0, 2000.0, 3000.0], 100)
    assert u.ks_distance(a, a + 100) == pytest.approx(1 / 3)
    assert u.ks_distance(a, a + 100, resolution=100) == 0.0
    assert u.ks_distance(a, a + 100, resolution=99) == pytest.approx(1 / 3)
    assert u.ks_distance(a + 100, a, resolution=100) == 0.0
    # Half of one of three masses moved further than that.
    half = a + np.where(np.arange(300) < 50, 400, 100)
    assert u.ks_distance(a, half, resolution=200) == pytest.approx(1 / 6)


def test_rank_is_monotone() -> None:
    from tracekit.analysis._common import rank_of

    ranks = [rank_of(q / 100, 37) for q in range(1, 100)]
    assert all(a <= b for a, b in pairwise(ranks))
    assert (ranks[0], ranks[-1]) == (0, 36)
