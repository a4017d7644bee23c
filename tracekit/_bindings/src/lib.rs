//! `tracekit._core`: what Python sees of the Rust crates.
//!
//! Thin on purpose. It opens files (the only place that does), hands their bytes to the parsers,
//! and passes tables to and from Python through the Arrow C stream interface. What a trace *means*
//! is settled in the other crates; what is comfortable in Python is settled in the Python package.

use pyo3::prelude::*;

mod ahead;
mod derive;
mod digest;
mod encoder;
mod errors;
mod files;
mod gather;
mod mapping;
mod metrics;
mod parts;
mod policy;
mod reader;
mod reading;
mod registry;
mod run;
mod side;
mod signals;
mod stage;
mod statistics;
mod survey;
mod table;

/// The extension module.
#[pymodule]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::note_panics();
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add("MIN_N", tracekit_statistics::error::MIN_N)?;
    m.add("MIN_TAIL", tracekit_statistics::interval::MIN_TAIL)?;
    m.add("TOLERANCES", tracekit_replay::TOLERANCES)?;
    m.add_class::<encoder::Encoder>()?;
    m.add_class::<reader::Reader>()?;
    m.add_class::<reading::Reading>()?;
    m.add_class::<run::Programs>()?;
    m.add_class::<run::RunRecords>()?;
    m.add_class::<side::RunSide>()?;
    m.add_class::<statistics::StandardError>()?;
    m.add_class::<survey::Survey>()?;
    m.add_class::<table::Table>()?;
    m.add_class::<policy::Machine>()?;
    m.add_function(wrap_pyfunction!(digest::blake3, m)?)?;
    m.add_function(wrap_pyfunction!(derive::derive, m)?)?;
    m.add_function(wrap_pyfunction!(derive::some_tasks, m)?)?;
    m.add_function(wrap_pyfunction!(metrics::metrics, m)?)?;
    m.add_function(wrap_pyfunction!(reading::constants, m)?)?;
    m.add_function(wrap_pyfunction!(run::simulate, m)?)?;
    m.add_function(wrap_pyfunction!(run::simulate_with, m)?)?;
    m.add_function(wrap_pyfunction!(run::workload_facts, m)?)?;
    m.add("POLICY_VERSION", policy::VERSION)?;
    m.add_function(wrap_pyfunction!(policy::hooks, m)?)?;
    m.add_function(wrap_pyfunction!(policy::calls, m)?)?;
    m.add_function(wrap_pyfunction!(statistics::block_length, m)?)?;
    m.add_function(wrap_pyfunction!(statistics::chi_square_tail, m)?)?;
    m.add_function(wrap_pyfunction!(statistics::interval, m)?)?;
    m.add_function(wrap_pyfunction!(statistics::kaplan_meier, m)?)?;
    m.add_function(wrap_pyfunction!(statistics::ks_distance, m)?)?;
    m.add_function(wrap_pyfunction!(statistics::partition, m)?)?;
    m.add_function(wrap_pyfunction!(statistics::sampling, m)?)?;
    m.add_function(wrap_pyfunction!(statistics::share_intervals, m)?)?;
    m.add_function(wrap_pyfunction!(statistics::standard_error, m)?)?;
    m.add_function(wrap_pyfunction!(statistics::t_quantile, m)?)?;
    m.add_function(wrap_pyfunction!(statistics::t_tails, m)?)?;
    m.add_function(wrap_pyfunction!(table::concat, m)?)?;
    m.add_function(wrap_pyfunction!(registry::formats, m)?)?;
    m.add_function(wrap_pyfunction!(registry::policies, m)?)?;
    m.add_function(wrap_pyfunction!(registry::costs, m)?)?;
    m.add_function(wrap_pyfunction!(registry::parse_policy, m)?)?;
    m.add_function(wrap_pyfunction!(registry::expand_policy, m)?)?;
    m.add_function(wrap_pyfunction!(registry::kernel_scheduler, m)?)?;
    m.add_function(wrap_pyfunction!(registry::tables, m)?)?;
    m.add_function(wrap_pyfunction!(registry::vocabularies, m)?)?;
    m.add_function(wrap_pyfunction!(registry::diagnostic_codes, m)?)?;
    m.add_function(wrap_pyfunction!(registry::metadata_keys, m)?)?;
    Ok(())
}
