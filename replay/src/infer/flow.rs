//! Follows messages through the network in the order of time.
//!
//! A segment of a task's work is one service or several. Each reads a message from the front of its
//! queue and, in a station that sends at all, ends with one message to another station. What
//! decides how many there are, and where the messages went that do not show:
//!
//! * nothing is read before it was written; queues are first in, first out;
//! * a task that falls asleep found its queue empty: whatever had been written before has been read;
//! * a message to a queue whose reader sleeps would have woken it, and would show;
//! * services of a station take about as long as those whose ends both show;
//! * requests take the routes that visible messages of requests with the same past take.
//!
//! A reader that goes on with an empty queue must have got a message that a task still at work has
//! already written: the service of that task is then taken to have ended. What stays unexplained is
//! counted, and decides whether the outcome is used.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use super::budget::Budget;
use super::log::Said;
use super::network::Network;
use super::routes::{Memo, Past, Routes};
use super::search::Search;
use super::segments::{Asleep, End, Segment};
use super::track::Track;
use super::walk::{Token, Walk};
use super::{Mark, Message};
use crate::history::{History, TaskIndex};
use crate::program::Calls;
use crate::task::Ns;

/// Services of which both ends show that say how long they take.
const SURE: usize = 20;
/// A route that fewer than one in so many requests took is its own.
const RARE: usize = 50;

/// Usual service of a station, from the segments and services counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usual {
    /// Known from services of which both ends show.
    fixed: bool,
    pub(super) mean: f64,
    pub(super) spread: f64,
}

/// Services counted: how long they took in all, the squares of what they were off by, how many.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Booked {
    pub(super) sum: f64,
    pub(super) square: f64,
    pub(super) n: f64,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    /// Per task, in order of time.
    pub marks: Vec<Vec<(Ns, Mark)>>,
    /// Message of each visible wakeup.
    pub of_wake: HashMap<u32, u32>,
    pub messages: Vec<Message>,
    /// Wakeups that are about no message: for a lock, or for a message that another one had taken.
    pub vain: HashSet<u32>,
    /// Whom messages wake, by queue, where that is known.
    pub calls: BTreeMap<usize, Calls>,
    /// Messages that no wakeup shows.
    pub unobserved: usize,
    /// Reads of messages that nobody can have written.
    pub unmatched: usize,
    /// Messages that nobody read.
    pub left: usize,
    /// Requests that went routes of their own.
    pub odd: usize,
    /// Calls that were recorded show the messages.
    pub recorded: bool,
}

impl Flow {
    /// Messages that contradict each other.
    pub fn unexplained(&self) -> usize {
        self.unmatched + self.left
    }

    /// The same, and requests that went routes of their own.
    pub fn wrong(&self) -> usize {
        self.unexplained() + self.odd
    }

    /// What a walk over that many `tasks` found, and where requests went.
    pub fn of(walk: &Walk, tasks: usize) -> (Flow, Routes) {
        let mut flow = Flow { marks: vec![Vec::new(); tasks], ..Flow::default() };
        let mut routes = Routes::default();
        // Requests that began with a read of what somebody had yet to be seen to write.
        let mut goes_on: HashMap<u32, (u32, &Past)> = HashMap::new();
        for said in walk.log.all() {
            match said {
                Said::Mark(task, at, mark) => flow.marks[*task as usize].push((*at, *mark)),
                Said::Matched(task, n, message) => flow.marks[*task as usize][*n].1 = Mark::Take(*message),
                Said::Earlier(task, n, at) => {
                    // But behind what the task did before.
                    let marks = &mut flow.marks[*task as usize];
                    let before = n.checked_sub(1).map_or(0, |n| marks[n].0);
                    marks[*n].0 = marks[*n].0.min(*at).max(before.min(marks[*n].0));
                }
                Said::Message(message) => flow.messages.push(*message),
                Said::Taken(message) => flow.messages[*message as usize].taken = true,
                Said::Went(message, station) => flow.messages[*message as usize].station = *station,
                Said::Wake(wake, message) => {
                    flow.of_wake.insert(*wake, *message);
                }
                Said::Same(one, other, past) => {
                    goes_on.insert(*one, (*other, past));
                }
                Said::Learnt(past, target) => routes.learn(past, *target),
            }
        }
        for marks in &mut flow.marks {
            marks.retain(|m| m.1 != Mark::Take(u32::MAX));
            marks.sort_by_key(|m| m.0);
        }
        let all = walk.tokens.len();
        let done: Vec<&Token> = (0..all).map(|t| &walk.tokens[t]).filter(|t| t.done).collect();
        let requests: Vec<Vec<u32>> = done.iter().map(|t| chain(&goes_on, t.request)).collect();
        let route = |(token, chain): (&&Token, &Vec<u32>)| {
            let before = chain.iter().rev().skip(1).flat_map(|r| goes_on[r].1.route());
            before.chain(token.past.route()).collect()
        };
        let taken: Vec<Vec<usize>> = done.iter().zip(&requests).map(route).collect();
        let odd = odd(&taken);
        flow.odd = odd.len();
        let first = |request: u32| chain(&goes_on, request).last().copied().unwrap_or(request);
        let doubted: HashSet<u32> = odd.iter().filter_map(|t| requests[*t].last().copied()).collect();
        flow.messages.iter_mut().for_each(|m| m.request = m.request.map(first).filter(|r| !doubted.contains(r)));
        if taken.len() * 2 > all {
            routes = Routes::of_complete(&taken);
        }
        (flow.unobserved, flow.unmatched, flow.left) = (walk.unobserved, walk.unmatched, walk.left);
        (flow, routes)
    }
}

/// A request and those that it goes on with, its first part last.
fn chain(goes_on: &HashMap<u32, (u32, &Past)>, request: u32) -> Vec<u32> {
    let mut chain = vec![request];
    while let Some((before, _)) = chain.last().and_then(|r| goes_on.get(r)).filter(|b| !chain.contains(&b.0)) {
        chain.push(*before);
    }
    chain
}

/// Which of these routes hardly any other request took.
fn odd(taken: &[Vec<usize>]) -> Vec<usize> {
    let mut number: HashMap<&[usize], usize> = HashMap::new();
    for route in taken {
        *number.entry(route).or_default() += 1;
    }
    (0..taken.len()).filter(|i| number[&taken[*i][..]] * RARE < taken.len()).collect()
}

/// What all walks of one pass know.
pub(super) struct Known<'a> {
    pub(super) budget: &'a Budget,
    pub(super) history: &'a History,
    pub(super) net: &'a Network,
    pub(super) tracks: &'a [Track],
    pub(super) segments: &'a [Segment],
    pub(super) usual: Vec<Usual>,
    pub(super) routes: Routes,
    pub(super) first_pass: bool,
    /// Tasks of the network, and the place of each task among them.
    pub(super) members: Vec<TaskIndex>,
    pub(super) slot: Vec<usize>,
    /// Of each station, in ascending order.
    pub(super) targets: Vec<Vec<Target>>,
    /// What `routes` say, behind the first pass: shares of the targets of a station, and where else
    /// a message may have gone, with the number of targets that were looked at.
    pub(super) shares: Memo<Rc<[f64]>>,
    pub(super) elsewhere: Memo<(usize, Option<(f64, usize)>)>,
}

/// A station to which another sends.
pub(super) struct Target {
    pub(super) station: usize,
    /// Messages from there go to the task's own queue.
    pub(super) answered: bool,
}

/// What happens when: ends before begins, sleeps behind both.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Begin(usize),
    End(usize),
    Sleep(TaskIndex, bool),
    Wake(TaskIndex, bool),
}

impl<'a> Known<'a> {
    pub fn new(search: &Search<'a>, net: &'a Network, segments: &'a [Segment]) -> Self {
        let Search { budget, history, tracks, .. } = *search;
        let members: Vec<TaskIndex> = net.stations.iter().flat_map(|s| s.members.iter().copied()).collect();
        let mut slot = vec![usize::MAX; history.tasks.len()];
        for (i, task) in members.iter().enumerate() {
            slot[*task as usize] = i;
        }
        let mut own = vec![Vec::new(); net.stations.len()];
        for g in segments {
            if let Some(own) = net.station[g.task as usize].and_then(|s| own.get_mut(s)) {
                own.push(g);
            }
        }
        let targets = net.stations.iter().enumerate().map(|(s, station)| {
            let answered = |t: usize| net.stations[t].answers.contains(&s);
            station.targets.keys().map(|t| Target { station: *t, answered: answered(*t) }).collect()
        });
        Known {
            budget,
            history,
            net,
            tracks,
            segments,
            usual: own.iter().map(|own| usual(own)).collect(),
            routes: Routes::default(),
            first_pass: true,
            members,
            slot,
            targets: targets.collect(),
            shares: Memo::default(),
            elsewhere: Memo::default(),
        }
    }

    /// Everything that shows, in the order of time.
    pub fn events(&self, sleeps: &[Asleep]) -> Vec<(Ns, u8, Event)> {
        let mut events: Vec<(Ns, u8, Event)> = Vec::with_capacity(2 * (self.segments.len() + sleeps.len()));
        for (i, g) in self.segments.iter().enumerate() {
            events.push((g.from, 1, Event::Begin(i)));
            events.push((g.to, if g.from < g.to { 0 } else { 2 }, Event::End(i)));
        }
        for s in sleeps {
            events.push((s.from, 3, Event::Sleep(s.task, s.reply)));
            // A message wakes its reader after it is written.
            events.push((s.to, 4, Event::Wake(s.task, s.reply)));
        }
        events.sort_by_key(|e| (e.0, e.1));
        events
    }

    /// What a walk found out is known from now on.
    pub fn learnt(&mut self, booked: &[Booked], routes: Routes) {
        self.first_pass = false;
        self.routes = routes;
        (self.shares, self.elsewhere) = (Memo::default(), Memo::default());
        for (u, b) in self.usual.iter_mut().zip(booked).filter(|(u, b)| b.n >= 5.0 && !u.fixed) {
            u.mean = b.sum / b.n;
            u.spread = (b.square / b.n).sqrt().clamp(0.1 * u.mean, 0.6 * u.mean);
        }
    }
}

/// Usual service of a station, of which these are the segments, from those that begin with a wakeup:
/// the median.
fn usual(own: &[&Segment]) -> Usual {
    let of = |only: &dyn Fn(&Segment) -> bool| {
        let mut all: Vec<Ns> = own.iter().filter(|g| only(g)).map(|g| g.stop - g.start).collect();
        all.sort_unstable();
        all
    };
    // From a wakeup to a message is one service, mostly.
    let single = of(&|g| g.woken && matches!(g.end, End::Post(_)));
    let (all, fixed) = if single.len() >= SURE { (single, true) } else { (of(&|_| true), false) };
    let at = |share: f64| all.get((all.len() as f64 * share) as usize).map_or(1.0, |m| *m as f64);
    let (mean, spread) = (at(0.5), (at(0.84) - at(0.16)) / 2.0);
    let spread = if fixed { spread } else { 0.5 * mean };
    Usual { mean, spread: spread.clamp(0.1 * mean, 0.6 * mean), fixed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_on_where_its_reader_was_ahead_of_its_writer() {
        let past = Past::default();
        let goes_on = HashMap::from([(7, (4, &past)), (4, (1, &past)), (9, (9, &past))]);
        assert_eq!((chain(&goes_on, 7), chain(&goes_on, 1)), (vec![7, 4, 1], vec![1]));
        assert_eq!(chain(&goes_on, 9), [9], "one that is said to be itself comes to an end");
    }
}
