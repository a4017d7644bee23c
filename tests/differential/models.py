"""Independent models of policies, each written from the source that it names, for one CPU and fair tasks."""

from __future__ import annotations

from collections.abc import Sequence

from .engine import MS, Model, Task


class RoundRobin(Model):
    """A queue, and a quantum of 10 ms."""

    def __init__(self, tasks: Sequence[Task], hz: int) -> None:
        super().__init__(tasks, hz)
        self.queue: list[Task] = []

    def enqueue(self, task: Task, why: str, now: int) -> None:
        self.queue.append(task)

    def pick(self, now: int, previous: Task | None) -> Task | None:
        return self.queue.pop(0) if self.queue else None

    def start(self, task: Task, now: int) -> int | None:
        return 10 * MS


class Feedback(Model):
    """Multi-level feedback with allotments of 10, 20 and 40 ms (Arpaci-Dusseau, Operating Systems:
    Three Easy Pieces, chapter 8)."""

    ALLOTMENTS = (10 * MS, 20 * MS, 40 * MS)

    def __init__(self, tasks: Sequence[Task], hz: int) -> None:
        super().__init__(tasks, hz)
        self.queues: list[list[Task]] = [[], [], []]
        self.level = {t.number: 0 for t in tasks}
        self.left = {t.number: self.ALLOTMENTS[0] for t in tasks}
        self.used_up = False
        self.sunk: Task | None = None

    def ran(self, task: Task, ns: int, now: int) -> None:
        self.left[task.number] -= ns

    def _sinks(self, task: Task) -> bool:
        if self.left[task.number] > 0:
            return False
        self.level[task.number] = min(2, self.level[task.number] + 1)
        self.left[task.number] = self.ALLOTMENTS[self.level[task.number]]
        return True

    def stop(self, task: Task, why: str, now: int) -> None:
        self.used_up = self._sinks(task) or self.sunk is task
        self.sunk = None

    def enqueue(self, task: Task, why: str, now: int) -> None:
        queue = self.queues[self.level[task.number]]
        queue.insert(0 if why == "preempted" and not self.used_up else len(queue), task)

    def preempts(self, task: Task, current: Task, now: int) -> bool:
        return self.level[task.number] < self.level[current.number]

    def pick(self, now: int, previous: Task | None) -> Task | None:
        return next((queue.pop(0) for queue in self.queues if queue), None)

    def start(self, task: Task, now: int) -> int | None:
        return self.left[task.number]

    def expired(self, task: Task, now: int) -> bool:
        self.sunk = task if self._sinks(task) else None
        return True


class Goodness(Model):
    """Linux's list of runnable tasks, searched for the greatest goodness (kernel/sched.c of 2.0,
    2.2.1 and 2.4.17)."""

    version = "2.0"

    def __init__(self, tasks: Sequence[Task], hz: int) -> None:
        super().__init__(tasks, hz)
        self.list: list[Task] = []
        self.priority = {t.number: self._priority(t.nice) for t in tasks}
        self.counter = dict(self.priority)
        self.gone: set[int] = set()

    def _priority(self, nice: int) -> int:
        if self.version == "2.4":
            return ((20 - nice) >> 2) + 1
        steps = min((abs(nice) * 20 + 10) // 20, 20)
        return 20 + steps if nice < 0 else max(1, 20 - steps)

    def enqueue(self, task: Task, why: str, now: int) -> None:
        # A preempted task stays where it is on the list.
        if why == "initial" or (why != "preempted" and self.version == "2.0"):
            self.list.append(task)
        elif why != "preempted":
            self.list.insert(0, task)

    def stop(self, task: Task, why: str, now: int) -> None:
        if why == "slept":
            self.list.remove(task)
            if task.place < 0:
                self.gone.add(task.number)

    #: The process whose address space the CPU has.
    active: Task | None = None
    #: The walk begins with the task that ran (still_running).
    prev_first = False

    def _same_memory(self, task: Task, previous: Task | None) -> bool:
        """p->mm == this_mm, that of the task that ran, whether it may go on or not."""
        if task is previous:
            return True
        return task.process is not None and self.active is not None and task.process == self.active.process

    def start(self, task: Task, now: int) -> int | None:
        self.active = task
        return None

    def goodness(self, task: Task, previous: Task | None) -> int:
        counter = self.counter[task.number]
        if counter == 0:
            return 0
        if self.version == "2.0":
            return counter + (task is previous)
        if self.version == "2.2":
            return counter + self.priority[task.number] + (task is previous)
        return counter + 20 - task.nice + self._same_memory(task, previous)

    def _best(self, previous: Task | None) -> tuple[int, Task | None]:
        best: tuple[int, Task | None] = (-1000, None)
        first = [previous] if self.prev_first and previous is not None else []
        for task in [*first, *self.list]:
            if (found := self.goodness(task, previous)) > best[0]:
                best = (found, task)
        return best

    def pick(self, now: int, previous: Task | None) -> Task | None:
        if previous not in self.list:
            previous = None
        if not self.list:
            return None
        best, task = self._best(previous)
        if best == 0:
            for one in self.tasks:
                if one.state != "new" and one.number not in self.gone:
                    self.counter[one.number] = (self.counter[one.number] >> 1) + self.priority[one.number]
            if self.version == "2.4":
                _, task = self._best(previous)
        return task

    def preempts(self, task: Task, current: Task, now: int) -> bool:
        if self.version == "2.4":
            return self.goodness(task, current) > self.goodness(current, current)
        return self.counter[task.number] > self.counter[current.number] + 3

    def tick(self, task: Task, now: int) -> bool:
        self.counter[task.number] -= 1
        left = self.counter[task.number]
        self.counter[task.number] = max(left, 0)
        return left <= 0 if self.version == "2.4" else left < 0


class Goodness22(Goodness):
    """As in 2.2.1."""

    version = "2.2"


class Goodness24(Goodness):
    """As in 2.4.17."""

    version = "2.4"


class Goodness243(Goodness24):
    """As in 2.4.3."""

    prev_first = True


class O1(Model):
    """The O(1) scheduler of Linux 2.6.20: two arrays, and a bonus for sleeping (kernel/sched.c)."""

    def __init__(self, tasks: Sequence[Task], hz: int) -> None:
        super().__init__(tasks, hz)
        self.active: list[list[Task]] = [[] for _ in range(140)]
        self.expired_: list[list[Task]] = [[] for _ in range(140)]
        self.average = {t.number: 0 for t in tasks}
        self.kind = {t.number: "normal" for t in tasks}
        self.stamp = {t.number: 0 for t in tasks}
        self.priority = {t.number: max(100, min(139, 125 + t.nice)) for t in tasks}
        self.slice = {t.number: self._full(t) for t in tasks}
        self.since: int | None = None
        self.best_expired = 140
        self.goes = ""

    def _full(self, task: Task) -> int:
        static = 120 + task.nice
        ms = (400 if static < 120 else 100) * (140 - static) // 20
        return max(max(ms, 5) * self.hz // 1000, 1)

    def _bonus(self, task: Task) -> int:
        return self.average[task.number] * 10 // (1000 * MS)

    def _effective(self, task: Task) -> int:
        return max(100, min(139, 120 + task.nice - (self._bonus(task) - 5)))

    @staticmethod
    def _delta(task: Task) -> int:
        return (task.nice + 20) * 10 // 40 - 5 + 2

    def _interactive(self, task: Task) -> bool:
        return self.priority[task.number] <= 120 + task.nice - self._delta(task)

    def _slept(self, task: Task, now: int) -> None:
        slept = now - self.stamp[task.number]
        average = self.average[task.number]
        if slept > 0:
            ceiling = (1000 * (5 + self._delta(task) + 1) // 10 - 1) * MS
            if slept > ceiling and average < ceiling:
                average, self.kind[task.number] = ceiling, "noninteractive"
            else:
                if self.kind[task.number] == "noninteractive":
                    if average >= ceiling:
                        slept = 0
                    elif average + slept >= ceiling:
                        average, slept = ceiling, 0
                average += slept
            self.average[task.number] = min(average, 1000 * MS)
        self.priority[task.number] = self._effective(task)

    def enqueue(self, task: Task, why: str, now: int) -> None:
        if why == "preempted":
            place, self.goes = self.goes, ""
            array = self.expired_ if place == "expired" else self.active
            queue = array[self.priority[task.number]]
            queue.insert(len(queue) if place else 0, task)
            return
        if why == "wakeup":
            self._slept(task, now)
            if self.kind[task.number] == "normal":
                self.kind[task.number] = "interrupted"
        self.stamp[task.number] = now
        self.active[self.priority[task.number]].append(task)

    def preempts(self, task: Task, current: Task, now: int) -> bool:
        return self.priority[task.number] < self.priority[current.number]

    def pick(self, now: int, previous: Task | None) -> Task | None:
        if not any(self.active):
            self.active, self.expired_ = self.expired_, self.active
            self.since, self.best_expired = None, 140
        queue = next((q for q in self.active if q), None)
        if queue is None:
            return None
        task = queue.pop(0)
        kind = self.kind[task.number]
        if kind in ("interactive", "interrupted"):
            waited = now - self.stamp[task.number]
            self._slept(
                task, self.stamp[task.number] + (waited * 38 // 128 if kind == "interactive" else waited)
            )
        self.kind[task.number] = "normal"
        return task

    def start(self, task: Task, now: int) -> int | None:
        self.stamp[task.number] = now
        return None

    def stop(self, task: Task, why: str, now: int) -> None:
        ran = min(now - self.stamp[task.number], 1000 * MS) // max(self._bonus(task), 1)
        self.average[task.number] = max(0, self.average[task.number] - ran)
        self.stamp[task.number] = now
        if why == "slept":
            self.goes = ""

    def tick(self, task: Task, now: int) -> bool:
        self.slice[task.number] -= 1
        if self.slice[task.number] <= 0:
            self.priority[task.number] = self._effective(task)
            self.slice[task.number] = self._full(task)
            if self.since is None:
                self.since = now
            waiting = sum(map(len, self.active)) + sum(map(len, self.expired_)) + 1
            starving = 120 + task.nice > self.best_expired or now - self.since > 1000 * MS * waiting
            if not self._interactive(task) or starving:
                self.goes = "expired"
                self.best_expired = min(self.best_expired, 120 + task.nice)
            else:
                self.goes = "tail"
            return True
        portion = max(10 * (1 << (max(10 - self._bonus(task), 1) - 1)) * self.hz // 1000, 1)
        used = self._full(task) - self.slice[task.number]
        if self._interactive(task) and used % portion == 0 and self.slice[task.number] >= portion:
            self.goes = "tail"
            return True
        return False


def _dispatch_row(level: int) -> tuple[int, int, int, int, int]:
    """A row of the default TS dispatch table (ts_dptbl.c): quantum in ticks, level after it, after
    a sleep, longest wait, after that."""
    quantum = 20 if level == 59 else (200, 160, 120, 80, 40, 40)[level // 10]
    after = 58 if level < 59 else 59
    for below, value in ((45, 55), (40, 54), (35, 53), (30, 52), (20, 51), (10, 50)):
        if level < below:
            after = value
    after = {45: 56, 46: 57}.get(level, after)
    return quantum // 10, max(0, level - 10), after, 32000 if level == 59 else 0, after if level <= 48 else 59


class SolarisTs(Model):
    """The time-sharing class of Solaris 8 (ts.c as published in OpenSolaris) with the default table."""

    seconds = True
    TABLE = tuple(_dispatch_row(level) for level in range(60))

    def __init__(self, tasks: Sequence[Task], hz: int) -> None:
        super().__init__(tasks, hz)
        self.level = {t.number: 29 for t in tasks}
        self.user = {t.number: -3 * t.nice for t in tasks}
        self.waited = {t.number: 0 for t in tasks}
        self.left = {t.number: self.TABLE[29][0] for t in tasks}
        self.to_back = {t.number: False for t in tasks}
        self.priority: dict[int, int] = {}
        self.left_at: dict[int, int] = {}
        self.queues: list[list[Task]] = [[] for _ in range(60)]
        for task in tasks:
            self._set(task)

    def _set(self, task: Task) -> None:
        self.priority[task.number] = max(0, min(59, self.level[task.number] + self.user[task.number]))

    def _lifted(self, task: Task) -> None:
        number = task.number
        if self.waited[number] > self.TABLE[self.priority[number]][3]:
            self.level[number] = self.TABLE[self.level[number]][2]
            self._set(task)
            self.left[number], self.waited[number] = self.TABLE[self.level[number]][0], 0

    def enqueue(self, task: Task, why: str, now: int) -> None:
        number = task.number
        front = False
        if why == "preempted":
            front = not self.to_back[number]
            if self.to_back[number]:
                self.left[number], self.waited[number] = self.TABLE[self.level[number]][0], 0
                self.to_back[number] = False
        elif why == "wakeup":
            self._lifted(task)
            self.to_back[number] = False
            front = self.left_at.get(number) == now // (10 * MS)
        queue = self.queues[self.priority[number]]
        queue.insert(0 if front else len(queue), task)

    def _best(self) -> int:
        return max((level for level in range(60) if self.queues[level]), default=-1)

    def preempts(self, task: Task, current: Task, now: int) -> bool:
        return self.priority[task.number] > self.priority[current.number]

    def pick(self, now: int, previous: Task | None) -> Task | None:
        best = self._best()
        return self.queues[best].pop(0) if best >= 0 else None

    def stop(self, task: Task, why: str, now: int) -> None:
        self.left_at[task.number] = now // (10 * MS)
        if why == "slept":
            self._lifted(task)
            self.to_back[task.number] = False

    def tick(self, task: Task, now: int) -> bool:
        number = task.number
        self.left[number] -= 1
        if self.left[number] <= 0:
            self.level[number] = self.TABLE[self.level[number]][1]
            self._set(task)
            self.waited[number], self.to_back[number] = 0, True
            return True
        if self.priority[number] < self._best():
            self.to_back[number] = True
            return True
        return False

    def second(self, now: int, current: Task | None) -> bool:
        need = False
        for task in self.tasks:
            number = task.number
            if task.state in ("dead", "new"):
                continue
            self.waited[number] += 1
            before = self.priority[number]
            if self.waited[number] <= self.TABLE[before][3]:
                continue
            if task is current:
                self._lifted(task)
                need |= self._best() > self.priority[number]
                continue
            self.level[number] = self.TABLE[self.level[number]][4]
            self._set(task)
            self.waited[number] = 0
            if self.priority[number] == before:
                continue
            if task in self.queues[before]:
                self.queues[before].remove(task)
                self.left[number] = self.TABLE[self.level[number]][0]
                self.queues[self.priority[number]].append(task)
                need |= current is not None and self.priority[current.number] < self.priority[number]
            else:
                self.to_back[number] = True
        return need


class Aix(Model):
    """AIX 3.2 as its performance guide describes it: recent CPU use halved each second, half of it
    added to the priority."""

    seconds = True

    def __init__(self, tasks: Sequence[Task], hz: int) -> None:
        super().__init__(tasks, hz)
        self.used = {t.number: 0 for t in tasks}
        self.value = {t.number: 60 + t.nice for t in tasks}
        self.queues: dict[int, list[Task]] = {}
        self.to_tail = False

    def _value(self, task: Task) -> int:
        return 60 + task.nice + self.used[task.number] * 16 // 32

    def enqueue(self, task: Task, why: str, now: int) -> None:
        queue = self.queues.setdefault(self.value[task.number], [])
        queue.insert(0 if why == "preempted" and not self.to_tail else len(queue), task)
        self.to_tail = False

    def _best(self) -> int:
        return min((value for value, queue in self.queues.items() if queue), default=999)

    def preempts(self, task: Task, current: Task, now: int) -> bool:
        return self.value[task.number] < self.value[current.number]

    def pick(self, now: int, previous: Task | None) -> Task | None:
        best = self._best()
        return self.queues[best].pop(0) if best < 999 else None

    def stop(self, task: Task, why: str, now: int) -> None:
        if why == "slept":
            self.to_tail = False

    def tick(self, task: Task, now: int) -> bool:
        self.used[task.number] = min(120, self.used[task.number] + 1)
        self.value[task.number] = self._value(task)
        if self._best() <= self.value[task.number]:
            self.to_tail = True
            return True
        return False

    def second(self, now: int, current: Task | None) -> bool:
        for task in self.tasks:
            if task.state in ("dead", "new"):
                continue
            self.used[task.number] = self.used[task.number] * 16 // 32
            before, self.value[task.number] = self.value[task.number], self._value(task)
            if self.value[task.number] != before and task in self.queues.get(before, []):
                self.queues[before].remove(task)
                self.queues.setdefault(self.value[task.number], []).append(task)
        return current is not None and self._best() < self.value[current.number]
