//! Which wakeup or exit each wait of a task waits for.

use std::collections::BTreeSet;

use super::build::Builder;
use super::LoopMode;
use crate::history::{By, EventKind, Off, TaskEvent, TaskHistory, TaskIndex};
use crate::program::SemId;
use crate::task::{Ns, NEVER};

impl Builder<'_> {
    /// Gives a semaphore to every wakeup that a task waits for, and to every exit that is reaped
    /// without sleeping.
    pub(super) fn find_semaphores(&mut self) {
        if self.options.mode != LoopMode::Dependency {
            return;
        }
        for task in &self.history.tasks {
            let mut children = Children::default();
            for (i, event) in task.events.iter().enumerate() {
                match event.kind {
                    EventKind::Woken { by: By::Task { wake, waker }, .. } => {
                        // An endless task never reaches what it did when it was stopped.
                        let after_end = self.verdicts[waker as usize].endless && event.at >= self.stop;
                        if !after_end {
                            let sem = self.sem_from(waker, task.id);
                            self.sem_of_wake[wake as usize] = Some(sem);
                        }
                        // A child is reaped once: whether the parent slept for its end or found it.
                        if children.waits {
                            children.by_end.remove(&by_end(&self.history.tasks[waker as usize]));
                        }
                    }
                    EventKind::Fork { child, .. } => {
                        children.by_end.insert(by_end(&self.history.tasks[child as usize]));
                    }
                    EventKind::WaitCall { tid } => {
                        children.waits = sleeps_next(&task.events[i + 1..]);
                        if children.waits {
                            continue;
                        }
                        if let Some(child) = children.ended(&self.history.tasks, tid, event.at) {
                            children.by_end.remove(&by_end(&self.history.tasks[child as usize]));
                            let sem = self.new_sem();
                            self.sem_of_exit[child as usize] = Some(sem);
                            self.reaps.insert((task.id, i), child);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// The semaphore of one wakeup. Whichever member of a pool does the work, it wakes who waits for what
    /// comes of it: all of a pool post the same.
    fn sem_from(&mut self, waker: TaskIndex, wakee: TaskIndex) -> SemId {
        let of = |task: TaskIndex| self.messages.receives[task as usize];
        let pool = of(waker).filter(|queue| self.readers[*queue as usize] > 1 && of(wakee).is_none());
        let Some(pool) = pool else { return self.new_sem() };
        if let Some(sem) = self.sem_of_pool.get(&(pool, wakee)) {
            return *sem;
        }
        let sem = self.new_sem();
        self.sem_of_pool.insert((pool, wakee), sem);
        sem
    }
}

/// Children of a task that nobody has reaped yet.
#[derive(Default)]
struct Children {
    /// By the time of their end, which is `NEVER` for those that live on.
    by_end: BTreeSet<(Ns, TaskIndex)>,
    /// The task sleeps in a wait call.
    waits: bool,
}

/// A child and its end, as they are sorted.
fn by_end(child: &TaskHistory) -> (Ns, TaskIndex) {
    (child.ended().unwrap_or(NEVER), child.id)
}

impl Children {
    /// The first child to end of those that had ended at `at` and that a wait for `tid` (0 for any) takes.
    fn ended(&self, tasks: &[TaskHistory], tid: i64, at: Ns) -> Option<TaskIndex> {
        let fits = |c: &TaskIndex| tid <= 0 || tasks[*c as usize].tid == tid;
        self.by_end.range(..=(at, TaskIndex::MAX)).map(|(_, child)| *child).find(fits)
    }
}

/// True when the next thing that a task does is to sleep.
fn sleeps_next(after: &[TaskEvent]) -> bool {
    let goes_on = |kind: &EventKind| {
        matches!(
            kind,
            EventKind::Tick | EventKind::Irq { .. } | EventKind::On { .. } | EventKind::Off(Off::Preempted { .. })
        )
    };
    let next = after.iter().map(|event| event.kind).find(|kind| !goes_on(kind));
    matches!(next, Some(EventKind::Off(Off::Slept { .. })))
}
