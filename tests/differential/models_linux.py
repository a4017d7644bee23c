"""Independent models of Linux's fair class (kernel/sched/fair.c of 6.1 and 6.12), and of BFS
(kernel/sched/bfs.c), for one CPU and no groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .engine import Model, Task

#: sched_prio_to_weight and sched_prio_to_wmult (kernel/sched/core.c).
WEIGHT = [
    *(88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916),
    *(9548, 7620, 6100, 4904, 3906, 3121, 2501, 1991, 1586, 1277),
    *(1024, 820, 655, 526, 423, 335, 272, 215, 172, 137),
    *(110, 87, 70, 56, 45, 36, 29, 23, 18, 15),
]
INVERSE = [
    *(48388, 59856, 76040, 92818, 118348, 147320, 184698, 229616, 287308, 360437),
    *(449829, 563644, 704093, 875809, 1099582, 1376151, 1717300, 2157191, 2708050, 3363326),
    *(4194304, 5237765, 6557202, 8165337, 10153587, 12820798, 15790321, 19976592, 24970740, 31350126),
    *(
        39045157,
        49367440,
        61356676,
        76695844,
        95443717,
        119304647,
        148102320,
        186737708,
        238609294,
        286331153,
    ),
]


def scaled(delta: int, factor: int) -> int:
    """__calc_delta(): delta * factor >> 32, with the factor cut to 32 bits first."""
    high = (factor >> 32).bit_length()
    return delta * (factor >> high) >> (32 - high)


@dataclass
class Entity:
    """struct sched_entity, as far as it counts here."""

    task: Task
    weight: int
    inverse: int
    v: int = 0
    deadline: int = 0
    slice: int = 0
    #: Lag while off the queue; the deadline at the pick while running.
    vlag: int = 0
    on_rq: bool = False
    delayed: bool = False

    def fair(self, delta: int) -> int:
        """calc_delta_fair()."""
        if self.weight == 1024:
            return delta
        return scaled(delta, 1024 * self.inverse)


class Cfs(Model):
    """CFS of Linux 6.1.192 (kernel/sched/fair.c) with its default features; no task is forked."""

    LATENCY, LEAST, WAKEUP = 6_000_000, 750_000, 1_000_000

    def __init__(self, tasks: Sequence[Task], hz: int) -> None:
        super().__init__(tasks, hz)
        self.v = {t.number: 0 for t in tasks}
        self.e = {t.number: Entity(t, WEIGHT[t.nice + 20], INVERSE[t.nice + 20]) for t in tasks}
        self.queue: list[Task] = []
        self.order: dict[int, int] = {}
        self.count, self.least, self.since, self.in_slice = 0, 0, 0, 0
        self.current: Task | None = None
        self.last: Task | None = None
        self.next: Task | None = None
        self.was: Task | None = None

    def _leftmost(self) -> Task | None:
        return min(self.queue, key=lambda t: (self.v[t.number], self.order[t.number]), default=None)

    def _update_least(self) -> None:
        runnable = [t for t in (self.current, self._leftmost()) if t is not None]
        if runnable:
            self.least = max(self.least, min(self.v[t.number] for t in runnable))

    def _charge(self, now: int) -> None:
        if self.current is None:
            return
        ran, self.since = now - self.since, now
        if ran > 0:
            self.v[self.current.number] += self.e[self.current.number].fair(ran)
            self.in_slice += ran
            self._update_least()

    def _put(self, task: Task) -> None:
        self.count += 1
        self.order[task.number] = self.count
        self.queue.append(task)
        self._update_least()

    def _runnable(self) -> int:
        return len(self.queue) + (self.current is not None)

    def _slice(self, task: Task) -> int:
        """sched_slice()."""
        counted = self.queue + ([self.current] if self.current else [])
        load, count = sum(self.e[t.number].weight for t in counted), len(counted)
        period = self.LATENCY if count <= 8 else count * self.LEAST
        return max(scaled(period, self.e[task.number].weight * (0xFFFFFFFF // load)), self.LEAST)

    def enqueue(self, task: Task, why: str, now: int) -> None:
        if why == "wakeup":
            self._charge(now)
            self.v[task.number] = max(self.v[task.number], self.least - self.LATENCY // 2)
        elif why == "initial":
            # No parent forked it: it takes part from where the queue stands.
            self.v[task.number] = self.least
        self._put(task)

    def preempts(self, task: Task, current: Task, now: int) -> bool:
        self._charge(now)
        if self.v[current.number] - self.v[task.number] <= self.e[task.number].fair(self.WAKEUP):
            return False
        self.next = task
        if self._runnable() >= 8:
            self.last = current
        return True

    def tick(self, task: Task, now: int) -> bool:
        self._charge(now)
        count = self._runnable()
        if count <= 1:
            return False
        ideal = self._slice(task)
        if self.in_slice > ideal:
            # clear_buddies(): only where they are the running entity.
            self.next = None if self.next is task else self.next
            self.last = None if self.last is task else self.last
            return True
        if self.in_slice < self.LEAST:
            return False
        leftmost = self._leftmost()
        return leftmost is not None and self.v[task.number] - self.v[leftmost.number] > ideal

    def stop(self, task: Task, why: str, now: int) -> None:
        self._charge(now)
        self.current = None
        if why == "slept":
            self.was = None
            self.next = None if self.next is task else self.next
            self.last = None if self.last is task else self.last
            self._update_least()

    def pick(self, now: int, previous: Task | None) -> Task | None:
        leftmost = self._leftmost()
        if leftmost is None:
            return None
        found = leftmost
        for buddy in (self.next, self.last):
            if buddy is None or buddy not in self.queue:
                continue
            if self.v[buddy.number] - self.v[leftmost.number] <= self.e[leftmost.number].fair(self.WAKEUP):
                found = buddy
                break
        self.next = None if self.next is found else self.next
        self.last = None if self.last is found else self.last
        self.queue.remove(found)
        return found

    def start(self, task: Task, now: int) -> int | None:
        self.current, self.since = task, now
        if task is not self.was:
            self.in_slice = 0
        self.was = task
        return None


class Eevdf(Model):
    """EEVDF of 6.12.117 with its default features."""

    BASE = 700_000
    DELAYS = SHORT = HALF_FIRST = True

    def __init__(self, tasks: Sequence[Task], hz: int) -> None:
        super().__init__(tasks, hz)
        self.tick_ns = 1_000_000_000 // hz
        self.e = {t.number: Entity(t, WEIGHT[t.nice + 20], INVERSE[t.nice + 20]) for t in tasks}
        for e in self.e.values():
            if e.task.policy == "idle":
                e.weight, e.inverse = 3, 1431655765
        self.tree: list[Entity] = []
        self.curr: Entity | None = None
        self.start_exec, self.zero, self.need = 0, 0, False

    def _counted(self) -> list[Entity]:
        return self.tree + ([self.curr] if self.curr is not None and self.curr.on_rq else [])

    def _average(self) -> int:
        """avg_vruntime(): rounded down; what it was last where nothing is queued."""
        all_ = self._counted()
        if all_:
            self.zero = sum(e.v * e.weight for e in all_) // sum(e.weight for e in all_)
        return self.zero

    def _eligible(self, e: Entity) -> bool:
        all_ = self._counted()
        return sum((o.v - e.v) * o.weight for o in all_) >= 0

    def _put(self, e: Entity) -> None:
        """__enqueue_entity(): by deadline, behind equals."""
        place = len(self.tree)
        while place and self.tree[place - 1].deadline > e.deadline:
            place -= 1
        self.tree.insert(place, e)

    def _update(self, now: int) -> None:
        """update_curr()."""
        e = self.curr
        if e is None or now <= self.start_exec:
            return
        e.v += e.fair(now - self.start_exec)
        self.start_exec = now
        expired = e.v >= e.deadline
        if expired:
            e.slice = self.BASE
            e.deadline = e.v + e.fair(e.slice)
        if len(self._counted()) == 1 and e.on_rq:
            return
        if expired or (self.SHORT and e.vlag != e.deadline and not self._eligible(e)):
            self.need = True

    def _keep_lag(self, e: Entity) -> None:
        limit = e.fair(max(2 * e.slice, self.tick_ns))
        e.vlag = max(-limit, min(limit, self._average() - e.v))

    def _place(self, e: Entity, initial: bool) -> None:
        average, others = self._average(), self._counted()
        e.slice = self.BASE
        length, lag = e.fair(e.slice), 0
        if others:
            load = sum(o.weight for o in others)
            product = e.vlag * (load + e.weight)
            lag = abs(product) // load * (1 if product >= 0 else -1)
        e.v = average - lag
        e.deadline = e.v + (length // 2 if initial and self.HALF_FIRST else length)

    def enqueue(self, task: Task, why: str, now: int) -> None:
        e = self.e[task.number]
        if why == "preempted":
            return
        if e.delayed:
            # requeue_delayed_entity(): the running entity is not charged first.
            self._keep_lag(e)
            if e.vlag > 0:
                self.tree.remove(e)
                e.vlag = 0
                self._place(e, initial=False)
                self._put(e)
            e.delayed = False
            return
        self._update(now)
        self._place(e, why == "initial")
        self._put(e)
        e.on_rq = True

    def preempts(self, task: Task, current: Task, now: int) -> bool:
        """check_preempt_wakeup_fair()."""
        if self.need:
            return True
        idle, woken_idle = current.policy == "idle", task.policy == "idle"
        if idle and not woken_idle:
            self._unprotect(self.e[current.number])
            return True
        if woken_idle:
            return False
        self._update(now)
        return self.need or self._pick() is self.e[task.number]

    def _unprotect(self, e: Entity) -> None:
        """cancel_protect_slice()."""
        if e.vlag == e.deadline:
            e.vlag = e.deadline + 1

    def _pick(self) -> Entity | None:
        """pick_eevdf()."""
        curr = self.curr if self.curr is not None and self.curr.on_rq else None
        if len(self._counted()) == 1:
            return curr or self.tree[0]
        if curr is not None and not self._eligible(curr):
            curr = None
        if curr is not None and curr.vlag == curr.deadline:
            return curr
        best = next((e for e in self.tree if self._eligible(e)), None)
        if best is None or (curr is not None and curr.deadline < best.deadline):
            best = curr
        return best

    def _dequeue(self, e: Entity) -> None:
        self._keep_lag(e)
        if e is not self.curr:
            self.tree.remove(e)
        e.on_rq = False

    def stop(self, task: Task, why: str, now: int) -> None:
        self._update(now)
        if why != "slept":
            return
        e = self.e[task.number]
        # A dying task is not delayed (DEQUEUE_SPECIAL).
        if self.DELAYS and task.place >= 0 and not self._eligible(e):
            e.delayed = True
        else:
            self._dequeue(e)

    def pick(self, now: int, previous: Task | None) -> Task | None:
        self.need = False
        while True:
            if not self._counted():
                self.curr = None
                return None
            best = self._pick()
            assert best is not None, "the entity with the least vruntime is eligible"
            if not best.delayed:
                break
            self._dequeue(best)
            best.delayed, best.vlag = False, min(0, best.vlag)
        if best is not self.curr:
            if self.curr is not None and self.curr.on_rq:
                self._put(self.curr)
            self.tree.remove(best)
            best.vlag = best.deadline
            self.curr, self.start_exec = best, now
        return best.task

    def tick(self, task: Task, now: int) -> bool:
        self._update(now)
        return self.need


class Bfs(Model):
    """BFS 0.480 (kernel/sched/bfs.c for Linux 4.6), rr_interval 6."""

    RR, EXPIRED = 6, 100

    def __init__(self, tasks: Sequence[Task], hz: int) -> None:
        super().__init__(tasks, hz)
        self.jiffy, self.half_us = 1_000_000_000 // hz, 1_000_000 // hz // 2
        ratios = [128]
        for _ in range(39):
            ratios.append(ratios[-1] * 11 // 10)
        self.offset = {t.number: ratios[t.nice + 20] * self.RR * ((1 << 20) // 128) for t in tasks}
        self.slice: dict[int, int] = {}
        self.deadline: dict[int, int] = {}
        self.queue: list[tuple[bool, int, int, Task]] = []
        self.arrivals, self.kept, self.last_tick, self.dither = 0, 0, 0, False

    def _expired(self, task: Task, now: int) -> None:
        """time_slice_expired()."""
        self.slice[task.number] = self.RR << 10
        self.deadline[task.number] = now + self.offset[task.number]

    def enqueue(self, task: Task, why: str, now: int) -> None:
        if why == "initial":
            self._expired(task, now)
        self.arrivals += 1
        self.queue.append((task.policy == "idle", self.deadline[task.number], self.arrivals, task))

    def preempts(self, task: Task, current: Task, now: int) -> bool:
        if task.policy == "idle":
            return False
        if current.policy == "idle":
            return True
        return self.deadline[task.number] < self.deadline[current.number]

    def pick(self, now: int, previous: Task | None) -> Task | None:
        if not self.queue:
            return None
        best = min(self.queue, key=lambda entry: entry[:3])
        self.queue.remove(best)
        return best[3]

    def start(self, task: Task, now: int) -> int | None:
        self.kept, self.dither = now, now - self.last_tick <= self.jiffy // 2
        return None

    def _account(self, task: Task, now: int) -> None:
        """update_cpu_clock_*(), with niffy_diff()."""
        passed, self.kept = now - self.kept, now
        if passed < 1 or passed > 2 * self.jiffy:
            passed = 1
        self.slice[task.number] -= passed >> 10

    def stop(self, task: Task, why: str, now: int) -> None:
        self._account(task, now)
        if self.slice[task.number] < self.EXPIRED or task.policy == "batch":
            self._expired(task, now)

    def tick(self, task: Task, now: int) -> bool:
        self._account(task, now)
        self.last_tick = now
        if self.dither:
            if self.slice[task.number] > self.half_us:
                return False
            self.slice[task.number] = 0
            return True
        return self.slice[task.number] < self.EXPIRED
