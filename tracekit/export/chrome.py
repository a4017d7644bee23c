"""Writes traces as Chrome JSON, which chrome://tracing, Speedscope and many viewers open.

Each machine is a process, each CPU a thread of it, each slice a complete event; run queues are
counters, markers are instants. The format counts microseconds; three decimals keep the nanoseconds.
Wakeups have no place in it: the run delay of a slice stands in its arguments.
`tracekit.perfetto.write_perfetto` keeps more in a fiftieth of the size.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import polars as pl

from tracekit.export.files import replacing
from tracekit.export.tables import Tables

__all__ = ["write_chrome_json"]

BATCH = 200_000
ARGUMENTS = ("tid", "pid", "prio", "end_state", "wake_ts_ns", "run_delay_ns", "sleep_ns")


def write_chrome_json(
    trace: Tables, path: str | os.PathLike[str], replays: Sequence[tuple[str, Tables]] = ()
) -> int:
    """Write a trace, and replays of it, as Chrome JSON.

    Parameters
    ----------
    trace
        The trace.
    path
        The file. It appears, or is replaced, only when all of it is written.
    replays
        Replays with their labels.

    Returns
    -------
    int
        Number of events in the file.
    """
    machines = [("recorded", trace), *((f"machine {k}: {name}", t) for k, (name, t) in enumerate(replays, 1))]
    with replacing(path) as file:
        about = json.dumps(
            {key: str(value) for key, value in sorted(trace.metadata.items()) if key != "machine"}
        )
        file.write(b'{"displayTimeUnit":"ns","otherData":' + about.encode() + b',"traceEvents":[\n')
        count = 0
        for number, (label, tables) in enumerate(machines):
            for lines in _machine(number, label, tables):
                if len(lines):
                    _write(file, lines, first=not count)
                    count += len(lines)
        file.write(b"\n]}\n")
    return count


def _write(file: BinaryIO, lines: pl.Series, first: bool) -> None:
    if not first:
        file.write(b",\n")
    file.write(str(lines.str.join(",\n").item()).encode())


def _machine(number: int, label: str, tables: Tables) -> Iterator[pl.Series]:
    cpus = tables.slices.get_column("cpu").unique().sort(nulls_last=True).to_list()
    names = [{"name": "process_name", "ph": "M", "pid": number, "args": {"name": f"CPUs, {label}"}}]
    for cpu in cpus:
        title = "CPU unknown" if cpu is None else f"CPU {cpu}"
        thread = -1 if cpu is None else cpu
        names.append(
            {"name": "thread_name", "ph": "M", "pid": number, "tid": thread, "args": {"name": title}}
        )
    yield pl.Series([json.dumps(name) for name in names])
    for part in tables.slices.iter_slices(BATCH):
        yield _slices(number, part)
    for part in tables.runqueue.iter_slices(BATCH):
        yield _queues(number, part)
    marks = tables.events.filter(pl.col("kind").cast(pl.String) == "marker")
    for part in marks.iter_slices(BATCH):
        yield _lines(
            part,
            '{"name":', _quoted(part, "name"), f',"ph":"i","s":"p","pid":{number},"tid":0,"ts":', _microseconds("ts_ns"),
            "}",
        )  # fmt: skip


def _lines(part: pl.DataFrame, *pieces: str | pl.Expr) -> pl.Series:
    """One line per row: texts as they are, and values."""
    return part.select(pl.concat_str(pl.lit(p) if isinstance(p, str) else p for p in pieces)).to_series()


def _slices(number: int, part: pl.DataFrame) -> pl.Series:
    arguments = [
        pl.concat_str(pl.lit(f'"{name}":'), _quoted(part, name) if name == "end_state" else pl.col(name))
        for name in ARGUMENTS
    ]
    return _lines(
        part,
        '{"name":', _quoted(part, "comm"), f',"cat":"sched","ph":"X","pid":{number},"tid":', pl.col("cpu").fill_null(-1),
        ',"ts":', _microseconds("ts_ns"), ',"dur":', _microseconds("dur_ns"),
        ',"args":{', pl.concat_str(arguments, separator=",", ignore_nulls=True), "}}",
    )  # fmt: skip


def _queues(number: int, part: pl.DataFrame) -> pl.Series:
    return _lines(
        part,
        '{"name":"CPU ', pl.col("cpu").cast(pl.String).fill_null("unknown"), f' run queue","ph":"C","pid":{number},"ts":',
        _microseconds("ts_ns"), ',"args":{"tasks":', pl.col("nr_running") + pl.col("nr_waiting"), "}}",
    )  # fmt: skip


def _microseconds(column: str) -> pl.Expr:
    """Nanoseconds as a decimal number of microseconds."""
    ns = pl.col(column)
    whole = ns.abs() // 1000
    rest = (ns.abs() % 1000).cast(pl.String).str.zfill(3)
    sign = pl.when(ns < 0).then(pl.lit("-")).otherwise(pl.lit(""))
    return pl.concat_str(sign, whole, pl.lit("."), rest)


def _quoted(part: pl.DataFrame, column: str) -> pl.Expr:
    """Texts as JSON strings; null stays null for the arguments and is empty for a name."""
    words = part.get_column(column).cast(pl.String).unique().drop_nulls()
    quoted = [json.dumps(word) for word in words.to_list()]
    value = pl.col(column).cast(pl.String).replace_strict(words, quoted, default=None, return_dtype=pl.String)
    return value.fill_null('""') if column in ("comm", "name") else value
