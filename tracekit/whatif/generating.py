"""`generate`: a schedule in any layout that tracekit reads, or a program for another machine."""

from __future__ import annotations

import os
import re

from tracekit.errors import OutputError
from tracekit.export.layouts import LAYOUTS, PROGRAMS, Generated, write_layout, write_program
from tracekit.whatif.run import Programs
from tracekit.whatif.source import AnyTrace, as_trace

__all__ = ["TARGETS", "generate"]

#: What can be written: text layouts of schedules, programs, and tracekit's own file.
TARGETS = (*LAYOUTS, "parquet", *PROGRAMS)


def generate(
    given: AnyTrace,
    target: str | os.PathLike[str],
    to: str,
    *,
    policy: str | None = None,
    seed: int | None = None,
) -> Generated:
    r"""Write a schedule as another system's tracer prints it, or its program for another machine.

    Parameters
    ----------
    given
        A workload text, its path, a trace or its path; see `tracekit.whatif.source.as_trace`.
    target
        File to write, ``-`` for standard output; it appears when it is complete.
    to
        A text layout (``ftrace``, ``perf-script``, ``lttng``, ``dtrace``, ``ktr``, ``trcrpt``),
        ``parquet``, or a program: ``workload`` (a text) or ``rt-app`` (JSON, after its tutorial).
    policy
        Write the schedule under this policy in place of the one in the text, or of the recorded one.
    seed
        Of the times that a workload text draws, in place of its own.

    Returns
    -------
    Generated
        How much was written, and what the format has no place for.

    Raises
    ------
    OutputError
        When there is no such target, or nothing to write.
    ReplayError
        When a text is not understood, or rt-app cannot do what a program does.

    Examples
    --------
    >>> import tracekit as tk
    >>> done = tk.generate("policy: rr:quantum=2ms\nA: R5\nB: R3", "/dev/null", "ftrace")
    >>> done.lines > 10
    True
    """
    if to not in TARGETS:
        raise OutputError(f"nothing is called {to!r}: use one of {', '.join(TARGETS)}")
    trace = as_trace(given)
    if seed is not None:
        if "workload" not in trace.metadata:
            raise OutputError(f"seed {seed}: {trace.name} is no workload text, so nothing is drawn")
        from tracekit.whatif.run import simulate

        trace = simulate(trace.metadata["workload"], seed=seed)
    programs = Programs(trace) if policy is not None or to in PROGRAMS else None
    if to in PROGRAMS and programs is not None:
        text = trace.metadata.get("workload", "")
        if stated := re.search(r"^\s*(capacity|khz\s+\d+)\s*:", text, re.MULTILINE):
            raise OutputError(
                f"`{stated[1]}:`: speeds of CPUs are not written into programs for another machine"
            )
        return write_program(programs.listing_under(policy), to, os.fspath(target))
    if programs is not None and policy is not None:
        trace = programs.run(policy)
    if to == "parquet":
        written = trace.write(target, to="parquet")
        return Generated(written.rows, written.size)
    return write_layout(trace, to, os.fspath(target))
