"""States that a report prints as numbers against those of the plain report, and of the capture itself."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk

from ..peers import peer

ROOT = Path(__file__).parents[2]
CAPTURES = (
    "fixtures/demo/slice-default.dat",
    "testdata/lab/5.10/callpipe-default-batch.dat",
    "testdata/corpus/trace.dat/lisa_sched_load.dat",
    "testdata/corpus/trace.dat/kinmax_trace_fifo.dat",
    "testdata/corpus/trace.dat/elainecole.dat",
)
#: Kernel 4.14 writes places in place of bits, which the plain report does not know.
WRONG_IN_PLAIN = {"testdata/corpus/trace.dat/elainecole.dat"}


def switches(source: Path | list[str]) -> pl.DataFrame:
    """Who leaves in which state."""
    trace = tk.read(source if isinstance(source, Path) else io.BytesIO("\n".join(source).encode() + b"\n"))
    events = trace.events.filter(pl.col("kind").cast(pl.String) == "switch")
    return events.select("ts_ns", "tid", "next_tid", pl.col("state").cast(pl.String))


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("layout", [[], ["-l"]], ids=["plain", "latency"])
def test_states_of_a_raw_report_are_those_of_the_plain_one(capture: str, layout: list[str]) -> None:
    file = ROOT / capture
    if not file.is_file():
        pytest.skip("no testdata/ (make testdata unpacks it)")
    plain = switches(peer("trace-cmd", "report", "-t", file))
    raw = switches(peer("trace-cmd", "report", "-t", "-R", *layout, file))
    assert plain.height
    assert raw.equals(switches(file))
    if capture in WRONG_IN_PLAIN:
        return
    # The plain report prints R for a task that was preempted, and has one letter for the two states
    # of an ended task.
    less = pl.col("state").replace({"preempted": "runnable", "zombie": "dead"})
    assert raw.with_columns(less).equals(plain.with_columns(less))


@pytest.mark.parametrize("records", [100, 1000, 5000])
def test_a_number_late_in_the_text_decides_for_all(records: int) -> None:
    line = (
        "   a-{0}  [000] {1}.{2:06d}: sched_switch: prev_comm=a prev_pid={0} prev_prio=120 prev_state={3}"
        " next_comm=b next_pid={4} next_prio=120"
    )
    lines = ["cpus=1"]
    for i in range(records):
        here, there = (1, 2) if i % 2 == 0 else (2, 1)
        # 64 is a dead task where 2048 is a preempted one, and a parked one on newer kernels.
        number = 2048 if i >= records - 4 else 64 if i == 1 else 1
        lines.append(line.format(here, 10, i, number, there))
    states = switches(lines)["state"]
    assert states[1] == "dead"
    assert (states == "preempted").sum() == 4
