//! Second stage: lines in order of time become rows.

use std::collections::{BTreeSet, HashMap};

use super::{Os, TABS};
use crate::text::dtrace_messages::{self, Message};
use crate::text::reorder::Sorted;
use crate::text::scan;
use tracekit_schema::events::{quality, EventRow};
use tracekit_schema::{Code, Diagnostic, Kind, Out, State, StrId};

/// First number for kernel threads of illumos.
const KERNEL_THREADS: i64 = 1_000_000_000_000;
/// What a thread of illumos sleeps on.
const SOBJ: [&str; 8] = ["none", "mutex", "rwlock", "cv", "sema", "user", "user-pi", "shuttle"];

/// A thread as one half of a line names it.
#[derive(Clone, Copy)]
struct Who {
    tid: Option<i64>,
    pid: Option<i64>,
    prio: Option<i32>,
    comm: Option<StrId>,
}

/// The columns after time, CPU and event that are not about a thread.
#[derive(Clone, Copy)]
struct Rest<'a> {
    x: Option<i64>,
    y: Option<i64>,
    z: &'a [u8],
}

/// Makes rows.
pub(super) struct Rows {
    os: Os,
    by_address: bool,
    kernel_threads: HashMap<u64, i64>,
    idle: BTreeSet<i64>,
    /// Process of the last `lwc`.
    created: Option<i64>,
    seq: u64,
    /// The state as text, built anew for each switch.
    raw: Vec<u8>,
}

impl Rows {
    pub(super) fn new(os: Os, by_address: bool) -> Self {
        let (kernel_threads, idle) = (HashMap::new(), BTreeSet::new());
        Rows { os, by_address, kernel_threads, idle, created: None, seq: 0, raw: Vec::new() }
    }

    pub(super) fn add(&mut self, line: Sorted<'_>, out: &mut Out) {
        let mut quality = 0;
        if line.late {
            quality |= quality::OUT_OF_ORDER;
            out.diagnostics.push_with(Code::TimeBackwards, || {
                let message = "a record is older than others that came more than a heartbeat before it";
                Diagnostic::new(Code::TimeBackwards, message).at_line(line.number).at_ts(line.ts)
            });
        }
        let seq = self.seq;
        self.seq += 1;
        match line.bytes.first() {
            Some(b'T') => self.record(line, seq, quality, out),
            Some(b'#') => {
                let mut columns = line.bytes.split(|b| *b == b'\t');
                let (kind, wall) = match columns.next() {
                    Some(b"#TKD") => (Kind::TraceOn, columns.nth(3)),
                    Some(b"#TKE") => (Kind::TraceOff, columns.nth(1)),
                    _ => (Kind::ClockSync, columns.nth(1)),
                };
                out.events.push().ts_ns(line.ts).seq(seq).kind(kind).value(wall.and_then(scan::i64)).quality(quality);
            }
            _ => {
                if let Some(Message::Drops { count, cpu, .. }) = dtrace_messages::parse(line.bytes) {
                    out.events.push().ts_ns(line.ts).seq(seq).kind(Kind::Lost).cpu(cpu).value(count).quality(quality);
                }
            }
        }
    }

    fn record(&mut self, line: Sorted<'_>, seq: u64, quality: u16, out: &mut Out) {
        let mut columns = [&b""[..]; TABS + 1];
        for (to, column) in columns.iter_mut().zip(line.bytes.split(|b| *b == b'\t')) {
            *to = column;
        }
        let [_, _, cpu, event, cpid, ctid, caddr, cpri, spid, stid, saddr, spri, x, y, z, ccomm, scomm] = columns;
        let rest = Rest { x: scan::i64(x), y: scan::i64(y), z };
        let mut current = self.who([cpid, ctid, caddr, cpri, ccomm], out);
        let mut subject = self.who([spid, stid, saddr, spri, scomm], out);
        self.learn_idle(event, rest, &mut current, &mut subject);
        let names = Names::of(self.os, event, rest, &mut self.raw, out);
        let raw = names.kind.is_none().then(|| out.strings.keep(line.bytes));
        if names.kind.is_none() && names.name.is_none() {
            out.diagnostics.push_with(Code::UnknownEvent, || {
                let message = format!("event `{}` is not of version 1", scan::shown(event, 20));
                Diagnostic::new(Code::UnknownEvent, message).at_line(line.number)
            });
        }
        let repeated = event == b"new" && subject.pid.is_some() && self.created == subject.pid;
        if event == b"lwc" {
            self.created = subject.pid;
        }
        let name = names.name.unwrap_or_else(|| out.strings.intern(event));
        let mut row = out.events.push();
        row.ts_ns(line.ts).cpu(scan::i32(cpu)).seq(seq).quality(quality);
        row.ctx_tid(current.tid).ctx_pid(current.pid).ctx_comm(current.comm);
        match names.kind.filter(|_| !repeated) {
            Some(kind) => fill(row.kind(kind), kind, event, (current, subject), rest, names),
            None => {
                row.kind(Kind::Other).name(name).raw(raw);
                row.tid(subject.tid.or(current.tid))
                    .pid(subject.pid.or(current.pid))
                    .comm(subject.comm.or(current.comm));
            }
        }
    }

    fn who(&mut self, [pid, tid, addr, pri, comm]: [&[u8]; 5], out: &mut Out) -> Who {
        let (pid, tid, prio) = (scan::i64(pid), scan::i64(tid), scan::i32(pri));
        let tid = if self.by_address {
            self.by_address(pid, tid, scan::hex(addr), prio)
        } else {
            let idle = match self.os {
                Os::FreeBsd => matches!(pid, Some(10 | 11)) && is_idle_name(comm),
                _ => pid == Some(0) && prio == Some(0),
            };
            tid.map(|t| if idle || self.idle.contains(&t) { 0 } else { t })
        };
        Who { tid, pid, prio, comm: (comm != b"-" && !comm.is_empty()).then(|| out.strings.intern(comm)) }
    }

    /// A number for a thread of a system that numbers threads per process.
    fn by_address(&mut self, pid: Option<i64>, lwp: Option<i64>, addr: Option<u64>, prio: Option<i32>) -> Option<i64> {
        match (pid, lwp, addr) {
            _ if prio == Some(-1) => Some(0),
            (Some(pid @ 1..), Some(1), _) => Some(pid),
            (Some(pid @ 1..=999_999), Some(lwp @ 2..=999_999), _) => Some(pid * 1_000_000 + lwp),
            (Some(pid @ 1..), None, None) => Some(pid),
            (_, _, Some(addr)) => {
                let next = KERNEL_THREADS + self.kernel_threads.len() as i64 + 1;
                Some(*self.kernel_threads.entry(addr).or_insert(next))
            }
            _ => None,
        }
    }

    /// FreeBSD and macOS report idle threads in `x` of `on` and `off`.
    fn learn_idle(&mut self, event: &[u8], rest: Rest<'_>, current: &mut Who, subject: &mut Who) {
        if self.by_address {
            return;
        }
        let flags = rest.x.unwrap_or(0);
        let (leaves, enters) = match event {
            b"on" => (flags & 1 != 0, false),
            b"off" => (flags & 1 != 0, flags & 2 != 0),
            _ => return,
        };
        for (who, idle) in [(current, leaves), (subject, enters)] {
            if let (true, Some(tid)) = (idle, who.tid) {
                self.idle.insert(tid);
                who.tid = Some(0);
            }
        }
    }

    pub(super) fn finish(&self, out: &mut Out) {
        if out.meta.get("events.recorded").is_none() {
            let message = "the script does not list its probes (#TKP): which events were recorded is not known";
            out.diag(Diagnostic::new(Code::MissingEvents, message));
        }
    }
}

/// The idle threads of FreeBSD's process `idle`.
fn is_idle_name(comm: &[u8]) -> bool {
    comm == b"idle" || comm.starts_with(b"idle: cpu")
}

/// What an event is called in the tables.
#[derive(Clone, Copy)]
struct Names {
    kind: Option<Kind>,
    name: Option<StrId>,
    class: Option<StrId>,
    reason: Option<StrId>,
    state: Option<State>,
    state_raw: Option<StrId>,
}

impl Names {
    fn of(os: Os, event: &[u8], rest: Rest<'_>, raw: &mut Vec<u8>, out: &mut Out) -> Names {
        let stated = |text: &[u8]| !text.is_empty() && text != b"-";
        let mut names =
            Names { kind: kind(event), name: None, class: None, reason: None, state: None, state_raw: None };
        let sobj = rest.x.and_then(|x| SOBJ.get(usize::try_from(x).ok()?)).filter(|s| **s != "none");
        match event {
            b"off" => {
                raw.clear();
                names.state = state(os, rest, raw);
                names.state_raw = stated(raw).then(|| out.strings.intern(raw));
                let reason = match os {
                    Os::Illumos => sobj.map_or(&b""[..], |s| s.as_bytes()),
                    _ => rest.z,
                };
                names.reason = stated(reason).then(|| out.strings.intern(reason));
            }
            b"slp" => names.reason = sobj.map(|s| out.strings.intern(s.as_bytes())),
            b"exe" => names.name = stated(rest.z).then(|| out.strings.intern(rest.z)),
            b"on" | b"enq" | b"deq" | b"wak" | b"tck" if stated(rest.z) => {
                names.class = Some(out.strings.intern(rest.z))
            }
            b"sur" => names.name = Some(out.strings.intern(b"surrender")),
            b"lws" => names.name = Some(out.strings.intern(b"lwp-start")),
            _ => {}
        }
        names
    }
}

/// The kind of an event; `None` for those that become `other`.
fn kind(event: &[u8]) -> Option<Kind> {
    Some(match event {
        b"on" => Kind::Resume,
        b"off" => Kind::Switch,
        b"enq" => Kind::Enqueue,
        b"deq" => Kind::Dequeue,
        b"wak" => Kind::Wakeup,
        b"slp" => Kind::Sleep,
        b"pre" => Kind::Preempt,
        b"rem" => Kind::Remain,
        b"pri" => Kind::Prio,
        b"lnd" => Kind::PiBoost,
        b"ld" => Kind::Load,
        b"tck" => Kind::Tick,
        b"new" | b"lwc" => Kind::Fork,
        b"exe" => Kind::Exec,
        b"xit" | b"lwx" => Kind::Exit,
        _ => return None,
    })
}

/// The columns that depend on the kind.
fn fill(row: &mut EventRow<'_>, kind: Kind, event: &[u8], who: (Who, Who), rest: Rest<'_>, names: Names) {
    let (current, subject) = who;
    let about = match kind {
        Kind::Switch | Kind::Resume | Kind::Sleep | Kind::Preempt | Kind::Remain | Kind::Exec | Kind::Exit => current,
        _ => subject,
    };
    let cpu = |n: Option<i64>| n.and_then(|n| i32::try_from(n).ok()).filter(|n| *n >= 0);
    row.class(names.class).reason(names.reason);
    if kind != Kind::Load {
        row.tid(about.tid).pid(about.pid).comm(about.comm).prio(about.prio);
    }
    match kind {
        Kind::Switch => {
            row.next_tid(subject.tid).next_pid(subject.pid).next_comm(subject.comm).next_prio(subject.prio);
            row.state(names.state).state_raw(names.state_raw);
        }
        Kind::Enqueue | Kind::Dequeue => {
            row.target_cpu(cpu(rest.x)).value(rest.y);
        }
        Kind::Load => {
            row.target_cpu(cpu(rest.x)).value(rest.y);
        }
        Kind::Prio | Kind::PiBoost => {
            row.value(rest.x);
        }
        Kind::Exit if event == b"xit" => {
            row.value(rest.x);
        }
        Kind::Exec => {
            row.name(names.name.or(current.comm));
        }
        _ => {}
    }
}

/// State of the leaving thread; `raw` receives how the source puts it.
fn state(os: Os, rest: Rest<'_>, raw: &mut Vec<u8>) -> Option<State> {
    match os {
        Os::Illumos => illumos_state(rest, raw),
        Os::FreeBsd => rest.y.map(|y| freebsd_state(y, raw)),
        Os::Darwin => rest.y.map(|y| macos_state(y, raw)),
    }
}

fn illumos_state(rest: Rest<'_>, raw: &mut Vec<u8>) -> Option<State> {
    raw.extend_from_slice(rest.z);
    Some(match rest.z {
        b"S" if matches!(rest.x, Some(1 | 2)) => State::WaitingLock,
        b"S" => State::Sleeping,
        b"R" | b"O" => State::Runnable,
        b"Z" => State::Zombie,
        b"T" => State::Stopped,
        b"W" => State::Capped,
        b"I" => State::UnknownOff,
        b"-" | b"" => return None,
        _ => State::Unknown,
    })
}

/// Names of the bits that are set, joined by `|`.
fn bit_names(bits: &[(i64, &str)], value: i64, raw: &mut Vec<u8>) {
    for (_, name) in bits.iter().filter(|(bit, _)| value & bit != 0) {
        if !raw.is_empty() {
            raw.push(b'|');
        }
        raw.extend_from_slice(name.as_bytes());
    }
}

/// `(td_state + 1) * 256 + td_inhibitors`; scripts that print only the inhibitors stay below 256.
fn freebsd_state(y: i64, raw: &mut Vec<u8>) -> State {
    const INHIBITORS: [(i64, &str); 5] =
        [(1, "suspended"), (2, "sleep"), (4, "swapped"), (8, "blocked"), (16, "iwait")];
    if y >> 8 == 1 {
        raw.extend_from_slice(b"inactive");
        return State::Dead;
    }
    bit_names(&INHIBITORS, y, raw);
    match y {
        _ if y & 2 != 0 => State::Sleeping,
        _ if y & 1 != 0 => State::Stopped,
        _ if y & 4 != 0 => State::Blocked,
        _ if y & 8 != 0 => State::WaitingLock,
        _ if y & 16 != 0 => State::Sleeping,
        _ => {
            raw.extend_from_slice(b"runnable");
            State::Runnable
        }
    }
}

/// Thread state bits of xnu; a thread that is about to block has both its wait and its run bit set.
fn macos_state(y: i64, raw: &mut Vec<u8>) -> State {
    const BITS: [(i64, &str); 7] = [
        (0x01, "wait"),
        (0x02, "suspended"),
        (0x04, "run"),
        (0x08, "uninterruptible"),
        (0x10, "terminate"),
        (0x20, "terminate2"),
        (0x80, "idle"),
    ];
    bit_names(&BITS, y, raw);
    match y {
        _ if y & 0x30 != 0 => State::Dead,
        _ if y & 0x09 == 0x09 => State::Blocked,
        _ if y & 0x01 != 0 => State::Sleeping,
        _ if y & 0x04 != 0 => State::Runnable,
        _ if y & 0x02 != 0 => State::Stopped,
        _ => State::Unknown,
    }
}
