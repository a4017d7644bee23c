//! What is decided about tasks as a whole: which are endless, which go round until the recorded run
//! was stopped, and for which a replay waits.

use std::collections::BTreeSet;

use super::build::Verdict;
use crate::history::{By, EventKind, History, Off, Slept, TaskEvent, TaskHistory, TaskIndex};
use crate::task::Ns;

/// True for a time in the last tenth of `span`: a recording is stopped at its end. A fifth in place of it
/// changes no program of the lab.
fn is_late(at: Ns, span: Ns) -> bool {
    i128::from(at) * 10 >= 9 * i128::from(span)
}

/// When the task began to exit. Where no record says so, as in what `perf script` prints of `perf sched
/// record`, with the last wakeup that it made, if that lies in its last burst and its last two slices:
/// `do_exit` tells the parent at its end (`exit_notify` in kernel/exit.c), and the last switch may lie in
/// the exit. A task that wakes another one just before it ends looks the same.
fn exit_begun(task: &TaskHistory) -> Option<Ns> {
    let end = task.ended()?;
    let events = &task.events;
    let last = |what: fn(&EventKind) -> bool, nth| events.iter().rev().filter(|a| what(&a.kind)).nth(nth).map(|a| a.at);
    let shown = last(|kind| *kind == EventKind::Exiting, 0);
    let notified = || {
        let burst = last(|kind| matches!(kind, EventKind::Woken { .. }), 0);
        let slices = last(|kind| matches!(kind, EventKind::On { .. }), 1);
        last(|kind| kind.post().is_some(), 0).filter(|at| Some(*at) >= burst.max(slices))
    };
    Some(shown.or_else(notified).unwrap_or(end))
}

/// Start of the burst in which the task ends, and how often it was preempted in it.
fn last_burst(task: &TaskHistory) -> (Ns, usize) {
    let exit = exit_begun(task).unwrap_or(Ns::MAX);
    let mut start = task.events.first().map_or(0, |a| a.at);
    let mut preempted = 0;
    for event in &task.events {
        match event.kind {
            EventKind::Woken { .. } if event.at < exit => {
                start = event.at;
                preempted = 0;
            }
            EventKind::Off(Off::Yielded) => preempted = 0,
            EventKind::Off(Off::Preempted { .. }) => preempted += 1,
            _ => {}
        }
    }
    (start, preempted)
}

/// Part of the trace that a burst without an end covers: what ends sooner is a short-lived task. Twice as
/// much changes no program of the lab.
const LONG: Ns = 5;

/// Preemptions in the last burst from which a task shows by itself that it never leaves its CPU.
const OFTEN: usize = 3;

/// True for a burst that fills much of the trace.
fn is_long(start: Ns, end: Ns, span: Ns) -> bool {
    end - start >= span / LONG
}

/// True when the burst that the end of the trace cuts off fills much of it.
pub(super) fn is_cut_off_long(task: &TaskHistory, span: Ns) -> bool {
    is_long(last_burst(task).0, span, span)
}

/// True when the last burst of a task fills much of the trace and it lost its CPU in it often.
fn never_leaves(task: &TaskHistory, span: Ns) -> bool {
    let (start, preempted) = last_burst(task);
    let end = exit_begun(task).unwrap_or(span);
    let (late, long) = (is_late(end, span), is_long(start, end, span));
    let yields = task.events.iter().any(|a| a.at > start && a.kind == EventKind::Off(Off::Yielded));
    let runs = task.events.iter().any(|a| matches!(a.kind, EventKind::On { .. }));
    let asleep = matches!(task.events.last().map(|a| a.kind), Some(EventKind::Off(Off::Slept { .. })) | None);
    late && long && preempted >= OFTEN && runs && !yields && !asleep
}

/// The task that the end of another woke: whoever waited for it.
fn reaper(history: &History, task: &TaskHistory) -> Option<TaskIndex> {
    let from = exit_begun(task)?;
    let woken = task.events.iter().rev().take_while(|a| a.at >= from).find_map(|a| a.kind.post());
    woken.map(|wake| history.wakee[wake as usize])
}

/// True when `task` had a CPU at some time from `from` to `to`.
fn ran_within(task: &TaskHistory, from: Ns, to: Ns) -> bool {
    let first = task.events.partition_point(|a| a.at < from);
    let last = task.events.partition_point(|a| a.at <= to);
    let on = |a: &&TaskEvent| matches!(a.kind, EventKind::On { .. } | EventKind::Off(_));
    let before = task.events[..first].iter().rev().find(on);
    task.events[first..last].iter().any(|a| on(&a)) || before.is_some_and(|a| matches!(a.kind, EventKind::On { .. }))
}

/// Which tasks have no end of their own: those that never leave their CPU and are alive when the
/// trace ends, and those that were killed; `said` are threads of which the caller says so. A
/// recorded exit is an exit, unless whoever reaped one of these tasks ran between the last
/// preemption but one and its exit: then the recorded run was being stopped.
fn endless(history: &History, said: &[i64]) -> Vec<bool> {
    let keeps_cpu: Vec<bool> = history.tasks.iter().map(|l| never_leaves(l, history.span)).collect();
    let candidates = || history.tasks.iter().zip(&keeps_cpu).filter(|(_, keeps_cpu)| **keeps_cpu).map(|(l, _)| l);
    let reapers: BTreeSet<TaskIndex> = candidates().filter_map(|l| reaper(history, l)).collect();
    let killed = |task: &TaskHistory, end: Ns| {
        let preempted = |a: &&TaskEvent| a.at <= end && matches!(a.kind, EventKind::Off(Off::Preempted { .. }));
        // Its last preemption may lie in its exit.
        let from = task.events.iter().rev().filter(preempted).nth(1).map_or(0, |a| a.at);
        reapers.iter().any(|r| ran_within(&history.tasks[*r as usize], from, end))
    };
    let judge =
        |(task, keeps_cpu): (&TaskHistory, &bool)| *keeps_cpu && exit_begun(task).is_none_or(|end| killed(task, end));
    let mut found: Vec<bool> = history.tasks.iter().zip(&keeps_cpu).map(judge).collect();
    // The first to go may have no sign of its own: it goes with those that the same task reaped,
    // where most of them have one.
    for reaper_of in &reapers {
        let group: Vec<&TaskHistory> = candidates().filter(|l| reaper(history, l) == Some(*reaper_of)).collect();
        let signs = group.iter().filter(|l| found[l.id as usize]).count();
        if 2 * signs > group.len() {
            group.iter().for_each(|l| found[l.id as usize] = true);
        }
    }
    history.tasks.iter().zip(found).map(|(task, found)| found || said.contains(&task.tid)).collect()
}

/// True for a task that sleeps on timers again and again until the recorded run is stopped.
fn is_looping(task: &TaskHistory, stop: Ns) -> bool {
    let timer = |slept: &Slept| matches!(slept.by, By::Hardirq { .. });
    let mut sleeps: Vec<Ns> = task.sleeps().filter(timer).map(|slept| slept.to - slept.from).collect();
    let other = task.sleeps().filter(|slept| !timer(slept)).count();
    let forks = task.events.iter().any(|a| matches!(a.kind, EventKind::Fork { .. }));
    if forks || sleeps.len() < 5 || other * 10 > sleeps.len() {
        return false;
    }
    sleeps.sort_unstable();
    // A recorded exit is an exit, unless it came with the stop: somebody ended its last sleep, or
    // none of its sleeps would have ended before the stop.
    if let Some(exit) = exit_begun(task) {
        let woken = |a: &&TaskEvent| a.at <= exit && matches!(a.kind, EventKind::Woken { .. });
        let last = task.events.iter().rev().find(woken).map(|a| a.kind);
        return exit + sleeps[0] >= stop || matches!(last, Some(EventKind::Woken { by: By::Task { .. }, .. }));
    }
    let longest = sleeps[sleeps.len() - 1];
    task.events.last().map_or(0, |a| a.at) + 2 * longest >= stop
}

/// True when the recorded run ended because its work was done: the last essential task ended near the stop.
pub(super) fn ends_with_work(history: &History, verdicts: &[Verdict], stop: Ns) -> bool {
    let ends = history.tasks.iter().zip(verdicts).filter(|(_, v)| v.essential).filter_map(|(l, _)| l.ended());
    ends.max().is_some_and(|last| is_late(last, stop))
}

/// What is decided about each task, and when the recorded run was stopped: with the first exit of
/// an endless task, else with the trace.
pub(super) fn judge(history: &History, said: &[i64]) -> (Vec<Verdict>, Ns) {
    let endless = endless(history, said);
    let exits = history.tasks.iter().zip(&endless).filter(|(_, e)| **e).filter_map(|(l, _)| exit_begun(l));
    let stop = exits.min().unwrap_or(history.span);
    let judge = |(task, endless): (&TaskHistory, bool)| {
        let loops = !endless && is_looping(task, stop);
        let ended = task.ended().is_some_and(|end| end <= stop);
        Verdict { endless, loops, essential: !endless && !loops && ended }
    };
    (history.tasks.iter().zip(endless).map(judge).collect(), stop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::First;

    #[test]
    fn a_task_that_ends_by_itself_does_not_go_on() {
        let by_timer = By::Hardirq { lead: true };
        let by_task = By::Task { waker: 1, wake: 0 };
        let looping = |last: By, ends: bool, stop: Ns| {
            let mut task = TaskHistory::new(0, First::Forked, 0);
            let slept = EventKind::Off(Off::Slept { deep: false });
            for i in 0..20 {
                let by = if i == 19 { last } else { by_timer };
                let events = [EventKind::Woken { by, cpu: 0 }, EventKind::On { cpu: 0 }, slept];
                let events = events.into_iter().take(if i == 19 && ends { 2 } else { 3 });
                task.events.extend((1..).zip(events).map(|(n, kind)| TaskEvent { at: 1_000 * i + n, kind }));
            }
            if ends {
                task.events.push(TaskEvent { at: 19_100, kind: EventKind::Exiting });
                task.events.push(TaskEvent { at: 19_110, kind: EventKind::Off(Off::Ended) });
            }
            is_looping(&task, stop)
        };
        // Alive, shortly or long before the stop.
        assert!(looping(by_timer, false, 20_500));
        assert!(!looping(by_timer, false, 30_000));
        // By itself before the stop, so shortly before it that none of its sleeps (998) would have ended,
        // with it, and because somebody woke it.
        assert!(!looping(by_timer, true, 20_500));
        assert!(looping(by_timer, true, 20_000));
        assert!(looping(by_timer, true, 19_100));
        assert!(looping(by_task, true, 20_500));
    }
}
