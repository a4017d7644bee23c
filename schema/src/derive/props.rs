//! Properties over random schedules: what was scheduled is what is derived, and the invariants hold
//! for any records.

use proptest::prelude::*;

use super::made::Trace;
use super::*;
use crate::table::{Col, ColumnDef, Visitor};
use crate::tables::flag;
use crate::{State, TextId};

/// A machine that runs random schedules, writes their records, and keeps its own accounts.
struct Machine {
    trace: Trace,
    now: i64,
    cpus: Vec<Option<usize>>,
    tasks: Vec<Model>,
    next_tid: i64,
}

/// Start, length, run delay, time of the wakeup, length of the sleep.
type Slice = (i64, i64, Option<i64>, Option<i64>, Option<i64>);

/// What the machine knows of a task.
#[derive(Clone, Default)]
struct Model {
    tid: i64,
    on: Option<usize>,
    queued: Option<usize>,
    asleep: bool,
    gone: bool,
    since: i64,
    woken: Option<i64>,
    slices: Vec<Slice>,
    slept: Option<i64>,
    start: (i64, Option<i64>, Option<i64>, Option<i64>),
    voluntary: u64,
    involuntary: u64,
}

impl Machine {
    fn new(cpus: usize, tasks: usize) -> Self {
        let mut m =
            Machine { trace: Trace::default(), now: 1000, cpus: vec![None; cpus], tasks: Vec::new(), next_tid: 100 };
        for t in 0..tasks {
            m.tasks.push(Model { tid: m.next_tid, queued: Some(t % cpus), since: m.now, ..Model::default() });
            m.next_tid += 1;
        }
        // Every CPU is idle and every task runnable, and records say both.
        for t in 0..tasks {
            let (tid, cpu) = (m.tasks[t].tid, t % cpus);
            m.trace.wake(m.now, cpu as i32, Kind::Wakeup, 0, tid, cpu as i32);
            m.tasks[t].woken = Some(m.now);
        }
        m
    }

    /// The task with the CPU leaves in `state`, and the `pick`th that waits there enters.
    fn switch(&mut self, cpu: usize, state: State, pick: usize) {
        let out = self.cpus[cpu];
        if let Some(t) = out {
            let task = &mut self.tasks[t];
            let (ts, delay, wake, slept) = task.start;
            task.slices.push((ts, self.now - ts, delay, wake, slept));
            (task.on, task.since) = (None, self.now);
            if state.is_runnable() {
                task.queued = Some(cpu);
                task.involuntary += 1;
            } else {
                task.asleep = !state.is_end();
                task.gone = state.is_end();
                task.voluntary += 1;
            }
        }
        let waiting: Vec<usize> = (0..self.tasks.len()).filter(|&t| self.tasks[t].queued == Some(cpu)).collect();
        let next = (!waiting.is_empty()).then(|| waiting[pick % waiting.len()]);
        if next == out {
            // The same again is no switch: undo.
            if let Some(t) = out {
                let task = &mut self.tasks[t];
                task.slices.pop();
                (task.on, task.queued) = (Some(cpu), None);
                task.involuntary -= 1;
            }
            return;
        }
        let tid = |m: &Machine, t: Option<usize>| t.map_or(0, |t| m.tasks[t].tid);
        let (from, to) = (tid(self, out), tid(self, next));
        let state = if out.is_some() { state } else { State::Runnable };
        self.trace.switch(self.now, cpu as i32, from, state, to);
        if let Some(t) = next {
            let task = &mut self.tasks[t];
            (task.on, task.queued) = (Some(cpu), None);
            task.start = (self.now, Some(self.now - task.since), task.woken.take(), task.slept.take());
        }
        self.cpus[cpu] = next;
    }

    fn wake(&mut self, cpu: usize, t: usize, target: usize, both: bool) {
        let by = self.cpus[cpu].map_or(0, |t| self.tasks[t].tid);
        let tid = self.tasks[t].tid;
        if both || self.tasks[t].gone {
            self.trace.wake(self.now, cpu as i32, Kind::Waking, by, tid, cpu as i32);
            self.trace.wake(self.now, cpu as i32, Kind::Wakeup, by, tid, target as i32);
        } else {
            self.trace.wake(self.now, cpu as i32, Kind::Wakeup, by, tid, target as i32);
        }
        let task = &mut self.tasks[t];
        task.slept = Some(self.now - task.since);
        (task.asleep, task.queued, task.since, task.woken) = (false, Some(target), self.now, Some(self.now));
    }

    fn fork(&mut self, cpu: usize, target: usize) {
        let by = self.cpus[cpu].map_or(0, |t| self.tasks[t].tid);
        // A number that is free again is used again.
        let free = self.tasks.iter().filter(|t| t.gone).map(|t| t.tid).min();
        let reused = free.filter(|tid| self.tasks.iter().all(|t| t.gone || t.tid != *tid));
        let tid = reused.unwrap_or(self.next_tid);
        self.next_tid += 1;
        self.trace.add(self.now, cpu as i32, Kind::Fork).ctx_tid(by).tid(tid);
        self.trace.wake(self.now, cpu as i32, Kind::WakeupNew, by, tid, target as i32);
        let (queued, woken) = (Some(target), Some(self.now));
        self.tasks.push(Model { tid, queued, woken, since: self.now, ..Model::default() });
    }

    fn migrate(&mut self, cpu: usize, t: usize, target: usize) {
        let by = self.cpus[cpu].map_or(0, |t| self.tasks[t].tid);
        let mut row = self.trace.add(self.now, cpu as i32, Kind::Migrate);
        row.ctx_tid(by).tid(self.tasks[t].tid).target_cpu(target as i32);
        self.tasks[t].queued = Some(target);
    }

    /// One random step, decided by four numbers.
    fn step(&mut self, what: u8, a: usize, b: usize, dt: i64) {
        self.now += dt;
        let (cpu, target) = (a % self.cpus.len(), b % self.cpus.len());
        let pick = |m: &Machine, which: fn(&Model) -> bool| {
            let of: Vec<usize> = (0..m.tasks.len()).filter(|&t| which(&m.tasks[t])).collect();
            (!of.is_empty()).then(|| of[b % of.len()])
        };
        match what % 8 {
            0 | 1 => self.switch(cpu, State::Preempted, b),
            2 => self.switch(cpu, State::Sleeping, b),
            3 => self.switch(cpu, if b.is_multiple_of(7) { State::Dead } else { State::Blocked }, b),
            4 | 5 => {
                if let Some(t) = pick(self, |t| t.asleep) {
                    self.wake(cpu, t, target, a.is_multiple_of(2));
                }
            }
            6 => {
                if let Some(t) = pick(self, |t| t.queued.is_some()) {
                    self.migrate(cpu, t, target);
                }
            }
            _ if b.is_multiple_of(3) => self.fork(cpu, target),
            _ => {}
        }
    }

    /// Waiting tasks of a CPU.
    fn waiting(&self, cpu: usize) -> usize {
        self.tasks.iter().filter(|t| t.queued == Some(cpu)).count()
    }
}

fn steps() -> impl Strategy<Value = Vec<(u8, usize, usize, i64)>> {
    prop::collection::vec((any::<u8>(), 0..64usize, 0..64usize, 0..50i64), 0..300)
}

fn any_kind() -> impl Strategy<Value = Kind> {
    prop_oneof![3 => Just(Kind::Switch), 1 => Just(Kind::Waking), 6 => (0..Kind::ALL.len()).prop_map(|k| Kind::ALL[k])]
}

/// The rows of a table as texts.
fn rows<T: Table>(table: &T) -> Vec<String> {
    struct Dump(Vec<String>);
    macro_rules! dump {
        ($($method:ident: $t:ty),*) => { $(fn $method(&mut self, def: &ColumnDef, col: &Col<$t>, rows: usize) {
            for row in 0..rows {
                self.0[row] += &format!("{}={:?} ", def.name, col.get(row));
            }
        })* };
    }
    impl Visitor for Dump {
        dump!(i64: i64, i32: i32, u64: u64, u32: u32, u16: u16, f64: f64, bool: bool, str: StrId, text: TextId,
            kind: Kind, state: State);
    }
    let mut dump = Dump(vec![String::new(); table.len()]);
    table.visit(&mut dump);
    dump.0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_was_scheduled_is_what_is_derived(cpus in 1..5usize, tasks in 0..8usize, steps in steps()) {
        let mut m = Machine::new(cpus, tasks);
        let mut queues: Vec<(i64, Vec<usize>)> = Vec::new();
        for (what, a, b, dt) in steps {
            m.step(what, a, b, dt);
            queues.push((m.now, (0..cpus).map(|c| m.waiting(c)).collect()));
        }
        let (d, diagnostics) = m.trace.derive_with(DeriveOptions::default());
        prop_assert!(diagnostics.rows().is_empty(), "{:?}", diagnostics.rows());
        // Forks take keys in the order of first naming, and so does the model.
        let keys: Vec<u32> = (0..d.tasks.len())
            .filter(|&i| d.tasks.is_idle.get(i) == Some(false))
            .map(|i| d.tasks.utid.get(i).unwrap())
            .collect();
        prop_assert_eq!(keys.len(), m.tasks.len());
        let s = &d.slices;
        for (utid, model) in keys.iter().zip(&m.tasks) {
            let got: Vec<_> = (0..s.len())
                .filter(|&i| s.utid.get(i) == Some(*utid) && s.flags.get(i).unwrap() & flag::OPEN_END == 0)
                .map(|i| (
                    s.ts_ns.get(i).unwrap(),
                    s.dur_ns.get(i).unwrap(),
                    s.run_delay_ns.get(i),
                    s.wake_ts_ns.get(i),
                    s.sleep_ns.get(i),
                ))
                .collect();
            prop_assert_eq!(&got, &model.slices, "slices of thread {}", model.tid);
            let row = (0..d.tasks.len()).find(|&i| d.tasks.utid.get(i) == Some(*utid)).unwrap();
            prop_assert_eq!(d.tasks.nr_voluntary.get(row), Some(model.voluntary));
            prop_assert_eq!(d.tasks.nr_involuntary.get(row), Some(model.involuntary));
            prop_assert_eq!(d.tasks.end_ts_ns.get(row).is_some(), model.gone);
        }
        let q = &d.runqueue;
        for (at, (ts, waiting)) in queues.iter().enumerate() {
            if queues.get(at + 1).is_some_and(|next| next.0 == *ts) {
                continue;
            }
            for (cpu, waiting) in waiting.iter().enumerate() {
                let row = (0..q.len()).rfind(|&i| q.cpu.get(i) == Some(cpu as i32) && q.ts_ns.get(i) <= Some(*ts));
                match row {
                    Some(row) => prop_assert_eq!(q.nr_waiting.get(row), Some(*waiting as i32)),
                    // No switch yet anywhere.
                    None => prop_assert!(q.is_empty() || q.ts_ns.get(0) > Some(*ts) || *waiting == 0),
                }
            }
        }
    }

    #[test]
    fn several_batches_give_what_one_gives(cpus in 1..4usize, steps in steps(), cuts in prop::collection::vec(0..400usize, 0..6)) {
        let mut m = Machine::new(cpus, 5);
        for (what, a, b, dt) in steps {
            m.step(what, a, b, dt);
        }
        let mut t = m.trace;
        let whole = t.derive();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(t.events.len())).collect();
        cuts.extend([0, t.events.len()]);
        cuts.sort_unstable();
        let mut deriver = Deriver::new(DeriveOptions::default());
        let mut diagnostics = Diagnostics::default();
        let (mut slices, mut states, mut queue) = (Vec::new(), Vec::new(), Vec::new());
        let mut take = |d: &Derived| {
            slices.extend(rows(&d.slices));
            states.extend(rows(&d.states));
            queue.extend(rows(&d.runqueue));
        };
        for part in cuts.windows(2) {
            let some: Vec<u32> = (part[0] as u32..part[1] as u32).collect();
            deriver.push(&t.events.take(&some), &t.strings, &mut diagnostics);
            let drained = deriver.drain();
            prop_assert!(drained.tasks.is_empty() && drained.cpus.is_empty());
            take(&drained);
        }
        let last = deriver.finish(&mut diagnostics);
        take(&last);
        let sorted = |mut rows: Vec<String>| {
            rows.sort_unstable();
            rows
        };
        prop_assert_eq!(sorted(slices), sorted(rows(&whole.slices)));
        prop_assert_eq!(sorted(states), sorted(rows(&whole.states)));
        prop_assert_eq!(queue, rows(&whole.runqueue));
        prop_assert_eq!(rows(&last.tasks), rows(&whole.tasks));
        prop_assert_eq!(rows(&last.cpus), rows(&whole.cpus));
    }

    #[test]
    fn invariants_hold_with_records_missing_and_lost(
        cpus in 1..4usize, steps in steps(), gone in prop::collection::vec((0..400usize, any::<bool>()), 0..20),
    ) {
        let mut m = Machine::new(cpus, 6);
        for (what, a, b, dt) in steps {
            m.step(what, a, b, dt);
        }
        let mut t = m.trace;
        let dropped = |row: usize| gone.iter().find(|(at, _)| *at == row).map(|(_, stated)| *stated);
        let full = std::mem::take(&mut t.events);
        for row in 0..full.len() {
            let (ts, cpu) = (full.ts_ns.get(row).unwrap(), full.cpu.get(row).unwrap());
            match dropped(row) {
                Some(true) => {
                    t.add(ts, cpu, Kind::Lost).value(1);
                }
                Some(false) => {}
                None => {
                    let mut to = t.add(ts, cpu, full.kind.get(row).unwrap());
                    to.ctx_tid(full.ctx_tid.get(row)).tid(full.tid.get(row)).state(full.state.get(row));
                    to.next_tid(full.next_tid.get(row)).target_cpu(full.target_cpu.get(row));
                }
            }
        }
        // Deriving checks the invariants.
        t.derive();
    }

    #[test]
    fn invariants_hold_for_any_records(records in prop::collection::vec(
        (0..40i64, prop::option::weighted(0.9, 0..3i32), any_kind(), prop::option::of(0..5i64),
            prop::option::of(0..5i64), prop::option::of(0..5i64), prop::option::of(0..3i32),
            prop::option::of(0..State::ALL.len()), prop::option::of(0..7i64)), 0..80))
    {
        let mut t = Trace::default();
        let mut now = 0;
        for (step, cpu, kind, ctx, tid, next, target, state, value) in records {
            now += step - 5;
            let mut row = t.events.push();
            row.ts_ns(now).cpu(cpu).seq(0).kind(kind).quality(0);
            row.ctx_tid(ctx).tid(tid).next_tid(next).target_cpu(target).state(state.map(|s| State::ALL[s])).value(value);
        }
        t.derive();
    }
}
