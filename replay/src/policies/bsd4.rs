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
    idea: "Each thread has an estimate of its recent CPU use, which statistics clock ticks raise \
           and a decay each second lowers the slower the higher the load is. The estimate and the \
           nice value make the priority. Threads of one queue take turns.",
    formula: "W = 8 * CPUs. priority = clamp(160 + estcpu / W + nice + 20, 160, 223); smaller is \
              better. Statistics tick (128 Hz): estcpu + 1, at most 37 W - 1. Each second: estcpu = \
              2L * estcpu / (2L + 1), L = load average in 1/2048, sampled every 5 s; threads asleep \
              for more than a second are skipped and decay when they wake; a thread that ran or was \
              chosen since the last second does not count as asleep. The kernel thread that does \
              this displaces the running thread, which goes to the tail, and the best is chosen. \
              Queue = priority / 4. A wakeup preempts when its priority number is smaller; after a \
              sleep of more than a second the new priority counts from when the thread runs. Slice: \
              stathz / 10 statistics ticks. Fork: the child has its parent's estimate; exit: the \
              parent's grows by the child's.",
    tie_break: "Within a queue in order of arrival. A thread that leaves the CPU goes to the tail, \
                whether its slice is over or a better thread woke; one that an interrupt thread \
                displaced (a wakeup by a device) goes to the head. Threads whose queue changes at a \
                second are moved in order of their numbers.",
    not_modelled: "Kernel priorities while in the kernel, but for a wakeup from a device, which \
                   preempts user threads when kernel_sleep_pri is on (other sleeps are those that \
                   ask for no priority, as select, poll and umtx); the random second by which \
                   samples of the load differ; the per-CPU queues of bound threads, and the \
                   preference for the second in a queue when it ran here last (all CPUs choose from \
                   one set of queues); interrupt threads.",
    sources: "FreeBSD sys/kern/sched_4bsd.c and kern_synch.c (2024); the priority layout of FreeBSD 5 to 7.",
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
            doc: "A thread woken by a device preempts every user thread, as it holds a kernel \
                priority until it returns to user mode.",
        },
    ],
    rt_above: true,
    deadline_above: false,
    reads: &["nice"],
    build: |p| {
        Ok(Box::new(Bsd4 {
            stathz: p.int("stathz"),
            kernel_sleep_pri: p.on("kernel_sleep_pri"),
            weight: 8,
            load: 0,
            seconds: 0,
            next_stat: Vec::new(),
            of: TaskMap::new(),
            ready: Levels::new(QUEUES),
            moved: Vec::new(),
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
    /// What counts on the queues, and what it becomes when the thread is back in user mode.
    pri: i64,
    user_pri: i64,
    /// It was chosen since the last second.
    ran: bool,
    /// Woken by a device: beats user threads this once.
    kernel: bool,
    to_head: bool,
    asleep: bool,
}

/// State of the policy.
pub struct Bsd4 {
    stathz: i64,
    kernel_sleep_pri: bool,
    weight: i64,
    /// The load average in 1/2048.
    load: i64,
    seconds: i64,
    next_stat: Vec<Ns>,
    of: TaskMap<Thread>,
    ready: Levels,
    /// Threads whose queue changed at this second: the displaced thread was queued before them.
    moved: Vec<TaskId>,
}

/// Fixed-point 1 (FSCALE), and exp(-1/12) in it: what is left of the load average after 5 s.
const ONE: i64 = 2048;
const LOAD_KEPT: i64 = 1884;

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
        let factor = 2 * self.load;
        factor * estcpu / (factor + ONE)
    }

    fn set_pri(&mut self, t: TaskId) {
        let pri = self.priority(&self.of[t]);
        let th = &mut self.of[t];
        (th.pri, th.user_pri) = (pri, pri);
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
        th.estcpu = (th.estcpu + 1).min(limit);
        th.slice -= 1;
        let th = *th;
        if th.estcpu % weight == 0 {
            self.set_pri(t);
        }
        if th.slice <= 0 {
            self.of[t].slice = self.full();
            self.of[t].to_head = false;
            k.resched(cpu);
        }
    }

    /// Those that the clock of seconds moved to `queue` stand behind `t`, which it displaced, and
    /// those with lower numbers.
    fn queue_behind(&mut self, t: TaskId, queue: usize) {
        let moved = std::mem::take(&mut self.moved);
        let own = moved.contains(&t);
        for m in moved {
            if m != t && (!own || m > t) && self.ready.level_of(m) == Some(queue) {
                self.ready.remove(m);
                self.ready.push_back(queue, m);
            }
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
        *self.of.ensure(t) = th;
        self.set_pri(t);
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
            // After short sleeps the priority stays what it was when it was last computed.
            if th.slept > 1 {
                if th.slept > 10 * self.load {
                    th.estcpu = 0;
                }
                // The clock of seconds has decayed it once already, and counts the second that has begun.
                for _ in 2..th.slept {
                    if th.estcpu == 0 {
                        break;
                    }
                    th.estcpu = self.decay(th.estcpu);
                }
                th.user_pri = self.priority(&th);
            }
            th.slept = 0;
            th.asleep = false;
            th.slice = self.full();
            th.kernel = self.kernel_sleep_pri && wake == Wake::Io;
            self.of[t] = th;
        }
        let th = &mut self.of[t];
        let head = std::mem::take(&mut th.to_head);
        let queue = Self::queue(th);
        if why == Enqueue::Preempted && head {
            self.ready.push_front(queue, t);
        } else {
            self.ready.push_back(queue, t);
        }
        if why == Enqueue::Preempted {
            self.queue_behind(t, queue);
        }
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, _why: Enqueue) {
        if self.of[t].kernel || self.of[t].pri < self.of[curr].pri {
            // An interrupt thread displaces at once; all else sends the thread away as it returns
            // to user mode.
            self.of[curr].to_head = self.of[t].kernel;
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
        let th = &mut self.of[t];
        (th.kernel, th.ran, th.pri) = (false, true, th.user_pri);
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
            let th = &mut self.of[t];
            (th.asleep, th.slept, th.to_head) = (true, 0, false);
        }
    }

    fn update_1hz(&mut self, k: &mut Kernel) {
        self.seconds += 1;
        if self.seconds % 5 == 0 {
            let runnable: usize = (0..k.nr_cpus()).map(|c| k.nr_runnable(c)).sum();
            self.load = (LOAD_KEPT * self.load + runnable as i64 * ONE * (ONE - LOAD_KEPT)) >> 11;
        }
        let all: Vec<TaskId> = k.live_tasks().collect();
        k.scanned(0, all.len());
        self.moved.clear();
        for t in all {
            let runs = k.curr(k.task(t).cpu) == Some(t);
            let th = &mut self.of[t];
            th.slept = if th.asleep && !th.ran { th.slept + 1 } else { 0 };
            th.ran &= runs;
            if th.slept > 1 {
                continue;
            }
            let before = Self::queue(th);
            self.of[t].estcpu = self.decay(self.of[t].estcpu);
            self.set_pri(t);
            let queue = Self::queue(&self.of[t]);
            if queue != before {
                self.moved.push(t);
                if self.ready.remove(t) {
                    self.ready.push_back(queue, t);
                }
            }
        }
        // The kernel thread that did this ran on an idle CPU, or displaced what ran.
        let cpu = 0;
        let idle = (0..k.nr_cpus()).any(|c| k.is_idle(c));
        match k.curr(cpu).filter(|&t| !idle && k.is_mine(t)) {
            Some(t) => {
                self.of[t].to_head = false;
                k.resched(cpu);
            }
            None => self.moved.clear(),
        }
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, _old: &Attrs) {
        let queued = self.ready.remove(t);
        self.of[t].nice = i64::from(k.task(t).attrs.nice);
        self.set_pri(t);
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
