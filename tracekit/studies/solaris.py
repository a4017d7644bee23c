"""Solaris 8: a thousand forks beside a hog at nice 19."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracekit.studies import Metric, Study, Table, mean_of
from tracekit.whatif.run import simulate

#: CPU time of the parent before the fork, until it waits, and after; of the child before and after
#: its exec, ms. They add up to the 8.9 ms that an iteration takes alone; how they are split does
#: not matter (83.3 s under three other splits).
FORK = ((2.0, 0.3, 1.6), (1.5, 3.5))
#: The same for vfork: the 6.4 ms of user and system time that the document prints for it.
VFORK = ((1.4, 0.1, 1.2), (0.4, 3.3))


def workload(
    seed: int,
    *,
    policy: str = "solaris-ts",
    how: str = "F",
    upri: int = 0,
    hog: bool = True,
    forks: int = 1000,
    costs: tuple[tuple[float, float, float], tuple[float, float]] = FORK,
) -> str:
    """The experiment as text: `forks` times fork or vfork, exec and wait.

    `how` is F or V; the hog has nice 19.
    """
    (before, between, after), (start, rest) = costs
    lines = [f"policy: {policy}", "hz: 100", "until: 600000", f"seed: {seed}"]
    if hog:
        lines.append("H upri=-60: R∞")
    # The script begins anywhere in a clock tick.
    loop = f"(R{before} {how}(C) R{between} W(d) R{after})*{forks}"
    lines.append(f"P upri={upri} start=~uniform(0,10): {loop}")
    lines.append(f"C upri={upri} start=fork: R{start} X R{rest} P(d)")
    return "\n".join(lines)


def seconds(text: str) -> float:
    """How long the parent takes, from its first slice to its exit, s."""
    slices = simulate(text).slices.filter(comm="P")
    begin, end = slices["ts_ns"].to_numpy(), (slices["ts_ns"] + slices["dur_ns"]).to_numpy()
    return float(end.max() - begin.min()) / 1e9


#: Name, published seconds, how the workload differs, whether it was fitted, note.
CASES: tuple[tuple[str, float, dict[str, Any], bool, str], ...] = (
    ("alone", 8.9, {"hog": False}, True, "sets the CPU time of an iteration"),
    ("fork beside the hog", 85.2, {}, False, "twelve iterations for each second of starvation (ts_update)"),
    ("fork, RES=4000", 39.0, {"policy": "solaris-ts:res=4000"}, False, ""),
    ("fork, upri +1", 9.0, {"upri": 1}, False, ""),
    ("vfork beside the hog", 7.4, {"how": "V", "costs": VFORK}, False, "its CPU time is as printed"),
)
#: Forks of the script `configure` in the 41 s that it takes alone; the document does not count them.
CONFIGURE = 2350


def run(scale: float, repeats: int, progress: Callable[[float], object]) -> Table:
    """Run all cases; `scale` shortens the number of forks, times are scaled back."""
    forks = max(20, round(1000 * scale))
    metrics: list[Metric] = []
    for number, (name, published, how, fitted, note) in enumerate(CASES):
        values = [seconds(workload(seed, forks=forks, **how)) * 1000 / forks for seed in range(repeats)]
        metrics.append(mean_of(name, "s", published, values, fitted=fitted, note=note))
        progress((number + 1) / (len(CASES) + 1))
    count = max(20, round(CONFIGURE * scale))
    per = 41_000 / CONFIGURE
    costs = (FORK[0], (FORK[1][0], round(FORK[1][1] + per - 8.9, 3)))
    values = [seconds(workload(s, forks=count, costs=costs)) * CONFIGURE / count for s in range(repeats)]
    note = f"{CONFIGURE} forks in 41 s are an assumption: 1,500 give 136 s and 2,600 give 217 s"
    metrics.append(mean_of("configure beside the hog", "s", 220, values, note=note))
    progress(1.0)
    return Table("solaris-fork", STUDY.title, tuple(metrics))


STUDY = Study(
    "solaris-fork",
    "Solaris 8 TS: fork beside a hog at nice 19",
    "A hog at nice 19 slows a script that forks tenfold, one that uses vfork not at all. A forked child begins with the "
    "priority to which its parent has sunk, and only the clock of seconds lifts the starved.",
    "Study of fork and nice 19 under the Solaris 8 time-sharing class",
    run,
)
