//! Tasks ordered by deadline, in blocks that know their smallest vruntime: finds the eligible task
//! with the earliest deadline, as the augmented tree of the kernel does. Queues are short mostly,
//! and within one block nothing but neighbours is touched.

use std::cell::Cell;

use crate::task::{Ns, TaskId};

/// Most entries of a block. Results do not depend on it.
const BLOCK: usize = 64;
/// Up to so many a gap is closed one by one, and the smallest vruntime looked for on the way: that
/// takes less than to move them at once.
const FEW: usize = 16;

/// Where a task is queued: by deadline, then by order of insertion, from 1. The default is nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    deadline: Ns,
    nr: u64,
}

impl Place {
    /// It is a place in a queue.
    #[inline]
    pub(super) fn is_queued(self) -> bool {
        self.nr != 0
    }
}

#[derive(Clone, Copy, Debug)]
struct Node {
    place: Place,
    v: Ns,
    task: TaskId,
}

#[derive(Clone, Debug)]
struct Block {
    /// In order of their places, the last first: what is taken out is mostly one of the first, and
    /// what is put in mostly comes before many.
    nodes: Vec<Node>,
    /// Smallest `v`.
    min_v: Ns,
}

impl Block {
    fn of(nodes: Vec<Node>) -> Self {
        let mut block = Block { nodes, min_v: 0 };
        block.refresh();
        block
    }

    #[inline]
    fn refresh(&mut self) {
        self.min_v = self.nodes.iter().fold(Ns::MAX, |min, n| min.min(n.v));
    }

    /// Puts `node`, whose place has the greatest number of all, behind all with the same deadline.
    #[inline(always)]
    fn insert(&mut self, node: Node) -> usize {
        self.min_v = self.min_v.min(node.v);
        let mut at = self.nodes.len();
        self.nodes.push(node);
        // Mostly few move, which takes less than a call that moves them.
        let nodes = &mut self.nodes[..];
        while at > 0 && nodes[at - 1].place.deadline <= node.place.deadline {
            nodes[at] = nodes[at - 1];
            at -= 1;
        }
        nodes[at] = node;
        at
    }

    /// Takes out what is at `place`, and tells its vruntime. `guess` is where it may be found.
    #[inline(always)]
    fn take(&mut self, place: Place, guess: usize) -> Option<Ns> {
        let is = |n: &Node| n.place.nr == place.nr;
        let i = if self.nodes.get(guess).is_some_and(is) { guess } else { self.nodes.iter().position(is)? };
        if self.nodes[i].place != place {
            return None;
        }
        let gone = self.nodes[i].v;
        if self.nodes.len() > FEW {
            self.nodes.remove(i);
            if gone == self.min_v {
                self.refresh();
            }
            return Some(gone);
        }
        let (before, from) = self.nodes.split_at_mut(i);
        let mut min_v = before.iter().fold(Ns::MAX, |min, n| min.min(n.v));
        for at in 1..from.len() {
            min_v = min_v.min(from[at].v);
            from[at - 1] = from[at];
        }
        self.nodes.pop();
        self.min_v = min_v;
        Some(gone)
    }
}

/// The queued tasks. Who queues one keeps its [`Place`].
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// In order of their nodes; one at least, and none is empty, but for the first where nothing is
    /// queued.
    blocks: Vec<Block>,
    /// Smallest `v` of all, the greatest number where nothing is queued.
    min_v: Ns,
    nr: u64,
    /// Place within its block of what was put in or chosen last: that is mostly taken out next.
    last: Cell<usize>,
}

impl Default for Tree {
    fn default() -> Self {
        Tree { blocks: vec![Block::of(Vec::new())], min_v: Ns::MAX, nr: 0, last: Cell::new(0) }
    }
}

impl Tree {
    /// Smallest vruntime of all.
    #[inline]
    pub(super) fn min_v(&self) -> Option<Ns> {
        (self.min_v != Ns::MAX).then_some(self.min_v)
    }

    /// Nobody was queued after what is at `place`.
    #[inline]
    pub(super) fn came_last(&self, place: Place) -> bool {
        place.nr == self.nr
    }

    /// The block in which `place` lies, or would.
    fn block_of(&self, place: Place) -> usize {
        let from = |b: &Block| b.nodes.last().is_none_or(|n| n.place <= place);
        self.blocks.partition_point(from).saturating_sub(1)
    }

    /// Adds `t`, behind all with the same deadline.
    #[inline(always)]
    pub(super) fn insert(&mut self, t: TaskId, deadline: Ns, v: Ns) -> Place {
        self.nr += 1;
        let place = Place { deadline, nr: self.nr };
        let node = Node { place, v, task: t };
        self.min_v = self.min_v.min(v);
        match &mut self.blocks[..] {
            [only] if only.nodes.len() < BLOCK => self.last.set(only.insert(node)),
            _ => self.insert_into_many(place, v, t),
        }
        place
    }

    /// The same where there are several blocks, or will be. It is given the parts of the node: for
    /// a reference to it the short way would write it to memory in parts, and read it as a whole.
    #[inline(never)]
    fn insert_into_many(&mut self, place: Place, v: Ns, task: TaskId) {
        let node = Node { place, v, task };
        let at = self.block_of(node.place);
        let block = &mut self.blocks[at];
        block.insert(node);
        if block.nodes.len() > BLOCK {
            let lower = block.nodes.split_off(BLOCK / 2);
            block.refresh();
            self.blocks.insert(at, Block::of(lower));
        }
    }

    /// Takes out the task at `place`; false when it is none of this queue.
    pub(super) fn remove(&mut self, place: Place) -> bool {
        let [only] = &mut self.blocks[..] else { return self.remove_from_many(place) };
        let found = only.take(place, self.last.get()).is_some();
        self.min_v = only.min_v;
        found
    }

    #[inline(never)]
    fn remove_from_many(&mut self, place: Place) -> bool {
        let at = self.block_of(place);
        let Some(gone) = self.blocks[at].take(place, self.last.get()) else { return false };
        if self.blocks[at].nodes.is_empty() {
            self.blocks.remove(at);
        } else if let Some(next) = self.blocks.get(at + 1) {
            if self.blocks[at].nodes.len() + next.nodes.len() <= BLOCK / 2 {
                let before = self.blocks.remove(at);
                let block = &mut self.blocks[at];
                block.nodes.extend(before.nodes);
                block.min_v = block.min_v.min(before.min_v);
            }
        }
        if gone == self.min_v {
            self.min_v = self.blocks.iter().fold(Ns::MAX, |min, b| min.min(b.min_v));
        }
        true
    }

    /// The eligible task with the earliest deadline. `eligible` must be monotone: true for every
    /// smaller vruntime.
    #[inline]
    pub(super) fn first_eligible(&self, eligible: impl Fn(Ns) -> bool) -> Option<TaskId> {
        let block = match &self.blocks[..] {
            [only] => only,
            many => many.iter().find(|b| eligible(b.min_v))?,
        };
        let i = block.nodes.iter().rposition(|n| eligible(n.v))?;
        self.last.set(i);
        Some(block.nodes[i].task)
    }

    /// The task with the earliest deadline.
    #[inline]
    pub(super) fn first(&self) -> Option<TaskId> {
        self.blocks.first()?.nodes.last().map(|n| n.task)
    }

    /// All that are queued, by deadline.
    pub(super) fn iter(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.blocks.iter().flat_map(|b| b.nodes.iter().rev().map(|n| n.task))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_sorted_vector(
            // Enough for several blocks, which are split and joined.
            ops in prop::collection::vec((0u8..8, 0u32..300, 0i64..20, 0i64..20), 1..1500),
            removals in 1u8..7,
        ) {
            let mut tree = Tree::default();
            let mut places = std::collections::HashMap::new();
            let mut model: Vec<(i64, usize, i64, u32)> = Vec::new();
            for (n, (op, t, deadline, v)) in ops.into_iter().enumerate() {
                // More are put in than taken out, later the other way round.
                let more = if n < 700 { op >= removals / 2 } else { op > removals };
                let known = model.iter().position(|m| m.3 == t);
                match (more, known) {
                    (true, None) => {
                        places.insert(t, tree.insert(TaskId(t), deadline, v));
                        model.push((deadline, n, v, t));
                        model.sort_unstable();
                    }
                    (false, Some(i)) => {
                        prop_assert!(tree.remove(places[&t]));
                        prop_assert!(!tree.remove(places[&t]));
                        model.remove(i);
                    }
                    _ => {}
                }
                prop_assert_eq!(tree.min_v(), model.iter().map(|m| m.2).min());
                prop_assert_eq!(tree.first(), model.first().map(|m| TaskId(m.3)));
                for limit in [-1, 0, 7, 15, 20] {
                    let want = model.iter().find(|m| m.2 <= limit).map(|m| TaskId(m.3));
                    prop_assert_eq!(tree.first_eligible(|v| v <= limit), want);
                }
            }
            let all: Vec<TaskId> = model.iter().map(|m| TaskId(m.3)).collect();
            prop_assert_eq!(tree.iter().collect::<Vec<_>>(), all);
        }
    }
}
