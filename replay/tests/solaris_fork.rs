//! The published Solaris experiment: a process that forks 1000 times beside a nice 19 hog.
//!
//! Each iteration takes 8.9 ms of CPU time: the parent computes, forks, waits; the child executes a
//! program and exits. Published: 85 s; 39 s with RES=4000; 9.0 s with the parent at upri +1; 8.9 s
//! alone.

use tracekit_replay::engine::{Engine, Machine};
use tracekit_replay::policies::PolicySpec;
use tracekit_replay::program::{Fork, Program, SemId, Start, Step, Workload};
use tracekit_replay::task::{Sleep, TaskId};

const N: usize = 1000;

fn us(us: i64) -> Step {
    Step::Run { ns: us * 1000 }
}

/// Seconds until the parent has done all iterations.
fn seconds(policy: &str, upri: i32, hog: bool, how: Fork) -> f64 {
    let mut work = Workload::default();
    let reaped = SemId(0);
    work.sems.push(0);
    let wait = Step::Wait { sem: reaped, sleep: Sleep::Interruptible };
    let mut steps = Vec::new();
    for i in 0..N {
        let child = TaskId(2 + i as u32);
        steps.extend([us(2000), Step::Fork { child, how }, us(300), wait, us(1600)]);
    }
    let mut parent = Program::new("forker", 1, steps);
    parent.first.upri = Some(upri);
    let mut spinner = Program::new("hog", 2, vec![Step::Run { ns: if hog { i64::MAX } else { 0 } }]);
    spinner.first.upri = Some(-60);
    work.tasks = vec![parent, spinner];
    for i in 0..N {
        let steps = vec![us(1500), Step::Exec, us(3500), Step::Post { sem: reaped, sync: false }, Step::Exit];
        let mut child = Program::new("child", 100 + i as i64, steps);
        child.first.upri = Some(upri);
        child.start = Start::Forked;
        work.tasks.push(child);
    }
    let machine = Machine { hz: 100, until: 200_000_000_000, ..Machine::default() };
    let stack = PolicySpec::parse(policy).unwrap().stack().unwrap();
    let run = Engine::new(work, &machine, stack).unwrap().run(&mut |_| true).unwrap();
    let last = run.log.recs.iter().rfind(|r| r.kind == tracekit_replay::log::RecKind::Switch && r.a == 0);
    last.expect("the parent ran").ts as f64 / 1e9
}

fn within_ten_per_cent(got: f64, published: f64) {
    println!("published {published} s, replayed {got:.1} s");
    assert!((got / published - 1.0).abs() <= 0.10, "published {published} s, replayed {got:.2} s");
}

#[test]
fn a_fork_beside_a_nice_19_hog_takes_85_seconds() {
    within_ten_per_cent(seconds("solaris-ts", 0, true, Fork::Fork), 85.0);
}

#[test]
fn quanta_of_a_quarter_take_39_seconds() {
    within_ten_per_cent(seconds("solaris-ts:res=4000", 0, true, Fork::Fork), 39.0);
}

#[test]
fn one_user_priority_more_takes_nine_seconds() {
    within_ten_per_cent(seconds("solaris-ts", 1, true, Fork::Fork), 9.0);
}

#[test]
fn alone_it_takes_8_9_seconds() {
    within_ten_per_cent(seconds("solaris-ts", 0, false, Fork::Fork), 8.9);
}
