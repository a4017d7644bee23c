//! Messages on CPUs that are not equally fast: how long a service takes hangs by the CPU that it got.

use tracekit_replay::emit::Records;
use tracekit_replay::program::Step;
use tracekit_replay::reconstruct::{Options, Outcome, Reading, Recon, Whole};
use tracekit_replay::replay::ReplaySpec;
use tracekit_replay::speeds::Speeds;
use tracekit_replay::trial;
use tracekit_replay::workload;
use tracekit_schema::Out;

/// Three sources, a pool of two, two stations behind it, and three hogs that sleep now and then, so that
/// CPUs that go idle take tasks from each other.
const PIPELINE: &str = "
until: 3000
cpus: 2
G: (S7 R0.02 P(q))*
I: (S11 R0.02 P(q))*
J: (S13 R0.02 P(q))*
A*2: (W(q) R0.8 P(b))*
B: (W(b) R0.9 P(c))*
C: (W(c) R0.5)*
H*3: (R80 S25)*
";

/// What is recorded where the second CPU takes 1.7 times as long as the first, read as a trace.
fn programs(policy: &str) -> Recon {
    let mut scenario = workload::parse(PIPELINE, Some(policy)).expect("a workload");
    scenario.machine.speeds = Speeds::of(&[1.0, 1.7]);
    let mut run = scenario.run().expect("a run");
    let mut out = Out::new();
    Records::of(&mut run, 2, &[], 1_000_000).all(&mut out);
    let options = Options { hz: Some(1000), ..Options::default() };
    let identity = ReplaySpec { policy: policy.into(), hz: Some(1000), overheads: false, ..ReplaySpec::default() };
    trial::programs(Reading::of(&Whole::new(&out.events, &out.strings), &options), &identity)
}

/// Services are distinguished by their work, not by the time that they took: none of the slow CPU counts
/// as two, and no two of the fast one as one.
#[test]
fn services_are_told_apart_by_their_work() {
    let recon = programs("eevdf");
    let ratio = recon.speeds.time_of_one(1) / recon.speeds.time_of_one(0);
    assert!((1.6..1.8).contains(&ratio), "{ratio}");
    assert!(
        recon.unobserved.groups.iter().all(|g| g.outcome == Outcome::Explained && g.unobserved > 300),
        "{:?}",
        recon.unobserved
    );
    for (name, work) in [("A", 800_000.0), ("B", 900_000.0), ("C", 500_000.0)] {
        let tasks: Vec<bool> = recon.work.tasks.iter().map(|t| t.comm.starts_with(name)).collect();
        let of = recon.work.handlers.iter().zip(&recon.handlers).filter(|(_, by)| tasks[by.0 as usize]);
        let run = |steps: &Vec<Step>| steps.iter().map(|s| if let Step::Run { ns } = s { *ns } else { 0 }).sum::<i64>();
        let all: Vec<i64> = of.map(|(steps, _)| run(steps)).collect();
        let near = all.iter().filter(|ns| (**ns as f64 / work - 1.0).abs() < 0.15).count();
        assert!(near * 100 >= 85 * all.len(), "{name}: {near} of {} take as long as they should", all.len());
    }
}
