//! Runs of workloads under policies.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::derive::tables_with_events;
use crate::errors::{detached, replay_error};

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
