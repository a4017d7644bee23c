//! Samples of tracepoints that several events of one command record: `-e 'sched:*' -e sched:sched_switch`
//! has two events of one tracepoint, and the kernel gives each its own sample, within a microsecond.

use std::collections::HashMap;

use tracekit_schema::{Code, Diagnostic, Out};

use super::attr::TRACEPOINT;
use super::header::Attrs;
use crate::binary::bytes::uint;

/// The last sample of each such tracepoint on each CPU: the event, and what it says.
#[derive(Debug)]
pub struct Copies {
    /// Number of the events of a tracepoint.
    events: HashMap<u64, usize>,
    last: HashMap<(u64, u64), (usize, Vec<u8>)>,
}

impl Copies {
    /// `None` where no tracepoint has several events.
    pub fn new(attrs: &Attrs) -> Option<Self> {
        let mut events = HashMap::new();
        for attr in attrs.all.iter().filter(|a| a.kind == TRACEPOINT) {
            *events.entry(attr.config).or_insert(0) += 1;
        }
        events.values().any(|n| *n > 1).then(|| Copies { events, last: HashMap::new() })
    }

    /// Does `record` say what another event of its tracepoint said last on its CPU?
    pub fn is_copy(&mut self, attrs: &Attrs, record: &[u8], be: bool, ts: i64, out: &mut Out) -> bool {
        let Some((index, attr)) = attrs.event_of(record, be) else { return false };
        if self.events.get(&attr.config).is_none_or(|n| *n < 2) {
            return false;
        }
        let cpu = attr.layout.cpu.and_then(|at| uint(record, at, 4, be));
        let (Some(cpu), Some(raw)) = (cpu, attr.layout.raw(record, be)) else { return false };
        let (event, said) = self.last.entry((cpu, attr.config)).or_insert((index, Vec::new()));
        if *event != index && said == raw {
            out.diagnostics.push_with(Code::Duplicate, || {
                let message = "two events of the command are of one tracepoint, and both recorded it; \
                    one is left out";
                Diagnostic::new(Code::Duplicate, message)
                    .on_cpu(cpu as u32 as i32)
                    .at_ts(ts)
                    .advise("name it once: `-e 'sched:*'` has sched_switch already")
            });
            return true;
        }
        *event = index;
        said.clear();
        said.extend_from_slice(raw);
        false
    }
}
