"""Captures that end in the middle, as those of a machine that went down."""

from __future__ import annotations

import lzma
import random
import re
from pathlib import Path

import pytest

import tracekit as tk

#: Cuts of each file; the seed makes them the same in every run.
CUTS = 200
#: Where a file ends, in a refusal.
PLACE = re.compile(r"\((byte|line) \d+\)|found none in \d+ records")


#: An address of a call chain.
HEX = re.compile(rb"[0-9a-f]+")
TEXTS = ("ftrace", "perf script", "tasks")


def inputs(root: Path) -> dict[str, bytes]:
    demo = root / "fixtures" / "demo"
    return {
        "trace.dat": (root / "fixtures" / "trace-dat" / "v6-tsc" / "input.dat").read_bytes(),
        "trace.dat 7": (demo / "slice-default.dat").read_bytes(),
        "perf.data": lzma.decompress((demo / "slice-default.perf.data.xz").read_bytes())[:400_000],
        "ftrace": (root / "fixtures" / "ftrace-text" / "kernel-6.1" / "input.txt").read_bytes(),
        "dtrace-tkd": (root / "fixtures" / "dtrace-tkd" / "illumos" / "input.tkd").read_bytes(),
        "perf script": (root / "fixtures" / "perf-script" / "ns" / "input.txt").read_bytes(),
        "tasks": (root / "fixtures" / "perf-script" / "task-events" / "input.txt").read_bytes(),
    }


@pytest.mark.parametrize(
    "name", ["trace.dat", "trace.dat 7", "perf.data", "ftrace", "dtrace-tkd", "perf script", "tasks"]
)
def test_a_capture_cut_anywhere_is_read_or_refused_with_the_place(name: str, root: Path) -> None:
    data = inputs(root)[name]
    whole = tk.read(data)
    # What is said of the whole file says nothing of a cut. The perf.data is cut already.
    usual = set(whole.diagnostics["code"].cast(str)) - {"truncated"}
    draw = random.Random(name)
    read = told = 0
    refusals = []
    for _ in range(CUTS):
        part = data[: draw.randrange(1, len(data))]
        try:
            trace = tk.read(part)
        except tk.TracekitError as error:
            refusals.append(str(error))
            continue
        assert trace.events.height <= whole.events.height
        assert trace.events["ts_ns"].is_sorted()
        read += 1
        # A text that is cut at the end of a line is a shorter text, and the head of a name may be an
        # address of a call chain.
        rest = part[part.rfind(b"\n") + 1 :].strip()
        shorter = name in TEXTS and (not rest or HEX.fullmatch(rest) is not None)
        told += shorter or bool(set(trace.diagnostics["code"].cast(str)) - usual)
    assert [r for r in refusals if not PLACE.search(r)] == []
    # Version 7 says at the end where its records are.
    assert read >= (0 if name == "trace.dat 7" else CUTS // 4)
    assert told == read
