//! The `events` table: one row per source record, nothing inferred.

use crate::strings::StrId;
use crate::{table, Kind, State};

/// Bits of `irq_flags`: what the kernel printed about the context of a record.
#[allow(missing_docs)]
pub mod irq {
    pub const IRQS_OFF: u16 = 1;
    pub const NEED_RESCHED: u16 = 1 << 1;
    pub const PREEMPT_RESCHED: u16 = 1 << 2;
    pub const LAZY_RESCHED: u16 = 1 << 3;
    pub const HARDIRQ: u16 = 1 << 4;
    pub const SOFTIRQ: u16 = 1 << 5;
    pub const NMI: u16 = 1 << 6;
    pub const BH_OFF: u16 = 1 << 7;
    /// Bits 8-11 hold the preemption depth.
    pub const PREEMPT_DEPTH_SHIFT: u32 = 8;
    /// Bits 12-15 hold the migrate-disable depth.
    pub const MIGRATE_DISABLE_SHIFT: u32 = 12;
    /// Any interrupt context: the interrupted task is not the cause of the record.
    pub const IN_INTERRUPT: u16 = HARDIRQ | SOFTIRQ | NMI;
}

/// Bits of `quality`: what is known to be imperfect about a record.
#[allow(missing_docs)]
pub mod quality {
    pub const TS_ROUNDED_US: u16 = 1;
    pub const TS_TRUNCATED_US: u16 = 1 << 1;
    pub const NEAR_LOSS: u16 = 1 << 2;
    pub const OUT_OF_ORDER: u16 = 1 << 3;
    pub const SYNTHESIZED: u16 = 1 << 4;
    pub const DUPLICATE_SUSPECT: u16 = 1 << 5;
    pub const LOSSY_TEXT: u16 = 1 << 6;
    pub const CPU_INFERRED: u16 = 1 << 7;
    pub const PARSE_PARTIAL: u16 = 1 << 8;
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
        /// Thread the record is about: the one leaving at a switch, the woken one, the child of a fork, the one exiting or migrated.
        tid: i64 = "no subject, or not told",
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
        state: State = "not a switch, or not told",
        /// The state as the source writes it (`R+`, `D|K`).
        state_raw: StrId = "not a switch, or not told",
        /// CPU a wakeup or migration goes to; the queue's CPU for enqueue, dequeue and load.
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
        raw: StrId = "the record was understood",
    }
}
