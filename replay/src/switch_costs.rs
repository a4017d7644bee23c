//! What a switch costs more or less where it is another than the recorded one.
//!
//! The cost of a switch that a trace shows is that of its own kernel and scheduling classes:
//! choosing the next task takes the fair class longer than the real-time class, and EEVDF longer
//! than CFS. A replay under another kernel, or with tasks in another class, changes each switch by
//! the difference of two tables, both measured elsewhere. Without tables nothing changes.

use crate::program::Workload;
use crate::task::Ns;

/// Entries of a [`SwitchCosts`].
pub const SWITCH_KINDS: usize = 12;

/// Why a task leaves its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// It stays ready to run.
    Ready,
    /// It sleeps or ends.
    Sleeps,
    /// An interrupt has just woken the task that comes.
    Woken,
}

/// What a switch takes from the account of the task that leaves (behind an interrupt, from its
/// wakeup) to the record of the switch, by the class that leaves, the class that comes, and why the
/// first leaves: see [`SwitchCosts::at`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchCosts(pub [Option<Ns>; SWITCH_KINDS]);

impl SwitchCosts {
    /// Place of an entry: 6 where the task that leaves is real time, 3 where the one that comes is,
    /// and the place of the reason.
    pub fn at(leaves_rt: bool, comes_rt: bool, why: Leaves) -> usize {
        6 * usize::from(leaves_rt) + 3 * usize::from(comes_rt) + why as usize
    }
}

/// The tables of the recorded kernel and of the replayed one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchCostChange {
    /// Of the recorded kernel.
    pub recorded: SwitchCosts,
    /// Of the one that is replayed.
    pub replayed: SwitchCosts,
}

impl SwitchCostChange {
    /// By how much a switch takes longer than recorded. Each task has two classes, as recorded and
    /// as replayed; the kernel's two tables are looked up with them. Where one does not know,
    /// nothing changes.
    pub fn shift(&self, leaves: (bool, bool), comes: (bool, bool), why: Leaves) -> Ns {
        let was = self.recorded.0[SwitchCosts::at(leaves.0, comes.0, why)];
        let is = self.replayed.0[SwitchCosts::at(leaves.1, comes.1, why)];
        was.zip(is).map_or(0, |(was, is)| is - was)
    }
}

/// Whether each task is real time or has a reservation, once it has set its attributes.
pub(crate) fn realtime(work: &Workload) -> Vec<bool> {
    work.tasks.iter().map(|p| p.attrs.last().unwrap_or(&p.first).policy.is_above_fair()).collect()
}

/// Notes the recorded class of the tasks that `was` finds in another than now.
pub(crate) fn note_changes(work: &mut Workload, was: &[bool]) {
    let is = realtime(work);
    for (task, (was, is)) in work.tasks.iter_mut().zip(was.iter().zip(is)) {
        task.was_rt = (*was != is).then_some(*was);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_changes_by_the_difference_of_the_tables_where_both_know() {
        let mut change = SwitchCostChange::default();
        change.recorded.0[SwitchCosts::at(false, false, Leaves::Ready)] = Some(6_300);
        change.recorded.0[SwitchCosts::at(false, true, Leaves::Sleeps)] = Some(5_000);
        change.replayed.0[SwitchCosts::at(true, true, Leaves::Ready)] = Some(4_200);
        assert_eq!(change.shift((false, true), (false, true), Leaves::Ready), -2_100);
        // The other table has no such entry.
        assert_eq!(change.shift((false, false), (true, true), Leaves::Sleeps), 0);
        let same = SwitchCostChange { recorded: change.recorded, replayed: change.recorded };
        assert_eq!(same.shift((false, false), (false, false), Leaves::Ready), 0);
    }
}
