//! Task states of Linux as text: letters as the kernel prints them, or the number of a raw print.
//!
//! The numbers mean different things in different kernels, so a raw print needs a [`Table`]. The
//! text does not name its kernel; [`Evidence`] looks at which numbers occur.

use std::io::{self, Read, Write};

use tracekit_schema::{Code, Diagnostic, Out, State};

use crate::{Head, Source};

/// What the letters say, `R+`, `D|K`, `S`.
pub fn from_letters(text: &[u8]) -> State {
    if text.ends_with(b"+") {
        return State::Preempted;
    }
    let has = |letter: &[u8]| text.split(|b| *b == b'|').any(|part| part == letter);
    const MEANING: &[(&[u8], State)] = &[
        (b"Z", State::Zombie),
        (b"X", State::Dead),
        (b"x", State::Dead),
        (b"I", State::IdleKthread),
        (b"D", State::Blocked),
        (b"S", State::Sleeping),
        (b"T", State::Stopped),
        (b"t", State::Traced),
        (b"P", State::Parked),
        (b"R", State::Runnable),
        (b"K", State::Blocked),
    ];
    if has(b"D") && has(b"N") {
        return State::IdleKthread;
    }
    MEANING.iter().find(|(letter, _)| has(letter)).map_or(State::Unknown, |(_, state)| *state)
}

/// What the letters of libtraceevent's plugin say. Its table has `W` for the bit of idle kernel
/// threads (0x80 since 4.14), which no other kernel sets alone; `x` stays the dead task it was
/// before 4.14.
pub fn from_plugin_letters(text: &[u8]) -> State {
    match text {
        b"W" => State::IdleKthread,
        _ => from_letters(text),
    }
}

/// Which kernels' numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Table {
    /// Up to 3.14.
    Old,
    /// 3.15 to 4.13: zombie and dead have changed places.
    Middle,
    /// From 4.14 on: one bit at a time, idle threads and preemption in the table.
    #[default]
    New,
    /// From 4.14 on, as the kernel keeps them and not as it reports them: LTTng wrote these for a while.
    Kept,
    /// 4.14: the place of the letter, from 1, in place of its bit (Linux commit 3f5fe9fef5b2, in
    /// 4.15, repairs that).
    Places,
}

impl Table {
    /// Letters by bit, from bit 0 on; `+` is preemption.
    fn letters(self) -> &'static [u8] {
        match self {
            Table::Old => b"SDTtZXxKWP+",
            Table::Middle => b"SDTtXZxKWPNn+",
            Table::New | Table::Places => b"SDTtXZPI+",
            Table::Kept => b"SDTtXZPxKWNn+",
        }
    }

    /// The table of kernel `release`, as in `4.4.0-21-generic`.
    pub fn of_kernel(release: &str) -> Option<Self> {
        let mut parts = release.split(['.', '-']).map(|p| p.parse::<u32>());
        let version = (parts.next()?.ok()?, parts.next()?.ok()?);
        Some(match version {
            v if v <= (3, 14) => Table::Old,
            v if v <= (4, 13) => Table::Middle,
            (4, 14) => Table::Places,
            _ => Table::New,
        })
    }

    /// What to call it in a diagnostic.
    pub fn kernels(self) -> &'static str {
        match self {
            Table::Old => "up to 3.14",
            Table::Middle => "3.15 to 4.13",
            Table::New => "4.14 and later",
            Table::Kept => "4.14 and later as the kernel keeps them",
            Table::Places => "4.14, which writes places in place of bits",
        }
    }

    /// The state of number `n`.
    pub fn state(self, n: u64) -> State {
        let letters = self.letters();
        if let (Table::Places, 1..=8) = (self, n) {
            return from_letters(&letters[n as usize - 1..n as usize]);
        }
        // Before 4.14 the preemption bit moved with every flag that was added; it is the highest there is.
        let preempted = match self {
            Table::New => n & 0x100 != 0,
            Table::Places => matches!(n, 0x100 | 0x1000),
            Table::Kept => n == 0x1000,
            Table::Middle => matches!(n, 0x400 | 0x800 | 0x1000),
            Table::Old => matches!(n, 0x100 | 0x200 | 0x400),
        };
        if preempted {
            return State::Preempted;
        }
        if n == 0 {
            return State::Runnable;
        }
        let set = |bit: &usize| n >> bit & 1 == 1;
        let names: Vec<u8> = (0..letters.len()).filter(set).flat_map(|bit| [letters[bit], b'|']).collect();
        from_letters(names.strip_suffix(b"|").unwrap_or(b"?"))
    }
}

/// Numbers seen in raw prints.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence {
    bits: u64,
    /// A number that no kernel writes as bits: 3, 5, 6 or 7.
    places: bool,
    /// A sleep that kills end: the bit for them stands beside another one, never alone, and it is
    /// 0x100 in [`Table::Kept`] and nothing that leaves a CPU has in any other.
    killable: bool,
    /// 0x80 alone: a dead task in [`Table::Kept`], an idle thread in [`Table::New`], nothing
    /// before.
    alone: bool,
    /// States printed as numbers.
    seen: u64,
    /// Those that the table in use has no meaning for, and the first of them.
    unknown: u64,
    first_unknown: u64,
}

/// What stands before a number (babeltrace2 puts blanks around the sign).
const KEYS: [&[u8]; 2] = [b" prev_state=", b" prev_state = "];
/// Longest key and number that may lie across two blocks.
const OVERLAP: usize = 64;

impl Evidence {
    /// All `prev_state=` numbers of the text.
    pub fn of(text: &[u8]) -> Self {
        let mut evidence = Evidence::default();
        for key in KEYS {
            for at in memchr::memmem::find_iter(text, key) {
                let word = crate::text::scan::word(&text[at + key.len()..]).0;
                if let Some(n) = number(word.strip_suffix(b",").unwrap_or(word)) {
                    evidence.see(n);
                }
            }
        }
        evidence
    }

    fn see(&mut self, n: u64) {
        self.bits |= n;
        self.places |= matches!(n, 3 | 5 | 6 | 7);
        self.killable |= n & 0x100 != 0 && n & 0x0e != 0;
        self.alone |= n == 0x80;
        self.seen += 1;
    }

    /// The state of number `n` by `table`, which is taken into account.
    pub fn note(&mut self, n: u64, table: Table) -> State {
        self.see(n);
        let state = table.state(n);
        if state == State::Unknown {
            self.unknown += 1;
            if self.unknown == 1 {
                self.first_unknown = n;
            }
        }
        state
    }

    /// Is there a bit that kernels keep from 4.14 on, but do not report?
    pub fn has_kept_bits(self) -> bool {
        self.bits >> 9 != 0
    }

    /// The table in which every number seen has a meaning, the newest when several fit.
    pub fn table(self) -> Table {
        match self.bits {
            b if b & !0x110f == 0 && self.places => Table::Places,
            b if self.killable || self.alone && b >> 9 != 0 => Table::Kept,
            b if b >> 9 == 0 => Table::New,
            b if b >> 11 == 0 && b & 0x600 != 0 => Table::Old,
            _ => Table::Middle,
        }
    }

    /// Says how numbers were read: by `used`, which the source or the user `named`, or which fits
    /// all of them.
    pub fn finish(self, used: Table, named: bool, advice: &str, out: &mut Out) {
        if self.seen == 0 {
            return;
        }
        let advice = ["name the kernel (option kernel=4.9)", advice].join(if advice.is_empty() { "" } else { ", " });
        if self.unknown > 0 {
            let (n, first) = (self.unknown, self.first_unknown);
            let message =
                format!("{n} states are numbers without a meaning in kernels {}, the first {first}", used.kernels());
            let d = Diagnostic { count: n, ..Diagnostic::new(Code::PartlyParsed, message) };
            out.diag(d.advise(advice.clone()));
        }
        if named {
            return;
        }
        let message = format!(
            "states are numbers; read as those of kernels {}, the newest in which all have a meaning",
            used.kernels()
        );
        if self.table() == used {
            out.diag(Diagnostic::new(Code::Inferred, message).advise(advice));
        } else {
            let right = self.table().kernels();
            let message =
                format!("states are numbers; read as those of kernels {}, but they are of {right}", used.kernels());
            out.diag(Diagnostic { count: self.seen, ..Diagnostic::new(Code::PartlyParsed, message) }.advise(advice));
        }
    }
}

/// All numeric states of `source`, which stays readable, when its head prints states as numbers.
///
/// The number that distinguishes one kernel's table from another's may be the last one of the source, so
/// all of it is looked at. A stream is kept packed meanwhile (about a tenth of its size) and read
/// again from there.
///
/// # Errors
/// Those of reading.
pub fn gather(source: Source, head: &Head) -> io::Result<(Source, Evidence)> {
    let evidence = Evidence::of(&head.bytes);
    if evidence.seen == 0 || head.whole {
        return Ok((source, evidence));
    }
    let mut stream = match source {
        Source::Bytes(all) => {
            let evidence = Evidence::of((*all).as_ref());
            return Ok((Source::Bytes(all), evidence));
        }
        other => other.into_read(),
    };
    let mut packed = zstd::stream::write::Encoder::new(Vec::new(), 1)?;
    let mut evidence = Evidence::default();
    let mut block = vec![0u8; 1 << 20];
    let mut kept = 0;
    loop {
        let n = stream.read(&mut block[kept..])?;
        packed.write_all(&block[kept..kept + n])?;
        let end = kept + n;
        let found = Evidence::of(&block[..end]);
        evidence.bits |= found.bits;
        evidence.places |= found.places;
        evidence.killable |= found.killable;
        evidence.alone |= found.alone;
        evidence.seen += found.seen;
        if n == 0 {
            break;
        }
        kept = end.min(OVERLAP);
        block.copy_within(end - kept..end, 0);
    }
    let packed = io::Cursor::new(packed.finish()?);
    Ok((Source::buffered(zstd::stream::read::Decoder::new(packed)?), evidence))
}

/// A state as a number: decimal, or hexadecimal after `0x`.
pub fn number(text: &[u8]) -> Option<u64> {
    if text.starts_with(b"0x") {
        return crate::text::scan::hex(text);
    }
    crate::text::scan::u64(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters() {
        for (text, state) in [
            ("R", State::Runnable),
            ("R+", State::Preempted),
            ("S|K+", State::Preempted),
            ("D|K", State::Blocked),
            ("D|N", State::IdleKthread),
            ("S|W", State::Sleeping),
            ("t", State::Traced),
            ("T", State::Stopped),
            ("x", State::Dead),
            ("I", State::IdleKthread),
            ("P", State::Parked),
            ("r", State::Unknown),
            ("0x400", State::Unknown),
            ("", State::Unknown),
        ] {
            assert_eq!(from_letters(text.as_bytes()), state, "{text}");
        }
    }

    #[test]
    fn numbers_mean_what_their_kernel_says() {
        assert_eq!(Table::New.state(0x100), State::Preempted);
        assert_eq!(Table::Middle.state(0x1000), State::Preempted);
        assert_eq!(Table::Old.state(16), State::Zombie);
        assert_eq!(Table::Middle.state(16), State::Dead);
        assert_eq!(Table::Middle.state(64), State::Dead);
        assert_eq!(Table::New.state(64), State::Parked);
        assert_eq!(Table::New.state(0x80), State::IdleKthread);
        assert_eq!(Table::Middle.state(1026), State::IdleKthread);
        assert_eq!(Table::New.state(1 << 40), State::Unknown);
        for (n, state) in [
            (0x1000, State::Preempted),
            (0x402, State::IdleKthread),
            (0x102, State::Blocked),
            (0x80, State::Dead),
            (0x40, State::Parked),
            (1, State::Sleeping),
        ] {
            assert_eq!(Table::Kept.state(n), state, "{n}");
        }
        assert!([Table::Old, Table::Middle, Table::New].iter().all(|t| t.state(0) == State::Runnable));
    }

    #[test]
    fn the_last_number_of_a_stream_counts() {
        let line = "x prev_state=1 y\n";
        let text = format!("{}x prev_state=2048 y\n", line.repeat(300_000));
        let mut source = Source::Stream(Box::new(io::Cursor::new(text.clone().into_bytes())));
        let head = source.head().unwrap();
        let (source, evidence) = gather(source, &head).unwrap();
        assert_eq!((Evidence::of(&head.bytes).table(), evidence.table()), (Table::New, Table::Middle));
        assert_eq!((*source.into_bytes().unwrap()).as_ref(), text.as_bytes());
    }

    #[test]
    fn the_table_follows_from_the_numbers_or_the_release() {
        let of = |text: &str| Evidence::of(text.as_bytes()).table();
        assert_eq!(of("x prev_state=0x1000 y\nx prev_state=1 y"), Table::Middle);
        assert_eq!(of("x prev_state=256 y"), Table::New);
        assert_eq!(of("x prev_state=8 y\nx prev_state=6 y\nx prev_state=4096 y"), Table::Places);
        assert_eq!(Table::Places.state(4096), State::Preempted);
        assert_eq!(of("x prev_state=6 y\nx prev_state=2048 y"), Table::Middle);
        assert_eq!((Table::Places.state(6), Table::Places.state(8)), (State::Zombie, State::IdleKthread));
        assert_eq!(of("x prev_state=1024 y prev_state=64 "), Table::Old);
        // As LTTng writes them on 4.15: preempted, idle kernel threads, and dead tasks or sleeps
        // that kills end.
        assert_eq!(of("x prev_state=4096 y\nx prev_state=1026 y\nx prev_state=128 y"), Table::Kept);
        assert_eq!(of("x prev_state = 2 y\nx prev_state = 258 y"), Table::Kept);
        assert_eq!(of("x prev_state=128 y\nx prev_state=256 y"), Table::New);
        assert_eq!(of("x prev_state=4096 y\nx prev_state=130 y\nx prev_state=64 y"), Table::Middle);
        assert_eq!(Table::of_kernel("3.13.0-49-generic"), Some(Table::Old));
        assert_eq!(Table::of_kernel("4.9"), Some(Table::Middle));
        assert_eq!(Table::of_kernel("6.1.0"), Some(Table::New));
        assert_eq!(Table::of_kernel("new"), None);
    }
}
