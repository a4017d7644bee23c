//! What the records of a trace measure, one step at a time.

use crate::reconstruct::history::LifeId;
use crate::task::Ns;

/// A measured step between two records, for the estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// From the only wakeup of an interrupt to the switch it caused.
    IrqToSwitch(Ns),
    /// From the last of several wakeups of an interrupt to the switch that they caused.
    LastIrqToSwitch(Ns),
    /// From the only wakeup of an interrupt, on a CPU that had not switched for long.
    ColdIrqToSwitch(Ns),
    /// From a task's last wakeup of another to the switch it caused.
    WakeToSwitch(Ns),
    /// Between two wakeups of one interrupt.
    IrqStep(Ns),
    /// From the wakeup of an idle CPU to the switch.
    IdleToSwitch(Ns),
    /// From the record of a fork to the record that the child is queued, the parent running on.
    ForkToNew(Ns),
    /// Charged time from a tick to the reschedule it caused.
    TickToReschedule(Ns),
    /// From a tick's record to the switch it caused, less [`Sample::TickToReschedule`].
    TickToSwitch(Ns),
    /// From a tick's record to the first wakeup in its interrupt, and the time charged between the two.
    TickToWakeup {
        /// Between the records.
        records: Ns,
        /// Charged.
        charged: Ns,
    },
    /// From a switch to the first wakeup by an interrupt, where nothing lies between.
    SwitchToIrq(Ns),
    /// A stay that began with a wakeup preemption and ended with a sleep: time between records, less charged time.
    Record(Ns),
    /// A whole stay between two switches, without interrupt.
    Stay(Ns),
    /// A short stay that ended with a sleep: whose, with how many ticks and wakeups by interrupts, and how long.
    Burst {
        /// Task.
        life: LifeId,
        /// Ticks.
        ticks: u32,
        /// Wakeups made in interrupts.
        wakes: u32,
        /// Length.
        ns: Ns,
        /// Position of its end among the acts of the life.
        end: usize,
    },
}
