"""Says why a process waits for ever that was forked from one in which polars had begun its threads.

A fork copies one thread, the one that forks. polars then waits for threads that are not there, without
a word. `multiprocessing` forks by default on Linux up to Python 3.13.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

__all__ = ["check_threads"]

#: Where Linux names the threads of this process; elsewhere nothing is looked at.
_THREADS = Path("/proc/self/task")
#: How the threads of polars are called there, with a number behind.
_POLARS = "polars-"

_begun = _lost = False


def check_threads() -> None:
    """Warn, once, where this process was forked without the threads of polars.

    Warns
    -----
    RuntimeWarning
        With how to start such processes.
    """
    global _lost
    if _lost:
        _lost = False
        warnings.warn(
            "this process was forked from one in which polars had begun its threads, which do not exist here: it may "
            'wait for them for ever; start processes by multiprocessing.get_context("spawn") or "forkserver"',
            RuntimeWarning,
            stacklevel=3,
        )


def _before() -> None:
    global _begun
    try:
        names = [(thread / "comm").read_text() for thread in _THREADS.iterdir()]
    except (OSError, ValueError):  # another system, or a thread that ended meanwhile
        return
    _begun = any(n.startswith(_POLARS) and n[len(_POLARS) :].strip().isdigit() for n in names)


def _in_child() -> None:
    global _lost
    _lost = _begun


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_child=_in_child)
