//! A workload text in place of a recording: what a reconstruction finds, the text states.

use super::Scenario;
use crate::calibrate::TickSource;
use crate::program::{Pause, Program, Start, Step};
use crate::reconstruct::{Class, Evidence, Note, Overheads, Recon, Stated, Verdict};
use crate::task::{Ns, NEVER};

impl Scenario {
    /// The programs, to be run under any policy as those of a trace are.
    pub fn programs(&self) -> Recon {
        let work = &self.work;
        let stated = |steps: &[Step]| -> Vec<Note> {
            steps.iter().map(|_| Note { evidence: Evidence::Stated, ..Note::default() }).collect()
        };
        let doers = work.doers();
        let handlers = work.handlers.iter().enumerate();
        let notes = work.tasks.iter().map(|p| stated(&p.steps)).collect();
        let handlers = handlers.map(|(j, steps)| (doers[j].map_or(0, |(t, _)| t as u32), stated(steps))).collect();
        let mut classes = [0; Class::COUNT];
        for (_, steps) in work.bodies() {
            steps.iter().filter_map(class_of).for_each(|class| classes[class as usize] += 1);
        }
        Recon {
            work: work.clone(),
            notes,
            handlers,
            verdicts: work.tasks.iter().map(verdict).collect(),
            overheads: Overheads {
                hz: self.machine.hz,
                phase: if self.machine.tick_phase.is_empty() { vec![0] } else { self.machine.tick_phase.clone() },
                tick_source: TickSource::Stated,
                ..Overheads::default()
            },
            slack: work.tasks.iter().map(slack).collect(),
            classes,
            span: self.span(),
            cpus: (0..self.machine.cpus as i32).collect(),
            speeds: self.machine.speeds.clone(),
            rates: self.rates.clone(),
            preempt_kernel: self.machine.preempt_kernel,
            until: self.machine.until,
            stop: self.machine.until,
            stated: Some(Box::new(Stated { machine: self.machine.clone(), rt: self.rt.as_ref().map(|rt| rt.show()) })),
            ..Recon::default()
        }
    }

    /// How long it lasts at most, as far as the text says: its end, or else all that its tasks do,
    /// one after another.
    fn span(&self) -> Ns {
        if self.machine.until < NEVER {
            return self.machine.until;
        }
        let starts = self.work.tasks.iter().map(|p| match p.start {
            Start::At(at) | Start::Asleep(at) => at,
            Start::Forked => 0,
        });
        let steps = self.work.bodies().flat_map(|(_, steps)| steps.iter().map(length));
        starts.max().unwrap_or(0).saturating_add(steps.fold(0, Ns::saturating_add))
    }
}

fn length(step: &Step) -> Ns {
    match *step {
        Step::Run { ns } | Step::RunKernel { ns } => ns,
        Step::Pause { pause: Pause::Timer { ns, .. } | Pause::Period { ns, .. } | Pause::Ticks { ns, .. }, .. } => ns,
        Step::Pause { pause: Pause::Io { ns } | Pause::External { ns }, .. } => ns,
        _ => 0,
    }
}

fn class_of(step: &Step) -> Option<Class> {
    match step {
        Step::Wait { .. } | Step::Receive { .. } => Some(Class::Dependency),
        Step::Pause { pause, .. } => Some(match pause {
            Pause::Timer { .. } | Pause::Period { .. } => Class::Timer,
            Pause::Ticks { .. } => Class::Tick,
            Pause::Io { .. } => Class::Io,
            Pause::At { .. } | Pause::External { .. } => Class::External,
        }),
        _ => None,
    }
}

fn verdict(program: &Program) -> Verdict {
    let endless = program.steps.iter().any(|s| matches!(s, Step::Run { ns: NEVER }));
    let loops = program.steps.iter().any(|s| matches!(s, Step::Goto { .. }));
    Verdict { endless, loops: loops && !endless, essential: !endless && !loops }
}

/// Slack of its timers, and the length of its sleeps where that is always the same.
fn slack(program: &Program) -> (Ns, Option<Ns>) {
    let timers = program.steps.iter().filter_map(|s| match *s {
        Step::Pause { pause: Pause::Timer { ns, slack } | Pause::Period { ns, slack, .. }, .. } => {
            Some((ns, Ns::from(slack)))
        }
        _ => None,
    });
    let timers: Vec<(Ns, Ns)> = timers.collect();
    let slack = timers.iter().map(|t| t.1).max().unwrap_or(0);
    let same = timers.first().map(|t| t.0).filter(|ns| timers.iter().all(|t| t.0 == *ns));
    (slack, same)
}
