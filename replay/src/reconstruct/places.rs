//! Where tasks were: steps that put a task on the CPU on which it was recorded at the same point of
//! its program.

use super::build::Builder;
use super::draft::Draft;
use super::{Note, Placement};
use crate::history::{TaskEvent, TaskHistory};
use crate::program::{Program, Start, Step};
use crate::task::{Attrs, CpuSet, Ns};

/// Preemptions of a run, and those while another CPU had nothing to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preemptions {
    /// All.
    pub all: u64,
    /// While another CPU idled.
    pub beside: u64,
}

/// Why tasks are where they were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// In the trace.
    pub recorded: Preemptions,
    /// In a replay as recorded with the policy's placement.
    pub model: Preemptions,
    /// In one with the recorded places.
    pub placed: Preemptions,
}

impl Beside {
    /// What it says, for people.
    pub fn report(&self) -> String {
        let Beside { recorded, model, placed } = self;
        format!(
            "{} of the {} preemptions recorded came while another CPU idled, and {} of {} in a replay \
             with the policy's placement: how this machine places woken tasks is not modelled, so \
             tasks are where they were recorded ({} preemptions)",
            recorded.beside, recorded.all, model.beside, model.all, placed.all
        )
    }
}

/// The CPU on which the task runs next.
fn next_cpu(events: &[TaskEvent]) -> Option<i32> {
    events.iter().find_map(|a| a.kind.cpu())
}

impl Builder<'_> {
    /// The task leaves its CPU behind event `i`, or has come to another: from here on it belongs
    /// where it runs next. A task of a pool is left to the policy: which of the pool does the work
    /// is not a point of its program.
    pub(super) fn place(&self, task: &TaskHistory, i: usize, at: Ns, d: &mut Draft) {
        if self.options.placement != Placement::Trace || self.messages.receives[task.id as usize].is_some() {
            return;
        }
        let Some(cpu) = next_cpu(&task.events[i..]).filter(|cpu| d.place != Some(*cpu)) else { return };
        let first = d.place.replace(cpu).is_none();
        if !first {
            d.flush(at);
            d.add(Step::Place { cpu: cpu as u32 }, Note::at(at));
        }
    }

    /// The attributes while the task belongs on its CPU.
    pub(super) fn placed(&self, attrs: Attrs, d: &Draft) -> Attrs {
        let cpu =
            d.place.filter(|_| self.options.placement == Placement::Trace).and_then(|cpu| usize::try_from(cpu).ok());
        match cpu {
            Some(cpu) => Attrs { affinity: CpuSet::of(&[cpu]), ..attrs },
            None => attrs,
        }
    }
}

/// Lets a task begin on the CPU on which it first ran.
pub(super) fn begin(program: &mut Program, task: &TaskHistory) {
    let Some(cpu) = next_cpu(&task.events).and_then(|cpu| usize::try_from(cpu).ok()) else { return };
    program.first.affinity = CpuSet::of(&[cpu]);
    if program.start != Start::Forked {
        program.cpu = Some(cpu);
    }
}
