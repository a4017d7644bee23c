//! Policies that are not in the registry: Python objects, and compiled code behind a C interface.

use std::cell::RefCell;
use std::rc::Rc;

mod compiled;
mod machine_calls;
mod object;

pub use compiled::{hooks, VERSION};
pub use machine_calls::calls;
pub use object::Machine;

use pyo3::prelude::*;
use tracekit_replay::policy::{Dequeue, Enqueue, Policy, Select, Stop};

/// What a hook raised, or a signal while hooks ran: the first exception counts.
#[derive(Clone, Default)]
pub struct Raised(Rc<RefCell<Option<PyErr>>>);

impl Raised {
    /// Notes an exception.
    pub fn set(&self, error: PyErr) {
        self.0.borrow_mut().get_or_insert(error);
    }

    /// Takes the exception, if there was one.
    pub fn take(&self) -> Option<PyErr> {
        self.0.borrow_mut().take()
    }
}

/// The policy that a Python object stands for: a [`compiled`] one where it has an address, else one
/// whose methods are the hooks.
///
/// What its hooks raise goes to `raised`.
///
/// # Errors
/// `ReplayError` for an interface of another version, an object without the needed hooks.
pub fn from_object(py: Python<'_>, policy: &Bound<'_, PyAny>, raised: &Raised) -> PyResult<(Box<dyn Policy>, String)> {
    let name = policy.getattr("name").and_then(|n| n.extract::<String>());
    let name = name.or_else(|_| policy.get_type().name().map(|n| n.to_string()))?;
    let made: Box<dyn Policy> = match policy.getattr_opt("address")? {
        Some(address) => Box::new(compiled::Compiled::at(py, address.extract()?)?),
        None => Box::new(object::Object::new(policy, &name, raised.clone())?),
    };
    Ok((made, name))
}

/// Why a CPU is chosen: as compiled code gets it, and as Python does.
const fn select_reason(why: Select) -> (i64, &'static str) {
    match why {
        Select::Wakeup(_) => (0, "wakeup"),
        Select::Fork => (1, "fork"),
        Select::Exec => (2, "exec"),
    }
}

/// Why a task comes to a queue.
const fn enqueue_reason(why: Enqueue) -> (i64, &'static str) {
    match why {
        Enqueue::Initial => (0, "initial"),
        Enqueue::Fork => (1, "fork"),
        Enqueue::Wakeup(_) => (2, "wakeup"),
        Enqueue::Preempted => (3, "preempted"),
        Enqueue::Yielded => (4, "yielded"),
        Enqueue::Migrated => (5, "migrated"),
        Enqueue::SwitchedTo => (6, "switched_to"),
    }
}

/// Why a task is taken out of its queue.
const fn dequeue_reason(why: Dequeue) -> (i64, &'static str) {
    match why {
        Dequeue::Migrated => (0, "migrated"),
        Dequeue::SwitchedFrom => (1, "switched_from"),
    }
}

/// Why a task stops running.
const fn stop_reason(why: Stop) -> (i64, &'static str) {
    match why {
        Stop::Preempted => (0, "preempted"),
        Stop::Yielded => (1, "yielded"),
        Stop::Slept => (2, "slept"),
        Stop::Exited => (3, "exited"),
        Stop::SwitchedFrom => (4, "switched_from"),
    }
}
