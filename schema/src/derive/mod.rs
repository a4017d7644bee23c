//! From records to slices, states and run queues: a state machine that reads events once, in time order.
//!
//! The machine says what happens to whoever listens ([`sink`]): tables are one sink, the task
//! timelines that replays are built from are another, so both have one reading of a trace.
//!
//! The machine knows, of each CPU, what runs on it, and of each task, in which phase it is
//! ([`Phase`]). Each record moves one or two tasks to another phase, and an interval that ends
//! becomes a row. Memory is bounded by the number of tasks and CPUs plus the rows not yet drained.
//!
//! # What it holds to
//!
//! * **A task is one use of a thread number.** A thread number names a new task when a fork makes it
//!   again, or when something happens to it after its end. A change of name alone never makes a new
//!   task. An exec by a thread other than the leader carries the task over to the leader's number.
//! * **Idle is per CPU.** Idle is never a row of `slices` or `states`, and never a waker.
//! * **Runnable since when**: the first `waking`, `wakeup`, `wakeup_new`, `enqueue` or `lock_wake`
//!   record since the task left its CPU to sleep; or the switch at which it left its CPU still
//!   runnable. A wakeup of a task that is runnable or running changes nothing, except where it
//!   waits. A task that comes to run from sleep without any such record has no run delay: null, not
//!   0.
//! * **A wakeup can overtake the switch.** A waker on another CPU may write its `waking` before the
//!   sleeper's own switch. If no later record wakes the sleeper, it was runnable from that switch
//!   on.
//! * **Who ran before the first switch of a CPU** is stated by that switch, or by any record's
//!   current thread once switches are known to be recorded at all. That slice starts at the CPU's
//!   first record and is flagged.
//! * **The end of the trace is one moment for all CPUs**, the last record: a CPU that fell silent
//!   goes on with what it did.
//! * **Contradictions are repaired, flagged and counted.** When another task leaves than the one
//!   that was running, the latter ends at the CPU's previous record, and the time in between
//!   belongs to nobody.
//! * **A missing switch from idle is inferred** where a record names a task as current that was woken, or
//!   that the kernel charged with run time.
//! * **What was not recorded is unknown**: the CPUs and tasks that a recording leaves out
//!   ([`Partial`]), and who waits on a CPU before the recorder starts there (`late`).
//! * **Lost records end knowledge.** What ran on the CPU ends at its last record before the loss,
//!   tasks waiting on its queue become `unknown`, and other tasks' intervals that contain the loss
//!   carry a flag.
//! * **Time never runs backwards in derived tables**: an interval that would be negative is empty
//!   and flagged.
//!
//! # Run queues
//!
//! Where the source records each queue operation (`enqueue`, `dequeue`) or the length itself
//! (`load`), rows are exact. Otherwise they are estimated: a woken task waits where its wakeup
//! sends it, a migrated one where it went, a preempted one where it ran. A task that is runnable on
//! an unknown CPU counts in the rows whose `cpu` is null.

mod cpus;
mod emit;
mod finish;
mod late;
mod partial;
mod queue;
mod run;
mod silence;
pub mod sink;
mod stated;
mod tables;
mod tasks;
mod twice;
mod unseen;
mod wake;

#[cfg(test)]
mod made;
#[cfg(test)]
mod props;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::events::quality;
use crate::table::Table;
use crate::tables::{Cpus, Runqueue, Slices, States, Tasks};
use crate::{Diagnostics, Events, Kind, Metadata, StrId, Strings};

use cpus::CpuMap;
pub use partial::Partial;
use queue::Queues;
use sink::{Record, Sink, Speed, Transition};
pub use stated::tasks_of;
pub use tables::Tables;
use tasks::{Phase, TaskMap};

/// How a source's idle threads are distinguished from tasks, besides thread 0, which is idle everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleRule {
    /// Thread 0 only (Linux, Windows).
    #[default]
    ThreadZero,
    /// Threads named `wait` (AIX), one a CPU.
    NamedWait,
    /// Threads whose name starts with `idle` (FreeBSD: `idle: cpu3`).
    NamedIdle,
    /// Threads of a priority below 0 (Solaris, illumos and macOS give it to idle threads only).
    NegativePriority,
}

/// What to derive, and what is known of the source beforehand.
#[derive(Clone, Debug)]
pub struct DeriveOptions {
    /// Make the `states` table.
    pub states: bool,
    /// Make the `runqueue` table.
    pub runqueue: bool,
    /// CPUs of the machine: their idle tasks get the first keys. A CPU beyond it gets its key when
    /// first seen.
    pub nr_cpus: u32,
    /// How idle threads are recognised.
    pub idle: IdleRule,
    /// Switches are known to be recorded before the first one is seen: every record's current thread runs.
    pub switches: bool,
    /// Yields are distinguished from involuntary switches, or are counted so: a replay counts as the recorded
    /// trace does.
    pub yields_recorded: bool,
    /// What was recorded, where it was not everything.
    pub partial: Partial,
    /// A recording of all that a machine ran, in ns: not a replay, nor one of some tasks.
    pub all_of_machine: bool,
    /// The recorder starts its CPUs one after another: what one did before its first record is not known.
    pub in_turn: bool,
}

impl Default for DeriveOptions {
    fn default() -> Self {
        DeriveOptions {
            states: true,
            runqueue: true,
            nr_cpus: 0,
            idle: IdleRule::ThreadZero,
            switches: false,
            yields_recorded: true,
            partial: Partial::default(),
            all_of_machine: false,
            in_turn: false,
        }
    }
}

impl DeriveOptions {
    /// Everything, with what `meta` says of the machine.
    pub fn for_trace(meta: &Metadata) -> Self {
        let idle = match meta.get("os") {
            Some("aix") => IdleRule::NamedWait,
            Some("freebsd") => IdleRule::NamedIdle,
            Some("solaris" | "darwin") => IdleRule::NegativePriority,
            _ => IdleRule::ThreadZero,
        };
        let nr_cpus = meta.get("nr_cpus").and_then(|n| n.parse().ok()).unwrap_or(0);
        let yields_recorded = meta.get("yields.recorded") != Some("false");
        let partial =
            Partial { cpus: meta.get("cpus.recorded").and_then(cpu_list), tasks: meta.get("tasks.recorded").is_some() };
        let other = ["replay.policy", "workload", "tasks.recorded"].iter().any(|key| meta.get(key).is_some());
        let all_of_machine = !other && meta.get("clock.unit").is_none_or(|unit| unit == "ns");
        let in_turn = !other && matches!(meta.get("source.format"), Some("perf-data" | "perf-script"));
        let nr_cpus = u32::min(nr_cpus, 1 << 16);
        DeriveOptions { nr_cpus, idle, yields_recorded, partial, all_of_machine, in_turn, ..Self::default() }
    }
}

/// Reads a list of CPUs as Linux prints it (`0-2,5`), in order.
fn cpu_list(text: &str) -> Option<Vec<i32>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (from.trim().parse::<i32>().ok()?, to.trim().parse::<i32>().ok()?);
        cpus.extend((from..=to).take(1 << 16));
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// The derived tables.
#[derive(Clone, Debug, Default)]
pub struct Derived {
    /// On-CPU intervals.
    pub slices: Slices,
    /// Every task's life.
    pub states: States,
    /// Queue lengths.
    pub runqueue: Runqueue,
    /// Every task.
    pub tasks: Tasks,
    /// Every CPU.
    pub cpus: Cpus,
}

impl Derived {
    /// Sorts each table by start time, rows of equal time by CPU or task. Rows come out of
    /// [`Deriver`] as they end.
    pub fn sort(&mut self) {
        let s = &self.slices;
        self.slices = s.take(&order(s.len(), |i| (s.ts_ns.get(i), s.cpu.get(i).map(i64::from))));
        let s = &self.states;
        self.states = s.take(&order(s.len(), |i| (s.ts_ns.get(i), s.utid.get(i).map(i64::from))));
        let s = &self.runqueue;
        self.runqueue = s.take(&order(s.len(), |i| (s.ts_ns.get(i), None)));
    }
}

fn order(rows: usize, key: impl Fn(usize) -> (Option<i64>, Option<i64>)) -> Vec<u32> {
    let mut rows: Vec<u32> = (0..rows as u32).collect();
    rows.sort_by_key(|&i| key(i as usize));
    rows
}

/// Who has a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// Its idle task.
    Idle,
    /// The task with this key.
    Task(u32),
}

/// The state machine. See the module's documentation.
#[derive(Debug)]
pub struct Deriver<S: Sink = Tables> {
    options: DeriveOptions,
    tasks: TaskMap,
    cpus: CpuMap,
    queues: Queues,
    sink: S,
    /// A switch was seen: records' current threads may be trusted to be running.
    live: bool,
    /// Thread 0 made the record of a switch by which another one leaves: the numbers of current threads are
    /// not those of payloads. perf in a container prints those of its own namespace, and 0 for others.
    translated: bool,
    /// A switch from idle was found missing.
    unseen: bool,
    /// A wakeup was seen.
    wakes: bool,
    /// A switch in without a wakeup was seen.
    unwoken: bool,
    /// First and last time of all records.
    span: Option<(i64, i64)>,
    /// Time of the last loss.
    last_loss: i64,
}

impl Deriver {
    /// A machine that has seen nothing and makes tables.
    pub fn new(options: DeriveOptions) -> Self {
        Deriver::with(options, Tables::default())
    }

    /// Takes the rows of slices, states and runqueue that are finished; tasks and CPUs stay empty.
    pub fn drain(&mut self) -> Derived {
        let rows = &mut self.sink.rows;
        let next = Derived {
            slices: rows.slices.like(),
            states: rows.states.like(),
            runqueue: rows.runqueue.like(),
            ..Derived::default()
        };
        std::mem::replace(rows, next)
    }

    /// Closes what is open at the time of the last record, and fills tasks and CPUs. Rows come as
    /// they ended; see [`Derived::sort`].
    pub fn finish(self, diagnostics: &mut Diagnostics) -> Derived {
        self.end(diagnostics).rows
    }
}

impl<S: Sink> Deriver<S> {
    /// A machine that has seen nothing and reports to `sink`.
    pub fn with(options: DeriveOptions, sink: S) -> Self {
        let queues = Queues::new(options.runqueue);
        let tasks = TaskMap::new(options.nr_cpus, options.idle);
        Deriver {
            live: options.switches,
            translated: false,
            unseen: false,
            options,
            tasks,
            cpus: CpuMap::default(),
            queues,
            sink,
            wakes: false,
            unwoken: false,
            span: None,
            last_loss: i64::MIN,
        }
    }

    /// Reads a batch of records, which go on where the last batch ended. `strings` are those of the records.
    pub fn push(&mut self, events: &Events, strings: &Strings, diagnostics: &mut Diagnostics) {
        self.push_rows(events, 0..events.len(), strings, diagnostics);
    }

    /// Reads some rows of a batch: for callers that look in between at whether to go on.
    pub fn push_rows(&mut self, events: &Events, rows: Range<usize>, strings: &Strings, diagnostics: &mut Diagnostics) {
        for row in rows {
            Step { d: self, e: events, row, strings, diagnostics }.read();
        }
    }

    /// Whoever listens.
    pub fn sink(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Closes what is open at the time of the last record, and gives the sink back.
    pub fn end(mut self, diagnostics: &mut Diagnostics) -> S {
        self.close(diagnostics);
        self.sink
    }
}

/// One record being read.
struct Step<'a, S: Sink> {
    d: &'a mut Deriver<S>,
    e: &'a Events,
    row: usize,
    strings: &'a Strings,
    diagnostics: &'a mut Diagnostics,
}

/// What a record says of its subject besides the number.
#[derive(Clone, Copy, Default)]
struct Stated {
    comm: Option<StrId>,
    pid: Option<i64>,
    prio: Option<i32>,
}

impl<S: Sink> Step<'_, S> {
    fn ts(&self) -> i64 {
        self.e.ts_ns.get(self.row).unwrap_or(0)
    }

    fn seq(&self) -> Option<u64> {
        self.e.seq.get(self.row)
    }

    fn stated(&self) -> Stated {
        let (e, row) = (self.e, self.row);
        // Whose context it is, the recorder may say with its process: a tgid of ftrace, `-F pid` of perf.
        let own = || e.ctx_pid.get(row).filter(|_| e.tid.get(row).is_some_and(|t| e.ctx_tid.get(row) == Some(t)));
        Stated { comm: e.comm.get(row), pid: e.pid.get(row).or_else(own), prio: e.prio.get(row) }
    }

    fn stated_next(&self) -> Stated {
        let (e, row) = (self.e, self.row);
        Stated { comm: e.next_comm.get(row), pid: e.next_pid.get(row), prio: e.next_prio.get(row) }
    }

    fn read(&mut self) {
        let kind = self.e.kind.get(self.row).unwrap_or_default();
        let ts = self.ts();
        if self.e.quality.get(self.row).unwrap_or(0) & quality::SYNTHESIZED != 0 {
            return self.synthesized();
        }
        self.after_silence(kind, ts);
        let span = self.d.span.get_or_insert((ts, ts));
        *span = (span.0.min(ts), span.1.max(ts));
        let slot = self.e.cpu.get(self.row).map(|cpu| self.d.cpus.slot(cpu));
        let (number, irq) = (self.e.cpu.get(self.row), self.e.irq_flags.get(self.row));
        let record = Record { ts, kind, cpu: slot, number, irq };
        self.d.sink.record(&record);
        if kind == Kind::Lost {
            self.lost(slot, ts);
        } else {
            if let Some(slot) = slot {
                if self.d.cpus.record(slot, ts) {
                    self.first_of_cpu(slot, kind, ts);
                }
                match self.d.cpus[slot].cur {
                    None if kind != Kind::Switch => self.current(slot, ts),
                    Some(Who::Idle) => self.current_unseen(slot, kind, ts),
                    Some(Who::Task(cur)) => self.left_for_another(slot, cur, kind, ts),
                    _ => {}
                }
            }
            self.dispatch(kind, slot, ts);
            if let Some(slot) = slot {
                if kind != Kind::Waking && kind != Kind::StatRuntime {
                    self.d.cpus[slot].sent = None;
                }
                let cpu = &mut self.d.cpus[slot];
                cpu.last = cpu.last.max(ts);
                if cpu.switching && kind != Kind::Switch && self.e.ctx_tid.get(self.row) != Some(0) {
                    (cpu.switching, cpu.idled) = (false, None);
                }
            }
        }
        self.d.sink.recorded(&record);
        let Deriver { queues, cpus, sink, live, .. } = &mut *self.d;
        queues.flush(ts, *live, cpus, sink);
    }

    fn dispatch(&mut self, kind: Kind, slot: Option<usize>, ts: i64) {
        match kind {
            Kind::Switch => self.switch(slot, ts),
            Kind::Waking | Kind::Wakeup | Kind::WakeupNew | Kind::LockWake => self.wakeup(kind, slot, ts),
            Kind::Migrate => self.migrate(ts),
            Kind::Enqueue => self.enqueue(slot, ts),
            Kind::Dequeue => self.dequeue(ts),
            Kind::Load => self.load(ts),
            Kind::Resume => self.resume(slot, ts),
            Kind::Yield | Kind::Preempt | Kind::Sleep | Kind::LockWait | Kind::Remain => self.hint(kind, ts),
            Kind::Fork => self.fork(slot, ts),
            Kind::Exec => self.exec(ts),
            Kind::Exit => self.exit(ts),
            Kind::Free => self.free(ts),
            Kind::BlockedReason => self.blocked_reason(ts),
            Kind::Prio | Kind::PiBoost | Kind::PiUnboost => self.prio(ts),
            Kind::TraceOff => self.trace_off(ts),
            // The subject of `wait` is whom it waits for, which may be 0 or long dead.
            Kind::Wait => {
                if let Some(Who::Task(task)) = slot.and_then(|slot| self.d.cpus[slot].cur) {
                    let child = self.e.tid.get(self.row).unwrap_or(0);
                    self.d.sink.transition(ts, Transition::Wait { task, child });
                }
            }
            Kind::SysEnter | Kind::SysExit => {
                self.subject(ts);
                if let Some(Who::Task(task)) = slot.and_then(|slot| self.d.cpus[slot].cur) {
                    let (name, value) = (self.e.name.get(self.row), self.e.value2.get(self.row));
                    let enters = kind == Kind::SysEnter;
                    self.d.sink.transition(ts, Transition::Call { task, enters, name, value });
                }
            }
            Kind::CpuFreq | Kind::CpuFreqLimits | Kind::CpuCapacity => self.speed(kind, ts),
            Kind::Tick => {
                self.subject(ts);
                if let Some(cpu) = slot {
                    self.d.sink.transition(ts, Transition::Tick { cpu });
                }
            }
            Kind::StatRuntime => {
                self.charged_unseen(ts);
                if let Some(task) = self.subject(ts) {
                    let (ran, vruntime) = (self.e.value.get(self.row).unwrap_or(0), self.e.value2.get(self.row));
                    self.d.sink.transition(ts, Transition::Charge { task, cpu: slot, ran, vruntime });
                }
            }
            _ => {
                self.subject(ts);
            }
        }
    }

    /// How fast a CPU is from now on; 0 is no speed.
    fn speed(&mut self, kind: Kind, ts: i64) {
        let Some(cpu) = self.e.target_cpu.get(self.row) else { return };
        let (value, value2) = (self.e.value.get(self.row), self.e.value2.get(self.row));
        let stated = match kind {
            Kind::CpuFreq => [value.map(Speed::Frequency), None],
            Kind::CpuFreqLimits => [value.map(Speed::Limit), None],
            _ => [value.map(Speed::Capacity), value2.map(Speed::Present)],
        };
        for what in stated.into_iter().flatten() {
            let (Speed::Frequency(n) | Speed::Limit(n) | Speed::Capacity(n) | Speed::Present(n)) = what;
            if n > 0 {
                self.d.sink.transition(ts, Transition::Speed { cpu, what });
            }
        }
    }

    /// The task that the record is about, if it is about one.
    #[inline]
    fn subject(&mut self, ts: i64) -> Option<u32> {
        let tid = self.e.tid.get(self.row)?;
        let stated = self.stated();
        self.task(tid, ts, stated, false)
    }

    /// The same, or the current thread for records that only name that.
    fn subject_or_current(&mut self, ts: i64) -> Option<u32> {
        match self.e.tid.get(self.row) {
            Some(_) => self.subject(ts),
            None => self.task(self.e.ctx_tid.get(self.row)?, ts, Stated::default(), false),
        }
    }

    /// The task of thread `tid`, made when it is new; `None` for idle. With `anew`, a task that
    /// ended is not it.
    #[inline]
    fn task(&mut self, tid: i64, ts: i64, stated: Stated, anew: bool) -> Option<u32> {
        if tid == 0 {
            return None;
        }
        let tasks = &mut self.d.tasks;
        let mut utid = tasks.get(tid);
        if let Some(u) = utid {
            if anew && tasks[u].phase == Phase::Dead {
                self.retire(u, ts);
                utid = None;
            }
        }
        let tasks = &mut self.d.tasks;
        let utid = utid.unwrap_or_else(|| tasks.create(tid, ts));
        let task = &mut tasks.all[utid as usize];
        task.seen(ts);
        task.last_ts = task.last_ts.max(ts);
        if stated.pid.is_some() {
            task.pid = stated.pid;
        }
        if let Some(prio) = stated.prio {
            if task.prio.is_none() {
                self.d.sink.transition(ts, Transition::About { task: utid, comm: None, prio: stated.prio });
            }
            task.set_prio(prio);
        }
        if stated.comm.is_some() && stated.comm != task.comm {
            task.set_comm(stated.comm);
            self.d.sink.transition(ts, Transition::About { task: utid, comm: stated.comm, prio: None });
        } else if !task.unchecked {
            return (!task.idle).then_some(utid);
        }
        self.check_idle(utid);
        (!self.d.tasks[utid].idle).then_some(utid)
    }

    /// Applies the rule by which idle threads are known, when a task is new or its name changed.
    fn check_idle(&mut self, utid: u32) {
        let task = &mut self.d.tasks[utid];
        task.unchecked = self.d.options.idle == IdleRule::NegativePriority && task.prio.is_none();
        let name = task.comm.map_or(&b""[..], |c| self.strings.get(c));
        let idle = match self.d.options.idle {
            IdleRule::ThreadZero => false,
            IdleRule::NamedWait => name == b"wait",
            IdleRule::NamedIdle => name.starts_with(b"idle"),
            IdleRule::NegativePriority => task.prio.is_some_and(|p| p < 0),
        };
        if idle && task.phase != Phase::Running {
            task.idle = true;
        }
    }

    /// A record that the recorder made up at its start, to state names: it has no time of its own.
    fn synthesized(&mut self) {
        if let Some(tid) = self.e.tid.get(self.row).filter(|&tid| tid != 0) {
            let stated = self.stated();
            let tasks = &mut self.d.tasks;
            let utid = tasks.get(tid).unwrap_or_else(|| tasks.create_unseen(tid));
            let task = &mut tasks[utid];
            task.pid = stated.pid.or(task.pid);
            if stated.comm.is_some() {
                task.set_comm(stated.comm);
            }
        }
    }
}
