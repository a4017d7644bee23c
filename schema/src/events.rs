//! The `events` table: one row per source record, nothing inferred.

use crate::strings::{StrId, TextId};
use crate::{table, Kind, State};

/// Bits of `irq_flags`: what the kernel printed about the context of a record.
pub mod irq {
    use crate::kinds::bits;
    bits! {
        /// Interrupts were disabled.
        IRQS_OFF = 0,
        /// A reschedule was asked for.
        NEED_RESCHED = 1,
        /// A reschedule was asked for by the preemption count.
        PREEMPT_RESCHED = 2,
        /// A lazy reschedule was asked for.
        LAZY_RESCHED = 3,
        /// In a hardware interrupt handler.
        HARDIRQ = 4,
        /// In a softirq handler.
        SOFTIRQ = 5,
        /// In a non-maskable interrupt.
        NMI = 6,
        /// Bottom halves were disabled.
        BH_OFF = 7,
    }
    /// Bits 8-11 hold the preemption depth.
    pub const PREEMPT_DEPTH_SHIFT: u32 = 8;
    /// Bits 12-15 hold the migrate-disable depth.
    pub const MIGRATE_DISABLE_SHIFT: u32 = 12;
    /// Any interrupt context: the interrupted task is not the cause of the record.
    pub const IN_INTERRUPT: u16 = HARDIRQ | SOFTIRQ | NMI;
}

/// Bits of `quality`: what is known to be imperfect about a record.
pub mod quality {
    use crate::kinds::bits;
    bits! {
        /// Its time was rounded to the microsecond by the tool that printed it.
        TS_ROUNDED_US = 0,
        /// Its time was cut to the microsecond by the tool that printed it.
        TS_TRUNCATED_US = 1,
        /// Records were lost next to it.
        NEAR_LOSS = 2,
        /// It stood out of time order in the source.
        OUT_OF_ORDER = 3,
        /// The recorder made it up (the task list that perf writes at its start).
        SYNTHESIZED = 4,
        /// It may be a copy of another record.
        DUPLICATE_SUSPECT = 5,
        /// The text it was read from is ambiguous or lost something (a name with blanks, a cut field).
        LOSSY_TEXT = 6,
        /// Its CPU was inferred from its surroundings.
        CPU_INFERRED = 7,
        /// Its payload was understood in part; the rest is in `raw`.
        PARSE_PARTIAL = 8,
    }
}

table! {
    /// One row per source record, in time order (ties in source order); nothing is inferred.
    Events, EventRow, "events" {
        /// Time in the trace clock (metadata `clock.*`), ns; raw ticks where `clock.unit` says so.
        ts_ns: i64 = "",
        /// CPU that emitted the record.
        cpu: i32 = "the source has no CPU column",
        /// Ordinal of the record in the source, from 0: breaks ties of time.
        seq: u64 = "",
        /// What the record says.
        kind: Kind = "",
        /// Thread that was running on `cpu` when the record was made (the waker of a waking).
        ctx_tid: i64 = "the source does not say",
        /// Process of `ctx_tid`.
        ctx_pid: i64 = "the source does not say",
        /// Name of `ctx_tid` as the source prints it.
        ctx_comm: StrId = "unknown to the source (`<...>`, `:123`)",
        /// Thread the record is about: the one leaving at a switch, the woken one, the child of a
        /// fork, the one exiting or migrated.
        tid: i64 = "no subject, or not stated",
        /// Process of `tid`.
        pid: i64 = "the source does not say",
        /// Name of `tid` in the payload.
        comm: StrId = "the payload has no name",
        /// Priority of `tid` on the source's own scale (metadata `prio.scale`).
        prio: i32 = "the payload has no priority",
        /// Switch only: thread entering the CPU.
        next_tid: i64 = "not a switch, or half a switch",
        /// Switch only: process of `next_tid`.
        next_pid: i64 = "the source does not say",
        /// Switch only: name of `next_tid`.
        next_comm: StrId = "the source does not say",
        /// Switch only: priority of `next_tid`.
        next_prio: i32 = "the source does not say",
        /// Switch only: state in which `tid` left.
        state: State = "not a switch, or not stated",
        /// The state as the source writes it (`R+`, `D|K`).
        state_raw: StrId = "not a switch, or not stated",
        /// CPU a wakeup or migration goes to; the queue's CPU for enqueue, dequeue and load; the CPU
        /// that a frequency, a capacity or an idle state is of.
        target_cpu: i32 = "the record names none",
        /// CPU a migration comes from.
        orig_cpu: i32 = "not a migration",
        /// Why: wait channel, lock, wait reason, blocking function.
        reason: StrId = "the source does not say",
        /// Scheduling class or policy (TS, IA, RT, OTHER, FIFO, ...).
        class: StrId = "the source does not say",
        /// The record's number; each kind says which.
        value: i64 = "the kind has none",
        /// The record's second number; each kind says which.
        value2: i64 = "the kind has none",
        /// Name of an interrupt, system call, file or marker; the record's own name for kind `other`.
        name: StrId = "the kind has none",
        /// Interrupt and preemption context, as bits (see the docs page).
        irq_flags: u16 = "the source does not print it",
        /// What is imperfect about the record, as bits; 0 when nothing is.
        quality: u16 = "",
        /// The payload as text, for kind `other` and partly understood records.
        raw: TextId = "the record was understood",
    }
}
