"""Protobuf wire format for whole columns: thousands of small messages in a few numpy calls.

A *column of cells* holds one piece of every row's message: a byte matrix and how many bytes of
each matrix row count.  Pieces are put side by side by `rows`, wrapped in a length by `message`.
No Python code runs per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[Any]
# Rows that `rows` lays out at a time: bounds the scratch matrix to some ten megabytes.
ROWS_AT_A_TIME = 65_536


class Cells(NamedTuple):
    """One piece of every row: row `i` contributes `data[i, :length[i]]`."""

    data: NDArray[np.uint8]
    length: NDArray[np.int64]


def varint(number: int) -> bytes:
    """Encode one integer; a negative one as its 64-bit two's complement, as protobuf does."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def int_field(number: int, value: int) -> bytes:
    """Encode field `number` with an integer value."""
    return varint(number << 3) + varint(value)


def bytes_field(number: int, payload: bytes | str) -> bytes:
    """Encode field `number` with a string, bytes or an encoded message."""
    if isinstance(payload, str):
        payload = payload.encode("utf-8", "replace")
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def constant(data: bytes, count: int) -> Cells:
    """Put the same bytes in each of `count` rows."""
    row = np.frombuffer(data, np.uint8)
    return Cells(np.broadcast_to(row, (count, len(row))), np.broadcast_to(np.int64(len(row)), (count,)))


def varints(values: Ints) -> Cells:
    """Encode one integer per row."""
    number = np.ascontiguousarray(values, dtype=np.int64).view(np.uint64)
    top = int(number.max()) if len(number) else 0
    width = max(1, -(-top.bit_length() // 7))
    data = np.empty((len(number), width), np.uint8)
    length = np.ones(len(number), np.int64)
    for k in range(width):
        data[:, k] = (number >> np.uint64(7 * k)) & np.uint64(0x7F)
        if k:
            more = number >= np.uint64(1 << (7 * k))
            length += more
            data[:, k - 1] |= more.astype(np.uint8) << np.uint8(7)
    return Cells(data, length)


def strings(dictionary: Sequence[bytes], codes: Ints) -> Cells:
    """Take one entry of `dictionary` per row, without length prefix."""
    sizes = np.array([len(entry) for entry in dictionary] or [0], np.int64)
    table = np.zeros((max(1, len(dictionary)), int(sizes.max())), np.uint8)
    for k, entry in enumerate(dictionary):
        table[k, : len(entry)] = np.frombuffer(entry, np.uint8)
    return Cells(table[codes], sizes[codes])


def only(present: NDArray[np.bool_], cells: list[Cells]) -> list[Cells]:
    """Leave the pieces out of the rows where `present` is false."""
    return [Cells(c.data, np.where(present, c.length, 0)) for c in cells]


def ints(number: int, values: Ints) -> list[Cells]:
    """Encode integer field `number`, one value per row."""
    return [constant(varint(number << 3), len(values)), varints(values)]


def texts(number: int, dictionary: Sequence[bytes], codes: Ints) -> list[Cells]:
    """Encode string field `number`, one dictionary entry per row."""
    prefixed = [varint(len(entry)) + entry for entry in dictionary]
    return [constant(varint(number << 3 | 2), len(codes)), strings(prefixed, codes)]


def message(number: int, cells: list[Cells]) -> list[Cells]:
    """Wrap the pieces of each row into field `number`."""
    size = np.zeros(len(cells[0].length), np.int64)
    for piece in cells:
        size += piece.length
    return [constant(varint(number << 3 | 2), len(size)), varints(size), *cells]


def rows(cells: list[Cells]) -> bytes:
    """Lay the pieces of each row side by side, row after row."""
    count = len(cells[0].length) if cells else 0
    out = []
    for start in range(0, count, ROWS_AT_A_TIME):
        stop = min(count, start + ROWS_AT_A_TIME)
        width = sum(c.data.shape[1] for c in cells)
        data = np.empty((stop - start, width), np.uint8)
        keep = np.empty((stop - start, width), np.bool_)
        at = 0
        for piece in cells:
            end = at + piece.data.shape[1]
            data[:, at:end] = piece.data[start:stop]
            np.less(np.arange(end - at), piece.length[start:stop, None], out=keep[:, at:end])
            at = end
        out.append(data[keep].tobytes())
    return b"".join(out)


def packed(number: int, values: Ints) -> bytes:
    """Encode packed repeated integer field `number`; nothing when there are no values."""
    return bytes_field(number, rows([varints(values)])) if len(values) else b""
