//! Timer sleeps: which interrupt could have ended them, and how much later than asked for.

use super::estimate::Overheads;
use super::history::{By, History, Life, Off, What};
use crate::task::Ns;

/// Slack of a time-sharing task's timers on Linux, unless the trace says otherwise.
pub(super) const DEFAULT_SLACK: Ns = 50_000;

/// A wakeup this soon after a tick was made by the tick.
const BEHIND_TICK: Ns = 300_000;

/// What the sleeps of all tasks tell.
pub(super) struct Sleeps {
    ticks: Vec<Ns>,
    /// Per life: slack, and the constant length of its sleeps where it has one.
    pub slack: Vec<(Ns, Option<Ns>)>,
}

impl Sleeps {
    pub(super) fn measure(history: &History, over: &Overheads) -> Self {
        let mut ticks: Vec<Ns> = history.ticks.iter().map(|t| t.0).collect();
        ticks.sort_unstable();
        let slack = history.lives.iter().map(|life| measure_one(life, over)).collect();
        Sleeps { ticks, slack }
    }

    /// How far `at` lies behind the last tick, at most [`BEHIND_TICK`].
    pub(super) fn behind_tick(&self, at: Ns) -> Ns {
        let i = self.ticks.partition_point(|t| *t <= at);
        self.ticks[..i].last().map_or(0, |tick| (at - tick).min(BEHIND_TICK))
    }

    /// True when `at` lies just behind a tick that was seen, and the sleep had begun before that tick: it can have ended it.
    pub(super) fn ended_by_tick(&self, from: Ns, at: Ns) -> bool {
        let i = self.ticks.partition_point(|t| *t <= at);
        i > 0 && at - self.ticks[i - 1] <= BEHIND_TICK && from < self.ticks[i - 1]
    }

    /// Latest end and slack of a timer sleep that lasted `ns`. A sleep that ended with an interrupt of its own lasted to its
    /// latest end; one that rode on another interrupt lasted up to `slack` less.
    pub(super) fn expiry(&self, life: &Life, ns: Ns, lead: bool, realtime: bool) -> (Ns, Ns) {
        let (slack, constant) = self.slack.get(life.id as usize).copied().unwrap_or((DEFAULT_SLACK, None));
        if realtime {
            // Real-time timers are exact; the slack counts when the task is replayed under another policy.
            return (ns + slack, slack);
        }
        if lead {
            return (ns, slack);
        }
        match constant {
            Some(full) if (full - ns) >= 0 && full - ns <= slack + 5_000 => (full, slack),
            _ => (ns + slack / 2, slack),
        }
    }
}

/// Slack and constant length from one task's sleeps.
fn measure_one(life: &Life, over: &Overheads) -> (Ns, Option<Ns>) {
    let mut lead = Vec::new();
    let mut rode = Vec::new();
    let mut from: Option<Ns> = None;
    for act in &life.acts {
        match act.what {
            What::Off(Off::Slept { deep: false }) => from = Some(act.at - over.record.ns),
            What::Woken { by: By::Hardirq { lead: own }, .. } => {
                if let Some(from) = from.take() {
                    if own { &mut lead } else { &mut rode }.push(act.at - from);
                }
            }
            What::Woken { .. } => from = None,
            _ => {}
        }
    }
    if lead.len() < 5 {
        return (DEFAULT_SLACK, None);
    }
    lead.sort_unstable();
    let n = lead.len();
    let (middle, spread) = (lead[n / 2], lead[n * 9 / 10] - lead[n / 10]);
    if spread > 5_000 {
        return (DEFAULT_SLACK, None);
    }
    // Sleeps of constant length: those that rode on another interrupt are shorter by at most the slack.
    let most = rode.iter().map(|r| middle - r).filter(|d| *d > 0).max().unwrap_or(0);
    (DEFAULT_SLACK.max(if most < 10 * DEFAULT_SLACK { most } else { 0 }), Some(middle))
}
