//! A policy written as a Python class: its methods are the hooks.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};

use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tracekit_replay::policy::{Birth, Dequeue, Enqueue, Kernel, Policy, Select, Stop, HOOKS, NEEDED_HOOKS};
use tracekit_replay::program::Fork;
use tracekit_replay::task::{Attrs, Cpu, TaskId};

use super::{enqueue_reason, select_reason, stop_reason, Raised};
use crate::errors::replay_error;

/// The machine as hooks see it: valid only while a hook runs, on the thread that runs it. It may be
/// dropped on any: Python's collector works on whatever thread comes along.
#[pyclass(frozen, name = "Machine", module = "tracekit._core")]
pub struct Machine {
    kernel: AtomicPtr<Kernel>,
    /// The thread that runs the hook, as [`here`] says it.
    thread: AtomicUsize,
}

/// A number that no two threads have at the same time.
fn here() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| ptr::from_ref(mark) as usize)
}

impl Machine {
    fn new() -> Self {
        Machine { kernel: AtomicPtr::new(ptr::null_mut()), thread: AtomicUsize::new(0) }
    }

    /// Lets this thread use `k` until [`Self::take_back`].
    fn lend(&self, k: &mut Kernel) {
        self.kernel.store(ptr::from_mut(k), SeqCst);
        self.thread.store(here(), SeqCst);
    }

    fn take_back(&self) {
        self.thread.store(0, SeqCst);
        self.kernel.store(ptr::null_mut(), SeqCst);
    }

    fn with<T>(&self, f: impl FnOnce(&mut Kernel) -> PyResult<T>) -> PyResult<T> {
        if self.thread.load(SeqCst) != here() {
            return Err(PyRuntimeError::new_err("the machine can be used only while a hook of the policy runs"));
        };
        // SAFETY: the pointer is set from a `&mut Kernel` for the time of one hook call, together
        // with the thread that runs the hook, and taken back before that borrow ends; this is that
        // thread. Methods of this class do not call Python code while they hold the reference, so
        // there is never a second one.
        f(unsafe { &mut *self.kernel.load(SeqCst) })
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

    /// The CPU on which `task` runs, waits, or last ran.
    fn cpu_of(&self, task: u32) -> PyResult<usize> {
        self.with(|k| Ok(k.task(Self::task(k, task)?).cpu))
    }

    /// Say that `task`, which is queued, is now queued on `cpu`.
    fn migrate(&self, task: u32, cpu: usize) -> PyResult<()> {
        self.with(|k| {
            let (task, cpu) = (Self::task(k, task)?, Self::cpu(k, cpu)?);
            k.migrate(task, cpu);
            Ok(())
        })
    }

    /// Ask for a reschedule of `cpu`.
    fn resched(&self, cpu: usize) -> PyResult<()> {
        self.with(|k| {
            let cpu = Self::cpu(k, cpu)?;
            k.resched(cpu);
            Ok(())
        })
    }

    /// Let `slice_expired` be called in `ns` if the task that runs on `cpu` still runs then; in `running`.
    fn set_slice(&self, cpu: usize, ns: i64) -> PyResult<()> {
        self.with(|k| {
            let cpu = Self::cpu(k, cpu)?;
            k.set_slice(cpu, ns);
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
    ($($hook:ident, $takes:literal, $gives:literal, $doc:literal;)*) => {
        /// The hooks that the object has, looked up once.
        #[derive(Default)]
        struct Hooks { $($hook: Option<Py<PyAny>>,)* }

        impl Hooks {
            fn of(policy: &Bound<'_, PyAny>) -> PyResult<Self> {
                let mut hooks = Hooks::default();
                $(hooks.$hook = policy.getattr_opt(stringify!($hook))?.map(Bound::unbind);)*
                Ok(hooks)
            }

            fn has(&self, hook: &str) -> bool {
                match hook {
                    $(stringify!($hook) => self.$hook.is_some(),)*
                    _ => false,
                }
            }
        }
    };
}
tracekit_replay::policy_hooks!(hooks);

/// Names that other systems or earlier versions give to hooks.
const OTHER_NAMES: [(&str, &str); 4] =
    [("expired", "slice_expired"), ("second", "update_1hz"), ("pick_next", "dispatch"), ("yield_task", "yield_")];

/// Edits that make one word of another: insertions, deletions, changes of a letter (Levenshtein 1966).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

impl Hooks {
    /// A method that is no hook but nearly has the name of one that the policy does not have: the
    /// method, and the hook.
    fn misspelt(&self, policy: &Bound<'_, PyAny>) -> PyResult<Option<(String, &'static str)>> {
        for name in policy.get_type().dir()? {
            let name: String = name.extract()?;
            if name.starts_with('_') || HOOKS.iter().any(|h| h.name == name) {
                continue;
            }
            let near = HOOKS.iter().map(|h| h.name).filter(|h| distance(&name, h) <= 2.min(h.len() / 3));
            let other = OTHER_NAMES.iter().filter(|o| o.0 == name).map(|o| o.1);
            let meant = near.chain(other).find(|h| !self.has(h));
            if let (Some(hook), true) = (meant, policy.getattr(&*name).is_ok_and(|m| m.is_callable())) {
                return Ok(Some((name, hook)));
            }
        }
        Ok(None)
    }
}

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
        if let Some((name_of, hook)) = hooks.misspelt(policy)? {
            let help = "a method that is none of tracekit's begins with an underscore";
            let message = format!("policy {name} has no hook `{name_of}`; did you mean `{hook}`? ({help})");
            return Err(replay_error(py, &message));
        }
        for hook in NEEDED_HOOKS {
            if !hooks.has(hook) {
                return Err(replay_error(py, &format!("policy {name} has no hook `{hook}`, which every policy needs")));
            }
        }
        let machine = Py::new(py, Machine::new())?;
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
            machine.lend(k);
            let done = method.call1(py, args);
            machine.take_back();
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

impl Policy for Object {
    fn init(&mut self, k: &mut Kernel) {
        self.call(k, "init", self.hooks.init.as_ref(), ());
    }

    fn init_task(&mut self, k: &mut Kernel, t: TaskId, birth: Option<Birth>) {
        self.call(k, "init_task", self.hooks.init_task.as_ref(), (t.0, birth.map(|b| b.parent.0)));
    }

    fn fork_return(&mut self, k: &mut Kernel, parent: TaskId, child: TaskId, _how: Fork) {
        self.call(k, "fork_return", self.hooks.fork_return.as_ref(), (parent.0, child.0));
    }

    fn exec(&mut self, k: &mut Kernel, t: TaskId) {
        self.call(k, "exec", self.hooks.exec.as_ref(), (t.0,));
    }

    fn exiting(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.call(k, "exiting", self.hooks.exiting.as_ref(), (t.0, cpu));
    }

    fn enable(&mut self, k: &mut Kernel, t: TaskId) {
        self.call(k, "enable", self.hooks.enable.as_ref(), (t.0,));
    }

    fn disable(&mut self, k: &mut Kernel, t: TaskId) {
        self.call(k, "disable", self.hooks.disable.as_ref(), (t.0,));
    }

    fn runnable(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.call(k, "runnable", self.hooks.runnable.as_ref(), (t.0, cpu));
    }

    fn wants_ticks(&self) -> bool {
        self.hooks.tick.is_some()
    }

    fn exit_task(&mut self, k: &mut Kernel, t: TaskId) {
        self.call(k, "exit_task", self.hooks.exit_task.as_ref(), (t.0,));
    }

    fn select_cpu(&mut self, k: &mut Kernel, t: TaskId, why: Select) -> Cpu {
        let args = (t.0, select_reason(why).1);
        let Some(value) = self.call(k, "select_cpu", self.hooks.select_cpu.as_ref(), args) else {
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
        self.call(k, "enqueue", self.hooks.enqueue.as_ref(), (t.0, cpu, enqueue_reason(why).1));
    }

    fn wakeup_preempt(&mut self, k: &mut Kernel, cpu: Cpu, curr: TaskId, t: TaskId, why: Enqueue) {
        let args = (t.0, cpu, curr.0, enqueue_reason(why).1);
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
        self.call(k, "stopping", self.hooks.stopping.as_ref(), (t.0, cpu, stop_reason(why).1));
    }

    fn quiescent(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId, why: Stop) {
        self.call(k, "quiescent", self.hooks.quiescent.as_ref(), (t.0, cpu, stop_reason(why).1));
    }

    fn tick(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.call(k, "tick", self.hooks.tick.as_ref(), (t.0, cpu));
    }

    fn slice_expired(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        if self.hooks.slice_expired.is_none() {
            return k.resched(cpu);
        }
        self.call(k, "slice_expired", self.hooks.slice_expired.as_ref(), (t.0, cpu));
    }

    fn timer(&mut self, k: &mut Kernel, token: u64) {
        self.call(k, "timer", self.hooks.timer.as_ref(), (token,));
    }

    fn update_1hz(&mut self, k: &mut Kernel) {
        self.call(k, "update_1hz", self.hooks.update_1hz.as_ref(), ());
    }

    fn yield_(&mut self, k: &mut Kernel, cpu: Cpu, t: TaskId) {
        self.call(k, "yield_", self.hooks.yield_.as_ref(), (t.0, cpu));
    }

    fn set_params(&mut self, k: &mut Kernel, t: TaskId, _old: &Attrs) {
        self.call(k, "set_params", self.hooks.set_params.as_ref(), (t.0,));
    }
}
