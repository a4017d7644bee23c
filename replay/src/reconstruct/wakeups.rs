//! Wakeups and new tasks in the timelines: what made a wakeup, and at which point of the waker's own doing.

use tracekit_schema::derive::sink::{Effect, Transition};
use tracekit_schema::events::irq;
use tracekit_schema::Kind;

use super::timeline::Timeline;
use crate::calibrate::watch::InIrq;
use crate::history::{By, EventKind, First, Sample, TaskEvent, TaskIndex};
use crate::program::Fork;
use crate::task::Ns;

/// What made a wakeup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Task(TaskIndex),
    Hardirq { lead: bool },
    Softirq,
    Unknown,
}

impl Timeline {
    /// The kernel's thread for softirqs has the CPU, which is not interrupted by those that it runs.
    fn softirq_thread(&self, cpu: usize) -> Option<TaskIndex> {
        self.watches[cpu].curr.filter(|task| self.history.tasks[*task as usize].softirqs)
    }

    pub(super) fn wake(&mut self, at: Ns, wake: Transition) {
        let Transition::Wake { task: utid, waker, cpu, target, irq, effect } = wake else { return };
        let place = self.place(cpu);
        let to = target.and_then(|slot| self.places.get(slot).copied().flatten()).unwrap_or(place);
        self.history.wakes = true;
        self.watches[place].stirred = Some(at);
        self.watches[to].stirred = Some(at);
        let first = if self.record.kind == Kind::Enqueue { First::Runnable } else { First::Asleep };
        let new = self.known(utid).task.is_none();
        if !self.strays() {
            self.known(utid).from.get_or_insert((at, place));
        }
        match effect {
            Effect::Starts => return self.starts(utid, waker, place, to, at),
            Effect::Overtook(_) | Effect::Nothing | Effect::Late if new => return,
            _ => {}
        }
        let task = self.task_of(utid, first, to);
        if let (Effect::Overtook(_), Some((posted, cause))) = (effect, self.known(utid).early) {
            return self.woken(utid, task, at, cause, posted, place, to);
        }
        let cause = self.cause(task, waker, place, irq);
        let early = self.known(utid).early.filter(|_| self.record.kind == Kind::Wakeup);
        match effect {
            Effect::Nothing => {
                self.history.idle_wakeups += 1;
                let now = self.at(self.record.ts);
                self.known(utid).early = Some((now, cause));
            }
            Effect::Late => self.woken_late(task, at, cause, place),
            _ if new && first == First::Runnable => {}
            _ => {
                let (posted, cause) = early.unwrap_or((at, cause));
                self.woken(utid, task, at, cause, posted, place, to);
            }
        }
    }

    /// What made the wakeup of `task` that is being read.
    fn cause(&mut self, task: TaskIndex, waker: Option<u32>, cpu: usize, flags: Option<u16>) -> Cause {
        if self.strays() {
            return Cause::Unknown;
        }
        let at = self.at(self.record.ts);
        let flags = flags.unwrap_or(0);
        let hard = flags & irq::HARDIRQ != 0;
        let thread = self.softirq_thread(cpu).filter(|_| !hard);
        let interrupt = flags & irq::IN_INTERRUPT != 0 && thread.is_none();
        let samples = &mut self.history.samples;
        if thread.is_some() {
            self.watches[cpu].first_record(at, samples);
        }
        let curr = self.watches[cpu].curr;
        if interrupt {
            let (lead, counts) = self.watches[cpu].irq_wakeup(at, samples);
            if let Some(curr) = curr {
                self.interrupted(curr, at, counts);
            }
            return if hard { Cause::Hardirq { lead } } else { Cause::Softirq };
        }
        let waker = waker.and_then(|w| self.known(w).task).or(thread).filter(|w| *w != task);
        waker.map_or(Cause::Unknown, Cause::Task)
    }

    /// An interrupt woke somebody while `curr` ran.
    fn interrupted(&mut self, curr: TaskIndex, at: Ns, counts: InIrq) {
        let events = &mut self.history.tasks[curr as usize].events;
        let going_on = events.iter_mut().rev().find(|a| matches!(a.kind, EventKind::Irq { .. } | EventKind::On { .. }));
        match (counts, going_on) {
            (InIrq::More, Some(TaskEvent { kind: EventKind::Irq { count, last }, .. })) => {
                *count += 1;
                *last = at;
            }
            (InIrq::More, _) => {}
            (InIrq::First, _) => self.push(curr, at, EventKind::Irq { count: 1, last: at }),
        }
    }

    /// Who woke `task`, with the number of the wakeup, which the waker made at `posted`.
    fn by(&mut self, task: TaskIndex, cause: Cause, posted: Ns, cpu: usize) -> By {
        match cause {
            Cause::Hardirq { lead } => By::Hardirq { lead },
            Cause::Softirq => By::Softirq,
            Cause::Unknown => By::Unknown,
            Cause::Task(waker) => {
                let wake = self.history.wakee.len() as u32;
                self.history.wakee.push(task);
                self.push(waker, posted, EventKind::Post { wake });
                if self.watches[cpu].curr == Some(waker) {
                    self.watches[cpu].post = Some(posted);
                }
                By::Task { waker, wake }
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn woken(&mut self, utid: u32, task: TaskIndex, at: Ns, cause: Cause, posted: Ns, cpu: usize, to: usize) {
        let by = self.by(task, cause, posted, cpu);
        if let Some(curr) = self.watches[cpu].curr {
            let woke = &mut self.history.tasks[curr as usize].woke;
            if woke.last().is_none_or(|last| last.1 != task) {
                woke.push((at, task));
            }
        }
        if self.watches[cpu].idle {
            self.watches[cpu].idle_wake = Some(at);
        }
        if to != cpu {
            self.watches[to].remote = Some(at);
        }
        let known = self.known(utid);
        (known.asleep, known.early) = (false, None);
        self.push(task, at, EventKind::Woken { by, cpu: to as i32 });
    }

    /// The wakeup that ended the sleep before the slice that began at `on`: it was recorded only after that.
    fn woken_late(&mut self, task: TaskIndex, on: Ns, cause: Cause, cpu: usize) {
        let events = &self.history.tasks[task as usize].events;
        let unknown = |a: &TaskEvent| matches!(a.kind, EventKind::Woken { by: By::Unknown, .. });
        if let Some(place) = events.iter().rposition(unknown).filter(|place| events[*place].at <= on) {
            let posted = self.at(self.record.ts);
            let now = self.by(task, cause, posted, cpu);
            if let EventKind::Woken { by, .. } = &mut self.history.tasks[task as usize].events[place].kind {
                *by = now;
            }
        }
    }

    /// A new task is queued.
    fn starts(&mut self, utid: u32, waker: Option<u32>, cpu: usize, to: usize, at: Ns) {
        self.births = true;
        let parent = waker.and_then(|w| self.known(w).task).or(self.watches[cpu].curr);
        if self.known(utid).task.is_none() {
            let child = self.task_of(utid, First::Forked, to);
            self.history.tasks[child as usize].parent = parent;
            if let Some(parent) = parent {
                self.push(parent, at, EventKind::Fork { child, how: Fork::Fork });
            }
        }
        let Some(child) = self.known(utid).task else { return };
        let task = &mut self.history.tasks[child as usize];
        task.cpu = to as i32;
        let parent = task.parent;
        if parent.is_none() {
            task.first = First::Runnable;
        }
        let on_at = self.watches[cpu].on_at;
        let Some(parent) = parent.filter(|p| self.watches[cpu].curr == Some(*p)) else { return };
        // The child is queued here, not where the fork was announced.
        let events = &mut self.history.tasks[parent as usize].events;
        let fork = |a: &TaskEvent| matches!(a.kind, EventKind::Fork { child: c, .. } if c == child);
        if let Some(place) = events.iter().rposition(fork) {
            let TaskEvent { at: announced, kind } = events.remove(place);
            events.push(TaskEvent { at, kind });
            if announced >= on_at {
                self.history.samples.push(Sample::ForkToNew(at - announced));
            }
        }
    }

    pub(super) fn fork(&mut self, at: Ns, parent: Option<u32>, child: u32, thread: bool, cpu: usize) {
        self.births = true;
        let parent = parent.and_then(|p| self.known(p).task);
        let child = self.task_of(child, First::Forked, cpu);
        self.history.tasks[child as usize].parent = parent;
        if let Some(parent) = parent {
            let how = if thread { Fork::Thread } else { Fork::Fork };
            self.push(parent, at, EventKind::Fork { child, how });
        }
    }
}
