"""Intervals laid over other intervals, whole tables at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

Ints = NDArray[np.int64]

#: Largest product of keys and time span that one int64 holds beside the time itself.
_ROOM = 1 << 62


class Overlay(NamedTuple):
    """The parts that intervals are cut into, by interval and time.

    Attributes
    ----------
    piece
        Row of the interval that was cut.
    cover
        Row of the interval that lies over this part; -1 where none does.
    start, end
        Of the part, ns.
    """

    piece: Ints
    cover: Ints
    start: Ints
    end: Ints


class _Clock:
    """Times as small numbers, so that a key and a time fit one int64: since the first, or ranked."""

    def __init__(self, keys: int, times: tuple[Ints, ...]) -> None:
        self.first = min((int(t.min()) for t in times if len(t)), default=0)
        last = max((int(t.max()) for t in times if len(t)), default=0)
        self.width = last - self.first + 2
        self.known: Ints | None = None
        if (keys + 1) * self.width >= _ROOM:
            self.known = np.unique(np.concatenate(times))
            self.width = len(self.known) + 2

    def code(self, times: Ints) -> Ints:
        if self.known is None:
            return times - self.first
        return np.searchsorted(self.known, times).astype(np.int64)

    def time(self, codes: Ints) -> Ints:
        return codes + self.first if self.known is None else self.known[codes]


def overlay(key: Ints, start: Ints, end: Ints, over_key: Ints, over_start: Ints, over_end: Ints) -> Overlay:
    """Cut intervals where other intervals of the same key begin and end.

    Parameters
    ----------
    key, start, end
        The intervals to cut; they may overlap. Empty ones give no part.
    over_key, over_start, over_end
        What lies over them. Where two of one key overlap, the one that began first holds until it ends.

    Returns
    -------
    Overlay
        Parts that are disjoint and make up each interval exactly: their lengths sum to its length.
    """
    empty = np.empty(0, np.int64)
    if not len(key):
        return Overlay(empty, empty, empty, empty)
    ranks = np.unique(np.concatenate([key, over_key]))
    clock = _Clock(len(ranks), (start, end, over_start, over_end))
    k, o = (np.searchsorted(ranks, x).astype(np.int64) * clock.width for x in (key, over_key))
    order = np.lexsort((over_end, over_start, over_key))
    cover_s, cover_e = (o + clock.code(over_start))[order], (o + clock.code(over_end))[order]
    if len(order):
        reached = np.maximum.accumulate(cover_e)
        cover_s = np.maximum(cover_s, np.concatenate([cover_s[:1], reached[:-1]]))
        kept = cover_e > cover_s
        order, cover_s, cover_e = order[kept], cover_s[kept], cover_e[kept]
    cs, ce = k + clock.code(start), k + clock.code(end)
    lo = np.searchsorted(cover_e, cs, side="right")
    count = np.maximum(np.searchsorted(cover_s, ce, side="left") - lo, 0)
    count[ce <= cs] = 0
    piece = np.repeat(np.arange(len(key)), count)
    first = np.cumsum(count) - count
    at = np.arange(len(piece)) - first[piece] + lo[piece]
    from_, to = np.maximum(cs[piece], cover_s[at]), np.minimum(ce[piece], cover_e[at])
    # What lies between two covers, before the first and behind the last one.
    behind = np.concatenate([cs[:1], to[:-1]]) if len(to) else empty
    is_first = np.arange(len(piece)) == first[piece]
    gap_from = np.where(is_first, cs[piece], behind)
    tail_from = cs.copy()
    some = count > 0
    tail_from[some] = to[(first + count - 1)[some]]
    pieces = np.concatenate([piece, piece, np.arange(len(key))])
    covers = np.concatenate([order[at], np.full(len(piece) + len(key), -1, np.int64)])
    starts = np.concatenate([from_, gap_from, tail_from])
    ends = np.concatenate([to, from_, np.maximum(ce, cs)])
    kept = ends > starts
    pieces, covers, starts, ends = pieces[kept], covers[kept], starts[kept], ends[kept]
    sort = np.lexsort((starts, pieces))
    pieces, covers, starts, ends = pieces[sort], covers[sort], starts[sort], ends[sort]
    back = k[pieces]
    return Overlay(pieces, covers, clock.time(starts - back), clock.time(ends - back))


def ints(frame: pl.DataFrame, *columns: str) -> list[Ints]:
    """Integer columns as int64 arrays; null becomes -1."""
    return [frame[c].cast(pl.Int64).fill_null(-1).to_numpy() for c in columns]
