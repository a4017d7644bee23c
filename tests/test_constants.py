"""Constants of the reading: each is documented with how far a result moves when it is doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracekit as tk
from tracekit import _core


def test_every_constant_has_a_source_and_a_measured_sensitivity(root: Path) -> None:
    page = (root / "docs" / "constants.md").read_text()
    for name, source in _core.constants():
        row = next((line for line in page.splitlines() if line.startswith(f"| `{name}` |")), "")
        assert source in row, f"{name}: run python -m validation.constants testdata/lab"
        assert any(cell.strip().startswith(("+", "-")) for cell in row.split("|")[3:])


def test_a_doubled_constant_is_one_that_there_is(trace: tk.Trace) -> None:
    for name, _ in _core.constants():
        assert len(_programs(trace, name)) == len(_programs(trace, None))
    with pytest.raises(tk.ReplayError, match="no constant is called 'speed'"):
        _programs(trace, "speed")


def _programs(trace: tk.Trace, vary: str | None) -> _core.Programs:
    return _core.Programs(_core.Reading(trace.events, vary=vary))
