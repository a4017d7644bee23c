//! Events of the Common Trace Format, by LTTng and by `perf data convert`, as rows; printed or binary.
//!
//! LTTng calls a thread `tid` and prints kernel priorities less 100; perf keeps the names and
//! numbers of the tracepoint, puts its subsystem before the name (`sched:sched_switch`) and adds
//! fields `perf_...` and `common_...`. Its own records (`perf data convert --all`) are `perf_comm`,
//! `perf_fork`, ...; those before the first sample describe what was there before the recording, as in
//! `perf.data`, and have its time.

use std::borrow::Cow;

use tracekit_schema::events::EventRow;
use tracekit_schema::{Kind, State, Strings};

use crate::text::payload;
use crate::text::payload::state::{Evidence, Table};
use crate::text::scan;

/// The fields of one event.
pub trait Fields {
    /// A whole number of the payload.
    fn int(&self, key: &str) -> Option<i64>;
    /// A text of the payload.
    fn text(&self, key: &str) -> Option<Cow<'_, [u8]>>;
    /// A value of the payload as it is printed.
    fn printed(&self, key: &str) -> Option<Cow<'_, [u8]>>;
    /// A whole number of the contexts.
    fn context(&self, key: &str) -> Option<i64>;
}

/// Which numeric states mean what, and which were met.
#[derive(Debug)]
pub struct States {
    /// The table in use.
    pub table: Table,
    /// Numbers met.
    pub numbers: Evidence,
}

/// The table of numeric states in what LTTng recorded on kernel `release`; `kept` where the numbers are
/// those that the kernel keeps.
///
/// It reports others from 4.14 on, and never the places that the tracepoints of 4.14 report.
pub fn table(release: &str, kept: bool) -> Option<Table> {
    Some(match Table::of_kernel(release)? {
        Table::New | Table::Places if kept => Table::Kept,
        Table::Places => Table::New,
        table => table,
    })
}

/// Did this version of lttng-modules write the states that the kernel keeps? Those before 2.9.15,
/// 2.10.12 and 2.11 did.
pub fn writes_kept(major: u64, minor: u64, patch: u64) -> bool {
    match (major, minor) {
        (2, 9) => patch < 15,
        (2, 10) => patch < 12,
        version => version < (2, 11),
    }
}

/// An event's name without its subsystem, and whether perf wrote it.
pub fn event_name(event: &[u8]) -> (&[u8], bool) {
    match memchr::memchr(b':', event) {
        Some(colon) => (&event[colon + 1..], true),
        None => (event, event.starts_with(b"perf_")),
    }
}

/// Is this a record of perf's own of what was there before it recorded? Those of tasks that ran already
/// have time 0, and those of perf itself at its start a time before the first sample.
pub fn from_before(event: &[u8], time: i64, begun: bool) -> bool {
    event.starts_with(b"perf_") && (time == 0 || !begun)
}

/// The kind of an event.
pub fn kind(event: &[u8]) -> Option<Kind> {
    let (event, perf) = event_name(event);
    if event.starts_with(b"sched_") {
        // LTTng has no `sched_blocked_reason`.
        return payload::sched_kind(event).filter(|kind| *kind != Kind::BlockedReason);
    }
    Some(match event {
        b"irq_handler_entry" => Kind::IrqEntry,
        b"irq_handler_exit" => Kind::IrqExit,
        b"irq_softirq_entry" | b"softirq_entry" => Kind::SoftirqEntry,
        b"irq_softirq_exit" | b"softirq_exit" => Kind::SoftirqExit,
        b"irq_softirq_raise" | b"softirq_raise" => Kind::SoftirqRaise,
        b"power_cpu_idle" | b"cpu_idle" => Kind::CpuIdle,
        b"power_cpu_frequency" | b"cpu_frequency" => Kind::CpuFreq,
        b"cpu_frequency_limits" if perf => Kind::CpuFreqLimits,
        b"cpu_capacity" if perf => Kind::CpuCapacity,
        b"lttng_statedump_process_state" if !perf => Kind::Comm,
        b"perf_comm" => Kind::Comm,
        _ if event.starts_with(b"syscall_entry_") && !perf => Kind::SysEnter,
        _ if event.starts_with(b"syscall_exit_") && !perf => Kind::SysExit,
        // LTTng before 2.6 named the call only where it begins.
        b"exit_syscall" if !perf => Kind::SysExit,
        _ if (event.starts_with(b"sys_") || event.starts_with(b"compat_sys_")) && !perf => Kind::SysEnter,
        _ if event.starts_with(b"sys_enter_") && perf => Kind::SysEnter,
        _ if event.starts_with(b"sys_exit_") && perf => Kind::SysExit,
        _ => return None,
    })
}

/// What an event of perf states of its context, which LTTng puts into contexts: CPU, thread, process.
pub fn perf_context(f: &impl Fields) -> (Option<i32>, Option<i64>, Option<i64>) {
    let known = |n: &i64| *n >= 0;
    let cpu = f.int("perf_cpu").filter(known).and_then(|n| i32::try_from(n).ok());
    let tid = f.int("common_pid").or_else(|| f.int("perf_tid")).filter(known);
    let pid = f.int("perf_pid").filter(|_| f.int("perf_tid") == tid).filter(known);
    (cpu, tid, pid)
}

/// The names and numbers of one tracer.
struct Reader<'f, F> {
    f: &'f F,
    perf: bool,
}

impl<F: Fields> Reader<'_, F> {
    /// Kernel priority, which LTTng prints less 100.
    fn prio(&self, key: &str) -> Option<i32> {
        let less = if self.perf { 0 } else { 100 };
        self.f.int(key).and_then(|p| i32::try_from(p.checked_add(less)?).ok())
    }

    fn cpu(&self, key: &str) -> Option<i32> {
        self.f.int(key).and_then(|n| i32::try_from(n).ok())
    }

    /// A thread: `tid` in LTTng, `pid` in perf, behind `prefix`.
    fn thread(&self, prefix: &str) -> Option<i64> {
        let key = if self.perf { "pid" } else { "tid" };
        self.f.int(&[prefix, key].concat())
    }

    fn process(&self, prefix: &str) -> Option<i64> {
        if self.perf {
            return None;
        }
        self.f.int(&[prefix, "pid"].concat())
    }
}

/// Sets the columns of a record; `None` when it lacks what its kind must say.
pub fn fill(
    kind: Kind,
    event: &[u8],
    f: &impl Fields,
    states: &mut States,
    row: &mut EventRow<'_>,
    strings: &mut Strings,
) -> Option<()> {
    let (event, perf) = event_name(event);
    let r = Reader { f, perf };
    let mut name = |key: &str| f.text(key).map(|value| strings.intern(&value));
    match kind {
        Kind::Switch => {
            let (tid, next) = (r.thread("prev_")?, r.thread("next_")?);
            row.tid(tid).comm(name("prev_comm")).prio(r.prio("prev_prio"));
            row.next_tid(next).next_comm(name("next_comm")).next_prio(r.prio("next_prio"));
            let value = f.printed("prev_state")?;
            row.state(state(&value, states)).state_raw(strings.intern(&value));
        }
        Kind::Fork => {
            row.tid(r.thread("child_")?).pid(r.process("child_")).comm(name("child_comm"));
            if f.context("tid").is_none() {
                row.ctx_tid(r.thread("parent_")).ctx_pid(r.process("parent_")).ctx_comm(name("parent_comm"));
            }
        }
        Kind::Exec => {
            // LTTng before 2.0 kept the names of the tracepoint.
            let tid = r.thread("").or_else(|| f.int("pid"))?;
            let old = f.int("old_tid").or_else(|| f.int("old_pid"));
            row.tid(tid).name(name("filename")).value(old.filter(|old| *old != tid));
        }
        Kind::IrqEntry | Kind::IrqExit => {
            row.value(f.int("irq")?).value2(f.int("ret")).name(name("name"));
        }
        Kind::SoftirqEntry | Kind::SoftirqExit | Kind::SoftirqRaise => {
            row.value(f.int("vec")?);
        }
        Kind::SysEnter | Kind::SysExit => {
            let starts: &[&[u8]] = match (perf, kind) {
                (true, _) => &[b"sys_enter_", b"sys_exit_"],
                (false, Kind::SysExit) => &[b"syscall_exit_"],
                (false, _) => &[b"syscall_entry_", b"compat_sys_", b"sys_"],
            };
            let call = starts.iter().find_map(|s| event.strip_prefix(*s));
            if call.is_none() && event != b"exit_syscall" {
                return None;
            }
            let about = ["ret", "fd", "uaddr"].into_iter().find_map(|key| f.int(key));
            row.name(call.map(|call| strings.intern(call))).value2(about);
        }
        Kind::CpuIdle => {
            // -1, or 2^32 - 1, is the end of idling.
            let value = f.int("state")?;
            row.target_cpu(r.cpu("cpu_id")).value(Some(value).filter(|v| (0..u32::MAX as i64).contains(v)));
        }
        Kind::CpuFreq => {
            row.target_cpu(r.cpu("cpu_id")?).value(f.int("state")?);
        }
        Kind::CpuFreqLimits => {
            row.target_cpu(r.cpu("cpu_id")?).value(f.int("max_freq")?).value2(f.int("min_freq")?);
        }
        Kind::CpuCapacity => {
            row.target_cpu(r.cpu("cpu_id")?).value2(f.int("state")?);
        }
        Kind::Comm => {
            row.tid(f.int("tid")?).pid(f.int("pid")).comm(name("name").or_else(|| name("comm")));
        }
        Kind::Prio => {
            row.tid(r.thread("")?).comm(name("comm")).prio(r.prio("oldprio")).value(i64::from(r.prio("newprio")?));
        }
        _ => {
            row.tid(r.thread("")?).comm(name("comm")).prio(r.prio("prio"));
            row.target_cpu(r.cpu("target_cpu").or_else(|| r.cpu("dest_cpu"))).orig_cpu(r.cpu("orig_cpu"));
            row.value(f.int("delay").or_else(|| f.int("runtime")).or_else(|| f.int("success")))
                .value2(f.int("vruntime"));
        }
    }
    Some(())
}

/// What a state says, by name or number.
pub fn state(value: &[u8], states: &mut States) -> State {
    let mut found = None;
    for name in value.split(|b| *b == b'"').skip(1).step_by(2) {
        let state = match name.strip_prefix(b"__").unwrap_or(name) {
            b"TASK_RUNNING" => State::Runnable,
            b"TASK_INTERRUPTIBLE" => State::Sleeping,
            b"TASK_UNINTERRUPTIBLE" | b"TASK_KILLABLE" => State::Blocked,
            b"TASK_STOPPED" => State::Stopped,
            b"TASK_TRACED" => State::Traced,
            b"EXIT_DEAD" | b"TASK_DEAD" => State::Dead,
            b"EXIT_ZOMBIE" => State::Zombie,
            b"TASK_PARKED" => State::Parked,
            b"TASK_IDLE" => State::IdleKthread,
            b"TASK_STATE_MAX" | b"TASK_REPORT_MAX" => return State::Preempted,
            _ => continue,
        };
        found.get_or_insert(state);
    }
    let number = || {
        let digits = value.rsplit(|b| *b == b'=').next().unwrap_or(value);
        let digits: &[u8] = scan::trim(digits.strip_suffix(b")").unwrap_or(digits));
        scan::u64(digits)
    };
    match found {
        Some(state) => state,
        None => number().map_or(State::Unknown, |n| states.numbers.note(n, states.table)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_by_name_and_number() {
        let mut states = States { table: Table::Middle, numbers: Evidence::default() };
        let mut of = |text: &str| state(text.as_bytes(), &mut states);
        assert_eq!(of("0"), State::Runnable);
        assert_eq!(of("2048"), State::Preempted);
        assert_eq!(of(r#"( "TASK_INTERRUPTIBLE" : container = 1 )"#), State::Sleeping);
        assert_eq!(of(r#"( "TASK_RUNNING" | "TASK_STATE_MAX" : container = 2048 )"#), State::Preempted);
        assert_eq!(of(r#"( <unknown> : container = 64 )"#), State::Dead);
        assert_eq!(of("what"), State::Unknown);
    }

    #[test]
    fn tables_by_kernel_and_version() {
        assert_eq!(table("4.15.0-65-generic", writes_kept(2, 10, 11)), Some(Table::Kept));
        assert_eq!(table("4.15.0-65-generic", writes_kept(2, 10, 12)), Some(Table::New));
        assert_eq!(table("4.14.2", writes_kept(2, 12, 0)), Some(Table::New));
        assert_eq!(table("4.4.0", writes_kept(2, 8, 0)), Some(Table::Middle));
        assert_eq!(table("4.4.0", writes_kept(2, 13, 0)), Some(Table::Middle));
        assert_eq!(table("what", false), None);
    }
}
