//! Second pass: from what happened to what each task does.

use std::collections::{HashMap, HashSet};

use super::draft::Draft;
use super::periods::Timers;
use super::receive::receives_from;
use super::sleep::{Sleeps, DEFAULT_SLACK};
use super::spins::{self, Spins};
use super::{Class, Evidence, LoopMode, Note, Options, Placement, Reading, Recon};
use crate::calibrate::Overheads;
use crate::history::{By, EventKind, First, History, Off, TaskEvent, TaskHistory, TaskIndex};
use crate::infer::Messages;
use crate::program::{Fork, HandlerId, Pause, Program, SemId, Start, Step, Workload};
use crate::rates::Rates;
use crate::speeds::Speeds;
use crate::task::{Attrs, Cpu, Ns, SchedPolicy, Sleep, TaskId};

/// What is decided about a task as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Its last burst is taken for endless.
    pub endless: bool,
    /// It does the same until the end and would go on.
    pub loops: bool,
    /// The replay waits for it to end.
    pub essential: bool,
}

pub(super) struct Builder<'a> {
    pub(super) history: &'a History,
    pub(super) over: &'a Overheads,
    speeds: Speeds,
    rates: &'a Rates,
    pub(super) options: &'a Options,
    pub(super) sleeps: Sleeps,
    pub(super) verdicts: Vec<Verdict>,
    /// Moment from which on tasks stop because the recorded run was over.
    pub(super) stop: Ns,
    /// For each numbered wakeup: the semaphore, once somebody waits for it.
    pub(super) sem_of_wake: Vec<Option<SemId>>,
    /// For each pool and each task that its members wake: the semaphore that they post.
    pub(super) sem_of_pool: HashMap<(u32, TaskIndex), SemId>,
    /// For each task: the semaphore that its exit posts, where a parent reaped it without sleeping.
    pub(super) sem_of_exit: Vec<Option<SemId>>,
    /// Wait calls that found a child ended: (task, position of the call) to child.
    pub(super) reaps: HashMap<(TaskIndex, usize), TaskIndex>,
    sems: Vec<u32>,
    pub(super) spins: &'a Spins,
    pub(super) messages: Messages,
    /// Tasks that send each other messages of which too many cannot be followed.
    pub(super) unexplained: HashSet<TaskIndex>,
    pub(super) sem_of_message: HashMap<u32, SemId>,
    pub(super) handler_of_wake: HashMap<u32, HandlerId>,
    /// For each task: when it first took a message that others could take.
    pub(super) receives_from: Vec<Option<Ns>>,
    /// For each queue: how many tasks receive from it.
    pub(super) readers: Vec<u32>,
    /// Work behind each message: the task that did it, its steps, and where they come from.
    pub(super) handlers: Vec<(TaskIndex, Vec<Step>, Vec<Note>)>,
    pub(super) classes: [u64; Class::COUNT],
    /// Tasks that were ready at the end and never got a CPU.
    pub(super) starved: Vec<TaskId>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(reading: &'a Reading) -> Self {
        let Reading { history, overheads: over, options, .. } = reading;
        let messages = reading.messages.clone();
        Builder {
            sleeps: Sleeps::measure(history, over, if options.exact_timers { 0 } else { DEFAULT_SLACK }),
            verdicts: reading.verdicts.clone(),
            handlers: vec![(0, Vec::new(), Vec::new()); messages.sent.len()],
            unexplained: messages.unexplained().collect(),
            readers: messages.readers(),
            receives_from: receives_from(&messages),
            messages,
            sem_of_message: HashMap::new(),
            handler_of_wake: HashMap::new(),
            stop: reading.stop,
            sem_of_wake: vec![None; history.wakee.len()],
            sem_of_pool: HashMap::new(),
            sem_of_exit: vec![None; history.tasks.len()],
            reaps: HashMap::new(),
            sems: Vec::new(),
            spins: &reading.spins,
            classes: [0; Class::COUNT],
            starved: Vec::new(),
            history,
            over,
            speeds: reading.speeds(),
            rates: reading.rates(),
            options,
        }
    }

    pub(super) fn build(mut self) -> Recon {
        self.find_semaphores();
        let mut work = Workload::default();
        let mut notes = Vec::new();
        for id in 0..self.history.tasks.len() as TaskIndex {
            if self.options.cancel.is_set() {
                break;
            }
            let (program, note) = self.program(id);
            work.tasks.push(program);
            notes.push(note);
        }
        work.sems = self.sems;
        work.buffers.clone_from(&self.messages.buffers);
        work.locks.clone_from(&self.messages.locks);
        work.barriers.clone_from(&self.messages.barriers);
        work.queues = self.messages.queues;
        work.calls.clone_from(&self.messages.calls);
        let mut handlers = Vec::with_capacity(self.handlers.len());
        work.requests = self.messages.sent.iter().map(|m| m.request).collect();
        for (task, steps, notes) in self.handlers {
            work.handlers.push(steps);
            handlers.push((task, notes));
        }
        spins::check(&mut work);
        // A recording that ended with its work goes on until that is done; one that was stopped in the
        // middle shows a stretch of time, and so does its replay.
        // What looks like busy waits of those that share a lock are its own.
        let spinners = self.spins.who().filter(|t| !self.messages.shares_lock(*t)).map(TaskId).collect();
        let done = super::verdict::ends_with_work(self.history, &self.verdicts, self.stop);
        Recon {
            until: if done { self.history.span.saturating_mul(20).max(1) } else { self.stop },
            at_least: if done { 0 } else { self.stop },
            stop: self.stop,
            preempt_kernel: self.history.exits.1 * 20 > self.history.exits.0,
            work,
            notes,
            handlers,
            verdicts: self.verdicts,
            overheads: self.over.clone(),
            slack: self.sleeps.constant.iter().map(|constant| (self.sleeps.slack, *constant)).collect(),
            periodic: self.sleeps.periodic(),
            classes: self.classes,
            starved: self.starved,
            placed: self.options.placement == Placement::Trace,
            beside: None,
            bound: Vec::new(),
            start: self.history.start,
            span: self.history.span,
            cut: self.history.cut,
            cpus: self.history.cpus.clone(),
            speeds: self.speeds.clone(),
            rates: self.rates.clone(),
            isolated: Default::default(),
            entries: self.history.tasks.iter().map(|task| task.events.len()).sum(),
            uncaused: self.history.uncaused,
            yields_unrecorded: self.history.yields.0 == 0 && self.history.yields.1 > 0,
            ticks_show: self.history.has_runtime || !self.history.ticks.is_empty(),
            wakes_unrecorded: !self.history.wakes && self.classes.iter().any(|n| *n > 0),
            unmade: self.history.unmade,
            coarse: self.history.resolution() >= 1_000,
            idle_wakeups: self.history.idle_wakeups,
            mismatches: self.history.mismatches,
            unobserved: self.messages.found,
            spinners,
            stated: None,
        }
    }

    pub(super) fn new_sem(&mut self) -> SemId {
        self.sems.push(0);
        SemId(self.sems.len() as u32 - 1)
    }

    fn attrs(&self, task: &TaskHistory, prio: i32) -> Attrs {
        let mut attrs = Attrs::default();
        if (0..100).contains(&prio) {
            attrs.policy = if task.round_robin { SchedPolicy::Rr } else { SchedPolicy::Fifo };
            attrs.rt_prio = 99 - prio;
        } else if prio < 0 {
            // No record shows what it reserved.
            attrs.policy = SchedPolicy::Deadline;
        } else {
            attrs.nice = (prio - 120).clamp(-20, 19);
            // Virtual time that runs a hundred times too fast is that of SCHED_IDLE, which no priority shows.
            let weight = crate::policies::weights::of(&attrs);
            if task.virtual_real > 100_000 && task.virtual_charged / 100 > task.virtual_real * 1024 / weight {
                attrs.policy = SchedPolicy::Idle;
            }
        }
        attrs
    }

    fn program(&mut self, id: TaskIndex) -> (Program, Vec<Note>) {
        let task = &self.history.tasks[id as usize];
        let verdict = self.verdicts[id as usize];
        let mut d = Draft { cpu: task.cpu.max(0) as Cpu, speeds: self.speeds.clone(), ..Draft::default() };
        let begins_asleep = task.first == First::Asleep;
        if begins_asleep {
            self.first_sleep(task, &mut d);
        }
        let mut slept: Option<(Ns, bool)> = None;
        // A child begins with its fork, so that none is left out.
        let forks =
            task.events.iter().rposition(|a| matches!(a.kind, EventKind::Fork { .. })).map_or(0, |last| last + 1);
        let stopped = verdict.endless.then(|| self.stop.min(super::ending::end_of_last_burst(task)));
        // What looks like yields of those that share a lock are its own.
        let spins = !self.messages.shares_lock(id);
        for (i, event) in task.events.iter().enumerate() {
            if i >= forks && stopped.is_some_and(|stopped| event.at >= stopped) {
                break;
            }
            let decision = if let EventKind::Off(_) = event.kind { self.over.decided(event.at) } else { event.at };
            self.marks_until(task, event.at, decision, &mut d);
            if spins {
                self.spins_until(id, decision, &mut d);
            }
            self.event(task, i, event, &mut d, &mut slept);
        }
        self.close(task, verdict, slept, &mut d);
        self.make_handlers(task, &mut d);
        let first = self.attrs(task, task.prio.unwrap_or(120));
        let start = match task.first {
            First::Forked if task.parent.is_some() => Start::Forked,
            First::Forked => Start::At(task.events.first().map_or(0, |a| a.at)),
            First::Asleep => Start::Asleep(0),
            First::Running | First::Runnable => Start::At(0),
        };
        let mut program = Program {
            comm: String::new(),
            names: Vec::new(),
            tid: task.tid,
            pid: task.pid,
            start,
            cpu: usize::try_from(task.cpu).ok(),
            first,
            attrs: d.attrs,
            steps: d.steps,
            essential: verdict.essential,
            was_rt: None,
            wakee_flips: None,
            on: (task.first == First::Running).then_some(task.before),
        };
        if d.place.is_some() {
            super::places::begin(&mut program, task);
        }
        (program, d.notes)
    }

    fn first_sleep(&mut self, task: &TaskHistory, d: &mut Draft) {
        let woken = task.events.first();
        match woken {
            // It waits for its first message.
            Some(TaskEvent { kind: EventKind::Woken { by, .. }, .. }) if self.is_message(task, *by) => {}
            // Its first step is at a buffer or a barrier.
            Some(TaskEvent { kind: EventKind::Woken { by: By::Task { wake, .. }, .. }, .. })
                if self.messages.explained.contains(wake)
                    && (self.messages.uses_buffer(task.id) || self.messages.meets(task.id)) => {}
            Some(TaskEvent { at, kind: EventKind::Woken { by, .. } }) => self.sleep(task, 0, *at, *by, false, d),
            _ => {
                let sem = self.new_sem();
                d.add(Step::Wait { sem, sleep: Sleep::Interruptible }, Note::at(0).because(Evidence::Censored));
            }
        }
    }

    fn event(
        &mut self,
        task: &TaskHistory,
        i: usize,
        event: &TaskEvent,
        d: &mut Draft,
        slept: &mut Option<(Ns, bool)>,
    ) {
        let (at, over) = (event.at, self.over);
        match event.kind {
            EventKind::On { cpu } => {
                d.cpu = cpu.max(0) as Cpu;
                // Nothing woke it since it left without a record of how: it had stayed ready.
                *slept = None;
                self.place(task, i, at, d);
                d.running = true;
                let after = if at == 0 { 0 } else { over.switch - over.record.ns };
                d.run_from = at + after;
                d.on_at = at;
                if d.pending == 0 {
                    d.begun = at;
                }
            }
            EventKind::Tick => d.work_until(at - over.tick_lag, at - over.tick_lag + over.tick.ns),
            EventKind::Irq { last, .. } => {
                // Where it led to a switch, no work follows.
                d.work_until(at, last + over.interrupt_return.ns);
            }
            EventKind::Off(off) => self.off(task, i, off, d, slept),
            EventKind::Post { wake } => {
                d.work_until(at, at);
                if self.messages.explained.contains(&wake) || self.posts_message(task, wake, at, d) {
                    d.kernel = self.tail(&task.events[i + 1..], at);
                } else if let Some(sem) = self.sem_of_wake[wake as usize] {
                    d.flush(at);
                    let partner = self.history.tasks[self.history.wakee[wake as usize] as usize].tid;
                    d.add(Step::Post { sem, sync: false }, Note::at(at).with(partner));
                    d.kernel = self.tail(&task.events[i + 1..], at);
                }
            }
            EventKind::Fork { child, how } => {
                let how = self.vfork(child, how, &task.events[i + 1..]);
                let made = &self.history.tasks[child as usize];
                let evidence = if made.unmade { Evidence::None } else { Evidence::Recorded };
                let note = Note::at(at).with(made.tid).because(evidence);
                d.does(at, Step::Fork { child: TaskId(child), how }, note);
                d.kernel = self.tail(&task.events[i + 1..], at);
            }
            EventKind::Exec => d.does(at, Step::Exec, Note::at(at)),
            EventKind::Exiting => {
                d.does(at, Step::Exiting, Note::at(at));
                d.all_kernel = true;
            }
            EventKind::Prio { prio } => {
                // What only the switch record says was so when the switch was decided on.
                let at = match task.events.get(i + 1) {
                    Some(&TaskEvent { at: next, kind: EventKind::Off(_) }) if next == at => over.decided(at),
                    _ => at,
                };
                let attrs = self.placed(self.attrs(task, prio), d);
                d.prio = Some(prio);
                d.attrs.push(attrs);
                d.does(at, Step::SetAttrs { attrs: d.attrs.len() as u32 - 1 }, Note::at(at));
            }
            EventKind::WaitCall { .. } => {
                let child = self.reaps.get(&(task.id, i)).copied();
                let sem = child.and_then(|c| self.sem_of_exit[c as usize]);
                if let (Some(child), Some(sem)) = (child, sem) {
                    let partner = self.history.tasks[child as usize].tid;
                    let note = Note::at(at).with(partner).because(Evidence::Reaped);
                    d.does(at, Step::Wait { sem, sleep: Sleep::Interruptible }, note);
                }
            }
            EventKind::Woken { by, .. } => {
                if self.woken_at_limit(by) || self.woken_by_message(task, by, d) {
                    *slept = None;
                } else if let Some((from, deep)) = slept.take() {
                    self.sleep(task, from, at, by, deep, d);
                }
            }
        }
    }

    /// A parent that sleeps right behind a fork until the child's exec or exit, made it by vfork.
    fn vfork(&self, child: TaskIndex, how: Fork, after: &[TaskEvent]) -> Fork {
        let calm = |kind: &EventKind| matches!(kind, EventKind::Tick | EventKind::Irq { .. } | EventKind::On { .. });
        let mut next = after.iter().map(|a| a.kind).filter(|kind| !calm(kind));
        let sleeps = matches!(next.next(), Some(EventKind::Off(Off::Slept { deep: true })));
        match next.next() {
            Some(EventKind::Woken { by: By::Task { waker, .. }, .. })
                if sleeps && waker == child && how == Fork::Fork =>
            {
                Fork::Vfork
            }
            _ => how,
        }
    }

    /// How much of the work behind a wakeup is still in the kernel, where nothing preempts: up to the
    /// end of the system call, which the next record shows, or for the usual time.
    fn tail(&self, after: &[TaskEvent], at: Ns) -> Ns {
        for event in after {
            match event.kind {
                EventKind::Post { .. } if event.at - at <= self.over.limits.one_call() => return event.at - at,
                EventKind::Off(Off::Preempted { interrupt: None }) => {
                    return (event.at - self.over.record.ns - at).max(0)
                }
                EventKind::Tick | EventKind::Irq { .. } => {}
                _ => break,
            }
        }
        self.over.wakeup_tail.ns
    }

    fn off(&mut self, task: &TaskHistory, i: usize, off: Off, d: &mut Draft, slept: &mut Option<(Ns, bool)>) {
        let at = task.events[i].at;
        let decision = self.over.decided(at);
        let end = match off {
            Off::Preempted { interrupt: Some(i) } => i.min(decision),
            Off::Unknown => at,
            _ => decision,
        };
        d.work_until(end, end);
        d.running = false;
        match off {
            Off::Ended | Off::Preempted { .. } => return,
            Off::Yielded | Off::Slept { .. } | Off::Unknown => d.flush(at),
        }
        self.place(task, i, at, d);
        match off {
            Off::Yielded => d.add(Step::Yield, Note::at(at)),
            Off::Slept { deep } => *slept = Some((decision, deep)),
            // It was gone by the next record of its CPU: asleep, unless it runs again without a wakeup.
            _ => *slept = Some((at, false)),
        }
    }

    /// The step for a sleep from `from` to `at`.
    fn sleep(&mut self, task: &TaskHistory, from: Ns, at: Ns, by: By, deep: bool, d: &mut Draft) {
        let sleep = if deep { Sleep::Uninterruptible } else { Sleep::Interruptible };
        let ns = (at - from).max(0);
        let (class, evidence, partner) = self.classify(by, deep, from, at);
        self.classes[class as usize] += 1;
        let note = Note { at: from, evidence, partner };
        let mode = self.options.mode;
        let pause = match (mode, class) {
            (LoopMode::Open, _) => Pause::At { at },
            (LoopMode::Closed, _) => Pause::External { ns },
            (_, Class::Dependency) => {
                let sem = if let By::Task { wake, .. } = by { self.sem_of_wake[wake as usize] } else { None };
                let sem = sem.unwrap_or_else(|| self.new_sem());
                return d.add(Step::Wait { sem, sleep }, note);
            }
            (_, Class::Timer) => {
                let realtime = d.prio.or(task.prio).is_some_and(|p| p < 100);
                if let Timers::Absolute(grid) = self.sleeps.timers[task.id as usize] {
                    return self.periodic(&grid, (from, at), realtime, sleep, note, d);
                }
                let (slack, lead) = (self.sleeps.slack, matches!(by, By::Hardirq { lead: true }));
                let ns = (self.sleeps.expiry(task, ns, lead, realtime) - slack).max(0);
                Pause::Timer { ns, slack: slack as u32 }
            }
            (_, Class::Tick) => Pause::Ticks {
                ns: (ns - 500_000_000 / self.over.hz.max(1)).max(0),
                behind: self.sleeps.behind_tick(at) as u32,
            },
            (_, Class::Io) => Pause::Io { ns },
            (_, Class::External) => Pause::At { at },
        };
        d.add(Step::Pause { pause, sleep }, note);
    }

    fn classify(&self, by: By, deep: bool, from: Ns, at: Ns) -> (Class, Evidence, Option<i64>) {
        match by {
            By::Task { waker, .. } => (Class::Dependency, Evidence::Task, Some(self.history.tasks[waker as usize].tid)),
            By::Hardirq { .. } if deep => (Class::Io, Evidence::Hardirq, None),
            By::Hardirq { lead: true } => (Class::Timer, Evidence::Hardirq, None),
            By::Hardirq { lead: false } => (Class::Timer, Evidence::SharedHardirq, None),
            By::Softirq if self.sleeps.ended_by_tick(from, at) && !deep => (Class::Tick, Evidence::SoftirqAtTick, None),
            By::Softirq => (Class::Io, Evidence::Softirq, None),
            By::Unknown => (Class::External, Evidence::None, None),
        }
    }
}
