//! Which wakeup or exit each wait of a task waits for.

use std::collections::{BTreeSet, HashMap};

use super::build::Builder;
use super::LoopMode;
use crate::history::{Act, By, Life, LifeId, Off, What};
use crate::task::{Ns, NEVER};

impl Builder<'_> {
    /// Gives a semaphore to every wakeup that a task waits for, and to every exit that is reaped
    /// without sleeping.
    pub(super) fn find_semaphores(&mut self) {
        if self.options.mode != LoopMode::Dependency {
            return;
        }
        for life in &self.history.lives {
            let mut children = Children::default();
            for (i, act) in life.acts.iter().enumerate() {
                match act.what {
                    What::Woken { by: By::Task { wake, waker }, .. } => {
                        // An endless task never reaches what it did when it was stopped.
                        let after_end = self.verdicts[waker as usize].endless && act.at >= self.stop;
                        if !after_end {
                            let sem = self.new_sem();
                            self.sem_of_wake[wake as usize] = Some(sem);
                        }
                        if children.waits {
                            children.reap(waker);
                        }
                    }
                    What::Fork { child, .. } => children.add(&self.history.lives[child as usize]),
                    What::WaitCall { tid } => {
                        children.waits = sleeps_next(&life.acts[i + 1..]);
                        if children.waits {
                            continue;
                        }
                        if let Some(child) = children.ended(&self.history.lives, tid, act.at) {
                            children.reap(child);
                            let sem = self.new_sem();
                            self.sem_of_exit[child as usize] = Some(sem);
                            self.reaps.insert((life.id, i), child);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Children of a task that nobody has reaped yet.
#[derive(Default)]
struct Children {
    /// By the time of their end, which is `NEVER` for those that live on.
    by_end: BTreeSet<(Ns, LifeId)>,
    end: HashMap<LifeId, Ns>,
    /// The task sleeps in a wait call.
    waits: bool,
}

impl Children {
    fn add(&mut self, child: &Life) {
        let end = end_of(child).unwrap_or(NEVER);
        self.by_end.insert((end, child.id));
        self.end.insert(child.id, end);
    }

    /// A child is reaped once: whether the parent slept for its end or found it.
    fn reap(&mut self, child: LifeId) {
        if let Some(end) = self.end.remove(&child) {
            self.by_end.remove(&(end, child));
        }
    }

    /// The first child to end of those that had ended at `at` and that a wait for `tid` (0 for any) takes.
    fn ended(&self, lives: &[Life], tid: i64, at: Ns) -> Option<LifeId> {
        let fits = |c: &LifeId| tid <= 0 || lives[*c as usize].tid == tid;
        self.by_end.range(..=(at, LifeId::MAX)).map(|(_, child)| *child).find(fits)
    }
}

/// When a life ended.
fn end_of(life: &Life) -> Option<Ns> {
    life.acts.last().filter(|a| a.what == What::Off(Off::Ended)).map(|a| a.at)
}

/// True when the next thing that a task does is to sleep.
fn sleeps_next(after: &[Act]) -> bool {
    for act in after {
        match act.what {
            What::Off(Off::Slept { .. }) => return true,
            What::Tick | What::Irq { .. } | What::On { .. } | What::Off(Off::Preempted { .. }) => {}
            _ => return false,
        }
    }
    false
}
