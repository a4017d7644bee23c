"""A home, a locale, a terminal and memory that are not there."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


def bare(
    *words: str | os.PathLike[str], limit: int | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run with nothing in the environment but what is given, and at most `limit` bytes of memory."""

    def narrow() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    return subprocess.run(
        [sys.executable, "-m", "tracekit", *map(os.fspath, words)],
        capture_output=True, encoding="utf-8", timeout=120, check=False, preexec_fn=narrow,
        stdin=subprocess.DEVNULL, env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], **env},
    )  # fmt: skip


@pytest.mark.parametrize(
    "env", [{}, {"HOME": "/nonexistent"}, {"LC_ALL": "POSIX"}, {"LC_ALL": "xx_XX.broken"}, {"TERM": "dumb"}]
)
def test_a_bare_environment_changes_no_answer(env: dict[str, str], demo: Path) -> None:
    done = bare("slices", demo, **env)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == bare("slices", demo, LC_ALL="C.UTF-8", HOME=str(ROOT)).stdout


def test_a_home_that_cannot_be_written_is_no_hindrance(demo: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = bare("slices", demo, TRACEKIT_CACHE="1", HOME=str(tmp_path / "file"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == bare("slices", demo).stdout


@pytest.mark.parametrize(
    ("command", "mebi", "needed"),
    [
        (("compare", "--policy", "rr"), 300, "1.5 GiB"),
        (("compare", "--policy", "rr"), 460, "1.5 GiB"),
        (("compare", "--policy", "rr"), 1300, "1.5 GiB"),
        (("slices",), 500, "1 GiB"),
        (("slices",), 800, "1 GiB"),
    ],
)
def test_too_little_memory_is_one_line(demo: Path, command: tuple[str, ...], mebi: int, needed: str) -> None:
    done = bare(*command, demo, limit=mebi << 20)
    assert (done.returncode, done.stdout) == (2, "")
    what = f"{command[0]} needs {needed} of address space, `ulimit -v` gives {mebi / 1024:.2g}"
    assert done.stderr == f"tracekit: out of memory: {what}; `tracekit convert` needs little of it\n"


def test_little_memory_is_enough_to_convert_and_to_ask(demo: Path, tmp_path: Path) -> None:
    done = bare("convert", demo, "-o", tmp_path / "x.parquet", limit=300 << 20)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x.parquet").stat().st_size > 0
    assert bare("compare", "--help", limit=300 << 20).returncode == 0
    assert bare("slices", demo, limit=1 << 30, OPENBLAS_NUM_THREADS="1").returncode == 0


def test_closed_standard_streams_are_no_crash(demo: Path) -> None:
    line = f"{sys.executable} -m tracekit slices {demo} >&- 2>&-"
    done = subprocess.run(["bash", "-c", line], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 0


FORK = """
import os, sys, warnings
import tracekit as tk
trace = tk.read(sys.argv[1])
if sys.argv[2] == "begun":
    trace.latency()
child = os.fork()
if child == 0:
    warnings.simplefilter("error")
    try:
        tk.replay(trace, "fifo") if sys.argv[2] == "begun" else tk.read(sys.argv[1])
    except RuntimeWarning as warned:
        os._exit(7 if "spawn" in str(warned) else 1)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux names threads in /proc")
@pytest.mark.parametrize(("polars", "status"), [("begun", 7), ("not begun", 0)])
def test_a_fork_without_the_threads_of_polars_is_warned_of(polars: str, status: int, demo: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, str(demo), polars],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    assert done.returncode == status, done.stderr
