"""How many captures of two CPUs say how fast these are against each other, and how much they differ.

``python -m validation.speeds LAB2`` reads each capture into programs, which takes speeds from the
trace alone (`replay/src/calibrate/speed.rs`), and prints a line for guests and one for the real
machine.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from pathlib import Path

import tracekit as tk
from tracekit import _core
from validation.lab import captures


def ratio(trace: tk.Trace) -> float | None:
    """Time that the slowest CPU takes for what the fastest does in 1; None where they count as equal."""
    inferred = _core.Programs(_core.Reading(trace.events, system="linux")).inferred()
    times = [value for name, value, *_ in inferred if name == "slowness of a CPU" and value is not None]
    return max(times) / min(times) if times else None


def main(folder: str) -> None:
    """Print what the captures below a folder say."""
    every: dict[str, list[float | None]] = defaultdict(list)
    for capture in captures(Path(folder)).values():
        if capture.cpus == 2:
            every["guests" if capture.exact else "real machine"].append(ratio(tk.read(capture.file)))
    for where, all_of in every.items():
        said = [value for value in all_of if value is not None]
        range_ = f": {min(said):.2f} to {max(said):.2f}, median {statistics.median(said):.2f}" if said else ""
        print(f"{where}, two CPUs: {len(said)} of {len(all_of)} captures say a ratio{range_}")


if __name__ == "__main__":
    main(sys.argv[1])
