//! Events become the other tables: while a trace is read, or from events that come back from Python.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use tracekit_replay::emit::Records;
use tracekit_schema::arrow::{batch, schema, Names};
use tracekit_schema::derive::sink::{CpuRow, QueueRow, Sink, SliceRow, StateRow, TaskRow};
use tracekit_schema::derive::{tasks_of, DeriveOptions, Derived, Deriver, Tables};
use tracekit_schema::diag::Diagnostics;
use tracekit_schema::metrics::{Grouping, Survey};
use tracekit_schema::recorded::of_some_tasks;
use tracekit_schema::table::Table as _;
use tracekit_schema::tables::DiagnosticTable;
use tracekit_schema::{Code, Events, Metadata, Out, Strings};

use crate::errors::detached;
use crate::metrics::{of_survey, MetricRow};
use crate::table::Table;

/// Which derived tables are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    any: bool,
    slices: bool,
    states: bool,
    runqueue: bool,
    /// One table of those that grow with the trace, and nothing else: its rows may be taken as they come.
    alone: bool,
}

impl Wanted {
    /// All of them.
    pub const ALL: Wanted = Wanted { any: true, slices: true, states: true, runqueue: true, alone: false };

    /// None of them.
    pub const NONE: Wanted = Wanted { any: false, slices: false, states: false, runqueue: false, alone: false };

    /// From names of tables; none means all.
    pub fn new(names: Option<Vec<String>>) -> PyResult<Self> {
        let Some(names) = names else {
            return Ok(Wanted::ALL);
        };
        for name in &names {
            crate::registry::by_name(name)?;
        }
        let has = |name: &str| names.iter().any(|n| n == name);
        let (slices, states, runqueue) = (has("slices"), has("states"), has("runqueue"));
        let small = has("tasks") || has("cpus");
        let alone = !small && [slices, states, runqueue].into_iter().filter(|b| *b).count() == 1;
        Ok(Wanted { any: slices || states || runqueue || small, slices, states, runqueue, alone })
    }
}

/// The state machine and what has come out of it.
pub struct Derivation {
    wanted: Wanted,
    deriver: Option<Deriver>,
    /// Finished rows; those that are not wanted stay empty.
    pub tables: Derived,
}

impl Derivation {
    /// A derivation that has seen nothing.
    pub fn new(wanted: Wanted) -> Self {
        Derivation { wanted, deriver: None, tables: Derived::default() }
    }

    /// Can rows of this table be taken before the end?
    pub fn streams(&self, name: &str) -> bool {
        let Wanted { slices, states, runqueue, alone, .. } = self.wanted;
        alone
            && matches!(
                (name, slices, states, runqueue),
                ("slices", true, ..) | ("states", _, true, _) | ("runqueue", .., true)
            )
    }

    /// Reads the events of a batch.
    pub fn push(&mut self, out: &mut Out) {
        if !self.wanted.any {
            return;
        }
        let wanted = self.wanted;
        // The first batch comes after the head of the source, which names the system and counts the CPUs.
        let deriver = self.deriver.get_or_insert_with(|| {
            let known = DeriveOptions::for_trace(&out.meta);
            Deriver::new(DeriveOptions { states: wanted.states, runqueue: wanted.runqueue, ..known })
        });
        deriver.push(&out.events, &out.strings, &mut out.diagnostics);
    }

    /// Takes the rows that are finished.
    pub fn drain(&mut self) {
        if let Some(deriver) = &mut self.deriver {
            self.tables = deriver.drain();
            self.settle();
        }
    }

    /// Ends the derivation.
    pub fn finish(&mut self, out: &mut Out) {
        if let Some(deriver) = self.deriver.take() {
            self.tables = deriver.finish(&mut out.diagnostics);
            own_up(out);
            self.settle();
        } else if !out.slices.is_empty() {
            // Tools that state slices leave no events to derive anything from.
            self.tables.tasks = tasks_of(&out.slices);
        }
    }

    fn settle(&mut self) {
        if !self.wanted.slices {
            self.tables.slices = Default::default();
        }
        self.tables.sort();
    }
}

/// Takes back a count of lost records when switches are missing: the source lost more than it knows of.
pub fn own_up(out: &mut Out) {
    if out.diagnostics.count(Code::SwitchMismatch) > 0 && out.meta.0.remove("loss.total").is_some() {
        out.meta.set("loss.known", "false");
    }
}

/// Derives all tables from events: a DataFrame or Arrow table with the columns of `events`.
#[pyfunction]
pub fn derive<'py>(
    py: Python<'py>,
    events: &Bound<'py, PyAny>,
    metadata: BTreeMap<String, String>,
) -> PyResult<Bound<'py, PyDict>> {
    let mut out = Out { meta: Metadata(metadata), ..Out::default() };
    let mut derivation = Derivation::new(Wanted::ALL);
    for piece in crate::table::pieces(events)? {
        py.check_signals()?;
        out.clear_events();
        crate::table::append(&mut out.events, &piece?, &mut out.strings)?;
        detached(py, || derivation.push(&mut out))?;
    }
    tables_of(py, derivation, &mut out)
}

/// What the switches in `events` show of a recording of some tasks: columns as in `derive`, of which kind,
/// CPU and threads are looked at.
#[pyfunction]
pub fn some_tasks(py: Python<'_>, events: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let mut out = Out::default();
    for piece in crate::table::pieces(events)? {
        crate::table::append(&mut out.events, &piece?, &mut out.strings)?;
    }
    detached(py, || of_some_tasks(&out.events))
}

/// Ends a derivation and gives what has come out of it, as tables by name.
pub fn tables_of<'py>(py: Python<'py>, mut derivation: Derivation, out: &mut Out) -> PyResult<Bound<'py, PyDict>> {
    let made = detached(py, || {
        derivation.finish(out);
        exported(derivation.tables, out)
    })?;
    let tables = PyDict::new(py);
    for table in made {
        tables.set_item(table.name(), table)?;
    }
    Ok(tables)
}

/// The tables for Python.
fn exported(derived: Derived, out: &Out) -> Vec<Table> {
    // One after the other goes: it is not there twice.
    let Derived { slices, states, runqueue, .. } = derived;
    let (slices, states, runqueue) = (given(slices, out), given(states, out), given(runqueue, out));
    vec![
        slices,
        states,
        runqueue,
        export(&derived.tasks, out),
        export(&derived.cpus, out),
        export_diagnostics(&out.diagnostics, &out.meta),
    ]
}

/// Events of a run that are there at a time.
const STRETCH: usize = 1 << 16;

/// What a caller wants of a run.
pub struct Asked {
    /// The tables; of those that grow with the run only these are there.
    pub tables: Wanted,
    /// The statistics that comparisons hold side by side, by this grouping.
    pub metrics: Option<Grouping>,
}

/// Who listens to a run: what makes its tables, and what gathers its statistics.
struct Listener {
    tables: Tables,
    wanted: Wanted,
    survey: Option<Survey>,
}

impl Sink for Listener {
    #[inline]
    fn slice(&mut self, row: &SliceRow) {
        if self.wanted.slices {
            self.tables.slice(row);
        }
        if let Some(survey) = &mut self.survey {
            survey.slice(row);
        }
    }

    #[inline]
    fn state(&mut self, row: &StateRow) {
        if self.wanted.states {
            self.tables.state(row);
        }
        if let Some(survey) = &mut self.survey {
            survey.state(row);
        }
    }

    #[inline]
    fn runqueue(&mut self, row: &QueueRow) {
        if self.wanted.runqueue {
            self.tables.runqueue(row);
        }
        if let Some(survey) = &mut self.survey {
            survey.runqueue(row);
        }
    }

    fn task(&mut self, row: &TaskRow) {
        self.tables.task(row);
    }

    fn cpu(&mut self, row: &CpuRow) {
        self.tables.cpu(row);
    }
}

/// The tables of a run besides its events, how many events it has, and its statistics: what was
/// asked for. The events are never all there; nor are the tables, where nobody asks for them.
pub fn of_run(
    out: &mut Out,
    records: &Records,
    asked: &Asked,
    go_on: &mut dyn FnMut() -> bool,
) -> (Option<Vec<Table>>, usize, Vec<MetricRow>) {
    let wanted = asked.tables;
    let survey = asked.metrics.map(|_| Survey::new(Some(records.span().1)).holding(usize::MAX));
    let options = DeriveOptions {
        states: wanted.states || survey.is_some(),
        runqueue: wanted.runqueue || survey.is_some(),
        ..DeriveOptions::for_trace(&out.meta)
    };
    let listener = Listener { tables: Tables::default(), wanted, survey };
    let (mut emitter, mut events) = (records.emitter(out), 0);
    let mut deriver = Deriver::with(options, listener);
    while go_on() && emitter.fill(out, STRETCH) {
        events += out.events.len();
        deriver.push(&out.events, &out.strings, &mut out.diagnostics);
        out.clear_events();
    }
    let Listener { tables, survey, .. } = deriver.end(&mut out.diagnostics);
    own_up(out);
    let metrics = survey.zip(asked.metrics).map(|(mut survey, by)| {
        survey.finish(None);
        of_survey(&survey, &out.strings, by)
    });
    let tables = wanted.any.then(|| {
        let mut rows = tables.rows;
        rows.sort();
        exported(rows, out)
    });
    (tables, events, metrics.unwrap_or_default())
}

/// The events of a run.
pub fn events_of(records: &Records, meta: &Metadata, go_on: &mut dyn FnMut() -> bool) -> Table {
    let mut out = Out { meta: meta.clone(), ..Out::default() };
    let schema = Arc::new(schema::<Events>(meta));
    let (mut emitter, mut batches) = (records.emitter(&mut out), Vec::new());
    while go_on() && emitter.fill(&mut out, STRETCH) {
        batches.push(batch(&out.events, Names::Compact(&out.strings), Arc::clone(&schema)));
        out.clear_events();
    }
    Table::new(Events::DEF.name, schema, batches)
}

fn given<T: tracekit_schema::table::Table>(rows: T, out: &Out) -> Table {
    export(&rows, out)
}

fn export<T: tracekit_schema::table::Table>(rows: &T, out: &Out) -> Table {
    let schema = Arc::new(schema::<T>(&out.meta));
    let batch = batch(rows, Names::Compact(&out.strings), Arc::clone(&schema));
    Table::new(T::DEF.name, schema, vec![batch])
}

/// A table whose names are in `strings`, without metadata.
pub fn export_alone<T: tracekit_schema::table::Table>(rows: &T, strings: &Strings) -> Table {
    let schema = Arc::new(schema::<T>(&Metadata::default()));
    let batch = batch(rows, Names::Compact(strings), Arc::clone(&schema));
    Table::new(T::DEF.name, schema, vec![batch])
}

/// The diagnostics as a table.
pub fn export_diagnostics(diagnostics: &Diagnostics, meta: &Metadata) -> Table {
    let mut strings = Strings::new();
    let mut rows = DiagnosticTable::default();
    for d in diagnostics.rows() {
        let severity = strings.intern(d.code.severity().as_str().as_bytes());
        let code = strings.intern(d.code.as_str().as_bytes());
        let message = strings.intern(d.message.as_bytes());
        let advice = (!d.advice.is_empty()).then(|| strings.intern(d.advice.as_bytes()));
        let mut row = rows.push();
        row.severity(severity).code(code).count(d.count).offset(d.offset).line(d.line);
        row.cpu(d.cpu).ts_ns(d.ts_ns).message(message).advice(advice);
    }
    let schema = Arc::new(schema::<DiagnosticTable>(meta));
    let batch = batch(&rows, Names::Compact(&strings), Arc::clone(&schema));
    Table::new(DiagnosticTable::DEF.name, schema, vec![batch])
}
