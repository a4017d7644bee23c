//! The two places where an interval ends: rows of `states` and of `slices`.

use super::tasks::{Phase, Place, Slept};
use super::{Deriver, Step};
use crate::tables::flag;
use crate::{State, StrId};

/// How a slice ends.
#[derive(Clone, Copy, Default)]
pub(super) struct End {
    pub ts: i64,
    pub state: Option<State>,
    /// A yield is voluntary although the task stays runnable.
    pub yielded: bool,
    pub seq: Option<u64>,
    pub flags: u16,
}

impl End {
    /// The task could have gone on; `None` where nobody says.
    pub(super) fn involuntary(&self) -> Option<bool> {
        match self.state? {
            State::Unknown | State::UnknownOff => None,
            State::Yielding => Some(false),
            state => Some(state.is_runnable() && !self.yielded),
        }
    }
}

impl Deriver {
    /// Ends the current interval of a task's life at `ts` and begins another. Returns the time used.
    #[inline]
    pub(super) fn turn(&mut self, utid: u32, ts: i64, phase: Phase, state: State) -> i64 {
        let task = &mut self.tasks[utid];
        let ts = ts.max(task.since);
        if self.options.states && !task.idle {
            self.state_row(utid, ts);
        }
        let task = &mut self.tasks[utid];
        task.phase = phase;
        task.state = state;
        task.since = ts;
        task.turned = true;
        task.flags = 0;
        task.reason = None;
        ts
    }

    /// As [`Self::turn`], for the wakeup of a sleeper: the row is kept until the task moves on.
    #[inline]
    pub(super) fn turn_ready(&mut self, utid: u32, ts: i64) -> i64 {
        let loss = self.last_loss;
        let task = &mut self.tasks[utid];
        if task.phase != Phase::Off {
            return self.turn(utid, ts, Phase::Ready, State::Runnable);
        }
        let ts = ts.max(task.since);
        let flags = task.flags | if task.since < loss { flag::CROSSES_LOSS } else { 0 };
        task.slept = Some(Slept { from: task.since, to: ts, state: task.state, reason: task.reason, flags });
        task.phase = Phase::Ready;
        task.state = State::Runnable;
        task.since = ts;
        task.turned = true;
        task.flags = 0;
        task.reason = None;
        ts
    }

    /// Writes the row of the interval that ends at `ts`.
    pub(super) fn state_row(&mut self, utid: u32, ts: i64) {
        let loss = self.last_loss;
        let task = &mut self.tasks.all[utid as usize];
        let rows = &mut self.out.states;
        if let Some(slept) = task.slept.take() {
            let dur = slept.to.saturating_sub(slept.from);
            let mut row = rows.push();
            row.ts_ns(slept.from).dur_ns(dur).utid(utid).tid(task.tid).comm(task.comm);
            row.state(slept.state).reason(slept.reason).flags(slept.flags);
        }
        let unknown = matches!(task.phase, Phase::Unseen | Phase::Unknown | Phase::New);
        if task.phase == Phase::Unseen || (unknown && ts == task.since) {
            return;
        }
        let mut flags = task.flags;
        if task.since < loss && task.phase != Phase::Running {
            flags |= flag::CROSSES_LOSS;
        }
        let mut row = rows.push();
        row.ts_ns(task.since).dur_ns(ts.saturating_sub(task.since)).utid(utid).tid(task.tid).comm(task.comm);
        row.state(task.state).reason(task.reason).flags(flags);
        if let (Phase::Running | Phase::Ready, Some(slot)) = (task.phase, task.slot) {
            row.cpu(self.cpus.all[slot].cpu);
        }
    }

    /// Ends the slice of a running task. The CPU's account is the caller's to keep.
    pub(super) fn end_slice(&mut self, utid: u32, end: &End) -> i64 {
        let task = &mut self.tasks.all[utid as usize];
        let ts = end.ts.max(task.open.ts);
        let dur = ts.saturating_sub(task.open.ts);
        let cpu = task.slot.map(|slot| self.cpus.all[slot].cpu);
        task.run_ns = task.run_ns.saturating_add(dur);
        task.nr_slices += 1;
        let involuntary = end.involuntary();
        match involuntary {
            Some(true) => task.nr_involuntary += 1,
            Some(false) => task.nr_voluntary += 1,
            None => {}
        }
        let open = &task.open;
        let mut flags = open.flags | end.flags;
        let mut row = self.out.slices.push();
        row.ts_ns(open.ts).dur_ns(dur).cpu(cpu).utid(utid).tid(task.tid).pid(task.pid).comm(open.comm);
        row.prio(open.prio).end_state(end.state).involuntary(involuntary);
        row.run_delay_ns(open.run_delay).prev_cpu(open.prev_cpu).seq_in(open.seq).seq_out(end.seq);
        if let Some((length, blocked)) = open.sleep {
            row.sleep_ns(length).blocked(blocked);
        }
        if let Some(wake) = open.wake {
            row.wake_ts_ns(wake.ts).waker_utid(wake.waker).waker_cpu(wake.cpu);
            flags |= if wake.in_irq { flag::IRQ_WAKEUP } else { 0 };
        }
        row.flags(flags);
        task.ran_on = cpu;
        ts
    }
}

impl Step<'_> {
    /// Ends a running task's slice and its interval of `states`; it is in `phase` and `state` from then on.
    pub(super) fn stop(&mut self, utid: u32, end: &End, phase: Phase, state: State, reason: Option<StrId>) {
        let d = &mut *self.d;
        let flags = end.flags;
        let ts = d.end_slice(utid, end);
        d.tasks[utid].flags |= flags | d.tasks[utid].open.flags;
        d.turn(utid, ts, phase, state);
        let task = &mut d.tasks[utid];
        task.reason = reason;
        if task.slot.is_none() {
            d.queues.run_unplaced(-1);
        }
    }

    /// Moves a waiting task to another queue.
    #[inline]
    pub(super) fn place(&mut self, utid: u32, place: Place) {
        match place {
            Place::On(slot) => self.d.tasks[utid].slot = Some(slot),
            Place::Unplaced => self.d.tasks[utid].slot = None,
            Place::None => {}
        }
        let d = &mut *self.d;
        d.queues.place(&mut d.tasks, utid, place);
    }
}
