//! Dispatches per second of every policy, over runnable tasks and CPUs, a line of JSON each: `cargo
//! run --release -p tracekit-replay --example dispatch_bench -- [POLICY[:params] ...] [--tasks
//! 4,64] [--cpus 1,8] [--work yields] [--dispatches N]`. `bench/dispatch.py` runs it and prints a
//! table.
//!
//! Three workloads. `yields`: every task runs for 100 us and yields, so all are runnable all the
//! time, and a decision is made 10 000 times a second and CPU. `mixed`: half of the tasks never
//! sleep, the others run for 200 us and sleep for 1 ms, so wakeups, preemptions, slice ends and
//! ticks all take part. `hogs`: nobody sleeps; decisions are the ends of slices, and a policy whose
//! slices last many ticks is measured by its ticks.
//!
//! A dispatch is a decision what to run next. Time is CPU time of this process, where the system
//! says it, as others may use the machine; else elapsed time. The run is measured
//! without the log of events. Making the workload is not counted, reaching its first instants is.
#![allow(clippy::disallowed_methods)]

use std::time::Instant;
use tracekit_replay::engine::{Engine, Machine};
use tracekit_replay::policies::{PolicySpec, POLICIES};
use tracekit_replay::program::{Pause, Program, Start, Step, Workload};
use tracekit_replay::task::{Sleep, NEVER};

const WORKS: [&str; 3] = ["yields", "mixed", "hogs"];
/// About the most CPU time of one measurement, in s.
const LONGEST: f64 = 0.3;

fn workload(kind: &str, tasks: usize) -> Workload {
    let mut work = Workload::default();
    for i in 0..tasks {
        let steps = match kind {
            "yields" => vec![Step::Run { ns: 100_000 }, Step::Yield, Step::Goto { step: 0 }],
            "mixed" if i % 2 == 1 => {
                let pause = Pause::Timer { ns: 1_000_000, slack: 50_000 };
                vec![
                    Step::Run { ns: 200_000 },
                    Step::Pause { pause, sleep: Sleep::Interruptible },
                    Step::Goto { step: 0 },
                ]
            }
            _ => vec![Step::Run { ns: NEVER }],
        };
        let mut p = Program::new(format!("t{i}"), i as i64 + 1, steps);
        p.start = Start::At(i as i64 * 100);
        work.tasks.push(p);
    }
    work
}

/// CPU time of this process in s, where the system says it in ns. `/proc` says it as of the last tick.
#[cfg(unix)]
fn cpu_time() -> Option<f64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

#[cfg(not(unix))]
fn cpu_time() -> Option<f64> {
    None
}

/// Runs ever longer until `wanted` dispatches are made, and prints the last run.
fn measure(policy: &str, kind: &str, tasks: usize, cpus: usize, wanted: u64) {
    let spec = PolicySpec::parse(policy).unwrap_or_else(|e| panic!("{e}"));
    let mut until: i64 = 20_000_000;
    loop {
        let machine = Machine { cpus, hz: 1000, until, log: false, ..Machine::default() };
        let engine = Engine::new(workload(kind, tasks), &machine, spec.stack().unwrap()).unwrap();
        let (start, cpu) = (Instant::now(), cpu_time());
        let run = engine.run(&mut |_| true).unwrap_or_else(|e| panic!("{policy}: {e}"));
        let elapsed = start.elapsed().as_secs_f64();
        let spent = cpu_time().zip(cpu).map_or(elapsed, |(after, before)| after - before);
        let (dispatches, events) = (run.counts.dispatches, run.counts.events);
        if dispatches >= wanted || spent > LONGEST / 2.0 {
            println!(
                "{{\"policy\": \"{policy}\", \"work\": \"{kind}\", \"tasks\": {tasks}, \"cpus\": \
                 {cpus}, \"dispatches\": {dispatches}, \"events\": {events}, \"cpu_s\": {spent:.6}, \
                 \"elapsed_s\": {elapsed:.6}, \"dispatches_per_s\": {:.0}, \"events_per_s\": \
                 {:.0}}}",
                dispatches as f64 / spent,
                events as f64 / spent
            );
            return;
        }
        // A short run shows how long one has to be; the start of many tasks is a part of it, so not
        // all at once.
        let factor = wanted as f64 / dispatches.max(1) as f64 * 1.1;
        until = (until as f64 * factor.min(LONGEST / spent.max(1e-6)).clamp(1.5, 16.0)) as i64;
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let given = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1));
    let list = |name: &str, default: &str| -> Vec<usize> {
        let text = given(name).map_or(default, String::as_str);
        text.split(',').map(|n| n.parse().expect("a number")).collect()
    };
    let wanted = list("--dispatches", "200000")[0] as u64;
    let named: Vec<String> = args.iter().take_while(|a| !a.starts_with("--")).cloned().collect();
    let policies = if named.is_empty() { POLICIES.iter().map(|p| p.name.to_owned()).collect() } else { named };
    let works: Vec<&str> = given("--work").map_or(WORKS.to_vec(), |w| w.split(',').collect());
    for policy in &policies {
        for &kind in &works {
            for &tasks in &list("--tasks", "4,64,1024,16384") {
                for &cpus in &list("--cpus", "1,8,64") {
                    measure(policy, kind, tasks, cpus, wanted);
                }
            }
        }
    }
}
