//! Timers with a period: what a text says of them, and what a reconstruction makes of recorded
//! ones.

use tracekit_replay::program::{Pause, Step};
use tracekit_replay::reconstruct::{reconstruct, Options, Recon};
use tracekit_replay::replay::{rerun, ReplaySpec};
use tracekit_replay::workload;
use tracekit_schema::table::Table;
use tracekit_schema::{Kind, Out};

const MS: i64 = 1_000_000;

/// Times at which thread `tid` gets a CPU.
fn on(out: &Out, tid: i64) -> Vec<i64> {
    let e = &out.events;
    let is = |r: &usize| e.kind.get(*r) == Some(Kind::Switch) && e.next_tid.get(*r) == Some(tid);
    (0..e.len()).filter(is).filter_map(|r| e.ts_ns.get(r)).collect()
}

fn run(text: &str) -> Out {
    workload::run_text(text, None, &mut |_| true).expect("the workload runs")
}

/// A task that does 1 ms each 10 ms, and one above it that holds the CPU from 15 to 47.
fn late(how: &str) -> Vec<i64> {
    let text = format!("policy: fifo\nuntil: 100\nH prio=2: U15 R32\nT prio=1: (S@10{how} R1)*\n");
    on(&run(&text), 2).iter().map(|at| at / MS).collect()
}

#[test]
fn a_late_task_catches_up_or_does_one_round_or_waits() {
    // Those of 20, 30 and 40 in one go from 47 to 50, then that of 50.
    assert_eq!(late(""), [10, 47, 60, 70, 80, 90]);
    assert_eq!(late("/merge"), [10, 47, 50, 60, 70, 80, 90]);
    assert_eq!(late("/skip"), [10, 47, 50, 60, 70, 80, 90]);
    assert!(workload::run_text("policy: fifo\nT: S@10/never", None, &mut |_| true).is_err());
    assert!(workload::run_text("policy: fifo\nT: S@0", None, &mut |_| true).is_err());
}

#[test]
fn what_comes_during_a_round_is_made_up_for_once_or_not_at_all() {
    // It runs from 10 on for 25, beyond 20 and 30.
    let rounds = |how: &str| {
        let text = format!("policy: fifo\nuntil: 80\nT: S@10{how} R25 (S@10{how} R1)*\n");
        on(&run(&text), 1).iter().map(|at| at / MS).collect::<Vec<i64>>()
    };
    assert_eq!(rounds(""), [10, 40, 50, 60, 70]);
    assert_eq!(rounds("/skip"), [10, 40, 50, 60, 70]);
    let work = |how: &str| {
        let text = format!("policy: fifo\nuntil: 39\nT: S@10{how} R25 (S@10{how} R1)*\n");
        let out = run(&text);
        let e = &out.events;
        let off = |r: &usize| e.kind.get(*r) == Some(Kind::Switch) && e.tid.get(*r) == Some(1);
        (0..e.len()).filter(off).filter_map(|r| e.ts_ns.get(r)).next_back().expect("it sleeps") / MS
    };
    assert_eq!(["", "/merge", "/skip"].map(work), [37, 36, 35]);
}

/// A recording of `T` beside two hogs, and its programs.
fn recorded(sleep: &str) -> Recon {
    let text = format!(
        "policy: cfs\nhz: 1000\nuntil: 2000\nseed: 4\nT: (R~uniform(1,2) {sleep})*\nH: R∞\nI: (R~exp(4) S~exp(2))*\n"
    );
    let out = run(&text);
    let options = Options { hz: Some(1000), exact_timers: true, ..Options::default() };
    reconstruct(&out.events, &out.strings, &options)
}

fn pauses(recon: &Recon) -> Vec<Pause> {
    let of = |s: &Step| if let Step::Pause { pause, .. } = *s { Some(pause) } else { None };
    recon.work.tasks[0].steps.iter().filter_map(of).collect()
}

#[test]
fn the_recording_tells_a_grid_from_a_length() {
    let relative = recorded("S10.3");
    assert!(pauses(&relative).iter().all(|p| matches!(p, Pause::Timer { .. })), "{:?}", relative.periodic);
    assert!(relative.periodic.iter().all(|p| p.task.0 != 0));
    for sleep in ["S@10.3", "S@10.3/skip"] {
        let recon = recorded(sleep);
        assert!(pauses(&recon).iter().all(|p| matches!(p, Pause::Period { .. })), "{sleep}");
        let found = recon.periodic.iter().find(|p| p.task.0 == 0).expect("it has a period");
        assert!((found.period - 10_300_000).abs() < 1_000, "{}", found.period);
        assert!(found.absolute, "{sleep}");
        let rows = recon.inferred();
        assert!(rows.iter().any(|r| r.name == "periodic timers" && r.how.contains("T (10300 us)")), "{rows:?}");
    }
}

#[test]
fn a_periodic_task_keeps_its_number_of_rounds_where_it_waits_longer() {
    let mut recon = recorded("S@10.3");
    recon.work.tasks[0].first.nice = 5;
    let spec = ReplaySpec { policy: "cfs".into(), hz: Some(1000), overheads: false, ..ReplaySpec::default() };
    let replayed = rerun(&recon, &spec, &mut |_| true).expect("it runs").out;
    let e = &replayed.events;
    let ran: i64 = {
        let (mut sum, mut since) = (0, None);
        for r in 0..e.len() {
            if e.kind.get(r) == Some(Kind::Switch) {
                if let (Some(from), Some(at)) = (since.take(), e.ts_ns.get(r)) {
                    sum += at - from;
                }
                if e.next_tid.get(r) == Some(1) {
                    since = e.ts_ns.get(r);
                }
            }
        }
        sum
    };
    // 194 periods of 1.5 ms.
    assert!((ran - 291 * MS).abs() < 15 * MS, "{ran}");
}

#[test]
fn sleeps_of_which_lengths_and_distances_are_alike_are_named() {
    // Nothing ever delays it, and it does the same each time.
    let out = run("policy: cfs\nhz: 1000\nuntil: 1000\nT: (R1 S9.3)*\n");
    let recon = reconstruct(&out.events, &out.strings, &Options { hz: Some(1000), ..Options::default() });
    assert!(pauses(&recon).iter().all(|p| matches!(p, Pause::Timer { .. })));
    let row = recon.inferred().into_iter().find(|r| r.name == "timers relative or periodic").expect("a row");
    assert!(row.how.contains("T (10300 us)"), "{}", row.how);
}
