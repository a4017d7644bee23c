"""Who had each CPU, and when: tasks, interrupts, softirqs, idle.

The one table that the attributions rest on: each CPU's time, cut into intervals without gap or overlap.
"""

from __future__ import annotations

import polars as pl

from tracekit.analysis import _common as c
from tracekit.analysis._overlay import Ints, ints, overlay

#: What can have a CPU.
WHO = ("task", "hardirq", "softirq", "stolen", "idle", "unknown")

_SCHEMA = pl.Schema(
    {
        "cpu": pl.Int32,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "who": pl.String,
        "utid": pl.UInt32,
        "prio": pl.Int32,
        "name": pl.String,
    }
)
_HANDLER = pl.Schema(
    {"start_ns": pl.Int64, "end_ns": pl.Int64, "cpu": pl.Int32, "who": pl.String, "name": pl.String}
)


def _paired(events: pl.DataFrame, who: str, begins: pl.Expr, ends: pl.Expr, name: pl.Expr) -> pl.DataFrame:
    """Intervals from a begin to the next record of its class on its CPU.

    Only where that is an end that can be its own.
    """
    number = pl.col("value").cast(pl.Int64)
    rows = (
        events.filter(begins | ends)
        .select("ts_ns", "cpu", name.alias("name"), number.alias("_number"), begins.alias("_begin"))
        .sort("cpu", "ts_ns", maintain_order=True)
    )

    def after(column: str) -> pl.Expr:
        return pl.col(column).shift(-1).over("cpu")

    # The exit of an interrupt has its number and not its name.
    other = (after("_number") != pl.col("_number")).fill_null(False)
    return (
        rows.with_columns(after("ts_ns").alias("end_ns"), (~after("_begin") & ~other).alias("_own"))
        .filter(pl.col("_begin") & pl.col("_own").fill_null(False))
        .select(pl.col("ts_ns").alias("start_ns"), "end_ns", "cpu", pl.lit(who).alias("who"), "name")
    )


def interrupts(events: pl.DataFrame) -> pl.DataFrame:
    """List the interrupt and softirq handlers whose beginning and end were both recorded.

    Definition: from an entry record to the next record of the same class on the same CPU, when that
    is an exit of the same number. Source: `irq_entry` / `irq_exit`, `softirq_entry` /
    `softirq_exit`, and records of other names that end in `_entry` and `_exit` (the vectors of
    x86). `vcpu_preempt`: from the record until the next one of that CPU.

    Parameters
    ----------
    events
        The `events` table.

    Returns
    -------
    pl.DataFrame
        By CPU and time: `start_ns`, `end_ns` (Int64, trace clock), `cpu` (Int32), `who` (String,
        `hardirq`, `softirq` or `stolen`), `name` (String, of the handler; null when not recorded).

    Notes
    -----
    What is not attributed: a handler whose exit was not recorded has no row, and its time stays
    with the task that it interrupted. `stolen` is an upper bound: the virtual CPU ran again before
    its next record.
    """
    c.check_columns(events, "events", ("ts_ns", "cpu", "kind", "name", "value"))
    kind, name = pl.col("kind").cast(pl.String), pl.col("name").cast(pl.String)
    hard_in = (kind == "irq_entry") | ((kind == "other") & name.str.ends_with("_entry").fill_null(False))
    hard_out = (kind == "irq_exit") | ((kind == "other") & name.str.ends_with("_exit").fill_null(False))
    vector = pl.when(kind == "other").then(name.str.replace(r"_(entry|exit)$", "")).otherwise(name)
    # An expired timer is inside the timer's interrupt, not a handler beside it.
    outer = events.filter(
        kind.is_in(["irq_entry", "irq_exit", "softirq_entry", "softirq_exit", "other"])
        & ~name.str.contains("hrtimer|timer_expire").fill_null(False)
    )
    found = [
        _paired(outer, "hardirq", hard_in, hard_out, vector.fill_null("irq")),
        _paired(outer, "softirq", kind == "softirq_entry", kind == "softirq_exit", name.fill_null("softirq")),
    ]
    stolen = (
        events.select("ts_ns", "cpu", kind.alias("kind"))
        .sort("cpu", "ts_ns", maintain_order=True)
        .with_columns(pl.col("ts_ns").shift(-1).over("cpu").alias("end_ns"))
        .filter((pl.col("kind") == "vcpu_preempt") & pl.col("end_ns").is_not_null())
        .select(
            pl.col("ts_ns").alias("start_ns"),
            "end_ns",
            "cpu",
            pl.lit("stolen").alias("who"),
            name=pl.lit(None),
        )
    )
    rows = pl.concat([f.cast(_HANDLER) for f in [*found, stolen]])
    return rows.filter(pl.col("cpu").is_not_null()).sort("cpu", "start_ns", maintain_order=True)


def _layered(handlers: pl.DataFrame) -> pl.DataFrame:
    """Handlers without overlap: a hardware interrupt inside a softirq takes its time from it."""
    top = handlers.filter(pl.col("who") == "stolen")
    for who in ("hardirq", "softirq"):
        below = handlers.filter(pl.col("who") == who)
        cut = overlay(*ints(below, "cpu", "start_ns", "end_ns"), *ints(top, "cpu", "start_ns", "end_ns"))
        free = cut.cover == -1
        rest = below[cut.piece[free]].with_columns(
            pl.Series("start_ns", cut.start[free]), pl.Series("end_ns", cut.end[free])
        )
        top = pl.concat([top, rest])
    return top.sort("cpu", "start_ns", maintain_order=True)


def _idle(runqueue: pl.DataFrame, end_ns: int) -> pl.DataFrame:
    """When each CPU is known to run nothing but idle."""
    steps = runqueue.filter(pl.col("cpu").is_not_null()).sort("cpu", "ts_ns", maintain_order=True)
    return (
        steps.with_columns(pl.col("ts_ns").shift(-1).over("cpu").fill_null(end_ns).alias("end_ns"))
        .filter((pl.col("nr_running") == 0) & ~c.has(c.CROSSES_LOSS) & (pl.col("end_ns") > pl.col("ts_ns")))
        .select("cpu", pl.col("ts_ns").alias("start_ns"), "end_ns")
    )


def occupancy(
    slices: pl.DataFrame, runqueue: pl.DataFrame, events: pl.DataFrame, start_ns: int, end_ns: int
) -> pl.DataFrame:
    """Say who had each CPU, and when.

    Definition: at each moment of a CPU the innermost of hypervisor, interrupt, softirq, task, idle.
    Source: `interrupts`, then `slices`, then `runqueue` rows that say that nothing runs; the rest
    is `unknown`.

    Parameters
    ----------
    slices, runqueue, events
        Tables of the same trace, of all its tasks.
    start_ns, end_ns
        Of the trace.

    Returns
    -------
    pl.DataFrame
        By CPU and time, without gap or overlap: `cpu` (Int32), `start_ns`, `end_ns` (Int64, trace
        clock), `who` (String, one of `WHO`), `utid` (UInt32, the task that has the CPU, also under
        an interrupt; null when none does), `prio` (Int32, of that task, on the source's scale; null
        when not recorded), `name` (String, of the interrupt or softirq; null for the rest).

    Notes
    -----
    How it can mislead: what a switch costs belongs to the task that enters. An idle CPU that a
    hypervisor took away looks idle.
    """
    c.check_columns(slices, "slices", ("ts_ns", "dur_ns", "cpu", "utid", "prio"))
    c.check_columns(runqueue, "runqueue", ("ts_ns", "cpu", "nr_running", "flags"))
    on_cpu = slices.filter(pl.col("cpu").is_not_null()).select(
        "cpu",
        pl.col("ts_ns").alias("start_ns"),
        (pl.col("ts_ns") + pl.col("dur_ns")).alias("end_ns"),
        pl.lit("task").alias("who"),
        "utid",
        "prio",
    )
    idle = _idle(runqueue, end_ns).select(
        *("cpu", "start_ns", "end_ns"),
        pl.lit("idle").alias("who"),
        pl.lit(None, dtype=pl.UInt32).alias("utid"),
        pl.lit(None, dtype=pl.Int32).alias("prio"),
    )
    # A task's slice beats what the queue's estimate says of the same moment.
    span = on_cpu.select("cpu").unique().vstack(idle.select("cpu").unique()).unique().sort("cpu")
    whole = span.with_columns(pl.lit(start_ns).alias("start_ns"), pl.lit(end_ns).alias("end_ns"))
    base = _fill(_fill(whole, on_cpu), idle)
    handlers = _layered(interrupts(events))
    if not handlers.height:
        return base.with_columns(pl.lit(None, dtype=pl.String).alias("name")).cast(_SCHEMA)
    cut = overlay(*ints(base, "cpu", "start_ns", "end_ns"), *ints(handlers, "cpu", "start_ns", "end_ns"))
    over = handlers.select(pl.col("who").alias("_who"), "name")
    above = _taken(over, cut.cover)
    return (
        base[cut.piece]
        .with_columns(pl.Series("start_ns", cut.start), pl.Series("end_ns", cut.end))
        .hstack(above)
        .with_columns(pl.coalesce("_who", "who").alias("who"))
        .select(list(_SCHEMA))
        .cast(_SCHEMA)
    )


def _taken(frame: pl.DataFrame, rows: Ints) -> pl.DataFrame:
    """Rows of `frame` by number; all null for -1."""
    at = pl.Series("_at", rows, dtype=pl.Int64)
    index = at.to_frame().select(pl.when(pl.col("_at") >= 0).then(pl.col("_at")))["_at"]
    return frame.select(pl.all().gather(index)) if frame.height else _nulls(frame, len(at))


def _nulls(frame: pl.DataFrame, height: int) -> pl.DataFrame:
    columns = [pl.Series(n, [None], dtype=t).new_from_index(0, height) for n, t in frame.schema.items()]
    return pl.DataFrame(columns)


def _fill(under: pl.DataFrame, over: pl.DataFrame) -> pl.DataFrame:
    """`under` cut by `over`; where `under` already says who, it stays."""
    if "who" not in under.columns:
        under = under.with_columns(
            pl.lit("unknown").alias("who"),
            pl.lit(None, dtype=pl.UInt32).alias("utid"),
            pl.lit(None, dtype=pl.Int32).alias("prio"),
        )
    cut = overlay(*ints(under, "cpu", "start_ns", "end_ns"), *ints(over, "cpu", "start_ns", "end_ns"))
    names = ("who", "utid", "prio")
    above = _taken(over.select(pl.col(n).alias(f"_{n}") for n in names), cut.cover)
    free = pl.col("who") == "unknown"
    return (
        under[cut.piece]
        .with_columns(pl.Series("start_ns", cut.start), pl.Series("end_ns", cut.end))
        .hstack(above)
        .select(
            *("cpu", "start_ns", "end_ns"),
            *(
                pl.when(free & pl.col("_who").is_not_null())
                .then(pl.col(f"_{n}"))
                .otherwise(pl.col(n))
                .alias(n)
                for n in names
            ),
        )
    )
