//! Known schedules written in the line protocol of the DTrace scripts, for each system and in each
//! order of lines, and read back without loss.

#![allow(clippy::disallowed_methods, reason = "tests see files; the crate itself does not")]

mod common;
mod schedule;

use std::collections::BTreeMap;

use common::read;
use proptest::prelude::*;
use schedule::{same, same_slices, schedules, Cells, EndState, Event, EventKind, Schedule};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Os {
    Illumos,
    FreeBsd,
    Macos,
}

/// Writes lines, and what they must become.
struct Writer<'a> {
    os: Os,
    schedule: &'a Schedule,
    prio: Vec<i32>,
    kernel: BTreeMap<usize, i64>,
    running: Vec<Option<usize>>,
}

/// A thread as the line prints it, and as the tables name it.
struct Who {
    pid: Option<i64>,
    tid: i64,
    printed: String,
    comm: Option<&'static str>,
    prio: i32,
}

impl<'a> Writer<'a> {
    fn new(os: Os, schedule: &'a Schedule) -> Self {
        let prio = schedule.tasks.iter().map(|t| t.prio).collect();
        Writer { os, schedule, prio, kernel: BTreeMap::new(), running: vec![None; schedule.cpus as usize] }
    }

    fn idle_prio(&self) -> i32 {
        match self.os {
            Os::Illumos => -1,
            Os::FreeBsd => 255,
            Os::Macos => 0,
        }
    }

    /// pid, tid, address and priority of a task; on illumos LWP numbers repeat and kernel threads have pid 0.
    fn who(&mut self, task: Option<usize>, cpu: i32) -> Who {
        let Some(i) = task else {
            let (pid, lwp) = match self.os {
                Os::Illumos => (0, 0),
                Os::FreeBsd => (11, 100_003 + i64::from(cpu)),
                Os::Macos => (0, 100_003 + i64::from(cpu)),
            };
            let prio = self.idle_prio();
            let printed = format!("{pid}\t{lwp}\t0x{:x}\t{prio}", 0xff00_0000u64 + cpu as u64);
            return Who { pid: Some(pid), tid: 0, printed, comm: Some("idle"), prio };
        };
        let t = &self.schedule.tasks[i];
        let prio = self.prio[i];
        let address = 0xffff_fe00_0000_0000u64 + 0x400 * i as u64;
        let (pid, lwp, tid) = match (self.os, i % 4) {
            (Os::Illumos, 3) => {
                let next = 1_000_000_000_001 + self.kernel.len() as i64;
                (0, 0, *self.kernel.entry(i).or_insert(next))
            }
            (Os::Illumos, 2) => (t.pid, 5, t.pid * 1_000_000 + 5),
            (Os::Illumos, _) => (t.pid, 1, t.pid),
            _ => (t.pid, t.tid, t.tid),
        };
        Who { pid: Some(pid), tid, printed: format!("{pid}\t{lwp}\t0x{address:x}\t{prio}"), comm: Some(t.comm), prio }
    }

    /// The subject as macOS prints it for off-cpu and wakeup: thread only.
    fn subject(&mut self, task: Option<usize>, cpu: i32) -> Who {
        let mut who = self.who(task, cpu);
        if self.os == Os::Macos {
            let lwp = who.printed.split('\t').nth(1).expect("tid").to_owned();
            who.printed = format!("-\t{lwp}\t-\t{}", who.prio);
            (who.pid, who.comm) = (None, None);
        }
        who
    }

    fn line(e: &Event, event: &str, current: &Who, subject: Option<&Who>, xyz: [String; 3]) -> String {
        let nobody = "-\t-\t-\t-".to_owned();
        let [x, y, z] = xyz;
        format!(
            "T1\t{}\t{}\t{event}\t{}\t{}\t{x}\t{y}\t{z}\t{}\t{}",
            e.ts,
            e.cpu,
            current.printed,
            subject.map_or(&nobody, |s| &s.printed),
            current.comm.unwrap_or("-"),
            subject.and_then(|s| s.comm).unwrap_or("-"),
        )
    }

    /// State columns of `off` and what they mean.
    fn state(&self, left: EndState, leaves: bool, enters: bool) -> ([String; 3], &'static str, Option<&'static str>) {
        let flags = i32::from(leaves) + 2 * i32::from(enters);
        let text = |x: i32, y: i32, z: &str| [x.to_string(), y.to_string(), z.to_owned()];
        match (self.os, left) {
            (Os::Illumos, EndState::Runnable) => (text(0, 0, "R"), "runnable", None),
            (Os::Illumos, EndState::Sleeping) => (text(3, 4, "S"), "sleeping", Some("cv")),
            (Os::Illumos, EndState::Locked) => (text(1, 0, "S"), "waiting_lock", Some("mutex")),
            (Os::Illumos, EndState::Dead) => (text(0, 0, "Z"), "zombie", None),
            (Os::FreeBsd, EndState::Runnable) => (text(flags, 0x300, "-"), "runnable", None),
            (Os::FreeBsd, EndState::Sleeping) => (text(flags, 0x202, "select"), "sleeping", Some("select")),
            (Os::FreeBsd, EndState::Locked) => (text(flags, 0x208, "Giant"), "waiting_lock", Some("Giant")),
            (Os::FreeBsd, EndState::Dead) => (text(flags, 0x100, "-"), "dead", None),
            (Os::Macos, EndState::Runnable) => (text(flags, 0x04, "-"), "runnable", None),
            (Os::Macos, EndState::Sleeping) => (text(flags, 0x05, "-"), "sleeping", None),
            (Os::Macos, EndState::Locked) => (text(flags, 0x0d, "-"), "blocked", None),
            (Os::Macos, EndState::Dead) => (text(flags, 0x14, "-"), "dead", None),
        }
    }

    /// The lines of an event with the rows they become; none where the system has no such probe.
    fn write(&mut self, e: &Event) -> Vec<(i64, String, Cells)> {
        let plain = || ["-".to_owned(), "-".to_owned(), "-".to_owned()];
        let x = |n: i32| [n.to_string(), "-".to_owned(), "-".to_owned()];
        let illumos = self.os == Os::Illumos;
        let (line, mut cells) = match e.kind {
            EventKind::Switch { prev, left, next } => {
                self.running[e.cpu as usize] = next;
                let (p, n) = (self.who(prev, e.cpu), self.subject(next, e.cpu));
                let (xyz, state, reason) = self.state(left, prev.is_none(), next.is_none());
                let line = Self::line(e, "off", &p, Some(&n), xyz);
                let cells = cells! {
                    kind: "switch", tid: p.tid, pid: p.pid, comm: p.comm, prio: p.prio, next_tid: n.tid, next_pid: n.pid,
                    next_comm: n.comm, next_prio: n.prio, state: state, reason: reason, ctx_tid: p.tid
                };
                (line, cells)
            }
            EventKind::Wakeup { waker, task, .. } => {
                let (w, t) = (self.who(waker, e.cpu), self.subject(Some(task), e.cpu));
                let mut xyz = plain();
                xyz[2] = if illumos { "TS" } else { "-" }.to_owned();
                let class = illumos.then_some("TS");
                let line = Self::line(e, "wak", &w, Some(&t), xyz);
                let cells =
                    cells! { kind: "wakeup", ctx_tid: w.tid, tid: t.tid, pid: t.pid, comm: t.comm, class: class };
                (line, cells)
            }
            EventKind::Enqueue { by, task, target } | EventKind::Dequeue { by, task, target }
                if self.os != Os::Macos =>
            {
                let (b, t) = (self.who(by, e.cpu), self.who(Some(task), e.cpu));
                let enqueue = matches!(e.kind, EventKind::Enqueue { .. });
                let (event, kind) = if enqueue { ("enq", "enqueue") } else { ("deq", "dequeue") };
                let target = illumos.then_some(target);
                let xyz = x(target.unwrap_or(-1));
                let line = Self::line(e, event, &b, Some(&t), xyz);
                (line, cells! { kind: kind, ctx_tid: b.tid, tid: t.tid, target_cpu: target, prio: t.prio })
            }
            EventKind::Fork { parent, child } => {
                let (p, c) = (self.who(Some(parent), e.cpu), self.who(Some(child), e.cpu));
                let line = Self::line(e, "lwc", &p, Some(&c), plain());
                (line, cells! { kind: "fork", ctx_tid: p.tid, ctx_pid: p.pid, tid: c.tid, pid: c.pid, comm: c.comm })
            }
            EventKind::Exec { task } => {
                let t = self.who(Some(task), e.cpu);
                let line = Self::line(e, "exe", &t, None, ["-".into(), "-".into(), "/usr/bin/a b".into()]);
                (line, cells! { kind: "exec", tid: t.tid, comm: t.comm, name: "/usr/bin/a b" })
            }
            EventKind::Exit { task } => {
                let t = self.who(Some(task), e.cpu);
                (Self::line(e, "xit", &t, None, x(2)), cells! { kind: "exit", tid: t.tid, pid: t.pid, value: 2 })
            }
            EventKind::Prio { by, task, new, .. } if self.os != Os::Macos => {
                let (b, t) = (self.who(by, e.cpu), self.who(Some(task), e.cpu));
                self.prio[task] = new;
                let line = Self::line(e, "pri", &b, Some(&t), x(new));
                (line, cells! { kind: "prio", ctx_tid: b.tid, tid: t.tid, prio: t.prio, value: new })
            }
            EventKind::Load { target, tasks } if self.os == Os::FreeBsd => {
                let current = self.who(self.running[e.cpu as usize], e.cpu);
                let line = Self::line(e, "ld", &current, None, [target.to_string(), tasks.to_string(), "-".into()]);
                (line, cells! { kind: "load", tid: None::<i64>, target_cpu: target, value: tasks })
            }
            _ => return Vec::new(),
        };
        cells.push(("ts_ns", e.ts.to_string()));
        cells.push(("cpu", e.cpu.to_string()));
        cells.push(("quality", "0".to_owned()));
        vec![(e.ts, line, cells)]
    }
}

/// The whole file: in order of time as with `-x temporal`, or CPU after CPU in each switch interval
/// of 100 ms.
fn write(os: Os, schedule: &Schedule, temporal: bool) -> (Vec<u8>, Vec<Cells>) {
    let mut writer = Writer::new(os, schedule);
    let written: Vec<_> =
        schedule.events.iter().flat_map(|e| writer.write(e).into_iter().map(|w| (e.cpu, w))).collect();
    let first = schedule.events.first().map_or(0, |e| e.ts) - 1;
    let last = schedule.events.last().map_or(0, |e| e.ts) + 1;
    let (name, key) = match os {
        Os::Illumos => ("illumos", "addr"),
        Os::FreeBsd => ("freebsd", "tid"),
        Os::Macos => ("macos", "tid"),
    };
    let wall = 1_700_000_000_000_000_000i64;
    let mut expected = vec![cells! { kind: "trace_on", ts_ns: first, value: wall }];
    // (interval, cpu, time, line): one sort gives either order; marks go to the block of CPU 0, as
    // they fire there.
    let mut lines: Vec<(i64, i32, i64, String)> = Vec::new();
    let interval = |ts: i64| if temporal { 0 } else { (ts - first) / 100_000_000 };
    let block = |cpu: i32| if temporal { 0 } else { cpu };
    let mut rows: Vec<(i64, Cells)> = Vec::new();
    for (cpu, (ts, line, cells)) in written {
        lines.push((interval(ts), block(cpu), ts, line));
        rows.push((ts, cells));
    }
    let mut mark = first + 1_000_000_000;
    while mark < last {
        while schedule.events.iter().any(|e| e.ts == mark) {
            mark += 1;
        }
        lines.push((interval(mark), block(0), mark, format!("#TKT\t{mark}\t{}", wall + mark)));
        rows.push((mark, cells! { kind: "clock_sync", ts_ns: mark, value: wall + mark }));
        mark += 1_000_000_000;
    }
    lines.sort();
    rows.sort_by_key(|(ts, _)| *ts);
    expected.extend(rows.into_iter().map(|(_, cells)| cells));
    expected.push(cells! { kind: "trace_off", ts_ns: last, value: wall + last });
    let mut text = format!("#TKD\t1\t{name}\t{first}\t{wall}\t{key}\n#TKP\ton,off,wak\n");
    for (.., line) in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text.push_str(&format!("#TKE\t{last}\t{}\n", wall + last));
    (text.into_bytes(), expected)
}

proptest! {
    #![proptest_config(schedule::config(200))]

    #[test]
    fn schedules_come_back(
        schedule in schedules(120),
        os in prop_oneof![Just(Os::Illumos), Just(Os::FreeBsd), Just(Os::Macos)],
        temporal in any::<bool>(),
    ) {
        let (text, expected) = write(os, &schedule, temporal);
        let (mut out, format) = read(&text, None);
        prop_assert_eq!(format.expect("recognised"), "dtrace-tkd");
        same(&out, &expected)?;
        if os != Os::Illumos {
            // On illumos numbers of threads are made anew; there rows alone are compared.
            same_slices(&mut out, &schedule, |ts| ts)?;
        }
        prop_assert!(out.diagnostics.rows().iter().all(|d| d.code.as_str() == "reordered"), "{:?}", out.diagnostics.rows());
    }
}

/// Drops become a loss from the last record before the message to the first record two intervals later.
#[test]
fn drops_become_losses() {
    let on = |ts: i64, cpu: i32| format!("T1\t{ts}\t{cpu}\ton\t5\t100007\t0x1\t120\t-\t-\t-\t-\t0\t-\t-\tsh\t-\n");
    let mut text = "#TKD\t1\tfreebsd\t0\t0\ttid\n".to_owned();
    text += &(on(1_000, 0) + &on(2_000, 1));
    text += "dtrace: 3 drops on CPU 0\ndtrace: 2 drops on CPU 0\n";
    text += &(on(100_000_000, 0) + &on(300_000_000, 0) + &on(400_000_000, 1));
    text += "dtrace: 7 drops on CPU 1\n#TKE\t500000000\t0\n";
    let (out, format) = read(text.as_bytes(), None);
    assert_eq!(format.expect("recognised"), "dtrace-tkd");
    let loss = |i| common::row(&out.losses, &out.strings, i);
    assert_eq!((loss(0)["cpu"].as_str(), loss(0)["count"].as_str()), ("0", "5"));
    assert_eq!((loss(0)["ts_from_ns"].as_str(), loss(0)["ts_to_ns"].as_str()), ("1000", "300000000"));
    assert_eq!((loss(1)["cpu"].as_str(), loss(1)["count"].as_str()), ("1", "7"));
    assert!(!loss(1).contains_key("ts_to_ns"));
    assert_eq!(common::counts(&out)["lost"], 2);
    assert_eq!(out.meta.get("loss.total"), Some("12"));
}

/// Standard error merged into buffered output cuts a line in two; both halves are put together again.
#[test]
fn a_line_cut_by_a_message_is_joined() {
    let text = "#TKD\t1\tfreebsd\t0\t0\ttid\n#TKP\ton\nT1\t10\t0\ton\t5\t10000dtrace: 4 drops on CPU 0\n\
                7\t0x1\t120\t-\t-\t-\t-\t0\t-\t-\tsh\t-\n#TKE\t20\t0\n";
    let (out, _) = read(text.as_bytes(), None);
    let row = common::row(&out.events, &out.strings, 2);
    assert_eq!((row["kind"].as_str(), row["tid"].as_str(), row["comm"].as_str()), ("resume", "100007", "sh"));
    assert_eq!(out.meta.get("parse.unparsed"), Some("0"));
    assert_eq!(out.meta.get("loss.total"), Some("4"));
}
