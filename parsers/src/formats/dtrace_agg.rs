//! `dtrace-agg`: aggregations as DTrace prints them, histograms above all.
//!
//! # Format
//!
//! **Produced by** any D program with `@a[key] = quantize(x)`, `lquantize`, `llquantize`, `count`,
//! `sum`, ... : the DTraceToolkit's `dispqlen.d`, `cpudists`, `priclass.d`, `pridist.d`,
//! `cpuwalk.d` and others.
//!
//! **Grammar** of a histogram: its key on the line above (a blank line may follow it), a heading,
//! rows until one is not:
//!
//! ```text
//!   CPU 0
//!             value  ------------- Distribution ------------- count
//!               < 0 |                                         0
//!                 0 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@    1790
//! ```
//!
//! Only the counts are read, not the bars. Tables: lines of keys and one number at the end, in
//! columns two blanks or more apart, under a heading or after `^C`.
//!
//! **Rows**: a bucket `[lo, hi)` each in `histograms`. Where values double from row to row they are
//! powers of two (`quantize`), negative ones reaching down; else a bucket ends where the next
//! begins, and the last one is as wide as the one before. `< v` and `>= v` are unbounded. `title`
//! is the line over the keys, or the probe description; `key` the key. A table's row is a row of
//! `summaries`: `subject` the keys, `key` the heading of the last column.
//!
//! **Clock**: none. **Losses**: `N aggregation drops on CPU n`, without a time.
//!
//! **Departures tolerated**: indented text, prose around the output (counted as not understood),
//! Solaris' `\0` after strings. Not read: packed histograms (`aggpack`).
//!
//! **Sources**: Solaris Dynamic Tracing Guide (aggregations), the examples of opendtrace/toolkit.
//! **Verified** on those examples: 18 files of real output of Solaris 10.

use std::sync::Arc;

use crate::error::ParseError;
use crate::formats::{Confidence, Format, FormatInfo};
use crate::text::dtrace_messages::{self, Message};
use crate::text::scan;
use crate::{mismatch, Head, Options, Parser, Source};
use tracekit_schema::table::Table;
use tracekit_schema::{Code, Diagnostic, Out};

const NAME: &str = "dtrace-agg";

/// The row of the registry.
pub static FORMAT: Format = Format {
    name: NAME,
    title: "DTrace aggregations: histograms and tables",
    streams: false,
    sniff,
    open,
    info: FormatInfo {
        produced_by: "dtrace with quantize, lquantize, llquantize, count, sum; DTraceToolkit \
            dispqlen.d, cpudists, priclass.d, ...",
        kinds: "none: fills the tables `histograms` and `summaries`",
        provides: "queue length, times on CPU and other distributions by key, losses",
        resolution: "the buckets printed",
        clock: "none: totals over the run",
        confidence: "documented samples: the 18 aggregation examples of opendtrace/toolkit and the \
            Solaris guide (real output of Solaris 10)",
        notes: "a result, not a trace: nothing can be replayed from it; units are not printed by DTrace",
    },
};

fn sniff(head: &Head) -> Confidence {
    let mut lines = head.bytes.split(|b| *b == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l));
    if lines.clone().any(is_heading) {
        return 85;
    }
    let described = |l: &[u8]| matches!(dtrace_messages::parse(scan::trim(l)), Some(Message::Note(t)) if t.ends_with(b"probes") || t.ends_with(b"probe"));
    let sign = if lines.clone().any(described) {
        60
    } else if lines.any(|l| scan::trim(l) == b"^C") {
        30
    } else {
        return 0;
    };
    // Many programs print such lines: only rows of an aggregation make it one.
    if has_rows(&head.bytes) {
        sign
    } else {
        0
    }
}

/// True when the text holds an aggregation.
fn has_rows(text: &[u8]) -> bool {
    let mut out = Out::new();
    let mut reader = Aggregations { quiet: true, ..Aggregations::new() };
    for (line, number) in text.split(|b| *b == b'\n').zip(1..) {
        reader.line(line.strip_suffix(b"\r").unwrap_or(line), number, &mut out);
    }
    reader.finish(&mut out);
    !out.histograms.is_empty() || !out.summaries.is_empty()
}

fn open(source: Source, _options: &Options, _out: &mut Out) -> Result<Box<dyn Parser>, ParseError> {
    let all = source.into_bytes().map_err(|e| ParseError::io(NAME, &e))?;
    let text = (*all).as_ref();
    if !has_rows(text) {
        let (line, number) =
            text.split(|b| *b == b'\n').zip(1u64..).find(|(l, _)| !l.trim_ascii().is_empty()).unwrap_or((b"", 1));
        let found = scan::shown(scan::trim(line), 60);
        let message = format!("expected an aggregation of DTrace, found none in the text, which begins `{found}`");
        return Err(ParseError::new(NAME, "no-scheduler-events", message).at_line(number));
    }
    Ok(Box::new(Agg { all, done: false }))
}

struct Agg {
    all: Arc<dyn AsRef<[u8]> + Send + Sync>,
    done: bool,
}

impl Parser for Agg {
    fn fill(&mut self, out: &mut Out, _rows: usize) -> Result<bool, ParseError> {
        let mut reader = Aggregations::new();
        let text = (*self.all).as_ref();
        let mut lines = 0;
        for line in text.split_inclusive(|b| *b == b'\n') {
            lines += 1;
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            reader.line(line.strip_suffix(b"\r").unwrap_or(line), lines, out);
        }
        reader.finish(out);
        out.meta.set("parse.lines", lines.to_string());
        out.meta.set("parse.unparsed", reader.unparsed.to_string());
        self.done = true;
        Ok(false)
    }

    fn consumed(&self) -> u64 {
        if self.done {
            (*self.all).as_ref().len() as u64
        } else {
            0
        }
    }
}

/// `value  ---- Distribution ---- count`.
fn is_heading(line: &[u8]) -> bool {
    let text = scan::trim(line);
    text.starts_with(b"value ")
        && text.ends_with(b" count")
        && memchr::memmem::find(text, b"- Distribution -").is_some()
}

/// The bound of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Below(i64),
    From(i64),
    AtLeast(i64),
}

/// `>= 170 |@@   12`.
fn bucket(line: &[u8]) -> Option<(Bound, i64)> {
    let bar = memchr::memchr(b'|', line)?;
    let left = scan::trim(&line[..bar]);
    // A signed plot has its axis in the middle: bars on both sides of it.
    let left = left.strip_suffix(b"@").map_or(left, |_| scan::word(left).0);
    let count = line[bar + 1..].rsplit(|b| scan::is_blank(*b)).find(|w| !w.is_empty()).and_then(scan::i64)?;
    let number = |text: &[u8]| scan::i64(scan::trim(text));
    let bound = if let Some(value) = left.strip_prefix(b">=") {
        Bound::AtLeast(number(value)?)
    } else if let Some(value) = left.strip_prefix(b"<") {
        Bound::Below(number(value)?)
    } else {
        Bound::From(number(left)?)
    };
    Some((bound, count))
}

/// A histogram being read.
#[derive(Debug)]
struct Block {
    key: Option<Vec<u8>>,
    number: u64,
    rows: Vec<(Bound, i64)>,
}

/// A line that the next lines may explain.
#[derive(Clone, Debug)]
struct Held {
    text: Vec<u8>,
    number: u64,
    /// No blank line stands between it and the next.
    adjacent: bool,
}

/// Reads aggregations out of text, line by line.
#[derive(Debug, Default)]
pub(super) struct Aggregations {
    title: Option<Vec<u8>>,
    block: Option<Block>,
    /// The last line that was not understood yet, and the one above it.
    candidate: Option<Held>,
    older: Option<Held>,
    /// A row of a table, unless it turns out to be the key of a histogram.
    row: Option<Held>,
    heading: Option<Vec<u8>>,
    /// Rows may come: after a heading, a row, `^C` or a description.
    table: bool,
    /// Rows of figures only, so far in this table.
    figures: u64,
    /// Lines that fit nothing.
    pub unparsed: u64,
    /// Says nothing of them: what they look like is found by sniffing them.
    quiet: bool,
}

impl Aggregations {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn line(&mut self, line: &[u8], number: u64, out: &mut Out) {
        if let Some(block) = &mut self.block {
            if let Some(row) = bucket(line) {
                block.rows.push(row);
                return;
            }
            self.end_block(out);
        }
        let text = scan::trim(line);
        if text.is_empty() || text == b"[...]" {
            for held in [&mut self.candidate, &mut self.row].into_iter().flatten() {
                held.adjacent = false;
            }
            return;
        }
        if is_heading(line) {
            return self.begin_block(number, out);
        }
        self.end_row(out);
        if text == b"^C" {
            self.drop_candidates(out);
            self.title = self.title.take().filter(|t| t.ends_with(b"\""));
            (self.heading, self.table, self.figures) = (None, true, 0);
        } else if let Some(message) = dtrace_messages::parse(text) {
            self.message(message, number, out);
        } else if bucket(line).is_some() {
            // A row of a histogram that was broken off above.
            self.refuse(&Held { text: text.to_vec(), number, adjacent: false }, out);
        } else if self.is_row(text) {
            self.row = Some(Held { text: text.to_vec(), number, adjacent: true });
        } else {
            if let Some(older) = self.older.take() {
                self.refuse(&older, out);
            }
            self.older = self.candidate.take();
            self.candidate = Some(Held { text: text.to_vec(), number, adjacent: true });
            self.table = false;
            self.heading = None;
        }
    }

    pub(super) fn finish(&mut self, out: &mut Out) {
        self.end_block(out);
        self.end_row(out);
        self.drop_candidates(out);
    }

    /// Keys, then one number two blanks or more behind them.
    fn is_row(&self, text: &[u8]) -> bool {
        let Some((keys, _, unit)) = split_row(text) else { return false };
        let headed = |c: &Held| c.adjacent && cells(&c.text).count() >= 2;
        (self.table || unit.is_some() || self.candidate.as_ref().is_some_and(headed)) && !keys.is_empty()
    }

    fn begin_block(&mut self, number: u64, out: &mut Out) {
        let row = self.row.take();
        let key = row.or_else(|| self.candidate.take());
        if let Some(older) = self.older.take().or_else(|| self.candidate.take()) {
            if older.adjacent || is_time(&older.text) {
                self.title = Some(older.text);
            } else {
                self.refuse(&older, out);
            }
        }
        let key = key.map(|k| k.text).filter(|k| !k.ends_with(b"...") && !k.ends_with(b"to end."));
        self.block = Some(Block { key, number, rows: Vec::new() });
        self.table = false;
    }

    fn end_block(&mut self, out: &mut Out) {
        let Some(block) = self.block.take() else { return };
        (self.table, self.heading) = (true, None);
        if block.rows.is_empty() {
            let text = block.key.unwrap_or_else(|| b"a heading without rows".to_vec());
            return self.refuse(&Held { text, number: block.number, adjacent: false }, out);
        }
        let title = self.title.as_deref().map(|t| out.strings.intern(clean(t)));
        let key = block.key.map(|k| out.strings.intern(&single_blanks(clean(&k))));
        let bounds = bounds(&block.rows);
        for ((lo, hi), (_, count)) in bounds.into_iter().zip(&block.rows) {
            out.histograms.push().title(title).key(key).lo(lo).hi(hi).count(*count);
        }
    }

    fn end_row(&mut self, out: &mut Out) {
        let Some(row) = self.row.take() else { return };
        if let Some(heading) = self.candidate.take() {
            if heading.adjacent {
                self.heading = Some(heading.text);
                self.figures = 0;
            } else {
                self.refuse(&heading, out);
            }
        }
        if let Some(older) = self.older.take() {
            if older.adjacent {
                self.title = Some(older.text);
            } else {
                self.refuse(&older, out);
            }
        }
        self.table = true;
        let section = self.title.as_deref().map_or(&b"aggregation"[..], clean);
        let section = out.strings.intern(section);
        let heads: Vec<Vec<u8>> =
            self.heading.as_deref().map_or_else(Vec::new, |h| cells(h).map(<[u8]>::to_vec).collect());
        let fields: Vec<&[u8]> = cells(&row.text).flat_map(|c| c.split(|b| scan::is_blank(*b))).collect();
        let names: Vec<&[u8]> = heads.iter().flat_map(|h| h.split(|b| scan::is_blank(*b))).collect();
        if fields.len() > 3 && fields.len() == names.len() && fields.iter().all(|f| scan::i64(f).is_some()) {
            self.figures += 1;
            let subject = out.strings.intern(format!("row {}", self.figures).as_bytes());
            for (name, field) in names.iter().zip(&fields) {
                let key = out.strings.intern(name);
                let value = scan::i64(field).map(|n| n as f64);
                out.summaries.push().section(section).subject(subject).key(key).value(value);
            }
            return;
        }
        let Some((keys, number, unit)) = split_row(&row.text) else { return };
        let last = heads.last().map_or(&b"value"[..], Vec::as_slice);
        let subject = out.strings.intern(&single_blanks(clean(keys)));
        let key = out.strings.intern(last);
        let headed = UNITS.into_iter().find(|u| last.ends_with(&[b"(", *u, b")"].concat()));
        let unit = unit.or(headed).map(|u| out.strings.intern(u));
        out.summaries.push().section(section).subject(subject).key(key).value(number as f64).unit(unit);
    }

    fn message(&mut self, message: Message<'_>, number: u64, out: &mut Out) {
        self.drop_candidates(out);
        match message {
            Message::Drops { count, what, cpu } => {
                let cause = out.strings.intern(b"drops");
                out.losses.push().cpu(cpu).count(count).cause(cause);
                let what = if what.is_empty() { "record" } else { &String::from_utf8_lossy(what) };
                let mut d = Diagnostic::new(Code::LostEvents, format!("dtrace reports {count} {what} drops"));
                d.cpu = cpu;
                out.diag(d.at_line(number).advise("enlarge aggsize (or bufsize), or raise aggrate (or switchrate)"));
            }
            Message::ProbeError(text) => {
                let message = format!("a probe's action failed: {}", scan::shown(text, 120));
                out.diag(Diagnostic::new(Code::LostEvents, message).at_line(number));
            }
            Message::Aborted(text) => {
                let message = format!("dtrace gave up: {}", scan::shown(text, 120));
                out.diag(Diagnostic::new(Code::Truncated, message).at_line(number));
            }
            Message::Note(text) => {
                let mut quoted = text.split(|b| *b == b'\'').skip(1);
                if let (Some(what), true) = (quoted.next(), memchr::memmem::find(text, b"matched").is_some()) {
                    // The quote distinguishes a description from a line of the output, which `^C` ends.
                    self.title = Some([b"\"", scan::trim(what), b"\""].concat());
                    (self.heading, self.table, self.figures) = (None, true, 0);
                }
            }
        }
    }

    fn drop_candidates(&mut self, out: &mut Out) {
        for held in [self.older.take(), self.candidate.take()].into_iter().flatten() {
            self.refuse(&held, out);
        }
    }

    fn refuse(&mut self, held: &Held, out: &mut Out) {
        self.unparsed += 1;
        if self.quiet {
            return;
        }
        out.diagnostics.push_with(Code::Unparsed, || {
            mismatch::unparsed(&held.text, "a histogram or a table").at_line(held.number)
        });
    }
}

const UNITS: [&[u8]; 4] = [b"ns", b"us", b"ms", b"secs"];

/// Keys, number and unit of a row.
type TableRow<'t> = (&'t [u8], i64, Option<&'static [u8]>);

/// Keys, then two blanks or more, a number, and perhaps its unit.
fn split_row(text: &[u8]) -> Option<TableRow<'_>> {
    let unit = UNITS.into_iter().find(|u| text.strip_suffix(*u).is_some_and(|rest| rest.ends_with(b" ")));
    let text = scan::trim(&text[..text.len() - unit.map_or(0, <[u8]>::len)]);
    let blank = text.iter().rposition(|b| scan::is_blank(*b))?;
    let number = scan::i64(&text[blank + 1..])?;
    let keys = scan::trim(&text[..blank]);
    (blank + 1 - keys.len() >= 2 && !keys.is_empty()).then_some((keys, number, unit))
}

/// Cells of a line: what stands between runs of two blanks or more, or a tab.
fn cells(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = scan::trim(line);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.windows(2).position(|w| w == b"  " || w[0] == b'\t').unwrap_or(rest.len());
        let cell = &rest[..end];
        rest = scan::trim(&rest[end..]);
        Some(cell)
    })
}

/// `2005 Apr 28 00:08:42,`, which scripts print over each interval.
fn is_time(text: &[u8]) -> bool {
    let (year, rest) = scan::word(text);
    let (month, rest) = scan::word(rest);
    let (day, _) = scan::word(rest);
    year.len() == 4 && month.len() == 3 && [year, day].into_iter().all(|n| scan::u64(n).is_some())
}

/// Without the `\0` that Solaris prints after some strings, and without the quotes of a description.
fn clean(text: &[u8]) -> &[u8] {
    let text = text.strip_suffix(b"\\0").or(text.strip_suffix(b",")).unwrap_or(text);
    let text = scan::trim(text);
    text.strip_prefix(b"\"").and_then(|t| t.strip_suffix(b"\"")).unwrap_or(text)
}

fn single_blanks(text: &[u8]) -> Vec<u8> {
    let words: Vec<_> = text.split(|b| scan::is_blank(*b)).filter(|w| !w.is_empty()).collect();
    words.join(&b' ')
}

/// The bounds of the buckets.
fn bounds(rows: &[(Bound, i64)]) -> Vec<(Option<i64>, Option<i64>)> {
    let value = |b: Bound| match b {
        Bound::Below(v) | Bound::From(v) | Bound::AtLeast(v) => v,
    };
    let doubles = |a: i64, b: i64| match a {
        0 => b == 1,
        -1 => b == 0,
        _ if a < 0 => b.checked_mul(2) == Some(a),
        _ => a.checked_mul(2) == Some(b),
    };
    let plain = rows.iter().all(|(b, _)| matches!(b, Bound::From(_)));
    let quantize = plain && rows.windows(2).all(|w| doubles(value(w[0].0), value(w[1].0)));
    let power = |v: i64| v == 0 || v.unsigned_abs().is_power_of_two();
    let quantize = quantize && rows.first().is_some_and(|r| power(value(r.0)));
    let bound = |i: usize| match rows[i].0 {
        Bound::Below(v) => (None, Some(v)),
        Bound::AtLeast(v) => (Some(v), None),
        Bound::From(v) if quantize && v < 0 => (v.checked_mul(2).map(|d| d + 1), Some(v + 1)),
        Bound::From(v) if quantize => (Some(v), if v == 0 { Some(1) } else { v.checked_mul(2) }),
        Bound::From(v) => {
            let step = || v.checked_sub(i.checked_sub(1).map(|p| value(rows[p].0))?).filter(|s| *s > 0);
            let next = rows.get(i + 1).map(|r| value(r.0)).filter(|next| *next > v);
            (Some(v), next.or_else(|| v.checked_add(step().unwrap_or(1))))
        }
    };
    (0..rows.len()).map(bound).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_with_and_without_bounds() {
        assert_eq!(bucket(b"   < 0 |          0   "), Some((Bound::Below(0), 0)));
        assert_eq!(bucket(b"  8388608 |@@@@@@@@ 418"), Some((Bound::From(8_388_608), 418)));
        assert_eq!(bucket(b" >= 170 |         12"), Some((Bound::AtLeast(170), 12)));
        assert_eq!(bucket(b"   -4 |@@ 3"), Some((Bound::From(-4), 3)));
        assert_eq!(bucket(b"a | b"), None);
        assert_eq!(bucket(b"| 3"), None);
    }

    #[test]
    fn powers_of_two_reach_down_below_zero() {
        let rows = |values: &[i64]| values.iter().map(|v| (Bound::From(*v), 1)).collect::<Vec<_>>();
        let of = |values: &[i64]| bounds(&rows(values));
        assert_eq!(
            of(&[-2, -1, 0, 1, 2]),
            [(Some(-3), Some(-1)), (Some(-1), Some(0)), (Some(0), Some(1)), (Some(1), Some(2)), (Some(2), Some(4))]
        );
        assert_eq!(of(&[10, 20, 30]), [(Some(10), Some(20)), (Some(20), Some(30)), (Some(30), Some(40))]);
        assert_eq!(of(&[7]), [(Some(7), Some(8))]);
        assert_eq!(of(&[i64::MIN])[0].1, Some(i64::MIN + 1));
        assert_eq!(of(&[1 << 62])[0], (Some(1 << 62), None));
    }

    #[test]
    fn cells_are_two_blanks_apart() {
        let of =
            |text: &'static str| cells(text.as_bytes()).map(|c| std::str::from_utf8(c).unwrap()).collect::<Vec<_>>();
        assert_eq!(of("  THREADS        TIME (ns)"), ["THREADS", "TIME (ns)"]);
        assert_eq!(of("a\tb c"), ["a", "b c"]);
    }
}
