//! Scheduler events in all their forms.
//!
//! | form | looks like |
//! |---|---|
//! | kernel, since 2.6.34 | `prev_comm=a prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=b next_pid=2 next_prio=120` |
//! | raw (`trace-cmd report -R`) | `prev_comm=a prev_pid=1 prev_prio=120 prev_state=0x1 next_comm=b next_pid=2 next_prio=120` |
//! | libtraceevent plugin | `a:1 [120] S ==> b:2 [120]` |
//! | kernel, 2.6.31 to 33 | `task a:1 [120] (S) ==> b:2 [120]` |
//! | kernel, before | `task a:1 [120] ==> b:2 [120]` |
//! | entries of the tracer `sched_switch` | `1:120:S ==> [003] 2:120:R b`, once without CPU and name |
//!
//! Those of before 2.6.34 are as `include/trace/events/sched.h` of 2.6.31 and 2.6.32 prints them,
//! the entries as `kernel/trace/trace_output.c` (`trace_ctxwake_print`) does.
//!
//! Unknown `key=value` words after the known ones are ignored: vendor kernels add them.

use memchr::memmem;
use tracekit_schema::events::EventRow;
use tracekit_schema::{Kind, StrId};

use super::{state, Context};
use crate::text::scan;

/// A task as a payload names it.
struct Task<'t> {
    comm: &'t [u8],
    tid: i64,
    prio: Option<i32>,
    /// What follows.
    rest: &'t [u8],
}

/// Sets the columns of a scheduler event; `None`, with nothing set, when the payload does not fit.
pub fn decode(kind: Kind, payload: &[u8], row: &mut EventRow<'_>, cx: &mut Context<'_>) -> Option<()> {
    match kind {
        Kind::Switch => switch(payload, row, cx),
        Kind::Waking | Kind::Wakeup | Kind::WakeupNew => wakeup(payload, row, cx),
        Kind::Fork => fork(payload, row, cx),
        Kind::Exec => exec(payload, row, cx),
        Kind::BlockedReason => blocked_reason(payload, row, cx),
        _ => about_task(kind, payload, row, cx),
    }
}

/// `text` cut at the last `literal`.
fn rsplit<'t>(text: &'t [u8], literal: &[u8]) -> Option<(&'t [u8], &'t [u8])> {
    let at = memmem::rfind(text, literal)?;
    Some((&text[..at], &text[at + literal.len()..]))
}

/// The number at the start of `text`, and what follows it.
fn leading_number(text: &[u8]) -> Option<(i64, &[u8])> {
    let (word, rest) = scan::word(text);
    Some((scan::i64(word)?, rest))
}

fn value(text: &[u8], key: &[u8]) -> Option<i64> {
    scan::i64(scan::keyed(text, key)?)
}

fn value32(text: &[u8], key: &[u8]) -> Option<i32> {
    scan::i32(scan::keyed(text, key)?)
}

/// A thread number; -1 stands for none.
fn tid(n: i64) -> Option<i64> {
    (n >= 0).then_some(n)
}

/// `comm=a pid=1 ...`
fn long_task(text: &[u8]) -> Option<Task<'_>> {
    let (comm, rest) = rsplit(text.strip_prefix(b"comm=")?, b" pid=")?;
    let (tid, rest) = leading_number(rest)?;
    Some(Task { comm, tid, prio: value32(rest, b"prio="), rest })
}

/// `a:1 [120] ...`
fn short_task(text: &[u8]) -> Option<Task<'_>> {
    // The bracket that ends the task is the last one that a number and a colon stand before: a
    // wakeup may end in `[cpu]`, and a name may hold brackets.
    let mut end = text.len();
    while let Some(at) = memmem::rfind(&text[..end], b" [") {
        let task = rsplit(&text[..at], b":").and_then(|(comm, tid)| Some((comm, scan::i64(tid)?)));
        let prio = memchr::memchr(b']', &text[at..]).map(|i| (scan::i32(&text[at + 2..at + i]), &text[at + i + 1..]));
        if let (Some((comm, tid)), Some((Some(prio), rest))) = (task, prio) {
            return Some(Task { comm, tid, prio: Some(prio), rest });
        }
        end = at;
    }
    None
}

fn switch(payload: &[u8], row: &mut EventRow<'_>, cx: &mut Context<'_>) -> Option<()> {
    if payload.starts_with(b"prev_comm=") {
        let halves = rsplit(payload, b" ==> next_comm=").or_else(|| rsplit(payload, b" next_comm="))?;
        return long_switch(halves, row, cx);
    }
    let (left, right) = rsplit(payload, b" ==> ")?;
    let prev = short_task(left)?;
    let next = short_task(right)?;
    let letters = prev.rest.trim_ascii();
    let (comm, letters) = match letters {
        // The forms with `task` put the state in parentheses or leave it out.
        b"" => (prev.comm.strip_prefix(b"task ")?, None),
        [b'(', letters @ .., b')'] => (prev.comm.strip_prefix(b"task ")?, Some(letters)),
        _ => (prev.comm, Some(letters)),
    };
    row.tid(tid(prev.tid)).comm(cx.strings.intern(comm)).prio(prev.prio);
    row.next_tid(tid(next.tid)).next_comm(cx.strings.intern(next.comm)).next_prio(next.prio);
    if let Some(letters) = letters {
        row.state(state::from_plugin_letters(letters)).state_raw(cx.strings.intern(letters));
    }
    Some(())
}

fn long_switch((left, right): (&[u8], &[u8]), row: &mut EventRow<'_>, cx: &mut Context<'_>) -> Option<()> {
    let (comm, rest) = rsplit(left.strip_prefix(b"prev_comm=")?, b" prev_pid=")?;
    let (prev, rest) = leading_number(rest)?;
    let (next_comm, next_rest) = rsplit(right, b" next_pid=")?;
    let (next, next_rest) = leading_number(next_rest)?;
    row.tid(tid(prev)).comm(cx.strings.intern(comm)).prio(value32(rest, b"prev_prio="));
    row.next_tid(tid(next)).next_comm(cx.strings.intern(next_comm)).next_prio(value32(next_rest, b"next_prio="));
    if let Some(letters) = scan::keyed(rest, b"prev_state=") {
        set_state(letters, row, cx);
    }
    Some(())
}

fn set_state(text: &[u8], row: &mut EventRow<'_>, cx: &mut Context<'_>) {
    let state = match state::number(text) {
        // `0x400` beside letters is a flag without one; alone it is a number.
        Some(n) => cx.numbers.note(n, cx.states),
        None => state::from_letters(text),
    };
    row.state(state).state_raw(cx.strings.intern(text));
}

fn wakeup(payload: &[u8], row: &mut EventRow<'_>, cx: &mut Context<'_>) -> Option<()> {
    if let Some(task) = long_task(payload) {
        let cpu = value32(task.rest, b"target_cpu=").or_else(|| value32(task.rest, b"cpu="));
        set_task(&task, task.comm, row, cx).target_cpu(cpu).value(value(task.rest, b"success="));
        return Some(());
    }
    let task = short_task(payload)?;
    let mut rest = task.rest;
    let (mut success, mut cpu, mut old) = (None, None, false);
    loop {
        let (word, next) = scan::word(rest);
        match word {
            b"" => break,
            [b'C', b'P', b'U', b':', n @ ..] => cpu = scan::i32(n),
            // `trace-cmd report --debug` puts `[delta:0xoffset:length]` behind all that.
            [b'[', n @ .., b']'] if scan::i32(n).is_some() => (cpu, old) = (scan::i32(n), true),
            _ => success = word.strip_prefix(b"success=").and_then(scan::i64).or(success),
        }
        rest = next;
    }
    // Only the kernel's own old form starts with `task `, and it alone has no `CPU:`.
    let comm = if old || cpu.is_none() { task.comm.strip_prefix(b"task ").unwrap_or(task.comm) } else { task.comm };
    set_task(&task, comm, row, cx).target_cpu(cpu).value(success);
    Some(())
}

fn set_task<'r, 't>(
    task: &Task<'_>,
    comm: &[u8],
    row: &'r mut EventRow<'t>,
    cx: &mut Context<'_>,
) -> &'r mut EventRow<'t> {
    row.tid(tid(task.tid)).comm(cx.strings.intern(comm)).prio(task.prio)
}

fn fork(payload: &[u8], row: &mut EventRow<'_>, cx: &mut Context<'_>) -> Option<()> {
    if let Some(old) = payload.strip_prefix(b"parent ") {
        let (parent, child) = rsplit(old, b"  child ")?;
        let ((parent_comm, parent), (comm, child)) = (named(parent)?, named(child)?);
        row.tid(tid(child)).comm(cx.strings.intern(comm));
        row.ctx_tid(tid(parent)).ctx_comm(cx.strings.intern(parent_comm));
        return Some(());
    }
    let (left, child) = rsplit(payload, b" child_pid=")?;
    let (child, _) = leading_number(child)?;
    let (parent, child_comm) = rsplit(left, b" child_comm=")?;
    // A raw report prints the names of the fields: `parent_comm=a parent_pid=1`.
    let parent = match parent.strip_prefix(b"parent_comm=") {
        Some(rest) => {
            let (comm, rest) = rsplit(rest, b" parent_pid=")?;
            let (tid, rest) = leading_number(rest)?;
            Task { comm, tid, prio: None, rest }
        }
        None => long_task(parent)?,
    };
    row.tid(tid(child)).comm(cx.strings.intern(child_comm));
    row.ctx_tid(tid(parent.tid)).ctx_comm(cx.strings.intern(parent.comm));
    Some(())
}

fn exec(payload: &[u8], row: &mut EventRow<'_>, cx: &mut Context<'_>) -> Option<()> {
    let (left, old) = rsplit(payload, b" old_pid=")?;
    let (old, _) = leading_number(old)?;
    let (file, new) = rsplit(left.strip_prefix(b"filename=")?, b" pid=")?;
    let (new, _) = leading_number(new)?;
    row.tid(tid(new)).value(tid(old)).name(super::text(file, cx.strings));
    Some(())
}

fn blocked_reason(payload: &[u8], row: &mut EventRow<'_>, cx: &mut Context<'_>) -> Option<()> {
    let n = value(payload, b"pid=")?;
    let iowait = value(payload, b"iowait=").or_else(|| value(payload, b"io_wait="));
    let caller = scan::keyed(payload, b"caller=").map(|c| cx.strings.intern(c));
    row.tid(tid(n)).value(iowait).reason(caller);
    Some(())
}

/// `a:1`
fn named(text: &[u8]) -> Option<(&[u8], i64)> {
    let (comm, tid) = rsplit(text, b":")?;
    Some((comm, scan::i64(tid)?))
}

/// The number behind `literal`.
fn behind(text: &[u8], literal: &[u8]) -> Option<i64> {
    let at = memmem::rfind(text, literal)?;
    leading_number(&text[at + literal.len()..]).map(|(n, _)| n)
}

/// What [`about_task`] reads, as kernels before 2.6.34 print it: `task a:1 [120] from: 0  to: 1`,
/// `task: a:1 wait: 15023 [ns]`.
fn about_old_task(kind: Kind, payload: &[u8], row: &mut EventRow<'_>, cx: &mut Context<'_>) -> Option<()> {
    let key: &[u8] = match kind {
        Kind::StatWait => b" wait: ",
        Kind::StatSleep => b" sleep: ",
        Kind::StatIowait => b" iowait: ",
        Kind::StatRuntime => b" runtime: ",
        Kind::Migrate | Kind::Exit | Kind::Free | Kind::Wait => {
            let task = short_task(payload)?;
            let comm = task.comm.strip_prefix(b"task ")?;
            let (from, to) = (behind(task.rest, b"from: "), behind(task.rest, b"to: "));
            if kind == Kind::Migrate {
                let cpu = |n: Option<i64>| n.and_then(|n| i32::try_from(n).ok());
                row.orig_cpu(cpu(Some(from?))).target_cpu(cpu(Some(to?)));
            }
            set_task(&task, comm, row, cx);
            return Some(());
        }
        _ => return None,
    };
    let (left, rest) = rsplit(payload.strip_prefix(b"task: ")?, key)?;
    let (comm, n) = named(left)?;
    let (value, rest) = leading_number(rest)?;
    row.tid(tid(n)).comm(cx.strings.intern(comm)).value(value).value2(behind(rest, b" vruntime: "));
    Some(())
}

/// A task in an entry of a tracer: `1408:120:S`, padded with blanks; and what follows it.
fn place(text: &[u8]) -> Option<(Place<'_>, &[u8])> {
    let number = |text: &'_ [u8]| -> Option<(i64, usize)> {
        let start = text.len() - scan::skip_blanks(text).len();
        let n = text[start..].iter().take_while(|b| b.is_ascii_digit() || **b == b'-').count();
        Some((scan::i64(&text[start..start + n])?, start + n))
    };
    let (tid, at) = number(text)?;
    let text = text[at..].strip_prefix(b":")?;
    let (prio, at) = number(text)?;
    let (state, rest) = text[at..].strip_prefix(b":")?.split_at_checked(1)?;
    let ends = rest.first().is_none_or(|b| scan::is_blank(*b));
    let ok = ends && (state[0].is_ascii_alphabetic() || state == b"?");
    ok.then_some((Place { tid, prio: i32::try_from(prio).ok()?, state }, rest))
}

struct Place<'t> {
    tid: i64,
    prio: i32,
    state: &'t [u8],
}

/// An entry of the tracer `sched_switch`, which kernels up to 3.13 have.
pub struct Entry<'t> {
    switch: bool,
    cpu: Option<i32>,
    prev: Place<'t>,
    next: Place<'t>,
    next_comm: Option<&'t [u8]>,
}

impl<'t> Entry<'t> {
    /// Reads `1408:120:R ==> [000]     9:120:R events/0`; `None` for any other text.
    pub fn of(body: &'t [u8]) -> Option<Self> {
        let (prev, rest) = place(body)?;
        let (mark, rest) = scan::word(rest);
        let (cpu, rest) = match scan::word(rest) {
            ([b'[', n @ .., b']'], rest) => (Some(scan::i32(n)?), rest),
            _ => (None, rest),
        };
        let (next, rest) = place(rest)?;
        let next_comm = context_comm(scan::trim(rest));
        matches!(mark, b"==>" | b"+").then_some(Entry { switch: mark == b"==>", cpu, prev, next, next_comm })
    }

    /// The event that says the same, and its kind.
    pub fn event(&self) -> (&'static [u8], Kind) {
        if self.switch {
            (b"sched_switch", Kind::Switch)
        } else {
            (b"sched_wakeup", Kind::Wakeup)
        }
    }

    /// Sets the columns; `comm` is the name of the current task. A wakeup does not say whether it
    /// woke.
    pub fn set(&self, comm: Option<StrId>, row: &mut EventRow<'_>, cx: &mut Context<'_>) {
        let (prev, next) = (&self.prev, &self.next);
        let next_comm = self.next_comm.map(|name| cx.strings.intern(name));
        if self.switch {
            row.tid(tid(prev.tid)).comm(comm).prio(prev.prio);
            row.next_tid(tid(next.tid)).next_comm(next_comm).next_prio(next.prio);
            set_state(prev.state, row, cx);
        } else {
            row.tid(tid(next.tid)).comm(next_comm).prio(next.prio).target_cpu(self.cpu);
        }
        row.kind(self.event().1);
    }
}

/// The events that are about one task and need no more than `key=value` words behind it.
fn about_task(kind: Kind, payload: &[u8], row: &mut EventRow<'_>, cx: &mut Context<'_>) -> Option<()> {
    if payload.starts_with(b"task") {
        return about_old_task(kind, payload, row, cx);
    }
    let task = long_task(payload)?;
    let rest = task.rest;
    let (first, second): (Option<i64>, Option<i64>) = match kind {
        Kind::StatWait | Kind::StatSleep | Kind::StatBlocked | Kind::StatIowait => {
            (Some(value(rest, b"delay=")?), None)
        }
        Kind::StatRuntime => (Some(value(rest, b"runtime=")?), value(rest, b"vruntime=")),
        Kind::Prio => (Some(value(rest, b"newprio=")?), None),
        _ => (None, None),
    };
    set_task(&task, task.comm, row, cx).value(first).value2(second);
    match kind {
        Kind::Prio => {
            row.prio(value32(rest, b"oldprio="));
        }
        Kind::Migrate => {
            row.orig_cpu(value32(rest, b"orig_cpu=")).target_cpu(value32(rest, b"dest_cpu="));
        }
        _ => {}
    }
    Some(())
}

/// The name of a context: `<...>`, and perf's `:123`, mean that nobody knows it.
pub fn context_comm(comm: &[u8]) -> Option<&[u8]> {
    let perf_unknown = |rest: &[u8]| !rest.is_empty() && scan::i64(rest).is_some();
    let unknown = comm.is_empty() || comm == b"<...>" || comm.strip_prefix(b":").is_some_and(perf_unknown);
    (!unknown).then_some(comm)
}
