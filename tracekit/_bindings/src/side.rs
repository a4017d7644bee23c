//! What a run has of each metric by which a replay is judged.

use pyo3::prelude::*;

use tracekit_statistics::side::{Apart, Side};

use crate::errors::detached;
use crate::metrics::Loaded;

/// Largest gap of shares, of tasks and of groups by the second; distances of run delays and of slices; time
/// with the same task and the same group on a CPU, idle time of each, CPUs; slices with a CPU; last end in
/// both, and how many ended in the first and in both.
type ApartRow = (
    f64,
    Option<f64>,
    Option<f64>,
    Option<f64>,
    (i64, i64, (i64, i64), usize),
    (usize, usize),
    Option<((i64, i64), (usize, usize))>,
);

/// A recording or a replay of it, as it is judged.
#[pyclass(module = "tracekit._core", frozen, name = "Side")]
pub struct RunSide(Side);

#[pymethods]
impl RunSide {
    /// Of DataFrames or Arrow tables with the columns of `slices` and `runqueue`, of a run that lasts until
    /// `end_ns`. Only slices that end by `edge_ns` count.
    #[new]
    #[pyo3(signature = (slices, runqueue, edge_ns=None, end_ns=None))]
    fn new(
        py: Python<'_>,
        slices: &Bound<'_, PyAny>,
        runqueue: &Bound<'_, PyAny>,
        edge_ns: Option<i64>,
        end_ns: Option<i64>,
    ) -> PyResult<Self> {
        let Loaded { slices, runqueue, strings, .. } = Loaded::of(py, slices, runqueue, None)?;
        detached(py, || RunSide(Side::new(&slices, &runqueue, &strings, edge_ns, end_ns)))
    }

    /// Slices that count.
    #[getter]
    fn slices(&self) -> usize {
        self.0.slices
    }

    /// Rows of the run queue.
    #[getter]
    fn queue_rows(&self) -> usize {
        self.0.queue_rows
    }

    /// How often tasks left a CPU: ready to run, by a yield (which is ready to run), at all.
    #[getter]
    fn left(&self) -> (u64, u64, u64) {
        self.0.left.into()
    }

    /// Time on CPUs, ns.
    #[getter]
    fn ran_ns(&self) -> i64 {
        self.0.ran
    }

    /// Run delays, ns, in order: how many.
    #[getter]
    fn delays(&self) -> usize {
        self.0.delays.len()
    }

    /// Slices that an involuntary switch ended, in order of their length: how many.
    #[getter]
    fn lengths(&self) -> usize {
        self.0.lengths.len()
    }

    /// The run delay of this rank; None where there are not as many.
    fn delay(&self, rank: usize) -> Option<i64> {
        self.0.delays.get(rank).copied()
    }

    /// The length of this rank; None where there are not as many.
    fn length(&self, rank: usize) -> Option<i64> {
        self.0.lengths.get(rank).copied()
    }

    /// Time at each length of the system's run queue, ns, by length.
    #[getter]
    fn queue(&self) -> Vec<(i64, i64)> {
        self.0.queue.iter().map(|(length, ns)| (*length, *ns)).collect()
    }

    /// How far `other` is from this one between `start` and `stop`; times that differ by no more than
    /// `resolution` are alike.
    fn apart(&self, py: Python<'_>, other: &RunSide, start: i64, stop: i64, resolution: f64) -> PyResult<ApartRow> {
        let Apart { share, share_by_second, delays, lengths, agreement, placed, last_end } =
            detached(py, || self.0.apart(&other.0, start, stop, resolution))?;
        let both = (agreement.task, agreement.group, agreement.idle.into(), agreement.cpus);
        let last_end = last_end.map(|(end, ended)| (end.into(), ended.into()));
        Ok((share, share_by_second, delays, lengths, both, placed.into(), last_end))
    }
}
