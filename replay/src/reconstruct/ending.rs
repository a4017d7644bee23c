//! How programs end: by an exit, never, or where the trace was cut off.

use super::build::{Builder, Verdict};
use super::draft::Draft;
use super::{Evidence, Note};
use crate::history::{EventKind, Off, TaskHistory};
use crate::program::Step;
use crate::task::{Ns, Sleep, TaskId, NEVER};

impl Builder<'_> {
    /// What comes behind the last thing recorded.
    pub(super) fn close(&mut self, task: &TaskHistory, verdict: Verdict, slept: Option<(Ns, bool)>, d: &mut Draft) {
        let end = self.history.span;
        if verdict.endless {
            d.pending = 0;
            d.add(Step::Run { ns: NEVER }, Note::at(d.begun).because(Evidence::Endless));
            return;
        }
        if let Some((from, deep)) = slept {
            let sleep = if deep { Sleep::Uninterruptible } else { Sleep::Interruptible };
            if verdict.loops {
                self.go_round(d);
                return;
            }
            if !d.cuts.is_empty() {
                // It waits for the next message.
                return;
            }
            let sem = self.new_sem();
            d.add(Step::Wait { sem, sleep }, Note::at(from).because(Evidence::Censored));
            return;
        }
        if d.running {
            d.work_until(end, end);
        }
        if verdict.loops && self.go_round(d) {
            return;
        }
        let id = task.id as usize;
        d.flush(end);
        if task.ended().is_some() {
            if let Some(sem) = self.sem_of_exit[id] {
                d.add(Step::Post { sem, sync: false }, Note::at(end).because(Evidence::Reaped));
            }
            d.add(Step::Exit, Note::at(end));
        } else if d.steps.is_empty() || d.running || !matches!(d.steps.last(), Some(Step::Wait { .. })) {
            self.still_runnable(task, end, d);
        }
    }

    /// The task could run when the trace ended.
    fn still_runnable(&mut self, task: &TaskHistory, end: Ns, d: &mut Draft) {
        let note = Note::at(end).because(Evidence::Censored);
        let gives_way = d.steps.iter().any(|s| matches!(s, Step::Spin { .. } | Step::Yield));
        let long = !gives_way && super::verdict::is_cut_off_long(task, end);
        let Some(rest) = rest_of_burst(task, end, long) else {
            d.add(Step::Run { ns: NEVER }, note);
            return;
        };
        if rest > 0 {
            d.add(Step::Run { ns: rest }, note);
        } else {
            self.starved.push(TaskId(task.id));
        }
        let sem = self.new_sem();
        d.add(Step::Wait { sem, sleep: Sleep::Interruptible }, note);
    }

    /// Ends a program that goes on until the recorded run was stopped: back to behind its first sleep.
    fn go_round(&self, d: &mut Draft) -> bool {
        while let Some(Step::Exiting | Step::RunKernel { .. } | Step::Run { .. }) = d.steps.last() {
            d.steps.pop();
            d.notes.pop();
        }
        let Some(mut first) = d.steps.iter().position(|s| matches!(s, Step::Pause { .. })) else { return false };
        if matches!(d.steps.last(), Some(Step::Pause { .. })) {
            first += 1;
        }
        let body = &d.steps[first..];
        let takes_time = body.iter().any(|s| matches!(s, Step::Run { ns } if *ns > 0));
        if !takes_time || body.iter().any(|s| matches!(s, Step::Fork { .. })) {
            return false;
        }
        d.add(Step::LoopUntil { step: first as u32, until: self.stop }, Note::at(self.stop).because(Evidence::Looped));
        d.add(Step::Exit, Note::at(self.stop));
        true
    }
}

/// What is left of the burst in which a task is when the trace ends at `end`: as much again, since
/// of what was met at a random moment, half lasts for longer than that (J. R. Gott, Nature 363,
/// 1993); nothing where it did not run at all. No end is known where the burst fills much of the
/// trace and the task does not yield (`long`).
fn rest_of_burst(task: &TaskHistory, end: Ns, long: bool) -> Option<Ns> {
    let burst = task.slices(end).fold(0, |burst, slice| match slice.off {
        Off::Slept { .. } => 0,
        _ => burst + slice.to - slice.on,
    });
    (burst == 0 || !long).then_some(burst)
}

/// When the last burst of a task begins to end: its exit, or the end of what is known.
pub(super) fn end_of_last_burst(task: &TaskHistory) -> Ns {
    task.events.iter().rev().find(|a| a.kind == EventKind::Exiting).or(task.events.last()).map_or(0, |a| a.at)
}
