//! Heads of perf lines, `COMM PID/TID [CPU] TIME: PERIOD SYSTEM:EVENT: `, any part of which `-F`
//! may leave out.

use crate::text::head::Found;
use crate::text::scan;

/// A head.
#[derive(Clone, Debug)]
pub struct Head<'l> {
    pub comm: &'l [u8],
    pub pid: Option<i64>,
    pub tid: Option<i64>,
    pub cpu: Option<i32>,
    pub ts_ns: i64,
    /// Digits after the dot of the time.
    pub digits: usize,
    /// Columns, where the quick path can use them.
    pub found: Option<Found>,
    /// `EVENT: PAYLOAD`, without the subsystem.
    pub body: &'l [u8],
}

/// The head of `line`; `None` when there is none.
pub fn parse(line: &[u8]) -> Option<Head<'_>> {
    memchr::memchr_iter(b':', line).find_map(|colon| timed(line, colon))
}

impl Head<'_> {
    /// Does the event come with its subsystem: `sched:sched_switch:`?
    pub fn names_system(&self) -> bool {
        scan::word(self.body).0.iter().filter(|b| **b == b':').count() > 1
    }

    /// True for a line of ftrace, which reads as one of perf with a strange name: only ftrace puts
    /// a dash before the thread, and only perf names the subsystem of an event.
    pub fn is_ftrace(&self) -> bool {
        if self.tid.is_some() || self.names_system() {
            return false;
        }
        let dashes = memchr::memchr_iter(b'-', self.comm);
        dashes.map(|at| &self.comm[at + 1..]).any(|rest| {
            let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
            digits > 0 && matches!(scan::skip_blanks(&rest[digits..]), [] | [b'[' | b'(', ..])
        })
    }
}

/// True for a line that would be an event if it had a time.
pub fn lacks_time(line: &[u8]) -> bool {
    let key = memchr::memmem::find(line, b"sched:sched_");
    key.is_some_and(|at| at == 0 || scan::is_blank(line[at - 1])) && parse(line).is_none()
}

/// True for a line that would be an event if it had its name: the fields of a switch or of a wakeup right
/// behind the time, as `-F` without `event` prints them.
pub fn lacks_event(line: &[u8]) -> bool {
    let fields = |key: &&[u8]| memchr::memmem::find(line, key).filter(|at| *at > 0 && scan::is_blank(line[at - 1]));
    let Some(at) = [&b"prev_comm="[..], b"comm="].iter().filter_map(fields).min() else { return false };
    let before = line[..at].trim_ascii_end();
    // A period may stand between.
    let digits = before.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let before = before[..before.len() - digits].trim_ascii_end();
    let Some(before) = before.strip_suffix(b":") else { return false };
    let number = before.iter().rev().take_while(|b| b.is_ascii_digit() || **b == b'.').count();
    let time = &before[before.len() - number..];
    time.contains(&b'.') && scan::seconds(time).is_some() && parse(line).is_none()
}

/// Are the times of a text differences to the line before (`perf script --deltatime`)? perf prints
/// records in time order, so that moments do not go back and differences do so all the time. The
/// first difference is 0; where the beginning is left out, all of them are short.
pub fn are_differences(text: &[u8]) -> bool {
    const LINES: usize = 8;
    const LINES_OF_PART: usize = 32;
    const SHORT_NS: i64 = 1_000_000_000;
    let lines = text.split(|b| *b == b'\n').take(2000);
    let heads = lines.filter_map(parse).filter(|h| !h.is_ftrace() && !h.body.starts_with(b"PERF_RECORD"));
    let (mut first, mut largest, mut lines, mut back) = (None, 0, 0usize, 0usize);
    let mut last: std::collections::HashMap<Option<i32>, i64> = std::collections::HashMap::new();
    for head in heads {
        first = first.or(Some(head.ts_ns));
        largest = largest.max(head.ts_ns);
        if let Some(before) = last.insert(head.cpu, head.ts_ns) {
            lines += 1;
            back += usize::from(head.ts_ns < before);
        }
    }
    let often = back * 4 >= lines;
    often && (lines >= LINES && first == Some(0) || lines >= LINES_OF_PART && largest < SHORT_NS)
}

/// A head whose time ends at `colon`.
fn timed(line: &[u8], colon: usize) -> Option<Head<'_>> {
    let number = |b: &u8| b.is_ascii_digit() || *b == b'.';
    let width = line[..colon].iter().rev().take_while(|b| number(b)).count();
    let start = colon - width;
    let time = &line[start..colon];
    let dot = memchr::memchr(b'.', time).filter(|dot| *dot > 0 && dot + 1 < time.len())?;
    if start > 0 && !scan::is_blank(line[start - 1]) {
        return None;
    }
    let ts_ns = scan::seconds(time)?;
    let body = event(&line[colon + 1..])?;
    let left = without_extras(scan::trim(&line[..start]));
    let (task, cpu) = match left {
        [.., b']'] => {
            let open = memchr::memrchr(b'[', left)?;
            (scan::trim(&left[..open]), Some(scan::i32(&left[open + 1..left.len() - 1])?).filter(|cpu| *cpu >= 0))
        }
        _ => (left, None),
    };
    let (comm, pid, tid) = comm_and_ids(task);
    let digits = time.len() - dot - 1;
    let bracket = memchr::memrchr(b'[', &line[..start]).filter(|_| cpu.is_some());
    let found = bracket.map(|bracket| Found { bracket, flags: (bracket, 0), seconds: start, dot: start + dot, digits });
    Some(Head { comm, pid, tid, cpu, ts_ns, digits, found, body })
}

/// Without what `-F +misc` (`K`, `U`, two blanks where there is nothing) and `-F +tod` (a date and a
/// time of day) put between the CPU and the time.
fn without_extras(left: &[u8]) -> &[u8] {
    let Some(close) = memchr::memrchr(b']', left).filter(|close| close + 1 < left.len()) else { return left };
    let digits = left[..close].iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let is_cpu = digits > 0 && left[..close - digits].ends_with(b"[");
    let is_extra = |word: &[u8]| match word.len() {
        1 | 2 => word.iter().all(u8::is_ascii_uppercase),
        _ => word.iter().all(|b| b.is_ascii_digit() || b"-:.".contains(b)),
    };
    let mut words = left[close + 1..].split(|b| scan::is_blank(*b)).filter(|word| !word.is_empty());
    if is_cpu && scan::is_blank(left[close + 1]) && words.all(is_extra) {
        &left[..=close]
    } else {
        left
    }
}

/// What follows the time: `EVENT: PAYLOAD`, after the period and other words that `-F` may add.
fn event(rest: &[u8]) -> Option<&[u8]> {
    let mut rest = rest;
    if !rest.first().is_none_or(|b| scan::is_blank(*b)) {
        return None;
    }
    for _ in 0..4 {
        rest = scan::skip_blanks(rest);
        let (word, _) = scan::word(rest);
        if word.is_empty() {
            return None;
        }
        // The time stands behind what looked like one: that was a part of the task's name.
        if let Some(number) = word.strip_suffix(b":").filter(|number| number.contains(&b'.')) {
            if scan::seconds(number).is_some() {
                return None;
            }
        }
        // `PERF_RECORD_EXIT(1:1):(0:0)` holds its payload in the word.
        if word.ends_with(b":") || word.starts_with(b"PERF_RECORD_") {
            return Some(rest);
        }
        rest = &rest[word.len()..];
    }
    None
}

/// `COMM`, `COMM TID`, `COMM PID/TID`, `PID/TID` or `TID`.
fn comm_and_ids(task: &[u8]) -> (&[u8], Option<i64>, Option<i64>) {
    let at = task.iter().rposition(|b| scan::is_blank(*b)).map_or(0, |i| i + 1);
    let (comm, last) = task.split_at(at);
    let known = |n: i64| (n >= 0).then_some(n);
    let slash = memchr::memchr(b'/', last);
    match slash {
        Some(i) => match (scan::i64(&last[..i]), scan::i64(&last[i + 1..])) {
            (Some(pid), Some(tid)) => (scan::trim(comm), known(pid), known(tid)),
            _ => (task, None, None),
        },
        None => match scan::i64(last) {
            Some(tid) => (scan::trim(comm), None, known(tid)),
            None => (task, None, None),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, want: (&str, Option<i64>, Option<i64>, Option<i32>, i64), body: &str) {
        let h = parse(line.as_bytes()).unwrap_or_else(|| panic!("{line}"));
        let comm = std::str::from_utf8(h.comm).unwrap();
        assert_eq!((comm, h.pid, h.tid, h.cpu, h.ts_ns), want, "{line}");
        assert_eq!(std::str::from_utf8(h.body).unwrap(), body, "{line}");
    }

    #[test]
    fn every_selection_of_fields() {
        let us = 1_698_478_597_000;
        let body = "sched:sched_switch: x";
        check(
            "  perf 16365 [000]  1698.478597:   sched:sched_switch: x",
            ("perf", None, Some(16365), Some(0), us),
            body,
        );
        check(
            "lto cgu.07 2/-1    [003]  1698.478597: sched:sched_switch: x",
            ("lto cgu.07", Some(2), None, Some(3), us),
            body,
        );
        check(":-1 27228/-1 [000] 1698.478597: 1 sched:sched_switch: x", (":-1", Some(27228), None, Some(0), us), body);
        check("  1698.478597: sched:sched_switch: x", ("", None, None, None, us), body);
        check(
            "perf\t7/8\t[001] 1698.478597:\t\t1 sched:sched_switch: x",
            ("perf", Some(7), Some(8), Some(1), us),
            body,
        );
        for extra in ["K", "U", "  ", "S ", "KE", "2026-11-29 10:26:29.558000", "K 2026-11-29 10:26:29.558000673"] {
            let line = format!("perf 7 [001] {extra}  1698.478597: sched:sched_switch: x");
            check(&line, ("perf", None, Some(7), Some(1), us), body);
        }
        check(
            "[3] 1.5: q 7 [001] 1698.478597: sched:sched_switch: x",
            ("[3] 1.5: q", None, Some(7), Some(1), us),
            body,
        );
        check("[3] 1.5: q 7 1698.478597: sched:sched_switch: x", ("[3] 1.5: q", None, Some(7), None, us), body);
        check("a [1] B 9 1698.478597: sched:sched_switch: x", ("a [1] B", None, Some(9), None, us), body);
        // perf's own records have no CPU where it recorded none: -1 by `%03d`.
        check("perf 7 [-01] 1698.478597: sched:sched_switch: x", ("perf", None, Some(7), None, us), body);
        check("a [b] c 9 1698.478597: sched:sched_switch: x", ("a [b] c", None, Some(9), None, us), body);
        check("C2 Thre: 9 [001] 1698.478597: sched:sched_switch: x", ("C2 Thre:", None, Some(9), Some(1), us), body);
        check(
            "x 0 [000] 0.000000: PERF_RECORD_FORK(1:1):(0:0)",
            ("x", None, Some(0), Some(0), 0),
            "PERF_RECORD_FORK(1:1):(0:0)",
        );
        check("f 7/7 36556.170907:          1 cycles: ", ("f", Some(7), Some(7), None, 36_556_170_907_000), "cycles: ");
    }

    #[test]
    fn lines_of_ftrace_are_recognised() {
        let is = |line: &str| parse(line.as_bytes()).unwrap_or_else(|| panic!("{line}")).is_ftrace();
        assert!(is("  bash-946   [003] d.h2   676.984916: sched_waking: comm=a"));
        assert!(is("  bash-946   [003]   676.984916: sched_waking: comm=a"));
        assert!(is("  a b-946   (  9) [003] ....   676.984916: sched_waking: comm=a"));
        assert!(!is("  bash-946 12 [003]   676.984916: sched_waking: comm=a"));
        assert!(!is("  bash-946 [003]   676.984916: sched:sched_waking: comm=a"));
        assert!(!is("  676.984916: sched_waking: comm=a"));
    }

    #[test]
    fn what_is_no_head() {
        for line in
            ["\tffffffff813ad50a update_se+0x13a ([k])", "node 31912 cpu-clock: ", "a 1 [000] 1.5:x: y", "1.5: ", ""]
        {
            assert!(parse(line.as_bytes()).is_none(), "{line}");
        }
        assert!(lacks_time(b"perf 7 [000] sched:sched_switch: prev_comm=a"));
        assert!(!lacks_time(b"perf 7 [000] 1.5: sched:sched_switch: prev_comm=a"));
        for line in [
            &b"perf 7 [000] 1.5: prev_comm=a prev_pid=7 ==> next_comm=b"[..],
            b"  1.5:          1 comm=a pid=7 prio=120 target_cpu=000",
        ] {
            assert!(lacks_event(line), "{}", line.escape_ascii());
        }
        for line in [
            &b"perf 7 [000] 1.5: sched:sched_switch: prev_comm=a"[..],
            b"perf 7 [000] sched:sched_switch: prev_comm=a",
            b"a-7 [000] 1.5: sched_waking: comm=a pid=7",
            b"prev_comm=a",
            b"x: prev_comm=a",
        ] {
            assert!(!lacks_event(line), "{}", line.escape_ascii());
        }
    }
}
