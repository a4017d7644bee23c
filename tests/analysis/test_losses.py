from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.analysis import losses

SCHEMA = {
    "cpu": pl.Int32,
    "ts_from_ns": pl.Int64,
    "ts_to_ns": pl.Int64,
    "count": pl.Int64,
    "cause": pl.String,
}


def table(*rows: tuple[Any, ...]) -> pl.DataFrame:
    return pl.DataFrame([(*r, "overwrite") for r in rows], schema=SCHEMA, orient="row")


def test_coverage_by_hand() -> None:
    got = losses.coverage(
        table(
            (0, 100, 200, 5), (0, 150, 300, 7), (0, 400, 450, 1), (1, None, 120, 3), (None, 900, None, None)
        ),
        100,
        1100,
    )
    assert got.rows() == [(0, 3, 13, 250, 0.25), (1, 1, 3, 20, 0.02), (None, 1, None, 200, 0.2)]


def test_no_losses_and_no_time() -> None:
    assert losses.coverage(table(), 0, 10).is_empty()
    assert losses.coverage(table((0, 5, 5, 1)), 5, 5)["share"].to_list() == [None]


intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda p: (min(p), max(p))), min_size=1
)


@given(spans=intervals)
def test_coverage_is_the_union(spans: list[tuple[int, int]]) -> None:
    got = losses.coverage(table(*((0, lo, hi, 1) for lo, hi in spans)), 10, 50).row(0, named=True)
    union = {t for lo, hi in spans for t in range(lo, hi) if 10 <= t < 50}
    assert got["lost_ns"] == len(union)
    assert got["share"] == pytest.approx(len(union) / 40)
