//! CPUs on which the recorder starts late: perf starts its events CPU by CPU (`evlist__enable`,
//! tools/perf/util/evlist.c), and CPUs that record already send tasks to those that do not yet.
//!
//! A task that waits on such a CPU may run there, sleep, and be woken by others there, and no
//! record says so. It waits until the first record of the CPU, and is unknown from there until a
//! record says what it does. Of a CPU that idles by then, the queue is empty: only who was woken
//! for it just before still waits.

use super::run::BESIDE_IDLE_NS;
use super::sink::Sink;
use super::tasks::{Phase, Place, Task};
use super::Step;
use crate::{Code, Diagnostic, Kind};

impl<S: Sink> Step<'_, S> {
    /// The first record of a CPU: of those who wait there nobody knows whether they still do.
    #[cold]
    pub(super) fn first_of_cpu(&mut self, slot: usize, kind: Kind, ts: i64) {
        if !self.d.options.in_turn || self.d.queues.waiting(slot) == 0 {
            return;
        }
        let (e, row) = (self.e, self.row);
        let has_it = if kind == Kind::Switch { e.tid.get(row) } else { e.ctx_tid.get(row) };
        let comes = e.next_tid.get(row).filter(|_| kind == Kind::Switch);
        let shortest = if has_it == Some(0) { BESIDE_IDLE_NS } else { 0 };
        let waits = |task: &Task| task.phase == Phase::Ready && task.place == Place::On(slot);
        let long = |task: &Task| ts.saturating_sub(task.since) > shortest && ![has_it, comes].contains(&Some(task.tid));
        let lost: Vec<u32> =
            (0..).zip(&self.d.tasks.all).filter(|(_, t)| waits(t) && long(t)).map(|(u, _)| u).collect();
        let cpu = self.d.cpus[slot].cpu;
        for utid in lost {
            let tid = self.d.tasks[utid].tid;
            self.diagnostics.push_with(Code::Inferred, || {
                let message = format!("thread {tid} was sent to CPU {cpu} before the first record of that CPU");
                Diagnostic::new(Code::Inferred, message).on_cpu(cpu).at_ts(ts).advise(
                    "a recorder may start one CPU after another, as perf does: what the thread did until its \
                     next record is not known",
                )
            });
            self.away(utid, ts);
        }
    }

    /// A task waits on a CPU, and has since before its first record.
    pub(super) fn waits_unrecorded(&self, utid: u32) -> bool {
        let task = &self.d.tasks[utid];
        let Place::On(slot) = task.place else { return false };
        self.d.options.in_turn && self.d.cpus[slot].first.is_none_or(|first| task.since < first)
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::Trace;
    use crate::derive::{DeriveOptions, Derived};
    use crate::table::Table;
    use crate::{Code, Kind, Metadata, State};

    const MS: i64 = 1_000_000;

    /// Tasks 1 and 2 have CPU 0, which sends task 5 to CPU 1 at 1 ms; the other records are `rest`.
    fn sent(format: &str, rest: impl Fn(&mut Trace)) -> (Derived, u64) {
        let mut t = Trace::default();
        t.switch(0, 0, 2, State::Sleeping, 1);
        t.wake(MS, 0, Kind::Waking, 1, 5, 1);
        rest(&mut t);
        t.switch(20 * MS, 0, 1, State::Sleeping, 2);
        let mut meta = Metadata::default();
        meta.set("source.format", format);
        let (d, diagnostics) = t.derive_with(DeriveOptions::for_trace(&meta));
        assert_eq!(diagnostics.count(Code::SwitchInferred), 0);
        (d, diagnostics.count(Code::Inferred))
    }

    /// Begin and state of the intervals of thread 5, in ms.
    fn states(d: &Derived) -> Vec<(i64, State)> {
        let s = &d.states;
        let rows = (0..s.len()).filter(|&i| s.tid.get(i) == Some(5));
        rows.map(|i| (s.ts_ns.values()[i] / MS, s.state.get(i).unwrap())).collect()
    }

    /// How many wait on CPU 1 in the end.
    fn waiting(d: &Derived) -> Option<i32> {
        let q = &d.runqueue;
        (0..q.len()).rfind(|&i| q.cpu.get(i) == Some(1)).and_then(|i| q.nr_waiting.get(i))
    }

    #[test]
    fn who_waits_where_nobody_records_yet_is_unknown_from_the_first_record_on() {
        let busy = |t: &mut Trace| {
            t.switch(4 * MS, 1, 7, State::Sleeping, 8);
            t.switch(8 * MS, 1, 8, State::Sleeping, 7);
        };
        let (d, told) = sent("perf-data", busy);
        assert_eq!(states(&d), [(1, State::Runnable), (4, State::Unknown)]);
        assert_eq!((waiting(&d), told), (Some(0), 1));
        // ftrace starts all CPUs at once: it waits.
        let (d, told) = sent("trace-dat", busy);
        assert_eq!(states(&d), [(1, State::Runnable)]);
        assert_eq!((waiting(&d), told), (Some(1), 0));
    }

    #[test]
    fn who_comes_in_the_first_record_has_waited() {
        let (d, told) = sent("perf-data", |t| {
            t.switch(4 * MS, 1, 0, State::Runnable, 5);
            t.switch(6 * MS, 1, 5, State::Sleeping, 0);
        });
        let row = (0..d.slices.len()).find(|&i| d.slices.tid.get(i) == Some(5)).unwrap();
        assert_eq!((d.slices.run_delay_ns.get(row), told), (Some(3 * MS), 0));
        // Who has the CPU came at some time before.
        let (d, told) = sent("perf-data", |t| {
            t.add(4 * MS, 1, Kind::StatRuntime).ctx_tid(5).tid(5).value(100);
            t.switch(6 * MS, 1, 5, State::Sleeping, 0);
        });
        assert_eq!((states(&d)[1], told), ((4, State::Running), 0));
    }

    #[test]
    fn an_idle_cpu_takes_whom_was_just_sent_to_it_and_nobody_else() {
        let idle = |first: i64| {
            sent("perf-script", move |t| {
                // An interrupt of the idle thread, and then it goes to another task and back.
                t.add(first, 1, Kind::IrqEntry).ctx_tid(0);
                t.switch(first + 5, 1, 0, State::Runnable, 8);
                t.switch(8 * MS, 1, 8, State::Sleeping, 0);
            })
        };
        let (d, told) = idle(2 * MS + 1);
        assert_eq!((states(&d), told), (vec![(1, State::Runnable), (2, State::Unknown)], 1));
        // It may wait behind the other task, but not when the CPU idles again.
        let (d, told) = idle(MS + 500_000);
        assert_eq!((states(&d), waiting(&d), told), (vec![(1, State::Runnable), (8, State::Unknown)], Some(0), 1));
    }

    #[test]
    fn who_is_woken_again_has_slept_in_between() {
        let (d, _) = sent("perf-data", |t| {
            t.wake(9 * MS, 0, Kind::Waking, 1, 5, 1);
            t.switch(9 * MS + 4_000, 1, 7, State::Sleeping, 5);
        });
        assert_eq!(states(&d), [(1, State::Unknown), (9, State::Runnable), (9, State::Running)]);
        let row = (0..d.slices.len()).find(|&i| d.slices.tid.get(i) == Some(5)).unwrap();
        assert_eq!(d.slices.run_delay_ns.get(row), Some(4_000));
    }
}
