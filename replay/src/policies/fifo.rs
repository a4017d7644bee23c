//! First come, first served.

use super::PolicyInfo;
use crate::params::{Param, Unit};
use crate::policy::{Dequeue, Enqueue, Kernel, Policy};
use crate::queue::Lists;
use crate::task::{Cpu, TaskId};

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "fifo",
    title: "first come, first served; runs to block",
    idea: "One queue per CPU. The task that waits longest runs until it sleeps, yields or ends; \
           nothing preempts it. The response time of short work beside long work shows what time \
           slices are for.",
    formula: "next = head of the queue; woken, new and yielding tasks go to the tail.",
    tie_break: "Order of arrival; tasks that arrive at one instant in the order of their events.",
    not_modelled: "Priorities: SCHED_FIFO with priorities is the policy `rt`, and SCHED_FIFO and \
                   SCHED_RR tasks of a capture run above this policy as they do on Linux.",
    sources: "Textbook; any book on operating systems.",
    params: &[QUEUE],
    rt_above: true,
    deadline_above: true,
    reads: &[],
    build: |p| Ok(Box::new(Fifo { global: p.int("queue") == 1, ..Fifo::default() })),
};

/// The parameter that `fifo` and `rr` share.
pub(super) const QUEUE: Param = Param {
    name: "queue",
    unit: Unit::Choice(&["cpu", "global"]),
    default: "cpu",
    range: None,
    doc: "One queue per CPU, from which idle CPUs steal the head of the longest; or one for all CPUs.",
};

/// State of the policy.
#[derive(Default)]
pub struct Fifo {
    global: bool,
    queues: Queues,
}

/// FIFO queues per CPU, or one for all.
#[derive(Default)]
pub(super) struct Queues {
    lists: Lists,
    global: bool,
}

impl Queues {
    pub(super) fn init(&mut self, cpus: usize, global: bool) {
        self.lists = Lists::new(if global { 1 } else { cpus });
        self.global = global;
    }

    fn list(&self, cpu: Cpu) -> usize {
        if self.global {
            0
        } else {
            cpu
        }
    }

    pub(super) fn push_back(&mut self, cpu: Cpu, t: TaskId) {
        self.lists.push_back(self.list(cpu), t);
    }

    pub(super) fn push_front(&mut self, cpu: Cpu, t: TaskId) {
        self.lists.push_front(self.list(cpu), t);
    }

    pub(super) fn remove(&mut self, t: TaskId) {
        self.lists.remove(t);
    }

    /// The first task of this CPU's queue that may run here; else the head of the longest queue elsewhere.
    pub(super) fn take(&mut self, k: &Kernel, cpu: Cpu) -> Option<TaskId> {
        let own = self.list(cpu);
        let fits = |lists: &Lists, list: usize| lists.iter(list).find(|&t| k.allowed(t, cpu));
        let found = fits(&self.lists, own).or_else(|| {
            let mut best = None;
            for list in self.lists.occupied().filter(|&list| list != own) {
                let len = self.lists.len(list);
                // Of equally long ones the first.
                if best.is_none_or(|(most, _)| len > most) {
                    best = fits(&self.lists, list).map(|t| (len, t)).or(best);
                }
            }
            best.map(|(_, t)| t)
        })?;
        self.lists.remove(found);
        Some(found)
    }

    /// True when a task waits for `cpu`.
    pub(super) fn waiting(&self, cpu: Cpu) -> bool {
        !self.lists.is_empty(self.list(cpu))
    }
}

impl Policy for Fifo {
    fn wants_ticks(&self) -> bool {
        false
    }

    fn init(&mut self, k: &mut Kernel) {
        self.queues.init(k.nr_cpus(), self.global);
    }

    fn enqueue(&mut self, _k: &mut Kernel, cpu: Cpu, t: TaskId, why: Enqueue) {
        match why {
            Enqueue::Preempted => self.queues.push_front(cpu, t),
            _ => self.queues.push_back(cpu, t),
        }
    }

    fn dequeue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.queues.remove(t);
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        self.queues.take(k, cpu)
    }
}
