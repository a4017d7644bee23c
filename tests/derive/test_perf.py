"""Slices and run delays against `perf sched timehist` and `perf sched latency` on the same captures.

perf's own rules differ from tracekit's in ways that `docs/definitions.md` lists; each is applied
here to tracekit's rows, and nothing else is: what is left must be equal to the last digit that
perf prints.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

import tracekit as tk

LAB = Path(__file__).parents[2] / "testdata" / "lab"
CAPTURES = (
    "6.1-perf/slice-default",
    "6.1-perf/callpipe-default-batch",
    "6.1-perf/callpipe-fifo-batch",
    "6.1-perf/nicefork-fork-hog19",
    "6.1-perf/forkwait-0",
    "6.1-perf/yield-other",
    "6.12-perf/slice-default",
    "6.12-perf/callpipe-default-batch",
    "6.12-perf/nicefork-fork-hog19",
    "6.12-perf/yield-other",
)
OPEN_START, OPEN_END = 1, 2


def perf(*arguments: str) -> str:
    """The output of perf; skips where there is none."""
    program = shutil.which("perf")
    if program is None:
        pytest.skip("perf is not installed")
    done = subprocess.run([program, *arguments], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(
            f"this perf does not read the capture: {done.stderr.decode(errors='replace').strip()[:200]}"
        )
    return done.stdout.decode(errors="replace")


def perf_version() -> tuple[int, int]:
    found = re.search(r"(\d+)\.(\d+)", perf("--version"))
    return (int(found[1]), int(found[2])) if found else (0, 0)


@pytest.fixture(params=CAPTURES)
def capture(request: pytest.FixtureRequest) -> Path:
    path = LAB / f"{request.param}.perf.data"
    if not path.exists():
        pytest.skip("testdata is absent: the captures of the lab are not part of the repository")
    return path


@cache
def slices_of(path: Path) -> pl.DataFrame:
    """All slices, each with the end of the task's slice before it and the state in which that ended."""
    before = pl.col("end_ns", "end_state").shift().over("utid", order_by="ts_ns")
    return (
        tk.read(path)
        .slices.with_columns(
            (pl.col("ts_ns") + pl.col("dur_ns")).alias("end_ns"),
            (pl.col("flags") & OPEN_START != 0).alias("open_start"),
            (pl.col("flags") & OPEN_END != 0).alias("open_end"),
        )
        .with_columns(before.name.prefix("last_"))
    )


class Row(NamedTuple):
    """One line of timehist: a task leaves a CPU. Times in microseconds, cut, as perf prints them."""

    ts: int
    cpu: int
    tid: int
    wait: int
    delay: int
    run: int


TIMEHIST = re.compile(
    r"\s*(\d+)\.(\d{6}) \[(\d+)\]\s+(.*?)\s+(\d+)\.(\d{3})\s+(\d+)\.(\d{3})\s+(\d+)\.(\d{3})\s*$"
)


def timehist(path: Path) -> Iterator[Row]:
    for line in perf("sched", "timehist", "-i", str(path)).splitlines():
        found = TIMEHIST.match(line)
        if found is None or found[4] == "<idle>":
            continue
        sec, usec, cpu, task, *figures = found.groups()
        tid = re.search(r"\[(-?\d+)(?:/-?\d+)?\]$", task)
        assert tid, f"a task without a number: {line}"
        wait, delay, run = (
            int(ms) * 1000 + int(us) for ms, us in zip(figures[::2], figures[1::2], strict=True)
        )
        yield Row(int(sec) * 10**6 + int(usec), int(cpu), int(tid[1]), wait, delay, run)


def test_timehist(capture: Path) -> None:
    ended = slices_of(capture).filter(~pl.col("open_end")).sort("seq_out")
    ours = []
    for s in ended.iter_rows(named=True):
        # timehist knows nothing of what ran before the first switch of a CPU.
        seen = not s["open_start"]
        wait = s["ts_ns"] - s["last_end_ns"] if seen and s["last_end_ns"] is not None else 0
        # Its "sch delay" counts from wakeups only; a preempted task's wait is in "wait time" alone.
        delay = s["run_delay_ns"] if seen and s["wake_ts_ns"] is not None else 0
        run = s["dur_ns"] if seen else 0
        ours.append(Row(s["end_ns"] // 1000, s["cpu"], s["tid"], wait // 1000, delay // 1000, run // 1000))
    theirs = list(timehist(capture))
    assert len(theirs) > 100
    assert len(ours) == len(theirs)
    for our, their in zip(ours, theirs, strict=True):
        if their.tid == -1:
            # A task that ended has no number any more in the sample, and timehist makes all of them one task.
            assert (our.ts, our.cpu, our.run) == (their.ts, their.cpu, their.run)
        else:
            assert our == their


class Line(NamedTuple):
    """One task of `perf sched latency`."""

    runtime_us: int
    waits: int
    avg_us: int
    max_us: int


LATENCY = re.compile(
    r"\s+\S.*:(\d+)\s*\|\s*([\d.]+) ms \|\s*(\d+) \| avg:\s*([\d.]+) ms \| max:\s*([\d.]+) ms \|"
)


def latency(path: Path) -> dict[int, Line]:
    lines: dict[int, Line] = {}
    for text in perf("sched", "latency", "-p", "-i", str(path)).splitlines():
        found = LATENCY.match(text)
        if found:
            tid = int(found[1])
            assert tid not in lines, "a thread number was used twice"
            figures = [round(float(found[i]) * 1000) for i in (2, 4, 5)]
            lines[tid] = Line(figures[0], int(found[3]), figures[1], figures[2])
    return lines


class Rules(NamedTuple):
    """How a version of perf counts waits."""

    #: The record that makes a task runnable: `wakeup` (it is on a queue) or `waking` (the waker decided).
    runnable_by: str
    #: Whether the state `R+` is known to be runnable.
    preempted: bool


def rules() -> list[Rules]:
    """The rules that this perf may have; those of 6.1 are known."""
    if perf_version() == (6, 1):
        return [Rules("wakeup", preempted=False)]
    return [Rules(by, preempted) for by in ("wakeup", "waking") for preempted in (False, True)]


def waits(path: Path, rules: Rules) -> dict[int, dict[str, int]]:
    """Count, total and maximum of the waits that `perf sched latency` counts, by thread."""
    waits_after = ["runnable", "yielding", *(["preempted"] if rules.preempted else [])]
    wakeups = (
        tk.read(path)
        .events.filter(pl.col("kind").cast(pl.String).is_in(["wakeup", "wakeup_new"]))
        .select("tid", pl.col("ts_ns").alias("queued_ns"))
        .sort("queued_ns")
    )
    slices = slices_of(path).with_columns(pl.col("wake_ts_ns").fill_null(pl.col("ts_ns")).alias("from_ns"))
    slices = slices.sort("from_ns").join_asof(
        wakeups,
        left_on="from_ns",
        right_on="queued_ns",
        by="tid",
        strategy="forward",
        coalesce=False,
        check_sortedness=False,
    )
    woken, delay = pl.col("wake_ts_ns").is_not_null(), pl.col("run_delay_ns")
    if rules.runnable_by == "wakeup":
        # perf switches its events on one by one: at the start there may be a waking without a wakeup.
        woken = (woken & (pl.col("queued_ns") <= pl.col("ts_ns"))).fill_null(value=False)
        delay = pl.when(woken).then(pl.col("ts_ns") - pl.col("queued_ns")).otherwise(delay)
    waited = pl.col("last_end_state").cast(pl.String).is_in(waits_after).fill_null(value=False)
    # A task that perf first hears of when it comes to run counts as having waited for no time.
    unheard = pl.col("last_end_ns").is_null() & ~pl.col("open_start") & ~woken
    return (
        slices.filter(woken | waited | unheard)
        .with_columns(pl.when(unheard).then(0).otherwise(delay).alias("delay"))
        .group_by("tid")
        .agg(
            pl.len().alias("waits"), pl.col("delay").sum().alias("total"), pl.col("delay").max().alias("max")
        )
        .rows_by_key("tid", named=True, unique=True)
    )


def agrees(own: dict[str, int] | None, line: Line) -> bool:
    """Equal, as far as perf's microseconds go (it rounds)."""
    if own is None or own["waits"] != line.waits:
        return False
    average = own["total"] / own["waits"] / 1000
    return abs(average - line.avg_us) <= 0.501 and abs(own["max"] / 1000 - line.max_us) <= 0.501


def test_latency(capture: Path) -> None:
    theirs = latency(capture)
    assert len(theirs) > 10
    accounts = tk.read(capture).events.filter(pl.col("kind") == "stat_runtime")
    runtimes = dict(accounts.group_by("tid").agg(pl.col("value").sum()).iter_rows())
    for tid, line in theirs.items():
        # perf's run time is the kernel's own account (`sched_stat_runtime`), not the time between switches.
        assert abs(runtimes.get(tid, 0) / 1000 - line.runtime_us) <= 0.501, f"thread {tid}"
    candidates = (waits(capture, rule) for rule in rules())
    ours = max(candidates, key=lambda w: sum(agrees(w.get(t), theirs[t]) for t in theirs))
    assert ours.keys() == theirs.keys()
    for tid, line in theirs.items():
        assert agrees(ours[tid], line), f"thread {tid}: {ours[tid]} against {line}"
