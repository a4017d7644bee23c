"""FreeBSD, December 2004: what fork, exit and wait take beside many sleepers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from tracekit.studies import Metric, Study, Table, mean_of
from tracekit.whatif.run import simulate

#: Sleeping processes.
SLEEPERS = (0, 200, 1000, 3000, 6000)
#: How a free process number is found: walking the list of all, in a bitmap, or in a table by number.
ALLOCATORS = {"list": "list:20us/50ns", "bitmap": "bitmap:20us", "table": "table:20us/50ns"}
#: CPU time of a child, ms, mean and standard deviation: caches and memory make it vary. 10 % is an
#: assumption; error bars are proportional to it.
CHILD, SPREAD = 0.9, 0.09


def workload(seed: int, sleepers: int, fork: str, forks: int, policy: str = "ule:version=2004") -> str:
    """The experiment as text."""
    lines = [
        f"policy: {policy}",
        "hz: 100",
        f"seed: {seed}",
        f"costs: switch=3us tick=2us second=200ns fork={fork}",
        "until: 200000",
    ]
    if sleepers:
        lines.append(f"S*{sleepers}: S1000000")
    lines.append(f"P start=~uniform(0,1000): (F(C) W(done) R~normal(0.1,0.01))*{forks}")
    lines.append(f"C start=fork: R~normal({CHILD},{SPREAD}) P(done)")
    return "\n".join(lines)


def microseconds(text: str) -> float:
    """Mean time from one fork to the next, us."""
    forks = simulate(text).events.filter(pl.col("kind") == "fork")["ts_ns"].to_numpy()
    return float(np.diff(forks).mean() / 1e3)


def run(scale: float, repeats: int, progress: Callable[[float], object]) -> Table:
    """Run all; `scale` shortens the 1,000 forks of each."""
    forks = max(50, round(1000 * scale))
    metrics: list[Metric] = []
    means: dict[str, list[list[float]]] = {}
    for number, (name, fork) in enumerate(ALLOCATORS.items()):
        means[name] = []
        for place, count in enumerate(SLEEPERS):
            # Every point has draws of its own, as every measurement of the document had.
            first = (number * len(SLEEPERS) + place) * repeats
            values = [microseconds(workload(first + r, count, fork, forks)) for r in range(repeats)]
            means[name].append(values)
            metrics.append(mean_of(f"{name}, {count:,} sleepers", "us", None, values))
            progress((number * len(SLEEPERS) + place + 1) / (len(ALLOCATORS) * len(SLEEPERS)))
    for name, rows in means.items():
        slopes = [np.polyfit(SLEEPERS, [one[r] for one in rows], 1)[0] * 1000 for r in range(repeats)]
        note = "us per 1,000 sleepers; the published shape: a line for the list, flat for the others"
        published = (0.85 * 50, 1.15 * 50) if name == "list" else None
        metrics.append(mean_of(f"slope, {name}", "us", published, slopes, fitted=name == "list", note=note))
    return Table("freebsd-fork", STUDY.title, tuple(metrics), _REMARKS)


_REMARKS = (
    "The document prints curves with 95 % error bars, and no table: its shape is what can be compared.",
    "ULE does nothing for sleepers, so what grows with their number is the search for a process number.",
)
STUDY = Study(
    "freebsd-fork",
    "FreeBSD: fork, exit and wait beside many sleepers",
    "The time of fork, exit and wait grows with the number of sleeping processes although they do nothing: a free process "
    "number is searched in a list of all. A bitmap makes it flat.",
    "Study of process creation on FreeBSD of December 2004, with 95 % error bars",
    run,
)
