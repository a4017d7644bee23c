//! `perf-sched-map`: slices out of the picture that `perf sched map` draws.
//!
//! # Format
//!
//! **Produced by** `perf sched map`, with or without `--compact`, `--color-cpus`, `--color-pids`.
//!
//! **Grammar**: a row a switch. Four bytes a CPU, a star before the CPU that switched, two letters
//! for its task, a dot for idle, blanks where nobody knows; then the time; then, where two letters
//! are used for the first time, whom they stand for:
//!
//! ```text
//!   *A0          13.528659 secs A0 => rcu_preempt:15
//!    A0 *B0      13.528676 secs B0 => ksoftirqd/0:14 (CPU 1)
//! ```
//!
//! `--compact` leaves CPUs out that did nothing; a new one then says its number behind the task.
//!
//! **Clock**: perf's own, cut to the microsecond.
//!
//! **Rows**: the table `slices`: from the row in which a CPU's star names the task to that CPU's
//! next star. The last one of each CPU is open. This is a picture, **of low resolution**: no
//! states, no wakeups, no priorities, no processes.
//!
//! **Departures tolerated**: escape sequences of colours, CRLF, rows of several CPUs out of order,
//! perf's messages, rows that lost the two blanks they begin with (as in documentation and mails).
//! Rows that were moved by any other width are not read: which CPU a cell is could not be told.
//!
//! **Traps**: perf names 260 tasks at most and then begins anew with A0: from there on two tasks
//! may bear the same letters, which a diagnostic says. Letters that the file never explains (an
//! excerpt) have no task; their slices are left out. With `--cpus` the cells do not say which CPUs
//! they are: they are numbered from 0, and a switch on another CPU is a row without star and time. A
//! task that `--task-name` hides is `-`.
//!
//! **Sources**: Linux `tools/perf/builtin-sched.c`, `perf-sched(1)`; output of perf 2.6.31 and 6.1.

use std::collections::BTreeMap;

use tracekit_schema::diag::{Code, Diagnostic};
use tracekit_schema::tables::flag;
use tracekit_schema::{Out, StrId};

use crate::text::payload::sched::context_comm;
use crate::text::perf_tables::{self, Reader, Report, Threads, Tool};
use crate::text::scan;
use crate::{Confidence, Format, FormatInfo, Head, Options, ParseError, Parser, Source};

/// The format's row.
pub static FORMAT: Format = Format {
    name: "perf-sched-map",
    title: "who ran where, as a picture: perf sched map",
    streams: true,
    sniff,
    open,
    info: FormatInfo {
        produced_by: "perf sched map [--compact] [--color-cpus ...]",
        kinds: "none: fills the table `slices`",
        provides: "CPU, thread and name of each slice; losses",
        resolution: "low: 1 us, truncated, and nothing but who ran where",
        clock: "perf's own",
        confidence: "real captures with perf 6.1; the layout of 2009 on a published sample",
        notes: "no events, states, wakeups or priorities; above 260 tasks the letters are \
            ambiguous, and a diagnostic says so",
    },
};

const EXPECTED: &str = "a row of perf sched map `*A0  .  TIME secs A0 => TASK:TID`";
/// More cells than this in a row are damage.
const MOST_CPUS: usize = 1 << 13;

fn sniff(head: &Head) -> Confidence {
    let (mut plain, mut rows, mut bare) = (Vec::new(), 0, false);
    for line in head.bytes.split(|b| *b == b'\n').take(500) {
        plain.clear();
        scan::without_colours(line, &mut plain);
        if let Some(row) = Row::of(&plain, bare) {
            (rows, bare) = (rows + 1, row.bare);
        }
        if rows > 1 {
            break;
        }
    }
    match rows {
        0 if perf_tables::usage(head, "map").is_some() => 60,
        0 => 0,
        1 => 65,
        _ => 85,
    }
}

fn open(mut source: Source, options: &Options, out: &mut Out) -> Result<Box<dyn Parser>, ParseError> {
    let head = source.head().map_err(|e| ParseError::io(FORMAT.name, &e))?;
    if head.whole && matches!(sniff(&head), 0 | 60) {
        return Err(perf_tables::no_rows(FORMAT.name, "map", EXPECTED, &head));
    }
    out.meta.set("os", "linux");
    out.meta.set("clock.name", options.clock.clone().unwrap_or_else(|| "perf".to_owned()));
    out.meta.set("clock.resolution_ns", "1000");
    out.meta.set("clock.synchronised", "unknown");
    out.meta.set("source.variant", "map: low resolution");
    Ok(Box::new(Reader::new(source, Map::default())))
}

/// Two letters.
type Letters = [u8; 2];

/// One row.
#[derive(Debug, PartialEq, Eq)]
struct Row<'l> {
    /// The cell with the star, from 0.
    cell: usize,
    letters: Letters,
    ts_ns: i64,
    /// Whom the letters stand for, where the row says so.
    task: Option<(&'l [u8], i64)>,
    /// Number of the CPU, where the row says so.
    cpu: Option<i32>,
    /// The two blanks that perf begins rows with are not there.
    bare: bool,
}

impl<'l> Row<'l> {
    /// `bare` says that a row before had lost its two blanks.
    fn of(line: &'l [u8], bare: bool) -> Option<Self> {
        let secs = memchr::memmem::find(line, b" secs")?;
        let after = &line[secs + b" secs".len()..];
        if !after.first().is_none_or(|b| scan::is_blank(*b)) {
            return None;
        }
        let start = line[..secs].iter().rposition(|b| scan::is_blank(*b)).map_or(0, |i| i + 1);
        let time = &line[start..secs];
        let dot = memchr::memchr(b'.', time)?;
        if dot == 0 || dot + 1 == time.len() || time[0] == b'-' {
            return None;
        }
        let ts_ns = scan::seconds(time)?;
        let star = memchr::memchr(b'*', &line[..start])?;
        // Four bytes a cell, behind two blanks; the star is the first byte of its own.
        let bare = bare || line.iter().take(2).any(|b| !scan::is_blank(*b));
        let cell = star.checked_sub(if bare { 0 } else { 2 }).filter(|at| at.is_multiple_of(4))? / 4;
        if cell >= MOST_CPUS || star + 4 > start {
            return None;
        }
        let letters = [line[star + 1], line[star + 2]];
        let known = matches!(letters, [b'.' | b'-', b' '] | [b'A'..=b'Z', b'0'..=b'9']);
        if !known || line[star + 3] != b' ' {
            return None;
        }
        let (task, cpu) = explained(after, letters);
        Some(Row { cell, letters, ts_ns, task, cpu, bare })
    }
}

/// `A0 => name:15 (CPU 1)`: the task and the CPU.
fn explained(text: &[u8], letters: Letters) -> (Option<(&[u8], i64)>, Option<i32>) {
    let text = scan::trim(text);
    let (text, cpu) = match memchr::memmem::rfind(text, b"(CPU ") {
        Some(at) if text.ends_with(b")") => (scan::trim(&text[..at]), scan::i32(&text[at + 5..text.len() - 1])),
        _ => (text, None),
    };
    let task = text.strip_prefix(letters.trim_ascii()).and_then(|rest| scan::skip_blanks(rest).strip_prefix(b"=> "));
    let task = task.and_then(|task| {
        let colon = memchr::memrchr(b':', task)?;
        Some((&task[..colon], scan::i64(&task[colon + 1..])?))
    });
    (task, cpu.filter(|cpu| *cpu >= 0))
}

/// Is it the row of a switch on a CPU that `--cpus` hides? It has the cells of the others alone, as they
/// were: no star, no time.
fn is_hidden(line: &[u8]) -> bool {
    let mut cells = line.split(|b| scan::is_blank(*b)).filter(|cell| !cell.is_empty()).peekable();
    cells.peek().is_some() && cells.all(|cell| matches!(cell, [b'.' | b'-'] | [b'A'..=b'Z', b'0'..=b'9']))
}

/// Whom letters stand for.
#[derive(Clone, Copy)]
struct Known {
    tid: i64,
    comm: Option<StrId>,
}

/// What runs on a CPU.
#[derive(Clone, Copy)]
enum Runs {
    /// Before its first star.
    Unknown,
    /// Idle, or a task that the file does not name.
    Nobody { since: i64 },
    /// This task.
    Task { since: i64, known: Known },
}

#[derive(Default)]
struct Map {
    names: BTreeMap<Letters, Known>,
    /// The CPU on which each thread ran last.
    threads: Threads<Option<i32>>,
    cpus: Vec<Runs>,
    /// CPUs of the cells, where rows say their numbers.
    compact: Vec<Option<i32>>,
    /// Letters that were never explained, and how many slices bear them.
    unexplained: BTreeMap<Letters, u64>,
    newest: Option<i64>,
    /// Line being read.
    number: u64,
    /// Rows have lost their two blanks.
    bare: bool,
}

impl Tool for Map {
    const NAME: &'static str = FORMAT.name;

    fn line(&mut self, line: &[u8], ended: bool, report: &mut Report, out: &mut Out) {
        self.number = report.number();
        if report.info(line.trim_ascii(), out) {
            return;
        }
        // A cut row may lack the end of a number.
        match Row::of(line, self.bare).filter(|_| ended) {
            Some(row) => self.row(&row, out),
            None if ended && is_hidden(line) => {}
            None => report.unparsed(line, ended, EXPECTED, out),
        }
    }

    fn finish(&mut self, out: &mut Out) {
        for cell in 0..self.cpus.len() {
            self.end(cell, self.newest.unwrap_or(0), flag::OPEN_END, out);
        }
        for (letters, count) in std::mem::take(&mut self.unexplained) {
            let message = format!("nothing says whom `{}` stands for; its slices are left out", shown(letters));
            let d = Diagnostic { count, ..Diagnostic::new(Code::UnknownName, message) };
            out.diag(d.advise("use the whole output: letters are explained where they first appear"));
        }
        let message = "a map records who ran where and nothing else: no wakeups, states or priorities";
        let advice = "read the perf.data file itself, or print it with perf script";
        out.diag(Diagnostic::new(Code::MissingEvents, message).advise(advice));
        perf_tables::sort_slices(out);
        let highest = (0..self.cpus.len()).map(|c| self.compact[c].unwrap_or(c as i32)).max();
        if let Some(highest) = highest {
            out.meta.set("nr_cpus", (i64::from(highest) + 1).to_string());
        }
    }
}

impl Map {
    fn row(&mut self, row: &Row<'_>, out: &mut Out) {
        self.newest = self.newest.max(Some(row.ts_ns));
        self.bare = row.bare;
        if let Some((name, tid)) = row.task {
            let comm = context_comm(name).map(|c| out.strings.intern(c));
            let before = self.names.insert(row.letters, Known { tid, comm });
            if let Some(before) = before.filter(|b| b.tid != tid) {
                let (letters, line) = (shown(row.letters), self.number);
                out.diagnostics.push_with(Code::Inferred, || {
                    let message = format!(
                        "`{letters}` stood for thread {}, and stands for {tid} from here on; perf \
                        has run out of letters",
                        before.tid
                    );
                    let d = Diagnostic::new(Code::Inferred, message).at_line(line).at_ts(row.ts_ns);
                    d.advise("slices of the thread before may be given to the new one: read perf.data itself")
                });
            }
        }
        if self.cpus.len() <= row.cell {
            self.cpus.resize(row.cell + 1, Runs::Unknown);
            self.compact.resize(row.cell + 1, None);
        }
        if row.cpu.is_some() {
            self.compact[row.cell] = row.cpu;
        }
        self.end(row.cell, row.ts_ns, 0, out);
        self.cpus[row.cell] = match self.names.get(&row.letters) {
            _ if matches!(row.letters[0], b'.' | b'-') => Runs::Nobody { since: row.ts_ns },
            Some(known) if known.tid > 0 => Runs::Task { since: row.ts_ns, known: *known },
            Some(_) => Runs::Nobody { since: row.ts_ns },
            None => {
                *self.unexplained.entry(row.letters).or_insert(0) += 1;
                Runs::Nobody { since: row.ts_ns }
            }
        };
    }

    /// Ends what runs in a cell.
    fn end(&mut self, cell: usize, ts_ns: i64, flags: u16, out: &mut Out) {
        let (since, known) = match self.cpus[cell] {
            Runs::Unknown => return,
            Runs::Nobody { since } => (since, None),
            Runs::Task { since, known } => (since, Some(known)),
        };
        let cpu = self.compact[cell].unwrap_or(cell as i32);
        if ts_ns < since {
            let line = self.number;
            out.diagnostics.push_with(Code::TimeBackwards, || {
                let message = format!("CPU {cpu} goes back by {} ns", since.saturating_sub(ts_ns));
                Diagnostic::new(Code::TimeBackwards, message).at_line(line).on_cpu(cpu).at_ts(ts_ns)
            });
        }
        let Some(Known { tid, comm }) = known else { return };
        let flags = if ts_ns < since { flags | flag::CLAMPED } else { flags };
        let thread = self.threads.entry(tid);
        let mut slice = out.slices.push();
        slice.ts_ns(since).dur_ns(ts_ns.saturating_sub(since).max(0)).cpu(cpu).utid(thread.utid).tid(tid).comm(comm);
        slice.prev_cpu(thread.kept.replace(cpu)).flags(flags);
    }
}

fn shown(letters: Letters) -> String {
    scan::shown(letters.trim_ascii(), 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows() {
        let row = Row::of(b"   A0 *B0       13.528676 secs B0 => ksoftirqd/0:14 (CPU 3)", false).unwrap();
        assert_eq!((row.cell, row.letters, row.ts_ns), (1, *b"B0", 13_528_676_000));
        assert_eq!((row.task, row.cpu), (Some((&b"ksoftirqd/0"[..], 14)), Some(3)));
        let row = Row::of(b"  *.           13.532407 secs .  => swapper:0", false).unwrap();
        assert_eq!((row.cell, row.letters, row.task), (0, *b". ", Some((&b"swapper"[..], 0))));
        let row = Row::of(b"  *A0   12843.046243 secs ", false).unwrap();
        assert_eq!((row.task, row.cpu), (None, None));
        for line in [
            &b"   A0  B0       13.528676 secs "[..],
            b"  *A        13.528676 secs ",
            b" *A0        13.528676 secs ",
            b"  *A0       13 secs ",
            b"  *A0       13.528676 seconds",
            b"  *A013.528676 secs",
            b"*A01.5 secs",
            b"",
        ] {
            assert!(Row::of(line, false).is_none(), "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn rows_without_their_two_blanks() {
        let cell = |line: &[u8], bare| Row::of(line, bare).map(|row| (row.cell, row.bare));
        assert_eq!(cell(b"*A0       1.5 secs A0 => a:1", false), Some((0, true)));
        assert_eq!(cell(b" .  *B0   1.5 secs B0 => b:2", false), Some((1, true)));
        // Either that, or it was moved to the right by two.
        assert_eq!(cell(b"    *B0   1.5 secs", false), None);
        assert_eq!(cell(b"    *B0   1.5 secs", true), Some((1, true)));
        assert_eq!(cell(b"      *B0 1.5 secs", true), None);
    }
}
