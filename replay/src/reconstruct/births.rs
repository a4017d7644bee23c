//! Who made the tasks of which no record says that they were made.
//!
//! A trace of switches and wakeups alone has neither `sched_process_fork` nor `sched_wakeup_new`: a new
//! task shows at its first switch. Three things tell it from one that waited since the trace began. It
//! has the name of the task that made it until it executes a program (fork(2), prctl(2) PR_SET_NAME).
//! No task of the trace waited for as long as it would have. And the task whose name it has ran not
//! longer before than tasks wait.

use std::collections::HashMap;

use tracekit_schema::StrId;

use crate::history::{By, EventKind, First, History, Off, TaskEvent, TaskHistory, TaskIndex};
use crate::program::Fork;
use crate::task::{Ns, NEVER};

/// A task whose first record is a switch to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unannounced {
    pub(super) task: TaskIndex,
    /// When.
    pub(super) at: Ns,
    /// Its CPU had been idle before.
    pub(super) idled: bool,
}

/// Says how each task began that nothing announced, in the order of time; `births` is true where new tasks
/// are recorded.
///
/// Where wakeups and new tasks are recorded, it was runnable when the trace began, on the CPU from which it
/// was pulled. Elsewhere it was so only if its CPU had not been idle (a CPU does not idle beside a
/// runnable task) and no longer than tasks of this trace are seen to wait; else it was made, by the task that
/// [`Ran::parent`] finds, or a wakeup that is not in the trace came.
pub(super) fn settle(history: &mut History, unannounced: &[Unannounced], births: bool) {
    if history.wakes && births || unannounced.is_empty() {
        return;
    }
    let longest = history.tasks.iter().map(longest_wait).max().unwrap_or(0);
    let ran = (!births).then(|| Ran::of(history, longest));
    for &Unannounced { task, at, idled } in unannounced {
        // It turned out to be idle.
        if history.tasks[task as usize].events.is_empty() {
            continue;
        }
        let late = idled || longest > 0 && at > longest;
        let renamed = history.tasks[task as usize].named.len() > 1;
        let made = renamed || late && history.wakes;
        let parent = ran.as_ref().filter(|_| made).and_then(|ran| ran.parent(history, task, at));
        if let Some((parent, when)) = parent {
            history.unmade.0 += 1;
            make(history, (parent, when), task);
        } else if late {
            history.unmade.1 += u64::from(!births);
            let task = &mut history.tasks[task as usize];
            task.first = First::Asleep;
            let kind = EventKind::Woken { by: By::Unknown, cpu: task.cpu };
            task.events.insert(0, TaskEvent { at, kind });
        }
    }
}

/// The longest time for which a task was seen to wait for a CPU.
fn longest_wait(task: &TaskHistory) -> Ns {
    let mut since = None;
    let mut longest = 0;
    for event in &task.events {
        match event.kind {
            EventKind::Woken { .. } | EventKind::Off(Off::Preempted { .. } | Off::Yielded) => since = Some(event.at),
            EventKind::On { .. } => longest = longest.max(since.take().map_or(0, |since| event.at - since)),
            EventKind::Off(_) => since = None,
            _ => {}
        }
    }
    longest
}

/// `child` was made at `when`, which lies within a slice of `parent`.
fn make(history: &mut History, (parent, when): (TaskIndex, Ns), child: TaskIndex) {
    let (made, by) = (&history.tasks[child as usize], &history.tasks[parent as usize]);
    let how = if made.pid.is_some() && made.pid == by.pid { Fork::Thread } else { Fork::Fork };
    let events = &mut history.tasks[parent as usize].events;
    let mut place = events.partition_point(|a| a.at <= when);
    // It is in the slice still, not behind its end.
    while place > 0 && events[place - 1].at == when && !matches!(events[place - 1].kind, EventKind::On { .. }) {
        place -= 1;
    }
    events.insert(place, TaskEvent { at: when, kind: EventKind::Fork { child, how } });
    let child = &mut history.tasks[child as usize];
    (child.first, child.parent, child.unmade) = (First::Forked, Some(parent), true);
}

/// A slice.
#[derive(Clone, Copy, Debug)]
struct Slice {
    on: Ns,
    off: Ns,
    task: TaskIndex,
    /// The last end of this slice and all before it.
    last: Ns,
}

/// Who had which name and ran when.
struct Ran {
    /// By name, in the order of their beginnings: slices of tasks that had the name all the time, and those
    /// in which they got it or another.
    by_name: HashMap<StrId, [Vec<Slice>; 2]>,
    longest: Ns,
}

impl Ran {
    fn of(history: &History, longest: Ns) -> Self {
        let mut by_name: HashMap<StrId, [Vec<Slice>; 2]> = HashMap::new();
        for task in &history.tasks {
            for crate::history::Slice { on, to: off, .. } in task.slices(NEVER) {
                let slice = Slice { on, off, task: task.id, last: 0 };
                let (from, to) = (task.name_at(on), task.name_at(off));
                for name in [from, to.filter(|_| to != from)].into_iter().flatten() {
                    by_name.entry(name).or_default()[usize::from(to != from)].push(slice);
                }
            }
        }
        for slices in by_name.values_mut().flatten() {
            slices.sort_unstable_by_key(|slice| (slice.on, slice.task));
            let mut last = 0;
            for slice in slices {
                last = slice.off.max(last);
                slice.last = last;
            }
        }
        Ran { by_name, longest }
    }

    /// The task that made `child`, which was first seen at `at`, and when: of those that had the name that
    /// it began with, the one that it woke when it ended (that one waited for it), else the one that ran
    /// last; before those that got another name meanwhile, as its sisters do.
    fn parent(&self, history: &History, child: TaskIndex, at: Ns) -> Option<(TaskIndex, Ns)> {
        let made = &history.tasks[child as usize];
        let lists = self.by_name.get(&made.name_at(at)?)?;
        let woken = if made.ended().is_some() { woken_last(history, made) } else { Vec::new() };
        let waited = lists.iter().filter(|_| !woken.is_empty());
        let waited = waited.filter_map(|list| self.latest(list, at, |task| woken.contains(&task)));
        let ran = lists.iter().filter_map(|list| self.latest(list, at, |task| task != child));
        let slice = waited.chain(ran).next()?;
        Some((slice.task, slice.off.min(at)))
    }

    /// The slice of one that fits which ended last before `at`, or had not ended by then; not longer ago than
    /// tasks wait.
    fn latest(&self, slices: &[Slice], at: Ns, fits: impl Fn(TaskIndex) -> bool) -> Option<Slice> {
        let begun = slices.partition_point(|slice| slice.on < at);
        let mut best: Option<Slice> = None;
        for slice in slices[..begun].iter().rev() {
            let found = best.map_or(at - self.longest - 1, |best| best.off.min(at));
            if slice.last.min(at) <= found {
                break;
            }
            if slice.off.min(at) > found && fits(slice.task) {
                best = Some(*slice);
            }
        }
        best
    }
}

/// Whom a task woke in its last slice.
fn woken_last(history: &History, task: &TaskHistory) -> Vec<TaskIndex> {
    let last = task.events.iter().rev().take_while(|a| !matches!(a.kind, EventKind::On { .. }));
    last.filter_map(|a| a.kind.post()).map(|wake| history.wakee[wake as usize]).collect()
}
