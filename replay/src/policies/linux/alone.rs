//! Load tracking of a task that is in no group: what is done for groups in several steps, each of
//! which looks up what it needs, is done at once.

use super::Balancer;
use crate::task::{Cpu, Ns, TaskId};

impl Balancer {
    /// Task `t`, which is in no group, becomes runnable on `cpu`: as [`Self::task_arrives`],
    /// [`Self::enqueue`] and [`Self::count`].
    #[inline(always)]
    pub(super) fn arrives_alone(&mut self, now: Ns, cpu: Cpu, t: TaskId) {
        let e = &mut self.ents[t];
        if (e.cpu, e.queue) != (Some(cpu), Some(cpu)) {
            return self.arrives_anew(now, cpu, t);
        }
        let (c, queue) = (&mut self.cpus[cpu], &mut self.queues[cpu]);
        e.catch_up(now);
        c.catch_up(queue, now);
        c.nr += 1;
        c.nr_idle_policy += u64::from(e.idle_policy);
        c.estimated += e.estimate.counts();
        (e.on_rq, e.moving) = (true, false);
        queue.weight += e.weight;
        queue.nr += 1;
        self.runnable.put_last(cpu, t);
    }

    /// The same for one that counted elsewhere.
    #[inline(never)]
    fn arrives_anew(&mut self, now: Ns, cpu: Cpu, t: TaskId) {
        self.task_arrives(now, cpu, t);
        self.enqueue(now, cpu, t);
        self.count(now, cpu, true);
    }

    /// Task `t`, which is in no group, is no longer runnable, or leaves its CPU: as
    /// [`Self::task_departs`], [`Self::count`] and [`Self::dequeue`].
    #[inline]
    pub(super) fn leaves_alone(&mut self, now: Ns, cpu: Cpu, t: TaskId) {
        let e = &mut self.ents[t];
        if (e.cpu, e.queue, e.on_rq) != (Some(cpu), Some(cpu), true) {
            return self.leaves_otherwise(now, cpu, t);
        }
        let (c, queue) = (&mut self.cpus[cpu], &mut self.queues[cpu]);
        e.catch_up(now);
        c.catch_up(queue, now);
        c.nr -= 1;
        c.nr_idle_policy -= u64::from(e.idle_policy);
        c.estimated -= e.estimate.leaves();
        e.on_rq = false;
        queue.weight -= e.weight;
        queue.nr = queue.nr.saturating_sub(1);
        self.runnable.remove(t);
    }

    /// The same for one that counts elsewhere, or sleeps.
    #[inline(never)]
    fn leaves_otherwise(&mut self, now: Ns, cpu: Cpu, t: TaskId) {
        self.task_departs(now, t);
        self.count(now, cpu, false);
        self.dequeue(now, t);
    }

    /// Task `t`, which is in no group, ceases to run on `cpu` and falls asleep: as
    /// [`Self::task_stops`], [`Self::falls_asleep`] and [`Self::leaves_alone`].
    #[inline(always)]
    pub fn sleeps_alone(&mut self, now: Ns, cpu: Cpu, t: TaskId) {
        let (e, c, queue) = (&mut self.ents[t], &mut self.cpus[cpu], &mut self.queues[cpu]);
        e.catch_up(now);
        (e.running, e.last_ran) = (false, now);
        e.estimate.note(&e.avg, self.form);
        c.catch_up(queue, now);
        c.running = false;
        if (e.cpu, e.queue, e.on_rq) != (Some(cpu), Some(cpu), true) {
            return self.leaves_otherwise(now, cpu, t);
        }
        e.on_rq = false;
        c.nr -= 1;
        c.nr_idle_policy -= u64::from(e.idle_policy);
        c.estimated -= e.estimate.leaves();
        queue.weight -= e.weight;
        queue.nr = queue.nr.saturating_sub(1);
        self.runnable.remove(t);
    }
}
