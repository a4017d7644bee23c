//! Where woken tasks go is left to the policy where that is what the recorded machine did.
//!
//! A policy's placement looks for an idle CPU. Machines of which too little is known (placement that
//! saves energy, caches that no description names) leave a woken task on its busy CPU, where it
//! preempts. So the sign is a preemption while another CPU idles. Where most of the recorded ones are
//! of this kind and are missing in a replay as recorded, by more than chance, and most of the missing
//! ones come back with every task where it was recorded, that is where tasks are.

use std::collections::BTreeMap;

use tracekit_schema::table::Table;
use tracekit_schema::{Kind, State};

use crate::cancel::Cancel;
use crate::history::{EventKind, History, Off};
use crate::reconstruct::{Beside, Placement, Preemptions, Reading, Recon};
use crate::replay::{play, ReplaySpec};

use super::STRETCH;

/// Standard deviations of a difference of two counts (Poisson) that are more than chance.
const SIGMAS: f64 = 3.0;

/// Follows the CPUs of a run.
#[derive(Default)]
struct Cpus {
    /// Whether each runs something, where that is known.
    busy: Vec<Option<bool>>,
    found: Preemptions,
}

impl Cpus {
    fn set(&mut self, cpu: usize, busy: Option<bool>) {
        if self.busy.len() <= cpu {
            self.busy.resize(cpu + 1, None);
        }
        self.busy[cpu] = busy;
    }

    /// A task is preempted on `cpu`.
    fn preempted(&mut self, cpu: usize) {
        self.found.all += 1;
        let idles = |other: (usize, &Option<bool>)| other.0 != cpu && *other.1 == Some(false);
        self.found.beside += u64::from(self.busy.iter().enumerate().any(idles));
    }
}

fn recorded(history: &History) -> Preemptions {
    // Of one switch the leaving task first, so that its CPU does not seem idle to the others.
    let mut events = Vec::new();
    for task in &history.tasks {
        let mut on = None;
        for event in &task.events {
            match event.kind {
                EventKind::On { cpu } => {
                    on = usize::try_from(cpu).ok();
                    events.extend(on.map(|cpu| (event.at, cpu, true, Off::Unknown)));
                }
                EventKind::Off(off) => events.extend(on.take().map(|cpu| (event.at, cpu, false, off))),
                _ => {}
            }
        }
    }
    events.sort_by_key(|a| (a.0, a.1, a.2));
    let mut cpus = Cpus::default();
    for (_, cpu, enters, off) in events {
        if matches!(off, Off::Preempted { .. }) {
            cpus.preempted(cpu);
        }
        cpus.set(cpu, if enters { Some(true) } else { Some(false).filter(|_| off != Off::Unknown) });
    }
    cpus.found
}

/// The same of a replay; none where it comes to no end.
fn replayed(recon: &Recon, identity: &ReplaySpec, cancel: &Cancel) -> Option<Preemptions> {
    let run = play(recon, identity, &mut |_| !cancel.is_set()).ok()?;
    let (mut out, mut cpus) = (run.out, Cpus::default());
    let places: BTreeMap<i32, usize> = recon.cpus.iter().enumerate().map(|(i, number)| (*number, i)).collect();
    let mut emitter = run.records.emitter(&mut out);
    while emitter.fill(&mut out, STRETCH) {
        let events = &out.events;
        for row in (0..events.len()).filter(|row| events.kind.get(*row) == Some(Kind::Switch)) {
            let Some(cpu) = events.cpu.get(row).and_then(|cpu| places.get(&cpu).copied()) else { continue };
            if events.tid.get(row) != Some(0) && events.state.get(row) == Some(State::Preempted) {
                cpus.preempted(cpu);
            }
            cpus.set(cpu, Some(events.next_tid.get(row) != Some(0)));
        }
        out.clear_events();
    }
    Some(cpus.found)
}

/// Lets every task be where it was recorded if the recorded run says so; says why then.
pub(super) fn choose(reading: &mut Reading, identity: &ReplaySpec, cancel: &Cancel) -> Option<Beside> {
    let recorded = recorded(&reading.history);
    let lost = |run: Preemptions| recorded.beside.saturating_sub(run.beside);
    let missed = |run: Preemptions| {
        let chance = SIGMAS * ((recorded.beside + run.beside) as f64).sqrt();
        2 * lost(run) > recorded.all && lost(run) as f64 > chance
    };
    // Without a replay where none could show it.
    if reading.history.cpus.len() < 2 || !missed(Preemptions::default()) {
        return None;
    }
    let model = replayed(&reading.programs(), identity, cancel).filter(|model| missed(*model))?;
    reading.place(Placement::Trace);
    let placed = replayed(&reading.programs(), identity, cancel);
    let cause = |placed: &Preemptions| 2 * lost(*placed) < lost(model);
    if let Some(placed) = placed.filter(cause) {
        return Some(Beside { recorded, model, placed });
    }
    reading.place(Placement::Model);
    None
}
