"""Groups beyond names, tasks left out, yields, and the timeline in text."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner

import tracekit as tk
from tracekit.analysis import grouping, latency, response, runqueue, slices, yields
from tracekit.cli import main


def run(*args: object) -> str:
    result = CliRunner().invoke(main, [str(a) for a in args], prog_name="tracekit")
    assert result.exit_code == 0, result.stderr
    return result.stdout


TASKS = pl.DataFrame(
    [
        # utid, tid, pid, name, parent, prio
        (1, 10, 10, "python", None, 120),
        (2, 11, 10, "python", 1, 120),
        (3, 20, 20, "python", None, 120),
        (4, 30, 30, "make", None, 130),
        (5, 31, 31, "cc1", 4, 130),
        (6, 32, 32, "cc1", 4, 130),
        (7, 40, None, "spin", None, -1),
        (8, 41, 41, "irq/9", None, 50),
    ],
    schema={
        "utid": pl.UInt32,
        "tid": pl.Int64,
        "pid": pl.Int64,
        "comm": pl.String,
        "parent_utid": pl.UInt32,
        "prio_min": pl.Int32,
    },
    orient="row",
).with_columns(pl.col("prio_min").alias("prio_max"), pl.lit(False).alias("is_idle"))


def test_processes_of_one_name_are_one_group_only_where_they_are_related() -> None:
    found = dict(grouping.unrelated(TASKS).iter_rows())
    # Two pythons that nobody forked here are two; the compilers of one make are one.
    assert found == {1: "python:10", 2: "python:10", 3: "python:20"}


def test_slices_that_a_tool_printed_set_no_processes_apart(tmp_path: Path) -> None:
    path = tmp_path / "timehist.txt"
    head = """\
           time    cpu  task name                       wait time  sch delay   run time
                        [tid/pid]                          (msec)     (msec)     (msec)
--------------- ------  ------------------------------  ---------  ---------  ---------
"""
    rows = [f"    1.{10 + n}0000 [0000]  curl[{20 + n}]      0.000      0.000      5.000\n" for n in range(4)]
    path.write_text(head + "".join(rows))
    (row,) = json.loads(run("slices", path, "--json"))["rows"]
    # Each curl is a process of its own. No fork shows, so nothing says that they have nothing in common.
    assert (row["group"], row["n"]) == ("curl", 4)


def test_a_task_is_in_the_same_group_whatever_is_chosen_beside_it() -> None:
    path = Path(__file__).parents[1] / "fixtures/perf-data/both-switch-records/input.data"

    def sleeps(*chosen: str) -> list[dict[str, object]]:
        rows = json.loads(run("slices", path, *chosen, "--json"))["rows"]
        return [row for row in rows if row["group"].startswith("sleep")]

    # One process forked them all; with --comm it is not among the tasks that are left.
    assert [row["group"] for row in sleeps()] == ["sleep"]
    assert sleeps("--comm", "sleep") == sleeps()


def test_labels() -> None:
    of = {by: dict(grouping.labels(TASKS, by).iter_rows()) for by in ("process", "prio", "policy")}
    assert of["process"][2] == "python:10"
    assert of["process"][7] is None
    assert of["prio"][4] == "prio 130"
    assert [of["policy"][i] for i in (1, 7, 8)] == [
        "fair (other, batch or idle)",
        "deadline",
        "real time (fifo or rr)",
    ]
    with pytest.raises(ValueError, match="machine file"):
        grouping.labels(TASKS, "cgroup")
    machine = pl.DataFrame({"tid": [10, 20], "cgroup": ["/a", "/b"], "policy": ["batch", "other"]})
    assert dict(grouping.labels(TASKS, "cgroup", machine).iter_rows())[3] == "/b"
    assert dict(grouping.labels(TASKS, "policy", machine).iter_rows())[1] == "batch"


def test_the_command_line_groups(demo: Path, trace: tk.Trace) -> None:
    rows = json.loads(run("slices", demo, "--by", "cpu", "--json"))["rows"]
    assert [(r["group"], r["n"]) for r in rows] == [("CPU 0", slices.summary(trace, "all")["n"].item())]
    rows = json.loads(run("latency", demo, "--by", "prio", "--json"))["rows"]
    assert [r["group"] for r in rows] == ["prio 120"]
    failed = CliRunner().invoke(main, ["slices", str(demo), "--by", "process"])
    assert failed.exit_code == 2
    assert "records no process numbers" in failed.stderr


def test_exclude(demo: Path, trace: tk.Trace) -> None:
    names = {r["group"] for r in json.loads(run("slices", demo, "--exclude", "spin*", "--json"))["rows"]}
    assert "spin" not in names
    assert "waker" in names
    part = trace.filter(comm="*0*", exclude="spin*")
    assert "waker00" in part.tasks["comm"].cast(pl.String).to_list()
    assert not part.slices["comm"].cast(pl.String).str.starts_with("spin").any()


def test_analyses_take_a_trace_and_any_table(trace: tk.Trace) -> None:
    expected = slices.summary(trace.slices, "comm")
    for given in (trace, trace.slices.lazy(), trace.to_arrow("slices")):
        assert slices.summary(given, "comm").equals(expected)
    wakeups = latency.summary(trace.slices, trace.states, "group", "wakeup")
    assert latency.summary(trace, cause="wakeup").equals(wakeups)
    assert trace.latency(cause="wakeup").equals(wakeups)
    answered = response.summary(trace.slices, trace.states, trace.end_ns)
    assert response.summary(trace).equals(answered)
    assert trace.response().equals(answered)
    lengths = runqueue.summary(trace.runqueue, trace.end_ns)
    assert runqueue.summary(trace).equals(lengths)
    assert trace.queue_lengths().equals(lengths)
    assert trace.slice_lengths("comm").equals(expected)
    assert isinstance(trace.to_pandas("slices"), pd.DataFrame)


def test_fields_carry_unit_and_description(trace: tk.Trace) -> None:
    table = trace.to_arrow("slices")
    assert isinstance(table, pa.Table)
    field = table.schema.field("dur_ns")
    assert field.metadata[b"unit"] == b"ns"
    assert len(field.metadata[b"description"]) > 10
    assert all(f.metadata for f in table.schema)


def test_only_what_is_public_is_listed() -> None:
    for module in (slices, latency, response, runqueue, yields):
        assert set(dir(module)) == set(module.__all__)
        assert "summary" in dir(module) or module is yields


def test_yields_are_told_from_preemptions() -> None:
    rows = [
        # from, for, state: short without a wakeup, short with one, long, a sleep
        (0, 10_000, "preempted", True),
        (20_000, 10_000, "preempted", True),
        (40_000, 900_000, "preempted", True),
        (1_000_000, 5_000, "sleeping", False),
    ]
    frame = pl.DataFrame(
        [
            {"ts_ns": t, "dur_ns": d, "end_state": s, "involuntary": i, "cpu": 0, "utid": 1, "tid": 1}
            | {"comm": "y", "flags": 0}
            for t, d, s, i in rows
        ]
    )
    events = pl.DataFrame({"ts_ns": [25_000], "kind": ["wakeup"], "target_cpu": [0]})
    assert yields.likely(frame, events).row(0) == ("y", 1, 3)
    assert yields.likely(frame, events.with_columns(pl.lit("switch").alias("kind"))).is_empty()
    # What a wakeup ended early goes on, until the tick ends it.
    rest = frame.head(2).with_columns(
        ts_ns=pl.Series([20_000, 600_000]), dur_ns=pl.Series([500_000, 300_000])
    )
    assert yields.likely(rest, events).is_empty()
    assert yields.likely(rest.with_columns(dur_ns=300_000), events).row(0) == ("y", 1, 2)


def test_the_timeline_in_text(demo: Path, trace: tk.Trace) -> None:
    lines = run("timeline", demo, "--from", "1s", "--to", "1.02s").splitlines()
    assert lines[0].startswith("@4.909715119s to @4.929715119s")
    assert len(lines[1]) == 100
    letters = set(lines[1].removeprefix("CPU 0   "))
    named = {part.split()[0] for part in lines[2].split(", ")}
    assert letters <= named
    rows = json.loads(run("timeline", demo, "--from", "1s", "--to", "1.02s", "--json"))["rows"]
    assert sum(r["run_ns"] for r in rows) <= 20_000_000
    # The window's begin can be given as it was printed.
    assert run("timeline", demo, "--from", "@4.909715119s", "--to", "@4.929715119s").splitlines() == lines


def test_the_timeline_tells_idle_from_not_recorded(tmp_path: Path) -> None:
    def line(at: int, cpu: int, who: str, to: str) -> str:
        return f"  {who.replace(':', '-')} [00{cpu}] 1.{at:06d}: sched_switch: {who} [120] S ==> {to} [120]\n"

    path = tmp_path / "two.txt"
    a, idle = "a:7", "swapper/0:0"
    path.write_text(
        line(0, 0, idle, a)
        + line(100, 0, a, idle)
        # CPU 1 is recorded from here on, CPU 2 idles.
        + line(101, 2, "b:8", "swapper/2:0")
        + line(200, 1, "swapper/1:0", "c:9")
        + line(300, 1, "c:9", "swapper/1:0")
    )
    head, *cpus, legend = run("timeline", path, "--from", "@1s", "--to", "@1.0004s").splitlines()
    assert head.startswith("@1.000000000s to @1.000400000s")
    width = len(cpus[0]) - 8
    quarter = width // 4
    assert cpus[0] == "CPU 0   " + "A" * quarter + "." * (2 * quarter) + "?" * quarter
    assert cpus[1] == "CPU 1   " + "?" * (2 * quarter) + "B" * quarter + "?" * quarter
    assert cpus[2] == "CPU 2   " + "?" * quarter + "." * (2 * quarter) + "?" * quarter
    assert legend.endswith(". idle, ? not recorded")
    found = json.loads(run("timeline", path, "--json"))
    assert {"cpu": 1, "from_ns": 1_000_000_000, "to_ns": 1_000_200_000} in found["unknown"]
    assert "idle or a task left out" in run("timeline", path, "--comm", "a")
    assert "nothing to show" in run("timeline", path, "--from", "@5s", "--to", "@6s")


def test_the_timeline_of_a_cpu_that_went_offline(tmp_path: Path) -> None:
    def line(at: int, cpu: int, who: str, to: str) -> str:
        return f"  {who.replace(':', '-')} [00{cpu}] 1.{at:06d}: sched_switch: {who} [120] S ==> {to} [120]\n"

    path, idle = tmp_path / "offline.txt", "swapper/1:0"
    path.write_text(
        line(0, 0, "swapper/0:0", "a:7")
        + line(0, 1, idle, "b:8")
        # No record says that the stopper left.
        + line(100, 1, "b:8", "migration/1:21")
        + line(300, 1, idle, "cpuhp/1:20")
        + line(400, 1, "cpuhp/1:20", idle)
    )
    trace = tk.read(path)
    advice = trace.diagnostics.filter(code="switch-mismatch")["advice"].item()
    assert advice == "the CPU was offline, as its stopper had it last: nobody ran there in between"
    _, _, cpu, legend = run("timeline", path).splitlines()
    quarter = (len(cpu) - 8) // 4
    assert cpu == "CPU 1   " + "B" * quarter + "?" * (2 * quarter) + "C" * quarter
    # Who has no sign in it is not named.
    assert legend == "A a, B b, C cpuhp/1, . idle, ? not recorded"


def test_calibrate_and_what_a_notebook_shows(trace: tk.Trace) -> None:
    part = trace.filter(start="1s", end="2s")
    found = tk.calibrate(part)
    assert found.filter(result="pass").height > 5
    shown = tk.compare(part, ["rr"], runs=1)._repr_html_()
    assert "<svg" in shown
    assert "<script" not in shown
    assert "rr changes" in shown


def test_the_command_line_offers_every_grouping() -> None:
    from tracekit.analysis import grouping
    from tracekit.cli import _options

    assert grouping.BY == _options.BY


def test_the_commands_say_what_the_number_behind_a_name_is(tmp_path: Path) -> None:
    place = tmp_path / "trace.txt"
    line = (
        "{0:>9} {1} [000] 1.{2:06}: sched:sched_switch: prev_comm={0} prev_pid={1} prev_prio=120 "
        "prev_state=S ==> next_comm={3} next_pid={4} next_prio=120\n"
    )
    name = "{0:>9} {1} [000] 0.000000: PERF_RECORD_COMM: {0}:{1}/{1}\n"
    runs = [("twice", 10), ("once", 30), ("twice", 20)] * 3
    places = itertools.pairwise(runs)
    rows = [line.format(*a, 1000 * at * at, *b) for at, (a, b) in enumerate(places, 1)]
    place.write_text("".join([name.format(*task) for task in runs[:3]] + rows))
    said = "nothing else in common: twice:10 is those that descend from process 10 (twice)"
    for command in ("slices", "latency", "response"):
        found = CliRunner().invoke(main, [command, str(place)])
        assert said in found.stderr, command
        for more in ("--quiet", "--json", "--csv"):
            assert said not in CliRunner().invoke(main, [command, str(place), more]).stderr
    assert said not in CliRunner().invoke(main, ["slices", str(place), "--comm", "once"]).stderr
