//! Real samples of the sources other than Linux's own files: each is read, and what it holds is counted.
//!
//! The samples are public files, not part of the repository. Where they are not at hand the tests
//! say so and pass.

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

/// The examples of the DTraceToolkit: real output of Solaris 10 among prose. Buckets and table rows
/// were counted apart, with grep.
#[test]
fn dtrace_toolkit_examples() {
    const EXPECTED: &[(&str, &str, i64, i64)] = &[
        ("bitesize_example.txt", "dtrace-agg", 34, 0),
        ("cpudists_example.txt", "dtrace-agg", 174, 0),
        ("cputimes_example.txt", "dtrace-agg", 0, 90),
        ("cpuwalk_example.txt", "dtrace-agg", 21, 0),
        ("dispqlen_example.txt", "dtrace-agg", 24, 0),
        ("intbycpu_example.txt", "dtrace-agg", 0, 2),
        ("inttimes_example.txt", "dtrace-agg", 0, 6),
        ("priclass_example.txt", "dtrace-agg", 33, 0),
        ("pridist_example.txt", "dtrace-agg", 103, 0),
        ("shortlived_example.txt", "dtrace-agg", 0, 7),
        ("solaris_guide_lwptime_d.txt", "dtrace-agg", 12, 0),
        ("solaris_guide_where_d.txt", "dtrace-agg", 16, 0),
        ("sysbypid_example.txt", "dtrace-agg", 0, 32),
        ("threaded_example.txt", "dtrace-agg", 22, 0),
        ("xcallsbypid_example.txt", "dtrace-agg", 0, 7),
    ];
    for (name, format, buckets, figures) in EXPECTED {
        let Some(text) = sample(&format!("dtrace/{name}")) else { return };
        let (out, read_as) = read(&text, Some(format));
        assert_eq!(&read_as.expect("readable"), format);
        let counts = counts(&out);
        let of = |table: &str| counts.get(table).copied().unwrap_or(0);
        assert_eq!((of("histograms"), of("summaries")), (*buckets, *figures), "{name}");
        let bars = text.split(|b| *b == b'\n').filter(|l| l.windows(2).any(|w| matches!(w, b" |"))).count();
        assert_eq!(of("histograms"), if *buckets > 0 { bars as i64 } else { 0 }, "{name}: lines with a bar");
    }
}

/// The probability mass of a known histogram, and its open end.
#[test]
fn dispatch_queue_lengths() {
    let Some(text) = sample("dtrace/dispqlen_example.txt") else { return };
    let (out, _) = read(&text, None);
    let rows = || (0..24).map(|i| row(&out.histograms, &out.strings, i));
    let of_cpu_5: Vec<_> = rows().filter(|r| r["key"] == "CPU 5").map(|r| r["count"].clone()).collect();
    assert_eq!(of_cpu_5, ["0", "397", "1537", "79", "0"]);
    let first = row(&out.histograms, &out.strings, 0);
    assert_eq!((first.get("lo"), first["hi"].as_str()), (None, "0"));
}

/// Default output: firings without a pattern, records with one.
#[test]
fn dtrace_default_output() {
    let Some(text) = sample("dtrace/newproc_example.txt") else { return };
    let (out, format) = read(&text, None);
    assert_eq!(format.expect("readable"), "dtrace-text");
    let firings = row(&out.summaries, &out.strings, 0);
    assert_eq!((firings["subject"].as_str(), firings["value"].as_str()), ("exec_common:exec-success", "10"));
    let Some(text) = sample("dtrace/oneliners_examples.txt") else { return };
    let (out, format) = read(&text, None);
    assert_eq!(format.expect("readable"), "dtrace-text");
    let rows: Vec<_> =
        (0..out.summaries.section.values().len()).map(|i| row(&out.summaries, &out.strings, i)).collect();
    let firings = |probe: &str| rows.iter().find(|r| r["subject"] == probe).map(|r| r["value"].clone());
    assert_eq!(firings("open:entry").as_deref(), Some("17"));
    assert_eq!(firings("bdev_strategy:start").as_deref(), Some("12"));
    assert_eq!(common::counts(&out)["histograms"], 35);
    assert!(rows.iter().any(|r| r["subject"] == "1109 svc.startd" && r["value"] == "1"));
}

/// Files that hold nothing for this tool are refused or say so, never misread as records.
#[test]
fn dtrace_examples_without_aggregations() {
    for name in ["cputypes_example.txt", "loads_example.txt"] {
        let Some(text) = sample(&format!("dtrace/{name}")) else { return };
        let (_, format) = read(&text, None);
        assert_eq!(format.expect_err("no sign of a format").code, "unknown-format", "{name}");
    }
}

/// The two curt samples of IBM's documentation.
#[test]
fn curt_documented() {
    let Some(text) = sample("aix/curt_system_summary.txt") else { return };
    let (out, format) = read(&text, None);
    assert_eq!(format.expect("readable"), "curt");
    let rows: Vec<_> =
        (0..common::counts(&out)["summaries"] as usize).map(|i| row(&out.summaries, &out.strings, i)).collect();
    let figure = |subject: &str, key: &str| {
        let found = rows.iter().find(|r| r.get("subject").map_or("", String::as_str) == subject && r["key"] == key);
        found.map(|r| (r["value"].clone(), r.get("unit").cloned().unwrap_or_default()))
    };
    let is = |value: &str, unit: &str| Some((value.to_owned(), unit.to_owned()));
    assert_eq!(figure("APPLICATION", "processing total time (msec)"), is("4998.65", "ms"));
    assert_eq!(figure("IDLE", "percent total time (incl. idle)"), is("38.92", "%"));
    assert_eq!(figure("IDLE", "percent busy time (excl. idle)"), None);
    assert_eq!(figure("TOTAL", "processing total time (msec)"), is("10881.12", "ms"));
    assert_eq!(figure("", "Avg. Thread Affinity"), is("0.99", ""));
    assert_eq!(rows.len(), 36);
    let Some(text) = sample("aix/curt_application_summary_pid.txt") else { return };
    let (out, format) = read(&text, None);
    assert_eq!(format.expect("readable"), "curt");
    assert_eq!(common::counts(&out)["summaries"], 60);
    let last = row(&out.summaries, &out.strings, 59);
    assert_eq!((last["subject"].as_str(), last["value"].as_str()), ("disp+work(21992)(1)", "0.2842"));
}
