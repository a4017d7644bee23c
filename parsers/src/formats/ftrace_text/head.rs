//! Heads of ftrace lines, `COMM-TID (TGID) [CPU] FLAGS TIME:`, taken apart with care.
//!
//! A name may hold blanks, `-`, digits and brackets, so the anchor is the first `-TID [CPU]` after
//! which everything up to the time parses.

use crate::binary::tracepoint;
use crate::text::head::Found;
use crate::text::scan;
use tracekit_schema::events::irq;

/// The time of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Seconds with this many digits after the dot, in ns.
    Ns { ts: i64, digits: usize },
    /// A number without a dot: ticks of a counter.
    Ticks(i64),
    /// Microseconds since a tracer's start, in ns.
    Relative(i64),
}

/// A head.
#[derive(Clone, Debug)]
pub struct Head<'l> {
    pub comm: &'l [u8],
    pub tid: i64,
    pub tgid: Option<i64>,
    pub cpu: i32,
    pub flags: &'l [u8],
    pub time: Time,
    /// Columns, where the quick path can use them.
    pub found: Option<Found>,
    /// What stands after the time and its colon.
    pub body: &'l [u8],
    /// Names are cut at eight characters in this layout.
    pub short_name: bool,
}

/// The head of `line`; `None` when there is none.
pub fn parse(line: &[u8]) -> Option<Head<'_>> {
    memchr::memchr_iter(b'[', line).find_map(|at| bracketed(line, at)).or_else(|| glued(line))
}

/// `COMM-TID [CPU] FLAGS TIME: `, the bracket at `at`.
fn bracketed(line: &[u8], at: usize) -> Option<Head<'_>> {
    let close = at + line[at..].iter().take(12).position(|b| *b == b']')?;
    let cpu = digits(&line[at + 1..close])?;
    let left = line[..at].strip_suffix(b" ")?.trim_ascii_end();
    let (left, tgid) = match left {
        [left @ .., b')'] => {
            let open = memchr::memrchr(b'(', left)?;
            let inside = left[open + 1..].trim_ascii();
            let unknown = !inside.is_empty() && inside.iter().all(|b| *b == b'-');
            (left[..open].trim_ascii_end(), if unknown { None } else { Some(digits(inside)?) })
        }
        _ => (left, None),
    };
    let (comm, tid) = comm_and_tid(left)?;
    let right = Right::parse(line, close + 1)?;
    let time = right.time(line)?;
    Some(Head {
        comm,
        tid,
        tgid,
        cpu: i32::try_from(cpu).ok()?,
        flags: right.flags(line),
        time,
        found: right.found(at, time),
        body: &line[right.body..],
        short_name: false,
    })
}

/// `COMM-TID`, the name without the blanks before it.
fn comm_and_tid(text: &[u8]) -> Option<(&[u8], i64)> {
    let dash = memchr::memrchr(b'-', text)?;
    Some((text[..dash].trim_ascii_start(), digits(&text[dash + 1..])?))
}

/// A number of digits only; not empty.
fn digits(text: &[u8]) -> Option<i64> {
    i64::try_from(scan::u64(text)?).ok()
}

/// Columns of a time in ticks in what trace-cmd prints (`%12llu`).
const TICK_COLUMNS: usize = 12;

/// What follows the CPU: columns of the flags and of the time.
struct Right {
    flags: (usize, usize),
    time: (usize, usize),
    body: usize,
    /// The time carries `us` and a mark of the delay.
    relative: bool,
}

impl Right {
    fn parse(line: &[u8], from: usize) -> Option<Self> {
        let first = blanks(line, from);
        if first == from {
            return Self::timed(line, (from, from), from).filter(|right| right.fills_its_column(line));
        }
        let end = first + line[first..].iter().position(|b| scan::is_blank(*b))?;
        let (flags, at) = if is_flags(&line[first..end]) && !line[first..end].ends_with(b":") {
            ((first, end), blanks(line, end))
        } else {
            ((first, first), first)
        };
        Self::timed(line, flags, at)
    }

    /// trace-cmd report prints ticks in twelve columns right behind the CPU: more digits leave no blank.
    fn fills_its_column(&self, line: &[u8]) -> bool {
        let text = &line[self.time.0..self.time.1];
        !self.relative && text.len() >= TICK_COLUMNS && text.iter().all(u8::is_ascii_digit)
    }

    fn timed(line: &[u8], flags: (usize, usize), at: usize) -> Option<Self> {
        let end = at + line[at..].iter().take(32).position(|b| *b == b':')?;
        let text = &line[at..end];
        let mark = |t: &[u8]| t.iter().position(|b| !b.is_ascii_digit());
        let relative = mark(text).filter(|n| *n > 0 && text[*n..].starts_with(b"us") && text.len() <= n + 3);
        let number = (at, relative.map_or(end, |n| at + n));
        // A blank, a tab or the end of the line: `time:event` glued together is no time.
        let body = blanks(line, end + 1);
        (body > end + 1 || body == line.len()).then_some(Right {
            flags,
            time: number,
            body,
            relative: relative.is_some(),
        })
    }

    fn flags<'l>(&self, line: &'l [u8]) -> &'l [u8] {
        &line[self.flags.0..self.flags.1]
    }

    fn time(&self, line: &[u8]) -> Option<Time> {
        let text = &line[self.time.0..self.time.1];
        match memchr::memchr(b'.', text) {
            Some(dot) if dot > 0 && dot + 1 < text.len() => {
                Some(Time::Ns { ts: scan::seconds(text)?, digits: text.len() - dot - 1 })
            }
            Some(_) => None,
            None if self.relative => Some(Time::Relative(digits(text)?.checked_mul(1000)?)),
            None => Some(Time::Ticks(digits(text)?)),
        }
    }

    fn found(&self, bracket: usize, time: Time) -> Option<Found> {
        let Time::Ns { digits, .. } = time else { return None };
        let flags = (self.flags.0, self.flags.1 - self.flags.0);
        Some(Found { bracket, flags, seconds: self.time.0, dot: self.time.1 - digits - 1, digits })
    }
}

/// The column after the blanks at `from`.
fn blanks(line: &[u8], from: usize) -> usize {
    from + line.get(from..).map_or(0, |rest| rest.iter().take_while(|b| scan::is_blank(**b)).count())
}

/// Context flags: four to eight characters, none of which begins a time that a dot and a colon end.
fn is_flags(text: &[u8]) -> bool {
    (4..=8).contains(&text.len()) && text.iter().all(|b| is_flag(*b))
}

fn is_flag(byte: u8) -> bool {
    matches!(byte, b'.' | b'0'..=b'9' | b'a'..=b'f' | b'D' | b'X' | b'N' | b'n' | b'p' | b'B' | b'L' | b'l'
        | b'Z' | b'z' | b'H' | b'h' | b's')
}

/// `COMM-TID  CPUFLAGS TIME: `: the latency layouts of the kernel and of `trace-cmd report -l`.
fn glued(line: &[u8]) -> Option<Head<'_>> {
    memchr::memchr_iter(b'-', line).find_map(|dash| glued_at(line, dash))
}

/// Is `line` what is left of one in a latency layout: does `-TID CPUFLAGS` stand in it?
pub fn is_cut_glued(line: &[u8]) -> bool {
    memchr::memchr_iter(b'-', line).any(|dash| Glued::at(line, dash).is_some())
}

/// Where the parts of `-TID CPUFLAGS` end and begin.
struct Glued {
    tid_end: usize,
    cpu: (usize, usize),
    flags: (usize, usize),
}

impl Glued {
    fn at(line: &[u8], dash: usize) -> Option<Self> {
        let run = |from: usize, ok: fn(&u8) -> bool| from + line[from..].iter().take_while(|b| ok(b)).count();
        let tid_end = run(dash + 1, u8::is_ascii_digit);
        let cpu_at = blanks(line, tid_end);
        if tid_end == dash + 1 || cpu_at == tid_end {
            return None;
        }
        // The flags begin with a letter or a dot, so they do not eat digits of the CPU.
        let cpu_end = run(cpu_at, u8::is_ascii_digit);
        let flags_end = run(cpu_end, |b| !scan::is_blank(*b));
        let flags = &line[cpu_end..flags_end];
        // With -R the flags are the number of the record, behind a dash.
        let raw = flags.strip_prefix(b"-0x").is_some_and(|digits| scan::hex(digits).is_some());
        if cpu_end == cpu_at || !(raw || is_flags(flags)) {
            return None;
        }
        Some(Glued { tid_end, cpu: (cpu_at, cpu_end), flags: (cpu_end + usize::from(raw), flags_end) })
    }
}

fn glued_at(line: &[u8], dash: usize) -> Option<Head<'_>> {
    let Glued { tid_end, cpu, flags } = Glued::at(line, dash)?;
    let right = Right::timed(line, flags, blanks(line, flags.1))?;
    Some(Head {
        comm: line[..dash].trim_ascii_start(),
        tid: digits(&line[dash + 1..tid_end])?,
        tgid: None,
        cpu: i32::try_from(digits(&line[cpu.0..cpu.1])?).ok()?,
        flags: right.flags(line),
        time: right.time(line)?,
        found: None,
        body: &line[right.body..],
        short_name: true,
    })
}

/// What a character of the flags is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Interrupts and bottom halves.
    Irqs,
    /// Need for a reschedule.
    Resched,
    /// Lazy need for one, a column of its own in PREEMPT_RT trees of 5.x.
    Lazy,
    /// Interrupt context.
    Context,
    /// Depth of disabled preemption.
    Depth,
    /// Depth of disabled migration.
    Migrate,
    /// Something without a bit of its own.
    Ignored,
}

impl Column {
    /// The word by which headers of the kernel explain it.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Column::Irqs => "irqs-off",
            Column::Resched => "need-resched",
            Column::Lazy => "need-resched-lazy",
            Column::Context => "hardirq/softirq",
            Column::Depth => "preempt-depth",
            Column::Migrate => "migrate-disable",
            Column::Ignored => return None,
        })
    }
}

/// The columns when no header names them.
pub const COLUMNS: [Column; 5] = [Column::Irqs, Column::Resched, Column::Context, Column::Depth, Column::Migrate];

/// The column that a legend line (`/ _----=> need-resched`) is about.
pub fn legend(text: &[u8]) -> Option<Column> {
    let at = memchr::memmem::find(text, b"=> ")?;
    let what = text[at + 3..].trim_ascii();
    Some(match what {
        w if w.starts_with(b"irqs-off") => Column::Irqs,
        b"need-resched" => Column::Resched,
        b"need-resched-lazy" | b"need-resched_lazy" => Column::Lazy,
        b"hardirq/softirq" => Column::Context,
        b"preempt-depth" => Column::Depth,
        b"migrate-disable" => Column::Migrate,
        _ => Column::Ignored,
    })
}

/// The bits of `flags`; `None` when a character has no meaning in its column.
pub fn irq_flags(flags: &[u8], columns: &[Column]) -> Option<u16> {
    if let Some(digits) = flags.strip_prefix(b"0x") {
        return scan::hex(digits).map(|n| tracepoint::decode::irq_flags(n as u8, 0));
    }
    let mut bits = 0;
    for (i, &c) in flags.iter().enumerate() {
        bits |= match columns.get(i)? {
            Column::Irqs => match c {
                b'd' => irq::IRQS_OFF,
                b'b' => irq::BH_OFF,
                b'D' => irq::IRQS_OFF | irq::BH_OFF,
                b'.' | b'X' => 0,
                _ => return None,
            },
            Column::Resched => resched(c)?,
            Column::Lazy => match c {
                b'L' | b'l' => irq::LAZY_RESCHED,
                b'.' => 0,
                _ => depth(c).map(|_| irq::LAZY_RESCHED)?,
            },
            Column::Context => match c {
                b'H' => irq::HARDIRQ | irq::SOFTIRQ,
                b'h' => irq::HARDIRQ,
                b's' => irq::SOFTIRQ,
                b'Z' => irq::NMI | irq::HARDIRQ,
                b'z' => irq::NMI,
                b'.' => 0,
                _ => return None,
            },
            Column::Depth => depth(c)? << irq::PREEMPT_DEPTH_SHIFT,
            Column::Migrate => depth(c)? << irq::MIGRATE_DISABLE_SHIFT,
            Column::Ignored => 0,
        };
    }
    Some(bits)
}

fn resched(c: u8) -> Option<u16> {
    Some(match c {
        b'N' => irq::NEED_RESCHED | irq::PREEMPT_RESCHED,
        b'n' => irq::NEED_RESCHED,
        b'p' => irq::PREEMPT_RESCHED,
        b'B' => irq::NEED_RESCHED | irq::PREEMPT_RESCHED | irq::LAZY_RESCHED,
        b'L' => irq::PREEMPT_RESCHED | irq::LAZY_RESCHED,
        b'b' => irq::NEED_RESCHED | irq::LAZY_RESCHED,
        b'l' => irq::LAZY_RESCHED,
        b'.' => 0,
        _ => return None,
    })
}

fn depth(c: u8) -> Option<u16> {
    match c {
        b'.' => Some(0),
        b'0'..=b'9' => Some(u16::from(c - b'0')),
        b'a'..=b'f' => Some(u16::from(c - b'a') + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(head: &Head<'_>) -> String {
        String::from_utf8_lossy(head.comm).into_owned()
    }

    #[test]
    fn names_that_look_like_heads() {
        for (line, comm, tid, cpu) in [
            ("   Binder:1234_5-4321  [003] d..2.    11.506631: x: y", "Binder:1234_5", 4321, 3),
            ("  C1 CompilerThre-77 [000]    7.079787: x: y", "C1 CompilerThre", 77, 0),
            ("           foo]-12   [1023]  1234.567890: x: y", "foo]", 12, 1023),
            ("   a-1 [000] b [x-3 [001] ....  1.000001: x: y", "a-1 [000] b [x", 3, 1),
            (" kworker/u12:1-events-9 [000] 12345678: x: y", "kworker/u12:1-events", 9, 0),
            ("          <idle>-0     (-----) [000] d..3 1.5: x: y", "<idle>", 0, 0),
            ("       (sd-pam)-640     (    640) [002] .....     3.914285: x: y", "(sd-pam)", 640, 2),
        ] {
            let head = parse(line.as_bytes()).unwrap_or_else(|| panic!("{line}"));
            assert_eq!((text(&head).as_str(), head.tid, head.cpu, head.body), (comm, tid, cpu, &b"x: y"[..]), "{line}");
        }
    }

    #[test]
    fn times_of_all_clocks() {
        let time = |line: &str| parse(line.as_bytes()).map(|h| h.time);
        assert_eq!(time("a-1 [000] 7.079787: x: y"), Some(Time::Ns { ts: 7_079_787_000, digits: 6 }));
        assert_eq!(
            time("a-1 [000] d..2. 852655.067718354: x: y"),
            Some(Time::Ns { ts: 852_655_067_718_354, digits: 9 })
        );
        assert_eq!(time("a-1 [000] .... 98765432109876: x: y"), Some(Time::Ticks(98_765_432_109_876)));
        assert_eq!(time("    bash-12     0d..2  123us+: x: y"), Some(Time::Relative(123_000)));
        assert_eq!(time("    bash-12     0d..2    0us : x: y"), Some(Time::Relative(0)));
        assert_eq!(
            time("trace-cm-20913   2d..2. 852655.067718: x: y"),
            Some(Time::Ns { ts: 852_655_067_718_000, digits: 6 })
        );
        assert_eq!(time("a-1 [000]197636837806759: x: y"), Some(Time::Ticks(197_636_837_806_759)));
        assert_eq!(time("a-1 [000]12345678901: x: y"), None);
        assert_eq!(time("a-1 [000]123456.079787: x: y"), None);
        assert_eq!(time("a-1 [000] 7.079787x: y"), None);
        assert_eq!(time("a-1 [000] 7.: y"), None);
        assert_eq!(time("a-1 [000] 7.079787:y"), None);
        assert_eq!(time("a-1 [] 7.079787: y"), None);
    }

    #[test]
    fn what_is_left_of_a_line() {
        assert!(is_cut_glued(b"reader_w-45        2d... 3140000"));
        assert!(is_cut_glued(b"  <idle>-0         1dNs.. 314000020us : sched_wa"));
        assert!(!is_cut_glued(b"watchdog: BUG: soft lockup - CPU#3 stuck for 22s"));
        assert!(!is_cut_glued(b"usb 1-1: new device 3.0"));
    }

    #[test]
    fn flags_by_column() {
        assert_eq!(irq_flags(b"d..2.", &COLUMNS), Some(irq::IRQS_OFF | 2 << irq::PREEMPT_DEPTH_SHIFT));
        assert_eq!(
            irq_flags(b".NZff", &COLUMNS),
            Some(irq::NEED_RESCHED | irq::PREEMPT_RESCHED | irq::NMI | irq::HARDIRQ | 0xff00)
        );
        assert_eq!(irq_flags(b"..h1", &COLUMNS), Some(irq::HARDIRQ | 1 << irq::PREEMPT_DEPTH_SHIFT));
        assert_eq!(irq_flags(b"0x9", &COLUMNS), Some(irq::IRQS_OFF | irq::HARDIRQ));
        assert_eq!(irq_flags(b"q..1", &COLUMNS), None);
        assert_eq!(irq_flags(b"......", &COLUMNS), None);
        assert_eq!(legend(b"#                  |||| /     delay"), None);
        assert_eq!(legend(b"# / _-----=> irqs-off/BH-disabled"), Some(Column::Irqs));
        assert_eq!(legend(b"# / _-----=> preempt-lazy-depth"), Some(Column::Ignored));
    }
}
