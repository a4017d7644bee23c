"""Replays under several policies, each repeated with perturbations of the machine, over several threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Any, TypeVar

import polars as pl

from tracekit.analysis.compare import as_metrics
from tracekit.errors import ReplayError
from tracekit.whatif.intervals import Perturbation
from tracekit.whatif.run import AnyPolicy, Programs, Replay
from tracekit.whatif.workers import usable_cpus

__all__ = ["Asked", "Beside", "Done", "default_jobs", "judged", "run_all", "wait_for_first"]

T = TypeVar("T")

#: Seconds between two looks at whether to stop.
LOOK_S = 0.2
#: Most threads by default: each holds the tables of a run.
MAX_JOBS = 8
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


def default_jobs() -> int:
    """Threads that are used when nobody says: one for each CPU of this process, at most 8."""
    return min(usable_cpus(), MAX_JOBS)


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
    for (label, perturbation), (run, kept, error) in zip(
        work, _each(one, order, threads, meter), strict=True
    ):
        if run is not None:
            plain[label] = run
        elif error is not None and label not in plain:
            raise error
        if kept is not None:
            repeated[label].append((perturbation, as_metrics(kept)))
    return plain, repeated


class Beside:
    """What one thread does while others replay; with them it keeps to a number of threads.

    One thread does all of it, in order: it is Python's, and two would wait for each other.

    Parameters
    ----------
    jobs
        How many threads work at a time; by default `default_jobs`. With one, nothing is done beside
        the replays.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = jobs or default_jobs()
        #: To be taken by each thread while it works.
        self.places = _Places(self.jobs)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="beside") if self.jobs > 1 else None
        self._begun: list[Future[object]] = []

    def later(self, work: Callable[[], object]) -> None:
        """Do this some time; with one thread at once."""

        def placed() -> object:
            with self.places.one(first=True):
                return work()

        if self._pool is None:
            work()
        else:
            self._begun.append(self._pool.submit(placed))

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for all of it, and raise the first error in it; give it up where the block raised."""
        try:
            while self._begun and kind is None:
                future = self._begun.pop(0)
                wait_for_first({future})
                future.result()
        finally:
            if self._pool is not None:
                self._pool.shutdown(wait=True, cancel_futures=True)


class _Places:
    """Places for so many threads. Who is to be first goes before those who have waited longer.

    What is done beside is first: one thread does all of it, and would still work when all replays
    had ended.
    """

    def __init__(self, number: int) -> None:
        self._free, self._first = number, 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def one(self, *, first: bool = False) -> Iterator[None]:
        """A place, while the block runs."""
        with self._changed:
            self._first += first
            try:
                self._changed.wait_for(lambda: self._free and (first or not self._first))
            finally:
                self._first -= first
            self._free -= 1
            # Others may have seen a free place while this one was to be first.
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._free += 1
                self._changed.notify_all()


def wait_for_first(waiting: set[Future[T]]) -> tuple[set[Future[T]], set[Future[T]]]:
    """Wait until one is done, open to Ctrl-C: those that are done, and the others.

    polars catches SIGINT in a way that lets the system take up an endless wait again, before Python
    can raise `KeyboardInterrupt`; a wait with an end is not taken up again.
    """
    while True:
        done, left = wait(waiting, timeout=LOOK_S, return_when=FIRST_COMPLETED)
        if done:
            return done, left


def _each(
    one: Callable[[int], T],
    order: Sequence[int],
    threads: int,
    meter: _Meter,
) -> Iterator[T]:
    """The results by number, of runs that threads begin in this order.

    When the caller stops, the runs that go on stop as well.
    """
    if threads <= 1:
        yield from map(one, range(len(order)))
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="replay")
    try:
        begun: dict[int, Future[T]] = {number: pool.submit(one, number) for number in order}
        waiting = [begun[number] for number in range(len(order))]
        del begun
        while waiting:
            future = waiting.pop(0)
            wait_for_first({future})
            yield future.result()
    finally:
        meter.stopped.set()
        pool.shutdown(wait=True, cancel_futures=True)
