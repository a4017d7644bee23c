//! Timer sleeps: which interrupt could have ended them, and how much later than asked for.

use super::periods::{self, Nap, Timers};
use super::Periodic;
use crate::calibrate::Overheads;
use crate::history::{History, TaskHistory};
use crate::task::{Ns, TaskId};

/// Slack of a time-sharing task's timers on Linux, unless the trace says otherwise.
pub(super) const DEFAULT_SLACK: Ns = 50_000;

/// Sleeps with interrupts of their own that say a length by themselves.
const FEW: usize = 5;

/// From one time to the next, a switch varies by no more.
const NOISE: Ns = 500;

/// What the sleeps of all tasks say.
pub(super) struct Sleeps {
    ticks: Vec<Ns>,
    /// A wakeup this soon after a tick was made by the tick.
    behind_tick: Ns,
    /// Sleeps of constant length vary by no more.
    varies: Ns,
    /// Sleeps that were late count with their constant length.
    in_time: bool,
    /// Per task: slack, and the constant length of its sleeps where it has one.
    pub slack: Vec<(Ns, Option<Ns>)>,
    /// Per task: whether its timers are set for a length or for a time.
    pub timers: Vec<Timers>,
}

impl Sleeps {
    pub(super) fn measure(history: &History, over: &Overheads, least_slack: Ns) -> Self {
        let mut ticks: Vec<Ns> = history.ticks.iter().map(|t| t.0).collect();
        ticks.sort_unstable();
        let naps: Vec<Vec<Nap>> = history.tasks.iter().map(|task| periods::naps(task, over)).collect();
        let constant = |own: &Vec<Nap>| Lengths::of(own).constant(least_slack, over.limits.varies());
        let slack: Vec<(Ns, Option<Ns>)> = naps.iter().map(constant).collect();
        let (varies, in_time) = (over.limits.varies(), over.limits.holds("in_time"));
        let behind_tick = over.limits.behind_tick();
        let mut own = Sleeps { ticks, behind_tick, varies, in_time, slack, timers: Vec::new() };
        own.timers = naps.iter().map(|of_task| periods::judge(of_task, over, &own)).collect();
        own
    }

    /// Tasks with a period.
    pub(super) fn periodic(&self) -> Vec<Periodic> {
        let of = |(task, timers): (usize, &Timers)| {
            let (period, late) = match timers {
                Timers::Relative => return None,
                Timers::Unknown(period) => (*period, None),
                Timers::Absolute(grid) => (grid.period(), Some((grid.late, grid.shown))),
            };
            Some(Periodic { task: TaskId(task as u32), period, late })
        };
        self.timers.iter().enumerate().filter_map(of).collect()
    }

    /// How far `at` lies behind the last tick, at most as far as its softirq may lie.
    pub(super) fn behind_tick(&self, at: Ns) -> Ns {
        let i = self.ticks.partition_point(|t| *t <= at);
        self.ticks[..i].last().map_or(0, |tick| (at - tick).min(self.behind_tick))
    }

    /// True when `at` lies just behind a tick that was seen, and the sleep had begun before that
    /// tick: it can have ended it.
    pub(super) fn ended_by_tick(&self, from: Ns, at: Ns) -> bool {
        let i = self.ticks.partition_point(|t| *t <= at);
        i > 0 && at - self.ticks[i - 1] <= self.behind_tick && from < self.ticks[i - 1]
    }

    fn in_time(&self, ns: Ns, constant: Option<Ns>) -> Ns {
        in_time(ns, constant.filter(|_| self.in_time), self.varies)
    }

    /// Latest end and slack of a timer sleep that lasted `ns`. A sleep that ended with an interrupt
    /// of its own lasted to its latest end; one that rode on another interrupt lasted up to `slack`
    /// less.
    pub(super) fn expiry(&self, task: &TaskHistory, ns: Ns, lead: bool, realtime: bool) -> (Ns, Ns) {
        let (slack, constant) = self.slack.get(task.id as usize).copied().unwrap_or((0, None));
        if realtime {
            // Real-time timers are exact; the slack counts when the task is replayed under another policy.
            return (self.in_time(ns, constant) + slack, slack);
        }
        if lead {
            return (self.in_time(ns, constant), slack);
        }
        match constant {
            // It may also have been late, behind the work of the interrupt that it shared.
            Some(full) if (full - ns).abs() <= slack + self.varies => (full, slack),
            _ => (ns + slack / 2, slack),
        }
    }
}

/// A sleep of `ns` without its delay: a timer fires late when interrupts are off, which the replay
/// finds by itself. What is longer than the `constant` length by more than the noise of a switch,
/// and not by so much that it is another sleep, was late.
fn in_time(ns: Ns, constant: Option<Ns>, varies: Ns) -> Ns {
    constant.filter(|full| (full + NOISE..=full + varies).contains(&ns)).unwrap_or(ns)
}

/// Lengths of one task's timer sleeps, sorted: those that ended with an interrupt of their own, and
/// those that rode on another.
struct Lengths {
    lead: Vec<Ns>,
    rode: Vec<Ns>,
}

impl Lengths {
    fn of(naps: &[Nap]) -> Self {
        let of = |lead: bool| {
            let mut own: Vec<Ns> = naps.iter().filter(|nap| nap.lead == lead).map(|nap| nap.at - nap.from).collect();
            own.sort_unstable();
            own
        };
        Lengths { lead: of(true), rode: of(false) }
    }

    /// Slack, which is at least `least`, and the constant length where there is one.
    fn constant(&self, least: Ns, varies: Ns) -> (Ns, Option<Ns>) {
        let n = self.lead.len();
        if n < FEW || self.lead[n * 9 / 10] - self.lead[n / 10] > varies {
            return (least, None);
        }
        // Timers may be late, never early.
        let middle = self.lead[n / 4];
        // Sleeps of constant length: those that rode on another interrupt are shorter by at most the slack.
        let most = self.rode.iter().map(|r| middle - r).filter(|d| *d > 0).max().unwrap_or(0);
        (least.max(if most < 10 * DEFAULT_SLACK { most } else { 0 }), Some(middle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_that_fired_late_was_not_set_for_longer() {
        let full = Some(1_000_000);
        let late = [999_000, 1_000_400, 1_000_600, 1_005_000, 1_005_001].map(|ns| in_time(ns, full, 5_000));
        assert_eq!(late, [999_000, 1_000_400, 1_000_000, 1_000_000, 1_005_001]);
        assert_eq!(in_time(1_000_600, None, 5_000), 1_000_600);
    }

    #[test]
    fn sleeps_that_end_with_their_own_interrupt_tell_the_length_and_others_the_slack() {
        let rider = Lengths { lead: vec![], rode: vec![1_020_000, 1_021_000, 1_021_000, 1_021_000, 1_022_000] };
        assert_eq!(rider.constant(DEFAULT_SLACK, 5_000), (DEFAULT_SLACK, None));
        let leader = Lengths { lead: vec![1_051_000; 6], rode: vec![1_030_000] };
        assert_eq!(leader.constant(DEFAULT_SLACK, 5_000), (DEFAULT_SLACK, Some(1_051_000)));
        assert_eq!(leader.constant(0, 5_000), (21_000, Some(1_051_000)));
        assert_eq!(rider.constant(0, 5_000), (0, None));
    }
}
