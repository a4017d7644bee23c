//! The loop over the lines of a log.

use tracekit_schema::diag::Code;
use tracekit_schema::table::Table;
use tracekit_schema::{Events, Out};

use super::{Dialect, Log, LogLine, CHUNK, WIDE_WINDOW, WINDOW};
use crate::text::blocks::Blocks;
use crate::text::scan;
use crate::text::stage::Stage;
use crate::{Head, ParseError, Parser, Source};

/// Bytes that a line has at least, but for odd ones.
const LINE: usize = 96;

/// Runs a [`Dialect`] over a source.
pub struct TextLog<D> {
    blocks: Blocks,
    dialect: D,
    log: Log,
    held: Events,
    /// Texts of held rows, which would not outlive the rows of the last call.
    held_raw: Vec<(usize, Vec<u8>)>,
    delivered: Option<i64>,
    quick: bool,
}

impl<D: Dialect> TextLog<D> {
    /// A log of `source`.
    pub fn new(source: Source, dialect: D) -> Self {
        TextLog {
            blocks: Blocks::new(source),
            dialect,
            log: Log::default(),
            held: Events::default(),
            held_raw: Vec::new(),
            delivered: None,
            quick: true,
        }
    }

    /// Without the quick path, which must make no difference but to the time it takes.
    pub fn without_quick(mut self, without: bool) -> Self {
        self.quick = !without;
        self
    }

    /// Reads the head of a source into nothing, to know what there is before the stream begins.
    pub fn probe(head: &Head, dialect: D) -> (Self, Out) {
        let mut out = Out::new();
        let mut log = TextLog::new(Source::from_bytes(&head.bytes[..]), dialect);
        while let Ok(true) = log.fill(&mut out, CHUNK) {}
        (log, out)
    }

    /// The refusal of a text that this probe read to its end and `found` no event of the scheduler
    /// in. One that ends in its header or within a line does not show what else was recorded: it is
    /// read as far as it goes.
    pub fn no_scheduling(&self, found: &Out, advice: &str) -> Option<ParseError> {
        let cut = found.diagnostics.rows().iter().any(|d| d.code == Code::Truncated);
        if !self.log.has_no_scheduling() || self.log.ends_in_header() || cut {
            return None;
        }
        let (records, line) = (self.log.records(), self.log.lines);
        let error = |message: String| ParseError::new(D::NAME, "no-scheduler-events", message).at_line(line);
        // Some are there, but nothing can be read of them.
        if let Some(d) = found.diagnostics.rows().iter().find(|d| d.code == Code::PartlyParsed) {
            let message = format!("expected events of the scheduler, found none that is whole: {}", d.message);
            return Some(error(message).advise("give the text as the tool wrote it, not a copy from a mail or a page"));
        }
        let message = format!("expected events of the scheduler, found none in {records} records up to its end");
        Some(error(message).advise(advice))
    }

    /// The dialect and the accounts.
    pub fn parts(&self) -> (&D, &Log) {
        (&self.dialect, &self.log)
    }

    /// Holds the rows from `from` on back.
    fn hold(&mut self, from: usize, out: &mut Out) {
        self.held.extend_from(&out.events, from);
        for row in from..out.events.raw.values().len() {
            if let Some(text) = out.events.raw.get(row) {
                self.held_raw.push((row - from, out.strings.get_text(text).to_vec()));
            }
        }
        out.events.truncate(from);
    }

    /// Adds the rows held back, the first of them as row `base`.
    fn give_back(&mut self, base: usize, out: &mut Out) {
        out.events.extend_from(&self.held, 0);
        self.held.clear();
        for (row, text) in self.held_raw.drain(..) {
            out.events.raw.set(base + row, out.strings.keep(&text));
        }
    }

    /// Takes `line` as part of the record before it, or reads both as they stand.
    #[cold]
    fn go_on(dialect: &mut D, log: &mut Log, line: LogLine<'_>, out: &mut Out) {
        let Some(bytes) = log.wrapped.with(line.bytes, log.lines) else {
            Self::give_up(dialect, log, out);
            return dialect.line(line, log, out);
        };
        let before = log.wrapped.joined_bytes();
        dialect.line(LogLine { bytes: &bytes, ..line }, log, out);
        log.wrapped.settle(before);
    }

    /// Reads the lines of a record that does not end as they stand.
    fn give_up(dialect: &mut D, log: &mut Log, out: &mut Out) {
        if !log.wrapped.is_open() {
            return;
        }
        let number = log.lines;
        for (line, bytes) in log.wrapped.give_up() {
            log.lines = line;
            dialect.line(LogLine { bytes: &bytes, ended: true }, log, out);
        }
        log.lines = number;
        log.wrapped.done();
    }

    /// Reads lines until `out` has `limit` rows; true at the end of the source.
    fn read(&mut self, out: &mut Out, limit: usize) -> std::io::Result<bool> {
        loop {
            let block = self.blocks.peek()?;
            if block.is_empty() {
                Self::give_up(&mut self.dialect, &mut self.log, out);
                return Ok(true);
            }
            // Rows held back come on top, and a stage may end behind the limit.
            out.events.expect_rows((limit + WINDOW + Stage::ROWS).min(block.len() / LINE));
            let mut at = 0;
            while at < block.len() && out.events.len() < limit {
                self.log.lines += 1;
                let rest = &block[at..];
                if let (true, Some(w)) = (self.quick, rest.first_chunk()) {
                    if let Some(n) = self.dialect.quick(w, &mut self.log, out) {
                        at += n;
                        if self.log.stage.is_full() {
                            self.log.stage.flush(&mut out.events, self.log.seq);
                        }
                        continue;
                    }
                }
                self.log.stage.flush(&mut out.events, self.log.seq);
                let end = memchr::memchr(b'\n', rest);
                let mut bytes = &rest[..end.unwrap_or(rest.len())];
                at += bytes.len() + usize::from(end.is_some());
                if let [line @ .., b'\r'] = bytes {
                    bytes = line;
                }
                let bytes = scan::plain(bytes);
                let line = LogLine { bytes: &bytes, ended: end.is_some() };
                if self.log.wrapped.is_open() {
                    Self::go_on(&mut self.dialect, &mut self.log, line, out);
                } else {
                    self.dialect.line(line, &mut self.log, out);
                }
            }
            self.log.stage.flush(&mut out.events, self.log.seq);
            self.blocks.advance(at);
            if out.events.len() >= limit {
                return Ok(false);
            }
        }
    }
}

impl<D: Dialect> Parser for TextLog<D> {
    fn fill(&mut self, out: &mut Out, rows: usize) -> Result<bool, ParseError> {
        let base = out.events.len();
        self.give_back(base, out);
        let mut limit = out.events.len() + rows.max(CHUNK);
        let mut ended = self.read(out, limit).map_err(|e| ParseError::io(D::NAME, &e))?;
        // Records without a time of their own wait for the first that has one.
        while !ended && self.log.awaits_time(base, out) {
            limit += CHUNK;
            ended = self.read(out, limit).map_err(|e| ParseError::io(D::NAME, &e))?;
        }
        self.log.settle_untimed(base, out);
        self.log.sort(base, self.delivered, out);
        self.log.note_begins(base, out);
        if ended {
            self.dialect.finish(&mut self.log, out);
            self.log.finish(out);
            return Ok(false);
        }
        let window = if self.log.displaced > 0 { WIDE_WINDOW } else { WINDOW };
        let keep = (out.events.len() - base).saturating_sub(window);
        self.hold(base + keep, out);
        self.delivered = out.events.ts_ns.values().last().copied().max(self.delivered);
        Ok(true)
    }

    fn consumed(&self) -> u64 {
        self.blocks.offset
    }
}
