//! The log of a run as events of a trace, so that slices, states and queues are derived from a
//! replay by the same code as from a capture.

use tracekit_schema::events::irq;
use tracekit_schema::table::Table;
use tracekit_schema::{Code, Diagnostic, Kind, Out, State, StrId, Strings};

use crate::engine::Run;
use crate::log::{by, Rec, RecKind, IDLE};
use crate::program::Program;
use crate::task::{Attrs, Ns, SchedPolicy};

/// Linux kernel priority: 120 is nice 0, below 100 is real time, -1 has a reservation.
pub fn kernel_prio(attrs: &Attrs) -> i32 {
    match attrs.policy {
        SchedPolicy::Deadline => -1,
        policy if policy.is_rt() => 99 - attrs.rt_prio,
        _ => 120 + attrs.nice,
    }
}

/// What happened in a run, from which its events are made: part by part, and as often as they are
/// wanted. It takes a fifth of the room of the events.
#[derive(Debug)]
pub struct Records {
    /// In time order.
    recs: Vec<Rec>,
    /// The tasks, without their steps.
    tasks: Vec<Program>,
    /// First task that receives from each queue.
    servers: Vec<u32>,
    /// The request that each of the first messages is about.
    requests: Vec<Option<u32>>,
    cpus: usize,
    /// Numbers of the first CPUs.
    numbers: Vec<i32>,
    /// Trace time of the run's time 0.
    offset: Ns,
    end: Ns,
}

/// The events of a run, part by part.
pub struct Emitter<'a> {
    of: &'a Records,
    /// The record that comes next.
    next: usize,
    /// All events have been given.
    done: bool,
    comms: Vec<Option<StrId>>,
    /// Execs of each task so far.
    execs: Vec<usize>,
    prios: Vec<i32>,
    attrs_seen: Vec<usize>,
    exiting: Vec<bool>,
    /// What runs on each CPU, as the records so far say.
    curr: Vec<u32>,
    seq: u64,
    idle: StrId,
    message: StrId,
    served: StrId,
    raw: [StrId; 5],
}

const STATES: [(State, &[u8]); 5] = [
    (State::Preempted, b"R"),
    (State::Yielding, b"R"),
    (State::Sleeping, b"S"),
    (State::Blocked, b"D"),
    (State::Dead, b"X"),
];

/// Number of the CPU that the engine counts as `at`: the recorded ones first, then those behind the
/// last of them.
pub fn cpu_number(numbers: &[i32], at: usize) -> i32 {
    let beyond = |last: &i32| last + 1 + (at - numbers.len()) as i32;
    numbers.get(at).copied().or_else(|| numbers.last().map(beyond)).unwrap_or(at as i32)
}

/// Name of a task that has executed so many programs; none where the source names it nowhere.
fn name(program: &Program, execs: usize, strings: &mut Strings) -> Option<StrId> {
    let name = program.names.get(execs).unwrap_or(&program.comm);
    (!name.is_empty()).then(|| strings.intern(name.as_bytes()))
}

impl Records {
    /// Takes them from a run. `numbers` are those of the first CPUs, `offset` is the trace time of
    /// the run's time 0.
    pub fn of(run: &mut Run, cpus: usize, numbers: &[i32], offset: Ns) -> Self {
        let (mut recs, work) = (std::mem::take(&mut run.log.recs), std::mem::take(&mut run.work));
        let end = run.counts.end;
        recs.retain(|r| r.ts <= end);
        recs.shrink_to_fit();
        recs.sort_by_key(|r| r.ts);
        let servers = work.receivers().iter().map(|r| r.map_or(IDLE, |r| r.0 as u32)).collect();
        let mut tasks = work.tasks;
        tasks.iter_mut().for_each(|task| task.steps = Vec::new());
        Records { recs, tasks, servers, requests: work.requests, cpus, numbers: numbers.to_vec(), offset, end }
    }

    /// Trace time of the first event and of the last.
    pub fn span(&self) -> (Ns, Ns) {
        (self.offset, self.offset + self.end)
    }

    /// All events at once.
    pub fn all(&self, out: &mut Out) {
        self.emitter(out).fill(out, usize::MAX);
    }

    /// The events part by part; their names are those of `out`.
    pub fn emitter(&self, out: &mut Out) -> Emitter<'_> {
        let strings = &mut out.strings;
        Emitter {
            of: self,
            next: 0,
            done: false,
            comms: self.tasks.iter().map(|p| name(p, 0, strings)).collect(),
            execs: vec![0; self.tasks.len()],
            prios: self.tasks.iter().map(|p| kernel_prio(&p.first)).collect(),
            attrs_seen: vec![0; self.tasks.len()],
            exiting: vec![false; self.tasks.len()],
            curr: vec![IDLE; self.cpus],
            seq: 0,
            idle: strings.intern(b"swapper"),
            message: strings.intern(b"message"),
            served: strings.intern(b"served"),
            raw: STATES.map(|(_, letter)| strings.intern(letter)),
        }
    }
}

/// Name of the marker that stands at the end of a run: what is on a CPU there stays on it until then.
pub const END: &[u8] = b"end of run";

impl Emitter<'_> {
    /// Adds about `rows` events to `out`; false when there are no more.
    pub fn fill(&mut self, out: &mut Out, rows: usize) -> bool {
        if self.done {
            return false;
        }
        let full = out.events.len().saturating_add(rows);
        if self.seq == 0 {
            for cpu in 0..self.of.cpus {
                self.bound(Kind::TraceOn, 0, cpu, out);
            }
        }
        while let Some(rec) = self.of.recs.get(self.next).filter(|_| out.events.len() < full) {
            self.next += 1;
            self.record(rec, out);
        }
        if self.next == self.of.recs.len() {
            self.done = true;
            self.bound(Kind::Marker, self.of.end, 0, out);
            let name = out.strings.intern(END);
            if let Some(mut row) = out.events.last() {
                row.name(name);
            }
        }
        true
    }

    fn record(&mut self, rec: &Rec, out: &mut Out) {
        match rec.kind {
            RecKind::Switch => self.switch(rec, out),
            RecKind::Wake => {
                self.subject(rec, Kind::Waking, true, out);
                self.subject(rec, Kind::Wakeup, true, out);
            }
            RecKind::New => self.subject(rec, Kind::WakeupNew, false, out),
            RecKind::Fork => self.subject(rec, Kind::Fork, false, out),
            RecKind::Exec => self.exec(rec, out),
            RecKind::Exiting => {
                self.exiting[rec.a as usize] = true;
                self.subject(rec, Kind::Exit, false, out);
            }
            RecKind::Exit if self.exiting[rec.a as usize] => {}
            RecKind::Exit => self.subject(rec, Kind::Exit, false, out),
            RecKind::Initial => self.subject(rec, Kind::Enqueue, false, out),
            RecKind::Migrate => {
                self.subject(rec, Kind::Migrate, false, out);
                let from = self.number(rec.x as usize);
                if let Some(mut row) = out.events.last() {
                    row.orig_cpu(from);
                }
            }
            RecKind::Attrs => self.attrs(rec, out),
            RecKind::Sent => self.sent(rec, out),
            RecKind::Served => self.of_message(rec, self.served, out),
        }
    }

    /// The record has the new name, as the kernel's has.
    fn exec(&mut self, rec: &Rec, out: &mut Out) {
        let task = rec.a as usize;
        self.execs[task] += 1;
        self.comms[task] = name(&self.of.tasks[task], self.execs[task], &mut out.strings);
        self.subject(rec, Kind::Exec, false, out);
    }

    fn number(&self, cpu: usize) -> i32 {
        cpu_number(&self.of.numbers, cpu)
    }

    /// The run begins on `cpu`, or ends. Every CPU is there from the start, also those that never get a task.
    fn bound(&mut self, kind: Kind, at: Ns, cpu: usize, out: &mut Out) {
        let ctx = self.curr[cpu];
        let (tid, pid, comm) = (self.tid(ctx), self.pid(ctx), self.comm(ctx));
        let number = self.number(cpu);
        let mut row = out.events.push();
        row.ts_ns(at + self.of.offset).cpu(number).seq(self.seq).kind(kind).quality(0);
        row.ctx_tid(tid).ctx_pid(pid).ctx_comm(comm);
        self.seq += 1;
    }

    fn tid(&self, t: u32) -> i64 {
        self.of.tasks.get(t as usize).map_or(0, |p| p.tid)
    }

    fn pid(&self, t: u32) -> Option<i64> {
        self.of.tasks.get(t as usize).map_or(Some(0), |p| p.pid)
    }

    fn comm(&self, t: u32) -> Option<StrId> {
        self.comms.get(t as usize).copied().unwrap_or(Some(self.idle))
    }

    fn prio(&self, t: u32) -> i32 {
        self.prios.get(t as usize).copied().unwrap_or(120)
    }

    fn switch(&mut self, rec: &Rec, out: &mut Out) {
        let (a, b) = (rec.a, rec.b);
        let (a_tid, a_pid, a_comm, a_prio) = (self.tid(a), self.pid(a), self.comm(a), self.prio(a));
        let (b_tid, b_pid, b_comm, b_prio) = (self.tid(b), self.pid(b), self.comm(b), self.prio(b));
        let (state, raw) = match a {
            IDLE => (State::Runnable, self.raw[0]),
            _ => (STATES[rec.x as usize].0, self.raw[rec.x as usize]),
        };
        self.curr[rec.cpu as usize] = b;
        let cpu = self.number(rec.cpu.into());
        let mut row = out.events.push();
        row.ts_ns(rec.ts + self.of.offset).cpu(cpu).seq(self.seq).kind(Kind::Switch);
        row.ctx_tid(a_tid).ctx_pid(a_pid).ctx_comm(a_comm);
        row.tid(a_tid).pid(a_pid).comm(a_comm).prio(a_prio);
        row.next_tid(b_tid).next_pid(b_pid).next_comm(b_comm).next_prio(b_prio);
        row.state(state).state_raw(raw).quality(0);
        self.seq += 1;
    }

    fn subject(&mut self, rec: &Rec, kind: Kind, wake: bool, out: &mut Out) {
        let interrupt = wake && rec.x & by::MASK != by::TASK;
        // A wakeup is recorded where it is made.
        let place = match kind {
            Kind::Waking | Kind::Wakeup => (rec.x >> by::BITS) as usize,
            Kind::WakeupNew => rec.x as usize,
            _ => rec.cpu.into(),
        };
        let ctx = if rec.b == IDLE { self.curr[place] } else { rec.b };
        let (ctx_tid, ctx_pid, ctx_comm) = (self.tid(ctx), self.pid(ctx), self.comm(ctx));
        let (tid, pid, comm, prio) = (self.tid(rec.a), self.pid(rec.a), self.comm(rec.a), self.prio(rec.a));
        let (cpu, target) = (self.number(place), self.number(rec.cpu.into()));
        let mut row = out.events.push();
        row.ts_ns(rec.ts + self.of.offset).cpu(cpu).seq(self.seq).kind(kind);
        row.ctx_tid(ctx_tid).ctx_pid(ctx_pid).ctx_comm(ctx_comm);
        row.tid(tid).pid(pid).comm(comm).prio(prio).quality(0);
        if matches!(kind, Kind::Waking | Kind::Wakeup | Kind::WakeupNew | Kind::Enqueue | Kind::Migrate) {
            row.target_cpu(target);
        }
        if wake {
            row.irq_flags(if interrupt { irq::HARDIRQ } else { 0 });
        }
        self.seq += 1;
    }

    /// A message to the tasks that receive from a queue: `tid` is the first of them, `value` the
    /// request that it is about, `value2` its own number.
    fn sent(&mut self, rec: &Rec, out: &mut Out) {
        let server = self.of.servers.get(rec.a as usize).copied().unwrap_or(IDLE);
        self.of_message(&Rec { a: server, ..*rec }, self.message, out);
    }

    /// A row about message `rec.x` and the task `rec.a`.
    fn of_message(&mut self, rec: &Rec, name: StrId, out: &mut Out) {
        self.subject(rec, Kind::Other, false, out);
        let request = self.of.requests.get(rec.x as usize).copied().flatten();
        if let Some(mut row) = out.events.last() {
            row.name(name).value(request.map(i64::from)).value2(i64::from(rec.x));
        }
    }

    fn attrs(&mut self, rec: &Rec, out: &mut Out) {
        let t = rec.a as usize;
        let attrs = self.of.tasks.get(t).and_then(|p| p.attrs.get(self.attrs_seen[t]));
        self.attrs_seen[t] += 1;
        if let Some(attrs) = attrs {
            let prio = kernel_prio(attrs);
            self.subject(rec, Kind::Prio, false, out);
            self.prios[t] = prio;
            if let Some(mut row) = out.events.last() {
                row.value(i64::from(prio));
            }
        }
    }
}

/// Notes what the policy counted, as JSON, and what is odd about the run.
pub(crate) fn report(out: &mut Out, run: &Run) {
    if let Some(warning) = &run.warning {
        out.diag(Diagnostic::new(Code::Starvation, warning.clone()));
    }
    if !run.counters.is_empty() {
        let pairs: Vec<String> = run.counters.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
        out.meta.set("replay.counts", format!("{{{}}}", pairs.join(", ")));
    }
}

/// Sets the metadata that every replay carries.
pub fn describe(out: &mut Out, policy: &str, cpus: usize, hz: i64) {
    out.meta.set("source.format", "replay");
    out.meta.set("tracekit.schema", "1");
    out.meta.set("replay.policy", policy);
    out.meta.set("nr_cpus", cpus.to_string());
    out.meta.set("hz", hz.to_string());
    out.meta.set("prio.scale", "linux");
    out.meta.set("clock.name", "replay");
    out.meta.set("clock.resolution_ns", "1");
    out.meta.set("clock.synchronised", "true");
    out.meta.set(
        "events.recorded",
        r#"["switch","waking","wakeup","wakeup_new","fork","exec","exit","migrate","trace_on","marker"]"#,
    );
}
