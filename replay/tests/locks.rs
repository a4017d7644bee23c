//! Locks: what a workload with them does, and that tasks which share one wait in a replay where they run side
//! by side, as often as the workload itself does under the policy of the replay.

use tracekit_replay::program::Step;
use tracekit_replay::reconstruct::{reconstruct, Options, Outcome, Recon};
use tracekit_replay::replay::{rerun, ReplaySpec};
use tracekit_replay::workload;
use tracekit_schema::table::Table;
use tracekit_schema::{Kind, Out, State};

/// Three that share a lock, and others that take both CPUs now and then.
const SHARED: &str = "
until: 3000
cpus: 2
A*3: (R~uniform(0.05,0.15) L(m) R~uniform(0.02,0.06) G(m))*
H*2: (R~uniform(2,9) S~uniform(1,4))*
";

/// The same work, and each piece of it is asked for by another task.
const CALLS: &str = "
until: 3000
cpus: 2
A: (R~uniform(0.05,0.15) P(b) W(a))*
B: (W(b) R~uniform(0.02,0.06) P(a))*
H*2: (R~uniform(2,9) S~uniform(1,4))*
";

fn recorded(text: &str, policy: &str) -> Out {
    workload::run_text(text, Some(policy), &mut |_| true).expect("the workload runs")
}

fn programs(out: &Out) -> Recon {
    reconstruct(&out.events, &out.strings, &Options { hz: Some(1000), ..Options::default() })
}

/// How often these threads left a CPU in a state.
fn left(out: &Out, tids: std::ops::RangeInclusive<i64>, state: State) -> usize {
    let e = &out.events;
    let leaves = |row: &usize| {
        let ours = e.tid.get(*row).is_some_and(|tid| tids.contains(&tid));
        e.kind.get(*row) == Some(Kind::Switch) && ours && e.state.get(*row) == Some(state)
    };
    (0..e.len()).filter(leaves).count()
}

/// How often the three slept.
fn sleeps(out: &Out) -> usize {
    left(out, 1..=3, State::Sleeping)
}

fn fails(text: &str) -> Vec<String> {
    let scenario = workload::parse(text, None).expect("a workload");
    let run = scenario.run().expect("it runs");
    scenario.check(&run)
}

/// Whoever comes while another one holds a lock waits until that one lets go of it.
#[test]
fn one_holds_a_lock() {
    let text = "policy: rr:quantum=10ms\ncpus: 2\nA: L(m) R3 G(m) R1 Z\nB: R1 L(m) R2 G(m) Z\n\
                expect: A[0,4)\nexpect@1: B[0,1) B[3,5)\n";
    assert_eq!(fails(text), Vec::<String>::new());
}

/// Whoever ends with a lock lets go of it.
#[test]
fn a_lock_is_free_when_its_holder_has_ended() {
    let text = "policy: rr:quantum=10ms\ncpus: 2\nA: L(m) R3 Z\nB: R1 L(m) R2 G(m) Z\n\
                expect: A[0,3) B[3,5)\nexpect@1: B[0,1)\n";
    assert_eq!(fails(text), Vec::<String>::new());
}

/// Whoever comes to a lock waits for one that runs beside, in the middle of its run step, and the next for
/// whoever waited before.
#[test]
fn who_contends_waits_for_one_that_runs_beside() {
    let text = "policy: rr:quantum=10ms\ncpus: 3\nA: L(m) G(m) R9 Z\nB: R1 H(m,3) R4 Z\nC: R2 H(m,2) R1 Z\n\
                expect: A[0,9)\nexpect@1: B[0,1) B[4,8)\nexpect@2: C[0,2) C[6,7)\n";
    assert_eq!(fails(text), Vec::<String>::new());
}

/// Nobody runs beside on one CPU; a task that is ready there holds the lock where that was recorded.
#[test]
fn who_contends_alone_waits_for_one_that_is_ready_where_that_was_so() {
    let text = |ready: &str, expect: &str| {
        format!("policy: rr:quantum=10ms\ncpus: 1\nA: R1 H(m,2{ready}) R1 Z\nB: L(m) G(m) R3 Z\nexpect: {expect}\n")
    };
    assert_eq!(fails(&text("", "A[0,2) B[2,5)")), Vec::<String>::new());
    assert_eq!(fails(&text(",ready", "A[0,1) B[1,4) A[4,5)")), Vec::<String>::new());
}

#[test]
fn what_is_wrong_with_a_lock_is_said() {
    for step in ["L(m,2)", "G()", "H(m)", "H(m,2,always)", "H(m,inf)"] {
        let error = workload::parse(&format!("policy: cfs\nA: R1 {step}\n"), None).err().expect(step);
        assert!(error.to_string().contains("expected L(LOCK), G(LOCK)"), "{step}: {error}");
    }
}

/// The lock is found, and each of the three comes to it.
#[test]
fn the_lock_of_a_workload_comes_back() {
    let recon = programs(&recorded(SHARED, "cfs"));
    let outcomes: Vec<Outcome> = recon.unobserved.groups.iter().map(|g| g.outcome).collect();
    assert_eq!(outcomes, [Outcome::Locked]);
    assert_eq!(recon.work.locks.iter().map(Vec::len).collect::<Vec<_>>(), [3]);
    let tries = |t: usize| recon.work.tasks[t].steps.iter().filter(|s| matches!(s, Step::Contend { .. })).count();
    assert!((0..3).all(|t| tries(t) > 100), "{} {} {}", tries(0), tries(1), tries(2));
    let report = recon.inferred().into_iter().find(|i| i.name == "unobserved messages").expect("a report");
    assert!(report.how.contains("wait for each other only where they run side by side"), "{}", report.how);
}

/// A hog of a better class leaves the three one CPU nearly all the time, so that they run side by side for
/// a fiftieth of it: what happens there is enough, since nobody waits in the rest.
#[test]
fn a_lock_shows_where_tasks_hardly_run_side_by_side() {
    let text = SHARED.replace("H*2: (R~uniform(2,9) S~uniform(1,4))*", "H policy=fifo prio=9: (R98 S~uniform(1,3))*");
    let recon = programs(&recorded(&text, "cfs"));
    assert_eq!(recon.work.locks.iter().map(Vec::len).collect::<Vec<_>>(), [3]);
}

/// Where they hardly run side by side, they hardly wait for each other, so that they run for long there: that
/// says nothing of how fast their CPU is.
#[test]
fn what_tasks_do_between_waits_for_a_lock_says_nothing_of_cpus() {
    let hog = SHARED.replace("H*2: (R~uniform(2,9) S~uniform(1,4))*", "H cpus=1: Rinf");
    let recon = programs(&recorded(&hog, "eevdf:version=6.18"));
    assert_eq!(recon.work.locks.iter().map(Vec::len).collect::<Vec<_>>(), [3]);
    assert!(recon.speeds.are_equal(), "{} {}", recon.speeds.time_of_one(0), recon.speeds.time_of_one(1));
}

/// One that yields at times and wakes others is not taken for one that busy-waits where it shares a lock: its
/// yields are its own.
#[test]
fn who_yields_and_shares_a_lock_does_not_busy_wait() {
    let text = SHARED.replace("A*3:", "B: (R~uniform(0.05,0.15) Y L(m) R~uniform(0.02,0.06) G(m))*\nA*2:");
    for policy in ["cfs", "eevdf"] {
        let trace = recorded(&text, policy);
        let recon = programs(&trace);
        assert_eq!(recon.work.locks.iter().map(Vec::len).collect::<Vec<_>>(), [3], "{policy}");
        assert_eq!(recon.spinners, [], "{policy}");
        let yields = recon.work.tasks[0].steps.iter().filter(|s| **s == Step::Yield).count();
        assert_eq!(yields, left(&trace, 1..=1, State::Yielding), "{policy}");
    }
}

/// Under a policy by which the three rarely run side by side they hardly wait, as they would not there.
#[test]
fn a_replay_waits_as_often_as_the_workload_does() {
    let trace = recorded(SHARED, "cfs");
    let recon = programs(&trace);
    for policy in ["cfs", "fifo", "rr:quantum=4ms"] {
        let spec = ReplaySpec { policy: policy.into(), hz: Some(1000), overheads: false, ..ReplaySpec::default() };
        let replay = rerun(&recon, &spec, &mut |_| true).expect("the replay runs").out;
        let real = recorded(SHARED, policy);
        let (was, want, got) = (sleeps(&trace), sleeps(&real), sleeps(&replay));
        let off = |n: usize| (n as f64 / want as f64).ln().abs();
        assert!(off(got) < 0.25, "{policy}: {got} sleeps, {want} really, {was} recorded");
        assert!(policy == "cfs" || off(was) > 0.4, "{policy}: the recording says the same: {was}, {want} really");
    }
}

/// Where all wait for all there is no pipeline, nor where two seem to hold less than nothing.
#[test]
fn locks_are_no_buffers() {
    for n in [2, 3] {
        let text = SHARED.replace("A*3", &format!("A*{n}"));
        for policy in ["cfs", "eevdf", "rr:quantum=1ms"] {
            let recon = programs(&recorded(&text, policy));
            assert_eq!(recon.work.buffers, Vec::new(), "{n} {policy}");
        }
    }
}

/// Question and answer are no lock.
#[test]
fn calls_are_no_locks() {
    for policy in ["cfs", "eevdf", "rr:quantum=1ms"] {
        assert_eq!(programs(&recorded(CALLS, policy)).work.locks, Vec::<Vec<_>>::new(), "{policy}");
    }
}
