"""Does the schedule keep its promises? Rules over records and intervals, and where they are broken."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from tracekit.analysis import _common as c
from tracekit.analysis._overlay import Ints, ints
from tracekit.analysis._queued import idle_windows, in_queue
from tracekit.analysis.automata import ONE_CPU, SLEEP_WAKEUP, Automaton
from tracekit.analysis.blame import Scene, decompose, spans_of_waits
from tracekit.analysis.completion import union

#: Longest time for which a CPU may be idle beside a task in its queue, or a task of a better
#: priority may wait behind a worse one: a quarter of the tick at 250 Hz. Sections that cannot be
#: preempted and wakeups of idle CPUs stay far below; a missed wakeup or balance lasts until the
#: next tick at least.
LIMIT_NS = 1_000_000

RULES = {
    "one-cpu": ONE_CPU.says,
    "sleep-wakeup": SLEEP_WAKEUP.says,
    "switch-chain": "who leaves a CPU is who entered it last",
    "no-copies": "no record is there twice",
    "time-order": "the time of a CPU does not go back",
    "wakeup-atomic": "a wakeup is made with interrupts or preemption off (kernel monitors wip, opid)",
    "switch-context": "no switch happens inside an interrupt (kernel monitor sco)",
    "work-conservation": "no CPU is idle while a task waits in its queue",
    "priority-order": "no real-time task waits behind a task of lower priority",
    "quota": "no group runs longer than its quota allows",
    "eevdf-lag": "no task gets ahead of its share, or falls behind, by more than one slice",
}
#: Periods over which the time of a group is held against its quota.
PERIODS = 10
#: What each CPU may have fetched of a quota and not used (kernel: sched_cfs_bandwidth_slice_us), and
#: how late a tick at 100 Hz finds that it is used up.
FETCHED_NS, TICK_NS = 5_000_000, 10_000_000
#: What the kernel leaves to other tasks of each second: what `sched_rt_runtime_us`, by default 950000, does
#: not allow real-time tasks (sched(7)), and what the fair server gives (kernel/sched/deadline.c, since 6.12).
RT_PERIOD_NS, RT_LEFT_NS = 1_000_000_000, 50_000_000
#: What can explain a broken rule.
EXPLANATIONS = {
    "loss": "records were lost in the window",
    "clock": "the clocks of two CPUs may disagree by as much",
    "quota": "the CPU was left by a task that could go on: a quota held the queue back",
    "throttling": "real-time tasks had the CPU for most of the second before, and the kernel leaves 50 ms of each"
    " to others",
    "recorder": "records of this kind are missing for the task throughout the capture, or the CPU's records"
    " begin later or end earlier than those of others",
}
#: So often must a kind of record be missing, without one exception, before the recorder is to blame.
NEVER = 3

VIOLATIONS = pl.Schema(
    {
        "rule": pl.String,
        "ts_ns": pl.Int64,
        "end_ns": pl.Int64,
        "cpu": pl.Int32,
        "tid": pl.Int64,
        "text": pl.String,
        "explained_by": pl.String,
    }
)


def _rows(found: pl.DataFrame, rule: str, text: pl.Expr) -> pl.DataFrame:
    with_end = found if "end_ns" in found.columns else found.with_columns(pl.col("ts_ns").alias("end_ns"))
    gap = pl.col("_gap") if "_gap" in found.columns else pl.lit(None)
    why = pl.col("_why") if "_why" in found.columns else pl.lit(None)
    return with_end.select(
        pl.lit(rule).alias("rule"),
        *("ts_ns", "end_ns", "cpu", "tid"),
        text.alias("text"),
        gap.cast(pl.Int64).alias("_gap"),
        why.cast(pl.String).alias("_why"),
    )


def _switches(events: pl.DataFrame) -> pl.DataFrame:
    kind = pl.col("kind").cast(pl.String)
    return events.filter((kind == "switch") & pl.col("cpu").is_not_null()).select(
        *("ts_ns", "seq", "cpu", "tid", "next_tid"), pl.col("state").cast(pl.String), "irq_flags"
    )


def _acts(events: pl.DataFrame) -> pl.DataFrame:
    """What happens to each task: `in`, `sleep`, `leave`, `end`, `off`, `wake`; by task and time."""
    switches = _switches(events)
    state = pl.col("state")
    left = (
        pl.when(state.is_in(["zombie", "dead"]))
        .then(pl.lit("end"))
        .when(state.is_in(list(c.READY)))
        .then(pl.lit("leave"))
        .when(state.is_null() | state.is_in(["unknown", "unknown_off"]))
        .then(pl.lit("off"))
        .otherwise(pl.lit("sleep"))
    )
    kind = pl.col("kind").cast(pl.String)
    names = ("ts_ns", "seq", "cpu", "tid")
    acts = pl.concat(
        [
            switches.select(*names, left.alias("act"), pl.lit(0).alias("_turn")),
            switches.select(
                *("ts_ns", "seq", "cpu"),
                pl.col("next_tid").alias("tid"),
                pl.lit("in").alias("act"),
                pl.lit(1).alias("_turn"),
            ),
            events.filter(kind.is_in(["waking", "wakeup", "wakeup_new"])).select(
                *names, pl.lit("wake").alias("act"), pl.lit(0).alias("_turn")
            ),
        ]
    )
    # Thread 0 is idle on every CPU at once.
    return acts.filter(pl.col("tid") > 0).sort("tid", "ts_ns", "seq", "_turn", maintain_order=True)


def _run(model: Automaton, acts: pl.DataFrame, event: pl.Expr) -> pl.DataFrame:
    number = {e: i for i, e in enumerate(model.events)}
    rows = acts.with_columns(event.alias("_event")).filter(pl.col("_event").is_in(list(number)))
    codes = rows["_event"].replace_strict(number, return_dtype=pl.Int64).to_numpy()
    (key,) = ints(rows, "tid")
    # How far the nearest record of the task on another CPU is: clocks that disagree by as much
    # explain a wrong order.
    gaps = [
        pl.when(pl.col("cpu").shift(n).over("tid") != pl.col("cpu")).then(
            (pl.col("ts_ns") - pl.col("ts_ns").shift(n).over("tid")).abs()
        )
        for n in (1, -1)
    ]
    return rows.with_columns(
        pl.col("ts_ns").shift(1).over("tid").alias("_before"),
        pl.col("cpu").shift(1).over("tid").alias("_from"),
        pl.min_horizontal(gaps).alias("_gap"),
    ).filter(pl.Series(model.violations(codes, key)))


def _of_tasks(events: pl.DataFrame, missing: pl.DataFrame) -> list[pl.DataFrame]:
    acts = _acts(events)
    missing = missing.filter(pl.col("_why").is_not_null())
    entering = pl.when(pl.col("act") == "in").then(pl.lit("in"))
    both = _run(ONE_CPU, acts, entering.when(pl.col("act") != "wake").then(pl.lit("out")))
    of_switch = missing.select("cpu", pl.col("end_ns").alias("ts_ns"), "_why").unique()
    both = both.join(of_switch, on=["cpu", "ts_ns"], how="left", maintain_order="left")
    twice = _rows(
        _at_edges(both, _switches(events)).with_columns(
            pl.col("_before").alias("ts_ns"), pl.col("ts_ns").alias("end_ns")
        ),
        "one-cpu",
        pl.when(pl.col("act") == "in")
        .then(
            pl.format(
                "thread {} enters CPU {} while it has CPU {}", "tid", "cpu", pl.col("_from").fill_null(-1)
            )
        )
        .otherwise(pl.format("thread {} leaves CPU {} without having entered it", "tid", "cpu")),
    )
    kinds = acts["act"]
    if not (kinds == "wake").any():
        return [twice]
    # Why it left is not known: it may have gone on without a wakeup.
    slept = _run(SLEEP_WAKEUP, acts, pl.col("act").replace("off", "leave"))
    # What is broken by entering or leaving twice has its own rule.
    slept = slept.filter(pl.col("act") == "in").filter(~pl.col("seq").is_in(both["seq"].implode()))
    woken = acts.filter(kinds == "wake")["tid"].unique()
    never = ~pl.col("tid").is_in(woken.implode()) & (pl.len().over("tid") >= NEVER)
    # A CPU whose idle thread records nothing does not record whom its interrupts wake, either.
    unobserved = _meets(slept["_before"], slept["ts_ns"], missing)
    slept = slept.with_columns(pl.when(never | unobserved).then(pl.lit("recorder")).alias("_why"))
    return [
        twice,
        _rows(
            slept,
            "sleep-wakeup",
            pl.format("thread {} runs on CPU {} without a wakeup since it slept", "tid", "cpu"),
        ),
    ]


def _at_edges(rows: pl.DataFrame, switches: pl.DataFrame) -> pl.DataFrame:
    """Put down to the recorder what is broken where the switches of a CPU begin or end.

    perf starts and stops its events CPU by CPU (tools/perf/util/evlist.c, evlist__enable and
    evlist__disable), and runs on each of them meanwhile.
    """
    edges = switches.group_by("cpu").agg(
        pl.col("ts_ns").min().alias("_begins"), pl.col("ts_ns").max().alias("_ends")
    )
    begins, ends = edges.select("cpu", "_begins"), edges.select(pl.col("cpu").alias("_from"), "_ends")
    enters = pl.col("act") == "in"
    unseen = (~enters & (pl.col("ts_ns") == pl.col("_begins"))) | (
        enters & (pl.col("_ends") <= pl.col("_before"))
    )
    return (
        rows.join(begins, on="cpu", how="left", maintain_order="left")
        .join(ends, on="_from", how="left", maintain_order="left")
        .with_columns(pl.when(unseen).then(pl.lit("recorder")).otherwise("_why").alias("_why"))
    )


def _meets(
    start: pl.Series, end: pl.Series, windows: pl.DataFrame, cpu: pl.Series | None = None
) -> pl.Series:
    """Whether each stretch of time meets one of the windows, of its CPU where that is given."""
    met = np.zeros(len(start), dtype=bool)
    since, until = start.fill_null(0).to_numpy(), end.to_numpy()
    for (number,), own in windows.group_by("cpu"):
        own = own.sort("end_ns")
        first, last = own["ts_ns"].to_numpy(), own["end_ns"].to_numpy()
        at = np.searchsorted(last, since, side="right")
        hit = (at < len(last)) & (first[np.minimum(at, len(last) - 1)] < until)
        met |= hit if cpu is None else hit & (cpu == number).fill_null(False).to_numpy()
    return pl.Series(met)


def _chain(events: pl.DataFrame) -> pl.DataFrame:
    """Switches whose task is not the one that entered last: the window since then, and why."""
    switches = _switches(events).sort("cpu", "seq", maintain_order=True)
    last = pl.col("next_tid").shift(1).over("cpu")
    leaves = (
        switches.select("cpu", pl.col("tid").alias("_last"))
        .unique()
        .with_columns(pl.lit(True).alias("_leaves"))
    )
    return (
        switches.with_columns(
            last.alias("_last"),
            pl.col("ts_ns").shift(1).over("cpu").alias("ts_ns"),
            pl.col("ts_ns").alias("end_ns"),
        )
        .filter(
            pl.col("tid").is_not_null() & pl.col("_last").is_not_null() & (pl.col("tid") != pl.col("_last"))
        )
        .join(leaves, on=["cpu", "_last"], how="left", maintain_order="left")
        .with_columns(
            pl.when(pl.col("_leaves").is_null() & (pl.len().over("cpu", "_last") >= NEVER))
            .then(pl.lit("recorder"))
            .alias("_why")
        )
    )


def _of_cpus(events: pl.DataFrame, chain: pl.DataFrame) -> list[pl.DataFrame]:
    same = ("ts_ns", "cpu", "kind", "tid", "next_tid", "target_cpu", "value", "name")
    rows = events.sort("cpu", "seq", maintain_order=True)
    copied = pl.all_horizontal([pl.col(n).eq_missing(pl.col(n).shift(1).over("cpu")) for n in same])
    copies = rows.filter(
        copied & pl.col("kind").cast(pl.String).is_in(["switch", "waking", "wakeup", "migrate"])
    )
    back = rows.with_columns(pl.col("ts_ns").shift(1).over("cpu").alias("_before")).filter(
        pl.col("ts_ns") < pl.col("_before")
    )
    return [
        _rows(
            chain,
            "switch-chain",
            pl.format("thread {} leaves CPU {}, which thread {} had entered", "tid", "cpu", "_last"),
        ),
        _rows(copies, "no-copies", pl.format("a {} record stands twice", pl.col("kind").cast(pl.String))),
        _rows(
            back,
            "time-order",
            pl.format("the time of CPU {} goes back by {} ns", "cpu", pl.col("_before") - pl.col("ts_ns")),
        ),
    ]


def _says_irqs_off(events: pl.DataFrame) -> bool:
    """Whether some record says that interrupts were off: a replay states interrupt context alone."""
    return bool(events.select((pl.col("irq_flags").cast(pl.UInt32) & 0b1 != 0).any()).item())


def _of_context(events: pl.DataFrame) -> list[pl.DataFrame]:
    """Rules about interrupts and preemption, where the source records them."""
    flags = pl.col("irq_flags").cast(pl.UInt32)
    known = events.filter(pl.col("irq_flags").is_not_null())
    kind = pl.col("kind").cast(pl.String)
    # Bit 0: interrupts off; bits 4 to 6: in an interrupt; from bit 8 on: how often preemption was disabled.
    free = known.filter(
        (kind == "waking") & (flags & 0b1 == 0) & (flags // 256 == 0) & (flags & 0b1110000 == 0)
    )
    if not _says_irqs_off(known):
        free = free.clear()
    inside = known.filter((kind == "switch") & (flags & 0b1010000 != 0))
    return [
        _rows(
            free, "wakeup-atomic", pl.format("thread {} is woken with interrupts and preemption on", "tid")
        ),
        _rows(inside, "switch-context", pl.format("thread {} leaves its CPU inside an interrupt", "tid")),
    ]


def _of_intervals(
    scene: Scene,
    tasks: pl.DataFrame,
    slices: pl.DataFrame,
    events: pl.DataFrame,
    chain: pl.DataFrame,
    rt_below: int | None,
    limit_ns: int,
) -> list[pl.DataFrame]:
    """Rules about who waits while who runs."""
    spans = spans_of_waits(scene.lines)
    pieces = decompose(spans, scene, 0).filter(pl.col("placed") & (pl.col("dur_ns") > limit_ns))
    tids = tasks.select(pl.col("utid").alias("on_utid"), "tid")
    rows = pieces.join(tids, on="on_utid", how="left", maintain_order="left").with_columns(
        (pl.col("ts_ns") + pl.col("dur_ns")).alias("end_ns")
    )
    rows = in_queue(rows.filter(pl.col("tid").is_not_null()), events)
    # Who had a CPU is not known where its switches contradict each other: that has its own rule.
    rows = rows.filter(~_meets(rows["ts_ns"], rows["end_ns"], chain, rows["cpu"]))
    rows = rows.with_columns((pl.col("end_ns") - pl.col("ts_ns")).alias("dur_ns")).filter(
        pl.col("dur_ns") > limit_ns
    )
    # Who is held back stays so until it runs, whoever else runs and sleeps meanwhile.
    held = pl.col("_quota").cum_max().over("span")
    idle = (
        idle_windows(rows.filter(pl.col("cause") == "dispatch"), events)
        .sort("span", "ts_ns")
        .with_columns(pl.when(held).then(pl.lit("quota")).alias("_why"))
    )
    found = [
        _rows(
            idle,
            "work-conservation",
            pl.format(
                "CPU {} is idle for {} us while thread {} waits in its queue; it recorded nothing for {} us",
                "cpu",
                pl.col("dur_ns") // 1000,
                "tid",
                pl.col("_silent_ns") // 1000,
            ),
        )
    ]
    if rt_below is None:
        return found
    # A priority that a lock lent it while it waited is not the one it waited with.
    ran = slices.filter(pl.col("prio").is_not_null()).select(
        pl.col("utid").alias("on_utid"), pl.col("ts_ns").alias("_ran"), pl.col("prio").alias("_runs_prio")
    )
    late = (
        rows.filter(pl.col("cause").is_in(["waiting", "preempted"]) & pl.col("prio").is_not_null())
        .sort("end_ns")
        .join_asof(
            ran.sort("_ran"),
            left_on="end_ns",
            right_on="_ran",
            by="on_utid",
            strategy="forward",
            check_sortedness=False,
        )
        .filter(pl.col("_runs_prio").is_not_null())
        .with_columns(pl.max_horizontal("_runs_prio", "_waits_prio").alias("_own"))
        .filter((pl.col("_own") < rt_below) & (pl.col("prio") > pl.col("_own")))
    )
    late = late.with_columns(
        pl.when(_throttled(late, slices, rt_below)).then(pl.lit("throttling")).alias("_why")
    )
    text = pl.format(
        "thread {} (priority {}) waits {} us on CPU {} while a task of priority {} runs",
        "tid",
        "_own",
        pl.col("dur_ns") // 1000,
        "cpu",
        "prio",
    )
    return [*found, _rows(late, "priority-order", text)]


def _throttled(late: pl.DataFrame, slices: pl.DataFrame, rt_below: int) -> pl.Series:
    """Which waits lie in the time that the kernel leaves to others behind a second of real-time tasks."""
    real = slices.filter(pl.col("cpu").is_not_null() & (pl.col("prio") < rt_below)).sort("ts_ns")
    found = np.zeros(late.height, dtype=np.bool_)
    for (cpu,), rows in late.with_row_index("_row").group_by("cpu"):
        since, until = ints(rows, "ts_ns", "end_ns")
        starts, ends = union(list(zip(since.tolist(), until.tolist(), strict=True)))
        at, length = ints(real.filter(pl.col("cpu") == cpu), "ts_ns", "dur_ns")
        # Sum of the slices that began before a moment; the last of them may go on behind it.
        sums = np.concatenate([[0], np.cumsum(length)])
        end = np.concatenate([[np.iinfo(np.int64).min], at + length])

        def had(moment: Ints, at: Ints = at, sums: Ints = sums, end: Ints = end) -> Ints:
            begun = np.searchsorted(at, moment, side="left")
            before: Ints = sums[begun] - np.maximum(end[begun] - moment, 0) * (begun > 0)
            return before

        # The second before may hold such a time of its own.
        full = had(starts) - had(starts - RT_PERIOD_NS) >= RT_PERIOD_NS - 2 * RT_LEFT_NS
        held = full & (ends - starts <= RT_LEFT_NS + TICK_NS)
        found[rows["_row"].to_numpy()] = held[np.searchsorted(starts, since, side="right") - 1]
    return pl.Series(found)


def _of_quotas(slices: pl.DataFrame, quotas: pl.DataFrame) -> pl.DataFrame:
    """Groups that ran longer in some `PERIODS` periods than a full quota and one refill in each allow."""
    found = []
    for (group, quota, period), members in quotas.group_by(
        "group", "quota_ns", "period_ns", maintain_order=True
    ):
        runs = slices.filter(
            pl.col("tid").is_in(members["tid"].implode()) & pl.col("cpu").is_not_null()
        ).sort("ts_ns")
        if not runs.height:
            continue
        start, length = ints(runs, "ts_ns", "dur_ns")
        width = PERIODS * period
        allowed = (PERIODS + 1) * quota + runs["cpu"].n_unique() * (FETCHED_NS + TICK_NS)
        # CPU time begun in the window: what is cut off at its end is left out.
        sums = np.concatenate([[0], np.cumsum(length)])
        last = np.searchsorted(start + length, start + width, side="right")
        used = np.maximum(sums[np.maximum(last, np.arange(len(start)))] - sums[:-1], 0)
        worst = int(np.argmax(used))
        if used[worst] > allowed:
            found.append((group, int(start[worst]), int(start[worst]) + width, int(used[worst]), allowed))
    names = {"group": pl.String, "ts_ns": pl.Int64, "end_ns": pl.Int64, "used": pl.Int64, "allowed": pl.Int64}
    rows = pl.DataFrame(found, schema=names, orient="row").with_columns(
        pl.lit(None, dtype=pl.Int32).alias("cpu"), pl.lit(None, dtype=pl.Int64).alias("tid")
    )
    text = pl.format(
        "group {} runs {} us in {} periods; its quota allows {} us",
        *("group", pl.col("used") // 1000, pl.lit(PERIODS), pl.col("allowed") // 1000),
    )
    return _rows(rows, "quota", text)


def violations(
    events: pl.DataFrame,
    slices: pl.DataFrame,
    tasks: pl.DataFrame,
    losses: pl.DataFrame,
    scene: Scene,
    rt_below: int | None = None,
    clock_error_ns: int = 0,
    limit_ns: int = LIMIT_NS,
    quotas: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """List where a schedule breaks a rule.

    Definition: the rules of `RULES`; automata over the records of each task, comparisons of
    neighbouring records of each CPU, and waits laid over who had the CPU.

    Parameters
    ----------
    events, slices, tasks, losses
        Tables of one trace, of all its tasks.
    scene
        From `tracekit.analysis.blame.scene`.
    rt_below
        Priorities below this number are real time, on a scale on which lower is better (100 on
        Linux); None leaves `priority-order` out.
    clock_error_ns
        By how much the clocks of two CPUs may disagree.
    limit_ns
        Shortest window that breaks `work-conservation` or `priority-order`.
    quotas
        `tid`, `group`, `quota_ns`, `period_ns`, a row for each group that a task is in; None
        leaves `quota` out.

    Returns
    -------
    pl.DataFrame
        By time: `rule` (String, a key of `RULES`), `ts_ns`, `end_ns` (Int64, the window, trace
        clock), `cpu` (Int32; null when the source has none), `tid` (Int64; null when no task is
        concerned), `text` (String), `explained_by` (String, a key of `EXPLANATIONS`; null where
        nothing explains it).

    Notes
    -----
    What is not checked: locks, deadlines, the lag of EEVDF, of which scheduler records show too
    little; rules whose records are missing (see `unchecked`). `quota` finds a group that runs
    longer than a full quota at the beginning, one refill in each of ten periods and what its CPUs
    may have fetched; a smaller excess stays below that. How it can mislead: a broken rule says that
    the records contradict it. A recorder that lost a record without saying so looks the same as a
    kernel that is wrong; a virtual machine that its host does not let run looks like an idle CPU,
    and records nothing meanwhile.
    """
    needs = (
        "ts_ns",
        "cpu",
        "seq",
        "kind",
        "tid",
        "next_tid",
        "state",
        "irq_flags",
        "target_cpu",
        "prio",
        "next_prio",
        "value",
        "name",
    )
    c.check_columns(events, "events", needs)
    chain = _chain(events)
    found = pl.concat(
        [
            *_of_tasks(events, chain),
            *_of_cpus(events, chain),
            *_of_context(events),
            *_of_intervals(scene, tasks, slices, events, chain, rt_below, limit_ns),
            *([] if quotas is None else [_of_quotas(slices, quotas)]),
        ]
    )
    return _explained(found, losses, clock_error_ns).sort(
        "ts_ns", "rule", "tid", nulls_last=True, maintain_order=True
    )


def _explained(found: pl.DataFrame, losses: pl.DataFrame, clock_error_ns: int) -> pl.DataFrame:
    """Violations with what could explain them."""
    lost = np.zeros(found.height, dtype=bool)
    start, end, cpu = ints(found, "ts_ns", "end_ns", "cpu")
    for where, since, until in losses.select("cpu", "ts_from_ns", "ts_to_ns").rows():
        touches = np.ones(found.height, dtype=bool)
        if since is not None:
            touches &= end >= since
        if until is not None:
            touches &= start <= until
        # A task may have been on the CPU that lost records: rules about tasks are explained by any.
        lost |= touches & (
            (cpu == (-1 if where is None else where))
            | (where is None)
            | (found["rule"] == "sleep-wakeup").to_numpy()
            | (found["rule"] == "one-cpu").to_numpy()
        )
    return (
        found.with_columns(
            pl.when(pl.Series(lost))
            .then(pl.lit("loss"))
            .when(pl.col("_gap") <= clock_error_ns)
            .then(pl.lit("clock"))
            .otherwise("_why")
            .alias("explained_by")
        )
        .drop("_gap", "_why")
        .cast(VIOLATIONS)
    )


def unchecked(
    events: pl.DataFrame, rt_below: int | None, quotas: pl.DataFrame | None = None
) -> Mapping[str, str]:
    """Rules for which the records are missing, and which.

    Parameters
    ----------
    events
        The `events` table.
    rt_below, quotas
        As in `violations`.

    Returns
    -------
    mapping of str to str
        Rule to reason.
    """
    kinds = set(events["kind"].unique().cast(pl.String).to_list())
    missing = {}
    if not kinds & {"waking", "wakeup"}:
        missing["sleep-wakeup"] = "no wakeups were recorded"
    if events["irq_flags"].null_count() == events.height:
        missing |= dict.fromkeys(("wakeup-atomic", "switch-context"), "no interrupt flags were recorded")
    elif not _says_irqs_off(events):
        missing["wakeup-atomic"] = "no record says that interrupts were off"
    if "switch" not in kinds:
        who_runs = ("one-cpu", "switch-chain", "work-conservation", "priority-order")
        missing |= dict.fromkeys(who_runs, "no switches were recorded")
    elif all(events[name].null_count() == events.height for name in ("prio", "next_prio")):
        missing["priority-order"] = "no priorities were recorded"
    if events.is_empty():
        missing |= dict.fromkeys(("no-copies", "time-order"), "the source has intervals, and no records")
    if rt_below is None:
        missing["priority-order"] = "the scale of priorities is not Linux's, or not recorded"
    if quotas is None:
        missing["quota"] = "no quota is known: the machine file beside the trace names none"
    missing["eevdf-lag"] = (
        "no record shows the virtual time of a queue, or the lag with which a task joins it"
    )
    return missing
