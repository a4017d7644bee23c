//! The next event of each kind and CPU. The earliest of each CPU stands in a tree, which gives the
//! earliest of all. What is handled mostly changes times of the CPU on which it happens, several of
//! them: that CPU is out of the tree meanwhile. So the next event is the lesser of two, its own and
//! that of all others, which has been known for long, and the tree changes when the CPU does.
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

/// The earliest events below each of a node's eight children; a line of the cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Node([Key; 8]);

impl Node {
    /// The earliest of all of them.
    #[inline(always)]
    fn first(&self) -> Key {
        let [a, b, c, d, e, f, g, h] = self.0;
        (a.min(b).min(c.min(d))).min(e.min(f).min(g.min(h)))
    }

    /// The earliest behind `key`, which is the earliest of all: seen from there it is the last one.
    #[inline(always)]
    fn first_behind(&self, key: Key) -> Key {
        let seen = Node(self.0.map(|k| k.wrapping_sub(key + 1)));
        seen.first().wrapping_add(key + 1)
    }
}

/// The earliest event of each CPU, in a tree. The root is node 0, the children of node `i` begin at
/// `8 * i + 1`, and above CPU `c` stands node `lowest + c / 8`.
#[derive(Clone, Debug)]
struct Firsts {
    nodes: Vec<Node>,
    lowest: usize,
}

impl Firsts {
    /// Nothing is due, for so many CPUs.
    fn none(cpus: usize) -> Self {
        let (mut lowest, mut wide) = (0, 1);
        while 8 * wide < cpus {
            (lowest, wide) = (lowest + wide, 8 * wide);
        }
        Firsts { nodes: vec![Node([NOTHING; 8]); lowest + wide], lowest }
    }

    /// The earliest of all.
    #[inline]
    fn first(&self) -> Key {
        self.nodes[0].first()
    }

    /// Brings the earliest below node `i` to those above it; the earliest of all.
    #[inline(always)]
    fn up(&mut self, mut i: usize) -> Key {
        let mut first = self.nodes[i].first();
        while i > 0 {
            let child = (i - 1) % 8;
            i = (i - 1) / 8;
            self.nodes[i].0[child] = first;
            first = self.nodes[i].first();
        }
        first
    }

    /// Sets the earliest event of a CPU; the earliest of all.
    fn set(&mut self, cpu: Cpu, first: Key) -> Key {
        let i = self.lowest + cpu / 8;
        self.nodes[i].0[cpu % 8] = first;
        self.up(i)
    }

    /// Sets the earliest event of `cpu`, and that nothing is due on `other`, whose event `chosen` was
    /// the earliest of all; the earliest that is left.
    #[inline(always)]
    fn exchange(&mut self, cpu: Cpu, first: Key, other: Cpu, chosen: Key) -> Key {
        if let [node] = &mut self.nodes[..] {
            // Found in what was there before: what is put there now need not have got there.
            let left = node.first_behind(chosen).min(first);
            node.0[cpu % 8] = first;
            node.0[other % 8] = NOTHING;
            return left;
        }
        let (i, j) = (self.lowest + cpu / 8, self.lowest + other / 8);
        self.nodes[i].0[cpu % 8] = first;
        if i != j {
            self.up(i);
        }
        self.nodes[j].0[other % 8] = NOTHING;
        self.up(j)
    }
}

/// The events of an entry by place, in the order of their kinds: when they come, and their keys.
#[derive(Clone, Debug)]
struct Entry {
    times: [Ns; PLACES],
    keys: [Key; PLACES],
}

impl Entry {
    /// Its earliest event.
    #[inline]
    fn first(&self) -> Key {
        let [a, b, c, d, e] = self.keys;
        (a.min(b).min(c.min(d))).min(e)
    }
}

/// The next events.
#[derive(Clone, Debug)]
pub struct Slots {
    cpus: usize,
    epoch: Ns,
    /// By CPU, the machine last.
    entries: Vec<Entry>,
    /// The entry of the last event. For the next two nothing is due there.
    last: usize,
    firsts: Firsts,
    of_machine: Key,
    /// The earliest of all entries but the last.
    others: Key,
}

impl Slots {
    /// All slots empty.
    pub fn new(cpus: usize) -> Self {
        let entries = vec![Entry { times: [NEVER; PLACES], keys: [NOTHING; PLACES] }; cpus + 1];
        let firsts = Firsts::none(cpus);
        Slots { cpus, epoch: 0, entries, last: cpus, firsts, of_machine: NOTHING, others: NOTHING }
    }

    #[inline]
    fn set(&mut self, entry: usize, kind: usize, at: Ns) {
        let e = &mut self.entries[entry];
        let was = std::mem::replace(&mut e.times[place(kind)], at);
        e.keys[place(kind)] = key(at - self.epoch, kind, entry);
        if entry != self.last && was != at {
            self.note(entry);
        }
    }

    /// The same as [`Self::set`] to [`NEVER`].
    #[inline]
    fn clear(&mut self, entry: usize, kind: usize) {
        let e = &mut self.entries[entry];
        let was = std::mem::replace(&mut e.times[place(kind)], NEVER);
        e.keys[place(kind)] = NOTHING;
        if entry != self.last && was != NEVER {
            self.note(entry);
        }
    }

    /// Takes notice of the times of an entry that is not the last one.
    #[inline(never)]
    fn note(&mut self, entry: usize) {
        let first = self.entries[entry].first();
        self.others = self.put(entry, first);
    }

    /// Sets the earliest event of an entry; the earliest of all, as the tree and the machine stand.
    #[inline(always)]
    fn put(&mut self, entry: usize, first: Key) -> Key {
        if entry < self.cpus {
            return self.firsts.set(entry, first).min(self.of_machine);
        }
        self.of_machine = first;
        self.firsts.first().min(first)
    }

    /// What is handled now is of `entry`; `first` is the earliest event of the one before.
    #[inline(always)]
    fn change(&mut self, entry: usize, first: Key) {
        let before = std::mem::replace(&mut self.last, entry);
        self.others = if entry < self.cpus && before < self.cpus {
            self.firsts.exchange(before, first, entry, self.others).min(self.of_machine)
        } else {
            self.change_machine(before, first, entry)
        };
    }

    /// The same where one of the two is the machine.
    #[inline(never)]
    fn change_machine(&mut self, before: usize, first: Key, entry: usize) -> Key {
        self.put(before, first);
        self.put(entry, NOTHING)
    }

    /// The earliest event, which is to be handled now.
    #[inline]
    pub fn earliest(&mut self) -> (Ns, Due) {
        let mut own = self.entries[self.last].first();
        if is_far(own.min(self.others)) {
            own = self.look_far();
            if is_far(own.min(self.others)) {
                return (NEVER, Due::Second);
            }
        }
        let first = own.min(self.others);
        let (entry, kind) = (entry_of(first), (first >> ENTRY_BITS & 7) as usize);
        if entry != self.last {
            self.change(entry, own);
        }
        (self.epoch + (first >> LOW_BITS) as Ns, Self::due(kind, entry))
    }

    /// The CPU of the last event; `None` where it was one of the machine.
    #[inline]
    pub fn cpu_of_last(&self) -> Option<Cpu> {
        (self.last < self.cpus).then_some(self.last)
    }

    /// The time of the earliest event, where others may still come before it.
    pub fn earliest_time(&self) -> Ns {
        let first = self.entries[self.last].first().min(self.others);
        if is_far(first) {
            return self.earliest_of_all();
        }
        self.epoch + (first >> LOW_BITS) as Ns
    }

    fn earliest_of_all(&self) -> Ns {
        self.entries.iter().flat_map(|e| e.times).min().unwrap_or(NEVER)
    }

    /// Nothing comes before [`FAR`]: what comes first makes another epoch. The earliest event of the
    /// last entry.
    #[cold]
    fn look_far(&mut self) -> Key {
        let first = self.earliest_of_all();
        if first == NEVER {
            return NOTHING;
        }
        self.epoch = first;
        for entry in 0..self.entries.len() {
            let e = &mut self.entries[entry];
            for (i, kind) in (if entry == self.cpus { OF_MACHINE } else { OF_CPU }).into_iter().enumerate() {
                e.keys[i] = key(e.times[i] - first, kind, entry);
            }
            if entry != self.last {
                self.note(entry);
            }
        }
        self.entries[self.last].first()
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
        self.entries[cpu].times[place(SEGMENT)]
    }
    /// Sets the end of the current run step on `cpu`.
    #[inline]
    pub fn set_segment_end(&mut self, cpu: Cpu, at: Ns) {
        self.set(cpu, SEGMENT, at);
    }
    /// Nothing runs on `cpu` that could end its run step.
    #[inline]
    pub fn clear_segment_end(&mut self, cpu: Cpu) {
        self.clear(cpu, SEGMENT);
    }
    /// The next tick of `cpu`.
    #[inline]
    pub fn tick(&self, cpu: Cpu) -> Ns {
        self.entries[cpu].times[place(TICK)]
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
        self.entries[cpu].times[place(TIMER)]
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
    /// There is no slice on `cpu`.
    #[inline]
    pub fn clear_slice(&mut self, cpu: Cpu) {
        self.clear(cpu, SLICE);
    }
    /// No reschedule of `cpu` is due, and there is no slice on it.
    #[inline]
    pub fn begin_choice(&mut self, cpu: Cpu) {
        let e = &mut self.entries[cpu];
        (e.times[place(SLICE)], e.keys[place(SLICE)]) = (NEVER, NOTHING);
        (e.times[place(RESCHED)], e.keys[place(RESCHED)]) = (NEVER, NOTHING);
        if cpu != self.last {
            self.note(cpu);
        }
    }
    /// The next reschedule of `cpu`.
    #[inline]
    pub fn resched(&self, cpu: Cpu) -> Ns {
        self.entries[cpu].times[place(RESCHED)]
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
                    SEGMENT if at == NEVER => slots.clear_segment_end(cpu),
                    SLICE if at == NEVER => slots.clear_slice(cpu),
                    RESCHED if at == NEVER => {
                        slots.begin_choice(cpu);
                        model[SLICE][cpu] = NEVER;
                    }
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
