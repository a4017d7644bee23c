//! Tasks that take turns: a few that wake each other, of which never more than one works.
//!
//! Two that call and answer through pipes, or a chain of calls, hold one message among them:
//! whoever has it works, and passes it on. So every change of who works is a message, whether a
//! wakeup shows it or its reader was still awake. Nothing has to be guessed, where it holds: two
//! that work at the same time, or a wakeup that is no such change, contradict it, and are counted.

use std::collections::HashMap;

use super::flow::Flow;
use super::network::Network;
use super::{Mark, Message};
use crate::history::{History, TaskHistory, TaskIndex};
use crate::task::Ns;

/// A slice of one of the tasks.
#[derive(Clone, Copy, Debug)]
struct Slice {
    from: Ns,
    to: Ns,
    task: TaskIndex,
}

/// The slices of a task; those in which it only looks for a message, and finds none, are left out.
fn slices_of(task: &TaskHistory, short: Ns) -> impl Iterator<Item = Slice> + '_ {
    let own = task.slices(Ns::MAX).filter(move |s| s.wakes || s.to - s.on > short);
    own.map(|s| Slice { from: s.on, to: s.to, task: task.id })
}

/// Wakeups of the tasks among each other: by waker, in the order of time, with the task that was
/// woken and the number.
fn wakeups(net: &Network, history: &History, members: &[TaskIndex]) -> HashMap<TaskIndex, Vec<(Ns, TaskIndex, u32)>> {
    let inside = |task: TaskIndex| net.station[task as usize].is_some();
    let of = |m: &TaskIndex| {
        let events = history.tasks[*m as usize].events.iter();
        let posts = events.filter_map(|a| Some((a.at, a.kind.post()?)));
        let own = posts.map(|(at, wake)| (at, history.wakee[wake as usize], wake)).filter(|p| inside(p.1));
        (*m, own.collect())
    };
    members.iter().map(of).collect()
}

/// The messages of tasks that take turns; none where the network is not such a group. What
/// contradicts it is counted as unmatched.
pub(super) fn turns(net: &Network, history: &History) -> Option<Flow> {
    let members = net.members();
    let alone = |s: &super::network::Station| s.members.len() <= 1;
    let woken_only = members.iter().all(|m| net.server[*m as usize]);
    if members.len() < 2 || !woken_only || !net.stations.iter().all(alone) {
        return None;
    }
    let mut all: Vec<Slice> = members.iter().flat_map(|m| slices_of(&history.tasks[*m as usize], net.short)).collect();
    all.sort_by_key(|s| (s.from, s.to));
    let wakeups = wakeups(net, history, &members);
    let mut flow = Flow { marks: vec![Vec::new(); history.tasks.len()], ..Flow::default() };
    let mut turns = all.iter();
    let mut at_work = *turns.next()?;
    for next in turns {
        if next.task == at_work.task {
            at_work.to = next.to;
            continue;
        }
        flow.unmatched += usize::from(at_work.to > next.from + net.short);
        let number = flow.messages.len() as u32;
        flow.messages.push(Message { taken: true, ..Message::default() });
        let posts = &wakeups[&at_work.task];
        let before = posts.partition_point(|p| p.0 <= next.from);
        let shows = posts[..before].iter().rev().take_while(|p| p.0 >= at_work.from).find(|p| p.1 == next.task);
        match shows {
            Some((_, _, wake)) => {
                flow.of_wake.insert(*wake, number);
            }
            None => {
                flow.unobserved += 1;
                let sent = at_work.to.min(next.from) - net.short / 2;
                flow.marks[at_work.task as usize].push((sent.max(at_work.from), Mark::Send(number)));
            }
        }
        flow.marks[next.task as usize].push((next.from, Mark::Take(number)));
        at_work = *next;
    }
    // Wakeups that are no change of turns.
    let shown: usize = wakeups.values().map(Vec::len).sum();
    flow.unmatched += shown - flow.of_wake.len();
    flow.marks.iter_mut().for_each(|marks| marks.sort_by_key(|m| m.0));
    Some(flow)
}

/// What a message of a turn is to a replay: a unit of its own that the next one waits for, not work
/// that any of a pool may do.
pub(super) fn as_calls(net: &Network) -> Network {
    let mut calls = net.clone();
    calls.server.fill(false);
    calls
}
