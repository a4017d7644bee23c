"""Independent models of Linux's real-time classes, written from kernel/sched/rt.c of 6.1 and
deadline.c of 6.12, for one CPU."""

from __future__ import annotations

from collections.abc import Sequence

from .engine import MS, SECOND, Model, Task


class RealTime(Model):
    """SCHED_FIFO and SCHED_RR of 6.1.192, with throttling; a task without a priority is fair work below."""

    RUNTIME, PERIOD, SLICE = 950 * MS, SECOND, 100 * MS

    def __init__(self, tasks: Sequence[Task], hz: int) -> None:
        super().__init__(tasks, hz)
        self.lists: list[list[Task]] = [[] for _ in range(100)]
        self.slice = {t.number: -(-self.SLICE * hz // SECOND) for t in tasks}
        self.used, self.charged, self.throttled = 0, 0, False
        self.timer: int | None = None

    def _list(self, task: Task) -> list[Task]:
        return self.lists[99 - task.priority if task.priority else 99]

    def enqueue(self, task: Task, why: str, now: int) -> None:
        # A preempted task never left its place on the list.
        if why != "preempted":
            self._list(task).append(task)
            if task.priority and self.timer is None:
                self.timer = now + self.PERIOD

    def preempts(self, task: Task, current: Task, now: int) -> bool:
        return task.priority > current.priority and not self.throttled

    def pick(self, now: int, previous: Task | None) -> Task | None:
        lists = self.lists[99:] if self.throttled else self.lists
        return next((tasks[0] for tasks in lists if tasks), None)

    def start(self, task: Task, now: int) -> int | None:
        self.charged = now
        return None

    def _charge(self, task: Task, now: int) -> bool:
        """update_curr_rt()."""
        if not task.priority:
            return False
        self.used += now - self.charged
        self.charged = now
        if not self.throttled and self.used > self.RUNTIME:
            self.throttled = True
            return True
        return False

    def stop(self, task: Task, why: str, now: int) -> None:
        self._charge(task, now)
        if why == "slept":
            self._list(task).remove(task)

    def tick(self, task: Task, now: int) -> bool:
        need = self._charge(task, now)
        if task.policy != "rr":
            return need
        self.slice[task.number] -= 1
        if self.slice[task.number]:
            return need
        self.slice[task.number] = -(-self.SLICE * self.hz // SECOND)
        tasks = self._list(task)
        if len(tasks) > 1:
            tasks.remove(task)
            tasks.append(task)
            need = True
        return need

    def timers(self, now: int, current: Task | None) -> bool:
        """do_sched_rt_period_timer()."""
        self.used -= min(self.used, self.RUNTIME)
        woke = self.throttled and self.used < self.RUNTIME
        if woke:
            self.throttled = False
        waiting = any(self.lists[:99])
        self.timer = now + self.PERIOD if self.used or waiting else None
        return woke and waiting and current is not None and not current.priority


class Deadline(Model):
    """SCHED_DEADLINE of 6.12.117 with its default features (no HRTICK_DL, no reclaiming)."""

    def __init__(self, tasks: Sequence[Task], hz: int) -> None:
        super().__init__(tasks, hz)
        self.budget = {t.number: 0 for t in tasks}
        self.deadline: dict[int, int | None] = {t.number: None for t in tasks}
        self.throttled: dict[int, int] = {}
        self.asleep: set[int] = set()
        self.tree: list[Task] = []
        self.charged = 0

    def _due(self, task: Task) -> int:
        due = self.deadline[task.number]
        assert due is not None
        return due

    def _insert(self, task: Task) -> None:
        place = len(self.tree)
        while place and self._due(self.tree[place - 1]) > self._due(task):
            place -= 1
        self.tree.insert(place, task)

    def _new_period(self, task: Task, now: int) -> None:
        self.deadline[task.number], self.budget[task.number] = now + task.relative, task.runtime

    def _next_period(self, task: Task) -> int:
        return self._due(task) - task.relative + task.period

    def _throttle(self, task: Task) -> None:
        self.throttled[task.number] = self._next_period(task)

    def enqueue(self, task: Task, why: str, now: int) -> None:
        number = task.number
        self.asleep.discard(number)
        if why == "preempted" or number in self.throttled:
            return
        if self.deadline[number] is None:
            self._new_period(task, now)
        due = self._due(task)
        implicit = task.relative == task.period
        if not implicit and due < now < self._next_period(task):
            # dl_check_constrained_dl()
            self._throttle(task)
            self.budget[number] = min(0, self.budget[number])
            return
        # dl_entity_overflow(), in units of 1024 ns.
        left = (task.relative >> 10) * (self.budget[number] >> 10)
        if due < now or left > (due - now >> 10) * (task.runtime >> 10):
            if implicit or due < now:
                self._new_period(task, now)
            else:
                self.budget[number] = ((task.runtime << 20) // task.relative) * (due - now) >> 20
        self._insert(task)

    def preempts(self, task: Task, current: Task, now: int) -> bool:
        return task in self.tree and self._due(task) < self._due(current)

    def pick(self, now: int, previous: Task | None) -> Task | None:
        return self.tree[0] if self.tree else None

    def start(self, task: Task, now: int) -> int | None:
        self.charged = now
        return None

    def _replenish(self, task: Task, now: int) -> None:
        number = task.number
        while self.budget[number] <= 0:
            self.deadline[number] = self._due(task) + task.period
            self.budget[number] += task.runtime
        if self._due(task) < now:
            self._new_period(task, now)

    def _charge(self, task: Task, now: int) -> bool:
        """update_curr_dl()."""
        ran, self.charged = now - self.charged, now
        if ran <= 0 or task not in self.tree:
            return False
        self.budget[task.number] -= ran
        if self.budget[task.number] > 0:
            return False
        self.tree.remove(task)
        # start_dl_timer() refuses what lies a microsecond and more behind.
        if now - self._next_period(task) >= 1000:
            self._replenish(task, now)
            self._insert(task)
        else:
            self._throttle(task)
        return not self.tree or self.tree[0] is not task

    def stop(self, task: Task, why: str, now: int) -> None:
        self._charge(task, now)
        if why == "slept":
            if task in self.tree:
                self.tree.remove(task)
            self.asleep.add(task.number)

    def tick(self, task: Task, now: int) -> bool:
        return self._charge(task, now)

    @property
    def timer(self) -> int | None:
        """When the next throttled task gets its budget."""
        return min(self.throttled.values(), default=None)

    def timers(self, now: int, current: Task | None) -> bool:
        need = False
        for task in self.tasks:
            if self.throttled.get(task.number) != now:
                continue
            del self.throttled[task.number]
            self._replenish(task, now)
            if task.number in self.asleep or task.state == "dead":
                continue
            self._insert(task)
            need |= current is None or self._due(task) < self._due(current)
        return need
