//! How far apart records of one cause may lie.
//!
//! What one interrupt or one system call does lies as far apart as the machine is slow, so limits
//! are multiples of one cost: from a wakeup in an interrupt to the record of the switch that it
//! causes. It is measured in the trace; where it is far from what was assumed, the trace is read
//! again with the measured one.

use std::ops::Add;

use super::{Overheads, ENOUGH};
use crate::task::Ns;

/// Limits of one trace, and the other constants of a reading, which are listed in [`CONSTANTS`].
/// `docs/constants.md` says how far a result moves when a constant is doubled or a rule left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From a wakeup in an interrupt to the record of the switch that it causes, ns.
    pub unit: Ns,
    /// The constant that is doubled, or the rule that is left out, by its name.
    varied: Option<&'static str>,
}

/// Constants by name, and rules, as [`Limits::varied`] takes them: what they are from.
pub const CONSTANTS: [(&str, &str); 18] = [
    ("unit", "20 us until measured: an emulated guest; 2 to 5 us on a real machine; measured in the trace"),
    ("same_irq", "3 units: two timers that one interrupt handles lie one wakeup apart, half a unit"),
    ("at_once", "10 units: a switch that waits for longer waits for something else"),
    ("one_call", "1.5 units: the end of a write is one wakeup behind its start"),
    ("behind_tick", "15 units: the softirq of a tick handles some ten timers"),
    ("varies", "5 us: jitter of hrtimers without load"),
    (
        "cache_cold_share",
        "5 % of a wakeup in an interrupt, where no sample says it: 1 to 15 % in guests, 24 to 72 % on a real machine",
    ),
    ("cache_cold", "rule: an interrupt 0.9 ms or more after a switch is slower, as measured"),
    ("in_time", "rule: a sleep longer than the constant one by less than `varies` was late"),
    ("grid_fine", "a tenth of the period at most is how far timer wakeups spread around a grid: by chance it is half"),
    ("grid_many", "30 sleeps: the random walk of relative ones is then 1.4 times as wide as one step"),
    ("speed_alike", "standard deviation of a quarter between copies of one program on one CPU: judgement"),
    ("speed_costs", "10 switches' costs make a burst: less than a tenth of it is costs"),
    ("speed_worth", "10 % between two CPUs are a difference: the error that predictions are judged by"),
    ("pool_least", "a quarter of the mean is the least that a request takes: judgement"),
    (
        "pool_gap",
        "a factor of 2 between what a member takes to find nothing and a request: judgement; 3 to 15 in the lab",
    ),
    ("pool_alike", "a factor of 10 between members of a pool: judgement; pools of the lab reach 4.5"),
    ("unexplained", "0.2 % of messages may stay unexplained: judgement; a replay waits for each of them"),
];

impl Default for Limits {
    /// The unit is that of a slow machine, so that no cause is missed at the first reading.
    fn default() -> Self {
        Limits { unit: 20_000, varied: None }
    }
}

impl Limits {
    /// The default with one constant doubled, or one rule left out; none where nothing is called so.
    pub fn varied(name: &str) -> Option<Self> {
        let varied = CONSTANTS.iter().map(|c| c.0).find(|known| *known == name)?;
        let unit = Limits { varied: Some(varied), ..Limits::default() }.of("unit", Limits::default().unit);
        Some(Limits { unit, varied: Some(varied) })
    }

    /// The constant `name`, which is `value` unless it is the one that is doubled.
    pub(crate) fn of<T: Copy + Add<Output = T>>(self, name: &'static str, value: T) -> T {
        if self.holds(name) {
            value
        } else {
            value + value
        }
    }

    /// True unless this is the rule that is left out.
    pub(crate) fn holds(self, rule: &'static str) -> bool {
        debug_assert!(CONSTANTS.iter().any(|c| c.0 == rule));
        self.varied != Some(rule)
    }

    /// Longest time between two wakeups of one interrupt.
    pub fn same_irq(self) -> Ns {
        self.of("same_irq", 6) * self.unit / 2
    }

    /// Longest time from a wakeup or tick to the switch that it causes at once.
    pub fn at_once(self) -> Ns {
        self.of("at_once", 20) * self.unit / 2
    }

    /// Longest time between two wakeups of one system call.
    pub fn one_call(self) -> Ns {
        self.of("one_call", 3) * self.unit / 2
    }

    /// Longest time from a tick to a wakeup that its softirq makes.
    pub fn behind_tick(self) -> Ns {
        self.of("behind_tick", 30) * self.unit / 2
    }

    /// Timer sleeps of constant length vary by no more.
    pub fn varies(self) -> Ns {
        self.of("varies", 5_000)
    }

    /// What `over` measured, where that is less than half or more than twice of this.
    pub(crate) fn corrected(self, over: &Overheads) -> Option<Self> {
        let unit = (over.record.ns + over.interrupt.ns).clamp(1_000, 1_000_000);
        let known = over.record.n >= ENOUGH && over.interrupt.n >= ENOUGH;
        (known && !(self.unit / 2..=self.unit * 2).contains(&unit)).then_some(Limits { unit, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Estimate;
    use super::*;

    #[test]
    fn a_fast_machine_gets_narrow_limits_and_one_like_that_assumed_keeps_them() {
        let over = |record, interrupt| Overheads {
            record: Estimate { ns: record, n: 50 },
            interrupt: Estimate { ns: interrupt, n: 50 },
            ..Overheads::default()
        };
        assert_eq!(Limits::default().corrected(&over(9_000, 8_000)), None);
        let fast = Limits::default().corrected(&over(1_000, 1_500)).expect("other limits");
        assert_eq!((fast.at_once(), fast.same_irq(), fast.one_call()), (25_000, 7_500, 3_750));
        assert_eq!(Limits::default().corrected(&Overheads::default()), None, "nothing was measured");
    }

    #[test]
    fn every_constant_can_be_doubled_and_every_rule_left_out() {
        for (name, _) in CONSTANTS {
            assert_ne!(Limits::varied(name), Some(Limits::default()), "{name}");
            assert!(Limits::varied(name).is_some(), "{name}");
        }
        assert_eq!(Limits::varied("none"), None);
    }
}
