"""What of a recording is not in a replay: a trace that was filtered lacks the load of the others.

`Trace.filter` by task or CPU keeps the records of some. What is replayed from these lacks the
others' load, so that waits come out too short: that is said, by name.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import TYPE_CHECKING, Any

from tracekit.errors import FilterWarning
from tracekit.harmless import printable
from tracekit.units import format_cpus, format_names

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["callers", "left_out", "said_of", "warn"]

#: Filters that choose tasks or CPUs, as they stand in the metadata.
CHOOSING = ("comm", "exclude", "pid", "tid", "cpu")
#: Names that a sentence gives.
NAMED = 3


def left_out(trace: Trace) -> str | None:
    """Say which tasks and CPUs of a recording a replay of this trace lacks.

    Parameters
    ----------
    trace
        What is to be replayed.

    Returns
    -------
    str or None
        None where nothing was filtered out but time.
    """
    return said_of(trace.metadata)


def said_of(metadata: dict[str, str]) -> str | None:
    """The same as `left_out`, of the metadata of a trace."""
    options = json.loads(metadata.get("options", "{}"))
    filters = [key for key in CHOOSING if key in options.get("filter", {})]
    if not filters:
        return None
    try:
        said = _counted(options["left_out"])
    except (KeyError, TypeError, AttributeError):
        # A file may say anything.
        said = [f"what {', '.join(filters)} did not choose"]
    if not said:
        return None
    return f"filtered out before the replay: {' and '.join(said)}; the replay lacks what they did"


def _counted(known: dict[str, Any]) -> list[str]:
    """The tasks and the CPUs that were left out."""
    said = []
    if known.get("tasks"):
        share = known["run_ns"] / known["all_ns"] if known["all_ns"] else 0
        used = f", with {100 * share:.2g} % of the CPU time" if share < 1 else ""
        names = format_names([*known["names"], *[""] * (known["named"] - len(known["names"]))], NAMED)
        said.append(f"{known['tasks']} of {known['of']} tasks{used} ({names})")
    if known.get("cpus"):
        said.append(f"CPU{'s' * (len(known['cpus']) > 1)} {format_cpus(known['cpus'])}")
    return said


def warn(metadata: dict[str, str]) -> None:
    """Warn of what a replay lacks, with a `tracekit.FilterWarning`.

    Parameters
    ----------
    metadata
        Of the trace that is replayed.
    """
    if (said := said_of(metadata)) is not None:
        hint = "filters of `compare`, and of a replay, choose what is shown and leave nothing out"
        warnings.warn(printable(f"{said}; {hint}"), FilterWarning, stacklevel=callers())


def callers() -> int:
    """How many calls up the first code is that is not of this package, for `warnings.warn`."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "tracekit":
        frame, level = frame.f_back, level + 1
    return level
