//! Where a task goes when it wakes, is new, or executes a program.

use super::balance::Group;
use super::Balancer;
use crate::policy::{Kernel, Select, Wake};
use crate::task::{Cpu, Ns, TaskId};

/// Half-way between 100 and the domain's imbalance of 117 %: what a waker's CPU may be heavier by.
const WAKE_BIAS: u64 = 100 + (super::balance::IMBALANCE_PCT - 100) / 2;
const SECOND: Ns = 1_000_000_000;

impl Balancer {
    /// The CPU for `t`; not for a task whose sleep is not yet in the books, which wakes where it is.
    pub fn select(&mut self, k: &Kernel, t: TaskId, why: Select) -> Cpu {
        let prev = k.task(t).cpu.min(k.nr_cpus() - 1);
        let only = self.only_cpu(k, t);
        if k.nr_cpus() == 1 || only.is_some() {
            return only.unwrap_or(0);
        }
        let chosen = match why {
            _ if !self.on => prev,
            Select::Wakeup(wake) => {
                let (this, sync) = match wake {
                    Wake::Task { cpu, sync, .. } => (cpu, sync),
                    // The interrupt comes where the timer was set: where the task ran.
                    Wake::Timer | Wake::Io | Wake::External => (prev, false),
                };
                self.select_wakeup(k, t, this, prev, sync)
            }
            Select::Fork | Select::Exec => self.idlest(k, t, prev),
        };
        if k.allowed(t, chosen) {
            return chosen;
        }
        // select_fallback_rq: any CPU of the same node.
        (0..k.nr_cpus()).find(|&c| k.allowed(t, c)).unwrap_or(prev)
    }

    #[inline]
    fn only_cpu(&self, k: &Kernel, t: TaskId) -> Option<Cpu> {
        if k.nr_cpus() > 1 && k.task(t).attrs.affinity.is_all() {
            return None;
        }
        let mut usable = (0..k.nr_cpus()).filter(|&c| k.allowed(t, c));
        match (usable.next(), usable.next()) {
            (only, None) => only,
            _ => None,
        }
    }

    fn select_wakeup(&mut self, k: &Kernel, t: TaskId, this: Cpu, prev: Cpu, sync: bool) -> Cpu {
        let now = k.now();
        // Loads are as of the last event of each CPU: nothing brings them up to date here.
        let waker = k.curr(this);
        if let Some(waker) = waker {
            self.record_wakee(now, waker, t);
        }
        let wide = || waker.is_some_and(|waker| self.wake_wide(k, waker, t));
        let one_domain = k.balances(this) && k.balances(prev);
        let affine = this != prev && one_domain && k.allowed(t, this) && !wide();
        let target = if affine && self.wake_affine(k, t, this, prev, sync) { this } else { prev };
        self.select_idle_sibling(k, t, prev, target)
    }

    fn record_wakee(&mut self, now: Ns, waker: TaskId, t: TaskId) {
        let e = self.ents.ensure(waker);
        if now - e.flips_since > SECOND {
            e.flips >>= 1;
            e.flips_since = now;
        }
        if e.last_wakee != Some(t) {
            e.last_wakee = Some(t);
            e.flips += 1;
        }
    }

    /// The waker wakes many others, more than share the cache: it does not draw them to itself.
    fn wake_wide(&self, k: &Kernel, waker: TaskId, t: TaskId) -> bool {
        let (a, b) = (self.ents[waker].flips, self.ents[t].flips);
        let (master, slave) = (a.max(b), a.min(b));
        let factor = k.nr_cpus() as u32;
        slave >= factor && master >= slave * factor
    }

    /// Does the waker's CPU draw the task away from its last one?
    fn wake_affine(&mut self, k: &Kernel, t: TaskId, this: Cpu, prev: Cpu, sync: bool) -> bool {
        if k.is_idle(this) {
            return !k.is_idle(prev);
        }
        if sync && k.nr_runnable(this) == 1 {
            return true;
        }
        if k.is_idle(prev) {
            return false;
        }
        let mut here = self.cpu_load(this);
        if sync {
            let waker = k.curr(this).map_or(0, |c| self.task_h_load(c));
            if waker > here {
                return true;
            }
            here -= waker;
        }
        let task = self.task_h_load(t);
        let here = (here + task) * 100;
        let there = self.cpu_load(prev).saturating_sub(task) * WAKE_BIAS + u64::from(sync);
        here < there
    }

    fn free(&self, k: &Kernel, t: TaskId, cpu: Cpu) -> bool {
        k.is_idle(cpu) || self.only_idle_policy(k, cpu) && !(self.form == super::Form::Flat && self.ents[t].idle_policy)
    }

    fn select_idle_sibling(&mut self, k: &Kernel, t: TaskId, prev: Cpu, target: Cpu) -> Cpu {
        if self.free(k, t, target) {
            return target;
        }
        if !self.shared_cache || !k.balances(target) {
            return target;
        }
        if prev != target && k.balances(prev) && self.free(k, t, prev) {
            return prev;
        }
        let recent = self.ents[t].recent_cpu.replace(prev);
        if let Some(r) = recent.filter(|&r| r != prev && r != target && r < k.nr_cpus()) {
            if self.free(k, t, r) && k.allowed(t, r) && k.balances(r) {
                return r;
            }
        }
        // SIS_UTIL: the busier the CPUs, the fewer are looked at.
        let mut left = self.idle_scan + 1;
        if left == 1 {
            return target;
        }
        let n = k.nr_cpus();
        for cpu in (1..=n).map(|i| (target + i) % n).filter(|&c| k.allowed(t, c) && k.balances(c)) {
            left -= 1;
            if left <= 0 {
                break;
            }
            if self.free(k, t, cpu) {
                return cpu;
            }
        }
        target
    }

    /// Fork and exec: the idlest CPU, where it is idle enough to be worth it; else the one of the parent.
    fn idlest(&mut self, k: &Kernel, t: TaskId, this: Cpu) -> Cpu {
        self.settle();
        if !k.balances(this) {
            return this;
        }
        let rank = |s: &Self, c: Cpu| (s.group_of(k, c), !s.free(k, t, c));
        let key = |s: &Self, c: Cpu, (group, busy)| {
            let load = if group == Group::HasSpare { 0 } else { s.cpu_load(c) };
            (group, busy, load, s.cpus[c].avg.util())
        };
        // The first of the least; what ranks behind the least so far is not looked at more closely.
        let mut least: Option<((Group, bool, u64, u64), Cpu)> = None;
        for c in k.domain().filter(|&c| c != this && k.allowed(t, c)) {
            let ranks = rank(self, c);
            if least.is_some_and(|((group, busy, ..), _)| ranks > (group, busy)) {
                continue;
            }
            let found = key(self, c, ranks);
            if least.is_none_or(|(key, _)| found < key) {
                least = Some((found, c));
            }
        }
        let Some((_, idlest)) = least else { return this };
        if !k.allowed(t, this) {
            return idlest;
        }
        let (local, other) = (key(self, this, rank(self, this)), key(self, idlest, rank(self, idlest)));
        let better = match local.0.cmp(&other.0) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal if local.0 == Group::HasSpare => local.1 && !other.1,
            std::cmp::Ordering::Equal => {
                let imbalance = 1024 * (super::balance::IMBALANCE_PCT - 100) / 100;
                other.2 < local.2 + imbalance && 100 * local.2 > super::balance::IMBALANCE_PCT * other.2
            }
        };
        if better {
            idlest
        } else {
            this
        }
    }
}
