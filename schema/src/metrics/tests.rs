//! Worked by hand; that these are the statistics of `tracekit.analysis` is tested from Python.

use super::*;
use crate::tables::flag;
use crate::State;

fn found(rows: &[Row], scope: &str, metric: &str, statistic: &str) -> Option<f64> {
    let mut fit = rows.iter().filter(|r| (r.scope, r.metric, r.statistic) == (scope, metric, statistic));
    fit.next().and_then(|r| r.value)
}

#[test]
fn a_task_that_runs_twice_and_waits_at_the_end() {
    let mut strings = Strings::new();
    let name = strings.intern(b"make-7");
    let (mut slices, mut states, mut runqueue) = (Slices::default(), States::default(), Runqueue::default());
    for (ts, dur, state, wake, delay) in
        [(100, 50, State::Sleeping, None, None), (300, 100, State::Preempted, Some(280), Some(20))]
    {
        let mut row = slices.push();
        row.ts_ns(ts).dur_ns(dur).utid(4).tid(7).comm(name).flags(0).wake_ts_ns(wake).run_delay_ns(delay);
        row.end_state(state).involuntary(state == State::Preempted);
    }
    for (ts, dur, state, flags) in [
        (100, 50, State::Running, 0),
        (150, 130, State::Sleeping, 0),
        (280, 20, State::Runnable, 0),
        (300, 100, State::Running, 0),
        (400, 600, State::Preempted, flag::OPEN_END),
    ] {
        states.push().ts_ns(ts).dur_ns(dur).utid(4).tid(7).comm(name).state(state).flags(flags);
    }
    for (ts, running, waiting) in [(100, 1, 0), (150, 0, 0), (280, 0, 1), (300, 1, 0), (400, 0, 1)] {
        runqueue.push().ts_ns(ts).cpu(0).nr_running(running).nr_waiting(waiting).flags(0);
    }
    let of =
        Measured { slices: &slices, states: Some(&states), runqueue: &runqueue, strings: &strings, end: Some(1000) };
    let rows = metrics(&of, Grouping::Group);
    assert_eq!(rows[0].group.as_deref(), Some("make"));
    assert_eq!(found(&rows, "group", "slice", "mean"), Some(75.0));
    assert_eq!(found(&rows, "group", "slice", "p50"), Some(50.0));
    assert_eq!(found(&rows, "all", "cpu_time", "total"), Some(150.0));
    assert_eq!(found(&rows, "all", "switches", "total"), Some(2.0));
    assert_eq!(found(&rows, "all", "slice_per_involuntary", "mean"), Some(150.0));
    // 20 ns complete, 600 ns censored: half are known to have ended at 20, the others last at least 600.
    assert_eq!(found(&rows, "group", "run_delay", "mean"), Some(20.0 + 0.5 * 580.0));
    assert_eq!(found(&rows, "group", "run_delay", "p50"), Some(20.0));
    assert_eq!(found(&rows, "group", "wakeup_latency", "mean"), Some(20.0));
    // Its one response, begun at 280, had not ended.
    assert_eq!(found(&rows, "group", "response", "mean"), Some(720.0));
    assert_eq!(found(&rows, "group", "response", "max"), None);
    assert_eq!(found(&rows, "system", "runqueue", "mean"), Some(770.0 / 900.0));
    assert_eq!(found(&rows, "system", "runqueue", "p50"), Some(1.0));
}
