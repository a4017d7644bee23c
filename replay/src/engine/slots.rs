//! The next event of each kind and CPU. The earliest of each CPU stands in a winner tree, whose
//! root is the earliest of all. What is handled mostly changes times of the CPU on which it happens,
//! and mostly the next event is there as well: the tree does not know the times of the CPU whose
//! event came last until one of another CPU comes before them.
//!
//! Events with equal time come in the order of their kinds in [`Due`], then by CPU: segment ends,
//! ticks, the 1 Hz work, timer expiries, other wakeups, policy timers, slice ends, reschedules.

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

/// Places of an entry: CPUs and the machine have different kinds of events.
const PLACES: usize = 5;
const OF_CPU: [usize; PLACES] = [SEGMENT, TICK, TIMER, SLICE, RESCHED];
const OF_MACHINE: [usize; PLACES] = [SECOND, WAKE, POLICY_TIMER, RESCHED, RESCHED];

/// The place of a kind.
#[inline]
const fn place(kind: usize) -> usize {
    match kind {
        SEGMENT | SECOND => 0,
        TICK | WAKE => 1,
        TIMER | POLICY_TIMER => 2,
        SLICE => 3,
        _ => 4,
    }
}

/// A time above the kind and the entry: the order of keys is the order of events. Times are counted
/// from an epoch; from [`FAR`] on all are the same, and whoever meets one looks at the times themselves.
type Key = u64;
const ENTRY_BITS: u32 = 13;
const LOW_BITS: u32 = ENTRY_BITS + 3;
/// More than three days.
const FAR: Ns = (1 << (64 - LOW_BITS)) - 1;
const NOTHING: Key = Key::MAX;

#[inline]
fn key(since_epoch: Ns, kind: usize, entry: usize) -> Key {
    (since_epoch.clamp(0, FAR) as u64) << LOW_BITS | (kind << ENTRY_BITS | entry) as u64
}

#[inline]
fn entry_of(key: Key) -> usize {
    (key & ((1 << ENTRY_BITS) - 1)) as usize
}

#[inline]
fn is_far(key: Key) -> bool {
    (key >> LOW_BITS) as Ns == FAR
}

/// The next events.
#[derive(Clone, Debug)]
pub struct Slots {
    cpus: usize,
    epoch: Ns,
    /// By CPU, the machine last; of each by place, in the order of their kinds.
    times: Vec<[Ns; PLACES]>,
    keys: Vec<[Key; PLACES]>,
    /// The entry of the last event, whose keys the tree may not know, and the earliest of all others.
    last: usize,
    others: Key,
    /// Number of leaves, a power of two.
    leaves: usize,
    /// `win[1]` is the earliest of all; children of `i` are `2i` and `2i + 1`, the entries begin at
    /// `leaves`.
    win: Vec<Key>,
}

impl Slots {
    /// All slots empty.
    pub fn new(cpus: usize) -> Self {
        let leaves = (cpus + 1).next_power_of_two();
        let (times, keys) = (vec![[NEVER; PLACES]; cpus + 1], vec![[NOTHING; PLACES]; cpus + 1]);
        Slots { cpus, epoch: 0, times, keys, last: cpus, others: NOTHING, leaves, win: vec![NOTHING; 2 * leaves] }
    }

    #[inline]
    fn set(&mut self, entry: usize, kind: usize, at: Ns) {
        let was = std::mem::replace(&mut self.times[entry][place(kind)], at);
        self.keys[entry][place(kind)] = key(at - self.epoch, kind, entry);
        if entry != self.last && was != at {
            self.elsewhere(entry);
        }
    }

    /// The times of an entry that is not the last one have changed.
    #[inline(never)]
    fn elsewhere(&mut self, entry: usize) {
        let first = self.first_of(entry);
        self.climb(entry, first);
        if first < self.others {
            self.others = first;
        } else if entry_of(self.others) == entry {
            self.others = self.all_but(self.last);
        }
    }

    /// The earliest event, which is to be handled now.
    #[inline]
    pub fn earliest(&mut self) -> (Ns, Due) {
        let mut first = self.first();
        if is_far(first) {
            first = self.look_far();
            if is_far(first) {
                return (NEVER, Due::Second);
            }
        }
        let (entry, kind) = (entry_of(first), (first >> ENTRY_BITS & 7) as usize);
        (self.epoch + (first >> LOW_BITS) as Ns, Self::due(kind, entry))
    }

    /// Its time, where other events may still come before it.
    pub fn earliest_time(&mut self) -> Ns {
        let first = self.first();
        if is_far(first) {
            return self.earliest_of_all();
        }
        self.epoch + (first >> LOW_BITS) as Ns
    }

    #[inline]
    fn first(&mut self) -> Key {
        let first = self.first_of(self.last);
        if first > self.others {
            self.change(first)
        } else {
            first
        }
    }

    fn earliest_of_all(&self) -> Ns {
        self.times.iter().flatten().copied().min().unwrap_or(NEVER)
    }

    /// Another entry than the last one, whose own earliest event is `first`, has the earliest of all.
    #[inline(never)]
    fn change(&mut self, first: Key) -> Key {
        self.climb(self.last, first);
        let first = self.win[1];
        self.last = entry_of(first).min(self.cpus);
        self.others = self.all_but(self.last);
        first
    }

    /// Nothing comes before [`FAR`]: what comes first makes another epoch.
    #[cold]
    fn look_far(&mut self) -> Key {
        let first = self.earliest_of_all();
        if first == NEVER {
            return NOTHING;
        }
        self.epoch = first;
        for entry in 0..=self.cpus {
            for (i, kind) in (if entry == self.cpus { OF_MACHINE } else { OF_CPU }).into_iter().enumerate() {
                self.keys[entry][i] = key(self.times[entry][i] - first, kind, entry);
            }
            self.climb(entry, self.first_of(entry));
        }
        self.change(self.first_of(self.last))
    }

    /// The earliest event of an entry.
    #[inline]
    fn first_of(&self, entry: usize) -> Key {
        self.keys[entry].iter().fold(NOTHING, |first, &key| first.min(key))
    }

    /// The earliest event of all entries but one, as the tree knows them.
    fn all_but(&self, entry: usize) -> Key {
        let mut i = self.leaves + entry;
        let mut first = NOTHING;
        while i > 1 {
            first = first.min(self.win[i ^ 1]);
            i /= 2;
        }
        first
    }

    /// Brings the earliest event of an entry into the tree.
    fn climb(&mut self, entry: usize, first: Key) {
        let mut winner = first;
        let mut i = self.leaves + entry;
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
    fn due(kind: usize, cpu: Cpu) -> Due {
        match kind {
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
        self.times[cpu][place(SEGMENT)]
    }
    /// Sets the end of the current run step on `cpu`.
    #[inline]
    pub fn set_segment_end(&mut self, cpu: Cpu, at: Ns) {
        self.set(cpu, SEGMENT, at);
    }
    /// The next tick of `cpu`.
    #[inline]
    pub fn tick(&self, cpu: Cpu) -> Ns {
        self.times[cpu][place(TICK)]
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
        self.times[cpu][place(TIMER)]
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
        fn events_that_are_days_apart_come_in_order(
            ops in prop::collection::vec((0..=RESCHED, 0usize..3, 0i64..6, 0u32..55), 1..100),
        ) {
            let mut slots = Slots::new(3);
            let mut model = std::collections::BTreeMap::new();
            let mut now = 0;
            for (kind, cpu, part, bits) in ops {
                // From ns to months ahead.
                let at = now + (part << bits);
                let cpu = if matches!(kind, SECOND | WAKE | POLICY_TIMER) { 3 } else { cpu };
                slots.set(cpu, kind, at);
                model.insert((kind, cpu), at);
                let next = model.iter().map(|(&(kind, cpu), &at)| (at, kind, cpu)).min().unwrap();
                prop_assert_eq!(slots.earliest_time(), next.0);
                if part % 2 == 0 {
                    prop_assert_eq!(slots.earliest(), (next.0, Slots::due(next.1, next.2)));
                    now = next.0;
                    slots.set(next.2, next.1, NEVER);
                    model.remove(&(next.1, next.2));
                }
            }
        }

        #[test]
        fn the_next_event_is_the_least_by_time_kind_and_cpu(
            cpus in 1usize..70,
            // Few times, so that many are equal; some cleared.
            ops in prop::collection::vec((0..=RESCHED, 0usize..70, 0i64..8, any::<bool>()), 1..200),
        ) {
            let mut slots = Slots::new(cpus);
            let mut model = vec![vec![NEVER; cpus]; RESCHED + 1];
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
                let pairs = (0..=RESCHED).flat_map(|kind| (0..cpus).map(move |cpu| (kind, cpu)));
                let (at, kind, cpu) = pairs.map(|(kind, cpu)| (model[kind][cpu], kind, cpu)).min().unwrap();
                let got = slots.earliest();
                prop_assert_eq!(got.0, at);
                if at != NEVER {
                    prop_assert_eq!(got.1, Slots::due(kind, cpu));
                }
            }
        }
    }
}
