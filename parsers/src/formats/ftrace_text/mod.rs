//! ftrace as text.
//!
//! **Produced by** `cat /sys/kernel/tracing/trace` or `trace_pipe`, `trace-cmd report` (plain,
//! `-l`, `-t`, `-R`), atrace and bytrace without HTML, and a kernel that prints its buffer into its
//! log (`ftrace_dump_on_oops`, `sysrq-z`).
//!
//! **Grammar** of a line: `COMM-TID (TGID) [CPU] FLAGS TIME: EVENT: PAYLOAD`, where the TGID and
//! the flags may be absent; latency layouts glue `CPU` and flags together and cut the name at eight
//! characters. Payloads are those of [`payload`](crate::text::payload). Lines that begin with `#`
//! are the header; `CPU:3 [LOST 7 EVENTS]` and `CPU:3 [7 EVENTS DROPPED]` are losses; ` =>
//! function` lines are stacks. The tracer `function_graph` prints events as comments between
//! functions: `TIME | CPU)  COMM-TID | | /* EVENT: PAYLOAD */`, each of the first parts an option.
//!
//! **Clock**: whatever `trace_clock` was; the text does not say. Six digits are microseconds that
//! both the kernel and trace-cmd *rounded*, so they differ by up to 1 us from what `perf script`
//! prints of the same run, which truncates. Times without a dot are ticks of a counter. `uptime`
//! has the resolution of a jiffy. The kernel's own latency layout prints `TIMEus`, microseconds
//! since its buffer was last emptied: all CPUs share that beginning.
//!
//! **Kept**: every event; those without a kind as `other` with their payload. **Dropped**: stack
//! lines, the functions of `function_graph` and its events without a time (which a diagnostic
//! counts), the text that tracers print between events, the mark of delays, what atrace says before it
//! prints, and the other messages in a log of the kernel.
//!
//! **Departures tolerated**: numbers of lines or marks of a quotation before a padded name; names
//! with blanks, `-`, `[` and `:`; `success=` present or not; words
//! that vendors append; a kernel message spliced into the header; a cut last line; CRLF; a byte
//! order mark; colours; records that a mail or a terminal wrapped; the time and the caller that the
//! kernel's log puts before a line. trace-cmd puts the name of an instance before its lines, and that
//! of a file when it merges several: see [`labels`].
//!
//! **Traps**: the name in a line's head is what the kernel remembered when the text was made, not
//! when the event happened (it remembers 128 names by default, `<...>` is an unknown one); names in
//! payloads are true. trace-cmd's plugin prints `R` for a preempted task and drops the `+`. States
//! of `-R` are numbers that mean different things in different kernels. A tracer that measures a
//! latency (`wakeup`, `irqsoff`, `preemptoff` and their kin) prints what one CPU did during its
//! worst case: not a basis for scheduling figures, so its lines become markers. The tracer
//! `sched_switch` of kernels up to 3.13 prints every switch and wakeup, in entries of its own.
//!
//! **Sources**: Linux `kernel/trace/trace_output.c`, `kernel/trace/trace.c` (`ftrace_dump`),
//! `include/trace/events/sched.h`, `Documentation/trace/ftrace.rst`; Android
//! `cmds/atrace/atrace.cpp`; libtraceevent `plugins/plugin_sched_switch.c`; trace-cmd
//! `tracecmd/trace-read.c`; captures with trace-cmd 3.1.6 and kernels 3.10 to 6.18.

mod console;
mod graph;
mod head;
mod header;
mod labels;

use std::collections::BTreeSet;

use head::Time;
use tracekit_schema::diag::{Code, Diagnostic};
use tracekit_schema::events::quality;
use tracekit_schema::{Kind, Out};

use crate::text::head::QuickHead;
use crate::text::log::{Dialect, Log, LogLine, Stamp, TextLog, Who, Wrapped};
use crate::text::payload::quick::{self, Quick};
use crate::text::payload::sched::{context_comm, Entry};
use crate::text::payload::{self, state};
use crate::text::scan;
use crate::text::swar::{past_blank, Window};
use crate::{Confidence, Format, FormatInfo, Head, Options, ParseError, Parser, Source};

/// The format's row.
pub static FORMAT: Format = Format {
    name: "ftrace-text",
    title: "ftrace as text: trace, trace_pipe, trace-cmd report",
    streams: true,
    sniff,
    open,
    info: FormatInfo {
        produced_by: "cat /sys/kernel/tracing/trace; trace-cmd report [-l] [-t] [-R]",
        kinds: "all kinds of Linux that were recorded",
        provides: "waker, target CPU, priority, state, losses",
        resolution: "1 us, rounded; 1 ns with trace-cmd report -t",
        clock: "the trace clock, which the text does not name",
        confidence: "real captures",
        notes: "tracers of latencies become markers; -R needs the kernel's table of states, which is \
            inferred (option kernel); of a report that merges several files one is read (option \
            file)",
    },
};

/// What a line must look like, for diagnostics.
const EXPECTED: &str = "an ftrace line `COMM-TID [CPU] TIME: EVENT: ...`";

/// What to do about a text without events of the scheduler.
const ADVICE: &str = "record the events of the `sched` subsystem";

/// What to do about events among functions that bear no time.
const GRAPH_ADVICE: &str = "set the option funcgraph-abstime, or record with trace-cmd";

fn sniff(head: &Head) -> Confidence {
    let text = scan::plain(head.bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&head.bytes));
    if text.starts_with(b"# tracer: ") {
        return 95;
    }
    let first = text.trim_ascii_start();
    if [&b"<!"[..], b"<html", b"<head"].iter().any(|tag| first.starts_with(tag)) {
        return 0;
    }
    let mut lines = text.split(|b| *b == b'\n').take(2000);
    let whole = |l: &[u8]| {
        let found = head::parse(l.strip_suffix(b"\r").unwrap_or(l));
        found.is_some_and(|h| h.body.contains(&b':') && !gone(&h) && !of_system(h.body))
    };
    if lines.any(whole) {
        80
    } else {
        0
    }
}

/// Does the event come with its subsystem, as perf prints it (`sched:sched_switch: ...`)? Without thread
/// numbers (`-F comm,cpu,time,event,trace`) the end of a name (`memfd:sealed-91`) looks like one.
fn of_system(body: &[u8]) -> bool {
    let word = body.trim_ascii_start().split(|b| b.is_ascii_whitespace()).next().unwrap_or_default();
    let mut parts = word.strip_suffix(b":").unwrap_or_default().split(|b| *b == b':');
    let named = |part: Option<&[u8]>| part.is_some_and(|p| p.first().is_some_and(u8::is_ascii_lowercase));
    named(parts.next()) && named(parts.next()) && parts.next().is_none()
}

/// Is it perf's head of a task that has ended, whose thread it prints as -1 (`:-1 -1 [000]`, `:-1
/// 27228/-1 [000]`)? Thread 1, which ftrace would mean by that, has a name right before the dash.
fn gone(h: &head::Head) -> bool {
    h.tid == 1 && matches!(h.comm.last(), Some(b' ' | b'\t' | b'/'))
}

fn open(mut source: Source, options: &Options, out: &mut Out) -> Result<Box<dyn Parser>, ParseError> {
    let head = source.head().map_err(|e| ParseError::io(FORMAT.name, &e))?;
    let (probe, found) = TextLog::probe(&head, Ftrace::new(options));
    let (seen, log) = probe.parts();
    let strange = !seen.header.any || log.unparsed > 0 && seen.untimed == 0;
    if head.whole && seen.first_time.is_none() && strange {
        let line = found.diagnostics.rows().iter().find_map(|d| d.line).unwrap_or(log.lines.min(1));
        return Err(ParseError::new(FORMAT.name, "unknown-format", refusal(&found, &head)).at_line(line));
    }
    if let (true, Some(refusal)) = (head.whole && !seen.header.latency_met, probe.no_scheduling(&found, ADVICE)) {
        return Err(match seen.untimed {
            0 => refusal,
            n => {
                let message = format!("expected events with their times, found {n} of function_graph without one");
                ParseError { message, ..refusal }.advise(GRAPH_ADVICE)
            }
        });
    }
    let mut dialect = Ftrace::new(options);
    let source = dialect.gather_states(source, &head).map_err(|e| ParseError::io(FORMAT.name, &e))?;
    seen.describe(options, out);
    let careful = options.extra.contains_key("careful") || seen.labels.met || scan::is_coloured(&head.bytes);
    Ok(Box::new(TextLog::new(source, dialect).without_quick(careful)))
}

/// The sentence for a text in which no line fits.
fn refusal(found: &Out, head: &Head) -> String {
    match found.diagnostics.rows().iter().find(|d| matches!(d.code, Code::Unparsed | Code::Truncated)) {
        Some(d) if d.advice.is_empty() => d.message.clone(),
        Some(d) => format!("{}; {}", d.message, d.advice),
        None => format!("expected {EXPECTED}, found {} bytes without a line of it", head.bytes.len()),
    }
}

/// What ftrace lines say, and what was learned of them.
pub(crate) struct Ftrace {
    quick: Quick,
    head: QuickHead,
    header: header::Header,
    labels: labels::Labels,
    states: Option<state::Table>,
    states_named: bool,
    clock_hz: Option<u64>,
    unnamed: BTreeSet<i64>,
    first_time: Option<Time>,
    variant: Variant,
    /// Events of `function_graph` that bear no time.
    untimed: u64,
    /// The event before was text of a program or of the kernel, which may go on in the next line.
    text_before: bool,
}

/// What was met.
#[derive(Debug, Default)]
struct Variant {
    flags: usize,
    tgid: bool,
    glued: bool,
    plugin: bool,
    console: bool,
}

impl Ftrace {
    pub(crate) fn new(options: &Options) -> Self {
        let states = options.extra.get("kernel").and_then(|k| state::Table::of_kernel(k));
        Ftrace {
            quick: Quick::default(),
            head: QuickHead::default(),
            header: header::Header::default(),
            labels: labels::Labels::new(options.extra.get("file").map(String::as_str)),
            states,
            states_named: states.is_some(),
            clock_hz: options.clock_hz,
            unnamed: BTreeSet::new(),
            first_time: None,
            variant: Variant::default(),
            untimed: 0,
            text_before: false,
        }
    }

    /// Chooses the table of numeric states by all numbers of the source, unless the kernel was named.
    fn gather_states(&mut self, source: Source, head: &Head) -> std::io::Result<Source> {
        if self.states_named {
            return Ok(source);
        }
        let (source, evidence) = state::gather(source, head)?;
        self.states = Some(evidence.table());
        Ok(source)
    }

    /// Sets the metadata that the head of the source states.
    fn describe(&self, options: &Options, out: &mut Out) {
        out.meta.set("os", "linux");
        out.meta.set("prio.scale", "linux");
        if let Some(clock) = &options.clock {
            out.meta.set("clock.name", clock.clone());
        }
        out.meta.set("clock.synchronised", "unknown");
        match (self.first_time, options.clock_hz) {
            (Some(Time::Ns { digits, .. }), _) => {
                out.meta.set("clock.resolution_ns", 10u64.pow(9u32.saturating_sub(digits as u32)).to_string());
            }
            (Some(Time::Ticks(_)), None) => {
                out.meta.set("clock.unit", "ticks");
                let message =
                    "times are ticks of a counter, shown as if one took 1 ns: the source does not state their rate";
                out.diag(
                    Diagnostic::new(Code::ClockUnit, message)
                        .advise("give the ticks per second (clock_hz); the kernel prints them at boot"),
                );
            }
            (Some(Time::Ticks(_)), Some(hz)) => out.meta.set("clock.hz", hz.to_string()),
            (Some(Time::Relative(_)), _) => out.meta.set("clock.resolution_ns", "1000"),
            (None, _) => {}
        }
        let mut parts = vec![self.header.tracer.clone().map_or("report".to_owned(), |t| format!("tracer {t}"))];
        let v = &self.variant;
        if v.flags > 0 {
            parts.push(format!("{} flags", v.flags));
        }
        for (is, what) in [
            (v.tgid, "tgid"),
            (v.glued, "latency layout"),
            (v.plugin || self.quick.plugin, "plugin form"),
            (v.console, "in the kernel's log"),
        ] {
            if is {
                parts.push(what.to_owned());
            }
        }
        out.meta.set("source.variant", parts.join(", "));
        if let Some(legend) = self.header.legend() {
            out.meta.set("ftrace.legend", legend);
        }
        if let Some(kernel) = &self.header.kernel {
            out.meta.set("kernel", kernel.clone());
        }
        if let Some(n) = self.header.cpus {
            out.meta.set("nr_cpus", n.to_string());
        }
    }

    fn stamp(&mut self, line: LogLine<'_>, head: &head::Head<'_>, out: &mut Out) -> Stamp {
        self.first_time.get_or_insert(head.time);
        self.variant.flags = self.variant.flags.max(head.flags.len());
        self.variant.tgid |= head.tgid.is_some();
        self.variant.glued |= head.short_name;
        let mut bits = 0;
        let ts_ns = match head.time {
            Time::Ns { ts, digits } => {
                bits |= if digits <= 6 { quality::TS_ROUNDED_US } else { 0 };
                ts
            }
            Time::Ticks(n) => ticks(n, self.clock_hz),
            Time::Relative(ts) => {
                bits |= quality::TS_ROUNDED_US;
                ts
            }
        };
        let comm = context_comm(scan::own_name(head.comm)).filter(|c| !(head.short_name && c.len() >= 8));
        if comm.is_none() && !head.short_name {
            self.unnamed.insert(head.tid);
        }
        if std::str::from_utf8(line.bytes).is_err() {
            bits |= quality::LOSSY_TEXT;
        }
        let who = Who { tid: Some(head.tid), pid: head.tgid, comm: comm.map(|c| out.strings.intern(c)) };
        let irq = if head.flags.is_empty() { None } else { head::irq_flags(head.flags, self.header.columns()) };
        Stamp { ts_ns, cpu: Some(head.cpu), who, irq, quality: bits }
    }

    fn event(&mut self, stamp: &Stamp, body: &[u8], log: &mut Log, out: &mut Out) {
        let states = self.states.unwrap_or_default();
        let body = without_difference(body);
        if self.entry(stamp, body, log, out) {
            return;
        }
        if let Some((name, payload)) = payload::split_event(body) {
            self.variant.plugin |= name == b"sched_switch" && !payload.starts_with(b"prev_comm=");
            let outcome = log.record(stamp, name, payload, states, out);
            self.text_before = !matches!(outcome, payload::Outcome::Known(k) if k != Kind::Marker);
            return;
        }
        self.text_before = true;
        if body.starts_with(b"<stack trace>") || body.starts_with(b"<user stack trace>") {
            return;
        }
        let mut syscall = false;
        if body.starts_with(b"sys_") {
            log.arrive(stamp, out);
            let mut row = log.begin(&mut out.events, stamp);
            let mut cx = payload::Context { strings: &mut out.strings, states, numbers: &mut log.numbers };
            syscall = payload::other::unnamed_syscall(body, &mut row, &mut cx).is_some();
            if !syscall {
                row.kind(Kind::Other).name(out.strings.intern(b"unnamed")).raw(out.strings.keep(body));
            }
        }
        if !body.starts_with(b"sys_") {
            let name: &[u8] = if memchr::memmem::find(body, b" <-").is_some() { b"function" } else { b"unnamed" };
            log.record(stamp, name, body, states, out);
        } else if syscall {
            log.note_name(b"syscalls");
        }
    }
}

impl Ftrace {
    /// Takes a line of the tracer `function_graph`.
    fn graph(&mut self, line: LogLine<'_>, bytes: &[u8], log: &mut Log, out: &mut Out) -> bool {
        // A cut comment has no end, and is not taken.
        let Some(found) = graph::line(bytes).filter(|_| line.ended) else { return false };
        let graph::Line::Event(event) = found else {
            log.passed += 1;
            return true;
        };
        let Some((ts_ns, digits)) = event.time else {
            log.passed += 1;
            self.untimed += 1;
            return true;
        };
        self.first_time.get_or_insert(Time::Ns { ts: ts_ns, digits });
        let rounded = if digits <= 6 { quality::TS_ROUNDED_US } else { 0 };
        let who = Who { tid: event.tid, pid: None, comm: None };
        let stamp = Stamp { ts_ns, cpu: Some(event.cpu), who, irq: None, quality: rounded };
        self.event(&stamp, event.body, log, out);
        true
    }

    /// Takes an entry of the tracer `sched_switch`.
    fn entry(&mut self, stamp: &Stamp, body: &[u8], log: &mut Log, out: &mut Out) -> bool {
        let Some(entry) = body.first().filter(|b| b.is_ascii_digit()).and_then(|_| Entry::of(body)) else {
            return false;
        };
        log.arrive(stamp, out);
        let mut row = log.begin(&mut out.events, stamp);
        let mut cx = payload::Context {
            strings: &mut out.strings,
            states: self.states.unwrap_or_default(),
            numbers: &mut log.numbers,
        };
        entry.set(stamp.who.comm, &mut row, &mut cx);
        let (name, kind) = entry.event();
        log.note(name, payload::Outcome::Known(kind));
        self.text_before = false;
        true
    }
}

/// `dummy-0000 [000] 0.0: 0: trace_event_clock_sync: parent_ts=0.0`, with which old systrace pages end.
fn is_closing(head: &head::Head<'_>) -> bool {
    head.tid == 0 && head.comm == b"dummy" && memchr::memmem::find(head.body, b"trace_event_clock_sync: ").is_some()
}

/// Ticks as ns, where their rate is known.
fn ticks(n: i64, hz: Option<u64>) -> i64 {
    match hz {
        Some(hz) if hz > 0 => i64::try_from(i128::from(n) * 1_000_000_000 / i128::from(hz)).unwrap_or(i64::MAX),
        _ => n,
    }
}

/// The body without the `(+59200)` that `trace-cmd report --ts-diff` puts before it.
fn without_difference(body: &[u8]) -> &[u8] {
    let Some(rest) = body.strip_prefix(b"(") else { return body };
    match memchr::memchr(b')', rest) {
        Some(end) if end < 24 && rest[..end].iter().all(|b| b.is_ascii_digit() || *b == b'+' || *b == b'-') => {
            scan::skip_blanks(&rest[end + 1..])
        }
        _ => body,
    }
}

/// The event's name, as far as labels need it.
fn event_name(body: &[u8]) -> &[u8] {
    payload::split_event(without_difference(body)).map_or(b"", |(name, _)| name)
}

impl Dialect for Ftrace {
    const NAME: &'static str = "ftrace-text";

    #[inline(always)]
    fn quick(&mut self, w: &Window, log: &mut Log, out: &mut Out) -> Option<usize> {
        if log.has_pending() {
            return None;
        }
        let (stamp, at) = self.head.read(w)?;
        if log.goes_back(stamp) {
            return None;
        }
        let read = quick::event(&mut self.quick, w, past_blank(w, at)?, stamp, log, out)?;
        self.text_before = false;
        Some(read)
    }

    fn line(&mut self, line: LogLine<'_>, log: &mut Log, out: &mut Out) {
        let bytes = line.bytes;
        let bytes = if log.lines == 1 { bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes) } else { bytes };
        let (bytes, console) = console::message(bytes).map_or((bytes, false), |text| (text, true));
        self.variant.console |= console;
        if bytes.trim_ascii().is_empty() || self.header.take(bytes, log, out) {
            return;
        }
        let Some(mut head) = head::parse(bytes) else {
            if self.header.latency_of_2_6_26(bytes, log) {
                return;
            }
            if let Some(cpus) = self.labels.file(bytes) {
                self.header.any = true;
                self.header.cpus = cpus.or(self.header.cpus);
                return;
            }
            if self.graph(line, bytes, log, out) {
                return;
            }
            if console && !head::is_cut_glued(bytes) {
                return;
            }
            let stack = bytes.trim_ascii_start().starts_with(b"=>");
            match (line.ended, stack || (self.text_before && log.records() > 0)) {
                (true, true) => {}
                (true, false) => log.unparsed(line, EXPECTED, out),
                (false, _) => log.cut(line, out),
            }
            return;
        };
        if let Some((label, comm)) = labels::split(head.comm) {
            head.comm = comm;
            if !label.is_empty() {
                self.head = QuickHead::default();
            }
            if !self.labels.keep(label, event_name(head.body)) {
                return;
            }
        } else if self.labels.met && !self.labels.keep(b"", event_name(head.body)) {
            return;
        }
        let stamp = self.stamp(line, &head, out);
        if self.header.latency {
            log.begin(&mut out.events, &stamp).kind(Kind::Marker).name(payload::text(head.body, &mut out.strings));
            return;
        }
        let mut stamp = stamp;
        if stamp.ts_ns == 0 && is_closing(&head) {
            // It has no time of its own, and would make the trace begin at 0.
            let made = Stamp { ts_ns: log.newest(), quality: stamp.quality | quality::SYNTHESIZED, ..Stamp::default() };
            log.record(&made, b"trace_event_clock_sync", b"", self.states.unwrap_or_default(), out);
            return;
        }
        if !line.ended {
            log.cut(line, out);
            if !payload::may_be_whole(head.body) {
                return;
            }
            stamp.quality |= quality::PARSE_PARTIAL;
        } else if Wrapped::may_go_on(without_difference(head.body)) {
            let (name, payload) = payload::split_event(without_difference(head.body)).unwrap_or((b"", head.body));
            if log.wrapped.take(bytes, log.lines, name, payload) {
                return;
            }
        }
        if let (Some(found), true, false) = (head.found, bytes.is_ascii() && !console, self.labels.met) {
            self.head.learn(bytes, found, &stamp);
        }
        self.event(&stamp, head.body, log, out);
    }

    fn finish(&mut self, log: &mut Log, out: &mut Out) {
        log.unnamed = self.unnamed.len() as u64;
        log.cpus = self.header.cpus;
        log.empty = self.header.empty;
        if self.untimed > 0 {
            let message = "events of function_graph without a time were left out";
            let d = Diagnostic { count: self.untimed, ..Diagnostic::new(Code::PartlyParsed, message) };
            out.diag(d.advise(GRAPH_ADVICE));
        }
        self.labels.finish(out);
        log.numbers.finish(self.states.unwrap_or_default(), self.states_named, "or report without -R", out);
        if self.header.latency_met {
            let message =
                "a tracer of latencies keeps what one CPU did in its worst case: its lines are kept as markers";
            out.diag(
                Diagnostic::new(Code::Unsupported, message)
                    .advise("record `sched_switch` and `sched_wakeup` with the nop tracer"),
            );
        }
    }
}
