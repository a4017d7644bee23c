//! One queue of entities: tasks, and groups' shares of the CPU.

use super::tree::Tree;
use super::Entity;
use crate::task::{Ns, TaskId};

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
