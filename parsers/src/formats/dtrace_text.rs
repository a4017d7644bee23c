//! `dtrace-text`: what `dtrace` prints for a script of one's own.
//!
//! # Format
//!
//! **Produced by** `dtrace -n '...'` or `dtrace -s x.d`, plain, with `-q`, or with `-F`.
//!
//! **Grammar**: a heading and a row for each probe that fires, its text printed by the script:
//!
//! ```text
//! CPU     ID                    FUNCTION:NAME
//!   0   3297         exec_common:exec-success   man ls
//! ```
//!
//! With `-F` the heading is `CPU FUNCTION`, and arrows stand before the names; with `-q` there is
//! only the script's text.
//!
//! **What it becomes**: nothing in this output states the time, so the meaning of the text must be
//! said, with the option `pattern`: `{ts_ns} {tid} {comm}` (see `pattern` in the docs for all
//! fields). `off-cpu={ts_ns} ...` holds for that probe only; several are parted by `||`. The kind
//! of a record is that of its probe (`off-cpu` is `switch`, `on-cpu` `resume`, ...), or the `NAME=`
//! of its pattern, or a field `{probe}`. Rows whose probe has no kind become `other`. Without a
//! pattern only the firings of each probe on each CPU are counted, in `summaries`. Aggregations
//! printed at the end are read as in `dtrace-agg`.
//!
//! **Clock**: what the script prints; ns, us, ms, or seconds with a point. **Order**: buffers of
//! CPUs come one after the other; records are sorted within five seconds. **Losses**: `N drops on
//! CPU n`, from the CPU's last record to its next.
//!
//! **Sources**: Solaris Dynamic Tracing Guide, examples of opendtrace/toolkit. **Verified** on
//! those examples (rows) and on schedules written by the tests (patterns).

use std::collections::BTreeMap;

use crate::error::ParseError;
use crate::formats::dtrace_agg::Aggregations;
use crate::formats::{Confidence, Format, FormatInfo};
use crate::text::dtrace_messages::{self, Message};
use crate::text::lines::Lines;
use crate::text::pattern::{self, Pattern};
use crate::text::reorder::{LineSorter, Sorted};
use crate::text::scan;
use crate::{Head, Options, Parser, Source};
use tracekit_schema::events::quality;
use tracekit_schema::table::Table;
use tracekit_schema::{Code, Diagnostic, Kind, Out};

const NAME: &str = "dtrace-text";
/// A record is not held back longer than this.
const LAG_NS: i64 = 5_000_000_000;

/// The row of the registry.
pub static FORMAT: Format = Format {
    name: NAME,
    title: "Output of DTrace scripts of one's own, read by a pattern",
    streams: true,
    sniff,
    open,
    info: FormatInfo {
        produced_by: "dtrace -n '...' or dtrace -s x.d, plain, -q or -F; read with --pattern '{ts_ns} {tid} {comm}'",
        kinds: "those of the probes: switch, resume, enqueue, dequeue, wakeup, sleep, preempt, \
            remain, prio, load, fork, exec, exit, tick, lost, other",
        provides: "waker, state and what else the pattern names, losses; without a pattern, how often each probe fired",
        resolution: "as the script prints",
        clock: "as the script prints",
        confidence: "documented samples for the rows; patterns on schedules written and read back by the tests",
        notes: "without a pattern that has a time there is no timeline; aggregations at the end are read too",
    },
};

fn sniff(head: &Head) -> Confidence {
    let headings = head.bytes.split(|b| *b == b'\n').filter_map(heading);
    headings.map(|flow| if flow { 80 } else { 88 }).max().unwrap_or(0)
}

/// `CPU ID FUNCTION:NAME`, or `CPU FUNCTION`; true for the latter, which `-F` prints.
fn heading(line: &[u8]) -> Option<bool> {
    let mut words = line.trim_ascii().split(|b| scan::is_blank(*b)).filter(|w| !w.is_empty());
    if words.next() != Some(b"CPU") {
        return None;
    }
    match (words.next(), words.next(), words.next()) {
        (Some(b"ID"), Some(b"FUNCTION:NAME"), None) => Some(false),
        (Some(b"FUNCTION"), None, None) => Some(true),
        _ => None,
    }
}

fn open(source: Source, options: &Options, out: &mut Out) -> Result<Box<dyn Parser>, ParseError> {
    let patterns = match &options.pattern {
        Some(text) => pattern::parse(text).map_err(|why| ParseError::new(NAME, "pattern", why))?,
        None => Vec::new(),
    };
    if let Some(os) = options.extra.get("os") {
        out.meta.set("os", os.as_str());
    }
    if let Some(clock) = &options.clock {
        out.meta.set("clock.name", clock.as_str());
    }
    Ok(Box::new(Script {
        lines: Lines::new(source),
        intake: Intake { patterns, aggregations: Aggregations::new(), ..Intake::default() },
        seq: 0,
        done: false,
    }))
}

/// A row of the default output.
struct Fired<'t> {
    cpu: i32,
    probe: &'t [u8],
    text: &'t [u8],
}

/// `  0   3297         exec_common:exec-success   man ls`, or `  0  -> func   text`.
fn fired(line: &[u8]) -> Option<Fired<'_>> {
    let (cpu, rest) = scan::word(line);
    let cpu = scan::i32(cpu).filter(|cpu| *cpu >= 0)?;
    let (second, rest) = scan::word(rest);
    let (probe, text) = scan::word(rest);
    let arrow = matches!(second, b"->" | b"<-" | b"=>" | b"<=");
    // A bar stands in rows of histograms too, but not before a probe.
    let named = (second == b"|" || scan::u64(second).is_some()) && memchr::memchr(b':', probe).is_some();
    ((arrow || named) && !probe.is_empty()).then(|| Fired { cpu, probe, text: scan::trim(text) })
}

/// What a line says by the patterns.
struct Stated<'t> {
    matched: pattern::Matched<'t>,
    cpu: Option<i32>,
    probe: &'t [u8],
    ts: i64,
}

/// The first pattern that `line` fits.
fn stated<'t>(patterns: &'t [Pattern], line: &'t [u8]) -> Option<Stated<'t>> {
    let row = fired(line);
    let (cpu, probe, text) = row.map_or((None, &b""[..], line), |r| (Some(r.cpu), r.probe, r.text));
    let name = probe.rsplit(|b| *b == b':').next().unwrap_or(probe);
    patterns.iter().find_map(|p| {
        let asked = p.only.rsplit(|b| *b == b':').next().unwrap_or(&p.only);
        if !probe.is_empty() && !asked.is_empty() && asked != name && pattern::kind(asked) != pattern::kind(name) {
            return None;
        }
        let matched = p.fields(text)?;
        let ts = pattern::time(&matched)?;
        let probe = if probe.is_empty() { pattern::probe(&matched).unwrap_or(&p.only) } else { probe };
        Some(Stated { matched, cpu, probe, ts })
    })
}

struct Script {
    lines: Lines,
    intake: Intake,
    seq: u64,
    done: bool,
}

impl Parser for Script {
    fn fill(&mut self, out: &mut Out, rows: usize) -> Result<bool, ParseError> {
        let enough = out.events.len() + rows.max(1);
        while out.events.len() < enough {
            if let Some(line) = self.intake.sorter.pop() {
                add(line, &self.intake.patterns, self.seq, out);
                self.seq += 1;
                continue;
            }
            if self.done {
                return Ok(false);
            }
            while !self.done && !self.intake.sorter.has_ready() {
                let number = self.lines.number + 1;
                match self.lines.next_line().map_err(|e| ParseError::io(NAME, &e))? {
                    Some(line) => self.intake.take(line.bytes, number, out),
                    None => {
                        self.done = true;
                        self.intake.finish(out);
                        out.meta.set("parse.lines", self.lines.number.to_string());
                    }
                }
            }
        }
        Ok(true)
    }

    fn consumed(&self) -> u64 {
        self.lines.offset()
    }
}

/// Records were dropped on a CPU since `from`.
struct Drop {
    from: Option<i64>,
    count: i64,
}

/// Lines in the order of the file.
#[derive(Default)]
struct Intake {
    patterns: Vec<Pattern>,
    sorter: LineSorter,
    aggregations: Aggregations,
    /// Firings by probe and CPU.
    firings: BTreeMap<(Vec<u8>, i32), u64>,
    last_on: BTreeMap<i32, i64>,
    drops: BTreeMap<i32, Drop>,
    records: u64,
    since_release: u32,
    unmatched: u64,
}

impl Intake {
    fn take(&mut self, line: &[u8], number: u64, out: &mut Out) {
        if heading(line).is_some() {
            return;
        }
        if let Some(stated) = stated(&self.patterns, line) {
            let (ts, cpu) = (stated.ts, stated.cpu);
            return self.record(line, number, ts, cpu, out);
        }
        if let Some(row) = fired(line) {
            if self.patterns.is_empty() {
                *self.firings.entry((row.probe.to_vec(), row.cpu)).or_insert(0) += 1;
            } else {
                self.unmatched += 1;
                out.diagnostics.push_with(Code::Unparsed, || {
                    let message = format!("no pattern fits `{}`", scan::shown(scan::trim(line), 80));
                    Diagnostic::new(Code::Unparsed, message).at_line(number)
                });
            }
            return;
        }
        if let Some(Message::Drops { count, what: b"", cpu: Some(cpu) }) = dtrace_messages::parse(line) {
            let from = self.last_on.get(&cpu).copied();
            let drop = self.drops.entry(cpu).or_insert(Drop { from, count: 0 });
            drop.count = drop.count.saturating_add(count);
            let d = Diagnostic::new(Code::LostEvents, format!("dtrace dropped {count} records"));
            return out.diag(d.on_cpu(cpu).at_line(number).advise("enlarge bufsize or raise switchrate"));
        }
        self.aggregations.line(line, number, out);
    }

    fn record(&mut self, line: &[u8], number: u64, ts: i64, cpu: Option<i32>, out: &mut Out) {
        self.records += 1;
        if let Some(cpu) = cpu {
            if let Some(drop) = self.drops.remove(&cpu) {
                self.lose(cpu, &drop, Some(ts), number, out);
            }
            let last = self.last_on.entry(cpu).or_insert(ts);
            *last = ts.max(*last);
        }
        self.sorter.push(ts, number, line);
        self.since_release += 1;
        if self.since_release == 1 << 14 {
            self.since_release = 0;
            if let Some(newest) = self.sorter.newest() {
                self.sorter.release(newest.saturating_sub(LAG_NS));
            }
        }
    }

    fn lose(&mut self, cpu: i32, drop: &Drop, to: Option<i64>, number: u64, out: &mut Out) {
        let cause = out.strings.intern(b"drops");
        out.losses.push().cpu(cpu).ts_from_ns(drop.from).ts_to_ns(to).count(drop.count).cause(cause);
        if let Some(ts) = to.or(self.sorter.newest()) {
            let line = format!("dtrace: {} drops on CPU {cpu}", drop.count);
            self.sorter.push(ts, number, line.as_bytes());
        }
    }

    fn finish(&mut self, out: &mut Out) {
        for (cpu, drop) in std::mem::take(&mut self.drops) {
            self.lose(cpu, &drop, None, 0, out);
        }
        self.sorter.release_all();
        self.aggregations.finish(out);
        out.meta.set("parse.unparsed", (self.unmatched + self.aggregations.unparsed).to_string());
        let section = out.strings.intern(b"probe firings");
        for ((probe, cpu), count) in &self.firings {
            let (subject, key) = (out.strings.intern(probe), out.strings.intern(format!("CPU {cpu}").as_bytes()));
            out.summaries.push().section(section).subject(subject).key(key).value(*count as f64);
        }
        if self.records == 0 {
            let message = match self.patterns.is_empty() {
                true => "DTrace's own output has no time: firings are counted, no record can be placed",
                false => "no line fits the pattern",
            };
            let advice = "let the script print a time and say where it stands: --pattern '{ts_ns} {tid} {comm}'";
            out.diag(Diagnostic::new(Code::MissingEvents, message).advise(advice));
        }
        let n = self.sorter.displaced;
        if n > 0 {
            let message = format!("{n} lines stood out of time order, as buffers of several CPUs do, and were sorted");
            out.diag(Diagnostic { count: n, ..Diagnostic::new(Code::Reordered, message) });
        }
    }
}

/// The row of a line that comes out of the sorter.
fn add(line: Sorted<'_>, patterns: &[Pattern], seq: u64, out: &mut Out) {
    let late = if line.late { quality::OUT_OF_ORDER } else { 0 };
    let Some(stated) = stated(patterns, line.bytes) else {
        if let Some(Message::Drops { count, cpu, .. }) = dtrace_messages::parse(line.bytes) {
            out.events.push().ts_ns(line.ts).seq(seq).cpu(cpu).kind(Kind::Lost).value(count).quality(late);
        }
        return;
    };
    let kind = pattern::kind(stated.probe);
    let (name, raw) = match kind {
        Some(_) => (None, None),
        None => (Some(out.strings.intern(stated.probe)), Some(out.strings.keep(scan::trim(line.bytes)))),
    };
    let mut row = out.events.push();
    row.ts_ns(line.ts).seq(seq).cpu(stated.cpu).kind(kind.unwrap_or(Kind::Other)).name(name).raw(raw).quality(late);
    if !pattern::fill(&stated.matched, &mut row, &mut out.strings) {
        row.quality(late | quality::PARSE_PARTIAL);
        out.diagnostics.push_with(Code::PartlyParsed, || {
            let message = format!("a field of the pattern is no number in `{}`", scan::shown(line.bytes, 80));
            Diagnostic::new(Code::PartlyParsed, message).at_line(line.number)
        });
    }
}
