//! Policies that are not in the registry: Python objects, and compiled code behind a C interface.

use std::cell::RefCell;
use std::rc::Rc;

mod compiled;
mod object;

pub use object::Machine;

use pyo3::prelude::*;
use tracekit_replay::policy::Policy;

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

/// The policy that a Python object stands for: a [`compiled`] one where it has an address, else one whose methods are the hooks.
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
