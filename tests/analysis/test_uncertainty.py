from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tracekit.analysis import uncertainty as u


def frame(values: list[int], censored: list[bool] | None = None) -> pl.DataFrame:
    return pl.DataFrame(
        {"v": values, "censored": censored or [False] * len(values)}, schema_overrides={"v": pl.Int64}
    )


def test_kaplan_meier_of_the_textbook() -> None:
    # Remission times in weeks of 21 patients under 6-MP (Freireich 1963), as printed in survival-analysis textbooks.
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
    assert "independent blocks" in slow["reason"], "a trend is one long block"
    assert u.interval(np.empty(0)).row(0, named=True)["value"] is None
    with pytest.raises(ValueError, match="between 0 and 1"):
        u.interval(np.arange(5.0), 95)


def test_interval_is_the_same_for_the_same_seed() -> None:
    x = np.random.default_rng(1).exponential(size=500)
    assert u.interval(x, seed=3).equals(u.interval(x, seed=3))
    assert not u.interval(x, seed=3).equals(u.interval(x, seed=4))


def test_interval_of_independent_samples_is_the_classical_one() -> None:
    x = np.random.default_rng(2).normal(10, 2, size=4000)
    row = u.interval(x, block=1, draws=4000).row(0, named=True)
    half = 1.96 * 2 / np.sqrt(4000)
    assert row["hi"] - row["lo"] == pytest.approx(2 * half, rel=0.1)
    mid = u.interval(x, 0.5, block=1, draws=4000).row(0, named=True)
    # Standard error of a normal median: sqrt(pi / 2) times that of the mean.
    assert mid["hi"] - mid["lo"] == pytest.approx(2 * half * np.sqrt(np.pi / 2), rel=0.15)


def test_interval_grows_with_autocorrelation() -> None:
    noise = np.random.default_rng(3).normal(size=5000)
    x = np.empty_like(noise)
    x[0] = noise[0]
    for i in range(1, len(x)):
        x[i] = 0.9 * x[i - 1] + noise[i]
    row = u.interval(x).row(0, named=True)
    assert row["block"] > 20
    naive = u.interval(x, block=1).row(0, named=True)
    # The variance of the mean of this process is (1 + r) / (1 - r) = 19 times the naive one.
    ratio = (row["hi"] - row["lo"]) / (naive["hi"] - naive["lo"])
    assert 2.8 < ratio < 5.2


def test_intervals_cover_as_often_as_they_say() -> None:
    rng = np.random.default_rng(4)
    hits = {"mean": 0, 0.9: 0}
    truth = {"mean": 1.0, 0.9: float(np.log(10))}
    for _ in range(200):
        x = rng.exponential(size=400)
        for statistic in hits:
            row = u.interval(x, statistic, draws=400).row(0, named=True)
            hits[statistic] += row["lo"] <= truth[statistic] <= row["hi"]
    assert all(0.90 <= h / 200 <= 0.99 for h in hits.values()), hits


def test_intervals_by_group() -> None:
    df = pl.DataFrame({"group": ["a"] * 50 + ["b"] * 3, "v": [*range(25), *range(25), 1, 2, 3]})
    got = u.intervals(df, "v", statistics=("mean",))
    assert got["group"].to_list() == ["a", "b"]
    assert got["value"].to_list() == [12.0, 2.0]
    assert got["reason"].to_list()[1] == "n = 3 is below 20"
    assert u.intervals(df.clear(), "v").columns == got.columns


numbers = st.lists(st.integers(-20, 20), min_size=1, max_size=50)


@given(a=numbers, b=numbers)
def test_ks_distance_equals_scipy(a: list[int], b: list[int]) -> None:
    assert u.ks_distance(np.asarray(a, float), np.asarray(b, float)) == pytest.approx(
        stats.ks_2samp(a, b).statistic
    )


def test_ks_by_names_groups_found_in_one_only() -> None:
    a = pl.DataFrame({"group": ["x", "x", "y"], "v": [1, 2, 3]})
    b = pl.DataFrame({"group": ["x", "x", "z"], "v": [3, 4, 3]})
    assert sorted(u.ks_by(a, b, "v").rows()) == [("x", 2, 2, 1.0), ("y", 1, 0, None), ("z", 0, 1, None)]


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=100))
def test_block_length_stays_within_the_sample(values: list[float]) -> None:
    assert 1 <= u.block_length(np.asarray(values)) <= len(values)


def test_rank_is_monotone() -> None:
    from tracekit.analysis._common import rank_of

    ranks = [rank_of(q / 100, 37) for q in range(1, 100)]
    assert all(a <= b for a, b in pairwise(ranks))
    assert (ranks[0], ranks[-1]) == (0, 36)
