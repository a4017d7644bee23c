"""Where tasks run, and whose time it is.

Migrations, idle CPUs beside waiting tasks, interrupts, periods, lifetimes of processes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from tracekit import _core
from tracekit.analysis import _common as c
from tracekit.analysis.blame import Scene, decompose, spans_of_waits

#: Distances between two CPUs, nearest first.
DISTANCES = ("thread", "core", "cache", "node", "far")
#: Reasons for which a task changes its CPU.
REASONS = ("wakeup", "exec", "affinity", "balance")


def migrations(
    slices: pl.DataFrame, events: pl.DataFrame, topology: pl.DataFrame | None = None
) -> pl.DataFrame:
    """List every change of CPU, why, and how far.

    Definition: a slice on another CPU than the task's last slice. Reason: `wakeup` when the task
    was woken in between, `exec` within 1 ms of its exec record, `affinity` when a per-CPU stopper
    thread (`migration/N`) of the old CPU ran right before the move of a task that was running, else
    `balance`.

    Parameters
    ----------
    slices, events
        Tables of the trace.
    topology
        One row per CPU: `cpu`, and any of `core`, `cache`, `node`, `package` (Int64: equal numbers
        share it). Without it distances are not known.

    Returns
    -------
    pl.DataFrame
        By time: `ts_ns` (Int64, when it ran there, trace clock), `utid` (UInt32), `from_cpu`,
        `to_cpu` (Int32), `reason` (String, one of `REASONS`), `distance` (String: `thread` same
        core, `core` same cache, `cache` same node, `node` same package, `far`; null without
        topology), `sleep_ns` (Int64, how long it had slept; null when it did not).

    Notes
    -----
    How it can mislead: a task that was moved twice before it ran again counts once. `balance` is
    what is left when no record names another reason.
    """
    c.check_columns(slices, "slices", ("ts_ns", "cpu", "prev_cpu", "utid", "wake_ts_ns", "sleep_ns"))
    kind = pl.col("kind").cast(pl.String)
    execs = (
        events.filter(kind == "exec").select("tid", pl.col("ts_ns").alias("_exec")).drop_nulls().sort("_exec")
    )
    moved = (
        slices.filter((pl.col("prev_cpu") != pl.col("cpu")).fill_null(False))
        .sort("ts_ns", maintain_order=True)
        .join_asof(execs, left_on="ts_ns", right_on="_exec", by="tid", check_sortedness=False)
    )
    stopper = (
        slices.filter(pl.col("comm").cast(pl.String).str.contains(r"^migration/\d+$"))
        .select(pl.col("ts_ns").alias("_stopped"), pl.col("cpu").alias("prev_cpu"))
        .sort("_stopped")
    )
    moved = moved.join_asof(
        stopper, left_on="ts_ns", right_on="_stopped", by="prev_cpu", check_sortedness=False
    )
    reason = (
        pl.when(pl.col("wake_ts_ns").is_not_null())
        .then(pl.lit("wakeup"))
        .when(pl.col("ts_ns") - pl.col("_exec") < 1_000_000)
        .then(pl.lit("exec"))
        .when(pl.col("ts_ns") - pl.col("_stopped") <= pl.col("run_delay_ns"))
        .then(pl.lit("affinity"))
        .otherwise(pl.lit("balance"))
    )
    out = moved.select(
        "ts_ns",
        pl.col("utid").cast(pl.UInt32),
        pl.col("prev_cpu").alias("from_cpu"),
        pl.col("cpu").alias("to_cpu"),
        reason.alias("reason"),
        "sleep_ns",
    )
    return _with_distance(out, topology).select(
        "ts_ns", "utid", "from_cpu", "to_cpu", "reason", "distance", "sleep_ns"
    )


def _with_distance(moves: pl.DataFrame, topology: pl.DataFrame | None) -> pl.DataFrame:
    if topology is None:
        return moves.with_columns(pl.lit(None, dtype=pl.String).alias("distance"))
    levels = [n for n in ("core", "cache", "node", "package") if n in topology.columns]
    place = topology.select(pl.col("cpu").cast(pl.Int32), *levels)
    both = moves.join(
        place.rename({"cpu": "from_cpu", **{n: f"_a_{n}" for n in levels}}), on="from_cpu", how="left"
    ).join(place.rename({"cpu": "to_cpu", **{n: f"_b_{n}" for n in levels}}), on="to_cpu", how="left")
    words = dict(zip(("core", "cache", "node", "package"), DISTANCES, strict=False))
    known = pl.any_horizontal(
        [pl.col(f"_a_{n}").is_not_null() & pl.col(f"_b_{n}").is_not_null() for n in levels]
    )
    distance = pl.coalesce(
        *(pl.when(pl.col(f"_a_{n}") == pl.col(f"_b_{n}")).then(pl.lit(words[n])) for n in levels),
        pl.when(known).then(pl.lit("far")),
    )
    return both.with_columns(distance.alias("distance")).sort("ts_ns", maintain_order=True)


def idle_while_waiting(scene: Scene, tasks: pl.DataFrame, least_ns: int = 0) -> pl.DataFrame:
    """List the windows in which a CPU was idle while tasks waited for another one.

    Definition: parts of waits during which some other CPU had nothing to run. Source: `occupancy`.

    Parameters
    ----------
    scene
        From `tracekit.analysis.blame.scene`.
    tasks
        The `tasks` table.
    least_ns
        Shortest window that is listed.

    Returns
    -------
    pl.DataFrame
        By descending length: `ts_ns`, `dur_ns` (Int64), `idle_cpu` (Int32), `cpu` (Int32, whose
        queue it waited in), `tid` (Int64), `comm` (String), `own` (Boolean: the idle CPU is the one
        it waited for).

    Notes
    -----
    How it can mislead: affinities and quotas are not looked at: a task that may not run on the idle
    CPU, or not at all, is listed, too.
    """
    from tracekit.analysis._overlay import ints, overlay

    pieces = decompose(spans_of_waits(scene.lines), scene, 0).filter(pl.col("cpu").is_not_null())
    idle = scene.occupancy.filter(pl.col("who") == "idle")
    frames = []
    start, length = ints(pieces, "ts_ns", "dur_ns")
    zero = np.zeros(len(start), np.int64)
    for (cpu,), part in idle.group_by("cpu", maintain_order=True):
        first, last = ints(part, "start_ns", "end_ns")
        cut = overlay(zero, start, start + length, np.zeros(len(first), np.int64), first, last)
        inside = cut.cover >= 0
        frames.append(
            pieces[cut.piece[inside]].with_columns(
                pl.Series("ts_ns", cut.start[inside]),
                pl.Series("dur_ns", (cut.end - cut.start)[inside]),
                pl.lit(cpu, dtype=pl.Int32).alias("idle_cpu"),
            )
        )
    names = tasks.select(pl.col("utid").alias("on_utid"), "tid", pl.col("comm").cast(pl.String))
    found = (
        pl.concat(frames) if frames else pieces.clear().with_columns(idle_cpu=pl.lit(None, dtype=pl.Int32))
    )
    return (
        found.filter(pl.col("dur_ns") >= least_ns)
        .join(names, on="on_utid", how="left")
        .select(
            "ts_ns",
            "dur_ns",
            "idle_cpu",
            "cpu",
            "tid",
            "comm",
            (pl.col("idle_cpu") == pl.col("cpu")).alias("own"),
        )
        .sort(["dur_ns", "ts_ns"], descending=[True, False])
    )


def times(slices: pl.DataFrame, states: pl.DataFrame, names: pl.DataFrame, capacity_ns: int) -> pl.DataFrame:
    """Say whose the CPUs' time was, and who waited for it.

    Definition: run = sum of slices; wait = sum of states in which a task was ready to run and did
    not; share = run / capacity.

    Parameters
    ----------
    slices, states
        Tables of one trace.
    names
        `utid` and `group`.
    capacity_ns
        Length of the trace times its CPUs.

    Returns
    -------
    pl.DataFrame
        By run time, longest first: `group` (String), `tasks` (UInt32, that ran or waited), `slices`
        (UInt32), `run_ns` (Int64), `share` (Float64, 0 to 1), `wait_ns` (Int64).

    Notes
    -----
    How it can mislead: a task belongs to one group for the whole trace; the machine file states the
    group of the moment at which it was written. Idle time is nobody's: shares sum to less than 1.
    """
    group = names.select(pl.col("utid").cast(pl.UInt32), "group")
    ran = slices.select("utid", pl.lit(1).alias("slices"), pl.col("dur_ns").alias("run_ns"), wait_ns=0)
    ready = states.filter(pl.col("state").cast(pl.String).is_in(["runnable", "preempted", "yielding"]))
    waited = ready.select("utid", pl.lit(0).alias("slices"), pl.lit(0).alias("run_ns"), wait_ns="dur_ns")
    columns = (pl.col("slices").cast(pl.UInt32), *(pl.col(n).cast(pl.Int64) for n in ("run_ns", "wait_ns")))
    rows = pl.concat([part.select("utid", *columns) for part in (ran, waited)])
    return (
        rows.join(group, on="utid", how="left")
        .group_by("group")
        .agg(
            pl.col("utid").n_unique().cast(pl.UInt32).alias("tasks"),
            pl.col("slices").sum().cast(pl.UInt32),
            pl.col("run_ns", "wait_ns").sum(),
        )
        .with_columns((pl.col("run_ns") / max(capacity_ns, 1)).alias("share"))
        .select("group", "tasks", "slices", "run_ns", "share", "wait_ns")
        .sort(["run_ns", "group"], descending=[True, False])
    )


def imbalance(scene: Scene, start_ns: int, end_ns: int) -> pl.DataFrame:
    """Say how each CPU's time was used, and how uneven that is.

    Definition: busy share of a CPU = time with a task over the time of the trace; imbalance =
    largest busy share - mean.

    Parameters
    ----------
    scene
        From `tracekit.analysis.blame.scene`.
    start_ns, end_ns
        Of the trace.

    Returns
    -------
    pl.DataFrame
        By CPU: `cpu` (Int32), `busy_share`, `idle_share`, `hardirq_share`, `softirq_share`,
        `stolen_share`, `unknown_share` (Float64, of the trace; they sum to 1), `imbalance`
        (Float64, busy share less the mean over CPUs).

    Notes
    -----
    How it can mislead: interrupts count only where entry and exit were recorded; else they are in
    the task's time.
    """
    span = max(end_ns - start_ns, 1)
    wide = (
        scene.occupancy.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("_dur"))
        .group_by("cpu")
        .agg(
            *(
                (pl.col("_dur").filter(pl.col("who") == who).sum() / span).alias(f"{name}_share")
                for who, name in (
                    ("task", "busy"),
                    ("idle", "idle"),
                    ("hardirq", "hardirq"),
                    ("softirq", "softirq"),
                    ("stolen", "stolen"),
                    ("unknown", "unknown"),
                )
            )
        )
    )
    return wide.with_columns((pl.col("busy_share") - pl.col("busy_share").mean()).alias("imbalance")).sort(
        "cpu"
    )


def handlers(scene: Scene, names: pl.DataFrame) -> pl.DataFrame:
    """Sum the time of interrupts and softirqs by CPU and by the task that they hit.

    Definition: parts of `occupancy` in a handler, and the task that had the CPU under it.

    Parameters
    ----------
    scene
        From `tracekit.analysis.blame.scene`.
    names
        From `tracekit.analysis.blame.named`.

    Returns
    -------
    pl.DataFrame
        By descending time: `cpu` (Int32), `who` (String: `hardirq`, `softirq`, `stolen`), `name`
        (String; null when not recorded), `victim` (String, group of the task; `(idle)` on an idle
        CPU), `total_ns` (Int64), `n` (UInt32, parts), `mean_ns` (Float64).

    Notes
    -----
    What is not attributed: handlers of which only the entry was recorded.
    """
    rows = scene.occupancy.filter(pl.col("who").is_in(["hardirq", "softirq", "stolen"]))
    return (
        rows.join(names.select(pl.col("utid").cast(pl.UInt32), "group"), on="utid", how="left")
        .with_columns(
            (pl.col("end_ns") - pl.col("start_ns")).alias("_dur"),
            pl.col("group").fill_null("(idle)").alias("victim"),
        )
        .group_by("cpu", "who", "name", "victim")
        .agg(
            pl.col("_dur").sum().alias("total_ns"),
            pl.len().cast(pl.UInt32).alias("n"),
            pl.col("_dur").mean().alias("mean_ns"),
        )
        .sort(["total_ns", "cpu", "name"], descending=[True, False, False])
    )


def inversions(scene: Scene, slices: pl.DataFrame, names: pl.DataFrame, rt_below: int = 100) -> pl.DataFrame:
    """List candidates of priority inversion.

    A better task slept for one that itself waited behind a middling one.

    Definition: a sleep of task H that task L ended, with prio(L) worse than prio(H), during which L
    was ready to run while a task M with prio between them (or equal to L's) had its CPU. Source:
    wakers followed one step, `prio` of `slices`.

    Parameters
    ----------
    scene
        From `tracekit.analysis.blame.scene`.
    slices
        The `slices` table.
    names
        From `tracekit.analysis.blame.named`.
    rt_below
        Only sleeps of tasks with a priority number below it.

    Returns
    -------
    pl.DataFrame
        By descending time: `ts_ns`, `dur_ns` (Int64, the part in which M ran), `high`, `low`,
        `middle` (String, groups), `high_prio`, `low_prio`, `middle_prio` (Int32, on the source's
        scale), `via` (String, in what H slept; null when not recorded).

    Notes
    -----
    How it can mislead: a wakeup is no lock. Without lock records H may have waited for work that L
    had not even begun. Linux's threads that stop a CPU (`migration/N`, priority number 0) are left
    out: they sleep until somebody asks them to move a task, and take no lock.
    """
    name = pl.col("comm").cast(pl.String)
    stops_cpu = name.str.contains(r"^migration/\d+$") & (pl.col("prio") == 0)
    slices = slices.filter(~stops_cpu.fill_null(False))
    best = slices.group_by("utid").agg(pl.col("prio").min().alias("prio")).drop_nulls()
    prio = dict(best.select(pl.col("utid").cast(pl.UInt32), "prio").iter_rows())
    sleeps = scene.lines.states.filter(
        (pl.col("what") == "asleep") & pl.col("waker_utid").is_not_null()
    ).with_columns(
        pl.col("utid").replace_strict(prio, default=None, return_dtype=pl.Int32).alias("high_prio"),
        pl.col("waker_utid").replace_strict(prio, default=None, return_dtype=pl.Int32).alias("low_prio"),
    )
    sleeps = sleeps.filter(
        (pl.col("high_prio") < rt_below) & (pl.col("low_prio") > pl.col("high_prio"))
    ).with_row_index("span")
    spans = sleeps.select(pl.col("span").cast(pl.UInt32), "utid", "start_ns", "end_ns")
    pieces = decompose(spans, scene, 1).filter(
        (pl.col("depth") == 1) & pl.col("cause").is_in(["waiting", "preempted"])
    )
    group = dict(names.select("utid", "group").iter_rows())

    def called(column: str, name: str) -> pl.Expr:
        return pl.col(column).replace_strict(group, default="?", return_dtype=pl.String).alias(name)

    return (
        pieces.join(
            sleeps.select(pl.col("span").cast(pl.UInt32), "utid", "high_prio", "low_prio"),
            on="span",
            how="left",
        )
        .filter((pl.col("prio") > pl.col("high_prio")) & (pl.col("prio") <= pl.col("low_prio")))
        .select(
            *(
                "ts_ns",
                "dur_ns",
                called("utid", "high"),
                called("on_utid", "low"),
                called("culprit_utid", "middle"),
            ),
            *("high_prio", "low_prio", pl.col("prio").alias("middle_prio"), "via"),
        )
        .sort(["dur_ns", "ts_ns"], descending=[True, False])
    )


def periodic(
    slices: pl.DataFrame, names: pl.DataFrame, least: int = 20, regular: float = 0.25
) -> pl.DataFrame:
    """Find tasks that are woken at a steady period, with their jitter and misses.

    Definition: period = median distance of wakeups; release jitter = quantiles of (start of the
    slice - wakeup); a miss is a distance of more than 1.5 periods. A task is periodic when the
    middle half of its distances lies within `regular` of the median.

    Parameters
    ----------
    slices
        The `slices` table.
    names
        From `tracekit.analysis.blame.named`.
    least
        Fewest wakeups.
    regular
        Largest interquartile range of the distances, as a share of the median.

    Returns
    -------
    pl.DataFrame
        By group and task: `group` (String), `utid` (UInt32), `n` (UInt32, wakeups), `period_ns`
        (Float64), `period_iqr_ns` (Float64), `jitter_p50_ns`, `jitter_p95_ns`, `jitter_max_ns`
        (Int64, run delay behind the wakeup), `n_missed` (UInt32, distances beyond 1.5 periods),
        `longest_gap_ns` (Int64, between two wakeups), `longest_gap_at_ns` (Int64, when it ended,
        trace clock).

    Notes
    -----
    How it can mislead: a relative timer (sleep for 1 ms when done) gives a period that contains the
    run; its misses are not missed deadlines.
    """
    woken = (
        slices.filter(pl.col("wake_ts_ns").is_not_null())
        .sort("utid", "wake_ts_ns", maintain_order=True)
        .with_columns((pl.col("wake_ts_ns") - pl.col("wake_ts_ns").shift(1).over("utid")).alias("_gap"))
    )
    gap = pl.col("_gap")
    table = woken.group_by("utid").agg(
        pl.len().cast(pl.UInt32).alias("n"),
        gap.median().alias("period_ns"),
        (gap.quantile(0.75) - gap.quantile(0.25)).alias("period_iqr_ns"),
        pl.col("run_delay_ns").quantile(0.5, "lower").cast(pl.Int64).alias("jitter_p50_ns"),
        pl.col("run_delay_ns").quantile(0.95, "higher").cast(pl.Int64).alias("jitter_p95_ns"),
        pl.col("run_delay_ns").max().alias("jitter_max_ns"),
        (gap > 1.5 * gap.median()).sum().cast(pl.UInt32).alias("n_missed"),
        gap.max().alias("longest_gap_ns"),
        pl.col("wake_ts_ns").sort_by(gap, nulls_last=False).last().alias("longest_gap_at_ns"),
    )
    steady = (pl.col("n") >= least) & (pl.col("period_iqr_ns") <= regular * pl.col("period_ns"))
    return (
        table.filter(steady)
        .join(names, on="utid", how="left")
        .sort("group", "utid")
        .select("group", pl.col("utid").cast(pl.UInt32), pl.exclude("group", "utid"))
    )


def lives(tasks: pl.DataFrame, slices: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Give the life of each process that was made in the trace: fork to first run, exec, exit, reaped.

    Definition: fork = `start_ts_ns`; first run = its first slice; exit = `end_ts_ns`; reaped = the
    `free` record of its thread.

    Parameters
    ----------
    tasks, slices, events
        Tables of the trace.

    Returns
    -------
    pl.DataFrame
        By fork: `utid` (UInt32), `tid` (Int64), `comm` (String), `fork_ts_ns` (Int64),
        `first_run_ns`, `exec_ns`, `exit_ns`, `reaped_ns` (Int64, since the fork; null when not
        seen), `run_ns` (Int64), `alive` (UInt32, tasks made in the trace that had not ended at that
        moment, itself included).
    """
    kind = pl.col("kind").cast(pl.String)
    first = slices.group_by("utid").agg(pl.col("ts_ns").min().alias("_first"))
    made = (
        tasks.filter(pl.col("start_ts_ns").is_not_null() & ~pl.col("is_idle"))
        .join(first, on="utid", how="left")
        .sort("start_ts_ns")
    )
    for name, what in (("_exec", "exec"), ("_free", "free")):
        rows = events.filter(kind == what).select("tid", pl.col("ts_ns").alias(name)).drop_nulls().sort(name)
        made = made.join_asof(
            rows, left_on="start_ts_ns", right_on=name, by="tid", strategy="forward", check_sortedness=False
        )
    begun = made["start_ts_ns"].to_numpy()
    ended = np.sort(made["end_ts_ns"].drop_nulls().to_numpy())
    alive = np.arange(1, len(begun) + 1) - np.searchsorted(ended, begun, side="right")
    return made.select(
        *("utid", "tid", pl.col("comm").cast(pl.String), pl.col("start_ts_ns").alias("fork_ts_ns")),
        *(
            (pl.col(n) - pl.col("start_ts_ns")).alias(out)
            for n, out in (
                ("_first", "first_run_ns"),
                ("_exec", "exec_ns"),
                ("end_ts_ns", "exit_ns"),
                ("_free", "reaped_ns"),
            )
        ),
        "run_ns",
        pl.Series("alive", alive, dtype=pl.UInt32),
    )


def cost_of_life(found: pl.DataFrame, column: str = "first_run_ns", classes: int = 6) -> pl.DataFrame:
    """Give a cost of process lives against the number of live processes.

    Definition: means over classes of `alive` with equally many lives, with a 95 % interval from Student's t.

    Parameters
    ----------
    found
        From `lives`.
    column
        Which cost.
    classes
        How many classes at most; at least five lives each.

    Returns
    -------
    pl.DataFrame
        By `alive`: `alive_from`, `alive_to` (UInt32), `n` (UInt32), `mean_ns`, `lo_ns`, `hi_ns`
        (Float64; bounds null below five lives).
    """
    rows = found.filter(pl.col(column).is_not_null()).sort("alive")
    if not rows.height:
        names: Mapping[str, type[pl.DataType]] = {
            "alive_from": pl.UInt32,
            "alive_to": pl.UInt32,
            "n": pl.UInt32,
            "mean_ns": pl.Float64,
            "lo_ns": pl.Float64,
            "hi_ns": pl.Float64,
        }
        return pl.DataFrame(schema=names)
    count = max(1, min(classes, rows.height // 5))
    # Lives beside as many others stand in one class.
    rows = rows.with_columns(
        ((pl.col("alive").rank("min") - 1).cast(pl.Int64) * count // pl.len()).alias("_class")
    )
    table = rows.group_by("_class", maintain_order=True).agg(
        pl.col("alive").min().alias("alive_from"),
        pl.col("alive").max().alias("alive_to"),
        pl.len().cast(pl.UInt32).alias("n"),
        pl.col(column).mean().alias("mean_ns"),
        (pl.col(column).std() / pl.len().sqrt()).alias("_se"),
    )
    t = pl.Series([_core.t_quantile(max(n - 1, 1), 0.95) for n in table["n"]], dtype=pl.Float64)
    half = pl.when(pl.col("n") >= 5).then(pl.col("_se") * t)
    return table.with_columns(
        (pl.col("mean_ns") - half).alias("lo_ns"), (pl.col("mean_ns") + half).alias("hi_ns")
    ).select("alive_from", "alive_to", "n", "mean_ns", "lo_ns", "hi_ns")
