//! When the clock ticks: how often a second, and at which time on each CPU.

use std::collections::BTreeMap;

use super::Overheads;
use crate::history::{EventKind, History, Loose, Off};
use crate::task::Ns;

/// Tick rates that systems use, slowest first.
const RATES: [i64; 7] = [60, 100, 128, 250, 300, 1000, 1024];

/// How the tick was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TickSource {
    /// Ticks are in the trace.
    Seen,
    /// From the times at which tasks were preempted without a wakeup.
    Preemptions,
    /// Stated by the trace (`hz`) or the caller; the phase is unknown.
    Stated,
    /// Not known: the default rate, phase 0.
    #[default]
    Unknown,
}

/// Ticks per second and their phase.
pub(super) fn find_tick(history: &History, stated: Option<i64>, found: &mut Overheads) {
    let cpus = history.cpus.len().max(1);
    let seen: Vec<(Ns, i32)> = history.ticks.iter().map(|t| (t.0 - found.tick_lag, t.1)).collect();
    let rates: Vec<i64> = stated.map_or_else(|| RATES.to_vec(), |hz| vec![hz]);
    for source in [TickSource::Seen, TickSource::Preemptions] {
        for &hz in &rates {
            let period = 1_000_000_000 / hz;
            let (times, crowd) = match source {
                TickSource::Seen => (seen.clone(), SEEN),
                _ => (used_up(&history.loose, period), CAUSED),
            };
            let all: Vec<Ns> = times.iter().map(|t| t.0).collect();
            let Some(phase) = (all.len() >= FEWEST).then(|| concentrated(&all, period, crowd)).flatten() else {
                continue;
            };
            let of = |cpu| {
                let own: Vec<Ns> = times.iter().filter(|t| t.1 == cpu).map(|t| t.0).collect();
                concentrated(&own, period, crowd).unwrap_or(phase)
            };
            found.hz = hz;
            found.tick_source = source;
            found.phase = (0..cpus as i32).map(of).collect();
            return;
        }
    }
    found.hz = stated.unwrap_or(250);
    found.tick_source = if stated.is_some() { TickSource::Stated } else { TickSource::Unknown };
    found.phase = vec![0; cpus];
}

/// The part of a period that most of the times fill, and how many of them that is at least.
type Crowd = (Ns, f64);
/// Ticks lie within a hundredth of their period, but for those that interrupts held up.
const SEEN: Crowd = (100, 0.9);
/// Switches that ticks cause come later by what the switch takes, which is less the same each time.
const CAUSED: Crowd = (25, 0.8);

/// Fewer times give no phase.
const FEWEST: usize = 8;

/// Switches without a cause that ended slices of at least a quarter of `period`: such a slice has used
/// up its time, unlike one that ends with a yield. Where enough of them were quiet, only those: in the
/// others a switch may have waited for the end of a long system call.
fn used_up(loose: &[Loose], period: Ns) -> Vec<(Ns, i32)> {
    let long = |l: &&Loose| l.since.is_some_and(|since| 4 * (l.at - since) >= period);
    let quiet: Vec<&Loose> = loose.iter().filter(|l| l.quiet).filter(long).collect();
    let all = || loose.iter().filter(long).collect();
    let taken: Vec<&Loose> = if quiet.len() < FEWEST { all() } else { quiet };
    taken.into_iter().map(|l| (l.at, l.cpu)).collect()
}

/// No system ticks more often.
const SHORTEST_TICK: Ns = 1_000_000_000 / RATES[RATES.len() - 1];
/// Linux grants no shorter slice (`sched_setattr` takes 0.1 ms for less).
const SHORTEST_SLICE: Ns = 100_000;

/// Which of these switches come so closely, one after the other on one CPU, that neither ticks nor ends
/// of slices can have caused them.
fn crowded(loose: &[Loose]) -> Vec<bool> {
    let mut found = vec![false; loose.len()];
    let most = (SHORTEST_TICK / SHORTEST_SLICE + 1) as usize;
    let mut of_cpu: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
    for (i, l) in loose.iter().enumerate().filter(|(_, l)| l.user && l.quiet) {
        of_cpu.entry(l.cpu).or_default().push(i);
    }
    for of in of_cpu.values() {
        for near in of.windows(most + 1) {
            let (first, last) = (near[0], near[most]);
            if loose[last].at - loose[first].at < SHORTEST_TICK {
                near.iter().for_each(|i| found[*i] = true);
            }
        }
    }
    found
}

/// What the switches without a cause are. Where no record says when ticks come, but the switches they cause
/// give their times: who left a CPU ready to run, with no tick in its slice and nothing else that could
/// have asked for the switch, has yielded. So has, where nothing shows ticks, who left it among more
/// such switches than a clock makes.
pub(crate) fn explain(history: &mut History, found: &Overheads) {
    let (period, known) = (1_000_000_000 / found.hz.max(1), found.tick_source == TickSource::Preemptions);
    let early = period / CAUSED.0;
    let late = early + found.limits.at_once();
    let crowded = crowded(&history.loose);
    for (loose, crowded) in history.loose.iter().zip(crowded) {
        let phase = found.phase.get(loose.cpu as usize).filter(|_| known);
        let ticked = |(since, phase): (Ns, &Ns)| {
            let tick = loose.at + early - (loose.at + early - phase).rem_euclid(period);
            tick + late >= since
        };
        let ticked = loose.since.zip(phase).map(ticked);
        if loose.user && loose.quiet && ticked.map_or(crowded, |ticked| !ticked) {
            let events = &mut history.tasks[loose.task as usize].events;
            let from = events.partition_point(|a| a.at < loose.at);
            let mut left = events[from..].iter_mut().take_while(|a| a.at == loose.at);
            if let Some(event) = left.find(|a| a.kind == EventKind::Off(Off::Preempted { interrupt: None })) {
                event.kind = EventKind::Off(Off::Yielded);
                history.yields.1 += 1;
            }
        } else if ticked != Some(true) {
            history.uncaused += u64::from(!loose.explained);
        }
    }
}

/// The phase of `times` modulo `period`, when enough of them crowd there.
fn concentrated(times: &[Ns], period: Ns, (part, share): Crowd) -> Option<Ns> {
    let mut phases: Vec<Ns> = times.iter().map(|t| t.rem_euclid(period)).collect();
    let n = phases.len();
    if n == 0 {
        return None;
    }
    phases.sort_unstable();
    let width = period / part;
    let mut best = (0, 0);
    let mut to = 0;
    for from in 0..n {
        to = to.max(from);
        while to + 1 < from + n && phases[(to + 1) % n] + period * ((to + 1) / n) as Ns - phases[from] <= width {
            to += 1;
        }
        if to - from + 1 > best.0 {
            best = (to - from + 1, from);
        }
    }
    let (count, from) = best;
    if (count as f64) < share * n as f64 {
        return None;
    }
    // The earliest of the crowd is least delayed, but a single one may be off: take the tenth.
    let at = from + count / 10;
    Some(phases[at % n])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_among_noise_and_the_slowest_rate_wins() {
        let mut history = History { cpus: vec![0], ..History::default() };
        history.ticks = (0..100).map(|i| (1_234_567 + i * 4_000_000, 0)).collect();
        history.ticks.extend([(77_000, 0), (999_999, 0)]);
        let mut found = Overheads::default();
        find_tick(&history, None, &mut found);
        assert_eq!((found.hz, found.phase[0], found.tick_source), (250, 1_234_567, TickSource::Seen));
    }

    #[test]
    fn no_clock_makes_a_crowd() {
        let loose = |at: Ns, cpu| Loose { at, cpu, task: 0, since: None, user: true, quiet: true, explained: true };
        // Slices of 0.1 ms, the shortest; every 50 us on two CPUs; and eleven within 0.1 ms.
        let slices: Vec<Loose> = (0..50).map(|i| loose(i * SHORTEST_SLICE, 0)).collect();
        let apart: Vec<Loose> = (0..50).map(|i| loose(i * SHORTEST_SLICE / 2, i as i32 % 2)).collect();
        assert!(!crowded(&slices).contains(&true));
        assert!(!crowded(&apart).contains(&true));
        let mut mixed = slices.clone();
        mixed.extend((0..11).map(|i| loose(9_000_000 + i * 9_000, 0)));
        let found = crowded(&mixed);
        assert!(found[50..].iter().all(|f| *f) && !found[..50].contains(&true));
        mixed[55].quiet = false;
        assert!(!crowded(&mixed).contains(&true));
    }

    #[test]
    fn without_evidence_nothing_is_claimed() {
        let at = |i: Ns| 9_000_000 + i * i * 7_919;
        let loose = |i| Loose {
            at: at(i),
            cpu: 0,
            task: 0,
            since: Some(at(i) - 4_000_000),
            user: true,
            quiet: true,
            explained: false,
        };
        let history = History { cpus: vec![0, 1], loose: (0..50).map(loose).collect(), ..History::default() };
        let mut found = Overheads::default();
        find_tick(&history, None, &mut found);
        assert_eq!((found.tick_source, found.phase.len()), (TickSource::Unknown, 2));
    }
}
