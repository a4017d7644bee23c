//! How often a task has woken another one than before (`wakee_flips` of Linux), which tells a waker of
//! many from one that works with one partner: a waker of many does not draw those whom it wakes to its
//! own CPU (`wake_wide` of kernel/sched/fair.c).
//!
//! Half of them are forgotten in each second in which a task wakes somebody. So who goes on waking has
//! about as many as it gets in a second. Who wakes hardly anybody still has what it has from its parent,
//! and gives that to its children: how many these are is in no record. It shows where a waker and whom it
//! wakes last ran on two CPUs that are busy: wakers of many never draw the other one to their CPU, the
//! others often do. The number that parts the two best is the likeliest.

use std::collections::HashSet;

use crate::history::{By, EventKind, History, Off, TaskHistory, TaskIndex};
use crate::task::Ns;

/// Parts of the trace, of which the middle one counts: what a task does once, as one that starts
/// others, is not what it has done before. Ten are judgement; other numbers were not tried.
const PARTS: usize = 10;
const SECOND: Ns = 1_000_000_000;
/// Numbers that are tried, each twice the one before: up to 512. In lab2 64 is the most that is found.
const TRIED: u32 = 10;
/// Behind that time nothing is left of any of them where a task goes on waking.
const LASTS: Ns = TRIED as Ns * SECOND;
/// By so much, as a logarithm, a number must be likelier than none: three standard deviations.
const SURE: f64 = 4.5;

/// The counts of all tasks at the start.
pub(super) struct Flips<'a> {
    history: &'a History,
    bound: &'a HashSet<TaskIndex>,
    /// Of those that go on waking: in a second, rounded.
    rates: Vec<Option<u32>>,
}

/// What a task does, or what is done to it.
#[derive(Clone, Copy)]
enum Step {
    On(i32),
    Leaves,
    Forks(TaskIndex),
    Wakes(TaskIndex),
    WokenBy(TaskIndex),
}

/// What tells wakers of many from others, in time order.
#[derive(Clone, Copy)]
enum Seen {
    Forks(TaskIndex, TaskIndex),
    /// Whom a task, or an interrupt while it ran, woke.
    Wakes(Ns, TaskIndex, TaskIndex),
    /// The waker could draw the second to its CPU, and did or did not.
    Draws(TaskIndex, TaskIndex, bool),
}

impl<'a> Flips<'a> {
    pub fn of(history: &'a History, bound: &'a HashSet<TaskIndex>) -> Self {
        let mut flips = Flips { history, bound, rates: Vec::new() };
        let mut wakes = vec![[false; PARTS]; history.tasks.len()];
        for task in history.tasks.iter().filter(|task| flips.counts(task.id)) {
            for event in &task.events {
                if let EventKind::Woken { by: By::Task { waker, .. }, .. } = event.kind {
                    wakes[waker as usize][flips.part(event.at)] = true;
                }
            }
        }
        flips.rates = history.tasks.iter().zip(wakes).map(|(task, wakes)| flips.rate(task, wakes)).collect();
        flips
    }

    /// The count of each task.
    pub fn at_start(&self) -> Vec<u32> {
        let rare = self.rare(&self.seen());
        self.rates.iter().map(|rate| rate.unwrap_or(rare)).collect()
    }

    /// The count of those that hardly wake anybody.
    fn rare(&self, seen: &[Seen]) -> u32 {
        // Each can tell no more than which of two kinds a waker is.
        let draws = seen.iter().filter(|s| matches!(s, Seen::Draws(..))).count();
        if draws as f64 * std::f64::consts::LN_2 < SURE {
            return 0;
        }
        let likely = |x: u32| (self.likelihood(seen, x), x);
        let none = likely(0);
        let tried = (0..TRIED).map(|n| likely(1 << n));
        let best = tried.fold(none, |best, x| if x.0 > best.0 { x } else { best });
        if best.0 > none.0 + SURE {
            best.1
        } else {
            0
        }
    }

    /// Of those that may run on several CPUs and are no real-time ones (`record_wakee`).
    fn counts(&self, t: TaskIndex) -> bool {
        !self.bound.contains(&t) && self.history.tasks[t as usize].prio.is_none_or(|prio| prio >= 100)
    }

    /// How often in a second `task` wakes another one than before; none where it hardly wakes anybody: in
    /// fewer than half of the parts.
    fn rate(&self, task: &TaskHistory, mut wakes: [bool; PARTS]) -> Option<u32> {
        let mut parts = [0u32; PARTS];
        let mut last = None;
        for &(at, woken) in task.woke.iter().filter(|w| self.counts(w.1)) {
            let part = self.part(at);
            wakes[part] = true;
            parts[part] += u32::from(last.replace(woken).is_some_and(|last| last != woken));
        }
        if 2 * wakes.iter().filter(|w| **w).count() < PARTS {
            return None;
        }
        parts.sort_unstable();
        let middle = f64::from(parts[PARTS / 2 - 1] + parts[PARTS / 2]) / 2.0;
        Some((middle * PARTS as f64 * SECOND as f64 / self.history.span.max(1) as f64).round() as u32)
    }

    fn part(&self, at: Ns) -> usize {
        ((at as f64 / self.history.span.max(1) as f64 * PARTS as f64) as usize).min(PARTS - 1)
    }

    /// What runs, forks and wakes in the time in which the numbers that are tried count, in order.
    fn steps(&self) -> Vec<(Ns, TaskIndex, Step)> {
        let mut steps: Vec<(Ns, TaskIndex, Step)> = Vec::new();
        for task in &self.history.tasks {
            let of = |kind| match kind {
                EventKind::On { cpu } => Some(Step::On(cpu)),
                EventKind::Off(off) => (off != Off::Unknown).then_some(Step::Leaves),
                EventKind::Fork { child, .. } => Some(Step::Forks(child)),
                EventKind::Woken { by: By::Task { waker, .. }, .. } => {
                    self.counts(task.id).then_some(Step::WokenBy(waker))
                }
                _ => None,
            };
            let events = task.events.iter().take_while(|e| e.at < LASTS);
            steps.extend(events.filter_map(|e| Some((e.at, task.id, of(e.kind)?))));
            // The kernel counts a wakeup before it chooses a CPU.
            let wakes = task.woke.iter().take_while(|w| w.0 < LASTS).filter(|w| self.counts(w.1));
            steps.extend(wakes.map(|w| (w.0, task.id, Step::Wakes(w.1))));
        }
        steps.sort_by_key(|s| (s.0, !matches!(s.2, Step::Wakes(_))));
        steps
    }

    fn seen(&self) -> Vec<Seen> {
        let mut seen = Vec::new();
        let mut runs: Vec<Option<TaskIndex>> = vec![None; self.history.cpus.len()];
        // Where each ran last, and where one was woken: the place in `seen`, and its waker's CPU.
        let mut last: Vec<Option<usize>> = vec![None; self.history.tasks.len()];
        let mut woken: Vec<Option<(usize, usize)>> = vec![None; self.history.tasks.len()];
        for (at, task, step) in self.steps() {
            let t = task as usize;
            match step {
                Step::On(cpu) => {
                    let cpu = usize::try_from(cpu).ok().filter(|cpu| *cpu < runs.len());
                    last[t] = cpu;
                    if let Some(cpu) = cpu {
                        runs[cpu] = Some(task);
                    }
                    if let Some((nth, here)) = woken[t].take() {
                        if let Seen::Draws(.., drawn) = &mut seen[nth] {
                            *drawn = cpu == Some(here);
                        }
                    }
                }
                Step::Leaves => {
                    if let Some(cpu) = last[t].filter(|cpu| runs[*cpu] == Some(task)) {
                        runs[cpu] = None;
                    }
                }
                Step::Forks(child) => seen.push(Seen::Forks(task, child)),
                Step::Wakes(other) => seen.push(Seen::Wakes(at, task, other)),
                Step::WokenBy(waker) => {
                    seen.push(Seen::Wakes(at, waker, task));
                    let (Some(here), Some(there)) = (last[waker as usize], last[t]) else { continue };
                    if here != there && runs[here] == Some(waker) && runs[there].is_some() {
                        woken[t] = Some((seen.len(), here));
                        seen.push(Seen::Draws(waker, task, false));
                    }
                }
            }
        }
        seen
    }

    /// How likely it is, as a logarithm, that tasks which hardly wake anybody began with `rare`.
    fn likelihood(&self, seen: &[Seen], rare: u32) -> f64 {
        let mut flips: Vec<u32> = self.rates.iter().map(|rate| rate.unwrap_or(rare)).collect();
        let mut last: Vec<Option<TaskIndex>> = vec![None; flips.len()];
        let mut since: Vec<Ns> = vec![0; flips.len()];
        // Of wakers of many and of others: who was not drawn, who was.
        let mut found = [[0u32; 2]; 2];
        let factor = self.history.cpus.len() as u32;
        for seen in seen {
            match *seen {
                Seen::Forks(parent, child) => {
                    let (parent, child) = (parent as usize, child as usize);
                    (flips[child], last[child], since[child]) = (flips[parent], last[parent], since[parent]);
                }
                Seen::Wakes(at, waker, woken) => {
                    let waker = waker as usize;
                    if at - since[waker] > SECOND {
                        (flips[waker], since[waker]) = (flips[waker] >> 1, at);
                    }
                    flips[waker] += u32::from(last[waker].replace(woken) != Some(woken));
                }
                Seen::Draws(waker, woken, drawn) => {
                    let (a, b) = (flips[waker as usize], flips[woken as usize]);
                    let wide = a.min(b) >= factor && a.max(b) >= a.min(b) * factor;
                    found[usize::from(wide)][usize::from(drawn)] += 1;
                }
            }
        }
        let part = |[stays, drawn]: [u32; 2]| {
            let all = f64::from(stays + drawn);
            [stays, drawn].iter().filter(|n| **n > 0).map(|n| f64::from(*n) * (f64::from(*n) / all).ln()).sum::<f64>()
        };
        let rate = |[stays, drawn]: [u32; 2]| f64::from(drawn) / f64::from((stays + drawn).max(1));
        // Wakers of many that draw more than others are none.
        if rate(found[1]) > rate(found[0]) {
            return part([found[0][0] + found[1][0], found[0][1] + found[1][1]]);
        }
        part(found[0]) + part(found[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{First, TaskEvent};

    fn tasks(n: u32) -> Vec<TaskHistory> {
        (0..n).map(|t| TaskHistory::new(t, First::Asleep, 0)).collect()
    }

    #[test]
    fn what_is_done_once_is_not_what_was_done_before() {
        let flips = |woke: Vec<(i64, TaskIndex)>| {
            let mut tasks = tasks(30);
            tasks[29].prio = Some(9);
            tasks[0].woke = woke;
            let history = History { tasks, span: 500_000_000, ..History::default() };
            Flips::of(&history, &HashSet::from([28])).at_start()[0]
        };
        let by_turns = |a, b| (0..100).map(|i| (i64::from(i) * 5_000_000, if i % 2 == 0 { a } else { b })).collect();
        assert_eq!(flips(by_turns(1, 2)), 200);
        assert_eq!(flips(by_turns(1, 28)), 0, "one that is bound");
        assert_eq!(flips(by_turns(1, 29)), 0, "one that is real time");
        assert_eq!(flips((1..28).map(|t| (7_000_000, t)).collect()), 0, "all at once");
    }

    /// Task 0 wakes 1 and others by turns, and 2 wakes 3 only; both last ran on CPU 1, where 4 runs. Task 3
    /// is drawn every other time, and 1 where `drawn` says so; both begin with the same count.
    fn start(drawn: bool) -> Vec<u32> {
        let mut tasks = tasks(8);
        let mut at = 0;
        for i in 0..100 {
            for (waker, woken, here) in [(0, 1, drawn), (2, 3, true)] {
                let mut did = |task: u32, kind| {
                    at += 1_000_000;
                    tasks[task as usize].events.push(TaskEvent { at, kind });
                };
                let leaves = EventKind::Off(Off::Preempted { interrupt: None });
                did(woken, EventKind::On { cpu: 1 });
                did(woken, leaves);
                did(4, EventKind::On { cpu: 1 });
                did(waker, EventKind::On { cpu: 0 });
                did(woken, EventKind::Woken { by: By::Task { waker, wake: 0 }, cpu: 1 });
                did(waker, leaves);
                did(4, leaves);
                did(woken, EventKind::On { cpu: if here && i % 2 == 0 { 0 } else { 1 } });
                did(woken, leaves);
                if waker == 0 {
                    tasks[0].woke.push((at - 4_000_000, 1));
                    tasks[0].woke.push((at, 5 + i % 3));
                }
            }
        }
        let history = History { tasks, span: at, cpus: vec![0, 1], ..History::default() };
        Flips::of(&history, &HashSet::new()).at_start()
    }

    #[test]
    fn what_is_left_from_before_shows_by_who_is_never_drawn() {
        assert_eq!(start(false)[1], 2, "the least that makes a waker of many of the other");
        assert_eq!(start(true)[1], 0, "nothing tells them apart");
        assert!(start(false)[0] > 50, "who goes on waking has what it gets in a second");
    }
}
