"""What a recording on a loaded machine looks like: it begins late, in the middle of a run, and
tasks are made while it goes on."""

from __future__ import annotations

import struct
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from tracekit.whatif.groups import from_machine
from tracekit.whatif.scenario import parse_set

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
