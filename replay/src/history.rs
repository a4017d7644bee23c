//! What the timelines note: the dated events of each task, and samples of costs.

use tracekit_schema::StrId;

use crate::program::Fork;
use crate::rates::Recorded;
use crate::task::Ns;

/// Position of a task in [`History::tasks`]: one use of a thread number.
pub type TaskIndex = u32;

/// How a task first shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// It ran on this CPU when the trace began.
    Running,
    /// It waited for a CPU.
    Runnable,
    /// It slept.
    Asleep,
    /// It was made.
    Forked,
}

/// Why a task left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Off {
    /// Against its will; `interrupt` is the time of the interrupt that caused it, where one did.
    Preempted {
        /// First wakeup or tick of that interrupt.
        interrupt: Option<Ns>,
    },
    /// It yielded.
    Yielded,
    /// It sleeps.
    Slept {
        /// Uninterruptibly.
        deep: bool,
    },
    /// It ended.
    Ended,
    /// Records were lost: nobody knows.
    Unknown,
}

/// Who or what woke a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Another task, at its [`EventKind::Post`] with this number.
    Task {
        /// The waker.
        waker: TaskIndex,
        /// Number of the wakeup.
        wake: u32,
    },
    /// A hardware interrupt.
    Hardirq {
        /// The first wakeup of its interrupt, and no tick seen in it: the interrupt came for this one.
        lead: bool,
    },
    /// A softirq.
    Softirq,
    /// The idle loop, or nobody that the records name.
    Unknown,
}

/// One thing that happened to or by a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It enters a CPU; `kernel_prio` as the switch says.
    On {
        /// CPU.
        cpu: i32,
    },
    /// It leaves its CPU.
    Off(Off),
    /// A tick interrupts it.
    Tick,
    /// An interrupt wakes `count` others while it runs.
    Irq {
        /// Wakeups.
        count: u32,
        /// The last of them.
        last: Ns,
    },
    /// It wakes a task; `wake` numbers all wakeups by tasks.
    Post {
        /// Number of the wakeup.
        wake: u32,
    },
    /// It makes a task.
    Fork {
        /// The child.
        child: TaskIndex,
        /// How.
        how: Fork,
    },
    /// It executes a program.
    Exec,
    /// It begins to exit.
    Exiting,
    /// It calls wait for a child (`tid`, 0 for any).
    WaitCall {
        /// Thread waited for.
        tid: i64,
    },
    /// Its kernel priority changes.
    Prio {
        /// New one.
        prio: i32,
    },
    /// It is woken on `cpu`.
    Woken {
        /// By what.
        by: By,
        /// CPU of its queue.
        cpu: i32,
    },
}

impl EventKind {
    /// Number of the wakeup that it makes.
    pub(crate) fn post(self) -> Option<u32> {
        if let EventKind::Post { wake } = self {
            Some(wake)
        } else {
            None
        }
    }

    /// The CPU that it enters.
    pub(crate) fn cpu(self) -> Option<i32> {
        if let EventKind::On { cpu } = self {
            Some(cpu)
        } else {
            None
        }
    }
}

/// A dated [`EventKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskEvent {
    /// Time of the record, from the start of the trace, lost intervals cut out.
    pub at: Ns,
    /// What.
    pub kind: EventKind,
}

/// A stay of a task on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    pub on: Ns,
    pub to: Ns,
    pub cpu: i32,
    /// How it left; not known at the end of the trace.
    pub off: Off,
    /// It woke somebody.
    pub wakes: bool,
}

/// A sleep, and what ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slept {
    pub from: Ns,
    pub deep: bool,
    pub to: Ns,
    pub by: By,
}

/// A system call that reads from a file or writes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// When it was entered; 0 where that was before the trace.
    pub from: Ns,
    /// When it was left; [`Ns::MAX`] where that is not recorded.
    pub to: Ns,
    /// Number of the file; none where the call was entered before the trace.
    pub file: Option<i64>,
    /// It reads; else it writes.
    pub reads: bool,
    /// What it read or wrote, bytes; 0 where it failed.
    pub bytes: i64,
}

/// Everything known of one task.
#[derive(Clone, Debug)]
pub struct TaskHistory {
    /// Its position.
    pub id: TaskIndex,
    /// Thread.
    pub tid: i64,
    /// Process.
    pub pid: Option<i64>,
    /// Last name; none where no record names it.
    pub comm: Option<StrId>,
    /// Its names, and from when on it had each: as records say, so that the first reaches back.
    pub named: Vec<(Ns, StrId)>,
    /// Its name before each of its [`EventKind::Exec`], where one is known.
    pub names: Vec<Option<StrId>>,
    /// Kernel priority at first sight.
    pub prio: Option<i32>,
    /// How it first shows.
    pub first: First,
    /// CPU on which it first shows.
    pub cpu: i32,
    /// The task that made it.
    pub parent: Option<TaskIndex>,
    /// No record says that it was made, nor by whom.
    pub unmade: bool,
    /// What it did.
    pub events: Vec<TaskEvent>,
    /// CPU time charged to it by the kernel's own account, and virtual time added with it.
    pub charged: Ns,
    /// Virtual time added, where the records print it.
    pub virtual_charged: Ns,
    /// CPU time that goes with `virtual_charged`.
    pub virtual_real: Ns,
    /// CPU time of its first charge that lies before the trace.
    pub before: Ns,
    /// It lost its CPU to an equal real-time priority: round robin.
    pub round_robin: bool,
    /// It is the kernel's own thread for softirqs.
    pub softirqs: bool,
    /// Whom it woke, or an interrupt while it had the CPU, and when: each time another one than before.
    pub woke: Vec<(Ns, TaskIndex)>,
    /// What it read and wrote, where such calls were recorded, in the order of time.
    pub calls: Vec<Call>,
}

impl TaskHistory {
    /// A task of which nothing but its first sight is known.
    pub(crate) fn new(id: TaskIndex, first: First, cpu: i32) -> Self {
        TaskHistory {
            id,
            tid: 0,
            pid: None,
            comm: None,
            named: Vec::new(),
            names: Vec::new(),
            prio: None,
            first,
            cpu,
            parent: None,
            unmade: false,
            events: Vec::new(),
            charged: 0,
            virtual_charged: 0,
            virtual_real: 0,
            before: 0,
            round_robin: false,
            softirqs: false,
            woke: Vec::new(),
            calls: Vec::new(),
        }
    }

    /// Its name at `at`, as far as records had said it by then; its first one before.
    pub(crate) fn name_at(&self, at: Ns) -> Option<StrId> {
        let said = self.named.partition_point(|named| named.0 <= at).max(1);
        self.named.get(said - 1).map(|named| named.1)
    }

    /// Its slices, the last one up to `end` where it goes on.
    pub(crate) fn slices(&self, end: Ns) -> impl Iterator<Item = Slice> + '_ {
        let (mut on, mut wakes) = (None, false);
        let last = TaskEvent { at: end, kind: EventKind::Off(Off::Unknown) };
        self.events.iter().copied().chain([last]).filter_map(move |TaskEvent { at, kind }| match kind {
            EventKind::On { cpu } => {
                (on, wakes) = (Some((at, cpu)), false);
                None
            }
            EventKind::Post { .. } => {
                wakes = true;
                None
            }
            EventKind::Off(off) => on.take().map(|(on, cpu)| Slice { on, to: at.max(on), cpu, off, wakes }),
            _ => None,
        })
    }

    /// Its sleeps that a wakeup ended.
    pub(crate) fn sleeps(&self) -> impl Iterator<Item = Slept> + '_ {
        let mut slept = None;
        self.events.iter().filter_map(move |event| match event.kind {
            EventKind::Woken { by, .. } => slept.take().map(|(from, deep)| Slept { from, deep, to: event.at, by }),
            EventKind::Off(Off::Slept { deep }) => {
                slept = Some((event.at, deep));
                None
            }
            EventKind::On { .. } | EventKind::Off(_) => {
                slept = None;
                None
            }
            _ => None,
        })
    }

    /// When it ended.
    pub(crate) fn ended(&self) -> Option<Ns> {
        self.events.last().filter(|a| a.kind == EventKind::Off(Off::Ended)).map(|a| a.at)
    }
}

/// What the timelines hold.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Every task.
    pub tasks: Vec<TaskHistory>,
    /// Time of the first record, trace clock.
    pub start: Ns,
    /// Length of the trace, lost intervals cut out.
    pub span: Ns,
    /// Ticks seen, trace time from `start`, with CPU.
    pub ticks: Vec<(Ns, i32)>,
    /// Samples for the estimates.
    pub samples: Vec<Sample>,
    /// Wakee of each numbered wakeup.
    pub wakee: Vec<TaskIndex>,
    /// Numbers of the CPUs that have records, ascending; events name CPUs by their position here.
    pub cpus: Vec<i32>,
    /// What the records say of the speeds of CPUs, by position.
    pub speeds: Vec<Recorded>,
    /// Wakeup records that found their task awake: they changed nothing.
    pub idle_wakeups: u64,
    /// Time cut out because records were lost.
    pub cut: Ns,
    /// Switches whose leaving task was not the one that ran.
    pub mismatches: u64,
    /// True when records carry interrupt and reschedule flags.
    pub has_flags: bool,
    /// True when wakeups are recorded.
    pub wakes: bool,
    /// True when the kernel's account of run time is recorded.
    pub has_runtime: bool,
    /// Tasks that began to exit, and how often one was preempted after that: only a preemptible kernel does.
    pub exits: (u64, u64),
    /// Switches away from tasks that stayed ready, of which nothing shows the cause.
    pub uncaused: u64,
    /// Tasks of which no record says how they began, where new tasks are not recorded: those taken for
    /// children of another, and the others.
    pub unmade: (u64, u64),
    /// Yields that are recorded, and those that only follow from other records.
    pub yields: (u64, u64),
    /// Involuntary switches not caused by any wakeup or tick seen: candidates for ticks and yields.
    pub loose: Vec<Loose>,
}

/// A task left a CPU ready to run, and no record shows why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loose {
    /// When.
    pub at: Ns,
    /// Position of the CPU.
    pub cpu: i32,
    /// Who.
    pub task: TaskIndex,
    /// When it came onto the CPU, where that is known.
    pub since: Option<Ns>,
    /// It was not in the kernel: there, only a preemption makes a ready task leave.
    pub user: bool,
    /// Nothing was woken or moved here during its slice: only a tick can have asked for the switch.
    pub quiet: bool,
    /// A reschedule was asked for, or ticks would show: it was a preemption.
    pub explained: bool,
}

impl History {
    /// The largest time of which all others are multiples: 1,000 in texts with six digits.
    pub fn resolution(&self) -> Ns {
        let mut step = 0;
        for event in self.tasks.iter().flat_map(|task| &task.events) {
            let mut rest = event.at;
            while rest != 0 {
                (step, rest) = (rest, step % rest);
            }
            if step == 1 {
                break;
            }
        }
        step
    }
}

/// A measured step between two records, for the estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// From the only wakeup of an interrupt to the switch it caused.
    IrqToSwitch(Ns),
    /// From the last of several wakeups of an interrupt to the switch that they caused.
    LastIrqToSwitch(Ns),
    /// From the only wakeup of an interrupt, on a CPU that had not switched for long.
    CacheColdIrqToSwitch(Ns),
    /// From a task's last wakeup of another to the switch it caused.
    WakeToSwitch(Ns),
    /// Between two wakeups of one interrupt.
    IrqStep(Ns),
    /// From the wakeup of an idle CPU to the switch.
    IdleToSwitch(Ns),
    /// From a wakeup that another CPU made to the switch that it caused.
    RemoteToSwitch(Ns),
    /// The same where nothing ran.
    RemoteIdleToSwitch(Ns),
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
    /// A slice that began with a wakeup preemption and ended with a sleep: time between records,
    /// less charged time.
    Record(Ns),
    /// A whole slice between two switches, without interrupt.
    Slice(Ns),
    /// A short slice that ended with a sleep: whose, with how many ticks and wakeups by interrupts,
    /// and how long.
    Burst {
        /// Task.
        task: TaskIndex,
        /// Ticks.
        ticks: u32,
        /// Wakeups made in interrupts.
        wakes: u32,
        /// Length.
        ns: Ns,
    },
}
