//! Rate of the state machine: events a second over a mix of switches, wakings and wakeups, on one core.
//!
//! `cargo bench -p tracekit-schema --bench derive` prints one line a mix. Time is the thread's own
//! CPU time where the system says it (other load does not count), and the best of several rounds
//! counts.

#![allow(clippy::disallowed_methods)]

use std::time::Instant;

use tracekit_schema::events::irq;
use tracekit_schema::table::Table;
use tracekit_schema::{DeriveOptions, Deriver, Diagnostics, Events, Kind, State, StrId, Strings};

const CPUS: i64 = 8;
const ROUNDS: usize = 7;

/// Every CPU serves its own tasks in turn: wake one, switch to it, switch back when it sleeps; some
/// preemptions.
fn mix(tasks: i64, rows: usize, strings: &mut Strings) -> Vec<Events> {
    let names: Vec<StrId> = (0..tasks).map(|t| strings.intern(format!("worker/{t}").as_bytes())).collect();
    let mut batches = vec![Events::default()];
    let mut seq = 0;
    let mut now = 1_000_000_000;
    let mut running = vec![0; CPUS as usize];
    for round in 0.. {
        let cpu = round % CPUS;
        let task = (round / CPUS) % (tasks / CPUS) * CPUS + cpu;
        let (name, tid) = (names[task as usize], 1000 + task);
        if batches.last().is_some_and(|b| b.len() >= 65_536) {
            batches.push(Events::default());
        }
        let Some(batch) = batches.last_mut() else { break };
        let left = running[cpu as usize];
        let flags = if round % 2 == 0 { irq::HARDIRQ } else { 0 };
        for kind in [Kind::Waking, Kind::Wakeup, Kind::Switch] {
            now += 300;
            seq += 1;
            let mut row = batch.push();
            row.ts_ns(now).cpu(cpu as i32).seq(seq).kind(kind).quality(0).ctx_tid(left).irq_flags(flags).prio(120);
            if kind != Kind::Switch {
                row.tid(tid).comm(name).target_cpu(cpu as i32);
                continue;
            }
            let state = if round % 3 == 0 { State::Preempted } else { State::Sleeping };
            row.tid(left).state(state).next_tid(tid).next_comm(name).next_prio(120);
            if left != 0 {
                row.comm(names[(left - 1000) as usize]);
            }
        }
        running[cpu as usize] = tid;
        if seq as usize >= rows {
            break;
        }
    }
    batches
}

/// Seconds that this thread has spent on a CPU; elapsed seconds where that is not known.
fn clock(start: Instant) -> f64 {
    let own = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns = own.as_deref().and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    ns.map_or_else(|| start.elapsed().as_secs_f64(), |ns| ns as f64 / 1e9)
}

fn main() {
    let zero = Instant::now();
    for (tasks, what) in [(64, "64 tasks"), (16_384, "16384 tasks")] {
        let mut strings = Strings::new();
        let batches = mix(tasks, 3_000_000, &mut strings);
        let rows: usize = batches.iter().map(Table::len).sum();
        for (states, runqueue, tables) in [(true, true, "all tables"), (false, false, "slices only")] {
            let mut best = f64::MAX;
            let mut slices = 0;
            for _ in 0..ROUNDS {
                let mut diagnostics = Diagnostics::default();
                let start = clock(zero);
                let options = DeriveOptions { states, runqueue, ..DeriveOptions::default() };
                let mut deriver = Deriver::new(options);
                slices = 0;
                for batch in &batches {
                    deriver.push(batch, &strings, &mut diagnostics);
                    slices += deriver.drain().slices.len();
                }
                slices += deriver.finish(&mut diagnostics).slices.len();
                best = best.min(clock(zero) - start);
            }
            println!(
                "derive, {what}, {tables}: {:.1} M events/s ({rows} events, {slices} slices)",
                rows as f64 / best / 1e6
            );
        }
    }
}
