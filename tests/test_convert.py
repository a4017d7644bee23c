"""Files that tracekit writes: complete or not there, and readable by everyone."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tracekit as tk
from tracekit import _core
from tracekit._frames import TABLES, typed
from tracekit.io import writers
from tracekit.trace import Trace

from .threads import soon

DERIVED = ("slices", "states", "runqueue", "tasks", "cpus")


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("way", ["stream", "memory"])
def test_round_trip_of_a_whole_trace(
    trace: tk.Trace, demo: Path, tmp_path: Path, kind: str, way: str
) -> None:
    path = tmp_path / f"x.{kind}"
    done = tk.convert(demo, path) if way == "stream" else trace.write(path)
    assert done.rows == trace.events.height
    assert done.size == path.stat().st_size
    again = tk.read(path)
    for name in TABLES:
        assert again.table(name).equals(trace.table(name)), name
    ours = {k: v for k, v in again.metadata.items() if k != "source.files"}
    assert ours == {k: v for k, v in trace.metadata.items() if k != "source.files"}
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_every_table_converts(trace: tk.Trace, demo: Path, tmp_path: Path, table: str, kind: str) -> None:
    path = tmp_path / f"x.{kind}"
    tk.convert(demo, path, table=table)
    frame = pl.read_parquet(path) if kind == "parquet" else pl.read_ipc(path)
    keys = [c for c in ("ts_ns", "cpu", "utid") if c in frame.columns]
    wanted = trace.table(table)
    got = typed(frame, table)
    if keys:
        got, wanted = (f.sort(keys, maintain_order=True) for f in (got, wanted))
    assert got.equals(wanted)
    if table != "events":
        assert tk.read(path).table(table).height == wanted.height


def test_several_row_groups_and_growing_dictionaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, demo: Path, trace: tk.Trace
) -> None:
    monkeypatch.setattr(writers, "ROW_GROUP", 5000)
    monkeypatch.setattr(writers, "BATCH_ROWS", 700)
    monkeypatch.setattr(writers, "ENCODED_EVENTS", 700)
    for kind in ("parquet", "arrow"):
        path = tmp_path / f"x.{kind}"
        tk.convert(demo, path)
        assert tk.read(path).events.equals(trace.events)
    footer = pq.ParquetFile(tmp_path / "x.parquet").metadata
    assert footer.num_row_groups > 3
    with pa.memory_map(str(tmp_path / "x.arrow")) as file:
        assert pa.ipc.open_file(file).num_record_batches > 10


def test_parquet_is_laid_out_for_scans(demo: Path, tmp_path: Path) -> None:
    tk.convert(demo, tmp_path / "x.parquet")
    group = pq.ParquetFile(tmp_path / "x.parquet").metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert "DELTA_BINARY_PACKED" in columns["ts_ns"].encodings
    assert columns["comm"].has_dictionary_page
    assert columns["ts_ns"].statistics.min == tk.read(demo).start_ns
    assert all(c.compression == "ZSTD" for c in columns.values())
    assert all(c.has_column_index for c in columns.values() if c.num_values)


def test_metadata_losses_and_diagnostics_are_in_the_footer(root: Path, tmp_path: Path) -> None:
    lossy = root / "fixtures" / "dtrace-tkd" / "freebsd-drops" / "input.tkd"
    part = tk.read(lossy)
    assert part.diagnostics.height
    assert part.losses.height
    for kind in ("parquet", "arrow"):
        path = tmp_path / f"x.{kind}"
        tk.convert(lossy, path)
        again = tk.read(path)
        assert again.diagnostics.equals(part.diagnostics)
        assert again.losses.equals(part.losses)
        files = json.loads(again.metadata["source.files"])
        assert files[0]["name"] == "input.tkd"
        assert files[0]["blake3"] == _core.blake3(lossy)
    assert b"clock.name" in pq.read_metadata(tmp_path / "x.parquet").metadata


def test_schemas_and_rows_of_the_core_are_those_that_arrow_reads(demo: Path) -> None:
    reader = _core.Reader(demo)
    while reader.read():
        pass
    for name in (n for n in TABLES if n != "program"):
        table = reader.table(name)
        schema = pa.RecordBatchReader.from_stream(table).schema
        assert pa.ipc.read_schema(pa.py_buffer(table.schema_message())).equals(schema.remove_metadata())
        assert table.to_dicts() == pl.DataFrame(table).to_dicts()


def test_the_digest_of_a_source_is_that_of_the_stored_bytes(root: Path, tmp_path: Path) -> None:
    # What `b3sum` prints for nothing and for `abc` (the test vectors of BLAKE3).
    assert _core.blake3(b"") == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert _core.blake3(b"abc") == "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"
    text = (root / "fixtures" / "ftrace-text" / "kernel-6.1" / "input.txt").read_bytes()
    long = text + text[text.rindex(b"\n", 0, -1) + 1 :] * 4000
    # What follows the end of a compressed stream is never seen by a parser.
    stored = {"plain.txt": long, "packed.txt.gz": gzip.compress(long) + b"\0" * 100_000}
    for name, data in stored.items():
        path = tmp_path / name
        path.write_bytes(data)
        done = tk.convert(path, tmp_path / "x.parquet")
        assert done.rows > 4000
        assert json.loads(done.metadata["source.files"])[0]["blake3"] == _core.blake3(data)


@pytest.mark.parametrize("cpus", [1, 2])
def test_the_digest_is_the_same_on_any_number_of_cpus(cpus: int, root: Path, tmp_path: Path) -> None:
    every = os.sched_getaffinity(0)
    cpus = min(cpus, len(every))
    text = (root / "fixtures" / "ftrace-text" / "kernel-6.1" / "input.txt").read_bytes()
    path = tmp_path / "long.txt"
    # Long enough for a thread that reads ahead, and not a whole number of what it reads at a time.
    path.write_bytes(long := text + text[text.rindex(b"\n", 0, -1) + 1 :] * 60_000)
    assert len(long) > 5 << 20
    try:
        os.sched_setaffinity(0, set(sorted(every)[:cpus]))
        done = tk.convert(path, tmp_path / "x.parquet")
        abandoned = _core.Reader(path, hashed=True)
        assert abandoned.read(100) is not None
        assert soon("read", cpus - 1)
        begun = _core.Reader(path, hashed=True)
        assert begun.read(100) is not None
        # The rest is read for it, wherever the thread is.
        assert begun.blake3() == _core.blake3(long)
    finally:
        os.sched_setaffinity(0, every)
    assert json.loads(done.metadata["source.files"])[0]["blake3"] == _core.blake3(long)
    del abandoned, begun
    assert soon("read", 0)


def test_other_tools_read_the_files(trace: tk.Trace, demo: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    tk.convert(demo, path, table="slices")
    frame = pd.read_parquet(path)
    assert frame["dur_ns"].sum() == trace.slices["dur_ns"].sum()
    query = f"select count(*), sum(dur_ns) from '{path}' where comm = 'spin00'"
    spin = trace.slices.filter(pl.col("comm") == "spin00")
    assert duckdb.sql(query).fetchall() == [(spin.height, spin["dur_ns"].sum())]


def test_scan_of_our_own_files(trace: tk.Trace, demo: Path, tmp_path: Path) -> None:
    for kind in ("parquet", "arrow"):
        path = tmp_path / f"x.{kind}"
        tk.convert(demo, path)
        lazy = tk.scan(path)
        assert lazy.collect_schema() == trace.events.schema
        kinds = lazy.filter(pl.col("kind") == "switch").collect()
        assert kinds.equals(trace.events.filter(pl.col("kind") == "switch"))
    tk.convert(demo, tmp_path / "s.parquet", table="slices")
    with pytest.raises(tk.ParseError, match="expected events, found the table 'slices'"):
        tk.scan(tmp_path / "s.parquet")


def test_csv_has_a_header_once(demo: Path, tmp_path: Path, trace: tk.Trace) -> None:
    path = tmp_path / "x.csv"
    tk.convert(demo, path, table="slices")
    frame = pl.read_csv(path)
    assert frame.columns == trace.slices.columns
    assert frame["dur_ns"].sum() == trace.slices["dur_ns"].sum()
    assert frame.height == trace.slices.height


def test_unknown_parquet_and_arrow_files_are_refused(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [1]})
    frame.write_parquet(tmp_path / "x.parquet")
    frame.write_ipc(tmp_path / "x.arrow")
    for kind in ("parquet", "arrow"):
        for call in (tk.read, tk.scan):
            with pytest.raises(tk.ParseError, match="tracekit did not write") as caught:
                call(tmp_path / f"x.{kind}")
            assert caught.value.code == "unsupported"


def test_files_of_a_later_schema_are_refused(trace: tk.Trace, tmp_path: Path) -> None:
    later = tk.Trace({"events": trace.events.head(5)}, {**trace.metadata, "tracekit.schema": "2"})
    later.write(tmp_path / "x.parquet")
    with pytest.raises(tk.ParseError, match="schema version 2"):
        tk.read(tmp_path / "x.parquet")


@pytest.mark.parametrize("name", ["x", "x.txt", "x.dat"])
def test_endings_that_tell_nothing_are_refused(demo: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(tk.OutputError, match="ends in"):
        tk.convert(demo, tmp_path / name)
    tk.convert(demo, tmp_path / name, to="csv", table="cpus")
    assert (tmp_path / name).read_text().startswith("cpu,")


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv"])
def test_nothing_is_left_after_an_interrupt(
    demo: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "BATCH_ROWS", 1000)
    monkeypatch.setattr(writers, "ENCODED_EVENTS", 1000)
    target = tmp_path / f"x.{kind}"
    target.write_text("what was there before")

    def stop(at: int, size: int | None, rows: int) -> None:
        if rows > 5000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tk.convert(demo, target, progress=stop)
    assert [p.name for p in tmp_path.iterdir()] == [target.name]
    assert target.read_text() == "what was there before"


def test_a_target_that_cannot_be_written_raises(demo: Path, tmp_path: Path) -> None:
    with pytest.raises(tk.OutputError, match="No such file or directory"):
        tk.convert(demo, tmp_path / "no" / "x.csv")
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(tk.OutputError, match="directory"):
        tk.convert(demo, tmp_path / "d.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["d.csv"]
    with pytest.raises(tk.OutputError, match="no table is called"):
        tk.convert(demo, tmp_path / "x.csv", table="event")


def test_converting_a_converted_file(trace: tk.Trace, demo: Path, tmp_path: Path) -> None:
    tk.convert(demo, tmp_path / "a.parquet")
    tk.convert(tmp_path / "a.parquet", tmp_path / "b.arrow")
    assert tk.read(tmp_path / "b.arrow").slices.equals(trace.slices)


@pytest.mark.parametrize("chosen", [{"comm": "spin*"}, {"exclude": "spin*"}, {"comm": "spin0*", "cpu": 0}])
def test_events_of_some_tasks_read_back_as_theirs(
    trace: tk.Trace, tmp_path: Path, chosen: dict[str, Any]
) -> None:
    """Of the others only those records are left that name a chosen task: nothing can be said of them."""
    part = trace.filter(**chosen)
    part.write(tmp_path / "part.parquet")
    back = tk.read(tmp_path / "part.parquet")
    numbers = ("utid", "waker_utid")
    assert back.slices.drop(numbers).equals(part.slices.drop(numbers))
    assert back.tasks["comm"].to_list() == part.tasks["comm"].to_list()
    assert (back.start_ns, back.end_ns) == (part.start_ns, part.end_ns)
    assert back.response().equals(part.response())
    assert back.runqueue.is_empty(), "who else waited is not known"
    with pytest.raises(tk.ParseError, match=r"expected events of a whole trace, found those of a filtered"):
        tk.survey(tmp_path / "part.parquet")


def test_events_of_some_cpus_read_back_as_a_recording_of_these(tmp_path: Path) -> None:
    """A begins on CPU 0, which B takes from it; what A does on CPU 1 is not known."""
    switch = {"kind": "switch", "next_prio": 120, "prio": 120, "quality": 0}
    wake = {"kind": "wakeup", "prio": 120, "quality": 0}
    rows = [
        {"ts_ns": 0, "cpu": 0, "tid": 0, "next_tid": 1, "next_comm": "A", **switch},
        {"ts_ns": 10, "cpu": 0, "tid": 1, "state": "sleeping", "next_tid": 2, "next_comm": "B", **switch},
        {"ts_ns": 20, "cpu": 0, "tid": 1, "comm": "A", "target_cpu": 1, **wake},
        {"ts_ns": 30, "cpu": 1, "tid": 0, "next_tid": 1, "next_comm": "A", **switch},
        {"ts_ns": 40, "cpu": 1, "tid": 1, "state": "sleeping", "next_tid": 0, **switch},
        {"ts_ns": 90, "cpu": 0, "tid": 2, "state": "sleeping", "next_tid": 0, **switch},
    ]
    events = typed(pl.DataFrame([{"seq": i, **row} for i, row in enumerate(rows)]), "events")
    known = {"os": "linux", "tracekit.schema": "1"}
    Trace({"events": events}, known).write(tmp_path / "whole.parquet")
    whole = tk.read(tmp_path / "whole.parquet")
    assert tk.analysis.response.samples(whole).filter(comm="A", status="complete")["response_ns"].item() == 20
    whole.filter(cpu=0).write(tmp_path / "part.parquet")
    part = tk.read(tmp_path / "part.parquet")
    # Without knowing which CPUs it is of, A would wait on CPU 1 until the end.
    assert not part.states.filter(comm="A", state="runnable").height
    assert not tk.analysis.response.samples(part).filter(comm="A", status="censored").height
