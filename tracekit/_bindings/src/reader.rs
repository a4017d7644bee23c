//! Reading a trace: bytes in, tables out, a batch of events at a time.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use tracekit_parsers::{Options, ParseError, Parser};
use tracekit_schema::arrow::Names;
use tracekit_schema::table::Table as _;
use tracekit_schema::{Code, Diagnostic, Events, Metadata, Out};

use crate::derive::{export_diagnostics, Derivation, Wanted};
use crate::digest::Running;
use crate::encoder::{Encoder, Rows};
use crate::errors::{detached, internal_error, parse_error, Bug};
use crate::files::{self, Opened};
use crate::table::Table;

/// Texts of one batch: well under the 2 GiB that an Arrow string column can hold.
const TEXT_BYTES: usize = 64 << 20;
/// Rows asked of a parser at a time.
const STEP_ROWS: usize = 8192;

/// A trace that is being read.
///
/// `read` hands out the events in batches; the other tables grow meanwhile and are complete when it
/// has returned `None`. With `derive=[table]` that one table can be asked for after each batch and
/// gives the rows of that batch, so that memory is bounded by a batch whatever the length of the
/// trace. With `hashed`, `blake3` gives the digest of a file, which is then read only once.
#[pyclass(module = "tracekit._core")]
pub struct Reader {
    // Parsers are `Send` but not `Sync`; Python hands out `&mut self` one at a time, so the lock is
    // never waited for.
    inner: Mutex<Inner>,
}

pub(crate) struct Inner {
    format: &'static str,
    parser: Box<dyn Parser>,
    pub(crate) out: Out,
    pub(crate) derivation: Derivation,
    pub(crate) opened: Progress,
    keys: bool,
    pub(crate) rows: u64,
    /// The parser has no more.
    done: bool,
    /// All has been handed out.
    ended: bool,
}

pub(crate) struct Progress {
    file: Option<File>,
    pub(crate) size: Option<u64>,
    counter: Option<Arc<std::sync::atomic::AtomicU64>>,
    digest: Option<Running>,
}

impl Progress {
    /// Says so when the file has fewer bytes than when it was opened: what was read of it last may be zeros.
    fn shorter(&self) -> Option<ParseError> {
        let (file, before) = (self.file.as_ref()?, self.size?);
        let now = file.metadata().ok()?.len();
        (now < before).then(|| {
            let message = format!("the file had {before} bytes when it was opened and has {now} now");
            ParseError::new("unknown", "io", message)
        })
    }
}

#[pymethods]
impl Reader {
    /// Opens a path (`-` for standard input) or bytes. `derive` names the tables that are wanted
    /// besides those that the source states itself, none of which means all. With `keys`, the
    /// string columns of events, slices, states and runqueue come as `uint32` keys into
    /// `strings()`, which are the same in every batch.
    #[new]
    #[pyo3(signature = (source, format=None, options=None, *, derive=None, keys=false, hashed=false))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        format: Option<String>,
        options: Option<BTreeMap<String, String>>,
        derive: Option<Vec<String>>,
        keys: bool,
        hashed: bool,
    ) -> PyResult<Self> {
        let wanted = Wanted::new(derive)?;
        let input = match source.cast::<PyBytes>() {
            Ok(bytes) => Input::Bytes(bytes.as_bytes().to_vec()),
            Err(_) => Input::Path(source.extract()?),
        };
        let name = input.name();
        let options = parser_options(options.unwrap_or_default()).map_err(|e| parse_error(py, &e, None))?;
        let opened = detached(py, || Inner::open(input, format.as_deref(), &options, wanted, keys, hashed))?;
        let inner = opened.map_err(|e| parse_error(py, &e, Some(&name)))?;
        Ok(Reader { inner: Mutex::new(inner) })
    }

    /// Name of the format.
    #[getter]
    fn format(&mut self) -> &'static str {
        self.inner().format
    }

    /// Size of the source as stored, none for pipes.
    #[getter]
    fn size(&mut self) -> Option<u64> {
        self.inner().opened.size
    }

    /// Bytes of it read so far.
    #[getter]
    fn position(&mut self) -> u64 {
        self.inner().position()
    }

    /// Events handed out so far.
    #[getter]
    fn rows(&mut self) -> u64 {
        self.inner().rows
    }

    /// What is known of the trace; complete at the end.
    #[getter]
    fn metadata<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (key, value) in &self.inner().out.meta.0 {
            dict.set_item(key, value)?;
        }
        Ok(dict)
    }

    /// The next `rows` events (a few more or less: records are not split), `None` at the end.
    #[pyo3(signature = (rows=65_536))]
    fn read(&mut self, py: Python<'_>, rows: usize) -> PyResult<Option<Table>> {
        let inner = self.inner();
        detached(py, || inner.read(rows.max(1)))?.map_err(|e| parse_error(py, &e, None))
    }

    /// The rows that a table other than `events` has gathered since it was last asked for, by start time.
    fn table(&mut self, py: Python<'_>, name: &str) -> PyResult<Table> {
        let inner = self.inner();
        crate::registry::by_name(name)?;
        if !inner.ended && !inner.derivation.streams(name) {
            return Err(PyValueError::new_err(format!("`{name}` is complete when `read` has returned None")));
        }
        detached(py, || inner.table(name))
    }

    /// Reads about so many events, and gives what comes of them to the encoder of a table; false at
    /// the end, when all rows have been given.
    #[pyo3(signature = (encoder, rows=65_536))]
    fn encode(&mut self, py: Python<'_>, mut encoder: PyRefMut<'_, Encoder>, rows: usize) -> PyResult<bool> {
        let inner = self.inner();
        let to = &mut *encoder;
        let table = to.table().to_owned();
        if table != "events" && !inner.derivation.streams(&table) {
            return Err(PyValueError::new_err(format!("`{table}` was not asked for alone when the trace was opened")));
        }
        let given = detached(py, || inner.encode(to, &table, rows.max(1)))?.map_err(|e| parse_error(py, &e, None))?;
        given.map_err(|bug| internal_error(py, &bug))
    }

    /// The BLAKE3 digest of the file as stored, in hexadecimal; none where it was not asked for or
    /// the source is no file.
    fn blake3(&mut self, py: Python<'_>) -> PyResult<Option<String>> {
        let opened = &self.inner().opened;
        let digest = detached(py, || match (&opened.digest, &opened.file) {
            (Some(digest), Some(file)) => digest.finish(file).map(Some),
            _ => Ok(None),
        })?;
        Ok(digest?)
    }

    /// The strings that the keys of a `keys` reader stand for: a table of one column, `string`.
    fn strings(&mut self, py: Python<'_>) -> Table {
        let inner = self.inner();
        py.detach(|| {
            let values: ArrayRef = tracekit_schema::arrow::dictionary(&inner.out.strings);
            let schema = Arc::new(Schema::new(vec![Field::new("string", DataType::Utf8, false)]));
            let batch =
                RecordBatch::try_new(Arc::clone(&schema), vec![values]).expect("one column of the schema's type");
            Table::new("strings", schema, vec![batch])
        })
    }
}

impl Reader {
    fn inner(&mut self) -> &mut Inner {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A source that holds nothing.
struct Nothing;

impl Parser for Nothing {
    fn fill(&mut self, _: &mut Out, _: usize) -> Result<bool, ParseError> {
        Ok(false)
    }

    fn consumed(&self) -> u64 {
        0
    }
}

pub(crate) enum Input {
    Path(PathBuf),
    Bytes(Vec<u8>),
}

impl Input {
    /// What errors call it.
    pub(crate) fn name(&self) -> String {
        match self {
            Input::Path(path) if path.as_os_str() == "-" => "standard input".to_owned(),
            Input::Path(path) => path.display().to_string(),
            Input::Bytes(_) => "bytes".to_owned(),
        }
    }
}

/// Options by name; those that every format shares have a place of their own.
pub(crate) fn parser_options(mut given: BTreeMap<String, String>) -> Result<Options, ParseError> {
    let clock_hz = given.remove("clock_hz").map(|text| {
        let wrong = || format!("option clock_hz: expected a whole number, found `{text}`");
        text.parse().map_err(|_| ParseError::new("unknown", "option", wrong()))
    });
    Ok(Options {
        clock: given.remove("clock"),
        clock_hz: clock_hz.transpose()?,
        pattern: given.remove("pattern"),
        extra: given,
    })
}

impl Inner {
    /// Bytes of the source read so far.
    pub(crate) fn position(&self) -> u64 {
        match &self.opened.counter {
            Some(counter) => counter.load(Ordering::Relaxed),
            None => self.parser.consumed(),
        }
    }

    pub(crate) fn open(
        input: Input,
        format: Option<&str>,
        options: &Options,
        wanted: Wanted,
        keys: bool,
        hashed: bool,
    ) -> Result<Self, ParseError> {
        let Opened { source, size, counter, file, digest } = match input {
            Input::Path(path) => files::open(&path, hashed)?,
            Input::Bytes(data) => files::bytes(data)?,
        };
        let mut out = Out::new();
        let (format, parser) = tracekit_parsers::open(source, format, options, &mut out)?;
        let derivation = Derivation::new(wanted);
        Ok(Inner {
            format: format.name,
            parser,
            out,
            derivation,
            opened: Progress { file, size, counter, digest: hashed.then_some(digest) },
            keys,
            rows: 0,
            done: false,
            ended: false,
        })
    }

    /// Of events that come from elsewhere, with what is known of their trace.
    pub(crate) fn fed(meta: Metadata) -> Self {
        Inner {
            format: "tracekit",
            parser: Box::new(Nothing),
            out: Out { meta, ..Out::default() },
            derivation: Derivation::new(Wanted::NONE),
            opened: Progress { file: None, size: None, counter: None, digest: None },
            keys: false,
            rows: 0,
            done: false,
            ended: false,
        }
    }

    /// Derives from the events that are there.
    pub(crate) fn digest(&mut self) {
        self.derivation.push(&mut self.out);
        self.rows += self.out.events.len() as u64;
    }

    fn read(&mut self, rows: usize) -> Result<Option<Table>, ParseError> {
        if !self.next(rows)? {
            return Ok(None);
        }
        let table = self.export(&self.out.events);
        self.out.clear_events();
        Ok(Some(table))
    }

    /// Reads the next events and gives rows to an encoder: false at the end.
    fn encode(&mut self, to: &mut Encoder, table: &str, rows: usize) -> Result<Result<bool, Bug>, ParseError> {
        let more = self.next(rows)?;
        let (emptied, known) = to.state();
        if !self.ended {
            self.derivation.drain();
        }
        self.stated_slices();
        let derived = &mut self.derivation.tables;
        let rows = match table {
            "events" => Rows::Events(self.take_events(match emptied {
                Some(Rows::Events(events)) => Some(events),
                _ => None,
            })),
            "slices" => Rows::Slices(Box::new(std::mem::take(&mut derived.slices))),
            "states" => Rows::States(Box::new(std::mem::take(&mut derived.states))),
            _ => Rows::RunQueue(Box::new(std::mem::take(&mut derived.runqueue))),
        };
        let news = self.out.strings.news(known);
        let known = self.out.strings.len();
        self.out.clear_events();
        Ok(to.give(rows, news, known).map(|()| more))
    }

    /// Takes the events that are there; the next ones are written to `emptied`, where that is given.
    pub(crate) fn take_events(&mut self, emptied: Option<Box<Events>>) -> Box<Events> {
        let mut room = emptied.unwrap_or_else(|| Box::new(self.out.events.like()));
        std::mem::swap(&mut self.out.events, &mut room);
        room
    }

    /// Tools that state slices leave no events to derive them from.
    fn stated_slices(&mut self) {
        let derived = &mut self.derivation.tables;
        if derived.slices.is_empty() && self.ended {
            std::mem::swap(&mut derived.slices, &mut self.out.slices);
        }
    }

    /// Reads the next events and derives from them; false at the end, when all tables are complete.
    pub(crate) fn next(&mut self, rows: usize) -> Result<bool, ParseError> {
        while !self.done && self.out.events.len() < rows && self.out.strings.text_bytes() < TEXT_BYTES {
            let wanted = (rows - self.out.events.len()).min(STEP_ROWS);
            match self.parser.fill(&mut self.out, wanted) {
                Ok(more) => self.done = !more,
                Err(error) if self.rows == 0 && self.out.events.is_empty() => return Err(error),
                Err(error) => self.stop(&error),
            }
            if let Some(error) = self.opened.shorter() {
                self.stop(&error);
            }
        }
        if self.out.events.is_empty() {
            if !self.ended {
                self.ended = true;
                self.derivation.finish(&mut self.out);
            }
            return Ok(false);
        }
        self.digest();
        Ok(true)
    }

    /// A source that fails half-way (a damaged wrapper, a bad disk) keeps what it gave before.
    fn stop(&mut self, error: &ParseError) {
        self.done = true;
        let mut row = Diagnostic::new(Code::Damaged, format!("reading stopped here: {}", error.message))
            .advise("what comes after this place is not in the tables");
        row.offset = error.position.offset.or(Some(self.parser.consumed()));
        row.line = error.position.line;
        self.out.diag(row);
    }

    pub(crate) fn export<T: tracekit_schema::table::Table>(&self, rows: &T) -> Table {
        use tracekit_schema::arrow::{batch, keys_schema, schema};
        let large = matches!(T::DEF.name, "events" | "slices" | "states" | "runqueue");
        let (schema, names) = if self.keys && large {
            (keys_schema::<T>(&self.out.meta), Names::Keys(&self.out.strings))
        } else {
            (schema::<T>(&self.out.meta), Names::Compact(&self.out.strings))
        };
        let schema = Arc::new(schema);
        let batch = batch(rows, names, Arc::clone(&schema));
        Table::new(T::DEF.name, schema, vec![batch])
    }

    pub(crate) fn table(&mut self, name: &str) -> Table {
        if !self.ended {
            self.derivation.drain();
        }
        self.stated_slices();
        let derived = &mut self.derivation.tables;
        macro_rules! taken {
            ($table:expr) => {{
                let rows = std::mem::take(&mut $table);
                self.export(&rows)
            }};
        }
        match name {
            "slices" => taken!(derived.slices),
            "states" => taken!(derived.states),
            "runqueue" => taken!(derived.runqueue),
            "tasks" => taken!(derived.tasks),
            "cpus" => taken!(derived.cpus),
            "losses" => taken!(self.out.losses),
            "diagnostics" => export_diagnostics(&self.out.diagnostics, &self.out.meta),
            "histograms" => taken!(self.out.histograms),
            "summaries" => taken!(self.out.summaries),
            _ => self.export(&Events::default()),
        }
    }
}
