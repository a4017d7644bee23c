from __future__ import annotations

from itertools import pairwise
from typing import Any

import polars as pl
import pytest

import tracekit as tk
from tracekit.analysis import latency
from tracekit.analysis._common import OPEN_END, OPEN_START


@pytest.fixture
def waits(make_slices: Any) -> pl.DataFrame:
    return make_slices(
        {"ts_ns": 100, "dur_ns": 10, "wake_ts_ns": 90, "run_delay_ns": 10, "end": "preempted"},
        {"ts_ns": 140, "dur_ns": 10, "run_delay_ns": 30, "end": "sleeping"},
        {"ts_ns": 205, "dur_ns": 5, "wake_ts_ns": 200, "run_delay_ns": 5, "sleep_ns": 50, "end": "yielding"},
        {"ts_ns": 212, "dur_ns": 5, "run_delay_ns": 2, "end": "sleeping"},
        {"ts_ns": 300, "dur_ns": 5, "end": "sleeping"},
    )


def test_samples_tell_what_made_the_task_runnable(waits: pl.DataFrame) -> None:
    got = latency.samples(waits).select("ts_ns", "cause", "run_delay_ns").rows()
    assert got == [(100, "first", 10), (140, "preemption", 30), (205, "wakeup", 5), (212, "yield", 2)]


def test_summary_by_hand(waits: pl.DataFrame) -> None:
    row = latency.summary(waits).row(0, named=True)
    assert (row["n"], row["sum_ns"], row["mean_ns"]) == (4, 47, 47 / 4)
    assert (row["min_ns"], row["p50_ns"], row["max_ns"], row["max_at_ns"]) == (2, 5, 30, 140)
    only = latency.summary(waits, cause="wakeup").row(0, named=True)
    assert (only["n"], only["max_ns"], only["cause"]) == (1, 5, "wakeup")
    with pytest.raises(ValueError, match="unknown cause"):
        latency.summary(waits, cause="boredom")  # type: ignore[arg-type]


def test_waits_that_never_ended_are_censored(waits: pl.DataFrame, make_states: Any) -> None:
    states = make_states(
        {"ts_ns": 0, "dur_ns": 60, "state": "sleeping", "tid": 2},
        {"ts_ns": 60, "dur_ns": 940, "state": "runnable", "tid": 2, "flags": OPEN_END},
        {"ts_ns": 0, "dur_ns": 1000, "state": "preempted", "tid": 3, "flags": OPEN_START | OPEN_END},
        {"ts_ns": 0, "dur_ns": 400, "state": "running", "tid": 4, "flags": OPEN_START},
        # It is moved to another queue while it waits, and is still one wait; the source says R for
        # a preempted task.
        {"ts_ns": 400, "dur_ns": 100, "state": "runnable", "tid": 4},
        {"ts_ns": 500, "dur_ns": 500, "state": "runnable", "tid": 4, "flags": OPEN_END},
    )
    got = latency.samples(waits, states).filter("censored")
    assert got.select("tid", "cause", "run_delay_ns").rows() == [(2, "wakeup", 940), (4, "preemption", 600)]
    row = latency.summary(waits, states).row(0, named=True)
    assert (row["n"], row["n_censored"], row["mean_is_bound"]) == (6, 2, True)
    # F after Kaplan and Meier: 4 of 6 waits ended, all before the censored ones.
    assert latency.cdf(waits, states)["cdf"].max() == pytest.approx(4 / 6)
    # Area under 1 - F up to 940: waits 2, 5, 10 and 30 of six, then 4/12 to the end.
    assert row["mean_ns"] == pytest.approx(2 + 3 * 5 / 6 + 5 * 4 / 6 + 20 * 3 / 6 + 910 * 2 / 6)


def test_a_task_that_waits_from_its_first_record_is_not_a_wakeup(
    waits: pl.DataFrame, make_states: Any
) -> None:
    states = make_states({"ts_ns": 60, "dur_ns": 940, "state": "runnable", "tid": 2, "flags": OPEN_END})
    assert latency.samples(waits, states).filter("censored")["cause"].to_list() == ["first"]


def test_a_filter_changes_no_cause_of_a_wait(trace: tk.Trace) -> None:
    start, end = trace.start_ns, trace.end_ns
    assert start is not None
    assert end is not None
    whole = latency.samples(trace).filter(~pl.col("censored"))
    edges = [start + (end - start) * k // 7 for k in range(7)] + [end + 1]
    parts = [trace.filter(start=a, end=b) for a, b in pairwise(edges)]
    found = pl.concat(latency.samples(part).filter(~pl.col("censored")) for part in parts)
    assert found.equals(whole)


def test_a_wait_behind_a_slice_that_is_left_out_has_no_cause(make_slices: Any) -> None:
    """Of a task that moves to another CPU in between, of which nothing is in the table."""
    table = make_slices(
        {"ts_ns": 10, "dur_ns": 5, "wake_ts_ns": 8, "run_delay_ns": 2, "end": "sleeping"},
        {"ts_ns": 40, "dur_ns": 5, "prev_cpu": 1, "run_delay_ns": 9, "end": "preempted"},
        {"ts_ns": 50, "dur_ns": 5, "prev_cpu": 0, "run_delay_ns": 5, "end": "sleeping"},
        {
            "tid": 2,
            "ts_ns": 70,
            "dur_ns": 5,
            "prev_cpu": 1,
            "wake_ts_ns": 66,
            "run_delay_ns": 4,
            "end": "dead",
        },
    )
    got = latency.samples(table).select("ts_ns", "cause").rows()
    assert got == [(10, "first"), (40, None), (50, "preemption"), (70, "wakeup")]
