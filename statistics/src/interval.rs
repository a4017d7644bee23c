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
    fn refused(value: Option<f64>, n_effective: Option<f64>, reason: String) -> Self {
        Found { value, interval: Err(reason), n_effective, resampled: None }
    }

    fn given(value: f64, interval: (f64, f64), error: &StandardError) -> Self {
        Found {
            value: Some(value),
            interval: Ok(interval),
            n_effective: Some(error.n_effective),
            resampled: Some((error.unit.name(), error.units)),
        }
    }
}

/// The intervals of statistics of the same samples.
pub fn intervals(samples: Samples<'_>, tasks: Option<&Tasks>, statistics: &[Statistic], level: f64) -> Vec<Found> {
    let curve = samples.curve();
    let of = |statistic: &Statistic| match *statistic {
        Statistic::Mean => of_mean(&samples, &curve, tasks, level),
        Statistic::Quantile(q) => of_quantile(&samples, &curve, tasks, q, level),
    };
    statistics.iter().map(of).collect()
}

fn of_mean(samples: &Samples<'_>, curve: &Curve, tasks: Option<&Tasks>, level: f64) -> Found {
    if samples.values.is_empty() {
        return Found::refused(None, None, few(0));
    }
    let value = samples.mean(curve);
    let error = standard_error(&samples.of_mean(curve), tasks);
    match error.around(value, level, samples.values.iter().all(|x| *x >= 0.0)) {
        Some(interval) => Found::given(value, interval, &error),
        None => Found::refused(Some(value), Some(error.n_effective), error.value.err().unwrap_or_default()),
    }
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
