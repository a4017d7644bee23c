//! Where messages go next: learnt from the visible ones, by the stations that their request has been at.

use std::collections::HashMap;

/// Stations that a request has been at, most recent last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Past {
    all: u64,
    recent: [u16; 4],
}

/// Orders of context, longest first: everything, the last four, two, one.
const ORDERS: usize = 4;
/// Weight of the next shorter context.
const BACK: f64 = 0.5;

impl Past {
    pub fn visit(&mut self, station: usize) {
        self.all = (self.all ^ (station as u64 + 1)).wrapping_mul(0x100_0000_01b3).rotate_left(5);
        self.recent.rotate_left(1);
        self.recent[3] = station as u16 + 1;
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

/// Counts of where requests went.
#[derive(Clone, Debug, Default)]
pub(super) struct Routes {
    counts: HashMap<(u8, u64), Vec<(usize, u32)>>,
}

impl Routes {
    pub fn learn(&mut self, past: &Past, target: usize) {
        for order in 0..ORDERS {
            let seen = self.counts.entry(past.key(order)).or_default();
            match seen.iter_mut().find(|s| s.0 == target) {
                Some(s) => s.1 += 1,
                None => seen.push((target, 1)),
            }
        }
    }

    /// Share of requests with this past that go to `target`, `known` of which there are.
    pub fn share(&self, past: &Past, target: usize, known: usize) -> f64 {
        let mut share = 1.0 / known.max(1) as f64;
        for order in (0..ORDERS).rev() {
            let Some(seen) = self.counts.get(&past.key(order)) else { continue };
            // Squares where all is known: a few requests that were mixed up must not make a way likely.
            let weight = |n: u32| f64::from(n).powi(if order == 0 { 2 } else { 1 });
            let all: f64 = seen.iter().map(|s| weight(s.1)).sum();
            let hits = seen.iter().find(|s| s.0 == target).map_or(0.0, |s| weight(s.1));
            share = (hits + BACK * share) / (all + BACK);
        }
        share
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
        assert!(routes.share(&long, 4, 2) > 0.7, "{}", routes.share(&long, 4, 2));
        assert!(routes.share(&short, 3, 2) > 0.9);
        assert_eq!(routes.share(&Past::default(), 3, 4), 0.25);
    }
}
