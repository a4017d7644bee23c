"""The simulator for several CPUs, and models of policies whose CPUs share one set of queues."""

from __future__ import annotations

import copy
import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

import tracekit as tk

from .engine import MS, SECOND, Model, Task, draw, text_of
from .models_bsd import Bsd4, Ule
from .models_linux import Bfs

#: A slice on a CPU: CPU, task, from, to.
Slice = tuple[int, int, int, int]


class Shared:
    """CPUs that choose from the queues of a one-CPU model; a waking task goes to its last CPU, or
    to one that idles."""

    def __init__(self, model: Model, cpus: int) -> None:
        self.model, self.cpus = model, cpus
        self.running: list[Task | None] = [None] * cpus
        #: Idle, and no task on its way.
        self.idle = [True] * cpus
        self.last = {t.number: 0 for t in model.tasks}
        self.now = 0

    def select(self, task: Task) -> int:
        """The last CPU where it idles, the next one that does, else the last one."""
        last = self.last[task.number]
        order = [(last + i) % self.cpus for i in range(self.cpus)]
        return next((cpu for cpu in order if self.idle[cpu]), last)

    def on(self, cpu: int) -> None:
        """`cpu` calls the model."""

    def balance(self, now: int) -> list[int]:
        """Before a tick: CPUs that must choose again as tasks have been moved."""
        return []

    def second(self, now: int) -> list[int]:
        """CPUs that must choose again after the work of a second."""
        need = self.model.second(now, self.running[0])
        return [0] if need else []


class SharedBsd4(Shared):
    """FreeBSD's 4BSD on several CPUs: one queue; the priority's weight and the kernel thread see
    all of them."""

    def __init__(self, model: Model, cpus: int) -> None:
        super().__init__(model, cpus)
        assert isinstance(model, Bsd4)
        model.weight = 8 * cpus
        model.restart()

    def second(self, now: int) -> list[int]:
        model = self.model
        assert isinstance(model, Bsd4)
        busy = [task for task in self.running if task is not None]
        # The kernel thread runs on an idle CPU, or in the place of what runs on the CPU of its timer.
        displaced = self.running[0] if len(busy) == self.cpus else None
        model.others = [task for task in busy if task is not displaced]
        return [0] if model.second(now, displaced) else []


class SharedBfs(Shared):
    """BFS: the first CPU that idles, else the one whose task has the latest deadline."""

    def __init__(self, model: Model, cpus: int) -> None:
        super().__init__(model, cpus)
        self.clocks = [(0, 0, False)] * cpus
        self.at = 0

    def on(self, cpu: int) -> None:
        model = self.model
        assert isinstance(model, Bfs)
        self.clocks[self.at] = (model.kept, model.last_tick, model.dither)
        model.kept, model.last_tick, model.dither = self.clocks[cpu]
        self.at = cpu

    def select(self, task: Task) -> int:
        model = self.model
        assert isinstance(model, Bfs)
        last = self.last[task.number]
        if self.idle[last]:
            return last
        if any(self.idle):
            return self.idle.index(True)

        def worst(cpu: int) -> tuple[bool, int]:
            runs = self.running[cpu]
            return (True, 1 << 62) if runs is None else (runs.policy == "idle", model.deadline[runs.number])

        return max(range(self.cpus), key=lambda cpu: (worst(cpu), -cpu))


class UleCpus(Ule):
    """The queues of one CPU of ULE at a time, and what other CPUs see of it (struct tdq)."""

    IDLE, IDLE_MIN = 255, 224
    FIELDS = ("realtime", "calendar", "index", "removal", "load", "low", "owes")

    def __init__(self, tasks: Sequence[Task], hz: int) -> None:
        super().__init__(tasks, hz)
        self.low, self.owes = self.IDLE, False
        self.left = {t.number: 0 for t in tasks}
        #: An interrupt of another CPU sends the thread away, so SW_PREEMPT is set.
        self.sent_away: set[int] = set()
        self.machine: SharedUle

    def enqueue(self, task: Task, why: str, now: int) -> None:
        if why != "preempted":
            self.low = min(self.low, self.pri[task.number])
        elif task.number in self.sent_away:
            self.sent_away.discard(task.number)
            if self.pri[task.number] >= self.BATCH:
                self.calendar[self.removal].insert(0, task)
            else:
                self.realtime[self.pri[task.number] // 4].insert(0, task)
            return
        super().enqueue(task, why, now)

    def exact(self, running: int) -> None:
        """tdq_setlowpri()."""
        first = self.choose()
        self.low = running if first is None else min(running, self.pri[first.number])

    def tick(self, task: Task, now: int) -> bool:
        ended = super().tick(task, now)
        if ended:
            self.sent_away.discard(task.number)
        return ended

    def preempts(self, task: Task, current: Task, now: int) -> bool:
        if self.machine.caller == self.machine.at:
            return super().preempts(task, current, now)
        # tdq_notify(), sched_shouldpreempt()
        return self.notified(task, current)

    def notified(self, task: Task, current: Task) -> bool:
        pri, other = self.pri[task.number], self.pri[current.number]
        if self.owes or not (pri < self.BATCH <= other):
            return False
        self.owes = True
        self.sent_away.add(current.number)
        return True

    def pick(self, now: int, previous: Task | None) -> Task | None:
        self.owes = False
        if self.choose() is None:
            self.machine.steal_for(self.machine.at)
        first = self.choose()
        self.low = self.IDLE if first is None else self.pri[first.number]
        found = super().pick(now, previous)
        if found is not None and found is first and self.low != self.pri[found.number]:
            self.exact(self.pri[found.number])
        return found

    def stop(self, task: Task, why: str, now: int) -> None:
        super().stop(task, why, now)
        self.left[task.number] = now // self.clock
        if why == "slept":
            self.sent_away.discard(task.number)

    def surplus(self) -> Task | None:
        """tdq_steal()."""
        found = next((queue[0] for queue in self.realtime if queue), None)
        if found is not None:
            return found
        slots = [*range(self.removal, 64), *(range(64) if self.removal else ())]
        waiting = [task for slot in slots for task in self.calendar[slot]]
        return waiting[1] if len(waiting) > 1 else waiting[0] if waiting else None


class SharedUle(Shared):
    """ULE of about 2022 on CPUs that share a cache; of CPUs with equal loads the first, as its
    random numbers are not drawn."""

    def __init__(self, model: Model, cpus: int) -> None:
        super().__init__(model, cpus)
        assert isinstance(model, UleCpus)
        self.ule = model
        model.machine = self
        self.kept = [
            {name: copy.deepcopy(getattr(model, name)) for name in model.FIELDS} for _ in range(cpus)
        ]
        self.at, self.caller = 0, 0
        self.random, self.ticks = 0, model.STATHZ

    def on(self, cpu: int) -> None:
        self.kept[self.at] = {name: getattr(self.ule, name) for name in self.ule.FIELDS}
        self.at = cpu
        for name, value in self.kept[cpu].items():
            setattr(self.ule, name, value)

    def load(self, cpu: int) -> int:
        self.on(cpu)
        return self.ule.load

    def low(self, cpu: int) -> int:
        self.on(cpu)
        return self.ule.low

    def lowest(self, cpus: Sequence[int], pri: int, most: int, prefer: int) -> int | None:
        """sched_lowest()."""
        fit = [cpu for cpu in cpus if self.low(cpu) > pri and self.load(cpu) <= most]
        return min(fit, key=lambda cpu: (256 * self.load(cpu) - 64 * (cpu == prefer), cpu), default=None)

    def highest(self, cpus: Sequence[int]) -> int | None:
        """sched_highest()."""
        fit = []
        for cpu in cpus:
            if self.load(cpu) >= 2 and self.ule.choose() is not None:
                fit.append(cpu)
        return max(fit, key=lambda cpu: (self.load(cpu), -cpu), default=None)

    def select(self, task: Task) -> int:
        """sched_pickcpu(); the timer of a sleep is on the CPU where it began."""
        ule, number = self.ule, task.number
        last = self.caller = self.last[number]
        if self.low(last) >= ule.IDLE_MIN and ule.left[number] > self.now // ule.clock - 2:
            return last
        pri, all_cpus = ule.pri[number], range(self.cpus)
        cpu = self.lowest(all_cpus, pri, 1 << 30, last)
        if cpu is None:
            cpu = self.lowest(all_cpus, -1, 1 << 30, last)
        assert cpu is not None
        busy = self.low(cpu) < ule.IDLE_MIN
        if self.low(last) > pri and busy and self.load(last) <= self.load(cpu) + 1:
            return last
        return cpu

    def move(self, source: int, to: int) -> Task | None:
        """tdq_move()."""
        ule = self.ule
        self.on(source)
        task = ule.surplus()
        if task is None:
            return None
        ule.remove(task)
        ule.load -= 1
        if ule.pri[task.number] == ule.low:
            runs = self.running[source]
            ule.exact(ule.IDLE if runs is None else ule.pri[runs.number])
        self.on(to)
        ule.low = min(ule.low, ule.pri[task.number])
        ule._add(task)
        ule.load += 1
        self.last[task.number] = to
        return task

    def steal_for(self, cpu: int) -> None:
        """tdq_trysteal()."""
        source = self.highest([other for other in range(self.cpus) if other != cpu])
        if source is not None:
            self.move(source, cpu)
        self.on(cpu)

    def balance(self, now: int) -> list[int]:
        """sched_clock() on the first CPU, sched_balance_group()."""
        self.ticks -= 1
        if self.ticks > 0:
            return []
        rate = self.ule.STATHZ
        self.random = (self.random * 69069 + 5) % (1 << 32)
        self.ticks = rate // 2 + (self.random >> 16) % rate
        need, donors = [], list(range(self.cpus))
        while (high := self.highest(donors)) is not None:
            donors.remove(high)
            low = self.lowest(donors, -1, self.load(high) - 1, high)
            if low is None:
                break
            task = self.move(high, low)
            assert task is not None
            donors.remove(low)
            runs = self.running[low]
            if runs is None or (low != 0 and self.ule.notified(task, runs)):
                need.append(low)
        return need


def simulate(tasks: list[Task], machine: Shared, until: int, tick: int | None) -> list[Slice]:
    """Run tasks; events of one instant have tracekit's order, and CPUs theirs."""
    model, cpus = machine.model, range(machine.cpus)
    began, now = [0] * machine.cpus, 0
    slice_end: list[int | None] = [None] * machine.cpus
    next_tick, next_second = tick or 1 << 62, SECOND
    wakes = [(t.start, t.number, "initial") for t in tasks]
    heapq.heapify(wakes)
    out: list[Slice] = []
    running = machine.running
    while True:
        times = [until, next_tick, next_second if model.seconds else until]
        times += [wakes[0][0]] if wakes else []
        times += [now + task.left for task in running if task is not None]
        times += [end for end in slice_end if end is not None]
        passed, now = min(min(times), until) - now, min(min(times), until)
        machine.now = now
        for task in running:
            if task is not None:
                task.left -= passed
        if now == until:
            break
        need: set[int] = set()
        for cpu in cpus:
            task = running[cpu]
            if task is None or task.left > 0:
                continue
            sleep = task.program[task.place][1]
            task.place += 1
            if task.place == len(task.program):
                task.place = 0 if task.loops else -1
            machine.on(cpu)
            model.stop(task, "slept", now)
            out.append((cpu, task.number, began[cpu], now))
            running[cpu], slice_end[cpu] = None, None
            need.add(cpu)
            if sleep is not None and task.place >= 0:
                heapq.heappush(wakes, (now + sleep, task.number, "wakeup"))
                task.state, task.left = "sleep", task.program[task.place][0]
            else:
                task.state = "dead"
        if now == next_tick:
            next_tick += tick or 0
            need.update(machine.balance(now))
            for cpu in cpus:
                machine.on(cpu)
                if running[cpu] is not None and model.tick(running[cpu], now):  # type: ignore[arg-type]
                    need.add(cpu)
        if model.seconds and now == next_second:
            next_second += SECOND
            need.update(machine.second(now))
        while wakes and wakes[0][0] == now:
            _, number, why = heapq.heappop(wakes)
            task = tasks[number]
            cpu = machine.select(task)
            machine.last[number], task.state = cpu, "ready"
            machine.on(cpu)
            model.enqueue(task, why, now)
            current = running[cpu]
            if current is None or model.preempts(task, current, now):
                need.add(cpu)
            machine.idle[cpu] = False
        for cpu in cpus:
            if slice_end[cpu] == now and running[cpu] is not None:
                slice_end[cpu] = None
                if model.expired(running[cpu], now):  # type: ignore[arg-type]
                    need.add(cpu)
        for cpu in sorted(need):
            machine.on(cpu)
            previous = running[cpu]
            if previous is not None:
                model.stop(previous, "preempted", now)
                previous.state = "ready"
                model.enqueue(previous, "preempted", now)
            chosen = model.pick(now, previous)
            if chosen is not previous:
                if previous is not None:
                    out.append((cpu, previous.number, began[cpu], now))
                began[cpu] = now
            running[cpu], machine.idle[cpu] = chosen, chosen is None
            slice_end[cpu] = None
            if chosen is not None:
                chosen.state, machine.last[chosen.number] = "run", cpu
                length = model.start(chosen, now)
                slice_end[cpu] = now + length if length else None
    for cpu in cpus:
        if (task := running[cpu]) is not None:
            out.append((cpu, task.number, began[cpu], until))
    return sorted(s for s in out if s[3] > s[2])


@dataclass(frozen=True)
class SmpCase:
    """A policy of tracekit on several CPUs, and a model of it."""

    policy: str
    model: Callable[[Sequence[Task], int], Model]
    machine: Callable[[Model, int], Shared]
    source: str
    hz: int = 1000
    ticks: int | None = None
    nices: tuple[int, ...] = (0,)
    until: int = 3 * SECOND
    cpus: int = 2
    most: int = 8
    draw: Callable[[random.Random, int, Sequence[int], bool], list[Task]] = draw


def joined(slices: Sequence[Slice]) -> list[Slice]:
    """Slices of one task on one CPU that follow each other at once are one."""
    out: list[Slice] = []
    for cpu, number, start, end in sorted(slices):
        if out and out[-1][:2] == (cpu, number) and out[-1][3] == start:
            out[-1] = (cpu, number, out[-1][2], end)
        else:
            out.append((cpu, number, start, end))
    return out


def difference(case: SmpCase, seed: int) -> str | None:
    """Hold one random workload's schedules on all CPUs against each other; None where they are
    equal to the ns."""
    rnd = random.Random(seed * 7919 + 1)
    tasks = case.draw(rnd, rnd.randint(3, case.most), case.nices, True)
    text = f"cpus: {case.cpus}\n" + text_of(tasks, case.policy, case.until, case.hz)
    slices = tk.simulate(text).slices
    names = slices["comm"].cast(pl.String)
    columns = zip(slices["cpu"], names, slices["ts_ns"], slices["dur_ns"], strict=True)
    theirs = joined(
        [(cpu, int(name[1:]), start, start + length) for cpu, name, start, length in columns if length]
    )
    rate = case.hz if case.ticks is None else case.ticks
    own = copy.deepcopy(tasks)
    machine = case.machine(case.model(own, case.hz), case.cpus)
    mine = joined(simulate(own, machine, case.until, SECOND // rate if rate else None))
    # What runs at the end may be cut in another place.
    last = case.until - 120 * MS
    mine, theirs = (
        sorted((s for s in slices if s[3] < last), key=lambda s: (s[2], s)) for slices in (mine, theirs)
    )
    for a, b in zip(mine, theirs, strict=False):
        if a != b:
            return f"model {a}, tracekit {b}\n{text}"
    if abs(len(mine) - len(theirs)) > 2 * case.cpus:
        return f"{len(mine)} slices of the model, {len(theirs)} of tracekit\n{text}"
    return None


NICES = (0, 0, 0, 5, 10, 19, -5, -20)
CASES = {
    "4bsd, 2 CPUs": SmpCase(
        "4bsd:stathz=97",
        Bsd4,
        SharedBsd4,
        "FreeBSD of 2024, sched_4bsd.c and kern_synch.c",
        100,
        97,
        (0, 0, 0, 5, 10, 19, -5),
        until=9 * SECOND,
    ),
    "ule 2022, 2 CPUs": SmpCase(
        "ule:version=2022,stathz=97",
        UleCpus,
        SharedUle,
        "FreeBSD of 2022, sched_ule.c",
        ticks=97,
        nices=(0, 0, 0, 5, 10, 19, -5),
        until=6 * SECOND,
    ),
    "ule 2022, 4 CPUs": SmpCase(
        "ule:version=2022,stathz=97",
        UleCpus,
        SharedUle,
        "FreeBSD of 2022, sched_ule.c",
        ticks=97,
        nices=(0, 0, 0, 5, 10, 19, -5),
        until=6 * SECOND,
        cpus=4,
        most=14,
    ),
    "bfs, 2 CPUs": SmpCase("bfs", Bfs, SharedBfs, "BFS 0.480", nices=NICES),
    "bfs, 4 CPUs": SmpCase("bfs", Bfs, SharedBfs, "BFS 0.480", nices=NICES, cpus=4, most=14),
}
