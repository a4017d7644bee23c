//! Timer sleeps: which interrupt could have ended them, and how much later than asked for.

use super::periods::{self, Nap, Timers};
use super::Periodic;
use crate::calibrate::{Limits, Overheads};
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
    limits: Limits,
    /// Slack of timers.
    pub slack: Ns,
    /// Per task: the constant length of its sleeps, where it has one.
    pub constant: Vec<Option<Ns>>,
    /// Per task: whether its timers are set for a length or for a time.
    pub timers: Vec<Timers>,
}

impl Sleeps {
    pub(super) fn measure(history: &History, over: &Overheads, slack: Ns) -> Self {
        let mut ticks: Vec<Ns> = history.ticks.iter().map(|t| t.0).collect();
        ticks.sort_unstable();
        let naps: Vec<Vec<Nap>> = history.tasks.iter().map(|task| periods::naps(task, over)).collect();
        let constant = naps.iter().map(|own| constant(own, over.limits.varies())).collect();
        let mut own = Sleeps { ticks, limits: over.limits, slack, constant, timers: Vec::new() };
        own.timers = naps.iter().map(|of_task| periods::judge(of_task, over, &own)).collect();
        own
    }

    /// Tasks with a period.
    pub(super) fn periodic(&self) -> Vec<Periodic> {
        let of = |(task, timers): (usize, &Timers)| {
            let (period, absolute) = match timers {
                Timers::Relative => return None,
                Timers::Unknown(period) => (*period, false),
                Timers::Absolute(grid) => (grid.period(), true),
            };
            Some(Periodic { task: TaskId(task as u32), period, absolute })
        };
        self.timers.iter().enumerate().filter_map(of).collect()
    }

    /// How far `at` lies behind the last tick, at most as far as its softirq may lie.
    pub(super) fn behind_tick(&self, at: Ns) -> Ns {
        let i = self.ticks.partition_point(|t| *t <= at);
        self.ticks[..i].last().map_or(0, |tick| (at - tick).min(self.limits.behind_tick()))
    }

    /// True when `at` lies just behind a tick that was seen, and the sleep had begun before that
    /// tick: it can have ended it.
    pub(super) fn ended_by_tick(&self, from: Ns, at: Ns) -> bool {
        let i = self.ticks.partition_point(|t| *t <= at);
        i > 0 && at - self.ticks[i - 1] <= self.limits.behind_tick() && from < self.ticks[i - 1]
    }

    /// Latest end of a timer sleep that lasted `ns`. A sleep that ended with an interrupt of its own
    /// lasted to its latest end; one that rode on another interrupt lasted up to the slack less.
    pub(super) fn expiry(&self, task: &TaskHistory, ns: Ns, lead: bool, realtime: bool) -> Ns {
        let (constant, varies) = (self.constant[task.id as usize], self.limits.varies());
        let on_time = in_time(ns, constant.filter(|_| self.limits.holds("in_time")), varies);
        match constant {
            // Real-time timers are exact; the slack counts when the task is replayed under another policy.
            _ if realtime => on_time + self.slack,
            _ if lead => on_time,
            // It may also have been late, behind the work of the interrupt that it shared.
            Some(full) if (full - ns).abs() <= self.slack + varies => full,
            _ => ns + self.slack / 2,
        }
    }
}

/// A sleep of `ns` without its delay: a timer fires late when interrupts are off, which the replay
/// finds by itself. What is longer than the `constant` length by more than the noise of a switch,
/// and not by so much that it is another sleep, was late.
fn in_time(ns: Ns, constant: Option<Ns>, varies: Ns) -> Ns {
    constant.filter(|full| (full + NOISE..=full + varies).contains(&ns)).unwrap_or(ns)
}

/// The constant length of the timer sleeps of a task, where it has one: by those that ended with an
/// interrupt of their own, which vary by no more than `varies`.
fn constant(naps: &[Nap], varies: Ns) -> Option<Ns> {
    let mut lead: Vec<Ns> = naps.iter().filter(|nap| nap.lead).map(|nap| nap.at - nap.from).collect();
    lead.sort_unstable();
    let n = lead.len();
    // Timers may be late, never early.
    (n >= FEW && lead[n * 9 / 10] - lead[n / 10] <= varies).then(|| lead[n / 4])
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
    fn sleeps_that_end_with_their_own_interrupt_tell_the_length() {
        let naps = |lead| [Nap { from: 0, at: 1_051_000, lead }; 6];
        assert_eq!(constant(&naps(true), 5_000), Some(1_051_000));
        assert_eq!(constant(&naps(false), 5_000), None);
        assert_eq!(constant(&naps(true)[..4], 5_000), None);
    }
}
