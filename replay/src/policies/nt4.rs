//! The dispatcher of Windows NT 4.

use super::PolicyInfo;
use crate::params::{Param, Unit};
use crate::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Select, Stop, Wake};
use crate::queue::{Levels, TaskMap};
use crate::task::{Attrs, Cpu, Ns, TaskId, TaskState};

/// Documentation and constructor.
pub const INFO: PolicyInfo = PolicyInfo {
    name: "nt4",
    title: "Windows NT 4 dispatcher: 32 priorities, quanta, boosts",
    idea: "The highest of 32 priorities runs. Threads of the dynamic range (1-15) are boosted when \
           a wait ends and come down a level with each quantum that they use up. Workstation quanta \
           are short and longer in the foreground; server quanta are long and equal.",
    formula: "Quantum in units, 3 a tick, 1 a wait. At its end: quantum = reset, priority = \
              max(base, priority - decrement - 1), and to the tail if a thread of that level or \
              better is ready. A ready thread with a higher priority preempts; the preempted one \
              goes to the head and keeps its quantum. A wait that ends with increment i: priority = \
              base + i, at most 15. A thread ready for more than 3 s gets priority 15 and a longer \
              quantum from the balance set manager, which looks every second. Base priority: `prio` \
              where given, else 8 - nice / 5.",
    tie_break: "Within a level in order of arrival.",
    not_modelled: "Which process is in the foreground (say so with the attribute `foreground`); \
                   window-message boosts; ideal processors, and the preference of a CPU for threads \
                   that ran there last (a thread wakes on an idle CPU or on its last one; all CPUs \
                   choose from one set of queues); the increment of each device (one increment for \
                   all I/O, one for waits on tasks).",
    sources: "Published quanta of NT 4 (NTFrob documentation), ReactOS ntoskrnl/ke for the \
              arithmetic of boosts, Inside Windows NT 2nd edition for sizes from memory. Medium \
              confidence.",
    params: &[
        Param {
            name: "product",
            unit: Unit::Choice(&["workstation", "server"]),
            default: "workstation",
            range: None,
            doc: "Workstation: quantum of 2 ticks, longer in the foreground; server: 12 ticks.",
        },
        Param {
            name: "separation",
            unit: Unit::Count,
            default: "2",
            range: Some(("0", "2")),
            doc: "Foreground quantum of a workstation: 2, 4 or 6 ticks.",
        },
        Param {
            name: "io_boost",
            unit: Unit::Count,
            default: "1",
            range: Some(("0", "8")),
            doc: "Increment when a wait for a device ends (disk 1, network and pipes 2, keyboard \
                and mouse 6, sound 8).",
        },
        Param {
            name: "wait_boost",
            unit: Unit::Count,
            default: "1",
            range: Some(("0", "2")),
            doc: "Increment when another thread ends the wait (event, semaphore).",
        },
        Param {
            name: "starvation",
            unit: Unit::Switch,
            default: "on",
            range: None,
            doc: "The balance set manager lifts threads that were ready for 3 s.",
        },
        Param {
            name: "starve_quantum",
            unit: Unit::Count,
            default: "0",
            range: Some(("0", "255")),
            doc: "Quantum of a thread that was lifted, in units; 0: twice its own.",
        },
    ],
    rt_above: false,
    deadline_above: false,
    reads: &["policy", "nice", "prio", "foreground"],
    build: |p| {
        Ok(Box::new(Nt4 {
            server: p.int("product") == 1,
            separation: p.int("separation"),
            io_boost: p.int("io_boost") as i32,
            wait_boost: p.int("wait_boost") as i32,
            starvation: p.on("starvation"),
            starve_quantum: p.int("starve_quantum"),
            of: TaskMap::new(),
            ready: Levels::new(32),
            lifted: 0,
        }))
    },
};

const UNITS_PER_TICK: i64 = 3;
const STARVED: Ns = 3_000_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    base: i32,
    pri: i32,
    quantum: i64,
    reset: i64,
    decrement: i32,
    to_tail: bool,
}

/// State of the policy.
pub struct Nt4 {
    server: bool,
    separation: i64,
    io_boost: i32,
    wait_boost: i32,
    starvation: bool,
    starve_quantum: i64,
    of: TaskMap<Thread>,
    /// Level 0 is priority 31.
    ready: Levels,
    lifted: i64,
}

fn level(pri: i32) -> usize {
    (31 - pri) as usize
}

impl Nt4 {
    fn set_attrs(&mut self, t: TaskId, attrs: &Attrs) {
        let base = match attrs.prio {
            Some(p) if attrs.policy.is_rt() => 16 + p.clamp(0, 99) * 15 / 99,
            Some(p) => p.clamp(1, 31),
            None => (8 - attrs.nice / 5).clamp(1, 15),
        };
        let reset = match (self.server, attrs.foreground) {
            (true, _) => 36,
            (false, true) => 6 * (self.separation + 1),
            (false, false) => 6,
        };
        let th = self.of.ensure(t);
        *th = Thread { base, pri: base, quantum: reset, reset, decrement: 0, to_tail: false };
    }

    fn quantum_end(&mut self, t: TaskId) {
        let th = &mut self.of[t];
        th.quantum = th.reset;
        if th.pri < 16 {
            th.pri = th.base.max(th.pri - th.decrement - 1);
            th.decrement = 0;
        }
    }

    /// A wait ends with increment `i`.
    fn unwait(&mut self, t: TaskId, i: i32) {
        let th = &mut self.of[t];
        if th.pri >= 16 || th.base >= 16 {
            th.quantum = th.reset;
            return;
        }
        if th.base < 14 {
            if th.decrement == 0 && i > 0 {
                th.quantum = th.reset;
            }
            th.quantum -= 1;
            if th.quantum <= 0 {
                th.quantum = th.reset;
                th.pri = th.base.max(th.pri - th.decrement - 1);
                th.decrement = 0;
            }
        } else {
            th.quantum = th.reset;
        }
        if th.decrement == 0 && th.base + i > th.pri {
            th.pri = (th.base + i).min(15);
        }
    }

    fn best_ready(&self) -> Option<i32> {
        self.ready.best().map(|l| 31 - l as i32)
    }
}

impl Policy for Nt4 {
    fn init_task(&mut self, k: &mut Kernel, t: TaskId, _birth: Option<Birth>) {
        let attrs = k.task(t).attrs.clone();
        self.set_attrs(t, &attrs);
    }

    fn select_cpu(&mut self, k: &mut Kernel, t: TaskId, _why: Select) -> Cpu {
        k.idle_or_last(t)
    }

    fn enqueue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, why: Enqueue) {
        if let Enqueue::Wakeup(wake) = why {
            let i = match wake {
                Wake::Io => self.io_boost,
                Wake::Task { .. } => self.wait_boost,
                Wake::Timer | Wake::External => 0,
            };
            self.unwait(t, i);
        }
        let th = &mut self.of[t];
        let head = why == Enqueue::Preempted && !std::mem::take(&mut th.to_tail);
        let level = level(th.pri);
        if head {
            self.ready.push_front(level, t);
        } else {
            self.ready.push_back(level, t);
        }
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, _why: Enqueue) {
        if self.of[t].pri > self.of[curr].pri {
            k.resched(cpu);
        }
    }

    fn dequeue(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.ready.remove(t);
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        self.ready.pop_fitting(|t| k.allowed(t, cpu))
    }

    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        let th = &mut self.of[t];
        th.quantum -= UNITS_PER_TICK;
        if th.quantum > 0 {
            return;
        }
        self.quantum_end(t);
        if self.best_ready().is_some_and(|p| p >= self.of[t].pri) {
            self.of[t].to_tail = true;
            k.resched(cpu);
        }
    }

    fn yield_(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId) {
        if self.best_ready().is_some_and(|p| p >= self.of[t].pri) {
            self.quantum_end(t);
        }
    }

    fn update_1hz(&mut self, k: &mut Kernel) {
        if !self.starvation {
            return;
        }
        let now = k.now();
        let (mut looked, mut lifted) = (0, Vec::new());
        for pri in (1..15).rev() {
            for t in self.ready.iter(level(pri)) {
                looked += 1;
                if now - k.task(t).since >= STARVED && k.task(t).state == TaskState::Runnable && lifted.len() < 10 {
                    lifted.push(t);
                }
                if looked >= 16 {
                    break;
                }
            }
        }
        k.scanned(0, looked);
        for t in lifted {
            self.lifted += 1;
            self.ready.remove(t);
            let th = &mut self.of[t];
            th.decrement += 15 - th.pri;
            th.pri = 15;
            th.quantum = if self.starve_quantum > 0 { self.starve_quantum } else { 2 * th.reset };
            self.ready.push_back(level(15), t);
            let cpu = k.task(t).cpu;
            if k.curr(cpu).is_some_and(|c| self.of[c].pri < 15) {
                k.resched(cpu);
            }
        }
    }

    fn stopping(&mut self, _k: &mut Kernel, _cpu: Cpu, t: TaskId, why: Stop) {
        if why == Stop::Slept {
            self.of[t].to_tail = false;
        }
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, _old: &Attrs) {
        let attrs = k.task(t).attrs.clone();
        let queued = self.ready.remove(t);
        self.set_attrs(t, &attrs);
        if queued {
            self.ready.push_back(level(self.of[t].pri), t);
        }
    }

    fn inspect(&self, _k: &Kernel, t: TaskId, key: &str) -> Option<f64> {
        let th = self.of.get(t)?;
        match key {
            "priority" => Some(f64::from(th.pri)),
            "quantum" => Some(th.quantum as f64),
            _ => None,
        }
    }

    fn counters(&self) -> Vec<(&'static str, i64)> {
        vec![("lifted", self.lifted)]
    }
}
