"""How fast the parsers are, beside the programs that wrote the captures.

Every row lets the peer print a capture, and parses the capture (binary formats) or the text that
the peer printed. Both are measured as CPU time of one thread, because on a busy machine the wall
clock measures the others; the peer's output goes nowhere. A peer that is not installed, or a
capture that is not there, is named and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from longer import repeat_perf_data

ROOT = Path(__file__).resolve().parent.parent
RUNS = 20
#: How often the perf.data is repeated, which is short.
COPIES = 20
#: What is demanded: how many times as fast as the peer, and events a second of a format.
RATIO = 40.0
RATES = {"perf-data": 12_000_000, "trace-dat": 20_000_000}
TEXTS = ("ftrace-text", "perf-script")


@dataclass(frozen=True)
class Case:
    """A capture, the command of the peer that prints it, and the parser that reads what it prints."""

    name: str
    capture: Path
    peer: tuple[str, ...]
    format: str


def cpu_seconds(command: Sequence[str], stdout: int) -> tuple[float, bytes]:
    """CPU time of a command and what it printed (empty unless piped)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, done.stdout or b""


def ours(tool: Path, text: Path, fmt: str) -> tuple[float, int]:
    """CPU seconds of one parse, and the events it makes.

    Many runs less one, so that reading the file does not count.
    """
    one, _ = cpu_seconds([str(tool), str(text), fmt, "1"], subprocess.DEVNULL)
    many, printed = cpu_seconds([str(tool), str(text), fmt, str(RUNS + 1)], subprocess.PIPE)
    return (many - one) / RUNS, int(json.loads(printed)["events"])


def measure(case: Case, tool: Path, rounds: int, scratch: Path) -> dict[str, object]:
    """Peer and parser in turns; the best of each counts.

    So both are spared by what else the machine does.
    """
    text = case.capture
    if case.format in TEXTS:
        text = scratch / f"{case.name}.txt"
        with text.open("wb") as out:
            subprocess.run(case.peer, stdout=out, stderr=subprocess.DEVNULL, check=True)
    peer, own, events = [], [], 0
    for _ in range(rounds):
        peer.append(cpu_seconds(case.peer, subprocess.DEVNULL)[0])
        seconds, events = ours(tool, text, case.format)
        own.append(seconds)
    return {
        "capture": case.name,
        "format": case.format,
        "events": events,
        "peer": " ".join(case.peer[:2]),
        "peer_events_per_second": round(events / min(peer)),
        "events_per_second": round(events / min(own)),
        "ratio": round(min(peer) / min(own), 1),
        "ns_per_event": round(min(own) / events * 1e9, 1),
    }


def cases(testdata: Path, scratch: Path) -> list[Case]:
    """The captures to measure, without those whose file or peer is missing."""
    lab = testdata / "lab"
    found = []
    for name in ("6.1-speed/slice-long-default", "6.1-speed/callpipe-long-default-batch"):
        capture = lab / f"{name}.dat"
        peer = ("trace-cmd", "report", str(capture))
        found += [Case(name.replace("/", "-"), capture, peer, fmt) for fmt in ("ftrace-text", "trace-dat")]
    short, capture = lab / "6.1-perf/slice-default.perf.data", scratch / "long.perf.data"
    if short.is_file():
        repeat_perf_data(short, capture, COPIES)
    script = ("perf", "script", "--ns", "-f", "-i", str(capture))
    found += [
        Case(f"6.1-perf-slice-default, {COPIES} times", capture, script, fmt)
        for fmt in ("perf-data", "perf-script")
    ]
    return [case for case in found if available(case)]


def available(case: Case) -> bool:
    """Whether a case can be measured here; says why not."""
    if not case.capture.is_file():
        print(f"skipped {case.name}: no {case.capture} (make testdata)", file=sys.stderr)
        return False
    if shutil.which(case.peer[0]) is None:
        print(f"skipped {case.name}: {case.peer[0]} is not installed", file=sys.stderr)
        return False
    return True


def build() -> Path:
    """The release build of the example that does the parsing."""
    command = [
        "cargo",
        "build",
        "--quiet",
        "--release",
        "--package",
        "tracekit-parsers",
        "--example",
        "throughput",
    ]
    subprocess.run(command, cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release" / "examples" / "throughput"


def main() -> None:
    """Measure every case and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=5, help="turns of peer and parser (default 5)")
    parser.add_argument("--testdata", type=Path, default=ROOT / "testdata", help="folder of the captures")
    args = parser.parse_args()
    tool = build()
    with tempfile.TemporaryDirectory() as scratch:
        rows = [
            measure(case, tool, args.rounds, Path(scratch)) for case in cases(args.testdata, Path(scratch))
        ]
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    print(
        f"{'capture':40} {'format':12} {'peer':18} {'events':>8} {'peer ev/s':>11} {'our ev/s':>12} {'ns/event':>9} {'ratio':>6}"
    )
    for row in rows:
        print(
            f"{row['capture']:40} {row['format']:12} {row['peer']:18} {row['events']:>8} {row['peer_events_per_second']:>11}"
            f" {row['events_per_second']:>12} {row['ns_per_event']:>9} {row['ratio']:>6}"
        )
    print()
    for row in rows:
        fmt, ratio, rate = row["format"], float(str(row["ratio"])), float(str(row["events_per_second"]))
        asked = [
            (ratio >= RATIO, f"{ratio:.1f} times as fast as {row['peer']}, demanded at least {RATIO:.0f}")
        ]
        if least := RATES.get(str(fmt)):
            text = f"{rate / 1e6:.1f} million events/s, demanded at least {least / 1e6:.0f}"
            asked.append((rate >= least, text))
        for met, text in asked:
            print(f"{'met' if met else 'NOT MET'}: {row['capture']}, {fmt}: {text}")


if __name__ == "__main__":
    main()
