//! The dispatcher of AIX: priorities that worsen with recent CPU use, and fixed priorities.

use super::PolicyInfo;
use crate::params::{Param, Unit};
use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Select, Stop};
use crate::queue::{Levels, TaskMap};
use crate::task::{Attrs, Cpu, SchedPolicy, TaskId};

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "aix",
    title: "AIX: priorities that worsen with recent CPU use, and fixed ones",
    idea: "The lowest priority value runs. A thread's value is its nice value plus a penalty for \
           its recent CPU use, which every tick adds to and a decay each second takes from. A \
           thread with a fixed priority keeps its value, and beats every dynamic thread when it is \
           below 60.",
    formula: "Tick: C = min(120, C + 1) for the running thread. Each second: C = C * D / 32. \
              formula=old (AIX 3.2.5 to 4.3.1): value = 40 + nice + C * R / 32. formula=new (4.3.2 \
              and later): p = 40 + nice; x = 2p - 60 where p > 60, else p; value = C * R / 32 * (x \
              + 4) / 64 + x. nice is 0 to 39 here, 20 for nice 0. A dynamic thread is switched from \
              at the tick at which another is ready at a better value, or at the same one. Fixed \
              priorities: SCHED_RR threads rotate after `timeslice` ticks, SCHED_FIFO threads do \
              not.",
    tie_break: "Within a value in order of arrival; a preempted thread goes to the head, one whose \
        slice is over to the tail.",
    not_modelled: "Run queues of each CPU and their balancing (one global queue, as before 4.3.3); \
                   affinity_lim of SCHED_FIFO2; memory load control. What the public documents \
                   leave open is inferred: order within a value, C of a child (its parent's), \
                   waiting threads are re-evaluated at the decay only.",
    sources: "IBM, AIX Performance Tuning Guide (versions 3.2, 4 and 5.1); AIX 7 documentation of \
              schedo and thread priorities; AIX 4.3 Differences Guide. The published splits of nice \
              20 against 39, 59 to 41 and 85 to 15 per cent, come out.",
    params: &[
        Param {
            name: "formula",
            unit: Unit::Choice(&["old", "new"]),
            default: "new",
            range: None,
            doc: "How recent CPU use becomes a priority: until 4.3.1, or from 4.3.2 on.",
        },
        Param {
            name: "sched_r",
            unit: Unit::Count,
            default: "16",
            range: Some(("0", "32")),
            doc: "Weight of recent CPU use in the priority, in 1/32 (schedtune -r).",
        },
        Param {
            name: "sched_d",
            unit: Unit::Count,
            default: "16",
            range: Some(("0", "32")),
            doc: "What is left of recent CPU use after a second, in 1/32 (schedtune -d).",
        },
        Param {
            name: "timeslice",
            unit: Unit::Count,
            default: "1",
            range: Some(("1", "1000")),
            doc: "Ticks after which a thread with a fixed priority and SCHED_RR goes to the tail.",
        },
        Param {
            name: "inherit",
            unit: Unit::Switch,
            default: "on",
            range: None,
            doc: "A child begins with the recent CPU use of its parent; off: with none.",
        },
    ],
    rt_above: false,
    deadline_above: false,
    reads: &["policy", "nice", "prio", "rt_prio"],
    build: |p| {
        Ok(Box::new(Aix {
            new: p.int("formula") == 1,
            r: p.int("sched_r"),
            d: p.int("sched_d"),
            timeslice: p.int("timeslice"),
            inherit: p.on("inherit"),
            of: TaskMap::new(),
            ready: Levels::new(LEVELS),
        }))
    },
};

const LEVELS: usize = 256;
const MOST: i64 = 120;

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    nice: i64,
    recent: i64,
    fixed: Option<i64>,
    fifo: bool,
    value: usize,
    /// Ticks of its slice used.
    used: i64,
    to_tail: bool,
}

/// State of the policy.
pub struct Aix {
    new: bool,
    r: i64,
    d: i64,
    timeslice: i64,
    inherit: bool,
    of: TaskMap<Thread>,
    ready: Levels,
}

impl Aix {
    fn value(&self, th: &Thread) -> usize {
        let value = match th.fixed {
            Some(fixed) => fixed,
            None if self.new => {
                let p = 40 + th.nice;
                let x = if p > 60 { 2 * p - 60 } else { p };
                th.recent * self.r * (x + 4) / (32 * 64) + x
            }
            None => 40 + th.nice + th.recent * self.r / 32,
        };
        value.clamp(0, LEVELS as i64 - 1) as usize
    }

    fn set_attrs(&mut self, t: TaskId, attrs: &Attrs) {
        let recent = self.of.ensure(t).recent;
        let fixed = attrs.prio.map(i64::from).or(attrs.policy.is_rt().then(|| 40 - i64::from(attrs.rt_prio.min(40))));
        let nice = 20 + i64::from(attrs.nice);
        let fifo = attrs.policy == SchedPolicy::Fifo;
        let th = Thread { nice, recent, fixed, fifo, ..Thread::default() };
        self.of[t] = Thread { value: self.value(&th), ..th };
    }
}

impl Policy for Aix {
    fn init_task(&mut self, k: &mut Kernel, t: TaskId, birth: Option<Birth>) {
        let attrs = k.task(t).attrs.clone();
        self.of.ensure(t).recent = match birth {
            Some(b) if self.inherit => self.of[b.parent].recent,
            _ => 0,
        };
        self.set_attrs(t, &attrs);
    }

    fn select_cpu(&mut self, k: &mut Kernel, t: TaskId, _why: Select) -> Cpu {
        k.idle_or_last(t)
    }

    fn enqueue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, why: Enqueue) {
        let th = &mut self.of[t];
        let tail = std::mem::take(&mut th.to_tail);
        if why == Enqueue::Preempted && !tail {
            self.ready.push_front(th.value, t);
        } else {
            th.used = 0;
            self.ready.push_back(th.value, t);
        }
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, _why: Enqueue) {
        if self.of[t].value < self.of[curr].value {
            k.resched(cpu);
        }
    }

    fn dequeue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.ready.remove(t);
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        self.ready.pop_fitting(|t| k.allowed(t, cpu))
    }

    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        let th = &mut self.of[t];
        th.recent = (th.recent + 1).min(MOST);
        th.used += 1;
        let th = *th;
        let value = self.value(&th);
        self.of[t].value = value;
        let best = self.ready.best();
        let over = match th.fixed {
            Some(_) => !th.fifo && th.used >= self.timeslice,
            None => true,
        };
        if best.is_some_and(|b| b < value || b == value && over) {
            self.of[t].to_tail = over;
            k.resched(cpu);
        }
    }

    fn update_1hz(&mut self, k: &mut Kernel) {
        let all: Vec<TaskId> = k.live_tasks().collect();
        k.scanned(0, all.len());
        for t in all {
            self.of[t].recent = self.of[t].recent * self.d / 32;
            let value = self.value(&self.of[t]);
            let th = &mut self.of[t];
            if std::mem::replace(&mut th.value, value) != value && self.ready.remove(t) {
                self.ready.push_back(value, t);
            }
        }
        for cpu in 0..k.nr_cpus() {
            if let (Some(c), Some(best)) = (k.curr(cpu), self.ready.best()) {
                if best < self.of[c].value {
                    k.resched(cpu);
                }
            }
        }
    }

    fn stopping(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, why: Stop) {
        if why == Stop::Slept {
            self.of[t].to_tail = false;
        }
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, _old: &Attrs) {
        let attrs = k.task(t).attrs.clone();
        let queued = self.ready.remove(t);
        self.set_attrs(t, &attrs);
        if queued {
            self.ready.push_back(self.of[t].value, t);
        }
    }

    fn inspect(&self, _k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        let th = self.of.get(t)?;
        match key {
            "value" => Some(th.value as f64),
            "recent" => Some(th.recent as f64),
            _ => None,
        }
    }
}
