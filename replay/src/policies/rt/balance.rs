//! Push and pull: how the real-time tasks of several CPUs come to run on the CPUs where they matter
//! most.
//!
//! A CPU counts as its best task of the class, running or queued; without one it counts below
//! priority 1, whether it is idle or runs somebody of another class. A task goes to a CPU that
//! counts less than itself, of those to the ones that count least (cpupri).
//!
//! * Wakeup: a task wakes on its last CPU, unless that runs a task of the class that is as good or
//!   bound there; then it goes to the lowest CPU, if there is one.
//! * Push: a CPU that has begun to run a task of the class, or on which a task woke in vain, gives
//!   away what waits there, best first, until somebody has nowhere to go.
//! * Pull: a CPU whose task of the class sleeps, and that has nothing as good, asks for more. With
//!   `push_ipi` it asks the CPUs on which somebody waits, by interrupt, to push; these need its
//!   queue, which is locked until it has switched to somebody worse. Without, it takes the tasks
//!   before it chooses.
//!
//! Sources: Linux 6.1.192 and 6.12.117 kernel/sched/rt.c (select_task_rq_rt, find_lowest_rq,
//! check_preempt_equal_prio, push_rt_task, rto_push_irq_work_func, pull_rt_task, balance_rt,
//! task_woken_rt), cpupri.c.

use super::{level, Rt, IPI, PUSH};
use crate::policy::{Kernel, Select, Wake};
use crate::task::{Cpu, Ns, TaskId};

/// What a CPU counts that has no task of the class.
pub(super) const NONE: usize = 100;

/// The round of interrupts that asks CPUs to push. There is one at a time.
#[derive(Default)]
pub(super) struct Round {
    /// The CPU whose turn it is.
    at: Option<Cpu>,
    /// Somebody asked since the round began: there is another one.
    again: bool,
}

/// True when `t` may run on more than one CPU.
pub(super) fn movable(k: &Kernel, t: TaskId) -> bool {
    (0..k.nr_cpus()).filter(|&c| k.allowed(t, c)).nth(1).is_some()
}

impl Rt {
    /// What the task that runs on `cpu` counts; `None` when it is idle or its task just fell asleep.
    fn running_level(k: &Kernel, cpu: Cpu) -> Option<usize> {
        let curr = k.curr(cpu)?;
        Some(if k.is_mine(curr) { level(&k.task(curr).attrs) } else { NONE })
    }

    /// What `cpu` counts: the best of its tasks of the class; more than any while the fair server runs there.
    fn cpu_level(&self, k: &Kernel, cpu: Cpu) -> usize {
        if self.cpus[cpu].server.serves() {
            return 0;
        }
        let queued = self.cpus[cpu].queue.best().unwrap_or(NONE);
        queued.min(Self::running_level(k, cpu).unwrap_or(NONE))
    }

    /// The CPU that counts least of those that `t` may use and that count less than `t`: its own,
    /// then `this`,
    /// on which that is asked, then the next in turn.
    fn lowest(&mut self, k: &Kernel, t: TaskId, this: Cpu) -> Option<Cpu> {
        if !movable(k, t) {
            return None;
        }
        let n = k.nr_cpus();
        let levels = (0..n).map(|c| if k.allowed(t, c) { self.cpu_level(k, c) } else { 0 });
        let levels: Vec<usize> = levels.collect();
        let least = levels.iter().copied().max().filter(|&least| least > level(&k.task(t).attrs))?;
        let own = k.task(t).cpu;
        if let Some(near) = [own, this].into_iter().find(|&c| levels[c] == least) {
            return Some(near);
        }
        self.next_in_turn(this, |c| levels[c] == least)
    }

    /// True when another CPU that `t` may use counts less than `t`.
    fn lower_for(&self, k: &Kernel, t: TaskId) -> bool {
        let ours = level(&k.task(t).attrs);
        (0..k.nr_cpus()).any(|c| k.allowed(t, c) && self.cpu_level(k, c) > ours)
    }

    /// The first CPU that `fits` behind the one that `this` CPU found last (cpumask_any_and_distribute).
    fn next_in_turn(&mut self, this: Cpu, fits: impl Fn(Cpu) -> bool) -> Option<Cpu> {
        let (n, last) = (self.cpus.len(), self.cpus[this].spread);
        let next = (1..=n).map(|i| (last + i) % n).find(|&c| fits(c))?;
        self.cpus[this].spread = next;
        Some(next)
    }

    /// The CPU on whose queue `t` goes.
    pub(super) fn select(&mut self, k: &Kernel, t: TaskId, why: Select) -> Cpu {
        let last = k.task(t).cpu;
        let this = match why {
            Select::Exec if k.allowed(t, last) => return last,
            Select::Exec => return self.next_in_turn(last, |c| k.allowed(t, c)).unwrap_or(last),
            Select::Wakeup(Wake::Task { cpu, .. }) => cpu,
            Select::Wakeup(_) | Select::Fork => k.here().unwrap_or(last),
        };
        let as_good = |curr| k.is_mine(curr) && level(&k.task(curr).attrs) <= level(&k.task(t).attrs);
        let taken = |curr| as_good(curr) || k.is_mine(curr) && !movable(k, curr);
        let other = if k.curr(last).is_some_and(taken) { self.lowest(k, t, this) } else { None };
        let mut usable = other.into_iter().chain([last]).chain(0..k.nr_cpus());
        usable.find(|&c| k.allowed(t, c)).unwrap_or(last)
    }

    /// `t` has come to the queue of `cpu`, where `curr` runs, which is as good: `t` goes before the
    /// others where `curr` can move and `t` cannot.
    pub(super) fn preempt_equal(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId) {
        if !self.lower_for(k, curr) || self.lower_for(k, t) {
            return;
        }
        self.remove(cpu, t);
        self.insert(k, cpu, t, true);
        self.cpus[cpu].ahead = Some(t);
        k.resched(cpu);
    }

    /// `t` woke on `cpu`, where `curr` goes on: what waits there is given away.
    pub(super) fn woken(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, this: Cpu) {
        let stays = level(&k.task(curr).attrs) <= level(&k.task(t).attrs) || !movable(k, curr);
        if stays && !k.need_resched(cpu) && movable(k, t) {
            self.push_or_wait(k, cpu, this);
        }
    }

    /// A task of the class begins to run on `cpu`: what waits there is given away once the switch is done.
    pub(super) fn push_behind_switch(&self, k: &mut Kernel, cpu: Cpu) {
        if !self.cpus[cpu].pushable.is_empty() {
            k.timer_at(k.switching_until(cpu), PUSH | cpu as u64);
        }
    }

    /// Pushes now, or when the queues that it needs are free.
    pub(super) fn push_or_wait(&mut self, k: &mut Kernel, cpu: Cpu, this: Cpu) {
        if let Some(until) = self.push(k, cpu, this) {
            k.timer_at(until, PUSH | cpu as u64);
        }
    }

    /// Gives away what waits on `cpu`, asked on `this`. Until when a queue that it needs is held by
    /// a switch, if one is.
    fn push(&mut self, k: &mut Kernel, cpu: Cpu, this: Cpu) -> Option<Ns> {
        while let Some(t) = self.cpus[cpu].pushable.front() {
            let own = k.switching_until(cpu);
            if own > k.now() {
                return Some(own);
            }
            if Self::running_level(k, cpu).is_none_or(|curr| level(&k.task(t).attrs) < curr) {
                k.resched(cpu);
                return None;
            }
            let to = self.lowest(k, t, this).filter(|&to| to != cpu)?;
            let held = k.switching_until(to);
            if held > k.now() {
                return Some(held);
            }
            self.transfer(k, t, cpu, to);
            k.resched(to);
        }
        None
    }

    fn transfer(&mut self, k: &mut Kernel, t: TaskId, from: Cpu, to: Cpu) {
        self.remove(from, t);
        k.migrate(t, to);
        self.insert(k, to, t, false);
    }

    /// `cpu` has nothing as good as what it ran: tasks that wait elsewhere come to it, now or by interrupt.
    pub(super) fn pull(&mut self, k: &mut Kernel, cpu: Cpu) {
        if !self.overloaded.iter().any(|other| other != cpu) {
            return;
        }
        if !self.push_ipi {
            return self.pull_now(k, cpu);
        }
        if self.round.at.is_some() {
            self.round.again = true;
        } else {
            self.next_of_round(k, None, cpu);
        }
    }

    fn pull_now(&mut self, k: &mut Kernel, cpu: Cpu) {
        let mut own = self.cpu_level(k, cpu);
        let others: Vec<Cpu> = self.overloaded.iter().filter(|&other| other != cpu).collect();
        for other in others {
            let Some(t) = self.cpus[other].pushable.iter_all().find(|&t| k.allowed(t, cpu)) else { continue };
            let ours = level(&k.task(t).attrs);
            // What is better than the one that runs there is about to run there.
            let stays = Self::running_level(k, other).is_some_and(|curr| curr <= ours);
            if ours < own && stays {
                self.transfer(k, t, other, cpu);
                own = ours;
            }
        }
    }

    /// Goes on with the round behind `at`, on `this`.
    fn next_of_round(&mut self, k: &mut Kernel, at: Option<Cpu>, this: Cpu) {
        let behind = |from: usize, set: &Self| set.overloaded.iter().find(|&c| c >= from && c != this);
        let mut next = behind(at.map_or(0, |at| at + 1), self);
        if next.is_none() && std::mem::take(&mut self.round.again) {
            next = behind(0, self);
        }
        self.round.at = next;
        if let Some(next) = next {
            k.timer_at(k.reaches(next), IPI);
        }
    }

    /// The interrupt of the round has come.
    pub(super) fn round_interrupt(&mut self, k: &mut Kernel) {
        let Some(cpu) = self.round.at else { return };
        k.happens_on(cpu);
        match self.push(k, cpu, cpu) {
            Some(until) => k.timer_at(until, IPI),
            None => self.next_of_round(k, Some(cpu), cpu),
        }
    }
}
