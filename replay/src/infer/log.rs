//! What a walk found out, as a list that walks with the same past share.

use std::rc::Rc;

use super::routes::Past;
use super::{Mark, Message};
use crate::history::TaskIndex;
use crate::task::Ns;

/// One finding, or a correction of an earlier one.
#[derive(Clone, Debug)]
pub(super) enum Said {
    /// A task did this.
    Mark(TaskIndex, Ns, Mark),
    /// What the task took at its n-th mark was this message.
    Matched(TaskIndex, usize, u32),
    /// The n-th mark of the task was no later than this.
    Earlier(TaskIndex, usize, Ns),
    /// One message more.
    Message(Message),
    /// Somebody took this message.
    Taken(u32),
    /// This message went to that station, or to a task's own queue.
    Went(u32, Option<usize>),
    /// This wakeup is about that message.
    Wake(u32, u32),
    /// What was thought to be one request is another, which had come so far.
    Same(u32, u32, Past),
    /// A request with this past went to that station.
    Learnt(Past, usize),
}

/// Findings at most that stand together: a list of one each is allocated and freed one by one.
const TOGETHER: usize = 256;

/// A finding, and those behind it until somebody took a copy.
#[derive(Debug)]
struct Node {
    said: Said,
    more: Vec<Said>,
    before: Log,
}

/// Findings, latest first; a copy costs nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Log(Option<Rc<Node>>);

impl Log {
    pub fn push(&mut self, said: Said) {
        match self.0.as_mut().and_then(Rc::get_mut) {
            // Nobody else has these.
            Some(node) if node.more.len() < TOGETHER => node.more.push(said),
            _ => {
                let before = std::mem::take(self);
                self.0 = Some(Rc::new(Node { said, more: Vec::new(), before }));
            }
        }
    }

    /// All of them, earliest first.
    pub fn all(&self) -> Vec<&Said> {
        let mut found = Vec::new();
        let mut at = &self.0;
        while let Some(node) = at {
            found.extend(node.more.iter().rev());
            found.push(&node.said);
            at = &node.before.0;
        }
        found.reverse();
        found
    }
}

impl Drop for Log {
    /// One after the other: the list may be too long to drop it by recursion.
    fn drop(&mut self) {
        let mut at = self.0.take();
        while let Some(mut node) = at.and_then(|rc| Rc::try_unwrap(rc).ok()) {
            at = node.before.0.take();
        }
    }
}

/// Values that walks with the same past share: chunks of chunks, so that a copy looks at few of
/// them, and a change copies few values.
#[derive(Clone, Debug)]
pub(super) struct Shared<T> {
    chunks: Vec<Rc<Vec<Rc<Vec<T>>>>>,
    len: usize,
}

/// Values in a chunk, and chunks together.
const CHUNK: usize = 16;
const CHUNKS: usize = 64;

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Shared { chunks: Vec::new(), len: 0 }
    }
}

/// Where the `i`-th value stands.
fn place(i: usize) -> (usize, usize, usize) {
    (i / (CHUNK * CHUNKS), i / CHUNK % CHUNKS, i % CHUNK)
}

impl<T: Clone> Shared<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn push(&mut self, value: T) {
        if self.len.is_multiple_of(CHUNK * CHUNKS) {
            self.chunks.push(Rc::default());
        }
        let Some(last) = self.chunks.last_mut().map(Rc::make_mut) else { return };
        if self.len.is_multiple_of(CHUNK) {
            last.push(Rc::new(Vec::with_capacity(CHUNK)));
        }
        if let Some(last) = last.last_mut() {
            Rc::make_mut(last).push(value);
            self.len += 1;
        }
    }

    pub fn get(&self, i: usize) -> Option<&T> {
        let (a, b, c) = place(i);
        self.chunks.get(a)?.get(b)?.get(c)
    }

    pub fn swap(&mut self, i: usize, j: usize) {
        let (a, b) = (self[i].clone(), self[j].clone());
        self[i] = b;
        self[j] = a;
    }
}

impl<T> std::ops::Index<usize> for Shared<T> {
    type Output = T;

    fn index(&self, i: usize) -> &T {
        let (a, b, c) = place(i);
        &self.chunks[a][b][c]
    }
}

impl<T: Clone> std::ops::IndexMut<usize> for Shared<T> {
    fn index_mut(&mut self, i: usize) -> &mut T {
        let (a, b, c) = place(i);
        &mut Rc::make_mut(&mut Rc::make_mut(&mut self.chunks[a])[b])[c]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_the_past_and_differ_behind_it() {
        let mut a = Log::default();
        for i in 0..200_000 {
            a.push(Said::Taken(i));
        }
        let mut b = a.clone();
        a.push(Said::Taken(1));
        b.push(Said::Taken(2));
        let last = |log: &Log| match log.all().last() {
            Some(Said::Taken(i)) => *i,
            _ => u32::MAX,
        };
        assert_eq!((last(&a), last(&b), a.all().len()), (1, 2, 200_001));
    }

    #[test]
    fn all_are_in_the_order_in_which_they_were_found() {
        // With copies between them, some of which go on and some of which are gone again.
        let (mut log, mut kept) = (Log::default(), Vec::new());
        for i in 0..3_000 {
            log.push(Said::Taken(i));
            if i % 700 == 1 {
                let mut copy = log.clone();
                copy.push(Said::Taken(u32::MAX));
                kept.extend((i % 1400 == 1).then_some(copy));
            }
        }
        let numbers = |log: &Log| -> Vec<u32> {
            let number = |said: &&Said| if let Said::Taken(i) = said { Some(*i) } else { None };
            log.all().iter().filter_map(number).collect()
        };
        assert!(numbers(&log).into_iter().eq(0..3_000));
        for (copy, behind) in kept.iter().zip([1, 1401, 2801]) {
            assert!(numbers(copy).into_iter().eq((0..=behind).chain([u32::MAX])));
        }
        assert_eq!(kept.len(), 3);
    }

    #[test]
    fn a_shared_value_changes_in_one_copy_only() {
        let mut a = Shared::default();
        for i in 0..4000 {
            a.push(i);
        }
        let mut b = a.clone();
        b[1717] = 99;
        b.swap(0, 3999);
        b.push(7);
        assert_eq!((a[1717], b[1717], a[0], b[0], a.len(), a.get(4000)), (1717, 99, 0, 3999, 4000, None));
        assert_eq!((b.len(), b.get(4000)), (4001, Some(&7)));
    }
}
