//! The statistics of a trace that need not fit into memory: one pass over the source.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use std::collections::BTreeMap;

use tracekit_parsers::ParseError;
use tracekit_schema::metrics::{self, By, Scope, Statistics, CAUSES};
use tracekit_schema::table::Table as _;
use tracekit_schema::{Kind, Metadata};

use crate::derive::Wanted;
use crate::errors::{detached, internal_error, parse_error, Bug};
use crate::gather::{Gathered, Gatherer};
use crate::metrics::grouping;
use crate::reader::{parser_options, Inner, Input};
use crate::table::{append, pieces, Table};

/// Rows of a turn: as many as are read of a whole trace at a time, so that diagnostics stand in the
/// same order.
const TURN: usize = 1 << 16;
/// Rows handed over at a time: they stay in the second-level cache, and few of them are on the way.
const PART: usize = 1 << 13;

/// Samples, censored ones, sum, mean, whether that is a lower bound, least, quantiles, largest,
/// whether values were rounded.
type Spread = (u64, u64, i64, Option<f64>, bool, Option<i64>, [Option<i64>; 4], Option<i64>, bool);

/// Tasks, open and unreliable slices, run time, involuntary switches, switches.
type Totals = (u32, u32, u32, i64, u32, u32);

/// Scope, CPU, span, mean, quantiles, maximum, shares of empty and guessed time, whether the mean
/// is a lower bound.
type QueueRow = (&'static str, Option<i32>, i64, f64, [i64; 3], i64, (f64, f64), bool);

fn spread(s: &Statistics) -> Spread {
    (s.n, s.censored, s.sum, s.mean, s.bound, s.min, s.quantiles, s.max, s.rounded)
}

/// A trace of which only statistics and the small tables are kept.
///
/// They are there when `read` has returned false.
#[pyclass(module = "tracekit._core")]
pub struct Survey {
    // Parsers are `Send` but not `Sync`; Python hands out `&mut self` one at a time, so the lock is
    // never waited for.
    inner: Mutex<Running>,
}

struct Running {
    source: Inner,
    /// Takes the events; none at the end.
    gatherer: Option<Gatherer>,
    gathered: Gathered,
    /// The first events, as many as were asked for.
    head: Vec<Table>,
    head_rows: usize,
}

impl Running {
    /// Reads a turn; false at the end.
    fn step(&mut self) -> Result<Result<bool, Bug>, ParseError> {
        let mut left = TURN;
        while left > 0 {
            if !self.source.next(left.min(PART))? {
                return Ok(self.end().map(|()| false));
            }
            left = left.saturating_sub(self.source.out.events.len());
            if let Err(bug) = self.gather(left == 0) {
                return Ok(Err(bug));
            }
        }
        Ok(Ok(true))
    }

    /// Takes what the events that are there say.
    fn gather(&mut self, last_of_turn: bool) -> Result<(), Bug> {
        if self.head_rows > 0 {
            self.head_rows = self.head_rows.saturating_sub(self.source.out.events.len());
            self.head.push(self.source.export(&self.source.out.events));
        }
        let gatherer = self.gatherer.as_mut().ok_or_else(|| Bug::new("a survey went on after its end"))?;
        gatherer.take(&mut self.source, last_of_turn)
    }

    /// There are no more events.
    fn end(&mut self) -> Result<(), Bug> {
        if let Some(gatherer) = self.gatherer.take() {
            self.gathered = gatherer.end(&mut self.source)?;
        }
        Ok(())
    }
}

#[pymethods]
impl Survey {
    /// Opens a path. The first `head` events are kept; `hold` is how many samples are held one by one.
    #[new]
    #[pyo3(signature = (source, format=None, options=None, *, head=0, hold=None))]
    fn new(
        py: Python<'_>,
        source: PathBuf,
        format: Option<String>,
        options: Option<BTreeMap<String, String>>,
        head: usize,
        hold: Option<usize>,
    ) -> PyResult<Self> {
        let input = Input::Path(source);
        let name = input.name();
        let options = parser_options(options.unwrap_or_default()).map_err(|e| parse_error(py, &e, None))?;
        let opened = detached(py, || Inner::open(input, format.as_deref(), &options, Wanted::NONE, false, false))?;
        Ok(Survey::of(opened.map_err(|e| parse_error(py, &e, Some(&name)))?, head, hold))
    }

    /// Of events that are given by `push`; `metadata` is what is known of their trace.
    #[staticmethod]
    #[pyo3(signature = (metadata, *, head=0, hold=None))]
    fn fed(metadata: BTreeMap<String, String>, head: usize, hold: Option<usize>) -> Self {
        Survey::of(Inner::fed(Metadata(metadata)), head, hold)
    }

    /// Adds events, which go on where the last ones ended: an Arrow table with the columns of `events`.
    fn push(&mut self, py: Python<'_>, events: &Bound<'_, PyAny>) -> PyResult<()> {
        let inner = self.inner();
        for piece in pieces(events)? {
            let out = &mut inner.source.out;
            append(&mut out.events, &piece?, &mut out.strings)?;
            inner.source.rows += inner.source.out.events.len() as u64;
            detached(py, || inner.gather(false))?.map_err(|bug| internal_error(py, &bug))?;
        }
        Ok(())
    }

    /// Size of the source as stored, none for pipes.
    #[getter]
    fn size(&mut self) -> Option<u64> {
        self.inner().source.opened.size
    }

    /// Bytes of it read so far.
    #[getter]
    fn position(&mut self) -> u64 {
        self.inner().source.position()
    }

    /// Reads on; false at the end.
    fn read(&mut self, py: Python<'_>) -> PyResult<bool> {
        let inner = self.inner();
        let more = detached(py, || inner.step())?.map_err(|e| parse_error(py, &e, None))?;
        more.map_err(|bug| internal_error(py, &bug))
    }

    /// What is known of the trace; complete at the end.
    #[getter]
    fn metadata<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (key, value) in &self.inner().source.out.meta.0 {
            dict.set_item(key, value)?;
        }
        Ok(dict)
    }

    /// First and last time.
    #[getter]
    fn span(&mut self) -> Option<(i64, i64)> {
        self.inner().gathered.span
    }

    /// Events, slices, states, changes of run queues.
    #[getter]
    fn rows(&mut self) -> (u64, u64, u64, u64) {
        let inner = self.inner();
        let [slices, states, runqueue] = inner.gathered.kept.rows;
        (inner.source.rows, slices, states, runqueue)
    }

    /// Events by kind.
    #[getter]
    fn kinds(&mut self) -> Vec<(&'static str, u64)> {
        let counts = Kind::NAMES.iter().zip(self.inner().gathered.kinds).filter(|(_, count)| *count > 0);
        counts.map(|(name, count)| (*name, count)).collect()
    }

    /// Are values rounded, because there are more samples than are held one by one?
    #[getter]
    fn rounded(&mut self) -> bool {
        self.inner().gathered.kept.survey.rounds()
    }

    /// The first events.
    #[getter]
    fn head(&mut self) -> Vec<Table> {
        std::mem::take(&mut self.inner().head)
    }

    /// One of the small tables; `slices` are those that records contradict.
    fn table(&mut self, py: Python<'_>, name: &str) -> PyResult<Table> {
        let inner = self.inner();
        crate::registry::by_name(name)?;
        detached(py, || match name {
            "slices" => inner.source.export(&inner.gathered.kept.tables.rows.slices),
            name => inner.source.table(name),
        })
    }

    /// Slices by group.
    #[pyo3(signature = (by, labels=None))]
    fn slices(
        &mut self,
        py: Python<'_>,
        by: &str,
        labels: Option<Vec<Option<String>>>,
    ) -> PyResult<Vec<(Option<String>, Totals, Spread)>> {
        self.grouped(py, by, labels, |survey, by| {
            let rows = survey.slices(by).into_iter();
            rows.map(|(group, s)| {
                (group, (s.tasks, s.open, s.unreliable, s.run, s.forced, s.switches), spread(&s.lengths))
            })
            .collect()
        })
    }

    /// Waits for a CPU by group, of one cause or of `any`: with when the longest ended, and how
    /// many are unreliable.
    #[pyo3(signature = (by, cause, labels=None))]
    #[allow(clippy::type_complexity)]
    fn waits(
        &mut self,
        py: Python<'_>,
        by: &str,
        cause: &str,
        labels: Option<Vec<Option<String>>>,
    ) -> PyResult<Vec<(Option<String>, (Option<i64>, u32), Spread)>> {
        let cause = match cause {
            "any" => None,
            name => Some(
                CAUSES
                    .iter()
                    .position(|c| *c == name && !c.is_empty())
                    .ok_or_else(|| PyValueError::new_err(format!("unknown cause '{name}'")))?,
            ),
        };
        self.grouped(py, by, labels, |survey, by| {
            let rows = survey.waits(by, cause).into_iter();
            rows.map(|(group, w)| (group, (w.max_at, w.unreliable), spread(&w.statistics))).collect()
        })
    }

    /// Responses by group: with how many are left out.
    #[pyo3(signature = (by, labels=None))]
    fn responses(
        &mut self,
        py: Python<'_>,
        by: &str,
        labels: Option<Vec<Option<String>>>,
    ) -> PyResult<Vec<(Option<String>, u32, Spread)>> {
        self.grouped(py, by, labels, |survey, by| {
            survey.responses(by).into_iter().map(|(group, r)| (group, r.excluded, spread(&r.statistics))).collect()
        })
    }

    /// Run queues; `None` where rows came out of time order, so that the system's length is not known.
    fn queues(&mut self, waiting: bool) -> Option<Vec<QueueRow>> {
        let queues = &self.inner().gathered.kept.survey.queues;
        let row = |q: metrics::QueueSummary| {
            let (scope, cpu) = match q.scope {
                Scope::System => ("system", None),
                Scope::Cpu(cpu) => ("cpu", Some(cpu)),
                Scope::Unplaced => ("unplaced", None),
            };
            (scope, cpu, q.span, q.mean, q.quantiles, q.max, q.shares, q.bound)
        };
        (!queues.unsorted()).then(|| queues.summaries(waiting).into_iter().map(row).collect())
    }
}

impl Survey {
    fn of(source: Inner, head: usize, hold: Option<usize>) -> Self {
        let hold = hold.unwrap_or(metrics::HELD);
        Survey {
            inner: Mutex::new(Running {
                source,
                gatherer: Some(Gatherer::new(hold)),
                gathered: Gathered::holding(hold),
                head: Vec::new(),
                head_rows: head,
            }),
        }
    }

    fn inner(&mut self) -> &mut Running {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn grouped<T: Send>(
        &mut self,
        py: Python<'_>,
        by: &str,
        labels: Option<Vec<Option<String>>>,
        of: impl FnOnce(&metrics::Survey, &By<'_>) -> T + Send,
    ) -> PyResult<T> {
        let grouping = grouping(by)?;
        let labels = labels.unwrap_or_default();
        let inner = self.inner();
        detached(py, || {
            let by = By { grouping, strings: &inner.source.out.strings, labels: &labels };
            of(&inner.gathered.kept.survey, &by)
        })
    }
}
