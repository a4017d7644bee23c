"""Response times of searches and requests in a replay that tells of its messages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from validation.metrics import Refused, mean_request, mean_search

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


def test_a_replay_says_when_each_request_of_a_pool_was_done() -> None:
    # Two requests arrive at 0 and 10 ms, are sent on 1 and 3 ms later, and done at 8 and 20 ms. What the gate
    # serves before, no worker does.
    sent = [(1, "disp0", "work0", 0), (13, "disp0", "work0", 1), (13, "gen0", "disp0", 2)]
    done = [(8, "work1", "work1", 0), (20, "work0", "work0", 1), (14, "disp0", "disp0", 2)]
    columns = {"ts_ns": pl.Int64, "ctx_comm": pl.String, "comm": pl.String, "value2": pl.Int64}
    rows = [
        pl.DataFrame([(at * MS, *who) for at, *who in of], columns, orient="row").with_columns(
            kind=pl.lit("other"), name=pl.lit(name)
        )
        for name, of in (("message", sent), ("served", done))
    ]
    slices = pl.DataFrame(
        {
            "utid": [1, 2, 1, 2],
            "comm": ["gen0", "disp0", "gen0", "disp0"],
            "ts_ns": [0, 0, 10 * MS, 10 * MS],
            "dur_ns": [MS // 10, MS, MS // 10, 3 * MS],
            "wake_ts_ns": [0, 0, 10 * MS, 10 * MS],
            "waker_utid": [None, 1, None, 1],
        }
    )
    tasks = pl.DataFrame({"utid": [1, 2], "comm": ["gen0", "disp0"]})
    told: Any = SimpleNamespace(events=pl.concat(rows), tasks=tasks, slices=slices)
    found = mean_request(told, {"n": "2"})
    assert (found.value, found.n) == ((8 + 10) / 2 * 1e3, 2)
    # One that begins again sends the same messages once more, which take longer then.
    again = [of.with_columns(pl.col("ts_ns") + ms * MS) for of, ms in zip(rows, (100, 150), strict=True)]
    twice: Any = SimpleNamespace(events=pl.concat([*rows, *again]), tasks=tasks, slices=slices)
    assert mean_request(twice, {"n": "2"}).value == found.value
    late: Any = SimpleNamespace(events=pl.concat([rows[0], rows[1][1:]]), tasks=tasks, slices=slices)
    with pytest.raises(Refused, match="only 1 of 2 requests are done"):
        mean_request(late, {"n": "2"})
