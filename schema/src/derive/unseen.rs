//! Who runs where no switch says it: before the first one of a CPU, and where one is missing.

use super::emit::End;
use super::run::BESIDE_IDLE_NS;
use super::sink::{Sink, Transition};
use super::tasks::{Open, Phase, Place, Task};
use super::{Stated, Step, Who};
use crate::tables::flag;
use crate::{Code, Diagnostic, Kind, State, StrId};

impl<S: Sink> Step<'_, S> {
    /// The first switch shows that switches are recorded: who the CPUs' records named as current
    /// does run there.
    pub(super) fn go_live(&mut self, but: Option<usize>) {
        self.d.live = true;
        for slot in 0..self.d.cpus.all.len() {
            if let (Some((tid, name)), true) = (self.d.cpus[slot].proposed.take(), Some(slot) != but) {
                self.adopt(slot, tid, name);
            }
        }
    }

    /// A record says who has a CPU of which that was not known.
    pub(super) fn current(&mut self, slot: usize, ts: i64) {
        let Some(tid) = self.e.ctx_tid.get(self.row) else { return };
        let name = self.e.ctx_comm.get(self.row);
        if self.d.live {
            if self.d.cpus[slot].left.is_none() {
                self.adopt(slot, tid, name);
            }
            return;
        }
        let cpu = &mut self.d.cpus[slot];
        if cpu.proposed.is_some_and(|p| p.0 != tid) {
            cpu.known_from = ts;
        }
        cpu.proposed = Some((tid, name));
    }

    /// What a record says of its current thread: its name, where the task has none yet. Names distinguish
    /// idle threads.
    pub(super) fn stated_current(&mut self, tid: i64, name: Option<StrId>) -> Stated {
        let named = self.d.tasks.get(tid).is_some_and(|utid| self.d.tasks[utid].comm.is_some());
        Stated { comm: name.filter(|_| !named), ..Stated::default() }
    }

    /// `tid` has run on the CPU since `known_from`; `name` is for a task that has none yet, and
    /// idle threads.
    fn adopt(&mut self, slot: usize, tid: i64, name: Option<StrId>) {
        let from = self.d.cpus[slot].known_from;
        let stated = self.stated_current(tid, name);
        match self.task(tid, from, stated, true) {
            Some(utid) => {
                if self.d.tasks[utid].phase != Phase::Running {
                    self.begin(slot, utid);
                }
            }
            None => {
                self.idle_thread(slot, tid, stated);
                self.begin_idle(slot);
            }
        }
        self.d.queues.touch(slot);
    }

    pub(super) fn begin_idle(&mut self, slot: usize) {
        let cpu = &mut self.d.cpus[slot];
        cpu.account(cpu.known_from);
        cpu.cur = Some(Who::Idle);
        cpu.idle_periods += 1;
        let from = cpu.since;
        self.d.sink.transition(from, Transition::Idle { cpu: slot });
    }

    /// A slice begins whose beginning was not seen: at the earliest time that contradicts nothing.
    pub(super) fn begin(&mut self, slot: usize, utid: u32) {
        let cpu = &mut self.d.cpus[slot];
        let task = &mut self.d.tasks.all[utid as usize];
        let from = cpu.known_from;
        if task.phase == Phase::Unknown && !task.turned && task.since > from {
            (task.since, task.first_ts) = (from, from);
        }
        if task.phase == Phase::Off {
            task.flags |= flag::INFERRED_END;
        }
        let ts = cpu.account(from.max(task.since));
        cpu.cur = Some(Who::Task(utid));
        task.open = Open { ts, prio: task.prio, prev_cpu: task.ran_on, flags: cpu.start_flag, ..Open::default() };
        (task.wake, task.sleep, task.early) = (None, None, None);
        self.d.turn(utid, ts, Phase::Running, State::Running);
        self.place(utid, Place::None);
        self.d.tasks[utid].slot = Some(slot);
        let switch_in = Transition::SwitchIn { task: utid, cpu: Some(slot), prio: None, seen: false };
        self.d.sink.transition(ts, switch_in);
    }

    /// A record names a task as the one that has a CPU that was thought to idle: the switch to it is missing.
    /// perf does not record some of those that idle threads make, nor their wakeups (seen on 6.18). An idle
    /// CPU has nothing else to do, so a task that was woken has run since then, or since the last record of
    /// the CPU where that came later. The kernel's account of its run time says it more exactly, and of a
    /// task, too, that nobody woke. Other records of such a task say that it runs by then.
    pub(super) fn current_unseen(&mut self, slot: usize, kind: Kind, ts: i64) {
        let (e, row) = (self.e, self.row);
        let tid = match kind {
            Kind::Switch => e.tid.get(row),
            _ if self.d.translated => None,
            // Others may be made while the last task is on its way out.
            Kind::StatRuntime | Kind::Waking | Kind::Wakeup | Kind::WakeupNew => e.ctx_tid.get(row),
            Kind::Fork | Kind::Exec | Kind::Exit | Kind::SysEnter | Kind::SysExit => e.ctx_tid.get(row),
            _ => None,
        };
        let charged = kind == Kind::StatRuntime && e.tid.get(row) == tid;
        let Some(tid) = tid.filter(|&tid| tid != 0) else { return };
        if charged {
            self.charged_first(slot, tid, ts);
        }
        if let Some(utid) = self.d.tasks.get(tid) {
            self.enters_unseen(slot, utid, charged, ts);
        }
    }

    /// The first record of a task is the kernel's account of its run time: it exists since that began, where
    /// the CPU idled by then.
    fn charged_first(&mut self, slot: usize, tid: i64, ts: i64) {
        let Some(began) = self.e.value.get(self.row).map(|ran| ts.saturating_sub(ran)) else { return };
        let tasks = &mut self.d.tasks;
        let new = tasks.get(tid).is_none_or(|utid| tasks[utid].phase == Phase::Unseen);
        if new && began >= self.d.cpus[slot].since {
            let utid = tasks.get(tid).unwrap_or_else(|| tasks.create_unseen(tid));
            tasks[utid].seen(began);
        }
    }

    /// The kernel charges a task with run time, which may be from another CPU that puts a task on its queue.
    /// Where the CPU that the charged one waits for was thought to idle, the switch to it is missing.
    pub(super) fn charged_unseen(&mut self, ts: i64) {
        let Some(utid) = self.e.tid.get(self.row).and_then(|tid| self.d.tasks.get(tid)) else { return };
        let task = &self.d.tasks[utid];
        if let (Phase::Ready | Phase::Off, Some(slot)) = (task.phase, task.slot) {
            if self.d.cpus[slot].cur == Some(Who::Idle) {
                self.enters_unseen(slot, utid, true, ts);
            }
        }
    }

    /// A record may show that `cur`, which was thought to have the CPU, has left it: perf does not record
    /// switches that some tasks make (seen on 6.18, of threads that serve the hypervisor).
    pub(super) fn left_for_another(&mut self, slot: usize, cur: u32, kind: Kind, ts: i64) {
        match kind {
            _ if self.d.translated => {}
            Kind::StatRuntime => self.took_over_unseen(slot, cur, ts),
            Kind::Waking | Kind::Wakeup | Kind::WakeupNew if self.e.ctx_tid.get(self.row) == Some(0) => {
                let cpu = &mut self.d.cpus[slot];
                let last = cpu.last.min(ts);
                if cpu.switching {
                    // Nothing shows that the task came: an interrupt may have come before it.
                    // ARM switched with interrupts enabled until 3.6
                    // (__ARCH_WANT_INTERRUPTS_ON_CTXSW). The next switch says which it was.
                    cpu.idled.get_or_insert(last);
                } else {
                    self.idles_unseen(slot, cur, last, ts);
                }
            }
            _ => {}
        }
    }

    /// The idle thread of a CPU has it while `cur` was thought to have it: the switch between them is
    /// missing. When `cur` left is not known; at the earliest at `last`, behind the record before.
    pub(super) fn idles_unseen(&mut self, slot: usize, cur: u32, last: i64, ts: i64) {
        let (cpu, was) = (self.d.cpus[slot].cpu, self.d.tasks[cur].tid);
        self.diagnostics.push_with(Code::SwitchInferred, || {
            let message = format!("a CPU idles that thread {was} had: no record says since when");
            Diagnostic::new(Code::SwitchInferred, message)
                .on_cpu(cpu)
                .at_ts(ts)
                .advise("the switch between them is not recorded: it is taken to be at the last record of the CPU")
        });
        let left = self.unseen_end(slot, cur, last);
        self.enter_idle(slot, 0, Stated::default(), left);
    }

    /// Ends the slice of `cur` at `at`, or as soon behind it as contradicts nothing; when that is.
    fn unseen_end(&mut self, slot: usize, cur: u32, at: i64) -> i64 {
        let left = self.d.cpus[slot].account(at);
        let end = End { ts: left, flags: flag::INFERRED_END, ..End::default() };
        self.stop(cur, &end, Phase::Off, State::UnknownOff, None);
        self.d.cpus[slot].cur = None;
        self.d.queues.touch(slot);
        left
    }

    /// The kernel charges its current task with run time that began when `cur` was thought to have the CPU
    /// already: the switch between them is missing. When `cur` left, and why, is not known; at the
    /// latest then.
    fn took_over_unseen(&mut self, slot: usize, cur: u32, ts: i64) {
        let (e, row) = (self.e, self.row);
        let tid = e.ctx_tid.get(row).filter(|tid| e.tid.get(row) == Some(*tid) && *tid != self.d.tasks[cur].tid);
        let Some(utid) = tid.and_then(|tid| self.d.tasks.get(tid)) else { return };
        let (task, since) = (&self.d.tasks[utid], self.d.tasks[cur].open.ts);
        let Some(began) = e.value.get(row).map(|ran| ts.saturating_sub(ran)) else { return };
        if task.idle || task.phase == Phase::Running || began < since.max(task.since) {
            return;
        }
        let (cpu, tid, was) = (self.d.cpus[slot].cpu, task.tid, self.d.tasks[cur].tid);
        self.diagnostics.push_with(Code::SwitchInferred, || {
            let message = format!("thread {tid} runs on a CPU that thread {was} had: no record says since when");
            Diagnostic::new(Code::SwitchInferred, message)
                .on_cpu(cpu)
                .at_ts(ts)
                .advise("the switch between them is not recorded: it is taken from the run time")
        });
        let left = self.unseen_end(slot, cur, began);
        self.enters(Some(slot), utid, left, None, false);
    }

    /// A task runs on a CPU that was thought to idle; `charged` says that the record holds its run time.
    fn enters_unseen(&mut self, slot: usize, utid: u32, charged: bool, ts: i64) {
        let (task, last) = (&self.d.tasks[utid], self.d.cpus[slot].last.min(ts));
        let (tid, since) = (task.tid, task.since);
        let began = self.e.value.get(self.row).filter(|_| charged).map(|ran| ts.saturating_sub(ran));
        let woken = task.phase == Phase::Ready || task.phase == Phase::Off && task.early.is_some();
        let off = matches!(task.phase, Phase::Off | Phase::Unknown);
        // Its wakeup is missing, too, as of a timer that interrupts the idle thread: it runs by now. Others
        // are made while the last task is on its way out.
        let doing = !matches!(self.e.kind.get(self.row), Some(Kind::Switch | Kind::StatRuntime));
        let found = off && doing && self.d.unseen;
        if task.idle || !(woken || found || off && began.is_some_and(|at| at >= since)) {
            return;
        }
        let from = began.unwrap_or(if woken { last } else { ts }).max(since).max(last).min(ts);
        let cpu = self.d.cpus[slot].cpu;
        self.diagnostics.push_with(Code::SwitchInferred, || {
            Diagnostic::new(
                Code::SwitchInferred,
                format!("thread {tid} runs on a CPU that idled: no record says since when"),
            )
            .on_cpu(cpu)
            .at_ts(ts)
            .advise("the switch to it is not recorded: its start is taken from its wakeup, its run time or this record")
        });
        self.enters(Some(slot), utid, from, None, false);
        self.d.queues.touch(slot);
        self.d.unseen = true;
    }

    /// A CPU goes idle, and tasks were woken for it long ago: its queue is empty, so they are not
    /// there. Where switches from idle are missing, they ran unseen, or were pulled away by an idle
    /// thread whose record of it is missing as well. What they have done since is not known, until a
    /// record says so. (A quota holds tasks back, too; such recordings can't tell one from the other.)
    pub(super) fn gone_unseen(&mut self, slot: usize, ts: i64) {
        if !(self.d.unseen || self.d.options.in_turn) || self.d.queues.waiting(slot) == 0 {
            return;
        }
        // It was woken before the recorder started on the CPU.
        let early = |task: &Task| self.d.options.in_turn && self.d.cpus[slot].first.is_some_and(|at| task.since < at);
        let waits = |task: &Task| task.phase == Phase::Ready && task.place == Place::On(slot) && task.wake.is_some();
        let long = |task: &Task| ts.saturating_sub(task.since) > BESIDE_IDLE_NS;
        let gone = |task: &Task| waits(task) && long(task) && (self.d.unseen || early(task));
        let gone: Vec<u32> = (0..).zip(&self.d.tasks.all).filter(|(_, t)| gone(t)).map(|(u, _)| u).collect();
        let cpu = self.d.cpus[slot].cpu;
        // Before the first record of a CPU no switch is missing: nobody recorded.
        let code = if self.d.unseen { Code::SwitchInferred } else { Code::Inferred };
        for utid in gone {
            let tid = self.d.tasks[utid].tid;
            self.diagnostics.push_with(code, || {
                let message = format!("thread {tid} was woken for a CPU that goes idle: no record says that it ran");
                Diagnostic::new(code, message)
                    .on_cpu(cpu)
                    .at_ts(ts)
                    .advise("its switches are not recorded: what it did since then is not known")
            });
            self.away(utid, ts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::Trace;
    use crate::derive::DeriveOptions;
    use crate::table::Table as _;
    use crate::{Code, Kind, State};

    /// Two tasks are woken for an idle CPU. The switch to the first is missing, both switches of the
    /// second.
    fn woken_for_an_idle_cpu(missing: bool) -> (Vec<(i64, i64, State)>, Option<i32>, u64) {
        const MS: i64 = 1_000_000;
        let mut t = Trace::default();
        t.switch(0, 0, 1, State::Sleeping, 0);
        t.switch(0, 1, 0, State::Runnable, 9);
        t.wake(MS, 1, Kind::Waking, 9, 1, 0);
        if !missing {
            t.switch(MS, 0, 0, State::Runnable, 1);
        }
        t.switch(2 * MS, 0, 1, State::Sleeping, 0);
        t.wake(3 * MS, 1, Kind::Waking, 9, 2, 0);
        // Too soon to say: another CPU may just have begun to wake it.
        for ts in [3 * MS + 500_000, 5 * MS, 7 * MS] {
            t.wake(ts - 100_000, 1, Kind::Waking, 9, 1, 0);
            t.switch(ts - 50_000, 0, 0, State::Runnable, 1);
            t.switch(ts, 0, 1, State::Sleeping, 0);
        }
        t.switch(8 * MS, 1, 9, State::Runnable, 9);
        let (d, diagnostics) = t.derive_with(DeriveOptions::default());
        let s = &d.states;
        let of_2 = (0..s.len()).filter(|&i| s.tid.get(i) == Some(2));
        let mut waiting = (0..d.runqueue.len()).filter(|&i| d.runqueue.cpu.get(i) == Some(0));
        (
            of_2.map(|i| (s.ts_ns.values()[i] / MS, s.dur_ns.values()[i] / MS, s.state.get(i).unwrap())).collect(),
            waiting.next_back().and_then(|i| d.runqueue.nr_waiting.get(i)),
            diagnostics.count(Code::SwitchInferred),
        )
    }

    #[test]
    fn nobody_waits_for_ever_beside_an_idle_cpu_whose_switches_are_missing() {
        let (states, waiting, inferred) = woken_for_an_idle_cpu(true);
        assert_eq!(states, [(3, 2, State::Runnable), (5, 3, State::Unknown)]);
        assert_eq!((waiting, inferred), (Some(0), 2));
    }

    #[test]
    fn who_makes_a_record_on_a_cpu_that_idled_has_it_though_nobody_woke_it() {
        let mut t = Trace::default();
        t.switch(0, 0, 1, State::Sleeping, 0);
        t.switch(5, 1, 2, State::Sleeping, 0);
        // A timer wakes 2: only its leaving shows.
        t.switch(10, 1, 2, State::Sleeping, 0);
        t.wake(20, 1, Kind::Waking, 9, 1, 0);
        t.switch(30, 0, 1, State::Sleeping, 0);
        // And again: it exits.
        t.add(50, 1, Kind::Exit).ctx_tid(2).tid(2);
        t.switch(60, 1, 2, State::Zombie, 0);
        let (d, diagnostics) = t.derive_with(DeriveOptions::default());
        let s = &d.slices;
        let mine = (0..s.len()).filter(|&i| s.tid.get(i) == Some(2));
        let got: Vec<_> = mine.map(|i| (s.ts_ns.values()[i], s.dur_ns.values()[i], s.run_delay_ns.get(i))).collect();
        assert_eq!(got, [(5, 0, None), (50, 10, None)]);
        assert_eq!((diagnostics.count(Code::SwitchInferred), diagnostics.count(Code::SwitchMismatch)), (2, 1));
    }

    #[test]
    fn where_all_switches_are_recorded_a_task_beside_an_idle_cpu_waits() {
        // A quota may hold it back.
        let (states, waiting, inferred) = woken_for_an_idle_cpu(false);
        assert_eq!(states, [(3, 5, State::Runnable)]);
        assert_eq!((waiting, inferred), (Some(1), 0));
    }

    #[test]
    fn the_first_record_of_a_task_may_be_the_account_of_its_run_time() {
        let mut t = Trace::default();
        t.switch(100, 0, 1, State::Sleeping, 0);
        // Neither its wakeup, which the idle thread made, nor the switch to it is recorded.
        t.add(150, 0, Kind::StatRuntime).ctx_tid(2).tid(2).value(30);
        t.switch(155, 0, 2, State::Sleeping, 0);
        // It would have begun before the CPU idled.
        t.add(180, 0, Kind::StatRuntime).ctx_tid(3).tid(3).value(30);
        t.switch(185, 0, 3, State::Sleeping, 0);
        let (d, diagnostics) = t.derive_with(DeriveOptions::default());
        assert_eq!(d.slices.ts_ns.values()[..2], [100, 120]);
        assert_eq!(d.slices.dur_ns.values()[..2], [0, 35]);
        assert_eq!(d.slices.run_delay_ns.get(1), None);
        assert_eq!((diagnostics.count(Code::SwitchInferred), diagnostics.count(Code::SwitchMismatch)), (1, 1));
    }

    #[test]
    fn nothing_is_inferred_where_current_threads_have_other_numbers() {
        let mut t = Trace::default();
        // perf in a container: threads outside are 0.
        t.switch(0, 0, 3, State::Sleeping, 1).ctx_tid(0);
        t.wake(10, 0, Kind::Waking, 0, 2, 0);
        t.switch(20, 0, 1, State::Sleeping, 2).ctx_tid(0);
        let (d, diagnostics) = t.derive_with(DeriveOptions::default());
        assert!(diagnostics.rows().is_empty());
        assert_eq!(d.slices.dur_ns.values(), [0, 20, 0], "who enters has the CPU until it leaves");
    }

    #[test]
    fn an_interrupt_may_come_while_the_idle_thread_gives_the_cpu_away() {
        let mut t = Trace::default();
        t.switch(100, 0, 0, State::Runnable, 1);
        // Made on the idle thread's stack, behind the switch.
        t.wake(103, 0, Kind::Waking, 0, 2, 0);
        t.wake(104, 0, Kind::Wakeup, 0, 2, 0);
        t.switch(120, 0, 1, State::Preempted, 2);
        t.switch(150, 0, 2, State::Sleeping, 0);
        let (d, diagnostics) = t.derive_with(DeriveOptions::default());
        assert!(diagnostics.rows().is_empty());
        assert_eq!(d.slices.dur_ns.values(), [20, 30]);
        assert_eq!(d.slices.run_delay_ns.get(1), Some(17));
    }

    #[test]
    fn the_next_switch_says_whether_the_idle_thread_had_the_cpu_again() {
        let mut t = Trace::default();
        t.switch(100, 0, 0, State::Runnable, 1);
        // The switch from 1 to idle is missing.
        t.wake(150, 0, Kind::Waking, 0, 2, 0);
        t.switch(155, 0, 0, State::Runnable, 2);
        t.switch(180, 0, 2, State::Sleeping, 0);
        let (d, diagnostics) = t.derive_with(DeriveOptions::default());
        assert_eq!(diagnostics.rows().iter().map(|d| d.code).collect::<Vec<_>>(), [Code::SwitchInferred]);
        assert_eq!(d.slices.dur_ns.values(), [0, 25]);
        assert_eq!(d.cpus.idle_ns.values(), [55], "from the last record of the task on");
    }

    #[test]
    fn a_cpu_whose_records_end_first_is_no_sign_of_clocks_that_disagree() {
        let mut t = Trace::default();
        t.switch(0, 0, 0, State::Runnable, 1);
        t.switch(0, 1, 0, State::Runnable, 2);
        // The recorder stops CPU 0, and goes to CPU 1.
        t.switch(50, 0, 1, State::Preempted, 9);
        t.switch(60, 1, 2, State::Preempted, 9);
        let (d, diagnostics) = t.derive_with(DeriveOptions::default());
        assert_eq!(d.slices.dur_ns.values(), [50, 60, 10, 0]);
        assert_eq!(diagnostics.count(Code::ClockSkew), 0);
        assert_eq!(diagnostics.rows()[0].code, Code::Inferred);
        assert_eq!(
            diagnostics.rows()[0].message,
            "thread 9 enters a CPU while it has CPU 0, whose switches end before"
        );
    }

    #[test]
    fn who_was_current_before_the_first_switch_of_a_cpu_may_have_left_unrecorded() {
        let mut t = Trace::default();
        t.switch(0, 0, 0, State::Runnable, 1);
        // A name that is set shows that 5 runs on CPU 1, whose switches are not recorded yet.
        t.add(10, 1, Kind::Comm).ctx_tid(5).tid(5);
        t.switch(40, 1, 9, State::Sleeping, 6);
        t.switch(50, 1, 6, State::Sleeping, 9);
        // A switch between two others is missing.
        t.switch(60, 1, 7, State::Sleeping, 9);
        let (d, diagnostics) = t.derive_with(DeriveOptions::default());
        assert_eq!(diagnostics.count(Code::Inferred), 1);
        assert_eq!(diagnostics.count(Code::SwitchMismatch), 1);
        assert_eq!(diagnostics.rows()[0].ts_ns, Some(40));
        assert_eq!((d.slices.tid.get(1), d.slices.dur_ns.get(1)), (Some(5), Some(0)));
    }

    #[test]
    fn a_wakeup_before_the_sleep_with_an_idle_cpu_behind_it_is_named() {
        let skewed = |waker: i32, idle: i64, next: i64| {
            let mut t = Trace::default();
            t.switch(0, 0, 0, State::Runnable, 9);
            t.switch(0, 1, 0, State::Runnable, 1);
            t.wake(40_000, waker, Kind::Waking, 9, 1, 1);
            t.switch(50_000, 1, 1, State::Sleeping, next);
            if next != 0 {
                t.switch(60_000, 1, next, State::Sleeping, 0);
            }
            t.switch(50_000 + idle, 1, 0, State::Runnable, 1);
            let (d, diagnostics) = t.derive_with(DeriveOptions::default());
            let row = (0..d.slices.len()).rfind(|&i| d.slices.tid.get(i) == Some(1)).unwrap();
            assert_eq!(d.slices.run_delay_ns.get(row), Some(idle));
            diagnostics.count(Code::ClockSkew)
        };
        assert_eq!(skewed(0, 9_000_000, 0), 1);
        // A CPU that takes the task at once, a wakeup of its own CPU, another task in between.
        assert_eq!((skewed(0, 5_000, 0), skewed(1, 9_000_000, 0), skewed(0, 9_000_000, 5)), (0, 0, 0));
    }
}
