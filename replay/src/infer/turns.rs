//! Tasks that take turns: a few that wake each other, of which never more than one works.
//!
//! Two that call and answer through pipes, or a chain of calls, hold one message among them:
//! whoever has it works, and passes it on. So every change of who works is a message, whether a
//! wakeup shows it or its reader was still awake. Nothing has to be guessed, where it holds: two
//! that work at the same time, or a wakeup that is no such change, contradict it, and are counted.

use std::collections::HashMap;

use super::flow::{Flow, Mark, Message};
use super::network::Network;
use crate::history::{History, Life, LifeId, What};
use crate::task::Ns;

/// A stay of one of the tasks on a CPU.
#[derive(Clone, Copy, Debug)]
struct Stay {
    from: Ns,
    to: Ns,
    life: LifeId,
}

/// The stays of a task; those in which it only looks for a message, and finds none, are left out.
fn stays(life: &Life, short: Ns) -> Vec<Stay> {
    let mut found = Vec::new();
    let (mut on, mut posted) = (None, false);
    for act in &life.acts {
        match act.what {
            What::On { .. } => (on, posted) = (Some(act.at), false),
            What::Post { .. } => posted = true,
            What::Off(_) => {
                if let Some(from) = on.take().filter(|from| posted || act.at - from > short) {
                    found.push(Stay { from, to: act.at, life: life.id });
                }
            }
            _ => {}
        }
    }
    if let Some(from) = on {
        found.push(Stay { from, to: Ns::MAX, life: life.id });
    }
    found
}

/// Wakeups of the tasks among each other: by waker, in the order of time, with the task that was
/// woken and the number.
fn wakeups(net: &Network, history: &History, members: &[LifeId]) -> HashMap<LifeId, Vec<(Ns, LifeId, u32)>> {
    let inside = |life: LifeId| net.station[life as usize].is_some();
    let of = |m: &LifeId| {
        let acts = history.lives[*m as usize].acts.iter();
        let posts = acts.filter_map(|a| if let What::Post { wake } = a.what { Some((a.at, wake)) } else { None });
        let own = posts.map(|(at, wake)| (at, history.wakee[wake as usize], wake)).filter(|p| inside(p.1));
        (*m, own.collect())
    };
    members.iter().map(of).collect()
}

/// The messages of tasks that take turns; none where the network is not such a group. What
/// contradicts it is counted as unpaid.
pub(super) fn turns(net: &Network, history: &History) -> Option<Flow> {
    let members = net.members();
    let alone = |s: &super::network::Station| s.members.len() <= 1;
    let woken_only = members.iter().all(|m| net.server[*m as usize]);
    if members.len() < 2 || !woken_only || !net.stations.iter().all(alone) {
        return None;
    }
    let mut all: Vec<Stay> = members.iter().flat_map(|m| stays(&history.lives[*m as usize], net.short)).collect();
    all.sort_by_key(|s| (s.from, s.to));
    let wakeups = wakeups(net, history, &members);
    let mut flow = Flow { marks: vec![Vec::new(); history.lives.len()], ..Flow::default() };
    let mut turns = all.iter();
    let mut at_work = *turns.next()?;
    for next in turns {
        if next.life == at_work.life {
            at_work.to = next.to;
            continue;
        }
        flow.unpaid += usize::from(at_work.to > next.from + net.short);
        let number = flow.messages.len() as u32;
        flow.messages.push(Message { station: None, taken: true, request: None });
        let posts = &wakeups[&at_work.life];
        let before = posts.partition_point(|p| p.0 <= next.from);
        let shows = posts[..before].iter().rev().take_while(|p| p.0 >= at_work.from).find(|p| p.1 == next.life);
        match shows {
            Some((_, _, wake)) => {
                flow.of_wake.insert(*wake, number);
            }
            None => {
                flow.hidden += 1;
                let sent = at_work.to.min(next.from) - net.short / 2;
                flow.marks[at_work.life as usize].push((sent.max(at_work.from), Mark::Send(number)));
            }
        }
        flow.marks[next.life as usize].push((next.from, Mark::Take(number)));
        at_work = *next;
    }
    // Wakeups that are no change of turns.
    let shown: usize = wakeups.values().map(Vec::len).sum();
    flow.unpaid += shown - flow.of_wake.len();
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
