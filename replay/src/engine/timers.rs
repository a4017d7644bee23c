//! Timers of sleeping tasks: when they are set, and which of them an interrupt fires.

use super::slots::Slots;
use super::timer_heap::Timer;
use super::{Coming, Engine, TimerMode};
use crate::policy::Wake;
use crate::program::{Late, Pause};
use crate::task::{Cpu, Ns, TaskId, NEVER};

impl Engine {
    /// When the periodic timer of `t` expires next, `ns` after it did last; none where the task
    /// goes on at once, since that is past.
    pub(super) fn expires(&mut self, t: TaskId, ns: Ns, late: Late) -> Option<Ns> {
        let now = self.k.now;
        let task = &mut self.k.tasks[t.index()];
        let due = task.expired.unwrap_or(now).saturating_add(ns);
        // The first expiry that has not come by a time.
        let behind = |at: Ns| if due > at { due } else { due.saturating_add(((at - due) / ns + 1) * ns) };
        let (at, sleeps) = match late {
            Late::CatchUp => (due, due > now),
            Late::Merge if behind(task.resumed.min(now)) <= now => (behind(now) - ns, false),
            Late::Merge | Late::Skip => (behind(now), true),
        };
        task.expired = Some(at);
        task.resumed = if sleeps { NEVER } else { now };
        sleeps.then_some(at)
    }

    /// When and how a pause of `t` that begins now on `cpu` ends; true when it is over already.
    #[inline(always)]
    pub(super) fn arm(&mut self, cpu: Cpu, t: TaskId, pause: Pause) -> bool {
        let now = self.k.now;
        match pause {
            // A periodic timer has become one of that length ([`Self::expires`]), but for a task
            // that begins asleep.
            Pause::Period { ns, slack, late } => {
                let due = self.expires(t, ns, late).unwrap_or(now);
                return self.arm(cpu, t, Pause::Timer { ns: due - now, slack });
            }
            Pause::Timer { ns, slack } => {
                // Real-time tasks, and those with a reservation, have exact timers.
                let slack = if self.k.tasks[t.index()].attrs.policy.is_above_fair() { 0 } else { slack };
                let soft = now.saturating_add(ns);
                let (soft, hard) = match self.timer_mode {
                    TimerMode::High => (soft, soft.saturating_add(i64::from(slack))),
                    TimerMode::Tick => {
                        let tick = self.k.tick_ns;
                        let into = (soft - self.k.cpus[cpu].tick_phase).rem_euclid(tick);
                        let at = soft.saturating_add(tick - into);
                        (at, at)
                    }
                };
                self.arm_timer(cpu, t, soft, hard);
            }
            Pause::Ticks { ns, behind } => {
                let tick = self.k.tick_ns;
                let soft = now.saturating_add(ns);
                let into = (soft - self.k.cpus[cpu].tick_phase).rem_euclid(tick);
                let at = if into == 0 { soft } else { soft.saturating_add(tick - into) };
                self.arm_timer(cpu, t, at, at.saturating_add(i64::from(behind)));
            }
            Pause::Io { ns } => self.come(now.saturating_add(ns), Coming::Io, t),
            Pause::External { ns } => self.come(now.saturating_add(ns), Coming::External, t),
            Pause::At { at } if at <= now => return true,
            Pause::At { at } => self.come(at, Coming::External, t),
        }
        false
    }

    #[inline(always)]
    pub(super) fn arm_timer(&mut self, cpu: Cpu, t: TaskId, soft: Ns, hard: Ns) {
        self.order += 1;
        let tick = self.k.slots.tick(cpu);
        let c = &mut self.k.cpus[cpu];
        let first = c.timers.first_expiry();
        c.timer_first = hard < first.min(tick);
        // A recorded end may come a little before the time asked for.
        c.timers.push(Timer { hard, order: self.order, soft: soft.min(hard), task: t });
        self.k.slots.set_timer(cpu, first.min(hard));
    }

    /// The timer that an interrupt that came at `entry` fires next. Timers stand in order of their
    /// hard expiry, and the tick is one of them: the first whose soft expiry has not passed holds
    /// up those behind it.
    #[inline(always)]
    pub(super) fn next_expired(&self, cpu: Cpu, entry: Ns) -> Option<TaskId> {
        self.k.cpus[cpu].timers.expired(entry, self.k.slots.tick(cpu).max(self.k.now))
    }

    /// A timer interrupt: it fires every timer whose soft expiry has passed. One is fired now; when
    /// another is due, the interrupt goes on with it a little later.
    pub(super) fn timer_interrupt(&mut self, cpu: Cpu) {
        if self.deferred(cpu, Slots::set_timer) {
            return;
        }
        let now = self.k.now;
        let c = &mut self.k.cpus[cpu];
        let entry = c.irq_entry.unwrap_or(now);
        if c.lazy {
            self.k.returns_to_task(cpu);
        }
        let c = &mut self.k.cpus[cpu];
        let Some(t) = c.timers.expired(entry, self.k.slots.tick(cpu).max(now)) else {
            return self.k.slots.set_timer(cpu, c.timers.first_expiry());
        };
        let idle = c.idle && c.nr == 0;
        c.timers.pop();
        self.wake(t, Wake::Timer);
        let c = &mut self.k.cpus[cpu];
        c.note_preemption(t);
        let next = c.timers.first_expiry();
        if c.timers.expired(entry, self.k.slots.tick(cpu).max(now)).is_some() {
            c.irq_entry = Some(entry);
            let step = self.k.costs.next_wakeup;
            self.k.slots.set_timer(cpu, now + step);
            self.interrupt(cpu, step);
        } else {
            let cost = c.wakeup_cost(&self.k.costs, now, idle);
            self.k.slots.set_timer(cpu, next);
            self.interrupt(cpu, cost);
        }
    }
}
