//! Load weights of Linux's fair class, and arithmetic with them. Shared by `cfs`, `eevdf` and
//! others that use nice weights.

use crate::task::{Attrs, Ns, SchedPolicy};

/// Weight of nice 0.
pub const NICE_0: i64 = 1024;
/// Weight of SCHED_IDLE tasks.
pub const IDLE: i64 = 3;

/// Weights of nice -20 to 19: each step is about a quarter (Linux `sched_prio_to_weight`).
pub const BY_NICE: [i64; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904, 3906, 3121, 2501,
    1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
];

/// 2^32 divided by the weights, as Linux rounds it (`sched_prio_to_wmult`).
pub const INVERSE: [u32; 40] = [
    48388, 59856, 76040, 92818, 118348, 147320, 184698, 229616, 287308, 360437, 449829, 563644, 704093, 875809,
    1099582, 1376151, 1717300, 2157191, 2708050, 3363326, 4194304, 5237765, 6557202, 8165337, 10153587, 12820798,
    15790321, 19976592, 24970740, 31350126, 39045157, 49367440, 61356676, 76695844, 95443717, 119304647, 148102320,
    186737708, 238609294, 286331153,
];

/// 2^32 divided by `weight`: that of the table for a nice value's weight, else rounded down as
/// Linux computes it.
pub fn inverse(weight: i64) -> u64 {
    match BY_NICE.iter().position(|&w| w == weight) {
        Some(i) => u64::from(INVERSE[i]),
        None => (u64::from(u32::MAX) / weight.max(1) as u64).max(1),
    }
}

/// `delta * factor >> 32`, with the factor cut to 32 bits first (`__calc_delta` of Linux 6).
#[inline]
pub fn scale(delta: Ns, factor: u64) -> Ns {
    let cut = 32u32.saturating_sub(factor.leading_zeros());
    let product = i128::from(delta) * i128::from(factor >> cut);
    (product >> (32 - cut)) as Ns
}

/// Weight of a task with these attributes.
pub fn of(attrs: &Attrs) -> i64 {
    match attrs.policy {
        SchedPolicy::Idle => IDLE,
        _ => BY_NICE[(attrs.nice.clamp(-20, 19) + 20) as usize],
    }
}

/// `delta` of CPU time as virtual time of a task of weight `weight`.
#[inline]
pub fn fair(delta: Ns, weight: i64) -> Ns {
    if weight == NICE_0 {
        return delta;
    }
    match delta.checked_mul(NICE_0) {
        Some(product) => product / weight,
        None => (i128::from(delta) * i128::from(NICE_0) / i128::from(weight)) as Ns,
    }
}

/// Factor by which Linux scales slices and granularities with the number of CPUs: 1 + log2 of at
/// most 8 of them.
pub fn cpu_factor(cpus: usize) -> i64 {
    1 + i64::from(cpus.clamp(1, 8).ilog2())
}
