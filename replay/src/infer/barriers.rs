//! Barriers: tasks that go on together when the last of them has come (the threads of a parallel region of
//! OpenMP, pthread_barrier_wait(3)).
//!
//! Who is first to come sleeps, and so do the others; the last one does not, and wakes them all at once. The
//! recorded cause of each such sleep is that one, which is the last by chance: where tasks run in another
//! order, another one is. So from the recording all that is taken is who comes when: each other one when it
//! falls asleep, the last one when it wakes them. A replay has the last one there wake the others.
//!
//! Several tasks are told to come to a barrier by what they hardly do elsewhere: one wakes all others,
//! each time, and it is not always the same one that does. (One that gives out work to several wakes them
//! by itself; whoever puts work into a queue finds some of those who read it awake.) Whoever was still awake
//! when the last one woke the others had come by then. Two that wake each other may as well call and answer.
//! (Mellor-Crummey and Scott, ACM Transactions on Computer Systems 9, 1991: the centralized barrier.)

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::waits::{Wait, Waits};
use super::{HOPELESS, WORTH};
use crate::history::{EventKind, History, Off, TaskIndex};
use crate::task::Ns;

/// Tasks that make a barrier.
const LEAST: usize = 3;

/// A barrier.
pub(super) struct Barrier {
    /// When each of its tasks comes to it.
    pub comes: Vec<(TaskIndex, Vec<Ns>)>,
    /// The wakeups that it explains.
    pub wakes: Vec<u32>,
}

/// Whom one task woke at once.
struct Release {
    by: TaskIndex,
    woken: Vec<(TaskIndex, Wait)>,
}

impl Release {
    /// When the first of them was woken.
    fn at(&self) -> Ns {
        self.woken.first().map_or(0, |w| w.1.posted)
    }

    /// All who were there.
    fn tasks(&self) -> BTreeSet<TaskIndex> {
        self.woken.iter().map(|w| w.0).chain([self.by]).collect()
    }
}

/// The barriers of `tasks`.
pub(super) fn find(history: &History, waits: &Waits, tasks: &HashSet<TaskIndex>) -> Vec<Barrier> {
    let releases = releases(history, waits, tasks);
    // How often each set of tasks was released, and by whom.
    let mut sets: BTreeMap<BTreeSet<TaskIndex>, BTreeMap<TaskIndex, usize>> = BTreeMap::new();
    for release in releases.iter().filter(|r| r.woken.len() + 1 >= LEAST) {
        *sets.entry(release.tasks()).or_default().entry(release.by).or_default() += 1;
    }
    let mut likely: Vec<(usize, &BTreeSet<TaskIndex>)> = Vec::new();
    for (set, by) in &sets {
        let (all, most) = (by.values().sum::<usize>(), by.values().copied().max().unwrap_or(0));
        if all - most >= WORTH.0 {
            likely.push((all * set.len(), set));
        }
    }
    likely.sort_by_key(|l| std::cmp::Reverse(l.0));
    let mut taken: HashSet<TaskIndex> = HashSet::new();
    let mut found = Vec::new();
    for (_, set) in likely {
        if set.iter().any(|t| taken.contains(t)) {
            continue;
        }
        if let Some(barrier) = barrier(set, &releases, history) {
            taken.extend(set);
            found.push(barrier);
        }
    }
    found
}

/// Whom each of `tasks` woke at once: between two sleeps of its own, and no one twice.
fn releases(history: &History, waits: &Waits, tasks: &HashSet<TaskIndex>) -> Vec<Release> {
    let inside = |w: &(&(TaskIndex, TaskIndex), &Vec<Wait>)| tasks.contains(&w.0 .0) && tasks.contains(&w.0 .1);
    let of = |(pair, list): (&(TaskIndex, TaskIndex), &Vec<Wait>)| -> Vec<(u32, (TaskIndex, Wait))> {
        list.iter().map(|w| (w.wake, (pair.1, *w))).collect()
    };
    let ended: BTreeMap<u32, (TaskIndex, Wait)> = waits.iter().filter(inside).flat_map(of).collect();
    let mut found: Vec<Release> = Vec::new();
    for task in history.tasks.iter().filter(|task| tasks.contains(&task.id)) {
        let mut open = false;
        for event in &task.events {
            match event.kind {
                EventKind::Off(Off::Slept { .. } | Off::Ended | Off::Unknown) => open = false,
                EventKind::Post { wake } => {
                    let Some(woken) = ended.get(&wake) else { continue };
                    match found.last_mut().filter(|r| open && r.woken.iter().all(|w| w.0 != woken.0)) {
                        Some(release) => release.woken.push(*woken),
                        None => found.push(Release { by: task.id, woken: vec![*woken] }),
                    }
                    open = true;
                }
                _ => {}
            }
        }
    }
    found
}

/// The barrier of a set of tasks, where they hardly wake each other but all at once.
fn barrier(set: &BTreeSet<TaskIndex>, releases: &[Release], history: &History) -> Option<Barrier> {
    let (mut all, mut whole) = (0, 0);
    let mut at_once: Vec<Release> = Vec::new();
    for release in releases.iter().filter(|r| set.contains(&r.by)) {
        let woken: Vec<(TaskIndex, Wait)> = release.woken.iter().filter(|w| set.contains(&w.0)).copied().collect();
        all += woken.len();
        if woken.len() + 1 == set.len() {
            whole += woken.len();
        }
        // Where several were awake it may have been about something else.
        if woken.len() + 2 >= set.len() && woken.len() + 1 >= LEAST {
            at_once.push(Release { by: release.by, woken });
        }
    }
    if (whole as f64) < (1.0 - HOPELESS) * all as f64 {
        return None;
    }
    at_once.sort_by_key(Release::at);
    let mut comes: BTreeMap<TaskIndex, Vec<Ns>> = set.iter().map(|t| (*t, Vec::new())).collect();
    let mut wakes = Vec::new();
    for release in &at_once {
        let at = release.at();
        let asleep: BTreeMap<TaskIndex, Ns> = release.woken.iter().map(|w| (w.0, w.1.from)).collect();
        if set.iter().any(|t| *t != release.by && !asleep.contains_key(t) && sleeps(history, *t, at)) {
            continue;
        }
        for (task, times) in &mut comes {
            times.push(asleep.get(task).copied().unwrap_or(at));
        }
        wakes.extend(release.woken.iter().map(|w| w.1.wake));
    }
    Some(Barrier { comes: comes.into_iter().collect(), wakes })
}

/// True for a task that is asleep at `at`, or not there.
fn sleeps(history: &History, task: TaskIndex, at: Ns) -> bool {
    let events = &history.tasks[task as usize].events;
    let before = events[..events.partition_point(|e| e.at <= at)].iter().rev();
    let known = before
        .map(|e| e.kind)
        .find(|kind| matches!(kind, EventKind::Woken { .. } | EventKind::Off(_) | EventKind::On { .. }));
    matches!(known, None | Some(EventKind::Off(Off::Slept { .. } | Off::Ended | Off::Unknown)))
}
