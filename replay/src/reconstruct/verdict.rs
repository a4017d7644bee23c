//! What is decided about tasks as a whole: which are endless, which go round until the recorded run
//! was stopped, and for which a replay waits.

use std::collections::BTreeSet;

use super::build::Verdict;
use crate::calibrate::Limits;
use crate::history::{By, EventKind, First, History, Off, TaskEvent, TaskHistory, TaskIndex};
use crate::task::Ns;

/// True for a time in the last part of `span`.
fn is_late(at: Ns, span: Ns, limits: Limits) -> bool {
    i128::from(at) * 100 >= i128::from(100 - limits.end) * i128::from(span)
}

fn ended(task: &TaskHistory) -> Option<Ns> {
    task.events.last().filter(|a| a.kind == EventKind::Off(Off::Ended)).map(|a| a.at)
}

/// When the task began to exit. One that is asked to stop may wait for another in the kernel before its
/// exit shows: that is part of it, where it was preempted once at most since.
fn exit_begun(task: &TaskHistory) -> Option<Ns> {
    let end = ended(task)?;
    let shown = task.events.iter().rposition(|a| a.kind == EventKind::Exiting);
    let begun = shown.map_or(end, |i| task.events[i].at);
    let (mut woken, mut preempted) = (false, false);
    for event in task.events[..shown.unwrap_or(task.events.len() - 1)].iter().rev() {
        match event.kind {
            EventKind::Woken { by: By::Task { .. }, .. } if !woken => woken = true,
            EventKind::Off(Off::Slept { deep: true, .. }) if woken => return Some(event.at),
            EventKind::Off(Off::Preempted { .. }) if !woken && !preempted => preempted = true,
            EventKind::Woken { .. } | EventKind::Off(_) => break,
            _ => {}
        }
    }
    Some(begun)
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

/// Preemptions in the last burst from which a task shows by itself that it never leaves its CPU.
const OFTEN: usize = 3;

/// True when the burst in which the task, or the trace, ends fills much of the trace.
pub(super) fn ends_in_long_burst(task: &TaskHistory, span: Ns, limits: Limits) -> bool {
    let end = exit_begun(task).unwrap_or(span);
    i128::from(end - last_burst(task).0) * 100 >= i128::from(limits.long) * i128::from(span)
}

/// True when the last burst of a task fills much of the trace and it lost its CPU in it at least
/// `least` times.
fn never_leaves(task: &TaskHistory, span: Ns, limits: Limits, least: usize) -> bool {
    let (start, preempted) = last_burst(task);
    let late = is_late(exit_begun(task).unwrap_or(span), span, limits);
    let long = ends_in_long_burst(task, span, limits);
    let yields = task.events.iter().any(|a| a.at > start && a.kind == EventKind::Off(Off::Yielded));
    let runs = task.events.iter().any(|a| matches!(a.kind, EventKind::On { .. }));
    let asleep = matches!(task.events.last().map(|a| a.kind), Some(EventKind::Off(Off::Slept { .. })) | None);
    late && long && preempted >= least && runs && !yields && !asleep
}

/// The task that the end of another woke: whoever waited for it.
fn reaper(history: &History, task: &TaskHistory) -> Option<TaskIndex> {
    let from = exit_begun(task)?;
    task.events.iter().rev().take_while(|a| a.at >= from).find_map(|a| match a.kind {
        EventKind::Post { wake } => Some(history.wakee[wake as usize]),
        _ => None,
    })
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
/// preemption but one and its exit, and nothing was made any more: then the recorded run was being
/// stopped.
fn endless(history: &History, said: &[i64], limits: Limits) -> Vec<bool> {
    let keeps_cpu: Vec<bool> = history.tasks.iter().map(|l| never_leaves(l, history.span, limits, OFTEN)).collect();
    let candidates = || history.tasks.iter().zip(&keeps_cpu).filter(|(_, keeps_cpu)| **keeps_cpu).map(|(l, _)| l);
    let reapers: BTreeSet<TaskIndex> = candidates().filter_map(|l| reaper(history, l)).collect();
    let forks = history.tasks.iter().filter(|l| l.first == First::Forked).filter_map(|l| l.events.first());
    let last_fork = forks.map(|a| a.at).max().unwrap_or(0);
    let killed = |task: &TaskHistory, end: Ns| {
        let preempted = |a: &&TaskEvent| a.at <= end && matches!(a.kind, EventKind::Off(Off::Preempted { .. }));
        // Its last preemption may lie in its exit.
        let from = task.events.iter().rev().filter(preempted).nth(1).map_or(0, |a| a.at);
        end >= last_fork && reapers.iter().any(|r| ran_within(&history.tasks[*r as usize], from, end))
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
            // So does one whose weight gave it too few slices to show anything by itself, unless it
            // went before them.
            let first = group.iter().filter(|l| found[l.id as usize]).filter_map(|l| exit_begun(l)).min();
            let rare = |l: &&TaskHistory| {
                let after = exit_begun(l) >= first && first.is_some();
                after && never_leaves(l, history.span, limits, 1) && reaper(history, l) == Some(*reaper_of)
            };
            let rare: Vec<&TaskHistory> = history.tasks.iter().filter(rare).collect();
            group.iter().chain(&rare).for_each(|l| found[l.id as usize] = true);
        }
    }
    history.tasks.iter().zip(found).map(|(task, found)| found || said.contains(&task.tid)).collect()
}

/// When the recorded run was stopped: the first exit of an endless task, else the end of the trace.
pub(super) fn stop_time(history: &History, said: &[i64], limits: Limits) -> Ns {
    let endless = endless(history, said, limits);
    let exits = history.tasks.iter().zip(&endless).filter(|(_, e)| **e).filter_map(|(l, _)| exit_begun(l));
    exits.min().unwrap_or(history.span)
}

/// True for a task that sleeps on timers again and again until the recorded run is stopped.
fn is_looping(task: &TaskHistory, stop: Ns) -> bool {
    let mut sleeps: Vec<Ns> = Vec::new();
    let mut from = None;
    let mut other = 0;
    for event in &task.events {
        match event.kind {
            EventKind::Off(Off::Slept { .. }) => from = Some(event.at),
            EventKind::Woken { by, .. } => {
                if let Some(from) = from.take() {
                    match by {
                        By::Hardirq { .. } => sleeps.push(event.at - from),
                        _ => other += 1,
                    }
                }
            }
            EventKind::Fork { .. } => return false,
            _ => {}
        }
    }
    if sleeps.len() < 5 || other * 10 > sleeps.len() {
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

/// True when the task ran before `stop` in the burst in which it ends.
fn ran_in_last_burst(task: &TaskHistory, stop: Ns) -> bool {
    let (start, _) = last_burst(task);
    task.events.iter().any(|a| a.at >= start && a.at < stop && matches!(a.kind, EventKind::On { .. }))
}

/// True when the recorded run ended because its work was done: the last essential task ended near the stop.
pub(super) fn ends_with_work(history: &History, verdicts: &[Verdict], limits: Limits, stop: Ns) -> bool {
    let ends = history.tasks.iter().zip(verdicts).filter(|(_, v)| v.essential).filter_map(|(l, _)| ended(l));
    ends.max().is_some_and(|last| is_late(last, stop, limits))
}

pub(super) fn judge(history: &History, said: &[i64], limits: Limits, stop: Ns) -> Vec<Verdict> {
    let judge = |(task, endless): (&TaskHistory, bool)| {
        let loops = !endless && is_looping(task, stop);
        // What got the CPU only after the stop, ended because of it.
        let before = ended(task).is_some_and(|end| end <= stop) || ran_in_last_burst(task, stop);
        Verdict { endless, loops, essential: !endless && !loops && ended(task).is_some() && before }
    };
    history.tasks.iter().zip(endless(history, said, limits)).map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::SwitchExtras;

    #[test]
    fn a_wait_for_another_in_the_kernel_on_the_way_out_is_part_of_the_exit() {
        let slept = |deep| EventKind::Off(Off::Slept { deep, extras: SwitchExtras::default(), held: false });
        let woken = |by| EventKind::Woken { by, cpu: 0 };
        let (on, preempted) = (EventKind::On { cpu: 0 }, EventKind::Off(Off::Preempted { interrupt: None }));
        let by_task = By::Task { waker: 1, wake: 0 };
        let task = |out: &[EventKind]| {
            let events = [woken(By::Unknown), on, preempted, on, preempted, on, preempted, on];
            let all = events.iter().chain(out).chain(&[EventKind::Exiting, EventKind::Off(Off::Ended)]).enumerate();
            let mut task = TaskHistory::new(0, First::Forked, 0);
            task.events = all.map(|(i, kind)| crate::history::TaskEvent { at: 100 * i as Ns, kind: *kind }).collect();
            task
        };
        let hog = |out: &[EventKind]| {
            let task = task(out);
            (exit_begun(&task), last_burst(&task))
        };
        assert_eq!(hog(&[]), (Some(800), (0, 3)));
        assert_eq!(hog(&[slept(true), woken(by_task), on]), (Some(800), (0, 3)));
        assert_eq!(hog(&[slept(true), woken(by_task), on, preempted, on]).0, Some(800));
        // A device, a sleep of its own, and one behind which it went on.
        assert_eq!(hog(&[slept(true), woken(By::Softirq), on]), (Some(1_100), (900, 0)));
        assert_eq!(hog(&[slept(false), woken(by_task), on]), (Some(1_100), (900, 0)));
        assert_eq!(hog(&[slept(true), woken(by_task), on, preempted, on, preempted, on]).0, Some(1_500));
    }

    #[test]
    fn a_task_that_ends_by_itself_does_not_go_on() {
        let by_timer = By::Hardirq { lead: true };
        let by_task = By::Task { waker: 1, wake: 0 };
        let looping = |last: By, ends: bool, stop: Ns| {
            let mut task = TaskHistory::new(0, First::Forked, 0);
            let slept = EventKind::Off(Off::Slept { deep: false, extras: SwitchExtras::default(), held: false });
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
