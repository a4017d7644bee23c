//! Policies that are not in the registry: Python objects, and compiled code behind a C interface.

mod compiled;
mod object;

pub use object::Machine;

use pyo3::prelude::*;
use tracekit_replay::policy::Policy;

/// The policy that a Python object stands for: a [`compiled`] one where it has an address, else one whose methods are the hooks.
///
/// # Errors
/// `ReplayError` for an interface of another version, an object without the needed hooks.
pub fn from_object(py: Python<'_>, policy: &Bound<'_, PyAny>) -> PyResult<(Box<dyn Policy>, String)> {
    let name = policy.getattr("name").and_then(|n| n.extract::<String>());
    let name = name.or_else(|_| policy.get_type().name().map(|n| n.to_string()))?;
    let made: Box<dyn Policy> = match policy.getattr_opt("address")? {
        Some(address) => Box::new(compiled::Compiled::at(py, address.extract()?)?),
        None => Box::new(object::Object::new(policy, &name)?),
    };
    Ok((made, name))
}
