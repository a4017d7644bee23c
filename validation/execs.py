"""How many tasks change CPUs where they execute a program, recorded and replayed.

``python -m validation.execs TRACE...``. Linux looks for the idlest CPU then (sched_exec in
kernel/sched/core.c). A task counts as one that changed when it ran on two CPUs or more from 1.5 ms
before the record of its exec to 1.5 ms behind it. Replays have the policy's placement.

A second line asks whether the recorded machine follows the rule that replays do, with the state
that was recorded: of execs of traces of two CPUs at which one other task is runnable on each, the
rule moves a task whose own CPU is full without it while the other has room. A CPU is full where the
tasks that belong to it, without the one that executes, use more than 1024 / 1.17 of it on average
(half of what is past is forgotten in 32 ms; group_has_capacity in kernel/sched/fair.c). Where both are
full, loads decide, which are left out: ended tasks and groups, which count in them, are not all known.
"""

from __future__ import annotations

import bisect
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

import polars as pl

import tracekit as tk

#: On each side of an exec, ns: the kernel moves a task some 100 us before it records the exec.
NEAR = 1_500_000
BEFORE, DECIDES = 100_000, 20_000
#: A millisecond of 2^20 ns and the half-life in those, of the kernel's averages (kernel/sched/pelt.c).
HALF_LIFE_NS = 32 * 1024 * 1024
#: What is used of a CPU that is full (imbalance_pct of a domain that shares a cache: 117).
FULL = 100 / 117


def moved(trace: tk.Trace) -> tuple[int, int]:
    """Execs at which the task ran on two CPUs, and all execs."""
    cpus = _near(trace).group_by("exec").agg(pl.col("cpu").n_unique())
    return cpus.filter(pl.col("cpu") > 1).height, _execs(trace).height


def _execs(trace: tk.Trace) -> pl.DataFrame:
    found = trace.events.filter(pl.col("kind").cast(pl.String) == "exec")
    return found.select("tid", at="ts_ns").with_row_index("exec")


def _near(trace: tk.Trace) -> pl.DataFrame:
    """Slices of the task around each exec, in time order."""
    runs = trace.slices.select("tid", "utid", "cpu", "ts_ns", until=pl.col("ts_ns") + pl.col("dur_ns"))
    near = _execs(trace).join(runs, on="tid")
    near = near.filter(pl.col("until") > pl.col("at") - NEAR, pl.col("ts_ns") < pl.col("at") + NEAR)
    return near.sort("exec", "ts_ns")


@dataclass
class Past:
    """What one task did: from when on it was in which state, and what it used until then."""

    since: list[int] = field(default_factory=list)
    #: Running, runnable, CPU, average use at the start.
    states: list[tuple[bool, bool, int | None, float]] = field(default_factory=list)
    end: int = 0

    def at(self, ts: int) -> tuple[float, int | None, bool] | None:
        """Average use, CPU, and whether it is runnable; None before its time and after."""
        place = bisect.bisect_right(self.since, ts) - 1
        if place < 0 or ts > self.end:
            return None
        running, runnable, cpu, used = self.states[place]
        return _decayed(used, running, ts - self.since[place]), cpu, runnable


def _decayed(used: float, running: bool, passed: int) -> float:
    left = 0.5 ** (passed / HALF_LIFE_NS)
    return used * left + (1 - left if running else 0.0)


def pasts(trace: tk.Trace) -> dict[int, Past]:
    """Every task of the fair class by `utid`; a task that ended is gone when it ran last."""
    names = pl.col("comm").cast(pl.String)
    others = trace.tasks.filter((pl.col("tid") == 0) | names.str.starts_with("migration/"))["utid"].to_list()
    rows = trace.states.filter(~pl.col("utid").is_in(others)).sort("utid", "ts_ns")
    found: dict[int, Past] = defaultdict(Past)
    used: dict[int, float] = defaultdict(float)
    last: dict[int, int | None] = {}
    columns = ("utid", "ts_ns", pl.col("dur_ns").fill_null(0), pl.col("state").cast(pl.String), "cpu")
    for utid, ts, dur, state, cpu in rows.select(*columns).iter_rows():
        running = state == "running"
        runnable = running or state in ("runnable", "preempted")
        if runnable and cpu is not None:
            last[utid] = cpu
        past = found[utid]
        past.since.append(ts)
        past.states.append((running, runnable, last.get(utid), used[utid]))
        if state not in ("zombie", "dead", "unknown_off"):
            past.end = ts + dur
        used[utid] = _decayed(used[utid], running, dur)
    return found


def ruled(trace: tk.Trace) -> Counter[tuple[bool, bool]]:
    """How often (a task changed CPUs, the rule moves it) was so, where the rule decides by use alone."""
    every, found = pasts(trace), Counter[tuple[bool, bool]]()
    for (_, at), rows in _near(trace).group_by("exec", "at", maintain_order=True):
        slices = list(rows.select("utid", "cpu", "until").iter_rows())
        own, cpu, _ = slices[0]
        left = [until for (_, here, until), (_, there, _) in pairwise(slices) if here != there]
        # Who moves has just decided; who stays decided before the record.
        when = left[0] - DECIDES if left else at - BEFORE
        use, runnable = [0.0, 0.0], [0, 0]
        for utid, past in every.items():
            state = past.at(when) if utid != own else None
            if state is not None and state[1] is not None:
                use[state[1]] += state[0]
                runnable[state[1]] += state[2]
        here, there = use[cpu] > FULL, use[1 - cpu] > FULL
        if runnable == [1, 1] and not (here and there):
            found[bool(left), here] += 1
    return found


def main(paths: list[str]) -> int:
    """Print two lines for each trace."""
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
        if trace.cpus.height == 2:
            by = ruled(trace)
            agreed, n = by[True, True] + by[False, False], by.total()
            of = f"{by[True, True] + by[True, False]} of {n} changed"
            print(f"    one other task on each CPU: {of}, the rule says the same of {agreed}: {dict(by)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
