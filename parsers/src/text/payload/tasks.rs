//! Tasks as payloads name them, read once and recognised after.
//!
//! The few tasks of a log stand in nearly all its lines, written in the same bytes. What was read of
//! them is kept beside those bytes, so that the next time a comparison does for all of it: name,
//! number and priority. All bytes that reading looked at are compared, so what is recognised is what
//! reading would say.

use std::marker::PhantomData;

use tracekit_schema::{StrId, Strings};
use wide::u8x16;

use crate::text::swar::{
    find, find16, is_at, load1, load16, load8, number_before, same48, short_number, Window, MASKS,
};

/// Texts of one form that are kept.
const KEPT: usize = 1024;

/// Bytes of a text that can be kept.
const LONGEST: usize = 48;

/// Eight bytes that are not ASCII have one of these bits.
const NOT_ASCII: u128 = u128::MAX / 255 * 0x80;

/// How a payload writes a task.
pub trait Form {
    /// The byte behind the text is looked at, too: a number ends there.
    const ENDS_IN_NUMBER: bool;
    /// Bytes that tell the texts at `at` apart; `None` where no task of this form is.
    fn key(w: &Window, at: usize) -> Option<u64>;
    /// Takes the text at `at` apart.
    fn read(w: &Window, at: usize) -> Option<Text>;
}

/// `NAME pid=TID`
#[derive(Debug)]
pub struct Pid;

impl Form for Pid {
    const ENDS_IN_NUMBER: bool = true;
    #[inline(always)]
    fn key(w: &Window, at: usize) -> Option<u64> {
        around(w, at, 5)
    }
    fn read(w: &Window, at: usize) -> Option<Text> {
        keyed(w, at, b" pid=")
    }
}

/// `NAME pid=TID prio=PRIO`
#[derive(Debug)]
pub struct PidPrio;

impl Form for PidPrio {
    const ENDS_IN_NUMBER: bool = true;
    #[inline(always)]
    fn key(w: &Window, at: usize) -> Option<u64> {
        around(w, at, 5)
    }
    fn read(w: &Window, at: usize) -> Option<Text> {
        with_prio(w, keyed(w, at, b" pid=")?, b" prio=")
    }
}

/// `NAME prev_pid=TID prev_prio=PRIO`
#[derive(Debug)]
pub struct Prev;

impl Form for Prev {
    const ENDS_IN_NUMBER: bool = true;
    #[inline(always)]
    fn key(w: &Window, at: usize) -> Option<u64> {
        around(w, at, 10)
    }
    fn read(w: &Window, at: usize) -> Option<Text> {
        with_prio(w, keyed(w, at, b" prev_pid=")?, b" prev_prio=")
    }
}

/// `NAME next_pid=TID next_prio=PRIO`
#[derive(Debug)]
pub struct Next;

impl Form for Next {
    const ENDS_IN_NUMBER: bool = true;
    #[inline(always)]
    fn key(w: &Window, at: usize) -> Option<u64> {
        around(w, at, 10)
    }
    fn read(w: &Window, at: usize) -> Option<Text> {
        with_prio(w, keyed(w, at, b" next_pid=")?, b" next_prio=")
    }
}

/// `NAME:TID [PRIO]`, of trace-cmd's plugin.
#[derive(Debug)]
pub struct Plugin;

impl Form for Plugin {
    const ENDS_IN_NUMBER: bool = false;
    #[inline(always)]
    fn key(w: &Window, at: usize) -> Option<u64> {
        Some(load8(w, find(w, at, b'[')?.wrapping_sub(8)))
    }
    fn read(w: &Window, at: usize) -> Option<Text> {
        plugin(w, at)
    }
}

/// What a text says of a task.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    name_len: u8,
    tid: i64,
    /// 0 where the form has none.
    prio: i32,
    /// The column behind the text.
    next: usize,
}

/// A task that a line names.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// Its thread.
    pub tid: i64,
    /// Its priority, 0 where the form has none.
    pub prio: i32,
    /// Its name.
    pub comm: StrId,
}

/// The length of the name between two columns; `None` where it is too long for a name.
fn name_len(w: &Window, from: usize, to: usize) -> Option<u8> {
    let len = to.checked_sub(from)?;
    let name = load16(w, from) & MASKS.get(len)?;
    // A line ends in a name where it was cut there.
    (name & NOT_ASCII == 0 && !name.to_le_bytes().contains(&b'\n')).then_some(len as u8)
}

/// What was read of a text.
#[derive(Clone, Copy, Debug)]
struct Known {
    text: [u8x16; LONGEST / 16],
    /// Bit per byte of `text` that was looked at.
    looked_at: u64,
    tid: i64,
    prio: i32,
    /// Its name in the strings, once a row had it.
    comm: Option<StrId>,
    len: u8,
    name_len: u8,
}

impl Known {
    /// Nothing is known: no text has zeros alone.
    const NONE: Known = Known {
        text: [u8x16::ZERO; LONGEST / 16],
        looked_at: u64::MAX >> (64 - LONGEST),
        tid: 0,
        prio: 0,
        comm: None,
        len: 0,
        name_len: 0,
    };

    #[inline(always)]
    fn is_at(&self, w: &Window, at: usize) -> bool {
        same48(w, at, &self.text) & self.looked_at == self.looked_at
    }
}

/// The tasks that were read in one form. A line has at most one task of each.
#[derive(Debug)]
pub struct Tasks<F> {
    known: Box<[Known; KEPT]>,
    form: PhantomData<F>,
}

impl<F> Default for Tasks<F> {
    fn default() -> Self {
        Tasks { known: vec![Known::NONE; KEPT].try_into().expect("so many"), form: PhantomData }
    }
}

impl<F: Form> Tasks<F> {
    /// The place of the task whose name starts at `at`, and the column after it; where it ends in
    /// a number, the byte there is no digit. The place is good until the next task is read.
    #[inline(always)]
    pub fn read(&mut self, w: &Window, at: usize) -> Option<(usize, usize)> {
        let key = F::key(w, at)?;
        let mut place = ((key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize % KEPT) & !1;
        if !self.known[place].is_at(w, at) {
            if self.known[place + 1].is_at(w, at) {
                place += 1;
            } else {
                self.learn(w, at, place)?;
            }
        }
        Some((place, at + usize::from(self.known[place].len)))
    }

    /// Keeps what the text at `at` says at `place`, the first of a pair.
    #[inline(never)]
    fn learn(&mut self, w: &Window, at: usize, place: usize) -> Option<()> {
        let Text { name_len, tid, prio, next } = F::read(w, at)?;
        let len = next - at;
        let looked_at = len + usize::from(F::ENDS_IN_NUMBER);
        if looked_at > LONGEST {
            return None;
        }
        // Of two that fall on one pair of places the older one moves next door.
        self.known[place + 1] = self.known[place];
        self.known[place] = Known {
            text: [at, at + 16, at + 32].map(|at| u8x16::new(load16(w, at).to_le_bytes())),
            looked_at: u64::MAX >> (64 - looked_at),
            tid,
            prio,
            comm: None,
            len: len as u8,
            name_len,
        };
        Some(())
    }

    /// The task at `place`, with its name among `strings`.
    #[inline(always)]
    pub fn get(&mut self, place: usize, strings: &mut Strings) -> Task {
        let known = &mut self.known[place % KEPT];
        let comm = match known.comm {
            Some(comm) => comm,
            None => known.intern(strings),
        };
        Task { tid: known.tid, prio: known.prio, comm }
    }
}

impl Known {
    #[inline(never)]
    fn intern(&mut self, strings: &mut Strings) -> StrId {
        let key = u128::from_le_bytes(self.text[0].to_array()) & MASKS[usize::from(self.name_len)];
        *self.comm.insert(strings.intern_short(key, self.name_len))
    }
}

/// The eight bytes before a key of `len` bytes that ends in the first `=` behind the name at `at`,
/// and those behind it.
#[inline(always)]
fn around(w: &Window, at: usize, len: usize) -> Option<u64> {
    let equals = find16(w, at + len - 1, b'=')?;
    Some(load8(w, (equals + 1).wrapping_sub(len + 8)).rotate_left(29) ^ load8(w, equals + 1))
}

/// A name and a number as `NAME<key>NUMBER`, where `key` is `N` bytes that end in `=`; the name
/// starts at `at`.
fn keyed<const N: usize>(w: &Window, at: usize, key: &[u8; N]) -> Option<Text> {
    let equals = find16(w, at + N - 1, b'=')?;
    let end = (equals + 1).wrapping_sub(N);
    if !is_at(w, end, key) {
        return None;
    }
    let (tid, next) = short_number(w, equals + 1)?;
    Some(Text { name_len: name_len(w, at, end)?, tid, prio: 0, next })
}

/// A task and, behind `key`, its priority.
fn with_prio<const N: usize>(w: &Window, task: Text, key: &[u8; N]) -> Option<Text> {
    if !is_at(w, task.next, key) {
        return None;
    }
    let (prio, next) = short_number(w, task.next + N)?;
    Some(Text { prio: prio as i32, next, ..task })
}

/// A task of the plugin form, `NAME:TID [PRIO]`.
fn plugin(w: &Window, at: usize) -> Option<Text> {
    let bracket = find(w, at, b'[')?;
    let blank = bracket.wrapping_sub(1);
    let (tid, digits) = number_before(w, blank)?;
    let colon = digits.wrapping_sub(1);
    if load1(w, blank) != b' ' || load1(w, colon) != b':' {
        return None;
    }
    let (prio, next) = short_number(w, bracket + 1)?;
    let name_len = name_len(w, at, colon)?;
    (load1(w, next) == b']').then_some(Text { name_len, tid, prio: prio as i32, next: next + 1 })
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

    /// The tasks that know the one which begins `text`, and the column after it.
    fn known<F: Form>(text: &[u8]) -> (Tasks<F>, usize) {
        let mut tasks = Tasks::default();
        let (_, end) = tasks.read(&window(text), AT).expect("a task");
        (tasks, end)
    }

    /// Is the task that begins `text` still recognised where `other` stands instead?
    fn taken<F: Form>(text: &[u8], other: &[u8]) -> bool {
        let (tasks, _) = known::<F>(text);
        tasks.known.iter().filter(|known| known.len > 0).any(|known| known.is_at(&window(other), AT))
    }

    #[test]
    fn every_byte_that_was_looked_at_counts() {
        let (pid, plugin) = (&b"ab pid=16 prio=1"[..], &b"ab:16 [120] S"[..]);
        assert!(taken::<Pid>(pid, b"ab pid=16 runtime") && taken::<Plugin>(plugin, b"ab:16 [120]\n"));
        for other in [&b"ab pid=168"[..], b"ab pid=1 ", b"aB pid=16 ", b"b pid=16 ", b" ab pid=16 "] {
            assert!(!taken::<Pid>(pid, other), "{other:?}");
        }
        for other in [&b"ab:16 [12] S"[..], b"ab:16 [121] S", b"ab:17 [120] S", b"ab:16 [1200] S"] {
            assert!(!taken::<Plugin>(plugin, other), "{other:?}");
        }
        let next = &b"fifteen letters next_pid=1234567 next_prio=120\n"[..];
        assert!(taken::<Next>(next, next));
        for other in [&b"fifteen letters next_pid=1234567 next_prio=1200\n"[..], &next[1..]] {
            assert!(!taken::<Next>(next, other), "{other:?}");
        }
        assert!(!taken::<Prev>(b"ab prev_pid=16 prev_prio=1 ", b"ab next_pid=16 next_prio=1 "));
    }

    #[test]
    fn a_task_is_what_its_text_says() {
        let mut strings = Strings::new();
        let (mut tasks, end) = known::<Prev>(b"x prev_pid=3 prev_prio=98 p");
        assert_eq!(end, AT + 25);
        for _ in 0..2 {
            let (place, next) = tasks.read(&window(b"x prev_pid=3 prev_prio=98 p"), AT).expect("a task");
            let task = tasks.get(place, &mut strings);
            assert_eq!((task.tid, task.prio, strings.get(task.comm), next), (3, 98, &b"x"[..], end));
        }
        assert!(tasks.read(&window(b"x next_pid=3 next_prio=98 p"), AT).is_none());
        assert!(Tasks::<Pid>::default().read(&window(b"x prev_pid=3 p"), AT).is_none());
    }
}
