//! What is odd about the choices of a policy of one's own: a task that it has lost, one that it starves.
//! And a run that makes more records than memory should hold.

use super::{Engine, EngineError};
use crate::task::{Ns, TaskId, TaskState, NEVER};

/// So long a task may be ready on a CPU that is idle before it is taken for lost. Bandwidth limits
/// idle for less than a period, and Linux takes no period above a second (`max_cfs_quota_period`).
const LOST: Ns = 1_000_000_000;

/// A wait as long as this is reported. It changes no result; ten times the default quantum of round robin.
const STARVED: Ns = 1_000_000_000;

/// What is watched, where the policy is not one of the registry.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watch {
    on: bool,
    /// The longest wait for a CPU: how long, who, since when.
    longest: (Ns, u32, Ns),
    /// Waits of at least [`STARVED`].
    starved: u64,
}

impl Watch {
    pub fn new(on: bool) -> Self {
        Watch { on, ..Watch::default() }
    }

    /// `t` has waited from `since` to `until`.
    #[inline]
    pub fn waited(&mut self, t: TaskId, since: Ns, until: Ns) {
        if self.on && until - since >= STARVED {
            self.starved += 1;
            if until - since > self.longest.0 {
                self.longest = (until - since, t.0, since);
            }
        }
    }
}

fn seconds(ns: Ns) -> f64 {
    ns as f64 / 1e9
}

impl Engine {
    /// Why a run is given up that makes ever more records.
    #[cold]
    pub(super) fn too_long(&self) -> EngineError {
        EngineError(format!(
            "{} records by {:.3} s, more than the {} that this run may keep in memory: tasks compete \
            for CPUs for very long, or switch very often. Where a recording pauses for long (`silence` \
            in `tracekit info`), who was on a CPU counts as running: replay a part, with --from and --to",
            self.k.log.recs.len(),
            seconds(self.k.now),
            self.most_records,
        ))
    }

    /// Ends the run with an error when a task is ready on a CPU that has been idle for long beside it.
    pub(super) fn look_for_lost(&mut self, longest: Ns) {
        if !self.watch.on || self.k.failed.is_some() {
            return;
        }
        let now = self.k.now;
        for (i, task) in self.k.tasks.iter().enumerate() {
            let cpu = &self.k.cpus[task.cpu];
            let idle = cpu.idle && cpu.curr.is_none();
            let since = task.since.max(cpu.idle_since);
            if task.state == TaskState::Runnable && idle && now - since >= longest {
                let name = self.k.name(TaskId(i as u32));
                let message = format!(
                    "{name} has been ready since {:.6} s on CPU {}, which has been idle since {:.6} \
                     s: `dispatch` does not give it out; has the policy lost it?",
                    seconds(task.since),
                    task.cpu,
                    seconds(cpu.idle_since)
                );
                return self.k.fail(message);
            }
        }
    }

    /// The same at the end of a run. Where nothing more would happen, any task that is still ready is lost.
    pub(super) fn lost_at_the_end(&mut self, end: Ns) {
        self.k.now = self.k.now.max(end);
        self.look_for_lost(if self.until == NEVER { 0 } else { LOST.min(end / 2).max(1) });
    }

    pub(super) fn look_for_lost_now(&mut self) {
        self.look_for_lost(LOST);
    }

    /// What a reader of the run must know of its waits.
    pub(super) fn starvation(&mut self) -> Option<String> {
        let end = self.k.now;
        for i in 0..self.k.tasks.len() {
            let task = &self.k.tasks[i];
            if task.state == TaskState::Runnable {
                self.watch.waited(TaskId(i as u32), task.since, end);
            }
        }
        let (wait, t, since) = self.watch.longest;
        (self.watch.starved > 0).then(|| {
            format!(
                "starvation: {} was ready at {:.6} s and did not run for {:.3} s, the longest of {} \
                waits of a second or more",
                self.k.name(TaskId(t)),
                seconds(since),
                seconds(wait),
                self.watch.starved
            )
        })
    }
}
