"""Derived tables against the same figures computed line by line from `trace-cmd report`, which
reads the file on its own."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk

from ..peers import compare

DATA = Path(__file__).parents[2] / "testdata"
CAPTURES = (
    "lab/6.1/slice-default.dat",
    "lab/6.1/nicefork-forkexec-hog19.dat",
    "lab/6.1-smp2/callpipe-default-batch.dat",
    "lab/6.1-smp2/slice-default.dat",
    "lab/6.1-smp2/nicefork-forkexec-hog19.dat",
    "lab/6.12/mixed-default.dat",
    "lab/5.10/callpipe-default-batch.dat",
    "corpus/trace.dat/elainecole.dat",
    "corpus/trace.dat/lisa_sched_load.dat",
    "corpus/trace.dat/kinmax_trace_fifo.dat",
)
LINE = re.compile(r"\s*.*-\d+\s+\[(\d+)\]\s+(?:\S+\s+)?(\d+)\.(\d{9}):\s+(\S+):\s*(.*)$")
FIELD = re.compile(r"(\w+)=(.*?)(?= \w+=|$)")


@dataclass
class Figures:
    """What one thread did."""

    run_ns: int = 0
    slices: int = 0
    involuntary: int = 0
    voluntary: int = 0
    delays: list[int] = field(default_factory=list)


class Reference:
    """The definitions of `docs/definitions.md`, applied record by record."""

    def __init__(self) -> None:
        self.tasks: dict[object, Figures] = defaultdict(Figures)
        self.running: dict[int, tuple[object, int]] = {}
        self.first: dict[int, int] = {}
        self.ready: dict[object, int] = {}
        self.left: dict[object, int] = {}
        self.early: set[object] = set()
        self.last = 0

    def record(self, cpu: int, ts: int, event: str, payload: str) -> None:
        self.first.setdefault(cpu, ts)
        self.last = max(self.last, ts)
        if event in {"sched_waking", "sched_wakeup", "sched_wakeup_new"}:
            fields = dict(FIELD.findall(payload))
            tid = int(fields["pid"], 0)
            if fields.get("success", "1") == "0":
                return
            if any(tid == on for on, _ in self.running.values()):
                self.early.add(tid)
            else:
                self.ready.setdefault(tid, ts)
        elif event == "sched_switch":
            fields = dict(FIELD.findall(payload))
            self.switch(cpu, ts, fields)

    def switch(self, cpu: int, ts: int, fields: dict[str, str]) -> None:
        tids = int(fields["prev_pid"], 0), int(fields["next_pid"], 0)
        before, after = (tid or ("idle", cpu) for tid in tids)
        on, since = self.running.get(cpu, (before, self.first[cpu]))
        assert on == before, "the capture lacks a switch"
        task = self.tasks[before]
        task.run_ns += ts - since
        task.slices += 1
        # The low byte is 0 for a task that could have gone on.
        runnable = int(fields["prev_state"], 0) & 0xFF == 0
        task.involuntary += runnable
        task.voluntary += not runnable
        self.ready.pop(before, None)
        if runnable:
            self.ready[before] = ts
        self.left[before] = ts
        ready = self.ready.pop(after, None)
        if ready is None and after in self.early:
            ready = self.left.get(after)
        if ready is not None and isinstance(after, int):
            self.tasks[after].delays.append(ts - ready)
        self.early.discard(after)
        self.running[cpu] = (after, ts)

    def end(self) -> None:
        for on, since in self.running.values():
            self.tasks[on].run_ns += self.last - since
            self.tasks[on].slices += 1


@pytest.fixture(params=CAPTURES)
def capture(request: pytest.FixtureRequest) -> Path:
    path = DATA / request.param
    if not path.exists():
        pytest.skip("testdata is absent: captures are not part of the repository")
    return path


def test_figures_of_every_task(capture: Path) -> None:
    trace = tk.read(capture)
    sums = trace.tasks.group_by("tid", "idle_cpu").agg(
        pl.col("run_ns", "nr_slices", "nr_involuntary", "nr_voluntary").sum()
    )
    tasks = {row["tid"] or ("idle", row["idle_cpu"]): row for row in sums.iter_rows(named=True)}
    delays = dict(
        trace.slices.sort("ts_ns").group_by("tid").agg(pl.col("run_delay_ns").drop_nulls()).iter_rows()
    )

    def check(lines: list[str]) -> None:
        reference = Reference()
        for line in lines:
            found = LINE.match(line)
            if found:
                cpu, sec, ns, event, payload = found.groups()
                reference.record(int(cpu), int(sec) * 10**9 + int(ns), event, payload)
        reference.end()
        same_figures(reference, tasks, delays, trace)

    compare(check, "trace-cmd", "report", "-t", "-R", "-i", capture)


def same_figures(
    reference: Reference, tasks: dict[object, dict[str, int]], delays: dict[int, list[int]], trace: tk.Trace
) -> None:
    """Fail at the first figure that differs."""
    assert len(reference.tasks) > 3
    assert {key for key, row in tasks.items() if row["nr_slices"]} == reference.tasks.keys()
    for key, figures in reference.tasks.items():
        row = tasks[key]
        assert row["run_ns"] == figures.run_ns, key
        if isinstance(key, int):
            assert row["nr_slices"] == figures.slices, key
            assert (row["nr_involuntary"], row["nr_voluntary"]) == (figures.involuntary, figures.voluntary), (
                key
            )
            assert delays[key] == figures.delays, key
    cpus = trace.cpus.select("busy_ns", "idle_ns", "unknown_ns").sum().row(0)
    # Every CPU's time begins with the trace; what ran before its first record is unknown.
    begin = min(reference.first.values())
    assert sum(cpus) == (reference.last - begin) * len(reference.first)
    assert cpus[2] == sum(first - begin for first in reference.first.values())
