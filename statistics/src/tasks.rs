//! Whose each sample is.

/// Fewest tasks that are alike, for resampling whole tasks.
pub const MIN_TASKS: usize = 8;

/// Whose each sample is: the tasks of a series, numbered from 0 on.
#[derive(Clone, Debug)]
pub struct Tasks {
    /// Task of each sample.
    pub codes: Vec<u32>,
    /// Samples of each task.
    pub counts: Vec<usize>,
}

impl Tasks {
    /// From any numbers.
    pub fn new(numbers: &[i64]) -> Self {
        let mut known: Vec<i64> = numbers.to_vec();
        known.dedup();
        known.sort_unstable();
        known.dedup();
        let mut counts = vec![0; known.len()];
        // Samples of one task often follow one another.
        let mut last = (i64::MIN, None);
        let codes = numbers.iter().map(|number| {
            let code = match last {
                (seen, Some(code)) if seen == *number => code,
                _ => known.partition_point(|k| k < number),
            };
            last = (*number, Some(code));
            counts[code] += 1;
            code as u32
        });
        Tasks { codes: codes.collect(), counts }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.counts.len()
    }

    /// The samples of each task, one task behind the other.
    pub fn sorted(&self, x: &[f64]) -> Vec<f64> {
        let mut next: Vec<usize> = self.counts.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + n))).collect();
        let mut sorted = vec![0.0; x.len()];
        for (value, code) in x.iter().zip(&self.codes) {
            sorted[next[*code as usize]] = *value;
            next[*code as usize] += 1;
        }
        sorted
    }

    /// The sum of each task's samples.
    pub fn sums(&self, x: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.count()];
        x.iter().zip(&self.codes).for_each(|(value, code)| sums[*code as usize] += value);
        sums
    }

    /// Are there enough tasks with about as many samples each to resample whole tasks?
    pub fn alike(&self) -> bool {
        if self.count() < MIN_TASKS {
            return false;
        }
        let mut counts = self.counts.clone();
        counts.sort_unstable();
        let half = counts.len() / 2;
        let middle =
            if counts.len() % 2 == 1 { counts[half] as f64 } else { (counts[half - 1] + counts[half]) as f64 / 2.0 };
        let near = counts.iter().filter(|n| (middle / 2.0..=middle * 2.0).contains(&(**n as f64)));
        let (tasks, samples) = near.fold((0, 0), |(tasks, samples), n| (tasks + 1, samples + n));
        tasks >= MIN_TASKS && samples as f64 >= 0.9 * self.codes.len() as f64 && middle >= 2.0
    }

    /// Do the tasks rise and fall together, so that they are no independent samples?
    pub fn together(&self, x: &[f64]) -> bool {
        let (n, tasks) = (x.len(), self.count());
        let bins = (n / (2 * tasks)).min(32);
        if bins < 8 {
            return false;
        }
        let mut table = vec![0.0; bins * tasks];
        for (i, (value, code)) in x.iter().zip(&self.codes).enumerate() {
            table[i * bins / n * tasks + *code as usize] += value;
        }
        let means: Vec<f64> =
            (0..tasks).map(|task| (0..bins).map(|bin| table[bin * tasks + task]).sum::<f64>() / bins as f64).collect();
        let (mut apart, mut all) = (0.0, 0.0);
        for bin in table.chunks_exact(tasks) {
            let off = bin.iter().zip(&means).map(|(value, mean)| value - mean);
            let (sum, squares) = off.fold((0.0, 0.0), |(sum, squares), d| (sum + d, squares + d * d));
            apart += squares;
            all += sum * sum;
        }
        apart > 0.0 && all > 2.0 * apart
    }
}
