"""Reading traces, and tracekit's own Parquet and Arrow files.

Any format of `tracekit formats` is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tracekit import _core
from tracekit._forked import check_threads
from tracekit._frames import COMPUTED, TABLES, table_schema, to_frame
from tracekit._lazy import later
from tracekit.errors import OutputError, ParseError
from tracekit.io.external import external_format, read_external
from tracekit.io.machine import Beside, beside, check, machine_metadata
from tracekit.io.options import checked
from tracekit.io.progress import Progress, Report, reporter
from tracekit.paths import check_name, file_name
from tracekit.trace import Trace

if TYPE_CHECKING:
    import polars as pl

    from tracekit.io.writers import Converted
else:
    pl = later("polars")

__all__ = ["convert", "read", "scan"]

#: A path, `-` for standard input, the bytes themselves, or an open binary file.
Source = str | os.PathLike[str] | bytes | BinaryIO

#: Events a batch: small enough to stay in memory caches, large enough that a batch costs nothing.
BATCH_ROWS = 65_536


def read(
    source: Source,
    format: str | None = None,
    *,
    progress: Progress = False,
    cache: bool | None = None,
    machine: Beside = None,
    **options: object,
) -> Trace:
    """Read a trace, and the machine beside it.

    Parameters
    ----------
    source
        A path, ``-`` for standard input, the bytes of a trace, or an open binary file. Compression
        by gzip, zstd or xz is seen through; so are tracekit's own Parquet and Arrow files, whose
        derived tables are made anew. A workload text, as a file or as a string of several lines, is
        run under the policy that it names, and read like a recording of that run.
    format
        Name of a format (see `tracekit.formats`); by default the first bytes decide, never the file name.
    progress
        True for a bar on standard error (only on a terminal), or a function that is called with
        bytes read, bytes in all (None for a pipe) and events so far.
    cache
        Take the tables from the user's cache when this content was read before, and keep them there
        otherwise. By default only where ``TRACEKIT_CACHE=1`` is set. See ``tracekit cache``.
    machine
        What the script of ``tracekit recipes machine`` wrote: its path, or False for none. By default
        ``NAME.machine.toml`` beside the trace, where there is one; see `Trace.machine`.
    **options
        What the source does not say itself: ``clock``, ``clock_hz``, ``pattern``, and what the
        format's card names.

    Returns
    -------
    Trace
        With all tables. Whatever could not be read stands in its ``diagnostics``.

    Raises
    ------
    ParseError
        When nothing can be read: no such file, unknown format, damaged header. When the machine's
        file is wrong, old, or of another machine; it names the line.

    Examples
    --------
    >>> import tracekit as tk
    >>> trace = tk.read("fixtures/demo/slice-default.dat")
    >>> trace.metadata["source.format"]
    'trace-dat'
    """
    check_threads()
    source, name = _settle(source)
    found = beside(source, machine)
    trace = _read_any(source, name, format, checked(options), progress, cache)
    if found is not None:
        trace = trace.with_metadata(machine_metadata(trace.metadata, found))
        check(trace, found)
    return trace


def _read_any(
    source: str | bytes,
    name: str,
    format: str | None,
    settings: dict[str, str],
    progress: Progress,
    cache: bool | None,
) -> Trace:
    """Read from a file of tracekit's own, from the cache, or from the source."""
    own = own_file(source) if format is None else None
    if own is not None:
        from tracekit.io.parquet import read_stored

        return read_stored(source, own, name)
    wanted = os.environ.get("TRACEKIT_CACHE", "") not in ("", "0") if cache is None else cache
    if wanted and (isinstance(source, bytes) or Path(source).is_file()):
        return _read_cached(source, name, format, settings, progress)
    return _read(source, name, format, settings, progress)


def _read_cached(
    source: str | bytes, name: str, format: str | None, settings: dict[str, str], progress: Progress
) -> Trace:
    """Read from the cache, or read and keep."""
    from tracekit.io.cache import Cache, cache_key

    try:
        key = cache_key(source, format, settings)
    except OSError:
        # Reading says what is wrong.
        return _read(source, name, format, settings, progress)
    cache = Cache()
    trace = cache.get(key, name)
    if trace is None:
        trace = _read(source, name, format, settings, progress)
        cache.put(key, trace)
        return trace
    # The content is the same; its name and place may be others.
    size = len(source) if isinstance(source, bytes) else Path(source).stat().st_size
    known = {k: v for k, v in trace.metadata.items() if k != "source.files"}
    return trace.with_metadata(known | provenance(source, size, settings))


def _read(
    source: str | bytes, name: str, format: str | None, settings: dict[str, str], progress: Progress
) -> Trace:
    """Read a source of another tool."""
    external = external_format(source, format)
    if external is not None:
        with reporter(progress, f"reading {name}") as report:
            size = Path(source).stat().st_size if isinstance(source, str) and source != "-" else None
            known = provenance(source, size, settings)
            return read_external(external, source, name, known, settings, lambda rows: report(0, size, rows))
    reader = _core.Reader(source, format, settings)
    with reporter(progress, f"reading {name}") as report:
        batches = list(_batches(reader, report))
    metadata = reader.metadata | provenance(source, reader.size, settings)
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

    Examples
    --------
    >>> import polars as pl
    >>> import tracekit as tk
    >>> events = tk.scan("fixtures/demo/slice-default.dat")
    >>> events.filter(pl.col("kind") == "fork").select(pl.len()).collect().item()
    18
    """
    from polars.io.plugins import register_io_source

    path = os.fspath(source)
    own = own_file(path) if format is None else None
    if own is not None:
        from tracekit.io.parquet import scan_stored

        return scan_stored(path, own)
    settings = checked(options)
    if external_format(path, format) is not None:
        # Another tool's reader gives all or nothing.
        return read(path, format, progress=False, cache=None, machine=False, **options).events.lazy()
    # Opened here so that a source that cannot be read raises now.
    _core.Reader(path, format, settings, derive=[])

    def batches(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, batch_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        reader = _core.Reader(path, format, settings, derive=[])
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


def convert(
    source: Source,
    target: str | os.PathLike[str],
    *,
    table: str = "events",
    format: str | None = None,
    to: str | None = None,
    progress: Progress = False,
    machine: Beside = None,
    **options: object,
) -> Converted:
    """Write a table of a trace to a file, a batch at a time, without ever holding the trace.

    Parameters
    ----------
    source, format, progress, machine, **options
        As in `read`.
    target
        File to write. It appears when it is complete: until then, and after an error, there is none.
    table
        Table to write.
    to
        ``parquet``, ``arrow`` or ``csv``; by default the ending of `target` decides.

    Returns
    -------
    Converted
        Rows and bytes written, and the metadata and diagnostics of the source.

    Notes
    -----
    Rows of ``slices`` and ``states`` are written when their intervals end: they are in order of start
    time within a batch, and not over the whole file, as those of `read` are. Sort by ``ts_ns`` where the
    order matters (`polars.DataFrame.join_asof`).

    Examples
    --------
    >>> import tempfile
    >>> import tracekit as tk
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = tk.convert("fixtures/demo/slice-default.dat", f"{folder}/slices.parquet", table="slices")
    >>> done.table
    'slices'
    """
    from tracekit.io.writers import LARGE, convert_reader, output_kind, takes_keys

    kind = output_kind(target, to)
    if table not in (*TABLES, *COMPUTED):
        raise OutputError(f"no table is called {table!r}: use one of {', '.join((*TABLES, *COMPUTED))}")
    source, name = _settle(source)
    whole = (format is None and own_file(source) is not None) or external_format(source, format) is not None
    if table not in LARGE or whole:
        whole_trace = read(source, format, progress=progress, cache=None, machine=machine, **options)
        return whole_trace.write(target, table=table, to=to)
    settings = checked(options)
    reader = _core.Reader(source, format, settings, derive=[table], keys=takes_keys(kind), hashed=True)
    found = beside(source, machine)

    def complete(known: dict[str, str]) -> dict[str, str]:
        return machine_metadata(known | provenance(source, reader.size, settings, reader.blake3()), found)

    with reporter(progress, f"converting {name}") as report:
        # Kernel and CPUs of the trace are known at its end; before that, nothing is in place.
        return convert_reader(reader, target, kind, table, complete, report)


def _batches(reader: _core.Reader, report: Report, rows: int = BATCH_ROWS) -> Iterator[_core.Table]:
    while (table := reader.read(rows)) is not None:
        report(reader.position, reader.size, reader.rows)
        yield table
    report(reader.position, reader.size, reader.rows)


def _settle(source: Source) -> tuple[str | bytes, str]:
    """The source as the core takes it, and what to call it."""
    if isinstance(source, bytes):
        return source, "bytes"
    if isinstance(source, str) and "\n" in source and not os.path.exists(source):  # noqa: PTH110 (any text)
        # Several lines that name no file: this is a workload.
        return source.encode(), "workload"
    if isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        return path, "standard input" if path == "-" else file_name(path)
    if not hasattr(source, "read"):
        raise TypeError(f"expected a path, bytes or a file opened in binary mode, found {source!r}")
    data = source.read()
    if not isinstance(data, bytes):
        raise TypeError("expected a file opened in binary mode, found one in text mode")
    return data, file_name(str(getattr(source, "name", "stream")))


def own_file(source: str | bytes) -> str | None:
    """``parquet`` or ``arrow`` for a file of that kind."""
    if isinstance(source, bytes):
        head = source[:8]
    else:
        if not Path(source).is_file():
            return None
        try:
            with Path(source).open("rb") as file:
                head = file.read(8)
        except OSError as error:
            raise ParseError(f"{source}: {error.strerror}", code="io") from error
    kind = "parquet" if head.startswith(b"PAR1") else "arrow" if head.startswith(b"ARROW1") else None
    if kind is not None and not isinstance(source, bytes):
        check_name(source)
    return kind


def provenance(
    source: str | bytes, size: int | None, options: Mapping[str, str], hashed: str | None = None
) -> dict[str, str]:
    """Metadata that the core does not know."""
    known = {"options": json.dumps(options, sort_keys=True)} if options else {}
    if isinstance(source, bytes) or source == "-":
        return known
    file = {"name": file_name(source), "size": size} | ({"blake3": hashed} if hashed else {})
    return known | {"source.files": json.dumps([file])}
