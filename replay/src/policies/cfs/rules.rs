//! Accounting, placement, preemption and choice.

use super::fixed::{self, Weight};
use super::{Cfs, Form};

use crate::policies::weights;
use crate::policy::{Enqueue, Kernel};
use crate::task::{Cpu, Ns, SchedPolicy, TaskId};

impl Cfs {
    /// Real time in the virtual time of a task.
    #[inline]
    fn fair(&self, delta: Ns, w: Weight) -> i64 {
        match (self.tun.fixed_point, self.tun.form) {
            (false, _) => weights::fair(delta, w.w as i64),
            (true, Form::V61) => fixed::fair(delta, w),
            (true, _) => fixed::old::fair(delta, w),
        }
    }

    /// Charges the running task up to now.
    pub(super) fn update_curr(&mut self, k: &Kernel, cpu: Cpu) {
        let Some(t) = self.rqs[cpu].curr else { return };
        let now = k.clock(cpu);
        let delta = now - self.rqs[cpu].exec_start;
        if delta <= 0 {
            return;
        }
        self.rqs[cpu].exec_start = now;
        let v = self.fair(delta, self.tasks[t].weight);
        let e = &mut self.tasks[t];
        e.sum += delta;
        e.vruntime += v;
        self.update_min(cpu);
    }

    /// The queue's minimum follows the smaller of the running and the leftmost task, and never goes back.
    pub(super) fn update_min(&mut self, cpu: Cpu) {
        let rq = &self.rqs[cpu];
        let left = rq.tree.first().map(|f| f.0);
        let curr = rq.curr.filter(|&t| self.tasks[t].on_rq).map(|t| self.tasks[t].vruntime);
        let low = match (curr, left) {
            (Some(c), Some(l)) => c.min(l),
            (Some(v), None) | (None, Some(v)) => v,
            (None, None) => return,
        };
        let rq = &mut self.rqs[cpu];
        rq.min_vruntime = rq.min_vruntime.max(low);
    }

    /// The time that `t` is to run within a period.
    fn slice(&self, cpu: Cpu, t: TaskId) -> Ns {
        let (rq, e, tun) = (&self.rqs[cpu], &self.tasks[t], &self.tun);
        let absent = i64::from(!e.on_rq);
        let nr = rq.nr + absent;
        let period = if nr <= tun.nr_latency { tun.latency } else { tun.min_gran * nr };
        let total = rq.load + absent as u64 * e.weight.w;
        let slice = match (tun.fixed_point, tun.form) {
            (false, _) => (i128::from(period) * i128::from(e.weight.w) / i128::from(total.max(1))) as Ns,
            (true, Form::V61) => fixed::share(period, e.weight.w, total),
            (true, _) => fixed::old::share(period, e.weight.w, total),
        };
        if tun.form < Form::V61 || !tun.base_slice {
            return slice;
        }
        slice.max(if e.idle_policy { tun.idle_min_gran } else { tun.min_gran })
    }

    /// Where a new task starts, and whether it goes before its parent.
    pub(super) fn place_new(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        let slice = if self.tun.start_debit { self.slice(cpu, t) } else { 0 };
        let debit = self.fair(slice, self.tasks[t].weight);
        let mut v = self.rqs[cpu].min_vruntime + debit;
        let curr = self.rqs[cpu].curr;
        if let (Form::V61, Some(c)) = (self.tun.form, curr) {
            v = v.max(self.tasks[c].vruntime);
        }
        if let (true, Some(c)) = (self.tun.child_runs_first, curr) {
            let here = k.task(t).parent == Some(c);
            let theirs = self.tasks[c].vruntime;
            if here && theirs < v {
                self.tasks[c].vruntime = v;
                v = theirs;
                k.resched(cpu);
            }
        }
        let e = &mut self.tasks[t];
        e.vruntime = v;
        e.cpu = cpu;
    }

    /// A task that slept gets credit for it, up to a bound.
    pub(super) fn place_woken(&mut self, cpu: Cpu, t: TaskId) {
        let (e, tun) = (&self.tasks[t], &self.tun);
        let mut credit = 0;
        if tun.fair_sleepers {
            credit = if tun.form == Form::V61 && e.idle_policy { tun.min_gran } else { tun.latency };
            if tun.normalized && !e.idle_policy {
                credit = self.fair(credit, e.weight);
            }
            if tun.gentle {
                credit /= 2;
            }
        }
        let floor = self.rqs[cpu].min_vruntime - credit;
        let e = &mut self.tasks[t];
        e.vruntime = e.vruntime.max(floor);
    }

    /// At a tick: has the running task had its share?
    pub(super) fn check_tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        let ideal = self.slice(cpu, t);
        let e = &self.tasks[t];
        let ran = e.sum - e.prev_sum;
        if ran > ideal {
            k.resched(cpu);
            self.clear_buddies(cpu, t);
            return;
        }
        let tun = &self.tun;
        if tun.form == Form::V29 || ran < tun.min_gran || (tun.form == Form::V32 && !tun.wakeup_preemption) {
            return;
        }
        if let Some((left, _)) = self.rqs[cpu].tree.first() {
            if e.vruntime - left > ideal {
                k.resched(cpu);
            }
        }
    }

    /// How far `curr` must be ahead of `t` in virtual time to be preempted by it.
    fn granularity(&self, cpu: Cpu, curr: TaskId, t: TaskId) -> i64 {
        let gran = self.tun.wakeup_gran;
        match self.tun.form {
            Form::V29 => {
                let w = self.tasks[curr].weight;
                if w.w > fixed::NICE_0 {
                    self.fair(gran, w)
                } else {
                    gran
                }
            }
            Form::V32 => {
                let (c, e) = (&self.tasks[curr], &self.tasks[t]);
                let gran = if self.tun.adaptive_gran {
                    let expected = 2 * e.avg_wakeup * self.rqs[cpu].nr;
                    (expected - (c.sum - c.prev_sum)).clamp(0, gran)
                } else {
                    gran
                };
                self.fair(gran, e.weight)
            }
            Form::V61 => self.fair(gran, self.tasks[t].weight),
        }
    }

    /// True when `a` is so far ahead of `b` that it would be unfair to run `a` first.
    fn unfair(&self, cpu: Cpu, a: TaskId, b: TaskId) -> bool {
        let ahead = self.tasks[a].vruntime - self.tasks[b].vruntime;
        ahead > 0 && ahead > self.granularity(cpu, a, b)
    }

    /// `t` was queued while `curr` runs.
    pub(super) fn check_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, why: Enqueue) {
        self.update_curr(k, cpu);
        let tun = &self.tun;
        let new = matches!(why, Enqueue::Fork);
        let crowded = self.rqs[cpu].nr >= tun.nr_latency;
        let mut marked = false;
        if tun.form == Form::V29 {
            if tun.last_buddy && !self.tasks[curr].idle_policy {
                self.rqs[cpu].last = Some(curr);
            }
            self.set_next(cpu, t);
        } else if self.tun.next_buddy && crowded && !new {
            self.set_next(cpu, t);
            marked = true;
        }
        if k.need_resched(cpu) {
            return;
        }
        let normal = matches!(k.task(t).attrs.policy, SchedPolicy::Other | SchedPolicy::Fifo | SchedPolicy::Rr);
        let idle_curr = self.tasks[curr].idle_policy && !self.tasks[t].idle_policy;
        if self.tun.form < Form::V61 && !normal {
            return;
        }
        let may = idle_curr || normal && self.tun.wakeup_preemption;
        if !may {
            return;
        }
        if !idle_curr {
            if !self.unfair(cpu, curr, t) {
                return;
            }
            if self.tun.form == Form::V61 && !marked {
                self.set_next(cpu, t);
            }
        }
        if self.tun.form == Form::V61 {
            k.resched_keeping_clock(cpu);
        } else {
            k.resched(cpu);
        }
        if self.tun.form > Form::V29 && self.tun.last_buddy && crowded && !self.tasks[curr].idle_policy {
            self.rqs[cpu].last = Some(curr);
        }
    }

    fn set_next(&mut self, cpu: Cpu, t: TaskId) {
        if !self.tasks[t].idle_policy {
            self.rqs[cpu].next = Some(t);
        }
    }

    pub(super) fn clear_buddies(&mut self, cpu: Cpu, t: TaskId) {
        let rq = &mut self.rqs[cpu];
        for buddy in [&mut rq.next, &mut rq.last, &mut rq.skip] {
            if *buddy == Some(t) {
                *buddy = None;
            }
        }
    }

    /// The task to run next; it stays in the tree.
    pub(super) fn pick(&mut self, cpu: Cpu) -> Option<TaskId> {
        let rq = &self.rqs[cpu];
        let (_, left) = rq.tree.first()?;
        let good = |buddy: Option<TaskId>| buddy.filter(|&b| rq.tree.contains(b) && !self.unfair(cpu, b, left));
        let mut chosen = left;
        if rq.skip == Some(left) {
            let second = rq.tree.second().map(|s| s.1);
            chosen = second.filter(|&s| !self.unfair(cpu, s, left)).unwrap_or(left);
        }
        let (next, last) = (good(rq.next), good(rq.last));
        let buddy = if self.tun.form == Form::V32 { last.or(next) } else { next.or(last) };
        Some(buddy.unwrap_or(chosen))
    }

    pub(super) fn do_yield(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        if self.rqs[cpu].nr == 1 {
            return;
        }
        self.update_curr(k, cpu);
        self.clear_buddies(cpu, t);
        if self.tun.form == Form::V61 {
            self.rqs[cpu].skip = Some(t);
            return;
        }
        if self.tun.compat_yield || k.task(t).attrs.policy == SchedPolicy::Batch {
            let right = self.rqs[cpu].tree.iter().map(|e| e.0).max();
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
