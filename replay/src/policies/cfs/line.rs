//! What waits on a queue, by virtual time. Queues are short mostly, and both who leaves and who comes
//! are mostly near the front: the front is the end of a vector, and long queues are cut into blocks.

use crate::task::TaskId;

/// Most entries of a block. Results do not depend on it.
const BLOCK: usize = 64;

/// Where an entity waits: by virtual time, then by order of insertion, from 1. The default is nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    v: i64,
    nr: u64,
}

impl Place {
    /// It is a place in a queue.
    #[inline]
    pub fn is_queued(self) -> bool {
        self.nr != 0
    }
}

type Node = (Place, TaskId);

/// The waiting entities. Who queues one keeps its [`Place`].
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// The last in line first; one at least, and none is empty, but for the first where nothing waits.
    blocks: Vec<Vec<Node>>,
    nr: u64,
}

impl Default for Line {
    fn default() -> Self {
        Line { blocks: vec![Vec::new()], nr: 0 }
    }
}

impl Line {
    /// Adds `t`, behind all with the same virtual time.
    #[inline]
    pub fn insert(&mut self, v: i64, t: TaskId) -> Place {
        self.nr += 1;
        let place = Place { v, nr: self.nr };
        match &mut self.blocks[..] {
            [only] if only.len() < BLOCK => put(only, (place, t)),
            _ => self.insert_into_many((place, t)),
        }
        place
    }

    #[inline(never)]
    fn insert_into_many(&mut self, node: Node) {
        let at = self.block_of(node.0);
        let block = &mut self.blocks[at];
        put(block, node);
        if block.len() > BLOCK {
            let front = block.split_off(BLOCK / 2);
            self.blocks.insert(at + 1, front);
        }
    }

    /// The block in which `place` lies, or would.
    fn block_of(&self, place: Place) -> usize {
        let behind = |b: &Vec<Node>| b.first().is_none_or(|n| n.0 >= place);
        self.blocks.partition_point(behind).saturating_sub(1)
    }

    /// Takes out what is at `place`.
    #[inline]
    pub fn remove(&mut self, place: Place) {
        match &mut self.blocks[..] {
            [only] => take(only, place),
            _ => self.remove_from_many(place),
        }
    }

    #[inline(never)]
    fn remove_from_many(&mut self, place: Place) {
        let at = self.block_of(place);
        take(&mut self.blocks[at], place);
        let next = self.blocks.get(at + 1).map_or(BLOCK, Vec::len);
        if self.blocks[at].is_empty() {
            self.blocks.remove(at);
        } else if self.blocks[at].len() + next <= BLOCK / 2 {
            let next = self.blocks.remove(at + 1);
            self.blocks[at].extend(next);
        }
    }

    /// The first in line, and its virtual time.
    #[inline]
    pub fn first(&self) -> Option<(i64, TaskId)> {
        self.blocks.last()?.last().map(|n| (n.0.v, n.1))
    }

    /// The one behind it.
    pub fn second(&self) -> Option<TaskId> {
        self.blocks.iter().rev().flat_map(|b| b.iter().rev()).nth(1).map(|n| n.1)
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    /// The virtual time of the last in line.
    pub fn last(&self) -> Option<i64> {
        self.blocks.first()?.first().map(|n| n.0.v)
    }

    /// All that wait.
    pub fn iter(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.blocks.iter().flat_map(|b| b.iter().map(|n| n.1))
    }
}

/// Puts a node, whose place has the greatest number of all, behind all with the same virtual time.
#[inline]
fn put(block: &mut Vec<Node>, node: Node) {
    let mut at = block.len();
    block.push(node);
    while at > 0 && block[at - 1].0.v <= node.0.v {
        block[at] = block[at - 1];
        at -= 1;
    }
    block[at] = node;
}

#[inline]
fn take(block: &mut Vec<Node>, place: Place) {
    let at = block.iter().rposition(|n| n.0.nr == place.nr);
    debug_assert!(at.is_some_and(|at| block[at].0 == place), "it waits here");
    match at {
        Some(at) if at + 1 == block.len() => block.truncate(at),
        Some(at) => _ = block.remove(at),
        None => {}
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
            ops in prop::collection::vec((0u8..8, 0u32..300, 0i64..20), 1..1500),
            removals in 1u8..7,
        ) {
            let mut line = Line::default();
            let mut model: Vec<(i64, usize, u32, Place)> = Vec::new();
            for (n, (op, t, v)) in ops.into_iter().enumerate() {
                // More are put in than taken out, later the other way round.
                let more = if n < 700 { op >= removals / 2 } else { op > removals };
                match (more, model.iter().position(|m| m.2 == t)) {
                    (true, None) => {
                        let place = line.insert(v, TaskId(t));
                        prop_assert!(place.is_queued());
                        model.push((v, n, t, place));
                        model.sort_unstable();
                    }
                    (false, Some(i)) => line.remove(model.remove(i).3),
                    _ => {}
                }
                prop_assert_eq!(line.first(), model.first().map(|m| (m.0, TaskId(m.2))));
                prop_assert_eq!(line.second(), model.get(1).map(|m| TaskId(m.2)));
                prop_assert_eq!(line.last(), model.last().map(|m| m.0));
                prop_assert_eq!(line.is_empty(), model.is_empty());
            }
            let all: Vec<TaskId> = model.iter().rev().map(|m| TaskId(m.2)).collect();
            prop_assert_eq!(line.iter().collect::<Vec<_>>(), all);
        }
    }
}
