//! `ctf`: binary traces of the Common Trace Format 1.8, as LTTng's kernel tracer and `perf data
//! convert` write them.
//!
//! # Format
//!
//! **Produced by** `lttng create; lttng enable-event --kernel sched_*; lttng start` (the folder
//! `kernel` of the session), `perf data convert --to-ctf DIR`.
//!
//! **Layout**: a folder with a file `metadata` and one file a stream, or a tar archive of it.
//! `metadata` is text ([`tsdl`]), plain or in packets that begin with 75D11D57. A stream is
//! packets: a header (C1FC1FC1, number of the stream), a context (times, sizes in bits, dropped
//! events, CPU), then events: header with number and lower bits of the time, contexts, payload. All
//! layouts are those that the metadata declares.
//!
//! **Clock**: that of the metadata, plus its offset: ns since 1970 for LTTng.
//!
//! **Order**: streams are merged by time; events of one time by the names of their files.
//!
//! **Kept**: every event, mapped to rows as those that babeltrace2 prints
//! ([`lttng`](crate::lttng)). Events without a kind stay `other`, with their fields as text.
//! **Dropped**: fields that no column holds, elements of arrays.
//!
//! **Losses**: the counters of dropped events in the packets, between the ends of two packets.
//!
//! **Departures tolerated**: cut files, damaged packets (the next packet is read), packets whose size
//! was not written (-1: read up to the zeros that the file ends with). **Not read**:
//! CTF 2 (metadata in JSON), compressed or encrypted metadata, traces of user space (they have no
//! scheduler events).
//!
//! **Traps**: lttng-modules before 2.9.15 and 2.10.12 wrote the states that a kernel from 4.14 on
//! keeps, not those that it reports: the versions in the metadata tell.
//!
//! **Sources**: the CTF 1.8.3 specification (diamon.org/ctf); lttng-modules
//! `instrumentation/events/sched.h` and its history. **Verified**: events of public LTTng
//! and perf traces equal what babeltrace2 prints.

mod decode;
mod stream;
mod tsdl;

use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::binary::bytes::Reader;
use crate::binary::tar;
use crate::error::ParseError;
use crate::formats::{Confidence, Format, FormatInfo};
use crate::lttng;
use crate::text::log::{Log, Stamp, Who};
use crate::text::payload::state::{Evidence, Table};
use crate::text::payload::Outcome;
use crate::{Head, Options, Parser, Source};
use tracekit_schema::events::quality;
use tracekit_schema::table::Table as _;
use tracekit_schema::{Code, Diagnostic, Kind, Out};

use decode::Leaves;
use stream::{Bytes, Dropped, Found, Next, Stream, MAGIC};
use tsdl::Metadata;

const NAME: &str = "ctf";
/// What packets of metadata begin with.
const METADATA_MAGIC: u32 = 0x75D1_1D57;
/// Bytes of metadata, at most: those of an LTTng kernel trace with all events are under 2 MB.
const MOST_METADATA: usize = 64 << 20;

/// The row of the registry.
pub static FORMAT: Format = Format {
    name: NAME,
    title: "binary CTF 1.8: LTTng kernel, perf data convert --to-ctf",
    streams: false,
    sniff,
    open,
    info: FormatInfo {
        produced_by: "lttng record of kernel events (the folder, or a tar of it); perf data convert --to-ctf",
        kinds: "sched, irq, softirq, system call, cpu_idle, cpu_frequency and cpu_capacity events; others as `other`",
        provides: "target CPU, priority, state, losses",
        resolution: "1 ns",
        clock: "that of the metadata with its offset: since 1970 for LTTng",
        confidence: "real captures: public traces, equal to what babeltrace2 prints",
        notes: "a trace is a folder; without the context `tid` the current thread of a record is \
            not stated; CTF 2 is refused",
    },
};

fn is_metadata(bytes: &[u8]) -> bool {
    let magic = bytes.first_chunk::<4>();
    bytes.starts_with(b"/* CTF")
        || magic.is_some_and(|m| [m, &reversed(m)].iter().any(|m| u32::from_le_bytes(**m) == METADATA_MAGIC))
}

/// True for the metadata of CTF 2: JSON whose first object is a preamble.
fn is_json(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(512)];
    start.first().is_some_and(|b| matches!(b, b'{' | 0x1e)) && memchr::memmem::find(start, b"\"preamble\"").is_some()
}

fn reversed(bytes: &[u8; 4]) -> [u8; 4] {
    let mut bytes = *bytes;
    bytes.reverse();
    bytes
}

fn is_stream(bytes: &[u8]) -> bool {
    let magic = bytes.first_chunk::<4>();
    magic.is_some_and(|m| u32::from_le_bytes(*m) == MAGIC || u32::from_be_bytes(*m) == MAGIC)
}

fn sniff(head: &Head) -> Confidence {
    if is_metadata(&head.bytes) || is_json(&head.bytes) {
        return 100;
    }
    let ours = |e: &tar::Entry| {
        let bytes = &head.bytes[e.data.clone()];
        is_metadata(bytes) || is_json(bytes) || is_stream(bytes)
    };
    if tar::is_tar(&head.bytes) && tar::entries(&head.bytes).iter().any(ours) {
        96
    } else {
        0
    }
}

/// Files of a trace: path, and where it lies in which bytes.
type Files = Vec<(String, Bytes, std::ops::Range<usize>)>;

fn open(source: Source, options: &Options, out: &mut Out) -> Result<Box<dyn Parser>, ParseError> {
    let files = files(source)?;
    let of_name = |path: &str| path.rsplit('/').next() == Some("metadata");
    let Some(at) = files.iter().position(|(path, ..)| of_name(path)) else {
        let message = "expected a file called `metadata` beside the streams, found none";
        return Err(
            ParseError::new(NAME, "damaged", message).advise("give the folder of the trace, or a tar archive of it")
        );
    };
    let folder = files[at].0.strip_suffix("metadata").unwrap_or_default().to_owned();
    if let Some((other, ..)) = files.iter().skip(at + 1).find(|(path, ..)| of_name(path)) {
        let message = format!("expected one trace, found two: `{}` and `{other}`", files[at].0);
        return Err(ParseError::new(NAME, "unsupported", message).advise("give the folder of one, as `kernel`"));
    }
    let text = metadata_text((*files[at].1).as_ref().get(files[at].2.clone()).unwrap_or_default())?;
    let meta = tsdl::read(&text).map_err(|wrong| {
        let line = text[..wrong.at.min(text.len())].matches('\n').count() as u64 + 1;
        ParseError::new(NAME, "damaged", format!("metadata: {}", wrong.message)).at_line(line)
    })?;
    let streams: Vec<_> = files
        .into_iter()
        .filter(|(path, bytes, range)| {
            let name = path.strip_prefix(folder.as_str()).unwrap_or("/");
            !name.contains('/') && is_stream((**bytes).as_ref().get(range.clone()).unwrap_or_default())
        })
        .map(|(path, bytes, range)| Stream::new(path, bytes, range))
        .collect();
    if streams.is_empty() {
        let message = "expected files of streams beside `metadata`, found none";
        return Err(ParseError::new(NAME, "no-scheduler-events", message)
            .advise("give the folder of the trace, or a tar archive of it"));
    }
    if !meta.events.values().any(|e| lttng::kind(e.name.as_bytes()).is_some()) {
        let domain = meta.env.get("domain").map_or("unknown", String::as_str);
        let message = format!("expected scheduler events, found none declared in a trace of domain {domain}");
        return Err(ParseError::new(NAME, "no-scheduler-events", message).advise("record kernel events: sched_*"));
    }
    describe(&meta, out);
    Ok(Box::new(Ctf::new(meta, streams, options)))
}

fn files(source: Source) -> Result<Files, ParseError> {
    if let Source::Files(files) = source {
        return Ok(files
            .into_iter()
            .map(|(path, bytes)| {
                let len = (*bytes).as_ref().len();
                (path, bytes, 0..len)
            })
            .collect());
    }
    let all = source.into_bytes().map_err(|e| ParseError::io(NAME, &e))?;
    let bytes = (*all).as_ref();
    if !tar::is_tar(bytes) {
        let message = "the metadata alone holds no events";
        return Err(ParseError::new(NAME, "no-scheduler-events", message)
            .advise("give the folder of the trace, or a tar archive of it"));
    }
    let mut files: Files = tar::entries(bytes).into_iter().map(|e| (e.path, Arc::clone(&all), e.data)).collect();
    files.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(files)
}

/// The text of `metadata`, out of its packets if it is in some.
fn metadata_text(bytes: &[u8]) -> Result<String, ParseError> {
    let damaged = |at: usize| {
        ParseError::new(NAME, "damaged", "metadata: expected a packet of text, found damage").at_offset(at as u64)
    };
    let magic = bytes.first_chunk::<4>().copied().unwrap_or_default();
    let (le, be) = (u32::from_le_bytes(magic) == METADATA_MAGIC, u32::from_be_bytes(magic) == METADATA_MAGIC);
    let mut text = Vec::new();
    if le || be {
        let mut at = 0;
        while at < bytes.len() {
            let mut r = Reader::new(bytes, at, be);
            let head = (|| {
                let magic = r.u32()?;
                r.take(20)?;
                let (content, packet) = (r.u32()? as usize / 8, r.u32()? as usize / 8);
                Ok::<_, crate::binary::bytes::Short>((magic, content, packet, r.u8()?, r.u8()?))
            })();
            let Ok((magic, content, packet, compressed, encrypted)) = head else { return Err(damaged(at)) };
            if compressed != 0 || encrypted != 0 {
                let message = "metadata: compressed or encrypted packets are not read";
                return Err(ParseError::new(NAME, "unsupported", message).at_offset(at as u64));
            }
            const HEADER: usize = 37;
            if magic != METADATA_MAGIC || content < HEADER || packet < content {
                return Err(damaged(at));
            }
            text.extend_from_slice(bytes.get(at + HEADER..at + content).ok_or_else(|| damaged(at))?);
            at += packet;
        }
    } else {
        text.extend_from_slice(bytes);
    }
    let json = text.trim_ascii_start().first().is_some_and(|b| matches!(b, b'[' | b'{' | 0x1e));
    if json {
        let message = "the metadata is JSON, that of CTF 2, which is not read";
        return Err(ParseError::new(NAME, "unsupported", message)
            .advise("convert the trace with babeltrace2 to CTF 1.8 (--params ctf-version=\"1\")"));
    }
    if text.len() > MOST_METADATA {
        let message = format!("expected at most {MOST_METADATA} bytes of metadata, found {}", text.len());
        return Err(ParseError::new(NAME, "damaged", message));
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Sets the metadata of the trace.
fn describe(meta: &Metadata, out: &mut Out) {
    out.meta.set("os", "linux");
    out.meta.set("prio.scale", "linux");
    out.meta.set("clock.resolution_ns", "1");
    let env = |keys: &[&str]| keys.iter().find_map(|key| meta.env.get(*key)).cloned();
    for (key, found) in [
        ("host", env(&["hostname", "host"])),
        ("kernel", env(&["kernel_release", "release"])),
        ("arch", env(&["machine", "architecture"])),
    ] {
        if let Some(found) = found {
            out.meta.set(key, found);
        }
    }
    let version: Vec<_> =
        ["tracer_major", "tracer_minor"].iter().filter_map(|key| meta.env.get(*key).map(String::as_str)).collect();
    let tracer = env(&["tracer_name"]).unwrap_or_else(|| "unknown tracer".to_owned());
    out.meta.set("source.variant", format!("{tracer} {}", version.join(".")).trim_end().to_owned());
    if let Some(clock) = meta.clocks.first() {
        let since_1970 = clock.offset != 0 || clock.offset_s != 0;
        out.meta.set("clock.name", if since_1970 { "realtime" } else { clock.name.as_str() });
        out.meta.set("clock.synchronised", "true");
        if since_1970 {
            out.meta.set("clock.epoch_offset_ns", "0");
        }
    }
}

/// What a stream waits with.
enum Pending {
    Event(Found),
    Dropped(Dropped),
}

/// The streams of a trace, merged by time.
struct Ctf {
    meta: Arc<Metadata>,
    streams: Vec<Stream>,
    pending: Vec<Option<Pending>>,
    /// Time and stream of what comes first.
    heap: BinaryHeap<std::cmp::Reverse<(u64, usize)>>,
    log: Log,
    states: lttng::States,
    started: bool,
    /// The context names the current thread.
    skipped: u64,
}

/// The table of numeric states of a kernel, as the trace's recorder wrote them.
fn table(meta: &Metadata, release: &str) -> Option<Table> {
    if meta.env.get("tracer_name").is_none_or(|name| name != "lttng-modules") {
        return Table::of_kernel(release);
    }
    let number = |key: &str| meta.env.get(key).and_then(|n| n.parse::<u64>().ok());
    let version = (number("tracer_major"), number("tracer_minor"));
    let (Some(major), Some(minor)) = version else { return lttng::table(release, false) };
    let patch = number("tracer_patchlevel").unwrap_or(u64::MAX);
    lttng::table(release, lttng::writes_kept(major, minor, patch))
}

impl Ctf {
    fn new(meta: Metadata, streams: Vec<Stream>, options: &Options) -> Self {
        let release = ["kernel_release", "release"].iter().find_map(|key| meta.env.get(*key));
        let named = options.extra.get("kernel").or(release).and_then(|r| table(&meta, r));
        let states = lttng::States { table: named.unwrap_or_default(), numbers: Evidence::default() };
        Ctf {
            meta: Arc::new(meta),
            pending: streams.iter().map(|_| None).collect(),
            streams,
            heap: BinaryHeap::new(),
            log: Log::default(),
            states,
            started: false,
            skipped: 0,
        }
    }

    /// The time in ns.
    fn ns(&self, cycles: u64) -> i64 {
        let Some(clock) = self.meta.clocks.first() else { return cycles as i64 };
        let all = i128::from(cycles) + i128::from(clock.offset);
        let ns = all * 1_000_000_000 / i128::from(clock.hz) + i128::from(clock.offset_s) * 1_000_000_000;
        i64::try_from(ns).unwrap_or(i64::MAX)
    }

    /// Puts what comes next in stream `i` in line.
    fn advance(&mut self, i: usize, out: &mut Out) {
        let meta = Arc::clone(&self.meta);
        loop {
            let next = self.streams[i].next(&meta);
            let (clock, pending) = match next {
                Next::Event(found) => (found.clock, Pending::Event(found)),
                Next::Dropped(dropped) => (dropped.begin, Pending::Dropped(dropped)),
                Next::End => return,
                other => {
                    self.report(i, other, out);
                    continue;
                }
            };
            self.pending[i] = Some(pending);
            self.heap.push(std::cmp::Reverse((clock, i)));
            return;
        }
    }

    fn report(&mut self, i: usize, what: Next, out: &mut Out) {
        let path = &self.streams[i].path;
        let (code, message, at) = match what {
            Next::Damaged(what, at) => (Code::Damaged, format!("{path}: {what}"), at),
            Next::Cut(at) => (Code::Truncated, format!("{path}: the file ends within a packet"), at),
            Next::Event(_) | Next::Dropped(_) | Next::End => return,
        };
        self.skipped += 1;
        out.diagnostics.push_with(code, || Diagnostic::new(code, message).at_offset(at));
        self.log.lose(self.streams[i].cpu(), None, out);
    }

    fn dropped(&mut self, dropped: Dropped, out: &mut Out) {
        let at = self.ns(dropped.begin);
        let from = dropped.from.map(|t| self.ns(t));
        let to = dropped.to.map_or(at, |t| self.ns(t));
        let count = i64::try_from(dropped.count).ok();
        self.log.lose_between(dropped.cpu, count, (from, to), at.min(to), out);
    }

    fn event(&mut self, i: usize, found: &Found, out: &mut Out) {
        let meta = Arc::clone(&self.meta);
        let (bytes, range) = self.streams[i].data();
        let data = &(*bytes).as_ref()[range];
        let read = self.streams[i].fields(data, &meta, found);
        match read {
            Ok((name, leaves)) => self.row(i, found.clock, name, &leaves, out),
            Err(what) => self.report(i, what, out),
        }
    }

    fn row(&mut self, i: usize, clock: u64, name: &str, leaves: &Leaves<'_, '_>, out: &mut Out) {
        use lttng::Fields as _;
        let (event, perf) = lttng::event_name(name.as_bytes());
        let mut cpu = self.streams[i].cpu();
        let thread = |keys: [&str; 2]| keys.iter().find_map(|key| leaves.context(key)).filter(|n| *n >= 0);
        let comm = leaves.context_text("procname").filter(|_| !perf).map(|text| out.strings.intern(text));
        let mut who = Who { tid: thread(["tid", "vtid"]), pid: thread(["pid", "vpid"]), comm };
        if perf {
            let (perf_cpu, tid, pid) = lttng::perf_context(leaves);
            cpu = cpu.or(perf_cpu);
            who = Who { tid, pid, comm: None };
        }
        let mut stamp = Stamp { ts_ns: self.ns(clock), cpu, who, irq: None, quality: 0 };
        if lttng::from_before(name.as_bytes(), clock as i64, self.log.has_begun()) {
            stamp = Stamp { quality: quality::SYNTHESIZED, ..Stamp::default() };
        }
        self.log.arrive(&stamp, out);
        let mut row = self.log.begin(&mut out.events, &stamp);
        let index = row.index();
        let kind = lttng::kind(name.as_bytes());
        let filled =
            kind.and_then(|k| lttng::fill(k, name.as_bytes(), leaves, &mut self.states, &mut row, &mut out.strings));
        let outcome = match (kind, filled) {
            (Some(kind), Some(())) => {
                row.kind(kind);
                if event.starts_with(b"lttng_statedump") {
                    row.quality(quality::SYNTHESIZED);
                }
                Outcome::Known(kind)
            }
            (None, _) => Outcome::Unknown,
            (Some(_), None) => Outcome::Partial,
        };
        if !matches!(outcome, Outcome::Known(_)) {
            let raw = leaves.printed_payload();
            row.kind(Kind::Other).name(out.strings.intern(name.as_bytes())).raw(out.strings.keep(raw.as_bytes()));
            if outcome == Outcome::Partial {
                let so_far = out.events.quality.get(index).unwrap_or(0);
                if let Some(mut row) = out.events.last() {
                    row.quality(so_far | quality::PARSE_PARTIAL);
                }
                self.log.partial(name.as_bytes(), raw.as_bytes(), out);
            }
        }
        // System calls are one event a call: they count as two.
        let event: &[u8] = match kind {
            Some(Kind::SysEnter) => b"syscall_entry",
            Some(Kind::SysExit) => b"syscall_exit",
            _ => event,
        };
        self.log.note(event, outcome);
    }
}

impl Parser for Ctf {
    fn fill(&mut self, out: &mut Out, rows: usize) -> Result<bool, ParseError> {
        if !self.started {
            self.started = true;
            for i in 0..self.streams.len() {
                self.advance(i, out);
            }
        }
        let base = out.events.len();
        let target = base.saturating_add(rows.max(1));
        // Records without a time wait for the first that has one.
        while out.events.len() < target || self.log.awaits_time(base, out) {
            let Some(std::cmp::Reverse((_, i))) = self.heap.pop() else {
                self.states.numbers.finish(self.states.table, true, "", out);
                self.log.settle_untimed(base, out);
                self.log.finish(out);
                out.meta.set("parse.unparsed", self.skipped.to_string());
                return Ok(false);
            };
            match self.pending[i].take() {
                Some(Pending::Event(found)) => self.event(i, &found, out),
                Some(Pending::Dropped(dropped)) => self.dropped(dropped, out),
                None => {}
            }
            self.advance(i, out);
        }
        self.log.settle_untimed(base, out);
        Ok(true)
    }

    fn consumed(&self) -> u64 {
        self.streams.iter().map(Stream::consumed).sum()
    }
}
