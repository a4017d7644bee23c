//! Messages that no wakeup shows.
//!
//! A reader of a pipe or another queue that finds a message waiting does not sleep, and whoever wrote it woke nobody: the trace holds no
//! record of either. So one stretch of work may hold several services, and a task may depend on others in ways that do
//! not show. `network` learns from the wakeups that do show who serves whom, `segments` cuts the work of each task at
//! what shows, `walk` follows the messages through it, `explain` says what a piece of work holds, `routes` knows where
//! messages go, `debts` settles what was read before it can be seen to be written. Where a guess could have been another, `beam` follows both until one of them contradicts what shows
//! (`log` is what they share), and `flow` is the outcome.
//!
//! The outcome is used where nearly everything is explained; else a replay under another order of events would serve messages that
//! were not sent yet, and says so.

mod beam;
mod debts;
mod explain;
mod flow;
mod log;
mod network;
mod routes;
mod segments;
mod track;
mod walk;

use std::collections::HashMap;

use super::history::{History, LifeId};
use crate::task::Ns;
use flow::{Flow, Mark};
use network::Network;
use track::Track;

/// Walks over the trace that try a network; the routes and service times of one are those that the next knows.
const PASSES: usize = 5;
/// Things that show, in the order of time, that tell which network it is.
const TRIAL: usize = 20_000;
/// Guesses followed side by side in each walk over the trace in the end.
const WIDTHS: [usize; 5] = [1, 16, 16, 32, 64];
/// Guesses times messages times tasks that one walk may take, and networks times messages times tasks that are tried: a large trace
/// takes no longer than some ten seconds.
const EFFORT: usize = 100_000_000;
const TRYING: usize = 6_000_000;
/// Share of messages left unexplained by one guess beyond which several do not help.
const HOPELESS: f64 = 0.1;
/// Fewest hidden messages, and least share of all, that make a difference.
const WORTH: (usize, f64) = (5, 0.01);
/// Stations beyond which nothing is tried, and guesses tried at most about stations that never seem to send.
const MANY: usize = 2_000;
const TRIES: usize = 64;
/// Share of messages that may stay unexplained.
const UNEXPLAINED: f64 = 0.002;

/// What is known about hidden messages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hidden {
    /// Messages, and those of them that no wakeup shows.
    pub messages: usize,
    /// Hidden ones.
    pub hidden: usize,
    /// Messages read and never written, written and never read, or written too late.
    pub unexplained: usize,
    /// The replay uses them: nearly everything is explained.
    pub resolved: bool,
}

impl Hidden {
    /// What becomes of the hidden messages, as a sentence; none where nothing is hidden.
    pub fn told(&self) -> Option<String> {
        let Hidden { messages, hidden, unexplained, resolved } = *self;
        if resolved && hidden > 0 {
            return Some(format!(
                "{hidden} of {messages} messages woke nobody, because their reader was awake; they are inferred from what the tasks did"
            ));
        }
        (!resolved && messages > 0).then(|| {
            format!(
                "messages are hidden (about {hidden} woke nobody) and {unexplained} of them stay unexplained, so each wakeup keeps its \
                 own cause: under a policy that orders work otherwise, work may come before its cause; a capture with sys_enter_read, \
                 sys_exit_read and sys_enter_write shows them"
            )
        })
    }
}

/// One thing about a message that a task did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Took it.
    Take(u32),
    /// Sent it without waking anybody.
    Send(u32),
}

/// Hidden messages of a trace.
#[derive(Clone, Debug, Default)]
pub(super) struct Messages {
    /// Per life, in order of time.
    pub acts: Vec<Vec<(Ns, Act)>>,
    /// Message of a wakeup.
    pub of_wake: HashMap<u32, u32>,
    /// Per message: the queue, none where only one task reads it; false when nobody reads it.
    pub queue: Vec<(Option<u32>, bool)>,
    /// Per message: the request that it is about.
    pub request: Vec<Option<u32>>,
    /// Queue from which each life is served, where its work begins with messages that others could take.
    pub serves: Vec<Option<u32>>,
    /// Lives in whose network wakeups are about messages.
    pub inside: Vec<bool>,
    /// Queues.
    pub queues: u32,
    pub found: Hidden,
}

impl Messages {
    /// No messages.
    pub(super) fn none(history: &History) -> Self {
        let n = history.lives.len();
        Messages { acts: vec![Vec::new(); n], inside: vec![false; n], serves: vec![None; n], ..Messages::default() }
    }
}

/// Looks for hidden messages. `outside` says which tasks' wakeups are no messages, `tail` is the rest of a system call behind a
/// wakeup.
pub(super) fn find(history: &History, outside: &dyn Fn(LifeId) -> bool, tail: Ns) -> Messages {
    let mut none = Messages::none(history);
    let tracks: Vec<Track> = history.lives.iter().map(|l| Track::of(l, history.span)).collect();
    let net = Network::learn(history, &tracks, outside);
    if net.stations.iter().all(|s| s.members.is_empty()) || net.stations.len() > MANY {
        return none;
    }
    // A server that is alone may read its answers from a queue of their own, or everything from one: what explains more.
    let other = net.one_queue_alone();
    let mut nets = [other, net].map(|net| with_silent_senders(history, &tracks, net, tail));
    nets.sort_by_key(|n| n.1.unexplained());
    let best = nets.into_iter().next().map(|(net, _)| {
        let flow = found(history, &tracks, &net, tail);
        (net, flow)
    });
    let Some((net, flow)) = best else { return none };
    let messages = flow.messages.len();
    let unexplained = flow.unexplained();
    none.found = Hidden { messages, hidden: flow.hidden, unexplained, resolved: false };
    let worth = flow.hidden >= WORTH.0 && flow.hidden as f64 > WORTH.1 * messages as f64;
    if !worth || unexplained as f64 > UNEXPLAINED * messages as f64 {
        none.found.resolved = !worth;
        return none;
    }
    none.found.resolved = true;
    for (life, marks) in flow.marks.iter().enumerate() {
        let act = |m: &(Ns, Mark)| match m.1 {
            Mark::Take(m0) => (m.0, Act::Take(m0)),
            Mark::Send(m0) => (m.0, Act::Send(m0)),
        };
        none.acts[life] = marks.iter().map(act).collect();
        none.inside[life] = net.station[life].is_some();
        none.serves[life] = net.station[life].filter(|_| net.server[life]).map(|s| s as u32);
    }
    none.queue = flow.messages.iter().map(|m| (m.station.map(|s| s as u32), m.taken)).collect();
    none.request = flow.messages.iter().map(|m| m.request).collect();
    none.of_wake = flow.of_wake;
    none.queues = net.stations.len() as u32;
    none
}

/// What one walk through `net` takes: messages times tasks.
fn effort(net: &Network, flow: &Flow) -> usize {
    let members: usize = net.stations.iter().map(|s| s.members.len()).sum();
    (members + 20) * flow.messages.len().max(1)
}

/// The messages of `net`: with several guesses side by side where one does not explain everything.
fn found(history: &History, tracks: &[Track], net: &Network, tail: Ns) -> Flow {
    let quick = follow(history, tracks, net, tail, &[1; PASSES], usize::MAX);
    let width = EFFORT / effort(net, &quick);
    let hopeless = quick.unexplained() as f64 > HOPELESS * quick.messages.len() as f64;
    if quick.hidden < WORTH.0 || quick.wrong() == 0 || hopeless || width < 2 {
        return quick;
    }
    let flow = follow(history, tracks, net, tail, &WIDTHS.map(|w| w.min(width)), usize::MAX);
    if flow.wrong() <= quick.wrong() {
        flow
    } else {
        quick
    }
}

/// A station whose messages never show looks as if it sent none: it does where that explains what others read.
fn with_silent_senders(history: &History, tracks: &[Track], net: Network, tail: Ns) -> (Network, Flow) {
    let flow = follow(history, tracks, &net, tail, &[1; PASSES], TRIAL);
    let mut best = (net, flow);
    let mut left = (TRYING / effort(&best.0, &best.1)).min(TRIES);
    while best.1.unpaid >= WORTH.0 {
        let silent = best.0.silent();
        let now = silent.len().min(left);
        left -= now;
        let tries = silent.into_iter().take(now).map(|(from, to)| {
            let net = best.0.with(from, to);
            let flow = follow(history, tracks, &net, tail, &[1; PASSES], TRIAL);
            (net, flow)
        });
        match tries.min_by_key(|t| t.1.unexplained()) {
            Some(better) if better.1.unexplained() * 2 < best.1.unexplained() => best = better,
            _ => break,
        }
    }
    best
}

/// The flow of messages through `net`.
fn follow(history: &History, tracks: &[Track], net: &Network, tail: Ns, widths: &[usize], first: usize) -> Flow {
    let (segments, sleeps) = segments::segments(history, tracks, net, tail);
    flow::follow(history, net, tracks, (&segments, &sleeps), (widths, first))
}
