//! First pass: what each task did and when, as the records say it, in one walk over the events.

use std::collections::{BTreeSet, HashMap};

use tracekit_schema::events::irq;
use tracekit_schema::table::Table;
use tracekit_schema::{Events, Kind, State, StrId, Strings};

use super::history::{Act, By, Entry, First, History, Life, LifeId, Off, Sample, Way, What};
use crate::cancel::Cancel;
use crate::cost::LONG_STAY;
use crate::program::Fork;
use crate::task::Ns;

#[derive(Clone, Debug, Default)]
struct Cpu {
    curr: Option<LifeId>,
    /// True while idle runs.
    idle: bool,
    known: bool,
    on_at: Ns,
    /// Interrupt going on: first and last wakeup, number.
    irq: Option<(Ns, Ns, u32)>,
    tick: Option<Ns>,
    /// A wakeup was recorded and its charge to the running task was not yet.
    charge_due: bool,
    /// Charged since the tick.
    after_tick: Option<Ns>,
    /// Last wakeup by the running task.
    post: Option<Ns>,
    /// Last wakeup to this CPU's queue that another CPU made.
    remote: Option<Ns>,
    /// The current stay began with a wakeup preemption at this time; charged since.
    preempting: Option<Ns>,
    charged: Ns,
    interrupted: bool,
    /// What it did before the stay, and when a task last fell asleep on it.
    entry: Entry,
    blocked_at: Ns,
    need_resched: bool,
    /// Ticks in this stay, and wakeups in interrupts.
    ticks: u32,
    wakes: u32,
    last_event: Ns,
    idle_wake: Option<Ns>,
}

/// Longest time between two wakeups of one interrupt.
const SAME_IRQ: Ns = 60_000;
/// A burst this short tells what a tick in it costs.
const SHORT_BURST: Ns = 3_000_000;
/// Longest time from a wakeup or tick to the switch that it causes at once.
const AT_ONCE: Ns = 200_000;

pub(super) struct Scan<'a> {
    events: &'a Events,
    strings: &'a Strings,
    history: History,
    by_tid: HashMap<i64, LifeId>,
    cpus: Vec<Cpu>,
    cut: Ns,
    /// Position of each CPU that has records, by its number.
    index: HashMap<i32, usize>,
    /// Children announced by a fork and not yet seen on a queue.
    newborn: HashMap<i64, LifeId>,
}

/// Rows between two looks at whether to go on.
const LOOK: usize = 1 << 14;

pub(super) fn scan(events: &Events, strings: &Strings, cancel: &Cancel) -> History {
    let mut scan = Scan {
        events,
        strings,
        history: History::default(),
        by_tid: HashMap::new(),
        cpus: Vec::new(),
        cut: 0,
        index: HashMap::new(),
        newborn: HashMap::new(),
    };
    scan.number_cpus();
    // Recorders add records of their own, some at time 0; only those of scheduling tell when the trace begins and ends.
    let scheduling = |row: &usize| {
        matches!(events.kind.get(*row), Some(Kind::Switch | Kind::Waking | Kind::Wakeup | Kind::WakeupNew))
    };
    let times = || (0..events.len()).filter(scheduling).filter_map(|row| events.ts_ns.get(row));
    let first = times().min().unwrap_or(0);
    let before =
        |row: &usize| events.ts_ns.get(*row).is_some_and(|ts| ts > 0 && ts < first && first - ts < 1_000_000_000);
    scan.history.start =
        (0..events.len()).filter(before).filter_map(|row| events.ts_ns.get(row)).min().unwrap_or(first);
    for row in 0..events.len() {
        if row % LOOK == 0 && cancel.is_set() {
            break;
        }
        if events.ts_ns.get(row).is_some_and(|ts| ts >= scan.history.start) {
            scan.row(row);
        }
    }
    scan.history.span = (times().max().unwrap_or(0) - scan.history.start - scan.cut).max(0);
    super::ways::mark_first(&mut scan.history);
    scan.history
}

impl Scan<'_> {
    /// Counts the CPUs that have records, in the order of their numbers.
    fn number_cpus(&mut self) {
        let seen: BTreeSet<i32> = (0..self.events.len()).filter_map(|row| self.events.cpu.get(row)).collect();
        let numbers: Vec<i32> = if seen.is_empty() { vec![0] } else { seen.into_iter().collect() };
        self.index = numbers.iter().enumerate().map(|(i, number)| (*number, i)).collect();
        self.cpus = vec![Cpu::default(); numbers.len()];
        self.history.cpus = numbers;
    }

    /// Position of the CPU with this number.
    fn cpu_at(&self, number: Option<i32>) -> Option<usize> {
        self.index.get(&number?).copied()
    }

    /// CPU to which a task is woken; where its number has no records, the waker's.
    fn target(&self, row: usize, cpu: usize) -> i32 {
        self.cpu_at(self.events.target_cpu.get(row)).unwrap_or(cpu) as i32
    }

    fn row(&mut self, row: usize) {
        let e = self.events;
        let (Some(ts), Some(kind)) = (e.ts_ns.get(row), e.kind.get(row)) else { return };
        let at = ts - self.history.start - self.cut;
        let cpu = self.cpu_at(e.cpu.get(row)).unwrap_or(0);
        if kind == Kind::Lost {
            self.lost(row, cpu, at);
            return;
        }
        let flags = e.irq_flags.get(row);
        self.history.has_flags |= flags.is_some();
        self.whose(row, cpu, at);
        match kind {
            Kind::Switch => self.switch(row, cpu, at),
            Kind::Waking => self.waking(row, cpu, at),
            Kind::Wakeup => self.wakeup(row, cpu, at),
            Kind::WakeupNew => self.wakeup_new(row, cpu, at),
            Kind::Fork => self.fork(row, at),
            Kind::Exec => self.act_of_subject(row, cpu, at, What::Exec),
            Kind::Exit => self.act_of_subject(row, cpu, at, What::Exiting),
            Kind::Wait => {
                if let Some(t) = self.cpus[cpu].curr {
                    self.push(t, at, What::WaitCall { tid: e.tid.get(row).unwrap_or(0) });
                }
            }
            Kind::StatRuntime => self.stat_runtime(row, cpu, at),
            Kind::Tick => self.tick(cpu, at),
            Kind::Prio => {
                if let (Some(t), Some(prio)) = (self.subject(row), e.value.get(row)) {
                    self.push(t, at, What::Prio { prio: prio as i32 });
                }
            }
            _ => {}
        }
        let c = &mut self.cpus[cpu];
        c.last_event = at;
        if kind != Kind::Switch {
            c.need_resched = flags.is_some_and(|f| f & (irq::NEED_RESCHED | irq::LAZY_RESCHED) != 0);
        }
    }

    /// Who runs on `cpu`, where that is not known yet: the context of any record tells.
    fn whose(&mut self, row: usize, cpu: usize, at: Ns) {
        if self.cpus[cpu].known {
            return;
        }
        let Some(tid) = self.events.ctx_tid.get(row) else { return };
        self.cpus[cpu].known = true;
        self.cpus[cpu].on_at = at;
        if tid == 0 {
            self.cpus[cpu].idle = true;
            return;
        }
        let t = match self.by_tid.get(&tid) {
            Some(&t) => t,
            None => {
                let comm = self.events.ctx_comm.get(row);
                self.life(tid, self.events.ctx_pid.get(row), comm, None, First::Running, cpu as i32)
            }
        };
        self.cpus[cpu].curr = Some(t);
        if self.history.lives[t as usize].acts.is_empty() {
            self.push(t, at, What::On { cpu: cpu as i32, entry: Entry::Idle });
        }
    }

    fn life(
        &mut self,
        tid: i64,
        pid: Option<i64>,
        comm: Option<StrId>,
        prio: Option<i32>,
        first: First,
        cpu: i32,
    ) -> LifeId {
        let id = self.history.lives.len() as LifeId;
        self.history.lives.push(Life {
            id,
            tid,
            pid,
            comm: comm.or_else(|| self.strings.find(b"")).unwrap_or_default(),
            prio,
            first,
            cpu,
            parent: None,
            acts: Vec::new(),
            charged: 0,
            virtual_charged: 0,
            virtual_real: 0,
            before: 0,
            last_vruntime: None,
            last_prio: None,
            round_robin: false,
            asleep: first == First::Asleep,
            ended: false,
            exiting: false,
        });
        self.by_tid.insert(tid, id);
        id
    }

    fn push(&mut self, t: LifeId, at: Ns, what: What) {
        let life = &mut self.history.lives[t as usize];
        if let What::Prio { prio } = what {
            life.last_prio = Some(prio);
        }
        life.acts.push(Act { at, what });
    }

    /// The task that the record is about, made when it is new.
    fn known(&mut self, tid: i64, row: usize, next: bool, first: First, cpu: i32) -> LifeId {
        let e = self.events;
        let (pid, comm, prio) = if next {
            (e.next_pid.get(row), e.next_comm.get(row), e.next_prio.get(row))
        } else {
            (e.pid.get(row), e.comm.get(row), e.prio.get(row))
        };
        let t = match self.by_tid.get(&tid) {
            Some(&t) if !self.history.lives[t as usize].ended => t,
            _ => self.life(tid, pid, comm, prio, first, cpu),
        };
        let life = &mut self.history.lives[t as usize];
        if let Some(comm) = comm {
            life.comm = comm;
        }
        life.pid = life.pid.or(pid);
        life.prio = life.prio.or(prio);
        t
    }

    fn subject(&self, row: usize) -> Option<LifeId> {
        self.events.tid.get(row).and_then(|tid| self.by_tid.get(&tid).copied())
    }

    fn act_of_subject(&mut self, row: usize, cpu: usize, at: Ns, what: What) {
        let Some(t) = self.subject(row).or(self.cpus[cpu].curr) else { return };
        if self.cpus[cpu].curr == Some(t) {
            self.history.lives[t as usize].exiting |= what == What::Exiting;
            self.push(t, at, what);
        }
    }

    fn in_interrupt(&self, row: usize) -> bool {
        self.events.irq_flags.get(row).is_some_and(|f| f & irq::IN_INTERRUPT != 0)
    }

    fn tick(&mut self, cpu: usize, at: Ns) {
        self.history.ticks.push((at, cpu as i32));
        let c = &mut self.cpus[cpu];
        c.tick = Some(at);
        c.after_tick = None;
        c.irq = None;
        c.interrupted = true;
        c.ticks += 1;
        if let Some(t) = c.curr {
            self.push(t, at, What::Tick);
        }
    }

    /// The kernel's account: a lone one in an interrupt is a tick.
    fn stat_runtime(&mut self, row: usize, cpu: usize, at: Ns) {
        let ran = self.events.value.get(row).unwrap_or(0);
        let vruntime = self.events.value2.get(row);
        self.history.has_runtime = true;
        if let Some(t) = self.subject(row) {
            let life = &mut self.history.lives[t as usize];
            if life.charged == 0
                && life.first == First::Running
                && !life.acts.iter().any(|a| matches!(a.what, What::Off(_)))
            {
                life.before = (ran - at).max(0);
            }
            life.charged += ran;
            if let (Some(before), Some(now)) = (life.last_vruntime, vruntime) {
                if now > before {
                    life.virtual_charged += now - before;
                    life.virtual_real += ran;
                }
            }
            life.last_vruntime = vruntime.filter(|v| *v != 0);
        }
        let in_hardirq = self.events.irq_flags.get(row).is_some_and(|f| f & irq::HARDIRQ != 0);
        let c = &mut self.cpus[cpu];
        c.charged += ran;
        if c.tick.is_some() && c.after_tick.is_none() {
            c.after_tick = Some(ran);
        }
        let of_wakeup = std::mem::take(&mut c.charge_due) && c.irq.is_some_and(|(_, last, _)| at - last < SAME_IRQ);
        if let (true, Some(tick), Some((first, _, 1))) = (of_wakeup, c.tick, c.irq) {
            if c.after_tick == Some(ran) && first - tick < SAME_IRQ {
                self.history.samples.push(Sample::TickToWakeup { records: first - tick, charged: ran });
            }
        }
        if in_hardirq && !of_wakeup {
            self.tick(cpu, at);
        }
    }

    fn waking(&mut self, row: usize, cpu: usize, at: Ns) {
        let Some(tid) = self.events.tid.get(row) else { return };
        let to = self.target(row, cpu);
        let t = self.known(tid, row, false, First::Asleep, to);
        self.wake(t, row, cpu, at, to);
    }

    /// A wakeup counts where no waking was recorded before it.
    fn wakeup(&mut self, row: usize, cpu: usize, at: Ns) {
        let Some(tid) = self.events.tid.get(row) else { return };
        let to = self.target(row, cpu);
        let seen = self.by_tid.get(&tid).copied();
        match seen {
            Some(t) if self.history.lives[t as usize].asleep => self.wake(t, row, cpu, at, to),
            Some(_) => {}
            None => {
                let t = self.known(tid, row, false, First::Asleep, to);
                self.wake(t, row, cpu, at, to);
            }
        }
    }

    fn wake(&mut self, t: LifeId, row: usize, cpu: usize, at: Ns, to: i32) {
        let interrupt = self.in_interrupt(row);
        let hard = self.events.irq_flags.get(row).is_some_and(|f| f & irq::HARDIRQ != 0);
        let curr = self.cpus[cpu].curr.filter(|&w| w != t);
        // Softirqs that their thread runs have no interrupt around them: they run when the scheduler lets the thread run.
        let of_thread = !hard && curr.is_some_and(|w| self.runs_softirqs(w));
        let lead = interrupt && !of_thread && self.irq_wakeup(cpu, at);
        if of_thread {
            self.first_record(cpu, at);
        }
        if !self.history.lives[t as usize].asleep {
            self.history.idle_wakeups += 1;
            return;
        }
        self.history.lives[t as usize].asleep = false;
        let by = match (interrupt, curr) {
            (true, _) if hard => By::Hardirq { lead },
            (true, _) if !of_thread => By::Softirq,
            (_, Some(waker)) => {
                let wake = self.history.wakee.len() as u32;
                self.history.wakee.push(t);
                self.push(waker, at, What::Post { wake });
                self.cpus[cpu].post = Some(at);
                By::Task { waker, wake }
            }
            (_, None) => By::Unknown,
        };
        if self.cpus[cpu].idle {
            self.cpus[cpu].idle_wake = Some(at);
        }
        if let Some(queue) = self.cpus.get_mut(to as usize).filter(|_| to as usize != cpu) {
            queue.remote = Some(at);
        }
        self.push(t, at, What::Woken { by, cpu: to });
    }

    /// True for the kernel's own thread for softirqs, which the kernel, not a workload, gives its name.
    fn runs_softirqs(&self, t: LifeId) -> bool {
        self.strings.text(self.history.lives[t as usize].comm).starts_with("ksoftirqd/")
    }

    /// Books how soon behind a switch an interrupt, or the thread of softirqs, can do something.
    fn first_record(&mut self, cpu: usize, at: Ns) {
        let c = &self.cpus[cpu];
        if c.last_event == c.on_at && c.on_at > 0 {
            self.history.samples.push(Sample::SwitchToIrq(at - c.on_at));
        }
    }

    /// Books a wakeup in an interrupt; true when the interrupt came for it.
    fn irq_wakeup(&mut self, cpu: usize, at: Ns) -> bool {
        let c = &mut self.cpus[cpu];
        c.interrupted = true;
        c.wakes += 1;
        c.charge_due = true;
        self.first_record(cpu, at);
        let c = &mut self.cpus[cpu];
        let on_tick = c.tick.is_some_and(|t| at - t < SAME_IRQ);
        match &mut c.irq {
            Some((_, last, count)) if at - *last < SAME_IRQ => {
                // At the same instant, both had their own time.
                let own = at == *last && !on_tick;
                self.history.samples.push(Sample::IrqStep(at - *last));
                *last = at;
                *count += 1;
                if let Some(t) = c.curr {
                    let act = self.history.lives[t as usize]
                        .acts
                        .iter_mut()
                        .rev()
                        .find(|a| matches!(a.what, What::Irq { .. }));
                    if let Some(Act { what: What::Irq { count, last }, .. }) = act {
                        *count += 1;
                        *last = at;
                    }
                }
                own
            }
            _ => {
                c.irq = Some((at, at, 1));
                if let Some(t) = c.curr {
                    self.push(t, at, What::Irq { count: 1, last: at });
                }
                !on_tick
            }
        }
    }

    fn fork(&mut self, row: usize, at: Ns) {
        let e = self.events;
        let Some(tid) = e.tid.get(row) else { return };
        let parent = e.ctx_tid.get(row).and_then(|p| self.by_tid.get(&p).copied());
        let cpu = self.cpu_at(e.cpu.get(row)).unwrap_or(0) as i32;
        let child = self.life(tid, e.pid.get(row), e.comm.get(row), None, First::Forked, cpu);
        self.history.lives[child as usize].parent = parent;
        self.newborn.insert(tid, child);
        if let Some(p) = parent {
            let thread = e.pid.get(row).is_some() && e.pid.get(row) == self.history.lives[p as usize].pid;
            let how = if thread { Fork::Thread } else { Fork::Fork };
            self.push(p, at, What::Fork { child, how });
        }
    }

    fn wakeup_new(&mut self, row: usize, cpu: usize, at: Ns) {
        let e = self.events;
        let Some(tid) = e.tid.get(row) else { return };
        let to = self.target(row, cpu);
        let child = match self.newborn.remove(&tid) {
            Some(child) => child,
            None => {
                let child = self.life(tid, e.pid.get(row), e.comm.get(row), e.prio.get(row), First::Forked, to);
                if let Some(p) = self.cpus[cpu].curr {
                    self.history.lives[child as usize].parent = Some(p);
                    self.push(p, at, What::Fork { child, how: Fork::Fork });
                }
                child
            }
        };
        let life = &mut self.history.lives[child as usize];
        life.prio = life.prio.or(e.prio.get(row));
        life.cpu = to;
        let parent = life.parent;
        if parent.is_none() {
            life.first = First::Runnable;
        }
        let on_at = self.cpus[cpu].on_at;
        if let Some(c) = self.cpus[cpu].curr.filter(|&c| Some(c) == parent) {
            // The child is queued here, not where the fork was announced.
            let fork = self.history.lives[c as usize].acts.iter_mut().rev().take(8);
            for act in fork {
                if matches!(act.what, What::Fork { child: k, .. } if k == child) {
                    let announced = std::mem::replace(&mut act.at, at);
                    if announced >= on_at {
                        self.history.samples.push(Sample::ForkToNew(at - announced));
                    }
                    break;
                }
            }
        }
    }

    fn switch(&mut self, row: usize, cpu: usize, at: Ns) {
        let e = self.events;
        let (prev, next) = (e.tid.get(row), e.next_tid.get(row));
        if let Some(tid) = prev.filter(|&t| t != 0) {
            let t = self.known(tid, row, false, First::Running, cpu as i32);
            self.leaves(t, row, cpu, at);
        } else if self.cpus[cpu].idle {
            if let Some(woke) = self.cpus[cpu].idle_wake.filter(|w| at - w < AT_ONCE) {
                self.history.samples.push(Sample::IdleToSwitch(at - woke));
            }
        }
        let from_irq =
            self.cpus[cpu].irq.map(|i| i.1).filter(|l| at - l < AT_ONCE && self.cpus[cpu].tick.is_none_or(|t| t < *l));
        let from_post = self.cpus[cpu].post.filter(|p| at - p < AT_ONCE);
        let preempted = e.state.get(row).is_some_and(State::is_runnable) && prev.is_some_and(|p| p != 0);
        let woke = from_irq.max(from_post).filter(|_| preempted);
        let c = &mut self.cpus[cpu];
        let (mut blocked_at, mut entry) = (c.blocked_at, Entry::Idle);
        match (c.curr, e.state.get(row)) {
            (None, _) | (_, None) => {}
            (Some(_), Some(state)) if !state.is_runnable() => (blocked_at, entry) = (at, Entry::Sleeper),
            _ => entry = Entry::Ready(at - c.blocked_at),
        }
        *c = Cpu { known: true, on_at: at, last_event: at, entry, blocked_at, ..Cpu::default() };
        match next {
            Some(0) | None => c.idle = true,
            Some(tid) => {
                c.preempting = woke;
                let t = self.known(tid, row, true, First::Runnable, cpu as i32);
                self.enters(t, row, cpu, at);
            }
        }
    }

    fn enters(&mut self, t: LifeId, row: usize, cpu: usize, at: Ns) {
        self.cpus[cpu].curr = Some(t);
        let life = &mut self.history.lives[t as usize];
        if life.asleep {
            // No record told of its wakeup.
            life.asleep = false;
            let here = cpu as i32;
            self.push(t, at, What::Woken { by: By::Unknown, cpu: here });
        }
        let prio = self.events.next_prio.get(row);
        self.prio_seen(t, at, prio);
        let entry = self.cpus[cpu].entry;
        self.push(t, at, What::On { cpu: cpu as i32, entry });
    }

    /// A changed priority in the columns of a switch is a change of attributes.
    fn prio_seen(&mut self, t: LifeId, at: Ns, prio: Option<i32>) {
        let Some(prio) = prio else { return };
        let life = &self.history.lives[t as usize];
        if life.last_prio.or(life.prio).is_some_and(|p| p != prio) {
            self.push(t, at, What::Prio { prio });
        }
    }

    fn leaves(&mut self, t: LifeId, row: usize, cpu: usize, at: Ns) {
        let e = self.events;
        // Virtual time also changes where a task is placed; only within a stay does it measure weight.
        self.history.lives[t as usize].last_vruntime = None;
        if self.cpus[cpu].curr != Some(t) {
            if self.cpus[cpu].known {
                self.history.mismatches += 1;
                if let Some(other) = self.cpus[cpu].curr {
                    let last = self.cpus[cpu].last_event;
                    self.push(other, last, What::Off(Off::Unknown));
                }
            }
            let began = self.cpus[cpu].last_event;
            self.push(t, began, What::On { cpu: cpu as i32, entry: Entry::Idle });
            self.cpus[cpu].on_at = began;
        }
        self.prio_seen(t, at, e.prio.get(row));
        let state = e.state.get(row).unwrap_or(State::UnknownOff);
        let off = if state.is_runnable() {
            self.leaves_runnable(t, row, cpu, at, state)
        } else if state.is_end() {
            Off::Ended
        } else {
            let realtime = |prio: Option<i32>| prio.is_some_and(|p| (0..100).contains(&p));
            let idle = e.next_tid.get(row).is_none_or(|t| t == 0);
            let lower = realtime(e.prio.get(row)) && !idle && !realtime(e.next_prio.get(row));
            let way = Way { lower, first: false };
            Off::Slept { deep: matches!(state, State::Blocked | State::WaitingLock), way }
        };
        self.samples_of(cpu, at, off);
        if self.history.lives[t as usize].exiting {
            self.history.exits.0 += u64::from(off == Off::Ended);
            self.history.exits.1 += u64::from(matches!(off, Off::Preempted { .. }));
        }
        self.history.lives[t as usize].asleep = matches!(off, Off::Slept { .. });
        self.history.lives[t as usize].ended = off == Off::Ended;
        self.push(t, at, What::Off(off));
    }

    fn leaves_runnable(&mut self, t: LifeId, row: usize, cpu: usize, at: Ns, state: State) -> Off {
        let e = self.events;
        let c = &self.cpus[cpu];
        let flagged = c.need_resched && c.last_event >= c.on_at;
        let woke = c.irq.map(|i| i.0).filter(|_| c.irq.is_some_and(|i| at - i.1 < AT_ONCE));
        let ticked = c.tick.filter(|t| at - t < AT_ONCE);
        let posted = c.post.max(c.remote).is_some_and(|p| at - p < AT_ONCE);
        let interrupt = match (ticked, woke) {
            (Some(t), Some(w)) => Some(t.min(w)),
            (a, b) => a.or(b),
        };
        let caused = flagged || interrupt.is_some() || posted;
        // The reschedule flag is clear again when a switch is recorded, so that nothing asked for it proves a yield only where
        // all that asks is seen: ticks show by the charge to the running task, and this stay was charged.
        let seen = c.charged > 0 && self.history.has_flags && self.says_flags(row);
        if state == State::Yielding || state == State::Runnable && seen && !caused {
            return Off::Yielded;
        }
        self.history.uncaused += u64::from(!caused && c.charged == 0);
        let (prio, next) = (e.prio.get(row), e.next_prio.get(row));
        if prio.is_some_and(|p| (0..100).contains(&p)) && prio == next {
            self.history.lives[t as usize].round_robin = true;
        }
        if interrupt.is_none() && !posted {
            self.history.loose.push(at);
        }
        Off::Preempted { interrupt }
    }

    fn says_flags(&self, row: usize) -> bool {
        self.events.irq_flags.get(row).is_some()
    }

    /// What the end of this stay tells of costs.
    fn samples_of(&mut self, cpu: usize, at: Ns, off: Off) {
        let c = &self.cpus[cpu];
        let samples = &mut self.history.samples;
        match off {
            Off::Preempted { .. } => {
                let last_irq = c.irq.map(|i| i.1).filter(|l| at - l < AT_ONCE);
                let last_post = c.post.filter(|p| at - p < AT_ONCE);
                match (last_irq, last_post, c.tick.filter(|t| at - t < AT_ONCE)) {
                    (Some(irq), post, tick) if post.is_none_or(|p| p < irq) && tick.is_none_or(|t| t < irq) => {
                        let alone = c.irq.is_some_and(|i| i.2 == 1);
                        if tick.is_none() && alone && irq - c.on_at >= LONG_STAY {
                            samples.push(Sample::ColdIrqToSwitch(at - irq));
                        } else if tick.is_none() && !alone {
                            samples.push(Sample::LastIrqToSwitch(at - irq));
                        } else if tick.is_none() {
                            samples.push(Sample::IrqToSwitch(at - irq));
                        }
                    }
                    (_, Some(post), None) => samples.push(Sample::WakeToSwitch(at - post)),
                    (None, None, Some(tick)) => {
                        if let Some(after) = c.after_tick {
                            samples.push(Sample::TickToReschedule(after));
                            samples.push(Sample::TickToSwitch(at - tick - after));
                        }
                    }
                    _ => {}
                }
            }
            Off::Slept { .. } => {
                if let Some(life) = c.curr.filter(|_| c.on_at > 0 && at - c.on_at < SHORT_BURST) {
                    let (ns, entry) = (at - c.on_at, c.entry);
                    let end = self.history.lives[life as usize].acts.len();
                    samples.push(Sample::Burst { life, ticks: c.ticks, wakes: c.wakes, ns, entry, end });
                }
                if let (Some(woke), false) = (c.preempting, c.interrupted) {
                    if c.charged > 0 {
                        samples.push(Sample::Record(at - woke - c.charged));
                    }
                }
            }
            _ => {}
        }
        if !c.interrupted && c.known && c.on_at > 0 {
            samples.push(Sample::Stay(at - c.on_at));
        }
    }

    /// Records were lost on `cpu`: what ran there is unknown from its last record on. Where no CPU saw that time, it is cut out.
    fn lost(&mut self, row: usize, cpu: usize, at: Ns) {
        let everywhere = self.cpus.len() == 1 || self.events.cpu.get(row).is_none();
        let before = self.cpus[cpu].last_event;
        if let Some(t) = self.cpus[cpu].curr {
            self.push(t, before, What::Off(Off::Unknown));
        }
        self.cpus[cpu] = Cpu { last_event: before, ..Cpu::default() };
        if everywhere && at > before {
            self.cut += at - before;
            self.history.cut = self.cut;
        }
    }
}
