"""What many tests need: the shipped capture, the larger captures when they are there, and the
command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import tracekit as tk

from .skips import pytest_sessionfinish, pytest_terminal_summary

__all__ = ["pytest_sessionfinish", "pytest_terminal_summary"]

ROOT = Path(__file__).parent.parent
# A shell without job control starts what runs behind with SIGINT ignored: what waits for one would never end.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def demo() -> Path:
    """A real capture of Linux 6.1, three seconds of 16 spinners and their wakers, made small."""
    return ROOT / "fixtures" / "demo" / "slice-default.dat"


@pytest.fixture(scope="session")
def trace(demo: Path) -> tk.Trace:
    """The shipped capture, read once."""
    return tk.read(demo)


@pytest.fixture(scope="session")
def testdata() -> Path:
    """The folder of the larger captures; skips where they are not unpacked."""
    folder = ROOT / "testdata"
    if not folder.is_dir():
        pytest.skip("no testdata/ (make testdata unpacks it)")
    return folder


@pytest.fixture(scope="session")
def tracekit() -> Run:
    """Runs the command line in a process of its own."""

    def run(
        *args: str | os.PathLike[str], stdin: str = "", **options: object
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tracekit", *map(os.fspath, args)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            command, input=stdin, capture_output=True, text=True, timeout=120, env=environment, **options
        )

    return run
