//! The shapes that nearly every line of a scheduler trace has, read without a search, a loop or a copy.
//!
//! A shape is fixed literals with a task name or a number between; the first byte that differs ends
//! the attempt, with nothing written, and [`decode`](super::decode) takes the line. A name is cut
//! at the *first* possible end here, at the last one there. Both agree, because here everything up
//! to the end of the line must be exactly what the shape says: a name that contains the literals
//! leaves a rest that does not fit.

use tracekit_schema::{Kind, Out, State, StrId, Strings};

use super::state;
use super::tasks::{Next, Pid, PidPrio, Plugin, Prev, Task, Tasks};
use crate::text::log::{Log, Stamp};
use crate::text::stage::Row;
use crate::text::swar::{blanks16, is_at, load1, number, short_number, Window, REACH};

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

/// Columns of an event's name, its colon and the blanks behind in a report of trace-cmd.
const NAME_WIDTH: usize = 22;

/// What the module keeps between lines.
#[derive(Debug, Default)]
pub struct Quick {
    /// Tasks of wakeups and migrations.
    tasks: Tasks<PidPrio>,
    /// Tasks of accounts, which have no priority.
    accounts: Tasks<Pid>,
    /// Tasks of switches.
    prev: Tasks<Prev>,
    next: Tasks<Next>,
    /// The same, as the plugin prints them; wakeups have one as `plugin_prev`.
    plugin_prev: Tasks<Plugin>,
    plugin_next: Tasks<Plugin>,
    /// State and string of a state of one letter, as the kernel prints it.
    letters: Letters,
    /// The same, as the plugin prints it.
    plugin_letters: Letters,
    /// A switch as the plugin prints it was met.
    pub plugin: bool,
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
        b'h' if is_at(w, at + 6, b"switch:") => line.switch(payload::<13>(w, at + 13)?),
        b'g' if is_at(w, at + 6, b"waking:") => line.wakeup(payload::<13>(w, at + 13)?, Kind::Waking, 1),
        b'p' if is_at(w, at + 6, b"wakeup:") => line.wakeup(payload::<13>(w, at + 13)?, Kind::Wakeup, 2),
        b'p' if is_at(w, at + 6, b"wakeup_new:") => line.wakeup(payload::<17>(w, at + 17)?, Kind::WakeupNew, 3),
        b't' if is_at(w, at + 6, b"migrate_task:") => line.migrate(payload::<19>(w, at + 19)?),
        b'r' if is_at(w, at + 6, b"stat_runtime:") => line.runtime(payload::<19>(w, at + 19)?),
        b'w' if is_at(w, at + 6, b"stat_wait:") => line.delay(payload::<16>(w, at + 16)?, Kind::StatWait, 6),
        b's' if is_at(w, at + 6, b"stat_sleep:") => line.delay(payload::<17>(w, at + 17)?, Kind::StatSleep, 7),
        b'b' if is_at(w, at + 6, b"stat_blocked:") => line.delay(payload::<19>(w, at + 19)?, Kind::StatBlocked, 8),
        b'i' if is_at(w, at + 6, b"stat_iowait:") => line.delay(payload::<18>(w, at + 18)?, Kind::StatIowait, 9),
        _ => None,
    }
}

/// The position after `text`, when it stands at `at`.
#[inline(always)]
fn after<const N: usize>(w: &Window, at: usize, text: &[u8; N]) -> Option<usize> {
    is_at(w, at, text).then_some(at + N)
}

/// Where the payload starts after the name and the colon of an event, `N` bytes that end before `at`.
///
/// The kernel puts one blank between, trace-cmd as many as fill [`NAME_WIDTH`] columns. These two are
/// compared with, so that what follows need not wait for a search.
#[inline(always)]
fn payload<const N: usize>(w: &Window, at: usize) -> Option<usize> {
    let blanks = blanks16(w, at);
    let padded = NAME_WIDTH - N;
    if blanks & 0b11 == 0b01 {
        return Some(at + 1);
    }
    if blanks & ((2 << padded) - 1) == (1 << padded) - 1 {
        return Some(at + padded);
    }
    (blanks & 1 != 0).then_some(at + blanks.trailing_ones() as usize)
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
    fn row(&mut self, kind: Kind, bit: u32, task: Task) -> Row<'_> {
        let quality = self.log.pass(self.stamp);
        self.log.quick_seen |= 1 << bit;
        self.log.stage.push(self.stamp, quality, kind, task.tid, task.comm)
    }

    #[inline(always)]
    fn switch(&mut self, at: usize) -> Option<usize> {
        let w = self.w;
        let Some(at) = after(w, at, b"prev_comm=") else { return self.plugin_switch(at) };
        let (prev, at) = self.quick.prev.read(w, at)?;
        let at = after(w, at, b" prev_state=")?;
        let (letter, at) = self.letter(at, false)?;
        let at = after(w, at, b" ==> next_comm=")?;
        let (next, at) = self.quick.next.read(w, at)?;
        let end = line_end(w, at)?;
        let next = self.quick.next.get(next, &mut self.out.strings);
        let prev = self.quick.prev.get(prev, &mut self.out.strings);
        self.set_switch(prev, letter, next);
        Some(end)
    }

    #[inline(always)]
    fn plugin_switch(&mut self, at: usize) -> Option<usize> {
        let w = self.w;
        let (prev, at) = self.quick.plugin_prev.read(w, at)?;
        let (letter, at) = self.letter(after(w, at, b" ")?, true)?;
        let (next, at) = self.quick.plugin_next.read(w, after(w, at, b" ==> ")?)?;
        let end = line_end(w, at)?;
        self.quick.plugin = true;
        let next = self.quick.plugin_next.get(next, &mut self.out.strings);
        let prev = self.quick.plugin_prev.get(prev, &mut self.out.strings);
        self.set_switch(prev, letter, next);
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
    fn set_switch(&mut self, prev: Task, state: (State, StrId), next: Task) {
        self.row(Kind::Switch, 0, prev).prio(prev.prio).switch(state, (next.tid, next.comm, next.prio));
    }

    #[inline(always)]
    fn wakeup(&mut self, at: usize, kind: Kind, bit: u32) -> Option<usize> {
        let w = self.w;
        let Some(name_at) = after(w, at, b"comm=") else { return self.plugin_wakeup(at, kind, bit) };
        let (task, at) = self.quick.tasks.read(w, name_at)?;
        let (success, at) = self.success(at)?;
        let (cpu, at) = short_number(w, after(w, at, b" target_cpu=")?)?;
        let end = line_end(w, at)?;
        let task = self.quick.tasks.get(task, &mut self.out.strings);
        self.set_wakeup((kind, bit), task, success, cpu as i32);
        Some(end)
    }

    #[inline(always)]
    fn plugin_wakeup(&mut self, at: usize, kind: Kind, bit: u32) -> Option<usize> {
        let w = self.w;
        let (task, at) = self.quick.plugin_prev.read(w, at)?;
        let (success, at) = self.success(at)?;
        let (cpu, at) = short_number(w, after(w, at, b" CPU:")?)?;
        let end = line_end(w, at)?;
        let task = self.quick.plugin_prev.get(task, &mut self.out.strings);
        self.set_wakeup((kind, bit), task, success, cpu as i32);
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
    fn set_wakeup(&mut self, what: (Kind, u32), task: Task, success: Option<i64>, cpu: i32) {
        self.row(what.0, what.1, task).prio(task.prio).target_cpu(cpu).value(success);
    }

    #[inline(always)]
    fn migrate(&mut self, at: usize) -> Option<usize> {
        let w = self.w;
        let (task, at) = self.quick.tasks.read(w, after(w, at, b"comm=")?)?;
        let (from, at) = short_number(w, after(w, at, b" orig_cpu=")?)?;
        let (to, at) = short_number(w, after(w, at, b" dest_cpu=")?)?;
        let end = line_end(w, at)?;
        let task = self.quick.tasks.get(task, &mut self.out.strings);
        let row = self.row(Kind::Migrate, 4, task).prio(task.prio);
        row.orig_cpu(from as i32).target_cpu(to as i32);
        Some(end)
    }

    #[inline(always)]
    fn runtime(&mut self, at: usize) -> Option<usize> {
        let w = self.w;
        let (task, at) = self.quick.accounts.read(w, after(w, at, b"comm=")?)?;
        let (ran, at) = number(w, after(w, at, b" runtime=")?)?;
        let mut at = after(w, at, b" [ns]")?;
        let mut vruntime = None;
        if let Some(next) = after(w, at, b" vruntime=") {
            let (n, next) = number(w, next)?;
            (vruntime, at) = (Some(n), after(w, next, b" [ns]")?);
        }
        let end = line_end(w, at)?;
        let task = self.quick.accounts.get(task, &mut self.out.strings);
        self.row(Kind::StatRuntime, 5, task).value(Some(ran)).value2(vruntime);
        Some(end)
    }

    #[inline(always)]
    fn delay(&mut self, at: usize, kind: Kind, bit: u32) -> Option<usize> {
        let w = self.w;
        let (task, at) = self.quick.accounts.read(w, after(w, at, b"comm=")?)?;
        let (delay, at) = number(w, after(w, at, b" delay=")?)?;
        let end = line_end(w, after(w, at, b" [ns]")?)?;
        let task = self.quick.accounts.get(task, &mut self.out.strings);
        self.row(kind, bit, task).value(Some(delay));
        Some(end)
    }
}
