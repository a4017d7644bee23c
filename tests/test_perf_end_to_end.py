"""The most common Linux capture, a perf.data, through every command, beside what its workload
measured of itself."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk

Run = Callable[..., subprocess.CompletedProcess[str]]

#: What the spinners found out about themselves by getrusage.
RUN_NS, INVOLUNTARY = 1_850_300_000, 2551


@pytest.fixture(scope="session")
def capture(root: Path) -> Path:
    return root / "fixtures" / "demo" / "slice-default.perf.data.xz"


@pytest.fixture(scope="session")
def perf_trace(capture: Path) -> tk.Trace:
    return tk.read(capture)


def test_the_trace_begins_with_its_first_record_in_time(perf_trace: tk.Trace) -> None:
    start, end = perf_trace.start_ns, perf_trace.end_ns
    assert start is not None
    assert end is not None
    assert 2_000_000_000 < end - start < 2_200_000_000
    cpu = perf_trace.cpus.row(0, named=True)
    assert cpu["busy_ns"] + cpu["idle_ns"] + cpu["unknown_ns"] == end - start
    window = perf_trace.filter(start="1s", end="1.1s").slices
    assert 100 < window.height < 1000
    assert window["ts_ns"].min() >= start + 1_000_000_000


def test_slices_are_what_the_program_measured(perf_trace: tk.Trace) -> None:
    row = tk.analysis.slices.summary(perf_trace.slices).filter(group="spin").row(0, named=True)
    assert row["nr_involuntary"] == pytest.approx(INVOLUNTARY, rel=0.02)
    assert row["run_ns"] == pytest.approx(RUN_NS, rel=0.02)


def test_the_machine_stands_beside_it(perf_trace: tk.Trace) -> None:
    machine = perf_trace.machine
    assert machine is not None
    assert (machine.hz, machine.tunables["latency_ns"]) == (250, 6_000_000)
    assert tk.Programs(perf_trace).run("cfs:form=6.1").metadata["hz"] == "250"


def test_every_command_takes_it(capture: Path, tracekit: Run, tmp_path: Path) -> None:
    info = tracekit("info", capture).stdout
    assert info.splitlines()[0].startswith(
        "Trace slice-default.perf.data.xz: perf-data, linux 6.1.0-50-cloud-amd64"
    )
    assert "HZ                    250" in info
    rows = json.loads(tracekit("slices", capture, "--from", "1s", "--to", "1.5s", "--json").stdout)["rows"]
    assert {"spin", "waker"} <= {r["group"] for r in rows}
    doctor = tracekit("doctor", capture)
    # The verdict is that of the calibration: each metric that fails is named.
    found = json.loads(tracekit("calibrate", capture, "--json").stdout)["rows"]
    judged = {r["metric"]: r["result"] for r in found}
    failed = [name for name, result in judged.items() if result == "fail"]
    assert len(failed) <= 3
    (verdict,) = doctor.stdout.splitlines()[:1]
    assert all(name in verdict for name in failed) or "well" in verdict, verdict
    assert sum(r != "not measured" for r in judged.values()) >= 14
    page = tmp_path / "report.html"
    compared = tracekit("compare", capture, "--policy", "rr:quantum=10ms", "--quick", "-o", page)
    assert compared.returncode == 0, compared.stderr
    assert "no slices in this window" not in page.read_text()


def test_it_says_what_the_text_of_the_same_run_says(perf_trace: tk.Trace, testdata: Path) -> None:
    text = testdata / "lab" / "6.1-perf" / "slice-default.perf-script.txt"
    if not text.is_file():
        pytest.skip("no testdata/lab (make testdata unpacks it)")
    printed = tk.read(text)
    columns = ["ts_ns", "dur_ns", "cpu", "tid"]
    assert printed.slices.select(columns).equals(perf_trace.slices.select(columns))
    errors = []
    for trace in (perf_trace, printed):
        run = tk.Programs(trace, hz=250).run("cfs:form=6.1")
        replayed = tk.analysis.slices.summary(run.slices).filter(pl.col("group") == "spin")
        errors.append(replayed["mean_per_involuntary_ns"].item() / (RUN_NS / INVOLUNTARY) - 1)
    # Before timers were recognised in text, the second was off by a factor of three.
    assert abs(errors[0]) < 0.12
    assert abs(errors[1]) < 0.2
