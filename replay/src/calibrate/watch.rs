//! What one CPU does from switch to switch, as far as costs and causes are concerned: ticks,
//! interrupts, wakeups, charges.

use super::limits::Limits;
use crate::cost::CACHE_COLD_AFTER;
use crate::history::{Off, Sample, TaskIndex};
use crate::task::Ns;

/// Longest burst whose length is kept as a sample: three quarters of a tick at 250 a second. Twice as
/// much changes no program of the lab.
const SHORT_BURST: Ns = 3_000_000;

/// One CPU since its last switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    limits: Limits,
    pub curr: Option<TaskIndex>,
    /// Idle runs.
    pub idle: bool,
    /// When the switch to whoever runs was recorded; 0 where it was not.
    pub on_at: Ns,
    /// Interrupt going on: first and last wakeup, number.
    irq: Option<(Ns, Ns, u32)>,
    tick: Option<Ns>,
    /// A wakeup was recorded and its charge to the running task was not yet.
    charge_due: bool,
    /// Charged since the tick.
    after_tick: Option<Ns>,
    /// Last wakeup by the running task, and last wakeup to this CPU's queue that another CPU made.
    pub post: Option<Ns>,
    pub remote: Option<Ns>,
    /// Last time that a task was woken or moved here, or from here, whatever came of it.
    pub stirred: Option<Ns>,
    /// The current slice began with a wakeup preemption at this time; charged since.
    preempting: Option<Ns>,
    charged: Ns,
    interrupted: bool,
    pub need_resched: bool,
    /// Ticks in this slice, and wakeups in interrupts.
    ticks: u32,
    wakes: u32,
    pub last_event: Ns,
    pub idle_wake: Option<Ns>,
    /// The wakeup that made the last task leave.
    leaving: Option<Ns>,
    /// The last task was preempted, and by nothing that happened on this CPU.
    taken: bool,
}

/// What a wakeup in an interrupt adds to the timeline of the task that is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InIrq {
    /// It is the first of its interrupt.
    First,
    /// It is one more.
    More,
}

impl Watch {
    /// A CPU of which nothing is known.
    pub fn new(limits: Limits) -> Self {
        Watch { limits, ..Watch::default() }
    }

    /// A clock tick.
    pub fn tick(&mut self, at: Ns) {
        self.tick = Some(at);
        self.after_tick = None;
        self.irq = None;
        self.interrupted = true;
        self.ticks += 1;
    }

    /// The kernel charges `ran` to the running task. True where that is a tick: a charge in a hard
    /// interrupt that no wakeup asked for.
    pub fn charge(&mut self, ran: Ns, at: Ns, in_hardirq: bool, samples: &mut Vec<Sample>) -> bool {
        self.charged += ran;
        if self.tick.is_some() && self.after_tick.is_none() {
            self.after_tick = Some(ran);
        }
        let due = std::mem::take(&mut self.charge_due);
        let of_wakeup = due && self.irq.is_some_and(|(_, last, _)| at - last < self.limits.same_irq());
        if let (true, Some(tick), Some((first, _, 1))) = (of_wakeup, self.tick, self.irq) {
            if self.after_tick == Some(ran) && first - tick < self.limits.same_irq() {
                samples.push(Sample::TickToWakeup { records: first - tick, charged: ran });
            }
        }
        in_hardirq && !of_wakeup
    }

    /// The running task was charged in this slice: where ticks charge, they show.
    pub fn charges(&self) -> bool {
        self.charged > 0
    }

    /// Books how soon behind a switch an interrupt, or the thread of softirqs, can do something.
    pub fn first_record(&self, at: Ns, samples: &mut Vec<Sample>) {
        if self.last_event == self.on_at && self.on_at > 0 {
            samples.push(Sample::SwitchToIrq(at - self.on_at));
        }
    }

    /// A wakeup in an interrupt: whether the interrupt came for it, and how it counts.
    pub fn irq_wakeup(&mut self, at: Ns, samples: &mut Vec<Sample>) -> (bool, InIrq) {
        self.interrupted = true;
        self.wakes += 1;
        self.charge_due = true;
        self.first_record(at, samples);
        let on_tick = self.tick.is_some_and(|t| at - t < self.limits.same_irq());
        match &mut self.irq {
            Some((_, last, count)) if at - *last < self.limits.same_irq() => {
                // At the same instant, both had their own time.
                let own = at == *last && !on_tick;
                samples.push(Sample::IrqStep(at - *last));
                *last = at;
                *count += 1;
                (own, InIrq::More)
            }
            _ => {
                self.irq = Some((at, at, 1));
                (!on_tick, InIrq::First)
            }
        }
    }

    /// First wakeup or tick of an interrupt that may have caused a switch at `at`.
    pub fn interrupt_before(&self, at: Ns) -> Option<Ns> {
        let woke = self.irq.filter(|i| at - i.1 < self.limits.at_once()).map(|i| i.0);
        let ticked = self.tick.filter(|t| at - t < self.limits.at_once());
        match (ticked, woke) {
            (Some(t), Some(w)) => Some(t.min(w)),
            (a, b) => a.or(b),
        }
    }

    /// A task's wakeup, made here or to this queue, that may have caused a switch at `at`.
    pub fn posted_before(&self, at: Ns) -> bool {
        self.post.max(self.remote).is_some_and(|p| at - p < self.limits.at_once())
    }

    /// A reschedule was asked for in this slice.
    pub fn asked(&self) -> bool {
        self.need_resched && self.last_event >= self.on_at
    }

    /// Nothing in this slice, or shortly before it, can have asked for a switch but a tick.
    pub fn quiet(&self) -> bool {
        let before = self.on_at - self.limits.one_call();
        self.on_at > 0 && !self.asked() && self.stirred.is_none_or(|at| at < before)
    }

    /// The running task leaves: what the slice says of costs, and what the next one is to know.
    pub fn leave(&mut self, at: Ns, off: Off, samples: &mut Vec<Sample>) {
        match off {
            Off::Preempted { .. } => self.sample_preemption(at, samples),
            Off::Slept { .. } => {
                if let Some(task) = self.curr.filter(|_| self.on_at > 0 && at - self.on_at < SHORT_BURST) {
                    let ns = at - self.on_at;
                    samples.push(Sample::Burst { task, ticks: self.ticks, wakes: self.wakes, ns });
                }
                if let (Some(woke), false) = (self.preempting, self.interrupted) {
                    if self.charged > 0 {
                        samples.push(Sample::Record(at - woke - self.charged));
                    }
                }
            }
            _ => {}
        }
        if !self.interrupted && self.on_at > 0 {
            samples.push(Sample::Slice(at - self.on_at));
        }
        let ready = matches!(off, Off::Preempted { .. } | Off::Yielded);
        let from_irq =
            self.irq.map(|i| i.1).filter(|l| at - l < self.limits.at_once() && self.tick.is_none_or(|t| t < *l));
        let from_post = self.post.filter(|p| at - p < self.limits.at_once());
        self.leaving = from_irq.max(from_post).filter(|_| ready);
        self.taken = matches!(off, Off::Preempted { interrupt: None }) && from_post.is_none();
        self.curr = None;
    }

    fn sample_preemption(&self, at: Ns, samples: &mut Vec<Sample>) {
        let last_irq = self.irq.map(|i| i.1).filter(|l| at - l < self.limits.at_once());
        let last_post = self.post.filter(|p| at - p < self.limits.at_once());
        match (last_irq, last_post, self.tick.filter(|t| at - t < self.limits.at_once())) {
            (Some(irq), post, tick) if post.is_none_or(|p| p < irq) && tick.is_none_or(|t| t < irq) => {
                if tick.is_some() {
                    return;
                }
                let alone = self.irq.is_some_and(|i| i.2 == 1);
                samples.push(match alone {
                    true if irq - self.on_at >= CACHE_COLD_AFTER => Sample::CacheColdIrqToSwitch(at - irq),
                    true => Sample::IrqToSwitch(at - irq),
                    false => Sample::LastIrqToSwitch(at - irq),
                });
            }
            (_, Some(post), None) => samples.push(Sample::WakeToSwitch(at - post)),
            (None, None, Some(tick)) => {
                if let Some(after) = self.after_tick {
                    samples.push(Sample::TickToReschedule(after));
                    samples.push(Sample::TickToSwitch(at - tick - after));
                }
            }
            _ => {}
        }
    }

    /// `remote` is when another CPU woke the task that now enters. Books how long that took to come
    /// through, where nothing else happened meanwhile.
    pub fn woken_remotely(&self, at: Ns, remote: Ns, samples: &mut Vec<Sample>) {
        if self.on_at == 0 || remote < self.on_at {
            return;
        }
        if self.idle {
            samples.push(Sample::RemoteIdleToSwitch(at - remote));
        } else if self.taken && at - remote < self.limits.at_once() {
            samples.push(Sample::RemoteToSwitch(at - remote));
        }
    }

    /// Somebody else has the CPU from `at` on: a task, or nobody where `next` is none.
    pub fn enter(&mut self, at: Ns, next: Option<TaskIndex>, seen: bool, samples: &mut Vec<Sample>) {
        if self.idle && seen {
            if let Some(woke) = self.idle_wake.filter(|w| at - w < self.limits.at_once()) {
                samples.push(Sample::IdleToSwitch(at - woke));
            }
        }
        let preempting = self.leaving.take();
        *self = Watch {
            curr: next,
            idle: next.is_none(),
            on_at: if seen { at } else { 0 },
            last_event: self.last_event.max(at),
            preempting: preempting.filter(|_| next.is_some()),
            stirred: self.stirred,
            limits: self.limits,
            ..Watch::default()
        };
    }

    /// A record of this CPU was read.
    pub fn recorded(&mut self, at: Ns, switch: bool, need_resched: bool) {
        self.last_event = at;
        if !switch {
            self.need_resched = need_resched;
        }
    }

    /// Records were lost: nothing is known any more.
    pub fn forget(&mut self) {
        *self = Watch { last_event: self.last_event, ..Watch::new(self.limits) };
    }
}
