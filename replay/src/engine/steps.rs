//! What a running task does: the steps of its program. Those that are rare, or take long by
//! themselves, are not inlined: the loop over events stays short.

use super::wake::checked_cpu;
use super::Engine;
use crate::log::{RecKind, IDLE};
use crate::machine::steps_of;
use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Select, Stop, Wake};
use crate::program::{Calls, Fork, Pause, Step};
use crate::task::{Attrs, Cpu, CpuSet, Ns, Sleep, TaskId, TaskState, NEVER};

impl Engine {
    /// The run step of the task on `cpu` ends.
    pub(super) fn segment(&mut self, cpu: Cpu) {
        let next = self.k.slots.tick(cpu).min(self.k.slots.timer(cpu));
        if next > self.k.now && next - self.k.now < self.k.costs.irq_entry {
            // That interrupt has come already.
            return self.k.slots.set_segment_end(cpu, next + 1);
        }
        self.k.slots.clear_segment_end(cpu);
        self.k.cpus[cpu].serving = false;
        let Some(t) = self.k.cpus[cpu].curr else { return };
        if self.k.tasks[t.index()].lets_go > 0 && self.lets_go(cpu, t) {
            return;
        }
        let task = &mut self.k.tasks[t.index()];
        task.left = 0;
        task.in_kernel = false;
        self.advance(cpu, t);
    }

    /// Does the steps of `t` up to the next one that takes time.
    fn advance(&mut self, cpu: Cpu, t: TaskId) {
        loop {
            let task = &mut self.k.tasks[t.index()];
            let Some(&step) = steps_of(&self.k.work, task).get(task.pc as usize) else {
                let Some((handler, back)) = task.handler.take() else { return self.exit(cpu, t) };
                task.pc = back;
                self.k.log.add(self.k.now, RecKind::Served, cpu, t.0, t.0, handler);
                continue;
            };
            if !self.conditions.any_returning() && !self.k.cpus[cpu].need_resched {
                task.pc += 1;
            } else if self.comes_first(cpu, t) {
                return;
            } else {
                self.k.tasks[t.index()].pc += 1;
            }
            let goes_on = match step {
                Step::Run { ns } => ns == 0 || self.begin(cpu, t, ns, false),
                Step::RunKernel { ns } => ns == 0 || self.begin(cpu, t, ns, true),
                Step::Pause { pause, sleep } => self.pause(cpu, t, pause, sleep),
                Step::Wait { sem, sleep } => {
                    let units = &mut self.units[sem.0 as usize];
                    let satisfied = *units > 0;
                    if satisfied {
                        *units -= 1;
                        self.counts.satisfied += 1;
                    } else {
                        if let Some(spinner) = self.spinners.pop_front(sem.0 as usize) {
                            self.wake(spinner, Wake::Task { waker: t, cpu, sync: false });
                        }
                        self.block(cpu, t, sleep);
                        self.waiters.push_back(sem.0 as usize, t);
                    }
                    satisfied
                }
                Step::Post { sem, sync } => match self.owed(t, |k| k.costs.wakeup) {
                    0 => {
                        self.post(sem.0 as usize, Wake::Task { waker: t, cpu, sync });
                        true
                    }
                    cost => self.begin(cpu, t, cost, true),
                },
                Step::Send { queue, .. } if !self.sends_under(cpu, t, queue.0 as usize) => false,
                Step::Send { queue, handler } => match self.owed(t, |k| k.costs.wakeup) {
                    0 => {
                        let sync = self.queues[queue.0 as usize].calls == Calls::First;
                        self.send(queue.0 as usize, handler.0, Wake::Task { waker: t, cpu, sync });
                        self.sent_under(t, queue.0 as usize);
                        true
                    }
                    cost => self.begin(cpu, t, cost, true),
                },
                Step::Receive { queue, sleep } => self.receive_from(cpu, t, queue.0 as usize, sleep),
                Step::Put { buffer } => self.put(cpu, t, buffer.0 as usize),
                Step::Take { buffer } => self.take(cpu, t, buffer.0 as usize),
                Step::Acquire { lock } => self.acquire(cpu, t, lock.0 as usize),
                Step::Release { lock } => {
                    self.release(cpu, t, lock.0 as usize);
                    true
                }
                Step::Contend { lock, ns, ready } => self.contend(cpu, t, (lock.0 as usize, ns, ready)),
                Step::Barrier { barrier } => self.meet(cpu, t, barrier.0 as usize),
                Step::Yield => self.do_yield(cpu, t),
                Step::Spin { sem, ns, turns } => self.spin(cpu, t, sem.0 as usize, ns, turns),
                Step::Fork { child, how } => match self.owed(t, Kernel::fork_cost) {
                    0 => self.fork(cpu, t, child, how),
                    cost => self.begin(cpu, t, cost, true),
                },
                Step::Exec => self.exec(cpu, t),
                Step::SetAttrs { attrs } => {
                    let new = self.k.work.tasks[t.index()].attrs[attrs as usize].clone();
                    self.set_attrs(t, new);
                    true
                }
                Step::Place { cpu } => {
                    self.k.tasks[t.index()].attrs.affinity = CpuSet::of(&[cpu as Cpu]);
                    true
                }
                Step::Exiting => {
                    self.k.log.add(self.k.now, RecKind::Exiting, cpu, t.0, IDLE, 0);
                    let class = self.class(t);
                    self.stack.layers[class].1.exiting(&mut self.k, cpu, t);
                    true
                }
                Step::Exit => {
                    self.exit(cpu, t);
                    false
                }
                Step::Goto { step } => {
                    self.k.tasks[t.index()].pc = step;
                    true
                }
                Step::LoopUntil { step, until } => {
                    if self.k.now <= until {
                        self.k.tasks[t.index()].pc = step;
                    }
                    true
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Whether something else comes before the next step of `t`.
    #[inline(never)]
    fn comes_first(&mut self, cpu: Cpu, t: TaskId) -> bool {
        let task = &self.k.tasks[t.index()];
        let step = steps_of(&self.k.work, task)[task.pc as usize];
        if self.conditions.any_returning() && !matches!(step, Step::RunKernel { .. }) && self.returns(cpu, t) {
            return true;
        }
        let back = self.k.cpus[cpu].need_resched && self.returns_before(t, step);
        if back {
            self.k.slots.set_resched(cpu, self.k.switching_until(cpu));
        }
        back
    }

    /// Whether `t` is back from one system call before it makes the one of `step`, in which it may fall
    /// asleep: whoever was woken before and preempts it comes first. A kernel thread makes no calls, and
    /// an uninterruptible sleep is mostly within one: they are preempted where the kernel is. A sleep
    /// on a timer stays as it is, since nobody else can end it.
    fn returns_before(&self, t: TaskId, step: Step) -> bool {
        let (Step::Wait { sleep, .. } | Step::Receive { sleep, .. }) = step else {
            return false;
        };
        let calls = sleep == Sleep::Interruptible && !self.k.tasks[t.index()].attrs.kernel;
        calls || self.k.preempt_kernel
    }

    /// `t`, which runs, goes on where somebody waits. Else it uses its CPU for `ns`, yields, and comes
    /// back, or sleeps behind the last turn.
    #[inline(never)]
    fn spin(&mut self, cpu: Cpu, t: TaskId, sem: usize, ns: Ns, turns: u32) -> bool {
        let task = &mut self.k.tasks[t.index()];
        if !self.waiters.is_empty(sem) {
            task.spun = 0;
            return true;
        }
        task.pc -= 1;
        task.spun += 1;
        // The odd ones are the turns, the even ones the yields behind them.
        if task.spun % 2 == 1 {
            return self.begin(cpu, t, ns, false);
        }
        if task.spun / 2 < turns {
            return self.do_yield(cpu, t);
        }
        task.spun = 0;
        self.block(cpu, t, Sleep::Interruptible);
        self.spinners.push_back(sem, t);
        false
    }

    /// `t`, which runs, takes a message or falls asleep; false when it sleeps.
    #[inline(never)]
    fn receive_from(&mut self, cpu: Cpu, t: TaskId, queue: usize, sleep: Sleep) -> bool {
        let called = std::mem::take(&mut self.k.tasks[t.index()].called);
        if !self.reads_under(cpu, t, queue, called) {
            return false;
        }
        let Some(handler) = self.queues[queue].messages.pop_front() else {
            // It looks again when it is woken.
            self.waits_to_read(cpu, t, queue, sleep);
            return false;
        };
        self.has_read(cpu, t, queue);
        let task = &mut self.k.tasks[t.index()];
        task.handler = Some((handler, task.pc));
        task.pc = 0;
        self.counts.satisfied += 1;
        if called && self.queues[queue].calls == Calls::First && !self.queues[queue].messages.is_empty() {
            self.call(queue, Wake::Task { waker: t, cpu, sync: true });
        }
        true
    }

    pub(super) fn class(&mut self, t: TaskId) -> usize {
        let class = self.k.tasks[t.index()].class;
        self.k.class = class;
        class as usize
    }

    /// Starts a run step; the answer is that the task does not go on to the next step.
    pub(super) fn begin(&mut self, cpu: Cpu, t: TaskId, ns: Ns, in_kernel: bool) -> bool {
        let task = &mut self.k.tasks[t.index()];
        task.left = ns;
        task.in_kernel = in_kernel;
        self.k.returns_to_task(cpu);
        self.arm_burst_end(cpu, t);
        if self.k.cpus[cpu].need_resched {
            let held = in_kernel && !self.k.preempt_kernel;
            let at = if held { NEVER } else { self.k.now.max(self.k.cpus[cpu].busy_until) };
            self.k.slots.set_resched(cpu, at);
        }
        false
    }

    /// Takes a run step that comes next, so that a task that wakes knows what it has to do.
    pub(super) fn preload(&mut self, t: TaskId) {
        let task = &mut self.k.tasks[t.index()];
        let steps = steps_of(&self.k.work, task);
        let mut pc = task.pc;
        let (left, in_kernel) = loop {
            match steps.get(pc as usize) {
                Some(Step::Run { ns: 0 } | Step::RunKernel { ns: 0 }) => pc += 1,
                Some(Step::Goto { step }) if *step < pc => {
                    pc = *step;
                    if matches!(steps.get(pc as usize), Some(Step::Goto { .. })) {
                        break (0, false);
                    }
                }
                Some(&Step::Run { ns }) => {
                    pc += 1;
                    break (ns, false);
                }
                Some(&Step::RunKernel { ns }) => {
                    pc += 1;
                    break (ns, true);
                }
                _ => break (0, false),
            }
        };
        (task.pc, task.left, task.in_kernel) = (pc, left, in_kernel);
    }

    fn pause(&mut self, cpu: Cpu, t: TaskId, pause: Pause, sleep: Sleep) -> bool {
        if matches!(pause, Pause::At { at } if at <= self.k.now) {
            self.counts.satisfied += 1;
            return true;
        }
        let pause = match pause {
            Pause::Period { ns, slack, late } => match self.expires(t, ns, late) {
                Some(due) => Pause::Timer { ns: due - self.k.now, slack },
                None => {
                    self.counts.satisfied += 1;
                    return true;
                }
            },
            other => other,
        };
        self.block(cpu, t, sleep);
        self.arm(cpu, t, pause);
        false
    }

    /// The running task falls asleep.
    pub(super) fn block(&mut self, cpu: Cpu, t: TaskId, sleep: Sleep) {
        if self.k.tasks[t.index()].lets_go > 0 {
            self.lets_go(cpu, t);
        }
        let class = self.leave(cpu, t, Stop::Slept, TaskState::Sleeping(sleep));
        self.preload(t);
        self.stack.layers[class].1.quiescent(&mut self.k, cpu, t, Stop::Slept);
    }

    /// The running task leaves `cpu` of its own will, and is in `state` then. Tells its class.
    #[inline(always)]
    fn leave(&mut self, cpu: Cpu, t: TaskId, why: Stop, state: TaskState) -> usize {
        let now = self.k.now;
        self.k.cpus[cpu].clock = now;
        let class = self.class(t);
        self.stack.layers[class].1.stopping(&mut self.k, cpu, t, why);
        let mut free = now;
        self.account_with(cpu, t, |c, task, _| {
            debug_assert!(!c.idle, "a task has run there");
            c.curr = None;
            c.leaving = Some((t, why));
            c.blocked_at = now;
            c.keep_clock = false;
            c.need_resched = true;
            c.nr = c.nr.wrapping_sub(1);
            free = now.max(c.busy_until);
            (task.state, task.since) = (state, now);
        });
        self.k.slots.set_resched(cpu, free);
        class
    }

    #[inline(never)]
    fn exit(&mut self, cpu: Cpu, t: TaskId) {
        self.leave_locks(cpu, t);
        self.leave_barriers(cpu, t);
        let class = self.leave(cpu, t, Stop::Exited, TaskState::Dead);
        self.k.live -= 1;
        if self.k.work.tasks[t.index()].essential {
            self.essential -= 1;
            if self.ends_with_essential && self.essential == 0 {
                self.ends_with_essential = false;
                self.until = self.at_least.max(self.k.now);
            }
        }
        self.close_buffers(cpu, t);
        self.k.log.add(self.k.now, RecKind::Exit, cpu, t.0, IDLE, 0);
        self.k.class = class as u8;
        self.stack.layers[class].1.quiescent(&mut self.k, cpu, t, Stop::Exited);
        for class in 0..self.stack.layers.len() {
            self.k.class = class as u8;
            self.stack.layers[class].1.exit_task(&mut self.k, t);
        }
    }

    #[inline(never)]
    fn do_yield(&mut self, cpu: Cpu, t: TaskId) -> bool {
        let class = self.class(t);
        self.k.cpus[cpu].clock = self.k.now;
        self.stack.layers[class].1.yield_(&mut self.k, cpu, t);
        self.preload(t);
        let c = &mut self.k.cpus[cpu];
        c.yielded = true;
        c.leaving = Some((t, Stop::Yielded));
        if c.need_resched {
            let at = self.k.now.max(c.busy_until);
            self.k.slots.set_resched(cpu, at);
        }
        self.k.resched(cpu);
        false
    }

    #[inline(never)]
    fn exec(&mut self, cpu: Cpu, t: TaskId) -> bool {
        self.k.log.add(self.k.now, RecKind::Exec, cpu, t.0, IDLE, 0);
        let class = self.class(t);
        self.stack.layers[class].1.exec(&mut self.k, t);
        true
    }

    /// What `t` has yet to pay for the step that it is about to do; it comes back to it when it has.
    fn owed(&mut self, t: TaskId, cost: fn(&mut Kernel) -> Ns) -> Ns {
        let task = &mut self.k.tasks[t.index()];
        if std::mem::take(&mut task.paid) {
            return 0;
        }
        let cost = cost(&mut self.k);
        if cost > 0 {
            let task = &mut self.k.tasks[t.index()];
            task.paid = true;
            task.pc -= 1;
        }
        cost
    }

    /// `parent`, which runs on `cpu`, makes `child`.
    #[inline(never)]
    fn fork(&mut self, cpu: Cpu, parent: TaskId, child: TaskId, how: Fork) -> bool {
        if self.k.tasks[child.index()].state != TaskState::New {
            self.k.fail(format!("task {} is made twice", child.0));
            return false;
        }
        self.k.log.add(self.k.now, RecKind::Fork, cpu, child.0, parent.0, 0);
        let task = &mut self.k.tasks[child.index()];
        task.parent = Some(parent);
        task.cpu = cpu;
        self.task_init(child, Some(Birth { parent, how }));
        let class = self.class(child);
        let to = self.stack.layers[class].1.select_cpu(&mut self.k, child, Select::Fork);
        let to = checked_cpu(&mut self.k, child, to);
        self.k.tasks[child.index()].cpu = to;
        self.k.log.add(self.k.now, RecKind::New, to, child.0, parent.0, cpu as u32);
        self.make_runnable(child, to, Enqueue::Fork);
        let class = self.class(parent);
        self.stack.layers[class].1.fork_return(&mut self.k, parent, child, how);
        true
    }

    /// `t` begins its life in the class of its attributes.
    pub(super) fn task_init(&mut self, t: TaskId, birth: Option<Birth>) {
        let class = self.stack.class_of(&self.k.tasks[t.index()].attrs);
        let task = &mut self.k.tasks[t.index()];
        task.class = class;
        task.state = TaskState::Runnable;
        self.k.live += 1;
        self.preload(t);
        for class in 0..self.stack.layers.len() {
            self.k.class = class as u8;
            self.stack.layers[class].1.init_task(&mut self.k, t, birth);
        }
    }

    /// Gives `t` other attributes, and moves it to another class where they ask for it.
    #[inline(never)]
    pub(crate) fn set_attrs(&mut self, t: TaskId, new: Attrs) {
        let to = self.stack.class_of(&new);
        let task = &mut self.k.tasks[t.index()];
        let (from, state, cpu) = (task.class, task.state, task.cpu);
        let old = std::mem::replace(&mut task.attrs, new);
        self.k.log.add(self.k.now, RecKind::Attrs, cpu, t.0, IDLE, 0);
        self.k.cpus[cpu].clock = self.k.now;
        if from == to {
            self.k.class = to;
            let policy = &mut self.stack.layers[to as usize].1;
            policy.set_params(&mut self.k, t, &old);
            match state {
                TaskState::Running if !self.k.allowed(t, cpu) => self.k.resched(cpu),
                TaskState::Runnable if !self.k.allowed(t, cpu) => {
                    policy.dequeue(&mut self.k, cpu, t, Dequeue::Migrated);
                    if !self.migrate_disallowed(cpu, t) {
                        let policy = &mut self.stack.layers[to as usize].1;
                        policy.enqueue(&mut self.k, cpu, t, Enqueue::Migrated);
                    }
                }
                _ => {}
            }
            return;
        }
        self.k.class = from;
        let policy = &mut self.stack.layers[from as usize].1;
        match state {
            TaskState::Running => policy.stopping(&mut self.k, cpu, t, Stop::SwitchedFrom),
            TaskState::Runnable => policy.dequeue(&mut self.k, cpu, t, Dequeue::SwitchedFrom),
            _ => {}
        }
        policy.disable(&mut self.k, t);
        self.k.tasks[t.index()].class = to;
        self.k.class = to;
        let policy = &mut self.stack.layers[to as usize].1;
        policy.enable(&mut self.k, t);
        match state {
            TaskState::Running => {
                policy.running(&mut self.k, cpu, t, true);
                self.k.resched(cpu);
            }
            TaskState::Runnable if !self.k.allowed(t, cpu) && self.migrate_disallowed(cpu, t) => {}
            TaskState::Runnable => {
                let policy = &mut self.stack.layers[to as usize].1;
                policy.enqueue(&mut self.k, cpu, t, Enqueue::SwitchedTo);
                self.preempt_check(cpu, t, Enqueue::SwitchedTo);
            }
            _ => {}
        }
    }
}
