"""The command that counts captures whose CPUs are not equally fast."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracekit as tk
from validation import speeds


def test_only_guests_say_that_their_cpus_differ(testdata: Path, trace: tk.Trace) -> None:
    assert speeds.ratio(trace) is None  # one CPU
    two = tk.read(testdata / "lab2" / "6.12-2cpu" / "mixed-default.dat")
    # Held against the times that the tasks drew: 1.34 and 0.81 (docs/validation-several.md).
    assert speeds.ratio(two) == pytest.approx(1.34 / 0.81, rel=0.1)
