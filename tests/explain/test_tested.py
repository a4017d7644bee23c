"""Blame that is tested by replays: what absent tasks leave behind, and known answers."""

from __future__ import annotations

import pickle
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.cli import main
from tracekit.explain import counterfactuals
from tracekit.explain.changes import Culprit, handler_time, lock_time, untestable, without
from tracekit.explain.tested import _verdict

from .text import Line, switch, trace_of, waking

IDLE = "swapper/0:0"


@pytest.fixture
def shared(tmp_path: Path) -> tk.Trace:
    """Every 10 ms a timer wakes `db`, which needs 1 ms and waits 2 ms for `hog` first, which a
    timer wakes 1 ms before."""
    lines: list[Line] = []
    for n in range(60):
        at = 10_000 * n
        lines += [
            (at, 0, "<idle>-0", "d.h2.", waking("hog:2", prio=9)),
            (at + 10, 0, "<idle>-0", "d..2.", switch(IDLE, "R", "hog:2", to_prio=9)),
            (at + 1010, 0, "hog-2", "d.h2.", waking("db:1")),
            (at + 3010, 0, "hog-2", "d..2.", switch("hog:2", "S", "db:1", prio=9)),
            (at + 4010, 0, "db-1", "d..2.", switch("db:1", "S", IDLE)),
        ]
    return trace_of(lines, tmp_path)


def test_an_absent_task_leaves_its_cpu_idle(shared: tk.Trace) -> None:
    left = without(shared.events, [2])
    kind = pl.col("kind").cast(pl.String)
    assert not left.filter((pl.col("tid") == 2) | (pl.col("next_tid") == 2) | (pl.col("ctx_tid") == 2)).height
    # `db` is woken as often as before, and at the same times.
    wakes = [
        e.filter((kind == "waking") & (pl.col("tid") == 1))["ts_ns"].to_list() for e in (shared.events, left)
    ]
    assert wakes[0] == wakes[1]
    in_hardirq = left.filter(kind == "waking")["irq_flags"].cast(pl.UInt32) & 16
    assert in_hardirq.to_list() == [16] * 60


def test_the_gain_is_what_was_attributed_where_nobody_else_waits(shared: tk.Trace) -> None:
    found = shared.why(comm="db")
    assert found.causes["culprit"][0] == "hog"
    rows = counterfactuals(shared, found, top=1, runs=3, variants=("absent", "other CPUs"))
    absent, moved = rows.rows(named=True)
    assert absent["attributed_ns"] == pytest.approx(2e6, rel=0.01)
    assert absent["gain_ns"] == pytest.approx(2e6, rel=0.1)
    assert absent["verdict"] == "agrees"
    assert (moved["verdict"], moved["reason"]) == ("not tested", "the machine has one CPU")


def test_a_culprit_twice_as_fast_is_done_before_half_of_its_time_is_over(shared: tk.Trace) -> None:
    # It began 1 ms before `db` was woken: 3 ms of work become 1.5, of which `db` waits for 0.5 in place of 2.
    (row,) = counterfactuals(shared, shared.why(comm="db"), 1, 3, ("twice as fast",)).rows(named=True)
    assert row["attributed_ns"] == pytest.approx(1e6, rel=0.01)
    assert row["gain_ns"] == pytest.approx(1.5e6, rel=0.02)
    assert row["verdict"] == "gains more than attributed"


@pytest.fixture
def interrupted(tmp_path: Path) -> tk.Trace:
    """Every 10 ms a timer wakes `db`; of its 2 ms a network interrupt takes 0.7. Where the CPU is
    idle, another takes time from nobody."""
    lines: list[Line] = []
    for n in range(60):
        at = 10_000 * n
        lines += [
            (at, 0, "<idle>-0", "d.h2.", waking("db:1")),
            (at + 10, 0, "<idle>-0", "d..2.", switch(IDLE, "R", "db:1")),
            (at + 500, 0, "db-1", "d.h2.", "irq_handler_entry: irq=5 name=nic0"),
            (at + 1200, 0, "db-1", "d.h2.", "irq_handler_exit: irq=5 ret=handled"),
            (at + 2010, 0, "db-1", "d..2.", switch("db:1", "S", IDLE)),
            (at + 5000, 0, "<idle>-0", "d.h2.", "irq_handler_entry: irq=6 name=disk0"),
            (at + 5100, 0, "<idle>-0", "d.h2.", "irq_handler_exit: irq=6 ret=handled"),
        ]
    return trace_of(lines, tmp_path)


def test_a_response_without_an_interrupt_gains_the_time_of_its_handlers(interrupted: tk.Trace) -> None:
    found = interrupted.why(comm="db")
    assert found.causes["culprit"][0] == "irq nic0"
    absent, faster = counterfactuals(interrupted, found, 1, 3, ("absent", "twice as fast")).rows(named=True)
    assert absent["attributed_ns"] == pytest.approx(7e5, rel=0.01)
    assert absent["gain_ns"] == pytest.approx(7e5, rel=0.02)
    assert absent["verdict"] == "agrees"
    assert faster["reason"] == "an interrupt: it can only be absent"


def test_handlers_count_up_to_the_wakeup_that_they_make_and_only_where_they_hit_a_task(
    interrupted: tk.Trace,
) -> None:
    found = interrupted.why(comm="db")
    assert sum(ns for *_, ns in handler_time(interrupted, found, "irq nic0")) == 60 * 700_000
    assert handler_time(interrupted, found, "irq disk0") == []
    idle = Culprit("irq disk0", [], pl.Series([1]))
    programs = tk.Programs(interrupted)
    reason = untestable(interrupted, programs, found, idle, "absent")
    assert reason == "its handlers took no time from tasks: they ran on idle CPUs"
    tick = Culprit("irq local_timer", [], pl.Series([1]))
    assert "ticks and timers of its own" in str(untestable(interrupted, programs, found, tick, "absent"))


@pytest.fixture
def locked(tmp_path: Path) -> tk.Trace:
    """Every 10 ms `db` runs 0.5 ms, sleeps for a lock until `holder` has run for 2 ms on the other
    CPU, and runs 0.5 ms."""
    lines: list[Line] = []
    other = "swapper/1:0"
    for n in range(60):
        at = 10_000 * n
        lines += [
            (at, 0, "<idle>-0", "d.h2.", waking("db:1")),
            (at + 10, 0, "<idle>-0", "d..2.", switch(IDLE, "R", "db:1")),
            (at + 400, 1, "<idle>-0", "d.h2.", waking("holder:2", cpu=1)),
            (at + 410, 1, "<idle>-0", "d..2.", switch(other, "R", "holder:2")),
            (at + 505, 0, "db-1", ".....", "sys_futex(uaddr: 7f00, op: 80)"),
            (at + 510, 0, "db-1", "d..2.", switch("db:1", "S", IDLE)),
            (at + 2410, 1, "holder-2", "d..2.", waking("db:1")),
            (at + 2420, 0, "<idle>-0", "d..2.", switch(IDLE, "R", "db:1")),
            (at + 2500, 0, "db-1", ".....", "sys_futex -> 0x0"),
            (at + 2510, 1, "holder-2", "d..2.", switch("holder:2", "S", other)),
            (at + 2920, 0, "db-1", "d..2.", switch("db:1", "S", IDLE)),
        ]
    return trace_of(lines, tmp_path)


def test_the_holder_of_a_lock_is_named_and_what_it_did_meanwhile_is_halved(locked: tk.Trace) -> None:
    window = locked.why(comm="db", what="window")
    awaited = window.causes.filter(pl.col("how") == "awaited")
    assert awaited["culprit"].to_list() == ["holder"]
    assert sum(ns for *_, ns in lock_time(locked, window, "holder")) == 60 * 1_900_000
    order = window.causes["culprit"].to_list().index("holder") + 1
    rows = counterfactuals(locked, window, order, 3, ("lock half as long",))
    held = rows.filter(pl.col("culprit") == "holder").row(0, named=True)
    assert held["attributed_ns"] == pytest.approx(60 * 950_000, rel=1e-6)
    assert held["gain_ns"] == pytest.approx(60 * 950_000, rel=0.02)
    assert held["verdict"] == "agrees"


def test_a_part_of_a_trace_is_not_tested(shared: tk.Trace) -> None:
    part = shared.why(comm="db", what="window", start="100ms", end="200ms")
    with pytest.raises(tk.FilterError, match="expected the whole trace as the window"):
        counterfactuals(shared, part)


def test_what_was_not_recorded_is_refused_by_name(shared: tk.Trace) -> None:
    found = shared.why(comm="db")
    rows = counterfactuals(shared, found, 1, 1, ("lock half as long",))
    assert rows["reason"].to_list() == [
        "no lock: of no sleep that it ended is it recorded that it was for a lock"
    ]
    with pytest.raises(ValueError, match="unknown variant 'gone': expected one of absent, twice as fast"):
        counterfactuals(shared, found, variants=("gone",))


def test_shortened_programs_survive_a_pickle_and_are_shortened_once(shared: tk.Trace) -> None:
    less = tk.Programs(shared).shortened(faster=[(2, 500)])
    again = pickle.loads(pickle.dumps(less))
    runs = [
        p.table.filter((pl.col("tid") == 2) & (pl.col("op") == "run"))["dur_ns"].to_list()
        for p in (less, again)
    ]
    assert runs[0] == runs[1]
    assert max(runs[0]) == pytest.approx(1_500_000, rel=0.02)
    with pytest.raises(tk.ReplayError, match="shortened already"):
        less.shortened(faster=[(2, 500)])


def test_an_interval_that_holds_everything_says_nothing() -> None:
    assert _verdict(2.0, 1.0, 3.0) == "agrees"
    assert _verdict(2.0, -1.0, 3.0) == "cannot tell"
    assert _verdict(2.0, 0.5, 1.0) == "gains less than attributed"
    assert _verdict(2.0, -2.0, -1.0) == "gains nothing: others take its place"
    assert _verdict(2.0, 4.0, 5.0) == "gains more than attributed"


def test_only_responses_are_tested(shared: tk.Trace) -> None:
    with pytest.raises(tk.FilterError, match="expected the causes of responses"):
        counterfactuals(shared, shared.why(comm="db", what="waits"))


def test_the_command_prints_the_gain(shared: tk.Trace, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        main, ["why", str(tmp_path / "trace.txt"), "--comm", "db", "--what-if", "1", "--runs", "2"]
    )
    assert done.exit_code == 0, done.output
    assert "replayed with each cause changed:" in done.stdout
    assert "absent" in done.stdout
