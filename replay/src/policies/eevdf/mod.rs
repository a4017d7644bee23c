//! Linux EEVDF: the fair class since 6.6. See [`INFO`].

mod info;
mod tree;

pub use info::INFO;

use super::weights;
use crate::policy::{Dequeue, Enqueue, Kernel, Policy, Select, Stop};
use crate::queue::TaskMap;
use crate::task::{Attrs, Cpu, Ns, SchedPolicy, TaskId};
use tree::Tree;

/// Rules that differ between kernel versions or can be switched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Features {
    /// True for the 6.6 form.
    pub v66: bool,
    pub place_lag: bool,
    pub place_deadline_initial: bool,
    pub place_rel_deadline: bool,
    pub run_to_parity: bool,
    pub preempt_short: bool,
    pub delay_dequeue: bool,
    pub delay_zero: bool,
    pub next_buddy: bool,
    pub exit_requeue: bool,
    pub wakeup_preemption: bool,
}

/// What the policy keeps of a task.
#[derive(Clone, Copy, Debug, Default)]
struct Entity {
    weight: i64,
    v: Ns,
    deadline: Ns,
    slice: Ns,
    custom_slice: bool,
    /// Lag when it left the queue, in virtual time.
    vlag: Ns,
    /// `deadline` is relative to the vruntime: it left without sleeping.
    rel_deadline: bool,
    /// Asleep, but still counted until it is eligible.
    delayed: bool,
    /// Counted in the sums of the queue of `cpu`.
    on_rq: bool,
    cpu: Cpu,
    /// Deadline when it was picked; the kernel keeps it in `vlag` meanwhile.
    picked: Option<Ns>,
    exec_start: Ns,
}

/// One CPU's queue.
#[derive(Clone, Debug, Default)]
struct Rq {
    tree: Tree,
    curr: Option<TaskId>,
    /// The task that was just put back, and when: it competes as the running one if picked at once.
    prev: Option<(TaskId, Ns)>,
    next: Option<TaskId>,
    sum_w: i64,
    sum_wv: i128,
    min_v: Ns,
    nr: usize,
}

impl Rq {
    /// The weighted mean vruntime, rounded down; the base of a queue that is empty.
    fn mean(&self) -> Ns {
        if self.sum_w == 0 {
            return self.min_v;
        }
        let above = self.sum_wv - i128::from(self.min_v) * i128::from(self.sum_w);
        let mean = match i64::try_from(above) {
            Ok(above) => above.div_euclid(self.sum_w),
            Err(_) => above.div_euclid(i128::from(self.sum_w)) as i64,
        };
        self.min_v + mean
    }

    fn eligible(&self, v: Ns) -> bool {
        self.sum_wv >= i128::from(v) * i128::from(self.sum_w)
    }

    fn add(&mut self, e: &Entity) {
        self.sum_w += e.weight;
        self.sum_wv += i128::from(e.weight) * i128::from(e.v);
        self.nr += 1;
    }

    fn sub(&mut self, e: &Entity) {
        self.sum_w -= e.weight;
        self.sum_wv -= i128::from(e.weight) * i128::from(e.v);
        self.nr -= 1;
    }

    fn raise_min(&mut self, curr: Option<Ns>) {
        let lowest = match (curr, self.tree.min_v()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if let Some(v) = lowest {
            self.min_v = self.min_v.max(v);
        }
    }

    fn clear_buddy(&mut self, t: TaskId) {
        if self.next == Some(t) {
            self.next = None;
        }
    }
}

/// State of the policy.
pub struct Eevdf {
    f: Features,
    /// As the user gave it; 0 for the kernel's own.
    base_slice: Ns,
    base: Ns,
    tick: Ns,
    e: TaskMap<Entity>,
    rq: Vec<Rq>,
    delayed: i64,
}

/// Bounds of a slice that a task asks for.
const SLICE_MIN: Ns = 100_000;
const SLICE_MAX: Ns = 100_000_000;

impl Eevdf {
    fn new(f: Features, base_slice: Ns) -> Self {
        Eevdf { f, base_slice, base: base_slice, tick: 0, e: TaskMap::new(), rq: Vec::new(), delayed: 0 }
    }

    /// Charges the running task up to the clock; true when the kernel would ask for a reschedule.
    fn charge(&mut self, k: &Kernel, cpu: Cpu) -> bool {
        let rq = &mut self.rq[cpu];
        let Some(t) = rq.curr else { return false };
        let e = &mut self.e[t];
        let delta = k.clock(cpu) - e.exec_start;
        if delta <= 0 {
            return false;
        }
        e.exec_start += delta;
        let step = weights::fair(delta, e.weight);
        e.v += step;
        rq.sum_wv += i128::from(e.weight) * i128::from(step);
        let expired = e.v >= e.deadline;
        if expired {
            if !e.custom_slice {
                e.slice = self.base;
            }
            e.deadline = e.v + weights::fair(e.slice, e.weight);
        }
        let e = *e;
        rq.raise_min(Some(e.v));
        if rq.nr <= 1 {
            return false;
        }
        let unprotected = !self.f.v66 && self.f.preempt_short && e.picked != Some(e.deadline) && !rq.eligible(e.v);
        if expired || unprotected {
            rq.clear_buddy(t);
            return true;
        }
        false
    }

    fn charge_and_resched(&mut self, k: &mut Kernel, cpu: Cpu) {
        if self.charge(k, cpu) {
            k.resched(cpu);
        }
    }

    /// Gives `t` a place on the queue of `cpu`, which does not count it yet.
    fn place(&mut self, cpu: Cpu, t: TaskId, initial: bool) {
        let rq = &self.rq[cpu];
        let e = &mut self.e[t];
        if !e.custom_slice {
            e.slice = self.base;
        }
        let mut vslice = weights::fair(e.slice, e.weight);
        let mut lag = 0;
        if self.f.place_lag && rq.nr > 0 && e.vlag != 0 {
            let load = i128::from(rq.sum_w.max(1));
            lag = (i128::from(e.vlag) * (load + i128::from(e.weight)) / load) as Ns;
        }
        e.v = rq.mean() - lag;
        if std::mem::take(&mut e.rel_deadline) {
            e.deadline += e.v;
            return;
        }
        if self.f.place_deadline_initial && initial && !self.f.v66 {
            vslice /= 2;
        }
        e.deadline = e.v + vslice;
    }

    fn add(&mut self, cpu: Cpu, t: TaskId) {
        let e = &mut self.e[t];
        e.on_rq = true;
        e.cpu = cpu;
        self.rq[cpu].add(&self.e[t]);
    }

    fn put_in_tree(&mut self, cpu: Cpu, t: TaskId) {
        let e = &self.e[t];
        self.rq[cpu].tree.insert(t, e.deadline, e.v);
    }

    /// Keeps the lag of `t`, which is counted on `cpu`, within its bounds.
    fn keep_lag(&mut self, cpu: Cpu, t: TaskId) {
        let mean = self.rq[cpu].mean();
        let e = &mut self.e[t];
        let limit = weights::fair((2 * e.slice).max(self.tick), e.weight);
        e.vlag = (mean - e.v).clamp(-limit, limit);
    }

    /// Takes `t` out of the sums and the tree of `cpu`.
    fn leave(&mut self, cpu: Cpu, t: TaskId, sleeps: bool) {
        self.keep_lag(cpu, t);
        let rq = &mut self.rq[cpu];
        let e = &mut self.e[t];
        if self.f.place_rel_deadline && !self.f.v66 && !sleeps {
            e.deadline -= e.v;
            e.rel_deadline = true;
        }
        rq.tree.remove(t);
        rq.sub(e);
        e.on_rq = false;
        if rq.curr == Some(t) {
            rq.curr = None;
        }
        rq.clear_buddy(t);
        let curr = rq.curr.map(|c| self.e[c].v);
        rq.raise_min(curr);
    }

    /// A task that slept with negative lag has become eligible, or must go: its sleep begins in the books.
    fn finish_delayed(&mut self, cpu: Cpu, t: TaskId) {
        self.leave(cpu, t, true);
        let e = &mut self.e[t];
        e.delayed = false;
        if self.f.delay_zero && e.vlag > 0 {
            e.vlag = 0;
        }
    }

    /// A wakeup finds `t` still counted.
    fn wake_delayed(&mut self, cpu: Cpu, t: TaskId) {
        if self.f.delay_zero {
            self.keep_lag(cpu, t);
            if self.e[t].vlag > 0 {
                self.rq[cpu].tree.remove(t);
                self.rq[cpu].sub(&self.e[t]);
                self.e[t].vlag = 0;
                self.place(cpu, t, false);
                self.rq[cpu].add(&self.e[t]);
                self.put_in_tree(cpu, t);
            }
        }
        self.e[t].delayed = false;
    }

    /// The task to run next on `cpu`: the buddy where it is eligible, else the one that the deadlines choose.
    fn pick(&self, cpu: Cpu, curr: Option<TaskId>) -> Option<TaskId> {
        let rq = &self.rq[cpu];
        if let Some(next) = rq.next {
            if self.e[next].on_rq && rq.eligible(self.e[next].v) {
                return Some(next);
            }
        }
        self.earliest(cpu, curr)
    }

    /// The eligible task with the earliest deadline on `cpu`; `curr` competes as the running one.
    fn earliest(&self, cpu: Cpu, curr: Option<TaskId>) -> Option<TaskId> {
        let rq = &self.rq[cpu];
        if rq.nr == 1 {
            return curr.or_else(|| rq.tree.find(|_| true));
        }
        let curr = curr.filter(|&c| rq.eligible(self.e[c].v));
        if let Some(c) = curr {
            if self.f.run_to_parity && self.e[c].picked == Some(self.e[c].deadline) {
                return Some(c);
            }
        }
        let best = rq.tree.first_eligible(|v| rq.eligible(v));
        match (curr, best) {
            (Some(c), Some(b)) if self.e[c].deadline < self.e[b].deadline => Some(c),
            (c, b) => b.or(c),
        }
    }

    fn set_attrs(&mut self, t: TaskId, attrs: &Attrs) {
        let e = self.e.ensure(t);
        e.weight = weights::of(attrs);
        match attrs.slice {
            Some(s) if s > 0 => {
                e.custom_slice = true;
                e.slice = s.clamp(SLICE_MIN, SLICE_MAX);
            }
            _ => {
                e.custom_slice = false;
                e.slice = self.base;
            }
        }
    }

    /// A task of another CPU's queue that `cpu` may run, off the longest queue.
    fn steal(&mut self, k: &Kernel, cpu: Cpu) -> Option<TaskId> {
        let mut from: Vec<Cpu> = (0..self.rq.len()).filter(|&c| c != cpu && self.rq[c].tree.len() > 0).collect();
        from.sort_by_key(|&c| (std::cmp::Reverse(self.rq[c].nr), c));
        let fits = |t: TaskId| k.allowed(t, cpu) && !self.e[t].delayed;
        let (source, t) = from.into_iter().find_map(|c| self.rq[c].tree.find(fits).map(|t| (c, t)))?;
        self.leave(source, t, false);
        self.place(cpu, t, false);
        self.add(cpu, t);
        Some(t)
    }

    fn reweigh(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, attrs: &Attrs) {
        let running = self.rq[cpu].curr == Some(t);
        if running {
            self.charge(k, cpu);
        }
        let mean = self.rq[cpu].mean();
        let queued = self.rq[cpu].tree.remove(t);
        self.rq[cpu].sub(&self.e[t]);
        let old = self.e[t];
        self.set_attrs(t, attrs);
        let e = &mut self.e[t];
        let scale = |x: Ns| (i128::from(x) * i128::from(old.weight) / i128::from(e.weight)) as Ns;
        e.v = mean - scale(mean - old.v);
        e.deadline = e.v + scale(old.deadline - old.v);
        self.rq[cpu].add(&self.e[t]);
        if queued {
            self.put_in_tree(cpu, t);
        }
    }
}

impl Policy for Eevdf {
    fn init(&mut self, k: &mut Kernel) {
        self.tick = k.tick_ns();
        self.rq = vec![Rq::default(); k.nr_cpus()];
        if self.base_slice == 0 {
            let unscaled = if self.f.v66 { 750_000 } else { 700_000 };
            self.base = unscaled * weights::cpu_factor(k.nr_cpus());
        }
    }

    fn init_task(&mut self, k: &mut Kernel, t: TaskId, _birth: Option<crate::policy::Birth>) {
        self.set_attrs(t, &k.task(t).attrs.clone());
    }

    fn select_cpu(&mut self, k: &mut Kernel, t: TaskId, _why: Select) -> Cpu {
        // A task whose sleep is not yet in the books wakes where it is.
        if self.e[t].delayed {
            let cpu = self.e[t].cpu;
            if k.allowed(t, cpu) {
                return cpu;
            }
            self.finish_delayed(cpu, t);
        }
        k.idle_or_last(t)
    }

    fn enqueue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Enqueue) {
        if matches!(why, Enqueue::Preempted | Enqueue::Yielded) {
            self.put_in_tree(cpu, t);
            self.rq[cpu].prev = Some((t, k.now()));
            return;
        }
        if self.e[t].delayed {
            return self.wake_delayed(cpu, t);
        }
        if self.e[t].on_rq {
            // It ran elsewhere and may no longer do so.
            self.leave(self.e[t].cpu, t, false);
        }
        self.charge_and_resched(k, cpu);
        let initial = matches!(why, Enqueue::Fork | Enqueue::Initial);
        self.place(cpu, t, initial);
        self.add(cpu, t);
        self.put_in_tree(cpu, t);
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, why: Enqueue) {
        let (asked, woken) = (k.task(curr).attrs.policy, k.task(t).attrs.policy);
        if self.f.next_buddy && why != Enqueue::Fork && woken != SchedPolicy::Idle {
            self.rq[cpu].next = Some(t);
        }
        if k.need_resched(cpu) {
            return k.resched_keeping_clock(cpu);
        }
        if !self.f.wakeup_preemption {
            return;
        }
        let (idle, woken_idle) = (asked == SchedPolicy::Idle, woken == SchedPolicy::Idle);
        if idle && !woken_idle {
            // The idle task has no right to the rest of its slice.
            if !self.f.v66 && self.e[curr].picked == Some(self.e[curr].deadline) {
                self.e[curr].picked = Some(self.e[curr].deadline + 1);
            }
            return k.resched_keeping_clock(cpu);
        }
        if idle != woken_idle || woken != SchedPolicy::Other {
            return;
        }
        if self.charge(k, cpu) {
            k.resched_keeping_clock(cpu);
        }
        let (c, p) = (self.e[curr], self.e[t]);
        let rq = &self.rq[cpu];
        if !self.f.v66
            && self.f.preempt_short
            && p.slice < c.slice
            && rq.eligible(p.v)
            && (p.deadline < c.deadline || !rq.eligible(c.v))
            && c.picked == Some(c.deadline)
        {
            self.e[curr].picked = Some(c.deadline + 1);
        }
        if self.earliest(cpu, Some(curr)) == Some(t) {
            k.resched_keeping_clock(cpu);
        }
    }

    fn dequeue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Dequeue) {
        self.charge(k, cpu);
        self.leave(cpu, t, false);
        if why == Dequeue::SwitchedFrom {
            self.e[t].rel_deadline = false;
        }
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        let now = k.now();
        let prev = self.rq[cpu].prev.take().filter(|p| p.1 == now).map(|p| p.0);
        let mut curr = prev.filter(|&p| self.rq[cpu].tree.remove(p));
        while let Some(t) = self.pick(cpu, curr) {
            if self.e[t].delayed {
                self.finish_delayed(cpu, t);
                continue;
            }
            if curr == Some(t) {
                return Some(t);
            }
            if let Some(c) = curr.take() {
                self.put_in_tree(cpu, c);
            }
            self.rq[cpu].tree.remove(t);
            self.rq[cpu].clear_buddy(t);
            self.e[t].picked = Some(self.e[t].deadline);
            return Some(t);
        }
        let t = self.steal(k, cpu)?;
        self.e[t].picked = Some(self.e[t].deadline);
        Some(t)
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _switched: bool) {
        if !self.e[t].on_rq {
            self.place(cpu, t, false);
            self.add(cpu, t);
            self.e[t].picked = Some(self.e[t].deadline);
        }
        self.e[t].exec_start = k.clock(cpu);
        self.rq[cpu].curr = Some(t);
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {
        self.charge(k, cpu);
        match why {
            Stop::Preempted | Stop::Yielded => self.rq[cpu].curr = None,
            Stop::Slept if self.f.delay_dequeue && !self.f.v66 && !self.rq[cpu].eligible(self.e[t].v) => {
                self.e[t].delayed = true;
                self.delayed += 1;
                self.rq[cpu].curr = None;
                self.put_in_tree(cpu, t);
            }
            Stop::Slept | Stop::Exited => self.leave(cpu, t, true),
            Stop::SwitchedFrom => {
                self.leave(cpu, t, false);
                self.e[t].rel_deadline = false;
            }
        }
    }

    fn exiting(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        if !self.f.exit_requeue || self.rq[cpu].curr != Some(t) {
            return;
        }
        // sched_move_task: dequeued and queued again with its lag, and the CPU is asked to choose anew.
        k.update_clock(cpu);
        self.charge(k, cpu);
        self.leave(cpu, t, false);
        self.place(cpu, t, false);
        self.add(cpu, t);
        self.e[t].picked = Some(self.e[t].deadline);
        self.rq[cpu].curr = Some(t);
        k.resched(cpu);
    }

    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, _t: TaskId) {
        self.charge_and_resched(k, cpu);
    }

    fn yield_(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        if self.rq[cpu].nr <= 1 {
            return;
        }
        self.rq[cpu].clear_buddy(t);
        self.charge(k, cpu);
        let e = &mut self.e[t];
        e.deadline += weights::fair(e.slice, e.weight);
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, _old: &Attrs) {
        let attrs = k.task(t).attrs.clone();
        if self.e[t].on_rq {
            self.reweigh(k, self.e[t].cpu, t, &attrs);
        } else {
            self.set_attrs(t, &attrs);
        }
    }

    fn disable(&mut self, _k: &mut Kernel, t: TaskId) {
        if self.e[t].delayed {
            self.finish_delayed(self.e[t].cpu, t);
        }
    }

    fn inspect(&self, _k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        let e = self.e.get(t)?;
        Some(match key {
            "vruntime" => e.v as f64,
            "deadline" => e.deadline as f64,
            "vlag" => e.vlag as f64,
            "slice" => e.slice as f64,
            _ => return None,
        })
    }

    fn counters(&self) -> Vec<(&'static str, i64)> {
        vec![("delayed_dequeues", self.delayed)]
    }
}
