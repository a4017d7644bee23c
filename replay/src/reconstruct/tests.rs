//! Reconstructions of a few records that are written down here.

use tracekit_schema::events::{irq, quality};
use tracekit_schema::{DeriveOptions, Events, Kind, State, Strings};

use super::{timeline, Group, Options, Outcome, Reading, Recon, Whole};
use crate::calibrate::{Estimate, Limits, Overheads};
use crate::cancel::Cancel;
use crate::history::{By, EventKind, History};
use crate::program::{Start, Step};

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
        let task = |tid| history.tasks.iter().find(|l| l.tid == tid).expect("it was seen").events.iter();
        let interrupted = task(9).any(|a| matches!(a.kind, EventKind::Irq { .. }));
        let by_task = task(8).any(|a| matches!(a.kind, EventKind::Woken { by: By::Task { .. }, .. }));
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
        Step::Spin { sem, ns: 2_000, turns: 1 },
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

/// Task 7 runs for 3 ms, the CPU idles, and task 8 comes, of which no record said anything before.
fn unannounced() -> Records {
    let mut records = Records::new();
    records.switch(3_000_000, (7, 120, SLEEPS), 0);
    records.switch(5_000_000, (0, 120, State::Runnable), 8);
    records.switch(6_000_000, (8, 120, SLEEPS), 0);
    records
}

#[test]
fn a_task_that_comes_behind_an_idle_cpu_did_not_wait_from_the_start() {
    let recon = unannounced().programs(&Overheads::default());
    let program = recon.work.tasks.iter().find(|p| p.tid == 8).unwrap();
    assert_eq!(program.start, Start::Asleep(0));
    assert!(matches!(program.steps[0], Step::Pause { .. }), "{:?}", program.steps);
    // Beside one that had the CPU all the time it may have waited.
    let mut records = Records::new();
    records.switch(3_000_000, (7, 120, SLEEPS), 8);
    records.switch(6_000_000, (8, 120, SLEEPS), 0);
    let recon = records.programs(&Overheads::default());
    assert_eq!(recon.work.tasks.iter().find(|p| p.tid == 8).unwrap().start, Start::At(0));
}

#[test]
fn where_wakeups_and_new_tasks_are_recorded_a_task_without_either_was_runnable() {
    let mut records = unannounced();
    records.waking(7_000_000, 0, 7, irq::HARDIRQ);
    let wakeups = records.programs(&Overheads::default());
    assert_eq!(wakeups.work.tasks.iter().find(|p| p.tid == 8).unwrap().start, Start::Asleep(0));
    let mut row = records.events.push();
    row.ts_ns(7_500_000).cpu(0).kind(Kind::WakeupNew).ctx_tid(7).tid(9).target_cpu(0).quality(0);
    let all = records.programs(&Overheads::default());
    assert_eq!(all.work.tasks.iter().find(|p| p.tid == 8).unwrap().start, Start::At(0));
}

/// Task 7 serves task 8, which asks while 7 is awake, sleeps, and is answered; so many times. What it
/// asks wakes nobody, but now and then 7 has gone to sleep first, where `back`.
fn answered_by_a_task_that_goes_on(times: i64, back: bool) -> Records {
    let mut records = Records::new();
    records.switch(0, (0, 120, State::Runnable), 8);
    for start in (0..times).map(|i| i * 100_000) {
        if back {
            records.waking(start + 5_000, 8, 7, 0);
        } else {
            records.waking(start + 5_000, 0, 7, irq::HARDIRQ);
        }
        records.switch(start + 10_000, (8, 120, SLEEPS), 7);
        records.waking(start + 20_000, 7, 8, 0);
        records.switch(start + 22_000, (7, 120, State::Runnable), 8);
        records.switch(start + 30_000, (8, 120, SLEEPS), 7);
        records.waking(start + 50_000, 7, 8, 0);
        records.switch(start + 60_000, (7, 120, SLEEPS), 8);
    }
    records
}

#[test]
fn a_task_that_is_asked_while_it_is_awake_does_not_answer_before() {
    let questions = |times, back, followed: bool| {
        let records = answered_by_a_task_that_goes_on(times, back);
        let mut reading = Reading::with(records.history(), Overheads::default(), &records.strings, &Options::default());
        let tasks = if followed { Vec::new() } else { (0..reading.history.tasks.len() as u32).collect() };
        let group =
            Group { tasks, messages: 9, unobserved: 5, unexplained: 4, outcome: Outcome::Unexplained, recorded: false };
        reading.messages.found.groups = vec![group];
        let recon = reading.programs();
        let program = recon.work.tasks.iter().find(|p| p.tid == 7).expect("it was seen").clone();
        let spin = |s: &Step| matches!(s, Step::Spin { turns: 0, .. });
        let before_post =
            |w: &[Step]| spin(&w[0]) && matches!(w[1], Step::Run { ns: 20_000 }) && matches!(w[2], Step::Post { .. });
        let n = program.steps.iter().filter(|s| spin(s)).count();
        (n, program.steps.windows(3).filter(|w| before_post(w)).count())
    };
    let (n, in_place) = questions(6, true, false);
    assert!(in_place >= 6, "{in_place} of {n}");
    assert_eq!(questions(6, false, false).0, 0, "8 never wakes 7: it may be a reader behind a writer");
    assert_eq!(questions(4, true, false).0, 0, "a few may be chance");
    assert_eq!(questions(6, true, true).0, 0, "where messages are followed, or all show, nothing is missing");
}

#[test]
fn a_cpu_of_which_one_record_strayed_in_is_left_out() {
    let mut records = Records::new();
    let mut row = records.events.push();
    row.ts_ns(1).cpu(1).kind(Kind::Migrate).ctx_tid(21).tid(7).target_cpu(0).quality(0);
    records.switch(3_000_000, (7, 120, SLEEPS), 8);
    records.switch(6_000_000, (8, 120, SLEEPS), 7);
    let recon = records.programs(&Overheads::default());
    assert_eq!(recon.cpus, [0]);
    assert_eq!(recon.work.tasks.iter().map(|p| p.tid).collect::<Vec<_>>(), [7, 8]);
    // A thread that has a CPU to itself shows by the ticks that charge it.
    records.charge(5_000_000, 21, 4_000_000);
    records.events.cpu.set(3, 1);
    assert_eq!(records.programs(&Overheads::default()).cpus, [0, 1]);
}

/// Two tasks share CPU 0, which never idles, for a millisecond each. 7, of which the name is `sh`, comes
/// after 10 of them and sleeps; 9 shows for the first time, with the name `name`, ends, and has woken 7.
/// No record says that a task was made.
fn made_without_a_record(name: &[u8]) -> Records {
    let mut records = Records::new();
    let (sh, name) = (records.strings.intern(b"sh"), records.strings.intern(name));
    for turn in 0..10 {
        records.switch(turn * 1_000_000, (2 + turn % 2, 120, State::Preempted), 3 - turn % 2);
    }
    records.waking(9_500_000, 3, 7, irq::HARDIRQ);
    records.switch(9_600_000, (2, 120, State::Preempted), 7);
    records.events.last().expect("a switch").next_comm(sh);
    records.switch(9_800_000, (7, 120, SLEEPS), 9);
    records.events.last().expect("a switch").comm(sh).next_comm(name);
    records.waking(9_900_000, 9, 7, 0);
    records.switch(9_950_000, (9, 120, State::Dead), 7);
    records.events.last().expect("a switch").comm(name).next_comm(sh);
    records.switch(9_990_000, (7, 120, SLEEPS), 2);
    records
}

#[test]
fn a_task_that_shows_with_the_name_of_one_that_ran_before_was_made_by_it() {
    let recon = made_without_a_record(b"sh").programs(&Overheads::default());
    let of = |tid| recon.work.tasks.iter().find(|p| p.tid == tid).expect("it was seen");
    assert_eq!(of(9).start, Start::Forked);
    let forks = |p: &crate::program::Program| p.steps.iter().position(|s| matches!(s, Step::Fork { .. }));
    let sleeps = of(7).steps.iter().rposition(|s| matches!(s, Step::Wait { .. }));
    assert!(forks(of(7)) < sleeps && forks(of(7)).is_some(), "7 waits for what it made");
    assert_eq!(forks(of(2)).or(forks(of(3))), None);
    let said = recon.missing();
    let said = said.iter().find(|d| d.message.starts_with("new tasks")).expect("it is said");
    assert!(said.message.contains("of 1 that first show when they get a CPU, 1 are"), "{}", said.message);
}

#[test]
fn one_of_another_name_begins_when_it_was_first_seen() {
    let recon = made_without_a_record(b"cat").programs(&Overheads::default());
    let nine = recon.work.tasks.iter().find(|p| p.tid == 9).expect("it was seen");
    assert_eq!(nine.start, Start::Asleep(0));
    assert!(matches!(nine.steps[0], Step::Pause { .. }), "{:?}", nine.steps[0]);
}

#[test]
fn who_leaves_for_a_task_that_nothing_announced_has_not_yielded() {
    let mut records = Records::new();
    records.waking(500, 0, 7, irq::HARDIRQ);
    records.switch(1_000, (0, 120, State::Runnable), 7);
    records.switch(50_000, (7, 120, State::Runnable), 8);
    for (ts, task, next) in [(90_000, 8, 7), (130_000, 7, 8), (170_000, 8, 9), (210_000, 9, 7)] {
        records.switch(ts, (task, 120, State::Runnable), next);
    }
    let quiet: Vec<_> = records.history().loose.iter().map(|l| (l.task, l.quiet)).collect();
    assert_eq!(quiet[1..], [(1, true), (0, true), (1, false), (2, true)]);
}

#[test]
fn a_clock_that_begins_at_0_takes_nothing_from_the_first_burst() {
    let first = |zero: i64| {
        let mut records = Records::new();
        // A name that the recorder made up, with the time of the first record.
        let mut row = records.events.push();
        row.ts_ns(zero).kind(Kind::Comm).tid(7).quality(quality::SYNTHESIZED);
        records.events.push().ts_ns(zero).cpu(0).kind(Kind::SysExit).ctx_tid(7).tid(7).quality(0);
        records.switch(zero + 10_000, (7, 120, SLEEPS), 8);
        records.switch(zero + 30_000, (8, 120, SLEEPS), 0);
        records.programs(&Overheads::default()).work.tasks[0].steps[0]
    };
    for zero in [0, 1, 5_000_000_000] {
        assert!(matches!(first(zero), Step::Run { ns: 10_000 }), "{zero}: {:?}", first(zero));
    }
}

#[test]
fn a_record_that_the_recorder_made_up_is_not_the_beginning() {
    let mut records = Records::new();
    records.events.push().ts_ns(0).cpu(1).kind(Kind::Comm).tid(7).quality(quality::SYNTHESIZED);
    records.switch(10_000, (7, 120, SLEEPS), 8);
    records.switch(30_000, (8, 120, SLEEPS), 0);
    let history = records.history();
    assert_eq!((history.start, history.cpus), (10_000, vec![0]));
}
