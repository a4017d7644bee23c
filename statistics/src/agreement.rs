//! For how long two runs of the same tasks have the same on each CPU.

use std::collections::BTreeSet;

/// A stretch of time in which a task is on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The CPU.
    pub cpu: i64,
    /// When it begins.
    pub from: i64,
    /// When it ends.
    pub to: i64,
    /// The task.
    pub task: i64,
    /// The group of the task.
    pub group: i64,
}

/// What two runs have in common, ns on all CPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Time in which both have the same task on a CPU, or none.
    pub task: i64,
    /// The same for groups.
    pub group: i64,
    /// Time in which each has nothing there.
    pub idle: [i64; 2],
    /// CPUs on which either has something.
    pub cpus: usize,
}

/// One run on one CPU, gone through in time.
struct Cursor<'a> {
    /// By begin; of two that overlap, which contradict each other, the later one counts.
    stretches: &'a [Stretch],
    /// Those that have begun.
    begun: usize,
}

impl Cursor<'_> {
    /// What is on the CPU at `at`, which is no earlier than the last one, and until when that holds.
    fn at(&mut self, at: i64) -> (Option<&Stretch>, i64) {
        self.begun += self.stretches[self.begun..].iter().take_while(|s| s.from <= at).count();
        let next = self.stretches.get(self.begun).map_or(i64::MAX, |s| s.from);
        let last = self.begun.checked_sub(1).map(|i| &self.stretches[i]);
        match last.filter(|s| at < s.to) {
            Some(on) => (Some(on), on.to.min(next)),
            None => (None, next),
        }
    }
}

/// Compares two runs between `start` and `stop`.
pub fn agreement(mut runs: [Vec<Stretch>; 2], start: i64, stop: i64) -> Agreement {
    for run in &mut runs {
        run.sort_by_key(|s| (s.cpu, s.from));
    }
    let cpus: BTreeSet<i64> = runs.iter().flatten().map(|s| s.cpu).collect();
    let mut found = Agreement { cpus: cpus.len(), ..Agreement::default() };
    for cpu in cpus {
        let mut sides = runs.each_ref().map(|run| {
            let (first, end) = (run.partition_point(|s| s.cpu < cpu), run.partition_point(|s| s.cpu <= cpu));
            Cursor { stretches: &run[first..end], begun: 0 }
        });
        let mut now = start;
        while now < stop {
            let [one, other] = sides.each_mut().map(|side| side.at(now));
            let until = one.1.min(other.1).min(stop);
            let ns = until - now;
            let same = |of: fn(&Stretch) -> i64| i64::from(one.0.map(of) == other.0.map(of)) * ns;
            found.task += same(|s| s.task);
            found.group += same(|s| s.group);
            found.idle[0] += i64::from(one.0.is_none()) * ns;
            found.idle[1] += i64::from(other.0.is_none()) * ns;
            now = until;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(cpu: i64, from: i64, to: i64, task: i64) -> Stretch {
        Stretch { cpu, from, to, task, group: task / 10 }
    }

    /// 10 and 11 are of one group; the second CPU is idle in one of the runs.
    #[test]
    fn tasks_and_groups_are_compared_on_each_cpu() {
        let one = vec![on(0, 0, 50, 10), on(0, 60, 100, 20), on(1, 20, 40, 30)];
        let other = vec![on(0, 60, 90, 20), on(0, 0, 50, 11)];
        let found = agreement([one, other], 0, 100);
        assert_eq!(found.cpus, 2);
        // CPU 0: idle together for 10, task 20 for 30; CPU 1: idle together but for 20.
        assert_eq!((found.task, found.group), (10 + 30 + 80, 50 + 10 + 30 + 80));
        assert_eq!(found.idle, [10 + 80, 20 + 100]);
    }

    /// What lies outside does not count, and of two that overlap the later one does.
    #[test]
    fn stretches_are_cut_at_the_ends_and_by_later_ones() {
        let one = vec![on(0, -50, 150, 10), on(0, 40, 60, 20)];
        let other = vec![on(0, -50, 40, 10), on(0, 40, 500, 20)];
        let found = agreement([one, other], 0, 100);
        assert_eq!((found.task, found.idle), (40 + 20, [40, 0]));
        assert_eq!(agreement([Vec::new(), Vec::new()], 0, 100), Agreement::default());
    }
}
