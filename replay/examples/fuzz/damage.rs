//! What is done to an input.

use crate::random::Random;

/// A copy of `input` with one to eight things done to it.
pub fn damage(input: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..1 + random.below(8) {
        if bytes.is_empty() {
            return bytes;
        }
        let at = random.place(bytes.len());
        let len = 1 + random.below(64.min(bytes.len() - at));
        match random.below(11) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..at + len)),
            4 => {
                let copy = bytes[at..at + len].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, copy);
            }
            5 => bytes[at..at + len].fill(if random.below(2) == 0 { 0 } else { 0xff }),
            6 => number(&mut bytes, at, random),
            7 => digits(&mut bytes, at, random),
            8 => {
                let from = random.below(other.len().max(1));
                let piece = &other[from..(from + 1 + random.below(4096)).min(other.len())];
                bytes.splice(at..(at + len).min(bytes.len()), piece.iter().copied());
            }
            9 => {
                let to = random.below(bytes.len() - len + 1);
                bytes.copy_within(at..at + len, to);
            }
            _ => bytes[at] = b"\n\t =:,;()[]{}<>\"\\/-+|%"[random.below(22)],
        }
    }
    bytes
}

/// Puts a number that is often fatal over two, four or eight bytes.
fn number(bytes: &mut [u8], at: usize, random: &mut Random) {
    const FATAL: [u64; 12] =
        [0, 1, 7, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 0x0800_0000, i64::MAX as u64, u64::MAX];
    let width = [2, 4, 8][random.below(3)].min(bytes.len() - at);
    let value = FATAL[random.below(FATAL.len())].wrapping_sub(random.below(2) as u64);
    let (le, be) = (value.to_le_bytes(), value.to_be_bytes());
    let from = if random.below(4) == 0 { &be[8 - width..] } else { &le[..width] };
    bytes[at..at + width].copy_from_slice(from);
}

/// Replaces the next decimal number by another.
fn digits(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    let Some(from) = bytes[at..].iter().position(u8::is_ascii_digit).map(|i| at + i) else { return };
    let to = bytes[from..].iter().position(|b| !b.is_ascii_digit()).map_or(bytes.len(), |i| from + i);
    const NUMBERS: [&str; 8] = [
        "",
        "0",
        "-1",
        "4294967296",
        "9223372036854775807",
        "18446744073709551615",
        "99999999999999999999",
        "00000001",
    ];
    bytes.splice(from..to, NUMBERS[random.below(NUMBERS.len())].bytes());
}
