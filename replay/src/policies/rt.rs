//! POSIX real time as on Linux: SCHED_FIFO and SCHED_RR by priority, with throttling.

use super::PolicyInfo;
use crate::params::{Param, Unit};
use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Select, Stop};
use crate::queue::{Bits, Levels, TaskMap};
use crate::task::{Attrs, Cpu, Ns, SchedPolicy, TaskId};

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "rt",
    title: "POSIX SCHED_FIFO and SCHED_RR by priority, with throttling",
    idea: "100 FIFO lists per CPU, one per priority, 99 best. A better task preempts at once. \
           SCHED_RR tasks of one priority take turns by a slice counted in ticks. This is the class \
           that runs above every Linux policy; named by itself it schedules everybody, time-sharing \
           tasks in a single list below priority 1.",
    formula: "next = head of the best non-empty list. Woken and new: tail. Preempted: head. Yield: \
              tail. RR: each tick takes one tick off the slice; at 0 it is refilled and, when \
              others wait in the list, the task goes to the tail. The slice is not refilled by \
              sleep or preemption. Throttling per CPU: when the class has run more than `runtime` \
              within `period`, it is not chosen until the period ends; then the time used falls by \
              `runtime`.",
    tie_break: "Order of arrival in the list. Equal priority never preempts.",
    not_modelled: "Priority inheritance, the fair server of Linux 6.12 and later, runtime sharing \
                   between CPUs. Push and pull between CPUs is reduced to: a wakeup goes to the CPU \
                   that runs the least important task when its own CPU runs something as good; a \
                   CPU about to run something worse pulls the best waiting task.",
    sources: "Linux 6.1.192 kernel/sched/rt.c, include/linux/sched/rt.h (6.12 has no throttling, \
        but a fair server); POSIX.1 on SCHED_FIFO and SCHED_RR.",
    params: &[
        Param {
            name: "slice",
            unit: Unit::Time,
            default: "100ms",
            range: Some(("1us", "100s")),
            doc: "Slice of SCHED_RR (`sched_rr_timeslice_ms`), rounded up to whole ticks.",
        },
        Param {
            name: "runtime",
            unit: Unit::Time,
            default: "950ms",
            range: Some(("0ns", "1000s")),
            doc: "Longest the class may run within a period (`sched_rt_runtime_us`).",
        },
        Param {
            name: "period",
            unit: Unit::Time,
            default: "1s",
            range: Some(("1us", "1000s")),
            doc: "Period of the throttle (`sched_rt_period_us`).",
        },
        Param { name: "throttle", unit: Unit::Switch, default: "on", range: None, doc: "Off: no limit (runtime -1)." },
    ],
    rt_above: false,
    build: |p| {
        if p.int("runtime") > p.int("period") {
            return Err("runtime must not be longer than period".into());
        }
        Ok(Box::new(Rt {
            slice: p.int("slice"),
            runtime: p.int("runtime"),
            period: p.int("period"),
            throttle: p.on("throttle") && p.int("runtime") < p.int("period"),
            slice_ticks: 1,
            cpus: Vec::new(),
            waiting: Bits::default(),
            tasks: TaskMap::new(),
        }))
    },
};

/// State of the class.
pub struct Rt {
    slice: Ns,
    runtime: Ns,
    period: Ns,
    throttle: bool,
    slice_ticks: i64,
    cpus: Vec<RtCpu>,
    /// CPUs on whose queue a task of the class waits.
    waiting: Bits,
    tasks: TaskMap<RtTask>,
}

#[derive(Clone, Default)]
struct RtCpu {
    queue: Levels,
    /// Time that the class has used in this period.
    used: Ns,
    throttled: bool,
    /// True while the period timer is set.
    timing: bool,
    exec_start: Ns,
}

#[derive(Clone, Copy, Default)]
struct RtTask {
    ticks: i64,
    /// The slice was used up: it goes to the tail.
    rotate: bool,
}

/// The list of time-sharing tasks, when they are in this class at all.
const SHARED: usize = 99;

/// Lists are numbered from the best: priority 99 is list 0, time sharing list 99.
fn level(attrs: &Attrs) -> usize {
    if attrs.policy.is_rt() {
        99 - attrs.rt_prio.clamp(1, 99) as usize
    } else {
        SHARED
    }
}

impl Rt {
    /// Charges the running task up to now.
    fn charge(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        let now = k.clock(cpu);
        let c = &mut self.cpus[cpu];
        let ran = now - std::mem::replace(&mut c.exec_start, now);
        if level(&k.task(t).attrs) == SHARED {
            return;
        }
        c.used += ran;
        if self.throttle && !c.throttled && c.used > self.runtime {
            c.throttled = true;
            k.resched(cpu);
        }
    }

    /// The queue of `cpu` has changed.
    fn note(&mut self, cpu: Cpu) {
        self.waiting.set(cpu, !self.cpus[cpu].queue.is_empty());
    }

    /// Takes `t` off the queue of `cpu`; false when it is not there.
    fn remove(&mut self, cpu: Cpu, t: TaskId) -> bool {
        let was = self.cpus[cpu].queue.remove(t);
        self.note(cpu);
        was
    }

    fn curr_level(&self, k: &Kernel, cpu: Cpu, t: TaskId) -> Option<usize> {
        let curr = k.curr(cpu)?;
        k.same_class(curr, t).then(|| level(&k.task(curr).attrs))
    }
}

impl Policy for Rt {
    fn init(&mut self, k: &mut Kernel) {
        self.cpus = vec![RtCpu { queue: Levels::new(100), ..RtCpu::default() }; k.nr_cpus()];
        self.waiting = Bits::none(k.nr_cpus());
        self.slice_ticks = self.slice.div_euclid(k.tick_ns()) + i64::from(self.slice % k.tick_ns() > 0);
    }

    fn init_task(&mut self, _k: &mut Kernel, t: TaskId, _birth: Option<Birth>) {
        *self.tasks.ensure(t) = RtTask { ticks: self.slice_ticks, rotate: false };
    }

    fn select_cpu(&mut self, k: &mut Kernel, t: TaskId, why: Select) -> Cpu {
        let last = k.task(t).cpu;
        let ours = level(&k.task(t).attrs);
        let taken = |cpu: Cpu| self.curr_level(k, cpu, t).is_some_and(|theirs| theirs <= ours);
        if matches!(why, Select::Exec) || k.allowed(t, last) && !taken(last) {
            return last;
        }
        let worth = |cpu: Cpu| (self.curr_level(k, cpu, t).unwrap_or(usize::from(k.is_idle(cpu)) + 100), cpu != last);
        (0..k.nr_cpus()).filter(|&c| k.allowed(t, c)).max_by_key(|&c| (worth(c), std::cmp::Reverse(c))).unwrap_or(last)
    }

    fn enqueue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Enqueue) {
        let at = level(&k.task(t).attrs);
        let rotate = std::mem::take(&mut self.tasks[t].rotate);
        let c = &mut self.cpus[cpu];
        match why {
            Enqueue::Preempted if !rotate => c.queue.push_front(at, t),
            _ => c.queue.push_back(at, t),
        }
        self.waiting.set(cpu, true);
        if self.throttle && !c.timing && at != SHARED {
            c.timing = true;
            k.timer_at(k.now() + self.period, cpu as u64);
        }
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, _why: Enqueue) {
        if level(&k.task(t).attrs) < level(&k.task(curr).attrs) {
            k.resched_keeping_clock(cpu);
        }
    }

    fn dequeue(&mut self, _k: &mut Kernel, cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.remove(cpu, t);
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        if self.waiting.is_empty() {
            return None;
        }
        if self.cpus[cpu].throttled {
            let t = self.cpus[cpu].queue.level_front(SHARED)?;
            self.remove(cpu, t);
            return Some(t);
        }
        let own = self.cpus[cpu].queue.best();
        let mut found: Option<(usize, Cpu, TaskId)> = None;
        for other in self.waiting.iter().filter(|&other| other != cpu) {
            let queue = &self.cpus[other].queue;
            let Some(best) = queue.best().filter(|&best| own.is_none_or(|own| best < own)) else { continue };
            // Of equal levels the first CPU.
            if found.is_none_or(|(least, ..)| best < least) {
                found = queue.iter(best).find(|&t| k.allowed(t, cpu)).map(|t| (best, other, t)).or(found);
            }
        }
        if let Some((_, other, t)) = found {
            self.remove(other, t);
            return Some(t);
        }
        let own = self.cpus[cpu].queue.pop_front();
        self.note(cpu);
        own
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, _t: TaskId, _switched: bool) {
        self.cpus[cpu].exec_start = k.clock(cpu);
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _why: Stop) {
        self.charge(k, cpu, t);
    }

    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.charge(k, cpu, t);
        if k.task(t).attrs.policy != SchedPolicy::Rr {
            return;
        }
        let task = &mut self.tasks[t];
        task.ticks -= 1;
        if task.ticks > 0 {
            return;
        }
        task.ticks = self.slice_ticks;
        if self.cpus[cpu].queue.level_len(level(&k.task(t).attrs)) > 0 {
            self.tasks[t].rotate = true;
            k.resched(cpu);
        }
    }

    fn timer(&mut self, k: &mut Kernel, token: u64) {
        let cpu = token as Cpu;
        // What runs is charged at ticks and switches, not here.
        let running = k.curr(cpu).is_some_and(|t| k.is_mine(t) && level(&k.task(t).attrs) != SHARED);
        let c = &mut self.cpus[cpu];
        c.used -= c.used.min(self.runtime);
        if c.throttled && c.used < self.runtime {
            c.throttled = false;
            if !c.queue.is_empty() {
                k.resched(cpu);
            }
        }
        let busy = c.used > 0 || running || c.queue.best().is_some_and(|b| b != SHARED);
        c.timing = busy;
        if busy {
            k.timer_at(k.now() + self.period, token);
        }
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, old: &Attrs) {
        let (from, to, cpu) = (level(old), level(&k.task(t).attrs), k.task(t).cpu);
        if from == to {
            return;
        }
        if self.remove(cpu, t) {
            if to < from {
                self.cpus[cpu].queue.push_back(to, t);
            } else {
                self.cpus[cpu].queue.push_front(to, t);
            }
            self.waiting.set(cpu, true);
            if k.curr(cpu).is_some_and(|c| k.same_class(c, t) && to < level(&k.task(c).attrs)) {
                k.resched(cpu);
            }
        } else if k.curr(cpu) == Some(t) && self.cpus[cpu].queue.best().is_some_and(|b| b < to) {
            k.resched(cpu);
        }
    }

    fn yield_(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId) {
        self.tasks[t].rotate = true;
    }

    fn inspect(&self, k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        match key {
            "ticks" => self.tasks.get(t).map(|s| s.ticks as f64),
            "priority" => Some((99 - level(&k.task(t).attrs)) as f64),
            _ => None,
        }
    }
}
