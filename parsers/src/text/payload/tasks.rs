//! Tasks as payloads name them, read once and recognised after.
//!
//! The few tasks of a log stand in nearly all its lines, written in the same bytes. What was read of
//! them is kept beside those bytes, so that the next time a comparison does for all of it: name,
//! number and priority. All bytes that reading looked at are compared, so what is recognised is what
//! reading would say.

use tracekit_schema::{StrId, Strings};
use wide::u8x16;

use crate::text::swar::{find, is_at, load1, load16, load8, number_before, same32, short_number, Window, MASKS};

/// Texts that are kept.
const KEPT: usize = 512;

/// Eight bytes that are not ASCII have one of these bits.
const NOT_ASCII: u128 = u128::MAX / 255 * 0x80;

/// How a payload writes a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `NAME pid=TID`
    Pid,
    /// `NAME prev_pid=TID`
    PrevPid,
    /// `NAME next_pid=TID`
    NextPid,
    /// `NAME:TID [PRIO]`, of trace-cmd's plugin.
    Plugin,
}

/// A task that a line names.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// Its thread.
    pub tid: i64,
    /// Its priority, 0 where the form has none.
    pub prio: i32,
    /// Its name, where it was recognised.
    comm: Option<StrId>,
    form: Form,
    /// Column of the name.
    at: usize,
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
        // A line ends in a name where it was cut there.
        (key & NOT_ASCII == 0 && !key.to_le_bytes().contains(&b'\n')).then_some(Name { key, len: len as u8 })
    }
}

/// What was read of a text.
#[derive(Clone, Copy, Debug)]
struct Known {
    text: [u8x16; 2],
    /// Bit per byte of `text` that was looked at.
    looked_at: u32,
    len: u16,
    form: Form,
    prio: i32,
    tid: i64,
    comm: StrId,
}

impl Known {
    /// Nothing is known: no text has zeros alone.
    const NONE: Known =
        Known { text: [u8x16::ZERO; 2], looked_at: u32::MAX, len: 0, form: Form::Pid, prio: 0, tid: 0, comm: StrId(0) };

    #[inline(always)]
    fn is_at(&self, w: &Window, at: usize, form: Form) -> bool {
        same32(w, at, &self.text) & self.looked_at == self.looked_at && self.form == form
    }
}

/// The tasks that were read.
#[derive(Debug)]
pub struct Tasks {
    known: Vec<Known>,
}

impl Default for Tasks {
    fn default() -> Self {
        Tasks { known: vec![Known::NONE; KEPT] }
    }
}

impl Tasks {
    /// A task written as `form`, whose name starts at `at`, and the column after it; where it ends in
    /// a number, the byte there is no digit.
    #[inline(always)]
    pub fn read(&self, w: &Window, at: usize, form: Form) -> Option<(Task, usize)> {
        let place = place(w, at, form)?;
        let mut known = &self.known[place];
        if !known.is_at(w, at, form) {
            known = &self.known[place ^ 1];
            if !known.is_at(w, at, form) {
                return new(w, at, form).map(|(task, _, next)| (task, next));
            }
        }
        let task = Task { tid: known.tid, prio: known.prio, comm: Some(known.comm), form, at };
        Some((task, at + usize::from(known.len)))
    }

    /// The name of a task that was read in `w`.
    #[inline(always)]
    pub fn name(&mut self, w: &Window, task: &Task, strings: &mut Strings) -> StrId {
        match task.comm {
            Some(comm) => comm,
            None => self.keep(w, task, strings),
        }
    }

    #[inline(never)]
    fn keep(&mut self, w: &Window, task: &Task, strings: &mut Strings) -> StrId {
        let Task { at, form, .. } = *task;
        let (Some((_, name, next)), Some(place)) = (new(w, at, form), place(w, at, form)) else {
            unreachable!("it was read there")
        };
        let comm = strings.intern_short(name.key, name.len);
        // Behind a number the byte that ends it was looked at, too.
        let looked_at = next - at + usize::from(form != Form::Plugin);
        if looked_at <= 32 {
            let text = [at, at + 16].map(|at| u8x16::new(load16(w, at).to_le_bytes()));
            let looked_at = (u64::MAX >> (64 - looked_at)) as u32;
            let (len, tid, prio) = ((next - at) as u16, task.tid, task.prio);
            // Of two that fall on one place the older one moves next door.
            self.known[place ^ 1] = self.known[place];
            self.known[place] = Known { text, looked_at, len, form, prio, tid, comm };
        }
        comm
    }
}

/// Where what is known of a text at `at` stands; `None` where no task of this form is.
#[inline(always)]
fn place(w: &Window, at: usize, form: Form) -> Option<usize> {
    // The end of the name and the number.
    let word = match form {
        Form::Plugin => load8(w, find(w, at, b'[')?.wrapping_sub(8)),
        Form::Pid => around(w, find(w, at, b'=')?, 5),
        Form::PrevPid | Form::NextPid => around(w, find(w, at, b'=')?, 10),
    };
    Some((word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 55) as usize % KEPT)
}

/// The eight bytes before a key of `len` bytes that ends in the `=` at `equals`, and those behind it.
#[inline(always)]
fn around(w: &Window, equals: usize, len: usize) -> u64 {
    load8(w, (equals + 1).wrapping_sub(len + 8)).rotate_left(29) ^ load8(w, equals + 1)
}

/// Reads a task that is not known.
#[inline(never)]
fn new(w: &Window, at: usize, form: Form) -> Option<(Task, Name, usize)> {
    let (name, tid, prio, next) = match form {
        Form::Pid => keyed(w, at, b" pid=")?,
        Form::PrevPid => keyed(w, at, b" prev_pid=")?,
        Form::NextPid => keyed(w, at, b" next_pid=")?,
        Form::Plugin => plugin(w, at)?,
    };
    Some((Task { tid, prio, comm: None, form, at }, name, next))
}

/// A name and a number as `NAME<key>NUMBER`, where `key` is `N` bytes that end in `=`; the name
/// starts at `at`.
#[inline(always)]
fn keyed<const N: usize>(w: &Window, at: usize, key: &[u8; N]) -> Option<(Name, i64, i32, usize)> {
    let equals = find(w, at, b'=')?;
    let end = (equals + 1).wrapping_sub(N);
    if !is_at(w, end, key) {
        return None;
    }
    let (tid, next) = short_number(w, equals + 1)?;
    Some((Name::new(w, at, end)?, tid, 0, next))
}

/// A task of the plugin form, `NAME:TID [PRIO]`.
#[inline(always)]
fn plugin(w: &Window, at: usize) -> Option<(Name, i64, i32, usize)> {
    let bracket = find(w, at, b'[')?;
    let blank = bracket.wrapping_sub(1);
    let (tid, digits) = number_before(w, blank)?;
    let colon = digits.wrapping_sub(1);
    if load1(w, blank) != b' ' || load1(w, colon) != b':' {
        return None;
    }
    let (prio, next) = short_number(w, bracket + 1)?;
    (load1(w, next) == b']').then_some((Name::new(w, at, colon)?, tid, prio as i32, next + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Column of the texts: a line has a head.
    const AT: usize = 40;

    fn window(text: &[u8]) -> Window {
        let mut w: Window = [b'.'; std::mem::size_of::<Window>()];
        w[AT..AT + text.len()].copy_from_slice(text);
        w
    }

    /// Is the task that begins `text` still recognised where `other` stands instead?
    fn taken(form: Form, text: &[u8], other: &[u8]) -> bool {
        let (mut tasks, w) = (Tasks::default(), window(text));
        let (task, _) = tasks.read(&w, AT, form).expect("a task");
        tasks.name(&w, &task, &mut Strings::new());
        tasks.known.iter().filter(|known| known.len > 0).any(|known| known.is_at(&window(other), AT, form))
    }

    #[test]
    fn every_byte_that_was_looked_at_counts() {
        let (pid, plugin) = (&b"ab pid=16 prio=1"[..], &b"ab:16 [120] S"[..]);
        assert!(taken(Form::Pid, pid, b"ab pid=16 runtime") && taken(Form::Plugin, plugin, b"ab:16 [120]\n"));
        for other in [&b"ab pid=168"[..], b"ab pid=1 ", b"aB pid=16 ", b"b pid=16 ", b" ab pid=16 "] {
            assert!(!taken(Form::Pid, pid, other), "{other:?}");
        }
        for other in [&b"ab:16 [12] S"[..], b"ab:16 [121] S", b"ab:17 [120] S", b"ab:16 [1200] S"] {
            assert!(!taken(Form::Plugin, plugin, other), "{other:?}");
        }
        assert!(!taken(Form::PrevPid, b"ab prev_pid=16 ", b"ab next_pid=16 "));
    }

    #[test]
    fn a_text_is_recognised_in_its_own_form_alone() {
        let w = window(b"x prev_pid=3 p");
        let mut tasks = Tasks::default();
        let (task, end) = tasks.read(&w, AT, Form::PrevPid).expect("a task");
        tasks.name(&w, &task, &mut Strings::new());
        assert_eq!((task.tid, end), (3, AT + 12));
        assert!(tasks.known.iter().all(|known| !known.is_at(&w, AT, Form::Pid)));
        assert!(tasks.read(&w, AT, Form::Pid).is_none());
    }
}
