//! `perf script` and `perf sched script` with every selection of fields, as perf itself prints
//! them, against the recording they are of; then the same with tabs, CRLF and a byte order mark.
//!
//! perf and the recordings of the lab are not part of the repository: without them this test says
//! so and passes.

#![allow(clippy::disallowed_methods, reason = "tests read files and run perf; the crate itself sees neither")]

mod common;

use std::path::Path;
use std::process::Command;

use common::{read, read_in_steps, root};
use tracekit_parsers::Options;
use tracekit_schema::events::quality;
use tracekit_schema::table::Table;
use tracekit_schema::{Kind, Out};

/// What a selection of fields leaves.
#[derive(Clone, Copy)]
struct Printed {
    ns: bool,
    cpu: bool,
    context: bool,
}

/// Kind, time, CPU, thread in whose context, subject, who comes next.
type Essence = (Kind, i64, Option<i32>, Option<i64>, Option<i64>, Option<i64>);

fn essence(out: &Out, p: Printed) -> Vec<Essence> {
    let e = &out.events;
    let scheduling = |i: &usize| {
        let kind = e.kind.get(*i).expect("a kind");
        (Kind::Switch..=Kind::Wait).contains(&kind) || (Kind::Prio..=Kind::BlockedReason).contains(&kind)
    };
    let row = |i: usize| {
        let ts = e.ts_ns.get(i).expect("a time");
        let cpu = e.cpu.get(i).filter(|_| p.cpu);
        // The context of a task that ends is -1 in the samples.
        let context = e.ctx_tid.get(i).filter(|_| p.context && e.kind.get(i) != Some(Kind::Switch));
        let ts = if p.ns { ts } else { ts / 1000 * 1000 };
        (e.kind.get(i).expect("a kind"), ts, cpu, context, e.tid.get(i), e.next_tid.get(i))
    };
    (0..e.len()).filter(scheduling).map(row).collect()
}

fn run(args: &[&str], recording: &Path) -> Option<String> {
    let out = Command::new("perf").args(args).arg("-i").arg(recording).output().ok()?;
    if !out.status.success() {
        eprintln!("skipped perf {args:?}: {}", String::from_utf8_lossy(&out.stderr).trim());
        return None;
    }
    Some(String::from_utf8(out.stdout).expect("text"))
}

/// The same text as editors and mail leave it.
fn disguises(text: &str) -> [(&'static str, String); 3] {
    let tabs = text.lines().map(|l| {
        let head = l.find("sched:").unwrap_or(0);
        l[..head].replace("  ", "\t") + &l[head..] + "\n"
    });
    [("tabs", tabs.collect()), ("CRLF", text.replace('\n', "\r\n")), ("a byte order mark", format!("\u{feff}{text}"))]
}

#[test]
fn every_selection_of_fields_tells_what_the_recording_holds() {
    const ALL: Printed = Printed { ns: false, cpu: true, context: true };
    const SELECTIONS: [(&[&str], Printed); 9] = [
        (&["script"], ALL),
        (&["sched", "script"], ALL),
        (&["script", "--ns"], Printed { ns: true, ..ALL }),
        (&["script", "--header"], ALL),
        (&["script", "--ns", "-F", "comm,pid,tid,cpu,time,event,trace"], Printed { ns: true, ..ALL }),
        (&["script", "-F", "comm,tid,cpu,time,period,event,trace"], ALL),
        (&["script", "-F", "tid,cpu,time,event,trace"], ALL),
        (&["script", "-F", "cpu,time,event,trace"], Printed { context: false, ..ALL }),
        (&["script", "-F", "time,event,trace"], Printed { context: false, cpu: false, ..ALL }),
    ];
    for name in ["6.1-perf/nicefork-fork-hog19.perf.data", "6.12-perf/callpipe-fifo-batch.perf.data"] {
        let recording = root().join("testdata/lab").join(name);
        if !recording.exists() {
            eprintln!("skipped: no {}", recording.display());
            return;
        }
        let (binary, format) = read(&std::fs::read(&recording).expect("readable"), None);
        assert_eq!(format.expect("readable"), "perf-data");
        for (args, printed) in SELECTIONS {
            let Some(text) = run(args, &recording) else { continue };
            let want = essence(&binary, printed);
            let variants = [("", text.clone())].into_iter().chain(disguises(&text));
            for (disguise, text) in variants {
                let (out, format) = read(text.as_bytes(), None);
                assert_eq!(format.expect("readable"), "perf-script", "{name} {args:?} {disguise}");
                assert_eq!(out.meta.get("parse.unparsed"), Some("0"), "{name} {args:?} {disguise}");
                let found = essence(&out, printed);
                assert_eq!(found.len(), want.len(), "{name} {args:?} {disguise}");
                let differ = found.iter().zip(&want).position(|(a, b)| a != b);
                let rows = differ.map(|i| (found[i], want[i]));
                assert!(rows.is_none(), "{name} {args:?} {disguise}: row {differ:?}: {rows:?}");
            }
        }
    }
}

/// perf turns tracepoints on last: what it recorded of tasks before is no time of the trace.
#[test]
fn records_of_tasks_before_the_first_sample_have_no_time_of_their_own() {
    let text = "\
         swapper     0 [000]     0.000000: PERF_RECORD_COMM: init:1/1
            perf   313 [001]    10.000100: PERF_RECORD_FORK(313:314):(313:313)
            perf   313 [001]    10.000200: PERF_RECORD_COMM exec: sleep:314/314
            perf   313 [000]    10.500000: sched:sched_waking: comm=one pid=11 prio=120 target_cpu=000
            perf   313 [000]    10.600000: PERF_RECORD_FORK(313:315):(313:313)
";
    for extra in [&[][..], &[("careful".to_owned(), String::new())]] {
        let options = Options { extra: extra.iter().cloned().collect(), ..Options::default() };
        let (out, format) = read_in_steps(text.as_bytes(), None, &options, 1 << 16);
        assert_eq!(format.expect("readable"), "perf-script");
        let first = 10_500_000_000;
        assert_eq!(out.events.ts_ns.values(), [first, first, first, first, 10_600_000_000]);
        let made = |row| out.events.quality.get(row).unwrap_or(0) & quality::SYNTHESIZED != 0;
        assert_eq!([0, 1, 2, 3, 4].map(made), [true, true, true, false, false]);
        assert_eq!(out.events.tid.get(2), Some(314));
    }
}

#[test]
fn a_name_that_ends_like_a_thread_of_ftrace_is_none() {
    let text = "\
            perf [000]    10.500000: sched:sched_waking: comm=memfd:sealed-91 pid=11 prio=120 target_cpu=000
 memfd:sealed-91 [000]    10.600000: sched:sched_switch: prev_comm=memfd:sealed-91 prev_pid=11 prev_prio=120 \
     prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
";
    let (out, format) = read(text.as_bytes(), None);
    assert_eq!((format.expect("readable"), out.events.len()), ("perf-script", 2));
    assert_eq!(out.meta.get("parse.unparsed"), Some("0"));
}
