//! Where a task goes when it wakes, is new, or executes a program.

use super::balance::Group;
use super::load::{CpuLoad, Queue};
use super::Balancer;
use crate::machine::CpuState;
use crate::policy::{Kernel, Select, Wake};
use crate::task::{Cpu, Ns, TaskId};

/// Half-way between 100 and the domain's imbalance of 117 %: what a waker's CPU may be heavier by.
const WAKE_BIAS: u64 = 100 + (super::balance::IMBALANCE_PCT - 100) / 2;
const SECOND: Ns = 1_000_000_000;

impl Balancer {
    /// The CPU for `t`; not for a task whose sleep is not yet in the books, which wakes where it is.
    #[inline(always)]
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

    #[inline(always)]
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
        let recent = self.ents[t].recent_cpu.replace(prev as u32).map(|r| r as Cpu);
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

    /// `t`, which runs on `cpu`, executes a program: the CPU that it is to go to, if any (sched_exec).
    /// What it is itself does not count there.
    pub fn select_exec(&mut self, k: &Kernel, t: TaskId, cpu: Cpu) -> Option<Cpu> {
        if k.nr_cpus() == 1 || !self.on {
            return None;
        }
        Some(self.idlest(k, t, cpu)).filter(|&to| to != cpu)
    }

    /// The CPU but `this` that stands best, the first of those, where `t` may run and does not yet.
    fn idlest_other(&self, k: &Kernel, t: TaskId, this: Cpu) -> Option<(Standing, Cpu)> {
        let usable = &k.task(t).attrs.affinity;
        let mut best = ((u64::MAX, u64::MAX), None);
        for (cpu, ((c, queue), state)) in self.cpus.iter().zip(&self.queues).zip(&k.cpus).enumerate() {
            if cpu == this || !k.balances(cpu) || !usable.contains(cpu) {
                continue;
            }
            debug_assert_ne!(state.curr, Some(t));
            let rank = Standing::of(c, queue, state).rank();
            best = if rank < best.0 { (rank, Some(cpu)) } else { best };
        }
        best.1.map(|cpu| (Standing::of(&self.cpus[cpu], &self.queues[cpu], &k.cpus[cpu]), cpu))
    }

    /// How `cpu` stands to who looks for the idlest for `t`, which does not count where it runs there.
    fn standing(&self, k: &Kernel, t: TaskId, cpu: Cpu) -> Standing {
        let (c, load) = (&self.cpus[cpu], self.cpu_load(cpu));
        let own = k.curr(cpu) == Some(t);
        let e = own.then(|| &self.ents[t]);
        let avg = e.map(|e| e.avg).unwrap_or_default();
        let used = c.avg.util().saturating_sub(avg.util());
        let used = used.max(c.estimated - e.map_or(0, |e| e.estimate.counted()));
        let nr = self.queued(k, cpu) - usize::from(own);
        let group = Group::of(nr as u64, used, c.avg.runnable().saturating_sub(avg.runnable()));
        let busy = nr > 0 || !own && !k.is_idle(cpu);
        let load = if own { load.saturating_sub(self.task_h_load(t)) } else { load };
        Standing { group, busy, load: if group == Group::HasSpare { 0 } else { load }, used }
    }

    /// Fork and exec: the idlest CPU, where it is idle enough to be worth it; else the one of the parent.
    fn idlest(&mut self, k: &Kernel, t: TaskId, this: Cpu) -> Cpu {
        self.settle();
        if !k.balances(this) {
            return this;
        }
        let Some((other, idlest)) = self.idlest_other(k, t, this) else { return this };
        if !k.allowed(t, this) {
            return idlest;
        }
        let local = self.standing(k, t, this);
        let better = match local.group.cmp(&other.group) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal if local.group == Group::HasSpare => local.busy && !other.busy,
            std::cmp::Ordering::Equal => {
                let imbalance = 1024 * (super::balance::IMBALANCE_PCT - 100) / 100;
                other.load < local.load + imbalance && 100 * local.load > super::balance::IMBALANCE_PCT * other.load
            }
        };
        if better {
            idlest
        } else {
            this
        }
    }
}

/// How a CPU stands to who looks for the idlest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    group: Group,
    busy: bool,
    load: u64,
    used: u64,
}

impl Standing {
    #[inline]
    fn of(c: &CpuLoad, queue: &Queue, state: &CpuState) -> Self {
        let used = c.avg.util().max(c.estimated);
        let nr = u64::from(state.nr) + c.delayed.0;
        let group = Group::of(nr, used, c.avg.runnable());
        let load = if group == Group::HasSpare { 0 } else { queue.avg.load() };
        Standing { group, busy: nr > 0 || !state.idle, load, used }
    }

    /// The least is the idlest: by group, whether it is busy, load, and use.
    #[inline]
    fn rank(&self) -> (u64, u64) {
        debug_assert!(self.load < 1 << 56);
        ((self.group as u64 * 2 + u64::from(self.busy)) << 56 | self.load, self.used)
    }
}
