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

/// The sums of products of a series with itself, `first` samples later and those that follow.
///
/// Few lags are looked at: products cost less than a transformation.
fn products(x: &[f64], first: usize) -> [f64; SIDE] {
    let n = x.len();
    let mut sums = [0.0; SIDE];
    for (value, window) in x.iter().zip(x.get(first..).unwrap_or_default().windows(SIDE)) {
        sums.iter_mut().zip(window).for_each(|(sum, other)| *sum += value * other);
    }
    // Where fewer than all of these lags have a sample.
    for from in (n + 1).saturating_sub(first + SIDE)..n.saturating_sub(first) {
        sums.iter_mut().zip(&x[first + from..]).for_each(|(sum, other)| *sum += x[from] * other);
    }
    sums
}

/// Lags that are looked at at most.
fn lags(n: usize) -> usize {
    ((n as f64).sqrt().ceil() as usize + window(n)).min(n - 2)
}

/// Correlations that have to be small one after the other.
fn window(n: usize) -> usize {
    5.max((n as f64).log10() as usize)
}

/// The length for a series of `n` samples. `sums` gives sums of products from a lag on, `covariance` and
/// `correlation` what they come to at a lag. No more lags are asked for than up to the decay.
fn politis_white(
    n: usize,
    sums: impl Fn(usize) -> [f64; SIDE],
    covariance: impl Fn(f64) -> f64,
    correlation: impl Fn(usize, f64) -> f64,
) -> Length {
    let (long, most) = (n as f64, lags(n));
    let critical = 2.0 * (long.log10() / long).sqrt();
    let (mut covariances, mut small) = (Vec::new(), 0);
    let mut first = None;
    let bandwidth = loop {
        let bandwidth = first.map_or(most, |first: usize| (2 * first.max(1)).min(most));
        if covariances.len() > bandwidth {
            break bandwidth;
        }
        for sum in sums(covariances.len()) {
            let lag = covariances.len();
            let value = covariance(sum);
            covariances.push(value);
            small = if correlation(lag, value).abs() < critical { small + 1 } else { 0 };
            if first.is_none() && small == window(n) && lag < most {
                first = Some(lag + 1 - window(n));
            }
        }
    };
    let taper = |k: usize| if 2 * k <= bandwidth { 1.0 } else { 2.0 * (1.0 - k as f64 / bandwidth as f64) };
    let tapered = || (1..=bandwidth).map(|k| (k as f64, taper(k) * covariances[k]));
    let g = 2.0 * tapered().map(|(k, c)| k * c).sum::<f64>();
    let variance = covariances[0] + 2.0 * tapered().map(|(_, c)| c).sum::<f64>();
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
    let correlation = |lag: usize, c: f64| {
        // The power of what the lag leaves of the series at either end.
        let scale = match (until.get(lag + 1), until.get(n.wrapping_sub(lag + 1))) {
            (Some(before), Some(left)) => (power - before) * left,
            _ => 0.0,
        };
        c * n as f64 / scale.max(1e-300).sqrt()
    };
    politis_white(n, |lag| products(&x, lag), |sum| sum / n as f64, correlation)
}

/// By the correlation within each task's own samples, in samples of the whole series.
pub fn within(x: &[f64], tasks: &Tasks) -> Length {
    let n = x.len() / tasks.count();
    if n < FEW {
        return ALONE;
    }
    let mut sorted = tasks.sorted(x);
    let (mut parts, mut rest, mut power) = (Vec::new(), sorted.as_mut_slice(), 0.0);
    for count in &tasks.counts {
        let part;
        (part, rest) = rest.split_at_mut(*count);
        if part.len() > lags(n) + 1 {
            let mean = mean(part);
            part.iter_mut().for_each(|v| *v -= mean);
            power += part.iter().map(|v| v * v).sum::<f64>();
            parts.push(&*part);
        }
    }
    if power <= 0.0 {
        return ALONE;
    }
    let sums = |lag: usize| {
        let mut all = [0.0; SIDE];
        parts.iter().for_each(|part| all.iter_mut().zip(products(part, lag)).for_each(|(sum, own)| *sum += own));
        all
    };
    let whole = sums(0)[0] / x.len() as f64;
    let found = politis_white(n, sums, |sum| sum / x.len() as f64, |_, c| c / whole);
    Length { samples: found.samples * tasks.count() as f64, ..found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_lag_is_the_sum_of_its_products(x in proptest::collection::vec(-1e3..1e3, 1..60), first in 0usize..60) {
            for (lag, sum) in (first..).zip(products(&x, first)) {
                let plain: f64 = (lag..x.len()).map(|i| x[i] * x[i - lag]).sum();
                prop_assert!((sum - plain).abs() <= 1e-6, "lag {}: {} for {}", lag, sum, plain);
            }
        }
    }

    #[test]
    fn samples_that_do_not_vary_stand_alone() {
        assert_eq!(length(&[3.0; 100]), ALONE);
        assert_eq!(length(&[1.0, 2.0]), ALONE);
    }
}
