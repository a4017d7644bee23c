//! Placement on CPUs. 6.1 goes by `policies/linux`; 2.6.29 and 2.6.32 in a reduced form: all CPUs
//! share one cache, and load is the sum of weights.

use super::{Cfs, Form};
use crate::policies::linux::Pull;
use crate::policy::{Enqueue, Kernel, Select, Wake};
use crate::task::{Cpu, Ns, TaskId};

/// Time between two looks of a busy CPU at the others.
const BALANCE_EVERY: Ns = 64_000_000;

impl Cfs {
    /// The CPU for a task that wakes, is new, or executes a program.
    pub(super) fn place_on(&self, k: &Kernel, t: TaskId, why: Select) -> Cpu {
        let prev = k.task(t).cpu;
        let Select::Wakeup(wake) = why else { return self.idlest(k, t) };
        let mut target = prev;
        if let Wake::Task { cpu, sync, .. } = wake {
            if cpu != prev && k.allowed(t, cpu) && (!k.allowed(t, prev) || self.pulls(k, t, prev, cpu, sync)) {
                target = cpu;
            }
        }
        let n = k.nr_cpus();
        let free = |c: &Cpu| k.allowed(t, *c) && k.is_idle(*c);
        if free(&target) {
            return target;
        }
        if free(&prev) {
            return prev;
        }
        // 2.6.29 looks for an idle CPU only beside a single running task.
        let look = self.tun.form > Form::V29 || self.rqs[target].nr <= 1;
        let found = look.then(|| (1..n).map(|i| (target + i) % n).find(free)).flatten();
        match found {
            Some(c) => c,
            None if k.allowed(t, target) => target,
            None => self.idlest(k, t),
        }
    }

    /// Does the waker's CPU pull the task away from its last one?
    fn pulls(&self, k: &Kernel, t: TaskId, prev: Cpu, this: Cpu, sync: bool) -> bool {
        let w = self.tasks[t].weight.w;
        if self.tun.form > Form::V29 {
            if k.is_idle(this) || sync && self.rqs[this].nr == 1 {
                return !k.is_idle(prev);
            }
            if k.is_idle(prev) {
                return false;
            }
        }
        let waker = self.rqs[this].curr.filter(|_| sync).map_or(0, |c| self.tasks[c].weight.w);
        let here = self.rqs[this].load.saturating_sub(waker);
        let there = self.rqs[prev].load;
        if self.tun.form <= Form::V29 {
            100 * (here + w) <= 112 * there
        } else {
            100 * (here + w) < 108 * there + u64::from(sync)
        }
    }

    fn idlest(&self, k: &Kernel, t: TaskId) -> Cpu {
        let own = k.task(t).cpu;
        let usable = (0..k.nr_cpus()).filter(|&c| k.allowed(t, c));
        usable.min_by_key(|&c| (self.rqs[c].load, k.nr_runnable(c), c != own, c)).unwrap_or(own)
    }

    /// A waiting task of `from` that `to` may take; the one that waits longest first.
    fn movable(&self, k: &Kernel, from: Cpu, to: Cpu, hot: bool) -> Option<TaskId> {
        let fits = |t: &TaskId| {
            let cold = k.now() - self.tasks[*t].last_ran >= self.tun.migration_cost;
            k.allowed(*t, to) && (hot || cold)
        };
        self.rqs[from].line.iter().filter(fits).min_by_key(|&t| (k.task(t).since, t))
    }

    fn busiest(&self, except: Cpu) -> Option<Cpu> {
        let waiting = |c: &Cpu| *c != except && !self.rqs[*c].line.is_empty();
        (0..self.rqs.len()).filter(waiting).max_by_key(|&c| (self.rqs[c].load, std::cmp::Reverse(c)))
    }

    /// An idle CPU takes a task from the busiest one.
    pub(super) fn pull_idle(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        if self.rqs.len() == 1 {
            return None;
        }
        if let Some(bal) = &mut self.bal {
            let tasks = &self.tasks;
            let pull = bal.newidle(k, cpu, |t, _| tasks[t].place.is_queued())?;
            self.pull(k, &pull);
            return self.pick(cpu);
        }
        let from = self.busiest(cpu)?;
        let t = self.movable(k, from, cpu, true)?;
        self.take(k, from, cpu, t);
        Some(t)
    }

    /// Moves what the balancer found.
    fn pull(&mut self, k: &mut Kernel, pull: &Pull) {
        if pull.tasks.is_empty() {
            self.push[pull.from] = Some(pull.to);
            k.resched(pull.from);
        }
        for &t in &pull.tasks {
            // Another CPU may have taken it at the same tick.
            if k.task(t).cpu != pull.from || !self.tasks[t].place.is_queued() {
                continue;
            }
            self.take(k, pull.from, pull.to, t);
            if let Some(curr) = k.curr(pull.to).filter(|&c| k.is_mine(c)) {
                self.check_preempt(k, pull.to, curr, t, Enqueue::Migrated);
            }
        }
    }

    /// The task that ran on `cpu`, and is back in the queue, goes where the balancer said.
    #[inline]
    pub(super) fn push_running(&mut self, k: &mut Kernel, cpu: Cpu) {
        if let Some(to) = self.push[cpu].take() {
            self.push_ran(k, cpu, to);
        }
    }

    fn push_ran(&mut self, k: &mut Kernel, cpu: Cpu, to: Cpu) {
        let ran = |t: &TaskId| self.tasks[*t].last_ran == k.now() && k.allowed(*t, to);
        let queued = |t: &TaskId| self.tasks[*t].place.is_queued();
        let tasks = self.bal.as_mut().map(|b| b.tasks_of(cpu)).unwrap_or_default();
        let found = tasks.into_iter().filter(|t| ran(t) && queued(t)).min();
        if let Some(t) = found {
            self.take(k, cpu, to, t);
        }
    }

    /// Moves a waiting task between CPUs.
    fn take(&mut self, k: &mut Kernel, from: Cpu, to: Cpu, t: TaskId) {
        k.update_clock(from);
        if let Some(bal) = &mut self.bal {
            bal.moves(t);
        }
        let q = self.tasks[t].q;
        self.update_curr(k, q);
        let ahead = self.tasks[t].vruntime - self.rqs[q].min_vruntime;
        self.take_out(k, from, t, false);
        // Its virtual time was relative to the queue as it was before it left.
        self.tasks[t].vruntime = self.rqs[q].min_vruntime + ahead;
        k.migrate(t, to);
        k.update_clock(to);
        self.put_in(k, to, t, Enqueue::Migrated);
    }

    /// At ticks: wakes an idle CPU to take waiting work, and now and then evens out busy ones.
    pub(super) fn balance(&mut self, k: &mut Kernel, cpu: Cpu) {
        if let Some(bal) = &mut self.bal {
            let (rqs, tasks) = (&self.rqs, &self.tasks);
            let pulls = bal.tick(k, cpu, |t, _| tasks[t].place.is_queued() && rqs[tasks[t].q].next != Some(t));
            for pull in pulls {
                self.pull(k, &pull);
            }
            return;
        }
        if !self.rqs[cpu].line.is_empty() {
            let idle = (0..k.nr_cpus()).find(|&c| k.is_idle(c) && self.movable(k, cpu, c, true).is_some());
            if let Some(idle) = idle {
                k.resched(idle);
                return;
            }
        }
        if k.now() < self.rqs[cpu].next_balance {
            return;
        }
        self.rqs[cpu].next_balance = k.now() + BALANCE_EVERY;
        let Some(from) = self.busiest(cpu) else { return };
        let (there, here) = (self.rqs[from].load, self.rqs[cpu].load);
        if 100 * there <= 117 * here {
            return;
        }
        if let Some(t) = self.movable(k, from, cpu, false) {
            // Only when it makes the difference smaller.
            if self.tasks[t].weight.w < there - here {
                self.take(k, from, cpu, t);
            }
        }
    }
}
