"""Programs as the core reconstructs them from the records of a trace."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import polars as pl

from tracekit import _core
from tracekit.errors import ReplayError
from tracekit.filters import fits
from tracekit.whatif.contexts import Contexts, recognise
from tracekit.whatif.intervals import Perturbation, perturbations
from tracekit.whatif.listed import stated_cpus

if TYPE_CHECKING:
    from tracekit.trace import Trace
    from tracekit.whatif.as_recorded import Held

__all__ = ["perturbations_of", "reconstructed", "stated_hz"]


#: Records of a trace up to which programs are kept with it: as many as groups are learned from.
KEPT_RECORDS = 100_000
#: Records of a trace up to which what the core read of it is kept: as many as a trial replays.
KEPT_READINGS = 200_000


def stated_hz(trace: Trace) -> tuple[int | None, str]:
    """Give the clock ticks a second that a trace was recorded with, as far as it is stated, and by what."""
    if trace.machine is not None and trace.machine.hz is not None:
        return trace.machine.hz, "the file of the machine"
    # A replay, and a run of a workload, say theirs. A file may say anything.
    own = trace.metadata.get("hz", "")
    return (int(own), "the trace") if re.fullmatch("[1-9][0-9]{0,4}", own) else (None, "")


def reconstructed(
    trace: Trace,
    loop: str = "dependency",
    hz: int | None = None,
    endless: Sequence[str] = (),
    placement: str = "auto",
    identity: str | None = None,
    held: Callable[[], Held] | None = None,
) -> tuple[Contexts, _core.Programs]:
    """Take the programs from the records of a trace.

    Parameters
    ----------
    trace
        A recorded trace.
    loop, hz, endless, placement
        As in `tracekit.Programs`.
    identity
        The policy that was recorded. By it the core judges whether messages that it infers, and
        the model's placement, repeat the recording. Without it the messages are kept, and
        `placement` cannot be ``auto``.
    held
        Gives what held for the tasks then, for the same replays. Called when the records are read.

    Returns
    -------
    tuple
        What is known of the context of wakeups, and the programs.

    Raises
    ------
    ReplayError
        No task has a name of `endless`, or the trace has nothing to replay.
    """
    if hz is None:
        hz, _ = stated_hz(trace)
    records = trace.columns("events", "ts_ns").height
    asked = loop, hz, tuple(endless)

    def read() -> tuple[Contexts, _core.Reading]:
        return _read(trace, loop, hz, endless)

    # Looking for messages takes seconds, and holds for each placement and whatever groups there are.
    contexts, reading = trace.once(("reading", *asked), read) if records <= KEPT_READINGS else read()
    was = None if held is None else held()
    rt, stated, groups = (was.rt, was.stated, was.groups) if was else (None, None, None)

    def made() -> _core.Programs:
        return _core.Programs(reading, identity, rt=rt, stated=stated, groups=groups, placement=placement)

    # Whether groups are to be learned is judged by the same programs.
    alone = not (rt or stated or groups)
    if alone and records <= KEPT_RECORDS:
        return contexts, trace.once(("reconstructed", *asked, placement, identity), made)
    return contexts, made()


def _read(trace: Trace, loop: str, hz: int | None, endless: Sequence[str]) -> tuple[Contexts, _core.Reading]:
    # Slack is Linux's, and every source from Linux names its system.
    system = trace.metadata.get("os")
    contexts = recognise(trace)
    reading = _core.Reading(
        contexts.apply(trace.events) if contexts.timers.height else trace.at_hand("events"),
        loop,
        hz,
        exact_timers=system != "linux",
        system=system,
        endless=_named(trace, endless),
        cpus=stated_cpus(trace),
    )
    return contexts, reading


def _named(trace: Trace, patterns: Sequence[str]) -> list[int]:
    """Threads whose name fits one of the patterns; one that fits none is an error."""
    if not patterns:
        return []
    tasks = trace.tasks.filter(~pl.col("is_idle")).select("tid", pl.col("comm").cast(pl.String)).drop_nulls()
    found: list[int] = []
    for pattern in patterns:
        fit = [tid for tid, comm in tasks.iter_rows() if fits(comm, pattern)]
        if not fit:
            raise ReplayError(
                f"endless {pattern!r}: no task has such a name; `tracekit slices` lists the names"
            )
        found.extend(fit)
    return found


def perturbations_of(core: _core.Programs, runs: int) -> list[Perturbation]:
    """Perturbations of a replay, by tick and jitter as the core found them; the first changes nothing."""
    found: dict[str, float | None] = {}
    for name, value, *_ in core.inferred():
        found.setdefault(name, value)
    tick = round(1e9 / (found.get("ticks a second") or 250))
    return perturbations(tick, found.get("jitter") or 0.0, found.get("tick phase") is not None, runs)
