"""Parquet that is written while a trace is read: the same rows as in memory, for every format and
every reader."""

from __future__ import annotations

import io
import os
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracekit as tk
from tracekit._frames import typed
from tracekit.io import writers
from tracekit.io.writers import LARGE

FIXTURES = Path(__file__).parent.parent / "fixtures"
INPUTS = sorted(p for p in FIXTURES.glob("*/*/input.*") if p.is_file())


def same_rows(frame: pl.DataFrame, wanted: pl.DataFrame, table: str) -> bool:
    """Whether two tables hold the same rows; rows that end before others may come earlier."""
    keys = [c for c in ("ts_ns", "cpu", "utid", "seq") if c in frame.columns]
    got = typed(frame, table)
    return got.sort(keys, maintain_order=True).equals(wanted.sort(keys, maintain_order=True))


@pytest.mark.parametrize("source", INPUTS, ids=lambda p: f"{p.parent.parent.name}/{p.parent.name}")
def test_rows_of_every_format(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "BATCH_ROWS", 50)
    monkeypatch.setattr(writers, "ENCODED_EVENTS", 50)
    monkeypatch.setattr(writers, "ROW_GROUP", 120)
    try:
        trace = tk.read(source, cache=None)
    except tk.ParseError:
        # What is refused whole is refused here, too, and leaves no file.
        with pytest.raises(tk.ParseError):
            tk.convert(source, tmp_path / "x.parquet")
        assert not list(tmp_path.iterdir())
        return
    for table in LARGE:
        path = tmp_path / f"{table}.parquet"
        done = tk.convert(source, path, table=table)
        wanted = trace.table(table)
        assert done.rows == wanted.height
        assert same_rows(pl.read_parquet(path), wanted, table)
        arrow = pq.read_table(path)
        assert same_rows(pl.DataFrame(arrow), wanted, table)
        if table == "slices":
            assert done.diagnostics.equals(trace.diagnostics)


def written(text: str, rows: int, group: int, batch: int) -> bytes:
    """The events of an ftrace text as Parquet."""
    reader = tk._core.Reader(text.encode("utf-8", "surrogateescape"), None, {}, derive=["events"])
    encoder = tk._core.Encoder("events", group)
    parts = []
    while reader.encode(encoder, batch):
        parts.append(encoder.ready())
    found = b"".join([*parts, encoder.close({"a": "b"})])
    assert encoder.rows == rows
    return found


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from(["a", "bb", "tr\u00e8s", "a-1", "x" * 15, "\udcff", "\udcfe", "\ufffd"]),
            st.integers(0, 2**31 - 1),
            st.integers(0, 2**62),
        ),
        min_size=1,
        max_size=200,
    ),
    st.integers(1, 300),
    st.integers(1, 150),
)
def test_any_events_read_back(rows: list[tuple[int, str, int, int]], group: int, batch: int) -> None:
    lines = [
        f"  {comm}-{tid} [00{cpu}] d..2. {100 + i}.{i:06d}: sched_stat_runtime: "
        f"comm={comm} pid={tid} runtime={value} [ns] vruntime={value // 3} [ns]\n"
        for i, (cpu, comm, tid, value) in enumerate(rows)
    ]
    text = "# tracer: nop\n" + "".join(lines)
    wanted = tk.read(text.encode("utf-8", "surrogateescape"), cache=None).events
    found = written(text, len(rows), group, batch)
    frame = pl.read_parquet(io.BytesIO(found))
    assert typed(frame, "events").equals(wanted)
    file = pq.ParquetFile(io.BytesIO(found))
    assert typed(pl.DataFrame(file.read()), "events").equals(wanted)
    assert file.metadata.num_row_groups <= -(-len(rows) // group)


@pytest.mark.parametrize("column", ["tid", "cpu", "ctx_comm", "kind", "value", "ts_ns", "seq", "next_comm"])
def test_filters_that_skip_by_bounds_lose_nothing(
    trace: tk.Trace, demo: Path, tmp_path: Path, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "BATCH_ROWS", 700)
    monkeypatch.setattr(writers, "ENCODED_EVENTS", 700)
    monkeypatch.setattr(writers, "ROW_GROUP", 5000)
    path = tmp_path / "x.parquet"
    tk.convert(demo, path)
    groups = pq.ParquetFile(path).metadata
    number = groups.schema.names.index(column)
    assert groups.num_row_groups > 3
    assert all(groups.row_group(i).column(number).has_column_index for i in range(groups.num_row_groups))
    values = trace.events[column].drop_nulls()
    values = values.cast(pl.String) if values.dtype == pl.Categorical else values
    text = trace.events[column].cast(values.dtype)
    for value in (values.min(), values.max(), values[len(values) // 2]):
        n = int((text == value).sum())
        assert pl.scan_parquet(path).filter(pl.col(column) == value).collect().height == n
        shown = f"'{value}'" if isinstance(value, str) else value
        query = f"select count(*) from '{path}' where {column} = {shown}"
        assert duckdb.sql(query).fetchall() == [(n,)]
        assert pq.read_table(path, filters=[(column, "==", value)], columns=[column]).num_rows == n


def test_a_table_must_be_asked_for_alone(demo: Path) -> None:
    reader = tk._core.Reader(str(demo), None, {})
    with pytest.raises(ValueError, match="not asked for alone"):
        reader.encode(tk._core.Encoder("slices", 10))
    with pytest.raises(ValueError, match="does not grow with the trace"):
        tk._core.Encoder("tasks", 10)


def test_bytes_are_the_same_for_any_number_of_cpus(tmp_path: Path) -> None:
    """The text is long enough for row groups and for columns that fall to different threads."""
    lines = (
        f"  task{i % 70}-{i % 70 + 100} [00{i % 4}] d..2. {100 + i // 10**5}.{i % 10**5:06d}: sched_stat_runtime: "
        f"comm=task{i % 70} pid={i % 70 + 100} runtime={i * i % 99_991} [ns] vruntime={i * 37} [ns]\n"
        for i in range(60_000)
    )
    text = tmp_path / "long.txt"
    text.write_text("# tracer: nop\n" + "".join(lines))
    every = os.sched_getaffinity(0)
    found = []
    for cpus in ({min(every)}, every):
        try:
            os.sched_setaffinity(0, cpus)
            tk.convert(text, tmp_path / "x.parquet")
        finally:
            os.sched_setaffinity(0, every)
        found.append((tmp_path / "x.parquet").read_bytes())
    assert found[0] == found[1]
    assert pl.read_parquet(io.BytesIO(found[0]))["value"].to_list() == [i * i % 99_991 for i in range(60_000)]
