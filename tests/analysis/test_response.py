from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracekit as tk
from tracekit.analysis import response
from tracekit.analysis._common import CROSSES_LOSS, OPEN_END, OPEN_START

CHECKED = ("wake_ts_ns", "end_ts_ns", "response_ns", "run_ns", "wait_ns", "nr_slices", "status")


def test_a_response_spans_all_slices_until_the_task_blocks(make_slices: Any) -> None:
    table = make_slices(
        {"ts_ns": 110, "dur_ns": 20, "wake_ts_ns": 100, "run_delay_ns": 10, "end": "preempted"},
        {"ts_ns": 150, "dur_ns": 5, "run_delay_ns": 20, "end": "yielding", "involuntary": False},
        {"ts_ns": 160, "dur_ns": 15, "run_delay_ns": 5, "end": "sleeping"},
        {"ts_ns": 300, "dur_ns": 7, "wake_ts_ns": 290, "run_delay_ns": 10, "sleep_ns": 115, "end": "dead"},
    )
    got = response.samples(table).select(CHECKED).rows()
    assert got == [(100, 175, 75, 40, 35, 3, "complete"), (290, 307, 17, 7, 10, 1, "complete")]


def test_tasks_that_interleave_are_kept_apart(make_slices: Any) -> None:
    table = make_slices(
        {"tid": 1, "ts_ns": 10, "dur_ns": 5, "wake_ts_ns": 5, "end": "preempted"},
        {"tid": 2, "ts_ns": 15, "dur_ns": 5, "wake_ts_ns": 14, "end": "sleeping"},
        {"tid": 1, "ts_ns": 20, "dur_ns": 5, "end": "sleeping"},
    )
    assert response.samples(table).select("tid", "response_ns").rows() == [(1, 20), (2, 6)]


def test_what_is_not_known_is_not_counted(make_slices: Any) -> None:
    table = make_slices(
        # Running when the trace began: nobody knows since when.
        {"tid": 1, "ts_ns": 0, "dur_ns": 5, "flags": OPEN_START, "end": "sleeping"},
        # Slept, and ran again without a wakeup record.
        {"tid": 1, "ts_ns": 50, "dur_ns": 5, "end": "sleeping"},
        # Preempted, and then woken: the records contradict each other.
        {"tid": 2, "ts_ns": 10, "dur_ns": 5, "wake_ts_ns": 9, "end": "preempted"},
        {"tid": 2, "ts_ns": 40, "dur_ns": 5, "wake_ts_ns": 35, "end": "sleeping"},
        # The source does not say why it left.
        {"tid": 3, "ts_ns": 20, "dur_ns": 5, "wake_ts_ns": 19, "end_state": "unknown_off"},
        # Records were lost within it.
        {"tid": 4, "ts_ns": 25, "dur_ns": 5, "wake_ts_ns": 24, "end": "sleeping", "flags": CROSSES_LOSS},
    )
    got = response.samples(table).select("tid", "status").rows()
    assert got == [
        (1, "start_unknown"),
        (1, "start_unknown"),
        (2, "end_unknown"),
        (2, "complete"),
        (3, "end_unknown"),
        (4, "unreliable"),
    ]
    row = response.summary(table).row(0, named=True)
    assert (row["n"], row["n_censored"], row["n_excluded"], row["max_ns"]) == (2, 1, 4, 10)


def test_responses_that_had_not_ended_are_censored(make_slices: Any, make_states: Any) -> None:
    table = make_slices(
        {"tid": 1, "ts_ns": 10, "dur_ns": 5, "wake_ts_ns": 8, "end": "sleeping"},
        {"tid": 2, "ts_ns": 20, "dur_ns": 30, "wake_ts_ns": 18, "flags": OPEN_END},
        {"tid": 3, "ts_ns": 15, "dur_ns": 5, "wake_ts_ns": 12, "end": "preempted"},
    )
    states = make_states(
        {"tid": 3, "ts_ns": 15, "dur_ns": 5, "state": "running"},
        {"tid": 3, "ts_ns": 20, "dur_ns": 40, "state": "runnable", "flags": OPEN_END},
        {"tid": 4, "ts_ns": 5, "dur_ns": 25, "state": "sleeping"},
        {"tid": 4, "ts_ns": 30, "dur_ns": 30, "state": "runnable", "flags": OPEN_END},
        # It ran before the trace began, and was preempted: since when it works on its wakeup is not known.
        {"tid": 5, "ts_ns": 0, "dur_ns": 9, "state": "running", "flags": OPEN_START},
        {"tid": 5, "ts_ns": 9, "dur_ns": 51, "state": "runnable", "flags": OPEN_END},
    )
    got = response.samples(table, states, end_ns=60).select("tid", "response_ns", "run_ns", "status").rows()
    assert got == [
        (1, 7, 5, "complete"),
        (2, 42, 30, "censored"),
        (3, 48, 5, "censored"),
        (4, 30, 0, "censored"),
    ]
    row = response.summary(table, states, end_ns=60).row(0, named=True)
    assert (row["n"], row["n_censored"], row["max_ns"], row["p50_ns"]) == (4, 3, 7, None)
    assert row["mean_is_bound"]
    assert response.cdf(table, states, end_ns=60)["cdf"].to_list() == pytest.approx([0.25] * 4)


plan = st.lists(
    st.tuples(
        st.integers(1, 50),
        st.integers(0, 20),
        st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), min_size=1),
    ),
    min_size=1,
    max_size=20,
)


@given(jobs=plan)
def test_every_job_of_a_plan_comes_back(make_slices: Any, jobs: list[Any]) -> None:
    rows, wanted, now = [], [], 0
    for sleep, delay, parts in jobs:
        wake = now + sleep
        now = wake + delay
        for i, (run, wait) in enumerate(parts):
            last = i == len(parts) - 1
            rows.append({"ts_ns": now, "dur_ns": run, "end": "sleeping" if last else "preempted"})
            if i == 0:
                rows[-1]["wake_ts_ns"] = wake
            now += run + (0 if last else wait)
        wanted.append((now - wake, sum(r for r, _ in parts), len(parts)))
    got = response.samples(make_slices(*rows))
    assert got.select("response_ns", "run_ns", "nr_slices").rows() == wanted
    assert (got["status"] == "complete").all()
    curve = response.cdf(make_slices(*rows))
    assert curve["cdf"].is_sorted()
    assert curve["cdf"].last() == 1.0
    assert pl.Series([w[0] for w in wanted]).max() == curve["value_ns"].last()


def test_a_loss_censors_where_it_begins(make_slices: Any) -> None:
    table = make_slices(
        {"tid": 1, "ts_ns": 10, "dur_ns": 5, "wake_ts_ns": 8, "end": "preempted"},
        {"tid": 1, "ts_ns": 40, "dur_ns": 30, "end": "sleeping", "flags": CROSSES_LOSS},
    )
    row = response.samples(table).row(0, named=True)
    assert (row["status"], row["censored"], row["response_ns"]) == ("unreliable", True, 32)


def test_a_window_censors_at_its_end() -> None:
    """Two CPUs: A and C run on past the window, B waits; nothing past its end is known."""
    trace = tk.simulate("policy: fifo\ncpus: 2\nA: R100\nC: R55\nB: S10 R1\n")
    cut = trace.filter(end="50ms")
    got = response.samples(cut.slices, cut.states, cut.end_ns)
    found = {r["comm"]: (r["response_ns"], r["status"]) for r in got.to_dicts()}
    assert found == {"A": (50e6, "censored"), "C": (50e6, "censored"), "B": (40e6, "censored")}
    whole = response.samples(trace.slices, trace.states, trace.end_ns).filter(comm="B")
    assert whole["response_ns"].item() == 46e6
    # No slice counts past the end of the window.
    runs = {r["comm"]: (r["run_ns"], r["wait_ns"]) for r in got.to_dicts()}
    assert runs == {"A": (50e6, 0), "C": (50e6, 0), "B": (0, 40e6)}
    same = response.samples(trace.slices, trace.states, 50_000_000)
    assert same.select("comm", "response_ns", "run_ns", "status").equals(
        got.select("comm", "response_ns", "run_ns", "status")
    )


def test_a_loss_ends_what_is_known_of_time_on_cpus(make_slices: Any) -> None:
    table = make_slices(
        {"tid": 1, "ts_ns": 10, "dur_ns": 5, "wake_ts_ns": 8, "end": "preempted"},
        {"tid": 1, "ts_ns": 40, "dur_ns": 300, "end": "preempted", "flags": CROSSES_LOSS},
        {"tid": 1, "ts_ns": 400, "dur_ns": 30, "end": "sleeping"},
    )
    row = response.samples(table).row(0, named=True)
    assert (row["response_ns"], row["run_ns"], row["wait_ns"]) == (32, 5, 27)


def test_slices_on_cpus_that_a_filter_leaves_out_join_no_responses(
    make_slices: Any, make_states: Any
) -> None:
    """Task 1 is preempted on CPU 0, sleeps and wakes on CPU 1, and comes back; task 2 goes away for good."""
    table = make_slices(
        {"tid": 1, "ts_ns": 10, "dur_ns": 5, "wake_ts_ns": 8, "end": "preempted"},
        {"tid": 1, "ts_ns": 20, "dur_ns": 5, "cpu": 1, "prev_cpu": 0, "end": "sleeping"},
        {"tid": 1, "ts_ns": 72, "dur_ns": 3, "cpu": 1, "prev_cpu": 1, "wake_ts_ns": 70, "end": "preempted"},
        {"tid": 1, "ts_ns": 80, "dur_ns": 5, "prev_cpu": 1, "end": "sleeping"},
        {"tid": 2, "ts_ns": 15, "dur_ns": 5, "wake_ts_ns": 9, "end": "preempted"},
        {"tid": 2, "ts_ns": 25, "dur_ns": 5, "cpu": 1, "prev_cpu": 0, "end": "sleeping"},
    )
    states = make_states(
        {"tid": 1, "ts_ns": 80, "dur_ns": 5, "cpu": 0, "state": "running"},
        {"tid": 1, "ts_ns": 85, "dur_ns": 15, "state": "sleeping", "flags": OPEN_END},
        {"tid": 2, "ts_ns": 15, "dur_ns": 5, "cpu": 0, "state": "running"},
        {"tid": 2, "ts_ns": 20, "dur_ns": 5, "cpu": 0, "state": "runnable"},
        {"tid": 2, "ts_ns": 25, "dur_ns": 5, "cpu": 1, "state": "running"},
        {"tid": 2, "ts_ns": 30, "dur_ns": 70, "state": "sleeping", "flags": OPEN_END},
    )
    here = pl.col("cpu").is_in([0])
    whole = response.samples(table, states, 100).select("tid", "response_ns", "status").rows()
    assert whole == [(1, 17, "complete"), (1, 15, "complete"), (2, 21, "complete")]
    part = response.samples(table.filter(here), states.filter(here), 100)
    assert part.select("tid", "response_ns", "status").rows() == [
        (1, None, "start_unknown"),
        (1, None, "end_unknown"),
        (2, None, "end_unknown"),
    ]
