"""Which tasks a replay gets wrong, and what they wait for.

Metrics of a whole trace say that a replay is off, not where. The few tasks whose switches differ
most usually do: one that competes with another group than the recorded one, that waits for a
message which no wakeup shows, or whose sleeps nothing explains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.whatif.calibration import tolerances

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["waits", "worst"]

#: What ends a sleep, by the step of its program: how a reader calls it.
_WORDS = {
    "timer": "timers",
    "period": "periodic timers",
    "ticks": "timers of whole ticks",
    "io": "devices",
    "message": "requests to its pool",
    "several": "messages from several tasks",
    "lock": "a lock that it shares",
    "barrier": "the others at a barrier",
    "external": "something not recorded",
    "absolute": "something not recorded",
}

#: Letters of two causes that fit beside a task and its switches in 80 columns.
WIDE = 38
#: Share of a task's sleeps below which a second cause is not named: judgement, for short lines.
SMALL = 0.1

_SCHEMA = {
    "tid": pl.Int64,
    "comm": pl.String,
    "switches_recorded": pl.Int64,
    "switches_replayed": pl.Int64,
    "share_recorded": pl.Float64,
    "share_replayed": pl.Float64,
    "waits": pl.String,
}


def _by_task(trace: Trace) -> pl.DataFrame:
    """Switches and share of the CPU time of each thread."""
    slices = trace.slices.select("tid", pl.col("comm").cast(pl.String), "dur_ns", "end_state")
    total = max(int(slices["dur_ns"].sum()), 1)
    return slices.group_by("tid").agg(
        pl.col("comm").drop_nulls().last(),
        pl.col("end_state").is_not_null().sum().cast(pl.Int64).alias("switches"),
        (100 * pl.col("dur_ns").sum() / total).alias("share"),
    )


def waits(replay: Trace, tids: list[int]) -> dict[int, str]:
    """Say for what tasks wait, in the programs that a replay runs.

    Parameters
    ----------
    replay
        A replay.
    tids
        Threads.

    Returns
    -------
    dict of int to str
        For each thread what ends most of its sleeps, with the share of them; `nothing` for one that
        never sleeps.
    """
    steps = replay.program.filter(
        pl.col("tid").is_in(tids), pl.col("ends_by").is_not_null(), pl.col("op").cast(pl.String) != "spin"
    )
    op = pl.col("op").cast(pl.String)
    # What several put into a buffer, no one task ends the wait for; nor is it known who holds a lock, or
    # comes last to a barrier.
    several = (op == "take") & pl.col("partner_tid").is_null()
    ends_by = (
        pl.when(several)
        .then(pl.lit("several"))
        .when(op.is_in(["acquire", "contend"]))
        .then(pl.lit("lock"))
        .when(op == "barrier")
        .then(pl.lit("barrier"))
        .otherwise(pl.col("ends_by").cast(pl.String))
    )
    steps = steps.select("tid", ends_by.alias("ends_by"), "partner_tid")
    names = dict(replay.tasks.select("tid", pl.col("comm").cast(pl.String)).iter_rows())
    found = {}
    for tid in tids:
        of = steps.filter(pl.col("tid") == tid)
        if not of.height:
            found[tid] = "nothing"
            continue
        who = pl.when(pl.col("ends_by") == "dependency").then(pl.col("partner_tid"))
        rows = (
            of.group_by("ends_by", who.alias("who"))
            .len()
            .sort("len", "ends_by", "who", descending=[True, False, False])
        )
        said = []
        for i, (ends_by, partner, n) in enumerate(rows.head(2).iter_rows()):
            if i and n < SMALL * of.height:
                break
            if ends_by != "dependency":
                word = _WORDS.get(ends_by, ends_by)
            elif partner is None:
                word = "a wakeup that is not in the trace"
            else:
                word = f"{names.get(partner) or 'thread'}:{partner}"
            said.append(f"{word} ({100 * n / of.height:.0f} %)")
        both = ", ".join(said)
        found[tid] = both if len(both) <= WIDE else said[0]
    return found


def worst(recorded: Trace, replayed: Trace, most: int = 5) -> pl.DataFrame:
    """Name the tasks whose switches differ most between a recording and its replay.

    Parameters
    ----------
    recorded
        The recording.
    replayed
        Its replay under the policy that it was captured under.
    most
        How many at most.

    Returns
    -------
    pl.DataFrame
        One row per task that is further off than the tolerance of `switches`, the largest
        difference first: `tid` (Int64), `comm` (String), `switches_recorded`, `switches_replayed`
        (Int64: how often it left a CPU), `share_recorded`, `share_replayed` (Float64, percent of the CPU
        time of all tasks), `waits` (String: what ends most of its sleeps in the replay).

    Notes
    -----
    How it can mislead: a task that is far off may be so because of another, which it waits for or
    shares a CPU with.
    """
    rule = tolerances()["switches"]
    a, b = _by_task(recorded), _by_task(replayed)
    both = a.join(b.drop("comm"), on="tid", how="left", suffix="_replayed").fill_null(0)
    gap = (pl.col("switches_replayed") - pl.col("switches")).abs()
    allowed = pl.max_horizontal(pl.col("switches") * rule["relative"], pl.lit(rule.get("absolute", 0.0)))
    rows = both.filter(gap > allowed).sort(gap, "tid", descending=[True, False]).head(most)
    said = waits(replayed, rows["tid"].to_list())
    return rows.select(
        "tid",
        "comm",
        pl.col("switches").alias("switches_recorded"),
        "switches_replayed",
        pl.col("share").alias("share_recorded"),
        pl.col("share_replayed"),
        pl.col("tid").map_elements(said.get, return_dtype=pl.String).alias("waits"),
    ).cast(_SCHEMA)  # type: ignore[arg-type]
