//! What a survey keeps of events, batch by batch: in a thread of its own where there are several CPUs.

use tracekit_schema::derive::sink::{CpuRow, QueueRow, Sink, SliceRow, StateRow, TaskRow};
use tracekit_schema::derive::{DeriveOptions, Deriver, Tables};
use tracekit_schema::diag::Diagnostics;
use tracekit_schema::metrics;
use tracekit_schema::table::Table as _;
use tracekit_schema::tables::{flag, Slices};
use tracekit_schema::{Events, Kind, News, Strings};

use crate::derive::own_up;
use crate::errors::Bug;
use crate::reader::Inner;
use crate::stage::Stage;

/// What the state machine says, of which statistics and small tables are kept.
#[derive(Default)]
pub struct Kept {
    /// The statistics.
    pub survey: metrics::Survey,
    /// Slices, states, changes of run queues.
    pub rows: [u64; 3],
    /// Slices that records contradict, tasks, CPUs.
    pub tables: Tables,
}

impl Kept {
    /// Takes slices that the source itself states.
    pub fn add(&mut self, slices: &Slices) {
        self.survey.push(slices, None, &Default::default());
        self.rows[0] += slices.len() as u64;
        let marked = |row: &u32| slices.flags.get(*row as usize).unwrap_or(0) & DAMAGED != 0;
        let places: Vec<u32> = (0..slices.len() as u32).filter(marked).collect();
        self.tables.rows.slices.extend_from(&slices.take(&places), 0);
    }
}

/// Records contradict the slice.
const DAMAGED: u16 = flag::INFERRED_END | flag::CLAMPED;

impl Sink for Kept {
    #[inline]
    fn slice(&mut self, row: &SliceRow) {
        self.rows[0] += 1;
        self.survey.slice(row);
        if row.flags & DAMAGED != 0 {
            self.tables.slice(row);
        }
    }

    #[inline]
    fn state(&mut self, row: &StateRow) {
        self.rows[1] += 1;
        self.survey.state(row);
    }

    #[inline]
    fn runqueue(&mut self, row: &QueueRow) {
        self.rows[2] += 1;
        self.survey.runqueue(row);
    }

    fn task(&mut self, row: &TaskRow) {
        self.tables.task(row);
    }

    fn cpu(&mut self, row: &CpuRow) {
        self.tables.cpu(row);
    }
}

/// All that is gathered from events.
pub struct Gathered {
    deriver: Option<Deriver<Kept>>,
    /// What is kept, once there are no more events.
    pub kept: Kept,
    /// Events by number of their kind.
    pub kinds: [u64; Kind::NAMES.len()],
    /// First and last time of an event.
    pub span: Option<(i64, i64)>,
    /// What the state machine found, and how many rows of that there were after each turn.
    diagnostics: Diagnostics,
    /// See [`Diagnostics::in_turns`].
    turns: Vec<usize>,
}

impl Gathered {
    /// Of samples of which `hold` are held one by one.
    pub fn holding(hold: usize) -> Self {
        let survey = metrics::Survey::new(None).holding(hold);
        Gathered {
            deriver: None,
            kept: Kept { survey, ..Kept::default() },
            kinds: [0; Kind::NAMES.len()],
            span: None,
            diagnostics: Diagnostics::default(),
            turns: Vec::new(),
        }
    }

    /// Takes what a batch of events says.
    fn push(&mut self, events: &Events, strings: &Strings, about: About) {
        for row in 0..events.len() {
            if let Some(kind) = events.kind.get(row) {
                self.kinds[kind as usize] += 1;
            }
            if let Some(ts) = events.ts_ns.get(row) {
                let (first, last) = self.span.get_or_insert((ts, ts));
                (*first, *last) = ((*first).min(ts), (*last).max(ts));
            }
        }
        let kept = &mut self.kept;
        let deriver =
            self.deriver.get_or_insert_with(|| Deriver::with(about.options.unwrap_or_default(), std::mem::take(kept)));
        deriver.push(events, strings, &mut self.diagnostics);
        deriver.sink().survey.look();
        if about.last_of_turn {
            self.turns.push(self.diagnostics.rows().len());
        }
    }

    /// There are no more events. Tools that state slices leave none to derive them from.
    fn finish(&mut self, stated: &Slices) {
        if let Some(deriver) = self.deriver.take() {
            self.kept = deriver.end(&mut self.diagnostics);
        }
        if self.kept.rows[0] == 0 {
            self.kept.add(stated);
        }
        self.kept.survey.finish(self.span.map(|span| span.1));
    }
}

/// What comes with a batch.
struct About {
    /// What is known of the trace: with the first batch.
    options: Option<DeriveOptions>,
    /// It is the last one of a turn.
    last_of_turn: bool,
}

/// A batch on its way: its events, the strings that are new in them.
type Batch = (Box<Events>, News, About);

/// Where events are gathered.
enum Place {
    /// Here: there is one CPU.
    Here(Box<Gathered>),
    /// In a thread, which gives emptied events back.
    Behind(Stage<(Gathered, Strings), Batch, Box<Events>>),
}

/// Takes batches of events until there are no more.
pub struct Gatherer {
    place: Place,
    /// Nothing was taken yet.
    fresh: bool,
    /// Strings that the thread knows.
    known: usize,
    /// Rows of diagnostics that the source had after each turn.
    turns: Vec<usize>,
}

impl Gatherer {
    /// Of samples of which `hold` are held one by one.
    pub fn new(hold: usize) -> Self {
        let several = std::thread::available_parallelism().is_ok_and(|n| n.get() > 1);
        let state = || (Gathered::holding(hold), Strings::new());
        let behind = several.then(|| Stage::start("statistics", state(), behind).ok()).flatten();
        let place = behind.map_or_else(|| Place::Here(Box::new(Gathered::holding(hold))), Place::Behind);
        Gatherer { place, fresh: true, known: 0, turns: Vec::new() }
    }

    /// Takes the events that a source has read. Between turns the diagnostics of the source and those of
    /// the state machine follow one another.
    ///
    /// # Errors
    /// The panic in which the thread ended.
    pub fn take(&mut self, source: &mut Inner, last_of_turn: bool) -> Result<(), Bug> {
        let options = std::mem::take(&mut self.fresh).then(|| DeriveOptions::for_trace(&source.out.meta));
        let about = About { options, last_of_turn };
        match &mut self.place {
            Place::Here(gathered) => gathered.push(&source.out.events, &source.out.strings, about),
            Place::Behind(stage) => {
                let news = source.out.strings.new_names(self.known);
                self.known = source.out.strings.len();
                let emptied = stage.done().next();
                stage.give((source.take_events(emptied), news, about))?;
            }
        }
        if last_of_turn {
            self.turns.push(source.out.diagnostics.rows().len());
        }
        source.out.clear_events();
        Ok(())
    }

    /// There are no more: what was gathered. The source gets the small tables and the diagnostics.
    ///
    /// # Errors
    /// The panic in which the thread ended.
    pub fn end(self, source: &mut Inner) -> Result<Gathered, Bug> {
        let mut gathered = match self.place {
            Place::Here(gathered) => *gathered,
            Place::Behind(mut stage) => stage.end()?.0 .0,
        };
        let out = &mut source.out;
        gathered.finish(&std::mem::take(&mut out.slices));
        out.diagnostics = out.diagnostics.in_turns(&self.turns, &gathered.diagnostics, &gathered.turns);
        if !self.fresh {
            own_up(out);
            let rows = &mut gathered.kept.tables.rows;
            let tables = &mut source.derivation.tables;
            (tables.tasks, tables.cpus) = (std::mem::take(&mut rows.tasks), std::mem::take(&mut rows.cpus));
        }
        Ok(gathered)
    }
}

/// What the thread does with a batch.
fn behind((gathered, strings): &mut (Gathered, Strings), (mut events, news, about): Batch) -> Box<Events> {
    strings.follow(news);
    gathered.push(&events, strings, about);
    events.clear();
    events
}
