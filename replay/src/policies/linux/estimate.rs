//! Estimated utilisation (UTIL_EST): what a task used when it last fell asleep, which its average forgets
//! while it sleeps.
//!
//! Source: util_est_update, util_est_enqueue and util_est_dequeue of kernel/sched/fair.c in Linux 6.1.192,
//! 6.12.117 and 7.3.4. A queue counts the estimates of its runnable tasks; a CPU is taken to be used by that
//! sum, or by its average where that is more (cpu_util_cfs).

use super::pelt::Pelt;
use super::Form;

/// About 1 % of a CPU: changes below it are not followed (UTIL_EST_MARGIN).
const MARGIN: u64 = 1024 / 100;
/// A new sample counts a quarter (UTIL_EST_WEIGHT_SHIFT).
const SHIFT: u32 = 2;

/// What is known of one task.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimate {
    /// Follows rises at once and falls slowly.
    mean: u64,
    /// The last sample; up to 6.5 it counts where it is more.
    last: u64,
    /// Period of the averages in which it was taken: within one nothing new is known.
    period: Option<i64>,
    /// What its queue counts of it.
    counted: u64,
}

impl Estimate {
    /// The task becomes runnable: what its queue is to count.
    #[inline]
    pub fn counts(&mut self) -> u64 {
        self.counted = self.mean.max(self.last);
        self.counted
    }

    /// It is no longer runnable there: what its queue counted.
    #[inline]
    pub fn leaves(&mut self) -> u64 {
        std::mem::take(&mut self.counted)
    }

    /// What its queue counts of it now.
    pub fn counted(&self) -> u64 {
        self.counted
    }

    /// The task falls asleep with these averages.
    #[inline]
    pub fn note(&mut self, avg: &Pelt, form: Form) {
        let period = Some(avg.period());
        if self.period == period {
            return;
        }
        let used = avg.util();
        let was = std::mem::replace(&mut self.last, if form == Form::Cfs { used } else { 0 });
        if self.mean <= used {
            (self.mean, self.period) = (used, period);
            return;
        }
        let fall = self.mean - used;
        if fall < MARGIN {
            // 6.1 keeps what it knew, unless the last sample changed.
            if form == Form::Cfs && was.abs_diff(used) < MARGIN {
                self.last = was;
            } else {
                self.period = period;
            }
            return;
        }
        // What waited would have used more: only 6.1 does not ask.
        let waited = form != Form::Cfs && used + MARGIN < avg.runnable();
        if !waited {
            self.mean = ((self.mean << SHIFT) - fall) >> SHIFT;
        }
        self.period = period;
    }
}

#[cfg(test)]
mod tests {
    use super::super::pelt::Since;
    use super::*;

    /// A task that runs for `ran` ms of every `ran + slept`, and its estimate after each time.
    fn estimates(form: Form, ran: i64, slept: i64) -> Vec<u64> {
        let (mut avg, mut estimate, mut now) = (Pelt::default(), Estimate::default(), 0);
        let mut found = Vec::new();
        for _ in 0..60 {
            now += ran * 1_000_000;
            avg.update(now, Since { load: 1, runnable: 1, running: true }, 1024);
            estimate.note(&avg, form);
            found.push(estimate.counts());
            now += slept * 1_000_000;
            avg.update(now, Since { load: 0, runnable: 0, running: false }, 1024);
        }
        found
    }

    #[test]
    fn a_rise_is_followed_at_once_and_what_was_used_is_remembered() {
        for form in [Form::Cfs, Form::Eevdf, Form::Flat] {
            let found = estimates(form, 8, 40);
            assert!(found.windows(2).all(|w| w[0] <= w[1]), "{found:?}");
            // Before its sleep it had used more than its share over time, 8 of 48 ms.
            let last = *found.last().unwrap();
            assert!((1024 / 6 + 40..400).contains(&last), "{last}");
        }
    }

    #[test]
    fn a_fall_counts_a_quarter_and_not_where_the_task_waited() {
        for (form, waited, falls) in [(Form::Eevdf, false, true), (Form::Eevdf, true, false), (Form::Cfs, true, true)] {
            let mut avg = Pelt::default();
            avg.update(2_000_000, Since { load: 1, runnable: 1, running: !waited }, 1024);
            let mut estimate = Estimate { mean: 400, last: 0, period: Some(-1), counted: 0 };
            estimate.note(&avg, form);
            let wanted = if falls { (400 * 4 - (400 - avg.util())) / 4 } else { 400 };
            assert_eq!(
                estimate.counts(),
                wanted.max(if form == Form::Cfs { avg.util() } else { 0 }),
                "{form:?} {waited}"
            );
            // Again within the period: nothing new is known.
            let before = estimate;
            estimate.note(&avg, form);
            assert_eq!(format!("{before:?}"), format!("{estimate:?}"));
        }
    }
}
