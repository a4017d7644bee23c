//! Sleeps of tasks that other tasks ended.

use std::collections::BTreeMap;

use crate::history::{By, EventKind, History, Off, TaskIndex};
use crate::task::Ns;

/// A sleep that a partner ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    /// When it fell asleep.
    pub from: Ns,
    /// When the other one woke it.
    pub posted: Ns,
    /// Number of that wakeup.
    pub wake: u32,
}

/// Sleeps by who ended them and who slept.
pub(super) type Waits = BTreeMap<(TaskIndex, TaskIndex), Vec<Wait>>;

/// The sleeps of each task that another one ended, by both, in order of time.
pub(super) fn waits(history: &History) -> Waits {
    let mut posted = vec![0; history.wakee.len()];
    for task in &history.tasks {
        for event in &task.events {
            if let EventKind::Post { wake } = event.kind {
                posted[wake as usize] = event.at;
            }
        }
    }
    let mut waits = Waits::new();
    for task in &history.tasks {
        let mut slept = None;
        for event in &task.events {
            match event.kind {
                EventKind::Off(Off::Slept { .. }) => slept = Some(event.at),
                EventKind::Woken { by: By::Task { waker, wake }, .. } => {
                    if let Some(from) = slept.take() {
                        let wait = Wait { from, posted: posted[wake as usize].max(from), wake };
                        waits.entry((waker, task.id)).or_default().push(wait);
                    }
                }
                EventKind::Woken { .. } | EventKind::On { .. } => slept = None,
                _ => {}
            }
        }
    }
    waits
}
