//! The likeliest services of a segment, and where messages went that do not show.

use super::budget::LOOKS;
use super::log::Said;
use super::routes::Past;
use super::segments::{End, Segment};
use super::walk::{Hold, Item, Part, Walk, LEAST, MIXED, MOST};
use crate::history::TaskIndex;
use crate::task::Ns;

/// Log-likelihood of a message left behind by a reader that fell asleep.
const LEFT: f64 = -6.0;
/// Log-likelihood of a message that another of the pool, at work for long enough, has taken.
const TAKEN: f64 = -0.7;
/// A message to a sleeping reader that did not wake it.
const UNLIKELY: f64 = 1e-5;

/// One explanation of a segment: its services, where the last message went, and the service that
/// takes the place of the last.
#[derive(Clone, Copy)]
struct Explanation {
    services: usize,
    target: Option<usize>,
    swap: Option<usize>,
}

/// Shares to be looked at, and the log-likelihood, of all messages left behind from one place of a queue on.
struct Leaving {
    first: usize,
    sums: Vec<(usize, f64)>,
}

impl Leaving {
    /// Those from place `i` on, which is no earlier than the first.
    fn from(&self, i: usize) -> (usize, f64) {
        self.sums.get(i - self.first).copied().unwrap_or_default()
    }
}

impl Walk<'_> {
    /// The likeliest services of a segment.
    pub(super) fn explain(&mut self, s: usize, hold: Hold, g: Segment, goes_on: bool) -> (Vec<Part>, Option<usize>) {
        let ran = (g.stop - hold.start).max(1) as f64;
        let (mean, spread) = (self.known.usual[s].mean, self.known.usual[s].spread);
        let length = |k: usize| {
            let k = k as f64;
            -(ran - k * mean).powi(2) / (2.0 * k * spread * spread) - k.ln() / 2.0
        };
        let mut past = self.tokens[hold.token].past.clone();
        let mut callers = self.tokens[hold.token].callers.clone();
        let (mut taken, mut taken_own, mut unobserved) = (0, 0, 0.0);
        let mut targets: Vec<(usize, Ns)> = Vec::new();
        // What each service but the last adds as an unobserved one, and as the one that shows.
        let mut each: Vec<(f64, f64)> = Vec::new();
        let mut found: Vec<Explanation> = Vec::new();
        let mut scores: Vec<f64> = Vec::new();
        // What waits is looked at again and again.
        let mut leaving: Option<Leaving> = None;
        let waiting = self.queues[s].iter().filter(|q| q.at < g.to).count();
        let own_queue = &self.queues[self.own_queue(g.task)];
        self.known.budget.spend((self.queues[s].len() + self.known.net.stations[s].members.len()) / LOOKS);
        let others: usize = self.known.net.stations[s].members.iter().map(|m| self.behind(*m, g.task, g.to)).sum();
        for k in 1..=MOST {
            let mut swap = None;
            let (score, target) = match g.end {
                End::Post(wake) => {
                    let reader = self.known.history.wakee[wake as usize];
                    let to = self.station(reader);
                    let caller = !self.known.net.answers(s, reader) || callers.last() == Some(&reader);
                    let share = self.share_of(s, &past, to) * if caller { 1.0 } else { UNLIKELY };
                    let starved = goes_on && waiting == taken;
                    let mut score = share.max(1e-3).ln();
                    let as_unobserved = self.likely(s, &past, &callers, &|_| true).0.max(1e-9).ln();
                    let one_queue = self.known.net.stations[s].calls.is_empty();
                    for (j, (was_unobserved, shows)) in each.iter().enumerate().filter(|_| one_queue) {
                        let other = shows + as_unobserved - was_unobserved + MIXED;
                        if other > score {
                            (score, swap) = (other, Some(j));
                        }
                    }
                    if score < MIXED && self.waits_for(s, taken, to, reader) {
                        (score, swap) = (MIXED, None);
                    }
                    each.push((as_unobserved, share.max(1e-9).ln()));
                    (score + if starved { LEFT } else { 0.0 }, Some(to))
                }
                End::Sleep(reply) => {
                    let fits = |t: usize| self.known.net.stations[s].calls.contains(&t) == reply;
                    let (share, to) = self.likely(s, &past, &callers, &fits);
                    let left = if reply {
                        LEFT * (own_queue.len() - taken_own) as f64
                    } else {
                        let first = (taken + others).clamp(taken, waiting.max(taken));
                        let behind = leaving.get_or_insert_with(|| self.leaving(s, first, waiting));
                        let (looked, cost) = behind.from(first);
                        self.pay_for_shares(looked);
                        TAKEN * (first - taken) as f64 + cost
                    };
                    (share.max(1e-9).ln() + left, to)
                }
            };
            scores.push(score + unobserved + length(k));
            found.push(Explanation { services: k, target, swap });
            // One service more: where did this one's message go, and what came next?
            let (share, to) = self.likely(s, &past, &callers, &|_| true);
            let Some(to) = to else { break };
            let next = if self.known.net.stations[s].calls.contains(&to) {
                taken_own += 1;
                own_queue.get(taken_own - 1)
            } else {
                taken += 1;
                self.queues[s].get(taken - 1)
            };
            let Some(next) = next.filter(|n| n.at < g.to) else { break };
            if ran / (k as f64 + 1.0) < LEAST * mean {
                break;
            }
            unobserved += share.max(1e-9).ln();
            targets.push((to, next.at));
            past = self.tokens[next.token].past.clone();
            past.visit(s);
            callers.clone_from(&self.tokens[next.token].callers);
        }
        let Some(best) = self.choose(&scores).map(|i| found[i]) else { return (Vec::new(), None) };
        if let (Some(j), Some(to)) = (best.swap, self.unobserved_target(s, best.services)) {
            // The one that shows came earlier in the queue: the last one takes its place.
            targets[j].0 = to;
        }
        (self.parts(hold, g, &targets[..best.services - 1], best.target), best.swap)
    }

    /// True when a request that waits behind the first `taken` fits a message to `to` that shows.
    fn waits_for(&self, s: usize, taken: usize, to: usize, reader: TaskIndex) -> bool {
        self.queues[s].iter().skip(taken).any(|q| {
            let token = &self.tokens[q.token];
            let caller = !self.known.net.answers(s, reader) || token.callers.last() == Some(&reader);
            let mut past = token.past.clone();
            past.visit(s);
            caller && self.share_of(s, &past, to) > 0.5
        })
    }

    /// Where the message of the `k`-th service of a segment went, were it unobserved.
    fn unobserved_target(&self, s: usize, k: usize) -> Option<usize> {
        let token = &self.tokens[self.queues[s].get(k.checked_sub(2)?)?.token];
        let mut past = token.past.clone();
        past.visit(s);
        self.likely(s, &past, &token.callers, &|_| true).1
    }

    /// Services that `other` may have begun besides the one it is known to be at.
    fn behind(&self, other: TaskIndex, task: TaskIndex, at: Ns) -> usize {
        let Some(hold) = self.hold[self.slot(other)].filter(|_| other != task) else { return 0 };
        let ran = (self.known.tracks[other as usize].pos(at) - hold.start) as f64;
        (ran / self.known.usual[self.station(other)].mean) as usize
    }

    /// Where else a message may have gone that seems to wait in the queue of `s`, and how much less
    /// likely that is; before it, how many shares were looked at.
    fn elsewhere(&self, s: usize, item: &Item) -> (usize, Option<(f64, usize)>) {
        let Some(from) = item.from else { return (0, None) };
        let past = &self.tokens[item.token].past;
        let find = || {
            let (here, shares) = (self.shares_of(from, past).to(s), self.shares_to_each(from, past));
            let all = self.known.targets[from].iter().zip(&*shares);
            let others = all.filter(|(to, _)| to.station != s && !to.answered);
            let looked = 1 + others.clone().count();
            let likely = others.map(|(to, share)| (share / here.max(1e-6), to.station)).filter(|o| o.0 > 0.02);
            (looked, likely.max_by(|a, b| a.0.total_cmp(&b.0)))
        };
        if self.known.first_pass {
            find()
        } else {
            self.known.elsewhere.get((from, s, past.id()), find)
        }
    }

    /// Shares that were looked at, and the log-likelihood of a message left behind in the queue of `s`.
    fn cost_of_leaving(&self, s: usize, item: &Item) -> (usize, f64) {
        let (looked, found) = self.elsewhere(s, item);
        (looked, found.map_or(LEFT, |o| o.0.ln().clamp(LEFT, -0.3)))
    }

    /// The same of all that wait in the queue of `s`, from the `first` to the `last`.
    fn leaving(&self, s: usize, first: usize, last: usize) -> Leaving {
        let queue = &self.queues[s];
        let mut sums = vec![(0, 0.0); last.saturating_sub(first) + 1];
        for i in (first..last).rev() {
            let (looked, cost) = self.cost_of_leaving(s, &queue[i]);
            let (all, sum) = sums[i + 1 - first];
            sums[i - first] = (all + looked, sum + cost);
        }
        Leaving { first, sums }
    }

    /// A reader of `s` falls asleep: what seems to wait there went elsewhere.
    pub(super) fn clear_out(&mut self, s: usize, at: Ns) {
        for _ in 0..self.queues[s].len() {
            let Some(item) = self.queues[s].pop_front() else { return };
            let (looked, found) = self.elsewhere(s, &item);
            self.pay_for_shares(looked);
            match found.filter(|_| item.at < at) {
                Some((_, to)) => {
                    self.log.push(Said::Went(item.message, Some(to)));
                    let past = self.tokens[item.token].past.clone();
                    self.learn(past, to);
                    self.deliver(to, Item { from: None, ..item });
                }
                None => self.queues[s].push_back(item),
            }
        }
    }

    fn parts(&self, hold: Hold, g: Segment, targets: &[(usize, Ns)], last: Option<usize>) -> Vec<Part> {
        let k = targets.len() as Ns + 1;
        let track = &self.known.tracks[g.task as usize];
        let mut parts: Vec<Part> = Vec::with_capacity(k as usize);
        for (j, (to, next)) in targets.iter().enumerate() {
            let even = hold.start + (g.stop - hold.start) * (j as Ns + 1) / k;
            parts.push(Part { target: Some(*to), stop: even.max(track.pos(*next)).min(g.stop) });
        }
        parts.push(Part { target: last, stop: g.stop });
        parts
    }

    /// Where a message that woke nobody went.
    pub(super) fn likely(
        &self,
        s: usize,
        past: &Past,
        callers: &[TaskIndex],
        fits: &dyn Fn(usize) -> bool,
    ) -> (f64, Option<usize>) {
        let (mut best, shares) = ((0.0, None), self.shares_to_each(s, past));
        for (target, share) in self.known.targets[s].iter().zip(&*shares).filter(|(t, _)| fits(t.station)) {
            let to = target.station;
            let asleep = if target.answered {
                callers.last().is_none_or(|c| self.asleep_own[self.slot(*c)])
            } else {
                self.asleep[to] > 0 && self.queues[to].is_empty()
            };
            self.pay_for_shares(1);
            let share = share * if asleep { UNLIKELY } else { 1.0 };
            if share > best.0 {
                best = (share, Some(to));
            }
        }
        best
    }
}
