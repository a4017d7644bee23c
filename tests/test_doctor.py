"""What `doctor` answers of a trace, and how `info` groups what is wrong with it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.analysis.damage import causes
from tracekit.cli import main
from tracekit.cli.doctor import VERDICTS
from tracekit.whatif import fitness as module
from tracekit.whatif.fitness import fitness
from tracekit.whatif.trust import poorly


def run(*args: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def switch(ts: float, prev: int, following: int, cpu: int = 0, state: str = "S") -> str:
    return (
        f"t{prev}-{prev} [{cpu:03}] {ts:.6f}: sched_switch: prev_comm=t{prev} prev_pid={prev} prev_prio=120 "
        f"prev_state={state} ==> next_comm=t{following} next_pid={following} next_prio=120\n"
    )


def waking(ts: float, by: int, tid: int) -> str:
    return f"t{by}-{by} [000] {ts:.6f}: sched_waking: comm=t{tid} pid={tid} prio=120 target_cpu=000\n"


#: Switches with two missing: thread 5 leaves where 2 was running, thread 7 where 6 was.
MISSING = (
    switch(1.0, 1, 2)
    + switch(2.0, 5, 6)
    + switch(3.0, 7, 1)
    + switch(4.0, 1, 2, state="R")
    + switch(5.0, 2, 1)
)


def test_the_shipped_capture_can_be_replayed(demo: Path) -> None:
    status, text = run("doctor", demo)
    assert status == 0
    assert text.startswith("slice-default.dat can be replayed")
    assert "replayed as captured (cfs:form=6.1)" in text.splitlines()[0]
    assert "slice-default.dat.machine.toml: HZ, topology" in text
    found = json.loads(run("doctor", demo, "--json")[1])
    assert found["replay"] in ("well", "with care")
    assert {m["metric"] for m in found["metrics"]} >= {"main", "switches"}


def test_it_takes_what_it_asks_for() -> None:
    path = Path(__file__).parents[1] / "fixtures" / "trace-dat" / "v6-tsc-unknown-rate" / "input.dat"
    asked = json.loads(run("doctor", path, "-q", "--json")[1])
    assert [g["what"] for g in asked["give"]][:1] == ["-O clock_hz=N"]
    given = json.loads(run("doctor", path, "-q", "-O", "clock_hz=250000000", "--json")[1])
    assert all(c["ok"] for c in given["checks"] if c["what"] in ("clock", "records"))
    assert "-O clock_hz=N" not in [g["what"] for g in given["give"]]
    status, text = run("doctor", path, "--format", "ftrace-text")
    assert status == 2
    assert "ftrace-text: expected an ftrace line" in text


def test_the_verdict_follows_the_calibration(trace: tk.Trace) -> None:
    # Under a policy that it was not captured under, the same trace is replayed badly.
    wrong = fitness(trace, "cfs:wakeup_preemption=off", seconds=120)
    assert wrong.replay == "badly"
    assert "these fail: slice per invol. switch" in wrong.because
    right = fitness(trace, seconds=120)
    assert right.replay in ("well", "with care")
    assert right.metrics is not None
    assert right.metrics.filter(metric="main")["result"].to_list() == ["pass"]


def test_one_metric_condemns_no_trace(trace: tk.Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    # What a comparison trusts row by row is not to be distrusted as a whole.
    metrics = fitness(trace, seconds=120).metrics
    assert metrics is not None
    programs = tk.Programs(trace)
    passing = pl.when(pl.col("result") == "fail").then(pl.lit("pass")).otherwise("result")
    for of_main, verdict in (("fail", "with care"), ("not measured", "well")):
        result = pl.when(pl.col("metric") == "main").then(pl.lit(of_main)).otherwise(passing)
        found = metrics.with_columns(result.alias("result"))
        tried = module._Tried(programs, found, False)
        monkeypatch.setattr(module, "_tried", lambda *_, tried=tried: tried)
        assert poorly(found["result"].to_list()) is None
        assert fitness(trace).replay == verdict
    assert "the run time per involuntary switch could not be measured" in fitness(trace).because


def test_a_trial_that_takes_too_long_is_given_up(trace: tk.Trace) -> None:
    found = fitness(trace, seconds=0)
    assert found.replay == "unknown"
    assert "`tracekit calibrate` waits for its end" in found.because


def test_of_a_long_trace_the_first_part_is_tried(trace: tk.Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIAL_RECORDS", trace.events.height // 2)
    assert " of the first 1." in fitness(trace, seconds=120).because


def test_the_exit_status_follows_from_verdict_and_checks(
    demo: Path, trace: tk.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All that is needed is there, and yet no prediction is trusted: status 1, as where something is missing.
    status, said = run("doctor", demo, "--identity", "cfs:wakeup_preemption=off")
    assert "is replayed badly: no prediction from it is trusted" in said
    assert "MISSING" not in said
    assert status == 1
    found = fitness(trace, seconds=120)
    for verdict in VERDICTS:
        made = replace(found, replay=verdict)
        monkeypatch.setattr(module, "fitness", lambda *_, made=made: made)
        assert run("doctor", demo)[0] == (verdict in ("badly", "no")), verdict
        made = replace(made, checks=[*made.checks, module.Check("records", False, "one lost")])
        monkeypatch.setattr(module, "fitness", lambda *_, made=made: made)
        assert run("doctor", demo)[0] == 1, verdict


def test_larger_buffers_are_advised_only_where_records_were_lost(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    for lost in ("", "CPU:0 [LOST 3 EVENTS]\n"):
        path.write_text(switch(1.0, 1, 2) + lost + switch(90.0, 2, 1) + switch(140.0, 1, 2))
        said = run("doctor", path)[1]
        assert ("lost-events x 1" if lost else "silence x 2") in said
        assert ("larger buffers lose less" in said) == bool(lost)
        assert "`tracekit info` lists the causes, and what to do" in said


@pytest.mark.parametrize(
    ("text", "bounds"), [(MISSING, False), (switch(1.0, 1, 2) + switch(2.0, 2, 1) + switch(4.0, 1, 2), True)]
)
def test_bounds_are_promised_only_where_there_are_some(text: str, bounds: bool, tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text(text)
    said = " ".join(run("doctor", path)[1].split())
    assert "what holds: " in said
    assert ("No bounds can be given" in said) != bounds
    assert ("metrics are of what was recorded; `tracekit info` says what is missing" in said) != bounds
    assert ("`tracekit info` lists the bounds" in said) == (bounds and "MISSING what holds" in said)


@pytest.mark.parametrize(
    ("text", "status", "verdict", "why", "record"),
    [
        (waking(1.0, 1, 2) + waking(2.0, 1, 2), 1, "cannot be replayed", "who left a CPU", "sched_switch"),
        (switch(1.0, 1, 2) + switch(2.0, 2, 1), 1, "is replayed badly", "who woke whom", "sched_waking"),
    ],
)
def test_what_is_missing_is_named(
    text: str, status: int, verdict: str, why: str, record: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.txt"
    path.write_text(text)
    found, said = run("doctor", path)
    assert found == status
    assert said.startswith(f"t.txt {verdict}: ")
    assert why in said.splitlines()[0]
    assert record in said[said.index("Record next time:") :]


def test_a_trace_without_a_kernel_asks_for_the_identity(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text(switch(1.0, 1, 2) + waking(1.5, 2, 1) + switch(1.6, 2, 1) + switch(2.0, 1, 2))
    said = run("doctor", path)[1]
    assert (
        "--identity POLICY: the trace does not say which kernel it is from, so this is a guess; without it cfs"
        in said
    )
    assert "the context of wakeups: this trace does not say which wakeups interrupts made" in said
    assert "--identity POLICY" not in run("doctor", path, "--identity", "rr")[1]
    (tmp_path / "t.machine.toml").write_text(
        'schema = 1\n[kernel]\nos = "linux"\nrelease = "6.12.1"\nhz = 250\n'
    )
    said = run("doctor", path)[1]
    assert "eevdf:version=6.12" in said.splitlines()[0]
    assert "--identity POLICY" not in said


def test_causes_are_grouped_with_their_extent() -> None:
    trace = tk.read(MISSING.encode())
    rows = trace.causes().filter(code="switch-mismatch").to_dicts()
    assert len(rows) == 1
    (row,) = rows
    assert (row["count"], row["severity"]) == (2, "error")
    assert row["record_share"] == pytest.approx(2 / 5)
    # Nobody knows who ran from 1 s to 3 s, of 4 s on one CPU.
    assert row["time_share"] == pytest.approx(0.5)
    assert (row["first_ts_ns"], row["last_ts_ns"]) == (1_000_000_000, 3_000_000_000)
    assert row["message"] == "thread 5 leaves the CPU, where thread 2 was running"


def test_missing_switches_are_no_loss_of_none() -> None:
    lost = "CPU:0 [LOST 3 EVENTS]\n" + switch(9.0, 1, 2)
    fine = tk.read((switch(1.0, 1, 2) + switch(2.0, 2, 1) + lost).encode())
    assert fine.metadata["loss.total"] == "3"
    known = tk.read((MISSING + lost).encode()).metadata
    assert "loss.total" not in known
    assert known["loss.known"] == "false"


def test_info_prints_causes_and_no_word_twice(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text(MISSING)
    said = run("info", path)[1]
    assert said.startswith("Trace t.txt: ")
    assert (
        "2 x switch-mismatch (error): thread 5 leaves the CPU, where thread 2 was running, and 1 like it"
        in said
    )
    assert "50 % of the CPUs' time, 40 % of the records, from @1.000000000s to @3.000000000s" in said
    other = run("slices", path)[1]
    assert "warning: switch-mismatch x 2:" in other
    assert "warning: error" not in other


def test_the_text_around_a_pasted_trace_is_one_cause_with_its_first_line(tmp_path: Path) -> None:
    letter = [
        "Hi all,",
        "here is what I see, 3 ms late:",
        "",
        "> Have you tried `nohz_full`?",
        "Thanks,",
        "Joe",
    ]
    path = tmp_path / "letter.txt"
    path.write_text(switch(1.0, 1, 2) + "\n".join(letter) + "\n" + switch(2.0, 2, 1))
    rows = tk.read(path).causes().filter(code="unparsed").to_dicts()
    assert [(row["count"], row["first_line"]) for row in rows] == [(5, 2)]
    said = run("info", path)[1]
    assert "5 x unparsed (error): expected an ftrace line" in said
    assert "found `Hi all,`, and 4 like it" in said
    assert "first at line 2" in said
    other = run("slices", path)[1]
    assert other.count("warning: unparsed") == 1


def test_a_message_that_counts_is_not_counted_again(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    line = "  {0}-{1} [000] 1.00000{1}: sched_switch: {0}:{1} [120] S ==> {2}:{3} [120]\n"
    text = line.format("\xe4", 1, "\xf6", 2) + line.format("\xf6", 2, "\xe4", 1)
    path.write_bytes(text.encode("latin-1"))
    said = " ".join(run("info", path)[1].split())
    assert "2 x not-utf8: 2 names or texts are not valid UTF-8; the bytes that are not are replaced" in said
    assert "like it" not in said


def test_losses_of_a_cpu_that_is_not_named_concern_all() -> None:
    losses = pl.DataFrame(
        {"cpu": [None], "ts_from_ns": [100], "ts_to_ns": [200], "count": [None]},
        schema={"cpu": pl.Int32, "ts_from_ns": pl.Int64, "ts_to_ns": pl.Int64, "count": pl.UInt64},
    )
    rows = pl.DataFrame(
        {"severity": ["loss"], "code": ["lost-events"], "count": [1], "message": ["3 lost"], "ts_ns": [200]},
        schema_overrides={"count": pl.UInt64},
    )
    trace = tk.read((switch(0.0, 1, 2) + switch(1e-6, 2, 1) + switch(1e-6, 4, 5, cpu=1)).encode())
    found = causes(rows, trace.slices, trace.cpus, losses, 10, (0, 1000)).row(0, named=True)
    assert found["time_share"] == pytest.approx(0.1)
    assert (found["first_ts_ns"], found["last_ts_ns"]) == (100, 200)


@pytest.mark.parametrize(("counts", "share"), [([30, 10], 40 / 120), ([30, None], None)])
def test_of_losses_what_was_lost_is_shared(counts: list[int | None], share: float | None) -> None:
    losses = pl.DataFrame(
        {"cpu": [0, 0], "ts_from_ns": [100, 300], "ts_to_ns": [200, 400], "count": counts},
        schema={"cpu": pl.Int32, "ts_from_ns": pl.Int64, "ts_to_ns": pl.Int64, "count": pl.UInt64},
    )
    rows = pl.DataFrame(
        {
            "severity": ["loss"] * 2,
            "code": ["lost-events"] * 2,
            "count": [1, 1],
            "message": ["3 lost", "1 lost"],
        },
        schema_overrides={"count": pl.UInt64},
    ).with_columns(ts_ns=pl.Series([200, 400]))
    trace = tk.read((switch(0.0, 1, 2) + switch(1e-6, 2, 1)).encode())
    found = causes(rows, trace.slices, trace.cpus, losses, 80, (0, 1000)).row(0, named=True)
    assert (found["count"], found["record_share"]) == (2, share)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dtrace-text/no-pattern", "no record can be placed; let the script print a time"),
        ("bpf-hist/runqlat", "holds results of a tool and no events; give the trace that the tool read"),
    ],
)
def test_without_events_doctor_says_whether_there_could_have_been_some(name: str, said: str) -> None:
    source = Path(__file__).parents[1] / "fixtures" / name / "input.txt"
    code, out = run("doctor", source)
    assert code == 1
    assert said in " ".join(out.split())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("corpus/systrace/trappy_trace_surfaceflinger.html", True),
        # Guests whose CPUs share one.
        ("lab2/6.12-2cpu/server-default.dat", False),
        ("lab2/6.1-4cpu/mixed-default.dat", False),
    ],
)
def test_cpus_that_share_no_cache_are_tried(name: str, said: bool, testdata: Path) -> None:
    _, out = run("doctor", testdata / name)
    assert ("shared_cache=off) " in " ".join(out.split())) == said
    # As `compare` judges it: where auto takes the recorded places, so does the trial.
    assert ("each task where it was recorded)" in " ".join(out.split())) == said
