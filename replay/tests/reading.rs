//! What a reconstruction makes of records: each test writes down a few and says what the program must hold.

use tracekit_replay::calibrate::TickSource;
use tracekit_replay::program::{Pause, Step};
use tracekit_replay::reconstruct::{reconstruct, Evidence, Options, Recon};
use tracekit_replay::replay::{replay, ReplaySpec};
use tracekit_schema::derive::IdleRule;
use tracekit_schema::events::irq;
use tracekit_schema::table::Table;
use tracekit_schema::{Events, Kind, State, Strings};

const US: i64 = 1_000;
const MS: i64 = 1_000_000;

/// Records being written.
struct Trace {
    events: Events,
    strings: Strings,
}

impl Trace {
    fn new() -> Self {
        let mut strings = Strings::default();
        strings.intern(b"");
        Trace { events: Events::default(), strings }
    }

    /// `prev` leaves in `state`, `next` comes on; as ftrace writes it, with interrupt flags.
    fn switch(&mut self, cpu: i32, ts: i64, prev: i64, state: State, next: i64) {
        let mut row = self.events.push();
        row.ts_ns(ts).cpu(cpu).kind(Kind::Switch).ctx_tid(prev).tid(prev).prio(120).state(state);
        row.next_tid(next).next_prio(120).irq_flags(0).quality(0);
    }

    fn about(&mut self, kind: Kind, cpu: i32, ts: i64, ctx: i64, tid: i64, flags: u16) {
        let mut row = self.events.push();
        row.ts_ns(ts).cpu(cpu).kind(kind).ctx_tid(ctx).tid(tid).irq_flags(flags).quality(0);
        if matches!(kind, Kind::Waking | Kind::WakeupNew) {
            row.target_cpu(cpu);
        }
    }

    fn waking(&mut self, cpu: i32, ts: i64, ctx: i64, tid: i64, to: i32, flags: u16) {
        self.about(Kind::Waking, cpu, ts, ctx, tid, flags);
        if let Some(mut row) = self.events.last() {
            row.target_cpu(to);
        }
    }

    fn programs(&self) -> Recon {
        reconstruct(&self.events, &self.strings, &Options::default())
    }
}

fn steps(recon: &Recon, tid: i64) -> &[Step] {
    &recon.work.tasks.iter().find(|p| p.tid == tid).expect("it was seen").steps
}

fn has(recon: &Recon, tid: i64, step: impl Fn(&Step) -> bool) -> bool {
    steps(recon, tid).iter().any(step)
}

/// Two tasks that take turns every 4 ms, by a tick that no record shows.
fn two_hogs(state: State) -> Trace {
    let mut trace = Trace::new();
    trace.switch(0, MS, 0, State::Runnable, 1);
    for turn in 1..100 {
        let (prev, next) = if turn % 2 == 1 { (1, 2) } else { (2, 1) };
        trace.switch(0, MS + turn * 4 * MS, prev, state, next);
    }
    trace
}

fn no_cause_is_reported(recon: &Recon) -> bool {
    recon.missing().iter().any(|d| d.message.contains("nothing shows why"))
}

#[test]
fn a_preemption_whose_tick_does_not_show_is_no_yield() {
    for state in [State::Runnable, State::Preempted] {
        let recon = two_hogs(state).programs();
        assert!(!has(&recon, 1, |s| matches!(s, Step::Yield)), "{state:?}");
        let ticks_lack = recon.missing().iter().any(|d| d.message.contains("clock ticks"));
        assert!(ticks_lack, "{state:?}: nothing says that ticks are missing");
        let trace = two_hogs(state);
        let spec = ReplaySpec { policy: "fifo".into(), overheads: false, ..ReplaySpec::default() };
        let (_, run) = replay(&trace.events, &trace.strings, &spec, &mut |_| true).expect("it runs");
        assert_eq!(run.counts.switches, 1, "{state:?}: under fifo the first has the CPU to the end");
    }
}

#[test]
fn a_yield_is_seen_where_ticks_would_show() {
    let mut trace = Trace::new();
    trace.switch(0, MS, 0, State::Runnable, 1);
    for turn in 1..20 {
        let (prev, next) = if turn % 2 == 1 { (1, 2) } else { (2, 1) };
        let at = MS + turn * MS;
        trace.about(Kind::StatRuntime, 0, at - US, prev, prev, 0);
        if let Some(mut row) = trace.events.last() {
            row.value(MS);
        }
        trace.switch(0, at, prev, State::Runnable, next);
    }
    let recon = trace.programs();
    assert!(has(&recon, 1, |s| matches!(s, Step::Yield)));
    assert!(!no_cause_is_reported(&recon));
}

/// Two hogs take turns on CPU 0 every `period`; a task on CPU 1 looks for work, and another one, in
/// turns of `spin`; a third sleeps. Only switches and wakeups are recorded, of which one more may come in
/// each turn.
fn two_that_spin(period: impl Fn(i64) -> i64, spin: i64, wakes: bool, stirred: bool) -> Trace {
    let mut rows: Vec<(i64, i32, i64, i64)> = Vec::new();
    let mut at = MS;
    for turn in 0..50 {
        rows.push((at, 0, 1 + turn % 2, 2 - turn % 2));
        at += period(turn);
    }
    for turn in 0..1000 {
        rows.push((2 * MS + turn * spin, 1, 3 + turn % 2, 4 - turn % 2));
    }
    rows.sort_unstable();
    let mut trace = Trace::new();
    if wakes {
        trace.waking(0, MS / 2, 1, 9, 0, 0);
    }
    for (at, cpu, prev, next) in rows {
        if stirred && cpu == 1 {
            trace.waking(1, at - US, 0, 9, 1, irq::HARDIRQ);
        }
        trace.switch(cpu, at, prev, State::Runnable, next);
    }
    trace
}

#[test]
fn what_leaves_between_ticks_that_only_preemptions_tell_has_yielded() {
    let yields = |trace: &Trace, tid| {
        let recon = trace.programs();
        (steps(&recon, tid).iter().filter(|s| matches!(s, Step::Yield)).count(), recon.overheads.tick_source)
    };
    let every_tick = |turn: i64| 4 * MS + turn % 3 * 20 * US - (turn + 2) % 3 * 20 * US;
    let trace = two_that_spin(every_tick, 3 * US, true, false);
    let (n, source) = yields(&trace, 3);
    assert_eq!(source, TickSource::Preemptions);
    assert!((400..500).contains(&n), "{n} of 500 turns; those around the tick may be preemptions");
    assert_eq!(yields(&trace, 1).0, 0, "a hog that has used up its time yields");
    assert!(trace.programs().uncaused < 100, "most causes are known");
    // Nothing shows ticks where slices end at any time, as high-resolution ticks make them end. These end
    // slices of 0.1 ms and more: turns of 150 us can be such slices, turns of 3 us are no clock's.
    let any_time = |turn: i64| 4 * MS + turn * 77 * US;
    assert_eq!(yields(&two_that_spin(any_time, 150 * US, true, false), 3).0, 0);
    let crowd = two_that_spin(any_time, 3 * US, true, false);
    assert_eq!(yields(&crowd, 3), (499, TickSource::Unknown), "of 500 turns");
    assert_eq!(yields(&crowd, 1).0, 0, "a hog among slow turns yields");
    // Without records of wakeups, and where there was one, a wakeup can be why.
    for spin in [150 * US, 3 * US] {
        assert_eq!(yields(&two_that_spin(every_tick, spin, false, false), 3).0, 0);
        assert_eq!(yields(&two_that_spin(every_tick, spin, true, true), 3).0, 0);
    }
}

#[test]
fn a_recorded_exit_is_an_exit_however_late_it_comes() {
    let mut trace = two_hogs(State::Preempted);
    trace.about(Kind::Exit, 0, 398 * MS, 2, 2, 0);
    trace.switch(0, 399 * MS, 2, State::Dead, 1);
    trace.switch(0, 402 * MS, 1, State::Preempted, 3);
    let recon = trace.programs();
    assert!(has(&recon, 2, |s| matches!(s, Step::Exit)));
    let ran: i64 = steps(&recon, 2).iter().map(|s| if let Step::Run { ns } = s { *ns } else { 0 }).sum();
    assert!(ran < 400 * MS, "it ends after what it ran: {ran}");
}

#[test]
fn a_task_that_its_reaper_killed_has_no_end_of_its_own() {
    // Task 9 sleeps until the last; it runs, and the two exit as soon as they come back.
    let mut trace = two_hogs(State::Preempted);
    trace.waking(0, 398 * MS, 2, 9, 0, irq::HARDIRQ);
    trace.switch(0, 399 * MS, 2, State::Preempted, 9);
    trace.switch(0, 400 * MS, 9, State::Sleeping, 1);
    for (at, tid, next) in [(401 * MS, 1, 9), (403 * MS, 2, 9)] {
        trace.about(Kind::Exit, 0, at, tid, tid, 0);
        trace.waking(0, at + US, tid, 9, 0, 0);
        trace.switch(0, at + MS / 10, tid, State::Dead, next);
        trace.switch(0, at + MS / 2, 9, State::Sleeping, if tid == 1 { 2 } else { 0 });
    }
    let recon = trace.programs();
    for tid in [1, 2] {
        let endless = recon.work.tasks.iter().zip(&recon.verdicts).find(|(p, _)| p.tid == tid).expect("it is there").1;
        assert!(endless.endless, "task {tid}");
    }
}

#[test]
fn a_wait_finds_the_child_that_was_not_reaped_before() {
    let mut trace = Trace::new();
    trace.switch(0, MS, 0, State::Runnable, 10);
    let child = |trace: &mut Trace, at: i64, tid: i64| {
        trace.about(Kind::Fork, 0, at, 10, tid, 0);
        trace.about(Kind::WakeupNew, 0, at + US, 10, tid, 0);
        if let Some(mut row) = trace.events.last() {
            row.target_cpu(1);
        }
        trace.switch(1, at + 2 * US, 0, State::Runnable, tid);
    };
    child(&mut trace, 2 * MS, 11);
    trace.about(Kind::Wait, 0, 3 * MS, 10, 0, 0);
    trace.switch(0, 3 * MS + US, 10, State::Sleeping, 0);
    trace.about(Kind::Exit, 1, 5 * MS, 11, 11, 0);
    trace.waking(1, 5 * MS + US, 11, 10, 0, 0);
    trace.switch(1, 5 * MS + 2 * US, 11, State::Zombie, 0);
    trace.switch(0, 5 * MS + 3 * US, 0, State::Runnable, 10);
    child(&mut trace, 6 * MS, 12);
    trace.about(Kind::Exit, 1, 8 * MS, 12, 12, 0);
    trace.switch(1, 8 * MS + US, 12, State::Zombie, 0);
    trace.about(Kind::Wait, 0, 10 * MS, 10, 0, 0);
    trace.about(Kind::Exit, 0, 11 * MS, 10, 10, 0);
    trace.switch(0, 11 * MS + US, 10, State::Zombie, 0);
    let recon = trace.programs();
    let parent = recon.work.tasks.iter().position(|p| p.tid == 10).expect("the parent");
    let reaped =
        recon.notes[parent].iter().find(|n| n.evidence == Evidence::Reaped).expect("a wait that found a child");
    assert_eq!(reaped.partner, Some(12));
}

#[test]
fn cpus_are_counted_and_keep_their_numbers() {
    let mut trace = Trace::new();
    for cpu in [6, 5_000] {
        trace.switch(cpu, MS + i64::from(cpu), 0, State::Runnable, i64::from(cpu));
        trace.switch(cpu, 2 * MS + i64::from(cpu), i64::from(cpu), State::Sleeping, 0);
    }
    let spec = ReplaySpec { policy: "fifo".into(), overheads: false, ..ReplaySpec::default() };
    let (recon, run) = replay(&trace.events, &trace.strings, &spec, &mut |_| true).expect("it runs");
    assert_eq!(recon.cpus, [6, 5_000]);
    let mut seen: Vec<i32> = (0..run.out.events.len()).filter_map(|row| run.out.events.cpu.get(row)).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [6, 5_000]);
}

#[test]
fn reading_takes_time_in_proportion_to_the_records() {
    // With a search through all that a task did at every switch, this takes minutes.
    let mut trace = Trace::new();
    for i in 0..100_000 {
        let at = MS + i * 50 * US;
        trace.switch(0, at, 0, State::Runnable, 7);
        trace.switch(0, at + 20 * US, 7, State::Sleeping, 0);
        trace.waking(0, at + 49 * US, 0, 7, 0, irq::HARDIRQ);
    }
    let recon = trace.programs();
    let timers =
        steps(&recon, 7).iter().filter(|s| matches!(s, Step::Pause { pause: Pause::Timer { .. }, .. })).count();
    assert!(timers > 90_000, "{timers}");
}

#[test]
fn a_wakeup_that_overtakes_the_sleepers_switch_is_a_dependency() {
    let mut trace = Trace::new();
    trace.switch(0, MS, 0, State::Runnable, 20);
    trace.switch(1, MS + US, 0, State::Runnable, 21);
    for i in 1..=50 {
        let at = MS + i * MS;
        trace.waking(0, at, 20, 21, 1, 0);
        trace.switch(1, at + 3 * US, 21, State::Sleeping, 0);
        trace.switch(1, at + 8 * US, 0, State::Runnable, 21);
    }
    trace.switch(0, 52 * MS, 20, State::Sleeping, 0);
    let recon = trace.programs();
    assert_eq!(steps(&recon, 20).iter().filter(|s| matches!(s, Step::Post { .. })).count(), 50);
    assert!(steps(&recon, 21).iter().filter(|s| matches!(s, Step::Wait { .. })).count() >= 50);
    assert_eq!(recon.classes[0], 50, "{:?}", recon.classes);
}

#[test]
fn who_wrote_the_waking_wakes_though_another_cpu_writes_the_wakeup() {
    let mut trace = Trace::new();
    trace.switch(0, MS, 0, State::Runnable, 20);
    trace.switch(1, MS + US, 0, State::Runnable, 21);
    trace.waking(0, 2 * MS, 20, 21, 1, 0);
    trace.switch(1, 2 * MS + 3 * US, 21, State::Sleeping, 0);
    trace.about(Kind::Wakeup, 1, 2 * MS + 5 * US, 0, 21, irq::HARDIRQ);
    trace.switch(1, 2 * MS + 8 * US, 0, State::Runnable, 21);
    trace.switch(1, 3 * MS, 21, State::Sleeping, 0);
    trace.switch(0, 4 * MS, 20, State::Sleeping, 0);
    let recon = trace.programs();
    assert!(has(&recon, 20, |s| matches!(s, Step::Post { .. })));
    assert_eq!(recon.classes[0], 1, "{:?}", recon.classes);
}

#[test]
fn idle_threads_of_other_systems_are_no_tasks() {
    let mut trace = Trace::new();
    let name = trace.strings.intern(b"idle: cpu0");
    for i in 0..20 {
        trace.switch(0, MS + 2 * i * MS, 10, State::Runnable, 11);
        if let Some(mut row) = trace.events.last() {
            row.comm(name);
        }
        trace.switch(0, 2 * MS + 2 * i * MS, 11, State::Sleeping, 10);
        if let Some(mut row) = trace.events.last() {
            row.next_comm(name);
        }
    }
    let options = Options { idle: IdleRule::NamedIdle, ..Options::default() };
    let recon = reconstruct(&trace.events, &trace.strings, &options);
    let tids: Vec<i64> = recon.work.tasks.iter().map(|p| p.tid).collect();
    assert_eq!(tids, [11]);
}

#[test]
fn a_loss_ends_what_is_known_and_is_cut_out() {
    let mut trace = Trace::new();
    trace.switch(0, MS, 0, State::Runnable, 1);
    trace.switch(0, 5 * MS, 1, State::Preempted, 2);
    trace.switch(0, 9 * MS, 2, State::Preempted, 1);
    trace.events.push().ts_ns(30 * MS).cpu(0).kind(Kind::Lost).quality(0);
    trace.switch(0, 34 * MS, 2, State::Preempted, 1);
    trace.switch(0, 38 * MS, 1, State::Sleeping, 0);
    let recon = trace.programs();
    assert_eq!((recon.cut, recon.span), (21 * MS, 16 * MS));
    let ran = |tid| steps(&recon, tid).iter().map(|s| if let Step::Run { ns } = s { *ns } else { 0 }).sum::<i64>();
    assert_eq!(ran(1), 8 * MS);
}

#[test]
fn the_caller_may_say_that_a_task_would_have_gone_on() {
    let mut trace = two_hogs(State::Preempted);
    trace.about(Kind::Exit, 0, 300 * MS, 2, 2, 0);
    trace.switch(0, 399 * MS, 2, State::Dead, 1);
    let options = Options { endless: vec![2], ..Options::default() };
    let recon = reconstruct(&trace.events, &trace.strings, &options);
    assert!(!has(&recon, 2, |s| matches!(s, Step::Exit)));
    assert!(has(&trace.programs(), 2, |s| matches!(s, Step::Exit)));
}
