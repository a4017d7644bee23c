//! A policy written as a Python class: its methods are the hooks.

use std::cell::Cell;
use std::ptr::NonNull;

use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tracekit_replay::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Select, Stop};
use tracekit_replay::task::{Attrs, Cpu, TaskId};

use super::Raised;
use crate::errors::replay_error;

/// The machine as hooks see it: valid only while a hook runs.
#[pyclass(unsendable, name = "Machine", module = "tracekit._core")]
pub struct Machine {
    kernel: Cell<Option<NonNull<Kernel>>>,
}

impl Machine {
    fn with<T>(&self, f: impl FnOnce(&mut Kernel) -> PyResult<T>) -> PyResult<T> {
        let Some(mut kernel) = self.kernel.get() else {
            return Err(PyRuntimeError::new_err("the machine can be used only while a hook of the policy runs"));
        };
        // SAFETY: the pointer is set from a `&mut Kernel` for the time of one hook call, on the thread that runs the hook (the
        // class is unsendable), and taken back before that borrow ends. Methods of this class do not call Python code while
        // they hold the reference, so there is never a second one.
        f(unsafe { kernel.as_mut() })
    }

    fn task(k: &Kernel, task: u32) -> PyResult<TaskId> {
        if (task as usize) < k.nr_tasks() {
            return Ok(TaskId(task));
        }
        Err(PyRuntimeError::new_err(format!("no task {task}; there are {}", k.nr_tasks())))
    }

    fn cpu(k: &Kernel, cpu: usize) -> PyResult<Cpu> {
        if cpu < k.nr_cpus() {
            return Ok(cpu);
        }
        Err(PyRuntimeError::new_err(format!("no CPU {cpu}; there are {}", k.nr_cpus())))
    }
}

#[pymethods]
impl Machine {
    /// Time of the simulation, ns.
    #[getter]
    fn now_ns(&self) -> PyResult<i64> {
        self.with(|k| Ok(k.now()))
    }

    /// Length of a clock tick, ns.
    #[getter]
    fn tick_ns(&self) -> PyResult<i64> {
        self.with(|k| Ok(k.tick_ns()))
    }

    /// Number of CPUs.
    #[getter]
    fn nr_cpus(&self) -> PyResult<usize> {
        self.with(|k| Ok(k.nr_cpus()))
    }

    /// The clock by which `cpu` keeps accounts, ns.
    fn clock_ns(&self, cpu: usize) -> PyResult<i64> {
        self.with(|k| Ok(k.clock(Self::cpu(k, cpu)?)))
    }

    /// The task that runs on `cpu`, or `None`.
    fn curr(&self, cpu: usize) -> PyResult<Option<u32>> {
        self.with(|k| Ok(k.curr(Self::cpu(k, cpu)?).map(|t| t.0)))
    }

    /// Runnable and running tasks on `cpu`.
    fn nr_runnable(&self, cpu: usize) -> PyResult<usize> {
        self.with(|k| Ok(k.nr_runnable(Self::cpu(k, cpu)?)))
    }

    /// Does `cpu` run nothing, and has nothing to run?
    fn is_idle(&self, cpu: usize) -> PyResult<bool> {
        self.with(|k| Ok(k.is_idle(Self::cpu(k, cpu)?)))
    }

    /// May `task` use `cpu`?
    fn allowed(&self, task: u32, cpu: usize) -> PyResult<bool> {
        self.with(|k| Ok(k.allowed(Self::task(k, task)?, Self::cpu(k, cpu)?)))
    }

    /// The task's last CPU if idle, else another idle one, else the last.
    fn idle_or_last(&self, task: u32) -> PyResult<usize> {
        self.with(|k| Ok(k.idle_or_last(Self::task(k, task)?)))
    }

    /// Nice value of `task`.
    fn nice(&self, task: u32) -> PyResult<i32> {
        self.with(|k| Ok(k.task(Self::task(k, task)?).attrs.nice))
    }

    /// Fixed or base priority that `task` asks for, or `None`.
    fn prio(&self, task: u32) -> PyResult<Option<i32>> {
        self.with(|k| Ok(k.task(Self::task(k, task)?).attrs.prio))
    }

    /// The task that made `task`, or `None`.
    fn parent(&self, task: u32) -> PyResult<Option<u32>> {
        self.with(|k| Ok(k.task(Self::task(k, task)?).parent.map(|p| p.0)))
    }

    /// CPU time of `task` so far, ns.
    fn ran_ns(&self, task: u32) -> PyResult<i64> {
        self.with(|k| Ok(k.ran(Self::task(k, task)?)))
    }

    /// Ask for a reschedule of `cpu`.
    fn resched(&self, cpu: usize) -> PyResult<()> {
        self.with(|k| {
            let cpu = Self::cpu(k, cpu)?;
            k.resched(cpu);
            Ok(())
        })
    }

    /// Let `expired` be called in `ns` if the task that runs on `cpu` still runs then; in `running`.
    fn set_slice(&self, cpu: usize, ns: i64) -> PyResult<()> {
        self.with(|k| {
            let cpu = Self::cpu(k, cpu)?;
            k.set_slice(cpu, ns.max(1));
            Ok(())
        })
    }

    /// Let `timer(token)` be called at `at_ns`.
    fn timer_at(&self, at_ns: i64, token: u64) -> PyResult<()> {
        self.with(|k| {
            k.timer_at(at_ns, token);
            Ok(())
        })
    }
}

macro_rules! hooks {
    ($($hook:ident),*) => {
        /// The hooks that the object has, looked up once.
        #[derive(Default)]
        struct Hooks { $($hook: Option<Py<PyAny>>,)* }

        impl Hooks {
            fn of(policy: &Bound<'_, PyAny>) -> PyResult<Self> {
                let mut hooks = Hooks::default();
                $(hooks.$hook = policy.getattr_opt(stringify!($hook))?.map(Bound::unbind);)*
                Ok(hooks)
            }
        }
    };
}

hooks!(
    init,
    init_task,
    exit_task,
    select_cpu,
    enqueue,
    wakeup_preempt,
    dequeue,
    dispatch,
    running,
    stopping,
    quiescent,
    tick,
    expired,
    timer,
    second,
    yield_,
    set_params
);

/// See the module.
pub struct Object {
    name: String,
    policy: Py<PyAny>,
    machine: Py<Machine>,
    /// The machine of the run around this one, where one policy object is used by both.
    outer: Option<Py<PyAny>>,
    hooks: Hooks,
    raised: Raised,
}

impl Drop for Object {
    /// Gives the policy object back to the run around this one.
    fn drop(&mut self) {
        if let Some(outer) = self.outer.take() {
            // An object that takes no attribute any more has lost its machine by its own doing.
            Python::attach(|py| drop(self.policy.setattr(py, "machine", outer)));
        }
    }
}

impl Object {
    /// The policy of `policy`, which must have `enqueue`, `dequeue` and `dispatch`.
    pub fn new(policy: &Bound<'_, PyAny>, name: &str, raised: Raised) -> PyResult<Self> {
        let py = policy.py();
        let hooks = Hooks::of(policy)?;
        for (hook, there) in [
            ("enqueue", hooks.enqueue.is_some()),
            ("dequeue", hooks.dequeue.is_some()),
            ("dispatch", hooks.dispatch.is_some()),
        ] {
            if !there {
                return Err(replay_error(py, &format!("policy {name} has no hook `{hook}`, which every policy needs")));
            }
        }
        let machine = Py::new(py, Machine { kernel: Cell::new(None) })?;
        let outer = policy.getattr_opt("machine")?.map(Bound::unbind);
        policy.setattr("machine", machine.clone_ref(py))?;
        Ok(Object { name: name.to_owned(), policy: policy.clone().unbind(), machine, outer, hooks, raised })
    }

    /// Calls a hook; an exception stops the replay with its text.
    fn call<A>(&self, k: &mut Kernel, hook: &str, method: Option<&Py<PyAny>>, args: A) -> Option<Py<PyAny>>
    where
        A: for<'py> PyCallArgs<'py>,
    {
        let method = method?;
        Python::attach(|py| {
            let machine = self.machine.borrow(py);
            machine.kernel.set(Some(NonNull::from(&mut *k)));
            let done = method.call1(py, args);
            machine.kernel.set(None);
            match done {
                Ok(value) => Some(value),
                Err(error) => {
                    k.fail(format!("hook `{hook}` of policy {} raised {error}", self.name));
                    self.raised.set(error);
                    None
                }
            }
        })
    }

    fn bad(&self, k: &mut Kernel, hook: &str, wanted: &str, found: &Py<PyAny>) {
        let found = Python::attach(|py| {
            found.bind(py).repr().map_or_else(|_| "something without a repr".into(), |r| r.to_string())
        });
        k.fail(format!("hook `{hook}` of policy {} returned {found}: expected {wanted}", self.name));
    }
}

const fn enqueue_name(why: Enqueue) -> &'static str {
    match why {
        Enqueue::Initial => "initial",
        Enqueue::New => "new",
        Enqueue::Wakeup(_) => "wakeup",
        Enqueue::Preempted => "preempted",
        Enqueue::Yielded => "yielded",
        Enqueue::Moved => "moved",
        Enqueue::Joined => "joined",
    }
}

const fn stop_name(why: Stop) -> &'static str {
    match why {
        Stop::Preempted => "preempted",
        Stop::Yielded => "yielded",
        Stop::Slept => "slept",
        Stop::Exited => "exited",
        Stop::Left => "left",
    }
}

impl Policy for Object {
    fn init(&mut self, k: &mut Kernel) {
        self.call(k, "init", self.hooks.init.as_ref(), ());
    }

    fn init_task(&mut self, k: &mut Kernel, t: TaskId, birth: Option<Birth>) {
        self.call(k, "init_task", self.hooks.init_task.as_ref(), (t.0, birth.map(|b| b.parent.0)));
    }

    fn exit_task(&mut self, k: &mut Kernel, t: TaskId) {
        self.call(k, "exit_task", self.hooks.exit_task.as_ref(), (t.0,));
    }

    fn select_cpu(&mut self, k: &mut Kernel, t: TaskId, why: Select) -> Cpu {
        let why = match why {
            Select::Wakeup(_) => "wakeup",
            Select::Fork => "new",
            Select::Exec => "exec",
        };
        let Some(value) = self.call(k, "select_cpu", self.hooks.select_cpu.as_ref(), (t.0, why)) else {
            return k.idle_or_last(t);
        };
        match Python::attach(|py| value.extract::<usize>(py)) {
            Ok(cpu) => cpu,
            Err(_) => {
                self.bad(k, "select_cpu", "the number of a CPU", &value);
                k.idle_or_last(t)
            }
        }
    }

    fn enqueue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Enqueue) {
        self.call(k, "enqueue", self.hooks.enqueue.as_ref(), (t.0, cpu, enqueue_name(why)));
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, why: Enqueue) {
        let args = (t.0, cpu, curr.0, enqueue_name(why));
        self.call(k, "wakeup_preempt", self.hooks.wakeup_preempt.as_ref(), args);
    }

    fn dequeue(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, _why: Dequeue) {
        self.call(k, "dequeue", self.hooks.dequeue.as_ref(), (t.0, cpu));
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: Cpu) -> Option<TaskId> {
        let value = self.call(k, "dispatch", self.hooks.dispatch.as_ref(), (cpu,))?;
        match Python::attach(|py| value.extract::<Option<u32>>(py)) {
            Ok(task) => task.map(TaskId),
            Err(_) => {
                self.bad(k, "dispatch", "the number of a task, or None", &value);
                None
            }
        }
    }

    fn running(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, switched: bool) {
        self.call(k, "running", self.hooks.running.as_ref(), (t.0, cpu, switched));
    }

    fn stopping(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {
        self.call(k, "stopping", self.hooks.stopping.as_ref(), (t.0, cpu, stop_name(why)));
    }

    fn quiescent(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {
        self.call(k, "quiescent", self.hooks.quiescent.as_ref(), (t.0, cpu, stop_name(why)));
    }

    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.call(k, "tick", self.hooks.tick.as_ref(), (t.0, cpu));
    }

    fn expired(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        if self.hooks.expired.is_none() {
            return k.resched(cpu);
        }
        self.call(k, "expired", self.hooks.expired.as_ref(), (t.0, cpu));
    }

    fn timer(&mut self, k: &mut Kernel, token: u64) {
        self.call(k, "timer", self.hooks.timer.as_ref(), (token,));
    }

    fn second(&mut self, k: &mut Kernel) {
        self.call(k, "second", self.hooks.second.as_ref(), ());
    }

    fn yield_(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.call(k, "yield_", self.hooks.yield_.as_ref(), (t.0, cpu));
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, _old: &Attrs) {
        self.call(k, "set_params", self.hooks.set_params.as_ref(), (t.0,));
    }
}
