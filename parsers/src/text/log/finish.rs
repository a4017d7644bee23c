//! What is said of a log at its end.

use tracekit_schema::diag::{Code, Diagnostic};
use tracekit_schema::{Out, StrId};

use super::{add_loss, at, Log};
use crate::text::payload::quick;

impl Log {
    /// Adds what is known at the end.
    pub fn finish(&mut self, out: &mut Out) {
        for loss in std::mem::take(&mut self.losses) {
            add_loss(loss, None, out);
        }
        self.finish_overwritten(out);
        self.finish_order(out);
        self.finish_wrapped(out);
        self.finish_names(out);
        self.finish_metadata(out);
        self.finish_without_records(out);
        self.finish_missing(out);
    }

    /// What full ring buffers overwrote is older than what each CPU kept.
    fn finish_overwritten(&mut self, out: &mut Out) {
        let Some((count, line)) = self.overwritten.take() else { return };
        // Which CPU lost how many is not stated.
        let last = self.begun.iter().map(|(_, first)| *first).max();
        let cause = out.strings.intern(b"overwrite");
        out.losses.push().ts_to_ns(last).count(count).cause(cause);
        let message = format!("{count} records were overwritten before the first of their CPU");
        let d = Diagnostic { ts_ns: last, ..Diagnostic::new(Code::Overwritten, message) }.at_line(line);
        out.diag(match last {
            Some(ts) => {
                let (s, ns) = (ts.div_euclid(1_000_000_000), ts.rem_euclid(1_000_000_000));
                d.advise(format!("from @{s}.{ns:09}s on, where the last CPU begins, the trace is whole"))
            }
            None => d,
        });
    }

    fn finish_order(&mut self, out: &mut Out) {
        if let Some((line, ts_ns)) = self.first_displaced {
            let late = match self.late {
                0 => String::new(),
                n => format!("; {n} of them came too late and stand out of order"),
            };
            let message = format!("{} records stood after one of a later time and were sorted{late}", self.displaced);
            let d = Diagnostic { count: self.displaced, ..Diagnostic::new(Code::Reordered, message) };
            out.diag(at(line, d).at_ts(ts_ns));
        }
    }

    /// Says how many records stood on several lines.
    fn finish_wrapped(&self, out: &mut Out) {
        if let (count @ 1.., Some(line)) = (self.wrapped.records, self.wrapped.first) {
            let message = "records stood on several lines, as a mail or a terminal wraps them, and were joined";
            let d = Diagnostic { count, ..Diagnostic::new(Code::Inferred, message) }.at_line(line);
            out.diag(d.advise("attach the file itself: a name that was cut cannot be joined"));
        }
    }

    fn finish_names(&mut self, out: &mut Out) {
        for (id, &count) in self.unknown.iter().enumerate().filter(|(_, n)| **n > 0) {
            let name = self.names.text(StrId(id as u32)).into_owned();
            let message = format!("event `{name}` has no kind; its records are kept as `other`");
            out.diag(Diagnostic { count, ..Diagnostic::new(Code::UnknownEvent, message) });
        }
        if self.unnamed > 0 {
            let message = match self.unnamed {
                1 => "the name of a task is not known to the source".to_owned(),
                n => format!("the names of {n} tasks are not known to the source"),
            };
            let d = Diagnostic { count: self.unnamed, ..Diagnostic::new(Code::UnknownName, message) };
            out.diag(d.advise("record with a larger table of names (saved_cmdlines_size)"));
        }
        let bad = out.strings.iter().filter(|s| std::str::from_utf8(s).is_err()).count() as u64;
        if bad > 0 {
            let message = format!("{bad} names or texts are not valid UTF-8; the bytes that are not are replaced");
            out.diag(Diagnostic { count: bad, ..Diagnostic::new(Code::NotUtf8, message) });
        }
    }

    fn finish_metadata(&mut self, out: &mut Out) {
        for (bit, name) in quick::NAMES.iter().enumerate() {
            if self.quick_seen >> bit & 1 == 1 {
                self.note_name(name.as_bytes());
            }
        }
        let mut names: Vec<_> = self.names.iter().map(|n| String::from_utf8_lossy(n).into_owned()).collect();
        names.sort_unstable();
        out.meta.set("events.recorded", json_list(&names));
        // Binary sources have no lines.
        let records = if self.lines == 0 { self.seq } else { self.lines };
        out.meta.set("parse.lines", records.to_string());
        out.meta.set("parse.unparsed", self.unparsed.to_string());
        let cpus = self.cpus.unwrap_or(0).max(self.last.len() as u64);
        if cpus > 0 {
            out.meta.set("nr_cpus", cpus.to_string());
        }
        if self.lost.is_some() || self.lost_unknown {
            out.meta.set("loss.known", (!self.lost_unknown).to_string());
        }
        if let (Some(n), false) = (self.lost, self.lost_unknown) {
            out.meta.set("loss.total", n.to_string());
        }
    }

    /// A text that ends in its header says it, unless a last line that is cut was reported already.
    fn finish_without_records(&self, out: &mut Out) {
        let stated = out.diagnostics.rows().iter().any(|d| d.code == Code::Truncated);
        if self.ends_in_header() && self.lines > 0 && !self.empty && !stated {
            let d = Diagnostic::new(Code::Truncated, "the text ends before its first record").at_line(self.lines);
            out.diag(d.advise("get the whole text; if this is all, nothing was recorded"));
        }
    }

    fn finish_missing(&mut self, out: &mut Out) {
        let quick = |bit: u32| self.quick_seen >> bit & 1 == 1;
        let seen = |name: &str| self.names.find(name.as_bytes()).is_some();
        let missing = if self.scheduling == 0 && self.quick_seen == 0 {
            Some(("scheduler events", "record the events of the `sched` subsystem"))
        } else if self.switches == 0 && !quick(0) {
            Some(("`sched_switch`: nothing says what ran", "record `sched_switch`"))
        } else if !["sched_waking", "sched_wakeup"].into_iter().any(seen) {
            Some(("wakeups: run delays and wakers are unknown", "record `sched_wakeup` and `sched_waking`"))
        } else {
            None
        };
        if let Some((what, advice)) = missing {
            out.diag(Diagnostic::new(Code::MissingEvents, format!("the source has no {what}")).advise(advice));
        }
    }

    /// True when no record was met, nor a line that is none.
    pub fn ends_in_header(&self) -> bool {
        self.records() == 0 && self.unparsed == 0 && self.passed == 0
    }
}

fn json_list(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|n| format!("\"{}\"", n.replace(['"', '\\', '\t'], "?"))).collect();
    format!("[{}]", quoted.join(", "))
}
