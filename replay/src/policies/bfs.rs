//! BFS, Con Kolivas' scheduler: one queue, virtual deadlines.

use super::PolicyInfo;
use crate::params::{Param, Unit};
use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Select, Stop};
use crate::program::Fork;
use crate::queue::{Ordered, TaskMap};
use crate::task::{Attrs, Cpu, Ns, SchedPolicy, TaskId};

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "bfs",
    title: "BFS: one queue for all CPUs, earliest virtual deadline first",
    idea: "A task gets a slice and a virtual deadline that lies the further ahead the nicer it is. \
           The earliest deadline runs. Both are renewed only when the slice is used up, so a task \
           that sleeps a lot comes back with an early deadline and preempts; nothing else decides \
           what is interactive.",
    formula: "ratio[-20] = 128, each nice step * 11 / 10; deadline = now + ratio * rr_interval / \
              128, renewed with the slice when that is used up. A millisecond counts as 2^20 ns, a \
              microsecond as 2^10, so 6 ms are 6.29. CPU time is taken off the slice at ticks and \
              switches. A tick ends the slice when less than 100 us are left, or less than half a \
              tick where the task began in the first half of a tick. Wakeup: to an idle CPU, else \
              to the CPU whose task has the latest deadline, which it preempts when its own is \
              strictly earlier. Fork: the child takes half the slice and the deadline of its parent \
              and runs first; a parent with less than 200 us left and its child get new ones. \
              SCHED_IDLE tasks run when nobody else wants to and preempt nobody; SCHED_BATCH tasks \
              get a new slice and deadline whenever they leave the CPU. A yield chooses anew.",
    tie_break: "Equal deadlines: in order of arrival. CPUs: the task's last one where that is idle, \
        else the first idle; the first of those with the latest deadline.",
    not_modelled: "Cache distance between CPUs (interactive=0), siblings; SCHED_ISO; synchronous \
                   wakeups. Idle CPUs have no ticks. Versions before the skip list looked at all \
                   waiting tasks at each choice: that walk costs simulated time (cost `scan`), not \
                   ours.",
    sources: "Kolivas, kernel/sched/bfs.c, BFS 0.480 for Linux 4.6.",
    params: &[Param {
        name: "rr_interval",
        unit: Unit::Time,
        default: "6ms",
        range: Some(("1ms", "1s")),
        doc: "Slice, and the unit of deadlines, in whole milliseconds.",
    }],
    rt_above: true,
    deadline_above: false,
    reads: &["policy", "nice"],
    build: |p| {
        let mut ratio = [128i64; 40];
        for i in 1..40 {
            ratio[i] = ratio[i - 1] * 11 / 10;
        }
        Ok(Box::new(Bfs {
            rr: p.int("rr_interval") / 1_000_000,
            ratio,
            of: TaskMap::new(),
            queue: Ordered::new(),
            cpus: Vec::new(),
            half_us: 0,
            tick: 0,
        }))
    },
};

/// A task with less of its slice left than this has used it up, in microseconds of 1024 ns.
const LEAST: i64 = 100;

#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    idle: bool,
    batch: bool,
    nice: i64,
    /// What is left of the slice, in microseconds of 1024 ns.
    left: i64,
    deadline: Ns,
}

#[derive(Clone, Copy, Debug, Default)]
struct Clocks {
    /// When CPU time was last taken off a slice, and the last tick.
    charged: Ns,
    last_tick: Ns,
    /// The running task was chosen in the first half of a tick.
    dither: bool,
}

/// State of the policy.
pub struct Bfs {
    /// Milliseconds.
    rr: i64,
    ratio: [i64; 40],
    of: TaskMap<Turn>,
    /// SCHED_IDLE tasks behind all others, then by deadline.
    queue: Ordered<(bool, Ns)>,
    cpus: Vec<Clocks>,
    tick: Ns,
    half_us: i64,
}

impl Bfs {
    fn offset(&self, nice: i64) -> Ns {
        self.ratio[(nice + 20) as usize] * self.rr * ((1 << 20) / 128)
    }

    fn renew(&mut self, now: Ns, t: TaskId) {
        let deadline = now + self.offset(self.of[t].nice);
        let turn = &mut self.of[t];
        (turn.left, turn.deadline) = (self.rr << 10, deadline);
    }

    fn key(&self, t: TaskId) -> (bool, Ns) {
        (self.of[t].idle, self.of[t].deadline)
    }

    fn set_attrs(&mut self, t: TaskId, attrs: &Attrs) {
        let turn = self.of.ensure(t);
        turn.nice = i64::from(attrs.nice.clamp(-20, 19));
        turn.idle = attrs.policy == SchedPolicy::Idle;
        turn.batch = attrs.policy == SchedPolicy::Batch;
    }

    fn charge(&mut self, now: Ns, cpu: Cpu, t: TaskId) {
        let c = &mut self.cpus[cpu];
        let ran = now - std::mem::replace(&mut c.charged, now);
        let sane = if (1..=2 * self.tick).contains(&ran) { ran } else { 1 };
        self.of[t].left -= sane >> 10;
    }

    fn preempts(&self, t: TaskId, curr: TaskId) -> bool {
        !self.of[t].idle && self.key(t) < self.key(curr)
    }
}

impl Policy for Bfs {
    fn init(&mut self, k: &mut Kernel) {
        self.cpus = vec![Clocks::default(); k.nr_cpus()];
        self.tick = k.tick_ns();
        self.half_us = 1_000_000 / k.hz() / 2;
    }

    fn init_task(&mut self, k: &mut Kernel, t: TaskId, birth: Option<Birth>) {
        self.set_attrs(t, &k.task(t).attrs.clone());
        let Some(birth) = birth else { return self.renew(k.now(), t) };
        let parent = &mut self.of[birth.parent];
        if parent.left < 2 * LEAST {
            parent.left = 0;
            return self.renew(k.now(), t);
        }
        parent.left /= 2;
        let (left, deadline) = (parent.left, parent.deadline);
        (self.of[t].left, self.of[t].deadline) = (left, deadline);
    }

    fn fork_return(&mut self, k: &mut Kernel, parent: TaskId, child: TaskId, _how: Fork) {
        let cpu = k.task(parent).cpu;
        if self.queue.contains(child) && k.curr(cpu) == Some(parent) {
            k.resched(cpu);
        }
    }

    fn select_cpu(&mut self, k: &mut Kernel, t: TaskId, _why: Select) -> Cpu {
        let last = k.task(t).cpu.min(k.nr_cpus() - 1);
        let may = |c: Cpu| k.allowed(t, c);
        if may(last) && k.is_idle(last) {
            return last;
        }
        if let Some(idle) = (0..k.nr_cpus()).find(|&c| may(c) && k.is_idle(c)) {
            return idle;
        }
        let worst = |c: Cpu| k.curr(c).map_or((true, Ns::MAX), |r| self.key(r));
        let latest = (0..k.nr_cpus()).filter(|&c| may(c)).max_by_key(|&c| (worst(c), std::cmp::Reverse(c)));
        latest.unwrap_or(last)
    }

    fn enqueue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Enqueue) {
        self.queue.insert(self.key(t), t);
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, _why: Enqueue) {
        if self.preempts(t, curr) {
            k.resched(cpu);
        }
    }

    fn dequeue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.queue.remove(t);
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        k.scanned(cpu, self.queue.len());
        Some(self.queue.pop_fitting(|t| k.allowed(t, cpu))?.1)
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, _t: TaskId, _switched: bool) {
        let now = k.clock(cpu);
        let c = &mut self.cpus[cpu];
        c.charged = now;
        c.dither = now - c.last_tick <= self.tick / 2;
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _why: Stop) {
        self.charge(k.clock(cpu), cpu, t);
        if self.of[t].left < LEAST || self.of[t].batch {
            self.renew(k.now(), t);
        }
    }

    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.charge(k.clock(cpu), cpu, t);
        let c = &mut self.cpus[cpu];
        c.last_tick = k.now();
        if self.of[t].left >= if c.dither { self.half_us + 1 } else { LEAST } {
            return;
        }
        if c.dither {
            self.of[t].left = 0;
        }
        k.resched(cpu);
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, old: &Attrs) {
        self.set_attrs(t, &k.task(t).attrs.clone());
        let moved = self.offset(self.of[t].nice) - self.offset(i64::from(old.nice.clamp(-20, 19)));
        self.of[t].deadline += moved;
        let cpu = k.task(t).cpu;
        if self.queue.remove(t).is_some() {
            self.queue.insert(self.key(t), t);
            if k.curr(cpu).is_some_and(|c| k.same_class(c, t) && self.preempts(t, c)) {
                k.resched(cpu);
            }
        } else if k.curr(cpu) == Some(t) && moved > 0 {
            k.resched(cpu);
        }
    }

    fn inspect(&self, _k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        let turn = self.of.get(t)?;
        match key {
            "deadline" => Some(turn.deadline as f64),
            "left" => Some((turn.left << 10) as f64),
            _ => None,
        }
    }
}
