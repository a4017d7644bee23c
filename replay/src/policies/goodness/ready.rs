//! The tasks that could be chosen, so that the best one is found without a walk.
//!
//! Goodness depends on who asks: there is a bonus for tasks that ran on the asking CPU and for
//! those that share memory with the task that ran. So tasks are kept in groups by CPU and process,
//! each in order of goodness without bonus, and the best of all is the best of the first ones of at
//! most four groups. Tasks with a counter of 0 wait apart for the recalculation.

use std::collections::{BTreeSet, HashMap};

use crate::queue::TaskMap;
use crate::task::{Cpu, TaskId};

/// Tasks that ran last on a CPU, of a process; `None` is any.
pub(super) type Group = (Option<Cpu>, Option<u32>);

/// Where a task is.
#[derive(Clone, Copy, Debug, Default)]
enum Placed {
    #[default]
    Nowhere,
    /// Looked at one by one.
    Odd,
    Zero(i64),
    Groups {
        goodness: i64,
        place: i64,
        cpu: Option<Cpu>,
        process: Option<u32>,
    },
}

/// A candidate: goodness, place in the list, task.
pub(super) type Candidate = (i64, i64, TaskId);

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Ready {
    placed: TaskMap<Placed>,
    /// By goodness (negative, so that the best comes first), then place in the list.
    groups: HashMap<Group, BTreeSet<(i64, i64, u32)>>,
    /// Counter 0, by place.
    zero: BTreeSet<(i64, u32)>,
    odd: BTreeSet<u32>,
}

impl Ready {
    fn put(&mut self, t: TaskId, placed: Placed) {
        *self.placed.ensure(t) = placed;
    }

    /// `t` is to be looked at one by one.
    pub(super) fn add_odd(&mut self, t: TaskId) {
        self.odd.insert(t.0);
        self.put(t, Placed::Odd);
    }

    /// `t` has nothing left.
    pub(super) fn add_zero(&mut self, place: i64, t: TaskId) {
        self.zero.insert((place, t.0));
        self.put(t, Placed::Zero(place));
    }

    /// `t` has `goodness` before any bonus; it may get one as a member of the groups of `cpu` and `process`.
    pub(super) fn add(&mut self, goodness: i64, place: i64, t: TaskId, cpu: Option<Cpu>, process: Option<u32>) {
        for group in groups(cpu, process) {
            self.groups.entry(group).or_default().insert((-goodness, place, t.0));
        }
        self.put(t, Placed::Groups { goodness, place, cpu, process });
    }

    /// Takes `t` out; false when it was not there.
    pub(super) fn remove(&mut self, t: TaskId) -> bool {
        match std::mem::take(self.placed.ensure(t)) {
            Placed::Nowhere => return false,
            Placed::Odd => {
                self.odd.remove(&t.0);
            }
            Placed::Zero(place) => {
                self.zero.remove(&(place, t.0));
            }
            Placed::Groups { goodness, place, cpu, process } => {
                for group in groups(cpu, process) {
                    let Some(members) = self.groups.get_mut(&group) else { continue };
                    members.remove(&(-goodness, place, t.0));
                    if members.is_empty() && group != (None, None) {
                        self.groups.remove(&group);
                    }
                }
            }
        }
        true
    }

    /// The best of a group, without bonus.
    pub(super) fn first(&self, group: Group) -> Option<Candidate> {
        self.groups.get(&group)?.first().map(|&(goodness, place, t)| (-goodness, place, TaskId(t)))
    }

    /// The first on the list of those with nothing left.
    pub(super) fn first_zero(&self) -> Option<Candidate> {
        self.zero.first().map(|&(place, t)| (0, place, TaskId(t)))
    }

    /// Those to be looked at one by one.
    pub(super) fn odd(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.odd.iter().map(|&t| TaskId(t))
    }

    /// Takes out all that have nothing left.
    pub(super) fn take_zero(&mut self) -> Vec<TaskId> {
        let all: Vec<TaskId> = std::mem::take(&mut self.zero).into_iter().map(|(_, t)| TaskId(t)).collect();
        for &t in &all {
            self.put(t, Placed::Nowhere);
        }
        all
    }
}

/// All groups to which a task of `cpu` and `process` belongs.
fn groups(cpu: Option<Cpu>, process: Option<u32>) -> impl Iterator<Item = Group> {
    let all = [(None, None), (cpu, None), (None, process), (cpu, process)];
    let wanted = [true, cpu.is_some(), process.is_some(), cpu.is_some() && process.is_some()];
    all.into_iter().zip(wanted).filter(|g| g.1).map(|g| g.0)
}
