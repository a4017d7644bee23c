//! Everything that happens to tasks besides running: wakeups, queues, birth, death, and what they
//! say of themselves.

use super::queue::Mode;
use super::sink::{Effect, Sink, Transition};
use super::tasks::{Phase, Place, Wake};
use super::{Stated, Step, Who};
use crate::events::irq;
use crate::tables::flag;
use crate::{Kind, State};

impl<S: Sink> Step<'_, S> {
    /// A task is made runnable.
    pub(super) fn wakeup(&mut self, kind: Kind, slot: Option<usize>, ts: i64) {
        let (e, row) = (self.e, self.row);
        // Old kernels also record wakeups that found the task awake, with success=0.
        if e.value.get(row) == Some(0) && kind != Kind::LockWake {
            self.subject(ts);
            return;
        }
        let Some(tid) = e.tid.get(row) else { return };
        let stated = self.stated();
        let Some(utid) = self.task(tid, ts, stated, true) else { return };
        self.d.wakes = true;
        let queue = e.target_cpu.get(row).map(|cpu| self.d.cpus.slot(cpu));
        if self.may_run(utid) && self.d.tasks[utid].phase != Phase::Running {
            let wake = self.wake(slot, ts);
            self.d.tasks[utid].early = Some(wake);
            self.woken(utid, wake, None, Effect::Nothing);
            return;
        }
        if kind == Kind::Waking {
            self.was_away(utid, ts);
            if let Some(slot) = slot {
                self.d.cpus[slot].sent = None;
            }
        }
        if self.unrecorded(queue) && self.d.tasks[utid].phase != Phase::Running {
            let wake = self.wake(slot, ts);
            self.woken(utid, wake, queue, Effect::Nothing);
            self.away(utid, ts);
            if let Some(slot) = slot {
                self.d.cpus[slot].sent = Some((utid, wake));
            }
            return;
        }
        match self.d.tasks[utid].phase {
            Phase::Running => self.wake_running(utid, slot, ts),
            Phase::Ready => {
                if kind == Kind::Waking {
                    let wake = self.wake(slot, ts);
                    // It may have run since, unseen, and be on its way to sleep.
                    self.d.tasks[utid].early = Some(wake);
                    self.woken(utid, wake, queue, Effect::Nothing);
                }
                // `waking` still names the CPU where the task was; only the later records say where it goes.
                if let (true, Some(queue)) = (kind != Kind::Waking, queue) {
                    self.wait_on(utid, Some(queue));
                }
            }
            phase => {
                // A `waking` that was recorded while the task was on its way out says who wakes it.
                let early = self.d.tasks[utid].early.filter(|_| kind == Kind::Wakeup);
                let wake = early.map_or_else(|| self.wake(slot, ts), |early| Wake { ts, ..early });
                let new = phase == Phase::New || kind == Kind::WakeupNew;
                let ts = self.ready(utid, wake, ts);
                self.wait_on(utid, queue);
                self.woken(utid, Wake { ts, ..wake }, queue, if new { Effect::Starts } else { Effect::Wakes });
            }
        }
    }

    /// Says that a task was woken.
    fn woken(&mut self, task: u32, wake: Wake, target: Option<usize>, effect: Effect) {
        let Wake { ts, waker, slot, irq, .. } = wake;
        self.d.sink.transition(ts, Transition::Wake { task, waker, cpu: slot, target, irq, effect });
    }

    /// Who wakes: the task that has the CPU, unless it was interrupted or is idle.
    fn wake(&mut self, slot: Option<usize>, ts: i64) -> Wake {
        let (e, row) = (self.e, self.row);
        let cpu = e.cpu.get(row);
        let irq = e.irq_flags.get(row);
        let in_irq = irq.unwrap_or(0) & irq::IN_INTERRUPT != 0;
        let Some(tid) = e.ctx_tid.get(row).filter(|_| !in_irq) else {
            return Wake { ts, waker: None, cpu, slot, irq, in_irq };
        };
        if let Some(Who::Task(utid)) = slot.and_then(|slot| self.d.cpus[slot].cur) {
            if self.d.tasks[utid].tid == tid {
                return Wake { ts, waker: Some(utid), cpu, slot, irq, in_irq };
            }
        }
        let stated = self.stated_current(tid, e.ctx_comm.get(row));
        let waker = self.task(tid, ts, stated, false);
        Wake { ts, waker, cpu, slot, irq, in_irq: waker.is_none() }
    }

    pub(super) fn ready(&mut self, utid: u32, wake: Wake, ts: i64) -> i64 {
        let task = &mut self.d.tasks[utid];
        if task.phase == Phase::Off {
            let blocked = matches!(task.state, State::Blocked | State::WaitingLock);
            task.sleep = Some((ts.saturating_sub(task.since).max(0), blocked));
        }
        task.early = None;
        task.fresh = false;
        let ts = self.d.turn_ready(utid, ts);
        self.d.tasks[utid].wake = Some(Wake { ts, ..wake });
        ts
    }

    /// A wakeup of a running task: it changes nothing, unless the task is about to sleep, or the
    /// clocks disagree.
    fn wake_running(&mut self, utid: u32, slot: Option<usize>, ts: i64) {
        let wake = self.wake(slot, ts);
        let task = &self.d.tasks[utid];
        let slept = task.open.unwoken.filter(|_| task.slot != slot);
        let began = task.open.ts;
        // Who was woken by the task in this slice wakes it later than it began, whatever the clocks say.
        let woken_here = |wake: Wake| wake.waker == Some(utid) && wake.ts > began;
        let answers = wake.waker.is_some_and(|waker| self.d.tasks[waker].open.wake.is_some_and(woken_here));
        if slept.is_none() || answers {
            self.d.tasks[utid].early = Some(wake);
            self.woken(utid, wake, None, Effect::Nothing);
            return;
        }
        let open = &mut self.d.tasks[utid].open;
        open.flags |= flag::CLAMPED;
        open.wake = Some(Wake { ts: open.ts, ..wake });
        (open.unwoken, open.run_delay, open.sleep) = (None, Some(0), slept);
        let ran = open.ts;
        self.woken(utid, Wake { ts: ran, ..wake }, None, Effect::Late);
        self.skewed(utid, ts, "it ran before the wakeup that another CPU recorded");
    }

    /// Counts a waiting task on the queue of a CPU, where lengths are estimated.
    pub(super) fn wait_on(&mut self, utid: u32, queue: Option<usize>) {
        match self.d.queues.mode {
            Mode::Estimated => self.place(utid, queue.map_or(Place::Unplaced, Place::On)),
            Mode::Operations | Mode::Stated => self.d.tasks[utid].slot = queue,
        }
    }

    pub(super) fn migrate(&mut self, ts: i64) {
        self.d.queues.see_migration();
        let Some(utid) = self.subject(ts) else { return };
        let target = self.e.target_cpu.get(self.row).map(|cpu| self.d.cpus.slot(cpu));
        match target {
            Some(target) if self.d.options.partial.cpus.is_some() => self.migrate_partly(utid, target, ts),
            Some(_) if self.d.tasks[utid].phase == Phase::Ready => self.wait_on(utid, target),
            _ => {}
        }
        if let Some(target) = target {
            self.d.sink.transition(ts, Transition::Migrate { task: utid, target });
        }
    }

    /// The source puts a task on a queue.
    pub(super) fn enqueue(&mut self, slot: Option<usize>, ts: i64) {
        let (e, row) = (self.e, self.row);
        let Some(tid) = e.tid.get(row) else { return };
        let stated = self.stated();
        let Some(utid) = self.task(tid, ts, stated, true) else { return };
        let place = e.target_cpu.get(row).map_or(Place::Unplaced, |cpu| Place::On(self.d.cpus.slot(cpu)));
        match self.d.tasks[utid].phase {
            Phase::Running => {
                self.d.tasks[utid].hint.queued = Some(place);
                return;
            }
            Phase::Ready => {}
            _ => {
                self.d.wakes = true;
                let wake = self.wake(slot, ts);
                let ts = self.ready(utid, wake, ts);
                let target = if let Place::On(slot) = place { Some(slot) } else { None };
                self.woken(utid, Wake { ts, ..wake }, target, Effect::Wakes);
            }
        }
        if self.d.queues.mode != Mode::Stated {
            self.place(utid, place);
            self.d.tasks[utid].enqueued = true;
        }
    }

    /// The source takes a task off a queue; it runs next, or is put on another. A source that
    /// records this records every queue operation.
    pub(super) fn dequeue(&mut self, ts: i64) {
        if self.d.queues.mode == Mode::Estimated {
            let d = &mut *self.d;
            d.queues.change_mode(Mode::Operations, &mut d.tasks);
        }
        let Some(utid) = self.subject(ts) else { return };
        self.d.tasks[utid].hint.queued = None;
        if self.d.queues.mode == Mode::Operations {
            self.place(utid, Place::None);
        }
    }

    /// The source states the length of a queue.
    pub(super) fn load(&mut self, ts: i64) {
        let (e, row) = (self.e, self.row);
        if self.d.queues.mode != Mode::Stated {
            let d = &mut *self.d;
            d.queues.change_mode(Mode::Stated, &mut d.tasks);
        }
        if let (Some(cpu), Some(length)) = (e.target_cpu.get(row), e.value.get(row)) {
            let slot = self.d.cpus.slot(cpu);
            self.d.queues.state(slot, length);
        }
        self.subject(ts);
    }

    /// The running task says how it is about to leave.
    pub(super) fn hint(&mut self, kind: Kind, ts: i64) {
        let Some(utid) = self.subject_or_current(ts) else { return };
        let reason = self.e.reason.get(self.row);
        let task = &mut self.d.tasks[utid];
        if task.phase != Phase::Running {
            return;
        }
        match kind {
            Kind::Yield => {
                task.hint.state = Some(State::Yielding);
                task.hint.yielded = true;
            }
            Kind::Preempt => task.hint.state = Some(State::Preempted),
            Kind::Sleep => task.hint.state = Some(State::Sleeping),
            Kind::LockWait => task.hint.state = Some(State::WaitingLock),
            // Chosen again: it does not leave after all.
            _ => task.hint = super::tasks::Hint::default(),
        }
        task.hint.reason = reason.or(task.hint.reason);
    }

    /// The kernel says at the wakeup what the task slept on.
    pub(super) fn blocked_reason(&mut self, ts: i64) {
        let Some(utid) = self.subject(ts) else { return };
        let reason = self.e.reason.get(self.row);
        let task = &mut self.d.tasks[utid];
        match &mut task.slept {
            Some(slept) => slept.reason = reason.or(slept.reason),
            None if task.phase == Phase::Off => task.reason = reason.or(task.reason),
            None => {}
        }
    }

    /// A task makes another. The number may have belonged to a task that ended, or whose end was not seen.
    pub(super) fn fork(&mut self, slot: Option<usize>, ts: i64) {
        let (e, row) = (self.e, self.row);
        let Some(tid) = e.tid.get(row).filter(|&tid| tid != 0) else { return };
        let parent = self.wake(slot, ts).waker;
        if let Some(old) = self.d.tasks.get(tid) {
            let known = &mut self.d.tasks[old];
            if known.fresh {
                // The same fork recorded twice, by two kinds of records.
                known.parent = known.parent.or(parent);
                self.subject(ts);
                return;
            }
            if known.phase == Phase::Unseen {
                self.d.tasks.unbind(tid);
            } else {
                self.retire(old, ts);
            }
        }
        let stated = self.stated();
        let Some(utid) = self.task(tid, ts, stated, false) else { return };
        let inherited = parent.and_then(|p| self.d.tasks[p].comm);
        let thread = parent.is_some_and(|p| stated.pid.is_some() && stated.pid == self.d.tasks[p].pid);
        self.d.sink.transition(ts, Transition::Fork { parent, child: utid, thread, cpu: slot });
        let task = &mut self.d.tasks[utid];
        if task.comm.is_none() {
            task.set_comm(inherited);
        }
        task.parent = parent;
        task.start_ts = Some(ts);
        task.fresh = true;
        if !task.idle {
            task.phase = Phase::New;
            task.state = State::UnknownOff;
        }
    }

    /// A task executes another program. `value` is the thread number it had before, where it changed.
    pub(super) fn exec(&mut self, ts: i64) {
        let (e, row) = (self.e, self.row);
        let Some(tid) = e.tid.get(row).or(e.ctx_tid.get(row)).filter(|&tid| tid != 0) else { return };
        if let Some(old) = e.value.get(row).filter(|&old| old > 0 && old != tid) {
            if let Some(utid) = self.d.tasks.get(old) {
                if let Some(leader) = self.d.tasks.get(tid) {
                    self.retire(leader, ts);
                }
                self.d.tasks.unbind(old);
                self.d.tasks.bind(tid, utid);
                self.d.tasks[utid].tid = tid;
            }
        }
        let stated = if e.tid.get(row).is_some() { self.stated() } else { Stated::default() };
        if let Some(utid) = self.task(tid, ts, stated, false) {
            self.d.tasks[utid].exec_path = e.name.get(row).or(self.d.tasks[utid].exec_path);
            self.d.sink.transition(ts, Transition::Exec { task: utid });
        }
    }

    /// A task begins to end; it still runs until its last switch.
    pub(super) fn exit(&mut self, ts: i64) {
        if let Some(utid) = self.subject_or_current(ts) {
            let task = &mut self.d.tasks[utid];
            task.exited = true;
            task.end_ts = task.end_ts.or(Some(ts));
            self.d.sink.transition(ts, Transition::Exit { task: utid });
        }
    }

    /// The kernel forgets a task.
    pub(super) fn free(&mut self, ts: i64) {
        let Some(utid) = self.subject(ts) else { return };
        let task = &self.d.tasks[utid];
        let over = task.phase == Phase::Dead || task.exited;
        // A free that comes late, when the number has a new owner, is not about that one.
        if task.phase != Phase::Running && (over || task.start_ts.is_none()) {
            self.retire(utid, ts);
        }
    }

    /// Ends what is known of a task and lets its number go.
    pub(super) fn retire(&mut self, utid: u32, ts: i64) {
        if self.d.tasks[utid].phase == Phase::Running {
            let slot = self.d.tasks[utid].slot;
            if let Some(slot) = slot {
                let cpu = &mut self.d.cpus[slot];
                cpu.account(ts);
                cpu.forget(ts, flag::CROSSES_LOSS);
                self.d.queues.touch(slot);
            }
            let end = super::emit::End { ts, flags: flag::INFERRED_END, ..Default::default() };
            self.stop(utid, &end, Phase::Dead, State::Dead, None);
        }
        self.place(utid, Place::None);
        self.d.turn(utid, ts, Phase::Unseen, State::Unknown);
        let task = &mut self.d.tasks[utid];
        task.end_ts = task.end_ts.or(Some(ts));
        let tid = task.tid;
        if self.d.tasks.get(tid) == Some(utid) {
            self.d.tasks.unbind(tid);
        }
    }

    /// A task's priority changes.
    pub(super) fn prio(&mut self, ts: i64) {
        let Some(utid) = self.subject_or_current(ts) else { return };
        if let Some(prio) = self.e.value.get(self.row).and_then(|p| i32::try_from(p).ok()) {
            self.d.tasks[utid].set_prio(prio);
            self.d.sink.transition(ts, Transition::Prio { task: utid, prio });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::Trace;
    use crate::table::Table;
    use crate::{Code, DeriveOptions, Kind, State};

    #[test]
    fn a_waking_by_whom_the_task_has_just_woken_is_for_its_next_sleep() {
        // What woke 1 at 50 is not recorded. It wakes 2, which wakes it as it falls asleep.
        let mut t = Trace::default();
        t.switch(0, 0, 0, State::Runnable, 1);
        t.switch(0, 1, 0, State::Runnable, 2);
        t.switch(10, 1, 2, State::Blocked, 0);
        t.switch(20, 0, 1, State::Blocked, 0);
        t.switch(50, 0, 0, State::Runnable, 1);
        t.wake(60, 0, Kind::Waking, 1, 2, 1);
        t.switch(70, 1, 0, State::Runnable, 2);
        t.wake(95, 1, Kind::Waking, 2, 1, 0);
        t.switch(100, 0, 1, State::Blocked, 0);
        t.switch(130, 0, 0, State::Runnable, 1);
        let (d, diagnostics) = t.derive_with(DeriveOptions::default());
        let s = &d.slices;
        let mine: Vec<_> = (0..s.len()).filter(|&i| s.tid.get(i) == Some(1)).collect();
        let got: Vec<_> =
            mine.iter().map(|&i| (s.run_delay_ns.get(i), s.wake_ts_ns.get(i), s.sleep_ns.get(i))).collect();
        assert_eq!(got, [(None, None, None), (None, None, None), (Some(30), Some(100), Some(0))]);
        assert_eq!(diagnostics.count(Code::ClockSkew), 0);
    }
}
