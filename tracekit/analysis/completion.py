"""What a trace does not hold: on which CPUs, from when to when, and how many records.

Every marker of loss becomes a *window*: an interval of time of one CPU in which any record may be
missing. Outside of the windows of its CPU every record is there. `tracekit.analysis.bounds`
computes from that what each statistic can be at most and at least.

======================================== ===========================================================
marker                                   windows
======================================== ===========================================================
row of `losses`                          from the last record before the loss to the first one after
                                         it, on its CPU, or on all where the source names none; to
                                         the trace's start or end where it is at its head or tail;
                                         the records it counts (chunks are no records)
row of `losses` that ends where the last each CPU from the start of the trace to its first record,
CPU begins, without a CPU (`overwrite`)  the number it counts
`overwritten` without such a row         each CPU from the start of the trace to its first record,
                                         number unknown
`truncated`, source with a buffer a CPU  each CPU from its last record to the end of the trace,
                                         number unknown
`lost-events` without such a row         the whole trace on all CPUs, number unknown
record that says that tracing stopped    all CPUs, until tracing goes on
a CPU that records name, without records the whole trace on that CPU, number unknown
======================================== ===========================================================

Where records are missing and the source does not say so (`switch-mismatch`, `switch-inferred`,
`unparsed`, ...) no window holds what is missing, and there are no bounds (`Missing.refused`). Nor are
there any where something is missing of a recording of some tasks, which shows who leaves a CPU and not
who enters it, or where wakeups are missing of a recording of some CPUs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

__all__ = ["Missing", "Window", "missing", "overlaps", "union"]

#: Diagnostics after which records are missing at places that nothing marks.
UNMARKED = ("switch-mismatch", "switch-inferred", "unparsed", "partly-parsed", "damaged", "time-backwards")
#: Causes of `losses` that count chunks of records, not records.
CHUNKS = ("chunk",)
#: Cause of `losses` where a full buffer dropped its oldest records.
OLDEST = "overwrite"
#: Formats that keep a buffer for each CPU, so that a cut file ends at another time on each.
BUFFERS = ("trace-dat", "perf-data", "ctf", "schedviz", "ftrace-pages")
#: Kinds of records that say since when a task is runnable.
WAKEUPS = ("waking", "wakeup", "wakeup_new", "enqueue", "lock_wake")
_TRACING = ("trace_off", "trace_on")

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Window:
    """An interval of one CPU in which records may be missing.

    `records` is infinite where nobody knows how many.
    """

    cpu: int
    lo: int
    hi: int
    records: float


@dataclass(frozen=True)
class Missing:
    """What a trace does not hold.

    Attributes
    ----------
    start, end
        First and last record, trace clock, ns.
    windows
        Windows of each CPU, by time.
    records
        Records lost in all; infinite where one of the numbers is not known.
    losses
        Time and number of records of each loss, by time: what a loss on an unknown CPU lost counts once.
    silent
        CPUs that tasks were sent to, without a record of their own: nothing of them was recorded.
    wakeups
        The source records wakeups. Without them each sleep may have ended at any time before the task ran.
    refused
        Why there can be no bounds; None where there can.
    """

    start: int
    end: int
    windows: Mapping[int, tuple[Window, ...]] = field(default_factory=dict)
    records: float = 0.0
    losses: tuple[tuple[int, float], ...] = ()
    silent: tuple[int, ...] = ()
    wakeups: bool = True
    refused: str | None = None

    @property
    def whole(self) -> bool:
        """Nothing is missing that the source reports."""
        return not self.windows and self.wakeups and self.refused is None

    def of(self, cpu: int | None = None) -> tuple[Ints, Ints]:
        """Give start and end of the windows of a CPU, or of all CPUs together, merged and by time."""
        if cpu is not None:
            chosen = list(self.windows.get(cpu, ()))
        else:
            chosen = [w for ws in self.windows.values() for w in ws]
        return union([(w.lo, w.hi) for w in chosen])


def union(spans: list[tuple[int, int]]) -> tuple[Ints, Ints]:
    """Merge intervals that touch; give starts and ends by time."""
    merged: list[list[int]] = []
    for lo, hi in sorted(spans):
        if merged and lo <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], hi)
        else:
            merged.append([lo, hi])
    ends = np.array(merged, dtype=np.int64).reshape(-1, 2)
    return ends[:, 0], ends[:, 1]


def overlaps(lo: Ints, hi: Ints, windows: tuple[Ints, Ints]) -> NDArray[np.bool_]:
    """Whether each interval touches a window, ends included."""
    starts, ends = windows
    if not len(starts):
        return np.zeros(len(lo), dtype=bool)
    first = np.searchsorted(ends, lo, side="left")
    return np.asarray(
        (first < len(starts)) & (starts[np.minimum(first, len(starts) - 1)] <= hi), dtype=np.bool_
    )


#: Columns of `events` that `missing` looks at.
EVENT_COLUMNS = ("ts_ns", "kind", "target_cpu", "orig_cpu")


def missing(
    losses: pl.DataFrame,
    diagnostics: pl.DataFrame,
    cpus: pl.DataFrame,
    events: pl.DataFrame,
    metadata: Mapping[str, str],
    start: int,
    end: int,
) -> Missing:
    """Collect what a trace does not hold.

    Parameters
    ----------
    losses, diagnostics, cpus, events
        Tables of the trace; of the events `EVENT_COLUMNS` are enough.
    metadata
        Of the trace: `source.format`, and which CPUs it was filtered to.
    start, end
        First and last record, ns.

    Returns
    -------
    Missing
        The windows in which records may be missing, or why there can be no bounds.
    """
    known = {
        int(c): (int(a), int(b)) for c, a, b in cpus.select("cpu", "first_ts_ns", "last_ts_ns").iter_rows()
    }
    codes = dict(diagnostics.group_by("code").agg(pl.col("count").sum()).iter_rows())
    kinds = set(events["kind"].unique().cast(pl.String).to_list())
    found, lost = _of_losses(losses, known, start, end)
    found += _of_codes(codes, losses, known, metadata, start, end)
    found += _of_pauses(events, kinds, known, end)
    silent = _silent(events, known, metadata)
    found += [Window(c, start, end, math.inf) for c in silent]
    extra = [(w.lo, w.records) for w in found[lost[1] :]]
    counted = tuple(sorted((*lost[0], *extra)))
    windows = {
        c: tuple(sorted((w for w in found if w.cpu == c), key=lambda w: w.lo)) for c in {w.cpu for w in found}
    }
    wakeups = not kinds or "switch" not in kinds or bool(kinds & set(WAKEUPS))
    return Missing(
        start,
        end,
        windows,
        sum(n for _, n in counted),
        counted,
        tuple(silent),
        wakeups,
        _refusal(codes, cpus, windows, metadata) or _part(bool(windows), wakeups, metadata),
    )


_Lost = tuple[list[tuple[int, float]], int]


def _of_losses(
    losses: pl.DataFrame, known: Mapping[int, tuple[int, int]], start: int, end: int
) -> tuple[list[Window], _Lost]:
    found: list[Window] = []
    counted: list[tuple[int, float]] = []
    names = ("cpu", "ts_from_ns", "ts_to_ns", "count", "cause")
    for cpu, since, until, count, cause in losses.select(names).iter_rows():
        lo = start if since is None else min(max(since, start), end)
        hi = end if until is None else min(max(until, start), end)
        number = math.inf if count is None or str(cause) in CHUNKS else float(count)
        if not number:
            continue
        lo = min(lo, hi)
        places = [(cpu, hi)] if cpu is not None else [(c, hi) for c in known]
        if str(cause) == OLDEST and since is None and until is not None:
            # What each CPU lost is older than what it kept.
            places = [(c, min(hi, known[c][0] if c in known else hi)) for c, _ in places]
            places = [(c, first) for c, first in places if first > start]
            if not places:
                continue
        counted.append((lo, number))
        found += [Window(c, lo, to, number) for c, to in places]
    return found, (counted, len(found))


def _of_codes(
    codes: Mapping[str, int],
    losses: pl.DataFrame,
    known: Mapping[int, tuple[int, int]],
    metadata: Mapping[str, str],
    start: int,
    end: int,
) -> list[Window]:
    found: list[Window] = []
    if codes.get("lost-events") and not losses.height:
        found += [Window(c, start, end, math.inf) for c in known]
    if codes.get("overwritten") and not losses["ts_from_ns"].null_count():
        found += [Window(c, start, first, math.inf) for c, (first, _) in known.items() if first > start]
    if codes.get("truncated") and metadata.get("source.format") in BUFFERS:
        found += [Window(c, last, end, math.inf) for c, (_, last) in known.items() if last < end]
    return found


def _of_pauses(
    events: pl.DataFrame, kinds: set[str], known: Mapping[int, tuple[int, int]], end: int
) -> list[Window]:
    """Windows from each record that tracing stopped to where it goes on.

    That is the next record that it goes on, or the next record.
    """
    if "trace_off" not in kinds:
        return []
    rows = events.select("ts_ns", pl.col("kind").cast(pl.String)).with_row_index()
    off = rows.filter(pl.col("kind") == "trace_off")
    found = []
    times, marks = rows["ts_ns"].to_list(), rows["kind"].to_list()
    for at in off["index"].to_list():
        after = at + 1
        while after < len(marks) and marks[after] == "trace_off":
            after += 1
        until = times[after] if after < len(times) else end
        if until > times[at]:
            found += [Window(c, times[at], until, math.inf) for c in known]
    return found


def _silent(
    events: pl.DataFrame, known: Mapping[int, tuple[int, int]], metadata: Mapping[str, str]
) -> list[int]:
    """CPUs that records send tasks to, without a record of their own: they were not recorded."""
    if "cpu" in json.loads(metadata.get("options", "{}")).get("filter", {}):
        return []
    named: set[int] = set()
    for column in ("target_cpu", "orig_cpu"):
        named |= set(events[column].drop_nulls().unique().to_list())
    return sorted(c for c in named - set(known) if c >= 0)


def _refusal(
    codes: Mapping[str, int],
    cpus: pl.DataFrame,
    windows: Mapping[int, tuple[Window, ...]],
    metadata: Mapping[str, str],
) -> str | None:
    for code in UNMARKED:
        if codes.get(code) and code == "time-backwards":
            return f"nobody knows the order of the records of a CPU ({codes[code]} x {code})"
        if codes.get(code):
            return f"records are missing where the source does not say so ({codes[code]} x {code})"
    if windows and not cpus.height:
        return "the source does not say which CPU a record is from"
    if windows and "cpu" in json.loads(metadata.get("options", "{}")).get("filter", {}):
        return "records were lost and the trace is filtered to some CPUs: what the others lost is not seen"
    return None


def _part(windows: bool, wakeups: bool, metadata: Mapping[str, str]) -> str | None:
    """Why what is missing of a recording of some tasks or CPUs bounds nothing."""
    if (tasks := metadata.get("tasks.recorded")) and (windows or not wakeups):
        return f"only some tasks were recorded ({tasks}), and not when they come to run"
    if (cpus := metadata.get("cpus.recorded")) and not wakeups:
        several = "s" if not cpus.isdecimal() else ""
        were = "were" if several else "was"
        return f"only CPU{several} {cpus} {were} recorded, and no wakeup shows who goes to others or comes from there"
    return None
