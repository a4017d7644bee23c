//! POSIX real time as on Linux: SCHED_FIFO and SCHED_RR by priority. This file holds the queues,
//! turns and the
//! throttle, `balance` what moves tasks between CPUs, `server` what other classes get from 6.12 on.

mod balance;
mod info;
mod server;

pub use info::INFO;

use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Select, Stop, Wake};
use crate::queue::{Bits, Levels, TaskMap};
use crate::task::{Attrs, Cpu, Ns, SchedPolicy, TaskId};

/// State of the class.
pub struct Rt {
    slice: Ns,
    runtime: Ns,
    period: Ns,
    throttle: bool,
    push_ipi: bool,
    reservation: Option<server::Reservation>,
    slice_ticks: i64,
    cpus: Vec<RtCpu>,
    /// CPUs on which a task waits that may run elsewhere.
    overloaded: Bits,
    round: balance::Round,
    tasks: TaskMap<RtTask>,
}

#[derive(Clone, Default)]
struct RtCpu {
    queue: Levels,
    /// Those of the queue that may run elsewhere, each level in the order in which they began to wait.
    pushable: Levels,
    /// A task that goes before the running one, which is as good, when that is preempted.
    ahead: Option<TaskId>,
    /// What its task counted that has just fallen asleep.
    left: Option<usize>,
    /// The CPU that was chosen last where several were as low.
    spread: Cpu,
    /// Time that the class has used in this period.
    used: Ns,
    throttled: bool,
    /// True while the period timer is set.
    timing: bool,
    exec_start: Ns,
    server: server::Server,
}

#[derive(Clone, Copy, Default)]
struct RtTask {
    ticks: i64,
    /// The slice was used up: it goes to the tail.
    rotate: bool,
}

/// The list of time-sharing tasks, when they are in this class at all.
const SHARED: usize = 99;

/// Tokens of timers that are not those of a CPU's period: it pushes, the round of interrupts goes on,
/// the fair server has something to do.
const PUSH: u64 = 1 << 32;
const IPI: u64 = 2 << 32;
const SERVER: u64 = 3 << 32;

/// Lists are numbered from the best: priority 99 is list 0, time sharing list 99.
fn level(attrs: &Attrs) -> usize {
    if attrs.policy.is_rt() {
        99 - attrs.rt_prio.clamp(1, 99) as usize
    } else {
        SHARED
    }
}

impl Rt {
    /// Charges the running task up to now.
    fn charge(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        let now = k.clock(cpu);
        let c = &mut self.cpus[cpu];
        let ran = now - std::mem::replace(&mut c.exec_start, now);
        if level(&k.task(t).attrs) == SHARED {
            return;
        }
        c.used += ran;
        if self.throttle && !c.throttled && c.used > self.runtime {
            c.throttled = true;
            k.resched(cpu);
        }
    }

    /// Puts `t` on the queue of `cpu`.
    fn insert(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, front: bool) {
        let at = level(&k.task(t).attrs);
        let c = &mut self.cpus[cpu];
        if front {
            c.queue.push_front(at, t);
        } else {
            c.queue.push_back(at, t);
        }
        if balance::movable(k, t) {
            c.pushable.push_back(at, t);
            self.overloaded.set(cpu, true);
        }
        if self.throttle && !c.timing && at != SHARED {
            c.timing = true;
            k.timer_at(k.now() + self.period, cpu as u64);
        }
    }

    /// Takes `t` off the queue of `cpu`; false when it is not there.
    fn remove(&mut self, cpu: Cpu, t: TaskId) -> bool {
        let c = &mut self.cpus[cpu];
        c.pushable.remove(t);
        self.overloaded.set(cpu, !c.pushable.is_empty());
        c.queue.remove(t)
    }

    /// The task that `cpu` runs next, where there may be one; the one that has left it was of level
    /// `left`.
    #[inline(never)]
    fn choose(&mut self, k: &mut Kernel, cpu: Cpu, left: Option<usize>) -> Option<TaskId> {
        if left.is_some_and(|left| self.cpus[cpu].queue.best().is_none_or(|best| best > left)) {
            self.pull(k, cpu);
        }
        let waits = self.server_dispatches(k, cpu) || self.cpus[cpu].throttled;
        let queue = &self.cpus[cpu].queue;
        let t = if waits { queue.level_front(SHARED) } else { queue.front() }?;
        self.remove(cpu, t);
        Some(t)
    }
}

impl Policy for Rt {
    fn init(&mut self, k: &mut Kernel) {
        self.cpus =
            vec![RtCpu { queue: Levels::new(100), pushable: Levels::new(100), ..RtCpu::default() }; k.nr_cpus()];
        self.overloaded = Bits::none(k.nr_cpus());
        self.slice_ticks = self.slice.div_euclid(k.tick_ns()) + i64::from(self.slice % k.tick_ns() > 0);
    }

    fn init_task(&mut self, _k: &mut Kernel, t: TaskId, _birth: Option<Birth>) {
        *self.tasks.ensure(t) = RtTask { ticks: self.slice_ticks, rotate: false };
    }

    fn select_cpu(&mut self, k: &mut Kernel, t: TaskId, why: Select) -> Cpu {
        self.select(k, t, why)
    }

    fn enqueue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Enqueue) {
        let rotate = std::mem::take(&mut self.tasks[t].rotate);
        let front = why == Enqueue::Preempted && !rotate;
        self.insert(k, cpu, t, front);
        let c = &mut self.cpus[cpu];
        let at = c.queue.level_of(t);
        if let Some(ahead) = c.ahead.filter(|&ahead| front && c.queue.level_of(ahead) == at) {
            c.queue.remove(ahead);
            c.queue.insert_before(t, ahead);
        }
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, why: Enqueue) {
        let (ours, theirs) = (level(&k.task(t).attrs), level(&k.task(curr).attrs));
        if ours < theirs {
            k.resched_keeping_clock(cpu);
        } else if ours == theirs && !k.need_resched(cpu) {
            self.preempt_equal(k, cpu, curr, t);
        }
        let this = match why {
            Enqueue::Migrated => return,
            Enqueue::Wakeup(Wake::Task { cpu, .. }) => cpu,
            _ => k.here().unwrap_or(cpu),
        };
        self.woken(k, cpu, curr, t, this);
    }

    fn dequeue(&mut self, _k: &mut Kernel, cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.remove(cpu, t);
    }

    /// The server of a CPU on which no task of the class ever runs holds nobody up.
    fn rests_without_tasks(&self) -> bool {
        true
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        let c = &mut self.cpus[cpu];
        c.ahead = None;
        let left = c.left.take();
        if c.queue.is_empty() && left.is_none() && !(self.reservation.is_some() && c.server.needs_looking_after()) {
            return None;
        }
        self.choose(k, cpu, left)
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _switched: bool) {
        self.cpus[cpu].exec_start = k.clock(cpu);
        self.server_switch(k, cpu, level(&k.task(t).attrs) != SHARED);
        self.push_behind_switch(k, cpu);
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {
        self.charge(k, cpu, t);
        self.server_switch(k, cpu, false);
        match why {
            Stop::Preempted | Stop::Yielded if k.allowed(t, cpu) => {}
            Stop::SwitchedFrom if self.cpus[cpu].queue.is_empty() => {
                self.pull(k, cpu);
                k.resched(cpu);
            }
            Stop::SwitchedFrom => {}
            _ => self.cpus[cpu].left = Some(level(&k.task(t).attrs)),
        }
    }

    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.charge(k, cpu, t);
        self.look_after_server(k, cpu);
        if k.task(t).attrs.policy != SchedPolicy::Rr {
            return;
        }
        let task = &mut self.tasks[t];
        task.ticks -= 1;
        if task.ticks > 0 {
            return;
        }
        task.ticks = self.slice_ticks;
        if self.cpus[cpu].queue.level_len(level(&k.task(t).attrs)) > 0 {
            self.tasks[t].rotate = true;
            k.resched(cpu);
        }
    }

    fn timer(&mut self, k: &mut Kernel, token: u64) {
        let cpu = token as u32 as Cpu;
        match token & !u64::from(u32::MAX) {
            PUSH => {
                k.happens_on(cpu);
                return self.push_or_wait(k, cpu, cpu);
            }
            IPI => return self.round_interrupt(k),
            SERVER => return self.server_timer(k, cpu),
            _ => {}
        }
        // What runs is charged at ticks and switches, not here.
        let running = k.curr(cpu).is_some_and(|t| k.is_mine(t) && level(&k.task(t).attrs) != SHARED);
        let c = &mut self.cpus[cpu];
        c.used -= c.used.min(self.runtime);
        if c.throttled && c.used < self.runtime {
            c.throttled = false;
            if !c.queue.is_empty() {
                k.resched(cpu);
            }
        }
        let busy = c.used > 0 || running || c.queue.best().is_some_and(|b| b != SHARED);
        c.timing = busy;
        if busy {
            k.timer_at(k.now() + self.period, token);
        }
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, old: &Attrs) {
        let (from, to, cpu) = (level(old), level(&k.task(t).attrs), k.task(t).cpu);
        if from == to {
            return;
        }
        if self.remove(cpu, t) {
            self.insert(k, cpu, t, to > from);
            if to < from && k.curr(cpu).is_some_and(|c| k.same_class(c, t) && to < level(&k.task(c).attrs)) {
                k.resched(cpu);
            }
        } else if k.curr(cpu) == Some(t) && to > from {
            self.pull(k, cpu);
            if self.cpus[cpu].queue.best().is_some_and(|b| b < to) {
                k.resched(cpu);
            }
        }
    }

    fn yield_(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId) {
        self.tasks[t].rotate = true;
    }

    fn inspect(&self, k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        match key {
            "ticks" => self.tasks.get(t).map(|s| s.ticks as f64),
            "priority" => Some((99 - level(&k.task(t).attrs)) as f64),
            _ => None,
        }
    }
}
