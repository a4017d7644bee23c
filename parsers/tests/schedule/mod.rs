//! Random schedules that make sense, for writing into a format and reading back.
//!
//! A schedule is played by a tiny machine: tasks run, sleep, are woken, preempted, made and end, so
//! that every record agrees with those before it. The writers of the formats live in the tests; a
//! format leaves out what it cannot say.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::VecDeque;

use proptest::prelude::*;

/// A task that may appear.
#[derive(Clone, Debug)]
pub struct Task {
    pub tid: i64,
    pub pid: i64,
    pub comm: &'static str,
    pub prio: i32,
}

/// How a task left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndState {
    Runnable,
    Sleeping,
    Locked,
    Dead,
}

/// A record; tasks are indices, `None` is idle.
#[derive(Clone, Copy, Debug)]
pub enum EventKind {
    Switch {
        prev: Option<usize>,
        left: EndState,
        next: Option<usize>,
    },
    Wakeup {
        waker: Option<usize>,
        task: usize,
        target: i32,
    },
    Enqueue {
        by: Option<usize>,
        task: usize,
        target: i32,
    },
    Dequeue {
        by: Option<usize>,
        task: usize,
        target: i32,
    },
    Fork {
        parent: usize,
        child: usize,
    },
    Exec {
        task: usize,
    },
    Exit {
        task: usize,
    },
    Prio {
        by: Option<usize>,
        task: usize,
        old: i32,
        new: i32,
    },
    /// Tasks that run on or wait for the CPU.
    Load {
        target: i32,
        tasks: i64,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub ts: i64,
    pub cpu: i32,
    pub kind: EventKind,
}

#[derive(Clone, Debug)]
pub struct Schedule {
    pub cpus: i32,
    pub tasks: Vec<Task>,
    pub events: Vec<Event>,
}

/// What the generator draws: an action, a choice within it, a pause.
type Choice = (u8, u8, u32);

/// Names that are hard to read back: blanks, equal signs, colons, keys of formats, 16 bytes.
const COMMS: [&str; 8] =
    ["ksh", "rs:main Q:Reg", "a=b", "kworker/0:1", "x pid=7 tid=9", "Web Content", "0123456789abcde", "sh"];

/// How often a property is tried; failures are shown, not stored.
pub fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Schedules of up to `len` actions.
pub fn schedules(len: usize) -> impl Strategy<Value = Schedule> {
    let choice = (any::<u8>(), any::<u8>(), prop_oneof![1u32..50_000, 1_000_000u32..60_000_000]);
    (1i32..5, prop::collection::vec(choice, 1..len)).prop_map(|(cpus, choices)| play(cpus, &choices))
}

struct Machine {
    schedule: Schedule,
    now: i64,
    running: Vec<Option<usize>>,
    queues: Vec<VecDeque<usize>>,
    asleep: Vec<usize>,
    unborn: Vec<usize>,
}

fn play(cpus: i32, choices: &[Choice]) -> Schedule {
    let task = |i: usize| Task { tid: 1000 + 2 * i as i64 + 1, pid: 500 + i as i64, comm: COMMS[i % 8], prio: 60 };
    let mut machine = Machine {
        schedule: Schedule { cpus, tasks: (0..12).map(task).collect(), events: Vec::new() },
        now: 5_000_000_000,
        running: vec![None; cpus as usize],
        queues: vec![VecDeque::new(); cpus as usize],
        asleep: (0..6).collect(),
        unborn: (6..12).rev().collect(),
    };
    for &(action, pick, pause) in choices {
        machine.now += i64::from(pause);
        machine.act(action, pick as usize);
    }
    machine.schedule
}

impl Machine {
    fn act(&mut self, action: u8, pick: usize) {
        let cpu = pick % self.running.len();
        match action % 10 {
            0..=2 => self.wake(cpu, pick / self.running.len()),
            3..=5 => self.switch(cpu, if pick.is_multiple_of(3) { EndState::Runnable } else { EndState::Sleeping }),
            6 => self.switch(cpu, EndState::Locked),
            7 => self.fork(cpu),
            8 if pick.is_multiple_of(2) => self.end(cpu),
            8 => {
                if let Some(task) = self.running[cpu] {
                    self.emit(cpu, EventKind::Exec { task });
                }
            }
            _ => self.reprioritise(cpu, pick),
        }
    }

    fn emit(&mut self, cpu: usize, kind: EventKind) {
        self.schedule.events.push(Event { ts: self.now, cpu: cpu as i32, kind });
        self.now += 1;
    }

    fn load(&mut self, cpu: usize, of: usize) {
        let tasks = self.queues[of].len() as i64 + i64::from(self.running[of].is_some());
        self.emit(cpu, EventKind::Load { target: of as i32, tasks });
    }

    fn queue(&mut self, cpu: usize, task: usize, on: usize) {
        self.queues[on].push_back(task);
        self.emit(cpu, EventKind::Enqueue { by: self.running[cpu], task, target: on as i32 });
        self.load(cpu, on);
    }

    fn wake(&mut self, cpu: usize, pick: usize) {
        if self.asleep.is_empty() {
            return;
        }
        let task = self.asleep.remove(pick % self.asleep.len());
        let on = (task + pick) % self.running.len();
        self.emit(cpu, EventKind::Wakeup { waker: self.running[cpu], task, target: on as i32 });
        self.queue(cpu, task, on);
    }

    fn switch(&mut self, cpu: usize, left: EndState) {
        let prev = self.running[cpu];
        let next = self.queues[cpu].pop_front();
        if prev.is_none() && next.is_none() {
            return;
        }
        match (prev, left) {
            (Some(task), EndState::Runnable) => {
                if next.is_none() {
                    return;
                }
                self.queue(cpu, task, cpu);
            }
            (Some(task), EndState::Sleeping | EndState::Locked) => self.asleep.push(task),
            _ => {}
        }
        if let Some(task) = next {
            self.emit(cpu, EventKind::Dequeue { by: prev, task, target: cpu as i32 });
        }
        self.emit(cpu, EventKind::Switch { prev, left, next });
        self.running[cpu] = next;
        self.load(cpu, cpu);
    }

    fn fork(&mut self, cpu: usize) {
        let (Some(parent), false) = (self.running[cpu], self.unborn.is_empty()) else { return };
        let child = self.unborn.pop().expect("one is left");
        self.emit(cpu, EventKind::Fork { parent, child });
        self.queue(cpu, child, cpu);
    }

    fn end(&mut self, cpu: usize) {
        if let Some(task) = self.running[cpu] {
            self.emit(cpu, EventKind::Exit { task });
            self.switch(cpu, EndState::Dead);
        }
    }

    fn reprioritise(&mut self, cpu: usize, pick: usize) {
        let Some(&task) = self.queues[cpu].front().or(self.running[cpu].as_ref()) else { return };
        let old = self.schedule.tasks[task].prio;
        let new = 50 + (pick % 40) as i32;
        self.emit(cpu, EventKind::Prio { by: self.running[cpu], task, old, new });
    }
}

/// Cells that a row must have, `null` for an empty one.
pub type Cells = Vec<(&'static str, String)>;

/// A value as a cell holds it.
pub trait Cell {
    fn cell(self) -> String;
}
impl Cell for &str {
    fn cell(self) -> String {
        self.to_owned()
    }
}
impl Cell for i64 {
    fn cell(self) -> String {
        self.to_string()
    }
}
impl Cell for i32 {
    fn cell(self) -> String {
        self.to_string()
    }
}
impl<T: Cell> Cell for Option<T> {
    fn cell(self) -> String {
        self.map_or_else(|| "null".to_owned(), Cell::cell)
    }
}

/// `cells! { kind: "switch", tid: 5, .. }`
#[macro_export]
macro_rules! cells {
    ($($name:ident: $value:expr),* $(,)?) => {
        vec![$((stringify!($name), $crate::schedule::Cell::cell($value))),*]
    };
}

/// Checks that the events of `out` are exactly `expected`, in order, as far as `expected` goes into columns.
pub fn same(out: &tracekit_schema::Out, expected: &[Cells]) -> Result<(), TestCaseError> {
    use tracekit_schema::table::Table;
    for (i, want) in expected.iter().enumerate().take(out.events.len()) {
        let cells = crate::common::row(&out.events, &out.strings, i);
        for (name, value) in want {
            let found = cells.get(name).map_or("null", String::as_str);
            prop_assert_eq!(found, value.as_str(), "row {}, column {}: {:?} for {:?}", i, name, cells, want);
        }
    }
    prop_assert_eq!(out.events.len(), expected.len());
    Ok(())
}

/// Start, length, CPU and task of every slice that begins and ends within the schedule.
pub fn slices(schedule: &Schedule) -> Vec<(i64, i64, i32, i64)> {
    let mut since = vec![None; schedule.cpus as usize];
    let mut slices = Vec::new();
    for e in &schedule.events {
        if let EventKind::Switch { prev, next, .. } = e.kind {
            let begin = since[e.cpu as usize].replace(e.ts);
            if let (Some(begin), Some(task)) = (begin, prev) {
                slices.push((begin, e.ts - begin, e.cpu, schedule.tasks[task].tid));
            }
            since[e.cpu as usize] = next.map(|_| e.ts);
        }
    }
    slices.sort_unstable();
    slices
}

/// Checks that the slices derived from `out` are those of the schedule, at times that `at` maps;
/// idle has none.
pub fn same_slices(
    out: &mut tracekit_schema::Out,
    schedule: &Schedule,
    at: impl Fn(i64) -> i64,
) -> Result<(), TestCaseError> {
    use tracekit_schema::derive::{DeriveOptions, Deriver};
    use tracekit_schema::tables::flag;
    let mut deriver = Deriver::new(DeriveOptions::for_trace(&out.meta));
    deriver.push(&out.events, &out.strings, &mut out.diagnostics);
    let s = deriver.finish(&mut out.diagnostics).slices;
    let mut found = Vec::new();
    for i in 0..s.tid.values().len() {
        let (tid, flags) = (s.tid.get(i).expect("tid"), s.flags.get(i).unwrap_or(0));
        let known = schedule.tasks.iter().any(|t| t.tid == tid);
        prop_assert!(known, "thread {tid} has a slice, but no such task is in the schedule: idle?");
        if flags & (flag::OPEN_START | flag::OPEN_END) == 0 {
            found.push((s.ts_ns.get(i), s.dur_ns.get(i), s.cpu.get(i), tid));
        }
    }
    found.sort_unstable();
    let expected: Vec<_> = slices(schedule)
        .into_iter()
        .map(|(ts, dur, cpu, tid)| (Some(at(ts)), Some(at(ts + dur) - at(ts)), Some(cpu), tid))
        .collect();
    prop_assert_eq!(found, expected);
    Ok(())
}
