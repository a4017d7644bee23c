"""Replays over several threads: the same results for any number, progress that adds up, and an end
when asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import tracekit as tk
from tracekit.whatif.repeat import Asked, Done, run_all
from tracekit.whatif.threads import Beside

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def part(trace: tk.Trace) -> tk.Trace:
    """Half a second of the shipped capture."""
    return trace.filter(start="1s", end="1.5s")


def test_the_result_is_the_same_for_any_number_of_threads(part: tk.Trace) -> None:
    # Each of them anew: comparisons of one trace share its identity replay.
    fresh = [(part.with_metadata(part.metadata), jobs) for jobs in (1, 2, 3, 8)]
    one, *others = (tk.compare(p, ["rr:quantum=10ms", "fifo"], runs=4, jobs=jobs).table for p, jobs in fresh)
    assert one.height > 100
    for other in others:
        assert one.equals(other)


def test_comparisons_of_a_trace_share_its_identity_replay(part: tk.Trace) -> None:
    fresh = part.with_metadata(part.metadata)
    seen: list[Done] = []
    first = tk.compare(fresh, ["rr"], runs=3, progress=seen.append)  # type: ignore[arg-type]
    assert seen[-1].runs == 6
    second = tk.compare(fresh, ["fifo"], runs=3, progress=seen.append)  # type: ignore[arg-type]
    assert seen[-1].runs == 3
    assert second.identity is first.identity
    alone = tk.compare(part.with_metadata(part.metadata), ["fifo"], runs=3)
    assert second.table.equals(alone.table)


@pytest.mark.parametrize("jobs", [1, 3])
def test_progress_adds_up_and_only_grows(part: tk.Trace, jobs: int) -> None:
    seen: list[Done] = []
    fresh = part.with_metadata(part.metadata)  # one of which nothing was computed yet
    tk.compare(fresh, ["rr"], runs=3, jobs=jobs, progress=seen.append)  # type: ignore[arg-type]
    assert seen == sorted(seen)
    assert len({round(s * 6) for s in seen}) >= 6
    assert seen[-1] == 1
    assert (seen[-1].run, seen[-1].runs) == (6, 6)
    assert seen[-1].simulated_ns == seen[-1].total_ns > 2_000_000_000


def test_runs_stop_when_the_caller_does(part: tk.Trace) -> None:
    def enough(done: float) -> None:
        if done > 0.01:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        tk.compare(part, ["rr"], runs=300, jobs=3, progress=enough)
    assert not [t for t in threading.enumerate() if t.name.startswith("replay")]


def test_a_policy_of_ones_own_has_one_thread(part: tk.Trace) -> None:
    threads = set()

    class Fifo(tk.Policy):
        def __init__(self) -> None:
            self.queue: list[object] = []

        def enqueue(self, task: object, cpu: int, why: str) -> None:
            threads.add(threading.current_thread().name)
            self.queue.append(task)

        def dequeue(self, task: object, cpu: int) -> None:
            self.queue.remove(task)

        def dispatch(self, cpu: int) -> object:
            return self.queue.pop(0) if self.queue else None

    programs = tk.Programs(part)
    plain, repeated = run_all(
        programs,
        {"own": Asked(Fifo())},
        programs.perturbations(1),
        "group",
        span_ns=1,
        beside=Beside(4),
    )
    assert plain["own"].slices.height
    ((perturbation, metrics),) = repeated["own"]
    assert perturbation == programs.perturbations(1)[0]
    assert metrics.filter(scope="all", metric="cpu_time")["value"].item() > 100_000_000
    assert threads == {"MainThread"}


def test_what_is_asked_for_anyway_is_computed_beside_the_replays(part: tk.Trace) -> None:
    programs = tk.Programs(part)
    asked = {"one": Asked("rr"), "two": Asked("rr", tables=2)}
    for jobs in (1, 3):
        seen: list[str] = []
        with Beside(jobs) as beside:
            run_all(
                programs,
                asked,
                programs.perturbations(2),
                "group",
                span_ns=1,
                beside=beside,
                after=lambda label, nth, run, seen=seen: seen.append(
                    f"{label} {nth} {run.policy.partition(':')[0]}"
                ),
            )
        assert sorted(seen) == ["one 0 rr", "two 0 rr", "two 1 rr"]


def test_an_error_in_another_thread_is_raised() -> None:
    def fail() -> None:
        raise RuntimeError("there")

    done: list[int] = []
    with Beside(1) as beside, pytest.raises(RuntimeError, match="there"):
        beside.later(fail)
    beside = Beside(2)
    beside.later(lambda: done.append(1))
    beside.later(fail)
    with pytest.raises(RuntimeError, match="there"):
        beside.__exit__(None)
    assert done == [1]


def test_commands_without_a_condition_do_not_load_what_judges(demo: Path) -> None:
    code = (
        "import sys; from tracekit.cli import main\n"
        f"sys.argv = ['tracekit', 'slices', {os.fspath(demo)!r}]\n"
        "try: main()\n"
        "finally: print([m for m in ('scipy', 'tracekit.explain.gate') if m in sys.modules], file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_signal_ends_a_comparison_and_leaves_no_file(
    number: signal.Signals, jobs: str, demo: Path, tmp_path: Path
) -> None:
    page = tmp_path / "x.html"
    arguments = ["compare", demo, "--policy", "rr", "--runs", "1000", "--jobs", jobs, "-o", page]
    process = subprocess.Popen(
        [sys.executable, "-m", "tracekit", *map(os.fspath, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    time.sleep(3)  # until replays run
    assert process.poll() is None
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)  # 2,000 runs would take minutes
    assert process.returncode == {signal.SIGTERM: 143, signal.SIGINT: 130}[number], errors.decode()
    assert list(tmp_path.iterdir()) == []


def test_progress_is_said_in_plain_numbers() -> None:
    from tracekit.cli._replaying import _described

    assert _described(Done.of([0.5, 0.0], 0, 800_000_000_000), 2) == "run 1 of 2, 400/1,600 s simulated, 200x"
    assert _described(Done.of([0.5], 0, 3_000_000_000), 0.1) == "1.5/3 s simulated"


def test_what_is_begun_gives_its_result_or_its_error() -> None:
    def fail() -> None:
        raise RuntimeError("there")

    for jobs in (1, 2):
        who: list[str] = []
        with Beside(jobs) as beside:
            result = beside.begin(lambda who=who: who.append(threading.current_thread().name) or 7)
            assert result() == result() == 7
        assert who == ["MainThread" if jobs == 1 else "waited for_0"]
    with Beside(2) as beside:
        begun = beside.begin(fail)
        with pytest.raises(RuntimeError, match="there"):
            begun()


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_each_item_is_done_once_by_no_more_threads_than_asked_for(jobs: int) -> None:
    most, now, lock = 0, 0, threading.Lock()

    def work(item: int) -> int:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.02 * (5 - item % 5))  # later items end first
        with lock:
            now -= 1
        return item * item

    with Beside(jobs) as beside:
        assert beside.each(work, range(10)) == [item * item for item in range(10)]
    assert most == jobs


def test_what_several_threads_ask_a_trace_for_is_computed_once(part: tk.Trace) -> None:
    fresh = part.with_metadata(part.metadata)
    made: list[int] = []

    def make() -> int:
        time.sleep(0.1)
        made.append(1)
        return len(made)

    with Beside(4) as beside:
        assert beside.each(lambda _: fresh.once("it", make), range(4)) == [1] * 4


def test_a_run_has_the_tables_that_were_asked_for(part: tk.Trace) -> None:
    prepared = tk.Programs(part).prepared("rr")
    rows, whole = prepared.measure("group", tables=None)
    again, some = prepared.measure("group", tables=["slices"])
    assert whole is not None
    assert some is not None
    assert again == rows
    assert some.slices.equals(whole.slices)
    assert some.tasks.equals(whole.tasks)
    assert (some.states.height, some.runqueue.height, some.end_ns) == (0, 0, whole.end_ns)
    with pytest.raises(ValueError, match="no table is called `slice`"):
        prepared.measure("group", tables=["slice"])
