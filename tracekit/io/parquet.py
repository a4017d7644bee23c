"""Reading back what tracekit wrote: Parquet and Arrow files with its metadata."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit import _core
from tracekit._frames import TABLES, empty_frame, table_schema, to_frame, typed
from tracekit._lazy import later
from tracekit.errors import FilterWarning, ParseError
from tracekit.trace import Trace

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
else:
    pl = later("polars")
    pa = later("pyarrow")

__all__ = ["batches_of", "holds_events", "read_stored", "scan_stored"]

#: Events that are held at a time.
BATCH_ROWS = 1 << 16

#: Footer entries that are tables, not facts.
_ROWS = ("losses", "diagnostics")

#: Conditions of `Trace.filter` that choose tasks.
OF_TASKS = ("comm", "pid", "tid", "exclude")


def read_stored(source: str | bytes, kind: str, name: str) -> Trace:
    """Read a file that `convert` or `Trace.write` wrote.

    Parameters
    ----------
    source
        Path, or the bytes of the file.
    kind
        ``parquet`` or ``arrow``.
    name
        What to call the trace.

    Returns
    -------
    Trace
        Of an ``events`` file with all tables, those other than events made anew; of the file of
        another table with that table alone. Of events that were filtered by task before they were
        written, ``slices``, ``states`` and ``tasks`` hold the chosen tasks, and ``runqueue`` nothing: of
        the others only those records are left that name a chosen one. Of events that were filtered by
        CPU, what tasks do elsewhere is not known.
    """
    try:
        table = _read(source, kind)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(source, kind, error) from error
    held, stored = _metadata(table.schema.metadata, source, kind)
    footer = {k: stored.pop(k) for k in _ROWS if k in stored}
    tables: dict[str, _core.Table | pl.DataFrame] = {k: _rows(k, text) for k, text in footer.items()}
    frame = typed(pl.DataFrame(table), held)
    tables[held] = frame
    if held == "events":
        part = filtered_by(stored)
        cpus = {"cpus.recorded": ",".join(map(str, sorted(part["cpu"])))} if part.get("cpu") else {}
        derived = _core.derive(frame, stored | cpus)
        # A conversion of events alone has not derived anything yet; one of a whole trace has found
        # the same already.
        found = [tables.get("diagnostics"), to_frame(derived.pop("diagnostics"))]
        known = pl.concat([f for f in found if isinstance(f, pl.DataFrame)])
        tables |= derived
        tables["diagnostics"] = known.unique(maintain_order=True)
        if any(key in part for key in OF_TASKS):
            return _of_some_tasks(Trace(tables, stored, name), part)
    return Trace(tables, stored, name)


def filtered_by(stored: Mapping[str, str]) -> dict[str, Any]:
    """The conditions that events were filtered by before they were written, by argument of `Trace.filter`."""
    try:
        found = json.loads(stored.get("options", "{}")).get("filter", {})
    except (ValueError, AttributeError):
        return {}
    return found if isinstance(found, dict) else {}


def _of_some_tasks(trace: Trace, part: Mapping[str, Any]) -> Trace:
    """A trace of whose other tasks only some records are left: without what was derived of these."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FilterWarning)
        # A name that a task was chosen or left out by may stand in none of the records that are left.
        tids = json.loads(trace.metadata["options"]).get("tids", part.get("tid"))
        chosen = trace.filter(**{key: part.get(key) for key in OF_TASKS} | {"tid": tids})
    kept = {name: chosen.table(name) for name in ("slices", "states", "tasks")}
    kept |= {name: trace.table(name) for name in TABLES if name not in kept}
    return Trace(kept | {"runqueue": empty_frame("runqueue")}, trace.metadata, trace.name)


def batches_of(path: str, kind: str) -> tuple[dict[str, str], dict[str, pl.DataFrame], Iterator[pa.Table]]:
    """The events of a file that `convert` or `Trace.write` wrote, a batch at a time.

    Parameters
    ----------
    path
        The file.
    kind
        ``parquet`` or ``arrow``.

    Returns
    -------
    tuple
        Metadata, the tables ``losses`` and ``diagnostics`` as far as the file has them, and the batches.

    Raises
    ------
    ParseError
        When it is damaged, or a file of another table.
    """
    try:
        table, stored = _metadata(_schema_metadata(path, kind), path, kind)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, kind, error) from error
    if table != "events":
        raise ParseError(f"{path}: expected events, found the table {table!r}", kind, "unsupported")
    footer = {k: _rows(k, stored.pop(k)) for k in _ROWS if k in stored}
    return stored, footer, _pieces(path, kind)


def stored_metadata(path: str, kind: str) -> dict[str, str]:
    """The metadata of a file that tracekit wrote; empty for another, of which reading says what is wrong.

    Parameters
    ----------
    path
        The file.
    kind
        ``parquet`` or ``arrow``.
    """
    try:
        return _metadata(_schema_metadata(path, kind), path, kind)[1]
    except (OSError, pa.ArrowException, ParseError):
        return {}


def holds_events(path: str, kind: str) -> bool:
    """Whether a file of tracekit's own holds events; of a damaged one reading says what is wrong."""
    try:
        found = _schema_metadata(path, kind) or {}
    except (OSError, pa.ArrowException):
        return False
    return found.get(b"tracekit.table") == b"events"


def _pieces(path: str, kind: str) -> Iterator[pa.Table]:
    import pyarrow.parquet as pq

    try:
        if kind == "parquet":
            batches = pq.ParquetFile(path).iter_batches(BATCH_ROWS)
        else:
            opened: Any = pa.ipc.open_file(pa.memory_map(path))
            batches = (opened.get_batch(i) for i in range(opened.num_record_batches))
        for batch in batches:
            yield pa.Table.from_batches([batch])
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, kind, error) from error


def scan_stored(path: str, kind: str) -> pl.LazyFrame:
    """The events of a file that `convert` or `Trace.write` wrote, read when they are collected.

    Parameters
    ----------
    path
        The file.
    kind
        ``parquet`` or ``arrow``.

    Returns
    -------
    polars.LazyFrame
        The columns of ``events``.
    """
    try:
        table, _ = _metadata(_schema_metadata(path, kind), path, kind)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, kind, error) from error
    if table != "events":
        raise ParseError(f"{path}: expected events, found the table {table!r}", kind, "unsupported")
    frame = pl.scan_parquet(path) if kind == "parquet" else pl.scan_ipc(path)
    found = frame.collect_schema()
    wanted = table_schema("events")
    return frame.select(
        pl.col(c) if found[c] == dtype else pl.col(c).cast(pl.String).cast(dtype)
        for c, dtype in wanted.items()
    )


def _read(source: str | bytes, kind: str) -> pa.Table:
    import pyarrow.parquet as pq

    if kind == "parquet":
        file = pq.ParquetFile(pa.BufferReader(source) if isinstance(source, bytes) else source)
        # The footer's own pairs: the schema in it was written before they were known.
        return file.read().replace_schema_metadata(file.metadata.metadata)
    opened = pa.BufferReader(source) if isinstance(source, bytes) else pa.memory_map(source)
    return pa.ipc.open_file(opened).read_all()


def _schema_metadata(path: str, kind: str) -> Mapping[bytes, bytes] | None:
    import pyarrow.parquet as pq

    if kind == "parquet":
        pairs: Mapping[bytes, bytes] | None = pq.ParquetFile(path).metadata.metadata
        return pairs
    with pa.memory_map(path) as opened:
        schema: Any = pa.ipc.open_file(opened).schema
        return dict(schema.metadata or {})


def _metadata(
    found: Mapping[bytes, bytes] | None, source: str | bytes, kind: str
) -> tuple[str, dict[str, str]]:
    """The name of the table and the metadata; raises for a file that tracekit did not write."""
    known = {k["name"] for k in _core.metadata_keys()}
    pairs = {k.decode(): v.decode() for k, v in (found or {}).items() if k.decode(errors="replace") in known}
    table = pairs.pop("tracekit.table", "")
    if pairs.get("tracekit.schema") != "1" or table not in TABLES:
        version = pairs.get("tracekit.schema")
        what = (
            f"schema version {version}" if version and table in TABLES else "one that tracekit did not write"
        )
        raise ParseError(
            f"{_name(source)}: expected a {kind} file of tracekit (schema version 1), found {what}",
            kind,
            "unsupported",
        )
    return table, pairs


def _rows(table: str, text: str) -> pl.DataFrame:
    return pl.DataFrame(json.loads(text), schema=table_schema(table))


def _damaged(source: str | bytes, kind: str, error: Exception) -> ParseError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return ParseError(f"{_name(source)}: damaged {kind} file: {reason}", kind)


def _name(source: str | bytes) -> str:
    return "bytes" if isinstance(source, bytes) else str(Path(source))
