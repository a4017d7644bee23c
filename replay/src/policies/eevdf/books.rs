//! The books of one queue: charging, placing, picking.

use super::rq::grown;
use super::{Eevdf, Version, SLICE_MAX, SLICE_MIN};
use crate::policies::weights;
use crate::policy::Kernel;
use crate::task::{Attrs, Cpu, Ns, SchedPolicy, TaskId};

impl Eevdf {
    /// Charges what runs on queue `q` up to the clock; true when the kernel would ask for a reschedule.
    #[inline(always)]
    pub(super) fn charge(&mut self, k: &Kernel, q: usize) -> bool {
        let clock = k.clock(self.cpu_of(q));
        let rq = &mut self.rq[q];
        let Some(t) = rq.curr else { return false };
        let delta = clock - rq.exec_start;
        if delta <= 0 {
            return false;
        }
        let asks = rq.charge(t, &mut self.e[t], &self.f, self.base, delta);
        self.use_quota(q, delta) || asks
    }

    /// Charges queue `q` and asks for a reschedule where that is due.
    #[inline(always)]
    pub(super) fn charge_and_resched(&mut self, k: &mut Kernel, q: usize) {
        if self.charge(k, q) {
            self.resched(k, self.cpu_of(q));
        }
    }

    /// Asks for a reschedule as this kernel does.
    pub(super) fn resched(&self, k: &mut Kernel, cpu: Cpu) {
        if self.f.lazy {
            k.resched_lazy(cpu);
        } else {
            k.resched(cpu);
        }
    }

    /// The same in a wakeup.
    pub(super) fn resched_woken(&self, k: &mut Kernel, cpu: Cpu) {
        if self.f.lazy {
            k.resched_lazy(cpu);
        } else {
            k.resched_keeping_clock(cpu);
        }
    }

    /// Gives `t` a place on queue `q`, which does not count it yet.
    #[inline(always)]
    pub(super) fn place(&mut self, q: usize, t: TaskId, initial: bool) {
        self.rq[q].place(&mut self.e[t], &self.f, self.base, initial);
    }

    /// Gives `t` a place on queue `q`, counts it there, and puts it into the tree.
    #[inline(always)]
    pub(super) fn enter(&mut self, q: usize, t: TaskId, initial: bool) {
        let (rq, e) = (&mut self.rq[q], &mut self.e[t]);
        debug_assert!(!e.place.is_queued(), "a task is queued once");
        rq.place(e, &self.f, self.base, initial);
        (e.on_rq, e.queue) = (true, q as u32);
        rq.add(e);
        e.place = rq.tree.insert(t, e.deadline, e.v);
    }

    #[inline(always)]
    pub(super) fn put_in_tree(&mut self, q: usize, t: TaskId) {
        let (rq, e) = (&mut self.rq[q], &mut self.e[t]);
        debug_assert!(!e.place.is_queued(), "a task is queued once");
        e.place = rq.tree.insert(t, e.deadline, e.v);
    }

    /// The lag of `t`, which is counted on `q`, within its bounds.
    #[inline(always)]
    pub(super) fn lag(&self, q: usize, t: TaskId) -> Ns {
        let e = &self.e[t];
        self.rq[q].lag(e, e.most_lag(self.longest(q), self.tick))
    }

    /// The longest slice on `q`, where that bounds the lag of all there.
    #[inline(always)]
    fn longest(&self, q: usize) -> Option<Ns> {
        (self.f.version >= Version::V618).then(|| self.most_slice(q))
    }

    /// The longest slice on `q`.
    fn most_slice(&self, q: usize) -> Ns {
        if self.custom == 0 {
            return self.base;
        }
        let tree = self.rq[q].tree.iter().map(|t| self.e[t].slice).max().unwrap_or(0);
        tree.max(self.rq[q].curr.map_or(0, |c| self.e[c].slice))
    }

    /// The shortest slice on `q`.
    pub(super) fn least_slice(&self, q: usize) -> Ns {
        if self.custom == 0 {
            return self.base;
        }
        let tree = self.rq[q].tree.iter().map(|t| self.e[t].slice).min().unwrap_or(Ns::MAX);
        tree.min(self.rq[q].curr.map_or(Ns::MAX, |c| self.e[c].slice))
    }

    /// Takes `t` out of the sums and the tree of its queue.
    #[inline(always)]
    pub(super) fn leave(&mut self, t: TaskId, sleeps: bool) {
        let q = self.e[t].q();
        let longest = self.longest(q);
        let (rq, e) = (&mut self.rq[q], &mut self.e[t]);
        rq.leave(t, e, &self.f, e.most_lag(longest, self.tick), sleeps);
        let curr = rq.curr.map(|c| self.e[c].v);
        rq.raise_min(curr);
    }

    /// `t`, which ran on `cpu` and has been charged, falls asleep where there are no groups; false
    /// where it stays counted.
    #[inline(always)]
    pub(super) fn sleeps_alone(&mut self, now: Ns, cpu: Cpu, t: TaskId) -> bool {
        let longest = self.longest(cpu);
        let (rq, e) = (&mut self.rq[cpu], &mut self.e[t]);
        debug_assert_eq!(e.q(), cpu, "a task runs where it is queued");
        if self.f.delays() && !rq.eligible(e.v) {
            return false;
        }
        self.bal.sleeps_alone(now, cpu, t);
        rq.leave(t, e, &self.f, e.most_lag(longest, self.tick), true);
        let curr = rq.curr.map(|c| self.e[c].v);
        rq.raise_min(curr);
        true
    }

    /// `t` begins to run on its queue: how long it is protected from others.
    #[inline(always)]
    pub(super) fn protect(&mut self, t: TaskId) {
        let e = &mut self.e[t];
        e.picked = Some(e.deadline);
        if self.f.version >= Version::V618 {
            self.protect_for_slice(t);
        }
    }

    fn protect_for_slice(&mut self, t: TaskId) {
        let e = &self.e[t];
        let q = e.q();
        let slice = if self.f.run_to_parity { self.least_slice(q) } else { self.base / weights::cpu_factor(self.ncpu) };
        let slice = slice.min(e.slice);
        let mut until = e.deadline;
        if slice != e.slice {
            let rq = &self.rq[q];
            let flat_short = self.f.version == Version::V73 && self.f.preempt_short;
            until = until.min(if flat_short {
                // Where it ceases to be eligible, all others taken as they are.
                let (w, wv) = (rq.sum_w - e.weight, rq.sum_wv - i128::from(e.weight) * i128::from(e.v));
                if w > 0 {
                    wv.div_euclid(i128::from(w)) as Ns + 1
                } else {
                    e.v + 1
                }
            } else {
                e.v + e.fair(slice)
            });
        }
        self.e[t].protected = until;
    }

    pub(super) fn is_protected(&self, t: TaskId) -> bool {
        let e = &self.e[t];
        match self.f.version {
            Version::V618 | Version::V73 => e.v < e.protected,
            _ => self.f.run_to_parity && e.picked == Some(e.deadline),
        }
    }

    pub(super) fn cancel_protection(&mut self, t: TaskId) {
        if self.is_protected(t) {
            self.e[t].picked = Some(self.e[t].deadline + 1);
            self.e[t].protected = self.e[t].v;
        }
    }

    /// 6.18 and later: a wakeup that did not preempt shortens the protection of the running task to
    /// the shortest slice.
    pub(super) fn shorten_protection(&mut self, t: TaskId) {
        let q = self.e[t].q();
        let slice = self.least_slice(q);
        let e = &self.e[t];
        let from = if self.f.version == Version::V73 { e.v.min(self.rq[q].mean()) } else { e.v };
        self.e[t].protected = e.protected.min(from + e.fair(slice));
    }

    /// The entity to run next on `q`; `curr` is the running one, where it may go on.
    #[inline(always)]
    pub(super) fn pick(&self, q: usize, curr: Option<TaskId>, protect: bool) -> Option<TaskId> {
        let rq = &self.rq[q];
        if rq.nr == 1 {
            return curr.or_else(|| rq.tree.first());
        }
        let buddy = rq.next.filter(|&n| self.e[n].on_rq && !self.e[n].delayed && rq.eligible(self.e[n].v));
        if let (Some(next), true) = (buddy, protect) {
            return Some(next);
        }
        self.earliest(q, curr, protect)
    }

    /// The eligible entity with the earliest deadline on `q`; `curr` competes as the running one.
    #[inline(always)]
    pub(super) fn earliest(&self, q: usize, curr: Option<TaskId>, protect: bool) -> Option<TaskId> {
        let rq = &self.rq[q];
        if rq.nr == 1 {
            return curr.or_else(|| rq.tree.first());
        }
        let curr = curr.filter(|&c| rq.eligible(self.e[c].v));
        if let Some(c) = curr.filter(|&c| protect && self.is_protected(c)) {
            return Some(c);
        }
        let best = rq.tree.first_eligible(|v| rq.eligible(v));
        match (curr, best) {
            (Some(c), Some(b)) if self.e[c].deadline < self.e[b].deadline => Some(c),
            (c, b) => b.or(c),
        }
    }

    /// Takes the weight and slice of a task from its attributes.
    pub(super) fn set_attrs(&mut self, t: TaskId, attrs: &Attrs) {
        let e = self.e.ensure(t);
        e.own_weight = weights::of(attrs);
        e.weigh(e.own_weight << 10);
        e.idle = attrs.policy == SchedPolicy::Idle;
        match attrs.slice {
            Some(s) if s > 0 => {
                self.custom += 1;
                e.custom_slice = true;
                e.slice = s.clamp(SLICE_MIN, SLICE_MAX);
            }
            _ => {
                e.custom_slice = false;
                e.slice = self.base;
            }
        }
    }

    /// Gives `t` another weight; its lag and its deadline keep their distance in real time.
    pub(super) fn reweigh(&mut self, t: TaskId, weight: i64) {
        let old = self.e[t];
        if old.weight == weight {
            return;
        }
        let scale = |x: Ns| (i128::from(x) * i128::from(old.weight) / i128::from(weight)) as Ns;
        if !old.on_rq {
            let e = &mut self.e[t];
            e.weigh(weight);
            e.vlag = scale(e.vlag);
            if e.rel_deadline {
                e.deadline = scale(e.deadline);
            }
            return;
        }
        let q = old.q();
        let mean = self.rq[q].mean();
        let lag = self.lag(q, t);
        let queued = self.rq[q].take_out(&mut self.e[t]);
        self.rq[q].sub(&old);
        self.e[t].weigh(weight);
        self.e[t].v = match self.f.reweight_places {
            true => self.placed_anew(t, scale(lag), mean),
            false => mean - scale(mean - old.v),
        };
        let e = &mut self.e[t];
        e.deadline = if self.f.version == Version::V73 {
            mean + scale(old.deadline - mean)
        } else {
            e.v + scale(old.deadline - old.v)
        };
        if old.v < old.protected {
            e.protected = e.v + scale(old.protected - old.v);
        }
        if old.picked == Some(old.deadline) {
            e.picked = Some(e.deadline);
        }
        self.rq[q].add(&self.e[t]);
        if queued {
            self.put_in_tree(q, t);
        }
    }

    /// Where `t` comes, which has a new weight, as if it had left its queue with `lag`. The mean by
    /// which the running entity is placed counts it already: its lag grows with every change.
    fn placed_anew(&mut self, t: TaskId, lag: Ns, mean: Ns) -> Ns {
        let e = self.e[t];
        let rq = &mut self.rq[e.q()];
        if !self.f.place_lag || rq.nr == 0 {
            return mean;
        }
        let runs = rq.curr == Some(t);
        if runs {
            rq.add(&e);
        }
        let (mean, load) = (rq.mean(), rq.sum_w);
        if runs {
            rq.sub(&e);
        }
        mean - grown(lag, load, e.weight)
    }
}
