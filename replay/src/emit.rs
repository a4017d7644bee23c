//! The log of a run as events of a trace, so that slices, states and queues are derived from a
//! replay by the same code as from a capture.

use tracekit_schema::events::irq;
use tracekit_schema::{Code, Diagnostic, Kind, Out, State, StrId};

use crate::engine::Run;
use crate::log::{by, Rec, What, IDLE};
use crate::program::{Program, Workload};
use crate::task::{Attrs, Ns};

/// Linux kernel priority: 120 is nice 0, below 100 is real time.
pub fn kernel_prio(attrs: &Attrs) -> i32 {
    if attrs.policy.is_rt() {
        99 - attrs.rt_prio
    } else {
        120 + attrs.nice
    }
}

struct Emit<'a> {
    out: &'a mut Out,
    work: &'a Workload,
    comms: Vec<StrId>,
    /// Execs of each task so far.
    execs: Vec<usize>,
    prios: Vec<i32>,
    attrs_seen: Vec<usize>,
    exiting: Vec<bool>,
    /// Numbers of the first CPUs.
    numbers: &'a [i32],
    /// What runs on each CPU, as the records so far tell.
    curr: Vec<u32>,
    offset: Ns,
    seq: u64,
    idle: StrId,
    message: StrId,
    /// First task that receives from each queue.
    servers: Vec<u32>,
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

/// Name of a task that has executed so many programs.
fn name(program: &Program, execs: usize) -> &str {
    program.names.get(execs).unwrap_or(&program.comm)
}

/// Adds the records of `run` to `out`. `numbers` are those of the first CPUs, `offset` is the trace
/// time of the run's time 0.
pub fn emit(run: &Run, cpus: usize, numbers: &[i32], offset: Ns, out: &mut Out) {
    let mut recs: Vec<Rec> = run.log.recs.clone();
    recs.sort_by_key(|r| r.ts);
    let comms = run.work.tasks.iter().map(|p| out.strings.intern(name(p, 0).as_bytes())).collect();
    let prios = run.work.tasks.iter().map(|p| kernel_prio(&p.first)).collect();
    let idle = out.strings.intern(b"swapper");
    let message = out.strings.intern(b"message");
    let raw = STATES.map(|(_, letter)| out.strings.intern(letter));
    let mut emit = Emit {
        out,
        work: &run.work,
        comms,
        execs: vec![0; run.work.tasks.len()],
        prios,
        attrs_seen: vec![0; run.work.tasks.len()],
        exiting: vec![false; run.work.tasks.len()],
        numbers,
        curr: vec![IDLE; cpus],
        offset,
        seq: 0,
        idle,
        message,
        servers: run.work.receivers().iter().map(|r| r.map_or(IDLE, |r| r.0 as u32)).collect(),
        raw,
    };
    for cpu in 0..cpus {
        emit.bound(Kind::TraceOn, 0, cpu);
    }
    for rec in &recs {
        if rec.ts <= run.counts.end {
            emit.record(rec);
        }
    }
    if let Some(warning) = &run.warning {
        emit.out.diag(Diagnostic::new(Code::Starvation, warning.clone()));
    }
    emit.bound(Kind::Marker, run.counts.end, 0);
    let name = emit.out.strings.intern(END);
    if let Some(mut row) = emit.out.events.last() {
        row.name(name);
    }
}

/// Name of the marker that stands at the end of a run: what is on a CPU there stays on it until then.
pub const END: &[u8] = b"end of run";

impl Emit<'_> {
    fn record(&mut self, rec: &Rec) {
        match rec.what {
            What::Switch => self.switch(rec),
            What::Wake => {
                self.subject(rec, Kind::Waking, true);
                self.subject(rec, Kind::Wakeup, true);
            }
            What::New => self.subject(rec, Kind::WakeupNew, false),
            What::Fork => self.subject(rec, Kind::Fork, false),
            What::Exec => self.exec(rec),
            What::Exiting => {
                self.exiting[rec.a as usize] = true;
                self.subject(rec, Kind::Exit, false);
            }
            What::Exit if self.exiting[rec.a as usize] => {}
            What::Exit => self.subject(rec, Kind::Exit, false),
            What::Initial => self.subject(rec, Kind::Enqueue, false),
            What::Migrate => {
                self.subject(rec, Kind::Migrate, false);
                let from = self.number(rec.x as usize);
                if let Some(mut row) = self.out.events.last() {
                    row.orig_cpu(from);
                }
            }
            What::Attrs => self.attrs(rec),
            What::Sent => self.sent(rec),
        }
    }

    /// The record has the new name, as the kernel's has.
    fn exec(&mut self, rec: &Rec) {
        let task = rec.a as usize;
        self.execs[task] += 1;
        let name = name(&self.work.tasks[task], self.execs[task]);
        self.comms[task] = self.out.strings.intern(name.as_bytes());
        self.subject(rec, Kind::Exec, false);
    }

    fn number(&self, cpu: usize) -> i32 {
        cpu_number(self.numbers, cpu)
    }

    /// The run begins on `cpu`, or ends. Every CPU is there from the start, also those that never get a task.
    fn bound(&mut self, kind: Kind, at: Ns, cpu: usize) {
        let ctx = self.curr[cpu];
        let (tid, pid, comm) = (self.tid(ctx), self.pid(ctx), self.comm(ctx));
        let number = self.number(cpu);
        let mut row = self.out.events.push();
        row.ts_ns(at + self.offset).cpu(number).seq(self.seq).kind(kind).quality(0);
        row.ctx_tid(tid).ctx_pid(pid).ctx_comm(comm);
        self.seq += 1;
    }

    fn tid(&self, t: u32) -> i64 {
        self.work.tasks.get(t as usize).map_or(0, |p| p.tid)
    }

    fn pid(&self, t: u32) -> Option<i64> {
        self.work.tasks.get(t as usize).map_or(Some(0), |p| p.pid)
    }

    fn comm(&self, t: u32) -> StrId {
        self.comms.get(t as usize).copied().unwrap_or(self.idle)
    }

    fn prio(&self, t: u32) -> i32 {
        self.prios.get(t as usize).copied().unwrap_or(120)
    }

    fn switch(&mut self, rec: &Rec) {
        let (a, b) = (rec.a, rec.b);
        let (a_tid, a_pid, a_comm, a_prio) = (self.tid(a), self.pid(a), self.comm(a), self.prio(a));
        let (b_tid, b_pid, b_comm, b_prio) = (self.tid(b), self.pid(b), self.comm(b), self.prio(b));
        let (state, raw) = match a {
            IDLE => (State::Runnable, self.raw[0]),
            _ => (STATES[rec.x as usize].0, self.raw[rec.x as usize]),
        };
        self.curr[rec.cpu as usize] = b;
        let cpu = self.number(rec.cpu.into());
        let mut row = self.out.events.push();
        row.ts_ns(rec.ts + self.offset).cpu(cpu).seq(self.seq).kind(Kind::Switch);
        row.ctx_tid(a_tid).ctx_pid(a_pid).ctx_comm(a_comm);
        row.tid(a_tid).pid(a_pid).comm(a_comm).prio(a_prio);
        row.next_tid(b_tid).next_pid(b_pid).next_comm(b_comm).next_prio(b_prio);
        row.state(state).state_raw(raw).quality(0);
        self.seq += 1;
    }

    fn subject(&mut self, rec: &Rec, kind: Kind, wake: bool) {
        let interrupt = wake && rec.x != by::TASK;
        let ctx = if rec.b == IDLE { self.curr[rec.cpu as usize] } else { rec.b };
        let (ctx_tid, ctx_pid, ctx_comm) = (self.tid(ctx), self.pid(ctx), self.comm(ctx));
        let (tid, pid, comm, prio) = (self.tid(rec.a), self.pid(rec.a), self.comm(rec.a), self.prio(rec.a));
        let cpu = self.number(rec.cpu.into());
        let mut row = self.out.events.push();
        row.ts_ns(rec.ts + self.offset).cpu(cpu).seq(self.seq).kind(kind);
        row.ctx_tid(ctx_tid).ctx_pid(ctx_pid).ctx_comm(ctx_comm);
        row.tid(tid).pid(pid).comm(comm).prio(prio).quality(0);
        if matches!(kind, Kind::Waking | Kind::Wakeup | Kind::WakeupNew | Kind::Enqueue | Kind::Migrate) {
            row.target_cpu(cpu);
        }
        if wake {
            row.irq_flags(if interrupt { irq::HARDIRQ } else { 0 });
        }
        self.seq += 1;
    }

    /// A message to the tasks that receive from a queue: `tid` is the first of them, `value` the
    /// request that it is about, `value2` its own number.
    fn sent(&mut self, rec: &Rec) {
        let server = self.servers.get(rec.a as usize).copied().unwrap_or(IDLE);
        self.subject(&Rec { a: server, ..*rec }, Kind::Other, false);
        let (name, request) = (self.message, self.work.requests.get(rec.x as usize).copied().flatten());
        if let Some(mut row) = self.out.events.last() {
            row.name(name).value(request.map(i64::from)).value2(i64::from(rec.x));
        }
    }

    fn attrs(&mut self, rec: &Rec) {
        let t = rec.a as usize;
        let attrs = self.work.tasks.get(t).and_then(|p| p.attrs.get(self.attrs_seen[t]));
        self.attrs_seen[t] += 1;
        if let Some(attrs) = attrs {
            let prio = kernel_prio(attrs);
            self.subject(rec, Kind::Prio, false);
            self.prios[t] = prio;
            if let Some(mut row) = self.out.events.last() {
                row.value(i64::from(prio));
            }
        }
    }
}

/// Notes what the policy counted, as JSON.
pub(crate) fn counts(out: &mut Out, counters: &[(&'static str, i64)]) {
    if !counters.is_empty() {
        let pairs: Vec<String> = counters.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
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
