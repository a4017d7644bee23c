//! Dispatches per second of every policy, over runnable tasks and CPUs: `cargo run --release -p tracekit-replay
//! --example dispatch_bench [POLICY[:params]] [--tasks 4,64,1024] [--cpus 1,8] [--dispatches N]`.
//!
//! Half of the tasks never sleep, the other half run for 200 us and sleep for 1 ms, so that wakeups, preemptions and slice ends
//! all take part. The run is measured without the log of events.
#![allow(clippy::disallowed_methods)]

use std::time::Instant;
use tracekit_replay::engine::{Engine, Machine};
use tracekit_replay::policies::{PolicySpec, POLICIES};
use tracekit_replay::program::{Pause, Program, Start, Step, Workload};
use tracekit_replay::task::{Sleep, NEVER};

fn workload(tasks: usize, sleepers: bool) -> Workload {
    let mut work = Workload::default();
    for i in 0..tasks {
        let steps = if sleepers && i % 2 == 1 {
            let pause = Pause::Timer { ns: 1_000_000, slack: 50_000 };
            vec![Step::Run { ns: 200_000 }, Step::Pause { pause, sleep: Sleep::Interruptible }, Step::Goto { step: 0 }]
        } else {
            vec![Step::Run { ns: NEVER }]
        };
        let mut p = Program::new(format!("t{i}"), i as i64 + 1, steps);
        p.start = Start::At(i as i64 * 1000);
        work.tasks.push(p);
    }
    work
}

fn measure(policy: &str, tasks: usize, cpus: usize, sleepers: bool, wanted: u64) -> (u64, u64, f64) {
    let spec = PolicySpec::parse(policy).unwrap_or_else(|e| panic!("{e}"));
    let mut until = 100_000_000;
    loop {
        let machine = Machine { cpus, hz: 1000, until, log: false, ..Machine::default() };
        let engine = Engine::new(workload(tasks, sleepers), &machine, spec.stack().unwrap()).unwrap();
        let start = Instant::now();
        let run = engine.run(&mut |_| true).unwrap_or_else(|e| panic!("{policy}: {e}"));
        let took = start.elapsed().as_secs_f64();
        if run.counts.dispatches >= wanted || took > 20.0 {
            return (run.counts.dispatches, run.counts.events, took);
        }
        until *= 4;
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let list = |name: &str, default: &str| -> Vec<usize> {
        let given = args.iter().position(|a| a == name).and_then(|i| args.get(i + 1)).map_or(default, String::as_str);
        given.split(',').map(|n| n.parse().expect("a number")).collect()
    };
    let wanted = list("--dispatches", "1000000")[0] as u64;
    let named: Vec<String> = args.iter().take(1).filter(|a| !a.starts_with("--")).cloned().collect();
    let policies = if named.is_empty() { POLICIES.iter().map(|p| p.name.to_owned()).collect() } else { named };
    println!("{:<28}{:>8}{:>6}{:>10}{:>16}{:>14}", "policy", "tasks", "cpus", "work", "dispatches/s", "events/s");
    for policy in &policies {
        for &tasks in &list("--tasks", "4,64,1024") {
            for &cpus in &list("--cpus", "1,8") {
                for (name, sleepers) in [("hogs", false), ("mixed", true)] {
                    let (dispatches, events, took) = measure(policy, tasks, cpus, sleepers, wanted);
                    let rate = |n: u64| n as f64 / took;
                    println!(
                        "{policy:<28}{tasks:>8}{cpus:>6}{name:>10}{:>16.0}{:>14.0}",
                        rate(dispatches),
                        rate(events)
                    );
                }
            }
        }
    }
}
