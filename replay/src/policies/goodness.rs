//! The O(n) "goodness" schedulers of Linux 2.0, 2.2 and 2.4.

use super::PolicyInfo;
use crate::params::{Param, Unit};
use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Stop};
use crate::queue::{Lists, TaskMap};
use crate::task::{Attrs, Cpu, SchedPolicy, TaskId, TaskState};

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "goodness",
    title: "Linux 2.0, 2.2 and 2.4: the best `goodness` on one list",
    idea: "Each task has a counter of ticks left. One list holds all runnable tasks; every schedule() walks it and takes the task with the \
           greatest goodness, which is mainly its counter. When all counters are used up, all tasks of the system get new ones, \
           and sleepers keep half of what they had: that is the bonus for interactive tasks.",
    formula: "2.0: goodness = counter, +1 for the task that ran, + penalty on SMP for a task whose last CPU asks; real time 1000 + priority. \
              Best goodness 0: counter = counter / 2 + priority for every task, and the first of the list runs without a second walk. \
              Tick: counter - 1, below 0 a reschedule (a counter of 20 lasts 21 ticks). Wakeup: tail of the list, preempts when \
              counter > current's + 3. Yield: tail, counter = 0. Fork halves the counter between parent and child. \
              2.2: + priority, +1 for the same address space; new tasks at the head; a yield scores 0 once. \
              2.4: + 20 - nice; refill (20 - nice) / 4 + 1; walks again after the recalculation; a wakeup preempts when its goodness is \
              greater; the exit gives the child's counter back to the parent.",
    tie_break: "Equal goodness: the task nearest to the head of the list.",
    not_modelled: "The kernel lock and non-preemptible system calls (mark run steps `K` and use a non-preemptible machine); 2.2's choice of CPU \
                   by cache flush time. The walk is made as the kernel makes it, so a decision costs O(n) here too: bonuses depend on who \
                   asks, and the order of the list decides ties.",
    sources: "Linux 2.0.40, 2.2.1 and 2.4.17 kernel/sched.c and kernel/fork.c.",
    params: &[
        Param {
            name: "version",
            unit: Unit::Choice(&["2.0", "2.2", "2.4"]),
            default: "2.0",
            range: None,
            doc: "Kernel whose rules apply.",
        },
        Param {
            name: "penalty",
            unit: Unit::Count,
            default: "20",
            range: Some(("0", "100")),
            doc: "Bonus of a task on the CPU on which it ran last, with several CPUs (PROC_CHANGE_PENALTY; 20 in 2.0.40, 15 in 2.2 and 2.4 on i386).",
        },
    ],
    rt_above: false,
    build: |p| {
        Ok(Box::new(Goodness {
            version: [Version::V20, Version::V22, Version::V24][p.int("version") as usize],
            penalty: p.int("penalty"),
            list: Lists::new(1),
            of: TaskMap::new(),
            prev: Vec::new(),
            prev_process: Vec::new(),
            stats: Stats::default(),
        }))
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V20,
    V22,
    V24,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    counter: i64,
    priority: i64,
    yielded: bool,
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
    penalty: i64,
    /// All runnable tasks, those that run included.
    list: Lists,
    of: TaskMap<Counter>,
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

impl Goodness {
    fn attrs(&mut self, t: TaskId, attrs: &Attrs) {
        self.of[t].priority = refill(self.version, attrs.nice);
    }

    fn goodness(&self, k: &Kernel, cpu: Cpu, t: TaskId) -> i64 {
        let task = k.task(t);
        let c = &self.of[t];
        if task.attrs.policy.is_rt() {
            return 1000 + i64::from(task.attrs.rt_prio);
        }
        let prev = self.prev[cpu] == Some(t);
        let here = if k.nr_cpus() > 1 && task.cpu == cpu { self.penalty } else { 0 };
        let same_memory = task.attrs.process.is_some() && task.attrs.process == self.prev_process[cpu];
        match self.version {
            Version::V24 if c.yielded => -1,
            Version::V22 if c.yielded => 0,
            _ if c.counter == 0 => 0,
            Version::V20 => c.counter + here + i64::from(prev),
            Version::V22 => c.counter + here + c.priority + i64::from(prev || same_memory),
            Version::V24 => {
                c.counter + here + i64::from(same_memory || task.attrs.kernel) + 20 - i64::from(task.attrs.nice)
            }
        }
    }

    /// Walks the list: the first task with the greatest goodness, and that.
    fn walk(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<(TaskId, i64)> {
        let mut best: Option<(TaskId, i64)> = None;
        let mut length = 0;
        for t in self.list.iter(0) {
            length += 1;
            if k.task(t).state == TaskState::Running || !k.allowed(t, cpu) {
                continue;
            }
            let g = self.goodness(k, cpu, t);
            if g > best.map_or(-1000, |b| b.1) {
                best = Some((t, g));
            }
        }
        k.scanned(cpu, length);
        self.stats.walked += length as i64;
        self.stats.longest = self.stats.longest.max(length as i64);
        self.stats.over_10 += i64::from(length > 10);
        if self.version == Version::V22 {
            if let Some(prev) = self.prev[cpu] {
                self.of[prev].yielded = false;
            }
        }
        best
    }

    fn recalculate(&mut self, k: &mut Kernel, cpu: Cpu) {
        self.stats.recalcs += 1;
        let all: Vec<TaskId> = k.live_tasks().collect();
        k.scanned(cpu, all.len());
        for t in all {
            let c = &mut self.of[t];
            c.counter = (c.counter >> 1) + c.priority;
        }
    }
}

impl Policy for Goodness {
    fn init(&mut self, k: &mut Kernel) {
        self.prev = vec![None; k.nr_cpus()];
        self.prev_process = vec![None; k.nr_cpus()];
    }

    fn init_task(&mut self, k: &mut Kernel, t: TaskId, birth: Option<Birth>) {
        let attrs = k.task(t).attrs.clone();
        self.of.ensure(t);
        self.attrs(t, &attrs);
        let Some(birth) = birth else {
            self.of[t].counter = self.of[t].priority;
            return;
        };
        let whole = self.of[birth.parent].counter;
        let (parent, child) = match self.version {
            Version::V24 => (whole >> 1, (whole + 1) >> 1),
            _ => (whole >> 1, whole >> 1),
        };
        self.of[birth.parent].counter = parent;
        self.of[t].counter = child;
        if self.version == Version::V24 && parent == 0 {
            k.resched(k.task(birth.parent).cpu);
        }
    }

    fn exit_task(&mut self, k: &mut Kernel, t: TaskId) {
        if self.version != Version::V24 {
            return;
        }
        if let Some(parent) = k.task(t).parent {
            let back = self.of[t].counter;
            let most = 20 * k.hz() / 100;
            let c = &mut self.of[parent];
            c.counter = (c.counter + back).min(most.max(c.counter));
        }
    }

    fn enqueue(&mut self, _k: &mut Kernel, cpu: Cpu, t: TaskId, why: Enqueue) {
        match why {
            Enqueue::Preempted | Enqueue::Yielded => self.prev[cpu] = Some(t),
            Enqueue::Initial => self.list.push_back(0, t),
            Enqueue::Moved => {}
            _ if self.version == Version::V20 => self.list.push_back(0, t),
            _ => self.list.push_front(0, t),
        }
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, _why: Enqueue) {
        let better = match self.version {
            Version::V24 => {
                self.prev_process[cpu] = k.task(curr).attrs.process;
                self.goodness(k, cpu, t) > self.goodness(k, cpu, curr)
            }
            _ => k.task(t).attrs.policy != SchedPolicy::Other || self.of[t].counter > self.of[curr].counter + 3,
        };
        if better {
            k.resched(cpu);
        }
    }

    fn dequeue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, why: Dequeue) {
        if why == Dequeue::Left {
            self.list.remove(t);
        }
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        self.stats.schedules += 1;
        if let Some(prev) = self.prev[cpu] {
            let attrs = &k.task(prev).attrs;
            if attrs.policy == SchedPolicy::Rr && self.of[prev].counter == 0 {
                self.of[prev].counter = self.of[prev].priority;
                self.list.remove(prev);
                self.list.push_back(0, prev);
            }
        }
        let mut best = self.walk(k, cpu);
        if matches!(best, Some((_, 0))) {
            self.recalculate(k, cpu);
            if self.version == Version::V24 {
                best = self.walk(k, cpu);
            }
        }
        let prev = self.prev[cpu].take();
        if let Some(prev) = prev {
            self.of[prev].yielded = false;
        }
        best.map(|b| b.0)
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _switched: bool) {
        self.prev_process[cpu] = k.task(t).attrs.process;
    }

    fn quiescent(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Stop) {
        self.list.remove(t);
    }

    fn stopping(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, why: Stop) {
        if why == Stop::Left {
            self.list.remove(t);
        }
    }

    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        let c = &mut self.of[t];
        c.counter -= 1;
        let out = if self.version == Version::V24 { c.counter <= 0 } else { c.counter < 0 };
        if out {
            c.counter = 0;
            k.resched(cpu);
        }
    }

    fn yield_(&mut self, k: &mut Kernel, _cpu: Cpu, t: TaskId) {
        if self.version == Version::V24 && self.list.len(0) <= k.nr_cpus().min(self.list.len(0)) {
            return;
        }
        self.list.remove(t);
        self.list.push_back(0, t);
        match self.version {
            Version::V20 => self.of[t].counter = 0,
            _ => self.of[t].yielded = true,
        }
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, _old: &Attrs) {
        let attrs = k.task(t).attrs.clone();
        self.attrs(t, &attrs);
    }

    fn inspect(&self, _k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        (key == "counter").then(|| self.of.get(t).map(|c| c.counter as f64)).flatten()
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
