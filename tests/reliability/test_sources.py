"""Sources that change while they are read, that never end, or that are no files."""

from __future__ import annotations

import gzip
import os
import shutil
import threading
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from tests.conftest import Run
from tests.reliability.test_environment import bare
from tracekit import _core

HEAD = "# tracer: nop\n#\n"


def switches(n: int, start: float = 1.0, cpu: int = 0, names: str = "ab") -> list[str]:
    """Lines of ftrace: two tasks take turns."""
    pair = tuple((name, 10 + ord(name) - ord("a")) for name in names)
    lines = []
    for i in range(n):
        (prev, out), (new, into) = pair[i % 2], pair[(i + 1) % 2]
        lines.append(
            f"{prev:>16}-{out:<7} [{cpu:03d}] d..2 {start + i / 1000:.6f}: sched_switch: prev_comm={prev} prev_pid={out} "
            f"prev_prio=120 prev_state=R ==> next_comm={new} next_pid={into} next_prio=120\n"
        )
    return lines


def rest(reader: _core.Reader) -> pl.DataFrame:
    """Read to the end; the diagnostics."""
    while reader.read(1 << 16) is not None:
        pass
    return pl.DataFrame(reader.table("diagnostics"))


@pytest.mark.parametrize("left", [4096, 3 * 4096 + 100])
def test_a_mapped_file_that_shrinks_ends_in_a_diagnostic(demo: Path, tmp_path: Path, left: int) -> None:
    file = tmp_path / "x.dat"
    shutil.copy(demo, file)
    whole = tk.read(file).events.height
    reader = _core.Reader(str(file), None, {})
    assert reader.read(10) is not None
    os.truncate(file, left)
    said = rest(reader).filter(code="damaged")
    assert 10 <= reader.rows < whole
    assert (
        said["message"]
        .cast(pl.String)
        .str.contains(f"had {demo.stat().st_size} bytes .* has {left} now")
        .any()
    )


def test_a_text_that_shrinks_ends_in_a_diagnostic(tmp_path: Path) -> None:
    file = tmp_path / "x.txt"
    file.write_text(HEAD + "".join(switches(40_000)))
    before = file.stat().st_size
    reader = _core.Reader(str(file), None, {})
    assert reader.read(10) is not None
    os.truncate(file, 100_000)
    said = rest(reader).filter(code="damaged")
    assert said["message"].cast(pl.String).str.contains(f"had {before} bytes .* has 100000 now").any()


def test_a_text_that_grows_is_read_as_far_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "x.txt"
    file.write_text(HEAD + "".join(switches(20_000)))
    reader = _core.Reader(str(file), None, {})
    assert reader.read(10) is not None
    with file.open("a") as more:
        more.writelines(switches(5_000, start=100.0))
    said = rest(reader)
    assert 20_000 <= reader.rows <= 25_000
    assert said.filter(code="damaged").height == 0


def test_a_pipe_and_a_fifo_are_read(demo: Path, tmp_path: Path, tracekit: Run) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_bytes(demo.read_bytes()))
    writer.start()
    piped = tracekit("slices", fifo)
    writer.join(timeout=20)
    assert (piped.returncode, piped.stdout) == (0, tracekit("slices", demo).stdout)


@pytest.mark.parametrize(
    ("device", "said"),
    [("/dev/zero", "found binary data"), ("/dev/null", "found an empty file"), ("/dev/urandom", "found ")],
)
def test_devices_end_at_once(device: str, said: str, tracekit: Run) -> None:
    done = tracekit("info", device)
    assert done.returncode == 2
    assert f"tracekit: {device}: expected a" in done.stderr
    assert said in done.stderr


def test_links_that_lead_in_a_circle(tmp_path: Path, tracekit: Run) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    done = tracekit("info", tmp_path / "a")
    assert done.returncode == 2
    assert "Too many levels of symbolic links" in done.stderr


@pytest.mark.parametrize(
    ("head", "said"),
    [("", "expected a scheduler trace"), (HEAD + "".join(switches(50)), "expected a packed trace, found 10")],
)
def test_a_bomb_ends_in_a_message(head: str, said: str, tmp_path: Path) -> None:
    """2 GiB of zeros in 2 MB, read by a process that may have half of that."""
    bomb = tmp_path / "x.txt.gz"
    bomb.write_bytes(gzip.compress(head.encode()) + 32 * gzip.compress(bytes(64 << 20)))
    done = bare("info", bomb, limit=1 << 30, OPENBLAS_NUM_THREADS="1")
    assert done.returncode == (0 if head else 2)
    assert said in done.stdout + done.stderr
    assert not head or "50 records:" in done.stdout
