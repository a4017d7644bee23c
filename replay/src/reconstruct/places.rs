//! Where tasks were: steps that put a task on the CPU on which it was recorded at the same point of
//! its program.

use super::build::{Builder, Draft};
use super::Note;
use crate::history::{Act, Life, What};
use crate::program::{Program, Start, Step};
use crate::task::{Attrs, CpuSet, Ns};

/// The CPU on which the task runs next.
fn next_cpu(acts: &[Act]) -> Option<i32> {
    acts.iter().find_map(|a| if let What::On { cpu } = a.what { Some(cpu) } else { None })
}

impl Builder<'_> {
    /// The task leaves its CPU behind act `i`, or has come to another: from here on it belongs
    /// where it runs next. A task of a pool is left to the policy: which of the pool does the work
    /// is not a point of its program.
    pub(super) fn place(&self, life: &Life, i: usize, at: Ns, d: &mut Draft) {
        if !self.options.places || self.messages.serves[life.id as usize].is_some() {
            return;
        }
        let Some(cpu) = next_cpu(&life.acts[i..]).filter(|cpu| d.place != Some(*cpu)) else { return };
        let first = d.place.replace(cpu).is_none();
        if !first {
            d.flush(at);
            d.add(Step::Place { cpu: cpu as u32 }, Note::at(at));
        }
    }

    /// The attributes while the task belongs on its CPU.
    pub(super) fn placed(&self, attrs: Attrs, d: &Draft) -> Attrs {
        let cpu = d.place.filter(|_| self.options.places).and_then(|cpu| usize::try_from(cpu).ok());
        match cpu {
            Some(cpu) => Attrs { affinity: CpuSet::of(&[cpu]), ..attrs },
            None => attrs,
        }
    }
}

/// Lets a task begin on the CPU on which it first ran.
pub(super) fn begin(program: &mut Program, life: &Life) {
    let Some(cpu) = next_cpu(&life.acts).and_then(|cpu| usize::try_from(cpu).ok()) else { return };
    program.first.affinity = CpuSet::of(&[cpu]);
    if program.start != Start::Forked {
        program.cpu = Some(cpu);
    }
}
