"""Replays of a real capture: the Python API and the two commands."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result

import tracekit as tk
from tracekit import _core
from tracekit._frames import TABLES, table_schema
from tracekit.analysis import slices
from tracekit.cli import main

OFF = "cfs:wakeup_preemption=off"


def run(*args: str | Path, status: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(a) for a in args], prog_name="tracekit")
    assert result.exit_code == status, (result.output, result.exception)
    return result


@pytest.fixture(scope="module")
def identity(trace: tk.Trace) -> tk.Replay:
    return tk.replay(trace, "cfs")


def mean_slice(trace: tk.Trace) -> float:
    rows = slices.summary(trace.slices).filter(pl.col("group") == "spin")
    return float(rows["mean_per_involuntary_ns"].item())


def test_a_replay_is_a_trace(trace: tk.Trace, identity: tk.Replay, tmp_path: Path) -> None:
    for name in TABLES:
        assert identity.table(name).schema == table_schema(name)
    assert identity.policy.startswith("cfs:")
    assert identity.metadata["replay.loop"] == "dependency"
    assert identity.metadata["kernel"] == trace.metadata["kernel"]
    assert sum(w["share"] for w in identity.wakeups) == pytest.approx(1)
    assert set(identity.filter(comm="spin*").tasks["comm"]) == {f"spin{i:02}" for i in range(16)}
    identity.write(tmp_path / "x.parquet")
    again = tk.read(tmp_path / "x.parquet")
    assert again.slices.equals(identity.slices)
    assert again.metadata["replay.policy"] == identity.policy


def test_the_same_replay_gives_the_same_bytes(trace: tk.Trace, identity: tk.Replay) -> None:
    assert tk.replay(trace, "cfs").events.equals(identity.events)
    assert tk.Programs(trace).run("cfs").events.equals(identity.events)


def test_the_program_is_a_table_of_the_trace(
    trace: tk.Trace, identity: tk.Replay, demo: Path, tmp_path: Path
) -> None:
    program = trace.program
    assert program.schema == table_schema("program")
    assert program.equals(identity.program)
    sleeps = program.filter(comm="waker00", op="sleep")
    assert sleeps.height > 500
    assert set(sleeps["ends_by"]) <= {"timer", "period", "ticks", "io", "external"}
    assert set(program.filter(pl.col("evidence") == "endless")["comm"]) == {f"spin{i:02}" for i in range(16)}
    run("convert", demo, "--table", "program", "-o", tmp_path / "a.csv")
    run("replay", demo, "--policy", "cfs", "--program", tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert pl.read_csv(tmp_path / "a.csv").height == program.height
    assert tk.simulate("A: R5 S2 R1", "cfs").program["op"].to_list()[:2] == ["run", "sleep"]


def test_what_was_inferred_is_told(trace: tk.Trace, identity: tk.Replay, demo: Path) -> None:
    found = {r["name"]: r for r in identity.inferred.iter_rows(named=True)}
    assert found["ticks a second"]["value"] == 250
    assert 0 <= found["tick phase"]["value"] < 4_000_000
    assert found["endless tasks"]["value"] == 16
    assert found["run-queue clock to tracepoint offset"]["n"] > 1000
    assert 5_000 < found["run-queue clock to tracepoint offset"]["value"] < 15_000
    assert found["timer slack"]["value"] == 50_000
    ends = dict(tk.Programs(trace).tasks.select("comm", "end").iter_rows())
    assert (ends["spin00"], ends["waker00"]) == ("endless", "loops")
    for command in (["replay", demo, "--policy", "cfs", "-v"], ["calibrate", demo, "-v"]):
        text = CliRunner().invoke(main, [str(a) for a in command]).output
        for word in (
            "% of wakeups by timer",
            "run-queue clock to tracepoint offset",
            "tick phase",
            "timer slack",
            "endless tasks",
        ):
            assert word in text, word


def test_tasks_that_are_stopped_are_endless_without_exit_records(trace: tk.Trace) -> None:
    """`perf sched record` has none of `sched_process_exit`."""
    names = json.loads(trace.metadata["events.recorded"])
    kept = [name for name in names if name != "sched_process_exit"]
    assert len(kept) == len(names) - 1
    metadata = {**trace.metadata, "events.recorded": json.dumps(kept)}
    events = trace.events.filter(pl.col("kind") != "exit")
    derived = {name: pl.DataFrame(table) for name, table in _core.derive(events, metadata).items()}
    without = tk.Trace({"events": events, **derived}, metadata)
    ends = [dict(tk.Programs(t).tasks.select("tid", "end").iter_rows()) for t in (trace, without)]
    whole, part = ({tid for tid, end in each.items() if end == "endless"} for each in ends)
    assert whole == part
    assert len(whole) == 16


def test_only_timers_of_linux_have_slack(trace: tk.Trace, identity: tk.Replay) -> None:
    simulated = tk.simulate("A: (R5 S2)*50 R1\nB: R3 S1 R10", "cfs")
    assert tk.Programs(simulated).tasks["slack_ns"].to_list() == [0, 0]
    for linux in (trace, identity):
        slack = tk.Programs(linux).tasks.drop_nulls("slack_ns")
        assert {"waker00", "waker01"} <= set(slack["comm"])
        assert slack.filter(pl.col("slack_ns") < 50_000).is_empty()


def test_every_source_from_linux_names_its_system(root: Path) -> None:
    elsewhere = {"curt", "trcrpt", "ktr", "dtrace-agg", "dtrace-text", "dtrace-tkd"}
    seen = set()
    for folder in sorted(path.parent for path in root.glob("fixtures/*/*/case.toml")):
        case = tomllib.loads((folder / "case.toml").read_text())
        if folder.parent.name in elsewhere or "error" in case:
            continue
        given = case.get("options", {})
        read = tk.read(next(folder.glob("input*")), format=folder.parent.name, **given)
        assert read.metadata.get("os") == "linux", folder
        seen.add(folder.parent.name)
    assert seen == {f["name"] for f in tk.formats()} - elsewhere - {"perfetto", "workload"}


def test_wakeup_preemption_shows_as_on_the_real_kernel(trace: tk.Trace, identity: tk.Replay) -> None:
    # The programs measured 0.89 ms with and 3.9 ms without wakeup preemption on the real kernel.
    assert mean_slice(identity) == pytest.approx(0.89e6, rel=0.1)
    assert mean_slice(tk.replay(trace, OFF)) == pytest.approx(3.9e6, rel=0.1)


@pytest.mark.parametrize("loop", ["dependency", "open", "closed"])
def test_every_loop_runs(trace: tk.Trace, loop: str) -> None:
    again = tk.replay(trace, "fifo", loop=loop)
    assert again.metadata["replay.loop"] == loop
    assert again.slices.height > 0


def test_what_if_there_were_more_cpus_or_other_nice_values(trace: tk.Trace, identity: tk.Replay) -> None:
    two = tk.replay(trace, "cfs", cpus=2)
    assert two.cpus.height == 2
    busy = {t.name: t.cpus["busy_ns"].sum() for t in (two, identity)}
    assert all(v > 0 for v in busy.values())
    nice = tk.replay(trace, "cfs", scenario={"spin00": {"nice": 19}})
    ran = nice.tasks.filter(pl.col("comm").cast(pl.String).str.starts_with("spin")).sort("comm")
    assert ran["run_ns"][0] < ran["run_ns"][1] / 10


def test_progress_and_interrupts(trace: tk.Trace) -> None:
    def stop(done: float) -> None:
        raise KeyboardInterrupt

    seen: list[float] = []
    tk.replay(trace, "cfs", progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1
    with pytest.raises(KeyboardInterrupt):
        tk.replay(trace, "cfs", progress=stop)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy": "nope"}, "no policy nope"),
        ({"policy": "rr:quantum=1"}, "time with its unit"),
        ({"loop": "nope"}, "no loop is called nope"),
        ({"scenario": {"spin*": {"nope": 1}}}, "no task attribute nope"),
        ({"scenario": {"nobody": {"nice": 1}}}, "no task of this trace fits"),
    ],
)
def test_what_makes_no_sense_raises(trace: tk.Trace, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(tk.TracekitError, match=message):
        tk.replay(trace, **arguments)  # type: ignore[arg-type]


def test_a_trace_without_records_has_nothing_to_replay() -> None:
    with pytest.raises(tk.ReplayError, match="nothing to replay"):
        tk.replay(tk.Trace({}), "fifo")


def test_tasks_that_no_record_names_have_no_name_in_a_replay(
    trace: tk.Trace, tmp_path: Path, root: Path
) -> None:
    names = ("comm", "next_comm", "ctx_comm")
    bare = trace.events.with_columns(pl.lit(None, trace.events.schema[name]).alias(name) for name in names)
    tk.Trace({"events": bare}, trace.metadata).write(tmp_path / "bare.parquet")
    programs = tk.Programs(tk.read(tmp_path / "bare.parquet"))
    for table in (programs.table, programs.tasks, programs.demands):
        assert table.height
        assert table["comm"].null_count() == table.height
    tasks = programs.run("cfs").tasks.filter(~pl.col("is_idle"))
    assert tasks["comm"].null_count() == tasks.height
    # No string at all: forks and ends of threads, and nothing else.
    killed = tk.read(root / "fixtures" / "perf-data" / "killed" / "input.data")
    assert killed.program["comm"].null_count() == killed.program.height


def test_compare_sets_policies_beside_the_identity_replay(trace: tk.Trace, identity: tk.Replay) -> None:
    comparison = tk.compare(trace, {"off": OFF})
    assert list(comparison.traces) == ["recorded", "identity replay", "off"]
    assert comparison.identity.events.equals(identity.events)
    assert "6.1" in comparison.why
    rows = comparison.table.filter(
        (pl.col("group") == "spin")
        & (pl.col("metric") == "slice_per_involuntary")
        & (pl.col("statistic") == "mean")
    )
    assert rows["predicted"].item() == pytest.approx(mean_slice(comparison.replays["off"]))
    with pytest.raises(tk.ReplayError, match="no policy nope"):
        tk.compare(trace, ["nope"])


def test_the_replay_command(demo: Path, tmp_path: Path) -> None:
    text = run("replay", demo, "--policy", "rr:quantum=10ms").output
    assert "slice-default.dat under rr:quantum=10ms" in text
    assert "replayed" in text
    file = tmp_path / "x.parquet"
    told = json.loads(
        run("replay", demo, "--policy", OFF, "--json", "-o", file, "--set", "spin00:nice=5").stdout
    )
    assert {r["trace"] for r in told["rows"]} == {"recorded", "replayed"}
    assert "x.parquet: replay" in run("info", file).output
    for args, message in (
        (("--policy", "nope"), "no policy nope"),
        (("--policy", "rr", "-o", "x.doc"), "ends in"),
        (("--policy", "rr", "--set", "spin"), "selector: attribute=value"),
        (("--policy", "rr", "--set", "nobody:nice=1"), "no task of this trace fits"),
        ((), "nothing is asked for"),
    ):
        assert message in run("replay", demo, *args, status=2).stderr


def test_the_compare_command(demo: Path, tmp_path: Path) -> None:
    page, figures = tmp_path / "x.html", tmp_path / "x.json"
    result = run("compare", demo, "--policy", "cfs", "--policy", OFF, "-o", page, "--json", figures)
    assert "changes are against the identity replay (--wide shows it), slice-default.dat" in result.stdout
    assert "not resolved" in result.stdout
    assert "resolved" in result.stdout
    assert page.read_text().lower().startswith("<!doctype html>")
    told = json.loads(figures.read_text())
    assert [p["label"] for p in told["policies"]] == ["cfs", OFF]
    assert json.loads(run("compare", demo, "--policy", "rr", "--json", "-").stdout)["tracekit.report"] == 1
    assert "ends in .html" in run("compare", demo, "--policy", "rr", "-o", "x.doc", status=2).stderr
    assert "no policy x" in run("compare", demo, "--policy", "rr", "--identity", "x", status=2).stderr


def test_the_examples_of_the_docstrings_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import doctest
    import importlib

    monkeypatch.chdir(root)
    for name in ("tracekit.whatif.run", "tracekit.io", "tracekit.registry", "tracekit.units"):
        assert doctest.testmod(importlib.import_module(name)).failed == 0, name


def test_a_policy_written_in_python_replays_a_trace(trace: tk.Trace) -> None:
    class Fifo(tk.Policy):
        def __init__(self) -> None:
            self.queue: list[int] = []

        def enqueue(self, task: int, cpu: int, why: str) -> None:
            self.queue.insert(0, task) if why == "preempted" else self.queue.append(task)

        def dequeue(self, task: int, cpu: int) -> None:
            self.queue.remove(task)

        def dispatch(self, cpu: int) -> int | None:
            return self.queue.pop(0) if self.queue else None

    mine, ours = tk.replay(trace, Fifo()), tk.replay(trace, "fifo")
    columns = ["ts_ns", "dur_ns", "tid"]
    assert mine.slices.select(columns).equals(ours.slices.select(columns))
    assert mine.policy == "Fifo"


def test_a_scenario_file_names_the_policy_and_the_tasks(demo: str, tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('policy = "stride:quantum=5ms"\n[[task]]\ncomm = "spin*"\nnice = 5\n')
    out = run("replay", demo, "--scenario", file).stdout
    assert "under stride:quantum=5ms" in out


def test_a_replay_is_grouped_by_priority_as_the_recording_is(tmp_path: Path) -> None:
    text = tmp_path / "a.wl"
    text.write_text("policy: cfs\nuntil: 200\nA*2 nice=5: R∞\nB: (R3 S2)*\n")
    told = json.loads(run("replay", text, "--policy", "rr:quantum=5ms", "--by", "prio", "--json", "-").stdout)
    rows = next(v for v in told.values() if isinstance(v, list) and v and "group" in v[0])
    of = {w: {r["group"] for r in rows if r["trace"] == w} for w in ("recorded", "replayed")}
    assert of["recorded"] == of["replayed"] == {"prio 120", "prio 125"}
    message = run("replay", text, "--policy", "cfs", "--by", "cgroup", status=2).output
    assert "cannot group by cgroup" in message


@pytest.mark.parametrize("cpus", [0, -1, True, 4097, 1.5, "two"])
def test_what_is_no_number_of_cpus_is_refused(cpus: object) -> None:
    trace = tk.simulate("A: R5\nB: R5", "fifo")
    with pytest.raises(tk.ReplayError, match="cpus: expected a whole number from 1 to 4096, found"):
        tk.replay(trace, "rr", cpus=cpus)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", [5, None, 1.5])
def test_what_is_no_source_is_refused_by_what_is_wanted(source: object) -> None:
    with pytest.raises(TypeError, match="expected a path, bytes or a file opened in binary mode, found"):
        tk.read(source)  # type: ignore[call-overload]


def test_programs_say_what_they_are_of(demo: Path) -> None:
    assert repr(tk.Programs(demo)) == "<Programs of slice-default.dat: 24 tasks, wakeup model dependency>"
