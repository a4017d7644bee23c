//! The standard error of a statistic: block and cluster bootstrap, in closed form.
//!
//! A statistic is given by its *influence values*: one number a sample, in time order, whose sum is
//! to first order the error of the statistic (for a mean of n samples, (x - mean) / n). Resampling
//! whole blocks of consecutive samples, or whole tasks, then changes the statistic by the sum of
//! the drawn blocks' influence, so that the variance over all possible resamples is known without
//! drawing any: B / (B - 1) times the sum of the squared block sums. Drawing would only add noise.
//!
//! B. Efron and R. J. Tibshirani, An introduction to the bootstrap, Chapman and Hall 1993, chapters
//! 8 and 21 (blocks, infinitesimal jackknife). P. Hall, On the removal of skewness by
//! transformation, JRSS B 54 (1992) 221-228. E. Lazarus, D. J. Lewis, J. H. Stock, M. W. Watson,
//! HAR inference: recommendations for practice, JBES 36 (2018) 541-559 (cosine weights, the check
//! for slow drift).

use std::f64::consts::{PI, SQRT_2};

use crate::blocks::{length, within};
use crate::distributions::{f_quantile, t_quantile};
use crate::mean;
use crate::tasks::Tasks;

/// Fewest samples for any interval.
pub const MIN_N: usize = 20;
/// Fewest blocks. With 4 the 90 % quantile of t is 2.35: their small number is paid for in width.
/// With 3 it is 2.92, and the skewness can no longer be distinguished from chance.
const MIN_BLOCKS: usize = 4;
/// Most blocks: more change the t quantile by less than 2 %.
const MAX_BLOCKS: usize = 50;
/// Correlated samples: a block is at least so many lengths of Politis and White, and with more than
/// `MIN_BLOCKS` of them `SPARE` lengths, up to `ENOUGH` blocks. Theirs minimises the error of the
/// variance; the coverage of an interval wants longer blocks. With 4 and 7 in place of 5 and 9 the
/// coverage in tests/analysis/test_coverage.py is up to 3 points lower.
const LENGTHS: f64 = 5.0;
const SPARE: f64 = 9.0;
const ENOUGH: f64 = 8.0;
/// Where fewer than `FULL` such blocks fit, they are made shorter, and the variance grows with the
/// square of what they lack; where fewer than `LEAST` fit, there is no interval. With 4 or 6 in
/// place of 5 the coverage of short series changes by up to 4 points.
const FULL: f64 = 5.0;
const LEAST: f64 = 1.5;
/// Samples a series is averaged to before its autocorrelation is looked at, to bound the time.
const MOST: usize = 8192;
/// Cosines and level of the check for slow drift.
const SLOW: usize = 4;
const SLOW_LEVEL: f64 = 0.01;

/// What was resampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Blocks of consecutive samples.
    Blocks,
    /// Whole tasks.
    Tasks,
}

impl Unit {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Blocks => "blocks",
            Unit::Tasks => "tasks",
        }
    }
}

/// The sampling error of a statistic.
#[derive(Clone, Debug, PartialEq)]
pub struct StandardError {
    /// In the unit of the statistic, or why there is none.
    pub value: Result<f64, String>,
    /// Degrees of freedom of the t distribution that goes with it.
    pub df: usize,
    /// What was resampled.
    pub unit: Unit,
    /// How many of these there are.
    pub units: usize,
    /// Independent samples that would leave the same error.
    pub n_effective: f64,
    /// Skewness of the sums of the units.
    pub skew: f64,
}

impl StandardError {
    fn refused(units: usize, n_effective: f64, reason: String) -> Self {
        StandardError { value: Err(reason), df: 0, unit: Unit::Blocks, units, n_effective, skew: 0.0 }
    }

    /// Half-width of the symmetric interval of a level, from the t distribution.
    pub fn half_width(&self, confidence: f64) -> Option<f64> {
        let value = self.value.as_ref().ok()?;
        Some(value * t_quantile(self.df as f64, confidence).ok()?)
    }

    /// The interval of a level about the value of the statistic, corrected for skewness (Hall
    /// 1992). `positive` where no sample is negative: it stays above 0 then.
    pub fn around(&self, value: f64, confidence: f64, positive: bool) -> Option<(f64, f64)> {
        let error = self.value.as_ref().ok()?;
        let t = t_quantile(self.df as f64, confidence).ok()?;
        let (below, above) = (error * self.hall(t), -error * self.hall(-t));
        let low = value - below;
        Some((if positive && value > 0.0 && low <= 0.0 { value * (-below / value).exp() } else { low }, value + above))
    }

    fn hall(&self, y: f64) -> f64 {
        if self.skew.abs() < 1e-6 || self.units == 0 {
            return y;
        }
        let (units, g) = (self.units as f64, self.skew);
        let root = units.sqrt();
        3.0 * root / g * ((1.0 + g * (y / root - g / (6.0 * units))).cbrt() - 1.0)
    }
}

/// The sampling error of a statistic from its influence values, by whole tasks where eight or more
/// have about as many samples each and do not rise and fall together, else by blocks.
///
/// Refused below 20 samples, where fewer than 1.5 blocks fit, and where the slowest movement of the
/// series is larger than its blocks show (F test of four cosines, 1 %).
pub fn standard_error(influence: &[f64], tasks: Option<&Tasks>) -> StandardError {
    let n = influence.len();
    if n < MIN_N {
        return StandardError::refused(0, n as f64, few(n));
    }
    let mean = mean(influence);
    let x: Vec<f64> = influence.iter().map(|v| v - mean).collect();
    match tasks {
        Some(tasks) if tasks.alike() && !tasks.together(&x) => of_tasks(&x, tasks),
        _ => of_blocks(&x, tasks),
    }
}

/// Why so few samples have no interval.
pub(crate) fn few(n: usize) -> String {
    format!("n = {n} is below {MIN_N}")
}

fn squares(x: &[f64]) -> f64 {
    x.iter().map(|v| v * v).sum()
}

fn effective(n: usize, plain: f64, variance: f64) -> f64 {
    n as f64 * if variance > 0.0 { (plain / variance).min(1.0) } else { 1.0 }
}

fn of_tasks(x: &[f64], tasks: &Tasks) -> StandardError {
    let (sums, units) = (tasks.sums(x), tasks.count());
    let variance = units as f64 / (units - 1) as f64 * squares(&sums);
    StandardError {
        value: Ok(variance.sqrt()),
        df: units - 1,
        unit: Unit::Tasks,
        units,
        n_effective: effective(x.len(), squares(x), variance),
        skew: skewness(&sums),
    }
}

fn of_blocks(x: &[f64], tasks: Option<&Tasks>) -> StandardError {
    let (n, plain) = (x.len(), squares(x));
    if plain <= 0.0 {
        let (units, n_effective) = (MAX_BLOCKS, n as f64);
        return StandardError { value: Ok(0.0), df: units - 1, unit: Unit::Blocks, units, n_effective, skew: 0.0 };
    }
    // Runs of samples are one; whose they are is not distinguished then.
    let step = n.div_ceil(MOST);
    let averaged: Vec<f64>;
    let (series, tasks) = if step == 1 {
        (x, tasks)
    } else {
        averaged = x.chunks(step).map(|run| run.iter().sum()).collect();
        (averaged.as_slice(), None)
    };
    let m = series.len();
    let mut found = length(series);
    if let Some(tasks) = tasks.filter(|tasks| 1 < tasks.count() && tasks.count() <= m / 8) {
        let own = within(series, tasks);
        if own.correlated && own.samples > found.samples {
            found = own;
        }
    }
    let size = found.samples.max(1.0) * if found.correlated { LENGTHS } else { 1.0 };
    let fit = m as f64 / size;
    if fit < if found.correlated { LEAST } else { MIN_BLOCKS as f64 } {
        let others = (size * n as f64 / m as f64).round_ties_even();
        let reason = format!("samples depend on one another over {others} others, and there are {n}");
        return StandardError::refused(fit as usize, fit, reason);
    }
    let (units, short) = if found.correlated {
        // Few blocks, as long as the trace allows: the t distribution pays for their number.
        ((fit * LENGTHS / SPARE).clamp(MIN_BLOCKS as f64, ENOUGH) as usize, (FULL / fit).max(1.0).powi(2))
    } else {
        ((fit as usize).min(MAX_BLOCKS), 1.0)
    };
    let edge = |block: usize| (m as f64 / units as f64 * block as f64) as usize;
    let mut sums: Vec<f64> = (0..units)
        .map(|block| series[edge(block)..if block + 1 < units { edge(block + 1) } else { m }].iter().sum())
        .collect();
    let middle = mean(&sums);
    sums.iter_mut().for_each(|sum| *sum -= middle);
    let variance = short * units as f64 / (units - 1) as f64 * squares(&sums);
    let n_effective = effective(n, plain, variance);
    if variance > 0.0 && drifts(series, units, variance) {
        return StandardError::refused(units, n_effective, "the samples drift over the whole trace".to_owned());
    }
    let (value, skew) = (Ok(variance.sqrt()), skewness(&sums));
    StandardError { value, df: units - 1, unit: Unit::Blocks, units, n_effective, skew }
}

/// Skewness of a few sums, without bias for a third moment of independent ones.
fn skewness(sums: &[f64]) -> f64 {
    let (n, mean) = (sums.len() as f64, mean(sums));
    let power = sums.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / (n - 1.0);
    if power <= 0.0 {
        return 0.0;
    }
    let third = sums.iter().map(|s| (s - mean).powi(3)).sum::<f64>() * n / ((n - 1.0) * (n - 2.0));
    third / power.powf(1.5)
}

/// Do the slowest parts of the series vary by more than its blocks do?
fn drifts(x: &[f64], blocks: usize, variance: f64) -> bool {
    let mut parts = [0.0; SLOW];
    // The slowest cosine over the series by rotation, the others by Chebyshev's recurrence.
    let angle = PI / x.len() as f64;
    let (turn_sin, turn_cos) = angle.sin_cos();
    let (mut sin, mut cos) = (angle / 2.0).sin_cos();
    for value in x {
        let (mut before, mut now) = (1.0, cos);
        for part in &mut parts {
            *part += now * value;
            (before, now) = (now, 2.0 * cos * now - before);
        }
        (sin, cos) = (sin * turn_cos + cos * turn_sin, cos * turn_cos - sin * turn_sin);
    }
    let slow = parts.iter().map(|part| (SQRT_2 * part).powi(2)).sum::<f64>() / SLOW as f64;
    f_quantile(SLOW as f64, (blocks - 1) as f64, 1.0 - SLOW_LEVEL).is_ok_and(|most| slow / variance > most)
}
