"""Reading: whole files, streams, wrappers, and everything that cannot be read."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import random
import tarfile
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from tracekit import _core
from tracekit._frames import TABLES, table_schema


def test_tables_have_the_documented_columns(trace: tk.Trace) -> None:
    for name in TABLES:
        assert trace.table(name).schema == table_schema(name)
    assert trace.events.height > 1000
    assert trace.slices.height > 100


def test_columns_that_are_never_null_are_not(trace: tk.Trace) -> None:
    for table in _core.tables():
        frame = trace.table(table["name"])
        for column in table["columns"]:
            if column["null"] == "":
                assert frame[column["name"]].null_count() == 0, (table["name"], column["name"])


def test_events_are_in_time_order_and_slices_fill_the_cpu(trace: tk.Trace) -> None:
    assert trace.events["ts_ns"].is_sorted()
    assert trace.events["seq"].n_unique() == trace.events.height
    cpu = trace.cpus.row(0, named=True)
    assert trace.slices["dur_ns"].sum() == cpu["busy_ns"]
    assert trace.start_ns is not None
    assert trace.end_ns is not None
    span = trace.end_ns - trace.start_ns
    assert cpu["busy_ns"] + cpu["idle_ns"] + cpu["unknown_ns"] == span


def test_the_time_of_every_cpu_adds_up_to_the_span_of_the_trace() -> None:
    lines = [(0, 1.0, "a", "b"), (1, 1.5, "c", "d"), (0, 2.0, "b", "a"), (3, 2.5, "e", "f")]
    text = "".join(
        f"{p}-{ord(p)} [{cpu:03}] {ts:.6f}: sched_switch: prev_comm={p} prev_pid={ord(p)} prev_prio=120 prev_state=S "
        f"==> next_comm={n} next_pid={ord(n)} next_prio=120\n"
        for cpu, ts, p, n in lines
    )
    cpus = tk.read(text.encode()).cpus
    known = pl.col("busy_ns") + pl.col("idle_ns")
    assert cpus["cpu"].to_list() == [0, 1, 3]
    assert cpus.select(known + pl.col("unknown_ns")).to_series().to_list() == [1_500_000_000] * 3
    # What ran on a CPU before its first record, nobody knows.
    assert cpus["unknown_ns"].to_list() == [0, 500_000_000, 1_500_000_000]


def test_states_of_each_task_have_no_gap_and_no_overlap(trace: tk.Trace) -> None:
    ends = trace.states.sort("utid", "ts_ns").with_columns(
        (pl.col("ts_ns") + pl.col("dur_ns")).alias("end"),
        pl.col("ts_ns").shift(-1).over("utid").alias("next"),
    )
    assert ends.filter(pl.col("next").is_not_null() & (pl.col("next") != pl.col("end"))).height == 0


@pytest.mark.parametrize("wrap", ["gz", "xz", "zst", "twice"])
def test_compressed_files_read_like_plain_ones(
    trace: tk.Trace, demo: Path, tmp_path: Path, wrap: str
) -> None:
    plain = demo.read_bytes()
    packed = {
        "gz": lambda: gzip.compress(plain),
        "xz": lambda: lzma.compress(plain),
        "zst": lambda: _zstd(plain),
        "twice": lambda: gzip.compress(lzma.compress(plain)),
    }[wrap]()
    path = tmp_path / "no-ending"
    path.write_bytes(packed)
    assert tk.read(path).events.equals(trace.events)


def _zstd(data: bytes) -> bytes:
    import pyarrow as pa

    packed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return packed


def test_bytes_and_open_files_are_sources(trace: tk.Trace, demo: Path) -> None:
    assert tk.read(demo.read_bytes()).events.equals(trace.events)
    with demo.open("rb") as file:
        assert tk.read(file).events.equals(trace.events)
    with demo.open(encoding="latin-1") as text, pytest.raises(TypeError, match="binary mode"):
        tk.read(text)  # type: ignore[arg-type]
    assert tk.read(io.BytesIO(demo.read_bytes())).name == "stream"


def test_metadata_names_the_source(trace: tk.Trace, demo: Path) -> None:
    known = {k["name"] for k in _core.metadata_keys()}
    assert set(trace.metadata) <= known
    assert trace.metadata["source.format"] == "trace-dat"
    assert json.loads(trace.metadata["source.files"]) == [{"name": demo.name, "size": demo.stat().st_size}]


def test_progress_is_reported_up_to_the_end(demo: Path) -> None:
    seen: list[tuple[int, int | None, int]] = []
    read = tk.read(demo, progress=lambda at, size, rows: seen.append((at, size, rows)))
    assert seen == sorted(seen)
    assert seen[-1][2] == read.events.height
    assert seen[-1][0] <= demo.stat().st_size == seen[-1][1]


def test_an_exception_in_a_progress_function_comes_through(demo: Path) -> None:
    def stop(at: int, size: int | None, rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tk.read(demo, progress=stop)


def test_scan_gives_the_same_events(trace: tk.Trace, demo: Path) -> None:
    lazy = tk.scan(demo)
    assert lazy.collect().equals(trace.events)
    assert lazy.head(70).collect().equals(trace.events.head(70))
    switches = lazy.filter(pl.col("kind") == "switch").select("ts_ns", "next_comm").collect()
    assert switches.equals(trace.events.filter(pl.col("kind") == "switch").select("ts_ns", "next_comm"))


def test_batches_of_any_size_hold_the_same_events(demo: Path) -> None:
    whole = None
    for rows in (1 << 20, 1000, 7):
        reader = _core.Reader(demo, derive=["slices"])
        pieces, slices = [], []
        while (piece := reader.read(rows)) is not None:
            pieces.append(pl.DataFrame(piece))
            slices.append(pl.DataFrame(reader.table("slices")))
            if rows == 7 and len(pieces) > 200:
                break
        else:
            slices.append(pl.DataFrame(reader.table("slices")))
            got = pl.concat(pieces), pl.concat(slices).sort("ts_ns", "cpu")
            whole = whole or got
            assert got[0].equals(whole[0])
            assert got[1].equals(whole[1])


def test_a_table_is_only_given_before_the_end_when_it_is_the_only_one(demo: Path) -> None:
    reader = _core.Reader(demo)
    assert reader.read(10) is not None
    with pytest.raises(ValueError, match="complete when"):
        reader.table("slices")
    with pytest.raises(ValueError, match="no table is called"):
        reader.table("sclices")
    with pytest.raises(ValueError, match="no table is called"):
        _core.Reader(demo, derive=["sclices"])


GARBAGE = random.Random(7).randbytes(4096)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty"),
        (GARBAGE, "unknown-format"),
        (b"\0" * 4096, "unknown-format"),
        (b"hello, this is no trace\n" * 50, "unknown-format"),
        (b"\x1f\x8b\x08\0" + GARBAGE[:50], "io"),
        (gzip.compress(b"no trace either\n", mtime=0), "unknown-format"),
        (b"PAR1" + GARBAGE, "damaged"),
        (b"ARROW1\0\0" + GARBAGE, "damaged"),
    ],
    ids=["empty", "garbage", "zeros", "text", "damaged gzip", "gzip of text", "parquet", "arrow"],
)
def test_what_is_no_trace_raises_a_parse_error(data: bytes, code: str, tmp_path: Path) -> None:
    path = tmp_path / "x.dat"
    path.write_bytes(data)
    for source in (path, data):
        with pytest.raises(tk.ParseError) as caught:
            tk.read(source)
        assert caught.value.code == code
        assert "\n" not in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.code, again.format) == (
        str(caught.value),
        caught.value.code,
        caught.value.format,
    )


def test_errors_name_file_and_format(demo: Path, tmp_path: Path) -> None:
    with pytest.raises(tk.ParseError, match=r"nowhere\.dat: no such file"):
        tk.read(tmp_path / "nowhere.dat")
    with pytest.raises(tk.ParseError, match="found a folder"):
        tk.read(tmp_path)
    with pytest.raises(tk.ParseError, match="no format is called `nope`"):
        tk.read(demo, format="nope")
    with pytest.raises(tk.ParseError) as caught:
        tk.read(demo, format="ktr")
    assert caught.value.format in ("ktr", "unknown")


def test_a_capture_cut_anywhere_raises_or_says_so(demo: Path, trace: tk.Trace) -> None:
    whole = demo.read_bytes()
    cuts = [0, 1, 9, 10, 100, 1000, *range(2000, len(whole), len(whole) // 23), len(whole) - 1]
    for cut in cuts:
        try:
            part = tk.read(whole[:cut])
        except tk.ParseError:
            continue
        # The last page ends in padding: a cut there loses nothing.
        complete = part.events.equals(trace.events)
        assert complete or part.diagnostics.height > 0, f"cut at {cut}: nothing said"


def test_damaged_wrappers_raise(demo: Path) -> None:
    text = b"# tkd 1\n"
    with pytest.raises(tk.ParseError):
        tk.read(gzip.compress(text * 10)[:-6])
    packed = gzip.compress(demo.read_bytes())
    with pytest.raises(tk.ParseError) as caught:
        tk.read(packed[: len(packed) // 2])
    assert caught.value.code in ("io", "truncated", "damaged")


@pytest.mark.parametrize("wrap", ["gz", "xz", "zst"])
def test_a_packed_capture_that_is_cut_says_what_to_do(demo: Path, wrap: str) -> None:
    packed = {"gz": gzip.compress, "xz": lzma.compress, "zst": _zstd}[wrap](demo.read_bytes())
    with pytest.raises(
        tk.ParseError, match="the packed file is cut: get the whole one, or unpack what there is"
    ):
        tk.read(packed[: len(packed) // 2])


def test_what_trace_cmd_says_of_its_plugins_is_no_damage() -> None:
    report = (
        "version = 7\nregistering plugin: /usr/lib/traceevent/plugins/plugin_sched_switch.so\n"
        "overriding event (315) sched:sched_switch with new print handler\ncpus=1\n"
        "  a-1  [000] 1.000000: sched_switch: a:1 [120] R ==> b:2 [120]\n"
    )
    trace = tk.read(report.encode())
    assert trace.events["kind"].to_list() == ["switch"]
    assert "unparsed" not in trace.diagnostics["code"]


@pytest.mark.parametrize("lines", [40, 4000])
def test_packed_text_that_is_cut_is_read_as_far_as_it_goes(lines: int) -> None:
    text = "".join(
        f"  a-{1 + n % 2}  [000] d..2.  {n / 1000:.6f}: sched_switch: prev_comm=a prev_pid={1 + n % 2} prev_prio=120 "
        f"prev_state=R ==> next_comm=a next_pid={2 - n % 2} next_prio=120\n"
        for n in range(lines)
    )
    packed = gzip.compress(text.encode(), mtime=0)
    trace = tk.read(packed[: len(packed) * 2 // 3])
    assert 0 < trace.events.height < lines
    assert "damaged" in trace.diagnostics["code"]


LINE = (
    b"  a-1  [000] d..2.  1.000000: sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state=R ==> "
    b"next_comm=b next_pid=2 next_prio=120\n"
)


def archive(text: bytes) -> bytes:
    """A tar archive with one text in a folder."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        entry = tarfile.TarInfo("logs/trace.txt")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    return packed.getvalue()


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_text_that_windows_wrote_is_read(root: Path, tmp_path: Path, encoding: str, end: str) -> None:
    plain = root / "fixtures" / "ftrace-text" / "kernel-6.1" / "input.txt"
    path = tmp_path / "trace.txt"
    path.write_bytes(("\ufeff" + plain.read_text().replace("\n", end)).encode(encoding))
    assert tk.read(path).events.equals(tk.read(plain).events)
    assert tk.read(gzip.compress(path.read_bytes())).events.equals(tk.read(plain).events)


def test_what_packs_a_capture_that_is_not_unpacked_is_named(demo: Path) -> None:
    for packed, said in (
        (bz2.compress(demo.read_bytes()), r"packed by bzip2 .*unpack it \(`bzip2 -d`\)"),
        (b"\x04\x22\x4d\x18" + GARBAGE, r"packed by lz4 .*unpack it \(`lz4 -d`\)"),
        # The first block of lz4 shows text as it stands, and an archive the text within it.
        (b"\x04\x22\x4d\x18\n" + LINE, r"packed by lz4 .*unpack it \(`lz4 -d`\)"),
        (archive(LINE * 9), r"a tar archive of `logs/trace.txt`.*unpack it and name the trace"),
        (
            gzip.compress(archive(LINE * 9)),
            r"a tar archive of `logs/trace.txt`.*unpack it and name the trace",
        ),
    ):
        with pytest.raises(tk.ParseError, match=said):
            tk.read(packed)


def test_slices_that_a_tool_printed_have_tasks() -> None:
    trace = tk.read(Path(__file__).parents[1] / "fixtures/perf-timehist/two-cpus/input.txt")
    assert trace.events.is_empty()
    assert trace.slices.height == 66
    assert trace.slices["ts_ns"].is_sorted()
    run = trace.slices.group_by("utid").agg(pl.col("dur_ns").sum().alias("run_ns")).sort("utid")
    assert trace.tasks.select("utid", "run_ns").sort("utid").equals(run)
    shell = trace.filter(comm="sh")
    assert 0 < shell.slices.height < 66
    # A filter goes by task, under whichever of its names.
    assert set(shell.slices["comm"]) == {"sh", "perf-exec"}
    summary = tk.analysis.latency.summary(shell.slices, by="comm")
    assert summary.filter(pl.col("group") == "sh")["n"].to_list() == [8]
    untold = tk.read(Path(__file__).parents[1] / "fixtures/perf-sched-map/two-cpus/input.txt").tasks
    assert untold["nr_involuntary"].null_count() == untold.height > 0
