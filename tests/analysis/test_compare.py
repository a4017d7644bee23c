from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import tracekit as tk
from tracekit.analysis import compare, response
from tracekit.whatif.headline import effect_of


def figures(*rows: tuple[str, float | None]) -> pl.DataFrame:
    return pl.DataFrame(
        [("group", group, "slice", "mean", "ns", value, 10, 0, False) for group, value in rows],
        schema=compare._SCHEMA,
        orient="row",
    )


def test_an_effect_within_the_identity_error_is_not_resolved() -> None:
    got = compare.compare(
        {
            "recorded": figures(("a", 100.0), ("b", 100.0), ("c", 100.0), ("d", None), ("e", 1000.0)),
            "identity": figures(("a", 110.0), ("b", 110.0), ("c", 100.0), ("d", 5.0), ("e", 1000.0)),
            "rr": figures(("a", 119.0), ("b", 121.0), ("c", 101.0), ("d", 7.0), ("e", 1005.0)),
        },
        resolution_ns=1,
    )
    rows = {r["group"]: r for r in got.rows(named=True)}
    assert [rows[g]["verdict"] for g in "abcd"] == [
        "not resolved",
        "resolved",
        "not resolved",
        "not measured",
    ]
    assert rows["b"]["change_pct"] == pytest.approx(10)
    assert rows["b"]["identity_error_pct"] == pytest.approx(10)
    assert rows["c"]["resolved"] is False, "a difference of one clock step is none"
    assert rows["d"]["resolved"] is None
    assert rows["d"]["identity_error_pct"] is None


def test_a_fall_to_a_lower_bound_is_not_resolved() -> None:
    policy = figures(("a", 50.0), ("b", 200.0), ("c", 50.0), ("d", 50.0))
    policy = policy.with_columns(is_bound=pl.Series([True, True, False, True]))
    same = figures(("a", 100.0), ("b", 100.0), ("c", 100.0), ("d", None))
    identity = figures(("a", 100.0), ("b", 100.0), ("c", 100.0), ("d", 100.0))
    got = compare.compare({"recorded": same, "identity": identity, "p": policy})
    verdicts = dict(got.select("group", "verdict").iter_rows())
    assert verdicts == {"a": "not resolved", "b": "resolved", "c": "resolved", "d": "not measured"}


def test_groups_that_only_a_replay_has_are_kept() -> None:
    got = compare.compare(
        {"recorded": figures(("a", 1.0)), "identity": figures(("a", 1.0)), "p": figures(("z", 2.0))}
    )
    assert got.select("group", "recorded", "predicted", "verdict").rows() == [
        ("a", 1.0, None, "not measured"),
        ("z", None, 2.0, "not measured"),
    ]


def test_without_policies_there_are_columns_and_no_rows() -> None:
    empty = compare.compare({"recorded": figures(("a", 1.0)), "identity": figures(("a", 1.0))})
    full = compare.compare({"recorded": figures(("a", 1.0)), "identity": figures(("a", 1.0)), "p": figures()})
    assert empty.is_empty()
    assert empty.schema == full.schema
    with pytest.raises(ValueError, match="no figures for 'identity'"):
        compare.compare({"recorded": figures()})


def test_metrics_of_a_small_trace(make_slices: Any, make_runqueue: Any) -> None:
    table = make_slices(
        {"comm": "a1", "ts_ns": 0, "dur_ns": 10, "wake_ts_ns": 0, "run_delay_ns": 0, "end": "preempted"},
        {"comm": "a1", "ts_ns": 30, "dur_ns": 20, "run_delay_ns": 20, "end": "sleeping"},
        {"comm": "a1", "ts_ns": 60, "dur_ns": 6, "wake_ts_ns": 56, "run_delay_ns": 4, "end": "sleeping"},
    )
    got = compare.metrics(table, make_runqueue((0, 0, 1, 0), (10, 0, 0, 1), (30, 0, 1, 0)), end_ns=66)
    value = {(r["scope"], r["metric"], r["statistic"]): (r["value"], r["n"]) for r in got.rows(named=True)}
    assert value["group", "slice", "mean"] == (12.0, 3)
    assert value["group", "slice_per_involuntary", "mean"] == (36.0, 1)
    assert value["group", "run_delay", "max"] == (20.0, 3)
    assert value["group", "wakeup_latency", "mean"] == (4.0, 1)
    assert value["group", "response", "mean"] == (30.0, 2)
    assert value["all", "cpu_time", "total"][0] == 36.0
    assert value["all", "switches", "total"] == (3.0, 3)
    assert value["all", "involuntary_switches", "total"][0] == 1.0
    assert value["system", "runqueue", "mean"] == (1.0, None)
    assert set(got["metric"].unique()) == set(compare.METRICS)


def test_the_middle_of_repetitions_is_the_median_of_each_figure() -> None:
    def run(*rows: tuple[str, float | None, int, bool | None]) -> pl.DataFrame:
        return compare.as_metrics(
            [("group", g, "response", "mean", "ns", value, n, 0, bound) for g, value, n, bound in rows]
        )

    found = compare.medians(
        [
            run(("a", 3.0, 5, True), (None, None, 1, None), ("rare", 7.0, 1, False)),
            run(("a", 1.0, 9, False), (None, 4.0, 1, False)),
            run(("a", 2.0, 6, False), (None, 6.0, 2, False)),
            run(("a", 9.0, 7, True), (None, 5.0, 2, None), ("late", 8.0, 1, False)),
        ]
    )
    assert found.select("group", "value", "n", "is_bound").rows() == [
        ("a", 2.0, 6, True),
        (None, 5.0, 1, False),
        ("rare", None, 1, False),
        ("late", None, 1, False),
    ]
    one = run(("a", 3.0, 5, True))
    assert compare.medians([one]).equals(one)


def test_distances_by_group(make_slices: Any) -> None:
    a = make_slices({"comm": "x1", "dur_ns": 1}, {"comm": "x2", "dur_ns": 2})
    b = make_slices({"comm": "x1", "dur_ns": 1}, {"comm": "x2", "dur_ns": 5})
    got = compare.distances(a, {"same": a, "other": b}, "dur_ns")
    assert got.select("label", "group", "ks").rows() == [("same", "x", 0.0), ("other", "x", 0.5)]
    assert compare.distances(a, {}, "dur_ns").columns == got.columns


def test_a_mean_that_is_a_bound_is_marked(trace: tk.Trace) -> None:
    part = trace.filter(end="300ms")
    found = compare.metrics(part.slices, part.runqueue, part.states, part.end_ns)
    known = dict(response.summary(part).select("group", "mean_is_bound").iter_rows())
    assert set(known.values()) == {True, False}
    rows = found.filter(scope="group", metric="response")
    assert dict(rows.filter(statistic="mean").select("group", "is_bound").iter_rows()) == known
    assert not rows.filter(statistic="p50")["is_bound"].any()
    both = compare.compare({"recorded": found, "identity": found, "x": found})
    bound = both.filter(scope="group", metric="response", statistic="mean").filter("recorded_is_bound")
    assert bound["predicted_is_bound"].all()
    assert bound.height
    row = {**bound.row(0, named=True), "low": None, "high": None, "no_interval": None}
    assert effect_of(row).recorded.startswith("\u2265 ")
