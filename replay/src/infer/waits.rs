//! Sleeps of tasks that other tasks ended.

use std::collections::BTreeMap;

use crate::history::{By, History, Slept, TaskIndex};
use crate::task::Ns;

use super::WORTH;

/// A sleep that a partner ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// When it fell asleep.
    pub from: Ns,
    /// When the other one woke it.
    pub posted: Ns,
    /// Number of that wakeup.
    pub wake: u32,
}

/// Sleeps by who ended them and who slept.
pub(crate) type Waits = BTreeMap<(TaskIndex, TaskIndex), Vec<Wait>>;

/// True for two of which each ended sleeps of the other: a few may be chance.
pub(crate) fn mutual(waits: &Waits, (one, other): (TaskIndex, TaskIndex)) -> bool {
    let often = |pair| waits.get(&pair).is_some_and(|w| w.len() >= WORTH.0);
    often((one, other)) && often((other, one))
}

/// When each wakeup by a task was made.
pub(super) fn posted(history: &History) -> Vec<Ns> {
    let mut posted = vec![0; history.wakee.len()];
    for task in &history.tasks {
        for event in &task.events {
            if let Some(wake) = event.kind.post() {
                posted[wake as usize] = event.at;
            }
        }
    }
    posted
}

/// The sleeps of each task that another one ended, by both, in order of time.
pub(crate) fn waits(history: &History) -> Waits {
    let posted = posted(history);
    let mut waits = Waits::new();
    for task in &history.tasks {
        for Slept { from, by, .. } in task.sleeps() {
            if let By::Task { waker, wake } = by {
                let wait = Wait { from, posted: posted[wake as usize].max(from), wake };
                waits.entry((waker, task.id)).or_default().push(wait);
            }
        }
    }
    waits
}
