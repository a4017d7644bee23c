//! How fast each CPU is against the others.

use crate::task::{Cpu, Ns, NEVER};

/// Parts of the time that a CPU of middling speed takes.
const ONE: i128 = 1024;

/// What each CPU takes for the same work; nothing where they are equally fast.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Speeds(Vec<u32>);

impl Speeds {
    /// From the time that each CPU takes for the same work. A CPU of middling speed does as much as
    /// all do on average, so that as many middling ones do as much as these; rounded to 1/1024.
    pub fn of(times: &[f64]) -> Self {
        let rate = times.iter().map(|t| 1.0 / t).sum::<f64>() / times.len().max(1) as f64;
        let part = |t: &f64| (t * rate * ONE as f64).round().clamp(16.0, 65_536.0) as u32;
        let parts: Vec<u32> = times.iter().map(part).collect();
        if parts.iter().all(|p| *p == ONE as u32) {
            return Speeds::default();
        }
        Speeds(parts)
    }

    /// The time that `cpu` takes for work of 1.
    pub fn time_of_one(&self, cpu: Cpu) -> f64 {
        self.part(cpu) as f64 / ONE as f64
    }

    /// True where all are equally fast.
    pub fn are_equal(&self) -> bool {
        self.0.is_empty()
    }

    fn part(&self, cpu: Cpu) -> i128 {
        // A CPU that was not recorded is of middling speed.
        self.0.get(cpu).map_or(ONE, |p| i128::from(*p))
    }

    /// How long `cpu` takes for `work`.
    #[inline]
    pub fn time(&self, cpu: Cpu, work: Ns) -> Ns {
        if self.0.is_empty() || work == NEVER {
            return work;
        }
        ((i128::from(work) * self.part(cpu) + ONE / 2) / ONE) as Ns
    }

    /// What `cpu` does in `time`.
    #[inline]
    pub fn work(&self, cpu: Cpu, time: Ns) -> Ns {
        if self.0.is_empty() || time == NEVER {
            return time;
        }
        ((i128::from(time) * ONE + self.part(cpu) / 2) / self.part(cpu)) as Ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_cpu_takes_longer_and_what_it_did_is_less() {
        // One does 1.6 in the time in which a middling one does 1, the other 0.4.
        let speeds = Speeds::of(&[0.5, 2.0]);
        assert_eq!((speeds.time(0, 1_024), speeds.time(1, 1_024), speeds.time(2, 1_024)), (640, 2_560, 1_024));
        assert_eq!((speeds.work(0, 640), speeds.work(1, 2_560), speeds.work(1, NEVER)), (1_024, 1_024, NEVER));
    }

    #[test]
    fn equal_cpus_leave_every_time_as_it_is() {
        let speeds = Speeds::of(&[1.0, 1.0001]);
        assert!(speeds.are_equal());
        assert_eq!(speeds.time(1, 12_345), 12_345);
    }
}
