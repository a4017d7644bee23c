"""Peak memory of `tracekit convert` on a long text trace, made by tiling a real one.

    python bench/convert_memory.py [--size 2GB] [--source capture.txt] [--kind parquet arrow csv]

Prints one line a conversion: events, seconds, MB/s, peak resident set of the whole process. Exit
status 1 when a peak is over the limit of 1 GiB.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "testdata" / "lab" / "6.1" / "slice-default.ftrace.txt"
LIMIT = 1 << 30


@dataclass(frozen=True)
class Measured:
    """What a process used."""

    status: int
    seconds: float
    peak_bytes: int


# A process starts with the peak of the one that it was forked from, which may be a test runner that
# holds gigabytes: so a small one stands between, and tells the status, the time and the peak of its
# only child.
BETWEEN = """
import os, sys, time
began = time.monotonic()
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(child, 0)
told = os.waitstatus_to_exitcode(status), time.monotonic() - began, usage.ru_maxrss * 1024
os.write(int(sys.argv[1]), repr(told).encode())
"""


def measure(command: list[str]) -> Measured:
    """Run a command; its time and its peak resident set."""
    ours, theirs = os.pipe()
    between = [sys.executable, "-I", "-S", "-c", BETWEEN, str(theirs), *command]
    with os.fdopen(ours, "rb") as told:
        subprocess.run(between, env={**os.environ, "PYTHONPATH": str(ROOT)}, pass_fds=[theirs], check=True)
        os.close(theirs)
        return Measured(*ast.literal_eval(told.read().decode()))


def convert(source: Path, target: Path, table: str = "events") -> Measured:
    """Convert a table of a trace in a process of its own."""
    words = ["-m", "tracekit", "convert", str(source), "-o", str(target), "--table", table]
    return measure([sys.executable, *words])


def tiler() -> ModuleType:
    """The tool that makes long traces."""
    spec = importlib.util.spec_from_file_location("tile_trace", ROOT / "tests" / "tools" / "tile_trace.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> int:
    """Run from a shell."""
    tools = tiler()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=tools.parse_size, default=2 * 10**9)
    parser.add_argument("--source", type=Path, default=SOURCE)
    parser.add_argument("--kind", nargs="+", default=["parquet"], choices=["parquet", "arrow", "csv"])
    parser.add_argument("--table", nargs="+", default=["events"])
    given = parser.parse_args()
    if not given.source.exists():
        print(f"{given.source}: not there; name a text capture with --source (make testdata unpacks some)")
        return 0
    worst = 0
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        long = Path(folder) / "long.txt"
        tools.tile(given.source, long, given.size)
        for kind in given.kind:
            for table in given.table:
                target = Path(folder) / f"long.{kind}"
                got = convert(long, target, table)
                if got.status:
                    return 1
                size = long.stat().st_size
                print(
                    f"{size / 1e9:.2f} GB of text to {kind}, {table}: {got.seconds:.1f} s, "
                    f"{size / 1e6 / got.seconds:.0f} MB/s, peak {got.peak_bytes / 2**20:.0f} MiB, "
                    f"{target.stat().st_size / 1e6:.0f} MB written",
                    flush=True,
                )
                worst = max(worst, got.peak_bytes)
    return 1 if worst > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
