//! The timers of sleeping tasks on one CPU, in a four-way heap. Putting one in is inlined, so that
//! it stays in registers: the heap of the standard library reads it from memory as a whole, where
//! it has just been written in parts, and waits for that.

use crate::task::{Ns, TaskId, NEVER};

/// The timer of a sleeping task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    pub hard: Ns,
    /// Of equal expiries the one that was set first comes first.
    pub order: u64,
    pub soft: Ns,
    pub task: TaskId,
}

impl Timer {
    #[inline(always)]
    fn is_before(&self, other: &Self) -> bool {
        (self.hard, self.order) < (other.hard, other.order)
    }
}

/// Timers, of which the first to expire is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers(Vec<Timer>);

impl Timers {
    /// None is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first to expire.
    #[inline(always)]
    pub fn first(&self) -> Option<&Timer> {
        self.0.first()
    }

    /// When the first expires at last.
    #[inline(always)]
    pub fn first_expiry(&self) -> Ns {
        self.first().map_or(NEVER, |t| t.hard)
    }

    /// Whose timer an interrupt that came at `entry` fires next: that of the first, where its soft
    /// expiry has passed by then and its hard one is not behind `latest`.
    #[inline(always)]
    pub fn expired(&self, entry: Ns, latest: Ns) -> Option<TaskId> {
        self.first().filter(|t| t.soft <= entry && t.hard <= latest).map(|t| t.task)
    }

    /// Sets one.
    #[inline(always)]
    pub fn push(&mut self, timer: Timer) {
        let mut i = self.0.len();
        self.0.push(timer);
        let timers = &mut self.0[..];
        while i > 0 {
            let above = (i - 1) / 4;
            if !timer.is_before(&timers[above]) {
                break;
            }
            timers[i] = timers[above];
            i = above;
        }
        timers[i] = timer;
    }

    /// Takes out the first.
    #[inline(never)]
    pub fn pop(&mut self) {
        let Some(last) = self.0.pop() else { return };
        let timers = &mut self.0[..];
        if timers.is_empty() {
            return;
        }
        let mut i = 0;
        loop {
            let from = 4 * i + 1;
            let Some(below) = timers.get(from..(from + 4).min(timers.len())).filter(|b| !b.is_empty()) else { break };
            let mut first = 0;
            for n in 1..below.len() {
                first = if below[n].is_before(&below[first]) { n } else { first };
            }
            let next = below[first];
            if !next.is_before(&last) {
                break;
            }
            timers[i] = next;
            i = from + first;
        }
        timers[i] = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_come_by_expiry_and_then_in_the_order_in_which_they_were_set(
            ops in prop::collection::vec((0i64..20, 0u8..5), 1..300),
        ) {
            let (mut timers, mut model) = (Timers::default(), Vec::new());
            for (order, (hard, op)) in ops.into_iter().enumerate() {
                if op < 3 {
                    timers.push(Timer { hard, order: order as u64, soft: hard, task: TaskId(order as u32) });
                    model.push((hard, order as u64));
                    model.sort_unstable();
                } else {
                    timers.pop();
                    model.splice(..model.len().min(1), []);
                }
                prop_assert_eq!(timers.first().map(|t| (t.hard, t.order)), model.first().copied());
                prop_assert_eq!(timers.is_empty(), model.is_empty());
            }
        }
    }
}
