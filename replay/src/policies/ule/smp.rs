//! ULE of about 2022 on several CPUs that share one cache: choosing a CPU, stealing, balancing
//! (`sched_pickcpu`, `tdq_trysteal`, `sched_balance`).

use super::{Ule, Version, NEW_BATCH};
use crate::policy::{Kernel, Select, Wake};
use crate::task::{Cpu, Ns, TaskId};

/// Priorities of idle threads; what a CPU without a thread counts as.
const IDLE_MIN: i64 = 224;
pub(super) const IDLE: i64 = 255;
/// Ticks for which a thread is taken to be in the cache of its CPU, at 1000 HZ.
const AFFINE: i64 = 2;

/// What is kept for several CPUs.
#[derive(Debug, Default)]
pub(super) struct Many {
    /// The best priority on each CPU, as far as others know (`tdq_lowpri`).
    pub low: Vec<i64>,
    /// Another CPU has asked for a preemption that has not come yet.
    pub asked: Vec<bool>,
    /// The CPU on which the wakeup is made that is going on.
    pub here: Cpu,
    random: u32,
}

impl Ule {
    pub(super) fn balances(&self) -> bool {
        self.version == Version::V2022 && self.rq.len() > 1
    }

    /// Sets up the CPUs, and the first balancing, a second from the start.
    pub(super) fn init_many(&mut self, k: &mut Kernel) {
        let n = k.nr_cpus();
        self.many = Many { low: vec![IDLE; n], asked: vec![false; n], ..Many::default() };
        if self.balances() {
            k.timer_at(self.stathz * self.period(), 0);
        }
    }

    fn period(&self) -> Ns {
        1_000_000_000 / self.stathz
    }

    /// The allowed CPU with the least load whose best priority is worse than `pri`; the thread's
    /// last CPU is a quarter less loaded.
    fn lowest(&self, may: impl Fn(Cpu) -> bool, pri: i64, most: i64, prefer: Option<Cpu>) -> Option<Cpu> {
        let fits = |&c: &Cpu| may(c) && self.many.low[c] > pri && self.load[c] <= most;
        let load = |c: Cpu| self.load[c] * 256 - if prefer == Some(c) { 64 } else { 0 };
        (0..self.rq.len()).filter(fits).min_by_key(|&c| (load(c), c))
    }

    /// `sched_pickcpu`.
    pub(super) fn pick_cpu(&mut self, k: &Kernel, t: TaskId, why: Select) -> Cpu {
        let last = k.task(t).cpu.min(k.nr_cpus() - 1);
        let may = |c: Cpu| k.allowed(t, c);
        let here = match why {
            Select::Wakeup(Wake::Task { cpu, .. }) => cpu,
            _ => last,
        };
        self.many.here = here;
        let ticks = k.now() / (1_000_000_000 / self.hz);
        let affine = self.of[t].left_tick > ticks - AFFINE * (self.hz / 1000).max(1);
        if may(last) && self.many.low[last] >= IDLE_MIN && affine {
            return last;
        }
        let pri = self.of[t].pri;
        let found = self.lowest(may, pri, i64::MAX, Some(last)).or_else(|| self.lowest(may, -1, i64::MAX, Some(last)));
        let Some(cpu) = found else { return last };
        let near = may(here) && self.many.low[here] > pri && self.many.low[cpu] < IDLE_MIN;
        if near && self.load[here] <= self.load[cpu] + 1 {
            return here;
        }
        cpu
    }

    /// Is a thread of priority `pri` to preempt what runs on another CPU (`sched_shouldpreempt`)?
    pub(super) fn preempts_remote(&self, pri: i64, running: i64) -> bool {
        pri < running && (running >= IDLE_MIN || pri < NEW_BATCH && running >= NEW_BATCH)
    }

    /// Brings what others know of `cpu` up to date (`tdq_setlowpri`).
    pub(super) fn note_low(&mut self, k: &Kernel, cpu: Cpu) {
        let running = k.curr(cpu).filter(|&t| k.is_mine(t)).map_or(IDLE, |t| self.of[t].pri);
        let queued = self.rq[cpu].first().map_or(IDLE, |t| self.of[t].pri);
        self.many.low[cpu] = running.min(queued);
    }

    /// Takes a thread that `to` may run from the queues of `from`.
    fn steal(&mut self, k: &Kernel, from: Cpu, to: Cpu) -> Option<TaskId> {
        let t = self.rq[from].steal(|t| k.allowed(t, to))?;
        self.rq[from].remove(t);
        self.count(from, t, -1);
        if self.of[t].pri == self.many.low[from] {
            self.note_low(k, from);
        }
        self.count(to, t, 1);
        Some(t)
    }

    /// `cpu` has nothing to run: it takes a thread from the CPU with the highest load, two at least.
    pub(super) fn try_steal(&mut self, k: &Kernel, cpu: Cpu) -> Option<TaskId> {
        let mut from: Vec<Cpu> = (0..self.rq.len()).filter(|&c| c != cpu && self.load[c] >= 2).collect();
        from.retain(|&c| !self.rq[c].is_empty());
        from.sort_by_key(|&c| (-self.load[c], c));
        from.into_iter().find_map(|c| self.steal(k, c, cpu))
    }

    /// `sched_balance`, and when it comes next.
    pub(super) fn balance(&mut self, k: &mut Kernel) {
        self.many.random = self.many.random.wrapping_mul(69_069).wrapping_add(5);
        let ticks = (self.stathz / 2).max(1) + i64::from(self.many.random >> 16) % self.stathz;
        k.timer_at(k.now() + ticks * self.period(), 0);
        let mut donors: Vec<Cpu> = (0..self.rq.len()).collect();
        loop {
            let fits = |&&c: &&Cpu| self.load[c] >= 2 && !self.rq[c].is_empty();
            let Some(&high) = donors.iter().filter(fits).max_by_key(|&&c| (self.load[c], std::cmp::Reverse(c))) else {
                return;
            };
            donors.retain(|&c| c != high);
            let mut takers = donors.clone();
            let mut any = true;
            loop {
                let Some(low) = self.lowest(|c| takers.contains(&c), -1, self.load[high] - 1, None) else {
                    if any {
                        return;
                    }
                    break;
                };
                if self.hand_over(k, high, low) {
                    donors.retain(|&c| c != low);
                    break;
                }
                takers.retain(|&c| c != low);
                any = false;
            }
        }
    }

    /// Moves one thread from `high` to `low`.
    fn hand_over(&mut self, k: &mut Kernel, high: Cpu, low: Cpu) -> bool {
        let Some(t) = self.steal(k, high, low) else { return false };
        k.migrate(t, low);
        let pri = self.of[t].pri;
        self.many.low[low] = self.many.low[low].min(pri);
        self.put(low, t, false);
        let Some(curr) = k.curr(low).filter(|&c| k.is_mine(c)) else {
            if k.curr(low).is_none() {
                k.resched(low);
            }
            return true;
        };
        // The CPU that balances, the first, does not look at what it was given before its next switch.
        if low != 0 && !self.many.asked[low] && self.preempts_remote(pri, self.of[curr].pri) {
            self.many.asked[low] = true;
            self.of[curr].to_head = true;
            k.resched(low);
        }
        true
    }
}
