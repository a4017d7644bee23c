//! Known schedules written as KTRGRAPH text, in each order and with each source of the clock's
//! rate, and read back.

#![allow(clippy::disallowed_methods, reason = "tests see files; the crate itself does not")]

mod common;
mod schedule;

use common::{read, read_in_steps};
use proptest::prelude::*;
use schedule::{same, same_slices, schedules, Cells, EndState, EventKind, Schedule};
use tracekit_parsers::Options;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// `ktrdump -ct`: newest first, cycles at 2.5 GHz given by the user.
    Ktrdump,
    /// The same without the header (`-q`).
    Quiet,
    /// `schedgraph.d`: oldest first, CPU and ns, ids with the process.
    Schedgraph,
}

fn id(variant: Variant, schedule: &Schedule, task: Option<usize>, cpu: i32) -> (String, i64, String) {
    let (name, tid) = match task {
        Some(i) => (schedule.tasks[i].comm.to_owned(), schedule.tasks[i].tid),
        None => (format!("idle: cpu{cpu}"), 100_003 + i64::from(cpu)),
    };
    let process = if variant == Variant::Schedgraph { "proc/" } else { "" };
    (format!("{process}{name} tid {tid}"), tid, name)
}

/// Payloads and rows, oldest first.
fn records(variant: Variant, schedule: &Schedule) -> Vec<(i64, i32, String, Cells)> {
    let mut prio: Vec<i32> = schedule.tasks.iter().map(|t| t.prio).collect();
    let mut all = Vec::new();
    for e in &schedule.events {
        let name = |task| id(variant, schedule, task, e.cpu);
        let thread = |who: &str, what: &str, attributes: String| {
            format!("KTRGRAPH group:\"thread\", id:\"{who}\", {what}, attributes: {attributes}")
        };
        let mut add = |payload: String, cells: Cells| all.push((e.ts, e.cpu, payload, cells));
        match e.kind {
            EventKind::Switch { prev, left, next } => {
                let ((p, tid, comm), (n, next_tid, next_comm)) = (name(prev), name(next));
                let (word, state, reason) = match (prev, left) {
                    (None, _) => ("idle", None, None),
                    (_, EndState::Runnable) => ("yielding", Some("runnable"), None),
                    (_, EndState::Sleeping) => ("sleep", Some("sleeping"), Some("select")),
                    (_, EndState::Locked) => ("blocked", Some("waiting_lock"), Some("Giant, big: one")),
                    (_, EndState::Dead) => ("thread exit", None, None),
                };
                let p_prio = prev.map_or(255, |i| prio[i]);
                let attributes = format!("prio:{p_prio}, wmesg:\"select\", lockname:\"Giant, big: one\"");
                let kind = if word == "thread exit" { "exit" } else { "switch" };
                add(
                    thread(&p, &format!("state:\"{word}\""), attributes),
                    cells! { kind: kind, tid: tid, comm: comm.as_str(), prio: p_prio, state: state, reason: reason, next_tid: None::<i64> },
                );
                let n_prio = next.map_or(255, |i| prio[i]);
                add(
                    thread(&n, "state:\"running\"", format!("prio:{n_prio}")),
                    cells! { kind: "switch", tid: None::<i64>, next_tid: next_tid, next_comm: next_comm.as_str(), next_prio: n_prio },
                );
            }
            EventKind::Enqueue { by, task, .. } => {
                let ((b, by, _), (t, tid, comm)) = (name(by), name(Some(task)));
                add(
                    thread(&t, "state:\"runq add\"", format!("prio:{}, linkedto:\"{b}\"", prio[task])),
                    cells! { kind: "enqueue", tid: tid, comm: comm.as_str(), ctx_tid: by, prio: prio[task] },
                );
            }
            EventKind::Wakeup { waker, task, .. } => {
                let ((w, waker, _), (t, tid, _)) = (name(waker), name(Some(task)));
                add(
                    thread(&w, "point:\"wokeup\"", format!("linkedto:\"{t}\"")),
                    cells! { kind: "wakeup", tid: tid, ctx_tid: waker },
                );
            }
            EventKind::Prio { by, task, new, .. } => {
                let ((b, by, _), (t, tid, _)) = (name(by), name(Some(task)));
                let old = std::mem::replace(&mut prio[task], new);
                add(
                    thread(&t, "point:\"prio\"", format!("prio:{old}, new prio:{new}, linkedto:\"{b}\"")),
                    cells! { kind: "prio", tid: tid, ctx_tid: by, prio: old, value: new },
                );
            }
            EventKind::Load { target, tasks } => add(
                format!("KTRGRAPH group:\"load\", id:\"CPU {target} load\", counter:{tasks}, attributes: none"),
                cells! { kind: "load", target_cpu: target, value: tasks, tid: None::<i64> },
            ),
            EventKind::Dequeue { .. } | EventKind::Fork { .. } | EventKind::Exec { .. } | EventKind::Exit { .. } => {}
        }
    }
    all
}

fn write(variant: Variant, schedule: &Schedule) -> (String, Vec<Cells>) {
    let records = records(variant, schedule);
    let expected = records.iter().map(|(ts, cpu, _, cells)| {
        let mut cells = cells.clone();
        cells.extend(cells! { ts_ns: *ts, cpu: *cpu });
        cells
    });
    let expected = expected.collect();
    let mut lines: Vec<String> = Vec::new();
    for (i, (ts, cpu, payload, _)) in records.iter().enumerate() {
        lines.push(match variant {
            Variant::Schedgraph => format!("{cpu} {ts} {payload}"),
            // 2.5 cycles a ns, rounded up, so that the way back ends at the same ns.
            _ => format!("{i:5} {cpu:3} {:16} {payload}", (*ts * 5 + 1) / 2),
        });
    }
    if variant != Variant::Schedgraph {
        lines.reverse();
    }
    let header = "index  cpu timestamp        trace\n------ --- ---------------- -----\n";
    let head = if variant == Variant::Ktrdump { header } else { "" };
    (format!("{head}{}\n", lines.join("\n")), expected)
}

proptest! {
    #![proptest_config(schedule::config(200))]

    #[test]
    fn schedules_come_back(
        schedule in schedules(120),
        variant in prop_oneof![Just(Variant::Ktrdump), Just(Variant::Quiet), Just(Variant::Schedgraph)],
    ) {
        let (text, expected) = write(variant, &schedule);
        // One record alone does not say the direction, nor is an empty text a trace.
        prop_assume!(expected.len() > 1);
        let clock_hz = (variant != Variant::Schedgraph).then_some(2_500_000_000);
        let options = Options { clock_hz, ..Options::default() };
        let (mut out, format) = read_in_steps(text.as_bytes(), None, &options, 1000);
        prop_assert_eq!(format.expect("recognised"), "ktr");
        same(&out, &expected)?;
        prop_assert!(out.diagnostics.rows().is_empty(), "{:?}", out.diagnostics.rows());
        same_slices(&mut out, &schedule, |ts| ts)?;
    }
}

/// A CPU that ticks at 127 Hz on a 2.4 GHz counter, with ticks left out while idle: the estimate is
/// within 0.1 %.
#[test]
fn the_rate_is_estimated_from_statclock() {
    let period = 2_400_000_000i64 / 127;
    let mut lines = Vec::new();
    for i in 0..200i64 {
        if (60..70).contains(&i) || i % 13 == 0 {
            continue;
        }
        let jitter = (i * 7919) % 1000 - 500;
        let time = 1_000_000_000_000 + i * period + jitter;
        let line =
            "KTRGRAPH group:\"thread\", id:\"sh tid 100085\", point:\"statclock\", attributes: prio:120, stathz:127";
        lines.push(format!("{i} 0 {time} {line}"));
    }
    lines.reverse();
    let (out, format) = read(lines.join("\n").as_bytes(), None);
    assert_eq!(format.expect("recognised"), "ktr");
    let hz: f64 = out.meta.get("clock.hz").expect("a rate").parse().expect("a number");
    assert!((hz / 2.4e9 - 1.0).abs() < 0.001, "{hz}");
    assert_eq!(common::counts(&out)["tick"], lines.len() as i64);
    assert_eq!(out.meta.get("clock.unit"), Some("ns"));
}
