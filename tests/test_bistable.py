"""Repeats that fall into two groups are told as such; those that vary within one group are not."""

from __future__ import annotations

from validation import bistable


def test_repeats_in_two_groups_are_shown_with_their_shares() -> None:
    recorded = {
        "k/a": 150.0,
        "k/a-rep2": 61.0,
        "k/a-boot2": 148.0,
        "k/b": 9.0,
        "k/b-rep2": 10.0,
        "k/b-rep3": 11.0,
    }
    lines = bistable.table(recorded, {"k/a": [66.0, 160.0, None], "k/a-rep2": [62.0]})
    assert lines[-1] == "| k/a | 61 (1 of 3) | 149 (2 of 3) | 64 (2 of 4) | 160 (1 of 4) |"


def test_one_group_and_too_few_repeats_say_nothing() -> None:
    assert bistable.table({"k/b": 9.0, "k/b-rep2": 10.0, "k/b-rep3": 13.0}, {}) == []
    assert bistable.table({"k/a": 150.0, "k/a-rep2": 61.0}, {}) == []
    assert bistable.split([0.0, 0.0, 0.0]) is None
