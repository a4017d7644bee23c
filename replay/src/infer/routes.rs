//! Where messages go next: learnt from the visible ones, by the stations that their request has been at.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::rc::Rc;

/// Stations that a request has been at, most recent last.
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    all: u64,
    recent: [u16; 4],
    path: Option<Rc<Visit>>,
}

/// One station on the route, and how many were before.
#[derive(Debug)]
struct Visit {
    station: usize,
    nth: usize,
    before: Option<Rc<Visit>>,
}

/// Routes longer than this are not remembered as a whole.
const LONGEST: usize = 512;

impl PartialEq for Past {
    fn eq(&self, other: &Past) -> bool {
        (self.all, self.recent) == (other.all, other.recent)
    }
}

impl Eq for Past {}

impl Hash for Past {
    fn hash<H: Hasher>(&self, hash: &mut H) {
        (self.all, self.recent).hash(hash);
    }
}

/// Orders of context, longest first: everything, the last four, two, one.
const ORDERS: usize = 4;
/// Weight of the next shorter context.
const BACK: f64 = 0.5;

impl Past {
    pub fn visit(&mut self, station: usize) {
        self.all = (self.all ^ (station as u64 + 1)).wrapping_mul(0x100_0000_01b3).rotate_left(5);
        let nth = self.path.as_ref().map_or(0, |v| v.nth + 1);
        // Where the begin is missing, nothing is remembered.
        if nth < LONGEST && (nth > 0 || self.recent == [0; 4]) {
            self.path = Some(Rc::new(Visit { station, nth, before: self.path.take() }));
        } else {
            self.path = None;
        }
        self.recent.rotate_left(1);
        self.recent[3] = station as u16 + 1;
    }

    /// All stations, in order; none where there were too many.
    pub fn route(&self) -> Vec<usize> {
        let mut found = Vec::new();
        let mut at = &self.path;
        while let Some(visit) = at {
            found.push(visit.station);
            at = &visit.before;
        }
        found.reverse();
        found
    }

    /// What equal pasts have in common.
    pub fn id(&self) -> (u64, u64) {
        (self.all, self.key(1).1)
    }

    fn key(&self, order: usize) -> (u8, u64) {
        let of = |n: usize| self.recent[4 - n..].iter().fold(0u64, |k, s| k << 16 | u64::from(*s));
        match order {
            0 => (0, self.all),
            1 => (1, of(4)),
            2 => (2, of(2)),
            _ => (3, of(1)),
        }
    }
}

/// A hash of small numbers: nobody outside chooses them, so it need not withstand anybody.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }
}

/// Where requests that came by one route went, and how many.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// In the order in which they were first seen.
    targets: Vec<(usize, f64)>,
    /// Their places there, by number of the target.
    places: Vec<usize>,
    /// Sum over the targets, of [`weight`]s.
    all: f64,
}

impl Seen {
    fn find(&self, target: usize) -> Result<usize, usize> {
        self.places.binary_search_by_key(&target, |place| self.targets[*place].0)
    }

    fn hits(&self, target: usize) -> f64 {
        self.find(target).map_or(0.0, |i| self.targets[self.places[i]].1)
    }
}

type Counts = HashMap<(u8, u64), Seen, BuildHasherDefault<Mix>>;

/// Squares where all is known: a few requests that were mixed up must not make a route likely.
fn weight(order: usize, n: f64) -> f64 {
    if order == 0 {
        n * n
    } else {
        n
    }
}

/// Counts of where requests went.
#[derive(Clone, Debug, Default)]
pub(super) struct Routes {
    counts: Counts,
}

impl Routes {
    /// From the routes of requests that were handled to the end. Routes that hardly any request took
    /// count for less than their number: most of them are two requests that were mixed up.
    pub fn of_complete(taken: &[Vec<usize>]) -> Self {
        let mut number: BTreeMap<&[usize], f64> = BTreeMap::new();
        for route in taken {
            *number.entry(route).or_default() += 1.0;
        }
        let most = number.values().fold(1.0, |a: f64, b| a.max(*b));
        let mut routes = Routes::default();
        for (route, n) in number {
            let mut past = Past::default();
            for pair in route.windows(2) {
                past.visit(pair[0]);
                routes.count(&past, pair[1], n * (n / most).powi(2));
            }
        }
        routes
    }

    pub fn learn(&mut self, past: &Past, target: usize) {
        self.count(past, target, 1.0);
    }

    fn count(&mut self, past: &Past, target: usize, n: f64) {
        for order in 0..ORDERS {
            let seen = self.counts.entry(past.key(order)).or_default();
            match seen.find(target) {
                Ok(i) => seen.targets[seen.places[i]].1 += n,
                Err(i) => {
                    seen.places.insert(i, seen.targets.len());
                    seen.targets.push((target, n));
                }
            }
            // Summed anew where something is learnt, in one order: shares do not depend on
            // rounding.
            seen.all = seen.targets.iter().map(|s| weight(order, s.1)).sum();
        }
    }

    /// Where requests with this past go, of `known` targets that there are.
    pub fn of(&self, past: &Past, known: usize) -> Shares<'_> {
        Shares { seen: std::array::from_fn(|order| self.counts.get(&past.key(order))), known }
    }
}

/// Where requests with some past go.
pub(super) struct Shares<'a> {
    seen: [Option<&'a Seen>; ORDERS],
    known: usize,
}

impl Shares<'_> {
    /// Share that goes to `target`.
    pub fn to(&self, target: usize) -> f64 {
        let mut share = 1.0 / self.known.max(1) as f64;
        for order in (0..ORDERS).rev() {
            let Some(seen) = self.seen[order] else { continue };
            let hits = weight(order, seen.hits(target));
            share = (hits + BACK * share) / (seen.all + BACK);
        }
        share
    }
}

/// Answers about requests with equal pasts, kept while the routes that they come from stay as they
/// are: by station, by a second number where the question has one, and by past.
#[derive(Debug)]
pub(super) struct Memo<T>(RefCell<HashMap<Question, T, BuildHasherDefault<Mix>>>);

type Question = (usize, usize, (u64, u64));

/// Answers that are kept, at most.
const KEPT: usize = 1 << 16;

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Memo(RefCell::default())
    }
}

impl<T: Clone> Memo<T> {
    /// The answer, which `find` gives where it is not known.
    pub fn get(&self, question: Question, find: impl FnOnce() -> T) -> T {
        if let Some(known) = self.0.borrow().get(&question) {
            return known.clone();
        }
        let found = find();
        let mut kept = self.0.borrow_mut();
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(question, found.clone());
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_past_that_was_seen_decides() {
        let (mut routes, mut long, mut short) = (Routes::default(), Past::default(), Past::default());
        for station in [1, 2, 3, 2, 3, 2] {
            long.visit(station);
        }
        for station in [3, 2] {
            short.visit(station);
        }
        for _ in 0..20 {
            routes.learn(&short, 3);
        }
        routes.learn(&long, 4);
        routes.learn(&long, 4);
        assert!(routes.of(&long, 2).to(4) > 0.7, "{}", routes.of(&long, 2).to(4));
        assert!(routes.of(&short, 2).to(3) > 0.9);
        assert_eq!(routes.of(&Past::default(), 4).to(3), 0.25);
    }
}
