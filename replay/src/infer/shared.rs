//! What tasks share besides messages, taken over and taken back: buffers, locks, barriers.

use std::collections::HashSet;

use super::buffers::Pipes;
use super::groups::unsearched;
use super::locks::Attempt;
use super::waits::Waits;
use super::{barriers, locks, Mark, Messages, Outcome, Track};
use crate::calibrate::Overheads;
use crate::history::{History, TaskIndex};
use crate::task::{Ns, TaskId};

impl Messages {
    /// Takes over buffers, and the groups whose tasks all pass data on through them.
    pub(super) fn take_buffers(&mut self, pipes: Pipes) {
        for group in &mut self.found.groups {
            let open = matches!(group.outcome, Outcome::Unexplained | Outcome::TooLarge);
            if open && pipes.join(&group.tasks) {
                group.outcome = Outcome::Buffered;
            }
        }
        self.add_buffers(pipes);
    }

    /// Takes over buffers; they get numbers behind those so far.
    pub(super) fn add_buffers(&mut self, pipes: Pipes) {
        let before = self.buffers.len() as u32;
        let renumbered = |(at, mark): (Ns, Mark)| match mark {
            Mark::Put(buffer) => (at, Mark::Put(before + buffer)),
            Mark::Get(buffer) => (at, Mark::Get(before + buffer)),
            other => (at, other),
        };
        for (task, marks) in pipes.marks {
            self.marks[task as usize].extend(marks.into_iter().map(renumbered));
            self.marks[task as usize].sort_by_key(|m| m.0);
        }
        self.buffers.extend(pipes.found);
        self.explained.extend(pipes.wakes);
    }

    /// True for a task that comes to a lock.
    pub(crate) fn shares_lock(&self, task: TaskIndex) -> bool {
        self.marks[task as usize].iter().any(|m| matches!(m.1, Mark::Attempt(_)))
    }

    pub(crate) fn uses_buffer(&self, task: TaskIndex) -> bool {
        self.marks[task as usize].iter().any(|m| matches!(m.1, Mark::Put(_) | Mark::Get(_)))
    }

    /// The tasks whose waits for each other may be for buffers or locks: those of which no message
    /// is known.
    pub(super) fn open(&self) -> HashSet<TaskIndex> {
        (0..self.inside.len() as TaskIndex).filter(|t| !self.inside[*t as usize] && self.is_open(*t)).collect()
    }

    /// True for a task that has to do with no buffer, lock or barrier.
    pub(super) fn is_open(&self, task: TaskIndex) -> bool {
        let messages = |mark: &Mark| matches!(mark, Mark::Take(_) | Mark::Send(_));
        self.marks[task as usize].iter().all(|m| messages(&m.1))
    }

    /// True for a task that comes to a barrier.
    pub(crate) fn meets(&self, task: TaskIndex) -> bool {
        self.marks[task as usize].iter().any(|m| matches!(m.1, Mark::Barrier(_)))
    }

    /// Finds barriers, and makes groups of who comes to them.
    pub(super) fn find_barriers(&mut self, history: &History, waits: &Waits) {
        for barrier in barriers::find(history, waits, &self.open()) {
            let number = self.barriers.len() as u32;
            let members: Vec<TaskIndex> = barrier.comes.iter().map(|of| of.0).collect();
            self.found.groups.push(unsearched(members.clone(), Outcome::Barrier));
            self.barriers.push(members.into_iter().map(TaskId).collect());
            self.explained.extend(barrier.wakes);
            for (task, comes) in barrier.comes {
                let marks = &mut self.marks[task as usize];
                marks.extend(comes.into_iter().map(|at| (at, Mark::Barrier(number))));
                marks.sort_by_key(|m| m.0);
            }
        }
    }

    /// Finds the locks that at least so many tasks share.
    pub(super) fn find_locks(&mut self, costs: (&[Track], &Overheads), seen: (&History, &Waits), least: usize) {
        for lock in locks::find(costs, seen, &self.open(), least) {
            let number = self.locks.len() as u32;
            self.locks.push(lock.attempts.iter().map(|of| TaskId(of.0)).collect());
            self.explained.extend(lock.wakes);
            for (task, attempts) in lock.attempts {
                let marks = &mut self.marks[task as usize];
                marks.extend(attempts.into_iter().map(|a| (a.at, Mark::Attempt(Attempt { lock: number, ..a }))));
                marks.sort_by_key(|m| m.0);
            }
        }
    }

    /// The groups whose tasks all share a lock.
    pub(super) fn take_locks(&mut self) {
        for lock in &self.locks {
            let members: Vec<u32> = lock.iter().map(|t| t.0).collect();
            let mut known = false;
            for group in &mut self.found.groups {
                known |= group.tasks.iter().any(|t| members.contains(t));
                if group.tasks.iter().all(|t| members.contains(t)) {
                    group.outcome = Outcome::Locked;
                }
            }
            if !known {
                self.found.groups.push(unsearched(members, Outcome::Locked));
            }
        }
    }

    /// Takes back what explains a group: its wakeups keep their recorded causes. A lock that fewer than two
    /// others come to is none, either.
    pub(crate) fn forget(&mut self, history: &History, group: usize) {
        let Some(group) = self.found.groups.get_mut(group) else { return };
        // What a hub was asked while it was awake stays known.
        (group.outcome, group.unexplained) = match group.outcome {
            Outcome::Hub => (Outcome::Unexplained, group.unobserved),
            _ => (Outcome::Worse, group.unexplained),
        };
        self.found.resolved = false;
        let mut gone: HashSet<TaskIndex> = group.tasks.iter().copied().collect();
        for lock in &mut self.locks {
            lock.retain(|task| !gone.contains(&task.0));
            if lock.len() < 2 {
                gone.extend(lock.drain(..).map(|task| task.0));
            }
        }
        for &task in &gone {
            let i = task as usize;
            self.marks[i].retain(|m| matches!(m.1, Mark::Put(_) | Mark::Get(_)));
            (self.inside[i], self.receives[i]) = (false, None);
        }
        self.barriers.iter_mut().for_each(|barrier| barrier.retain(|task| !gone.contains(&task.0)));
        let mut left = 0..;
        let numbers: Vec<u32> =
            self.locks.iter().map(|lock| if lock.is_empty() { 0 } else { left.next().unwrap_or(0) }).collect();
        for mark in self.marks.iter_mut().flatten() {
            if let Mark::Attempt(attempt) = &mut mark.1 {
                attempt.lock = numbers[attempt.lock as usize];
            }
        }
        self.locks.retain(|lock| !lock.is_empty());
        let marks = &self.marks;
        self.explained.retain(|wake| {
            let task = history.wakee[*wake as usize];
            !gone.contains(&task) || !marks[task as usize].is_empty()
        });
        let inside = &self.inside;
        let kept = |wake: u32| inside[history.wakee[wake as usize] as usize];
        self.of_wake.retain(|wake, _| kept(*wake));
        self.woken_at.retain(|wake, _| kept(*wake));
        if !inside.contains(&true) {
            self.sent.clear();
            self.calls.clear();
            self.queues = 0;
        }
    }
}
