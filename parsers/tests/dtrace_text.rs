//! Known schedules printed by imagined scripts, plain and with `-q` and `-F`, and read back by a
//! pattern; random histograms printed as DTrace prints aggregations.

#![allow(clippy::disallowed_methods, reason = "tests see files; the crate itself does not")]

mod common;
mod schedule;

use common::{read, read_in_steps, row};
use proptest::prelude::*;
use schedule::{same, schedules, Cells, EndState, EventKind, Schedule};
use tracekit_parsers::Options;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Plain,
    Quiet,
    Flow,
}

const PATTERN: &str = "off-cpu={ts_us}: {comm}/{tid} {prio} {state} -> {next_comm}/{next_tid} {next_prio}\n\
    wakeup={ts_us}: {ctx_tid} wakes {comm}/{tid} || enqueue={ts_us}: {tid} on {target_cpu}\n\
    exit={ts_us}: {tid} ends || {ts_us}: {_} {tid}";
const QUIET: &str = "{ts_us} c{cpu} {probe} {comm}/{tid} {prio} {state} -> {next_comm}/{next_tid} {next_prio}\n\
    {ts_us} c{cpu} {probe} {ctx_tid} wakes {comm}/{tid} || {ts_us} c{cpu} {probe} {tid} on {target_cpu}\n\
    {ts_us} c{cpu} {probe} {tid} ends || {ts_us} c{cpu} {probe} {_} {tid}";

fn write(variant: Variant, schedule: &Schedule) -> (String, Vec<Cells>) {
    let mut lines: Vec<(i64, i32, String)> = Vec::new();
    let mut rows: Vec<(i64, Cells)> = Vec::new();
    let first = schedule.events.first().map_or(0, |e| e.ts);
    for e in &schedule.events {
        let who = |task: Option<usize>| match task {
            Some(i) => (schedule.tasks[i].comm, schedule.tasks[i].tid, schedule.tasks[i].prio),
            None => ("sched", 0, -1),
        };
        let (probe, function, text, mut cells) = match e.kind {
            EventKind::Switch { prev, left, next } => {
                let ((p, p_tid, p_prio), (n, n_tid, n_prio)) = (who(prev), who(next));
                let (letter, state) = match left {
                    EndState::Runnable => ("R", "runnable"),
                    EndState::Sleeping => ("S", "sleeping"),
                    EndState::Locked => ("waiting_lock", "waiting_lock"),
                    EndState::Dead => ("Z", "zombie"),
                };
                let text = format!("{p}/{p_tid} {p_prio} {letter} -> {n}/{n_tid} {n_prio}");
                let cells = cells! {
                    kind: "switch", comm: p, tid: p_tid, prio: p_prio, state: state, next_comm: n, next_tid: n_tid,
                    next_prio: n_prio
                };
                ("off-cpu", "swtch", text, cells)
            }
            EventKind::Wakeup { waker, task, .. } => {
                let ((_, w, _), (c, t, _)) = (who(waker), who(Some(task)));
                let cells = cells! { kind: "wakeup", ctx_tid: w, comm: c, tid: t };
                ("wakeup", "cv_signal", format!("{w} wakes {c}/{t}"), cells)
            }
            EventKind::Enqueue { task, target, .. } => {
                let tid = who(Some(task)).1;
                let cells = cells! { kind: "enqueue", tid: tid, target_cpu: target };
                ("enqueue", "setbackdq", format!("{tid} on {target}"), cells)
            }
            EventKind::Exit { task } => {
                let tid = who(Some(task)).1;
                ("exit", "proc_exit", format!("{tid} ends"), cells! { kind: "exit", tid: tid })
            }
            EventKind::Exec { task } => {
                let tid = who(Some(task)).1;
                ("entry", "elfexec", format!("see {tid}"), cells! { kind: "other", tid: tid })
            }
            _ => continue,
        };
        // Names that look like the text between fields cannot be distinguished from it.
        if variant != Variant::Flow && text.contains("tid=9") {
            // `x pid=7 tid=9` holds blanks and signs only: it must come through.
            assert!(text.contains("x pid=7 tid=9"));
        }
        let time = format!("{}.{:03}", e.ts / 1000, e.ts % 1000);
        let line = match variant {
            Variant::Plain => format!("{:3} {:6} {:>33} {time}: {text}", e.cpu, 3297, format!("{function}:{probe}")),
            Variant::Flow => format!("{:3}  | {function}:{probe:<30} {time}: {text}", e.cpu),
            Variant::Quiet => format!("{time}   c{} {probe} {text}", e.cpu),
        };
        cells.extend(cells! { ts_ns: e.ts, cpu: e.cpu, quality: 0 });
        lines.push(((e.ts - first) / 1_000_000_000, e.cpu, line));
        rows.push((e.ts, cells));
    }
    // Switch intervals of a second, CPU after CPU.
    lines.sort_by_key(|(interval, cpu, _)| (*interval, *cpu));
    rows.sort_by_key(|(ts, _)| *ts);
    let heading = match variant {
        Variant::Plain => "dtrace: script 'x.d' matched 5 probes\nCPU     ID                    FUNCTION:NAME\n",
        Variant::Flow => "dtrace: script 'x.d' matched 5 probes\nCPU FUNCTION\n",
        Variant::Quiet => "",
    };
    let body: Vec<_> = lines.into_iter().map(|l| l.2).collect();
    (format!("{heading}{}\n", body.join("\n")), rows.into_iter().map(|r| r.1).collect())
}

proptest! {
    #![proptest_config(schedule::config(200))]

    #[test]
    fn schedules_come_back(
        schedule in schedules(100),
        variant in prop_oneof![Just(Variant::Plain), Just(Variant::Quiet), Just(Variant::Flow)],
    ) {
        let (text, expected) = write(variant, &schedule);
        let pattern = if variant == Variant::Quiet { QUIET } else { PATTERN };
        let options = Options { pattern: Some(pattern.to_owned()), ..Options::default() };
        let named = (variant == Variant::Quiet).then_some("dtrace-text");
        let (out, format) = read_in_steps(text.as_bytes(), named, &options, 100);
        prop_assert_eq!(format.expect("recognised"), "dtrace-text");
        same(&out, &expected).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        let odd = out.diagnostics.rows().iter().filter(|d| !matches!(d.code.as_str(), "reordered" | "missing-events"));
        prop_assert_eq!(odd.count(), 0);
    }

    #[test]
    fn histograms_come_back(
        blocks in prop::collection::vec((any::<bool>(), -4i64..40, prop::collection::vec(0i64..1_000_000, 2..9)), 1..6),
        blank in any::<bool>(),
        indent in 0usize..6,
    ) {
        let mut text = "dtrace: description 'sched:::on-cpu ' matched 3 probes\n^C\n\n".to_owned();
        let mut expected: Vec<(String, Option<i64>, Option<i64>, i64)> = Vec::new();
        for (i, (powers, from, counts)) in blocks.iter().enumerate() {
            let key = format!("CPU {i}");
            text += &format!("{}{key}\n{}", " ".repeat(8), if blank { "\n" } else { "" });
            text += "           value  ------------- Distribution ------------- count    \n";
            let total = counts.iter().sum::<i64>().max(1);
            for (j, count) in counts.iter().enumerate() {
                let j = j as i64;
                // Powers of two from 2^from on; else steps of 10 with open ends.
                let (label, lo, hi) = if *powers {
                    let v = 1i64 << (from.unsigned_abs() % 30 + j as u64);
                    (v.to_string(), Some(v), Some(2 * v))
                } else if j == 0 {
                    (format!("< {}", from * 10), None, Some(from * 10))
                } else if j + 1 == counts.len() as i64 {
                    let v = (from + j - 1) * 10;
                    (format!(">= {v}"), Some(v), None)
                } else {
                    let v = (from + j - 1) * 10;
                    (v.to_string(), Some(v), Some(v + 10))
                };
                let bar = "@".repeat((40 * count / total) as usize);
                text += &format!("{label:>16} |{bar:<40} {count:<9}\n");
                expected.push((key.clone(), lo, hi, *count));
            }
            text += "\n";
        }
        let text: String = text.lines().map(|l| format!("{}{l}\n", " ".repeat(if l.is_empty() { 0 } else { indent }))).collect();
        let (out, format) = read(text.as_bytes(), None);
        prop_assert_eq!(format.expect("recognised"), "dtrace-agg");
        for (i, (key, lo, hi, count)) in expected.iter().enumerate() {
            let cells = row(&out.histograms, &out.strings, i);
            let number = |name: &str| cells.get(name).map(|v| v.parse::<i64>().expect("a number"));
            prop_assert_eq!(cells.get("key"), Some(key));
            prop_assert_eq!(cells.get("title").map(String::as_str), Some("sched:::on-cpu"));
            prop_assert_eq!((number("lo"), number("hi"), number("count")), (*lo, *hi, Some(*count)), "{}", text);
        }
        prop_assert_eq!(common::counts(&out)["histograms"], expected.len() as i64);
    }
}
