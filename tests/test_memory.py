"""Converting needs no more memory for a longer trace."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("kind", "table"), [("parquet", "events"), ("arrow", "events"), ("parquet", "slices")]
)
def test_memory_does_not_grow_with_the_trace(root: Path, tmp_path: Path, kind: str, table: str) -> None:
    bench = load(root / "bench" / "convert_memory.py")
    tool = load(root / "tests" / "tools" / "tile_trace.py")
    peaks = []
    for size in (50_000_000, 150_000_000):
        long = tmp_path / f"{size}.txt"
        tool.tile(root / "fixtures" / "ftrace-text" / "kernel-6.1" / "input.txt", long, size)
        got = bench.convert(long, tmp_path / f"x.{kind}", table)
        assert got.status == 0
        long.unlink()
        peaks.append(got.peak_bytes)
    assert peaks[1] < 1 << 30
    # Row groups fill up first; after that there is nothing that grows but names and tasks.
    assert peaks[1] < peaks[0] + (150 << 20)


def test_the_peak_is_that_of_the_command_alone(root: Path) -> None:
    bench = load(root / "bench" / "convert_memory.py")
    held = b"x" * (400 << 20)
    assert bench.measure([sys.executable, "-c", "pass"]).peak_bytes < 100 << 20
    assert bench.measure([sys.executable, "-c", "x = b'x' * (300 << 20)"]).peak_bytes > 300 << 20
    assert bench.measure([sys.executable, "-c", "raise SystemExit(3)"]).status == 3
    del held


def test_a_tiled_trace_is_one_trace_in_time_order(root: Path, tmp_path: Path) -> None:
    import tracekit as tk

    tool = load(root / "tests" / "tools" / "tile_trace.py")
    source = root / "fixtures" / "ftrace-text" / "kernel-6.1" / "input.txt"
    tool.tile(source, tmp_path / "long.txt", 100_000)
    one, many = tk.read(source), tk.read(tmp_path / "long.txt")
    assert many.events["ts_ns"].is_sorted()
    assert many.events.height % one.events.height == 0
    assert many.events.height >= 5 * one.events.height
    assert many.events["tid"].head(one.events.height).equals(one.events["tid"])
