//! Quantiles and tails of distributions. scipy has them, but takes longer to load than most commands run.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use statrs::function::{beta, gamma};

fn checked(right: bool, what: &str) -> PyResult<()> {
    right.then_some(()).ok_or_else(|| PyValueError::new_err(what.to_owned()))
}

const SHARE: &str = "a probability between 0 and 1 was expected";
const FREEDOM: &str = "degrees of freedom above 0 were expected";

fn between(p: f64) -> PyResult<()> {
    checked(0.0 < p && p < 1.0, SHARE)
}

fn positive(df: f64) -> PyResult<()> {
    checked(df > 0.0 && df.is_finite(), FREEDOM)
}

/// y / (1 - y), y the quantile `p` of the beta distribution: by the smaller one of y and 1 - y.
fn odds(a: f64, b: f64, p: f64) -> f64 {
    let y = beta::inv_beta_reg(a, b, p);
    if y < 0.5 {
        return y / (1.0 - y);
    }
    let rest = beta::inv_beta_reg(b, a, 1.0 - p);
    (1.0 - rest) / rest
}

/// Quantile `p` of the F distribution with `a` and `b` degrees of freedom.
#[pyfunction]
pub fn f_quantile(a: f64, b: f64, p: f64) -> PyResult<f64> {
    between(p).and(positive(a)).and(positive(b))?;
    Ok(b / a * odds(a / 2.0, b / 2.0, p))
}

/// What lies between minus it and it with probability `p`: the two-sided quantile of Student's t.
#[pyfunction]
pub fn t_quantile(df: f64, p: f64) -> PyResult<f64> {
    between(p).and(positive(df))?;
    Ok((df * odds(0.5, df / 2.0, p)).sqrt())
}

/// Probability that Student's t is further from 0 than `t`.
#[pyfunction]
pub fn t_tails(df: f64, t: f64) -> PyResult<f64> {
    positive(df).and(checked(!t.is_nan(), "a number was expected"))?;
    Ok(if t.is_infinite() { 0.0 } else { beta::beta_reg(df / 2.0, 0.5, df / (df + t * t)) })
}

/// Probability that chi squared is above `x`.
#[pyfunction]
pub fn chi_square_tail(df: f64, x: f64) -> PyResult<f64> {
    positive(df).and(checked(x >= 0.0 && x.is_finite(), "a sum of squares was expected"))?;
    Ok(if x / 2.0 == 0.0 { 1.0 } else { gamma::gamma_ur(df / 2.0, x / 2.0) })
}
