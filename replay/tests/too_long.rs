//! A run that would fill the memory ends with an error.

use tracekit_replay::engine::Machine;
use tracekit_replay::reconstruct::{reconstruct, Options};
use tracekit_replay::replay::{rerun, ReplaySpec};
use tracekit_replay::workload;
use tracekit_schema::table::Table;

/// Two tasks take turns on one CPU every millisecond for 100 s, with so many records allowed.
fn run(most_records: usize, log: bool) -> Result<u64, String> {
    let text = "policy: rr:quantum=1ms\nuntil: 100000\nA: R100000\nB: R100000\n";
    let mut scenario = workload::parse(text, None).expect("a workload");
    scenario.machine = Machine { most_records, log, ..scenario.machine };
    scenario.run().map(|run| run.counts.switches).map_err(|error| error.0)
}

#[test]
fn a_run_with_more_records_than_memory_should_hold_is_refused_early() {
    let said = run(1_000, true).expect_err("100,000 switches make more than 1,000 records");
    // It has not gone on to the end.
    let at: f64 = said.split(" by ").nth(1).and_then(|s| s.split(' ').next()).and_then(|s| s.parse().ok()).unwrap();
    assert!(at < 50.0, "{said}");
}

#[test]
fn what_fits_or_keeps_no_records_runs_to_the_end() {
    let whole = run(Machine::MOST_RECORDS, true);
    assert!(whole.as_ref().is_ok_and(|switches| *switches > 90_000), "{whole:?}");
    assert_eq!(run(1_000, false), whole);
}

/// Two tasks that compete through three hours of which the recording shows nothing.
#[test]
fn a_recording_that_pauses_for_hours_has_no_replay_without_bound() {
    let text = "policy: fifo\nhz: 1000\nA: R1 S1 R5000000\nB: R1 S9 R5000000\n";
    let out = workload::run_text(text, None, &mut |_| true).expect("the workload runs");
    assert!(out.events.len() < 20, "fifo makes few switches");
    let recon = reconstruct(&out.events, &out.strings, &Options { hz: Some(1000), ..Options::default() });
    assert!((4..20).contains(&recon.entries));
    let of = |policy: &str| {
        let spec = ReplaySpec { policy: policy.into(), hz: Some(1000), ..ReplaySpec::default() };
        rerun(&recon, &spec, &mut |_| true).map(|played| played.counts.switches).map_err(|e| e.to_string())
    };
    assert!(of("fifo").is_ok_and(|switches| switches < 10));
    let said = of("rr:quantum=1ms").expect_err("it would make ten million switches");
    assert!(said.starts_with("replay under rr:quantum=1ms: "), "{said}");
    assert!(said.contains("`tracekit info`"), "{said}");
    assert!(said.contains("--from and --to"), "{said}");
}
