//! A policy in compiled code, behind a versioned struct of function pointers.
//!
//! Every hook has one signature, so that numba's `cfunc` and any C compiler can make it:
//! `int64 hook(void *state, int64 now_ns, int64 cpu, int64 task, int64 arg)`. What `arg` is and what the result means is told at
//! each hook of [`Interface`]. A null pointer is a hook that the policy does not have.

use std::ffi::c_void;

use pyo3::prelude::*;
use tracekit_replay::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Select, Stop};
use tracekit_replay::task::{Attrs, Cpu, TaskId};

use crate::errors::replay_error;

/// Version of [`Interface`]; tracekit refuses others.
pub const VERSION: u64 = 1;

type Hook = Option<unsafe extern "C" fn(state: *mut c_void, now_ns: i64, cpu: i64, task: i64, arg: i64) -> i64>;

/// The struct, as C sees it. All fields are 8 bytes wide.
#[repr(C)]
#[derive(Clone, Copy)]
struct Interface {
    /// [`VERSION`] of the code that filled the struct.
    version: u64,
    /// Size of the struct in bytes.
    size: u64,
    /// Handed to every hook; must stay valid while a replay runs.
    state: *mut c_void,
    /// `cpu` = number of CPUs, `task` = number of tasks there will be, `arg` = tick in ns.
    init: Hook,
    /// `cpu` = -1, `arg` = nice value; `task` of the parent is not told.
    init_task: Hook,
    /// `arg`: 0 initial, 1 new, 2 wakeup, 3 preempted, 4 yielded, 5 moved, 6 joined.
    enqueue: Hook,
    /// A queued task leaves its queue.
    dequeue: Hook,
    /// `task` = -1; returns the task to run next, or -1.
    dispatch: Hook,
    /// `task` was queued while `arg` runs; returns 1 to preempt it.
    wakeup_preempt: Hook,
    /// Returns the slice in ns after which `expired` is called; 0 for none.
    running: Hook,
    /// `arg`: 0 preempted, 1 yielded, 2 slept, 3 exited, 4 left.
    stopping: Hook,
    /// Returns 1 to ask for a reschedule.
    tick: Hook,
    /// Returns 1 to ask for a reschedule; without this hook an expired slice always does.
    expired: Hook,
    /// Returns the CPU for a task that wakes or is new.
    select_cpu: Hook,
    /// The nice value of `task` is now `arg`.
    set_params: Hook,
}

/// See the module.
pub struct Compiled {
    hooks: Interface,
}

impl Compiled {
    /// The policy whose [`Interface`] lies at `address`.
    pub fn at(py: Python<'_>, address: usize) -> PyResult<Self> {
        if address == 0 || !address.is_multiple_of(std::mem::align_of::<Interface>()) {
            return Err(replay_error(
                py,
                "the address of a compiled policy must be that of its struct, 8-byte aligned",
            ));
        }
        // SAFETY: the caller vouches for the address (it comes from `tracekit.CompiledPolicy`, which keeps the struct alive, or from the
        // symbol of a shared object). Only the first two words are read before version and size are known to fit.
        let (version, size) = unsafe {
            let words = address as *const u64;
            (*words, *words.add(1))
        };
        if version != VERSION {
            return Err(replay_error(
                py,
                &format!("the compiled policy has version {version} of the policy interface, this tracekit has version {VERSION}; build it against this one"),
            ));
        }
        let expected = std::mem::size_of::<Interface>() as u64;
        if size != expected {
            return Err(replay_error(
                py,
                &format!("the compiled policy's struct has {size} bytes; version {VERSION} of the policy interface has {expected}"),
            ));
        }
        // SAFETY: version and size say that a whole `Interface` lies there.
        let hooks = unsafe { *(address as *const Interface) };
        for (name, there) in [
            ("enqueue", hooks.enqueue.is_some()),
            ("dequeue", hooks.dequeue.is_some()),
            ("dispatch", hooks.dispatch.is_some()),
        ] {
            if !there {
                return Err(replay_error(
                    py,
                    &format!("the compiled policy has no hook `{name}`, which every policy needs"),
                ));
            }
        }
        Ok(Compiled { hooks })
    }

    fn call(&self, k: &Kernel, hook: Hook, cpu: i64, task: i64, arg: i64) -> Option<i64> {
        // SAFETY: the function pointer was filled in by the policy's author for this signature, and `state` is theirs.
        hook.map(|f| unsafe { f(self.hooks.state, k.now(), cpu, task, arg) })
    }
}

impl Policy for Compiled {
    fn init(&mut self, k: &mut Kernel) {
        self.call(k, self.hooks.init, k.nr_cpus() as i64, k.nr_tasks() as i64, k.tick_ns());
    }

    fn init_task(&mut self, k: &mut Kernel, t: TaskId, _birth: Option<Birth>) {
        self.call(k, self.hooks.init_task, -1, i64::from(t.0), i64::from(k.task(t).attrs.nice));
    }

    fn select_cpu(&mut self, k: &mut Kernel, t: TaskId, _why: Select) -> Cpu {
        let last = k.task(t).cpu as i64;
        match self.call(k, self.hooks.select_cpu, last, i64::from(t.0), 0) {
            Some(cpu) if cpu >= 0 => cpu as Cpu,
            _ => k.idle_or_last(t),
        }
    }

    fn enqueue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Enqueue) {
        let why = match why {
            Enqueue::Initial => 0,
            Enqueue::New => 1,
            Enqueue::Wakeup(_) => 2,
            Enqueue::Preempted => 3,
            Enqueue::Yielded => 4,
            Enqueue::Moved => 5,
            Enqueue::Joined => 6,
        };
        self.call(k, self.hooks.enqueue, cpu as i64, i64::from(t.0), why);
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, _why: Enqueue) {
        if self.call(k, self.hooks.wakeup_preempt, cpu as i64, i64::from(t.0), i64::from(curr.0)) == Some(1) {
            k.resched(cpu);
        }
    }

    fn dequeue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.call(k, self.hooks.dequeue, cpu as i64, i64::from(t.0), 0);
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        match self.call(k, self.hooks.dispatch, cpu as i64, -1, 0) {
            Some(-1) | None => None,
            Some(t) if (0..k.nr_tasks() as i64).contains(&t) => Some(TaskId(t as u32)),
            Some(t) => {
                k.fail(format!(
                    "hook `dispatch` of the compiled policy returned {t}: expected a task from 0 to {}, or -1",
                    k.nr_tasks() - 1
                ));
                None
            }
        }
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, switched: bool) {
        if let Some(ns) = self.call(k, self.hooks.running, cpu as i64, i64::from(t.0), i64::from(switched)) {
            if ns > 0 {
                k.set_slice(cpu, ns);
            }
        }
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {
        let why = match why {
            Stop::Preempted => 0,
            Stop::Yielded => 1,
            Stop::Slept => 2,
            Stop::Exited => 3,
            Stop::Left => 4,
        };
        self.call(k, self.hooks.stopping, cpu as i64, i64::from(t.0), why);
    }

    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        if self.call(k, self.hooks.tick, cpu as i64, i64::from(t.0), 0) == Some(1) {
            k.resched(cpu);
        }
    }

    fn expired(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        if self.call(k, self.hooks.expired, cpu as i64, i64::from(t.0), 0).unwrap_or(1) == 1 {
            k.resched(cpu);
        }
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, _old: &Attrs) {
        self.call(k, self.hooks.set_params, -1, i64::from(t.0), i64::from(k.task(t).attrs.nice));
    }
}
