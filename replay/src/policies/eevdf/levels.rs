//! Queueing and picking through the levels of groups.

use super::{Eevdf, Version};
use crate::policies::weights;
use crate::policy::Kernel;
use crate::task::{Cpu, Ns, TaskId};

/// Groups within groups that are followed.
const DEPTH: usize = 16;

/// A task, and the groups' shares above it that have a place on a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    of: [TaskId; DEPTH],
    n: usize,
    at: usize,
}

impl Chain {
    /// The task first.
    pub fn all(&self) -> &[TaskId] {
        &self.of[..self.n]
    }
}

impl Iterator for Chain {
    type Item = TaskId;
    #[inline]
    fn next(&mut self) -> Option<TaskId> {
        let e = self.of[..self.n].get(self.at).copied();
        self.at += 1;
        e
    }
}

impl Eevdf {
    /// The group's share that stands for `e` on the queue above.
    #[inline(always)]
    pub(super) fn above(&self, e: TaskId) -> Option<TaskId> {
        if self.groups.is_empty() {
            return None;
        }
        self.rq[self.e[e].q()].owner
    }

    /// `t` and what stands for it on the queues above.
    pub(super) fn chain(&self, t: TaskId) -> Chain {
        let mut chain = Chain { of: [t; DEPTH], n: 1, at: 0 };
        let mut q = self.e[t].q();
        while let Some(owner) = self.rq[q].owner.filter(|_| chain.n < DEPTH) {
            chain.of[chain.n] = owner;
            chain.n += 1;
            q = self.e[owner].q();
        }
        chain
    }

    /// Takes `t` out of the loads of its queue and of the groups above it.
    fn count_out(&mut self, k: &Kernel, cpu: Cpu, t: TaskId) {
        self.groups.count_out(&mut self.bal, k.now(), cpu, t);
        self.refresh_weights(k, cpu, t);
    }

    /// Brings the shares of the groups above `t` on `cpu` up to date, and charges what runs beside
    /// those that change; true when the kernel would ask for a reschedule.
    #[inline]
    fn refresh_weights(&mut self, k: &Kernel, cpu: Cpu, t: TaskId) -> bool {
        !self.groups.is_empty() && self.refresh_levels(k, cpu, t)
    }

    fn refresh_levels(&mut self, k: &Kernel, cpu: Cpu, t: TaskId) -> bool {
        let now = k.now();
        let mut asks = false;
        let mut q = self.groups.home(t, cpu);
        while let Some(owner) = self.groups.owner(q) {
            if self.bal.weights(q, owner).0 > 0 {
                let share = self.groups.fine_share(&mut self.bal, now, owner);
                self.bal.reweigh(now, owner, share >> 10);
                if !self.flat() && self.e[owner].weight != share as i64 {
                    if self.e[owner].on_rq {
                        asks |= self.charge(k, self.e[owner].q());
                    }
                    self.reweigh(owner, share as i64);
                }
            }
            q = self.groups.home(owner, cpu);
        }
        asks
    }

    /// 7.3: the weight of `t` on its CPU's queue, with what its groups leave it.
    pub(super) fn flat_weight(&self, t: TaskId) -> i64 {
        let cpu = self.cpu_of(self.e[t].q());
        let mut weight = weights::NICE_0 << 10;
        let mut at = t;
        loop {
            let q = self.groups.home(at, cpu);
            let (all, own) = self.bal.weights(q, at);
            let owner = self.groups.owner(q);
            let of = if owner.is_some() { all.max(1) as i64 } else { weights::NICE_0 };
            weight = (weight * own as i64 / of).max(2);
            match owner {
                Some(owner) => at = owner,
                None => return weight,
            }
        }
    }

    /// At ticks: the shares of the groups of the running task.
    pub(super) fn refresh_shares(&mut self, k: &Kernel, t: TaskId) {
        if self.groups.is_empty() {
            return;
        }
        let cpu = self.cpu_of(self.e[t].q());
        self.refresh_weights(k, cpu, t);
        if self.flat() {
            let weight = self.flat_weight(t);
            self.reweigh(t, weight);
        }
    }

    /// Charges what runs, on all levels of `t`.
    #[inline(always)]
    pub(super) fn charge_chain(&mut self, k: &Kernel, t: TaskId) {
        self.charge(k, self.e[t].q());
        let mut at = self.above(t);
        while let Some(e) = at {
            self.charge(k, self.e[e].q());
            at = self.above(e);
        }
    }

    /// `t` runs no longer on its queue; the groups above it go back to theirs.
    #[inline(always)]
    pub(super) fn step_down(&mut self, t: TaskId) {
        let rq = &mut self.rq[self.e[t].q()];
        if rq.curr == Some(t) {
            rq.curr = None;
        }
        let mut at = self.above(t);
        while let Some(e) = at {
            let q = self.e[e].q();
            if self.rq[q].curr == Some(e) {
                self.rq[q].curr = None;
                if self.e[e].on_rq {
                    self.put_in_tree(q, e);
                }
            }
            at = self.above(e);
        }
    }

    /// `t` becomes runnable on `cpu`.
    #[inline(always)]
    pub(super) fn put_in(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, initial: bool) {
        if !self.groups.is_empty() {
            return self.put_in_levels(k, cpu, t, initial);
        }
        self.groups.arrives(&mut self.bal, k.now(), cpu, t);
        self.charge_and_resched(k, cpu);
        self.enter(cpu, t, initial);
    }

    /// The same where there are groups.
    #[inline(never)]
    fn put_in_levels(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, initial: bool) {
        let now = k.now();
        if self.quota.park(k, &self.groups, cpu, t) {
            return;
        }
        self.groups.arrives(&mut self.bal, now, cpu, t);
        if self.flat() {
            self.charge_and_resched(k, cpu);
            self.e[t].queue = cpu as u32;
            self.refresh_levels(k, cpu, t);
            let weight = self.flat_weight(t);
            self.reweigh(t, weight);
            return self.enter(cpu, t, initial);
        }
        let (mut at, mut initial) = (t, initial);
        if self.refresh_levels(k, cpu, t) {
            self.resched(k, cpu);
        }
        loop {
            let q = self.groups.home(at, cpu);
            self.charge_and_resched(k, q);
            if self.e[at].on_rq {
                if self.e[at].delayed {
                    self.requeue(at);
                }
                return;
            }
            self.enter(q, at, std::mem::take(&mut initial));
            match self.rq[q].owner {
                Some(owner) => at = owner,
                None => return,
            }
        }
    }

    /// `t`, which sleeps or moves, leaves its queue, and its groups theirs where nothing else is in them.
    fn leave_levels(&mut self, k: &Kernel, t: TaskId, sleeps: bool) {
        let (mut at, mut sleeps) = (t, sleeps);
        loop {
            let q = self.e[at].q();
            self.charge(k, q);
            if at != t && self.delays(at) {
                self.delay(at);
                return;
            }
            self.leave(at, sleeps);
            let Some(owner) = self.rq[q].owner.filter(|&o| self.e[o].on_rq) else { return };
            if self.rq[q].nr > 0 {
                // What its group has left is to follow soon.
                if sleeps && !self.e[owner].idle {
                    self.rq[self.e[owner].q()].next = Some(owner);
                }
                return;
            }
            (at, sleeps) = (owner, true);
        }
    }

    fn delays(&self, t: TaskId) -> bool {
        let e = &self.e[t];
        self.f.delays() && !self.rq[e.q()].eligible(e.v)
    }

    /// `t` sleeps and stays counted.
    fn delay(&mut self, t: TaskId) {
        let q = self.e[t].q();
        let lag = self.lag(q, t);
        let e = &mut self.e[t];
        (e.delayed, e.vlag) = (true, lag);
        self.delayed += 1;
        self.rq[q].clear_buddy(t);
        if self.rq[q].curr == Some(t) {
            self.rq[q].curr = None;
            self.put_in_tree(q, t);
        }
    }

    /// The running task falls asleep, where there are groups or it stays counted.
    #[inline(never)]
    pub(super) fn falls_asleep(&mut self, k: &Kernel, cpu: Cpu, t: TaskId) {
        self.bal.falls_asleep(k.now(), t);
        if self.delays(t) {
            self.groups.departs(&mut self.bal, k.now(), cpu, t);
            self.bal.task_lingers(t, true);
            return self.delay(t);
        }
        self.groups.leaves(&mut self.bal, k.now(), cpu, t);
        self.leave_levels(k, t, true);
        self.refresh_levels(k, cpu, t);
    }

    /// `t`, which is runnable, leaves the books of `cpu`.
    pub(super) fn take_out(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, sleeps: bool) {
        if self.quota.unpark(k, t) {
            return;
        }
        self.groups.leaves(&mut self.bal, k.now(), cpu, t);
        self.leave_levels(k, t, sleeps);
        self.refresh_weights(k, cpu, t);
    }

    /// What slept with negative lag has become eligible, or must go: its sleep begins in the books.
    pub(super) fn finish_delayed(&mut self, k: &Kernel, t: TaskId) {
        let cpu = self.cpu_of(self.e[t].q());
        self.leave_levels(k, t, true);
        let e = &mut self.e[t];
        e.delayed = false;
        if self.f.delay_zero && e.vlag > 0 {
            e.vlag = 0;
        }
        if self.groups.of_entity(t).is_none() {
            self.bal.task_lingers(t, false);
            self.count_out(k, cpu, t);
        }
    }

    /// A wakeup finds `t` still counted.
    pub(super) fn wake_delayed(&mut self, k: &mut Kernel, t: TaskId) {
        let q = self.e[t].q();
        let cpu = self.cpu_of(q);
        let now = k.now();
        self.bal.task_lingers(t, false);
        self.bal.task_arrives(now, cpu, t);
        self.bal.count(now, self.groups.home(t, cpu), true);
        if self.flat() {
            self.charge_and_resched(k, q);
        }
        self.requeue(t);
    }

    fn requeue(&mut self, t: TaskId) {
        let q = self.e[t].q();
        let lag = self.lag(q, t);
        let e = &self.e[t];
        let changed = match self.f.version {
            // update_entity_lag says whether the lag was bounded, or lost what it won asleep.
            Version::V73 => {
                let mut kept = lag.max(e.vlag);
                if self.f.delay_zero {
                    kept = kept.min(0);
                }
                (self.rq[q].mean() - kept != e.v).then_some(kept)
            }
            _ => (self.f.delay_zero && lag > 0).then_some(0),
        };
        if !self.f.delay_zero && self.f.version != Version::V73 {
            self.e[t].delayed = false;
            return;
        }
        self.e[t].vlag = lag;
        if let Some(kept) = changed {
            let queued = self.rq[q].take_out(&mut self.e[t]);
            self.rq[q].sub(&self.e[t]);
            self.e[t].vlag = kept;
            self.place(q, t, false);
            self.rq[q].add(&self.e[t]);
            if queued {
                self.put_in_tree(q, t);
            }
        }
        self.e[t].delayed = false;
    }

    /// The task that ran goes back to its queue; the groups above it have gone back already.
    pub(super) fn put_back(&mut self, t: TaskId) {
        let q = self.e[t].q();
        if self.rq[q].curr == Some(t) {
            self.rq[q].curr = None;
        }
        if self.e[t].on_rq {
            self.put_in_tree(q, t);
        }
    }

    /// The task that `cpu` runs next, out of its trees; `prev` ran until now and may go on.
    #[inline(always)]
    pub(super) fn pick_task(&mut self, k: &mut Kernel, cpu: Cpu, prev: Option<TaskId>) -> Option<TaskId> {
        let prev = prev.filter(|&p| self.e[p].on_rq && self.cpu_of(self.e[p].q()) == cpu);
        if self.groups.is_empty() {
            self.pick_single(k, cpu, prev)
        } else {
            self.pick_down(k, cpu, prev)
        }
    }

    /// The same where there is but one level. What ran may stay in the tree meanwhile: there it is
    /// the last of those with its deadline, and so it is as the running one.
    #[inline(always)]
    fn pick_single(&mut self, k: &Kernel, cpu: Cpu, mut prev: Option<TaskId>) -> Option<TaskId> {
        if let Some(p) = prev.filter(|&p| !self.rq[cpu].tree.came_last(self.e[p].place)) {
            self.rq[cpu].take_out(&mut self.e[p]);
        }
        let picked = loop {
            let picked = self.pick(cpu, prev, true);
            let Some(t) = picked.filter(|&t| self.e[t].delayed) else { break picked };
            // Who leaves now goes by what is in the tree.
            if let Some(p) = prev {
                self.rq[cpu].take_out(&mut self.e[p]);
            }
            self.finish_delayed(k, t);
            prev = prev.filter(|&p| self.e[p].on_rq);
        };
        if let Some(p) = prev.filter(|_| picked == prev) {
            self.rq[cpu].take_out(&mut self.e[p]);
            return picked;
        }
        if let Some(p) = prev.filter(|&p| self.e[p].on_rq && !self.e[p].place.is_queued()) {
            self.put_in_tree(cpu, p);
        }
        let t = picked?;
        self.take_next(t);
        Some(t)
    }

    /// From the queue of `cpu` down through the groups.
    fn pick_down(&mut self, k: &Kernel, cpu: Cpu, prev: Option<TaskId>) -> Option<TaskId> {
        let chain = prev.map(|p| self.chain(p));
        let before = chain.as_ref().map_or(&[][..], Chain::all);
        for &e in before {
            let q = self.e[e].q();
            self.rq[q].take_out(&mut self.e[e]);
        }
        let picked = loop {
            match self.descend(k, cpu, before) {
                Some(Ok(t)) => break Some(t),
                Some(Err(())) => {}
                None => break None,
            }
        };
        if picked.is_some() && picked == prev {
            return picked;
        }
        let next = picked.map(|t| self.chain(t));
        let next = next.as_ref().map_or(&[][..], Chain::all);
        for &e in before {
            let q = self.e[e].q();
            if !next.contains(&e) && self.e[e].on_rq && !self.e[e].place.is_queued() {
                self.put_in_tree(q, e);
            }
        }
        let t = picked?;
        self.set_next(t, before);
        Some(t)
    }

    /// One way down from the queue of `cpu`; an error where something that sleeps had to be taken out first.
    fn descend(&mut self, k: &Kernel, cpu: Cpu, prev: &[TaskId]) -> Option<Result<TaskId, ()>> {
        let mut q = cpu;
        loop {
            let curr = prev.iter().copied().find(|&e| self.e[e].q() == q && self.e[e].on_rq);
            let e = self.pick(q, curr, true)?;
            if self.e[e].delayed {
                self.finish_delayed(k, e);
                return Some(Err(()));
            }
            match self.groups.of_entity(e) {
                Some((g, cpu)) => q = self.groups.queue(g, cpu),
                None => return Some(Ok(e)),
            }
        }
    }

    /// `t` and the groups above it are out of their trees, as far as they were not before.
    pub(super) fn set_next(&mut self, t: TaskId, before: &[TaskId]) {
        if self.flat() && !self.groups.is_empty() {
            let e = &mut self.e[t];
            self.rq[e.q()].take_out(e);
            let weight = self.flat_weight(t);
            self.reweigh(t, weight);
        }
        for e in self.chain(t) {
            if !before.contains(&e) {
                self.take_next(e);
            }
        }
    }

    /// `e` is out of the tree of its queue.
    #[inline(always)]
    fn take_next(&mut self, e: TaskId) {
        let entity = &mut self.e[e];
        let rq = &mut self.rq[entity.q()];
        rq.take_out(entity);
        rq.clear_buddy(e);
        self.protect(e);
    }

    /// What runs on queue `q` has used `ran`; true when a group above has no run time left.
    #[inline]
    pub(super) fn use_quota(&mut self, q: usize, ran: Ns) -> bool {
        self.quota.any() && self.spend_quota(q, ran)
    }

    fn spend_quota(&mut self, q: usize, ran: Ns) -> bool {
        if !self.flat() {
            return self.groups.group_of_queue(q).is_some_and(|g| self.quota.spend(g, q, ran));
        }
        let cpu = self.cpu_of(q);
        let Some(curr) = self.rq[q].curr else { return false };
        let mut short = false;
        for q in self.groups.queues_above(curr, cpu) {
            short |= self.groups.group_of_queue(q).is_some_and(|g| self.quota.spend(g, q, ran));
        }
        short
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
            let mut within = self.bal.tasks_of(cpu);
            within.retain(|&t| self.groups.is_below(t, cpu, q));
            // Those whose sleep is not yet in the books go with them.
            for &t in &within {
                self.take_out(k, cpu, t, false);
            }
            self.quota.throttle(k, q, within);
        }
    }

    /// A period of group `g` begins.
    pub(super) fn refill(&mut self, k: &mut Kernel, g: u64) {
        for (cpu, tasks) in self.quota.refill(k, &self.groups, g as usize) {
            k.update_clock(cpu);
            for t in tasks {
                self.put_in(k, cpu, t, false);
            }
            if k.curr(cpu).is_none() && k.nr_runnable(cpu) > 0 {
                k.resched(cpu);
            }
        }
    }
}
