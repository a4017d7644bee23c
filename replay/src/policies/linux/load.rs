//! Load averages of tasks, groups and queues.

use super::estimate::Estimate;
use super::pelt::{Pelt, Since};
use super::runnable::Runnable;
use super::Form;
use crate::policy::Kernel;
use crate::queue::TaskMap;
use crate::task::{Cpu, Ns, TaskId};

/// How often a task that is there from the beginning has woken another one than before
/// ([`Ent::flips`]), where no trace says how often it does so. Interrupts count for the task that they
/// interrupt, so that nobody has none: tasks that begin with 0 come to medians of 2 to 9 within 1.5 s
/// of lab2's `server`, `mixed` and `callpipe`.
const FLIPS_BEFORE: u32 = 4;
/// What random numbers begin with in a plain replay; any other number would do.
const FIRST_RANDOM: u64 = 0x9E37_79B9_7F4A_7C15;

/// What is known of a task or of a group's share of one CPU. What its averages are brought up to
/// date with stands in the first of three lines of the cache.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Ent {
    pub weight: u64,
    pub on_rq: bool,
    pub running: bool,
    /// It is being moved while it is runnable.
    pub moving: bool,
    pub idle_policy: bool,
    /// How often it woke another task than before, halved every second, and since when
    /// ([`Self::flips_since`]).
    pub flips: u32,
    pub avg: Pelt,
    /// Queue in whose averages it counts.
    pub queue: Option<usize>,
    /// CPU in whose averages it counts; `None` for groups.
    pub cpu: Option<Cpu>,
    /// When it was last charged.
    pub last_ran: Ns,
    pub flips_since: Ns,
    pub last_wakee: Option<TaskId>,
    pub recent_cpu: Option<u32>,
    pub estimate: Estimate,
}

/// One run queue: of a CPU, or of a group on a CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    pub avg: Pelt,
    /// What left for other CPUs in its sleep: taken out when the averages are next brought up to date.
    pub removed: Option<Pelt>,
    /// Weight of all that is on it.
    pub weight: u64,
    /// Runnable tasks on it and on the queues of groups within it.
    pub nr: u64,
    /// The group's share of the CPU that it belongs to; `None` for the queue of a CPU.
    pub owner: Option<TaskId>,
}

/// A CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct CpuLoad {
    /// Utilisation and runnable tasks, whatever group they are in.
    pub avg: Pelt,
    /// As of its queue.
    pub removed: Option<Pelt>,
    /// Estimated utilisation of the tasks that are runnable here.
    pub estimated: u64,
    pub nr: u64,
    pub nr_idle_policy: u64,
    /// Tasks that sleep and are still counted (delayed dequeue), and those of them under SCHED_IDLE.
    pub delayed: (u64, u64),
    pub running: bool,
    /// The task that ended here last, while the switch from it goes on.
    pub dead: Option<TaskId>,
    pub domain: super::balance::Domain,
    pub idle_since: Ns,
}

impl Ent {
    /// Brings the averages up to date, where they are behind.
    #[inline(always)]
    pub(super) fn catch_up(&mut self, now: Ns) {
        if self.avg.is_behind(now) {
            self.update(now);
        }
    }

    #[inline(never)]
    fn update(&mut self, now: Ns) {
        if !self.avg.adds(now, self.since(), self.weight) {
            self.update_across(now);
        }
    }

    /// The same where a period ends meanwhile.
    #[inline(never)]
    fn update_across(&mut self, now: Ns) {
        self.avg.advance(now, self.since(), self.weight);
    }

    /// What was so since the last update.
    #[inline(always)]
    fn since(&self) -> Since {
        let on = u64::from(self.on_rq);
        Since { load: on, runnable: on, running: self.running }
    }
}

impl Queue {
    /// Takes out what has left, and tells what was so since the last update.
    #[inline]
    fn since(&mut self) -> Since {
        if let Some(removed) = &self.removed {
            self.avg.detach(removed, 1);
            self.removed = None;
        }
        Since { load: self.weight, runnable: self.nr, running: false }
    }

    /// Brings the averages up to date, where they are behind.
    #[inline(always)]
    fn catch_up(&mut self, now: Ns) {
        if self.removed.is_some() || self.avg.is_behind(now) {
            self.update(now);
        }
    }

    #[inline(never)]
    fn update(&mut self, now: Ns) {
        let since = self.since();
        self.avg.update(now, since, 1);
    }
}

impl CpuLoad {
    /// Brings the averages up to date, and those of the CPU's own queue, where they are behind.
    #[inline(always)]
    pub(super) fn catch_up(&mut self, queue: &mut Queue, now: Ns) {
        let behind = self.avg.is_behind(now) || queue.avg.is_behind(now);
        if behind || self.removed.is_some() || queue.removed.is_some() {
            self.update(queue, now);
        }
    }

    #[inline(never)]
    fn update(&mut self, queue: &mut Queue, now: Ns) {
        let left = self.removed.is_some() || queue.removed.is_some();
        let of_queue = Since { load: queue.weight, runnable: queue.nr, running: false };
        if left || !self.avg.adds_both(now, self.since(), &mut queue.avg, of_queue) {
            self.update_across(queue, now);
        }
    }

    /// The same where a period ends meanwhile, or something has left.
    #[inline(never)]
    fn update_across(&mut self, queue: &mut Queue, now: Ns) {
        if let Some(removed) = &self.removed {
            self.avg.detach(removed, 1);
            self.removed = None;
        }
        let of_queue = queue.since();
        self.avg.update_both(self.since(), &mut queue.avg, of_queue, now);
    }

    #[inline(always)]
    fn since(&self) -> Since {
        Since { load: 0, runnable: self.nr, running: self.running }
    }
}

/// What averages of an entity begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Past {
    /// It was forked, or nobody knows what it did: it counts as runnable all the time, and as using what
    /// is to be had.
    New,
    /// It has slept: half of what was before is forgotten in 32 ms. Or it is a group's share.
    Nothing,
}

/// Load tracking and balancing of all CPUs.
#[derive(Debug)]
pub struct Balancer {
    pub(super) form: Form,
    pub(super) migration_cost: Ns,
    pub(super) ents: TaskMap<Ent>,
    pub(super) queues: Vec<Queue>,
    pub(super) cpus: Vec<CpuLoad>,
    pub(super) runnable: Runnable,
    /// How many CPUs a wakeup looks at for an idle one (SIS_UTIL).
    pub(super) idle_scan: i64,
    /// State of the kernel's random numbers.
    pub(super) random: u64,
    /// NI_RANDOM.
    pub(super) chance: bool,
    /// False: tasks stay where they are (a negative control).
    pub(super) on: bool,
    /// The CPUs share a cache: wakeups look for an idle one among them.
    pub(super) shared_cache: bool,
}

impl Balancer {
    /// For `cpus` CPUs; the first queues are theirs, in order. `on` false lets nothing move but
    /// what affinity moves.
    pub fn new(form: Form, migration_cost: Ns, on: bool) -> Self {
        Balancer {
            form,
            migration_cost,
            ents: TaskMap::new(),
            queues: Vec::new(),
            cpus: Vec::new(),
            runnable: Runnable::none(0),
            idle_scan: 0,
            random: 0,
            chance: true,
            on,
            shared_cache: true,
        }
    }

    /// The CPUs share a cache, or each has its own.
    #[must_use]
    pub fn with_cache(mut self, shared: bool) -> Self {
        self.shared_cache = shared;
        self
    }

    /// A CPU that goes idle looks for work by chance, as often as it finds some, or each time.
    #[must_use]
    pub fn with_chance(mut self, chance: bool) -> Self {
        self.chance = chance;
        self
    }

    /// Makes room for the machine's CPUs.
    pub fn init(&mut self, k: &Kernel) {
        self.random = FIRST_RANDOM ^ k.seed();
        self.cpus = vec![CpuLoad::default(); k.nr_cpus()];
        self.runnable = Runnable::none(k.nr_cpus());
        for cpu in &mut self.cpus {
            cpu.domain.init(k);
        }
        self.queues = vec![Queue::default(); k.nr_cpus()];
    }

    /// A queue for a group on one CPU; its number.
    pub fn add_queue(&mut self, owner: TaskId) -> usize {
        self.queues.push(Queue { owner: Some(owner), ..Queue::default() });
        self.queues.len() - 1
    }

    /// Task `t` begins, with this weight (1024 is nice 0). `parent` made it, or it is there from the
    /// beginning.
    pub fn init_task(&mut self, k: &Kernel, t: TaskId, weight: u64, idle_policy: bool, parent: Option<TaskId>) {
        let past = if k.begins_asleep(t) { Past::Nothing } else { Past::New };
        self.init_entity(k.now(), t, weight, idle_policy, past);
        self.inherit_flips(t, parent, k.flips_before(t));
    }

    /// A child has its parent's count of other wakees (dup_task_struct copies it). Who is there from
    /// the beginning has what it gets in a second: half of them are forgotten each second, so that
    /// those who go on like that have as many just behind that.
    fn inherit_flips(&mut self, t: TaskId, parent: Option<TaskId>, before: Option<u32>) {
        let (flips, since, last) = match parent.map(|p| &self.ents[p]) {
            Some(p) => (p.flips, p.flips_since, p.last_wakee),
            None => (before.unwrap_or(FLIPS_BEFORE), 0, None),
        };
        let e = &mut self.ents[t];
        (e.flips, e.flips_since, e.last_wakee) = (flips, since, last);
    }

    /// A task, or a group's share of a CPU, begins.
    pub(super) fn init_entity(&mut self, now: Ns, t: TaskId, weight: u64, idle_policy: bool, past: Past) {
        let avg = match past {
            Past::New => Pelt::forked(now, weight),
            Past::Nothing => Pelt::default(),
        };
        *self.ents.ensure(t) = Ent { avg, weight, idle_policy, last_ran: Ns::MIN / 2, ..Ent::default() };
    }

    #[inline]
    pub(super) fn update_entity(&mut self, now: Ns, t: TaskId) {
        self.ents[t].catch_up(now);
    }

    #[inline]
    fn update_queue(&mut self, now: Ns, q: usize) {
        self.queues[q].catch_up(now);
    }

    #[inline]
    pub(super) fn update_cpu(&mut self, now: Ns, cpu: Cpu) {
        self.cpus[cpu].catch_up(&mut self.queues[cpu], now);
    }

    /// What all CPUs are compared by is about to be read.
    pub(super) fn settle(&mut self) {
        for (cpu, queue) in self.cpus.iter_mut().zip(&mut self.queues) {
            cpu.avg.settle();
            queue.avg.settle();
        }
    }

    /// `t` comes on queue `q`.
    pub fn enqueue(&mut self, now: Ns, q: usize, t: TaskId) {
        self.update_entity(now, t);
        self.update_queue(now, q);
        if self.ents[t].queue != Some(q) {
            self.attach_queue(now, q, t);
        }
        let e = &mut self.ents[t];
        e.on_rq = true;
        e.moving = false;
        self.queues[q].weight += e.weight;
    }

    /// `t` counts in the averages of queue `q` from now on, and no more in those of its last one.
    #[inline(never)]
    fn attach_queue(&mut self, now: Ns, q: usize, t: TaskId) {
        let e = self.ents[t];
        if let Some(old) = e.queue.filter(|_| e.moving) {
            self.update_queue(now, old);
            self.queues[old].avg.detach(&e.avg, e.weight);
        } else if let Some(old) = e.queue {
            self.queues[old].removed.get_or_insert_default().attach(&e.avg, e.weight);
        }
        self.queues[q].avg.attach(&e.avg, e.weight);
        self.ents[t].queue = Some(q);
    }

    /// `t`, which is runnable, is about to be moved: it takes its load along at once. What wakes
    /// elsewhere leaves its load behind until its old CPU next brings its averages up to date
    /// (remove_entity_load_avg).
    pub fn moves(&mut self, t: TaskId) {
        self.ents[t].moving = true;
    }

    /// `t` leaves its queue, whose average goes on counting it while it sleeps.
    pub fn dequeue(&mut self, now: Ns, t: TaskId) {
        self.update_entity(now, t);
        let e = &mut self.ents[t];
        let (was, weight) = (std::mem::replace(&mut e.on_rq, false), e.weight);
        if let (Some(q), true) = (e.queue, was) {
            self.update_queue(now, q);
            self.queues[q].weight -= weight;
        }
    }

    /// `t` begins or ceases to be the one that runs.
    #[inline]
    pub fn set_running(&mut self, now: Ns, t: TaskId, running: bool) {
        self.update_entity(now, t);
        self.ents[t].running = running;
    }

    /// `t` changes its weight.
    pub fn reweigh(&mut self, now: Ns, t: TaskId, weight: u64) {
        self.update_entity(now, t);
        if self.ents[t].weight == weight {
            return;
        }
        let e = self.ents[t];
        self.ents[t].weight = weight;
        self.ents[t].avg.reweigh(weight);
        let Some(q) = e.queue else { return };
        self.update_queue(now, q);
        let new = self.ents[t].avg;
        let queue = &mut self.queues[q];
        queue.avg.detach(&e.avg, e.weight);
        queue.avg.attach(&new, weight);
        if e.on_rq {
            queue.weight = queue.weight - e.weight + weight;
        }
    }

    /// Task `t` becomes runnable on `cpu`.
    pub fn task_arrives(&mut self, now: Ns, cpu: Cpu, t: TaskId) {
        self.update_entity(now, t);
        self.update_cpu(now, cpu);
        if self.ents[t].cpu != Some(cpu) {
            self.attach_cpu(now, cpu, t);
        }
        let c = &mut self.cpus[cpu];
        let e = &mut self.ents[t];
        c.nr += 1;
        c.nr_idle_policy += u64::from(e.idle_policy);
        c.estimated += e.estimate.counts();
        self.runnable.put_last(cpu, t);
    }

    /// `t` falls asleep: what it used is remembered. Up to 6.5 as of now, later as of the last time that its
    /// averages were brought up to date (dequeue_task_fair, update_load_avg).
    #[inline(always)]
    pub fn falls_asleep(&mut self, now: Ns, t: TaskId) {
        if self.form == Form::Cfs {
            self.update_entity(now, t);
        }
        let e = &mut self.ents[t];
        e.estimate.note(&e.avg, self.form);
    }

    /// `t` has ended. What it used counts until the CPU runs the next task and then brings its averages up
    /// to date: the kernel takes it out behind the switch (task_dead_fair, remove_entity_load_avg).
    pub fn task_ends(&mut self, now: Ns, t: TaskId) {
        self.update_entity(now, t);
        if let Some(cpu) = self.ents[t].cpu {
            self.bury(cpu);
            self.cpus[cpu].dead = Some(t);
        }
    }

    /// The switch from the task that ended last on `cpu` is over.
    #[inline]
    pub(super) fn bury(&mut self, cpu: Cpu) {
        let Some(t) = self.cpus[cpu].dead.take() else { return };
        let e = &mut self.ents[t];
        let (own, queue, avg, weight) = (e.cpu.take(), e.queue.take(), e.avg, e.weight);
        if let Some(own) = own {
            self.cpus[own].removed.get_or_insert_default().attach(&avg, 0);
        }
        if let Some(queue) = queue {
            self.queues[queue].removed.get_or_insert_default().attach(&avg, weight);
        }
    }

    /// What a task is taken to use of `cpu` before it has run there: its part by weight, and half of what is
    /// free at most (post_init_entity_util_avg; of the CPU also where the task is in a group).
    fn expected(&self, cpu: Cpu, weight: u64) -> u64 {
        let (used, load) = (self.cpus[cpu].avg.util(), self.queues[cpu].avg.load());
        let most = 1024u64.saturating_sub(used) / 2;
        if used == 0 {
            most
        } else {
            (used * weight / (load + 1)).min(most)
        }
    }

    /// `t` counts in the averages of `cpu` from now on, and no more in those of its last one.
    #[inline(never)]
    fn attach_cpu(&mut self, now: Ns, cpu: Cpu, t: TaskId) {
        if self.ents[t].cpu.is_none() && self.ents[t].avg.load() > 0 {
            let expected = self.expected(cpu, self.ents[t].weight);
            self.ents[t].avg.expect(expected);
        }
        let e = self.ents[t];
        if let Some(old) = e.cpu {
            if e.moving {
                self.update_cpu(now, old);
                self.cpus[old].avg.detach(&e.avg, 0);
            } else {
                self.cpus[old].removed.get_or_insert_default().attach(&e.avg, 0);
            }
            // What comes from another CPU is cold here.
            self.ents[t].last_ran = Ns::MIN / 2;
        }
        self.cpus[cpu].avg.attach(&e.avg, 0);
        self.ents[t].cpu = Some(cpu);
    }

    /// Task `t` is no longer runnable on its CPU, or leaves it.
    pub fn task_departs(&mut self, now: Ns, t: TaskId) {
        self.update_entity(now, t);
        let Some(cpu) = self.ents[t].cpu else { return };
        self.update_cpu(now, cpu);
        let c = &mut self.cpus[cpu];
        let e = &mut self.ents[t];
        c.nr -= 1;
        c.nr_idle_policy -= u64::from(e.idle_policy);
        c.estimated -= e.estimate.leaves();
        self.runnable.remove(t);
    }

    /// `t`, which fell asleep, stays counted among the tasks of its CPU, or is no more.
    pub fn task_lingers(&mut self, t: TaskId, lingers: bool) {
        let e = &self.ents[t];
        let Some(cpu) = e.cpu else { return };
        let (all, idle) = &mut self.cpus[cpu].delayed;
        let (own, own_idle) = (1, u64::from(e.idle_policy));
        (*all, *idle) = if lingers { (*all + own, *idle + own_idle) } else { (*all - own, *idle - own_idle) };
    }

    /// Tasks of all classes on `cpu`, those in delayed dequeue among them (`rq->nr_running`).
    pub(super) fn queued(&self, k: &Kernel, cpu: Cpu) -> usize {
        k.nr_runnable(cpu) + self.cpus[cpu].delayed.0 as usize
    }

    /// Fair tasks of `cpu` as balancing counts them: since 7.0 without those in delayed dequeue.
    pub(super) fn waiting(&self, cpu: Cpu) -> u64 {
        let c = &self.cpus[cpu];
        c.nr + if self.form == Form::Flat { 0 } else { c.delayed.0 }
    }

    /// Task `t` begins to run on `cpu`.
    #[inline(always)]
    pub fn task_starts(&mut self, now: Ns, cpu: Cpu, t: TaskId) {
        let (e, c) = (&mut self.ents[t], &mut self.cpus[cpu]);
        e.catch_up(now);
        e.running = true;
        c.catch_up(&mut self.queues[cpu], now);
        c.running = true;
        self.runnable.put_last(cpu, t);
        if c.dead.is_some() {
            self.bury(cpu);
        }
    }

    /// Task `t` ceases to run on `cpu`.
    #[inline(always)]
    pub fn task_stops(&mut self, now: Ns, cpu: Cpu, t: TaskId) {
        let (e, c) = (&mut self.ents[t], &mut self.cpus[cpu]);
        e.catch_up(now);
        (e.running, e.last_ran) = (false, now);
        c.catch_up(&mut self.queues[cpu], now);
        c.running = false;
    }

    /// `t` changes between SCHED_IDLE and other policies.
    pub fn set_idle_policy(&mut self, t: TaskId, idle: bool) {
        let e = &mut self.ents[t];
        let was = std::mem::replace(&mut e.idle_policy, idle);
        if let (true, Some(cpu), true) = (was != idle, e.cpu, self.runnable.contains(t)) {
            let n = &mut self.cpus[cpu].nr_idle_policy;
            *n = if idle { *n + 1 } else { *n - 1 };
        }
    }

    /// Nothing but SCHED_IDLE tasks is on `cpu` (sched_idle_rq, which counts what sleeps in delayed
    /// dequeue).
    pub(super) fn only_idle_policy(&self, k: &Kernel, cpu: Cpu) -> bool {
        let c = &self.cpus[cpu];
        c.nr > 0 && c.nr == c.nr_idle_policy && c.delayed.0 == c.delayed.1 && c.nr as usize == k.nr_runnable(cpu)
    }

    /// Load average of the queue of `cpu`.
    pub(super) fn cpu_load(&self, cpu: Cpu) -> u64 {
        self.queues[cpu].avg.load()
    }

    /// Load average of group `q`'s queue as its part of the CPU's load.
    fn queue_h_load(&self, q: usize) -> u64 {
        let queue = &self.queues[q];
        let Some(owner) = queue.owner else { return queue.avg.load() };
        let above = self.ents[owner].queue.unwrap_or(0);
        self.queue_h_load(above) * self.ents[owner].avg.load() / (self.queues[above].avg.load() + 1)
    }

    /// Load of a task as part of its CPU's load.
    pub(super) fn task_h_load(&self, t: TaskId) -> u64 {
        let e = &self.ents[t];
        let Some(q) = e.queue else { return e.avg.load() };
        e.avg.load() * self.queue_h_load(q) / (self.queues[q].avg.load() + 1)
    }

    /// Weight, load average and average number of runnable tasks (times 1024) of queue `q`, for the
    /// shares of groups.
    pub fn queue_load(&mut self, now: Ns, q: usize) -> (u64, u64, u64) {
        self.update_queue(now, q);
        let queue = &self.queues[q];
        (queue.weight, queue.avg.load(), queue.avg.runnable())
    }

    /// One runnable task more or less on queue `q` and all above it.
    pub fn count(&mut self, now: Ns, q: usize, more: bool) {
        let mut at = Some(q);
        while let Some(q) = at {
            self.update_queue(now, q);
            let queue = &mut self.queues[q];
            queue.nr = if more { queue.nr + 1 } else { queue.nr.saturating_sub(1) };
            at = queue.owner.and_then(|o| self.ents[o].queue);
        }
    }

    /// Weight of all that is on queue `q`, and the weight of `t`.
    pub fn weights(&self, q: usize, t: TaskId) -> (u64, u64) {
        (self.queues[q].weight, self.ents[t].weight)
    }

    /// `t` is on its queue.
    pub fn is_queued(&self, t: TaskId) -> bool {
        self.ents[t].on_rq
    }

    /// The tasks that are runnable on `cpu`, in the order of their list.
    pub fn tasks_of(&mut self, cpu: Cpu) -> Vec<TaskId> {
        self.runnable.first(cpu, usize::MAX)
    }

    /// Number of runnable tasks on `cpu`, those in delayed dequeue not counted.
    pub fn nr(&self, cpu: Cpu) -> u64 {
        self.cpus[cpu].nr
    }

    /// `cpu` goes idle, or finds something to run.
    pub fn note_idle(&mut self, now: Ns, cpu: Cpu) {
        self.cpus[cpu].idle_since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn balancer(cpus: usize) -> Balancer {
        let mut found = Balancer::new(Form::Cfs, 0, true);
        found.cpus = vec![CpuLoad::default(); cpus];
        found.queues = vec![Queue::default(); cpus];
        found.runnable = Runnable::none(cpus);
        for t in 0..6u32 {
            found.init_entity(0, TaskId(t), 1024 >> (t % 3), t == 5, Past::New);
        }
        found
    }

    #[test]
    fn a_child_has_its_parents_count_of_wakees_and_nobody_begins_with_none() {
        let mut all = balancer(1);
        (all.ents[TaskId(0)].flips, all.ents[TaskId(0)].last_wakee) = (9, Some(TaskId(3)));
        all.inherit_flips(TaskId(1), Some(TaskId(0)), None);
        all.inherit_flips(TaskId(2), None, None);
        let of = |t: u32| (all.ents[TaskId(t)].flips, all.ents[TaskId(t)].last_wakee);
        assert_eq!((of(1), of(2)), ((9, Some(TaskId(3))), (FLIPS_BEFORE, None)));
    }

    proptest! {
        #[test]
        fn a_task_alone_is_counted_as_step_by_step(
            ops in prop::collection::vec((0u32..6, 0usize..3, 0i64..5_000_000, any::<bool>()), 1..80),
        ) {
            let (mut alone, mut steps) = (balancer(3), balancer(3));
            let mut on = [None; 6];
            let mut now = 0;
            for (t, cpu, passed, moves) in ops {
                now += passed;
                let (at, t) = (&mut on[t as usize], TaskId(t));
                if let Some(cpu) = at.take() {
                    if moves {
                        alone.sleeps_alone(now, cpu, t);
                        steps.task_stops(now, cpu, t);
                        steps.falls_asleep(now, t);
                    } else {
                        alone.leaves_alone(now, cpu, t);
                    }
                    steps.task_departs(now, t);
                    steps.count(now, cpu, false);
                    steps.dequeue(now, t);
                } else {
                    if moves {
                        alone.moves(t);
                        steps.moves(t);
                    }
                    alone.arrives_alone(now, cpu, t);
                    steps.task_arrives(now, cpu, t);
                    steps.enqueue(now, cpu, t);
                    steps.count(now, cpu, true);
                    *at = Some(cpu);
                }
                prop_assert_eq!(format!("{:?}", alone), format!("{:?}", steps));
            }
        }
    }
}
