//! `perf-latency`: the sums that `perf sched latency` prints, as summary rows.
//!
//! # Format
//!
//! **Produced by** `perf sched latency`, with `-p` by thread.
//!
//! **Grammar**: a heading, then a row a task, cells apart by `|`, each with its unit:
//!
//! ```text
//!   Task                  |   Runtime ms  | Switches | Avg delay ms    | Max delay ms    | Max delay start           | Max delay end          |
//!   forker:(151)          |     93.388 ms |      304 | avg:   1.696 ms | max:   4.123 ms | max start:    13.572501 s | max end:    13.576625 s
//!   hog00:230             |    524.013 ms |      155 | avg:   0.592 ms | max:   0.633 ms | max start:    13.736642 s | max end:    13.737275 s
//! ```
//!
//! `name:(n)` stands for n threads of one name, `name:230` for one. The heading names the cells;
//! perf up to 5.10 has one `max at:` in the place of the last two, perf of 2009 none. The first
//! perf printed `Tasks count total avg max` in ns. Newer ones head the third column `Count`: it has
//! always counted the switches before which a task waited.
//!
//! **Rows**: `subject` is the name, `tid` the thread where the row is about one, `key` one of
//! `runtime`, `switches`, `average delay`, `maximum delay`, `maximum delay at`, `maximum delay
//! start`, `maximum delay end`, `threads`. The line `TOTAL:` has no subject. A maximum that was
//! never met has no time: perf prints 0.000000 there.
//!
//! **Clock**: that of the recording, for the times of the maxima only.
//!
//! **Departures tolerated**: names of any length, names with colons, collapsed blanks, CRLF, perf's messages.
//!
//! **Losses**: `INFO: 1.2% lost events (3 out of 250, in 1 chunks)`. Its sister lines on context
//! switches and state machines say that the records contradict each other: a diagnostic each.
//!
//! **Sources**: Linux `tools/perf/builtin-sched.c`, `perf-sched(1)`; output of perf 2.6.31 to 6.1.

use tracekit_schema::diag::{Code, Diagnostic};
use tracekit_schema::Out;

use crate::text::perf_tables::{self, Reader, Report, Tool};
use crate::text::scan;
use crate::{Confidence, Format, FormatInfo, Head, Options, ParseError, Parser, Source};

/// The format's row.
pub static FORMAT: Format = Format {
    name: "perf-latency",
    title: "delays by task: perf sched latency",
    streams: true,
    sniff,
    open,
    info: FormatInfo {
        produced_by: "perf sched latency [-p]",
        kinds: "none: fills the table `summaries`",
        provides: "run time, switches, mean and longest delay of each task, as perf counted them; losses",
        resolution: "as printed (1 us)",
        clock: "perf's own, for the times of the longest delays",
        confidence: "real captures with perf 6.1; older layouts on published samples",
        notes: "a report, not a trace: nothing can be replayed from it",
    },
};

const EXPECTED: &str = "a row of perf sched latency `TASK | RUNTIME ms | SWITCHES | avg: ... | max: ...`";

fn sniff(head: &Head) -> Confidence {
    let mut rows = 0;
    for line in head.bytes.split(|b| *b == b'\n').take(500) {
        if is_heading(line) {
            return 95;
        }
        if is_first_heading(line) {
            return 70;
        }
        rows += u8::from(Row::of(line).is_some_and(|r| r.cells.len() > 2));
        if rows > 1 {
            return 80;
        }
    }
    match rows {
        0 if perf_tables::usage(head, "latency").is_some() => 60,
        0 => 0,
        _ => 65,
    }
}

fn is_heading(line: &[u8]) -> bool {
    let has = |text: &[u8]| memchr::memmem::find(line, text).is_some();
    scan::trim(line).starts_with(b"Task ") && has(b"|   Runtime ms") && (has(b"| Switches") || has(b"|  Count "))
}

/// The heading of the first perf.
fn is_first_heading(line: &[u8]) -> bool {
    let words = line.trim_ascii().split(|b| scan::is_blank(*b)).filter(|w| !w.is_empty());
    words.eq([&b"Tasks"[..], b"count", b"total", b"avg", b"max"])
}

fn open(mut source: Source, options: &Options, out: &mut Out) -> Result<Box<dyn Parser>, ParseError> {
    let head = source.head().map_err(|e| ParseError::io(FORMAT.name, &e))?;
    let any = |l: &[u8]| is_heading(l) || is_first_heading(l) || Row::of(l).is_some();
    if head.whole && !head.bytes.split(|b| *b == b'\n').any(any) {
        return Err(perf_tables::no_rows(FORMAT.name, "latency", EXPECTED, &head));
    }
    out.meta.set("os", "linux");
    out.meta.set("clock.name", options.clock.clone().unwrap_or_else(|| "perf".to_owned()));
    out.meta.set("clock.resolution_ns", "1000");
    Ok(Box::new(Reader::new(source, Latency { first: false })))
}

struct Latency {
    /// The layout of the first perf: nanoseconds without units.
    first: bool,
}

impl Tool for Latency {
    const NAME: &'static str = FORMAT.name;

    fn line(&mut self, line: &[u8], ended: bool, report: &mut Report, out: &mut Out) {
        let text = line.trim_ascii();
        if text.iter().all(|b| *b == b'-') || is_heading(line) {
            return;
        }
        if is_first_heading(line) {
            self.first = true;
            return;
        }
        if report.info(text, out) || (self.first && first_row(text, out)) {
            return;
        }
        match Row::of(line).filter(|_| ended) {
            Some(row) => row.add(report.number(), out),
            None => report.unparsed(line, ended, EXPECTED, out),
        }
    }

    fn finish(&mut self, out: &mut Out) {
        out.meta.set("source.variant", if self.first { "latency, ns" } else { "latency" });
    }
}

/// A figure of a row.
struct Cell {
    key: &'static str,
    value: f64,
    unit: Option<&'static str>,
}

/// One row.
struct Row<'l> {
    name: &'l [u8],
    tid: Option<i64>,
    threads: Option<i64>,
    total: bool,
    cells: Vec<Cell>,
    /// Cells that were not understood.
    odd: usize,
}

impl<'l> Row<'l> {
    /// The row in `line`: a task, and at least its run time and switches.
    fn of(line: &'l [u8]) -> Option<Self> {
        let mut parts = line.split(|b| *b == b'|').map(|part| part.trim_ascii());
        let task = parts.next()?;
        let colon = memchr::memrchr(b':', task)?;
        let (name, id) = (&task[..colon], task[colon + 1..].trim_ascii());
        let total = name == b"TOTAL" && id.is_empty();
        let threads = id.strip_prefix(b"(").and_then(|i| i.strip_suffix(b")")).and_then(scan::i64);
        let tid = scan::i64(id).filter(|tid| *tid >= 0);
        if !total && threads.is_none() && tid.is_none() {
            return None;
        }
        let runtime = number(parts.next()?.strip_suffix(b"ms")?)?;
        let switches = number(parts.next()?)?;
        let mut row = Row { name, tid, threads, total, cells: Vec::new(), odd: 0 };
        row.cells.push(Cell { key: "runtime", value: runtime, unit: Some("ms") });
        row.cells.push(Cell { key: "switches", value: switches, unit: None });
        for part in parts.filter(|p| !p.is_empty()) {
            match cell(part) {
                Some(cell) => row.cells.push(cell),
                None => row.odd += 1,
            }
        }
        Some(row)
    }

    /// Adds its figures.
    fn add(&self, line: u64, out: &mut Out) {
        let section = out.strings.intern(b"perf sched latency");
        let subject = (!self.total).then(|| out.strings.intern(self.name));
        let push = |out: &mut Out, key: &str, value: f64, unit: Option<&str>| {
            let key = out.strings.intern(key.as_bytes());
            let unit = unit.map(|u| out.strings.intern(u.as_bytes()));
            out.summaries.push().section(section).subject(subject).tid(self.tid).key(key).value(value).unit(unit);
        };
        if let Some(threads) = self.threads {
            push(out, "threads", threads as f64, None);
        }
        let never = self.cells.iter().any(|c| c.key == "maximum delay" && c.value == 0.0);
        for cell in &self.cells {
            if never && cell.value == 0.0 && cell.key.starts_with("maximum delay ") {
                continue;
            }
            push(out, cell.key, cell.value, cell.unit);
        }
        if self.odd > 0 {
            let odd = self.odd;
            out.diagnostics.push_with(Code::PartlyParsed, || {
                let name = scan::shown(self.name, 40);
                Diagnostic::new(Code::PartlyParsed, format!("{odd} cells of `{name}` were not understood"))
                    .at_line(line)
            });
        }
    }
}

/// `avg:   1.696 ms`, `max start:    13.572501 s`
fn cell(part: &[u8]) -> Option<Cell> {
    const KEYS: [(&[u8], &str); 5] = [
        (b"avg", "average delay"),
        (b"max", "maximum delay"),
        (b"max at", "maximum delay at"),
        (b"max start", "maximum delay start"),
        (b"max end", "maximum delay end"),
    ];
    let colon = memchr::memchr(b':', part)?;
    let key = KEYS.iter().find(|(label, _)| *label == part[..colon].trim_ascii())?.1;
    let (value, unit) = scan::word(&part[colon + 1..]);
    let unit = match unit.trim_ascii() {
        b"ms" => "ms",
        b"s" => "s",
        _ => return None,
    };
    Some(Cell { key, value: number(value)?, unit: Some(unit) })
}

/// `migration/0    2    39849    19924    28826`: count, total, average and longest delay in ns.
fn first_row(text: &[u8], out: &mut Out) -> bool {
    let mut rest = text;
    let mut values = [0.0; 4];
    for value in values.iter_mut().rev() {
        let Some(blank) = rest.iter().rposition(|b| scan::is_blank(*b)) else { return false };
        let Some(n) = number(&rest[blank + 1..]) else { return false };
        *value = n;
        rest = scan::trim(&rest[..blank]);
    }
    let section = out.strings.intern(b"perf sched latency");
    let subject = out.strings.intern(rest);
    let keys =
        [("switches", None), ("total delay", Some("ns")), ("average delay", Some("ns")), ("maximum delay", Some("ns"))];
    for ((key, unit), value) in keys.into_iter().zip(values) {
        let key = out.strings.intern(key.as_bytes());
        let unit = unit.map(|u: &str| out.strings.intern(u.as_bytes()));
        out.summaries.push().section(section).subject(subject).key(key).value(value).unit(unit);
    }
    true
}

/// A number without a sign.
fn number(text: &[u8]) -> Option<f64> {
    let text = text.trim_ascii();
    if !text.first()?.is_ascii_digit() || !text.iter().all(|b| b.is_ascii_digit() || *b == b'.') {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_every_age() {
        let row = Row::of(
            b"  a:b:(151) | 93.388 ms | 304 | avg: 1.696 ms | max: 4.1 ms | max start: 13.5 s | max end: 13.6 s",
        );
        let row = row.unwrap();
        assert_eq!((row.name, row.tid, row.threads, row.cells.len(), row.odd), (&b"a:b"[..], None, Some(151), 6, 0));
        let row =
            Row::of(b"  kworker/7:1-ev:1234567 |      0.010 ms |        1 | avg: 0.2 ms | max: 0.2 ms | max at: 1.5 s");
        let row = row.unwrap();
        assert_eq!((row.name, row.tid), (&b"kworker/7:1-ev"[..], Some(1_234_567)));
        assert_eq!(row.cells[4].key, "maximum delay at");
        let row = Row::of(b"  TOTAL:                |    626.260 ms |      619 |").unwrap();
        assert!(row.total && row.cells.len() == 2 && row.tid.is_none());
        let row = Row::of(b" :140:140 | 0.095 ms | 2 | avg: 3 ms | max: x ms | ").unwrap();
        assert_eq!((row.name, row.odd), (&b":140"[..], 1));
        assert!(Row::of(b" a:x | 0.095 ms | 2 |").is_none() && Row::of(b" a:1 | 0.095 s | 2 |").is_none());
    }
}
