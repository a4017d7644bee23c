"""Replays in which each task is where it was recorded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tracekit as tk
from tracekit import _core
from tracekit.whatif.basis import unrecorded

#: Three that compute, some that sleep, a pair, on two CPUs: balancing moves tasks about.
TEXT = "policy: eevdf\nuntil: 2000\ncpus: 2\nH*3: R∞\nT*5: (R1.7 S5)*\nA: (R0.5 P(b) R0.01 W(a))*\nB: (W(b) R0.2 P(a) R0.01)*"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> tk.Trace:
    place = tmp_path_factory.mktemp("recorded")
    (place / "a.wl").write_text(TEXT)
    tk.generate(place / "a.wl", place / "a.txt", to="ftrace")
    return tk.read(place / "a.txt")


def by_cpu(trace: tk.Trace) -> pl.DataFrame:
    """CPU time in ms of each task on each CPU."""
    return (
        trace.slices.filter(pl.col("tid") > 0)
        .group_by("tid", "cpu")
        .agg(ms=pl.col("dur_ns").sum() / 1e6)
        .sort("tid", "cpu")
    )


def off(trace: tk.Trace, replay: tk.Trace) -> float:
    """CPU time that tasks spent on another CPU than recorded, or not at all, in ms."""
    both = by_cpu(trace).join(by_cpu(replay), on=["tid", "cpu"], how="full", coalesce=True).fill_null(0)
    return float((both["ms"] - both["ms_right"]).abs().sum())


def test_tasks_are_where_they_were(trace: tk.Trace) -> None:
    placed = tk.Programs(trace, placement="trace")
    steps = placed.table.filter(pl.col("op").cast(pl.String) == "place")
    assert steps.height >= 2, "tasks do not move"
    assert placed.run("eevdf").metadata["replay.placement"] == "trace"
    # Under its own policy and under one that would arrange them otherwise.
    assert off(trace, placed.run("eevdf")) < 100
    own = tk.Programs(trace).run("rr:quantum=5ms")
    assert "replay.placement" not in own.metadata
    assert off(trace, placed.run("rr:quantum=5ms")) < off(trace, own)


def test_the_same_programs_without_places(trace: tk.Trace) -> None:
    placed, plain = tk.Programs(trace, placement="trace"), tk.Programs(trace)

    def work(programs: tk.Programs) -> pl.DataFrame:
        runs = programs.table.filter(pl.col("op").cast(pl.String).is_in(["run", "run_kernel"]))
        # The first three have no end.
        return runs.filter(pl.col("tid") > 3).group_by("tid").agg(pl.col("dur_ns").sum()).sort("tid")

    assert work(placed).equals(work(plain))


def test_a_trace_is_read_once_for_every_placement(trace: tk.Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for messages takes seconds: whatever else is asked takes the programs from one reading."""
    made: list[str] = []
    of_core = _core.Reading

    def counted(*args: Any, **options: Any) -> _core.Reading:
        made.append("reading")
        return of_core(*args, **options)

    monkeypatch.setattr("tracekit.whatif.reconstructed._core.Reading", counted)
    fresh = trace.with_metadata(trace.metadata)
    for placement, identity in (("auto", None), ("trace", None), ("model", "cfs")):
        tk.Programs(fresh, placement=placement, identity=identity)
    assert made == ["reading"]
    # A stated tick is another reading.
    tk.Programs(fresh, hz=100)
    assert made == ["reading"] * 2


def test_who_says_where_a_task_may_run_is_heard(trace: tk.Trace) -> None:
    run = tk.replay(trace, "eevdf", placement="trace", scenario={"H1": {"cpus": "0"}})
    cpus = run.slices.filter(pl.col("comm").cast(pl.String) == "H1")["cpu"].unique().to_list()
    assert cpus == [0]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"placement": "elsewhere"}, "placement 'elsewhere': expected auto, model, trace"),
        ({"placement": "trace", "cpus": 3}, "of 2: with another number of CPUs"),
    ],
)
def test_what_cannot_be_is_refused(trace: tk.Trace, asked: dict[str, object], message: str) -> None:
    with pytest.raises(tk.ReplayError, match=message):
        tk.replay(trace, "eevdf", **asked)  # type: ignore[arg-type]


#: Tasks that wake another one and go on: it preempts them where wakeups do not look for an idle CPU.
STAYING = (
    "policy: cfs:shared_cache=off\nuntil: 2000\ncpus: 2\nW: (R0.3 P(x) R1 S2)*\nX: (W(x) R0.2)*\n"
    "V: (R0.2 P(y) R1 S3)*\nY: (W(y) R0.3)*"
)


def test_a_machine_that_places_otherwise_is_replayed_where_it_was_recorded(tmp_path: Path) -> None:
    (tmp_path / "a.wl").write_text(STAYING)
    # Texts do not name the policy: it is taken for `cfs`, which looks for an idle CPU.
    tk.generate(tmp_path / "a.wl", tmp_path / "a.txt", to="ftrace")
    trace = tk.read(tmp_path / "a.txt")
    auto, model, placed = (
        tk.replay(trace, "cfs", placement=placement) for placement in ("auto", "model", "trace")
    )
    assert auto.slices.equals(placed.slices)
    assert auto.metadata["replay.placement"] == "trace"
    assert "replay.placement" not in model.metadata

    def preempted(run: tk.Trace) -> int:
        return run.slices.filter("involuntary").height

    assert preempted(model) < preempted(trace) / 2
    assert preempted(auto) == pytest.approx(preempted(trace), rel=0.02)
    said = " came while another CPU idled"
    assert [said in " ".join(unrecorded(run)) for run in (auto, model, placed)] == [True, False, False]
    with pytest.raises(
        tk.ReplayError, match=r"how this machine places woken tasks is not modelled.*of 2: with"
    ):
        tk.replay(trace, "cfs", cpus=3)
    assert tk.replay(trace, "cfs", cpus=3, placement="model").cpus.height == 3


def test_a_policy_that_places_as_the_machine_did_is_left_to_it(trace: tk.Trace, tmp_path: Path) -> None:
    assert "replay.placement" not in tk.replay(trace, "eevdf").metadata
    # The same machine, whose recording says under which policy it was made.
    (tmp_path / "a.wl").write_text(STAYING)
    tk.generate(tmp_path / "a.wl", tmp_path / "a.parquet", to="parquet")
    known = tk.read(tmp_path / "a.parquet")
    assert "shared_cache=off" in known.metadata["replay.policy"]
    assert "replay.placement" not in tk.replay(known, "cfs:shared_cache=off").metadata


#: Tasks that may use one CPU of two, and preempt each other there while the other one idles.
BOUND = """policy: eevdf
until: 3000
cpus: 2
hz: 1000
H cpus=0: (R10)*
A*2 cpus=0: (R~uniform(0.1,0.3) S~uniform(2,9))*
C cpus=1: (R~uniform(0.1,0.3) S~uniform(9,20))*
"""


def test_what_the_machine_says_of_tasks_holds_for_the_replay_that_judges(tmp_path: Path) -> None:
    """The preemptions beside an idle CPU were laid to the machine's placement, which is the policy's own."""
    (tmp_path / "a.wl").write_text(BOUND)
    tk.generate(tmp_path / "a.wl", tmp_path / "a.txt", to="ftrace")
    alone = tk.replay(tk.read(tmp_path / "a.txt"), "eevdf")
    assert alone.metadata["replay.placement"] == "trace"
    names = alone.tasks.filter(pl.col("tid") > 0).select("tid", pl.col("comm").cast(pl.String)).rows()
    rows = "".join(
        f'  {{tid = {tid}, pid = {tid}, comm = "{comm}", cpus = "{int(comm == "C")}"}},\n'
        for tid, comm in names
    )
    kernel = 'schema = 1\n[kernel]\nos = "linux"\nrelease = "6.12.1"\nhz = 1000\n'
    machine = "[machine]\ncpus = [{cpu = 0}, {cpu = 1}]\ntasks = [\n"
    (tmp_path / "a.machine.toml").write_text(f"{kernel}{machine}{rows}]\n")
    trace = tk.read(tmp_path / "a.txt")
    run = tk.replay(trace, "eevdf")
    assert "replay.placement" not in run.metadata
    assert off(trace, run) < 0.01 * trace.slices["dur_ns"].sum() / 1e6


def test_a_workload_text_has_no_recorded_places(tmp_path: Path) -> None:
    (tmp_path / "a.wl").write_text(TEXT)
    with pytest.raises(tk.ReplayError, match="placement 'trace': for recorded traces"):
        tk.replay(tmp_path / "a.wl", "eevdf", placement="trace")


def test_the_commands_take_it(root: Path) -> None:
    demo = root / "fixtures" / "demo" / "slice-default.dat"
    for words in (["calibrate"], ["replay", "--policy", "fifo"], ["compare", "--policy", "fifo", "--quick"]):
        command = [sys.executable, "-m", "tracekit", words[0], str(demo), *words[1:], "--placement", "trace"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode in (0, 1), done.stderr
        assert done.stdout.strip()


def test_rows_are_not_trusted_where_the_caller_gave_the_places(trace: tk.Trace) -> None:
    own, placed = (tk.compare(trace, "fifo", runs=3, placement=p) for p in ("model", "trace"))
    assert own.poor is None
    assert placed.poor is not None
    assert "--placement trace" in placed.poor
    marks = placed.table["trust"].unique().to_list()
    assert "trusted" not in marks
    assert "with care" in marks
    care = placed.table.filter(trust="with care")["trust_why"]
    assert care.str.contains("each task is put where it was recorded").all()


def test_doctor_says_when_the_arrangement_is_what_differs(
    trace: tk.Trace,
) -> None:
    from tracekit.whatif import fitness

    placed = tk.calibrate(trace, "eevdf:base_slice=1ms", placement="trace")
    own = tk.calibrate(trace, "eevdf:base_slice=1ms")
    passing = [found.filter(result="pass").height for found in (own, placed)]
    assert passing[0] < passing[1]
    said = fitness._where_recorded(trace, "eevdf:base_slice=1ms", 60.0, passing[0])
    assert f"(--placement trace) {passing[1]} of " in said
    assert fitness._where_recorded(trace, "eevdf:base_slice=1ms", 60.0, passing[1]) == ""
