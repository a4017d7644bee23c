//! Follows messages through the network in the order of time.
//!
//! A segment of a task's work is one service or several. Each reads a message from the front of its queue and, in a station that
//! sends at all, ends with one message to another station. What decides how many there are, and where the messages went that
//! do not show:
//!
//! * nothing is read before it was written; queues are first in, first out;
//! * a task that falls asleep found its queue empty: whatever had been written before has been read;
//! * a message to a queue whose reader sleeps would have woken it, and would show;
//! * services of a station take about as long as those whose ends both show;
//! * requests take the ways that visible messages of requests with the same past take.
//!
//! A reader that goes on with an empty queue must have got a message that a task still at work has already written: the service of
//! that task is then taken to have ended. What stays unexplained is counted, and decides whether the outcome is used.

use std::collections::{HashMap, VecDeque};

use super::super::history::{History, LifeId};
use super::network::Network;
use super::routes::{Past, Routes};
use super::segments::{Asleep, Begin, End, Segment};
use super::track::Track;
use crate::task::Ns;

/// Most services in one segment.
pub(super) const MOST: usize = 256;
/// Shortest mean service against the usual one.
pub(super) const LEAST: f64 = 0.2;
/// Least share of a usual service after which a message may have been written.
const EARLY: f64 = 0.4;
/// Services of which both ends show that tell how long they take.
const SURE: usize = 20;
/// A service that takes longer than this share of a usual one was likely two.
const LONG: f64 = 1.6;

/// One thing about messages that a task did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// It took this message.
    Take(u32),
    /// It sent this message, and nobody was woken.
    Send(u32),
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Station whose pool reads it; none for a task's own queue.
    pub station: Option<usize>,
    pub sent: bool,
    pub taken: bool,
}

/// Usual service of a station, from the segments and services counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usual {
    /// Known from services of which both ends show.
    pub(super) fixed: bool,
    pub(super) mean: f64,
    pub(super) spread: f64,
    pub(super) sum: f64,
    pub(super) square: f64,
    pub(super) n: f64,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    /// Per life, in order of time.
    pub marks: Vec<Vec<(Ns, Mark)>>,
    /// Message of each visible wakeup.
    pub of_wake: HashMap<u32, u32>,
    pub messages: Vec<Message>,
    /// Messages that no wakeup shows.
    pub hidden: usize,
    /// Reads of messages that nobody can have written.
    pub unpaid: usize,
    /// Messages that nobody read.
    pub left: usize,
}

impl Token {
    fn visit(&mut self, station: usize) {
        self.before = self.past.clone();
        self.past.visit(station);
    }
}

impl Flow {
    /// Messages that contradict each other.
    pub fn unexplained(&self) -> usize {
        self.unpaid + self.left
    }
}

/// A request on its way.
#[derive(Clone, Debug, Default)]
pub(super) struct Token {
    pub(super) past: Past,
    /// The same before the service it is in.
    pub(super) before: Past,
    /// Tasks that wait for an answer to it.
    pub(super) callers: Vec<LifeId>,
    pub(super) done: bool,
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
pub(super) struct Debt {
    life: LifeId,
    mark: usize,
    token: usize,
    at: Ns,
}

/// How one service of a segment ends: its token, where it goes, and at which CPU time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) target: Option<usize>,
    pub(super) stop: Ns,
}

pub(super) struct Tracer<'a> {
    pub(super) history: &'a History,
    pub(super) net: &'a Network,
    pub(super) tracks: &'a [Track],
    pub(super) segments: &'a [Segment],
    pub(super) usual: Vec<Usual>,
    pub(super) routes: Routes,
    pub(super) learning: Routes,
    pub(super) first_pass: bool,
    pub(super) flow: Flow,
    pub(super) tokens: Vec<Token>,
    pub(super) queues: Vec<VecDeque<Item>>,
    pub(super) debts: Vec<VecDeque<Debt>>,
    pub(super) hold: Vec<Option<Hold>>,
    pub(super) last: Vec<usize>,
    /// Members of each station that sleep until a message for the pool comes, and tasks that sleep until one of their own does.
    pub(super) asleep: Vec<usize>,
    pub(super) asleep_own: Vec<bool>,
    pub(super) depth: usize,
    /// When the service began whose message is being sent.
    pub(super) hold_began: Ns,
    /// Debts that nobody at work can pay any more.
    pub(super) forgotten: Vec<(usize, Debt)>,
    /// When a reader of each station last fell asleep.
    pub(super) slept: Vec<Ns>,
}

/// What happens when: ends before begins, sleeps behind both.
#[derive(Clone, Copy, Debug)]
enum Event {
    Begin(usize),
    End(usize),
    Sleep(LifeId, bool),
    Wake(LifeId, bool),
}

impl<'a> Tracer<'a> {
    pub fn new(history: &'a History, net: &'a Network, tracks: &'a [Track], segments: &'a [Segment]) -> Self {
        let stations = net.stations.len();
        let lives = history.lives.len();
        let mut tracer = Tracer {
            history,
            net,
            tracks,
            segments,
            usual: vec![Usual::default(); stations],
            routes: Routes::default(),
            learning: Routes::default(),
            first_pass: true,
            flow: Flow::default(),
            tokens: Vec::new(),
            queues: vec![VecDeque::new(); stations + lives],
            debts: vec![VecDeque::new(); stations + lives],
            hold: vec![None; lives],
            last: vec![0; lives],
            asleep: vec![0; stations],
            asleep_own: vec![false; lives],
            depth: 0,
            hold_began: 0,
            forgotten: Vec::new(),
            slept: vec![0; stations],
        };
        tracer.first_guess();
        tracer
    }

    /// Usual services from segments that begin with a wakeup: the median.
    fn first_guess(&mut self) {
        for s in 0..self.usual.len() {
            let of = |only: &dyn Fn(&Segment) -> bool| {
                let mine = self.segments.iter().filter(|g| self.net.station[g.life as usize] == Some(s));
                let mut all: Vec<Ns> = mine.filter(|g| only(g)).map(|g| g.stop - g.start).collect();
                all.sort_unstable();
                all
            };
            // From a wakeup to a message is one service, mostly.
            let single = of(&|g| g.woken && matches!(g.end, End::Post(_)));
            let (all, fixed) = if single.len() >= SURE { (single, true) } else { (of(&|_| true), false) };
            let at = |share: f64| all.get((all.len() as f64 * share) as usize).map_or(1.0, |m| *m as f64);
            let (mean, spread) = (at(0.5), (at(0.84) - at(0.16)) / 2.0);
            let spread = if fixed { spread } else { 0.5 * mean };
            self.usual[s] = Usual { mean, spread: spread.clamp(0.1 * mean, 0.6 * mean), fixed, ..Usual::default() };
        }
    }

    /// One walk over the trace; the next uses what this one learnt.
    pub fn pass(&mut self, sleeps: &[Asleep]) {
        self.reset();
        let mut events: Vec<(Ns, u8, Event)> = Vec::with_capacity(2 * (self.segments.len() + sleeps.len()));
        for (i, g) in self.segments.iter().enumerate() {
            events.push((g.from, 1, Event::Begin(i)));
            events.push((g.to, if g.from < g.to { 0 } else { 2 }, Event::End(i)));
        }
        for s in sleeps {
            events.push((s.from, 3, Event::Sleep(s.life, s.reply)));
            // A message wakes its reader after it is written.
            events.push((s.to, 4, Event::Wake(s.life, s.reply)));
        }
        events.sort_by_key(|e| (e.0, e.1));
        for (at, _, event) in events {
            match event {
                Event::Begin(i) => self.begin(i),
                Event::End(i) => self.end(i),
                Event::Sleep(life, reply) => self.sleeps(life, reply, at, true),
                Event::Wake(life, reply) => self.sleeps(life, reply, at, false),
            }
        }
        self.settle();
        self.learnt();
    }

    pub fn into_flow(self) -> Flow {
        self.flow
    }

    fn reset(&mut self) {
        let lives = self.history.lives.len();
        self.flow = Flow { marks: vec![Vec::new(); lives], ..Flow::default() };
        self.tokens.clear();
        self.queues.iter_mut().for_each(VecDeque::clear);
        self.debts.iter_mut().for_each(VecDeque::clear);
        self.hold.fill(None);
        self.asleep.fill(0);
        self.asleep_own.fill(false);
        self.slept.fill(0);
    }

    fn learnt(&mut self) {
        self.first_pass = false;
        self.routes = std::mem::take(&mut self.learning);
        for u in &mut self.usual {
            if u.n >= 5.0 && !u.fixed {
                u.mean = u.sum / u.n;
                u.spread = (u.square / u.n).sqrt().clamp(0.1 * u.mean, 0.6 * u.mean);
            }
            (u.sum, u.square, u.n) = (0.0, 0.0, 0.0);
        }
    }

    pub(super) fn station(&self, life: LifeId) -> usize {
        self.net.station[life as usize].unwrap_or_default()
    }

    pub(super) fn own_queue(&self, life: LifeId) -> usize {
        self.net.stations.len() + life as usize
    }

    fn sleeps(&mut self, life: LifeId, reply: bool, at: Ns, now: bool) {
        if reply {
            self.asleep_own[life as usize] = now;
        } else {
            let s = self.station(life);
            if now {
                self.slept[s] = at;
            }
            self.asleep[s] = if now { self.asleep[s] + 1 } else { self.asleep[s].saturating_sub(1) };
        }
    }

    fn new_token(&mut self) -> usize {
        self.tokens.push(Token::default());
        self.tokens.len() - 1
    }

    fn begin(&mut self, i: usize) {
        let g = self.segments[i];
        let token = match g.begin {
            Begin::Message => {
                let queue = if g.own { self.own_queue(g.life) } else { self.station(g.life) };
                if !g.own {
                    self.advance(g.life, g.from, LONG);
                }
                let token = self.read(g.life, queue, g.from);
                if g.passes && self.queues[queue].is_empty() {
                    self.pull(g.life, queue, g.from);
                }
                token
            }
            Begin::Fresh | Begin::Outside => {
                let token = self.new_token();
                let s = self.station(g.life);
                self.tokens[token].visit(s);
                token
            }
            Begin::Same => {
                self.tokens.push(self.tokens.get(self.last[g.life as usize]).cloned().unwrap_or_default());
                self.tokens.len() - 1
            }
        };
        self.hold[g.life as usize] = Some(Hold { token, start: g.start, segment: i });
    }

    /// `life` reads from `queue`. Where that is empty, somebody must have written already.
    fn read(&mut self, life: LifeId, queue: usize, at: Ns) -> usize {
        if self.queues[queue].is_empty() && self.depth < 8 {
            self.depth += 1;
            self.pull(life, queue, at);
            self.depth -= 1;
        }
        let own = queue >= self.net.stations.len();
        let item = self.queues[queue].pop_front().or_else(|| self.fetch(queue));
        let (token, message) = match item {
            Some(item) => (item.token, item.message),
            None => {
                let token = self.new_token();
                let mark = self.flow.marks[life as usize].len();
                self.debts[queue].push_back(Debt { life, mark, token, at });
                (token, u32::MAX)
            }
        };
        if let Some(m) = self.flow.messages.get_mut(message as usize) {
            m.taken = true;
        }
        self.flow.marks[life as usize].push((at, Mark::Take(message)));
        let s = self.station(life);
        let t = &mut self.tokens[token];
        if own && t.callers.last() == Some(&life) {
            t.callers.pop();
        }
        t.visit(s);
        token
    }

    /// Ends the service of a task that must have written to `queue` before `at`.
    fn pull(&mut self, reader: LifeId, queue: usize, at: Ns) -> bool {
        let stations = self.net.stations.len();
        let to = if queue < stations { queue } else { self.station((queue - stations) as LifeId) };
        let mut best: Option<(f64, LifeId)> = None;
        for (life, hold) in self.hold.iter().enumerate() {
            let (Some(hold), life) = (hold, life as LifeId) else { continue };
            let s = self.station(life);
            let g = &self.segments[hold.segment];
            let pos = self.tracks[life as usize].pos(at);
            let ran = (pos - hold.start) as f64 / self.usual[s].mean;
            let goes_on = g.stop - pos > self.net.short;
            let fits = life != reader
                && self.net.stations[s].targets.contains_key(&to)
                && (queue < stations) != self.net.stations[to].answers.contains(&s)
                && (queue < stations || self.tokens[hold.token].callers.last() == Some(&reader))
                && ran >= EARLY
                && (goes_on || matches!(g.end, End::Sleep(_)));
            let score = self.share(s, hold.token, to) * ran.min(1.5);
            if fits && score > 0.1 && best.is_none_or(|b| score > b.0) {
                best = Some((score, life));
            }
        }
        if let Some((_, life)) = best {
            self.split(life, at, Some(to));
        }
        best.is_some()
    }

    /// A service of `life`, which is at work, ended before `at`; its message went to `to`, or where it likely went.
    fn split(&mut self, life: LifeId, at: Ns, to: Option<usize>) {
        let Some(hold) = self.hold[life as usize].take() else { return };
        let (s, g) = (self.station(life), self.segments[hold.segment]);
        let track = &self.tracks[life as usize];
        let stop = (hold.start + self.usual[s].mean as Ns).min(track.pos(at));
        let when = track.time(stop).min(at);
        self.book(s, stop - hold.start, 1);
        let token = &self.tokens[hold.token];
        let to = to.or_else(|| self.likely(s, &token.past, &token.callers, &|_| true).1);
        if let Some(to) = to {
            self.hold_began = track.time(hold.start);
            self.send(life, hold.token, to, when, None);
        }
        if g.stop - stop > self.net.short {
            let calls = to.is_some_and(|to| self.net.stations[s].calls.contains(&to));
            let token = self.read(life, if calls { self.own_queue(life) } else { s }, when);
            self.hold[life as usize] = Some(Hold { token, start: stop, segment: hold.segment });
        }
    }

    /// Others of the pool of `life` that have been at work for more than `much` of a usual service, while messages waited, have gone on
    /// with the next.
    fn advance(&mut self, life: LifeId, at: Ns, much: f64) {
        let s = self.station(life);
        let net = self.net;
        for &other in net.stations[s].members.iter().filter(|m| **m != life) {
            for _ in 0..MOST {
                let Some(hold) = self.hold[other as usize] else { break };
                let ran = self.tracks[other as usize].pos(at) - hold.start;
                let early = self.queues[s].front().is_none_or(|q| q.at >= at);
                if early || (ran as f64) < much * self.usual[s].mean {
                    break;
                }
                self.split(other, at, None);
            }
        }
    }

    /// Share of requests like `token` that go on from station `s` to `to`.
    pub(super) fn share(&self, s: usize, token: usize, to: usize) -> f64 {
        self.share_of(s, &self.tokens[token].past, to)
    }

    pub(super) fn share_of(&self, s: usize, past: &Past, to: usize) -> f64 {
        let routes = if self.first_pass { &self.learning } else { &self.routes };
        routes.share(past, to, self.net.stations[s].targets.len())
    }

    fn book(&mut self, s: usize, ran: Ns, services: usize) {
        let u = &mut self.usual[s];
        let (ran, k) = (ran as f64, services as f64);
        u.sum += ran;
        u.square += (ran - k * u.mean).powi(2) / k;
        u.n += k;
    }

    fn end(&mut self, i: usize) {
        let g = self.segments[i];
        let Some(hold) = self.hold[g.life as usize].take().filter(|h| h.segment == i) else { return };
        let s = self.station(g.life);
        if self.net.stations[s].targets.is_empty() {
            return self.end_of_sink(hold, g);
        }
        if g.end == End::Sleep(false) {
            self.advance(g.life, g.to, LONG);
        }
        // Longer than what waits accounts for: somebody has written more.
        let least = ((g.stop - hold.start) as f64 / (LONG * self.usual[s].mean)) as usize;
        let calls = !self.net.stations[s].calls.is_empty();
        for _ in 0..least.min(MOST) {
            let waiting = self.queues[s].iter().filter(|q| q.at < g.to).count();
            if calls || waiting >= least || !self.pull(g.life, s, g.to) {
                break;
            }
        }
        let next = self.segments.get(i + 1).filter(|n| n.life == g.life && !n.woken && !n.own);
        // It goes on at once: there was a message.
        let goes_on = next.is_some_and(|n| n.begin == Begin::Message && n.start - g.stop == n.from - g.to);
        let (parts, swap) = self.explain(s, hold, g, goes_on);
        if let (Some(j), Some(last)) = (swap, self.queues[s].get(parts.len().wrapping_sub(2)).map(|q| q.token)) {
            match j.checked_sub(1).and_then(|j| self.queues[s].get(j)).map(|q| q.token) {
                Some(waits) => self.tokens.swap(waits, last),
                None => self.change_places(s, hold.token, last),
            }
        }
        self.book(s, g.stop - hold.start, parts.len());
        let (mut token, track) = (hold.token, &self.tracks[g.life as usize]);
        self.hold_began = track.time(hold.start);
        for (j, part) in parts.iter().enumerate() {
            let last = j + 1 == parts.len();
            // Behind the last message it still looks for the next one.
            let when = match g.end {
                End::Sleep(_) if last => track.time((g.stop - self.net.short / 2).max(hold.start)).min(g.to),
                _ if last => g.to,
                _ => track.time(part.stop).min(g.to),
            };
            let Some(target) = part.target else { continue };
            match g.end {
                End::Post(wake) if last => self.send(g.life, token, target, when, Some(wake)),
                _ => self.send(g.life, token, target, when, None),
            }
            self.last[g.life as usize] = token;
            if !last {
                let own = self.net.stations[s].calls.contains(&target);
                let queue = if own { self.own_queue(g.life) } else { s };
                token = self.read(g.life, queue, when);
            }
        }
        if g.end == End::Sleep(false) {
            self.advance(g.life, g.to, 1.0);
            self.clear_out(s, g.to);
        }
    }

    /// A station that sends nothing: it took all that was there.
    fn end_of_sink(&mut self, hold: Hold, g: Segment) {
        let s = self.station(g.life);
        self.tokens[hold.token].done = true;
        let most = ((g.stop - hold.start) as f64 / (LEAST * self.usual[s].mean)) as usize;
        let k = (1 + self.queues[s].iter().filter(|q| q.at < g.to).count()).min(most.max(1));
        self.book(s, g.stop - hold.start, k);
        let track = &self.tracks[g.life as usize];
        for j in 1..k {
            let even = hold.start + (g.stop - hold.start) * j as Ns / k as Ns;
            let written = self.queues[s].front().map_or(0, |q| track.pos(q.at));
            let token = self.read(g.life, s, track.time(even.max(written)).min(g.to));
            self.tokens[token].done = true;
        }
        self.clear_out(s, g.to);
    }

    /// `token` goes from `life` to station `to`; with `wake` where that shows.
    fn send(&mut self, life: LifeId, token: usize, to: usize, at: Ns, wake: Option<u32>) {
        let s = self.station(life);
        let own = self.net.stations[to].answers.contains(&s);
        let reader = wake.map(|w| self.history.wakee[w as usize]);
        if let Some(reader) = reader {
            self.right_one(s, token, to, own.then_some(reader));
            let past = self.tokens[token].past.clone();
            self.learning.learn(&past, to);
        }
        let reader = reader.or_else(|| self.tokens[token].callers.last().copied());
        let queue = match (own, reader) {
            (true, Some(reader)) => self.own_queue(reader),
            (true, None) => self.own_queue(self.net.stations[to].members[0]),
            _ => to,
        };
        if self.net.stations[s].calls.contains(&to) {
            self.tokens[token].callers.push(life);
        }
        let message = self.flow.messages.len() as u32;
        self.flow.messages.push(Message { station: (!own).then_some(to), sent: true, taken: false });
        match wake {
            Some(wake) => {
                self.flow.of_wake.insert(wake, message);
            }
            None => {
                self.flow.hidden += 1;
                self.flow.marks[life as usize].push((at, Mark::Send(message)));
            }
        }
        let from = wake.is_none().then_some(s);
        let began = self.hold_began;
        while let Some(debt) = self.debts[queue].pop_front() {
            if began >= debt.at {
                // The service began after that was read.
                self.forgotten.push((queue, debt));
                continue;
            }
            if wake.is_none() {
                if let Some(mark) = self.flow.marks[life as usize].last_mut() {
                    mark.0 = mark.0.min(debt.at);
                }
            }
            self.pay(debt, token, message);
            return;
        }
        self.queues[queue].push_back(Item { token, message, at, from });
    }

    pub(super) fn deliver(&mut self, queue: usize, item: Item) {
        match self.debts[queue].pop_front() {
            Some(debt) => self.pay(debt, item.token, item.message),
            None => self.queues[queue].push_back(item),
        }
    }

    fn pay(&mut self, debt: Debt, token: usize, message: u32) {
        self.flow.messages[message as usize].taken = true;
        self.flow.marks[debt.life as usize][debt.mark].1 = Mark::Take(message);
        if self.hold[debt.life as usize].is_some_and(|h| h.token == debt.token) {
            self.tokens[debt.token] = self.tokens[token].clone();
            let s = self.station(debt.life);
            self.tokens[debt.token].visit(s);
        }
    }

    /// A visible message tells which request it is about: where that is not the one thought of, the two were mixed up.
    fn right_one(&mut self, s: usize, token: usize, to: usize, answers: Option<LifeId>) {
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
            (0..self.tokens.len()).rev().take(4096).find(live)
        };
        let Some(other) = other else { return };
        if self.queues[s].iter().any(|q| q.token == other) {
            self.change_places(s, token, other);
        } else {
            self.tokens.swap(token, other);
        }
    }

    /// Two requests of which `served` has been read and `waits` has not were mixed up.
    fn change_places(&mut self, s: usize, served: usize, waits: usize) {
        self.tokens.swap(served, waits);
        self.tokens[served].visit(s);
        self.tokens[waits].past = self.tokens[waits].before.clone();
    }

    /// Reads that nobody paid for: a source may have sent two messages at once. Counts what stays unexplained.
    fn settle(&mut self) {
        for queue in 0..self.debts.len() {
            let open: Vec<Debt> = self.debts[queue].drain(..).collect();
            self.forgotten.extend(open.into_iter().map(|d| (queue, d)));
        }
        for (queue, debt) in std::mem::take(&mut self.forgotten) {
            let source = |g: &&Segment| {
                let s = self.station(g.life);
                g.begin == Begin::Fresh && g.to <= debt.at && self.net.stations[s].targets.contains_key(&queue)
            };
            let sender = self.segments.iter().filter(source).max_by_key(|g| g.to).copied();
            let Some(g) = sender else {
                self.flow.unpaid += 1;
                continue;
            };
            let message = self.flow.messages.len() as u32;
            self.flow.messages.push(Message { station: Some(queue), sent: true, taken: true });
            self.flow.hidden += 1;
            self.flow.marks[g.life as usize].push((g.to, Mark::Send(message)));
            self.flow.marks[debt.life as usize][debt.mark].1 = Mark::Take(message);
        }
        // What was sent after the last reader fell asleep was still on its way when the trace ended.
        for (queue, items) in self.queues.iter().enumerate() {
            let until = self.slept.get(queue).copied().unwrap_or(Ns::MAX);
            self.flow.left += items.iter().filter(|q| q.at < until).count();
        }
        for marks in &mut self.flow.marks {
            marks.retain(|m| m.1 != Mark::Take(u32::MAX));
            marks.sort_by_key(|m| m.0);
        }
    }
}
