//! Round robin with a quantum.

use super::fifo::{Queues, QUEUE};
use super::PolicyInfo;
use crate::params::{Param, Unit};
use crate::policy::{Dequeue, Enqueue, Kernel, Policy, Stop};
use crate::queue::TaskMap;
use crate::task::{Cpu, Ns, TaskId};

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "rr",
    title: "round robin with a quantum",
    idea: "One queue per CPU, in order of arrival. A task runs for at most one quantum; if others \
           wait then, it goes to the tail. All tasks are equal: nice values have no effect.",
    formula: "next = head of the queue; after `quantum` on the CPU: tail, when the queue is not \
              empty. A task that slept gets a whole quantum; one that was preempted by a higher \
              class keeps its rest and its place at the head. `timer=exact`: the quantum ends to \
              the nanosecond; `timer=tick`: at the tick that finds it used up (each tick takes one \
              tick off the task that runs).",
    tie_break: "A task that arrives at the instant at which a quantum ends is queued before the \
        task that loses the CPU.",
    not_modelled: "Priorities: SCHED_RR with priorities is the policy `rt`, and SCHED_FIFO and \
                   SCHED_RR tasks of a capture run above this policy as they do on Linux.",
    sources: "Textbook; POSIX.1 SCHED_RR for the rule that a preempted task keeps its rest.",
    params: &[
        Param {
            name: "quantum",
            unit: Unit::Time,
            default: "100ms",
            range: Some(("1us", "100s")),
            doc: "Longest slice while others wait.",
        },
        Param {
            name: "timer",
            unit: Unit::Choice(&["exact", "tick"]),
            default: "exact",
            range: None,
            doc: "What ends a quantum: a timer of its own, or the clock tick (rounded up to whole ticks).",
        },
        Param {
            name: "refill",
            unit: Unit::Switch,
            default: "on",
            range: None,
            doc: "A task that wakes gets a whole quantum; off: the rest of its last one, as POSIX \
                SCHED_RR on Linux does.",
        },
        QUEUE,
    ],
    rt_above: true,
    deadline_above: true,
    reads: &[],
    build: |p| {
        Ok(Box::new(RoundRobin {
            quantum: p.int("quantum"),
            by_tick: p.int("timer") == 1,
            refill: p.on("refill"),
            global: p.int("queue") == 1,
            left: TaskMap::new(),
            began: Vec::new(),
            queues: Queues::default(),
        }))
    },
};

/// State of the policy.
pub struct RoundRobin {
    quantum: Ns,
    by_tick: bool,
    refill: bool,
    global: bool,
    /// What each task has left of its quantum.
    left: TaskMap<Ns>,
    /// When the quantum's clock of each CPU was last read.
    began: Vec<Ns>,
    queues: Queues,
}

impl Policy for RoundRobin {
    fn wants_ticks(&self) -> bool {
        self.by_tick
    }

    fn init(&mut self, k: &mut Kernel) {
        self.queues.init(k.nr_cpus(), self.global);
        self.began = vec![0; k.nr_cpus()];
        if self.by_tick {
            let tick = k.tick_ns();
            self.quantum = (self.quantum + tick - 1) / tick * tick;
        }
    }

    fn init_task(&mut self, _k: &mut Kernel, t: TaskId, _birth: Option<crate::policy::Birth>) {
        *self.left.ensure(t) = self.quantum;
    }

    fn enqueue(&mut self, _k: &mut Kernel, cpu: Cpu, t: TaskId, why: Enqueue) {
        match why {
            Enqueue::Preempted if self.left[t] > 0 => return self.queues.push_front(cpu, t),
            Enqueue::Wakeup(_) if self.refill => self.left[t] = self.quantum,
            Enqueue::Yielded => self.left[t] = self.quantum,
            _ => {}
        }
        // Also of a task that left another CPU, or fell asleep, just when its quantum was over.
        if self.left[t] <= 0 {
            self.left[t] = self.quantum;
        }
        self.queues.push_back(cpu, t);
    }

    fn dequeue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.queues.remove(t);
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        self.queues.take(k, cpu)
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _switched: bool) {
        self.began[cpu] = k.clock(cpu);
        if !self.by_tick {
            k.set_slice(cpu, self.left[t]);
        }
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _why: Stop) {
        if !self.by_tick {
            self.left[t] -= k.clock(cpu) - self.began[cpu];
        }
    }

    fn slice_expired(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        if self.queues.waiting(cpu) {
            k.resched(cpu);
        } else {
            self.began[cpu] = k.clock(cpu);
            self.left[t] = self.quantum;
            k.set_slice(cpu, self.quantum);
        }
    }

    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        if !self.by_tick {
            return;
        }
        self.left[t] -= k.tick_ns();
        if self.left[t] <= 0 {
            if self.queues.waiting(cpu) {
                k.resched(cpu);
            } else {
                self.left[t] = self.quantum;
            }
        }
    }

    fn inspect(&self, _k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        (key == "left").then(|| self.left.get(t).map(|&l| l as f64)).flatten()
    }
}
