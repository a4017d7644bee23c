//! How much work the search may do: a hard bound, counted in things that show times explanations
//! followed side by side.

use std::cell::Cell;

use crate::cancel::Cancel;
use crate::history::History;

/// Looks at a task, a message or a segment that take as long as one step of an explanation: a look
/// is a few comparisons, a step copies what changes.
pub(super) const LOOKS: usize = 256;

/// Steps that no event shows, for each event of the trace, at most, in each search for buffers or locks: a
/// bound of time and memory.
const STEPS: usize = 64;

/// So many steps in the whole trace.
pub(super) fn most_steps(history: &History) -> usize {
    STEPS * history.tasks.iter().map(|t| t.events.len()).sum::<usize>()
}

/// What is left of it.
#[derive(Debug)]
pub(super) struct Budget {
    left: Cell<usize>,
    spent: Cell<usize>,
    looks: Cell<usize>,
    cancel: Cancel,
}

impl Budget {
    /// So many steps; none once `cancel` is set.
    pub fn new(steps: usize, cancel: Cancel) -> Self {
        Budget { left: Cell::new(steps), spent: Cell::new(0), looks: Cell::new(0), cancel }
    }

    /// Takes `steps`; false when there are not as many left. Whoever gets that stops.
    pub fn spend(&self, steps: usize) -> bool {
        match self.left.get().checked_sub(steps) {
            Some(left) if !self.cancel.is_set() => {
                self.left.set(left);
                self.spent.set(self.spent.get() + steps);
                true
            }
            _ => {
                self.left.set(0);
                false
            }
        }
    }

    /// Looks at `n` things, which count together.
    pub fn look(&self, n: usize) {
        let looks = self.looks.get() + n;
        self.looks.set(looks % LOOKS);
        if looks >= LOOKS {
            self.spend(looks / LOOKS);
        }
    }

    /// Looks at `n` things `times` times, none of which takes more than a step.
    pub fn look_times(&self, times: usize, n: usize) {
        let looks = self.looks.get() + times * n;
        self.looks.set(looks % LOOKS);
        for _ in 0..looks / LOOKS {
            self.spend(1);
        }
    }

    /// True when nothing is left.
    pub fn is_over(&self) -> bool {
        self.left.get() == 0
    }

    /// Steps left.
    pub fn left(&self) -> usize {
        self.left.get()
    }

    /// Steps taken so far.
    pub fn spent(&self) -> usize {
        self.spent.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_given_beyond_the_bound_or_after_a_stop() {
        let budget = Budget::new(10, Cancel::default());
        assert!(budget.spend(7) && !budget.is_over());
        assert!(!budget.spend(4) && budget.is_over() && !budget.spend(1));
        let cancel = Cancel::new();
        let budget = Budget::new(10, cancel.clone());
        cancel.set();
        assert!(!budget.spend(1));
    }
}
