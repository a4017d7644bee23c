//! Tasks to which several others write: how much their buffers hold comes back from the events, and a replay
//! under another policy does what the workload itself does under that policy.

use tracekit_replay::program::Step;
use tracekit_replay::reconstruct::{reconstruct, Options, Outcome, Recon};
use tracekit_replay::replay::{rerun, ReplaySpec};
use tracekit_replay::workload;
use tracekit_schema::table::Table;
use tracekit_schema::{Kind, Out, State};

/// Six write to each of three in turns; whoever finds no room waits until three quarters are free, as at a
/// stream socket.
const MANY: &str = "
until: 1000
cpus: 2
buffer a: capacity=40 room=30
buffer b: capacity=40 room=30
buffer c: capacity=40 room=30
W*6: ((R~uniform(0.015,0.025) I(a) R~uniform(0.015,0.025) I(b) R~uniform(0.015,0.025) I(c))*200 S~uniform(1,30))*
A: (O(a) R~uniform(0.015,0.025))*
B: (O(b) R~uniform(0.015,0.025))*
C: (O(c) R~uniform(0.015,0.025))*
";

fn recorded(text: &str, policy: &str) -> Out {
    workload::run_text(text, Some(policy), &mut |_| true).expect("the workload runs")
}

fn programs(out: &Out) -> Recon {
    reconstruct(&out.events, &out.strings, &Options { hz: Some(1000), ..Options::default() })
}

/// How often those sleep that take, and those that put.
fn sleeps(out: &Out) -> [f64; 2] {
    let e = &out.events;
    let mut found = [0.0; 2];
    for row in 0..e.len() {
        if e.kind.get(row) == Some(Kind::Switch) && e.state.get(row) == Some(State::Sleeping) {
            found[usize::from(e.tid.get(row).is_some_and(|tid| tid <= 6))] += 1.0;
        }
    }
    found
}

/// How far apart two numbers are, as a logarithm.
fn off(one: f64, other: f64) -> f64 {
    (one / other).ln().abs()
}

#[test]
fn how_much_they_hold_comes_back() {
    let recon = programs(&recorded(MANY, "eevdf"));
    let outcomes: Vec<Outcome> = recon.unobserved.groups.iter().map(|g| g.outcome).collect();
    assert_eq!(outcomes, [Outcome::Gathered]);
    let report = recon.inferred().into_iter().find(|i| i.name == "unobserved messages").expect("a report");
    assert!(report.how.contains("(W0 and 5 more to A: room for 4"), "{}", report.how);
    assert_eq!(recon.work.buffers.len(), 3);
    for b in &recon.work.buffers {
        let writers: Vec<u32> = b.from.iter().map(|t| t.0).collect();
        assert_eq!(writers, [0, 1, 2, 3, 4, 5]);
        let steps = &recon.work.tasks[b.to.index()].steps;
        let taken = steps.iter().filter(|s| matches!(s, Step::Take { .. })).count() as f64;
        let work = |s: &Step| if let Step::Run { ns } | Step::RunKernel { ns } = *s { ns as f64 } else { 0.0 };
        // In units of what is found, of which each may be one of the workload or several.
        let unit = steps.iter().map(work).sum::<f64>() / taken / 20_000.0;
        let (capacity, room) = (f64::from(b.capacity) * unit, f64::from(b.room) * unit);
        assert!(off(capacity, 40.0) < 0.1 && off(room, 30.0) < 0.15, "{b:?}: {capacity}, {room}");
    }
}

/// Wakeups preempt less under another policy, so that buffers fill and empty: who takes sleeps half as often,
/// who puts more often.
#[test]
fn a_replay_sleeps_where_a_buffer_is_full_or_empty() {
    let trace = recorded(MANY, "eevdf");
    let (recon, was) = (programs(&trace), sleeps(&trace));
    for policy in ["eevdf", "cfs", "cfs:wakeup_preemption=off"] {
        let spec = ReplaySpec { policy: policy.into(), hz: Some(1000), overheads: false, ..ReplaySpec::default() };
        let got = sleeps(&rerun(&recon, &spec, &mut |_| true).expect("the replay runs").out);
        let want = sleeps(&recorded(MANY, policy));
        let far = [0, 1].map(|i| off(got[i], want[i]));
        assert!(far[0] < 0.3 && far[1] < 0.3, "{policy}: {got:?} sleeps, {want:?} really, {was:?} recorded");
    }
    assert!(off(was[0], sleeps(&recorded(MANY, "cfs"))[0]) > 0.5, "the recording says something else");
}
