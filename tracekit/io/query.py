"""SQL on the tables of a trace, by DuckDB."""

from __future__ import annotations

import re

import polars as pl

from tracekit._frames import TABLES
from tracekit.errors import TracekitError
from tracekit.trace import Trace

__all__ = ["query"]


def query(trace: Trace, sql: str) -> pl.DataFrame:
    r"""Run SQL on the tables of a trace.

    Parameters
    ----------
    trace
        A trace; its tables have their own names: ``events``, ``slices``, ``states``, ``runqueue``,
        ``tasks``, ``cpus``, ...
    sql
        Statements in DuckDB's dialect; the result of the last one is given. They cannot reach files
        or networks.

    Returns
    -------
    polars.DataFrame
        Columns as the query names them.

    Raises
    ------
    TracekitError
        When DuckDB is not installed, or with what it says against the query.

    Examples
    --------
    >>> import tracekit as tk
    >>> trace = tk.simulate("A: R5\nB: R3", policy="rr:quantum=2ms")
    >>> query(trace, "select comm, sum(dur_ns) as ns from slices group by comm order by comm").rows()
    [('A', 5000000), ('B', 3000000)]
    """
    try:
        import duckdb
    except ImportError:
        raise TracekitError("the duckdb engine is not installed: pip install 'tracekit[duckdb]'") from None
    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        for name in TABLES:
            # Tables are made when they are first asked for; only those that the query may mean are.
            if re.search(rf"\b{name}\b", sql, re.IGNORECASE):
                connection.register(name, trace.table(name).to_arrow())
        try:
            result = connection.sql(sql)
            return pl.DataFrame() if result is None else pl.DataFrame(result.to_arrow_table())
        except duckdb.Error as error:
            raise TracekitError(f"duckdb: {error}") from None
