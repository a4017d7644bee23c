//! Messages on their way: who may have written one that somebody reads, when its service ended, and
//! where it goes.

use super::budget::LOOKS;
use super::log::Said;
use super::segments::End;
use super::walk::{Hold, Item, Token, Walk, HALF, MOST};
use super::{Mark, Message};
use crate::history::TaskIndex;
use crate::task::Ns;

/// Least share of a usual service after which a message may have been written.
const EARLY: f64 = 0.4;
/// Log-likelihood that another of the pool has gone on before it took as long as is usual.
const AHEAD: f64 = -1.5;

impl Walk<'_> {
    /// Ends the service of a task that must have written to `queue` before `at`.
    pub(super) fn pull(&mut self, reader: TaskIndex, queue: usize, at: Ns) -> bool {
        let (to, found, scores) = self.senders(reader, queue, at);
        let best = self.choose(&scores).map(|i| found[i]);
        if let Some(task) = best {
            self.split(task, at, Some(to));
        }
        best.is_some()
    }

    /// Station of `reader`; tasks at work that may have written to `queue` before `at`, and how
    /// likely each is.
    pub(super) fn senders(&self, reader: TaskIndex, queue: usize, at: Ns) -> (usize, Vec<TaskIndex>, Vec<f64>) {
        let stations = self.known.net.stations.len();
        let to = if queue < stations { queue } else { self.station(reader) };
        let mut found: Vec<TaskIndex> = Vec::new();
        let mut scores: Vec<f64> = Vec::new();
        self.known.budget.spend(self.hold.len() / LOOKS);
        for (slot, hold) in self.hold.iter().enumerate() {
            let (Some(hold), task) = (hold, self.known.members[slot]) else { continue };
            let s = self.station(task);
            // The budget counts everybody who was looked at.
            self.pay_for_shares(1);
            if task == reader || !self.known.net.stations[s].targets.contains_key(&to) {
                continue;
            }
            let g = &self.known.segments[hold.segment];
            let pos = self.known.tracks[task as usize].pos(at);
            let ran = (pos - hold.start) as f64 / self.known.usual[s].mean;
            let goes_on = g.stop - pos > self.known.net.short;
            let fits = (queue < stations) != self.known.net.stations[to].answers.contains(&s)
                && (queue < stations || self.tokens[hold.token].callers.last() == Some(&reader))
                && ran >= EARLY
                && (goes_on || matches!(g.end, End::Sleep(_)));
            if !fits {
                continue;
            }
            let score = self.shares_of(s, &self.tokens[hold.token].past).to(to) * ran.min(1.5);
            if score > 0.1 {
                found.push(task);
                scores.push((score / 1.5).ln());
            }
        }
        (to, found, scores)
    }

    /// A service of `task`, which is at work, ended before `at`; its message went to `to`, or where
    /// it likely went.
    pub(super) fn split(&mut self, task: TaskIndex, at: Ns, to: Option<usize>) {
        let slot = self.slot(task);
        let Some(hold) = self.hold[slot].take() else { return };
        let (s, g) = (self.station(task), self.known.segments[hold.segment]);
        let known = self.known;
        let track = &known.tracks[task as usize];
        let stop = (hold.start + self.known.usual[s].mean as Ns).min(track.pos(at));
        let when = track.time(stop).min(at);
        self.book(s, stop - hold.start, 1);
        let token = &self.tokens[hold.token];
        let to = to.or_else(|| self.likely(s, &token.past, &token.callers, &|_| true).1);
        if let Some(to) = to {
            self.hold_began = track.time(hold.start);
            self.send(task, hold.token, to, when, None);
        }
        if g.stop - stop > self.known.net.short {
            let calls = to.is_some_and(|to| self.known.net.stations[s].calls.contains(&to));
            let token = self.read(task, if calls { self.own_queue(task) } else { s }, when);
            let slot = self.slot(task);
            self.hold[slot] = Some(Hold { token, start: stop, segment: hold.segment });
        }
    }

    /// Others of the pool of `task` that have been at work for more than `much` of a usual service,
    /// while messages waited, have gone on with the next.
    pub(super) fn advance(&mut self, task: TaskIndex, at: Ns, much: f64) {
        let s = self.station(task);
        let net = self.known.net;
        for &other in net.stations[s].members.iter().filter(|m| **m != task) {
            for _ in 0..MOST {
                let Some(hold) = self.hold[self.slot(other)] else { break };
                let pos = self.known.tracks[other as usize].pos(at);
                let g = self.known.segments[hold.segment];
                let ran = (pos - hold.start) as f64 / self.known.usual[s].mean;
                let early = self.queues[s].front().is_none_or(|q| q.at >= at);
                let ends = g.stop - pos <= self.known.net.short && matches!(g.end, End::Post(_));
                if early || ends || ran < HALF {
                    break;
                }
                let scores = if ran < much { [0.0, AHEAD] } else { [AHEAD, 0.0] };
                if self.choose(&scores) == Some(0) {
                    break;
                }
                self.split(other, at, None);
            }
        }
    }

    /// `token` goes from `task` to station `to`; with `wake` where that shows.
    pub(super) fn send(&mut self, task: TaskIndex, token: usize, to: usize, at: Ns, wake: Option<u32>) {
        let s = self.station(task);
        let own = self.known.net.stations[to].answers.contains(&s);
        let reader = wake.map(|w| self.known.history.wakee[w as usize]);
        if let Some(reader) = reader {
            self.right_one(task, token, to, own.then_some(reader));
            let past = self.tokens[token].past.clone();
            self.learn(past, to);
        }
        let reader = reader.or_else(|| self.tokens[token].callers.last().copied());
        let queue = match (own, reader) {
            (true, Some(reader)) => self.own_queue(reader),
            (true, None) => self.own_queue(self.known.net.stations[to].members[0]),
            _ => to,
        };
        if self.known.net.stations[s].calls.contains(&to) {
            self.tokens[token].callers.push(task);
        }
        let message = self.message(Message {
            station: (!own).then_some(to),
            request: Some(self.tokens[token].request),
            ..Message::default()
        });
        match wake {
            Some(wake) => {
                self.log.push(Said::Wake(wake, message));
            }
            None => {
                self.unobserved += 1;
                self.mark(task, at, Mark::Send(message));
            }
        }
        let from = wake.is_none().then_some(s);
        let began = self.hold_began;
        while let Some(pending) = self.pending_reads[queue].pop_front() {
            if began >= pending.at {
                // The service began after that was read.
                self.forgotten.push((queue, pending));
                continue;
            }
            if wake.is_none() {
                self.log.push(Said::Earlier(task, self.marks[self.slot(task)] - 1, pending.at));
            }
            self.match_read(pending, token, message);
            return;
        }
        self.queues[queue].push_back(Item { token, message, at, from });
    }

    /// A visible message says which request it is about: where that is not the one thought of, the
    /// two were mixed up.
    fn right_one(&mut self, task: TaskIndex, token: usize, to: usize, answers: Option<TaskIndex>) {
        let s = self.station(task);
        let fits = |t: &Token| answers.is_none_or(|r| t.callers.last() == Some(&r));
        let other = if fits(&self.tokens[token]) {
            if self.share(s, token, to) > 0.05 {
                return;
            }
            let mut next = self.queues[s].iter().map(|q| q.token);
            next.find(|t| {
                let mut past = self.tokens[*t].past.clone();
                past.visit(s);
                fits(&self.tokens[*t]) && self.share_of(s, &past, to) > 0.5
            })
        } else {
            let live = |t: &usize| !self.tokens[*t].done && fits(&self.tokens[*t]);
            self.known.budget.spend(self.tokens.len().min(4096) / LOOKS);
            (0..self.tokens.len()).rev().take(4096).find(live)
        };
        let Some(other) = other else { return };
        if let Some(waits) = self.queues[s].iter().position(|q| q.token == other) {
            self.change_places(task, token, waits);
        } else {
            self.tokens.swap(token, other);
        }
    }
}
