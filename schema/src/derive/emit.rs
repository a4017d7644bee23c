//! The two places where an interval ends: rows of `states` and of `slices`.

use super::sink::{Sink, SliceRow, StateRow, Transition, Why};
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
    /// Priorities of the task that leaves and of the one that comes, as the switch says.
    pub prio: Option<i32>,
    pub next: Option<i32>,
}

impl End {
    /// Why the task, which is in `phase` and `state` from now on, left.
    pub(super) fn why(&self, phase: Phase, state: State) -> Why {
        let repaired = self.flags & (flag::INFERRED_END | flag::CROSSES_LOSS | flag::OPEN_END) != 0;
        match phase {
            Phase::Dead => Why::Ended,
            _ if repaired => Why::Unknown,
            Phase::Ready if self.yielded || state == State::Yielding => Why::Yielded,
            Phase::Ready if state == State::Preempted => Why::Preempted,
            Phase::Ready => Why::Ready,
            Phase::Off => Why::Slept(state),
            _ => Why::Unknown,
        }
    }

    /// The task could have gone on, and did not yield, where yields are recorded; `None` where nobody says.
    pub(super) fn involuntary(&self, yields_recorded: bool) -> Option<bool> {
        match self.state? {
            State::Unknown | State::UnknownOff => None,
            state => Some(state.is_runnable() && !(yields_recorded && (self.yielded || state == State::Yielding))),
        }
    }
}

impl<S: Sink> Deriver<S> {
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
        if let Some(slept) = task.slept.take() {
            let Slept { from, to, state, reason, flags } = slept;
            let (tid, comm, dur) = (task.tid, task.comm, to.saturating_sub(from));
            self.sink.state(&StateRow { ts: from, dur, utid, tid, comm, state, reason, cpu: None, flags });
        }
        let unknown = matches!(task.phase, Phase::Unseen | Phase::Unknown | Phase::New);
        if task.phase == Phase::Unseen || (unknown && ts == task.since) {
            return;
        }
        let mut flags = task.flags;
        if task.since < loss && task.phase != Phase::Running {
            flags |= flag::CROSSES_LOSS;
        }
        let cpu = match (task.phase, task.slot) {
            (Phase::Running | Phase::Ready, Some(slot)) => Some(self.cpus.all[slot].cpu),
            _ => None,
        };
        let (tid, comm, state, reason) = (task.tid, task.comm, task.state, task.reason);
        let dur = ts.saturating_sub(task.since);
        self.sink.state(&StateRow { ts: task.since, dur, utid, tid, comm, state, reason, cpu, flags });
    }

    /// Ends the slice of a running task. The CPU's account is the caller's to keep.
    pub(super) fn end_slice(&mut self, utid: u32, end: &End) -> i64 {
        let task = &mut self.tasks.all[utid as usize];
        let ts = end.ts.max(task.open.ts);
        let dur = ts.saturating_sub(task.open.ts);
        let cpu = task.slot.map(|slot| self.cpus.all[slot].cpu);
        task.run_ns = task.run_ns.saturating_add(dur);
        task.nr_slices += 1;
        let involuntary = end.involuntary(self.options.yields_recorded);
        match involuntary {
            Some(true) => task.nr_involuntary += 1,
            Some(false) => task.nr_voluntary += 1,
            None => {}
        }
        let open = &task.open;
        let mut flags = open.flags | end.flags;
        if open.wake.is_some_and(|wake| wake.in_irq) {
            flags |= flag::IRQ_WAKEUP;
        }
        self.sink.slice(&SliceRow {
            ts: open.ts,
            dur,
            cpu,
            utid,
            tid: task.tid,
            pid: task.pid,
            comm: task.comm,
            prio: open.prio,
            end_state: end.state,
            involuntary,
            run_delay: open.run_delay,
            prev_cpu: open.prev_cpu,
            seq: (open.seq, end.seq),
            sleep: open.sleep,
            wake: open.wake.map(|wake| (wake.ts, wake.waker, wake.cpu)),
            flags,
        });
        task.ran_on = cpu;
        ts
    }
}

impl<S: Sink> Step<'_, S> {
    /// Ends a running task's slice and its interval of `states`; it is in `phase` and `state` from then on.
    pub(super) fn stop(&mut self, utid: u32, end: &End, phase: Phase, state: State, reason: Option<StrId>) {
        let d = &mut *self.d;
        let flags = end.flags;
        let ts = d.end_slice(utid, end);
        let (cpu, why) = (d.tasks[utid].slot, end.why(phase, state));
        d.sink.transition(ts, Transition::SwitchOut { task: utid, cpu, why, prio: end.prio, next: end.next });
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
