//! How far statistics can be trusted: what the crate of that has, for arrays of numpy.

use std::sync::Arc;

use arrow_array::{Float64Array, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Field, Schema};
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use tracekit_schema::metrics::{Step, Survey};
use tracekit_statistics::blocks;
use tracekit_statistics::curve::Samples;
use tracekit_statistics::distance;
use tracekit_statistics::distributions::{self, Unexpected};
use tracekit_statistics::error::{self, Unit};
use tracekit_statistics::interval::{interval as interval_of, Found, Statistic};
use tracekit_statistics::partition::{partition as partitioned, Node};
use tracekit_statistics::sampling::{sampling as sampling_of, shares};
use tracekit_statistics::sharing::{Burst, Scratch, Shares};
use tracekit_statistics::tasks::Tasks;

use crate::errors::detached;
use crate::metrics::{grouping, Loaded};
use crate::table::Table;

fn unexpected(what: Unexpected) -> PyErr {
    PyValueError::new_err(what.0)
}

/// Probability that chi squared is above `x`.
#[pyfunction]
pub fn chi_square_tail(df: f64, x: f64) -> PyResult<f64> {
    distributions::chi_square_tail(df, x).map_err(unexpected)
}

/// What lies between minus it and it with probability `p`: the two-sided quantile of Student's t.
#[pyfunction]
pub fn t_quantile(df: f64, p: f64) -> PyResult<f64> {
    distributions::t_quantile(df, p).map_err(unexpected)
}

/// Probability that Student's t is further from 0 than `t`.
#[pyfunction]
pub fn t_tails(df: f64, t: f64) -> PyResult<f64> {
    distributions::t_tails(df, t).map_err(unexpected)
}

/// The numbers of an array, of which there are as many as samples.
fn numbers<T: Element>(py: Python<'_>, array: Option<PyBuffer<T>>, samples: usize) -> PyResult<Option<Vec<T>>> {
    let Some(array) = array else { return Ok(None) };
    if array.item_count() != samples {
        let found = array.item_count();
        return Err(PyValueError::new_err(format!("{found} numbers beside {samples} samples: expected as many")));
    }
    array.to_vec(py).map(Some)
}

fn flags(py: Python<'_>, array: Option<PyBuffer<u8>>, samples: usize) -> PyResult<Vec<bool>> {
    let found = numbers(py, array, samples)?.unwrap_or_default();
    Ok(found.into_iter().map(|flag| flag != 0).collect())
}

/// The sampling error of a statistic.
#[pyclass(module = "tracekit._core", frozen)]
pub struct StandardError(error::StandardError);

#[pymethods]
impl StandardError {
    /// Standard error in the unit of the statistic; None when `reason` says why.
    #[getter]
    fn value(&self) -> Option<f64> {
        self.0.value.as_ref().ok().copied()
    }

    /// Why there is no value; None when there is one.
    #[getter]
    fn reason(&self) -> Option<&str> {
        self.0.value.as_ref().err().map(String::as_str)
    }

    /// Degrees of freedom of the t distribution that goes with it.
    #[getter]
    fn df(&self) -> usize {
        self.0.df
    }

    /// What was resampled: ``blocks`` (of consecutive samples) or ``tasks``.
    #[getter]
    fn unit(&self) -> &'static str {
        self.0.unit.name()
    }

    /// How many of these there are.
    #[getter]
    fn units(&self) -> usize {
        self.0.units
    }

    /// Independent samples that would leave the same error.
    #[getter]
    fn n_effective(&self) -> f64 {
        self.0.n_effective
    }

    /// Half-width of the symmetric interval of a level, from the t distribution; None without a
    /// value.
    fn half_width(&self, confidence: f64) -> Option<f64> {
        self.0.half_width(confidence)
    }

    /// The interval of a level about the value of the statistic, corrected for skewness (Hall
    /// 1992); None without a standard error. With `positive`, where no sample is negative, it bursts
    /// above 0.
    #[pyo3(signature = (value, confidence, *, positive=false))]
    fn around(&self, value: f64, confidence: f64, positive: bool) -> Option<(f64, f64)> {
        self.0.around(value, confidence, positive)
    }

    fn __repr__(&self) -> String {
        let of = if self.0.unit == Unit::Tasks { "tasks" } else { "blocks" };
        match &self.0.value {
            Ok(value) => format!("StandardError({value}, {} {of})", self.0.units),
            Err(reason) => format!("StandardError(None, {reason:?})"),
        }
    }
}

/// The sampling error of a statistic from its influence values.
#[pyfunction]
#[pyo3(signature = (influence, tasks=None))]
pub fn standard_error(
    py: Python<'_>,
    influence: PyBuffer<f64>,
    tasks: Option<PyBuffer<i64>>,
) -> PyResult<StandardError> {
    let x = influence.to_vec(py)?;
    let tasks = numbers(py, tasks, x.len())?;
    detached(py, || StandardError(error::standard_error(&x, tasks.map(|t| Tasks::new(&t)).as_ref())))
}

/// Samples a block of a block bootstrap.
#[pyfunction]
pub fn block_length(py: Python<'_>, values: PyBuffer<f64>) -> PyResult<f64> {
    let x = values.to_vec(py)?;
    detached(py, || blocks::length(&x).samples)
}

/// The distribution function of samples: `value`, `n_at_risk`, `n_events`, `cdf`, a row for each
/// distinct value.
#[pyfunction]
#[pyo3(signature = (values, censored=None))]
pub fn kaplan_meier(py: Python<'_>, values: PyBuffer<f64>, censored: Option<PyBuffer<u8>>) -> PyResult<Table> {
    let values = values.to_vec(py)?;
    let censored = flags(py, censored, values.len())?;
    let curve = detached(py, || Samples { values: &values, censored: &censored }.curve())?;
    let field = |name: &str, kind: DataType| Field::new(name, kind, false);
    let schema = Arc::new(Schema::new(vec![
        field("value", DataType::Float64),
        field("n_at_risk", DataType::UInt32),
        field("n_events", DataType::UInt32),
        field("cdf", DataType::Float64),
    ]));
    let batch = RecordBatch::try_new(
        Arc::clone(&schema),
        vec![
            Arc::new(Float64Array::from(curve.at)),
            Arc::new(UInt32Array::from(curve.at_risk)),
            Arc::new(UInt32Array::from(curve.events)),
            Arc::new(Float64Array::from(curve.cdf)),
        ],
    );
    let batch = batch.map_err(|e| PyValueError::new_err(e.to_string()))?;
    Ok(Table::new("curve", schema, vec![batch]))
}

/// The distance of Kolmogorov and Smirnov between two samples in any order, after either was moved by up to
/// `resolution`; None where one is empty.
#[pyfunction]
pub fn ks_distance(py: Python<'_>, a: PyBuffer<f64>, b: PyBuffer<f64>, resolution: f64) -> PyResult<Option<f64>> {
    let (a, b) = (a.to_vec(py)?, b.to_vec(py)?);
    detached(py, || distance::ks(a, b, resolution))
}

/// Intervals of the shares of time at these lengths of a queue, from its steps in time order; None where
/// there is none.
#[pyfunction]
pub fn share_intervals(
    py: Python<'_>,
    begin: PyBuffer<i64>,
    dur: PyBuffer<i64>,
    length: PyBuffer<i64>,
    lengths: Vec<i64>,
    confidence: f64,
) -> PyResult<Vec<Option<(f64, f64)>>> {
    let begin = begin.to_vec(py)?;
    let dur = numbers(py, Some(dur), begin.len())?.unwrap_or_default();
    let length = numbers(py, Some(length), begin.len())?.unwrap_or_default();
    let steps = begin.into_iter().zip(dur).zip(length).map(|((at, dur), length)| Step { at, dur, length });
    let steps: Vec<Step> = steps.collect();
    detached(py, || shares(&steps, &lengths, confidence))
}

/// Value, bounds, effective samples, what was resampled, units, why there are no bounds.
type FoundRow =
    (Option<f64>, Option<f64>, Option<f64>, Option<f64>, Option<&'static str>, Option<usize>, Option<String>);

fn plain(found: Found) -> FoundRow {
    let (resampled, units) = found.resampled.unzip();
    let (low, high, reason) = match found.interval {
        Ok((low, high)) => (Some(low), Some(high), None),
        Err(reason) => (None, None, Some(reason)),
    };
    (found.value, low, high, found.n_effective, resampled, units, reason)
}

/// A statistic of samples in time order with its interval: the mean, or a quantile.
#[pyfunction]
#[pyo3(signature = (values, quantile, confidence, *, censored=None, tasks=None))]
pub fn interval(
    py: Python<'_>,
    values: PyBuffer<f64>,
    quantile: Option<f64>,
    confidence: f64,
    censored: Option<PyBuffer<u8>>,
    tasks: Option<PyBuffer<i64>>,
) -> PyResult<FoundRow> {
    let values = values.to_vec(py)?;
    let censored = flags(py, censored, values.len())?;
    let tasks = numbers(py, tasks, values.len())?;
    let statistic = quantile.map_or(Statistic::Mean, Statistic::Quantile);
    detached(py, || {
        let samples = Samples { values: &values, censored: &censored };
        plain(interval_of(samples, tasks.map(|t| Tasks::new(&t)).as_ref(), statistic, confidence))
    })
}

/// Scope, group, metric, statistic, samples, and what was found.
type SamplingRow = (&'static str, Option<String>, &'static str, &'static str, usize, FoundRow);

/// The sampling error of every row of `metrics`, of the same tables.
#[pyfunction]
#[pyo3(signature = (slices, runqueue, states, end_ns, by, confidence))]
pub fn sampling(
    py: Python<'_>,
    slices: &Bound<'_, PyAny>,
    runqueue: &Bound<'_, PyAny>,
    states: Option<&Bound<'_, PyAny>>,
    end_ns: Option<i64>,
    by: &str,
    confidence: f64,
) -> PyResult<Vec<SamplingRow>> {
    let by = grouping(by)?;
    let loaded = Loaded::of(py, slices, runqueue, states)?;
    detached(py, || {
        let survey = loaded.measured(end_ns).survey(Survey::new(end_ns).keeping());
        let rows = sampling_of(&survey, &loaded.strings, by, confidence);
        rows.into_iter().map(|r| (r.scope, r.group, r.metric, r.statistic, r.n, plain(r.found))).collect()
    })
}

/// Which units share CPU time as one.
///
/// `bursts` are columns of integers, a row for each slice of a fair task, in order of start: CPU,
/// unit, task, weight, since when it was ready, start and end (ns). `tree`
/// has the parent and the unit of each node, children first. Returns the group of each unit, and
/// the share of the CPU time that is misplaced without groups and with these.
#[pyfunction]
pub fn partition(
    py: Python<'_>,
    bursts: Vec<PyBuffer<i64>>,
    units: usize,
    windows: usize,
    tree: Vec<(Option<usize>, Option<usize>)>,
    most: usize,
) -> PyResult<(Vec<Option<usize>>, f64, f64)> {
    let columns = bursts.iter().map(|column| column.to_vec(py)).collect::<PyResult<Vec<_>>>()?;
    let rows = columns.first().map_or(0, Vec::len);
    let [cpu, unit, task, weight, ready, start, end] = columns.as_slice() else {
        return Err(PyValueError::new_err(format!("{} columns of slices: expected 7", columns.len())));
    };
    if columns.iter().any(|column| column.len() != rows) {
        return Err(PyValueError::new_err("columns of slices: expected equal lengths"));
    }
    let index = |of: &[i64], row: usize| {
        usize::try_from(of[row]).map_err(|_| PyValueError::new_err(format!("slice {row}: {} is no number", of[row])))
    };
    let mut all = Vec::with_capacity(rows);
    for row in 0..rows {
        let unit = index(unit, row)?;
        if unit >= units {
            return Err(PyValueError::new_err(format!("slice {row}: unit {unit}, expected fewer than {units}")));
        }
        all.push(Burst {
            cpu: index(cpu, row)?,
            unit,
            task: index(task, row)?,
            weight: u32::try_from(weight[row]).unwrap_or(0),
            ready_ns: ready[row],
            start_ns: start[row],
            end_ns: end[row],
        });
    }
    let tree: Vec<Node> = tree.into_iter().map(|(parent, unit)| Node { parent, unit }).collect();
    detached(py, || {
        let shares = Shares::new(&all, units, windows);
        let found = partitioned(&shares, &tree, most);
        let mut scratch = Scratch::default();
        let flat = shares.misplaced(&vec![None; units], &mut scratch);
        let off = shares.misplaced(&found, &mut scratch);
        (found, flat, off)
    })
}
