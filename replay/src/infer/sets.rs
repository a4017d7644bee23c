//! What belongs together, told pair by pair.

use std::collections::{BTreeMap, BTreeSet};

/// Numbered things, each in one set: at first by itself.
#[derive(Default)]
pub(super) struct Sets {
    parent: Vec<usize>,
}

impl Sets {
    /// So many things.
    pub fn new(n: usize) -> Self {
        Sets { parent: (0..n).collect() }
    }

    /// One more; its number.
    pub fn add(&mut self) -> usize {
        self.parent.push(self.parent.len());
        self.parent.len() - 1
    }

    /// The least number in the set of this one.
    pub fn first(&self, mut i: usize) -> usize {
        while self.parent[i] != i {
            i = self.parent[i];
        }
        i
    }

    /// These two belong together.
    pub fn join(&mut self, one: usize, other: usize) {
        let (a, b) = (self.first(one), self.first(other));
        self.parent[a.max(b)] = a.min(b);
    }

    /// The sets of `all`, in the order of their least numbers.
    pub fn of(&self, all: impl Iterator<Item = usize>) -> Vec<BTreeSet<usize>> {
        let mut sets: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for i in all {
            sets.entry(self.first(i)).or_default().insert(i);
        }
        sets.into_values().collect()
    }
}
