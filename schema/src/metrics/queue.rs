//! Run queues as time spent at each length, gathered while rows come.

use std::collections::BTreeMap;

use crate::derive::sink::QueueRow;
use crate::table::Table;
use crate::tables::{flag, Runqueue};

/// Whose queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// All CPUs and the unplaced tasks.
    System,
    /// One CPU.
    Cpu(i32),
    /// Tasks that are runnable on an unknown CPU.
    Unplaced,
}

/// What a queue holds: running tasks, waiting ones, whether the CPU of one is a guess, whether
/// nobody knows what runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    running: i64,
    waiting: i64,
    estimated: i64,
    unknown: i64,
}

/// Time at each pair of running and waiting tasks, in all and with a guess.
type Times = BTreeMap<(i64, i64), (i64, i64)>;

#[derive(Clone, Debug, Default)]
struct Queue {
    held: Held,
    since: i64,
    times: Times,
}

impl Queue {
    fn until(&mut self, ts: i64) {
        let lasted = ts - self.since;
        if lasted > 0 && self.held.unknown == 0 {
            let time = self.times.entry((self.held.running, self.held.waiting)).or_default();
            time.0 += lasted;
            time.1 += if self.held.estimated > 0 { lasted } else { 0 };
        }
        self.since = ts;
    }
}

/// A stretch of time in which the length of a queue is known and stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When it begins.
    pub at: i64,
    /// In ns, above 0.
    pub dur: i64,
    /// Running and waiting tasks.
    pub length: i64,
}

/// All run queues.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    /// Of the system, where they are asked for.
    steps: Option<Vec<Step>>,
    each: BTreeMap<Option<i32>, Queue>,
    system: Queue,
    last: Option<i64>,
    unsorted: bool,
}

/// The lengths of a queue over time.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSummary {
    /// Whose.
    pub scope: Scope,
    /// Time observed, ns.
    pub span: i64,
    /// Mean length.
    pub mean: f64,
    /// The 50th, 95th and 99th percentile.
    pub quantiles: [i64; 3],
    /// Largest length.
    pub max: i64,
    /// Share of time with length 0, and with a guess.
    pub shares: (f64, f64),
    /// Do unplaced tasks make the mean a lower bound?
    pub bound: bool,
}

impl Queues {
    /// Adds rows in time order.
    pub fn push(&mut self, queue: &Runqueue) {
        (0..queue.len()).for_each(|row| self.row_at(queue, row));
    }

    /// Adds a row of a table.
    pub(super) fn row_at(&mut self, queue: &Runqueue, row: usize) {
        self.row(&QueueRow {
            ts: queue.ts_ns.get(row).unwrap_or(0),
            cpu: queue.cpu.get(row),
            running: queue.nr_running.get(row).unwrap_or(0),
            waiting: queue.nr_waiting.get(row).unwrap_or(0),
            flags: queue.flags.get(row).unwrap_or(0),
        });
    }

    /// Adds a row.
    pub(super) fn row(&mut self, row: &QueueRow) {
        let ts = row.ts;
        let held = Held {
            running: row.running.into(),
            waiting: row.waiting.into(),
            estimated: i64::from(row.flags & flag::ESTIMATED != 0),
            unknown: i64::from(row.flags & flag::CROSSES_LOSS != 0),
        };
        self.unsorted |= self.last.is_some_and(|last| ts < last);
        if self.last.is_none() {
            self.system.since = ts;
        }
        self.last = Some(ts);
        self.system_until(ts);
        let own = self.each.entry(row.cpu).or_insert_with(|| Queue { since: ts, ..Queue::default() });
        own.until(ts);
        let (was, now) = (own.held, &mut self.system.held);
        now.running += held.running - was.running;
        now.waiting += held.waiting - was.waiting;
        now.estimated += held.estimated - was.estimated;
        now.unknown += held.unknown - was.unknown;
        own.held = held;
    }

    /// The trace ends.
    pub fn finish(&mut self, end: Option<i64>) {
        let Some(last) = self.last else { return };
        let stop = end.map_or(last, |end| end.max(last));
        self.each.values_mut().for_each(|queue| queue.until(stop));
        self.system_until(stop);
    }

    fn system_until(&mut self, ts: i64) {
        let Queue { held, since, .. } = self.system;
        if let Some(steps) = self.steps.as_mut().filter(|_| ts > since && held.unknown == 0) {
            steps.push(Step { at: since, dur: ts - since, length: held.running + held.waiting });
        }
        self.system.until(ts);
    }

    pub(super) fn keep(&mut self) {
        self.steps = Some(Vec::new());
    }

    pub(super) fn steps(&self) -> &[Step] {
        self.steps.as_deref().unwrap_or_default()
    }

    /// Did rows come out of time order? Then the system's length is not known.
    pub fn unsorted(&self) -> bool {
        self.unsorted
    }

    /// The lengths of the system, of each CPU, of unplaced tasks; `waiting` leaves running tasks out.
    pub fn summaries(&self, waiting: bool) -> Vec<QueueSummary> {
        let scope = |cpu: &Option<i32>| cpu.map_or(Scope::Unplaced, Scope::Cpu);
        let system = std::iter::once((Scope::System, &self.system));
        let all = system.chain(self.each.iter().map(|(cpu, queue)| (scope(cpu), queue)));
        let mut found: Vec<_> =
            all.filter_map(|(scope, queue)| summary(scope, &lengths(&queue.times, waiting))).collect();
        found.sort_by_key(|s| s.scope);
        let unplaced = found.iter().any(|s| s.scope == Scope::Unplaced && s.max > 0);
        found.iter_mut().for_each(|s| s.bound = unplaced && matches!(s.scope, Scope::Cpu(_)));
        found
    }
}

/// Time at each length.
fn lengths(times: &Times, waiting: bool) -> BTreeMap<i64, (i64, i64)> {
    let mut found: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for (&(running, queued), &(all, guessed)) in times {
        let time = found.entry(if waiting { queued } else { running + queued }).or_default();
        *time = (time.0 + all, time.1 + guessed);
    }
    found
}

fn summary(scope: Scope, times: &BTreeMap<i64, (i64, i64)>) -> Option<QueueSummary> {
    let span: i64 = times.values().map(|t| t.0).sum();
    if span == 0 {
        return None;
    }
    let share = |ns: i64| ns as f64 / span as f64;
    let area: i64 = times.iter().map(|(length, t)| length * t.0).sum();
    let max = times.last_key_value().map_or(0, |(&length, _)| length);
    let quantile = |q: f64| {
        let mut below = 0;
        let reached = |t: &(i64, i64)| {
            below += t.0;
            1.0 - share(span - below) >= q - 1e-12
        };
        let mut reached = reached;
        times.iter().find(|(_, t)| reached(t)).map_or(max, |(&length, _)| length)
    };
    let guessed: i64 = times.values().map(|t| t.1).sum();
    Some(QueueSummary {
        scope,
        span,
        mean: area as f64 / span as f64,
        quantiles: [quantile(0.5), quantile(0.95), quantile(0.99)],
        max,
        shares: (share(times.get(&0).map_or(0, |t| t.0)), share(guessed)),
        bound: false,
    })
}
