//! A workload that ran here, taken for a recording: the programs come back from its events, and
//! replaying them under the same policy gives the same schedule.

use tracekit_replay::cancel::Cancel;
use tracekit_replay::program::Step;
use tracekit_replay::reconstruct::{reconstruct, Class, LoopMode, Options, Overheads};
use tracekit_replay::replay::{rerun, ReplaySpec};
use tracekit_replay::workload;
use tracekit_schema::table::Table;
use tracekit_schema::{Kind, Out};

/// Time, CPU, leaving and entering thread of every switch.
fn switches(out: &Out) -> Vec<(i64, i32, i64, i64)> {
    let e = &out.events;
    let row = |r: usize| Some((e.ts_ns.get(r)?, e.cpu.get(r)?, e.tid.get(r)?, e.next_tid.get(r)?));
    (0..e.len()).filter(|&r| e.kind.get(r) == Some(Kind::Switch)).filter_map(row).collect()
}

fn spec(policy: &str, mode: LoopMode) -> ReplaySpec {
    ReplaySpec { policy: policy.into(), hz: Some(1000), overheads: false, mode, ..ReplaySpec::default() }
}

fn check(text: &str, policy: &str) -> [u64; Class::COUNT] {
    let recorded = workload::run_text(text, Some(policy), &mut |_| true).expect("the workload runs");
    let options = Options { hz: Some(1000), ..Options::default() };
    let recon = reconstruct(&recorded.events, &recorded.strings, &options);
    let replayed = rerun(&recon, &spec(policy, LoopMode::Dependency), &mut |_| true).expect("the replay runs");
    let (want, got) = (switches(&recorded), switches(&replayed.out));
    // The recording stops; what the replay does near its end is no matter.
    let n = want.len() * 8 / 10;
    assert!(got.len() >= n, "{policy}: {} switches of {}", got.len(), want.len());
    if let Some(i) = (0..n).find(|&i| want[i] != got[i]) {
        let around = |s: &[(i64, i32, i64, i64)]| format!("{:?}", &s[i.saturating_sub(2)..(i + 4).min(s.len())]);
        panic!("{policy}: switch {i} differs:\n  recorded {}\n  replayed {}", around(&want), around(&got));
    }
    recon.classes
}

const DEPENDENT: &str = "
until: 200
A: (R1 P(b) W(a))*
B: (W(b) R2 P(c))*
C: (W(c) R1 P(a))*
H nice=5: R∞
";

const TIMERS: &str = "
until: 300
S: (R1.5 S7)*
T: (R0.3 S3)*
D: (R2 D11)*
H: R∞
";

const FAMILY: &str = "
until: 100
P: R3 F(C) R1 W(x) R2 F(E) W(y) R1
C start=fork: R4 Q R0.5 P(x)
E start=fork: R2 Q R0.5 P(y)
H nice=10: R∞
";

const YIELDS: &str = "
until: 60
A: (R1 Y)*
B: (R2 Y)*
C: R20
";

#[test]
fn dependent_wakeups_come_back() {
    for policy in ["cfs", "cfs:form=2.6.29", "rr:quantum=5ms"] {
        let classes = check(DEPENDENT, policy);
        assert_eq!(classes[Class::Timer as usize], 0, "{policy}");
        assert!(classes[Class::Dependency as usize] > 5, "{policy}");
    }
}

#[test]
fn sleeps_come_back() {
    for policy in ["cfs", "rr:quantum=5ms", "cfs:wakeup_preemption=off"] {
        let classes = check(TIMERS, policy);
        assert!(classes[Class::Timer as usize] > 5 && classes[Class::Io as usize] > 3, "{policy}: {classes:?}");
    }
}

#[test]
fn forks_exits_and_waits_come_back() {
    for policy in ["cfs", "rr:quantum=2ms"] {
        check(FAMILY, policy);
    }
}

#[test]
fn yields_come_back() {
    for policy in ["rr:quantum=5ms", "cfs:form=2.6.29,compat_yield=on"] {
        check(YIELDS, policy);
    }
}

/// An interrupted task is not the waker: sleepers beside a hog do not depend on it.
#[test]
fn interrupts_are_not_charged_to_the_interrupted() {
    let recorded = workload::run_text("until: 100\nS: (R1 S5)*\nH: R∞", Some("fifo"), &mut |_| true).unwrap();
    let recon = reconstruct(&recorded.events, &recorded.strings, &Options { hz: Some(1000), ..Options::default() });
    assert_eq!(recon.classes[Class::Dependency as usize], 0);
}

/// What never ran under the recorded policy is not known; it must not become an endless task under another.
#[test]
fn a_starved_task_is_not_taken_for_endless() {
    let text = "until: 100\nF policy=fifo prio=10: R∞\nK: R1 S3 R1";
    let recorded = workload::run_text(text, Some("cfs"), &mut |_| true).unwrap();
    let recon = reconstruct(&recorded.events, &recorded.strings, &Options { hz: Some(1000), ..Options::default() });
    assert_eq!(recon.starved.len(), 1);
    let starved = &recon.work.tasks[recon.starved[0].0 as usize];
    assert!(starved.steps.iter().all(|s| !matches!(s, Step::Run { .. })), "{:?}", starved.steps);
    assert_eq!(recon.inferred().iter().find(|i| i.name == "tasks that never ran").and_then(|i| i.value), Some(1.0));
    // Cut in its second burst, it goes on for as long as its first lasted.
    let recorded = workload::run_text("until: 6\nK: R2 S3 R9", Some("cfs"), &mut |_| true).unwrap();
    let recon = reconstruct(&recorded.events, &recorded.strings, &Options { hz: Some(1000), ..Options::default() });
    let demand: Vec<i64> = recon.work.tasks[0]
        .steps
        .iter()
        .filter_map(|s| if let Step::Run { ns } = s { Some(*ns) } else { None })
        .collect();
    assert!(demand.iter().sum::<i64>() <= 4_100_000, "{demand:?}");
}

/// Under another policy dependent work moves with its waker; in the open loop it keeps its time.
#[test]
fn loops_differ_where_they_should() {
    let text = "until: 400\nA: (S9 R1 P(b))*\nB: (W(b) R1)*\nH: R∞";
    let recorded = workload::run_text(text, Some("rr:quantum=20ms"), &mut |_| true).unwrap();
    let wakeups_of_b = |mode: LoopMode| -> Vec<i64> {
        let recon =
            reconstruct(&recorded.events, &recorded.strings, &Options { mode, hz: Some(1000), ..Options::default() });
        let out = rerun(&recon, &spec("cfs", mode), &mut |_| true).unwrap().out;
        let e = &out.events;
        (0..e.len())
            .filter(|&r| e.kind.get(r) == Some(Kind::Waking) && e.tid.get(r) == Some(2))
            .filter_map(|r| e.ts_ns.get(r))
            .collect()
    };
    let (dependency, open) = (wakeups_of_b(LoopMode::Dependency), wakeups_of_b(LoopMode::Open));
    assert!(dependency.len() > 8 && open.len() > 8, "{} {}", dependency.len(), open.len());
    assert!(dependency[5] < open[5], "CFS serves the sleeper sooner, so B is woken sooner: {dependency:?} {open:?}");
}

/// The table says of every step, where it comes from and what ends its sleeps.
#[test]
fn programs_are_a_table() {
    let recorded = workload::run_text(
        "until: 100\nA: (R1 S5)*\nB: R3 F(C) W(x) R1\nC start=fork: R2 P(x)\nH: R∞",
        Some("cfs"),
        &mut |_| true,
    );
    let mut recorded = recorded.unwrap();
    let recon = reconstruct(&recorded.events, &recorded.strings, &Options { hz: Some(1000), ..Options::default() });
    let table = recon.table(&mut recorded.strings);
    assert_eq!(table.len(), recon.work.tasks.iter().map(|p| p.steps.len()).sum::<usize>());
    let text = |id| recorded.strings.text(id).into_owned();
    let row = |op: &str, comm: &str| {
        (0..table.len())
            .find(|&r| {
                table.op.get(r).map(text).as_deref() == Some(op) && table.comm.get(r).map(text).as_deref() == Some(comm)
            })
            .unwrap_or_else(|| panic!("no {op} of {comm}"))
    };
    let sleep = row("sleep", "A");
    assert_eq!(table.ends_by.get(sleep).map(text).as_deref(), Some("timer"));
    assert_eq!(table.evidence.get(sleep).map(text).as_deref(), Some("hardirq"));
    assert_eq!(table.dur_ns.get(sleep).map(|ns| ns + table.slack_ns.get(sleep).unwrap()), Some(5_000_000));
    let wait = row("wait", "B");
    assert_eq!(table.partner_tid.get(wait), Some(3));
    assert_eq!(table.sem.get(wait), table.sem.get(row("post", "C")));
    assert_eq!(table.partner_tid.get(row("fork", "B")), Some(3));
}

/// Costs found in a run of `text` under `policy`.
fn overheads(text: &str, policy: &str) -> Overheads {
    let recorded = workload::run_text(text, Some(policy), &mut |_| true).expect("the workload runs");
    reconstruct(&recorded.events, &recorded.strings, &Options { hz: Some(100), ..Options::default() }).overheads
}

/// What the last of several wakeups of an interrupt takes more comes back.
#[test]
fn the_cost_of_the_last_wakeup_comes_back() {
    let costs = "switch=10us record=8us interrupt=5us interrupt_last=6us";
    let three = "A: (R0.03 S1~0.05)*\nB: (R0.03 S1~0.05)*\nC: (R0.06 S3.77)*\nH: R∞";
    let found = overheads(&format!("until: 8000\nhz: 100\ncosts: {costs}\n{three}"), "srpt");
    let more = found.interrupt_last.ns - found.interrupt.ns;
    assert!((more - 1_000).abs() <= 40, "{more} instead of 1000");
}

#[test]
fn reconstruction_stops_when_it_is_asked_to() {
    let recorded =
        workload::run_text("until: 400\nA: (S9 R1 P(b))*\nB: (W(b) R1)*", Some("cfs"), &mut |_| true).unwrap();
    let cancel = Cancel::new();
    let options = Options { cancel: cancel.clone(), ..Options::default() };
    assert_eq!(reconstruct(&recorded.events, &recorded.strings, &options).work.tasks.len(), 2);
    cancel.set();
    assert_eq!(reconstruct(&recorded.events, &recorded.strings, &options).work.tasks.len(), 0);
}

#[test]
fn a_run_stops_when_it_is_asked_to() {
    let mut calls = 0;
    let stopped = workload::run_text("until: 3600000\nA: (R0.01 S0.01)*", Some("cfs"), &mut |_| {
        calls += 1;
        calls < 3
    });
    assert_eq!((stopped.err().as_deref(), calls), (Some("stopped"), 3));
}
