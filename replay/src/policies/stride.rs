//! Stride scheduling: proportional shares without chance.

use super::PolicyInfo;
use crate::params::{Param, Unit};
use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Stop};
use crate::queue::{Ordered, TaskMap};
use crate::task::{Attrs, Cpu, Ns, TaskId};

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "stride",
    title: "stride scheduling, deterministic proportional shares",
    idea: "Each task holds tickets and advances its pass by a stride, which is the smaller the more \
           tickets it has, for each quantum that it uses. The task with the smallest pass runs. A \
           task that sleeps keeps its distance from the others.",
    formula: "stride = 2^20 / tickets; pass += stride * used / quantum when it leaves the CPU. \
              Global pass += 2^20 / (all runnable tickets) * used / quantum. Leaving: remain = pass \
              - global pass; joining: pass = global pass + remain. A new task has remain = stride.",
    tie_break: "Equal pass: the task with the lower number.",
    not_modelled: "Nice values, unless the task has no tickets of its own: then its tickets are its \
                   Linux weight. Ticket transfers. All CPUs share one queue.",
    sources: "Waldspurger and Weihl, Stride Scheduling, MIT/LCS/TM-528, 1995.",
    params: &[Param {
        name: "quantum",
        unit: Unit::Time,
        default: "10ms",
        range: Some(("1us", "10s")),
        doc: "Longest slice while others wait.",
    }],
    rt_above: true,
    deadline_above: true,
    reads: &["policy", "nice", "tickets"],
    build: |p| {
        Ok(Box::new(Stride {
            quantum: p.int("quantum"),
            of: TaskMap::new(),
            queue: Ordered::new(),
            began: Vec::new(),
            global: 0,
            tickets: 0,
        }))
    },
};

const STRIDE_1: i64 = 1 << 20;

#[derive(Clone, Copy, Debug, Default)]
struct Client {
    tickets: i64,
    stride: i64,
    pass: i64,
    remain: i64,
    /// Counted among the runnable.
    joined: bool,
}

/// State of the policy.
pub struct Stride {
    quantum: Ns,
    of: TaskMap<Client>,
    queue: Ordered<(i64, u32)>,
    began: Vec<Ns>,
    global: i64,
    tickets: i64,
}

pub(super) fn tickets(attrs: &Attrs) -> i64 {
    attrs.tickets.map_or_else(|| super::weights::of(attrs), i64::from)
}

impl Stride {
    fn join(&mut self, t: TaskId) {
        let c = &mut self.of[t];
        if !c.joined {
            c.joined = true;
            c.pass = self.global + c.remain;
            self.tickets += c.tickets;
        }
    }

    fn leave(&mut self, t: TaskId) {
        let c = &mut self.of[t];
        if c.joined {
            c.joined = false;
            c.remain = c.pass - self.global;
            self.tickets -= c.tickets;
        }
    }
}

impl Policy for Stride {
    fn wants_ticks(&self) -> bool {
        false
    }

    fn init(&mut self, k: &mut Kernel) {
        self.began = vec![0; k.nr_cpus()];
    }

    fn init_task(&mut self, k: &mut Kernel, t: TaskId, _birth: Option<Birth>) {
        let tickets = tickets(&k.task(t).attrs);
        let stride = STRIDE_1 / tickets;
        *self.of.ensure(t) = Client { tickets, stride, remain: stride, ..Client::default() };
    }

    fn enqueue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Enqueue) {
        self.join(t);
        self.queue.insert((self.of[t].pass, t.0), t);
    }

    fn dequeue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, why: Dequeue) {
        self.queue.remove(t);
        if why == Dequeue::SwitchedFrom {
            self.leave(t);
        }
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        Some(self.queue.pop_fitting(|t| k.allowed(t, cpu))?.1)
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _switched: bool) {
        self.join(t);
        self.began[cpu] = k.clock(cpu);
        k.set_slice(cpu, self.quantum);
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {
        let used = k.clock(cpu) - self.began[cpu];
        let part = |stride: i64| (i128::from(stride) * i128::from(used) / i128::from(self.quantum)) as i64;
        self.of[t].pass += part(self.of[t].stride);
        self.global += part(STRIDE_1 / self.tickets.max(1));
        if matches!(why, Stop::Slept | Stop::Exited | Stop::SwitchedFrom) {
            self.leave(t);
        }
    }

    fn slice_expired(&mut self, k: &mut Kernel, cpu: Cpu, _t: TaskId) {
        k.resched(cpu);
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, _old: &Attrs) {
        let tickets = tickets(&k.task(t).attrs);
        let c = &mut self.of[t];
        if c.joined {
            self.tickets += tickets - c.tickets;
        }
        // The distance to the global pass shrinks or grows with the stride.
        let stride = STRIDE_1 / tickets;
        let scale = |x: i64| (i128::from(x) * i128::from(stride) / i128::from(c.stride.max(1))) as i64;
        let (pass, remain) = (self.global + scale(c.pass - self.global), scale(c.remain));
        *c = Client { tickets, stride, pass, remain, joined: c.joined };
        if self.queue.remove(t).is_some() {
            self.queue.insert((pass, t.0), t);
        }
    }

    fn inspect(&self, _k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        (key == "pass").then(|| self.of.get(t).map(|c| c.pass as f64)).flatten()
    }
}
