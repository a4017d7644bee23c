//! FreeBSD's traditional scheduler, 4BSD.

use super::PolicyInfo;
use crate::params::{Param, Unit};
use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Select, Stop, Wake};
use crate::queue::{Levels, TaskMap};
use crate::task::{Attrs, Cpu, Ns, TaskId};

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "4bsd",
    title: "FreeBSD 4BSD: decayed CPU estimate, 100 ms round robin",
    idea: "Each thread has an estimate of its recent CPU use, which statistics clock ticks raise and a decay each second lowers the slower the higher the \
           load is. The estimate and the nice value make the priority. Threads of one queue take turns.",
    formula: "W = 8 * CPUs. priority = clamp(160 + estcpu / W + nice + 20, 160, 223); smaller is better. Statistics tick (128 Hz): estcpu + 1, at most 37 W - 1. \
              Each second: estcpu = 2L * estcpu / (2L + 1), L = load average, sampled every 5 s; threads asleep for more than a second are skipped \
              and decay when they wake. Queue = priority / 4. A wakeup preempts when its priority number is smaller. Slice: stathz / 10 statistics ticks. \
              Fork: the child has its parent's estimate; exit: the parent's grows by the child's.",
    tie_break: "Within a queue in order of arrival; a thread that was preempted goes to the head, one whose slice is over to the tail.",
    not_modelled: "Kernel priorities while in the kernel, but for a wakeup from a device, which preempts user threads when kernel_sleep_pri is on; the per-CPU queues of \
                   bound threads, and the preference for the second in a queue when it ran here last (all CPUs choose from one set of queues); interrupt threads.",
    sources: "FreeBSD sys/kern/sched_4bsd.c (2024); the priority layout of FreeBSD 5 to 7.",
    params: &[
        Param {
            name: "stathz",
            unit: Unit::Count,
            default: "128",
            range: Some(("10", "10000")),
            doc: "Statistics clock ticks a second: estimates and slices count these.",
        },
        Param {
            name: "kernel_sleep_pri",
            unit: Unit::Switch,
            default: "on",
            range: None,
            doc: "A thread woken by a device preempts every user thread, as it holds a kernel priority until it returns to user mode.",
        },
    ],
    rt_above: true,
    build: |p| {
        Ok(Box::new(Bsd4 {
            stathz: p.int("stathz"),
            kernel_sleep_pri: p.on("kernel_sleep_pri"),
            weight: 8,
            load: 0.0,
            seconds: 0,
            next_stat: Vec::new(),
            of: TaskMap::new(),
            ready: Levels::new(QUEUES),
        }))
    },
};

const PUSER: i64 = 160;
const PMAX: i64 = 223;
const QUEUES: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    nice: i64,
    estcpu: i64,
    slept: i64,
    slice: i64,
    pri: i64,
    /// It ran since the last second.
    ran: bool,
    /// Woken by a device: beats user threads this once.
    kernel: bool,
    to_tail: bool,
    asleep: bool,
}

/// State of the policy.
pub struct Bsd4 {
    stathz: i64,
    kernel_sleep_pri: bool,
    weight: i64,
    load: f64,
    seconds: i64,
    next_stat: Vec<Ns>,
    of: TaskMap<Thread>,
    ready: Levels,
}

impl Bsd4 {
    fn limit(&self) -> i64 {
        self.weight * 36 + self.weight - 1
    }

    fn priority(&self, th: &Thread) -> i64 {
        (PUSER + th.estcpu / self.weight + th.nice + 20).clamp(PUSER, PMAX)
    }

    fn full(&self) -> i64 {
        (self.stathz / 10).max(1)
    }

    fn decay(&self, estcpu: i64) -> i64 {
        (2.0 * self.load * estcpu as f64 / (2.0 * self.load + 1.0)) as i64
    }

    fn queue(th: &Thread) -> usize {
        if th.kernel {
            return 0;
        }
        (th.pri / 4) as usize
    }

    fn stat_tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        let limit = self.limit();
        let weight = self.weight;
        let th = &mut self.of[t];
        th.ran = true;
        th.estcpu = (th.estcpu + 1).min(limit);
        th.slice -= 1;
        let th = *th;
        if th.estcpu % weight == 0 {
            self.of[t].pri = self.priority(&th);
        }
        if th.slice <= 0 {
            self.of[t].slice = self.full();
            self.of[t].to_tail = true;
            k.resched(cpu);
        }
    }
}

impl Policy for Bsd4 {
    fn wants_ticks(&self) -> bool {
        false
    }

    fn init(&mut self, k: &mut Kernel) {
        self.weight = 8 * k.nr_cpus() as i64;
        self.next_stat = vec![0; k.nr_cpus()];
    }

    fn init_task(&mut self, k: &mut Kernel, t: TaskId, birth: Option<Birth>) {
        let nice = i64::from(k.task(t).attrs.nice);
        let slice = if birth.is_some() { 1 } else { self.full() };
        let estcpu = birth.map_or(0, |b| self.of[b.parent].estcpu);
        let th = Thread { nice, estcpu, slice, ..Thread::default() };
        *self.of.ensure(t) = Thread { pri: self.priority(&th), ..th };
    }

    fn exit_task(&mut self, k: &mut Kernel, t: TaskId) {
        if let Some(parent) = k.task(t).parent {
            let sum = self.of[parent].estcpu + self.of[t].estcpu;
            self.of[parent].estcpu = sum.min(self.limit());
        }
    }

    fn select_cpu(&mut self, k: &mut Kernel, t: TaskId, _why: Select) -> Cpu {
        k.idle_or_last(t)
    }

    fn enqueue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, why: Enqueue) {
        if let Enqueue::Wakeup(wake) = why {
            let mut th = self.of[t];
            // The clock of seconds has decayed it once already, and counts the second that has begun.
            for _ in 2..th.slept {
                if th.estcpu == 0 {
                    break;
                }
                th.estcpu = self.decay(th.estcpu);
            }
            // After short sleeps the priority stays what it was when it was last computed.
            if th.slept > 1 {
                th.pri = self.priority(&th);
            }
            th.slept = 0;
            th.asleep = false;
            th.slice = self.full();
            th.kernel = self.kernel_sleep_pri && wake == Wake::Io;
            self.of[t] = th;
        }
        let th = &mut self.of[t];
        let tail = std::mem::take(&mut th.to_tail);
        let queue = Self::queue(th);
        if why == Enqueue::Preempted && !tail {
            self.ready.push_front(queue, t);
        } else {
            self.ready.push_back(queue, t);
        }
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, _why: Enqueue) {
        if self.of[t].kernel || self.of[t].pri < self.of[curr].pri {
            k.resched(cpu);
        }
    }

    fn dequeue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.ready.remove(t);
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        self.ready.pop_fitting(|t| k.allowed(t, cpu))
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _switched: bool) {
        self.of[t].kernel = false;
        let period = 1_000_000_000 / self.stathz;
        let now = k.now();
        self.next_stat[cpu] = now - now.rem_euclid(period) + period;
        k.set_slice(cpu, self.next_stat[cpu] - now);
    }

    /// The statistics clock has its own rate, so it comes as a timer of the running thread.
    fn slice_expired(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.stat_tick(k, cpu, t);
        k.set_slice(cpu, 1_000_000_000 / self.stathz);
    }

    fn quiescent(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, why: Stop) {
        if why == Stop::Slept {
            self.of[t].asleep = true;
            self.of[t].to_tail = false;
        }
    }

    fn update_1hz(&mut self, k: &mut Kernel) {
        self.seconds += 1;
        if self.seconds % 5 == 0 {
            let runnable: usize = (0..k.nr_cpus()).map(|c| k.nr_runnable(c)).sum();
            let keep = (-5.0f64 / 60.0).exp();
            self.load = self.load * keep + runnable as f64 * (1.0 - keep);
        }
        let all: Vec<TaskId> = k.live_tasks().collect();
        k.scanned(0, all.len());
        for t in all {
            let mut th = self.of[t];
            th.slept = if th.asleep && !th.ran { th.slept + 1 } else { 0 };
            th.ran = false;
            if th.slept <= 1 {
                th.estcpu = self.decay(th.estcpu);
                let before = Self::queue(&th);
                th.pri = self.priority(&th);
                if Self::queue(&th) != before && self.ready.remove(t) {
                    self.ready.push_back(Self::queue(&th), t);
                    let cpu = k.task(t).cpu;
                    if k.curr(cpu).is_some_and(|c| th.pri < self.of[c].pri) {
                        k.resched(cpu);
                    }
                }
            }
            self.of[t] = th;
        }
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, _old: &Attrs) {
        let queued = self.ready.remove(t);
        self.of[t].nice = i64::from(k.task(t).attrs.nice);
        self.of[t].pri = self.priority(&self.of[t]);
        if queued {
            self.ready.push_back(Self::queue(&self.of[t]), t);
        }
    }

    fn inspect(&self, _k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        let th = self.of.get(t)?;
        match key {
            "estcpu" => Some(th.estcpu as f64),
            "priority" => Some(th.pri as f64),
            _ => None,
        }
    }
}
