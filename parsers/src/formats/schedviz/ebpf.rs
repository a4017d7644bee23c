//! The text that SchedViz's `sched.bt` prints under bpftrace.
//!
//! ```text
//! ST:0:<start>                                      time of the start, ns
//! P:<time>:<tid>:<prio>:<comm>                      name and priority of a thread, when it is first seen
//! S:<time>:<cpu>:<prev tid>:<prev state>:<next tid> switch
//! M:<time>:<cpu>:<from cpu>:<to cpu>:<tid>          migration
//! W:<time>:<cpu>:<target cpu>:<tid>                 wakeup, of a new task too
//! ```
//!
//! All numbers are hexadecimal without a prefix; times count from the start. Clock: bpftrace's
//! `nsecs`, CLOCK_MONOTONIC. bpftrace prints the events of one CPU after the other, so lines stand
//! out of order; they are sorted by time, ties by line. Trap: a `W` does not distinguish `wakeup` from
//! `wakeup_new`; both become `wakeup`.

use super::NAME;
use crate::error::ParseError;
use crate::text::payload::state::Table as States;
use crate::Parser;
use std::collections::HashMap;
use tracekit_schema::table::Table;
use tracekit_schema::{Code, Diagnostic, Kind, Out, StrId};

/// One line that makes a row.
#[derive(Clone, Copy, Debug)]
struct Line {
    ts: i64,
    cpu: i32,
    kind: LineKind,
}

#[derive(Clone, Copy, Debug)]
enum LineKind {
    Switch { prev: Who, state: u64, next: Who },
    Migrate { who: Who, from: i32, to: i32 },
    Wakeup { who: Who, to: i32 },
}

/// A thread as known when its line was printed.
#[derive(Clone, Copy, Debug, Default)]
struct Who {
    tid: i64,
    comm: Option<StrId>,
    prio: Option<i32>,
}

/// The rows of a `sched.bt` text.
pub struct Ebpf {
    lines: Vec<Line>,
    next: usize,
    size: u64,
    done: bool,
}

/// True when a line of `head` is the start line.
pub fn is_ebpf(head: &[u8]) -> bool {
    head.split(|b| *b == b'\n').take(20).any(|line| start(line).is_some())
}

fn start(line: &[u8]) -> Option<u64> {
    hex(line.trim_ascii_end().strip_prefix(b"ST:0:")?)
}

fn hex(text: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(text).ok().filter(|t| !t.starts_with('+'))?;
    u64::from_str_radix(digits, 16).ok()
}

impl Ebpf {
    /// Reads all lines of `text`.
    pub fn new(text: &[u8], out: &mut Out) -> Result<Self, ParseError> {
        out.meta.set("source.variant", "sched.bt");
        out.meta.set("clock.name", "mono");
        out.meta.set("clock.unit", "ns");
        out.meta.set("clock.synchronised", "true");
        out.meta
            .set("events.recorded", r#"["sched_migrate_task", "sched_switch", "sched_wakeup", "sched_wakeup_new"]"#);
        let mut reading = Reading { started: None, known: HashMap::new(), lines: Vec::new() };
        let mut number = 0u64;
        let mut unparsed = 0u64;
        let whole = text.ends_with(b"\n");
        let last = text.iter().filter(|b| **b == b'\n').count() as u64 + u64::from(!whole);
        for line in text.split(|b| *b == b'\n') {
            number += 1;
            let line = line.trim_ascii_end();
            let cut = number == last && !whole;
            let comment = line.is_empty() || line.starts_with(b"Attaching ") || line.starts_with(b"@");
            if comment || (!cut && reading.line(line, out).is_some()) {
                continue;
            }
            let code = if cut { Code::Truncated } else { Code::Unparsed };
            unparsed += 1;
            out.diagnostics.push_with(code, || {
                let shown = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
                let said = if cut { "the last line is cut short" } else { "expected ST, P, S, M or W and hex numbers" };
                Diagnostic::new(code, format!("{said}, found `{shown}`")).at_line(number)
            });
        }
        if reading.started.is_none() {
            let message = "expected a start line `ST:0:<time>`, found none";
            return Err(ParseError::new(NAME, "truncated", message));
        }
        let mut lines = reading.lines;
        let late = lines.windows(2).filter(|w| w[1].ts < w[0].ts).count();
        if late > 0 {
            let message = "lines stood out of time order and were sorted";
            out.diag(Diagnostic { count: late as u64, ..Diagnostic::new(Code::Reordered, message) });
        }
        lines.sort_by_key(|l| l.ts);
        out.meta.set("parse.lines", number.to_string());
        out.meta.set("parse.unparsed", unparsed.to_string());
        Ok(Ebpf { lines, next: 0, size: text.len() as u64, done: false })
    }
}

struct Reading {
    started: Option<u64>,
    known: HashMap<i64, Who>,
    lines: Vec<Line>,
}

impl Reading {
    /// Reads one line; `None` when it does not fit.
    fn line(&mut self, line: &[u8], out: &mut Out) -> Option<()> {
        if let Some(at) = start(line) {
            self.started = Some(at);
            return Some(());
        }
        let base = self.started?;
        let (kind, rest) = (line.first()?, line.get(2..).filter(|_| line.get(1) == Some(&b':'))?);
        if *kind == b'P' {
            let mut parts = rest.splitn(4, |b| *b == b':');
            let (_, tid, prio) = (hex(parts.next()?)?, hex(parts.next()?)?, hex(parts.next()?)?);
            let tid = i64::try_from(tid).ok()?;
            let comm = parts.next().filter(|c| !c.is_empty()).map(|c| out.strings.intern(c));
            self.known.insert(tid, Who { tid, comm, prio: i32::try_from(prio).ok() });
            return Some(());
        }
        let mut numbers = [0u64; 5];
        let mut count = 0;
        for part in rest.split(|b| *b == b':') {
            *numbers.get_mut(count)? = hex(part)?;
            count += 1;
        }
        let small = |n: u64| i32::try_from(n).ok();
        let cpu = small(numbers[1])?;
        let kind = match (kind, count) {
            (b'S', 5) => {
                LineKind::Switch { prev: self.who(numbers[2])?, state: numbers[3], next: self.who(numbers[4])? }
            }
            (b'M', 5) => {
                LineKind::Migrate { who: self.who(numbers[4])?, from: small(numbers[2])?, to: small(numbers[3])? }
            }
            (b'W', 4) => LineKind::Wakeup { who: self.who(numbers[3])?, to: small(numbers[2])? },
            _ => return None,
        };
        let ts = i64::try_from(base.checked_add(numbers[0])?).ok()?;
        self.lines.push(Line { ts, cpu, kind });
        Some(())
    }

    fn who(&self, tid: u64) -> Option<Who> {
        let tid = i64::try_from(tid).ok()?;
        Some(self.known.get(&tid).copied().unwrap_or(Who { tid, ..Who::default() }))
    }
}

impl Parser for Ebpf {
    fn fill(&mut self, out: &mut Out, rows: usize) -> Result<bool, ParseError> {
        let target = out.events.len().saturating_add(rows);
        while let Some(line) = self.lines.get(self.next) {
            if out.events.len() >= target {
                return Ok(true);
            }
            let mut row = out.events.push();
            row.ts_ns(line.ts).cpu(line.cpu).seq(self.next as u64).quality(0);
            self.next += 1;
            match line.kind {
                LineKind::Switch { prev, state, next } => {
                    let raw = out.strings.intern(format!("{state:x}").as_bytes());
                    row.kind(Kind::Switch).ctx_tid(prev.tid).ctx_comm(prev.comm);
                    row.tid(prev.tid).comm(prev.comm).prio(prev.prio).state(States::New.state(state)).state_raw(raw);
                    row.next_tid(next.tid).next_comm(next.comm).next_prio(next.prio);
                }
                LineKind::Migrate { who, from, to } => {
                    row.kind(Kind::Migrate).tid(who.tid).comm(who.comm).prio(who.prio);
                    row.orig_cpu(from).target_cpu(to);
                }
                LineKind::Wakeup { who, to } => {
                    row.kind(Kind::Wakeup).tid(who.tid).comm(who.comm).prio(who.prio).target_cpu(to);
                }
            }
        }
        if !self.done {
            self.done = true;
            out.meta.set("loss.known", "false");
        }
        Ok(false)
    }

    fn consumed(&self) -> u64 {
        self.size * self.next as u64 / (self.lines.len() as u64).max(1)
    }
}
