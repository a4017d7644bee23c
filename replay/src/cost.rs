//! What scheduling itself costs, apart from any policy. All default to nothing.

use crate::task::Ns;

/// Cost of making a task, as a function of the tasks alive: how process numbers are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForkCost {
    /// The recorded demand of the parent holds it already.
    #[default]
    AsRecorded,
    /// A constant, whatever is alive (bitmap or hash of process numbers).
    Constant(Ns),
    /// `base` and `each` for every task alive (the list of tasks is scanned for a free number).
    ListScan {
        /// Fixed part.
        base: Ns,
        /// Per live task.
        each: Ns,
    },
    /// `base`, and `refill` at each fork for which no freed slot is at hand (table with a free list).
    FreeList {
        /// Fixed part.
        base: Ns,
        /// When the free list is empty.
        refill: Ns,
    },
}

/// Costs of the machine and kernel, in ns of CPU time taken from whoever runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// From the decision to switch until the new task's own work begins.
    pub switch: Ns,
    /// Part of `switch` after which the switch is recorded; interrupts wait until then.
    pub record: Ns,
    /// A clock tick.
    pub tick: Ns,
    /// An interrupt that wakes a task (timer, device).
    pub interrupt: Ns,
    /// A wakeup made by a task, added to its demand.
    pub wakeup: Ns,
    /// Per task that the policy says it looked at when choosing ([`Kernel::scanned`](crate::policy::Kernel::scanned)).
    pub scan: Ns,
    /// Per task that the policy says it walked over in its 1 Hz work.
    pub second: Ns,
    /// A fork.
    pub fork: ForkCost,
}
