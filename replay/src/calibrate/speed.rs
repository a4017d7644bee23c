//! How fast CPUs are against each other, from what the same work took on each.
//!
//! Two kinds of evidence. A task that went from one CPU to another: the bursts (CPU time from a
//! wakeup to the next sleep) before and behind its move are compared, on a scale of logarithms. And
//! tasks of one name (numbers in it aside) that stayed on different CPUs, where those on the same
//! CPU are as alike as copies of one program: their mean bursts are compared. Bursts that were
//! spread over CPUs do not count, nor do those that are mostly costs of switches. Where frequencies are
//! recorded, a burst is as long as it would have been at the highest. How long tasks go on that wait
//! for a lock or at a buffer is a matter of when they meet others: they say nothing of CPUs. (Of 15 runs
//! of three that share a lock, with a task that never sleeps on one of two equal CPUs, all looked as if
//! that one were 6 to 8 times as fast.)
//!
//! Each pair of CPUs gets a difference and its standard error from the scatter between moves, or
//! between tasks; least squares make one number a CPU from them. A CPU counts as faster or slower
//! only where its interval lies beyond what is worth a difference.

use std::collections::BTreeMap;

use super::{Limits, Overheads};
use crate::history::{EventKind, History, Off, TaskHistory};
use crate::speeds::Speeds;
use crate::task::Ns;

/// Bursts that count on each side of a move: behind many more, the task may have changed its ways.
const SIDE: usize = 8;
/// Moves that make an estimate.
const MOVES: usize = 6;
/// Bursts from which a task has a mean.
const BURSTS: usize = 5;
/// Share of its bursts that a task must have on the CPU that it counts for, percent.
const STAYED: usize = 80;
/// Standard deviation of copies of one program on one CPU, at most (of logarithms: a quarter).
const ALIKE: f64 = 0.25;
/// A burst counts from so many switches on: less than a tenth of it is costs.
const SWITCHES: Ns = 10;
/// Standard errors to each side: an interval of 99 % of a normal distribution.
const WIDE: f64 = 2.576;
/// Two CPUs that differ by less than 10 % count as equally fast.
const WORTH: f64 = 1.1;

/// No difference is known better than this.
const LEAST_ERROR: f64 = 0.02;

/// One burst: logarithm of its length, and the CPU, where it was one.
type Burst = (f64, Option<usize>);

/// Sums of one pair of CPUs: differences (second over first) with their weights.
type Pairs = BTreeMap<(usize, usize), Vec<(f64, f64)>>;

/// What `history` shows of the speed of its CPUs; `names` are those of its tasks, without those that are
/// bound to a CPU or whose bursts say nothing, `cuts` when each task took a message or came to a barrier,
/// `known` is how fast CPUs are known to be by their frequencies, and `over` says what a switch costs.
pub(crate) fn measure(
    history: &History,
    names: &[Option<&str>],
    cuts: &[Vec<Ns>],
    known: &Speeds,
    over: &Overheads,
) -> Speeds {
    let n = history.cpus.len();
    if n < 2 {
        return Speeds::default();
    }
    let limits = over.limits;
    let least = (limits.of("speed_costs", SWITCHES) * over.switch.max(1)) as f64;
    let mut moves = Pairs::new();
    let mut copies: BTreeMap<String, Vec<(usize, f64)>> = BTreeMap::new();
    for (task, name) in history.tasks.iter().zip(names) {
        let Some(name) = name else { continue };
        let bursts = bursts(task, cuts.get(task.id as usize).map_or(&[], Vec::as_slice), known, least);
        note_moves(&bursts, &mut moves);
        if let Some(own) = stayed(&bursts, n) {
            let name: String = name.chars().filter(|c| !c.is_ascii_digit()).collect();
            copies.entry(name).or_default().push(own);
        }
    }
    let mut links: Vec<(usize, usize, f64, f64)> = Vec::new();
    for ((a, b), seen) in &moves {
        links.extend(mean(seen).map(|(m, se)| (*a, *b, m, se)));
    }
    for tasks in copies.values() {
        note_copies(tasks, limits, n, &mut links);
    }
    settle(n, limits, &links)
}

/// The bursts of a task that begin with a wakeup and end with a sleep, and those between two `cuts`:
/// where servers find requests waiting, one burst holds as many as there were.
fn bursts(task: &TaskHistory, cuts: &[Ns], known: &Speeds, least: f64) -> Vec<Burst> {
    let mut found = Vec::new();
    let mut note = |sum: Ns, cpus: &[i32]| {
        let only = if let [cpu] = *cpus { usize::try_from(cpu).ok() } else { None };
        if sum as f64 >= least {
            found.push(((sum as f64).ln(), only));
        }
    };
    let mut here = usize::MAX;
    let (mut on, mut sum, mut cpus, mut whole) = (None, 0, Vec::new(), false);
    let mut cuts = cuts.iter().copied().peekable();
    for event in &task.events {
        while let Some(cut) = cuts.next_if(|t| *t < event.at) {
            if let Some(from) = on.filter(|from| *from < cut) {
                sum += known.work(here, from, cut);
                if whole {
                    note(sum, &cpus);
                }
                (on, sum) = (Some(cut), 0);
                cpus.drain(..cpus.len().saturating_sub(1));
            }
        }
        match event.kind {
            EventKind::On { cpu } => {
                (on, here) = (Some(event.at), usize::try_from(cpu).unwrap_or(usize::MAX));
                cpus.retain(|c| *c != cpu);
                cpus.push(cpu);
            }
            EventKind::Woken { .. } => {
                (sum, whole) = (0, true);
                cpus.clear();
            }
            EventKind::Off(off) => {
                sum += on.take().map_or(0, |from| known.work(here, from, event.at));
                if matches!(off, Off::Slept { .. }) && std::mem::take(&mut whole) {
                    note(sum, &cpus);
                }
            }
            _ => {}
        }
    }
    found
}

/// The runs of bursts of a task on one CPU, each beside the next.
fn note_moves(bursts: &[Burst], moves: &mut Pairs) {
    let mut runs: Vec<(usize, Vec<f64>)> = Vec::new();
    for &(ln, cpu) in bursts {
        let Some(cpu) = cpu else { continue };
        match runs.last_mut() {
            Some((last, of)) if *last == cpu => of.push(ln),
            _ => runs.push((cpu, vec![ln])),
        }
    }
    for two in runs.windows(2) {
        let [(from, before), (to, behind)] = two else { continue };
        let before = &before[before.len().saturating_sub(SIDE)..];
        let behind = &behind[..behind.len().min(SIDE)];
        let weight = (before.len() * behind.len()) as f64 / (before.len() + behind.len()) as f64;
        let rise = average(behind) - average(before);
        let (pair, rise) = if from < to { ((*from, *to), rise) } else { ((*to, *from), -rise) };
        moves.entry(pair).or_default().push((rise, weight));
    }
}

fn average(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

/// The CPU on which a task stayed, and the mean of its bursts there.
fn stayed(bursts: &[Burst], n: usize) -> Option<(usize, f64)> {
    let on = |cpu: usize| bursts.iter().filter(move |b| b.1 == Some(cpu)).map(|b| b.0);
    let cpu = (0..n).max_by_key(|&c| (on(c).count(), n - c))?;
    let own: Vec<f64> = on(cpu).collect();
    (own.len() >= BURSTS && own.len() * 100 >= STAYED * bursts.len()).then(|| (cpu, average(&own)))
}

/// Mean of weighted differences and its standard error, where there are enough.
fn mean(seen: &[(f64, f64)]) -> Option<(f64, f64)> {
    if seen.len() < MOVES {
        return None;
    }
    let weight: f64 = seen.iter().map(|s| s.1).sum();
    let mean = seen.iter().map(|s| s.0 * s.1).sum::<f64>() / weight;
    let squares: f64 = seen.iter().map(|s| (s.1 * (s.0 - mean)).powi(2)).sum();
    let n = seen.len() as f64;
    Some((mean, squares.sqrt() / weight * (n / (n - 1.0)).sqrt() * few(n - 1.0)))
}

/// How much wider than a normal one an interval of 99 % is whose scatter is known from `free`
/// degrees of freedom only (Student's distribution, within 4 % from 3 degrees on).
fn few(free: f64) -> f64 {
    1.0 + 1.2 / free + 7.0 / (free * free)
}

/// Copies of one program by the CPU that each stayed on: differences between CPUs.
fn note_copies(tasks: &[(usize, f64)], limits: Limits, n: usize, links: &mut Vec<(usize, usize, f64, f64)>) {
    let on: Vec<Vec<f64>> = (0..n).map(|c| tasks.iter().filter(|t| t.0 == c).map(|t| t.1).collect()).collect();
    let several: Vec<usize> = (0..n).filter(|&c| on[c].len() > 1).collect();
    let free: usize = several.iter().map(|&c| on[c].len() - 1).sum();
    if several.len() < 2 || free < 3 {
        return;
    }
    let apart = |c: &usize| on[*c].iter().map(|x| (x - average(&on[*c])).powi(2)).sum::<f64>();
    let deviation = (several.iter().map(apart).sum::<f64>() / free as f64).sqrt();
    if deviation > limits.of("speed_alike", ALIKE) {
        return;
    }
    let deviation = deviation * few(free as f64);
    for (i, &a) in several.iter().enumerate() {
        for &b in &several[i + 1..] {
            let parts = 1.0 / on[a].len() as f64 + 1.0 / on[b].len() as f64;
            links.push((a, b, average(&on[b]) - average(&on[a]), deviation * parts.sqrt()));
        }
    }
}

/// One number a CPU from differences between two: least squares. A CPU whose interval does not
/// lie beyond what is worth a difference is of middling speed.
fn settle(n: usize, limits: Limits, links: &[(usize, usize, f64, f64)]) -> Speeds {
    // The normal equations, with a weak pull towards equal speed that makes them solvable.
    let mut rows = vec![vec![0.0; 2 * n]; n];
    for (i, row) in rows.iter_mut().enumerate() {
        (row[i], row[n + i]) = (1.0, 1.0);
    }
    let mut right = vec![0.0; n];
    for &(a, b, difference, error) in links {
        let weight = 1.0 / error.max(LEAST_ERROR).powi(2);
        rows[a][a] += weight;
        rows[b][b] += weight;
        rows[a][b] -= weight;
        rows[b][a] -= weight;
        right[b] += weight * difference;
        right[a] -= weight * difference;
    }
    for i in 0..n {
        let pivot = rows[i][i];
        rows[i].iter_mut().for_each(|x| *x /= pivot);
        let row = rows[i].clone();
        for (j, other) in rows.iter_mut().enumerate() {
            let factor = other[i];
            if j != i && factor != 0.0 {
                other.iter_mut().zip(&row).for_each(|(x, y)| *x -= factor * y);
            }
        }
    }
    let inverse = |i: usize, j: usize| rows[i][n + j];
    let found: Vec<f64> = (0..n).map(|i| (0..n).map(|j| inverse(i, j) * right[j]).sum()).collect();
    let worth = limits.of("speed_worth", WORTH.ln());
    let linked = |i: usize| links.iter().any(|l| l.0 == i || l.1 == i);
    let times: Vec<f64> = (0..n)
        .map(|i| {
            let x = found[i];
            // Its variance about the mean of all: the part that all share is no difference.
            let shared = (0..n).map(|j| inverse(i, j)).sum::<f64>() / n as f64;
            let error = (inverse(i, i) - shared).max(0.0).sqrt();
            let beyond = linked(i) && x.abs() - WIDE * error > worth / 2.0;
            if beyond {
                x.exp()
            } else {
                1.0
            }
        })
        .collect();
    Speeds::of(&times)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bursts of about `length` on a CPU, no two of the same length.
    fn bursts_on(cpu: usize, length: f64, n: usize) -> Vec<Burst> {
        (0..n).map(|i| ((length * (0.8 + 0.4 * ((i * 7) % 11) as f64 / 10.0)).ln(), Some(cpu))).collect()
    }

    fn moving(second: f64) -> Vec<(usize, usize, f64, f64)> {
        let mut moves = Pairs::new();
        let bursts: Vec<Burst> =
            (0..16).flat_map(|i| bursts_on(i % 2, if i % 2 == 0 { 1e6 } else { second }, 3 + i % 5)).collect();
        note_moves(&bursts, &mut moves);
        moves.iter().filter_map(|((a, b), seen)| mean(seen).map(|(m, se)| (*a, *b, m, se))).collect()
    }

    #[test]
    fn a_task_that_moves_shows_which_cpu_is_slow() {
        let speeds = settle(2, Limits::default(), &moving(2e6));
        let ratio = speeds.time_of_one(1) / speeds.time_of_one(0);
        assert!((1.8..2.2).contains(&ratio), "{ratio}");
        assert!(settle(2, Limits::default(), &moving(1.02e6)).are_equal());
        assert!(settle(2, Limits::default(), &[]).are_equal());
    }

    #[test]
    fn copies_that_stay_show_it_and_tasks_of_one_name_that_differ_do_not() {
        let found = |tasks: &[(usize, f64)]| {
            let mut links = Vec::new();
            note_copies(tasks, Limits::default(), 2, &mut links);
            settle(2, Limits::default(), &links)
        };
        let alike = [(0, 14.00), (0, 14.05), (0, 13.97), (1, 14.52), (1, 14.49), (1, 14.55)];
        let ratio = found(&alike).time_of_one(1) / found(&alike).time_of_one(0);
        assert!((1.5..1.8).contains(&ratio), "{ratio}");
        let differ = [(0, 12.0), (0, 14.1), (0, 13.0), (1, 14.9), (1, 13.9), (1, 16.2)];
        assert!(found(&differ).are_equal());
    }

    #[test]
    fn a_burst_is_whole_and_on_one_cpu_or_does_not_count_for_any() {
        use crate::history::{By, First, TaskEvent};
        let event = |at, kind| TaskEvent { at, kind };
        let slept = EventKind::Off(Off::Slept { deep: false });
        let woken = EventKind::Woken { by: By::Unknown, cpu: 0 };
        let mut task = TaskHistory::new(0, First::Running, 0);
        task.events = vec![
            event(0, EventKind::On { cpu: 0 }),
            event(500, slept),
            event(1_000, woken),
            event(1_000, EventKind::On { cpu: 0 }),
            event(1_100, EventKind::Off(Off::Preempted { interrupt: None })),
            event(1_200, EventKind::On { cpu: 0 }),
            event(1_300, slept),
            event(2_000, woken),
            event(2_000, EventKind::On { cpu: 0 }),
            event(2_100, EventKind::Off(Off::Preempted { interrupt: None })),
            event(2_200, EventKind::On { cpu: 1 }),
            event(2_300, slept),
        ];
        assert_eq!(bursts(&task, &[], &Speeds::default(), 1.0), [(200f64.ln(), Some(0)), (200f64.ln(), None)]);
        // It took a second message when it had worked for 50.
        let cut = [(50f64.ln(), Some(0)), (150f64.ln(), Some(0)), (200f64.ln(), None)];
        assert_eq!(bursts(&task, &[1_000, 1_050, 2_000], &Speeds::default(), 1.0), cut);
    }
}
