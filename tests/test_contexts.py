"""Timer wakeups in traces without interrupt flags: recognised where the flags, hidden from the
search, prove it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.cli import main
from tracekit.whatif import contexts
from tracekit.whatif.calibration import calibrate
from tracekit.whatif.contexts import delivered, recognise

IN_INTERRUPT = (pl.col("irq_flags").cast(pl.UInt32) & 0x30) != 0


def without_flags(trace: tk.Trace) -> tk.Trace:
    """The trace as a source without interrupt flags would have it."""
    events = trace.events
    hidden = events.with_columns(pl.lit(None, dtype=events.schema["irq_flags"]).alias("irq_flags"))
    tables = {name: trace.table(name) for name in trace.tables}
    return tk.Trace({**tables, "events": hidden}, trace.metadata, trace.name)


def truth(trace: tk.Trace) -> dict[int, float]:
    """Share of a task's wakeups, as credited to a running task, that an interrupt made."""
    made = trace.events.filter((pl.col("kind") == "waking") & (pl.col("ctx_tid") > 0))
    return dict(made.group_by("tid").agg(IN_INTERRUPT.mean()).iter_rows())


def line(ts: int, cpu: int, by: str, event: str, rest: str) -> str:
    comm, tid = by.split(":")
    return f"{comm} {tid} [{cpu:03}] {ts / 1e9:.9f}: sched:{event}: {rest}\n"


def switch(ts: int, prev: str, state: str, following: str) -> str:
    (a, x), (b, y) = prev.split(":"), following.split(":")
    said = f"prev_comm={a} prev_pid={x} prev_prio=120 prev_state={state} ==> next_comm={b} next_pid={y} next_prio=120"
    return line(ts, 0, prev, "sched_switch", said)


def written(kind: str, wakes: int = 60) -> tk.Trace:
    """Text of one CPU: `s` sleeps and wakes; `a` and `b` take turns and never sleep, or `m` hands
    work to `s`.

    `timer`: sleeps of 1 ms; `random`: sleeps of any length; `message`: `m` runs for 1 ms of its
    own and then wakes `s`.
    """
    dice = random.Random(1)
    text, now, runner = "", 1_000_000_000, "a:1"
    text += switch(now, "x:9", "S", runner)
    for _ in range(wakes):
        if kind == "message":
            # m works for as long as it takes, then wakes s and waits itself until s has answered.
            burst = dice.randrange(990_000, 1_010_000)
            pause = dice.randrange(100_000, 5_000_000)
            text += switch(now + pause, runner, "R", "m:3")
            now += pause + burst
            text += line(now, 0, "m:3", "sched_waking", "comm=s pid=5 prio=120 target_cpu=000")
            text += switch(now + 10_000, "m:3", "S", "s:5")
            text += line(now + 20_000, 0, "s:5", "sched_waking", "comm=m pid=3 prio=120 target_cpu=000")
            text += switch(now + 30_000, "s:5", "S", runner)
            now += 30_000
            continue
        sleep = 1_000_000 + dice.randrange(50_000) if kind == "timer" else dice.randrange(200_000, 40_000_000)
        turn = dice.randrange(sleep)
        other = dice.choice(["a:1", "b:2", "c:4"])
        if other != runner:
            text += switch(now + turn, runner, "R", other)
            runner = other
        now += sleep
        text += line(now, 0, runner, "sched_waking", "comm=s pid=5 prio=120 target_cpu=000")
        text += switch(now + 5_000, runner, "R", "s:5")
        text += switch(now + 25_000, "s:5", "S", runner)
        now += 25_000
    return tk.read(text.encode())


@pytest.mark.parametrize(
    ("kind", "sign"), [("timer", "fixed sleep"), ("random", "waker is whoever runs"), ("message", None)]
)
def test_timers_are_told_from_messages(kind: str, sign: str | None) -> None:
    trace = written(kind, 200)
    found = recognise(trace)
    assert not found.stated
    signs = dict(found.timers.select("tid", "sign").iter_rows())
    assert signs == ({} if sign is None else {5: sign})
    classes = {w["class"] for w in tk.Programs(trace).wakeups}
    assert ("timer" in classes) == (sign is not None)
    said = found.sentence()
    assert said is not None
    assert f"{found.recognised} of them" in said


def ftrace(now: int, by: str, event: str, rest: str, flags: str = "d..2.") -> str:
    comm, tid = by.split(":")
    return f"{comm:>16}-{tid}  [000] {flags} {now / 1e9:.6f}: {event}: {rest}\n"


def relayed(tmp_path: Path, sends: bool, rounds: int = 100, asleep: str = "S") -> tk.Trace:
    """ftrace of one CPU: `s` is woken in softirqs, by what `a` and `b` send, or while whoever runs."""
    dice = random.Random(2)
    now, text = 1_000_000_000, "# tracer: nop\n#\n"

    def switched(prev: str, state: str, to: str) -> str:
        (x, p), (y, n) = prev.split(":"), to.split(":")
        left = f"prev_comm={x} prev_pid={p} prev_prio=120 prev_state={state}"
        return ftrace(now, prev, "sched_switch", f"{left} ==> next_comm={y} next_pid={n} next_prio=120")

    text += switched("x:9", "S", "hog:4")
    for _ in range(rounds):
        turns = [("hog:4", dice.randrange(2_000_000, 6_000_000)), (dice.choice(["a:1", "b:2"]), 1_000_000)]
        if not sends:
            turns[1] = ("b:2", dice.randrange(2_000_000, 6_000_000))
            dice.shuffle(turns)
        runner = "hog:4"
        for who, length in turns:
            if who != runner:
                text += switched(runner, "R", who)
                runner = who
            now += length
        text += ftrace(now, runner, "sched_waking", "comm=s pid=5 prio=120 target_cpu=000", "d.s3.")
        now += 5_000
        text += switched(runner, "R", "s:5")
        now += 20_000
        text += switched("s:5", asleep, "hog:4")
    path = tmp_path / "relayed.txt"
    path.write_text(text)
    return tk.read(path)


def test_messages_through_sockets_of_the_machine_itself_are_said(tmp_path: Path) -> None:
    said = delivered(relayed(tmp_path, sends=True))
    assert said is not None
    assert said.startswith("100 wakeups (100 %) of s came in softirqs")
    result = CliRunner().invoke(main, ["calibrate", str(tmp_path / "relayed.txt"), "--json"])
    assert said in json.loads(result.stdout)["not_recorded"]
    # A network card interrupts whoever runs; few wakeups say nothing.
    assert delivered(relayed(tmp_path, sends=False)) is None
    assert delivered(relayed(tmp_path, sends=True, rounds=contexts.LEAST - 1)) is None
    # Nor is a disk a socket.
    assert delivered(relayed(tmp_path, sends=True, asleep="D")) is None


@pytest.mark.parametrize("sleep", [12_000, 200_000])
def test_who_had_the_cpu_alone_during_a_sleep_may_have_ended_it(sleep: int) -> None:
    # Each of three works for as long as it takes and asks s, which answers and sleeps until whoever
    # has come next asks it: the waker is whoever ran in that sleep, and did wake it.
    dice = random.Random(1)
    now = 1_000_000_000
    text = switch(now, "x:9", "S", "s:5")
    for _ in range(200):
        asks = dice.choice(["a:1", "b:2", "c:4"])
        text += switch(now + 20_000, "s:5", "S", asks)
        now += 20_000 + sleep + dice.randrange(sleep // 2)
        text += line(now, 0, asks, "sched_waking", "comm=s pid=5 prio=120 target_cpu=000")
        text += switch(now, asks, "R", "s:5")
    assert recognise(tk.read(text.encode())).timers.height == 0


def test_few_wakeups_tell_nothing() -> None:
    assert recognise(written("timer", contexts.LEAST - 1)).timers.height == 0
    assert recognise(written("timer", contexts.LEAST + 2)).timers.height == 1


def slept(*lengths: int) -> tk.Trace:
    """Text in which `s` sleeps for each of these times (ns), while `a` has the CPU."""
    text, now = switch(1_000_000_000, "x:9", "S", "s:5"), 1_000_000_000
    for length in lengths:
        text += switch(now + 30_000, "s:5", "S", "a:1")
        now += 30_000 + length
        text += line(now, 0, "a:1", "sched_waking", "comm=s pid=5 prio=120 target_cpu=000")
        text += switch(now + 5_000, "a:1", "R", "s:5")
        now += 5_000
    return tk.read((text + switch(now + 30_000, "s:5", "S", "a:1")).encode())


def test_a_round_sleep_ends_by_a_timer_whoever_had_the_cpu() -> None:
    found = recognise(slept(2_600_064_000, 7_300_000))
    assert found.timers.select("tid", "n", "sign").rows() == [(5, 1, "round sleep")]
    assert found.rounds["tid"].to_list() == [5]
    classes = [w["class"] for w in tk.Programs(slept(2_600_064_000)).wakeups]
    assert "timer" in classes
    # The other sleep keeps its waker, and so does one that is round by chance among others.
    both = slept(2_600_064_000, 7_300_000)
    woken = found.apply(both.events).filter(pl.col("kind") == "waking").select(IN_INTERRUPT.alias("by"))
    assert woken["by"].fill_null(False).to_list() == [True, False]
    assert recognise(slept(50_030_000, 7_300_000, 23_456_000)).timers.height == 0
    assert recognise(slept(2_604_064_000)).timers.height == 0


@pytest.mark.parametrize("ratio", [2.0, 6.0])
def test_the_factor_matters_little(ratio: float, trace: tk.Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    before = recognise(without_flags(trace)).timers["tid"].to_list()
    monkeypatch.setattr(contexts, "RATIO", ratio)
    assert recognise(without_flags(trace)).timers["tid"].to_list() == before


def test_where_the_source_says_it_nothing_is_inferred(trace: tk.Trace) -> None:
    found = recognise(trace)
    assert found.stated
    assert (found.timers.height, found.sentence()) == (0, None)
    assert found.apply(trace.events) is trace.events


def test_the_shipped_capture_without_its_flags_replays_as_with_them(trace: tk.Trace) -> None:
    hidden = without_flags(trace)
    right = truth(trace)
    found = recognise(hidden)
    assert found.timers.height >= 2
    assert all(right[tid] > 0.9 for tid in found.timers["tid"])
    per_slice = {}
    for name, source in (("with", trace), ("without", hidden)):
        rows = calibrate(trace, tk.replay(source, "cfs:form=6.1"))
        per_slice[name] = abs(rows.filter(metric="main")["error_pct"].item())
    assert per_slice["with"] < 15
    # Tied to whoever ran, the same wakeups are off by a factor.
    assert per_slice["without"] < 25


CAPTURES = (
    "lab/6.1/mixed-default.dat",
    "lab/6.1/nicefork-fork-hog19.dat",
    "lab2/6.1-2cpu/mixed-default.dat",
    "lab2/6.1-2cpu/callpipe-default-batch.dat",
    "lab2/6.12-2cpu/server-default.dat",
    "lab2/6.12-2cpu/pinned-default.dat",
)


@pytest.mark.parametrize("name", CAPTURES)
def test_no_message_is_taken_for_a_timer(name: str, testdata: Path) -> None:
    if not (testdata / name).is_file():
        pytest.skip(f"no capture {name} (make testdata unpacks it)")
    trace = tk.read(testdata / name)
    right = truth(trace)
    found = recognise(without_flags(trace))
    assert found.timers.height > 0
    assert {tid: right[tid] for tid in found.timers["tid"] if right[tid] < 0.9} == {}


@pytest.mark.parametrize(
    "name",
    [
        "lab2/6.12-2cpu/server-default.dat",
        "lab2/6.1-2cpu/server-pipe-default.dat",
        "lab2/7.3-2cpu/server-default.dat",
    ],
)
def test_who_runs_first_behind_the_sleeper_hides_no_timer(name: str, testdata: Path) -> None:
    """Arrivals at random times wake a dispatcher, which has the CPU more often at the begin of a
    sleep than at its end: in a long trace that is certain, and small."""
    if not (testdata / name).is_file():
        pytest.skip(f"no capture {name} (make testdata unpacks it)")
    assert "gen0" in recognise(without_flags(tk.read(testdata / name))).timers["comm"].to_list()


@pytest.mark.parametrize("command", ["compare", "replay", "calibrate"])
def test_replays_say_what_the_text_does_not(command: str, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    written("timer", 30).write(path)
    options = [] if command == "calibrate" else ["--policy", "rr"]
    options += ["--quick"] if command == "compare" else []
    done = CliRunner().invoke(main, [command, str(path), *options])
    assert done.exit_code in (0, 1), done.output
    assert (
        "does not say which wakeups interrupts made: 30 are credited to whoever ran, 29 of them (97 %)"
        in done.stderr
    )
    told = tk.Programs(tk.read(path)).inferred.filter(name="tasks woken by timers")
    assert told.select("value", "n").rows() == [(1.0, 29)]
