//! `trcrpt`: reports of the AIX trace.
//!
//! # Format
//!
//! **Produced by** `trcrpt -O timestamp=0,exec=on,pid=on,tid=on,cpuid=on trace.raw`; `tracekit
//! recipes aix` says how to capture. A trace of several CPUs is merged first (`trcrpt -C all -r`),
//! which is not a report yet.
//!
//! **Grammar**: a head (date, `System: AIX ...`, `Machine:`, the trace command), then a line of
//! column names, then one record a line. Columns are found by the place of their names in that
//! line, which may come again on each page:
//!
//! ```text
//! ID  PROCESS NAME   CPU PID       TID       I SYSTEM CALL ELAPSED_SEC     DELTA_MSEC   APPL    SYSCALL KERNEL  INTERRUPT
//! ```
//!
//! Every column may be missing, hook numbers too (`ids=off`; then the payload's first words name
//! the hook). With `2line=on` the payload stands on the line after. Numbers that leave their column
//! are found by the order of words, as are all columns where blanks were collapsed. A line without
//! hook and time goes on with the record before, at whatever width it was wrapped.
//!
//! **Clock**: seconds since the trace began (9 or 6 digits), or whole microseconds under `ELAPSED`.
//! Reports with `timestamp=3` have no time and are refused. The date has no zone, so wall time is
//! not derived from it.
//!
//! **Hooks**: 106 and 10C (dispatch, dispatch of idle) are switches; a thread dispatched in its own
//! place is `remain`; 11F is `enqueue`; 460, 462, 463 `sleep`; 461, 464 `wakeup`; 46D, 46E
//! `lock_wait`, `lock_wake`; 200 `resume`; 134, 135, 139, 465, 466, 467 exec, exit, fork, thread
//! create, start, end; 46B `prio`; 100 `interrupt`; 102, 103 `irq_entry`, `irq_exit`; 101, 104
//! system calls; 419 `vcpu_preempt`; 492 `hcall`; 001, 002 `trace_on`, `trace_off`, and tracing
//! that was off in between is a loss; 005, 006 WRAPAROUND are losses, with the missed entries in
//! hexadecimal. All others, and 4B0 (undispatch), are kept as `other` with their text. Payloads are
//! scanned for `key=value` from the right, because a command may contain anything; a hook that
//! lacks a key it needs is kept as `other`, flagged and counted.
//!
//! **Traps**: the state of a thread that leaves is not stated: it follows from the `sleep`,
//! `lock_wait` or `enqueue` record before. The wait kprocs, one a CPU, are idle; hook 10C does not
//! print their name, so they are named `wait`, as is a thread without name that leaves at priority
//! 255. Priority is AIX's own, smaller is better; policies 1 and 2 in `class` are the fixed
//! priorities. A CPU column is needed for exact CPUs; without it a record has the CPU of its
//! thread's last dispatch, flagged. `rq=` of 11F is kept as `value`: whether it is a CPU is not
//! documented. A record in the INTERRUPT column is flagged as made in interrupt context.
//!
//! **Sources**: IBM's public documentation of trace, trcrpt, curt and splat, and the public list of
//! hook numbers. **Verified** on the one documented report (101, 134) and on schedules written by
//! the tests in every layout; no whole report of a real system was at hand. Texts of 106, 11F, 139,
//! 465 and 46D are unconfirmed.

mod hooks;
mod layout;

use crate::error::ParseError;
use crate::formats::{Confidence, Format, FormatInfo};
use crate::text::lines::Lines;
use crate::text::scan;
use crate::{mismatch, Head, Options, Parser, Source};
use hooks::Rows;
use layout::{Fields, Header, Layout};
use tracekit_schema::table::Table;
use tracekit_schema::{Code, Diagnostic, Out};

const NAME: &str = "trcrpt";
/// A line at least this long may have been wrapped.
const WRAP: usize = 78;
/// A payload is not followed further than this.
const LONGEST: usize = 64 * 1024;

/// The row of the registry.
pub static FORMAT: Format = Format {
    name: NAME,
    title: "AIX trace reports (trcrpt)",
    streams: true,
    sniff,
    open,
    info: FormatInfo {
        produced_by: "trcrpt -O timestamp=0,exec=on,pid=on,tid=on,cpuid=on trace.raw > trace.txt",
        kinds: "switch, remain, enqueue, sleep, wakeup, lock_wait, lock_wake, resume, fork, exec, \
            exit, wakeup_new, prio, interrupt, irq_entry, irq_exit, sys_enter, sys_exit, \
            vcpu_preempt, hcall, trace_on, trace_off, lost, other",
        provides: "waker, priority, losses, policy, wait anchor; why a thread leaves only by the \
            records before it; no queue of an enqueue",
        resolution: "1 ns (timestamp=0), 1 us (timestamp=1 and 2)",
        clock: "time since the trace began",
        confidence: "experimental: verified on the documented sample and on schedules written and \
            read back in every layout; texts of hooks 106, 11F, 139, 465, 46D are unconfirmed",
        notes: "columns by the header line, every -O variant with a time; unknown hooks are kept as \
            other; wait kprocs are idle; WRAPAROUND and tracing switched off are losses",
    },
};

fn sniff(head: &Head) -> Confidence {
    for line in head.bytes.split(|b| *b == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match layout::header(line) {
            Some(Header::Whole(_) | Header::Timeless) => return 95,
            Some(Header::Levels) => return 85,
            _ => {}
        }
    }
    0
}

/// The columns of a report without options.
const PLAIN: &str = "ID ELAPSED_SEC DELTA_MSEC";
/// What follows the columns in every header.
const LEVELS: &str = "APPL SYSCALL KERNEL INTERRUPT";

/// The header of an excerpt that has none: the columns that the user names, or those of a report
/// without options where the time stands behind the hook.
fn assumed(head: &Head, options: &Options) -> Option<Header> {
    let plain = |line: &[u8]| {
        let (id, rest) = scan::word(line);
        let (time, _) = scan::word(scan::skip_blanks(rest));
        let hook = (3..=4).contains(&id.len()) && id.iter().all(u8::is_ascii_hexdigit);
        hook && memchr::memchr(b'.', time).is_some() && scan::seconds(time).is_some()
    };
    let named = options.extra.get("columns").map(String::as_str);
    let columns = named.or_else(|| head.bytes.split(|b| *b == b'\n').any(plain).then_some(PLAIN))?;
    layout::header(format!("{columns} {LEVELS}").as_bytes()).filter(|h| matches!(h, Header::Whole(_)))
}

fn open(mut source: Source, options: &Options, out: &mut Out) -> Result<Box<dyn Parser>, ParseError> {
    let head = source.head().map_err(|e| ParseError::io(NAME, &e))?;
    let lines = head.bytes.split(|b| *b == b'\n').zip(1u64..);
    let mut headers = lines
        .clone()
        .filter_map(|(line, number)| Some((layout::header(line.strip_suffix(b"\r").unwrap_or(line))?, number)));
    match headers.next() {
        Some((Header::Timeless, number)) => {
            let message = "expected a column ELAPSED, found a report without time (timestamp=3)";
            return Err(ParseError::new(NAME, "unsupported", message)
                .at_line(number)
                .advise("format it again with trcrpt -O timestamp=0,exec=on,pid=on,tid=on,cpuid=on"));
        }
        Some(_) => {}
        None if assumed(&head, options).is_some() => {}
        None => {
            let (line, number) = lines.clone().find(|(l, _)| !l.trim_ascii().is_empty()).unwrap_or((b"", 1));
            let message = format!(
                "expected a line with APPL SYSCALL KERNEL INTERRUPT, found none; the text begins `{}`",
                scan::shown(line, 60)
            );
            return Err(ParseError::new(NAME, "truncated", message).at_line(number).advise(
                "name the columns of an excerpt (option columns=\"ID PROCESS CPU PID TID ELAPSED_SEC DELTA_MSEC\")",
            ));
        }
    }
    let headed = headers.next().is_some() || lines.clone().any(|(l, _)| layout::header(l).is_some());
    let mut reader = Reader::default();
    if let Some(header) = assumed(&head, options).filter(|_| !headed) {
        reader.header(header, out);
        let message = "the text has no header; its columns are taken to be those of a report without options";
        let named = options.extra.contains_key("columns");
        let message = if named { "the text has no header; its columns are those that were named" } else { message };
        out.diag(Diagnostic::new(Code::Inferred, message).advise("name them (option columns), or add the header"));
    }
    out.meta.set("os", "aix");
    out.meta.set("prio.scale", "aix");
    out.meta.set("clock.name", "timebase");
    out.meta.set("clock.synchronised", "true");
    Ok(Box::new(Trcrpt { lines: Lines::new(source), reader, done: false }))
}

struct Trcrpt {
    lines: Lines,
    reader: Reader,
    done: bool,
}

impl Parser for Trcrpt {
    fn fill(&mut self, out: &mut Out, rows: usize) -> Result<bool, ParseError> {
        let enough = out.events.len() + rows.max(1);
        while out.events.len() < enough {
            if self.done {
                return Ok(false);
            }
            let number = self.lines.number + 1;
            match self.lines.next_line().map_err(|e| ParseError::io(NAME, &e))? {
                Some(line) => self.reader.line(line.bytes, number, line.ended, out),
                None => {
                    self.reader.finish(out);
                    out.meta.set("parse.lines", self.lines.number.to_string());
                    self.done = true;
                }
            }
        }
        Ok(true)
    }

    fn consumed(&self) -> u64 {
        self.lines.offset()
    }
}

/// A record whose payload may go on.
#[derive(Default)]
struct Pending {
    here: bool,
    fields: Fields<'static>,
    id_word: [u8; 4],
    id_len: usize,
    name: Vec<u8>,
    named: bool,
    payload: Vec<u8>,
    number: u64,
    /// Length of its last line.
    width: usize,
}

/// Lines become records.
#[derive(Default)]
struct Reader {
    layout: Option<Layout>,
    /// The columns of a header whose levels stand on the next line.
    half: Option<Layout>,
    pending: Pending,
    rows: Rows,
    decimals: usize,
    unparsed: u64,
}

impl Reader {
    fn line(&mut self, line: &[u8], number: u64, ended: bool, out: &mut Out) {
        let line = line.strip_prefix(b"\x0c").unwrap_or(line);
        if scan::skip_blanks(line).is_empty() {
            return;
        }
        if let Some(header) = layout::header(line) {
            return self.header(header, out);
        }
        let Some(layout) = &mut self.layout else { return head(line, out) };
        match layout.split(line) {
            Some(fields) => {
                Self::flush(&mut self.pending, &mut self.rows, out);
                self.decimals = self.decimals.max(fields.decimals);
                self.pending.begin(fields, number, line.len());
            }
            None => self.go_on(line, number, ended, out),
        }
    }

    fn header(&mut self, header: Header, out: &mut Out) {
        let mut layout = match header {
            Header::Whole(layout) => layout,
            Header::Columns(layout) => {
                self.half = Some(layout);
                return;
            }
            Header::Levels => match self.half.take() {
                Some(layout) => layout,
                None => return,
            },
            Header::Timeless => return,
        };
        if let Some(earlier) = &self.layout {
            layout.inherit(earlier);
        }
        self.rows.has_cpu = layout.has_cpu();
        out.meta.set("source.variant", layout.describe());
        self.layout = Some(layout);
    }

    /// A line without hook and time.
    fn go_on(&mut self, line: &[u8], number: u64, ended: bool, out: &mut Out) {
        let p = &mut self.pending;
        let indented = scan::is_blank(line[0]);
        let wrapped = p.width >= WRAP;
        if p.here && (indented || wrapped || p.payload.is_empty()) && !mismatch::is_unexpected(line) {
            if p.payload.len() < LONGEST {
                // A line wrapped at some width goes on in the middle of a word, an indented one does not.
                if indented && !p.payload.is_empty() {
                    p.payload.push(b' ');
                }
                p.payload.extend_from_slice(if indented { scan::trim(line) } else { line });
            }
            p.width = line.len();
            return;
        }
        self.unparsed += 1;
        let code = if ended { Code::Unparsed } else { Code::Truncated };
        out.diagnostics.push_with(code, || {
            let message = format!("expected a record with a time, found `{}`", scan::shown(line, 80));
            mismatch::likely(Diagnostic::new(code, message), line).at_line(number)
        });
    }

    fn flush(pending: &mut Pending, rows: &mut Rows, out: &mut Out) {
        if pending.here {
            pending.here = false;
            let fields = Fields {
                id_word: &pending.id_word[..pending.id_len],
                name: pending.named.then_some(&pending.name[..]),
                payload: scan::trim(&pending.payload),
                ..pending.fields
            };
            rows.add(&fields, pending.number, out);
        }
    }

    fn finish(&mut self, out: &mut Out) {
        Self::flush(&mut self.pending, &mut self.rows, out);
        let rows = &self.rows;
        out.meta.set("clock.resolution_ns", if self.decimals > 6 { "1" } else { "1000" });
        out.meta.set("parse.unparsed", self.unparsed.to_string());
        out.meta.set("loss.known", (!rows.lost_unknown).to_string());
        if !rows.lost_unknown {
            out.meta.set("loss.total", rows.lost.to_string());
        }
        if rows.dispatches == 0 {
            let message = "no dispatch record (hook 106 or 10C): nothing says who ran";
            let advice = "trace with -j 106,10C and the hooks that `tracekit recipes aix` lists";
            out.diag(Diagnostic::new(Code::MissingEvents, message).advise(advice));
        } else if rows.queued == 0 {
            let message =
                "no setrq record (hook 11F): since when a thread was runnable is known for woken threads only";
            out.diag(Diagnostic::new(Code::MissingEvents, message).advise("add hook 11F to the trace"));
        }
    }
}

impl Pending {
    fn begin(&mut self, f: Fields<'_>, number: u64, width: usize) {
        self.here = true;
        self.id_len = f.id_word.len().min(4);
        self.id_word[..self.id_len].copy_from_slice(&f.id_word[..self.id_len]);
        self.named = f.name.is_some();
        self.name.clear();
        self.name.extend_from_slice(f.name.unwrap_or(b""));
        self.payload.clear();
        self.payload.extend_from_slice(f.payload);
        self.fields = f.detached();
        self.number = number;
        self.width = width;
    }
}

/// A line above the header.
fn head(line: &[u8], out: &mut Out) {
    if let Some(rest) = line.strip_prefix(b"System: AIX ") {
        let (word, after) = scan::word(rest);
        let node = scan::keyed(after, b"Node:");
        let name = if word.iter().any(u8::is_ascii_alphabetic) { word } else { node.unwrap_or(word) };
        let name = if name.is_empty() { scan::word(after).0 } else { name };
        out.meta.set("host", scan::shown(name, 64));
    } else if let Some(rest) = line.strip_prefix(b"Machine: ") {
        out.meta.set("arch", format!("powerpc ({})", scan::shown(scan::trim(rest), 32)));
    } else if line.starts_with(b"trace ") || line.starts_with(b"/usr/bin/trace ") {
        recorded(line, out);
    }
}

/// The hooks that the trace command asked for (`-j`).
fn recorded(line: &[u8], out: &mut Out) {
    let (mut rest, mut hooks) = (line, Vec::new());
    loop {
        let (word, after) = scan::word(rest);
        if word.is_empty() {
            break;
        }
        rest = after;
        if let Some(list) = word.strip_prefix(b"-j") {
            let list = if list.is_empty() { scan::word(rest).0 } else { list };
            let ids = list.split(|b| *b == b',').filter(|id| !id.is_empty() && id.iter().all(u8::is_ascii_hexdigit));
            hooks.extend(ids.map(|id| format!("\"{}\"", String::from_utf8_lossy(id))));
        }
    }
    if !hooks.is_empty() {
        out.meta.set("events.recorded", format!("[{}]", hooks.join(",")));
    }
}
