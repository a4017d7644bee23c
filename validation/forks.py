"""How many new tasks preempt at once what has had a CPU for longer than its slice.

``python -m validation.forks TRACE...``. Counted are new tasks (sched_wakeup_new) on a CPU where nobody waits
and a fair task, not the one that forked, has run for longer than EEVDF's base slice. Where a new task may
preempt, it has a deadline half a slice away and comes first nearly always; where it may not, it waits for a
tick or for somebody else. At once: within 60 us, which a switch on another CPU takes at the most.
"""

from __future__ import annotations

import sys

import numpy as np
import polars as pl

import tracekit as tk

#: As long as a switch on another CPU takes at the most, ns.
AT_ONCE = 60_000
#: EEVDF's base slice of one CPU, ns; 1 + log2 of at most 8 CPUs times as long on several.
BASE = 700_000


def preempting(trace: tk.Trace) -> tuple[int, int]:
    """New tasks that had such a CPU at once, and all of them."""
    events = trace.events.filter(pl.col("kind").cast(pl.String) == "wakeup_new")
    new = events.select("tid", "ctx_tid", wake_ts_ns="ts_ns")
    columns = ("tid", "cpu", "ts_ns", "dur_ns", "prio", "run_delay_ns", "wake_ts_ns")
    slices = trace.slices.filter(~pl.col("utid").is_in(trace.tasks.filter("is_idle")["utid"].implode()))
    slices = slices.select(columns).sort("ts_ns")
    slice_ns = BASE * (1 + int(np.log2(min(trace.cpus.height, 8))))
    at_once = every = 0
    for cpu, here in slices.group_by("cpu"):
        came = slices.filter(cpu=cpu[0]).join(new, on=["tid", "wake_ts_ns"]).sort("wake_ts_ns")
        waits = here.filter(pl.col("run_delay_ns") > 0)
        begin = np.sort((waits["ts_ns"] - waits["run_delay_ns"]).to_numpy())
        end = waits["ts_ns"].to_numpy()
        runs = here.select(runner="tid", of="prio", since="ts_ns", until=pl.col("ts_ns") + pl.col("dur_ns"))
        found = came.join_asof(
            runs,
            left_on="wake_ts_ns",
            right_on="since",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        at = found["wake_ts_ns"].to_numpy()
        waiting = np.searchsorted(begin, at, "left") - np.searchsorted(end, at, "right")
        found = found.with_columns(waiting=pl.Series(waiting, dtype=pl.Int64)).filter(
            pl.col("waiting") == 0,
            pl.col("wake_ts_ns") <= pl.col("until"),
            pl.col("wake_ts_ns") - pl.col("since") > slice_ns,
            pl.col("of").is_between(100, 139),
            pl.col("runner") != pl.col("ctx_tid"),
        )
        every += found.height
        at_once += found.filter(pl.col("ts_ns") - pl.col("wake_ts_ns") < AT_ONCE).height
    return at_once, every


def main(paths: list[str]) -> int:
    """Print a line for each trace."""
    if not paths:
        print("usage: python -m validation.forks TRACE...", file=sys.stderr)
        return 2
    for path in paths:
        at_once, every = preempting(tk.read(path))
        print(f"{path}: {at_once} of {every} new tasks preempted at once a task beyond its slice")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
