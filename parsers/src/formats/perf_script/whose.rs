//! Whose records a text has: what its header says of the command that recorded, else what it shows.

use tracekit_schema::recorded::of_some_tasks;
use tracekit_schema::{Code, Diagnostic, Out};

use crate::formats::perf_data::extent::{asked, printed, Extent};

/// Says what was left out: `command` is that of the header, `found` the records of the beginning, `online`
/// the number of CPUs that there were. Where the command says nothing, the records show it, as they do of
/// any format behind the tables (`tracekit/whatif/recorded.py`): of perf's text it must be known before.
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
            if let Some(shown) = of_some_tasks(&found.events) {
                out.meta.set("tasks.recorded", shown);
            }
        }
    }
}
