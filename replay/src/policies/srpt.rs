//! Shortest (remaining) burst first, with the trace as oracle.

use super::PolicyInfo;
use crate::params::{Param, Unit};
use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Stop};
use crate::queue::{Ordered, TaskMap};
use crate::task::{Cpu, Ns, TaskId, NEVER};

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "srpt",
    title: "shortest remaining burst first, an oracle",
    idea: "Runs the task whose current burst has the least CPU time left. No scheduler can know \
           that; the replay does, because the burst stands in the trace. It gives the smallest mean \
           response time of one CPU, so it bounds what any policy could reach.",
    formula: "key = CPU time until the task next sleeps, yields or ends; next = smallest key. \
              preempt=on: a waking task with a strictly smaller key preempts (SRPT); off: it waits \
              (shortest job first). estimate=ewma: key = tau, with tau = tau / 2 + burst / 2 after \
              each burst and tau = 10 ms at first; not an oracle.",
    tie_break: "Equal keys: in order of arrival.",
    not_modelled: "Priorities and nice values. All CPUs share one queue.",
    sources: "Textbook; Schrage, A proof of the optimality of the shortest remaining processing time discipline, 1968.",
    params: &[
        Param {
            name: "preempt",
            unit: Unit::Switch,
            default: "on",
            range: None,
            doc: "A shorter burst preempts at its wakeup; off is shortest job first.",
        },
        Param {
            name: "estimate",
            unit: Unit::Choice(&["oracle", "ewma"]),
            default: "oracle",
            range: None,
            doc: "Where the length of a burst comes from: the trace, or a moving average of the task's past bursts.",
        },
    ],
    rt_above: true,
    deadline_above: true,
    reads: &[],
    build: |p| {
        Ok(Box::new(Srpt {
            preempt: p.on("preempt"),
            ewma: p.int("estimate") == 1,
            of: TaskMap::new(),
            queue: Ordered::new(),
            began: Vec::new(),
        }))
    },
};

#[derive(Clone, Copy, Debug, Default)]
struct Guess {
    tau: Ns,
    /// CPU time used in the current burst.
    used: Ns,
}

/// State of the policy.
pub struct Srpt {
    preempt: bool,
    ewma: bool,
    of: TaskMap<Guess>,
    queue: Ordered<Ns>,
    began: Vec<Ns>,
}

impl Srpt {
    fn left(&self, k: &Kernel, t: TaskId, running_on: Option<Cpu>) -> Ns {
        if !self.ewma {
            return k.burst_left(t);
        }
        let now = running_on.map_or(0, |cpu| k.clock(cpu) - self.began[cpu]);
        (self.of[t].tau - self.of[t].used - now).max(0)
    }
}

impl Policy for Srpt {
    fn wants_ticks(&self) -> bool {
        false
    }

    fn init(&mut self, k: &mut Kernel) {
        self.began = vec![0; k.nr_cpus()];
    }

    fn init_task(&mut self, _k: &mut Kernel, t: TaskId, _birth: Option<Birth>) {
        *self.of.ensure(t) = Guess { tau: 10_000_000, used: 0 };
    }

    fn enqueue(&mut self, k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Enqueue) {
        let key = self.left(k, t, None);
        self.queue.insert(key, t);
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, _why: Enqueue) {
        if self.preempt && self.queue.key(t).unwrap_or(NEVER) < self.left(k, curr, Some(cpu)) {
            k.resched(cpu);
        }
    }

    fn dequeue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.queue.remove(t);
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        Some(self.queue.pop_fitting(|t| k.allowed(t, cpu))?.1)
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, _t: TaskId, _switched: bool) {
        self.began[cpu] = k.clock(cpu);
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {
        let guess = &mut self.of[t];
        guess.used += k.clock(cpu) - self.began[cpu];
        if matches!(why, Stop::Slept | Stop::Yielded) {
            guess.tau = guess.tau / 2 + guess.used / 2;
            guess.used = 0;
        }
    }

    fn inspect(&self, _k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        (key == "tau").then(|| self.of.get(t).map(|g| g.tau as f64)).flatten()
    }
}
