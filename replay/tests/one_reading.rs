//! Programs and tables are read from the same transitions: what they count is equal for any
//! sequence of records.

use proptest::prelude::*;

use tracekit_replay::program::Step;
use tracekit_replay::reconstruct::{reconstruct, Evidence, Options, Recon};
use tracekit_replay::replay::{rerun, ReplaySpec};
use tracekit_replay::workload;
use tracekit_schema::table::Table;
use tracekit_schema::{DeriveOptions, Derived, Deriver, Diagnostics, Events, Kind, State, Strings};

/// CPU numbers with gaps, as where a part of a machine is traced.
const NUMBERS: [i32; 3] = [2, 3, 70];

#[derive(Clone, Copy, PartialEq)]
enum Is {
    Running(usize),
    Ready,
    Asleep,
    Gone,
}

/// A machine that does as it is asked and writes switches, wakings, forks and exits.
struct Machine {
    events: Events,
    now: i64,
    on: Vec<Option<usize>>,
    tasks: Vec<Is>,
}

impl Machine {
    fn new(cpus: usize, tasks: usize) -> Self {
        let mut m =
            Machine { events: Events::default(), now: 1_000, on: vec![None; cpus], tasks: vec![Is::Ready; tasks] };
        // Everybody runs once, so that no task begins in the dark.
        for t in 0..tasks {
            m.switch(t % cpus, State::Preempted, Some(t));
        }
        m
    }

    fn tid(task: Option<usize>) -> i64 {
        task.map_or(0, |t| 100 + t as i64)
    }

    fn switch(&mut self, cpu: usize, state: State, next: Option<usize>) {
        self.now += 1_000;
        let prev = self.on[cpu];
        let mut row = self.events.push();
        row.ts_ns(self.now).cpu(NUMBERS[cpu]).kind(Kind::Switch).quality(0).ctx_tid(Self::tid(prev));
        row.tid(Self::tid(prev)).state(if prev.is_some() { state } else { State::Runnable });
        row.next_tid(Self::tid(next));
        if let Some(t) = prev {
            self.tasks[t] = match state {
                s if s.is_runnable() => Is::Ready,
                s if s.is_end() => Is::Gone,
                _ => Is::Asleep,
            };
        }
        if let Some(t) = next {
            self.tasks[t] = Is::Running(cpu);
        }
        self.on[cpu] = next;
    }

    fn record(&mut self, kind: Kind, cpu: usize, task: usize) {
        self.now += 300;
        let mut row = self.events.push();
        row.ts_ns(self.now).cpu(NUMBERS[cpu]).kind(kind).quality(0).ctx_tid(Self::tid(self.on[cpu]));
        row.tid(Self::tid(Some(task)));
        if matches!(kind, Kind::Waking | Kind::WakeupNew) {
            row.target_cpu(NUMBERS[cpu]);
        }
    }

    fn some(&self, which: Is, pick: usize) -> Option<usize> {
        let fit: Vec<usize> = (0..self.tasks.len()).filter(|t| self.tasks[*t] == which).collect();
        (!fit.is_empty()).then(|| fit[pick % fit.len()])
    }

    fn step(&mut self, op: u8, cpu: usize, pick: usize) {
        let cpu = cpu % self.on.len();
        let (curr, ready, asleep) = (self.on[cpu], self.some(Is::Ready, pick), self.some(Is::Asleep, pick));
        match (op % 7, curr) {
            (0, Some(_)) if ready.is_some() => self.switch(cpu, State::Preempted, ready),
            (1, Some(_)) => self.switch(cpu, State::Sleeping, ready),
            (2, None) if ready.is_some() => self.switch(cpu, State::Runnable, ready),
            (3, _) if asleep.is_some() => {
                let task = asleep.unwrap_or_default();
                self.record(Kind::Waking, cpu, task);
                self.tasks[task] = Is::Ready;
            }
            (4, Some(_)) if self.tasks.len() < 12 => {
                self.tasks.push(Is::Ready);
                let child = self.tasks.len() - 1;
                self.record(Kind::Fork, cpu, child);
                self.record(Kind::WakeupNew, cpu, child);
            }
            (5, Some(task)) if self.tasks.len() > 4 => {
                self.record(Kind::Exit, cpu, task);
                self.switch(cpu, State::Dead, ready);
            }
            // The waker writes before the sleeper has left.
            (6, Some(_)) => {
                let other = (0..self.on.len()).filter(|c| *c != cpu).find_map(|c| Some((c, self.on[c]?)));
                if let Some((there, sleeper)) = other {
                    self.record(Kind::Waking, cpu, sleeper);
                    self.switch(there, State::Sleeping, None);
                    self.tasks[sleeper] = Is::Ready;
                }
            }
            _ => {}
        }
    }

    /// Lets everybody who is ready run once more.
    fn end(&mut self) {
        while let Some(task) = self.some(Is::Ready, 0) {
            self.switch(0, State::Sleeping, Some(task));
        }
        self.switch(0, State::Sleeping, None);
    }
}

fn tables(events: &Events, strings: &Strings) -> Derived {
    let mut diagnostics = Diagnostics::default();
    let mut deriver = Deriver::new(DeriveOptions { switches: true, ..DeriveOptions::default() });
    deriver.push(events, strings, &mut diagnostics);
    deriver.finish(&mut diagnostics)
}

/// CPU time that the program of a task holds, as recorded.
fn demand(recon: &Recon, task: usize) -> i64 {
    let steps = recon.work.tasks[task].steps.iter().zip(&recon.notes[task]);
    let handlers = recon.handlers.iter().zip(&recon.work.handlers).filter(|((t, _), _)| *t as usize == task);
    let ns = |(step, note): (&Step, &tracekit_replay::reconstruct::Note)| match step {
        Step::Run { ns } | Step::RunKernel { ns } if note.evidence == Evidence::Recorded => *ns,
        _ => 0,
    };
    steps.map(ns).sum::<i64>() + handlers.flat_map(|((_, notes), steps)| steps.iter().zip(notes)).map(ns).sum::<i64>()
}

/// What a task did while it ran, in time of a CPU of middling speed, and by how much rounding may
/// change that: where chance makes CPUs look unequally fast, each piece of a run is rounded.
fn work(recon: &Recon, tables: &Derived, row: usize, task: usize) -> (i64, i64) {
    let ran = tables.tasks.run_ns.get(row).expect("a time");
    if recon.speeds.are_equal() {
        return (ran, 0);
    }
    let (slices, utid) = (&tables.slices, tables.tasks.utid.get(row));
    let own: Vec<usize> = (0..slices.len()).filter(|s| slices.utid.get(*s) == utid).collect();
    let pieces = own.len() + recon.work.tasks[task].steps.len();
    let done = own.iter().map(|&s| {
        let number = slices.cpu.get(s).expect("a CPU");
        let cpu = recon.cpus.iter().position(|c| *c == number).expect("a recorded CPU");
        recon.speeds.work(cpu, 0, slices.dur_ns.get(s).expect("a length"))
    });
    (done.sum(), pieces as i64)
}

fn count(recon: &Recon, what: impl Fn(&Step) -> bool) -> usize {
    let own = recon.work.tasks.iter().flat_map(|t| &t.steps);
    own.chain(recon.work.handlers.iter().flatten()).filter(|s| what(s)).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn programs_hold_what_tables_hold(
        cpus in 1..=3_usize,
        tasks in 2..6_usize,
        ops in prop::collection::vec((any::<u8>(), 0..3_usize, 0..16_usize), 1..300),
    ) {
        let mut machine = Machine::new(cpus, tasks);
        ops.iter().for_each(|(op, cpu, pick)| machine.step(*op, *cpu, *pick));
        machine.end();
        let mut strings = Strings::default();
        strings.intern(b"");
        let recon = reconstruct(&machine.events, &strings, &Options::default());
        let tables = tables(&machine.events, &strings);
        prop_assert_eq!(recon.mismatches, 0);
        let judged = |task: usize| recon.verdicts[task].endless || recon.verdicts[task].loops;
        for row in (0..tables.tasks.len()).filter(|row| tables.tasks.is_idle.get(*row) != Some(true)) {
            let tid = tables.tasks.tid.get(row).expect("a thread");
            let task = recon.work.tasks.iter().position(|p| p.tid == tid).expect("a program");
            let (ran, rounding) = work(&recon, &tables, row, task);
            let held = demand(&recon, task);
            if judged(task) {
                prop_assert!(held <= ran + rounding);
            } else {
                prop_assert!((held - ran).abs() <= rounding, "thread {tid} ran for {ran}, its program for {held}");
            }
        }
        let slices = &tables.slices;
        let parents = (0..tables.tasks.len()).filter(|row| tables.tasks.parent_utid.get(*row).is_some()).count();
        prop_assert_eq!(count(&recon, |s| matches!(s, Step::Fork { .. })), parents, "forks");
        let ends = (0..slices.len()).filter(|row| slices.end_state.get(*row).is_some_and(State::is_end)).count();
        prop_assert_eq!(count(&recon, |s| matches!(s, Step::Exit)), ends, "exits");
        let woken = |row: &usize| slices.waker_utid.get(*row).is_some() && slices.sleep_ns.get(*row).is_some();
        prop_assert_eq!(recon.classes[0] as usize, (0..slices.len()).filter(woken).count(), "dependencies");
    }

    #[test]
    fn a_capture_of_switches_alone_is_replayed_as_it_was(
        tasks in prop::collection::vec((1..40_u32, 1..40_u32), 1..6),
    ) {
        // On several CPUs the placement is the policy's, too.
        let mut text = String::from("cpus: 1\nuntil: 400\n");
        for (i, (run, sleep)) in tasks.iter().enumerate() {
            // Prime parts keep what ends at one instant rare: ties are the policy's to break.
            let (run, sleep) = (f64::from(*run) * 0.1009, f64::from(*sleep) * 0.3001);
            text.push_str(&format!("T{i}: (R{run:.4} S{sleep:.4})*\n"));
        }
        let recorded = workload::run_text(&text, Some("fifo"), &mut |_| true).expect("the workload runs");
        let mut alone = Events::default();
        for row in (0..recorded.events.len()).filter(|r| recorded.events.kind.get(*r) == Some(Kind::Switch)) {
            let e = &recorded.events;
            let mut copy = alone.push();
            copy.ts_ns(e.ts_ns.get(row).unwrap_or(0)).cpu(e.cpu.get(row).unwrap_or(0)).kind(Kind::Switch).quality(0);
            copy.ctx_tid(e.tid.get(row)).tid(e.tid.get(row)).state(e.state.get(row).unwrap_or_default());
            copy.next_tid(e.next_tid.get(row)).prio(120).next_prio(120);
        }
        let recon = reconstruct(&alone, &recorded.strings, &Options { hz: Some(1000), ..Options::default() });
        let spec = ReplaySpec { policy: "fifo".into(), hz: Some(1000), overheads: false, ..ReplaySpec::default() };
        let replayed = rerun(&recon, &spec, &mut |_| true).expect("the replay runs");
        let switches = |e: &Events| -> Vec<(i64, i64)> {
            let rows = (0..e.len()).filter(|r| e.kind.get(*r) == Some(Kind::Switch));
            rows.filter_map(|r| Some((e.ts_ns.get(r)?, e.next_tid.get(r)?))).collect()
        };
        let (want, got) = (switches(&alone), switches(&replayed.out.events));
        // The recording stops; what the replay does at its end is no matter.
        let n = want.len() * 9 / 10;
        prop_assert_eq!(&got[..n.min(got.len())], &want[..n]);
    }
}
