"""How many answers come late to whom they are for: ``python -m validation.answers TRACE...``.

For calls through pipes (tasks A ask B0). A client has one search on its way, so that the answer which it
gets is to that one. Where a replay took messages of two searches for each other's, the client waits for
the other one: its answer comes long behind the last work that B0 did for its own. Each trace is replayed
as itself.
"""

from __future__ import annotations

import sys

import polars as pl

import tracekit as tk
from tracekit.trace import Trace

__all__ = ["late"]

#: More than B0 does for one message, ns: it takes 0.4 ms on average.
LATE_NS = 5_000_000


def late(replay: Trace) -> tuple[int, int]:
    """Count answers.

    Parameters
    ----------
    replay
        A replay that knows the messages.

    Returns
    -------
    tuple of int
        Answers that come late, and all that can be followed.
    """
    names = pl.col("kind", "name", "comm", "ctx_comm").cast(pl.String)
    events = replay.events.with_columns(names).sort("ts_ns")
    client, server = pl.col("ctx_comm").str.starts_with("A"), pl.col("ctx_comm") == "B0"
    asked = events.filter(pl.col("name") == "message", client, pl.col("comm") == "B0")
    done = (
        events.filter(pl.col("name") == "served", server).group_by("value").agg(done_ns=pl.col("ts_ns").max())
    )
    got = events.filter(pl.col("kind") == "wakeup", server, pl.col("comm").str.starts_with("A"))
    got = got.select("ts_ns", client="comm", got_ns="ts_ns")
    both = asked.select("ts_ns", "value", client="ctx_comm").join_asof(
        got, on="ts_ns", by="client", strategy="forward", check_sortedness=False
    )
    both = both.drop_nulls("got_ns").join(done, on="value")
    return both.filter(pl.col("got_ns") - pl.col("done_ns") > LATE_NS).height, both.height


def main(paths: list[str]) -> int:
    """Print a line for each trace."""
    if not paths:
        print("usage: python -m validation.answers TRACE...", file=sys.stderr)
        return 2
    for path in paths:
        few, every = late(tk.replay(tk.read(path)))
        print(f"{path}: {few} of {every} answers come late")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
