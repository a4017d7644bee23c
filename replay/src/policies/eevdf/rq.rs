//! One queue of entities: tasks, and groups' shares of the CPU.

use super::tree::Tree;
use super::{Entity, Features, Version};
use crate::task::{Ns, TaskId};

/// The lag that is `lag` once the entity of `weight`, which it moves the mean with, is on a queue of `load`.
#[inline]
pub(super) fn grown(lag: Ns, load: i64, weight: i64) -> Ns {
    match lag.checked_mul(load + weight) {
        Some(product) => product / load,
        None => (i128::from(lag) * i128::from(load + weight) / i128::from(load)) as Ns,
    }
}

/// The queue of a CPU, or of a group on a CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct Rq {
    pub tree: Tree,
    pub curr: Option<TaskId>,
    /// Up to when what runs is charged.
    pub exec_start: Ns,
    pub next: Option<TaskId>,
    pub sum_w: i64,
    pub sum_wv: i128,
    pub min_v: Ns,
    pub nr: usize,
    /// The group's share of the CPU that it belongs to.
    pub owner: Option<TaskId>,
}

impl Rq {
    /// The weighted mean vruntime, rounded down; the base of a queue that is empty.
    #[inline]
    pub fn mean(&self) -> Ns {
        if self.sum_w == 0 {
            return self.min_v;
        }
        let above = self.sum_wv - i128::from(self.min_v) * i128::from(self.sum_w);
        let mean = match i64::try_from(above) {
            Ok(above) => above.div_euclid(self.sum_w),
            Err(_) => above.div_euclid(i128::from(self.sum_w)) as i64,
        };
        self.min_v + mean
    }

    /// Charges `t`, which runs here, for `delta`; true when the kernel would ask for a reschedule.
    #[inline(never)]
    pub fn charge(&mut self, t: TaskId, e: &mut Entity, f: &Features, base: Ns, delta: Ns) -> bool {
        self.exec_start += delta;
        let step = e.fair(delta);
        e.v += step;
        self.sum_wv += i128::from(e.weight) * i128::from(step);
        let expired = e.v >= e.deadline;
        if expired {
            if !e.custom_slice {
                e.slice = base;
            }
            e.deadline = e.v + e.fair(e.slice);
        }
        self.raise_min(Some(e.v));
        if self.nr <= 1 {
            return false;
        }
        let asks = expired
            || match f.version {
                Version::V66 => false,
                Version::V612 => f.preempt_short && e.picked != Some(e.deadline) && !self.eligible(e.v),
                Version::V618 | Version::V73 => e.v >= e.protected,
            };
        if asks {
            self.clear_buddy(t);
        }
        asks
    }

    /// Takes `t`, whose lag counts up to `most`, out of the sums and the tree.
    #[inline(always)]
    pub fn leave(&mut self, t: TaskId, e: &mut Entity, f: &Features, most: Ns, sleeps: bool) {
        let lag = self.lag(e, most);
        e.vlag = if e.delayed && f.version >= Version::V618 { lag.max(e.vlag) } else { lag };
        if f.place_rel_deadline && f.version != Version::V66 && !sleeps {
            e.deadline -= e.v;
            e.rel_deadline = true;
        }
        self.take_out(e);
        self.sub(e);
        e.on_rq = false;
        if self.curr == Some(t) {
            self.curr = None;
        }
        self.clear_buddy(t);
    }

    /// The lag of `e`, which is counted here, but for more than `most`.
    #[inline]
    pub fn lag(&self, e: &Entity, most: Ns) -> Ns {
        (self.mean() - e.v).clamp(-most, most)
    }

    /// Gives `e` a place here, where it is not counted yet.
    #[inline(always)]
    pub fn place(&self, e: &mut Entity, f: &Features, base: Ns, initial: bool) {
        if !e.custom_slice {
            e.slice = base;
        }
        let mut vslice = e.fair(e.slice);
        let mut lag = 0;
        if f.place_lag && self.nr > 0 && e.vlag != 0 {
            lag = grown(e.vlag, self.sum_w.max(1), e.weight);
        }
        e.v = self.mean() - lag;
        if std::mem::take(&mut e.rel_deadline) {
            e.deadline += e.v;
            return;
        }
        if f.place_deadline_initial && initial && f.version != Version::V66 {
            vslice /= 2;
        }
        e.deadline = e.v + vslice;
    }

    #[inline]
    pub fn eligible(&self, v: Ns) -> bool {
        self.sum_wv >= i128::from(v) * i128::from(self.sum_w)
    }

    #[inline]
    pub fn add(&mut self, e: &Entity) {
        self.sum_w += e.weight;
        self.sum_wv += i128::from(e.weight) * i128::from(e.v);
        self.nr += 1;
    }

    #[inline]
    pub fn sub(&mut self, e: &Entity) {
        self.sum_w -= e.weight;
        self.sum_wv -= i128::from(e.weight) * i128::from(e.v);
        self.nr -= 1;
    }

    #[inline]
    pub fn raise_min(&mut self, curr: Option<Ns>) {
        let lowest = match (curr, self.tree.min_v()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if let Some(v) = lowest {
            self.min_v = self.min_v.max(v);
        }
    }

    /// `t` runs, and is charged from `clock` on; what stands for the queue above it.
    #[inline(always)]
    pub fn runs(&mut self, t: TaskId, clock: Ns) -> Option<TaskId> {
        (self.curr, self.exec_start) = (Some(t), clock);
        self.owner
    }

    /// Takes `e` out of the tree; false when it is in none.
    #[inline]
    pub fn take_out(&mut self, e: &mut Entity) -> bool {
        let place = std::mem::take(&mut e.place);
        place.is_queued() && self.tree.remove(place)
    }

    #[inline]
    pub fn clear_buddy(&mut self, t: TaskId) {
        if self.next == Some(t) {
            self.next = None;
        }
    }
}
