"""Repeats of a capture: two groups are shown as such, and how far apart they lie is the capture's own."""

from __future__ import annotations

import polars as pl
import pytest

from validation import bimodal, repeats
from validation.several_aims import Result, identity_aims, main_bounds


def test_repeats_in_two_groups_are_shown_with_their_shares() -> None:
    recorded = {
        "k/a": 150.0,
        "k/a-rep2": 61.0,
        "k/a-boot2": 148.0,
        "k/b": 9.0,
        "k/b-rep2": 10.0,
        "k/b-rep3": 11.0,
    }
    lines = bimodal.table(recorded, {"k/a": [66.0, 160.0, None], "k/a-rep2": [62.0]})
    assert lines[-1] == "| k/a | 61 (1 of 3) | 149 (2 of 3) | 64 (2 of 4) | 160 (1 of 4) |"


def test_one_group_and_too_few_repeats_say_nothing() -> None:
    assert bimodal.table({"k/b": 9.0, "k/b-rep2": 10.0, "k/b-rep3": 13.0}, {}) == []
    assert bimodal.table({"k/a": 150.0, "k/a-rep2": 61.0}, {}) == []
    assert bimodal.split([0.0, 0.0, 0.0]) is None


def test_a_spread_is_that_of_its_own_repeats() -> None:
    recorded = {"k/a": 8.0, "k/a-rep2": 10.0, "k/b": 5.0, "k/c": 7.0, "k/c-boot2": None}
    workloads = {"k/a": "server", "k/a-rep2": "server", "k/b": "server", "k/c": "yield", "k/c-boot2": "yield"}
    found = repeats.spreads(recorded, workloads)
    assert found["k/a"] == found["k/a-rep2"] == pytest.approx(2 / 9)
    # Recorded once: the median of the workload; never repeated: none.
    assert found["k/b"] == 0.089
    assert found["k/c"] == 0.0


def test_bounds_widen_with_the_spread_of_repeats() -> None:
    def result(key: str, real: float, replayed: float) -> Result:
        return Result(key, "yield", "6.1", 2, real, replayed, {}, {})

    results = [result("k/a", 8.0, 10.0), result("k/a-rep2", 10.0, 10.0), result("k/b", 8.0, 10.0)]
    assert main_bounds(results) == [
        (pytest.approx(0.25), pytest.approx(1.5 * 2 / 9)),
        (0.0, pytest.approx(1.5 * 2 / 9)),
        (pytest.approx(0.25), 0.10),
    ]
    assert identity_aims(results)[0].found == pytest.approx(2 / 3)


def test_shares_of_repeats_go_by_the_last_names_of_tasks() -> None:
    def slices(tid: int, hog: int) -> pl.DataFrame:
        rows = [(tid, 0, 10, "sh"), (tid, 10, 30, "hog"), (tid + 1, 40, hog, "other")]
        return pl.DataFrame(rows, schema=["utid", "ts_ns", "dur_ns", "comm"], orient="row")

    assert repeats.share_gap(slices(1, 60), slices(7, 60)) == 0.0
    assert repeats.share_gap(slices(1, 60), slices(7, 120)) == pytest.approx(15.0)
