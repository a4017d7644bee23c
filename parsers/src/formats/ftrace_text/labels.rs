//! Labels that `trace-cmd report` puts before its lines: `mine:` for the instance of that name,
//! `a.dat:` for a file when it merges several.
//!
//! Instances are buffers of one machine: an event that several of them recorded is taken from the
//! first that shows it. Files may be of several machines, whose threads and CPUs have the same
//! numbers: only one is read, the first unless the option `file` names another.

use std::collections::{BTreeMap, HashMap};

use tracekit_schema::diag::{Code, Diagnostic};
use tracekit_schema::Out;

use crate::text::scan;

/// Names are of at most 16 bytes in a line's head; what is longer has a label before it.
const NAME: usize = 16;

/// The label in the name of a head, and the name behind it. The number of a line, as `grep -n` puts it
/// before the line or behind the file's name, is no part of a label: then there may be none.
pub fn split(comm: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memmem::find(comm, b": ").filter(|_| comm.len() > NAME)?;
    let digits = comm[..at].iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let label = match &comm[..at - digits] {
        [] => &[],
        [file @ .., b':'] if digits > 0 => file,
        _ => &comm[..at],
    };
    Some((label, comm[at + 2..].trim_ascii_start()))
}

/// The labels of a report.
#[derive(Debug, Default)]
pub struct Labels {
    /// Files that the report merges.
    files: Vec<Vec<u8>>,
    /// The file to read.
    wanted: Option<Vec<u8>>,
    /// A line with a label was met.
    pub met: bool,
    /// The instance from which each event is taken; an empty name is the top buffer.
    owners: HashMap<Vec<u8>, Vec<u8>>,
    /// Lines that were left out, by label.
    left_out: BTreeMap<Vec<u8>, u64>,
}

impl Labels {
    /// Labels, where the user named a file.
    pub fn new(file: Option<&str>) -> Self {
        Labels { wanted: file.map(|f| f.as_bytes().to_vec()), ..Labels::default() }
    }

    /// Reads `a.dat: cpus=4`: the file's name, and its CPUs where it is the one to read.
    pub fn file(&mut self, line: &[u8]) -> Option<Option<u64>> {
        let (name, cpus) = line.trim_ascii().split_at(memchr::memmem::rfind(line.trim_ascii(), b": cpus=")?);
        let cpus = scan::u64(&cpus[b": cpus=".len()..])?;
        self.files.push(name.to_vec());
        self.met = true;
        let wanted = self.wanted.get_or_insert_with(|| name.to_vec());
        Some((wanted == name).then_some(cpus))
    }

    /// Should the record of this label and event be kept?
    pub fn keep(&mut self, label: &[u8], event: &[u8]) -> bool {
        self.met |= !label.is_empty();
        if !self.met {
            return true;
        }
        let keep = if self.files.is_empty() {
            match self.owners.get(event) {
                Some(owner) => owner == label,
                None => {
                    self.owners.insert(event.to_vec(), label.to_vec());
                    true
                }
            }
        } else {
            self.wanted.as_deref() == Some(label)
        };
        if !keep {
            match self.left_out.get_mut(label) {
                Some(n) => *n += 1,
                None => drop(self.left_out.insert(label.to_vec(), 1)),
            }
        }
        keep
    }

    /// Says what was left out.
    pub fn finish(&self, out: &mut Out) {
        let shown = |label: &[u8]| scan::shown(label, 60);
        for (label, count) in &self.left_out {
            let d = if self.files.is_empty() {
                let name =
                    if label.is_empty() { "the top buffer".to_owned() } else { format!("instance `{}`", shown(label)) };
                let message = format!("{name} records an event that another buffer records too; it is left out");
                Diagnostic::new(Code::Duplicate, message)
            } else {
                let wanted = shown(self.wanted.as_deref().unwrap_or(b""));
                let message =
                    format!("the report merges several files; `{wanted}` is read, `{}` is left out", shown(label));
                Diagnostic::new(Code::Unsupported, message).advise("report each file alone, or name one (option file)")
            };
            out.diag(Diagnostic { count: *count, ..d });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_longer_than_names() {
        assert_eq!(split(b"mine:           <idle>"), Some((&b"mine"[..], &b"<idle>"[..])));
        assert_eq!(split(b"a.dat:    rs:main Q:Reg"), Some((&b"a.dat"[..], &b"rs:main Q:Reg"[..])));
        assert_eq!(split(b"rs: main Q:Reg"), None);
        assert_eq!(split(b"1042:          <idle>"), Some((&b""[..], &b"<idle>"[..])));
        assert_eq!(split(b"a.txt:1042:          <idle>"), Some((&b"a.txt"[..], &b"<idle>"[..])));
        assert_eq!(split(b"cpu1:          <idle>"), Some((&b"cpu1"[..], &b"<idle>"[..])));
        assert_eq!(split(b"kworker/u16:3-ev+unbound"), None);
    }

    #[test]
    fn one_file_is_read() {
        let mut labels = Labels::new(None);
        assert_eq!(labels.file(b"     a.dat: cpus=2"), Some(Some(2)));
        assert_eq!(labels.file(b"longer.dat: cpus=4"), Some(None));
        assert_eq!(labels.file(b"cpus=4"), None);
        assert!(labels.keep(b"a.dat", b"sched_switch") && !labels.keep(b"longer.dat", b"sched_switch"));
        let mut labels = Labels::new(Some("longer.dat"));
        assert_eq!(labels.file(b"a.dat: cpus=2"), Some(None));
        assert_eq!(labels.file(b"longer.dat: cpus=4"), Some(Some(4)));
        assert!(!labels.keep(b"a.dat", b"sched_switch") && labels.keep(b"longer.dat", b"sched_switch"));
    }

    #[test]
    fn an_event_comes_from_one_buffer() {
        let mut labels = Labels::new(None);
        assert!(labels.keep(b"mine", b"sched_switch") && labels.keep(b"", b"sched_waking"));
        assert!(!labels.keep(b"", b"sched_switch") && !labels.keep(b"mine", b"sched_waking"));
        let mut out = Out::new();
        labels.finish(&mut out);
        assert_eq!(out.diagnostics.count(Code::Duplicate), 2);
    }
}
