//! Tasks ordered by deadline, with the smallest vruntime of each subtree: finds the eligible task
//! with the earliest deadline in O(log n), as the augmented tree of the kernel does.

use crate::task::{Ns, TaskId};

const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    /// Deadline, then order of insertion.
    key: (Ns, u64),
    v: Ns,
    /// Smallest `v` in the subtree.
    min_v: Ns,
    left: u32,
    right: u32,
    rank: u32,
    task: TaskId,
    queued: bool,
}

/// A treap over tasks; ranks come from a fixed sequence, so equal inputs give equal trees.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// As many as tasks were ever queued at once, so that those of one queue lie together.
    nodes: Vec<Node>,
    /// Nodes that hold no task.
    free: Vec<u32>,
    /// The node of each task.
    places: Vec<u32>,
    root: u32,
    seq: u64,
}

impl Default for Tree {
    fn default() -> Self {
        Tree { nodes: Vec::new(), free: Vec::new(), places: Vec::new(), root: NIL, seq: 0 }
    }
}

impl Tree {
    fn place(&self, t: TaskId) -> Option<u32> {
        self.places.get(t.index()).copied().filter(|at| *at != NIL)
    }

    pub(super) fn contains(&self, t: TaskId) -> bool {
        self.place(t).is_some()
    }

    /// Smallest vruntime of all.
    pub(super) fn min_v(&self) -> Option<Ns> {
        (self.root != NIL).then(|| self.nodes[self.root as usize].min_v)
    }

    /// Adds `t`, behind all with the same deadline.
    pub(super) fn insert(&mut self, t: TaskId, deadline: Ns, v: Ns) {
        if self.places.len() <= t.index() {
            self.places.resize(t.index() + 1, NIL);
        }
        debug_assert!(!self.contains(t), "a task is queued once");
        self.seq += 1;
        let rank = (self.seq.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32;
        let node = Node { key: (deadline, self.seq), v, min_v: v, left: NIL, right: NIL, rank, task: t, queued: true };
        let at = match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        self.places[t.index()] = at;
        self.root = self.put(self.root, at);
    }

    /// Takes `t` out; false when it is not queued.
    pub(super) fn remove(&mut self, t: TaskId) -> bool {
        let Some(at) = self.place(t) else { return false };
        self.root = self.cut(self.root, at);
        self.nodes[at as usize].queued = false;
        self.places[t.index()] = NIL;
        self.free.push(at);
        true
    }

    /// The eligible task with the earliest deadline. `eligible` must be monotone: true for every
    /// smaller vruntime.
    pub(super) fn first_eligible(&self, eligible: impl Fn(Ns) -> bool) -> Option<TaskId> {
        let mut at = self.root;
        while at != NIL {
            let node = &self.nodes[at as usize];
            if node.left != NIL && eligible(self.nodes[node.left as usize].min_v) {
                at = node.left;
            } else if eligible(node.v) {
                return Some(node.task);
            } else {
                at = node.right;
            }
        }
        None
    }

    /// The first task in order of deadlines that `fits`.
    pub(super) fn find(&self, fits: impl Fn(TaskId) -> bool) -> Option<TaskId> {
        let mut stack = Vec::new();
        let mut at = self.root;
        while at != NIL || !stack.is_empty() {
            while at != NIL {
                stack.push(at);
                at = self.nodes[at as usize].left;
            }
            let here = stack.pop()?;
            let node = &self.nodes[here as usize];
            if fits(node.task) {
                return Some(node.task);
            }
            at = node.right;
        }
        None
    }

    /// All that are queued, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.nodes.iter().filter(|n| n.queued).map(|n| n.task)
    }

    fn update(&mut self, at: u32) {
        let node = self.nodes[at as usize];
        let mut min = node.v;
        for child in [node.left, node.right] {
            if child != NIL {
                min = min.min(self.nodes[child as usize].min_v);
            }
        }
        self.nodes[at as usize].min_v = min;
    }

    fn put(&mut self, at: u32, new: u32) -> u32 {
        if at == NIL {
            return new;
        }
        if self.nodes[new as usize].rank > self.nodes[at as usize].rank {
            let (left, right) = self.split(at, self.nodes[new as usize].key);
            self.nodes[new as usize].left = left;
            self.nodes[new as usize].right = right;
            self.update(new);
            return new;
        }
        if self.nodes[new as usize].key < self.nodes[at as usize].key {
            self.nodes[at as usize].left = self.put(self.nodes[at as usize].left, new);
        } else {
            self.nodes[at as usize].right = self.put(self.nodes[at as usize].right, new);
        }
        self.update(at);
        at
    }

    /// Splits the subtree into keys below `key` and the others.
    fn split(&mut self, at: u32, key: (Ns, u64)) -> (u32, u32) {
        if at == NIL {
            return (NIL, NIL);
        }
        if self.nodes[at as usize].key < key {
            let (left, right) = self.split(self.nodes[at as usize].right, key);
            self.nodes[at as usize].right = left;
            self.update(at);
            (at, right)
        } else {
            let (left, right) = self.split(self.nodes[at as usize].left, key);
            self.nodes[at as usize].left = right;
            self.update(at);
            (left, at)
        }
    }

    fn merge(&mut self, left: u32, right: u32) -> u32 {
        if left == NIL {
            return right;
        }
        if right == NIL {
            return left;
        }
        if self.nodes[left as usize].rank > self.nodes[right as usize].rank {
            self.nodes[left as usize].right = self.merge(self.nodes[left as usize].right, right);
            self.update(left);
            left
        } else {
            self.nodes[right as usize].left = self.merge(left, self.nodes[right as usize].left);
            self.update(right);
            right
        }
    }

    fn cut(&mut self, at: u32, gone: u32) -> u32 {
        if at == gone {
            let node = self.nodes[at as usize];
            return self.merge(node.left, node.right);
        }
        if self.nodes[gone as usize].key < self.nodes[at as usize].key {
            self.nodes[at as usize].left = self.cut(self.nodes[at as usize].left, gone);
        } else {
            self.nodes[at as usize].right = self.cut(self.nodes[at as usize].right, gone);
        }
        self.update(at);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_sorted_vector(ops in prop::collection::vec((0u8..3, 0u32..50, 0i64..20, 0i64..20), 1..400)) {
            let mut tree = Tree::default();
            let mut model: Vec<(i64, usize, i64, u32)> = Vec::new();
            for (n, (op, t, deadline, v)) in ops.into_iter().enumerate() {
                let known = model.iter().position(|m| m.3 == t);
                match (op, known) {
                    (0 | 1, None) => {
                        tree.insert(TaskId(t), deadline, v);
                        model.push((deadline, n, v, t));
                        model.sort_unstable();
                    }
                    (2, Some(i)) => {
                        prop_assert!(tree.remove(TaskId(t)));
                        model.remove(i);
                    }
                    (2, None) => prop_assert!(!tree.remove(TaskId(t))),
                    _ => {}
                }
                prop_assert_eq!(tree.iter().count(), model.len());
                prop_assert_eq!(tree.min_v(), model.iter().map(|m| m.2).min());
                for limit in [-1, 0, 7, 15, 20] {
                    let want = model.iter().find(|m| m.2 <= limit).map(|m| TaskId(m.3));
                    prop_assert_eq!(tree.first_eligible(|v| v <= limit), want);
                }
                let odd = model.iter().find(|m| m.3 % 2 == 1).map(|m| TaskId(m.3));
                prop_assert_eq!(tree.find(|t| t.0 % 2 == 1), odd);
            }
        }
    }
}
