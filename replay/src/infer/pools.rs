//! Pools whose messages cannot be followed one by one.
//!
//! Threads that share a queue under a lock wake each other in ways that are no messages: whoever
//! unlocks wakes the next, a signal wakes one that then waits for the lock. Where no flow of messages
//! explains a group of tasks, one thing still shows: that its servers are interchangeable (`network`:
//! whoever wakes one of them wakes the one that has slept longest). So what one of them did behind a
//! wakeup is work that any other could have done.
//!
//! Requests that a server found waiting woke nobody. They are counted, not followed: a source sends
//! one message each time that it is woken, and whoever feeds the pool passes on as many as it got.
//! What that makes more than the wakeups that led to work is unobserved in bursts that were long enough:
//! each goes to the burst, among those between two moments at which the whole pool sleeps that go on
//! behind it, in which most work is left for each request, and such a burst is cut into equal parts.
//!
//! Wakeups behind which a member found nothing, and waits for the lock, are no messages. Where members
//! wake each other, a replay has a lock, and where the recording shows that those who signal wait for
//! members, the condition variable that does so (`engine::conditions`).

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::bursts::{bursts_of, Burst};
use super::flow::Flow;
use super::network::{Network, FEW};
use super::track::Track;
use super::{Mark, Message};
use crate::calibrate::{Limits, ENOUGH};
use crate::history::{History, TaskIndex};
use crate::program::Calls;
use crate::task::Ns;

/// Least share of the wakeups of a pool from outside that make a task one of those that feed it, and of
/// the wakeups of that task by others than sources that leave open what it got.
const FEEDS: f64 = 0.1;
/// A request takes at least this share of the mean: less work is left for none.
const LEAST: f64 = 0.25;
/// What a member takes to find nothing to do, and what it takes for a request, differ by at least so much.
const GAP: f64 = 2.0;
/// Members of a pool take, for what they are woken for, times that differ by less than an order of
/// magnitude in their means: CPUs of one machine differ by up to 2, and where requests wait, a wakeup
/// holds several. Others have work of their own each.
const ALIKE: f64 = 10.0;

/// The pools of `net`, each of them by itself; none where there is no pool.
pub(super) fn alone(net: &Network, history: &History, tracks: &[Track], limits: Limits) -> Option<Network> {
    let mut pools = net.clone();
    for station in &mut pools.stations {
        let servers = station.members.iter().all(|m| net.server[*m as usize]);
        let mean = |m: &TaskIndex| mean_work(history, &tracks[*m as usize], *m);
        let means: Vec<f64> = station.members.iter().filter(|_| servers).filter_map(mean).collect();
        let (least, most) = means.iter().fold((f64::MAX, 0.0), |(a, b), m| (m.min(a), m.max(b)));
        let unlike = most > limits.of("pool_alike", ALIKE) * least;
        if station.members.len() < 2 || !servers || unlike {
            for m in std::mem::take(&mut station.members) {
                pools.station[m as usize] = None;
            }
        }
    }
    pools.stations.iter().any(|s| !s.members.is_empty()).then_some(pools)
}

/// What a task takes behind a wakeup by another task, on average; none of a few.
fn mean_work(history: &History, track: &Track, id: TaskIndex) -> Option<f64> {
    let work: Vec<Ns> = bursts_of(history, track, id).iter().filter(|s| s.by.is_some()).map(Burst::run).collect();
    (work.len() >= ENOUGH).then(|| work.iter().sum::<Ns>() as f64 / work.len() as f64)
}

/// For how long a member runs at most that finds nothing to do: up to the widest gap between the times that
/// bursts take, where it is one; else up to `least`.
fn short(pool: &[Burst], least: Ns, limits: Limits) -> Ns {
    let mut runs: Vec<Ns> = pool.iter().map(Burst::run).filter(|run| *run > least).collect();
    runs.sort_unstable();
    let most = limits.of("pool_least", LEAST) * runs.iter().sum::<Ns>() as f64 / runs.len().max(1) as f64;
    let gaps = runs.windows(2).filter(|w| w[0] as f64 <= most).map(|w| (w[1] as f64 / w[0] as f64, w[0]));
    gaps.filter(|g| g.0 >= limits.of("pool_gap", GAP)).max_by(|a, b| a.0.total_cmp(&b.0)).map_or(least, |g| g.1)
}

/// How the queue of a pool wakes its members, where those who feed it were `held` so often by members that
/// they had woken, and members woke each other `inner` times.
fn calls(held: usize, inner: usize) -> Calls {
    match (held, inner) {
        (FEW.., _) => Calls::Condition,
        (_, ENOUGH..) => Calls::Signal,
        _ => Calls::Each,
    }
}

/// The times in which somebody of a pool is awake, in order.
fn periods(pool: &[Worked]) -> Vec<(Ns, Ns)> {
    let mut found: Vec<(Ns, Ns)> = Vec::new();
    for Worked { burst, .. } in pool {
        match found.last_mut().filter(|last| burst.wake <= last.1) {
            Some(last) => last.1 = last.1.max(burst.end),
            None => found.push((burst.wake, burst.end)),
        }
    }
    found
}

/// A message to a pool that may have woken nobody.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Ns,
    by: TaskIndex,
}

/// A burst that holds work.
struct Worked {
    burst: Burst,
    /// It was woken for a message of its own.
    own: bool,
    /// The wakeup that it began with.
    wakeup: u32,
    /// Messages that it took besides, the last one first.
    more: Vec<Sent>,
}

impl Worked {
    /// What one message more would leave for each.
    fn share(&self) -> Ns {
        let n = self.more.len() + usize::from(self.own);
        if n == 0 {
            Ns::MAX
        } else {
            self.burst.run() / (n as Ns + 1)
        }
    }
}

/// What is looked at, and what is found.
struct Search<'a> {
    net: &'a Network,
    pools: &'a Network,
    history: &'a History,
    tracks: &'a [Track],
    limits: Limits,
    /// A member that runs for no longer behind a wakeup has done nothing.
    short: Ns,
    flow: Flow,
}

/// Work of the pools: every wakeup of a member by a task is a message to its pool, and unobserved ones
/// are as many as those who feed it have got.
pub(super) fn work(net: &Network, pools: &Network, history: &History, tracks: &[Track], limits: Limits) -> Flow {
    let flow = Flow { marks: vec![Vec::new(); history.tasks.len()], ..Flow::default() };
    let mut search = Search { net, pools, history, tracks, limits, short: net.short, flow };
    for station in 0..pools.stations.len() {
        search.pool(station);
    }
    for marks in &mut search.flow.marks {
        marks.sort_by_key(|m| m.0);
    }
    search.flow
}

impl Search<'_> {
    fn message(&mut self, station: Option<usize>) -> u32 {
        self.flow.messages.push(Message { station, taken: true, ..Message::default() });
        self.flow.messages.len() as u32 - 1
    }

    /// Adds the work of one pool.
    fn pool(&mut self, station: usize) {
        let members = &self.pools.stations[station].members;
        let mut all: Vec<Burst> =
            members.iter().flat_map(|m| bursts_of(self.history, &self.tracks[*m as usize], *m)).collect();
        all.sort_by_key(|s| s.wake);
        all.retain(|s| s.by.is_some());
        self.short = short(&all, self.net.short, self.limits);
        // Those outside the pool that woke its members, and how often.
        let mut fed: BTreeMap<TaskIndex, usize> = BTreeMap::new();
        let outside = |waker: &TaskIndex| self.pools.station[*waker as usize] != Some(station);
        all.iter().filter_map(|s| s.by).map(|b| b.0).filter(outside).for_each(|w| *fed.entry(w).or_default() += 1);
        let least = FEEDS * fed.values().sum::<usize>() as f64;
        let feeds = |w: &(&TaskIndex, &usize)| {
            self.net.station[*w.0 as usize].is_some() && *w.1 as f64 >= least && !self.waits_for(station, *w.0)
        };
        let feeders: BTreeSet<TaskIndex> = fed.iter().filter(feeds).map(|w| *w.0).collect();
        let mut unobserved: Vec<Sent> = Vec::new();
        let mut held = 0;
        for &feeder in &feeders {
            unobserved.extend(self.feeds(feeder, station, &all));
            held += self.held(feeder, &all);
        }
        let inner = all.iter().filter_map(|s| s.by).filter(|by| !outside(&by.0)).count();
        self.flow.calls.insert(station, calls(held, inner));
        unobserved.sort_by_key(|s| s.at);
        // Another one had taken the message, or it had to wait for the lock.
        let vain = all.iter().filter(|s| s.run() <= self.short && !s.ends).filter_map(|s| s.by);
        self.flow.vain.extend(vain.map(|by| by.1));
        let pool: Vec<Worked> = all
            .into_iter()
            .filter_map(|burst| Some((burst.by?, burst)))
            .map(|(by, burst)| Worked {
                own: burst.ends || feeders.contains(&by.0),
                wakeup: by.1,
                burst,
                more: Vec::new(),
            })
            .collect();
        self.hide(station, pool, unobserved);
    }

    /// Messages of `feeder` to the pool that woke nobody who then worked.
    fn feeds(&mut self, feeder: TaskIndex, station: usize, pool: &[Burst]) -> Vec<Sent> {
        let track = &self.tracks[feeder as usize];
        // Woken by the pool, it has waited for a lock: it goes on.
        let mut turns: Vec<Burst> = Vec::new();
        for burst in bursts_of(self.history, track, feeder) {
            let by_pool = burst.by.is_some_and(|b| self.pools.station[b.0 as usize] == Some(station));
            match turns.last_mut().filter(|_| by_pool) {
                Some(last) => {
                    self.flow.vain.extend(burst.by.map(|b| b.1));
                    (last.end, last.to) = (burst.end, burst.to);
                    last.posts.extend(burst.posts);
                }
                None => turns.push(burst),
            }
        }
        let worked: BTreeSet<u32> =
            pool.iter().filter(|s| s.run() > self.short).filter_map(|s| s.by.map(|b| b.1)).collect();
        let got = self.got(feeder, station, &turns);
        let (mut unobserved, mut next) = (Vec::new(), 0);
        for turn in &turns {
            let shown: Vec<Ns> = turn.posts.iter().filter(|p| worked.contains(&p.1)).map(|p| p.0).collect();
            let first = next;
            if let Some(got) = &got {
                while got.get(next).is_some_and(|g| g.at <= turn.end) {
                    next += 1;
                }
            }
            let n = if got.is_some() { next - first } else { 1 };
            // Its messages, evenly within its work, none before it came.
            let time = |i: usize| {
                let at = track.time(turn.from + (turn.run() * (i as Ns + 1) / n as Ns - 1).max(0));
                let came = got.as_ref().map_or(0, |g| g[first + i].at);
                at.max(came).clamp(turn.wake, turn.end)
            };
            let times: Vec<Ns> = (0..n).map(time).collect();
            if let Some(got) = &got {
                for (at, message) in times.iter().zip(&got[first..next]) {
                    self.gets(feeder, *message, *at);
                }
            }
            let mut left: BTreeSet<(Ns, usize)> = times.into_iter().enumerate().map(|(i, at)| (at, i)).collect();
            for at in shown {
                let before = left.range(..(at, 0)).next_back();
                let behind = left.range((at, 0)..).next();
                let nearest = before.into_iter().chain(behind).min_by_key(|t| (t.0 - at).abs()).copied();
                nearest.map(|t| left.remove(&t));
            }
            unobserved.extend(left.into_iter().map(|(at, _)| Sent { at, by: feeder }));
        }
        unobserved
    }

    /// True for a task that the pool wakes more often than others do: it waits for what comes of the work.
    fn waits_for(&self, station: usize, task: TaskIndex) -> bool {
        let bursts = bursts_of(self.history, &self.tracks[task as usize], task);
        let by_pool = |b: &&Burst| b.by.is_some_and(|by| self.pools.station[by.0 as usize] == Some(station));
        bursts.iter().filter(by_pool).count() * 2 > bursts.len()
    }

    /// How often `feeder` slept until a member of the pool that it had woken ran for the first time behind
    /// that: it was about to wake the next by a condition variable, which waits for that
    /// ([`Calls::Condition`]). One that holds a lock has run before others sleep for it.
    fn held(&self, feeder: TaskIndex, pool: &[Burst]) -> usize {
        let slept: Vec<Ns> =
            bursts_of(self.history, &self.tracks[feeder as usize], feeder).iter().map(|s| s.end).collect();
        let held = |burst: &&Burst| {
            let Some(post) = burst.posts.iter().find(|p| self.history.wakee[p.1 as usize] == feeder) else {
                return false;
            };
            let track = &self.tracks[burst.task as usize];
            let since = slept[..slept.partition_point(|at| *at <= post.0)].last().copied().unwrap_or_default();
            burst.by.is_some_and(|by| by.0 == feeder)
                && track.pos(post.0) - burst.from <= self.short
                && since >= burst.wake
                && track.pos(since) == burst.from
        };
        pool.iter().filter(held).count()
    }

    /// What `feeder` got from sources, in order; none where others wake it, too.
    fn got(&self, feeder: TaskIndex, station: usize, turns: &[Burst]) -> Option<Vec<Got>> {
        let mut sources: BTreeMap<TaskIndex, usize> = BTreeMap::new();
        for (waker, _) in turns.iter().filter_map(|t| t.by) {
            let of = self.net.station[waker as usize];
            if of.is_some_and(|s| s != station) && !self.net.server[waker as usize] {
                *sources.entry(waker).or_default() += 1;
            }
        }
        let others = turns.len() - sources.values().sum::<usize>();
        if sources.is_empty() || others as f64 > FEEDS * turns.len() as f64 {
            return None;
        }
        let mut got = Vec::new();
        for source in sources.into_keys() {
            for burst in bursts_of(self.history, &self.tracks[source as usize], source) {
                let shows = burst.posts.iter().find(|p| self.history.wakee[p.1 as usize] == feeder);
                // It has sent something to somebody else.
                if shows.is_none() && !burst.posts.is_empty() {
                    continue;
                }
                got.push(Got { at: shows.map_or(burst.end, |p| p.0), by: source, shows: shows.is_some() });
            }
        }
        got.sort_by_key(|g| g.at);
        Some(got)
    }

    /// A message that `feeder` got and that woke nobody: it waits for it at `at`.
    fn gets(&mut self, feeder: TaskIndex, message: Got, at: Ns) {
        if !message.shows {
            let number = self.message(None);
            self.flow.unobserved += 1;
            self.flow.marks[message.by as usize].push((message.at - 1, Mark::Send(number)));
            self.flow.marks[feeder as usize].push((at, Mark::Take(number)));
        }
    }

    /// Gives unobserved messages to bursts of the pool that hold work, among those between two moments at
    /// which the whole pool sleeps: as many are done there as came.
    fn hide(&mut self, station: usize, pool: Vec<Worked>, unobserved: Vec<Sent>) {
        let periods = periods(&pool);
        let mut works: Vec<Worked> = pool.into_iter().filter(|s| s.burst.run() > self.short || s.burst.ends).collect();
        works.sort_by_key(|s| s.burst.end);
        let all: Ns = works.iter().map(|s| s.burst.run()).sum();
        let shown = works.iter().filter(|s| s.own).count();
        let mean = all as f64 / (shown + unobserved.len()).max(1) as f64;
        let least = self.limits.of("pool_least", LEAST) * mean;
        // The last one first: the earlier one was sent, the more bursts may have taken it.
        let (mut next, mut open, mut late, mut period) = (works.len(), BinaryHeap::new(), Vec::new(), usize::MAX);
        for sent in unobserved.into_iter().rev() {
            // What was sent while all slept, those did who woke next.
            let within = periods.partition_point(|p| p.1 <= sent.at);
            let Some(&(begin, end)) = periods.get(within) else {
                self.flow.left += 1;
                continue;
            };
            if within != period {
                period = within;
                open.clear();
                late.clear();
                next = works.partition_point(|s| s.burst.end <= end);
            }
            let first = works.partition_point(|s| s.burst.end <= sent.at.max(begin));
            late.extend(first..next);
            next = next.min(first);
            let rest = |i: usize| {
                let burst = &works[i].burst;
                burst.to - self.tracks[burst.task as usize].pos(sent.at).max(burst.from)
            };
            // Of those that go on then, each of another member, some have too little left.
            for i in late.extract_if(.., |i| rest(*i) as f64 >= least) {
                open.push((works[i].share(), i));
            }
            match open.pop() {
                Some((_, i)) => {
                    works[i].more.push(sent);
                    open.push((works[i].share(), i));
                }
                None => self.flow.left += 1,
            }
        }
        for worked in works {
            self.takes(station, worked);
        }
    }

    /// Cuts a burst into equal parts, one for each message.
    fn takes(&mut self, station: usize, worked: Worked) {
        let Worked { burst, own, wakeup, more } = worked;
        let own = own || more.is_empty();
        if own {
            let number = self.message(Some(station));
            self.flow.of_wake.insert(wakeup, number);
            self.flow.marks[burst.task as usize].push((burst.wake, Mark::Take(number)));
        } else {
            self.flow.vain.insert(wakeup);
        }
        let track = &self.tracks[burst.task as usize];
        let (before, parts) = (usize::from(own), (more.len() + usize::from(own)) as Ns);
        for (i, sent) in more.into_iter().rev().enumerate() {
            let cut = track.time(burst.from + burst.run() * (i + before) as Ns / parts);
            let number = self.message(Some(station));
            self.flow.unobserved += 1;
            self.flow.marks[sent.by as usize].push((sent.at, Mark::Send(number)));
            self.flow.marks[burst.task as usize].push((cut.max(sent.at).min(burst.end), Mark::Take(number)));
        }
    }
}

/// A message that whoever feeds a pool got.
#[derive(Clone, Copy, Debug)]
struct Got {
    at: Ns,
    by: TaskIndex,
    /// A wakeup shows it.
    shows: bool,
}

#[cfg(test)]
mod tests {
    use super::super::network::Station;
    use super::*;
    use crate::history::{By, EventKind, First, Off, TaskEvent, TaskHistory};
    use crate::speeds::Speeds;

    /// A task that another one wakes so many times, each time for as long.
    fn often_woken(id: TaskIndex, times: Ns, run: Ns) -> TaskHistory {
        let mut task = TaskHistory::new(id, First::Asleep, 0);
        for at in (0..times).map(|i| i * 10_000_000) {
            let woken = EventKind::Woken { by: By::Task { waker: 2, wake: 0 }, cpu: 0 };
            let slept = EventKind::Off(Off::Slept { deep: false });
            let events = [(at, woken), (at, EventKind::On { cpu: 0 }), (at + run, slept)];
            task.events.extend(events.map(|(at, kind)| TaskEvent { at, kind }));
        }
        task
    }

    #[test]
    fn what_finds_nothing_ends_at_the_gap() {
        let burst =
            |run| Burst { task: 0, wake: 0, by: None, end: run, from: 0, to: run, posts: Vec::new(), ends: false };
        let up_to = |runs: &[Ns]| short(&runs.iter().map(|r| burst(*r)).collect::<Vec<_>>(), 25_000, Limits::default());
        let requests = [1_100_000, 1_500_000, 1_900_000, 2_600_000, 4_000_000];
        assert_eq!(up_to(&[&[12_000, 20_000, 30_000, 45_000, 60_000], &requests[..]].concat()), 60_000);
        assert_eq!(up_to(&requests), 25_000, "no burst for nothing");
    }

    #[test]
    fn members_that_wake_each_other_share_a_lock() {
        assert_eq!(calls(3, 0), Calls::Condition);
        assert_eq!(calls(2, 10), Calls::Signal);
        assert_eq!(calls(2, 9), Calls::Each);
    }

    #[test]
    fn tasks_whose_work_takes_times_of_its_own_are_no_pool() {
        let pool = |runs: [Ns; 2], times: Ns| {
            let tasks = vec![often_woken(0, times, runs[0]), often_woken(1, times, runs[1])];
            let history = History { tasks, wakee: vec![0], ..History::default() };
            let tracks: Vec<Track> =
                history.tasks.iter().map(|task| Track::of(task, history.span, &Speeds::default())).collect();
            let net = Network {
                station: vec![Some(0), Some(0)],
                stations: vec![Station { members: vec![0, 1], ..Station::default() }],
                server: vec![true, true],
                ..Network::default()
            };
            alone(&net, &history, &tracks, Limits::default()).is_some()
        };
        assert!(pool([1_000_000, 8_000_000], 10));
        assert!(!pool([23_000, 2_000_000], 10));
        assert!(pool([23_000, 2_000_000], 9), "too few to say");
    }
}
