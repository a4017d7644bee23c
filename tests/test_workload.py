"""Workload texts wherever a trace is taken, and what the language says of pools, arrivals and
recorded times."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.analysis import response
from tracekit.cli import main
from tracekit.io.workload import recorded_times
from tracekit.whatif.sweep import sweep
from tracekit.whatif.worst import waits

POOL = """\
# A pool of two behind a Poisson stream, and a hog.
policy: cfs
until: 1500
seed: 7
Q*100 arrivals=~exp(10): R0.05 C(web: R~exp(2) D1 R0.2)
Server*2: (A(web))*
H: R∞
"""


@pytest.fixture
def text(tmp_path: Path) -> Path:
    place = tmp_path / "pool.wl"
    place.write_text(POOL)
    return place


def cli(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_text_reads_like_a_recording_of_its_run(text: Path) -> None:
    run, simulated = tk.read(text), tk.simulate(POOL)
    assert run.slices.equals(simulated.slices)
    assert run.metadata["source.format"] == "workload"
    assert tk.read(POOL).slices.equals(run.slices)
    assert tk.read(text, "workload", seed=3).slices.equals(tk.simulate(POOL, seed=3).slices)
    assert not tk.read(text, seed=3).slices.equals(run.slices)


def test_replays_run_the_stated_programs_and_reconstruct_nothing(text: Path) -> None:
    again = tk.replay(text, "cfs")
    assert again.slices.equals(tk.simulate(POOL).slices)
    other = tk.replay(POOL, "rr:quantum=2ms")
    assert other.slices.equals(tk.simulate(POOL, "rr:quantum=2ms").slices)
    assert other.inferred["name"].to_list() == ["ticks a second", "tick phase"]
    assert set(other._compute_program()["evidence"].cast(pl.String)) == {"stated"}
    # A part of the run is a recording like any other.
    assert "workload" not in tk.read(POOL).filter(comm="Server*").metadata


def test_a_stored_text_keeps_its_programs(text: Path, tmp_path: Path) -> None:
    stored = tmp_path / "pool.parquet"
    tk.read(text).write(stored)
    assert tk.replay(stored, "rr:quantum=2ms").slices.equals(tk.replay(text, "rr:quantum=2ms").slices)


def test_machine_costs_and_real_time_class_of_a_text_hold_for_its_replays() -> None:
    text = "policy: rr:quantum=9ms\npolicy rt: rt:slice=1ms\ncpus: 2\nhz: 100\ntimers: tick\ncosts: switch=40us\n"
    text += "A*2 policy=rr prio=5 cpus=0: R6\nB*3: (R3 S2)*\nuntil: 60"
    for policy in ("rr:quantum=2ms", "fifo", "cfs"):
        mine, theirs = tk.replay(text, policy), tk.simulate(text, policy)
        assert mine.slices.equals(theirs.slices)
    free = tk.replay(text, "fifo", overheads=False).slices["dur_ns"]
    assert not free.equals(tk.replay(text, "fifo").slices["dur_ns"])


def test_a_comparison_of_a_text_has_no_identity_error_and_error_bars_from_other_draws(text: Path) -> None:
    found = tk.compare(text, "rr:quantum=2ms", runs=4)
    rows = found.table.filter(pl.col("recorded").is_not_null() & pl.col("identity").is_not_null())
    assert rows.filter((pl.col("recorded") - pl.col("identity")).abs() > 1e-9 * pl.col("recorded")).is_empty()
    row = found.table.filter(group="Server", metric="response", statistic="p95").row(0, named=True)
    assert row["low"] < row["predicted"] < row["high"]
    assert row["validated"] == 0
    assert found.why == "the workload text names it"
    # Repetitions of a text with random times draw them anew, the same for each policy.
    programs = tk.Programs(text)
    one, two = (programs.run("cfs", perturbation=s).slices["dur_ns"] for s in programs.perturbations(3)[1:])
    assert not one.equals(two)
    assert programs.run("cfs", perturbation=programs.perturbations(3)[1]).slices["dur_ns"].equals(one)


def test_every_command_that_takes_a_trace_takes_a_text(text: Path, tmp_path: Path) -> None:
    assert "Server" in cli("slices", text)
    assert "Server" in cli("replay", text, "--policy", "rr:quantum=2ms")
    assert "pass" in cli("calibrate", text)
    assert "culprit" in cli("why", text, "--comm", "Server*")
    shown = json.loads(cli("compare", text, "--policy", "rr:quantum=2ms", "--quick", "--json"))
    assert shown["policies"] or shown["summary"]
    swept = sweep([text], "rr:quantum={1ms,4ms}", runs=1, jobs=1, output=tmp_path / "s.parquet")
    assert swept.table["error"].drop_nulls().is_empty()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: tk.replay(t, "cfs", loop="open"), "loop 'open': for recorded traces"),
        (lambda t: tk.replay(t, "cfs", endless=["H"]), "endless tasks: for recorded traces"),
        (lambda t: tk.read("A: R5\nB: R3"), "policy: cfs"),
        (lambda t: tk.read("policy: fifo\nA: R5 J3"), "workload: line 2: `J3`: no such step"),
        (lambda t: tk.read(t, seed="x"), "expected a whole number"),
    ],
)
def test_what_a_text_cannot_do_is_refused(text: Path, call: object, message: str) -> None:
    with pytest.raises(tk.TracekitError, match=message):
        call(text)  # type: ignore[operator]


def test_a_small_letter_at_the_begin_of_a_name_is_named(tmp_path: Path) -> None:
    place = tmp_path / "small.wl"
    place.write_text("policy: cfs\nweb*2: R5 S3\nuntil: 40\n")
    with pytest.raises(
        tk.ReplayError, match=r"line 2: no key web\*2; the name of a task begins with a capital"
    ):
        tk.read(place)


def test_expectations_are_checked_wherever_a_text_is_run(tmp_path: Path) -> None:
    false = tmp_path / "false.wl"
    false.write_text(
        "policy: goodness:version=2.0\nhz: 100\nA: R500\nB: R500\nuntil: 2000\ncount: recalcs=77\n"
    )
    for call in (
        tk.read,
        tk.Programs,
        lambda t: tk.compare(t, "fifo"),
        tk.calibrate,
        lambda t: tk.replay(t, "fifo"),
    ):
        with pytest.raises(tk.ReplayError, match=r"expected 77 ± 0, got \d+"):
            call(false)
    for command in (
        ["slices"],
        ["calibrate"],
        ["compare", "--policy", "fifo"],
        ["replay", "--policy", "fifo"],
    ):
        result = CliRunner().invoke(main, [command[0], str(false), *command[1:]])
        assert result.exit_code != 0
        assert "expected 77" in str(result.exception) + result.output
    run = tk.simulate("policy: goodness:version=2.0\nhz: 100\nA: R500\nB: R500\nuntil: 2000")
    assert run.counts["recalcs"] > 0


def test_a_call_waits_for_its_reply_and_a_message_does_not() -> None:
    run = tk.simulate("policy: fifo\nA: R1 C(q: R2 D3) R1\nB: R1 M(q: R2) R1\nS: (A(q))*")
    spans = [
        (s["comm"], s["ts_ns"] // 1_000_000, (s["ts_ns"] + s["dur_ns"]) // 1_000_000)
        for s in run.slices.filter(pl.col("dur_ns") > 0).iter_rows(named=True)
    ]
    # A calls at 1; B sends at 2 and goes on; S does A's 2 ms, sleeps 3, and A has its reply at 8.
    assert spans == [("A", 0, 1), ("B", 1, 3), ("S", 3, 5), ("A", 8, 9), ("S", 9, 11)] or spans == [
        ("A", 0, 1), ("B", 1, 3), ("S", 3, 5), ("S", 8, 10), ("A", 10, 11)
    ]  # fmt: skip


def test_a_pool_of_two_works_on_two_requests_at_once() -> None:
    text = "policy: fifo\ncpus: 4\nC*4: C(q: D10)\nS*{}: (A(q))*"
    ends = [tk.simulate(text.format(n)).slices.filter(pl.col("comm").cast(pl.String).str.starts_with("C"))
            for n in (1, 2, 4)]  # fmt: skip
    assert [int((e["ts_ns"] + e["dur_ns"]).max()) // 1_000_000 for e in ends] == [40, 20, 10]  # type: ignore[operator]


def test_calls_nest_and_draw() -> None:
    run = tk.simulate(
        "policy: fifo\nC: (C(web: R1 C(db: R~uniform(2,3)) R1))*20\nW: (A(web))*\nD: (A(db))*\nuntil: 900"
    )
    ran = dict(run.slices.group_by(pl.col("comm").cast(pl.String)).agg(pl.col("dur_ns").sum()).iter_rows())
    assert ran["W"] == 40_000_000
    assert 40e6 < ran["D"] < 60e6
    assert run.slices.filter(comm="D")["dur_ns"].n_unique() == 20
    for bad in ("C(q R1)", "C(q: F(X))", "C(q: N(nice=3))", "C(: R1)", "C(q: (R1)*)", "C(q: A(r))"):
        with pytest.raises(tk.ReplayError, match=r"expected|a request runs|a pool has a name"):
            tk.simulate(f"policy: fifo\nA: R1 {bad}\nX start=fork: R1\nS: (A(q))*")


def test_arrivals_are_poisson_recorded_or_even() -> None:
    starts = (
        tk.simulate("policy: fifo\ncpus: 64\nQ*4000 arrivals=~exp(5): R0.001").slices["ts_ns"].sort().diff()
    )
    gaps = starts.drop_nulls().to_numpy() / 1e6
    # Mean and standard deviation of exponential gaps are equal; five standard errors of 4,000.
    assert abs(gaps.mean() - 5) < 5 * 5 / np.sqrt(4000)
    assert abs(gaps.std() / gaps.mean() - 1) < 0.1
    recorded = "policy: fifo\nvalues gaps: 1 4 2ms\nQ*3 arrivals=gaps: R0.1"
    assert tk.simulate(recorded).slices["ts_ns"].to_list() == [1_000_000, 5_000_000, 7_000_000]
    assert tk.simulate("policy: fifo\nQ*2 arrivals=3: R1").slices["ts_ns"].to_list() == [3_000_000, 6_000_000]
    with pytest.raises(tk.ReplayError, match="4 tasks, but only 3 recorded gaps; draw them with ~gaps"):
        tk.simulate(recorded.replace("Q*3", "Q*4"))


def test_recorded_times_are_drawn_from_alone() -> None:
    run = tk.simulate("policy: fifo\nvalues s: 1 4 9\nA: (S1 R~s)*300")
    ran = run.slices["dur_ns"].value_counts().sort("dur_ns")
    assert ran["dur_ns"].to_list() == [1_000_000, 4_000_000, 9_000_000]
    assert ran["count"].min() > 70  # type: ignore[operator]
    for bad in ("values s:", "values s-t: 1", "values s: inf", "values s: x"):
        with pytest.raises(tk.ReplayError, match="expected"):
            tk.simulate(f"policy: fifo\n{bad}\nA: R1")


def test_times_come_from_a_trace(demo: Path, tmp_path: Path) -> None:
    trace = tk.read(demo)
    samples = response.samples(trace.filter(comm="waker*").slices, trace.states, trace.end_ns)
    bursts = samples.filter(status="complete").sort("wake_ts_ns")["run_ns"].to_list()
    assert recorded_times(trace, "bursts", "waker*") == bursts
    (tmp_path / "t.dat").write_bytes(demo.read_bytes())
    text = tmp_path / "t.wl"
    text.write_text("policy: fifo\nvalues b: bursts of waker* in t.dat\nA: (S1 R~b)*50\n")
    assert set(tk.read(text).slices["dur_ns"]) <= set(bursts)
    assert len(recorded_times(trace, "sleeps", "waker*")) > 100
    for line, message in (
        ("b: gaps of x in t.dat", "unknown kind 'gaps'"),
        ("b: bursts of nobody in t.dat", "no bursts of 'nobody'"),
        ("b: bursts of x in none.dat", "none.dat"),
    ):
        text.write_text(f"policy: fifo\nvalues {line}\nA: R1\n")
        with pytest.raises(tk.TracekitError, match=f"line 2: .*{message}"):
            tk.read(text)


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"A: this is prose\nand more\n",
        b"PARTIAL: yes\nkey: value\n",
        b"policy: rr\n",
    ],
)
def test_other_texts_are_no_workloads(other: bytes) -> None:
    with pytest.raises(tk.ParseError):
        tk.read(other)


def test_a_run_of_a_text_keeps_the_rules_and_says_which_it_cannot_show() -> None:
    found = tk.explain.check(tk.simulate(POOL))
    row = found.summary.filter(pl.col("rule") == "wakeup-atomic").row(0, named=True)
    assert (row["result"], row["says"]) == ("not checked", "no record says that interrupts were off")
    assert found.ok, found.sentence


@pytest.mark.parametrize(("turns", "used_us"), [(",4", 3 * (40 + 50)), ("", 750)])
def test_a_task_that_busy_waits_sleeps_after_its_last_turn(turns: str, used_us: int) -> None:
    text = f"cpus: 2\nMain: (R200us W(j))*3 R100us\nPool: (B(j,10us{turns}) R50us P(j))*3\n"
    run = tk.simulate(text, "rr:quantum=10ms")
    caller = run.slices.filter(comm="Main")
    assert caller["ts_ns"].to_list() == [0, 250_000, 500_000, 750_000]
    assert run.slices.filter(comm="Pool")["dur_ns"].sum() == used_us * 1000


def _written(text: Path, form: str) -> tuple[str, str]:
    """What `generate` writes of a text, and what it prints."""
    out = text.with_suffix(f".{form}")
    done = CliRunner().invoke(main, ["generate", str(text), "-o", str(out), "--as", form])
    assert done.exit_code == 0, done.output
    return out.read_text(), done.output


def _says_the_same(again: str, text: Path) -> tk.Trace:
    """The schedule of a text, which one that was written of it has as well."""
    second, first = tk.simulate(again), tk.simulate(text.read_text())
    assert second.slices.drop("utid", "waker_utid").equals(first.slices.drop("utid", "waker_utid"))
    return first


def test_a_text_of_a_busy_wait_says_the_same(tmp_path: Path) -> None:
    text = tmp_path / "spin.txt"
    text.write_text(
        "policy: rr:quantum=10ms\ncpus: 2\nuntil: 2\nMain: (R200us W(j))*3\nPool: (B(j,10us,4) R50us P(j))*3\n"
        "Idle: B(never,3us)\n"
    )
    out, _ = _written(text, "workload")
    assert "B(s0,10000ns,4)" in out
    assert "B(s1,3000ns)" in out
    _says_the_same(out, text)


def test_a_text_of_locks_says_the_same(tmp_path: Path) -> None:
    text = tmp_path / "locks.txt"
    text.write_text(
        "policy: rr:quantum=10ms\ncpus: 3\nuntil: 9\nA: (R200us L(m) R100us G(m))*20\nB: (R150us L(m) R50us G(m))*20\n"
        "C: (R300us H(m,40us) R10us H(m,20us,ready))*9\n"
    )
    out, _ = _written(text, "workload")
    for step in ("L(l0)", "G(l0)", "H(l0,40000ns)", "H(l0,20000ns,ready)"):
        assert step in out
    assert _says_the_same(out, text).states.filter(comm="C", state="sleeping").height > 3
    app, said = _written(text, "rt-app")
    assert re.search(r'"lock\d+": "l0"', app)
    assert "waits for a lock" in said


def test_a_text_of_a_barrier_says_the_same(tmp_path: Path) -> None:
    text = tmp_path / "meet.txt"
    text.write_text(
        "policy: rr:quantum=10ms\ncpus: 2\nuntil: 9\nA: (R200us J(all))*20\nB: (R150us J(all))*20\n"
        "C: (R300us J(all))*20\n"
    )
    out, _ = _written(text, "workload")
    assert out.count("J(m0)") == 3 * 20
    assert _says_the_same(out, text).states.filter(comm="A", state="sleeping").height > 5
    app, _ = _written(text, "rt-app")
    # rt-app waits for as many as there are steps of a name: one of each task.
    names = re.findall(r'"barrier\d+": "(\w+)"', app)
    assert set(Counter(names).values()) == {3}
    replay = tk.replay(text, "rr:quantum=10ms")
    tids = replay.tasks.filter(pl.col("comm").cast(pl.String) == "A")["tid"].to_list()
    assert waits(replay, tids) == dict.fromkeys(tids, "the others at a barrier (100 %)")


@pytest.mark.parametrize("step", ["B(j)", "B(j,0us)", "B(j,1us,0)", "B(j,1us,many)", "B(j,1us,2,3)"])
def test_a_busy_wait_that_cannot_be_is_refused_with_its_line(step: str) -> None:
    with pytest.raises(tk.TracekitError, match=r"line 1.*expected"):
        tk.simulate(f"A: R1 {step}\n", "fifo")


def test_a_loop_of_busy_waits_that_never_ends_is_refused() -> None:
    with pytest.raises(tk.TracekitError, match="a loop must run, sleep or receive"):
        tk.simulate("Main: W(j)\nPool: (B(j,1us))*\n", "fifo")
