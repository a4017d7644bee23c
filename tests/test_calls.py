"""Messages that recorded read and write calls show: none of them is guessed."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk

ROUNDS = 20


class Text:
    """ftrace text of one CPU, a record a line."""

    def __init__(self) -> None:
        self.us = 1_000
        self.task = "idle", 0
        self.lines = ["# tracer: nop", "#"]

    def say(self, what: str, flags: str = "....") -> None:
        """One record of the task that runs."""
        name, tid = self.task
        self.lines.append(f"{name:>16}-{tid:<7} [000] {flags} {self.us / 1e6:.6f}: {what}")

    def run(self, us: int) -> None:
        """Time goes by."""
        self.us += us

    def to(self, task: tuple[str, int], state: str) -> None:
        """A switch."""
        (a, i), (b, j) = self.task, task
        a, b = ("swapper/0" if name == "idle" else name for name in (a, b))
        self.say(
            f"sched_switch: prev_comm={a} prev_pid={i} prev_prio=120 prev_state={state} ==> "
            f"next_comm={b} next_pid={j} next_prio=120",
            "d...",
        )
        self.task = task

    def wakes(self, task: tuple[str, int], flags: str = "d...") -> None:
        """A wakeup."""
        self.say(f"sched_waking: comm={task[0]} pid={task[1]} prio=120 target_cpu=000", flags)

    def write(self, file: int, wakes: tuple[str, int] | None = None) -> None:
        """A write of 64 bytes, and whom it wakes."""
        self.say(f"sys_write(fd: {file:x}, buf: 7ffe0000, count: 40)")
        self.run(2)
        if wakes:
            self.wakes(wakes)
        self.run(2)
        self.say("sys_write -> 0x40")

    def read(self, file: int) -> None:
        """The begin of a read."""
        self.say(f"sys_read(fd: {file:x}, buf: 7ffe0000, count: 40)")
        self.run(2)

    def has_read(self) -> None:
        """Its end."""
        self.run(2)
        self.say("sys_read -> 0x40")


IDLE, SOURCE, SERVER, SINK = ("idle", 0), ("source", 11), ("server", 12), ("sink", 13)


def recording(folder: Path, *, calls: bool) -> Path:
    """A source sends two messages at a time to a server, which passes each on; the second wakes nobody."""
    text = Text()
    for n in range(ROUNDS):
        first, second = (1_000, 3_000) if n % 3 else (2_600, 1_400)
        text.task = IDLE
        text.wakes(SOURCE, "d.h.")
        text.run(5)
        text.to(SOURCE, "R")
        text.run(100)
        text.write(4, SERVER)
        text.run(20)
        text.write(4)
        text.run(5)
        text.to(SERVER, "S")
        text.has_read()
        text.run(first)
        text.write(6, SINK)
        text.read(3)
        text.has_read()
        text.run(second)
        text.write(6)
        text.read(3)
        text.to(SINK, "S")
        text.has_read()
        text.run(500)
        text.read(5)
        text.has_read()
        text.run(200)
        text.read(5)
        text.to(IDLE, "S")
        text.run(5_000)
    lines = [line for line in text.lines if calls or "sys_" not in line]
    file = folder / ("calls.txt" if calls else "plain.txt")
    file.write_text("\n".join(lines) + "\n")
    return file


def work(programs: tk.Programs, name: str) -> list[float]:
    """Lengths of the pieces of work of a task, ms, to a tenth."""
    op = pl.col("op").cast(pl.String)
    runs = programs.table.filter((pl.col("comm").cast(pl.String) == name) & (op == "run"))
    return [round(ns / 1e6, 1) for ns in runs["dur_ns"].to_list() if ns > 150_000]


def test_each_message_is_the_one_that_was_written(tmp_path: Path) -> None:
    programs = tk.Programs(tk.read(recording(tmp_path, calls=True)))
    row = programs.inferred.filter(pl.col("name") == "unobserved messages").to_dicts()
    assert [(r["value"], r["n"]) for r in row] == [(2 * ROUNDS, 4 * ROUNDS)]
    assert "the recorded read and write calls show them" in row[0]["how"]
    served = work(programs, "server")
    assert {(a, b) for a, b in zip(served[::2], served[1::2], strict=True)} == {(1.0, 3.0), (2.6, 1.4)}
    assert set(work(programs, "sink")) == {0.5, 0.2}
    sends = programs.table.filter(pl.col("op").cast(pl.String) == "send")
    assert set(sends["evidence"].cast(pl.String)) == {"recorded"}


def test_an_end_without_a_name_is_that_of_the_call(tmp_path: Path) -> None:
    """LTTng before 2.6 names a call only where it begins; ftrace ends a raw one with its number."""
    named = recording(tmp_path, calls=True)
    raw = tmp_path / "raw.txt"
    raw.write_text(re.sub(r"sys_\w+ -> 0x40", "sys_exit: NR 0 = 64", named.read_text()))
    one, other = (tk.Programs(tk.read(file)) for file in (named, raw))
    assert work(other, "server") == work(one, "server")
    row = other.inferred.filter(pl.col("name") == "unobserved messages").to_dicts()
    assert "the recorded read and write calls show them" in row[0]["how"]


def test_without_the_calls_nothing_says_so(tmp_path: Path) -> None:
    programs = tk.Programs(tk.read(recording(tmp_path, calls=False)))
    told = programs.inferred.filter(pl.col("name").str.contains("messages"))["how"].to_list()
    assert told
    assert not any("calls show" in how for how in told)


@pytest.mark.parametrize("name", ["sys-callpipe-fifo-batch", "sys-callpipe-default-batch-rep2"])
def test_the_lab_s_searches_are_all_there(testdata: Path, name: str) -> None:
    """150 searches of 20 messages each, as the workload's source says."""
    programs = tk.Programs(tk.read(testdata / "lab2" / "6.12-2cpu" / f"{name}.dat"))
    row = programs.inferred.filter(pl.col("name") == "unobserved messages").to_dicts()
    assert [r["n"] for r in row] == [3_000]
    assert "the recorded read and write calls show them" in row[0]["how"]
