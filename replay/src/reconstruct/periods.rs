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
use crate::history::{By, EventKind, Off, TaskHistory};
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
    /// What a task does that is late.
    pub late: Late,
    /// The trace shows that.
    pub shown: bool,
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
    /// When it first ran behind the timer wakeup before, and its CPU time since.
    ran: Ns,
    worked: Ns,
}

/// The timer sleeps of a task.
pub(super) fn naps(task: &TaskHistory, over: &Overheads) -> Vec<Nap> {
    let (mut found, mut from, mut on, mut ran, mut worked) = (Vec::new(), None, None, None, 0);
    for event in &task.events {
        match event.kind {
            EventKind::On { .. } => {
                on = Some(event.at);
                ran = ran.or(on);
            }
            EventKind::Off(off) => {
                worked += on.take().map_or(0, |on| event.at - on);
                from = matches!(off, Off::Slept { deep: false }).then(|| over.decided(event.at));
            }
            EventKind::Woken { by, .. } => {
                if let (Some(from), By::Hardirq { lead }) = (from.take(), by) {
                    let ran = ran.take().unwrap_or(from);
                    found.push(Nap { from, at: event.at, lead, ran, worked: std::mem::take(&mut worked) });
                }
            }
            _ => {}
        }
    }
    found
}

fn quantile(sorted: &[Ns], percent: usize) -> Ns {
    sorted[(sorted.len() - 1) * percent / 100]
}

/// Distance of the quartiles.
fn spread(values: impl Iterator<Item = Ns>) -> Ns {
    let mut sorted: Vec<Ns> = values.collect();
    sorted.sort_unstable();
    quantile(&sorted, 75) - quantile(&sorted, 25)
}

fn median(values: impl Iterator<Item = Ns>) -> Option<Ns> {
    let mut sorted: Vec<Ns> = values.collect();
    sorted.sort_unstable();
    (!sorted.is_empty()).then(|| quantile(&sorted, 50))
}

/// The grid that fits wakeups best if neighbours are about `period` apart, or multiples of that;
/// how far they spread around it, and how far their distances spread around multiples.
fn fit(at: &[Ns], period: Ns) -> Option<(Grid, Ns, Ns)> {
    let number = |period: Ns| -> Vec<i64> {
        let steps = at.windows(2).map(|two| (two[1] - two[0] + period / 2) / period);
        std::iter::once(0)
            .chain(steps.scan(0, |k, step| {
                Some({
                    *k += step;
                    *k
                })
            }))
            .collect()
    };
    let apart = |k: &[i64], by: usize| {
        let pairs = (by..at.len()).filter(|i| k[*i] > k[i - by]);
        let each = pairs.map(|i| ((i128::from(at[i] - at[i - by]) << BITS) / i128::from(k[i] - k[i - by])) as i64);
        median(each).filter(|period| *period >> BITS > 0)
    };
    let near = apart(&number(period), 1)?;
    let k = number(near >> BITS);
    let period = apart(&k, at.len() * 2 / 3)?;
    let mut grid = Grid { from: at[0], period, late: Late::CatchUp, shown: false };
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
    let mut apart: Vec<Ns> = at.windows(2).map(|two| two[1] - two[0]).collect();
    apart.sort_unstable();
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
        let off = naps.iter().filter(|nap| nap.lead || !lead).map(|nap| nap.at - grid.at(grid.nearest(nap.at)));
        let mut off: Vec<Ns> = off.collect();
        off.sort_unstable();
        off
    };
    let (own, all) = (phase(true), phase(false));
    grid.from += if own.len() >= ENOUGH { quantile(&own, 25) } else { quantile(&all, 90) };
    (grid.late, grid.shown) = when_late(&grid, naps);
    Timers::Absolute(grid)
}

/// What a task does that missed times of its grid, told by how much it worked until it slept again,
/// and whether that is told: as much as for all of them, for those that came after it first ran
/// once more, or for one.
fn when_late(grid: &Grid, naps: &[Nap]) -> (Late, bool) {
    let (mut usual, mut late) = ((0i128, 0i128), [0i128; 4]);
    for two in naps.windows(2) {
        let missed = i128::from((grid.before(two[1].from) - grid.nearest(two[0].at)).max(0));
        if missed == 0 {
            usual = (usual.0 + i128::from(two[1].worked), usual.1 + 1);
        } else {
            let later = i128::from((grid.before(two[1].from) - grid.before(two[1].ran)).clamp(0, 1));
            let each = [missed + 1, 1 + later, 1, i128::from(two[1].worked)];
            late.iter_mut().zip(each).for_each(|(sum, one)| *sum += one);
        }
    }
    let [all, merged, none, worked] = late;
    if usual.1 < ENOUGH as i128 || usual.0 == 0 || none == 0 || all - none < ENOUGH as i128 {
        return (Late::CatchUp, false);
    }
    let far = |bursts: i128| (bursts * usual.0 - worked * usual.1).abs();
    if far(all) <= far(merged).min(far(none)) {
        // One that was missed after the task had begun is made up for in both ways.
        (Late::CatchUp, all > merged)
    } else if far(none) < far(merged) {
        (Late::Skip, true)
    } else {
        // Without any that came later, nothing tells them apart; a timerfd is the more usual.
        (Late::Merge, merged > none)
    }
}

impl Builder<'_> {
    /// The steps for a sleep from `from` that a timer of the grid ended at `at`.
    pub(super) fn periodic(
        &self,
        grid: &Grid,
        slept: (Ns, Ns),
        realtime: bool,
        timer: (Sleep, Ns),
        note: Note,
        d: &mut Draft,
    ) {
        let ((from, at), (sleep, slack)) = (slept, timer);
        let due = grid.expiry(at, slack, self.over.limits.varies());
        // Real-time timers are exact; the slack counts when the task is replayed under another
        // policy.
        let due = if realtime { due } else { due - slack };
        let period = grid.period();
        let slack = slack.clamp(0, 4_000_000_000) as u32;
        let step = |ns: Ns, late| Step::Pause { pause: Pause::Period { ns: ns.max(1), slack, late }, sleep };
        let resumed = d.resumed.take().unwrap_or(from);
        let Some(last) = d.expiry.replace(due) else {
            d.add(step(due - from, grid.late), note);
            d.round = d.steps.len();
            return;
        };
        let missed = ((from - last) / period).clamp(0, (due - last) / period);
        let before = ((resumed - last) / period).clamp(0, missed);
        let parts = match grid.late {
            Late::CatchUp => missed + 1,
            Late::Merge => 1 + (missed - before).min(1),
            Late::Skip => 1,
        };
        let whole = d.split(parts as usize, step(period, grid.late));
        let last = match grid.late {
            Late::CatchUp if whole => step(due - last - (parts - 1) * period, Late::CatchUp),
            Late::CatchUp => step(due - last, Late::CatchUp),
            Late::Merge if whole => step(due - last - missed * period, Late::Merge),
            Late::Merge | Late::Skip => step(due - last - missed * period, Late::Skip),
        };
        d.add(last, note);
        d.round = d.steps.len();
    }
}

impl Draft {
    /// Makes so many parts of the work since the last periodic sleep, with `between` between them:
    /// a task that is late goes on at once, and its rounds show as one. False where more than work
    /// lies there.
    fn split(&mut self, parts: usize, between: Step) -> bool {
        let body = &self.steps[self.round..];
        let ns = |step: &Step| match *step {
            Step::Run { ns } => Some((0, ns)),
            Step::RunKernel { ns } => Some((ns, 0)),
            _ => None,
        };
        let Some(works) = body.iter().map(ns).collect::<Option<Vec<(Ns, Ns)>>>() else { return parts == 1 };
        let (kernel, own) = works.iter().fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1));
        if parts == 1 || !self.cuts.is_empty() || kernel + own < parts as Ns {
            return parts == 1;
        }
        let note = self.notes[self.round];
        self.steps.truncate(self.round);
        self.notes.truncate(self.round);
        let share = |all: Ns, i: usize| {
            let upto = |i: usize| (i128::from(all) * i as i128 / parts as i128) as Ns;
            upto(i + 1) - upto(i)
        };
        for i in 0..parts {
            if i > 0 {
                self.add(between, note);
            }
            let (kernel, own) = (share(kernel, i), share(own, i));
            if kernel > 0 {
                self.add(Step::RunKernel { ns: kernel }, note);
            }
            if own > 0 {
                self.add(Step::Run { ns: own }, note);
            }
        }
        true
    }
}
