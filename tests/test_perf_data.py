"""A perf.data from reading to a comparison: it starts with the first record that has a time of its own."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk

from .conftest import Run

CAPTURES = ("file/input.data", "pipe/input.data", "both-switch-records/input.data")


@pytest.fixture(scope="module")
def file(root: Path) -> Path:
    """A recording of perf sched record."""
    return root / "fixtures" / "perf-data" / "file" / "input.data"


@pytest.mark.parametrize("capture", CAPTURES)
def test_the_trace_starts_with_the_first_record_that_has_a_time(root: Path, capture: str) -> None:
    trace = tk.read(root / "fixtures" / "perf-data" / capture)
    made = trace.events.filter(pl.col("quality") & 16 != 0)
    own = trace.events.filter(pl.col("quality") & 16 == 0)["ts_ns"]
    assert made.height
    assert made["ts_ns"].unique().to_list() == [own.min()]
    assert trace.start_ns == own.min() > 0
    assert trace.end_ns is not None
    assert trace.end_ns - trace.start_ns < 60_000_000_000


def test_a_part_by_time_holds_records(file: Path) -> None:
    trace = tk.read(file)
    assert trace.start_ns is not None
    assert trace.end_ns is not None
    middle = (trace.end_ns - trace.start_ns) // 2
    part = trace.filter(start="0s", end=f"{middle}ns")
    assert 0 < part.events.height < trace.events.height


def test_switch_records_beside_samples_leave_no_gaps(root: Path) -> None:
    trace = tk.read(root / "fixtures" / "perf-data" / "both-switch-records" / "input.data")
    codes = trace.diagnostics["code"].cast(pl.String).to_list()
    assert "duplicate" in codes
    assert "switch-mismatch" not in codes
    # Every task that was recorded comes back: its slices begin where perf says that it came in.
    came = trace.events.filter((pl.col("kind").cast(pl.String) == "switch") & pl.col("tid").is_null())
    begins = set(trace.slices["ts_ns"])
    assert came.height
    assert set(came["ts_ns"]) <= begins


def test_the_command_line_compares_policies_on_it(tracekit: Run, file: Path) -> None:
    done = tracekit("compare", file, "--policy", "cfs:wakeup_preemption=off", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
