from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.analysis import runqueue
from tracekit.analysis._common import CROSSES_LOSS, ESTIMATED


def switches(*rows: tuple[int, int]) -> pl.DataFrame:
    return pl.DataFrame(
        [(ts, cpu, "switch") for ts, cpu in rows],
        schema={"ts_ns": pl.Int64, "cpu": pl.Int32, "kind": pl.Categorical},
        orient="row",
    )


@pytest.fixture
def two_cpus(make_runqueue: Any) -> pl.DataFrame:
    # CPU 0: 1 until 10, 3 until 20, 0 until 40.  CPU 1: from 5 on 2, until 40.
    return make_runqueue((0, 0, 1, 0), (5, 1, 1, 1), (10, 0, 1, 2), (20, 0, 0, 0))


def test_distribution_by_hand(two_cpus: pl.DataFrame) -> None:
    got = {
        (scope, cpu, length): (time, share, more)
        for scope, cpu, length, time, share, more in runqueue.distribution(two_cpus, end_ns=40)
        .drop("share_low", "share_high")
        .iter_rows()
    }
    assert got[("cpu", 0, 0)] == (20, 0.5, 0.5)
    assert got[("cpu", 0, 1)] == (10, 0.25, 0.25)
    assert got[("cpu", 0, 3)] == (10, 0.25, 0.0)
    assert got[("cpu", 1, 2)] == (35, 1.0, 0.0)
    # The system: 1 until 5, 3 until 10, 5 until 20, 2 until 40.
    assert {k[2]: v[0] for k, v in got.items() if k[0] == "system"} == {1: 5, 3: 5, 5: 10, 2: 20}


def test_summary_by_hand(two_cpus: pl.DataFrame) -> None:
    system, cpu0, cpu1 = runqueue.summary(two_cpus, end_ns=40).rows(named=True)
    assert system["scope"] == "system"
    assert system["mean"] == pytest.approx((1 * 5 + 3 * 5 + 5 * 10 + 2 * 20) / 40)
    assert (system["p50"], system["max"]) == (2, 5)
    assert cpu0["mean"] == pytest.approx((10 + 30) / 40)
    assert cpu0["empty_share"] == 0.5
    assert (cpu0["p50"], cpu0["p95"]) == (0, 3)
    assert cpu1["span_ns"] == 35
    assert not cpu0["mean_is_bound"]


def test_waiting_leaves_the_running_task_out(two_cpus: pl.DataFrame) -> None:
    rows = runqueue.summary(two_cpus, end_ns=40, count="waiting").rows(named=True)
    assert rows[1]["mean"] == pytest.approx(2 * 10 / 40)
    with pytest.raises(ValueError, match="'all' or 'waiting'"):
        runqueue.summary(two_cpus, count="some")  # type: ignore[arg-type]


def test_unplaced_tasks_have_their_own_row_and_count_in_the_system(make_runqueue: Any) -> None:
    table = make_runqueue((0, 0, 1, 0, ESTIMATED), (0, None, 0, 0), (10, None, 0, 2), (30, None, 0, 0))
    system, cpu, unplaced = runqueue.summary(table, end_ns=40).rows(named=True)
    assert unplaced["scope"] == "unplaced"
    assert unplaced["mean"] == pytest.approx(2 * 20 / 40)
    assert system["mean"] == pytest.approx(1 + 1)
    assert cpu["mean_is_bound"]
    assert cpu["estimated_share"] == 1.0


def test_time_in_which_nobody_knows_what_ran_is_not_observed(make_runqueue: Any) -> None:
    table = make_runqueue(
        (0, 0, 1, 0), (0, 1, 1, 1), (10, 0, 0, 0, CROSSES_LOSS), (30, 0, 1, 3), (40, 0, 1, 0)
    )
    system, cpu0, cpu1 = runqueue.summary(table, end_ns=50).rows(named=True)
    assert (cpu0["span_ns"], cpu0["empty_share"], cpu0["max"]) == (30, 0.0, 4)
    assert cpu1["span_ns"] == 50
    assert (system["span_ns"], system["mean"]) == (30, pytest.approx((3 * 10 + 6 * 10 + 3 * 10) / 30))


def test_at_switch_sees_the_length_after_the_switch(two_cpus: pl.DataFrame) -> None:
    events = switches((10, 0), (20, 0), (25, 1), (30, 0))
    got = runqueue.at_switch(two_cpus, events).select("scope", "cpu", "length", "n").rows()
    assert got == [
        ("cpu", 0, 0, 2),
        ("cpu", 0, 3, 1),
        ("cpu", 1, 2, 1),
        ("system", None, 2, 3),
        ("system", None, 5, 1),
    ]


def test_of_two_rows_at_one_instant_the_last_holds(make_runqueue: Any) -> None:
    table = make_runqueue((0, 0, 1, 0), (10, 0, 1, 5), (10, 0, 1, 1))
    assert runqueue.distribution(table, end_ns=20).filter(pl.col("scope") == "cpu")["length"].to_list() == [
        1,
        2,
    ]
    got = runqueue.at_switch(table, switches((10, 0))).filter(pl.col("scope") == "cpu")
    assert got["length"].to_list() == [2]


def test_no_rows_give_no_rows(make_runqueue: Any) -> None:
    assert runqueue.distribution(make_runqueue()).is_empty()
    assert runqueue.summary(make_runqueue()).is_empty()


steps = st.lists(
    st.tuples(st.integers(0, 1000), st.sampled_from([0, 1, 2, None]), st.integers(0, 1), st.integers(0, 9)),
    min_size=1,
    max_size=60,
)


@given(rows=steps, beyond=st.integers(0, 100))
def test_times_add_up_and_exceedance_falls(make_runqueue: Any, rows: list[Any], beyond: int) -> None:
    rows = sorted(rows, key=lambda r: r[0])
    end = rows[-1][0] + beyond
    got = runqueue.distribution(make_runqueue(*rows), end_ns=end)
    for (scope, cpu), part in got.group_by("scope", "cpu"):
        firsts = [r[0] for r in rows if scope == "system" or r[1] == cpu]
        assert part["time_ns"].sum() == end - min(firsts)
        assert part["share"].sum() == pytest.approx(1)
        more = part.sort("length")["exceedance"].to_list()
        assert more == sorted(more, reverse=True)
        assert more[-1] == 0


@given(rows=steps)
def test_the_system_is_the_sum_of_its_queues(make_runqueue: Any, rows: list[Any]) -> None:
    rows = sorted(rows, key=lambda r: r[0])
    table = runqueue.summary(make_runqueue(*rows), end_ns=2000)
    area = {}
    for scope, part in table.group_by("scope"):
        area[scope[0]] = (part["mean"] * part["span_ns"]).sum()
    assert area["system"] == pytest.approx(area.get("cpu", 0) + area.get("unplaced", 0))


def test_over_time_by_hand(two_cpus: pl.DataFrame) -> None:
    # The system: 1 until 5, 3 until 10, 5 until 20, 2 until 40.
    got = runqueue.over_time(two_cpus, end_ns=40, bins=4).rows()
    assert got == [(0, 10, 2.0, 1, 3), (10, 10, 5.0, 5, 5), (20, 10, 2.0, 2, 2), (30, 10, 2.0, 2, 2)]
    assert runqueue.over_time(two_cpus, end_ns=40, bins=1).rows() == [(0, 40, 110 / 40, 1, 5)]


def test_over_time_holds_for_times_since_1970(make_runqueue: Any) -> None:
    """Times that a float rounds down, as those of LTTng's clock."""
    start = 1_412_670_961_211_296_639
    table = make_runqueue((start, 0, 1, 0), (start + 500, 0, 1, 2))
    got = runqueue.over_time(table, end_ns=start + 1000, bins=2).rows()
    assert got == [(start, 500, 1.0, 1, 1), (start + 500, 500, 3.0, 3, 3)]


def test_over_time_leaves_out_what_nobody_knows(make_runqueue: Any) -> None:
    """CPU 1 is lost from 15 to 30: until 20 half of an interval, then a whole one."""
    lost = runqueue.c.CROSSES_LOSS
    table = make_runqueue((0, 0, 1, 1), (0, 1, 1, 3), (15, 1, 0, 0, lost), (30, 1, 1, 0))
    assert runqueue.over_time(table, end_ns=40, bins=4).rows() == [
        (0, 10, 6.0, 6, 6),
        (10, 10, 6.0, 6, 6),
        (20, 10, None, None, None),
        (30, 10, 3.0, 3, 3),
    ]
    whole = runqueue.over_time(table, end_ns=40, bins=1).row(0, named=True)
    assert whole["mean"] == runqueue.summary(table, end_ns=40).row(0, named=True)["mean"]
    assert (whole["min"], whole["max"]) == (3, 6)


@given(rows=steps, bins=st.integers(1, 50))
def test_over_time_keeps_the_integral(make_runqueue: Any, rows: list[Any], bins: int) -> None:
    table = make_runqueue(*sorted(rows, key=lambda r: r[0]))
    got = runqueue.over_time(table, end_ns=2000, bins=bins)
    whole = runqueue.summary(table, end_ns=2000).row(0, named=True)
    assert (got["mean"] * got["dur_ns"]).sum() == pytest.approx(whole["mean"] * whole["span_ns"])
    assert got["max"].max() == whole["max"]
    assert (got["min"] <= got["mean"] + 1e-9).all()
    assert (got["mean"] <= got["max"] + 1e-9).all()


def test_intervals_of_shares_of_time_hold(make_runqueue: Any) -> None:
    """Lengths that are drawn anew at each step: the share that they have in the long run lies in
    nine of ten intervals."""
    rng = np.random.default_rng(5)
    p = np.array([0.5, 0.3, 0.2])
    inside = []
    for _ in range(100):
        at = np.cumsum(rng.exponential(1_000, 401)).astype(np.int64)
        lengths = rng.choice(3, size=400, p=p)
        table = make_runqueue(
            *((int(t), 0, int(n > 0), int(max(n - 1, 0))) for t, n in zip(at, lengths, strict=False))
        )
        got = runqueue.distribution(table, end_ns=int(at[-1])).filter(scope="system")
        for n, low, high in got.select("length", "share_low", "share_high").drop_nulls().iter_rows():
            inside.append(low <= p[n] <= high)
    assert len(inside) > 250, "few are refused"
    assert 0.85 <= np.mean(inside) <= 0.95


def test_a_share_without_enough_time_has_no_interval(make_runqueue: Any) -> None:
    got = runqueue.distribution(make_runqueue((0, 0, 1, 0), (10, 0, 0, 0)), end_ns=20)
    assert got["share_low"].null_count() == got.height
