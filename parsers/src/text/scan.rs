//! Numbers and fields out of text lines, on bytes and without an allocation.
//!
//! Every function takes the whole field and answers `None` when any byte of it does not fit: a
//! half-read number is a wrong number.

use std::borrow::Cow;

/// What an escape sequence of a terminal begins with.
const ESCAPE: u8 = 0x1b;

/// A decimal number without a sign.
#[inline]
pub fn u64(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    let mut n = 0u64;
    for &b in text {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        n = n.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(n)
}

/// A decimal number with an optional sign.
#[inline]
pub fn i64(text: &[u8]) -> Option<i64> {
    match text {
        [b'-', rest @ ..] => 0i64.checked_sub_unsigned(u64(rest)?),
        [b'+', rest @ ..] => i64::try_from(u64(rest)?).ok(),
        _ => i64::try_from(u64(text)?).ok(),
    }
}

/// As [`i64`](fn@i64), for columns of 32 bits.
#[inline]
pub fn i32(text: &[u8]) -> Option<i32> {
    i64(text).and_then(|n| i32::try_from(n).ok())
}

/// A hexadecimal number, with or without `0x`.
pub fn hex(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X")).unwrap_or(text);
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    let mut n = 0u64;
    for &b in digits {
        n = n << 4 | u64::from((b as char).to_digit(16)?);
    }
    Some(n)
}

/// A decimal fraction scaled by 10^`digits`: `decimal(b"12.34", 9)` is 12,340,000,000. Further
/// digits are cut off.
pub fn decimal(text: &[u8], digits: u32) -> Option<i64> {
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let dot = memchr::memchr(b'.', text).unwrap_or(text.len());
    let (whole, fraction) = (&text[..dot], text.get(dot + 1..).unwrap_or(b""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut n = if whole.is_empty() { 0 } else { i64::try_from(u64(whole)?).ok()? };
    for i in 0..digits as usize {
        let digit = match fraction.get(i) {
            Some(b) if b.is_ascii_digit() => i64::from(b - b'0'),
            Some(_) => return None,
            None => 0,
        };
        n = n.checked_mul(10)?.checked_add(digit)?;
    }
    if !fraction.iter().skip(digits as usize).all(u8::is_ascii_digit) {
        return None;
    }
    Some(if negative { -n } else { n })
}

/// Seconds with a fraction, as nanoseconds.
#[inline]
pub fn seconds(text: &[u8]) -> Option<i64> {
    decimal(text, 9)
}

/// True for a blank or a tab.
#[inline]
pub const fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// `text` without leading blanks and tabs.
#[inline]
pub fn skip_blanks(text: &[u8]) -> &[u8] {
    let n = text.iter().take_while(|b| is_blank(**b)).count();
    &text[n..]
}

/// `text` without blanks and tabs at either end.
#[inline]
pub fn trim(text: &[u8]) -> &[u8] {
    let text = skip_blanks(text);
    let n = text.iter().rev().take_while(|b| is_blank(**b)).count();
    &text[..text.len() - n]
}

/// The next word, and what follows it; the word is empty at the end.
#[inline]
pub fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let text = skip_blanks(text);
    let n = text.iter().take_while(|b| !is_blank(**b)).count();
    text.split_at(n)
}

/// The word that follows `key` (which includes its `=`), where `key` starts a word.
pub fn keyed<'t>(text: &'t [u8], key: &[u8]) -> Option<&'t [u8]> {
    let mut from = 0;
    while let Some(i) = memchr::memmem::find(&text[from..], key) {
        let at = from + i;
        if at == 0 || is_blank(text[at - 1]) {
            return Some(word_here(&text[at + key.len()..]));
        }
        from = at + 1;
    }
    None
}

/// The bytes up to the next blank.
#[inline]
fn word_here(text: &[u8]) -> &[u8] {
    let n = text.iter().take_while(|b| !is_blank(**b)).count();
    &text[..n]
}

/// The line as a diagnostic shows it: valid text, at most `max` bytes of it.
pub fn shown(line: &[u8], max: usize) -> String {
    let cut = &line[..line.len().min(max)];
    let dots = if line.len() > max { "..." } else { "" };
    format!("{}{dots}", String::from_utf8_lossy(cut))
}

/// Adds `line` to `to` without the escape sequences that colour it.
pub fn without_colours(line: &[u8], to: &mut Vec<u8>) {
    let mut rest = line;
    while let Some(at) = memchr::memchr(ESCAPE, rest) {
        to.extend_from_slice(&rest[..at]);
        let Some(after) = rest[at + 1..].strip_prefix(b"[") else {
            to.push(ESCAPE);
            rest = &rest[at + 1..];
            continue;
        };
        let end = after.iter().position(|b| b.is_ascii_alphabetic());
        rest = end.map_or(&b""[..], |end| &after[end + 1..]);
    }
    to.extend_from_slice(rest);
}

/// `text` as terminals show it: without the escape sequences of colours.
pub fn plain(text: &[u8]) -> Cow<'_, [u8]> {
    if !is_coloured(text) {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    without_colours(text, &mut plain);
    Cow::Owned(plain)
}

/// Is some of `text` coloured? A program that colours text ends each colour; a name that holds the
/// beginning of one keeps it.
#[inline]
pub fn is_coloured(text: &[u8]) -> bool {
    memchr::memchr(ESCAPE, text).is_some()
        && [&b"\x1b[m"[..], b"\x1b[0m"].iter().any(|end| memchr::memmem::find(text, end).is_some())
}

/// The name alone, where more stands before it: numbers of lines, the marks of a quotation. The kernel
/// keeps 15 bytes of a name, and ftrace (`%16s-%-7d` in `trace_output.c`) and perf (`%16s`) put it to
/// the right of 16, so that the longest run of blanks lies before it.
pub fn own_name(comm: &[u8]) -> &[u8] {
    const LONGEST: usize = 15;
    if comm.len() <= LONGEST {
        return comm;
    }
    let (mut run, mut longest, mut name) = (0, 1, comm);
    for (at, byte) in comm.iter().enumerate() {
        run = if *byte == b' ' { run + 1 } else { 0 };
        if run > longest {
            (longest, name) = (run, &comm[at + 1..]);
        }
    }
    if name.len() <= LONGEST {
        name
    } else {
        comm
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn colours_go() {
        assert_eq!(plain(b"\x1b[34m*A0\x1b[m  x\x1b[").as_ref(), b"*A0  x");
        assert_eq!(plain(b"a-1 \x1b[01;31m\x1b[K[000]\x1b[m\x1b[K").as_ref(), b"a-1 [000]");
        assert!(matches!(plain(b"*A0"), Cow::Borrowed(b"*A0")));
        assert_eq!(plain(b"a\x1b[31m-7 [000]").as_ref(), b"a\x1b[31m-7 [000]");
        assert_eq!(plain(b"\x1b]0;x\x07 \x1b[1m[000]\x1b[0m").as_ref(), b"\x1b]0;x\x07 [000]");
    }

    #[test]
    fn numbers_take_the_whole_field() {
        assert_eq!(u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(u64(b"18446744073709551616"), None);
        assert_eq!(u64(b""), None);
        assert_eq!(u64(b"12x"), None);
        assert_eq!(i64(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(i64(b"9223372036854775808"), None);
        assert_eq!(i64(b"--1"), None);
        assert_eq!(i32(b"-1"), Some(-1));
        assert_eq!(i32(b"4294967296"), None);
        assert_eq!(hex(b"0xFFfe"), Some(0xfffe));
        assert_eq!(hex(b"5D88"), Some(0x5d88));
        assert_eq!(hex(b"0x"), None);
        assert_eq!(hex(b"xyz"), None);
    }

    #[test]
    fn fractions_are_scaled_and_cut() {
        assert_eq!(seconds(b"7.160342830"), Some(7_160_342_830));
        assert_eq!(seconds(b"7"), Some(7_000_000_000));
        assert_eq!(seconds(b".5"), Some(500_000_000));
        assert_eq!(seconds(b"-1.25"), Some(-1_250_000_000));
        assert_eq!(seconds(b"1.0000000019"), Some(1_000_000_001));
        assert_eq!(seconds(b"1.00000000x"), None);
        assert_eq!(seconds(b"1.0000000000x"), None);
        assert_eq!(seconds(b"."), None);
        assert_eq!(seconds(b"99999999999999"), None);
        assert_eq!(decimal(b"0.107008", 6), Some(107_008));
    }

    #[test]
    fn keys_start_words() {
        let text = b"exec: cmd=a pid=1 old_tid=5 tid=24713";
        assert_eq!(keyed(text, b"tid="), Some(&b"24713"[..]));
        assert_eq!(keyed(text, b"pid="), Some(&b"1"[..]));
        assert_eq!(keyed(text, b"ppid="), None);
        assert_eq!(word(b"  ab c"), (&b"ab"[..], &b" c"[..]));
        assert_eq!(word(b"   "), (&b""[..], &b""[..]));
        assert_eq!(trim(b" \tab c "), b"ab c");
    }

    proptest! {
        #[test]
        fn printed_numbers_read_back(n in any::<i64>(), m in 0i64..9_000_000_000_000_000_000) {
            prop_assert_eq!(i64(n.to_string().as_bytes()), Some(n));
            let text = format!("{}.{:09}", m / 1_000_000_000, m % 1_000_000_000);
            prop_assert_eq!(seconds(text.as_bytes()), Some(m));
            prop_assert_eq!(hex(format!("{m:x}").as_bytes()), Some(m as u64));
        }
    }
}
