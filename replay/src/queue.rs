//! Queues that policies are made of. All are indexed by task, so that any task can be taken out in
//! place, and none allocates once it has grown to the number of tasks.

use crate::task::TaskId;

/// One value a task, created on first use.
#[derive(Clone, Debug, Default)]
pub struct TaskMap<T>(Vec<T>);

impl<T: Default> TaskMap<T> {
    /// An empty map.
    pub fn new() -> Self {
        TaskMap(Vec::new())
    }

    /// Makes room for `t`; [`std::ops::Index`] needs it to have been called before.
    pub fn ensure(&mut self, t: TaskId) -> &mut T {
        if self.0.len() <= t.index() {
            self.0.resize_with(t.index() + 1, T::default);
        }
        &mut self.0[t.index()]
    }

    /// The value of `t`, if there is one.
    pub fn get(&self, t: TaskId) -> Option<&T> {
        self.0.get(t.index())
    }

    /// All values with their tasks.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (TaskId, &mut T)> {
        self.0.iter_mut().enumerate().map(|(i, v)| (TaskId(i as u32), v))
    }
}

impl<T> std::ops::Index<TaskId> for TaskMap<T> {
    type Output = T;
    #[inline]
    fn index(&self, t: TaskId) -> &T {
        &self.0[t.index()]
    }
}

impl<T> std::ops::IndexMut<TaskId> for TaskMap<T> {
    #[inline]
    fn index_mut(&mut self, t: TaskId) -> &mut T {
        &mut self.0[t.index()]
    }
}

/// A set of small numbers, a bit each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    /// None of the first `n` numbers.
    pub fn none(n: usize) -> Self {
        Bits(vec![0; n.div_ceil(64)])
    }

    /// Puts a number in, or takes it out.
    #[inline]
    pub fn set(&mut self, number: usize, on: bool) {
        let bit = 1 << (number % 64);
        let word = &mut self.0[number / 64];
        *word = if on { *word | bit } else { *word & !bit };
    }

    /// The words, least numbers first.
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    /// The numbers in it, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(at * 64 + bit)
            })
        })
    }
}

const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    prev: u32,
    next: u32,
    list: u32,
}

impl Default for Link {
    fn default() -> Self {
        Link { prev: NIL, next: NIL, list: NIL }
    }
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    head: u32,
    tail: u32,
    len: u32,
}

/// Doubly linked lists of tasks; a task is in at most one of them. Every operation is O(1).
#[derive(Clone, Debug, Default)]
pub struct Lists {
    links: Vec<Link>,
    ends: Vec<Ends>,
    occupied: Bits,
}

impl Lists {
    /// `n` empty lists.
    pub fn new(n: usize) -> Self {
        Lists { links: Vec::new(), ends: vec![Ends { head: NIL, tail: NIL, len: 0 }; n], occupied: Bits::none(n) }
    }

    /// Number of lists.
    pub fn lists(&self) -> usize {
        self.ends.len()
    }

    /// The lists that hold a task, in order; empty ones are not looked at.
    pub fn occupied(&self) -> impl Iterator<Item = usize> + '_ {
        self.occupied.iter()
    }

    /// Number of tasks in `list`.
    #[inline]
    pub fn len(&self, list: usize) -> usize {
        self.ends[list].len as usize
    }

    /// True when `list` is empty.
    #[inline]
    pub fn is_empty(&self, list: usize) -> bool {
        self.ends[list].len == 0
    }

    /// The list that holds `t`.
    #[inline]
    pub fn list_of(&self, t: TaskId) -> Option<usize> {
        self.links.get(t.index()).and_then(|l| (l.list != NIL).then_some(l.list as usize))
    }

    fn link(&mut self, t: TaskId, list: usize) {
        if self.links.len() <= t.index() {
            self.links.resize(t.index() + 1, Link::default());
        }
        debug_assert_eq!(self.links[t.index()].list, NIL, "a task is in one list at most");
        self.links[t.index()].list = list as u32;
        self.ends[list].len += 1;
        if self.ends[list].len == 1 {
            self.occupied.set(list, true);
        }
    }

    /// Adds `t` at the tail.
    pub fn push_back(&mut self, list: usize, t: TaskId) {
        self.link(t, list);
        let tail = self.ends[list].tail;
        self.links[t.index()].prev = tail;
        self.links[t.index()].next = NIL;
        match tail {
            NIL => self.ends[list].head = t.0,
            tail => self.links[tail as usize].next = t.0,
        }
        self.ends[list].tail = t.0;
    }

    /// Adds `t` at the head.
    pub fn push_front(&mut self, list: usize, t: TaskId) {
        self.link(t, list);
        let head = self.ends[list].head;
        self.links[t.index()].next = head;
        self.links[t.index()].prev = NIL;
        match head {
            NIL => self.ends[list].tail = t.0,
            head => self.links[head as usize].prev = t.0,
        }
        self.ends[list].head = t.0;
    }

    /// Adds `t` just before `at`, in the list of `at`.
    pub fn insert_before(&mut self, at: TaskId, t: TaskId) {
        let here = self.links[at.index()];
        debug_assert_ne!(here.list, NIL, "the anchor is in a list");
        if here.prev == NIL {
            return self.push_front(here.list as usize, t);
        }
        self.link(t, here.list as usize);
        self.links[t.index()].prev = here.prev;
        self.links[t.index()].next = at.0;
        self.links[here.prev as usize].next = t.0;
        self.links[at.index()].prev = t.0;
    }

    /// Takes `t` out of its list; false when it is in none.
    pub fn remove(&mut self, t: TaskId) -> bool {
        let Some(list) = self.list_of(t) else { return false };
        let Link { prev, next, .. } = self.links[t.index()];
        match prev {
            NIL => self.ends[list].head = next,
            prev => self.links[prev as usize].next = next,
        }
        match next {
            NIL => self.ends[list].tail = prev,
            next => self.links[next as usize].prev = prev,
        }
        self.ends[list].len -= 1;
        if self.ends[list].len == 0 {
            self.occupied.set(list, false);
        }
        self.links[t.index()].list = NIL;
        true
    }

    /// The task at the head.
    #[inline]
    pub fn front(&self, list: usize) -> Option<TaskId> {
        let head = self.ends[list].head;
        (head != NIL).then_some(TaskId(head))
    }

    /// Takes the task at the head.
    pub fn pop_front(&mut self, list: usize) -> Option<TaskId> {
        let t = self.front(list)?;
        self.remove(t);
        Some(t)
    }

    /// The tasks of `list` from head to tail.
    pub fn iter(&self, list: usize) -> impl Iterator<Item = TaskId> + '_ {
        let mut at = self.ends[list].head;
        std::iter::from_fn(move || {
            let here = (at != NIL).then_some(TaskId(at))?;
            at = self.links[at as usize].next;
            Some(here)
        })
    }
}

/// Priority levels, each a FIFO list, with a bitmap to find the best one. Level 0 is the best.
#[derive(Clone, Debug, Default)]
pub struct Levels {
    lists: Lists,
    bits: Vec<u64>,
    len: usize,
}

impl Levels {
    /// `n` empty levels.
    pub fn new(n: usize) -> Self {
        Levels { lists: Lists::new(n), bits: vec![0; n.div_ceil(64)], len: 0 }
    }

    /// Number of tasks in all levels.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when no level holds a task.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of tasks in `level`.
    pub fn level_len(&self, level: usize) -> usize {
        self.lists.len(level)
    }

    /// The level of `t`, when it is queued.
    pub fn level_of(&self, t: TaskId) -> Option<usize> {
        self.lists.list_of(t)
    }

    /// Adds `t` at the tail of `level`.
    pub fn push_back(&mut self, level: usize, t: TaskId) {
        self.lists.push_back(level, t);
        self.bits[level / 64] |= 1 << (level % 64);
        self.len += 1;
    }

    /// Adds `t` at the head of `level`.
    pub fn push_front(&mut self, level: usize, t: TaskId) {
        self.lists.push_front(level, t);
        self.bits[level / 64] |= 1 << (level % 64);
        self.len += 1;
    }

    /// Adds `t` just before `at`, in the level of `at`.
    pub fn insert_before(&mut self, at: TaskId, t: TaskId) {
        self.lists.insert_before(at, t);
        self.len += 1;
    }

    /// Takes `t` out; false when it is not queued.
    pub fn remove(&mut self, t: TaskId) -> bool {
        let Some(level) = self.lists.list_of(t) else { return false };
        self.lists.remove(t);
        self.len -= 1;
        if self.lists.is_empty(level) {
            self.bits[level / 64] &= !(1 << (level % 64));
        }
        true
    }

    /// The best level that holds a task, at `from` or behind it.
    pub fn best_from(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.bits.get(word)? & (u64::MAX << (from % 64));
        loop {
            if bits != 0 {
                return Some(word * 64 + bits.trailing_zeros() as usize);
            }
            word += 1;
            bits = *self.bits.get(word)?;
        }
    }

    /// The best level that holds a task.
    #[inline]
    pub fn best(&self) -> Option<usize> {
        self.best_from(0)
    }

    /// The task at the head of the best level.
    pub fn front(&self) -> Option<TaskId> {
        self.lists.front(self.best()?)
    }

    /// The task at the head of `level`.
    pub fn level_front(&self, level: usize) -> Option<TaskId> {
        self.lists.front(level)
    }

    /// Takes the task at the head of the best level.
    pub fn pop_front(&mut self) -> Option<TaskId> {
        let t = self.front()?;
        self.remove(t);
        Some(t)
    }

    /// Takes the best task that `fits`: the first one but for tasks that may not run everywhere,
    /// past which it walks.
    pub fn pop_fitting(&mut self, fits: impl Fn(TaskId) -> bool) -> Option<TaskId> {
        let t = self.iter_all().find(|&t| fits(t))?;
        self.remove(t);
        Some(t)
    }

    /// The tasks of `level` from head to tail.
    pub fn iter(&self, level: usize) -> impl Iterator<Item = TaskId> + '_ {
        self.lists.iter(level)
    }

    /// All queued tasks, best level first.
    pub fn iter_all(&self) -> impl Iterator<Item = TaskId> + '_ {
        let levels = std::iter::successors(self.best(), |level| self.best_from(level + 1));
        levels.flat_map(|level| self.lists.iter(level))
    }
}

/// Tasks ordered by a key; equal keys in order of insertion. A four-way heap that knows where each task is:
/// insertion and removal O(log n), the first task O(1).
#[derive(Clone, Debug)]
pub struct Ordered<K> {
    heap: Vec<(K, u64, u32)>,
    at: Vec<u32>,
    seq: u64,
}

impl<K> Default for Ordered<K> {
    fn default() -> Self {
        Ordered { heap: Vec::new(), at: Vec::new(), seq: 0 }
    }
}

impl<K: Copy + Ord> Ordered<K> {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of tasks.
    #[inline]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True when there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// True when `t` is queued.
    #[inline]
    pub fn contains(&self, t: TaskId) -> bool {
        self.at.get(t.index()).is_some_and(|&i| i != NIL)
    }

    /// The key of `t`, when it is queued.
    pub fn key(&self, t: TaskId) -> Option<K> {
        let i = *self.at.get(t.index())?;
        (i != NIL).then(|| self.heap[i as usize].0)
    }

    /// Adds `t`, behind all with the same key.
    pub fn insert(&mut self, key: K, t: TaskId) {
        if self.at.len() <= t.index() {
            self.at.resize(t.index() + 1, NIL);
        }
        debug_assert_eq!(self.at[t.index()], NIL, "a task is queued once");
        self.seq += 1;
        self.heap.push((key, self.seq, t.0));
        self.up(self.heap.len() - 1);
    }

    /// Takes `t` out and returns its key.
    #[inline(always)]
    pub fn remove(&mut self, t: TaskId) -> Option<K> {
        let i = *self.at.get(t.index())?;
        (i != NIL).then(|| self.take(i as usize))
    }

    /// Takes out what is at place `i` of the heap.
    #[inline(never)]
    fn take(&mut self, i: usize) -> K {
        let gone = self.heap.swap_remove(i);
        self.at[gone.2 as usize] = NIL;
        if i < self.heap.len() {
            if i > 0 && self.less(i, (i - 1) / 4) {
                self.up(i);
            } else {
                self.down(i);
            }
        }
        gone.0
    }

    /// The first task and its key.
    #[inline]
    pub fn first(&self) -> Option<(K, TaskId)> {
        self.heap.first().map(|&(k, _, t)| (k, TaskId(t)))
    }

    /// Takes the first task.
    pub fn pop(&mut self) -> Option<(K, TaskId)> {
        let first = self.first()?;
        self.remove(first.1);
        Some(first)
    }

    /// Takes the first task that `fits`. Where the very first does not, all are looked at.
    pub fn pop_fitting(&mut self, fits: impl Fn(TaskId) -> bool) -> Option<(K, TaskId)> {
        let first = self.heap.first().filter(|e| fits(TaskId(e.2)));
        let fitting = || self.heap.iter().filter(|e| fits(TaskId(e.2))).min_by_key(|e| (e.0, e.1));
        let &(key, _, t) = first.or_else(fitting)?;
        self.remove(TaskId(t));
        Some((key, TaskId(t)))
    }

    /// All entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (K, TaskId)> + '_ {
        self.heap.iter().map(|&(k, _, t)| (k, TaskId(t)))
    }

    #[inline]
    fn less(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.heap[a], &self.heap[b]);
        (a.0, a.1) < (b.0, b.1)
    }

    fn up(&mut self, mut i: usize) {
        let item = self.heap[i];
        while i > 0 {
            let parent = (i - 1) / 4;
            let above = self.heap[parent];
            if (above.0, above.1) <= (item.0, item.1) {
                break;
            }
            self.heap[i] = above;
            self.at[above.2 as usize] = i as u32;
            i = parent;
        }
        self.heap[i] = item;
        self.at[item.2 as usize] = i as u32;
    }

    fn down(&mut self, mut i: usize) {
        let item = self.heap[i];
        let len = self.heap.len();
        loop {
            let from = 4 * i + 1;
            if from >= len {
                break;
            }
            let children = &self.heap[from..(from + 4).min(len)];
            let (mut best, mut below) = (from, children[0]);
            for (n, child) in children.iter().enumerate().skip(1) {
                if (child.0, child.1) < (below.0, below.1) {
                    (best, below) = (from + n, *child);
                }
            }
            if (item.0, item.1) <= (below.0, below.1) {
                break;
            }
            self.heap[i] = below;
            self.at[below.2 as usize] = i as u32;
            i = best;
        }
        self.heap[i] = item;
        self.at[item.2 as usize] = i as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn ordered_agrees_with_a_sorted_vector(ops in prop::collection::vec((0u8..3, 0u32..40, 0i64..10), 1..300)) {
            let mut queue = Ordered::new();
            let mut model: Vec<(i64, usize, u32)> = Vec::new();
            for (n, (op, t, key)) in ops.into_iter().enumerate() {
                let known = model.iter().position(|m| m.2 == t);
                match (op, known) {
                    (0 | 1, None) => {
                        queue.insert(key, TaskId(t));
                        model.push((key, n, t));
                    }
                    (2, Some(i)) => prop_assert_eq!(queue.remove(TaskId(t)), Some(model.remove(i).0)),
                    (2, None) => prop_assert_eq!(queue.remove(TaskId(t)), None),
                    _ => {}
                }
                model.sort_unstable();
                prop_assert_eq!(queue.first(), model.first().map(|m| (m.0, TaskId(m.2))));
                prop_assert_eq!(queue.len(), model.len());
            }
            for m in model {
                prop_assert_eq!(queue.pop(), Some((m.0, TaskId(m.2))));
            }
        }

        #[test]
        fn levels_agree_with_deques(ops in prop::collection::vec((0u8..5, 0u32..30, 0usize..130), 1..300)) {
            let mut levels = Levels::new(130);
            let mut model: Vec<VecDeque<u32>> = vec![VecDeque::new(); 130];
            for (op, t, level) in ops {
                let known = model.iter().position(|l| l.contains(&t));
                match (op, known) {
                    (0, None) => { levels.push_back(level, TaskId(t)); model[level].push_back(t); }
                    (1, None) => { levels.push_front(level, TaskId(t)); model[level].push_front(t); }
                    (2, Some(l)) => { prop_assert!(levels.remove(TaskId(t))); model[l].retain(|&x| x != t); }
                    (3, None) => if let Some(&at) = model[level].get(model[level].len() / 2) {
                        levels.insert_before(TaskId(at), TaskId(t));
                        let i = model[level].len() / 2;
                        model[level].insert(i, t);
                    },
                    (4, _) => if let Some(l) = model.iter().position(|l| !l.is_empty()) {
                        prop_assert_eq!(levels.pop_front(), model[l].pop_front().map(TaskId));
                    },
                    _ => {}
                }
                let all: Vec<u32> = model.iter().flatten().copied().collect();
                prop_assert_eq!(levels.iter_all().map(|t| t.0).collect::<Vec<_>>(), all);
                prop_assert_eq!(levels.best(), model.iter().position(|l| !l.is_empty()));
            }
        }
    }
}
