"""What a replay rests on, for those who print it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["MIN_SAMPLES", "inferred", "wakeup_classes"]

#: Fewest samples for a curve or a headline of a group.
MIN_SAMPLES = 20


def inferred(replay: Trace) -> list[dict[str, Any]]:
    """Return what a replay inferred of the recorded run, as `tracekit.Replay.inferred`.

    Empty for a trace that is no replay.
    """
    found = getattr(replay, "inferred", None)
    return [] if found is None else list(found.to_dicts())


def wakeup_classes(replay: Trace) -> list[dict[str, Any]]:
    """Return how a replay explains the wakeups of its trace.

    Parameters
    ----------
    replay
        A replay, or any trace.

    Returns
    -------
    list of dict
        `class`, `n` and `share`, as `tracekit.Replay.wakeups`; empty for a trace that is no replay.
    """
    return [dict(row) for row in getattr(replay, "wakeups", ())]
