//! Accounting, placement, preemption and choice.

use super::fixed::{self, Weight};
use super::{Cfs, Entity, Form, Rq, Tunables};

use crate::policies::weights;
use crate::policy::{Enqueue, Kernel};
use crate::task::{Cpu, Ns, SchedPolicy, TaskId};

impl Tunables {
    /// Real time in the virtual time of a task.
    #[inline]
    fn fair(&self, delta: Ns, w: Weight) -> i64 {
        match (self.fixed_point, self.form) {
            (false, _) => weights::fair(delta, w.w as i64),
            (true, Form::V61) => fixed::fair(delta, w),
            (true, _) => fixed::old::fair(delta, w),
        }
    }
}

impl Rq {
    /// The minimum follows the smaller of what runs, at `curr`, and the first that waits. It never goes
    /// back.
    #[inline]
    fn raise_min(&mut self, curr: Option<i64>) {
        let low = match (curr, self.line.first()) {
            (Some(c), Some((left, _))) => c.min(left),
            (Some(v), None) | (None, Some((v, _))) => v,
            (None, None) => return,
        };
        self.min_vruntime = self.min_vruntime.max(low);
    }

    /// Charges `e`, which runs here, up to `now`, and tells for how long.
    #[inline(never)]
    fn charge(&mut self, e: &mut Entity, tun: &Tunables, now: Ns) -> Ns {
        let delta = now - std::mem::replace(&mut self.exec_start, now);
        e.sum += delta;
        e.vruntime += tun.fair(delta, e.weight);
        self.raise_min(e.on_rq.then_some(e.vruntime));
        delta
    }

    /// `e` is preferred or passed over.
    #[inline(always)]
    pub(super) fn marks(&self, e: TaskId) -> bool {
        let is = Some(e);
        self.next == is || self.last == is || self.skip == is
    }
}

impl Cfs {
    /// Charges what runs on queue `q` up to now.
    #[inline(always)]
    pub(super) fn update_curr(&mut self, k: &Kernel, q: usize) {
        self.charge_to(k.clock(self.groups.cpu_of(q)), q);
    }

    /// Charges what runs on queue `q` up to `now`.
    #[inline(always)]
    pub(super) fn charge_to(&mut self, now: Ns, q: usize) {
        let rq = &mut self.rqs[q];
        let Some(t) = rq.curr.filter(|_| now > rq.exec_start) else { return };
        let delta = rq.charge(&mut self.tasks[t], &self.tun, now);
        if self.quota.any() && self.use_quota(q, delta) {
            self.out_of_quota = Some(self.groups.cpu_of(q));
        }
    }

    /// Brings the minimum of queue `q` up to date; the group's share that it belongs to.
    #[inline(always)]
    pub(super) fn update_min(&mut self, q: usize) -> Option<TaskId> {
        let rq = &mut self.rqs[q];
        let curr = rq.curr.map(|t| &self.tasks[t]).filter(|e| e.on_rq).map(|e| e.vruntime);
        rq.raise_min(curr);
        rq.owner
    }

    /// The time that `e` is to run within a period: its part of its group's part of the period of
    /// all tasks of the CPU.
    fn slice(&self, e: TaskId) -> Ns {
        let tun = &self.tun;
        let entity = &self.tasks[e];
        let nr = self.runnable[self.groups.cpu_of(entity.q)] + i64::from(!entity.on_rq);
        let mut slice = if nr <= tun.nr_latency { tun.latency } else { tun.min_gran * nr };
        let mut at = Some(e);
        while let Some(e) = at {
            let entity = &self.tasks[e];
            let total = self.rqs[entity.q].load + u64::from(!entity.on_rq) * entity.weight.w;
            slice = match (tun.fixed_point, tun.form) {
                (false, _) => (i128::from(slice) * i128::from(entity.weight.w) / i128::from(total.max(1))) as Ns,
                (true, Form::V61) => fixed::share(slice, entity.weight.w, total),
                (true, _) => fixed::old::share(slice, entity.weight.w, total),
            };
            at = self.above(e);
        }
        if tun.form < Form::V61 || !tun.base_slice {
            return slice;
        }
        slice.max(if entity.idle_policy { tun.idle_min_gran } else { tun.min_gran })
    }

    /// Where a new task starts on queue `q`, and whether it goes before its parent. 6.1 places it
    /// in the terms of its parent's queue.
    pub(super) fn place_new(&mut self, k: &mut Kernel, q: usize, t: TaskId) {
        let at = self.queue_of_fork(k, q, t);
        self.update_curr(k, at);
        self.tasks[t].q = at;
        let slice = if self.tun.start_debit { self.slice(t) } else { 0 };
        let debit = self.tun.fair(slice, self.tasks[t].weight);
        let mut v = self.rqs[at].min_vruntime + debit;
        let curr = self.rqs[at].curr;
        if let (Form::V61, Some(c)) = (self.tun.form, curr) {
            v = v.max(self.tasks[c].vruntime);
        }
        if let (true, Some(c)) = (self.tun.child_runs_first, curr) {
            let here = k.task(t).parent == Some(c);
            let theirs = self.tasks[c].vruntime;
            if here && theirs < v {
                self.tasks[c].vruntime = v;
                v = theirs;
                k.resched(self.groups.cpu_of(at));
            }
        }
        self.tasks[t].vruntime = v;
        self.rebase(q, t);
    }

    /// What slept gets credit for it, up to a bound.
    #[inline(always)]
    pub(super) fn place_woken(&mut self, t: TaskId) {
        let (e, tun) = (&mut self.tasks[t], &self.tun);
        let mut credit = 0;
        if tun.fair_sleepers {
            credit = if tun.form == Form::V61 && e.idle_policy { tun.min_gran } else { tun.latency };
            if tun.normalized && !e.idle_policy {
                credit = tun.fair(credit, e.weight);
            }
            if tun.gentle {
                credit /= 2;
            }
        }
        e.vruntime = e.vruntime.max(self.rqs[e.q].min_vruntime - credit);
        e.start_sum = e.sum;
    }

    /// At a tick: has what runs had its share?
    pub(super) fn check_tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        let ideal = self.slice(t);
        let e = &self.tasks[t];
        let ran = e.sum - e.prev_sum;
        if ran > ideal {
            k.resched(cpu);
            self.clear_buddies(t);
            return;
        }
        let tun = &self.tun;
        if tun.form <= Form::V29 || ran < tun.min_gran || (tun.form == Form::V32 && !tun.wakeup_preemption) {
            return;
        }
        if let Some((left, _)) = self.rqs[e.q].line.first() {
            if e.vruntime - left > ideal {
                k.resched(cpu);
            }
        }
    }

    /// How far `curr` must be ahead of `t` in virtual time to be preempted by it.
    fn granularity(&self, curr: TaskId, t: TaskId) -> i64 {
        let gran = self.tun.wakeup_gran;
        match self.tun.form {
            Form::V27 | Form::V29 => {
                let w = self.tasks[curr].weight;
                if w.w > fixed::NICE_0 {
                    self.tun.fair(gran, w)
                } else {
                    gran
                }
            }
            Form::V32 => {
                let (c, e) = (&self.tasks[curr], &self.tasks[t]);
                let gran = if self.tun.adaptive_gran {
                    let expected = 2 * e.avg_wakeup * self.rqs[c.q].nr;
                    (expected - (c.sum - c.prev_sum)).clamp(0, gran)
                } else {
                    gran
                };
                self.tun.fair(gran, e.weight)
            }
            Form::V61 => self.tun.fair(gran, self.tasks[t].weight),
        }
    }

    /// True when `a` is so far ahead of `b` that it would be unfair to run `a` first.
    #[inline(always)]
    fn unfair(&self, a: TaskId, b: TaskId) -> bool {
        let ahead = self.tasks[a].vruntime - self.tasks[b].vruntime;
        ahead > 0 && ahead > self.granularity(a, b)
    }

    /// `t` was queued while `curr` runs.
    pub(super) fn check_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, why: Enqueue) {
        let (ce, te) = self.matching(curr, t);
        self.update_curr(k, self.tasks[ce].q);
        let new = matches!(why, Enqueue::Fork);
        let mut marked = false;
        if self.tun.form <= Form::V29 {
            let own = &self.tasks[curr];
            if self.tun.last_buddy && !own.idle_policy {
                self.rqs[own.q].last = Some(curr);
            }
            self.set_next(t);
        } else if self.tun.next_buddy && self.is_crowded(curr) && !new {
            self.set_next(t);
            marked = true;
        }
        self.resched_out_of_quota(k);
        if k.need_resched(cpu) {
            return;
        }
        let normal = matches!(k.task(t).attrs.policy, SchedPolicy::Other | SchedPolicy::Fifo | SchedPolicy::Rr);
        let mut idle_curr = self.tasks[curr].idle_policy && !self.tasks[t].idle_policy;
        if self.tun.form < Form::V61 && !normal {
            return;
        }
        let may = idle_curr || normal && self.tun.wakeup_preemption;
        if !may {
            return;
        }
        // Of groups that count as SCHED_IDLE the same holds.
        let (idle, woken_idle) = (self.tasks[ce].idle_policy, self.tasks[te].idle_policy);
        idle_curr |= idle && !woken_idle;
        if !idle_curr {
            let kept = self.tun.form == Form::V61 && idle != woken_idle;
            if kept || !self.unfair(ce, te) {
                return;
            }
            if self.tun.form == Form::V61 && !marked {
                self.set_next(te);
            }
        }
        if self.tun.form == Form::V61 {
            k.resched_keeping_clock(cpu);
        } else {
            k.resched(cpu);
        }
        let task = ce == curr && !self.tasks[curr].idle_policy;
        if self.tun.form > Form::V29 && self.tun.last_buddy && task && self.is_crowded(curr) {
            self.set_last(curr);
        }
    }

    /// So many are on the queue of `e` that their slices are the least.
    fn is_crowded(&self, e: TaskId) -> bool {
        self.rqs[self.tasks[e].q].nr >= self.tun.nr_latency
    }

    /// `e`, and the groups above it, are preferred next.
    pub(super) fn set_next(&mut self, e: TaskId) {
        let mut at = Some(e).filter(|&e| !self.tasks[e].idle_policy);
        while let Some(e) = at {
            self.rqs[self.tasks[e].q].next = Some(e);
            at = self.above(e).filter(|&e| self.tasks[e].on_rq && !self.tasks[e].idle_policy);
        }
    }

    fn set_last(&mut self, e: TaskId) {
        let mut at = Some(e);
        while let Some(e) = at {
            self.rqs[self.tasks[e].q].last = Some(e);
            at = self.above(e).filter(|&e| self.tasks[e].on_rq && !self.tasks[e].idle_policy);
        }
    }

    /// `e` is no longer preferred or passed over, nor are the groups above it that were so for its sake.
    #[inline(always)]
    pub(super) fn clear_buddies(&mut self, e: TaskId) {
        if self.rqs[self.tasks[e].q].marks(e) {
            self.clear_these(e);
        }
    }

    #[inline(never)]
    pub(super) fn clear_these(&mut self, e: TaskId) {
        let buddies: [fn(&mut super::Rq) -> &mut Option<TaskId>; 3] =
            [|rq| &mut rq.next, |rq| &mut rq.last, |rq| &mut rq.skip];
        for of in buddies {
            let mut at = Some(e);
            while let Some(e) = at {
                let buddy = of(&mut self.rqs[self.tasks[e].q]);
                if *buddy != Some(e) {
                    break;
                }
                *buddy = None;
                at = self.above(e);
            }
        }
    }

    /// The task to run next; it and the groups above it stay where they wait.
    #[inline(always)]
    pub(super) fn pick(&mut self, cpu: Cpu) -> Option<TaskId> {
        let mut q = cpu;
        loop {
            let e = self.pick_on(q)?;
            match self.groups.of_entity(e) {
                Some((g, cpu)) => q = self.groups.queue(g, cpu),
                None => return Some(e),
            }
        }
    }

    #[inline(always)]
    fn pick_on(&self, q: usize) -> Option<TaskId> {
        let rq = &self.rqs[q];
        let (_, left) = rq.line.first()?;
        if rq.skip.is_none() && rq.next.is_none() && rq.last.is_none() {
            return Some(left);
        }
        let waits = |b: TaskId| self.tasks[b].place.is_queued() && self.tasks[b].q == q;
        let good = |buddy: Option<TaskId>| buddy.filter(|&b| waits(b) && !self.unfair(b, left));
        let mut chosen = left;
        if rq.skip == Some(left) {
            chosen = rq.line.second().filter(|&s| !self.unfair(s, left)).unwrap_or(left);
        }
        let (next, last) = (good(rq.next), good(rq.last));
        let buddy = if self.tun.form == Form::V32 { last.or(next) } else { next.or(last) };
        Some(buddy.unwrap_or(chosen))
    }

    pub(super) fn do_yield(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        if self.runnable[cpu] == 1 {
            return;
        }
        let q = self.tasks[t].q;
        self.update_curr(k, q);
        self.clear_buddies(t);
        if self.tun.form == Form::V61 {
            let mut at = Some(t);
            while let Some(e) = at {
                self.rqs[self.tasks[e].q].skip = Some(e);
                at = self.above(e);
            }
            return;
        }
        if self.tun.compat_yield || k.task(t).attrs.policy == SchedPolicy::Batch {
            let right = self.rqs[q].line.last();
            if let Some(right) = right.filter(|&r| r >= self.tasks[t].vruntime) {
                self.tasks[t].vruntime = right + 1;
            }
        }
    }

    /// 2.6.32: `waker` wakes somebody.
    pub(super) fn note_waker(&mut self, waker: TaskId) {
        if self.tun.form != Form::V32 {
            return;
        }
        let Some(&e) = self.tasks.get(waker) else { return };
        let sample = e.sum - if e.last_wakeup != 0 { e.last_wakeup } else { e.start_sum };
        let e = &mut self.tasks[waker];
        e.avg_wakeup += (sample - e.avg_wakeup) >> 3;
        e.last_wakeup = e.sum;
    }

    /// 2.6.32: `t` falls asleep.
    pub(super) fn note_sleep(&mut self, t: TaskId) {
        let gran = self.tun.wakeup_gran;
        let e = &mut self.tasks[t];
        if e.last_wakeup != 0 {
            e.last_wakeup = 0;
        } else {
            e.avg_wakeup += (gran - e.avg_wakeup) >> 3;
        }
    }
}
