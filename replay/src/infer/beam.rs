//! Several walks side by side: where a guess could have been another, both are followed until one
//! of them contradicts what shows.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};

use super::flow::{Event, Known};
use super::routes::Mix;
use super::walk::{Offer, Walk};
use crate::task::Ns;

/// Other guesses tried at one event of one walk.
const TRIED: usize = 6;
/// How much less likely than the best a walk may be.
const HOPE: f64 = 20.0;

/// The likeliest walk over all `events`, among `width` side by side.
pub(super) fn walk<'a>(known: &'a Known<'a>, events: &[(Ns, u8, Event)], width: usize) -> Walk<'a> {
    let mut walks = vec![Walk::new(known)];
    for &(at, _, event) in events {
        if !known.budget.spend(walks.len()) {
            break;
        }
        if width == 1 || matches!(event, Event::Sleep(..) | Event::Wake(..)) {
            for walk in &mut walks {
                walk.made.clear();
                walk.offers.clear();
                walk.step(at, event);
            }
            continue;
        }
        let mut next = Vec::with_capacity(2 * walks.len());
        for walk in walks {
            branches(walk, at, event, &mut next);
        }
        walks = keep(next, width);
    }
    walks.iter_mut().for_each(Walk::settle);
    let best = walks.into_iter().max_by(|a, b| a.score.total_cmp(&b.score));
    best.unwrap_or_else(|| Walk::new(known))
}

/// `walk` with the likeliest guesses at `event`, and with others.
fn branches<'a>(walk: Walk<'a>, at: Ns, event: Event, next: &mut Vec<Walk<'a>>) {
    let before = walk.clone();
    let first = taken(walk, Vec::new(), at, event);
    let mut open: Vec<Offer> = first.offers.clone();
    next.push(first);
    for _ in 0..TRIED {
        open.sort_by(|a, b| b.loss.total_cmp(&a.loss));
        let Some(offer) = open.pop().filter(|_| before.known.budget.spend(1)) else { return };
        let other = taken(before.clone(), offer.tape, at, event);
        open.extend(other.offers.iter().map(|o| Offer { tape: o.tape.clone(), loss: o.loss + offer.loss }));
        next.push(other);
    }
}

fn taken<'a>(mut walk: Walk<'a>, tape: Vec<u8>, at: Ns, event: Event) -> Walk<'a> {
    walk.tape = tape;
    walk.made.clear();
    walk.offers.clear();
    walk.step(at, event);
    walk
}

/// The likeliest `width` of those that differ in what follows from them.
fn keep(mut walks: Vec<Walk>, width: usize) -> Vec<Walk> {
    if walks.len() == 1 {
        return walks;
    }
    walks.sort_by(|a, b| b.score.total_cmp(&a.score));
    let best = walks.first().map_or(0.0, |w| w.score);
    let mut seen = HashSet::new();
    walks.retain(|w| w.score >= best - HOPE && seen.insert(state(w)));
    walks.truncate(width);
    walks
}

/// What the rest of a walk depends on.
fn state(walk: &Walk) -> u64 {
    let mut hash = Mix::default();
    walk.known.budget.look(walk.size());
    let token = |t: usize, hash: &mut Mix| {
        if let Some(t) = walk.tokens.get(t) {
            (&t.past, &t.callers, t.done).hash(hash);
        }
    };
    for queue in &walk.queues {
        queue.len().hash(&mut hash);
        for item in queue {
            item.from.hash(&mut hash);
            token(item.token, &mut hash);
        }
    }
    for (hold, task) in walk.hold.iter().zip(&walk.known.members) {
        if let Some(hold) = hold {
            let usual = walk.known.usual[walk.station(*task)].mean;
            ((hold.start as f64 / usual * 4.0) as u64, hold.segment).hash(&mut hash);
            token(hold.token, &mut hash);
        }
        hold.is_some().hash(&mut hash);
    }
    for pending_reads in &walk.pending_reads {
        pending_reads.len().hash(&mut hash);
        for pending in pending_reads {
            (pending.task, pending.at).hash(&mut hash);
        }
    }
    hash.finish()
}
