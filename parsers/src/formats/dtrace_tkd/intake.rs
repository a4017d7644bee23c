//! First stage: lines in the order of the file go into the sorter, each under its time.

use std::collections::BTreeMap;

use super::TABS;
use crate::mismatch;
use crate::text::dtrace_messages::{self, Message};
use crate::text::reorder::LineSorter;
use crate::text::scan;
use tracekit_schema::{Code, Diagnostic, Out};

/// Two switch intervals of the scripts (`switchrate=10hz`).
const LOSS_NS: i64 = 200_000_000;
/// Without a `#TKT` line, a record is not held back longer than this.
const LAG_NS: i64 = 5_000_000_000;

/// A drop that dtrace reported, and that is not over yet.
#[derive(Clone, Copy)]
struct Drop {
    from: Option<i64>,
    count: i64,
}

/// Where lines go first.
#[derive(Default)]
pub(super) struct Intake {
    pub(super) sorter: LineSorter,
    last_on: BTreeMap<i32, i64>,
    drops: BTreeMap<i32, Drop>,
    lost: i64,
    heartbeat: Option<i64>,
    since_relief: u32,
    ended: bool,
    cut: Vec<u8>,
    unparsed: u64,
}

impl Intake {
    pub(super) fn take(&mut self, line: &[u8], number: u64, ended: bool, out: &mut Out) {
        if !self.cut.is_empty() {
            let mut whole = std::mem::take(&mut self.cut);
            whole.extend_from_slice(line);
            return self.record(&whole, number, ended, out);
        }
        match line {
            [b'T', b'1', b'\t', ..] => self.record(line, number, ended, out),
            [b'#', ..] if !ended => self.refuse(line, number, false, "the first half of a line", out),
            [b'#', ..] => self.remark(line, number, out),
            [] | b"^C" => {}
            _ => match dtrace_messages::parse(line) {
                Some(message) => self.message(message, number, out),
                None => self.refuse(line, number, ended, "a line that is neither T1 nor #", out),
            },
        }
    }

    fn record(&mut self, line: &[u8], number: u64, ended: bool, out: &mut Out) {
        if memchr::memchr_iter(b'\t', line).count() != TABS {
            if let Some(at) = dtrace_messages::cut_in(line) {
                self.cut = line[..at].to_vec();
                if let Some(message) = dtrace_messages::parse(&line[at..]) {
                    self.message(message, number, out);
                }
                return;
            }
            return self.refuse(line, number, ended, "a T1 line without exactly 17 columns", out);
        }
        let mut columns = line.split(|b| *b == b'\t').skip(1);
        let ts = columns.next().and_then(scan::i64);
        let cpu = columns.next().and_then(scan::i32);
        let (Some(ts), Some(cpu)) = (ts, cpu) else {
            return self.refuse(line, number, ended, "a T1 line without time or CPU", out);
        };
        if let Some(drop) = self.drops.get(&cpu).copied() {
            if drop.from.is_none_or(|from| ts >= from.saturating_add(LOSS_NS)) {
                self.close(cpu, drop, Some(ts), number, out);
            }
        }
        let last = self.last_on.entry(cpu).or_insert(ts);
        *last = ts.max(*last);
        self.sorter.push(ts, number, line);
        self.since_relief += 1;
        if self.since_relief >= 1 << 16 {
            self.since_relief = 0;
            if let Some(newest) = self.sorter.newest() {
                self.sorter.release(newest.saturating_sub(LAG_NS));
            }
        }
    }

    /// A `#` line.
    fn remark(&mut self, line: &[u8], number: u64, out: &mut Out) {
        let mut columns = line.split(|b| *b == b'\t');
        let (tag, first) = (columns.next(), columns.next());
        let ts = match tag {
            Some(b"#TKT" | b"#TKE") => first.and_then(scan::i64),
            Some(b"#TKD") => columns.nth(1).and_then(scan::i64),
            Some(b"#TKP") => {
                let names = first.unwrap_or(b"").split(|b| *b == b',');
                let names: Vec<_> = names.map(|n| format!("\"{}\"", String::from_utf8_lossy(n))).collect();
                return out.meta.set("events.recorded", format!("[{}]", names.join(",")));
            }
            _ => return,
        };
        let Some(ts) = ts else {
            return self.refuse(line, number, true, "a # line without its time", out);
        };
        if tag == Some(b"#TKD") && self.sorter.newest().is_some_and(|newest| ts < newest) {
            self.sorter.restart();
            self.heartbeat = None;
            self.last_on.clear();
        }
        self.sorter.push(ts, number, line);
        match tag {
            Some(b"#TKT") => {
                if let Some(before) = self.heartbeat.replace(ts) {
                    self.sorter.release(before);
                }
            }
            Some(b"#TKE") => self.ended = true,
            _ => self.ended = false,
        }
    }

    fn message(&mut self, message: Message<'_>, number: u64, out: &mut Out) {
        let shown = |text: &[u8]| scan::shown(text, 120);
        let d = match message {
            Message::Drops { count, what: b"", cpu: Some(cpu) } => {
                let from = self.last_on.get(&cpu).copied();
                let drop = self.drops.entry(cpu).or_insert(Drop { from, count: 0 });
                drop.count = drop.count.saturating_add(count);
                self.lost = self.lost.saturating_add(count);
                Diagnostic::new(Code::LostEvents, format!("dtrace dropped {count} records"))
                    .on_cpu(cpu)
                    .advise("enlarge bufsize or raise switchrate in the script, or trace fewer probes")
            }
            Message::Drops { count, what, .. } => {
                Diagnostic::new(Code::LostEvents, format!("dtrace reports {count} {} drops", shown(what)))
            }
            Message::ProbeError(text) => {
                let near = self.sorter.newest();
                let cause = out.strings.intern(b"drops");
                out.losses.push().ts_from_ns(near).ts_to_ns(near).count(1).cause(cause);
                self.lost = self.lost.saturating_add(1);
                Diagnostic::new(Code::LostEvents, format!("a probe's action failed: {}", shown(text)))
            }
            Message::Aborted(text) => Diagnostic::new(Code::Truncated, format!("dtrace gave up: {}", shown(text))),
            Message::Note(_) => return,
        };
        out.diag(d.at_line(number));
    }

    fn close(&mut self, cpu: i32, drop: Drop, to: Option<i64>, number: u64, out: &mut Out) {
        self.drops.remove(&cpu);
        let cause = out.strings.intern(b"drops");
        out.losses.push().cpu(cpu).ts_from_ns(drop.from).ts_to_ns(to).count(drop.count).cause(cause);
        if let Some(ts) = to.or(self.sorter.newest()) {
            let line = format!("dtrace: {} drops on CPU {cpu}", drop.count);
            self.sorter.push(ts, number, line.as_bytes());
        }
    }

    fn refuse(&mut self, line: &[u8], number: u64, ended: bool, what: &str, out: &mut Out) {
        self.unparsed += 1;
        let code = if ended { Code::Unparsed } else { Code::Truncated };
        out.diagnostics.push_with(code, || {
            let message = format!("found {what}: `{}`", scan::shown(line, 80));
            mismatch::likely(Diagnostic::new(code, message), line).at_line(number)
        });
    }

    pub(super) fn finish(&mut self, out: &mut Out) {
        for (cpu, drop) in self.drops.clone() {
            self.close(cpu, drop, None, 0, out);
        }
        if !self.cut.is_empty() {
            let cut = std::mem::take(&mut self.cut);
            self.refuse(&cut, 0, false, "the first half of a line", out);
        }
        self.sorter.release_all();
        out.meta.set("parse.unparsed", self.unparsed.to_string());
        out.meta.set("loss.known", "true");
        out.meta.set("loss.total", self.lost.to_string());
        if !self.ended {
            let message = "expected the line #TKE at the end, found none: the last buffers of some CPUs may be missing";
            out.diag(Diagnostic::new(Code::Truncated, message).advise("end the capture with Ctrl-C"));
        }
        let n = self.sorter.displaced;
        if n > 0 {
            let message = format!("{n} lines stood out of time order, as buffers of several CPUs do, and were sorted");
            out.diag(Diagnostic { count: n, ..Diagnostic::new(Code::Reordered, message) });
        }
    }
}
