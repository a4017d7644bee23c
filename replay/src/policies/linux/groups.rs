//! Groups of tasks: which there are, the entities that stand for them on each CPU, and their shares.

use std::collections::HashMap;
use std::sync::Arc;

use super::load::Past;
use super::{Balancer, Form};
use crate::policy::Kernel;
use crate::task::{Cpu, Ns, TaskId};

/// The least weight of a group's share of a CPU.
const MIN_SHARES: u64 = 2;

/// A group.
#[derive(Clone, Debug)]
struct Group {
    parent: Option<usize>,
    /// Weight on the scale of tasks: 1024 is a weight of 100.
    shares: u64,
    idle: bool,
    name: Arc<str>,
}

/// All groups. Each has an entity and a queue per CPU; the numbers of the entities follow those of the tasks.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    groups: Vec<Group>,
    by_name: HashMap<Arc<str>, usize>,
    tasks: u32,
    cpus: usize,
    of_task: Vec<Option<usize>>,
}

impl Groups {
    /// The groups of the workload.
    pub fn new(k: &Kernel) -> Self {
        let mut found = Groups {
            tasks: k.nr_tasks() as u32,
            cpus: k.nr_cpus(),
            of_task: vec![None; k.nr_tasks()],
            ..Self::default()
        };
        let mut specs: Vec<_> = k.groups().iter().collect();
        specs.sort_by_key(|g| g.name.matches('/').count());
        for g in specs {
            let parent = g.name.rsplit_once('/').and_then(|(above, _)| found.by_name.get(above).copied());
            let shares = if g.idle { 3 } else { g.shares };
            found.groups.push(Group { parent, shares, idle: g.idle, name: g.name.as_str().into() });
            found.by_name.insert(g.name.as_str().into(), found.groups.len() - 1);
        }
        found
    }

    /// CPU time that group `g` may use per period.
    pub fn quota(&self, k: &Kernel, g: usize) -> Option<(Ns, Ns)> {
        k.groups().iter().find(|spec| *spec.name == *self.groups[g].name)?.quota
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// True when all tasks are in the root group.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Looks up the group of a task by its attributes.
    pub fn join(&mut self, k: &Kernel, t: TaskId) {
        let name = k.task(t).attrs.group.as_ref();
        self.of_task[t.index()] = name.and_then(|n| self.by_name.get(n).copied());
    }

    /// The entity of group `g` on `cpu`.
    pub fn entity(&self, g: usize, cpu: Cpu) -> TaskId {
        TaskId(self.tasks + (g * self.cpus + cpu) as u32)
    }

    /// The queue of group `g` on `cpu`.
    pub fn queue(&self, g: usize, cpu: Cpu) -> usize {
        self.cpus + g * self.cpus + cpu
    }

    /// Number of queues of all.
    pub fn nr_queues(&self) -> usize {
        self.cpus * (1 + self.groups.len())
    }

    /// The CPU of queue `q`.
    #[inline]
    pub fn cpu_of(&self, q: usize) -> Cpu {
        if q < self.cpus {
            q
        } else {
            q % self.cpus.max(1)
        }
    }

    /// The group of queue `q`; `None` for the queue of a CPU.
    pub fn group_of_queue(&self, q: usize) -> Option<usize> {
        (q / self.cpus.max(1)).checked_sub(1)
    }

    /// The group whose share of a CPU `e` is, and the CPU; `None` for a task.
    #[inline]
    pub fn of_entity(&self, e: TaskId) -> Option<(usize, Cpu)> {
        let n = e.0.checked_sub(self.tasks)? as usize;
        Some((n / self.cpus, n % self.cpus))
    }

    /// True when `e` is a group's share of a CPU, and no task.
    #[inline]
    pub fn is_share(&self, e: TaskId) -> bool {
        e.0 >= self.tasks
    }

    /// The queue on which `e`, a task or a group's share, belongs on `cpu`.
    #[inline]
    pub fn home(&self, e: TaskId, cpu: Cpu) -> usize {
        if self.is_empty() {
            return cpu;
        }
        let above = match self.of_entity(e) {
            Some((g, _)) => self.groups[g].parent,
            None => self.of_task[e.index()],
        };
        above.map_or(cpu, |g| self.queue(g, cpu))
    }

    /// The queues that `e` comes below on `cpu`, from its own upwards; the CPU's is the last.
    pub fn queues_above(&self, e: TaskId, cpu: Cpu) -> impl Iterator<Item = usize> + '_ {
        let next = move |q: &usize| self.owner(*q).map(|owner| self.home(owner, cpu));
        std::iter::successors(Some(self.home(e, cpu)), next)
    }

    /// Task `t` becomes runnable on `cpu`: counts it in the loads of the CPU, of its queue and of
    /// those of the groups above it.
    #[inline(always)]
    pub fn arrives(&self, balancer: &mut Balancer, now: Ns, cpu: Cpu, t: TaskId) {
        if self.is_empty() {
            balancer.arrives_alone(now, cpu, t);
        } else {
            self.arrives_within(balancer, now, cpu, t);
        }
    }

    #[inline(never)]
    fn arrives_within(&self, balancer: &mut Balancer, now: Ns, cpu: Cpu, t: TaskId) {
        balancer.task_arrives(now, cpu, t);
        let mut at = t;
        loop {
            let q = self.home(at, cpu);
            balancer.enqueue(now, q, at);
            match self.owner(q) {
                Some(owner) if !balancer.is_queued(owner) => at = owner,
                _ => break,
            }
        }
        balancer.count(now, self.home(t, cpu), true);
    }

    /// Task `t` is no longer runnable on `cpu`, or leaves it: takes it out of the loads again.
    #[inline]
    pub fn leaves(&self, balancer: &mut Balancer, now: Ns, cpu: Cpu, t: TaskId) {
        if self.is_empty() {
            return balancer.leaves_alone(now, cpu, t);
        }
        self.departs(balancer, now, cpu, t);
        self.count_out(balancer, now, cpu, t);
    }

    /// Takes it out of the loads of the CPU and of the numbers of runnable tasks, but not of those
    /// of its queues ([`Self::count_out`] does).
    pub fn departs(&self, balancer: &mut Balancer, now: Ns, cpu: Cpu, t: TaskId) {
        balancer.task_departs(now, t);
        balancer.count(now, self.home(t, cpu), false);
    }

    /// Takes it out of the loads of its queue and of those of the groups above it.
    pub fn count_out(&self, balancer: &mut Balancer, now: Ns, cpu: Cpu, t: TaskId) {
        let mut at = t;
        loop {
            let q = self.home(at, cpu);
            balancer.dequeue(now, at);
            match self.owner(q) {
                Some(owner) if balancer.weights(q, owner).0 == 0 => at = owner,
                _ => break,
            }
        }
    }

    /// True when `t` comes below queue `q` on `cpu`.
    pub fn is_below(&self, t: TaskId, cpu: Cpu, q: usize) -> bool {
        self.queues_above(t, cpu).any(|above| above == q)
    }

    /// The entity that stands for queue `q` above it.
    #[inline]
    pub fn owner(&self, q: usize) -> Option<TaskId> {
        if q < self.cpus {
            return None;
        }
        self.group_of_queue(q).map(|g| self.entity(g, self.cpu_of(q)))
    }

    /// True when `e` is a group that counts as SCHED_IDLE.
    pub fn is_idle(&self, e: TaskId) -> bool {
        self.of_entity(e).is_some_and(|(g, _)| self.groups[g].idle)
    }

    /// Makes the entities and queues known to `balancer`.
    pub fn register(&self, balancer: &mut Balancer) {
        for q in self.cpus..self.nr_queues() {
            if let Some(owner) = self.owner(q) {
                balancer.add_queue(owner);
                let shares = self.groups[self.of_entity(owner).map_or(0, |g| g.0)].shares;
                balancer.init_entity(0, owner, shares, false, Past::Nothing);
            }
        }
    }

    /// The weight of group entity `e` now: the group's shares, split over CPUs by the load that its
    /// tasks have on each (calc_group_shares). From 7.3 on the group counts as many times as it has
    /// tasks that could run at once.
    pub fn share(&self, balancer: &mut Balancer, now: Ns, e: TaskId) -> u64 {
        self.fine_share(balancer, now, e) >> 10
    }

    /// The same in 1,024ths, as fine as the kernel's: it changes with every change of the loads.
    pub fn fine_share(&self, balancer: &mut Balancer, now: Ns, e: TaskId) -> u64 {
        let Some((g, cpu)) = self.of_entity(e) else { return 0 };
        let group = &self.groups[g];
        if group.idle {
            return group.shares << 10;
        }
        let (mut all, mut runnable) = (0, 0);
        for c in 0..self.cpus {
            let (_, average, tasks) = balancer.queue_load(now, self.queue(g, c));
            all += average;
            runnable += tasks;
        }
        let (weight, average, _) = balancer.queue_load(now, self.queue(g, cpu));
        let load = weight.max(average);
        let total = all - average + load;
        let times = match balancer.form {
            Form::Flat => (runnable >> 10).clamp(1, self.cpus as u64),
            _ => 1,
        };
        let shares = (group.shares * times) << 10;
        let share = (shares * load).checked_div(total).unwrap_or(shares);
        share.clamp(MIN_SHARES << 10, shares.max(MIN_SHARES << 10))
    }
}
