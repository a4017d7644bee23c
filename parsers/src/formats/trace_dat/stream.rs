//! The records of all CPUs and buffers, merged by time.

use super::header::{Buffer, CpuData, Head};
use super::pages::{Fault, Pages};
use crate::binary::ring_buffer::{Layout, Missed};
use crate::binary::tasks::Tasks;
use crate::binary::tracepoint::Decoder;
use crate::error::ParseError;
use crate::text::log::Stamp;
use crate::text::stage::Stage;
use crate::Parser;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use tracekit_schema::events::quality;
use tracekit_schema::table::Table;
use tracekit_schema::{Code, Diagnostic, Kind, Out};

/// One CPU of one buffer.
struct Cpu {
    cpu: i32,
    buffer: u16,
    pages: Pages,
    first_ts: Option<i64>,
    last_ts: Option<i64>,
    /// Lost records that pages reported.
    counted: u64,
    /// A page reported lost records without their number.
    unknown: bool,
    /// Records were lost in the file.
    torn: bool,
    /// The file ends before this CPU's records do.
    cut: bool,
    /// What the counters say: overwritten, dropped.
    stat: Option<(u64, u64)>,
}

/// Turns raw times into ns.
#[derive(Clone, Copy)]
struct Clock {
    scale: Option<(u32, u32)>,
    hz: Option<u64>,
    offset: i64,
}

impl Clock {
    #[inline]
    fn ns(self, raw: u64) -> i64 {
        let ns = match (self.scale, self.hz) {
            (None, None) => raw as i64,
            (None, Some(hz)) => {
                i64::try_from(u128::from(raw) * 1_000_000_000 / u128::from(hz.max(1))).unwrap_or(i64::MAX)
            }
            (Some((mult, shift)), _) => ((u128::from(raw) * u128::from(mult)) >> shift) as i64,
        };
        ns.wrapping_add(self.offset)
    }
}

/// Which buffer an event number belongs to, when there are several.
#[derive(Default)]
struct Owners {
    of: Vec<u16>,
    names: Vec<String>,
}

impl Owners {
    /// False when another buffer was first to show this event.
    fn keep(&mut self, number: u32, buffer: u16, kind: Option<Kind>) -> bool {
        let number = number as usize;
        // Each buffer has markers of its own.
        if number > usize::from(u16::MAX) || matches!(kind, Some(Kind::Marker | Kind::Other)) {
            return true;
        }
        if self.of.len() <= number {
            self.of.resize(number + 1, u16::MAX);
        }
        if self.of[number] == u16::MAX {
            self.of[number] = buffer;
        }
        self.of[number] == buffer
    }
}

/// The record stream of a trace.dat.
pub struct Stream {
    bytes: Arc<dyn AsRef<[u8]> + Send + Sync>,
    decoder: Decoder,
    clock: Clock,
    tasks: Tasks,
    cpus: Vec<Cpu>,
    /// (time, index in `cpus`) of the next record of each CPU but the current one.
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    current: Option<u32>,
    owners: Option<Owners>,
    /// Rows on their way into the table.
    stage: Stage,
    seq: u64,
    last_ts: i64,
    /// Records are missing that may be of other CPUs than these.
    lacks: bool,
    consumed: u64,
    done: bool,
}

impl Stream {
    /// Starts at the first record of each CPU.
    pub fn new(bytes: Arc<dyn AsRef<[u8]> + Send + Sync>, head: Head, out: &mut Out) -> Self {
        let file = (*bytes).as_ref();
        let mut cpus = Vec::new();
        for (index, buffer) in head.buffers.iter().enumerate() {
            for data in &buffer.cpus {
                if let Some(pages) = cpu_pages(file, &head, buffer, data, out) {
                    cpus.push(Cpu {
                        cpu: data.cpu,
                        buffer: index as u16,
                        pages,
                        first_ts: None,
                        last_ts: None,
                        counted: 0,
                        unknown: false,
                        torn: false,
                        cut: buffer.cut == Some(data.cpu)
                            || !buffer.compressed && data.offset.saturating_add(data.size) > file.len() as u64,
                        stat: stat(&head, buffer, data.cpu),
                    });
                }
            }
        }
        let mut tasks = Tasks::default();
        for (tid, name) in head.header.task_names() {
            tasks.entry(tid).set_comm(Some(out.strings.intern(name)));
        }
        tasks.entry(0).set_comm(Some(out.strings.intern(b"<idle>")));
        let several = head.buffers.iter().filter(|b| !b.cpus.is_empty()).count() > 1;
        let names = head.buffers.iter().map(|b| b.name.clone()).collect();
        let mut stream = Stream {
            clock: Clock { scale: head.facts.tsc, hz: head.facts.hz, offset: head.facts.offset_ns },
            decoder: head.header.decoder,
            tasks,
            cpus,
            heap: BinaryHeap::new(),
            current: None,
            owners: several.then(|| Owners { of: Vec::new(), names }),
            stage: Stage::default(),
            seq: 0,
            last_ts: i64::MIN,
            lacks: head.buffers.iter().any(|b| b.lacks),
            consumed: 0,
            done: false,
            bytes: bytes.clone(),
        };
        for i in 0..stream.cpus.len() {
            stream.advance(file, i as u32, out);
        }
        stream.current = stream.heap.pop().map(|Reverse((_, i))| i);
        stream
    }

    /// Moves CPU `i` to its next record and puts it in the heap; false at its end.
    fn advance(&mut self, file: &[u8], i: u32, out: &mut Out) -> bool {
        let cpu = &mut self.cpus[i as usize];
        let more = cpu.pages.advance(self.decoder.be(), file);
        if let Some(fault) = cpu.pages.fault.take() {
            report(fault, cpu.cpu, out);
        }
        if more {
            self.heap.push(Reverse((cpu.pages.ts, i)));
        }
        more
    }

    /// Adds the current record of CPU `i`.
    #[inline(always)]
    fn emit<const BE: bool>(&mut self, file: &[u8], i: u32, out: &mut Out) {
        let cpu = &mut self.cpus[i as usize];
        let ts = self.clock.ns(cpu.pages.ts);
        let mut marks = 0;
        if cpu.pages.missed != Missed::No {
            self.stage.flush(&mut out.events, self.seq);
            lost(cpu, ts, self.seq, out);
            self.seq += 1;
            marks |= quality::NEAR_LOSS;
        }
        cpu.first_ts.get_or_insert(ts);
        cpu.last_ts = Some(ts);
        let record = cpu.pages.payload(file);
        if let Some(owners) = &mut self.owners {
            if let Some(number) = self.decoder.number(record) {
                if !owners.keep(number, cpu.buffer, self.decoder.kind(number)) {
                    duplicate(owners, cpu.buffer, cpu.cpu, ts, out);
                    return;
                }
            }
        }
        if ts < self.last_ts {
            marks |= quality::OUT_OF_ORDER;
            backwards(cpu, ts, self.last_ts, out);
        }
        self.last_ts = ts;
        if self.stage.is_full() {
            self.stage.flush(&mut out.events, self.seq);
        }
        let mut stamp = Stamp { ts_ns: ts, cpu: Some(cpu.cpu), quality: marks, ..Stamp::default() };
        if self.decoder.stage::<false>(BE, record, &mut stamp, &self.tasks, &mut self.stage, &mut out.strings) {
            self.seq += 1;
            return;
        }
        self.stage.flush(&mut out.events, self.seq);
        let mut row = out.events.push();
        row.ts_ns(ts).cpu(cpu.cpu).seq(self.seq);
        self.seq += 1;
        let decoded = self.decoder.decode(record, &mut row, &mut out.strings);
        if let Some(tid) = decoded.ctx_tid {
            row.ctx_comm(self.tasks.get(tid).comm());
        }
        if decoded.partial || decoded.unknown {
            marks |= quality::PARSE_PARTIAL;
        }
        row.quality(marks);
        if marks & quality::PARSE_PARTIAL != 0 {
            let (offset, cpu) = (cpu.pages.offset() as u64, cpu.cpu);
            out.diagnostics.push_with(if decoded.unknown { Code::UnknownEvent } else { Code::PartlyParsed }, || {
                let (code, message) = if decoded.unknown {
                    (Code::UnknownEvent, "a record's event number has no format in the file")
                } else {
                    (Code::PartlyParsed, "a record is shorter than its format says")
                };
                Diagnostic::new(code, message).at_offset(offset).on_cpu(cpu).at_ts(ts)
            });
        }
    }

    /// Adds records until there are `target` rows; false at the end. Code of one byte order is the faster.
    fn rows<const BE: bool>(&mut self, file: &[u8], target: usize, out: &mut Out) -> bool {
        while let Some(i) = self.current {
            if out.events.len() + self.stage.len() >= target {
                self.stage.flush(&mut out.events, self.seq);
                return true;
            }
            // While this CPU stays the earliest the heap need not be touched.
            let limit = self.heap.peek().map_or((u64::MAX, u32::MAX), |Reverse(next)| *next);
            loop {
                self.emit::<BE>(file, i, out);
                let cpu = &mut self.cpus[i as usize];
                let more = cpu.pages.advance(BE, file);
                if let Some(fault) = cpu.pages.fault.take() {
                    report(fault, cpu.cpu, out);
                }
                let next = (cpu.pages.ts, i);
                if !more || next > limit {
                    self.heap.extend(more.then_some(Reverse(next)));
                    self.current = self.heap.pop().map(|Reverse((_, i))| i);
                    break;
                }
                if out.events.len() + self.stage.len() >= target {
                    self.stage.flush(&mut out.events, self.seq);
                    return true;
                }
            }
        }
        self.stage.flush(&mut out.events, self.seq);
        false
    }

    /// What can only be said at the end.
    fn finish(&mut self, out: &mut Out) {
        let (mut total, mut known) = (0u64, !self.lacks);
        for cpu in &self.cpus {
            let (overrun, dropped) = cpu.stat.unwrap_or((0, 0));
            let said = overrun.saturating_add(dropped);
            total = total.saturating_add(said.max(cpu.counted));
            let torn = cpu.cut || cpu.pages.torn;
            known &= !torn && !cpu.torn && (!cpu.unknown || cpu.stat.is_some());
            if torn {
                let cause = out.strings.intern(b"chunk");
                out.losses.push().cpu(cpu.cpu).ts_from_ns(cpu.last_ts).cause(cause);
            }
            let rest = |n: u64| i64::try_from(n).ok();
            // Pages that reported losses reported what was overwritten; the rest preceded the first record.
            let before = if cpu.unknown { 0 } else { overrun.saturating_sub(cpu.counted) };
            if before > 0 {
                let cause = out.strings.intern(b"overwrite");
                out.losses.push().cpu(cpu.cpu).ts_to_ns(cpu.first_ts).count(rest(before)).cause(cause);
                let message = format!("{before} records were overwritten before the first of this CPU");
                let diag = Diagnostic { ts_ns: cpu.first_ts, ..Diagnostic::new(Code::Overwritten, message) };
                out.diag(diag.on_cpu(cpu.cpu).advise("record with larger buffers (trace-cmd record -b)"));
            }
            if dropped > 0 {
                let cause = out.strings.intern(b"ring_full");
                out.losses.push().cpu(cpu.cpu).ts_from_ns(cpu.last_ts).count(rest(dropped)).cause(cause);
                let message = format!("{dropped} records found no room in the ring buffer");
                let diag = Diagnostic { ts_ns: cpu.last_ts, ..Diagnostic::new(Code::LostEvents, message) };
                out.diag(diag.on_cpu(cpu.cpu).advise("record with larger buffers (trace-cmd record -b)"));
            }
        }
        out.meta.set("loss.known", known.to_string());
        if known {
            out.meta.set("loss.total", total.to_string());
        }
        out.meta.set("parse.lines", self.seq.to_string());
        out.meta.set("events.recorded", self.decoder.recorded_json());
        if self.decoder.seen(Kind::Switch) == 0 {
            // trace-cmd writes the formats of what it was asked for; of all events, where that was nothing.
            let (message, advice) = if self.decoder.knows(Kind::Switch) {
                let message = "the recording holds no sched_switch records, though the file describes the event";
                let advice = "if it was recorded (-e sched_switch), nothing began or ended to run: \
                    record all CPUs and tasks, or for longer; otherwise record it, with sched_waking \
                    and sched_wakeup_new";
                (message, advice)
            } else {
                let advice = "record with `trace-cmd record -e sched_switch -e sched_waking -e sched_wakeup_new`";
                ("sched_switch was not recorded", advice)
            };
            out.diag(Diagnostic::new(Code::MissingEvents, message).advise(advice));
        }
    }
}

impl Parser for Stream {
    fn fill(&mut self, out: &mut Out, rows: usize) -> Result<bool, ParseError> {
        let target = out.events.len().saturating_add(rows);
        let bytes = self.bytes.clone();
        let file = (*bytes).as_ref();
        let more = if self.decoder.be() {
            self.rows::<true>(file, target, out)
        } else {
            self.rows::<false>(file, target, out)
        };
        if more {
            return Ok(true);
        }
        if !self.done {
            self.done = true;
            self.consumed = file.len() as u64;
            self.finish(out);
        }
        Ok(false)
    }

    fn consumed(&self) -> u64 {
        self.consumed.max(self.cpus.iter().map(|c| c.pages.read_bytes()).sum())
    }
}

/// The pages of one CPU; what lies beyond the end of the file is cut off.
fn cpu_pages(file: &[u8], head: &Head, buffer: &Buffer, data: &CpuData, out: &mut Out) -> Option<Pages> {
    if data.size == 0 {
        return None;
    }
    let end = data.offset.saturating_add(data.size);
    let held = file.len() as u64;
    if end > held {
        let message = format!("CPU {} has {} bytes of records, of which the file lacks the end", data.cpu, data.size);
        out.diag(Diagnostic::new(Code::Truncated, message).at_offset(held).on_cpu(data.cpu));
    }
    let at = data.offset.min(held) as usize..end.min(held) as usize;
    let page = if buffer.page >= 256 { buffer.page } else { head.header.layout.page };
    let layout = Layout { page: page.max(256), ..head.header.layout };
    Some(if buffer.compressed {
        Pages::chunks(layout, file, at.start, head.compression)
    } else {
        Pages::plain(layout, at)
    })
}

fn stat(head: &Head, buffer: &Buffer, cpu: i32) -> Option<(u64, u64)> {
    let mut stats = head.facts.stats.iter().filter(|s| s.cpu == cpu && s.buffer == buffer.name);
    stats.next().map(|s| (s.overrun, s.dropped))
}

#[cold]
fn lost(cpu: &mut Cpu, ts: i64, seq: u64, out: &mut Out) {
    let count = match std::mem::replace(&mut cpu.pages.missed, Missed::No) {
        Missed::Count(n) => Some(n),
        _ => None,
    };
    cpu.counted = cpu.counted.saturating_add(count.unwrap_or(0));
    cpu.unknown |= count.is_none();
    cpu.torn |= cpu.pages.torn;
    let n = count.and_then(|n| i64::try_from(n).ok());
    out.events.push().ts_ns(ts).cpu(cpu.cpu).seq(seq).kind(Kind::Lost).value(n).quality(0);
    let torn = std::mem::take(&mut cpu.pages.torn);
    let cause = out.strings.intern(if torn { b"chunk" } else { b"overwrite" });
    out.losses.push().cpu(cpu.cpu).ts_from_ns(cpu.last_ts).ts_to_ns(ts).count(n).cause(cause);
    if torn {
        return;
    }
    let on = cpu.cpu;
    out.diagnostics.push_with(Code::LostEvents, || {
        let message = match count {
            Some(n) => format!("{n} records were lost before this time"),
            None => "records were lost before this time; the kernel did not say how many".to_owned(),
        };
        let advice = "record with larger buffers (trace-cmd record -b)";
        Diagnostic::new(Code::LostEvents, message).on_cpu(on).at_ts(ts).advise(advice)
    });
}

#[cold]
fn report(fault: Fault, cpu: i32, out: &mut Out) {
    let (message, at) = match fault {
        Fault::Page(at) => ("a page of the ring buffer is damaged; the rest of it was skipped", at),
        Fault::Chunk(at) => ("a compressed chunk is damaged and was skipped", at),
    };
    out.diag(Diagnostic::new(Code::Damaged, message).at_offset(at as u64).on_cpu(cpu));
}

#[cold]
fn backwards(cpu: &Cpu, ts: i64, last: i64, out: &mut Out) {
    let on = cpu.cpu;
    out.diagnostics.push_with(Code::TimeBackwards, || {
        let message = format!("time steps back by {} ns", last.wrapping_sub(ts));
        Diagnostic::new(Code::TimeBackwards, message).on_cpu(on).at_ts(ts)
    });
}

#[cold]
fn duplicate(owners: &Owners, buffer: u16, cpu: i32, ts: i64, out: &mut Out) {
    let name = owners.names.get(usize::from(buffer)).map_or("", String::as_str);
    out.diagnostics.push_with(Code::Duplicate, || {
        let message = format!("instance `{name}` records an event that another buffer records too; it is left out");
        Diagnostic::new(Code::Duplicate, message).on_cpu(cpu).at_ts(ts)
    });
}
