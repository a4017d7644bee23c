//! Which column each field of each tracepoint goes to. Data, not code: a new event is a new row.

use tracekit_schema::Kind;

/// Where a field goes. Columns of the `events` table, with a few that need more than a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum To {
    Tid,
    Comm,
    Prio,
    State,
    NextTid,
    NextComm,
    NextPrio,
    TargetCpu,
    OrigCpu,
    Value,
    Value2,
    Name,
    /// `value`, null for the all-ones number that means `leaves idle`.
    IdleState,
    /// `value`, and `name` from the symbol table in the event's print format.
    Symbol,
    /// `name` without the line end that programs write after it.
    Marker,
    /// `reason`, from an address in the kernel.
    Address,
}

/// One tracepoint: system, name, what it says, and its fields. A field that a kernel lacks is null.
pub type Row = (&'static str, &'static str, Kind, &'static [(&'static str, To)]);

const WAKEUP: &[(&str, To)] = &[
    ("comm", To::Comm),
    ("pid", To::Tid),
    ("prio", To::Prio),
    ("success", To::Value),
    ("target_cpu", To::TargetCpu),
    ("cpu", To::TargetCpu),
];
const TASK: &[(&str, To)] = &[("comm", To::Comm), ("pid", To::Tid), ("prio", To::Prio)];
const DELAY: &[(&str, To)] = &[("comm", To::Comm), ("pid", To::Tid), ("delay", To::Value)];
/// Two modules turn the tracepoint `sched_cpu_capacity_tp` into an event. What real time and interrupts
/// leave of a capacity (`capacity`) is no speed.
const CAPACITY: &[(&str, To)] = &[("capacity_orig", To::Value), ("capacity_curr", To::Value2), ("cpu", To::TargetCpu)];
const SOFTIRQ: &[(&str, To)] = &[("vec", To::Symbol)];

/// Every tracepoint that has a kind of its own. System calls have two more: see [`syscall`].
pub const ROWS: &[Row] = &[
    (
        "sched",
        "sched_switch",
        Kind::Switch,
        &[
            ("prev_comm", To::Comm),
            ("prev_pid", To::Tid),
            ("prev_prio", To::Prio),
            ("prev_state", To::State),
            ("next_comm", To::NextComm),
            ("next_pid", To::NextTid),
            ("next_prio", To::NextPrio),
        ],
    ),
    ("sched", "sched_waking", Kind::Waking, WAKEUP),
    ("sched", "sched_wakeup", Kind::Wakeup, WAKEUP),
    ("sched", "sched_wakeup_new", Kind::WakeupNew, WAKEUP),
    (
        "sched",
        "sched_migrate_task",
        Kind::Migrate,
        &[
            ("comm", To::Comm),
            ("pid", To::Tid),
            ("prio", To::Prio),
            ("orig_cpu", To::OrigCpu),
            ("dest_cpu", To::TargetCpu),
        ],
    ),
    ("sched", "sched_process_fork", Kind::Fork, &[("child_comm", To::Comm), ("child_pid", To::Tid)]),
    ("sched", "sched_process_exec", Kind::Exec, &[("filename", To::Name), ("pid", To::Tid), ("old_pid", To::Value)]),
    ("sched", "sched_process_exit", Kind::Exit, TASK),
    ("sched", "sched_process_free", Kind::Free, TASK),
    ("sched", "sched_process_wait", Kind::Wait, TASK),
    ("sched", "sched_stat_wait", Kind::StatWait, DELAY),
    ("sched", "sched_stat_sleep", Kind::StatSleep, DELAY),
    ("sched", "sched_stat_blocked", Kind::StatBlocked, DELAY),
    ("sched", "sched_stat_iowait", Kind::StatIowait, DELAY),
    (
        "sched",
        "sched_stat_runtime",
        Kind::StatRuntime,
        &[("comm", To::Comm), ("pid", To::Tid), ("runtime", To::Value), ("vruntime", To::Value2)],
    ),
    (
        "sched",
        "sched_pi_setprio",
        Kind::Prio,
        &[("comm", To::Comm), ("pid", To::Tid), ("oldprio", To::Prio), ("newprio", To::Value)],
    ),
    (
        "sched",
        "sched_blocked_reason",
        Kind::BlockedReason,
        &[("pid", To::Tid), ("io_wait", To::Value), ("caller", To::Address)],
    ),
    ("task", "task_newtask", Kind::Fork, &[("pid", To::Tid), ("comm", To::Comm)]),
    ("task", "task_rename", Kind::Comm, &[("pid", To::Tid), ("newcomm", To::Comm)]),
    ("irq", "irq_handler_entry", Kind::IrqEntry, &[("irq", To::Value), ("name", To::Name)]),
    ("irq", "irq_handler_exit", Kind::IrqExit, &[("irq", To::Value), ("ret", To::Value2)]),
    ("irq", "softirq_entry", Kind::SoftirqEntry, SOFTIRQ),
    ("irq", "softirq_exit", Kind::SoftirqExit, SOFTIRQ),
    ("irq", "softirq_raise", Kind::SoftirqRaise, SOFTIRQ),
    ("raw_syscalls", "sys_enter", Kind::SysEnter, &[("id", To::Value)]),
    ("raw_syscalls", "sys_exit", Kind::SysExit, &[("id", To::Value), ("ret", To::Value2)]),
    ("power", "cpu_idle", Kind::CpuIdle, &[("state", To::IdleState), ("cpu_id", To::TargetCpu)]),
    ("power", "cpu_frequency", Kind::CpuFreq, &[("state", To::Value), ("cpu_id", To::TargetCpu)]),
    (
        "power",
        "cpu_frequency_limits",
        Kind::CpuFreqLimits,
        &[("max_freq", To::Value), ("min_freq", To::Value2), ("cpu_id", To::TargetCpu)],
    ),
    ("power", "cpu_capacity", Kind::CpuCapacity, &[("state", To::Value2), ("cpu_id", To::TargetCpu)]),
    ("sched", "sched_cpu_capacity", Kind::CpuCapacity, CAPACITY),
    ("lisa", "lisa__sched_cpu_capacity", Kind::CpuCapacity, CAPACITY),
    ("ftrace", "print", Kind::Marker, &[("buf", To::Marker)]),
];

/// The row of an event; `system` is empty where the container does not say it.
pub fn row(system: &str, event: &str) -> Option<&'static Row> {
    ROWS.iter().find(|(of, name, ..)| *name == event && (system.is_empty() || *of == system))
}

/// Kind and name of one of the many `syscalls:sys_enter_read` events.
pub fn syscall(event: &str) -> Option<(Kind, &str)> {
    match event.strip_prefix("sys_enter_") {
        Some(name) => Some((Kind::SysEnter, name)),
        None => event.strip_prefix("sys_exit_").map(|name| (Kind::SysExit, name)),
    }
}

/// Fields of system-call events; the number was called `nr` before 4.x.
pub const SYSCALL: &[(&str, To)] =
    &[("__syscall_nr", To::Value), ("nr", To::Value), ("ret", To::Value2), ("fd", To::Value2), ("uaddr", To::Value2)];
