//! One way through the trace: what waits where, who is at what, and how likely all guesses so far
//! are together.

use std::collections::VecDeque;
use std::rc::Rc;

use super::flow::{Booked, Event, Known};
use super::log::{Log, Said, Shared};
use super::routes::{Past, Routes, Shares};
use super::segments::{Begin, End, Segment};
use super::{Mark, Message};
use crate::history::TaskIndex;
use crate::task::Ns;

/// Most services in one segment.
pub(super) const MOST: usize = 256;
/// Shortest mean service against the usual one.
pub(super) const LEAST: f64 = 0.2;
/// A service that takes longer than this share of a usual one was likely two.
const LONG: f64 = 1.6;
/// Least share of a usual service that a service takes, mostly.
pub(super) const HALF: f64 = 0.5;
/// Log-likelihood that another has written more than shows.
const MORE: f64 = -1.0;
/// Guesses tried beside the likeliest, and how much less likely they may be.
const OTHERS: usize = 3;
const FAR: f64 = 8.0;
/// Log-likelihood of a read of what nobody has written yet, as far as can be seen: that of a message left
/// behind.
const UNMATCHED: f64 = -6.0;
/// Log-likelihood that two requests were mixed up.
pub(super) const MIXED: f64 = -2.5;

/// Looks that a share of a route takes.
const ROUTE: usize = 16;

/// A request on its way.
#[derive(Clone, Debug, Default)]
pub(super) struct Token {
    /// Which request it is.
    pub(super) request: u32,
    pub(super) past: Past,
    /// The same before the service it is in.
    pub(super) before: Past,
    /// Tasks that wait for an answer to it.
    pub(super) callers: Vec<TaskIndex>,
    pub(super) done: bool,
}

impl Token {
    pub(super) fn visit(&mut self, station: usize) {
        self.before = self.past.clone();
        self.past.visit(station);
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) token: usize,
    pub(super) message: u32,
    pub(super) at: Ns,
    /// The station that sent it, where nothing shows that it went here.
    pub(super) from: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) token: usize,
    pub(super) start: Ns,
    pub(super) segment: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRead {
    pub(super) task: TaskIndex,
    pub(super) mark: usize,
    pub(super) token: usize,
    pub(super) request: u32,
    pub(super) at: Ns,
}

/// How one service of a segment ends: its token, where it goes, and at which CPU time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) target: Option<usize>,
    pub(super) stop: Ns,
}

/// A guess that could have been another: how often it was asked before, which one was taken, how
/// much less likely that is.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub(super) tape: Vec<u8>,
    pub(super) loss: f64,
}

/// A walk over the trace up to some moment.
#[derive(Clone)]
pub(super) struct Walk<'a> {
    pub(super) known: &'a Known<'a>,
    /// Routes seen so far, in the first pass.
    live: Routes,
    pub(super) log: Log,
    pub(super) booked: Vec<Booked>,
    pub(super) unobserved: usize,
    pub(super) unmatched: usize,
    pub(super) left: usize,
    pub(super) tokens: Shared<Token>,
    /// Per station, then per task of the network.
    pub(super) queues: Vec<VecDeque<Item>>,
    pub(super) pending_reads: Vec<VecDeque<PendingRead>>,
    /// Per task of the network.
    pub(super) hold: Vec<Option<Hold>>,
    last: Vec<usize>,
    pub(super) marks: Vec<usize>,
    /// The message that each task took last, and which mark of it says so.
    took: Vec<(usize, u32)>,
    messages: u32,
    requests: u32,
    /// Members of each station that sleep until a message for the pool comes, and tasks that sleep
    /// until one of their own does.
    pub(super) asleep: Vec<usize>,
    pub(super) asleep_own: Vec<bool>,
    depth: usize,
    /// When the service began whose message is being sent.
    pub(super) hold_began: Ns,
    /// Reads of what nobody at work can have written any more.
    pub(super) forgotten: Vec<(usize, PendingRead)>,
    /// When a reader of each station last fell asleep.
    pub(super) slept: Vec<Ns>,
    /// Log-likelihood of all guesses.
    pub(super) score: f64,
    /// Which guess to take first, second, ... at the event at hand: 0 is the likeliest.
    pub(super) tape: Vec<u8>,
    pub(super) made: Vec<u8>,
    pub(super) offers: Vec<Offer>,
}

impl<'a> Walk<'a> {
    pub fn new(known: &'a Known<'a>) -> Self {
        let (stations, members) = (known.net.stations.len(), known.members.len());
        Walk {
            known,
            live: Routes::default(),
            log: Log::default(),
            booked: vec![Booked::default(); stations],
            unobserved: 0,
            unmatched: 0,
            left: 0,
            tokens: Shared::default(),
            queues: vec![VecDeque::new(); stations + members],
            pending_reads: vec![VecDeque::new(); stations + members],
            hold: vec![None; members],
            last: vec![0; members],
            marks: vec![0; members],
            took: vec![(0, u32::MAX); members],
            messages: 0,
            requests: 0,
            asleep: vec![0; stations],
            asleep_own: vec![false; members],
            depth: 0,
            hold_began: 0,
            forgotten: Vec::new(),
            slept: vec![0; stations],
            score: 0.0,
            tape: Vec::new(),
            made: Vec::new(),
            offers: Vec::new(),
        }
    }

    /// Goes on by one event.
    pub fn step(&mut self, at: Ns, event: Event) {
        match event {
            Event::Begin(i) => self.begin(i),
            Event::End(i) => self.end(i),
            Event::Sleep(task, reply) => self.sleeps(task, reply, at, true),
            Event::Wake(task, reply) => self.sleeps(task, reply, at, false),
        }
    }

    /// Takes one of several guesses, given their log-likelihoods: the likeliest, but where the tape
    /// says otherwise.
    pub(super) fn choose(&mut self, scores: &[f64]) -> Option<usize> {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let point = self.made.len();
        let nth = self.tape.get(point).map_or(0, |n| usize::from(*n)).min(order.len().checked_sub(1)?);
        if point >= self.tape.len() {
            for (n, o) in order.iter().enumerate().skip(1).take(OTHERS) {
                let loss = scores[order[0]] - scores[*o];
                if loss < FAR {
                    let mut tape = self.made.clone();
                    tape.push(n as u8);
                    self.offers.push(Offer { tape, loss });
                }
            }
        }
        self.made.push(nth as u8);
        self.score += scores[order[nth]];
        Some(order[nth])
    }

    pub(super) fn slot(&self, task: TaskIndex) -> usize {
        self.known.slot[task as usize]
    }

    pub(super) fn station(&self, task: TaskIndex) -> usize {
        self.known.net.station[task as usize].unwrap_or_default()
    }

    pub(super) fn own_queue(&self, task: TaskIndex) -> usize {
        self.known.net.stations.len() + self.slot(task)
    }

    pub(super) fn mark(&mut self, task: TaskIndex, at: Ns, mark: Mark) {
        self.log.push(Said::Mark(task, at, mark));
        let slot = self.slot(task);
        self.marks[slot] += 1;
    }

    pub(super) fn message(&mut self, message: Message) -> u32 {
        self.log.push(Said::Message(message));
        self.messages += 1;
        self.messages - 1
    }

    pub(super) fn learn(&mut self, past: Past, to: usize) {
        if self.known.first_pass {
            self.live.learn(&past, to);
        }
        self.log.push(Said::Learnt(past, to));
    }

    fn sleeps(&mut self, task: TaskIndex, reply: bool, at: Ns, now: bool) {
        if reply {
            let slot = self.slot(task);
            self.asleep_own[slot] = now;
        } else {
            let s = self.station(task);
            if now {
                self.slept[s] = at;
                self.reconcile(s, at);
            }
            self.asleep[s] = if now { self.asleep[s] + 1 } else { self.asleep[s].saturating_sub(1) };
        }
    }

    fn new_token(&mut self) -> usize {
        self.tokens.push(Token { request: self.requests, ..Token::default() });
        self.requests += 1;
        self.tokens.len() - 1
    }

    fn begin(&mut self, i: usize) {
        let g = self.known.segments[i];
        let token = match g.begin {
            Begin::Message => {
                let queue = if g.own { self.own_queue(g.task) } else { self.station(g.task) };
                if !g.own {
                    self.advance(g.task, g.from, LONG);
                }
                let token = self.read(g.task, queue, g.from);
                if g.passes && self.queues[queue].is_empty() {
                    self.pull(g.task, queue, g.from);
                }
                token
            }
            Begin::Fresh | Begin::Outside => {
                let token = self.new_token();
                let s = self.station(g.task);
                self.tokens[token].visit(s);
                token
            }
            Begin::Same => {
                let same = self.tokens.get(self.last[self.slot(g.task)]).cloned().unwrap_or_default();
                self.tokens.push(same);
                self.tokens.len() - 1
            }
        };
        let slot = self.slot(g.task);
        self.hold[slot] = Some(Hold { token, start: g.start, segment: i });
    }

    /// `task` reads from `queue`. Where that is empty, somebody must have written already.
    pub(super) fn read(&mut self, task: TaskIndex, queue: usize, at: Ns) -> usize {
        if self.queues[queue].is_empty() && self.depth < 8 {
            self.depth += 1;
            self.pull(task, queue, at);
            self.depth -= 1;
        }
        let own = queue >= self.known.net.stations.len();
        let item = self.queues[queue].pop_front();
        let (token, message) = match item {
            Some(item) => (item.token, item.message),
            None => {
                let token = self.new_token();
                let mark = self.marks[self.slot(task)];
                self.pending_reads[queue].push_back(PendingRead {
                    task,
                    mark,
                    token,
                    request: self.tokens[token].request,
                    at,
                });
                self.score += UNMATCHED;
                (token, u32::MAX)
            }
        };
        if message != u32::MAX {
            self.log.push(Said::Taken(message));
        }
        let slot = self.slot(task);
        self.took[slot] = (self.marks[slot], message);
        self.mark(task, at, Mark::Take(message));
        let s = self.station(task);
        let t = &mut self.tokens[token];
        if own && t.callers.last() == Some(&task) {
            t.callers.pop();
        }
        t.visit(s);
        token
    }

    /// Share of requests like `token` that go on from station `s` to `to`.
    pub(super) fn share(&self, s: usize, token: usize, to: usize) -> f64 {
        self.share_of(s, &self.tokens[token].past, to)
    }

    pub(super) fn share_of(&self, s: usize, past: &Past, to: usize) -> f64 {
        self.known.budget.look(ROUTE);
        self.shares_of(s, past).to(to)
    }

    /// The same for every `to`. Whoever looks at one pays for it.
    pub(super) fn shares_of(&self, s: usize, past: &Past) -> Shares<'_> {
        let routes = if self.known.first_pass { &self.live } else { &self.known.routes };
        routes.of(past, self.known.net.stations[s].targets.len())
    }

    /// Share that goes to each target of `s`.
    pub(super) fn shares_to_each(&self, s: usize, past: &Past) -> Rc<[f64]> {
        let find = || {
            let shares = self.shares_of(s, past);
            self.known.targets[s].iter().map(|t| shares.to(t.station)).collect()
        };
        if self.known.first_pass {
            return find();
        }
        self.known.shares.get((s, 0, past.id()), find)
    }

    pub(super) fn pay_for_shares(&self, n: usize) {
        self.known.budget.look_times(n, ROUTE);
    }

    /// What a copy of this, or a comparison with another, looks at.
    pub(super) fn size(&self) -> usize {
        let waiting: usize = self.queues.iter().map(|q| 4 + 16 * q.len()).sum();
        waiting + 16 * self.hold.len()
    }

    pub(super) fn book(&mut self, s: usize, ran: Ns, services: usize) {
        let (ran, k, mean) = (ran as f64, services as f64, self.known.usual[s].mean);
        let u = &mut self.booked[s];
        u.sum += ran;
        u.square += (ran - k * mean).powi(2) / k;
        u.n += k;
    }

    fn end(&mut self, i: usize) {
        let known = self.known;
        let g = known.segments[i];
        let slot = self.slot(g.task);
        let Some(hold) = self.hold[slot].take().filter(|h| h.segment == i) else { return };
        let s = self.station(g.task);
        if self.known.net.stations[s].targets.is_empty() {
            return self.end_of_sink(hold, g);
        }
        if g.end != End::Sleep(true) {
            self.advance(g.task, g.to, LONG);
        }
        // Longer than what waits accounts for: somebody has written more.
        let least = ((g.stop - hold.start) as f64 / (LONG * self.known.usual[s].mean)) as usize;
        let calls = !self.known.net.stations[s].calls.is_empty();
        for _ in 0..least.min(MOST) {
            let waiting = self.queues[s].iter().filter(|q| q.at < g.to).count();
            if calls || waiting >= least || !self.pull(g.task, s, g.to) {
                break;
            }
        }
        let ran = (g.stop - hold.start) as f64 / self.known.usual[s].mean;
        for _ in 0..MOST {
            let waiting = self.queues[s].iter().filter(|q| q.at < g.to).count();
            if calls || ran < HALF * (waiting as f64 + 2.0) || self.senders(g.task, s, g.to).1.is_empty() {
                break;
            }
            if self.choose(&[0.0, MORE]) == Some(0) {
                break;
            }
            self.pull(g.task, s, g.to);
        }
        let next = self.known.segments.get(i + 1).filter(|n| n.task == g.task && !n.woken && !n.own);
        // It goes on at once: there was a message.
        let goes_on = next.is_some_and(|n| n.begin == Begin::Message && n.start - g.stop == n.from - g.to);
        let (parts, swap) = self.explain(s, hold, g, goes_on);
        if let (Some(j), Some(last)) = (swap, parts.len().checked_sub(2).filter(|l| *l < self.queues[s].len())) {
            match j.checked_sub(1) {
                Some(waits) => self.exchange(s, waits, last),
                None => self.change_places(g.task, hold.token, last),
            }
        }
        self.book(s, g.stop - hold.start, parts.len());
        let (mut token, track) = (hold.token, &known.tracks[g.task as usize]);
        self.hold_began = track.time(hold.start);
        for (j, part) in parts.iter().enumerate() {
            let last = j + 1 == parts.len();
            // Behind the last message it still looks for the next one.
            let when = match g.end {
                End::Sleep(_) if last => track.time((g.stop - self.known.net.short / 2).max(hold.start)).min(g.to),
                _ if last => g.to,
                _ => track.time(part.stop).min(g.to),
            };
            let Some(target) = part.target else { continue };
            match g.end {
                End::Post(wake) if last => self.send(g.task, token, target, when, Some(wake)),
                _ => self.send(g.task, token, target, when, None),
            }
            let slot = self.slot(g.task);
            self.last[slot] = token;
            if !last {
                let own = self.known.net.stations[s].calls.contains(&target);
                let queue = if own { self.own_queue(g.task) } else { s };
                token = self.read(g.task, queue, when);
            }
        }
        if g.end == End::Sleep(false) {
            self.advance(g.task, g.to, 1.0);
            self.clear_out(s, g.to);
        }
    }

    /// Two that wait in a queue were mixed up: each is where the other was thought to be. The messages go
    /// with the requests, so that the way of a request is that of its messages.
    fn exchange(&mut self, s: usize, one: usize, other: usize) {
        let queue = &mut self.queues[s];
        let at = (queue[one].at, queue[other].at);
        queue.swap(one, other);
        (queue[one].at, queue[other].at) = at;
    }

    /// What `task` took last, for the request `taken`, and what waits at this place of its queue were
    /// mixed up.
    pub(super) fn change_places(&mut self, task: TaskIndex, taken: usize, waits: usize) {
        let (s, slot) = (self.station(task), self.slot(task));
        let (mark, message) = self.took[slot];
        let Some(item) = self.queues[s].get_mut(waits) else { return };
        let other = item.token;
        if message != u32::MAX {
            let instead = std::mem::replace(&mut item.message, message);
            self.took[slot].1 = instead;
            self.log.push(Said::Matched(task, mark, instead));
            self.log.push(Said::Taken(instead));
        }
        self.tokens.swap(taken, other);
        self.tokens[taken].visit(s);
        self.tokens[other].past = self.tokens[other].before.clone();
    }

    /// A station that sends nothing: it took all that was there.
    fn end_of_sink(&mut self, hold: Hold, g: Segment) {
        let s = self.station(g.task);
        self.tokens[hold.token].done = true;
        let most = ((g.stop - hold.start) as f64 / (LEAST * self.known.usual[s].mean)) as usize;
        let k = (1 + self.queues[s].iter().filter(|q| q.at < g.to).count()).min(most.max(1));
        self.book(s, g.stop - hold.start, k);
        let known = self.known;
        let track = &known.tracks[g.task as usize];
        for j in 1..k {
            let even = hold.start + (g.stop - hold.start) * j as Ns / k as Ns;
            let written = self.queues[s].front().map_or(0, |q| track.pos(q.at));
            let token = self.read(g.task, s, track.time(even.max(written)).min(g.to));
            self.tokens[token].done = true;
        }
        self.clear_out(s, g.to);
    }
}
