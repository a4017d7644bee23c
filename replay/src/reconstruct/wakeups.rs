//! Wakeups and new tasks in the timelines: what made a wakeup, and at which point of the waker's own doing.

use tracekit_schema::derive::sink::{Effect, Transition};
use tracekit_schema::events::irq;
use tracekit_schema::Kind;

use super::timeline::Timeline;
use crate::calibrate::watch::InIrq;
use crate::history::{Act, By, First, LifeId, Sample, What};
use crate::program::Fork;
use crate::task::Ns;

/// What made a wakeup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Task(LifeId),
    Hardirq { lead: bool },
    Softirq,
    Unknown,
}

impl Timeline {
    /// The kernel's thread for softirqs has the CPU, which is not interrupted by those that it runs.
    fn softirq_thread(&self, cpu: usize) -> Option<LifeId> {
        self.watches[cpu].curr.filter(|life| self.history.lives[*life as usize].softirqs)
    }

    pub(super) fn wake(&mut self, at: Ns, wake: Transition) {
        let Transition::Wake { task, waker, cpu, target, irq, effect } = wake else { return };
        let place = self.place(cpu);
        let to = target.and_then(|slot| self.places.get(slot).copied().flatten()).unwrap_or(place);
        self.history.wakes = true;
        self.watches[place].stirred = Some(at);
        self.watches[to].stirred = Some(at);
        let first = if self.record.kind == Kind::Enqueue { First::Runnable } else { First::Asleep };
        let new = self.known(task).life.is_none();
        self.tells.0 = true;
        match effect {
            Effect::Starts => return self.starts(task, waker, place, to, at),
            Effect::Overtook(_) | Effect::Nothing | Effect::Late if new => return,
            _ => {}
        }
        let life = self.life(task, first, to);
        if let (Effect::Overtook(_), Some((posted, cause))) = (effect, self.known(task).early) {
            return self.woken(task, life, at, cause, posted, place, to);
        }
        let cause = self.cause(life, waker, place, irq);
        let early = self.known(task).early.filter(|_| self.record.kind == Kind::Wakeup);
        match effect {
            Effect::Nothing => {
                self.history.idle_wakeups += 1;
                let now = self.at(self.record.ts);
                self.known(task).early = Some((now, cause));
            }
            Effect::Late => self.woken_late(life, at, cause, place),
            _ if new && first == First::Runnable => {}
            _ => {
                let (posted, cause) = early.unwrap_or((at, cause));
                self.woken(task, life, at, cause, posted, place, to);
            }
        }
    }

    /// What made the wakeup of `life` that is being read.
    fn cause(&mut self, life: LifeId, waker: Option<u32>, cpu: usize, flags: Option<u16>) -> Cause {
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
        let waker = waker.and_then(|w| self.known(w).life).or(thread).filter(|w| *w != life);
        waker.map_or(Cause::Unknown, Cause::Task)
    }

    /// An interrupt woke somebody while `curr` ran.
    fn interrupted(&mut self, curr: LifeId, at: Ns, counts: InIrq) {
        let acts = &mut self.history.lives[curr as usize].acts;
        let going_on = acts.iter_mut().rev().find(|a| matches!(a.what, What::Irq { .. } | What::On { .. }));
        match (counts, going_on) {
            (InIrq::More, Some(Act { what: What::Irq { count, last }, .. })) => {
                *count += 1;
                *last = at;
            }
            (InIrq::More, _) => {}
            (InIrq::First, _) => self.push(curr, at, What::Irq { count: 1, last: at }),
        }
    }

    /// Who woke `life`, with the number of the wakeup, which the waker made at `posted`.
    fn by(&mut self, life: LifeId, cause: Cause, posted: Ns, cpu: usize) -> By {
        match cause {
            Cause::Hardirq { lead } => By::Hardirq { lead },
            Cause::Softirq => By::Softirq,
            Cause::Unknown => By::Unknown,
            Cause::Task(waker) => {
                let wake = self.history.wakee.len() as u32;
                self.history.wakee.push(life);
                self.push(waker, posted, What::Post { wake });
                if self.watches[cpu].curr == Some(waker) {
                    self.watches[cpu].post = Some(posted);
                }
                By::Task { waker, wake }
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn woken(&mut self, task: u32, life: LifeId, at: Ns, cause: Cause, posted: Ns, cpu: usize, to: usize) {
        let by = self.by(life, cause, posted, cpu);
        if self.watches[cpu].idle {
            self.watches[cpu].idle_wake = Some(at);
        }
        if to != cpu {
            self.watches[to].remote = Some(at);
        }
        let known = self.known(task);
        (known.asleep, known.early) = (false, None);
        self.push(life, at, What::Woken { by, cpu: to as i32 });
    }

    /// The wakeup that ended the sleep before the slice that began at `on`: it was recorded only after that.
    fn woken_late(&mut self, life: LifeId, on: Ns, cause: Cause, cpu: usize) {
        let acts = &self.history.lives[life as usize].acts;
        let unknown = |a: &Act| matches!(a.what, What::Woken { by: By::Unknown, .. });
        if let Some(place) = acts.iter().rposition(unknown).filter(|place| acts[*place].at <= on) {
            let posted = self.at(self.record.ts);
            let now = self.by(life, cause, posted, cpu);
            if let What::Woken { by, .. } = &mut self.history.lives[life as usize].acts[place].what {
                *by = now;
            }
        }
    }

    /// A new task is queued.
    fn starts(&mut self, task: u32, waker: Option<u32>, cpu: usize, to: usize, at: Ns) {
        self.tells.1 = true;
        let parent = waker.and_then(|w| self.known(w).life).or(self.watches[cpu].curr);
        if self.known(task).life.is_none() {
            let child = self.life(task, First::Forked, to);
            self.history.lives[child as usize].parent = parent;
            if let Some(parent) = parent {
                self.push(parent, at, What::Fork { child, how: Fork::Fork });
            }
        }
        let Some(child) = self.known(task).life else { return };
        let life = &mut self.history.lives[child as usize];
        life.cpu = to as i32;
        let parent = life.parent;
        if parent.is_none() {
            life.first = First::Runnable;
        }
        let on_at = self.watches[cpu].on_at;
        let Some(parent) = parent.filter(|p| self.watches[cpu].curr == Some(*p)) else { return };
        // The child is queued here, not where the fork was announced.
        let acts = &mut self.history.lives[parent as usize].acts;
        let fork = |a: &Act| matches!(a.what, What::Fork { child: c, .. } if c == child);
        if let Some(place) = acts.iter().rposition(fork) {
            let Act { at: announced, what } = acts.remove(place);
            acts.push(Act { at, what });
            if announced >= on_at {
                self.history.samples.push(Sample::ForkToNew(at - announced));
            }
        }
    }

    pub(super) fn fork(&mut self, at: Ns, parent: Option<u32>, child: u32, thread: bool, cpu: usize) {
        self.tells.1 = true;
        let parent = parent.and_then(|p| self.known(p).life);
        let child = self.life(child, First::Forked, cpu);
        self.history.lives[child as usize].parent = parent;
        if let Some(parent) = parent {
            let how = if thread { Fork::Thread } else { Fork::Fork };
            self.push(parent, at, What::Fork { child, how });
        }
    }
}
