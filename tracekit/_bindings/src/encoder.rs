//! Rows become Parquet in a thread of their own while the next ones are read.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use tracekit_schema::parquet::Writer;
use tracekit_schema::table::Table;
use tracekit_schema::tables::{Runqueue, Slices, States};
use tracekit_schema::{Events, News, Strings};

use crate::errors::{detached, internal_error, Bug};
use crate::stage::Stage;

/// Threads that encode: with four, reading takes longer than encoding whatever the format.
const MOST_THREADS: usize = 4;

/// Rows of a table that grows with the trace.
pub enum Rows {
    Events(Box<Events>),
    Slices(Box<Slices>),
    States(Box<States>),
    RunQueue(Box<Runqueue>),
}

/// Does the same with the rows of every table.
macro_rules! each {
    ($rows:expr, $table:ident => $work:expr) => {
        match $rows {
            Rows::Events($table) => $work,
            Rows::Slices($table) => $work,
            Rows::States($table) => $work,
            Rows::RunQueue($table) => $work,
        }
    };
}

impl Rows {
    /// No rows of the table of this name.
    pub fn none(name: &str) -> PyResult<Self> {
        match name {
            "events" => Ok(Rows::Events(Box::default())),
            "slices" => Ok(Rows::Slices(Box::default())),
            "states" => Ok(Rows::States(Box::default())),
            "runqueue" => Ok(Rows::RunQueue(Box::default())),
            _ => {
                Err(PyValueError::new_err(format!("`{name}` does not grow with the trace: write it when it is whole")))
            }
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        each!(self, table => table.len())
    }

    fn clear(&mut self) {
        each!(self, table => table.clear());
    }

    fn writer(&self, group_rows: usize) -> Writer {
        fn of<T: Table>(_: &T, group_rows: usize) -> Writer {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            Writer::new::<T>(group_rows, threads.min(MOST_THREADS))
        }
        each!(self, table => of(&**table, group_rows))
    }
}

/// What the thread keeps: the writer, and the strings that it was given.
type Kept = (Writer, Strings);

struct Inner {
    stage: Stage<Kept, (Rows, News), (Rows, Vec<u8>)>,
    ready: Vec<u8>,
    /// Emptied rows, whose memory is used again.
    emptied: Vec<Rows>,
    known: usize,
    rows: u64,
}

/// Makes a Parquet file of one table in a thread of its own. `Reader.encode` gives it rows; the
/// bytes of the file come from `ready`, a row group at a time, and the last of them from `close`.
#[pyclass(module = "tracekit._core")]
pub struct Encoder {
    table: String,
    // Receivers are not `Sync`; Python hands out `&mut self` one at a time, so the lock is never waited for.
    inner: Mutex<Inner>,
}

#[pymethods]
impl Encoder {
    /// For the table of this name, with row groups of so many rows.
    #[new]
    fn new(table: String, group_rows: usize) -> PyResult<Self> {
        let writer = Rows::none(&table)?.writer(group_rows.max(1));
        let stage = Stage::start("encoder", (writer, Strings::new()), encode)?;
        let inner = Inner { stage, ready: Vec::new(), emptied: Vec::new(), known: 0, rows: 0 };
        Ok(Encoder { table, inner: Mutex::new(inner) })
    }

    /// Rows given so far.
    #[getter]
    fn rows(&mut self) -> u64 {
        self.inner().rows
    }

    /// The bytes that are ready, which follow those asked for before.
    fn ready<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let inner = self.inner();
        inner.collect();
        let found = PyBytes::new(py, &inner.ready);
        inner.ready.clear();
        found
    }

    /// Ends the file with this metadata, and gives the bytes that are left.
    fn close<'py>(&mut self, py: Python<'py>, metadata: BTreeMap<String, String>) -> PyResult<Bound<'py, PyBytes>> {
        let inner = self.inner();
        let rest = detached(py, || {
            inner.collect();
            let ((writer, _), last) = inner.stage.end()?;
            last.into_iter().for_each(|done| inner.take(done));
            writer.finish(&metadata, &mut inner.ready);
            Ok(std::mem::take(&mut inner.ready))
        })?;
        rest.map(|rest| PyBytes::new(py, &rest)).map_err(|bug: Bug| internal_error(py, &bug))
    }
}

/// Makes a piece of the file of these rows.
fn encode((writer, strings): &mut Kept, (mut rows, news): (Rows, News)) -> (Rows, Vec<u8>) {
    let mut out = Vec::new();
    strings.follow(news);
    each!(&rows, table => writer.push(&**table, strings, &mut out));
    rows.clear();
    (rows, out)
}

impl Encoder {
    fn inner(&mut self) -> &mut Inner {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table that it writes.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Emptied rows to fill, and how many strings it knows.
    pub fn state(&mut self) -> (Option<Rows>, usize) {
        let inner = self.inner();
        inner.collect();
        (inner.emptied.pop(), inner.known)
    }

    /// Hands over rows; waits while there are enough on the way.
    ///
    /// # Errors
    /// The panic in which the thread ended.
    pub fn give(&mut self, rows: Rows, news: News, known: usize) -> Result<(), Bug> {
        let inner = self.inner();
        inner.known = known;
        inner.rows += rows.len() as u64;
        inner.stage.give((rows, news))
    }
}

impl Inner {
    /// Takes what the thread has done.
    fn collect(&mut self) {
        let done: Vec<_> = self.stage.done().collect();
        done.into_iter().for_each(|done| self.take(done));
    }

    fn take(&mut self, (rows, bytes): (Rows, Vec<u8>)) {
        self.emptied.push(rows);
        self.ready.extend_from_slice(&bytes);
    }
}
