//! The statistics of a trace of any length, gathered while its rows come.
//!
//! What is held grows with the number of tasks and by four bytes a sample; beyond [`HELD`] samples
//! their values are rounded, and the tables say so.

use std::collections::BTreeMap;

use super::bag::{Statistics, Union};
use super::kept::{Group, Kept};
use super::queue::Queues;
use super::task::{Part, Slice, Stretch, TaskStats, CAUSES};
use super::Grouping;
use crate::derive::sink::{QueueRow, Sink, SliceRow, StateRow};
use crate::table::Table;
use crate::tables::{Runqueue, Slices, States};
use crate::{State, StrId, Strings};

/// Samples that are held one by one: 256 MB of them.
pub const HELD: usize = 64 << 20;

/// Rows between two looks at how many samples are held.
const LOOK: usize = 1 << 20;

/// Everything that is gathered.
#[derive(Debug, Default)]
pub struct Survey {
    tasks: Vec<TaskStats>,
    /// The run queues.
    pub queues: Queues,
    end: Option<i64>,
    /// Latest end of a slice.
    last: i64,
    rows: usize,
    limit: Option<usize>,
    rounding: bool,
    pub(super) keeps: bool,
}

/// The slices of a group.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct SliceSummary {
    pub tasks: u32,
    pub open: u32,
    pub unreliable: u32,
    pub run: i64,
    pub forced: u32,
    pub switches: u32,
    pub lengths: Statistics,
}

/// The waits of a group.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct WaitSummary {
    pub statistics: Statistics,
    pub max_at: Option<i64>,
    pub unreliable: u32,
}

/// The responses of a group.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct ResponseSummary {
    pub statistics: Statistics,
    pub excluded: u32,
}

/// How the tasks of a survey are put together.
pub struct By<'a> {
    /// By what.
    pub grouping: Grouping,
    /// Names of the tasks' rows.
    pub strings: &'a Strings,
    /// Names of groups by task, in place of its own.
    pub labels: &'a [Option<String>],
}

/// Which of a task's rows its name is taken from.
#[derive(Clone, Copy)]
pub(super) enum Named {
    Slices = 0,
    Waits = 1,
    Responses = 2,
}

/// Rows as the state machine gives them, which then are in no table.
impl Sink for Survey {
    #[inline]
    fn slice(&mut self, row: &SliceRow) {
        self.add_slice(
            row.utid,
            &Slice {
                ts: row.ts,
                dur: row.dur,
                tid: row.tid,
                comm: row.comm,
                end_state: row.end_state,
                involuntary: row.involuntary,
                wake: row.wake.map(|w| w.0),
                delay: row.run_delay,
                flags: row.flags,
            },
        );
    }

    #[inline]
    fn state(&mut self, row: &StateRow) {
        let StateRow { ts, dur, tid, comm, state, flags, .. } = *row;
        self.stats(row.utid).state(&Stretch { ts, dur, tid, comm, state, flags });
    }

    #[inline]
    fn runqueue(&mut self, row: &QueueRow) {
        self.queues.row(row);
    }
}

type Grouped<'s> = BTreeMap<Option<String>, Vec<(usize, &'s Part)>>;

impl Survey {
    /// Of a trace that ends at `end`, where that is known beforehand.
    pub fn new(end: Option<i64>) -> Self {
        Survey { end, ..Survey::default() }
    }

    /// With another number of samples that are held one by one.
    pub fn holding(mut self, samples: usize) -> Self {
        self.limit = Some(samples);
        self
    }

    /// When the trace ends.
    pub fn stop(&self) -> i64 {
        self.end.unwrap_or(0)
    }

    /// Adds rows, those of each task in time order.
    pub fn push(&mut self, slices: &Slices, states: Option<&States>, runqueue: &Runqueue) {
        (0..slices.len()).for_each(|row| self.slice_at(slices, row));
        if let Some(states) = states {
            (0..states.len()).for_each(|row| self.state_at(states, row));
        }
        self.queues.push(runqueue);
        self.look();
    }

    /// Looks now and then at how many samples are held: to be called after each batch of rows.
    pub fn look(&mut self) {
        if self.rows >= self.limit.map_or(LOOK, |limit| limit.min(LOOK)) {
            self.rows = 0;
            self.rounding |= self.held() > self.limit.unwrap_or(HELD);
            if self.rounding {
                self.tasks.iter_mut().for_each(TaskStats::round);
            }
        }
    }

    fn held(&self) -> usize {
        self.tasks.iter().map(TaskStats::held).sum()
    }

    /// Are values rounded?
    pub fn rounds(&self) -> bool {
        self.rounding
    }

    fn stats(&mut self, utid: u32) -> &mut TaskStats {
        let at = utid as usize;
        if at >= self.tasks.len() {
            let keeps = self.keeps;
            self.tasks.resize_with(at + 1, || TaskStats::new(keeps));
        }
        &mut self.tasks[at]
    }

    /// Adds a row of slices.
    #[inline]
    pub(super) fn slice_at(&mut self, s: &Slices, row: usize) {
        self.add_slice(
            s.utid.get(row).unwrap_or(0),
            &Slice {
                ts: s.ts_ns.get(row).unwrap_or(0),
                dur: s.dur_ns.get(row).unwrap_or(0),
                tid: s.tid.get(row).unwrap_or(0),
                comm: s.comm.get(row),
                end_state: s.end_state.get(row),
                involuntary: s.involuntary.get(row),
                wake: s.wake_ts_ns.get(row),
                delay: s.run_delay_ns.get(row),
                flags: s.flags.get(row).unwrap_or(0),
            },
        );
    }

    #[inline]
    fn add_slice(&mut self, utid: u32, slice: &Slice) {
        let stop = self.end;
        self.last = self.last.max(slice.ts + slice.dur);
        self.rows += 1;
        self.stats(utid).slice(slice, stop);
    }

    /// Adds a row of states.
    #[inline]
    pub(super) fn state_at(&mut self, s: &States, row: usize) {
        self.stats(s.utid.get(row).unwrap_or(0)).state(&Stretch {
            ts: s.ts_ns.get(row).unwrap_or(0),
            dur: s.dur_ns.get(row).unwrap_or(0),
            tid: s.tid.get(row).unwrap_or(0),
            comm: s.comm.get(row),
            state: s.state.get(row).unwrap_or(State::Unknown),
            flags: s.flags.get(row).unwrap_or(0),
        });
    }

    /// There are no more rows; the trace ends at `end`, or with its last slice.
    pub fn finish(&mut self, end: Option<i64>) {
        self.end = self.end.or(end).or(Some(self.last));
        let stop = self.end.unwrap_or(0);
        self.tasks.iter_mut().for_each(|task| task.finish(stop));
        self.queues.finish(self.end);
    }

    /// Parts by the name of their group.
    fn grouped(&self, by: &By<'_>, named: Named) -> Grouped<'_> {
        let mut known: BTreeMap<Option<StrId>, Option<String>> = BTreeMap::new();
        let mut found = Grouped::new();
        let nth = if by.grouping == Grouping::Tid { self.nth() } else { BTreeMap::new() };
        for (utid, task) in self.tasks.iter().enumerate() {
            let label = by.labels.get(utid).and_then(Option::as_ref);
            let comm = task.names[named as usize];
            for (tid, part) in &task.parts {
                let name = match (label, by.grouping) {
                    (Some(label), _) => Some(label.clone()),
                    (None, Grouping::Tid) => {
                        let later = nth.get(&(utid, *tid)).map_or_else(String::new, |nth| format!("#{nth}"));
                        by.grouping.name(comm, *tid, by.strings).map(|name| name + &later)
                    }
                    (None, _) => known.entry(comm).or_insert_with(|| by.grouping.name(comm, *tid, by.strings)).clone(),
                };
                found.entry(name).or_default().push((utid, part));
            }
        }
        found
    }

    /// Which of the tasks of a thread's number it is, where that was free again and it is not the first:
    /// those that ran first, in order, then those that only waited.
    fn nth(&self) -> BTreeMap<(usize, i64), u32> {
        let (mut of, mut nth) = (BTreeMap::new(), BTreeMap::new());
        for ran in [true, false] {
            for (utid, task) in self.tasks.iter().enumerate() {
                for (tid, _) in task.parts.iter().filter(|(_, part)| (part.slices > 0) == ran) {
                    let number: &mut u32 = of.entry(*tid).or_default();
                    *number += 1;
                    if *number > 1 {
                        nth.insert((utid, *tid), *number);
                    }
                }
            }
        }
        nth
    }

    /// What is kept of the tasks of each group, in the order of a time.
    pub(super) fn sorted<T: Copy>(
        &self,
        by: &By<'_>,
        named: Named,
        at: impl Fn(&T) -> i64,
        of: impl Fn(&Kept, &Part, &mut Vec<T>),
    ) -> Vec<Group<T>> {
        let mut found = Vec::new();
        for (name, parts) in self.grouped(by, named) {
            let (mut all, mut own) = (Vec::new(), Vec::new());
            for (utid, part) in parts {
                let Some(kept) = &part.kept else { continue };
                of(kept, part, &mut own);
                all.extend(own.drain(..).map(|each| (utid as u32, each)));
            }
            if !all.is_empty() {
                all.sort_by_key(|(_, each)| at(each));
                found.push((name, all));
            }
        }
        found
    }

    /// The slices of each group, those with most time on CPUs first.
    pub fn slices(&self, by: &By<'_>) -> Vec<(Option<String>, SliceSummary)> {
        let mut rows = Vec::new();
        for (name, parts) in self.grouped(by, Named::Slices) {
            let parts: Vec<_> = parts.into_iter().filter(|p| p.1.slices > 0).collect();
            if parts.is_empty() {
                continue;
            }
            let count = |of: fn(&Part) -> u32| parts.iter().map(|p| of(p.1)).sum();
            let tasks = parts.chunk_by(|a, b| a.0 == b.0).count() as u32;
            let summary = SliceSummary {
                tasks,
                open: count(|p| p.open),
                unreliable: count(|p| p.unreliable),
                run: parts.iter().map(|p| p.1.run).sum(),
                forced: count(|p| p.forced),
                switches: count(|p| p.switches),
                lengths: Union::new(parts.iter().map(|p| &p.1.lengths), &[]).statistics(),
            };
            rows.push((name, summary));
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.1.run));
        rows
    }

    /// The waits of each group, of one cause of [`CAUSES`] or of all, those with the largest sum first.
    pub fn waits(&self, by: &By<'_>, cause: Option<usize>) -> Vec<(Option<String>, WaitSummary)> {
        let mut rows = Vec::new();
        let causes = cause.map_or(0..CAUSES.len(), |cause| cause..cause + 1);
        for (name, parts) in self.grouped(by, Named::Waits) {
            let waits: Vec<_> = parts.iter().flat_map(|p| &p.1.waits[causes.clone()]).collect();
            let censored: Vec<i64> = waits.iter().flat_map(|w| w.censored.iter().copied()).collect();
            let statistics = Union::new(waits.iter().map(|w| &w.complete), &censored).statistics();
            if statistics.n == 0 {
                continue;
            }
            let longest = waits.iter().filter_map(|w| w.longest).min_by_key(|(ns, at)| (std::cmp::Reverse(*ns), *at));
            let unreliable = waits.iter().map(|w| w.unreliable).sum();
            rows.push((name, WaitSummary { statistics, max_at: longest.map(|l| l.1), unreliable }));
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.1.statistics.sum));
        rows
    }

    /// The responses of each group, those with the largest sum first.
    pub fn responses(&self, by: &By<'_>) -> Vec<(Option<String>, ResponseSummary)> {
        let stop = self.stop();
        let mut rows = Vec::new();
        for (name, parts) in self.grouped(by, Named::Responses) {
            let lasted = |(from, until): &(i64, Option<i64>)| until.unwrap_or(stop).min(stop) - from;
            let unfinished = parts.iter().flat_map(|p| &p.1.unfinished);
            let censored: Vec<i64> = unfinished.map(lasted).collect();
            let statistics = Union::new(parts.iter().map(|p| &p.1.responses), &censored).statistics();
            if statistics.n > 0 {
                let excluded = parts.iter().map(|p| p.1.excluded).sum();
                rows.push((name, ResponseSummary { statistics, excluded }));
            }
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.1.statistics.sum));
        rows
    }
}
