//! Load averages of tasks, groups and queues.

use super::pelt::{Pelt, Since};
use super::Form;
use crate::policy::Kernel;
use crate::queue::{Lists, TaskMap};
use crate::task::{Cpu, Ns, TaskId};

/// What is known of a task or of a group's share of one CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ent {
    pub avg: Pelt,
    pub weight: u64,
    /// Queue in whose averages it counts.
    pub queue: Option<usize>,
    pub on_rq: bool,
    pub running: bool,
    /// CPU in whose averages it counts; `None` for groups.
    pub cpu: Option<Cpu>,
    /// When it was last charged.
    pub last_ran: Ns,
    pub idle_policy: bool,
    /// How often it woke another task than before, halved every second, and since when.
    pub flips: u32,
    pub flips_since: Ns,
    pub last_wakee: Option<TaskId>,
    pub recent_cpu: Option<Cpu>,
    /// It is being moved while it is runnable.
    pub moving: bool,
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
    pub nr: u64,
    pub nr_idle_policy: u64,
    /// Tasks that sleep and are still counted (delayed dequeue), and those of them under SCHED_IDLE.
    pub delayed: (u64, u64),
    pub running: bool,
    pub domain: super::balance::Domain,
    pub idle_since: Ns,
}

/// Load tracking and balancing of all CPUs.
#[derive(Debug)]
pub struct Balancer {
    pub(super) form: Form,
    pub(super) migration_cost: Ns,
    pub(super) ents: TaskMap<Ent>,
    pub(super) queues: Vec<Queue>,
    pub(super) cpus: Vec<CpuLoad>,
    /// The runnable tasks of each CPU, the one that came or ran last at the tail.
    pub(super) lists: Lists,
    /// How many CPUs a wakeup looks at for an idle one (SIS_UTIL).
    pub(super) idle_scan: i64,
    pub(super) random: u64,
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
            lists: Lists::new(0),
            idle_scan: 0,
            random: 0x9E37_79B9_7F4A_7C15,
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

    /// Makes room for the machine's CPUs.
    pub fn init(&mut self, k: &Kernel) {
        self.cpus = vec![CpuLoad::default(); k.nr_cpus()];
        self.lists = Lists::new(k.nr_cpus());
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

    /// A task, or a group's share of a CPU, of this weight (1024 is nice 0).
    pub fn init_entity(&mut self, now: Ns, t: TaskId, weight: u64, idle_policy: bool, is_task: bool) {
        let avg = if is_task { Pelt::newborn(now, weight) } else { Pelt::default() };
        *self.ents.ensure(t) = Ent { avg, weight, idle_policy, last_ran: Ns::MIN / 2, ..Ent::default() };
    }

    fn update_entity(&mut self, now: Ns, t: TaskId) {
        let e = &mut self.ents[t];
        let on = u64::from(e.on_rq);
        e.avg.update(now, Since { load: on, runnable: on, running: e.running }, e.weight);
    }

    fn update_queue(&mut self, now: Ns, q: usize) {
        let queue = &mut self.queues[q];
        if let Some(removed) = &queue.removed {
            queue.avg.detach(removed, 1);
            queue.removed = None;
        }
        queue.avg.update(now, Since { load: queue.weight, runnable: queue.nr, running: false }, 1);
    }

    pub(super) fn update_cpu(&mut self, now: Ns, cpu: Cpu) {
        let c = &mut self.cpus[cpu];
        if let Some(removed) = &c.removed {
            c.avg.detach(removed, 1);
            c.removed = None;
        }
        c.avg.update(now, Since { load: 0, runnable: c.nr, running: c.running }, 1);
        self.update_queue(now, cpu);
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
        c.nr += 1;
        c.nr_idle_policy += u64::from(self.ents[t].idle_policy);
        self.touch(cpu, t);
    }

    /// `t` counts in the averages of `cpu` from now on, and no more in those of its last one.
    fn attach_cpu(&mut self, now: Ns, cpu: Cpu, t: TaskId) {
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
        c.nr -= 1;
        c.nr_idle_policy -= u64::from(self.ents[t].idle_policy);
        self.lists.remove(t);
    }

    /// Puts `t` in front of the list of its CPU: pulling begins at the other end.
    pub(super) fn touch(&mut self, cpu: Cpu, t: TaskId) {
        if self.lists.back(cpu) != Some(t) {
            self.lists.remove(t);
            self.lists.push_back(cpu, t);
        }
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

    /// Task `t` runs on `cpu`, or ceases to.
    pub fn task_runs(&mut self, now: Ns, cpu: Cpu, t: TaskId, runs: bool) {
        self.update_cpu(now, cpu);
        self.cpus[cpu].running = runs;
        if runs {
            self.touch(cpu, t);
        } else {
            self.ents[t].last_ran = now;
        }
    }

    /// `t` changes between SCHED_IDLE and other policies.
    pub fn set_idle_policy(&mut self, t: TaskId, idle: bool) {
        let e = &mut self.ents[t];
        let was = std::mem::replace(&mut e.idle_policy, idle);
        if let (true, Some(cpu), true) = (was != idle, e.cpu, self.lists.list_of(t).is_some()) {
            let n = &mut self.cpus[cpu].nr_idle_policy;
            *n = if idle { *n + 1 } else { *n - 1 };
        }
    }

    /// Nothing but SCHED_IDLE tasks is on `cpu` (sched_idle_rq, which counts what sleeps in delayed dequeue).
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
    pub fn tasks_of(&self, cpu: Cpu) -> Vec<TaskId> {
        self.lists.iter(cpu).collect()
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
