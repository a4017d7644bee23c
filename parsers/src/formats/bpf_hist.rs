//! `bpf-hist`: histograms that bcc and bpftrace print: `runqlat`, `cpudist`, `runqlen` and their relatives.
//!
//! # Format
//!
//! **Produced by** bcc's `runqlat`, `runqlen`, `cpudist` (also those of libbpf-tools), and bpftrace
//! programs with `hist()` or `lhist()`, `runqlat.bt` among them.
//!
//! **Grammar** of bcc: an optional line with a key (`pid = 1234`, `cpu = 0`), a heading, rows until
//! one is not:
//!
//! ```text
//!      usecs               : count     distribution
//!          0 -> 1          : 233      |***********                             |
//! ```
//!
//! A row of one value (`0   : 1068   |***|`) is a bucket of one step. bpftrace: `@usecs:` or
//! `@usecs[key]:`, then rows `[4, 8)   161 |@@   |`, `[1]   10 |`, `(..., 0)`, `[1M, ...)`; K, M, G
//! are powers of 1024.
//!
//! **Rows**: a bucket `[lo, hi)` each in `histograms`. bcc prints the last value of a bucket, so
//! `hi` is one more. `unit` is ns, us or ms where the heading or the map's name says so. `title` is
//! the line that begins `Tracing`, or the map's name; `key` the key. With intervals (`runqlat 1`)
//! the time of day is put before the key. `runqocc: 32.11%` is a row of `summaries`.
//!
//! **Clock**: none. **Losses**: `Lost N events` (bpftrace), `Possibly lost N samples` (bcc), without a time.
//!
//! **Departures tolerated**: indented text, prompts and other text around (counted as not understood).
//!
//! **Sources**: bcc `tools/*_example.txt`, libbpf-tools `trace_helpers.c`, the bpftrace manual.
//! **Verified** on the layout of those examples.

use std::sync::Arc;

use crate::error::ParseError;
use crate::formats::{Confidence, Format, FormatInfo};
use crate::text::scan;
use crate::{mismatch, Head, Options, Parser, Source};
use tracekit_schema::table::Table;
use tracekit_schema::{Code, Diagnostic, Out};

const NAME: &str = "bpf-hist";

/// The row of the registry.
pub static FORMAT: Format = Format {
    name: NAME,
    title: "histograms of bcc and bpftrace: runqlat, cpudist, runqlen",
    streams: false,
    sniff,
    open,
    info: FormatInfo {
        produced_by: "runqlat, cpudist, runqlen of bcc or libbpf-tools; bpftrace programs with hist() or lhist()",
        kinds: "none: fills the table `histograms`; run-queue occupancy goes to `summaries`",
        provides: "queue length, times on CPU and other distributions by key, losses",
        resolution: "the buckets printed",
        clock: "none: totals over the run or the interval",
        confidence: "documented samples: the layout of the examples of bcc and of the bpftrace manual",
        notes: "a result, not a trace: nothing can be replayed from it",
    },
};

fn sniff(head: &Head) -> Confidence {
    let mut reader = Reader { quiet: true, ..Reader::default() };
    let mut out = Out::new();
    for line in head.bytes.split(|b| *b == b'\n') {
        reader.line(line.strip_suffix(b"\r").unwrap_or(line), 1, &mut out);
        if !out.histograms.is_empty() {
            return 88;
        }
    }
    0
}

fn open(source: Source, _options: &Options, _out: &mut Out) -> Result<Box<dyn Parser>, ParseError> {
    let all = source.into_bytes().map_err(|e| ParseError::io(NAME, &e))?;
    let text = (*all).as_ref();
    if sniff(&Head { bytes: text.to_vec(), whole: true }) == 0 {
        let (line, number) =
            text.split(|b| *b == b'\n').zip(1u64..).find(|(l, _)| !l.trim_ascii().is_empty()).unwrap_or((b"", 1));
        let found = scan::shown(scan::trim(line), 60);
        let message =
            format!("expected a histogram of bcc or bpftrace, found none in the text, which begins `{found}`");
        return Err(ParseError::new(NAME, "no-scheduler-events", message).at_line(number));
    }
    Ok(Box::new(Hist { all, done: false }))
}

struct Hist {
    all: Arc<dyn AsRef<[u8]> + Send + Sync>,
    done: bool,
}

impl Parser for Hist {
    fn fill(&mut self, out: &mut Out, _rows: usize) -> Result<bool, ParseError> {
        let mut reader = Reader::default();
        let mut lines = 0;
        for line in (*self.all).as_ref().split_inclusive(|b| *b == b'\n') {
            lines += 1;
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            reader.line(line.strip_suffix(b"\r").unwrap_or(line), lines, out);
        }
        out.meta.set("os", "linux");
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

/// Which tool's rows may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Bcc,
    Bpftrace,
}

#[derive(Debug, Default)]
struct Reader {
    title: Option<Vec<u8>>,
    time: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
    unit: Option<&'static str>,
    block: Option<Block>,
    unparsed: u64,
    /// Says nothing of lines that fit nothing: what they look like is found by sniffing them.
    quiet: bool,
}

impl Reader {
    fn line(&mut self, line: &[u8], number: u64, out: &mut Out) {
        let text = scan::trim(line);
        if let Some(block) = self.block {
            let row = match block {
                Block::Bcc => bcc_row(text),
                Block::Bpftrace => bpftrace_row(text),
            };
            if let Some((lo, hi, count)) = row {
                return self.bucket(lo, hi, count, out);
            }
            self.block = None;
            self.key = None;
        }
        // bpftrace says so before it attaches probes, or once it has.
        let probes = text.starts_with(b"Attaching ") || text.starts_with(b"Attached ");
        if text.is_empty() || text == b"^C" || probes {
            return;
        }
        if let Some(unit) = bcc_heading(text) {
            self.unit = unit;
            self.block = Some(Block::Bcc);
        } else if let Some((map, key)) = map_name(text) {
            self.title = Some(map.to_vec());
            self.key = key.map(<[u8]>::to_vec);
            self.unit = unit_of(map);
            self.block = Some(Block::Bpftrace);
        } else if text.starts_with(b"Tracing ") || text.starts_with(b"Sampling ") {
            self.title = Some(text.to_vec());
        } else if is_time(text) {
            self.time = Some(text.strip_suffix(b":").unwrap_or(text).to_vec());
        } else if let Some(percent) = text.strip_prefix(b"runqocc:").and_then(percent) {
            let section = out.strings.intern(b"run-queue occupancy");
            let subject = self.key.take().map(|key| out.strings.intern(&key));
            let (key, unit) = (out.strings.intern(b"runqocc"), out.strings.intern(b"%"));
            out.summaries.push().section(section).subject(subject).key(key).value(percent).unit(unit);
        } else if let Some(count) = lost(text) {
            let cause = out.strings.intern(b"ring_full");
            out.losses.push().count(count).cause(cause);
            let message = format!("{count} events found no room in the buffer of the tool");
            out.diag(
                Diagnostic::new(Code::LostEvents, message).at_line(number).advise("enlarge its buffer (perf_rb_pages)"),
            );
        } else if is_key(text) {
            self.key = Some(text.to_vec());
        } else {
            self.unparsed += 1;
            if self.quiet {
                return;
            }
            let expected = "a histogram of bcc or bpftrace";
            out.diagnostics.push_with(Code::Unparsed, || mismatch::unparsed(line, expected).at_line(number));
        }
    }

    fn bucket(&mut self, lo: Option<i64>, hi: Option<i64>, count: i64, out: &mut Out) {
        let title = self.title.as_deref().map(|t| out.strings.intern(t));
        let parts: Vec<&[u8]> = [&self.time, &self.key].into_iter().filter_map(|p| p.as_deref()).collect();
        let key = (!parts.is_empty()).then(|| out.strings.intern(&parts.join(&b" "[..])));
        let unit = self.unit.map(|u| out.strings.intern(u.as_bytes()));
        out.histograms.push().title(title).key(key).lo(lo).hi(hi).count(count).unit(unit);
    }
}

/// A bucket: bounds, and how many.
type Row = (Option<i64>, Option<i64>, i64);

/// `usecs   : count   distribution`; the unit.
fn bcc_heading(text: &[u8]) -> Option<Option<&'static str>> {
    let colon = memchr::memchr(b':', text)?;
    let rest = text[colon + 1..].trim_ascii().strip_prefix(b"count")?;
    (rest.trim_ascii() == b"distribution").then(|| unit_of(scan::trim(&text[..colon])))
}

/// The unit that a heading or the name of a map says.
fn unit_of(name: &[u8]) -> Option<&'static str> {
    let name = name.strip_prefix(b"@").unwrap_or(name);
    match name {
        b"nsecs" | b"ns" => Some("ns"),
        b"usecs" | b"us" => Some("us"),
        b"msecs" | b"ms" => Some("ms"),
        b"secs" | b"s" => Some("s"),
        _ => None,
    }
}

/// `4 -> 7   : 203   |***|`, or `3   : 17   |***|`.
fn bcc_row(text: &[u8]) -> Option<Row> {
    let colon = memchr::memchr(b':', text)?;
    let bar = colon + memchr::memchr(b'|', &text[colon..])?;
    let count = scan::i64(scan::trim(&text[colon + 1..bar]))?;
    let bounds = scan::trim(&text[..colon]);
    let (lo, last) = match memchr::memmem::find(bounds, b"->") {
        Some(at) => (scan::i64(scan::trim(&bounds[..at]))?, scan::i64(scan::trim(&bounds[at + 2..]))?),
        None => (scan::i64(bounds)?, scan::i64(bounds)?),
    };
    (lo <= last).then_some((Some(lo), last.checked_add(1), count))
}

/// `@usecs:`, `@usecs[1234, sh]:`
fn map_name(text: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let name = text.strip_suffix(b":").filter(|n| n.starts_with(b"@"))?;
    let word = |n: &[u8]| n[1..].iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let (map, key) = match memchr::memchr(b'[', name) {
        Some(open) => (&name[..open], Some(name[open + 1..].strip_suffix(b"]")?)),
        None => (name, None),
    };
    word(map).then_some((map, key))
}

/// `[4, 8)   161 |@@|`, `[1]   10 |@|`, `(..., 0)   2 |@|`, `[1M, ...)   1 |@|`.
fn bpftrace_row(text: &[u8]) -> Option<Row> {
    let bar = memchr::memchr(b'|', text)?;
    let close = text[..bar].iter().position(|b| matches!(b, b']' | b')'))?;
    let count = scan::i64(scan::trim(&text[close + 1..bar]))?;
    let bounds = text.get(1..close).filter(|_| matches!(text[0], b'[' | b'('))?;
    let bound = |word: &[u8]| match scan::trim(word) {
        b"..." => Some(None),
        word => scaled(word).map(Some),
    };
    let Some(comma) = memchr::memchr(b',', bounds) else {
        let value = scaled(scan::trim(bounds))?;
        return Some((Some(value), value.checked_add(1), count));
    };
    Some((bound(&bounds[..comma])?, bound(&bounds[comma + 1..])?, count))
}

/// A number that K, M, G, T or P may end.
fn scaled(word: &[u8]) -> Option<i64> {
    let (last, rest) = word.split_last()?;
    let power = match last {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        b'T' => 40,
        b'P' => 50,
        _ => return scan::i64(word),
    };
    scan::i64(rest)?.checked_mul(1 << power)
}

/// `Lost 12 events` of bpftrace, `Possibly lost 12 samples` of bcc.
fn lost(text: &[u8]) -> Option<i64> {
    let rest = text.strip_prefix(b"Lost ").or_else(|| text.strip_prefix(b"Possibly lost "))?;
    let (count, what) = scan::word(rest);
    matches!(scan::trim(what), b"events" | b"samples").then(|| scan::i64(count)).flatten()
}

/// `32.11%`
fn percent(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(scan::trim(text).strip_suffix(b"%")?).ok()?.parse().ok().filter(|p: &f64| p.is_finite())
}

/// `08:21:04`, with or without a colon behind.
fn is_time(text: &[u8]) -> bool {
    let text = text.strip_suffix(b":").unwrap_or(text);
    let mut parts = text.split(|b| *b == b':');
    let two = |part: &[u8]| part.len() == 2 && part.iter().all(u8::is_ascii_digit);
    parts.clone().count() == 3 && parts.all(two)
}

/// `pid = 1234`, `pid = 1234 sh`, `cpu = 0`.
fn is_key(text: &[u8]) -> bool {
    let Some(at) = memchr::memmem::find(text, b" = ") else { return false };
    at > 0 && text[..at].iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_of_every_shape() {
        assert_eq!(bcc_row(b"4 -> 7          : 203      |***   |"), Some((Some(4), Some(8), 203)));
        assert_eq!(bcc_row(b"3          : 17     |*|"), Some((Some(3), Some(4), 17)));
        assert_eq!(bcc_row(b"7 -> 4 : 1 |*|"), None);
        assert_eq!(bcc_row(b"0 -> 9223372036854775807 : 1 |*|"), Some((Some(0), None, 1)));
        assert_eq!(bpftrace_row(b"[4, 8)         161 |@@  |"), Some((Some(4), Some(8), 161)));
        assert_eq!(bpftrace_row(b"[2K, 4K)         1 |@|"), Some((Some(2048), Some(4096), 1)));
        assert_eq!(bpftrace_row(b"(..., 0)         2 |@|"), Some((None, Some(0), 2)));
        assert_eq!(bpftrace_row(b"[100, ...)       2 |@|"), Some((Some(100), None, 2)));
        assert_eq!(bpftrace_row(b"[1]       2 |@|"), Some((Some(1), Some(2), 2)));
        assert_eq!(bpftrace_row(b")       2 |@|"), None);
        assert_eq!(bcc_heading(b"usecs               : count    distribution"), Some(Some("us")));
        assert_eq!(bcc_heading(b"runqlen       : count     distribution"), Some(None));
        assert_eq!(map_name(b"@us[1, sh]:"), Some((&b"@us"[..], Some(&b"1, sh"[..]))));
    }
}
