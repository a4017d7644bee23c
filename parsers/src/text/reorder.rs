//! Lines of per-CPU buffers come in blocks, one CPU after the other: [`LineSorter`] holds them back
//! until no earlier one can come, and gives them out in time order.
//!
//! Only the bytes and the time of a line are held, in one buffer; a parser takes the line apart
//! when it comes out.

/// Beyond this many held lines the older half is given out, whatever the watermark says.
const MOST_HELD: usize = 1 << 22;

#[derive(Clone, Copy, Debug)]
struct Held {
    ts: i64,
    /// Place in the source: the tie-break.
    order: u64,
    /// Line number in the source.
    number: u64,
    start: usize,
    len: usize,
}

/// A line that comes out in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sorted<'a> {
    /// Its time.
    pub ts: i64,
    /// Its line number.
    pub number: u64,
    /// True when it comes after a later line was given out already.
    pub late: bool,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Sorts lines by time within a window that the caller moves; equal times keep the order of the source.
#[derive(Debug, Default)]
pub struct LineSorter {
    arena: Vec<u8>,
    held: Vec<Held>,
    /// Lines that may come out, last first.
    ready: Vec<Held>,
    ready_arena: Vec<u8>,
    order: u64,
    newest: Option<i64>,
    given: Option<i64>,
    /// Lines that stood after a line of a later time.
    pub displaced: u64,
}

impl LineSorter {
    /// An empty sorter.
    pub fn new() -> Self {
        Self::default()
    }

    /// Holds a line.
    pub fn push(&mut self, ts: i64, number: u64, bytes: &[u8]) {
        if self.newest.is_some_and(|newest| ts < newest) {
            self.displaced += 1;
        } else {
            self.newest = Some(ts);
        }
        let start = self.arena.len();
        self.arena.extend_from_slice(bytes);
        self.held.push(Held { ts, order: self.order, number, start, len: bytes.len() });
        self.order += 1;
    }

    /// The latest time held so far.
    pub fn newest(&self) -> Option<i64> {
        self.newest
    }

    /// How many lines are held back.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// True when [`Self::pop`] has something to give.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Nothing earlier than `up_to` can come any more: lines up to there may come out.
    pub fn release(&mut self, up_to: i64) {
        self.held.sort_by_key(|h| (h.ts, h.order));
        let mut n = self.held.partition_point(|h| h.ts <= up_to);
        if self.held.len() - n > MOST_HELD {
            n = self.held.len() / 2;
        }
        self.hand_over(n);
    }

    /// The source is at its end: every line may come out.
    pub fn release_all(&mut self) {
        self.release(i64::MAX);
    }

    /// Forgets the times seen so far: what follows belongs to another capture.
    pub fn restart(&mut self) {
        self.release_all();
        self.newest = None;
    }

    /// The next line.
    pub fn pop(&mut self) -> Option<Sorted<'_>> {
        let h = self.ready.pop()?;
        let late = self.given.is_some_and(|given| h.ts < given);
        self.given = Some(self.given.map_or(h.ts, |given| given.max(h.ts)));
        let bytes = &self.ready_arena[h.start..h.start + h.len];
        Some(Sorted { ts: h.ts, number: h.number, late, bytes })
    }

    /// Moves the first `n` held lines to the ready ones; the caller has drained those, or they stay
    /// before the new.
    fn hand_over(&mut self, n: usize) {
        if n == 0 {
            return;
        }
        if self.ready.is_empty() {
            self.ready_arena.clear();
        }
        let mut moved: Vec<Held> = Vec::with_capacity(n + self.ready.len());
        for mut h in self.held.drain(..n).rev() {
            let start = self.ready_arena.len();
            self.ready_arena.extend_from_slice(&self.arena[h.start..h.start + h.len]);
            h.start = start;
            moved.push(h);
        }
        moved.append(&mut self.ready);
        self.ready = moved;
        let kept: usize = self.held.iter().map(|h| h.len).sum();
        let mut arena = Vec::with_capacity(kept);
        for h in &mut self.held {
            let start = arena.len();
            arena.extend_from_slice(&self.arena[h.start..h.start + h.len]);
            h.start = start;
        }
        self.arena = arena;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drain(s: &mut LineSorter) -> Vec<(i64, u64, bool)> {
        let mut out = Vec::new();
        while let Some(line) = s.pop() {
            assert_eq!(line.bytes, format!("{}@{}", line.ts, line.number).as_bytes());
            out.push((line.ts, line.number, line.late));
        }
        out
    }

    fn push(s: &mut LineSorter, ts: i64, number: u64) {
        s.push(ts, number, format!("{ts}@{number}").as_bytes());
    }

    #[test]
    fn what_comes_after_its_time_is_called_late() {
        let mut s = LineSorter::new();
        push(&mut s, 10, 1);
        push(&mut s, 30, 2);
        s.release(20);
        assert_eq!(drain(&mut s), [(10, 1, false)]);
        push(&mut s, 30, 3);
        push(&mut s, 5, 4);
        s.release_all();
        assert_eq!(drain(&mut s), [(5, 4, true), (30, 2, false), (30, 3, false)]);
        assert_eq!(s.displaced, 1);
    }

    #[test]
    fn lines_not_yet_taken_stay_before_newer_ones() {
        let mut s = LineSorter::new();
        push(&mut s, 1, 1);
        push(&mut s, 2, 2);
        s.release(1);
        push(&mut s, 3, 3);
        s.release(3);
        assert_eq!(drain(&mut s), [(1, 1, false), (2, 2, false), (3, 3, false)]);
    }

    proptest! {
        /// Blocks of several CPUs with a watermark that trails by more than a block come out as if
        /// sorted at once.
        #[test]
        fn blocks_come_out_sorted(cpus in prop::collection::vec(prop::collection::vec(0i64..100, 0..20), 1..5), rounds in 1i64..6) {
            let mut s = LineSorter::new();
            let (mut all, mut got, mut number) = (Vec::new(), Vec::new(), 0);
            for round in 0..rounds {
                for cpu in &cpus {
                    let mut times: Vec<_> = cpu.iter().map(|t| t + 100 * round).collect();
                    times.sort_unstable();
                    for t in times {
                        number += 1;
                        all.push((t, number, false));
                        push(&mut s, t, number);
                    }
                }
                s.release(100 * round - 1);
                got.extend(drain(&mut s));
            }
            s.release_all();
            got.extend(drain(&mut s));
            all.sort_by_key(|(t, n, _)| (*t, *n));
            prop_assert_eq!(got, all);
        }
    }
}
