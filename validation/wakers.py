"""How many wakeups of tasks on a busy CPU another CPU finishes.

``python -m validation.wakers TRACE...``. Linux leaves the wakeup of a task on another, busy CPU to
that CPU unless both share a cache; then the waker's CPU finishes it (ttwu_queue_cond in
kernel/sched/core.c, 3.3 to 7.3). The CPU that finishes a wakeup writes its record (sched_wakeup). So
CPUs of which others finish wakeups share a cache with these, and CPUs of which none ever does
share none. A kernel without TTWU_QUEUE, such as PREEMPT_RT, leaves no wakeup to other CPUs.
"""

from __future__ import annotations

import sys

import polars as pl

import tracekit as tk


def finished(trace: tk.Trace) -> tuple[int, int]:
    """Wakeups of tasks on a busy CPU that another CPU finished, and all of them."""
    wakeups = trace.events.filter(pl.col("kind").cast(pl.String) == "wakeup")
    wakeups = wakeups.select("ts_ns", "cpu", "target_cpu").drop_nulls().sort("ts_ns")
    idle = trace.tasks.filter("is_idle")["utid"]
    runs = trace.slices.filter(~pl.col("utid").is_in(idle.implode()))
    runs = runs.select("ts_ns", target_cpu="cpu", until=pl.col("ts_ns") + pl.col("dur_ns")).sort("ts_ns")
    busy = wakeups.join_asof(runs, on="ts_ns", by="target_cpu", check_sortedness=False).filter(
        pl.col("ts_ns") < pl.col("until")
    )
    return busy.filter(pl.col("cpu") != pl.col("target_cpu")).height, busy.height


def main(paths: list[str]) -> int:
    """Print a line for each trace."""
    if not paths:
        print("usage: python -m validation.wakers TRACE...", file=sys.stderr)
        return 2
    for path in paths:
        others, every = finished(tk.read(path))
        print(f"{path}: {others} of {every} wakeups of tasks on busy CPUs were finished by another CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
