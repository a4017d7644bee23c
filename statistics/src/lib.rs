//! How far a statistic of samples that depend on one another can be trusted.
//!
//! [`error`] gives the standard error of a sum of influence values, by whole tasks or by blocks
//! whose length follows from the autocorrelation ([`blocks`]); [`curve`] the distribution function
//! of samples of which some last longer than seen, and what each sample contributes to it;
//! [`interval`] puts both together. [`distributions`] has the quantiles and tails that go with
//! them. [`distance`] says how far two samples are apart.
//!
//! [`sharing`] says how far what tasks got differs from fair sharing, and [`partition`] under which
//! groups it does least. [`agreement`] says for how long two runs have the same on each CPU, [`side`] what
//! else a replay is judged by.

pub mod agreement;
pub mod blocks;
pub mod curve;
pub mod distance;
pub mod distributions;
pub mod error;
pub mod interval;
pub mod partition;
pub mod sampling;
pub mod sharing;
pub mod side;
pub mod tasks;

/// Mean of numbers; 0 where there are none.
fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len().max(1) as f64
}
