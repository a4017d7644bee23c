//! What policies may ask and request: time, CPUs, tasks, slices, timers.

use super::cpu::CpuState;
use super::idle::IdleCpus;
use crate::cost::Costs;
use crate::engine::slots::Slots;
use crate::log::Log;
use crate::program::{Group, Pause, Step, Workload};
use crate::speeds::Speeds;
use crate::task::{Cpu, CpuSet, Ns, Task, TaskId, TaskState, NEVER};

/// The machine under the policy: time, CPUs, tasks, and requests to the engine.
#[derive(Debug)]
pub struct Kernel {
    pub(crate) now: Ns,
    pub(crate) tick_ns: Ns,
    pub(crate) preempt_kernel: bool,
    pub(crate) costs: Costs,
    pub(crate) speeds: Speeds,
    pub(crate) balanced: CpuSet,
    pub(crate) seed: u64,
    pub(crate) cpus: Vec<CpuState>,
    pub(crate) idle: IdleCpus,
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
    /// The CPU on which what happens now happens.
    pub(crate) here: Option<Cpu>,
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

    /// What the kernel's random numbers are drawn from: another one in each repetition of a replay.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Brings the accounting clock of `cpu` up to now. The engine does it before every hook that
    /// concerns a CPU; only `timer` and `second`, which concern none, need it.
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

    /// The first tick of `cpu` at or after `at`.
    pub fn tick_at(&self, cpu: Cpu, at: Ns) -> Ns {
        let phase = self.cpus[cpu].tick_phase;
        phase - (phase - at).div_euclid(self.tick_ns) * self.tick_ns
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

    /// In [`enqueue`](crate::policy::Policy::enqueue): `cpu` is idle, and the task that is queued
    /// is the only one there.
    #[inline]
    pub fn was_idle(&self, cpu: Cpu) -> bool {
        self.cpus[cpu].idle && self.cpus[cpu].nr <= 1
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

    /// The groups that tasks are in.
    pub fn groups(&self) -> &[Group] {
        &self.work.groups
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

    /// `t` is there from the beginning, and asleep.
    pub fn begins_asleep(&self, t: TaskId) -> bool {
        matches!(self.work.tasks[t.index()].start, crate::program::Start::Asleep(_))
    }

    /// How often in a second `t` wakes another task than before, as far as that is known.
    pub fn flips_before(&self, t: TaskId) -> Option<u32> {
        self.work.tasks[t.index()].wakee_flips
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

    /// True when `cpu` has a scheduling domain: others balance tasks with it.
    #[inline]
    pub fn balances(&self, cpu: Cpu) -> bool {
        self.balanced.contains(cpu)
    }

    /// The CPUs with a scheduling domain.
    pub fn domain(&self) -> impl Iterator<Item = Cpu> + '_ {
        (0..self.cpus.len()).filter(|&c| self.balances(c))
    }

    /// The task's last CPU when that is idle; else the next idle CPU that it may use; else its last
    /// CPU, or the first that it may use.
    pub fn idle_or_last(&self, t: TaskId) -> Cpu {
        let last = self.task(t).cpu.min(self.cpus.len() - 1);
        if self.cpus.len() == 1 {
            return 0;
        }
        let n = self.cpus.len();
        let mut from_last = (0..n).map(|i| (last + i) % n);
        self.next_idle(t, last).or_else(|| from_last.find(|&c| self.allowed(t, c))).unwrap_or(last)
    }

    /// The first idle CPU that `t` may use, from `from` on; after the last CPU comes the first.
    /// What it costs does not grow with the number of busy CPUs.
    pub fn next_idle(&self, t: TaskId, from: Cpu) -> Option<Cpu> {
        let found = self.idle.next(from, &self.task(t).attrs.affinity);
        debug_assert_eq!(
            found,
            (0..self.cpus.len()).map(|i| (from + i) % self.cpus.len()).find(|&c| self.is_idle(c) && self.allowed(t, c))
        );
        found
    }

    /// The idle CPUs, in order of their numbers.
    pub fn idle_cpus(&self) -> impl Iterator<Item = Cpu> + '_ {
        self.idle.iter()
    }

    /// Adds `by` to the tasks of `cpu`.
    #[inline]
    pub(crate) fn count(&mut self, cpu: Cpu, by: i32) {
        let c = &mut self.cpus[cpu];
        c.nr = c.nr.wrapping_add_signed(by);
        // Where something runs it has been taken out of the idle ones before.
        if c.idle {
            self.idle.set(cpu, c.nr == 0);
        }
    }

    /// The CPU with the fewest runnable tasks that `t` may use; the task's own CPU wins ties, then
    /// the lowest number.
    pub fn least_loaded(&self, t: TaskId) -> Cpu {
        let own = self.task(t).cpu.min(self.cpus.len() - 1);
        let usable = &self.task(t).attrs.affinity;
        let (mut least, mut found) = (if usable.contains(own) { self.cpus[own].nr } else { u32::MAX }, own);
        for (cpu, state) in self.cpus.iter().enumerate() {
            if state.nr < least && usable.contains(cpu) {
                (least, found) = (state.nr, cpu);
            }
        }
        found
    }

    /// Asks for a reschedule of `cpu` as soon as it can.
    pub fn resched(&mut self, cpu: Cpu) {
        let c = &mut self.cpus[cpu];
        if c.need_resched {
            // What another CPU called for is heeded at once where something happens on the CPU itself.
            if self.here == Some(cpu) && self.slots.resched(cpu) != NEVER {
                self.slots.set_resched(cpu, self.now.max(c.busy_until).min(self.slots.resched(cpu)));
            }
            return;
        }
        c.need_resched = true;
        let held = !self.preempt_kernel && c.curr.is_some_and(|t| self.tasks[t.index()].in_kernel);
        if held {
            return;
        }
        let busy_until = c.busy_until;
        self.slots.set_resched(cpu, self.reaches(cpu).max(busy_until));
    }

    /// When a call from where this happens reaches `cpu`: now on `cpu` itself, else behind what an
    /// interrupt between CPUs takes.
    pub fn reaches(&self, cpu: Cpu) -> Ns {
        let cost = if self.here.is_none_or(|here| here == cpu) {
            0
        } else if self.cpus[cpu].curr.is_some() {
            self.costs.remote_wakeup
        } else {
            self.costs.remote_idle
        };
        self.now + cost
    }

    /// What happens now happens on `cpu`: for timers of a policy, which are of no CPU.
    pub fn happens_on(&mut self, cpu: Cpu) {
        self.here = Some(cpu);
    }

    /// Asks for a reschedule of `cpu` as soon as it next returns to a task (lazy preemption): now
    /// when what happens does so on `cpu` itself or `cpu` is idle; else at its next interrupt,
    /// system call or tick.
    pub fn resched_lazy(&mut self, cpu: Cpu) {
        if self.here == Some(cpu) || self.cpus[cpu].curr.is_none() {
            self.resched(cpu);
        } else {
            self.cpus[cpu].lazy = true;
        }
    }

    /// `cpu` has entered its kernel and returns to its task.
    pub(crate) fn returns_to_task(&mut self, cpu: Cpu) {
        if std::mem::take(&mut self.cpus[cpu].lazy) {
            self.resched(cpu);
        }
    }

    /// Asks for a reschedule that keeps the accounting clock where it is now: the time until the
    /// switch is charged to the task that comes (Linux skips the clock update after a wakeup that
    /// preempts).
    pub fn resched_keeping_clock(&mut self, cpu: Cpu) {
        self.resched(cpu);
        self.cpus[cpu].keep_clock = true;
    }

    /// The CPU on which what happens now happens; `None` where it happens on none, such as a timer
    /// of a policy.
    pub fn here(&self) -> Option<Cpu> {
        self.here
    }

    /// When `cpu` is through with the switch or interrupt that it is in: now, where it is in none.
    pub fn switching_until(&self, cpu: Cpu) -> Ns {
        self.cpus[cpu].busy_until.max(self.now)
    }

    /// True when a reschedule of `cpu` is due.
    #[inline]
    pub fn need_resched(&self, cpu: Cpu) -> bool {
        self.cpus[cpu].need_resched
    }

    /// Lets `slice_expired` be called `ns` from now if the task that starts to run on `cpu` still
    /// runs then without a switch. Call it in `running`; [`NEVER`] takes it back.
    #[inline]
    pub fn set_slice(&mut self, cpu: Cpu, ns: Ns) {
        if ns <= 0 {
            let who = self.curr(cpu).map_or_else(String::new, |t| format!(" for {}", self.name(t)));
            return self.fail(format!("a slice of {ns} ns on CPU {cpu}{who}: expected more than 0"));
        }
        let at = if ns == NEVER { NEVER } else { self.now.saturating_add(ns) };
        self.slots.set_slice(cpu, at);
    }

    /// Calls `timer(token)` of this policy at time `at`. Timers are not taken back: the token says
    /// if it is stale.
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
        if self.task(t).state != TaskState::Runnable {
            let message = format!("migrate of {}, which is {:?}, not queued", self.name(t), self.task(t).state);
            return self.fail(message);
        }
        self.log.migrate(self.now, t, from, cpu);
        self.tasks[t.index()].cpu = cpu;
        self.count(from, -1);
        self.count(cpu, 1);
        if self.cpus[cpu].idle {
            self.resched(cpu);
        }
    }

    /// Says that `t`, which is runnable, may not run because its group has used its quota, or may
    /// again: it does not count as runnable meanwhile.
    pub fn set_throttled(&mut self, t: TaskId, throttled: bool) {
        let task = &mut self.tasks[t.index()];
        if std::mem::replace(&mut task.throttled, throttled) != throttled {
            let cpu = task.cpu;
            self.count(cpu, if throttled { -1 } else { 1 });
        }
    }

    /// Says that the policy's own rule looked at `tasks` task entries on `cpu`; the cost table
    /// turns that into time.
    pub fn scanned(&mut self, cpu: Cpu, tasks: usize) {
        let each = if self.in_second { self.costs.second } else { self.costs.scan };
        self.cpus[cpu].owed += each * tasks as Ns;
    }

    /// Says that the policy's own rule gave `tasks` tasks a new counter on `cpu`; the cost table
    /// turns that into time.
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
                end => self.speeds.work(task.cpu, self.now.max(self.cpus[task.cpu].run_from), end),
            },
            _ => task.left,
        };
        if sum == NEVER || task.after == NEVER {
            return NEVER;
        }
        sum = sum.saturating_add(task.after);
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
                Step::Pause { .. }
                | Step::Wait { .. }
                | Step::Receive { .. }
                | Step::Put { .. }
                | Step::Take { .. }
                | Step::Acquire { .. }
                | Step::Contend { .. }
                | Step::Barrier { .. }
                | Step::Yield
                | Step::Spin { .. }
                | Step::Exit => break,
                _ => {}
            }
        }
        sum
    }

    /// The steps that `t` goes through: those of its program, or of the handler that it runs.
    pub(crate) fn steps_of(&self, t: TaskId) -> &[Step] {
        steps_of(&self.work, self.task(t))
    }

    /// True when the sleep that `t` begins was for a device.
    pub fn sleeps_for_io(&self, t: TaskId) -> bool {
        let task = self.task(t);
        let at = (task.pc as usize).checked_sub(1);
        let step = at.and_then(|i| self.steps_of(t).get(i));
        matches!(step, Some(Step::Pause { pause: Pause::Io { .. }, .. }))
    }

    /// A task as messages call it: number and name.
    pub fn name(&self, t: TaskId) -> String {
        let comm = self.work.tasks.get(t.index()).map_or("?", |p| p.comm.as_str());
        format!("task {} ({comm})", t.0)
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

/// The steps that `task` goes through.
pub(crate) fn steps_of<'a>(work: &'a Workload, task: &'a Task) -> &'a [Step] {
    match task.handler {
        Some((handler, _)) => &work.handlers[handler as usize],
        None => &task.steps,
    }
}
