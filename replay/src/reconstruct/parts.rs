//! The events that programs are reconstructed from, part by part: they need not all be rows at a time.

use std::collections::BTreeMap;

use tracekit_schema::events::quality;
use tracekit_schema::table::Table;
use tracekit_schema::{Events, Kind, StrId, Strings};

/// Events in time order.
pub trait Parts {
    /// What must be known of all of them before the first is read.
    fn head(&self) -> &Head;
    /// All their names.
    fn strings(&self) -> &Strings;
    /// Calls `take` with each part until it says no; can be done again.
    fn each(&self, take: &mut dyn FnMut(&Events) -> bool);
}

/// Events that are all there.
pub struct Whole<'a> {
    events: &'a Events,
    strings: &'a Strings,
    head: Head,
}

impl<'a> Whole<'a> {
    /// Of these.
    pub fn new(events: &'a Events, strings: &'a Strings) -> Self {
        let mut head = Head::default();
        head.add(events);
        Whole { events, strings, head }
    }
}

impl Parts for Whole<'_> {
    fn head(&self) -> &Head {
        &self.head
    }
    fn strings(&self) -> &Strings {
        self.strings
    }
    fn each(&self, take: &mut dyn FnMut(&Events) -> bool) {
        take(self.events);
    }
}

/// Where a trace begins and ends, and its CPUs; gathered part by part.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// First and last record that is about scheduling.
    first: Option<i64>,
    last: i64,
    cpus: BTreeMap<i32, Glimpse>,
    /// Times of the records before that.
    before: Vec<i64>,
    /// Such a record came.
    begun: bool,
    /// Name and time of the last record.
    end: (Option<StrId>, Option<i64>),
}

/// What the records of a CPU say of it.
#[derive(Clone, Copy, Debug, Default)]
struct Glimpse {
    first: Option<i64>,
    last: i64,
    /// A switch or an idle state is among them.
    switches: bool,
}

impl Glimpse {
    /// Of more of the trace than not nobody knows what the CPU did.
    fn is_stray(&self, span: i64) -> bool {
        let seen = self.first.map_or(0, |first| self.last - first);
        !self.switches && seen.saturating_mul(2) < span
    }
}

impl Head {
    /// Adds the next events.
    pub fn add(&mut self, events: &Events) {
        let scheduling = |kind| matches!(kind, Kind::Switch | Kind::Waking | Kind::Wakeup | Kind::WakeupNew);
        let shows = |kind| matches!(kind, Kind::Switch | Kind::Resume | Kind::CpuIdle);
        for row in 0..events.len() {
            let Some(ts) = events.ts_ns.get(row) else { continue };
            // The recorder made it up: it has no time of its own.
            if events.quality.get(row).unwrap_or(0) & quality::SYNTHESIZED != 0 {
                continue;
            }
            if let Some(cpu) = events.cpu.get(row) {
                let seen = self.cpus.entry(cpu).or_default();
                seen.first = Some(seen.first.map_or(ts, |first| first.min(ts)));
                seen.last = seen.last.max(ts);
                seen.switches |= events.kind.get(row).is_some_and(shows);
            }
            if events.kind.get(row).is_some_and(scheduling) {
                self.first = Some(self.first.map_or(ts, |first| first.min(ts)));
                self.last = self.last.max(ts);
            }
            self.begun |= self.first.is_some_and(|first| ts > first);
            if !self.begun {
                self.before.push(ts);
            }
        }
        if let Some(row) = events.len().checked_sub(1) {
            self.end = (events.name.get(row), events.ts_ns.get(row));
        }
    }

    /// When the trace begins and ends, and which CPUs have records. Recorders add records of their own;
    /// only those of scheduling count, what was recorded up to a second before the first of them, and
    /// the `end` that a replay marks. A CPU of which a few records strayed into the
    /// recording of others is left out.
    pub(super) fn found(&self, end: Option<StrId>) -> (i64, i64, Vec<i32>) {
        let marked = self.end.1.filter(|_| end.is_some() && self.end.0 == end);
        let last = marked.map_or(self.last, |end| end.max(self.last));
        let first = self.first.unwrap_or(0);
        let near = |ts: &i64| first.saturating_sub(*ts) < 1_000_000_000;
        let times = self.before.iter().copied();
        let start = times.take_while(|ts| *ts <= first).filter(near).min().unwrap_or(first);
        let span = last.saturating_sub(start);
        let known = self.cpus.values().any(|cpu| !cpu.is_stray(span));
        let cpus = self.cpus.iter().filter(|(_, cpu)| !known || !cpu.is_stray(span));
        let mut numbers: Vec<i32> = cpus.map(|(number, _)| *number).collect();
        if numbers.is_empty() {
            numbers.push(0);
        }
        (start, last, numbers)
    }
}
