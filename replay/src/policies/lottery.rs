//! Lottery scheduling: proportional shares by chance, with a seed.

use super::stride::tickets;
use super::PolicyInfo;
use crate::params::{Param, Unit};
use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Stop};
use crate::queue::TaskMap;
use crate::task::{Attrs, Cpu, Ns, TaskId};

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "lottery",
    title: "lottery scheduling, proportional shares by chance",
    idea: "At each dispatch one ticket among those of the waiting tasks is drawn, and its holder \
           runs. A task that blocked before the end of its quantum holds more tickets until it next \
           wins, so that it gets its share all the same.",
    formula: "x = 16807 * x mod (2^31 - 1); winner = holder of ticket x mod (sum of tickets), \
              counted along the queue. Compensation: tickets * quantum / used after a slice that \
              used less than the quantum and ended in a sleep.",
    tie_break: "None needed; the queue is in order of arrival and the generator is fixed, so a seed \
        gives one schedule.",
    not_modelled: "Ticket transfers, currencies and inflation. Nice values, unless the task has no \
                   tickets of its own: then its tickets are its Linux weight. All CPUs share one \
                   queue.",
    sources: "Waldspurger and Weihl, Lottery Scheduling, OSDI 1994; Park and Miller, Random number generators, 1988.",
    params: &[
        Param {
            name: "quantum",
            unit: Unit::Time,
            default: "100ms",
            range: Some(("1us", "10s")),
            doc: "Longest slice while others wait.",
        },
        Param {
            name: "seed",
            unit: Unit::Count,
            default: "1",
            range: Some(("1", "2147483646")),
            doc: "First state of the generator.",
        },
    ],
    rt_above: true,
    deadline_above: true,
    reads: &["policy", "nice", "tickets"],
    build: |p| {
        Ok(Box::new(Lottery {
            quantum: p.int("quantum"),
            state: p.int("seed"),
            of: TaskMap::new(),
            line: Line::default(),
            began: Vec::new(),
            draws: 0,
        }))
    },
};

#[derive(Clone, Copy, Debug, Default)]
struct Holder {
    tickets: i64,
    /// Tickets with compensation.
    worth: i64,
}

/// The waiting tasks in order of arrival, with sums of tickets in a Fenwick tree: insertion,
/// removal and the holder of the n-th ticket in O(log n). Places of tasks that left are closed up
/// when they outnumber the others.
#[derive(Clone, Debug, Default)]
struct Line {
    slots: Vec<Option<TaskId>>,
    sums: Vec<i64>,
    worth: Vec<i64>,
    at: TaskMap<Option<u32>>,
    len: usize,
    total: i64,
}

impl Line {
    fn add_at(&mut self, slot: usize, by: i64) {
        self.worth[slot] += by;
        self.total += by;
        let mut i = slot + 1;
        while i <= self.sums.len() {
            self.sums[i - 1] += by;
            i += i & i.wrapping_neg();
        }
    }

    fn push(&mut self, t: TaskId, worth: i64) {
        if self.slots.len() > 64 && self.slots.len() > 2 * self.len {
            self.close_up();
        }
        let slot = self.slots.len();
        self.slots.push(Some(t));
        self.worth.push(0);
        // A new node of the tree sums the range that ends with it, whose other parts exist already.
        let (node, mut sum, mut i) = (slot + 1, 0, slot);
        let from = node - (node & node.wrapping_neg());
        while i > from {
            sum += self.sums[i - 1];
            i -= i & i.wrapping_neg();
        }
        self.sums.push(sum);
        *self.at.ensure(t) = Some(slot as u32);
        self.len += 1;
        self.add_at(slot, worth);
    }

    fn remove(&mut self, t: TaskId) -> bool {
        let Some(slot) = self.at.ensure(t).take() else { return false };
        let slot = slot as usize;
        self.add_at(slot, -self.worth[slot]);
        self.slots[slot] = None;
        self.len -= 1;
        true
    }

    fn close_up(&mut self) {
        let kept: Vec<(TaskId, i64)> =
            self.slots.iter().zip(&self.worth).filter_map(|(t, w)| t.map(|t| (t, *w))).collect();
        self.slots.clear();
        self.sums.clear();
        self.worth.clear();
        (self.len, self.total) = (0, 0);
        for (t, w) in kept {
            self.push(t, w);
        }
    }

    /// The holder of ticket `n`, counted from 0.
    fn holder(&self, mut n: i64) -> Option<TaskId> {
        let mut slot = 0;
        let mut step = self.sums.len().next_power_of_two();
        while step > 0 {
            if let Some(&sum) = self.sums.get(slot + step - 1).filter(|_| slot + step <= self.sums.len()) {
                if sum <= n {
                    n -= sum;
                    slot += step;
                }
            }
            step /= 2;
        }
        self.slots.get(slot).copied().flatten()
    }

    fn iter(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.slots.iter().flatten().copied()
    }
}

/// State of the policy.
pub struct Lottery {
    quantum: Ns,
    state: i64,
    of: TaskMap<Holder>,
    line: Line,
    began: Vec<Ns>,
    draws: i64,
}

impl Policy for Lottery {
    fn wants_ticks(&self) -> bool {
        false
    }

    fn init(&mut self, k: &mut Kernel) {
        self.began = vec![0; k.nr_cpus()];
    }

    fn init_task(&mut self, k: &mut Kernel, t: TaskId, _birth: Option<Birth>) {
        let tickets = tickets(&k.task(t).attrs);
        *self.of.ensure(t) = Holder { tickets, worth: tickets };
    }

    fn enqueue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Enqueue) {
        self.line.push(t, self.of[t].worth);
    }

    fn dequeue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.line.remove(t);
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        if self.line.len == 0 {
            return None;
        }
        self.state = self.state * 16_807 % 2_147_483_647;
        self.draws += 1;
        let drawn = self.line.holder(self.state % self.line.total);
        let t = drawn.filter(|&t| k.allowed(t, cpu)).or_else(|| self.line.iter().find(|&t| k.allowed(t, cpu)))?;
        self.line.remove(t);
        let holder = &mut self.of[t];
        holder.worth = holder.tickets;
        Some(t)
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, _t: TaskId, _switched: bool) {
        self.began[cpu] = k.clock(cpu);
        k.set_slice(cpu, self.quantum);
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {
        let used = k.clock(cpu) - self.began[cpu];
        let holder = &mut self.of[t];
        if why == Stop::Slept && used > 0 && used < self.quantum {
            let worth = i128::from(holder.tickets) * i128::from(self.quantum) / i128::from(used);
            holder.worth = worth.min(1 << 40) as i64;
        }
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, _old: &Attrs) {
        let tickets = tickets(&k.task(t).attrs);
        self.of[t] = Holder { tickets, worth: tickets };
        if self.line.remove(t) {
            self.line.push(t, tickets);
        }
    }

    fn counters(&self) -> Vec<(&'static str, i64)> {
        vec![("draws", self.draws)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_line_finds_holders_as_a_walk_does(ops in prop::collection::vec((0u8..3, 0u32..90, 1i64..9), 1..400)) {
            let mut line = Line::default();
            let mut model: Vec<(u32, i64)> = Vec::new();
            for (op, t, worth) in ops {
                let known = model.iter().position(|m| m.0 == t);
                match (op, known) {
                    (0 | 1, None) => {
                        line.push(TaskId(t), worth);
                        model.push((t, worth));
                    }
                    (_, Some(i)) => {
                        prop_assert!(line.remove(TaskId(t)));
                        model.remove(i);
                    }
                    (_, None) => prop_assert!(!line.remove(TaskId(t))),
                }
                let total: i64 = model.iter().map(|m| m.1).sum();
                prop_assert_eq!((line.len, line.total), (model.len(), total));
                let mut first = 0;
                for (t, worth) in &model {
                    prop_assert_eq!(line.holder(first), Some(TaskId(*t)));
                    prop_assert_eq!(line.holder(first + worth - 1), Some(TaskId(*t)));
                    first += worth;
                }
            }
        }
    }
}
