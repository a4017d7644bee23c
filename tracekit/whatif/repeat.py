"""Replays under several policies, each repeated with perturbations of the machine, over several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Any

import polars as pl

from tracekit.analysis.compare import as_metrics
from tracekit.errors import ReplayError
from tracekit.whatif.intervals import Perturbation
from tracekit.whatif.run import AnyPolicy, Programs, Replay
from tracekit.whatif.threads import Beside, side_by_side

__all__ = ["Asked", "Done", "judged", "run_all"]

#: Slices of all repetitions that a replay is judged by: their tables take memory, and time.
JUDGED_SLICES = 1_000_000


class Done(float):
    """Which share of the work is done, and of what.

    Attributes
    ----------
    run, runs
        Runs that have ended, and how many there are.
    simulated_ns, total_ns
        Simulated time of all runs together, and how much there is.
    """

    run: int
    runs: int
    simulated_ns: int
    total_ns: int

    @classmethod
    def of(cls, shares: Sequence[float], run: int, span_ns: int) -> Done:
        """From the share of each run that is done."""
        done = cls(sum(shares) / max(len(shares), 1))
        done.run, done.runs = run, len(shares)
        done.total_ns = span_ns * len(shares)
        done.simulated_ns = round(done * done.total_ns)
        return done


@dataclass(frozen=True)
class Asked:
    """A policy to run, the options of `Programs.run` that go with it, and how many runs have tables."""

    policy: str | AnyPolicy
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Repetitions, from the first, that `after` is called with; the others have statistics alone.
    tables: int = 1
    #: Tables that `after` needs of those behind the plain replay, by name; None for all.
    needs: Sequence[str] | None = None


def judged(runs: int, programs: Programs) -> int:
    """How many of `runs` repetitions a replay is judged by.

    All, but for a trace of many slices. Of a workload text the first, which has the text's own draws.
    """
    return 1 if programs.stated else max(1, min(runs, JUDGED_SLICES // max(programs.trace.slices.height, 1)))


class _Stopped(Exception):
    """The caller gave up."""


class _Meter:
    """Adds up the progress of runs that go on at the same time."""

    def __init__(self, runs: int, span_ns: int, report: Callable[[float], object] | None) -> None:
        self._shares = [0.0] * runs
        self._ended = 0
        self._span_ns = span_ns
        self._report = report
        self._lock = threading.Lock()
        self.stopped = threading.Event()

    def of_run(self, number: int) -> Callable[[float], None]:
        """What run `number` is to call; it ends a run that nobody waits for any more."""

        def report(share: float) -> None:
            if self.stopped.is_set():
                raise _Stopped
            with self._lock:
                self._shares[number] = share
                self._say()

        return report

    def ended(self, number: int) -> None:
        """Run `number` is over, and so is what was computed from it."""
        with self._lock:
            self._shares[number] = 1.0
            self._ended += 1
            self._say()

    def _say(self) -> None:
        if self._report is not None:
            self._report(Done.of(self._shares, self._ended, self._span_ns))


def run_all(
    programs: Programs,
    asked: Mapping[str, Asked],
    perturbations: Sequence[Perturbation],
    by: str,
    *,
    span_ns: int,
    beside: Beside,
    progress: Callable[[float], object] | None = None,
    after: Callable[[str, int, Replay], object] | None = None,
) -> tuple[dict[str, Replay], dict[str, list[tuple[Perturbation, pl.DataFrame]]]]:
    """Run each policy under each perturbation.

    Parameters
    ----------
    programs
        What to run.
    asked
        Label to policy.
    perturbations
        The perturbations, see `Programs.perturbations`; the first is the plain replay.
    by
        Grouping of tasks, see `tracekit.analysis.GROUPINGS`.
    span_ns
        Length of the recorded trace, for `progress`.
    beside
        How many threads there are, and what they do beside. The result is the same for any number.
    progress
        Called with a `Done`, from any of the threads but by one at a time.
    after
        Called with label, number of the repetition and replay, beside the others, as soon as that is there.

    Returns
    -------
    tuple
        Label to plain replay, and label to the perturbations that came to an end, the plain one
        first, each with the result of `tracekit.analysis.compare.metrics`.

    Raises
    ------
    ReplayError
        When a plain replay fails. A repetition that comes to no end is left out; the others count.
    """
    work = [(label, perturbation) for label in asked for perturbation in perturbations]
    prepared = {label: programs.prepared(a.policy, **a.options) for label, a in asked.items()}
    meter = _Meter(len(work), span_ns, progress)

    def one(number: int) -> tuple[Replay | None, Sequence[Any] | None, ReplayError | None]:
        label, perturbation = work[number]
        report = meter.of_run(number)
        nth = number % len(perturbations)
        # The plain replay is what the caller gets. Of those that nobody looks at the statistics are enough.
        needs = None if nth == 0 else asked[label].needs if nth < asked[label].tables else ()
        try:
            with beside.places.one():
                kept, run = prepared[label].measure(
                    by, tables=needs, perturbation=perturbation, progress=report
                )
        except ReplayError as error:
            meter.ended(number)
            return None, None, error
        if run is not None and after is not None:
            beside.later(partial(after, label, nth, run))
        meter.ended(number)
        return run if nth == 0 else None, kept, None

    # The hooks of a policy of one's own may be Python: nothing is gained, and its state is not for
    # two threads.
    alone = any(not isinstance(a.policy, str) for a in asked.values())
    threads = 1 if alone else min(beside.jobs, len(work))
    # The plain replays begin early: what is computed of their tables takes longest. Each with a
    # repetition behind it, as their tables take most memory while they are made.
    first = range(0, len(work), len(perturbations))
    others = [number for number in range(len(work)) if number not in first]
    order = [n for pair in zip_longest(first, others) for n in pair if n is not None]
    plain: dict[str, Replay] = {}
    repeated: dict[str, list[tuple[Perturbation, pl.DataFrame]]] = {label: [] for label in asked}
    # When the caller stops, the runs that go on stop as well.
    ran = side_by_side(one, order, threads, meter.stopped.set)
    for (label, perturbation), (run, kept, error) in zip(work, ran, strict=True):
        if run is not None:
            plain[label] = run
        elif error is not None and label not in plain:
            raise error
        if kept is not None:
            repeated[label].append((perturbation, as_metrics(kept)))
    return plain, repeated
