//! The [`Policy`] trait: what a scheduler is to the engine, and [`Kernel`], what the engine is to a scheduler.
//!
//! Hook names are those of sched_ext where it has one. The life of a task, in hooks:
//!
//! ```text
//! init_task -> [select_cpu -> runnable -> enqueue -> wakeup_preempt] -> dispatch -> running
//!           running: tick, expired, yield_, set_params
//!           leaves its CPU but goes on:  stopping(Preempted | Yielded) -> enqueue(Preempted | Yielded)
//!           falls asleep or ends:        stopping(Slept | Exited) -> quiescent [-> exit_task]
//!           queued and taken away:       dequeue
//! ```
//!
//! A policy owns its queues. The task that runs is in no queue: `dispatch` takes a task out, `enqueue` puts one in.
//! At one instant things happen in the order of the module [`crate::engine`].

use crate::cost::Costs;
use crate::engine::slots::Slots;
use crate::log::Log;
use crate::program::{Fork, Pause, Step, Workload};
use crate::task::{Attrs, Cpu, Ns, Task, TaskId, TaskState, NEVER};

/// Who or what woke a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A task that runs on `cpu`.
    Task {
        /// The waker.
        waker: TaskId,
        /// CPU on which it runs.
        cpu: Cpu,
        /// True when it says that it will sleep soon.
        sync: bool,
    },
    /// A timer interrupt.
    Timer,
    /// A device interrupt.
    Io,
    /// Something that the replay does not model.
    External,
}

/// Why a CPU is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// The task wakes.
    Wakeup(Wake),
    /// The task is new.
    Fork,
    /// The task executes another program: it has no cache to lose.
    Exec,
}

/// Why a task comes to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueue {
    /// It was there before the replay began: no credit and no debt.
    Initial,
    /// It was made just now by its parent ([`Task::parent`]).
    New,
    /// It wakes.
    Wakeup(Wake),
    /// It leaves its CPU against its will (preempted, slice used up).
    Preempted,
    /// It yields.
    Yielded,
    /// It comes from another CPU's queue.
    Moved,
    /// It comes from another scheduling class of the stack.
    Joined,
}

/// Why a queued task that does not run is taken out of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dequeue {
    /// It goes to another CPU.
    Moved,
    /// It goes to another scheduling class of the stack.
    Left,
}

/// Why a task stops running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Against its will; `enqueue(Preempted)` follows.
    Preempted,
    /// It yielded; `enqueue(Yielded)` follows.
    Yielded,
    /// It sleeps.
    Slept,
    /// It ended.
    Exited,
    /// It goes to another scheduling class of the stack and goes on running there.
    Left,
}

/// Tells `init_task` where a task comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth {
    /// The task that makes it.
    pub parent: TaskId,
    /// How.
    pub how: Fork,
}

/// A scheduling policy.
///
/// Only `enqueue`, `dequeue` and `dispatch` have no default. Time is in ns. [`Kernel::clock`] is the clock for
/// accounts; [`Kernel::now`] the time of the simulation. A hook that finds something it cannot accept calls
/// [`Kernel::fail`].
#[allow(unused_variables)]
pub trait Policy {
    /// The replay begins. CPUs, HZ and costs are known; there are no tasks yet.
    fn init(&mut self, k: &mut Kernel) {}

    /// `t` comes into being: `birth` is `None` for tasks that were there before. It is not runnable yet.
    /// Called for tasks of all classes of the stack, so that storage can be made.
    fn init_task(&mut self, k: &mut Kernel, t: TaskId, birth: Option<Birth>) {}

    /// The parent returns from making `child`, which has been put on a queue.
    fn fork_return(&mut self, k: &mut Kernel, parent: TaskId, child: TaskId, how: Fork) {}

    /// `t`, which runs, executes another program.
    fn exec(&mut self, k: &mut Kernel, t: TaskId) {}

    /// `t`, which runs, has begun to exit and will run for a little longer.
    fn exiting(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {}

    /// `t` has ended. Its parent, when still alive, is [`Task::parent`].
    fn exit_task(&mut self, k: &mut Kernel, t: TaskId) {}

    /// `t` enters this policy's care from another class of the stack (`enqueue(Joined)` or `running` follows).
    fn enable(&mut self, k: &mut Kernel, t: TaskId) {}

    /// `t` leaves this policy's care for another class of the stack.
    fn disable(&mut self, k: &mut Kernel, t: TaskId) {}

    /// The CPU on whose queue `t` goes. Must be one that `t` may use.
    fn select_cpu(&mut self, k: &mut Kernel, t: TaskId, why: Select) -> Cpu {
        match why {
            Select::Wakeup(_) => k.idle_or_last(t),
            Select::Fork | Select::Exec => k.least_loaded(t),
        }
    }

    /// `t` becomes runnable (wakes, or is new); `enqueue` follows.
    fn runnable(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {}

    /// Puts `t`, which is runnable and does not run, on the queue of `cpu`.
    fn enqueue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Enqueue);

    /// `t` was put on the queue of `cpu`, where `curr` of the same class runs: ask for [`Kernel::resched`] if `t` is
    /// to preempt it. Not called after `enqueue(Preempted | Yielded)`. Classes preempt lower classes by themselves.
    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, why: Enqueue) {}

    /// Takes `t`, which is queued on `cpu`, out.
    fn dequeue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Dequeue);

    /// Chooses the task that `cpu` runs next and takes it out of its queue; `None` when there is none.
    /// May choose from another CPU's queue: the engine moves the task.
    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId>;

    /// `t` starts to run; `switched` is false when it ran before and was chosen again.
    fn running(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, switched: bool) {}

    /// `t` stops running. Charge it here.
    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {}

    /// `t` is no longer runnable: it sleeps or has ended.
    fn quiescent(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {}

    /// False when [`Self::tick`] does nothing: the engine may then pass over ticks at which nothing else happens.
    fn wants_ticks(&self) -> bool {
        true
    }

    /// A clock tick while `t` runs.
    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {}

    /// The slice of `t` that was set by [`Kernel::set_slice`] is over while it runs.
    fn expired(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        k.resched(cpu);
    }

    /// A timer that was set by [`Kernel::timer_at`] fires.
    fn timer(&mut self, k: &mut Kernel, token: u64) {}

    /// Once a second.
    fn second(&mut self, k: &mut Kernel) {}

    /// `t`, which runs, yields; `stopping(Yielded)`, `enqueue(Yielded)` and `dispatch` follow.
    fn yield_(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {}

    /// The attributes of `t` changed from `old` to those in its [`Task`].
    fn set_params(&mut self, k: &mut Kernel, t: TaskId, old: &Attrs) {}

    /// The value of something the policy keeps of `t`, for literate specs (`vruntime`, `counter`, `priority`).
    fn inspect(&self, k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        None
    }

    /// What the policy counted (recalculations, boosts), for literate specs and reports.
    fn counters(&self) -> Vec<(&'static str, i64)> {
        Vec::new()
    }
}

/// A CPU as policies may read it.
#[derive(Clone, Debug)]
pub(crate) struct CpuState {
    pub curr: Option<TaskId>,
    pub need_resched: bool,
    /// True while the idle task is on the CPU (not while a switch to another task is due).
    pub idle: bool,
    /// Runnable and running tasks.
    pub nr: u32,
    /// Clock of accounts, and whether the next reschedule takes it as it is.
    pub clock: Ns,
    pub keep_clock: bool,
    /// From when on the current task's own demand is served.
    pub run_from: Ns,
    /// When the current task was put on the CPU.
    pub on_since: Ns,
    /// An interrupt or a switch goes on until then.
    pub busy_until: Ns,
    /// Interrupts are off until then.
    pub masked_until: Ns,
    pub tick_phase: Ns,
    /// Who left last, for the switch record; and how.
    pub leaving: Option<(TaskId, Stop)>,
    /// The task that an interrupt has just woken, where it asked for a choice of a task.
    pub irq_woke: Option<TaskId>,
    /// Cost that the policy reported and that is to be charged at the next switch.
    pub owed: Ns,
    /// True while the segment slot of the CPU holds the end of the current task's run step.
    pub serving: bool,
    pub yielded: bool,
    /// When it last switched.
    pub switched_at: Ns,
    /// When a task last fell asleep or ended on it.
    pub blocked_at: Ns,
    /// The timer of the sleep that has just begun is the next to fire.
    pub timer_first: bool,
    /// When the interrupt going on came, where it has done something already: a wakeup or a tick.
    pub irq_entry: Option<Ns>,
}

/// The machine under the policy: time, CPUs, tasks, and requests to the engine.
#[derive(Debug)]
pub struct Kernel {
    pub(crate) now: Ns,
    pub(crate) tick_ns: Ns,
    pub(crate) preempt_kernel: bool,
    pub(crate) costs: Costs,
    pub(crate) cpus: Vec<CpuState>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) live: usize,
    pub(crate) work: Workload,
    pub(crate) slots: Slots,
    pub(crate) timers: std::collections::BinaryHeap<std::cmp::Reverse<(Ns, u64, u8, u64)>>,
    pub(crate) timer_seq: u64,
    pub(crate) class: u8,
    pub(crate) in_second: bool,
    pub(crate) log: Log,
    pub(crate) failed: Option<String>,
    /// Entries of the process table, see [`crate::cost::ForkCost::Table`].
    pub(crate) pid_table: usize,
}

impl Kernel {
    /// Time of the simulation.
    #[inline]
    pub fn now(&self) -> Ns {
        self.now
    }

    /// The clock by which `cpu` keeps accounts. It equals [`Self::now`] but in a reschedule after
    /// [`Self::resched_keeping_clock`], where it is the time of the event that asked for it.
    #[inline]
    pub fn clock(&self, cpu: Cpu) -> Ns {
        self.cpus[cpu].clock
    }

    /// Brings the accounting clock of `cpu` up to now. The engine does it before every hook that concerns a CPU; only
    /// `timer` and `second`, which concern none, need it.
    pub fn update_clock(&mut self, cpu: Cpu) {
        self.cpus[cpu].clock = self.now;
    }

    /// True when both are in the same scheduling class of the stack.
    pub fn same_class(&self, a: TaskId, b: TaskId) -> bool {
        self.task(a).class == self.task(b).class
    }

    /// True when `t` is in the class of the policy whose hook this is.
    pub fn is_mine(&self, t: TaskId) -> bool {
        self.task(t).class == self.class
    }

    /// Number of CPUs.
    #[inline]
    pub fn nr_cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Length of a clock tick.
    #[inline]
    pub fn tick_ns(&self) -> Ns {
        self.tick_ns
    }

    /// Ticks a second.
    pub fn hz(&self) -> i64 {
        1_000_000_000 / self.tick_ns
    }

    /// Whole ticks since time 0, as a kernel's tick counter of `cpu` would show.
    pub fn ticks(&self, cpu: Cpu) -> i64 {
        (self.now - self.cpus[cpu].tick_phase).div_euclid(self.tick_ns)
    }

    /// The task that runs on `cpu`; `None` when it is idle or its task just went to sleep.
    #[inline]
    pub fn curr(&self, cpu: Cpu) -> Option<TaskId> {
        self.cpus[cpu].curr
    }

    /// True when `cpu` runs nothing and has nothing to run.
    #[inline]
    pub fn is_idle(&self, cpu: Cpu) -> bool {
        self.cpus[cpu].idle && self.cpus[cpu].nr == 0
    }

    /// Runnable and running tasks of all classes on `cpu`.
    #[inline]
    pub fn nr_runnable(&self, cpu: Cpu) -> usize {
        self.cpus[cpu].nr as usize
    }

    /// A task.
    #[inline]
    pub fn task(&self, t: TaskId) -> &Task {
        &self.tasks[t.index()]
    }

    /// All tasks that have begun and not ended, in order of their numbers.
    pub fn live_tasks(&self) -> impl Iterator<Item = TaskId> + '_ {
        let live = |t: &Task| !matches!(t.state, TaskState::New | TaskState::Dead);
        self.tasks.iter().enumerate().filter(move |(_, t)| live(t)).map(|(i, _)| TaskId(i as u32))
    }

    /// Number of live tasks.
    pub fn nr_live(&self) -> usize {
        self.live
    }

    /// Number of tasks that exist or will exist.
    pub fn nr_tasks(&self) -> usize {
        self.tasks.len()
    }

    /// CPU time of `t` up to now, switch and interrupt costs included.
    pub fn ran(&self, t: TaskId) -> Ns {
        let task = self.task(t);
        match task.state {
            TaskState::Running => task.ran + (self.now - self.cpus[task.cpu].on_since),
            _ => task.ran,
        }
    }

    /// True when `t` may use `cpu`.
    #[inline]
    pub fn allowed(&self, t: TaskId, cpu: Cpu) -> bool {
        self.task(t).attrs.affinity.contains(cpu)
    }

    /// The task's last CPU when that is idle; else the next idle CPU that it may use; else its last CPU, or the
    /// first that it may use.
    pub fn idle_or_last(&self, t: TaskId) -> Cpu {
        let last = self.task(t).cpu.min(self.cpus.len() - 1);
        if self.cpus.len() == 1 {
            return 0;
        }
        let n = self.cpus.len();
        let from_last = (0..n).map(|i| (last + i) % n);
        from_last
            .clone()
            .find(|&c| self.is_idle(c) && self.allowed(t, c))
            .or_else(|| from_last.clone().find(|&c| self.allowed(t, c)))
            .unwrap_or(last)
    }

    /// The CPU with the fewest runnable tasks that `t` may use; the task's own CPU wins ties, then the lowest number.
    pub fn least_loaded(&self, t: TaskId) -> Cpu {
        let own = self.task(t).cpu.min(self.cpus.len() - 1);
        let usable = (0..self.cpus.len()).filter(|&c| self.allowed(t, c));
        usable.min_by_key(|&c| (self.cpus[c].nr, c != own, c)).unwrap_or(own)
    }

    /// Asks for a reschedule of `cpu` as soon as it can.
    pub fn resched(&mut self, cpu: Cpu) {
        let c = &mut self.cpus[cpu];
        if c.need_resched {
            return;
        }
        c.need_resched = true;
        let held = !self.preempt_kernel && c.curr.is_some_and(|t| self.tasks[t.index()].in_kernel);
        if !held {
            self.slots.set_resched(cpu, self.now.max(c.busy_until));
        }
    }

    /// Asks for a reschedule that keeps the accounting clock where it is now: the time until the switch is charged
    /// to the task that comes (Linux skips the clock update after a wakeup that preempts).
    pub fn resched_keeping_clock(&mut self, cpu: Cpu) {
        self.resched(cpu);
        self.cpus[cpu].keep_clock = true;
    }

    /// True when a reschedule of `cpu` is due.
    #[inline]
    pub fn need_resched(&self, cpu: Cpu) -> bool {
        self.cpus[cpu].need_resched
    }

    /// Lets `expired` be called `ns` from now if the task that starts to run on `cpu` still runs then without a
    /// switch. Call it in `running`; [`NEVER`] takes it back.
    #[inline]
    pub fn set_slice(&mut self, cpu: Cpu, ns: Ns) {
        let at = if ns == NEVER { NEVER } else { self.now.saturating_add(ns) };
        self.slots.set_slice(cpu, at);
    }

    /// Calls `timer(token)` of this policy at time `at`. Timers are not taken back: the token tells if it is stale.
    pub fn timer_at(&mut self, at: Ns, token: u64) {
        self.timer_seq += 1;
        self.timers.push(std::cmp::Reverse((at.max(self.now), self.timer_seq, self.class, token)));
        let first = self.timers.peek().map_or(NEVER, |t| t.0 .0);
        self.slots.set_policy_timer(first);
    }

    /// Says that `t`, which is queued, is now queued on `cpu`. The policy has moved it between its queues.
    pub fn migrate(&mut self, t: TaskId, cpu: Cpu) {
        let from = self.task(t).cpu;
        if from == cpu {
            return;
        }
        self.log.migrate(self.now, t, from, cpu);
        self.tasks[t.index()].cpu = cpu;
        self.cpus[from].nr -= 1;
        self.cpus[cpu].nr += 1;
        if self.cpus[cpu].idle {
            self.resched(cpu);
        }
    }

    /// Says that the policy's own rule looked at `tasks` task entries on `cpu`; the cost table turns that into time.
    pub fn scanned(&mut self, cpu: Cpu, tasks: usize) {
        let each = if self.in_second { self.costs.second } else { self.costs.scan };
        self.cpus[cpu].owed += each * tasks as Ns;
    }

    /// Says that the policy's own rule gave `tasks` tasks a new counter on `cpu`; the cost table turns that into time.
    pub fn recalculated(&mut self, cpu: Cpu, tasks: usize) {
        self.cpus[cpu].owed += self.costs.recalc * tasks as Ns;
    }

    /// CPU time that `t` uses until it next sleeps, yields or ends: what no real scheduler knows.
    /// Walks the steps up to there.
    pub fn burst_left(&self, t: TaskId) -> Ns {
        let task = self.task(t);
        let mut sum = match task.state {
            TaskState::Running => match self.slots.segment_end(task.cpu) {
                NEVER => return NEVER,
                end => end - self.now.max(self.cpus[task.cpu].run_from),
            },
            _ => task.left,
        };
        if sum == NEVER {
            return NEVER;
        }
        let steps = self.steps_of(t);
        let mut pc = task.pc as usize;
        let mut looked = 0;
        while let Some(step) = steps.get(pc) {
            pc += 1;
            looked += 1;
            match *step {
                Step::Run { ns } | Step::RunKernel { ns } => sum = sum.saturating_add(ns),
                Step::Goto { .. } | Step::LoopUntil { .. } if looked > 2 * steps.len() => return NEVER,
                Step::Goto { step } => pc = step as usize,
                Step::LoopUntil { step, until } if self.now <= until => pc = step as usize,
                Step::Pause { .. } | Step::Wait { .. } | Step::Serve { .. } | Step::Yield | Step::Exit => break,
                _ => {}
            }
        }
        sum
    }

    /// The steps that `t` goes through: those of its program, or of the job it does.
    pub(crate) fn steps_of(&self, t: TaskId) -> &[Step] {
        steps_of(&self.work, self.task(t), t)
    }

    /// True when the sleep that `t` begins was for a device.
    pub fn sleeps_for_io(&self, t: TaskId) -> bool {
        let task = self.task(t);
        let at = (task.pc as usize).checked_sub(1);
        let step = at.and_then(|i| self.steps_of(t).get(i));
        matches!(step, Some(Step::Pause { pause: Pause::Io { .. }, .. }))
    }

    /// Stops the replay with an error; the engine adds the name of the policy.
    pub fn fail(&mut self, message: impl Into<String>) {
        if self.failed.is_none() {
            self.failed = Some(message.into());
        }
    }

    pub(crate) fn fork_cost(&mut self) -> Ns {
        self.costs.fork.of(self.live, &mut self.pid_table)
    }
}

/// The steps that `task`, whose number is `t`, goes through.
pub(crate) fn steps_of<'a>(work: &'a Workload, task: &Task, t: TaskId) -> &'a [Step] {
    match task.job {
        Some((job, _)) => &work.jobs[job as usize],
        None => &work.tasks[t.index()].steps,
    }
}
