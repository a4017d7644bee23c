//! The next event of each kind and CPU. The earliest of each CPU stands in a winner tree, whose
//! root is the earliest of all. A change is only noted, and brought into the tree when the next
//! event is asked for, because handling one event mostly changes several times of the same CPU.
//!
//! Events with equal time come in the order of their kinds in [`Due`], then by CPU: segment ends,
//! ticks, the 1 Hz work, timer expiries, other wakeups, policy timers, slice ends, reschedules.

use crate::queue::Bits;
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

// Kinds, in the order of events with equal time.
const SEGMENT: usize = 0;
const TICK: usize = 1;
const SECOND: usize = 2;
const TIMER: usize = 3;
const WAKE: usize = 4;
const POLICY_TIMER: usize = 5;
const SLICE: usize = 6;
const RESCHED: usize = 7;
const KINDS: usize = 8;

/// A time above the kind and the CPU: the order of keys is the order of events.
type Key = i128;

#[inline]
fn key(at: Ns, kind: usize, cpu: usize) -> Key {
    (Key::from(at) << 64) | (kind << 32 | cpu) as Key
}

/// Times of all kinds; those of a CPU, or in one entry more those of the whole machine.
type Times = [Ns; KINDS];

/// The next events.
#[derive(Clone, Debug)]
pub struct Slots {
    cpus: usize,
    /// By CPU, the machine last.
    times: Vec<Times>,
    /// Entries of `times` that the tree does not know yet.
    stale: Bits,
    /// Number of leaves, a power of two.
    leaves: usize,
    /// `win[1]` is the earliest of all; children of `i` are `2i` and `2i + 1`, the entries of
    /// `times` begin at `leaves`.
    win: Vec<Key>,
}

impl Slots {
    /// All slots empty.
    pub fn new(cpus: usize) -> Self {
        let leaves = (cpus + 1).next_power_of_two();
        let win = vec![key(NEVER, RESCHED, 0); 2 * leaves];
        Slots { cpus, times: vec![[NEVER; KINDS]; cpus + 1], stale: Bits::none(cpus + 1), leaves, win }
    }

    #[inline]
    fn set(&mut self, entry: usize, kind: usize, at: Ns) {
        if self.times[entry][kind] != at {
            self.times[entry][kind] = at;
            self.stale.set(entry, true);
        }
    }

    /// The earliest event.
    #[inline]
    pub fn earliest(&mut self) -> (Ns, Due) {
        for word in 0..self.stale.words().len() {
            while let Some(entry) = self.stale.take_from(word) {
                self.refresh(entry);
            }
        }
        let first = self.win[1];
        ((first >> 64) as Ns, Self::due(first as u64))
    }

    /// Brings an entry into the tree.
    #[inline]
    fn refresh(&mut self, entry: usize) {
        let times = &self.times[entry];
        let (mut at, mut kind) = (times[0], 0);
        for (i, &time) in times.iter().enumerate().skip(1) {
            (at, kind) = if time < at { (time, i) } else { (at, kind) };
        }
        let mut i = self.leaves + entry;
        let mut winner = key(at, kind, entry);
        // Where the same wins as before, nothing changes above.
        while self.win[i] != winner {
            self.win[i] = winner;
            if i == 1 {
                return;
            }
            winner = winner.min(self.win[i ^ 1]);
            i /= 2;
        }
    }

    #[inline]
    fn due(slot: u64) -> Due {
        let cpu = slot as u32 as usize;
        match (slot >> 32) as usize {
            SEGMENT => Due::Segment(cpu),
            TICK => Due::Tick(cpu),
            SECOND => Due::Second,
            TIMER => Due::Timer(cpu),
            WAKE => Due::Wake,
            POLICY_TIMER => Due::PolicyTimer,
            SLICE => Due::Slice(cpu),
            _ => Due::Resched(cpu),
        }
    }

    /// End of the current run step on `cpu`.
    #[inline]
    pub fn segment_end(&self, cpu: Cpu) -> Ns {
        self.times[cpu][SEGMENT]
    }
    /// Sets the end of the current run step on `cpu`.
    #[inline]
    pub fn set_segment_end(&mut self, cpu: Cpu, at: Ns) {
        self.set(cpu, SEGMENT, at);
    }
    /// The next tick of `cpu`.
    #[inline]
    pub fn tick(&self, cpu: Cpu) -> Ns {
        self.times[cpu][TICK]
    }
    /// Sets the next tick of `cpu`.
    #[inline]
    pub fn set_tick(&mut self, cpu: Cpu, at: Ns) {
        self.set(cpu, TICK, at);
    }
    /// Sets the next 1 Hz work.
    pub fn set_second(&mut self, at: Ns) {
        self.set(self.cpus, SECOND, at);
    }
    /// The next timer interrupt of `cpu`.
    #[inline]
    pub fn timer(&self, cpu: Cpu) -> Ns {
        self.times[cpu][TIMER]
    }
    /// Sets the next timer interrupt of `cpu`.
    #[inline]
    pub fn set_timer(&mut self, cpu: Cpu, at: Ns) {
        self.set(cpu, TIMER, at);
    }
    /// Sets the next other wakeup.
    #[inline]
    pub fn set_wake(&mut self, at: Ns) {
        self.set(self.cpus, WAKE, at);
    }
    /// Sets the next policy timer.
    pub fn set_policy_timer(&mut self, at: Ns) {
        self.set(self.cpus, POLICY_TIMER, at);
    }
    /// Sets the slice end on `cpu`.
    #[inline]
    pub fn set_slice(&mut self, cpu: Cpu, at: Ns) {
        self.set(cpu, SLICE, at);
    }
    /// Sets the next reschedule of `cpu`.
    #[inline]
    pub fn set_resched(&mut self, cpu: Cpu, at: Ns) {
        self.set(cpu, RESCHED, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        while s.earliest().0 != NEVER {
            let (_, due) = s.earliest();
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
        assert_eq!(s.earliest(), (9, Due::Tick(1)));
        s.set_tick(1, 11);
        assert_eq!(s.earliest(), (10, Due::Segment(0)));
        s.set_segment_end(0, NEVER);
        assert_eq!(s.earliest(), (11, Due::Tick(1)));
    }

    proptest! {
        #[test]
        fn the_next_event_is_the_least_by_time_kind_and_cpu(
            cpus in 1usize..70,
            // Few times, so that many are equal; some cleared.
            ops in prop::collection::vec((0..KINDS, 0usize..70, 0i64..8, any::<bool>()), 1..200),
        ) {
            let mut slots = Slots::new(cpus);
            let mut model = vec![vec![NEVER; cpus]; KINDS];
            for (kind, cpu, at, ask) in ops {
                let of_machine = matches!(kind, SECOND | WAKE | POLICY_TIMER);
                let cpu = if of_machine { 0 } else { cpu % cpus };
                let at = if at == 0 { NEVER } else { at };
                model[kind][cpu] = at;
                match kind {
                    SEGMENT => slots.set_segment_end(cpu, at),
                    TICK => slots.set_tick(cpu, at),
                    SECOND => slots.set_second(at),
                    TIMER => slots.set_timer(cpu, at),
                    WAKE => slots.set_wake(at),
                    POLICY_TIMER => slots.set_policy_timer(at),
                    SLICE => slots.set_slice(cpu, at),
                    _ => slots.set_resched(cpu, at),
                }
                if !ask {
                    continue;
                }
                let pairs = (0..KINDS).flat_map(|kind| (0..cpus).map(move |cpu| (kind, cpu)));
                let (at, kind, cpu) = pairs.map(|(kind, cpu)| (model[kind][cpu], kind, cpu)).min().unwrap();
                let got = slots.earliest();
                prop_assert_eq!(got.0, at);
                if at != NEVER {
                    prop_assert_eq!(got.1, Slots::due((kind << 32 | cpu) as u64));
                }
            }
        }
    }
}
