"""The response time of a search in a replay that tells of its messages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from validation.metrics import Refused, mean_search

MS = 1_000_000


def replay(arrivals: list[tuple[int, int | None]], replies: list[tuple[int, int | None]]) -> Any:
    """A replay with these messages: when, in ms, and of which request."""
    rows = [(at * MS, "gen0", "A0", request) for at, request in arrivals]
    rows += [(at * MS, f"A{i}", "E0", request) for i, (at, request) in enumerate(replies)]
    columns = {"ts_ns": pl.Int64, "ctx_comm": pl.String, "comm": pl.String, "value": pl.Int64}
    events = pl.DataFrame(rows, columns, orient="row")
    events = events.with_columns(kind=pl.lit("other"), name=pl.lit("message"))
    nothing = pl.DataFrame(schema={"utid": pl.Int64, "comm": pl.String, "wake_ts_ns": pl.Int64})
    slices = nothing.with_columns(ts_ns=pl.lit(0), dur_ns=pl.lit(0), waker_utid=pl.lit(0))
    return SimpleNamespace(events=events, tasks=nothing, slices=slices)


def test_which_reply_belongs_to_which_arrival_does_not_matter_where_both_are_complete() -> None:
    # Requests that may have been mixed up are not named.
    found = mean_search(replay([(0, 0), (10, None)], [(30, 0), (50, None)]), {"n": "2"})
    assert (found.value, found.n, found.samples) == (35.0, 2, (30 * MS,))


def test_searches_are_followed_one_by_one_where_replies_are_missing_or_come_too_early() -> None:
    arrivals = [(10 * i, i) for i in range(20)]
    whole = [(10 * i + 7, i) for i in range(20)]
    assert mean_search(replay(arrivals, whole[:-1]), {"n": "20"}).value == 7
    early = [*whole[:-1], (3, None)]
    assert mean_search(replay(arrivals, early), {"n": "20"}).n == 19
    with pytest.raises(Refused, match="only 10 of 20"):
        mean_search(replay(arrivals, whole[:10]), {"n": "20"})
