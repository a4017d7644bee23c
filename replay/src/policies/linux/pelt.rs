//! Per-entity load tracking: averages over time in which what lies 32 periods back counts half.
//!
//! A period is 1024 us of 1024 ns each. Source: Linux 6.1 to 7.3 kernel/sched/pelt.c and pelt.h
//! (the same in all).

use crate::task::Ns;

/// What a signal that was always 1 adds up to: 1024 / (1 - 2^(-1/32)), in the kernel's rounding.
const MAX: u64 = 47_742;
const PERIOD: u64 = 1024;
/// Time is counted in units of 1024 ns.
const UNIT_BITS: u32 = 10;
/// Periods in which a signal halves.
const HALF_LIFE: u64 = 32;

/// 2^(-n/32) in units of 2^-32, for n below 32, in the upper half of a word: what is multiplied with
/// it is then the upper word of the product, which takes no shift of two words.
static DECAY: [u64; 32] = decay_table();

const fn square_root(x: u128) -> u128 {
    let (mut low, mut high) = (0u128, 1u128 << 63);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if middle * middle <= x {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

const fn decay_table() -> [u64; 32] {
    // 2^(-1/2), 2^(-1/4), ... 2^(-1/32) in units of 2^-62, each the root of the one before.
    let mut roots = [0u128; 5];
    let mut value: u128 = 1 << 61;
    let mut i = 0;
    while i < 5 {
        value = square_root(value << 62);
        roots[i] = value;
        i += 1;
    }
    let mut table = [0u64; 32];
    let mut n = 0;
    while n < 32 {
        let mut product: u128 = 1 << 62;
        let mut bit = 0;
        while bit < 5 {
            if n >> bit & 1 == 1 {
                product = (product * roots[4 - bit]) >> 62;
            }
            bit += 1;
        }
        let scaled = product >> 30;
        table[n] = (if scaled > u32::MAX as u128 { u32::MAX as u64 } else { scaled as u64 }) << 32;
        n += 1;
    }
    table
}

/// `sum / divider`, for a divider of 32 bits: sums are mostly short, too, and short divisions take
/// half the time.
#[inline]
fn quotient(sum: u64, divider: u64) -> u64 {
    match u32::try_from(sum) {
        // Many are never counted: a queue's own running time, a CPU's load.
        Ok(0) => 0,
        Ok(sum) => u64::from(sum / divider as u32),
        Err(_) => sum / divider,
    }
}

/// The averages of a task, a group on one CPU, or a run queue.
///
/// They follow from the sums by divisions, which are made when somebody asks: most are brought up
/// to date many times before. What every update changes stands first.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Pelt {
    last: Ns,
    load_sum: u64,
    runnable_sum: u64,
    util_sum: u64,
    /// The weight by which the load follows from its sum, where the averages are due.
    weight: u64,
    into_period: u32,
    due: bool,
    /// The averages, where they are not due.
    averages: Averages,
}

/// What the sums of [`Pelt`] come to.
#[derive(Clone, Copy, Debug, Default)]
struct Averages {
    load: u64,
    runnable: u64,
    util: u64,
}

/// What was so since the last update: load (0 or 1 of an entity, the weight of a queue), runnable
/// tasks, running or not.
#[derive(Clone, Copy, Debug)]
pub struct Since {
    pub load: u64,
    pub runnable: u64,
    pub running: bool,
}

/// From one update to the next.
#[derive(Clone, Copy, Debug)]
struct Step {
    last: Ns,
    into_period: u64,
    /// What was before decays over the ends of periods: halved so often, and the rest as in [`DECAY`].
    passes: bool,
    halved: u32,
    rest: u64,
    /// What counts of the time since then.
    share: u64,
}

impl Step {
    #[inline]
    fn to(now: Ns, last: Ns, into_period: u32) -> Self {
        let into_period = u64::from(into_period);
        let delta = (now - last) as u64 >> UNIT_BITS;
        let last = last + (delta << UNIT_BITS) as Ns;
        let into = into_period + delta;
        let periods = into / PERIOD;
        let mut step = Step { last, into_period: into % PERIOD, passes: periods > 0, halved: 0, rest: 0, share: delta };
        if step.passes {
            let gone = periods > 63 * HALF_LIFE;
            step.halved = if gone { 0 } else { (periods / HALF_LIFE) as u32 };
            step.rest = if gone { 0 } else { DECAY[(periods % HALF_LIFE) as usize] };
            let whole = MAX - step.decayed(MAX) - PERIOD;
            step.share = step.decayed(PERIOD - into_period) + whole + step.into_period;
        }
        step
    }

    /// `value` as it counts now.
    #[inline(always)]
    fn decayed(&self, value: u64) -> u64 {
        ((u128::from(value >> self.halved) * u128::from(self.rest)) >> 64) as u64
    }
}

impl Pelt {
    /// A new task counts as if it had always been runnable, so that it is not taken for light.
    pub fn forked(now: Ns, weight: u64) -> Self {
        let averages = Averages { load: weight, ..Averages::default() };
        Pelt { last: now, load_sum: MAX - PERIOD, averages, ..Pelt::default() }
    }

    /// Its use of a CPU is not known yet, and is taken to be `util`.
    pub fn expect(&mut self, util: u64) {
        self.settle();
        (self.averages.util, self.averages.runnable) = (util, util);
        self.util_sum = util * self.divider();
        self.runnable_sum = self.util_sum;
    }

    /// Weight times the share of time in which it was runnable.
    pub fn load(&self) -> u64 {
        if self.due {
            quotient(self.weight * self.load_sum, self.divider())
        } else {
            self.averages.load
        }
    }

    /// 1024 times the number of runnable tasks.
    pub fn runnable(&self) -> u64 {
        if self.due {
            quotient(self.runnable_sum, self.divider())
        } else {
            self.averages.runnable
        }
    }

    /// 1024 times the share of time in which it ran.
    pub fn util(&self) -> u64 {
        if self.due {
            quotient(self.util_sum, self.divider())
        } else {
            self.averages.util
        }
    }

    /// Begin of the period up to which it is known, in units of time.
    pub fn period(&self) -> i64 {
        (self.last >> UNIT_BITS) - i64::from(self.into_period)
    }

    fn divider(&self) -> u64 {
        MAX - PERIOD + u64::from(self.into_period)
    }

    fn averages(&self) -> Averages {
        Averages { load: self.load(), runnable: self.runnable(), util: self.util() }
    }

    /// Makes the divisions that are due: for who asks for averages of many, again and again.
    #[inline]
    pub fn settle(&mut self) {
        if self.due {
            self.averages = self.averages();
            self.due = false;
        }
    }

    /// True when [`Self::update`] would change anything.
    #[inline]
    pub fn is_behind(&self, now: Ns) -> bool {
        now - self.last >= 1 << UNIT_BITS
    }

    /// Adds the time up to `now`, if any; `weight` is that of an entity, 1 for a queue.
    #[inline]
    pub fn update(&mut self, now: Ns, since: Since, weight: u64) {
        if self.is_behind(now) {
            self.advance(now, since, weight);
        }
    }

    /// The same where it is known to be behind.
    #[inline]
    pub fn advance(&mut self, now: Ns, since: Since, weight: u64) {
        self.go(Step::to(now, self.last, self.into_period), since, weight);
    }

    /// The time up to `now`, where no period ends meanwhile.
    #[inline(always)]
    fn within_period(&self, now: Ns) -> Option<u64> {
        let units = (now - self.last) as u64 >> UNIT_BITS;
        (u64::from(self.into_period) + units < PERIOD).then_some(units)
    }

    /// Adds `units` of time, behind which the period goes on.
    #[inline(always)]
    fn add(&mut self, units: u64, since: Since, weight: u64) {
        self.last += (units << UNIT_BITS) as Ns;
        self.into_period += units as u32;
        self.count(units, since, weight);
    }

    /// [`Self::advance`] where no period ends meanwhile; false where one does.
    #[inline(always)]
    pub fn adds(&mut self, now: Ns, since: Since, weight: u64) -> bool {
        let Some(units) = self.within_period(now) else { return false };
        self.add(units, since, weight);
        true
    }

    /// [`Self::update_both`] where both stand alike and no period ends meanwhile; else false.
    #[inline(always)]
    pub fn adds_both(&mut self, now: Ns, since: Since, queue: &mut Self, of_queue: Since) -> bool {
        let alike = (self.last, self.into_period) == (queue.last, queue.into_period);
        let Some(units) = self.within_period(now).filter(|_| alike && self.is_behind(now)) else { return false };
        self.add(units, since, 1);
        queue.add(units, of_queue, 1);
        true
    }

    /// The same for a CPU and its queue, which are mostly brought up to date together.
    #[inline]
    pub fn update_both(&mut self, since: Since, queue: &mut Self, of_queue: Since, now: Ns) {
        if (self.last, self.into_period) == (queue.last, queue.into_period) {
            if !self.is_behind(now) {
                return;
            }
            let step = Step::to(now, self.last, self.into_period);
            self.go(step, since, 1);
            queue.go(step, of_queue, 1);
        } else {
            self.update(now, since, 1);
            queue.update(now, of_queue, 1);
        }
    }

    #[inline]
    fn go(&mut self, step: Step, since: Since, weight: u64) {
        self.last = step.last;
        self.into_period = step.into_period as u32;
        if step.passes {
            self.load_sum = step.decayed(self.load_sum);
            self.runnable_sum = step.decayed(self.runnable_sum);
            self.util_sum = step.decayed(self.util_sum);
        }
        self.count(step.share, since, weight);
    }

    #[inline(always)]
    fn count(&mut self, share: u64, since: Since, weight: u64) {
        self.load_sum += since.load * share;
        self.runnable_sum += (since.runnable * share) << 10;
        self.util_sum += u64::from(since.running) * (share << 10);
        self.weight = weight;
        self.due = true;
    }

    /// Another weight: the load of an entity follows at once.
    pub fn reweigh(&mut self, weight: u64) {
        self.settle();
        self.averages.load = weight * self.load_sum / self.divider();
    }

    /// Counts an entity of `weight` in the averages of this queue.
    pub fn attach(&mut self, e: &Pelt, weight: u64) {
        self.settle();
        let theirs = e.averages();
        self.averages.load += theirs.load;
        self.load_sum += weight * e.load_sum;
        self.averages.runnable += theirs.runnable;
        self.runnable_sum += e.runnable_sum;
        self.averages.util += theirs.util;
        self.util_sum += e.util_sum;
    }

    /// Takes it out again.
    pub fn detach(&mut self, e: &Pelt, weight: u64) {
        self.settle();
        let (ours, theirs) = (&mut self.averages, e.averages());
        ours.load = ours.load.saturating_sub(theirs.load);
        self.load_sum = self.load_sum.saturating_sub(weight * e.load_sum);
        ours.runnable = ours.runnable.saturating_sub(theirs.runnable);
        self.runnable_sum = self.runnable_sum.saturating_sub(e.runnable_sum);
        ours.util = ours.util.saturating_sub(theirs.util);
        self.util_sum = self.util_sum.saturating_sub(e.util_sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_halves_in_32_steps() {
        // The first entries of the kernel's own table.
        let entry = |n: usize| DECAY[n] >> 32;
        assert_eq!(entry(0), 0xffff_ffff);
        assert!(entry(1).abs_diff(0xfa83_b2da) <= 2 && entry(31).abs_diff(0x82cd_8698) <= 2);
        assert!(DECAY.iter().all(|d| d & 0xffff_ffff == 0));
    }

    #[test]
    fn what_runs_half_the_time_has_half_the_utilisation() {
        let mut e = Pelt::default();
        for ms in 1..2_000 {
            let on = ms % 2 == 0;
            e.update(ms * 1_000_000, Since { load: u64::from(on), runnable: u64::from(on), running: on }, 2048);
        }
        assert!(e.util().abs_diff(512) < 20 && e.load().abs_diff(1024) < 40, "{e:?}");
        e.update(1_999_000_000 + 33_554_432, Since { load: 0, runnable: 0, running: false }, 2048);
        assert!(e.util().abs_diff(256) < 12, "half as much after 32 periods: {e:?}");
    }

    #[test]
    fn time_within_a_period_adds_up_as_steps_do() {
        let since = Since { load: 3, runnable: 2, running: true };
        let (mut quick, mut steps, mut now) = (Pelt::forked(0, 5), Pelt::forked(0, 5), 0);
        for i in 0..5_000 {
            now += i * 7 % 3_000 * 1_024 + 1_024;
            if !quick.adds(now, since, 5) {
                quick.advance(now, since, 5);
            }
            steps.go(Step::to(now, steps.last, steps.into_period), since, 5);
            assert_eq!(format!("{quick:?}"), format!("{steps:?}"));
        }
    }
}
