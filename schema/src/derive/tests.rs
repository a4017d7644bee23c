//! One hand-written sequence of records for each rule.

use super::made::Trace;
use super::*;
use crate::events::irq;
use crate::tables::flag;
use crate::{Code, State};

/// (ts, dur, cpu, tid) of each slice.
fn slices(d: &Derived) -> Vec<(i64, i64, i32, i64)> {
    let s = &d.slices;
    (0..s.len())
        .map(|i| (s.ts_ns.get(i).unwrap(), s.dur_ns.get(i).unwrap(), s.cpu.get(i).unwrap_or(-1), s.tid.get(i).unwrap()))
        .collect()
}

/// (ts, dur, state) of each interval of a thread.
fn states(d: &Derived, tid: i64) -> Vec<(i64, i64, State)> {
    let s = &d.states;
    (0..s.len())
        .filter(|&i| s.tid.get(i) == Some(tid))
        .map(|i| (s.ts_ns.get(i).unwrap(), s.dur_ns.get(i).unwrap(), s.state.get(i).unwrap()))
        .collect()
}

/// (ts, running, waiting) of each row of a CPU's queue.
fn queue(d: &Derived, cpu: Option<i32>) -> Vec<(i64, i32, i32)> {
    let q = &d.runqueue;
    (0..q.len())
        .filter(|&i| q.cpu.get(i) == cpu)
        .map(|i| (q.ts_ns.get(i).unwrap(), q.nr_running.get(i).unwrap(), q.nr_waiting.get(i).unwrap()))
        .collect()
}

#[test]
fn sleep_wakeup_run_sleep() {
    let mut t = Trace::default();
    t.switch(100, 0, 1, State::Runnable, 7).next_prio(120);
    t.switch(200, 0, 7, State::Sleeping, 0);
    t.wake(300, 0, Kind::Waking, 0, 7, 0).irq_flags(irq::HARDIRQ);
    t.wake(305, 0, Kind::Wakeup, 0, 7, 0).irq_flags(irq::HARDIRQ);
    t.switch(310, 0, 0, State::Runnable, 7);
    t.switch(350, 0, 7, State::Blocked, 1);
    t.wake(360, 0, Kind::Waking, 1, 7, 0);
    t.switch(400, 0, 1, State::Preempted, 7);
    t.switch(430, 0, 7, State::Sleeping, 1);
    let d = t.derive();
    assert_eq!(
        slices(&d),
        [(100, 0, 0, 1), (100, 100, 0, 7), (310, 40, 0, 7), (350, 50, 0, 1), (400, 30, 0, 7), (430, 0, 0, 1)]
    );
    let s = &d.slices;
    assert_eq!(s.flags.get(0), Some(flag::OPEN_START));
    assert_eq!((s.run_delay_ns.get(1), s.wake_ts_ns.get(1), s.sleep_ns.get(1)), (None, None, None));
    assert_eq!(s.prio.get(1), Some(120));
    // The first of waking and wakeup counts; in an interrupt there is no waker.
    assert_eq!((s.run_delay_ns.get(2), s.wake_ts_ns.get(2), s.sleep_ns.get(2)), (Some(10), Some(300), Some(100)));
    assert_eq!((s.waker_utid.get(2), s.waker_cpu.get(2), s.flags.get(2)), (None, Some(0), Some(flag::IRQ_WAKEUP)));
    assert_eq!((s.blocked.get(2), s.involuntary.get(2)), (Some(false), Some(false)));
    // Thread 1 was preempted at 100 and ran again at 350.
    assert_eq!((s.run_delay_ns.get(3), s.wake_ts_ns.get(3), s.involuntary.get(3)), (Some(250), None, Some(true)));
    assert_eq!((s.blocked.get(4), s.sleep_ns.get(4), s.run_delay_ns.get(4)), (Some(true), Some(10), Some(40)));
    assert_eq!(s.waker_utid.get(4), s.utid.get(0));
    assert_eq!((s.seq_in.get(4), s.seq_out.get(4)), (Some(7), Some(8)));
    assert_eq!((s.flags.get(5), s.end_state.get(5), s.involuntary.get(5)), (Some(flag::OPEN_END), None, None));
    assert_eq!(
        states(&d, 7),
        [
            (100, 100, State::Running),
            (200, 100, State::Sleeping),
            (300, 10, State::Runnable),
            (310, 40, State::Running),
            (350, 10, State::Blocked),
            (360, 40, State::Runnable),
            (400, 30, State::Running),
            (430, 0, State::Sleeping),
        ]
    );
    assert_eq!(
        (d.cpus.busy_ns.get(0), d.cpus.idle_ns.get(0), d.cpus.unknown_ns.get(0)),
        (Some(220), Some(110), Some(0))
    );
    let of_seven = (0..d.tasks.len()).find(|&i| d.tasks.tid.get(i) == Some(7)).unwrap();
    assert_eq!((d.tasks.run_ns.get(of_seven), d.tasks.nr_slices.get(of_seven)), (Some(170), Some(3)));
    assert_eq!((d.tasks.nr_voluntary.get(of_seven), d.tasks.nr_involuntary.get(of_seven)), (Some(3), Some(0)));
}

#[test]
fn a_wakeup_of_a_runnable_or_running_task_changes_nothing() {
    let mut t = Trace::default();
    t.switch(0, 0, 1, State::Preempted, 2);
    t.wake(5, 0, Kind::Wakeup, 2, 1, 0);
    t.wake(6, 0, Kind::Wakeup, 2, 2, 0);
    t.switch(10, 0, 2, State::Preempted, 1);
    t.switch(20, 0, 1, State::Sleeping, 2);
    let d = t.derive();
    let s = &d.slices;
    assert_eq!(slices(&d)[2], (10, 10, 0, 1));
    assert_eq!((s.run_delay_ns.get(2), s.wake_ts_ns.get(2), s.sleep_ns.get(2)), (Some(10), None, None));
    assert_eq!((s.run_delay_ns.get(3), s.wake_ts_ns.get(3)), (Some(10), None));
}

#[test]
fn without_wakeups_the_delay_after_a_sleep_is_null() {
    let mut t = Trace::default();
    t.switch(0, 0, 1, State::Sleeping, 0);
    t.switch(50, 0, 0, State::Runnable, 1);
    t.switch(60, 0, 1, State::Preempted, 2);
    t.switch(70, 0, 2, State::Sleeping, 1);
    let (d, diagnostics) = t.derive_with(DeriveOptions::default());
    let delays: Vec<_> = (0..d.slices.len()).map(|i| d.slices.run_delay_ns.get(i)).collect();
    assert_eq!(delays, [None, None, None, Some(10)]);
    assert_eq!(diagnostics.count(Code::MissingEvents), 1);
    assert_eq!(states(&d, 1)[1], (0, 50, State::Sleeping));
    assert_eq!(d.states.flags.get(1).unwrap() & flag::INFERRED_END, flag::INFERRED_END);
}

#[test]
fn a_waking_that_overtakes_the_switch_counts_when_no_other_follows() {
    let mut t = Trace::default();
    t.switch(0, 1, 0, State::Runnable, 9);
    t.switch(0, 0, 0, State::Runnable, 1);
    t.wake(98, 1, Kind::Waking, 9, 1, 0);
    t.switch(100, 0, 1, State::Blocked, 0);
    t.switch(130, 0, 0, State::Runnable, 1);
    // Again, but the later wakeup gives the time.
    t.wake(198, 1, Kind::Waking, 9, 1, 0);
    t.switch(200, 0, 1, State::Sleeping, 0);
    t.wake(205, 0, Kind::Wakeup, 0, 1, 0);
    t.switch(230, 0, 0, State::Runnable, 1);
    let d = t.derive();
    let s = &d.slices;
    let mine: Vec<_> = (0..s.len()).filter(|&i| s.tid.get(i) == Some(1)).collect();
    let got: Vec<_> = mine.iter().map(|&i| (s.run_delay_ns.get(i), s.wake_ts_ns.get(i), s.sleep_ns.get(i))).collect();
    assert_eq!(got, [(None, None, None), (Some(30), Some(100), Some(0)), (Some(25), Some(205), Some(5))]);
    assert_eq!((s.blocked.get(mine[1]), s.waker_cpu.get(mine[1])), (Some(true), Some(1)));
    assert_eq!(states(&d, 1)[1], (100, 30, State::Runnable));
}

#[test]
fn the_waker_is_the_current_task_and_never_idle() {
    let mut t = Trace::default();
    t.switch(0, 0, 0, State::Runnable, 3);
    t.switch(0, 1, 4, State::Sleeping, 0);
    t.wake(10, 0, Kind::Waking, 3, 4, 1);
    t.switch(12, 1, 0, State::Runnable, 4);
    t.switch(20, 1, 4, State::Sleeping, 0);
    t.wake(30, 1, Kind::Waking, 0, 4, 1);
    t.switch(31, 1, 0, State::Runnable, 4);
    let d = t.derive();
    let s = &d.slices;
    let utid = |tid| d.tasks.utid.get((0..d.tasks.len()).find(|&i| d.tasks.tid.get(i) == Some(tid)).unwrap());
    let mine: Vec<_> = (0..s.len()).filter(|&i| s.tid.get(i) == Some(4)).collect();
    assert_eq!(
        (s.waker_utid.get(mine[1]), s.waker_cpu.get(mine[1]), s.flags.get(mine[1])),
        (utid(3), Some(0), Some(0))
    );
    assert_eq!((s.waker_utid.get(mine[2]), s.waker_cpu.get(mine[2])), (None, Some(1)));
    assert_eq!(s.flags.get(mine[2]), Some(flag::IRQ_WAKEUP | flag::OPEN_END));
    assert_eq!(s.prev_cpu.get(mine[1]), Some(1));
}

#[test]
fn a_wakeup_that_failed_is_none() {
    let mut t = Trace::default();
    t.switch(0, 0, 1, State::Sleeping, 0);
    t.wake(5, 0, Kind::Wakeup, 0, 1, 0).value(0);
    t.wake(9, 0, Kind::Wakeup, 0, 1, 0).value(1);
    t.switch(10, 0, 0, State::Runnable, 1);
    let d = t.derive();
    assert_eq!(d.slices.run_delay_ns.get(1), Some(1));
}

#[test]
fn fork_wakeup_new_run_exit_free_and_the_number_comes_again() {
    let mut t = Trace::default();
    t.switch(0, 0, 0, State::Runnable, 1);
    for round in 0..2 {
        let at = round * 1000;
        t.add(at + 10, 0, Kind::Fork).ctx_tid(1).tid(50);
        t.wake(at + 20, 0, Kind::WakeupNew, 1, 50, 0);
        t.switch(at + 30, 0, 1, State::Preempted, 50);
        t.add(at + 40, 0, Kind::Exit).ctx_tid(50).tid(50);
        t.switch(at + 50, 0, 50, State::Zombie, 1);
        t.add(at + 60, 0, Kind::Free).ctx_tid(1).tid(50);
    }
    let d = t.derive();
    let rows: Vec<_> = (0..d.tasks.len()).filter(|&i| d.tasks.tid.get(i) == Some(50)).collect();
    assert_eq!(rows.len(), 2);
    for (round, &row) in rows.iter().enumerate() {
        let at = round as i64 * 1000;
        let tasks = &d.tasks;
        assert_eq!((tasks.start_ts_ns.get(row), tasks.end_ts_ns.get(row)), (Some(at + 10), Some(at + 40)));
        assert_eq!((tasks.first_ts_ns.get(row), tasks.last_ts_ns.get(row)), (Some(at + 10), Some(at + 60)));
        assert!(tasks.parent_utid.get(row).is_some());
        let utid = tasks.utid.get(row);
        let states: Vec<_> = (0..d.states.len())
            .filter(|&i| d.states.utid.get(i) == utid)
            .map(|i| (d.states.ts_ns.get(i).unwrap() - at, d.states.dur_ns.get(i).unwrap(), d.states.state.get(i)))
            .collect();
        let expected = [
            (10, 10, Some(State::UnknownOff)),
            (20, 10, Some(State::Runnable)),
            (30, 20, Some(State::Running)),
            (50, 10, Some(State::Zombie)),
        ];
        assert_eq!(states, expected);
    }
    let child = (0..d.slices.len()).find(|&i| d.slices.tid.get(i) == Some(50)).unwrap();
    assert_eq!((d.slices.run_delay_ns.get(child), d.slices.sleep_ns.get(child)), (Some(10), None));
}

#[test]
fn a_number_that_comes_back_after_its_end_is_another_task() {
    let mut t = Trace::default();
    t.switch(0, 0, 5, State::Dead, 0);
    t.wake(100, 0, Kind::Waking, 0, 5, 0);
    t.switch(110, 0, 0, State::Runnable, 5);
    // A fork of a number that is still alive: its end was not seen.
    t.switch(120, 0, 5, State::Sleeping, 6);
    t.add(130, 0, Kind::Fork).ctx_tid(6).tid(5);
    t.add(131, 0, Kind::Fork).ctx_tid(6).tid(5);
    t.wake(140, 0, Kind::WakeupNew, 6, 5, 0);
    let d = t.derive();
    let fives = (0..d.tasks.len()).filter(|&i| d.tasks.tid.get(i) == Some(5)).count();
    assert_eq!(fives, 3, "two forks in a row are one recorded twice");
    assert_eq!(d.slices.prev_cpu.get(1), None);
}

#[test]
fn exec_by_another_thread_keeps_the_task_and_ends_the_leader() {
    let mut t = Trace::default();
    let (path, before, after) = (t.strings.intern(b"/bin/x"), t.strings.intern(b"wl"), t.strings.intern(b"x"));
    t.wake(0, 0, Kind::Waking, 0, 10, 0);
    t.switch(1, 0, 0, State::Runnable, 11).next_comm(before);
    t.add(5, 0, Kind::Exec).ctx_tid(10).tid(10).value(11).name(path);
    t.switch(9, 0, 10, State::Sleeping, 0).comm(after);
    let (d, diagnostics) = t.derive_with(DeriveOptions::default());
    assert!(diagnostics.rows().is_empty());
    assert_eq!(slices(&d), [(1, 8, 0, 10)]);
    let row = (0..d.tasks.len()).find(|&i| d.tasks.utid.get(i) == d.slices.utid.get(0)).unwrap();
    assert_eq!(d.tasks.exec_path.get(row), Some(path));
    assert_eq!((d.tasks.comm_first.get(row), d.tasks.comm.get(row)), (Some(before), Some(after)));
    assert_eq!(d.slices.comm.get(0), Some(after), "what was executed in it");
    assert_eq!(d.tasks.len(), 3, "the leader that ended, the thread, and idle");
}

#[test]
fn another_task_leaves_than_the_one_that_ran() {
    let mut t = Trace::default();
    t.switch(0, 0, 0, State::Runnable, 1);
    t.add(40, 0, Kind::StatRuntime).ctx_tid(1).tid(1).value(40);
    t.switch(100, 0, 2, State::Preempted, 3);
    t.switch(150, 0, 3, State::Sleeping, 2);
    let (d, diagnostics) = t.derive_with(DeriveOptions::default());
    assert_eq!(diagnostics.count(Code::SwitchMismatch), 1);
    assert_eq!(slices(&d), [(0, 40, 0, 1), (100, 50, 0, 3), (150, 0, 0, 2)]);
    assert_eq!(d.slices.flags.get(0), Some(flag::INFERRED_END));
    assert_eq!(d.cpus.unknown_ns.get(0), Some(60));
    assert_eq!(d.slices.run_delay_ns.get(2), Some(50), "it left runnable at 100");
}

#[test]
fn a_switch_from_idle_that_is_missing_is_inferred() {
    let mut t = Trace::default();
    t.switch(0, 0, 1, State::Sleeping, 0);
    t.switch(0, 1, 0, State::Runnable, 9);
    t.wake(100, 1, Kind::Waking, 9, 1, 0);
    // The kernel charged 30 ns by now; the next one ran since its wakeup, as far as anybody knows.
    t.add(140, 0, Kind::StatRuntime).ctx_tid(1).tid(1).value(30);
    t.switch(150, 0, 1, State::Sleeping, 0);
    t.wake(200, 1, Kind::Waking, 9, 1, 0);
    t.switch(250, 0, 1, State::Sleeping, 0);
    // Nobody woke it: a record while it is on its way out shows nothing, and a switch is a contradiction.
    t.add(251, 0, Kind::StatRuntime).ctx_tid(1).tid(1).value(30);
    t.switch(300, 0, 1, State::Sleeping, 0);
    // A wakeup that overtakes its switch, and one that is not recorded either.
    t.wake(395, 1, Kind::Waking, 9, 1, 0);
    t.switch(400, 0, 0, State::Runnable, 1);
    t.wake(409, 1, Kind::Waking, 9, 1, 0);
    t.switch(410, 0, 1, State::Sleeping, 0);
    t.switch(430, 0, 1, State::Sleeping, 0);
    t.add(490, 0, Kind::StatRuntime).ctx_tid(1).tid(1).value(40);
    t.switch(500, 0, 1, State::Sleeping, 0);
    // Charged from another CPU, and woken anew before any record shows that it ran.
    t.wake(600, 1, Kind::Waking, 9, 1, 0);
    t.add(650, 1, Kind::StatRuntime).ctx_tid(9).tid(1).value(45);
    t.add(690, 0, Kind::StatRuntime).ctx_tid(1).tid(1).value(40);
    t.switch(700, 0, 1, State::Sleeping, 0);
    t.wake(800, 1, Kind::Waking, 9, 1, 0);
    t.wake(838, 1, Kind::Waking, 9, 1, 0);
    t.add(840, 0, Kind::StatRuntime).ctx_tid(1).tid(1).value(35);
    t.switch(841, 0, 1, State::Sleeping, 0);
    t.add(860, 0, Kind::StatRuntime).ctx_tid(1).tid(1).value(15);
    t.switch(861, 0, 1, State::Sleeping, 0);
    let (d, diagnostics) = t.derive_with(DeriveOptions::default());
    assert_eq!(slices(&d)[7..], [(605, 95, 0, 1), (805, 36, 0, 1), (845, 16, 0, 1)]);
    assert_eq!(slices(&d)[2..7], [(110, 40, 0, 1), (200, 50, 0, 1), (400, 10, 0, 1), (410, 20, 0, 1), (450, 50, 0, 1)]);
    assert_eq!(d.slices.flags.get(2), Some(flag::INFERRED_START));
    let delays: Vec<_> = (2..10).map(|i| d.slices.run_delay_ns.get(i)).collect();
    assert_eq!(delays, [Some(10), Some(0), Some(5), Some(0), None, Some(5), Some(5), Some(4)]);
    assert_eq!((diagnostics.count(Code::SwitchInferred), diagnostics.count(Code::SwitchMismatch)), (7, 1));
    assert_eq!(d.cpus.busy_ns.get(0), Some(317));
}

#[test]
fn a_switch_from_a_task_that_is_missing_is_inferred() {
    let mut t = Trace::default();
    t.switch(0, 0, 3, State::Sleeping, 1);
    t.switch(0, 1, 0, State::Runnable, 9);
    t.wake(10, 1, Kind::Waking, 9, 2, 0);
    // Charged from another CPU, and with what it ran there: neither shows that it has this one.
    t.add(40, 1, Kind::StatRuntime).ctx_tid(9).tid(2).value(20);
    t.add(50, 0, Kind::StatRuntime).ctx_tid(1).tid(1).value(50);
    // The kernel charges what ran for 30 ns, so that the other one left 30 ns ago.
    t.add(100, 0, Kind::StatRuntime).ctx_tid(2).tid(2).value(30);
    t.switch(120, 0, 2, State::Sleeping, 1);
    t.add(121, 0, Kind::StatRuntime).ctx_tid(2).tid(2).value(20);
    // The idle thread wakes somebody.
    t.wake(200, 0, Kind::Waking, 0, 2, 0);
    t.switch(205, 0, 0, State::Runnable, 2);
    t.switch(300, 0, 2, State::Sleeping, 0);
    let (d, diagnostics) = t.derive_with(DeriveOptions::default());
    let here: Vec<_> = slices(&d).into_iter().filter(|s| s.2 == 0).collect();
    assert_eq!(here[1..], [(0, 70, 0, 1), (70, 50, 0, 2), (120, 1, 0, 1), (205, 95, 0, 2)]);
    assert_eq!((diagnostics.count(Code::SwitchInferred), diagnostics.count(Code::SwitchMismatch)), (2, 0));
    let flags =
        |ts| (0..d.slices.len()).find(|&i| d.slices.ts_ns.get(i) == Some(ts)).and_then(|i| d.slices.flags.get(i));
    assert_eq!([flags(70), flags(120)], [Some(flag::INFERRED_START), Some(flag::INFERRED_END)]);
    assert_eq!((d.cpus.idle_ns.get(0), d.cpus.busy_ns.get(0)), (Some(84), Some(216)));
}

#[test]
fn lost_records_end_what_is_known() {
    let mut t = Trace::default();
    t.switch(0, 0, 0, State::Runnable, 1);
    t.switch(0, 1, 0, State::Runnable, 9);
    t.wake(10, 0, Kind::Wakeup, 1, 2, 0);
    t.add(100, 0, Kind::Lost).value(5);
    t.add(120, 0, Kind::StatRuntime).ctx_tid(3).tid(3);
    t.switch(150, 0, 3, State::Sleeping, 2);
    t.switch(180, 0, 2, State::Sleeping, 0);
    let (d, diagnostics) = t.derive_with(DeriveOptions::default());
    assert!(diagnostics.rows().is_empty());
    assert_eq!(slices(&d), [(0, 10, 0, 1), (0, 180, 1, 9), (100, 50, 0, 3), (150, 30, 0, 2)]);
    assert_eq!(d.slices.flags.get(0), Some(flag::CROSSES_LOSS));
    assert_eq!(d.slices.flags.get(1), Some(flag::OPEN_END), "the other CPU lost nothing");
    assert_eq!(d.slices.flags.get(2), Some(flag::CROSSES_LOSS));
    assert_eq!(d.slices.run_delay_ns.get(3), None, "it may have run during the loss");
    assert_eq!(states(&d, 2)[..2], [(10, 0, State::Runnable), (10, 140, State::Unknown)]);
    assert_eq!(states(&d, 1), [(0, 10, State::Running), (10, 170, State::Unknown)]);
    assert_eq!((d.cpus.unknown_ns.get(0), d.cpus.nr_lost.get(0), d.cpus.nr_lost.get(1)), (Some(90), Some(5), Some(0)));
    let q = queue(&d, Some(0));
    assert_eq!(q, [(0, 1, 0), (10, 1, 1), (100, 0, 0), (120, 1, 0), (180, 0, 0)]);
}

#[test]
fn a_loss_nobody_can_place_concerns_all_cpus() {
    let mut t = Trace::default();
    t.switch(0, 0, 0, State::Runnable, 1);
    t.switch(0, 1, 0, State::Runnable, 2);
    t.switch(5, 1, 2, State::Sleeping, 0);
    t.events.push().ts_ns(50).seq(3).kind(Kind::Lost).quality(0);
    t.wake(60, 0, Kind::Waking, 1, 2, 1);
    let d = t.derive();
    assert_eq!(slices(&d), [(0, 0, 0, 1), (0, 5, 1, 2), (50, 10, 0, 1)]);
    assert_eq!((d.cpus.nr_lost.get(0), d.cpus.nr_lost.get(1)), (None, None));
    assert_eq!(d.cpus.unknown_ns.get(1), Some(55));
    let asleep = (0..d.states.len()).find(|&i| d.states.state.get(i) == Some(State::Sleeping)).unwrap();
    assert_eq!(d.states.flags.get(asleep), Some(flag::CROSSES_LOSS));
}

#[test]
fn half_switches() {
    let mut t = Trace::default();
    t.add(0, 0, Kind::Switch).next_tid(1);
    t.add(10, 0, Kind::Switch).tid(1).state(State::Preempted);
    t.add(12, 0, Kind::Switch).next_tid(2);
    t.add(20, 0, Kind::Switch).next_tid(1);
    // Both halves and the whole of one switch.
    t.add(30, 0, Kind::Switch).tid(1).state(State::Sleeping);
    t.switch(31, 0, 1, State::Sleeping, 2);
    t.add(32, 0, Kind::Switch).next_tid(2);
    t.add(40, 0, Kind::Switch).tid(2).state(State::Sleeping);
    let (d, diagnostics) = t.derive_with(DeriveOptions::default());
    assert_eq!(diagnostics.count(Code::SwitchMismatch), 0);
    assert_eq!(slices(&d), [(0, 10, 0, 1), (12, 8, 0, 2), (20, 10, 0, 1), (31, 9, 0, 2)]);
    assert_eq!(d.slices.end_state.get(1), None);
    assert_eq!(d.slices.run_delay_ns.get(2), Some(10));
    assert_eq!((d.cpus.unknown_ns.get(0), d.cpus.nr_switches.get(0)), (Some(3), Some(4)));
}

#[test]
fn resume_confirms_begins_or_contradicts() {
    let mut t = Trace::default();
    t.add(0, 0, Kind::Resume).tid(1);
    t.add(5, 0, Kind::Resume).tid(1);
    t.switch(10, 0, 1, State::Preempted, 2);
    t.add(11, 0, Kind::Resume).tid(2);
    t.add(20, 0, Kind::Resume).tid(3);
    let (d, diagnostics) = t.derive_with(DeriveOptions::default());
    assert_eq!(slices(&d), [(0, 10, 0, 1), (10, 10, 0, 2), (20, 0, 0, 3)]);
    assert_eq!(d.slices.flags.get(1), Some(flag::INFERRED_END));
    assert_eq!(diagnostics.count(Code::SwitchMismatch), 1);
}

#[test]
fn a_dispatch_of_the_running_thread_is_no_switch() {
    let mut t = Trace::default();
    t.switch(0, 0, 1, State::Runnable, 2);
    t.switch(10, 0, 2, State::Runnable, 2);
    t.switch(20, 0, 2, State::Runnable, 1);
    let d = t.derive();
    assert_eq!(slices(&d)[1], (0, 20, 0, 2));
}

#[test]
fn the_running_task_says_how_it_will_leave() {
    let leaves = |kind: Option<Kind>, state: Option<State>| {
        let mut t = Trace::default();
        t.add(0, 0, Kind::Switch).tid(8).next_tid(1);
        if let Some(kind) = kind {
            t.add(5, 0, kind).ctx_tid(1);
        }
        t.add(10, 0, Kind::Switch).tid(1).next_tid(8).state(state);
        let d = t.derive();
        (d.slices.end_state.get(1), d.slices.involuntary.get(1))
    };
    assert_eq!(leaves(None, None), (None, None));
    assert_eq!(leaves(Some(Kind::Sleep), None), (Some(State::Sleeping), Some(false)));
    assert_eq!(leaves(Some(Kind::LockWait), None), (Some(State::WaitingLock), Some(false)));
    assert_eq!(leaves(Some(Kind::Preempt), None), (Some(State::Preempted), Some(true)));
    assert_eq!(leaves(Some(Kind::Yield), None), (Some(State::Yielding), Some(false)));
    assert_eq!(leaves(Some(Kind::Yield), Some(State::Runnable)), (Some(State::Runnable), Some(false)));
    assert_eq!(leaves(Some(Kind::Remain), Some(State::Runnable)), (Some(State::Runnable), Some(true)));
}

#[test]
fn yields_count_as_involuntary_switches_where_they_are_not_recorded() {
    let mut t = Trace::default();
    t.add(0, 0, Kind::Switch).tid(8).next_tid(1);
    t.add(10, 0, Kind::Switch).tid(1).next_tid(8).state(State::Yielding);
    let (d, _) = t.derive_with(DeriveOptions { yields_recorded: false, ..DeriveOptions::default() });
    assert_eq!((d.slices.end_state.get(1), d.slices.involuntary.get(1)), (Some(State::Yielding), Some(true)));
}

#[test]
fn estimated_queues_follow_wakeups_migrations_and_switches() {
    let mut t = Trace::default();
    t.switch(0, 0, 0, State::Runnable, 1);
    t.switch(0, 1, 0, State::Runnable, 2);
    t.wake(10, 0, Kind::Waking, 1, 3, 0);
    t.add(11, 0, Kind::Migrate).ctx_tid(1).tid(3).orig_cpu(0).target_cpu(1);
    t.wake(12, 0, Kind::Wakeup, 1, 3, 1);
    t.wake(15, 0, Kind::Wakeup, 1, 4, 1);
    t.switch(20, 1, 2, State::Preempted, 3);
    t.add(25, 0, Kind::Migrate).ctx_tid(1).tid(4).orig_cpu(1).target_cpu(0);
    t.switch(30, 0, 1, State::Sleeping, 4);
    t.switch(40, 1, 3, State::Sleeping, 2);
    t.switch(50, 1, 2, State::Sleeping, 0);
    let d = t.derive();
    assert_eq!(queue(&d, Some(0)), [(0, 1, 0), (10, 1, 1), (11, 1, 0), (25, 1, 1), (30, 1, 0)]);
    let one = [(0, 1, 0), (11, 1, 1), (15, 1, 2), (25, 1, 1), (40, 1, 0), (50, 0, 0)];
    assert_eq!(queue(&d, Some(1)), one);
    let ready =
        (0..d.states.len()).find(|&i| d.states.tid.get(i) == Some(4) && d.states.state.get(i) == Some(State::Runnable));
    assert_eq!(d.states.cpu.get(ready.unwrap()), Some(0));
}

#[test]
fn a_wakeup_without_a_cpu_is_unplaced() {
    let mut t = Trace::default();
    t.switch(0, 0, 0, State::Runnable, 1);
    t.add(5, 0, Kind::Wakeup).ctx_tid(1).tid(2);
    t.switch(9, 0, 1, State::Preempted, 2);
    let d = t.derive();
    assert_eq!(queue(&d, None), [(5, 0, 1), (9, 0, 0)]);
    assert_eq!(queue(&d, Some(0)), [(0, 1, 0), (9, 1, 1)]);
}

#[test]
fn queue_operations_are_exact() {
    let mut t = Trace::default();
    t.switch(0, 0, 0, State::Runnable, 1);
    t.add(10, 0, Kind::Wakeup).ctx_tid(1).tid(2);
    t.add(11, 0, Kind::Enqueue).ctx_tid(1).tid(2).target_cpu(3);
    t.add(12, 0, Kind::Enqueue).ctx_tid(1).tid(1).target_cpu(0);
    t.switch(13, 0, 1, State::Runnable, 0);
    t.add(14, 3, Kind::Dequeue).ctx_tid(0).tid(2).target_cpu(3);
    t.switch(15, 3, 0, State::Runnable, 2);
    t.add(16, 0, Kind::Enqueue).ctx_tid(0).tid(5);
    t.wake(17, 3, Kind::Wakeup, 2, 6, 3);
    let d = t.derive();
    assert_eq!(queue(&d, Some(3)), [(11, 0, 1), (14, 0, 0), (15, 1, 0)]);
    assert_eq!(queue(&d, Some(0)), [(0, 1, 0), (13, 0, 1), (14, 0, 1)], "the last only says that it is exact now");
    assert_eq!(queue(&d, None), [(10, 0, 1), (11, 0, 0), (16, 0, 1)]);
    assert_eq!(d.runqueue.flags.get(d.runqueue.len() - 2), Some(0));
    assert_eq!(d.slices.wake_ts_ns.get(1), Some(10), "an enqueue after the wakeup does not reset it");
}

#[test]
fn stated_lengths_win() {
    let mut t = Trace::default();
    t.switch(0, 0, 0, State::Runnable, 1);
    t.wake(5, 0, Kind::Wakeup, 1, 2, 0);
    t.add(6, 0, Kind::Load).target_cpu(0).value(3);
    t.switch(9, 0, 1, State::Preempted, 2);
    t.add(12, 0, Kind::Load).target_cpu(0).value(1);
    let d = t.derive();
    assert_eq!(queue(&d, Some(0)), [(0, 1, 0), (5, 1, 1), (6, 1, 2), (12, 1, 0)]);
    assert_eq!(d.runqueue.flags.get(3), Some(0));
}

#[test]
fn a_task_on_two_cpus_is_repaired() {
    let mut t = Trace::default();
    t.switch(0, 0, 0, State::Runnable, 1);
    t.switch(0, 1, 9, State::Sleeping, 0);
    t.switch(100, 1, 0, State::Runnable, 1);
    t.switch(103, 0, 1, State::Preempted, 2);
    t.switch(120, 1, 1, State::Sleeping, 0);
    let (d, diagnostics) = t.derive_with(DeriveOptions::default());
    assert_eq!(slices(&d), [(0, 100, 0, 1), (0, 0, 1, 9), (100, 20, 1, 1), (103, 17, 0, 2)]);
    assert_eq!(diagnostics.count(Code::ClockSkew), 1);
    assert_eq!(diagnostics.count(Code::SwitchMismatch), 0);
    assert_eq!(d.slices.flags.get(0), Some(flag::INFERRED_END));
}

#[test]
fn a_run_before_its_wakeup_has_no_delay_and_a_flag() {
    let mut t = Trace::default();
    t.switch(0, 0, 0, State::Runnable, 9);
    t.switch(0, 1, 1, State::Sleeping, 0);
    t.switch(100, 1, 0, State::Runnable, 1);
    t.wake(104, 0, Kind::Waking, 9, 1, 1);
    t.switch(150, 1, 1, State::Sleeping, 0);
    let (d, diagnostics) = t.derive_with(DeriveOptions::default());
    let row = (0..d.slices.len()).rfind(|&i| d.slices.tid.get(i) == Some(1)).unwrap();
    assert_eq!((d.slices.run_delay_ns.get(row), d.slices.flags.get(row)), (Some(0), Some(flag::CLAMPED)));
    assert_eq!((d.slices.wake_ts_ns.get(row), d.slices.sleep_ns.get(row)), (Some(100), Some(100)));
    assert_eq!(diagnostics.count(Code::ClockSkew), 1);
}

#[test]
fn time_that_runs_backwards_is_clamped() {
    let mut t = Trace::default();
    t.switch(0, 0, 0, State::Runnable, 1);
    t.switch(100, 0, 1, State::Preempted, 2);
    t.switch(90, 0, 2, State::Preempted, 1);
    t.switch(130, 0, 1, State::Sleeping, 0);
    let (d, diagnostics) = t.derive_with(DeriveOptions::default());
    assert_eq!(slices(&d), [(0, 100, 0, 1), (100, 0, 0, 2), (100, 30, 0, 1)]);
    assert_eq!(d.slices.flags.get(1), Some(flag::CLAMPED));
    assert_eq!(d.cpus.max_backstep_ns.get(0), Some(10));
    assert!(diagnostics.count(Code::ClockSkew) >= 1);
}

#[test]
fn current_threads_count_only_where_switches_are_recorded() {
    let mut t = Trace::default();
    t.add(0, 0, Kind::SysEnter).ctx_tid(1);
    t.wake(5, 0, Kind::Wakeup, 1, 3, 0);
    t.add(10, 0, Kind::SysEnter).ctx_tid(2);
    let d = t.derive();
    assert_eq!(slices(&d), []);
    assert_eq!(d.cpus.unknown_ns.get(0), Some(10));
    assert_eq!(states(&d, 3), [(5, 5, State::Unknown)]);
    // A CPU that never switches, next to one that does: its switches may not be recorded, so that its
    // thread is known to run only while there are records of it.
    t.add(20, 1, Kind::StatRuntime).ctx_tid(5).tid(5);
    t.switch(30, 0, 2, State::Preempted, 1);
    t.add(40, 1, Kind::StatRuntime).ctx_tid(5).tid(5);
    t.switch(50, 0, 1, State::Preempted, 2);
    let d = t.derive();
    assert_eq!(slices(&d), [(10, 20, 0, 2), (20, 20, 1, 5), (30, 20, 0, 1), (50, 0, 0, 2)]);
    assert_eq!(d.slices.flags.get(1), Some(flag::OPEN_START | flag::OPEN_END));
    assert_eq!(states(&d, 5), [(20, 20, State::Running), (40, 10, State::Unknown)]);
    assert_eq!((d.cpus.busy_ns.get(1), d.cpus.unknown_ns.get(1)), (Some(20), Some(30)));
}

#[test]
fn a_source_without_cpus() {
    let mut t = Trace::default();
    let mut add = |ts: i64, from: i64, state: State, to: i64| {
        t.events.push().ts_ns(ts).seq(0).kind(Kind::Switch).quality(0).tid(from).state(state).next_tid(to);
    };
    add(0, 1, State::Sleeping, 2);
    add(10, 3, State::Sleeping, 4);
    add(20, 2, State::Preempted, 0);
    add(30, 4, State::Sleeping, 2);
    let d = t.derive();
    assert_eq!(slices(&d), [(0, 0, -1, 1), (0, 10, -1, 3), (0, 20, -1, 2), (10, 20, -1, 4), (30, 0, -1, 2)]);
    assert_eq!(d.slices.run_delay_ns.get(4), Some(10));
    assert_eq!(d.cpus.len(), 0);
}

#[test]
fn an_idle_thread_is_known_by_the_name_it_wakes_others_under() {
    let mut t = Trace::default();
    let (wait, ksh) = (t.strings.intern(b"wait"), t.strings.intern(b"ksh"));
    // Before any switch, and on a CPU that has none at all.
    t.add(0, 1, Kind::Wakeup).tid(100).ctx_tid(773).ctx_comm(wait);
    t.add(10, 0, Kind::Switch).tid(517).comm(wait).next_tid(100).next_comm(ksh);
    t.add(30, 1, Kind::Wakeup).tid(101).ctx_tid(773).ctx_comm(wait);
    let (d, _) = t.derive_with(DeriveOptions { idle: IdleRule::NamedWait, ..DeriveOptions::default() });
    assert_eq!(slices(&d), [(10, 20, 0, 100)]);
    assert_eq!(d.cpus.idle_ns.get(1), Some(30));
    assert!((0..d.slices.len()).all(|i| d.slices.waker_utid.get(i).is_none()), "idle wakes nobody");
}

#[test]
fn idle_threads_with_numbers_of_their_own() {
    let mut t = Trace::default();
    let (wait, ksh) = (t.strings.intern(b"wait"), t.strings.intern(b"ksh"));
    t.add(0, 0, Kind::Switch).tid(100).next_tid(517).next_comm(wait);
    t.add(10, 0, Kind::Switch).tid(517).next_tid(100).next_comm(ksh);
    t.add(30, 0, Kind::Switch).tid(100).next_tid(517).next_comm(wait);
    t.add(35, 0, Kind::Marker);
    let (d, _) = t.derive_with(DeriveOptions { idle: IdleRule::NamedWait, ..DeriveOptions::default() });
    assert_eq!(slices(&d), [(0, 0, 0, 100), (10, 20, 0, 100)]);
    assert_eq!(d.cpus.idle_ns.get(0), Some(15));
    let idle = (0..d.tasks.len()).find(|&i| d.tasks.is_idle.get(i) == Some(true)).unwrap();
    assert_eq!((d.tasks.tid.get(idle), d.tasks.idle_cpu.get(idle)), (Some(517), Some(0)));
    assert_eq!((d.tasks.run_ns.get(idle), d.tasks.nr_slices.get(idle)), (Some(15), Some(2)));
}

#[test]
fn idle_keys_come_first_when_the_cpus_are_known() {
    let mut t = Trace::default();
    let name = t.strings.intern(b"swapper/1");
    t.switch(0, 1, 9, State::Sleeping, 0).next_comm(name);
    t.switch(5, 1, 0, State::Runnable, 9).comm(name);
    let (d, _) = t.derive_with(DeriveOptions { nr_cpus: 2, ..DeriveOptions::default() });
    assert_eq!(d.tasks.utid.values(), [1, 2]);
    assert_eq!((d.tasks.idle_cpu.get(0), d.tasks.run_ns.get(0), d.tasks.comm.get(0)), (Some(1), Some(5), Some(name)));
}

#[test]
fn names_made_up_by_the_recorder_have_no_time() {
    let mut t = Trace::default();
    let name = t.strings.intern(b"early");
    t.add(0, 0, Kind::Comm).tid(7).comm(name).quality(quality::SYNTHESIZED);
    t.add(0, 0, Kind::Comm).tid(8).comm(name).quality(quality::SYNTHESIZED);
    t.events.clear();
    t.add(1_000_000, 0, Kind::Comm).tid(7).comm(name).quality(quality::SYNTHESIZED);
    t.add(1_000_000, 0, Kind::Comm).tid(8).comm(name).quality(quality::SYNTHESIZED);
    t.switch(1_000_100, 0, 7, State::Sleeping, 0);
    t.switch(1_000_200, 0, 0, State::Runnable, 7);
    let d = t.derive();
    assert_eq!(d.cpus.first_ts_ns.get(0), Some(1_000_100));
    let row = (0..d.tasks.len()).find(|&i| d.tasks.tid.get(i) == Some(7)).unwrap();
    assert_eq!(d.tasks.comm_first.get(row), Some(name));
    assert!((0..d.tasks.len()).all(|i| d.tasks.tid.get(i) != Some(8)), "nothing happened to it");
}

#[test]
fn the_reason_of_a_sleep_may_be_told_after_the_wakeup() {
    let mut t = Trace::default();
    let reason = t.strings.intern(b"io_schedule");
    t.switch(0, 0, 1, State::Blocked, 0);
    t.wake(10, 0, Kind::Waking, 0, 1, 0);
    t.add(11, 0, Kind::BlockedReason).tid(1).reason(reason);
    t.switch(12, 0, 0, State::Runnable, 1);
    let d = t.derive();
    let row = (0..d.states.len()).find(|&i| d.states.state.get(i) == Some(State::Blocked)).unwrap();
    assert_eq!(d.states.reason.get(row), Some(reason));
}

#[test]
fn tracing_off_is_a_gap() {
    let mut t = Trace::default();
    t.switch(0, 0, 0, State::Runnable, 1);
    t.add(50, 0, Kind::TraceOff);
    t.add(90, 0, Kind::TraceOn);
    t.switch(100, 0, 1, State::Sleeping, 0);
    let d = t.derive();
    assert_eq!(slices(&d), [(0, 50, 0, 1), (50, 50, 0, 1)]);
    assert_eq!(d.slices.flags.get(0), Some(flag::OPEN_END));
}

#[test]
fn extreme_times_do_not_overflow() {
    let mut t = Trace::default();
    t.switch(i64::MIN, 0, 0, State::Runnable, 1);
    t.switch(i64::MAX, 0, 1, State::Sleeping, 2);
    t.wake(i64::MIN, 0, Kind::Waking, 2, 1, i32::MAX);
    t.switch(i64::MAX, i32::MIN, 1, State::Sleeping, -5);
    let mut diagnostics = Diagnostics::default();
    let mut deriver = Deriver::new(DeriveOptions::default());
    deriver.push(&t.events, &t.strings, &mut diagnostics);
    assert!(deriver.finish(&mut diagnostics).slices.len() >= 2);
}
