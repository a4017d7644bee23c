//! What the tables that perf's scheduler tools print have in common: lines, the tools' own
//! messages, losses, threads.

use std::collections::HashMap;
use std::io;

use tracekit_schema::diag::{Code, Diagnostic};
use tracekit_schema::table::Table;
use tracekit_schema::Out;

use crate::text::lines::Lines;
use crate::text::payload::sched::context_comm;
use crate::text::scan;
use crate::{mismatch, Head, ParseError, Parser, Source};

/// Bytes of a line that a diagnostic shows.
const SHOWN: usize = 120;

/// What perf writes to the terminal, often caught in the same file.
pub fn is_message(line: &[u8]) -> bool {
    const STARTS: [&[u8]; 8] = [
        // `--show-round-events`: an end of a round of buffers, which says nothing of tasks.
        b"PERF_RECORD_FINISHED_ROUND",
        b"Warning:",
        b"Check IO/CPU overload!",
        b"'trace' not valid for",
        b"Samples for '",
        b"Samples do not have callchains.",
        b"Samples of ",
        b"...",
    ];
    STARTS.iter().any(|start| line.starts_with(start)) || line == b"[...]"
}

/// `Processed 5 events and lost 2 chunks!`: a chunk is many records, nobody knows how many.
pub fn tells_lost_chunks(line: &[u8]) -> bool {
    line.starts_with(b"Processed ") && memchr::memmem::find(line, b" lost ").is_some()
}

/// The first line of `head` in which perf refuses its own options: there is no table then.
pub fn usage(head: &Head, tool: &str) -> Option<(u64, String)> {
    let usage = format!("Usage: perf sched {tool}");
    memchr::memmem::find(&head.bytes, usage.as_bytes())?;
    let (number, line) = (1..).zip(head.bytes.split(|b| *b == b'\n')).find(|(_, l)| !l.trim_ascii().is_empty())?;
    Some((number, scan::shown(line.trim_ascii(), SHOWN)))
}

/// The error of a source that holds no row of the table.
pub fn no_rows(format: &'static str, tool: &str, expected: &str, head: &Head) -> ParseError {
    let error = match usage(head, tool) {
        Some((line, found)) => {
            let message = format!("expected {expected}, found perf's refusal of its options, `{found}`");
            ParseError::new(format, "no-scheduler-events", message).at_line(line)
        }
        None => {
            let mut lines = (1..).zip(head.bytes.split(|b| *b == b'\n')).map(|(n, l)| (n, l.trim_ascii()));
            let (line, found) = lines.find(|(_, l)| !l.is_empty() && !is_message(l)).unwrap_or((1, b""));
            let message = format!("expected {expected}, found none; the text begins `{}`", scan::shown(found, SHOWN));
            ParseError::new(format, "no-scheduler-events", message).at_line(line)
        }
    };
    error.advise(format!("record with `perf sched record` and print with `perf sched {tool}`"))
}

/// The lines of a report and its accounts.
pub struct Report {
    lines: Lines,
    unparsed: u64,
    lost: Option<i64>,
    lost_unknown: bool,
}

impl Report {
    /// The report in `source`.
    fn new(source: Source) -> Self {
        Report { lines: Lines::new(source), unparsed: 0, lost: None, lost_unknown: false }
    }

    /// Copies the next line, without colours, to `line`; `None` at the end, else whether a line end
    /// follows it.
    fn next(&mut self, line: &mut Vec<u8>) -> io::Result<Option<bool>> {
        let first = self.lines.number == 0;
        let Some(next) = self.lines.next_line()? else { return Ok(None) };
        let bytes = if first { next.bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(next.bytes) } else { next.bytes };
        line.clear();
        if memchr::memchr(0x1b, bytes).is_none() {
            line.extend_from_slice(bytes);
        } else {
            scan::without_colours(bytes, line);
        }
        Ok(Some(next.ended))
    }

    /// Number of the last line.
    pub fn number(&self) -> u64 {
        self.lines.number
    }

    /// A line that fits nothing: counted, the first ones shown; a last line without its end was cut.
    pub fn unparsed(&mut self, line: &[u8], ended: bool, expected: &str, out: &mut Out) {
        let number = self.number();
        if !ended {
            let message = format!("the last line is cut short: `{}`", scan::shown(line, SHOWN));
            return out.diag(Diagnostic::new(Code::Truncated, message).at_line(number));
        }
        self.unparsed += 1;
        out.diagnostics.push_with(Code::Unparsed, || mismatch::unparsed(line, expected).at_line(number));
    }

    /// The source says that records were lost, nobody knows when.
    pub fn lose(&mut self, count: Option<i64>, cause: &str, out: &mut Out) {
        match count {
            Some(n) => self.lost = Some(self.lost.unwrap_or(0).saturating_add(n)),
            None => self.lost_unknown = true,
        }
        let cause = out.strings.intern(cause.as_bytes());
        out.losses.push().count(count).cause(cause);
        let many = count.map_or("an unknown number of".to_owned(), |n| n.to_string());
        let row = Diagnostic::new(Code::LostEvents, format!("{many} records were lost, nobody knows when"));
        out.diag(row.at_line(self.number()).advise("record with a larger buffer (perf sched record -m)"));
    }

    /// Reads perf's sums of what went wrong, `INFO: 1.2% lost events (3 out of 250, in 1 chunks)`;
    /// false for another line.
    pub fn info(&mut self, line: &[u8], out: &mut Out) -> bool {
        let Some(text) = line.strip_prefix(b"INFO: ") else { return false };
        let (_, what) = scan::word(text);
        let what = scan::skip_blanks(what);
        let Some(open) = memchr::memchr(b'(', what) else { return false };
        let Some(count) = scan::i64(scan::word(&what[open + 1..]).0) else { return false };
        let name = scan::trim(&what[..open]);
        if name == b"lost events" {
            self.lose(Some(count), "chunk", out);
        } else {
            let message = format!("perf counted {count} {}", scan::shown(name, 60));
            let row = Diagnostic::new(Code::SwitchMismatch, message).at_line(self.number());
            out.diag(row.advise("the values beside it rest on records that contradict each other"));
        }
        let section = out.strings.intern(b"INFO");
        let key = out.strings.intern(name);
        out.summaries.push().section(section).key(key).value(count as f64);
        true
    }

    /// Sets the metadata that is known at the end.
    fn finish(&self, out: &mut Out) {
        out.meta.set("parse.lines", self.number().to_string());
        out.meta.set("parse.unparsed", self.unparsed.to_string());
        if self.lost.is_some() || self.lost_unknown {
            out.meta.set("loss.known", (!self.lost_unknown).to_string());
        }
        if let (Some(n), false) = (self.lost, self.lost_unknown) {
            out.meta.set("loss.total", n.to_string());
        }
    }
}

/// A table that a tool of perf prints.
pub trait Tool: Send {
    /// The format's name.
    const NAME: &'static str;
    /// Reads a line that is neither empty nor one of perf's messages.
    fn line(&mut self, line: &[u8], ended: bool, report: &mut Report, out: &mut Out);
    /// Adds what is known at the end.
    fn finish(&mut self, out: &mut Out);
}

/// Runs a [`Tool`] over the lines of a report.
pub struct Reader<T> {
    report: Report,
    line: Vec<u8>,
    tool: T,
}

impl<T> Reader<T> {
    /// A reader of `source`.
    pub fn new(source: Source, tool: T) -> Self {
        Reader { report: Report::new(source), line: Vec::new(), tool }
    }
}

impl<T: Tool> Parser for Reader<T> {
    fn fill(&mut self, out: &mut Out, rows: usize) -> Result<bool, ParseError> {
        for _ in 0..rows.max(1) {
            let next = self.report.next(&mut self.line).map_err(|e| ParseError::io(T::NAME, &e))?;
            let Some(ended) = next else {
                self.tool.finish(out);
                self.report.finish(out);
                return Ok(false);
            };
            let text = self.line.trim_ascii();
            if tells_lost_chunks(text) {
                self.report.lose(None, "chunk", out);
            } else if !text.is_empty() && !is_message(text) {
                self.tool.line(&self.line, ended, &mut self.report, out);
            }
        }
        Ok(true)
    }

    fn consumed(&self) -> u64 {
        self.report.lines.offset()
    }
}

/// A task as these tables print it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task<'t> {
    /// The idle task of a CPU.
    Idle,
    /// A thread.
    Thread {
        /// Name, none where perf does not know it (`:17008`).
        comm: Option<&'t [u8]>,
        /// Thread; none for -1, once perf lost sight of it.
        tid: Option<i64>,
        /// Process.
        pid: Option<i64>,
    },
}

/// How perf names the idle task of a CPU: in rows of slices, and as a waker.
pub const IDLE: [&[u8]; 2] = [b"<idle>", b"swapper"];

/// `name[tid]`, `name[tid/pid]` or the idle task.
pub fn task(text: &[u8]) -> Option<Task<'_>> {
    if IDLE.contains(&text) {
        return Some(Task::Idle);
    }
    let inner = text.strip_suffix(b"]")?;
    let open = memchr::memrchr(b'[', inner)?;
    let (name, ids) = (&inner[..open], &inner[open + 1..]);
    let known = |n: i64| (n >= 0).then_some(n);
    let comm = context_comm(name);
    let (tid, pid) = match memchr::memchr(b'/', ids) {
        Some(slash) => (scan::i64(&ids[..slash])?, known(scan::i64(&ids[slash + 1..])?)),
        // One number stands for both, unless perf never learned of the process.
        None => scan::i64(ids).map(|tid| (tid, known(tid).filter(|_| comm.is_some())))?,
    };
    if tid == 0 {
        return Some(Task::Idle);
    }
    Some(Task::Thread { comm, tid: known(tid), pid })
}

/// What the rows before say of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen<T> {
    /// Key in the `slices` table.
    pub utid: u32,
    /// What the format keeps of it.
    pub kept: T,
}

/// Threads by number. A report does not distinguish one thread from a later one of the same number.
#[derive(Debug)]
pub struct Threads<T>(HashMap<i64, Seen<T>>);

impl<T> Default for Threads<T> {
    fn default() -> Self {
        Threads(HashMap::new())
    }
}

impl<T: Default> Threads<T> {
    /// The entry of `tid`, made when it is new; keys are given in the order of first sight.
    pub fn entry(&mut self, tid: i64) -> &mut Seen<T> {
        let next = self.0.len() as u32;
        self.0.entry(tid).or_insert_with(|| Seen { utid: next, kept: T::default() })
    }
}

/// Puts the slices in the order of their start, as the table promises; rows of a report stand in
/// that of their end.
pub fn sort_slices(out: &mut Out) {
    let s = &out.slices;
    let mut rows: Vec<u32> = (0..s.len() as u32).collect();
    rows.sort_by_key(|&row| (s.ts_ns.get(row as usize), s.cpu.get(row as usize)));
    out.slices = s.take(&rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_as_printed() {
        let thread = |comm: &'static str, tid: Option<i64>, pid: Option<i64>| {
            Some(Task::Thread { comm: (!comm.is_empty()).then_some(comm.as_bytes()), tid, pid })
        };
        for (text, want) in [
            ("<idle>", Some(Task::Idle)),
            ("swapper", Some(Task::Idle)),
            ("swapper/0[0]", Some(Task::Idle)),
            ("perf[227]", thread("perf", Some(227), Some(227))),
            ("opt cgu.0[32157/32097]", thread("opt cgu.0", Some(32157), Some(32097))),
            ("a[1]b[7/6]", thread("a[1]b", Some(7), Some(6))),
            (":17008[17008]", thread("", Some(17008), None)),
            (":-1[-1/302]", thread("", None, Some(302))),
            ("perf", None),
            ("perf[x]", None),
            ("]", None),
        ] {
            assert_eq!(task(text.as_bytes()), want, "{text}");
        }
    }
}
