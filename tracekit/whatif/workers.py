"""Processes that replay cells beside each other.

Nothing here loads polars: a command starts its workers first, and both load it at the same time.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from typing import Any

__all__ = ["Workers", "given_or_own", "usable_cpus"]

#: What each worker loads when it begins.
LOADS = "tracekit.whatif.sweep"


class Workers(Executor):
    """Processes of this machine, with a CPU each, made anew when one of them dies.

    What they were given when one died ends with `BrokenProcessPool`, and can be submitted again.
    Left by an exception, a ``with`` block does not wait for what they are in the middle of.

    Parameters
    ----------
    jobs
        How many; by default one for each CPU.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = jobs or usable_cpus()
        self._pool: ProcessPoolExecutor | None = None
        self._ending: threading.Thread | None = None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(at_once=kind is not None)

    def start(self) -> None:
        """Start all of them now, not with the first work."""
        for _ in range(self.jobs):
            self.submit(os.getpid)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Begin work where there is a worker free, and otherwise as soon as there is."""
        if self._ending is not None:
            self._end()
        with _signals_wait(), _one_thread(), _without_main():
            try:
                return self._processes().submit(fn, *args, **kwargs)
            except BrokenProcessPool:
                self._end()
                return self._processes().submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let them go; with ``wait=False`` the caller goes on while they end, until it leaves the block."""
        if self._pool is not None and self._ending is None:
            ends = {"cancel_futures": cancel_futures}
            self._ending = threading.Thread(target=self._pool.shutdown, kwargs=ends, name="workers end")
            self._ending.start()
        if wait:
            self._end()

    def _processes(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # Threads of polars may not be forked.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.jobs, mp_context=context, initializer=_begin)
        return self._pool

    def _end(self, *, at_once: bool = False) -> None:
        """Let them go; `at_once` also those that are in the middle of a cell, which can take minutes."""
        if self._pool is not None:
            # `terminate_workers` came with Python 3.14.
            for worker in list((self._pool._processes or {}).values()) if at_once else []:
                worker.terminate()
            # What is not awaited may close its pipe while Python, at its own end, writes to it.
            if self._ending is None:
                self._pool.shutdown(wait=True, cancel_futures=not at_once)
            else:
                self._ending.join()
            self._pool = self._ending = None


def _begin() -> None:
    """Leave Ctrl-C, which a terminal sends to workers as well, to the process that ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    importlib.import_module(LOADS)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Processes that start meanwhile calculate in one thread, unless the environment says otherwise.

    Each worker has a CPU. Threads of OpenBLAS spin while they wait: on a loaded machine two workers
    on two CPUs took up to 1.4 times the CPU time. Those of polars wake each other for small tables.
    """
    names = [n for n in ("OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS") if n not in os.environ]
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Processes that start meanwhile do not run the caller's script, as multiprocessing has them do.

    All that they are given is of modules. A script without ``if __name__ == "__main__"`` would start the
    sweep again in each worker, which Python refuses there, so that every worker died; one from standard
    input is no file to run.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait for the end of the block.

    A worker that is cut off while it is started prints a traceback. It inherits that Ctrl-C is blocked,
    which it is until the worker ignores it (`_begin`). Only the main thread gets signals.
    """
    # It unblocks Ctrl-C when it starts, which it does with the first worker.
    resource_tracker.ensure_running()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        with _noted() if threading.current_thread() is threading.main_thread() else contextlib.nullcontext():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@contextlib.contextmanager
def _noted() -> Iterator[None]:
    """Raise what comes of Ctrl-C and SIGTERM at the end of the block."""
    came: list[int] = []
    before = {n: signal.signal(n, lambda n, _: came.append(n)) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if came:
            signal.raise_signal(came[0])


def usable_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def given_or_own(jobs: int | None, executor: Executor | None) -> Iterator[Executor]:
    """The executor that was given, which goes on, or workers that end with the block."""
    if executor is not None:
        yield executor
        return
    with Workers(jobs) as own:
        yield own
