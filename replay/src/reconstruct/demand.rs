//! How much of what each task does is the kernel's work, and how many of its sleeps the trace explains.

use super::Recon;
use crate::program::{Pause, Step};
use crate::task::{Ns, NEVER};

/// Most of a stretch of work that can be the kernel's, for the steps around it.
const KERNEL_PART: Ns = 2_000_000;

/// The demand of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Number of the task.
    pub task: u32,
    /// Its thread.
    pub tid: i64,
    /// Its name.
    pub comm: String,
    /// Work next to a fork, an exec, an exit or a yield, up to 2 ms of each stretch between two
    /// steps that are no work.
    pub kernel: Ns,
    /// All work; what it does before its first sleep is its start-up and left out.
    pub work: Ns,
    /// Some of its work has no end.
    pub endless: bool,
    /// How often it sleeps, on a task, a timer or a device.
    pub sleeps: u32,
    /// Sleeps that something outside ends, which the trace does not say.
    pub unexplained: u32,
}

/// Work between two steps that are none.
#[derive(Default)]
struct Stretch {
    /// How much; none where there is no step of work.
    work: Option<Ns>,
    /// It is behind a step that is no work; and that is one of the kernel's.
    before: Option<bool>,
}

impl Demand {
    /// A stretch ends, with this step or with the program.
    fn end(&mut self, stretch: &Stretch, step: Option<&Step>) {
        let Some(work) = stretch.work else { return };
        let start_up =
            stretch.before.is_none() && step.is_none_or(|s| matches!(s, Step::Pause { .. } | Step::Wait { .. }));
        if start_up {
            return;
        }
        if stretch.before == Some(true) || step.is_some_and(of_kernel) {
            self.kernel += work.min(KERNEL_PART);
        }
        self.work += work;
    }

    fn step(&mut self, stretch: &mut Stretch, step: &Step) {
        match step {
            Step::Run { ns } | Step::RunKernel { ns } => {
                self.endless |= *ns == NEVER;
                *stretch.work.get_or_insert(0) += if *ns == NEVER { 0 } else { *ns };
                return;
            }
            // Most come to a lock that was free: nothing was called.
            Step::Contend { .. } => return,
            Step::Pause { pause, .. } => {
                self.sleeps += 1;
                self.unexplained += u32::from(matches!(pause, Pause::External { .. }));
            }
            Step::Wait { .. } => self.sleeps += 1,
            _ => {}
        }
        self.end(stretch, Some(step));
        *stretch = Stretch { work: None, before: Some(of_kernel(step)) };
    }
}

/// What the kernel does for a task, and takes long there.
fn of_kernel(step: &Step) -> bool {
    matches!(step, Step::Fork { .. } | Step::Exec | Step::Exiting | Step::Exit | Step::Yield)
}

impl Recon {
    /// The demand of each task that does anything.
    pub fn demands(&self) -> Vec<Demand> {
        let of_task = self.handlers_of_tasks();
        let mut found = Vec::new();
        for (t, program) in self.work.tasks.iter().enumerate() {
            let mut demand =
                Demand { task: t as u32, tid: program.tid, comm: program.comm.clone(), ..Demand::default() };
            let mut stretch = Stretch::default();
            let handlers = of_task[t].iter().flat_map(|j| &self.work.handlers[*j]);
            let mut steps = program.steps.iter().take(self.notes.get(t).map_or(0, Vec::len)).chain(handlers).peekable();
            if steps.peek().is_none() {
                continue;
            }
            steps.for_each(|step| demand.step(&mut stretch, step));
            demand.end(&stretch, None);
            found.push(demand);
        }
        found
    }
}
