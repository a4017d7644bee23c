"""Linux 2.0: how long run queues are on a web server, and what searching them costs against NT."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from tracekit import analysis
from tracekit.studies import Study, Table, mean_of
from tracekit.whatif.run import simulate

#: Requests a second that come one by one, and CPU time of each half of one, ms: fitted to the
#: published rate of switches and load.
RATE, SERVICE = 124, 1.8
#: Requests of a page that come at once, and the period of pages, ms: fitted to the published shares
#: of lengths above 10 and from 20 on.
PAGE, PERIOD = 13, 1000
#: A process that computes in the background for three quarters of the time: fitted to the rate of
#: recalculations.
BACKGROUND = "(S300 R900)*"
#: Costs of a machine of 1998: a switch, looking at one task, a recalculation for one. The scan of
#: 120 ns is fitted to the ratio to NT.
COSTS = "switch=5us scan=120ns recalc=150ns"


@dataclass(frozen=True)
class Result:
    """Run queues as each switch finds them, and how often counters were recalculated."""

    per_second: float
    mean: float
    over_10: float
    from_20: float
    longest: float
    per_recalculation: float


def _arrivals(draw: random.Random, until: float, page: int, apart: bool) -> list[tuple[float, int]]:
    """Times at which requests come, ms, and how many; all told as many a second, whatever the pages are."""
    single = RATE + (PAGE - page) * 1000 / PERIOD
    found, at = [], 0.0
    while at < until:
        at += draw.expovariate(single / 1000)
        found.append((at, 1))
    at = 0.0
    while page and at < until:
        found.append((at + draw.uniform(0, PERIOD / 2) if apart else at, page))
        at += PERIOD if apart else draw.expovariate(1 / PERIOD)
    return sorted(found)


def workload(
    seed: int,
    seconds: int,
    servers: int = 200,
    background: str = BACKGROUND,
    *,
    page: int = PAGE,
    apart: bool = True,
) -> str:
    """Give the workload of 421 processes as text.

    Servers take requests, others sleep, a few are daemons, one computes.

    Parameters
    ----------
    seed, seconds, servers, background
        Random numbers, length, number of servers, and what the process that computes does.
    page
        How many requests come at once, once a period; 0 for none.
    apart
        A page comes in the first half of each period; False: at any time, so that pages overlap.
    """
    draw = random.Random(seed)
    requests: list[list[tuple[float, str]]] = [[] for _ in range(servers)]
    free = [0.0] * servers
    for at, count in _arrivals(draw, seconds * 1000, page, apart):
        for _ in range(count):
            who = min(range(servers), key=free.__getitem__)
            first, wait, last = (draw.expovariate(1 / m) for m in (SERVICE, 30.0, SERVICE))
            requests[who].append((at + draw.random(), f"R{first:.3f} D{wait:.3f} R{last:.3f}"))
            free[who] = at + 6 * (first + wait + last)
    lines = ["policy: goodness:version=2.0", "hz: 100", f"costs: {COSTS}", f"until: {seconds * 1000}"]
    lines += [
        f"H{i}: " + " ".join(f"U{start:.3f} {steps}" for start, steps in sorted(own))
        for i, own in enumerate(requests)
        if own
    ]
    lines.append("O*200: S10000000")
    lines += [f"D{i}: (S{draw.randint(200, 3000)} R{draw.uniform(0.05, 2):.2f})*" for i in range(20)]
    lines.append(f"L: {background}")
    return "\n".join(lines)


def measure(text: str, seconds: int) -> Result:
    """Run it."""
    run = simulate(text)
    found = analysis.runqueue.at_switch(run.runqueue, run.events).filter(pl.col("scope") == "system")
    counts = json.loads(run.metadata["replay.counts"])

    def share(least: int) -> float:
        return 100 * float(found.filter(pl.col("length") >= least)["share"].sum())

    return Result(
        run.slices.height / seconds,
        float((found["length"] * found["share"]).sum()),
        share(11),
        share(20),
        float(found["length"].max() or 0),  # type: ignore[arg-type]
        counts["schedules"] / max(counts["recalcs"], 1),
    )


def yield_us(policy: str, costs: str) -> float:
    """Time of a yield among 40 tasks that do nothing else, us."""
    text = f"policy: {policy}\nhz: 100\ncosts: {costs}\nT*40: (R0.001 Y)*\nuntil: 2000"
    return 2e6 / simulate(text).slices.height


def run(scale: float, repeats: int, progress: Callable[[float], object]) -> Table:
    """Run all; `scale` shortens the 900 s."""
    seconds = max(60, round(900 * scale))
    found = []
    for seed in range(repeats):
        found.append(measure(workload(seed + 3, seconds), seconds))
        progress((seed + 1) / (repeats + 1))
    ratio = yield_us("goodness:version=2.0", f"{COSTS.replace('5us', '4us')}") / yield_us("nt4", "switch=4us")
    progress(1.0)
    longest = "; grows with the length of the run" if scale < 1 else ""
    return Table(
        "linux-runqueue",
        STUDY.title,
        (
            mean_of("switches a second", "1/s", 400, [r.per_second for r in found], fitted=True),
            mean_of("length at a switch, mean", "", 2.5, [r.mean for r in found]),
            mean_of("length above 10", "%", 4, [r.over_10 for r in found], fitted=True, note=_PAGES),
            mean_of("length of 20 and more", "%", 0.1, [r.from_20 for r in found], fitted=True, note=_PAGES),
            mean_of("longest", "", 36, [r.longest for r in found], note=_LONGEST + longest),
            mean_of(
                "switches per recalculation",
                "",
                200,
                [r.per_recalculation for r in found],
                fitted=True,
                note=_RECALC,
            ),
            mean_of(
                "yield among 40, Linux over NT",
                "",
                1.9,
                [ratio],
                fitted=True,
                note="the scan of 120 ns is fitted",
            ),
        ),
    )


_PAGES = "fitted by a page of 13 requests once a second; pages that come at any time overlap, and give more of 20 and more"
_LONGEST = "one moment of a run whose length is not printed"
_RECALC = (
    "one process that computes for three quarters of the time is fitted; without any it is 1 in several thousand, with one that "
    "never sleeps 1 in 170"
)
STUDY = Study(
    "linux-runqueue",
    "Linux 2.0: run queues of a web server, and NT",
    "The scheduler of Linux 2.0 looks at every runnable task. On a busy web server there are 2.5 of them, and 40 only in "
    "benchmarks, where NT needs half the time.",
    "Study of the Linux 2.0 scheduler on a web server, and against Windows NT 4",
    run,
)
