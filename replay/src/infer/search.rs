//! Which network of queues a group of tasks is, and the messages through it: guesses followed side by side,
//! as many as the budget has room for.

use super::beam;
use super::budget::{Budget, LOOKS};
use super::flow::{Flow, Known};
use super::network::Network;
use super::segments;
use super::track::Track;
use super::{share, size, HOPELESS, WORTH};
use crate::calibrate::Limits;
use crate::history::History;
use crate::task::Ns;

/// Walks over the trace that try a network; the routes and service times of one are those that the
/// next knows.
const PASSES: usize = 5;
/// Things that show, in the order of time, that decide which network it is.
const TRIAL: usize = 20_000;
/// Guesses followed side by side in each walk over the trace in the end.
const WIDTHS: [usize; 5] = [1, 16, 16, 32, 64];
/// Guesses tried at most about stations that never seem to send.
const TRIES: usize = 64;

/// What a search in one group of tasks goes by.
pub(super) struct Search<'a> {
    pub(super) budget: &'a Budget,
    pub(super) history: &'a History,
    pub(super) tracks: &'a [Track],
    pub(super) tail: Ns,
    pub(super) limits: Limits,
}

impl Search<'_> {
    /// The likeliest network of those that `net` may be, and the flow of messages through it.
    pub(super) fn best(&self, net: Network) -> (Network, Flow) {
        let net = self.with_silent_senders(net);
        let flow = self.found(&net);
        (net, flow)
    }

    /// The messages of `net`: with several guesses side by side where one does not explain everything.
    fn found(&self, net: &Network) -> Flow {
        let before = self.budget.spent();
        let quick = self.follow(net, &[1; PASSES], usize::MAX);
        let one = (self.budget.spent() - before) / PASSES;
        let hopeless = share(&quick) > HOPELESS;
        if quick.unobserved < WORTH.0 || quick.wrong() == 0 || hopeless || self.budget.is_over() {
            return quick;
        }
        // As many guesses side by side as the budget has room for.
        let room = |width: &usize| WIDTHS.iter().map(|w| w.min(width) * one).sum::<usize>() <= self.budget.left();
        let Some(&width) = WIDTHS.iter().rev().find(|w| **w > 1 && room(w)) else { return quick };
        let flow = self.follow(net, &WIDTHS.map(|w| w.min(width)), usize::MAX);
        if self.budget.is_over() {
            return quick;
        }
        if flow.wrong() <= quick.wrong() {
            flow
        } else {
            quick
        }
    }

    /// A station whose messages never show looks as if it sent none: it does where that explains
    /// what others read.
    fn with_silent_senders(&self, net: Network) -> Network {
        let flow = self.follow(&net, &[1; PASSES], TRIAL);
        let mut best = (net, flow);
        let mut left = TRIES;
        while best.1.unmatched >= WORTH.0 {
            let silent = best.0.silent();
            let now = silent.len().min(left);
            left -= now;
            let tries = silent.into_iter().take(now).map(|(from, to)| {
                let net = best.0.with(from, to);
                let flow = self.follow(&net, &[1; PASSES], TRIAL);
                (net, flow)
            });
            match tries.min_by_key(|t| t.1.unexplained()) {
                Some(better) if better.1.unexplained() * 2 < best.1.unexplained() => best = better,
                _ => break,
            }
        }
        best.0
    }

    /// The flow of messages through `net`: a pass over the trace for each of `widths`, which
    /// follows so many guesses side by side and uses what the one before learnt; only the `first`
    /// so many things that show.
    pub(super) fn follow(&self, net: &Network, widths: &[usize], first: usize) -> Flow {
        let tasks = self.history.tasks.len();
        if !self.budget.spend(1 + size(net, self.history) / LOOKS) {
            return Flow { marks: vec![Vec::new(); tasks], ..Flow::default() };
        }
        let (segments, sleeps) = segments::segments(self.history, self.tracks, net, self.tail);
        let mut known = Known::new(self, net, &segments);
        let mut events = known.events(&sleeps);
        events.truncate(first);
        let mut found = Flow::default();
        for (nth, &width) in widths.iter().enumerate() {
            let walk = beam::walk(&known, &events, width);
            if nth > 0 && self.budget.is_over() {
                break;
            }
            let (flow, routes) = Flow::of(&walk, tasks);
            let booked = walk.booked.clone();
            drop(walk);
            if nth == 0 || flow.wrong() <= found.wrong() {
                found = flow;
            }
            known.learnt(&booked, routes);
        }
        found
    }
}
