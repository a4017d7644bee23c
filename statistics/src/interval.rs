//! Confidence intervals of means and quantiles.

use crate::curve::{Curve, Samples};
use crate::error::{few, standard_error, StandardError, MIN_N};
use crate::tasks::Tasks;

/// Fewest effective samples expected on each side of a quantile for its interval.
pub const MIN_TAIL: f64 = 8.0;

/// A statistic of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    /// The mean; the restricted one where samples are censored.
    Mean,
    /// The smallest value at or below which this share of the samples lies.
    Quantile(f64),
}

/// A statistic with its interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The statistic; none where the samples do not have it.
    pub value: Option<f64>,
    /// The interval, or why there is none.
    pub interval: Result<(f64, f64), String>,
    /// Independent samples that would leave the same error, where that is known.
    pub n_effective: Option<f64>,
    /// What was resampled, and how many units of it.
    pub resampled: Option<(&'static str, usize)>,
}

impl Found {
    pub(crate) fn refused(value: Option<f64>, n_effective: Option<f64>, reason: String) -> Self {
        Found { value, interval: Err(reason), n_effective, resampled: None }
    }

    /// With the interval of a level about the value; `positive` where no sample is negative.
    pub(crate) fn about(value: f64, error: &StandardError, level: f64, positive: bool) -> Self {
        match (error.around(value, level, positive), &error.value) {
            (Some(interval), _) => Found::given(value, interval, error),
            (None, reason) => {
                let reason = reason.as_ref().err().cloned().unwrap_or_default();
                Found::refused(Some(value), Some(error.n_effective), reason)
            }
        }
    }

    pub(crate) fn given(value: f64, interval: (f64, f64), error: &StandardError) -> Self {
        Found {
            value: Some(value),
            interval: Ok(interval),
            n_effective: Some(error.n_effective),
            resampled: Some((error.unit.name(), error.units)),
        }
    }
}

/// The interval of a statistic of samples.
pub fn interval(samples: Samples<'_>, tasks: Option<&Tasks>, statistic: Statistic, level: f64) -> Found {
    one(&samples, &samples.curve(), tasks, statistic, level)
}

fn one(samples: &Samples<'_>, curve: &Curve, tasks: Option<&Tasks>, statistic: Statistic, level: f64) -> Found {
    match statistic {
        Statistic::Mean => of_mean(samples, curve, tasks, level),
        Statistic::Quantile(q) => of_quantile(samples, curve, tasks, q, level),
    }
}

/// The intervals of statistics of the same samples.
pub fn intervals(samples: Samples<'_>, tasks: Option<&Tasks>, statistics: &[Statistic], level: f64) -> Vec<Found> {
    let curve = samples.curve();
    statistics.iter().map(|statistic| one(&samples, &curve, tasks, *statistic, level)).collect()
}

fn of_mean(samples: &Samples<'_>, curve: &Curve, tasks: Option<&Tasks>, level: f64) -> Found {
    if samples.values.is_empty() {
        return Found::refused(None, None, few(0));
    }
    let value = samples.mean(curve);
    let error = standard_error(&samples.of_mean(curve), tasks);
    Found::about(value, &error, level, samples.values.iter().all(|x| *x >= 0.0))
}

/// With the interval of the share of samples at or below the estimate, on the logit scale, and from
/// there to values (Woodruff's inversion).
fn of_quantile(samples: &Samples<'_>, curve: &Curve, tasks: Option<&Tasks>, q: f64, level: f64) -> Found {
    let n = samples.values.len();
    // Is there a sample beyond it? Otherwise the quantile is just the maximum.
    let enough = n as f64 * (1.0 - q) >= 1.0 - 1e-9;
    let value = curve.quantile(q);
    if n < MIN_N {
        return Found::refused(value.filter(|_| enough), None, few(n));
    }
    let Some(value) = value else {
        let reason = "so many samples are censored that the quantile is not known";
        return Found::refused(None, None, reason.to_owned());
    };
    if !enough {
        return Found::refused(None, None, format!("n = {n} leaves no sample beyond the quantile"));
    }
    let tail = q.min(1.0 - q);
    let fewest = MIN_TAIL as usize;
    if n as f64 * tail < MIN_TAIL {
        let reason = format!("n = {n} leaves fewer than {fewest} samples beyond the quantile");
        return Found::refused(Some(value), None, reason);
    }
    let [below, at] = [true, false].map(|below| standard_error(&samples.of_cdf(curve, value, below), tasks));
    let effective = below.n_effective.min(at.n_effective);
    let size = |error: &StandardError| *error.value.as_ref().unwrap_or(&f64::INFINITY);
    let error = if size(&below) > size(&at) { below } else { at };
    if let Err(reason) = error.value {
        return Found::refused(Some(value), Some(error.n_effective), reason);
    }
    if effective * tail < MIN_TAIL {
        let reason = format!("{effective:.0} effective samples leave fewer than {fewest} beyond the quantile");
        return Found::refused(Some(value), Some(effective), reason);
    }
    let (low, high) = shares_around(q, error.half_width(level).unwrap_or(f64::INFINITY));
    match (curve.quantile(low), curve.quantile(high)) {
        (Some(low), Some(high)) => Found::given(value, (low, high), &error),
        _ => Found::refused(Some(value), Some(effective), "the interval reaches beyond the sample".to_owned()),
    }
}

/// Interval of a share of half-width `half`, on the logit scale, where its bounds stay between 0
/// and 1.
pub fn shares_around(q: f64, half: f64) -> (f64, f64) {
    let (at, reach) = ((q / (1.0 - q)).ln(), half / (q * (1.0 - q)));
    (logistic(at - reach), logistic(at + reach))
}

/// Without an overflow.
fn logistic(x: f64) -> f64 {
    let small = (-x.abs()).exp();
    (if x < 0.0 { small } else { 1.0 }) / (1.0 + small)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_moved_on_the_logit_scale() {
        let odds = |p: f64| (p / (1.0 - p)).ln();
        for (q, half) in [(0.5, 0.1), (0.99, 0.01), (0.001, 1e-4)] {
            let (low, high) = shares_around(q, half);
            let reach = half / (q * (1.0 - q));
            assert!((odds(low) - odds(q) + reach).abs() < 1e-9 && (odds(high) - odds(q) - reach).abs() < 1e-9);
        }
        // However wide, it stays between 0 and 1.
        assert_eq!(shares_around(0.5, 1e6), (0.0, 1.0));
    }

    #[test]
    fn few_samples_and_few_beyond_a_quantile_have_no_interval() {
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        let reason = |n: usize, statistic| {
            let samples = Samples { values: &values[..n], censored: &[] };
            interval(samples, None, statistic, 0.9).interval.err().unwrap_or_default()
        };
        assert_eq!(reason(19, Statistic::Mean), "n = 19 is below 20");
        assert_eq!(reason(0, Statistic::Mean), "n = 0 is below 20");
        assert_eq!(reason(100, Statistic::Quantile(0.95)), "n = 100 leaves fewer than 8 samples beyond the quantile");
        assert_eq!(reason(50, Statistic::Quantile(0.99)), "n = 50 leaves no sample beyond the quantile");
    }
}
