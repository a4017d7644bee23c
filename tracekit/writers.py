"""Tables as Arrow, and as files: Parquet, Arrow IPC, CSV."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

__all__ = ["arrow_table"]


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
        fields.append(pa.field(field.name, dtype))
    return table.cast(pa.schema(fields, {**metadata, "tracekit.table": name}))
