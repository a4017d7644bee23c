//! Whose records a text has: what its header says of the command that recorded, else what it shows.

use std::collections::BTreeSet;

use tracekit_schema::table::Table;
use tracekit_schema::{Code, Diagnostic, Kind, Out};

use crate::formats::perf_data::extent::{asked, printed, Extent};

/// Fewest switches to threads from which none leads away, idle or others, and one in how many of all must be
/// such, by which a recording of some tasks is known: the kernel gives perf the switch of a task that leaves
/// to whoever records that task. Of busy machines as a whole perf leaves out many switches from idle: up
/// to 0.5 % of theirs are such, of some tasks 34 and 100 %. Other formats have the same rule behind the
/// tables (`tracekit/whatif/recorded.py`); of perf's text it must be known before, as of perf.data.
const NO_WAY_BACK: (usize, usize) = (5, 20);

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
        None => {
            if let Some(shown) = of_some(found) {
                out.meta.set("tasks.recorded", shown);
            }
        }
    }
}

/// What shows that only some tasks were recorded.
fn of_some(found: &Out) -> Option<String> {
    let events = &found.events;
    let switches = || (0..events.len()).filter(|row| events.kind.get(*row) == Some(Kind::Switch));
    let cpus: BTreeSet<i32> = switches().filter_map(|row| events.cpu.get(row)).collect();
    let left: BTreeSet<i64> = switches().filter_map(|row| events.tid.get(row)).collect();
    let next: Vec<i64> = switches().filter_map(|row| events.next_tid.get(row)).collect();
    let kept = next.iter().filter(|tid| !left.contains(tid)).count();
    let (least, share) = NO_WAY_BACK;
    let so = kept >= least.max(2 * cpus.len()) && kept * share >= next.len() && !left.contains(&0);
    so.then(|| format!("{kept} of {} switches lead to threads from which none leads away", next.len()))
}
