//! The records in time order, and their rows.

use super::attr::{Attr, TRACEPOINT};
use super::extent::{self, Extent};
use super::header::{describe, describe_clock, event_names, feature, feature_damaged, Attrs, Head};
use super::records::{kind, End, Place, Record, Records};
use super::rows::Rows;
use super::NAME;
use crate::binary::bytes::{uint, Reader};
use crate::binary::tracepoint::header::{Header, Prologue};
use crate::error::ParseError;
use crate::Parser;
use std::collections::VecDeque;
use std::sync::Arc;
use tracekit_schema::table::Table;
use tracekit_schema::{Code, Diagnostic, Kind, Out};

/// A record that waits for its turn: time, and where it lies.
type Waiting = (u64, Place);

/// The record stream of a perf.data.
pub struct Stream {
    bytes: Arc<dyn AsRef<[u8]> + Send + Sync>,
    be: bool,
    pipe: bool,
    records: Records,
    attrs: Attrs,
    rows: Rows,
    /// Records of this round and the one before, in the order of the file.
    waiting: Vec<Waiting>,
    /// Records whose order is final, and how many of them are done.
    ready: Vec<Waiting>,
    done: usize,
    /// Latest time seen, and that as of the last round's end.
    latest: u64,
    limit: u64,
    /// The first record that is not part of the head, met while reading it.
    peeked: Option<Record>,
    names: Vec<String>,
    /// Words of the command that recorded, and how many CPUs were online.
    command: Vec<String>,
    online: usize,
    finished: bool,
}

impl Stream {
    /// Reads what comes before the first event. At `joints` begin records of other threads of perf.
    ///
    /// # Errors
    /// [`ParseError`] when the recording holds nothing about scheduling.
    pub fn new(
        bytes: Arc<dyn AsRef<[u8]> + Send + Sync>,
        head: Head,
        joints: VecDeque<usize>,
        out: &mut Out,
    ) -> Result<Self, ParseError> {
        let shared = bytes.clone();
        let file = (*shared).as_ref();
        out.meta.set("os", "linux");
        out.meta.set("prio.scale", "linux");
        out.meta.set("source.variant", if head.pipe { "pipe" } else { "file" });
        let mut stream = Stream {
            bytes,
            be: head.be,
            pipe: head.pipe,
            records: Records::new(head.data.clone(), joints, head.cut, head.be),
            attrs: head.attrs,
            rows: Rows::new(head.be, out),
            waiting: Vec::new(),
            ready: Vec::new(),
            done: 0,
            latest: 0,
            limit: 0,
            peeked: None,
            names: Vec::new(),
            command: Vec::new(),
            online: 0,
            finished: false,
        };
        if head.killed {
            let message = "the recording was killed before it wrote its size and its event formats";
            let advice = "records are read to the end of the file; one tracepoint cannot be distinguished from another";
            out.diag(Diagnostic::new(Code::Truncated, message).advise(advice));
            stream.rows.torn = true;
        }
        if head.featureless {
            let message = "the file is cut: it ends before the event formats, the command line and the \
                machine's name that stand behind the records";
            let advice = "get the whole file; `perf record` writes them when it ends";
            out.diag(Diagnostic::new(Code::Truncated, message).advise(advice).at_offset(file.len() as u64));
        }
        for (number, place) in head.features {
            stream.feature(number, place.start, &file[place], out);
        }
        if stream.pipe {
            stream.pipe_head(file, out);
        }
        describe_clock(&stream.attrs, out);
        stream.rows.settle(&stream.attrs, out);
        stream.extent(out);
        stream.check_events().map_err(|e| e.at_offset(head.attrs_at))?;
        Ok(stream)
    }

    /// In a stream everything about events comes as records before the first event.
    fn pipe_head(&mut self, file: &[u8], out: &mut Out) {
        while let Ok(record) = self.records.next(self.be, file) {
            if record.kind < kind::ATTR {
                self.peeked = Some(record);
                return;
            }
            self.user_record(file, record, out);
        }
    }

    /// Refuses a recording that has formats but nothing about scheduling.
    fn check_events(&self) -> Result<(), ParseError> {
        let attrs = &self.attrs.all;
        let about = |a: &Attr| {
            let kind = (a.kind == TRACEPOINT).then(|| self.rows.decoder.kind(a.config as u32)).flatten();
            a.context_switch() || kind.is_some_and(|k| k != Kind::Other)
        };
        let undecided = self.rows.decoder.is_empty() && attrs.iter().any(|a| a.kind == TRACEPOINT);
        if attrs.is_empty() || undecided || attrs.iter().any(about) {
            return Ok(());
        }
        let name = |a: &Attr| match a.kind {
            TRACEPOINT => self.rows.decoder.name(a.config as u32).unwrap_or("tracepoint").to_owned(),
            0 => "hardware event".to_owned(),
            1 => "software event".to_owned(),
            n => format!("event of type {n}"),
        };
        let mut names = self.names.clone();
        if names.is_empty() {
            names = attrs.iter().map(name).collect();
            names.dedup();
        }
        names.truncate(8);
        let message = format!("expected scheduler events, found only {}", names.join(", "));
        Err(ParseError::new(NAME, "no-scheduler-events", message).advise("record with `perf sched record`"))
    }

    fn feature(&mut self, number: u64, at: usize, data: &[u8], out: &mut Out) {
        let read = match number {
            feature::TRACING_DATA => self.tracing_data(data),
            feature::EVENT_DESC => {
                self.names = event_names(data, self.be);
                Ok(())
            }
            feature::CMDLINE => extent::words(data, self.be).map(|words| self.command = words),
            feature::LAST.. => Ok(()),
            _ => {
                if number == feature::NRCPUS {
                    self.online = uint(data, 4, 4, self.be).unwrap_or(0) as usize;
                }
                describe(number, data, self.be, out)
            }
        };
        if read.is_err() {
            feature_damaged(number, at, out);
        }
    }

    /// Says which CPUs and tasks were recorded, where it was not all of them.
    fn extent(&mut self, out: &mut Out) {
        let (asked, filters) = extent::asked(&self.command).map_or_else(Default::default, |a| (a.extent, a.filters));
        for filter in filters {
            let message = format!("perf recorded with {filter}, which leaves records out");
            out.diag(Diagnostic::new(Code::MissingEvents, message).advise("record without it, and select afterwards"));
        }
        match extent::recorded(asked, self.attrs.counted(), self.online) {
            Extent::Whole => {}
            Extent::Cpus(cpus) if cpus.is_empty() => self.rows.some_cpus = true,
            Extent::Cpus(cpus) => out.meta.set("cpus.recorded", extent::printed(&cpus)),
            Extent::Tasks(tasks) => out.meta.set("tasks.recorded", tasks),
        }
    }

    fn tracing_data(&mut self, data: &[u8]) -> Result<(), crate::binary::bytes::Short> {
        let mut r = Reader::new(data, 0, self.be);
        let mut header = Header::new(&Prologue::read(&mut r)?);
        let read = header.read_all(&mut r);
        self.rows.decoder = header.decoder;
        read
    }

    /// Records made by perf itself, not by the kernel.
    fn user_record(&mut self, file: &[u8], record: Record, out: &mut Out) {
        let body = self.records.bytes(file, record.place, record.size);
        let be = self.be;
        let at = self.records.offset(record.place) as usize;
        match record.kind {
            kind::ATTR => {
                let size = uint(body, 12, 4, be).unwrap_or(0) as usize;
                let size = if (64..=body.len() - 8).contains(&size) { size } else { 64.min(body.len() - 8) };
                if let Ok(attr) = Attr::read(&body[8..8 + size], be) {
                    let mut ids = Reader::new(body, 8 + size, be);
                    self.attrs.add(attr, std::iter::from_fn(|| ids.u64().ok()));
                }
            }
            kind::FEATURE => {
                if let Some(number) = uint(body, 8, 8, be) {
                    let data = body[16..].to_vec();
                    self.feature(number, at, &data, out);
                }
            }
            kind::TRACING_DATA => {
                let size = uint(body, 8, 4, be).unwrap_or(0);
                let from = self.records.at;
                let to = from.saturating_add(size as usize).min(file.len());
                if self.pipe {
                    if self.tracing_data(&file[from..to]).is_err() {
                        feature_damaged(feature::TRACING_DATA, from, out);
                    }
                    self.records.skip(size.next_multiple_of(8));
                }
            }
            kind::AUXTRACE => {
                let size = uint(body, 8, 8, be).unwrap_or(0);
                self.records.skip(size);
            }
            _ => {}
        }
    }

    /// Reads records until some are final; false at the end.
    fn read_round<const BE: bool>(&mut self, file: &[u8], out: &mut Out) -> bool {
        self.ready.clear();
        self.done = 0;
        self.records.forget(self.waiting.iter().map(|w| w.1));
        loop {
            if let Some(plain) = self.attrs.plain().filter(|_| self.peeked.is_none()) {
                while let Some((record, place)) = self.records.next_sample(BE, file) {
                    self.line_up(uint(record, plain.time, 8, BE), place);
                }
            }
            let record = match self.peeked.take() {
                Some(record) => record,
                None => match self.records.next(BE, file) {
                    Ok(record) => record,
                    Err(end) => {
                        self.rows.torn |= report(end, out);
                        self.finished = true;
                        self.limit = u64::MAX;
                        self.flush();
                        return !self.ready.is_empty();
                    }
                },
            };
            if record.kind < kind::ATTR {
                self.wait::<BE>(file, record);
            } else if record.kind == kind::FINISHED_ROUND {
                self.flush();
                self.limit = self.latest;
                if !self.ready.is_empty() {
                    return true;
                }
            } else {
                self.user_record(file, record, out);
            }
        }
    }

    /// Puts a kernel record in line.
    #[inline(always)]
    fn wait<const BE: bool>(&mut self, file: &[u8], record: Record) {
        let body = self.records.bytes(file, record.place, record.size);
        let time = match record.kind {
            kind::SAMPLE => {
                let layout = self.attrs.of_sample(body, BE).map(|a| a.layout);
                layout.and_then(|l| l.time).and_then(|at| uint(body, at, 8, BE))
            }
            kind::FORK | kind::EXIT => uint(body, 24, 8, BE),
            _ => self.rows.trailing_time(body),
        };
        self.line_up(time, record.place);
    }

    #[inline(always)]
    fn line_up(&mut self, time: Option<u64>, place: Place) {
        // Without a time a record belongs before everything; perf handles it at once, too.
        let time = time.filter(|t| *t != u64::MAX).unwrap_or(0);
        self.latest = self.latest.max(time);
        self.waiting.push((time, place));
    }

    /// Moves what is final from `waiting` to `ready`, in order.
    ///
    /// ```text
    ///   waiting:  3 1 9 4 2 8 7      limit 4: the end of the last round but one
    ///             ready: 3 1 4 2  |  waiting: 9 8 7
    ///             ready: 1 2 3 4     only these are put in order; the others may still move
    /// ```
    fn flush(&mut self) {
        let limit = self.limit;
        self.ready.clear();
        let ready = &mut self.ready;
        // Of one CPU records stand in order already.
        let sorted = self.waiting.is_sorted_by_key(|w| w.0);
        if limit >= self.latest {
            std::mem::swap(ready, &mut self.waiting);
        } else if sorted {
            let last = self.waiting.partition_point(|w| w.0 <= limit);
            ready.extend(self.waiting.drain(..last));
        } else {
            // Keeps the order of the file, so that records of one time stay as they stand there.
            self.waiting.retain(|w| {
                let last = w.0 > limit;
                if !last {
                    ready.push(*w);
                }
                last
            });
        }
        if !sorted {
            self.ready.sort_by_key(|w| w.0);
        }
    }
}

impl Stream {
    /// The sample before the one that was taken last, when it is of the same time.
    #[cold]
    fn sample_before<'f>(&'f self, file: &'f [u8], time: u64) -> Option<&'f [u8]> {
        let before = self.ready[..self.done - 1].iter().rev().take_while(|w| w.0 == time);
        let mut records = before.map(|w| self.records.again(self.be, file, w.1));
        records.find(|(kind, ..)| *kind == kind::SAMPLE).map(|(.., record)| record)
    }

    /// Adds rows, at least `rows` of them; false at the end.
    fn fill_as<const BE: bool>(&mut self, out: &mut Out, rows: usize) -> bool {
        let target = out.events.len().saturating_add(rows);
        let bytes = self.bytes.clone();
        let file = (*bytes).as_ref();
        loop {
            // A record makes a row, seldom none or more.
            let room = target.saturating_sub(out.events.len() + self.rows.waiting());
            let until = self.ready.len().min(self.done.saturating_add(room));
            while self.done < until {
                let (time, place) = self.ready[self.done];
                self.done += 1;
                let (kind, misc, record) = self.records.again(BE, file, place);
                if kind == kind::SAMPLE {
                    let offset = || self.records.offset(place);
                    if self.done > 1 && self.ready[self.done - 2].0 == time {
                        let before = self.sample_before(file, time);
                        if before.is_some_and(|b| self.rows.is_copy(&self.attrs, b, record, time as i64, out)) {
                            continue;
                        }
                    }
                    self.rows.sample::<BE>(&self.attrs, time as i64, record, offset, out);
                } else {
                    self.rows.other(&self.attrs, (kind, misc), time as i64, record, out);
                }
            }
            if out.events.len() + self.rows.waiting() >= target {
                self.rows.flush(out);
                return true;
            }
            if self.done < self.ready.len() {
                continue;
            }
            if self.finished || !self.read_round::<BE>(file, out) {
                self.rows.flush(out);
                self.rows.finish(out);
                return false;
            }
        }
    }
}

impl Parser for Stream {
    fn fill(&mut self, out: &mut Out, rows: usize) -> Result<bool, ParseError> {
        Ok(if self.be { self.fill_as::<true>(out, rows) } else { self.fill_as::<false>(out, rows) })
    }

    fn consumed(&self) -> u64 {
        self.records.at as u64
    }
}

/// Says why the records end; true when some are missing.
fn report(end: End, out: &mut Out) -> bool {
    let (code, message, at) = match end {
        End::Clean => return false,
        End::Cut(at) => (Code::Truncated, "the records are cut short", at),
        End::Damaged(at) => (Code::Damaged, "expected a record of at least 8 bytes; nothing after it can be read", at),
        End::Packed(at) => (Code::Damaged, "a compressed record does not unpack; nothing after it can be read", at),
    };
    out.diag(Diagnostic::new(code, message).at_offset(at as u64));
    true
}
