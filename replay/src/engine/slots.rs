//! The next event of each kind and CPU, in a winner tree: the earliest is at the root, ties go to
//! the lower slot.
//!
//! The order of slots *is* the order of events with equal time: segment ends by CPU, ticks by CPU,
//! the 1 Hz work, timer expiries by CPU, other wakeups, policy timers, slice ends by CPU,
//! reschedules by CPU.

use crate::task::{Cpu, Ns, NEVER};

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The run step of the task on this CPU ends.
    Segment(Cpu),
    /// Clock tick.
    Tick(Cpu),
    /// 1 Hz work.
    Second,
    /// Timer interrupt.
    Timer(Cpu),
    /// A start, device or outside wakeup.
    Wake,
    /// Timer of a policy.
    PolicyTimer,
    /// Slice end.
    Slice(Cpu),
    /// Reschedule.
    Resched(Cpu),
}

/// The winner tree.
#[derive(Clone, Debug)]
pub struct Slots {
    cpus: usize,
    /// Number of leaves, a power of two.
    leaves: usize,
    /// `win[1]` is the earliest of all; children of `i` are `2i` and `2i + 1`, the slots themselves
    /// begin at `leaves`.
    win: Vec<Entry>,
}

/// A time and its slot: the order of entries is the order of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at: Ns,
    slot: u32,
}

impl Slots {
    /// All slots empty.
    pub fn new(cpus: usize) -> Self {
        let leaves = (5 * cpus + 3).next_power_of_two();
        let mut win = vec![Entry { at: NEVER, slot: 0 }; 2 * leaves];
        for (i, w) in win[leaves..].iter_mut().enumerate() {
            w.slot = i as u32;
        }
        for i in (1..leaves).rev() {
            win[i] = win[2 * i];
        }
        Slots { cpus, leaves, win }
    }

    #[inline]
    fn at(&self, slot: usize) -> Ns {
        self.win[self.leaves + slot].at
    }

    #[inline]
    fn set(&mut self, slot: usize, at: Ns) {
        let mut i = self.leaves + slot;
        if self.win[i].at == at {
            return;
        }
        let mut winner = Entry { at, slot: slot as u32 };
        self.win[i] = winner;
        while i > 1 {
            winner = winner.min(self.win[i ^ 1]);
            i /= 2;
            // The same wins here as before: nothing changes above.
            if self.win[i] == winner {
                return;
            }
            self.win[i] = winner;
        }
    }

    /// The earliest event.
    #[inline]
    pub fn next(&self) -> (Ns, Due) {
        let Entry { at, slot } = self.win[1];
        (at, self.due(slot as usize))
    }

    fn due(&self, slot: usize) -> Due {
        let n = self.cpus;
        match slot {
            s if s < n => Due::Segment(s),
            s if s < 2 * n => Due::Tick(s - n),
            s if s == 2 * n => Due::Second,
            s if s <= 3 * n => Due::Timer(s - 2 * n - 1),
            s if s == 3 * n + 1 => Due::Wake,
            s if s == 3 * n + 2 => Due::PolicyTimer,
            s if s < 4 * n + 3 => Due::Slice(s - 3 * n - 3),
            s => Due::Resched(s - 4 * n - 3),
        }
    }

    /// End of the current run step on `cpu`.
    #[inline]
    pub fn segment_end(&self, cpu: Cpu) -> Ns {
        self.at(cpu)
    }
    /// Sets the end of the current run step on `cpu`.
    #[inline]
    pub fn set_segment_end(&mut self, cpu: Cpu, at: Ns) {
        self.set(cpu, at);
    }
    /// The next tick of `cpu`.
    #[inline]
    pub fn tick(&self, cpu: Cpu) -> Ns {
        self.at(self.cpus + cpu)
    }
    /// Sets the next tick of `cpu`.
    #[inline]
    pub fn set_tick(&mut self, cpu: Cpu, at: Ns) {
        self.set(self.cpus + cpu, at);
    }
    /// Sets the next 1 Hz work.
    pub fn set_second(&mut self, at: Ns) {
        self.set(2 * self.cpus, at);
    }
    /// The next timer interrupt of `cpu`.
    #[inline]
    pub fn timer(&self, cpu: Cpu) -> Ns {
        self.at(2 * self.cpus + 1 + cpu)
    }
    /// Sets the next timer interrupt of `cpu`.
    #[inline]
    pub fn set_timer(&mut self, cpu: Cpu, at: Ns) {
        self.set(2 * self.cpus + 1 + cpu, at);
    }
    /// Sets the next other wakeup.
    #[inline]
    pub fn set_wake(&mut self, at: Ns) {
        self.set(3 * self.cpus + 1, at);
    }
    /// Sets the next policy timer.
    pub fn set_policy_timer(&mut self, at: Ns) {
        self.set(3 * self.cpus + 2, at);
    }
    /// Sets the slice end on `cpu`.
    #[inline]
    pub fn set_slice(&mut self, cpu: Cpu, at: Ns) {
        self.set(3 * self.cpus + 3 + cpu, at);
    }
    /// Sets the next reschedule of `cpu`.
    #[inline]
    pub fn set_resched(&mut self, cpu: Cpu, at: Ns) {
        self.set(4 * self.cpus + 3 + cpu, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_come_in_slot_order() {
        let mut s = Slots::new(3);
        s.set_resched(0, 5);
        s.set_slice(2, 5);
        s.set_policy_timer(5);
        s.set_wake(5);
        s.set_timer(1, 5);
        s.set_second(5);
        s.set_tick(2, 5);
        s.set_tick(0, 5);
        s.set_segment_end(1, 5);
        let mut order = Vec::new();
        while s.next().0 != NEVER {
            let (_, due) = s.next();
            order.push(due);
            match due {
                Due::Segment(c) => s.set_segment_end(c, NEVER),
                Due::Tick(c) => s.set_tick(c, NEVER),
                Due::Second => s.set_second(NEVER),
                Due::Timer(c) => s.set_timer(c, NEVER),
                Due::Wake => s.set_wake(NEVER),
                Due::PolicyTimer => s.set_policy_timer(NEVER),
                Due::Slice(c) => s.set_slice(c, NEVER),
                Due::Resched(c) => s.set_resched(c, NEVER),
            }
        }
        let want = [
            Due::Segment(1),
            Due::Tick(0),
            Due::Tick(2),
            Due::Second,
            Due::Timer(1),
            Due::Wake,
            Due::PolicyTimer,
            Due::Slice(2),
            Due::Resched(0),
        ];
        assert_eq!(order, want);
    }

    #[test]
    fn the_earliest_wins() {
        let mut s = Slots::new(2);
        s.set_tick(1, 9);
        s.set_segment_end(0, 10);
        assert_eq!(s.next(), (9, Due::Tick(1)));
        s.set_tick(1, 11);
        assert_eq!(s.next(), (10, Due::Segment(0)));
        s.set_segment_end(0, NEVER);
        assert_eq!(s.next(), (11, Due::Tick(1)));
    }
}
