//! Published figures of real schedulers, which the policies must give: shares by nice value, the
//! slices of the experiment behind CFS's fair sleepers, the recalculations of Linux 2.0. The fork
//! experiment of Solaris is in `solaris_fork.rs`.

use tracekit_replay::engine::Run;
use tracekit_replay::workload;

/// Weights of nice -20 to 19 as Linux publishes them (`sched_prio_to_weight`).
const WEIGHTS: [f64; 40] = [
    88761.0, 71755.0, 56483.0, 46273.0, 36291.0, 29154.0, 23254.0, 18705.0, 14949.0, 11916.0, 9548.0, 7620.0, 6100.0,
    4904.0, 3906.0, 3121.0, 2501.0, 1991.0, 1586.0, 1277.0, 1024.0, 820.0, 655.0, 526.0, 423.0, 335.0, 272.0, 215.0,
    172.0, 137.0, 110.0, 87.0, 70.0, 56.0, 45.0, 36.0, 29.0, 23.0, 18.0, 15.0,
];

fn run(text: &str) -> Run {
    workload::parse(text, None).expect("a workload").run().expect("a run")
}

/// Share of task 0 in the CPU time of all.
fn share(text: &str) -> f64 {
    let run = run(text);
    run.ran[0] as f64 / run.counts.busy as f64
}

#[test]
fn cfs_shares_follow_the_weights_of_nice_values() {
    for form in ["2.6.27", "2.6.29", "2.6.32", "6.1"] {
        for nice in -20..20i32 {
            let weight = WEIGHTS[(nice + 20) as usize];
            let got = share(&format!("policy: cfs:form={form}\nA nice={nice}: R∞\nB: R∞\nuntil: 60000"));
            let want = weight / (weight + 1024.0);
            assert!((got - want).abs() < 0.003, "{form}, nice {nice} beside 0: {got:.4}, expected {want:.4}");
        }
    }
}

#[test]
fn eevdf_shares_follow_the_same_weights() {
    for form in ["6.6", "6.12"] {
        for nice in [-20, -10, -5, 1, 5, 10, 19i32] {
            let weight = WEIGHTS[(nice + 20) as usize];
            let got = share(&format!("policy: eevdf:version={form}\nA nice={nice}: R∞\nB: R∞\nuntil: 60000"));
            let want = weight / (weight + 1024.0);
            assert!((got - want).abs() < 0.003, "{form}, nice {nice} beside 0: {got:.4}, expected {want:.4}");
        }
    }
}

#[test]
fn aix_gives_the_published_splits_of_nice_20_and_39() {
    for (formula, published) in [("old", 0.59), ("new", 0.85)] {
        let got = share(&format!("policy: aix:formula={formula}\nhz: 100\nA: R∞\nB nice=19: R∞\nuntil: 600000"));
        assert!((got - published).abs() < 0.005, "{formula}: {got:.4}, published {published}");
    }
}

/// Mean slice in ms, of tasks whose name begins with `prefix`.
fn mean_slice(run: &Run, prefix: &str, cpu: usize) -> f64 {
    let slices = workload::timeline(run, cpu);
    let own = slices.iter().filter(|s| run.work.tasks[s.task.index()].comm.starts_with(prefix));
    let (n, sum) = own.fold((0, 0), |(n, sum), s| (n + 1, sum + s.to - s.from));
    sum as f64 / n as f64 / 1e6
}

/// Sixteen hogs and two tasks that wake a thousand times a second: with fair sleepers each wakeup
/// preempts, so that the mean slice is a third of a millisecond; without them the hogs use up their
/// slices. Published: 0.3 and 10 ms. Tunables grow with the CPUs of the machine, of which the
/// published figures do not give the number: on one of two CPUs a hog's slice is 9 ms.
#[test]
fn fair_sleepers_cut_the_slices_of_hogs_to_pieces() {
    let text = |sleepers: &str| {
        let pin = "cpus=0";
        format!(
            "policy: cfs:form=2.6.29,fair_sleepers={sleepers}\ncpus: 2\nH*16 {pin}: R∞\nW0 {pin}: (R0.02 S0.98)*\n\
             W1 {pin} start=0.5: (R0.02 S0.98)*\nuntil: 4000"
        )
    };
    let on = mean_slice(&run(&text("on")), "", 0);
    assert!((0.27..0.40).contains(&on), "fair sleepers on: {on:.3} ms, published 0.3");
    let off = mean_slice(&run(&text("off")), "H", 0);
    assert!((8.5..11.0).contains(&off), "fair sleepers off: {off:.3} ms, published 10");
}

/// Two hogs of 20 ticks: a counter lasts 21 ticks, and one recalculation serves both of them.
#[test]
fn linux_2_0_recalculates_once_in_42_ticks() {
    let run = run("policy: goodness\nhz: 100\nunit: 10ms\nA: R∞\nB: R∞\nuntil: 4205");
    let recalcs = run.counters.iter().find(|c| c.0 == "recalcs").map(|c| c.1);
    assert_eq!(recalcs, Some(100));
}
