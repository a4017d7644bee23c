//! Runs of workloads under policies.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::derive::tables_with_events;
use crate::errors::{detached, replay_error};
use crate::policy;

/// Metadata and tables by name.
type Tables<'py> = (BTreeMap<String, String>, Bound<'py, PyDict>);

/// Runs a workload that is written as text; `policy` replaces the one in the text. Gives metadata and tables.
#[pyfunction]
#[pyo3(signature = (text, policy=None))]
pub fn simulate<'py>(py: Python<'py>, text: &str, policy: Option<&str>) -> PyResult<Tables<'py>> {
    let run = detached(py, || tracekit_replay::workload::run_text(text, policy))?;
    let out = run.map_err(|e| replay_error(py, &e))?;
    Ok((out.meta.0.clone(), tables_with_events(py, out)?))
}

/// The same under a policy that is an object: see `tracekit.policy`. Holds the GIL, since its hooks may be Python.
#[pyfunction]
pub fn simulate_with<'py>(py: Python<'py>, text: &str, policy: &Bound<'py, PyAny>) -> PyResult<Tables<'py>> {
    let (made, name) = policy::from_object(py, policy)?;
    let stack = tracekit_replay::policies::below_rt(made).map_err(|e| replay_error(py, &e.0))?;
    let run = tracekit_replay::workload::run_text_under(text, stack, &name);
    let out = run.map_err(|e| replay_error(py, &e))?;
    Ok((out.meta.0.clone(), tables_with_events(py, out)?))
}
