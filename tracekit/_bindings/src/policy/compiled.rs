//! A policy in compiled code, behind a versioned struct of function pointers.
//!
//! Every hook has one signature, so that numba's `cfunc` and any C compiler can make it: `int64
//! hook(void *state, int64 now_ns, int64 cpu, int64 task, int64 arg)`. The hooks, what `arg` is and
//! what the result means stand in the table [`tracekit_replay::policy_hooks`]. A null pointer is a
//! hook that the policy does not have. What a hook may ask of the machine is a second struct,
//! [`Calls`], whose address is in the field `machine` of the first while a hook runs.

use std::ffi::c_void;

use pyo3::prelude::*;
use tracekit_replay::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Select, Stop, HOOKS, NEEDED_HOOKS};
use tracekit_replay::program::Fork;
use tracekit_replay::task::{Attrs, Cpu, TaskId};

use super::machine_calls::Calls;
use super::{dequeue_reason, enqueue_reason, select_reason, stop_reason};
use crate::errors::replay_error;

/// Version of [`Interface`] and [`Calls`]; tracekit refuses others.
pub const VERSION: u64 = 2;

type Hook = Option<unsafe extern "C" fn(state: *mut c_void, now_ns: i64, cpu: i64, task: i64, arg: i64) -> i64>;

macro_rules! interface {
    ($($name:ident, $takes:literal, $gives:literal, $doc:literal;)*) => {
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
            /// Set while a hook runs.
            machine: *const Calls,
            $(#[doc = $doc] $name: Hook,)*
        }

        impl Interface {
            fn has(&self, hook: &str) -> bool {
                match hook {
                    $(stringify!($name) => self.$name.is_some(),)*
                    _ => false,
                }
            }
        }
    };
}
tracekit_replay::policy_hooks!(interface);

/// See the module.
pub struct Compiled {
    hooks: Interface,
    /// Where the policy's own struct lies.
    own: *mut Interface,
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
        // SAFETY: the caller vouches for the address (it comes from `tracekit.CompiledPolicy`,
        // which keeps the struct alive, or from the symbol of a shared object). Only the first two
        // words are read before version and size are known to fit.
        let (version, size) = unsafe {
            let words = address as *const u64;
            (*words, *words.add(1))
        };
        if version != VERSION {
            return Err(replay_error(
                py,
                &format!(
                    "the compiled policy has version {version} of the policy interface, this \
                    tracekit has version {VERSION}; build it against this one"
                ),
            ));
        }
        let expected = std::mem::size_of::<Interface>() as u64;
        if size != expected {
            return Err(replay_error(
                py,
                &format!(
                    "the compiled policy's struct has {size} bytes; version {VERSION} of the \
                    policy interface has {expected}"
                ),
            ));
        }
        let own = address as *mut Interface;
        // SAFETY: version and size say that a whole `Interface` lies there.
        let hooks = unsafe { *own };
        for name in NEEDED_HOOKS {
            if !hooks.has(name) {
                return Err(replay_error(
                    py,
                    &format!("the compiled policy has no hook `{name}`, which every policy needs"),
                ));
            }
        }
        Ok(Compiled { hooks, own })
    }

    fn call(&self, k: &mut Kernel, hook: Hook, cpu: i64, task: i64, arg: i64) -> Option<i64> {
        let hook = hook?;
        let now = k.now();
        let calls = Calls::of(k);
        // SAFETY: `own` is the policy's struct, which outlives the run (see `at`); `calls` lives on
        // this stack for the time of the hook, and what was there before, of a run around this one,
        // is put back. The function pointer was filled in by the policy's author for this
        // signature, and `state` is theirs.
        unsafe {
            let before = std::ptr::replace(&raw mut (*self.own).machine, &raw const calls);
            let result = hook(self.hooks.state, now, cpu, task, arg);
            (*self.own).machine = before;
            Some(result)
        }
    }

    fn about(&self, k: &mut Kernel, hook: Hook, cpu: Cpu, t: TaskId, arg: i64) -> Option<i64> {
        self.call(k, hook, cpu as i64, i64::from(t.0), arg)
    }

    fn asks(&self, k: &mut Kernel, hook: Hook, cpu: Cpu, t: TaskId, arg: i64, without: i64) {
        if self.about(k, hook, cpu, t, arg).unwrap_or(without) == 1 {
            k.resched(cpu);
        }
    }
}

impl Policy for Compiled {
    fn init(&mut self, k: &mut Kernel) {
        let (cpus, tasks, tick) = (k.nr_cpus() as i64, k.nr_tasks() as i64, k.tick_ns());
        self.call(k, self.hooks.init, cpus, tasks, tick);
    }

    fn init_task(&mut self, k: &mut Kernel, t: TaskId, birth: Option<Birth>) {
        let parent = birth.map_or(-1, |b| i64::from(b.parent.0));
        self.call(k, self.hooks.init_task, -1, i64::from(t.0), parent);
    }

    fn fork_return(&mut self, k: &mut Kernel, parent: TaskId, child: TaskId, _how: Fork) {
        self.call(k, self.hooks.fork_return, -1, i64::from(parent.0), i64::from(child.0));
    }

    fn exec(&mut self, k: &mut Kernel, t: TaskId) {
        self.call(k, self.hooks.exec, -1, i64::from(t.0), 0);
    }

    fn exiting(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.about(k, self.hooks.exiting, cpu, t, 0);
    }

    fn exit_task(&mut self, k: &mut Kernel, t: TaskId) {
        self.call(k, self.hooks.exit_task, -1, i64::from(t.0), 0);
    }

    fn enable(&mut self, k: &mut Kernel, t: TaskId) {
        self.call(k, self.hooks.enable, -1, i64::from(t.0), 0);
    }

    fn disable(&mut self, k: &mut Kernel, t: TaskId) {
        self.call(k, self.hooks.disable, -1, i64::from(t.0), 0);
    }

    fn select_cpu(&mut self, k: &mut Kernel, t: TaskId, why: Select) -> Cpu {
        let last = k.task(t).cpu;
        match self.about(k, self.hooks.select_cpu, last, t, select_reason(why).0) {
            Some(cpu) if cpu >= 0 => cpu as Cpu,
            _ => k.idle_or_last(t),
        }
    }

    fn runnable(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.about(k, self.hooks.runnable, cpu, t, 0);
    }

    fn enqueue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Enqueue) {
        self.about(k, self.hooks.enqueue, cpu, t, enqueue_reason(why).0);
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, _why: Enqueue) {
        self.asks(k, self.hooks.wakeup_preempt, cpu, t, i64::from(curr.0), 0);
    }

    fn dequeue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Dequeue) {
        self.about(k, self.hooks.dequeue, cpu, t, dequeue_reason(why).0);
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
        match self.about(k, self.hooks.running, cpu, t, i64::from(switched)) {
            None | Some(0) => {}
            Some(ns) => k.set_slice(cpu, ns),
        }
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {
        self.about(k, self.hooks.stopping, cpu, t, stop_reason(why).0);
    }

    fn quiescent(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {
        self.about(k, self.hooks.quiescent, cpu, t, stop_reason(why).0);
    }

    fn wants_ticks(&self) -> bool {
        self.hooks.tick.is_some()
    }

    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.asks(k, self.hooks.tick, cpu, t, 0, 0);
    }

    fn slice_expired(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.asks(k, self.hooks.slice_expired, cpu, t, 0, 1);
    }

    fn timer(&mut self, k: &mut Kernel, token: u64) {
        self.call(k, self.hooks.timer, -1, -1, token as i64);
    }

    fn update_1hz(&mut self, k: &mut Kernel) {
        self.call(k, self.hooks.update_1hz, -1, -1, 0);
    }

    fn yield_(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.about(k, self.hooks.yield_, cpu, t, 0);
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, _old: &Attrs) {
        let nice = i64::from(k.task(t).attrs.nice);
        self.call(k, self.hooks.set_params, -1, i64::from(t.0), nice);
    }
}

/// The hooks as Python lists them: name, what the compiled form takes and gives, when it is called.
#[pyfunction]
pub fn hooks() -> Vec<(&'static str, &'static str, &'static str, &'static str)> {
    HOOKS.iter().map(|h| (h.name, h.takes, h.gives, h.doc)).collect()
}
