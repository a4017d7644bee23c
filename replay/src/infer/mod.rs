//! Messages that no wakeup shows.
//!
//! A reader of a pipe or another queue that finds a message waiting does not sleep, and whoever
//! wrote it woke nobody: the trace holds no record of either. So one stretch of work may hold
//! several services, and a task may depend on others in ways that do not show. `network` learns
//! from the wakeups that do show who receives from whom, `segments` cuts the work of each task at what
//! shows, `walk` and `sends` follow the messages through it, `explain` says what a piece of work
//! holds, `routes` knows where messages go, `pending_reads` settles what was read before it can be seen to
//! be written. Where a guess could have been another, `beam` follows both until one of them
//! contradicts what shows (`log` is what they share), and `flow` is the outcome. `search` says how many
//! guesses, and which networks. Where tasks take turns, so that never more than one of them works,
//! none of that is needed: `turns`. How long a service takes is a matter of work: `track` says how much
//! was done where CPUs are not equally fast. Where the calls by which tasks read and write were
//! recorded, nothing is guessed: `calls`.
//! Pipelines pass on more than one message at a time, and wait where a pipe is full or empty: `buffers`.
//! Where many write what one reads: `inboxes`. One that keeps several others at work: `hubs`.
//! Tasks that share a lock send no messages at all: `locks`. Where three and more do, that is clear first; so
//! is a barrier: `barriers`. What tasks share besides messages is taken over, and back, in `shared`.
//! `sets` says what belongs together, and `report` is what users read.
//!
//! Each group of tasks that send each other messages is searched by itself, within a budget that is
//! a hard bound. The outcome is used where nearly everything is explained. Else the group is named:
//! pipelines of it fill and empty their buffers, those that share a queue take its work as it comes
//! (`pools`), the others keep their recorded causes, since a replay under another order of events would
//! handle messages that were not sent yet.

mod barriers;
mod beam;
mod budget;
mod buffers;
mod bursts;
mod calls;
mod explain;
mod flow;
mod groups;
mod hubs;
mod inboxes;
mod locks;
mod log;
mod network;
mod pending_reads;
mod pools;
mod report;
mod routes;
mod search;
mod segments;
mod sends;
mod sets;
mod shared;
pub(crate) mod track;
mod turns;
pub(crate) mod waits;
mod walk;

use std::collections::{HashMap, HashSet};

use crate::calibrate::Overheads;
use crate::cancel::Cancel;
use crate::history::{By, EventKind, History, TaskIndex};
use crate::program::{Buffer, Calls};
use crate::speeds::Speeds;
use crate::task::{Ns, TaskId};
use budget::{most_steps, Budget};
use buffers::Pipes;
use flow::Flow;
use groups::unsearched;
pub use groups::{Group, Outcome, Unobserved};
pub(crate) use locks::Attempt;
use network::Network;
use search::Search;
pub(crate) use track::Track;
use waits::Waits;

/// Steps of the search, in all groups together: things that show, times guesses followed side by
/// side. It moves no result but that of a group that needs more: fewer guesses are then followed
/// there, and at last none. 36,000 events of 13 tasks with 6,000 messages take 4.5 million.
pub(crate) const BUDGET: usize = 6_000_000;
/// Share of messages left unexplained by one guess beyond which several do not help, and beyond
/// which tasks do not take turns.
const HOPELESS: f64 = 0.1;
/// Fewest unobserved messages, and least share of all, that make a difference.
pub(crate) const WORTH: (usize, f64) = (5, 0.01);
/// Stations beyond which nothing is tried.
const MANY: usize = 2_000;
/// Share of messages that may stay unexplained.
const UNEXPLAINED: f64 = 0.002;

/// One thing that a task did and no record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mark {
    /// It took this message.
    Take(u32),
    /// It sent this message, and nobody was woken.
    Send(u32),
    /// It put a unit into this buffer.
    Put(u32),
    /// It took one out of this buffer.
    Get(u32),
    /// It came to a lock.
    Attempt(Attempt),
    /// It came to this barrier.
    Barrier(u32),
}

/// A message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    /// Station whose pool reads it, which is the number of the queue; none for a task's own queue.
    pub station: Option<usize>,
    /// Somebody reads it.
    pub taken: bool,
    /// The request that it is about, where nothing contradicts that.
    pub request: Option<u32>,
    /// The calls that wrote and read it were recorded.
    pub recorded: bool,
}

/// Unobserved messages of a trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Messages {
    /// Per task, in order of time.
    pub marks: Vec<Vec<(Ns, Mark)>>,
    /// The messages, by their numbers.
    pub sent: Vec<Message>,
    /// Message of a wakeup.
    pub of_wake: HashMap<u32, u32>,
    /// When the tasks that these wakeups woke were woken, for tasks in explained groups.
    pub woken_at: HashMap<u32, Ns>,
    /// Queue from which each task receives, where its work begins with messages that others could take.
    pub receives: Vec<Option<u32>>,
    /// Tasks in whose network wakeups are about messages.
    pub inside: Vec<bool>,
    /// Queues.
    pub queues: u32,
    /// Per queue, where not for all of them: whom messages wake.
    pub calls: Vec<Calls>,
    /// Wakeups that are about no message: for a lock, for room in a buffer or what is in it, or for
    /// a message that another one had taken.
    pub explained: HashSet<u32>,
    /// Buffers between tasks whose messages cannot be followed one by one.
    pub buffers: Vec<Buffer>,
    /// Locks between tasks that send each other no messages: who asks for each.
    pub locks: Vec<Vec<TaskId>>,
    /// Barriers: who comes to each.
    pub barriers: Vec<Vec<TaskId>>,
    pub found: Unobserved,
}

impl Messages {
    /// No messages.
    pub(crate) fn none(history: &History) -> Self {
        let n = history.tasks.len();
        Messages { marks: vec![Vec::new(); n], inside: vec![false; n], receives: vec![None; n], ..Messages::default() }
    }
}

/// Looks for unobserved messages, group by group of tasks that send each other messages. `outside` says
/// which tasks' wakeups are no messages, `speeds` how fast the CPUs are, as far as that is known
/// before, `over` what the rest of a system call behind a wakeup costs. The search takes at most a
/// fixed number of steps; a group that is not explained by then, or not nearly completely, keeps its
/// recorded causes and is named. Where several tasks of such groups put what one takes out, the second is the
/// same without that: which of the two replays the recorded run better is to be seen.
pub(crate) fn infer(
    history: &History,
    outside: &dyn Fn(TaskIndex) -> bool,
    speeds: &Speeds,
    over: &Overheads,
    cancel: &Cancel,
) -> (Messages, Option<Messages>) {
    let tracks: Vec<Track> = history.tasks.iter().map(|l| Track::of(l, history.span, speeds)).collect();
    let waits = waits::waits(history);
    let given = Given { history, tracks: &tracks, waits: &waits, over, cancel };
    let found = given.infer(outside, Pipes::default());
    let pipes = inboxes::find(history, &tracks, &waits, &found.unsettled());
    if pipes.found.is_empty() {
        return (found, None);
    }
    (given.infer(outside, pipes), Some(found))
}

/// What is looked at.
struct Given<'a> {
    history: &'a History,
    tracks: &'a [Track],
    waits: &'a Waits,
    over: &'a Overheads,
    cancel: &'a Cancel,
}

impl Given<'_> {
    /// Looks for messages of tasks other than those whose buffers are known, which make groups of
    /// [`Outcome::Gathered`].
    fn infer(&self, outside: &dyn Fn(TaskIndex) -> bool, known: Pipes) -> Messages {
        let Given { history, tracks, waits, over, cancel } = *self;
        let mut found = Messages::none(history);
        for tasks in known.groups() {
            found.found.groups.push(unsearched(tasks, Outcome::Gathered));
        }
        found.add_buffers(known);
        found.find_barriers(history, waits);
        // Of three and more that wait for each other it is clear whether they share a lock; two may call
        // each other, or have a buffer between them.
        found.find_locks((tracks, over), (history, waits), 3);
        let known: Vec<bool> = (0..history.tasks.len() as TaskIndex).map(|t| !found.is_open(t)).collect();
        let outside = |task: TaskIndex| outside(task) || known[task as usize];
        let budget = Budget::new(BUDGET, cancel.clone());
        let net = match Network::learn(&budget, history, tracks, waits, &outside) {
            Ok(net) => net,
            Err(tasks) => {
                found.found.groups.push(unsearched(tasks, Outcome::TooLarge));
                found.found.spent = budget.spent();
                found.take_locks();
                return found;
            }
        };
        found.queues = net.stations.len() as u32;
        let groups = net.groups();
        let mut sizes: Vec<usize> = groups.iter().map(|g| size(&net.only(g), history)).collect();
        let (mut spent, mut left) = (budget.spent(), BUDGET.saturating_sub(budget.spent()));
        for group in &groups {
            let part = net.only(group);
            let all: usize = sizes.iter().sum();
            let share = left as f64 * (sizes.remove(0) as f64 / all.max(1) as f64);
            let budget = Budget::new(share as usize, cancel.clone());
            found.add(
                part,
                &Search { budget: &budget, history, tracks, tail: over.wakeup_tail.ns, limits: over.limits },
                waits,
            );
            spent += budget.spent().min(share as usize);
            left -= budget.spent().min(left);
        }
        found.found.spent = spent;
        let pipes = Pipes::find(history, tracks, waits, &found.open());
        found.take_buffers(pipes);
        found.find_locks((tracks, over), (history, waits), 2);
        found.take_locks();
        found.found.resolved = !found.found.groups.iter().any(|g| g.outcome.is_open());
        if !found.inside.contains(&true) {
            found.queues = 0;
        }
        found
    }
}

/// Share of messages that stay unexplained.
fn share(flow: &Flow) -> f64 {
    flow.unexplained() as f64 / flow.messages.len().max(1) as f64
}

/// What the tasks of `net` did.
fn size(net: &Network, history: &History) -> usize {
    net.members().iter().map(|m| history.tasks[*m as usize].events.len()).sum()
}

impl Messages {
    /// When each task took messages, or came to a barrier: where one piece of work ends and the next begins.
    pub(crate) fn cuts(&self) -> Vec<Vec<Ns>> {
        let cuts = |m: &&(Ns, Mark)| matches!(m.1, Mark::Take(_) | Mark::Barrier(_));
        self.marks.iter().map(|marks| marks.iter().filter(cuts).map(|m| m.0).collect()).collect()
    }

    /// How long a task works from one sleep to the next is a matter of the work, and not of when it meets
    /// others.
    pub(crate) fn works(&self, task: TaskIndex) -> bool {
        !self.shares_lock(task) && !self.uses_buffer(task)
    }

    /// For each queue: how many tasks receive from it.
    pub(crate) fn readers(&self) -> Vec<u32> {
        let mut readers = Vec::new();
        for queue in self.receives.iter().flatten().map(|q| *q as usize) {
            readers.resize(readers.len().max(queue + 1), 0);
            readers[queue] += 1;
        }
        readers
    }

    /// The tasks of groups whose messages cannot be followed.
    pub(crate) fn unexplained(&self) -> impl Iterator<Item = TaskIndex> + '_ {
        let open = |g: &&Group| matches!(g.outcome, Outcome::Unexplained | Outcome::TooLarge);
        self.found.groups.iter().filter(open).flat_map(|g| g.tasks.iter().copied())
    }

    /// The tasks that are in no group whose messages are known, one way or the other.
    fn unsettled(&self) -> HashSet<TaskIndex> {
        let groups = self.found.groups.iter().filter(|g| !g.outcome.is_open());
        let known: HashSet<TaskIndex> = groups.flat_map(|g| g.tasks.iter().copied()).collect();
        (0..self.inside.len() as TaskIndex).filter(|task| !known.contains(task)).collect()
    }

    /// Adds what is found about the tasks of `net`.
    fn add(&mut self, net: Network, search: &Search, waits: &Waits) {
        let tasks = net.members();
        if net.stations.iter().filter(|s| !s.members.is_empty()).count() > MANY {
            return self.found.groups.push(unsearched(tasks, Outcome::TooLarge));
        }
        // Where calls show the messages, or tasks take turns, nothing has to be guessed, and nothing
        // can wait for ever.
        let clear = |f: &Flow| share(f) <= HOPELESS;
        let shown = calls::calls(&net, search.history, self.queues as usize).filter(|f| clear(&f.1));
        let turns = || turns::turns(&net, search.history).filter(clear).map(|f| (turns::as_calls(&net), f));
        let sure = shown.or_else(turns);
        let allowed = if sure.is_some() { HOPELESS } else { search.limits.of("unexplained", UNEXPLAINED) };
        let (net, flow) = sure.unwrap_or_else(|| search.best(net));
        let worth = flow.unobserved >= WORTH.0 && flow.unobserved as f64 > WORTH.1 * flow.messages.len() as f64;
        let outcome = match worth {
            _ if search.budget.is_over() => Outcome::TooLarge,
            false => Outcome::Plain,
            true if share(&flow) > allowed => Outcome::Unexplained,
            true => Outcome::Explained,
        };
        let open = matches!(outcome, Outcome::Unexplained | Outcome::TooLarge);
        // By CPU time: how fast the CPUs are follows from how many requests each burst holds.
        let time = |l| Track::of(l, search.history.span, &Speeds::default());
        let tracks: Vec<Track> = search.history.tasks.iter().filter(|_| open).map(time).collect();
        if let Some((hubs, flow)) = open.then(|| hubs::hubs(&net, search.history, &tracks, waits)).flatten() {
            let (messages, unobserved) = (flow.messages.len(), flow.unobserved);
            self.found.groups.push(Group { messages, unobserved, ..unsearched(tasks, Outcome::Hub) });
            self.found.messages += messages;
            self.found.unobserved += unobserved;
            return self.take_queues(&hubs, &flow);
        }
        let pools = open.then(|| pools::alone(&net, search.history, &tracks, search.limits)).flatten();
        // Two limits that show say more than that two tasks, which a third one wakes in turns, look alike.
        let members = || tasks.iter().copied().collect();
        let buffered = || Pipes::find(search.history, search.tracks, waits, &members()).join(&tasks);
        let (flow, outcome) = match pools.filter(|_| !buffered()) {
            Some(pools) => {
                let flow = pools::work(&net, &pools, search.history, &tracks, search.limits);
                self.take_queues(&pools, &flow);
                (flow, Outcome::Pooled)
            }
            None => (flow, outcome),
        };
        let (messages, unobserved, unexplained) = (flow.messages.len(), flow.unobserved, flow.unexplained());
        self.found.groups.push(Group { tasks, messages, unobserved, unexplained, outcome, recorded: flow.recorded });
        self.found.messages += messages;
        self.found.unobserved += unobserved;
        self.found.unexplained += unexplained;
        if outcome == Outcome::Explained {
            self.take(&net, &flow, search);
        }
    }

    /// Takes over the work of those that receive from the queues of `readers`.
    fn take_queues(&mut self, readers: &Network, flow: &Flow) {
        self.calls.resize(readers.stations.len().max(self.calls.len()), Calls::default());
        flow.calls.iter().for_each(|(queue, calls)| self.calls[*queue] = *calls);
        self.explained.extend(&flow.vain);
        self.number(flow);
        for member in readers.members() {
            let i = member as usize;
            (self.inside[i], self.receives[i]) = (true, readers.station[i].map(|s| s as u32));
        }
    }

    /// Takes over messages; they and their requests get numbers behind those so far.
    fn number(&mut self, flow: &Flow) {
        let before = self.sent.len() as u32;
        let requests = self.sent.iter().filter_map(|m| m.request).max().map_or(0, |r| r + 1);
        let renumbered = |(at, mark): &(Ns, Mark)| match *mark {
            Mark::Take(message) => (*at, Mark::Take(before + message)),
            Mark::Send(message) => (*at, Mark::Send(before + message)),
            other => (*at, other),
        };
        for (all, marks) in self.marks.iter_mut().zip(&flow.marks).filter(|m| !m.1.is_empty()) {
            *all = marks.iter().map(renumbered).collect();
        }
        let numbered =
            |m: &Message| Message { request: m.request.map(|r| r + requests), recorded: flow.recorded, ..*m };
        self.sent.extend(flow.messages.iter().map(numbered));
        self.of_wake.extend(flow.of_wake.iter().map(|(wake, m)| (*wake, before + m)));
    }

    /// Takes over what explains a group.
    fn take(&mut self, net: &Network, flow: &Flow, search: &Search) {
        self.number(flow);
        self.queues = self.queues.max(net.stations.len() as u32);
        for task in net.members() {
            let i = task as usize;
            self.inside[i] = true;
            for event in &search.history.tasks[i].events {
                if let EventKind::Woken { by: By::Task { wake, .. }, .. } = event.kind {
                    self.woken_at.insert(wake, event.at);
                }
            }
            self.receives[i] = net.station[i].filter(|_| net.server[i]).map(|s| s as u32);
        }
    }
}
