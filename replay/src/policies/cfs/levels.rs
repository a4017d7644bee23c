//! Queueing through the levels of groups, and their shares.

use super::fixed::Weight;
use super::{Cfs, Form};
use crate::policy::{Enqueue, Kernel};
use crate::task::{Cpu, Ns, TaskId};

impl Cfs {
    /// The group's share that stands for `e` on the queue above.
    #[inline(always)]
    pub(super) fn above(&self, e: TaskId) -> Option<TaskId> {
        if self.groups.is_empty() {
            return None;
        }
        self.rqs[self.tasks[e].q].owner
    }

    /// The entities of two tasks of one CPU that compete on the same queue.
    #[inline]
    pub(super) fn matching(&self, a: TaskId, b: TaskId) -> (TaskId, TaskId) {
        if self.groups.is_empty() {
            return (a, b);
        }
        let mut x = Some(a);
        while let Some(e) = x {
            let mut y = Some(b);
            while let Some(f) = y {
                if self.tasks[e].q == self.tasks[f].q {
                    return (e, f);
                }
                y = self.above(f);
            }
            x = self.above(e);
        }
        (a, b)
    }

    /// `e` comes on its queue; the group's share that this belongs to.
    #[inline(always)]
    fn add(&mut self, e: TaskId) -> Option<TaskId> {
        let entity = &mut self.tasks[e];
        entity.on_rq = true;
        let q = entity.q;
        let rq = &mut self.rqs[q];
        rq.load += entity.weight.w;
        rq.nr += 1;
        entity.place = rq.line.insert(entity.vruntime, e);
        self.update_min(q)
    }

    /// `e` waits on its queue.
    #[inline]
    pub(super) fn line_up(&mut self, e: TaskId) {
        let entity = &mut self.tasks[e];
        entity.place = self.rqs[entity.q].line.insert(entity.vruntime, e);
    }

    /// `e` waits no more, if it did.
    #[inline]
    pub(super) fn out_of_line(&mut self, e: TaskId) {
        let entity = &mut self.tasks[e];
        if entity.place.is_queued() {
            self.rqs[entity.q].line.remove(std::mem::take(&mut entity.place));
        }
    }

    /// `e` leaves its queue, where it waits or runs.
    #[inline(always)]
    fn forget(&mut self, e: TaskId) {
        let entity = &mut self.tasks[e];
        entity.on_rq = false;
        let q = entity.q;
        let rq = &mut self.rqs[q];
        if entity.place.is_queued() {
            rq.line.remove(std::mem::take(&mut entity.place));
        }
        rq.load -= entity.weight.w;
        rq.nr -= 1;
        if rq.curr == Some(e) {
            rq.curr = None;
        }
        if rq.marks(e) {
            self.clear_these(e);
        }
        self.update_min(q);
    }

    /// Virtual time is relative to a queue: moves that of `e` from its last one to `q`.
    pub(super) fn rebase(&mut self, q: usize, e: TaskId) {
        let entity = &mut self.tasks[e];
        if entity.q != q {
            entity.vruntime += self.rqs[q].min_vruntime - self.rqs[entity.q].min_vruntime;
            entity.q = q;
        }
    }

    /// Where `t`, which becomes runnable on queue `q`, starts.
    fn place(&mut self, k: &mut Kernel, q: usize, t: TaskId, why: Enqueue) {
        if why == Enqueue::Initial {
            let e = &mut self.tasks[t];
            (e.vruntime, e.q) = (self.rqs[q].min_vruntime, q);
            return;
        }
        self.update_curr(k, q);
        match why {
            Enqueue::Fork => self.place_new(k, q, t),
            _ => self.rebase(q, t),
        }
        if let Enqueue::Wakeup(_) = why {
            self.place_woken(t);
        }
        if why == Enqueue::SwitchedTo {
            let floor = self.rqs[q].min_vruntime;
            let e = &mut self.tasks[t];
            e.vruntime = e.vruntime.max(floor);
        }
    }

    /// `t` becomes runnable on `cpu`, and the groups above it with it.
    pub(super) fn put_in(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Enqueue) {
        if self.quota.park(k, &self.groups, cpu, t) {
            return;
        }
        self.place(k, self.groups.home(t, cpu), t, why);
        if let Some(bal) = &mut self.bal {
            self.groups.arrives(bal, k.now(), cpu, t);
        }
        self.runnable[cpu] += 1;
        let mut at = t;
        while let Some(owner) = self.add(at) {
            self.update_curr(k, self.tasks[owner].q);
            if self.tasks[owner].on_rq {
                break;
            }
            // A group that was empty wakes with what wakes in it.
            self.place_woken(owner);
            at = owner;
        }
        self.refresh_shares(k, t);
        self.resched_out_of_quota(k);
    }

    #[inline]
    pub(super) fn resched_out_of_quota(&mut self, k: &mut Kernel) {
        if let Some(cpu) = self.out_of_quota.take().filter(|&cpu| k.curr(cpu).is_some()) {
            k.resched(cpu);
        }
    }

    /// `t` is no longer runnable on `cpu`, and the groups above it neither where nothing else is in them.
    pub(super) fn take_out(&mut self, k: &Kernel, cpu: Cpu, t: TaskId, sleeps: bool) {
        self.leave_queues(k, cpu, t, sleeps);
        if let Some(bal) = &mut self.bal {
            self.groups.leaves(bal, k.now(), cpu, t);
            if sleeps {
                bal.falls_asleep(k.now(), t);
            }
        }
        self.refresh_shares(k, t);
    }

    /// The same but for its load.
    #[inline]
    fn leave_queues(&mut self, k: &Kernel, cpu: Cpu, t: TaskId, sleeps: bool) {
        let mut at = t;
        loop {
            let q = self.tasks[at].q;
            self.update_curr(k, q);
            self.forget(at);
            let Some(owner) = self.rqs[q].owner else { break };
            if self.rqs[q].nr > 0 {
                // What its group has left is to follow soon.
                if sleeps {
                    self.set_next(owner);
                }
                break;
            }
            at = owner;
        }
        self.runnable[cpu] -= 1;
    }

    /// `t`, which has been charged, falls asleep on `cpu`: as [`Self::take_out`] behind
    /// [`super::linux::Balancer::task_stops`], at once where it is in no group; false where it is in one.
    #[inline]
    pub(super) fn sleeps_alone(&mut self, k: &Kernel, cpu: Cpu, t: TaskId) -> bool {
        let Some(bal) = self.bal.as_mut().filter(|_| self.groups.is_empty()) else { return false };
        bal.sleeps_alone(k.now(), cpu, t);
        self.forget(t);
        self.runnable[cpu] -= 1;
        true
    }

    /// The groups above what ran go back to their queues; those that are chosen again at once go on.
    #[inline]
    pub(super) fn put_groups_back(&mut self, k: &Kernel, group: Option<TaskId>) {
        let mut at = group;
        while let Some(e) = at {
            let q = self.tasks[e].q;
            if let Some(bal) = &mut self.bal {
                bal.set_running(k.now(), e, false);
            }
            if self.rqs[q].curr == Some(e) {
                self.rqs[q].curr = None;
                self.tasks[e].put_at = k.now();
                if self.tasks[e].on_rq {
                    self.line_up(e);
                }
            }
            at = self.above(e);
        }
    }

    /// Charges what runs, on all levels of `t`.
    #[inline]
    pub(super) fn charge_chain(&mut self, k: &Kernel, cpu: Cpu, t: TaskId) {
        let clock = k.clock(cpu);
        let mut at = Some(t);
        while let Some(e) = at {
            self.charge_to(clock, self.tasks[e].q);
            at = self.above(e);
        }
    }

    /// Brings the shares of the groups above `t` up to date.
    #[inline]
    fn refresh_shares(&mut self, k: &Kernel, t: TaskId) {
        let mut at = self.above(t);
        while let Some(e) = at {
            self.refresh_share(k, e);
            at = self.above(e);
        }
    }

    /// Brings the weight of `e` up to date, where it is a group's share of its CPU.
    #[inline]
    pub(super) fn refresh_share(&mut self, k: &Kernel, e: TaskId) {
        if self.groups.is_share(e) && self.tasks[e].on_rq {
            self.refresh_queued_share(k, e);
        }
    }

    fn refresh_queued_share(&mut self, k: &Kernel, e: TaskId) {
        let q = self.tasks[e].q;
        if self.rqs[q].curr == Some(e) {
            self.update_curr(k, q);
        }
        let Some(bal) = &mut self.bal else { return };
        let share = self.groups.share(bal, k.now(), e);
        bal.reweigh(k.now(), e, share);
        let was = std::mem::replace(&mut self.tasks[e].weight, Weight::of_share(share)).w;
        let rq = &mut self.rqs[q];
        rq.load = rq.load - was + share;
    }

    /// What runs on queue `q` has used `ran`; true when its group has no run time left.
    #[inline]
    pub(super) fn use_quota(&mut self, q: usize, ran: Ns) -> bool {
        self.quota.any() && self.groups.group_of_queue(q).is_some_and(|g| self.quota.spend(g, q, ran))
    }

    /// `cpu` chooses: groups without run time leave its queues.
    #[inline]
    pub(super) fn enforce_quota(&mut self, k: &mut Kernel, cpu: Cpu) {
        if self.quota.any() {
            self.throttle_due(k, cpu);
        }
    }

    fn throttle_due(&mut self, k: &mut Kernel, cpu: Cpu) {
        for q in self.quota.due(k, &self.groups, cpu) {
            let mut within = self.bal.as_mut().map(|b| b.tasks_of(cpu)).unwrap_or_default();
            within.retain(|&t| self.groups.is_below(t, cpu, q));
            for &t in &within {
                self.take_out(k, cpu, t, false);
            }
            self.quota.throttle(k, q, within);
        }
    }

    /// A period of group `g` begins.
    pub(super) fn refill(&mut self, k: &mut Kernel, g: usize) {
        for (cpu, tasks) in self.quota.refill(k, &self.groups, g) {
            k.update_clock(cpu);
            for t in tasks {
                self.put_in(k, cpu, t, Enqueue::Migrated);
                if let Some(curr) = k.curr(cpu).filter(|&c| k.is_mine(c)) {
                    self.check_preempt(k, cpu, curr, t, Enqueue::Migrated);
                }
            }
            if k.curr(cpu).is_none() && k.nr_runnable(cpu) > 0 {
                k.resched(cpu);
            }
        }
    }

    /// 6.1: the queue in whose terms a new task is placed: that of its parent, where this runs.
    pub(super) fn queue_of_fork(&self, k: &Kernel, q: usize, t: TaskId) -> usize {
        let parent = k.task(t).parent.filter(|&p| self.tun.form == Form::V61 && k.is_mine(p));
        let here = parent.map(|p| self.tasks[p].q);
        here.filter(|&q| self.rqs[q].curr == parent).unwrap_or(q)
    }
}
