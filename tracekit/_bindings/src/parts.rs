//! Events from Python as parts to reconstruct programs from.

use arrow_array::RecordBatch;
use pyo3::prelude::*;

use tracekit_replay::reconstruct::{Head, Parts};
use tracekit_schema::table::Table as _;
use tracekit_schema::{Events, Strings};

use crate::table::{append, pieces};

/// Rows that are there at a time.
const ROWS: usize = 1 << 16;

/// Arrow batches of events. They become rows again each time they are read.
pub struct Batches {
    batches: Vec<RecordBatch>,
    strings: Strings,
    head: Head,
}

impl Batches {
    /// Of a DataFrame or an Arrow table with the columns of `events`.
    pub fn of(py: Python<'_>, events: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut found = Batches { batches: Vec::new(), strings: Strings::new(), head: Head::default() };
        let mut rows = Events::default();
        for piece in pieces(events)? {
            let piece = piece?;
            for from in (0..piece.num_rows()).step_by(ROWS) {
                let batch = piece.slice(from, ROWS.min(piece.num_rows() - from));
                append(&mut rows, &batch, &mut found.strings)?;
                found.head.add(&rows);
                rows.clear();
                found.strings.forget_texts();
                found.batches.push(batch);
                py.check_signals()?;
            }
        }
        Ok(found)
    }

    /// How many events there are.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

impl Parts for Batches {
    fn head(&self) -> &Head {
        &self.head
    }

    fn strings(&self) -> &Strings {
        &self.strings
    }

    fn each(&self, take: &mut dyn FnMut(&Events) -> bool) {
        // The names get the numbers that they have in `strings`, all of which it knows.
        let (mut rows, mut strings) = (Events::default(), self.strings.clone());
        for batch in &self.batches {
            let loaded = tracekit_schema::arrow::append(&mut rows, batch, &mut strings);
            debug_assert!(loaded.is_ok(), "it was loaded before");
            if !take(&rows) {
                return;
            }
            rows.clear();
            strings.forget_texts();
        }
    }
}
