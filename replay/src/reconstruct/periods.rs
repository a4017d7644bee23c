//! Periodic timers: tasks that wake on a grid of times, whatever delayed them before.
//!
//! A timer is relative (set for a length from now, `usleep`) or absolute (set for a time, as
//! `clock_nanosleep(TIMER_ABSTIME)`, timerfd and setitimer with an interval do, and programs that
//! compute how long it is until their next deadline). No record says which. With a relative timer
//! the lengths of sleeps are regular, and each delay moves all later wakeups: their distance from a
//! grid walks at random, and its variance after detrending grows as n/15 of that of one step. With
//! an absolute timer the wakeups stay on the grid, at the jitter e of one interrupt; the distance
//! of two wakeups has two of those (the square root of 2 times e), the length of a sleep also what
//! the task did and waited before. So the spread from the grid is compared with both.

use super::build::Builder;
use super::draft::Draft;
use super::sleep::Sleeps;
use super::Note;
use crate::calibrate::{Overheads, ENOUGH};
use crate::history::{By, Slept, TaskHistory};
use crate::program::{Late, Pause, Step};
use crate::task::{Ns, Sleep};

/// Sleeps from which a random walk shows: it is then 1.4 times as wide as one step.
const MANY: i64 = 30;

/// Part of the period that wakeups of a grid spread over at most. Evenly spread ones have half of
/// it.
const FINE: i64 = 10;

/// Quantiles (percent) of the distances between wakeups that may be the period: some are missed, so
/// that it is among the shorter ones.
const SHORTER: [usize; 3] = [10, 25, 50];

/// Bits of a period behind the point.
const BITS: u32 = 20;

/// What the timer sleeps of one task are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Timers {
    /// Of some length each.
    #[default]
    Relative,
    /// The trace does not say which; of some length each, then.
    Unknown(Ns),
    /// Until the next time of a grid.
    Absolute(Grid),
}

/// The times at which a timer expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    from: Ns,
    /// Period, with [`BITS`] bits behind the point.
    period: i64,
}

impl Grid {
    pub(super) fn period(&self) -> Ns {
        (self.period + (1 << (BITS - 1))) >> BITS
    }

    fn at(&self, k: i64) -> Ns {
        self.from + ((i128::from(k) * i128::from(self.period)) >> BITS) as Ns
    }

    /// Number of the last time of the grid that is not later than `at`.
    fn before(&self, at: Ns) -> i64 {
        (i128::from(at - self.from) << BITS).div_euclid(i128::from(self.period)) as i64
    }

    fn nearest(&self, at: Ns) -> i64 {
        self.before(at + self.period() / 2)
    }

    /// When the timer behind a wakeup at `at` expired at the latest. A timer that rides on another
    /// interrupt is early by at most its slack; what lies elsewhere was set for that time.
    fn expiry(&self, at: Ns, slack: Ns, varies: Ns) -> Ns {
        let due = self.at(self.nearest(at));
        if (-slack - varies..=varies).contains(&(at - due)) {
            due
        } else {
            at
        }
    }
}

/// One timer sleep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nap {
    pub from: Ns,
    pub at: Ns,
    /// It ended with an interrupt of its own.
    pub lead: bool,
}

/// The timer sleeps of a task.
pub(super) fn naps(task: &TaskHistory, over: &Overheads) -> Vec<Nap> {
    let nap = |slept: Slept| match slept {
        Slept { from, deep: false, to: at, by: By::Hardirq { lead } } => {
            Some(Nap { from: over.decided(from), at, lead })
        }
        _ => None,
    };
    task.sleeps().filter_map(nap).collect()
}

/// In order.
fn sorted(values: impl Iterator<Item = Ns>) -> Vec<Ns> {
    let mut sorted: Vec<Ns> = values.collect();
    sorted.sort_unstable();
    sorted
}

fn quantile(sorted: &[Ns], percent: usize) -> Ns {
    sorted[(sorted.len() - 1) * percent / 100]
}

/// Distance of the quartiles.
fn spread(values: impl Iterator<Item = Ns>) -> Ns {
    let sorted = sorted(values);
    quantile(&sorted, 75) - quantile(&sorted, 25)
}

fn median(values: impl Iterator<Item = Ns>) -> Option<Ns> {
    let sorted = sorted(values);
    (!sorted.is_empty()).then(|| quantile(&sorted, 50))
}

/// The grid that fits wakeups best if neighbours are about `period` apart, or multiples of that;
/// how far they spread around it, and how far their distances spread around multiples.
fn fit(at: &[Ns], period: Ns) -> Option<(Grid, Ns, Ns)> {
    let number = |period: Ns| -> Vec<i64> {
        let steps = at.windows(2).map(|two| (two[1] - two[0] + period / 2) / period);
        let next = |k: &mut i64, step| {
            *k += step;
            Some(*k)
        };
        std::iter::once(0).chain(steps).scan(0, next).collect()
    };
    let apart = |k: &[i64], by: usize| {
        let pairs = (by..at.len()).filter(|i| k[*i] > k[i - by]);
        let each = pairs.map(|i| ((i128::from(at[i] - at[i - by]) << BITS) / i128::from(k[i] - k[i - by])) as i64);
        median(each).filter(|period| *period >> BITS > 0)
    };
    let near = apart(&number(period), 1)?;
    let k = number(near >> BITS);
    let period = apart(&k, at.len() * 2 / 3)?;
    let mut grid = Grid { from: at[0], period };
    let off = |grid: &Grid, i: usize| at[i] - grid.at(k[i]);
    grid.from += median((0..at.len()).map(|i| off(&grid, i)))?;
    let steps = (1..at.len()).map(|i| off(&grid, i) - off(&grid, i - 1));
    Some((grid, spread((0..at.len()).map(|i| off(&grid, i))), spread(steps)))
}

/// What the timer sleeps of a task are.
pub(super) fn judge(naps: &[Nap], over: &Overheads, sleeps: &Sleeps) -> Timers {
    if naps.len() < ENOUGH {
        return Timers::Relative;
    }
    let at: Vec<Ns> = naps.iter().map(|nap| nap.at).collect();
    let apart = sorted(at.windows(2).map(|two| two[1] - two[0]));
    let fits = SHORTER.iter().map(|q| quantile(&apart, *q)).filter(|ns| *ns > 0).filter_map(|ns| fit(&at, ns));
    let best = fits.min_by_key(|(grid, wide, _)| i128::from(*wide) * (1 << 40) / i128::from(grid.period));
    let Some((mut grid, wide, steps)) = best else { return Timers::Relative };
    let (period, n) = (grid.period(), naps.len() as i64);
    let lengths = spread(naps.iter().map(|nap| nap.at - nap.from));
    let (fine, many) = (over.limits.of("grid_fine", FINE), over.limits.of("grid_many", MANY));
    if wide > period / fine || wide >= 2 * lengths.min(steps).max(1) {
        return Timers::Relative;
    }
    // Ticks make a grid of every sleep that they end.
    let tick = 1_000_000_000 / over.hz.max(1);
    let ticks = naps.iter().filter(|nap| sleeps.ended_by_tick(nap.from, nap.at)).count();
    let from_tick = ((period + tick / 2) % tick - tick / 2).abs();
    let by_ticks = 2 * ticks > naps.len() && from_tick <= period / 1000;
    let clear = wide * fine < lengths || (n >= many && wide <= steps && wide < lengths);
    if by_ticks || !clear {
        return Timers::Unknown(period);
    }
    // Timers may be late, never early: those with an interrupt of their own say when they expire.
    let phase = |lead: bool| -> Vec<Ns> {
        sorted(naps.iter().filter(|nap| nap.lead || !lead).map(|nap| nap.at - grid.at(grid.nearest(nap.at))))
    };
    let (own, all) = (phase(true), phase(false));
    grid.from += if own.len() >= ENOUGH { quantile(&own, 25) } else { quantile(&all, 90) };
    Timers::Absolute(grid)
}

impl Builder<'_> {
    /// The steps for a sleep from `from` that a timer of the grid ended at `at`.
    pub(super) fn periodic(
        &self,
        grid: &Grid,
        (from, at): (Ns, Ns),
        realtime: bool,
        sleep: Sleep,
        note: Note,
        d: &mut Draft,
    ) {
        let slack = self.sleeps.slack;
        let due = grid.expiry(at, slack, self.over.limits.varies());
        // Real-time timers are exact; the slack counts when the task is replayed under another
        // policy.
        let due = if realtime { due } else { due - slack };
        // One that is late catches up: it does not sleep before a time that has passed.
        let ns = (due - d.expiry.replace(due).unwrap_or(from)).max(1);
        d.add(Step::Pause { pause: Pause::Period { ns, slack: slack as u32, late: Late::CatchUp }, sleep }, note);
    }
}
