//! Barriers: what a workload with them does, and that tasks which meet at one do so in a replay, whoever
//! comes last there.

use tracekit_replay::program::Step;
use tracekit_replay::reconstruct::{reconstruct, Options, Outcome, Recon};
use tracekit_replay::replay::{rerun, ReplaySpec};
use tracekit_replay::workload;
use tracekit_schema::table::Table;
use tracekit_schema::{Kind, Out, State};

/// Four that meet again and again, and two others that use CPU time.
const MEET: &str = "
until: 3000
cpus: 2
A*4: (R~uniform(0.2,2.7) J(b))*
H*2: Rinf
";

/// One gives out work to three, and waits for all of them.
const BOSS: &str = "
until: 3000
cpus: 2
Boss: (R1 P(a) P(b) P(c) W(d) W(d) W(d))*
A: (W(a) R~uniform(0.2,2.7) P(d))*
B: (W(b) R~uniform(0.2,2.7) P(d))*
C: (W(c) R~uniform(0.2,2.7) P(d))*
H*2: Rinf
";

/// Each of three wakes the two others, whatever they do.
const NUDGE: &str = "
until: 3000
cpus: 2
A: (R~uniform(0.2,2) P(b) P(c) W(a))*
B: (R~uniform(0.2,2) P(a) P(c) W(b))*
C: (R~uniform(0.2,2) P(a) P(b) W(c))*
H*2: Rinf
";

fn recorded(text: &str, policy: &str) -> Out {
    workload::run_text(text, Some(policy), &mut |_| true).expect("the workload runs")
}

fn programs(out: &Out) -> Recon {
    reconstruct(&out.events, &out.strings, &Options { hz: Some(1000), ..Options::default() })
}

/// How often the four slept.
fn sleeps(out: &Out) -> usize {
    let e = &out.events;
    let sleeps = |row: &usize| {
        let ours = e.tid.get(*row).is_some_and(|tid| tid <= 4);
        e.kind.get(*row) == Some(Kind::Switch) && ours && e.state.get(*row) == Some(State::Sleeping)
    };
    (0..e.len()).filter(sleeps).count()
}

fn fails(text: &str) -> Vec<String> {
    let scenario = workload::parse(text, None).expect("a workload");
    let run = scenario.run().expect("it runs");
    scenario.check(&run)
}

/// All go on when the last one has come, who does not sleep; and so the next time.
#[test]
fn the_last_one_wakes_the_others() {
    let text = "policy: rr:quantum=10ms\ncpus: 3\nA: (R1 J(b))*2 R1 Z\nB: (R3 J(b))*2 R1 Z\nC: (R2 J(b))*2 R1 Z\n\
                expect: A[0,1) A[3,4) A[6,7)\nexpect@1: B[0,7)\nexpect@2: C[0,2) C[3,5) C[6,7)\n";
    assert_eq!(fails(text), Vec::<String>::new());
}

/// Nobody waits for one that has ended, nor for one that ends while others wait.
#[test]
fn who_has_ended_does_not_come() {
    let text = "policy: rr:quantum=10ms\ncpus: 2\nA: (R1 J(b))*3 Z\nB: R1 J(b) R2 Z\n\
                expect: A[0,2) A[3,4)\nexpect@1: B[0,3)\n";
    assert_eq!(fails(text), Vec::<String>::new());
}

/// One that begins asleep may have come already.
#[test]
fn who_is_there_at_the_start_waits() {
    let text = "policy: rr:quantum=10ms\ncpus: 2\nA: J(b) R1 Z\nB: R2 J(b) R1 Z\nexpect: B[0,3)\nexpect@1: A[2,3)\n";
    assert_eq!(fails(text), Vec::<String>::new());
}

#[test]
fn a_barrier_has_a_name() {
    let error = workload::parse("policy: cfs\nA: R1 J()\n", None).err().expect("no name");
    assert!(error.to_string().contains("expected J(BARRIER)"), "{error}");
}

/// The barrier is found, each of the four comes to it, and in a replay under another policy they sleep as
/// often as in the workload itself.
#[test]
fn a_replay_has_whoever_comes_last_wake_the_others() {
    let out = recorded(MEET, "eevdf:version=6.18");
    let recon = programs(&out);
    let outcomes: Vec<Outcome> = recon.unobserved.groups.iter().map(|g| g.outcome).collect();
    assert_eq!(outcomes, [Outcome::Barrier]);
    assert_eq!(recon.work.barriers.iter().map(Vec::len).collect::<Vec<_>>(), [4]);
    let comes = |t: usize| recon.work.tasks[t].steps.iter().filter(|s| matches!(s, Step::Barrier { .. })).count();
    assert!((0..4).all(|t| comes(t) == comes(0)) && comes(0) > 300, "{}", comes(0));
    for (policy, far) in
        [("eevdf:version=6.18", 0.01), ("cfs", 0.1), ("rr:quantum=20ms", 0.1), ("cfs:wakeup_preemption=off", 0.1)]
    {
        let spec = ReplaySpec { policy: policy.into(), hz: Some(1000), overheads: false, ..ReplaySpec::default() };
        let got = sleeps(&rerun(&recon, &spec, &mut |_| true).expect("the replay runs").out);
        let truth = sleeps(&recorded(MEET, policy));
        // More work is done than was recorded, or less: what is recorded ends.
        let want = truth.min(sleeps(&out));
        assert!((got as f64 / want as f64).ln().abs() < far, "{policy}: {got}, in truth {truth}");
    }
}

/// One that gives out work, and tasks that wake each other without waiting for all, meet at none.
#[test]
fn who_wakes_several_does_not_always_meet_them() {
    for text in [BOSS, NUDGE] {
        assert_eq!(programs(&recorded(text, "eevdf:version=6.18")).work.barriers.len(), 0, "{text}");
    }
}
