"""`tracekit generate`: a schedule written in every text format that is read comes back; programs go
to rt-app and to texts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tracekit as tk
from tracekit.cli import main
from tracekit.export.layouts import LAYOUTS, PROGRAMS
from tracekit.whatif.generating import TARGETS

#: Every step of the language that does not depend on another task, and tasks that fork, post and wait.
STEPS = st.sampled_from(["R1", "R2.5", "R0.000123", "S1", "S7", "D2", "E3", "Y", "K1", "N(nice=5)", "X"])
TASKS = st.lists(st.lists(STEPS, min_size=1, max_size=5), min_size=1, max_size=5)

#: What a state becomes where the format has no word for it.
SAME = {s: {s} for s in ("sleeping", "blocked", "dead", "preempted", "yielding")}
READ: dict[str, dict[str, set[str | None]]] = {
    "ftrace": {"yielding": {"runnable", "yielding"}},
    "perf-script": {"yielding": {"runnable", "yielding"}},
    "lttng": {"yielding": {"runnable", "yielding"}},
    "dtrace": {"yielding": {"runnable"}, "preempted": {"runnable", "preempted"}},
    "ktr": {"yielding": {"runnable"}, "preempted": {"runnable"}},
    # A block for a device is a sleep; who leaves without a record before was ready.
    # So does one that is preempted in the middle of its exit, which looks like its end.
    "trcrpt": {
        "yielding": {None, "runnable"},
        "preempted": {None, "runnable", "dead"},
        "blocked": {"sleeping"},
    },
}


def text_of(tasks: list[list[str]], cpus: int, policy: str) -> str:
    lines = [f"policy: {policy}", f"cpus: {cpus}", "until: 60"]
    lines += [f"T{i}{' start=2' if i % 2 else ''}: R1 {' '.join(steps)}" for i, steps in enumerate(tasks)]
    return "\n".join([*lines, "P: R1 P(x) F(C) R1", "W nice=3: W(x) R2", "C start=fork: R1 Q R0.5", "H: R∞"])


def slices(trace: tk.Trace, complete: bool = True) -> pl.DataFrame:
    """Slices that took time; those that are cut at the end only where asked for."""
    rows = trace.slices.filter(pl.col("dur_ns") > 0)
    if complete:
        rows = rows.filter(pl.col("end_state").is_not_null() | (pl.col("flags") & 2 == 0))
    start = trace.slices["ts_ns"].min()
    return rows.select(
        (pl.col("ts_ns") - start).alias("ts_ns"), "dur_ns", "cpu", "tid", pl.col("comm").cast(pl.String),
        pl.col("end_state").cast(pl.String),
    ).sort("ts_ns", "cpu")  # fmt: skip


def wakeups(trace: tk.Trace, kinds: tuple[str, ...]) -> pl.DataFrame:
    rows = trace.events.filter(pl.col("kind").cast(pl.String).is_in(kinds))
    return rows.select((pl.col("ts_ns") - trace.slices["ts_ns"].min()).alias("ts_ns"), "cpu", "tid")


def written(trace: tk.Trace, name: str, place: Path) -> tk.Trace:
    tk.generate(trace, place, name)
    found = tk.read(place)
    assert found.metadata["source.format"] == LAYOUTS[name].reads_as
    return found


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tasks=TASKS, cpus=st.integers(1, 3), policy=st.sampled_from(["cfs", "rr:quantum=2ms", "fifo"]))
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_schedule_comes_back(
    name: str, tasks: list[list[str]], cpus: int, policy: str, tmp_path: Path
) -> None:
    run = tk.simulate(text_of(tasks, cpus, policy))
    back = written(run, name, tmp_path / "t")
    mine, theirs = slices(run), slices(back)
    if name != "ftrace":
        # Without an end of the run, what still runs ends with the last record.
        ends = min(mine["ts_ns"].max() or 0, theirs["ts_ns"].max() or 0)
        last = back.end_ns - back.start_ns  # type: ignore[operator]
        mine, theirs = (
            f.filter(pl.col("ts_ns") + pl.col("dur_ns") < min(last, ends)) for f in (mine, theirs)
        )
    assert mine.drop("end_state").equals(theirs.drop("end_state"))
    for was, became in zip(mine["end_state"], theirs["end_state"], strict=True):
        assert became in READ[name].get(was, {was}), (was, became)
    kinds = ("wakeup", "wakeup_new")
    # A format without arrivals has wakeups in their place.
    arrivals = () if "enqueue" in {*back.events["kind"].cast(pl.String)} else ("enqueue",)
    sort = ["ts_ns", "cpu", "tid"]
    was, is_ = wakeups(run, (*kinds, *arrivals)).sort(sort), wakeups(back, kinds).sort(sort)
    assert was.equals(is_)


def test_parquet_and_a_text_of_a_text_are_exact(tmp_path: Path) -> None:
    text = (
        text_of([["R2", "S3", "Y", "R1"], ["D2", "N(nice=5)", "R3"]], 2, "cfs")
        + "\nS: (A(q) R1)*\nK: C(q: R2 S1)"
    )
    run = tk.simulate(text)
    tk.generate(run, tmp_path / "a.parquet", "parquet")
    tk.generate(run, tmp_path / "a.wl", "workload")
    for name in ("a.parquet", "a.wl"):
        assert slices(tk.read(tmp_path / name), False).equals(slices(run, False))
    tk.generate(run, tmp_path / "b.wl", "workload", policy="rr:quantum=1ms")
    assert slices(tk.read(tmp_path / "b.wl"), False).equals(slices(tk.replay(run, "rr:quantum=1ms"), False))


def test_the_programs_of_a_capture_are_a_text_that_repeats_its_identity_replay(
    demo: Path, tmp_path: Path
) -> None:
    trace = tk.read(demo)
    done = tk.generate(trace, tmp_path / "d.wl", "workload")
    assert list(done.left_out) == ["ends of loops (they go on until the end of the run)"]
    stated, identity = tk.read(tmp_path / "d.wl"), tk.replay(trace, "cfs:form=6.1")

    def run_ns(t: tk.Trace) -> dict[str, int]:
        groups = t.slice_lengths().with_columns(pl.col("group").str.to_lowercase())
        return dict(groups.select("group", "run_ns").iter_rows())

    mine, theirs = run_ns(stated), run_ns(identity)
    for group in ("spin", "waker"):
        assert mine[group] == pytest.approx(theirs[group], rel=0.02)


#: Keys of doc/tutorial.txt of rt-app.
EVENT = re.compile(r"(run|sleep|timer|lock|wait|signal|unlock|fork|yield)\d+")
THREAD = {"instance", "loop", "delay", "policy", "priority", "cpus", "taskgroup", "phases"}


def check_rt_app(path: Path) -> dict[str, dict]:  # type: ignore[type-arg]
    """Every key is in the grammar; what is named exists; names are threads' names."""
    whole = json.loads(path.read_text())
    assert set(whole) == {"tasks", "global"}
    tasks = whole["tasks"]
    signals, waits, forks = set(), set(), set()
    for name, task in tasks.items():
        assert len(name) <= 15
        assert set(task) <= THREAD | {"dl-runtime", "dl-deadline", "dl-period"}
        for phase in task["phases"].values():
            for key, value in phase.items():
                if key in THREAD:
                    continue
                assert EVENT.fullmatch(key), key
                if key.startswith("fork"):
                    forks.add(value)
                elif key.startswith("signal"):
                    signals.add(value)
                elif key.startswith("wait"):
                    waits.add(value["ref"])
                elif key.startswith(("run", "sleep")):
                    assert isinstance(value, int)
                    assert value > 0
    assert forks == {name for name, task in tasks.items() if task["instance"] == 0}
    # A task that nobody wakes in the run waits to its end.
    assert signals & waits or not waits
    return tasks  # type: ignore[no-any-return]


def test_rt_app_gets_the_demand_the_sleeps_and_who_wakes_whom(tmp_path: Path) -> None:
    text = (
        "policy: cfs\ncpus: 2\nuntil: 1500\nA nice=3: (R5 S10)*20\nB start=100: (R3.0004 P(x))*5 Y F(C) R1\n"
    )
    text += "C start=fork: R1\nW policy=fifo prio=7 cpus=1: (W(x) R1)*\nH: R∞"
    tk.generate(text, tmp_path / "a.json", "rt-app")
    tasks = check_rt_app(tmp_path / "a.json")
    of = {name: task["phases"] for name, task in tasks.items()}
    assert sum(v for k, v in of["B"]["phase0"].items() if k.startswith("run")) == 5 * 3000 + 2 + 1000
    assert [v for k, v in of["A"]["phase0"].items() if k.startswith("sleep")] == [10_000] * 20
    assert tasks["A"]["priority"] == 3
    assert (tasks["W"]["policy"], tasks["W"]["priority"], tasks["W"]["cpus"]) == ("SCHED_FIFO", 7, [1])
    assert of["W"]["phase0"]["loop"] == -1
    assert tasks["B"]["delay"] == 100_000
    assert of["H"]["phase0"] == {"loop": -1, "run0": 1_000_000}
    assert json.loads((tmp_path / "a.json").read_text())["global"]["duration"] == 2


def test_rt_app_gets_the_programs_of_a_capture(demo: Path, tmp_path: Path) -> None:
    trace = tk.read(demo)
    tk.generate(trace, tmp_path / "d.json", "rt-app")
    tasks = check_rt_app(tmp_path / "d.json")
    assert sum(name.startswith("Spin") for name in tasks) == 16
    wanted = trace.program.filter(pl.col("comm").cast(pl.String) == "wl", op="run")["dur_ns"].sum()
    runs = sum(v for p in tasks["Wl"]["phases"].values() for k, v in p.items() if k.startswith("run"))
    kernel = trace.program.filter(pl.col("comm").cast(pl.String) == "wl", op="run_kernel")["dur_ns"].sum()
    assert runs == pytest.approx((wanted + kernel) / 1000, abs=2)
    with pytest.raises(tk.ReplayError, match="no queues of requests, and 2 steps"):
        tk.generate("policy: fifo\nA: M(q: R1)\nS: A(q)", tmp_path / "q.json", "rt-app")
    assert not (tmp_path / "q.json").exists()


def test_the_command_says_what_is_left_out_and_refuses_by_name(tmp_path: Path) -> None:
    text, out = tmp_path / "a.wl", tmp_path / "a.ktr"
    text.write_text("policy: cfs\nA: R~exp(3) F(C)\nC start=fork: R2\n")
    done = CliRunner().invoke(main, ["generate", str(text), "-o", str(out), "--as", "ktr"])
    assert done.exit_code == 0
    assert "ktr has no place for: 2 exit, 1 fork, 1 marker" in done.output
    first = out.read_text()
    CliRunner().invoke(main, ["generate", str(text), "-o", str(out), "--as", "ktr", "--seed", "5"])
    assert out.read_text() != first
    for words, message in (
        (["--as", "nothing"], "'nothing' is not one of"),
        (["--as", "ftrace", "--policy", "cfss"], "no policy cfss"),
    ):
        done = CliRunner().invoke(main, ["generate", str(text), "-o", str(tmp_path / "no"), *words])
        assert done.exit_code != 0
        assert message in done.output + str(done.exception)
    assert not (tmp_path / "no").exists()
    with pytest.raises(tk.errors.OutputError, match="is no workload text, so nothing is drawn"):
        tk.generate("fixtures/demo/slice-default.dat", tmp_path / "no", "ftrace", seed=3)


def test_the_lists_of_targets_agree() -> None:
    from tracekit.cli.generate import TARGETS as OFFERED

    assert set(OFFERED) == set(TARGETS) == {*LAYOUTS, *PROGRAMS, "parquet"}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_schedule_of_a_capture_comes_back(name: str, demo: Path, tmp_path: Path) -> None:
    trace = tk.read(demo)
    back = written(trace, name, tmp_path / "t")
    mine, theirs = (slices(t, False).drop("end_state") for t in (trace, back))
    # Of what runs first and last, records do not say when it began or ended.
    whole = min(mine.height, theirs.height) - 1
    assert 8000 < mine.height - 2 <= whole
    from_second = pl.col("ts_ns") - pl.col("ts_ns").first()
    mine, theirs = (rows[1:whole].with_columns(from_second) for rows in (mine, theirs))
    assert mine.drop("comm").equals(theirs.drop("comm"))
    # A name that changes while a task runs is not in every layout before it runs again.
    settled = pl.col("tid").cum_count().over("tid") > 2
    assert mine.filter(settled)["comm"].equals(theirs.filter(settled)["comm"])


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_schedule_that_is_written_begins_when_it_began(trace: tk.Trace, name: str, tmp_path: Path) -> None:
    """And not at 0: the span of the file is that of the recording. AIX counts from the start of the trace."""
    assert trace.start_ns is not None
    assert trace.start_ns > 10**9
    found = written(trace, name, tmp_path / "written")
    start = 0 if name == "trcrpt" else trace.start_ns
    assert found.start_ns == pytest.approx(start, abs=2_000_000)
    assert found.end_ns == pytest.approx(start + (trace.end_ns or 0) - trace.start_ns, abs=2_000_000)
