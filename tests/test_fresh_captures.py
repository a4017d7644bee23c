"""What a recording on a loaded machine looks like: it begins late, in the middle of a run, and
tasks are made while it goes on."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.cli import main
from tracekit.whatif.groups import from_machine
from tracekit.whatif.members import grouped, membership, unlisted
from tracekit.whatif.scenario import parse_set
from tracekit.whatif.worst import waits, worst

#: perf_event.h
COMM, SAMPLE = 3, 9


def _with_name_before(data: bytearray, early_ns: int) -> tuple[bytes, int, int]:
    """Gives one name that perf wrote without a time one, `early_ns` before the first sample; that
    thread; the first sample's time."""
    at, size = struct.unpack_from("<QQ", data, 40)
    records, place = [], at
    while place < at + size:
        kind, _, length = struct.unpack_from("<IHH", data, place)
        records.append((kind, place, length))
        place += length
    # The times end 24 bytes before the end of perf's own records; a sample's is behind its number,
    # address and thread.
    first = min(struct.unpack_from("<Q", data, p + 8 + 24)[0] for kind, p, _ in records if kind == SAMPLE)
    own = ((p, p + length - 24) for kind, p, length in records if kind == COMM)
    place, stamp = next((p, t) for p, t in own if struct.unpack_from("<Q", data, t)[0] == 0)
    struct.pack_into("<Q", data, stamp, first - early_ns)
    return bytes(data), struct.unpack_from("<I", data, place + 12)[0], first


def test_what_perf_says_of_tasks_before_the_first_sample_is_no_part_of_the_recording(
    root: Path, tmp_path: Path
) -> None:
    source = root / "fixtures" / "perf-data" / "file" / "input.data"
    data, tid, first = _with_name_before(bytearray(source.read_bytes()), 500_000_000)
    path = tmp_path / "late.data"
    path.write_bytes(data)
    trace = tk.read(path)
    assert trace.start_ns == first
    named = trace.events.filter(pl.col("kind").cast(pl.String) == "comm").filter(tid=tid)
    assert named["ts_ns"].to_list()[:1] == [first]
    assert named["quality"].to_list()[0] & 16


MACHINE = """\
schema = 1
[kernel]
os = "linux"
hz = 250
[machine]
cgroup_version = 2
cpus = [
  {cpu = 0},
  {cpu = 1},
]
cgroups = [
  {path = "/"},
]
tasks = [
"""


def _line(ts: float, comm: str, tid: int, cpu: int, what: str) -> str:
    return f"{comm} {tid} [{cpu:03}] {ts:.6f}: sched:{what}\n"


def _switch(ts: float, cpu: int, prev: tuple[str, int], state: str, to: tuple[str, int]) -> str:
    what = (
        f"sched_switch: prev_comm={prev[0]} prev_pid={prev[1]} prev_prio=120 prev_state={state} ==> "
        f"next_comm={to[0]} next_pid={to[1]} next_prio=120"
    )
    return _line(ts, *prev, cpu, what)


def _written(folder: Path, text: str, tasks: dict[int, tuple[str, str]]) -> tk.Trace:
    path = folder / "t.txt"
    path.write_text(text)
    rows = "".join(
        f'  {{tid = {t}, pid = {t}, comm = "{comm}", cpus = "0-1", cgroup = "/", autogroup = "/autogroup-{group}"}},\n'
        for t, (comm, group) in tasks.items()
    )
    (folder / "t.machine.toml").write_text(MACHINE + rows + "]\n")
    return tk.read(path)


def test_a_task_that_is_made_while_recording_is_in_the_group_of_its_parent(tmp_path: Path) -> None:
    fork = "sched_process_fork: comm={0} pid={1} child_comm={0} child_pid={2}"
    text = (
        _switch(1.000, 0, ("swapper/0", 0), "R", ("sh", 10))
        + _line(1.001, "sh", 10, 0, fork.format("sh", 10, 11))
        + _switch(1.002, 0, ("sh", 10), "S", ("sh", 11))
        + _line(1.003, "sh", 11, 0, fork.format("sh", 11, 12))
        + _switch(1.004, 0, ("sh", 11), "S", ("sh", 12))
        + _switch(1.006, 0, ("sh", 12), "S", ("other", 20))
        + _line(1.007, "other", 20, 0, fork.format("other", 20, 21))
        + _switch(1.008, 0, ("other", 20), "S", ("other", 21))
        + _switch(1.009, 0, ("other", 21), "S", ("alone", 30))
        + _switch(1.010, 0, ("alone", 30), "S", ("swapper/0", 0))
    )
    # Thread 12 was another task when the machine was written down: its name says so.
    trace = _written(tmp_path, text, {10: ("sh", "3"), 12: ("gone", "9"), 20: ("other", "4")})
    members, _ = from_machine(trace)
    found = {tid: dict(settings)["group"] for (tid,), settings in members}
    assert found == {
        10: "autogroup-3",
        11: "autogroup-3",
        12: "autogroup-3",
        20: "autogroup-4",
        21: "autogroup-4",
    }


def test_tasks_that_began_after_the_machine_was_written_are_where_their_like_are(tmp_path: Path) -> None:
    text = (
        _switch(1.000, 0, ("swapper/0", 0), "R", ("cc1", 40))
        + _switch(1.004, 0, ("cc1", 40), "R", ("seq", 60))
        + _switch(1.005, 0, ("seq", 60), "R", ("late", 70))
        + _switch(1.006, 0, ("late", 70), "R", ("cc1", 50))
        + _switch(1.010, 0, ("cc1", 50), "S", ("swapper/0", 0))
    )
    # Thread 60 was a shell before it became seq.
    listed = {50: ("cc1", "7"), 51: ("cc1", "7"), 52: ("cc1", "8"), 60: ("sh", "3")}
    trace = _written(tmp_path, text, listed)
    assert trace.machine is not None
    found = membership(trace, trace.machine, grouped(trace.machine))
    assert found.group == {0: "", 40: "autogroup-7", 60: "autogroup-3", 70: "", 50: "autogroup-7"}
    assert found.alike == {40}
    assert found.nowhere >= {70}
    said = unlisted(trace)
    assert said is not None
    assert "1 task with 40 % of the CPU time (cc1), taken to be" in said
    assert "1 task with 10 % of the CPU time (late), left in the root group" in said


def test_switches_alone_do_not_measure_waits_after_sleeps(tmp_path: Path) -> None:
    pair = ("a", 10), ("b", 20)
    lines = [_switch(1.0, 0, ("swapper/0", 0), "R", pair[0])]
    lines += [_switch(1.001 + 0.001 * i, 0, pair[i % 2], "S", pair[1 - i % 2]) for i in range(400)]
    path = tmp_path / "switches.txt"
    path.write_text("".join(lines))
    result = CliRunner().invoke(main, ["calibrate", str(path), "--json"])
    found = json.loads(result.stdout)
    rows = {r["metric"]: r for r in found["rows"]}
    for name in ("run_delay_p50", "run_delay_p95", "run_delay_ks", "runqueue_mean", "runqueue_histogram"):
        assert rows[name]["result"] == "not measured", name
        assert rows[name]["allowed"] == "needs records of wakeups"
    assert rows["switches"]["result"] != "not measured"
    assert any(said.startswith("no record says when tasks woke") for said in found["not_recorded"])
    text = CliRunner().invoke(main, ["compare", str(path), "--policy", "rr", "--quick"]).stdout
    assert "no record says when tasks woke" in " ".join(text.split())


def test_the_tasks_that_a_replay_gets_wrong_are_named(demo: Path, trace: tk.Trace) -> None:
    assert worst(trace, trace).height == 0
    wrong = tk.replay(trace, "cfs:wakeup_preemption=off,min_granularity=30ms")
    found = worst(trace, wrong, most=3)
    assert found.height == 3
    gap = (found["switches_replayed"] - found["switches_recorded"]).abs()
    assert gap.to_list() == sorted(gap, reverse=True)
    tids = dict(trace.tasks.select(pl.col("comm").cast(pl.String), "tid").iter_rows())
    said = waits(wrong, [tids["spin00"], tids["waker00"], 0])
    # It begins when its parent says so; the other sleeps on a timer, again and again.
    assert said[tids["spin00"]] == f"wl:{tids['wl']} (100 %)"
    assert "timers (" in said[tids["waker00"]]
    assert said[0] == "nothing"
    result = CliRunner().invoke(main, ["calibrate", str(demo), "--policy", wrong.policy, "--json"])
    listed = json.loads(result.stdout)["worst"]
    assert listed[0]["tid"] == found["tid"][0]
    text = CliRunner().invoke(main, ["calibrate", str(demo), "--policy", wrong.policy]).stdout
    assert f"{found['comm'][0]}:{found['tid'][0]}" in text


def test_the_nice_value_of_an_autogroup_is_its_weight(tmp_path: Path) -> None:
    text = _switch(1.000, 0, ("swapper/0", 0), "R", ("sh", 10)) + _switch(
        1.001, 0, ("sh", 10), "R", ("low", 20)
    )
    trace = _written(tmp_path, text, {10: ("sh", "3"), 20: ("low", "4")})
    file = tmp_path / "t.machine.toml"
    named = 'autogroup = "/autogroup-4"'
    file.write_text(file.read_text().replace(named, f"{named}, autogroup_nice = 10"))
    assert from_machine(trace)[1] == []
    _, groups = from_machine(tk.read(tmp_path / "t.txt"))
    assert groups == [("autogroup-4", [("nice", "10")])]


def test_a_group_of_nice_10_gets_what_a_task_of_nice_10_gets() -> None:
    # Weights 110 and 1024 of the kernel's table.
    trace = tk.simulate("A: R∞\nB: R∞\nuntil: 600", policy="eevdf")
    sets = [
        parse_set(s) for s in ("A: group=low", "B: group=plain", "group:low: nice=10", "group:plain: nice=0")
    ]
    run = tk.replay(trace, "eevdf", scenario=sets).slices
    share = run.filter(pl.col("comm").cast(pl.String) == "A")["dur_ns"].sum() / run["dur_ns"].sum()
    assert share == pytest.approx(110 / (110 + 1024), abs=0.02)
