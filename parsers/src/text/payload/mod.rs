//! The payloads of Linux tracepoints as text: `prev_comm=... prev_pid=...` and its relatives.
//!
//! The kernel's `trace` file, `trace-cmd report` and `perf script` print the same payloads behind
//! different line heads. [`decode`] takes any of them, in all their historical forms; [`quick`]
//! takes the handful of shapes that make up nearly all lines of a scheduler trace, byte by fixed
//! byte, and leaves the rest to [`decode`]. Both give the same row.
//!
//! A task name may hold blanks, `=`, `[` and `:`, so names are cut out between literals found from
//! the *right*.

pub mod other;
pub mod quick;
pub mod sched;
pub mod state;
mod tasks;

use crate::text::scan;
use tracekit_schema::events::EventRow;
use tracekit_schema::{Kind, StrId, Strings};

/// What a decoder may use and note.
pub struct Context<'a> {
    /// The strings of the tables.
    pub strings: &'a mut Strings,
    /// Meaning of states printed as numbers.
    pub states: state::Table,
    /// The states that were printed as numbers.
    pub numbers: &'a mut state::Evidence,
}

/// How far a payload was understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The row's columns are set.
    Known(Kind),
    /// No kind for this event; nothing is set but `kind`, `name` and `raw`.
    Unknown,
    /// The event has a kind, its payload does not have the fields; set as for [`Self::Unknown`].
    Partial,
}

/// With more distinct strings than this, new texts of markers are not kept: memory must not grow
/// with the source.
const MOST_STRINGS: usize = 1 << 20;

/// Decodes `payload` of the event `name` (without its subsystem) into `row`.
pub fn decode(name: &[u8], payload: &[u8], row: &mut EventRow<'_>, cx: &mut Context<'_>) -> Outcome {
    let payload = payload.trim_ascii_end();
    if let Some(kind) = sched_kind(name) {
        return match sched::decode(kind, payload, row, cx) {
            Some(()) => known(kind, row),
            None => keep(name, payload, row, cx, Outcome::Partial),
        };
    }
    match other::decode(name, payload, row, cx) {
        Some(Some(kind)) => known(kind, row),
        Some(None) => keep(name, payload, row, cx, Outcome::Partial),
        None => keep(name, payload, row, cx, Outcome::Unknown),
    }
}

fn known(kind: Kind, row: &mut EventRow<'_>) -> Outcome {
    row.kind(kind);
    Outcome::Known(kind)
}

/// A row of kind `other`: the event's own name, and its payload as text.
fn keep(name: &[u8], payload: &[u8], row: &mut EventRow<'_>, cx: &mut Context<'_>, outcome: Outcome) -> Outcome {
    row.kind(Kind::Other).name(cx.strings.intern(name)).raw(cx.strings.keep(payload));
    outcome
}

/// `text` as a string of the tables, unless there are too many of them already.
pub fn text(text: &[u8], strings: &mut Strings) -> Option<StrId> {
    match strings.find(text) {
        Some(id) => Some(id),
        None => (strings.len() < MOST_STRINGS).then(|| strings.intern(text)),
    }
}

/// `EVENT: PAYLOAD`.
pub fn split_event(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr::memchr(b':', body)?;
    let (name, rest) = (&body[..colon], &body[colon + 1..]);
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    let ok = !name.is_empty() && name.iter().all(is_name) && rest.first().is_none_or(|b| scan::is_blank(*b));
    ok.then(|| (name, scan::skip_blanks(rest)))
}

/// False for `EVENT: PAYLOAD` of a last line without a line end, when a number that identifies
/// something may have been cut. A cut priority is a smaller harm than a lost event.
pub fn may_be_whole(body: &[u8]) -> bool {
    let Some((name, payload)) = split_event(body) else { return false };
    if !name.starts_with(b"sched_") {
        return !payload.is_empty();
    }
    const LAST: [&[u8]; 5] = [b"next_prio=", b"dest_cpu=", b"prio=", b"newprio=", b"group_dead="];
    let at = memchr::memrchr(b' ', payload).map_or(0, |i| i + 1);
    let word = &payload[at..];
    let full = |key: &&[u8]| word.strip_prefix(*key).is_some_and(|v| !v.is_empty());
    let cpu = word.strip_prefix(b"target_cpu=").or_else(|| word.strip_prefix(b"CPU:"));
    // perf may print a symbol in parentheses behind the payload.
    payload.ends_with(b"]") || payload.ends_with(b")") || LAST.iter().any(full) || cpu.is_some_and(|n| n.len() >= 3)
}

/// Kind of a scheduler event.
pub fn sched_kind(name: &[u8]) -> Option<Kind> {
    Some(match name.strip_prefix(b"sched_")? {
        b"switch" => Kind::Switch,
        b"waking" => Kind::Waking,
        b"wakeup" => Kind::Wakeup,
        b"wakeup_new" => Kind::WakeupNew,
        b"migrate_task" => Kind::Migrate,
        b"process_fork" => Kind::Fork,
        b"process_exec" => Kind::Exec,
        b"process_exit" => Kind::Exit,
        b"process_free" => Kind::Free,
        b"process_wait" => Kind::Wait,
        b"stat_wait" => Kind::StatWait,
        b"stat_sleep" => Kind::StatSleep,
        b"stat_blocked" => Kind::StatBlocked,
        b"stat_iowait" => Kind::StatIowait,
        b"stat_runtime" => Kind::StatRuntime,
        b"pi_setprio" => Kind::Prio,
        b"blocked_reason" => Kind::BlockedReason,
        _ => return None,
    })
}
