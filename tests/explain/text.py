"""Small ftrace texts, written by hand in tests."""

from __future__ import annotations

from pathlib import Path

import tracekit as tk

#: time in us, CPU, who runs (name-tid), flags, the record
Line = tuple[float, int, str, str, str]


def switch(prev: str, state: str, to: str, prio: int = 120, to_prio: int = 120) -> str:
    """A switch record; tasks are `name:tid`."""
    return f"sched_switch: {prev} [{prio}] {state} ==> {to} [{to_prio}]"


def waking(task: str, cpu: int = 0, prio: int = 120) -> str:
    """A waking record."""
    comm, tid = task.split(":")
    return f"sched_waking: comm={comm} pid={tid} prio={prio} target_cpu={cpu:03d}"


def trace_of(lines: list[Line], folder: Path) -> tk.Trace:
    """The trace of an ftrace text."""
    rows = ["# tracer: nop", "#"]
    for at, cpu, task, flags, record in lines:
        rows.append(f"{task:>16}   [{cpu:03d}] {flags}   {at / 1e6:12.6f}: {record}")
    file = folder / "trace.txt"
    file.write_text("\n".join(rows) + "\n")
    return tk.read(file)
