//! How long a block of a block bootstrap has to be.
//!
//! D. N. Politis and H. White, Automatic block-length selection for the dependent bootstrap,
//! Econometric Reviews 23 (2004) 53-70; A. Patton, D. N. Politis, H. White, correction, Econometric
//! Reviews 28 (2009) 372-375.

use crate::mean;
use crate::tasks::Tasks;

/// Fewest samples that a correlation is looked for in.
const FEW: usize = 8;

/// How long a block has to be, and whether any lag from 1 on is correlated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Length {
    /// In samples.
    pub samples: f64,
    /// Do samples depend on one another?
    pub correlated: bool,
}

const ALONE: Length = Length { samples: 1.0, correlated: false };

/// Lags that are summed side by side.
const SIDE: usize = 8;

/// The autocovariance at lags 0 to `lags` of a series of mean zero.
///
/// There are about as many lags as the root of the length: products cost no more than a
/// transformation.
fn autocovariance(x: &[f64], lags: usize) -> Vec<f64> {
    let n = x.len();
    let mut found = Vec::with_capacity(lags + SIDE);
    for first in (0..=lags).step_by(SIDE) {
        let later = x.get(first..).unwrap_or_default();
        let mut sums = [0.0; SIDE];
        for (value, window) in x.iter().zip(later.windows(SIDE)) {
            sums.iter_mut().zip(window).for_each(|(sum, other)| *sum += value * other);
        }
        // Where fewer than all of these lags have a sample.
        for from in (n + 1).saturating_sub(first + SIDE)..n.saturating_sub(first) {
            sums.iter_mut().zip(&x[first + from..]).for_each(|(sum, other)| *sum += x[from] * other);
        }
        found.extend(sums.map(|sum| sum / n as f64));
    }
    found.truncate(lags + 1);
    found
}

/// Lags that are looked at.
fn lags(n: usize) -> usize {
    ((n as f64).sqrt().ceil() as usize + window(n)).min(n - 2)
}

/// Correlations that have to be small one after the other.
fn window(n: usize) -> usize {
    5.max((n as f64).log10() as usize)
}

fn politis_white(covariance: &[f64], correlation: &[f64], n: usize) -> Length {
    let long = n as f64;
    let critical = 2.0 * (long.log10() / long).sqrt();
    let most = covariance.len() - 1;
    let first = correlation.windows(window(n)).position(|window| window.iter().all(|c| c.abs() < critical));
    let bandwidth = first.map_or(most, |first| (2 * first.max(1)).min(most));
    let taper = |k: usize| if 2 * k <= bandwidth { 1.0 } else { 2.0 * (1.0 - k as f64 / bandwidth as f64) };
    let tapered = || (1..=bandwidth).map(|k| (k as f64, taper(k) * covariance[k]));
    let g = 2.0 * tapered().map(|(k, c)| k * c).sum::<f64>();
    let variance = covariance[0] + 2.0 * tapered().map(|(_, c)| c).sum::<f64>();
    // Negatively correlated throughout: short blocks only overstate the variance.
    if variance <= 0.0 {
        return Length { samples: 1.0, correlated: first != Some(1) };
    }
    let samples = (2.0 * g * g / (4.0 / 3.0 * variance * variance)).cbrt() * long.cbrt();
    let longest = (3.0 * long.sqrt()).min(long / 3.0).ceil();
    Length { samples: samples.min(longest), correlated: first.is_none_or(|first| first > 1) }
}

fn about_zero(x: &[f64]) -> Vec<f64> {
    let mean = mean(x);
    x.iter().map(|v| v - mean).collect()
}

/// By the autocorrelation of a series up to its decay: the length is (2 G^2 / D)^(1/3) n^(1/3), G
/// and D from a flat-top lag window that ends at twice the first lag after which the correlations
/// are within 2 sqrt(log10(n) / n) of zero; at most min(3 sqrt(n), n / 3). 1 for fewer than 8
/// samples, for those that do not vary, and where the estimate D of the long-run variance is not
/// positive.
pub fn length(x: &[f64]) -> Length {
    let n = x.len();
    let x = about_zero(x);
    let mut until = Vec::with_capacity(n + 1);
    let (mut power, mut most) = (0.0f64, 1.0f64);
    for v in &x {
        until.push(power);
        (power, most) = (power + v * v, most.max(v.abs()));
    }
    until.push(power);
    // A series that does not vary, but for rounding, has no correlation.
    if n < FEW || power <= 1e-24 * n as f64 * most * most {
        return ALONE;
    }
    let covariance = autocovariance(&x, lags(n));
    let correlated = |(i, c): (usize, &f64)| {
        let scale = (power - until[i + 1]) * until[n - i - 1];
        c * n as f64 / scale.max(1e-300).sqrt()
    };
    let correlation: Vec<f64> = covariance.iter().enumerate().map(correlated).collect();
    politis_white(&covariance, &correlation, n)
}

/// By the correlation within each task's own samples, in samples of the whole series.
pub fn within(x: &[f64], tasks: &Tasks) -> Length {
    let n = x.len() / tasks.count();
    if n < FEW {
        return ALONE;
    }
    let lags = lags(n);
    let (mut total, mut power) = (vec![0.0; lags + 1], 0.0);
    let sorted = tasks.sorted(x);
    let mut rest = sorted.as_slice();
    for count in &tasks.counts {
        let part;
        (part, rest) = rest.split_at(*count);
        if part.len() > lags + 1 {
            let part = about_zero(part);
            let found = autocovariance(&part, lags);
            total.iter_mut().zip(found).for_each(|(total, c)| *total += c * part.len() as f64);
            power += part.iter().map(|v| v * v).sum::<f64>();
        }
    }
    if power <= 0.0 {
        return ALONE;
    }
    total.iter_mut().for_each(|c| *c /= x.len() as f64);
    let correlation: Vec<f64> = total.iter().map(|c| c / total[0]).collect();
    let found = politis_white(&total, &correlation, n);
    Length { samples: found.samples * tasks.count() as f64, ..found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_lag_is_the_mean_of_its_products(
            x in proptest::collection::vec(-1e3..1e3, 1..60),
            lags in 0usize..40,
        ) {
            let n = x.len();
            let found = autocovariance(&x, lags);
            prop_assert_eq!(found.len(), lags + 1);
            for (lag, c) in found.into_iter().enumerate() {
                let plain: f64 = (lag..n).map(|i| x[i] * x[i - lag]).sum::<f64>() / n as f64;
                prop_assert!((c - plain).abs() <= 1e-9 * (1.0 + plain.abs()), "lag {}: {} for {}", lag, c, plain);
            }
        }
    }

    #[test]
    fn samples_that_do_not_vary_stand_alone() {
        assert_eq!(length(&[3.0; 100]), ALONE);
        assert_eq!(length(&[1.0, 2.0]), ALONE);
    }
}
