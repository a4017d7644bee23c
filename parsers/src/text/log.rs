//! What all logs of one record a line have in common: order, losses, counts, and the loop over the lines.
//!
//! A format is a [`Dialect`]: it takes one line apart. [`TextLog`] runs it over the source, sorts
//! what stands out of order, and keeps the accounts that become diagnostics and metadata.

mod finish;
mod runner;
mod wrapped;

pub use runner::TextLog;
pub use wrapped::Wrapped;

use tracekit_schema::diag::{Code, Diagnostic};
use tracekit_schema::events::{quality, EventRow};
use tracekit_schema::table::Table;
use tracekit_schema::{Events, Kind, Out, StrId, Strings};

use crate::mismatch;
use crate::text::payload;
use crate::text::scan;
use crate::text::stage::Stage;
use crate::text::swar::Window;

/// Rows that are read at least between two looks at their order.
const CHUNK: usize = 1 << 14;
/// Rows held back at the end of a chunk, because an earlier one may still come.
const WINDOW: usize = 1 << 10;
/// The same, once records stood out of order.
const WIDE_WINDOW: usize = 1 << 16;
/// CPUs with accounts of their own; a higher number is damage.
const MOST_CPUS: usize = 1 << 16;
/// Records without a time of their own that are held back until one has a time.
const MOST_UNTIMED: usize = 1 << 20;
/// Bytes of a line that a diagnostic shows.
const SHOWN: usize = 120;

/// The task that a line's head names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// Thread.
    pub tid: Option<i64>,
    /// Process.
    pub pid: Option<i64>,
    /// Name.
    pub comm: Option<StrId>,
}

/// What the head of a line says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stamp {
    /// Time, ns or ticks.
    pub ts_ns: i64,
    /// CPU.
    pub cpu: Option<i32>,
    /// Who ran there.
    pub who: Who,
    /// Context bits.
    pub irq: Option<u16>,
    /// Quality bits.
    pub quality: u16,
}

/// One line of the source.
#[derive(Clone, Copy, Debug)]
pub struct LogLine<'a> {
    /// Its bytes, without the line end.
    pub bytes: &'a [u8],
    /// False for a last line without a line end.
    pub ended: bool,
}

/// A format of one record a line.
pub trait Dialect: Send {
    /// The format's name.
    const NAME: &'static str;
    /// Reads a line of a common shape, with its end, and returns its length; `None` leaves
    /// everything as it was.
    fn quick(&mut self, w: &Window, log: &mut Log, out: &mut Out) -> Option<usize>;
    /// Reads any line.
    fn line(&mut self, line: LogLine<'_>, log: &mut Log, out: &mut Out);
    /// Adds what is known at the end of the source.
    fn finish(&mut self, log: &mut Log, out: &mut Out);
}

#[derive(Clone, Copy, Debug)]
struct PendingLoss {
    cpu: Option<i32>,
    from: Option<i64>,
    count: Option<i64>,
}

/// The accounts of a log.
#[derive(Debug, Default)]
pub struct Log {
    /// Lines read, the present one included.
    pub lines: u64,
    /// Lines that were not understood.
    pub unparsed: u64,
    /// Lines behind the header that hold no record and are passed over.
    pub passed: u64,
    /// Tasks that heads do not name.
    pub unnamed: u64,
    /// Bit per event of [`quick::NAMES`] that the quick path met.
    pub quick_seen: u32,
    /// Rows of the quick path that are not in the table yet.
    pub stage: Stage,
    /// States that were printed as numbers.
    pub numbers: payload::state::Evidence,
    /// CPUs, where the source says.
    pub cpus: Option<u64>,
    /// The source says that it has no record.
    pub empty: bool,
    /// A record that may go on in the next line.
    pub wrapped: Wrapped,
    seq: u64,
    /// Rows of this call that have no time of their own ([`quality::SYNTHESIZED`] at time 0).
    untimed: usize,
    /// Latest time so far; no time in these texts is below the 0 it starts with.
    newest: i64,
    /// Time of the last record of each CPU, `i64::MIN` before the first.
    last: Vec<i64>,
    displaced: u64,
    /// How many of them were there when rows were last sorted.
    sorted: u64,
    first_displaced: Option<(u64, i64)>,
    late: u64,
    losses: Vec<PendingLoss>,
    /// How many records were overwritten before the first of their CPU, and the line that says so.
    overwritten: Option<(i64, u64)>,
    /// While records were: time of the first record of each CPU.
    begun: Vec<(i32, i64)>,
    lost: Option<i64>,
    lost_unknown: bool,
    /// Names of events on the slow path, and how many of each have no kind.
    names: Strings,
    unknown: Vec<u64>,
    scheduling: u64,
    switches: u64,
}

impl Log {
    /// Takes a head into account and returns the quality bits of its record.
    #[inline(always)]
    pub fn pass(&mut self, stamp: &Stamp) -> u16 {
        let mut bits = stamp.quality;
        if stamp.ts_ns < self.newest {
            bits |= self.step_back(stamp.ts_ns);
        } else {
            self.newest = stamp.ts_ns;
        }
        if let Some(cpu) = stamp.cpu {
            match self.last.get_mut(cpu as usize) {
                Some(last) => *last = stamp.ts_ns,
                None => self.first_of_cpu(cpu, stamp.ts_ns),
            }
        }
        self.seq += 1;
        bits
    }

    /// Adds a row with the columns that come from the line's head; the caller sets the others,
    /// `kind` among them.
    pub fn begin<'e>(&mut self, events: &'e mut Events, stamp: &Stamp) -> EventRow<'e> {
        let bits = self.pass(stamp);
        self.untimed += usize::from(stamp.ts_ns == 0 && bits & quality::SYNTHESIZED != 0);
        let mut row = events.push();
        row.ts_ns(stamp.ts_ns).seq(self.seq - 1).quality(bits).cpu(stamp.cpu);
        row.ctx_tid(stamp.who.tid).ctx_pid(stamp.who.pid).ctx_comm(stamp.who.comm).irq_flags(stamp.irq);
        row
    }

    /// Latest time so far.
    pub fn newest(&self) -> i64 {
        self.newest
    }

    /// Gives rows without a time of their own the first time after them, or the latest one where
    /// none follows.
    pub fn settle_untimed(&mut self, base: usize, out: &mut Out) {
        if std::mem::take(&mut self.untimed) > 0 {
            self.settle(base, out);
        }
    }

    /// A record with a time and a CPU has come.
    pub fn has_begun(&self) -> bool {
        !self.last.is_empty()
    }

    /// True while no row since `base` has a time of its own, and more may wait for one.
    pub fn awaits_time(&self, base: usize, out: &Out) -> bool {
        self.untimed > 0 && self.untimed == out.events.len() - base && self.untimed < MOST_UNTIMED
    }

    #[cold]
    fn settle(&self, base: usize, out: &mut Out) {
        let untimed = |out: &Out, row: usize| {
            let made = out.events.quality.get(row).is_some_and(|q| q & quality::SYNTHESIZED != 0);
            made && out.events.ts_ns.get(row) == Some(0)
        };
        let rows: Vec<usize> = (base..out.events.len()).filter(|row| untimed(out, *row)).collect();
        let timed = (base..out.events.len()).filter(|row| !untimed(out, *row));
        let first = timed.filter_map(|row| out.events.ts_ns.get(row)).min().unwrap_or(self.newest);
        for row in rows {
            out.events.ts_ns.set(row, first);
        }
    }

    #[cold]
    fn first_of_cpu(&mut self, cpu: i32, ts_ns: i64) {
        let at = cpu as usize;
        if at < MOST_CPUS {
            self.last.resize(at + 1, i64::MIN);
            self.last[at] = ts_ns;
        }
    }

    #[cold]
    fn step_back(&mut self, ts_ns: i64) -> u16 {
        self.displaced += 1;
        self.first_displaced.get_or_insert((self.lines, ts_ns));
        quality::OUT_OF_ORDER
    }

    /// True when the next record must go through [`Self::record`].
    #[inline(always)]
    pub fn has_pending(&self) -> bool {
        !self.losses.is_empty() || self.wrapped.is_open()
    }

    /// True when time runs backwards on this CPU, which [`Self::record`] says.
    #[inline(always)]
    pub fn goes_back(&self, stamp: &Stamp) -> bool {
        stamp.ts_ns < self.newest && self.last_of(stamp).is_some_and(|last| stamp.ts_ns < last)
    }

    /// Time of the last record of this CPU.
    fn last_of(&self, stamp: &Stamp) -> Option<i64> {
        stamp.cpu.and_then(|cpu| self.last.get(cpu as usize)).copied()
    }

    /// Adds the row of a line with this head and the event `name` with `payload`.
    pub fn record(
        &mut self,
        stamp: &Stamp,
        name: &[u8],
        payload: &[u8],
        states: payload::state::Table,
        out: &mut Out,
    ) -> payload::Outcome {
        self.arrive(stamp, out);
        let late = stamp.ts_ns < self.newest;
        let mut row = self.begin(&mut out.events, stamp);
        let mut cx = payload::Context { strings: &mut out.strings, states, numbers: &mut self.numbers };
        let outcome = payload::decode(name, payload, &mut row, &mut cx);
        if outcome == payload::Outcome::Partial {
            let bits = stamp.quality | quality::PARSE_PARTIAL;
            row.quality(if late { bits | quality::OUT_OF_ORDER } else { bits });
            self.partial(name, payload, out);
        }
        self.note(name, outcome);
        outcome
    }

    /// Reports a payload that lacks the fields of its event.
    pub fn partial(&self, name: &[u8], payload: &[u8], out: &mut Out) {
        out.diagnostics.push_with(Code::PartlyParsed, || {
            let found = scan::shown(payload, SHOWN);
            let message = format!("expected the fields of `{}`, found `{found}`", scan::shown(name, 40));
            at(self.lines, Diagnostic::new(Code::PartlyParsed, message))
        });
    }

    /// Notes that a record of this head comes: losses before it get their end, and time may run backwards.
    pub fn arrive(&mut self, stamp: &Stamp, out: &mut Out) {
        if self.has_pending() {
            self.end_losses(stamp, out);
        }
        if let (Some(last), Some(cpu)) = (self.last_of(stamp), stamp.cpu) {
            if stamp.ts_ns < last {
                let line = self.lines;
                out.diagnostics.push_with(Code::TimeBackwards, || {
                    let message = format!("CPU {cpu} goes back by {} ns", last.wrapping_sub(stamp.ts_ns));
                    at(line, Diagnostic::new(Code::TimeBackwards, message))
                        .on_cpu(cpu)
                        .at_ts(stamp.ts_ns)
                        .advise("a clock that was set, a suspend, or two traces in one file: cut the file there")
                });
            }
        }
    }

    /// Counts a record of the event `name`.
    pub fn note(&mut self, name: &[u8], outcome: payload::Outcome) {
        let id = self.names.intern(name).0 as usize;
        if self.unknown.len() <= id {
            self.unknown.resize(id + 1, 0);
        }
        match outcome {
            payload::Outcome::Unknown => self.unknown[id] += 1,
            payload::Outcome::Partial => {}
            payload::Outcome::Known(kind) => self.note_kind(kind),
        }
    }

    /// Counts a record that the payload decoder did not see.
    pub fn note_kind(&mut self, kind: Kind) {
        self.switches += u64::from(kind == Kind::Switch);
        self.scheduling += u64::from((Kind::Switch..=Kind::Wait).contains(&kind) || is_account(kind));
    }

    /// Notes an event by name, as recorded by the source.
    pub fn note_name(&mut self, name: &[u8]) {
        let id = self.names.intern(name).0 as usize;
        if self.unknown.len() <= id {
            self.unknown.resize(id + 1, 0);
        }
    }

    /// A line that fits nothing: counted, the first ones shown.
    pub fn unparsed(&mut self, line: LogLine<'_>, expected: &str, out: &mut Out) {
        self.unparsed += 1;
        let number = self.lines;
        out.diagnostics.push_with(Code::Unparsed, || mismatch::unparsed(line.bytes, expected).at_line(number));
    }

    /// A last line without its end that fits nothing.
    pub fn cut(&mut self, line: LogLine<'_>, out: &mut Out) {
        let message = format!("the last line is cut short: `{}`", scan::shown(line.bytes, SHOWN));
        out.diag(Diagnostic::new(Code::Truncated, message).at_line(self.lines));
    }

    /// The source lost records of `cpu` (all CPUs when it does not say) since that CPU's last record.
    pub fn lose(&mut self, cpu: Option<i32>, count: Option<i64>, out: &mut Out) {
        let from = cpu.and_then(|c| self.last.get(c as usize)).copied().filter(|t| *t != i64::MIN);
        self.losses.push(PendingLoss { cpu, from, count });
        self.tell_loss(cpu, count, out);
    }

    fn tell_loss(&mut self, cpu: Option<i32>, count: Option<i64>, out: &mut Out) {
        self.count_lost(count);
        let line = self.lines;
        out.diagnostics.push_with(Code::LostEvents, || {
            let many = count.map_or("an unknown number of".to_owned(), |n| n.to_string());
            let d = at(line, Diagnostic::new(Code::LostEvents, format!("{many} records were lost")));
            let d = d.advise("record with a larger buffer, or fewer events");
            cpu.map_or(d.clone(), |cpu| d.on_cpu(cpu))
        });
    }

    /// The source lost records of `cpu` and says when: from the first time, if it is known, to the second.
    /// The row of the loss stands at the time `at`.
    pub fn lose_between(
        &mut self,
        cpu: Option<i32>,
        count: Option<i64>,
        (from, to): (Option<i64>, i64),
        at: i64,
        out: &mut Out,
    ) {
        let here = Stamp { ts_ns: at, cpu, ..Stamp::default() };
        self.begin(&mut out.events, &here).kind(Kind::Lost).value(count);
        add_loss(PendingLoss { cpu, from, count }, Some(to), out);
        self.tell_loss(cpu, count, out);
    }

    /// Records that were overwritten before the first one of their CPU: a full ring buffer overwrites
    /// its oldest page (kernel/trace/ring_buffer.c), and each CPU has one.
    pub fn overwritten(&mut self, count: i64) {
        self.count_lost(Some(count));
        let (before, line) = self.overwritten.unwrap_or((0, self.lines));
        self.overwritten = Some((before.saturating_add(count), line));
    }

    /// Notes where CPUs begin among the rows from `base` on, where records were overwritten before that.
    fn note_begins(&mut self, base: usize, out: &Out) {
        if self.overwritten.is_none() {
            return;
        }
        for row in base..out.events.len() {
            let (Some(cpu), Some(ts)) = (out.events.cpu.get(row), out.events.ts_ns.get(row)) else { continue };
            match self.begun.iter_mut().find(|(number, _)| *number == cpu) {
                Some((_, first)) => *first = ts.min(*first),
                None => self.begun.push((cpu, ts)),
            }
        }
    }

    fn count_lost(&mut self, count: Option<i64>) {
        match count {
            Some(n) => self.lost = Some(self.lost.unwrap_or(0).saturating_add(n)),
            None => self.lost_unknown = true,
        }
    }

    /// Ends the losses that a record of this head ends: those of its CPU, and those of all CPUs.
    #[cold]
    fn end_losses(&mut self, stamp: &Stamp, out: &mut Out) {
        let ends = |l: &PendingLoss| l.cpu.is_none() || l.cpu == stamp.cpu;
        let ended: Vec<_> = self.losses.iter().copied().filter(ends).collect();
        self.losses.retain(|l| !ends(l));
        for loss in ended {
            let here = Stamp { cpu: loss.cpu, who: Who::default(), irq: None, ..*stamp };
            self.begin(&mut out.events, &here).kind(Kind::Lost).value(loss.count);
            add_loss(loss, Some(stamp.ts_ns), out);
        }
    }

    /// Puts the rows from `base` on in time order where they are not; true when it did.
    fn sort(&mut self, base: usize, delivered: Option<i64>, out: &mut Out) -> bool {
        if self.displaced == self.sorted {
            return false;
        }
        self.sorted = self.displaced;
        let mut order: Vec<u32> = (base as u32..out.events.len() as u32).collect();
        order.sort_by_key(|row| out.events.ts_ns.values()[*row as usize]);
        let sorted = out.events.take(&order);
        out.events.truncate(base);
        out.events.extend_from(&sorted, 0);
        let ts = &out.events.ts_ns.values()[base..];
        self.late += delivered.map_or(0, |d| ts.partition_point(|t| *t < d) as u64);
        true
    }

    /// True when no scheduler event was met.
    pub fn has_no_scheduling(&self) -> bool {
        self.scheduling == 0 && self.quick_seen == 0
    }

    /// Records added so far.
    pub fn records(&self) -> u64 {
        self.seq
    }
}

/// Adds the line, which binary sources do not have.
fn at(line: u64, d: Diagnostic) -> Diagnostic {
    if line == 0 {
        return d;
    }
    d.at_line(line)
}

fn is_account(kind: Kind) -> bool {
    (Kind::Prio..=Kind::BlockedReason).contains(&kind)
}

fn add_loss(loss: PendingLoss, to: Option<i64>, out: &mut Out) {
    let cause = out.strings.intern(b"ring_full");
    out.losses.push().cpu(loss.cpu).ts_from_ns(loss.from).ts_to_ns(to).count(loss.count).cause(cause);
}
