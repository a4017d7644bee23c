//! The O(1) scheduler of Linux 2.6.0 to 2.6.22.

use super::PolicyInfo;
use crate::params::{Param, Unit};
use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Select, Stop, Wake};
use crate::queue::{Levels, TaskMap};
use crate::task::{Attrs, Cpu, Ns, SchedPolicy, Sleep, TaskId, TaskState};

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "o1",
    title: "Linux O(1): active and expired arrays, bonus for sleepers (2.6.20)",
    idea: "Two arrays of priority lists. A task that used up its slice goes to the expired array; \
           when the active one is empty they change places. Time asleep earns a bonus of up to five \
           priorities either way, and tasks that are interactive by it go back to the active array.",
    formula: "bonus = sleep_avg / 100 ms (0 to 10); prio = clamp(120 + nice - (bonus - 5), 100, \
              139). sleep_avg: + time asleep (to 1 s at most), - time run / bonus. slice = 100 ms * \
              (140 - sp) / 20, four times that below nice 0, at least 5 ms. interactive: prio <= sp \
              - delta, delta = (nice + 20) / 4 - 5 + 2. Wakeup preempts when its prio is strictly \
              better. Interactive tasks also take turns within their slice (granularity 10 ms at \
              the highest bonus). Fork splits the slice and the child goes before its parent; exit \
              gives back what is left of a first slice. Yield: to the expired array.",
    tie_break: "Within a priority in order of arrival.",
    not_modelled: "Balancing by load between CPUs (an idle CPU takes a task from the longest queue).",
    sources: "Linux 2.6.20 kernel/sched.c.",
    params: &[Param {
        name: "interactivity",
        unit: Unit::Switch,
        default: "on",
        range: None,
        doc: "The bonus for sleepers; off: prio is the static one and every used-up slice ends in the expired array.",
    }],
    rt_above: true,
    deadline_above: false,
    reads: &["policy", "nice", "kernel"],
    build: |p| Ok(Box::new(O1 { bonus: p.on("interactivity"), tick: 1_000_000, of: TaskMap::new(), rq: Vec::new() })),
};

const MS: Ns = 1_000_000;
const MAX_SLEEP_AVG: Ns = 1_000 * MS;
const STARVATION_LIMIT: Ns = 1_000 * MS;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SleepType {
    #[default]
    Normal,
    NonInteractive,
    Interactive,
    Interrupted,
}

#[derive(Clone, Copy, Debug, Default)]
struct Task {
    nice: i64,
    batch: bool,
    kernel: bool,
    sleep_avg: Ns,
    timestamp: Ns,
    slice: i64,
    first_slice: bool,
    sleep_type: SleepType,
    prio: i64,
    uninterruptible: bool,
    /// Goes to the expired array when it is put back.
    expire: bool,
    /// Goes to the tail of its list when it is put back.
    to_tail: bool,
    parent: Option<TaskId>,
}

#[derive(Clone, Debug, Default)]
struct Rq {
    /// The two arrays; `active` says which is which.
    arrays: [Levels; 2],
    active: usize,
    expired_since: Option<Ns>,
    best_expired: i64,
}

/// State of the policy.
pub struct O1 {
    bonus: bool,
    tick: Ns,
    of: TaskMap<Task>,
    rq: Vec<Rq>,
}

impl Task {
    fn static_prio(&self) -> i64 {
        120 + self.nice
    }

    fn current_bonus(&self) -> i64 {
        self.sleep_avg * 10 / MAX_SLEEP_AVG
    }

    fn delta(&self) -> i64 {
        (self.nice + 20) * 10 / 40 - 5 + 2
    }

    fn interactive(&self) -> bool {
        self.prio <= self.static_prio() - self.delta()
    }

    /// Sleep that makes a task interactive at once.
    fn interactive_sleep(&self) -> Ns {
        (1000 * (5 + self.delta() + 1) / 10 - 1) * MS
    }
}

impl O1 {
    fn full(&self, t: TaskId) -> i64 {
        let sp = self.of[t].static_prio();
        let x = if sp < 120 { 400 } else { 100 };
        let ms = (x * (140 - sp) / 20).max(5);
        (ms * MS / self.tick).max(1)
    }

    fn granularity(&self, t: TaskId, cpus: usize) -> i64 {
        let b = self.of[t].current_bonus();
        let ms = 10i64 << ((10 - b).max(1) - 1);
        (ms * MS / self.tick).max(1) * if cpus > 1 { cpus as i64 } else { 1 }
    }

    fn set_prio(&mut self, t: TaskId) {
        let task = &mut self.of[t];
        let bonus = if self.bonus { task.current_bonus() - 5 } else { 0 };
        task.prio = (task.static_prio() - bonus).clamp(100, 139);
    }

    /// The credit for a sleep that ends at `now`.
    fn recalc(&mut self, t: TaskId, now: Ns) {
        let task = &mut self.of[t];
        let mut slept = if task.batch { 0 } else { (now - task.timestamp).max(0) };
        if slept > 0 {
            let ceiling = task.interactive_sleep();
            if !task.kernel && slept > ceiling && task.sleep_avg < ceiling {
                task.sleep_avg = ceiling;
                task.sleep_type = SleepType::NonInteractive;
            } else {
                if task.sleep_type == SleepType::NonInteractive && !task.kernel {
                    if task.sleep_avg >= ceiling {
                        slept = 0;
                    } else if task.sleep_avg + slept >= ceiling {
                        task.sleep_avg = ceiling;
                        slept = 0;
                    }
                }
                task.sleep_avg += slept;
            }
            task.sleep_avg = task.sleep_avg.min(MAX_SLEEP_AVG);
        }
        self.set_prio(t);
    }

    fn put(&mut self, cpu: Cpu, t: TaskId, expired: bool, front: bool) {
        let rq = &mut self.rq[cpu];
        let array = if expired { 1 - rq.active } else { rq.active };
        let prio = self.of[t].prio as usize;
        if front {
            rq.arrays[array].push_front(prio, t);
        } else {
            rq.arrays[array].push_back(prio, t);
        }
    }

    fn remove(&mut self, cpu: Cpu, t: TaskId) -> bool {
        self.rq[cpu].arrays[0].remove(t) || self.rq[cpu].arrays[1].remove(t)
    }

    fn starving(&self, k: &Kernel, cpu: Cpu, t: TaskId) -> bool {
        let now = k.now();
        let rq = &self.rq[cpu];
        self.of[t].static_prio() > rq.best_expired
            || rq.expired_since.is_some_and(|since| now - since > STARVATION_LIMIT * k.nr_runnable(cpu) as i64)
    }

    fn slice_over(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        let now = k.now();
        self.set_prio(t);
        self.of[t].slice = self.full(t);
        self.of[t].first_slice = false;
        let starving = self.starving(k, cpu, t);
        let expire = !self.bonus || !self.of[t].interactive() || starving;
        let sp = self.of[t].static_prio();
        let rq = &mut self.rq[cpu];
        rq.expired_since.get_or_insert(now);
        if expire {
            rq.best_expired = rq.best_expired.min(sp);
        }
        self.of[t].expire = expire;
        self.of[t].to_tail = true;
        k.resched(cpu);
    }

    fn set_attrs(&mut self, t: TaskId, attrs: &Attrs) {
        let task = self.of.ensure(t);
        task.nice = i64::from(attrs.nice.clamp(-20, 19));
        task.batch = attrs.policy == SchedPolicy::Batch;
        task.kernel = attrs.kernel;
        if attrs.policy == SchedPolicy::Idle {
            task.nice = 19;
        }
        self.set_prio(t);
    }

    fn take(&mut self, k: &Kernel, from: Cpu, cpu: Cpu) -> Option<TaskId> {
        let rq = &self.rq[from];
        let order = if from == cpu { [rq.active, 1 - rq.active] } else { [1 - rq.active, rq.active] };
        let t = order.into_iter().find_map(|a| rq.arrays[a].iter_all().find(|&t| k.allowed(t, cpu)))?;
        self.remove(from, t);
        Some(t)
    }
}

impl Policy for O1 {
    fn init(&mut self, k: &mut Kernel) {
        self.tick = k.tick_ns();
        let rq = Rq { arrays: [Levels::new(140), Levels::new(140)], best_expired: 140, ..Rq::default() };
        self.rq = vec![rq; k.nr_cpus()];
    }

    fn init_task(&mut self, k: &mut Kernel, t: TaskId, birth: Option<Birth>) {
        self.of.ensure(t);
        let attrs = k.task(t).attrs.clone();
        self.set_attrs(t, &attrs);
        self.of[t].timestamp = k.now();
        let Some(birth) = birth else {
            self.of[t].slice = self.full(t);
            return;
        };
        let p = self.of[birth.parent];
        let bonus_step = |percent: i64| p.current_bonus() * percent / 100 * (MAX_SLEEP_AVG / 10);
        self.of[t].slice = (p.slice + 1) / 2;
        self.of[t].first_slice = true;
        self.of[t].sleep_avg = bonus_step(95);
        self.of[t].parent = Some(birth.parent);
        self.of[birth.parent].sleep_avg = bonus_step(100);
        self.of[birth.parent].slice = p.slice / 2;
        self.set_prio(t);
        if self.of[birth.parent].slice == 0 {
            self.of[birth.parent].slice = 1;
            let cpu = k.task(birth.parent).cpu;
            self.slice_over(k, cpu, birth.parent);
        }
    }

    fn fork_return(&mut self, k: &mut Kernel, parent: TaskId, child: TaskId, how: crate::program::Fork) {
        let cpu = k.task(parent).cpu;
        if how == crate::program::Fork::Fork && k.task(child).cpu == cpu {
            // The child has the parent's priority and stands just before it, so it runs first.
            if self.remove(cpu, child) {
                self.of[child].prio = self.of[parent].prio;
                self.put(cpu, child, false, true);
            }
            self.of[parent].to_tail = true;
            k.resched(cpu);
        }
    }

    fn exit_task(&mut self, _k: &mut Kernel, t: TaskId) {
        let child = self.of[t];
        let Some(parent) = child.parent else { return };
        if child.first_slice {
            let full = self.full(parent);
            let p = &mut self.of[parent];
            p.slice = (p.slice + child.slice).min(full.max(p.slice));
        }
        let p = &mut self.of[parent];
        if child.sleep_avg < p.sleep_avg {
            p.sleep_avg = p.sleep_avg / 4 * 3 + child.sleep_avg / 4;
        }
    }

    fn select_cpu(&mut self, k: &mut Kernel, t: TaskId, _why: Select) -> Cpu {
        k.idle_or_last(t)
    }

    fn enqueue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Enqueue) {
        match why {
            Enqueue::Preempted => {
                let task = &mut self.of[t];
                let (expire, tail) = (std::mem::take(&mut task.expire), std::mem::take(&mut task.to_tail));
                self.put(cpu, t, expire, !tail);
            }
            Enqueue::Yielded => {
                self.of[t].to_tail = false;
                self.of[t].expire = false;
                let now = k.now();
                self.rq[cpu].expired_since.get_or_insert(now);
                self.put(cpu, t, true, false);
            }
            Enqueue::Wakeup(wake) => {
                let task = &mut self.of[t];
                if std::mem::take(&mut task.uninterruptible) {
                    task.sleep_type = SleepType::NonInteractive;
                }
                self.recalc(t, k.now());
                let task = &mut self.of[t];
                if task.sleep_type == SleepType::Normal {
                    task.sleep_type = match wake {
                        Wake::Task { .. } => SleepType::Interactive,
                        _ => SleepType::Interrupted,
                    };
                }
                task.timestamp = k.now();
                self.put(cpu, t, false, false);
            }
            _ => {
                self.put(cpu, t, false, false);
            }
        }
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, why: Enqueue) {
        let sync_here = matches!(why, Enqueue::Wakeup(Wake::Task { sync: true, cpu: waker, .. }) if waker == cpu);
        if !sync_here && self.of[t].prio < self.of[curr].prio {
            k.resched(cpu);
        }
    }

    fn dequeue(&mut self, _k: &mut Kernel, cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.remove(cpu, t);
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        let rq = &mut self.rq[cpu];
        if rq.arrays[rq.active].is_empty() && !rq.arrays[1 - rq.active].is_empty() {
            rq.active = 1 - rq.active;
            rq.expired_since = None;
            rq.best_expired = 140;
        }
        let t = self.take(k, cpu, cpu).or_else(|| {
            let mut others: Vec<Cpu> = (0..self.rq.len()).filter(|&c| c != cpu).collect();
            others.sort_by_key(|&c| (std::cmp::Reverse(k.nr_runnable(c)), c));
            others.into_iter().find_map(|c| self.take(k, c, cpu))
        })?;
        let now = k.now();
        let task = self.of[t];
        if matches!(task.sleep_type, SleepType::Interactive | SleepType::Interrupted) && self.bonus {
            let waited = now - task.timestamp;
            let credit = if task.sleep_type == SleepType::Interactive { waited * 38 / 128 } else { waited };
            self.recalc(t, task.timestamp + credit);
        }
        self.of[t].sleep_type = SleepType::Normal;
        Some(t)
    }

    fn running(&mut self, k: &mut Kernel, _cpu: Cpu, t: TaskId, _switched: bool) {
        self.of[t].timestamp = k.now();
    }

    fn stopping(&mut self, k: &mut Kernel, _cpu: Cpu, t: TaskId, why: Stop) {
        let now = k.now();
        let task = &mut self.of[t];
        let run = (now - task.timestamp).min(MAX_SLEEP_AVG) / task.current_bonus().max(1);
        task.sleep_avg = (task.sleep_avg - run).max(0);
        task.timestamp = now;
        if matches!(why, Stop::Slept | Stop::Exited | Stop::SwitchedFrom) {
            task.expire = false;
            task.to_tail = false;
        }
    }

    fn quiescent(&mut self, k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Stop) {
        self.of[t].uninterruptible = k.task(t).state == TaskState::Sleeping(Sleep::Uninterruptible);
    }

    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        if self.of[t].expire {
            return k.resched(cpu);
        }
        self.of[t].slice -= 1;
        let left = self.of[t].slice;
        if left <= 0 {
            return self.slice_over(k, cpu, t);
        }
        let granularity = self.granularity(t, k.nr_cpus());
        let used = self.full(t) - left;
        if self.bonus && self.of[t].interactive() && left >= granularity && used % granularity == 0 {
            self.of[t].to_tail = true;
            k.resched(cpu);
        }
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, _old: &Attrs) {
        let attrs = k.task(t).attrs.clone();
        let cpu = k.task(t).cpu;
        let queued = self.remove(cpu, t);
        self.set_attrs(t, &attrs);
        if queued {
            self.put(cpu, t, false, false);
        }
    }

    fn inspect(&self, _k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        let task = self.of.get(t)?;
        match key {
            "sleep_avg" => Some(task.sleep_avg as f64),
            "prio" => Some(task.prio as f64),
            "bonus" => Some(task.current_bonus() as f64),
            "slice" => Some(task.slice as f64),
            _ => None,
        }
    }
}
