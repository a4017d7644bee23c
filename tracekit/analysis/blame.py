"""Who delayed whom: the exact decomposition of responses, waits and windows.

Every nanosecond of a span has one cause: the task ran; it waited while a named task, interrupt or
nobody had the CPU; it was throttled; it slept, and then what its waker did meanwhile counts. The
parts of a span sum to its length exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from tracekit.analysis import _common as c
from tracekit.analysis._overlay import ints, overlay
from tracekit.analysis.critical_path import MAX_DEPTH, Timelines, follow, timelines
from tracekit.analysis.occupancy import occupancy

#: Where time can go, and what each word means.
CAUSES = {
    "running": "the task itself was running",
    "awaited": "asleep until another task woke it, and that one (or its waker in turn) was running",
    "waiting": "woken and waiting for a CPU that another task had",
    "preempted": "preempted, and waiting for a CPU that another task had",
    "yielded": "gave up its CPU and waiting for one that another task had",
    "interrupt": "a hardware interrupt handler had the CPU that it ran on or waited for",
    "softirq": "a softirq handler had that CPU",
    "dispatch": "ready to run while its CPU was idle: the wakeup was on its way",
    "throttled": "held back by a quota",
    "stolen": "a hypervisor had taken the CPU",
    "asleep": "asleep until a timer, a device, or a wakeup that is not explained",
    "ended": "the task had ended",
    "unknown": "not known: records are missing, or nothing is recorded of the CPU",
}
#: Causes in which the task was ready to run and did not.
WAITS = ("waiting", "preempted", "yielded", "dispatch")

PIECES = pl.Schema(
    {
        "span": pl.UInt32,
        "depth": pl.UInt32,
        "on_utid": pl.UInt32,
        "ts_ns": pl.Int64,
        "dur_ns": pl.Int64,
        "cause": pl.String,
        "culprit_utid": pl.UInt32,
        "name": pl.String,
        "via": pl.String,
        "cpu": pl.Int32,
        "prio": pl.Int32,
        "placed": pl.Boolean,
    }
)


class Scene(NamedTuple):
    """A trace made ready for attribution; from `scene`.

    Attributes
    ----------
    lines
        States of all tasks, with what ended each sleep.
    occupancy
        Who had each CPU, and when.
    """

    lines: Timelines
    occupancy: pl.DataFrame


def scene(
    slices: pl.DataFrame,
    states: pl.DataFrame,
    runqueue: pl.DataFrame,
    events: pl.DataFrame,
    start_ns: int,
    end_ns: int,
) -> Scene:
    """Make a trace ready for attribution.

    Parameters
    ----------
    slices, states, runqueue, events
        Tables of one trace, of **all** its tasks: culprits are found among them.
    start_ns, end_ns
        Of the trace.

    Returns
    -------
    Scene
        To be passed to `decompose`, any number of times.
    """
    return Scene(timelines(states, slices, events), occupancy(slices, runqueue, events, start_ns, end_ns))


def spans_of_responses(responses: pl.DataFrame) -> pl.DataFrame:
    """Responses as spans.

    Parameters
    ----------
    responses
        From `tracekit.analysis.response.samples`.

    Returns
    -------
    pl.DataFrame
        `span` (UInt32), `utid` (UInt32), `start_ns`, `end_ns` (Int64, trace clock), `censored`
        (Boolean: went on when the trace ended). Responses of which start or end is not known have
        no row.
    """
    known = responses.filter(pl.col("response_ns").is_not_null() & (pl.col("status") != "unreliable"))
    return known.select(
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("span"),
        pl.col("utid").cast(pl.UInt32),
        pl.col("wake_ts_ns").alias("start_ns"),
        (pl.col("wake_ts_ns") + pl.col("response_ns")).alias("end_ns"),
        "censored",
    )


def spans_of_waits(lines: Timelines, utids: pl.Series | None = None) -> pl.DataFrame:
    """Waits for a CPU as spans: from runnable until running, moves between queues included.

    Parameters
    ----------
    lines
        From `scene`.
    utids
        Whose waits; everybody's by default.

    Returns
    -------
    pl.DataFrame
        As `spans_of_responses`.
    """
    rows = lines.states
    if utids is not None:
        rows = rows.filter(pl.col("utid").is_in(utids.cast(pl.UInt32).implode()))
    new = (pl.col("what") != pl.col("what").shift(1).over("utid")).fill_null(True)
    return (
        rows.with_columns(new.cum_sum().alias("_run"), pl.col("what").shift(-1).over("utid").alias("_next"))
        .filter(pl.col("what") == "ready")
        .group_by("_run", maintain_order=True)
        .agg(
            pl.first("utid"),
            pl.first("start_ns"),
            pl.last("end_ns"),
            pl.last("_next").is_null().alias("censored"),
        )
        .select(pl.int_range(pl.len(), dtype=pl.UInt32).alias("span"), pl.exclude("_run"))
    )


def spans_of_window(
    lines: Timelines, start_ns: int, end_ns: int, utids: pl.Series | None = None
) -> pl.DataFrame:
    """One span per task: the part of a window between its first and last state.

    Parameters
    ----------
    lines
        From `scene`.
    start_ns, end_ns
        The window, trace clock.
    utids
        Which tasks; all by default.

    Returns
    -------
    pl.DataFrame
        As `spans_of_responses`; `censored` is false.
    """
    rows = lines.states
    if utids is not None:
        rows = rows.filter(pl.col("utid").is_in(utids.cast(pl.UInt32).implode()))
    return (
        rows.filter(
            (pl.col("what") != "ended") & (pl.col("end_ns") > start_ns) & (pl.col("start_ns") < end_ns)
        )
        .group_by("utid")
        .agg(
            pl.max_horizontal(pl.col("start_ns").min(), pl.lit(start_ns)).alias("start_ns"),
            pl.min_horizontal(pl.col("end_ns").max(), pl.lit(end_ns)).alias("end_ns"),
        )
        .sort("utid")
        .select(
            pl.int_range(pl.len(), dtype=pl.UInt32).alias("span"),
            "utid",
            "start_ns",
            "end_ns",
            censored=pl.lit(False),
        )
    )


def decompose(spans: pl.DataFrame, scene: Scene, depth: int = MAX_DEPTH) -> pl.DataFrame:
    """Cut spans into parts, each with its cause and its culprit.

    Definition: the states of the span's task (and of its wakers, where it slept) laid over who had
    the CPU meanwhile. For every span, sum of `dur_ns` = `end_ns` - `start_ns`, exactly.

    Parameters
    ----------
    spans
        `span`, `utid`, `start_ns`, `end_ns`, as `spans_of_responses` gives them.
    scene
        From `scene`, of the whole trace.
    depth
        Wakers followed backwards; 0 for none.

    Returns
    -------
    pl.DataFrame
        One row per part, by span and time: `span` (UInt32), `depth` (UInt32, wakers between the
        span's task and this part), `on_utid` (UInt32, the task whose state this is), `ts_ns`,
        `dur_ns` (Int64), `cause` (String, a key of `CAUSES`), `culprit_utid` (UInt32: who had the
        CPU while it waited; who was running while it was awaited; null for the other causes),
        `name` (String: of the interrupt or softirq; of what ended a sleep; null for the rest),
        `via` (String, system call, lock or wait channel in which the span's task slept then; null
        when awake or not recorded), `cpu` (Int32; null asleep), `prio` (Int32, of the culprit then,
        on the source's scale), `placed` (Boolean, false where the queue was not recorded and the
        CPU it ran on next stands in).

    Notes
    -----
    What is not attributed: locks inside a running task (spinning), caches, memory, frequency.
    Waiting behind a task is not that task's fault by itself: whether the response would be better
    without it is what a replay can test.
    """
    c.check_columns(spans, "spans", ("span", "utid", "start_ns", "end_ns"))
    parts = follow(spans, scene.lines, depth)
    states = scene.lines.states
    rows = parts.with_columns(
        *(
            _gather(states[n], parts["row"]).alias(n)
            for n in ("what", "role", "cpu", "placed", "waker_utid", "waker")
        ),
        _gather(states["via"], parts["slept"]).alias("via"),
    ).with_columns(pl.col("what").fill_null("unknown"))
    pieces = [
        _waits(rows.filter(pl.col("what") == "ready"), scene.occupancy),
        _runs(rows.filter(pl.col("what") == "running"), scene.occupancy),
        _rest(rows.filter(~pl.col("what").is_in(["ready", "running"]))),
    ]
    return pl.concat(pieces).sort("span", "ts_ns", maintain_order=True)


def _gather(column: pl.Series, rows: pl.Series) -> pl.Series:
    """Values by row number; null for -1."""
    frame = pl.DataFrame({"at": rows}).select(pl.when(pl.col("at") >= 0).then(pl.col("at")))
    if not len(column):
        return pl.Series(column.name, [None], dtype=column.dtype).new_from_index(0, len(rows))
    return column.gather(frame["at"])


def _cut(rows: pl.DataFrame, over: pl.DataFrame) -> pl.DataFrame:
    """Rows cut by what had their CPU, whose columns begin with `_`."""
    cut = overlay(*ints(rows, "cpu", "start_ns", "end_ns"), *ints(over, "cpu", "start_ns", "end_ns"))
    at = pl.Series(cut.cover)
    return (
        rows[cut.piece]
        .with_columns(
            pl.Series("ts_ns", cut.start),
            pl.Series("dur_ns", cut.end - cut.start),
            *(_gather(over[n], at).alias(f"_{n}") for n in ("who", "utid", "prio", "name")),
        )
        .with_columns(pl.col("_who").fill_null("unknown"))
    )


def _shaped(rows: pl.DataFrame, **columns: pl.Expr) -> pl.DataFrame:
    null = {n: pl.lit(None, dtype=t) for n, t in PIECES.items() if n not in rows.columns or n in columns}
    return rows.with_columns(**{**null, **columns}).select(list(PIECES)).cast(PIECES)


def _waits(rows: pl.DataFrame, occupancy: pl.DataFrame) -> pl.DataFrame:
    """Parts in which the task was ready to run: who had the CPU that it waited for."""
    cut = _cut(rows, occupancy)
    by_task = (pl.col("_who") == "task") & (pl.col("_utid") != pl.col("on_utid"))
    cause = (
        pl.when(by_task)
        .then(pl.col("role"))
        .when(pl.col("_who") == "hardirq")
        .then(pl.lit("interrupt"))
        .when(pl.col("_who").is_in(["softirq", "stolen"]))
        .then(pl.col("_who"))
        .when(pl.col("_who") == "idle")
        .then(pl.lit("dispatch"))
        .otherwise(pl.lit("unknown"))
    )
    return _shaped(
        cut,
        cause=cause,
        culprit_utid=pl.when(by_task).then(pl.col("_utid")),
        prio=pl.when(by_task).then(pl.col("_prio")),
        name=pl.col("_name"),
    )


def _runs(rows: pl.DataFrame, occupancy: pl.DataFrame) -> pl.DataFrame:
    """Parts in which the task, or the one it slept for, had the CPU: interrupts distinguished."""
    handlers = occupancy.filter(pl.col("who").is_in(["hardirq", "softirq", "stolen"]))
    cut = _cut(rows, handlers)
    own = pl.col("depth") == 0
    cause = (
        pl.when(pl.col("_who") == "hardirq")
        .then(pl.lit("interrupt"))
        .when(pl.col("_who").is_in(["softirq", "stolen"]))
        .then(pl.col("_who"))
        .when(own)
        .then(pl.lit("running"))
        .otherwise(pl.lit("awaited"))
    )
    awaited = ~own & (pl.col("_who") == "unknown")
    return _shaped(
        cut, cause=cause, culprit_utid=pl.when(awaited).then(pl.col("on_utid")), name=pl.col("_name")
    )


def _rest(rows: pl.DataFrame) -> pl.DataFrame:
    """Parts in which the task neither ran nor was ready to run."""
    return _shaped(
        rows.with_columns(
            pl.col("start_ns").alias("ts_ns"), (pl.col("end_ns") - pl.col("start_ns")).alias("dur_ns")
        ),
        cause=pl.col("what"),
        culprit_utid=pl.col("waker_utid"),
        name=pl.when(pl.col("what") == "asleep").then(pl.col("waker")),
    )


def named(tasks: pl.DataFrame, by: str = "group") -> pl.DataFrame:
    """What to call each task.

    Parameters
    ----------
    tasks
        The `tasks` table.
    by
        Grouping, see `tracekit.analysis.GROUPINGS`.

    Returns
    -------
    pl.DataFrame
        `utid` (UInt32) and `group` (String; `?` when the name is not known).
    """
    known = tasks.select("utid", c.group_of(by)).unique("utid", keep="last", maintain_order=True)
    return known.with_columns(pl.col("group").fill_null("?"))


def labelled(pieces: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """Pieces with the names of their tasks.

    Parameters
    ----------
    pieces
        From `decompose`.
    names
        From `named`.

    Returns
    -------
    pl.DataFrame
        With `culprit` (String: group of the task; `irq NAME`, `softirq NAME`, `timer`, ...; null
        for `running`) and `on` (String: group of the task that waited, where it is not the span's
        own; else null).
    """
    culprits = names.select(pl.col("utid").alias("culprit_utid"), pl.col("group").alias("_culprit"))
    on = names.select(pl.col("utid").alias("on_utid"), pl.col("group").alias("_on"))
    known = pieces.join(culprits, on="culprit_utid", how="left", maintain_order="left").join(
        on, on="on_utid", how="left", maintain_order="left"
    )
    handler = (
        pl.when(pl.col("cause") == "interrupt")
        .then(pl.concat_str(pl.lit("irq "), pl.col("name").fill_null("?")))
        .when(pl.col("cause") == "softirq")
        .then(pl.concat_str(pl.lit("softirq "), pl.col("name").fill_null("?")))
        .otherwise(pl.col("name"))
    )
    return known.with_columns(
        pl.coalesce("_culprit", handler).alias("culprit"),
        pl.when((pl.col("depth") > 0) & (pl.col("cause") != "awaited")).then(pl.col("_on")).alias("on"),
    ).drop("_culprit", "_on")


def tail_of(spans: pl.DataFrame, q: float | None) -> pl.Series:
    """Which spans are the slow ones.

    Parameters
    ----------
    spans
        From `spans_of_responses`.
    q
        Quantile; None for all spans.

    Returns
    -------
    pl.Series
        Numbers of the spans whose length is at least that quantile of the complete ones; all of
        them where a sample of that size has no such quantile.
    """
    lengths = (spans["end_ns"] - spans["start_ns"]).filter(~spans["censored"]).sort()
    if q is None or not c.enough_for(q, len(lengths)):
        return spans["span"]
    least = lengths[c.rank_of(q, len(lengths))]
    return spans.filter(pl.col("end_ns") - pl.col("start_ns") >= least)["span"]


def table(spans: pl.DataFrame, pieces: pl.DataFrame, tail: pl.Series | None = None) -> pl.DataFrame:
    """Sum pieces by cause and culprit.

    Parameters
    ----------
    spans
        What was decomposed.
    pieces
        From `labelled`.
    tail
        Numbers of the slow spans, from `tail_of`.

    Returns
    -------
    pl.DataFrame
        By descending share of the tail: `cause`, `culprit` (String; null for running), `on`
        (String, the task that waited, where it is one that the span's own task slept for), `via`
        (String), `cpu` (String, CPUs on which, at most four), `prio` (String, range of the
        culprit's priorities; null when not recorded), `total_ns` (Int64), `share` (Float64, of the
        time of all spans), `tail_share` (Float64, of the time of the slow ones), `mean_ns`
        (Float64, per span), `n_spans` (UInt32, spans that have such a part), `n` (UInt32, parts).
        The shares sum to 1.
    """
    slow = spans["span"] if tail is None else tail
    whole = int((spans["end_ns"] - spans["start_ns"]).sum())
    of_tail = spans.filter(pl.col("span").is_in(slow.implode()))
    tail_ns = int((of_tail["end_ns"] - of_tail["start_ns"]).sum())
    in_tail = pl.col("span").is_in(slow.implode())
    low, high = pl.col("prio").min(), pl.col("prio").max()
    prio = (
        pl.when(low == high)
        .then(low.cast(pl.String))
        .otherwise(pl.concat_str(low.cast(pl.String), pl.lit(".."), high.cast(pl.String)))
    )
    cpus = pl.col("cpu").drop_nulls().unique().sort()
    return (
        pieces.group_by("cause", "culprit", "on", "via")
        .agg(
            pl.when(cpus.len() <= 4)
            .then(cpus.cast(pl.String).str.join(","))
            .otherwise(pl.concat_str(cpus.len().cast(pl.String), pl.lit(" CPUs")))
            .alias("cpu"),
            prio.alias("prio"),
            pl.col("dur_ns").sum().alias("total_ns"),
            pl.col("dur_ns").filter(in_tail).sum().alias("_tail"),
            pl.col("span").n_unique().cast(pl.UInt32).alias("n_spans"),
            pl.len().cast(pl.UInt32).alias("n"),
        )
        .with_columns(
            (pl.col("total_ns") / max(whole, 1)).alias("share"),
            (pl.col("_tail") / max(tail_ns, 1)).alias("tail_share"),
            (pl.col("total_ns") / max(spans.height, 1)).alias("mean_ns"),
            pl.when(pl.col("cpu") != "").then(pl.col("cpu")).alias("cpu"),
        )
        .sort(["tail_share", "total_ns", "cause", "culprit"], descending=[True, True, False, False])
        .select(
            *("cause", "culprit", "on", "via", "cpu", "prio", "total_ns", "share", "tail_share"),
            *("mean_ns", "n_spans", "n"),
        )
    )


def worst(spans: pl.DataFrame, pieces: pl.DataFrame, names: pl.DataFrame, top: int = 10) -> pl.DataFrame:
    """List the longest spans with what took most of each.

    Parameters
    ----------
    spans
        What was decomposed.
    pieces
        From `labelled`.
    names
        From `named`.
    top
        How many.

    Returns
    -------
    pl.DataFrame
        By descending length: `task` (String), `start_ts_ns`, `end_ts_ns` (Int64, trace clock),
        `span_ns` (Int64), `run_ns` (Int64, its own time on CPUs), `cause`, `culprit` (String, the
        largest part that is not its own running), `part_ns` (Int64), `share` (Float64, of the
        span), `censored` (Boolean).
    """
    longest = (
        spans.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("span_ns"))
        .sort(["span_ns", "start_ns"], descending=[True, False])
        .head(top)
        .join(
            names.select("utid", pl.col("group").alias("task")), on="utid", how="left", maintain_order="left"
        )
    )
    inside = pieces.filter(pl.col("span").is_in(longest["span"].implode()))
    own = (
        inside.filter(pl.col("cause") == "running")
        .group_by("span")
        .agg(pl.col("dur_ns").sum().alias("run_ns"))
    )
    largest = (
        inside.filter(pl.col("cause") != "running")
        .group_by("span", "cause", "culprit")
        .agg(pl.col("dur_ns").sum().alias("part_ns"))
        .sort(["part_ns", "cause", "culprit"], descending=[True, False, False])
        .unique("span", keep="first", maintain_order=True)
    )
    return (
        longest.join(own, on="span", how="left", maintain_order="left")
        .join(largest, on="span", how="left", maintain_order="left")
        .select(
            "task",
            pl.col("start_ns").alias("start_ts_ns"),
            pl.col("end_ns").alias("end_ts_ns"),
            *("span_ns", pl.col("run_ns").fill_null(0), "cause", "culprit", "part_ns"),
            (pl.col("part_ns") / pl.col("span_ns")).alias("share"),
            "censored",
        )
    )


def check_sums(spans: pl.DataFrame, pieces: pl.DataFrame) -> int:
    """Largest difference between a span and the sum of its parts, ns; 0 by construction.

    Parameters
    ----------
    spans, pieces
        What was decomposed, and the result.

    Returns
    -------
    int
        ns.
    """
    total = np.zeros(int(spans["span"].max() or 0) + 1 if spans.height else 1, dtype=np.int64)  # type: ignore[arg-type]
    np.add.at(total, pieces["span"].to_numpy(), pieces["dur_ns"].to_numpy())
    (span, start, end) = ints(spans, "span", "start_ns", "end_ns")
    return int(np.abs(total[span] - np.maximum(end - start, 0)).max(initial=0))
