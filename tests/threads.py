"""Threads of this process by their name."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path


def named(name: str) -> int:
    """How many there are of this name."""
    found = 0
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # It has ended since.
            found += (task / "comm").read_text().strip() == name
    return found


def soon(name: str, number: int) -> bool:
    """Whether there are so many, as soon as that is so: a new one has its name once it runs."""
    until = time.monotonic() + 30
    while named(name) != number:
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
