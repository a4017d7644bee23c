//! The time-sharing class of SVR4 and Solaris, with IA, FX and RT beside it. See [`INFO`].

mod info;
mod table;

pub use info::INFO;

use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Select, Stop};
use crate::program::Fork;
use crate::queue::{Levels, TaskMap};
use crate::task::{Attrs, Cpu, TaskId, TaskState};
use table::{Level, Table};

/// Global priorities 0 to 169; queues are indexed from the best.
const TOP: i64 = 169;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Class {
    #[default]
    Ts,
    Ia,
    Fx,
    Rt,
    Sys,
}

impl Class {
    fn decays(self) -> bool {
        matches!(self, Class::Ts | Class::Ia)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    class: Class,
    cpupri: usize,
    upri: i64,
    boost: i64,
    timeleft: i64,
    dispwait: i64,
    /// Its quantum is over, or it gave way: to the back of its queue.
    backq: bool,
    pri: i64,
    /// Tick at which it last left a CPU.
    left_at: Option<i64>,
}

/// State of the policy.
pub struct SolarisTs {
    table: Table,
    res: Option<i64>,
    levels: Vec<Level>,
    fork_demotes: bool,
    of: TaskMap<Thread>,
    queues: Vec<Levels>,
    promoted: i64,
}

fn class_of(attrs: &Attrs) -> Class {
    match attrs.class.as_deref() {
        Some("IA") => Class::Ia,
        Some("FX") => Class::Fx,
        Some("RT") => Class::Rt,
        Some("SYS") => Class::Sys,
        Some(_) => Class::Ts,
        None if attrs.policy.is_rt() => Class::Rt,
        None if attrs.kernel => Class::Sys,
        None => Class::Ts,
    }
}

/// Quantum of a real-time priority in ms: 1000 at 0 to 9, 100 at 50 to 59.
fn rt_quantum_ms(prio: i64) -> i64 {
    [1000, 800, 600, 400, 200, 100][(prio.clamp(0, 59) / 10) as usize]
}

impl SolarisTs {
    fn set_attrs(&mut self, t: TaskId, attrs: &Attrs, tick_ns: i64) {
        let class = class_of(attrs);
        let th = self.of.ensure(t);
        th.class = class;
        th.dispwait = 0;
        th.upri = attrs.upri.map_or(-3 * i64::from(attrs.nice), i64::from).clamp(-60, 60);
        th.boost = match class {
            Class::Ia if attrs.foreground => 10,
            Class::Ia => -10,
            _ => 0,
        };
        let prio = i64::from(attrs.prio.unwrap_or(attrs.rt_prio));
        match class {
            Class::Ts | Class::Ia => self.newpri(t),
            Class::Fx => {
                th.cpupri = prio.clamp(0, 59) as usize;
                th.pri = prio.clamp(0, 60);
                th.timeleft = self.levels[th.cpupri].quantum;
            }
            Class::Rt => {
                let p = if attrs.class.is_some() { prio.clamp(0, 59) } else { prio.clamp(1, 99) * 59 / 99 };
                th.pri = 100 + p;
                let ticks = rt_quantum_ms(p) * 1_000_000 / tick_ns;
                th.timeleft = if attrs.policy == crate::task::SchedPolicy::Fifo { i64::MAX } else { ticks.max(1) };
            }
            Class::Sys => {
                th.pri = (60 + prio).clamp(60, 99);
                th.timeleft = i64::MAX;
            }
        }
    }

    fn newpri(&mut self, t: TaskId) {
        let th = &mut self.of[t];
        th.pri = (th.cpupri as i64 + th.upri + th.boost).clamp(0, 59);
    }

    fn quantum(&self, t: TaskId) -> i64 {
        self.levels[self.of[t].cpupri].quantum
    }

    /// The promotion of a thread that waited too long for a quantum.
    fn promote(&mut self, t: TaskId) {
        let th = self.of[t];
        if th.class.decays() && th.dispwait > self.levels[th.pri.clamp(0, 59) as usize].maxwait {
            self.of[t].cpupri = self.levels[th.cpupri].slpret;
            self.of[t].timeleft = self.quantum(t);
            self.of[t].dispwait = 0;
            self.newpri(t);
            self.promoted += 1;
        }
    }

    fn best(&self, cpu: Cpu) -> i64 {
        self.queues[cpu].best().map_or(-1, |l| TOP - l as i64)
    }

    fn put(&mut self, cpu: Cpu, t: TaskId, front: bool) {
        let level = (TOP - self.of[t].pri) as usize;
        if front {
            self.queues[cpu].push_front(level, t);
        } else {
            self.queues[cpu].push_back(level, t);
        }
    }

    fn quantum_end(&mut self, k: &Kernel, t: TaskId) {
        match self.of[t].class {
            Class::Ts | Class::Ia => {
                self.of[t].cpupri = self.levels[self.of[t].cpupri].tqexp;
                self.of[t].dispwait = 0;
                self.newpri(t);
            }
            Class::Fx => self.of[t].timeleft = self.quantum(t),
            Class::Rt => {
                let ms = rt_quantum_ms(self.of[t].pri - 100);
                self.of[t].timeleft = (ms * 1_000_000 / k.tick_ns()).max(1);
            }
            Class::Sys => {}
        }
        self.of[t].backq = true;
    }
}

impl Policy for SolarisTs {
    fn init(&mut self, k: &mut Kernel) {
        self.levels = self.table.levels(self.res, k.tick_ns());
        self.queues = vec![Levels::new(TOP as usize + 1); k.nr_cpus()];
    }

    fn init_task(&mut self, k: &mut Kernel, t: TaskId, birth: Option<Birth>) {
        let attrs = k.task(t).attrs.clone();
        let cpupri = birth.map_or(29, |b| self.of[b.parent].cpupri);
        self.of.ensure(t).cpupri = cpupri;
        self.set_attrs(t, &attrs, k.tick_ns());
        if self.of[t].class.decays() {
            self.of[t].timeleft = self.quantum(t);
        }
    }

    /// ts_forkret: the parent is treated as if its quantum were over, and lets the child run first.
    /// Not after vfork.
    fn fork_return(&mut self, k: &mut Kernel, parent: TaskId, _child: TaskId, how: Fork) {
        if how != Fork::Fork || !self.fork_demotes || !self.of[parent].class.decays() {
            return;
        }
        self.quantum_end(k, parent);
        k.resched(k.task(parent).cpu);
    }

    fn select_cpu(&mut self, k: &mut Kernel, t: TaskId, _why: Select) -> Cpu {
        let cpu = k.idle_or_last(t);
        if k.is_idle(cpu) || k.nr_cpus() == 1 {
            return cpu;
        }
        let running = |c: Cpu| k.curr(c).map_or(-1, |r| self.of[r].pri).max(self.best(c));
        if running(cpu) < self.of[t].pri {
            return cpu;
        }
        (0..k.nr_cpus()).filter(|&c| k.allowed(t, c)).min_by_key(|&c| (running(c), c != cpu, c)).unwrap_or(cpu)
    }

    fn enqueue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Enqueue) {
        match why {
            Enqueue::Preempted | Enqueue::Yielded => {
                let back = std::mem::take(&mut self.of[t].backq);
                if back && self.of[t].class.decays() {
                    self.of[t].timeleft = self.quantum(t);
                    self.of[t].dispwait = 0;
                }
                self.put(cpu, t, !back && why == Enqueue::Preempted);
            }
            Enqueue::Wakeup(_) => {
                self.promote(t);
                self.of[t].backq = false;
                let th = self.of[t];
                let front = match th.class {
                    Class::Ia => th.boost > 0,
                    _ => th.left_at == Some(k.ticks(cpu)),
                };
                self.put(cpu, t, front);
            }
            _ => self.put(cpu, t, false),
        }
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, _why: Enqueue) {
        if self.of[t].pri > self.of[curr].pri {
            k.resched(cpu);
        }
    }

    fn dequeue(&mut self, _k: &mut Kernel, cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.queues[cpu].remove(t);
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        if let Some(t) = self.queues[cpu].pop_front() {
            return Some(t);
        }
        let mut others: Vec<Cpu> = (0..self.queues.len()).filter(|&c| !self.queues[c].is_empty()).collect();
        others.sort_by_key(|&c| (-self.best(c), c));
        let (from, t) =
            others.into_iter().find_map(|c| self.queues[c].iter_all().find(|&t| k.allowed(t, cpu)).map(|t| (c, t)))?;
        self.queues[from].remove(t);
        Some(t)
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {
        self.of[t].left_at = Some(k.ticks(cpu));
        if why == Stop::Slept {
            self.promote(t);
            self.of[t].backq = false;
        }
    }

    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.of[t].timeleft -= 1;
        if self.of[t].timeleft <= 0 {
            self.quantum_end(k, t);
            k.resched(cpu);
        } else if self.of[t].pri < self.best(cpu) {
            self.of[t].backq = true;
            k.resched(cpu);
        }
    }

    /// ts_update: a second more without a quantum used up.
    fn update_1hz(&mut self, k: &mut Kernel) {
        let all: Vec<TaskId> = k.live_tasks().collect();
        k.scanned(0, all.len());
        for t in all {
            if !self.of[t].class.decays() {
                continue;
            }
            self.of[t].dispwait += 1;
            let th = self.of[t];
            if th.dispwait <= self.levels[th.pri.clamp(0, 59) as usize].maxwait {
                continue;
            }
            let (state, cpu) = (k.task(t).state, k.task(t).cpu);
            if state == TaskState::Running {
                // It returns from the trap of this very tick.
                self.promote(t);
                if self.best(cpu) > self.of[t].pri {
                    k.resched(cpu);
                }
                continue;
            }
            self.of[t].cpupri = self.levels[th.cpupri].lwait;
            self.of[t].dispwait = 0;
            self.newpri(t);
            if self.of[t].pri == th.pri {
                continue;
            }
            if self.queues[cpu].remove(t) {
                self.of[t].timeleft = self.quantum(t);
                self.put(cpu, t, false);
                if k.curr(cpu).is_some_and(|c| self.of[c].pri < self.of[t].pri) {
                    k.resched(cpu);
                }
            } else {
                self.of[t].backq = true;
            }
        }
    }

    fn yield_(&mut self, k: &mut Kernel, _cpu: Cpu, t: TaskId) {
        if self.of[t].timeleft <= 0 {
            self.quantum_end(k, t);
        }
        self.of[t].backq = false;
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, _old: &Attrs) {
        let attrs = k.task(t).attrs.clone();
        let cpu = k.task(t).cpu;
        let queued = self.queues[cpu].remove(t);
        self.set_attrs(t, &attrs, k.tick_ns());
        if queued {
            self.put(cpu, t, false);
        }
    }

    fn inspect(&self, _k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        let th = self.of.get(t)?;
        match key {
            "priority" => Some(th.pri as f64),
            "cpupri" => Some(th.cpupri as f64),
            "timeleft" => Some(th.timeleft as f64),
            _ => None,
        }
    }

    fn counters(&self) -> Vec<(&'static str, i64)> {
        vec![("promoted", self.promoted)]
    }
}
