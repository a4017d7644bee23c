//! perf's records as text.
//!
//! **Produced by** `perf script` (with or without `--ns`, `--header`, `-F`, `--show-task-events`,
//! `--show-switch-events`, `--show-lost-events`) and `perf sched script`, which prints the same.
//!
//! **Grammar** of a line: `COMM PID/TID [CPU] TIME: PERIOD SYSTEM:EVENT: PAYLOAD`, any part of
//! which `-F` may leave out but the time, which a trace cannot do without. Blanks or tabs between.
//! Payloads are those of [`payload`](crate::text::payload). Lines after it that begin with a blank
//! or a tab are its call chain, up to an empty line. `# ...` is the header.
//!
//! **Clock**: perf's own (`local` of ftrace, on most machines) unless the header names another. Six
//! digits are microseconds that perf *truncated*; ftrace text of the same run is rounded and may be
//! 1 us later. Nine digits (`--ns`) are exact.
//!
//! **Kept**: every event; samples of other events than tracepoints as `other`. **Dropped**: call
//! chains, periods.
//!
//! **Not read**: times since the line before (`--deltatime`).
//!
//! **Departures tolerated**: tabs, CRLF, a byte order mark, colours, records that a mail or a terminal
//! wrapped, words that `-F` adds before the event's name or, as `+misc` and `+tod` do, before the time,
//! lines of `--show-round-events`, warnings of perf caught in the same file, the short form that
//! libtraceevent's plugins print.
//!
//! **Traps**: a task's name and thread are -1 or `:123` once perf lost sight of it: null here, and
//! a switch then takes its context from the task that leaves. `PERF_RECORD_*` at time 0 were made
//! by perf when it started, for tasks that were there before, and those before the first sample tell
//! of perf itself, which turns samples on last: they take the time of the first record that has one.
//! `PERF_RECORD_SWITCH` beside `sched_switch` says the same switch twice: it is kept as `other`, unless
//! the sample is missing. Of a recording of some tasks the text says so in its header's command line
//! alone; without that it shows by switches to threads from which none leads away.
//!
//! **Sources**: Linux `tools/perf/builtin-script.c`, `tools/perf/util/event.c`, `perf-script(1)`;
//! output of perf 3.4 to 6.1.

mod head;
mod switches;
mod whose;

use std::collections::BTreeSet;

use switches::Switches;
use tracekit_schema::diag::{Code, Diagnostic};
use tracekit_schema::events::quality;
use tracekit_schema::table::Table;
use tracekit_schema::{Kind, Out};

use crate::text::head::QuickHead;
use crate::text::log::{Dialect, Log, LogLine, Stamp, TextLog, Who, Wrapped};
use crate::text::payload::quick::{self, Quick};
use crate::text::payload::{self, sched::context_comm, state};
use crate::text::perf_tables;
use crate::text::scan;
use crate::text::swar::{is_at, skip_blanks, Window};
use crate::{Confidence, Format, FormatInfo, Head, Options, ParseError, Parser, Source};

/// The format's row.
pub static FORMAT: Format = Format {
    name: "perf-script",
    title: "perf as text: perf script, perf sched script",
    streams: true,
    sniff,
    open,
    info: FormatInfo {
        produced_by: "perf script [--ns] [--header] [-F ...]; perf sched script",
        kinds: "all kinds of Linux that were recorded",
        provides: "waker, target CPU, priority, state, losses",
        resolution: "1 us, truncated; 1 ns with --ns",
        clock: "perf's own, or the one that the header names",
        confidence: "real captures",
        notes: "the time field is needed; call chains are dropped",
    },
};

/// What a line must look like, for diagnostics.
const EXPECTED: &str = "a perf line `COMM TID [CPU] TIME: EVENT: ...`";

/// What to do about a text without events of the scheduler.
const ADVICE: &str = "record them: perf sched record, or perf record -e 'sched:*'";

fn sniff(head: &Head) -> Confidence {
    let text = scan::plain(head.bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&head.bytes));
    let mut header = false;
    for line in text.split(|b| *b == b'\n').take(2000) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        header |= line.starts_with(b"# perf version") || line.starts_with(b"# event : name = ");
        if head::lacks_event(line) {
            return if header { 95 } else { 60 };
        }
        // A head of ftrace reads as one of perf with a strange name; only ftrace puts a dash before
        // the thread, and only perf names the subsystem of an event.
        let Some(h) = head::parse(line) else { continue };
        let ftrace = h.tid.is_none() && !h.comm.is_empty() && !h.names_system();
        return match () {
            () if ftrace => 0,
            () if header => 95,
            () if memchr::memmem::find(h.body, b"sched:").is_some() || h.cpu.is_some() => 75,
            () => 60,
        };
    }
    if header {
        90
    } else {
        0
    }
}

fn open(mut source: Source, options: &Options, out: &mut Out) -> Result<Box<dyn Parser>, ParseError> {
    let head = source.head().map_err(|e| ParseError::io(FORMAT.name, &e))?;
    if head::are_differences(&head.bytes) {
        let message = "expected the time of each record, found times since the line before (perf script --deltatime)";
        let advice = "print the recording again without --deltatime: rounded differences do not add up to times";
        return Err(ParseError::new(FORMAT.name, "unsupported", message).at_line(1).advise(advice));
    }
    let (probe, found) = TextLog::probe(&head, Perf::new(options));
    let (seen, log) = probe.parts();
    if head.whole && seen.digits.is_none() && !(seen.header && log.ends_in_header()) {
        let (code, advice) = match (seen.timeless, seen.nameless) {
            (0, 0) => ("unknown-format", ""),
            (0, _) => ("unsupported", "let perf script print the names of events (-F +event)"),
            _ => ("unsupported", "let perf script print the time (-F +time)"),
        };
        let found = found.diagnostics.rows().iter().find(|d| matches!(d.code, Code::Unparsed | Code::Truncated));
        let message = found.map_or_else(|| format!("expected {EXPECTED}, found none"), |d| d.message.clone());
        return Err(ParseError::new(FORMAT.name, code, message).at_line(log.lines.min(1)).advise(advice));
    }
    if let (true, Some(refusal)) = (head.whole, probe.no_scheduling(&found, ADVICE)) {
        return Err(refusal);
    }
    let mut dialect = Perf::new(options);
    if !dialect.states_named {
        let (gathered, evidence) = state::gather(source, &head).map_err(|e| ParseError::io(FORMAT.name, &e))?;
        source = gathered;
        let named = seen.kernel.as_deref().and_then(state::Table::of_kernel);
        dialect.states_named = named.is_some();
        dialect.states = named.or(Some(evidence.table()));
    }
    seen.describe(options, out);
    let careful = options.extra.contains_key("careful") || scan::is_coloured(&head.bytes);
    whose::say(seen.command.as_deref(), seen.cpus, &found, out);
    Ok(Box::new(TextLog::new(source, dialect).without_quick(careful)))
}

/// What perf lines say, and what was learned of them.
struct Perf {
    quick: Quick,
    head: QuickHead,
    states: Option<state::Table>,
    /// The kernel was named, by the user or the header.
    states_named: bool,
    unnamed: BTreeSet<i64>,
    digits: Option<usize>,
    /// Some line was one of perf's header.
    header: bool,
    /// Lines of events without a time, and without a name.
    timeless: u64,
    nameless: u64,
    no_cpu: bool,
    plugin: bool,
    chains: bool,
    cpus: Option<u64>,
    clock: Option<String>,
    host: Option<String>,
    kernel: Option<String>,
    arch: Option<String>,
    /// The lines that follow belong to the event before.
    in_event: bool,
    switches: Switches,
    /// The command that recorded, as the header has it.
    command: Option<String>,
    /// A sample was met, or a switch that perf recorded itself.
    begun: bool,
}

impl Perf {
    fn new(options: &Options) -> Self {
        let states = options.extra.get("kernel").and_then(|k| state::Table::of_kernel(k));
        Perf {
            quick: Quick::default(),
            head: QuickHead::default(),
            states,
            states_named: states.is_some(),
            unnamed: BTreeSet::new(),
            digits: None,
            header: false,
            timeless: 0,
            nameless: 0,
            no_cpu: false,
            plugin: false,
            chains: false,
            cpus: None,
            clock: None,
            host: None,
            kernel: None,
            arch: None,
            in_event: false,
            switches: Switches::default(),
            command: None,
            begun: false,
        }
    }

    /// Sets the metadata that the head of the source states.
    fn describe(&self, options: &Options, out: &mut Out) {
        out.meta.set("os", "linux");
        out.meta.set("prio.scale", "linux");
        out.meta.set("clock.synchronised", "unknown");
        let clock = options.clock.clone().or_else(|| self.clock.clone());
        out.meta.set("clock.name", clock.unwrap_or_else(|| "perf".to_owned()));
        if let Some(digits) = self.digits {
            out.meta.set("clock.resolution_ns", 10u64.pow(9u32.saturating_sub(digits as u32)).to_string());
        }
        for (key, value) in [("host", &self.host), ("kernel", &self.kernel), ("arch", &self.arch)] {
            if let Some(value) = value {
                out.meta.set(key, value.clone());
            }
        }
        let mut parts = vec!["perf script"];
        for (is, what) in [(self.plugin, "plugin form"), (self.chains, "call chains"), (self.no_cpu, "no CPU field")] {
            if is {
                parts.push(what);
            }
        }
        out.meta.set("source.variant", parts.join(", "));
    }

    /// A line of the header.
    fn comment(&mut self, text: &[u8], log: &mut Log) {
        let Some(colon) = memchr::memchr(b':', text) else { return };
        let (key, value) = (scan::trim(&text[..colon]), scan::trim(&text[colon + 1..]));
        let shown = || Some(scan::shown(value, 80));
        self.header |= matches!(key, b"perf version" | b"event");
        match key {
            b"hostname" => self.host = shown(),
            b"os release" => {
                self.kernel = shown();
                self.states = self.states.or(state::Table::of_kernel(&scan::shown(value, 80)));
            }
            b"arch" => self.arch = shown(),
            b"cmdline" => self.command = Some(String::from_utf8_lossy(value).into_owned()),
            b"nrcpus online" => self.cpus = scan::u64(value),
            b"clockid" => {
                let name = scan::word(value).0;
                let name = if name == b"monotonic" { b"mono" } else { name };
                self.clock = Some(scan::shown(name, 40));
            }
            b"event" => {
                let name = value.strip_prefix(b"name = ").map(|v| v.split(|b| *b == b',').next().unwrap_or(v));
                if let Some(name) = name.filter(|n| n.starts_with(b"sched:")) {
                    log.note_name(&name[b"sched:".len()..]);
                }
            }
            _ => {}
        }
    }

    fn stamp(&mut self, line: LogLine<'_>, head: &head::Head<'_>, out: &mut Out) -> Stamp {
        self.digits.get_or_insert(head.digits);
        self.no_cpu |= head.cpu.is_none();
        let mut bits = if head.digits <= 6 { quality::TS_TRUNCATED_US } else { 0 };
        if std::str::from_utf8(line.bytes).is_err() {
            bits |= quality::LOSSY_TEXT;
        }
        let comm = context_comm(scan::own_name(head.comm));
        if let (None, Some(tid), false) = (comm, head.tid, head.comm.is_empty()) {
            self.unnamed.insert(tid);
        }
        let who = Who { tid: head.tid, pid: head.pid, comm: comm.map(|c| out.strings.intern(c)) };
        Stamp { ts_ns: head.ts_ns, cpu: head.cpu, who, irq: None, quality: bits }
    }

    fn event(&mut self, stamp: &Stamp, body: &[u8], log: &mut Log, out: &mut Out) {
        if body.starts_with(b"PERF_RECORD_") {
            return self.task_event(stamp, body, log, out);
        }
        self.begun = true;
        let states = self.states.unwrap_or_default();
        let (name, payload) = split_event(body);
        self.plugin |= name == b"sched_switch" && !payload.starts_with(b"prev_comm=");
        log.record(stamp, name, payload, states, out);
        if name != b"sched_switch" {
            return;
        }
        let last = out.events.len().checked_sub(1);
        let leaves = last.and_then(|row| out.events.tid.get(row));
        self.switches.sample(stamp.cpu, leaves, last.and_then(|row| out.events.next_tid.get(row)));
        // The context is gone once a task exits, but the switch names who leaves.
        if stamp.who.tid.is_none() {
            if let (Some(mut row), Some(tid)) = (out.events.last(), leaves) {
                row.ctx_tid(tid);
            }
        }
    }

    /// `PERF_RECORD_FORK(1:2):(0:0)` and its kind, which perf prints among the samples.
    fn task_event(&mut self, stamp: &Stamp, body: &[u8], log: &mut Log, out: &mut Out) {
        let mut stamp = *stamp;
        self.begun |= body.starts_with(b"PERF_RECORD_SWITCH");
        if stamp.ts_ns == 0 || !self.begun && log.quick_seen == 0 {
            stamp.ts_ns = 0;
            stamp.quality |= quality::SYNTHESIZED;
        }
        let end = body.iter().position(|b| !(b.is_ascii_uppercase() || *b == b'_')).unwrap_or(body.len());
        let (name, rest) = body.split_at(end);
        let rest = scan::trim(rest.strip_prefix(b":").unwrap_or(rest));
        if name == b"PERF_RECORD_LOST" {
            let count = rest.split(|b| *b == b' ').find_map(scan::i64);
            return log.lose(stamp.cpu, count, out);
        }
        log.arrive(&stamp, out);
        let mut row = log.begin(&mut out.events, &stamp);
        let known = match name {
            b"PERF_RECORD_FORK" | b"PERF_RECORD_EXIT" => two_tasks(rest).map(|(task, parent)| {
                row.pid(task.0).tid(task.1);
                if name == b"PERF_RECORD_EXIT" {
                    return Kind::Exit;
                }
                row.ctx_pid(parent.0).ctx_tid(parent.1);
                Kind::Fork
            }),
            b"PERF_RECORD_COMM" => renamed(rest).map(|(comm, pid, tid)| {
                row.pid(pid).tid(tid).comm(out.strings.intern(comm));
                Kind::Comm
            }),
            b"PERF_RECORD_SWITCH" | b"PERF_RECORD_SWITCH_CPU_WIDE" => {
                let wide = name == b"PERF_RECORD_SWITCH_CPU_WIDE";
                self.switches.record(wide, rest, &stamp, log.quick_seen > 0, &mut row)
            }
            _ => None,
        };
        match known {
            Some(kind) => row.kind(kind),
            None => row.kind(Kind::Other).name(out.strings.intern(name)).raw(out.strings.keep(rest)),
        };
        log.note_kind(known.unwrap_or_default());
        log.note_name(name);
    }
}

/// `(1:2):(0:0)`: process and thread, and those of the parent.
fn two_tasks(text: &[u8]) -> Option<((i64, i64), (i64, i64))> {
    let (task, parent) = text.strip_prefix(b"(")?.strip_suffix(b")")?.split_once_at(b"):(")?;
    let pair = |t: &[u8]| {
        let colon = memchr::memchr(b':', t)?;
        Some((scan::i64(&t[..colon])?, scan::i64(&t[colon + 1..])?))
    };
    Some((pair(task)?, pair(parent)?))
}

/// `name:1/2`, after an `exec: ` where the name comes from one.
fn renamed(text: &[u8]) -> Option<(&[u8], i64, i64)> {
    let text = text.strip_prefix(b"exec:").map_or(text, scan::trim);
    let colon = memchr::memrchr(b':', text)?;
    let slash = memchr::memrchr(b'/', text).filter(|slash| *slash > colon)?;
    Some((&text[..colon], scan::i64(&text[colon + 1..slash])?, scan::i64(&text[slash + 1..])?))
}

trait SplitOnceAt {
    fn split_once_at(&self, literal: &[u8]) -> Option<(&[u8], &[u8])>;
}

impl SplitOnceAt for [u8] {
    fn split_once_at(&self, literal: &[u8]) -> Option<(&[u8], &[u8])> {
        let at = memchr::memmem::find(self, literal)?;
        Some((&self[..at], &self[at + literal.len()..]))
    }
}

/// Name without its subsystem, and payload.
fn split_event(body: &[u8]) -> (&[u8], &[u8]) {
    let (word, rest) = scan::word(body);
    let name = word.strip_suffix(b":").unwrap_or(word);
    let name = match memchr::memchr(b':', name) {
        // `cycles:u` has a modifier behind the colon, `sched:sched_switch` a subsystem before it.
        Some(colon) if name.len() - colon > 6 || name[colon + 1..].contains(&b'_') => &name[colon + 1..],
        Some(colon) if !name[colon + 1..].iter().all(|b| b"ukhHGpPDWISeb".contains(b)) => &name[colon + 1..],
        _ => name,
    };
    (name, scan::skip_blanks(rest))
}

impl Dialect for Perf {
    const NAME: &'static str = "perf-script";

    #[inline(always)]
    fn quick(&mut self, w: &Window, log: &mut Log, out: &mut Out) -> Option<usize> {
        if log.has_pending() || self.switches.any() {
            return None;
        }
        let (stamp, at) = self.head.read(w)?;
        if log.goes_back(stamp) {
            return None;
        }
        let at = skip_blanks(w, at);
        let at = if is_at(w, at, b"sched:") { at + 6 } else { at };
        quick::event(&mut self.quick, w, at, stamp, log, out)
    }

    fn line(&mut self, line: LogLine<'_>, log: &mut Log, out: &mut Out) {
        let bytes = line.bytes;
        let bytes = if log.lines == 1 { bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes) } else { bytes };
        match bytes {
            _ if bytes.trim_ascii().is_empty() => return self.in_event = false,
            [b'#', rest @ ..] => return self.comment(rest, log),
            // Some editors turn the blanks before a name into tabs.
            [b'\t', ..] if head::parse(bytes).is_none() => return self.chains = true,
            _ => {}
        }
        let Some(head) = head::parse(bytes).filter(|h| !h.is_ftrace()) else {
            return self.odd_line(line, bytes, log, out);
        };
        if line.ended && Wrapped::may_go_on(head.body) {
            let (name, payload) = split_event(head.body);
            if log.wrapped.take(bytes, log.lines, name, payload) {
                return;
            }
        }
        let mut stamp = self.stamp(line, &head, out);
        if let (Some(found), true, Some(_)) = (head.found, bytes.is_ascii(), stamp.who.tid) {
            self.head.learn(bytes, found, &stamp);
        }
        if !line.ended {
            log.cut(line, out);
            let (name, payload) = split_event(head.body);
            let body = [name, b": ", payload].concat();
            if !payload::may_be_whole(&body) {
                return;
            }
            stamp.quality |= quality::PARSE_PARTIAL;
        }
        self.in_event = true;
        self.event(&stamp, head.body, log, out);
    }

    fn finish(&mut self, log: &mut Log, out: &mut Out) {
        log.unnamed = self.unnamed.len() as u64;
        log.cpus = self.cpus;
        if self.no_cpu {
            let message = "some records have no CPU field: what ran where is unknown for them";
            out.diag(
                Diagnostic::new(Code::MissingEvents, message)
                    .advise("let perf script print the CPU (-F +cpu), or record it (perf record --sample-cpu)"),
            );
        }
        log.numbers.finish(self.states.unwrap_or_default(), self.states_named, "", out);
    }
}

impl Perf {
    /// A line without a head: part of an event, one of perf's messages, or nothing known.
    fn odd_line(&mut self, line: LogLine<'_>, bytes: &[u8], log: &mut Log, out: &mut Out) {
        if perf_tables::tells_lost_chunks(bytes) {
            log.lose(None, None, out);
        } else if head::lacks_time(bytes) {
            self.timeless += 1;
            log.unparsed(line, "a time in each line", out);
        } else if head::lacks_event(bytes) {
            self.nameless += 1;
            log.unparsed(line, "the name of the event in each line", out);
        } else if self.in_event && line.ended && is_frame(bytes) {
            // Without its end it may as well be the head of a record: a name can be a hexadecimal number.
            self.chains = true;
        } else if !perf_tables::is_message(bytes) {
            if line.ended {
                log.unparsed(line, EXPECTED, out);
            } else {
                log.cut(line, out);
            }
        }
    }
}

/// A line of a call chain that blanks begin: an address, or a function with an offset.
fn is_frame(line: &[u8]) -> bool {
    let (word, _) = scan::word(line);
    let function = word == b"[unknown]" || memchr::memmem::find(word, b"+0x").is_some();
    line.first().is_some_and(|b| scan::is_blank(*b)) && (function || scan::hex(word).is_some())
}
