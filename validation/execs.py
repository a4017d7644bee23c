"""How many tasks change CPUs where they execute a program, recorded and replayed.

``python -m validation.execs TRACE...``. Linux looks for the idlest CPU then (sched_exec in
kernel/sched/core.c). A task counts as one that changed when it ran on two CPUs or more from 1.5 ms
before the record of its exec to 1.5 ms behind it. Replays have the policy's placement.
"""

from __future__ import annotations

import sys

import polars as pl

import tracekit as tk

#: On each side of an exec, ns: the kernel moves a task some 100 us before it records the exec.
NEAR = 1_500_000


def moved(trace: tk.Trace) -> tuple[int, int]:
    """Execs at which the task ran on two CPUs, and all execs."""
    execs = trace.events.filter(pl.col("kind").cast(pl.String) == "exec").select("tid", at="ts_ns")
    runs = trace.slices.select("tid", "cpu", "ts_ns", until=pl.col("ts_ns") + pl.col("dur_ns"))
    near = execs.with_row_index("exec").join(runs, on="tid")
    near = near.filter(pl.col("until") > pl.col("at") - NEAR, pl.col("ts_ns") < pl.col("at") + NEAR)
    cpus = near.group_by("exec").agg(pl.col("cpu").n_unique())
    return cpus.filter(pl.col("cpu") > 1).height, execs.height


def main(paths: list[str]) -> int:
    """Print a line for each trace."""
    if not paths:
        print("usage: python -m validation.execs TRACE...", file=sys.stderr)
        return 2
    for path in paths:
        trace = tk.read(path)
        recorded, every = moved(trace)
        replayed, _ = moved(tk.replay(trace, placement="model"))
        print(
            f"{path}: of {every} tasks that executed a program {recorded} changed CPUs, in a replay {replayed}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
