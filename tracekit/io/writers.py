"""Tables as Arrow, and as files: Parquet, Arrow IPC, CSV.

A writer takes a table a piece at a time and holds no more than a row group. What is known of the
trace as a whole (how many records were lost, say) is only known at its end, so metadata is written
last.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Protocol

from tracekit import _core
from tracekit._frames import table_schema, typed
from tracekit._lazy import later
from tracekit.errors import OutputError
from tracekit.export.files import replacing
from tracekit.harmless import for_csv
from tracekit.io.pipeline import Behind
from tracekit.io.progress import Report

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    import pyarrow as pa

    from tracekit.trace import Trace
else:
    np = later("numpy")
    pl = later("polars")
    pa = later("pyarrow")

__all__ = [
    "LARGE",
    "Converted",
    "arrow_table",
    "convert_reader",
    "output_kind",
    "takes_keys",
    "write_frame",
]

#: Rows of a Parquet row group.
ROW_GROUP = 1 << 20
#: Rows that are handled at a time.
BATCH_ROWS = 1 << 16
#: The same for events that never come to Python: their columns stay in the nearest caches.
ENCODED_EVENTS = 1 << 14

#: Batches that wait for the writer: a row group, so that reading goes on while one is written.
BEHIND = ROW_GROUP // BATCH_ROWS

#: Tables that grow with the trace; the others fit into memory whatever the trace.
LARGE = ("events", "slices", "states", "runqueue")

#: Columns that hold keys when a reader is asked for keys.
_NAME_COLUMNS = frozenset(c["name"] for t in _core.tables() for c in t["columns"] if c["type"] == "string")


@dataclass(frozen=True)
class Converted:
    """What a conversion wrote.

    Attributes
    ----------
    path
        The file, ``-`` for standard output.
    table
        The table in it.
    rows, size
        Rows and bytes written.
    metadata
        What is known of the trace; as in the file.
    notes
        The rows of the trace's ``diagnostics``.
    """

    path: str
    table: str
    rows: int
    size: int
    metadata: dict[str, str]
    notes: list[dict[str, Any]]

    @property
    def diagnostics(self) -> pl.DataFrame:
        """The trace's table `diagnostics`."""
        return typed(pl.DataFrame(self.notes, schema=table_schema("diagnostics")), "diagnostics")


class Writer(Protocol):
    """Writes one table to an open file."""

    #: Takes pieces whose strings are keys, and the strings at the end.
    keys: ClassVar[bool]

    def __init__(self, file: BinaryIO) -> None: ...

    def write(self, piece: pa.Table) -> None:
        """Add rows."""

    def close(self, metadata: Mapping[str, str], strings: pa.Array | None) -> None:
        """Write what is left, and the metadata."""


class ArrowWriter:
    """Arrow IPC file: one dictionary a column for the whole file, so that every reader takes it.

    The dictionaries are only known at the end, and stand at the front: rows go to a temporary file first.
    """

    keys: ClassVar[bool] = True

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._rows = Path(f"{file.name}.rows")
        self._writer: Any = None
        self._schema: pa.Schema | None = None
        self._used: dict[str, np.ndarray[Any, np.dtype[np.bool_]]] = {}

    def write(self, piece: pa.Table) -> None:
        """Add rows, whose names are keys."""
        if self._writer is None:
            self._schema = piece.schema.remove_metadata()
            self._writer = pa.ipc.new_file(self._rows, self._schema, options=_ipc_options())
        self._note_names(piece)
        self._writer.write_table(piece.cast(self._schema))

    def close(self, metadata: Mapping[str, str], strings: pa.Array | None) -> None:
        """Write the file from the rows and the strings they use."""
        try:
            self._writer.close()
            with pa.memory_map(str(self._rows)) as rows, pa.ipc.open_file(rows) as parts:
                self._join(parts, metadata, strings)
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove the temporary file."""
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            self._rows.unlink(missing_ok=True)

    def _note_names(self, piece: pa.Table) -> None:
        for field in piece.schema:
            if field.name not in _NAME_COLUMNS:
                continue
            keys = piece.column(field.name).drop_null().to_numpy()
            top = int(keys.max()) + 1 if len(keys) else 0
            used = self._used.setdefault(field.name, np.zeros(0, dtype=np.bool_))
            if top > len(used):
                used = self._used[field.name] = np.concatenate([used, np.zeros(top, dtype=np.bool_)])
            used[keys] = True

    def _join(self, parts: Any, metadata: Mapping[str, str], strings: pa.Array | None) -> None:
        words: dict[str, tuple[pa.Array, pa.Array]] = {}
        fields = []
        for field in parts.schema:
            if field.name in self._used and strings is not None:
                used = self._used[field.name]
                places = pa.array(np.maximum(np.cumsum(used, dtype=np.uint32), 1) - 1, pa.uint32())
                words[field.name] = places, strings.take(pa.array(np.flatnonzero(used)))
                field = field.with_type(pa.dictionary(pa.uint32(), pa.string()))
            fields.append(field)
        schema = pa.schema(fields, dict(sorted(metadata.items())))
        with pa.ipc.new_file(self._file, schema, options=_ipc_options()) as out:
            for i in range(parts.num_record_batches):
                batch = parts.get_batch(i)
                columns = [
                    _with_names(batch.column(n), *words[f.name]) if f.name in words else batch.column(n)
                    for n, f in enumerate(schema)
                ]
                out.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


class CsvWriter:
    """CSV with a header, safe for spreadsheets (`tracekit.harmless`).

    Nulls are empty. Metadata has no place in it.
    """

    keys: ClassVar[bool] = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._header = True

    def write(self, piece: pa.Table) -> None:
        """Add rows."""
        frame = for_csv(pl.DataFrame(piece))
        frame.write_csv(self._file, include_header=self._header)
        self._header = False

    def close(self, metadata: Mapping[str, str], strings: pa.Array | None) -> None:
        """Do nothing: all is written."""


_WRITERS: dict[str, type[Writer]] = {"arrow": ArrowWriter, "csv": CsvWriter}
_ENDINGS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".csv": "csv",
}


def output_kind(target: str | os.PathLike[str], to: str | None = None) -> str:
    """The kind of file to write.

    Parameters
    ----------
    target
        The file, ``-`` for standard output.
    to
        Its kind, when the ending does not say.

    Returns
    -------
    str
        ``parquet``, ``arrow`` or ``csv``.

    Raises
    ------
    OutputError
        When neither decides.
    """
    kind = to or _ENDINGS.get(Path(target).suffix.lower(), "csv" if os.fspath(target) == "-" else None)
    if kind not in {*_ENDINGS.values()}:
        raise OutputError(
            f"{os.fspath(target)}: expected a name that ends in .parquet, .arrow or .csv"
            if kind is None
            else f"no kind of file is called {kind!r}: use parquet, arrow or csv"
        )
    if os.fspath(target) == "-" and kind != "csv":
        raise OutputError(f"{kind} cannot be written to standard output: name a file, or use csv")
    return kind


def takes_keys(kind: str) -> bool:
    """Whether a reader for this kind of file is to give keys instead of names."""
    return kind in _WRITERS and _WRITERS[kind].keys


def convert_reader(
    reader: _core.Reader,
    target: str | os.PathLike[str],
    kind: str,
    table: str,
    complete: Callable[[dict[str, str]], dict[str, str]],
    report: Report,
) -> Converted:
    """Write a table while it is read.

    Parameters
    ----------
    reader
        Opened for this table; with keys when the kind of file wants them.
    target, kind
        File and its kind.
    table
        One of `LARGE`.
    complete
        Adds to the reader's metadata what it does not know; called when all is read.
    report
        Called after each batch.

    Returns
    -------
    Converted
        What was written.
    """
    with replacing(target) as file:
        write = _encode if kind == "parquet" else _pieces
        rows, metadata, notes = write(reader, file, kind, table, complete, report)
        size = file.tell() if os.fspath(target) != "-" else 0
    return Converted(os.fspath(target), table, rows, size, metadata, notes)


def _encode(
    reader: _core.Reader,
    file: BinaryIO,
    kind: str,
    table: str,
    complete: Callable[[dict[str, str]], dict[str, str]],
    report: Report,
) -> tuple[int, dict[str, str], list[dict[str, Any]]]:
    """Parquet: rows never come to Python, only the bytes of the file."""
    encoder = _core.Encoder(table, ROW_GROUP)
    # The rows of other tables are put in order batch by batch: larger ones are in better order.
    while reader.encode(encoder, ENCODED_EVENTS if table == "events" else BATCH_ROWS):
        report(reader.position, reader.size, reader.rows)
        if ready := encoder.ready():
            file.write(ready)
    metadata, notes = _known(reader, table, complete)
    # What readers of Arrow take the types of columns from.
    stored = base64.b64encode(reader.table(table).schema_message()).decode()
    file.write(encoder.close({**metadata, "ARROW:schema": stored}))
    return encoder.rows, metadata, notes


def _pieces(
    reader: _core.Reader,
    file: BinaryIO,
    kind: str,
    table: str,
    complete: Callable[[dict[str, str]], dict[str, str]],
    report: Report,
) -> tuple[int, dict[str, str], list[dict[str, Any]]]:
    rows = 0
    writer = _WRITERS[kind](file)
    try:
        with Behind(writer.write, BEHIND) as behind:
            while (events := reader.read(BATCH_ROWS)) is not None:
                report(reader.position, reader.size, reader.rows)
                piece = events if table == "events" else reader.table(table)
                if len(piece):
                    rows += len(piece)
                    behind.give(_received(piece))
            # The rest, and the columns of a table without rows.
            last = reader.table(table)
            rows += len(last)
            behind.give(_received(last))
        metadata, notes = _known(reader, table, complete)
        strings = _received(reader.strings()).column(0).combine_chunks() if writer.keys else None
        writer.close(metadata, strings)
    finally:
        if isinstance(writer, ArrowWriter):
            writer.discard()
    return rows, metadata, notes


def _known(
    reader: _core.Reader, table: str, complete: Callable[[dict[str, str]], dict[str, str]]
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The metadata of the file and the rows of `diagnostics`, when all is read."""
    losses, notes = (reader.table(t).to_dicts() for t in ("losses", "diagnostics"))
    return _footer(complete(reader.metadata), table, losses, notes), notes


def _received(table: _core.Table) -> pa.Table:
    """A table of the core; `pyarrow.table` would import pandas to see whether it is a DataFrame."""
    received: pa.Table = pa.RecordBatchReader.from_stream(table).read_all()
    return received


def write_frame(
    frame: pl.DataFrame, table: str, trace: Trace, target: str | os.PathLike[str], kind: str
) -> Converted:
    """Write a table that is in memory.

    Parameters
    ----------
    frame, table
        Rows and the name of their table.
    trace
        Where they come from.
    target, kind
        File and its kind.

    Returns
    -------
    Converted
        What was written.
    """
    notes = trace.diagnostics.to_dicts()
    metadata = _footer(trace.metadata, table, trace.losses.to_dicts(), notes)
    with replacing(target) as file:
        rows = arrow_table(frame, table, {})
        if kind == "arrow":
            rows = rows.unify_dictionaries().replace_schema_metadata(dict(sorted(metadata.items())))
            with pa.ipc.new_file(file, rows.schema, options=_ipc_options()) as out:
                out.write_table(rows, max_chunksize=BATCH_ROWS)
        elif kind == "parquet":
            _write_parquet(rows.replace_schema_metadata(None), file, metadata)
        else:
            writer = _WRITERS[kind](file)
            for start in range(0, max(rows.num_rows, 1), ROW_GROUP):
                writer.write(rows.slice(start, ROW_GROUP))
            writer.close(metadata, None)
        size = file.tell() if os.fspath(target) != "-" else 0
    return Converted(os.fspath(target), table, frame.height, size, metadata, notes)


def _write_parquet(rows: pa.Table, file: BinaryIO, metadata: Mapping[str, str]) -> None:
    """A table in memory as Parquet, written as `_core.Encoder` writes what is read."""
    import pyarrow.parquet as pq

    steady = [f.name for f in rows.schema if f.name.endswith("ts_ns") or f.name.startswith("seq")]
    # One dictionary a row group: a second one would make the writer fall back to plain strings.
    rows = rows.unify_dictionaries()
    with pq.ParquetWriter(
        file,
        rows.schema,
        compression="zstd",
        compression_level=3,
        use_dictionary=[f.name for f in rows.schema if f.name not in steady],
        column_encoding=dict.fromkeys(steady, "DELTA_BINARY_PACKED"),
        write_page_index=True,
    ) as writer:
        writer.write_table(rows, row_group_size=ROW_GROUP)
        writer.add_key_value_metadata(dict(sorted(metadata.items())))


def arrow_table(frame: pl.DataFrame, name: str, metadata: Mapping[str, str]) -> pa.Table:
    """A DataFrame as a pyarrow Table.

    Parameters
    ----------
    frame
        Table `name` of a trace.
    name
        Its name, which goes into the metadata as ``tracekit.table``.
    metadata
        Goes into the schema.

    Returns
    -------
    pyarrow.Table
        Strings that repeat are ``dictionary<uint32, string>``, others ``string``.
    """
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    fields = []
    for field in table.schema:
        dtype = field.type
        if pa.types.is_dictionary(dtype):
            dtype = pa.dictionary(pa.uint32(), pa.string())
        elif pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype):
            dtype = pa.string()
        fields.append(pa.field(field.name, dtype, metadata=described(name, field.name)))
    return table.cast(pa.schema(fields, {**metadata, "tracekit.table": name}))


@cache
def _columns(table: str) -> dict[str, str]:
    """Column to what it is."""
    found = [t["columns"] for t in _core.tables() if t["name"] == table]
    return {c["name"]: c["doc"] for columns in found for c in columns}


def described(table: str, column: str) -> dict[str, str] | None:
    """Unit and description of a column, as metadata of its Arrow field.

    None for one that the schema does not know.
    """
    doc = _columns(table).get(column)
    if doc is None:
        return None
    unit = {"unit": "ns"} if column.endswith("_ns") else {}
    return {"description": doc, **unit}


def _footer(
    metadata: Mapping[str, str], table: str, losses: list[dict[str, Any]], notes: list[dict[str, Any]]
) -> dict[str, str]:
    """The metadata of a file: with what was lost, which has no table in it."""
    kept = {"losses": losses, "diagnostics": notes}
    rows = {k: json.dumps(found, sort_keys=True) for k, found in kept.items() if found}
    return {**metadata, **rows, "tracekit.table": table}


def _ipc_options() -> Any:
    return pa.ipc.IpcWriteOptions(compression="lz4")


def _with_names(keys: pa.Array, places: pa.Array, words: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(places.take(keys), words)
