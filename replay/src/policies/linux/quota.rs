//! Quota of groups (CFS bandwidth control): a group takes run time for each CPU out of its quota;
//! when none is left its tasks leave the queue until the next period. The policy does the moving.
//!
//! Source: Linux 6.1.192, 6.12.117 and 7.3.4 kernel/sched/fair.c (account_cfs_rq_runtime,
//! throttle_cfs_rq, distribute_cfs_runtime). Not modelled: bursts, unused run time that goes back
//! before the period ends, and the phase of the period, which begins when the group first runs.

use super::Groups;
use crate::policy::Kernel;
use crate::task::{Cpu, Ns, TaskId};

/// Run time that a CPU takes at a time (sched_cfs_bandwidth_slice_us).
const SLICE: Ns = 5_000_000;

/// A group's quota.
#[derive(Clone, Copy, Debug)]
struct Band {
    quota: Ns,
    period: Ns,
    left: Ns,
    /// Its periods have begun.
    started: bool,
}

/// Quota of all groups.
#[derive(Clone, Debug, Default)]
pub struct Quota {
    /// A group has a quota.
    any: bool,
    bands: Vec<Option<Band>>,
    /// What each queue has left.
    local: Vec<Ns>,
    /// Queues that may not run until their quota is refilled, and the tasks that wait for that.
    throttled: Vec<bool>,
    parked: Vec<Vec<TaskId>>,
    /// Queues that are to be throttled when their CPU next chooses.
    due: Vec<usize>,
    /// Groups whose periods are to begin.
    begin: Vec<usize>,
}

impl Quota {
    /// Of the groups of the workload.
    pub fn new(k: &Kernel, groups: &Groups) -> Self {
        let bands: Vec<_> = (0..groups.len())
            .map(|g| groups.quota(k, g).map(|(quota, period)| Band { quota, period, left: quota, started: false }))
            .collect();
        let n = groups.nr_queues();
        Quota {
            any: bands.iter().any(Option::is_some),
            bands,
            local: vec![0; n],
            throttled: vec![false; n],
            parked: vec![Vec::new(); n],
            ..Quota::default()
        }
    }

    /// True when a group has a quota.
    #[inline]
    pub fn any(&self) -> bool {
        self.any
    }

    /// A task of queue `q` of group `g` has run for `ran`; true when no run time is left.
    pub fn spend(&mut self, g: usize, q: usize, ran: Ns) -> bool {
        let Some(band) = self.bands[g].as_mut() else { return false };
        if !std::mem::replace(&mut band.started, true) {
            self.begin.push(g);
        }
        let local = &mut self.local[q];
        *local -= ran;
        if *local > 0 {
            return false;
        }
        let take = (SLICE - *local).min(band.left);
        band.left -= take;
        *local += take;
        let short = *local <= 0;
        if short && !self.due.contains(&q) {
            self.due.push(q);
        }
        short
    }

    /// `cpu` chooses: the queues of groups without run time that are to leave it.
    pub fn due(&mut self, k: &mut Kernel, groups: &Groups, cpu: Cpu) -> Vec<usize> {
        if !self.any {
            return Vec::new();
        }
        for g in std::mem::take(&mut self.begin) {
            if let Some(band) = self.bands[g] {
                k.timer_at(k.now() + band.period, g as u64);
            }
        }
        let due = std::mem::take(&mut self.due);
        let (here, later): (Vec<usize>, _) = due.into_iter().partition(|&q| groups.cpu_of(q) == cpu);
        self.due = later;
        here.into_iter().filter(|&q| self.local[q] <= 0 && !self.throttled[q]).collect()
    }

    /// Queue `q` may not run; `tasks` have left it and wait for quota.
    pub fn throttle(&mut self, k: &mut Kernel, q: usize, tasks: Vec<TaskId>) {
        for &t in &tasks {
            k.set_throttled(t, true);
        }
        self.throttled[q] = true;
        self.parked[q] = tasks;
    }

    /// The throttled queue on `cpu` that `t` would come below.
    fn throttled_above(&self, groups: &Groups, t: TaskId, cpu: Cpu) -> Option<usize> {
        groups.queues_above(t, cpu).find(|&q| self.throttled[q])
    }

    /// Keeps `t`, which becomes runnable on `cpu`, off the queue where its group is throttled.
    #[inline]
    pub fn park(&mut self, k: &mut Kernel, groups: &Groups, cpu: Cpu, t: TaskId) -> bool {
        self.any() && self.park_throttled(k, groups, cpu, t)
    }

    fn park_throttled(&mut self, k: &mut Kernel, groups: &Groups, cpu: Cpu, t: TaskId) -> bool {
        let Some(q) = self.throttled_above(groups, t, cpu) else { return false };
        self.parked[q].push(t);
        k.set_throttled(t, true);
        true
    }

    /// Takes `t` from those that wait for quota; false when it is not one of them.
    pub fn unpark(&mut self, k: &mut Kernel, t: TaskId) -> bool {
        if !self.any {
            return false;
        }
        for parked in &mut self.parked {
            if let Some(i) = parked.iter().position(|&p| p == t) {
                parked.remove(i);
                k.set_throttled(t, false);
                return true;
            }
        }
        false
    }

    /// True while `t` waits for quota.
    pub fn parked(&self, t: TaskId) -> bool {
        self.any() && self.parked.iter().any(|p| p.contains(&t))
    }

    /// A period of group `g` begins: CPUs on which it may run again, with the tasks that waited for that.
    pub fn refill(&mut self, k: &mut Kernel, groups: &Groups, g: usize) -> Vec<(Cpu, Vec<TaskId>)> {
        let Some(Some(band)) = self.bands.get_mut(g) else { return Vec::new() };
        band.left = band.quota;
        k.timer_at(k.now() + band.period, g as u64);
        let mut free = Vec::new();
        for cpu in 0..k.nr_cpus() {
            let q = groups.queue(g, cpu);
            let needs = 1 - self.local[q];
            if !self.throttled[q] || needs > band.left {
                continue;
            }
            band.left -= needs.max(0);
            self.local[q] += needs.max(0);
            self.throttled[q] = false;
            let tasks = std::mem::take(&mut self.parked[q]);
            for &t in &tasks {
                k.set_throttled(t, false);
            }
            free.push((cpu, tasks));
        }
        free
    }
}
