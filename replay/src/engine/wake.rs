//! How tasks become runnable: starts, semaphores, timers, devices.

use std::cmp::Reverse;

use super::{Coming, Engine};
use crate::log::{RecKind, IDLE};
use crate::policy::{Enqueue, Kernel, Policy, Select, Wake};
use crate::program::{Calls, Start, Step};
use crate::task::{Cpu, Sleep, TaskId, TaskState, NEVER};

impl Engine {
    /// The first start, device or outside wakeup is due.
    #[inline(never)]
    pub(super) fn wake_due(&mut self) {
        let Some(Reverse((_, order, what, t))) = self.coming.pop() else { return };
        let t = TaskId(t);
        let cpu = self.k.tasks[t.index()].cpu;
        let busy = self.k.cpus[cpu].busy_until.max(self.k.cpus[cpu].masked_until);
        if busy > self.k.now && what != Coming::Start {
            self.coming.push(Reverse((busy, order, what, t.0)));
        } else {
            match what {
                Coming::Start => self.start(t),
                Coming::Io => self.interrupt_wake(cpu, t, Wake::Io),
                Coming::External => self.interrupt_wake(cpu, t, Wake::External),
            }
        }
        let first = self.coming.peek().map_or(NEVER, |c| c.0 .0);
        self.k.slots.set_wake(first);
    }

    fn interrupt_wake(&mut self, cpu: Cpu, t: TaskId, wake: Wake) {
        let idle = self.k.is_idle(cpu);
        self.k.here = Some(cpu);
        self.k.returns_to_task(cpu);
        self.wake(t, wake);
        let c = &mut self.k.cpus[cpu];
        c.note_preemption(t);
        let cost = c.wakeup_cost(&self.k.costs, self.k.now, idle);
        self.interrupt(cpu, cost);
    }

    fn start(&mut self, t: TaskId) {
        let asleep = matches!(self.k.work.tasks[t.index()].start, Start::Asleep(_));
        let first_step = self.k.tasks[t.index()].steps.first().copied();
        self.task_init(t, None);
        let cpu = self.k.tasks[t.index()].cpu;
        if asleep && self.sleeps_first(cpu, t, first_step) {
            return;
        }
        let cpu = match self.k.work.tasks[t.index()].cpu {
            Some(_) if self.k.allowed(t, cpu) => cpu,
            _ => {
                let class = self.class(t);
                let to = self.stack.layers[class].1.select_cpu(&mut self.k, t, Select::Fork);
                checked_cpu(&mut self.k, t, to)
            }
        };
        self.k.tasks[t.index()].cpu = cpu;
        self.k.log.add(self.k.now, RecKind::Initial, cpu, t.0, IDLE, 0);
        self.make_runnable(t, cpu, Enqueue::Initial);
    }

    /// Does the first step of a task that begins asleep; false when that step does not sleep.
    fn sleeps_first(&mut self, cpu: Cpu, t: TaskId, step: Option<Step>) -> bool {
        let (sleep, armed) = match step {
            Some(Step::Pause { pause, sleep }) => {
                if self.arm(cpu, t, pause) {
                    (sleep, false)
                } else {
                    (sleep, true)
                }
            }
            Some(Step::Wait { sem, sleep }) if self.units[sem.0 as usize] == 0 => {
                self.waiters.push_back(sem.0 as usize, t);
                (sleep, true)
            }
            Some(Step::Wait { sem, sleep }) => {
                self.units[sem.0 as usize] -= 1;
                (sleep, false)
            }
            Some(Step::Receive { queue, sleep }) if self.queues[queue.0 as usize].messages.is_empty() => {
                self.awaits_message(t, queue.0 as usize);
                let task = &mut self.k.tasks[t.index()];
                task.state = TaskState::Sleeping(sleep);
                task.since = self.k.now;
                return true;
            }
            Some(Step::Barrier { barrier }) if !self.barriers.comes(t, barrier.0 as usize) => {
                (Sleep::Interruptible, true)
            }
            _ => return false,
        };
        self.k.tasks[t.index()].pc = 1;
        self.preload(t);
        if armed {
            let task = &mut self.k.tasks[t.index()];
            task.state = TaskState::Sleeping(sleep);
            task.since = self.k.now;
        }
        armed
    }

    /// One unit for a semaphore.
    #[inline(never)]
    pub(super) fn post(&mut self, sem: usize, wake: Wake) {
        match self.waiters.pop_front(sem) {
            Some(t) => self.wake(t, wake),
            None => self.units[sem] += 1,
        }
    }

    /// One message for a queue. As with a Linux pipe (pipe_write and pipe_read of fs/pipe.c since 5.5),
    /// one that finds the queue empty wakes the task that waits longest, and a reader that was woken
    /// and leaves messages behind wakes the next.
    #[inline(never)]
    pub(super) fn send(&mut self, queue: usize, handler: u32, wake: Wake) {
        let empty = self.queues[queue].messages.is_empty();
        self.queues[queue].messages.push_back(handler);
        if let Wake::Task { waker, cpu, .. } = wake {
            self.k.log.add(self.k.now, RecKind::Sent, cpu, queue as u32, waker.0, handler);
        }
        if empty || self.queues[queue].calls != Calls::First {
            self.call(queue, wake);
        }
    }

    /// Wakes the task that waits longest for a message.
    #[inline(never)]
    pub(super) fn call(&mut self, queue: usize, wake: Wake) {
        if let Some(t) = self.readers.pop_front(queue) {
            self.k.tasks[t.index()].called = true;
            self.wake(t, wake);
        }
    }

    /// Wakes a sleeping task. It is part of whoever calls it, who knows what woke the task: else
    /// that would be written to memory in parts and read as a whole at once, which stalls.
    #[inline(always)]
    pub(super) fn wake(&mut self, t: TaskId, wake: Wake) {
        let class = self.class(t);
        let policy = &mut self.stack.layers[class].1;
        let to = policy.select_cpu(&mut self.k, t, Select::Wakeup(wake));
        let to = checked_cpu(&mut self.k, t, to);
        let task = &mut self.k.tasks[t.index()];
        let from = std::mem::replace(&mut task.cpu, to);
        (task.state, task.since) = (TaskState::Runnable, self.k.now);
        let kind = match wake {
            Wake::Task { .. } => 0,
            Wake::Timer => 1,
            Wake::Io => 2,
            Wake::External => 3,
        };
        self.counts.wakeups[kind] += 1;
        self.k.log.wake(self.k.now, t, to, wake, self.k.here);
        if from != to {
            self.k.log.migrate(self.k.now, t, from, to);
            if self.k.cpus[from].leaving.is_some_and(|l| l.0 == t) {
                self.still_on.push((t, from));
            }
        }
        queue_up(&mut self.k, &mut **policy, class as u8, t, to, Enqueue::Wakeup(wake));
    }

    /// Moves `t`, which is runnable, in no queue, and may no longer use `cpu`, to the queue of a
    /// CPU that it may use; false when there is none.
    pub(super) fn migrate_disallowed(&mut self, cpu: Cpu, t: TaskId) -> bool {
        if !(0..self.k.cpus.len()).any(|c| self.k.allowed(t, c)) {
            return false;
        }
        let class = self.class(t);
        let to = self.stack.layers[class].1.select_cpu(&mut self.k, t, Select::Exec);
        let to = if self.k.allowed(t, to) { to } else { self.k.idle_or_last(t) };
        self.k.log.migrate(self.k.now, t, cpu, to);
        self.k.tasks[t.index()].cpu = to;
        self.k.count(cpu, -1);
        self.k.count(to, 1);
        self.k.cpus[to].clock = self.k.now;
        let class = self.class(t);
        self.stack.layers[class].1.enqueue(&mut self.k, to, t, Enqueue::Migrated);
        self.preempt_check(to, t, Enqueue::Migrated);
        true
    }

    /// Puts `t` on the queue of `cpu`.
    pub(super) fn make_runnable(&mut self, t: TaskId, cpu: Cpu, why: Enqueue) {
        let task = &mut self.k.tasks[t.index()];
        (task.state, task.since) = (TaskState::Runnable, self.k.now);
        let class = task.class;
        self.k.class = class;
        queue_up(&mut self.k, &mut *self.stack.layers[class as usize].1, class, t, cpu, why);
    }

    /// `t` has just been queued on `cpu`: does it preempt?
    pub(super) fn preempt_check(&mut self, cpu: Cpu, t: TaskId, why: Enqueue) {
        let class = self.k.tasks[t.index()].class;
        preempt_check(&mut self.k, &mut *self.stack.layers[class as usize].1, class, cpu, t, why);
    }
}

/// The CPU that a policy chose for `t`, where there is such a one.
#[inline(always)]
pub(super) fn checked_cpu(k: &mut Kernel, t: TaskId, cpu: Cpu) -> Cpu {
    if cpu < k.cpus.len() && k.allowed(t, cpu) {
        return cpu;
    }
    not_allowed(k, t, cpu)
}

/// The same where `t` may not use `cpu`, or there is no such CPU.
#[cold]
fn not_allowed(k: &mut Kernel, t: TaskId, cpu: Cpu) -> Cpu {
    if cpu >= k.cpus.len() {
        k.fail(format!("select_cpu chose CPU {cpu} of {}", k.cpus.len()));
        return 0;
    }
    if (0..k.cpus.len()).any(|c| k.allowed(t, c)) {
        k.fail(format!("select_cpu chose CPU {cpu} for task {}, which may not use it", t.0));
    }
    cpu
}

/// `t`, which has become runnable, comes on the queue of `cpu`; `policy` is that of its class.
#[inline(always)]
fn queue_up(k: &mut Kernel, policy: &mut dyn Policy, class: u8, t: TaskId, cpu: Cpu, why: Enqueue) {
    let now = k.now;
    let c = &mut k.cpus[cpu];
    c.nr += 1;
    if c.idle {
        k.idle.set(cpu, false);
    }
    // Clocks do not go back.
    c.clock = if why == Enqueue::Fork { c.clock.max(now - k.costs.fork_clock) } else { now };
    policy.runnable(k, cpu, t);
    policy.enqueue(k, cpu, t, why);
    preempt_check(k, policy, class, cpu, t, why);
}

/// Does `t`, which is of `class` and has just been queued on `cpu`, preempt what runs there?
#[inline(always)]
fn preempt_check(k: &mut Kernel, policy: &mut dyn Policy, class: u8, cpu: Cpu, t: TaskId, why: Enqueue) {
    let Some(curr) = k.cpus[cpu].curr else {
        return k.resched(cpu);
    };
    let theirs = k.tasks[curr.index()].class;
    if class < theirs {
        k.resched_keeping_clock(cpu);
    } else if class == theirs {
        k.class = class;
        policy.wakeup_preempt(k, cpu, curr, t, why);
    }
}
