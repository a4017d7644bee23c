//! Times that are drawn from a distribution, the same for the same seed.

use crate::draws::Draws;
use crate::task::Ns;

/// A distribution of times, its parameters in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Distribution {
    Exponential { mean: f64 },
    Uniform { low: f64, high: f64 },
    Normal { mean: f64, deviation: f64 },
    LogNormal { mean: f64, deviation: f64 },
}

impl Distribution {
    /// Reads `exp(5)`, `uniform(1,3)`, `normal(5,1)`, `lognormal(5,2)`; `time` reads a time.
    pub(super) fn parse(text: &str, time: impl Fn(&str) -> Result<Ns, String>) -> Result<Self, String> {
        let bad =
            || format!("`~{text}`: expected ~exp(MEAN), ~uniform(LOW,HIGH), ~normal(MEAN,SD) or ~lognormal(MEAN,SD)");
        let (name, list) = text.strip_suffix(')').and_then(|t| t.split_once('(')).ok_or_else(bad)?;
        let given = list.split(',').map(|p| time(p.trim()).map(|ns| ns as f64)).collect::<Result<Vec<_>, _>>()?;
        Ok(match (name, given.as_slice()) {
            ("exp", &[mean]) => Distribution::Exponential { mean },
            ("uniform", &[low, high]) if low <= high => Distribution::Uniform { low, high },
            ("normal", &[mean, deviation]) => Distribution::Normal { mean, deviation },
            ("lognormal", &[mean, deviation]) if mean > 0.0 => Distribution::LogNormal { mean, deviation },
            _ => return Err(bad()),
        })
    }

    /// One time, at least 1 ns.
    pub(super) fn draw(self, draws: &mut Draws) -> Ns {
        let ns = match self {
            Distribution::Exponential { mean } => -mean * draws.unit().ln(),
            Distribution::Uniform { low, high } => low + (high - low) * draws.unit(),
            Distribution::Normal { mean, deviation } => mean + deviation * draws.normal(),
            Distribution::LogNormal { mean, deviation } => {
                let variance = (1.0 + (deviation / mean).powi(2)).ln();
                (mean.ln() - variance / 2.0 + variance.sqrt() * draws.normal()).exp()
            }
        };
        (ns.round() as Ns).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_deviations_are_those_asked_for() {
        let n = 200_000;
        for (d, mean, deviation) in [
            (Distribution::Exponential { mean: 5e6 }, 5e6, 5e6),
            (Distribution::Uniform { low: 1e6, high: 3e6 }, 2e6, 2e6 / 12f64.sqrt()),
            (Distribution::Normal { mean: 9e6, deviation: 1e6 }, 9e6, 1e6),
            (Distribution::LogNormal { mean: 5e6, deviation: 2e6 }, 5e6, 2e6),
        ] {
            let mut draws = Draws::new(7);
            let all: Vec<f64> = (0..n).map(|_| d.draw(&mut draws) as f64).collect();
            let m = all.iter().sum::<f64>() / f64::from(n);
            let s = (all.iter().map(|x| (x - m).powi(2)).sum::<f64>() / f64::from(n)).sqrt();
            // Five standard errors of a mean of 200,000; deviations have heavier tails.
            assert!((m - mean).abs() < 5.0 * deviation / f64::from(n).sqrt(), "{d:?}: mean {m}");
            assert!((s / deviation - 1.0).abs() < 0.03, "{d:?}: deviation {s}");
        }
    }
}
