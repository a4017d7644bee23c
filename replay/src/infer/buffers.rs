//! Buffers that hold so much, between a task that puts things in and one that takes them out: pipes, and
//! queues between threads.
//!
//! Where both wait for each other and neither only answers, two limits show: the one that takes sleeps
//! where nothing is left, the one that puts where no room is left. How much the buffer holds is what the
//! taker worked off between the two, less what was put meanwhile. The smallest steps in which they wake
//! each other are its units. Between two waits that show, as many units were put and taken as their work
//! says, and at each wait exactly none, or all. A replay fills and empties the buffer, and either sleeps
//! where it must, not where it did. (The bounded buffer of E. W. Dijkstra, Cooperating sequential processes,
//! 1965; Linux wakes readers of a pipe that was empty and writers of one that was full, pipe(7).) A caller
//! that waits for its answer looks the same with room for one: such pairs are left alone.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::sets::Sets;
use super::waits::{mutual, Wait, Waits};
use super::{most_steps, Mark, Track, HOPELESS, WORTH};
use crate::history::{EventKind, History, Off, TaskEvent, TaskHistory, TaskIndex};
use crate::program::Buffer;
use crate::task::{Ns, TaskId};

/// Fewest units that make a buffer: with room for one, question and answer take turns.
const LEAST: f64 = 2.0;
/// Share of cases that may be otherwise.
const RARE: f64 = 0.1;
/// Shortest unit, and time from one attempt to take a lock to the next, ns: shorter ones than a switch takes
/// say nothing.
pub(super) const SHORTEST: Ns = 1_000;

/// The buffers between some tasks.
#[derive(Default)]
pub(super) struct Pipes {
    pub found: Vec<Buffer>,
    /// What each task puts in and takes out, in order of time.
    pub marks: BTreeMap<TaskIndex, Vec<(Ns, Mark)>>,
    /// The wakeups that they explain.
    pub wakes: HashSet<u32>,
}

/// One of two tasks: what it worked, and its sleeps that the other one ended.
#[derive(Clone, Copy)]
struct Side<'a> {
    task: TaskIndex,
    track: &'a Track,
    waits: &'a [Wait],
}

/// Two tasks, and what is known of a buffer between them.
struct Pair<'a> {
    one: Side<'a>,
    other: Side<'a>,
    /// Work of the other for that of the one.
    ratio: f64,
    /// Room, in work of the other.
    held: f64,
    /// Work of the other for the least that each wakes for.
    steps: (f64, f64),
    /// The one puts in what the other takes out, and how sure that is, as a logarithm.
    one_writes: bool,
    sure: f64,
}

/// Two tasks and a buffer between them.
struct Link<'a> {
    from: Side<'a>,
    to: Side<'a>,
    /// Work that each does for one unit.
    put: f64,
    take: f64,
    buffer: Buffer,
}

impl Pipes {
    /// Finds the buffers between `tasks`.
    pub fn find(history: &History, tracks: &[Track], waits: &Waits, tasks: &HashSet<TaskIndex>) -> Self {
        let mut found = Pipes::default();
        let sleeps = |task| sleeps(&history.tasks[task as usize]);
        for link in pipelines((waits, tasks), tracks, &sleeps, most_steps(history)) {
            let id = found.found.len() as u32;
            let (puts, takes) = link.steps();
            let (from, to) = (link.from.task, link.to.task);
            found.marks.entry(from).or_default().extend(puts.into_iter().map(|at| (at, Mark::Put(id))));
            found.marks.entry(to).or_default().extend(takes.into_iter().map(|at| (at, Mark::Get(id))));
            found.wakes.extend(link.from.waits.iter().chain(link.to.waits).map(|w| w.wake));
            found.found.push(link.buffer);
            for both in [(from, to), (to, from)] {
                found.wakes.extend(ends_of_file(history, waits, both));
            }
        }
        found.marks.values_mut().for_each(|marks| marks.sort());
        found
    }

    /// The tasks that buffers connect.
    pub fn groups(&self) -> Vec<Vec<TaskIndex>> {
        let most = self.marks.keys().last().map_or(0, |last| *last as usize + 1);
        let mut sets = Sets::new(most);
        for buffer in &self.found {
            buffer.from.iter().for_each(|from| sets.join(from.index(), buffer.to.index()));
        }
        let group = |set: BTreeSet<usize>| set.into_iter().map(|task| task as TaskIndex).collect();
        sets.of(self.marks.keys().map(|task| *task as usize)).into_iter().map(group).collect()
    }

    /// True where each of `tasks` puts or takes.
    pub fn join(&self, tasks: &[TaskIndex]) -> bool {
        tasks.iter().all(|task| self.marks.contains_key(task))
    }
}

/// The wakeups of `task` after its partner `other` has ended. It slept, so that it had taken all that there
/// was, and was woken for the end of the file when whoever else had the other end open closed it. In a replay
/// that end comes with its partner's.
fn ends_of_file<'a>(
    history: &History,
    waits: &'a Waits,
    (task, other): (TaskIndex, TaskIndex),
) -> impl Iterator<Item = u32> + 'a {
    let ended = |e: &&TaskEvent| matches!(e.kind, EventKind::Exiting | EventKind::Off(Off::Ended));
    let end = history.tasks[other as usize].events.iter().find(ended).map_or(Ns::MAX, |e| e.at);
    let of = waits.iter().filter(move |w| w.0 .1 == task).flat_map(|w| w.1);
    of.filter(move |w| w.posted >= end).map(|w| w.wake)
}

/// The buffers between tasks of which each takes from one other at most, and puts for one at most. Whoever
/// deals with several works for the others, too, which says nothing of a buffer.
fn pipelines<'a>(
    (waits, tasks): (&'a Waits, &HashSet<TaskIndex>),
    tracks: &'a [Track],
    sleeps: &dyn Fn(TaskIndex) -> usize,
    mut left: usize,
) -> Vec<Link<'a>> {
    let ours = |pair: &&(TaskIndex, TaskIndex)| {
        pair.0 < pair.1 && tasks.contains(&pair.0) && tasks.contains(&pair.1) && mutual(waits, **pair)
    };
    let mut pairs: Vec<(TaskIndex, TaskIndex)> = waits.keys().filter(ours).copied().collect();
    // One that is no buffer, or a task with several partners, takes those of its neighbours with it. So does
    // a task that waits for other things as well, such as a lock that the two share.
    let mut other: HashSet<TaskIndex> = HashSet::new();
    let mut partners: BTreeMap<TaskIndex, usize> = BTreeMap::new();
    pairs.iter().flat_map(|p| [p.0, p.1]).for_each(|task| *partners.entry(task).or_default() += 1);
    pairs.retain(|p| {
        let few = partners[&p.0] <= 2 && partners[&p.1] <= 2;
        if !few {
            other.extend([p.0, p.1]);
        }
        few
    });
    let side = |task: TaskIndex, waker| Side { task, track: &tracks[task as usize], waits: &waits[&(waker, task)] };
    let mut found: Vec<Pair> = Vec::new();
    for pair in &pairs {
        let buffer = Pair::between(side(pair.0, pair.1), side(pair.1, pair.0));
        match buffer.and_then(|buffer| Some((left.checked_sub(buffer.units())?, buffer))) {
            Some((rest, pair)) => {
                left = rest;
                found.push(pair);
            }
            None => other.extend([pair.0, pair.1]),
        }
    }
    turn(&mut found);
    let mut links: Vec<Link> = found.into_iter().map(Pair::link).collect();
    // A pipeline has a first task: in a ring everybody waits for everybody, as at a lock.
    let next: BTreeMap<TaskIndex, TaskIndex> = links.iter().map(|l| (l.from.task, l.to.task)).collect();
    let mut chained: HashSet<TaskIndex> = links.iter().map(|l| l.from.task).collect();
    chained.retain(|task| links.iter().all(|l| l.to.task != *task));
    for mut task in chained.clone() {
        while let Some(to) = next.get(&task).filter(|to| chained.insert(**to)) {
            task = *to;
        }
    }
    other.extend(links.iter().map(|l| l.from.task).filter(|task| !chained.contains(task)));
    let mut explained: BTreeMap<TaskIndex, usize> = BTreeMap::new();
    let (mut puts, mut takes) = (HashSet::new(), HashSet::new());
    for link in &links {
        for side in [link.from, link.to] {
            *explained.entry(side.task).or_default() += side.waits.len();
        }
        other.extend((!puts.insert(link.from.task)).then_some(link.from.task));
        other.extend((!takes.insert(link.to.task)).then_some(link.to.task));
    }
    other.extend(explained.iter().filter(|e| (*e.1 as f64) < (1.0 - HOPELESS) * sleeps(*e.0) as f64).map(|e| *e.0));
    loop {
        let before = links.len();
        links.retain(|link| {
            let kept = !other.contains(&link.from.task) && !other.contains(&link.to.task);
            if !kept {
                other.extend([link.from.task, link.to.task]);
            }
            kept
        });
        if links.len() == before {
            return links;
        }
    }
}

/// Whoever takes from one puts for another: where a task would do the same with both of its neighbours, the
/// less sure of the two pairs is turned round.
fn turn(pairs: &mut [Pair]) {
    let mut order: Vec<usize> = (0..pairs.len()).collect();
    order.sort_by(|a, b| pairs[*b].sure.total_cmp(&pairs[*a].sure));
    let (mut puts, mut takes) = (HashSet::new(), HashSet::new());
    for i in order {
        let pair = &mut pairs[i];
        let (one, other) = (pair.one.task, pair.other.task);
        let ends = |one_writes| if one_writes { (one, other) } else { (other, one) };
        let fits = |(from, to)| !puts.contains(&from) && !takes.contains(&to);
        if !fits(ends(pair.one_writes)) && fits(ends(!pair.one_writes)) {
            pair.one_writes = !pair.one_writes;
        }
        let (from, to) = ends(pair.one_writes);
        puts.insert(from);
        takes.insert(to);
    }
}

/// How often a task slept.
fn sleeps(task: &TaskHistory) -> usize {
    task.events.iter().filter(|e| matches!(e.kind, EventKind::Off(Off::Slept { .. }))).count()
}

/// The value of which a share is less.
fn quantile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    let at = ((values.len().max(1) - 1) as f64 * share).round() as usize;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(at, f64::total_cmp).1)
}

impl Side<'_> {
    fn work(&self, from: Ns, to: Ns) -> f64 {
        (self.track.pos(to) - self.track.pos(from)) as f64
    }

    /// Work of a read or a write behind which it wakes `other`. From one such wakeup to the next it is
    /// hardly ever less. Where the other one is back at sleep before half of that is done, the next
    /// wakeup is exactly one further: the mean of those. Where that is never seen, it is hardly ever
    /// more since the other one fell asleep.
    fn step(&self, other: &Side) -> Option<f64> {
        let posts =
            other.waits.windows(2).map(|w| (self.work(w[0].posted, w[1].from), self.work(w[0].posted, w[1].posted)));
        let posts: Vec<(f64, f64)> = posts.filter(|work| work.1 > 0.0).collect();
        let least = quantile(posts.iter().map(|work| work.1).collect(), RARE)?;
        let one: Vec<f64> = posts.iter().filter(|work| work.0 < least / 2.0).map(|work| work.1).collect();
        if one.len() >= WORTH.0 {
            return Some(one.iter().sum::<f64>() / one.len() as f64);
        }
        let rest = other.waits.iter().map(|w| self.work(w.from, w.posted)).filter(|work| *work > 0.0);
        let most = quantile(rest.collect(), 1.0 - RARE);
        Some(most.map_or(least, |most| least.min(most)))
    }

    /// Work from a wakeup of `other` to its own next wait for it, in the shortest quarter of cases.
    fn goes_on(&self, other: &Side) -> Option<f64> {
        let next = |w: &Wait| self.waits.get(self.waits.partition_point(|own| own.from < w.posted));
        quantile(other.waits.iter().filter_map(|w| Some(self.work(w.posted, next(w)?.from))).collect(), 0.25)
    }
}

impl<'a> Pair<'a> {
    /// What lies between two tasks; none where it is no buffer.
    fn between(one: Side<'a>, other: Side<'a>) -> Option<Self> {
        let ends = |w: &[Wait]| (w[0].from, w[w.len() - 1].from);
        let (a, b) = (ends(one.waits), ends(other.waits));
        let (begin, end) = (a.0.min(b.0), a.1.max(b.1));
        // Work of the other for that of the one: all that is put is taken.
        let ratio = other.work(begin, end) / one.work(begin, end).max(1.0);
        let mut all: Vec<(Ns, bool)> = one.waits.iter().map(|w| (w.from, true)).collect();
        all.extend(other.waits.iter().map(|w| (w.from, false)));
        all.sort_unstable();
        let held = all.windows(2).filter(|w| w[0].1 != w[1].1).map(|w| {
            let more = other.work(w[0].0, w[1].0) - ratio * one.work(w[0].0, w[1].0);
            if w[0].1 {
                more
            } else {
                -more
            }
        });
        let held: Vec<f64> = held.collect();
        // No buffer holds less than nothing: those between whom it looks so share something else.
        let less = held.iter().filter(|held| **held < 0.0).count();
        if held.len() < WORTH.0 || less as f64 > RARE * held.len() as f64 {
            return None;
        }
        let held = quantile(held, 0.5)?;
        let (steps, on) =
            ((ratio * one.step(&other)?, other.step(&one)?), (ratio * one.goes_on(&other)?, other.goes_on(&one)?));
        let unit = steps.0.min(steps.1);
        if unit < SHORTEST as f64 || held < LEAST * unit {
            return None;
        }
        // Whoever reads makes room first, and then works on what it read; whoever writes has worked before.
        let (goes_on, step) = if steps.0 > steps.1 { (on.0, steps.0) } else { (on.1, steps.1) };
        let one_writes = (goes_on < step / 2.0) == (steps.0 > steps.1);
        let sure = (goes_on.max(1.0) / (step / 2.0)).ln().abs();
        Some(Pair { one, other, ratio, held, steps, one_writes, sure })
    }

    /// Work of the other for one unit.
    fn unit(&self) -> f64 {
        self.steps.0.min(self.steps.1)
    }

    /// How many are put in and taken out.
    fn units(&self) -> usize {
        let work = self.ratio * self.one.work(0, Ns::MAX) + self.other.work(0, Ns::MAX);
        (work / self.unit()) as usize
    }

    fn link(self) -> Link<'a> {
        let unit = self.unit();
        let Pair { one, other, ratio, held, steps, .. } = self;
        let capacity = (held / unit).round();
        let units = |work: f64| (work / unit).round().clamp(1.0, capacity) as u32;
        let (from, to, put, take, write, read) = match self.one_writes {
            true => (one, other, unit / ratio, unit, steps.0, steps.1),
            false => (other, one, unit, unit / ratio, steps.1, steps.0),
        };
        let full = from.waits[0].posted < to.waits[0].posted;
        let buffer = Buffer {
            capacity: capacity as u32,
            write: units(write),
            read: units(read),
            room: 1,
            holds: if full { capacity as u32 } else { 0 },
            from: vec![TaskId(from.task)],
            to: TaskId(to.task),
        };
        Link { from, to, put, take, buffer }
    }
}

impl Link<'_> {
    /// When units are put and taken.
    fn steps(&self) -> (Vec<Ns>, Vec<Ns>) {
        let room = self.buffer.capacity as usize;
        // Each wait: when it was woken, when it was to be put, when it was taken, whether it was full.
        let empty = self.to.waits.iter().map(|w| (w.posted, w.from, w.from, false));
        let full = self.from.waits.iter().map(|w| (w.posted, w.from, w.posted, true));
        let mut waits: Vec<(Ns, Ns, Ns, bool)> = empty.chain(full).collect();
        waits.sort_unstable();
        let (mut puts, mut takes) = (Vec::new(), Vec::new());
        if waits[0].3 {
            puts.push(waits[0].1);
        }
        takes.push(waits[0].2);
        for w in waits.windows(2) {
            let ((_, put, took, full), (_, next_put, next_took, next_full)) = (w[0], w[1]);
            let more = if next_full { room as f64 } else { 0.0 } - if full { room as f64 } else { 0.0 };
            let (took_work, put_work) = (self.to.work(took, next_took), self.from.work(put, next_put));
            let taken = ((took_work / self.take + put_work / self.put - more) / 2.0).round().max(1.0 - more.min(0.0));
            spread(self.to.track, (took, 0.0), (next_took, taken), &mut takes);
            // Whoever found nothing did so in the middle of a unit, as far as anybody knows.
            let half = |full: bool| if full { 0.0 } else { 0.5 };
            spread(self.from.track, (put, -half(full)), (next_put, taken + more - half(next_full)), &mut puts);
        }
        // Behind the last wait, as far as their work goes, and no further than the other one came.
        let &(_, put, took, full) = waits.last().unwrap_or(&(0, 0, 0, false));
        let held = if full { room } else { 0 };
        let tail = |side: &Side, from: Ns, unit: f64| (side.work(from, Ns::MAX) / unit) as usize;
        let takes_on = tail(&self.to, took, self.take).min(held + tail(&self.from, put, self.put));
        let puts_on = tail(&self.from, put, self.put).min(takes_on + room - held);
        behind(self.to.track, took, self.take, takes_on, &mut takes);
        behind(self.from.track, put, self.put, puts_on, &mut puts);
        (puts, takes)
    }
}

/// The times at which a count becomes another whole number, that is above its first value.
fn spread(track: &Track, from: (Ns, f64), to: (Ns, f64), times: &mut Vec<Ns>) {
    let (begin, end) = (track.pos(from.0), track.pos(to.0));
    let mut next = from.1.floor() + 1.0;
    while next <= to.1 {
        let share = (next - from.1) / (to.1 - from.1);
        let at = track.time(begin + ((end - begin) as f64 * share) as Ns);
        times.push(if share < 1.0 { at.clamp(from.0, to.0) } else { to.0 });
        next += 1.0;
    }
}

/// The times of `n` units behind one.
fn behind(track: &Track, from: Ns, unit: f64, n: usize, times: &mut Vec<Ns>) {
    let begin = track.pos(from);
    times.extend((1..=n).map(|i| track.time(begin + (unit * i as f64) as Ns).max(from)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two pairs in which the same task would put, the surer one stays; so it is where it would take.
    #[test]
    fn whoever_takes_from_one_puts_for_another() {
        let track = Track::default();
        let side = |task| Side { task, track: &track, waits: &[] };
        let pair = |one, other, one_writes, sure| Pair {
            one: side(one),
            other: side(other),
            ratio: 1.0,
            held: 8.0,
            steps: (1.0, 1.0),
            one_writes,
            sure,
        };
        let turned = |mut pairs: [Pair; 2]| {
            turn(&mut pairs);
            pairs.map(|p| p.one_writes)
        };
        assert_eq!(turned([pair(1, 2, true, 0.5), pair(1, 3, true, 1.5)]), [false, true]);
        assert_eq!(turned([pair(1, 2, true, 1.5), pair(1, 3, true, 0.5)]), [true, false]);
        assert_eq!(turned([pair(1, 2, false, 0.5), pair(3, 1, true, 1.5)]), [true, true]);
        assert_eq!(turned([pair(1, 2, true, 0.5), pair(2, 3, true, 1.5)]), [true, true]);
    }
}
