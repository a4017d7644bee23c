//! Recordings of some CPUs, or of some tasks: what is not known because nobody recorded it.
//!
//! * **Of some CPUs**: what a task does on another CPU is not seen. Its life is unknown from the
//!   record that sends it there, a wakeup or a migration, until it runs on a recorded CPU, or a
//!   wakeup or the migration of a wakeup puts it on one. A task that waits may be taken to another
//!   CPU by that CPU, of which there is no record: where the next record of it is not that it runs,
//!   nobody knows what it did since.
//! * **Of some tasks**: a switch is recorded where a recorded task leaves its CPU. Who runs next is
//!   known only when that task is recorded, too, and leaves. When a recorded task comes to run after
//!   another one is not known, nor how long a CPU idles, nor who else waits.

use super::emit::End;
use super::sink::Sink;
use super::tasks::{Phase, Place};
use super::{Step, Who};
use crate::tables::flag;
use crate::State;

/// What was recorded, where it was not everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partial {
    /// The CPUs whose records were kept, in order; `None` for all.
    pub cpus: Option<Vec<i32>>,
    /// Only some tasks were recorded.
    pub tasks: bool,
}

impl<S: Sink> Step<'_, S> {
    /// Is the CPU one of those that were not recorded?
    #[inline]
    pub(super) fn unrecorded(&self, slot: Option<usize>) -> bool {
        let (Some(cpus), Some(slot)) = (&self.d.options.partial.cpus, slot) else { return false };
        cpus.binary_search(&self.d.cpus[slot].cpu).is_err()
    }

    /// What is known of a task ends at `ts`: it is on a CPU that was not recorded.
    pub(super) fn away(&mut self, utid: u32, ts: i64) {
        if self.d.tasks[utid].phase == Phase::Running {
            return;
        }
        self.d.turn(utid, ts, Phase::Unknown, State::Unknown);
        self.place(utid, Place::None);
        let task = &mut self.d.tasks[utid];
        (task.wake, task.sleep, task.early, task.slot) = (None, None, None, None);
    }

    /// A task that was thought to wait did something else since: nobody knows what.
    pub(super) fn was_away(&mut self, utid: u32, ts: i64) {
        let Partial { cpus, tasks } = &self.d.options.partial;
        if self.d.tasks[utid].phase == Phase::Ready && (cpus.is_some() || *tasks || self.waits_unrecorded(utid)) {
            self.d.tasks[utid].state = State::Unknown;
            self.away(utid, ts);
        }
    }

    /// In a recording of some tasks: did it come in the last switch of a CPU? If it is recorded, it
    /// runs.
    pub(super) fn may_run(&self, utid: u32) -> bool {
        let came = |cpu: &super::cpus::Cpu| cpu.came.is_some_and(|(task, _)| task == utid);
        self.d.options.partial.tasks && self.d.cpus.all.iter().any(came)
    }

    /// A migration in a recording of some CPUs.
    pub(super) fn migrate_partly(&mut self, utid: u32, target: usize, ts: i64) {
        let slot = self.e.cpu.get(self.row).map(|cpu| self.d.cpus.slot(cpu));
        if self.unrecorded(Some(target)) {
            if self.d.tasks[utid].phase == Phase::Ready {
                self.away(utid, ts);
            }
            return;
        }
        // The CPU that wakes a task chooses another one for it at once.
        let woken = slot.and_then(|slot| self.d.cpus[slot].sent).filter(|(task, _)| *task == utid);
        if let (Some((_, wake)), Phase::Unknown) = (woken, self.d.tasks[utid].phase) {
            let since = self.d.tasks[utid].since;
            self.ready(utid, wake, wake.ts.max(since));
        }
        let from = self.e.orig_cpu.get(self.row).map(|cpu| self.d.cpus.slot(cpu));
        let task = &self.d.tasks[utid];
        if task.phase == Phase::Ready && woken.is_none() && (self.unrecorded(from) || task.slot == Some(target)) {
            self.was_away(utid, ts);
        }
        // It waits there, and nobody knows since when.
        if matches!(self.d.tasks[utid].phase, Phase::Ready | Phase::Unknown) {
            self.wait_on(utid, Some(target));
        }
    }

    /// A switch in a recording of some tasks.
    pub(super) fn switch_of_some(&mut self, slot: Option<usize>, from: Option<i64>, to: Option<i64>, ts: i64) {
        let Some(slot) = slot else { return };
        let Some(tid) = from else {
            // Its own record says that it comes.
            let stated = self.stated_next();
            if let Some(utid) = to.and_then(|tid| self.task(tid, ts, stated, true)) {
                self.d.cpus[slot].account(ts);
                self.d.cpus[slot].cur = None;
                self.enters(Some(slot), utid, ts, self.e.next_prio.get(self.row), true);
            }
            return;
        };
        let stated = self.stated();
        let came = self.d.cpus[slot].came.take();
        if let Some(utid) = self.task(tid, ts, stated, true) {
            if let Some((_, since)) = came.filter(|(task, _)| *task == utid) {
                if self.d.tasks[utid].phase != Phase::Running {
                    self.enters(Some(slot), utid, since, None, true);
                }
            }
            if self.d.cpus[slot].cur == Some(Who::Task(utid)) {
                self.d.cpus[slot].account(ts);
                self.depart(utid, Some(slot), ts);
            } else {
                self.leaves_after_unseen(utid, slot, ts);
            }
        }
        self.d.cpus[slot].account(ts);
        self.d.cpus[slot].forget(ts, flag::CROSSES_LOSS);
        let stated = self.stated_next();
        if let Some(utid) = to.and_then(|tid| self.task(tid, ts, stated, true)) {
            self.d.cpus[slot].nr_switches += 1;
            self.d.cpus[slot].came = Some((utid, ts));
        }
    }

    /// A recorded task leaves a CPU, and nobody knows when it came.
    fn leaves_after_unseen(&mut self, utid: u32, slot: usize, ts: i64) {
        if self.d.tasks[utid].phase == Phase::Running {
            let end = End { ts, flags: flag::INFERRED_END, ..End::default() };
            if let Some(old) = self.d.tasks[utid].slot {
                let at = self.d.cpus[old].account(ts);
                self.d.cpus[old].forget(at, flag::CROSSES_LOSS);
            }
            self.stop(utid, &end, Phase::Unknown, State::Unknown, None);
        }
        let to = self.departure(utid, ts);
        let end = End { ts, state: to.state, yielded: to.yielded, ..End::default() };
        let counted = end.involuntary(self.d.options.yields_recorded);
        let task = &mut self.d.tasks[utid];
        // It waited, or slept, for a part of this time, and ran for the rest.
        task.state = State::Unknown;
        match counted {
            Some(true) => task.nr_involuntary += 1,
            Some(false) => task.nr_voluntary += 1,
            None => {}
        }
        let at = self.d.turn(utid, ts, to.phase, to.next);
        self.left_unseen(utid, Some(slot), at, &end);
        let task = &mut self.d.tasks[utid];
        (task.reason, task.slot) = (to.reason, Some(slot));
        self.place(utid, Place::None);
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::Trace;
    use super::Partial;
    use crate::derive::{DeriveOptions, Derived};
    use crate::table::Table;
    use crate::{Kind, State};

    fn derive(t: &mut Trace, cpus: Option<Vec<i32>>, tasks: bool) -> Derived {
        t.derive_with(DeriveOptions { partial: Partial { cpus, tasks }, ..DeriveOptions::default() }).0
    }

    /// Begin, length and state of the intervals of a thread.
    fn states(d: &Derived, tid: i64) -> Vec<(i64, i64, State)> {
        let s = &d.states;
        let rows = (0..s.len()).filter(|&i| s.tid.get(i) == Some(tid));
        rows.map(|i| (s.ts_ns.get(i).unwrap(), s.dur_ns.get(i).unwrap(), s.state.get(i).unwrap())).collect()
    }

    /// The longest queue of CPU 1, waiting tasks only.
    fn waiting(d: &Derived) -> Option<i32> {
        let q = &d.runqueue;
        (0..q.len()).filter(|&i| q.cpu.get(i) == Some(1)).filter_map(|i| q.nr_waiting.get(i)).max()
    }

    #[test]
    fn a_task_that_is_woken_elsewhere_does_not_wait() {
        let mut t = Trace::default();
        t.switch(0, 1, 2, State::Sleeping, 1);
        t.wake(10, 1, Kind::Waking, 1, 2, 0);
        t.switch(100, 1, 1, State::Preempted, 2);
        t.switch(120, 1, 2, State::Sleeping, 1);
        let whole = t.derive();
        assert_eq!(whole.slices.run_delay_ns.get(2), Some(90));
        let d = derive(&mut t, Some(vec![1]), false);
        assert_eq!(d.slices.run_delay_ns.get(2), None);
        let of_2 =
            [(0, 10, State::Sleeping), (10, 90, State::Unknown), (100, 20, State::Running), (120, 0, State::Sleeping)];
        assert_eq!(states(&d, 2)[1..], of_2);
        // Until thread 1 is preempted there is no queue.
        assert_eq!(waiting(&d), Some(1));
    }

    #[test]
    fn the_cpu_that_a_wakeup_chooses_is_where_it_waits() {
        let mut t = Trace::default();
        t.switch(0, 1, 2, State::Sleeping, 1);
        t.wake(10, 1, Kind::Waking, 1, 2, 0);
        t.add(11, 1, Kind::Migrate).ctx_tid(1).tid(2).orig_cpu(0).target_cpu(1);
        t.switch(50, 1, 1, State::Preempted, 2);
        let d = derive(&mut t, Some(vec![1]), false);
        assert_eq!(d.slices.run_delay_ns.get(2), Some(40));
    }

    #[test]
    fn who_is_taken_away_unseen_is_unknown_from_where_it_waited() {
        let mut t = Trace::default();
        t.switch(0, 1, 1, State::Preempted, 2);
        // CPU 0 took thread 1, which ran and slept there.
        t.wake(80, 1, Kind::Waking, 2, 1, 1);
        t.switch(90, 1, 2, State::Preempted, 1);
        let d = derive(&mut t, Some(vec![1]), false);
        assert_eq!(states(&d, 1)[1..3], [(0, 80, State::Unknown), (80, 10, State::Runnable)]);
        // Nobody knows whether thread 2 still waits at the end.
        t.switch(99, 1, 1, State::Sleeping, 0);
        let d = derive(&mut t, Some(vec![1]), false);
        assert_eq!(states(&d, 2).last(), Some(&(90, 9, State::Unknown)));
    }

    #[test]
    fn of_some_tasks_only_what_they_recorded_is_known() {
        let mut t = Trace::default();
        // Threads 1 and 2 are recorded; 7 is not, and neither is idle.
        t.switch(0, 0, 1, State::Sleeping, 7);
        t.wake(30, 0, Kind::Waking, 7, 1, 0);
        t.switch(100, 0, 1, State::Preempted, 2);
        t.switch(140, 0, 2, State::Sleeping, 0);
        let d = derive(&mut t, None, true);
        let slices = (0..d.slices.len()).map(|i| (d.slices.ts_ns.get(i), d.slices.dur_ns.get(i), d.slices.tid.get(i)));
        assert_eq!(slices.collect::<Vec<_>>(), [(Some(100), Some(40), Some(2))]);
        assert_eq!(states(&d, 1)[1..3], [(30, 70, State::Unknown), (100, 40, State::Unknown)]);
        assert!(states(&d, 7).iter().all(|s| s.2 == State::Unknown));
        assert_eq!(d.runqueue.len(), 0);
        assert_eq!((d.cpus.busy_ns.get(0), d.cpus.idle_ns.get(0)), (Some(40), Some(0)));
    }

    #[test]
    fn a_task_of_which_both_sides_are_recorded_has_slices() {
        let mut t = Trace::default();
        t.add(10, 0, Kind::Switch).ctx_tid(1).next_tid(1);
        t.add(30, 0, Kind::Switch).ctx_tid(1).tid(1).state(State::Preempted);
        let d = derive(&mut t, None, true);
        assert_eq!((d.slices.ts_ns.get(0), d.slices.dur_ns.get(0)), (Some(10), Some(20)));
    }

    #[test]
    fn a_process_is_known_from_the_context_of_its_own_records() {
        let mut t = Trace::default();
        t.add(10, 0, Kind::Switch).ctx_tid(7).ctx_pid(5).tid(7).state(State::Sleeping).next_tid(8);
        t.add(20, 0, Kind::Waking).ctx_tid(8).ctx_pid(5).tid(7).target_cpu(0);
        t.add(30, 0, Kind::Switch).ctx_tid(9).ctx_pid(9).tid(8).state(State::Sleeping).next_tid(7);
        let d = t.derive();
        let row = |tid| (0..d.tasks.len()).find(|&i| d.tasks.tid.get(i) == Some(tid));
        let pid = |tid| row(tid).and_then(|i| d.tasks.pid.get(i));
        assert_eq!((pid(7), pid(8)), (Some(5), None), "a waker's process is not that of the woken");
    }
}
