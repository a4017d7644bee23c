"""Reading traces: any format of `tracekit formats`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import polars as pl

from tracekit import _core
from tracekit._frames import TABLES, table_schema, to_frame
from tracekit.progress import Progress, Report, reporter
from tracekit.trace import Trace

__all__ = ["formats", "read", "scan"]

#: A path, `-` for standard input, the bytes themselves, or an open binary file.
Source = str | os.PathLike[str] | bytes | BinaryIO

#: Events a batch: small enough to stay in memory caches, large enough that a batch costs nothing.
BATCH_ROWS = 65_536


def formats() -> list[_core.FormatInfo]:
    """All formats that can be read.

    Returns
    -------
    list of dict
        Each with ``name``, ``title``, ``streams`` (can a pipe of any length be read?), ``produced_by``, ``kinds``,
        ``tells``, ``resolution``, ``clock``, ``confidence`` and ``notes``.
    """
    return _core.formats()


def read(
    source: Source, format: str | None = None, *, progress: Progress = False, **options: object
) -> Trace:
    """Read a trace.

    Parameters
    ----------
    source
        A path, ``-`` for standard input, the bytes of a trace, or an open binary file. Compression by gzip, zstd or xz
        is seen through.
    format
        Name of a format (see `formats`); by default the first bytes tell, never the file name.
    progress
        True for a bar on standard error (only on a terminal), or a function that is called with bytes read, bytes in
        all (None for a pipe) and events so far.
    **options
        What the source does not say itself: ``clock``, ``clock_hz``, ``pattern``, and what the format's card names.

    Returns
    -------
    Trace
        With all tables. Whatever could not be read stands in its ``diagnostics``.

    Raises
    ------
    ParseError
        When nothing can be read: no such file, unknown format, damaged head.

    Examples
    --------
    >>> import tracekit as tk
    >>> trace = tk.read("fixtures/demo/slice-default.dat")
    >>> trace.metadata["source.format"]
    'trace-dat'
    """
    source, name = _settle(source)
    reader = _core.Reader(source, format, {k: str(v) for k, v in options.items()})
    with reporter(progress, f"reading {name}") as report:
        batches = list(_batches(reader, report))
    metadata = reader.metadata | _provenance(source, reader.size)
    if options:
        metadata["options"] = json.dumps({k: str(v) for k, v in options.items()}, sort_keys=True)
    tables: dict[str, _core.Table | pl.DataFrame] = {"events": _core.concat("events", batches, metadata)}
    tables |= {name: reader.table(name) for name in TABLES if name != "events"}
    return Trace(tables, metadata, name)


def scan(source: str | os.PathLike[str], format: str | None = None, **options: object) -> pl.LazyFrame:
    """The events of a trace as a LazyFrame that reads the source in batches when it is collected.

    For what is larger than memory: ``tk.scan(path).filter(...).sink_parquet(...)`` holds a batch at a time.

    Parameters
    ----------
    source
        A path.
    format, **options
        As in `read`.

    Returns
    -------
    polars.LazyFrame
        The columns of ``events``.
    """
    from polars.io.plugins import register_io_source

    path = os.fspath(source)
    # Opened here so that a source that cannot be read raises now.
    _core.Reader(path, format, {k: str(v) for k, v in options.items()})

    def batches(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, batch_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        reader = _core.Reader(path, format, {k: str(v) for k, v in options.items()})
        left = rows
        while left is None or left > 0:
            table = reader.read(min(batch_rows or BATCH_ROWS, BATCH_ROWS if left is None else max(left, 1)))
            if table is None:
                return
            frame = to_frame(table)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame if columns is None else frame.select(columns)

    return register_io_source(io_source=batches, schema=table_schema("events"))


def _batches(reader: _core.Reader, report: Report, rows: int = BATCH_ROWS) -> Iterator[_core.Table]:
    while (table := reader.read(rows)) is not None:
        report(reader.position, reader.size, reader.rows)
        yield table
    report(reader.position, reader.size, reader.rows)


def _settle(source: Source) -> tuple[str | bytes, str]:
    """The source as the core takes it, and what to call it."""
    if isinstance(source, bytes):
        return source, "bytes"
    if isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        return path, "standard input" if path == "-" else Path(path).name
    data = source.read()
    if not isinstance(data, bytes):
        raise TypeError("expected a file opened in binary mode, found one in text mode")
    return data, Path(str(getattr(source, "name", "stream"))).name


def _provenance(source: str | bytes, size: int | None) -> dict[str, str]:
    if isinstance(source, bytes) or source == "-":
        return {}
    return {"source.files": json.dumps([{"name": Path(source).name, "size": size}])}
