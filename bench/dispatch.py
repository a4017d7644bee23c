"""How many decisions a second the replay engine makes, for every policy, over runnable tasks and CPUs.

A dispatch is a decision what a CPU runs next. Workloads (`replay/examples/dispatch_bench.rs`):
``yields``, all tasks always runnable and a decision every 0.1 ms of each CPU; ``mixed``, wakeups
and preemptions beside tasks that never sleep; ``hogs``, where decisions are the ends of slices, so
that a policy with slices of many ticks that looks at each of them is measured by these. Time is CPU
time of one thread, because on a busy machine the wall clock measures the others; elapsed time
stands in the JSON beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: Policies of which at least so many dispatches/s are demanded, at so many tasks and CPUs, where
#: tasks wake and preempt beside others that never sleep.
DEMANDED = ("rr", "cfs", "eevdf")
DEMAND = 4_000_000
SMALL = (64, 8)
MIXED = "mixed"
#: A machine of this size may be slower by that factor at most.
LARGE = (10_000, 256)
SLOWER = 4.0
#: So few dispatches tell nothing about their cost.
FEW = 10_000


def build() -> Path:
    """Build the measuring program, and give its path."""
    command = ["cargo", "build", "--quiet", "--release", "--package", "tracekit-replay"]
    subprocess.run([*command, "--example", "dispatch_bench"], cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release" / "examples" / "dispatch_bench"


def measure(
    tool: Path, policies: Sequence[str], arguments: Sequence[str], rounds: int
) -> list[dict[str, Any]]:
    """Every cell, the best of so many rounds of each: the others were disturbed."""
    best: dict[tuple[str, str, int, int], dict[str, Any]] = {}
    for _ in range(rounds):
        command = [str(tool), *policies, *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        for row in map(json.loads, done.stdout.splitlines()):
            key = (row["policy"], row["work"], row["tasks"], row["cpus"])
            if key not in best or row["dispatches_per_s"] > best[key]["dispatches_per_s"]:
                best[key] = row
    return list(best.values())


def rate(row: dict[str, Any]) -> str:
    """Thousand dispatches a second; a dash where hardly any were made.

    That is where every task has a CPU, or nobody gives one up.
    """
    return f"{row['dispatches_per_s'] / 1000:.0f}" if row["dispatches"] >= FEW else "-"


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print a table for each workload, in thousands a second.

    A line per policy and number of CPUs, a column per number of tasks.
    """
    tasks = sorted({row["tasks"] for row in rows})
    for work in dict.fromkeys(row["work"] for row in rows):
        print(
            f"\n{work}: thousand dispatches per second of CPU time (- none to speak of); last column: events per dispatch at most tasks"
        )
        print(f"{'policy':28}{'CPUs':>6}" + "".join(f"{n:>9}" for n in tasks) + f"{'events':>9}")
        of_work = [row for row in rows if row["work"] == work]
        for policy, cpus in dict.fromkeys((row["policy"], row["cpus"]) for row in of_work):
            line = {r["tasks"]: r for r in of_work if r["policy"] == policy and r["cpus"] == cpus}
            cells = "".join(f"{rate(line[n]):>9}" for n in tasks)
            last = line[tasks[-1]]
            print(f"{policy:28}{cpus:>6}{cells}{last['events'] / max(1, last['dispatches']):>9.1f}")


def verdict(rows: Sequence[dict[str, Any]]) -> bool:
    """Say which demands are met; True when all are that were measured."""
    rates = {(r["policy"], r["tasks"], r["cpus"]): r["dispatches_per_s"] for r in rows if r["work"] == MIXED}
    found = []
    for policy in DEMANDED:
        small, large = (rates.get((policy, *size)) for size in (SMALL, LARGE))
        if small is not None:
            text = f"{small / 1e6:.2f} million dispatches/s, demanded at least {DEMAND / 1e6:.0f}"
            found.append((small >= DEMAND, policy, SMALL, text))
        if small is not None and large is not None:
            text = f"{small / large:.1f} times slower than that, demanded at most {SLOWER:.0f}"
            found.append((small <= SLOWER * large, policy, LARGE, text))
    for met, policy, (tasks, cpus), text in found:
        print(f"{'met' if met else 'NOT MET'}: {policy}, {tasks} tasks x {cpus} CPUs, {MIXED}: {text}")
    return all(met for met, *_ in found)


def draw(rows: Sequence[dict[str, Any]], target: Path) -> None:
    """CPU time of a dispatch in the mixed workload against tasks, a line for each number of CPUs."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

    kept = [r for r in rows if r["work"] == MIXED and r["dispatches"] >= FEW]
    policies = list(dict.fromkeys(r["policy"] for r in kept))
    figure, axes = plt.subplots(
        1, len(policies), figsize=(3.4 * len(policies), 3.6), sharey=True, squeeze=False, layout="constrained"
    )
    for axis, policy in zip(axes[0], policies, strict=True):
        for cpus in dict.fromkeys(r["cpus"] for r in kept):
            line = [r for r in kept if (r["policy"], r["cpus"]) == (policy, cpus)]
            spent = [1e9 / r["dispatches_per_s"] for r in line]
            axis.loglog([r["tasks"] for r in line], spent, marker="o", label=f"{cpus} CPU{'s' * (cpus > 1)}")
        axis.axhline(1e9 / DEMAND, color="0.5", linestyle=":")
        axis.set(title=policy, xlabel="tasks")
        tasks = sorted({r["tasks"] for r in kept})
        axis.set_xticks(tasks, [f"{n:,}" for n in tasks])
        axis.set_xticks([], minor=True)
        axis.grid(visible=True, which="both", alpha=0.3)
    axes[0][0].set_ylabel("CPU time of a dispatch, ns")
    axes[0][0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes[0][0].yaxis.set_major_formatter("{x:,.0f}")
    axes[0][0].yaxis.set_minor_formatter(NullFormatter())
    axes[0][-1].legend(frameon=False)
    figure.savefig(target, dpi=120)


def main() -> None:
    """Measure, and print tables or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("policies", nargs="*", help="policies with parameters (default: every one)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all cells there")
    parser.add_argument("--rounds", type=int, default=1, help="best of so many (default 1)")
    parser.add_argument("--tasks", default="4,64,1024,10000", help="tasks")
    parser.add_argument("--cpus", default="1,8,64,256", help="CPUs")
    parser.add_argument("--work", default="yields,mixed,hogs", help="workloads")
    parser.add_argument("--dispatches", default="200000", help="least length of a measurement")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the mixed workload there")
    args = parser.parse_args()
    arguments = [f"--{name}={getattr(args, name)}" for name in ("tasks", "cpus", "work", "dispatches")]
    rows = measure(build(), args.policies, [part for a in arguments for part in a.split("=", 1)], args.rounds)
    show(rows)
    print()
    reached = verdict(rows)
    if args.plot:
        draw(rows, args.plot)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
        print(f"wrote {args.json}", file=sys.stderr)
    sys.exit(0 if reached else 1)


if __name__ == "__main__":
    main()
