//! The head of a line, `COMM-TID [CPU] FLAGS TIME:` or perf's `COMM TID [CPU] TIME:`, learned once
//! and recognised after.
//!
//! Within one log heads have one layout: the same columns, the same few tasks, the same second for
//! thousands of lines. The code that takes any head apart gives [`QuickHead`] what it found; from
//! then on a head costs a few comparisons. What differs from what was learned is not taken, so a
//! quick head never says anything that the slow one would not.

use wide::u8x16;

use crate::text::log::Stamp;
use crate::text::swar::{first_of8, lanes16, load1, load8, micros, nanos, Window, MASKS};

/// Heads with a bracket left of this column are not learned: too short for two loads.
const MIN_BRACKET: usize = 16;
/// Heads with a bracket right of this column are not learned: three loads cover no more.
const MAX_BRACKET: usize = 48 - CPU_WIDTH;
/// `[000]`, the width of CPUs below a thousand.
const CPU_WIDTH: usize = 5;
const TASKS: usize = 1024;
const FLAGS: usize = 64;

/// Where the parts of a head stand, as found by the code that takes any head apart.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Column of the `[`.
    pub bracket: usize,
    /// Column and number of the context flags; their number is 0 where there are none.
    pub flags: (usize, usize),
    /// Column of the first digit of the seconds.
    pub seconds: usize,
    /// Column of the `.` of the time.
    pub dot: usize,
    /// Digits after it.
    pub digits: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Task {
    text: [u8x16; 3],
    bracket: usize,
    /// What its heads say; time and flags are those of the last one.
    stamp: Stamp,
}

impl Task {
    #[inline(always)]
    fn is(&self, text: &[u8x16; 3], bracket: usize) -> bool {
        let [a, b, c] = *text;
        let same = a.simd_eq(self.text[0]) & b.simd_eq(self.text[1]) & c.simd_eq(self.text[2]);
        same.to_bitmask() == 0xffff && self.bracket == bracket
    }
}

/// The layout of a log's heads.
#[derive(Debug)]
pub struct QuickHead {
    /// Leftmost column of `[` seen; `usize::MAX` until a head was learned.
    bracket: usize,
    /// Columns from the `[` to the dot of the time.
    dot: usize,
    /// Number of flags.
    flags: usize,
    nanos: bool,
    /// Quality bits of every head.
    quality: u16,
    /// The sixteen bytes before the dot, without what varies; what they say.
    seconds: u8x16,
    seconds_mask: u8x16,
    seconds_ns: i64,
    tasks: Box<[Task; TASKS]>,
    known_flags: [(u64, u16); FLAGS],
    /// Heads in a row that did not fit the layout.
    mismatches: u32,
}

impl Default for QuickHead {
    fn default() -> Self {
        QuickHead {
            bracket: usize::MAX,
            dot: 0,
            flags: 0,
            nanos: false,
            quality: 0,
            seconds: u8x16::ZERO,
            seconds_mask: u8x16::ZERO,
            seconds_ns: 0,
            tasks: vec![Task::default(); TASKS].try_into().expect("so many"),
            known_flags: [(0, 0); FLAGS],
            mismatches: 0,
        }
    }
}

/// The text up to the `]` of the CPU after column `bracket`, and the first of two places for it in the
/// table: by the end of the thread's name, its number and the CPU.
#[inline(always)]
fn task_text(w: &Window, bracket: usize) -> ([u8x16; 3], usize) {
    let last = bracket + CPU_WIDTH - MIN_BRACKET;
    let text = [lanes16(w, 0), lanes16(w, last.min(16)), lanes16(w, last)];
    let mixed = load8(w, bracket - 10) ^ load8(w, bracket - 3).rotate_left(29);
    (text, ((mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 50) as usize % TASKS) & !1)
}

impl QuickHead {
    /// The head of the line, and the column after the `:` of its time.
    #[inline(always)]
    pub fn read(&mut self, w: &Window) -> Option<(&Stamp, usize)> {
        let mut bracket = self.bracket;
        // Nearly always it is there: then nothing waits for the search.
        if load1(w, bracket) != b'[' {
            bracket = bracket.wrapping_add(first_of8(load8(w, bracket), b'['));
        }
        if !(MIN_BRACKET..=MAX_BRACKET).contains(&bracket) {
            return None;
        }
        let (text, mut place) = task_text(w, bracket);
        if !self.tasks[place].is(&text, bracket) {
            place += 1;
            if !self.tasks[place].is(&text, bracket) {
                return None;
            }
        }
        let dot = bracket + self.dot;
        if load1(w, dot) != b'.' {
            return None;
        }
        if (lanes16(w, dot - 16) & self.seconds_mask).simd_eq(self.seconds).to_bitmask() != 0xffff {
            return None;
        }
        let (fraction, after) =
            if self.nanos { (nanos(w, dot + 1)?, dot + 11) } else { (micros(w, dot + 1)?, dot + 8) };
        let irq = if self.flags == 0 { None } else { Some(self.flags(w, bracket)?) };
        let stamp = &mut self.tasks[place].stamp;
        (stamp.ts_ns, stamp.irq, stamp.quality) = (self.seconds_ns + fraction, irq, self.quality);
        Some((stamp, after))
    }

    /// The flags behind the CPU, when they were seen before.
    #[inline(always)]
    fn flags(&self, w: &Window, bracket: usize) -> Option<u16> {
        let word = load8(w, bracket + 6) & MASKS[self.flags] as u64;
        let (known, bits) = self.known_flags[flag_place(word)];
        (known == word && load1(w, bracket + 5) == b' ').then_some(bits)
    }

    /// Learns from a head that begins `line`. Only heads of ASCII are to be learned.
    pub fn learn(&mut self, line: &[u8], found: Found, stamp: &Stamp) {
        let w = window(line);
        let Found { bracket, flags: (flags_at, flags), seconds, dot, digits } = found;
        let regular = (MIN_BRACKET..=MAX_BRACKET).contains(&bracket)
            && line.get(bracket + 4) == Some(&b']')
            && (digits == 6 || digits == 9)
            && (flags == 0 || (flags_at == bracket + 6 && flags <= 8));
        let varying_end = if flags == 0 { bracket + 5 } else { flags_at + flags };
        if !regular || dot < varying_end || dot - varying_end > 16 || dot < 16 || seconds < varying_end {
            return;
        }
        let same = self.bracket != usize::MAX
            && (self.bracket..self.bracket + 8).contains(&bracket)
            && (self.dot, self.flags, self.nanos) == (dot - bracket, flags, digits == 9);
        // One odd head, as after a very long name, must not unlearn the layout of all others.
        if !same && self.bracket != usize::MAX && self.mismatches < 8 {
            self.mismatches += 1;
            return;
        }
        if !same {
            (self.bracket, self.dot, self.flags, self.nanos) = (bracket, dot - bracket, flags, digits == 9);
        }
        self.mismatches = 0;
        self.quality = stamp.quality;
        self.bracket = self.bracket.min(bracket);
        self.learn_seconds(&w, dot, dot - varying_end, stamp.ts_ns);
        // Flags without a meaning stay unknown.
        if let (true, Some(bits)) = (flags > 0, stamp.irq) {
            let word = load8(&w, bracket + 6) & MASKS[flags] as u64;
            self.known_flags[flag_place(word)] = (word, bits);
        }
        let (text, place) = task_text(&w, bracket);
        // Two tasks that fall on one pair of places and run in turns would drive each other out: the
        // older one moves next door.
        self.tasks[place + 1] = self.tasks[place];
        self.tasks[place] = Task { text, bracket, stamp: *stamp };
    }

    fn learn_seconds(&mut self, w: &Window, dot: usize, width: usize, ts_ns: i64) {
        self.seconds_mask = u8x16::new((!MASKS[16 - width]).to_le_bytes());
        self.seconds = lanes16(w, dot - 16) & self.seconds_mask;
        self.seconds_ns = ts_ns - ts_ns.rem_euclid(1_000_000_000);
    }
}

#[inline(always)]
fn flag_place(word: u64) -> usize {
    (word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize
}

/// A window on a line that may be shorter.
fn window(line: &[u8]) -> Window {
    let mut w = [0; size_of::<Window>()];
    let n = line.len().min(w.len());
    w[..n].copy_from_slice(&line[..n]);
    w
}
