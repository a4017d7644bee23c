//! How fast each CPU is against the others, at any time.

use std::sync::Arc;

use crate::task::{Cpu, Ns, NEVER};

/// Parts of the time that a CPU of middling speed takes.
const ONE: i128 = 1024;

/// What each CPU takes for the same work, at any time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Speeds(Kind);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Kind {
    /// All are equally fast, at all times.
    #[default]
    Equal,
    /// Time for the work of [`ONE`], of each CPU.
    Fixed(Vec<u32>),
    /// Some change.
    Changing(Arc<Vec<Line>>),
}

/// The speed of one CPU over time, in [`STEP`]ths of a middling one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    /// Since when, from 0 on; how fast; and what it can have done by then, in [`STEP`]ths.
    steps: Vec<(Ns, i128, i128)>,
}

/// Parts of a middling speed: finer than a kHz of a GHz.
const STEP: i128 = 1 << 20;

impl Line {
    /// From times and speeds; the first speed also holds before its time.
    fn of(speeds: &[(Ns, f64)]) -> Self {
        let mut steps: Vec<(Ns, i128, i128)> = Vec::with_capacity(speeds.len());
        for (i, (at, speed)) in speeds.iter().enumerate() {
            let at = if i == 0 { 0 } else { (*at).max(0) };
            let rate = (speed * STEP as f64).round().clamp(STEP as f64 / 1024.0, STEP as f64 * 1024.0) as i128;
            match steps.last_mut() {
                Some(last) if last.0 >= at => last.1 = rate,
                Some(last) if last.1 == rate => {}
                Some(&mut (since, last, done)) => steps.push((at, rate, done + i128::from(at - since) * last)),
                None => steps.push((at, rate, 0)),
            }
        }
        Line { steps }
    }

    fn done(&self, at: Ns) -> i128 {
        let i = self.steps.partition_point(|s| s.0 <= at).max(1) - 1;
        let (since, rate, done) = self.steps[i];
        done + i128::from(at - since) * rate
    }

    fn work(&self, from: Ns, to: Ns) -> Ns {
        ((self.done(to) - self.done(from) + STEP / 2) / STEP) as Ns
    }

    fn time(&self, from: Ns, work: Ns) -> Ns {
        let done = self.done(from) + i128::from(work) * STEP;
        let i = self.steps.partition_point(|s| s.2 <= done).max(1) - 1;
        let (since, rate, before) = self.steps[i];
        (i128::from(since) + (done - before + rate / 2) / rate - i128::from(from)).max(0) as Ns
    }
}

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
        Speeds(Kind::Fixed(parts))
    }

    /// From the speeds of each CPU, each from a time on; a speed of 1 does work of 1 in time of 1.
    pub fn changing(cpus: &[Vec<(Ns, f64)>]) -> Self {
        let lines: Vec<Line> = cpus.iter().map(|speeds| Line::of(speeds)).collect();
        if lines.iter().all(|l| matches!(l.steps[..], [] | [(_, STEP, _)])) {
            return Speeds::default();
        }
        Speeds(Kind::Changing(Arc::new(lines)))
    }

    /// The time that `cpu` takes for work of 1, where it is always as fast.
    pub fn time_of_one(&self, cpu: Cpu) -> f64 {
        match &self.0 {
            Kind::Fixed(parts) => part(parts, cpu) as f64 / ONE as f64,
            Kind::Changing(lines) => match lines.get(cpu).map(|l| &l.steps[..]) {
                Some([(_, rate, _)]) => STEP as f64 / *rate as f64,
                _ => 1.0,
            },
            Kind::Equal => 1.0,
        }
    }

    /// True where all are equally fast.
    pub fn are_equal(&self) -> bool {
        self.0 == Kind::Equal
    }

    /// True where a CPU is not always as fast.
    pub fn change(&self) -> bool {
        matches!(self.0, Kind::Changing(_))
    }

    /// How long `cpu` takes for `work` that begins at `from`.
    #[inline]
    pub fn time(&self, cpu: Cpu, from: Ns, work: Ns) -> Ns {
        match &self.0 {
            Kind::Equal => work,
            _ if work == NEVER => work,
            Kind::Fixed(parts) => ((i128::from(work) * part(parts, cpu) + ONE / 2) / ONE) as Ns,
            Kind::Changing(lines) => {
                lines.get(cpu).filter(|l| !l.steps.is_empty()).map_or(work, |l| l.time(from, work))
            }
        }
    }

    /// What `cpu` does between two times.
    #[inline]
    pub fn work(&self, cpu: Cpu, from: Ns, to: Ns) -> Ns {
        match &self.0 {
            Kind::Equal => to - from,
            _ if to == NEVER => to,
            Kind::Fixed(parts) => {
                let part = part(parts, cpu);
                ((i128::from(to - from) * ONE + part / 2) / part) as Ns
            }
            Kind::Changing(lines) => {
                lines.get(cpu).filter(|l| !l.steps.is_empty()).map_or(to - from, |l| l.work(from, to))
            }
        }
    }
}

/// A CPU that was not recorded is of middling speed.
fn part(parts: &[u32], cpu: Cpu) -> i128 {
    parts.get(cpu).map_or(ONE, |p| i128::from(*p))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_cpu_takes_longer_and_what_it_did_is_less() {
        // One does 1.6 in the time in which a middling one does 1, the other 0.4.
        let speeds = Speeds::of(&[0.5, 2.0]);
        let time = |cpu| speeds.time(cpu, 7, 1_024);
        assert_eq!((time(0), time(1), time(2)), (640, 2_560, 1_024));
        let work = |cpu, to| speeds.work(cpu, 0, to);
        assert_eq!((work(0, 640), work(1, 2_560), work(1, NEVER)), (1_024, 1_024, NEVER));
    }

    #[test]
    fn equal_cpus_leave_every_time_as_it_is() {
        let speeds = Speeds::of(&[1.0, 1.0001]);
        assert!(speeds.are_equal());
        assert_eq!(speeds.time(1, 99, 12_345), 12_345);
        assert!(Speeds::changing(&[vec![(0, 1.0)], vec![(50, 1.0), (90, 1.0)]]).are_equal());
    }

    #[test]
    fn work_takes_the_speed_of_its_time() {
        // Full speed until 100, half from there on, a quarter from 300 on; the other is always half.
        let speeds = Speeds::changing(&[vec![(0, 1.0), (100, 0.5), (300, 0.25)], vec![(0, 0.5)]]);
        assert!(speeds.change() && !speeds.are_equal());
        assert_eq!((speeds.work(0, 0, 100), speeds.work(0, 50, 300), speeds.work(0, 200, 700)), (100, 150, 150));
        assert_eq!((speeds.time(0, 0, 150), speeds.time(0, 50, 150), speeds.time(0, 250, 50)), (200, 250, 150));
        assert_eq!((speeds.time(1, 40, 150), speeds.work(1, 40, 340), speeds.time_of_one(1)), (300, 150, 2.0));
        // Nothing is said of a third one.
        assert_eq!((speeds.time(2, 40, 150), speeds.work(2, 40, 190)), (150, 150));
        assert_eq!((speeds.time(0, 5, NEVER), speeds.work(0, 5, NEVER)), (NEVER, NEVER));
    }

    proptest::proptest! {
        #[test]
        fn time_and_work_are_each_others_inverse(
            steps in proptest::collection::vec((1i64..5_000, 10u32..4_000), 1..8),
            from in 0i64..20_000,
            cuts in proptest::collection::vec(1i64..3_000, 1..6),
        ) {
            let mut at = 0;
            let speeds: Vec<(Ns, f64)> =
                steps.iter().map(|(ns, permille)| { at += ns; (at, f64::from(*permille) / 1e3) }).collect();
            let slowest = speeds.iter().map(|s| s.1).fold(f64::MAX, f64::min);
            let speeds = Speeds::changing(&[speeds]);
            let to = from + cuts.iter().sum::<i64>();
            // What a slice did, its parts did: but for one rounding each.
            let (mut begin, mut sum) = (from, 0);
            for cut in &cuts {
                sum += speeds.work(0, begin, begin + cut);
                begin += cut;
            }
            let whole = speeds.work(0, from, to);
            proptest::prop_assert!((sum - whole).abs() <= cuts.len() as i64);
            // And it takes as long as it took, but for what one ns of work is in time.
            let back = speeds.time(0, from, whole);
            proptest::prop_assert!((back - (to - from)).abs() as f64 <= 1.0 / slowest + 1.0, "{back} {to} {from}");
        }
    }
}
