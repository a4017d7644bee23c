//! How CPUs take tasks from each other: when they go idle, at ticks while they are idle, and now
//! and then while they are busy.

use super::{Balancer, Form};
use crate::policy::Kernel;
use crate::task::{Cpu, Ns, TaskId};

/// By how much a CPU must be busier, per cent (a domain of CPUs that share a cache).
pub(super) const IMBALANCE_PCT: u64 = 117;
/// Failures after which cache-hot tasks are moved as well.
const CACHE_NICE_TRIES: u32 = 1;
/// Tasks looked at in one go (sched_nr_migrate).
const NR_MIGRATE: usize = 32;
/// A busy CPU balances so many times less often than an idle one.
const BUSY_FACTOR: i64 = 16;
const CAPACITY: u64 = 1024;

/// Tasks to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pull {
    /// From where.
    pub from: Cpu,
    /// To where.
    pub to: Cpu,
    /// Which; empty when it is the running task that must make room.
    pub tasks: Vec<TaskId>,
}

/// How a CPU stands, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    HasSpare,
    FullyBusy,
    Overloaded,
}

impl Group {
    /// Of a CPU with `nr` runnable tasks, by what is used of it and how many tasks are runnable on average
    /// (group_has_capacity, group_is_overloaded with one CPU in a group).
    pub(super) fn of(nr: u64, used: u64, runnable: u64) -> Self {
        let loaded = CAPACITY * 100 < used * IMBALANCE_PCT || CAPACITY * IMBALANCE_PCT < runnable * 100;
        match nr {
            0 => Group::HasSpare,
            _ if !loaded => Group::HasSpare,
            1 => Group::FullyBusy,
            _ => Group::Overloaded,
        }
    }
}

/// Why a CPU balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Idle {
    Newly,
    Yes,
    No,
}

/// What is to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Load,
    Tasks,
}

/// A CPU's scheduling domain.
#[derive(Clone, Debug)]
pub(super) struct Domain {
    /// Tick of the last balance, and time between two for an idle CPU.
    last: i64,
    interval_ms: i64,
    min_ms: i64,
    /// That interval in ticks, and for a busy CPU.
    idle_ticks: i64,
    busy_ticks: i64,
    failed: u32,
    calls: u32,
    successes: u32,
    ratio: u32,
    ratio_since: Ns,
}

impl Default for Domain {
    fn default() -> Self {
        // sd_init: as if half of the last 512 newidle balances had found a task.
        Domain {
            last: 0,
            interval_ms: 1,
            min_ms: 1,
            idle_ticks: 1,
            busy_ticks: 1,
            failed: 0,
            calls: 512,
            successes: 256,
            ratio: 512,
            ratio_since: 0,
        }
    }
}

impl Domain {
    pub(super) fn init(&mut self, k: &Kernel) {
        self.min_ms = k.domain().count() as i64;
        self.interval_ms = 0;
        self.set_interval(k, self.min_ms);
    }

    /// Sets the time between two balances.
    fn set_interval(&mut self, k: &Kernel, ms: i64) {
        if ms == self.interval_ms {
            return;
        }
        let most = (k.hz() * k.nr_cpus() as i64 / 10).max(1);
        let ticks = |ms: i64| (ms * 1_000_000 + k.tick_ns() - 1) / k.tick_ns();
        self.interval_ms = ms;
        self.idle_ticks = ticks(ms).clamp(1, most);
        self.busy_ticks = (ticks(ms * BUSY_FACTOR) - 1).clamp(1, most);
    }

    /// Tick of the next balance.
    #[inline]
    fn next(&self, busy: bool) -> i64 {
        self.last + if busy { self.busy_ticks } else { self.idle_ticks }
    }

    fn note_newidle(&mut self, now: Ns, form: Form, success: u32) {
        self.calls += 1;
        self.successes += success;
        if self.calls >= 1024 {
            let delta = (now - std::mem::replace(&mut self.ratio_since, now)).max(0);
            let by_rate = if form == Form::Flat { (delta >> 22) as u32 } else { 0 };
            self.ratio = (by_rate + self.successes).min(1024);
            self.calls /= 2;
            self.successes /= 2;
        }
    }
}

impl Balancer {
    /// What is used of `cpu`: on average, or by the estimates of what is runnable there (cpu_util_cfs).
    pub(super) fn used(&self, cpu: Cpu) -> u64 {
        let c = &self.cpus[cpu];
        c.avg.util().max(c.estimated)
    }

    /// How `cpu` stands.
    pub(super) fn group_of(&self, k: &Kernel, cpu: Cpu) -> Group {
        Group::of(self.queued(k, cpu) as u64, self.used(cpu), self.cpus[cpu].avg.runnable())
    }

    /// `cpu` has nothing to run: what it takes. `can` says whether a task may be taken now, given
    /// how often balancing has failed.
    pub fn newidle(&mut self, k: &Kernel, cpu: Cpu, can: impl Fn(TaskId, u32) -> bool) -> Option<Pull> {
        let pull = self.newidle_pull(k, cpu, can);
        if pull.is_none() {
            self.bury(cpu);
        }
        pull
    }

    fn newidle_pull(&mut self, k: &Kernel, cpu: Cpu, can: impl Fn(TaskId, u32) -> bool) -> Option<Pull> {
        let overloaded = k.domain().any(|c| self.queued(k, c) > 1);
        if k.nr_cpus() == 1 || !self.on || !overloaded || !k.balances(cpu) {
            return None;
        }
        if !self.chance {
            return self.balance(k, cpu, Idle::Newly, &can);
        }
        let form = self.form;
        let ratio = self.cpus[cpu].domain.ratio;
        let mut weight = 1;
        if ratio < 1024 {
            weight = 1 + ratio;
            if self.roll() > weight {
                self.cpus[cpu].domain.note_newidle(k.now(), form, 0);
                return None;
            }
            weight = (1024 + weight / 2) / weight;
        }
        let pull = self.balance(k, cpu, Idle::Newly, &can);
        let found = u32::from(pull.is_some());
        self.cpus[cpu].domain.note_newidle(k.now(), form, weight * found);
        pull
    }

    /// A number from 0 to 1023.
    fn roll(&mut self) -> u32 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as u32 % 1024
    }

    /// A tick on `cpu`, which is busy: it balances when it is time, and sees to it that idle CPUs do.
    pub fn tick(&mut self, k: &Kernel, cpu: Cpu, can: impl Fn(TaskId, u32) -> bool) -> Vec<Pull> {
        if k.nr_cpus() == 1 {
            return Vec::new();
        }
        let now = k.now();
        if let Some(t) = k.curr(cpu).filter(|&t| k.is_mine(t)) {
            self.update_entity(now, t);
        }
        self.update_cpu(now, cpu);
        if !self.on || !k.balances(cpu) {
            return Vec::new();
        }
        let mut found = Vec::new();
        let ticks = k.ticks(cpu);
        let busy = !self.only_idle_policy(k, cpu);
        if ticks >= self.cpus[cpu].domain.next(busy) {
            self.cpus[cpu].domain.last = ticks;
            found.extend(self.balance(k, cpu, Idle::No, &can));
        }
        for c in k.idle_cpus().filter(|&c| c != cpu && k.balances(c)) {
            if ticks >= self.cpus[c].domain.next(false) {
                self.cpus[c].domain.last = ticks;
                found.extend(self.balance(k, c, Idle::Yes, &can));
            }
        }
        found
    }

    /// One balance for `dst`.
    fn balance(&mut self, k: &Kernel, dst: Cpu, idle: Idle, can: &impl Fn(TaskId, u32) -> bool) -> Option<Pull> {
        let now = k.now();
        // update_blocked_averages: of the CPU that balances; those of others are as of their last event.
        self.update_cpu(now, dst);
        self.settle();
        if idle != Idle::Newly {
            self.note_idle_scan(k);
        }
        let Some((src, kind, imbalance)) = self.busiest(k, dst, idle) else {
            self.balanced(k, idle, dst, false);
            return None;
        };
        let (tasks, all_pinned) = self.detach(k, src, dst, kind, imbalance, idle, can);
        let d = &mut self.cpus[dst].domain;
        if !tasks.is_empty() {
            d.failed = 0;
            d.set_interval(k, d.min_ms);
            return Some(Pull { from: src, to: dst, tasks });
        }
        if all_pinned {
            self.balanced(k, idle, dst, true);
            return None;
        }
        if idle != Idle::Newly {
            d.failed += 1;
        }
        d.set_interval(k, d.min_ms);
        // need_active_balance
        let push = kind == Kind::Tasks && d.failed > CACHE_NICE_TRIES + 2;
        let movable = k.curr(src).is_some_and(|c| k.is_mine(c) && k.allowed(c, dst));
        if push && movable {
            d.failed = CACHE_NICE_TRIES + 1;
            return Some(Pull { from: src, to: dst, tasks: Vec::new() });
        }
        None
    }

    fn balanced(&mut self, k: &Kernel, idle: Idle, dst: Cpu, pinned: bool) {
        let d = &mut self.cpus[dst].domain;
        if !pinned {
            d.failed = 0;
        }
        if idle != Idle::Newly && d.interval_ms < 2 * d.min_ms {
            d.set_interval(k, 2 * d.interval_ms);
        }
    }

    /// SIS_UTIL: how many CPUs a wakeup may look at, by the utilisation of all.
    fn note_idle_scan(&mut self, k: &Kernel) {
        let n = k.domain().count().max(1) as u64;
        let x = k.domain().map(|c| self.used(c)).sum::<u64>() / n;
        let used = (x * x * IMBALANCE_PCT * IMBALANCE_PCT / (10_000 * CAPACITY)).min(CAPACITY);
        self.idle_scan = ((CAPACITY - used) * n / CAPACITY) as i64;
    }

    /// The CPU to take from, what, and how much.
    fn busiest(&self, k: &Kernel, dst: Cpu, idle: Idle) -> Option<(Cpu, Kind, u64)> {
        let rank = |&c: &Cpu| {
            let group = self.group_of(k, c);
            let load = if group == Group::Overloaded { self.cpu_load(c) } else { 0 };
            (group, load, !k.is_idle(c), self.queued(k, c), std::cmp::Reverse(c))
        };
        let src = k.domain().filter(|&c| c != dst && self.waiting(c) > 0).max_by_key(rank)?;
        let (local, busiest) = (self.group_of(k, dst), self.group_of(k, src));
        let average = k.domain().map(|c| self.cpu_load(c)).sum::<u64>() / k.domain().count().max(1) as u64;
        let (here, there) = (self.cpu_load(dst), self.cpu_load(src));
        if local > busiest {
            return None;
        }
        if local == Group::Overloaded && (here >= there || here >= average || 100 * there <= IMBALANCE_PCT * here) {
            return None;
        }
        if busiest != Group::Overloaded && (idle == Idle::No || self.waiting(src) == 1) {
            return None;
        }
        if local == Group::HasSpare {
            // sibling_imbalance, since 6.6: a CPU that runs something does not even out numbers.
            if idle == Idle::No && self.form != Form::Cfs {
                return None;
            }
            let diff = self.queued(k, src).saturating_sub(self.queued(k, dst)) as u64;
            return (diff > 1).then_some((src, Kind::Tasks, diff / 2));
        }
        if here >= there || here >= average {
            return None;
        }
        let imbalance = (there - average.min(there)).min(average - here);
        (imbalance > 0).then_some((src, Kind::Load, imbalance))
    }

    /// The tasks that make up for the imbalance, and whether nothing could go for affinity.
    #[allow(clippy::too_many_arguments)]
    fn detach(
        &mut self,
        k: &Kernel,
        src: Cpu,
        dst: Cpu,
        kind: Kind,
        imbalance: u64,
        idle: Idle,
        can: &impl Fn(TaskId, u32) -> bool,
    ) -> (Vec<TaskId>, bool) {
        let mut left = imbalance as i64;
        let mut nr = self.queued(k, src);
        let mut found = Vec::new();
        let mut all_pinned = true;
        if nr <= 1 {
            return (found, false);
        }
        let failed = self.cpus[dst].domain.failed;
        for t in self.runnable.first(src, NR_MIGRATE.min(nr)) {
            if idle != Idle::No && nr <= 1 {
                break;
            }
            if !k.allowed(t, dst) {
                self.runnable.put_last(src, t);
                continue;
            }
            if can(t, failed) {
                all_pinned = false;
            }
            let load = self.task_h_load(t).max(1) >> failed.min(10);
            let too_much = kind == Kind::Load && load as i64 > left;
            if k.curr(src) == Some(t) || !can(t, failed) || self.hot(k, t) && failed <= CACHE_NICE_TRIES || too_much {
                all_pinned &= k.curr(src) != Some(t);
                self.runnable.put_last(src, t);
                continue;
            }
            left -= if kind == Kind::Load { self.task_h_load(t).max(1) as i64 } else { 1 };
            nr -= 1;
            found.push(t);
            if idle == Idle::Newly || left <= 0 {
                break;
            }
        }
        (found, all_pinned)
    }

    /// It ran so short a while ago that its data may still be in the cache.
    fn hot(&self, k: &Kernel, t: TaskId) -> bool {
        !self.ents[t].idle_policy && k.now() - self.ents[t].last_ran < self.migration_cost
    }
}
