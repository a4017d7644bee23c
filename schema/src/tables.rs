//! The derived tables, and those of whole-trace facts.

use crate::strings::StrId;
use crate::{table, State};

/// Bits of `flags` in `slices`, `states` and `runqueue`.
pub mod flag {
    use crate::kinds::bits;
    bits! {
        /// The interval began before the trace: its start is the time of its CPU's first record.
        OPEN_START = 0,
        /// The interval ends after the trace: its end is the time of the trace's last record.
        OPEN_END = 1,
        /// Records were lost within it; in `runqueue`, nobody knows what runs on the CPU.
        CROSSES_LOSS = 2,
        /// Its end was inferred from a later record that contradicts it.
        INFERRED_END = 3,
        /// A negative duration was clamped to 0 because clocks disagree.
        CLAMPED = 4,
        /// The wakeup was made in interrupt context: the interrupted task is not the waker.
        IRQ_WAKEUP = 5,
        /// The queue length counts waiting tasks that may be elsewhere: no migration was recorded so far.
        ESTIMATED = 6,
        /// Its start was inferred: it came to run on an idle CPU, and no record says when.
        INFERRED_START = 7,
    }
}

table! {
    /// Slices: one row per uninterrupted on-CPU interval of a task (idle has none), by start time.
    Slices, SliceRow, "slices" {
        /// Start, trace clock, ns.
        ts_ns: i64 = "",
        /// Length, ns.
        dur_ns: i64 = "",
        /// CPU.
        cpu: i32 = "the source has no CPU column",
        /// Key of the task in `tasks`.
        utid: u32 = "",
        /// Thread.
        tid: i64 = "",
        /// Process.
        pid: i64 = "the source does not say",
        /// Name when the slice ends: that of a program which is executed in it.
        comm: StrId = "the source does not say",
        /// Priority on the source's scale.
        prio: i32 = "the source does not say",
        /// State in which the task left the CPU.
        end_state: State = "the slice is open, or the source does not say",
        /// True when the task left although it could have gone on (an involuntary switch).
        involuntary: bool = "the slice is open, or the source does not say; yields count as \
            voluntary where the source, or the recorded trace of a replay, distinguishes them",
        /// When a wakeup made the task runnable before this slice; the slice's start less its run delay.
        wake_ts_ns: i64 = "it was not woken since its last slice (preempted, or first seen \
            running), or wakeups were not recorded",
        /// Run delay: from runnable (woken, preempted or new) until running, ns.
        run_delay_ns: i64 = "unknown since when it was runnable",
        /// From the end of the last slice until the wakeup, ns.
        sleep_ns: i64 = "no sleep before this slice, or not recorded",
        /// True when that sleep was uninterruptible (Linux D) or for a lock.
        blocked: bool = "no sleep before this slice",
        /// Key of the task that woke it.
        waker_utid: u32 = "not woken, or woken in interrupt context",
        /// CPU on which the waker ran.
        waker_cpu: i32 = "not woken, or not stated",
        /// CPU of the task's previous slice.
        prev_cpu: i32 = "first slice",
        /// `seq` of the event that began it.
        seq_in: u64 = "open at the start",
        /// `seq` of the event that ended it.
        seq_out: u64 = "open at the end",
        /// Bits: see the docs page.
        flags: u16 = "",
    }
}

table! {
    /// States: the life of each task as intervals without gap or overlap, from its first record to
    /// its end or that of the trace, by start time.
    States, StateRow, "states" {
        /// Start, trace clock, ns.
        ts_ns: i64 = "",
        /// Length, ns.
        dur_ns: i64 = "",
        /// Key of the task in `tasks`.
        utid: u32 = "",
        /// Thread.
        tid: i64 = "",
        /// Name.
        comm: StrId = "the source does not say",
        /// State; `unknown` where records were lost.
        state: State = "",
        /// CPU it runs on, or on whose queue it waits.
        cpu: i32 = "asleep, or unknown",
        /// What it slept on (wait channel, lock, blocking function).
        reason: StrId = "the source does not say",
        /// Bits: see the docs page.
        flags: u16 = "",
    }
}

table! {
    /// Run queues as a step function: a row when the length of a CPU's queue changes.
    Runqueue, RunqueueRow, "runqueue" {
        /// From when, trace clock, ns.
        ts_ns: i64 = "",
        /// Whose queue.
        cpu: i32 = "tasks that are runnable on an unknown CPU",
        /// Tasks running on it: 0 or 1.
        nr_running: i32 = "",
        /// Tasks runnable and waiting.
        nr_waiting: i32 = "",
        /// Bits: see the docs page.
        flags: u16 = "",
    }
}

table! {
    /// Tasks: one row per thread; a thread number that is used again is another task.
    Tasks, TaskRow, "tasks" {
        /// Key; idle tasks come first, one a CPU.
        utid: u32 = "",
        /// Thread.
        tid: i64 = "",
        /// Process.
        pid: i64 = "the source does not say",
        /// Last name.
        comm: StrId = "never stated",
        /// First name.
        comm_first: StrId = "never stated",
        /// Program of its last exec.
        exec_path: StrId = "no exec seen",
        /// Key of the task that made it.
        parent_utid: u32 = "its fork was not seen",
        /// True for the idle task of a CPU.
        is_idle: bool = "",
        /// CPU of an idle task.
        idle_cpu: i32 = "not an idle task",
        /// First record that names it.
        first_ts_ns: i64 = "",
        /// Last record that names it.
        last_ts_ns: i64 = "",
        /// Its fork.
        start_ts_ns: i64 = "not seen",
        /// Its exit.
        end_ts_ns: i64 = "not seen",
        /// Best (numerically lowest) priority seen.
        prio_min: i32 = "never stated",
        /// Numerically highest priority seen.
        prio_max: i32 = "never stated",
        /// Time on CPUs, ns, open slices included.
        run_ns: i64 = "",
        /// Slices, open ones included.
        nr_slices: u64 = "",
        /// Switches out of a CPU while it could have gone on.
        nr_involuntary: u64 = "slices that a tool printed without saying how they ended",
        /// Switches out of a CPU to sleep, wait, stop or end.
        nr_voluntary: u64 = "slices that a tool printed without saying how they ended",
    }
}

table! {
    /// CPUs: one row per CPU that emitted a record. Busy, idle and unknown time make up the time
    /// from its first record to the last of the trace.
    Cpus, CpuRow, "cpus" {
        /// CPU.
        cpu: i32 = "",
        /// First record.
        first_ts_ns: i64 = "",
        /// Last record.
        last_ts_ns: i64 = "",
        /// Records.
        nr_events: u64 = "",
        /// Switches.
        nr_switches: u64 = "",
        /// Records known to be lost.
        nr_lost: u64 = "a loss of unknown size happened",
        /// Time during which a task other than idle ran, ns.
        busy_ns: i64 = "",
        /// Time during which idle ran, ns.
        idle_ns: i64 = "",
        /// Time during which nobody knows what ran (before its first record, around losses), ns.
        unknown_ns: i64 = "",
        /// Largest step of time backwards, ns.
        max_backstep_ns: i64 = "",
    }
}

table! {
    /// Losses: intervals in which the source lost records.
    Losses, LossRow, "losses" {
        /// CPU whose records were lost.
        cpu: i32 = "the source does not say; all CPUs are suspect",
        /// Last record before the loss.
        ts_from_ns: i64 = "the loss is before the first record",
        /// First record after it.
        ts_to_ns: i64 = "the loss is after the last record",
        /// Number of records lost.
        count: i64 = "unknown",
        /// How: overwrite, ring_full, drops, wraparound, chunk.
        cause: StrId = "",
    }
}

table! {
    /// Programs: what each task does, free of when it did it; one row per step, in order, as a
    /// replay runs it.
    ProgramTable, ProgramRow, "program" {
        /// Number of the task in the program (a thread number that is used again is another task).
        task: u32 = "",
        /// Thread.
        tid: i64 = "",
        /// Process.
        pid: i64 = "the source does not say",
        /// Name.
        comm: StrId = "the source does not say",
        /// Number of the step in the task's program, from 0.
        step: u32 = "",
        /// run, run_kernel, sleep, wait, post, yield, fork, exec, attrs, exiting, exit or loop.
        op: StrId = "",
        /// CPU demand of a run, length of a sleep, ns.
        dur_ns: i64 = "the step has none, or is endless",
        /// What ends a sleep: timer, period (`dur_ns` is from the last expiry of the task's timer),
        /// ticks, io, external, absolute (`until_ns`) or dependency (a wait).
        ends_by: StrId = "not a sleep",
        /// End of an absolute sleep or a loop, ns from the start of the trace.
        until_ns: i64 = "neither an absolute sleep nor a loop",
        /// How much later than asked for a timer may fire, ns.
        slack_ns: i64 = "not a timer",
        /// The waker, the woken task, or the child.
        partner_tid: i64 = "the step concerns no other task",
        /// Semaphore that a wait takes from and a post gives to.
        sem: u32 = "neither a wait nor a post",
        /// What the step rests on: recorded, task, hardirq, shared-hardirq, softirq-at-tick,
        /// softirq, reaped, censored, endless, looped or none.
        evidence: StrId = "",
        /// When it happened in the recording, trace clock, ns.
        ts_ns: i64 = "",
        /// True where the trace began or ended in the step: its length is a lower bound.
        censored: bool = "",
    }
}

table! {
    /// Diagnostics: what was skipped, repaired, inferred or lost.
    DiagnosticTable, DiagnosticRow, "diagnostics" {
        /// info, loss or error.
        severity: StrId = "",
        /// What happened; codes are listed in the docs.
        code: StrId = "",
        /// How often.
        count: u64 = "",
        /// Byte offset of the first occurrence in the (decompressed) source.
        offset: u64 = "no position",
        /// Line of the first occurrence, from 1.
        line: u64 = "not a text format",
        /// CPU concerned.
        cpu: i32 = "all or none",
        /// Trace time of the first occurrence, ns.
        ts_ns: i64 = "no time",
        /// What was expected and what was found.
        message: StrId = "",
        /// What can be done.
        advice: StrId = "nothing to do",
    }
}

table! {
    /// Histograms that a tool printed (DTrace aggregations, runqlat), one row a bucket.
    Histograms, HistogramRow, "histograms" {
        /// Title the tool printed.
        title: StrId = "none printed",
        /// Key of the aggregation.
        key: StrId = "a single histogram",
        /// Lower bound of the bucket, included.
        lo: i64 = "unbounded",
        /// Upper bound, excluded.
        hi: i64 = "unbounded",
        /// Samples in the bucket.
        count: i64 = "",
        /// Unit of the bounds.
        unit: StrId = "not stated",
    }
}

table! {
    /// Summaries that a tool printed (perf sched latency, curt), one row a figure.
    Summaries, SummaryRow, "summaries" {
        /// Section of the report.
        section: StrId = "",
        /// What the figure is about: a task, a CPU.
        subject: StrId = "the whole trace",
        /// Thread.
        tid: i64 = "not about one thread",
        /// Name of the figure.
        key: StrId = "",
        /// The figure.
        value: f64 = "printed as text",
        /// The figure as text, where it is not a number.
        text: StrId = "it is a number",
        /// Unit.
        unit: StrId = "a count or a ratio",
    }
}
