//! Who runs: switches, half switches, confirmations, and what repairs and losses do to them.

use super::emit::End;
use super::queue::Mode;
use super::sink::{Effect, Sink, Transition};
use super::tasks::{Open, Phase, Place, Wake};
use super::{Stated, Step, Who};
use crate::tables::flag;
use crate::{Code, Diagnostic, State, StrId};

/// What becomes of a task that leaves its CPU.
pub(super) struct Departure {
    pub state: Option<State>,
    pub yielded: bool,
    pub reason: Option<StrId>,
    pub phase: Phase,
    pub next: State,
    queued: Option<Place>,
}

/// A runnable task has an idle CPU within far less, as `tracekit check` expects (`work-conservation`).
pub(super) const BESIDE_IDLE_NS: i64 = 1_000_000;
const ENTERS_EARLY: &str = "it enters a CPU before it left another";

impl<S: Sink> Step<'_, S> {
    /// A switch, or half of one.
    pub(super) fn switch(&mut self, slot: Option<usize>, ts: i64) {
        let (from, to) = (self.e.tid.get(self.row), self.e.next_tid.get(self.row));
        if self.d.options.partial.tasks {
            return self.switch_of_some(slot, from, to, ts);
        }
        if !self.d.live {
            self.go_live(slot);
        }
        self.d.translated |= self.e.ctx_tid.get(self.row) == Some(0) && from.is_some_and(|tid| tid != 0);
        let Some(slot) = slot else { return self.switch_nowhere(from, to, ts) };
        self.left_late(slot);
        if from.is_some() && from == to {
            return self.resume(Some(slot), ts);
        }
        if self.stands_twice(slot, from, to, ts) {
            return;
        }
        if let (Some(0), Some(at), Some(Who::Task(cur))) = (from, self.d.cpus[slot].idled.take(), self.d.cpus[slot].cur)
        {
            self.idles_unseen(slot, cur, at, ts);
        }
        match from {
            Some(tid) => self.leave(slot, tid, ts),
            None if to.is_some() && to == self.running_tid(slot) => return,
            None => self.leave_unnamed(slot, ts),
        }
        match to {
            Some(tid) => {
                let stated = self.stated_next();
                self.d.cpus[slot].nr_switches += 1;
                match self.task(tid, ts, stated, true) {
                    Some(utid) => {
                        self.enter(Some(slot), utid, ts);
                        self.d.cpus[slot].switching = from == Some(0);
                    }
                    None => {
                        self.enter_idle(slot, tid, stated, ts);
                        self.gone_unseen(slot, ts);
                    }
                }
            }
            None => {
                let left = from.and_then(|tid| self.d.tasks.get(tid));
                let cpu = &mut self.d.cpus[slot];
                cpu.forget(ts, cpu.start_flag);
                cpu.left = left;
            }
        }
        self.d.queues.touch(slot);
    }

    fn running_tid(&self, slot: usize) -> Option<i64> {
        match self.d.cpus[slot].cur? {
            Who::Task(utid) => Some(self.d.tasks[utid].tid),
            Who::Idle => None,
        }
    }

    /// `tid` leaves the CPU at `ts`.
    fn leave(&mut self, slot: usize, tid: i64, ts: i64) {
        let stated = self.stated();
        let left = self.d.cpus[slot].left;
        let known = left.is_some() && left == self.d.tasks.get(tid);
        let who = self.task(tid, ts, stated, !known).map_or(Who::Idle, Who::Task);
        if who == Who::Idle {
            self.idle_thread(slot, tid, stated);
        }
        let cur = self.d.cpus[slot].cur;
        match (cur, who) {
            (None, Who::Idle) => {
                self.begin_idle(slot);
                self.d.cpus[slot].account(ts);
            }
            (None, Who::Task(_)) if known => {
                self.d.cpus[slot].account(ts);
            }
            (None, Who::Task(utid)) => {
                if self.d.tasks[utid].phase == Phase::Running {
                    return self.mismatch(slot, who, ts);
                }
                self.begin(slot, utid);
                self.d.cpus[slot].account(ts);
                self.depart(utid, Some(slot), ts);
            }
            (Some(cur), who) if cur == who => {
                self.d.cpus[slot].account(ts);
                if let Who::Task(utid) = who {
                    self.depart(utid, Some(slot), ts);
                }
            }
            _ => self.mismatch(slot, who, ts),
        }
        self.d.cpus[slot].cur = None;
    }

    /// Whoever had the CPU leaves it because another enters.
    fn leave_unnamed(&mut self, slot: usize, ts: i64) {
        self.d.cpus[slot].account(ts);
        if let Some(Who::Task(utid)) = self.d.cpus[slot].cur {
            self.depart(utid, Some(slot), ts);
        }
        self.d.cpus[slot].cur = None;
    }

    /// What the record and the task's own earlier records say about its leaving.
    pub(super) fn departure(&mut self, utid: u32, ts: i64) -> Departure {
        let row = self.row;
        let task = &mut self.d.tasks[utid];
        let hint = std::mem::take(&mut task.hint);
        let queued = hint.queued.map(|_| State::Runnable);
        let ended = task.exited.then_some(State::Dead);
        let state = self.e.state.get(row).or(hint.state).or(queued).or(ended);
        let (phase, next) = match state {
            None | Some(State::Unknown) => (Phase::Off, State::UnknownOff),
            Some(State::Running) => (Phase::Ready, State::Runnable),
            Some(s) if s.is_runnable() => (Phase::Ready, s),
            Some(s) if s.is_end() => (Phase::Dead, s),
            Some(s) => (Phase::Off, s),
        };
        if phase == Phase::Dead {
            task.end_ts.get_or_insert(ts);
        }
        let reason = self.e.reason.get(row).or(hint.reason);
        (task.wake, task.sleep) = (None, None);
        Departure { state, yielded: hint.yielded, reason, phase, next, queued: hint.queued }
    }

    /// Priorities of the tasks that leave and come, as the record says; idle has none.
    fn prios(&self) -> (Option<i32>, Option<i32>) {
        let comes = self.e.next_tid.get(self.row).is_some_and(|tid| tid != 0);
        (self.e.prio.get(self.row), self.e.next_prio.get(self.row).filter(|_| comes))
    }

    /// A task that was not known to run leaves.
    pub(super) fn left_unseen(&mut self, utid: u32, slot: Option<usize>, ts: i64, end: &End) {
        let (prio, next) = self.prios();
        let (phase, state) = (self.d.tasks[utid].phase, self.d.tasks[utid].state);
        let why = end.why(phase, state);
        self.d.sink.transition(ts, Transition::SwitchOut { task: utid, cpu: slot, why, prio, next });
    }

    /// A running task leaves, as the switch says.
    pub(super) fn depart(&mut self, utid: u32, slot: Option<usize>, ts: i64) {
        let to = self.departure(utid, ts);
        let (prio, next) = self.prios();
        let end = End { ts, state: to.state, yielded: to.yielded, seq: self.seq(), flags: 0, prio, next };
        self.clamp(ts, self.d.tasks[utid].open.ts, utid);
        self.stop(utid, &end, to.phase, to.next, to.reason);
        self.wait_after(utid, slot, &to);
    }

    /// A task that left and stays runnable waits on a queue.
    fn wait_after(&mut self, utid: u32, slot: Option<usize>, to: &Departure) {
        if to.phase != Phase::Ready {
            return;
        }
        let place = match self.d.queues.mode {
            Mode::Estimated => to.queued.unwrap_or(slot.map_or(Place::Unplaced, Place::On)),
            Mode::Operations => to.queued.unwrap_or(Place::None),
            Mode::Stated => Place::None,
        };
        self.place(utid, place);
        self.d.tasks[utid].enqueued = to.queued.is_some();
    }

    /// Another than the task that ran leaves: at least one switch is missing.
    fn mismatch(&mut self, slot: usize, who: Who, ts: i64) {
        let cpu = &self.d.cpus[slot];
        let (number, last, cur) = (cpu.cpu, cpu.last.min(ts), cpu.cur);
        let name = |d: &super::Deriver<S>, who| match who {
            Some(Who::Task(u)) => format!("thread {}", d.tasks[u].tid),
            Some(Who::Idle) => "idle".to_owned(),
            None => "nobody".to_owned(),
        };
        let d = &*self.d;
        // Who was current in records before the first switch of a CPU may have left before switches were
        // recorded there. perf enables its events CPU by CPU (tools/perf/util/evlist.c, evlist__enable), and
        // records the names, forks and ends of tasks before.
        let early = d.cpus[slot].nr_switches == 0;
        // A CPU that goes offline is given to its stopper last, and keeps no record of what follows
        // (`take_cpu_down`; tracepoints are for CPUs that are online).
        let stopper = |u: u32| d.tasks[u].comm.is_some_and(|c| self.strings.get(c).starts_with(b"migration/"));
        let offline = who == Who::Idle && matches!(cur, Some(Who::Task(u)) if stopper(u));
        let code = if early { Code::Inferred } else { Code::SwitchMismatch };
        self.diagnostics.push_with(code, || {
            let (was, leaves) = (name(d, cur), name(d, Some(who)));
            let (message, advice) = if early {
                let message = format!("{leaves} leaves CPU {number} in its first switch, and {was} had it before");
                (message, "the switches of that CPU are recorded from then on only")
            } else {
                let message = format!("{leaves} leaves the CPU, where {was} was running");
                let advice = "a switch record is missing: metrics around this time are uncertain";
                let off = "the CPU was offline, as its stopper had it last: nobody ran there in between";
                (message, if offline { off } else { advice })
            };
            Diagnostic::new(code, message).on_cpu(number).at_ts(ts).advise(advice)
        });
        let last = self.d.cpus[slot].account(last);
        if let Some(Who::Task(utid)) = cur {
            let end = End { ts: last, flags: flag::INFERRED_END, ..End::default() };
            self.stop(utid, &end, Phase::Off, State::UnknownOff, None);
        }
        self.d.cpus[slot].cur = None;
        self.d.cpus[slot].account(ts);
        if let Who::Task(utid) = who {
            self.oust(utid, ts);
            let to = self.departure(utid, ts);
            let end = End { ts, state: to.state, yielded: to.yielded, ..End::default() };
            let task = &mut self.d.tasks[utid];
            match end.involuntary(self.d.options.yields_recorded) {
                Some(true) => task.nr_involuntary += 1,
                Some(false) => task.nr_voluntary += 1,
                None => {}
            }
            task.flags |= flag::INFERRED_END;
            let at = self.d.turn(utid, ts, to.phase, to.next);
            self.left_unseen(utid, Some(slot), at, &end);
            self.d.tasks[utid].reason = to.reason;
            self.place(utid, Place::None);
            self.d.tasks[utid].slot = Some(slot);
            self.wait_after(utid, Some(slot), &to);
        }
    }

    /// Ends the slice of a task that turns out to be elsewhere than where it was thought to run.
    fn oust(&mut self, utid: u32, ts: i64) {
        if self.d.tasks[utid].phase != Phase::Running {
            return;
        }
        let slot = self.d.tasks[utid].slot;
        let mut end = ts;
        if let Some(slot) = slot {
            let cpu = &mut self.d.cpus[slot];
            end = cpu.account(ts);
            cpu.forget(end, flag::CROSSES_LOSS);
            cpu.left = Some(utid);
            self.d.queues.touch(slot);
        }
        let end = End { ts: end, flags: flag::INFERRED_END, ..End::default() };
        self.stop(utid, &end, Phase::Off, State::UnknownOff, None);
    }

    /// A CPU whose task entered another one switches again: that came too late, not behind its last record.
    fn left_late(&mut self, slot: usize) {
        if let Some((utid, at)) = self.d.cpus[slot].ousted.take() {
            self.skewed(utid, at, ENTERS_EARLY);
        }
    }

    /// A task comes to run, as the record says.
    fn enter(&mut self, slot: Option<usize>, utid: u32, ts: i64) {
        let prio = self.e.next_prio.get(self.row);
        self.enters(slot, utid, ts, prio, true);
    }

    /// A task comes to run; `seen` says that the record shows it.
    pub(super) fn enters(&mut self, slot: Option<usize>, utid: u32, ts: i64, prio: Option<i32>, seen: bool) {
        let ts = slot.map_or(ts, |slot| self.d.cpus[slot].account(ts));
        if self.d.tasks[utid].phase == Phase::Running {
            match self.d.tasks[utid].slot.filter(|from| Some(*from) != slot) {
                Some(from) => self.d.cpus[from].ousted = Some((utid, ts)),
                None => self.skewed(utid, ts, ENTERS_EARLY),
            }
            self.oust(utid, ts);
        }
        self.waits_beside_idle(slot, utid, ts);
        let task = &mut self.d.tasks[utid];
        let asleep = task.phase == Phase::Off && task.state != State::UnknownOff;
        let blocked = matches!(task.state, State::Blocked | State::WaitingLock);
        if let (true, Some(early)) = (asleep, task.early) {
            // The only wakeup since then was written while the task was still on its way out.
            task.wake = Some(Wake { ts: task.since, ..early });
            task.sleep = Some((0, blocked));
            (task.phase, task.state) = (Phase::Ready, State::Runnable);
            let Wake { waker, irq, slot: cpu, .. } = early;
            let wake =
                Transition::Wake { task: utid, waker, cpu, target: slot, irq, effect: Effect::Overtook(early.ts) };
            self.d.sink.transition(task.since, wake);
        } else if asleep {
            task.flags |= flag::INFERRED_END;
            self.d.unwoken = true;
        }
        let run_delay = (task.phase == Phase::Ready).then(|| ts.saturating_sub(task.since).max(0));
        let late = task.phase == Phase::Ready && ts < task.since;
        task.open = Open {
            ts: ts.max(task.since),
            seq: self.e.seq.get(self.row).filter(|_| seen),
            prio: task.prio,
            wake: task.wake.take(),
            run_delay,
            sleep: task.sleep.take(),
            prev_cpu: task.ran_on,
            flags: if late { flag::CLAMPED } else { 0 } | if seen { 0 } else { flag::INFERRED_START },
            unwoken: (asleep && task.phase == Phase::Off).then(|| (ts.saturating_sub(task.since).max(0), blocked)),
        };
        task.early = task.early.filter(|wake| wake.ts > ts);
        task.hint = super::tasks::Hint::default();
        task.fresh = false;
        if late {
            self.skewed(utid, ts, "it runs before it was runnable");
        }
        let ts = self.d.turn(utid, ts, Phase::Running, State::Running);
        self.place(utid, Place::None);
        self.d.tasks[utid].slot = slot;
        match slot {
            Some(slot) => {
                let cpu = &mut self.d.cpus[slot];
                cpu.account(ts);
                cpu.cur = Some(Who::Task(utid));
                cpu.left = None;
                cpu.start_flag = flag::CROSSES_LOSS;
            }
            None => self.d.queues.run_unplaced(1),
        }
        self.d.sink.transition(ts, Transition::SwitchIn { task: utid, cpu: slot, prio, seen });
    }

    /// A task whose last wakeup came from another CPU while it still ran, and whose own CPU idled from when
    /// it left until it came back: where clocks disagree, that wakeup was later than it seems.
    fn waits_beside_idle(&mut self, slot: Option<usize>, utid: u32, ts: i64) {
        let task = &self.d.tasks[utid];
        let (Some(here), Some(early)) = (slot, task.early) else { return };
        let idle = self.d.cpus[here].idle_since == Some(task.since) && task.ran_on == Some(self.d.cpus[here].cpu);
        let waited = ts.saturating_sub(task.since);
        if task.phase != Phase::Off || !idle || early.slot.is_none_or(|from| from == here) || waited <= BESIDE_IDLE_NS {
            return;
        }
        let (tid, woken) = (task.tid, task.since.saturating_sub(early.ts));
        self.diagnostics.push_with(Code::ClockSkew, || {
            let message = format!(
                "thread {tid}: another CPU woke it {} us before it went to sleep, and then its own CPU idled for {} us",
                woken / 1000,
                waited / 1000
            );
            Diagnostic::new(Code::ClockSkew, message).at_ts(ts).advise(
                "the clocks of the CPUs may disagree by more than it ran: its run delay, here this idle \
                 time, is not to be trusted then; record with one clock for all CPUs (trace-cmd -C mono, \
                 perf -k mono)",
            )
        });
    }

    pub(super) fn enter_idle(&mut self, slot: usize, tid: i64, stated: Stated, ts: i64) {
        self.idle_thread(slot, tid, stated);
        let cpu = &mut self.d.cpus[slot];
        let ts = cpu.account(ts);
        cpu.idle_since = Some(ts);
        cpu.cur = Some(Who::Idle);
        cpu.left = None;
        cpu.start_flag = flag::CROSSES_LOSS;
        cpu.idle_periods += 1;
        let from = cpu.since;
        self.d.sink.transition(from, Transition::Idle { cpu: slot });
    }

    /// Notes what an idle thread is called, and which CPU one with a number of its own belongs to.
    pub(super) fn idle_thread(&mut self, slot: usize, tid: i64, stated: Stated) {
        let cpu = &mut self.d.cpus[slot];
        cpu.idle_comm = cpu.idle_comm.or(stated.comm);
        if tid != 0 {
            if let Some(utid) = self.d.tasks.get(tid) {
                let cpu = &mut self.d.cpus[slot];
                cpu.idle_utid = Some(utid);
                self.d.tasks[utid].idle_cpu = Some(cpu.cpu);
            }
        }
    }

    /// Notes that a task's records contradict the order of time.
    pub(super) fn skewed(&mut self, utid: u32, ts: i64, what: &str) {
        let tid = self.d.tasks[utid].tid;
        self.diagnostics.push_with(Code::ClockSkew, || {
            Diagnostic::new(Code::ClockSkew, format!("thread {tid}: {what}"))
                .at_ts(ts)
                .advise("the clocks of the CPUs disagree; the interval is taken as empty")
        });
    }

    /// Flags and counts a slice that would end before it began.
    fn clamp(&mut self, ts: i64, begin: i64, utid: u32) {
        if ts < begin {
            self.d.tasks[utid].open.flags |= flag::CLAMPED;
            self.skewed(utid, ts, "it leaves before it entered");
        }
    }

    /// A task runs on, or starts to, without word of who left.
    pub(super) fn resume(&mut self, slot: Option<usize>, ts: i64) {
        let e = self.e;
        let subject = e.tid.get(self.row).or(e.ctx_tid.get(self.row));
        let Some(tid) = subject else { return };
        if !self.d.live {
            self.go_live(slot);
        }
        let stated = if e.tid.get(self.row).is_some() { self.stated() } else { Stated::default() };
        let who = self.task(tid, ts, stated, true).map_or(Who::Idle, Who::Task);
        let Some(slot) = slot else {
            if let Who::Task(utid) = who {
                if self.d.tasks[utid].phase != Phase::Running {
                    self.enter(None, utid, ts);
                }
            }
            return;
        };
        self.left_late(slot);
        let cur = self.d.cpus[slot].cur;
        if cur == Some(who) {
            if let Who::Task(utid) = who {
                self.d.tasks[utid].hint = super::tasks::Hint::default();
            }
            return;
        }
        if let Some(cur) = cur {
            let cpu = self.d.cpus[slot].cpu;
            self.diagnostics.push_with(Code::SwitchMismatch, || {
                Diagnostic::new(Code::SwitchMismatch, format!("thread {tid} runs, and no record says that it entered"))
                    .on_cpu(cpu)
                    .at_ts(ts)
            });
            let end = self.d.cpus[slot].account(ts);
            if let Who::Task(utid) = cur {
                let end = End { ts: end, flags: flag::INFERRED_END, ..End::default() };
                self.stop(utid, &end, Phase::Off, State::UnknownOff, None);
            }
            self.d.cpus[slot].cur = None;
        }
        match who {
            Who::Task(utid) => self.enter(Some(slot), utid, ts),
            Who::Idle => self.enter_idle(slot, tid, stated, ts),
        }
        self.d.queues.touch(slot);
    }

    /// A switch in a source without a CPU column.
    fn switch_nowhere(&mut self, from: Option<i64>, to: Option<i64>, ts: i64) {
        if from.is_some() && from == to {
            return;
        }
        let stated = self.stated();
        if let Some(utid) = from.and_then(|tid| self.task(tid, ts, stated, true)) {
            let first = self.d.span.map_or(ts, |s| s.0).max(self.d.last_loss).min(ts);
            let task = &mut self.d.tasks[utid];
            if task.phase == Phase::Unknown && !task.turned {
                let first = first.min(task.since);
                (task.since, task.first_ts) = (first, first);
                task.open = Open { ts: first, prio: task.prio, ..Open::default() };
                task.open.flags = flag::OPEN_START;
                (task.phase, task.state, task.slot) = (Phase::Running, State::Running, None);
                self.d.queues.run_unplaced(1);
                let switch_in = Transition::SwitchIn { task: utid, cpu: None, prio: None, seen: false };
                self.d.sink.transition(first, switch_in);
            }
            if self.d.tasks[utid].phase == Phase::Running {
                if let Some(slot) = self.d.tasks[utid].slot {
                    let cpu = &mut self.d.cpus[slot];
                    let at = cpu.account(ts);
                    cpu.forget(at, flag::CROSSES_LOSS);
                    self.d.queues.touch(slot);
                }
                self.depart(utid, None, ts);
            } else {
                let to = self.departure(utid, ts);
                self.d.tasks[utid].flags |= flag::INFERRED_END;
                let at = self.d.turn(utid, ts, to.phase, to.next);
                let end = End { yielded: to.yielded, ..End::default() };
                self.left_unseen(utid, None, at, &end);
                self.wait_after(utid, None, &to);
            }
        }
        let stated = self.stated_next();
        if let Some(utid) = to.and_then(|tid| self.task(tid, ts, stated, true)) {
            self.enter(None, utid, ts);
        }
    }

    /// Records were lost: on one CPU, or nobody knows where.
    pub(super) fn lost(&mut self, slot: Option<usize>, ts: i64) {
        let count = self.e.value.get(self.row).and_then(|n| u64::try_from(n).ok());
        self.d.last_loss = self.d.last_loss.max(ts);
        let before = match slot {
            Some(slot) => self.d.cpus[slot].last,
            None => self.d.cpus.all.iter().filter(|c| c.first.is_some()).map(|c| c.last).max().unwrap_or(ts),
        };
        match slot {
            Some(slot) => {
                let cpu = &mut self.d.cpus[slot];
                cpu.nr_lost = cpu.nr_lost.zip(count).map(|(a, b)| a.saturating_add(b));
                self.forget_cpu(slot, ts, flag::CROSSES_LOSS);
            }
            None => {
                for slot in 0..self.d.cpus.all.len() {
                    self.d.cpus[slot].nr_lost = None;
                    self.forget_cpu(slot, ts, flag::CROSSES_LOSS);
                }
                self.forget_unplaced(ts, flag::CROSSES_LOSS);
            }
        }
        self.d.sink.transition(ts, Transition::Lost { cpu: slot, from: before.min(ts) });
    }

    /// Tracing stops everywhere.
    pub(super) fn trace_off(&mut self, ts: i64) {
        for slot in 0..self.d.cpus.all.len() {
            let cpu = &mut self.d.cpus[slot];
            cpu.last = cpu.last.max(ts);
            self.forget_cpu(slot, ts, flag::OPEN_END);
            self.d.cpus[slot].start_flag = flag::OPEN_START;
        }
        self.forget_unplaced(ts, flag::OPEN_END);
    }

    /// What is known of a CPU ends at its last record.
    fn forget_cpu(&mut self, slot: usize, ts: i64, why: u16) {
        self.d.queues.touch(slot);
        let cpu = &mut self.d.cpus[slot];
        (cpu.proposed, cpu.ousted) = (None, None);
        if cpu.first.is_none() {
            return;
        }
        let last = cpu.last.min(ts);
        let known = cpu.account(last);
        let cur = cpu.cur;
        if let Some(Who::Task(utid)) = cur {
            let end = End { ts: known, flags: why, ..End::default() };
            self.stop(utid, &end, Phase::Unknown, State::Unknown, None);
        }
        self.d.cpus[slot].forget(ts, why);
        if self.d.queues.waiting(slot) > 0 {
            self.forget_tasks(last, why, |place| place == Place::On(slot));
        }
    }

    /// Tasks that wait or run nobody knows where are lost sight of.
    fn forget_unplaced(&mut self, ts: i64, why: u16) {
        for utid in 0..self.d.tasks.all.len() as u32 {
            let task = &self.d.tasks[utid];
            if task.phase == Phase::Running && task.slot.is_none() {
                let end = End { ts, flags: why, ..End::default() };
                self.stop(utid, &end, Phase::Unknown, State::Unknown, None);
            }
        }
        self.forget_tasks(ts, why, |place| place == Place::Unplaced);
    }

    fn forget_tasks(&mut self, ts: i64, why: u16, which: impl Fn(Place) -> bool) {
        for utid in 0..self.d.tasks.all.len() as u32 {
            if which(self.d.tasks[utid].place) {
                self.d.tasks[utid].flags |= why;
                self.d.turn(utid, ts, Phase::Unknown, State::Unknown);
                self.place(utid, Place::None);
                (self.d.tasks[utid].wake, self.d.tasks[utid].sleep) = (None, None);
            }
        }
    }
}
