//! Programs as a table.

use tracekit_schema::tables::ProgramTable;
use tracekit_schema::Strings;

use super::{Evidence, Recon};
use crate::program::{Pause, Step};
use crate::task::{Ns, NEVER};

/// Name of a step, what ends it where it is a sleep, and its length.
fn describe(step: Step) -> (&'static str, Option<&'static str>, Option<Ns>) {
    match step {
        Step::Run { ns } => ("run", None, Some(ns)),
        Step::RunKernel { ns } => ("run_kernel", None, Some(ns)),
        Step::Pause { pause, .. } => match pause {
            Pause::Timer { ns, .. } => ("sleep", Some("timer"), Some(ns)),
            Pause::Period { ns, .. } => ("sleep", Some("period"), Some(ns)),
            Pause::Ticks { ns, .. } => ("sleep", Some("ticks"), Some(ns)),
            Pause::Io { ns } => ("sleep", Some("io"), Some(ns)),
            Pause::External { ns } => ("sleep", Some("external"), Some(ns)),
            Pause::At { .. } => ("sleep", Some("absolute"), None),
        },
        Step::Wait { .. } => ("wait", Some("dependency"), None),
        Step::Post { .. } => ("post", None, None),
        Step::Send { .. } => ("send", None, None),
        Step::Receive { .. } => ("receive", Some("message"), None),
        Step::Put { .. } => ("put", Some("dependency"), None),
        Step::Take { .. } => ("take", Some("dependency"), None),
        Step::Acquire { .. } => ("acquire", Some("dependency"), None),
        Step::Release { .. } => ("release", None, None),
        Step::Contend { ns, .. } => ("contend", Some("dependency"), Some(ns)),
        Step::Barrier { .. } => ("barrier", Some("dependency"), None),
        Step::Yield => ("yield", None, None),
        Step::Spin { ns, .. } => ("spin", Some("dependency"), Some(ns)),
        Step::Fork { .. } => ("fork", None, None),
        Step::Exec => ("exec", None, None),
        Step::SetAttrs { .. } => ("attrs", None, None),
        Step::Place { .. } => ("place", None, None),
        Step::Exiting => ("exiting", None, None),
        Step::Exit => ("exit", None, None),
        Step::Goto { .. } | Step::LoopUntil { .. } => ("loop", None, None),
    }
}

impl Recon {
    /// The numbers of the handlers that each task ran.
    pub(super) fn handlers_of_tasks(&self) -> Vec<Vec<usize>> {
        let mut of_task = vec![Vec::new(); self.work.tasks.len()];
        for (j, (task, _)) in self.handlers.iter().enumerate() {
            of_task[*task as usize].push(j);
        }
        of_task
    }

    /// The programs as a table; its strings go to `strings`.
    pub fn table(&self, strings: &mut Strings) -> ProgramTable {
        let mut table = ProgramTable::default();
        let of_task = self.handlers_of_tasks();
        for (t, (program, notes)) in self.work.tasks.iter().zip(&self.notes).enumerate() {
            let comm = Some(&program.comm).filter(|name| !name.is_empty()).map(|name| strings.intern(name.as_bytes()));
            // Behind its own steps, the work that it did for messages.
            let handlers = of_task[t].iter().flat_map(|j| self.work.handlers[*j].iter().zip(&self.handlers[*j].1));
            for (i, (&step, note)) in program.steps.iter().zip(notes).chain(handlers).enumerate() {
                let (op, ends_by, ns) = describe(step);
                let op = strings.intern(op.as_bytes());
                let ends_by = ends_by.map(|e| strings.intern(e.as_bytes()));
                let evidence = strings.intern(Evidence::NAMES[note.evidence as usize].as_bytes());
                let sem = match step {
                    Step::Wait { sem, .. } | Step::Post { sem, .. } | Step::Spin { sem, .. } => Some(sem.0),
                    _ => None,
                };
                let until = match step {
                    Step::LoopUntil { until, .. } => Some(until),
                    Step::Pause { pause: Pause::At { at }, .. } => Some(at),
                    _ => None,
                };
                let slack = match step {
                    Step::Pause { pause: Pause::Timer { slack, .. } | Pause::Period { slack, .. }, .. } => {
                        Some(i64::from(slack))
                    }
                    _ => None,
                };
                let mut row = table.push();
                row.task(t as u32).tid(program.tid).pid(program.pid).comm(comm).step(i as u32).op(op);
                row.dur_ns(ns.filter(|n| *n != NEVER)).ends_by(ends_by).until_ns(until).slack_ns(slack);
                row.partner_tid(note.partner).sem(sem).evidence(evidence);
                row.ts_ns(self.start + note.at).censored(note.evidence == Evidence::Censored);
            }
        }
        table
    }
}
