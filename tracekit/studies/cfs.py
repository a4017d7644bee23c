"""Linux 2.6.27: fair sleepers cut the slices of hogs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.studies import Study, Table, mean_of
from tracekit.whatif.run import simulate

#: The document's machine: two CPUs follow from the CPU time that it prints; HZ and four wakers are
#: fitted. Its kernel is 2.6.27, before LAST_BUDDY.
POLICY, CPUS, HZ, WAKERS, HOGS = "cfs:form=2.6.27", 2, 1000, 4, 16
#: What a context switch costs, us. The change of throughput is proportional to it.
SWITCH_US = 5


@dataclass(frozen=True)
class Result:
    """What the document's program prints, mean over its seconds, and what is true.

    Attributes
    ----------
    printed
        Its mean slice, ms: CPU time over involuntary switches of each hog, each cut to whole
        milliseconds, then averaged.
    true
        The same without cutting.
    per_interval, per_second
        CPU time of a hog in an interval of its program, ms, and in a second.
    """

    printed: float
    true: float
    per_interval: float
    per_second: float


def workload(seed: int, seconds: int, fair_sleepers: bool) -> str:
    """The experiment as text: hogs, and wakers that sleep for 1 ms."""
    off = "" if fair_sleepers else ",fair_sleepers=off"
    return "\n".join(
        [
            f"policy: {POLICY}{off}",
            f"cpus: {CPUS}",
            f"hz: {HZ}",
            f"seed: {seed}",
            f"costs: switch={SWITCH_US}us tick=3us interrupt=2us",
            f"H*{HOGS}: R∞",
            # usleep(1000), begun anywhere in a millisecond; 20 us of work, give or take a tenth.
            # Timers had no slack before 2.6.28 (prctl(2), PR_SET_TIMERSLACK).
            f"W*{WAKERS} start=~uniform(0,1): (S1 R~normal(0.02,0.002))*",
            f"until: {round(seconds * 1200)}",
        ]
    )


def measure(text: str, seconds: int) -> Result:
    """Run it, and do what the document's program does.

    Each hog reads its counters when it first runs after each alarm.
    """
    slices = simulate(text).slices.with_columns(pl.col("comm").cast(pl.String))
    hogs = slices.filter(pl.col("comm").str.starts_with("H")).sort("ts_ns")
    of = {
        str(name): (
            part["ts_ns"].to_numpy(),
            (part["ts_ns"] + part["dur_ns"]).to_numpy(),
            part["involuntary"].fill_null(False).to_numpy(),
        )
        for (name,), part in hogs.group_by("comm")
    }
    begin, read = 0, dict.fromkeys(of, 0)
    rows = []
    for _ in range(seconds - 1):
        alarm = end = begin + 1_000_000_000
        found = []
        for name, (starts, ends, involuntary) in of.items():
            place = int(np.searchsorted(ends, alarm, side="right"))
            if place >= len(starts):
                continue
            now = max(alarm, int(starts[place]))
            end = max(end, now)
            since = read[name]
            used = np.clip(np.minimum(ends, now) - np.maximum(starts, since), 0, None).sum()
            switches = int(((ends > since) & (ends <= now) & involuntary).sum())
            read[name] = now
            found.append((used / 1e6, used / 1e6 / max(switches, 1)))
        used_ms, each = np.array(found).T
        rows.append((np.floor(each).mean(), each.mean(), used_ms.mean(), (end - begin) / 1e9))
        begin = end
    # The first interval begins with everybody at the start.
    printed, true, used, length = np.array(rows[1:]).mean(axis=0)
    return Result(float(printed), float(true), float(used), float(used / length))


def run(scale: float, repeats: int, progress: Callable[[float], object]) -> Table:
    """Run with and without; `scale` shortens the ten seconds."""
    seconds = max(4, round(10 * scale))
    found: dict[bool, list[Result]] = {}
    for number, fair in enumerate((True, False)):
        found[fair] = [measure(workload(seed, seconds, fair), seconds) for seed in range(repeats)]
        progress((number + 1) / 2)
    on, off = found[True], found[False]
    gain = [100 * (b.per_interval / a.per_interval - 1) for a, b in zip(on, off, strict=True)]
    real = [100 * (b.per_second / a.per_second - 1) for a, b in zip(on, off, strict=True)]
    return Table(
        "cfs-sleepers",
        STUDY.title,
        (
            mean_of(
                "slice as printed, fair sleepers on", "ms", (0.12, 0.44), [r.printed for r in on], note=_CUT
            ),
            mean_of("slice as printed, off", "ms", (9.2, 10.5), [r.printed for r in off]),
            mean_of("mean slice, on", "ms", None, [r.true for r in on], note="without the cutting"),
            mean_of("mean slice, off", "ms", None, [r.true for r in off], note="without the cutting"),
            mean_of("CPU time of a hog, on", "ms", 125.5, [r.per_interval for r in on]),
            mean_of("CPU time of a hog, off", "ms", 138.7, [r.per_interval for r in off]),
            mean_of("throughput, off over on", "%", 10.5, gain, note="per interval of its program"),
            mean_of("the same per second", "%", None, real, note="its intervals are longer when off"),
        ),
        (
            "The published 0.3 ms is a mean of slices cut to whole milliseconds: all its values are sixteenths.",
            "The published 10 % is per interval of the program, which ends when the last hog has run its signal handler.",
            "HZ and the number of wakers are not printed; 1000 and four fit best. With LAST_BUDDY, which its kernel did not have, the "
            "gain vanishes.",
        ),
    )


_CUT = "a mean of values cut to whole ms"
STUDY = Study(
    "cfs-sleepers",
    "Linux CFS: fair sleepers and silly time slices",
    "Two tasks that sleep for a millisecond cut the slices of sixteen hogs from 10 ms to 0.3 ms, because a sleeper is placed "
    "before all others. Without fair sleepers throughput grows.",
    "Study of CFS with and without NEW_FAIR_SLEEPERS on 2.6.27",
    run,
)
