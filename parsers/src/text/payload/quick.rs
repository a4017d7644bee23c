//! The shapes that nearly every line of a scheduler trace has, read without a search, a loop or a copy.
//!
//! A shape is fixed literals with a task name or a number between; the first byte that differs ends
//! the attempt, with nothing written, and [`decode`](super::decode) takes the line. A name is cut
//! at the *first* possible end here, at the last one there. Both agree, because here everything up
//! to the end of the line must be exactly what the shape says: a name that contains the literals
//! leaves a rest that does not fit.

use tracekit_schema::{Kind, Out, State, StrId, Strings};

use super::state;
use crate::text::log::{Log, Stamp};
use crate::text::stage::Row;
use crate::text::swar::{
    find, is_at, load1, load16, number, number_before, short_number, skip_blanks, Window, MASKS, REACH,
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

/// Eight bytes that are not ASCII have one of these bits.
const NOT_ASCII: u128 = u128::MAX / 255 * 0x80;

/// What the module keeps between lines.
#[derive(Debug)]
pub struct Quick {
    /// The last name of a thread, by the low bits of its number: names change rarely.
    names: [(Name, StrId); NAMES_KEPT],
    /// State and string of a state of one letter, as the kernel prints it.
    letters: Letters,
    /// The same, as the plugin prints it.
    plugin_letters: Letters,
}

const NAMES_KEPT: usize = 256;

impl Default for Quick {
    fn default() -> Self {
        let none = (Name { key: 0, len: u8::MAX }, StrId(0));
        Quick { names: [none; NAMES_KEPT], letters: Letters::default(), plugin_letters: Letters::default() }
    }
}

impl Quick {
    #[inline(always)]
    fn intern(&mut self, tid: i64, name: Name, strings: &mut Strings) -> StrId {
        let kept = &mut self.names[tid as usize % NAMES_KEPT];
        if kept.0.key != name.key || kept.0.len != name.len {
            *kept = (name, strings.intern_short(name.key, name.len));
        }
        kept.1
    }
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
#[derive(Clone, Copy, Debug)]
struct Name {
    key: u128,
    len: u8,
}

impl Name {
    #[inline(always)]
    fn new(w: &Window, from: usize, to: usize) -> Option<Self> {
        let len = to.checked_sub(from)?;
        let key = load16(w, from) & MASKS.get(len)?;
        (key & NOT_ASCII == 0).then_some(Name { key, len: len as u8 })
    }
}

/// A line that is being read: the text, what its head said, and where its row goes.
struct Line<'a> {
    w: &'a Window,
    stamp: &'a Stamp,
    log: &'a mut Log,
    out: &'a mut Out,
    quick: &'a mut Quick,
}

/// Reads the event whose name starts at `at` and adds its row; the length of the line with its end,
/// or `None`.
#[inline(always)]
pub fn event(quick: &mut Quick, w: &Window, at: usize, stamp: &Stamp, log: &mut Log, out: &mut Out) -> Option<usize> {
    if !is_at(w, at, b"sched_") {
        return None;
    }
    let mut line = Line { w, stamp, log, out, quick };
    // The twelfth byte distinguishes them, all but one.
    match load1(w, at + 11) {
        b'h' if is_at(w, at + 6, b"switch:") => line.switch(at + 13),
        b'g' if is_at(w, at + 6, b"waking:") => line.wakeup(at + 13, Kind::Waking, 1),
        b'p' if is_at(w, at + 6, b"wakeup:") => line.wakeup(at + 13, Kind::Wakeup, 2),
        b'p' if is_at(w, at + 6, b"wakeup_new:") => line.wakeup(at + 17, Kind::WakeupNew, 3),
        b't' if is_at(w, at + 6, b"migrate_task:") => line.migrate(at + 19),
        b'r' if is_at(w, at + 6, b"stat_runtime:") => line.runtime(at + 19),
        b'w' if is_at(w, at + 6, b"stat_wait:") => line.delay(at + 16, Kind::StatWait, 6),
        b's' if is_at(w, at + 6, b"stat_sleep:") => line.delay(at + 17, Kind::StatSleep, 7),
        b'b' if is_at(w, at + 6, b"stat_blocked:") => line.delay(at + 19, Kind::StatBlocked, 8),
        b'i' if is_at(w, at + 6, b"stat_iowait:") => line.delay(at + 18, Kind::StatIowait, 9),
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
    let end = match load1(w, at) {
        b'\n' => at + 1,
        b'\r' if load1(w, at + 1) == b'\n' => at + 2,
        _ => return None,
    };
    (end <= REACH).then_some(end)
}

/// A name and a number as `NAME<key>NUMBER`, where `key` is `N` bytes that end in `=`; the name
/// starts at `at`.
#[inline(always)]
fn keyed_task<const N: usize>(w: &Window, at: usize, key: &[u8; N]) -> Option<(Name, i64, usize)> {
    let equals = find(w, at, b'=')?;
    let end = (equals + 1).wrapping_sub(N);
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
    let blank = bracket.wrapping_sub(1);
    let (tid, digits) = number_before(w, blank)?;
    let colon = digits.wrapping_sub(1);
    if load1(w, blank) != b' ' || load1(w, colon) != b':' {
        return None;
    }
    let (prio, next) = short_number(w, bracket + 1)?;
    Some((Name::new(w, at, colon)?, tid, prio as i32, after(w, next, b"]")?))
}

/// As [`Line::letter`], for a state of more than a letter, or one that was not met before.
#[inline(never)]
fn new_letter(
    w: &Window,
    at: usize,
    plugin: bool,
    quick: &mut Quick,
    strings: &mut Strings,
) -> Option<((State, StrId), usize)> {
    if is_at(w, at, b"R+ ") {
        return Some(((State::Preempted, strings.intern(b"R+")), at + 2));
    }
    let letter = load1(w, at);
    if load1(w, at + 1) != b' ' || !letter.is_ascii_alphabetic() {
        return None;
    }
    let raw = strings.intern(&[letter]);
    let (letters, meaning) = match plugin {
        true => (&mut quick.plugin_letters, state::from_plugin_letters(&[letter])),
        false => (&mut quick.letters, state::from_letters(&[letter])),
    };
    letters.known[usize::from(letter)] = Some((meaning, raw));
    Some(((meaning, raw), at + 1))
}

impl Line<'_> {
    #[inline(always)]
    fn row(&mut self, kind: Kind, bit: u32, tid: i64, name: Name) -> Row<'_> {
        let comm = self.quick.intern(tid, name, &mut self.out.strings);
        let quality = self.log.pass(self.stamp);
        self.log.quick_seen |= 1 << bit;
        self.log.stage.push(self.stamp, quality, kind, tid, comm)
    }

    #[inline(always)]
    fn switch(&mut self, at: usize) -> Option<usize> {
        let w = self.w;
        let at = skip_blanks(w, at);
        let Some(at) = after(w, at, b"prev_comm=") else { return self.plugin_switch(at) };
        let (prev, prev_tid, at) = keyed_task(w, at, b" prev_pid=")?;
        let (prev_prio, at) = short_number(w, after(w, at, b" prev_prio=")?)?;
        let at = after(w, at, b" prev_state=")?;
        let (letter, at) = self.letter(at, false)?;
        let at = after(w, at, b" ==> next_comm=")?;
        let (next, next_tid, at) = keyed_task(w, at, b" next_pid=")?;
        let (next_prio, at) = short_number(w, after(w, at, b" next_prio=")?)?;
        let end = line_end(w, at)?;
        self.set_switch((prev, prev_tid, prev_prio as i32), letter, (next, next_tid, next_prio as i32));
        Some(end)
    }

    #[inline(always)]
    fn plugin_switch(&mut self, at: usize) -> Option<usize> {
        let w = self.w;
        let (prev, prev_tid, prev_prio, at) = plugin_task(w, at)?;
        let (letter, at) = self.letter(after(w, at, b" ")?, true)?;
        let (next, next_tid, next_prio, at) = plugin_task(w, after(w, at, b" ==> ")?)?;
        let end = line_end(w, at)?;
        self.set_switch((prev, prev_tid, prev_prio), letter, (next, next_tid, next_prio));
        Some(end)
    }

    /// The state at `at`, which is one letter, alone or with a `+`.
    #[inline(always)]
    fn letter(&mut self, at: usize, plugin: bool) -> Option<((State, StrId), usize)> {
        let letter = load1(self.w, at);
        if load1(self.w, at + 1) == b' ' {
            let letters = if plugin { &self.quick.plugin_letters } else { &self.quick.letters };
            if let Some(known) = letters.known[usize::from(letter % 128)] {
                return (letter < 128).then_some((known, at + 1));
            }
        }
        new_letter(self.w, at, plugin, self.quick, &mut self.out.strings)
    }

    #[inline(always)]
    fn set_switch(&mut self, prev: (Name, i64, i32), state: (State, StrId), next: (Name, i64, i32)) {
        let next_comm = self.quick.intern(next.1, next.0, &mut self.out.strings);
        self.row(Kind::Switch, 0, prev.1, prev.0).prio(prev.2).switch(state, (next.1, next_comm, next.2));
    }

    #[inline(always)]
    fn wakeup(&mut self, at: usize, kind: Kind, bit: u32) -> Option<usize> {
        let w = self.w;
        let at = skip_blanks(w, at);
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
        self.row(what.0, what.1, task.1, task.0).prio(task.2).target_cpu(cpu).value(success);
    }

    #[inline(always)]
    fn migrate(&mut self, at: usize) -> Option<usize> {
        let w = self.w;
        let at = after(w, skip_blanks(w, at), b"comm=")?;
        let (name, tid, at) = keyed_task(w, at, b" pid=")?;
        let (prio, at) = short_number(w, after(w, at, b" prio=")?)?;
        let (from, at) = short_number(w, after(w, at, b" orig_cpu=")?)?;
        let (to, at) = short_number(w, after(w, at, b" dest_cpu=")?)?;
        let end = line_end(w, at)?;
        let row = self.row(Kind::Migrate, 4, tid, name).prio(prio as i32);
        row.orig_cpu(from as i32).target_cpu(to as i32);
        Some(end)
    }

    #[inline(always)]
    fn runtime(&mut self, at: usize) -> Option<usize> {
        let w = self.w;
        let at = after(w, skip_blanks(w, at), b"comm=")?;
        let (name, tid, at) = keyed_task(w, at, b" pid=")?;
        let (ran, at) = number(w, after(w, at, b" runtime=")?)?;
        let mut at = after(w, at, b" [ns]")?;
        let mut vruntime = None;
        if let Some(next) = after(w, at, b" vruntime=") {
            let (n, next) = number(w, next)?;
            (vruntime, at) = (Some(n), after(w, next, b" [ns]")?);
        }
        let end = line_end(w, at)?;
        self.row(Kind::StatRuntime, 5, tid, name).value(Some(ran)).value2(vruntime);
        Some(end)
    }

    #[inline(always)]
    fn delay(&mut self, at: usize, kind: Kind, bit: u32) -> Option<usize> {
        let w = self.w;
        let at = after(w, skip_blanks(w, at), b"comm=")?;
        let (name, tid, at) = keyed_task(w, at, b" pid=")?;
        let (delay, at) = number(w, after(w, at, b" delay=")?)?;
        let end = line_end(w, after(w, at, b" [ns]")?)?;
        self.row(kind, bit, tid, name).value(Some(delay));
        Some(end)
    }
}
