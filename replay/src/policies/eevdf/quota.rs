//! Quota of groups (CFS bandwidth control): a group takes run time for each CPU out of its quota; when none is left its tasks leave the
//! queue until the next period. Source: Linux 6.12.117 and 7.3.4 kernel/sched/fair.c (account_cfs_rq_runtime, throttle_cfs_rq,
//! distribute_cfs_runtime). Not modelled: bursts, unused run time that goes back before the period ends, and the phase of the period, which
//! begins when the group first runs.

use super::Eevdf;
use crate::policies::linux::Groups;
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
pub(super) struct Quota {
    bands: Vec<Option<Band>>,
    /// What each queue has left.
    local: Vec<Ns>,
    /// Queues that are to be throttled when their CPU next chooses.
    due: Vec<usize>,
    /// Groups whose periods are to begin.
    begin: Vec<usize>,
    /// Tasks of each throttled queue.
    parked: Vec<Vec<TaskId>>,
}

impl Quota {
    pub fn new(k: &Kernel, groups: &Groups) -> Self {
        let bands = (0..groups.len())
            .map(|g| groups.quota(k, g).map(|(quota, period)| Band { quota, period, left: quota, started: false }));
        let n = groups.nr_queues();
        Quota { bands: bands.collect(), local: vec![0; n], parked: vec![Vec::new(); n], ..Quota::default() }
    }

    fn any(&self) -> bool {
        self.bands.iter().any(Option::is_some)
    }
}

impl Eevdf {
    /// The task that runs on queue `q` has used `ran`; true when a group above has no run time left.
    pub(super) fn use_quota(&mut self, q: usize, ran: Ns) -> bool {
        if !self.quota.any() {
            return false;
        }
        let cpu = self.cpu_of(q);
        if !self.flat() {
            return self.groups.group_of_queue(q).is_some_and(|g| self.use_of(g, q, ran));
        }
        let mut short = false;
        let mut q = self.rq[q].curr.map_or(cpu, |t| self.groups.home(t, cpu));
        while let (Some(g), Some(owner)) = (self.groups.group_of_queue(q), self.groups.owner(q)) {
            short |= self.use_of(g, q, ran);
            q = self.groups.home(owner, cpu);
        }
        short
    }

    fn use_of(&mut self, g: usize, q: usize, ran: Ns) -> bool {
        let Some(band) = self.quota.bands[g].as_mut() else { return false };
        if !std::mem::replace(&mut band.started, true) {
            self.quota.begin.push(g);
        }
        let local = &mut self.quota.local[q];
        *local -= ran;
        if *local > 0 {
            return false;
        }
        let take = (SLICE - *local).min(band.left);
        band.left -= take;
        *local += take;
        let short = *local <= 0;
        if short && !self.quota.due.contains(&q) {
            self.quota.due.push(q);
        }
        short
    }

    /// `cpu` chooses: groups without run time leave its queues.
    pub(super) fn enforce_quota(&mut self, k: &mut Kernel, cpu: Cpu) {
        for g in std::mem::take(&mut self.quota.begin) {
            if let Some(band) = self.quota.bands[g] {
                k.timer_at(k.now() + band.period, g as u64);
            }
        }
        let due = std::mem::take(&mut self.quota.due);
        let (here, later) = due.into_iter().partition(|&q| self.cpu_of(q) == cpu);
        self.quota.due = later;
        for q in here {
            if self.quota.local[q] <= 0 && !self.rq[q].throttled {
                self.throttle(k, cpu, q);
            }
        }
    }

    /// The group of queue `q` leaves `cpu`.
    fn throttle(&mut self, k: &mut Kernel, cpu: Cpu, q: usize) {
        let within: Vec<TaskId> = self.bal.tasks_of(cpu).into_iter().filter(|&t| self.is_below(t, cpu, q)).collect();
        for &t in &within {
            self.take_out(k, cpu, t, false);
            k.set_throttled(t, true);
        }
        // Those whose sleep is not yet in the books go with them.
        self.rq[q].throttled = true;
        self.quota.parked[q] = within;
    }

    fn is_below(&self, t: TaskId, cpu: Cpu, q: usize) -> bool {
        let mut at = self.groups.home(t, cpu);
        loop {
            if at == q {
                return true;
            }
            let Some(owner) = self.groups.owner(at) else { return false };
            at = self.groups.home(owner, cpu);
        }
    }

    /// The throttled queue on `cpu` that `t` would come below.
    fn throttled_above(&self, t: TaskId, cpu: Cpu) -> Option<usize> {
        let mut q = self.groups.home(t, cpu);
        loop {
            if self.rq[q].throttled {
                return Some(q);
            }
            q = self.groups.home(self.groups.owner(q)?, cpu);
        }
    }

    /// Keeps `t`, which becomes runnable on `cpu`, off the queue where its group is throttled.
    pub(super) fn park(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) -> bool {
        if !self.quota.any() {
            return false;
        }
        let Some(q) = self.throttled_above(t, cpu) else { return false };
        self.quota.parked[q].push(t);
        k.set_throttled(t, true);
        true
    }

    /// Takes `t` from those that wait for quota; false when it is not one of them.
    pub(super) fn unpark(&mut self, k: &mut Kernel, t: TaskId) -> bool {
        for parked in &mut self.quota.parked {
            if let Some(i) = parked.iter().position(|&p| p == t) {
                parked.remove(i);
                k.set_throttled(t, false);
                return true;
            }
        }
        false
    }

    pub(super) fn parked(&self, t: TaskId) -> bool {
        self.quota.any() && self.quota.parked.iter().any(|p| p.contains(&t))
    }

    /// A period of group `g` begins.
    pub(super) fn refill(&mut self, k: &mut Kernel, g: u64) {
        let g = g as usize;
        let Some(Some(band)) = self.quota.bands.get_mut(g) else { return };
        band.left = band.quota;
        k.timer_at(k.now() + band.period, g as u64);
        for cpu in 0..self.ncpu {
            let q = self.groups.queue(g, cpu);
            let Some(band) = self.quota.bands[g].as_mut() else { return };
            let needs = 1 - self.quota.local[q];
            if !self.rq[q].throttled || needs > band.left {
                continue;
            }
            band.left -= needs.max(0);
            self.quota.local[q] += needs.max(0);
            self.rq[q].throttled = false;
            k.update_clock(cpu);
            for t in std::mem::take(&mut self.quota.parked[q]) {
                k.set_throttled(t, false);
                self.put_in(k, cpu, t, false);
            }
            if k.curr(cpu).is_none() && k.nr_runnable(cpu) > 0 {
                k.resched(cpu);
            }
        }
    }
}
