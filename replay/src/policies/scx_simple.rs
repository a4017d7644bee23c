//! scx_simple: the smallest sched_ext scheduler, a global queue by weighted virtual time.

use super::PolicyInfo;
use crate::params::{Param, Unit};
use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Stop};
use crate::queue::{Lists, Ordered, TaskMap};
use crate::task::{Attrs, Cpu, Ns, TaskId};

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "scx-simple",
    title: "scx_simple of sched_ext: one global queue by virtual time",
    idea: "All tasks wait in one queue, ordered by the virtual time that they have used. A task \
           that finds an idle CPU goes there directly. Nobody preempts at a wakeup; a slice of 20 \
           ms ends at a tick.",
    formula: "vtime += used * 100 / weight (weight 100 at nice 0) when it stops; queue key = vtime \
              = max(vtime, vtime_now - slice), where vtime_now is the largest vtime that a task had \
              when it began to run. At the end of a slice the next task is taken before the \
              previous one is queued, so of two tasks neither runs twice; where none waits the task \
              goes on with a new slice, and the old one is not charged. fifo=on: in order of \
              arrival. A yield gives up the rest of the slice and is charged for it.",
    tie_break: "Equal keys: the task that was queued first.",
    not_modelled: "The choice of an idle CPU by cache distance; BPF's own cost.",
    sources: "Linux 6.12.117 tools/sched_ext/scx_simple.bpf.c and kernel/sched/ext.c.",
    params: &[
        Param {
            name: "slice",
            unit: Unit::Time,
            default: "20ms",
            range: Some(("100us", "10s")),
            doc: "Slice of every task, ended by the tick that finds it used up.",
        },
        Param {
            name: "fifo",
            unit: Unit::Switch,
            default: "off",
            range: None,
            doc: "Queue in order of arrival instead of virtual time.",
        },
    ],
    rt_above: true,
    deadline_above: true,
    reads: &["policy", "nice"],
    build: |p| {
        Ok(Box::new(ScxSimple {
            slice: p.int("slice"),
            fifo: p.on("fifo"),
            of: TaskMap::new(),
            global: Ordered::new(),
            local: Lists::default(),
            vtime_now: 0,
            prev: Vec::new(),
        }))
    },
};

#[derive(Clone, Copy, Debug, Default)]
struct Scx {
    weight: i64,
    vtime: Ns,
    left: Ns,
    began: Ns,
}

/// State of the policy.
pub struct ScxSimple {
    slice: Ns,
    fifo: bool,
    of: TaskMap<Scx>,
    global: Ordered<Ns>,
    local: Lists,
    vtime_now: Ns,
    /// The task that used up its slice on each CPU, and when: it goes on where no other waits.
    prev: Vec<Option<(TaskId, Ns)>>,
}

/// Linux weights on the scale of cgroups: 1 to 10000, 100 at nice 0.
fn weight(attrs: &Attrs) -> i64 {
    ((super::weights::of(attrs) * 100 + 512) / 1024).clamp(1, 10_000)
}

impl ScxSimple {
    fn charge(&mut self, k: &Kernel, cpu: Cpu, t: TaskId) {
        let now = k.clock(cpu);
        let s = &mut self.of[t];
        s.left = (s.left - (now - s.began)).max(0);
        s.began = now;
    }

    /// Charges what `t` used of its slice (`simple_stopping`).
    fn stop(&mut self, t: TaskId) {
        let s = &mut self.of[t];
        s.vtime += (self.slice - s.left) * 100 / s.weight;
    }

    /// Queues `t` for all CPUs with a slice (`simple_enqueue`).
    fn share(&mut self, t: TaskId) {
        let s = &mut self.of[t];
        s.left = self.slice;
        if self.fifo {
            return self.global.insert(0, t);
        }
        s.vtime = s.vtime.max(self.vtime_now - self.slice);
        self.global.insert(s.vtime, t);
    }

    /// What left another way than by a choice of its CPU is queued.
    fn share_left_over(&mut self, now: Ns) {
        for cpu in 0..self.prev.len() {
            if let Some((t, at)) = self.prev[cpu] {
                if at != now {
                    self.prev[cpu] = None;
                    self.stop(t);
                    self.share(t);
                }
            }
        }
    }
}

impl Policy for ScxSimple {
    fn init(&mut self, k: &mut Kernel) {
        self.local = Lists::new(k.nr_cpus());
        self.prev = vec![None; k.nr_cpus()];
    }

    fn init_task(&mut self, k: &mut Kernel, t: TaskId, _birth: Option<Birth>) {
        let weight = weight(&k.task(t).attrs);
        *self.of.ensure(t) = Scx { weight, vtime: self.vtime_now, left: self.slice, began: 0 };
    }

    fn enable(&mut self, _k: &mut Kernel, t: TaskId) {
        self.of[t].vtime = self.vtime_now;
    }

    fn enqueue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Enqueue) {
        if why == Enqueue::Preempted && self.of[t].left > 0 {
            return self.local.push_front(cpu, t);
        }
        if matches!(why, Enqueue::Preempted | Enqueue::Yielded) {
            if let Some((left, _)) = self.prev[cpu].replace((t, k.now())) {
                // A task of a higher class ran since, and came down to ours.
                self.stop(left);
                self.share(left);
            }
            return;
        }
        let new = matches!(why, Enqueue::Wakeup(_) | Enqueue::Fork | Enqueue::Initial);
        if new && k.was_idle(cpu) {
            self.of[t].left = self.slice;
            return self.local.push_back(cpu, t);
        }
        self.share(t);
    }

    fn dequeue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.prev.iter_mut().filter(|p| p.is_some_and(|p| p.0 == t)).for_each(|p| *p = None);
        if !self.local.remove(t) {
            self.global.remove(t);
        }
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        self.share_left_over(k.now());
        let next = self.local.pop_front(cpu).or_else(|| Some(self.global.pop_fitting(|t| k.allowed(t, cpu))?.1));
        let Some((prev, _)) = self.prev[cpu].take() else { return next };
        // The next task is taken before the previous one is put back.
        if next.is_some() || !k.allowed(prev, cpu) {
            self.stop(prev);
            self.share(prev);
            return next;
        }
        self.of[prev].left = self.slice;
        Some(prev)
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _switched: bool) {
        let s = &mut self.of[t];
        s.began = k.clock(cpu);
        self.vtime_now = self.vtime_now.max(s.vtime);
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {
        self.charge(k, cpu, t);
        // At the end of a slice the choice says whether it stops.
        if !matches!(why, Stop::Preempted | Stop::Yielded) || self.of[t].left > 0 {
            self.stop(t);
        }
    }

    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.charge(k, cpu, t);
        if self.of[t].left > 0 {
            return;
        }
        k.resched(cpu);
    }

    fn yield_(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId) {
        self.of[t].left = 0;
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, _old: &Attrs) {
        self.of[t].weight = weight(&k.task(t).attrs);
    }

    fn inspect(&self, _k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        (key == "vtime").then(|| self.of.get(t).map(|s| s.vtime as f64)).flatten()
    }
}
