//! The sampling error of every row of a comparison.
//!
//! Each row is resampled as what it is: means and quantiles by their samples, totals and
//! time-weighted figures by equal intervals of time, ratios by both of their parts.

use tracekit_schema::metrics::{By, Grouping, Metric, Piece, Step, Survey};
use tracekit_schema::Strings;

use crate::curve::Samples;
use crate::error::{few, standard_error, StandardError, MIN_N};
use crate::interval::{intervals, shares_around, Found, Statistic};
use crate::mean;
use crate::tasks::Tasks;

/// Quantiles that are given.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)];
/// A maximum has no bootstrap: it is the value of one sample (Efron and Tibshirani 1993, section
/// 7.4).
const NO_MAXIMUM: &str = "a maximum is one sample; nothing says how it would vary";
/// Equal intervals of time that totals and time-weighted statistics are resampled by: enough to see
/// a correlation of a hundredth of the trace, few enough to be quick. Half or twice as many change
/// the intervals of the demo by less than 20 %.
const BINS: usize = 512;

/// A statistic of a group.
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
    /// Samples; steps of the run queue.
    pub n: usize,
    /// Its value and interval.
    pub found: Found,
}

/// The rows of a survey that keeps its samples, each with its interval of a level or the reason why
/// there is none.
pub fn sampling(survey: &Survey, strings: &Strings, by: Grouping, level: f64) -> Vec<Row> {
    let mut rows = Vec::new();
    for (scope, grouping) in [("group", by), ("all", Grouping::All)] {
        let by = By { grouping, strings, labels: &[] };
        for metric in Metric::ALL {
            of_samples(scope, survey, &by, metric, level, &mut rows);
        }
        of_slices(scope, survey, &by, level, &mut rows);
    }
    of_queue(survey.steps(), level, &mut rows);
    rows
}

fn refused(value: Option<f64>, reason: &str) -> Found {
    Found::refused(value, None, reason.to_owned())
}

fn of_samples(scope: &'static str, survey: &Survey, by: &By<'_>, metric: Metric, level: f64, rows: &mut Vec<Row>) {
    let statistics: Vec<Statistic> =
        std::iter::once(Statistic::Mean).chain(QUANTILES.map(|(_, q)| Statistic::Quantile(q))).collect();
    let names = std::iter::once("mean").chain(QUANTILES.map(|(name, _)| name)).chain(["max"]);
    for (group, samples) in survey.samples(by, metric) {
        let values: Vec<f64> = samples.iter().map(|(_, s)| s.value as f64).collect();
        let censored: Vec<bool> = samples.iter().map(|(_, s)| s.censored).collect();
        let tasks = Tasks::new(&samples.iter().map(|(task, _)| i64::from(*task)).collect::<Vec<_>>());
        let mut found = intervals(Samples { values: &values, censored: &censored }, Some(&tasks), &statistics, level);
        let complete = samples.iter().filter(|(_, s)| !s.censored);
        found.push(refused(complete.map(|(_, s)| s.value).max().map(|v| v as f64), NO_MAXIMUM));
        let group = group.filter(|_| scope == "group");
        let (metric, n) = (metric.name(), values.len());
        rows.extend(names.clone().zip(found).map(|(statistic, found)| Row {
            scope,
            group: group.clone(),
            metric,
            statistic,
            n,
            found,
        }));
    }
}

/// Rows of the totals over slices, and of run time per involuntary switch.
fn of_slices(scope: &'static str, survey: &Survey, by: &By<'_>, level: f64, rows: &mut Vec<Row>) {
    let groups = survey.pieces(by);
    let all = || groups.iter().flat_map(|(_, pieces)| pieces.iter().map(|(_, p)| p));
    let Some(start) = all().map(|p| p.at).min() else { return };
    let last = all().map(|p| p.at + p.dur).max().unwrap_or(start);
    let bins = Bins::new(start, last.max(survey.stop()), all().count());
    for (group, pieces) in &groups {
        let leaving = |forced: bool| {
            let left = move |p: &&Piece| p.involuntary.is_some_and(|involuntary| involuntary || !forced);
            pieces.iter().map(|(_, p)| p).filter(left)
        };
        let mut push = |metric, statistic, n, found| {
            let group = group.as_ref().filter(|_| scope == "group").cloned();
            rows.push(Row { scope, group, metric, statistic, n, found });
        };
        let mut busy = bins.empty();
        pieces.iter().for_each(|(_, p)| bins.spread(p.at, p.at + p.dur, 1.0, &mut busy));
        let run: i64 = pieces.iter().map(|(_, p)| p.dur).sum();
        push("cpu_time", "total", pieces.len(), total(pieces.len(), run as f64, &busy, level));
        for (metric, forced) in [("switches", false), ("involuntary_switches", true)] {
            let mut counts = bins.empty();
            leaving(forced).for_each(|p| counts[bins.of(p.at + p.dur)] += 1.0);
            let n = leaving(forced).count();
            push(metric, "total", n, total(n, n as f64, &counts, level));
        }
        let forced = leaving(true).count();
        push("slice_per_involuntary", "mean", forced, per_involuntary(pieces, run, forced, level));
    }
}

fn total(n: usize, value: f64, series: &[f64], level: f64) -> Found {
    if n < MIN_N {
        return refused(Some(value), &few(n));
    }
    let middle = mean(series);
    let influence: Vec<f64> = series.iter().map(|v| v - middle).collect();
    Found::about(value, &standard_error(&influence, None), level, true)
}

fn per_involuntary(pieces: &[(u32, Piece)], run: i64, forced: usize, level: f64) -> Found {
    let value = (forced > 0).then(|| run as f64 / forced as f64);
    let Some(value) = value.filter(|_| forced >= MIN_N) else { return refused(value, &few(forced)) };
    let above: Vec<f64> = pieces.iter().map(|(_, p)| p.dur as f64).collect();
    let below: Vec<f64> = pieces.iter().map(|(_, p)| f64::from(u8::from(p.involuntary == Some(true)))).collect();
    let tasks = Tasks::new(&pieces.iter().map(|(task, _)| i64::from(*task)).collect::<Vec<_>>());
    Found::about(value, &standard_error(&of_ratio(&above, &below), Some(&tasks)), level, true)
}

/// Influence values of sum(above) / sum(below).
fn of_ratio(above: &[f64], below: &[f64]) -> Vec<f64> {
    let total: f64 = below.iter().sum();
    let ratio = above.iter().sum::<f64>() / total;
    above.iter().zip(below).map(|(a, b)| (a - ratio * b) / total).collect()
}

/// Rows of the system's run queue, weighted by time.
fn of_queue(steps: &[Step], level: f64, rows: &mut Vec<Row>) {
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return };
    let n = steps.len();
    let bins = Bins::new(first.at, last.at + last.dur, n);
    let known = bins.integral(steps, |_| 1.0);
    let time: f64 = steps.iter().map(|s| s.dur as f64).sum();
    let area: f64 = steps.iter().map(|s| s.length as f64 * s.dur as f64).sum();
    let lengths = bins.integral(steps, |length| length as f64);
    let error = standard_error(&of_ratio(&lengths, &known), None);
    let mut found = vec![("mean", Found::about(area / time, &error, level, true))];

    let mut at: Vec<i64> = steps.iter().map(|s| s.length).collect();
    at.sort_unstable();
    at.dedup();
    let mut below = vec![0.0; at.len()];
    steps.iter().for_each(|s| below[at.partition_point(|l| *l < s.length)] += s.dur as f64);
    let cdf: Vec<f64> = below
        .iter()
        .scan(0.0, |sum, dur| Some(std::mem::replace(sum, *sum + dur) + dur))
        .map(|sum| sum / time)
        .collect();
    let shares = Shares { steps, bins: &bins, known: &known, at: &at, cdf: &cdf };
    found.extend(QUANTILES.map(|(name, q)| (name, shares.quantile(q, level))));
    if n < MIN_N {
        found.iter_mut().for_each(|(_, f)| *f = refused(f.value, &few(n)));
    }
    found.push(("max", refused(at.last().map(|l| *l as f64), NO_MAXIMUM)));
    let row = |(statistic, found)| Row { scope: "system", group: None, metric: "runqueue", statistic, n, found };
    rows.extend(found.into_iter().map(row));
}

/// The interval of the share of time at each of these lengths of a queue; none where it has fewer
/// steps than a sample must have, or the share is all or nothing.
pub fn shares(steps: &[Step], lengths: &[i64], level: f64) -> Vec<Option<(f64, f64)>> {
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return vec![None; lengths.len()] };
    let bins = Bins::new(first.at, last.at + last.dur, steps.len());
    let known = bins.integral(steps, |_| 1.0);
    let all: f64 = known.iter().sum();
    let of = |length: &i64| {
        let inside = bins.integral(steps, |other| f64::from(u8::from(other == *length)));
        let share = inside.iter().sum::<f64>() / all;
        let half = standard_error(&of_ratio(&inside, &known), None).half_width(level);
        half.filter(|_| steps.len() >= MIN_N && 0.0 < share && share < 1.0).map(|half| shares_around(share, half))
    };
    lengths.iter().map(of).collect()
}

/// The share of time at or below each length of a queue.
struct Shares<'a> {
    steps: &'a [Step],
    bins: &'a Bins,
    known: &'a [f64],
    at: &'a [i64],
    cdf: &'a [f64],
}

impl Shares<'_> {
    fn at(&self, q: f64) -> i64 {
        let place = self.cdf.partition_point(|share| *share < q - 1e-12);
        self.at[place.min(self.at.len() - 1)]
    }

    /// A time-weighted quantile, from the share of time at or below it (Woodruff's inversion).
    fn quantile(&self, q: f64, level: f64) -> Found {
        let value = self.at(q);
        let error = |inside: &dyn Fn(i64) -> bool| -> StandardError {
            let share = self.bins.integral(self.steps, |length| f64::from(u8::from(inside(length))));
            standard_error(&of_ratio(&share, self.known), None)
        };
        let (below, upto) = (error(&|length| length < value), error(&|length| length <= value));
        let mut reach = 0.0f64;
        for error in [&below, &upto] {
            match (&error.value, error.half_width(level)) {
                (Err(reason), _) => return refused(Some(value as f64), reason),
                (_, half) => reach = reach.max(half.unwrap_or(f64::INFINITY)),
            }
        }
        let (low, high) = shares_around(q, reach);
        let most = self.cdf.last().copied().unwrap_or(0.0);
        if high > 1.0 - 1e-5 || high > most {
            return refused(Some(value as f64), "the interval reaches beyond the sample");
        }
        Found::given(value as f64, (self.at(low) as f64, self.at(high) as f64), &upto)
    }
}

/// Equal intervals of time.
struct Bins {
    /// From the start of the first to the end of the last, ascending.
    edges: Vec<i64>,
}

impl Bins {
    /// From `start` to `stop`, fewer where there are few samples.
    fn new(start: i64, stop: i64, samples: usize) -> Self {
        let bins = (samples / 4).clamp(64, BINS) as i128;
        let span = i128::from(stop - start).max(bins);
        Bins { edges: (0..=bins).map(|i| start + (span * i / bins) as i64).collect() }
    }

    fn empty(&self) -> Vec<f64> {
        vec![0.0; self.edges.len() - 1]
    }

    /// The one in which a time lies; the last one has its end as well.
    fn of(&self, at: i64) -> usize {
        let (first, last) = (self.edges[0], self.edges.len() - 2);
        let span = (self.edges[last + 1] - first) as f64;
        let mut bin = (((at - first) as f64 / span * (last + 1) as f64) as usize).min(last);
        // A quotient is off by less than one.
        while bin > 0 && self.edges[bin] > at {
            bin -= 1;
        }
        while bin < last && self.edges[bin + 1] <= at {
            bin += 1;
        }
        bin
    }

    /// Adds `height` times what lies between two times in each.
    fn spread(&self, from: i64, until: i64, height: f64, sums: &mut [f64]) {
        let first = self.of(from);
        for (sum, edges) in sums.iter_mut().zip(self.edges.windows(2)).skip(first) {
            if edges[0] >= until {
                break;
            }
            let within = until.min(edges[1]) - from.max(edges[0]);
            *sum += height * within.max(0) as f64;
        }
    }

    /// The integral of a function of the length over each.
    fn integral(&self, steps: &[Step], height: impl Fn(i64) -> f64) -> Vec<f64> {
        let mut sums = self.empty();
        steps.iter().for_each(|s| self.spread(s.at, s.at + s.dur, height(s.length), &mut sums));
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_spread_over_the_intervals_it_lies_in() {
        let bins = Bins::new(1_000, 1_640, 0);
        assert_eq!((bins.edges.len(), bins.edges[1], bins.edges[64]), (65, 1_010, 1_640));
        let mut sums = bins.empty();
        bins.spread(1_005, 1_032, 2.0, &mut sums);
        bins.spread(1_635, 1_640, 1.0, &mut sums);
        assert_eq!(sums[..5], [10.0, 20.0, 20.0, 4.0, 0.0]);
        assert_eq!((sums[63], sums.iter().sum::<f64>()), (5.0, 59.0));
        assert_eq!([999, 1_000, 1_009, 1_010, 1_640, 1_700].map(|at| bins.of(at)), [0, 0, 0, 1, 63, 63]);
        // A trace of no length has intervals all the same.
        assert_eq!(Bins::new(5, 5, 1_000_000).empty().len(), BINS);
    }

    #[test]
    fn influence_on_a_ratio_adds_up_to_nothing() {
        let influence = of_ratio(&[1.0, 5.0, 3.0], &[1.0, 0.0, 2.0]);
        assert!(influence.iter().sum::<f64>().abs() < 1e-12);
        assert!((influence[1] - 5.0 / 3.0).abs() < 1e-12);
    }
}
