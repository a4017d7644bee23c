"""Histograms of bcc against a reader of their lines that shares no code with the parser."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

import tracekit as tk

FIXTURES = Path(__file__).parents[2] / "fixtures" / "bpf-hist"
ROW = re.compile(r"^\s*(\d+)(?:\s*->\s*(\d+))?\s*:\s*(\d+)\s*\|")


def independent(text: str) -> list[tuple[int, int, int]]:
    """First value, last value and count of every row."""
    found = (ROW.match(line) for line in text.splitlines())
    return [(int(m[1]), int(m[2] or m[1]), int(m[3])) for m in found if m]


def buckets(trace: tk.Trace) -> list[tuple[int, int, int]]:
    """The same from the table, whose upper bound is excluded."""
    return [(lo, hi - 1, count) for lo, hi, count in trace.histograms.select("lo", "hi", "count").iter_rows()]


@pytest.mark.parametrize("case", ["runqlat", "runqlen"])
def test_fixtures_equal_an_independent_reader(case: str) -> None:
    text = (FIXTURES / case / "input.txt").read_text()
    found = buckets(tk.read(text.encode()))
    assert found
    assert found == independent(text)


@pytest.mark.parametrize("seed", range(20))
def test_made_histograms_equal_an_independent_reader(seed: int) -> None:
    rng = random.Random(seed)
    unit = rng.choice(["usecs", "msecs", "nsecs"])
    lines = ["Tracing run queue latency... Hit Ctrl-C to end.", "^C"]
    for key in range(rng.randint(1, 4)):
        lines += ["", f"pid = {key + 1}", f"     {unit:<19} : count     distribution"]
        for power in range(rng.randint(1, 40)):
            lo, hi = (0, 1) if power == 0 else (1 << power, (2 << power) - 1)
            stars = "*" * rng.randint(0, 40)
            lines.append(f"{lo:>10} -> {hi:<10} : {rng.randint(0, 10**9):<8} |{stars:<40}|")
    text = "\n".join(lines) + "\n"
    trace = tk.read(text.encode())
    assert trace.metadata["source.format"] == "bpf-hist"
    assert buckets(trace) == independent(text)
    assert set(trace.histograms["unit"].cast(str)) == {{"usecs": "us", "msecs": "ms", "nsecs": "ns"}[unit]}
