//! Reconstructions of a few records that are written down here.

use tracekit_schema::events::irq;
use tracekit_schema::{DeriveOptions, Events, Kind, State, Strings};

use super::{timeline, Options, Reading, Recon, Whole};
use crate::calibrate::{Estimate, Limits, Overheads};
use crate::cancel::Cancel;
use crate::history::{By, History, What};
use crate::program::Step;

/// Records of CPU 0.
struct Records {
    events: Events,
    strings: Strings,
}

impl Records {
    fn new() -> Self {
        let mut strings = Strings::default();
        strings.intern(b"");
        Records { events: Events::default(), strings }
    }

    /// `prev` leaves in `state` with priority `prio`; `next` comes on.
    fn switch(&mut self, ts: i64, (prev, prio, state): (i64, i32, State), next: i64) {
        let mut row = self.events.push();
        row.ts_ns(ts).cpu(0).kind(Kind::Switch).ctx_tid(prev).tid(prev).prio(prio).state(state);
        row.next_tid(next).next_prio(120).quality(0);
    }

    fn charge(&mut self, ts: i64, tid: i64, ran: i64) {
        self.events.push().ts_ns(ts).cpu(0).kind(Kind::StatRuntime).ctx_tid(tid).tid(tid).value(ran).quality(0);
    }

    fn waking(&mut self, ts: i64, ctx: i64, tid: i64, flags: u16) {
        let mut row = self.events.push();
        row.ts_ns(ts).cpu(0).kind(Kind::Waking).ctx_tid(ctx).tid(tid).target_cpu(0).irq_flags(flags).quality(0);
    }

    fn history(&self) -> History {
        timeline::read(
            &Whole::new(&self.events, &self.strings),
            &DeriveOptions::default(),
            Limits::default(),
            &Cancel::default(),
        )
    }

    fn programs(&self, over: &Overheads) -> Recon {
        Reading::with(self.history(), over.clone(), &self.strings, &Options::default()).programs()
    }
}

const SLEEPS: State = State::Sleeping;

#[test]
fn a_task_that_runs_at_the_start_has_run_for_as_long_as_its_first_charge_reaches_back() {
    let mut records = Records::new();
    records.waking(1_000, 7, 8, 0);
    records.charge(5_000, 7, 90_000);
    records.charge(9_000, 7, 4_000);
    records.switch(10_000, (7, 120, SLEEPS), 8);
    records.charge(12_000, 8, 70_000);
    records.switch(20_000, (8, 120, SLEEPS), 0);
    let on: Vec<_> = records.programs(&Overheads::default()).work.tasks.iter().map(|p| (p.tid, p.on)).collect();
    assert_eq!(on, [(7, Some(86_000)), (8, None)]);
}

#[test]
fn the_thread_of_softirqs_wakes_by_itself_and_is_not_interrupted() {
    let of = |comm: &[u8], flags: u16| {
        let mut records = Records::new();
        let comm = records.strings.intern(comm);
        records.switch(0, (0, 120, State::Runnable), 9);
        if let Some(mut row) = records.events.last() {
            row.next_comm(comm);
        }
        records.waking(3_000, 9, 8, flags);
        records.switch(30_000, (9, 120, SLEEPS), 8);
        records.switch(40_000, (8, 120, SLEEPS), 0);
        let history = records.history();
        let life = |tid| history.lives.iter().find(|l| l.tid == tid).expect("it was seen").acts.iter();
        let interrupted = life(9).any(|a| matches!(a.what, What::Irq { .. }));
        let by_task = life(8).any(|a| matches!(a.what, What::Woken { by: By::Task { .. }, .. }));
        (interrupted, by_task)
    };
    assert_eq!(of(b"ksoftirqd/0", irq::SOFTIRQ), (false, true));
    assert_eq!(of(b"ksoftirqd/0", irq::HARDIRQ), (true, false));
    assert_eq!(of(b"other", irq::SOFTIRQ), (true, false));
}

#[test]
fn a_priority_that_only_the_switch_tells_adds_no_work() {
    let ran = |prio| {
        let mut records = Records::new();
        records.waking(0, 5, 7, 0);
        records.switch(10_000, (5, 120, SLEEPS), 7);
        records.switch(60_000, (7, prio, SLEEPS), 0);
        records.waking(90_000, 0, 7, irq::HARDIRQ);
        let over = Overheads { record: Estimate { ns: 8_000, n: 1 }, switch: 10_000, ..Overheads::default() };
        let recon = records.programs(&over);
        let program = recon.work.tasks.iter().find(|p| p.tid == 7).expect("it was seen");
        let demand = program.steps.iter().find_map(|s| if let Step::Run { ns } = s { Some(*ns) } else { None });
        (demand, program.steps.iter().any(|s| matches!(s, Step::SetAttrs { .. })))
    };
    assert_eq!(ran(120), (Some(40_000), false));
    assert_eq!(ran(89), (Some(40_000), true));
}

/// What the program of task 7 does: `r` runs, `w` waits, `s` sleeps, `E` runs without end.
fn doings(recon: &Recon) -> String {
    let program = recon.work.tasks.iter().find(|p| p.tid == 7).expect("it was seen");
    let letter = |s: &Step| match s {
        Step::Run { ns } if *ns == crate::task::NEVER => 'E',
        Step::Run { .. } => 'r',
        Step::Wait { .. } => 'w',
        Step::Pause { .. } => 's',
        _ => '-',
    };
    program.steps.iter().map(letter).collect()
}

#[test]
fn a_task_whose_leaving_was_not_recorded_sleeps_until_it_is_woken() {
    let records = |woken: bool| {
        let mut records = Records::new();
        records.waking(1_000, 5, 7, 0);
        records.switch(10_000, (5, 120, SLEEPS), 7);
        records.charge(50_000, 7, 40_000);
        // The switch from 7 to 9 is missing.
        records.switch(60_000, (9, 120, SLEEPS), 0);
        if woken {
            records.waking(90_000, 0, 7, irq::HARDIRQ);
        }
        records.switch(100_000, (0, 120, State::Runnable), 7);
        records.charge(150_000, 7, 50_000);
        records.switch(160_000, (9, 120, SLEEPS), 0);
        records.switch(900_000, (0, 120, State::Runnable), 9);
        doings(&records.programs(&Overheads::default()))
    };
    assert_eq!(records(true), "wrsrw");
    assert_eq!(records(false), "wrrw");
}

#[test]
fn a_recording_that_was_stopped_before_its_work_was_done_is_replayed_for_as_long() {
    let bounds = |exit: i64| {
        let mut records = Records::new();
        records.waking(1_000, 5, 7, 0);
        records.switch(10_000, (5, 120, SLEEPS), 7);
        records.switch(exit, (7, 120, State::Dead), 9);
        records.switch(1_000_000, (9, 120, SLEEPS), 0);
        let recon = records.programs(&Overheads::default());
        assert!(recon.work.tasks.iter().any(|p| p.tid == 7 && p.essential));
        (recon.until, recon.at_least)
    };
    assert_eq!(bounds(300_000), (999_000, 999_000));
    assert_eq!(bounds(995_000), (20 * 999_000, 0));
}

#[test]
fn a_task_that_slept_although_a_reschedule_was_asked_for_was_in_the_kernel_since_its_wakeup() {
    let in_kernel = |slept: i64, flags: u16| {
        let mut records = Records::new();
        records.waking(1_000, 5, 7, 0);
        records.switch(10_000, (5, 120, SLEEPS), 7);
        records.waking(20_000, 7, 8, 0);
        records.charge(slept - 2_000, 7, 16_000);
        if let Some(mut row) = records.events.last() {
            row.irq_flags(flags);
        }
        records.switch(slept, (7, 120, SLEEPS), 8);
        records.switch(900_000, (8, 120, SLEEPS), 0);
        records.waking(990_000, 0, 7, irq::HARDIRQ);
        let recon = records.programs(&Overheads::default());
        let program = recon.work.tasks.iter().find(|p| p.tid == 7).expect("it was seen");
        program.steps.iter().find_map(|s| if let Step::RunKernel { ns } = s { Some(*ns) } else { None })
    };
    assert_eq!(in_kernel(30_000, irq::NEED_RESCHED), Some(10_000));
    assert_eq!(in_kernel(30_000, 0), None);
    assert_eq!(in_kernel(300_000, irq::NEED_RESCHED), None, "too long for one system call");
}

/// Task 7 yields, task 8 sleeps meanwhile, and 7 wakes it; so many times.
fn answered_by_a_task_that_yields(times: i64) -> Records {
    let mut records = Records::new();
    records.switch(0, (0, 120, State::Runnable), 7);
    for start in (0..times).map(|i| i * 40_000) {
        records.switch(start + 10_000, (7, 120, State::Yielding), 8);
        records.switch(start + 14_000, (8, 120, State::Yielding), 7);
        records.switch(start + 16_000, (7, 120, State::Yielding), 8);
        records.switch(start + 20_000, (8, 120, SLEEPS), 7);
        records.waking(start + 25_000, 7, 8, 0);
    }
    records.switch(times * 40_000, (7, 120, State::Yielding), 8);
    records.switch(times * 40_000 + 3_000, (8, 120, SLEEPS), 7);
    records.switch(times * 40_000 + 6_000, (7, 120, SLEEPS), 0);
    records
}

#[test]
fn a_task_that_yields_until_another_sleeps_spins_for_it() {
    let recon = answered_by_a_task_that_yields(5).programs(&Overheads::default());
    let steps = |tid| &recon.work.tasks.iter().find(|p| p.tid == tid).expect("it was seen").steps;
    let sem = steps(8).iter().find_map(|s| if let Step::Wait { sem, .. } = s { Some(*sem) } else { None });
    let sem = sem.expect("8 waits for 7");
    let expected = [
        Step::Run { ns: 10_000 },
        Step::Spin { sem, ns: 1_000, turns: 1 },
        Step::Run { ns: 5_000 },
        Step::Post { sem, sync: false },
    ];
    assert_eq!(steps(7)[..4], expected);
    assert_eq!(recon.spinners.len(), 1);
}

#[test]
fn one_that_did_so_four_times_may_have_done_it_by_chance() {
    let recon = answered_by_a_task_that_yields(4).programs(&Overheads::default());
    assert!(recon.spinners.is_empty());
    let yields = |p: &crate::program::Program| p.steps.iter().filter(|s| **s == Step::Yield).count();
    assert_eq!(recon.work.tasks.iter().find(|p| p.tid == 7).map(yields), Some(9));
}

#[test]
fn wakeups_keep_their_time_in_an_open_replay_whoever_spins() {
    let records = answered_by_a_task_that_yields(5);
    let options = Options { mode: super::LoopMode::Open, ..Options::default() };
    let recon = Reading::with(records.history(), Overheads::default(), &records.strings, &options).programs();
    assert!(recon.spinners.is_empty());
    assert!(!recon.work.tasks.iter().any(|p| p.steps.iter().any(|s| matches!(s, Step::Spin { .. }))));
}
