//! BFS, Con Kolivas' scheduler: one queue, virtual deadlines.

use super::PolicyInfo;
use crate::params::{Param, Unit};
use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Select, Stop};
use crate::queue::{Ordered, TaskMap};
use crate::task::{Attrs, Cpu, Ns, SchedPolicy, TaskId};

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "bfs",
    title: "BFS: one queue for all CPUs, earliest virtual deadline first",
    idea: "A task gets a slice and a virtual deadline that lies the further ahead the nicer it is. The earliest deadline runs. Both are renewed only when the slice \
           is used up, so a task that sleeps a lot comes back with an early deadline and preempts; nothing else decides what is interactive.",
    formula: "ratio[-20] = 128, each nice step * 11 / 10; deadline = now + ratio * rr_interval / 128, renewed with the slice when that is used up (less than 100 us left). \
              Wakeup: to an idle CPU, else to the CPU whose task has the latest deadline, which it preempts when its own is strictly earlier. \
              Fork: the child takes half the slice and the deadline of its parent. SCHED_IDLE tasks run when nobody else wants to; \
              SCHED_BATCH tasks do not preempt. A yield renews slice and deadline.",
    tie_break: "Equal deadlines: in order of arrival.",
    not_modelled: "Cache distance between CPUs; SCHED_ISO. BFS looks at all waiting tasks at each choice: that walk costs simulated time (cost `scan`), not ours.",
    sources: "Kolivas, sched-bfs.txt, as summarised publicly; fork and yield from memory. Medium confidence.",
    params: &[Param {
        name: "rr_interval",
        unit: Unit::Time,
        default: "6ms",
        range: Some(("1ms", "1s")),
        doc: "Slice, and the unit of deadlines.",
    }],
    rt_above: true,
    build: |p| {
        let mut ratio = [128i64; 40];
        for i in 1..40 {
            ratio[i] = ratio[i - 1] * 11 / 10;
        }
        Ok(Box::new(Bfs { rr: p.int("rr_interval"), ratio, of: TaskMap::new(), queue: Ordered::new(), began: Vec::new() }))
    },
};

/// A task with less than this left has used up its slice.
const LEAST: Ns = 100_000;

#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    idle: bool,
    batch: bool,
    nice: i64,
    left: Ns,
    deadline: Ns,
}

/// State of the policy.
pub struct Bfs {
    rr: Ns,
    ratio: [i64; 40],
    of: TaskMap<Turn>,
    /// SCHED_IDLE tasks behind all others, then by deadline.
    queue: Ordered<(bool, Ns)>,
    began: Vec<Ns>,
}

impl Bfs {
    fn renew(&mut self, now: Ns, t: TaskId) {
        let turn = &mut self.of[t];
        turn.left = self.rr;
        turn.deadline = now + self.ratio[(turn.nice + 20) as usize] * self.rr / 128;
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
}

impl Policy for Bfs {
    fn wants_ticks(&self) -> bool {
        false
    }

    fn init(&mut self, k: &mut Kernel) {
        self.began = vec![0; k.nr_cpus()];
    }

    fn init_task(&mut self, k: &mut Kernel, t: TaskId, birth: Option<Birth>) {
        self.set_attrs(t, &k.task(t).attrs.clone());
        let Some(birth) = birth else { return self.renew(k.now(), t) };
        let parent = &mut self.of[birth.parent];
        parent.left /= 2;
        let (left, deadline) = (parent.left, parent.deadline);
        (self.of[t].left, self.of[t].deadline) = (left, deadline);
        if left < LEAST {
            self.renew(k.now(), t);
        }
        let cpu = k.task(birth.parent).cpu;
        if k.curr(cpu) == Some(birth.parent) {
            k.set_slice(cpu, left.max(LEAST));
        }
    }

    fn select_cpu(&mut self, k: &mut Kernel, t: TaskId, _why: Select) -> Cpu {
        let cpu = k.idle_or_last(t);
        if k.is_idle(cpu) {
            return cpu;
        }
        let worst = |&c: &Cpu| k.curr(c).map_or((true, Ns::MAX), |r| self.key(r));
        (0..k.nr_cpus()).filter(|&c| k.allowed(t, c)).max_by_key(|c| (worst(c), *c == cpu)).unwrap_or(cpu)
    }

    fn enqueue(&mut self, k: &mut Kernel, _cpu: Cpu, t: TaskId, why: Enqueue) {
        if self.of[t].left < LEAST || why == Enqueue::Yielded {
            self.renew(k.now(), t);
        }
        self.queue.insert(self.key(t), t);
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, _why: Enqueue) {
        if !self.of[t].batch && self.key(t) < self.key(curr) {
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

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _switched: bool) {
        self.began[cpu] = k.clock(cpu);
        k.set_slice(cpu, self.of[t].left);
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _why: Stop) {
        self.of[t].left -= k.clock(cpu) - self.began[cpu];
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, _old: &Attrs) {
        self.set_attrs(t, &k.task(t).attrs.clone());
        if self.queue.remove(t).is_some() {
            self.queue.insert(self.key(t), t);
        }
    }

    fn inspect(&self, _k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        let turn = self.of.get(t)?;
        match key {
            "deadline" => Some(turn.deadline as f64),
            "left" => Some(turn.left as f64),
            _ => None,
        }
    }
}
