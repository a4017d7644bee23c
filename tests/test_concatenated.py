"""Two recordings in one file: the first is read, and the second is named."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracekit as tk

FIXTURES = Path(__file__).parents[1] / "fixtures"
FILES = ["perf-data/file/input.data", "trace-dat/v6-two-cpus/input.dat", "trace-dat/v7-none/input.dat"]


@pytest.mark.parametrize("name", FILES)
def test_a_second_recording_behind_the_first_is_named(name: str) -> None:
    one = (FIXTURES / name).read_bytes()
    alone, both = tk.read(one), tk.read(one + one)
    assert alone.diagnostics.filter(code="unsupported").is_empty()
    assert both.events.equals(alone.events)
    (found,) = both.diagnostics.filter(code="unsupported").to_dicts()
    assert found["message"] == f"another recording begins at byte {len(one)} of the file, and is not read"
