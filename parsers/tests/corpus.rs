//! Every file of the public samples: the format it is taken for, the scheduler events it yields, or
//! the error it raises.
//!
//! `corpus.tsv` beside this file has a line a sample: its path, `format` or `error CODE` or `none`
//! (read, and reported to hold no scheduler events), the number of scheduler events read, the number of
//! lines of them that its manifest counts with a text search (`-` where it does not), and the
//! reason where the two differ. The samples belong to their authors and are not part of the
//! repository: where they are not at hand the test says so and passes.

#![allow(clippy::disallowed_methods, reason = "tests read files; the crate itself sees none")]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::{read, root};
use tracekit_schema::diag::Code;
use tracekit_schema::table::Table;
use tracekit_schema::{Kind, Out};

/// What a file came to.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    result: String,
    events: u64,
}

fn files(folder: &Path, all: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(folder).expect("readable").map(|e| e.expect("readable").path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files(&path, all);
        } else if !path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.')) {
            all.push(path);
        }
    }
}

/// Rows that came from an event of the scheduler.
fn scheduler_events(out: &Out) -> u64 {
    let events = &out.events;
    let named = |i| events.name.get(i).is_some_and(|n| out.strings.text(n).starts_with("sched_"));
    let is = |i: &usize| match events.kind.get(*i) {
        Some(Kind::Other) => named(*i),
        Some(kind) => (Kind::Switch..=Kind::Wait).contains(&kind) || (Kind::Prio..=Kind::BlockedReason).contains(&kind),
        None => false,
    };
    (0..events.len()).filter(is).count() as u64
}

fn look(path: &Path) -> Found {
    let bytes = std::fs::read(path).expect("readable");
    let (out, result) = read(&bytes, None);
    let events = scheduler_events(&out);
    let tables = out.slices.len() + out.summaries.len() + out.histograms.len();
    let result = match result {
        Err(error) => {
            assert!(!error.message.is_empty() && events == 0, "{}: {error}", path.display());
            format!("error {}", error.code)
        }
        Ok(format) if events + tables as u64 > 0 => format.to_owned(),
        Ok(format) => {
            let stated = out.diagnostics.rows().iter().any(|d| d.code == Code::MissingEvents);
            format!("{} {format}", if stated { "none" } else { "silent" })
        }
    };
    Found { result, events }
}

#[test]
fn every_sample_is_what_it_is() {
    let folder = root().join("testdata/corpus");
    if !folder.is_dir() {
        eprintln!("skipped: no samples under testdata/corpus");
        return;
    }
    let table = include_str!("corpus.tsv");
    let mut expected = BTreeMap::new();
    for line in table.lines().skip(1) {
        let cells: Vec<_> = line.split('\t').collect();
        assert_eq!(cells.len(), 5, "{line}");
        let events: u64 = cells[2].parse().expect("a number");
        let differs = cells[3].parse::<u64>().is_ok_and(|n| n != events);
        assert_eq!(differs, !cells[4].is_empty(), "a reason goes with a difference: {line}");
        expected.insert(cells[0].to_owned(), Found { result: cells[1].to_owned(), events });
    }
    let mut all = Vec::new();
    files(&folder.canonicalize().expect("there"), &mut all);
    let base = folder.canonicalize().expect("there");
    let mut failures = Vec::new();
    for path in all {
        let name = path.strip_prefix(&base).expect("below").to_string_lossy().into_owned();
        let found = look(&path);
        if expected.remove(&name).as_ref() != Some(&found) {
            failures.push(format!("{name}\t{}\t{}", found.result, found.events));
        }
    }
    failures.extend(expected.keys().map(|name| format!("{name} is in the table and not in the folder")));
    assert!(failures.is_empty(), "{} samples differ from the table\n{}", failures.len(), failures.join("\n"));
    let silent: Vec<_> = table.lines().filter(|l| l.contains("\tsilent")).collect();
    assert!(silent.is_empty(), "these say nothing of what they lack: {silent:?}");
}
