//! How far two distribution functions are apart: the distance of Kolmogorov and Smirnov.

use std::cmp::Ordering;

/// D = max over t of |F_a(t) - F_b(t)| that is left after either sample was moved by up to
/// `resolution`; none where a sample is empty. The samples come in any order.
pub fn ks(mut a: Vec<f64>, mut b: Vec<f64>, resolution: f64) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    a.sort_by(order);
    b.sort_by(order);
    Some(above(&a, &b, resolution).max(above(&b, &a, resolution)).max(0.0))
}

/// By value; what is no number comes last.
fn order(a: &f64, b: &f64) -> Ordering {
    a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// How far the distribution function of `x`, moved to the right, rises above that of `y`, both sorted. It can
/// only reach its most where it rises: at the values of `x`.
fn above(x: &[f64], y: &[f64], moved: f64) -> f64 {
    let share = |n: usize, of: &[f64]| n as f64 / of.len() as f64;
    let (mut most, mut below) = (f64::NEG_INFINITY, 0);
    for (i, at) in x.iter().map(|value| value + moved).enumerate() {
        // Of equal values the last one counts.
        if x.get(i + 1).is_some_and(|next| order(&(next + moved), &at).is_eq()) {
            continue;
        }
        while y.get(below).is_some_and(|value| order(value, &at).is_le()) {
            below += 1;
        }
        most = most.max(share(i + 1, x) - share(below, y));
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_gap_counts_and_equal_values_rise_at_once() {
        // At 1 the curves are at 2/4 and 1/2, at 2 at 3/4 and 1/2, at 3 at 3/4 and 1, at 4 both at 1.
        let (a, b) = (vec![2.0, 1.0, 4.0, 1.0], vec![3.0, 1.0]);
        assert_eq!((ks(a.clone(), b.clone(), 0.0), ks(b, a, 0.0)), (Some(0.25), Some(0.25)));
        assert_eq!(ks(vec![1.0, 2.0], vec![5.0], 0.0), Some(1.0));
        assert_eq!(ks(vec![7.0; 3], vec![7.0; 5], 0.0), Some(0.0));
    }

    #[test]
    fn what_a_resolution_explains_is_no_distance() {
        let (a, b) = (vec![0.0, 1000.0, 2000.0], vec![100.0, 1100.0, 2100.0]);
        let at = |resolution| ks(a.clone(), b.clone(), resolution).unwrap_or(f64::NAN);
        assert!((at(99.0) - 1.0 / 3.0).abs() < 1e-15 && at(100.0) == 0.0, "{} {}", at(99.0), at(100.0));
    }

    #[test]
    fn an_empty_sample_has_no_distance() {
        assert_eq!((ks(Vec::new(), vec![1.0], 0.0), ks(vec![1.0], Vec::new(), 0.0)), (None, None));
    }

    #[test]
    fn what_is_no_number_is_above_all_numbers() {
        let (a, b) = (vec![f64::NAN, 1.0], vec![1.0, 2.0]);
        assert_eq!((ks(a.clone(), b, 0.0), ks(a.clone(), a, 0.0)), (Some(0.5), Some(0.0)));
    }
}
