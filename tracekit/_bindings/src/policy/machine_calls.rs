//! What hooks in compiled code may ask of the machine and request from it.
//!
//! Every function has one signature, `int64 call(const struct *machine, int64 a, int64 b)`. A CPU
//! or task that does not exist ends the replay with an error that names the call; the call gives
//! -1.

use std::ffi::c_void;

use pyo3::prelude::*;
use tracekit_replay::policy::Kernel;
use tracekit_replay::task::TaskId;

use super::compiled::VERSION;

type Call = extern "C" fn(machine: *const Calls, a: i64, b: i64) -> i64;

/// A row of the table below: name, what it takes, what it gives.
type Row = (&'static str, &'static str, &'static str);

macro_rules! calls {
    ($($name:ident($takes:literal) -> $gives:literal = $body:expr;)*) => {
        /// The struct, as C sees it. All fields are 8 bytes wide.
        #[repr(C)]
        pub struct Calls {
            version: u64,
            size: u64,
            kernel: *mut c_void,
            $($name: Call,)*
        }

        impl Calls {
            /// The calls of the machine `k`: valid while `k` is borrowed by the caller.
            pub fn of(k: &mut Kernel) -> Self {
                Calls {
                    version: VERSION,
                    size: std::mem::size_of::<Calls>() as u64,
                    kernel: std::ptr::from_mut(k).cast(),
                    $($name,)*
                }
            }
        }

        $(
            extern "C" fn $name(machine: *const Calls, a: i64, b: i64) -> i64 {
                let body: fn(&mut Kernel, i64, i64) -> Result<i64, String> = $body;
                // SAFETY: `machine` is the pointer that a hook found in its struct, valid while the
                // hook runs, and so is the `Kernel` in it: the engine lends it to `Compiled::call`
                // for the time of the hook and does not touch it meanwhile. No call runs foreign
                // code, so there is one reference at a time.
                let k = unsafe { &mut *(*machine).kernel.cast::<Kernel>() };
                body(k, a, b).unwrap_or_else(|what| {
                    k.fail(format!("a hook of the compiled policy called {}: {what}", stringify!($name)));
                    -1
                })
            }
        )*

        const TABLE: &[Row] = &[$((stringify!($name), $takes, $gives),)*];
    };
}

fn task(k: &Kernel, task: i64) -> Result<TaskId, String> {
    match u32::try_from(task) {
        Ok(t) if (t as usize) < k.nr_tasks() => Ok(TaskId(t)),
        _ => Err(format!("no task {task}; there are {}", k.nr_tasks())),
    }
}

fn cpu(k: &Kernel, cpu: i64) -> Result<usize, String> {
    usize::try_from(cpu)
        .ok()
        .filter(|c| *c < k.nr_cpus())
        .ok_or_else(|| format!("no CPU {cpu}; there are {}", k.nr_cpus()))
}

calls! {
    clock_ns("a = CPU") -> "the clock by which it keeps accounts" = |k, a, _| Ok(k.clock(cpu(k, a)?));
    tick_ns("") -> "length of a clock tick" = |k, _, _| Ok(k.tick_ns());
    nr_cpus("") -> "number of CPUs" = |k, _, _| Ok(k.nr_cpus() as i64);
    curr("a = CPU") -> "the task that runs on it, or -1" =
        |k, a, _| Ok(k.curr(cpu(k, a)?).map_or(-1, |t| i64::from(t.0)));
    nr_runnable("a = CPU") -> "runnable and running tasks on it" = |k, a, _| Ok(k.nr_runnable(cpu(k, a)?) as i64);
    is_idle("a = CPU") -> "1 when it runs nothing and has nothing to run" = |k, a, _| Ok(i64::from(k.is_idle(cpu(k, a)?)));
    allowed("a = task, b = CPU") -> "1 when the task may use it" =
        |k, a, b| Ok(i64::from(k.allowed(task(k, a)?, cpu(k, b)?)));
    idle_or_last("a = task") -> "its last CPU if idle, else another idle one, else the last" =
        |k, a, _| Ok(k.idle_or_last(task(k, a)?) as i64);
    cpu_of("a = task") -> "the CPU on which it runs, waits, or last ran" = |k, a, _| Ok(k.task(task(k, a)?).cpu as i64);
    nice("a = task") -> "its nice value" = |k, a, _| Ok(i64::from(k.task(task(k, a)?).attrs.nice));
    prio("a = task, b = what to give where it asks for none") -> "the fixed or base priority that it asks for" =
        |k, a, b| Ok(k.task(task(k, a)?).attrs.prio.map_or(b, i64::from));
    parent("a = task") -> "the task that made it, or -1" =
        |k, a, _| Ok(k.task(task(k, a)?).parent.map_or(-1, |t| i64::from(t.0)));
    ran_ns("a = task") -> "its CPU time so far" = |k, a, _| Ok(k.ran(task(k, a)?));
    resched("a = CPU") -> "0; asks for a reschedule of it" = |k, a, _| {
        let cpu = cpu(k, a)?;
        k.resched(cpu);
        Ok(0)
    };
    set_slice("a = CPU, b = ns") -> "0; slice_expired is called then if the task that runs on it \
        still does" = |k, a, b| {
        let cpu = cpu(k, a)?;
        k.set_slice(cpu, b);
        Ok(0)
    };
    timer_at("a = time in ns, b = token") -> "0; timer is called with the token at that time" = |k, a, b| {
        k.timer_at(a, b as u64);
        Ok(0)
    };
    migrate("a = task, b = CPU") -> "0; the task, which is queued, is now queued on that CPU" = |k, a, b| {
        let (t, to) = (task(k, a)?, cpu(k, b)?);
        k.migrate(t, to);
        Ok(0)
    };
}

/// The calls as Python lists them: name, what it takes, what it gives; in the order of the struct.
#[pyfunction]
pub fn calls() -> Vec<Row> {
    TABLE.to_vec()
}
