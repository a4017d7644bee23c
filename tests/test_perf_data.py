"""A perf.data from reading to a comparison: it starts with the first record that has a time of its own."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from tracekit.analysis.completion import WAKEUPS, missing
from tracekit.whatif.not_modelled import NotModelledError

from .conftest import Run

#: Types of records of a perf.data.
SAMPLE, FINISHED_ROUND = 9, 68
#: Place of the CPU in the samples of `two-cpus-in-rounds`.
CPU_OF_SAMPLE = 40
CAPTURES = ("file/input.data", "pipe/input.data", "both-switch-records/input.data")


@pytest.fixture(scope="module")
def file(root: Path) -> Path:
    """A recording of perf sched record."""
    return root / "fixtures" / "perf-data" / "file" / "input.data"


@pytest.mark.parametrize("capture", CAPTURES)
def test_the_trace_starts_with_the_first_record_that_has_a_time(root: Path, capture: str) -> None:
    trace = tk.read(root / "fixtures" / "perf-data" / capture)
    made = trace.events.filter(pl.col("quality") & 16 != 0)
    own = trace.events.filter(pl.col("quality") & 16 == 0)["ts_ns"]
    assert made.height
    assert made["ts_ns"].unique().to_list() == [own.min()]
    assert trace.start_ns == own.min() > 0
    assert trace.end_ns is not None
    assert trace.end_ns - trace.start_ns < 60_000_000_000


def test_a_part_by_time_holds_records(file: Path) -> None:
    trace = tk.read(file)
    assert trace.start_ns is not None
    assert trace.end_ns is not None
    middle = (trace.end_ns - trace.start_ns) // 2
    part = trace.filter(start="0s", end=f"{middle}ns")
    assert 0 < part.events.height < trace.events.height


def test_switch_records_beside_samples_leave_no_gaps(root: Path) -> None:
    trace = tk.read(root / "fixtures" / "perf-data" / "both-switch-records" / "input.data")
    codes = trace.diagnostics["code"].cast(pl.String).to_list()
    assert "duplicate" in codes
    assert "switch-mismatch" not in codes
    # Every task that was recorded comes back: its slices begin where perf says that it came in.
    came = trace.events.filter((pl.col("kind").cast(pl.String) == "switch") & pl.col("tid").is_null())
    begins = set(trace.slices["ts_ns"])
    assert came.height
    assert set(came["ts_ns"]) <= begins


def test_the_command_line_compares_policies_on_it(tracekit: Run, file: Path) -> None:
    done = tracekit("compare", file, "--policy", "cfs:wakeup_preemption=off", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


@pytest.mark.parametrize(("case", "lost"), [("lost-read-at-end", [10]), ("lost-behind-the-last", [10, 5])])
def test_what_perf_counts_again_at_the_end_is_counted_once(root: Path, case: str, lost: list[int]) -> None:
    trace = tk.read(root / "fixtures" / "perf-data" / case / "input.data")
    assert trace.losses["count"].to_list() == lost
    assert trace.metadata["loss.total"] == str(sum(lost))
    codes = trace.diagnostics["code"].cast(pl.String).to_list()
    assert codes.count("lost-events") == len(lost)
    assert "duplicate" in codes
    if len(lost) > 1:
        behind = trace.losses.row(1, named=True)
        assert behind["ts_to_ns"] == trace.end_ns


def test_info_says_how_many_are_lost_at_least(tracekit: Run, tmp_path: Path) -> None:
    line = "t-1 [000] d... {:.6f}: sched_switch: prev_comm=t prev_pid={} prev_prio=120 prev_state=S ==> "
    line += "next_comm=t next_pid={} next_prio=120\n"
    text = line.format(1, 1, 2) + "CPU:0 [LOST 3 EVENTS]\n" + line.format(2, 1, 2) + line.format(3, 7, 8)
    (tmp_path / "cut.txt").write_text("# tracer: nop\n#\n" + text)
    done = tracekit("info", tmp_path / "cut.txt")
    assert "at least 3: so many the source counts, and others are missing" in done.stdout


def test_a_recording_of_one_cpu_says_so(tracekit: Run, root: Path) -> None:
    source = root / "fixtures" / "perf-data" / "one-cpu-of-two" / "input.data"
    trace = tk.read(source)
    assert trace.metadata["cpus.recorded"] == "1"
    assert trace.cpus["cpu"].to_list() == [1]
    # Every wakeup names CPU 0, which was not recorded: none that is known is waited for.
    assert "runnable" not in trace.states["state"].cast(pl.String).to_list()
    said = "only CPU 1 of 2 was recorded"
    assert tracekit("info", source).stdout.splitlines()[1].startswith("Only CPU 1 of 2 was recorded: ")
    assert f"MISSING  recorded: {said}" in tracekit("doctor", source).stdout
    assert said in tracekit("latency", source).stderr


def test_a_recording_of_some_tasks_has_no_run_queues(tracekit: Run, root: Path) -> None:
    source = root / "fixtures" / "perf-data" / "some-tasks" / "input.data"
    trace = tk.read(source)
    assert trace.metadata["tasks.recorded"] == "-p 611"
    assert trace.runqueue.height == 0
    assert trace.cpus["idle_ns"].to_list() == [0]
    assert set(trace.slices["tid"]) <= {611}
    assert "Only some tasks (-p 611) were recorded" in tracekit("info", source).stdout.splitlines()[1]


def test_run_time_that_nobody_recorded_is_not_nothing(tracekit: Run, root: Path) -> None:
    source = root / "fixtures" / "perf-data" / "some-tasks" / "input.data"
    ends = pl.col("nr_involuntary") + pl.col("nr_voluntary")
    seen = {
        t: run
        for t, run, n, of in tk.read(source).tasks.select("tid", "run_ns", "nr_slices", ends).rows()
        if n >= of > 0
    }
    shown = json.loads(tracekit("info", source, "--json").stdout)["tasks"]
    assert shown
    assert {task["tid"]: task["run_ns"] for task in shown if task["run_ns"] is not None} == seen
    assert any(task["run_ns"] is None for task in shown)


def test_a_recording_of_some_tasks_without_wakeups_bounds_nothing(tracekit: Run, root: Path) -> None:
    source = root / "fixtures" / "perf-data" / "some-tasks" / "input.data"
    trace = tk.read(source)
    kept = (trace.losses, trace.diagnostics, trace.cpus)
    switches = trace.events.filter(~pl.col("kind").cast(pl.String).is_in(WAKEUPS))
    span = (trace.start_ns or 0, trace.end_ns or 0)

    def said(events: pl.DataFrame, **meta: str) -> str | None:
        return missing(*kept, events, {**trace.metadata, **meta}, *span).refused

    assert said(trace.events) is None, "nothing is missing"
    assert said(switches) == "only some tasks were recorded (-p 611), and not when they come to run"
    of_cpus = said(switches, **{"tasks.recorded": "", "cpus.recorded": "0-1"})
    assert (of_cpus or "").startswith("only CPUs 0-1 were recorded, and no wakeup shows")
    # Nothing to show has no table of bounds below it.
    nobody = tracekit(
        "latency", root / "fixtures" / "perf-data" / "one-cpu-of-two" / "input.data", "--comm", "nobody"
    )
    assert nobody.stdout.startswith("nothing to show")
    assert "lie within" not in nobody.stdout


@pytest.mark.parametrize("case", ["one-cpu-of-two", "some-tasks"])
def test_no_replay_is_made_of_a_part(tracekit: Run, root: Path, case: str) -> None:
    source = root / "fixtures" / "perf-data" / case / "input.data"
    for words in (["replay", "--policy", "cfs"], ["compare", "--policy", "cfs"], ["calibrate"]):
        done = tracekit(words[0], source, *words[1:])
        assert done.returncode == 4, words
        assert "nothing models what was not recorded" in done.stderr
    with pytest.raises(NotModelledError):
        tk.replay(source, "cfs")


def test_a_forced_comparison_of_a_part_marks_every_row(root: Path) -> None:
    source = root / "fixtures" / "perf-data" / "one-cpu-of-two" / "input.data"
    found = tk.compare(source, "cfs", runs=2, force=True)
    assert set(found.table["trust"]) == {"do not use"}
    assert found.table["trust_why"].str.contains("not modelled: what was not recorded").all()


def test_a_file_that_is_cut_says_what_is_missing(root: Path) -> None:
    whole = (root / "fixtures" / "perf-data" / "file" / "input.data").read_bytes()
    trace = tk.read(whole[: len(whole) // 4])
    said = "; ".join(trace.diagnostics["message"])
    assert "the file is cut: it ends before the event formats" in said
    assert "whether context switches are among them is not known" in said
    assert "context switches were not recorded" not in said


def test_a_recording_in_which_nothing_switched_says_that_switches_were_recorded(root: Path) -> None:
    file = bytearray((root / "fixtures" / "perf-data" / "file" / "input.data").read_bytes())
    at, size = struct.unpack_from("<QQ", file, 40)
    end = at + size
    while at < end:
        kind, _, length = struct.unpack_from("<IHH", file, at)
        if kind == SAMPLE:
            struct.pack_into("<I", file, at, FINISHED_ROUND)
        at += length
    trace = tk.read(bytes(file))
    row = trace.diagnostics.row(by_predicate=pl.col("code") == "missing-events", named=True)
    assert row["message"] == "sched_switch was recorded, and no record of it came"
    assert "for longer" in row["advice"]


def threads(capture: Path, folder: Path) -> Path:
    """The same recording as `perf record --threads` writes it: the samples of a CPU in a file of its own."""
    data = capture.read_bytes()
    (at, size) = struct.unpack_from("<QQ", data, 40)
    main, parts, place = b"", {0: b"", 1: b""}, at
    while place < at + size:
        kind, _, length = struct.unpack_from("<IHH", data, place)
        record = data[place : place + length]
        if kind == SAMPLE:
            parts[struct.unpack_from("<I", record, CPU_OF_SAMPLE)[0]] += record
        else:
            main += record
        place += length
    less = size - len(main)
    head = bytearray(data[:at])
    struct.pack_into("<Q", head, 48, len(main))
    behind = bytearray(data[at + size :])
    features = bin(int.from_bytes(head[72:104], "little")).count("1")
    for n in range(features):
        struct.pack_into("<Q", behind, 16 * n, struct.unpack_from("<Q", behind, 16 * n)[0] - less)
    folder.mkdir()
    (folder / "data").write_bytes(bytes(head) + main + bytes(behind))
    for cpu, records in parts.items():
        (folder / f"data.{cpu}").write_bytes(records)
    return folder


def test_a_folder_of_perf_record_threads_is_one_recording(root: Path, tmp_path: Path) -> None:
    capture = root / "fixtures" / "perf-data" / "two-cpus-in-rounds" / "input.data"
    whole = tk.read(capture).events.drop("seq")
    folder = tk.read(threads(capture, tmp_path / "threads"))
    assert folder.events.height == whole.height
    order = ["ts_ns", "cpu", "kind", "tid"]
    assert folder.events.drop("seq").sort(order).equals(whole.sort(order))
    assert "truncated" not in folder.diagnostics["code"].to_list()


def test_a_cut_file_of_a_thread_is_read_up_to_there(root: Path, tmp_path: Path) -> None:
    capture = root / "fixtures" / "perf-data" / "two-cpus-in-rounds" / "input.data"
    folder = threads(capture, tmp_path / "threads")
    part = folder / "data.0"
    part.write_bytes(part.read_bytes()[:-5])
    trace = tk.read(folder)
    assert trace.events.height == tk.read(capture).events.height - 1
    row = trace.diagnostics.row(by_predicate=pl.col("code") == "truncated", named=True)
    assert "data.0" in row["message"]
