"""Independent models of textbook policies, of scx_simple, and of the NT 4 dispatcher as its
published descriptions have it, for one CPU."""

from __future__ import annotations

from collections.abc import Sequence

from .engine import MS, Model, Task
from .models_linux import WEIGHT


class FirstCome(Model):
    """A queue; a task runs until it sleeps."""

    def __init__(self, tasks: Sequence[Task], hz: int) -> None:
        super().__init__(tasks, hz)
        self.queue: list[Task] = []

    def enqueue(self, task: Task, why: str, now: int) -> None:
        self.queue.insert(0 if why == "preempted" else len(self.queue), task)

    def pick(self, now: int, previous: Task | None) -> Task | None:
        return self.queue.pop(0) if self.queue else None


class ShortestRemaining(Model):
    """Schrage 1968: the burst with the least left runs, and preempts."""

    preemptive = True

    def __init__(self, tasks: Sequence[Task], hz: int) -> None:
        super().__init__(tasks, hz)
        self.queue: list[Task] = []

    def enqueue(self, task: Task, why: str, now: int) -> None:
        self.queue.append(task)

    def preempts(self, task: Task, current: Task, now: int) -> bool:
        return self.preemptive and task.left < current.left

    def pick(self, now: int, previous: Task | None) -> Task | None:
        if not self.queue:
            return None
        best = min(self.queue, key=lambda t: t.left)
        self.queue.remove(best)
        return best


class ShortestJob(ShortestRemaining):
    """The shortest burst is next; nothing preempts."""

    preemptive = False


class ScxSimple(Model):
    """scx_simple of Linux 6.12 (tools/sched_ext/scx_simple.bpf.c, kernel/sched/ext.c): one queue by
    weighted virtual time."""

    SLICE = 20 * MS
    #: sched_weight_to_cgroup(), rounded to nearest.
    SCALE = tuple(max(1, min(10_000, (w * 100 + 512) // 1024)) for w in WEIGHT)

    def __init__(self, tasks: Sequence[Task], hz: int) -> None:
        super().__init__(tasks, hz)
        self.shared: list[tuple[int, int, Task]] = []
        self.local: list[Task] = []
        self.vtime: dict[int, int] = {}
        self.slice: dict[int, int] = {}
        self.now_v, self.arrivals, self.kept = 0, 0, 0
        self.curr: Task | None = None

    def _enqueue(self, task: Task) -> None:
        """simple_enqueue(), and scx_bpf_dsq_insert_vtime()."""
        number = task.number
        self.vtime[number] = max(self.vtime[number], self.now_v - self.SLICE)
        self.slice[number] = self.SLICE
        self.arrivals += 1
        self.shared.append((self.vtime[number], self.arrivals, task))

    def enqueue(self, task: Task, why: str, now: int) -> None:
        if why == "preempted":
            return
        if why == "initial":
            self.vtime[task.number] = self.now_v
        if self.curr is None and not self.local and not self.shared:
            self.slice[task.number] = self.SLICE
            self.local.append(task)
        else:
            self._enqueue(task)

    def _update(self, task: Task, now: int) -> None:
        self.slice[task.number] -= min(self.slice[task.number], now - self.kept)
        self.kept = now

    def _stopping(self, task: Task) -> None:
        used = self.SLICE - self.slice[task.number]
        self.vtime[task.number] += used * 100 // self.SCALE[task.nice + 20]

    def stop(self, task: Task, why: str, now: int) -> None:
        self._update(task, now)
        if why == "slept":
            self._stopping(task)
            self.curr = None

    def pick(self, now: int, previous: Task | None) -> Task | None:
        # balance_one(): the next task is taken before the previous one is put back.
        prev = self.curr
        if self.local:
            found: Task | None = self.local.pop(0)
        elif self.shared:
            best = min(self.shared, key=lambda entry: entry[:2])
            self.shared.remove(best)
            found = best[2]
        else:
            if prev is not None:
                self.slice[prev.number] = self.SLICE
            return prev
        if prev is not None:
            self._stopping(prev)
            self._enqueue(prev)
        return found

    def start(self, task: Task, now: int) -> int | None:
        if task is not self.curr:
            self.curr = task
            self.now_v = max(self.now_v, self.vtime[task.number])
        self.kept = now
        return None

    def tick(self, task: Task, now: int) -> bool:
        self._update(task, now)
        return self.slice[task.number] == 0


class Nt4(Model):
    """The NT 4 dispatcher by published descriptions: quanta of 3 units a tick, decay to the base, a
    balance set scan a second.

    Sleeps end by timers, which add no increment.
    """

    seconds = True
    RESET, LONGEST = 6, 3_000_000_000

    def __init__(self, tasks: Sequence[Task], hz: int) -> None:
        super().__init__(tasks, hz)
        self.base = {t.number: max(1, min(15, 8 - int(t.nice / 5))) for t in tasks}
        self.priority = dict(self.base)
        self.quantum = {t.number: self.RESET for t in tasks}
        self.above = {t.number: 0 for t in tasks}
        self.levels: list[list[Task]] = [[] for _ in range(32)]
        self.since: dict[int, int] = {}
        self.to_tail = False

    def enqueue(self, task: Task, why: str, now: int) -> None:
        number = task.number
        if why == "wakeup":
            if self.base[number] < 14:
                self.quantum[number] -= 1
                if self.quantum[number] <= 0:
                    self._ends(task)
            else:
                self.quantum[number] = self.RESET
        level = self.levels[self.priority[number]]
        level.insert(0 if why == "preempted" and not self.to_tail else len(level), task)
        self.to_tail = False
        self.since[number] = now

    def _ends(self, task: Task) -> None:
        number = task.number
        self.quantum[number] = self.RESET
        self.priority[number] = max(self.base[number], self.priority[number] - self.above[number] - 1)
        self.above[number] = 0

    def _best(self) -> int:
        return max((level for level in range(32) if self.levels[level]), default=-1)

    def preempts(self, task: Task, current: Task, now: int) -> bool:
        return self.priority[task.number] > self.priority[current.number]

    def pick(self, now: int, previous: Task | None) -> Task | None:
        best = self._best()
        return self.levels[best].pop(0) if best >= 0 else None

    def stop(self, task: Task, why: str, now: int) -> None:
        if why == "slept":
            self.to_tail = False

    def tick(self, task: Task, now: int) -> bool:
        self.quantum[task.number] -= 3
        if self.quantum[task.number] > 0:
            return False
        self._ends(task)
        self.to_tail = self._best() >= self.priority[task.number]
        return self.to_tail

    def second(self, now: int, current: Task | None) -> bool:
        starved, looked = [], 0
        for level in range(14, 0, -1):
            for task in self.levels[level]:
                looked += 1
                if now - self.since[task.number] >= self.LONGEST and looked <= 16 and len(starved) < 10:
                    starved.append(task)
        for task in starved:
            number = task.number
            self.levels[self.priority[number]].remove(task)
            self.above[number] += 15 - self.priority[number]
            self.priority[number], self.quantum[number] = 15, 2 * self.RESET
            self.levels[15].append(task)
        return bool(starved) and current is not None and self.priority[current.number] < 15
