"""Writes traces as LISA's Parquet: one file per Linux event, with the event's own field names.

LISA's `trace-dump parquet` makes such folders out of trace.dat files, with ``meta.json`` beside the
Parquet files. Here they come from any format. Columns are ``common_ts`` (uint64, ns),
``common_cpu`` (uint32), ``common_pid`` (int32, the running thread) and the fields of the Linux
event; what the source did not say is null. States are numbers as Linux 4.14 and later has them.
Times stay as recorded, so two records can have one time.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tracekit.errors import OutputError
from tracekit.export.files import refuse_full
from tracekit.export.tables import Tables
from tracekit.paths import check_name
from tracekit.perfetto.states import NOT_STATED, STATE_BITS

__all__ = ["LisaExport", "write_lisa"]

BATCH = 1 << 18
ROW_GROUP = 1 << 20
#: Clocks that never run backwards, for which LISA trusts the order of rows.
MONOTONE = frozenset({"local", "global", "uptime", "x86-tsc", "tsc", "mono", "mono_raw", "counter", "boot"})

_TEXT, _I32, _U32, _I64, _U64 = pl.String, pl.Int32, pl.UInt32, pl.Int64, pl.UInt64
Fields = dict[str, tuple[str, type[pl.DataType]]]

_TASK: Fields = {"comm": ("comm", _TEXT), "pid": ("tid", _I32)}
_PRIO: Fields = {**_TASK, "prio": ("prio", _I32)}
_WOKEN: Fields = {**_PRIO, "target_cpu": ("target_cpu", _I32)}
_DELAY: Fields = {**_TASK, "delay": ("value", _U64)}
_VECTOR: Fields = {"vec": ("value", _U32)}
_POWER: Fields = {"state": ("value", _U32), "cpu_id": ("target_cpu", _U32)}

#: kind -> name of the Linux event, and its fields: name -> (column of `events`, type).
EVENTS: dict[str, tuple[str, Fields]] = {
    "switch": (
        "sched_switch",
        {
            "prev_comm": ("comm", _TEXT),
            "prev_pid": ("tid", _I32),
            "prev_prio": ("prio", _I32),
            "prev_state": ("state", _I64),
            "next_comm": ("next_comm", _TEXT),
            "next_pid": ("next_tid", _I32),
            "next_prio": ("next_prio", _I32),
        },
    ),
    "waking": ("sched_waking", _WOKEN),
    "wakeup": ("sched_wakeup", _WOKEN),
    "wakeup_new": ("sched_wakeup_new", _WOKEN),
    "migrate": (
        "sched_migrate_task",
        {**_PRIO, "orig_cpu": ("orig_cpu", _I32), "dest_cpu": ("target_cpu", _I32)},
    ),
    "fork": (
        "sched_process_fork",
        {
            "parent_comm": ("ctx_comm", _TEXT),
            "parent_pid": ("ctx_tid", _I32),
            "child_comm": ("comm", _TEXT),
            "child_pid": ("tid", _I32),
        },
    ),
    "exec": (
        "sched_process_exec",
        {"filename": ("name", _TEXT), "pid": ("tid", _I32), "old_pid": ("value", _I32)},
    ),
    "exit": ("sched_process_exit", _PRIO),
    "free": ("sched_process_free", _PRIO),
    "wait": ("sched_process_wait", _PRIO),
    "comm": ("task_rename", {"pid": ("tid", _I32), "newcomm": ("comm", _TEXT)}),
    "prio": ("sched_pi_setprio", {**_TASK, "oldprio": ("prio", _I32), "newprio": ("value", _I32)}),
    "stat_wait": ("sched_stat_wait", _DELAY),
    "stat_sleep": ("sched_stat_sleep", _DELAY),
    "stat_blocked": ("sched_stat_blocked", _DELAY),
    "stat_iowait": ("sched_stat_iowait", _DELAY),
    "stat_runtime": (
        "sched_stat_runtime",
        {**_TASK, "runtime": ("value", _U64), "vruntime": ("value2", _U64)},
    ),
    "irq_entry": ("irq_handler_entry", {"irq": ("value", _I32), "name": ("name", _TEXT)}),
    "irq_exit": ("irq_handler_exit", {"irq": ("value", _I32), "ret": ("value2", _I32)}),
    "softirq_entry": ("softirq_entry", _VECTOR),
    "softirq_exit": ("softirq_exit", _VECTOR),
    "softirq_raise": ("softirq_raise", _VECTOR),
    "cpu_idle": ("cpu_idle", _POWER),
    "cpu_freq": ("cpu_frequency", _POWER),
    "cpu_freq_limits": (
        "cpu_frequency_limits",
        {"min_freq": ("value2", _U32), "max_freq": ("value", _U32), "cpu_id": ("target_cpu", _U32)},
    ),
    "sys_enter": ("sys_enter", {"id": ("value", _I64)}),
    "sys_exit": ("sys_exit", {"id": ("value", _I64), "ret": ("value2", _I64)}),
    "marker": ("print", {"buf": ("name", _TEXT)}),
}
LEFT_IDLE = 0xFFFFFFFF


@dataclass(frozen=True)
class LisaExport:
    """What was written.

    Attributes
    ----------
    rows : dict of str to int
        Rows by name of the Linux event.
    left_out : dict of str to int
        Rows by kind that have no Linux event.
    """

    rows: dict[str, int]
    left_out: dict[str, int]


def write_lisa(trace: Tables, folder: str | os.PathLike[str]) -> LisaExport:
    """Write a trace as a folder of Parquet files, one per Linux event.

    Parameters
    ----------
    trace
        The trace.
    folder
        The folder, which must not exist or be empty. It appears only when all of it is written.

    Returns
    -------
    LisaExport
        What was written and what was not.

    Raises
    ------
    OutputError
        When the folder holds something already, its name is no UTF-8, it cannot be made, or the
        disk takes no more.
    """
    target = Path(folder)
    check_name(target)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise OutputError(f"{target} exists; name a folder that is new or empty")
    counts = dict(trace.events.get_column("kind").cast(pl.String).value_counts().rows())
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        temporary.mkdir()
    except OSError as error:
        raise OutputError(f"{target}: {error.strerror}") from error
    try:
        rows = {}
        for kind, (event, fields) in EVENTS.items():
            if counts.get(kind):
                rows[event] = _write_event(trace, kind, event, fields, temporary)
        meta = _meta(trace, rows)
        (temporary / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
        temporary.replace(target)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        refuse_full(error, target)
        raise
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return LisaExport(rows, {kind: n for kind, n in sorted(counts.items()) if kind not in EVENTS})


def _write_event(trace: Tables, kind: str, event: str, fields: Fields, folder: Path) -> int:
    columns = [
        pl.col("ts_ns").cast(_U64).alias("common_ts"),
        pl.col("cpu").cast(_U32).alias("common_cpu"),
        pl.col("ctx_tid").cast(_I32, strict=False).alias("common_pid"),
        *(_field(kind, column, dtype).alias(name) for name, (column, dtype) in fields.items()),
    ]
    schema = _schema(fields, event, trace.metadata)
    monotone = trace.metadata.get("clock.name") in MONOTONE
    sorting = [pq.SortingColumn(0)] if monotone else None
    count = 0
    path = folder / f"{event}.lz4.parquet"
    with pq.ParquetWriter(
        path, schema, compression="lz4", version="2.6", sorting_columns=sorting, use_dictionary=True
    ) as writer:
        for part in trace.events.iter_slices(BATCH):
            rows = part.filter(pl.col("kind").cast(pl.String) == kind).select(columns)
            if len(rows):
                writer.write_table(rows.to_arrow().cast(schema), row_group_size=ROW_GROUP)
                count += len(rows)
    return count


def _field(kind: str, column: str, dtype: type[pl.DataType]) -> pl.Expr:
    value = pl.col(column)
    if column == "state":
        bits = {state: number for state, number in STATE_BITS.items() if number != NOT_STATED}
        return value.cast(pl.String).replace_strict(bits, default=None, return_dtype=_I64)
    if kind == "cpu_idle" and column == "value":
        # Linux writes -1 as an unsigned number when a CPU leaves idle.
        value = value.fill_null(LEFT_IDLE)
    if column == "target_cpu" and kind in ("cpu_idle", "cpu_freq", "cpu_freq_limits"):
        value = pl.coalesce("target_cpu", "cpu")
    return value.cast(dtype, strict=False)


def _schema(fields: Fields, event: str, metadata: Mapping[str, str]) -> pa.Schema:
    types = {_TEXT: pa.string(), _I32: pa.int32(), _U32: pa.uint32(), _I64: pa.int64(), _U64: pa.uint64()}
    columns = [
        pa.field("common_ts", pa.uint64(), nullable=False),
        pa.field("common_cpu", pa.uint32()),
        pa.field("common_pid", pa.int32()),
        *(pa.field(name, types[dtype]) for name, (_, dtype) in fields.items()),
    ]
    pairs = {"FTRACE:event": event, "tracekit.version": metadata.get("tracekit.version", "")}
    if "clock.name" in metadata:
        pairs["FTRACE:clock"] = metadata["clock.name"]
    return pa.schema(columns, pairs)


def _meta(trace: Tables, rows: dict[str, int]) -> dict[str, object]:
    named = trace.tasks.filter(~pl.col("is_idle")).select("tid", pl.col("comm").cast(pl.String)).drop_nulls()
    ts = trace.events.get_column("ts_ns")
    meta: dict[str, object] = {
        "pid-comms": [list(row) for row in named.unique("tid", keep="last", maintain_order=True).rows()],
        "cpus-count": int(trace.metadata.get("nr_cpus", "0") or 0),
        "symbols-address": [],
        "events-info": [
            {"event": event, "errors": [], "nr-rows": count, "path": f"{event}.lz4.parquet"}
            for event, count in rows.items()
        ],
    }
    if len(ts):
        meta["time-range"] = [ts.min(), ts.max()]
    if "clock.name" in trace.metadata:
        meta["trace-clock"] = trace.metadata["clock.name"]
    return meta
