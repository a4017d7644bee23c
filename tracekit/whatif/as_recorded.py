"""What held for the tasks of a recording: its real-time class, scheduling policies, affinities, groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit.whatif.groups import Group, known_groups
from tracekit.whatif.listed import affinities, classes
from tracekit.whatif.members import models_groups
from tracekit.whatif.reservations import reservations
from tracekit.whatif.settings import real_time_asked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.trace import Trace
    from tracekit.whatif.threads import Beside

__all__ = ["Held", "as_recorded"]


@dataclass(frozen=True)
class Held:
    """What held for the tasks of a recording, as a replay takes it.

    Attributes
    ----------
    rt : str or None
        The real-time class; None for that of the policy's kernel.
    stated : list of (list of int, list of (str, str))
        Threads with their attributes, as `tracekit.whatif.scenario.resolve` gives them.
    groups : list of Group
        Groups with their settings.
    """

    rt: str | None = None
    stated: list[tuple[list[int], list[tuple[str, str]]]] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)


def as_recorded(
    trace: Trace,
    policy: object,
    *,
    same_cpus: bool = True,
    shared: Mapping[int, str] | None = None,
    threads: Beside | None = None,
) -> Held:
    """Say what held for the tasks of a recording.

    Parameters
    ----------
    trace
        A recorded trace, with or without a machine.
    policy
        The policy of the replay. One that does not schedule by groups is given none.
    same_cpus
        The replay has the recorded CPUs; with others nothing is said of affinities.
    shared
        Threads and their groups, to be taken instead of those of the machine, or that the trace shows.
    threads
        As in `tracekit.whatif.sharing.learned`.

    Returns
    -------
    Held
        What the machine states, what the trace shows of reservations, and the groups of both.
    """
    stated = [*classes(trace), *reservations(trace), *(affinities(trace) if same_cpus else ())]
    members, groups = known_groups(trace, shared, threads) if models_groups(policy) else ([], [])
    return Held(real_time_asked(trace.machine, None), [*stated, *members], groups)
