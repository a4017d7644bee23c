//! The distribution function of samples of which some last longer than seen, after Kaplan and
//! Meier, and what each sample contributes to its error.
//!
//! E. L. Kaplan and P. Meier, Nonparametric estimation from incomplete observations, JASA 53 (1958)
//! 457-481.

use crate::mean;

/// Samples in time order.
#[derive(Clone, Copy, Debug)]
pub struct Samples<'a> {
    /// Finite numbers.
    pub values: &'a [f64],
    /// Which of them last longer than seen; empty where none does.
    pub censored: &'a [bool],
}

/// A distribution function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Distinct values, ascending.
    pub at: Vec<f64>,
    /// F at these.
    pub cdf: Vec<f64>,
    /// Samples that ended at each.
    pub events: Vec<u32>,
    /// Samples that had lasted at least so long.
    pub at_risk: Vec<u32>,
    /// Place of each sample in `at`; only where some are censored.
    places: Vec<u32>,
}

impl Samples<'_> {
    fn any_censored(&self) -> bool {
        self.censored.contains(&true)
    }

    fn is_censored(&self, sample: usize) -> bool {
        self.censored.get(sample).is_some_and(|c| *c)
    }

    /// Their distribution function, that of `scipy.stats.ecdf`.
    pub fn curve(&self) -> Curve {
        let n = self.values.len();
        let mut curve = Curve::default();
        if !self.any_censored() {
            let mut sorted = self.values.to_vec();
            sorted.sort_unstable_by(f64::total_cmp);
            let mut seen = 0;
            for run in sorted.chunk_by(|a, b| a == b) {
                curve.at_risk.push((n - seen) as u32);
                seen += run.len();
                curve.at.push(run[0]);
                curve.events.push(run.len() as u32);
                curve.cdf.push(seen as f64 / n as f64);
            }
            return curve;
        }
        let mut order: Vec<u32> = (0..n as u32).collect();
        let value = |sample: &u32| self.values[*sample as usize];
        order.sort_unstable_by(|a, b| value(a).total_cmp(&value(b)));
        curve.places = vec![0; n];
        let (mut gone, mut left) = (0, 1.0);
        for run in order.chunk_by(|a, b| value(a) == value(b)) {
            run.iter().for_each(|sample| curve.places[*sample as usize] = curve.at.len() as u32);
            let events = run.iter().filter(|sample| !self.is_censored(**sample as usize)).count();
            let at_risk = n - gone;
            left *= (at_risk - events) as f64 / at_risk as f64;
            curve.at.push(value(&run[0]));
            curve.events.push(events as u32);
            curve.at_risk.push(at_risk as u32);
            curve.cdf.push(1.0 - left);
            gone += run.len();
        }
        curve
    }

    /// Their mean: the restricted one where some are censored.
    pub fn mean(&self, curve: &Curve) -> f64 {
        if self.any_censored() {
            curve.restricted_mean()
        } else {
            mean(self.values)
        }
    }

    /// Influence on the mean: (x - mean) / n; with censored samples the integral of that of F from
    /// 0 to the largest sample.
    pub fn of_mean(&self, curve: &Curve) -> Vec<f64> {
        if !self.any_censored() {
            let (n, mean) = (self.values.len() as f64, mean(self.values));
            return self.values.iter().map(|x| (x - mean) / n).collect();
        }
        let mut after = vec![0.0; curve.at.len()];
        let mut area = 0.0;
        for i in (0..curve.at.len()).rev() {
            area += (1.0 - curve.cdf[i]) * curve.at.get(i + 1).map_or(0.0, |next| next - curve.at[i]);
            after[i] = area;
        }
        self.martingale(curve, &after, -1.0)
    }

    /// Influence on F just below `at`, or at it: (I(x <= at) - F) / n; with censored samples (1 -
    /// F) times the sum of dM / Y up to `at`, which gives Greenwood's variance when samples are
    /// independent.
    pub fn of_cdf(&self, curve: &Curve, at: f64, below: bool) -> Vec<f64> {
        let inside = |x: &f64| if below { *x < at } else { *x <= at };
        if !self.any_censored() {
            let n = self.values.len() as f64;
            let share = self.values.iter().filter(|x| inside(x)).count() as f64 / n;
            return self.values.iter().map(|x| (f64::from(u8::from(inside(x))) - share) / n).collect();
        }
        let until = curve.at.partition_point(inside);
        let share = if until > 0 { curve.cdf[until - 1] } else { 0.0 };
        let weight: Vec<f64> = (0..curve.at.len()).map(|i| f64::from(u8::from(i < until))).collect();
        self.martingale(curve, &weight, 1.0 - share)
    }

    /// For each sample the integral of weight / Y over its counting process less its compensator,
    /// times a factor.
    fn martingale(&self, curve: &Curve, weight: &[f64], factor: f64) -> Vec<f64> {
        let mut hazard = Vec::with_capacity(weight.len());
        let mut sum = 0.0;
        for ((weight, events), risk) in weight.iter().zip(&curve.events).zip(&curve.at_risk) {
            sum += weight * f64::from(*events) / f64::from(*risk).powi(2);
            hazard.push(sum);
        }
        let of = |(sample, place): (usize, &u32)| {
            let place = *place as usize;
            let jump = if self.is_censored(sample) { 0.0 } else { weight[place] / f64::from(curve.at_risk[place]) };
            factor * (jump - hazard[place])
        };
        curve.places.iter().enumerate().map(of).collect()
    }
}

impl Curve {
    /// The smallest value with F(value) >= q; none where F does not reach q.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        self.at.get(self.cdf.partition_point(|f| *f < q - 1e-9)).copied()
    }

    /// The integral of 1 - F up to the largest value.
    pub fn restricted_mean(&self) -> f64 {
        let (mut sum, mut from, mut left) = (0.0, 0.0, 1.0);
        for (at, cdf) in self.at.iter().zip(&self.cdf) {
            sum += (at - from) * left;
            (from, left) = (*at, 1.0 - cdf);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_censored_sample_counts_as_at_risk_until_it_is_cut() {
        let samples = Samples { values: &[3.0, 1.0, 2.0, 2.0], censored: &[false, false, true, false] };
        let curve = samples.curve();
        assert_eq!(curve.at, [1.0, 2.0, 3.0]);
        assert_eq!((curve.events.as_slice(), curve.at_risk.as_slice()), ([1, 1, 1].as_slice(), [4, 3, 1].as_slice()));
        assert_eq!(curve.cdf, [0.25, 0.5, 1.0]);
        assert_eq!((curve.quantile(0.5), curve.quantile(0.51)), (Some(2.0), Some(3.0)));
        assert_eq!(samples.mean(&curve), 1.0 + 0.75 + 0.5);
    }

    #[test]
    fn influence_values_add_up_to_nothing_and_to_greenwoods_variance() {
        // Exponential ends, cut by other exponentials, from a linear congruential generator.
        let mut state = 7u64;
        let mut uniform = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        };
        let drawn: Vec<(f64, f64)> = (0..4000).map(|_| (-uniform().ln(), -2.0 * uniform().ln())).collect();
        let values: Vec<f64> = drawn.iter().map(|(end, cut)| end.min(*cut)).collect();
        let censored: Vec<bool> = drawn.iter().map(|(end, cut)| cut < end).collect();
        let samples = Samples { values: &values, censored: &censored };
        let curve = samples.curve();
        let at = curve.quantile(0.5).unwrap_or(f64::NAN);
        let influence = samples.of_cdf(&curve, at, false);
        assert!(influence.iter().sum::<f64>().abs() < 0.01);
        let until = curve.at.partition_point(|x| *x <= at);
        let of = |i: usize| {
            let (events, risk) = (f64::from(curve.events[i]), f64::from(curve.at_risk[i]));
            events / (risk * (risk - events))
        };
        let greenwood = (1.0 - curve.cdf[until - 1]) * (0..until).map(of).sum::<f64>().sqrt();
        let error = influence.iter().map(|v| v * v).sum::<f64>().sqrt();
        assert!((error / greenwood - 1.0).abs() < 0.01, "{error} for {greenwood}");
        // The restricted mean of an exponential is 1.
        assert!((samples.mean(&curve) - 1.0).abs() < 0.06);
        assert!(samples.of_mean(&curve).iter().sum::<f64>().abs() < 0.01);
    }
}
