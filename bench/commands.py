"""What whole commands cost: CPU time, elapsed time and peak memory.

They stand beside `wc -l` and `tracekit convert` of the same file.

    python bench/commands.py [--size 500MB] [--rounds 5] [--json FILE] [--plot FILE]

A text is made by tiling a real one. Each row is the median of the rounds, in which all commands
take turns, so that a ratio compares what ran side by side. CPU time is user and system time of the
whole process, its start included; it counts where the machine does other work. `one CPU` binds the
process to one CPU. What two CPUs can give at most is measured beside: two processes of one CPU each,
side by side, do so many times the work of one. With `--plot` the texts of five sizes are measured, and drawn.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convert_memory import ROOT, SOURCE, tiler

#: Peak memory that no command may exceed, and how much longer than `convert` it may take.
MOST_BYTES, MOST_RATIO = 1 << 30, 1.5
#: Events that `convert` is to write in a second on one CPU, its start included, and how many times
#: as fast two CPUs are to be.
EVENTS_PER_SECOND, TWO_CPUS = 4e6, 1.7
#: A capture to compare, and the elapsed seconds that are asked for on two CPUs.
CAPTURE, MOST_SECONDS = ROOT / "testdata" / "lab" / "6.1-speed" / "slice-long-default.dat", 3.0
ONE_PASS = ("info", "slices", "latency", "response", "runqueue")

# As in convert_memory: a small process stands between, so that the peak is that of the command alone.
BETWEEN = """
import os, sys, time
which = {"one": 0, "other": 1}.get(sys.argv[2])
if which is not None: os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[which]})
began = time.monotonic()
child = os.posix_spawn(sys.argv[3], sys.argv[3:], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
_, status, used = os.wait4(child, 0)
told = os.waitstatus_to_exitcode(status), time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
os.write(int(sys.argv[1]), repr(told).encode())
"""


@dataclass(frozen=True)
class Case:
    """A command to measure, and what it is compared with."""

    name: str
    command: Sequence[str]
    cpus: str = "all"
    beside: str = ""


def environment() -> dict[str, str]:
    """As installed: with compiled modules, which the first run writes where there are none."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(ROOT)}


def once(case: Case) -> tuple[float, float, int]:
    """Elapsed seconds, CPU seconds and peak bytes of one run."""
    ours, theirs = os.pipe()
    between = [sys.executable, "-I", "-S", "-c", BETWEEN, str(theirs), case.cpus, *case.command]
    with os.fdopen(ours, "rb") as told:
        subprocess.run(between, env=environment(), pass_fds=[theirs], check=True)
        os.close(theirs)
        status, elapsed, cpu, peak = ast.literal_eval(told.read().decode())
    if status:
        raise SystemExit(f"{case.name}: ended with status {status}")
    return elapsed, cpu, peak


def most(case: Case, rounds: int) -> float:
    """How much work two processes of one CPU each do side by side, in times that of one alone."""
    twin = Case(case.name, [word.replace("out.parquet", "twin.parquet") for word in case.command], "other")
    gains = []
    with ThreadPoolExecutor(2) as pool:
        for _ in range(rounds):
            alone = once(case)[0]
            gains.append(2 * alone / max(elapsed for elapsed, _, _ in pool.map(once, (case, twin))))
    return statistics.median(gains)


def tracekit(*words: object) -> list[str]:
    """A command line of tracekit."""
    return [sys.executable, "-m", "tracekit", *map(str, words)]


def cases(text: Path, folder: Path, capture: Path | None) -> list[Case]:
    """What is measured of a text, and of a capture where it is there."""
    target = folder / "out.parquet"
    convert = tracekit("convert", text, "-o", target, "-q")
    found = [Case("wc -l", [shutil.which("wc") or "/usr/bin/wc", "-l", str(text)])]
    found += [
        Case("convert, one CPU", convert, "one", "wc -l"),
        Case("convert", convert, "all", "convert, one CPU"),
    ]
    found += [Case(name, tracekit(name, text, "-q"), "all", "convert") for name in ONE_PASS]
    if capture is not None:
        compare = tracekit("compare", capture, "--policy", "cfs:wakeup_preemption=off", "-q")
        found.append(Case("compare, one CPU", compare, "one"))
        found.append(Case("compare", compare, "all", "compare, one CPU"))
    found.append(Case("--help", tracekit("--help")))
    return found


def measure(every: Sequence[Case], rounds: int) -> list[dict[str, Any]]:
    """Medians of so many rounds, in which the cases take turns."""
    runs: dict[str, list[tuple[float, float, int]]] = {case.name: [] for case in every}
    for _ in range(rounds):
        for case in every:
            runs[case.name].append(once(case))
    rows = []
    for case in every:
        elapsed, cpu, peak = (statistics.median(column) for column in zip(*runs[case.name], strict=True))
        row = {"command": case.name, "cpu_s": cpu, "elapsed_s": elapsed, "peak_bytes": int(peak)}
        if case.beside:
            # Turn by turn: what else the machine did then slowed both.
            pairs = list(zip(runs[case.name], runs[case.beside], strict=True))
            row["beside"] = case.beside
            row["cpu_ratio"] = statistics.median(a[1] / max(b[1], 1e-3) for a, b in pairs)
            row["elapsed_ratio"] = statistics.median(a[0] / max(b[0], 1e-3) for a, b in pairs)
        rows.append(row)
    return rows


def add_most(rows: Sequence[dict[str, Any]], every: Sequence[Case], rounds: int) -> None:
    """Put beside what two CPUs gain what they can give at most."""
    if len(os.sched_getaffinity(0)) < 2:
        return
    alone = {case.name.split(",")[0]: case for case in every if case.cpus == "one"}
    for row in rows:
        if row["command"] in alone:
            row["most"] = most(alone[row["command"]], rounds)


def show(rows: Sequence[dict[str, Any]], events: int) -> None:
    """A line for each command."""
    print(
        f"{'command':20}{'CPU s':>8}{'elapsed':>9}{'peak MB':>9}{'M ev/CPU s':>12}  ratio of CPU and elapsed time"
    )
    for row in rows:
        of_text = row["command"].split(",")[0] in ("convert", *ONE_PASS)
        rate = f"{events / row['cpu_s'] / 1e6:.2f}" if of_text else ""
        ratio = (
            f"{row['cpu_ratio']:.2f}  {row['elapsed_ratio']:.2f}  beside {row['beside']}"
            if "beside" in row
            else ""
        )
        print(
            f"{row['command']:20}{row['cpu_s']:>8.2f}{row['elapsed_s']:>9.2f}{row['peak_bytes'] / 1e6:>9.0f}{rate:>12}  {ratio}"
        )


def verdict(rows: Sequence[dict[str, Any]], events: int) -> None:
    """Say which demands are missed."""
    found = {row["command"]: row for row in rows}
    rate = events / found["convert, one CPU"]["cpu_s"]
    if rate < EVENTS_PER_SECOND:
        print(f"missed: convert, one CPU: {rate / 1e6:.1f} M events/s, asked {EVENTS_PER_SECOND / 1e6:.0f}")
    for name in ("convert", "compare"):
        row = found.get(name)
        if row is None or "most" not in row:
            continue
        gain = 1 / row["elapsed_ratio"]
        print(
            f"{name}: {gain:.2f} times as fast as on one CPU; two processes side by side do {row['most']:.2f} "
            f"times the work of one"
        )
        if gain < TWO_CPUS:
            print(f"missed: {name}: {gain:.2f} times as fast as on one CPU, asked {TWO_CPUS}")
    missed = [f"{c}: peak over 1 GiB" for c in ("convert", *ONE_PASS) if found[c]["peak_bytes"] > MOST_BYTES]
    missed += [
        f"{c}: {found[c]['cpu_ratio']:.2f} times the CPU time of convert, asked at most {MOST_RATIO}"
        for c in ONE_PASS
        if found[c]["cpu_ratio"] > MOST_RATIO
    ]
    if "compare" in found and found["compare"]["elapsed_s"] > MOST_SECONDS:
        missed.append(
            f"compare: {found['compare']['elapsed_s']:.1f} s elapsed, asked at most {MOST_SECONDS:.0f}"
        )
    for line in missed:
        print(f"missed: {line}")


def lines(text: Path) -> int:
    """Lines of a file."""
    with text.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 24), b""))


def draw(found: dict[int, list[dict[str, Any]]], target: Path) -> None:
    """CPU time and peak memory against events, both on logarithmic scales."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, column, unit, label in (
        (axes[0], "cpu_s", 1.0, "CPU time, s"),
        (axes[1], "peak_bytes", 1e6, "peak memory, MB"),
    ):
        for command in ("wc -l", "convert", *ONE_PASS):
            values = [
                next(r[column] for r in rows if r["command"] == command) / unit for rows in found.values()
            ]
            axis.loglog(list(found), values, marker="o", label=command)
        axis.set(xlabel="events", ylabel=label)
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.grid(visible=True, which="both", alpha=0.3)
    lines, labels = axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(target, dpi=120)


def main() -> int:
    """Run from a shell."""
    tools = tiler()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--size", type=tools.parse_size, default=500 * 10**6, help="of the text (default 500MB)"
    )
    parser.add_argument("--source", type=Path, default=SOURCE)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="measure five sizes up to this one, and draw them"
    )
    given = parser.parse_args()
    if not given.source.exists():
        print(f"skipped commands: no {given.source} (make testdata, or --source)", file=sys.stderr)
        return 0
    capture = CAPTURE if CAPTURE.exists() else None
    found: dict[int, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        text = Path(scratch) / "long.txt"
        for size in [given.size // k for k in (64, 32, 8, 2)] * bool(given.plot) + [given.size]:
            tools.tile(given.source, text, size)
            events = lines(text)
            last = size == given.size
            found[events] = measure(cases(text, Path(scratch), capture if last else None), given.rounds)
            print(f"\n{size / 1e6:.0f} MB of text, {events} lines; medians of {given.rounds}")
            show(found[events], events)
        add_most(found[events], cases(text, Path(scratch), capture), given.rounds)
        verdict(found[events], events)
    if given.plot:
        draw(found, given.plot)
    if given.json:
        given.json.write_text(json.dumps({"cpus": os.cpu_count(), "events": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
