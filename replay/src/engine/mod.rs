//! The discrete-event engine: runs programs on N CPUs under a stack of scheduling classes.
//!
//! Events of one instant are handled in this order, and the round is repeated until nothing is due:
//!
//! 1. ends of run steps, by CPU number; the steps that follow (wake, fork, ...) up to the next run
//!    or sleep belong to it;
//! 2. clock ticks, by CPU number;
//! 3. the 1 Hz work;
//! 4. wakeups: timer expiries by CPU number and expiry, then starts, device and outside wakeups in
//!    source order;
//! 5. policy timers, then slice ends by CPU number;
//! 6. reschedules, by CPU number.
//!
//! So a task whose burst ends on a tick is not charged that tick, and a task that wakes when a
//! slice ends is queued before the task that loses the CPU. CPUs that are idle do not tick. A chain
//! of wakeups without demand in between is atomic: nobody runs before it is complete.

mod barriers;
mod buffers;
mod clock;
mod conditions;
mod guards;
mod locks;
pub mod slots;
mod steps;
pub mod stuck;
mod switch;
pub(crate) mod timer_heap;
mod timers;
mod wake;

pub use crate::classes::{Layer, Stack};
pub use crate::machine::{Machine, TimerMode};
use stuck::Stuck;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::log::Log;
use crate::machine::{CpuState, IdleCpus, Kernel};
use crate::program::{Calls, Start, Workload};
use crate::queue::Lists;
use crate::switch_costs::SwitchCostChange;
use crate::task::{Cpu, Ns, Task, TaskId, TaskState, NEVER};
use barriers::Barriers;
use buffers::Levels;
use conditions::Conditions;
use guards::Watch;
use locks::Locks;
use slots::{Due, Slots};
use timer_heap::Timers;

/// A run that could not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EngineError(pub String);

/// What the engine counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events handled.
    pub events: u64,
    /// Decisions what to run next.
    pub dispatches: u64,
    /// Decisions that put another task on a CPU.
    pub switches: u64,
    /// Ticks on busy CPUs.
    pub ticks: u64,
    /// Wakeups by tasks, timers, devices, outside.
    pub wakeups: [u64; 4],
    /// Waits that found what they waited for.
    pub satisfied: u64,
    /// Switches that took other than their recorded time because of [`SwitchCostChange`], and how
    /// much longer in all.
    pub shifted: (u64, Ns),
    /// CPU time of all tasks.
    pub busy: Ns,
    /// End of the run.
    pub end: Ns,
}

/// A finished run.
#[derive(Debug)]
pub struct Run {
    /// What happened.
    pub log: Log,
    /// The workload that ran.
    pub work: Workload,
    /// Counts.
    pub counts: Counts,
    /// CPU time per task.
    pub ran: Vec<Ns>,
    /// State of each task at the end.
    pub states: Vec<TaskState>,
    /// What the policies of the stack counted, best class first.
    pub counters: Vec<(&'static str, i64)>,
    /// Values asked for by [`Engine::inspect_at_end`], `None` where the policy keeps no such thing.
    pub inspected: Vec<Option<f64>>,
    /// Tasks still on a CPU at the end.
    pub on_cpu: Vec<Option<TaskId>>,
    /// What is odd about the waits of tasks under a policy that is watched.
    pub warning: Option<String>,
    /// Tasks that wait for ever.
    pub stuck: Vec<Stuck>,
}

/// Kind of an entry of the wakeup queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Coming {
    Start,
    Io,
    External,
}

/// A queue of messages.
#[derive(Clone, Debug, Default)]
struct Queue {
    /// Request handlers, first come first.
    messages: VecDeque<u32>,
    /// Whom messages wake.
    calls: Calls,
}

/// The engine.
pub struct Engine {
    k: Kernel,
    stack: Stack,
    /// The first class that is asked for tasks: those before it never have any.
    first_class: usize,
    watch: Watch,
    until: Ns,
    at_least: Ns,
    timer_mode: TimerMode,
    switch_costs: Option<SwitchCostChange>,
    /// Starts, device and outside wakeups by (time, order).
    coming: BinaryHeap<Reverse<(Ns, u64, Coming, u32)>>,
    order: u64,
    waiters: Lists,
    units: Vec<u32>,
    /// Who spun in vain for somebody who waits, and sleeps now.
    spinners: Lists,
    /// Who was woken to another CPU before it had left the one where it fell asleep.
    still_on: Vec<(TaskId, Cpu)>,
    levels: Levels,
    locks: Locks,
    barriers: Barriers,
    conditions: Conditions,
    /// Who waits for a message of which queue, and the queues.
    readers: Lists,
    queues: Vec<Queue>,
    inspect: Vec<(TaskId, String)>,
    counts: Counts,
    /// Essential tasks that have not ended; the run ends with the last of them.
    essential: usize,
    ends_with_essential: bool,
    /// When an essential task last left a CPU.
    last_essential: Ns,
    /// A run with more records ends with an error.
    most_records: usize,
}

/// Events between two reports of progress, at which the caller may stop the run.
const REPORT: u64 = 4096;

/// Events that may happen at one instant before the run is taken for a livelock, plus as many per task.
const LIVELOCK: u64 = 100_000;

/// The first class that has to be asked for a task. The last one always is.
fn first_class(stack: &Stack, work: &Workload) -> usize {
    let ever = |class: usize| {
        let mut attrs = work.tasks.iter().flat_map(|p| p.attrs.iter().chain([&p.first]));
        attrs.any(|a| usize::from(stack.class_of(a)) == class)
    };
    let last = stack.layers.len() - 1;
    (0..last).find(|&class| !stack.layers[class].1.rests_without_tasks() || ever(class)).unwrap_or(last)
}

impl Engine {
    /// Makes an engine for `work` on `machine` under `stack`.
    pub fn new(mut work: Workload, machine: &Machine, stack: Stack) -> Result<Self, EngineError> {
        work.check().map_err(EngineError)?;
        if machine.cpus == 0 || machine.cpus > 4096 || machine.hz <= 0 || machine.hz > 100_000 {
            return Err(EngineError(format!(
                "{} CPUs at {} HZ: expected 1 to 4096, 1 to 100000",
                machine.cpus, machine.hz
            )));
        }
        let tick_ns = 1_000_000_000 / machine.hz;
        let phase = |cpu: usize| machine.tick_phase.get(cpu).or(machine.tick_phase.last()).copied().unwrap_or(0);
        let cpu = |i| CpuState {
            curr: None,
            need_resched: false,
            lazy: false,
            idle: true,
            idle_since: 0,
            nr: 0,
            clock: 0,
            keep_clock: false,
            run_from: 0,
            on_since: 0,
            busy_until: 0,
            masked_until: 0,
            tick_phase: phase(i),
            leaving: None,
            owed: 0,
            serving: false,
            yielded: false,
            switched_at: 0,
            blocked_at: 0,
            irq_woke: None,
            timer_first: false,
            irq_entry: None,
            timers: Timers::default(),
        };
        let n = work.tasks.len();
        let (sems, queues) = (work.sems.len(), work.queues as usize);
        let calls = |q| work.calls.get(q).copied().unwrap_or_default();
        let empty = (0..queues).map(|q| Queue { calls: calls(q), ..Queue::default() }).collect();
        let conditions = Conditions::new(&work.calls, queues, work.locks.len());
        let units = work.sems.clone();
        let levels = Levels::of(&work.buffers);
        let barriers = Barriers::of(&work.barriers);
        let locks = Locks::new(work.locks.len() + conditions.locks(), n);
        let essential = work.tasks.iter().filter(|p| p.essential).count();
        let first_class = first_class(&stack, &work);
        let tasks = work
            .tasks
            .iter_mut()
            .map(|p| Task {
                attrs: p.first.clone(),
                cpu: p.cpu.unwrap_or(0).min(machine.cpus - 1),
                steps: std::mem::take(&mut p.steps),
                ..Task::default()
            })
            .collect();
        let k = Kernel {
            now: 0,
            tick_ns,
            preempt_kernel: machine.preempt_kernel,
            costs: machine.costs,
            speeds: machine.speeds.clone(),
            balanced: machine.balanced.clone(),
            seed: machine.seed,
            cpus: (0..machine.cpus).map(cpu).collect(),
            idle: IdleCpus::all(machine.cpus),
            tasks,
            live: 0,
            work,
            slots: Slots::new(machine.cpus),
            timers: BinaryHeap::new(),
            timer_seq: 0,
            class: 0,
            in_second: false,
            log: Log { recs: Vec::new(), keep: machine.log },
            failed: None,
            pid_table: 0,
            here: None,
        };
        let mut engine = Engine {
            k,
            watch: Watch::new(stack.watched),
            stack,
            first_class,
            until: machine.until,
            at_least: machine.at_least,
            timer_mode: machine.timers,
            switch_costs: machine.switch_costs,
            coming: BinaryHeap::with_capacity(n + 1),
            order: 0,
            waiters: Lists::new(sems),
            units,
            spinners: Lists::new(sems),
            still_on: Vec::new(),
            levels,
            locks,
            barriers,
            conditions,
            readers: Lists::new(queues),
            queues: empty,
            inspect: Vec::new(),
            counts: Counts::default(),
            essential,
            ends_with_essential: essential > 0,
            last_essential: 0,
            most_records: machine.most_records,
        };
        engine.queue_starts();
        Ok(engine)
    }

    fn queue_starts(&mut self) {
        // Whoever has a CPU comes first.
        let mut order: Vec<usize> = (0..self.k.work.tasks.len()).collect();
        order.sort_by_key(|t| self.k.work.tasks[*t].on.is_none());
        for t in order {
            if let Start::At(at) | Start::Asleep(at) = self.k.work.tasks[t].start {
                self.come(at, Coming::Start, TaskId(t as u32));
            }
        }
    }

    /// Asks for a value that the policy keeps of a task, to be read at the end.
    pub fn inspect_at_end(&mut self, t: TaskId, key: &str) {
        self.inspect.push((t, key.to_owned()));
    }

    fn come(&mut self, at: Ns, what: Coming, t: TaskId) {
        self.order += 1;
        self.coming.push(Reverse((at, self.order, what, t.0)));
        let first = self.coming.peek().map_or(NEVER, |c| c.0 .0);
        self.k.slots.set_wake(first);
    }

    /// Runs to the end. `progress` is given the simulated time now and then and may stop the run by
    /// returning false.
    pub fn run(mut self, progress: &mut dyn FnMut(Ns) -> bool) -> Result<Run, EngineError> {
        for class in 0..self.stack.layers.len() {
            self.k.class = class as u8;
            self.stack.layers[class].1.init(&mut self.k);
        }
        if self.k.failed.is_some() {
            return Err(self.failure());
        }
        self.k.slots.set_second(1_000_000_000);
        let limit = LIVELOCK + 100 * self.k.tasks.len() as u64;
        let mut last = limit;
        loop {
            let (at, due) = self.k.slots.earliest();
            if at >= self.until {
                break;
            }
            if at > self.k.now {
                self.k.now = at;
                last = self.counts.events + limit;
            }
            self.counts.events += 1;
            if self.counts.events > last {
                return Err(EngineError(format!("no progress at {} ns: the policy keeps rescheduling", self.k.now)));
            }
            if !self.handle(due) {
                break;
            }
            if self.k.failed.is_some() {
                return Err(self.failure());
            }
            if self.counts.events.is_multiple_of(REPORT) {
                if self.k.log.recs.len() > self.most_records {
                    return Err(self.too_long());
                }
                if !progress(self.k.now) {
                    return Err(EngineError("stopped".into()));
                }
            }
        }
        self.lost_at_the_end(self.k.now.max(if self.until == NEVER { 0 } else { self.until }));
        if self.k.failed.is_some() {
            return Err(self.failure());
        }
        Ok(self.finish())
    }

    /// Why the run cannot go on.
    #[cold]
    fn failure(&mut self) -> EngineError {
        let why = self.k.failed.take().unwrap_or_default();
        EngineError(format!("at {} ns: {why}", self.k.now))
    }

    /// Nothing is runnable and nothing will wake: a timer of a policy cannot change that.
    fn stalled(&self) -> bool {
        self.coming.is_empty() && self.k.cpus.iter().all(|c| c.nr == 0 && c.timers.is_empty())
    }

    /// Does what is due; false where the run is over.
    #[inline(always)]
    fn handle(&mut self, due: Due) -> bool {
        self.k.here = self.k.slots.cpu_of_last();
        match due {
            Due::Segment(cpu) => self.segment(cpu),
            Due::Tick(cpu) => self.tick(cpu),
            Due::Second if self.until == NEVER && self.stalled() => return false,
            Due::Second => self.one_hz(),
            Due::Timer(cpu) => self.timer_interrupt(cpu),
            Due::Wake => self.wake_due(),
            Due::PolicyTimer => self.policy_timer(),
            Due::Slice(cpu) => self.slice_end(cpu),
            Due::Resched(cpu) => self.reschedule(cpu),
        }
        true
    }

    /// True when interrupts are off on `cpu`; `again` sets the slot to when they are on.
    fn deferred(&mut self, cpu: Cpu, again: fn(&mut Slots, Cpu, Ns)) -> bool {
        let c = &self.k.cpus[cpu];
        let until = c.busy_until.max(c.masked_until);
        let off = until > self.k.now;
        if off {
            again(&mut self.k.slots, cpu, until);
        }
        off
    }

    /// An interrupt takes `cost` from whoever runs on `cpu`.
    #[inline(always)]
    pub(crate) fn interrupt(&mut self, cpu: Cpu, cost: Ns) {
        if cost != 0 {
            self.take_time(cpu, cost);
        }
    }

    fn take_time(&mut self, cpu: Cpu, cost: Ns) {
        let now = self.k.now;
        let c = &mut self.k.cpus[cpu];
        c.busy_until = c.busy_until.max(now) + cost;
        self.delay(cpu, cost);
    }

    /// Puts off the demand of the task on `cpu` by `cost`.
    fn delay(&mut self, cpu: Cpu, cost: Ns) {
        let now = self.k.now;
        let c = &mut self.k.cpus[cpu];
        let from = c.run_from.max(now);
        c.run_from = from + cost;
        if c.serving {
            let end = self.k.slots.segment_end(cpu);
            if end != NEVER {
                let speeds = &self.k.speeds;
                // Work that is put off may come under another speed.
                let length = if speeds.change() && end > from {
                    speeds.time(cpu, from + cost, speeds.work(cpu, from, end))
                } else {
                    end - from
                };
                self.k.slots.set_segment_end(cpu, from + cost + length);
            }
        }
    }

    fn finish(mut self) -> Run {
        // Some essential task may wait for what never comes: then nothing of interest happened
        // since one last ran.
        let idle = self.ends_with_essential && self.until != NEVER && self.last_essential < self.until / 2;
        let end = match self.until {
            NEVER => self.k.now,
            _ if idle => self.last_essential.max(self.at_least),
            until => until,
        };
        self.k.now = end;
        self.counts.end = end;
        let warning = self.starvation();
        let stuck = self.stuck();
        let mut counters = Vec::new();
        for (_, policy) in &self.stack.layers {
            counters.extend(policy.counters());
        }
        let mut inspected = Vec::new();
        for (t, key) in &self.inspect {
            let class = self.k.tasks[t.index()].class as usize;
            inspected.push(self.stack.layers[class].1.inspect(&self.k, *t, key));
        }
        let on_cpu: Vec<_> = self.k.cpus.iter().map(|c| c.curr).collect();
        for (cpu, t) in on_cpu.iter().enumerate() {
            if let Some(t) = t {
                self.account(cpu, *t);
            }
        }
        for (program, task) in self.k.work.tasks.iter_mut().zip(&mut self.k.tasks) {
            program.steps = std::mem::take(&mut task.steps);
        }
        Run {
            ran: self.k.tasks.iter().map(|t| t.ran).collect(),
            states: self.k.tasks.iter().map(|t| t.state).collect(),
            log: self.k.log,
            work: self.k.work,
            counts: self.counts,
            counters,
            inspected,
            on_cpu,
            warning,
            stuck,
        }
    }
}
