"""Does the schedule keep its promises? Rules over records and intervals, and where they are broken."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from tracekit.analysis import _common as c
from tracekit.analysis._overlay import ints
from tracekit.analysis.automata import ONE_CPU, SLEEP_WAKEUP, Automaton
from tracekit.analysis.blame import Scene, decompose, spans_of_waits

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
}
#: Rules that need intervals instead of records.
OF_INTERVALS = ("work-conservation", "priority-order")

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
    return with_end.select(
        pl.lit(rule).alias("rule"),
        *("ts_ns", "end_ns", "cpu", "tid"),
        text.alias("text"),
        gap.cast(pl.Int64).alias("_gap"),
    )


def _switches(events: pl.DataFrame) -> pl.DataFrame:
    kind = pl.col("kind").cast(pl.String)
    return events.filter((kind == "switch") & pl.col("cpu").is_not_null()).select(
        *("ts_ns", "seq", "cpu", "tid", "next_tid"), pl.col("state").cast(pl.String), "irq_flags"
    )


def _acts(events: pl.DataFrame) -> pl.DataFrame:
    """What happens to each task: `in`, `sleep`, `leave`, `end`, `wake`; by task and time."""
    switches = _switches(events)
    state = pl.col("state")
    left = (
        pl.when(state.is_in(["zombie", "dead"]))
        .then(pl.lit("end"))
        .when(state.is_in(list(c.READY)))
        .then(pl.lit("leave"))
        .when(state.is_null() | state.is_in(["unknown", "unknown_off"]))
        .then(pl.lit(None, dtype=pl.String))
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


def _of_tasks(events: pl.DataFrame) -> list[pl.DataFrame]:
    acts = _acts(events)
    entering = pl.when(pl.col("act") == "in").then(pl.lit("in"))
    both = _run(ONE_CPU, acts, entering.when(pl.col("act") != "wake").then(pl.lit("out")))
    twice = _rows(
        both.with_columns(pl.col("_before").alias("ts_ns"), pl.col("ts_ns").alias("end_ns")),
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
    slept = _run(SLEEP_WAKEUP, acts, pl.col("act"))
    # What is broken by entering or leaving twice has its own rule.
    slept = slept.filter(pl.col("act") == "in").filter(~pl.col("seq").is_in(both["seq"].implode()))
    return [
        twice,
        _rows(
            slept,
            "sleep-wakeup",
            pl.format("thread {} runs on CPU {} without a wakeup since it slept", "tid", "cpu"),
        ),
    ]


def _of_cpus(events: pl.DataFrame) -> list[pl.DataFrame]:
    switches = _switches(events).sort("cpu", "seq", maintain_order=True)
    last = pl.col("next_tid").shift(1).over("cpu")
    chain = switches.with_columns(
        last.alias("_last"), pl.col("ts_ns").shift(1).over("cpu").alias("_before")
    ).filter(pl.col("tid").is_not_null() & pl.col("_last").is_not_null() & (pl.col("tid") != pl.col("_last")))
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
            chain.with_columns(pl.col("_before").alias("ts_ns"), pl.col("ts_ns").alias("end_ns")),
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
    scene: Scene, tasks: pl.DataFrame, slices: pl.DataFrame, rt_below: int | None, limit_ns: int
) -> list[pl.DataFrame]:
    """Rules about who waits while who runs."""
    spans = spans_of_waits(scene.lines)
    pieces = decompose(spans, scene, 0).filter(pl.col("placed"))
    tids = tasks.select(pl.col("utid").alias("on_utid"), "tid")
    rows = pieces.join(tids, on="on_utid", how="left", maintain_order="left").with_columns(
        (pl.col("ts_ns") + pl.col("dur_ns")).alias("end_ns")
    )
    idle = rows.filter((pl.col("cause") == "dispatch") & (pl.col("dur_ns") > limit_ns))
    found = [
        _rows(
            idle,
            "work-conservation",
            pl.format(
                "CPU {} is idle for {} us while thread {} waits in its queue",
                "cpu",
                pl.col("dur_ns") // 1000,
                "tid",
            ),
        )
    ]
    if rt_below is None:
        return found
    # The priority with which it comes to run is the one it waited with.
    ran = slices.filter(pl.col("prio").is_not_null()).select(
        pl.col("utid").alias("on_utid"), pl.col("ts_ns").alias("_ran"), pl.col("prio").alias("_own")
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
        .filter(
            (pl.col("_own") < rt_below) & (pl.col("prio") > pl.col("_own")) & (pl.col("dur_ns") > limit_ns)
        )
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


def violations(
    events: pl.DataFrame,
    slices: pl.DataFrame,
    tasks: pl.DataFrame,
    losses: pl.DataFrame,
    scene: Scene,
    rt_below: int | None = None,
    clock_error_ns: int = 0,
    limit_ns: int = LIMIT_NS,
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

    Returns
    -------
    pl.DataFrame
        By time: `rule` (String, a key of `RULES`), `ts_ns`, `end_ns` (Int64, the window, trace
        clock), `cpu` (Int32; null when the source has none), `tid` (Int64; null when no task is
        concerned), `text` (String), `explained_by` (String: `loss` where records were lost in the
        window, `clock` where the clocks of two CPUs may disagree by as much; null where neither
        explains it).

    Notes
    -----
    What is not checked: locks, deadlines, the lag of EEVDF and quotas, of which scheduler records
    show too little; rules whose records are missing (see `unchecked`). How it can mislead: a broken
    rule says that the records contradict it. A recorder that lost a record without saying so looks
    the same as a kernel that is wrong.
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
        "value",
        "name",
    )
    c.check_columns(events, "events", needs)
    found = pl.concat(
        [
            *_of_tasks(events),
            *_of_cpus(events),
            *_of_context(events),
            *_of_intervals(scene, tasks, slices, rt_below, limit_ns),
        ]
    )
    return _explained(found, losses, clock_error_ns).sort(
        "ts_ns", "rule", "tid", nulls_last=True, maintain_order=True
    )


def _explained(found: pl.DataFrame, losses: pl.DataFrame, clock_error_ns: int) -> pl.DataFrame:
    """Violations that a loss or the clocks could explain, marked so."""
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
            .alias("explained_by")
        )
        .drop("_gap")
        .cast(VIOLATIONS)
    )


def unchecked(events: pl.DataFrame, rt_below: int | None) -> Mapping[str, str]:
    """Rules for which the records are missing, and which.

    Parameters
    ----------
    events
        The `events` table.
    rt_below
        As in `violations`.

    Returns
    -------
    mapping of str to str
        Rule to reason.
    """
    kinds = set(events["kind"].cast(pl.String).unique().to_list())
    missing = {}
    if not kinds & {"waking", "wakeup"}:
        missing["sleep-wakeup"] = "no wakeups were recorded"
    if events["irq_flags"].null_count() == events.height:
        missing |= dict.fromkeys(("wakeup-atomic", "switch-context"), "no interrupt flags were recorded")
    elif not _says_irqs_off(events):
        missing["wakeup-atomic"] = "no record says that interrupts were off"
    if "switch" not in kinds:
        missing |= dict.fromkeys(("one-cpu", "switch-chain"), "no switches were recorded")
    if rt_below is None:
        missing["priority-order"] = "the scale of priorities is not Linux's, or not recorded"
    return missing
