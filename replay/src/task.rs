//! Tasks as the engine knows them: identity, attributes, state. What a policy wants to remember of
//! a task it keeps itself.

use std::sync::Arc;

use crate::near;
use crate::params;
use crate::program::Step;

/// Nanoseconds, absolute or relative.
pub type Ns = i64;

/// Number of a CPU, from 0.
pub type Cpu = usize;

/// A moment that never comes.
pub const NEVER: Ns = i64::MAX;

/// A task: its place in the engine's task table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

impl TaskId {
    /// The number as an index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How a task asks to be scheduled, in POSIX and Linux terms. Policies map it to what they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedPolicy {
    /// Time sharing.
    #[default]
    Other,
    /// Time sharing for batch work: never preempts at wakeup.
    Batch,
    /// Runs when hardly anything else wants to.
    Idle,
    /// Real time, first in first out, `rt_prio` 1 to 99.
    Fifo,
    /// Real time, round robin, `rt_prio` 1 to 99.
    Rr,
    /// Earliest deadline first with a budget ([`Attrs::deadline`]).
    Deadline,
}

impl SchedPolicy {
    /// Names as written in scenario files and workloads.
    pub const NAMES: [(&'static str, SchedPolicy); 6] = [
        ("other", SchedPolicy::Other),
        ("batch", SchedPolicy::Batch),
        ("idle", SchedPolicy::Idle),
        ("fifo", SchedPolicy::Fifo),
        ("rr", SchedPolicy::Rr),
        ("deadline", SchedPolicy::Deadline),
    ];

    /// The name.
    pub fn as_str(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    /// True for the fixed-priority real-time policies.
    pub fn is_rt(self) -> bool {
        matches!(self, SchedPolicy::Fifo | SchedPolicy::Rr)
    }

    /// True for the policies whose classes stand above the fair one.
    pub fn is_above_fair(self) -> bool {
        self.is_rt() || self == SchedPolicy::Deadline
    }
}

/// Reservation of a deadline task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// CPU time per period.
    pub runtime: Ns,
    /// Relative deadline.
    pub deadline: Ns,
    /// Period.
    pub period: Ns,
}

/// The CPUs a task may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(Option<Arc<[u64]>>);

impl CpuSet {
    /// Every CPU.
    pub fn all() -> Self {
        CpuSet(None)
    }

    /// Just these CPUs.
    pub fn of(cpus: &[Cpu]) -> Self {
        let mut words = vec![0u64; cpus.iter().max().map_or(0, |m| m / 64 + 1)];
        for c in cpus {
            words[c / 64] |= 1 << (c % 64);
        }
        CpuSet(Some(words.into()))
    }

    /// True when `cpu` is in the set.
    #[inline]
    pub fn contains(&self, cpu: Cpu) -> bool {
        match &self.0 {
            None => true,
            Some(words) => words.get(cpu / 64).is_some_and(|w| w >> (cpu % 64) & 1 == 1),
        }
    }

    /// The same CPUs, where `self` holds the numbers of recorded CPUs and the engine counts those
    /// as in `numbers`, and any behind the last of them from there on.
    pub fn numbered(&self, numbers: &[i32]) -> Result<Self, String> {
        let Some(words) = &self.0 else { return Ok(CpuSet(None)) };
        let place = |cpu: Cpu| {
            let found = numbers.iter().position(|n| *n == cpu as i32);
            let beyond = numbers.last().and_then(|last| (cpu as i32).checked_sub(last + 1).filter(|more| *more >= 0));
            found.or(beyond.map(|more| numbers.len() + more as usize)).ok_or_else(|| {
                let known: Vec<String> = numbers.iter().map(i32::to_string).collect();
                format!("cpus: CPU {cpu} has no records in the trace; those that have are {}", known.join(", "))
            })
        };
        let (found, missing): (Vec<_>, Vec<_>) =
            (0..words.len() * 64).filter(|c| self.contains(*c)).map(place).partition(Result::is_ok);
        // A CPU without records takes no part; a task needs one that does.
        if let (true, Some(missing)) = (found.is_empty(), missing.into_iter().find_map(Result::err)) {
            return Err(missing);
        }
        let cpus: Vec<Cpu> = found.into_iter().flatten().collect();
        Ok(CpuSet::of(&cpus))
    }

    /// CPUs `64 * at` to `64 * at + 63`, a bit each.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.0.as_ref().map_or(!0, |words| words.get(at).copied().unwrap_or(0))
    }

    /// True when the set leaves no choice out.
    pub fn is_all(&self) -> bool {
        self.0.is_none()
    }
}

/// What a task asks of the scheduler, on the scales of the system it comes from. `None` = not asked for.
/// What every choice asks for stands first, beside what [`Task`] has before it.
#[derive(Clone, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Attrs {
    /// The CPUs it may use.
    pub affinity: CpuSet,
    /// Scheduling policy.
    pub policy: SchedPolicy,
    /// Nice value, -20 to 19.
    pub nice: i32,
    /// Real-time priority 1 to 99, 99 best; 0 outside real time.
    pub rt_prio: i32,
    /// Fixed or base priority on the replayed policy's own scale (AIX `setpri`, NT base priority,
    /// Solaris FX and RT).
    pub prio: Option<i32>,
    /// Solaris user priority, -60 to 60.
    pub upri: Option<i32>,
    /// Name of a scheduling class of the replayed policy (`TS`, `IA`, `FX`, `RT`, `SYS`, ...).
    pub class: Option<Arc<str>>,
    /// Time slice of its own.
    pub slice: Option<Ns>,
    /// Reservation under the deadline policy.
    pub deadline: Option<Reservation>,
    /// Tickets of proportional-share policies.
    pub tickets: Option<u32>,
    /// True for the foreground process of interactive systems.
    pub foreground: bool,
    /// Process (address space) the task belongs to; tasks with the same number share it.
    pub process: Option<u32>,
    /// True for a kernel thread.
    pub kernel: bool,
    /// Name of the group it is in ([`crate::program::Group`]); `None` is in none.
    pub group: Option<Arc<str>>,
}

/// Keys that [`Attrs::set`] takes, and what each means.
pub const ATTR_KEYS: &[(&str, &str)] = &[
    ("policy", "other, batch, idle, fifo, rr, deadline"),
    ("nice", "-20 to 19"),
    ("prio", "real-time priority 1 to 99 under fifo and rr, else a fixed or base priority on the policy's own scale"),
    ("upri", "Solaris user priority, -60 to 60"),
    ("class", "scheduling class of the policy: TS, IA, FX, RT, SYS"),
    ("slice", "time slice, with unit"),
    ("deadline", "runtime/deadline/period, with units: 2ms/10ms/10ms"),
    ("tickets", "tickets under stride and lottery"),
    ("foreground", "on or off"),
    ("process", "number of the process (tasks with the same number share memory)"),
    ("kernel", "on or off: a kernel thread"),
    ("cpus", "CPUs it may use: 0, 0-3, 0+2"),
    ("group", "group it is scheduled in; a name of /web/db lies within /web"),
];

/// What other tools call an attribute: chrt, taskset, ftrace, sched_setattr(2), cpuset(7).
const OTHER_NAMES: &[(&str, &str)] = &[
    ("priority", "prio"),
    ("rtprio", "prio"),
    ("rt_priority", "prio"),
    ("sched_priority", "prio"),
    ("sched_nice", "nice"),
    ("sched_policy", "policy"),
    ("affinity", "cpus"),
    ("cpu", "cpus"),
    ("cpuset", "cpus"),
    ("cpus_allowed", "cpus"),
    ("cgroup", "group"),
];

impl Attrs {
    /// Sets one attribute from text; the error says what would have been valid.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let bad = |what: &str| format!("{key}={value}: expected {what}");
        let int = |lo: i32, hi: i32| {
            let range = format!("a whole number from {lo} to {hi}");
            value.parse::<i32>().ok().filter(|v| (lo..=hi).contains(v)).ok_or_else(|| bad(&range))
        };
        match key {
            "policy" => {
                let names = SchedPolicy::NAMES.map(|n| n.0).join(", ");
                self.policy =
                    SchedPolicy::NAMES.iter().find(|n| n.0 == value).ok_or_else(|| bad(&format!("one of {names}")))?.1;
            }
            "nice" => self.nice = int(-20, 19)?,
            "prio" => {
                let v = int(0, 255)?;
                self.prio = Some(v);
                self.rt_prio = v.clamp(0, 99);
            }
            "upri" => self.upri = Some(int(-60, 60)?),
            "class" => self.class = Some(value.into()),
            "slice" => self.slice = Some(params::duration(value).ok_or_else(|| bad("a time such as 5ms"))?),
            "deadline" => {
                let parts: Vec<Ns> = value.split('/').filter_map(params::duration).collect();
                let [runtime, deadline, period] = parts[..] else { return Err(bad("runtime/deadline/period")) };
                if !(0 < runtime && runtime <= deadline && deadline <= period) {
                    return Err(bad("0 < runtime <= deadline <= period"));
                }
                self.policy = SchedPolicy::Deadline;
                self.deadline = Some(Reservation { runtime, deadline, period });
            }
            "tickets" => self.tickets = Some(int(1, 1_000_000)? as u32),
            "foreground" => self.foreground = params::on_off(value).ok_or_else(|| bad("on or off"))?,
            "process" => self.process = Some(int(0, i32::MAX)? as u32),
            "kernel" => self.kernel = params::on_off(value).ok_or_else(|| bad("on or off"))?,
            "cpus" => self.affinity = CpuSet::of(&cpu_list(value).ok_or_else(|| bad("CPUs such as 0, 0-3 or 0+2"))?),
            "group" => self.group = (!matches!(value, "" | "/")).then(|| value.into()),
            _ => {
                let keys: Vec<&str> = ATTR_KEYS.iter().map(|k| k.0).collect();
                let other = OTHER_NAMES.iter().find(|(other, _)| *other == key).map(|(_, ours)| *ours);
                let meant = other.or_else(|| near::nearest(key, &keys));
                return Err(format!("no task attribute {key}; {}", near::valid(meant, &keys)));
            }
        }
        Ok(())
    }
}

fn cpu_list(text: &str) -> Option<Vec<Cpu>> {
    let mut cpus = Vec::new();
    for part in text.split('+') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (Cpu, Cpu) = (from.parse().ok()?, to.parse().ok()?);
        if from > to || to > 4095 {
            return None;
        }
        cpus.extend(from..=to);
    }
    Some(cpus)
}

/// Kind of a sleep, as far as policies care.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sleep {
    /// A signal can wake it.
    #[default]
    Interruptible,
    /// No signal can wake it (disk I/O).
    Uninterruptible,
}

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskState {
    /// Not yet started.
    #[default]
    New,
    /// Waits for a CPU.
    Runnable,
    /// On a CPU.
    Running,
    /// Asleep.
    Sleeping(Sleep),
    /// Ended.
    Dead,
}

/// A task in the engine's table, as policies may read it. What every switch asks for stands in its
/// first two lines of the cache.
#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub struct Task {
    /// Where it is in its life.
    pub state: TaskState,
    /// Scheduling class in the engine's stack.
    pub(crate) class: u8,
    /// The queue whose message it was woken for and has not looked for yet.
    pub(crate) called: bool,
    /// True while its run step may not be preempted where kernels are not preemptible.
    pub(crate) in_kernel: bool,
    /// Next step of its program, or of its handler.
    pub(crate) pc: u32,
    /// CPU on which it runs, waits, or last ran.
    pub cpu: Cpu,
    /// When it last became runnable, ran, or fell asleep.
    pub since: Ns,
    /// Demand left in its run step.
    pub(crate) left: Ns,
    /// CPU time of its finished slices.
    pub(crate) ran: Ns,
    /// Its program, which is not in the workload meanwhile.
    pub(crate) steps: Vec<Step>,
    /// The handler that it runs, and where its program goes on behind it.
    pub(crate) handler: Option<(u32, u32)>,
    /// The lock that it lets go of in the middle of its run step, from 1; 0 for none.
    pub(crate) lets_go: u32,
    /// When it first ran after its periodic timer had expired.
    pub(crate) resumed: Ns,
    /// Number of times it was put on a CPU.
    pub(crate) dispatched: u64,
    /// What it asks for.
    pub attrs: Attrs,
    /// Demand behind that point of its run step.
    pub(crate) after: Ns,
    /// When its periodic timer expired last, or will next.
    pub(crate) expired: Option<Ns>,
    /// The task that made it.
    pub parent: Option<TaskId>,
    /// Turns and yields since it began to spin.
    pub(crate) spun: u32,
    /// The cost of its next step, a fork or a wakeup, has been served.
    pub(crate) paid: bool,
    /// Its group has used its quota: runnable, but not allowed to run.
    pub(crate) throttled: bool,
}
