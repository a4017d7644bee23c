"""Binary CTF traces against the text that babeltrace2 prints of them, record by record."""

from __future__ import annotations

import io
import shutil
import struct
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures" / "ctf"
#: Public traces: one of LTTng 2.8 (testdata/corpus), and any that were unpacked into testdata/ctf.
PUBLIC = sorted(p.parent for p in (ROOT / "testdata").glob("c*/**/metadata"))
#: Why a trace may be none for tracekit: user space, CTF 2, streams that were not at hand.
REFUSED = {"no-scheduler-events", "unsupported", "unknown-format"}
#: Where the sizes of a packet stand in a stream that perf made: behind magic, UUID, number, and two times.
SIZES = 4 + 16 + 4 + 16
COLUMNS = [
    *(
        "ts_ns",
        "cpu",
        "kind",
        "ctx_tid",
        "ctx_pid",
        "tid",
        "pid",
        "comm",
        "prio",
        "next_tid",
        "next_comm",
        "next_prio",
    ),
    *("state", "state_raw", "target_cpu", "orig_cpu", "value", "value2", "name"),
]


def comparable(trace: tk.Trace) -> pl.DataFrame:
    """The events as plain values, in an order that does not depend on how records of one time are merged."""
    events = trace.events.select(COLUMNS)
    texts = {name: pl.String for name, kind in events.schema.items() if not kind.is_integer()}
    return events.cast(texts).filter(pl.col("kind") != "lost").sort(COLUMNS, nulls_last=True)  # type: ignore[arg-type]


def printed(folder: Path) -> tk.Trace:
    """The trace as babeltrace2 prints it."""
    if shutil.which("babeltrace2") is None:
        pytest.skip("babeltrace2 is not installed")
    done = subprocess.run(
        ["babeltrace2", "--clock-seconds", folder], capture_output=True, check=False, timeout=300
    )
    if done.returncode:
        pytest.skip(f"babeltrace2 does not read {folder.name}")
    return tk.read(io.BytesIO(done.stdout), format="lttng-text")


@pytest.fixture(params=["lttng", "big-endian", "discarded"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A fixture, unpacked."""
    with tarfile.open(FIXTURES / request.param / "input.tar") as tar:
        tar.extractall(tmp_path, filter="data")
    return tmp_path


def test_events_equal_what_babeltrace2_prints(made: Path) -> None:
    trace = tk.read(made)
    assert trace.metadata["source.format"] == "ctf"
    assert comparable(trace).equals(comparable(printed(made / "kernel")))


def test_packets_whose_size_was_not_written_are_read_to_the_padding(tmp_path: Path) -> None:
    with tarfile.open(FIXTURES / "perf-all" / "input.tar") as tar:
        tar.extractall(tmp_path, filter="data")
    whole = tk.read(tmp_path)
    (folder,) = {p.parent for p in tmp_path.rglob("metadata")}
    # Sizes in bits of content and packet, as babeltrace's library writes them, stand behind two times.
    for stream in folder.glob("*stream*"):
        data = bytearray(stream.read_bytes())
        content, packet = struct.unpack_from("<QQ", data, SIZES)
        assert content <= packet == 8 * len(data)
        data[SIZES : SIZES + 16] = b"\xff" * 16
        stream.write_bytes(bytes(data) + bytes(4096))
    found = tk.read(tmp_path)
    assert found.events.filter(pl.col("kind") != "lost").height == whole.events.height > 0
    assert set(found.diagnostics["code"]) >= {"truncated"}


@pytest.mark.parametrize("folder", PUBLIC or [None], ids=lambda p: p.name if p else "none")
def test_events_of_public_traces_equal_what_babeltrace2_prints(folder: Path | None) -> None:
    if folder is None:
        pytest.skip("no public CTF traces under testdata/ (make testdata unpacks one)")
    try:
        trace = tk.read(folder)
    except tk.ParseError as error:
        if error.code not in REFUSED:
            raise
        return
    assert comparable(trace).equals(comparable(printed(folder)))


def test_a_folder_and_its_archive_are_the_same_trace(made: Path) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        tar.add(made / "kernel", arcname="kernel")
    assert tk.read(made / "kernel").events.equals(tk.read(archive.getvalue()).events)


def test_a_folder_with_two_traces_asks_for_one(made: Path) -> None:
    shutil.copytree(made / "kernel", made / "other")
    assert tk.read(made).events.height >= 10
    shutil.copytree(made / "kernel", made / "more" / "kernel")
    with pytest.raises(tk.ParseError, match="expected one trace, found 3"):
        tk.read(made)


def test_a_folder_without_a_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing\n")
    with pytest.raises(tk.ParseError, match="expected a file, found a folder"):
        tk.read(tmp_path)
