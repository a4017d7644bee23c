//! What happened, in a compact form that costs little per record. [`crate::emit`] turns it into events.

use crate::policy::Wake;
use crate::task::{Cpu, Ns, TaskId};

/// Kind of a [`Rec`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecKind {
    /// `a` leaves (state in `x`), `b` enters.
    Switch,
    /// `a` is woken by `b`; `x` says what woke it.
    Wake,
    /// `a` is new on a queue; made by `b`.
    New,
    /// `b` makes `a`.
    Fork,
    /// `a` executes a program.
    Exec,
    /// `a` begins to exit.
    Exiting,
    /// `a` ends.
    Exit,
    /// `a` moves; `x` is the CPU it comes from.
    Migrate,
    /// `a` changes its attributes.
    Attrs,
    /// `a` is there from the start, runnable.
    Initial,
    /// `b` puts message `x` into queue `a`.
    Sent,
    /// `a` has done what message `x` asks for.
    Served,
}

/// State in which a task left its CPU, in [`Rec::x`].
pub mod left {
    /// Preempted.
    pub const PREEMPTED: u32 = 0;
    /// Yielded.
    pub const YIELDED: u32 = 1;
    /// Interruptible sleep.
    pub const SLEEPING: u32 = 2;
    /// Uninterruptible sleep.
    pub const BLOCKED: u32 = 3;
    /// Ended.
    pub const DEAD: u32 = 4;
}

/// What woke a task, in the low bits of [`Rec::x`]; above them the CPU on which that was done.
pub mod by {
    /// How many bits.
    pub const BITS: u32 = 2;
    /// The bits.
    pub const MASK: u32 = (1 << BITS) - 1;
    /// A task.
    pub const TASK: u32 = 0;
    /// A timer interrupt.
    pub const TIMER: u32 = 1;
    /// A device interrupt.
    pub const IO: u32 = 2;
    /// Something outside.
    pub const EXTERNAL: u32 = 3;
}

/// Stands for the idle task, or for nobody.
pub const IDLE: u32 = u32::MAX;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rec {
    /// Time.
    pub ts: Ns,
    /// Kind.
    pub kind: RecKind,
    /// CPU.
    pub cpu: u16,
    /// Task, or [`IDLE`].
    pub a: u32,
    /// Other task, or [`IDLE`].
    pub b: u32,
    /// More.
    pub x: u32,
}

/// Records in the order in which they happened.
#[derive(Debug, Default)]
pub struct Log {
    /// The records.
    pub recs: Vec<Rec>,
    /// False keeps nothing (for measurements of the engine itself).
    pub keep: bool,
}

impl Log {
    #[inline]
    pub(crate) fn add(&mut self, ts: Ns, kind: RecKind, cpu: Cpu, a: u32, b: u32, x: u32) {
        if self.keep {
            self.recs.push(Rec { ts, kind, cpu: cpu as u16, a, b, x });
        }
    }

    #[inline]
    pub(crate) fn wake(&mut self, ts: Ns, t: TaskId, cpu: Cpu, wake: Wake, here: Option<Cpu>) {
        let (b, x, place) = match wake {
            Wake::Task { waker, cpu, .. } => (waker.0, by::TASK, cpu),
            Wake::Timer => (IDLE, by::TIMER, here.unwrap_or(cpu)),
            Wake::Io => (IDLE, by::IO, here.unwrap_or(cpu)),
            Wake::External => (IDLE, by::EXTERNAL, here.unwrap_or(cpu)),
        };
        self.add(ts, RecKind::Wake, cpu, t.0, b, x | (place as u32) << by::BITS);
    }

    #[inline]
    pub(crate) fn migrate(&mut self, ts: Ns, t: TaskId, from: Cpu, to: Cpu) {
        self.add(ts, RecKind::Migrate, to, t.0, IDLE, from as u32);
    }
}
