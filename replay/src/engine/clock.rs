//! What clocks bring about: ticks, the 1 Hz work, timers of policies, ends of slices.

use std::cmp::Reverse;

use super::slots::Slots;
use super::Engine;
use crate::task::{Cpu, Ns, NEVER};

impl Engine {
    pub(super) fn tick(&mut self, cpu: Cpu) {
        let (now, tick) = (self.k.now, self.k.tick_ns);
        if self.deferred(cpu, Slots::set_tick) {
            return;
        }
        let since = (now - self.k.cpus[cpu].tick_phase).rem_euclid(tick);
        self.k.slots.set_tick(cpu, now + tick - since);
        self.counts.ticks += 1;
        self.k.cpus[cpu].clock = now;
        self.k.returns_to_task(cpu);
        if let Some(t) = self.k.cpus[cpu].curr {
            let class = self.k.tasks[t.index()].class;
            self.k.class = class;
            self.stack.layers[class as usize].1.tick(&mut self.k, cpu, t);
        }
        if self.next_expired(cpu, now).is_some() {
            // Timers ride on the tick: they fire when its own work is done.
            self.interrupt(cpu, self.k.costs.tick_wakeup);
            self.k.cpus[cpu].irq_entry = Some(now);
            self.k.slots.set_timer(cpu, now.max(self.k.cpus[cpu].busy_until));
        } else {
            let costs = &self.k.costs;
            self.interrupt(cpu, if self.k.cpus[cpu].need_resched { costs.tick_resched } else { costs.tick });
        }
        self.pass_over_ticks(cpu, now + tick - since);
    }

    /// Ticks from `next` on that would do nothing are counted but not made: they cost nothing, the
    /// policy does not look at them, and no timer could fire with them.
    fn pass_over_ticks(&mut self, cpu: Cpu, next: Ns) {
        let (costs, c) = (&self.k.costs, &self.k.cpus[cpu]);
        let Some(t) = c.curr.filter(|_| costs.tick == 0 && costs.tick_resched == 0) else { return };
        if self.stack.layers[self.k.tasks[t.index()].class as usize].1.wants_ticks() {
            return;
        }
        // Something comes before the next tick already, mostly a tick of another CPU: none to pass over.
        if self.k.slots.earliest_time() < next {
            return;
        }
        self.k.slots.set_tick(cpu, NEVER);
        let soft = self.k.cpus[cpu].timers.first().map_or(NEVER, |t| t.soft);
        let something = self.k.slots.earliest_time().min(soft).min(self.until);
        let tick = self.k.tick_ns;
        let passed = if something == NEVER { 0 } else { (something - next + tick - 1).max(0) / tick };
        if passed > 0 {
            self.counts.ticks += passed as u64;
            self.k.cpus[cpu].clock = next + (passed - 1) * tick;
        }
        self.k.slots.set_tick(cpu, next + passed * tick);
    }

    #[inline(never)]
    pub(super) fn one_hz(&mut self) {
        self.k.slots.set_second(self.k.now + 1_000_000_000);
        self.k.in_second = true;
        for class in 0..self.stack.layers.len() {
            self.k.class = class as u8;
            self.stack.layers[class].1.update_1hz(&mut self.k);
        }
        self.k.in_second = false;
        self.look_for_lost_now();
        let owed = std::mem::take(&mut self.k.cpus[0].owed);
        self.interrupt(0, owed);
    }

    #[inline(never)]
    pub(super) fn policy_timer(&mut self) {
        if let Some(Reverse((_, _, class, token))) = self.k.timers.pop() {
            let first = self.k.timers.peek().map_or(NEVER, |t| t.0 .0);
            self.k.slots.set_policy_timer(first);
            self.k.class = class;
            self.stack.layers[class as usize].1.timer(&mut self.k, token);
        }
    }

    #[inline(never)]
    pub(super) fn slice_end(&mut self, cpu: Cpu) {
        if self.deferred(cpu, Slots::set_slice) {
            return;
        }
        self.k.slots.clear_slice(cpu);
        if let Some(t) = self.k.cpus[cpu].curr {
            self.k.cpus[cpu].clock = self.k.now;
            let class = self.k.tasks[t.index()].class;
            self.k.class = class;
            self.stack.layers[class as usize].1.slice_expired(&mut self.k, cpu, t);
        }
    }
}
