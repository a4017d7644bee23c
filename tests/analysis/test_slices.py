from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.analysis import slices
from tracekit.analysis._common import OPEN_END, OPEN_START, group_of

durations = st.lists(st.integers(0, 10**12), min_size=1, max_size=200)


def test_summary_by_hand(make_slices: Any) -> None:
    table = make_slices(
        {"comm": "spin01", "tid": 1, "dur_ns": 100, "end": "preempted"},
        {"comm": "spin02", "tid": 2, "dur_ns": 300, "end": "preempted"},
        {"comm": "spin02", "tid": 2, "dur_ns": 50, "end": "sleeping"},
        {"comm": "spin01", "tid": 1, "dur_ns": 550, "flags": OPEN_END},
        {"comm": "wake", "tid": 3, "dur_ns": 7, "end": "sleeping"},
    )
    spin, wake = slices.summary(table).rows(named=True)
    assert spin["group"] == "spin"
    assert (spin["nr_tasks"], spin["n"], spin["n_open"], spin["n_unreliable"]) == (2, 3, 1, 0)
    assert spin["run_ns"] == 1000
    assert (spin["nr_involuntary"], spin["nr_voluntary"]) == (2, 1)
    assert spin["involuntary_share"] == pytest.approx(2 / 3)
    # The open slice counts in run time, and not in the plain mean.
    assert spin["mean_per_involuntary_ns"] == 500
    assert spin["mean_ns"] == 150
    assert (spin["min_ns"], spin["p50_ns"], spin["max_ns"]) == (50, 100, 300)
    assert spin["p90_ns"] is None, "with 3 samples the 90th percentile would only repeat the maximum"
    assert wake["mean_per_involuntary_ns"] is None


def test_a_group_with_only_open_slices_has_time_and_no_lengths(make_slices: Any) -> None:
    row = slices.summary(make_slices({"dur_ns": 5, "flags": OPEN_START | OPEN_END})).row(0, named=True)
    assert row["run_ns"] == 5
    assert row["n"] == 0
    assert row["n_open"] == 1
    assert row["mean_ns"] is None
    assert row["involuntary_share"] is None


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("spin07", "spin"),
        ("kworker/0:1", "kworker"),
        ("ksoftirqd/12", "ksoftirqd"),
        ("sshd", "sshd"),
        ("42", "42"),
        ("0:1", "0:1"),
        ("<script>1", "<script>"),
    ],
)
def test_grouping_strips_numbers_but_not_whole_names(name: str, group: str) -> None:
    frame = pl.DataFrame({"comm": [name], "tid": [5], "utid": [1]})
    assert frame.select(group_of("group")).item() == group
    assert frame.select(group_of("comm")).item() == name
    assert frame.select(group_of("tid")).item() == f"{name}:5"


@pytest.mark.parametrize(("by", "wanted"), [("group", "spin"), ("comm", "spin1"), ("tid", "spin1:1")])
def test_a_task_that_is_renamed_stays_one(make_slices: Any, by: str, wanted: str) -> None:
    table = make_slices(
        {"comm": "sh", "ts_ns": 0, "dur_ns": 5, "end": "preempted"},
        {"comm": "spin1", "ts_ns": 9, "dur_ns": 5, "end": "preempted"},
        {"comm": None, "ts_ns": 20, "dur_ns": 5, "end": "preempted"},
    )
    assert slices.summary(table, by).select("group", "n").rows() == [(wanted, 3)]
    assert slices.histogram(table, by)["group"].unique().to_list() == [wanted]


def test_unknown_grouping_says_what_is_known() -> None:
    with pytest.raises(ValueError, match="expected one of group, comm, tid, all"):
        group_of("colour")


def test_missing_columns_are_named() -> None:
    with pytest.raises(ValueError, match=r"`slices` table.*end_state"):
        slices.summary(pl.DataFrame({"ts_ns": [1], "dur_ns": [1], "utid": [1], "tid": [1], "comm": ["a"]}))


def test_histogram_by_hand(make_slices: Any) -> None:
    table = make_slices(*({"dur_ns": d, "end": "sleeping"} for d in (0, 1, 9, 10, 99, 100, 1000)))
    got = slices.histogram(table, bins_per_decade=1).select("lo_ns", "hi_ns", "n", "time_ns").rows()
    assert got == [
        (0, 1, 1, 0),
        (1, 10, 2, 10),
        (10, 100, 2, 109),
        (100, 1000, 1, 100),
        (1000, 10000, 1, 1000),
    ]


def test_slices_of_no_length_have_a_bin_of_their_own_and_stretch_nothing(make_slices: Any) -> None:
    # A clock in steps of 1 us: what ends within a step has no length.
    table = make_slices(*({"dur_ns": d, "end": "sleeping"} for d in (0, 0, 20_000, 300_000)))
    got = slices.histogram(table, bins_per_decade=1).select("lo_ns", "hi_ns", "n", "time_ns").rows()
    assert got == [(0, 1, 2, 0), (10_000, 100_000, 1, 20_000), (100_000, 1_000_000, 1, 300_000)]
    none = slices.histogram(make_slices({"dur_ns": 0, "end": "sleeping"}))
    assert none.select("lo_ns", "hi_ns", "n", "share", "time_share").rows() == [(0, 1, 1, 1.0, None)]


def test_histogram_leaves_open_slices_out(make_slices: Any) -> None:
    table = make_slices({"dur_ns": 5, "end": "sleeping"}, {"dur_ns": 5, "flags": OPEN_END})
    assert slices.histogram(table)["n"].sum() == 1


def test_histogram_of_nothing_is_empty(make_slices: Any) -> None:
    got = slices.histogram(make_slices({"dur_ns": 5, "flags": OPEN_END}))
    assert got.is_empty()
    assert got.columns == ["group", "lo_ns", "hi_ns", "n", "share", "time_ns", "time_share"]


@given(values=durations, bins=st.integers(1, 20))
def test_histogram_counts_every_slice_once(make_slices: Any, values: list[int], bins: int) -> None:
    table = make_slices(*({"dur_ns": d, "end": "sleeping"} for d in values))
    got = slices.histogram(table, bins_per_decade=bins)
    assert got["n"].sum() == len(values)
    assert got["time_ns"].sum() == sum(values)
    assert got["share"].sum() == pytest.approx(1)
    assert (got["lo_ns"] < got["hi_ns"]).all()
    above = got.filter(pl.col("lo_ns") > 0)
    assert got.height - above.height == (0 in values), "0 has a bin of its own"
    assert above["lo_ns"].to_list()[1:] == above["hi_ns"].to_list()[:-1], "bins touch and do not overlap"
    for row in got.rows(named=True):
        assert row["n"] == sum(row["lo_ns"] <= v < row["hi_ns"] for v in values)


@given(values=durations)
def test_quantiles_are_the_smallest_value_with_enough_below(make_slices: Any, values: list[int]) -> None:
    table = make_slices(*({"dur_ns": d, "end": "sleeping"} for d in values))
    row = slices.summary(table, qs=(0.25, 0.5, 0.9)).row(0, named=True)
    for q, name in ((0.25, "p25_ns"), (0.5, "p50_ns"), (0.9, "p90_ns")):
        if len(values) * (1 - q) < 1 - 1e-9:
            assert row[name] is None
        else:
            wanted = min(v for v in values if sum(x <= v for x in values) >= q * len(values) - 1e-9)
            assert row[name] == wanted


def test_endings_by_hand(make_slices: Any) -> None:
    table = make_slices(
        {"dur_ns": 10, "end": "preempted"},
        {"dur_ns": 30, "end": "preempted"},
        {"dur_ns": 2, "end": "sleeping"},
        {"dur_ns": 4, "flags": OPEN_END},
    )
    got = slices.endings(table).drop("group").rows()
    assert got[0] == (True, "preempted", 2, 0.5, 40, 20.0)
    assert sorted(map(str, got[1:])) == sorted(
        map(str, [(False, "sleeping", 1, 0.25, 2, 2.0), (None, None, 1, 0.25, 4, 4.0)])
    )


def test_cdf_uses_open_slices_as_censored(make_slices: Any) -> None:
    table = make_slices(
        {"dur_ns": 10, "end": "sleeping"},
        {"dur_ns": 20, "flags": OPEN_END},
        {"dur_ns": 30, "end": "sleeping"},
        {"dur_ns": 99, "flags": OPEN_START, "end": "sleeping"},
    )
    got = slices.cdf(table).select("value_ns", "n_at_risk", "cdf").rows()
    assert [(v, n) for v, n, _ in got] == [(10, 3), (20, 2), (30, 1)]
    assert [f for _, _, f in got] == pytest.approx([1 / 3, 1 / 3, 1.0])


def test_quantum_takes_voluntary_ends_as_censored(make_slices: Any) -> None:
    table = make_slices(
        {"dur_ns": 10, "end": "sleeping"},
        {"dur_ns": 20, "end": "preempted"},
        {"dur_ns": 40, "end": "preempted"},
    )
    got = dict(slices.quantum(table).select("value_ns", "cdf").iter_rows())
    assert got == {10: pytest.approx(0), 20: pytest.approx(0.5), 40: pytest.approx(1)}
