"""Work that is done side by side in threads: replays, and what is computed beside them.

The core works without the GIL, and gains by it; Python, and what it calls a library for, hardly does.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from tracekit.whatif.workers import usable_cpus

__all__ = ["Beside", "default_jobs", "side_by_side", "wait_for_first"]

A = TypeVar("A")
T = TypeVar("T")

#: Seconds between two looks at whether to stop.
LOOK_S = 0.2
#: Most threads by default: each holds the tables of a run.
MAX_JOBS = 8


def default_jobs() -> int:
    """Threads that are used when nobody says: one for each CPU of this process, at most 8."""
    return min(usable_cpus(), MAX_JOBS)


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
        self._waited_for = ThreadPoolExecutor(1, thread_name_prefix="waited for") if self.jobs > 1 else None
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

    def begin(self, work: Callable[[], T]) -> Callable[[], T]:
        """Begin with what the caller needs once it has done something else; with one thread do it at once.

        Takes no place: the caller waits for it.

        Parameters
        ----------
        work
            What to do. The core must do most of it.

        Returns
        -------
        callable
            Waits for it, and gives what it gave or raises what it raised.
        """
        if self._waited_for is None:
            done = work()
            return lambda: done
        future = self._waited_for.submit(work)

        def result() -> T:
            wait_for_first({future})
            return future.result()

        return result

    def each(self, work: Callable[[A], T], items: Sequence[A]) -> list[T]:
        """What `work` gives for each item, in their order: as many at a time as there are places.

        Parameters
        ----------
        work
            What to do. The core must do most of it.
        items
            What to do it with.
        """

        def placed(number: int) -> T:
            with self.places.one():
                return work(items[number])

        return list(side_by_side(placed, range(len(items)), min(self.jobs, len(items))))

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
            for pool in filter(None, (self._pool, self._waited_for)):
                pool.shutdown(wait=True, cancel_futures=True)


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


def side_by_side(
    one: Callable[[int], T],
    order: Sequence[int],
    threads: int,
    stop: Callable[[], object] = lambda: None,
) -> Iterator[T]:
    """What `one` gives for 0, 1, 2 and so on, done by threads that begin in another order.

    Parameters
    ----------
    one
        What to do with a number.
    order
        The numbers, in the order in which they are begun.
    threads
        How many are done at a time. With one they are done in the order of their numbers.
    stop
        Called when the caller stops, or has all: what goes on shall end.
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
        stop()
        pool.shutdown(wait=True, cancel_futures=True)
