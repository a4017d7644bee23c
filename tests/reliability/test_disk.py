"""Output files are whole or absent, whatever happens to the disk or to the process."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run
from tracekit.cli import main
from tracekit.errors import OutputError, TracekitError

OLD = b"what stood here before"


def limited(
    *words: str | os.PathLike[str],
    size: int,
    cwd: Path,
    program: tuple[str, ...] = ("-m", "tracekit"),
    **env: str,
) -> subprocess.CompletedProcess[str]:
    """Run where a file may have at most `size` bytes: the limit fails as a full disk does."""

    def limit() -> None:
        # Python ignores the signal, so that a write fails with EFBIG.
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return subprocess.run(
        [sys.executable, *program, *map(os.fspath, words)],
        capture_output=True, text=True, timeout=120, cwd=cwd, preexec_fn=limit,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
    )  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [
        "convert {} -o out.parquet",
        "convert {} -o out.csv",
        "convert {} -o out.arrow",
        "export {} --perfetto out.pftrace",
        "slices {} --json out.json --show rows",
        "slices {} --plot out.png",
        "compare {} --policy rr --quick -q -o out.html",
    ],
)
def test_a_disk_that_takes_no_more_leaves_what_was_there(command: str, demo: Path, tmp_path: Path) -> None:
    words = command.format(demo).split()
    name = next(w for w in words if w.startswith("out."))
    (tmp_path / name).write_bytes(OLD)
    done = limited(*words, size=2048, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert f"{name}: File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [(name, OLD)]


def test_a_folder_on_a_disk_that_takes_no_more_is_named_and_absent(demo: Path, tmp_path: Path) -> None:
    done = limited("export", demo, "--lisa", "out.lisa", size=2048, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "tracekit: out.lisa: File too large\n")
    assert not list(tmp_path.iterdir())


def test_a_sweep_onto_a_full_disk_keeps_its_cells(tracekit: Run, demo: Path, tmp_path: Path) -> None:
    (tmp_path / "out.parquet").symlink_to("/dev/full")
    words = ("sweep", demo, "--policy", "rr:quantum={1ms,4ms}", "--jobs", "1", "-q")
    done = tracekit(*words, "-o", tmp_path / "out.parquet")
    assert done.returncode == 2, done.stderr
    assert "out.parquet: No space left on device" in done.stderr
    assert len(list((tmp_path / "out.parquet.cells").glob("*.arrows"))) == 2


def test_standard_output_that_takes_no_more(demo: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tracekit", "slices", str(demo)],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "tracekit: standard output: No space left on device\n"


def test_a_device_that_takes_no_more_is_named(tracekit: Run, demo: Path) -> None:
    done = tracekit("slices", demo, "--json", "/dev/full")
    assert (done.returncode, done.stderr) == (2, "tracekit: /dev/full: No space left on device\n")


def test_a_cache_on_a_full_disk_costs_only_time(demo: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    plain = limited("slices", demo, size=1 << 30, cwd=tmp_path)
    done = limited(
        "slices", demo, size=2048, cwd=tmp_path, TRACEKIT_CACHE="1", XDG_CACHE_HOME=str(tmp_path / "cache")
    )
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    left = [p for p in (tmp_path / "cache").rglob("*") if p.is_file() and p.stat().st_size]
    assert [p for p in left if p.suffix in (".parquet", ".arrow")] == []


@pytest.mark.parametrize("place", ["nowhere/out.parquet", "file/out.parquet"])
def test_a_folder_that_is_none(place: str, demo: Path, tmp_path: Path, tracekit: Run) -> None:
    (tmp_path / "file").write_bytes(OLD)
    # The folder is looked at first, so that it is not what follows hours of reading.
    for trace in (demo, tmp_path / "no trace"):
        done = tracekit("convert", trace, "-o", tmp_path / place)
        assert done.returncode == 2
        assert str(tmp_path / place) in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("command", ["convert - --format dtrace-tkd -o out.csv", "convert - --format dtrace-tkd -o out.parquet"])  # fmt: skip
def test_a_process_that_is_killed_leaves_what_was_there(command: str, root: Path, tmp_path: Path) -> None:
    words = command.split()
    name = words[-1]
    (tmp_path / name).write_bytes(OLD)
    head = (root / "fixtures" / "dtrace-tkd" / "illumos" / "input.tkd").read_bytes()
    process = subprocess.Popen(
        [sys.executable, "-m", "tracekit", *words],
        stdin=subprocess.PIPE, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    with process:
        assert process.stdin is not None
        # What is read is kept until there is a batch of it.
        deadline = time.monotonic() + 60
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
            process.stdin.write(head)
            process.stdin.flush()
        assert len(list(tmp_path.iterdir())) == 2, "no unfinished file was seen"
        process.send_signal(signal.SIGKILL)
        process.stdin.close()
    assert (tmp_path / name).read_bytes() == OLD
    # What is left besides is named so that it is seen as unfinished.
    assert all(p.name == name or p.name.endswith(".tmp") for p in tmp_path.iterdir())


def test_a_folder_that_cannot_be_written(tmp_path: Path, tracekit: Run) -> None:
    # Root may write to every folder but those of the kernel.
    folder = Path("/sys") if os.geteuid() == 0 else tmp_path
    tmp_path.chmod(0o555)
    done = tracekit("convert", ROOT / "fixtures" / "demo" / "slice-default.dat", "-o", folder / "out.parquet")
    assert done.returncode == 2
    assert done.stderr.startswith(f"tracekit: {folder}/out.parquet: Permission denied")
    assert done.stderr.count("\n") == 1


def test_a_folder_that_cannot_be_written_is_told_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda folder, mode: False)
    words = ["export", str(tmp_path / "no trace"), "--perfetto", str(tmp_path / "out.pftrace")]
    with pytest.raises(OutputError, match=f"Permission denied: {tmp_path} cannot be written"):
        main(words, standalone_mode=False)
    # A device is written in place.
    with pytest.raises(TracekitError, match="no such file"):
        main([*words[:-1], "/dev/null"], standalone_mode=False)


# The limit kills with a signal that nothing catches, in the middle of a write: `kill -9` at the worst
# moment, each time.
DIES = (
    "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_DFL); "
    "resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); "
    "from tracekit.cli import main; main()"
)


@pytest.mark.parametrize("output", ["-o out.html", "--json out.json"])
def test_a_comparison_that_is_killed_leaves_what_was_there(output: str, demo: Path, tmp_path: Path) -> None:
    name = output.split()[1]
    (tmp_path / name).write_bytes(OLD)
    words = f"compare {demo} --policy rr --quick -q {output}".split()
    done = limited(*words, size=2048, cwd=tmp_path, program=("-c", DIES))
    assert done.returncode == -signal.SIGXFSZ, done.stderr
    assert (tmp_path / name).read_bytes() == OLD
    # It was killed within the file, not before.
    (left,) = (p for p in tmp_path.iterdir() if p.name != name)
    assert left.name.endswith(".tmp")
    assert left.stat().st_size == 2048
