//! From events to programs: what each task did, free of when the recorded scheduler let it.
//!
//! The state machine of [`tracekit_schema::derive`] reads the records; `timeline` is its sink and
//! notes what each task did ([`history`](crate::history)). [`calibrate`](crate::calibrate) measures
//! what switches, ticks and interrupts cost; `sleep` and `verdict` judge timers and tasks as
//! wholes; `build` makes the programs.
//!
//! * **Demand** is time on a CPU less what the machine took: the switch, ticks, interrupts, all at
//!   their measured length. The replay adds them again where they fall there. Where the trace shows
//!   that CPUs are not equally fast ([`Recon::speeds`]), it is in time of a CPU of middling speed.
//! * **A sleep ends** by a task (dependency: at a point of the waker's own program), a timer, a
//!   tick, a device, or something outside. The interrupt flags decide: the task that was
//!   interrupted is not the waker.
//! * **A dependency** is a semaphore: the waker posts at its own position, and a wait that finds a
//!   unit does not sleep.
//! * **Endless** is a task that never sleeps and was stopped with the recorded run; **looping** one
//!   that sleeps on timers until then. Both are recognised by what they did, never by name.

mod births;
mod bound;
mod build;
mod demand;
mod dependencies;
mod draft;
mod ending;
mod inferred;
mod isolated;
mod parts;
mod periods;
mod places;
mod receive;
mod sleep;
mod spins;
mod table;
#[cfg(test)]
mod tests;
mod timeline;
mod verdict;
mod wakers;
mod wakeups;

pub use crate::calibrate::Overheads;
use crate::infer::{infer, Messages};
pub use crate::infer::{Group, Outcome, Unobserved};
pub use build::Verdict;
pub use demand::Demand;
pub(crate) use inferred::list;
pub use inferred::{Inferred, Judged};
pub use isolated::Isolated;
pub use parts::{Head, Parts, Whole};
pub use places::{Beside, Preemptions};

use std::sync::Arc;

use tracekit_schema::derive::IdleRule;
use tracekit_schema::{DeriveOptions, Events, StrId, Strings};

use crate::calibrate::{calibrate, speed, tick, Limits};
use crate::cancel::Cancel;
use crate::engine::Machine;
use crate::history::{History, TaskHistory, TaskIndex};
use crate::program::Workload;
use crate::rates::{Rates, Source, StatedCpu};
use crate::speeds::Speeds;
use crate::task::{CpuSet, Ns, TaskId};

/// What moves when the schedule changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoopMode {
    /// Wakeups by tasks move with their wakers; timers and devices keep their length, outside
    /// wakeups their time.
    #[default]
    Dependency,
    /// Every wakeup keeps its recorded time.
    Open,
    /// Every sleep keeps its recorded length.
    Closed,
}

impl LoopMode {
    /// Names, as in metadata and on the command line.
    pub const NAMES: [(&'static str, LoopMode); 3] =
        [("dependency", LoopMode::Dependency), ("open", LoopMode::Open), ("closed", LoopMode::Closed)];

    /// The name.
    pub fn as_str(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}

/// Classes of wakeups; their shares say how much of a replay rests on evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Woken by a task.
    Dependency,
    /// Woken by a timer of its own.
    Timer,
    /// Woken by a timer of whole ticks.
    Tick,
    /// Woken by a device.
    Io,
    /// Woken by something the trace does not say.
    External,
}

impl Class {
    /// Number of classes.
    pub const COUNT: usize = 5;
    /// Names, in order.
    pub const NAMES: [&'static str; Self::COUNT] = ["dependency", "timer", "tick", "io", "external"];
}

/// What a step rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Evidence {
    /// The record itself.
    #[default]
    Recorded,
    /// The waking record was made by a task.
    Task,
    /// The waking record was made in a hardware interrupt that came for it.
    Hardirq,
    /// The waking record was made in a hardware interrupt that came for something else.
    SharedHardirq,
    /// The waking record was made in a softirq behind a tick.
    SoftirqAtTick,
    /// The waking record was made in another softirq.
    Softirq,
    /// A wait call found a child that had ended.
    Reaped,
    /// The trace began or ended in it.
    Censored,
    /// Taken for endless.
    Endless,
    /// Repeats what was recorded.
    Looped,
    /// Follows from other records: the message that it is about woke nobody.
    Unobserved,
    /// A workload text states it.
    Stated,
    /// No record says it.
    None,
}

impl Evidence {
    /// Names for tables, in order.
    pub const NAMES: [&'static str; 13] = [
        "recorded",
        "task",
        "hardirq",
        "shared-hardirq",
        "softirq-at-tick",
        "softirq",
        "reaped",
        "censored",
        "endless",
        "looped",
        "unobserved",
        "stated",
        "none",
    ];
}

/// Where a step comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// Recorded time, from the start of the trace.
    pub at: Ns,
    /// What it rests on.
    pub evidence: Evidence,
    /// Thread of the waker, of the woken task, or of the child.
    pub partner: Option<i64>,
}

impl Note {
    fn at(at: Ns) -> Self {
        Note { at, ..Note::default() }
    }
    fn with(mut self, partner: i64) -> Self {
        self.partner = Some(partner);
        self
    }
    fn because(mut self, evidence: Evidence) -> Self {
        self.evidence = evidence;
        self
    }
}

/// What the caller may say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// What moves when the schedule changes.
    pub mode: LoopMode,
    /// Ticks a second, where known.
    pub hz: Option<i64>,
    /// Timers of the recorded system fire when they are due: there is no slack but what the trace
    /// shows. Linux gives time-sharing tasks 50 us.
    pub exact_timers: bool,
    /// Set by the caller to stop; the outcome then means nothing.
    pub cancel: Cancel,
    /// How the recorded system's idle threads are recognised.
    pub idle: IdleRule,
    /// Constants of the reading, where others than the usual ones are wanted.
    pub limits: Option<Limits>,
    /// Threads that would have gone on for ever: their recorded end is that of the recording.
    pub endless: Vec<i64>,
    /// What decides on which CPU a task is.
    pub placement: Placement,
    /// What the machine beside the trace states of its CPUs.
    pub cpus: Vec<StatedCpu>,
}

/// What decides on which CPU a task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The policy.
    #[default]
    Model,
    /// The recording: each task belongs on the CPU on which it was at the same point of its program.
    Trace,
    /// The policy, unless a replay as recorded shows that the machine places tasks otherwise
    /// ([`trial::programs`](crate::trial::programs)).
    Auto,
}

impl Placement {
    /// Names, as a caller writes them.
    pub const NAMES: [(&'static str, Placement); 3] =
        [("auto", Placement::Auto), ("model", Placement::Model), ("trace", Placement::Trace)];
}

/// Programs, and what was found on the way.
#[derive(Clone, Debug, Default)]
pub struct Recon {
    /// The programs.
    pub work: Workload,
    /// Where each step of each task comes from.
    pub notes: Vec<Vec<Note>>,
    /// For each request handler of the workload, the task that ran it and where its steps come from.
    pub handlers: Vec<(u32, Vec<Note>)>,
    /// What was decided about each task.
    pub verdicts: Vec<Verdict>,
    /// Measured costs and ticks.
    pub overheads: Overheads,
    /// Timer slack of each task, and the constant length of its sleeps where it has one.
    pub slack: Vec<(Ns, Option<Ns>)>,
    /// Tasks whose timers expire at times of a grid, or may.
    pub periodic: Vec<Periodic>,
    /// Wakeups by [`Class`].
    pub classes: [u64; Class::COUNT],
    /// Tasks that were ready to run when the trace ended and never got a CPU in it: what they do is
    /// not known, and they do nothing.
    pub starved: Vec<TaskId>,
    /// Each task belongs where it was recorded ([`Options::placement`]).
    pub placed: bool,
    /// Why, where the caller left it to the trace.
    pub beside: Option<Beside>,
    /// Tasks that may run on one CPU only, and its position in [`Self::cpus`].
    pub bound: Vec<(TaskId, usize)>,
    /// Trace time of the first record.
    pub start: Ns,
    /// Length of the trace, lost intervals cut out.
    pub span: Ns,
    /// Time cut out because records were lost.
    pub cut: Ns,
    /// Numbers of the recorded CPUs, ascending; the engine counts them from 0.
    pub cpus: Vec<i32>,
    /// How fast they are: the programs hold work, in time of a CPU of middling speed.
    pub speeds: Speeds,
    /// What capacities and frequencies are known of them.
    pub rates: Rates,
    /// Those without a scheduling domain.
    pub isolated: Isolated,
    /// Entries of the timelines of all tasks: how much was recorded of them.
    pub entries: usize,
    /// Switches away from tasks that stayed ready, of which no record shows the cause.
    pub uncaused: u64,
    /// That tasks yielded only follows from other records: the trace shows involuntary switches.
    pub yields_unrecorded: bool,
    /// The trace shows clock ticks.
    pub ticks_show: bool,
    /// No wakeup is recorded, and tasks slept.
    pub wakes_unrecorded: bool,
    /// Tasks of which no record says how they began: those taken for children of another, and the others.
    pub unmade: (u64, u64),
    /// Its times are whole microseconds or less exact.
    pub coarse: bool,
    /// When the recorded run was stopped.
    pub stop: Ns,
    /// The recorded kernel could be preempted: tasks were, in the middle of their exit.
    pub preempt_kernel: bool,
    /// How far a replay runs at most.
    pub until: Ns,
    /// How far it runs at least: 0 where the recorded run ended because its work was done.
    pub at_least: Ns,
    /// Wakeup records that changed nothing.
    pub idle_wakeups: u64,
    /// Switches that contradict each other.
    pub mismatches: u64,
    /// Messages that no wakeup shows.
    pub unobserved: Unobserved,
    /// Tasks that busy-wait: they look for work and yield, in turns.
    pub spinners: Vec<TaskId>,
    /// What a workload text says of its machine; nothing for a trace.
    pub stated: Option<Box<Stated>>,
}

/// A task that sleeps on a timer with a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Periodic {
    /// The task.
    pub task: TaskId,
    /// Its period.
    pub period: Ns,
    /// Its timer is set for a time; else the trace does not say whether for a time or for a length.
    pub absolute: bool,
}

/// The machine of a workload that is written down.
#[derive(Clone, Debug, PartialEq)]
pub struct Stated {
    /// The machine, with its costs.
    pub machine: Machine,
    /// Its real-time class, where it has parameters of its own.
    pub rt: Option<String>,
}

impl Recon {
    /// Binds the kernel's own threads of a CPU to it, and tells of each task how often it has woken another
    /// one than before.
    fn bind(&mut self, bound: &[Option<usize>], flips: &[u32]) {
        if self.cpus.len() < 2 {
            return;
        }
        for ((task, program), cpu) in (0..).zip(&mut self.work.tasks).zip(bound) {
            let Some(cpu) = *cpu else { continue };
            self.bound.push((TaskId(task), cpu));
            let own = CpuSet::of(&[cpu]);
            program.attrs.iter_mut().for_each(|attrs| attrs.affinity = own.clone());
            program.first.affinity = own;
        }
        self.work.tasks.iter_mut().zip(flips).for_each(|(program, n)| program.wakee_flips = Some(*n));
    }
}

/// A trace that has been read: what became of each task, what the machine costs, and which messages
/// no wakeup shows. Programs are made of it for any recorded policy and placement; copies share the
/// history.
#[derive(Clone)]
pub struct Reading {
    pub(crate) history: Arc<History>,
    pub(crate) overheads: Overheads,
    pub(crate) messages: Messages,
    /// Other messages that may be the better ones, and the rates that follow from them.
    pub(crate) instead: Option<(Messages, [Rates; 2])>,
    options: Options,
    verdicts: Vec<Verdict>,
    stop: Ns,
    comms: Vec<String>,
    /// Names of each task before its execs.
    names: Vec<Vec<String>>,
    /// The CPU to which each task is bound, where the trace shows that.
    bound: Vec<Option<usize>>,
    /// Where the policy places tasks, and where they are as recorded.
    rates: [Rates; 2],
    spins: spins::Spins,
    /// How often each task has woken another one than before; nothing where that does not show.
    flips: Vec<u32>,
}

impl Reading {
    /// Reads events.
    pub fn of(parts: &dyn Parts, options: &Options) -> Self {
        let known = DeriveOptions { idle: options.idle, ..DeriveOptions::default() };
        let read = |limits| timeline::read(parts, &known, limits, &options.cancel);
        let limits = options.limits.unwrap_or_default();
        let mut history = read(limits);
        let mut overheads = calibrate(&history, options.hz, limits);
        if let Some(limits) = limits.corrected(&overheads) {
            history = read(limits);
            overheads = calibrate(&history, options.hz, limits);
        }
        tick::explain(&mut history, &overheads);
        Self::with(history, overheads, parts.strings(), options)
    }

    /// What follows from the timelines and the costs.
    fn with(history: History, overheads: Overheads, strings: &Strings, options: &Options) -> Self {
        let (verdicts, stop) = verdict::judge(&history, &options.endless);
        let spins = match options.mode {
            LoopMode::Dependency => spins::Spins::find(&history),
            _ => spins::Spins::none(&history),
        };
        let text = |name: Option<StrId>| name.map_or_else(String::new, |name| strings.text(name).into_owned());
        let comms: Vec<String> = history.tasks.iter().map(|l| text(l.comm)).collect();
        let before = |l: &TaskHistory| l.names.iter().map(|name| text(name.or(l.comm))).collect();
        let names = history.tasks.iter().map(before).collect();
        let bound = history.tasks.iter().zip(&comms).map(|(task, comm)| bound::cpu_of(task, comm, &history.cpus));
        let bound: Vec<Option<usize>> = bound.collect();
        let followed = Rates::of(&history.cpus, &history.speeds, &options.cpus, history.span);
        let fixed = options.cpus.iter().filter(|c| c.fixed).map(|c| c.cpu);
        let fixed = fixed.collect::<std::collections::BTreeSet<i32>>().is_superset(&followed.recorded(&history.cpus));
        let rates = if fixed { followed.clone() } else { followed.unfollowed(history.span) };
        let rates_of = |rates: &Rates, messages: &Messages| {
            if rates.source != Source::Work {
                return rates.clone();
            }
            let free = |task: usize| bound[task].is_none() && messages.works(task as TaskIndex);
            let of: Vec<Option<&str>> = (0..).zip(&comms).map(|(t, comm)| free(t).then_some(comm.as_str())).collect();
            let measured = speed::measure(&history, &of, &messages.cuts(), &rates.by_frequency(), &overheads);
            rates.clone().with_measured(measured, history.span)
        };
        let flips = if history.wakes && history.cpus.len() > 1 {
            let bound = (0..).zip(&bound).filter(|of| of.1.is_some()).map(|of| of.0).collect();
            wakers::Flips::of(&history, &bound).at_start()
        } else {
            Vec::new()
        };
        let (messages, instead) = match options.mode {
            LoopMode::Dependency => {
                // What a task finds that busy-waits, no wakeup shows.
                let outside = |task: TaskIndex| verdicts[task as usize].endless || spins.has(task);
                infer(
                    &history,
                    &outside,
                    &rates_of(&rates, &Messages::none(&history)).speeds(),
                    &overheads,
                    &options.cancel,
                )
            }
            _ => (Messages::none(&history), None),
        };
        let both = |messages: &Messages| {
            let settled = rates_of(&rates, messages);
            let placed = if fixed { settled.clone() } else { rates_of(&followed, messages) };
            [settled, placed]
        };
        let rates_of_other = instead.as_ref().map(both);
        let (instead, rates) = (instead.zip(rates_of_other), both(&messages));
        let (history, options) = (Arc::new(history), options.clone());
        Reading {
            history,
            overheads,
            messages,
            instead,
            options,
            verdicts,
            stop,
            comms,
            names,
            bound,
            rates,
            spins,
            flips,
        }
    }

    /// What is known of the speeds of CPUs, and holds where tasks are.
    fn rates(&self) -> &Rates {
        &self.rates[usize::from(self.options.placement == Placement::Trace)]
    }

    /// How fast the CPUs are.
    pub(crate) fn speeds(&self) -> Speeds {
        self.rates().speeds()
    }

    /// The same reading where `placement` decides where tasks are, for work that `cancel` stops.
    pub fn placed(&self, placement: Placement, cancel: &Cancel) -> Self {
        let mut reading = self.clone();
        (reading.options.placement, reading.options.cancel) = (placement, cancel.clone());
        reading
    }

    /// Changes places with the other messages, where there are some.
    pub(crate) fn swap(&mut self) {
        if let Some((messages, rates)) = &mut self.instead {
            std::mem::swap(&mut self.messages, messages);
            std::mem::swap(&mut self.rates, rates);
        }
    }

    /// From now on this decides where tasks are.
    pub(crate) fn place(&mut self, placement: Placement) {
        self.options.placement = placement;
    }

    /// What is to decide it, and what stops the work.
    pub(crate) fn asked(&self) -> (Placement, Cancel) {
        (self.options.placement, self.options.cancel.clone())
    }

    /// What moves when the schedule changes, and the ticks a second, where they were stated.
    pub fn stated(&self) -> (LoopMode, Option<i64>) {
        (self.options.mode, self.options.hz)
    }

    /// The programs.
    pub fn programs(&self) -> Recon {
        if self.options.cancel.is_set() {
            return Recon::default();
        }
        let mut recon = build::Builder::new(self).build();
        for ((program, comm), names) in recon.work.tasks.iter_mut().zip(&self.comms).zip(&self.names) {
            program.comm.clone_from(comm);
            program.names.clone_from(names);
        }
        recon.bind(&self.bound, &self.flips);
        let isolated = |number: &i32| self.options.cpus.iter().any(|c| c.cpu == *number && c.isolated);
        let cpus = self.history.cpus.iter().enumerate().filter(|(_, number)| isolated(number)).map(|c| c.0);
        recon.isolated = Isolated::of(&self.history, cpus.collect());
        recon
    }
}

/// Reconstructs the programs of all tasks in `events`, which are in time order.
pub fn reconstruct(events: &Events, strings: &Strings, options: &Options) -> Recon {
    Reading::of(&Whole::new(events, strings), options).programs()
}
