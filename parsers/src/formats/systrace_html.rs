//! Android's systrace: ftrace text inside a web page or Chrome's JSON, or deflated by atrace.
//!
//! **Produced by** `systrace.py -o trace.html`, by Chrome's tracing with events of the system
//! (`--json`), and by `atrace -z` (also through `adb shell`).
//!
//! **Grammar**: since Android 4.3 `<script class="trace-data" type="application/text">` blocks, of
//! which those with ftrace lines are taken (others hold a list of processes, or JSON). Before, one
//! string of JavaScript, `var linuxPerfData = "\`, whose lines end in `\n\`. atrace's own output is
//! the line `TRACE:` and a zlib stream. JSON holds it as the string `systemTraceEvents`. The text
//! inside is that of
//! [`ftrace_text`](super::ftrace_text), usually with a TGID column.
//!
//! **Clock**: as for ftrace text; atrace mostly uses `boot` or `global`, microseconds, rounded.
//!
//! **Kept and dropped**: as for ftrace text; the page's own code, lists of processes and JSON
//! blocks are dropped.
//!
//! **Departures tolerated**: CRLF, several trace blocks, a page without its end, a damaged end of
//! the zlib stream.
//!
//! **Traps**: lines of diagnostics count within the text, not within the page.
//!
//! **Sources**: catapult `systrace/` and `tracing/` (the importer of `systemTraceEvents`),
//! Perfetto's importer of systrace; public samples of Android 3 to 9.

use std::io::Read;

use memchr::memmem;
use tracekit_schema::diag::{Code, Diagnostic};
use tracekit_schema::Out;

use super::ftrace_text;
use crate::{Confidence, Format, FormatInfo, Head, Options, ParseError, Parser, Source};

/// The format's row.
pub static FORMAT: Format = Format {
    name: "systrace-html",
    title: "Android systrace pages, Chrome's JSON, deflated atrace output",
    streams: false,
    sniff,
    open,
    info: FormatInfo {
        produced_by: "systrace.py -o trace.html; Chrome's tracing; atrace -z",
        kinds: "all kinds of Linux that were recorded",
        provides: "waker, target CPU, priority, state, losses",
        resolution: "1 us, rounded",
        clock: "the trace clock, which the text does not name",
        confidence: "real captures",
        notes: "held in memory as a whole; lines of diagnostics count within the text inside the page",
    },
};

const BLOCK: &[u8] = b"<script class=\"trace-data\"";
const OLD: &[u8] = b"linuxPerfData = \"\\";
const BEGIN: &[u8] = b"<!-- BEGIN TRACE -->";
const END: &[u8] = b"</script>";
const ESCAPED: &[u8] = b"\\n\\";
const KEY: &[u8] = b"\"systemTraceEvents\"";

fn sniff(head: &Head) -> Confidence {
    let text = head.bytes.trim_ascii_start();
    if deflated(text).is_some() {
        return 97;
    }
    let first = text.split(|b| *b == b'\n').next().unwrap_or(b"").trim_ascii_end();
    if first.starts_with(b"# tracer: ") && first.ends_with(ESCAPED) {
        return 97;
    }
    if text.starts_with(b"{") {
        // The text stands behind the program's own events, which may be many.
        let many = !head.whole && memmem::find(text, b"\"traceEvents\"").is_some();
        return match system_events(text) {
            Some(_) => 95,
            None => u8::from(many) * 30,
        };
    }
    let page = [&b"<!DOCTYPE"[..], b"<!doctype", b"<html", b"<head"].iter().any(|tag| text.starts_with(tag));
    let android = [BLOCK, OLD, b"Android System Trace", b"i18n-values", b"trace-viewer"];
    match page {
        true if android.iter().any(|mark| memmem::find(text, mark).is_some()) => 90,
        _ => 0,
    }
}

/// The zlib stream behind the line `TRACE:`.
fn deflated(text: &[u8]) -> Option<&[u8]> {
    let rest = text.strip_prefix(b"TRACE:")?;
    let rest = rest.strip_prefix(b"\r\n").or_else(|| rest.strip_prefix(b"\n"))?;
    (rest.first() == Some(&0x78)).then_some(rest)
}

fn open(source: Source, options: &Options, out: &mut Out) -> Result<Box<dyn Parser>, ParseError> {
    let all = source.into_bytes().map_err(|e| ParseError::io(FORMAT.name, &e))?;
    let page = (*all).as_ref();
    let (text, variant) = extract(page, out)?;
    let parser = (ftrace_text::FORMAT.open)(Source::from_bytes(text), options, out)
        .map_err(|e| ParseError { format: FORMAT.name, ..e })?;
    let inner = out.meta.get("source.variant").unwrap_or_default().to_owned();
    out.meta.set("source.variant", format!("{variant}, {inner}"));
    Ok(parser)
}

/// The ftrace text within `page`, and in what form it was there.
fn extract(page: &[u8], out: &mut Out) -> Result<(Vec<u8>, &'static str), ParseError> {
    if let Some(stream) = deflated(page.trim_ascii_start()) {
        return inflate(stream, out).map(|text| (text, "deflated"));
    }
    if page.trim_ascii_start().starts_with(b"{") {
        let message = "expected the string `systemTraceEvents`, found a Chrome JSON trace without it";
        let missing = || ParseError::new(FORMAT.name, "unknown-format", message);
        let text = system_events(page).ok_or_else(|| missing().advise("read the trace that it was made from"))?;
        return Ok((of_json(text), "JSON"));
    }
    let mut text = Vec::new();
    for at in memmem::find_iter(page, BLOCK) {
        let rest = &page[at..];
        let Some(start) = memchr::memchr(b'>', rest) else { continue };
        let block = until_end(&rest[start + 1..]);
        if is_ftrace(block) {
            text.extend_from_slice(block);
            text.push(b'\n');
        }
    }
    if !text.is_empty() {
        return Ok((text, "page"));
    }
    if let Some(text) = assigned(page) {
        return Ok((text, "page before Android 4.3"));
    }
    if page.trim_ascii_start().starts_with(b"#") {
        return Ok((unescape(page), "lines of JavaScript"));
    }
    Err(ParseError::new(FORMAT.name, "damaged", "expected a block of trace data in the page, found none")
        .advise("save the page as systrace wrote it, or give the text of the trace itself"))
}

/// The text that the script of an old page assigns. The viewer's own code may hold the same words:
/// of the places after `BEGIN TRACE`, then of all, the first counts behind which a line of ftrace
/// stands.
fn assigned(page: &[u8]) -> Option<Vec<u8>> {
    let begin = memmem::find(page, BEGIN).unwrap_or(0);
    let after = memmem::find_iter(&page[begin..], OLD).map(|at| begin + at);
    let before = memmem::find_iter(&page[..begin], OLD);
    let text = |at: usize| unescape(until_end(&page[at + OLD.len()..]));
    let likely = |at: &usize| {
        let rest = &page[at + OLD.len()..];
        let first = unescape(until_end(&rest[..rest.len().min(crate::source::HEAD)]));
        is_ftrace(&first)
    };
    after.chain(before).find(likely).map(text)
}

fn until_end(text: &[u8]) -> &[u8] {
    &text[..memmem::find(text, END).unwrap_or(text.len())]
}

/// True for a block of ftrace lines, not of processes or JSON.
fn is_ftrace(block: &[u8]) -> bool {
    let head =
        Head { bytes: block.trim_ascii_start().iter().take(crate::source::HEAD).copied().collect(), whole: true };
    (ftrace_text::FORMAT.sniff)(&head) > 0
}

/// Lines of a JavaScript string: they end in `\n\`, and quotes and backslashes are escaped.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    for line in text.split(|b| *b == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = line.strip_suffix(ESCAPED).unwrap_or(line);
        if line.starts_with(b"\";") {
            break;
        }
        let mut escaped = false;
        for &b in line {
            if escaped || b != b'\\' {
                plain.push(b);
            }
            escaped = !escaped && b == b'\\';
        }
        plain.push(b'\n');
    }
    plain
}

/// What stands behind the quote that begins the text of the system's events in Chrome's JSON.
fn system_events(json: &[u8]) -> Option<&[u8]> {
    memmem::find_iter(json, KEY).filter(|at| *at == 0 || json[at - 1] != b'\\').find_map(|at| {
        let rest = json[at + KEY.len()..].trim_ascii_start().strip_prefix(b":")?;
        rest.trim_ascii_start().strip_prefix(b"\"")
    })
}

/// The string of JSON that ends at the first quote of its own.
fn of_json(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at).filter(|b| **b != b'"') {
        at += 1;
        if byte != b'\\' {
            plain.push(byte);
            continue;
        }
        let Some(&escape) = text.get(at) else { break };
        at += 1;
        match escape {
            b'n' => plain.push(b'\n'),
            b't' => plain.push(b'\t'),
            b'r' => plain.push(b'\r'),
            b'u' => {
                let unit =
                    text.get(at..at + 4).and_then(|d| u32::from_str_radix(std::str::from_utf8(d).ok()?, 16).ok());
                at += 4;
                // Halves of a pair cannot stand in the name of a task whole.
                let letter = unit.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
                plain.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => plain.push(other),
        }
    }
    plain
}

/// The text of a zlib stream; what comes before a damage is kept.
fn inflate(stream: &[u8], out: &mut Out) -> Result<Vec<u8>, ParseError> {
    let mut text = Vec::new();
    if let Err(e) = flate2::read::ZlibDecoder::new(stream).read_to_end(&mut text) {
        if text.is_empty() {
            let message = format!("expected a zlib stream after `TRACE:`, found damage: {e}");
            return Err(ParseError::new(FORMAT.name, "damaged", message));
        }
        let message = format!("the zlib stream breaks off after {} bytes of text: {e}", text.len());
        out.diag(Diagnostic::new(Code::Damaged, message).advise("pull the trace again, in binary mode"));
    }
    Ok(text)
}
