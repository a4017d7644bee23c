//! A record becomes a row.

use super::attr::{Sample, Trailer, TRACEPOINT};
use super::copies::Copies;
use super::header::Attrs;
use super::lost::{Lost, BY_FILTER};
use super::records::kind;
use crate::binary::bytes::{uint, until_nul};
use crate::binary::tasks::Tasks;
use crate::binary::tracepoint::{Decoded, Decoder};
use crate::text::log::Stamp;
use crate::text::stage::Stage;
use std::collections::HashMap;
use tracekit_schema::events::{quality, EventRow};
use tracekit_schema::{Code, Diagnostic, Kind, Out, State, StrId};

/// Flag of COMM: by an exec.
const COMM_EXEC: u16 = 1 << 13;
/// Flag of SWITCH: the task leaves.
const SWITCH_OUT: u16 = 1 << 13;
/// Flag of SWITCH: although it could have gone on.
const SWITCH_PREEMPT: u16 = 1 << 14;

/// Which of perf's own records a tracepoint makes superfluous.
#[derive(Clone, Copy, Debug, Default)]
struct Recorded {
    switch: bool,
    fork: bool,
    exit: bool,
    exec: bool,
}

/// What the last `sched_switch` of a CPU stated and no switch record has repeated yet.
#[derive(Clone, Copy, Debug, Default)]
struct Beside {
    left: Option<i64>,
    came: Option<i64>,
}

/// Makes rows, and remembers what that takes.
pub struct Rows {
    /// Formats of tracepoints.
    pub decoder: Decoder,
    be: bool,
    trailer: Trailer,
    tasks: Tasks,
    recorded: Recorded,
    seq: u64,
    last_ts: i64,
    /// Last time of each CPU, for the bounds of losses.
    cpu_ts: Vec<i64>,
    /// Records that were lost, as the file states them while it goes on and at its end.
    lost: u64,
    count: Lost,
    /// Events can be asked how many of their records were lost.
    counts_lost: bool,
    /// There are tracepoints, and no formats that say which.
    nameless: bool,
    /// Not all CPUs were recorded, and nothing but their records says which.
    pub some_cpus: bool,
    /// The file ends before its records do.
    pub torn: bool,
    skipped: u64,
    any_switch: bool,
    /// Names from before the recording: process, thread, name.
    initial: Vec<(i64, i64, Option<StrId>)>,
    /// Parents of tasks from before the recording.
    parents: HashMap<i64, i64>,
    /// Tracepoints are recorded, and none has come yet: what tasks did so far was before the recording.
    before: bool,
    /// Tracepoints have several events.
    copies: Option<Copies>,
    /// Switches come as samples and as records: who left and who came in the last sample of each CPU.
    beside: Option<HashMap<Option<i32>, Beside>>,
    /// Switch records that stated what a sample had stated.
    repeated: u64,
    /// Rows on their way into the table.
    stage: Stage,
}

impl Rows {
    /// Nothing read yet.
    pub fn new(be: bool, out: &mut Out) -> Self {
        let mut tasks = Tasks::default();
        let idle = tasks.entry(0);
        idle.set_comm(Some(out.strings.intern(b"swapper")));
        idle.set_pid(Some(0));
        Rows {
            decoder: Decoder::new(be),
            be,
            trailer: Trailer::default(),
            tasks,
            recorded: Recorded::default(),
            seq: 0,
            last_ts: 0,
            cpu_ts: Vec::new(),
            lost: 0,
            count: Lost::default(),
            counts_lost: false,
            nameless: false,
            some_cpus: false,
            torn: false,
            skipped: 0,
            any_switch: false,
            initial: Vec::new(),
            parents: HashMap::new(),
            before: false,
            copies: None,
            beside: None,
            repeated: 0,
            stage: Stage::default(),
        }
    }

    /// Takes what depends on the recorded events, once these are known.
    pub fn settle(&mut self, attrs: &Attrs, out: &mut Out) {
        self.trailer = attrs.all.first().map(|a| a.layout.trailer).unwrap_or_default();
        self.nameless = self.decoder.is_empty() && attrs.all.iter().any(|a| a.kind == TRACEPOINT);
        self.copies = Copies::new(attrs);
        self.counts_lost = attrs.all.iter().any(super::attr::Attr::counts_lost);
        let mut names = Vec::new();
        for attr in attrs.all.iter().filter(|a| a.kind == TRACEPOINT) {
            let number = attr.config as u32;
            match self.decoder.kind(number) {
                Some(Kind::Switch) => self.recorded.switch = true,
                Some(Kind::Fork) => self.recorded.fork = true,
                Some(Kind::Exit) => self.recorded.exit = true,
                Some(Kind::Exec) => self.recorded.exec = true,
                _ => {}
            }
            names.extend(self.decoder.name(number).map(str::to_owned));
            self.before = self.seq == 0 && !attr.enable_on_exec();
        }
        if attrs.all.iter().any(super::attr::Attr::context_switch) {
            self.beside = self.recorded.switch.then(HashMap::new);
            names.push("context-switch".to_owned());
        }
        names.sort_unstable();
        names.dedup();
        let quoted: Vec<_> = names.iter().map(|n| format!("\"{}\"", n.replace(['"', '\\'], "?"))).collect();
        out.meta.set("events.recorded", format!("[{}]", quoted.join(", ")));
        if let Some(release) = out.meta.get("kernel").map(str::to_owned) {
            self.decoder.of_kernel(&release, out);
        }
        if !self.decoder.states.letters.is_empty() {
            out.meta.set("state.table", self.decoder.states.json());
        }
    }

    /// The time in a record's trailer.
    pub fn trailing_time(&self, record: &[u8]) -> Option<u64> {
        self.trailing(record, self.trailer.time, 8)
    }

    fn trailing(&self, record: &[u8], from_end: usize, size: usize) -> Option<u64> {
        let at = record.len().checked_sub(from_end).filter(|_| from_end != 0)?;
        uint(record, at, size, self.be)
    }

    fn trailing_cpu(&self, record: &[u8]) -> Option<i32> {
        self.trailing(record, self.trailer.cpu, 4).and_then(|c| i32::try_from(c).ok())
    }

    /// Notes that `cpu` is at `ts` and says whether time stepped back.
    #[inline]
    fn step(&mut self, ts: i64, cpu: Option<i32>) -> u16 {
        if let Some(slot) = cpu.and_then(|c| usize::try_from(c).ok()).filter(|c| *c < 1 << 16) {
            if self.cpu_ts.len() <= slot {
                self.cpu_ts.resize(slot + 1, i64::MIN);
            }
            self.cpu_ts[slot] = ts;
        }
        let late = ts < self.last_ts;
        self.last_ts = ts;
        if late {
            quality::OUT_OF_ORDER
        } else {
            0
        }
    }

    /// Adds a sample; `BE` as the records are.
    #[inline(always)]
    pub fn sample<const BE: bool>(
        &mut self,
        attrs: &Attrs,
        ts: i64,
        record: &[u8],
        offset: impl Fn() -> u64,
        out: &mut Out,
    ) {
        debug_assert_eq!(BE, self.be);
        if self.copies.as_mut().is_some_and(|copies| copies.is_copy(attrs, record, BE, ts, out)) {
            return;
        }
        let plain = attrs.plain().and_then(|plain| plain.read(record, BE));
        // Tracepoints state their byte order themselves, in a forged file another one.
        let usual = ts >= self.last_ts && self.beside.is_none() && self.decoder.be() == BE;
        if let Some(sample) = plain.filter(|sample| usual && sample.pid >= 0 && sample.tid >= 0) {
            if self.stage::<BE>(ts, sample, out) {
                return;
            }
        }
        self.any_sample::<BE>(attrs, ts, record, offset(), out);
    }

    /// Adds the row of a usual record that is no older than the one before; false when it is of another kind.
    #[inline(always)]
    fn stage<const BE: bool>(&mut self, ts: i64, sample: Sample<'_>, out: &mut Out) -> bool {
        self.before = false;
        if !self.initial.is_empty() {
            self.begin(ts, out);
        }
        let (pid, tid) = (i64::from(sample.pid), i64::from(sample.tid));
        self.step(ts, Some(sample.cpu));
        if self.tasks.get(tid).pid() != Some(pid) {
            self.tasks.entry(tid).set_pid(Some(pid));
        }
        self.stage_raw::<BE>(ts, Some(sample.cpu), sample.raw, out)
    }

    /// Adds the row of a record, when it is of the usual kind.
    #[inline(always)]
    fn stage_raw<const BE: bool>(&mut self, ts: i64, cpu: Option<i32>, raw: &[u8], out: &mut Out) -> bool {
        if self.stage.is_full() {
            self.flush(out);
        }
        let mut stamp = Stamp { ts_ns: ts, cpu, ..Stamp::default() };
        let taken = self.decoder.stage::<true>(BE, raw, &mut stamp, &self.tasks, &mut self.stage, &mut out.strings);
        self.seq += u64::from(taken);
        taken
    }

    /// Adds any sample.
    #[inline(never)]
    fn any_sample<const BE: bool>(&mut self, attrs: &Attrs, ts: i64, record: &[u8], offset: u64, out: &mut Out) {
        let be = BE;
        let Some(attr) = attrs.of_sample(record, be) else { return };
        let layout = &attr.layout;
        if attr.kind != TRACEPOINT {
            self.skipped += 1;
            return;
        }
        self.before = false;
        if !self.initial.is_empty() {
            self.begin(ts, out);
        }
        let cpu = layout.cpu.and_then(|at| uint(record, at, 4, be)).map(|c| c as u32 as i32);
        let number = |at: usize| uint(record, at, 4, be).map(|v| i64::from(v as u32 as i32));
        let (pid, tid) = layout.tid.map_or((None, None), |at| (number(at), number(at + 4)));
        let raw = layout.raw(record, be);
        let mut marks = self.step(ts, cpu);
        if let (Some(tid), Some(pid)) = (tid.filter(|t| *t >= 0), pid.filter(|p| *p >= 0)) {
            self.tasks.entry(tid).set_pid(Some(pid));
        }
        let usual = marks == 0 && self.beside.is_none() && self.decoder.be() == be;
        if raw.is_some_and(|raw| usual && self.stage_raw::<BE>(ts, cpu, raw, out)) {
            return;
        }
        self.flush(out);
        let mut row = out.events.push();
        row.ts_ns(ts).cpu(cpu).seq(self.seq);
        self.seq += 1;
        let decoded = match raw {
            Some(raw) => self.decoder.decode(raw, &mut row, &mut out.strings),
            None => {
                row.kind(Kind::Other);
                Decoded { partial: true, ctx_tid: tid.filter(|t| *t >= 0), ..Decoded::default() }
            }
        };
        if let Some(ctx) = decoded.ctx_tid {
            let task = self.tasks.get(ctx);
            row.ctx_pid(task.pid()).ctx_comm(task.comm());
        }
        if let Some(tid) = decoded.tid {
            row.pid(self.tasks.get(tid).pid());
        }
        if let Some(tid) = decoded.next_tid {
            row.next_pid(self.tasks.get(tid).pid());
        }
        if let (Some(beside), Kind::Switch) = (&mut self.beside, decoded.kind) {
            beside.insert(cpu, Beside { left: decoded.tid, came: decoded.next_tid });
        }
        if decoded.partial || decoded.unknown {
            marks |= quality::PARSE_PARTIAL;
        }
        row.quality(marks);
        if marks != 0 {
            complain(marks, decoded, ts, cpu, offset, out);
        }
    }

    /// Is `record` the wakeup that the sample before it was, delivered to another event as well?
    /// Both have the same time.
    #[cold]
    pub fn is_copy(&self, attrs: &Attrs, before: &[u8], record: &[u8], ts: i64, out: &mut Out) -> bool {
        let stated = |record: &[u8]| {
            let layout = attrs.of_sample(record, self.be)?.layout;
            let cpu = layout.cpu.and_then(|at| uint(record, at, 4, self.be))?;
            Some((cpu, layout.raw(record, self.be)?.to_vec()))
        };
        let Some((cpu, raw)) = stated(record) else { return false };
        let kind = self.decoder.number(&raw).and_then(|n| self.decoder.kind(n));
        let wakes =
            matches!(kind, Some(Kind::Waking | Kind::Wakeup | Kind::WakeupNew | Kind::StatWait | Kind::StatSleep));
        let same = wakes && stated(before) == Some((cpu, raw));
        if same {
            out.diagnostics.push_with(Code::Duplicate, || {
                let message = "a wakeup was delivered to the waker's event and to the woken task's; one is left out";
                Diagnostic::new(Code::Duplicate, message).on_cpu(cpu as u32 as i32).at_ts(ts)
            });
        }
        same
    }

    /// Adds a record of another kind.
    pub fn other(&mut self, attrs: &Attrs, (kind, misc): (u32, u16), ts: i64, record: &[u8], out: &mut Out) {
        let word = |at: usize| uint(record, at, 4, self.be).map(|v| i64::from(v as u32 as i32)).filter(|v| *v >= 0);
        match kind {
            kind::COMM => {
                let (Some(pid), Some(tid)) = (word(8), word(12)) else { return };
                self.comm(misc, ts, pid, tid, record, out);
            }
            kind::MMAP | kind::MMAP2 => {
                if let (Some(pid), Some(tid)) = (word(8), word(12)) {
                    self.tasks.entry(tid).set_pid(Some(pid));
                }
            }
            kind::FORK => {
                let (pid, ppid, tid, ptid) = (word(8), word(12), word(16), word(20));
                let (Some(tid), Some(ptid)) = (tid, ptid) else { return };
                let parent = self.tasks.get(ptid);
                let task = self.tasks.entry(tid);
                task.set_pid(pid);
                task.set_comm(parent.comm());
                if ts == 0 || self.before {
                    // Of a thread, its process; 0 is the parent of the first tasks.
                    self.parents.extend(ppid.filter(|p| *p > 0).map(|p| (tid, p)));
                }
                if !self.recorded.fork && ts != 0 && !self.before {
                    self.row(Kind::Fork, ts, record, out)
                        .tid(tid)
                        .pid(pid)
                        .comm(parent.comm())
                        .ctx_tid(ptid)
                        .ctx_pid(ppid)
                        .ctx_comm(parent.comm());
                }
            }
            kind::EXIT => {
                let (pid, Some(tid)) = (word(8), word(16)) else { return };
                if !self.recorded.exit && ts != 0 && !self.before {
                    let comm = self.tasks.get(tid).comm();
                    self.row(Kind::Exit, ts, record, out)
                        .tid(tid)
                        .pid(pid)
                        .comm(comm)
                        .ctx_tid(tid)
                        .ctx_pid(pid)
                        .ctx_comm(comm);
                }
            }
            kind::SWITCH | kind::SWITCH_CPU_WIDE if self.is_repeated(misc, record) => self.repeated += 1,
            kind::SWITCH | kind::SWITCH_CPU_WIDE => self.switch(kind, misc, ts, record, out),
            kind::LOST => {
                let lost = uint(record, 16, 8, self.be).and_then(|n| i64::try_from(n).ok());
                let place = uint(record, 8, 8, self.be).and_then(|id| attrs.place(id));
                let cpu = self.trailing_cpu(record);
                self.count.state(place, cpu, lost.unwrap_or(0).unsigned_abs());
                self.losses(lost, ts, cpu, out);
            }
            kind::LOST_SAMPLES => {
                let lost = uint(record, 8, 8, self.be).and_then(|n| i64::try_from(n).ok());
                let count = lost.unwrap_or(0).unsigned_abs();
                if misc & BY_FILTER != 0 {
                    self.count.filtered = self.count.filtered.saturating_add(count);
                } else if ts == 0 && self.counts_lost {
                    let id = self.trailing(record, self.trailer.id, 8);
                    self.count.read(id.and_then(|id| attrs.place(id)), count);
                } else {
                    self.losses(lost, ts, self.trailing_cpu(record), out);
                }
            }
            _ => {}
        }
    }

    /// Moves rows that wait into the table.
    #[inline]
    pub fn flush(&mut self, out: &mut Out) {
        self.stage.flush(&mut out.events, self.seq);
    }

    /// Number of rows that wait.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.stage.len()
    }

    /// The names known at the start, as rows of time `ts`: that of the first record of the recording.
    #[cold]
    fn begin(&mut self, ts: i64, out: &mut Out) {
        for (pid, tid, name) in std::mem::take(&mut self.initial) {
            let mut row = out.events.push();
            row.ts_ns(ts).seq(self.seq).kind(Kind::Comm).tid(tid).pid(pid).comm(name).quality(quality::SYNTHESIZED);
            row.value(self.parents.get(&tid).copied());
            self.seq += 1;
        }
    }

    /// A row with what all of perf's own records say; its kind is set.
    fn row<'o>(&mut self, kind: Kind, ts: i64, record: &[u8], out: &'o mut Out) -> EventRow<'o> {
        self.row_on(kind, ts, self.trailing_cpu(record), out)
    }

    fn row_on<'o>(&mut self, kind: Kind, ts: i64, cpu: Option<i32>, out: &'o mut Out) -> EventRow<'o> {
        let marks = self.step(ts, cpu);
        self.flush(out);
        if !self.initial.is_empty() {
            self.begin(ts, out);
        }
        let mut row = out.events.push();
        row.ts_ns(ts).cpu(cpu).seq(self.seq).kind(kind).quality(marks);
        self.seq += 1;
        row
    }

    fn comm(&mut self, misc: u16, ts: i64, pid: i64, tid: i64, record: &[u8], out: &mut Out) {
        let text = until_nul(record.get(16..).unwrap_or(&[]));
        let name = (!text.is_empty()).then(|| out.strings.intern(text));
        let task = self.tasks.entry(tid);
        task.set_pid(Some(pid));
        task.set_comm(name);
        if ts == 0 || self.before {
            self.flush(out);
            self.initial.push((pid, tid, name));
            return;
        }
        let kind = if misc & COMM_EXEC != 0 && !self.recorded.exec { Kind::Exec } else { Kind::Comm };
        self.row(kind, ts, record, out).tid(tid).pid(pid).comm(name).ctx_tid(tid).ctx_pid(pid).ctx_comm(name);
    }

    /// True for a switch record whose side the last sample of its CPU has stated already. A
    /// recording of one task has samples where the task leaves and none where it comes back.
    fn is_repeated(&mut self, misc: u16, record: &[u8]) -> bool {
        let cpu = self.trailing_cpu(record);
        let tid = self.trailing(record, self.trailer.tid.saturating_sub(4), 4).map(|v| i64::from(v as u32 as i32));
        let Some(beside) = &mut self.beside else { return false };
        let stated = beside.entry(cpu).or_default();
        let side = if misc & SWITCH_OUT != 0 { &mut stated.left } else { &mut stated.came };
        let repeated = tid.is_some() && *side == tid;
        *side = None;
        repeated
    }

    /// A context switch as perf records it: each side on its own, or (CPU-wide) with the other side's number.
    fn switch(&mut self, kind: u32, misc: u16, ts: i64, record: &[u8], out: &mut Out) {
        self.any_switch = true;
        let number = |at: usize| uint(record, at, 4, self.be).map(|v| i64::from(v as u32 as i32)).filter(|v| *v >= 0);
        let from_end = record.len().checked_sub(self.trailer.tid).filter(|_| self.trailer.tid != 0);
        let (pid, tid) = from_end.map_or((None, None), |at| (number(at), number(at + 4)));
        let wide = kind == kind::SWITCH_CPU_WIDE;
        let (other_pid, other) = if wide { (number(8), number(12)) } else { (None, None) };
        let of = |tasks: &Tasks, tid: Option<i64>| tid.map(|t| tasks.get(t)).unwrap_or_default();
        let (task, peer) = (of(&self.tasks, tid), of(&self.tasks, other));
        if misc & SWITCH_OUT != 0 {
            let state = if misc & SWITCH_PREEMPT != 0 { State::Preempted } else { State::UnknownOff };
            let mut row = self.row(Kind::Switch, ts, record, out);
            row.ctx_tid(tid).ctx_pid(pid).ctx_comm(task.comm()).tid(tid).pid(pid).comm(task.comm()).state(state);
            row.next_tid(other).next_pid(other_pid).next_comm(peer.comm());
        } else if wide {
            // The other side's record said it all.
            self.row(Kind::Resume, ts, record, out)
                .ctx_tid(tid)
                .ctx_pid(pid)
                .ctx_comm(task.comm())
                .tid(tid)
                .pid(pid)
                .comm(task.comm());
        } else {
            let mut row = self.row(Kind::Switch, ts, record, out);
            row.ctx_tid(tid).ctx_pid(pid).ctx_comm(task.comm()).next_tid(tid).next_pid(pid).next_comm(task.comm());
        }
    }

    fn losses(&mut self, lost: Option<i64>, ts: i64, cpu: Option<i32>, out: &mut Out) {
        let slot = cpu.and_then(|c| usize::try_from(c).ok());
        let from = match slot {
            Some(slot) => self.cpu_ts.get(slot).copied().filter(|t| *t != i64::MIN),
            None => Some(self.last_ts).filter(|t| *t != 0),
        };
        let ts = if ts == 0 { self.last_ts } else { ts };
        self.lost = self.lost.saturating_add(lost.unwrap_or(0).unsigned_abs());
        self.row_on(Kind::Lost, ts, cpu, out).value(lost);
        let cause = out.strings.intern(b"ring_full");
        out.losses.push().cpu(cpu).ts_from_ns(from).ts_to_ns(ts).count(lost).cause(cause);
        out.diagnostics.push_with(Code::LostEvents, || {
            let message = format!("{} records found no room in perf's buffer", lost.unwrap_or(0));
            let advice = "record with larger buffers (perf record -m)";
            Diagnostic { cpu, ..Diagnostic::new(Code::LostEvents, message).at_ts(ts).advise(advice) }
        });
    }

    /// What was lost behind the last record of a buffer, which only perf's counts at the end tell.
    fn lost_behind(&mut self, out: &mut Out) {
        for behind in self.count.behind() {
            self.losses(i64::try_from(behind.count).ok(), self.last_ts, behind.cpu, out);
        }
        let repeated = self.count.repeated();
        if repeated > 0 {
            let message = format!("{repeated} records at the end count again what was lost; they are not added");
            out.diag(Diagnostic::new(Code::Duplicate, message));
        }
        if self.count.filtered > 0 {
            let message = format!("a filter of the recording left {} samples out", self.count.filtered);
            out.diag(Diagnostic::new(Code::MissingEvents, message).advise("record without --filter"));
        }
    }

    /// What can only be said at the end.
    pub fn finish(&mut self, out: &mut Out) {
        self.begin(self.last_ts, out);
        self.lost_behind(out);
        if self.some_cpus {
            let seen = self.cpu_ts.iter().enumerate().filter(|(_, ts)| **ts != i64::MIN);
            let cpus: Vec<i32> = seen.map(|(cpu, _)| cpu as i32).collect();
            out.meta.set("cpus.recorded", super::extent::printed(&cpus));
        }
        out.meta.set("loss.known", (!self.torn).to_string());
        if self.torn {
            let cause = out.strings.intern(b"chunk");
            out.losses.push().ts_from_ns(Some(self.last_ts).filter(|t| *t != 0)).cause(cause);
        } else {
            out.meta.set("loss.total", self.lost.to_string());
        }
        out.meta.set("parse.lines", self.seq.to_string());
        if self.skipped > 0 {
            let message = format!("{} samples are not of tracepoints and were left out", self.skipped);
            out.diag(Diagnostic { count: self.skipped, ..Diagnostic::new(Code::Unsupported, message) });
        }
        if self.repeated > 0 {
            let n = self.repeated;
            let message = format!("{n} switch records repeat what sched_switch states; they are left out");
            out.diag(Diagnostic { count: n, ..Diagnostic::new(Code::Duplicate, message) });
        }
        if self.nameless && self.decoder.is_empty() {
            let message = "the formats of the tracepoints stood behind the records, and the file ends before \
                them: nobody can say which record is what; whether context switches are among them is not known";
            let advice = "get the whole file; the numbers of tracepoints differ from kernel to kernel";
            out.diag(Diagnostic::new(Code::MissingEvents, message).advise(advice));
        } else if !self.any_switch && self.decoder.seen(Kind::Switch) == 0 {
            let (message, advice) = if self.decoder.knows(Kind::Switch) {
                let advice = "unless records are damaged or lost, nothing began or ended to run: \
                    record all CPUs and tasks (`perf sched record`), or for longer";
                ("sched_switch was recorded, and no record of it came", advice)
            } else {
                ("context switches were not recorded", "record with `perf sched record`")
            };
            out.diag(Diagnostic::new(Code::MissingEvents, message).advise(advice));
        }
    }
}

#[cold]
fn complain(marks: u16, decoded: Decoded, ts: i64, cpu: Option<i32>, offset: u64, out: &mut Out) {
    let mut say = |code: Code, message: &str| {
        out.diagnostics
            .push_with(code, || Diagnostic { cpu, ..Diagnostic::new(code, message).at_ts(ts).at_offset(offset) });
    };
    if decoded.unknown {
        say(Code::UnknownEvent, "a tracepoint's number has no format in the file");
    } else if decoded.partial {
        say(Code::PartlyParsed, "a tracepoint record is shorter than its format says");
    }
    if marks & quality::OUT_OF_ORDER != 0 {
        say(Code::TimeBackwards, "a record is older than one whose place was final");
    }
}
