"""What may stand where a trace is asked for.

A trace, a file, a workload text, or programs that are made already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from tracekit._forked import check_threads
from tracekit.io.reading import Source, read
from tracekit.trace import Trace

if TYPE_CHECKING:
    from tracekit.whatif.run import Programs

__all__ = ["AnyTrace", "as_trace", "first_part", "stated_text"]

#: A trace, what `tracekit.read` takes, or programs.
AnyTrace: TypeAlias = "Trace | Source | Programs"


def as_trace(given: AnyTrace) -> Trace:
    """Turn what the caller gave into a trace.

    Parameters
    ----------
    given
        A trace; what `tracekit.read` takes: a path of any format, a workload text among them, or
        such a text itself, as a string of several lines; or programs, which give the trace that
        they were made from.

    Returns
    -------
    Trace
        Of a workload text: of its run under the policy that it names, with its expectations checked.

    Raises
    ------
    ParseError, ReplayError
        As `tracekit.read`.
    """
    if isinstance(given, Trace):
        check_threads()
        return given
    trace = getattr(given, "trace", None)
    return trace if isinstance(trace, Trace) else read(given)  # type: ignore[arg-type]


def stated_text(trace: Trace) -> tuple[str, int | None] | None:
    """The workload text whose run a trace is, and the seed that was asked for; None for any other trace."""
    text = trace.metadata.get("workload")
    seed = trace.metadata.get("workload.seed", "")
    return None if text is None else (text, int(seed) if seed.isdigit() else None)


def first_part(trace: Trace, records: int) -> Trace:
    """Cut a trace off behind its first `records` events in time; a shorter one is given back as it is."""
    ts = trace.columns("events", "ts_ns")["ts_ns"]
    if ts.len() <= records:
        return trace
    return trace.filter(end=int(ts.bottom_k(records + 1).to_numpy().max()))
