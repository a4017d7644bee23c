//! Barriers: who has come, and how many still come.

use super::Engine;
use crate::policy::Wake;
use crate::queue::Lists;
use crate::task::{Cpu, Sleep, TaskId};

/// All barriers of a run.
pub(super) struct Barriers {
    /// Who waits at which.
    waiters: Lists,
    /// How many come to each; those that have ended do not.
    come: Vec<usize>,
}

impl Barriers {
    /// As they are at the start.
    pub fn of(barriers: &[Vec<TaskId>]) -> Self {
        Barriers { waiters: Lists::new(barriers.len()), come: barriers.iter().map(Vec::len).collect() }
    }

    /// The barrier at which `t` waits.
    pub fn of_waiter(&self, t: TaskId) -> Option<usize> {
        self.waiters.list_of(t)
    }

    /// `t` comes to a barrier: false where it is to wait for others.
    pub fn comes(&mut self, t: TaskId, barrier: usize) -> bool {
        let last = self.waiters.len(barrier) + 1 >= self.come[barrier];
        if !last {
            self.waiters.push_back(barrier, t);
        }
        last
    }
}

impl Engine {
    /// `t`, which runs, comes to a barrier; false when it sleeps there.
    pub(super) fn meet(&mut self, cpu: Cpu, t: TaskId, barrier: usize) -> bool {
        let last = self.barriers.comes(t, barrier);
        if last {
            self.open(cpu, t, barrier);
        } else {
            self.block(cpu, t, Sleep::Interruptible);
        }
        last
    }

    /// `t` wakes all who wait at a barrier, in the order in which they came.
    fn open(&mut self, cpu: Cpu, t: TaskId, barrier: usize) {
        while let Some(other) = self.barriers.waiters.pop_front(barrier) {
            self.wake(other, Wake::Task { waker: t, cpu, sync: false });
        }
    }

    /// Nobody waits any more for `t`, which ends.
    pub(super) fn leave_barriers(&mut self, cpu: Cpu, t: TaskId) {
        for barrier in 0..self.barriers.come.len() {
            if !self.k.work.barriers[barrier].contains(&t) {
                continue;
            }
            self.barriers.come[barrier] -= 1;
            if self.barriers.waiters.len(barrier) >= self.barriers.come[barrier] {
                self.open(cpu, t, barrier);
            }
        }
    }
}
