//! The O(n) "goodness" schedulers of Linux 2.0, 2.2 and 2.4. See [`INFO`].

mod info;
mod ready;

pub use info::INFO;

use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Stop};
use crate::queue::TaskMap;
use crate::task::{Attrs, Cpu, SchedPolicy, TaskId, TaskState};
use ready::{Candidate, Ready};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V20,
    V22,
    V24,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    /// As of the recalculation number `epoch`: see [`Goodness::counter`].
    counter: i64,
    epoch: u64,
    priority: i64,
    yielded: bool,
    /// Place in the kernel's list of runnable tasks, those that run included; smaller is nearer to the head.
    place: Option<i64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stats {
    schedules: i64,
    recalcs: i64,
    walked: i64,
    longest: i64,
    over_10: i64,
}

/// State of the policy.
pub struct Goodness {
    version: Version,
    /// Early 2.4: the walk begins with the task that ran, where it may go on.
    prev_first: bool,
    penalty: i64,
    of: TaskMap<Counter>,
    /// Tasks on the list that do not run.
    ready: Ready,
    /// Tasks on the list.
    length: usize,
    /// Places before the head and behind the tail of the list.
    places: (i64, i64),
    /// Number of recalculations.
    epoch: u64,
    /// The task that left each CPU in the schedule() that is going on.
    prev: Vec<Option<TaskId>>,
    prev_process: Vec<Option<u32>>,
    stats: Stats,
}

/// Ticks per refill: the nice value through setpriority() in 2.0 and 2.2, NICE_TO_TICKS at HZ 100 in 2.4.
fn refill(version: Version, nice: i32) -> i64 {
    let nice = i64::from(nice.clamp(-20, 19));
    if version == Version::V24 {
        return ((20 - nice) >> 2) + 1;
    }
    let p = (nice.abs().min(20) * 20 + 10) / 20 + 20;
    if nice >= 0 {
        (40 - p).max(1)
    } else {
        p
    }
}

fn better(a: Candidate, b: Candidate) -> Candidate {
    if (a.0, -a.1) > (b.0, -b.1) {
        a
    } else {
        b
    }
}

impl Goodness {
    /// The counter of `t` after the recalculations that it does not know of. They converge, so
    /// few steps do.
    fn counter(&self, t: TaskId) -> i64 {
        let c = &self.of[t];
        let mut counter = c.counter;
        for _ in c.epoch..self.epoch {
            let next = (counter >> 1) + c.priority;
            if next == counter {
                break;
            }
            counter = next;
        }
        counter
    }

    /// Changes `t`, which may be queued, and whose counter is brought up to date before.
    fn change(&mut self, k: &Kernel, t: TaskId, f: impl FnOnce(&mut Counter)) {
        let queued = self.ready.remove(t);
        let counter = self.counter(t);
        let c = &mut self.of[t];
        (c.counter, c.epoch) = (counter, self.epoch);
        f(c);
        if queued {
            self.add(k, t);
        }
    }

    fn goodness(&self, k: &Kernel, cpu: Cpu, t: TaskId) -> i64 {
        let task = k.task(t);
        let c = &self.of[t];
        if task.attrs.policy.is_rt() {
            return 1000 + i64::from(task.attrs.rt_prio);
        }
        let counter = self.counter(t);
        let prev = self.prev[cpu] == Some(t) || k.curr(cpu) == Some(t);
        let here = if k.nr_cpus() > 1 && task.cpu == cpu { self.penalty } else { 0 };
        let same_memory = task.attrs.process.is_some() && task.attrs.process == self.prev_process[cpu];
        match self.version {
            Version::V24 if c.yielded => -1,
            Version::V22 if c.yielded => 0,
            _ if counter == 0 => 0,
            Version::V20 => counter + here + i64::from(prev),
            Version::V22 => counter + here + c.priority + i64::from(prev || same_memory),
            Version::V24 => {
                counter + here + i64::from(prev || same_memory || task.attrs.kernel) + 20 - i64::from(task.attrs.nice)
            }
        }
    }

    /// Puts `t`, which is on the list and does not run, where it is found by its goodness.
    fn add(&mut self, k: &Kernel, t: TaskId) {
        let task = k.task(t);
        let attrs = &task.attrs;
        let c = self.of[t];
        let place = c.place.unwrap_or_default();
        if c.yielded || !attrs.affinity.is_all() {
            return self.ready.add_odd(t);
        }
        if attrs.policy.is_rt() {
            return self.ready.add(1000 + i64::from(attrs.rt_prio), place, t, None, None);
        }
        let counter = self.counter(t);
        if counter == 0 {
            return self.ready.add_zero(place, t);
        }
        let cpu = (k.nr_cpus() > 1).then_some(task.cpu);
        let kernel = self.version == Version::V24 && attrs.kernel;
        let (more, process) = match self.version {
            Version::V20 => (0, None),
            Version::V22 => (c.priority, attrs.process),
            Version::V24 => (i64::from(kernel) + 20 - i64::from(attrs.nice), attrs.process.filter(|_| !kernel)),
        };
        self.ready.add(counter + more, place, t, cpu, process);
    }

    /// Puts `t` on the list.
    fn list(&mut self, t: TaskId, head: bool) {
        self.length += usize::from(self.of[t].place.is_none());
        let place = if head {
            self.places.0 -= 1;
            self.places.0
        } else {
            self.places.1 += 1;
            self.places.1
        };
        self.of[t].place = Some(place);
    }

    fn unlist(&mut self, t: TaskId) {
        self.ready.remove(t);
        self.length -= usize::from(self.of[t].place.take().is_some());
    }

    /// What the kernel's walk over the list finds: the first task with the greatest goodness, and that.
    fn best(&self, k: &Kernel, cpu: Cpu) -> Option<Candidate> {
        let near = (k.nr_cpus() > 1).then_some(cpu);
        let memory = self.prev_process[cpu];
        let from_groups = [
            (self.ready.first((None, None)), 0),
            (near.and_then(|_| self.ready.first((near, None))), self.penalty),
            (memory.and_then(|_| self.ready.first((None, memory))), 1),
            (near.and(memory).and_then(|_| self.ready.first((near, memory))), self.penalty + 1),
        ];
        let from_groups = from_groups.into_iter().filter_map(|(c, bonus)| c.map(|c| (c.0 + bonus, c.1, c.2)));
        let one_by_one = self.ready.odd().chain(self.prev[cpu]).filter_map(|t| {
            let place = self.of[t].place?;
            let fits = k.task(t).state == TaskState::Runnable && k.allowed(t, cpu);
            let first = self.prev_first && self.prev[cpu] == Some(t);
            fits.then(|| (self.goodness(k, cpu, t), if first { i64::MIN + 1 } else { place }, t))
        });
        from_groups.chain(self.ready.first_zero()).chain(one_by_one).reduce(better)
    }

    /// The same by a walk over the list: what `best` is held against in builds with assertions.
    #[cfg(debug_assertions)]
    fn walk(&self, k: &Kernel, cpu: Cpu) -> Option<Candidate> {
        let on_list = (0..k.nr_tasks() as u32).map(TaskId).filter_map(|t| Some((self.of.get(t)?.place?, t)));
        let mut list: Vec<_> = on_list.collect();
        list.sort_unstable();
        assert_eq!(list.len(), self.length);
        let mut best: Option<Candidate> = None;
        if let (true, Some(prev)) = (self.prev_first, self.prev[cpu]) {
            if let Some(i) = list.iter().position(|&(_, t)| t == prev) {
                list[i].0 = i64::MIN + 1;
                list.sort_unstable();
            }
        }
        for (place, t) in list {
            if k.task(t).state == TaskState::Running || !k.allowed(t, cpu) {
                continue;
            }
            let g = self.goodness(k, cpu, t);
            if g > best.map_or(-1000, |b| b.0) {
                best = Some((g, place, t));
            }
        }
        best
    }

    /// Chooses, and counts what the walk would have cost the kernel.
    fn search(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<Candidate> {
        let best = self.best(k, cpu);
        #[cfg(debug_assertions)]
        assert_eq!(best, self.walk(k, cpu));
        k.scanned(cpu, self.length);
        self.stats.walked += self.length as i64;
        self.stats.longest = self.stats.longest.max(self.length as i64);
        self.stats.over_10 += i64::from(self.length > 10);
        if let (Version::V22, Some(prev)) = (self.version, self.prev[cpu]) {
            self.change(k, prev, |c| c.yielded = false);
        }
        best
    }

    /// New counters for every task of the system. Queued tasks have nothing left, or they would
    /// have been chosen, but for one that yielded: these are queued anew. The others learn of it
    /// when they are looked at.
    fn recalculate(&mut self, k: &mut Kernel, cpu: Cpu) {
        self.stats.recalcs += 1;
        k.recalculated(cpu, k.nr_live());
        self.epoch += 1;
        for t in self.ready.take_zero() {
            self.add(k, t);
        }
        if let Some(prev) = self.prev[cpu] {
            self.change(k, prev, |_| ());
        }
    }
}

impl Policy for Goodness {
    fn init(&mut self, k: &mut Kernel) {
        self.prev = vec![None; k.nr_cpus()];
        self.prev_process = vec![None; k.nr_cpus()];
    }

    fn init_task(&mut self, k: &mut Kernel, t: TaskId, birth: Option<Birth>) {
        let priority = refill(self.version, k.task(t).attrs.nice);
        *self.of.ensure(t) = Counter { counter: priority, epoch: self.epoch, priority, ..Counter::default() };
        let Some(birth) = birth else { return };
        let whole = self.counter(birth.parent);
        self.of[t].counter = match self.version {
            Version::V24 => (whole + 1) >> 1,
            _ => whole >> 1,
        };
        self.change(k, birth.parent, |c| c.counter = whole >> 1);
        if self.version == Version::V24 && whole >> 1 == 0 {
            k.resched(k.task(birth.parent).cpu);
        }
    }

    fn exit_task(&mut self, k: &mut Kernel, t: TaskId) {
        if self.version != Version::V24 {
            return;
        }
        if let Some(parent) = k.task(t).parent {
            let back = self.counter(t);
            let most = 20 * k.hz() / 100;
            self.change(k, parent, |c| c.counter = (c.counter + back).min(most.max(c.counter)));
        }
    }

    fn enqueue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Enqueue) {
        match why {
            Enqueue::Preempted | Enqueue::Yielded => self.prev[cpu] = Some(t),
            Enqueue::Migrated => {}
            _ => self.list(t, why != Enqueue::Initial && self.version != Version::V20),
        }
        if self.of[t].place.is_none() {
            // It came from another class while it ran.
            self.list(t, false);
        }
        self.add(k, t);
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, _why: Enqueue) {
        let better = match self.version {
            Version::V24 => {
                self.prev_process[cpu] = k.task(curr).attrs.process;
                self.goodness(k, cpu, t) > self.goodness(k, cpu, curr)
            }
            _ => k.task(t).attrs.policy != SchedPolicy::Other || self.counter(t) > self.counter(curr) + 3,
        };
        if better {
            k.resched(cpu);
        }
    }

    fn dequeue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, why: Dequeue) {
        match why {
            Dequeue::SwitchedFrom => self.unlist(t),
            Dequeue::Migrated => {
                self.ready.remove(t);
            }
        }
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        self.stats.schedules += 1;
        if let Some(prev) = self.prev[cpu].filter(|&p| self.of[p].place.is_some()) {
            if k.task(prev).attrs.policy == SchedPolicy::Rr && self.counter(prev) == 0 {
                let queued = self.ready.remove(prev);
                self.change(k, prev, |c| c.counter = c.priority);
                self.list(prev, false);
                if queued {
                    self.add(k, prev);
                }
            }
        }
        let mut best = self.search(k, cpu);
        if matches!(best, Some((0, ..))) {
            self.recalculate(k, cpu);
            if self.version == Version::V24 {
                best = self.search(k, cpu);
            }
        }
        if let Some(prev) = self.prev[cpu].take().filter(|&p| self.of[p].yielded) {
            self.change(k, prev, |c| c.yielded = false);
        }
        let t = best?.2;
        self.ready.remove(t);
        Some(t)
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _switched: bool) {
        self.prev_process[cpu] = k.task(t).attrs.process;
    }

    fn quiescent(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Stop) {
        self.unlist(t);
    }

    fn stopping(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, why: Stop) {
        if why == Stop::SwitchedFrom {
            self.unlist(t);
        }
    }

    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        let counter = self.counter(t) - 1;
        let out = if self.version == Version::V24 { counter <= 0 } else { counter < 0 };
        let c = &mut self.of[t];
        (c.counter, c.epoch) = (if out { 0 } else { counter }, self.epoch);
        if out {
            k.resched(cpu);
        }
    }

    fn yield_(&mut self, k: &mut Kernel, _cpu: Cpu, t: TaskId) {
        if self.version == Version::V24 && self.length <= k.nr_cpus() {
            return;
        }
        self.list(t, false);
        let version = self.version;
        self.change(k, t, |c| match version {
            Version::V20 => c.counter = 0,
            _ => c.yielded = true,
        });
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, _old: &Attrs) {
        let priority = refill(self.version, k.task(t).attrs.nice);
        self.change(k, t, |c| c.priority = priority);
    }

    fn inspect(&self, _k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        (key == "counter" && self.of.get(t).is_some()).then(|| self.counter(t) as f64)
    }

    fn counters(&self) -> Vec<(&'static str, i64)> {
        let s = &self.stats;
        vec![
            ("schedules", s.schedules),
            ("recalcs", s.recalcs),
            ("walked", s.walked),
            ("longest", s.longest),
            ("over_10", s.over_10),
        ]
    }
}
