//! Events around scheduling: interrupts, system calls, idle states, frequencies, markers.

use tracekit_schema::events::EventRow;
use tracekit_schema::Kind;

use super::{text, Context};
use crate::text::scan;

/// `None`: no kind for this event; `Some(None)`: its payload does not fit. Nothing is set in both cases.
pub fn decode(name: &[u8], payload: &[u8], row: &mut EventRow<'_>, cx: &mut Context<'_>) -> Option<Option<Kind>> {
    let kind = match name {
        b"irq_handler_entry" => irq_entry(payload, row, cx),
        b"irq_handler_exit" => irq_exit(payload, row),
        b"softirq_entry" => softirq(Kind::SoftirqEntry, payload, row, cx),
        b"softirq_exit" => softirq(Kind::SoftirqExit, payload, row, cx),
        b"softirq_raise" => softirq(Kind::SoftirqRaise, payload, row, cx),
        b"cpu_idle" => cpu_idle(payload, row),
        b"cpu_frequency" => cpu_frequency(payload, row),
        b"cpu_frequency_limits" => cpu_frequency_limits(payload, row),
        b"cpu_capacity" => cpu_capacity(payload, row),
        // Without `capacity_orig` it only says what real time and interrupts leave of a capacity.
        b"sched_cpu_capacity" | b"lisa__sched_cpu_capacity" => {
            scan::keyed(payload, b"capacity_orig=")?;
            sched_cpu_capacity(payload, row)
        }
        b"sys_enter" => sys_enter(payload, row),
        b"sys_exit" => sys_exit(payload, row),
        b"task_rename" => task_rename(payload, row, cx),
        b"task_newtask" => task_newtask(payload, row, cx),
        // Before Linux 3.2 text of a program names no function: its address is 0, and is printed.
        b"print" | b"tracing_mark_write" | b"0" => Some(marker(name, payload, row, cx)),
        _ => return named_syscall(name, payload, row, cx),
    };
    Some(kind)
}

fn number(payload: &[u8], key: &[u8]) -> Option<i64> {
    scan::i64(scan::keyed(payload, key)?)
}

fn number32(payload: &[u8], key: &[u8]) -> Option<i32> {
    scan::i32(scan::keyed(payload, key)?)
}

/// What stands after `key` up to the end: names may hold blanks.
fn rest_after<'t>(payload: &'t [u8], key: &[u8]) -> Option<&'t [u8]> {
    let at = memchr::memmem::find(payload, key)?;
    Some(&payload[at + key.len()..])
}

fn irq_entry(payload: &[u8], row: &mut EventRow<'_>, cx: &mut Context<'_>) -> Option<Kind> {
    let irq = number(payload, b"irq=")?;
    let name = rest_after(payload, b" name=").or_else(|| rest_after(payload, b" handler="));
    row.value(irq).name(name.map(|n| cx.strings.intern(n)));
    Some(Kind::IrqEntry)
}

fn irq_exit(payload: &[u8], row: &mut EventRow<'_>) -> Option<Kind> {
    let irq = number(payload, b"irq=")?;
    let result = scan::keyed(payload, b"ret=").or_else(|| scan::keyed(payload, b"return="));
    let handled = result.and_then(|r| match r {
        b"handled" => Some(1),
        b"unhandled" => Some(0),
        n => scan::i64(n),
    });
    row.value(irq).value2(handled);
    Some(Kind::IrqExit)
}

fn softirq(kind: Kind, payload: &[u8], row: &mut EventRow<'_>, cx: &mut Context<'_>) -> Option<Kind> {
    let vec = number(payload, b"vec=").or_else(|| number(payload, b"softirq="))?;
    let action = rest_after(payload, b"action=").map(|a| a.strip_suffix(b"]").unwrap_or(a));
    row.value(vec).name(action.map(|a| cx.strings.intern(a)));
    Some(kind)
}

/// The state that means `leaves idle`: -1 printed as an unsigned number of 32 or 64 bits.
fn is_exit(state: u64) -> bool {
    state == u64::from(u32::MAX) || state == u64::MAX
}

fn cpu_idle(payload: &[u8], row: &mut EventRow<'_>) -> Option<Kind> {
    let state = scan::u64(scan::keyed(payload, b"state=")?)?;
    let cpu = number32(payload, b"cpu_id=")?;
    row.value(i64::try_from(state).ok().filter(|_| !is_exit(state))).target_cpu(cpu);
    Some(Kind::CpuIdle)
}

fn cpu_frequency(payload: &[u8], row: &mut EventRow<'_>) -> Option<Kind> {
    let khz = number(payload, b"state=")?;
    row.value(khz).target_cpu(number32(payload, b"cpu_id=")?);
    Some(Kind::CpuFreq)
}

/// `min=300000 max=1900800 cpu_id=4`
fn cpu_frequency_limits(payload: &[u8], row: &mut EventRow<'_>) -> Option<Kind> {
    let (least, most) = (number(payload, b"min=")?, number(payload, b"max=")?);
    row.value(most).value2(least).target_cpu(number32(payload, b"cpu_id=")?);
    Some(Kind::CpuFreqLimits)
}

/// `state=258 cpu_id=1`: the capacity at the present frequency.
fn cpu_capacity(payload: &[u8], row: &mut EventRow<'_>) -> Option<Kind> {
    let now = number(payload, b"state=")?;
    row.value2(now).target_cpu(number32(payload, b"cpu_id=")?);
    Some(Kind::CpuCapacity)
}

/// `cpu=1 capacity=440 capacity_orig=446 capacity_curr=258`, the last one from one of two modules only.
fn sched_cpu_capacity(payload: &[u8], row: &mut EventRow<'_>) -> Option<Kind> {
    let cpu = number32(payload, b"cpu=")?;
    let whole = number(payload, b"capacity_orig=")?;
    row.value(whole).value2(number(payload, b"capacity_curr=")).target_cpu(cpu);
    Some(Kind::CpuCapacity)
}

/// `NR 16 (1d, 2400)`
fn sys_enter(payload: &[u8], row: &mut EventRow<'_>) -> Option<Kind> {
    let number = scan::i64(scan::word(payload.strip_prefix(b"NR ")?).0)?;
    row.value(number);
    Some(Kind::SysEnter)
}

/// `NR 16 = 0`
fn sys_exit(payload: &[u8], row: &mut EventRow<'_>) -> Option<Kind> {
    let (number, rest) = scan::word(payload.strip_prefix(b"NR ")?);
    let number = scan::i64(number)?;
    row.value(number).value2(scan::trim(rest).strip_prefix(b"= ").and_then(scan::i64));
    Some(Kind::SysExit)
}

/// `pid=7 oldcomm=a newcomm=b oom_score_adj=0`
fn task_rename(payload: &[u8], row: &mut EventRow<'_>, cx: &mut Context<'_>) -> Option<Kind> {
    let pid = number(payload, b"pid=")?;
    let at = memchr::memmem::rfind(payload, b" newcomm=")?;
    let rest = &payload[at + b" newcomm=".len()..];
    let end = memchr::memmem::rfind(rest, b" oom_score_adj=").unwrap_or(rest.len());
    row.tid(pid).comm(cx.strings.intern(&rest[..end]));
    Some(Kind::Comm)
}

/// `pid=7 comm=a clone_flags=3d0f00 oom_score_adj=0`, in the context of the task that makes it.
fn task_newtask(payload: &[u8], row: &mut EventRow<'_>, cx: &mut Context<'_>) -> Option<Kind> {
    let pid = number(payload, b"pid=")?;
    let rest = rest_after(payload, b" comm=")?;
    let end = memchr::memmem::rfind(rest, b" clone_flags=")?;
    row.tid(pid).comm(cx.strings.intern(&rest[..end]));
    Some(Kind::Fork)
}

/// What follows `0xffffffff8122acdf: `.
fn behind_address(payload: &[u8]) -> Option<&[u8]> {
    let digits = payload.strip_prefix(b"0x")?;
    let end = digits.iter().position(|b| !b.is_ascii_hexdigit())?;
    digits[end..].strip_prefix(b": ").filter(|_| end > 0)
}

/// Text of a program; `print` names the function that wrote it first, by its address where a report
/// does not know its name.
fn marker(name: &[u8], payload: &[u8], row: &mut EventRow<'_>, cx: &mut Context<'_>) -> Kind {
    let named = payload.strip_prefix(b"tracing_mark_write: ");
    let message = named.or_else(|| behind_address(payload).filter(|_| name == b"print")).unwrap_or(payload);
    row.name(text(message, cx.strings));
    Kind::Marker
}

/// `sys_enter_read` of perf; the kernel prints `sys_read(fd: 3, ...)` and `sys_read -> 0x1` without
/// an event name.
fn named_syscall(name: &[u8], payload: &[u8], row: &mut EventRow<'_>, cx: &mut Context<'_>) -> Option<Option<Kind>> {
    if let Some(call) = name.strip_prefix(b"sys_enter_") {
        row.name(cx.strings.intern(call)).value2(subject(payload));
        return Some(Some(Kind::SysEnter));
    }
    if let Some(call) = name.strip_prefix(b"sys_exit_") {
        row.name(cx.strings.intern(call)).value2(result(payload));
        return Some(Some(Kind::SysExit));
    }
    None
}

/// What a call is about, as its arguments name it in hexadecimal: `fd: 3`, `uaddr: 7ffd0010`.
fn subject(arguments: &[u8]) -> Option<i64> {
    let (first, _) = arguments.split_at(memchr::memchr(b',', arguments).unwrap_or(arguments.len()));
    let first = scan::trim(first);
    let value = first.strip_prefix(b"fd: ").or_else(|| first.strip_prefix(b"uaddr: "))?;
    scan::hex(scan::trim(value)).map(|n| n as i64)
}

/// A system call's result: `0x1`, or `-11`.
fn result(payload: &[u8]) -> Option<i64> {
    let word = scan::word(payload).0;
    if word.starts_with(b"0x") {
        return scan::hex(word).map(|n| n as i64);
    }
    scan::i64(word)
}

/// The kernel's own form of system calls, which has no event name: `sys_read(fd: 3, ...)` or
/// `sys_read -> 0x1`.
pub fn unnamed_syscall(body: &[u8], row: &mut EventRow<'_>, cx: &mut Context<'_>) -> Option<Kind> {
    let rest = body.strip_prefix(b"sys_")?;
    let end = rest.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'_'))?;
    let (call, after) = rest.split_at(end);
    let (kind, value) = match after {
        [b'(', arguments @ .., b')'] => (Kind::SysEnter, subject(arguments)),
        [b' ', b'-', b'>', b' ', value @ ..] => (Kind::SysExit, Some(result(value)?)),
        _ => return None,
    };
    row.kind(kind).name(cx.strings.intern(call)).value2(value);
    Some(kind)
}
