"""Who delays whom, over all tasks: waits, preemptions, and what they cost.

One row a pair of victim and culprit, by group of tasks: how long the one waited while the other had
its CPU, how often the other took the CPU from it, and how short the slices are that it cuts.
"""

from __future__ import annotations

import polars as pl

from tracekit.analysis import _common as c
from tracekit.analysis.blame import Scene, decompose, labelled, spans_of_waits


def preemptions(slices: pl.DataFrame) -> pl.DataFrame:
    """List every time that a task was preempted by another one.

    Definition: a slice that ended in an involuntary switch, and the slice that the same switch began. Source:
    `involuntary`, `seq_out` and `seq_in` of `slices`.

    Parameters
    ----------
    slices
        The `slices` table, of all tasks.

    Returns
    -------
    pl.DataFrame
        By time: `ts_ns` (Int64, of the switch, trace clock), `cpu` (Int32), `utid` (UInt32, who had
        to leave), `slice_ns` (Int64, how long it had run; null where its slice began before the
        trace), `culprit_utid` (UInt32, who entered; null for idle), `woken` (Boolean: the one that
        entered had just been woken, not been waiting since it was preempted itself), `waker_utid`
        (UInt32, who had woken it; null otherwise), `prio`, `culprit_prio` (Int32, on the source's
        scale; null when not recorded).

    Notes
    -----
    How it can mislead: where a source does not distinguish a yield from a preemption, a yield counts as one.
    """
    needs = (
        "ts_ns",
        "dur_ns",
        "cpu",
        "utid",
        "prio",
        "involuntary",
        "wake_ts_ns",
        "waker_utid",
        "seq_in",
        "seq_out",
    )
    c.check_columns(slices, "slices", needs)
    entered = slices.filter(pl.col("seq_in").is_not_null()).select(
        pl.col("seq_in").alias("seq_out"),
        "cpu",
        pl.col("utid").alias("culprit_utid"),
        pl.col("wake_ts_ns").is_not_null().alias("woken"),
        "waker_utid",
        pl.col("prio").alias("culprit_prio"),
    )
    left = slices.filter(pl.col("involuntary").fill_null(False)).select(
        (pl.col("ts_ns") + pl.col("dur_ns")).alias("ts_ns"),
        *("cpu", "utid"),
        pl.when(~c.has(c.OPEN_START)).then(pl.col("dur_ns")).alias("slice_ns"),
        *("prio", "seq_out"),
    )
    return (
        left.join(entered.unique(["seq_out", "cpu"]), on=["seq_out", "cpu"], how="left")
        .sort("ts_ns", maintain_order=True)
        .select(
            *("ts_ns", "cpu", "utid", "slice_ns", "culprit_utid", "woken", "waker_utid"),
            *("prio", "culprit_prio"),
        )
    )


def matrix(slices: pl.DataFrame, scene: Scene, names: pl.DataFrame, span_ns: int) -> pl.DataFrame:
    """Sum waits and preemptions by victim and culprit.

    Definition: wait(v, k) = time that tasks of v were ready to run while a task of k had the CPU
    that they waited for. Source: `decompose` of all waits, and `preemptions`.

    Parameters
    ----------
    slices
        The `slices` table, of all tasks.
    scene
        From `tracekit.analysis.blame.scene`.
    names
        From `tracekit.analysis.blame.named`: what to call each task.
    span_ns
        Length of the trace.

    Returns
    -------
    pl.DataFrame
        By descending wait: `victim`, `culprit` (String; also `irq NAME`, `softirq NAME`;
        `(no task)` for idle and unknown time), `wait_ns` (Int64), `share` (Float64, of all waits of
        the victim), `n_waits` (UInt32, waits with such a part), `n_cuts` (UInt32, times that the
        culprit took the CPU from the victim), `cuts_per_s` (Float64), `n_woken_cuts` (UInt32, those
        right after a wakeup of the culprit), `slice_cut_mean_ns` (Float64, slices of the victim
        that the culprit cut; null without any), `slice_other_mean_ns` (Float64, its other slices
        that ended in an involuntary switch; null without any).

    Notes
    -----
    How it can mislead: the task that has the CPU need not be the one to blame: it may be the
    scheduler's turn to choose, and removing one culprit lets another take its place. Waits whose
    queue was not recorded count where the task ran next.
    """
    spans = spans_of_waits(scene.lines)
    pieces = labelled(decompose(spans, scene, 0), names)
    victims = spans.select("span", "utid").join(
        names.select("utid", pl.col("group").alias("victim")), on="utid", how="left"
    )
    waits = (
        pieces.join(victims.select("span", "victim"), on="span", how="left")
        .with_columns(pl.col("culprit").fill_null("(no task)"))
        .group_by("victim", "culprit")
        .agg(
            pl.col("dur_ns").sum().alias("wait_ns"),
            pl.col("span").n_unique().cast(pl.UInt32).alias("n_waits"),
        )
    )
    group = dict(names.select("utid", "group").iter_rows())
    cuts = preemptions(slices).filter(pl.col("culprit_utid").is_not_null())
    cuts = cuts.with_columns(
        pl.col("utid").replace_strict(group, default="?", return_dtype=pl.String).alias("victim"),
        pl.col("culprit_utid").replace_strict(group, default="?", return_dtype=pl.String).alias("culprit"),
    )
    of_all = cuts.group_by("victim").agg(
        pl.col("slice_ns").sum().alias("_sum"), pl.col("slice_ns").count().alias("_n")
    )
    by_pair = cuts.group_by("victim", "culprit").agg(
        pl.len().cast(pl.UInt32).alias("n_cuts"),
        pl.col("woken").sum().cast(pl.UInt32).alias("n_woken_cuts"),
        pl.col("slice_ns").mean().alias("slice_cut_mean_ns"),
        pl.col("slice_ns").sum().alias("_own_sum"),
        pl.col("slice_ns").count().alias("_own_n"),
    )
    others = pl.col("_n") - pl.col("_own_n")
    return (
        waits.join(by_pair, on=["victim", "culprit"], how="full", coalesce=True)
        .join(of_all, on="victim", how="left")
        .with_columns(
            pl.col("wait_ns").fill_null(0),
            *(pl.col(n).fill_null(0) for n in ("n_waits", "n_cuts", "n_woken_cuts")),
        )
        .with_columns(
            (pl.col("wait_ns") / pl.col("wait_ns").sum().over("victim").clip(lower_bound=1)).alias("share"),
            (pl.col("n_cuts") / (max(span_ns, 1) / 1e9)).alias("cuts_per_s"),
            pl.when(others > 0)
            .then((pl.col("_sum") - pl.col("_own_sum")) / others)
            .alias("slice_other_mean_ns"),
        )
        .sort(["wait_ns", "n_cuts", "victim", "culprit"], descending=[True, True, False, False])
        .select(
            *("victim", "culprit", "wait_ns", "share", "n_waits", "n_cuts", "cuts_per_s", "n_woken_cuts"),
            *("slice_cut_mean_ns", "slice_other_mean_ns"),
        )
    )


def wakers(slices: pl.DataFrame, names: pl.DataFrame, span_ns: int) -> pl.DataFrame:
    """Say who wakes whom, how often, and whose slices that cuts.

    Definition: a wakeup is a slice with `wake_ts_ns`; it cuts a slice when its task takes the CPU
    from another one at once, by an involuntary switch (`preemptions`).

    Parameters
    ----------
    slices
        The `slices` table, of all tasks.
    names
        From `tracekit.analysis.blame.named`.
    span_ns
        Length of the trace.

    Returns
    -------
    pl.DataFrame
        By descending cuts: `waker` (String; `(interrupt)` in interrupt context, `(not recorded)`
        otherwise without a waker), `woken` (String), `n` (UInt32, wakeups), `per_s` (Float64),
        `n_cuts` (UInt32, slices that they cut), `cut_of` (String, whose slices, most often first,
        at most three), `slice_cut_mean_ns` (Float64, how long those slices had run; null without
        any).
    """
    c.check_columns(slices, "slices", ("utid", "wake_ts_ns", "waker_utid", "seq_in", "flags"))
    group = dict(names.select("utid", "group").iter_rows())

    def called(column: str) -> pl.Expr:
        return pl.col(column).replace_strict(group, default="?", return_dtype=pl.String)

    waker = (
        pl.when(pl.col("waker_utid").is_not_null())
        .then(called("waker_utid"))
        .when(c.has(c.IRQ_WAKEUP))
        .then(pl.lit("(interrupt)"))
        .otherwise(pl.lit("(not recorded)"))
    )
    cut = slices.filter(pl.col("involuntary").fill_null(False)).select(
        pl.col("seq_out").alias("seq_in"),
        "cpu",
        called("utid").alias("_cut"),
        pl.when(~c.has(c.OPEN_START)).then(pl.col("dur_ns")).alias("_slice"),
    )
    rows = (
        slices.filter(pl.col("wake_ts_ns").is_not_null())
        .select("seq_in", "cpu", waker.alias("waker"), called("utid").alias("woken"))
        .join(cut.unique(["seq_in", "cpu"]), on=["seq_in", "cpu"], how="left")
    )
    most = pl.col("_cut").drop_nulls().value_counts(sort=True).struct.field("_cut").head(3).str.join(", ")
    return (
        rows.group_by("waker", "woken")
        .agg(
            pl.len().cast(pl.UInt32).alias("n"),
            (pl.len() / (max(span_ns, 1) / 1e9)).alias("per_s"),
            pl.col("_cut").count().cast(pl.UInt32).alias("n_cuts"),
            most.alias("cut_of"),
            pl.col("_slice").mean().alias("slice_cut_mean_ns"),
        )
        .with_columns(pl.when(pl.col("cut_of") != "").then(pl.col("cut_of")).alias("cut_of"))
        .sort(["n_cuts", "n", "waker", "woken"], descending=[True, True, False, False])
    )
