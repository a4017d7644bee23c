//! Any sequence of events: the state machine keeps its invariants, and what is built on it ends.

use tracekit_replay::reconstruct::{reconstruct, Options};
use tracekit_replay::replay::{rerun, ReplaySpec};
use tracekit_schema::table::Table;
use tracekit_schema::{DeriveOptions, Derived, Deriver, Diagnostics, Events, Kind, State, Strings};

use crate::random::Random;
use crate::Target;

const KINDS: [Kind; 12] = [
    Kind::Switch,
    Kind::Switch,
    Kind::Switch,
    Kind::Switch,
    Kind::Waking,
    Kind::Wakeup,
    Kind::WakeupNew,
    Kind::Migrate,
    Kind::Fork,
    Kind::Exit,
    Kind::Exec,
    Kind::Switch,
];
const STATES: [State; 6] =
    [State::Runnable, State::Preempted, State::Sleeping, State::Blocked, State::Dead, State::Zombie];
/// Policies of replays.
pub const POLICIES: [&str; 6] = ["cfs", "eevdf", "rr", "fifo", "o1", "ule"];
/// Steps that the search for messages may take: what it says of itself.
const SEARCHED: usize = 6_000_000;
/// Most steps of programs for each event: the bounds of what is inferred, together.
const STEPS: usize = 256;
/// Numbers of CPUs: some that lie apart, one that is none.
const CPUS: [i32; 6] = [0, 1, 2, 3, 63, 4095];
/// Rounds of a replay's progress callback after which it is stopped.
const ROUNDS: u32 = 20;
/// Bytes that stand for an event.
const WIDTH: usize = 8;

/// Events as bytes: kind, CPU, context, task, next task, state, and two of time.
#[derive(Default)]
pub struct Sequence {
    policy: usize,
}

impl Target for Sequence {
    fn make(&mut self, random: &mut Random) -> Vec<u8> {
        self.policy = random.below(POLICIES.len());
        (0..WIDTH * (1 + random.below(600))).map(|_| random.next() as u8).collect()
    }

    fn run(&mut self, input: &[u8]) -> Result<u64, String> {
        let mut strings = Strings::new();
        strings.intern(b"");
        used(&events(input), &strings, POLICIES[self.policy])
    }
}

/// Takes events through the state machine, the reconstruction and a replay under `policy`; rows that
/// came out.
pub fn used(events: &Events, strings: &Strings, policy: &str) -> Result<u64, String> {
    let mut diagnostics = Diagnostics::default();
    let mut deriver = Deriver::new(DeriveOptions::default());
    deriver.push(events, strings, &mut diagnostics);
    let tables = deriver.finish(&mut diagnostics);
    holds(&tables)?;
    let recon = reconstruct(events, strings, &Options::default());
    if recon.unobserved.spent > SEARCHED {
        return Err(format!("the search for messages takes {} steps", recon.unobserved.spent));
    }
    let steps: usize = recon.work.tasks.iter().map(|t| t.steps.len()).sum();
    if steps > STEPS * (events.len() + 1) {
        return Err(format!("{steps} steps from {} events", events.len()));
    }
    let spec = ReplaySpec { policy: policy.into(), ..ReplaySpec::default() };
    let mut rounds = 0;
    let replayed = rerun(&recon, &spec, &mut |_| {
        rounds += 1;
        rounds < ROUNDS
    });
    Ok((tables.slices.len() + replayed.map_or(0, |r| r.out.events.len())) as u64)
}

/// The events that the bytes stand for, in time order but for one in a hundred.
fn events(input: &[u8]) -> Events {
    let mut events = Events::default();
    let mut now = 1_000_i64;
    for b in input.chunks_exact(WIDTH) {
        let step = i64::from(u16::from_le_bytes([b[6], b[7]]));
        now += if b[6] == 7 { -step * 10 } else { step * 100 };
        let kind = KINDS[usize::from(b[0]) % KINDS.len()];
        let task = |byte: u8| i64::from(byte % 9);
        let mut row = events.push();
        row.ts_ns(now).cpu(CPUS[usize::from(b[1]) % CPUS.len()]).kind(kind).quality(0).ctx_tid(task(b[2]));
        row.tid(task(b[3]));
        if kind == Kind::Switch {
            row.next_tid(task(b[4])).state(STATES[usize::from(b[5]) % STATES.len()]);
        } else if matches!(kind, Kind::Waking | Kind::Wakeup | Kind::WakeupNew | Kind::Migrate) {
            row.target_cpu(CPUS[usize::from(b[4]) % CPUS.len()]);
        }
    }
    events
}

/// What holds for any records: no slice of negative length, and none before the one that ran before
/// it on its CPU is over.
fn holds(tables: &Derived) -> Result<(), String> {
    let slices = &tables.slices;
    let mut rows: Vec<(i32, i64, i64)> = (0..slices.len())
        .filter_map(|r| Some((slices.cpu.get(r)?, slices.ts_ns.get(r)?, slices.dur_ns.get(r)?)))
        .collect();
    rows.sort_unstable();
    if let Some((cpu, ts, dur)) = rows.iter().find(|(_, _, dur)| *dur < 0) {
        return Err(format!("the slice on CPU {cpu} at {ts} ns is {dur} ns long"));
    }
    for pair in rows.windows(2) {
        let [(cpu, ts, dur), (next_cpu, next, _)] = [pair[0], pair[1]];
        if cpu == next_cpu && ts + dur > next {
            return Err(format!("CPU {cpu} has two slices at {next} ns"));
        }
    }
    Ok(())
}
