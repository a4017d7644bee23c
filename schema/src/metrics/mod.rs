//! Statistics straight from the derived tables: lengths of slices, waits for a CPU, response times,
//! totals, run queues.
//!
//! The definitions are those of `tracekit.analysis` (`slices.summary`, `latency.summary`,
//! `response.summary`, `runqueue.summary`), and tests hold the two equal. They are computed here
//! for runs whose tables nobody looks at (a comparison has many), and for traces whose tables do
//! not fit into memory: a [`Survey`] takes rows as they come.

mod bag;
mod groups;
mod kept;
mod queue;
mod survey;
mod task;

use crate::table::Table;
use crate::tables::{Runqueue, Slices, States};
use crate::Strings;

pub use bag::{Statistics, QUANTILES};
pub use groups::Grouping;
pub use kept::{Metric, Piece, Sample};
pub use queue::{QueueSummary, Scope, Step};
pub use survey::{By, ResponseSummary, SliceSummary, Survey, WaitSummary, HELD};
pub use task::CAUSES;

/// One statistic of one group.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// `group`, `all` or `system`.
    pub scope: &'static str,
    /// Name of the group; none for the other scopes, and for tasks without a name.
    pub group: Option<String>,
    /// What is measured.
    pub metric: &'static str,
    /// `mean`, `p50`, `p95`, `p99`, `max` or `total`.
    pub statistic: &'static str,
    /// `ns` or `1`.
    pub unit: &'static str,
    /// None where there are too few samples for it.
    pub value: Option<f64>,
    /// Samples; none for the run queue.
    pub n: Option<u32>,
    /// Of these censored.
    pub censored: u32,
    /// The value is a mean and a lower bound: the largest sample is censored.
    pub bound: bool,
}

/// The tables of one trace or run.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// Slices, in any order.
    pub slices: &'a Slices,
    /// States, likewise; without them waits that had not ended are not seen.
    pub states: Option<&'a States>,
    /// Run queues, likewise.
    pub runqueue: &'a Runqueue,
    /// Names.
    pub strings: &'a Strings,
    /// End of the trace.
    pub end: Option<i64>,
}

/// Every statistic of every group, of all tasks together, and of the system's run queue.
pub fn metrics(of: &Measured<'_>, by: Grouping) -> Vec<Row> {
    rows_of(&of.survey(Survey::new(of.end)), of.strings, by)
}

/// The same of a survey that is finished; names are in `strings`.
pub fn rows_of(survey: &Survey, strings: &Strings, by: Grouping) -> Vec<Row> {
    let mut rows = Vec::new();
    for (scope, grouping) in [("group", by), ("all", Grouping::All)] {
        scoped(scope, survey, &By { grouping, strings, labels: &[] }, &mut rows);
    }
    if let Some(queue) = survey.queues.summaries(false).into_iter().find(|q| q.scope == Scope::System) {
        let [p50, p95, p99] = queue.quantiles.map(|length| length as f64);
        for (statistic, value) in
            [("mean", queue.mean), ("p50", p50), ("p95", p95), ("p99", p99), ("max", queue.max as f64)]
        {
            let value = Some(value);
            let (metric, unit) = ("runqueue", "1");
            rows.push(Row {
                scope: "system",
                group: None,
                metric,
                statistic,
                unit,
                value,
                n: None,
                censored: 0,
                bound: false,
            });
        }
    }
    rows
}

type Of<T> = fn(&T) -> Option<f64>;

/// What comparisons show of samples.
const SPREAD: [(&str, Of<Statistics>); 5] = [
    ("mean", |s| s.mean),
    ("p50", |s| s.quantiles[0].map(|v| v as f64)),
    ("p95", |s| s.quantiles[2].map(|v| v as f64)),
    ("p99", |s| s.quantiles[3].map(|v| v as f64)),
    ("max", |s| s.max.map(|v| v as f64)),
];

/// What comparisons show of slices as a whole: metric, statistic, unit, value, samples.
#[allow(clippy::type_complexity)]
const TOTALS: [(&str, &str, &str, Of<SliceSummary>, fn(&SliceSummary) -> u32); 4] = [
    ("cpu_time", "total", "ns", |s| Some(s.run as f64), |s| s.lengths.n as u32),
    (
        "slice_per_involuntary",
        "mean",
        "ns",
        |s| (s.forced > 0).then(|| s.run as f64 / f64::from(s.forced)),
        |s| s.forced,
    ),
    ("switches", "total", "1", |s| Some(f64::from(s.switches)), |s| s.switches),
    ("involuntary_switches", "total", "1", |s| Some(f64::from(s.forced)), |s| s.switches),
];

/// A group and its samples.
type Sampled<'a> = (&'a Option<String>, &'a Statistics);

/// The rows of one metric: mean, quantiles and maximum.
fn spread(scope: &'static str, metric: &'static str, of: &[Sampled<'_>], rows: &mut Vec<Row>) {
    for (statistic, value) in SPREAD {
        rows.extend(of.iter().map(|(group, s)| Row {
            scope,
            group: group.as_ref().filter(|_| scope == "group").cloned(),
            metric,
            statistic,
            unit: "ns",
            value: value(s),
            n: Some(s.n as u32),
            censored: s.censored as u32,
            bound: statistic == "mean" && s.bound,
        }));
    }
}

/// The rows of one scope, metric by metric.
fn scoped(scope: &'static str, survey: &Survey, by: &By<'_>, rows: &mut Vec<Row>) {
    let slices = survey.slices(by);
    let lengths: Vec<Sampled<'_>> = slices.iter().map(|(group, s)| (group, &s.lengths)).collect();
    spread(scope, "slice", &lengths, rows);
    for (metric, statistic, unit, value, n) in TOTALS {
        rows.extend(slices.iter().map(|(group, s)| Row {
            scope,
            group: group.as_ref().filter(|_| scope == "group").cloned(),
            metric,
            statistic,
            unit,
            value: value(s),
            n: Some(n(s)),
            censored: 0,
            bound: false,
        }));
    }
    for (metric, cause) in [("run_delay", None), ("wakeup_latency", Some(0))] {
        let waits = survey.waits(by, cause);
        let of: Vec<Sampled<'_>> = waits.iter().map(|(group, w)| (group, &w.statistics)).collect();
        spread(scope, metric, &of, rows);
    }
    let responses = survey.responses(by);
    let of: Vec<Sampled<'_>> = responses.iter().map(|(group, r)| (group, &r.statistics)).collect();
    spread(scope, "response", &of, rows);
}

/// Calls `each` with the rows of a table so that those of each task come in time order.
fn in_order(rows: usize, task: impl Fn(usize) -> u32, ts: impl Fn(usize) -> i64, each: impl FnMut(usize)) {
    let mut last: Vec<i64> = Vec::new();
    let ordered = (0..rows).all(|row| {
        let task = task(row) as usize;
        if task >= last.len() {
            last.resize(task + 1, i64::MIN);
        }
        ts(row) >= std::mem::replace(&mut last[task], ts(row))
    });
    if ordered {
        return (0..rows).for_each(each);
    }
    let mut places: Vec<usize> = (0..rows).collect();
    places.sort_by_key(|&row| ts(row));
    places.into_iter().for_each(each);
}

impl Measured<'_> {
    /// The survey of these tables, which begins as `empty`.
    pub fn survey(&self, empty: Survey) -> Survey {
        let mut survey = empty.holding(usize::MAX);
        let s = self.slices;
        let task = |row| s.utid.get(row).unwrap_or(0);
        in_order(s.len(), task, |row| s.ts_ns.get(row).unwrap_or(0), |row| survey.slice_at(s, row));
        if let Some(s) = self.states {
            let task = |row| s.utid.get(row).unwrap_or(0);
            in_order(s.len(), task, |row| s.ts_ns.get(row).unwrap_or(0), |row| survey.state_at(s, row));
        }
        let q = self.runqueue;
        in_order(q.len(), |_| 0, |row| q.ts_ns.get(row).unwrap_or(0), |row| survey.queues.row_at(q, row));
        survey.finish(self.end);
        survey
    }
}

#[cfg(test)]
mod tests;
