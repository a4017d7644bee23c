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
        }
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
        let estimated = if self.mode == Mode::Estimated { flag::ESTIMATED } else { 0 };
        let flags = estimated | if cpu.cur.is_none() { flag::CROSSES_LOSS } else { 0 };
        let running = i32::from(matches!(cpu.cur, Some(Who::Task(_))));
        let queue = self.queue(slot);
        let waiting = match queue.stated {
            Some(length) => i32::try_from(length.saturating_sub(running.into()).max(0)).unwrap_or(i32::MAX),
            None => queue.waiting,
        };
        let now = Some((running, waiting, flags));
        if queue.row == now || (queue.row.is_none() && cpu.cur.is_none() && waiting == 0) {
            return;
        }
        queue.row = now;
        sink.runqueue(&QueueRow { ts, cpu: Some(cpu.cpu), running, waiting, flags });
    }

    fn unplaced_row(&mut self, ts: i64, sink: &mut impl Sink) {
        let flags = if self.mode == Mode::Estimated { flag::ESTIMATED } else { 0 };
        let queue = &mut self.unplaced;
        let now = (self.unplaced_running, queue.waiting, flags);
        if queue.row.map(|r| (r.0, r.1)) == Some((now.0, now.1)) || (queue.row.is_none() && now.0 == 0 && now.1 == 0) {
            return;
        }
        queue.row = Some(now);
        sink.runqueue(&QueueRow { ts, cpu: None, running: now.0, waiting: now.1, flags: now.2 });
    }
}
