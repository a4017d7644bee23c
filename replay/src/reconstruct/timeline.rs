//! The task timelines: the sink of the state machine from which programs are built.
//!
//! [`schema::derive`](tracekit_schema::derive) says who runs, who wakes whom and who leaves why;
//! this notes it by task, as dated events. What a CPU does between two switches goes to a [`Watch`],
//! which says what caused a preemption and takes samples of costs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tracekit_schema::derive::sink::{Record, Sink, Speed, TaskRow, Transition, Why};
use tracekit_schema::events::irq;
use tracekit_schema::table::Table;
use tracekit_schema::{Code, DeriveOptions, Deriver, Diagnostics, Kind, State, StrId, Strings};

use super::births::{self, Unannounced};
use super::parts::{Head, Parts};
use super::wakeups::Cause;
use crate::calibrate::watch::Watch;
use crate::calibrate::Limits;
use crate::cancel::Cancel;
use crate::emit::END;
use crate::history::{By, Call, EventKind, First, History, Loose, Off, TaskEvent, TaskHistory, TaskIndex};
use crate::rates::Recorded;
use crate::task::Ns;

/// What is known of a task besides its history.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    pub(super) task: Option<TaskIndex>,
    pub(super) prio: Option<i32>,
    /// Kernel priority to which it changed last.
    last_prio: Option<i32>,
    last_vruntime: Option<i64>,
    /// It is the kernel's own thread for softirqs.
    pub(super) softirqs: bool,
    pub(super) asleep: bool,
    exiting: bool,
    /// The wakeup that was recorded while it ran: when, and what made it.
    pub(super) early: Option<(Ns, Cause)>,
    /// When and on which CPU the first record of the wakeup was made that ended its sleep.
    pub(super) from: Option<(Ns, usize)>,
}

/// The timelines in the making.
pub(super) struct Timeline {
    pub(super) history: History,
    /// By key of the task.
    known: Vec<Known>,
    pub(super) watches: Vec<Watch>,
    /// Position of each CPU by its number, and by its slot.
    index: BTreeMap<i32, usize>,
    pub(super) places: Vec<Option<usize>>,
    /// Names of the threads for softirqs.
    softirqs: BTreeSet<StrId>,
    /// Names of the calls that read from files, and of those that write to them.
    calls: [BTreeSet<StrId>; 2],
    start: Ns,
    cut: Ns,
    /// What is said of the speeds of CPUs, by position.
    speeds: Vec<Recorded>,
    /// CPUs, by position, that have been idle.
    idled: Vec<bool>,
    unannounced: Vec<Unannounced>,
    /// Names of tasks, by key, and since when.
    named: HashMap<u32, Vec<(Ns, StrId)>>,
    /// New tasks are recorded.
    pub(super) births: bool,
    pub(super) record: Record,
}

/// Calls that read from a file, and calls that write to one: their first argument is its number.
const CALLS: [[&str; 4]; 2] = [["read", "readv", "recvfrom", "recvmsg"], ["write", "writev", "sendto", "sendmsg"]];
/// Rows between two looks at whether to go on.
const LOOK: usize = 1 << 14;

/// Reads events into task timelines.
pub(super) fn read(parts: &dyn Parts, known: &DeriveOptions, limits: Limits, cancel: &Cancel) -> History {
    let mut diagnostics = Diagnostics::default();
    let options = DeriveOptions { states: false, runqueue: false, nr_cpus: 0, switches: true, ..known.clone() };
    let strings = parts.strings();
    let mut deriver = Deriver::with(options, Timeline::new(parts.head(), strings, limits));
    parts.each(&mut |events| {
        for from in (0..events.len()).step_by(LOOK) {
            if cancel.is_set() {
                return false;
            }
            deriver.push_rows(events, from..events.len().min(from + LOOK), strings, &mut diagnostics);
        }
        true
    });
    let end = deriver.end(&mut diagnostics);
    let mut history = end.history;
    births::settle(&mut history, &end.unannounced, end.births);
    history.speeds = end.speeds;
    history.mismatches = diagnostics.count(Code::SwitchMismatch);
    history.cut = end.cut;
    history.span = (history.span - end.start - end.cut).max(0);
    history
}

impl Timeline {
    fn new(head: &Head, strings: &Strings, limits: Limits) -> Self {
        let (start, last, numbers) = head.found(strings.find(END));
        let name = |number: &i32| strings.find(format!("ksoftirqd/{number}").as_bytes());
        Timeline {
            softirqs: numbers.iter().filter_map(name).collect(),
            calls: CALLS.map(|names| names.iter().filter_map(|n| strings.find(n.as_bytes())).collect()),
            watches: vec![Watch::new(limits); numbers.len()],
            idled: vec![false; numbers.len()],
            speeds: vec![Recorded::default(); numbers.len()],
            index: numbers.iter().enumerate().map(|(i, number)| (*number, i)).collect(),
            history: History { start, span: last, cpus: numbers, ..History::default() },
            known: Vec::new(),
            places: Vec::new(),
            start,
            cut: 0,
            unannounced: Vec::new(),
            named: HashMap::new(),
            births: false,
            record: Record { ts: 0, kind: Kind::Other, cpu: None, number: None, irq: None },
        }
    }

    pub(super) fn at(&self, ts: i64) -> Ns {
        (ts - self.start - self.cut).max(0)
    }

    /// Position of the CPU in a slot; that of the record where the slot has no records.
    pub(super) fn place(&self, slot: Option<usize>) -> usize {
        let place = |slot: usize| self.places.get(slot).copied().flatten();
        slot.and_then(place).or_else(|| self.record.cpu.and_then(place)).unwrap_or(0)
    }

    pub(super) fn known(&mut self, utid: u32) -> &mut Known {
        let at = utid as usize;
        if self.known.len() <= at {
            self.known.resize(at + 1, Known::default());
        }
        &mut self.known[at]
    }

    /// The record is of a CPU that is left out.
    pub(super) fn strays(&self) -> bool {
        self.record.cpu.is_some_and(|slot| self.places.get(slot).copied().flatten().is_none())
    }

    /// Position of a task among those of the history, where it is put when it is new.
    pub(super) fn task_of(&mut self, utid: u32, first: First, cpu: usize) -> TaskIndex {
        if let Some(task) = self.known(utid).task {
            return task;
        }
        let id = self.history.tasks.len() as TaskIndex;
        let mut task = TaskHistory::new(id, first, cpu as i32);
        task.softirqs = self.known(utid).softirqs;
        self.history.tasks.push(task);
        let known = self.known(utid);
        known.task = Some(id);
        known.asleep = first == First::Asleep;
        id
    }

    pub(super) fn push(&mut self, task: TaskIndex, at: Ns, kind: EventKind) {
        let events = &mut self.history.tasks[task as usize].events;
        let mut place = events.len();
        while place > 0 && events[place - 1].at > at {
            place -= 1;
        }
        events.insert(place, TaskEvent { at, kind });
    }

    fn switch_in(&mut self, at: Ns, utid: u32, cpu: usize, prio: Option<i32>, seen: bool) {
        let new = self.known(utid).task.is_none();
        let task = self.task_of(utid, if seen { First::Runnable } else { First::Running }, cpu);
        if std::mem::take(&mut self.known(utid).asleep) {
            // No record stated its wakeup.
            self.push(task, at, EventKind::Woken { by: By::Unknown, cpu: cpu as i32 });
        }
        if new && seen && at > 0 {
            self.unannounced.push(Unannounced { task, at, idled: self.idled[cpu] });
        }
        self.arrived(at, task, cpu);
        self.known(utid).early = None;
        if let Some((posted, place)) = self.known(utid).from.take().filter(|_| seen) {
            if place != cpu {
                self.watches[cpu].woken_remotely(at, posted, &mut self.history.samples);
            }
        }
        self.prio_seen(utid, task, at, prio);
        self.watches[cpu].enter(at, Some(task), seen, &mut self.history.samples);
        self.push(task, at, EventKind::On { cpu: cpu as i32 });
    }

    /// A task that shows for the first time, or that was elsewhere, came to this CPU with no record of it:
    /// whoever leaves for it may have been preempted.
    fn arrived(&mut self, at: Ns, task: TaskIndex, cpu: usize) {
        if self.history.loose.last().is_none_or(|l| l.at != at) {
            return;
        }
        let task = &self.history.tasks[task as usize];
        let was = task.events.iter().rev().find_map(|a| match a.kind {
            EventKind::On { cpu } | EventKind::Woken { cpu, .. } => Some(cpu),
            _ => None,
        });
        let made = || (task.first == First::Forked).then_some(task.cpu);
        if was.or_else(made) != Some(cpu as i32) {
            let now = self.history.loose.iter_mut().rev().take_while(|l| l.at == at);
            now.filter(|l| l.cpu == cpu as i32).for_each(|l| l.quiet = false);
        }
    }

    /// A changed priority in the columns of a switch is a change of attributes.
    fn prio_seen(&mut self, utid: u32, task: TaskIndex, at: Ns, prio: Option<i32>) {
        let known = self.known(utid);
        if let Some(prio) = prio.filter(|p| known.last_prio.or(known.prio).is_some_and(|known| known != *p)) {
            known.last_prio = Some(prio);
            self.push(task, at, EventKind::Prio { prio });
        }
    }

    fn switch_out(&mut self, at: Ns, out: Transition) {
        let Transition::SwitchOut { task: utid, cpu: slot, why, prio, next } = out else { return };
        let cpu = self.place(slot);
        let task = self.task_of(utid, First::Running, cpu);
        // Virtual time also changes where a task is placed; only within a slice does it measure weight.
        self.known(utid).last_vruntime = None;
        self.prio_seen(utid, task, at, prio);
        let runs = self.watches[cpu].curr == Some(task);
        let realtime = |prio: Option<i32>| prio.is_some_and(|p| (0..100).contains(&p));
        let off = match why {
            Why::Preempted | Why::Ready => {
                self.history.tasks[task as usize].round_robin |= realtime(prio) && prio == next;
                self.leaves_ready((cpu, task), at, why, runs)
            }
            Why::Yielded => {
                self.history.yields.0 += 1;
                Off::Yielded
            }
            Why::Ended => Off::Ended,
            Why::Unknown => Off::Unknown,
            Why::Slept(state) => Off::Slept { deep: matches!(state, State::Blocked | State::WaitingLock) },
        };
        let known = self.known(utid);
        known.from = None;
        known.asleep = matches!(off, Off::Slept { .. });
        if known.exiting {
            self.history.exits.0 += u64::from(off == Off::Ended);
            self.history.exits.1 += u64::from(matches!(off, Off::Preempted { .. }));
        }
        if runs && off != Off::Unknown {
            self.watches[cpu].leave(at, off, &mut self.history.samples);
        } else if runs {
            self.watches[cpu].forget();
        }
        self.push(task, at, EventKind::Off(off));
    }

    /// Why a task left that stayed ready.
    fn leaves_ready(&mut self, (cpu, task): (usize, TaskIndex), at: Ns, why: Why, runs: bool) -> Off {
        let watch = &self.watches[cpu];
        let interrupt = watch.interrupt_before(at).filter(|_| runs);
        let called = interrupt.is_some() || watch.posted_before(at);
        // The reschedule flag is clear again when a switch is recorded, so that nothing asked for
        // it proves a yield only where all that asks is seen: ticks show by the charge to the
        // running task, and this slice was charged.
        let seen = watch.charges() && self.record.irq.is_some();
        if why == Why::Ready && seen && !called && !watch.asked() {
            self.history.yields.1 += 1;
            return Off::Yielded;
        }
        if !called {
            let since = Some(watch.on_at).filter(|since| runs && *since > 0);
            let explained = watch.asked() || watch.charges();
            let quiet = runs && self.history.wakes && watch.quiet();
            self.history.loose.push(Loose {
                at,
                cpu: cpu as i32,
                task,
                since,
                user: why == Why::Ready,
                quiet,
                explained,
            });
        }
        Off::Preempted { interrupt }
    }

    /// The kernel's account: a lone one in an interrupt is a tick.
    fn charge(&mut self, at: Ns, utid: u32, ran: Ns, vruntime: Option<i64>) {
        let cpu = self.place(self.record.cpu);
        self.history.has_runtime = true;
        let known = *self.known(utid);
        if let Some(id) = known.task {
            let task = &mut self.history.tasks[id as usize];
            let left_before = |task: &TaskHistory| task.events.iter().any(|a| matches!(a.kind, EventKind::Off(_)));
            if task.charged == 0 && task.first == First::Running && !left_before(task) {
                task.before = (ran - at).max(0);
            }
            task.charged += ran;
            if let (Some(before), Some(now)) = (known.last_vruntime, vruntime) {
                if now > before {
                    task.virtual_charged += now - before;
                    task.virtual_real += ran;
                }
            }
            self.known(utid).last_vruntime = vruntime.filter(|v| *v != 0);
        }
        let hard = self.record.irq.is_some_and(|f| f & irq::HARDIRQ != 0);
        if self.watches[cpu].charge(ran, at, hard, &mut self.history.samples) {
            self.tick(at, cpu);
        }
    }

    fn tick(&mut self, at: Ns, cpu: usize) {
        self.history.ticks.push((at, cpu as i32));
        self.watches[cpu].tick(at);
        if let Some(task) = self.watches[cpu].curr {
            self.push(task, at, EventKind::Tick);
        }
    }

    /// The task, where it runs on the CPU of the record.
    fn running(&mut self, utid: u32) -> Option<TaskIndex> {
        let cpu = self.place(self.record.cpu);
        self.known(utid).task.filter(|task| self.watches[cpu].curr == Some(*task))
    }

    /// The record of an exec may state the new name already.
    fn exec(&mut self, at: Ns, utid: u32) {
        let old = match self.named.get(&utid).map_or(&[][..], Vec::as_slice) {
            [.., (_, before), (since, _)] if *since == at => Some(*before),
            [.., (_, name)] => Some(*name),
            [] => None,
        };
        if self.does(at, utid, EventKind::Exec) {
            if let Some(task) = self.known(utid).task {
                self.history.tasks[task as usize].names.push(old);
            }
        }
    }

    /// What the running task does itself; false where it is not known to run.
    fn does(&mut self, at: Ns, utid: u32, kind: EventKind) -> bool {
        let Some(task) = self.running(utid) else { return false };
        self.known(utid).exiting |= kind == EventKind::Exiting;
        self.push(task, at, kind);
        true
    }

    /// A call by which a task reads or writes.
    fn calls(&mut self, at: Ns, utid: u32, enters: bool, name: StrId, value: Option<i64>) {
        let Some(which) = self.calls.iter().position(|names| names.contains(&name)) else { return };
        let (reads, Some(task)) = (which == 0, self.running(utid)) else { return };
        let calls = &mut self.history.tasks[task as usize].calls;
        let bytes = value.unwrap_or(0).max(0);
        if enters {
            calls.push(Call { from: at, to: Ns::MAX, file: value, reads, bytes: 0 });
        } else if calls.is_empty() {
            calls.push(Call { from: 0, to: at, file: None, reads, bytes });
        } else if let Some(open) = calls.last_mut().filter(|c| c.to == Ns::MAX && c.reads == reads) {
            (open.to, open.bytes) = (at, bytes);
        }
    }

    /// Some call of a task ends: it is in one at a time.
    fn call_ends(&mut self, at: Ns, utid: u32, value: Option<i64>) {
        let Some(task) = self.running(utid) else { return };
        if let Some(open) = self.history.tasks[task as usize].calls.last_mut().filter(|c| c.to == Ns::MAX) {
            (open.to, open.bytes) = (at, value.unwrap_or(0).max(0));
        }
    }

    fn speed(&mut self, at: Ns, cpu: i32, what: Speed) {
        // A CPU without other records takes no part in a replay.
        let Some(stated) = self.index.get(&cpu).and_then(|place| self.speeds.get_mut(*place)) else { return };
        match what {
            Speed::Frequency(khz) => stated.khz.push((at, khz)),
            Speed::Limit(khz) => stated.limit = stated.limit.max(Some(khz)),
            Speed::Capacity(capacity) => stated.capacity = stated.capacity.max(Some(capacity)),
            Speed::Present(capacity) => stated.present.push((at, capacity)),
        }
    }

    /// Records were lost. Where no CPU saw that time, it is cut out.
    fn lost(&mut self, slot: Option<usize>, from: i64, ts: i64) {
        match slot {
            Some(_) => {
                let cpu = self.place(slot);
                self.watches[cpu].forget();
            }
            None => self.watches.iter_mut().for_each(Watch::forget),
        }
        if self.watches.len() == 1 || slot.is_none() {
            self.cut += (ts - from.max(self.start)).max(0);
        }
    }
}

impl Sink for Timeline {
    fn record(&mut self, record: &Record) {
        self.record = *record;
        self.history.has_flags |= record.irq.is_some();
        if let (Some(slot), Some(number)) = (record.cpu, record.number) {
            if self.places.len() <= slot {
                self.places.resize(slot + 1, None);
            }
            if self.places[slot].is_none() {
                self.places[slot] = self.index.get(&number).copied();
            }
        }
    }

    fn recorded(&mut self, record: &Record) {
        let (at, cpu) = (self.at(record.ts), self.place(record.cpu));
        let need = record.irq.is_some_and(|f| f & (irq::NEED_RESCHED | irq::LAZY_RESCHED) != 0);
        if record.kind != Kind::Lost && !self.strays() {
            self.watches[cpu].recorded(at, record.kind == Kind::Switch, need);
        }
    }

    fn transition(&mut self, ts: i64, what: Transition) {
        let at = self.at(ts);
        match what {
            Transition::SwitchIn { .. }
            | Transition::SwitchOut { .. }
            | Transition::Tick { .. }
            | Transition::Charge { .. }
                if self.strays() => {}
            Transition::Wake { .. } => self.wake(at, what),
            Transition::SwitchOut { .. } => self.switch_out(at, what),
            Transition::SwitchIn { task, cpu, prio, seen } => {
                let cpu = self.place(cpu);
                self.switch_in(at, task, cpu, prio, seen);
            }
            Transition::Idle { cpu } => {
                let cpu = self.place(Some(cpu));
                self.idled[cpu] = true;
                self.watches[cpu].enter(at, None, true, &mut self.history.samples);
            }
            Transition::Tick { cpu } => {
                let cpu = self.place(Some(cpu));
                self.tick(at, cpu);
            }
            Transition::Charge { task, ran, vruntime, .. } => self.charge(at, task, ran, vruntime),
            Transition::Fork { parent, child, thread, cpu } => {
                let cpu = self.place(cpu);
                self.fork(at, parent, child, thread, cpu);
            }
            Transition::Exec { task } => self.exec(at, task),
            Transition::Exit { task } => {
                self.does(at, task, EventKind::Exiting);
            }
            Transition::Wait { task, child } => {
                self.does(at, task, EventKind::WaitCall { tid: child });
            }
            Transition::Call { task, enters, name: Some(name), value } => self.calls(at, task, enters, name, value),
            Transition::Call { task, enters: false, name: None, value } => self.call_ends(at, task, value),
            Transition::Prio { task, prio } => {
                self.known(task).last_prio = Some(prio);
                if let Some(task) = self.known(task).task {
                    self.push(task, at, EventKind::Prio { prio });
                }
            }
            Transition::About { task, comm, prio } => {
                let softirqs = comm.is_some_and(|c| self.softirqs.contains(&c));
                let known = self.known(task);
                known.prio = known.prio.or(prio);
                known.softirqs |= softirqs;
                if let Some(name) = comm {
                    self.named.entry(task).or_default().push((at, name));
                }
                if let (true, Some(task)) = (softirqs, self.known(task).task) {
                    self.history.tasks[task as usize].softirqs = true;
                }
            }
            Transition::Speed { cpu, what } => self.speed(at, cpu, what),
            Transition::Lost { cpu, from } => self.lost(cpu, from, ts),
            Transition::Migrate { target, .. } => {
                let to = self.place(Some(target));
                self.watches[to].stirred = Some(at);
            }
            Transition::Call { .. } | Transition::End => {}
        }
    }

    fn task(&mut self, row: &TaskRow) {
        let Known { task, prio, .. } = *self.known(row.utid);
        let Some(task) = task.map(|task| &mut self.history.tasks[task as usize]) else { return };
        (task.tid, task.pid, task.prio) = (row.tid, row.pid, prio);
        task.comm = row.comm;
        task.named = self.named.remove(&row.utid).unwrap_or_default();
        if row.idle {
            // It turned out to be idle only later.
            task.events.clear();
            task.first = First::Asleep;
        }
    }
}
