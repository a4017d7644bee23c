//! Who sends messages to whom: servers, pools of servers that share a queue, and replies.
//!
//! Everything is learnt from the wakeups that show, nothing from names:
//!
//! * a **server** is woken by other tasks, hardly ever by interrupts; a **source** by timers, and
//!   wakes servers;
//! * servers of one **pool** share a queue: whoever wakes one of them wakes the one that has slept longest;
//! * a task that always sleeps, behind a message to X, until Y wakes it, and behind a message to V
//!   until W does, reads from **two queues**: the one with which its work begins is shared by the
//!   pool, the other is its own (a reply). What a source sends begins work.

use std::collections::{BTreeMap, BTreeSet};

use super::budget::Budget;
use super::sets::Sets;
use super::track::{short, Track};
use super::waits::{Wait, Waits};
use crate::history::{By, EventKind, History, Off, TaskHistory, TaskIndex};
use crate::task::Ns;

/// Wakeups by tasks that a server needs, and waits of a sender for those that it woke.
pub(super) const FEW: usize = 3;
/// Share of contested wakeups in which another than the one that slept longest may have been woken in a
/// pool: of few wakeups, and of so many that chance is ruled out. By chance it is half; where sleeps for
/// a lock are among them, some 15 % in pools of 8 and 16 threads, and 25 % for single ones of them.
const OUT_OF_TURN: f64 = 0.1;
const LOCKS: f64 = 1.0 / 3.0;
/// Standard deviations by which the latter differs from chance: one pair in 2,000.
const SURE: f64 = 3.29;
/// Share of the sleeps behind a message below which a waker does not count.
const RARE: f64 = 0.03;

/// A pool of servers with one queue, or a source.
#[derive(Clone, Debug, Default)]
pub(super) struct Station {
    /// Its tasks.
    pub members: Vec<TaskIndex>,
    /// Stations to which it sends, with visible messages.
    pub targets: BTreeMap<usize, usize>,
    /// Stations whose messages go to the task's own queue.
    pub answers: BTreeSet<usize>,
    /// Stations behind a message to which the task reads from its own queue.
    pub calls: BTreeSet<usize>,
}

/// What is known of the flow of messages.
#[derive(Clone, Debug, Default)]
pub(super) struct Network {
    /// Station of each task.
    pub station: Vec<Option<usize>>,
    /// The stations.
    pub stations: Vec<Station>,
    /// Tasks whose work begins with a message; the others are sources.
    pub server: Vec<bool>,
    /// CPU time from a message to the sleep, or from a wakeup for nothing to the sleep, is below this.
    pub short: Ns,
}

/// Tasks that woke `task`, and how often something else did. What ends wakes its parent, which is no message.
fn wakers(history: &History, task: &TaskHistory) -> (Vec<TaskIndex>, usize) {
    let (mut tasks, mut others) = (Vec::new(), 0);
    for event in &task.events {
        match event.kind {
            EventKind::Woken { by: By::Task { waker, .. }, .. } => {
                tasks.extend((!exiting(&history.tasks[waker as usize], event.at)).then_some(waker));
            }
            EventKind::Woken { .. } => others += 1,
            _ => {}
        }
    }
    (tasks, others)
}

/// True when the task begins to exit before `at`: the wakeups it makes then are no messages.
fn exiting(task: &TaskHistory, at: Ns) -> bool {
    task.events.iter().rev().take(64).any(|a| a.kind == EventKind::Exiting && a.at <= at)
}

impl Network {
    /// True when a message from station `from` to the task `to` goes to its own queue.
    pub fn answers(&self, from: usize, to: TaskIndex) -> bool {
        self.station[to as usize].is_some_and(|s| self.stations[s].answers.contains(&from))
    }

    /// The same, but station `from` sends to `to`, though that never shows.
    pub fn with(&self, from: usize, to: usize) -> Self {
        let mut other = self.clone();
        other.stations[from].targets.insert(to, 0);
        other
    }

    /// Stations that never send and others that they may send to.
    pub fn silent(&self) -> Vec<(usize, usize)> {
        let all = || (0..self.stations.len()).filter(|s| !self.stations[*s].members.is_empty());
        let mut found = Vec::new();
        for from in all().filter(|s| self.stations[*s].targets.is_empty()) {
            found.extend(all().filter(|to| *to != from && self.is_server(*to)).map(|to| (from, to)));
        }
        found
    }

    /// What the wakeups that show say; the tasks that seem to send each other messages where that
    /// takes more than `budget`.
    pub fn learn(
        budget: &Budget,
        history: &History,
        tracks: &[Track],
        waits: &Waits,
        outside: &dyn Fn(TaskIndex) -> bool,
    ) -> Result<Self, Vec<TaskIndex>> {
        let n = history.tasks.len();
        let mut server = vec![false; n];
        let mut source = vec![false; n];
        for task in &history.tasks {
            let (tasks, others) = wakers(history, task);
            let inner = tasks.iter().filter(|w| !outside(**w)).count();
            let others = others + tasks.len() - inner;
            server[task.id as usize] = !outside(task.id) && inner >= FEW && others <= 2.max(inner * 15 / 100);
            source[task.id as usize] = !outside(task.id) && !server[task.id as usize] && others >= 5;
        }
        // A source sends to servers, most times that it is woken; where those never sleep, it may wake one
        // now and then, but nobody else.
        for task in &history.tasks {
            if source[task.id as usize] {
                let alive = task.events.iter().take_while(|a| a.kind != EventKind::Exiting);
                let posts: Vec<TaskIndex> = alive.filter_map(|a| posted(history, a.kind)).collect();
                let sent = posts.iter().filter(|w| server[**w as usize]).count();
                let woken = wakers(history, task).1;
                source[task.id as usize] = sent * 4 >= woken || sent >= FEW && sent == posts.len();
            }
        }
        let inside: Vec<bool> = (0..n).map(|i| server[i] || source[i]).collect();
        let mut net = Network { station: vec![None; n], server, ..Network::default() };
        net.short = short(history, tracks, &inside);
        if net.find_pools(budget, history, waits, &inside).is_none() {
            return Err((0..n as TaskIndex).filter(|t| inside[*t as usize]).collect());
        }
        net.drop_weak(history);
        net.find_replies(history, tracks);
        Ok(net)
    }

    /// The stations that messages connect with one another, group by group.
    pub fn groups(&self) -> Vec<BTreeSet<usize>> {
        let mut sets = Sets::new(self.stations.len());
        for (s, station) in self.stations.iter().enumerate() {
            station.targets.keys().for_each(|to| sets.join(s, *to));
        }
        let used = (0..self.stations.len()).filter(|s| !self.stations[*s].members.is_empty());
        let mut groups = sets.of(used);
        groups.retain(|g| g.iter().any(|s| !self.stations[*s].targets.is_empty()));
        groups
    }

    /// The network of these stations alone; the others keep their numbers and are empty.
    pub fn only(&self, group: &BTreeSet<usize>) -> Self {
        let mut part = self.clone();
        for (s, station) in part.stations.iter_mut().enumerate().filter(|s| !group.contains(&s.0)) {
            station.targets.clear();
            for m in std::mem::take(&mut station.members) {
                debug_assert_eq!(part.station[m as usize], Some(s));
                part.station[m as usize] = None;
            }
        }
        part
    }

    /// Its tasks, in order.
    pub fn members(&self) -> Vec<TaskIndex> {
        let mut members: Vec<TaskIndex> = self.stations.iter().flat_map(|s| s.members.iter().copied()).collect();
        members.sort_unstable();
        members
    }

    /// Stations: servers that share a queue.
    fn find_pools(&mut self, budget: &Budget, history: &History, waits: &Waits, inside: &[bool]) -> Option<()> {
        let mut pools = Sets::new(inside.len());
        let mut by_waker: BTreeMap<TaskIndex, Vec<(TaskIndex, &[Wait])>> = BTreeMap::new();
        for ((waker, task), sleeps) in waits {
            if inside[*waker as usize] && self.server[*task as usize] {
                by_waker.entry(*waker).or_default().push((*task, sleeps));
            }
        }
        let sends: Vec<BTreeSet<TaskIndex>> = history.tasks.iter().map(|l| sends(history, l, inside)).collect();
        for (waker, readers) in &by_waker {
            // Of each two: contested wakeups, and those out of turn.
            let mut pairs: BTreeMap<(TaskIndex, TaskIndex), (usize, usize)> = BTreeMap::new();
            let near: BTreeSet<TaskIndex> = readers.iter().map(|r| r.0).chain([*waker]).collect();
            for (i, (a, of_a)) in readers.iter().enumerate() {
                for (b, of_b) in &readers[i + 1..] {
                    if !budget.spend(1 + (of_a.len() + of_b.len()) / 4) {
                        return None;
                    }
                    if alike(&sends, &near, *a, *b) {
                        pairs.insert((*a, *b), out_of_turn(of_a, of_b));
                    }
                }
            }
            for ((a, b), (contested, wrong)) in &pairs {
                if in_turn(*contested, *wrong) {
                    pools.join(*a as usize, *b as usize);
                }
            }
            // One that has few wakeups with each of a pool may have enough with all of them.
            let mut with: BTreeMap<(usize, usize), (usize, usize)> = BTreeMap::new();
            for ((a, b), (contested, wrong)) in &pairs {
                let (x, y) = (pools.first(*a as usize), pools.first(*b as usize));
                for pair in [(x, y), (y, x)].into_iter().filter(|p| p.0 != p.1) {
                    let all = with.entry(pair).or_default();
                    (all.0, all.1) = (all.0 + contested, all.1 + wrong);
                }
            }
            let mut size: BTreeMap<usize, usize> = BTreeMap::new();
            readers.iter().for_each(|r| *size.entry(pools.first(r.0 as usize)).or_default() += 1);
            let of_waker = pools.first(*waker as usize);
            for ((x, y), (contested, wrong)) in with {
                if of_waker != y && size[&x] == 1 && size[&y] > 1 && in_turn(contested, wrong) {
                    pools.join(x, y);
                }
            }
        }
        let mut number = BTreeMap::new();
        for (i, _) in inside.iter().enumerate().filter(|i| *i.1) {
            let next = number.len();
            let s = *number.entry(pools.first(i)).or_insert(next);
            self.station[i] = Some(s);
            if self.stations.len() <= s {
                self.stations.push(Station::default());
            }
            self.stations[s].members.push(i as TaskIndex);
        }
        Some(())
    }

    /// Counts messages between stations, and takes out stations that hardly get any: what wakes
    /// them is no message.
    fn drop_weak(&mut self, history: &History) {
        loop {
            for s in &mut self.stations {
                s.targets.clear();
            }
            let mut got = vec![0usize; self.stations.len()];
            for task in &history.tasks {
                let Some(from) = self.station[task.id as usize] else { continue };
                for event in &task.events {
                    let woken = posted(history, event.kind);
                    let Some(to) = woken.and_then(|task| self.station[task as usize]) else { continue };
                    if to != from && !exiting(task, event.at) {
                        *self.stations[from].targets.entry(to).or_default() += 1;
                        got[to] += 1;
                    }
                }
            }
            for s in &mut self.stations {
                let all: usize = s.targets.values().sum();
                s.targets.retain(|_, n| *n >= 2.max(all / 200));
            }
            let weak = (0..self.stations.len()).filter(|s| {
                let members = &self.stations[*s].members;
                let is_server = members.iter().any(|m| self.server[*m as usize]);
                !members.is_empty() && if is_server { got[*s] < FEW * 2 } else { self.stations[*s].targets.is_empty() }
            });
            let weak: Vec<usize> = weak.collect();
            if weak.is_empty() {
                return;
            }
            for s in weak {
                for m in std::mem::take(&mut self.stations[s].members) {
                    self.station[m as usize] = None;
                }
            }
        }
    }

    /// Which stations read from two queues: sources, and servers that share one. A server that is alone reads
    /// everything from one queue.
    fn find_replies(&mut self, history: &History, tracks: &[Track]) {
        let alone = |s: &Station| s.members.len() == 1 && self.server[s.members[0] as usize];
        let several: Vec<usize> = (0..self.stations.len()).filter(|s| !alone(&self.stations[*s])).collect();
        for s in several {
            // Who ends the sleeps that begin right behind a message to each target; None: the first sleeps.
            let mut behind: BTreeMap<Option<usize>, BTreeMap<usize, usize>> = BTreeMap::new();
            for &m in &self.stations[s].members {
                let task = &history.tasks[m as usize];
                for (last, ender) in self.sleeps_behind(history, task, &tracks[m as usize]) {
                    *behind.entry(last).or_default().entry(ender).or_default() += 1;
                }
            }
            for enders in behind.values_mut() {
                let all: usize = enders.values().sum();
                enders.retain(|_, n| *n as f64 > RARE * all as f64);
            }
            let first: BTreeSet<usize> = behind.remove(&None).unwrap_or_default().into_keys().collect();
            let mut groups: Vec<(BTreeSet<usize>, BTreeSet<usize>)> = Vec::new();
            for (target, enders) in behind {
                let (Some(target), all) = (target, enders.values().sum::<usize>()) else { continue };
                if all < FEW {
                    continue;
                }
                let mut group = (BTreeSet::from([target]), enders.into_keys().collect::<BTreeSet<_>>());
                groups.retain(|g| {
                    let apart = g.1.is_disjoint(&group.1);
                    if !apart {
                        group.0.extend(&g.0);
                        group.1.extend(&g.1);
                    }
                    apart
                });
                groups.push(group);
            }
            let of_source = |enders: &BTreeSet<usize>| enders.iter().any(|e| !self.is_server(*e));
            let (is_server, by_source) = (self.is_server(s), groups.iter().any(|g| of_source(&g.1)));
            if is_server && groups.len() < 2 {
                continue;
            }
            // Where work begins is shared: what a source sends, or else what ends first sleeps. What was read
            // there may have been passed on unseen before a first sleep, which then waits for the answer.
            let shared = |g: &(_, BTreeSet<usize>)| match by_source {
                true => of_source(&g.1),
                false => !g.1.is_disjoint(&first),
            };
            groups.retain(|g| !is_server || !shared(g));
            for (calls, answers) in groups {
                self.stations[s].calls.extend(calls);
                self.stations[s].answers.extend(answers);
            }
        }
    }

    /// True for a station whose work begins with messages.
    fn is_server(&self, station: usize) -> bool {
        self.stations[station].members.first().is_some_and(|m| self.server[*m as usize])
    }

    /// Target of the last message right before each sleep that a station ends, and that station.
    fn sleeps_behind(&self, history: &History, task: &TaskHistory, track: &Track) -> Vec<(Option<usize>, usize)> {
        let mut found = Vec::new();
        let mut last: Option<(usize, Ns)> = None;
        let mut begun = false;
        let mut slept: Option<Option<usize>> = None;
        for event in &task.events {
            match event.kind {
                EventKind::Post { wake } => {
                    if let Some(to) = self.station[history.wakee[wake as usize] as usize] {
                        if Some(to) != self.station[task.id as usize] {
                            last = Some((to, event.at));
                            begun = true;
                        }
                    }
                }
                EventKind::Off(Off::Slept { .. }) => {
                    let recent = last.filter(|l| track.pos(event.at) - track.pos(l.1) <= self.short).map(|l| l.0);
                    slept = (recent.is_some() || !begun).then_some(recent);
                }
                EventKind::Woken { by, .. } => {
                    let ender = match by {
                        By::Task { waker, .. } => self.station[waker as usize],
                        _ => None,
                    };
                    if let (Some(behind), Some(ender)) = (slept.take(), ender) {
                        if Some(ender) != self.station[task.id as usize] {
                            found.push((behind, ender));
                            begun = true;
                        }
                    }
                    last = None;
                }
                _ => {}
            }
        }
        found
    }
}

/// The task that is woken.
fn posted(history: &History, kind: EventKind) -> Option<TaskIndex> {
    kind.post().map(|wake| history.wakee[wake as usize])
}

/// Tasks of the network that a task wakes.
fn sends(history: &History, task: &TaskHistory, inside: &[bool]) -> BTreeSet<TaskIndex> {
    let alive = task.events.iter().take_while(|a| a.kind != EventKind::Exiting);
    let woken = alive.filter_map(|a| posted(history, a.kind));
    woken.filter(|w| inside[*w as usize]).collect()
}

/// Servers of a pool send to the same tasks, but for each other, or to none but their waker and those
/// that it wakes (`near`): a lock that they share.
fn alike(sends: &[BTreeSet<TaskIndex>], near: &BTreeSet<TaskIndex>, a: TaskIndex, b: TaskIndex) -> bool {
    let of =
        |x: TaskIndex, y: TaskIndex| sends[x as usize].iter().copied().filter(|t| *t != y).collect::<BTreeSet<_>>();
    let (x, y) = (of(a, b), of(b, a));
    !x.is_disjoint(&y) || x.is_subset(near) && y.is_subset(near)
}

/// True when so many wakeups out of turn are no more than a pool has.
fn in_turn(contested: usize, wrong: usize) -> bool {
    let (all, off) = (contested as f64, wrong as f64);
    let surely = off <= LOCKS * all && all - 2.0 * off >= SURE * all.sqrt();
    contested >= FEW && (off <= OUT_OF_TURN * all || surely)
}

/// Wakeups at which both tasks slept until the same waker came, and those at which the later
/// sleeper was woken first.
fn out_of_turn(a: &[Wait], b: &[Wait]) -> (usize, usize) {
    let (mut contested, mut wrong) = (0, 0);
    let mut count = |one: &[Wait], other: &[Wait]| {
        for sleep in one {
            let i = other.partition_point(|o| o.posted <= sleep.posted);
            if let Some(o) = other.get(i).filter(|o| o.from < sleep.posted) {
                contested += 1;
                wrong += usize::from(o.from < sleep.from);
            }
        }
    };
    count(a, b);
    count(b, a);
    (contested, wrong)
}
