"""Turns query results of the trace processor into polars columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

# Types of cells in QueryResult.CellsBatch.
NULL, INTEGER, REAL, TEXT, BLOB = 1, 2, 3, 4, 5


def _texts(batch: Any) -> list[str]:
    joined = batch.string_cells
    if isinstance(joined, bytes):
        joined = joined.decode("utf-8", "replace")
    return str(joined).split("\0")[:-1]


def _values(kind: int, batches: list[Any]) -> pl.Series:
    """Give all cells of one type, in their order."""
    if kind == INTEGER:
        parts = [np.array(b.varint_cells, np.int64) for b in batches]
        return pl.Series(np.concatenate(parts), dtype=pl.Int64)
    if kind == REAL:
        return pl.Series(
            np.concatenate([np.array(b.float64_cells, np.float64) for b in batches]), dtype=pl.Float64
        )
    if kind == TEXT:
        return pl.Series([text for b in batches for text in _texts(b)], dtype=pl.String)
    return pl.Series([blob for b in batches for blob in b.blob_cells], dtype=pl.Binary)


def result_frame(names: list[str], batches: Iterable[Any]) -> pl.DataFrame:
    """Build a DataFrame from a query's result.

    Parameters
    ----------
    names
        Columns; one that appears twice gets a number.
    batches
        The cells, row after row.

    Returns
    -------
    polars.DataFrame
        A column that mixes integers and numbers is Float64, one that mixes texts with others is String,
        one without values is Null.
    """
    kept = list(batches)
    names = _distinct(names)
    if not names:
        return pl.DataFrame()
    cells: NDArray[np.uint8] = np.concatenate(
        [np.array(b.cells, np.uint8) for b in kept] or [np.empty(0, np.uint8)]
    )
    grid = cells.reshape(-1, len(names))
    pools = {kind: _values(kind, kept) for kind in np.unique(cells).tolist() if kind != NULL}
    # Which entry of its type's pool a cell is.
    index = np.zeros(len(cells), np.int64)
    for kind in pools:
        of_kind = cells == kind
        index[of_kind] = np.arange(int(of_kind.sum()))
    index = index.reshape(grid.shape)
    columns = [_column(grid[:, k], index[:, k], pools).alias(name) for k, name in enumerate(names)]
    return pl.DataFrame(columns)


def _distinct(names: list[str]) -> list[str]:
    out: list[str] = []
    for name in names:
        number, candidate = 1, name
        while candidate in out:
            number += 1
            candidate = f"{name}_{number}"
        out.append(candidate)
    return out


def _column(kinds: NDArray[np.uint8], index: NDArray[np.int64], pools: dict[int, pl.Series]) -> pl.Series:
    present = [kind for kind in np.unique(kinds).tolist() if kind != NULL]
    if not present:
        return pl.Series([None] * len(kinds), dtype=pl.Null)
    parts = []
    for kind in present:
        at = np.where(kinds == kind, index, -1)
        where = pl.Series(at).cast(pl.Int64)
        where = where.set(where < 0, None)
        parts.append(pools[kind].gather(where))
    if len(parts) == 1:
        return parts[0]
    target = pl.Float64 if set(present) <= {INTEGER, REAL} else pl.String
    frame = pl.DataFrame([part.cast(target).alias(str(k)) for k, part in enumerate(parts)])
    return frame.select(pl.coalesce(pl.all())).to_series()
