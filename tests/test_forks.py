"""Forks in a recording: where the kernel reads its clock for a child, and where a parent may be preempted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk

#: Records of one round, as the time in us from its start, the task, the flags and the record: the
#: parent wakes another task, which preempts it 40 us later; then it forks, loses its CPU to the
#: child at once, and sleeps soon after it has it back.
ROUND = (
    (1000, "par-10", "d..3.", "sched_waking: comm=log pid=20 prio=120 target_cpu=000"),
    (1002, "par-10", "dN.3.", "sched_wakeup: log:20 [120] CPU:000"),
    (1040, "par-10", "d..2.", "sched_switch: par:10 [120] R ==> log:20 [120]"),
    (1090, "log-20", "d..2.", "sched_switch: log:20 [120] S ==> par:10 [120]"),
    (1500, "par-10", ".....", "sched_process_fork: comm=par pid=10 child_comm=par child_pid={child}"),
    (1507, "par-10", "dN.2.", "sched_wakeup_new: par:{child} [120] CPU:000"),
    (1516, "par-10", "d..2.", "sched_switch: par:10 [120] R ==> par:{child} [120]"),
    (1900, "par-{child}", "d..2.", "sched_switch: par:{child} [120] X ==> par:10 [120]"),
    (1914, "par-10", "d..2.", "sched_switch: par:10 [120] S ==> swapper/0:0 [120]"),
    (2600, "<idle>-0", "d.h3.", "sched_waking: comm=par pid=10 prio=120 target_cpu=000"),
    (2602, "<idle>-0", "dNh3.", "sched_wakeup: par:10 [120] CPU:000"),
    (2606, "<idle>-0", "d..2.", "sched_switch: swapper/0:0 [120] R ==> par:10 [120]"),
)


def repeated(rounds: Sequence[tuple[int, str, str, str]], file: Path) -> tk.Trace:
    """The trace of twelve such rounds."""
    lines = ["# tracer: nop", "#"]
    for n in range(12):
        for at, task, flags, record in rounds:
            text = f"{task:>16}   [000] {flags}   {(at + n * 3000) / 1e6:12.6f}: {record}"
            lines.append(text.format(child=100 + n))
    file.write_text("\n".join(lines) + "\n")
    return tk.read(file)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> tk.Programs:
    """The programs of twelve rounds."""
    return tk.Programs(repeated(ROUND, tmp_path_factory.mktemp("forks") / "trace.txt"))


def test_the_clock_of_a_child_is_read_at_the_record_of_the_fork(programs: tk.Programs) -> None:
    found = programs.inferred.filter(pl.col("name") == "clock of a new task").row(0, named=True)
    assert (found["value"], found["n"]) == (7_000, 12)


def test_a_parent_that_was_preempted_behind_its_fork_had_left_the_kernel(programs: tk.Programs) -> None:
    steps = programs.table.filter(pl.col("tid") == 10)
    kinds = steps["op"].cast(pl.String).to_list()
    behind = [kinds[i + 1 : i + 3] for i, kind in enumerate(kinds) if kind == "fork"]
    # Some of the work is the kernel's, where nothing preempts; the rest is not, so that the child
    # can preempt before the sleep.
    assert len(behind) == 12
    assert all(pair == ["run_kernel", "run"] for pair in behind), behind[:3]


#: As above, of a shell whose child executes two programs, one after the other, and sleeps before each.
EXECS = (
    (1000, "sh-10", ".....", "sched_process_fork: comm=sh pid=10 child_comm=sh child_pid={child}"),
    (1007, "sh-10", "dN.2.", "sched_wakeup_new: sh:{child} [120] CPU:000"),
    (1016, "sh-10", "d..2.", "sched_switch: sh:10 [120] S ==> sh:{child} [120]"),
    (1200, "sh-{child}", "d..2.", "sched_switch: sh:{child} [120] S ==> swapper/0:0 [120]"),
    (1300, "<idle>-0", "d.h3.", "sched_waking: comm=sh pid={child} prio=120 target_cpu=000"),
    (1306, "<idle>-0", "d..2.", "sched_switch: swapper/0:0 [120] R ==> sh:{child} [120]"),
    (1350, "nice-{child}", ".....", "sched_process_exec: filename=/bin/nice pid={child} old_pid={child}"),
    (1500, "nice-{child}", "d..2.", "sched_switch: nice:{child} [120] S ==> swapper/0:0 [120]"),
    (1600, "<idle>-0", "d.h3.", "sched_waking: comm=nice pid={child} prio=120 target_cpu=000"),
    (1606, "<idle>-0", "d..2.", "sched_switch: swapper/0:0 [120] R ==> nice:{child} [120]"),
    (1650, "cc-{child}", ".....", "sched_process_exec: filename=/bin/cc pid={child} old_pid={child}"),
    (1700, "cc-{child}", "d..2.", "sched_switch: cc:{child} [120] S ==> swapper/0:0 [120]"),
    (1800, "<idle>-0", "d.h3.", "sched_waking: comm=cc pid={child} prio=120 target_cpu=000"),
    (1806, "<idle>-0", "d..2.", "sched_switch: swapper/0:0 [120] R ==> cc:{child} [120]"),
    (2300, "cc-{child}", "d..2.", "sched_switch: cc:{child} [120] X ==> swapper/0:0 [120]"),
    (2600, "<idle>-0", "d.h3.", "sched_waking: comm=sh pid=10 prio=120 target_cpu=000"),
    (2606, "<idle>-0", "d..2.", "sched_switch: swapper/0:0 [120] R ==> sh:10 [120]"),
)


@pytest.fixture(scope="module")
def execs(tmp_path_factory: pytest.TempPathFactory) -> tk.Trace:
    """Twelve rounds of `EXECS`."""
    return repeated(EXECS, tmp_path_factory.mktemp("execs") / "trace.txt")


def test_a_slice_belongs_to_the_program_that_is_executed_in_it(execs: tk.Trace) -> None:
    def names(trace: tk.Trace) -> list[list[str]]:
        rows = (
            trace.slices.filter(pl.col("tid") >= 100)
            .sort("ts_ns")
            .select("tid", pl.col("comm").cast(pl.String))
        )
        found: list[list[str]] = rows.group_by("tid", maintain_order=True).agg("comm")["comm"].to_list()
        return found

    assert names(execs) == [["sh", "nice", "cc", "cc"]] * 12
    assert names(tk.replay(execs, "cfs")) == names(execs)


def test_a_comparison_goes_by_the_last_name_on_both_sides(execs: tk.Trace) -> None:
    found = tk.compare(execs, ["rr"], runs=1, by="comm").table.filter(pl.col("metric") == "switches")
    rows = found.select(pl.col("group").cast(pl.String), "recorded", "identity").drop_nulls("group")
    assert set(rows["group"]) == {"cc", "sh"}
    # At the end of the trace a switch may be on either side of it.
    assert all(abs(recorded - identity) <= 1 for _, recorded, identity in rows.iter_rows())


def test_task_newtask_records_a_fork_as_well(tmp_path: Path) -> None:
    new = (1499, "par-10", ".....", "task_newtask: pid={child} comm=par clone_flags=1200011 oom_score_adj=0")
    without = [r for r in ROUND if "fork" not in r[3] and "wakeup_new" not in r[3]]
    alone = repeated(sorted([*without, new]), tmp_path / "alone.txt")
    both = repeated(sorted([*ROUND, new]), tmp_path / "both.txt")
    for trace in (alone, both):
        steps = trace.program.filter(pl.col("op") == "fork")
        assert steps["tid"].to_list() == [10] * 12
        assert steps["partner_tid"].to_list() == list(range(100, 112))
    assert alone.events.filter(pl.col("kind") == "fork")["comm"].unique().to_list() == ["par"]
