//! What the hooks say: the payload of each is scanned for `key=value`, since its text comes from
//! templates that differ between releases.

use std::collections::{BTreeSet, HashMap};

use super::layout::Fields;
use crate::text::scan;
use tracekit_schema::events::{irq, quality, EventRow};
use tracekit_schema::table::Table;
use tracekit_schema::{Code, Diagnostic, Kind, Out, StrId};

/// A hook `hhh` has the number `hhh0`.
const TRACE_ON: u32 = 0x0010;
const TRACE_OFF: u32 = 0x0020;
const ZERO: u32 = 0x0040;
const LOG_WRAP: u32 = 0x0050;
const BUFFER_WRAP: u32 = 0x0060;
const FLIH: u32 = 0x1000;
const SVC: u32 = 0x1010;
const SLIH: u32 = 0x1020;
const SLIH_RETURN: u32 = 0x1030;
const SVC_RETURN: u32 = 0x1040;
const DISPATCH: u32 = 0x1060;
const IDLE: u32 = 0x10c0;
const SETRQ: u32 = 0x11f0;
const EXEC: u32 = 0x1340;
const EXIT: u32 = 0x1350;
const FORK: u32 = 0x1390;
const RESUME: u32 = 0x2000;
const CPU_PREEMPT: u32 = 0x4190;
const ASSERT_WAIT: u32 = 0x4600;
const CLEAR_WAIT: u32 = 0x4610;
const BLOCK: u32 = 0x4620;
const SLEEP: u32 = 0x4630;
const WAKEUP_ONE: u32 = 0x4640;
const THREAD_CREATE: u32 = 0x4650;
const THREAD_START: u32 = 0x4660;
const THREAD_END: u32 = 0x4670;
const SET_SCHED: u32 = 0x46b0;
const WAIT_LOCK: u32 = 0x46d0;
const WAKE_LOCK: u32 = 0x46e0;
const HCALL: u32 = 0x4920;
const UNDISPATCH: u32 = 0x4b00;

/// The hook of a payload in a report without hook numbers (`ids=off`).
fn guess(payload: &[u8]) -> Option<u32> {
    const PREFIXES: [(&[u8], u32); 24] = [
        (b"dispatch: idle", IDLE),
        (b"dispatch:", DISPATCH),
        (b"undispatch:", UNDISPATCH),
        (b"resume ", RESUME),
        (b"setrq:", SETRQ),
        (b"exec:", EXEC),
        (b"exit:", EXIT),
        (b"fork:", FORK),
        (b"thread_create:", THREAD_CREATE),
        (b"thread_terminate", THREAD_END),
        (b"e_assert_wait:", ASSERT_WAIT),
        (b"e_clear_wait:", CLEAR_WAIT),
        (b"e_block_thread:", BLOCK),
        (b"e_mpsleep:", SLEEP),
        (b"e_wakeup_one:", WAKEUP_ONE),
        (b"slih cpuid=", SLIH),
        (b"return from slih", SLIH_RETURN),
        (b"return from ", SVC_RETURN),
        (b"TRACE ON", TRACE_ON),
        (b"TRACE OFF", TRACE_OFF),
        (b"TRACEID IS ZERO", ZERO),
        (b"LOGFILE WRAPAROUND", LOG_WRAP),
        (b"TRACEBUFFER WRAPAROUND", BUFFER_WRAP),
        (b"hcall", HCALL),
    ];
    if let Some((_, hook)) = PREFIXES.iter().find(|(prefix, _)| payload.starts_with(prefix)) {
        return Some(*hook);
    }
    if memchr::memmem::find(payload, b" INTERRUPT iar=").is_some() {
        return Some(FLIH);
    }
    memchr::memmem::find(payload, b" LR = ").map(|_| SVC)
}

/// The value of the last `key` that starts a word: a command may hold words that look like keys before it.
fn keyed<'t>(text: &'t [u8], key: &[u8]) -> Option<&'t [u8]> {
    let mut to = text.len();
    while let Some(at) = memchr::memmem::rfind(&text[..to], key) {
        if at == 0 || scan::is_blank(text[at - 1]) {
            return Some(scan::word(&text[at + key.len()..]).0).filter(|w| !w.is_empty());
        }
        to = at + key.len() - 1;
    }
    None
}

/// The number that a value begins with: durations in brackets may follow without a blank.
fn number(text: &[u8], key: &[u8]) -> Option<i64> {
    let value = keyed(text, key)?;
    let digits = value.iter().skip(usize::from(value[0] == b'-')).take_while(|b| b.is_ascii_digit()).count();
    scan::i64(&value[..digits + usize::from(value[0] == b'-')])
}

/// Two hexadecimal digits after `cpuid=`; a name may follow without a blank.
fn cpuid(text: &[u8]) -> Option<i32> {
    let at = memchr::memmem::find(text, b"cpuid=")? + 6;
    let two = text.get(at..).unwrap_or(b"");
    let n = two.iter().take(2).take_while(|b| b.is_ascii_hexdigit()).count();
    scan::hex(&two[..n]).and_then(|n| i32::try_from(n).ok())
}

/// The command: from `cmd=` to the last ` pid=`, since its arguments hold blanks.
fn command(text: &[u8]) -> Option<&[u8]> {
    let from = memchr::memmem::find(text, b"cmd=")? + 4;
    let to = memchr::memmem::rfind(text, b" pid=").filter(|to| *to >= from).unwrap_or(text.len());
    Some(scan::trim(&text[from..to])).filter(|c| !c.is_empty())
}

/// The name that a process gets from a command line.
fn base_name(command: &[u8]) -> &[u8] {
    let program = scan::word(command).0;
    memchr::memrchr(b'/', program).map_or(program, |at| &program[at + 1..])
}

/// A subject: thread, process, priority, as far as the payload has them.
#[derive(Clone, Copy, Default)]
struct Subject {
    tid: Option<i64>,
    pid: Option<i64>,
    prio: Option<i32>,
}

impl Subject {
    fn of(text: &[u8]) -> Subject {
        let prio = number(text, b"priority=").and_then(|p| i32::try_from(p).ok());
        Subject { tid: number(text, b"tid="), pid: number(text, b"pid="), prio }
    }
}

/// Makes rows of records.
#[derive(Default)]
pub(super) struct Rows {
    seq: u64,
    last_ts: Option<i64>,
    /// Since when tracing is off.
    off_since: Option<i64>,
    /// CPU on which a thread was dispatched last, for reports without a CPU column.
    ran_on: HashMap<i64, i32>,
    /// Threads of wait kprocs.
    waits: BTreeSet<i64>,
    guessed_wait: bool,
    pub has_cpu: bool,
    pub dispatches: u64,
    pub queued: u64,
    pub lost: i64,
    pub lost_unknown: bool,
}

impl Rows {
    /// Adds the row of a record.
    pub fn add(&mut self, f: &Fields<'_>, line: u64, out: &mut Out) {
        let hook = f.id.or_else(|| guess(f.payload)).unwrap_or(0);
        let mut quality = 0;
        if self.last_ts.is_some_and(|last| f.ts < last) {
            quality |= quality::OUT_OF_ORDER;
            out.diagnostics.push_with(Code::TimeBackwards, || {
                Diagnostic::new(Code::TimeBackwards, "the time is before that of the record above")
                    .at_line(line)
                    .at_ts(f.ts)
            });
        }
        let before = self.last_ts;
        self.last_ts = Some(before.map_or(f.ts, |last| last.max(f.ts)));
        let cpu = self.cpu(f, hook, &mut quality);
        let comm = f.name.map(|name| out.strings.intern(name));
        if let (Some(b"wait"), Some(tid)) = (f.name, f.tid) {
            self.waits.insert(tid);
        }
        let seq = self.seq;
        self.seq += 1;
        out.events.push().ts_ns(f.ts).seq(seq).cpu(cpu).quality(quality).ctx_tid(f.tid).ctx_pid(f.pid).ctx_comm(comm);
        if let (true, Some(mut row)) = (f.interrupt, out.events.last()) {
            row.irq_flags(irq::HARDIRQ);
        }
        let understood = match hook {
            DISPATCH | IDLE => self.dispatch(f, hook, out),
            TRACE_ON | TRACE_OFF | ZERO | LOG_WRAP | BUFFER_WRAP => self.control(f, hook, before, line, out),
            FLIH | SVC | SLIH | SLIH_RETURN | SVC_RETURN => interrupt_or_call(f, hook, out),
            SETRQ => self.queue(f, out),
            EXEC | EXIT | FORK | THREAD_CREATE | THREAD_START | THREAD_END => lifecycle(f, hook, out),
            ASSERT_WAIT | BLOCK | SLEEP | WAIT_LOCK | CLEAR_WAIT | WAKEUP_ONE | WAKE_LOCK => wait(f, hook, out),
            RESUME | CPU_PREEMPT | HCALL | SET_SCHED => thread(f, hook, out),
            _ => None,
        };
        match understood {
            Some(true) => {}
            Some(false) => partial(f, line, out),
            None => other(f, out),
        }
    }

    /// The CPU column; else what the payload says; else where the thread was dispatched last.
    fn cpu(&self, f: &Fields<'_>, hook: u32, quality: &mut u16) -> Option<i32> {
        if f.cpu.is_some() {
            return f.cpu;
        }
        let stated = match hook {
            DISPATCH | IDLE => number(f.payload, b"CPUID=").and_then(|n| i32::try_from(n).ok()),
            FLIH | SLIH | RESUME => cpuid(f.payload),
            _ => None,
        };
        if stated.is_some() || self.has_cpu {
            return stated;
        }
        let cpu = f.tid.and_then(|tid| self.ran_on.get(&tid).copied());
        if cpu.is_some() {
            *quality |= quality::CPU_INFERRED;
        }
        cpu
    }

    /// 106 and 10C: a thread enters the CPU, another leaves. A thread that is dispatched anew stays.
    fn dispatch(&mut self, f: &Fields<'_>, hook: u32, out: &mut Out) -> Option<bool> {
        let text = f.payload;
        let rest = scan::skip_blanks(text.strip_prefix(b"dispatch:").unwrap_or(text));
        if rest.starts_with(b"scheduler") {
            return None;
        }
        let idle = hook == IDLE || rest.starts_with(b"idle") || scan::word(rest).0 == b"wait";
        let next = Subject::of(text);
        let (old, old_prio) = (number(text, b"old_tid="), number(text, b"old_priority="));
        let Some(tid) = next.tid else { return Some(false) };
        self.dispatches += 1;
        let name = if idle { Some(&b"wait"[..]) } else { command(text) };
        let comm = name.map(|name| out.strings.intern(name));
        if name == Some(b"wait") {
            self.waits.insert(tid);
        }
        let old_comm = old.filter(|old| self.is_wait(*old, old_prio, out)).map(|_| out.strings.intern(b"wait"));
        let Some(mut row) = out.events.last() else { return Some(true) };
        if old == Some(tid) {
            row.kind(Kind::Remain).tid(tid).pid(next.pid).comm(comm).prio(next.prio);
            return Some(true);
        }
        row.kind(Kind::Switch).tid(old).comm(old_comm).prio(old_prio.and_then(|p| i32::try_from(p).ok()));
        row.next_tid(tid).next_pid(next.pid).next_comm(comm).next_prio(next.prio);
        let cpu = f.cpu.or_else(|| number(text, b"CPUID=").and_then(|n| i32::try_from(n).ok()));
        if let (false, Some(cpu)) = (self.has_cpu, cpu) {
            self.ran_on.insert(tid, cpu);
        }
        Some(true)
    }

    /// Wait kprocs are known by name; one that was not named yet by the lowest priority there is.
    fn is_wait(&mut self, tid: i64, prio: Option<i64>, out: &mut Out) -> bool {
        if self.waits.contains(&tid) {
            return true;
        }
        let lowest = prio == Some(255);
        if lowest {
            self.waits.insert(tid);
            if !std::mem::replace(&mut self.guessed_wait, true) {
                let message =
                    format!("thread {tid} leaves at priority 255: it is taken for a wait kproc, that is, for idle");
                out.diag(Diagnostic::new(Code::Inferred, message));
            }
        }
        lowest
    }

    /// 11F: a thread is put on a run queue.
    fn queue(&mut self, f: &Fields<'_>, out: &mut Out) -> Option<bool> {
        let subject = Subject::of(f.payload);
        if subject.tid.is_none() {
            return Some(false);
        }
        self.queued += 1;
        let comm = command(f.payload).map(|name| out.strings.intern(name));
        let class = policy(f.payload, out);
        let queue = keyed(f.payload, b"rq=").and_then(scan::hex).and_then(|n| i64::try_from(n).ok());
        let mut row = out.events.last()?;
        about(row.kind(Kind::Enqueue), subject).comm(comm).class(class).value(queue);
        Some(true)
    }

    /// Records about the trace itself.
    fn control(&mut self, f: &Fields<'_>, hook: u32, before: Option<i64>, line: u64, out: &mut Out) -> Option<bool> {
        let mut row = out.events.last()?;
        let channel = keyed(f.payload, b"channel").and_then(scan::i64);
        match hook {
            TRACE_ON => {
                row.kind(Kind::TraceOn).value(channel);
                if let Some(off) = self.off_since.take() {
                    let cause = out.strings.intern(b"trace_off");
                    out.losses.push().ts_from_ns(off).ts_to_ns(f.ts).cause(cause);
                    self.lost_unknown = true;
                    let message = "tracing was off for a while";
                    out.diag(Diagnostic::new(Code::LostEvents, message).at_line(line).at_ts(f.ts));
                }
            }
            TRACE_OFF => {
                row.kind(Kind::TraceOff).value(channel);
                self.off_since = Some(f.ts);
            }
            ZERO => {
                out.diag(Diagnostic::new(Code::Damaged, scan::shown(f.payload, 120)).at_line(line).at_ts(f.ts));
                return None;
            }
            _ => {
                let missed = missed(f.payload);
                row.kind(Kind::Lost).value(missed);
                self.lost += missed.unwrap_or(0);
                self.lost_unknown |= missed.is_none();
                let from = before.filter(|_| hook == BUFFER_WRAP);
                let cause = out.strings.intern(b"wraparound");
                out.losses.push().cpu(f.cpu).ts_from_ns(from).ts_to_ns(f.ts).count(missed).cause(cause);
                let (code, what) = match hook {
                    LOG_WRAP => (Code::Overwritten, "the log file wrapped: its beginning was overwritten".to_owned()),
                    _ => (
                        Code::LostEvents,
                        missed.map_or_else(
                            || "the trace buffer wrapped".to_owned(),
                            |n| format!("the trace buffer wrapped: {n} records are missing"),
                        ),
                    ),
                };
                let advice = "trace with larger buffers (-T, -L) or fewer hooks (-j)";
                out.diag(Diagnostic::new(code, what).at_line(line).at_ts(f.ts).advise(advice));
            }
        }
        Some(true)
    }
}

/// `TRACEBUFFER WRAPAROUND 5D88 C77A missed entries`: the number before `missed`, in hexadecimal.
fn missed(text: &[u8]) -> Option<i64> {
    let at = memchr::memmem::find(text, b" missed")?;
    let word = text[..at].rsplit(|b| scan::is_blank(*b)).find(|w| !w.is_empty())?;
    scan::hex(word).and_then(|n| i64::try_from(n).ok())
}

/// The policy by name: 1 and 2 are fixed priorities.
fn policy(text: &[u8], out: &mut Out) -> Option<StrId> {
    let name: &[u8] = match keyed(text, b"policy=")? {
        b"0" => b"OTHER",
        b"1" => b"FIFO",
        b"2" => b"RR",
        other => other,
    };
    Some(out.strings.intern(name))
}

fn about<'r, 't>(row: &'r mut EventRow<'t>, s: Subject) -> &'r mut EventRow<'t> {
    row.tid(s.tid).pid(s.pid).prio(s.prio)
}

fn interrupt_or_call(f: &Fields<'_>, hook: u32, out: &mut Out) -> Option<bool> {
    let text = f.payload;
    let cut = |at: Option<usize>| scan::trim(&text[..at.unwrap_or(text.len())]);
    let (kind, name) = match hook {
        FLIH => (Kind::Interrupt, cut(memchr::memmem::find(text, b" iar="))),
        SLIH => {
            let at = memchr::memmem::find(text, b"cpuid=").map_or(text.len(), |at| (at + 8).min(text.len()));
            (Kind::IrqEntry, scan::word(&text[at..]).0)
        }
        SLIH_RETURN => (Kind::IrqExit, &b""[..]),
        SVC => (Kind::SysEnter, scan::word(text).0),
        _ => {
            let rest = text.strip_prefix(b"return from ").unwrap_or(text);
            let word = scan::word(rest).0;
            (Kind::SysExit, word.strip_suffix(b".").unwrap_or(word))
        }
    };
    let name = (!name.is_empty()).then(|| out.strings.intern(name));
    out.events.last()?.kind(kind).name(name);
    Some(true)
}

/// exec, exit, fork, and the same of threads.
fn lifecycle(f: &Fields<'_>, hook: u32, out: &mut Out) -> Option<bool> {
    let text = f.payload;
    let mut subject = Subject::of(text);
    let class = policy(text, out);
    let command = (hook == EXEC).then(|| command(text)).flatten();
    let path = command.map(|c| out.strings.intern(c));
    let comm = command.map(|c| out.strings.intern(base_name(c)));
    let kind = match hook {
        EXEC => Kind::Exec,
        EXIT | THREAD_END => Kind::Exit,
        THREAD_START => Kind::WakeupNew,
        _ => Kind::Fork,
    };
    if kind == Kind::Exit {
        (subject.tid, subject.pid) = (subject.tid.or(f.tid), subject.pid.or(f.pid));
    }
    if kind == Kind::WakeupNew && subject.tid.is_none() {
        return None;
    }
    if subject.tid.is_none() && subject.pid.is_none() {
        return Some(false);
    }
    let mut row = out.events.last()?;
    about(row.kind(kind), subject).class(class).comm(comm).name(path);
    if hook == EXIT {
        row.value(number(text, b"wait_status="));
    }
    Some(true)
}

/// A thread goes to wait, or is woken.
fn wait(f: &Fields<'_>, hook: u32, out: &mut Out) -> Option<bool> {
    let text = f.payload;
    let mut subject = Subject::of(text);
    let kind = match hook {
        CLEAR_WAIT | WAKEUP_ONE => Kind::Wakeup,
        WAKE_LOCK => Kind::LockWake,
        WAIT_LOCK => Kind::LockWait,
        _ => Kind::Sleep,
    };
    if matches!(kind, Kind::Sleep | Kind::LockWait) {
        (subject.tid, subject.pid) = (subject.tid.or(f.tid), subject.pid.or(f.pid));
    } else if subject.tid.is_none() {
        return if hook == CLEAR_WAIT { Some(false) } else { None };
    }
    let on = [&b"anchor="[..], b"lock=", b"event="].into_iter().find_map(|key| keyed(text, key));
    let reason = on.filter(|on| *on != b"0").map(|on| out.strings.intern(on));
    about(out.events.last()?.kind(kind), subject).reason(reason);
    Some(true)
}

/// Records about the thread that runs.
fn thread(f: &Fields<'_>, hook: u32, out: &mut Out) -> Option<bool> {
    let text = f.payload;
    match hook {
        RESUME => {
            let rest = text.strip_prefix(b"resume ").unwrap_or(text);
            let end = memchr::memmem::find(rest, b" iar=").unwrap_or(rest.len());
            let name = scan::trim(&rest[..end]);
            let comm = (!name.is_empty()).then(|| out.strings.intern(name));
            out.events.last()?.kind(Kind::Resume).tid(f.tid).pid(f.pid).comm(comm);
        }
        SET_SCHED => {
            let subject = Subject::of(text);
            if subject.tid.is_none() || subject.prio.is_none() {
                return None;
            }
            let class = policy(text, out);
            let mut row = out.events.last()?;
            row.kind(Kind::Prio).tid(subject.tid).pid(subject.pid).class(class).value(subject.prio.map(i64::from));
        }
        _ => {
            let kind = if hook == HCALL { Kind::Hcall } else { Kind::VcpuPreempt };
            let raw = out.strings.keep(text);
            out.events.last()?.kind(kind).raw(raw);
        }
    }
    Some(true)
}

/// A hook without a kind of its own.
fn other(f: &Fields<'_>, out: &mut Out) {
    let name = if f.id_word.is_empty() { scan::word(f.payload).0 } else { f.id_word };
    let name = out.strings.intern(&name[..name.len().min(32)]);
    let raw = out.strings.keep(f.payload);
    if let Some(mut row) = out.events.last() {
        row.kind(Kind::Other).name(name).raw(raw);
    }
}

/// A hook whose payload lacks what it must say.
fn partial(f: &Fields<'_>, line: u64, out: &mut Out) {
    other(f, out);
    let so_far = out.events.len().checked_sub(1).and_then(|last| out.events.quality.get(last)).unwrap_or(0);
    if let Some(mut row) = out.events.last() {
        row.quality(so_far | quality::PARSE_PARTIAL);
    }
    out.diagnostics.push_with(Code::PartlyParsed, || {
        let message = format!("hook {} lacks a key: `{}`", scan::shown(f.id_word, 4), scan::shown(f.payload, 100));
        Diagnostic::new(Code::PartlyParsed, message)
            .at_line(line)
            .at_ts(f.ts)
            .advise("the template of this AIX release may differ: please report the line")
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_from_the_right() {
        let text =
            b"dispatch: cmd=x pid=7 tid=9 y pid=7214 tid=24713[12 priority=60 old_tid=517 old_priority=255 CPUID=3";
        assert_eq!(number(text, b"tid="), Some(24713));
        assert_eq!(number(text, b"pid="), Some(7214));
        assert_eq!(number(text, b"old_tid="), Some(517));
        assert_eq!(number(text, b"priority="), Some(60));
        assert_eq!(command(text), Some(&b"x pid=7 tid=9 y"[..]));
        assert_eq!(number(b"tid=?", b"tid="), None);
        assert_eq!(number(b"tid=", b"tid="), None);
        assert_eq!(number(b"tid=-", b"tid="), None);
    }

    #[test]
    fn cpus_of_interrupts_have_two_digits() {
        assert_eq!(cpuid(b"slih cpuid=0Assapin"), Some(10));
        assert_eq!(cpuid(b"resume wait iar=12 cpuid=1"), Some(1));
        assert_eq!(cpuid(b"resume wait cpuid="), None);
    }

    #[test]
    fn missed_entries_are_hexadecimal() {
        assert_eq!(missed(b"TRACEBUFFER WRAPAROUND 5D88 C77A missed entries"), Some(0xc77a));
        assert_eq!(missed(b"TRACEBUFFER WRAPAROUND 5D88"), None);
    }
}
