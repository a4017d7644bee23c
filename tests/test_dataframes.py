"""Every table as polars, pandas, pyarrow and DuckDB: equal values, and no copies where the
libraries allow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import tracekit as tk
from tracekit import _core
from tracekit._frames import TABLES, to_frame

Rows = list[tuple[Any, ...]]


def address(column: pl.Series) -> int:
    """Where the numbers of a column stand; fails when they had to be copied to tell."""
    return int(column.to_numpy(allow_copy=False).__array_interface__["data"][0])


def plain(frame: pl.DataFrame) -> Rows:
    """Rows of Python values; names and words as str."""
    return frame.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String)).rows()


@pytest.fixture(scope="module", params=["demo", "losses", "tool"])
def source(request: pytest.FixtureRequest) -> tk.Trace:
    """Real captures that together fill every table."""
    fixtures = Path(__file__).parents[1] / "fixtures"
    if request.param == "demo":
        return tk.read(fixtures / "demo" / "slice-default.dat")
    if request.param == "losses":
        return tk.read(fixtures / "trace-dat" / "v6-lost-page" / "input.dat")
    made = tk.read(fixtures / "trace-dat" / "v6-two-cpus" / "input.dat")
    # Tables that only summaries of other tools fill.
    histograms = pl.DataFrame(
        {"title": ["delay", None], "key": ["a", "b"], "lo": [0, None], "hi": [1, 2], "count": [5, 6], "unit": ["ns", None]},
        schema=made.histograms.schema,
    )  # fmt: skip
    summaries = pl.DataFrame(
        {"section": ["tasks"], "subject": [None], "tid": [7], "key": ["switches"], "value": [2.5], "text": [None], "unit": [None]},
        schema=made.summaries.schema,
    )  # fmt: skip
    return tk.Trace(
        {**{t: made.table(t) for t in TABLES}, "histograms": histograms, "summaries": summaries}, {}, "tool"
    )


@pytest.mark.parametrize("table", TABLES)
def test_pyarrow_holds_the_same_values(source: tk.Trace, table: str) -> None:
    frame, arrow = source.table(table), source.to_arrow(table)
    arrow.validate(full=True)
    assert arrow.column_names == frame.columns
    assert [tuple(row.values()) for row in arrow.to_pylist()] == plain(frame)


@pytest.mark.parametrize("table", TABLES)
def test_pandas_holds_the_same_values_and_tells_null_from_nothing(source: tk.Trace, table: str) -> None:
    frame, pandas = source.table(table), source.to_pandas(table)
    assert list(pandas.columns) == frame.columns
    assert len(pandas) == frame.height
    for column in frame.columns:
        ours = plain(frame.select(column))
        missing = pandas[column].isna().to_numpy()
        theirs = [
            (None if gone else value,) for gone, value in zip(missing, pandas[column].tolist(), strict=True)
        ]
        assert theirs == ours, column
        if frame.schema[column].is_integer():
            # Never float: a nanosecond would be lost above 2^53.
            assert pandas[column].dtype.kind in "iu", column
    assert pandas.attrs == source.metadata


@pytest.mark.parametrize("table", TABLES)
def test_duckdb_reads_the_frames_where_they_are(source: tk.Trace, table: str) -> None:
    frame = source.table(table)
    connection = duckdb.connect()
    connection.register("arrow", source.to_arrow(table))
    assert connection.execute("select * from arrow").fetchall() == plain(frame)
    connection.register("polars", frame)
    assert connection.execute("select count(*) from polars").fetchone() == (frame.height,)


def test_duckdb_polars_pandas_and_pyarrow_agree_on_a_sum(trace: tk.Trace) -> None:
    expected = trace.slices.group_by(pl.col("comm").cast(pl.String)).agg(pl.col("dur_ns").sum()).sort("comm")
    slices = trace.to_arrow("slices")
    connection = duckdb.connect()
    connection.register("slices", slices)
    by_duckdb = connection.execute(
        "select comm, sum(dur_ns)::bigint from slices group by 1 order by 1 nulls first"
    )
    assert by_duckdb.fetchall() == expected.rows()
    grouped = slices.group_by("comm").aggregate([("dur_ns", "sum")])
    by_arrow = sorted(zip(grouped["comm"].to_pylist(), grouped["dur_ns_sum"].to_pylist(), strict=True))
    assert by_arrow == expected.rows()
    by_pandas = trace.to_pandas("slices").groupby("comm", observed=True)["dur_ns"].sum()
    assert sorted(by_pandas.items()) == expected.rows()


def test_numbers_are_not_copied_from_the_core_to_polars(demo: Path) -> None:
    reader = _core.Reader(str(demo))
    table = reader.read(1_000_000)
    assert table is not None
    arrow = pa.table(table)
    frame = to_frame(table)
    for column in ("ts_ns", "seq", "quality"):
        ours = arrow[column].chunk(0).buffers()[1].address
        assert address(frame[column]) == ours, column


def test_numbers_are_not_copied_from_polars_to_pyarrow_and_numpy(trace: tk.Trace) -> None:
    frame = trace.slices.rechunk()
    kept = tk.Trace({"slices": frame}, {}, "one piece")
    arrow = kept.to_arrow("slices")
    for column in ("ts_ns", "dur_ns", "utid", "flags"):
        chunk = arrow[column].chunk(0)
        assert arrow[column].num_chunks == 1
        assert chunk.buffers()[1].address + chunk.offset * chunk.type.bit_width // 8 == address(
            frame[column]
        ), column


def test_any_arrow_consumer_takes_a_trace(trace: tk.Trace) -> None:
    assert pa.table(trace).num_rows == len(trace.events)
    assert pl.DataFrame(trace).height == len(trace.events)
    assert pa.table(trace).schema.metadata[b"source.format"] == b"trace-dat"


def test_tables_can_be_given_back_to_the_core_by_any_library(trace: tk.Trace) -> None:
    wanted = plain(trace.slices)
    for events in (trace.events, trace.to_arrow("events")):
        derived = _core.derive(events, trace.metadata)
        assert plain(to_frame(derived["slices"])) == wanted


def test_scan_of_a_converted_file_is_lazy_and_equal(trace: tk.Trace, demo: Path, tmp_path: Path) -> None:
    path = tmp_path / "demo.parquet"
    tk.convert(demo, path)
    lazy = tk.scan(path)
    assert isinstance(lazy, pl.LazyFrame)
    assert lazy.collect_schema() == trace.events.schema
    assert plain(lazy.collect()) == plain(trace.events)
    wakings = lazy.filter(pl.col("kind") == "waking").select("ts_ns", "tid").collect()
    assert wakings.equals(trace.events.filter(pl.col("kind") == "waking").select("ts_ns", "tid"))
    # Only the wanted columns are read.
    plan = lazy.select("ts_ns").explain()
    assert "PROJECT 1/27" in plan or "1/27 COLUMNS" in plan.upper(), plan
    # DuckDB and pyarrow read the same file.
    total = (
        duckdb.connect().execute("select count(*), sum(ts_ns) from read_parquet(?)", [str(path)]).fetchone()
    )
    assert total == (len(trace.events), trace.events["ts_ns"].sum())
