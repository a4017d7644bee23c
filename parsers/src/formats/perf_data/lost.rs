//! How many records were lost, each counted once.
//!
//! The kernel counts a record that finds no room twice: in the buffer, which states the number in
//! the next record that fits (`LOST`), and in the event (`PERF_FORMAT_LOST`, since 6.0). perf reads
//! the second count when the recording ends and writes it as `LOST_SAMPLES` with time 0, with the
//! number of the event and CPU 0 whatever the CPU was. So these repeat what `LOST` states, and are
//! more only by what was lost behind the last record of a buffer. Three others are not copies:
//! `LOST_SAMPLES` of the kernel itself, which have a time (samples that hardware dropped), those of
//! a recording whose events do not ask for the count, and those marked as left out by a filter.

use std::collections::{BTreeMap, HashMap};

/// Flag of LOST_SAMPLES: a BPF filter left them out.
pub const BY_FILTER: u16 = 1 << 15;

/// What was lost behind the last record of one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Its CPU, where that is known.
    pub cpu: Option<i32>,
    /// How many.
    pub count: u64,
}

/// Counts of lost records.
#[derive(Clone, Debug, Default)]
pub struct Lost {
    /// By LOST records, for each CPU.
    stated: BTreeMap<Option<i32>, u64>,
    /// CPU of a place among the numbers of an event; `None` where two CPUs were named.
    cpus: HashMap<usize, Option<i32>>,
    /// What perf read at the end: place among the numbers of the event, lost records.
    read: Vec<(Option<usize>, u64)>,
    /// Samples that a filter left out.
    pub filtered: u64,
}

impl Lost {
    /// Takes a LOST record: the place of its event, the CPU, the count.
    pub fn state(&mut self, place: Option<usize>, cpu: Option<i32>, count: u64) {
        let stated = self.stated.entry(cpu).or_default();
        *stated = stated.saturating_add(count);
        if let Some(place) = place {
            let known = self.cpus.entry(place).or_insert(cpu);
            *known = known.filter(|k| Some(*k) == cpu);
        }
    }

    /// Takes a LOST_SAMPLES record that perf wrote at the end.
    pub fn read(&mut self, place: Option<usize>, count: u64) {
        self.read.push((place, count));
    }

    /// Number of records that perf wrote at the end.
    pub fn repeated(&self) -> u64 {
        self.read.len() as u64
    }

    /// What no LOST record states: for each CPU where every count has one, else together.
    pub fn behind(&self) -> Vec<Behind> {
        let mut read: BTreeMap<Option<i32>, u64> = BTreeMap::new();
        for (place, count) in &self.read {
            let cpu = place.and_then(|p| self.cpus.get(&p).copied().flatten());
            let sum = read.entry(cpu).or_default();
            *sum = sum.saturating_add(*count);
        }
        if read.contains_key(&None) || self.stated.contains_key(&None) {
            let sum = |of: &BTreeMap<_, u64>| of.values().fold(0u64, |a, n| a.saturating_add(*n));
            read = BTreeMap::from([(None, sum(&read))]);
            let stated = sum(&self.stated);
            return left(read, |_| stated);
        }
        left(read, |cpu| self.stated.get(&cpu).copied().unwrap_or(0))
    }
}

fn left(read: BTreeMap<Option<i32>, u64>, stated: impl Fn(Option<i32>) -> u64) -> Vec<Behind> {
    let more = |(cpu, n): (Option<i32>, u64)| Behind { cpu, count: n.saturating_sub(stated(cpu)) };
    read.into_iter().map(more).filter(|b| b.count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_perf_reads_at_the_end_repeats_what_the_buffers_state() {
        let mut lost = Lost::default();
        lost.state(Some(0), Some(2), 7);
        lost.state(Some(0), Some(2), 1);
        lost.state(Some(1), Some(3), 4);
        // Two events of CPU 2, one of CPU 3.
        lost.read(Some(0), 5);
        lost.read(Some(0), 3);
        lost.read(Some(1), 4);
        assert_eq!((lost.behind(), lost.repeated()), (vec![], 3));
        lost.read(Some(1), 9);
        assert_eq!(lost.behind(), [Behind { cpu: Some(3), count: 9 }]);
    }

    #[test]
    fn without_a_cpu_for_every_count_only_sums_are_compared() {
        let mut lost = Lost::default();
        lost.state(Some(0), Some(2), 7);
        lost.read(Some(0), 6);
        lost.read(Some(1), 3);
        assert_eq!(lost.behind(), [Behind { cpu: None, count: 2 }]);
        // The buffer of a thread was written on two CPUs.
        lost.state(Some(1), Some(0), 1);
        lost.state(Some(1), Some(1), 1);
        assert_eq!(lost.behind(), []);
    }

    #[test]
    fn counts_of_older_kernels_stand_alone() {
        let mut lost = Lost::default();
        lost.state(None, Some(0), 7);
        assert_eq!(lost.behind(), []);
        let mut lost = Lost::default();
        lost.read(Some(1), 7);
        assert_eq!(lost.behind(), [Behind { cpu: None, count: 7 }]);
    }
}
