//! The statistics that comparisons hold side by side, of tables from Python and of runs.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use tracekit_schema::metrics::{metrics as measured, rows_of, Grouping, Measured, Row, Survey};
use tracekit_schema::tables::{Runqueue, Slices, States};
use tracekit_schema::Strings;

use crate::errors::detached;
use crate::table::{append, pieces};

/// Scope, group, metric, statistic, unit, value, samples, censored ones, whether the value is a lower bound.
pub type MetricRow =
    (&'static str, Option<String>, &'static str, &'static str, &'static str, Option<f64>, Option<u32>, u32, bool);

fn plain(row: Row) -> MetricRow {
    (row.scope, row.group, row.metric, row.statistic, row.unit, row.value, row.n, row.censored, row.bound)
}

/// A grouping by its name.
pub fn grouping(name: &str) -> PyResult<Grouping> {
    let expected =
        || PyValueError::new_err(format!("unknown grouping '{name}': expected one of group, comm, tid, all"));
    Grouping::named(name).ok_or_else(expected)
}

/// The statistics of a survey that is finished.
pub fn of_survey(survey: &Survey, strings: &Strings, by: Grouping) -> Vec<MetricRow> {
    rows_of(survey, strings, by).into_iter().map(plain).collect()
}

/// The statistics of tables: DataFrames or Arrow tables with the columns of `slices`, `runqueue`
/// and `states`.
#[pyfunction]
#[pyo3(signature = (slices, runqueue, states=None, end_ns=None, by="group"))]
pub fn metrics(
    py: Python<'_>,
    slices: &Bound<'_, PyAny>,
    runqueue: &Bound<'_, PyAny>,
    states: Option<&Bound<'_, PyAny>>,
    end_ns: Option<i64>,
    by: &str,
) -> PyResult<Vec<MetricRow>> {
    let by = grouping(by)?;
    let loaded = Loaded::of(py, slices, runqueue, states)?;
    detached(py, || measured(&loaded.measured(end_ns), by).into_iter().map(plain).collect())
}

/// Tables from Python.
pub struct Loaded {
    /// Slices.
    pub slices: Slices,
    /// Run queues.
    pub runqueue: Runqueue,
    states: Option<States>,
    /// Their names.
    pub strings: Strings,
}

impl Loaded {
    /// DataFrames or Arrow tables with the columns of `slices`, `runqueue` and `states`.
    pub fn of(
        py: Python<'_>,
        slices: &Bound<'_, PyAny>,
        runqueue: &Bound<'_, PyAny>,
        states: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let mut strings = Strings::new();
        Ok(Loaded {
            slices: load(py, slices, &mut strings)?,
            runqueue: load(py, runqueue, &mut strings)?,
            states: states.map(|states| load(py, states, &mut strings)).transpose()?,
            strings,
        })
    }

    /// What is measured, of a trace that ends there.
    pub fn measured(&self, end: Option<i64>) -> Measured<'_> {
        let Loaded { slices, runqueue, states, strings } = self;
        Measured { slices, states: states.as_ref(), runqueue, strings, end }
    }
}

fn load<T: tracekit_schema::table::Table>(
    py: Python<'_>,
    table: &Bound<'_, PyAny>,
    strings: &mut Strings,
) -> PyResult<T> {
    let mut rows = T::default();
    for piece in pieces(table)? {
        py.check_signals()?;
        append(&mut rows, &piece?, strings)?;
    }
    debug_assert!(rows.len() < u32::MAX as usize);
    Ok(rows)
}
