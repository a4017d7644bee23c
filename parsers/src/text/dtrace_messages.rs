//! What `dtrace(1M)` itself says between the lines of a script: drops, errors, "matched 5 probes".
//!
//! These lines go to standard error and end up among the output whenever the two are merged,
//! sometimes in the middle of a line of output, since only one of the two streams is buffered.

use crate::text::scan;

/// A line that starts with `dtrace: `.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// `N [aggregation|dynamic variable|speculative] drops [on CPU n]`.
    Drops {
        /// How many.
        count: i64,
        /// Of what; empty for records of the trace.
        what: &'a [u8],
        /// On which CPU.
        cpu: Option<i32>,
    },
    /// A probe fired but its action failed: that record is missing.
    ProbeError(&'a [u8]),
    /// `processing aborted: ...`: nothing was recorded from here on.
    Aborted(&'a [u8]),
    /// Anything else (`script 'x.d' matched 5 probes`, `buffer size lowered to 8m`).
    Note(&'a [u8]),
}

/// The message in `line`, `None` when it is not one of dtrace's own.
pub fn parse(line: &[u8]) -> Option<Message<'_>> {
    let text = line.strip_prefix(b"dtrace: ")?;
    if let Some(drops) = drops(text) {
        return Some(drops);
    }
    Some(if text.starts_with(b"error on enabled probe") {
        Message::ProbeError(text)
    } else if text.starts_with(b"processing aborted") {
        Message::Aborted(text)
    } else {
        Message::Note(text)
    })
}

/// Where in `line` a message of dtrace begins that cut the line in two.
pub fn cut_in(line: &[u8]) -> Option<usize> {
    let at = memchr::memmem::find(line, b"dtrace: ")?;
    match parse(&line[at..])? {
        Message::Note(_) => None,
        _ => Some(at),
    }
}

fn drops(text: &[u8]) -> Option<Message<'_>> {
    let (count, rest) = scan::word(text);
    let count = scan::i64(count).filter(|n| *n >= 0)?;
    let rest = scan::skip_blanks(rest);
    let at = memchr::memmem::find(rest, b"drop")?;
    let what = scan::trim(&rest[..at]);
    if !what.iter().all(|b| b.is_ascii_alphabetic() || *b == b' ') {
        return None;
    }
    let cpu = memchr::memmem::find(rest, b" on CPU ").map(|i| scan::word(&rest[i + 8..]).0);
    Some(Message::Drops { count, what, cpu: cpu.and_then(scan::i32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_every_kind() {
        let drops = |count, what: &'static str, cpu| Some(Message::Drops { count, what: what.as_bytes(), cpu });
        assert_eq!(parse(b"dtrace: 123 drops on CPU 0"), drops(123, "", Some(0)));
        assert_eq!(parse(b"dtrace: 1 drop on CPU 12"), drops(1, "", Some(12)));
        assert_eq!(parse(b"dtrace: 7 aggregation drops on CPU 2"), drops(7, "aggregation", Some(2)));
        assert_eq!(
            parse(b"dtrace: 2 dynamic variable drops with non-empty dirty list"),
            drops(2, "dynamic variable", None)
        );
        assert_eq!(parse(b"dtrace: 1 speculative drop"), drops(1, "speculative", None));
    }

    #[test]
    fn the_rest_is_told_apart() {
        assert!(matches!(parse(b"dtrace: script 'x.d' matched 5 probes"), Some(Message::Note(_))));
        assert!(matches!(parse(b"dtrace: description 'raindrop' matched 1 probe"), Some(Message::Note(_))));
        assert!(matches!(
            parse(b"dtrace: error on enabled probe ID 3 (ID 1234: sched:unix:disp:off-cpu): invalid address (0x0)"),
            Some(Message::ProbeError(_))
        ));
        assert!(matches!(
            parse(b"dtrace: processing aborted: Abort due to systemic unresponsiveness"),
            Some(Message::Aborted(_))
        ));
        assert_eq!(parse(b"T1\t5"), None);
        assert_eq!(cut_in(b"T1\t5\tdtrace: 3 drops on CPU 0"), Some(5));
        assert_eq!(cut_in(b"T1\t5\tdtrace: hello"), None);
    }
}
