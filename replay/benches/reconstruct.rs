//! Rate of reconstruction: events a second from records to programs, on one core, and the memory it takes.
//!
//! `cargo bench -p tracekit-replay --bench reconstruct` prints one line a size. Time is the
//! thread's own CPU time where the system says it (other load does not count). A rate that falls
//! with the size means that something is not linear.

#![allow(clippy::disallowed_methods)]

use std::time::Instant;

use tracekit_replay::reconstruct::{reconstruct, Options};
use tracekit_replay::workload::run_text;
use tracekit_schema::events::irq;
use tracekit_schema::table::Table;
use tracekit_schema::{Events, Kind, State, Strings};

const CPUS: i64 = 4;
/// Tasks of each CPU.
const TASKS: i64 = 8;

/// On every CPU: a timer wakes a task, it preempts whoever runs, it wakes another and sleeps.
fn records(rows: usize, strings: &mut Strings) -> Events {
    let mut events = Events::default();
    let names: Vec<_> = (0..CPUS * TASKS).map(|t| strings.intern(format!("task/{t}").as_bytes())).collect();
    let (mut now, mut running) = (1_000_000_000, vec![0; CPUS as usize]);
    for round in 0.. {
        let cpu = round % CPUS;
        let task = (round / CPUS) % TASKS * CPUS + cpu;
        let (tid, name, left) = (1_000 + task, names[task as usize], running[cpu as usize]);
        for kind in [Kind::StatRuntime, Kind::Waking, Kind::Wakeup, Kind::Switch] {
            now += 2_000;
            let mut row = events.push();
            let flags = if kind == Kind::Waking && round % 3 > 0 { irq::HARDIRQ } else { 0 };
            row.ts_ns(now).cpu(cpu as i32).kind(kind).quality(0).ctx_tid(left).irq_flags(flags).prio(120);
            match kind {
                Kind::Switch => {
                    let state = if round % 3 == 0 { State::Preempted } else { State::Sleeping };
                    row.tid(left).state(state).next_tid(tid).next_comm(name).next_prio(120);
                }
                Kind::StatRuntime => {
                    row.tid(left).value(20_000);
                }
                _ => {
                    row.tid(tid).comm(name).target_cpu(cpu as i32);
                }
            }
        }
        running[cpu as usize] = tid;
        if events.len() >= rows {
            return events;
        }
    }
    events
}

/// Three tasks that share a lock, and hogs that never end, for so many ms.
fn locked(until: u64) -> (Events, Strings) {
    let text = format!(
        "until: {until}\ncpus: 2\nA*3: (R~uniform(0.05,0.15) L(m) R~uniform(0.02,0.06) G(m))*\n\
         H*2: (R~uniform(2,9) S~uniform(1,4))*\nE*2: R1000000\n"
    );
    let out = run_text(&text, Some("cfs"), &mut |_| true).expect("the workload runs");
    (out.events, out.strings)
}

/// Seconds that this thread has spent on a CPU; elapsed seconds where that is not known.
fn clock(start: Instant) -> f64 {
    let own = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns = own.as_deref().and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    ns.map_or_else(|| start.elapsed().as_secs_f64(), |ns| ns as f64 / 1e9)
}

/// A line of `/proc/self/status`, in MB.
fn memory(key: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(key)).unwrap_or_default();
    let kb: String = line.chars().filter(char::is_ascii_digit).collect();
    kb.parse::<f64>().unwrap_or(0.0) / 1e3
}

/// Prints the rate, and the memory beside the events where no earlier line took more.
fn measure(name: &str, events: &Events, strings: &Strings, zero: Instant) {
    let (before, peak) = (memory("VmRSS:"), memory("VmHWM:"));
    let mut best = f64::MAX;
    let mut steps = 0;
    for _ in 0..3 {
        let start = clock(zero);
        let recon = reconstruct(events, strings, &Options::default());
        best = best.min(clock(zero) - start);
        steps = recon.work.tasks.iter().map(|t| t.steps.len()).sum::<usize>();
    }
    let (rate, most) = (events.len() as f64 / best / 1e6, memory("VmHWM:"));
    print!("reconstruct, {} events{name}: {rate:.2} M events/s, {steps} steps", events.len());
    if most > peak {
        let (more, each) = (most - before, (most - before) * 1e6 / events.len() as f64);
        print!(", {more:.0} MB at most beside the events ({each:.0} bytes an event)");
    }
    println!();
}

fn main() {
    let zero = Instant::now();
    // The peak of memory is that of the process: what takes less comes first.
    for until in [40_000, 100_000, 250_000] {
        let (events, strings) = locked(until);
        measure(" of tasks that share a lock", &events, &strings, zero);
    }
    for rows in [1_000_000, 2_500_000, 5_000_000] {
        let mut strings = Strings::new();
        strings.intern(b"");
        let events = records(rows, &mut strings);
        measure("", &events, &strings, zero);
    }
}
