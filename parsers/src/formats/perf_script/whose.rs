//! Whose records a text has: what its header says of the command that recorded, else what it shows.

use std::collections::BTreeSet;

use tracekit_schema::table::Table;
use tracekit_schema::{Code, Diagnostic, Kind, Out};

use crate::formats::perf_data::extent::{asked, printed, Extent};

/// Fewest switches to idle tasks, and none from them, by which a recording of some tasks is known: the
/// kernel gives perf the switch of a task that leaves to whoever records that task.
const TO_IDLE: usize = 5;

/// Says what was left out: `command` is that of the header, `found` the records of the beginning, `online`
/// the number of CPUs that there were.
pub fn say(command: Option<&str>, online: Option<u64>, found: &Out, out: &mut Out) {
    let words: Vec<_> = command.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    let asked = asked(&words);
    for filter in asked.iter().flat_map(|a| &a.filters) {
        // The header has no quotation marks: where a filter ends is not known.
        let option = filter.split(' ').next().unwrap_or(filter);
        let message = format!("perf recorded with {option}, which leaves records out");
        out.diag(Diagnostic::new(Code::MissingEvents, message).advise("record without it, and select afterwards"));
    }
    match asked.and_then(|a| a.extent) {
        Some(Extent::Whole) => {}
        Some(Extent::Cpus(cpus)) if online.is_some_and(|n| cpus.len() as u64 >= n) => {}
        Some(Extent::Cpus(cpus)) => out.meta.set("cpus.recorded", printed(&cpus)),
        Some(Extent::Tasks(tasks)) => out.meta.set("tasks.recorded", tasks),
        None if idle_never_leaves(found) => out.meta.set("tasks.recorded", "idle tasks never leave in it"),
        None => {}
    }
}

fn idle_never_leaves(found: &Out) -> bool {
    let events = &found.events;
    let (mut cpus, mut to_idle) = (BTreeSet::new(), 0);
    for row in (0..events.len()).filter(|row| events.kind.get(*row) == Some(Kind::Switch)) {
        match (events.tid.get(row), events.next_tid.get(row)) {
            (Some(0), _) => return false,
            (Some(_), Some(0)) => to_idle += 1,
            _ => {}
        }
        cpus.extend(events.cpu.get(row));
    }
    to_idle >= TO_IDLE.max(2 * cpus.len())
}
