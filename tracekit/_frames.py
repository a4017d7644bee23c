"""Tables of the core as polars DataFrames."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from tracekit import _core
from tracekit._lazy import later

if TYPE_CHECKING:
    import polars as pl
else:
    pl = later("polars")

#: Tables that are computed from the others when they are first asked for.
COMPUTED: tuple[str, ...] = ("program",)
#: Names of all other tables, in the order of the documentation.
TABLES: tuple[str, ...] = tuple(t["name"] for t in _core.tables() if t["name"] not in COMPUTED)

#: String columns whose values hardly ever repeat, or whose table is too small to mind.
_TEXT_COLUMNS = frozenset({"exec_path"})
_TEXT_TABLES = frozenset({"losses", "diagnostics", "histograms", "summaries"})


@cache
def table_schema(name: str) -> pl.Schema:
    """The polars schema of a table.

    Words of a closed list (`kind`, `state`, `end_state`) are `Enum`, names are `Categorical`, and
    free text and the strings of small tables are `String`.
    """
    numbers: dict[str, type[pl.DataType]] = {
        "int64": pl.Int64,
        "int32": pl.Int32,
        "uint64": pl.UInt64,
        "uint32": pl.UInt32,
        "uint16": pl.UInt16,
        "float64": pl.Float64,
        "bool": pl.Boolean,
    }
    table = next(t for t in _core.tables() if t["name"] == name)
    words = _core.vocabularies()
    schema = {}
    for column in table["columns"]:
        kind = column["type"]
        dtype: pl.DataType | type[pl.DataType]
        if kind in numbers:
            dtype = numbers[kind]
        elif kind == "kind":
            dtype = pl.Enum([w["name"] for w in words["kinds"]])
        elif kind == "state":
            dtype = pl.Enum([w["name"] for w in words["states"]])
        elif kind == "text" or name in _TEXT_TABLES or column["name"] in _TEXT_COLUMNS:
            dtype = pl.String
        else:
            dtype = pl.Categorical()
        schema[column["name"]] = dtype
    return pl.Schema(schema)


def to_frame(table: _core.Table, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """The table, or some of its columns, as a DataFrame with `table_schema`; numbers are not copied."""
    # Column by column: what polars takes over of a batch keeps all columns that came with it.
    schema = table_schema(table.name)
    parts = [
        typed(pl.DataFrame(table.select([column])), table.name, [column]).to_series()
        for column in columns or schema
    ]
    # A cast makes one chunk of many. Where chunks differ, the next `select` would copy all columns.
    lengths = max((series.chunk_lengths() for series in parts), key=len)
    return pl.DataFrame([_in_chunks(series, lengths) for series in parts])


def _in_chunks(series: pl.Series, lengths: Sequence[int]) -> pl.Series:
    """The same values in chunks of these lengths; of one chunk nothing is copied."""
    if series.chunk_lengths() == lengths:
        return series
    starts = itertools.accumulate(lengths, initial=0)
    parts = [series.slice(start, length) for start, length in zip(starts, lengths, strict=False)]
    return pl.concat(parts, rechunk=False)


def typed(frame: pl.DataFrame, name: str, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """The columns of table `name` out of `frame`, in order and in their types; missing ones are null."""
    # Series by series: a `select` takes another thread, which costs more than a small table.
    schema = table_schema(name)
    chosen = []
    for column in columns or schema:
        dtype = schema[column]
        if column not in frame.columns:
            chosen.append(pl.Series(column, [], dtype).extend_constant(None, frame.height))
            continue
        series = frame[column]
        if series.dtype != dtype:
            # Between Enum and Categorical there is no direct way in every version of polars.
            coded = series.dtype in (pl.Categorical, pl.Enum)
            series = series.cast(pl.String).cast(dtype) if coded else series.cast(dtype)
        chosen.append(series)
    return pl.DataFrame(chosen)


def empty_frame(name: str) -> pl.DataFrame:
    """Table `name` without rows."""
    return pl.DataFrame(schema=table_schema(name))
