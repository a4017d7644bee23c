//! Attributes that a replay gives to tasks in place of the recorded ones.

use crate::program::{Group, Program, Start, Step, Workload};
use crate::replay::{Override, ReplayError};
use crate::task::{Attrs, SchedPolicy, TaskId};
use crate::Owner;

/// Applies what is `stated` and then what is `asked` in order. CPUs in them are meant by their
/// recorded numbers.
///
/// A task that is made in the trace begins with what its parent has at that moment, as every fork
/// hands it on, and has its own attributes from where it set attributes in the recorded run; where
/// no record shows that it did, from when it first runs.
pub(crate) fn apply(
    stated: &[Override],
    asked: &[Override],
    cpus: &[i32],
    work: &mut Workload,
) -> Result<(), ReplayError> {
    let mut touched = vec![false; work.tasks.len()];
    for (i, set) in stated.iter().chain(asked).enumerate() {
        let change = |attrs: &mut Attrs| -> Result<(), ReplayError> {
            // What it had reserved holds while it was under SCHED_DEADLINE.
            let reserved = set.set.iter().any(|(key, _)| key == "deadline");
            if i < stated.len() && reserved && attrs.policy != SchedPolicy::Deadline {
                return Ok(());
            }
            set.set.iter().try_for_each(|(key, value)| attrs.set(key, value).map_err(ReplayError::Set))?;
            if set.set.iter().any(|(key, _)| key == "cpus") {
                attrs.affinity = attrs.affinity.numbered(cpus).map_err(ReplayError::Set)?;
            }
            Ok(())
        };
        for (task, touched) in work.tasks.iter_mut().zip(&mut touched) {
            if set.which.holds(task.tid, &task.comm) {
                *touched = true;
                change(&mut task.first)?;
                task.attrs.iter_mut().try_for_each(change)?;
                if set.set.iter().any(|(key, _)| key == "cpus") {
                    // Who says where it may run says more than where it was.
                    let places = task.steps.iter_mut().filter(|s| matches!(s, Step::Place { .. }));
                    places.for_each(|step| *step = Step::Run { ns: 0 });
                }
            }
        }
    }
    if touched.contains(&true) {
        inherit(work, &touched);
    }
    Ok(())
}

/// Lets the tasks that were `touched` begin with the attributes of their parents. A task that a request
/// handler makes has the parent that receives the request.
fn inherit(work: &mut Workload, touched: &[bool]) {
    let doers = work.doers();
    let mut children: Vec<Vec<(TaskId, usize)>> = vec![Vec::new(); work.tasks.len()];
    let mut forked = vec![false; work.tasks.len()];
    for (owner, steps) in work.bodies() {
        for (i, step) in steps.iter().enumerate() {
            let Step::Fork { child, .. } = *step else { continue };
            let parent = match owner {
                Owner::Task(t) => Some((t, i)),
                Owner::Handler(j) => doers[j],
            };
            if let (Some((t, at)), false) = (parent, forked[child.index()]) {
                children[t].push((child, at));
                forked[child.index()] = true;
            }
        }
    }
    // Parents before their children: who begins with what is known from the top.
    let mut ready: Vec<usize> = (0..forked.len()).filter(|t| !forked[*t]).collect();
    while let Some(parent) = ready.pop() {
        let of_parent = std::mem::take(&mut children[parent]);
        let had: Vec<Attrs> = of_parent.iter().map(|(_, at)| attrs_at(&work.tasks[parent], *at).clone()).collect();
        for ((child, _), from) in of_parent.iter().zip(&had) {
            let task = &mut work.tasks[child.index()];
            if touched[child.index()] && task.start == Start::Forked {
                begin_as(task, from);
            }
            ready.push(child.index());
        }
    }
}

/// The attributes of a task when it comes to step `at` of its program.
fn attrs_at(task: &Program, at: usize) -> &Attrs {
    let set =
        task.steps[..at].iter().rev().find_map(|s| if let Step::SetAttrs { attrs } = *s { Some(attrs) } else { None });
    set.map_or(&task.first, |i| &task.attrs[i as usize])
}

/// Makes `task` begin with what a fork hands on of `from`.
fn begin_as(task: &mut Program, from: &Attrs) {
    // A task with a reservation cannot fork.
    if from.policy == SchedPolicy::Deadline {
        return;
    }
    let own = task.first.clone();
    let first = Attrs { policy: from.policy, nice: from.nice, rt_prio: from.rt_prio, slice: from.slice, ..own.clone() };
    if first == own {
        return;
    }
    task.first = first;
    let sleeps = |s: &Step| matches!(s, Step::Pause { .. } | Step::Wait { .. } | Step::Receive { .. });
    let sets_itself = task.steps.iter().take_while(|s| !sleeps(s)).any(|s| matches!(s, Step::SetAttrs { .. }));
    if sets_itself {
        return;
    }
    task.attrs.push(own);
    for step in &mut task.steps {
        if let Step::Goto { step } | Step::LoopUntil { step, .. } = step {
            *step += 1;
        }
    }
    task.steps.insert(0, Step::SetAttrs { attrs: task.attrs.len() as u32 - 1 });
}

/// Makes the groups that `asked` and the tasks name, and those that they lie within.
pub(crate) fn make_groups(asked: &[(String, Vec<(String, String)>)], work: &mut Workload) -> Result<(), ReplayError> {
    let mut names: Vec<String> = asked.iter().map(|g| g.0.trim_start_matches('/').to_owned()).collect();
    for task in &mut work.tasks {
        for attrs in std::iter::once(&mut task.first).chain(&mut task.attrs) {
            if let Some(group) = &mut attrs.group {
                *group = group.trim_start_matches('/').into();
                names.push(group.to_string());
            }
        }
    }
    for name in names {
        for (end, _) in name.match_indices('/').chain([(name.len(), "")]) {
            if !work.groups.iter().any(|g| g.name == name[..end]) {
                work.groups.push(Group::new(&name[..end]));
            }
        }
    }
    for (name, settings) in asked {
        let name = name.trim_start_matches('/');
        let Some(group) = work.groups.iter_mut().find(|g| g.name == name) else { continue };
        for (key, value) in settings {
            group.set(key, value).map_err(|e| ReplayError::Set(format!("group {name}: {e}")))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Fork, HandlerId, QueueId};
    use crate::replay::Which;
    use crate::task::Sleep;

    fn set(tid: i64, key: &str, value: &str) -> Override {
        Override { which: Which::Tids(vec![tid]), set: vec![(key.into(), value.into())] }
    }

    fn family() -> Workload {
        let fork = |child| Step::Fork { child: TaskId(child), how: Fork::Fork };
        let run = Step::Run { ns: 1_000 };
        let parent = Program::new("parent", 1, vec![run, fork(1)]);
        let mut child = Program::new("child", 2, vec![run, fork(2), Step::Goto { step: 0 }]);
        let mut grandchild = Program::new("grandchild", 3, vec![run]);
        child.start = Start::Forked;
        grandchild.start = Start::Forked;
        Workload { tasks: vec![parent, child, grandchild], ..Workload::default() }
    }

    #[test]
    fn a_quota_is_lifted_by_either_word() {
        for word in ["off", "max"] {
            let mut group = crate::program::Group::new("web");
            group.set("quota", "5ms/10ms").expect("valid");
            assert_eq!(group.quota, Some((5_000_000, 10_000_000)));
            group.set("quota", word).expect("valid");
            assert_eq!(group.quota, None);
        }
        let refused = crate::program::Group::new("web").set("quota", "none").unwrap_err();
        assert!(refused.ends_with("such as 50ms/100ms, or off"), "{refused}");
    }

    #[test]
    fn a_forked_task_begins_as_its_parent_and_changes_when_it_runs() {
        let mut work = family();
        apply(&[], &[set(2, "nice", "5")], &[0], &mut work).expect("valid");
        let child = &work.tasks[1];
        assert_eq!((child.first.nice, child.steps[0]), (0, Step::SetAttrs { attrs: 0 }));
        assert_eq!((child.attrs[0].nice, child.steps[3]), (5, Step::Goto { step: 1 }));
        assert_eq!(work.tasks[2], family().tasks[2]);
    }

    #[test]
    fn a_child_that_a_handler_makes_begins_as_the_task_that_receives_the_request() {
        let mut work = family();
        let (queue, handler) = (QueueId(0), HandlerId(0));
        let Some(fork) = work.tasks[0].steps.pop() else { unreachable!("the parent forks") };
        work.tasks[0].steps.push(Step::Receive { queue, sleep: Sleep::Interruptible });
        work.handlers.push(vec![Step::Run { ns: 1_000 }, fork]);
        work.queues = 1;
        work.tasks.push(Program::new("client", 9, vec![Step::Send { queue, handler }]));
        apply(&[], &[set(1, "nice", "4"), set(2, "nice", "5")], &[], &mut work).expect("valid");
        let child = &work.tasks[1];
        assert_eq!((child.first.nice, child.attrs[0].nice), (4, 5));
    }

    #[test]
    fn a_child_of_a_task_with_the_same_attributes_has_them_from_the_start() {
        let mut work = family();
        let all =
            Override { which: Which::All, set: vec![("policy".into(), "fifo".into()), ("prio".into(), "3".into())] };
        apply(&[], &[all], &[0], &mut work).expect("valid");
        for task in &work.tasks {
            assert_eq!((task.first.policy, task.first.rt_prio), (SchedPolicy::Fifo, 3));
            assert!(!matches!(task.steps[0], Step::SetAttrs { .. }));
        }
    }

    #[test]
    fn a_child_that_was_seen_to_set_its_attributes_has_them_from_there() {
        let mut work = family();
        work.tasks[1].attrs.push(Attrs { nice: 3, ..Attrs::default() });
        work.tasks[1].steps.insert(1, Step::SetAttrs { attrs: 0 });
        apply(&[], &[set(2, "nice", "7"), set(3, "nice", "7")], &[0], &mut work).expect("valid");
        let child = &work.tasks[1];
        assert_eq!((child.first.nice, child.attrs.len(), child.attrs[0].nice), (0, 1, 7));
        // The grandchild is made behind that change.
        assert_eq!((work.tasks[2].first.nice, work.tasks[2].attrs.len()), (7, 0));
    }
}
