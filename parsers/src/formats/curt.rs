//! `curt`: reports of AIX's CPU usage reporting tool, as summary rows.
//!
//! # Format
//!
//! **Produced by** `curt -i trace.raw -o report.txt`, with any of `-e -p -s -t -P`.
//!
//! **Grammar**: sections, each a title over a line of dashes. A table has up to four lines of
//! headings, a ruler of `=` runs, one run a column, and rows whose last column is text:
//!
//! ```text
//!  processing       percent       percent
//!  total time    total time     busy time
//!      (msec)  (incl. idle)  (excl. idle)  processing category
//! ===========   ===========   ===========  ===================
//!     4998.65         45.94         75.21  APPLICATION
//! ```
//!
//! A figure belongs to the column under whose ruler it stands, so cells may be empty. Between
//! tables stand single figures, `Avg. Thread Affinity = 0.99` or `processor affinity: 0.583333`.
//! `CPU Number 0:` and `Report for Thread Id: 48841 ...` say what the rows below are about.
//!
//! **Rows**: `section` is the title, `subject` the text of the row (with the CPU or thread of the
//! part before it), `key` the heading, joined over its lines, `unit` ms or %. Sentences are kept as
//! `note`. `tid` is set in reports and tables by thread.
//!
//! **Departures tolerated**: page text with `...(lines omitted)...`. Reports whose blanks were
//! collapsed lose the place of their headings: columns are then numbered.
//!
//! **Losses**: a warning that names a WRAPAROUND or TRACE OFF record, as IBM documents it for
//! splat, which reads the same traces (experimental).
//!
//! **Sources**: IBM's public documentation of curt and its samples. **Verified** on those samples;
//! a whole report of a real system was not at hand. Reports of `splat`, its sister for locks, are
//! recognised and refused.

use std::sync::Arc;

use crate::error::ParseError;
use crate::formats::{Confidence, Format, FormatInfo};
use crate::text::scan;
use crate::{Head, Options, Parser, Source};
use tracekit_schema::{Code, Diagnostic, Out};

const NAME: &str = "curt";
/// Lines of headings over a table, at most.
const HEADINGS: usize = 4;

/// The row of the registry.
pub static FORMAT: Format = Format {
    name: NAME,
    title: "AIX CPU usage reports (curt)",
    streams: false,
    sniff,
    open,
    info: FormatInfo {
        produced_by: "curt -i trace.raw -o report.txt",
        kinds: "none: fills the table `summaries`",
        provides:
            "CPU time by category, CPU, process, thread, system call and interrupt handler, as curt counted it; losses",
        resolution: "as printed (0.0001 ms)",
        clock: "none: totals over the trace",
        confidence: "documented samples: IBM's pages on curt; no whole report of a real system was at hand",
        notes: "a report, not a trace: nothing can be replayed from it; splat reports are refused",
    },
};

const SIGNS: [&[u8]; 8] = [
    b"processing category",
    b"percent of total processing time",
    b"Application Summary (by ",
    b"Flih Summary",
    b"Slih Summary",
    b"System Calls Summary",
    b"Report for Thread Id:",
    b"Avg. Thread Affinity",
];
const SPLAT: [&[u8]; 2] = [b"AIX (all) Locks:", b"[AIX SIMPLE Lock]"];

fn sniff(head: &Head) -> Confidence {
    let has = |sign: &&[u8]| memchr::memmem::find(&head.bytes, sign).is_some();
    if SIGNS.iter().any(has) {
        70
    } else if SPLAT.iter().any(has) {
        40
    } else {
        0
    }
}

fn open(source: Source, _options: &Options, out: &mut Out) -> Result<Box<dyn Parser>, ParseError> {
    let all = source.into_bytes().map_err(|e| ParseError::io(NAME, &e))?;
    let text = (*all).as_ref();
    let has = |sign: &&[u8]| memchr::memmem::find(text, sign).is_some();
    if !SIGNS.iter().any(has) {
        let (line, number) =
            text.split(|b| *b == b'\n').zip(1u64..).find(|(l, _)| !l.trim_ascii().is_empty()).unwrap_or((b"", 1));
        let (code, message) = if SPLAT.iter().any(has) {
            ("unsupported", "this is a report of splat, which is about locks, not about scheduling".to_owned())
        } else {
            let found = scan::shown(scan::trim(line), 60);
            ("no-scheduler-events", format!("expected a section of a curt report, found `{found}`"))
        };
        return Err(ParseError::new(NAME, code, message).at_line(number));
    }
    out.meta.set("os", "aix");
    Ok(Box::new(Curt { all, done: false }))
}

struct Curt {
    all: Arc<dyn AsRef<[u8]> + Send + Sync>,
    done: bool,
}

impl Parser for Curt {
    fn fill(&mut self, out: &mut Out, _rows: usize) -> Result<bool, ParseError> {
        let mut report = Report::new();
        let (mut lines, mut number) = ((*self.all).as_ref().split(|b| *b == b'\n').peekable(), 0);
        while let Some(line) = lines.next() {
            if line.is_empty() && lines.peek().is_none() {
                break;
            }
            number += 1;
            report.line(line.strip_suffix(b"\r").unwrap_or(line), number, out);
        }
        report.flush(out);
        out.meta.set("parse.lines", number.to_string());
        out.meta.set("parse.unparsed", report.unparsed.to_string());
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

/// A column of figures.
struct Column {
    start: usize,
    end: usize,
    key: String,
    unit: Option<&'static str>,
}

/// A table being read.
struct Table {
    columns: Vec<Column>,
    /// The last column is about threads.
    by_thread: bool,
}

/// What was read so far that later lines depend on.
struct Report {
    section: String,
    /// `cpu 0`, `oracle`: what the part is about.
    part: String,
    tid: Option<i64>,
    table: Option<Table>,
    /// Lines that may be headings or a title: only the next lines can say.
    held: Vec<(Vec<u8>, u64)>,
    unparsed: u64,
}

impl Report {
    fn new() -> Self {
        Report {
            section: "Report".to_owned(),
            part: String::new(),
            tid: None,
            table: None,
            held: Vec::new(),
            unparsed: 0,
        }
    }

    fn line(&mut self, line: &[u8], number: u64, out: &mut Out) {
        let text = scan::trim(line);
        if self.table.is_none() {
            discontinuity(text, number, out);
        }
        if text.is_empty() || text.starts_with(b"...") {
            self.flush(out);
            self.table = None;
        } else if text.iter().all(|b| *b == b'-') {
            self.underline(line, out);
        } else if text.iter().all(|b| matches!(b, b'=' | b' ')) {
            self.ruler(line, out);
        } else if text.iter().all(|b| matches!(b, b'-' | b' ' | b'=')) {
            // The line over the totals of a table.
        } else if self.table.is_some() && self.row(line, number, out) {
            // Done.
        } else {
            self.table = None;
            if self.is_part(text) {
                return self.flush(out);
            }
            self.held.push((line.to_vec(), number));
        }
    }

    /// `CPU Number 0:` or `Report for Thread Id: 48841 ...` says what follows is about.
    fn is_part(&mut self, text: &[u8]) -> bool {
        if let Some(rest) = text.strip_prefix(b"Report for ") {
            self.tid = number_after(rest, b"Thread Id: ");
            self.part = String::from_utf8_lossy(rest).into_owned();
            self.section = "Report for a thread or process".to_owned();
            return true;
        }
        let cpu = |key: &[u8]| text.strip_prefix(key).map(|rest| rest.strip_suffix(b":").unwrap_or(rest));
        let number = cpu(b"CPU Number ").or_else(|| cpu(b"Processor Number ")).or_else(|| cpu(b"processor number "));
        let number = number.and_then(|n| scan::i64(scan::trim(n)));
        if let Some(number) = number {
            self.part = format!("cpu {number}");
        }
        number.is_some()
    }

    /// A line of dashes makes a title of the line above, if it is as wide.
    fn underline(&mut self, line: &[u8], out: &mut Out) {
        self.table = None;
        let title = self.held.pop();
        self.flush(out);
        let Some((title, number)) = title else { return };
        let text = scan::trim(&title);
        if text.len().abs_diff(scan::trim(line).len()) > 2 {
            self.held.push((title, number));
            return self.flush(out);
        }
        self.section = String::from_utf8_lossy(text).into_owned();
        // A title within the report of a thread stays within it, every other begins anew.
        if self.tid.is_none() {
            self.part.clear();
        }
    }

    /// A ruler makes headings of the lines above.
    fn ruler(&mut self, line: &[u8], out: &mut Out) {
        let mut columns = Vec::new();
        let mut at = 0;
        while let Some(i) = line[at..].iter().position(|b| *b == b'=') {
            let start = at + i;
            let end = line[start..].iter().position(|b| *b != b'=').map_or(line.len(), |n| start + n);
            columns.push(Column { start, end, key: String::new(), unit: None });
            at = end;
        }
        let from = self.held.len().saturating_sub(HEADINGS);
        let headings = self.held.split_off(from);
        let collapsed = headings.iter().find(|(heading, _)| is_collapsed(heading, columns.len()));
        for (heading, _) in headings.iter().filter(|_| collapsed.is_none()) {
            add_heading(heading, &mut columns);
        }
        if let Some((heading, number)) = collapsed {
            let found = scan::shown(scan::trim(heading), 80);
            let message = format!("expected headings over their columns, found `{found}`; the columns are numbered");
            let d = Diagnostic::new(Code::PartlyParsed, message).at_line(*number);
            out.diag(d.advise("give the report as curt wrote it, with its blanks"));
        }
        let of_threads = headings.iter().any(|(h, _)| memchr::memmem::find(h, b"Tid)").is_some());
        let named = columns.pop();
        for (i, column) in columns.iter_mut().enumerate() {
            column.unit = unit(&column.key);
            if column.key.is_empty() {
                column.key = format!("column {}", i + 1);
            }
        }
        let by_thread = named.is_some_and(|n| n.key.contains("Tid") || n.key.contains("Thread Id"))
            || (collapsed.is_some() && of_threads);
        self.table = Some(Table { columns, by_thread });
    }

    /// A row of figures with a text; false when the line is none.
    fn row(&mut self, line: &[u8], number: u64, out: &mut Out) -> bool {
        let Some(table) = &self.table else { return false };
        let (mut figures, mut at, mut misplaced) = (Vec::new(), 0, false);
        let name = loop {
            let Some(i) = line[at..].iter().position(|b| !scan::is_blank(*b)) else { break &b""[..] };
            let start = at + i;
            let word = scan::word(&line[start..]).0;
            let Some(value) = figure(word) else { break scan::trim(&line[start..]) };
            at = start + word.len();
            match place(&table.columns, start, at, figures.len()) {
                Some(column) => figures.push((column, value)),
                None => misplaced = true,
            }
        };
        if figures.is_empty() {
            return false;
        }
        if misplaced {
            self.unparsed += 1;
            out.diag(
                Diagnostic::new(Code::Unparsed, format!("more values than columns in `{}`", scan::shown(line, 100)))
                    .at_line(number),
            );
        }
        let name = String::from_utf8_lossy(name);
        let subject =
            [self.part.as_str(), &name].iter().filter(|s| !s.is_empty()).copied().collect::<Vec<_>>().join(" ");
        let tid = self.tid.or_else(|| table.by_thread.then(|| thread(&name)).flatten());
        let section = out.strings.intern(self.section.as_bytes());
        let subject = (!subject.is_empty()).then(|| out.strings.intern(subject.as_bytes()));
        for (column, value) in figures {
            let Column { key, unit, .. } = &table.columns[column];
            let key = out.strings.intern(key.as_bytes());
            let unit = unit.map(|u| out.strings.intern(u.as_bytes()));
            out.summaries.push().section(section).subject(subject).tid(tid).key(key).value(value).unit(unit);
        }
        true
    }

    /// Lines that turned out to be neither title nor heading.
    fn flush(&mut self, out: &mut Out) {
        for (line, _) in std::mem::take(&mut self.held) {
            self.single(scan::trim(&line), out);
        }
    }

    /// A single figure, or a sentence.
    fn single(&mut self, text: &[u8], out: &mut Out) {
        if text.starts_with(b"CPU ") && self.dispatches(text, out) {
            return;
        }
        let pair = split_pair(text);
        let (key, value) = pair.unwrap_or((b"note", text));
        let unit_of = unit(&String::from_utf8_lossy(key)).or_else(|| value.ends_with(b"%").then_some("%"));
        let section = out.strings.intern(self.section.as_bytes());
        let subject = (!self.part.is_empty()).then(|| out.strings.intern(self.part.as_bytes()));
        let key = out.strings.intern(key);
        let unit = unit_of.map(|u| out.strings.intern(u.as_bytes()));
        let number = pair.and_then(|_| figure(value));
        let text = number.is_none().then(|| out.strings.intern(value));
        let unit = unit.filter(|_| number.is_some());
        out.summaries
            .push()
            .section(section)
            .subject(subject)
            .tid(self.tid)
            .key(key)
            .value(number)
            .text(text)
            .unit(unit);
    }

    /// `CPU 0 : 33  CPU 1 : 12`: how often a thread was dispatched to each CPU.
    fn dispatches(&self, text: &[u8], out: &mut Out) -> bool {
        let mut pairs = Vec::new();
        for part in text.split(|b| *b == b'C').filter_map(|p| p.strip_prefix(b"PU ")) {
            let Some(colon) = memchr::memchr(b':', part) else { return false };
            let (cpu, times) = (scan::i64(scan::trim(&part[..colon])), figure(scan::trim(&part[colon + 1..])));
            let (Some(cpu), Some(times)) = (cpu, times) else { return false };
            pairs.push((cpu, times));
        }
        let section = out.strings.intern(self.section.as_bytes());
        let subject = (!self.part.is_empty()).then(|| out.strings.intern(self.part.as_bytes()));
        for (cpu, times) in &pairs {
            let key = out.strings.intern(format!("dispatched to CPU {cpu}").as_bytes());
            out.summaries.push().section(section).subject(subject).tid(self.tid).key(key).value(*times);
        }
        !pairs.is_empty()
    }
}

/// `TRACEBUFFER WRAPAROUND record read at 0.567201 seconds. ...`: the trace that was summed up has a gap.
fn discontinuity(text: &[u8], number: u64, out: &mut Out) {
    let has = |part: &[u8]| memchr::memmem::find(text, part).is_some();
    let cause = match () {
        () if has(b"WRAPAROUND") => "wraparound",
        () if has(b"TRACE OFF record read") => "trace off",
        () => return,
    };
    let at = memchr::memmem::find(text, b" read at ").map(|at| scan::word(&text[at + 9..]).0);
    let ts = at.and_then(scan::seconds);
    let cause = out.strings.intern(cause.as_bytes());
    out.losses.push().ts_from_ns(ts).cause(cause);
    let message = format!("the trace has a gap, `{}`", scan::shown(text, 100));
    let mut row = Diagnostic::new(Code::LostEvents, message).at_line(number);
    row.ts_ns = ts;
    out.diag(row.advise("the values are lower bounds: trace with larger buffers (trace -T, -L)"));
}

/// A figure, which may end in a percent sign.
fn figure(word: &[u8]) -> Option<f64> {
    let word = word.strip_suffix(b"%").unwrap_or(word);
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    if !digits.first()?.is_ascii_digit() || !digits.iter().all(|b| b.is_ascii_digit() || *b == b'.') {
        return None;
    }
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn number_after(text: &[u8], key: &[u8]) -> Option<i64> {
    let at = memchr::memmem::find(text, key)?;
    scan::i64(scan::word(&text[at + key.len()..]).0)
}

/// The thread of `oracle(143984 48841)`: the last number in the last parentheses.
fn thread(name: &str) -> Option<i64> {
    let inner = name.rsplit('(').next()?.split(')').next()?;
    inner.split_whitespace().last()?.parse().ok()
}

/// `key = value`, or `key: value`.
fn split_pair(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memmem::rfind(text, b" = ").map(|at| (at, 3));
    let at = at.or_else(|| memchr::memmem::find(text, b": ").map(|at| (at, 2)))?;
    let (key, value) = (scan::trim(&text[..at.0]), scan::trim(&text[at.0 + at.1..]));
    // A colon within parentheses belongs to a sentence.
    let open = key.iter().filter(|b| **b == b'(').count() == key.iter().filter(|b| **b == b')').count();
    (open && !key.is_empty() && !value.is_empty()).then_some((key, value))
}

/// The unit that a heading states.
fn unit(heading: &str) -> Option<&'static str> {
    if heading.contains("(msec)") || heading.contains("(ms)") {
        Some("ms")
    } else if heading.contains("percent") || heading.starts_with('%') {
        Some("%")
    } else {
        None
    }
}

/// The column whose ruler a figure shares bytes with, or is nearest to; none to its left twice.
fn place(columns: &[Column], start: usize, end: usize, used: usize) -> Option<usize> {
    let shared = columns.iter().position(|c| start < c.end && end > c.start);
    let nearest = || {
        let distance = |c: &Column| c.start.abs_diff(start).min(c.end.abs_diff(end));
        (0..columns.len()).min_by_key(|&i| distance(&columns[i]))
    };
    // Collapsed blanks put a figure under a ruler that the one before it has already: take them in order.
    let column = shared.or_else(nearest).filter(|c| *c >= used).or(Some(used));
    column.filter(|c| *c < columns.len())
}

/// True for a line of headings whose blanks were collapsed, as web pages do: several words for a
/// table of three columns or more, and nowhere the two blanks that part columns.
fn is_collapsed(line: &[u8], columns: usize) -> bool {
    let text = scan::trim(line);
    let words = text.split(|b| scan::is_blank(*b)).filter(|w| !w.is_empty()).count();
    columns >= 3 && words >= 2 && memchr::memmem::find(text, b"  ").is_none() && spanning(text).is_none()
}

/// Adds one line of headings to the columns under whose ruler its words stand. `-- text --` spans
/// several columns.
fn add_heading(line: &[u8], columns: &mut [Column]) {
    let mut at = 0;
    while let Some(i) = line[at..].iter().position(|b| !scan::is_blank(*b)) {
        let start = at + i;
        let (end, text) = match spanning(&line[start..]) {
            Some((len, text)) => (start + len, text),
            None => {
                let word = scan::word(&line[start..]).0;
                (start + word.len(), word)
            }
        };
        at = end;
        let wide = text.len() + 2 < end - start;
        let touched: Vec<usize> =
            (0..columns.len()).filter(|&i| start < columns[i].end && end > columns[i].start).collect();
        let nearest = (0..columns.len())
            .min_by_key(|&i| columns[i].start.saturating_sub(end).max(start.saturating_sub(columns[i].end)));
        let to = match (wide, &touched[..]) {
            (true, _) | (_, [_]) => touched,
            _ => nearest.into_iter().collect(),
        };
        for column in to {
            let key = &mut columns[column].key;
            if !key.is_empty() {
                key.push(' ');
            }
            key.push_str(&String::from_utf8_lossy(text));
        }
    }
}

/// `-- text --` at the start of a line: its length and its text.
fn spanning(text: &[u8]) -> Option<(usize, &[u8])> {
    let inner = text.strip_prefix(b"-- ")?;
    let end = memchr::memmem::find(inner, b" --")?;
    Some((end + 6, scan::trim(&inner[..end])))
}
