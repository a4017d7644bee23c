"""Captures of broken machines: clocks that jump, CPUs that come and go, numbers at their ends."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from tests.reliability.test_environment import bare
from tests.reliability.test_sources import HEAD, switches


def capture(tmp_path: Path, lines: list[str]) -> tk.Trace:
    file = tmp_path / "x.txt"
    file.write_text(HEAD + "".join(lines))
    return tk.read(file)


def partitioned(trace: tk.Trace) -> bool:
    """Whether no CPU runs two slices at once and none has a negative length."""
    rows = trace.slices.sort("cpu", "ts_ns", "dur_ns")
    after = rows.select(gap=pl.col("ts_ns").shift(-1).over("cpu") - pl.col("ts_ns") - pl.col("dur_ns"))
    return bool((rows["dur_ns"] >= 0).all() and (after["gap"].drop_nulls() >= 0).all())


def codes(trace: tk.Trace) -> set[str]:
    return set(trace.diagnostics["code"].cast(pl.String))


def test_one_event(tmp_path: Path) -> None:
    trace = capture(tmp_path, switches(1))
    assert (trace.events.height, trace.end_ns - trace.start_ns) == (1, 0)
    assert trace.tasks.height >= 2


def test_no_switch(tmp_path: Path) -> None:
    line = (
        "               a-10      [000] d..2 1.000000: sched_wakeup: comm=b pid=11 prio=120 target_cpu=000\n"
    )
    trace = capture(tmp_path, [line])
    assert trace.slices.height == 0
    assert set(trace.tasks["tid"]) == {10, 11}


def test_tasks_of_one_name_are_apart(tmp_path: Path) -> None:
    lines = [line.replace("=b ", "=a ").replace(" b-", " a-") for line in switches(100)]
    trace = capture(tmp_path, lines)
    assert trace.tasks.filter(comm="a").height == 2
    assert partitioned(trace)


@pytest.mark.parametrize("back", [1.0, 0.01])
def test_a_clock_that_jumps_back_is_told(tmp_path: Path, back: float) -> None:
    trace = capture(tmp_path, switches(50, 100.0) + switches(50, back))
    assert trace.events.height == 100
    assert "time-backwards" in codes(trace)
    assert trace.events["ts_ns"].is_sorted()
    assert partitioned(trace)


def test_a_clock_that_wraps_at_32_bits_is_told(tmp_path: Path) -> None:
    trace = capture(tmp_path, switches(17, 4294.95) + switches(50, 0.0002))
    assert "time-backwards" in codes(trace)
    assert partitioned(trace)


def test_a_clock_near_the_end_of_64_bits(tmp_path: Path) -> None:
    trace = capture(tmp_path, switches(50, 9_223_372_000.0))
    assert trace.events.height == 50
    assert partitioned(trace)
    with pytest.raises(tk.TracekitError, match=r"expected an ftrace line .* found"):
        capture(tmp_path, switches(50, 18_446_744_000.0))


def test_4096_cpus(tmp_path: Path) -> None:
    trace = capture(tmp_path, [line for c in range(4096) for line in switches(2, 1.0 + c * 1e-6, c)])
    assert trace.cpus.height == 4096
    assert trace.events["cpu"].max() == 4095


def test_a_cpu_that_comes_and_goes(tmp_path: Path) -> None:
    other = switches(5, 1.01, cpu=1, names="cd") + switches(5, 1.04, cpu=1, names="cd")
    trace = capture(tmp_path, [*switches(50), *other])
    assert set(trace.cpus["cpu"]) == {0, 1}
    assert partitioned(trace)
    spans = trace.cpus.select(
        pl.col("cpu"), pl.sum_horizontal(pl.col("^(busy|idle|unknown)_ns$")).alias("ns")
    )
    assert set(spans["ns"]) == {trace.end_ns - trace.start_ns}


def test_a_number_that_is_used_again_is_another_task(tmp_path: Path) -> None:
    turns = switches(20)
    dead = (
        "               a-10      [000] d..2 1.020500: sched_process_exit: comm=a pid=10 prio=120\n"
        "               a-10      [000] d..2 1.021000: sched_switch: prev_comm=a prev_pid=10 prev_prio=120 prev_state=X"
        " ==> next_comm=b next_pid=11 next_prio=120\n"
        "               b-11      [000] d..2 1.022000: sched_process_fork: comm=b pid=11 child_comm=b child_pid=10\n"
        "               b-11      [000] d..2 1.023000: sched_switch: prev_comm=b prev_pid=11 prev_prio=120 prev_state=R"
        " ==> next_comm=new next_pid=10 next_prio=120\n"
    )
    trace = capture(tmp_path, [*turns, dead])
    assert trace.tasks.filter(tid=10).height == 2


def test_a_million_tasks(tmp_path: Path) -> None:
    n = 1_000_000
    lines = [
        f"          t-{100 + i} [000] d..2 {1 + i * 1e-6:.6f}: sched_switch: prev_comm=t prev_pid={100 + i} prev_prio=120 "
        f"prev_state=S ==> next_comm=t next_pid={101 + i} next_prio=120\n"
        for i in range(n)
    ]
    trace = capture(tmp_path, lines)
    assert trace.tasks.height == n + 1
    assert trace.slices.height >= n


def test_a_line_without_end_is_one_line_that_fits_nothing(tmp_path: Path) -> None:
    trace = capture(tmp_path, [*switches(10), "x" * (32 << 20) + "\n", *switches(10, 2.0)])
    assert trace.events.height == 20
    said = trace.diagnostics.filter(code="unparsed")
    assert said.height == 1
    assert max(len(m) for m in said["message"].cast(pl.String)) < 400


def test_a_line_of_a_gibibyte_needs_little_memory() -> None:
    """A whole file of a crashed machine in one line, between good ones, through a pipe."""
    room = 1 << 30
    tool = subprocess.Popen(
        [sys.executable, "-m", "tracekit", "info", "-", "--json"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (room, room)),
    )  # fmt: skip
    told: list[bytes] = []
    assert tool.stdin is not None
    assert tool.stdout is not None
    reader = threading.Thread(target=lambda out: told.append(out.read()), args=(tool.stdout,))
    reader.start()
    tool.stdin.write((HEAD + "".join(switches(10))).encode())
    for _ in range(1024):
        tool.stdin.write(b"x" * (1 << 20))
    tool.stdin.write(("\n" + "".join(switches(10, 2.0))).encode())
    tool.stdin.close()
    reader.join()
    assert tool.wait() == 0
    meta = json.loads(told[0])["metadata"]
    assert (meta["parse.lines"], meta["parse.unparsed"]) == ("23", "1")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_locale_without_the_letters_of_a_name(encoding: str, tmp_path: Path) -> None:
    """Tables show the letters as escapes; JSON and CSV are UTF-8 whatever the locale."""
    file = tmp_path / "x.txt"
    file.write_text(HEAD + "".join(switches(50)).replace("=a ", "=☃ ").replace(" a-", " ☃-"), "utf-8")
    env = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    plain = bare("slices", file, **env)
    assert (plain.returncode, plain.stderr) == (0, "")
    assert "\\u2603" in plain.stdout
    for form in ("--json", "--csv"):
        done = bare("slices", file, form, **env)
        assert done.returncode == 0, done.stderr
        assert "☃" in done.stdout


def test_counters_near_the_end_of_64_bits(tmp_path: Path) -> None:
    """What 63 bits hold is kept, sums end there, and what is beyond is told and stands for nothing."""
    most = (1 << 63) - 1
    ran = "               a-10      [000] d..2 1.1000{i:02d}: sched_stat_runtime: comm=a pid=10 runtime={n} [ns] vruntime={v} [ns]\n"
    lost = "CPU:0 [LOST {n} EVENTS]\n"
    lines = [ran.format(i=1, n=most, v=(1 << 64) - 1), ran.format(i=2, n=1 << 63, v=0)]
    trace = capture(tmp_path, [*switches(50), *lines])
    assert trace.events.tail(2).select("kind", "value").rows() == [("stat_runtime", most), ("other", None)]
    assert "partly-parsed" in codes(trace)
    trace = capture(
        tmp_path,
        [*switches(20), lost.format(n=most), *switches(20, 2.0), lost.format(n=most), *switches(20, 3.0)],
    )
    assert trace.losses["count"].to_list() == [most, most]
    assert trace.metadata["loss.total"] == str(most)
    rows = trace.bounds("all")
    assert rows.filter(pl.col("upper").is_not_null()).height > 0
    assert rows.filter((pl.col("lower") > pl.col("upper")) | (pl.col("lower") < 0)).height == 0
    # A marker whose number does not fit is a line that nobody could read: then there are no bounds.
    trace = capture(tmp_path, [*switches(20), lost.format(n=1 << 63), *switches(20, 2.0)])
    assert (trace.losses.height, trace.missing().refused is None) == (0, False)
