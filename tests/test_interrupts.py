"""Long work ends when the user asks for it, and what a hook raises is not hidden."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

import tracekit as tk
from tracekit import _core

#: Minutes of work on any machine: a run that is not stopped does not pass unnoticed.
LONG = "until: 3600000\nA: (R0.01 S0.01)*\nB: (R0.01 S0.01)*\n"
SHORT = "until: 200\nA: (R0.01 S0.01)*\nB: (R0.01 S0.01)*\n"


class Fifo(tk.Policy):
    def __init__(self) -> None:
        self.queue: list[int] = []

    def enqueue(self, task: int, cpu: int, why: str) -> None:
        self.queue.append(task)

    def dequeue(self, task: int, cpu: int) -> None:
        self.queue.remove(task)

    def dispatch(self, cpu: int) -> int | None:
        return self.queue.pop(0) if self.queue else None


@pytest.fixture
def after_a_while() -> Iterator[Callable[[int], None]]:
    """Sends a signal to this process while the test works; SIGTERM raises `SystemExit`, as in the command line."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    # Packages that load late must not be cut off halfway.
    tk.Programs(tk.simulate("A: R1\nB: R1 S1", "cfs")).run("cfs").slices  # noqa: B018
    timers: list[threading.Timer] = []

    def send(number: int) -> None:
        timers.append(threading.Timer(0.2, os.kill, (os.getpid(), number)))
        timers[0].start()

    before = signal.signal(signal.SIGTERM, stop)
    yield send
    for timer in timers:
        timer.join()
    signal.signal(signal.SIGTERM, before)


CASES = [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]


@pytest.mark.parametrize(("number", "raised"), CASES)
def test_a_signal_ends_a_simulation(
    after_a_while: Callable[[int], None], number: int, raised: type[BaseException]
) -> None:
    after_a_while(number)
    with pytest.raises(raised):
        tk.simulate(LONG, "cfs")


@pytest.mark.parametrize(("number", "raised"), CASES)
def test_a_signal_ends_a_simulation_under_a_python_policy_as_what_it_is(
    after_a_while: Callable[[int], None], number: int, raised: type[BaseException]
) -> None:
    after_a_while(number)
    with pytest.raises(raised):
        tk.simulate(LONG, Fifo())


def test_ctrl_c_ends_a_replay(after_a_while: Callable[[int], None]) -> None:
    programs = tk.Programs(tk.simulate(SHORT, "cfs"))

    def many() -> None:
        for _ in range(1000):  # one replay may be over before the signal comes
            programs.run("cfs")

    after_a_while(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        many()


def test_what_a_hook_raises_is_the_cause_of_the_error() -> None:
    class Broken(Fifo):
        def dispatch(self, cpu: int) -> int | None:
            raise LookupError("no such queue")

    with pytest.raises(tk.ReplayError, match="hook `dispatch` of policy Broken raised LookupError") as error:
        tk.simulate("A: R5", Broken())
    assert isinstance(error.value.__cause__, LookupError)
    assert error.value.__cause__.__traceback__ is not None


def test_a_run_within_a_run_of_the_same_policy_object_leaves_the_outer_one_its_machine() -> None:
    class Nested(Fifo):
        inner = 0

        def enqueue(self, task: int, cpu: int, why: str) -> None:
            super().enqueue(task, cpu, why)
            if task == 1 and not self.inner:
                self.inner = 1
                kept, self.queue = self.queue, []
                self.inner = _core.simulate_with("until: 20\nA: R5\nB: R5", self)[1]["slices"].num_rows
                self.queue = kept
                assert self.machine.now_ns == 3_000_000

    policy = Nested()
    run = tk.simulate("until: 20\nA: (R1 S1)*\nB start=3: R1", policy)
    assert policy.inner == 2
    assert run.slices["dur_ns"].sum() > 5_000_000
