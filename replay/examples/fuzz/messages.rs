//! Runs of tasks that send each other messages, taken for recordings and damaged: what infers the
//! messages that no wakeup shows ends within its bound.

use tracekit_replay::workload;
use tracekit_schema::table::Table;
use tracekit_schema::{Events, Kind};

use crate::events::{used, POLICIES};
use crate::random::Random;
use crate::Target;

/// Bytes that stand for the run, for a task, and for a piece of damage.
const RUN: usize = 4;
const TASK: usize = 4;
const DAMAGE: usize = 4;
/// Most tasks, and most pieces of damage.
const TASKS: usize = 9;
const DAMAGES: usize = 12;
/// Queues between the tasks.
const QUEUES: u8 = 5;

/// Inputs in hexadecimal digits that were findings once, tried first: a unit, and a lock, of nanoseconds.
const FOUND: [&str; 2] = [
    "cabb906139c94e714f94c40ddf544e34fbbc7befff089d583ca2b6d635b8addd3eccb19442aa5e03d303ed6793d5cab3\
     efda5b0966fe6392fdd5da92d4a08783773f63b459f5d658",
    "a6eb45a934cdf42af63e17b07ec18d76b94403710d745cabbf1f105992a860743eb0e2af3614c30420b4b1d3f5d5542a\
     e5f2b176d38ac93f441ff850887b61fff123dd121fcba038897a787dd8fa13f4ebf7726f",
];

/// A network of tasks as bytes (policies, CPUs and how many tasks; for each task what it waits for,
/// works, and sends), and what is done to its records.
#[derive(Default)]
pub struct Messages {
    /// How many of those found once were tried.
    again: usize,
}

impl Target for Messages {
    fn make(&mut self, random: &mut Random) -> Vec<u8> {
        if let Some(found) = FOUND.get(self.again) {
            self.again += 1;
            let byte = |at| u8::from_str_radix(&found[at..at + 2], 16).expect("hexadecimal digits");
            return (0..found.len()).step_by(2).map(byte).collect();
        }
        let size = RUN + TASK * TASKS + DAMAGE * random.below(DAMAGES);
        (0..size).map(|_| random.next() as u8).collect()
    }

    fn run(&mut self, input: &[u8]) -> Result<u64, String> {
        let (text, damages) = text(input);
        let policy = |byte: u8| POLICIES[usize::from(byte) % POLICIES.len()];
        let recorded = workload::run_text(&text, Some(policy(input[0])), &mut |_| true)
            .map_err(|why| format!("`{text}` does not run: {why}"))?;
        used(&damaged(&recorded.events, damages), &recorded.strings, policy(input[1]))
    }
}

/// The workload that the bytes stand for, and the bytes of the damage.
fn text(input: &[u8]) -> (String, &[u8]) {
    let (run, rest) = input.split_at(RUN);
    let tasks = 3 + usize::from(run[2]) % (TASKS - 2);
    let (tasks, damages) = (rest[..TASK * TASKS].chunks_exact(TASK).take(tasks), &rest[TASK * TASKS..]);
    let mut text = format!("cpus: {}\nuntil: 150\n", 1 + run[3] % 4);
    for (n, b) in tasks.enumerate() {
        let (from, to, work) = (b[0] % QUEUES, b[1] % QUEUES, 1 + u32::from(b[2]) % 90);
        // One in three is a source; of the others, some answer two queues, and some nobody.
        let begins = if n == 0 || b[3] % 3 == 0 { format!("S{}", 1 + b[0] % 20) } else { format!("W(q{from})") };
        let ends = match b[3] / 3 % 4 {
            0 => String::new(),
            1 => format!(" P(q{to}) R0.01 P(q{})", (to + 1) % QUEUES),
            2 => format!(" Psync(q{to})"),
            _ => format!(" P(q{to})"),
        };
        text += &format!("T{n}: ({begins} R0.{work:02}{ends})*\n");
    }
    (text, damages)
}

/// The events that scheduling shows, damaged.
fn damaged(events: &Events, damages: &[u8]) -> Events {
    let mut rows: Vec<(usize, i64)> = (0..events.len()).map(|row| (row, 0)).collect();
    for b in damages.chunks_exact(DAMAGE) {
        let at = usize::from(u16::from_le_bytes([b[1], b[2]])) % rows.len().max(1);
        let end = rows.len().min(at + 1 + usize::from(b[3] % 32));
        match b[0] % 5 {
            0 => drop(rows.drain(at..end)),
            1 => rows.retain(|(row, _)| row % 64 != at % 64),
            2 => rows[at..end].iter_mut().for_each(|(_, task)| *task += i64::from(b[3] % 3)),
            3 => {
                let again = rows[at..end].to_vec();
                rows.splice(end..end, again);
            }
            _ => rows[at..end].reverse(),
        }
    }
    let mut out = Events::default();
    let mut last = 0;
    for (from, other) in rows {
        let mut row = out.push();
        // A task's number is another one's; idle CPUs stay what they are.
        let task = |tid: i64| if tid == 0 { 0 } else { tid + other };
        last = last.max(events.ts_ns.get(from).unwrap_or(0));
        row.ts_ns(last).kind(events.kind.get(from).unwrap_or(Kind::Switch)).quality(0);
        let _ = events.cpu.get(from).map(|v| row.cpu(v));
        let _ = events.ctx_tid.get(from).map(|v| row.ctx_tid(task(v)));
        let _ = events.tid.get(from).map(|v| row.tid(task(v)));
        let _ = events.comm.get(from).map(|v| row.comm(v));
        let _ = events.next_tid.get(from).map(|v| row.next_tid(task(v)));
        let _ = events.next_comm.get(from).map(|v| row.next_comm(v));
        let _ = events.state.get(from).map(|v| row.state(v));
        let _ = events.target_cpu.get(from).map(|v| row.target_cpu(v));
        let _ = events.orig_cpu.get(from).map(|v| row.orig_cpu(v));
        let _ = events.irq_flags.get(from).map(|v| row.irq_flags(v));
    }
    out
}
