"""Independent models of FreeBSD's schedulers, each written from the file that it names, for one CPU."""

from __future__ import annotations

from collections.abc import Sequence

from .engine import SECOND, Model, Task


class Bsd4(Model):
    """FreeBSD's 4BSD scheduler (sys/kern/sched_4bsd.c of 2024, one CPU, sleeps without a priority)."""

    seconds = True
    #: Statistics ticks of a slice, a tenth of a second of stathz=97.
    SLICE = 9
    FSCALE = 2048
    #: exp(-1/12) in units of FSCALE (kern_synch.c, cexp).
    KEPT = int(0.9200444146293232 * FSCALE)

    def __init__(self, tasks: Sequence[Task], hz: int) -> None:
        super().__init__(tasks, hz)
        #: INVERSE_ESTCPU_WEIGHT: 8 for each CPU.
        self.weight = 8
        #: Threads that run on other CPUs than that of the kernel thread.
        self.others: list[Task] = []
        self.estcpu = {t.number: 0 for t in tasks}
        self.slptime = {t.number: 0 for t in tasks}
        self.slice = {t.number: self.SLICE for t in tasks}
        self.did_run = {t.number: False for t in tasks}
        self.restart()
        self.queues: list[list[Task]] = [[] for _ in range(64)]
        self.ldavg, self.passed = 0, 0
        self.schedcpu_ran = False

    def restart(self) -> None:
        """Priorities of threads that have not run."""
        self.user = {t.number: self._resetpriority(t) for t in self.tasks}
        self.pri = dict(self.user)

    def _resetpriority(self, task: Task) -> int:
        return max(160, min(223, 160 + self.estcpu[task.number] // self.weight + task.nice + 20))

    def _decay(self, estcpu: int) -> int:
        loadfac = 2 * self.ldavg
        return loadfac * estcpu // (loadfac + self.FSCALE)

    def _queue(self, task: Task) -> list[Task]:
        return self.queues[self.pri[task.number] // 4]

    def enqueue(self, task: Task, why: str, now: int) -> None:
        number = task.number
        if why == "wakeup":
            if self.slptime[number] > 1:
                # updatepri(): slptime counts from 1, and its first second has been decayed.
                if self.slptime[number] > 5 * 2 * self.ldavg:
                    self.estcpu[number] = 0
                for _ in range(self.slptime[number] - 2):
                    self.estcpu[number] = self._decay(self.estcpu[number])
                self.user[number] = self._resetpriority(task)
            self.slptime[number], self.slice[number] = 0, self.SLICE
        # A switch by way of an AST does not carry SW_PREEMPT: to the tail.
        if why == "preempted" and self.schedcpu_ran:
            self.schedcpu_ran = False
            return
        self._queue(task).append(task)

    def preempts(self, task: Task, current: Task, now: int) -> bool:
        return self.pri[task.number] < self.pri[current.number]

    def pick(self, now: int, previous: Task | None) -> Task | None:
        for queue in self.queues:
            if queue:
                self.did_run[queue[0].number] = True
                return queue.pop(0)
        return None

    def start(self, task: Task, now: int) -> int | None:
        # Back in user mode.
        self.pri[task.number] = self.user[task.number]
        return None

    def stop(self, task: Task, why: str, now: int) -> None:
        if why == "slept":
            self.slptime[task.number] = 0

    def tick(self, task: Task, now: int) -> bool:
        number = task.number
        self.estcpu[number] = min(self.estcpu[number] + 1, self.weight * 36 + self.weight - 1)
        if self.estcpu[number] % self.weight == 0:
            self.user[number] = self.pri[number] = self._resetpriority(task)
        self.slice[number] -= 1
        if self.slice[number] <= 0:
            self.slice[number] = self.SLICE
            return True
        return False

    def second(self, now: int, current: Task | None) -> bool:
        self.passed += 1
        runnable = [t for queue in self.queues for t in queue] + ([current] if current else []) + self.others
        if self.passed % 5 == 0:
            load = len(runnable) * self.FSCALE * (self.FSCALE - self.KEPT)
            self.ldavg = (self.KEPT * self.ldavg + load) // self.FSCALE
        # The kernel thread takes the CPU: what ran is on a run queue while schedcpu() works.
        if current is not None:
            self._queue(current).append(current)
            self.schedcpu_ran = True
        for task in self.tasks:
            number = task.number
            if task.state in ("new", "dead"):
                continue
            awake = task in runnable or self.did_run[number]
            self.did_run[number] &= task in self.others
            self.slptime[number] = 0 if awake else self.slptime[number] + 1
            if self.slptime[number] > 1:
                continue
            before = self.pri[number]
            self.estcpu[number] = self._decay(self.estcpu[number])
            self.user[number] = self.pri[number] = self._resetpriority(task)
            if task in self.queues[before // 4] and self.pri[number] // 4 != before // 4:
                self.queues[before // 4].remove(task)
                self._queue(task).append(task)
        return current is not None


#: The longest history of run and sleep time, and what a child takes of it, seconds.
HISTORY = 5


class UleHistory:
    """Run and sleep time of a thread in clock ticks of 1/1024 (sched_interact_score and
    sched_interact_update)."""

    def __init__(self, hz: int, caps: bool) -> None:
        self.run, self.sleep, self.caps = 0, 0, caps
        self.most = (HISTORY * hz) << 10

    def score(self, shortcut: bool) -> int:
        if shortcut and self.run >= self.sleep:
            return 50
        if self.run > self.sleep:
            return 50 + (50 - self.sleep // max(1, self.run // 50))
        if self.sleep > self.run:
            return self.run // max(1, self.sleep // 50)
        return 0

    def bounded(self) -> None:
        total = self.run + self.sleep
        if total < self.most:
            return
        if self.caps and total > 2 * self.most:
            more = self.run > self.sleep
            self.run, self.sleep = (self.most, 1) if more else (1, self.most)
        elif total > self.most // 5 * 6:
            self.run, self.sleep = self.run // 2, self.sleep // 2
        else:
            self.run, self.sleep = self.run // 5 * 4, self.sleep // 5 * 4


class Ule(Model):
    """ULE of about 2022 (sys/kern/sched_ule.c at d8d5f03), with the calendar queue."""

    #: Statistics clock ticks a second, and slices in them.
    STATHZ = 97
    SLICE = STATHZ // 10
    LEAST = SLICE // 6
    BATCH = 152

    def __init__(self, tasks: Sequence[Task], hz: int) -> None:
        super().__init__(tasks, hz)
        self.clock = SECOND // hz
        self.of = {t.number: UleHistory(hz, caps=True) for t in tasks}
        self.cpu = {t.number: 0 for t in tasks}
        # A thread without a parent begins its account when it appears.
        self.first = {t.number: t.start // self.clock for t in tasks}
        self.last = dict(self.first)
        self.slice = {t.number: 0 for t in tasks}
        self.slept_at: dict[int, int] = {}
        self.user = {t.number: self._priority(t) for t in tasks}
        self.pri = dict(self.user)
        self.realtime: list[list[Task]] = [[] for _ in range(64)]
        self.calendar: list[list[Task]] = [[] for _ in range(64)]
        self.index, self.removal = 0, 0
        self.load = 0

    def _priority(self, task: Task) -> int:
        number = task.number
        score = max(0, self.of[number].score(shortcut=True) + task.nice)
        if score < 30:
            return 120 + 32 // 30 * score
        pri = self.BATCH + 20 + task.nice
        if self.cpu[number]:
            total = max(self.last[number] - self.first[number], self.hz)
            pri += min((self.cpu[number] >> 10) // ((total + 31) // 32), 31)
        return pri

    def _use(self, task: Task, now: int, ran: bool) -> None:
        """sched_pctcpu_update()."""
        number, ticks = task.number, now // self.clock
        target = 10 * self.hz
        if ticks - self.last[number] >= target:
            self.cpu[number], self.first[number] = 0, ticks - target
        elif ticks - self.first[number] >= target + self.hz:
            span = self.last[number] - self.first[number]
            self.cpu[number] = self.cpu[number] // span * (self.last[number] - (ticks - target))
            self.first[number] = ticks - target
        if ran:
            self.cpu[number] += (ticks - self.last[number]) << 10
        self.last[number] = ticks

    def _add(self, task: Task) -> None:
        """tdq_runq_add()."""
        pri = self.pri[task.number]
        if pri < self.BATCH:
            self.realtime[pri // 4].append(task)
            return
        slot = (64 * (pri - self.BATCH) // 72 + self.index) % 64
        if self.removal != self.index and slot == self.removal:
            slot = (slot - 1) % 64
        self.calendar[slot].append(task)

    def enqueue(self, task: Task, why: str, now: int) -> None:
        number = task.number
        if why == "preempted":
            # ast(): the user priority counts, and there is no SW_PREEMPT.
            self.pri[number] = self.user[number]
            self._add(task)
            return
        slept = self.slept_at.pop(number, None)
        if slept is not None and slept != now // self.clock:
            self.of[number].sleep += (now // self.clock - slept) << 10
            self.of[number].bounded()
            self._use(task, now, ran=False)
        self.slice[number] = 0
        self.user[number] = self._priority(task)
        if why == "initial":
            self.pri[number] = self.user[number]
        self._add(task)
        self.load += 1

    def preempts(self, task: Task, current: Task, now: int) -> bool:
        return self.pri[task.number] < self.pri[current.number]

    def choose(self) -> Task | None:
        """tdq_choose()."""
        slots = (self.calendar[(self.removal + ahead) % 64] for ahead in range(64))
        return next((queue[0] for queue in (*self.realtime, *slots) if queue), None)

    def remove(self, task: Task) -> None:
        """tdq_runq_rem()."""
        for queue in self.realtime:
            if task in queue:
                queue.remove(task)
                return
        slot = next(slot for slot in range(64) if task in self.calendar[slot])
        self.calendar[slot].remove(task)
        if self.index != self.removal and not self.calendar[slot] and slot == self.removal:
            self.removal = (slot + 1) % 64

    def pick(self, now: int, previous: Task | None) -> Task | None:
        found = self.choose()
        if found is not None:
            self.remove(found)
            self._use(found, now, ran=False)
            self.pri[found.number] = self.user[found.number]
        return found

    def stop(self, task: Task, why: str, now: int) -> None:
        number = task.number
        self._use(task, now, ran=True)
        if why == "slept":
            self.slept_at[number] = now // self.clock
            self.pri[number] = min(self.pri[number], self.BATCH)
            self.load -= 1

    def tick(self, task: Task, now: int) -> bool:
        number = task.number
        if self.index == self.removal:
            self.index = (self.index + 1) % 64
            if not self.calendar[self.removal]:
                self.removal = self.index
        self._use(task, now, ran=True)
        self.of[number].run += (self.hz << 10) // self.STATHZ
        self.of[number].bounded()
        self.user[number] = self._priority(task)
        self.slice[number] += 1
        others = self.load - 1
        full = self.LEAST if others >= 6 else self.SLICE if others <= 1 else self.SLICE // others
        if self.slice[number] < full:
            return False
        self.slice[number] = 0
        return True


class Ule2004(Model):
    """ULE of December 2004 (sys/kern/sched_ule.c at 0005e2b), with two arrays; kernel priorities aside."""

    STATHZ = 97

    def __init__(self, tasks: Sequence[Task], hz: int) -> None:
        super().__init__(tasks, hz)
        self.clock = SECOND // hz
        self.least, self.most = hz // 100, hz // 7
        self.of = {t.number: UleHistory(hz, caps=False) for t in tasks}
        self.slept_at: dict[int, int] = {}
        self.pri = {t.number: self._priority(t) for t in tasks}
        self.slice = {t.number: self.most for t in tasks}
        self.current: list[list[Task]] = [[] for _ in range(64)]
        self.next: list[list[Task]] = [[] for _ in range(64)]
        self.nice = [0] * 41
        self.nicemin, self.load = 0, 0

    def _priority(self, task: Task) -> int:
        score = self.of[task.number].score(shortcut=False)
        return max(160, min(223, 160 + score * 64 // 100 + task.nice))

    def _interactive(self, task: Task) -> bool:
        return self.of[task.number].score(shortcut=False) < 30

    def _count(self, task: Task) -> None:
        self.load += 1
        self.nice[task.nice + 20] += 1
        if task.nice < self.nicemin or self.load == 1:
            self.nicemin = task.nice

    def _uncount(self, task: Task) -> None:
        self.load -= 1
        self.nice[task.nice + 20] -= 1
        if task.nice == self.nicemin and not self.nice[task.nice + 20] and self.load:
            self.nicemin = next(i for i in range(task.nice + 20, 41) if self.nice[i]) - 20

    def _slice(self, task: Task) -> None:
        length = self.most
        if not self._interactive(task):
            above = task.nice - self.nicemin
            if self.load == 0 or task.nice < self.nicemin:
                length = self.most
            elif above <= 19:
                length = self.most - above * (self.most - self.least + 1) // 19
            else:
                length = self.least if task.nice == 0 else 0
        self.slice[task.number] = length

    def _add(self, task: Task) -> None:
        array = self.current if self._interactive(task) else self.next
        array[self.pri[task.number] // 4].append(task)
        self._count(task)

    def enqueue(self, task: Task, why: str, now: int) -> None:
        number = task.number
        if why == "wakeup":
            ticks = (now // self.clock - self.slept_at.pop(number, now // self.clock)) << 10
            history = self.of[number]
            if ticks >= history.most:
                history.sleep, history.run = history.most, 1
            else:
                history.sleep += ticks
                history.bounded()
            self.pri[number] = self._priority(task)
            self._slice(task)
        self._add(task)

    def preempts(self, task: Task, current: Task, now: int) -> bool:
        return self.pri[task.number] < self.pri[current.number] and self._interactive(task)

    def _choose(self) -> Task | None:
        swapped = False
        while True:
            queue = next((q for q in self.current if q), None)
            if queue is None:
                if swapped:
                    return None
                self.current, self.next, swapped = self.next, self.current, True
                continue
            if self.slice[queue[0].number]:
                return queue.pop(0)
            task = queue.pop(0)
            self._slice(task)
            self.next[self.pri[task.number] // 4].append(task)

    def pick(self, now: int, previous: Task | None) -> Task | None:
        # The idle thread chooses again where threads wait.
        while (found := self._choose()) is None and self.load:
            pass
        return found

    def stop(self, task: Task, why: str, now: int) -> None:
        self._uncount(task)
        if why == "slept":
            self.slept_at[task.number] = now // self.clock

    def tick(self, task: Task, now: int) -> bool:
        number = task.number
        self.of[number].run += max(1, self.hz // self.STATHZ) << 10
        self.of[number].bounded()
        self.slice[number] -= 1
        if self.slice[number] > 0:
            return False
        self._uncount(task)
        self.pri[number] = self._priority(task)
        self._slice(task)
        self._count(task)
        return True
