//! The queues of one CPU: two arrays that change places (2004), or interactive levels and a calendar (2022).

use crate::queue::Levels;
use crate::task::TaskId;

/// Where a thread goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// An array of 2004: the one that is served, or the next.
    Array { next: bool, level: usize },
    /// An interactive level of 2022.
    Realtime { level: usize },
    /// A slot of the calendar of 2022.
    Calendar { slot: usize },
}

const SLOTS: usize = 64;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    arrays: [Levels; 2],
    served: usize,
    realtime: Levels,
    slots: Levels,
    /// Where threads are put in relation to, and taken from.
    insert: usize,
    remove: usize,
}

impl Queues {
    pub(super) fn new() -> Self {
        Queues {
            arrays: [Levels::new(64), Levels::new(64)],
            served: 0,
            realtime: Levels::new(64),
            slots: Levels::new(SLOTS),
            insert: 0,
            remove: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.arrays.iter().all(Levels::is_empty) && self.realtime.is_empty() && self.slots.is_empty()
    }

    /// The slot for a priority `ahead` slots behind the best; a preempted thread goes to the head
    /// of what is served now.
    pub(super) fn calendar(&self, ahead: usize, front: bool) -> Place {
        if front {
            return Place::Calendar { slot: self.remove };
        }
        let mut slot = (ahead + self.insert) % SLOTS;
        if self.remove != self.insert && slot == self.remove {
            slot = (slot + SLOTS - 1) % SLOTS;
        }
        Place::Calendar { slot }
    }

    pub(super) fn put(&mut self, place: Place, t: TaskId, front: bool) {
        let (levels, level) = match place {
            Place::Array { next, level } => (&mut self.arrays[self.served ^ usize::from(next)], level),
            Place::Realtime { level } => (&mut self.realtime, level),
            Place::Calendar { slot } => (&mut self.slots, slot),
        };
        if front {
            levels.push_front(level, t);
        } else {
            levels.push_back(level, t);
        }
    }

    pub(super) fn remove(&mut self, t: TaskId) -> bool {
        if self.arrays[0].remove(t) || self.arrays[1].remove(t) || self.realtime.remove(t) {
            return true;
        }
        let Some(slot) = self.slots.level_of(t) else { return false };
        self.slots.remove(t);
        // The slot that is served has been drained.
        if self.insert != self.remove && slot == self.remove && self.slots.level_len(slot) == 0 {
            self.remove = (slot + 1) % SLOTS;
        }
        true
    }

    /// Takes the best thread that `fits`.
    pub(super) fn take(&mut self, fits: impl Fn(TaskId) -> bool) -> Option<TaskId> {
        if self.arrays[self.served].is_empty() {
            self.served ^= 1;
        }
        let arrays = [self.served, self.served ^ 1];
        let found = arrays
            .into_iter()
            .find_map(|a| self.arrays[a].iter_all().find(|&t| fits(t)))
            .or_else(|| self.realtime.iter_all().find(|&t| fits(t)))
            .or_else(|| (0..SLOTS).find_map(|i| self.slots.iter((self.remove + i) % SLOTS).find(|&t| fits(t))))?;
        self.remove(found);
        Some(found)
    }

    /// The thread that would be chosen.
    pub(super) fn first(&self) -> Option<TaskId> {
        self.realtime.front().or_else(|| (0..SLOTS).find_map(|i| self.slots.level_front((self.remove + i) % SLOTS)))
    }

    /// The thread that another CPU takes: the best interactive one; else the second of the
    /// calendar, from the slot that is served, then from the first slot again; else the first.
    pub(super) fn steal(&self, fits: impl Fn(TaskId) -> bool) -> Option<TaskId> {
        if let Some(t) = self.realtime.iter_all().find(|&t| fits(t)) {
            return Some(t);
        }
        let again = if self.remove == 0 { 0..0 } else { 0..SLOTS };
        let mut seen = None;
        for t in (self.remove..SLOTS).chain(again).flat_map(|slot| self.slots.iter(slot)) {
            if seen.is_some() && fits(t) {
                return Some(t);
            }
            seen = Some(t);
        }
        seen.filter(|&t| fits(t))
    }

    /// A statistics tick turns the calendar, once the slot that is served is empty.
    pub(super) fn advance(&mut self) {
        if self.insert == self.remove {
            self.insert = (self.insert + 1) % SLOTS;
            if self.slots.level_len(self.remove) == 0 {
                self.remove = self.insert;
            }
        }
    }
}
