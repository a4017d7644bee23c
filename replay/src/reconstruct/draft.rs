//! A program in the making: steps so far, and the work since the last one.

use super::receive::Cut;
use super::Note;
use crate::program::Step;
use crate::speeds::Speeds;
use crate::task::{Attrs, Cpu, Ns};

/// A program in the making.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) steps: Vec<Step>,
    pub(super) notes: Vec<Note>,
    /// Where the work for messages begins, and how many of what no record says is done with.
    pub(super) cuts: Vec<Cut>,
    pub(super) marked: usize,
    /// When its periodic timer expired last.
    pub(super) expiry: Option<Ns>,
    /// How many of its busy waits are done with.
    pub(super) spun: usize,
    /// How many of the questions that it got while it was awake.
    pub(super) asked: usize,
    pub(super) attrs: Vec<Attrs>,
    /// Work done since the last step, and how much of it at the front is in the kernel.
    pub(super) pending: Ns,
    pub(super) kernel: Ns,
    /// From when on the task's own work counts in its current slice.
    pub(super) run_from: Ns,
    pub(super) running: bool,
    pub(super) all_kernel: bool,
    pub(super) begun: Ns,
    pub(super) on_at: Ns,
    /// Kernel priority as far as it changed.
    pub(super) prio: Option<i32>,
    /// Where it belongs.
    pub(super) place: Option<i32>,
    /// The CPU that it is or was on last.
    pub(super) cpu: Cpu,
    pub(super) speeds: Speeds,
}

impl Draft {
    pub(super) fn add(&mut self, step: Step, note: Note) {
        self.steps.push(step);
        self.notes.push(note);
    }

    /// The task does this at `at`, behind the work up to there.
    pub(super) fn does(&mut self, at: Ns, step: Step, note: Note) {
        self.work_until(at, at);
        self.flush(at);
        self.add(step, note);
    }

    /// Work up to `at`; what follows counts from there, or from `resume`.
    pub(super) fn work_until(&mut self, at: Ns, resume: Ns) {
        if self.running {
            self.pending += self.speeds.work(self.cpu, self.run_from, at.max(self.run_from));
            self.run_from = self.run_from.max(at).max(resume);
        }
    }

    /// Forgets the work since the last step.
    pub(super) fn forget(&mut self, at: Ns) {
        self.pending = 0;
        self.kernel = 0;
        self.begun = at;
    }

    /// Turns the work since the last step into steps.
    pub(super) fn flush(&mut self, at: Ns) {
        let in_kernel = if self.all_kernel { self.pending } else { self.kernel.min(self.pending) };
        let note = Note::at(self.begun);
        if in_kernel > 0 {
            self.add(Step::RunKernel { ns: in_kernel }, note);
        }
        if self.pending > in_kernel {
            self.add(Step::Run { ns: self.pending - in_kernel }, note);
        }
        self.pending = 0;
        self.kernel = 0;
        self.begun = at;
    }
}
