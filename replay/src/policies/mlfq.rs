//! Multi-level feedback queue.

use super::PolicyInfo;
use crate::params::{duration, Param, Unit};
use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Stop};
use crate::queue::{Levels, TaskMap};
use crate::task::{Cpu, Ns, TaskId};

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "mlfq",
    title: "multi-level feedback queue",
    idea: "A new task starts in the best level. One that uses up the allotment of its level, over \
           however many slices, goes down a level, where turns are longer; so short and interactive \
           bursts stay above long ones without anybody saying which is which. Now and then \
           everybody goes back to the top, so that nobody starves.",
    formula: "next = head of the best level that holds a task. A wakeup into a better level \
              preempts. Allotment of level i used up: level i+1 (the last level keeps its tasks), \
              tail, whole allotment. Every `boost`: level 0, whole allotment.",
    tie_break: "Within a level in order of arrival; a preempted task goes to the head. A boost \
        keeps the order by level, then arrival.",
    not_modelled: "Priorities and nice values. All CPUs share one queue.",
    sources: "Arpaci-Dusseau, Operating Systems: Three Easy Pieces, chapter on MLFQ (rules 1 to 5, \
        with better accounting).",
    params: &[
        Param {
            name: "quanta",
            unit: Unit::Text,
            default: "10ms/20ms/40ms",
            range: None,
            doc: "Allotment of each level, best level first, separated by `/`: as many levels as entries.",
        },
        Param {
            name: "boost",
            unit: Unit::Time,
            default: "1s",
            range: Some(("0ns", "1000s")),
            doc: "How often everybody goes back to the best level; 0: never.",
        },
    ],
    rt_above: true,
    deadline_above: true,
    reads: &[],
    build: |p| {
        let text = p.text("quanta");
        let quanta: Option<Vec<Ns>> = text.split('/').map(|q| duration(q).filter(|&ns| ns > 0)).collect();
        let quanta = quanta
            .filter(|q| q.len() <= 64)
            .ok_or_else(|| format!("quanta={text}: expected 1 to 64 times with their units, such as 10ms/20ms/40ms"))?;
        Ok(Box::new(Mlfq {
            quanta,
            boost: p.int("boost"),
            queue: Levels::default(),
            of: TaskMap::new(),
            began: Vec::new(),
            boosts: 0,
        }))
    },
};

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    level: usize,
    left: Ns,
    /// Its allotment was used up in the slice that just ended.
    spent: bool,
}

/// State of the policy.
pub struct Mlfq {
    quanta: Vec<Ns>,
    boost: Ns,
    queue: Levels,
    of: TaskMap<Place>,
    began: Vec<Ns>,
    boosts: i64,
}

impl Mlfq {
    fn top(&self) -> Place {
        Place { level: 0, left: self.quanta[0], spent: false }
    }

    fn charge(&mut self, k: &Kernel, cpu: Cpu, t: TaskId) {
        let now = k.clock(cpu);
        let place = &mut self.of[t];
        place.left -= now - self.began[cpu];
        self.began[cpu] = now;
        if place.left <= 0 {
            place.level = (place.level + 1).min(self.quanta.len() - 1);
            place.left = self.quanta[place.level];
            place.spent = true;
        }
    }
}

impl Policy for Mlfq {
    fn wants_ticks(&self) -> bool {
        false
    }

    fn init(&mut self, k: &mut Kernel) {
        self.queue = Levels::new(self.quanta.len());
        self.began = vec![0; k.nr_cpus()];
        if self.boost > 0 {
            k.timer_at(self.boost, 0);
        }
    }

    fn init_task(&mut self, _k: &mut Kernel, t: TaskId, _birth: Option<Birth>) {
        let top = self.top();
        *self.of.ensure(t) = top;
    }

    fn enqueue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, why: Enqueue) {
        let place = &mut self.of[t];
        if why == Enqueue::Preempted && !place.spent {
            return self.queue.push_front(place.level, t);
        }
        place.spent = false;
        self.queue.push_back(place.level, t);
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, _why: Enqueue) {
        if self.of[t].level < self.of[curr].level {
            k.resched(cpu);
        }
    }

    fn dequeue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.queue.remove(t);
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        self.queue.pop_fitting(|t| k.allowed(t, cpu))
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _switched: bool) {
        self.began[cpu] = k.clock(cpu);
        k.set_slice(cpu, self.of[t].left);
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _why: Stop) {
        self.charge(k, cpu, t);
    }

    fn quiescent(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Stop) {
        self.of[t].spent = false;
    }

    fn timer(&mut self, k: &mut Kernel, _token: u64) {
        self.boosts += 1;
        let queued: Vec<TaskId> = self.queue.iter_all().collect();
        let top = self.top();
        for (_, place) in self.of.iter_mut() {
            *place = top;
        }
        for &t in &queued {
            self.queue.remove(t);
        }
        for &t in &queued {
            self.queue.push_back(0, t);
        }
        for cpu in 0..k.nr_cpus() {
            if k.curr(cpu).is_some() {
                self.began[cpu] = k.now();
                k.set_slice(cpu, top.left);
            }
        }
        k.timer_at(k.now() + self.boost, 0);
    }

    fn inspect(&self, _k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        let place = self.of.get(t)?;
        match key {
            "level" => Some(place.level as f64),
            "left" => Some(place.left as f64),
            _ => None,
        }
    }

    fn counters(&self) -> Vec<(&'static str, i64)> {
        vec![("boosts", self.boosts)]
    }
}
