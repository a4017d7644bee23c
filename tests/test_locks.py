"""Which tasks of real recordings share a lock."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracekit as tk


@pytest.mark.parametrize("name", ["server-default-2cpu", "server-default-2cpu-rep3"])
def test_workers_that_wait_for_work_share_no_lock(testdata: Path, name: str) -> None:
    """A sixth of the waits of these workers begins while none of them runs: nobody can hold a lock then."""
    programs = tk.Programs(tk.read(testdata / "lab2" / "host-6.18-2cpu" / f"{name}.perf.txt"))
    said = programs.inferred.filter(name="unobserved messages")["how"].to_list()
    assert not [how for how in said if "at a lock" in how]
