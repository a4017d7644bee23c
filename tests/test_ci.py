"""CI checks what it says it checks: no peer, no capture and no test is left out unseen."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CI = ROOT / ".ci" / "run"
PEERS = ("trace-cmd", "perf", "babeltrace2", "chromium", "chromedriver")


def clean_machine(folder: Path, peers: tuple[str, ...]) -> tuple[Path, dict[str, str]]:
    """A checkout without captures, and an environment with nothing but a shell, make and some peers."""
    checkout, programs = folder / "checkout", folder / "bin"
    (checkout / ".ci").mkdir(parents=True)
    programs.mkdir()
    shutil.copy(CI, checkout / ".ci" / "run")
    shutil.copy(ROOT / "Makefile", checkout / "Makefile")
    for name in ("bash", "sh", "env", "dirname", "id", "make", "find", "awk", "cat"):
        place = shutil.which(name)
        assert place is not None, name
        (programs / name).symlink_to(place)
    for name in peers:
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    return checkout, {"PATH": str(programs), "ARCHIVES": str(folder / "nowhere")}


@pytest.mark.parametrize("peers", [(), PEERS[:2], PEERS])
def test_a_machine_without_peers_or_captures_fails_by_name(peers: tuple[str, ...], tmp_path: Path) -> None:
    checkout, environment = clean_machine(tmp_path, peers)
    done = subprocess.run(
        [checkout / ".ci" / "run"], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1, done.stdout + done.stderr
    for peer in PEERS:
        named = re.search(rf"^  {peer} \(Debian: apt-get install ", done.stderr, flags=re.MULTILINE)
        assert (named is None) == (peer in peers), done.stderr
    for part in ("corpus", "lab", "lab2"):
        assert f"  testdata/{part} (make testdata" in done.stderr
    # Nothing was built before that was known.
    assert "== set-up" not in done.stdout
    assert not (checkout / ".venv").exists()


SUITE = """
import pytest

def test_that_runs(): pass

def test_with_captures(): pytest.skip("no testdata/ (make testdata unpacks it)")

@pytest.mark.parametrize("n", [1, 2])
def test_of_one_capture(n): pytest.skip(f"no capture lab/6.1/a{n}.dat (make testdata unpacks it)")

def test_with_a_shell(): pytest.skip("no zsh")
"""


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize("ci", ["true", ""])
def test_skips_are_counted_and_fail_in_ci(ci: str, workers: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "skips.py", tmp_path / "skips.py")
    (tmp_path / "conftest.py").write_text("from skips import pytest_sessionfinish, pytest_terminal_summary\n")
    (tmp_path / "test_suite.py").write_text(SUITE)
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(tmp_path)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-n",
        workers,
        "--rootdir",
        ".",
    ]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    text = done.stdout
    assert "left out: 4" in text, text + done.stderr
    assert "2 x no capture ..." in text
    assert "1 passed, 4 skipped" in text.splitlines()[-1]
    assert done.returncode == (1 if ci else 0)
    refused = text.partition("CI may not leave these out")[2]
    assert bool(refused) == bool(ci)
    assert ("make testdata" in refused) == bool(ci)
    assert "zsh" not in refused


def test_only_allowed_skips_leave_ci_green(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "skips.py", tmp_path / "skips.py")
    (tmp_path / "conftest.py").write_text("from skips import pytest_sessionfinish, pytest_terminal_summary\n")
    (tmp_path / "test_suite.py").write_text("import pytest\ndef test_shell(): pytest.skip('no zsh')\n")
    environment = {**os.environ, "CI": "true", "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout


def test_make_unpacks_every_archive_and_prints_the_slowest_tests() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "testdata corpus lab lab2;" in makefile
    assert "--durations=10" in makefile


def test_make_knows_the_grammars_that_are_fuzzed() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "fuzz_grammars.py", "list"],
        capture_output=True,
        text=True,
        check=True,
    )
    named = re.search(r"^GRAMMARS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert named is not None
    assert named[1].split() == done.stdout.split()
