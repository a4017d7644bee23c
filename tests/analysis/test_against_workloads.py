"""Figures from traces against what the traced programs measured of themselves."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk

ROOT = Path(__file__).parent.parent.parent
LAB = ROOT / "testdata" / "lab"


@pytest.fixture(scope="module")
def demo() -> tk.Trace:
    return tk.read(ROOT / "fixtures" / "demo" / "slice-default.dat")


def test_mean_slice_is_the_one_that_the_spinners_counted(demo: tk.Trace) -> None:
    spin = tk.analysis.slices.summary(demo.slices).row(by_predicate=pl.col("group") == "spin", named=True)
    # CPU time and involuntary switches over all spinners, from getrusage; see fixtures/demo/README.md.
    assert spin["mean_per_involuntary_ns"] == pytest.approx(2812.8e6 / 3171, rel=0.02)
    assert spin["nr_involuntary"] == pytest.approx(3171, abs=16)


def test_tables_of_one_trace_agree(demo: tk.Trace) -> None:
    cut = tk.analysis.slices.summary(demo.slices, by="all").row(0, named=True)
    tasks = demo.tasks.filter(~pl.col("is_idle"))
    assert cut["run_ns"] == tasks["run_ns"].sum() == demo.cpus["busy_ns"].sum()
    assert cut["nr_involuntary"] == tasks["nr_involuntary"].sum()
    queue = tk.analysis.runqueue.summary(demo.runqueue, demo.end_ns).row(0, named=True)
    waits = tk.analysis.latency.samples(demo.slices, demo.states)["run_delay_ns"].sum()
    # Little's law: tasks running or waiting, integrated over time, is the sum of all run times and
    # run delays.
    assert queue["mean"] * queue["span_ns"] == pytest.approx(cut["run_ns"] + waits, rel=1e-3)


def test_response_times_are_those_that_the_tasks_measured() -> None:
    log = LAB / "6.1" / "mixed-default.log"
    if not log.exists():
        pytest.skip("no testdata/lab (make testdata)")
    pattern = r"^# response n=(\d+) mean_us=([\d.]+) .* p50_us=([\d.]+) .* p95_us=([\d.]+)"
    found = re.search(pattern, log.read_text(), re.M)
    assert found is not None
    trace = tk.read(log.with_suffix(".dat"))
    responses = tk.analysis.response.samples(trace.slices, trace.states, trace.end_ns)
    # Not its start, and not its end: a task measures neither.
    start = pl.col("end_ts_ns") == pl.col("end_ts_ns").min().over("utid")
    mine = pl.col("comm").str.starts_with("inter") & (pl.col("end_state") == "sleeping") & ~start
    inter = responses.filter(mine).with_columns(pl.lit("inter").alias("group"))
    table = tk.analysis.uncertainty.describe_censored(inter, "response_ns", ["group"]).row(0, named=True)
    n, *own_us = map(float, found.groups())
    assert table["n"] == n
    for column, own in zip(("mean_ns", "p50_ns", "p95_ns"), own_us, strict=True):
        assert table[column] == pytest.approx(own * 1e3, rel=0.01), column
