//! Locks: who holds them, and who waits.

use super::Engine;
use crate::policy::Wake;
use crate::queue::Lists;
use crate::task::{Cpu, Ns, Sleep, TaskId, TaskState, NEVER};

/// All locks of a run.
pub(super) struct Locks {
    /// Who holds which.
    holder: Vec<Option<TaskId>>,
    /// Who waits for which.
    waiters: Lists,
    /// Whoever one waits for, and how often that one had been put on a CPU when it was not on one.
    awaited: Vec<Option<(TaskId, u64)>>,
    /// Somebody may wait: whoever lets go of it wakes one.
    contended: Vec<bool>,
    /// Tasks that come to a lock because they were woken: they do not know whether others wait.
    woken: Vec<bool>,
    /// How long each task leaves a lock to whoever holds it, where it waits for that.
    rest: Vec<Ns>,
}

impl Locks {
    /// `locks` of them, free, and `tasks` tasks.
    pub fn new(locks: usize, tasks: usize) -> Self {
        let tasks = if locks > 0 { tasks } else { 0 };
        Locks {
            holder: vec![None; locks],
            waiters: Lists::new(locks),
            awaited: vec![None; locks],
            contended: vec![false; locks],
            woken: vec![false; tasks],
            rest: vec![0; tasks],
        }
    }

    /// `t` comes to a lock because it was woken.
    pub fn is_woken(&mut self, t: TaskId) {
        self.woken[t.index()] = true;
    }
}

impl Engine {
    /// `t`, which runs, takes a lock, or sleeps while another one holds it; false when it sleeps.
    pub(super) fn acquire(&mut self, cpu: Cpu, t: TaskId, lock: usize) -> bool {
        let free = self.locks.holder[lock].is_none_or(|holder| holder == t);
        self.locks.contended[lock] |= std::mem::take(&mut self.locks.woken[t.index()]) || !free;
        if free {
            self.locks.holder[lock] = Some(t);
        } else {
            // It looks again when it is woken: another one may have come first.
            self.k.tasks[t.index()].pc -= 1;
            self.block(cpu, t, Sleep::Interruptible);
            self.locks.waiters.push_back(lock, t);
        }
        free
    }

    /// `t`, which runs, lets go of a lock, and wakes who has waited longest. Others may take the lock before
    /// that one runs, and wake nobody until somebody has found it held again: a word that is free, held, or
    /// held while somebody may wait (the second mutex of Drepper, Futexes Are Tricky, which glibc uses).
    pub(super) fn release(&mut self, cpu: Cpu, t: TaskId, lock: usize) {
        if self.locks.holder[lock] == Some(t) {
            self.locks.holder[lock] = None;
            let called = std::mem::take(&mut self.locks.contended[lock]);
            if let Some(waiter) = called.then(|| self.locks.waiters.pop_front(lock)).flatten() {
                self.locks.is_woken(waiter);
                self.wake(waiter, Wake::Task { waker: t, cpu, sync: false });
            }
        }
    }

    /// `t`, which ends, lets go of its locks.
    pub(super) fn leave_locks(&mut self, cpu: Cpu, t: TaskId) {
        if self.k.tasks[t.index()].lets_go > 0 {
            self.lets_go(cpu, t);
        }
        for lock in 0..self.locks.holder.len() {
            self.release(cpu, t, lock);
        }
        self.conditions.ends(t);
    }

    /// `t`, which runs, comes to a lock for which it waits where another one of those that ask for it runs
    /// beside (`ready`: or is ready to run): until that one has run for `ns` more. False when it sleeps.
    pub(super) fn contend(&mut self, cpu: Cpu, t: TaskId, (lock, ns, ready): (usize, Ns, bool)) -> bool {
        let of = |state| self.k.work.locks[lock].iter().copied().find(|o| *o != t && self.k.task(*o).state == state);
        let runs = || of(TaskState::Running).or_else(|| if ready { of(TaskState::Runnable) } else { None });
        // Whoever others wait for holds it, even off its CPU; not so one that was woken and has not come yet.
        let came = |(holder, before): (TaskId, u64)| holder != t && self.k.task(holder).dispatched > before;
        let held = self.locks.awaited[lock].is_some_and(came);
        let holder = if held { None } else { runs() };
        if !held && holder.is_none() {
            return true;
        }
        self.block(cpu, t, Sleep::Interruptible);
        self.locks.rest[t.index()] = ns;
        self.locks.waiters.push_back(lock, t);
        if let Some(holder) = holder.filter(|_| self.locks.awaited[lock].is_none()) {
            self.hold(holder, lock, (ns, false));
        }
        false
    }

    /// `t`, which holds a lock or was woken for it, lets go of it when it has run for `ns` more, or is done
    /// with its run step.
    fn hold(&mut self, t: TaskId, lock: usize, (ns, woken): (Ns, bool)) {
        let task = &mut self.k.tasks[t.index()];
        task.lets_go = lock as u32 + 1;
        let before = if woken { task.dispatched } else { task.dispatched.saturating_sub(1) };
        self.locks.awaited[lock] = Some((t, before));
        if task.state != TaskState::Running {
            let more = task.left.min(ns);
            (task.left, task.after) = (more, if task.left == NEVER { NEVER } else { task.left - more });
            return;
        }
        let cpu = task.cpu;
        let (from, end) = (self.k.now.max(self.k.cpus[cpu].run_from), self.k.slots.segment_end(cpu));
        let soon = from + self.k.speeds.time(cpu, from, ns);
        if self.k.cpus[cpu].serving && soon < end {
            let after = if end == NEVER { NEVER } else { self.k.speeds.work(cpu, soon, end) };
            self.k.tasks[t.index()].after = after;
            self.k.slots.set_segment_end(cpu, soon);
        }
    }

    /// `t`, which runs, has come to the end of a run step, or to where it lets go of a lock: wakes who
    /// waits for that. True where the run step goes on.
    pub(super) fn lets_go(&mut self, cpu: Cpu, t: TaskId) -> bool {
        let task = &mut self.k.tasks[t.index()];
        let lock = std::mem::take(&mut task.lets_go) as usize - 1;
        self.locks.awaited[lock] = None;
        task.left = 0;
        let (after, in_kernel) = (std::mem::take(&mut task.after), task.in_kernel);
        if let Some(waiter) = self.locks.waiters.pop_front(lock) {
            self.wake(waiter, Wake::Task { waker: t, cpu, sync: false });
            if let Some(next) = self.locks.waiters.front(lock) {
                self.hold(waiter, lock, (self.locks.rest[next.index()], true));
            }
        }
        after > 0 && !self.begin(cpu, t, after, in_kernel)
    }
}
