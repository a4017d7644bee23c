//! Known schedules written as AIX trace reports in every layout, and read back.

#![allow(clippy::disallowed_methods, reason = "tests see files; the crate itself does not")]

mod common;
mod schedule;

use std::collections::BTreeMap;

use common::read;
use proptest::prelude::*;
use schedule::{same, same_slices, schedules, Cells, EndState, Event, EventKind, Schedule};

/// A layout of `trcrpt -O`.
#[derive(Clone, Copy, Debug)]
struct Layout {
    ids: bool,
    exec: bool,
    cpu: bool,
    pid: bool,
    tid: bool,
    svc: bool,
    two_lines: bool,
    /// `timestamp=`: 0 ns with a point, 1 microseconds with a point, 2 as 0 in microseconds, 3
    /// whole microseconds.
    time: u8,
    /// Runs of blanks became one, as on web pages.
    collapsed: bool,
    /// Lines are cut at this many bytes beyond the columns.
    wrap: Option<usize>,
    /// Lines a page; each begins with the header.
    page: Option<usize>,
    purr: bool,
}

fn layouts() -> impl Strategy<Value = Layout> {
    let flags = prop::array::uniform9(any::<bool>());
    (flags, 0u8..4, prop::option::of(25usize..60), prop::option::of(3usize..9)).prop_map(|(f, time, wrap, page)| {
        let collapsed = f[7] && f[0];
        let time = if collapsed && time == 3 { 1 } else { time };
        let two_lines = f[6] && !collapsed;
        // Whole numbers without hook numbers: a wrapped line that begins with a number looks like a record.
        let wrap = wrap.filter(|_| !collapsed && !two_lines && (time != 3 || f[0]));
        let [ids, exec, cpu, pid, tid, svc, ..] = f;
        // Without blanks, numbers are what ends a name of several words.
        let tid = tid || collapsed;
        Layout { ids, exec, cpu, pid, tid, svc, two_lines, time, collapsed, wrap, page, purr: f[8] }
    })
}

impl Layout {
    /// The header's part before the levels; each name is as wide as its column.
    fn columns(&self) -> String {
        let mut head = String::new();
        let mut add = |on: bool, text: &str| {
            if on {
                head.push_str(text);
            }
        };
        add(self.ids, "ID   ");
        add(self.exec, "PROCESS NAME     ");
        add(self.cpu, "CPU ");
        add(self.pid, "PID       ");
        add(self.tid, "TID        ");
        add(self.exec || self.pid, "I ");
        add(self.svc, "SYSTEM CALL  ");
        add(true, if matches!(self.time, 0 | 2) { "ELAPSED_SEC     " } else { "ELAPSED         " });
        add(matches!(self.time, 0 | 2), "DELTA_MSEC   ");
        add(self.purr && self.time == 0, "PURR         ");
        head
    }

    fn header(&self) -> String {
        let levels = "APPL    SYSCALL KERNEL  INTERRUPT";
        let between = if self.two_lines { "\n" } else { "" };
        self.squeeze(format!("{}{between}{levels}\n", self.columns()))
    }

    fn squeeze(&self, text: String) -> String {
        if !self.collapsed {
            return text;
        }
        let lines = text.lines().map(|l| l.split(' ').filter(|w| !w.is_empty()).collect::<Vec<_>>().join(" ") + "\n");
        lines.collect()
    }
}

/// Writes reports, and what they must become.
struct Writer<'a> {
    layout: Layout,
    schedule: &'a Schedule,
    prio: Vec<i32>,
    start: i64,
    last: i64,
    ran_on: BTreeMap<i64, i32>,
    records: Vec<(String, Cells)>,
}

/// A thread as the report knows it.
struct Who {
    tid: i64,
    pid: i64,
    comm: &'static str,
    prio: i32,
}

impl Writer<'_> {
    fn who(&self, task: Option<usize>, cpu: i32) -> Who {
        match task {
            None => Who { tid: 517 + 256 * i64::from(cpu), pid: 516 + 256 * i64::from(cpu), comm: "wait", prio: 255 },
            Some(i) => {
                let t = &self.schedule.tasks[i];
                Who { tid: t.tid, pid: t.pid, comm: t.comm, prio: self.prio[i] }
            }
        }
    }

    /// One record: hook, payload, level, and the cells besides those of the columns.
    fn record(&mut self, e: &Event, current: &Who, hook: &str, text: &str, level: usize, cells: Cells) {
        let l = self.layout;
        let elapsed = e.ts - self.start;
        let delta = elapsed - self.last;
        self.last = elapsed;
        let shown = if l.time == 0 { elapsed } else { elapsed / 1000 * 1000 };
        let mut line = String::new();
        if l.ids {
            line += &format!("{hook:<5}");
        }
        if l.exec {
            line += &format!("{:<17.16}", current.comm);
        }
        if l.cpu {
            line += &format!("{:<4}", e.cpu);
        }
        if l.pid {
            line += &format!("{:<10}", current.pid);
        }
        if l.tid {
            line += &format!("{:<11}", current.tid);
        }
        if l.exec || l.pid {
            line += "  ";
        }
        if l.svc {
            line += &format!("{:<13}", if e.ts % 2 == 0 { "kfork" } else { "" });
        }
        line += &match l.time {
            0 => format!("{:>14}  {:>12}.{:06} ", seconds(shown, 9), delta / 1_000_000, delta % 1_000_000),
            1 => format!("{:>14}  ", seconds(shown, 6)),
            2 => format!("{:>14}  {:>8}.{:03} ", seconds(shown, 6), delta / 1_000_000, delta / 1000 % 1000),
            _ => format!("{:>14}  ", shown / 1000),
        };
        if l.purr && l.time == 0 {
            line += if e.ts % 3 == 0 { "*" } else { "0.001000" };
        }
        let at = l.columns().len();
        line = format!("{line:<at$}");
        let line = self.finish(line, text, level, at);
        let mut all = cells;
        all.extend(cells! { ts_ns: shown });
        self.cells_of_columns(e, current, level, hook, &mut all);
        self.records.push((line, all));
    }

    /// The payload behind or below the columns, wrapped if the layout says so.
    fn finish(&self, line: String, text: &str, level: usize, at: usize) -> String {
        let l = self.layout;
        let indent = " ".repeat(8 * level);
        if l.two_lines {
            return format!("{}\n{indent}{text}\n", line.trim_end());
        }
        let whole = format!("{line}{indent}{text}");
        let Some(wrap) = l.wrap.map(|w| (at + 24 + w).max(80)) else { return l.squeeze(whole + "\n") };
        let mut out = String::new();
        let mut rest = whole.as_str();
        while rest.len() > wrap {
            let (first, after) = rest.split_at(wrap);
            out += &(first.to_owned() + "\n");
            rest = after;
        }
        out + rest + "\n"
    }

    fn cells_of_columns(&mut self, e: &Event, current: &Who, level: usize, hook: &str, cells: &mut Cells) {
        let l = self.layout;
        let dispatch = matches!(hook, "106" | "10C");
        let inferred = l.tid.then(|| self.ran_on.get(&current.tid).copied()).flatten();
        let cpu = if l.cpu || dispatch { Some(e.cpu) } else { inferred };
        cells.extend(cells! {
            cpu: cpu,
            ctx_tid: l.tid.then_some(current.tid),
            ctx_pid: l.pid.then_some(current.pid),
            ctx_comm: l.exec.then_some(current.comm),
        });
        let placed = !l.collapsed && !l.two_lines;
        cells.extend(cells! { irq_flags: (placed && level == 3).then_some(16) });
        let guessed = !l.cpu && !dispatch && inferred.is_some();
        cells.extend(cells! { quality: if guessed { 128 } else { 0 } });
    }

    fn event(&mut self, e: &Event, running: Option<usize>) {
        let current = self.who(running, e.cpu);
        match e.kind {
            EventKind::Switch { prev, left, next } => self.switch(e, &current, prev, left, next),
            EventKind::Wakeup { waker, task, .. } => {
                let t = self.who(Some(task), e.cpu);
                let text = format!("e_clear_wait: tid={} anchor=F10001 result=0 lr=1234", t.tid);
                let cells = cells! { kind: "wakeup", tid: t.tid, reason: "F10001" };
                self.record(e, &current, "461", &text, if waker.is_none() { 3 } else { 2 }, cells);
            }
            EventKind::Enqueue { task, .. } => {
                let t = self.who(Some(task), e.cpu);
                let policy = ["0", "1", "2"][task % 3];
                let class = ["OTHER", "FIFO", "RR"][task % 3];
                let text = format!(
                    "setrq: cmd={} pid={} tid={} priority={} policy={policy} rq=3",
                    t.comm, t.pid, t.tid, t.prio
                );
                let cells = cells! { kind: "enqueue", tid: t.tid, pid: t.pid, comm: t.comm, prio: t.prio, class: class, value: 3 };
                self.record(e, &current, "11F", &text, 2, cells);
            }
            EventKind::Fork { child, .. } => {
                let c = self.who(Some(child), e.cpu);
                let text = format!("fork: pid={} tid={}", c.pid, c.tid);
                self.record(e, &current, "139", &text, 2, cells! { kind: "fork", tid: c.tid, pid: c.pid });
            }
            EventKind::Exec { .. } => {
                let text = format!("exec: cmd=/usr/bin/cp -p tid=1 b pid={} tid={}", current.pid, current.tid);
                let cells = cells! { kind: "exec", tid: current.tid, pid: current.pid, comm: "cp", name: "/usr/bin/cp -p tid=1 b" };
                self.record(e, &current, "134", &text, 1, cells);
            }
            EventKind::Exit { .. } if self.layout.tid || self.layout.pid => {
                let (tid, pid) = (self.layout.tid.then_some(current.tid), self.layout.pid.then_some(current.pid));
                let cells = cells! { kind: "exit", tid: tid, pid: pid, value: 256 };
                self.record(e, &current, "135", "exit: wait_status=256 lock_status=0", 1, cells);
            }
            EventKind::Prio { task, new, .. } => {
                let t = self.who(Some(task), e.cpu);
                self.prio[task] = new;
                let text = format!("thread_setsched: pid={} tid={} priority={new} policy=1", t.pid, t.tid);
                if self.layout.ids {
                    let cells = cells! { kind: "prio", tid: t.tid, pid: t.pid, value: new, class: "FIFO" };
                    self.record(e, &current, "46B", &text, 1, cells);
                }
            }
            EventKind::Load { target: 0, .. } => {
                let text = "VMM page delete:      V.S=0000.150E ppage=1F7F";
                let first = if self.layout.ids { "1B1" } else { "VMM" };
                let raw = format!("{text} delete_in_progress process_private");
                let squeezed = raw.split(' ').filter(|w| !w.is_empty()).collect::<Vec<_>>().join(" ");
                let raw = if self.layout.collapsed { squeezed } else { raw };
                self.record(e, &current, "1B1", text, 2, cells! { kind: "other", name: first, raw: raw.as_str() });
                let last = self.records.last_mut().expect("just added");
                last.0 += &format!("{}delete_in_progress process_private\n", " ".repeat(90));
            }
            _ => {}
        }
    }

    fn switch(&mut self, e: &Event, current: &Who, prev: Option<usize>, left: EndState, next: Option<usize>) {
        let (p, n) = (self.who(prev, e.cpu), self.who(next, e.cpu));
        match (prev, left) {
            (Some(_), EndState::Sleeping) => {
                let text = format!("e_block_thread: tid={} anchor=F1000200 t_flags=0 lr=99", p.tid);
                self.record(e, current, "462", &text, 2, cells! { kind: "sleep", tid: p.tid, reason: "F1000200" });
            }
            (Some(_), EndState::Locked) if self.layout.ids => {
                let text = format!("wait on lock: pid={} tid={} lock=F1000300", p.pid, p.tid);
                self.record(e, current, "46D", &text, 2, cells! { kind: "lock_wait", tid: p.tid, reason: "F1000300" });
            }
            _ => {}
        }
        let tail = format!(
            "pid={} tid={} priority={} old_tid={} old_priority={} CPUID={}",
            n.pid, n.tid, n.prio, p.tid, p.prio, e.cpu
        );
        let (hook, text) = match next {
            None => ("10C", format!("dispatch: idle process {tail}")),
            Some(_) => ("106", format!("dispatch: cmd={} {tail}", n.comm)),
        };
        let cells = cells! {
            kind: "switch", tid: p.tid, prio: p.prio, next_tid: n.tid, next_pid: n.pid, next_comm: n.comm,
            next_prio: n.prio, state: None::<&str>
        };
        self.record(e, current, hook, &text, 2, cells);
        self.ran_on.insert(n.tid, e.cpu);
    }
}

fn seconds(ns: i64, digits: usize) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text[..text.len() - 9 + digits].to_owned()
}

fn write(layout: Layout, schedule: &Schedule) -> (String, Vec<Cells>) {
    let prio = schedule.tasks.iter().map(|t| t.prio).collect();
    let start = schedule.events.first().map_or(0, |e| e.ts) - 1000;
    let mut w = Writer { layout, schedule, prio, start, last: 0, ran_on: BTreeMap::new(), records: Vec::new() };
    let mut running = vec![None; schedule.cpus as usize];
    for e in &schedule.events {
        w.event(e, running[e.cpu as usize]);
        if let EventKind::Switch { next, .. } = e.kind {
            running[e.cpu as usize] = next;
        }
    }
    let mut text =
        "Thu Oct 28 13:34:05 1999\nSystem: AIX texmex Node: 4\nMachine: 000691854C00\nBuffering: Kernel Heap\n\
                    trace -a -j 106,10C,11F -o trc_raw\n\n"
            .to_owned();
    text += &layout.header();
    let mut expected = Vec::new();
    for (i, (line, cells)) in w.records.into_iter().enumerate() {
        if layout.page.is_some_and(|page| i > 0 && i % page == 0) {
            text += &format!("\n{}", layout.header());
        }
        text += &line;
        expected.push(cells);
    }
    (text, expected)
}

proptest! {
    #![proptest_config(schedule::config(400))]

    #[test]
    fn schedules_come_back(schedule in schedules(80), layout in layouts()) {
        let (text, expected) = write(layout, &schedule);
        let (mut out, format) = read(text.as_bytes(), None);
        prop_assert_eq!(format.expect("recognised"), "trcrpt", "{}", text);
        same(&out, &expected).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        let odd: Vec<_> = out.diagnostics.rows().iter().filter(|d| !matches!(d.code.as_str(), "missing-events" | "inferred")).collect();
        prop_assert!(odd.is_empty(), "{odd:?}\n{text}");
        // Without names, a wait kproc that only wakes others before its first dispatch looks like any thread.
        if layout.time == 0 && (layout.exec || !layout.tid) {
            let start = schedule.events.first().map_or(0, |e| e.ts) - 1000;
            same_slices(&mut out, &schedule, |ts| ts - start).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        }
        prop_assert_eq!(out.meta.get("host"), Some("texmex"));
        prop_assert_eq!(out.meta.get("events.recorded"), Some("[\"106\",\"10C\",\"11F\"]"));
    }
}
