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

/// A CPU without a switch for this long is cold.
pub const LONG_STAY: Ns = 900_000;

/// Costs of the machine and kernel, in ns of CPU time taken from whoever runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// From the decision to switch until the new task's own work begins.
    pub switch: Ns,
    /// Part of `switch` after which the switch is recorded; interrupts wait until then.
    pub record: Ns,
    /// A clock tick, until the interrupted work goes on.
    pub tick: Ns,
    /// A clock tick, until the reschedule that it asks for.
    pub tick_resched: Ns,
    /// From a wakeup made in an interrupt until the interrupted work goes on or the CPU switches.
    pub interrupt: Ns,
    /// Added to `interrupt` when the CPU had not switched for [`LONG_STAY`]: what was not used lately takes longer.
    pub interrupt_cold: Ns,
    /// The same as `interrupt` when the CPU was idle.
    pub idle_exit: Ns,
    /// From one wakeup made in an interrupt to the next one in the same interrupt.
    pub next_wakeup: Ns,
    /// A wakeup made by a task, added to its demand.
    pub wakeup: Ns,
    /// Per task that the policy says it looked at when choosing ([`Kernel::scanned`](crate::policy::Kernel::scanned)).
    pub scan: Ns,
    /// Per task that the policy says it walked over in its 1 Hz work.
    pub second: Ns,
    /// A fork.
    pub fork: ForkCost,
}
