"""How often a task is woken on its waker's CPU although its own one idles, by how long that had idled.

``python -m validation.drawn TRACE...``. Linux wakes a task on its last CPU where that idles
(wake_affine and select_idle_sibling in kernel/sched/fair.c, 6.1 to 7.3), but for wakers that are
about to sleep and CPUs that do not share a cache. `validation/spread.c` asks a kernel itself. The CPU
that a task had is where its slice before ended, and the CPU that it is woken on where its next one begins.
"""

from __future__ import annotations

import sys

import polars as pl

import tracekit as tk

#: Bounds of the classes, us.
BOUNDS = (10, 20, 50, 100, 1_000, 10_000)


def drawn(trace: tk.Trace) -> pl.DataFrame:
    """Wakeups by tasks on other CPUs of tasks whose CPU idled.

    Parameters
    ----------
    trace
        A recorded trace with wakeups.

    Returns
    -------
    pl.DataFrame
        ``idle_us`` (Float64, for how long the CPU of the woken task had idled) and ``moved``
        (Boolean, it ran on its waker's CPU next).
    """
    idle = trace.tasks.filter("is_idle")["utid"]
    runs = trace.slices.filter(~pl.col("utid").is_in(idle.implode())).with_columns(
        end=pl.col("ts_ns") + pl.col("dur_ns")
    )
    woken = runs.filter(pl.col("waker_utid").is_not_null(), pl.col("prev_cpu") != pl.col("waker_cpu")).select(
        "cpu", "waker_cpu", on="prev_cpu", at="wake_ts_ns"
    )
    busy = runs.select(on="cpu", at="ts_ns", until="end").sort("at")
    last = woken.drop_nulls().sort("at").join_asof(busy, on="at", by="on", check_sortedness=False)
    return last.filter(pl.col("until") < pl.col("at")).select(
        idle_us=(pl.col("at") - pl.col("until")) / 1000, moved=pl.col("cpu") == pl.col("waker_cpu")
    )


def main(paths: list[str]) -> int:
    """Print a line for each trace and class."""
    if not paths:
        print("usage: python -m validation.drawn TRACE...", file=sys.stderr)
        return 2
    for path in paths:
        found = drawn(tk.read(path))
        print(path)
        for low, high in zip((0, *BOUNDS), (*BOUNDS, float("inf")), strict=True):
            part = found.filter(pl.col("idle_us").is_between(low, high, closed="left"))["moved"]
            if part.len():
                print(f"  idle for {low} to {high} us: {part.sum()} of {part.len()} went to the waker's CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
