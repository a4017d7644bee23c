//! The shapes that nearly every line of a scheduler trace has, read without a search, a loop or a copy.
//!
//! A shape is fixed literals with a task name or a number between; the first byte that differs ends the attempt, with
//! nothing written, and [`decode`](super::decode) takes the line. A name is cut at the *first* possible end here, at the
//! last one there. Both agree, because here everything up to the end of the line must be exactly what the shape says:
//! a name that contains the literals leaves a rest that does not fit.

use tracekit_schema::events::EventRow;
use tracekit_schema::{Kind, Out, State, StrId, Strings};

use super::state;
use crate::log::{Log, Stamp};
use crate::swar::{
    find, first_of8, is_at, load16, load8, number, number_before, short_number, skip_blanks, Window, MASKS,
};

/// Names of the events this module takes, in the order of their bits in [`Log::quick_seen`].
pub const NAMES: [&str; 10] = [
    "sched_switch",
    "sched_waking",
    "sched_wakeup",
    "sched_wakeup_new",
    "sched_migrate_task",
    "sched_stat_runtime",
    "sched_stat_wait",
    "sched_stat_sleep",
    "sched_stat_blocked",
    "sched_stat_iowait",
];

const fn word(text: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*text)
}

const PREFIX: u64 = word(b"sched_\0\0");
const SIX: u64 = (1 << 48) - 1;
const SWITCH: u64 = word(b"switch: ");
const WAKING: u64 = word(b"waking: ");
const WAKEUP: u64 = word(b"wakeup: ");
const WAKEUP_NEW: u64 = word(b"wakeup_n");
const MIGRATE: u64 = word(b"migrate_");
const RUNTIME: u64 = word(b"stat_run");
const WAIT: u64 = word(b"stat_wai");
const SLEEP: u64 = word(b"stat_sle");
const BLOCKED: u64 = word(b"stat_blo");
const IOWAIT: u64 = word(b"stat_iow");

/// Eight bytes that are not ASCII have one of these bits.
const NOT_ASCII: u128 = u128::MAX / 255 * 0x80;

/// What the module keeps between lines.
#[derive(Debug, Default)]
pub struct Quick {
    /// State and string of a state of one letter, as the kernel prints it.
    letters: Letters,
    /// The same, as the plugin prints it.
    plugin_letters: Letters,
}

#[derive(Debug)]
struct Letters {
    known: [Option<(State, StrId)>; 128],
}

impl Default for Letters {
    fn default() -> Self {
        Letters { known: [None; 128] }
    }
}

/// A name: its bytes in one integer, and their number.
#[derive(Clone, Copy)]
struct Name {
    key: u128,
    len: u8,
}

impl Name {
    #[inline(always)]
    fn new(w: &Window, from: usize, to: usize) -> Option<Self> {
        let len = to.checked_sub(from)?;
        let key = load16(w, from)? & MASKS.get(len)?;
        (key & NOT_ASCII == 0).then_some(Name { key, len: len as u8 })
    }

    #[inline(always)]
    fn intern(self, strings: &mut Strings) -> StrId {
        strings.intern_short(self.key, self.len)
    }
}

/// A line that is being read: the text, what its head said, and where its row goes.
struct Line<'a> {
    w: &'a Window,
    stamp: &'a Stamp,
    log: &'a mut Log,
    out: &'a mut Out,
}

/// Reads the event whose name starts at `at` and adds its row; the length of the line with its end, or `None`.
#[inline(always)]
pub fn event(quick: &mut Quick, w: &Window, at: usize, stamp: &Stamp, log: &mut Log, out: &mut Out) -> Option<usize> {
    if load8(w, at)? & SIX != PREFIX {
        return None;
    }
    let mut line = Line { w, stamp, log, out };
    match load8(w, at + 6)? {
        SWITCH => line.switch(at + 13, quick),
        WAKING => line.wakeup(at + 13, Kind::Waking, 1),
        WAKEUP => line.wakeup(at + 13, Kind::Wakeup, 2),
        WAKEUP_NEW if is_at(w, at + 14, b"ew:") => line.wakeup(at + 17, Kind::WakeupNew, 3),
        MIGRATE if is_at(w, at + 14, b"task:") => line.migrate(at + 19),
        RUNTIME if is_at(w, at + 14, b"time:") => line.runtime(at + 19),
        WAIT if is_at(w, at + 14, b"t:") => line.delay(at + 16, Kind::StatWait, 6),
        SLEEP if is_at(w, at + 14, b"ep:") => line.delay(at + 17, Kind::StatSleep, 7),
        BLOCKED if is_at(w, at + 14, b"cked:") => line.delay(at + 19, Kind::StatBlocked, 8),
        IOWAIT if is_at(w, at + 14, b"ait:") => line.delay(at + 18, Kind::StatIowait, 9),
        _ => None,
    }
}

/// The position after `text`, when it stands at `at`.
#[inline(always)]
fn after<const N: usize>(w: &Window, at: usize, text: &[u8; N]) -> Option<usize> {
    is_at(w, at, text).then_some(at + N)
}

/// The position after the line end at `at`.
#[inline(always)]
fn line_end(w: &Window, at: usize) -> Option<usize> {
    match w.get(at)? {
        b'\n' => Some(at + 1),
        b'\r' if w.get(at + 1) == Some(&b'\n') => Some(at + 2),
        _ => None,
    }
}

/// A name and a number as `NAME<key>NUMBER`, where `key` is `N` bytes that end in `=`; the name starts at `at`.
#[inline(always)]
fn keyed_task<const N: usize>(w: &Window, at: usize, key: &[u8; N]) -> Option<(Name, i64, usize)> {
    let equals = find(w, at, b'=')?;
    let end = (equals + 1).checked_sub(N)?;
    if !is_at(w, end, key) {
        return None;
    }
    let (tid, next) = short_number(w, equals + 1)?;
    Some((Name::new(w, at, end)?, tid, next))
}

/// A task of the plugin form, `NAME:TID [PRIO]`.
#[inline(always)]
fn plugin_task(w: &Window, at: usize) -> Option<(Name, i64, i32, usize)> {
    let bracket = find(w, at, b'[')?;
    let (tid, digits) = number_before(w, bracket - 1)?;
    let colon = digits.checked_sub(1)?;
    if w.get(bracket - 1) != Some(&b' ') || w.get(colon) != Some(&b':') {
        return None;
    }
    let (prio, next) = short_number(w, bracket + 1)?;
    Some((Name::new(w, at, colon)?, tid, prio as i32, after(w, next, b"]")?))
}

impl Line<'_> {
    #[inline(always)]
    fn begin(&mut self, kind: Kind, bit: u32) -> EventRow<'_> {
        self.log.quick_seen |= 1 << bit;
        let mut row = self.log.begin(&mut self.out.events, self.stamp);
        row.kind(kind);
        row
    }

    #[inline(always)]
    fn switch(&mut self, at: usize, quick: &mut Quick) -> Option<usize> {
        let w = self.w;
        let at = skip_blanks(w, at)?;
        let Some(at) = after(w, at, b"prev_comm=") else { return self.plugin_switch(at, quick) };
        let (prev, prev_tid, at) = keyed_task(w, at, b" prev_pid=")?;
        let (prev_prio, at) = short_number(w, after(w, at, b" prev_prio=")?)?;
        let at = after(w, at, b" prev_state=")?;
        let (letter, at) = self.letter(at, &mut quick.letters, state::from_letters)?;
        let at = after(w, at, b" ==> next_comm=")?;
        let (next, next_tid, at) = keyed_task(w, at, b" next_pid=")?;
        let (next_prio, at) = short_number(w, after(w, at, b" next_prio=")?)?;
        let end = line_end(w, at)?;
        self.set_switch((prev, prev_tid, prev_prio as i32), letter, (next, next_tid, next_prio as i32));
        Some(end)
    }

    #[inline(always)]
    fn plugin_switch(&mut self, at: usize, quick: &mut Quick) -> Option<usize> {
        let w = self.w;
        let (prev, prev_tid, prev_prio, at) = plugin_task(w, at)?;
        let (letter, at) = self.letter(after(w, at, b" ")?, &mut quick.plugin_letters, state::from_plugin_letters)?;
        let (next, next_tid, next_prio, at) = plugin_task(w, after(w, at, b" ==> ")?)?;
        let end = line_end(w, at)?;
        self.set_switch((prev, prev_tid, prev_prio), letter, (next, next_tid, next_prio));
        Some(end)
    }

    /// The state at `at`, which is one letter, alone or with a `+`.
    #[inline(always)]
    fn letter(
        &mut self,
        at: usize,
        letters: &mut Letters,
        meaning: fn(&[u8]) -> State,
    ) -> Option<((State, StrId), usize)> {
        let n = first_of8(load8(self.w, at)?, b' ');
        let letter = *self.w.get(at)?;
        if n == 1 {
            if let Some(Some(known)) = letters.known.get(usize::from(letter)) {
                return Some((*known, at + 1));
            }
        }
        self.new_letter(at, n, letters, meaning)
    }

    #[inline(never)]
    fn new_letter(
        &mut self,
        at: usize,
        n: usize,
        letters: &mut Letters,
        meaning: fn(&[u8]) -> State,
    ) -> Option<((State, StrId), usize)> {
        let text = self.w.get(at..at + n)?;
        match text {
            [letter] if letter.is_ascii_alphabetic() => {
                let known = (meaning(text), self.out.strings.intern(text));
                *letters.known.get_mut(usize::from(*letter))? = Some(known);
                Some((known, at + 1))
            }
            b"R+" => Some(((State::Preempted, self.out.strings.intern(text)), at + 2)),
            _ => None,
        }
    }

    #[inline(always)]
    fn set_switch(&mut self, prev: (Name, i64, i32), state: (State, StrId), next: (Name, i64, i32)) {
        let comm = prev.0.intern(&mut self.out.strings);
        let next_comm = next.0.intern(&mut self.out.strings);
        let mut row = self.begin(Kind::Switch, 0);
        row.tid(prev.1).comm(comm).prio(prev.2);
        row.next_tid(next.1).next_comm(next_comm).next_prio(next.2);
        row.state(state.0).state_raw(state.1);
    }

    #[inline(always)]
    fn wakeup(&mut self, at: usize, kind: Kind, bit: u32) -> Option<usize> {
        let w = self.w;
        let at = skip_blanks(w, at)?;
        let Some(name_at) = after(w, at, b"comm=") else { return self.plugin_wakeup(at, kind, bit) };
        let (name, tid, at) = keyed_task(w, name_at, b" pid=")?;
        let (prio, at) = short_number(w, after(w, at, b" prio=")?)?;
        let (success, at) = self.success(at)?;
        let (cpu, at) = short_number(w, after(w, at, b" target_cpu=")?)?;
        let end = line_end(w, at)?;
        self.set_wakeup((kind, bit), (name, tid, prio as i32), success, cpu as i32);
        Some(end)
    }

    #[inline(always)]
    fn plugin_wakeup(&mut self, at: usize, kind: Kind, bit: u32) -> Option<usize> {
        let w = self.w;
        let (name, tid, prio, at) = plugin_task(w, at)?;
        let (success, at) = self.success(at)?;
        let (cpu, at) = short_number(w, after(w, at, b" CPU:")?)?;
        let end = line_end(w, at)?;
        self.set_wakeup((kind, bit), (name, tid, prio), success, cpu as i32);
        Some(end)
    }

    #[inline(always)]
    fn success(&self, at: usize) -> Option<(Option<i64>, usize)> {
        match after(self.w, at, b" success=") {
            Some(at) => short_number(self.w, at).map(|(n, at)| (Some(n), at)),
            None => Some((None, at)),
        }
    }

    #[inline(always)]
    fn set_wakeup(&mut self, what: (Kind, u32), task: (Name, i64, i32), success: Option<i64>, cpu: i32) {
        let comm = task.0.intern(&mut self.out.strings);
        let mut row = self.begin(what.0, what.1);
        row.tid(task.1).comm(comm).prio(task.2).target_cpu(cpu).value(success);
    }

    #[inline(always)]
    fn migrate(&mut self, at: usize) -> Option<usize> {
        let w = self.w;
        let at = after(w, skip_blanks(w, at)?, b"comm=")?;
        let (name, tid, at) = keyed_task(w, at, b" pid=")?;
        let (prio, at) = short_number(w, after(w, at, b" prio=")?)?;
        let (from, at) = short_number(w, after(w, at, b" orig_cpu=")?)?;
        let (to, at) = short_number(w, after(w, at, b" dest_cpu=")?)?;
        let end = line_end(w, at)?;
        let comm = name.intern(&mut self.out.strings);
        let mut row = self.begin(Kind::Migrate, 4);
        row.tid(tid).comm(comm).prio(prio as i32).orig_cpu(from as i32).target_cpu(to as i32);
        Some(end)
    }

    #[inline(always)]
    fn runtime(&mut self, at: usize) -> Option<usize> {
        let w = self.w;
        let at = after(w, skip_blanks(w, at)?, b"comm=")?;
        let (name, tid, at) = keyed_task(w, at, b" pid=")?;
        let (ran, at) = number(w, after(w, at, b" runtime=")?)?;
        let mut at = after(w, at, b" [ns]")?;
        let mut vruntime = None;
        if let Some(next) = after(w, at, b" vruntime=") {
            let (n, next) = number(w, next)?;
            (vruntime, at) = (Some(n), after(w, next, b" [ns]")?);
        }
        let end = line_end(w, at)?;
        let comm = name.intern(&mut self.out.strings);
        let mut row = self.begin(Kind::StatRuntime, 5);
        row.tid(tid).comm(comm).value(ran).value2(vruntime);
        Some(end)
    }

    #[inline(always)]
    fn delay(&mut self, at: usize, kind: Kind, bit: u32) -> Option<usize> {
        let w = self.w;
        let at = after(w, skip_blanks(w, at)?, b"comm=")?;
        let (name, tid, at) = keyed_task(w, at, b" pid=")?;
        let (delay, at) = number(w, after(w, at, b" delay=")?)?;
        let end = line_end(w, after(w, at, b" [ns]")?)?;
        let comm = name.intern(&mut self.out.strings);
        let mut row = self.begin(kind, bit);
        row.tid(tid).comm(comm).value(delay);
        Some(end)
    }
}
