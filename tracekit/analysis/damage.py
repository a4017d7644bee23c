"""What was lost, damaged or inferred, by cause: how often, where, and how much of the trace it touches.

The table `diagnostics` has a row for each of the first places and one for the rest. Here all places
of one cause are one row.
"""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from tracekit.analysis import _common as c
from tracekit.analysis.completion import OLDEST
from tracekit.analysis.losses import coverage

__all__ = ["by_cause", "causes"]

_LOSSES = ("lost-events", "overwritten", "truncated")
#: Codes of losses, whose places are not what was lost.
_COUNTED = ("lost-events", "overwritten")
_SCHEMA = {
    "severity": pl.String,
    "code": pl.String,
    "count": pl.UInt64,
    "messages": pl.UInt64,
    "record_share": pl.Float64,
    "time_share": pl.Float64,
    "first_ts_ns": pl.Int64,
    "last_ts_ns": pl.Int64,
    "first_line": pl.UInt64,
    "message": pl.String,
    "advice": pl.String,
}
_REST = "further `"


def causes(
    diagnostics: pl.DataFrame,
    slices: pl.DataFrame,
    cpus: pl.DataFrame,
    losses: pl.DataFrame,
    records: int,
    span: tuple[int, int] | None,
) -> pl.DataFrame:
    """Group the diagnostics of a trace by cause.

    Definition: a cause is a code and a message, numbers in it and the text that it quotes as found aside. `record_share` = places /
    records read; of losses that the source counts, lost / (read + lost). `time_share` = time touched / (span x CPUs). Time touched: of missing switches,
    slices whose end was inferred and time in which nobody knows who ran, apart from losses and from
    what was before a CPU's first record; of losses, `analysis.losses.coverage`, for every CPU where
    the source does not name one.

    Parameters
    ----------
    diagnostics, slices, cpus, losses
        Tables of the trace.
    records
        Records or lines that were read.
    span
        First and last record of the trace, ns; None for a trace without records.

    Returns
    -------
    pl.DataFrame
        One row per cause, losses and errors first: `severity`, `code` (String), `count` (UInt64,
        places), `messages` (UInt64, how many say so: one may speak of many places), `record_share`
        (Float64; null when no record was read, and of losses that the source does not all count),
        `time_share` (Float64; null when the cause touches no known time), `first_ts_ns`, `last_ts_ns` (Int64, trace clock; null
        when not known), `first_line` (UInt64, line of the first place; null where the source has no lines),
        `message` (String, of the first place), `advice` (String; null when there
        is none).

    Notes
    -----
    How it can mislead: metrics outside the time that a cause touches are not affected, but a
    missing switch also moves the slices next to it. The last time is that of the last interval
    touched; where only places are known, and not all of them were kept, it is null.
    """
    c.check_columns(diagnostics, "diagnostics", ("severity", "code", "count", "message", "ts_ns"))
    touched = _touched(slices, cpus, losses, span)
    rows = []
    for code, places, more in by_cause(diagnostics):
        rows.append(_row(code, places, more, records, touched.get(code)))
        touched.pop(code, None)
    _share_lost(rows, losses, records)
    order = {"loss": 0, "error": 1, "info": 2}
    rows.sort(key=lambda r: order.get(str(r["severity"]), 3))
    return pl.DataFrame(rows, schema=_SCHEMA)


def by_cause(diagnostics: pl.DataFrame) -> list[tuple[str, list[dict[str, Any]], int]]:
    """Group diagnostics by code and message, numbers in it aside.

    Parameters
    ----------
    diagnostics
        The table of a trace.

    Returns
    -------
    list of tuple
        Code, the rows that were kept, and how many places were not kept one by one (they count for
        the last cause of their code).
    """
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    rest: dict[str, int] = {}
    for row in diagnostics.iter_rows(named=True):
        if row["message"].startswith(_REST):
            rest[row["code"]] = rest.get(row["code"], 0) + row["count"]
        else:
            # What was found there: another line of the same letter is no other cause.
            message = re.sub(r"\bfound `.*`", "found `#`", row["message"], flags=re.DOTALL)
            key = row["code"], re.sub(r"\d+|nobody|idle|thread", "#", message).replace("# #", "#")
            grouped.setdefault(key, []).append(row)
    last = {code: (code, text) for code, text in grouped}
    return [(k[0], places, rest.get(k[0], 0) if last[k[0]] == k else 0) for k, places in grouped.items()]


def _row(
    code: str,
    places: list[dict[str, object]],
    more: int,
    records: int,
    touched: tuple[float | None, int | None, int | None] | None,
) -> dict[str, object]:
    share, first, last = touched or (None, None, None)
    count = sum(_whole(p["count"]) for p in places) + more
    times = [_whole(p["ts_ns"]) for p in places if p["ts_ns"] is not None]
    first = min([t for t in (first, *times) if t is not None], default=None)
    known = last if more else max([t for t in (last, *times) if t is not None], default=None)
    return {
        "severity": places[0]["severity"],
        "code": code,
        "count": count,
        "messages": len(places) + more,
        "record_share": min(count / records, 1.0) if records else None,
        "time_share": share,
        "first_ts_ns": first,
        "last_ts_ns": known,
        "first_line": next((p["line"] for p in places if p.get("line") is not None), None),
        "message": places[0]["message"],
        "advice": next((p["advice"] for p in places if p.get("advice")), None),
    }


def _share_lost(rows: list[dict[str, object]], losses: pl.DataFrame, records: int) -> None:
    """Of losses, share what was lost, not the places where that is said."""
    found = [row for row in rows if row["code"] in _COUNTED]
    counted = len(found) == 1 and losses.height > 0 and losses["count"].null_count() == 0
    lost = int(losses["count"].sum() or 0) if counted else 0
    for row in found:
        row["record_share"] = lost / (records + lost) if lost else None


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _touched(
    slices: pl.DataFrame, cpus: pl.DataFrame, losses: pl.DataFrame, span: tuple[int, int] | None
) -> dict[str, tuple[float | None, int | None, int | None]]:
    """Share of the CPUs' time, first and last moment, of the codes that leave marks in the tables."""
    if span is None:
        return {}
    start, end = span
    total = (end - start) * cpus.height
    found: dict[str, tuple[float | None, int | None, int | None]] = {}
    lost = 0
    if losses.height:
        cover = coverage(_oldest(losses, cpus), start, end)
        per = (
            pl.when(pl.col("cpu").is_null())
            .then(pl.col("lost_ns") * max(cpus.height, 1))
            .otherwise("lost_ns")
        )
        lost = int(cover.select(per.sum()).item() or 0)
        edges = losses.select(pl.col("ts_from_ns").min().alias("a"), pl.col("ts_to_ns").max().alias("b")).row(
            0
        )
        share = min(lost / total, 1.0) if total else None
        found |= dict.fromkeys(_LOSSES, (share, *edges))
    cut = slices.filter(c.has(c.INFERRED_END)) if slices.height else slices
    if cpus.height:
        unknown = cpus.select((pl.col("unknown_ns") - (pl.col("first_ts_ns") - start)).sum()).item() - lost
        time = int(cut["dur_ns"].sum()) + max(int(unknown), 0)
        edges = (_edge(cut, first=True), _edge(cut, first=False))
        found["switch-mismatch"] = (min(time / total, 1.0) if total else None, *edges)
    clamped = slices.filter(c.has(c.CLAMPED)) if slices.height else slices
    if clamped.height:
        found["clock-skew"] = (None, _edge(clamped, first=True), _edge(clamped, first=False))
    return found


def _oldest(losses: pl.DataFrame, cpus: pl.DataFrame) -> pl.DataFrame:
    """Give what was overwritten before the first record of each CPU a row for each CPU."""
    if "cause" not in losses.columns:
        return losses
    whose = (
        pl.col("cpu").is_null()
        & pl.col("ts_from_ns").is_null()
        & pl.col("ts_to_ns").is_not_null()
        & (pl.col("cause").cast(pl.String) == OLDEST)
    )
    cpu = cpus.select(pl.col("cpu").alias("_cpu"), pl.col("first_ts_ns").alias("_first"))
    each = losses.filter(whose).join(cpu, how="cross")
    until = pl.min_horizontal("ts_to_ns", "_first")
    each = each.with_columns(pl.col("_cpu").alias("cpu"), until.alias("ts_to_ns")).select(losses.columns)
    return pl.concat([losses.filter(~whose), each])


def _edge(rows: pl.DataFrame, *, first: bool) -> int | None:
    if rows.height == 0:
        return None
    edge = rows["ts_ns"].min() if first else (rows["ts_ns"] + rows["dur_ns"]).max()
    return edge if isinstance(edge, int) else None
