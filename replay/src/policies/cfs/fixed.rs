//! The kernel's fixed-point arithmetic with weights, bit for bit.

use crate::policies::weights::{self, scale, INVERSE};
use crate::task::{Attrs, SchedPolicy};

/// Weight of nice 0.
pub const NICE_0: u64 = weights::NICE_0 as u64;

/// A weight and its inverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    /// The weight.
    pub w: u64,
    /// 2^32 / w.
    pub inv: u64,
}

impl Default for Weight {
    fn default() -> Self {
        Weight { w: NICE_0, inv: 4_194_304 }
    }
}

impl Weight {
    /// Of a group's share.
    pub fn of_share(w: u64) -> Self {
        Weight { w, inv: u64::from(u32::MAX) / w.max(1) }
    }

    /// Of a task.
    pub fn of(attrs: &Attrs) -> Self {
        if attrs.policy == SchedPolicy::Idle {
            return Weight { w: weights::of(attrs) as u64, inv: 1_431_655_765 };
        }
        let i = (attrs.nice.clamp(-20, 19) + 20) as usize;
        Weight { w: weights::of(attrs) as u64, inv: u64::from(INVERSE[i]) }
    }
}

/// `delta` in virtual time of a task: `delta * 1024 / w`, as Linux 6 computes it (multiply and
/// shift, truncated).
#[inline]
pub fn fair(delta: i64, w: Weight) -> i64 {
    if w.w == NICE_0 {
        return delta;
    }
    scale(delta, NICE_0 * w.inv)
}

/// `delta * w / total`, as Linux 6 computes it.
#[inline]
pub fn share(delta: i64, w: u64, total: u64) -> i64 {
    if total == 0 {
        return delta;
    }
    scale(delta, w * (u64::from(u32::MAX) / total).max(1))
}

/// The same for 2.6.29 and 2.6.32: rounded, with the inverse of a total computed differently.
pub mod old {
    use super::{Weight, NICE_0};

    /// `delta * 1024 / w`.
    #[inline]
    pub fn fair(delta: i64, w: Weight) -> i64 {
        if w.w == NICE_0 {
            return delta;
        }
        multiply(delta, NICE_0, w.inv)
    }

    /// `delta * w / total`.
    #[inline]
    pub fn share(delta: i64, w: u64, total: u64) -> i64 {
        let inv = 1 + (u64::from(u32::MAX) - total / 2) / (total + 1);
        multiply(delta, w, inv)
    }

    fn multiply(delta: i64, w: u64, inv: u64) -> i64 {
        let round = |x: u128, shift: u32| (x + (1 << (shift - 1))) >> shift;
        let tmp = (delta.max(0) as u128) * u128::from(w);
        let result = if tmp > u128::from(u32::MAX) {
            round(round(tmp, 16) * u128::from(inv), 16)
        } else {
            round(tmp * u128::from(inv), 32)
        };
        result as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_point_stays_close_to_division() {
        for nice in -20..20 {
            let w = Weight::of(&Attrs { nice, ..Attrs::default() });
            for delta in [1_000i64, 777_777, 4_000_000, 123_456_789] {
                let exact = delta as f64 * 1024.0 / w.w as f64;
                for got in [fair(delta, w), old::fair(delta, w)] {
                    assert!(
                        (got as f64 - exact).abs() <= 2.0 + exact * 1e-4,
                        "nice {nice} delta {delta}: {got} {exact}"
                    );
                }
                let total = 3 * w.w + 1024;
                let exact = delta as f64 * w.w as f64 / total as f64;
                for got in [share(delta, w.w, total), old::share(delta, w.w, total)] {
                    assert!(
                        (got as f64 - exact).abs() <= 2.0 + exact * 1e-3,
                        "nice {nice} delta {delta}: {got} {exact}"
                    );
                }
            }
        }
    }
}
