"""Takes columns of a DataFrame as plain numpy arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from tracekit.perfetto.wire import Ints


def integers(frame: pl.DataFrame, column: str, fill: int = 0) -> Ints:
    """Give an integer or boolean column as int64, null as `fill`."""
    values: Ints = frame.get_column(column).cast(pl.Int64).fill_null(fill).to_numpy()
    return values


def dictionary(values: pl.Series) -> tuple[list[bytes], Ints]:
    """Split strings into distinct ones and a code per row; null is the empty string."""
    text = values.cast(pl.String).fill_null("")
    words = text.unique(maintain_order=True)
    codes = text.replace_strict(words, pl.int_range(len(words), eager=True), return_dtype=pl.Int64)
    return [word.encode("utf-8", "replace") for word in words.to_list()], codes.to_numpy()


def by_cpu(cpus: Ints) -> Iterator[tuple[int, Ints]]:
    """Give each CPU with the indexes of its rows, in their order."""
    order = np.argsort(cpus, kind="stable")
    values, starts = np.unique(cpus[order], return_index=True)
    yield from zip(values.tolist(), np.split(order, starts[1:]), strict=False)
