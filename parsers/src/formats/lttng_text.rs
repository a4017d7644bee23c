//! `lttng-text`: LTTng kernel traces as `babeltrace2` prints them.
//!
//! # Format
//!
//! **Produced by** `babeltrace2 TRACE > trace.txt`, with or without `--no-delta`,
//! `--clock-seconds`, `--clock-date`, `--clock-gmt`, host name and further contexts.
//!
//! **Grammar**: one record a line,
//!
//! ```text
//! [17:46:22.794569892] (+0.000002220) host sched_switch: { cpu_id = 5 }, { prev_comm = "swapper/5", prev_tid = 0, ... }
//! ```
//!
//! Groups `{ key = value, ... }` in this order: packet context (`cpu_id`), event context (`pid`,
//! `tid`, `procname`, ...), payload, which comes last. A value is a number, a quoted string with
//! `\` escapes, or a group in `{}`, `[]` or `()`; the state is `1`, or `( "TASK_INTERRUPTIBLE" :
//! container = 1 )`.
//!
//! **Clock**: wall time. `HH:MM:SS` counts from midnight of the first day and goes on past the
//! next; seconds and dates count from 1970. Dates are in the zone of whoever ran babeltrace2,
//! unless `--clock-gmt` was given.
//!
//! **Kept**: scheduler events, interrupts, system calls by name, CPU power; other events as `other`
//! with their groups as text. `lttng_statedump_process_state` gives names that were known before
//! the trace: rows of kind `comm`, marked as made up by the recorder. Priorities are printed as
//! kernel priority minus 100 and get the 100 back. Numeric states are read by the table of the
//! kernel whose numbers fit (see `prev_state` in `ftrace-text`), or of the one that is named; names
//! of states are exact. Calls are `syscall_entry_NAME` and `syscall_exit_NAME`, before LTTng 2.6
//! `sys_NAME`, `compat_sys_NAME` and `exit_syscall`. `Tracer discarded N events between [A] and [B]`
//! becomes a loss of the channel's CPU.
//!
//! **Departures tolerated**: lines out of order (sorted in a window), CRLF, a cut last line,
//! unexpected lines (counted).
//!
//! **Sources**: babeltrace2's documentation of `sink.text.pretty`; lttng-modules
//! `instrumentation/events/sched.h`; a trace with LTTng 2.8 of Linux
//! 4.4 from the tracecompass test traces. **Verified** on that trace; names of states, contexts,
//! dates and discarded events on samples written from the documentation.

use std::borrow::Cow;

use crate::error::ParseError;
use crate::formats::{Confidence, Format, FormatInfo};
use crate::mismatch::names_of_babeltrace;
use crate::text::log::{Dialect, Log, LogLine, Stamp, TextLog, Who};
use crate::text::payload::state as numeric;
use crate::text::payload::Outcome;
use crate::text::scan;
use crate::text::swar::Window;
use crate::{lttng, Head, Options, Parser, Source};
use tracekit_schema::events::quality;
use tracekit_schema::{Kind, Out};

const NAME: &str = "lttng-text";
const DAY: i64 = 86_400_000_000_000;
/// More fields than this of one record are not looked at.
const MOST: usize = 24;
/// Names of a task's contexts (lttng add-context).
const CONTEXTS: [&[u8]; 5] = [b"procname", b"pid", b"tid", b"vpid", b"vtid"];

/// The row of the registry.
pub static FORMAT: Format = Format {
    name: NAME,
    title: "LTTng kernel traces printed by babeltrace2",
    streams: true,
    sniff,
    open,
    info: FormatInfo {
        produced_by: "babeltrace2 TRACE > trace.txt (LTTng kernel tracing of sched_*, irq_*, syscalls)",
        kinds: "switch, waking, wakeup, wakeup_new, migrate, fork, exec, exit, free, wait, prio, \
            stat_*, comm, irq_*, softirq_*, sys_enter, sys_exit, cpu_idle, cpu_freq, cpu_freq_limits, cpu_capacity, lost, other",
        provides: "waker (with the context tid), target CPU, priority, state, losses",
        resolution: "1 ns",
        clock: "wall clock: time of day, seconds, or date",
        confidence: "real captures: one trace of LTTng 2.8 on Linux 4.4 (60,000 lines); named \
            states, contexts and discarded events on samples written from the documentation",
        notes: "times of day go on past midnight; without the context `tid` the current thread of a \
            record is not stated; numeric states are read by the kernel version whose numbers fit (option \
            kernel)",
    },
};

fn sniff(head: &Head) -> Confidence {
    let looks = |line: &[u8]| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        Line::of(line).is_some() && names_of_babeltrace(line.trim_ascii()).is_none()
    };
    let mut lines = head.bytes.split(|b| *b == b'\n').filter(|l| !l.trim_ascii().is_empty()).take(20);
    if lines.any(looks) {
        90
    } else {
        0
    }
}

fn open(mut source: Source, options: &Options, out: &mut Out) -> Result<Box<dyn Parser>, ParseError> {
    let head = source.head().map_err(|e| ParseError::io(NAME, &e))?;
    let lines = || head.bytes.split(|b| *b == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l)).zip(1u64..);
    let Some((first, _)) = lines().find_map(|(l, n)| Some((Line::of(l)?, n))) else {
        let (line, number) = lines().find(|(l, _)| !l.trim_ascii().is_empty()).unwrap_or((b"", 1));
        let message =
            format!("expected `[TIME] HOST EVENT: {{ cpu_id = N }}, {{ ... }}`, found `{}`", scan::shown(line, 60));
        return Err(ParseError::new(NAME, "no-scheduler-events", message).at_line(number));
    };
    let clock = first.clock;
    if !first.host.is_empty() {
        out.meta.set("host", scan::shown(first.host, 64));
    }
    out.meta.set("os", "linux");
    out.meta.set("prio.scale", "linux");
    out.meta.set("clock.name", "realtime");
    out.meta.set("clock.resolution_ns", "1");
    out.meta.set("clock.synchronised", "true");
    let variant = match clock {
        Clock::OfDay => "time of day",
        Clock::Seconds => "seconds since 1970",
        Clock::Date => "date and time",
    };
    out.meta.set("source.variant", variant);
    if clock == Clock::Seconds {
        out.meta.set("clock.epoch_offset_ns", "0");
    }
    let (source, evidence) = numeric::gather(source, &head).map_err(|e| ParseError::io(NAME, &e))?;
    let kernel = options.extra.get("kernel");
    let named = kernel.and_then(|release| lttng::table(release, evidence.has_kept_bits()));
    let table = named.unwrap_or_else(|| evidence.table());
    let states = lttng::States { table, numbers: numeric::Evidence::default() };
    Ok(Box::new(TextLog::new(source, Babeltrace { states, named: named.is_some(), days: 0, newest: None })))
}

/// How the time is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    OfDay,
    Seconds,
    Date,
}

/// A line taken apart up to its groups.
struct Line<'t> {
    ts_ns: i64,
    clock: Clock,
    host: &'t [u8],
    event: &'t [u8],
    /// From the first `{` on.
    groups: &'t [u8],
}

impl<'t> Line<'t> {
    fn of(line: &'t [u8]) -> Option<Line<'t>> {
        let inner = line.strip_prefix(b"[")?;
        let close = memchr::memchr(b']', inner)?;
        let (ts_ns, clock) = time(&inner[..close])?;
        let mut rest = scan::skip_blanks(&inner[close + 1..]);
        if let [b'(', after @ ..] = rest {
            rest = scan::skip_blanks(&after[memchr::memchr(b')', after)? + 1..]);
        }
        let brace = memchr::memchr(b'{', rest)?;
        let head = scan::trim(&rest[..brace]).strip_suffix(b":")?;
        let blank = memchr::memrchr(b' ', head);
        let (host, event) = blank.map_or((&b""[..], head), |at| (&head[..at], &head[at + 1..]));
        let is_name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':' | b'-' | b'.');
        let ok = !event.is_empty() && event.iter().all(is_name);
        ok.then(|| Line { ts_ns, clock, host: scan::word(host).0, event, groups: &rest[brace..] })
    }
}

/// What stands between the first brackets.
fn time(text: &[u8]) -> Option<(i64, Clock)> {
    let (date, clock) = match memchr::memchr(b' ', text) {
        Some(blank) => (Some(&text[..blank]), &text[blank + 1..]),
        None => (None, text),
    };
    if memchr::memchr(b':', clock).is_none() {
        let point = memchr::memchr(b'.', clock).is_some() && date.is_none();
        return point.then(|| Some((scan::seconds(clock)?, Clock::Seconds))).flatten();
    }
    let [h, h2, b':', m, m2, b':', seconds @ ..] = clock else { return None };
    let (hours, minutes) = (scan::i64(&[*h, *h2])?, scan::i64(&[*m, *m2])?);
    let seconds = scan::seconds(seconds)?;
    if !(0..24).contains(&hours) || !(0..60).contains(&minutes) || !(0..61_000_000_000).contains(&seconds) {
        return None;
    }
    let of_day = (hours * 3600 + minutes * 60) * 1_000_000_000 + seconds;
    match date {
        None => Some((of_day, Clock::OfDay)),
        Some(date) => Some((days(date)?.checked_mul(DAY)?.checked_add(of_day)?, Clock::Date)),
    }
}

/// Days from 1970-01-01 to `YYYY-MM-DD`.
fn days(date: &[u8]) -> Option<i64> {
    let mut parts = date.split(|b| *b == b'-').map(scan::i64);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years that begin in March put the leap day last.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    Some(365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468)
}

/// Position of the byte that closes the group or string that `text` begins with.
fn closing(text: &[u8]) -> Option<usize> {
    let (mut depth, mut at) = (0usize, 0);
    loop {
        match *text.get(at)? {
            b'"' => {
                at += 1;
                loop {
                    at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
                    if text[at] == b'"' {
                        break;
                    }
                    at += 2;
                }
                if depth == 0 {
                    return Some(at);
                }
            }
            b'{' | b'[' | b'(' => depth += 1,
            b'}' | b']' | b')' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// The fields of a record: those of its contexts, and those of its payload.
#[derive(Clone, Copy)]
struct Fields<'t> {
    pairs: [(&'t [u8], &'t [u8]); MOST],
    count: usize,
    /// Pairs from here on belong to the last group.
    payload: usize,
    groups: usize,
}

impl<'t> Fields<'t> {
    /// Reads all groups; `None` when one is not closed.
    fn of(groups: &'t [u8]) -> Option<Fields<'t>> {
        let mut fields = Fields { pairs: [(b"", b""); MOST], count: 0, payload: 0, groups: 0 };
        let mut rest = groups;
        while rest.first() == Some(&b'{') {
            let end = closing(rest)?;
            fields.payload = fields.count;
            fields.groups += 1;
            fields.group(scan::trim(&rest[1..end]))?;
            rest = scan::skip_blanks(&rest[end + 1..]);
            rest = scan::skip_blanks(rest.strip_prefix(b",").unwrap_or(rest));
        }
        if fields.groups == 1 {
            // A lone group is the context of an event without fields.
            fields.payload = fields.count;
        }
        Some(fields)
    }

    fn group(&mut self, mut text: &'t [u8]) -> Option<()> {
        while !text.is_empty() {
            let equals = memchr::memchr(b'=', text)?;
            let key = scan::trim(&text[..equals]);
            let value = scan::skip_blanks(&text[equals + 1..]);
            let end = match value.first() {
                Some(b'"' | b'{' | b'[' | b'(') => closing(value)? + 1,
                _ => memchr::memchr(b',', value).unwrap_or(value.len()),
            };
            if self.count < MOST {
                self.pairs[self.count] = (key, scan::trim(&value[..end]));
                self.count += 1;
            }
            let rest = scan::skip_blanks(&value[end..]);
            text = scan::skip_blanks(rest.strip_prefix(b",").unwrap_or(rest));
        }
        Some(())
    }

    fn find(pairs: &[(&'t [u8], &'t [u8])], key: &[u8]) -> Option<&'t [u8]> {
        pairs.iter().find(|(k, _)| *k == key).map(|(_, value)| *value)
    }

    fn get(&self, key: &str) -> Option<&'t [u8]> {
        Self::find(&self.pairs[self.payload..self.count], key.as_bytes())
    }

    fn context(&self, key: &str) -> Option<&'t [u8]> {
        Self::find(&self.pairs[..self.payload], key.as_bytes())
    }

    /// A line that was cut behind the contexts of an event of the scheduler has no payload: each of these
    /// events states more than numbers and name of a task.
    fn without_payload(mut self, event: &[u8]) -> Self {
        let last = &self.pairs[self.payload..self.count];
        if event.starts_with(b"sched_") && !last.is_empty() && last.iter().all(|(key, _)| CONTEXTS.contains(key)) {
            self.payload = self.count;
        }
        self
    }

    /// Takes all groups as payload, as perf has no contexts.
    fn without_contexts(mut self) -> Self {
        self.payload = 0;
        self
    }
}

impl lttng::Fields for Fields<'_> {
    fn int(&self, key: &str) -> Option<i64> {
        let value = self.get(key)?;
        match value.starts_with(b"0x") {
            true => scan::hex(value).and_then(|n| i64::try_from(n).ok()),
            false => scan::i64(value),
        }
    }

    fn text(&self, key: &str) -> Option<Cow<'_, [u8]>> {
        self.get(key).map(unquoted)
    }

    fn printed(&self, key: &str) -> Option<Cow<'_, [u8]>> {
        self.get(key).map(Cow::Borrowed)
    }

    fn context(&self, key: &str) -> Option<i64> {
        Fields::context(self, key).and_then(scan::i64)
    }
}

/// The text of a quoted string.
fn unquoted(value: &[u8]) -> Cow<'_, [u8]> {
    let inner = value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value);
    if memchr::memchr(b'\\', inner).is_none() {
        return inner.into();
    }
    let mut text = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&b) = bytes.next() {
        text.push(if b == b'\\' { *bytes.next().unwrap_or(&b) } else { b });
    }
    text.into()
}

/// Takes lines apart.
struct Babeltrace {
    states: lttng::States,
    /// The kernel was named.
    named: bool,
    /// Midnights passed.
    days: i64,
    newest: Option<i64>,
}

impl Dialect for Babeltrace {
    const NAME: &'static str = NAME;

    fn quick(&mut self, _: &Window, _: &mut Log, _: &mut Out) -> Option<usize> {
        None
    }

    fn line(&mut self, line: LogLine<'_>, log: &mut Log, out: &mut Out) {
        if scan::trim(line.bytes).is_empty() {
            return;
        }
        if memchr::memmem::find(line.bytes, b"racer discarded ").is_some() && self.discarded(line.bytes, log, out) {
            return;
        }
        let Some((head, fields)) = Line::of(line.bytes).and_then(|l| Fields::of(l.groups).map(|f| (l, f))) else {
            return if line.ended {
                log.unparsed(line, "`[TIME] HOST EVENT: { cpu_id = N }, { ... }`", out);
            } else {
                log.cut(line, out);
            };
        };
        let ts_ns = self.unroll(head.ts_ns, head.clock);
        let name = |value: &[u8], out: &mut Out| out.strings.intern(&unquoted(value));
        let context = |key| Fields::context(&fields, key).and_then(scan::i64);
        let who = Who {
            tid: context("tid").or_else(|| context("vtid")).filter(|t| *t >= 0),
            pid: context("pid").or_else(|| context("vpid")).filter(|t| *t >= 0),
            comm: Fields::context(&fields, "procname").map(|value| name(value, out)),
        };
        let mut who = who;
        let mut cpu = context("cpu_id").and_then(|n| i32::try_from(n).ok()).filter(|n| *n >= 0);
        let (event, perf) = lttng::event_name(head.event);
        let fields = if perf { fields.without_contexts() } else { fields.without_payload(head.event) };
        if perf {
            let (perf_cpu, tid, pid) = lttng::perf_context(&fields);
            cpu = cpu.or(perf_cpu);
            who = Who { tid, pid, comm: None };
        }
        let mut stamp = Stamp { ts_ns, cpu, who, irq: None, quality: 0 };
        if lttng::from_before(head.event, head.ts_ns, log.has_begun()) {
            stamp = Stamp { quality: quality::SYNTHESIZED, ..Stamp::default() };
        }
        log.arrive(&stamp, out);
        let mut row = log.begin(&mut out.events, &stamp);
        let index = row.index();
        let kind = lttng::kind(head.event);
        let states = &mut self.states;
        let stated = kind.and_then(|k| lttng::fill(k, head.event, &fields, states, &mut row, &mut out.strings));
        let outcome = match (kind, stated) {
            (Some(kind), Some(())) => {
                row.kind(kind);
                if head.event.starts_with(b"lttng_statedump") {
                    row.quality(quality::SYNTHESIZED);
                }
                Outcome::Known(kind)
            }
            (None, _) => Outcome::Unknown,
            (Some(_), None) => Outcome::Partial,
        };
        if !matches!(outcome, Outcome::Known(_)) {
            row.kind(Kind::Other).name(out.strings.intern(head.event)).raw(out.strings.keep(head.groups));
            if outcome == Outcome::Partial {
                let so_far = out.events.quality.get(index).unwrap_or(0);
                if let Some(mut row) = out.events.last() {
                    row.quality(so_far | quality::PARSE_PARTIAL);
                }
                log.partial(head.event, head.groups, out);
            }
        }
        // System calls are one event a call: they count as two.
        let event: &[u8] = match kind {
            Some(Kind::SysEnter) => b"syscall_entry",
            Some(Kind::SysExit) => b"syscall_exit",
            _ => event,
        };
        log.note(event, outcome);
    }

    fn finish(&mut self, _: &mut Log, out: &mut Out) {
        self.states.numbers.finish(self.states.table, self.named, "", out);
    }
}

impl Babeltrace {
    /// A time of day far before the last one is of the next day.
    fn unroll(&mut self, ts_ns: i64, clock: Clock) -> i64 {
        if clock != Clock::OfDay {
            return ts_ns;
        }
        let mut ts = ts_ns.saturating_add(self.days.saturating_mul(DAY));
        if self.newest.is_some_and(|newest| ts < newest.saturating_sub(DAY / 2)) {
            self.days += 1;
            ts = ts.saturating_add(DAY);
        }
        self.newest = self.newest.max(Some(ts));
        ts
    }

    /// `Tracer discarded 3 events between [A] and [B] in trace ... within stream "channel0_2" ...`.
    fn discarded(&mut self, line: &[u8], log: &mut Log, out: &mut Out) -> bool {
        let Some(at) = memchr::memmem::find(line, b"racer discarded ") else { return false };
        let rest = &line[at + 16..];
        let count = scan::i64(scan::word(rest).0);
        let mut times = rest.split(|b| *b == b'[').skip(1).filter_map(|t| time(&t[..memchr::memchr(b']', t)?]));
        let (from, to) = (times.next(), times.next());
        // Channels are one a CPU, and end in its number.
        let cpu = memchr::memmem::rfind(rest, b"channel").and_then(|at| {
            let name = rest[at..].split(|b| matches!(b, b'"' | b' ' | b',' | b')')).next()?;
            scan::i32(&name[memchr::memrchr(b'_', name)? + 1..])
        });
        let from = from.map(|(ts, clock)| self.unroll(ts, clock));
        let to = to.map(|(ts, clock)| self.unroll(ts, clock));
        match to {
            Some(to) => log.lose_between(cpu, count, (from, to), to, out),
            None => log.lose(cpu, count, out),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_each_form() {
        assert_eq!(time(b"17:46:22.794565804"), Some((63_982_794_565_804, Clock::OfDay)));
        assert_eq!(time(b"1457282782.794565804"), Some((1_457_282_782_794_565_804, Clock::Seconds)));
        assert_eq!(time(b"2016-03-06 16:46:22.794565804"), Some((1_457_282_782_794_565_804, Clock::Date)));
        assert_eq!(days(b"2000-02-29"), Some(11_016));
        assert_eq!(days(b"1970-01-01"), Some(0));
        assert_eq!(time(b"12345"), None);
        assert_eq!(time(b"1:2:3"), None);
        assert_eq!(time(b"1999-99-99 10:00:00.0"), None);
    }

    #[test]
    fn values_of_every_shape() {
        let text = br#"{ cpu_id = 1 }, { tid = 7, procname = "a, \"b\" }" }, { x = [ [0] = 3 ], s = ( "TASK_DEAD" : container = 64 ), n = -5 }"#;
        let f = Fields::of(text).unwrap();
        assert_eq!((f.groups, f.context("tid"), lttng::Fields::int(&f, "n")), (3, Some(&b"7"[..]), Some(-5)));
        assert_eq!(&*unquoted(f.context("procname").unwrap()), br#"a, "b" }"#);
        assert_eq!(f.get("x"), Some(&b"[ [0] = 3 ]"[..]));
        assert_eq!(f.get("tid"), None);
        assert!(Fields::of(b"{ a = \"x }").is_none());
        assert!(Fields::of(b"{ a = 1").is_none());
        assert_eq!(Fields::of(b"{ cpu_id = 3 }").unwrap().context("cpu_id"), Some(&b"3"[..]));
    }

    #[test]
    fn a_line_cut_behind_its_contexts_has_no_payload() {
        let cut = br#"{ cpu_id = 0 }, { procname = "swapper/0", pid = 0, tid = 0 }"#;
        let f = Fields::of(cut).unwrap().without_payload(b"sched_wakeup");
        assert_eq!((f.get("tid"), f.context("tid")), (None, Some(&b"0"[..])));
        let call = Fields::of(b"{ cpu_id = 0 }, { pid = 5 }").unwrap().without_payload(b"syscall_entry_getsid");
        assert_eq!(call.get("pid"), Some(&b"5"[..]));
    }
}
