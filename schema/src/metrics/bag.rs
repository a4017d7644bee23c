//! Many samples, and their statistics after Kaplan and Meier.

use std::collections::BTreeMap;

/// Bits of a value that are kept once there are more samples than are held one by one: an error of
/// at most 2^-13.
const BITS: u32 = 12;

/// Quantiles that are given.
pub const QUANTILES: [f64; 4] = [0.5, 0.9, 0.95, 0.99];

/// Samples that are complete: values from 0 on, few of them below 0 or long.
#[derive(Clone, Debug, Default)]
pub struct Bag {
    /// Those that fit.
    small: Vec<u32>,
    /// The others.
    large: Vec<i64>,
    /// How many there are of each value, once they are no longer held one by one.
    rounded: BTreeMap<i64, u64>,
    /// Of the rounded ones: their exact sum, least and largest.
    of_rounded: Option<(i64, i64, i64)>,
}

impl Bag {
    /// Adds a sample.
    #[inline]
    pub fn push(&mut self, value: i64) {
        match u32::try_from(value) {
            Ok(value) => self.small.push(value),
            Err(_) => self.large.push(value),
        }
    }

    /// Samples that are held one by one.
    pub fn held(&self) -> usize {
        self.small.len() + self.large.len()
    }

    /// Keeps counts of rounded values in place of the samples.
    pub fn round(&mut self) {
        let small = std::mem::take(&mut self.small);
        let large = std::mem::take(&mut self.large);
        for value in small.into_iter().map(i64::from).chain(large) {
            *self.rounded.entry(rounded(value)).or_default() += 1;
            let (sum, least, most) = self.of_rounded.get_or_insert((0, value, value));
            (*sum, *least, *most) = (*sum + value, (*least).min(value), (*most).max(value));
        }
    }
}

/// The middle of the values that share the first [`BITS`] bits.
fn rounded(value: i64) -> i64 {
    let spare = (64 - value.unsigned_abs().leading_zeros()).saturating_sub(BITS);
    if spare == 0 {
        return value;
    }
    let low = value.unsigned_abs() >> spare << spare;
    (low + (1 << (spare - 1))) as i64 * value.signum()
}

/// The statistics of samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    /// Samples, censored ones included.
    pub n: u64,
    /// Censored ones.
    pub censored: u64,
    /// Sum of all samples as far as seen.
    pub sum: i64,
    /// Mean; the restricted one where samples are censored. None without samples.
    pub mean: Option<f64>,
    /// Is the mean a lower bound?
    pub bound: bool,
    /// Least sample.
    pub min: Option<i64>,
    /// [`QUANTILES`]; none where there is no sample beyond, or F does not reach it.
    pub quantiles: [Option<i64>; 4],
    /// Largest complete sample.
    pub max: Option<i64>,
    /// Were values rounded?
    pub rounded: bool,
}

/// A value, how many samples ended there, how many were censored there.
type Run = (i64, u64, u64);

/// The samples of several bags together, with those that are censored.
pub struct Union {
    small: Vec<u32>,
    /// Sorted by value: large, rounded and censored ones.
    runs: Vec<Run>,
    /// Least of all samples and largest of the complete ones, exactly, where some are rounded.
    ends: Option<(i64, i64)>,
    sum: i64,
}

impl Union {
    /// Of these.
    pub fn new<'a>(bags: impl Iterator<Item = &'a Bag>, censored: &[i64]) -> Self {
        let (mut small, mut runs, mut ends) = (Vec::new(), Vec::<Run>::new(), None);
        let (mut sum, mut least, mut most) = (0, i64::MAX, i64::MIN);
        for bag in bags {
            small.extend_from_slice(&bag.small);
            runs.extend(bag.large.iter().map(|&value| (value, 1, 0)));
            runs.extend(bag.rounded.iter().map(|(&value, &count)| (value, count, 0)));
            sum += bag.large.iter().sum::<i64>();
            for &value in &bag.large {
                (least, most) = (least.min(value), most.max(value));
            }
            if let Some((total, low, high)) = bag.of_rounded {
                sum += total;
                (least, most) = (least.min(low), most.max(high));
                ends = Some(());
            }
        }
        sum += small.iter().map(|&v| i64::from(v)).sum::<i64>() + censored.iter().sum::<i64>();
        runs.extend(censored.iter().map(|&value| (value, 0, 1)));
        runs.sort_unstable();
        small.sort_unstable();
        let (first, last) = (small.first().copied().map(i64::from), small.last().copied().map(i64::from));
        let least = [first, censored.iter().min().copied()].into_iter().flatten().fold(least, i64::min);
        let ends = ends.map(|()| (least, last.map_or(most, |v| v.max(most))));
        Union { small, runs, ends, sum }
    }

    /// Calls `each` with the distinct values in ascending order.
    fn each(&self, mut each: impl FnMut(Run)) {
        let (mut i, mut j) = (0, 0);
        while i < self.small.len() || j < self.runs.len() {
            let next = self.small.get(i).map(|&v| i64::from(v));
            let value = next.into_iter().chain(self.runs.get(j).map(|r| r.0)).min().unwrap_or(0);
            let mut run = (value, 0, 0);
            while self.small.get(i).is_some_and(|&v| i64::from(v) == value) {
                (run.1, i) = (run.1 + 1, i + 1);
            }
            while let Some(r) = self.runs.get(j).filter(|r| r.0 == value) {
                (run.1, run.2, j) = (run.1 + r.1, run.2 + r.2, j + 1);
            }
            each(run);
        }
    }

    /// Their statistics.
    pub fn statistics(&self) -> Statistics {
        let ended: u64 = self.small.len() as u64 + self.runs.iter().map(|r| r.1).sum::<u64>();
        let censored: u64 = self.runs.iter().map(|r| r.2).sum();
        let n = ended + censored;
        let enough = |q: f64| n as f64 * (1.0 - q) >= 1.0 - 1e-9;
        let (mut left, mut seen, mut gone, mut restricted, mut before) = (1.0f64, 0u64, 0u64, 0.0f64, 0i64);
        let mut quantiles = [None; 4];
        let (mut min, mut max) = (None, None);
        self.each(|(value, events, cut)| {
            restricted += (value - before) as f64 * left;
            let at_risk = n - gone;
            seen += events;
            left = if censored == 0 {
                1.0 - seen as f64 / n as f64
            } else {
                left * ((at_risk - events) as f64 / at_risk as f64)
            };
            for (found, q) in quantiles.iter_mut().zip(QUANTILES) {
                if found.is_none() && enough(q) && 1.0 - left >= q - 1e-9 {
                    *found = Some(value);
                }
            }
            min = min.or(Some(value));
            if events > 0 {
                max = Some(value);
            }
            (gone, before) = (gone + events + cut, value);
        });
        if let Some((least, most)) = self.ends {
            (min, max) = (Some(least), Some(most));
        }
        let mean = (n > 0).then(|| if censored == 0 { self.sum as f64 / n as f64 } else { restricted });
        let bound = 1.0 - left < 1.0 - 1e-9 && n > 0;
        let rounded = self.ends.is_some();
        Statistics { n, censored, sum: self.sum, mean, bound, min, quantiles, max, rounded }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rounding_moves_a_value_by_less_than_its_share(value in -1i64 << 50..1 << 50) {
            let off = (rounded(value) - value).abs() as f64;
            prop_assert!(off <= value.abs() as f64 / 4096.0);
        }

        #[test]
        fn statistics_of_rounded_samples_are_near(
            values in prop::collection::vec(0i64..1 << 40, 1..200),
            later in prop::collection::vec(0i64..1 << 40, 0..20),
        ) {
            let mut bag = Bag::default();
            values.iter().chain(&later).for_each(|&v| bag.push(v));
            let exact = Union::new([&bag].into_iter(), &[]).statistics();
            let mut bag = Bag::default();
            values.iter().for_each(|&v| bag.push(v));
            bag.round();
            later.iter().for_each(|&v| bag.push(v));
            let near = Union::new([&bag].into_iter(), &[]).statistics();
            prop_assert_eq!((near.n, near.sum, near.min, near.max), (exact.n, exact.sum, exact.min, exact.max));
            prop_assert!(near.rounded && !exact.rounded);
            for (a, b) in near.quantiles.iter().zip(exact.quantiles) {
                let off = (a.unwrap_or(0) - b.unwrap_or(0)).abs() as f64;
                prop_assert!(off <= b.unwrap_or(0) as f64 / 4096.0);
            }
        }
    }
}
