//! `perf-sched-stats`: reports of `perf sched stats`, the counters of /proc/schedstat over a run.
//!
//! # Format
//!
//! **Produced by** `perf sched stats report` (perf 6.19 and later; the text of the tool's own documentation).
//!
//! **Grammar**: a table of the columns, the time of the run in jiffies, then a part for all CPUs,
//! for each CPU and for each of its domains; categories within a domain. Lines of figures are `NAME
//! : COUNT`, with `( N% )` of a base counter or `$ N $` jiffies between two events behind it:
//!
//! ```text
//! CPU 0, DOMAIN SMT CPUS 0,64
//! ----------------------------------------- <Category busy> ------------------------------------------
//! busy_lb_count                                                    :         136  $       17.08 $
//! ```
//!
//! **Rows** of `summaries`: `section` is the part's first words (`cpu`, `domain`), `subject` what
//! it is about (`CPU 0, DOMAIN SMT CPUS 0,64`), `key` the name. The figure behind it is a row of
//! its own, `NAME of base` in % or `NAME interval` in jiffies.
//!
//! **Clock**: none: totals over the run. **Losses**: none are possible; the kernel counts.
//!
//! **Not read**: `perf sched stats diff`, which compares two runs; it is refused.
//!
//! **Sources**: the documentation of `perf sched stats` (perf-sched(1), Linux 6.19);
//! Documentation/scheduler/sched-stats.

use std::sync::Arc;

use crate::error::ParseError;
use crate::formats::{Confidence, Format, FormatInfo};
use crate::text::scan;
use crate::{mismatch, Head, Options, Parser, Source};
use tracekit_schema::{Code, Out};

const NAME: &str = "perf-sched-stats";
const ELAPSED: &[u8] = b"Time elapsed (in jiffies)";

/// The row of the registry.
pub static FORMAT: Format = Format {
    name: NAME,
    title: "reports of perf sched stats: the kernel's scheduler counters",
    streams: false,
    sniff,
    open,
    info: FormatInfo {
        produced_by: "perf sched stats report",
        kinds: "none: fills the table `summaries`",
        provides: "run delay, yields, wakeups and load balancing by CPU and domain, as the kernel counted them",
        resolution: "as printed: counts, ns, jiffies",
        clock: "none: totals over the run",
        confidence: "documented samples: the report in the documentation of perf sched stats",
        notes: "a report, not a trace: nothing can be replayed from it; perf sched stats diff is refused",
    },
};

fn sniff(head: &Head) -> Confidence {
    if memchr::memmem::find(&head.bytes, ELAPSED).is_some() {
        90
    } else {
        0
    }
}

fn open(source: Source, _options: &Options, out: &mut Out) -> Result<Box<dyn Parser>, ParseError> {
    let all = source.into_bytes().map_err(|e| ParseError::io(NAME, &e))?;
    let text = (*all).as_ref();
    let mut lines = text.split(|b| *b == b'\n').zip(1u64..);
    let elapsed = lines.find(|(l, _)| scan::trim(l).starts_with(ELAPSED));
    let Some((line, number)) = elapsed else {
        let message = "expected the line `Time elapsed (in jiffies) : N`, found none";
        return Err(ParseError::new(NAME, "no-scheduler-events", message));
    };
    let value = line.rsplit(|b| *b == b':').next().unwrap_or_default();
    if value.contains(&b',') {
        let message = "this is a report of `perf sched stats diff`, which compares two runs";
        return Err(ParseError::new(NAME, "unsupported", message)
            .at_line(number)
            .advise("give the reports of the two runs (perf sched stats report)"));
    }
    out.meta.set("os", "linux");
    Ok(Box::new(Stats { all, done: false }))
}

struct Stats {
    all: Arc<dyn AsRef<[u8]> + Send + Sync>,
    done: bool,
}

impl Parser for Stats {
    fn fill(&mut self, out: &mut Out, _rows: usize) -> Result<bool, ParseError> {
        let mut report = Report::default();
        let mut lines = 0;
        for line in (*self.all).as_ref().split_inclusive(|b| *b == b'\n') {
            lines += 1;
            report.line(line, lines, out);
        }
        out.meta.set("parse.lines", lines.to_string());
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

#[derive(Default)]
struct Report {
    /// What the figures are about; none before the first part.
    subject: Option<Vec<u8>>,
    unparsed: u64,
}

/// A figure: name, value, and the one behind it with its kind.
struct Figure<'t> {
    name: &'t [u8],
    value: f64,
    behind: Option<(f64, &'static str, &'static str)>,
}

impl Report {
    fn line(&mut self, line: &[u8], number: u64, out: &mut Out) {
        let text = line.trim_ascii();
        // Rules, with or without a category between; the heading, and the table that explains it.
        let explains = [&b"DESC"[..], b"COUNT", b"PCT_CHANGE", b"AVG_JIFFIES", b"Columns description", b"Description"];
        if text.is_empty() || text.starts_with(b"---") || explains.iter().any(|e| text.starts_with(e)) {
            return;
        }
        if let Some(figure) = figure(text) {
            return self.add(&figure, out);
        }
        if text.starts_with(b"CPU ") {
            self.subject = Some(text.to_vec());
            return;
        }
        // The documentation explains names before the figures, `name -> words`.
        if self.subject.is_none() && memchr::memmem::find(text, b"->").is_some() {
            return;
        }
        self.unparsed += 1;
        let expected = "a line `NAME : COUNT` of perf sched stats";
        out.diagnostics.push_with(Code::Unparsed, || mismatch::unparsed(text, expected).at_line(number));
    }

    fn add(&self, figure: &Figure<'_>, out: &mut Out) {
        let part: &[u8] = match &self.subject {
            None => b"run",
            Some(subject) if memchr::memmem::find(subject, b"DOMAIN").is_some() => b"domain",
            Some(_) => b"cpu",
        };
        let section = out.strings.intern(part);
        let subject = self.subject.as_deref().map(|s| out.strings.intern(s));
        let unit = match figure.name {
            b"rq_cpu_time" | b"run_delay" => Some("ns"),
            ELAPSED => Some("jiffies"),
            _ => None,
        };
        let unit = unit.map(|u| out.strings.intern(u.as_bytes()));
        let key = out.strings.intern(figure.name);
        out.summaries.push().section(section).subject(subject).key(key).value(figure.value).unit(unit);
        if let Some((value, what, unit)) = figure.behind {
            let key = out.strings.intern(&[figure.name, b" ", what.as_bytes()].concat());
            let unit = out.strings.intern(unit.as_bytes());
            out.summaries.push().section(section).subject(subject).key(key).value(value).unit(unit);
        }
    }
}

/// `name : 136  $ 17.08 $`, `name : 147161  ( 36.58% )`, `name : 5`.
fn figure(text: &[u8]) -> Option<Figure<'_>> {
    let colon = memchr::memmem::rfind(text, b" :")?;
    let name = scan::trim(&text[..colon]);
    let (value, rest) = scan::word(scan::skip_blanks(&text[colon + 2..]));
    let value = number(value)?;
    let rest = scan::trim(rest);
    let within =
        |open: &[u8], close: &[u8]| rest.strip_prefix(open).and_then(|r| r.strip_suffix(close)).map(scan::trim);
    let behind = match (rest, within(b"(", b"%)").or_else(|| within(b"(", b"% )")), within(b"$", b"$")) {
        (b"", ..) => None,
        (_, Some(percent), _) => Some((number(percent)?, "of base", "%")),
        (_, _, Some(jiffies)) => Some((number(jiffies)?, "interval", "jiffies")),
        _ => return None,
    };
    (!name.is_empty()).then_some(Figure { name, value, behind })
}

fn number(word: &[u8]) -> Option<f64> {
    let digits = |b: &u8| b.is_ascii_digit() || matches!(b, b'.' | b'-');
    if word.is_empty() || !word.iter().all(digits) {
        return None;
    }
    std::str::from_utf8(word).ok()?.parse().ok()
}
