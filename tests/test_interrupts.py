"""Long work ends when the user asks for it, and what a hook raises is not hidden."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

import tracekit as tk
from tracekit import _core
from tracekit.whatif import workers

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
    """Sends a signal to this process while the test works; SIGTERM raises `SystemExit`, as in the
    command line."""

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
        until = time.monotonic() + 60
        while time.monotonic() < until:  # one replay may be over before the signal comes
            programs.run("cfs")

    after_a_while(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        many()


def test_a_replay_to_which_no_signal_comes_takes_no_thread_of_its_own_and_can_be_stopped() -> None:
    programs = tk.Programs(tk.simulate("until: 20000\nA: (R0.01 S0.01)*\nB: (R0.01 S0.01)*\n", "cfs"))
    used: list[float] = []
    raised: list[BaseException] = []

    def stop(done: float) -> None:
        used.append(time.thread_time())
        if len(used) == 4:
            raise StopIteration("enough")

    def work() -> None:
        used.append(time.thread_time())
        try:
            programs.run("cfs", progress=stop)
        except StopIteration as error:
            raised.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    # A run that was not stopped would have gone on to its end; one on a thread of its own takes no CPU
    # time of this one, which waits: of some 150 ms.
    assert len(used) == 4
    assert used[-1] - used[0] > 0.01
    assert [str(e) for e in raised] == ["enough"]


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


#: A workload of hours, and one that is read at once and is long to replay often.
HOURS = "policy: cfs\n" + LONG
OFTEN = "policy: cfs\nuntil: 3000\nA: (R0.02 S0.02)*\nB: (R0.02 S0.02)*\n"
#: Every command that can work for long, on HOURS (`{0}`) or OFTEN (`{1}`).
COMMANDS = [
    "slices {0}",
    "generate {0} -o {2}/out.txt --as ftrace",
    "replay {0} --policy rr -o {2}/out.parquet",
    "compare {1} --policy rr:quantum=1ms --policy fifo --runs 500 -o {2}/out.html",
    "sweep {1} --policy rr:quantum=1ms..64ms/99log --runs 9 --metric response.p95(A)",
    "solve {1} --goal response.p95(A)<1us --runs 500",
    "why {1} --what-if 3 --runs 100",
    "study --scale 10",
]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.split()[0])
def test_a_signal_ends_a_command_and_leaves_no_file(command: str, number: int, tmp_path: Path) -> None:
    hours, often = tmp_path / "hours.wl", tmp_path / "often.wl"
    hours.write_text(HOURS)
    often.write_text(OFTEN)
    words = [word.format(hours, often, tmp_path) for word in command.split()]
    if "--goal" in words:
        words[words.index("--goal") + 1] = "response.p95(A) < 1us"
    process = subprocess.Popen(
        [sys.executable, "-m", "tracekit", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # A shell without job control starts what runs behind with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(4)
    process.send_signal(number)
    # It takes 0.2 to 0.8 s on an idle machine; minutes of work are left.
    stderr = process.communicate(timeout=20)[1].decode()
    assert process.returncode == 128 + number
    assert "Traceback" not in stderr, stderr
    assert {path.name for path in tmp_path.iterdir()} == {"hours.wl", "often.wl"}


def test_signals_wait_until_workers_are_started() -> None:
    done = []

    def start() -> None:
        with workers._signals_wait():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("still here")
        done.append("too late")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert done == ["still here"]
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_policy_object_may_be_dropped_by_any_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    policy = Fifo()
    policy.itself = policy  # type: ignore[attr-defined]
    tk.simulate("A: R1\nB: R1", policy)
    with pytest.raises(RuntimeError, match="only while a hook of the policy runs"):
        _ = policy.machine.now_ns
    del policy
    # Python's collector works on whatever thread comes along.
    other = threading.Thread(target=gc.collect)
    other.start()
    other.join()
    assert said == []
