//! Buffers into which several tasks put what one takes out: the socket or pipe of a task that many write
//! to, the queue of a thread that many give work to (fan-in; a queue of many producers and one consumer).
//!
//! The one that takes is woken by many, and wakes them where they found no room. It sleeps where
//! nothing is left, so that what it does behind a wakeup is the work of all that was put in since. The
//! shortest quarter of its bursts are for one unit each; a longer one took as many as its work says.
//! The first was put in by who woke it. Nobody was woken for the others: they came from those who ran
//! meanwhile, evenly in their CPU time, each before it was taken and from whoever had run for longest
//! since it last put something in. Where tasks slept until the taker woke them, there was no room. How
//! much the buffer held then, and how much when they were woken, is counted: medians are its room.
//! Taken the wrong way round, as if who writes took, it comes out as any number, so that it shows who
//! does which. (Of stream sockets Linux wakes those who wait for room when a quarter is left:
//! unix_writable, net/unix/af_unix.c.)

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::buffers::{Pipes, SHORTEST};
use super::network::FEW;
use super::waits::{posted, Wait, Waits};
use super::{most_steps, Mark, Track, HOPELESS, WORTH};
use crate::history::{By, EventKind, First, History, TaskEvent, TaskIndex};
use crate::program::Buffer;
use crate::task::{Ns, TaskId};

/// What a full buffer holds is the same to one part in so many, between quartiles; taken the wrong way round
/// it differs by more than it is itself.
const NARROW: i64 = 2;

/// Some tasks.
type Tasks = HashSet<TaskIndex>;
/// What is put in and taken out of one buffer, by whom and when.
type Marks = BTreeMap<TaskIndex, Vec<(Ns, Mark)>>;

/// From when to when a task was on a CPU.
type Ran = (Ns, Ns, TaskIndex);

/// One that takes what several put in.
struct Inbox<'a> {
    reader: TaskIndex,
    track: &'a Track,
    /// Its sleeps that they ended, and who did, in order of time.
    waits: Vec<(Wait, TaskIndex)>,
    writers: BTreeSet<TaskIndex>,
    /// Their sleeps that it ended.
    full: Vec<(Wait, TaskIndex)>,
}

/// The buffers of `tasks` into which several put something.
pub(super) fn find(history: &History, tracks: &[Track], waits: &Waits, tasks: &Tasks) -> Pipes {
    let mut left = most_steps(history);
    let mut likely: Vec<(f64, Buffer, Inbox, Marks)> = Vec::new();
    for inbox in candidates(history, tracks, waits, tasks) {
        let bursts = inbox.bursts(history.span);
        let mut works: Vec<Ns> = bursts.iter().map(|b| inbox.work(b)).collect();
        let unit = unit(&mut works);
        if unit < SHORTEST {
            continue;
        }
        let slices = inbox.slices(tracks);
        let units = (works.iter().sum::<Ns>() / unit) as usize;
        let Some(rest) = left.checked_sub(slices.len() + units) else { continue };
        left = rest;
        let marks = inbox.marks((&bursts, unit), (tracks, &slices));
        likely.extend(inbox.buffer(&marks).map(|(spread, buffer)| (spread, buffer, inbox, marks)));
    }
    // Of two that each look as if they took what the other one puts in, the surer one does.
    likely.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut taken = BTreeMap::<TaskIndex, (Buffer, Inbox, Marks)>::new();
    for (_, buffer, inbox, marks) in likely {
        let other_way = |w: &TaskIndex| taken.get(w).is_some_and(|t| t.1.writers.contains(&inbox.reader));
        if !inbox.writers.iter().any(other_way) {
            taken.insert(inbox.reader, (buffer, inbox, marks));
        }
    }
    let mut found = Pipes::default();
    for (buffer, inbox, mut marks) in taken.into_values() {
        found.wakes.extend(inbox.waits.iter().map(|w| w.0.wake));
        if buffer.capacity < u32::MAX {
            for (wait, writer) in &inbox.full {
                marks.entry(*writer).or_default().push((wait.from, Mark::Put(0)));
                marks.entry(inbox.reader).or_default().push((wait.posted, Mark::Get(0)));
                found.wakes.insert(wait.wake);
            }
        }
        let id = found.found.len() as u32;
        let numbered = |(at, mark)| (at, if matches!(mark, Mark::Put(_)) { Mark::Put(id) } else { Mark::Get(id) });
        for (task, list) in marks {
            found.marks.entry(task).or_default().extend(list.into_iter().map(numbered));
        }
        found.found.push(buffer);
    }
    found.marks.values_mut().for_each(|marks| marks.sort());
    found
}

/// Those that at least a few others woke, each of them often, and that hardly waited for anything else.
fn candidates<'a>(history: &History, tracks: &'a [Track], waits: &Waits, tasks: &Tasks) -> Vec<Inbox<'a>> {
    let mut found: BTreeMap<TaskIndex, Inbox> = BTreeMap::new();
    let mut often: BTreeMap<TaskIndex, usize> = BTreeMap::new();
    for ((waker, task), list) in waits.iter().filter(|w| tasks.contains(&w.0 .0) && tasks.contains(&w.0 .1)) {
        let inbox = found.entry(*task).or_insert_with(|| Inbox {
            reader: *task,
            track: &tracks[*task as usize],
            waits: Vec::new(),
            writers: BTreeSet::new(),
            full: Vec::new(),
        });
        inbox.waits.extend(list.iter().map(|w| (*w, *waker)));
        inbox.writers.insert(*waker);
        inbox.full.extend(waits.get(&(*task, *waker)).into_iter().flatten().map(|w| (*w, *waker)));
        *often.entry(*task).or_default() += usize::from(list.len() >= WORTH.0);
    }
    found.retain(|task, inbox| {
        let sleeps = history.tasks[*task as usize].sleeps().count();
        often[task] >= FEW && inbox.waits.len() as f64 >= (1.0 - HOPELESS) * sleeps as f64
    });
    if found.is_empty() {
        return Vec::new();
    }
    let begins = begins(history);
    for inbox in found.values_mut() {
        inbox.waits.extend(begins.get(&inbox.reader).filter(|b| inbox.writers.contains(&b.1)));
        let full = inbox.writers.iter().filter_map(|w| begins.get(w).map(|b| (w, b)));
        inbox.full.extend(full.filter(|b| b.1 .1 == inbox.reader).map(|(writer, begin)| (begin.0, *writer)));
        inbox.waits.sort_by_key(|w| w.0.posted);
    }
    found.into_values().collect()
}

/// The sleeps with which tasks begin and that others end, and who did.
fn begins(history: &History) -> BTreeMap<TaskIndex, (Wait, TaskIndex)> {
    let (mut found, posted) = (BTreeMap::new(), posted(history));
    for task in history.tasks.iter().filter(|task| task.first == First::Asleep) {
        if let Some(TaskEvent { kind: EventKind::Woken { by: By::Task { waker, wake }, .. }, .. }) = task.events.first()
        {
            found.insert(task.id, (Wait { from: 0, posted: posted[*wake as usize], wake: *wake }, *waker));
        }
    }
    found
}

impl Inbox<'_> {
    /// What it does behind each wakeup: from when to when, and who made it.
    fn bursts(&self, span: Ns) -> Vec<Ran> {
        let ends = self.waits.iter().skip(1).map(|w| w.0.from).chain([span]);
        self.waits.iter().zip(ends).map(|((wait, waker), end)| (wait.posted, end.max(wait.posted), *waker)).collect()
    }

    /// What it worked in a burst.
    fn work(&self, burst: &Ran) -> Ns {
        self.track.pos(burst.1) - self.track.pos(burst.0)
    }

    /// When writers were on a CPU, in order of time.
    fn slices(&self, tracks: &[Track]) -> Vec<Ran> {
        let of = |w: TaskIndex| tracks[w as usize].slices().map(move |s| (s.0, s.1, w));
        let mut slices: Vec<Ran> = self.writers.iter().copied().flat_map(of).collect();
        slices.sort_unstable();
        slices
    }

    /// Units put in and taken out.
    fn marks(&self, (bursts, unit): (&[Ran], Ns), (tracks, slices): (&[Track], &[Ran])) -> Marks {
        let mut marks = Marks::new();
        let mut last: BTreeMap<TaskIndex, Ns> = BTreeMap::new();
        let (mut slices, mut on): (_, Vec<Ran>) = (slices.iter().peekable(), Vec::new());
        for (burst, (wait, _)) in bursts.iter().zip(&self.waits) {
            let (begin, end, waker) = *burst;
            marks.entry(waker).or_default().push((begin, Mark::Put(0)));
            marks.entry(self.reader).or_default().push((wait.from, Mark::Get(0)));
            last.insert(waker, tracks[waker as usize].pos(begin));
            on.retain(|s| s.1 > begin + 1);
            while let Some(slice) = slices.next_if(|s| s.0 < end) {
                on.push(*slice);
            }
            let units = (self.work(burst) as f64 / unit as f64).round() as usize;
            if units < 2 {
                continue;
            }
            let within = on.iter().map(|s| (s.0.max(begin + 1), s.1.min(end), s.2));
            let mut meanwhile: Vec<Ran> = within.filter(|s| s.0 < s.1).collect();
            if meanwhile.is_empty() {
                continue;
            }
            meanwhile.sort_unstable();
            let from = self.track.pos(begin);
            let taken = |i: usize| self.track.time(from + self.work(burst) * i as Ns / units as Ns);
            let takes: Vec<Ns> = (1..units).map(taken).collect();
            // Whoever has run for longest since it put something in was the next.
            let (mut next, mut latest) = (meanwhile.iter().peekable(), BTreeMap::new());
            for at in puts(&meanwhile, &takes) {
                while let Some(slice) = next.next_if(|s| s.0 <= at) {
                    latest.insert(slice.2, slice.1 - 1);
                }
                let due = |(by, to): (&TaskIndex, &Ns)| {
                    let at = at.min(*to);
                    (tracks[*by as usize].pos(at) - last.get(by).copied().unwrap_or(0), at, *by)
                };
                let (at, by) = latest.iter().map(due).max().map_or((begin, waker), |due| (due.1, due.2));
                last.insert(by, tracks[by as usize].pos(at));
                marks.entry(by).or_default().push((at, Mark::Put(0)));
            }
            marks.entry(self.reader).or_default().extend(takes.into_iter().map(|at| (at, Mark::Get(0))));
        }
        marks
    }

    /// The buffer, where it is one: where writers waited for room it held about the same, and less when they
    /// were woken. Before it, how far that spreads, in parts of it.
    fn buffer(&self, marks: &Marks) -> Option<(f64, Buffer)> {
        let (mut capacity, mut room, mut spread) = (u32::MAX, 1, 0.0);
        if self.full.len() >= WORTH.0 {
            let put = |mark: &Mark| if matches!(mark, Mark::Put(_)) { 1 } else { -1 };
            let mut levels: Vec<(Ns, i64)> = marks.values().flatten().map(|(at, mark)| (*at, put(mark))).collect();
            levels.sort_unstable();
            let mut held = 0;
            for level in &mut levels {
                held += level.1;
                level.1 = held;
            }
            let before = |at: Ns| levels[..levels.partition_point(|l| l.0 < at)].last().map_or(0, |l| l.1);
            let quartiles = |at: fn(&Wait) -> Ns| {
                let mut held: Vec<i64> = self.full.iter().map(|w| before(at(&w.0))).collect();
                held.sort_unstable();
                [1, 2, 3].map(|quarter| held[held.len() * quarter / 4])
            };
            let ([first, most, third], [_, left, _]) = (quartiles(|w| w.from), quartiles(|w| w.posted));
            if left >= most || most < 1 || (third - first) * NARROW > most {
                return None;
            }
            spread = (third - first) as f64 / most as f64;
            capacity = most as u32;
            room = (most - left.max(0)) as u32;
        }
        let from = self.writers.iter().map(|w| TaskId(*w)).collect();
        Some((spread, Buffer { capacity, write: 1, read: 1, room, holds: 0, from, to: TaskId(self.reader) }))
    }
}

/// The lower quartile: of one unit.
fn unit(works: &mut [Ns]) -> Ns {
    let quarter = works.len() / 4;
    *works.select_nth_unstable(quarter).1
}

/// When units that are taken at `takes` were put in: evenly in what others ran `meanwhile`, each before it
/// was taken.
fn puts(meanwhile: &[Ran], takes: &[Ns]) -> Vec<Ns> {
    let all: Ns = meanwhile.iter().map(|s| s.1 - s.0).sum();
    let (mut slice, mut before) = (0, 0);
    let mut found = Vec::with_capacity(takes.len());
    for (i, take) in takes.iter().enumerate() {
        let pos = ((i as f64 + 0.5) / takes.len() as f64 * all as f64) as Ns;
        while slice + 1 < meanwhile.len() && before + meanwhile[slice].1 - meanwhile[slice].0 <= pos {
            before += meanwhile[slice].1 - meanwhile[slice].0;
            slice += 1;
        }
        let (from, to, _) = meanwhile[slice];
        found.push((from + pos - before).min(to - 1).min(*take));
    }
    // On several CPUs they ran side by side.
    found.sort_unstable();
    found
}
