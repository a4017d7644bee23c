"""A one-CPU scheduler simulator that shares nothing with tracekit, to hold whole schedules against.

Time is int ns. A task runs and sleeps by its program; a model of a policy decides who runs.
Slow, short, and only for tests.
"""

from __future__ import annotations

import copy
import heapq
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import polars as pl

import tracekit as tk

MS = 1_000_000
SECOND = 1000 * MS

#: A slice on the CPU: task, from, to.
Slice = tuple[int, int, int]


@dataclass
class Task:
    """A task: pairs of run and sleep, over and over where it loops; a sleep of None ends it."""

    number: int
    nice: int
    program: list[tuple[int, int | None]]
    loops: bool
    start: int = 0
    tickets: int | None = None
    #: Threads of one process have its number.
    process: int | None = None
    #: Real time: the class and the priority; 0 for a task of another class.
    policy: str = ""
    priority: int = 0
    #: A reservation: run time, relative deadline, period; period 0 for none.
    runtime: int = 0
    relative: int = 0
    period: int = 0
    place: int = 0
    left: int = field(default=0)
    state: str = "new"

    def __post_init__(self) -> None:
        self.left = self.program[0][0]


class Model(ABC):
    """What a policy may decide; the base class decides nothing."""

    #: The model has work to do once a second.
    seconds = False
    #: When `timers` is called next.
    timer: int | None = None

    def __init__(self, tasks: Sequence[Task], hz: int) -> None:
        self.tasks = tasks
        self.hz = hz

    def ran(self, task: Task, ns: int, now: int) -> None:  # noqa: B027 - most models need not know
        """`task` has run for `ns` more."""

    @abstractmethod
    def enqueue(self, task: Task, why: str, now: int) -> None:
        """`task` is ready: ``initial``, ``wakeup`` or ``preempted``."""

    @abstractmethod
    def pick(self, now: int, previous: Task | None) -> Task | None:
        """Take the next task off the queue."""

    def start(self, task: Task, now: int) -> int | None:
        """`task` begins to run; after how long does its slice end?"""
        return None

    def stop(self, task: Task, why: str, now: int) -> None:  # noqa: B027 - the same
        """`task` leaves the CPU: ``slept`` or ``preempted``."""

    def tick(self, task: Task, now: int) -> bool:
        """A clock tick; must another task be picked?"""
        return False

    def second(self, now: int, current: Task | None) -> bool:
        """A second has passed; must another task be picked?"""
        return False

    def timers(self, now: int, current: Task | None) -> bool:
        """The time of `timer` has come; must another task be picked?"""
        return False

    def preempts(self, task: Task, current: Task, now: int) -> bool:
        """`task` has become ready; must it preempt?"""
        return False

    def expired(self, task: Task, now: int) -> bool:
        """The slice has ended; must another task be picked?"""
        return True


def simulate(tasks: list[Task], model: Model, until: int, tick: int | None) -> list[Slice]:
    """Run tasks under a model.

    Events of one instant have tracekit's order: the end of a run, the tick, the second, wakeups
    in order of tasks, timers of the model, the end of a slice.
    """
    now, began, since = 0, 0, 0
    current: Task | None = None
    slice_end: int | None = None
    next_tick, next_second = tick or 1 << 62, SECOND
    wakes = [(t.start, t.number, "initial") for t in tasks]
    heapq.heapify(wakes)
    out: list[Slice] = []
    while True:
        times = [until, next_tick, next_second if model.seconds else until]
        if wakes:
            times.append(wakes[0][0])
        if model.timer is not None:
            times.append(model.timer)
        if current is not None:
            times.append(since + current.left)
            if slice_end is not None:
                times.append(slice_end)
        now = min(min(times), until)
        if current is not None:
            current.left -= now - since
            model.ran(current, now - since, now)
        since = now
        if now == until:
            break
        need = False
        if current is not None and current.left <= 0:
            task, sleep = current, current.program[current.place][1]
            task.place += 1
            if task.place == len(task.program):
                task.place = 0 if task.loops else -1
            model.stop(task, "slept", now)
            out.append((task.number, began, now))
            current, slice_end, need = None, None, True
            if sleep is not None and task.place >= 0:
                heapq.heappush(wakes, (now + sleep, task.number, "wakeup"))
                task.state, task.left = "sleep", task.program[task.place][0]
            else:
                task.state = "dead"
        if now == next_tick:
            next_tick += tick or 0
            need |= current is not None and model.tick(current, now)
        if model.seconds and now == next_second:
            next_second += SECOND
            need |= model.second(now, current)
        while wakes and wakes[0][0] == now:
            _, number, why = heapq.heappop(wakes)
            task = tasks[number]
            task.state = "ready"
            model.enqueue(task, why, now)
            need |= current is not None and model.preempts(task, current, now)
        if model.timer == now:
            need |= model.timers(now, current)
        if slice_end is not None and now >= slice_end and current is not None:
            need = need or model.expired(current, now)
            slice_end = None
        if current is not None and not need:
            continue
        previous = current
        if current is not None:
            model.stop(current, "preempted", now)
            current.state = "ready"
            model.enqueue(current, "preempted", now)
        current = model.pick(now, previous)
        if current is not previous:
            if previous is not None:
                out.append((previous.number, began, now))
            began = now
        if current is not None:
            current.state = "run"
            length = model.start(current, now)
            slice_end = now + length if length else None
    if current is not None:
        out.append((current.number, began, until))
    return [s for s in out if s[2] > s[1]]


def text_of(tasks: Sequence[Task], policy: str, until: int, hz: int) -> str:
    """The same as a workload text."""
    lines = [f"policy: {policy}", f"hz: {hz}", f"until: {until}ns"]
    for t in tasks:
        steps = " ".join(f"R{run}ns" + ("" if sleep is None else f" S{sleep}ns") for run, sleep in t.program)
        head = f"T{t.number} nice={t.nice}" + (f" tickets={t.tickets}" if t.tickets else "")
        head += f" start={t.start}ns" if t.start else ""
        head += f" process={t.process}" if t.process is not None else ""
        head += f" policy={t.policy}" if t.policy else ""
        head += f" prio={t.priority}" if t.priority else ""
        head += f" deadline={t.runtime}ns/{t.relative}ns/{t.period}ns" if t.period else ""
        lines.append(f"{head}: ({steps})*" if t.loops else f"{head}: {steps}")
    return "\n".join(lines)


def slices_of(text: str) -> list[Slice]:
    """What tracekit makes of a workload text."""
    slices = tk.simulate(text).slices
    names = slices["comm"].cast(pl.String)
    return [
        (int(name[1:]), start, start + length)
        for name, start, length in zip(names, slices["ts_ns"], slices["dur_ns"], strict=True)
        if length > 0
    ]


def joined(slices: Sequence[Slice]) -> list[Slice]:
    """Slices of one task that follow each other at once are one."""
    out: list[Slice] = []
    for number, start, end in slices:
        if out and out[-1][0] == number and out[-1][2] == start:
            out[-1] = (number, out[-1][1], end)
        else:
            out.append((number, start, end))
    return out


def draw(rnd: random.Random, count: int, nices: Sequence[int], late: bool) -> list[Task]:
    """Tasks at random: a third are hogs, the others run and sleep; odd times, so that no two events
    fall together."""
    tasks = []
    for number in range(count):
        hog = rnd.random() < 0.35
        nice = rnd.choice(nices)
        program: list[tuple[int, int | None]] = [(1 << 60, None)]
        if not hog:
            program = [
                (rnd.randint(50_001, 30 * MS) | 1, rnd.randint(100_001, 60 * MS) | 1)
                for _ in range(rnd.randint(1, 4))
            ]
        start = rnd.randint(1, 200 * MS) | 1 if late and rnd.random() > 0.6 else 0
        tasks.append(Task(number, nice, program, not hog, start))
    return tasks


def long_sleeps(rnd: random.Random, count: int, nices: Sequence[int], late: bool) -> list[Task]:
    """Two hogs, and tasks that sleep for seconds."""
    hog: list[tuple[int, int | None]] = [(1 << 60, None)]
    tasks = [Task(number, 0, list(hog), False) for number in range(2)]
    for number in range(2, max(count, 3)):
        program: list[tuple[int, int | None]] = [
            (rnd.randint(300 * MS, 900 * MS) | 1, rnd.randint(2100 * MS, 6000 * MS) | 1)
        ]
        tasks.append(Task(number, 0, program, True))
    return tasks


def threads(rnd: random.Random, count: int, nices: Sequence[int], late: bool) -> list[Task]:
    """As `draw`, and the tasks are threads of two processes, which have one nice value each."""
    tasks = draw(rnd, count, nices, late)
    nice = [rnd.choice(nices) for _ in range(2)]
    for task in tasks:
        task.process = rnd.randint(1, 2)
        task.nice = nice[task.process - 1]
    return tasks


def some_idle(rnd: random.Random, count: int, nices: Sequence[int], late: bool) -> list[Task]:
    """As `draw`, and some tasks are of SCHED_IDLE."""
    tasks = draw(rnd, count, nices, late)
    for task in tasks:
        task.policy = "idle" if rnd.random() < 0.25 else ""
    return tasks


def real_time(rnd: random.Random, count: int, nices: Sequence[int], late: bool) -> list[Task]:
    """Tasks of SCHED_FIFO and SCHED_RR at few priorities, and one of another class that never sleeps."""
    tasks = draw(rnd, count, nices, late)
    for task in tasks:
        task.policy, task.priority = rnd.choice(("fifo", "rr", "rr")), rnd.choice((1, 10, 10, 50))
    tasks.append(Task(count, 0, [(1 << 60, None)], False))
    return tasks


def reserved(rnd: random.Random, count: int, nices: Sequence[int], late: bool) -> list[Task]:
    """Tasks with reservations that leave the CPU a twentieth, and sleep and run as they like."""
    tasks = draw(rnd, count, nices, late)
    for task in tasks:
        task.period = rnd.randint(5 * MS, 60 * MS) | 1
        task.relative = task.period if rnd.random() < 0.6 else rnd.randint(task.period // 2, task.period)
        task.runtime = int(task.period * rnd.uniform(0.2, 0.94) / count)
    return tasks


@dataclass(frozen=True)
class Case:
    """A policy of tracekit, an independent model of it, and which workloads are drawn."""

    policy: str
    model: Callable[[Sequence[Task], int], Model]
    #: What the model was written from.
    source: str
    hz: int = 1000
    #: Ticks a second that the model sees; 0 for none.
    ticks: int | None = None
    nices: tuple[int, ...] = (0,)
    until: int = 3 * SECOND
    most: int = 8
    late: bool = True
    draw: Callable[[random.Random, int, Sequence[int], bool], list[Task]] = draw


def difference(case: Case, seed: int) -> str | None:
    """Hold one random workload's schedules against each other; None where they are equal to the ns."""
    rnd = random.Random(seed * 7919 + 1)
    tasks = case.draw(rnd, rnd.randint(2, case.most), case.nices, case.late)
    text = text_of(tasks, case.policy, case.until, case.hz)
    theirs = joined(slices_of(text))
    own = copy.deepcopy(tasks)
    rate = case.hz if case.ticks is None else case.ticks
    mine = joined(simulate(own, case.model(own, case.hz), case.until, SECOND // rate if rate else None))
    # What runs at the end may be cut in another place.
    last = case.until - 120 * MS
    theirs, mine = ([s for s in slices if s[2] < last] for slices in (theirs, mine))
    for place, (a, b) in enumerate(zip(mine, theirs, strict=False)):
        if a != b:
            return f"slice {place}: model {a}, tracekit {b}\n{text}"
    if abs(len(mine) - len(theirs)) > 2:
        return f"{len(mine)} slices of the model, {len(theirs)} of tracekit\n{text}"
    return None
