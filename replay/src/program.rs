//! Programs: what each task does, free of when it did it.

use crate::near;
use crate::policies::weights::BY_NICE;
use crate::task::{Attrs, Ns, Sleep, TaskId};

/// A counter on which tasks wait and to which tasks post: every wakeup of one task by another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SemId(pub u32);

/// A queue of messages from which one task or several receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u32);

/// A buffer that holds so much, an entry of [`Workload::buffers`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub u32);

/// A lock, an entry of [`Workload::locks`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockId(pub u32);

/// A barrier, an entry of [`Workload::barriers`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BarrierId(pub u32);

/// Work that a message asks for, an entry of [`Workload::handlers`]: done by whoever takes the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandlerId(pub u32);

/// What a task does that finds its periodic timer expired already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Late {
    /// It goes on at once, once for each expiry (clock_nanosleep until an absolute time).
    #[default]
    CatchUp,
    /// It has dealt with all that came until it ran; with those that came later it goes on at once,
    /// once for all of them (a read of a timerfd).
    Merge,
    /// It sleeps until the next one.
    Skip,
}

impl Late {
    /// Names, as a workload text writes them.
    pub const NAMES: [(&'static str, Late); 3] =
        [("catch-up", Late::CatchUp), ("merge", Late::Merge), ("skip", Late::Skip)];
}

/// Why a sleep ends, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// A timer, set for `ns` after the sleep begins; it may fire up to `slack` later, together with
    /// another interrupt (real-time tasks have no slack).
    Timer {
        /// Length.
        ns: Ns,
        /// How much later the interrupt may come.
        slack: u32,
    },
    /// The task's own periodic timer: it expires `ns` after it expired last, whenever the sleep
    /// begins; the first time, `ns` after that.
    Period {
        /// From the last expiry.
        ns: Ns,
        /// How much later the interrupt may come.
        slack: u32,
        /// Where that is past already.
        late: Late,
    },
    /// A timer of whole ticks: ends with the first tick at least `ns` after the sleep begins. Of
    /// several that end with one tick, those with the least `behind` come first.
    Ticks {
        /// Length.
        ns: Ns,
        /// How far behind its tick the recorded wakeup came.
        behind: u32,
    },
    /// A device, `ns` after the sleep begins.
    Io {
        /// Service time.
        ns: Ns,
    },
    /// Something outside, at an absolute time.
    At {
        /// The time.
        at: Ns,
    },
    /// Something outside, `ns` after the sleep begins.
    External {
        /// Think time.
        ns: Ns,
    },
}

/// A group of tasks that share CPU time as one (a cgroup, an autogroup). A name with slashes lies
/// within the group of the part before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Name.
    pub name: String,
    /// Weight against its siblings, 1024 by default (cpu.shares; cpu.weight is in hundredths of that).
    pub shares: u64,
    /// CPU time that it may use per period, and the period; `None`: as much as it gets (cpu.max).
    pub quota: Option<(Ns, Ns)>,
    /// Its tasks count as SCHED_IDLE against others (cpu.idle).
    pub idle: bool,
}

impl Group {
    /// A group with the defaults of cgroup v2.
    pub fn new(name: impl Into<String>) -> Self {
        Group { name: name.into(), shares: 1024, quota: None, idle: false }
    }

    /// Sets one of `weight`, `nice` (cpu.weight.nice, and that of an autogroup), `quota`
    /// (`50ms/100ms`, or `off` or `max` for none), `idle`; the error says what would have been valid.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let bad = |what: &str| format!("{key}={value}: expected {what}");
        match key {
            "weight" => {
                let weight = value.parse().ok().filter(|w| (1..=10_000).contains(w));
                let weight: u64 = weight.ok_or_else(|| bad("a whole number from 1 to 10000"))?;
                self.shares = (weight * 1024 + 50) / 100;
            }
            "nice" => {
                let nice = value.parse().ok().filter(|n| (-20..=19).contains(n));
                let nice: i32 = nice.ok_or_else(|| bad("a whole number from -20 to 19"))?;
                self.shares = BY_NICE[(nice + 20) as usize] as u64;
            }
            "quota" if matches!(value, "max" | "off") => self.quota = None,
            "quota" => {
                let parts: Vec<Ns> = value.split('/').filter_map(crate::params::duration).collect();
                let [quota, period] = parts[..] else {
                    return Err(bad("CPU time per period such as 50ms/100ms, or off"));
                };
                if quota < 1_000_000 || !(1_000_000..=1_000_000_000).contains(&period) {
                    return Err(bad("a quota of at least 1ms and a period from 1ms to 1s"));
                }
                self.quota = Some((quota, period));
            }
            "idle" => self.idle = crate::params::on_off(value).ok_or_else(|| bad("on or off"))?,
            _ => {
                let keys = ["weight", "nice", "quota", "idle"];
                return Err(format!(
                    "no attribute {key} of a group; {}",
                    near::valid(near::nearest(key, &keys), &keys)
                ));
            }
        }
        Ok(())
    }
}

/// A buffer between tasks: a pipe, a socket, or a queue that holds so much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Units for which there is room.
    pub capacity: u32,
    /// Units of a write: whoever waits for one is woken when all of them are in, or no more fit.
    pub write: u32,
    /// Units of a read: as many are taken out at once, where there are.
    pub read: u32,
    /// Units for which there is room again before whoever waits for that is woken: of 1 the first of
    /// them, of more all.
    pub room: u32,
    /// Units in it at the start.
    pub holds: u32,
    /// Who put them in. When all of them have ended nobody waits for more.
    pub from: Vec<TaskId>,
    /// Who takes them out. When it has ended nobody waits for room.
    pub to: TaskId,
}

/// How a task makes another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fork {
    /// A process with its own copy of the address space.
    #[default]
    Fork,
    /// A process that borrows the parent's address space; the parent waits for its exec or exit.
    Vfork,
    /// A thread of the same process.
    Thread,
}

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Uses a CPU for `ns`; [`NEVER`](crate::task::NEVER) for ever.
    Run {
        /// Demand.
        ns: Ns,
    },
    /// The same inside the kernel, where only preemptible kernels can be preempted.
    RunKernel {
        /// Demand.
        ns: Ns,
    },
    /// Sleeps.
    Pause {
        /// What ends it.
        pause: Pause,
        /// Kind of sleep.
        sleep: Sleep,
    },
    /// Takes one unit of a semaphore; sleeps until there is one.
    Wait {
        /// The semaphore.
        sem: SemId,
        /// Kind of sleep.
        sleep: Sleep,
    },
    /// Gives one unit to a semaphore, and thereby wakes the task that waits longest.
    Post {
        /// The semaphore.
        sem: SemId,
        /// True when the waker says that it is about to sleep.
        sync: bool,
    },
    /// Puts a message into a queue. It wakes the task that waits longest there, unless one was
    /// woken that has not looked yet.
    Send {
        /// The queue.
        queue: QueueId,
        /// What the message asks for.
        handler: HandlerId,
    },
    /// Takes the first message of a queue and does what it asks for; sleeps until there is one. A
    /// message left behind wakes the next task that waits.
    Receive {
        /// The queue.
        queue: QueueId,
        /// Kind of sleep.
        sleep: Sleep,
    },
    /// Puts a unit into a buffer, and wakes the task that waits for one; sleeps until there is room.
    Put {
        /// The buffer.
        buffer: BufferId,
    },
    /// Takes a unit out of a buffer, or of what it took from it before, and wakes the task that waits
    /// for room; sleeps until there is one.
    Take {
        /// The buffer.
        buffer: BufferId,
    },
    /// Takes a lock; sleeps while another task holds it.
    Acquire {
        /// The lock.
        lock: LockId,
    },
    /// Lets go of a lock, and wakes who has waited longest.
    Release {
        /// The lock.
        lock: LockId,
    },
    /// Comes to a lock for which it waits where another one that asks for it runs at the same moment:
    /// sleeps until that one has run for `ns` more.
    Contend {
        /// The lock.
        lock: LockId,
        /// CPU time for which the other one still holds it.
        ns: Ns,
        /// It waits as well for one that is ready and does not run.
        ready: bool,
    },
    /// Comes to a barrier: sleeps until the last of those who come to it is there, who wakes all others.
    Barrier {
        /// The barrier.
        barrier: BarrierId,
    },
    /// Gives up the CPU but stays runnable.
    Yield,
    /// Busy-waits until a task waits on a semaphore: uses a CPU for `ns`, yields, and looks again. After
    /// so many turns it sleeps until there is one.
    Spin {
        /// The semaphore.
        sem: SemId,
        /// Length of a turn.
        ns: Ns,
        /// Turns at most; `u32::MAX`: without end.
        turns: u32,
    },
    /// Makes a task.
    Fork {
        /// The child.
        child: TaskId,
        /// How.
        how: Fork,
    },
    /// Executes another program.
    Exec,
    /// Changes its own attributes to entry `attrs` of [`Program::attrs`].
    SetAttrs {
        /// Entry.
        attrs: u32,
    },
    /// From here on the task belongs on one CPU: it goes there when it next leaves the one that it is on.
    Place {
        /// The CPU.
        cpu: u32,
    },
    /// Starts to exit: still runs for a while, but only to take itself down.
    Exiting,
    /// Ends. A program also ends behind its last step.
    Exit,
    /// Goes on at another step.
    Goto {
        /// The step.
        step: u32,
    },
    /// Goes on at another step while it is not later than `until`.
    LoopUntil {
        /// The step.
        step: u32,
        /// Time.
        until: Ns,
    },
}

/// When and how a task comes into being.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It is there and runnable at this time.
    At(Ns),
    /// It is there at this time, and its first step is a sleep.
    Asleep(Ns),
    /// A step of another task makes it.
    Forked,
}

/// What one task does.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Name; the last of them where it executes other programs.
    pub comm: String,
    /// Its name before its first [`Step::Exec`], before the second and so on; beyond the last of
    /// them it has its last name.
    pub names: Vec<String>,
    /// Thread number for the output.
    pub tid: i64,
    /// Process number for the output.
    pub pid: Option<i64>,
    /// How it begins.
    pub start: Start,
    /// CPU of its first queue; `None` lets the policy choose.
    pub cpu: Option<usize>,
    /// Attributes at the start.
    pub first: Attrs,
    /// Attributes that [`Step::SetAttrs`] names.
    pub attrs: Vec<Attrs>,
    /// The steps.
    pub steps: Vec<Step>,
    /// The run goes on until all essential tasks have ended, where there are any.
    pub essential: bool,
    /// It was real time when it was recorded, or was not; `None` where it is in the class in which it was.
    pub was_rt: Option<bool>,
    /// How often in a second it wakes another task than before, as far as that is known.
    pub wakee_flips: Option<u32>,
    /// It has its CPU when the run begins, for so long already since it was last charged.
    pub on: Option<Ns>,
}

impl Program {
    /// A task that is runnable from time 0 with default attributes.
    pub fn new(comm: impl Into<String>, tid: i64, steps: Vec<Step>) -> Self {
        Program {
            comm: comm.into(),
            names: Vec::new(),
            tid,
            pid: Some(tid),
            start: Start::At(0),
            cpu: None,
            first: Attrs::default(),
            attrs: Vec::new(),
            steps,
            essential: false,
            was_rt: None,
            wakee_flips: None,
            on: None,
        }
    }
}

/// Whom messages for a queue wake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calls {
    /// One that finds the queue empty wakes a reader, and one that leaves messages behind wakes the next
    /// (a pipe). These wakeups are sync: the waker is taken to sleep soon (pipe_write and pipe_read of
    /// fs/pipe.c, Linux 5.5 to 7.3; of a pipe that is closed they are not).
    #[default]
    First,
    /// Each wakes a reader (a futex).
    Each,
    /// Each wakes a reader, under a lock that readers take as well (a condition variable).
    Signal,
    /// The same by the condition variable of glibc 2.25 to 2.40, for whose waiters a sender may wait.
    Condition,
}

/// A set of programs that run together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// The groups that tasks are scheduled in; [`Attrs::group`] names one of them.
    pub groups: Vec<Group>,
    /// The tasks; [`TaskId`] is the position here.
    pub tasks: Vec<Program>,
    /// Initial units of each semaphore.
    pub sems: Vec<u32>,
    /// Buffers that hold so much.
    pub buffers: Vec<Buffer>,
    /// Locks: the tasks that ask for each.
    pub locks: Vec<Vec<TaskId>>,
    /// Barriers: the tasks that come to each.
    pub barriers: Vec<Vec<TaskId>>,
    /// Number of message queues.
    pub queues: u32,
    /// Per queue, the default for those beyond: whom messages wake.
    pub calls: Vec<Calls>,
    /// What messages ask for.
    pub handlers: Vec<Vec<Step>>,
    /// The request that each of the first request handlers is about, where that is known.
    pub requests: Vec<Option<u32>>,
}

impl Workload {
    /// Checks that steps name tasks, semaphores, attributes and steps that exist, and that no loop
    /// is free of time.
    pub fn check(&self) -> Result<(), String> {
        for (t, program) in self.tasks.iter().enumerate() {
            let of = format!("task {t} ({})", program.comm);
            self.check_steps(&of, &program.steps, program.attrs.len())?;
            if matches!(program.start, Start::At(t) | Start::Asleep(t) if t < 0) {
                return Err(format!("{of}: starts before time 0"));
            }
        }
        for (i, b) in self.buffers.iter().enumerate() {
            if b.capacity == 0 || b.write == 0 || b.read == 0 {
                return Err(format!("buffer {i}: no room, or reads or writes of nothing"));
            }
            if b.from.is_empty() || b.from.iter().chain([&b.to]).any(|t| t.index() >= self.tasks.len()) {
                return Err(format!("buffer {i}: somebody puts something in, and one task takes it out"));
            }
        }
        for (j, steps) in self.handlers.iter().enumerate() {
            let of = format!("request handler {j}");
            self.check_steps(&of, steps, 0)?;
            if let Some(i) = steps.iter().position(|s| matches!(s, Step::Receive { .. })) {
                return Err(format!("{of}, step {i}: a request handler receives from no queue"));
            }
        }
        Ok(())
    }

    fn check_steps(&self, of: &str, steps: &[Step], attributes: usize) -> Result<(), String> {
        for (i, step) in steps.iter().enumerate() {
            let fail = |what: &str| Err(format!("{of}, step {i}: {what}"));
            match *step {
                Step::Run { ns } | Step::RunKernel { ns } if ns < 0 => return fail("negative demand"),
                Step::Spin { ns, .. } if ns < 1 => return fail("turns of no length"),
                Step::Pause { pause: Pause::Period { ns, .. }, .. } if ns < 1 => return fail("a period of no length"),
                Step::Wait { sem, .. } | Step::Post { sem, .. } | Step::Spin { sem, .. }
                    if sem.0 as usize >= self.sems.len() =>
                {
                    return fail("no such semaphore");
                }
                Step::Put { buffer } | Step::Take { buffer } if buffer.0 as usize >= self.buffers.len() => {
                    return fail("no such buffer");
                }
                Step::Acquire { lock } | Step::Release { lock } | Step::Contend { lock, .. }
                    if lock.0 as usize >= self.locks.len() =>
                {
                    return fail("no such lock");
                }
                Step::Barrier { barrier } if barrier.0 as usize >= self.barriers.len() => {
                    return fail("no such barrier")
                }
                Step::Contend { ns, .. } if ns < 0 => return fail("negative demand"),
                Step::Send { queue, .. } | Step::Receive { queue, .. } if queue.0 >= self.queues => {
                    return fail("no such queue");
                }
                Step::Send { handler, .. } if handler.0 as usize >= self.handlers.len() => {
                    return fail("no such request handler")
                }
                Step::Fork { child, .. } => match self.tasks.get(child.index()) {
                    Some(p) if p.start == Start::Forked => {}
                    _ => return fail("forks a task that does not exist or starts by itself"),
                },
                Step::SetAttrs { attrs } if attrs as usize >= attributes => return fail("no such attributes"),
                Step::Goto { step } | Step::LoopUntil { step, .. } if step as usize > i => {
                    return fail("jumps forward or to no step");
                }
                Step::Goto { step } | Step::LoopUntil { step, .. }
                    if !steps[step as usize..i].iter().any(takes_time) =>
                {
                    return fail("a loop must run, sleep or receive");
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// True for a step after which a loop cannot have come round in no time: there are only so many messages.
fn takes_time(step: &Step) -> bool {
    match *step {
        Step::Run { ns } | Step::RunKernel { ns } => ns > 0,
        Step::Pause {
            pause:
                Pause::Timer { ns, .. }
                | Pause::Period { ns, .. }
                | Pause::Ticks { ns, .. }
                | Pause::Io { ns }
                | Pause::External { ns },
            ..
        } => ns > 0,
        Step::Receive { .. } => true,
        _ => false,
    }
}
