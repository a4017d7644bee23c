//! Traces made by hand in tests, and what holds for every trace.

use super::*;
use crate::events::EventRow;
use crate::State;

/// Records being written, with their strings.
#[derive(Default)]
pub(super) struct Trace {
    pub events: Events,
    pub strings: Strings,
}

impl Trace {
    pub fn add(&mut self, ts: i64, cpu: i32, kind: Kind) -> EventRow<'_> {
        let mut row = self.events.push();
        let seq = row.index() as u64;
        row.ts_ns(ts).cpu(cpu).seq(seq).kind(kind).quality(0);
        row
    }

    /// `from` leaves in `state`, `to` enters; 0 is idle.
    pub fn switch(&mut self, ts: i64, cpu: i32, from: i64, state: State, to: i64) -> EventRow<'_> {
        let mut row = self.add(ts, cpu, Kind::Switch);
        row.ctx_tid(from).tid(from).state(state).next_tid(to);
        row
    }

    /// `by` wakes `tid`, which goes to `target`.
    pub fn wake(&mut self, ts: i64, cpu: i32, kind: Kind, by: i64, tid: i64, target: i32) -> EventRow<'_> {
        let mut row = self.add(ts, cpu, kind);
        row.ctx_tid(by).tid(tid).target_cpu(target);
        row
    }

    pub fn derive_with(&mut self, options: DeriveOptions) -> (Derived, Diagnostics) {
        let mut diagnostics = Diagnostics::default();
        let mut deriver = Deriver::new(options);
        deriver.push(&self.events, &self.strings, &mut diagnostics);
        let mut derived = deriver.finish(&mut diagnostics);
        derived.sort();
        check(&derived, self);
        (derived, diagnostics)
    }

    pub fn derive(&mut self) -> Derived {
        self.derive_with(DeriveOptions::default()).0
    }
}

/// What holds for every trace: the CPUs' accounts, the partition of lives, one CPU a task.
fn check(d: &Derived, trace: &Trace) {
    let end = trace.events.ts_ns.values().iter().copied().max().unwrap_or(0);
    let e = &trace.events;
    let made_up = |row: &usize| e.quality.get(*row).unwrap_or(0) & crate::events::quality::SYNTHESIZED != 0;
    let start = (0..e.len()).filter(|row| !made_up(row)).filter_map(|row| e.ts_ns.get(row)).min().unwrap_or(0);
    let slices = &d.slices;
    for row in 0..d.cpus.len() {
        let cpu = d.cpus.cpu.get(row);
        let parts = [&d.cpus.busy_ns, &d.cpus.idle_ns, &d.cpus.unknown_ns].map(|c| c.get(row).unwrap());
        assert!(parts.iter().all(|p| *p >= 0));
        assert_eq!(parts.iter().sum::<i64>(), end - start, "span of CPU {cpu:?}");
        let here = (0..slices.len()).filter(|&i| slices.cpu.get(i) == cpu);
        assert_eq!(here.map(|i| slices.dur_ns.get(i).unwrap()).sum::<i64>(), parts[0], "busy time of CPU {cpu:?}");
    }
    for row in 0..d.tasks.len() {
        let utid = d.tasks.utid.get(row).unwrap();
        if d.tasks.is_idle.get(row) == Some(true) {
            assert!(slices.utid.values().iter().all(|u| *u != utid));
            continue;
        }
        let mine: Vec<_> = (0..d.states.len()).filter(|&i| d.states.utid.get(i) == Some(utid)).collect();
        let mut at = None;
        let mut running = 0;
        for &i in &mine {
            let (ts, dur) = (d.states.ts_ns.get(i).unwrap(), d.states.dur_ns.get(i).unwrap());
            assert!(dur >= 0);
            assert!(at.is_none_or(|at| at == ts), "states of {utid} have a gap or overlap at {ts}");
            at = Some(ts + dur);
            if d.states.state.get(i) == Some(State::Running) {
                running += dur;
            }
        }
        assert_eq!(running, d.tasks.run_ns.get(row).unwrap(), "run time of {utid}");
        if let (Some(&i), Some(at)) = (mine.first(), at) {
            assert!(d.states.ts_ns.get(i).unwrap() <= d.tasks.first_ts_ns.get(row).unwrap());
            assert!(at == end || d.tasks.end_ts_ns.get(row).is_some());
        }
        let mut mine: Vec<_> = (0..slices.len())
            .filter(|&i| slices.utid.get(i) == Some(utid))
            .map(|i| (slices.ts_ns.get(i).unwrap(), slices.ts_ns.get(i).unwrap() + slices.dur_ns.get(i).unwrap()))
            .collect();
        mine.sort_unstable();
        assert!(mine.windows(2).all(|two| two[1].0 >= two[0].1), "{utid} runs twice at once: {mine:?}");
    }
    for i in 0..slices.len() {
        if let (Some(wake), Some(delay)) = (slices.wake_ts_ns.get(i), slices.run_delay_ns.get(i)) {
            assert_eq!(Some(wake + delay), slices.ts_ns.get(i));
        }
    }
    for row in (0..d.runqueue.len()).filter(|&row| d.runqueue.cpu.get(row).is_some()) {
        assert!((0..=1).contains(&d.runqueue.nr_running.get(row).unwrap()));
        assert!(d.runqueue.nr_waiting.get(row).unwrap() >= 0);
    }
}
