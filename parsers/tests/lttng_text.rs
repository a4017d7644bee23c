//! Known schedules written as babeltrace2 prints them, with each form of time, context and state,
//! and read back.

#![allow(clippy::disallowed_methods, reason = "tests see files; the crate itself does not")]

mod common;
mod schedule;

use common::read;
use proptest::prelude::*;
use schedule::{same, same_slices, schedules, Cells, EndState, EventKind, Schedule};

#[derive(Clone, Copy, Debug)]
struct Variant {
    /// 0 time of day, 1 seconds, 2 date.
    clock: u8,
    delta: bool,
    host: bool,
    context: bool,
    names: bool,
    crlf: bool,
}

/// Half a second before midnight: times of day pass it.
const MIDNIGHT: i64 = 86_400_000_000_000;
const START: i64 = MIDNIGHT - 500_000_000;
/// 2016-03-06 in days.
const DATE: i64 = 16_866;

fn stamp(variant: Variant, ts: i64) -> (String, i64) {
    let of_day = ts.rem_euclid(MIDNIGHT);
    let (s, ns) = (of_day / 1_000_000_000, of_day % 1_000_000_000);
    let clock = format!("{:02}:{:02}:{:02}.{ns:09}", s / 3600, s / 60 % 60, s % 60);
    let since_1970 = ts + DATE * MIDNIGHT;
    match variant.clock {
        0 => (clock, ts),
        1 => (format!("{}.{:09}", since_1970 / 1_000_000_000, since_1970 % 1_000_000_000), since_1970),
        _ => (format!("2016-03-{:02} {clock}", 6 + ts / MIDNIGHT), since_1970),
    }
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn write(variant: Variant, schedule: &Schedule) -> (String, Vec<Cells>) {
    let mut prio: Vec<i32> = schedule.tasks.iter().map(|t| t.prio + 60).collect();
    let base = schedule.events.first().map_or(0, |e| e.ts);
    let (mut text, mut expected) = (String::new(), Vec::new());
    let mut running = vec![None; schedule.cpus as usize];
    for e in &schedule.events {
        let who = |task: Option<usize>, prio: &[i32]| match task {
            Some(i) => (schedule.tasks[i].comm.to_owned(), schedule.tasks[i].tid, prio[i]),
            None => (format!("swapper/{}", e.cpu), 0, 120),
        };
        let (comm, tid, _) = who(running[e.cpu as usize], &prio);
        let context = format!(", {{ procname = {}, pid = {tid}, tid = {tid} }}", quote(&comm));
        let about = |i: usize, prio: &[i32]| {
            let (comm, tid, prio) = who(Some(i), prio);
            (format!("comm = {}, tid = {tid}, prio = {}", quote(&comm), prio - 100), tid, prio, comm)
        };
        let (name, payload, mut cells) = match e.kind {
            EventKind::Switch { prev, left, next } => {
                let ((p, p_tid, p_prio), (n, n_tid, n_prio)) = (who(prev, &prio), who(next, &prio));
                running[e.cpu as usize] = next;
                let (number, name, state) = match left {
                    EndState::Runnable => (2048, "TASK_STATE_MAX", "preempted"),
                    EndState::Sleeping => (1, "TASK_INTERRUPTIBLE", "sleeping"),
                    EndState::Locked => (2, "TASK_UNINTERRUPTIBLE", "blocked"),
                    EndState::Dead => (64, "TASK_DEAD", "dead"),
                };
                let state_text =
                    if variant.names { format!("( \"{name}\" : container = {number} )") } else { number.to_string() };
                let payload = format!(
                    "prev_comm = {}, prev_tid = {p_tid}, prev_prio = {}, prev_state = {state_text}, next_comm = {}, next_tid = {n_tid}, next_prio = {}",
                    quote(&p), p_prio - 100, quote(&n), n_prio - 100
                );
                let cells = cells! {
                    kind: "switch", tid: p_tid, comm: p.as_str(), prio: p_prio, next_tid: n_tid, next_comm: n.as_str(),
                    next_prio: n_prio, state: state
                };
                ("sched_switch", payload, cells)
            }
            EventKind::Wakeup { task, target, .. } => {
                let (text, tid, prio, _) = about(task, &prio);
                let cells = cells! { kind: "wakeup", tid: tid, prio: prio, target_cpu: target };
                ("sched_wakeup", format!("{text}, target_cpu = {target}"), cells)
            }
            EventKind::Fork { parent, child } => {
                let ((p, p_tid, _), (c, c_tid, _)) = (who(Some(parent), &prio), who(Some(child), &prio));
                let payload = format!(
                    "parent_comm = {}, parent_tid = {p_tid}, parent_pid = {p_tid}, child_comm = {}, child_tid = {c_tid}, _vtids_length = 1, vtids = [ [0] = {c_tid} ], child_pid = {c_tid}",
                    quote(&p), quote(&c)
                );
                let cells = cells! { kind: "fork", tid: c_tid, pid: c_tid, comm: c.as_str(), ctx_tid: p_tid };
                ("sched_process_fork", payload, cells)
            }
            EventKind::Exec { .. } => {
                let payload = format!("filename = \"/usr/bin/a, b\", tid = {tid}, old_tid = {tid}");
                (
                    "sched_process_exec",
                    payload,
                    cells! { kind: "exec", tid: tid, name: "/usr/bin/a, b", value: None::<i64> },
                )
            }
            EventKind::Exit { task } => {
                let (text, tid, prio, _) = about(task, &prio);
                ("sched_process_exit", text, cells! { kind: "exit", tid: tid, prio: prio })
            }
            EventKind::Prio { task, new, .. } => {
                let new = new + 60;
                let (_, tid, old, comm) = about(task, &prio);
                prio[task] = new;
                let payload =
                    format!("comm = {}, tid = {tid}, oldprio = {}, newprio = {}", quote(&comm), old - 100, new - 100);
                ("sched_pi_setprio", payload, cells! { kind: "prio", tid: tid, prio: old, value: new })
            }
            EventKind::Enqueue { task, target, .. } if task % 2 == 0 => {
                let payload = format!("irq = {target}, name = \"eth0\"");
                ("irq_handler_entry", payload, cells! { kind: "irq_entry", value: target, name: "eth0" })
            }
            _ => continue,
        };
        let (shown, ts) = stamp(variant, START + e.ts - base);
        let delta = match (variant.delta, expected.is_empty()) {
            (false, _) => "",
            (true, true) => "(+?.?????????) ",
            (true, false) => "(+0.000001868) ",
        };
        let host = if variant.host { "wilbrod " } else { "" };
        let context = if variant.context { context.as_str() } else { "" };
        let end = if variant.crlf { "\r\n" } else { "\n" };
        text += &format!("[{shown}] {delta}{host}{name}: {{ cpu_id = {} }}{context}, {{ {payload} }}{end}", e.cpu);
        cells.extend(cells! { ts_ns: ts, cpu: e.cpu, quality: 0 });
        if variant.context {
            cells.extend(cells! { ctx_tid: tid, ctx_pid: tid, ctx_comm: comm.as_str() });
        }
        expected.push(cells);
    }
    (text, expected)
}

fn variants() -> impl Strategy<Value = Variant> {
    (0u8..3, any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>())
        .prop_map(|(clock, delta, host, context, names, crlf)| Variant { clock, delta, host, context, names, crlf })
}

proptest! {
    #![proptest_config(schedule::config(200))]

    #[test]
    fn schedules_come_back(schedule in schedules(100), variant in variants()) {
        let (text, expected) = write(variant, &schedule);
        prop_assume!(!expected.is_empty());
        // The numbers of states identify the kernel only once one that is not in all tables was seen.
        let telling = variant.names || text.contains("prev_state = 2048");
        prop_assume!(telling || !text.contains("prev_state = 64"));
        let (mut out, format) = read(text.as_bytes(), None);
        prop_assert_eq!(format.expect("recognised"), "lttng-text");
        same(&out, &expected).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        let odd: Vec<_> = out.diagnostics.rows().iter().filter(|d| !matches!(d.code.as_str(), "missing-events" | "inferred")).collect();
        prop_assert!(odd.is_empty(), "{odd:?}");
        let first = schedule.events[0].ts;
        same_slices(&mut out, &schedule, |ts| stamp(variant, START + ts - first).1)?;
    }
}
