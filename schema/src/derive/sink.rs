//! What the state machine says, and to whom: typed transitions, and the rows of tables.
//!
//! A [`Sink`] takes what it needs and leaves the rest: every method does nothing by default, and
//! the machine is compiled anew for each sink, so what nobody takes costs nothing.
//! [`Tables`](super::Tables) is one sink, the task timelines that a replay is built from are
//! another. Tasks go by their key (`utid`), CPUs by their slot: the order in which they first
//! appeared.

use crate::{Kind, State, StrId};

/// The record that the next transitions come from.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Its time.
    pub ts: i64,
    /// Its kind.
    pub kind: Kind,
    /// Slot of its CPU.
    pub cpu: Option<usize>,
    /// Number of its CPU.
    pub number: Option<i32>,
    /// Interrupt and reschedule flags ([`crate::events::irq`]), where the source states them.
    pub irq: Option<u16>,
}

/// Why a task left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was preempted, as the record says.
    Preempted,
    /// It stayed ready; the record does not say whether it was preempted or yielded.
    Ready,
    /// It yielded, as the source says.
    Yielded,
    /// It sleeps, in this state.
    Slept(State),
    /// It ended.
    Ended,
    /// A switch or more is missing: nobody knows.
    Unknown,
}

/// What a wakeup does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It ends a sleep, or the time in which nobody knew what the task did.
    Wakes,
    /// A new task is queued for the first time.
    Starts,
    /// It was recorded before the sleeper's own switch, at this time, and ends the sleep as it begins.
    Overtook(i64),
    /// It was recorded after the task ran again: it ended the sleep before that slice, whose
    /// beginning is the time.
    Late,
    /// Nothing: the task was awake.
    Nothing,
}

/// What a record says of the speed of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// Its frequency from now on, kHz.
    Frequency(i64),
    /// The highest that its frequency may be from now on, kHz.
    Limit(i64),
    /// Its capacity at its highest frequency, of 1024 for the fastest CPU.
    Capacity(i64),
    /// Its capacity at the present frequency.
    Present(i64),
}

/// Something that happened to a task or on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// A task is made runnable.
    Wake {
        /// Whom.
        task: u32,
        /// The task that had the CPU, unless it was interrupted.
        waker: Option<u32>,
        /// Slot of the CPU on which the wakeup was made.
        cpu: Option<usize>,
        /// Slot of the CPU to whose queue the task goes.
        target: Option<usize>,
        /// Interrupt flags of the wakeup, where stated.
        irq: Option<u16>,
        /// What it does.
        effect: Effect,
    },
    /// A task begins to run.
    SwitchIn {
        /// Who.
        task: u32,
        /// Slot of the CPU.
        cpu: Option<usize>,
        /// Its priority, where the record says it.
        prio: Option<i32>,
        /// The switch was recorded; else the task is known to have run since then.
        seen: bool,
    },
    /// A CPU becomes idle.
    Idle {
        /// Slot of the CPU.
        cpu: usize,
    },
    /// A task stops running; one that was not known to run may stop, too.
    SwitchOut {
        /// Who.
        task: u32,
        /// Slot of the CPU.
        cpu: Option<usize>,
        /// Why.
        why: Why,
        /// Its priority, where the record says it.
        prio: Option<i32>,
        /// Priority of whoever comes next; none for idle.
        next: Option<i32>,
    },
    /// A task moves to another queue.
    Migrate {
        /// Who.
        task: u32,
        /// Slot of the CPU to which it goes.
        target: usize,
    },
    /// A clock tick is recorded.
    Tick {
        /// Slot of the CPU.
        cpu: usize,
    },
    /// The kernel's own account of the CPU time of a task.
    Charge {
        /// Whose.
        task: u32,
        /// Slot of the CPU.
        cpu: Option<usize>,
        /// CPU time since the last charge, ns.
        ran: i64,
        /// Virtual run time, where printed.
        vruntime: Option<i64>,
    },
    /// A task makes another.
    Fork {
        /// Who, where known.
        parent: Option<u32>,
        /// The new task.
        child: u32,
        /// It belongs to the same process.
        thread: bool,
        /// Slot of the CPU.
        cpu: Option<usize>,
    },
    /// A task executes another program.
    Exec {
        /// Who.
        task: u32,
    },
    /// A task begins to exit; it still runs until its last switch.
    Exit {
        /// Who.
        task: u32,
    },
    /// A task calls wait for a child.
    Wait {
        /// Who.
        task: u32,
        /// Thread number of the child; 0 for any.
        child: i64,
    },
    /// A task enters or leaves a system call.
    Call {
        /// Who.
        task: u32,
        /// It enters; else it leaves.
        enters: bool,
        /// Name of the call, where the record states it.
        name: Option<StrId>,
        /// The file that it enters with, where it is about one, or the result that it leaves with.
        value: Option<i64>,
    },
    /// A task gets another priority.
    Prio {
        /// Who.
        task: u32,
        /// The new one.
        prio: i32,
    },
    /// A task is named, by its first name or another; the first priority that a record states comes so, too.
    About {
        /// Who.
        task: u32,
        /// Its name.
        comm: Option<StrId>,
        /// Its priority.
        prio: Option<i32>,
    },
    /// A record says how fast a CPU is or may be.
    Speed {
        /// Number of the CPU.
        cpu: i32,
        /// What it says.
        what: Speed,
    },
    /// Records were lost.
    Lost {
        /// Slot of the CPU; none where nobody knows.
        cpu: Option<usize>,
        /// The last record before the loss.
        from: i64,
    },
    /// The trace ends.
    End,
}

/// An on-CPU interval: a row of `slices`.
#[derive(Clone, Copy, Debug)]
pub struct SliceRow {
    /// Begin.
    pub ts: i64,
    /// Length.
    pub dur: i64,
    /// CPU.
    pub cpu: Option<i32>,
    /// Task.
    pub utid: u32,
    /// Its thread.
    pub tid: i64,
    /// Its process.
    pub pid: Option<i64>,
    /// Its name when the interval ended.
    pub comm: Option<StrId>,
    /// Its priority when the interval began.
    pub prio: Option<i32>,
    /// State in which it left.
    pub end_state: Option<State>,
    /// It could have gone on.
    pub involuntary: Option<bool>,
    /// Time since it became runnable.
    pub run_delay: Option<i64>,
    /// CPU of the slice before.
    pub prev_cpu: Option<i32>,
    /// Records at both ends.
    pub seq: (Option<u64>, Option<u64>),
    /// Length of the sleep before, and whether it was uninterruptible.
    pub sleep: Option<(i64, bool)>,
    /// Time, waker and CPU of the wakeup.
    pub wake: Option<(i64, Option<u32>, Option<i32>)>,
    /// Flags.
    pub flags: u16,
}

/// An interval of a task's life: a row of `states`.
#[derive(Clone, Copy, Debug)]
pub struct StateRow {
    /// Begin.
    pub ts: i64,
    /// Length.
    pub dur: i64,
    /// Task.
    pub utid: u32,
    /// Its thread.
    pub tid: i64,
    /// Its name.
    pub comm: Option<StrId>,
    /// State.
    pub state: State,
    /// What it slept on.
    pub reason: Option<StrId>,
    /// CPU on which it runs or waits.
    pub cpu: Option<i32>,
    /// Flags.
    pub flags: u16,
}

/// Length of a queue from `ts` on: a row of `runqueue`.
#[derive(Clone, Copy, Debug)]
pub struct QueueRow {
    /// Since when.
    pub ts: i64,
    /// CPU; none for tasks on a queue that nobody knows.
    pub cpu: Option<i32>,
    /// Tasks that run.
    pub running: i32,
    /// Tasks that wait.
    pub waiting: i32,
    /// Flags.
    pub flags: u16,
}

/// What is known of a task in the end: a row of `tasks`.
#[derive(Clone, Copy, Debug)]
pub struct TaskRow {
    /// Key.
    pub utid: u32,
    /// Thread.
    pub tid: i64,
    /// Process.
    pub pid: Option<i64>,
    /// Last name.
    pub comm: Option<StrId>,
    /// First name.
    pub comm_first: Option<StrId>,
    /// Program that it executed last.
    pub exec_path: Option<StrId>,
    /// The task that made it.
    pub parent: Option<u32>,
    /// It is an idle thread, of this CPU.
    pub idle: bool,
    /// CPU of an idle thread.
    pub idle_cpu: Option<i32>,
    /// First and last time at which a record names it.
    pub seen: (i64, i64),
    /// When it was made.
    pub start_ts: Option<i64>,
    /// When it ended.
    pub end_ts: Option<i64>,
    /// Least and greatest priority.
    pub prio: (Option<i32>, Option<i32>),
    /// CPU time.
    pub run: i64,
    /// Slices, involuntary and voluntary switches.
    pub counts: (u64, u64, u64),
}

/// What is known of a CPU in the end: a row of `cpus`.
#[derive(Clone, Copy, Debug)]
pub struct CpuRow {
    /// Number.
    pub cpu: i32,
    /// First and last record.
    pub seen: (i64, i64),
    /// Records.
    pub events: u64,
    /// Switches.
    pub switches: u64,
    /// Records lost; none where nobody knows how many.
    pub lost: Option<u64>,
    /// Time with a task, idle, and unknown.
    pub time: (i64, i64, i64),
    /// Largest step back of its clock.
    pub max_backstep: i64,
}

/// Whoever listens to the state machine.
pub trait Sink {
    /// A record is about to be read.
    #[inline]
    fn record(&mut self, _record: &Record) {}
    /// A record was read.
    #[inline]
    fn recorded(&mut self, _record: &Record) {}
    /// Something happened at `ts`, which may lie before the record that shows it, never before what
    /// the task did last.
    #[inline]
    fn transition(&mut self, _ts: i64, _what: Transition) {}
    /// An on-CPU interval ended.
    #[inline]
    fn slice(&mut self, _row: &SliceRow) {}
    /// An interval of a task's life ended.
    #[inline]
    fn state(&mut self, _row: &StateRow) {}
    /// A queue changed.
    #[inline]
    fn runqueue(&mut self, _row: &QueueRow) {}
    /// The trace ended: a task.
    #[inline]
    fn task(&mut self, _row: &TaskRow) {}
    /// The trace ended: a CPU.
    #[inline]
    fn cpu(&mut self, _row: &CpuRow) {}
}
