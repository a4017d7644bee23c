//! How often a task wakes another one than before (`wakee_flips` of Linux), which tells a waker of
//! many from one that works with one partner.

use std::collections::HashSet;

use crate::history::{History, TaskHistory, TaskIndex};

/// Parts of the trace, of which the middle one counts: what a task does once, as one that starts
/// others, is not what it has done before. Ten are judgement; other numbers were not tried.
const PARTS: usize = 10;

/// In a second, rounded; of those that may run on several CPUs and are no real-time ones
/// (`record_wakee` of kernel/sched/fair.c).
pub(super) fn flips(task: &TaskHistory, history: &History, bound: &HashSet<TaskIndex>) -> u32 {
    let fair = |t: TaskIndex| history.tasks[t as usize].prio.is_none_or(|prio| prio >= 100);
    let mut parts = [0u32; PARTS];
    let mut last = None;
    for &(at, woken) in task.woke.iter().filter(|w| !bound.contains(&w.1) && fair(w.1)) {
        let part = (at as f64 / history.span.max(1) as f64 * PARTS as f64) as usize;
        parts[part.min(PARTS - 1)] += u32::from(last.replace(woken).is_some_and(|last| last != woken));
    }
    parts.sort_unstable();
    let middle = f64::from(parts[PARTS / 2 - 1] + parts[PARTS / 2]) / 2.0;
    (middle * PARTS as f64 * 1e9 / history.span.max(1) as f64).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::First;

    #[test]
    fn what_is_done_once_is_not_what_was_done_before() {
        let flips = |woke: Vec<(i64, TaskIndex)>| {
            let mut tasks: Vec<TaskHistory> = (0..30).map(|t| TaskHistory::new(t, First::Asleep, 0)).collect();
            tasks[29].prio = Some(9);
            tasks[0].woke = woke;
            let history = History { tasks, span: 500_000_000, ..History::default() };
            super::flips(&history.tasks[0], &history, &HashSet::from([28]))
        };
        let by_turns = |a, b| (0..100).map(|i| (i64::from(i) * 5_000_000, if i % 2 == 0 { a } else { b })).collect();
        assert_eq!(flips(by_turns(1, 2)), 200);
        assert_eq!(flips(by_turns(1, 28)), 0, "one that is bound");
        assert_eq!(flips(by_turns(1, 29)), 0, "one that is real time");
        assert_eq!(flips((1..28).map(|t| (7_000_000, t)).collect()), 0, "all at once");
    }
}
