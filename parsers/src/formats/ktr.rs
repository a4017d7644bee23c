//! `ktr`: FreeBSD's kernel trace buffer as text, and the output of `schedgraph.d`.
//!
//! # Format
//!
//! **Produced by** `ktrdump -ct` on a kernel with `options KTR, KTR_COMPILE=KTR_SCHED,
//! KTR_MASK=KTR_SCHED`, the input of `schedgraph.py`; by `schedgraph.d`, plain or through its
//! `make_ktr.sh`.
//!
//! **Grammar**: columns named by the header (`index cpu timestamp ... trace`), else 3 numbers
//! (index, CPU, time) or 2 (CPU, time: `schedgraph.d`), then
//!
//! ```text
//! KTRGRAPH group:"thread", id:"sh tid 100085", state:"sleep", attributes: prio:120, wmesg:"select", lockname:"(null)"
//! ```
//!
//! Values are quoted, without escapes, or reach to the next comma; `attributes: none` is allowed.
//! Group `thread` has states (`running`, `idle`, `yielding`, `sleep`, `blocked`, `suspended`,
//! `swapped`, `iwait`, `runq add`, `runq rem`, `thread exit`, `proc exit`) and points (`wokeup`,
//! `prio`, `lend prio`, `statclock`); group `load` has counters.
//!
//! **Order**: `ktrdump` prints the newest record first; the direction follows from the times. The
//! whole text is held, since the first record stands at its end.
//!
//! **Clock**: raw cycles of each CPU. The rate is, in this order: the option `clock_hz`; 1 GHz for
//! `schedgraph.d`, whose times are ns; an estimate from the distance of `statclock` points, which
//! print `stathz`; else unknown, and times stay ticks. A record whose time runs backwards on its
//! CPU by more than 2048 ticks is left out, as schedgraph does.
//!
//! **Kept**: a state other than `running` is the half of a switch at which a thread leaves,
//! `running` the half at which one enters. `wokeup` names the waker (the record's thread) and the
//! woken (`linkedto`). Counters `CPU n load` are rows of kind `load`: running and waiting threads
//! as the scheduler counts them, the ground truth for run queues. Lines that are not KTRGRAPH,
//! other groups and states are kept as `other`.
//!
//! **Traps**: `yielding` means preempted or yielded; only the last `KTR_ENTRIES` records survive;
//! `sched_add` writes `wokeup` also when a change of priority queues a thread anew, which is no
//! wakeup to a thread that waits already.
//!
//! **Sources**: FreeBSD `tools/sched/schedgraph.py` and `schedgraph.d` (what they accept and
//! print), `sys/ktr.h`, `sched_ule.c`. **Verified** on schedules written by the tests only; no dump
//! from a FreeBSD system was at hand.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::ParseError;
use crate::formats::{Confidence, Format, FormatInfo};
use crate::text::dtrace_messages::{self, Message};
use crate::text::scan;
use crate::{mismatch, Head, Options, Parser, Source};
use tracekit_schema::{Code, Diagnostic, Kind, Out, State, StrId};

const NAME: &str = "ktr";
const MARK: &[u8] = b"KTRGRAPH group:";
/// How far the time of one CPU may step back, in ticks.
const SLACK: i64 = 2048;

/// The row of the registry.
pub static FORMAT: Format = Format {
    name: NAME,
    title: "FreeBSD kernel trace buffer (ktrdump -ct) and schedgraph.d",
    streams: false,
    sniff,
    open,
    info: FormatInfo {
        produced_by: "ktrdump -ct > trace.ktr on a kernel with KTR_SCHED; or schedgraph.d",
        kinds: "switch (two halves), wakeup, enqueue, dequeue, load, prio, pi_boost, tick, exit, lost, other",
        provides: "waker, priority, state, queue length (exact), losses; wait channel and lock; not \
            the queue of each enqueue",
        resolution: "one cycle of the time stamp counter",
        clock: "cycles; the rate from clock_hz, from statclock points, or 1 GHz for schedgraph.d",
        confidence: "experimental: schedules written and read back by the tests; no dump from a \
            FreeBSD system was at hand",
        notes: "newest record first, so the whole text is held in memory; without a known rate \
            times stay ticks; only the last KTR_ENTRIES records survive",
    },
};

fn sniff(head: &Head) -> Confidence {
    if memchr::memmem::find(&head.bytes, MARK).is_some() {
        return 95;
    }
    let mut lines = head.bytes.split(|b| *b == b'\n').filter(|l| !l.trim_ascii().is_empty()).take(3);
    if lines.any(|l| Columns::of_header(l).is_some()) {
        60
    } else {
        0
    }
}

/// Where CPU and time stand among the numbers before the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Columns {
    cpu: Option<usize>,
    time: usize,
    count: usize,
}

impl Columns {
    /// From `index  cpu timestamp  trace`, the header that `ktrdump` prints without `-q`.
    fn of_header(line: &[u8]) -> Option<Columns> {
        let words: Vec<_> = line.split(|b| scan::is_blank(*b)).filter(|w| !w.is_empty()).collect();
        if words.first() != Some(&&b"index"[..]) || words.last() != Some(&&b"trace"[..]) {
            return None;
        }
        let at = |name: &[u8]| words.iter().position(|w| *w == name);
        let (cpu, time) = (at(b"cpu"), at(b"timestamp")?);
        Some(Columns { cpu, time, count: time + 1 })
    }

    /// From the number of numbers at the start of a line.
    fn of_line(line: &[u8]) -> Option<Columns> {
        let (mut rest, mut count) = (line, 0);
        while let (word @ [_, ..], after) = scan::word(rest) {
            if scan::u64(word).is_none() || count == 3 {
                break;
            }
            (rest, count) = (after, count + 1);
        }
        match count {
            3 => Some(Columns { cpu: Some(1), time: 2, count }),
            2 => Some(Columns { cpu: Some(0), time: 1, count }),
            _ => None,
        }
    }

    /// CPU, time and the text after them.
    fn split<'t>(&self, line: &'t [u8]) -> Option<(Option<i32>, i64, &'t [u8])> {
        let (mut rest, mut cpu, mut time) = (line, None, 0);
        for i in 0..self.count {
            let (word, after) = scan::word(rest);
            let number = scan::i64(word)?;
            if Some(i) == self.cpu {
                cpu = Some(i32::try_from(number).ok()?);
            }
            if i == self.time {
                time = number;
            }
            rest = after;
        }
        Some((cpu, time, scan::trim(rest)))
    }
}

/// A line that was found good.
struct Entry {
    ticks: i64,
    cpu: Option<i32>,
    number: u64,
    start: usize,
    end: usize,
}

fn open(source: Source, options: &Options, out: &mut Out) -> Result<Box<dyn Parser>, ParseError> {
    let all = source.into_bytes().map_err(|e| ParseError::io(NAME, &e))?;
    let survey = survey((*all).as_ref(), out)?;
    out.meta.set("os", "freebsd");
    out.meta.set("prio.scale", "freebsd");
    out.meta.set("clock.name", "tsc");
    out.meta.set("clock.synchronised", "unknown");
    out.meta.set("parse.lines", survey.lines.to_string());
    out.meta.set("parse.unparsed", survey.unparsed.to_string());
    let hz = rate(&survey, options, out);
    Ok(Box::new(Ktr { all, entries: survey.entries, slashed: survey.slashed, hz, next: 0, consumed: 0 }))
}

/// What a first pass over all lines finds.
#[derive(Default)]
struct Survey {
    /// In order of time.
    entries: Vec<Entry>,
    columns: Option<Columns>,
    lines: u64,
    unparsed: u64,
    first_bad: Option<(u64, String)>,
    /// Slots of the first and the last line, and how often slots rise from one line to the next.
    first_index: Option<u64>,
    index: Option<u64>,
    rises: u64,
    threads: u64,
    /// Every thread is named `process/thread`: `schedgraph.d` wrote this, in ns.
    slashed: bool,
    /// Times of `statclock` points by CPU, and the rate they print.
    ticks: HashMap<i32, Vec<i64>>,
    stathz: Option<i64>,
}

/// Reads every line once, for what later lines say of earlier ones.
fn survey(text: &[u8], out: &mut Out) -> Result<Survey, ParseError> {
    let mut s = Survey { slashed: true, ..Survey::default() };
    let mut start = 0;
    while start < text.len() {
        let end = memchr::memchr(b'\n', &text[start..]).map_or(text.len(), |i| start + i);
        s.line(text, start, end, out);
        start = end + 1;
    }
    s.slashed &= s.threads > 0;
    if s.entries.is_empty() {
        let (line, found) = s.first_bad.unwrap_or((1, String::new()));
        let message = format!("expected `index cpu timestamp KTRGRAPH group:...`, found `{found}`");
        return Err(ParseError::new(NAME, "no-scheduler-events", message)
            .at_line(line)
            .advise("ktrdump needs -c and -t, and a kernel with KTR_SCHED"));
    }
    order(&mut s, out);
    Ok(s)
}

impl Survey {
    fn line(&mut self, text: &[u8], start: usize, end: usize, out: &mut Out) {
        let line = text[start..end].strip_suffix(b"\r").unwrap_or(&text[start..end]);
        self.lines += 1;
        if let Some(found) = Columns::of_header(line) {
            self.columns = Some(found);
            return;
        }
        if line.iter().all(|b| matches!(b, b'-' | b' ' | b'\t')) || line == b"^C" {
            return;
        }
        self.columns = self.columns.or_else(|| Columns::of_line(line));
        let split = self.columns.and_then(|c| c.split(line)).filter(|(.., payload)| !payload.is_empty());
        let Some((cpu, ticks, payload)) = split else { return self.refuse(line, out) };
        if self.columns.is_some_and(|c| c.count == 3) {
            let index = scan::u64(scan::word(line).0);
            self.rises += u64::from(self.index.zip(index).is_some_and(|(before, index)| index > before));
            self.first_index = self.first_index.or(index);
            self.index = index;
        }
        if let Some(graph) = Graph::of(payload) {
            if graph.group == b"thread" {
                self.threads += 1;
                self.slashed &= graph.id.contains(&b'/');
            }
            if let (Some(hz), Some(cpu)) = (graph.attributes.stathz.and_then(scan::i64), cpu) {
                self.stathz = Some(hz);
                self.ticks.entry(cpu).or_default().push(ticks);
            }
        }
        self.entries.push(Entry { ticks, cpu, number: self.lines, start, end });
    }

    fn refuse(&mut self, line: &[u8], out: &mut Out) {
        let number = self.lines;
        if drops(line, number, out) {
            return;
        }
        self.unparsed += 1;
        self.first_bad.get_or_insert_with(|| (number, scan::shown(line, 80)));
        out.diagnostics
            .push_with(Code::Unparsed, || mismatch::unparsed(line, "numbers and KTRGRAPH or text").at_line(number));
    }
}

/// A message of dtrace among the lines of `schedgraph.d`.
fn drops(line: &[u8], number: u64, out: &mut Out) -> bool {
    let Some(message) = dtrace_messages::parse(line) else { return false };
    if let Message::Drops { count, cpu, .. } = message {
        let cause = out.strings.intern(b"drops");
        out.losses.push().cpu(cpu).count(count).cause(cause);
        let mut d = Diagnostic::new(Code::LostEvents, format!("dtrace dropped {count} records")).at_line(number);
        d.cpu = cpu;
        out.diag(d.advise("schedgraph.d keeps a ring: enlarge bufsize"));
    }
    true
}

/// Puts the entries into order of time, whichever way they stood, and leaves out impossible times.
fn order(s: &mut Survey, out: &mut Out) {
    let falls = s.entries.windows(2).filter(|w| w[1].ticks < w[0].ticks).count();
    let reversed = falls * 2 > s.entries.len().saturating_sub(1);
    let mut last: HashMap<Option<i32>, i64> = HashMap::new();
    s.entries.retain(|e| {
        let before = last.get(&e.cpu).copied();
        let bad = before.is_some_and(|before| {
            let step = e.ticks.saturating_sub(before);
            if reversed {
                step > SLACK
            } else {
                step < -SLACK
            }
        });
        if bad {
            out.diagnostics.push_with(Code::TimeBackwards, || {
                let message = format!(
                    "time {} does not follow {} on its CPU: the record is left out",
                    e.ticks,
                    before.unwrap_or(0)
                );
                let mut d = Diagnostic::new(Code::TimeBackwards, message).at_line(e.number);
                d.cpu = e.cpu;
                d
            });
        } else {
            last.insert(e.cpu, e.ticks);
        }
        !bad
    });
    if reversed {
        s.entries.reverse();
        // The newest record stands first: slots fall, and rise once where a full ring began anew.
        if s.rises == 1 && s.first_index < s.index {
            let message = "the ring of KTR_ENTRIES records was full: older records are overwritten";
            out.diag(Diagnostic::new(Code::Overwritten, message).advise("set a larger KTR_ENTRIES"));
        }
    }
    let displaced = s.entries.windows(2).filter(|w| w[1].ticks < w[0].ticks).count() as u64;
    s.entries.sort_by_key(|e| e.ticks);
    if displaced > 0 {
        let message = format!("{displaced} records stood out of time order and were sorted: the CPUs' counters differ");
        out.diag(Diagnostic { count: displaced, ..Diagnostic::new(Code::Reordered, message) });
    }
}

/// Ticks per second, `None` when nobody says.
fn rate(s: &Survey, options: &Options, out: &mut Out) -> Option<u64> {
    let (hz, how) = if let Some(hz) = options.clock_hz.filter(|hz| *hz > 0) {
        (hz, None)
    } else if s.slashed {
        (1_000_000_000, None)
    } else if let Some(hz) = estimate(s) {
        (hz, Some(hz))
    } else {
        out.meta.set("clock.unit", "ticks");
        let message = "the rate of the time stamps is not known: times are ticks, shown as if one took 1 ns";
        out.diag(Diagnostic::new(Code::ClockUnit, message).advise("give clock_hz: sysctl machdep.tsc_freq prints it"));
        return None;
    };
    out.meta.set("clock.unit", "ns");
    out.meta.set("clock.hz", hz.to_string());
    out.meta.set("clock.resolution_ns", "1");
    if let Some(hz) = how {
        let message =
            format!("the rate of the time stamps, {:.3} GHz, is estimated from statclock points", hz as f64 / 1e9);
        out.diag(Diagnostic::new(Code::Inferred, message).advise("say clock_hz for exact durations"));
    }
    Some(hz)
}

/// From the distance of `statclock` points: a CPU that idles skips some, so the short distances count.
fn estimate(s: &Survey) -> Option<u64> {
    let mut steps: Vec<i64> = s
        .ticks
        .values()
        .flat_map(|times| {
            let mut times = times.clone();
            times.sort_unstable();
            times.windows(2).map(|w| w[1].saturating_sub(w[0])).collect::<Vec<_>>()
        })
        .filter(|step| *step > 0)
        .collect();
    steps.sort_unstable();
    let typical = *steps.get(steps.len() / 4)?;
    // As wide as the product of two times.
    let (typical, steps) = (i128::from(typical), steps.into_iter().map(i128::from));
    let near: Vec<i128> = steps.filter(|step| step * 2 > typical && step * 2 < typical * 3).collect();
    let mean = near.iter().sum::<i128>() / near.len().max(1) as i128;
    u64::try_from(mean * i128::from(s.stathz?)).ok().filter(|hz| *hz > 0)
}

/// A KTRGRAPH record taken apart.
struct Graph<'t> {
    group: &'t [u8],
    id: &'t [u8],
    /// `state`, `point` or `counter`.
    kind: &'t [u8],
    value: &'t [u8],
    attributes: Attributes<'t>,
}

#[derive(Default)]
struct Attributes<'t> {
    prio: Option<&'t [u8]>,
    new_prio: Option<&'t [u8]>,
    wmesg: Option<&'t [u8]>,
    lock: Option<&'t [u8]>,
    linked: Option<&'t [u8]>,
    stathz: Option<&'t [u8]>,
}

/// A quoted value, or one up to the next comma; and what follows the comma.
fn value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (value, rest) = match text {
        [b'"', inner @ ..] => {
            let end = memchr::memchr(b'"', inner)?;
            (&inner[..end], &inner[end + 1..])
        }
        _ => text.split_at(memchr::memchr(b',', text).unwrap_or(text.len())),
    };
    Some((value, scan::skip_blanks(rest.strip_prefix(b",").unwrap_or(rest))))
}

impl<'t> Graph<'t> {
    fn of(text: &'t [u8]) -> Option<Graph<'t>> {
        let (group, rest) = value(text.strip_prefix(MARK)?)?;
        let (id, rest) = value(rest.strip_prefix(b"id:")?)?;
        let colon = memchr::memchr(b':', rest)?;
        let kind = &rest[..colon];
        let (word, rest) = value(&rest[colon + 1..])?;
        let mut attributes = Attributes::default();
        let mut rest = rest.strip_prefix(b"attributes:").map_or(&b""[..], scan::skip_blanks);
        while let Some(colon) = memchr::memchr(b':', rest) {
            let name = scan::trim(&rest[..colon]);
            let Some((word, after)) = value(scan::skip_blanks(&rest[colon + 1..])) else { break };
            let stated = Some(word).filter(|w| *w != b"(null)");
            match name.strip_prefix(b"\"").and_then(|n| n.strip_suffix(b"\"")).unwrap_or(name) {
                b"prio" => attributes.prio = stated,
                b"new prio" => attributes.new_prio = stated,
                b"wmesg" => attributes.wmesg = stated,
                b"lock" | b"lockname" => attributes.lock = stated,
                b"linkedto" => attributes.linked = stated,
                b"stathz" => attributes.stathz = stated,
                _ => {}
            }
            rest = after;
        }
        Some(Graph { group, id, kind, value: word, attributes })
    }
}

struct Ktr {
    all: Arc<dyn AsRef<[u8]> + Send + Sync>,
    entries: Vec<Entry>,
    slashed: bool,
    hz: Option<u64>,
    next: usize,
    consumed: u64,
}

impl Parser for Ktr {
    fn fill(&mut self, out: &mut Out, rows: usize) -> Result<bool, ParseError> {
        let all = Arc::clone(&self.all);
        let text = (*all).as_ref();
        let to = self.next.saturating_add(rows.max(1)).min(self.entries.len());
        for i in self.next..to {
            self.row(i, text, out);
        }
        self.next = to;
        Ok(to < self.entries.len())
    }

    fn consumed(&self) -> u64 {
        self.consumed
    }
}

/// A thread by its id.
#[derive(Clone, Copy)]
struct Thread {
    tid: Option<i64>,
    comm: Option<StrId>,
}

impl Ktr {
    fn row(&mut self, i: usize, text: &[u8], out: &mut Out) {
        let e = &self.entries[i];
        let line = text[e.start..e.end].strip_suffix(b"\r").unwrap_or(&text[e.start..e.end]);
        self.consumed += (e.end - e.start) as u64 + 1;
        let ts = self.hz.map_or(e.ticks, |hz| (i128::from(e.ticks) * 1_000_000_000 / i128::from(hz)) as i64);
        let payload = memchr::memmem::find(line, MARK).map_or_else(|| after_numbers(line), |at| &line[at..]);
        out.events.push().ts_ns(ts).seq(i as u64).cpu(e.cpu).quality(0);
        let Some(graph) = Graph::of(payload) else { return other(payload, payload, out) };
        let understood = match (graph.group, graph.kind) {
            (b"thread", b"state") => self.state(&graph, out),
            (b"thread", b"point") => self.point(&graph, out),
            (b"load", b"counter") => load(&graph, out),
            _ => false,
        };
        if !understood {
            other(graph.id, payload, out);
        }
    }

    fn thread(&self, id: &[u8], out: &mut Out) -> Thread {
        let at = memchr::memmem::rfind(id, b" tid ");
        let (name, tid) = at.map_or((id, None), |at| (&id[..at], scan::i64(&id[at + 5..])));
        let slash = memchr::memchr(b'/', name).filter(|_| self.slashed);
        let name = slash.map_or(name, |at| &name[at + 1..]);
        Thread { tid, comm: Some(out.strings.intern(name)) }
    }

    fn state(&self, graph: &Graph<'_>, out: &mut Out) -> bool {
        let a = &graph.attributes;
        let (kind, state, reason) = match graph.value {
            b"running" | b"idle" => (Kind::Switch, None, None),
            b"yielding" => (Kind::Switch, Some(State::Runnable), None),
            b"sleep" => (Kind::Switch, Some(State::Sleeping), a.wmesg),
            b"blocked" => (Kind::Switch, Some(State::WaitingLock), a.lock),
            b"suspended" => (Kind::Switch, Some(State::Stopped), a.wmesg),
            b"swapped" => (Kind::Switch, Some(State::Blocked), a.wmesg),
            b"iwait" => (Kind::Switch, Some(State::Sleeping), Some(&b"iwait"[..])),
            b"runq add" => (Kind::Enqueue, None, None),
            b"runq rem" => (Kind::Dequeue, None, None),
            b"thread exit" | b"proc exit" | b"exit" => (Kind::Exit, None, None),
            _ => return false,
        };
        let thread = self.thread(graph.id, out);
        let by = a.linked.map(|id| self.thread(id, out));
        let reason = reason.map(|text| out.strings.intern(text));
        let raw = state.map(|_| out.strings.intern(graph.value));
        let prio = a.prio.and_then(scan::i32);
        let Some(mut row) = out.events.last() else { return true };
        row.kind(kind);
        if graph.value == b"running" {
            row.next_tid(thread.tid).next_comm(thread.comm).next_prio(prio);
            return true;
        }
        row.tid(thread.tid).comm(thread.comm).prio(prio).state(state).state_raw(raw).reason(reason);
        if let Some(by) = by {
            row.ctx_tid(by.tid).ctx_comm(by.comm);
        }
        true
    }

    fn point(&self, graph: &Graph<'_>, out: &mut Out) -> bool {
        let a = &graph.attributes;
        // Who does it, to whom: `wokeup` and `lend prio` are said of the thread that runs, the
        // others of their subject.
        let (kind, of_current) = match graph.value {
            b"wokeup" => (Kind::Wakeup, true),
            b"lend prio" => (Kind::PiBoost, true),
            b"prio" | b"priority change" => (Kind::Prio, false),
            b"statclock" => (Kind::Tick, false),
            _ => return false,
        };
        let thread = self.thread(graph.id, out);
        let linked = a.linked.map(|id| self.thread(id, out));
        let (prio, new) = (a.prio.and_then(scan::i32), a.new_prio.and_then(scan::i64));
        let Some(mut row) = out.events.last() else { return true };
        row.kind(kind).prio(prio).value(new);
        let (current, subject) = if of_current { (Some(thread), linked) } else { (linked, Some(thread)) };
        let current = if kind == Kind::Tick { subject } else { current };
        if let Some(subject) = subject {
            row.tid(subject.tid).comm(subject.comm);
        }
        if let Some(current) = current {
            row.ctx_tid(current.tid).ctx_comm(current.comm);
        }
        true
    }
}

/// The text of a line that is not KTRGRAPH.
fn after_numbers(line: &[u8]) -> &[u8] {
    let mut rest = line;
    loop {
        let (word, after) = scan::word(rest);
        if word.is_empty() || scan::u64(word).is_none() {
            return scan::trim(rest);
        }
        rest = after;
    }
}

/// `CPU 3 load`, or `global load` of a scheduler with one queue.
fn load(graph: &Graph<'_>, out: &mut Out) -> bool {
    let Some(value) = scan::i64(graph.value) else { return false };
    let cpu = graph.id.strip_prefix(b"CPU ").and_then(|rest| scan::i32(scan::word(rest).0));
    if cpu.is_none() && graph.id != b"global load" {
        return false;
    }
    if let Some(mut row) = out.events.last() {
        row.kind(Kind::Load).target_cpu(cpu).value(value);
    }
    true
}

fn other(name: &[u8], payload: &[u8], out: &mut Out) {
    let name = &name[..name.len().min(64)];
    let (name, raw) = (out.strings.intern(name), out.strings.keep(payload));
    if let Some(mut row) = out.events.last() {
        row.kind(Kind::Other).name(name).raw(raw);
    }
}
