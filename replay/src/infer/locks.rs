//! Locks: tasks that keep each other from going on only where they run side by side.
//!
//! Whoever finds a lock held sleeps, and whoever held it wakes it. No record says that a lock was taken
//! that was free, so nothing else of it shows. But a wait for a lock wants another task that holds it, which
//! runs at that moment or was taken off its CPU with it; a wait for a message does not. So the trace holds
//! an experiment: while one task of such a group runs by itself and no other one waits, it goes on without
//! waiting, and whoever passes on work would soon wait for more. By that, and by waits of all for all, locks
//! are told. A replay that lets the tasks run one after the other must not make them wait as often as they
//! did side by side, and one that brings them together must let them wait more often. So each task comes to
//! the lock as often as it waited for it in an equal time beside others, also in the stretches that it ran by
//! itself, and waits where another one runs at that moment: until that one has done the work behind which it
//! let go in the recording.

use std::collections::{BTreeSet, HashSet};

use super::buffers::SHORTEST;
use super::sets::Sets;
use super::waits::{Wait, Waits};
use super::{most_steps, Track, WORTH};
use crate::calibrate::Overheads;
use crate::history::{History, TaskIndex};
use crate::task::Ns;

/// Share of waits that may come while nobody else runs (one was taken off its CPU with the lock), and of
/// pairs of tasks that may not have waited for each other.
const RARE: f64 = 0.1;

/// A task comes to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Attempt {
    /// When.
    pub at: Ns,
    /// Which.
    pub lock: u32,
    /// Work that whoever held it did before letting go.
    pub rest: Ns,
    /// Nobody of the others ran.
    pub alone: bool,
    /// It waited when it was recorded.
    pub shows: bool,
}

/// A lock.
pub(super) struct Lock {
    /// When each of its tasks comes to it.
    pub attempts: Vec<(TaskIndex, Vec<Attempt>)>,
    /// The wakeups that it explains.
    pub wakes: Vec<u32>,
}

/// The locks of `tasks` that at least so many of them share. Two of different names and processes
/// are no such group: what one of them waits for alone tells nothing where it never runs alone, as
/// a fast reader does not, and a pipe is likelier between them than a lock.
pub(super) fn find(
    (tracks, over): (&[Track], &Overheads),
    (history, waits): (&History, &Waits),
    tasks: &HashSet<TaskIndex>,
    least: usize,
) -> Vec<Lock> {
    let strangers = |group: &BTreeSet<TaskIndex>| {
        let mut of = group.iter().map(|t| &history.tasks[*t as usize]);
        let (Some(one), Some(other), None) = (of.next(), of.next(), of.next()) else { return false };
        one.comm != other.comm && one.pid.is_some_and(|pid| other.pid.is_some_and(|of| of != pid))
    };
    let groups = groups(waits, tasks).into_iter().filter(|g| g.len() >= least && !strangers(g));
    let mut left = most_steps(history);
    groups.filter_map(|group| lock(&group, waits, (tracks, over), &mut left)).collect()
}

/// The lock of a group, where it is one, and they come to it no more often than is `left`.
fn lock(
    group: &BTreeSet<TaskIndex>,
    waits: &Waits,
    (tracks, over): (&[Track], &Overheads),
    left: &mut usize,
) -> Option<Lock> {
    let of = |t: &TaskIndex| waits.range((*t, 0)..=(*t, TaskIndex::MAX));
    let ours = group.iter().flat_map(of).filter(|w| w.0 .0 != w.0 .1 && group.contains(&w.0 .1));
    let (mut all, mut present) = (Vec::new(), 0);
    for (_, of_pair) in ours {
        present += 1;
        all.extend(of_pair);
    }
    let pairs = group.len() * (group.len() - 1);
    if all.len() < WORTH.0 || f64::from(present) < (1.0 - RARE) * pairs as f64 {
        return None;
    }
    let at_once = AtOnce::of(group.iter().map(|t| &tracks[*t as usize]), &all);
    let (mut expected, mut by_itself, mut alone, mut times) = (0.0, 0, 0, 0);
    let mut own = Vec::with_capacity(group.len());
    for &t in group {
        let (beside, free) = at_once.shares(&tracks[t as usize]);
        let attempts = attempts((t, group), waits, (tracks, over), &at_once);
        let side = attempts.iter().filter(|m| !m.alone).count();
        // Where they run at once only while one hands over to the other, none keeps another
        // waiting.
        if beside <= attempts.len() as Ns * over.switch.max(SHORTEST) {
            return None;
        }
        times += tracks[t as usize].slices().map(|s| s.1 - s.0).sum::<Ns>() / gap(beside, side);
        if side >= WORTH.0 {
            expected += side as f64 / (beside as f64).max(1.0) * free as f64;
        }
        by_itself += attempts.iter().filter(|m| m.alone && at_once.at(m.at).waiting < 2).count();
        alone += attempts.len() - side;
        own.push((t, attempts));
    }
    // Were waits as frequent in a task by itself, there would be so many there.
    let many = |n: usize, of: f64| n as f64 > RARE * of;
    if RARE * expected < WORTH.0 as f64 || many(by_itself, expected) || many(alone, all.len() as f64) {
        return None;
    }
    *left = left.checked_sub(times as usize)?;
    for (t, attempts) in &mut own {
        between(&tracks[*t as usize], &at_once, attempts);
    }
    Some(Lock { attempts: own, wakes: all.iter().map(|w| w.wake).collect() })
}

/// Those of `tasks` that end each other's waits, each pair in both directions, with whom those do.
fn groups(waits: &Waits, tasks: &HashSet<TaskIndex>) -> Vec<BTreeSet<TaskIndex>> {
    let ours = |p: &&(TaskIndex, TaskIndex)| p.0 != p.1 && tasks.contains(&p.0) && tasks.contains(&p.1);
    let mutual: Vec<_> = waits.keys().filter(ours).filter(|p| waits.contains_key(&(p.1, p.0))).collect();
    let mut sets = Sets::new(mutual.iter().map(|p| p.0 as usize + 1).max().unwrap_or(0));
    mutual.iter().for_each(|p| sets.join(p.0 as usize, p.1 as usize));
    let groups = sets.of(mutual.iter().map(|p| p.0 as usize)).into_iter();
    groups.map(|group| group.into_iter().map(|task| task as TaskIndex).collect()).collect()
}

/// The waits of a task for others of its group, in order of time.
fn attempts(
    (t, group): (TaskIndex, &BTreeSet<TaskIndex>),
    waits: &Waits,
    (tracks, over): (&[Track], &Overheads),
    at_once: &AtOnce,
) -> Vec<Attempt> {
    let mut all = Vec::new();
    for &other in group {
        let holder = &tracks[other as usize];
        for w in waits.get(&(other, t)).into_iter().flatten() {
            let rest = holder.pos(w.posted) - holder.pos(over.decided(w.from));
            all.push(Attempt { at: w.from, lock: 0, rest, alone: at_once.at(w.from).running == 0, shows: true });
        }
    }
    all.sort_unstable_by_key(|m| m.at);
    all
}

/// Time from one of so many attempts beside others to the next.
fn gap(beside: Ns, attempts: usize) -> Ns {
    (beside / attempts.max(1) as Ns).max(1)
}

/// Adds attempts in the stretches that a task ran by itself, as frequent as those beside others were.
fn between(track: &Track, at_once: &AtOnce, attempts: &mut Vec<Attempt>) {
    let rests: Vec<Ns> = attempts.iter().filter(|m| !m.alone).map(|m| m.rest).collect();
    let (beside, _) = at_once.shares(track);
    if rests.is_empty() || beside == 0 {
        return;
    }
    let gap = gap(beside, rests.len());
    let mut rests = rests.iter().cycle();
    let mut left = gap;
    for (from, to) in track.slices() {
        for (begin, end) in at_once.alone(from, to) {
            let mut at = begin;
            while end - at >= left {
                at += left;
                left = gap;
                let rest = rests.next().copied().unwrap_or_default();
                attempts.push(Attempt { at, lock: 0, rest, alone: false, shows: false });
            }
            left -= end - at;
        }
    }
    attempts.sort_by_key(|m| m.at);
}

/// From a moment on: how many tasks of a group run, and how many wait for others of it.
#[derive(Clone, Copy, Default)]
struct Moment {
    at: Ns,
    running: usize,
    waiting: usize,
    /// How long two or more ran before.
    beside: Ns,
    /// How long one ran and none waited before.
    free: Ns,
}

/// What the tasks of a group do at once, over time.
struct AtOnce {
    moments: Vec<Moment>,
}

impl AtOnce {
    fn of<'a>(tracks: impl Iterator<Item = &'a Track>, waits: &[&Wait]) -> Self {
        let run = tracks.flat_map(Track::slices).flat_map(|s| [(s.0, 1, 0), (s.1, -1, 0)]);
        let wait = waits.iter().flat_map(|w| [(w.from, 0, 1), (w.posted, 0, -1)]);
        let mut changes: Vec<(Ns, isize, isize)> = run.chain(wait).collect();
        changes.sort_unstable();
        let mut moments: Vec<Moment> = vec![Moment::default()];
        let (mut running, mut waiting) = (0, 0);
        for (at, runs, waits) in changes {
            (running, waiting) = (running + runs, waiting + waits);
            let last = moments.last().copied().unwrap_or_default();
            let (beside, free) = last.until(at);
            let now = |n: isize| usize::try_from(n).unwrap_or_default();
            let moment = Moment { at, running: now(running), waiting: now(waiting), beside, free };
            if at == last.at {
                moments.pop();
            }
            moments.push(moment);
        }
        AtOnce { moments }
    }

    /// What is so from a moment on.
    fn at(&self, at: Ns) -> Moment {
        self.moments[self.moments.partition_point(|m| m.at <= at).max(1) - 1]
    }

    /// How long one of them ran beside others, and by itself while none waited.
    fn shares(&self, track: &Track) -> (Ns, Ns) {
        track.slices().fold((0, 0), |sum, (from, to)| {
            let (begin, end) = (self.at(from).until(from), self.at(to).until(to));
            (sum.0 + end.0 - begin.0, sum.1 + end.1 - begin.1)
        })
    }

    /// The stretches of a slice of one of them in which no other one ran.
    fn alone(&self, from: Ns, to: Ns) -> Vec<(Ns, Ns)> {
        let first = self.moments.partition_point(|m| m.at <= from).max(1) - 1;
        let within = self.moments.iter().enumerate().skip(first).take_while(|m| m.1.at < to);
        let stretch = |(i, m): (usize, &Moment)| {
            let end = self.moments.get(i + 1).map_or(to, |next| next.at.min(to));
            (m.running < 2).then_some((m.at.max(from), end))
        };
        within.filter_map(stretch).collect()
    }
}

impl Moment {
    /// How long two or more ran up to `at`, and how long one while none waited.
    fn until(&self, at: Ns) -> (Ns, Ns) {
        let more = |so: bool| if so { at - self.at } else { 0 };
        (self.beside + more(self.running > 1), self.free + more(self.running == 1 && self.waiting == 0))
    }
}
