//! The closed vocabularies: what a record says, and why a task left its CPU.

/// Declares the bits of a flags column: a constant each, and the list of all for the docs.
macro_rules! bits {
    ($(#[doc = $doc:literal] $name:ident = $bit:literal,)*) => {
        $(#[doc = $doc] pub const $name: u16 = 1 << $bit;)*
        /// Every bit: its number, its name, what it says.
        pub const BITS: &[(u32, &str, &str)] = &[$(($bit, stringify!($name), $doc),)*];
    };
}
pub(crate) use bits;

/// Declares an enum whose variants have a string in tables and a sentence in the docs.
macro_rules! vocabulary {
    ($(#[$meta:meta])* $name:ident { $($(#[doc = $doc:literal])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name { #[default] $($(#[doc = $doc])* $variant,)* }

        impl $name {
            /// Every value, in the order of its code.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
            /// The strings of [`Self::ALL`].
            pub const NAMES: &'static [&'static str] = &[$($text,)*];
            /// What each value means.
            pub const DOCS: &'static [&'static str] = &[$(concat!($($doc),*),)*];

            /// The string that tables hold.
            pub const fn as_str(self) -> &'static str {
                Self::NAMES[self as usize]
            }

            /// The value with this string.
            pub fn from_name(text: &str) -> Option<Self> {
                Self::NAMES.iter().position(|n| *n == text).map(|i| Self::ALL[i])
            }
        }
    };
}

vocabulary! {
    /// What a record says. One source record has one kind.
    Kind {
        /// A record that tracekit keeps but has no kind for; `name` holds its own name.
        Other = "other",
        /// A task leaves a CPU and another enters; `tid` leaves, `next_tid` enters (either null for
        /// half a switch).
        Switch = "switch",
        /// A wakeup starts: the waker decided; `ctx_tid` is the waker, `tid` the woken task.
        Waking = "waking",
        /// The woken task is on a run queue.
        Wakeup = "wakeup",
        /// A new task is on a run queue for the first time.
        WakeupNew = "wakeup_new",
        /// A task moves from `orig_cpu` to `target_cpu`.
        Migrate = "migrate",
        /// `ctx_tid` makes `tid`.
        Fork = "fork",
        /// `tid` executes another program.
        Exec = "exec",
        /// `tid` ends.
        Exit = "exit",
        /// The kernel frees a dead task.
        Free = "free",
        /// `ctx_tid` starts to wait for a child (`tid`, 0 for any).
        Wait = "wait",
        /// A task changes its name to `comm`, or has it when the recording starts; `value` is then
        /// its parent, where the source says it.
        Comm = "comm",
        /// A task is put on the run queue of `target_cpu`.
        Enqueue = "enqueue",
        /// A task is taken off the run queue of `target_cpu`.
        Dequeue = "dequeue",
        /// The running task is about to be preempted.
        Preempt = "preempt",
        /// The running task gives up the CPU of its own will and stays runnable.
        Yield = "yield",
        /// The dispatcher chose the running task again.
        Remain = "remain",
        /// The running task is about to sleep.
        Sleep = "sleep",
        /// A clock tick hit `tid`.
        Tick = "tick",
        /// The priority of `tid` becomes `value`.
        Prio = "prio",
        /// `tid` inherits priority `value`.
        PiBoost = "pi_boost",
        /// `tid` loses an inherited priority.
        PiUnboost = "pi_unboost",
        /// The kernel's own account: `tid` waited `value` ns while runnable.
        StatWait = "stat_wait",
        /// The kernel's own account: `tid` slept `value` ns.
        StatSleep = "stat_sleep",
        /// The kernel's own account: `tid` was blocked `value` ns.
        StatBlocked = "stat_blocked",
        /// The kernel's own account: `tid` waited `value` ns for I/O.
        StatIowait = "stat_iowait",
        /// The kernel's own account: `tid` ran `value` ns; `value2` is its vruntime where printed.
        StatRuntime = "stat_runtime",
        /// Why `tid` was blocked (`reason`), recorded at its wakeup.
        BlockedReason = "blocked_reason",
        /// A hardware interrupt handler starts.
        IrqEntry = "irq_entry",
        /// A hardware interrupt handler ends.
        IrqExit = "irq_exit",
        /// A softirq handler starts.
        SoftirqEntry = "softirq_entry",
        /// A softirq handler ends.
        SoftirqExit = "softirq_exit",
        /// A softirq is asked for.
        SoftirqRaise = "softirq_raise",
        /// A system call starts; `value` is its number, `value2` its file descriptor or the address
        /// of its futex.
        SysEnter = "sys_enter",
        /// A system call ends; `value` is its number, `value2` its result.
        SysExit = "sys_exit",
        /// The CPU enters idle state `value`, or leaves idle (`value` null).
        CpuIdle = "cpu_idle",
        /// The frequency of `target_cpu` becomes `value` kHz.
        CpuFreq = "cpu_freq",
        /// The frequency of `target_cpu` is from now on at most `value` kHz and at least `value2`.
        CpuFreqLimits = "cpu_freq_limits",
        /// The capacity of `target_cpu`, of 1024 for the fastest CPU at its highest frequency: `value`
        /// at its own highest frequency, `value2` at the present one; null what the record leaves out.
        CpuCapacity = "cpu_capacity",
        /// A CPU comes on line.
        CpuOnline = "cpu_online",
        /// A CPU goes off line.
        CpuOffline = "cpu_offline",
        /// The hypervisor preempted this virtual CPU.
        VcpuPreempt = "vcpu_preempt",
        /// A hypervisor call.
        Hcall = "hcall",
        /// A task starts to wait for a lock.
        LockWait = "lock_wait",
        /// A task is woken to take a lock.
        LockWake = "lock_wake",
        /// A task starts or goes on running, without word of who left (DTrace `on-cpu`, AIX `resume`).
        Resume = "resume",
        /// An interrupt on systems that do not say more.
        Interrupt = "interrupt",
        /// Text written into the trace by a program.
        Marker = "marker",
        /// Records were lost before this point; `value` is their number, null when unknown.
        Lost = "lost",
        /// Relates the trace clock to another clock (`value` in the other clock).
        ClockSync = "clock_sync",
        /// Tracing starts.
        TraceOn = "trace_on",
        /// Tracing stops.
        TraceOff = "trace_off",
        /// Run-queue length of `target_cpu` as the source counts it, in `value`.
        Load = "load",
    }
}

vocabulary! {
    /// The state in which a task left its CPU, or in which it is, over all operating systems.
    State {
        /// The source's letter is not in its own table.
        Unknown = "unknown",
        /// On a CPU.
        Running = "running",
        /// Ready to run and waiting for a CPU.
        Runnable = "runnable",
        /// Ready to run: it was preempted.
        Preempted = "preempted",
        /// Gave up its CPU by a yield and is ready to run.
        Yielding = "yielding",
        /// Asleep, and a signal can wake it (Linux S).
        Sleeping = "sleeping",
        /// Asleep, and no signal can wake it (Linux D).
        Blocked = "blocked",
        /// Stopped by job control (T).
        Stopped = "stopped",
        /// Stopped by a debugger (t).
        Traced = "traced",
        /// Ended, its exit status not yet collected (Z).
        Zombie = "zombie",
        /// Ended (X).
        Dead = "dead",
        /// A parked kernel thread (P).
        Parked = "parked",
        /// An idle kernel thread, which does not count as load (I).
        IdleKthread = "idle_kthread",
        /// Asleep until it gets a lock.
        WaitingLock = "waiting_lock",
        /// Held back by a CPU cap or quota.
        Capped = "capped",
        /// Off the CPU, and the source does not say why.
        UnknownOff = "unknown_off",
    }
}

impl State {
    /// True for a task that left its CPU although it could have gone on: an involuntary switch or a yield.
    pub const fn is_runnable(self) -> bool {
        matches!(self, State::Running | State::Runnable | State::Preempted | State::Yielding)
    }

    /// True for a task that will not run again.
    pub const fn is_end(self) -> bool {
        matches!(self, State::Zombie | State::Dead)
    }
}
