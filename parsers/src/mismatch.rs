//! What to say of a file or a line that does not fit: what it looks like instead.

use tracekit_schema::diag::{Code, Diagnostic};

use crate::binary::tar;
use crate::text::scan;
use crate::{Head, ParseError, FORMATS};

/// Bytes of a line that a diagnostic shows.
const SHOWN: usize = 120;

/// The diagnostic of a line that is not what was expected: what it is, and which format it looks like.
pub fn unparsed(line: &[u8], expected: &str) -> Diagnostic {
    let message = format!("expected {expected}, found `{}`", scan::shown(line, SHOWN));
    likely(Diagnostic::new(Code::Unparsed, message), line)
}

/// The option with which a line was printed, whose lines lack what a trace needs, and the advice.
///
/// As `kernel/trace/trace_output.c` prints: `print_raw_fmt`, `print_hex_fmt` and `print_bin_fmt` leave the
/// fields of tracepoints to `trace_nop_print` (`type: 372`); `trace_print_lat_context` has other columns
/// when it is verbose; without context-info the name of the event comes first.
fn printed_with(line: &[u8]) -> Option<(&'static str, &'static str)> {
    let line = line.trim_ascii();
    if let Some(option) = names_of_babeltrace(line) {
        return Some((option, "print it anew without -n"));
    }
    let digits = line.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    if digits > 0 && line[..line.len() - digits].ends_with(b"type: ") {
        return Some((
            "options raw, hex or bin of ftrace, which leave out the fields of events",
            "turn them off (`echo 0 > options/raw`, hex, bin) and print it anew",
        ));
    }
    let steps = memchr::memmem::find(line, b"ms (+").map(|at| &line[at + 5..]);
    if steps.and_then(|rest| memchr::memmem::find(rest, b"ms): ")).is_some_and(|at| at < 24) {
        return Some(("option verbose of ftrace", "turn it off (`echo 0 > options/verbose`) and print it anew"));
    }
    let colon = memchr::memchr(b':', line)?;
    let (event, fields) = (&line[..colon], line[colon + 1..].strip_prefix(b" ")?);
    let named = event.starts_with(b"sched_") && event.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
    if named && (fields.starts_with(b"comm=") || fields.starts_with(b"prev_comm=")) {
        return Some((
            "ftrace without its option context-info: no times, no CPUs",
            "turn it on (`echo 1 > options/context-info`) and print it anew",
        ));
    }
    None
}

/// With which names babeltrace2 printed a line: by itself it prints those of the payload and of contexts,
/// with `-n` others (its manual, `babeltrace2-sink.text.pretty(7)`).
pub fn names_of_babeltrace(line: &[u8]) -> Option<&'static str> {
    let has = |text: &[u8]| memchr::memmem::find(line, text).is_some();
    if line.starts_with(b"timestamp = ") && has(b", name = ") {
        return Some("babeltrace2 with the names of headers (-n all, -n header)");
    }
    let record = line.starts_with(b"[") && has(b"]") && line.ends_with(b"}");
    if record && (has(b"stream.packet.context = {") || has(b"event.fields = {")) {
        return Some("babeltrace2 with the names of scopes (-n scope)");
    }
    let start = memchr::memmem::find(line, b": { ").filter(|_| record)?;
    let groups = line[start + 2..].split(|b| *b == b'{').skip(1);
    let unnamed = |group: &[u8]| {
        let end = group.iter().position(|b| matches!(b, b'}' | b',')).unwrap_or(group.len());
        !group[..end].trim_ascii().is_empty() && !group[..end].contains(&b'=')
    };
    groups
        .into_iter()
        .any(unnamed)
        .then_some("babeltrace2 without the names of all fields (-n none, payload or context)")
}

/// Adds the format that a line looks like, if any, or how it was printed.
pub fn likely(d: Diagnostic, line: &[u8]) -> Diagnostic {
    if let Some((option, advice)) = printed_with(line) {
        return d.advise(format!("the line looks like {option}: {advice}"));
    }
    match likely_format(line) {
        Some(name) => d.advise(format!("the line looks like {name}")),
        None => d,
    }
}

/// True for a line of another format, for formats in which almost any line may go on the one before.
pub fn is_unexpected(line: &[u8]) -> bool {
    let signs = |b: &u8| matches!(b, b'[' | b'|' | b'*');
    let may_be = line.iter().any(signs) || memchr::memmem::find(line, b"KTRGRAPH").is_some();
    may_be && likely_format(line).is_some()
}

/// The format that a line on its own looks like.
fn likely_format(line: &[u8]) -> Option<&'static str> {
    let head = Head { bytes: line.to_vec(), whole: true };
    let sure = FORMATS.iter().map(|f| ((f.sniff)(&head), f.name)).filter(|(c, _)| *c >= 50);
    sure.max_by_key(|(c, _)| *c).map(|(_, name)| name)
}

/// What packs a trace and is not unpacked here: how it begins, what it is, and what to do.
const PACKED: [(&[u8], &str, &str); 3] = [
    (b"BZh", "a file packed by bzip2", "unpack it (`bzip2 -d`) and name what comes out; gzip, xz and zstd are read"),
    (
        b"\x04\x22\x4d\x18",
        "a file packed by lz4",
        "unpack it (`lz4 -d`) and name what comes out; gzip, xz and zstd are read",
    ),
    (b"PK\x03\x04", "a zip archive", "unpack it and name the trace in it"),
];

/// Files of other tools: how they begin, what they are, and how they can be read after all.
const RELATIVES: [(&[u8], &str, &str); 6] = [
    (b"\xc1\x1f\xfc\xc1", "a stream of a CTF trace (LTTng)", "give the folder that holds it and `metadata`"),
    (b"\xc1\xfc\x1f\xc1", "a stream of a CTF trace (LTTng)", "give the folder that holds it and `metadata`"),
    (b"{\"traceEvents\"", "a Chrome JSON trace", "read the trace that it was made from"),
    (b"{\"linux-perf-json-version\"", "perf's JSON", "read the perf.data file itself"),
    (b"SQLite format 3", "a database", "read the trace that it was made from"),
    (b"%PDF-", "a PDF", "read the trace itself"),
];

/// Of what begins with `BZh` and a digit, what bzip2 writes next.
const BZIP2_BLOCK: &[u8] = b"\x31\x41\x59\x26\x53\x59";
/// How many files of an archive an error names.
const NAMED: usize = 5;

/// The error of a source that is packed, where it is not unpacked here.
pub fn packed(head: &Head) -> Option<ParseError> {
    let bytes = &head.bytes;
    let (start, what, advice) = PACKED.iter().find(|(start, ..)| bytes.starts_with(start))?;
    if start.starts_with(b"BZ") && !bytes.get(4..).is_some_and(|rest| rest.starts_with(BZIP2_BLOCK)) {
        return None;
    }
    let message = format!("expected a scheduler trace, found {what}");
    Some(ParseError::new("unknown", "unknown-format", message).at_offset(0).advise(*advice))
}

/// The error of an archive of which no format knows the files.
fn archive(bytes: &[u8]) -> ParseError {
    let mut names: Vec<_> = tar::entries(bytes).into_iter().map(|entry| format!("`{}`", entry.path)).collect();
    if names.len() > NAMED {
        names.truncate(NAMED);
        names.push("...".to_owned());
    }
    let message = format!("expected a scheduler trace, found a tar archive of {}", names.join(", "));
    ParseError::new("unknown", "unknown-format", message).at_offset(0).advise("unpack it and name the trace in it")
}

/// The error of a source that no format recognises.
pub fn unknown(head: &Head) -> ParseError {
    let bytes = &head.bytes;
    let dense: Vec<u8> = bytes.iter().take(64).copied().filter(|b| !b.is_ascii_whitespace()).collect();
    let begins = |start: &&[u8]| bytes.starts_with(start) || dense.starts_with(start);
    if let Some((_, what, advice)) = RELATIVES.iter().find(|(start, ..)| begins(start)) {
        let message = format!("expected a scheduler trace, found {what}");
        return ParseError::new("unknown", "unknown-format", message).at_offset(0).advise(*advice);
    }
    if tar::is_tar(bytes) {
        return archive(bytes);
    }
    // The first and the last line may be cut: one may look so by chance.
    let mut printed = bytes.split(|b| *b == b'\n').filter_map(printed_with);
    if let (Some((option, advice)), Some(_)) = (printed.next(), printed.next()) {
        let message = format!("expected a scheduler trace, found text of {option}");
        return ParseError::new("unknown", "unknown-format", message).at_line(1).advise(advice);
    }
    let advice = "see `tracekit formats` for what can be read, or name one with --format";
    let printable = |b: &&u8| (b' '..0x7f).contains(*b) || b"\t\r\n".contains(*b) || **b >= 0x80;
    if bytes.iter().take(512).filter(printable).count() * 10 < bytes.len().min(512) * 9 {
        let start: Vec<_> = bytes.iter().take(8).map(|b| format!("{b:02x}")).collect();
        let message = format!("expected a scheduler trace, found binary data that begins {}", start.join(" "));
        return ParseError::new("unknown", "unknown-format", message).at_offset(0).advise(advice);
    }
    let mut lines = (1..).zip(bytes.split(|b| *b == b'\n')).map(|(n, l)| (n, l.trim_ascii()));
    let (number, line) = lines.find(|(_, l)| !l.is_empty()).unwrap_or((1, b""));
    // perf trace prints events of the scheduler as it prints system calls: `sched:sched_switch(...)`.
    let mut events = memchr::memmem::find_iter(bytes, b" sched:sched_");
    if events.any(|at| bytes[at + 1..].iter().find(|b| matches!(b, b'(' | b' ' | b'\n')) == Some(&b'(')) {
        let message = "expected a scheduler trace, found what perf trace prints, which names no CPU";
        let advice = "record with `perf sched record` and read its perf.data";
        return ParseError::new("unknown", "unknown-format", message).at_line(number).advise(advice);
    }
    // With `-F` but without `time`, perf script puts the event right behind the CPU.
    if memchr::memmem::find(bytes, b"] sched:sched_").is_some() {
        let message = "expected a scheduler trace, found what perf script prints without times";
        let advice = "print it anew without -F, or with `time` among its fields";
        return ParseError::new("unknown", "unknown-format", message).at_line(number).advise(advice);
    }
    let message = format!("expected a scheduler trace, found text that begins `{}`", scan::shown(line, 60));
    ParseError::new("unknown", "unknown-format", message).at_line(number).advise(advice)
}
