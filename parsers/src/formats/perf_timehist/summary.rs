//! The sums that `-s` and `-S` print, as rows of `summaries`.

use tracekit_schema::Out;

use crate::text::perf_tables::{task, Task};
use crate::text::scan;

/// Titles over a table with one row a task.
pub const TITLES: [&[u8]; 3] = [b"Runtime summary", b"Wait-time summary", b"Idle-time summary"];

/// A column of figures.
struct Column {
    key: Vec<u8>,
    unit: Option<&'static str>,
}

/// The sums being read.
#[derive(Default)]
pub struct Summary {
    section: Vec<u8>,
    /// Columns after the task's.
    columns: Vec<Column>,
    /// CPUs of the machine, as the last line of the sums says.
    pub cpus: Option<i64>,
}

impl Summary {
    /// True once a title was met: rows of the table of slices come no more.
    pub fn begun(&self) -> bool {
        !self.section.is_empty()
    }

    /// Reads a line; false when it is none of the sums'.
    pub fn line(&mut self, line: &[u8], out: &mut Out) -> bool {
        let text = scan::trim(line);
        if TITLES.contains(&text) {
            self.section = text.to_vec();
            self.columns.clear();
            return true;
        }
        if !self.begun() {
            return false;
        }
        match text {
            b"<no still running tasks>" | b"<no terminated tasks>" => return true,
            b"Terminated tasks:" | b"Idle stats:" | b"Idle stats by callchain:" => {
                self.section = text.strip_suffix(b":").unwrap_or(text).to_vec();
                return true;
            }
            _ if text.iter().all(|b| *b == b'-') => return true,
            _ if text.starts_with(b"comm ") => return self.headings(text),
            _ if text.starts_with(b"(count) ") => return self.units(text),
            _ if text.starts_with(b"Total ") => return self.total(text, out),
            _ if text.starts_with(b"CPU ") => return self.cpu(text, out),
            _ => {}
        }
        if self.section == b"Idle stats by callchain" {
            return self.chain(text, out);
        }
        self.task(text, out)
    }

    /// `comm  parent   sched-in     run-time ...`
    fn headings(&mut self, text: &[u8]) -> bool {
        let words = text.split(|b| scan::is_blank(*b)).filter(|w| !w.is_empty()).skip(1);
        self.columns = words.map(|w| Column { key: w.to_vec(), unit: None }).collect();
        true
    }

    /// `(count)       (msec)     (msec) ...`, from the second column on.
    fn units(&mut self, text: &[u8]) -> bool {
        let words = text.split(|b| scan::is_blank(*b)).filter(|w| !w.is_empty());
        for (column, word) in self.columns.iter_mut().skip(1).zip(words) {
            column.unit = match word {
                b"(msec)" => Some("ms"),
                b"%" => Some("%"),
                _ => None,
            };
        }
        true
    }

    /// `perf[229/227]     227          1        0.022 ...`
    fn task(&mut self, text: &[u8], out: &mut Out) -> bool {
        for end in memchr::memchr_iter(b']', text).map(|i| i + 1) {
            let words = text[end..].split(|b| scan::is_blank(*b)).filter(|w| !w.is_empty());
            let values: Option<Vec<f64>> = words.map(figure).collect();
            let (Some(values), Some(found)) = (values, task(&text[..end])) else { continue };
            if values.len() != self.columns.len() || values.is_empty() {
                continue;
            }
            let tid = if let Task::Thread { tid, .. } = found { tid } else { None };
            let section = out.strings.intern(&self.section);
            let subject = out.strings.intern(&text[..end]);
            for (column, value) in self.columns.iter().zip(values) {
                let key = out.strings.intern(&column.key);
                let unit = column.unit.map(|u| out.strings.intern(u.as_bytes()));
                out.summaries.push().section(section).subject(subject).tid(tid).key(key).value(value).unit(unit);
            }
            return true;
        }
        false
    }

    /// `CPU  0 idle for    152.723  msec  ( 96.68%)`, `CPU  1 idle entire time window` or `CPU 0:
    /// 12.345 msec`.
    fn cpu(&mut self, text: &[u8], out: &mut Out) -> bool {
        let (number, rest) = scan::word(&text[b"CPU ".len()..]);
        let Some(number) = scan::u64(number.strip_suffix(b":").unwrap_or(number)) else { return false };
        let subject = format!("CPU {number}");
        let rest = scan::skip_blanks(rest);
        if rest == b"idle entire time window" {
            let (section, subject) = (out.strings.intern(&self.section), out.strings.intern(subject.as_bytes()));
            let (key, text) = (out.strings.intern(b"idle"), out.strings.intern(b"entire time window"));
            out.summaries.push().section(section).subject(subject).key(key).text(text);
            return true;
        }
        let rest = rest.strip_prefix(b"idle for").unwrap_or(rest);
        let (word, rest) = scan::word(rest);
        let (unit, rest) = scan::word(rest);
        let (Some(value), b"msec") = (figure(word), unit) else { return false };
        self.push(out, Some(&subject), b"idle", value, Some("ms"));
        let share = scan::trim(rest).strip_prefix(b"(").and_then(|r| r.strip_suffix(b"%)"));
        if let Some(share) = share.and_then(|s| figure(scan::trim(s))) {
            self.push(out, Some(&subject), b"idle share", share, Some("%"));
        }
        true
    }

    /// `Total run time (msec): 622.217` or `Total scheduling time (msec): 641.916  (x 1)`.
    fn total(&mut self, text: &[u8], out: &mut Out) -> bool {
        let Some(colon) = memchr::memrchr(b':', text) else { return false };
        let (key, rest) = (scan::trim(&text[..colon]), &text[colon + 1..]);
        let (word, rest) = scan::word(rest);
        let Some(value) = figure(word) else { return false };
        let unit = key.ends_with(b"(msec)").then_some("ms");
        let key = scan::trim(key.strip_suffix(b"(msec)").unwrap_or(key));
        self.section = b"Totals".to_vec();
        self.push(out, None, key, value, unit);
        let times = scan::trim(rest).strip_prefix(b"(x ").and_then(|r| r.strip_suffix(b")"));
        self.cpus = times.and_then(scan::i64).or(self.cpus);
        true
    }

    /// `12.345         3  schedule <- worker_thread`, under `Idle time (msec)  Count  Callchains`.
    fn chain(&mut self, text: &[u8], out: &mut Out) -> bool {
        if text.starts_with(b"Idle time (msec)") {
            return true;
        }
        let (time, rest) = scan::word(text);
        let (count, chain) = scan::word(rest);
        let (Some(time), Some(count)) = (figure(time), figure(count)) else { return false };
        let chain = scan::shown(scan::trim(chain), 400);
        self.push(out, Some(&chain), b"idle", time, Some("ms"));
        self.push(out, Some(&chain), b"count", count, None);
        true
    }

    fn push(&self, out: &mut Out, subject: Option<&str>, key: &[u8], value: f64, unit: Option<&'static str>) {
        let section = out.strings.intern(&self.section);
        let subject = subject.filter(|s| !s.is_empty()).map(|s| out.strings.intern(s.as_bytes()));
        let key = out.strings.intern(key);
        let unit = unit.map(|u| out.strings.intern(u.as_bytes()));
        out.summaries.push().section(section).subject(subject).key(key).value(value).unit(unit);
    }
}

/// A number with an optional sign and fraction.
pub fn figure(word: &[u8]) -> Option<f64> {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    if !digits.first()?.is_ascii_digit() || !digits.iter().all(|b| b.is_ascii_digit() || *b == b'.') {
        return None;
    }
    std::str::from_utf8(word).ok()?.parse().ok()
}
