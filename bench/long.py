"""What takes minutes: a sweep of 200 cells, killed and gone on with, and a comparison of a long trace.

    python bench/long.py [--events 10000000] [--rounds 1] [--json FILE] [sweep] [compare]

Each runs on one CPU and on all, in turns. The sweep is of the shipped capture. One more sweep is
killed (SIGKILL, with its workers) when half of its cells are kept, and started again: its table must
be that of the others, and no cell may be run twice. The long trace is made by tiling a real one.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from commands import Case, lines, measure, tracekit
from convert_memory import ROOT, SOURCE, tiler

DEMO = ROOT / "fixtures" / "demo" / "slice-default.dat"
#: 20 by 10 cells.
GRID = ("--policy", "cfs:wakeup_granularity=0..4ms/20", "--set", "spin*: nice=0..18/10")
CELLS = 200
#: What is asked: gain on two CPUs, elapsed seconds and peak of the long comparison.
SWEEP_GAIN, COMPARE_GAIN, MOST_SECONDS, MOST_BYTES = 1.8, 1.7, 90.0, 4 << 30


def sweep(target: Path, jobs: int | None) -> list[str]:
    """A sweep of all cells; by default on all CPUs."""
    return tracekit("sweep", DEMO, *GRID, "-o", target, "-q", *(("--jobs", jobs) if jobs else ()))


def sweeps(scratch: Path) -> list[Case]:
    """A sweep on one CPU and on all; each begins anew."""

    def fresh(name: str, command: Sequence[str]) -> list[str]:
        # An earlier result would be taken for finished cells.
        return ["/bin/sh", "-c", 'rm -f "$0"; exec "$@"', str(scratch / name), *command]

    one, both = (
        fresh(name, sweep(scratch / name, jobs)) for name, jobs in (("one.parquet", 1), ("all.parquet", None))
    )
    return [Case("sweep, one CPU", one, "one"), Case("sweep", both, "all", "sweep, one CPU")]


def comparisons(text: Path) -> list[Case]:
    """A comparison on one CPU and on all."""
    command = tracekit("compare", text, "--policy", "cfs:wakeup_preemption=off", "-q")
    return [Case("compare, one CPU", command, "one"), Case("compare", command, "all", "compare, one CPU")]


def killed(scratch: Path) -> dict[str, Any]:
    """Kill a sweep in the middle and go on with it.

    Returns
    -------
    dict
        `kept` (cells before the kill), `touched` (of these, cells that were written again), `same`
        (whether the table is that of a sweep that nobody killed).
    """
    import polars as pl

    target = scratch / "killed.parquet"
    kept = scratch / f"{target.name}.cells"
    cells, again = "[0-9a-f]*.arrows", sweep(target, None)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(again, env=environment, start_new_session=True) as process:
        while process.poll() is None and len(list(kept.glob(cells))) < CELLS // 2:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    before = {path: path.stat().st_mtime_ns for path in kept.glob(cells)}
    with subprocess.Popen(again, env=environment) as process:
        touched: set[Path] = set()
        while process.poll() is None:
            for path, made in before.items():
                try:
                    if path.stat().st_mtime_ns != made:
                        touched.add(path)
                except FileNotFoundError:
                    break
            time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"the sweep that went on ended with status {process.returncode}")
    same = pl.read_parquet(target).equals(pl.read_parquet(scratch / "all.parquet"))
    return {"kept": len(before), "touched": len(touched), "same": same}


def show(rows: Sequence[dict[str, Any]]) -> None:
    """A line for each command."""
    print(f"{'command':20}{'CPU s':>8}{'elapsed':>9}{'peak MB':>9}  times as fast")
    for row in rows:
        gain = f"{1 / row['elapsed_ratio']:.2f}  as {row['beside']}" if "beside" in row else ""
        print(
            f"{row['command']:20}{row['cpu_s']:>8.1f}{row['elapsed_s']:>9.1f}{row['peak_bytes'] / 1e6:>9.0f}  {gain}"
        )


def missed(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Which demands are missed."""
    found = []
    for row in rows:
        asked = {"sweep": SWEEP_GAIN, "compare": COMPARE_GAIN}.get(row["command"])
        if asked and (os.cpu_count() or 1) > 1 and 1 / row["elapsed_ratio"] < asked:
            found.append(f"{row['command']}: {1 / row['elapsed_ratio']:.2f} times as fast, asked {asked}")
        if row["command"] == "compare" and row["elapsed_s"] > MOST_SECONDS:
            found.append(f"compare: {row['elapsed_s']:.0f} s, asked at most {MOST_SECONDS:.0f}")
        if row["command"] == "compare" and row["peak_bytes"] > MOST_BYTES:
            found.append(
                f"compare: peak {row['peak_bytes'] / 2**30:.1f} GiB, asked at most {MOST_BYTES >> 30}"
            )
    return found


def main() -> int:
    """Run from a shell."""
    tools = tiler()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", help="sweep, compare; by default both")
    parser.add_argument("--events", type=int, default=10_000_000, help="of the long trace, about")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    what = set(given.what) or {"sweep", "compare"}
    rows: list[dict[str, Any]] = []
    result: dict[str, Any] = {"cpus": os.cpu_count(), "rounds": given.rounds}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        if "sweep" in what:
            rows += measure(sweeps(scratch), given.rounds)
            result["killed"] = found = killed(scratch)
            print(
                f"killed with {found['kept']} of {CELLS} cells kept, then gone on: {found['touched']} of these "
                f"written again, {'the same table' if found['same'] else 'ANOTHER TABLE'}"
            )
        if "compare" in what and not SOURCE.exists():
            print(f"skipped compare: no {SOURCE} (make testdata)", file=sys.stderr)
        elif "compare" in what:
            text = scratch / "long.txt"
            size = SOURCE.stat().st_size * given.events // lines(SOURCE)
            tools.tile(SOURCE, text, size)
            print(f"compare: a text of {text.stat().st_size / 1e6:.0f} MB, {lines(text)} lines")
            rows += measure(comparisons(text), given.rounds)
    show(rows)
    for line in missed(rows):
        print(f"missed: {line}")
    if given.json:
        given.json.write_text(json.dumps(result | {"rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
