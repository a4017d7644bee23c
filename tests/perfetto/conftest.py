"""Makes a small consistent trace out of random numbers, in the shape of tracekit's tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pytest

EVENTS = {
    "ts_ns": pl.Int64, "cpu": pl.Int32, "seq": pl.UInt64, "kind": pl.String, "ctx_tid": pl.Int64,
    "ctx_pid": pl.Int64, "ctx_comm": pl.String, "tid": pl.Int64, "pid": pl.Int64, "comm": pl.String,
    "prio": pl.Int32, "next_tid": pl.Int64, "next_pid": pl.Int64, "next_comm": pl.String,
    "next_prio": pl.Int32, "state": pl.String, "state_raw": pl.String, "target_cpu": pl.Int32,
    "orig_cpu": pl.Int32, "reason": pl.String, "class": pl.String, "value": pl.Int64, "value2": pl.Int64,
    "name": pl.String, "irq_flags": pl.UInt16, "quality": pl.UInt16, "raw": pl.String,
}  # fmt: skip
SLICES = {
    "ts_ns": pl.Int64, "dur_ns": pl.Int64, "cpu": pl.Int32, "utid": pl.UInt32, "tid": pl.Int64,
    "pid": pl.Int64, "comm": pl.String, "prio": pl.Int32, "end_state": pl.String,
    "involuntary": pl.Boolean, "wake_ts_ns": pl.Int64, "run_delay_ns": pl.Int64, "sleep_ns": pl.Int64,
    "blocked": pl.Boolean, "waker_utid": pl.UInt32, "waker_cpu": pl.Int32, "prev_cpu": pl.Int32,
    "seq_in": pl.UInt64, "seq_out": pl.UInt64, "flags": pl.UInt16,
}  # fmt: skip
TASKS = {
    "utid": pl.UInt32, "tid": pl.Int64, "pid": pl.Int64, "comm": pl.String, "comm_first": pl.String,
    "exec_path": pl.String, "parent_utid": pl.UInt32, "is_idle": pl.Boolean, "idle_cpu": pl.Int32,
    "first_ts_ns": pl.Int64, "last_ts_ns": pl.Int64, "start_ts_ns": pl.Int64, "end_ts_ns": pl.Int64,
    "prio_min": pl.Int32, "prio_max": pl.Int32, "run_ns": pl.Int64, "nr_slices": pl.UInt64,
    "nr_involuntary": pl.UInt64, "nr_voluntary": pl.UInt64,
}  # fmt: skip
RUNQUEUE = {
    "ts_ns": pl.Int64, "cpu": pl.Int32, "nr_running": pl.Int32, "nr_waiting": pl.Int32, "flags": pl.UInt16,
}  # fmt: skip
LOSSES = {
    "cpu": pl.Int32, "ts_from_ns": pl.Int64, "ts_to_ns": pl.Int64, "count": pl.Int64, "cause": pl.String,
}  # fmt: skip

Schema = dict[str, type[pl.DataType]]


def table(columns: Schema, rows: list[dict[str, object]]) -> pl.DataFrame:
    """A table with all columns; what a row does not name is null."""
    return pl.DataFrame({name: [row.get(name) for row in rows] for name in columns}, schema=columns)


@dataclass
class Synthetic:
    """Tables as a trace has them."""

    slices: pl.DataFrame
    events: pl.DataFrame
    tasks: pl.DataFrame
    runqueue: pl.DataFrame = field(default_factory=lambda: table(RUNQUEUE, []))
    losses: pl.DataFrame = field(default_factory=lambda: table(LOSSES, []))
    metadata: dict[str, str] = field(default_factory=dict)


def machine(seed: int = 0, steps: int = 3000, tasks: int = 12, cpus: int = 3) -> Synthetic:
    """Tasks run for a while, sleep, and are woken by whoever runs on some CPU, at strictly growing times."""
    rng = np.random.default_rng(seed)
    now = 5_000_000
    running: list[tuple[int, int, int | None, int | None, int | None] | None] = [None] * cpus
    asleep = list(range(tasks))
    ready: list[tuple[int, int | None, int | None, int | None]] = []
    slices: list[dict[str, object]] = []
    events: list[dict[str, object]] = []
    queue: list[dict[str, object]] = []
    tid = lambda task: 0 if task is None else 100 + task  # noqa: E731

    def leave(cpu: int, state: str | None) -> None:
        task, start, wake, waker, waker_cpu = running[cpu]  # type: ignore[misc]
        slices.append({
            "ts_ns": start, "dur_ns": now - start, "cpu": cpu, "utid": cpus + task, "tid": tid(task),
            "pid": 100 + task // 2 * 2, "comm": f"task{task}", "prio": 100 + task, "end_state": state,
            "wake_ts_ns": wake, "waker_utid": None if waker is None else cpus + waker,
            "waker_cpu": waker_cpu, "flags": 2 if state is None else 0,
        })  # fmt: skip

    for _ in range(steps):
        now += int(rng.integers(1, 40_000))
        cpu = int(rng.integers(cpus))
        current = running[cpu]
        if asleep and rng.random() < 0.5:
            task = asleep.pop(int(rng.integers(len(asleep))))
            waker = current[0] if current else None
            ready.append((task, now, waker, cpu))
            events.append({
                "ts_ns": now, "cpu": cpu, "kind": "waking", "ctx_tid": tid(waker), "tid": tid(task),
                "comm": f"task{task}", "prio": 100 + task, "target_cpu": cpu,
            })  # fmt: skip
        else:
            if current:
                # A preempted task is never its own successor.
                state = ["sleeping", "blocked", "preempted"][int(rng.integers(3 if ready else 2))]
                leave(cpu, state)
                if state == "preempted":
                    ready.append((current[0], None, None, None))
                else:
                    asleep.append(current[0])
                running[cpu] = None
            if ready:
                task, wake, waker, waker_cpu = ready.pop(0)
                running[cpu] = (task, now, wake, waker, waker_cpu)
        busy = sum(r is not None for r in running)
        queue.append({"ts_ns": now, "cpu": cpu, "nr_running": int(running[cpu] is not None),
                      "nr_waiting": len(ready), "flags": 0})  # fmt: skip
        assert busy <= cpus
    now += 1
    for cpu in range(cpus):
        if running[cpu]:
            leave(cpu, None)
    table_of_tasks: list[dict[str, object]] = [
        {"utid": cpu, "tid": 0, "is_idle": True, "idle_cpu": cpu, "first_ts_ns": 0, "last_ts_ns": now}
        for cpu in range(cpus)
    ]
    table_of_tasks += [
        {"utid": cpus + k, "tid": tid(k), "pid": 100 + k // 2 * 2, "comm": f"task{k}", "is_idle": False,
         "first_ts_ns": 0, "last_ts_ns": now, "prio_min": 100 + k, "prio_max": 100 + k}
        for k in range(tasks)
    ]  # fmt: skip
    for seq, event in enumerate(events):
        event.update(seq=seq, quality=0)
    return Synthetic(
        table(SLICES, slices).sort("ts_ns", maintain_order=True),
        table(EVENTS, events),
        table(TASKS, table_of_tasks),
        table(RUNQUEUE, queue),
        metadata={"os": "linux", "kernel": "6.1.0", "arch": "x86_64", "nr_cpus": str(cpus)},
    )


@pytest.fixture(scope="session")
def synthetic() -> Callable[..., Synthetic]:
    """Makes a consistent random trace."""
    return machine
