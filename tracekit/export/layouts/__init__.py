"""Schedules in the text formats of other systems, and programs as workloads.

This is what `tracekit generate` writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import polars as pl

from tracekit.errors import OutputError
from tracekit.export.files import replacing
from tracekit.export.layouts import linux, unix
from tracekit.export.layouts.programs import Listing, rt_app, text_of
from tracekit.export.layouts.records import Record, records
from tracekit.trace import Trace

__all__ = ["LAYOUTS", "PROGRAMS", "Generated", "Layout", "write_layout", "write_program"]


@dataclass(frozen=True)
class Layout:
    """A text format that a schedule can be written in.

    Attributes
    ----------
    name
        As in ``--as``.
    reads_as
        Format by which `tracekit.read` reads it back.
    kinds
        Kinds of events that it has.
    lines
        Makes the text from records and the number of CPUs.
    cannot
        What it cannot hold.
    """

    name: str
    reads_as: str
    kinds: frozenset[str]
    lines: Callable[[Iterable[Record], int], Iterator[str]]
    cannot: str


_NO_END = "the end of the run: what runs then ends with the last record"
LAYOUTS = {
    layout.name: layout
    for layout in (
        Layout(
            "ftrace",
            "ftrace-text",
            linux.KINDS,
            linux.ftrace,
            "processes of threads; yields apart from running on; tasks that are there from the start are woken",
        ),
        Layout(
            "perf-script",
            "perf-script",
            linux.KINDS - {"marker"},
            linux.perf_script,
            f"interrupt flags; {_NO_END}; tasks that are there from the start are woken",
        ),
        Layout(
            "lttng",
            "lttng-text",
            linux.LTTNG_KINDS,
            linux.lttng,
            f"interrupt flags; {_NO_END}; tasks that are there from the start are woken",
        ),
        Layout(
            "dtrace",
            "dtrace-tkd",
            unix.DTRACE_KINDS,
            unix.dtrace,
            f"target CPUs of wakeups; migrations; interrupt flags; {_NO_END}",
        ),
        Layout(
            "ktr",
            "ktr",
            unix.KTR_KINDS,
            unix.ktr,
            f"forks and execs; target CPUs; migrations; interrupt flags; yields apart from preemptions; {_NO_END}",
        ),
        Layout(
            "trcrpt",
            "trcrpt",
            unix.TRCRPT_KINDS,
            unix.trcrpt,
            "names beyond 16 bytes; target CPUs; migrations; yields apart from preemptions; "
            f"times before the first record; {_NO_END}",
        ),
    )
}
#: What a program can be written as.
PROGRAMS = {"workload": text_of, "rt-app": rt_app}


@dataclass(frozen=True)
class Generated:
    """What was written.

    Attributes
    ----------
    lines
        Lines of the file.
    size
        Bytes.
    left_out
        What the layout has no place for, and how often it came.
    """

    lines: int
    size: int
    left_out: dict[str, int] = field(default_factory=dict)


def write_layout(trace: Trace, name: str, target: str) -> Generated:
    """Write the events of a trace in a text format.

    Parameters
    ----------
    trace
        A recorded trace, a replay, or the run of a workload text.
    name
        One of `LAYOUTS`.
    target
        File to write, ``-`` for standard output; it appears when it is complete.

    Returns
    -------
    Generated
        How much, and what was left out: kinds of events.

    Raises
    ------
    OutputError
        When the trace has no event that the format can hold, or the file cannot be made.
    """
    layout = LAYOUTS[name]
    left_out: Counter[str] = Counter()
    kinds = set(trace.events["kind"].unique().cast(pl.String).drop_nulls().to_list())
    if not kinds & (layout.kinds - {"marker"}):
        raise OutputError(
            f"{trace.name} has no events that {name} can hold: it needs {', '.join(sorted(layout.kinds))}"
        )
    text = layout.lines(records(trace, layout.kinds, left_out), max(trace.cpus.height, 1))
    # Every capture begins; the layouts say so in their heads, or not at all.
    return _write(text, target, left_out)


def write_program(found: Listing, name: str, target: str) -> Generated:
    """Write what tasks do as a workload text or as JSON for rt-app.

    Parameters
    ----------
    found
        The programs, see `tracekit.whatif.run.Programs.listing`.
    name
        One of `PROGRAMS`.
    target
        File to write, ``-`` for standard output; it appears when it is complete.

    Returns
    -------
    Generated
        How much, and what was left out.

    Raises
    ------
    ReplayError
        When the programs do what the format cannot say, and leaving it out would make another workload.
    """
    left_out: Counter[str] = Counter()
    return _write(PROGRAMS[name](found, left_out), target, left_out)


def _write(text: Iterator[str], target: str, left_out: Counter[str]) -> Generated:
    lines = size = 0
    with replacing(target) as file:
        for part in text:
            data = part.encode()
            lines += part.count("\n")
            size += len(data)
            file.write(data)
    return Generated(
        lines, size, {k: n for k, n in sorted(left_out.items()) if k not in ("trace_on", "trace_off")}
    )
