//! Eight or sixteen bytes at a time: finding a byte, reading a number.
//!
//! All work on a [`Window`], a fixed-size view of the text from the start of a line. Beyond
//! [`REACH`] everything reads as zeros, which no shape of a line contains, so that the caller needs
//! no check of its own on the way.

use wide::u8x16;

/// Positions up to this one can be read.
pub const REACH: usize = 512;

/// The text from the start of a line on, longer than any line the quick path takes, with room for
/// the widest load.
pub type Window = [u8; REACH + 48];

const ONES: u64 = u64::MAX / 255;
const HIGHS: u64 = ONES << 7;

/// `MASKS[n]` keeps the first `n` bytes of sixteen.
pub static MASKS: [u128; 17] = {
    let mut masks = [u128::MAX; 17];
    let mut n = 0;
    while n < 16 {
        masks[n] = (1 << (8 * n)) - 1;
        n += 1;
    }
    masks
};

static POWERS: [u64; 9] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// Eight bytes, the first in the lowest byte.
#[inline(always)]
pub fn load8(w: &Window, at: usize) -> u64 {
    if at > REACH {
        return 0;
    }
    u64::from_le_bytes(w[at..at + 8].try_into().expect("eight bytes"))
}

/// Sixteen bytes, the first in the lowest byte.
#[inline(always)]
pub fn load16(w: &Window, at: usize) -> u128 {
    if at > REACH {
        return 0;
    }
    u128::from_le_bytes(w[at..at + 16].try_into().expect("sixteen bytes"))
}

/// One byte.
#[inline(always)]
pub fn load1(w: &Window, at: usize) -> u8 {
    if at > REACH {
        return 0;
    }
    w[at]
}

/// True when `text`, of at most sixteen bytes, stands at `at`: one or two comparisons, which may overlap.
#[inline(always)]
pub fn is_at<const N: usize>(w: &Window, at: usize, text: &[u8; N]) -> bool {
    const { assert!(N >= 1 && N <= 16, "two loads take sixteen bytes") };
    if at > REACH {
        return false;
    }
    let here: &[u8; N] = w[at..at + N].try_into().expect("as long as the text");
    match N {
        1 => here[0] == text[0],
        2..=3 => part::<2>(here, 0) == part::<2>(text, 0) && part::<2>(here, N - 2) == part::<2>(text, N - 2),
        4 => part::<4>(here, 0) == part::<4>(text, 0),
        5..=7 => part::<4>(here, 0) == part::<4>(text, 0) && part::<4>(here, N - 4) == part::<4>(text, N - 4),
        8 => part::<8>(here, 0) == part::<8>(text, 0),
        _ => part::<8>(here, 0) == part::<8>(text, 0) && part::<8>(here, N - 8) == part::<8>(text, N - 8),
    }
}

/// `N` bytes of `text` from `at` on as a number; `N` is 2, 4 or 8.
#[inline(always)]
fn part<const N: usize>(text: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(bytes) = text.get(at..at + N) {
        word[..N].copy_from_slice(bytes);
    }
    u64::from_le_bytes(word)
}

/// How many bytes before the first `byte` among eight; 8 when there is none.
#[inline(always)]
pub fn first_of8(word: u64, byte: u8) -> usize {
    let x = word ^ (ONES * byte as u64);
    // The lowest set bit marks the lowest zero byte; borrows only spoil what stands above.
    ((x.wrapping_sub(ONES) & !x & HIGHS).trailing_zeros() / 8) as usize
}

/// Sixteen bytes, the first in the lowest lane; all of them must lie in the window.
#[inline(always)]
fn lanes(w: &Window, at: usize) -> u8x16 {
    u8x16::new(w[at..at + 16].try_into().expect("sixteen bytes"))
}

/// One bit for each of 48 bytes from `at` on: whether it is as in `text`.
#[inline(always)]
pub fn same48(w: &Window, at: usize, text: &[u8x16; 3]) -> u64 {
    if at > REACH {
        return 0;
    }
    let [a, b, c] = *text;
    let (a, b, c) = (lanes(w, at).simd_eq(a), lanes(w, at + 16).simd_eq(b), lanes(w, at + 32).simd_eq(c));
    u64::from(a.to_bitmask() | b.to_bitmask() << 16) | u64::from(c.to_bitmask()) << 32
}

/// Sixteen bytes as lanes, zeros beyond [`REACH`].
#[inline(always)]
pub fn lanes16(w: &Window, at: usize) -> u8x16 {
    if at > REACH {
        return u8x16::ZERO;
    }
    lanes(w, at)
}

/// Position of the first `byte` within 32 bytes from `at` on.
#[inline(always)]
pub fn find(w: &Window, at: usize, byte: u8) -> Option<usize> {
    if at > REACH {
        return None;
    }
    let byte = u8x16::splat(byte);
    let found = lanes(w, at).simd_eq(byte).to_bitmask() | lanes(w, at + 16).simd_eq(byte).to_bitmask() << 16;
    (found != 0).then_some(at + found.trailing_zeros() as usize)
}

/// Position of the first `byte` within sixteen bytes from `at` on.
#[inline(always)]
pub fn find16(w: &Window, at: usize, byte: u8) -> Option<usize> {
    let found = lanes16(w, at).simd_eq(u8x16::splat(byte)).to_bitmask();
    (found != 0).then_some(at + found.trailing_zeros() as usize)
}

/// As [`skip_blanks`], where there must be a blank and is hardly ever more than one: then what follows
/// need not wait for a search.
#[inline(always)]
pub fn past_blank(w: &Window, at: usize) -> Option<usize> {
    let blanks = blanks16(w, at);
    if blanks & 0b11 == 0b01 {
        return Some(at + 1);
    }
    (blanks & 1 != 0).then_some(at + blanks.trailing_ones() as usize)
}

/// Position of the first byte from `at` on that is not a blank; at most sixteen blanks are skipped.
#[inline(always)]
pub fn skip_blanks(w: &Window, at: usize) -> usize {
    at + blanks16(w, at).trailing_ones() as usize
}

/// One bit for each of sixteen bytes from `at` on: whether it is a blank.
#[inline(always)]
pub fn blanks16(w: &Window, at: usize) -> u32 {
    lanes16(w, at).simd_eq(u8x16::splat(b' ')).to_bitmask()
}

/// Eight bytes of which the first `count` are digits, 0 to 9 each; `count` is 8 when all are.
#[derive(Clone, Copy)]
struct Digits {
    values: u64,
    /// Position of the highest bit of the first byte that is no digit: `8 * count + 7`, or 64.
    end_bit: u32,
}

impl Digits {
    #[inline(always)]
    fn of(word: u64) -> Self {
        let values = word ^ (ONES * b'0' as u64);
        // A byte above 9 gets its high bit by the addition or has it already; carries only spoil
        // what stands above.
        let other = (values.wrapping_add(ONES * (0x80 - 10)) | values) & HIGHS;
        Digits { values, end_bit: other.trailing_zeros() }
    }

    #[inline(always)]
    fn count(self) -> usize {
        (self.end_bit / 8) as usize
    }

    #[inline(always)]
    fn all(self) -> bool {
        self.end_bit == 64
    }

    #[inline(always)]
    fn none(self) -> bool {
        self.end_bit == 7
    }

    /// The number of the leading digits, which are 1 to 7.
    #[inline(always)]
    fn number(self) -> u64 {
        // The digits move up to the top, zeros come in below: 64 - 8 * count, written for one subtraction.
        value8(self.values.wrapping_shl(71u32.wrapping_sub(self.end_bit)))
    }
}

/// Value of eight digits, the first in the lowest byte.
#[inline(always)]
fn value8(x: u64) -> u64 {
    let x = x.wrapping_mul(2561) >> 8 & 0x00ff_00ff_00ff_00ff;
    let x = x.wrapping_mul(6_553_601) >> 16 & 0x0000_ffff_0000_ffff;
    x.wrapping_mul(42_949_672_960_001) >> 32
}

/// The number of 1 to 16 digits at `at`, and the position after it.
#[inline(always)]
pub fn number(w: &Window, at: usize) -> Option<(i64, usize)> {
    let digits = Digits::of(load8(w, at));
    if digits.all() {
        return long_number(w, at, value8(digits.values));
    }
    if digits.none() {
        return None;
    }
    Some((digits.number() as i64, at + digits.count()))
}

#[inline(always)]
fn long_number(w: &Window, at: usize, high: u64) -> Option<(i64, usize)> {
    let digits = Digits::of(load8(w, at + 8));
    if digits.none() {
        return Some((high as i64, at + 8));
    }
    let n = digits.count();
    let end = at + 8 + n;
    if digits.all() {
        let low = value8(digits.values);
        return (!load1(w, end).is_ascii_digit()).then_some(((high * POWERS[8] + low) as i64, end));
    }
    Some(((high * POWERS[n] + digits.number()) as i64, end))
}

/// A number of at most seven digits.
#[inline(always)]
pub fn short_number(w: &Window, at: usize) -> Option<(i64, usize)> {
    let digits = Digits::of(load8(w, at));
    if digits.none() || digits.all() {
        return None;
    }
    Some((digits.number() as i64, at + digits.count()))
}

/// The number of at most seven digits that ends before `end`, and its position.
#[inline(always)]
pub fn number_before(w: &Window, end: usize) -> Option<(i64, usize)> {
    let x = load8(w, end.wrapping_sub(8)) ^ (ONES * b'0' as u64);
    // Byte by byte, without a carry from one into the next: the count starts at the highest.
    let other = ((x & !HIGHS).wrapping_add(ONES * (0x80 - 10)) | x) & HIGHS;
    let bits = other.leading_zeros();
    if bits == 0 || bits == 64 {
        return None;
    }
    Some((value8(x & !(u64::MAX >> bits)) as i64, end.wrapping_sub((bits / 8) as usize)))
}

/// The six digits and the `:` of microseconds at `at`, in ns.
#[inline(always)]
pub fn micros(w: &Window, at: usize) -> Option<i64> {
    let word = load8(w, at);
    let digits = Digits::of(word);
    (digits.count() == 6 && (word >> 48) as u8 == b':').then(|| digits.number() as i64 * 1000)
}

/// The nine digits and the `:` of nanoseconds at `at`.
#[inline(always)]
pub fn nanos(w: &Window, at: usize) -> Option<i64> {
    let digits = Digits::of(load8(w, at));
    let last = load1(w, at + 8).wrapping_sub(b'0');
    (digits.all() && last < 10 && load1(w, at + 9) == b':').then(|| value8(digits.values) as i64 * 10 + i64::from(last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn window(text: &[u8]) -> Window {
        let mut w = [0xffu8; REACH + 48];
        w[..text.len()].copy_from_slice(text);
        w
    }

    proptest! {
        #[test]
        fn numbers_read_like_a_plain_loop(n in prop_oneof![0i64..1000, 0i64..10_000_000_000_000_000], tail in any::<u8>()) {
            prop_assume!(!tail.is_ascii_digit());
            let text = format!("{n}");
            let mut bytes = text.clone().into_bytes();
            bytes.push(tail);
            let w = window(&bytes);
            prop_assert_eq!(number(&w, 0), Some((n, text.len())));
            prop_assert_eq!(short_number(&w, 0), (text.len() < 8).then_some((n, text.len())));
        }

        #[test]
        fn numbers_are_found_from_their_end(head in prop::collection::vec(any::<u8>(), 8), n in 0i64..100_000_000) {
            prop_assume!(!head[7].is_ascii_digit());
            let text = format!("{n}");
            let mut bytes = head.clone();
            bytes.extend(text.bytes());
            let found = number_before(&window(&bytes), bytes.len());
            prop_assert_eq!(found, (text.len() < 8).then_some((n, 8)));
        }

        #[test]
        fn bytes_are_found_where_they_stand(text in prop::collection::vec(any::<u8>(), 40), byte in any::<u8>()) {
            let w = window(&text);
            let plain = text[..32].iter().position(|b| *b == byte);
            prop_assert_eq!(find(&w, 0, byte), plain);
            prop_assert_eq!(find16(&w, 0, byte), plain.filter(|at| *at < 16));
            let first = text[..8].iter().position(|b| *b == byte).unwrap_or(8);
            prop_assert_eq!(first_of8(load8(&w, 0), byte), first);
        }

        #[test]
        fn fractions_need_their_width(us in 0i64..1_000_000, ns in 0i64..1_000_000_000, tail in any::<u8>()) {
            let tail = tail as char;
            let ok = tail == ':';
            let text = format!("{us:06}{tail}");
            prop_assert_eq!(micros(&window(text.as_bytes()), 0), ok.then_some(us * 1000));
            let text = format!("{ns:09}{tail}");
            prop_assert_eq!(nanos(&window(text.as_bytes()), 0), ok.then_some(ns));
        }
    }

    #[test]
    fn blanks_and_edges() {
        let w = window(b"      x");
        assert_eq!(skip_blanks(&w, 0), 6);
        assert_eq!((load8(&w, usize::MAX), load16(&w, REACH + 1), load1(&w, REACH + 1)), (0, 0, 0));
        assert_eq!(load8(&w, REACH), u64::MAX);
        assert_eq!(number(&window(b"12345678901234567"), 0), None);
        assert_eq!(number(&window(b"1234567890123456x"), 0), Some((1_234_567_890_123_456, 16)));
        assert_eq!(number(&w, 0), None);
        assert!(is_at(&w, 5, b" x") && is_at(&w, 0, b"      x") && !is_at(&w, REACH + 1, b"\xff"));
    }
}
