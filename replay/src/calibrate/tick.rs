//! When the clock ticks: how often a second, and at which time on each CPU.

use super::Overheads;
use crate::history::History;
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
    let times: Vec<Ns> = history.ticks.iter().map(|t| t.0 - found.tick_lag).collect();
    let rates: Vec<i64> = stated.map_or_else(|| RATES.to_vec(), |hz| vec![hz]);
    for (times, source, share) in [(&times, TickSource::Seen, 0.9), (&history.loose, TickSource::Preemptions, 0.8)] {
        if times.len() < 8 {
            continue;
        }
        for &hz in &rates {
            if let Some(phase) = concentrated(times, 1_000_000_000 / hz, share) {
                found.hz = hz;
                found.tick_source = source;
                found.phase = (0..cpus as i32)
                    .map(|cpu| match source {
                        TickSource::Seen => {
                            let own: Vec<Ns> =
                                history.ticks.iter().filter(|t| t.1 == cpu).map(|t| t.0 - found.tick_lag).collect();
                            concentrated(&own, 1_000_000_000 / hz, share).unwrap_or(phase)
                        }
                        _ => phase,
                    })
                    .collect();
                return;
            }
        }
    }
    found.hz = stated.unwrap_or(250);
    found.tick_source = if stated.is_some() { TickSource::Stated } else { TickSource::Unknown };
    found.phase = vec![0; cpus];
}

/// The phase of `times` modulo `period`, when at least `share` of them are within a hundredth of it.
fn concentrated(times: &[Ns], period: Ns, share: f64) -> Option<Ns> {
    let mut phases: Vec<Ns> = times.iter().map(|t| t.rem_euclid(period)).collect();
    let n = phases.len();
    if n == 0 {
        return None;
    }
    phases.sort_unstable();
    let width = period / 100;
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
    fn without_evidence_nothing_is_claimed() {
        let history =
            History { cpus: vec![0, 1], loose: (0..50).map(|i| i * i * 7_919).collect(), ..History::default() };
        let mut found = Overheads::default();
        find_tick(&history, None, &mut found);
        assert_eq!((found.tick_source, found.phase.len()), (TickSource::Unknown, 2));
    }
}
