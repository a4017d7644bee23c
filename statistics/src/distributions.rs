//! Quantiles and tails of distributions.

use statrs::function::{beta, gamma};

/// What is wrong with an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexpected(pub &'static str);

type Of = Result<f64, Unexpected>;

fn checked(right: bool, what: &'static str) -> Result<(), Unexpected> {
    right.then_some(()).ok_or(Unexpected(what))
}

fn between(p: f64) -> Result<(), Unexpected> {
    checked(0.0 < p && p < 1.0, "a probability between 0 and 1 was expected")
}

fn positive(df: f64) -> Result<(), Unexpected> {
    checked(df > 0.0 && df.is_finite(), "degrees of freedom above 0 were expected")
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
pub fn f_quantile(a: f64, b: f64, p: f64) -> Of {
    between(p).and(positive(a)).and(positive(b))?;
    Ok(b / a * odds(a / 2.0, b / 2.0, p))
}

/// What lies between minus it and it with probability `p`: the two-sided quantile of Student's t.
pub fn t_quantile(df: f64, p: f64) -> Of {
    between(p).and(positive(df))?;
    Ok((df * odds(0.5, df / 2.0, p)).sqrt())
}

/// Probability that Student's t is further from 0 than `t`.
pub fn t_tails(df: f64, t: f64) -> Of {
    positive(df).and(checked(!t.is_nan(), "a number was expected"))?;
    Ok(if t.is_infinite() { 0.0 } else { beta::beta_reg(df / 2.0, 0.5, df / (df + t * t)) })
}

/// Probability that chi squared is above `x`.
pub fn chi_square_tail(df: f64, x: f64) -> Of {
    positive(df).and(checked(x >= 0.0 && x.is_finite(), "a sum of squares was expected"))?;
    Ok(if x / 2.0 == 0.0 { 1.0 } else { gamma::gamma_ur(df / 2.0, x / 2.0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_f() {
        // From a table; with one degree of freedom above, F is the square of t.
        assert!(f_quantile(4.0, 10.0, 0.99).is_ok_and(|f| (f - 5.9943).abs() < 1e-3));
        assert!(f_quantile(4.0, 49.0, 0.99).is_ok_and(|f| (f - 3.7280).abs() < 2e-2));
        for df in [1.0, 3.0, 49.0] {
            for p in [0.01, 0.5, 0.9, 0.999] {
                let (f, t) = (f_quantile(1.0, df, p), t_quantile(df, p));
                assert!(f.is_ok_and(|f| t.is_ok_and(|t| (f / (t * t) - 1.0).abs() < 1e-6)), "{df} {p}");
            }
        }
        assert!(f_quantile(0.0, 1.0, 0.5).is_err());
        assert!(f_quantile(1.0, 1.0, 1.0).is_err());
    }
}
