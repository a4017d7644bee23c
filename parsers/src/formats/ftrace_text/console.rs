//! Lines of the kernel's log, into which it prints its buffer when it stops.

use crate::text::scan;

/// The message of a line of the log: `[   12.345678] MESSAGE`, `<4>[   12.345678][  T123] MESSAGE`.
pub(super) fn message(line: &[u8]) -> Option<&[u8]> {
    let line = match line {
        [b'<', rest @ ..] => {
            let end = rest.iter().take(4).position(|b| *b == b'>')?;
            scan::u64(&rest[..end])?;
            &rest[end + 1..]
        }
        _ => line,
    };
    let (time, rest) = bracket(line)?;
    let dot = memchr::memchr(b'.', time)?;
    if scan::u64(time[..dot].trim_ascii_start()).is_none() || scan::u64(&time[dot + 1..]).is_none() {
        return None;
    }
    // Who said it: a thread (`T123`) or a CPU (`C3`).
    let rest = match bracket(rest) {
        Some((caller, rest)) if matches!(caller.trim_ascii_start(), [b'T' | b'C', n @ ..] if scan::u64(n).is_some()) => {
            rest
        }
        _ => rest,
    };
    rest.strip_prefix(b" ")
}

/// `[INSIDE]REST`
fn bracket(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inside = text.strip_prefix(b"[")?;
    let end = inside.iter().take(24).position(|b| *b == b']')?;
    Some((&inside[..end], &inside[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_kernels_log() {
        for (line, text) in [
            ("[   12.345678] a b", Some("a b")),
            ("<4>[ 1320.444215]   <idle>-0", Some("  <idle>-0")),
            ("[   12.345678][  T123] a", Some("a")),
            ("[   12.345678][    C0] a", Some("a")),
            ("[   12.345678] [T1] a", Some("[T1] a")),
            ("[kworker] -12 [000] 1.5: x: y", None),
            ("[000] 1.5: x: y", None),
            ("<idle>-0 [000] 1.5: x: y", None),
            ("", None),
        ] {
            assert_eq!(message(line.as_bytes()), text.map(str::as_bytes), "{line}");
        }
    }
}
