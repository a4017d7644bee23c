//! Queues under a lock, with a condition variable on which readers wait.
//!
//! Whoever sends takes the lock, signals, and lets go of it when it is back from the system call:
//! one that is preempted there, by whom it has woken or another, still holds it. A reader takes it
//! to look, and again when it is woken.
//!
//! With [`Calls::Condition`] the condition variable is that of glibc 2.25 to 2.40
//! (nptl/pthread_cond_common.c). Those that wait are in two groups. Signals go to the older one; when
//! nobody is left there, the younger one takes its place. Before that, whoever signals waits until all
//! of the older one have run, for as long as they wait for a CPU, and keeps its lock meanwhile
//! (`__condvar_quiesce_and_switch_g1`). With [`Calls::Signal`] nobody waits there (glibc from 2.41 on,
//! Rust).

use super::Engine;
use crate::policy::Wake;
use crate::program::Calls;
use crate::queue::Lists;
use crate::task::{Cpu, Sleep, TaskId};

/// The condition variables of a run.
pub(super) struct Conditions {
    /// The lock of each queue that has one.
    lock: Vec<Option<usize>>,
    /// Whether those that wait for it are in two groups.
    grouped: Vec<bool>,
    /// Who waits in the younger group; those of the older one are the readers of the queue.
    younger: Lists,
    /// How many of the older group have not run since they waited.
    older: Vec<u32>,
    /// Who waits for those.
    signaller: Vec<Option<TaskId>>,
    /// Who lets go of which lock when it returns from its system call.
    returning: Vec<(TaskId, usize)>,
}

impl Conditions {
    /// None waited for yet. The locks have the numbers behind the first `locks`.
    pub fn new(calls: &[Calls], queues: usize, locks: usize) -> Self {
        let of = |q: usize| calls.get(q).copied().unwrap_or_default();
        let has = |q: usize| matches!(of(q), Calls::Signal | Calls::Condition);
        let lock: Vec<Option<usize>> = (0..queues).map(|q| has(q).then_some(locks + q)).collect();
        let grouped = (0..queues).map(|q| of(q) == Calls::Condition).collect();
        let n = if lock.iter().any(Option::is_some) { queues } else { 0 };
        let (younger, returning) = (Lists::new(n), Vec::new());
        Conditions { lock, grouped, younger, older: vec![0; n], signaller: vec![None; n], returning }
    }

    /// How many locks there are.
    pub fn locks(&self) -> usize {
        self.older.len()
    }

    /// `t` ends.
    pub fn ends(&mut self, t: TaskId) {
        self.returning.retain(|r| r.0 != t);
    }

    /// True while somebody has a lock to let go of.
    #[inline(always)]
    pub fn any_returning(&self) -> bool {
        !self.returning.is_empty()
    }

    /// The queue at which `t` waits in the younger group.
    pub fn queue_of(&self, t: TaskId) -> Option<usize> {
        if self.older.is_empty() {
            return None;
        }
        self.younger.list_of(t)
    }
}

impl Engine {
    /// `t`, which runs, is about to send: takes the lock of the queue, if it has one, and sees to
    /// it that there is somebody to signal, where somebody waits. False when it sleeps.
    #[inline(never)]
    pub(super) fn sends_under(&mut self, cpu: Cpu, t: TaskId, queue: usize) -> bool {
        let Some(lock) = self.conditions.lock[queue] else { return true };
        if !self.acquire(cpu, t, lock) {
            return false;
        }
        let c = &mut self.conditions;
        if !c.grouped[queue] || !self.readers.is_empty(queue) || c.younger.is_empty(queue) {
            return true;
        }
        if c.older[queue] > 0 {
            c.signaller[queue] = Some(t);
            self.k.tasks[t.index()].pc -= 1;
            self.block(cpu, t, Sleep::Interruptible);
            return false;
        }
        while let Some(waiter) = c.younger.pop_front(queue) {
            self.readers.push_back(queue, waiter);
            c.older[queue] += 1;
        }
        true
    }

    /// `t` has sent: it lets go of the lock when it returns from the system call.
    pub(super) fn sent_under(&mut self, t: TaskId, queue: usize) {
        if let Some(lock) = self.conditions.lock[queue] {
            self.conditions.returning.push((t, lock));
        }
    }

    /// `t`, which runs on `cpu`, is back from a system call: lets go of a lock that it took for it,
    /// unless it is preempted before. True where that takes time.
    #[inline(never)]
    pub(super) fn returns(&mut self, cpu: Cpu, t: TaskId) -> bool {
        let Some(i) = self.conditions.returning.iter().position(|r| r.0 == t) else { return false };
        if self.k.cpus[cpu].need_resched {
            // It is preempted within the least time: 1 ns of work takes none where a CPU does several.
            let least = self.k.speeds.work(cpu, self.k.now, self.k.now + 1).max(1);
            return !self.begin(cpu, t, least, false);
        }
        let (_, lock) = self.conditions.returning.swap_remove(i);
        self.release(cpu, t, lock);
        false
    }

    /// `t`, which runs, is about to read, `called` where a message woke it. False when it sleeps:
    /// somebody else holds the lock.
    pub(super) fn reads_under(&mut self, cpu: Cpu, t: TaskId, queue: usize, called: bool) -> bool {
        let Some(lock) = self.conditions.lock[queue] else { return true };
        let c = &mut self.conditions;
        if called && c.grouped[queue] {
            c.older[queue] -= 1;
            let goes_on = if c.older[queue] == 0 { c.signaller[queue].take() } else { None };
            if let Some(signaller) = goes_on {
                self.wake(signaller, Wake::Task { waker: t, cpu, sync: false });
            }
        }
        if called {
            self.locks.is_woken(t);
        }
        self.acquire(cpu, t, lock)
    }

    /// `t`, which runs and holds the lock of the queue, if it has one, has taken a message.
    pub(super) fn has_read(&mut self, cpu: Cpu, t: TaskId, queue: usize) {
        if let Some(lock) = self.conditions.lock[queue] {
            self.release(cpu, t, lock);
        }
    }

    /// `t`, which runs, found no message, lets go of the lock, and waits for one.
    pub(super) fn waits_to_read(&mut self, cpu: Cpu, t: TaskId, queue: usize, sleep: Sleep) {
        self.k.tasks[t.index()].pc -= 1;
        self.has_read(cpu, t, queue);
        self.block(cpu, t, sleep);
        self.awaits_message(t, queue);
    }

    /// `t`, which sleeps, waits for a message.
    pub(super) fn awaits_message(&mut self, t: TaskId, queue: usize) {
        if self.conditions.grouped[queue] {
            self.conditions.younger.push_back(queue, t);
        } else {
            self.readers.push_back(queue, t);
        }
    }
}
