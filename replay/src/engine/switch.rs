//! The switch path: who leaves, who is chosen, who enters, and what that takes.

use super::Engine;
use crate::cost::{cache_cold_share, Costs};
use crate::log::{left, RecKind, IDLE};
use crate::machine::{steps_of, CpuState};
use crate::policy::{Enqueue, Stop};
use crate::program::Step;
use crate::speeds::Speeds;
use crate::switch_costs::Leaves;
use crate::task::{Cpu, CpuSet, Ns, Sleep, Task, TaskId, TaskState, NEVER};

impl Engine {
    /// Takes the running task off `cpu`, asks the classes for the next one, and puts that on.
    pub(super) fn reschedule(&mut self, cpu: Cpu) {
        let busy = self.k.cpus[cpu].busy_until;
        if busy > self.k.now {
            return self.k.slots.set_resched(cpu, busy);
        }
        if let Some(until) = self.still_elsewhere(cpu) {
            return self.k.slots.set_resched(cpu, until);
        }
        self.k.slots.begin_choice(cpu);
        let now = self.k.now;
        let c = &mut self.k.cpus[cpu];
        c.need_resched = false;
        c.lazy = false;
        if !std::mem::take(&mut c.keep_clock) {
            c.clock = now;
        }
        let prev = c.curr;
        if let Some(t) = prev {
            self.put_prev(cpu, t);
        }
        self.counts.dispatches += 1;
        let next = self.choose(cpu);
        if self.k.failed.is_some() {
            return;
        }
        match next {
            Some(t) => self.switch_in(cpu, t, prev),
            None => self.switch_to_idle(cpu, prev),
        }
    }

    /// Lets those who were woken to `cpu` before they had left another CPU leave that first, as
    /// `try_to_wake_up` of Linux waits for `on_cpu`; until when, where that takes time.
    fn still_elsewhere(&mut self, cpu: Cpu) -> Option<Ns> {
        let mut until = None;
        let mut i = 0;
        while let Some(&(t, from)) = self.still_on.get(i) {
            let busy = self.k.cpus[from].busy_until;
            if self.k.cpus[from].leaving.is_none_or(|l| l.0 != t) {
                self.still_on.swap_remove(i);
            } else if self.k.tasks[t.index()].cpu != cpu {
                i += 1;
            } else if busy > self.k.now {
                until = until.max(Some(busy));
                i += 1;
            } else {
                self.still_on.swap_remove(i);
                self.reschedule(from);
            }
        }
        until
    }

    /// The running task goes back to its queue.
    fn put_prev(&mut self, cpu: Cpu, t: TaskId) {
        let now = self.k.now;
        let why = if std::mem::take(&mut self.k.cpus[cpu].yielded) { Stop::Yielded } else { Stop::Preempted };
        let class = self.k.tasks[t.index()].class;
        self.k.class = class;
        let policy = &mut self.stack.layers[class as usize].1;
        policy.stopping(&mut self.k, cpu, t, why);
        let (mut slice, mut left) = (0, 0);
        self.account_with(cpu, t, |c, task, ran| {
            (slice, left) = (ran, task.left);
            (task.state, task.since) = (TaskState::Runnable, now);
            c.curr = None;
        });
        if left < slice / 2 {
            self.place_early(t);
        }
        if !self.k.allowed(t, cpu) && self.migrate_disallowed(cpu, t) {
            return;
        }
        let back = if why == Stop::Yielded { Enqueue::Yielded } else { Enqueue::Preempted };
        self.stack.layers[class as usize].1.enqueue(&mut self.k, cpu, t, back);
    }

    /// A task that was recorded to go on elsewhere goes at the end of the slice that is nearest to
    /// that point of its program: of one behind which less than half as much work is left as it did
    /// in it.
    fn place_early(&mut self, t: TaskId) {
        let task = &mut self.k.tasks[t.index()];
        if let Some(&Step::Place { cpu }) = steps_of(&self.k.work, task).get(task.pc as usize) {
            task.attrs.affinity = CpuSet::of(&[cpu as Cpu]);
            task.pc += 1;
        }
    }

    /// Books the slice of `t` on `cpu` and what is left of its run step.
    #[inline(always)]
    pub(super) fn account(&mut self, cpu: Cpu, t: TaskId) {
        self.account_with(cpu, t, |_, _, _| ());
    }

    /// The same, and `more` is done with both and the length of the slice at once.
    #[inline(always)]
    pub(super) fn account_with(&mut self, cpu: Cpu, t: TaskId, more: impl FnOnce(&mut CpuState, &mut Task, Ns)) {
        let now = self.k.now;
        if self.ends_with_essential && self.k.work.tasks[t.index()].essential {
            self.last_essential = now;
        }
        let c = &mut self.k.cpus[cpu];
        let task = &mut self.k.tasks[t.index()];
        let ran = now - c.on_since;
        task.ran += ran;
        self.counts.busy += ran;
        c.on_since = now;
        if std::mem::take(&mut c.serving) {
            let end = self.k.slots.segment_end(cpu);
            task.left = if end == NEVER { NEVER } else { self.k.speeds.work(cpu, now.max(c.run_from), end) };
            self.k.slots.clear_segment_end(cpu);
        }
        more(c, task, ran);
    }

    fn choose(&mut self, cpu: Cpu) -> Option<TaskId> {
        for class in self.first_class..self.stack.layers.len() {
            self.k.class = class as u8;
            let Some(t) = self.stack.layers[class].1.dispatch(&mut self.k, cpu) else { continue };
            let fits = |task: &Task| {
                task.state == TaskState::Runnable && task.attrs.affinity.contains(cpu) && task.class == class as u8
            };
            if self.k.tasks.get(t.index()).is_some_and(fits) {
                return Some(t);
            }
            return self.chose_wrongly(cpu, t);
        }
        None
    }

    /// Says why `cpu` cannot run the task that the policy chose.
    #[cold]
    fn chose_wrongly(&mut self, cpu: Cpu, t: TaskId) -> Option<TaskId> {
        let Some(task) = self.k.tasks.get(t.index()) else {
            self.k.fail(format!("dispatch chose task {}, which does not exist", t.0));
            return None;
        };
        let message = if task.state != TaskState::Runnable {
            format!("dispatch chose {}, which is {:?}, not runnable", self.k.name(t), task.state)
        } else if !task.attrs.affinity.contains(cpu) {
            format!("dispatch chose {} for CPU {cpu}, which it may not use", self.k.name(t))
        } else {
            format!("dispatch chose {} of another scheduling class", self.k.name(t))
        };
        self.k.fail(message);
        Some(t)
    }

    #[inline(always)]
    fn switch_in(&mut self, cpu: Cpu, t: TaskId, prev: Option<TaskId>) {
        let now = self.k.now;
        if self.k.tasks[t.index()].cpu != cpu {
            self.comes_from_elsewhere(cpu, t);
        }
        let leaving = self.k.cpus[cpu].leaving;
        // Woken before it had left: it never did.
        let back_at_once = leaving == Some((t, Stop::Slept));
        let switched = prev != Some(t) && !back_at_once;
        let on = if now == 0 { self.k.work.tasks[t.index()].on } else { None };
        let nothing;
        let shift = if switched && on.is_none() { self.path_shift(cpu, prev, t).max(-self.k.costs.record) } else { 0 };
        let costs = match on {
            None => &self.k.costs,
            Some(_) => {
                nothing = Costs::default();
                &nothing
            }
        };
        let left = leaving.filter(|l| matches!(l.1, Stop::Slept | Stop::Exited));
        let of_left = left.map(|l| self.k.tasks[l.0.index()].class);
        let (c, task) = (&mut self.k.cpus[cpu], &mut self.k.tasks[t.index()]);
        c.irq_woke = None;
        let mut more = c.more_to_leave(left.is_some(), self.k.costs.timer_first);
        if of_left.is_some_and(|class| class < task.class) {
            more += costs.lower_class;
        }
        let owed = std::mem::take(&mut c.owed);
        c.curr = Some(t);
        c.on_since = now;
        c.leaving = None;
        let recorded = costs.record + shift + more;
        if switched {
            let entry = match (left, prev) {
                (Some(_), _) => costs.switch_block,
                (None, Some(_)) => cache_cold_share(costs.switch_cache_cold, now - c.blocked_at),
                (None, None) => 0,
            };
            c.run_from = now + costs.switch + shift + more + owed + entry;
            c.busy_until = now + recorded;
            c.masked_until = now + costs.irqs_off + shift + more;
            c.switched_at = now;
            self.counts.switches += 1;
            if std::mem::take(&mut c.idle) {
                let since = (now - c.tick_phase).rem_euclid(self.k.tick_ns);
                self.k.slots.set_tick(cpu, now + self.k.tick_ns - since);
            }
        } else {
            c.run_from = c.run_from.max(now) + owed;
        }
        self.watch.waited(t, task.since, now);
        task.state = TaskState::Running;
        task.since = now;
        task.dispatched += u64::from(switched);
        task.resumed = task.resumed.min(now);
        let class = task.class;
        if let Some(ran) = on {
            // It has been there all the time.
            c.clock = now - ran;
        }
        let end = serve(c, task.left, cpu, now, &self.k.speeds);
        self.k.slots.set_segment_end(cpu, end);
        if switched {
            self.log_switch(cpu, leaving, prev, t.0, recorded);
        }
        self.k.class = class;
        self.stack.layers[class as usize].1.running(&mut self.k, cpu, t, switched);
    }

    /// `cpu` has chosen `t`, which was elsewhere.
    #[inline(never)]
    fn comes_from_elsewhere(&mut self, cpu: Cpu, t: TaskId) {
        let from = std::mem::replace(&mut self.k.tasks[t.index()].cpu, cpu);
        self.k.log.migrate(self.k.now, t, from, cpu);
        self.k.count(from, -1);
        self.k.count(cpu, 1);
    }

    /// Sets the end of the run step of `t`, which runs on `cpu`.
    #[inline(always)]
    pub(crate) fn arm_burst_end(&mut self, cpu: Cpu, t: TaskId) {
        let (c, left) = (&mut self.k.cpus[cpu], self.k.tasks[t.index()].left);
        let end = serve(c, left, cpu, self.k.now, &self.k.speeds);
        self.k.slots.set_segment_end(cpu, end);
    }

    fn switch_to_idle(&mut self, cpu: Cpu, prev: Option<TaskId>) {
        let c = &mut self.k.cpus[cpu];
        c.owed = 0;
        if c.idle {
            return;
        }
        c.idle = true;
        c.idle_since = self.k.now;
        self.k.count(cpu, 0);
        let c = &mut self.k.cpus[cpu];
        let leaving = c.leaving.take();
        let more = c.more_to_leave(true, self.k.costs.timer_first);
        c.busy_until = self.k.now + self.k.costs.record + more;
        c.masked_until = self.k.now + self.k.costs.irqs_off + more;
        self.k.slots.set_tick(cpu, NEVER);
        self.log_switch(cpu, leaving, prev, IDLE, self.k.costs.record + more);
    }

    /// By how much the switch to `t` takes longer than it was recorded to.
    #[inline]
    fn path_shift(&mut self, cpu: Cpu, prev: Option<TaskId>, t: TaskId) -> Ns {
        let Some(change) = self.switch_costs.filter(|_| !self.k.cpus[cpu].idle) else { return 0 };
        let leaving = self.k.cpus[cpu].leaving;
        let Some(left) = leaving.map(|l| l.0).or(prev) else { return 0 };
        let why = match leaving {
            Some((_, why)) if why != Stop::Yielded => Leaves::Sleeps,
            None if self.k.cpus[cpu].irq_woke == Some(t) => Leaves::Woken,
            _ => Leaves::Ready,
        };
        let classes = |t: TaskId| {
            let is = self.k.tasks[t.index()].attrs.policy.is_above_fair();
            (self.k.work.tasks[t.index()].was_rt.unwrap_or(is), is)
        };
        let (mut leaves, comes) = (classes(left), classes(t));
        if why == Leaves::Sleeps && self.k.costs.lower_class > 0 {
            // What the step down to the fair class takes more is known, and added or left out by
            // itself.
            leaves = (leaves.0 && comes.0, leaves.1 && comes.1);
        }
        let shift = change.shift(leaves, comes, why);
        if shift != 0 {
            self.counts.shifted.0 += 1;
            self.counts.shifted.1 += shift;
        }
        shift
    }

    /// Records the switch, `after` the decision.
    #[inline]
    fn log_switch(&mut self, cpu: Cpu, leaving: Option<(TaskId, Stop)>, prev: Option<TaskId>, next: u32, after: Ns) {
        if !self.k.log.keep {
            return;
        }
        let ts = self.k.now + after;
        let (from, state) = match (leaving, prev) {
            (Some((t, Stop::Yielded)), _) => (t.0, left::YIELDED),
            (Some((t, Stop::Exited)), _) => (t.0, left::DEAD),
            (Some((t, _)), _) => match self.k.tasks[t.index()].state {
                TaskState::Sleeping(Sleep::Uninterruptible) => (t.0, left::BLOCKED),
                _ => (t.0, left::SLEEPING),
            },
            (None, Some(t)) => (t.0, left::PREEMPTED),
            (None, None) => (IDLE, left::PREEMPTED),
        };
        self.k.log.add(ts, RecKind::Switch, cpu, from, next, state);
    }
}

/// `cpu` begins to serve its task, of whose run step so much is `left`; when that ends.
#[inline(always)]
fn serve(c: &mut CpuState, left: Ns, cpu: Cpu, now: Ns, speeds: &Speeds) -> Ns {
    c.run_from = c.run_from.max(now);
    c.serving = true;
    match left {
        NEVER => NEVER,
        _ => c.run_from.saturating_add(speeds.time(cpu, c.run_from, left)),
    }
}
