//! Real samples of the sources other than Linux's own files: each is read, and what it holds is counted.
//!
//! The samples are public files, not part of the repository. Where they are not at hand the tests say so and pass.

#![allow(clippy::disallowed_methods, reason = "tests read files; the crate itself sees none")]

mod common;

use common::{counts, read, root, row};

/// The sample, `None` where the samples are not at hand.
fn sample(path: &str) -> Option<Vec<u8>> {
    let folder = root().join("testdata/corpus");
    if !folder.is_dir() {
        eprintln!("skipped: no samples under testdata/corpus");
        return None;
    }
    Some(std::fs::read(folder.join(path)).unwrap_or_else(|e| panic!("{path}: {e}")))
}

/// 60,000 lines of babeltrace2, 15,954 scheduler events by the manifest.
#[test]
fn lttng_many_threads() {
    let Some(text) = sample("derived-from-real/many-threads.babeltrace2.txt") else { return };
    let (out, format) = read(&text, None);
    assert_eq!(format.expect("readable"), "lttng-text");
    let counts = counts(&out);
    let of = |kinds: &[&str]| kinds.iter().map(|k| counts[*k]).collect::<Vec<_>>();
    let sched = of(&["switch", "waking", "wakeup", "fork", "exit", "free"]);
    assert_eq!(sched, [7041, 1786, 1786, 1910, 1906, 1525]);
    assert_eq!(sched.iter().sum::<i64>(), 15_954);
    assert_eq!(out.events.ts_ns.values().len(), 60_000);
    assert_eq!(out.meta.get("parse.unparsed"), Some("0"));
    let mut states = std::collections::BTreeMap::new();
    for i in 0..60_000 {
        if let Some(state) = out.events.state.get(i) {
            *states.entry(state.as_str()).or_insert(0) += 1;
        }
    }
    // The kernel is 4.4: 2048 is the bit of preemption there, 64 the one of the dead.
    let expected = [("blocked", 231), ("dead", 1906), ("preempted", 83), ("runnable", 3268), ("sleeping", 1553)];
    assert_eq!(states.into_iter().collect::<Vec<_>>(), expected);
    let migration = (0..60_000).find_map(|i| {
        let cells = row(&out.events, &out.strings, i);
        (cells.get("next_comm").map(String::as_str) == Some("migration/5")).then(|| cells["next_prio"].clone())
    });
    assert_eq!(migration.as_deref(), Some("0"), "printed as -100");
}

/// The one trcrpt report that is documented in public: three records, blanks collapsed by the web page.
#[test]
fn trcrpt_documented() {
    let Some(text) = sample("aix/trcrpt_reading_trace_report.txt") else { return };
    let (out, format) = read(&text, None);
    assert_eq!(format.expect("readable"), "trcrpt");
    let counts = counts(&out);
    assert_eq!((counts["sys_enter"], counts["exec"], counts.len()), (2, 1, 2));
    let exec = row(&out.events, &out.strings, 2);
    assert_eq!((exec["tid"].as_str(), exec["pid"].as_str(), exec["ctx_comm"].as_str()), ("24713", "7214", "cp"));
    assert_eq!((exec["name"].as_str(), exec["ts_ns"].as_str()), ("cp ../bin/track /tmp/junk", "14451456"));
    assert_eq!(out.meta.get("host"), Some("texmex"));
    let codes: Vec<_> = out.diagnostics.rows().iter().map(|d| d.code.as_str()).collect();
    assert_eq!(codes, ["missing-events"], "the trace left the dispatcher's hooks out");
}
