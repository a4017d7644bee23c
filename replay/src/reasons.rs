//! Why hooks are called: what a policy is given besides the task and the CPU.

use crate::program::Fork;
use crate::task::{Cpu, TaskId};

/// Who or what woke a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A task that runs on `cpu`.
    Task {
        /// The waker.
        waker: TaskId,
        /// CPU on which it runs.
        cpu: Cpu,
        /// True when it says that it will sleep soon.
        sync: bool,
    },
    /// A timer interrupt.
    Timer,
    /// A device interrupt.
    Io,
    /// Something that the replay does not model.
    External,
}

/// Why a CPU is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// The task wakes.
    Wakeup(Wake),
    /// The task is new.
    Fork,
    /// The task executes another program: it has no cache to lose.
    Exec,
}

/// Why a task comes to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueue {
    /// It was there before the replay began: no credit and no debt.
    Initial,
    /// It was made just now by its parent ([`crate::task::Task::parent`]).
    Fork,
    /// It wakes.
    Wakeup(Wake),
    /// It leaves its CPU against its will (preempted, slice used up).
    Preempted,
    /// It yields.
    Yielded,
    /// It comes from another CPU's queue.
    Migrated,
    /// It comes from another scheduling class of the stack.
    SwitchedTo,
}

/// Why a queued task that does not run is taken out of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dequeue {
    /// It goes to another CPU.
    Migrated,
    /// It goes to another scheduling class of the stack.
    SwitchedFrom,
}

/// Why a task stops running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Against its will; `enqueue(Preempted)` follows.
    Preempted,
    /// It yielded; `enqueue(Yielded)` follows.
    Yielded,
    /// It sleeps.
    Slept,
    /// It ended.
    Exited,
    /// It goes to another scheduling class of the stack and goes on running there.
    SwitchedFrom,
}

/// Where a task comes from, for `init_task`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth {
    /// The task that makes it.
    pub parent: TaskId,
    /// How.
    pub how: Fork,
}
