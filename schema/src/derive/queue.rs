//! Run-queue lengths: a count a CPU, and the rows where it changes.

use super::cpus::CpuMap;
use super::sink::{QueueRow, Sink};
use super::tasks::{Place, TaskMap};
use super::Who;
use crate::tables::flag;

/// Where lengths come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// From wakeups, migrations and switches.
    Estimated,
    /// From the source's own queue operations.
    Operations,
    /// From the lengths that the source states.
    Stated,
}

/// One CPU's queue.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    waiting: i32,
    /// Running and waiting tasks as the source counts them.
    stated: Option<i64>,
    /// The last row.
    row: Option<(i32, i32, u16)>,
}

/// Slots of CPUs whose queue one record can touch before all are looked at.
const TOUCHED: usize = 8;

/// All queues.
#[derive(Debug)]
pub(super) struct Queues {
    wanted: bool,
    pub mode: Mode,
    by_slot: Vec<Queue>,
    /// Tasks that wait, or run, on an unknown CPU.
    unplaced: Queue,
    unplaced_running: i32,
    touched: [usize; TOUCHED],
    nr_touched: usize,
    /// A record said that a task was moved, so that such records are kept.
    migrations: bool,
    /// Where lengths are estimated: a task that waits may have been moved without a record.
    guessed: bool,
}

impl Queues {
    pub fn new(wanted: bool) -> Self {
        Queues {
            wanted,
            mode: Mode::Estimated,
            by_slot: Vec::new(),
            unplaced: Queue::default(),
            unplaced_running: 0,
            touched: [0; TOUCHED],
            // The first rows are those of all CPUs.
            nr_touched: TOUCHED + 1,
            migrations: false,
            guessed: false,
        }
    }

    /// A record says that a task was moved.
    pub fn see_migration(&mut self) {
        self.migrations = true;
    }

    /// The queue or the running task of this CPU may have changed.
    #[inline]
    pub fn touch(&mut self, slot: usize) {
        if self.nr_touched < TOUCHED {
            self.touched[self.nr_touched] = slot;
        }
        self.nr_touched = usize::min(self.nr_touched + 1, TOUCHED + 1);
    }

    /// A task begins or ends to run on an unknown CPU.
    pub fn run_unplaced(&mut self, change: i32) {
        self.unplaced_running += change;
    }

    /// How many tasks wait on this CPU.
    pub fn waiting(&self, slot: usize) -> i32 {
        self.by_slot.get(slot).map_or(0, |q| q.waiting)
    }

    /// The source states the length of a queue, the running task included.
    pub fn state(&mut self, slot: usize, length: i64) {
        self.queue(slot).stated = Some(length);
        self.touch(slot);
    }

    fn queue(&mut self, slot: usize) -> &mut Queue {
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, Queue::default());
        }
        &mut self.by_slot[slot]
    }

    fn count(&mut self, place: Place, change: i32) {
        match place {
            Place::None => {}
            Place::On(slot) => {
                self.queue(slot).waiting += change;
                self.touch(slot);
            }
            Place::Unplaced => self.unplaced.waiting += change,
        }
    }

    /// Moves a task to another place.
    #[inline]
    pub fn place(&mut self, tasks: &mut TaskMap, utid: u32, place: Place) {
        let task = &mut tasks[utid];
        if task.place != place {
            let old = std::mem::replace(&mut task.place, place);
            task.enqueued = false;
            self.count(old, -1);
            self.count(place, 1);
        }
    }

    /// From here on the source itself says how long queues are: what was estimated so far is dropped.
    pub fn change_mode(&mut self, mode: Mode, tasks: &mut TaskMap) {
        self.mode = mode;
        for utid in 0..tasks.all.len() as u32 {
            if mode == Mode::Stated || !tasks[utid].enqueued {
                self.place(tasks, utid, Place::None);
            }
        }
        self.nr_touched = TOUCHED + 1;
    }

    /// Adds a row for each queue that changed.
    #[inline]
    pub fn flush(&mut self, ts: i64, live: bool, cpus: &CpuMap, sink: &mut impl Sink) {
        let ready = live || self.mode != Mode::Estimated;
        let guessed = self.mode == Mode::Estimated && !self.migrations && cpus.all.len() > 1;
        if guessed != self.guessed {
            (self.guessed, self.nr_touched) = (guessed, TOUCHED + 1);
        }
        if self.wanted && ready {
            if self.nr_touched > TOUCHED {
                for slot in 0..cpus.all.len() {
                    self.row(ts, slot, cpus, sink);
                }
            } else {
                for at in 0..self.nr_touched {
                    self.row(ts, self.touched[at], cpus, sink);
                }
            }
            self.unplaced_row(ts, sink);
        }
        if ready {
            self.nr_touched = 0;
        }
    }

    fn row(&mut self, ts: i64, slot: usize, cpus: &CpuMap, sink: &mut impl Sink) {
        let cpu = &cpus[slot];
        let running = i32::from(matches!(cpu.cur, Some(Who::Task(_))));
        let guessed = self.guessed;
        let queue = self.queue(slot);
        let waiting = match queue.stated {
            Some(length) => i32::try_from(length.saturating_sub(running.into()).max(0)).unwrap_or(i32::MAX),
            None => queue.waiting,
        };
        let unknown = if cpu.cur.is_none() { flag::CROSSES_LOSS } else { 0 };
        let flags = unknown | if guessed && waiting > 0 { flag::ESTIMATED } else { 0 };
        let now = Some((running, waiting, flags));
        if queue.row == now || (queue.row.is_none() && cpu.cur.is_none() && waiting == 0) {
            return;
        }
        queue.row = now;
        sink.runqueue(&QueueRow { ts, cpu: Some(cpu.cpu), running, waiting, flags });
    }

    fn unplaced_row(&mut self, ts: i64, sink: &mut impl Sink) {
        let queue = &mut self.unplaced;
        let guessed = self.mode == Mode::Estimated && queue.waiting > 0;
        let flags = if guessed { flag::ESTIMATED } else { 0 };
        let now = (self.unplaced_running, queue.waiting, flags);
        if queue.row.map(|r| (r.0, r.1)) == Some((now.0, now.1)) || (queue.row.is_none() && now.0 == 0 && now.1 == 0) {
            return;
        }
        queue.row = Some(now);
        sink.runqueue(&QueueRow { ts, cpu: None, running: now.0, waiting: now.1, flags: now.2 });
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::Trace;
    use super::super::Derived;
    use crate::table::Table;
    use crate::tables::flag;
    use crate::{Kind, State};

    /// When queues count waiting tasks whose CPU is a guess, and on which CPU.
    fn guessed(d: &Derived) -> Vec<(i64, Option<i32>)> {
        let queue = &d.runqueue;
        let flagged = (0..queue.len()).filter(|i| queue.flags.get(*i).is_some_and(|f| f & flag::ESTIMATED != 0));
        flagged.filter_map(|i| Some((queue.ts_ns.get(i)?, queue.cpu.get(i)))).collect()
    }

    #[test]
    fn on_one_cpu_no_place_is_a_guess() {
        let mut t = Trace::default();
        t.switch(0, 0, 0, State::Runnable, 1);
        t.wake(10, 0, Kind::Wakeup, 1, 3, 0);
        t.switch(20, 0, 1, State::Sleeping, 3);
        assert_eq!(guessed(&t.derive()), []);
        // A second CPU turns up while one waits: from then on it may be there.
        let mut t = Trace::default();
        t.switch(0, 0, 0, State::Runnable, 1);
        t.wake(10, 0, Kind::Wakeup, 1, 3, 0);
        t.switch(15, 1, 0, State::Runnable, 2);
        t.switch(20, 0, 1, State::Sleeping, 3);
        assert_eq!(guessed(&t.derive()), [(15, Some(0))]);
    }

    #[test]
    fn where_migrations_are_recorded_no_place_is_a_guess() {
        let mut t = Trace::default();
        t.switch(0, 0, 0, State::Runnable, 1);
        t.switch(0, 1, 0, State::Runnable, 2);
        t.wake(10, 0, Kind::Wakeup, 1, 3, 0);
        t.add(11, 0, Kind::Migrate).ctx_tid(1).tid(3).orig_cpu(0).target_cpu(1);
        t.wake(15, 0, Kind::Wakeup, 1, 4, 1);
        assert_eq!(guessed(&t.derive()), [(10, Some(0))]);
    }

    #[test]
    fn a_task_without_a_place_is_a_guess_while_it_waits() {
        let mut t = Trace::default();
        t.switch(0, 0, 0, State::Runnable, 1);
        t.add(5, 0, Kind::Wakeup).ctx_tid(1).tid(2);
        t.switch(9, 0, 1, State::Sleeping, 2);
        assert_eq!(guessed(&t.derive()), [(5, None)]);
    }
}
