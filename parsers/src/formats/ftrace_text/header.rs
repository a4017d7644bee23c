//! Lines that are no events: the `#` header, losses, what trace-cmd prints around a report.

use tracekit_schema::Out;

use super::head::{legend, Column, COLUMNS};
use crate::text::log::Log;
use crate::text::scan;

/// What the header says.
#[derive(Debug, Default)]
pub(super) struct Header {
    /// Some line was a header of ftrace.
    pub any: bool,
    pub tracer: Option<String>,
    pub cpus: Option<u64>,
    /// The kernel, which the header of the option `latency-format` names.
    pub kernel: Option<String>,
    /// It says that there are no entries.
    pub empty: bool,
    /// The report of a tracer that measures a latency: one CPU during its worst case.
    pub latency: bool,
    /// There was one.
    pub latency_met: bool,
    columns: Vec<Column>,
    /// It is one of a fixed wording, which says nothing of the kernel.
    borrowed: bool,
}

/// What Perfetto's conversion to text puts into each header.
const OF_PERFETTO: &[u8] = b"30624/30624";

impl Header {
    /// The columns of the context flags.
    pub fn columns(&self) -> &[Column] {
        if self.columns.is_empty() {
            &COLUMNS
        } else {
            &self.columns
        }
    }

    /// The flags that the kernel's header explains, where there is one.
    pub fn legend(&self) -> Option<String> {
        let own = !self.borrowed && matches!(self.tracer.as_deref(), Some("nop" | "function"));
        let names: Vec<_> = self.columns.iter().filter_map(|c| c.name()).collect();
        (own && !names.is_empty()).then(|| names.join(","))
    }

    /// True when `line` is not an event and was dealt with.
    pub fn take(&mut self, line: &[u8], log: &mut Log, out: &mut Out) -> bool {
        match line {
            [b'#', b'#', ..] => true,
            [b'#', rest @ ..] => {
                self.comment(rest, log);
                true
            }
            [b'C', b'P', b'U', b':', rest @ ..] => lost(rest, log, out),
            [b'C', b'P', b'U', b' ', rest @ ..] => rest.ends_with(b" is empty"),
            [b'v', b'e', b'r', ..] => line.starts_with(b"version = "),
            [b'c', b'p', b'u', b's', b'=', n @ ..] => {
                self.any = true;
                self.cpus = scan::u64(n.trim_ascii());
                self.cpus.is_some()
            }
            // trace-cmd report -V, of plugins and of events that they print.
            [b'r', b'e', b'g', ..] => line.starts_with(b"registering plugin: "),
            [b'o', b'v', b'e', ..] => line.starts_with(b"overriding event ("),
            // trace-cmd report -w, at the end.
            [b'A', b'v', b'e', ..] | [b'M', b'a' | b'i', ..] => is_of_latencies(line),
            // atrace and bytrace, before they print.
            b"capturing trace... done" | b"TRACE:" => true,
            // The kernel, around its buffer.
            b"Dumping ftrace buffer:" => true,
            [b'-', ..] => line.len() > 20 && line.iter().all(|b| *b == b'-'),
            // trace-cmd report --debug, of records that are none of events.
            [b' ', rest @ ..] => {
                let padding = [&b"TIME EXTEND: delta:"[..], b"TIME STAMP: timestamp:", b"PADDING: delta:"];
                padding.iter().any(|words| rest.starts_with(words))
            }
            _ => false,
        }
    }

    /// The header of a latency, which kernels up to 2.6.27 print without `#`.
    pub fn latency_of_2_6_26(&mut self, line: &[u8], log: &mut Log) -> bool {
        let text = line.trim_ascii();
        if scan::word(text).1.starts_with(b" latency trace v") {
            self.comment(text, log);
            return true;
        }
        let rule = || text.len() > 10 && text.iter().all(|b| *b == b'-');
        self.latency && (text.starts_with(b"latency: ") || text.starts_with(b"| task: ") || rule())
    }

    fn comment(&mut self, text: &[u8], log: &mut Log) {
        let text = text.trim_ascii_start();
        if let Some(tracer) = text.strip_prefix(b"tracer: ") {
            // Of several texts in one, each has its own.
            self.any = true;
            self.latency = false;
            self.tracer = Some(scan::shown(tracer.trim_ascii(), 40));
        } else if let Some(rest) = text.strip_prefix(b"entries-in-buffer/entries-written: ") {
            self.entries(rest, log);
        } else if let Some(end) = memchr::memmem::find(text, b" latency trace v") {
            // Any tracer has this header with the option `latency-format`:
            // `nop latency trace v1.1.5 on 6.6.0`.
            self.any = true;
            if let Some(on) = memchr::memmem::find(&text[end..], b" on ") {
                self.kernel = Some(scan::shown(scan::word(&text[end + on + 4..]).0, 80));
            }
            self.latency = measures_latency(&text[..end]);
            self.latency_met |= self.latency;
        } else if let Some(column) = memchr::memmem::find(text, b"-=> ").and_then(|_| legend(text)) {
            self.columns.push(column);
        }
    }

    /// `26696/26696   #P:4`
    fn entries(&mut self, text: &[u8], log: &mut Log) {
        self.any = true;
        let (counts, rest) = scan::word(text);
        self.borrowed |= counts == OF_PERFETTO;
        if let Some(n) = scan::word(rest).0.strip_prefix(b"#P:").and_then(scan::u64) {
            self.cpus = Some(n);
        }
        let mut counts = counts.splitn(2, |b| *b == b'/').map(scan::i64);
        if let (Some(Some(kept)), Some(Some(written))) = (counts.next(), counts.next()) {
            self.empty = kept == 0;
            if written > kept && log.records() == 0 {
                log.overwritten(written.saturating_sub(kept));
            }
        }
    }
}

/// Does this tracer keep a snapshot of its worst case (`print_max` of `struct tracer`)?
fn measures_latency(tracer: &[u8]) -> bool {
    tracer.starts_with(b"wakeup") || matches!(tracer, b"irqsoff" | b"preemptoff" | b"preemptirqsoff")
}

/// What follows `CPU:`: `3 [LOST 7 EVENTS]`, `3 [LOST EVENTS]`, `3 [7 EVENTS DROPPED]`, `3 [EVENTS DROPPED]`,
/// `3 [SUBBUFFER START]`.
fn lost(text: &[u8], log: &mut Log, out: &mut Out) -> bool {
    let (cpu, rest) = scan::word(text);
    let (Some(cpu), [b'[', inside @ .., b']']) = (scan::i32(cpu), scan::trim(rest)) else { return false };
    if inside.starts_with(b"SUBBUFFER START") {
        return true;
    }
    let count = match inside {
        b"LOST EVENTS" | b"EVENTS DROPPED" => None,
        _ => {
            let n = inside.strip_prefix(b"LOST ").and_then(|t| t.strip_suffix(b" EVENTS"));
            let Some(n) = n.or_else(|| inside.strip_suffix(b" EVENTS DROPPED")) else { return false };
            match scan::i64(n) {
                Some(n) => Some(n),
                None => return false,
            }
        }
    };
    log.lose(Some(cpu), count, out);
    true
}

/// `Maximum Latency: 63547.365 usecs at timestamp: 4.003288`.
fn is_of_latencies(line: &[u8]) -> bool {
    let ends = |at: usize| memchr::memmem::find(&line[at..], b" usecs").is_some();
    let which = [&b"Average "[..], b"Maximum ", b"Minimum "].iter().any(|word| line.starts_with(word));
    which && memchr::memmem::find(line, b"atency: ").is_some_and(ends)
}
