//! What tasks do behind each wakeup.

use super::track::Track;
use crate::history::{By, EventKind, History, Off, TaskIndex};
use crate::task::Ns;

/// What a task did from a wakeup to its next sleep.
#[derive(Clone, Debug)]
pub(super) struct Burst {
    pub(super) task: TaskIndex,
    pub(super) wake: Ns,
    /// The task that woke it, and the number of the wakeup.
    pub(super) by: Option<(TaskIndex, u32)>,
    pub(super) end: Ns,
    /// CPU time of the task at its begin and end.
    pub(super) from: Ns,
    pub(super) to: Ns,
    /// Wakeups that it made.
    pub(super) posts: Vec<(Ns, u32)>,
    /// It ends with the task.
    pub(super) ends: bool,
}

impl Burst {
    pub(super) fn run(&self) -> Ns {
        self.to - self.from
    }
}

/// The bursts of a task behind its first wakeup.
pub(super) fn bursts_of(history: &History, track: &Track, id: TaskIndex) -> Vec<Burst> {
    let mut found: Vec<Burst> = Vec::new();
    let mut open: Option<Burst> = None;
    for event in &history.tasks[id as usize].events {
        match event.kind {
            EventKind::Woken { by, .. } => {
                let by = if let By::Task { waker, wake } = by { Some((waker, wake)) } else { None };
                let from = track.pos(event.at);
                open = Some(Burst {
                    task: id,
                    wake: event.at,
                    by,
                    end: history.span,
                    from,
                    to: from,
                    posts: Vec::new(),
                    ends: false,
                });
            }
            EventKind::Post { wake } => {
                if let Some(burst) = &mut open {
                    burst.posts.push((event.at, wake));
                }
            }
            EventKind::Off(Off::Slept { .. } | Off::Ended | Off::Unknown) => {
                if let Some(mut burst) = open.take() {
                    (burst.end, burst.to) = (event.at, track.pos(event.at));
                    burst.ends = event.kind == EventKind::Off(Off::Ended);
                    found.push(burst);
                }
            }
            _ => {}
        }
    }
    if let Some(mut burst) = open {
        burst.to = track.pos(history.span);
        found.push(burst);
    }
    found
}
